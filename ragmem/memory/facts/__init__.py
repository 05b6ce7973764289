"""The values that enter and leave the facts: drafts, outcomes, questions and hits.

Also the checks that a draft must pass, its conversion to a memory, and expiry.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from ragmem.errors import UsageError
from ragmem.ids import new_id
from ragmem.memory.facts.words import is_greeting, is_instruction, plain
from ragmem.records import Evidence, MemoryKind, MemoryRecord, MemoryScope, MemorySource, Trust
from ragmem.redact import redact
from ragmem.text import Regex, clean, one_line

Action = Literal["added", "updated", "known", "refused"]
"""The outcome of a draft: stored as new, stored in place of others, already known, or rejected."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """Something to remember, before it is compared with the known memories."""

    content: str
    kind: MemoryKind = "fact"
    subjects: tuple[str, ...] = ()
    trust: Trust = "person"
    source: MemorySource = "conversation"
    scope: MemoryScope | None = None
    """With None, its kind and content decide (`is_of_project`)."""
    ttl: str | None = None
    """A number and h, d or w (hours, days, weeks); with None, it never expires."""
    pinned: bool = False
    at: datetime | None = None
    """When it happened or is due."""
    evidence: tuple[Evidence, ...] = ()


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a draft."""

    action: Action
    memory: MemoryRecord | None = None
    """The current state of the memory; None if the draft was refused."""
    superseded: tuple[MemoryRecord, ...] = ()
    note: str = ""
    """For the user: why it was refused, or what was changed (such as an invalid duration)."""


class FactQuestion(msgspec.Struct, frozen=True):
    """A search for memories."""

    text: str
    project_id: str | None = None
    limit: int = 5
    subjects: tuple[str, ...] = ()
    """If given, only memories about one of these are found, whatever their text."""
    floor: bool = True
    """Leave out memories that the text neither names nor is close to; if False, return the best."""


class FactHit(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that is relevant to a question."""

    memory: MemoryRecord
    score: float
    """The sort key; comparable within one search only."""
    similarity: float | None = None
    """The raw cosine similarity; None if it was found by its words or subjects alone."""
    why: tuple[str, ...] = ()
    """What it was found by, for display: "its words", "its meaning", "its subject" …"""
    since: str = ""
    """A later statement on the same matter, which may contradict it."""

    def is_close(self, _: float | None) -> bool:
        """Return True: a search for memories leaves out those that are not close."""
        return True

    def is_further(self, _: float | None) -> bool:
        """Return False: every hit is close."""
        return False


def told_by(memory: MemoryRecord) -> str:
    """Return who said it, as text; empty if the user did."""
    if memory.trust == "person":
        return ""
    if memory.trust == "model":
        return "said by the model"
    for evidence in memory.evidence:
        if evidence.path:
            return f"read in {one_line(evidence.path, 120)}"
    for evidence in memory.evidence:
        if evidence.tool_name:
            return f"read in the output of {one_line(evidence.tool_name, 60)}"
    return "read in a file or an output"


def attributed(memory: MemoryRecord) -> str:
    """Return its text, after who said it if the user did not."""
    said = told_by(memory)
    return f"({said}) {memory.content}" if said else memory.content


def dated(memory: MemoryRecord, now: datetime) -> str:
    """Return when it happened or is due, as text; empty if that is unknown."""
    if memory.at is None:
        return ""
    day = day_of(memory.at, now)
    return f"due {day}" if memory.kind == "deadline" else day


def day_of(at: datetime, now: datetime) -> str:
    """Return the day of a time in the user's time zone, which is that of `now`."""
    return f"{at.astimezone(now.tzinfo):%Y-%m-%d}"


MAX_CONTENT_CHARS = 1_000
"""A longer text is refused, since it can't be a single fact."""
_MAX_SUBJECTS = 12
_SUBJECT_CHARS = 60
_QUOTE_CHARS = 500
_PERSONAL: frozenset[MemoryKind] = frozenset(["rule", "preference"])
"""The kinds that only the user's own words can establish."""
_SELF = Regex(
    "me|i|myself|self|the user|user|the person|person|profile|moi|l'utilisateur|utilisateur|"
    "benutzer|ich|usuario|yo|utente|io"
)
# Matched against `plain` text.
_KIN = (
    r"(?:wife|husband|spouse|girlfriend|boyfriend|brother|sister|son|daughter|children|kids?|baby|"
    r"mother|father|mom|mum|dad|family|friend|cousin|uncle|aunt|dog|cat|birthday|hobby|hobbies|"
    r"hometown|native language|mother tongue|pronouns|time ?zone|name is)"
)
_KIN_FR = (
    r"(?:femme|mari|conjointe?|copine|copain|frere|soeur|fils|fille|enfants|mere|pere|famille|"
    r"amie?|cousine?|oncle|tante|chien|chat|anniversaire|metier|langue maternelle|"
    r"fuseau horaire|nom est|prenom est)"
)
_KIN_DE = (
    r"(?:frau|mann|partner(?:in)?|freund(?:in)?|bruder|schwester|sohn|tochter|kind(?:er)?|eltern|"
    r"mutter|vater|mama|papa|familie|cousine?|onkel|tante|hund|katze|geburtstag|hobbys?|beruf|"
    r"muttersprache|zeitzone|heimatstadt|(?:vor|nach)?name ist)"
)
# Matches "The user lives in Lyon" and "I am a teacher from Pau"; must not match what only begins
# like that: "The user table has two columns", "I am using Postgres here", "My job fails in CI".
_ABOUT_PERSON = Regex(
    rf"\b(?:(?:my|the (?:user|person)(?:'s|s')) {_KIN})\b|"
    r"\b(?:i|the (?:user|person)) (?:live|lives|(?:have |has )?moved (?:to|from|back|in with)|"
    r"was born|grew up|speak|speaks|study|studies|"
    r"works? (?:at|for|as|in|from|with)|am called|(?:have|has) (?:a|an|two|three) (?:\w+ )?(?:son|"
    r"daughter|child|children|kids?|dog|cat))\b|"
    r"\b(?:i am|i'm|the (?:user|person) is) (?:an? \w+(?:or|er|ist|ian|ant|ent|ect|man|woman)|from|"
    r"living|working (?:at|for|as|in)|based|called|named|\d+ years old|married|ill|sick|on holiday|"
    r"vegetarian|vegan|allergic|left-handed|colou?r-?blind|deaf|blind|fluent|retired)\b|"
    rf"\b(?:mon|ma|mes) {_KIN_FR}\b|"
    rf"\bmein(?:e[nmrs]?)? {_KIN_DE}s?\b(?!-)|"
    r"\bich (?:heisse|wohne|spreche|studiere|komme aus(?! de[mnr]\b)) \w|"
    r"\bich habe (?:eine?n?|zwei|drei|vier|\d) (?:\w+ )?(?:kind(?:er)?|sohne?|tochtern?|hunde?|"
    r"katzen?)\b(?!-)|"
    r"\bich bin (?:eine? \w+(?:er|in|ist|ent|eur|or)\b|\w+ aus (?!de[mnr]\b)\w|\d+ jahre alt|"
    r"(?:verheiratet|geschieden|krank|im urlaub|vegetari\w+|vegan\w*|allergisch|linkshand\w+|"
    r"farbenblind|blind|taub|geboren)\b)|"
    r"\b(?:wohne|lebe|ich arbeite) (?:in|bei|als)\b|"
    r"\b(?:j'habite|je vis|je travaille|je m'appelle|j'ai \d+ ans|"
    r"j'ai (?:une?|deux|trois|quatre|\d) (?:\w+ )?(?:enfants?|fils|filles?|chiens?)|je suis ne|"
    r"je parle|"
    r"je suis (?:un|une|malade|en vacances|marie|developpeu\w+|ingenieur\w*))\b"
)
_TTL = re.compile(
    r"\s*(\d{1,6})\s*(?:(h|hours?|heures?)|(d|days?|j|jours?)|(w|weeks?|semaines?))\s*",
    re.IGNORECASE,
)
_LASTING = frozenset({"", "null", "none", "never", "permanent", "forever"})


def expiry(ttl: str | None, now: datetime) -> tuple[datetime | None, str]:
    """Return when a time to live ends, None if never, and a note for the user if it is invalid.

    An invalid one never ends: keeping something too long costs less than losing it.
    """
    if ttl is None or ttl.strip().casefold() in _LASTING:
        return None, ""
    match = _TTL.fullmatch(ttl)
    count = int(match[1]) if match else 0
    if match is None or count == 0:
        return None, f"{ttl[:40]!r} is not a duration like 1h, 7d or 2w, so it is kept for good."
    step = timedelta(hours=1) if match[2] else timedelta(days=1 if match[3] else 7)
    try:
        return now + count * step, ""
    except OverflowError:
        return None, f"{ttl[:40]!r} is too long a time, so it is kept for good."


def problem_with(content: str) -> str:
    """Return why a text is not worth keeping as a memory, for the user; empty if it is."""
    words = re.findall(r"\w+", content)
    if not any(any(map(str.isalpha, word)) for word in words):
        return "it is empty"
    if is_greeting(content):
        return "it is a greeting or a thank-you"
    if len(content) > MAX_CONTENT_CHARS:
        return f"it is longer than {MAX_CONTENT_CHARS:,} characters: say it in a sentence or two"
    if "```" in content or "~~~" in content or _is_code(content):
        return "it is code: the file keeps that better"
    if content.rstrip().endswith(("?", "？")):
        return "it is a question"
    if len(words) < 2 and len(content) < 8:
        return "a single word says too little"
    return ""


def _is_code(content: str) -> bool:
    """Whether most lines look like code; a single line must also end with `;` or `}`."""
    lines = [line for line in content.split("\n") if line.strip()]
    if not lines:
        return False
    code = re.compile(
        r"[;{}]\s*$|^\s*(?:def|class|import|from \S+ import|return|if .*:$|for .*:$|const|let|var|"
        r"function|public|private|#include|@\w+)\b|^\s{4,}\S"
    )
    marked = sum(1 for line in lines if code.search(line))
    return marked > len(lines) / 2 and (len(lines) > 1 or content.rstrip().endswith((";", "}")))


def checked(draft: Draft, project_id: str | None) -> tuple[Draft, str]:
    """Return the draft as it may be kept, and why it is refused (empty if it isn't).

    Rules, preferences, pins and user-wide memories need the user's own words: from any other source
    they become plain facts of the project.
    """
    content = redact(clean(draft.content))
    problem = problem_with(content)
    if problem:
        return draft, f"Not remembered: {problem}."
    draft = msgspec.structs.replace(draft, content=one_line(content, MAX_CONTENT_CHARS))
    if draft.trust == "person":
        return draft, ""
    if project_id is None:
        return draft, "Not remembered: only the user can say what holds in every project."
    if draft.trust == "tool" and draft.kind != "failure" and is_instruction(draft.content):
        return draft, "Not remembered: it is an instruction from a file or a tool's output."
    kind: MemoryKind = "fact" if draft.kind in _PERSONAL else draft.kind
    if draft.trust == "tool" and kind != "failure":
        kind = "fact"
    return msgspec.structs.replace(draft, kind=kind, pinned=False, scope="project"), ""


def candidate(draft: Draft, project_id: str | None, now: datetime) -> tuple[MemoryRecord, str]:
    """Return the memory that a checked draft becomes, and a note if its time to live is invalid.

    Its time to live begins when it was said, not when it was extracted.
    """
    said_at = min([now, *(evidence.at for evidence in draft.evidence)])
    expires_at, note = expiry(draft.ttl, said_at)
    memory = MemoryRecord(
        memory_id=new_id(),
        kind=draft.kind,
        content=draft.content,
        subjects=tags(draft.subjects),
        trust=draft.trust,
        source=draft.source,
        project_id=project_id if is_of_project(draft) else None,
        pinned=draft.pinned,
        created_at=said_at,
        updated_at=now,
        at=draft.at,
        expires_at=expires_at,
        evidence=tuple(map(_clipped, draft.evidence)),
    )
    return memory, note


def is_of_project(draft: Draft) -> bool:
    """Return whether it belongs to the project: all but preferences and facts about the user do.

    A scope given in the draft wins.
    """
    if draft.scope is not None:
        return draft.scope == "project"
    if draft.kind == "fact":
        return not is_about_person(draft.content, draft.subjects)
    return draft.kind != "preference"


def is_about_person(content: str, subjects: Sequence[str] = ()) -> bool:
    """Whether a fact is about the user, or about their family and friends."""
    if any(_SELF.fullmatch(plain(subject)) for subject in subjects):
        return True
    return _ABOUT_PERSON.search(plain(content)) is not None


def tags(subjects: Iterable[str]) -> tuple[str, ...]:
    """Return subjects as tags: casefolded, without duplicates; `a:b` becomes two tags."""
    found: dict[str, None] = {}
    for subject in subjects:
        for part in re.split(r"[:,;>\n]+", redact(clean(subject))):
            tag = one_line(part.strip().casefold().lstrip("#"), _SUBJECT_CHARS).strip()
            if any(map(str.isalnum, tag)):
                found[tag] = None
    return tuple(found)[:_MAX_SUBJECTS]


def changed(
    memory: MemoryRecord,
    *,
    content: str | None,
    subjects: Sequence[str] | None,
    kind: MemoryKind | None,
    pinned: bool | None,
    owner: str | None,
) -> MemoryRecord:
    """Return the memory with the user's edits; None leaves a field as it is, except for `owner`.

    If they rewrite or pin it, make it a rule or a preference, or make it user-wide (`owner` None),
    it counts as said by them. Raises UsageError.
    """
    if content is not None:
        text = redact(clean(content))
        if problem := problem_with(text):
            raise UsageError(f"Not changed: {problem}.")
        content = one_line(text, MAX_CONTENT_CHARS)
    vouched = content is not None or pinned or kind in _PERSONAL or owner is None
    touched = vouched and (content, kind, pinned, owner) != (None, None, None, memory.project_id)
    return msgspec.structs.replace(
        memory,
        content=memory.content if content is None else content,
        subjects=memory.subjects if subjects is None else tags(subjects),
        kind=kind or memory.kind,
        pinned=memory.pinned if pinned is None else pinned,
        project_id=owner,
        trust="person" if touched else memory.trust,
    )


def _clipped(evidence: Evidence) -> Evidence:
    quote = one_line(redact(clean(evidence.quote)), _QUOTE_CHARS)
    return msgspec.structs.replace(evidence, quote=quote)


def past_their_time(memories: Iterable[MemoryRecord], now: datetime) -> list[str]:
    """Return the ids of expired memories that may be removed; `memories` includes superseded ones.

    Removing a memory removes those that it superseded. So an expired memory is kept, hidden, if
    removing it would remove one that has not expired.
    """
    known = {memory.memory_id: memory for memory in memories}
    kept = {name for name, memory in known.items() if not memory.is_past(now)}
    last = kept
    while last:
        later = {known[name].superseded_by or "" for name in last}
        last = later & known.keys() - kept
        kept = kept | last
    return [name for name in known if name not in kept]

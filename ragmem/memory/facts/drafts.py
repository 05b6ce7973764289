"""From what somebody wants to be remembered to a memory, or to why it is none."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from ragmem.errors import UsageError
from ragmem.ids import new_id
from ragmem.memory.facts import Draft, expiry
from ragmem.memory.facts.words import MAX_CONTENT_CHARS, is_instruction, plain, problem_with
from ragmem.records import Evidence, MemoryKind, MemoryRecord
from ragmem.redact import redact
from ragmem.text import clean, one_line

_MAX_SUBJECTS = 12
_SUBJECT_CHARS = 60
_QUOTE_CHARS = 500
_PERSONAL: frozenset[MemoryKind] = frozenset(["rule", "preference"])
"""Kinds whose evidence must stand in the person's own words."""
_USER_WIDE: frozenset[MemoryKind] = frozenset(["preference"])
_SELF = re.compile(
    "me|i|myself|self|the user|user|the person|person|profile|moi|l'utilisateur|utilisateur|"
    "benutzer|ich|usuario|yo|utente|io"
)
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
_ABOUT_PERSON = re.compile(
    rf"\b(?:(?:my|the (?:user|person)(?:'s|s')) {_KIN})\b|"
    r"\b(?:i|the (?:user|person)) (?:live|lives|(?:have |has )?moved (?:to|from|back|in with)|"
    r"was born|grew up|speak|speaks|study|studies|"
    r"works? (?:at|for|as|in|from|with)|am called|(?:have|has) (?:a|an|two|three) (?:\w+ )?(?:son|"
    r"daughter|child|children|kids?|dog|cat))\b|"
    r"\b(?:i am|i'm|the (?:user|person) is) (?:an? \w+(?:or|er|ist|ian|ant|ent|ect|man|woman)|from|"
    r"living|working (?:at|for|as|in)|based|called|named|\d+ years old|married|ill|sick|on holiday|"
    r"vegetarian|vegan|allergic|left-handed|colou?r-?blind|deaf|blind|fluent|retired)\b|"
    rf"\b(?:mon|ma|mes) {_KIN_FR}\b|"
    r"\b(?:j'habite|je vis|je travaille|je m'appelle|j'ai \d+ ans|je suis ne|je parle|"
    r"je suis (?:un|une|malade|en vacances|marie|developpeu\w+|ingenieur\w*))\b"
)


def checked(draft: Draft, project_id: str | None) -> tuple[Draft, str]:
    """The draft as it may be kept, and why it may not be; empty where it may.

    A rule, a preference, a pin and what is known everywhere need the person's own words: from
    anybody else it is a plain fact of the project.
    """
    content = redact(clean(draft.content))
    problem = problem_with(content)
    if problem:
        return draft, f"Not remembered: {problem}."
    draft = msgspec.structs.replace(draft, content=one_line(content, MAX_CONTENT_CHARS))
    if draft.trust == "person":
        return draft, ""
    if project_id is None:
        return draft, "Not remembered: only you can say what holds in every project."
    if draft.trust == "tool" and draft.kind != "failure" and is_instruction(draft.content):
        return draft, "Not remembered: it is an instruction that stood in a file or an output."
    kind: MemoryKind = "fact" if draft.kind in _PERSONAL else draft.kind
    if draft.trust == "tool" and kind != "failure":
        kind = "fact"
    return msgspec.structs.replace(draft, kind=kind, pinned=False, scope="project"), ""


def candidate(draft: Draft, project_id: str | None, now: datetime) -> tuple[MemoryRecord, str]:
    """The memory that a checked draft makes, and what to tell of its time to live.

    It begins when it was said, not when somebody came to look through what was said.
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
    """Where it is known: facts about the person and preferences everywhere, else here."""
    if draft.scope is not None:
        return draft.scope == "project"
    if draft.kind in _USER_WIDE:
        return False
    return draft.kind != "fact" or not is_about_person(draft.content, draft.subjects)


def is_about_person(content: str, subjects: Sequence[str] = ()) -> bool:
    """Whether a fact is one about the person or their circle."""
    if any(_SELF.fullmatch(plain(subject)) for subject in subjects):
        return True
    return _ABOUT_PERSON.search(plain(content)) is not None


def tags(subjects: Iterable[str]) -> tuple[str, ...]:
    """Flat and casefolded; `a:b` becomes two."""
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
    """The memory as the person edits it: what they write, or make a rule, they vouch for."""
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

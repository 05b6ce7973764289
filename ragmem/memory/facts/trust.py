"""How a new memory relates to the known ones (same, updated, new), and who vouches for it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain

import msgspec

from ragmem.embedder import Thresholds, cosines
from ragmem.memory.date_words import word_set
from ragmem.memory.facts import Draft, Remembered
from ragmem.memory.facts.words import (
    PARTICULAR,
    WHEN,
    is_of_subject,
    names_in,
    own_words,
    particulars,
    plain,
    sentences,
)
from ragmem.memory.summaries import RECALL_TOOLS
from ragmem.memory.turns import argument, result_text
from ragmem.own_tools import REMEMBER
from ragmem.records import (
    Evidence,
    MemoryKind,
    MemoryRecord,
    PutMemory,
    ToolCall,
    Trust,
    Turn,
)
from ragmem.terms import guess_language, is_stop_word, terms
from ragmem.text import Regex, clean, one_line

_TRUST = {"tool": 0, "model": 1, "person": 2}
_NEARLY = 0.85
"""The share of common words among all words, from which two texts count as the same."""
_MUCH = 0.5
"""The share of the shorter text's words, from which two texts of one turn count as the same."""
_NUMBER = Regex(r"\d+")
_LEAST_WORDS_COMPARED = 3
_MOST_EVIDENCE = 10
_MOST_NORMAL = 10_000
"""The size of the caches of normalized texts: each new memory is compared with all others."""
_SINGULAR: frozenset[MemoryKind] = frozenset(["failure", "rule"])
"""Kinds that are only compared with memories of the same kind."""
_MOVED = Regex(
    r"\b(?:moved|moves|postponed|rescheduled|delayed|pushed back|brought forward|instead|actually|"
    r"no longer|verschoben|vorgezogen|verlegt|jetzt|nun|statt|reportee?s?|repoussee?s?|avancee?s?|"
    r"maintenant|finalement|au lieu)\b"
)
"""Words that announce a new value, such as another day: "postponed", "verlegt", "au lieu"."""
_MARKS = Regex(r"[\W_]+")


def compare(
    new: MemoryRecord,
    known: Iterable[MemoryRecord],
    similarity: Mapping[str, float],
    *,
    duplicate: float,
) -> Remembered:
    """Decide whether a memory is new, known, or replaces others, given the current ones in scope.

    `similarity` has the raw cosine of each comparable memory with it, by id. The caller must store
    the memory of the outcome, unless it is identical to a known one.
    """
    for old in known:
        if repeats(new, old):
            return _merge_repeated(old, new)
    alike = [old for old in known if new.kind == old.kind or not {new.kind, old.kind} & _SINGULAR]
    words = words_of(new.content)
    near = [
        old
        for old in alike
        if _is_same(new, words, old, similarity.get(old.memory_id), duplicate)
        or _is_moved(new, old)
        or _is_reversed(new, old)
    ]
    if any(old.created_at > new.created_at for old in near):
        # An old turn that is only now extracted must not replace what was said after it.
        return Remembered(action="known", memory=max(near, key=lambda old: old.created_at))
    for old in near:
        if rank(old) > _TRUST[new.trust] and words <= words_of(old.content):
            # It says nothing beyond a more trusted memory.
            return Remembered(action="known", memory=old)
    replaced = [old for old in near if rank(old) <= _TRUST[new.trust]]
    if not replaced:
        return Remembered(action="added", memory=new)
    merged = carried_over(new, replaced, sources=[m for m in replaced if _says_all_of(new, m)])
    return Remembered(action="updated", memory=merged, superseded=tuple(replaced))


def repeats(new: MemoryRecord, old: MemoryRecord) -> bool:
    """Whether they have the same words, and neither or both are failures."""
    is_alike = (new.kind == "failure") == (old.kind == "failure")
    return is_alike and normal(new.content) == normal(old.content)


def rank(memory: MemoryRecord) -> int:
    """Return the trust that a memory needs to replace this one: as much as its own source has; for
    rules and pinned memories, the user's."""
    if memory.stands_always:
        return _TRUST["person"]
    return _TRUST[memory.trust]


def may_supersede(new: MemoryRecord, old: MemoryRecord) -> bool:
    """Whether the new memory's source is trusted enough to replace the old memory."""
    return _TRUST[new.trust] >= rank(old)


def in_other_words(memory: MemoryRecord, known: Iterable[MemoryRecord]) -> list[MemoryRecord]:
    """Return the memories of the same kind that were learned from the same turns and say much the
    same: a turn's statement may be stored both verbatim and in a model's wording."""
    turns = {said.turn_id for said in memory.evidence} - {""}
    return [
        each
        for each in known
        if each.memory_id != memory.memory_id
        and each.kind == memory.kind
        and each.evidence
        and turns.issuperset(said.turn_id for said in each.evidence)
        and _says_much_of(memory.content, each.content)
    ]


def _says_much_of(one: str, other: str) -> bool:
    """Whether the texts share half of the words of the shorter, and a number if both have any:
    "Episode 1 is out on Monday" says nothing about episode 2."""
    first, second = words_of(one), words_of(other)
    numbers, others = (frozenset(_NUMBER.findall(text)) for text in (one, other))
    is_of_another = numbers and others and numbers.isdisjoint(others)
    return not is_of_another and len(first & second) >= _MUCH * min(len(first), len(second))


def _says_all_of(new: MemoryRecord, old: MemoryRecord) -> bool:
    """Whether the new memory contains all that the old one says, and does not contradict it."""
    told, tells = (set(normal(each.content).split()) for each in (old, new))
    if _MOVED.search(plain(new.content)) and not _MOVED.search(plain(old.content)):
        # "CSV instead of JSON" has all the words of a statement about JSON.
        return False
    return words_of(old.content) <= words_of(new.content) and told & _TURNING == tells & _TURNING


def carried_over(
    new: MemoryRecord, replaced: Sequence[MemoryRecord], *, sources: Iterable[MemoryRecord]
) -> MemoryRecord:
    """Return the new memory with the subjects and pin of those that it replaces.

    It also gets the evidence of its `sources`, which exclude what it contradicts. Its own time to
    live wins. A fact that replaces a memory of another kind (failures excepted) takes that kind.
    """
    best = replaced[0]
    kind = best.kind if new.kind == "fact" and best.kind != "failure" else new.kind
    return msgspec.structs.replace(
        new,
        kind=kind,
        subjects=union(*(m.subjects for m in replaced), new.subjects),
        evidence=joined([*(e for m in sources for e in m.evidence), *new.evidence]),
        pinned=new.pinned or any(m.pinned for m in replaced),
        at=new.at or next((m.at for m in replaced if m.at and m.kind == kind), None),
    )


def union(*groups: Iterable[str]) -> tuple[str, ...]:
    """Return the items of all groups without duplicates, in their order."""
    return tuple(dict.fromkeys(item for group in groups for item in group))


@lru_cache(maxsize=_MOST_NORMAL)
def normal(text: str) -> str:
    """Return a text without case, accents and punctuation: equal results mean "the same words"."""
    return _MARKS.sub(" ", plain(text)).strip()


@lru_cache(maxsize=_MOST_NORMAL)
def words_of(text: str) -> frozenset[str]:
    """Return a text's words as index terms, without stop words unless it has no others."""
    language = guess_language(text)
    found = frozenset(t for t in terms(text) if not is_stop_word(t, language))
    return found or frozenset(terms(text))


def rivals(
    memory: MemoryRecord,
    known: Iterable[MemoryRecord],
    similarity: Mapping[str, float],
    limits: Thresholds,
) -> list[MemoryRecord]:
    """Return older memories on the same subjects that it may have updated, most similar first.

    Their similarity must exceed the threshold of facts. One as similar as a duplicate is included,
    too: `compare` has kept both because of their particulars.
    """
    near = [old for old in known if similarity.get(old.memory_id, 0.0) > limits.fact]
    return [
        old
        for old in sorted(near, key=lambda old: -similarity.get(old.memory_id, 0.0))
        if old.memory_id != memory.memory_id
        and old.created_at <= memory.created_at
        and old.kind not in _SINGULAR
        and overlapping(memory, old)
        and may_supersede(memory, old)
    ]


def overlapping(one: MemoryRecord, other: MemoryRecord) -> bool:
    """Whether both memories share a subject; one without subjects has the names in its content."""
    return bool(_subjects(one) & _subjects(other))


def _subjects(memory: MemoryRecord) -> frozenset[str]:
    return frozenset(map(plain, memory.subjects)) or names_in(memory.content)


def _is_same(
    new: MemoryRecord,
    words: frozenset[str],
    old: MemoryRecord,
    similarity: float | None,
    duplicate: float,
) -> bool:
    if new.kind == "failure":
        # The same command, whatever its output was this time.
        return failed_command(new) is not None and failed_command(new) == failed_command(old)
    if similarity is not None and similarity < duplicate / 2:
        # Too different in meaning; words need not be compared.
        return False
    first, second = _subjects(new), _subjects(old)
    if first and second and not first & second:
        # "Ana likes tea", "Marc likes tea": highly similar, but two facts.
        return False
    if similarity is not None and similarity > duplicate:
        return not _are_of_two_things(new, old)
    return _nearly_equal(words, words_of(old.content)) and not _are_of_two_things(new, old)


_OF_DEADLINES = frozenset(
    terms("deadline due planned scheduled Frist Termin fällig geplant échéance prévu prévue")
)
"""Words of deadlines in general, which don't say what is due."""


def _is_moved(new: MemoryRecord, old: MemoryRecord) -> bool:
    """Whether both are deadlines for the same thing, on different days."""
    if not new.kind == old.kind == "deadline" or new.at == old.at:
        return False
    first, second = _due_words(new), _due_words(old)
    return bool(first) and first == second


def _is_reversed(new: MemoryRecord, old: MemoryRecord) -> bool:
    """Whether they differ only in words of `_TURNING`: "Never use tabs", "Always use tabs"."""
    tells, told = (normal(each.content).split() for each in (new, old))
    turned = set(tells) ^ set(told)
    return bool(turned) and turned <= _TURNING | {"t"}


def _due_words(memory: MemoryRecord) -> frozenset[str]:
    """Return the words for what is due, without dates and words of change."""
    return words_of(_MOVED.sub(" ", WHEN.sub(" ", plain(memory.content)))) - _OF_DEADLINES


def _are_of_two_things(new: MemoryRecord, old: MemoryRecord) -> bool:
    """Whether both may be true: "Service A listens on 8001", "Service B listens on 8002".

    One particular that differs is a changed value, unless it tells which thing is meant: "Room 12
    has a beamer", "Room 14 has a beamer". If more differ, a model decides later (see `rivals`). For
    rules one suffices: "never touch a.py" must not replace "never touch b.py".
    """
    only_first, only_second = _particulars_beyond(new, old), _particulars_beyond(old, new)
    if not only_first or not only_second:
        return False
    if new.kind == "rule" or max(len(only_first), len(only_second)) > 1:
        return True
    return is_of_subject(only_first[0], new.content) and is_of_subject(only_second[0], old.content)


def _particulars_beyond(one: MemoryRecord, other: MemoryRecord) -> list[str]:
    """Return the particulars of one memory that the other's text lacks."""
    there = _bounded(other.content)
    found = particulars(one.content) - particulars(other.content)
    return [each for each in found if _bounded(each) not in there]


def failed_command(memory: MemoryRecord) -> str | None:
    """Return the command or edit that a failure is about: the part of its content before "failed".

    None if the content has another form.
    """
    head, mark, _ = memory.content.partition("` failed")
    return head if mark else None


def _nearly_equal(new: frozenset[str], old: frozenset[str]) -> bool:
    if min(len(new), len(old)) < _LEAST_WORDS_COMPARED:
        return False
    common = len(new & old)
    # Or the new text has all words of the old one, and more context.
    return old <= new or common >= _NEARLY * (len(new) + len(old) - common)


def _merge_repeated(known: MemoryRecord, new: MemoryRecord) -> Remembered:
    """Merge a memory with the same words into the known one: subjects, evidence, pin and the like.

    It becomes a rule, and known in all projects, if one of them is. The outcome is "updated" if
    trust, kind, scope, expiry or pin change, and "known" otherwise.
    """
    # A model that repeats what a file said does not vouch for it; only the user does.
    stronger = new.trust == "person" != known.trust
    trusted = _TRUST[new.trust] >= rank(known)
    merged = msgspec.structs.replace(
        known,
        trust=new.trust if stronger else known.trust,
        kind=new.kind if trusted and (known.kind == "fact" or new.kind == "rule") else known.kind,
        project_id=known.project_id if new.project_id or not trusted else None,
        subjects=union(known.subjects, new.subjects),
        pinned=known.pinned or new.pinned,
        expires_at=_end(known, new) if trusted else known.expires_at,
        at=known.at or new.at,
        evidence=joined([*known.evidence, *new.evidence]),
    )
    if merged == known:
        return Remembered(action="known", memory=known)
    told, before = (
        (each.trust, each.kind, each.scope, each.expires_at, each.pinned)
        for each in (merged, known)
    )
    merged = msgspec.structs.replace(merged, updated_at=new.updated_at)
    return Remembered(action="known" if told == before else "updated", memory=merged)


def _end(known: MemoryRecord, new: MemoryRecord) -> datetime | None:
    """Return when a repeated memory expires: a model's guess ends nothing that was told to last."""
    if new.source != "conversation":
        return new.expires_at or known.expires_at
    if known.source != "conversation" or known.expires_at is None:
        return known.expires_at
    return new.expires_at and max(known.expires_at, new.expires_at)


def joined(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Return the evidence without duplicates; beyond `_MOST_EVIDENCE`, the first and the newest."""
    places = {(e.turn_id, e.tool_call_id, e.path, plain(e.quote)): e for e in reversed(evidence)}
    found = list(reversed(list(places.values())))
    if len(found) > _MOST_EVIDENCE:
        found = [found[0], *found[-_MOST_EVIDENCE + 1 :]]
    return tuple(found)


_LONGEST_READ = 200_000
_LEAST_WORDS, _LEAST_CHARS = 2, 6
"""A shorter quote occurs in too many texts to prove anything."""
_COVERED = 0.6
"""The share of a memory's words that its source must contain."""
_LEAST_LESS_ONE = 3
"""A quote with more words than this is accepted if it is found without one of them."""
_TURNING = word_set(
    """not no never none nothing neither nor without except unless only but don doesn didn isn
    aren wasn weren won can couldn shouldn wouldn mustn hasn haven cannot always all every any
    must may
    ne pas non jamais aucun aucune rien sans sauf ni que seulement toujours tous chaque doit
    nicht kein keine nie niemals ohne immer nunca sin siempre mai senza sempre nao nem niet geen
    nooit altijd"""
)
"""Words that change what a sentence means: negations, "always", "only", "must" …"""
_PHRASING = word_set(
    """user person prefer prefers preference want wants like likes dislike dislikes use uses
    using project team agent should must always never decided decision agreed deadline due
    says said called name named rule remember
    utilisateur personne prefere veut aime utilise projet equipe doit toujours jamais
    decide echeance appelle nom regle"""
)
"""Words that phrase a memory ("The user prefers …"), and need not be in its source."""
# Matches "Never commit to main" and "Ne commite jamais sur main"; `is_rule` leaves out questions.
_RULE = Regex(
    r"\b(?:always|never|from now on|in (?:the )?future|every time|whenever|at all times|"
    r"must(?: not)?|mustn't|do not|don't|make sure|be sure to|only ever|as a rule|no exceptions?|"
    r"without exception|"
    r"toujours|jamais|desormais|a partir de maintenant|dorenavant|chaque fois|il faut|ne \w+ pas|"
    r"assure-toi|doit|doivent|interdit|immer|niemals?|nie wieder|ab jetzt|in zukunft|jedes mal|"
    r"siempre|nunca|a partir de ahora|cada vez|sempre|mai|d'ora in poi|a partir de agora|altijd|"
    r"nooit|vanaf nu)\b"
)


class Source(msgspec.Struct, frozen=True):
    """The place where a quote was found."""

    trust: Trust
    quote: str
    """The quote; if it is from the user, their whole sentence."""
    call: ToolCall | None = None


class Sources:
    """The texts of a turn that can prove a memory: said, pasted, or read by tools; not recalled."""

    def __init__(self, turn: Turn) -> None:
        own = "" if turn.is_own_command else own_words(turn.user_message)
        self.own = own
        self.answer = turn.said[:_LONGEST_READ]
        self.results = [
            (call, result_text(call)[:_LONGEST_READ])
            for call in turn.tool_calls
            if call.result and call.tool_name not in RECALL_TOOLS
        ]
        self._sentences = [(_bounded(sentence), sentence) for sentence in sentences(own)]
        self._own = _bounded(own)
        self._pasted = _bounded(turn.user_message[:_LONGEST_READ])
        self._answer = _bounded(self.answer)
        self._results = [(call, _bounded(text)) for call, text in self.results]

    def find(self, quote: str) -> Source | None:
        """Find a quote: in the user's own words, then in tool results and pasted text, last in
        the answer, which may only repeat those. None if it is nowhere, or too short.

        One of its words may be missing there (see `_variants`).
        """
        wanted = _bounded(quote)
        if len(wanted.split()) < _LEAST_WORDS or len(wanted) < _LEAST_CHARS + 2:
            return None
        return next(filter(None, (self._source_of(v, quote) for v in _variants(wanted))), None)

    def _source_of(self, wanted: str, quote: str) -> Source | None:
        if wanted in self._own:
            found = [sentence for text, sentence in self._sentences if wanted in text]
            return Source("person", found[0] if found else clean(quote))
        for call, text in self._results:
            if wanted in text:
                return Source("tool", clean(quote), call)
        if wanted in self._pasted:
            return Source("tool", clean(quote))
        if wanted in self._answer:
            return Source("model", clean(quote))
        return None


def covers(source: str, content: str) -> bool:
    """Whether a memory's source contains what it says: all particulars, and most of its words.

    "I moved to Toulouse with David" covers "David moved to Toulouse"; "port 8080 is taken" does not
    cover "Port 9090 is taken".
    """
    said, words_said = plain(source), _bounded(source)
    for hard in PARTICULAR.findall(content):
        if plain(hard.strip("`.,:;")) not in said and _bounded(hard) not in words_said:
            return False
    language = guess_language(content)
    words = {word for word in normal(content).split() if word not in _PHRASING}
    telling = {word for word in words if not is_stop_word(word, language)} or words
    there = frozenset((*terms(source), *words_said.split()))
    # Inflected forms count.
    found = [w for w in telling if not there.isdisjoint((w, *terms(w, language=language)))]
    return len(found) >= _COVERED * len(telling)


def is_rule(sentence: str) -> bool:
    """Whether a sentence of the user states a permanent rule; a question never does."""
    text = plain(sentence)
    return not text.endswith("?") and _RULE.search(text) is not None


def evidence_of(turn: Turn, source: Source, *, locate: Callable[[str], str]) -> Evidence:
    """Return the source as evidence to store; `locate` turns a tool's path into its stored form."""
    said = Evidence(
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        turn_index=turn.turn_index,
        quote=source.quote,
        at=turn.timestamp,
    )
    call = source.call
    if call is None:
        return said
    path = argument(call, "path")
    return msgspec.structs.replace(
        said,
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        path=path and locate(path),
        at=call.started_at,
    )


def _bounded(text: str) -> str:
    """Return the words with a space before and after each, so that only whole words match."""
    return f" {normal(text)} "


def _variants(wanted: str) -> Iterator[str]:
    """Yield a quote, then variants that lack one word, since models add words to what they repeat.

    Numbers and words that change the meaning are never left out.
    """
    yield wanted
    words = wanted.split()
    if len(words) > _LEAST_LESS_ONE:
        for at, word in enumerate(words):
            if word not in _TURNING and not any(map(str.isdigit, word)):
                yield f" {' '.join((*words[:at], *words[at + 1 :]))} "


class _Settled(msgspec.Struct):
    """A memory to be written."""

    memory: MemoryRecord
    is_new: bool
    """Whether it is not stored yet, in any form."""
    replaced: list[MemoryRecord] = []
    """The stored memories that it replaces."""


class Settlement:
    """Compares new memories with the current ones, and collects the resulting writes."""

    def __init__(self, *, duplicate: float, now: datetime) -> None:
        self._duplicate = duplicate
        self._now = now
        self._known: dict[str | None, dict[str, MemoryRecord]] = {}
        self._rows: dict[str, bytes] = {}
        self._settled: dict[str, _Settled] = {}
        self._later: dict[str, str] = {}
        """The id of the memory that replaced each one, by id."""

    @property
    def puts(self) -> list[tuple[PutMemory, bytes]]:
        """The writes in order, each with the memory's vector (empty if it has none)."""
        return [
            (
                PutMemory(memory=one.memory, supersedes=tuple(m.memory_id for m in one.replaced)),
                self._rows.get(memory_id, b""),
            )
            for memory_id, one in self._settled.items()
        ]

    def know(
        self, memories: Sequence[MemoryRecord], rows: Mapping[str, bytes], project_id: str | None
    ) -> None:
        """Add the current memories of a project and the user, with their vectors if any."""
        for memory in memories:
            if memory.is_current(self._now):
                scope = project_id if memory.project_id else None
                self._known.setdefault(scope, {})[memory.memory_id] = memory
        self._rows |= rows

    def settle(self, memory: MemoryRecord, row: bytes) -> Remembered:
        """Compare one memory and return the outcome, with which later ones are compared, too.

        It is compared with those of its scope, and with those that have the same words.
        """
        current = self._known.setdefault(memory.project_id, {})
        others = chain(*(known.values() for known in self._known.values() if known is not current))
        alike = [*current.values(), *(each for each in others if repeats(memory, each))]
        near = cosines(row, {i: self._rows[i] for i in current if i in self._rows}) if row else {}
        outcome = compare(memory, alike, near, duplicate=self._duplicate)
        put = outcome.memory
        if put is None or put in alike:
            return outcome
        is_new = put.memory_id == memory.memory_id
        if is_new and row:
            self._rows[put.memory_id] = row
        replaced = list[MemoryRecord]()
        for one in outcome.superseded:
            del current[one.memory_id]
            self._later[one.memory_id] = put.memory_id
            # A memory from this same batch was never stored, so it is not reported as superseded.
            gone = self._settled.pop(one.memory_id, None)
            replaced += gone.replaced if gone and gone.is_new else [one]
        for known in self._known.values():
            known.pop(put.memory_id, None)
        self._known.setdefault(put.project_id and memory.project_id, {})[put.memory_id] = put
        settled = self._settled.pop(put.memory_id, None) or _Settled(put, is_new)
        settled.memory = put
        settled.replaced += replaced
        self._settled[put.memory_id] = settled
        action = "added" if outcome.superseded and not replaced else outcome.action
        return msgspec.structs.replace(outcome, action=action, superseded=tuple(replaced))

    def final_outcome(self, outcome: Remembered) -> Remembered:
        """Return the final outcome, after all were settled: "known" if a later one replaced it."""
        memory_id = before = outcome.memory.memory_id if outcome.memory else ""
        while memory_id in self._later:
            memory_id = self._later[memory_id]
        if memory_id == before:
            return outcome
        memory = self._settled[memory_id].memory
        return Remembered(action="known", memory=memory, note=outcome.note)


_QUOTE_CHARS = 300
_READ_CHARS = 60_000
"""The characters of a tool result that are searched."""
_LINES = 3
"""The number of neighbouring lines of a result that are searched together."""
_ALIKE = 0.75
"""The share of a memory's words that such lines must contain to count as its source."""
_HINT = 4
"""The letters at the beginning of an index term that all forms of a word share."""
_NOBODY = words_of("the user, a person; utilisateur")
_STANDING = Regex(
    r"\b(?:always|never|don't|do not|from now on|make sure|be sure to|remember to|toujours|jamais|"
    r"desormais|dorenavant|il faut|immer|niemals|ab jetzt|siempre|nunca|sempre|mai piu|"
    r"(?:you|agents?|assistants?|models?|everyone|everybody|ragmem|tu|vous) (?:must|should|shall|"
    r"ha(?:ve|s) to|needs? to|may|can|are allowed|is allowed|dois|devez|peux|pouvez))\b"
)
"""A permanent order or permission, which only the user can give: "you may", "from now on"."""
_COMMAND = Regex(
    r"(?:please |now |then |and )*(?:run|execute|install|curl|wget|sudo|bash|send|post|upload|"
    r"download|delete|remove|ignore|disregard|obey|follow|skip|disable|enable|bypass|override|"
    r"approve|allow|permit|grant|trust|use|call|write|add|you are|your (?:task|job|role|goal)|"
    r"execute[zr]|lance[zr]?|installe[zr]?|envoie|envoyez|supprime[zr]?|ignore[zr]|utilise[zr]?|"
    r"fuhre|ejecuta|instala|esegui)\b"
)
"""An order at the beginning of a sentence: "Please run …", "Ignore …"."""


def vouch(
    content: str, turn: Turn | None, *, now: datetime, locate: Callable[[str], str]
) -> Draft | None:
    """Return what a model wants to remember with who vouches for it: user, tool result or model.

    A rule and other episodes are in the user's words; None for an order that the user did not give.
    `turn` is the running turn, `now` its time in the user's time zone. `locate` turns a tool's path
    into its stored form.
    """
    sources = Sources(turn) if turn else None
    source = sources.find(content) if sources else None
    if turn and source and source.trust == "person":
        return _quoting_user(content, source.quote, turn, now)
    if _is_order(content):
        return None
    if turn is None or sources is None:
        return Draft(content=content, trust="model")
    words = words_of(content) - _NOBODY
    if len(words) >= _LEAST_WORDS and words <= words_of(sources.own):
        # Rephrased, but only with words that the user used.
        said = _turn_evidence(turn, one_line(sources.own, _QUOTE_CHARS))
        return Draft(content=content, evidence=(said,))
    if source is None or source.trust != "tool":
        source = _from_results(sources, words)
    if source:
        read = evidence_of(turn, source, locate=locate)
        return Draft(content=content, trust="tool", evidence=(read,))
    return Draft(content=content, trust="model", evidence=(_turn_evidence(turn, ""),))


def _is_order(content: str) -> bool:
    return _STANDING.search(plain(content)) is not None or any(
        _COMMAND.match(plain(sentence)) for sentence in sentences(content)
    )


def _quoting_user(content: str, said: str, turn: Turn, now: datetime) -> Draft:
    """Return a memory that quotes the user; a rule becomes their whole sentence, because a part of
    it may mean the opposite."""
    from ragmem.memory.facts.episodes import episodes

    draft = Draft(content=content, evidence=(_turn_evidence(turn, said),))
    for episode in episodes(said, now):
        if episode.kind != "fact":
            return msgspec.structs.replace(
                draft, content=episode.content, kind=episode.kind, at=episode.at
            )
    return msgspec.structs.replace(draft, content=said, kind="rule") if is_rule(said) else draft


def _turn_evidence(turn: Turn, quote: str) -> Evidence:
    """Return the turn as evidence, with its pending `remember` call if there is one."""
    said = evidence_of(turn, Source("person", one_line(quote, _QUOTE_CHARS)), locate=str)
    asking = [c for c in turn.tool_calls if c.tool_name == REMEMBER and not c.result]
    if not asking:
        return said
    call_id = asking[-1].tool_call_id
    return msgspec.structs.replace(said, tool_call_id=call_id, tool_name=REMEMBER)


def _from_results(sources: Sources, words: frozenset[str]) -> Source | None:
    """Return the lines of a tool result that contain most of the words, latest call first."""
    if len(words) < _LEAST_WORDS:
        return None
    for call, text in reversed(sources.results):
        best = max(_matching_lines(text[:_READ_CHARS], words), default=(0, ""))
        if best[0] >= _ALIKE * len(words):
            return Source("tool", one_line(best[1], _QUOTE_CHARS), call)
    return None


def _matching_lines(text: str, words: frozenset[str]) -> Iterator[tuple[int, str]]:
    lines = [line for line in text.split("\n") if line.strip()]
    # A cheap test first: most lines contain none of the words, and finding terms takes time.
    hints = tuple(word[:_HINT] for word in words)
    found = [_words_in_line(line, words, hints) for line in lines]
    for i in range(len(lines)):
        union = frozenset[str]().union(*found[i : i + _LINES])
        if union:
            yield len(union), "\n".join(lines[i : i + _LINES])


def _words_in_line(line: str, words: frozenset[str], hints: tuple[str, ...]) -> frozenset[str]:
    flat = plain(line)
    return words & words_of(line) if any(hint in flat for hint in hints) else frozenset()

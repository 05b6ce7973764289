"""How a new memory relates to the known ones: the same, updated, or new."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain

import msgspec

from ragmem.embedder import Thresholds, cosines
from ragmem.memory.date_words import word_set
from ragmem.memory.facts import Remembered
from ragmem.memory.facts.words import WHEN, is_of_subject, names_in, particulars, plain
from ragmem.records import Evidence, MemoryKind, MemoryRecord, PutMemory
from ragmem.store import AHEAD
from ragmem.terms import guess_language, is_stop_word, terms
from ragmem.text import Regex

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
_NOW = Regex(
    r"\b(?:now(?:adays)?|jetzt|nun(?:mehr)?|inzwischen|mittlerweile|neuerdings|maintenant|"
    r"desormais|dorenavant)\b"
)
"""Words that say that something was otherwise before."""
_VALUE = Regex(r"[^#]*\d")
"""A value with a number; "#12" is one of many."""
# "Das Büro ist in Bonn", "Ana travaille chez Orange": one place at a time.
_PLACE = Regex(
    r"\b(?:is|are|am|lives?|works?|stays?|ist|sind|bin|wohn(?:t|e|en)|leb(?:t|e|en)|"
    r"arbeite[nt]?|sitzt|liegt|est|sont|suis|habiten?t?|vit|travaillen?t?) "
    r"(?:in|at|bei|a|en|chez) ([^ ]+)"
)
# "We now have a server on port 9090", "It now supports Python 3.13": beside what was before.
_ONE_MORE = Regex(
    r"\b(?:ha(?:ve|s|d|t|be|ben)|there (?:is|are)|es gibt|il y a|ai|avons|ont|a) "
    r"(?:\w+ )?(?:an?|eine?[nmrs]?|une?)\b|"
    r"\b(?:support|accept|offer|unterstutz|akzeptier|biete|supporte|propose)\w*\b"
)
_WORDS = Regex(r"[^\s.,;:!?]\S*?(?=[.,;:!?]*(?:\s|$))")
_MARKS = Regex(r"[\W_]+")
TURNING = word_set(
    """not no never none nothing nobody nowhere neither nor without except unless only but don
    doesn didn isn aren wasn weren won can couldn shouldn wouldn mustn hasn haven cannot hardly
    barely scarcely seldom rarely stopped lack lacks always all every any must may
    ne n pas non jamais aucun aucune rien personne guere plus sans sauf ni que seulement toujours
    tous chaque doit
    nicht nichts kein keine keinen keinem keiner keines niemand niemanden niemandem nie niemals
    nirgends kaum weder ohne immer nunca sin siempre mai senza sempre nao nem niet geen
    nooit altijd"""
)
"""Words that change what a sentence means: negations, "always", "only", "must" …"""
NEGATING = TURNING - word_set(
    """only but always all every any must may can could should would unless except
    que seulement toujours tous chaque doit immer siempre sempre altijd"""
) | {"t"}
"""Those of them that negate; the last is what is left of "can't"."""


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
        or _is_changed(new, old)
        or _is_reversed(new, old)
    ]
    if any(_is_later(old, new) for old in near):
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
    return words_of(old.content) <= words_of(new.content) and told & TURNING == tells & TURNING


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


def bounded(text: str) -> str:
    """Return the words with a space before and after each, so that only whole words match."""
    return f" {normal(text)} "


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
        and not _is_later(old, memory)
        and old.kind not in _SINGULAR
        and overlapping(memory, old)
        and may_supersede(memory, old)
    ]


def overlapping(one: MemoryRecord, other: MemoryRecord) -> bool:
    """Whether both memories share a subject; one without subjects has the names in its content."""
    return bool(_subjects(one) & _subjects(other))


def _subjects(memory: MemoryRecord) -> frozenset[str]:
    return frozenset(map(plain, memory.subjects)) or names_in(memory.content)


def _is_later(old: MemoryRecord, new: MemoryRecord) -> bool:
    """Whether the old memory was said after the new one. A time that was still to come when the
    new one was stored is a wrong clock's."""
    return new.created_at < old.created_at <= new.updated_at + AHEAD


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


def _is_changed(new: MemoryRecord, old: MemoryRecord) -> bool:
    """Whether they differ only in a number or a place, and the new one says that it is so now:
    "The server runs on port 8080", "The server now runs on port 9090"."""
    flat = plain(new.content)
    if new.kind == "rule" or not _NOW.search(flat) or _ONE_MORE.search(flat):
        return False
    tells, told = (_WORDS.findall(_NOW.sub("", each)) for each in (flat, plain(old.content)))
    value, before = Counter(tells) - Counter(told), Counter(told) - Counter(tells)
    if (value.total(), before.total()) != (1, 1):
        return False
    is_number = all(_VALUE.match(*each) for each in (value, before))
    place = _PLACE.search(" ".join(tells))
    is_place = place is not None and place[1] in value
    return (is_number or is_place) and not _are_of_two_things(new, old)


def _is_reversed(new: MemoryRecord, old: MemoryRecord) -> bool:
    """Whether they differ only in words of `TURNING`: "Never use tabs", "Always use tabs"."""
    tells, told = (normal(each.content).split() for each in (new, old))
    turned = set(tells) ^ set(told)
    return bool(turned) and turned <= TURNING | {"t"}


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
        return _say_the_same_of_others(new.content, old.content)
    if new.kind == "rule" or max(len(only_first), len(only_second)) > 1:
        return True
    texts = new.content, old.content
    return is_of_subject(only_first[0], *texts) and is_of_subject(only_second[0], *texts[::-1])


def _say_the_same_of_others(one: str, other: str) -> bool:
    """Whether they end alike and begin with other words: "My cat is called Mimi", "My dog …"."""
    first, second = normal(one).split(), normal(other).split()
    begins, ends = _alike(first, second), _alike(first[::-1], second[::-1])
    if ends < max(2, begins) or not words_of(" ".join(first[-ends:])):
        return False
    own = set(first[:-ends]) - set(second), set(second[:-ends]) - set(first)
    if not TURNING.isdisjoint(own[0] | own[1]):
        return False
    terms_of = [words_of(" ".join(w for w in each if not is_stop_word(w, None))) for each in own]
    return bool(terms_of[0] - words_of(other)) and bool(terms_of[1] - words_of(one))


def _alike(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many words both begin with."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (word, its) in enumerate(pairs) if word != its), len(first))


def _particulars_beyond(one: MemoryRecord, other: MemoryRecord) -> list[str]:
    """Return the particulars of one memory that the other's text lacks."""
    there = bounded(other.content)
    found = particulars(one.content) - particulars(other.content)
    return [each for each in found if bounded(each) not in there and not _NOW.match(each)]


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

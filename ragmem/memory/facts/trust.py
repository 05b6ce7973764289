"""What a new memory means for those that are known: pure functions."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Literal

import msgspec

from ragmem.embedder.base import Thresholds
from ragmem.embedder.numbers import cosines
from ragmem.memory.date_words import MONTHS, WEEKDAYS, any_of
from ragmem.memory.facts.values import Remembered
from ragmem.memory.facts.words import own_words, plain, sentences, with_digits
from ragmem.memory.summaries.digest import RECALL_TOOLS
from ragmem.memory.window import result_text
from ragmem.messages import Json
from ragmem.records import Evidence, MemoryKind, MemoryRecord, PutMemory, ToolCall, Trust, Turn
from ragmem.terms import guess_language, terms
from ragmem.terms.languages import is_stop_word
from ragmem.text import clean

_TRUST = {"tool": 0, "model": 1, "person": 2}
_NEARLY = 0.85
"""Shared of all words, from which two texts say the same in nearly equal words."""
_LEAST_WORDS_COMPARED = 3
_MOST_EVIDENCE = 10
_MOST_NORMAL = 10_000
"""Texts of memories: each new one is compared with all."""
_SINGULAR: frozenset[MemoryKind] = frozenset(["failure", "rule"])
"""Kinds that are compared with their like only."""
_NAME = re.compile(
    r"(?<![.!?:]\s)(?<!^)\b[A-ZÀ-ÖØ-Þ][\w'’-]*[^\W\d_]\b|^[A-ZÀ-ÖØ-Þ][\w-]+(?=['’]s )"
)
_MONTH = any_of(MONTHS)
_DATE = re.compile(rf"\d(?:st|nd|rd|th)? (?:of )?(?:{_MONTH})\b|\b(?:{_MONTH}) \d", re.IGNORECASE)
"""A month beside its number: without one it may be somebody's name."""
_LONG = 5
"""Letters from which the name of a day is nothing else."""
PARTICULAR = re.compile(
    r"\d[\w.:/-]*|\w+(?:[_/.\\:@-]\w+)+|`[^`]+`|https?://\S+|\b[A-Z]{2,}\w*\b|\b[^\W\d_]+\d\w*"
    r"|(?<=\w )[A-Z](?= )"
)
_MARKS = re.compile(r"[\W_]+")


class Known(msgspec.Struct, frozen=True):
    """A current memory, as it compares with the new one."""

    memory: MemoryRecord
    similarity: float | None = None
    """Raw cosine of the two; None where one has no vector."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done."""

    action: Literal["added", "updated", "known"]
    memory: MemoryRecord
    """To be put: the new one, or what is known with what the new one adds."""
    superseded: tuple[MemoryRecord, ...] = ()
    changed: bool = True
    """False: it is known as it stands, nothing is to be written."""


def compare(new: MemoryRecord, known: Sequence[Known], *, duplicate: float) -> Verdict:
    """`known`: the current memories of its scope."""
    alike = [k for k in known if _same_sort(new, k.memory)]
    text = normal(new.content)
    for one in alike:
        if normal(one.memory.content) == text:
            return _again(one.memory, new)
    words = words_of(new.content)
    near = [k for k in alike if _is_near(new, words, k, duplicate)]
    if not near:
        return Verdict(action="added", memory=new)
    if any(k.memory.created_at > new.created_at for k in near):
        # What was said since is newer than what is only now looked through.
        newest = max((k.memory for k in near), key=lambda memory: memory.created_at)
        return Verdict(action="known", memory=newest, changed=False)
    guarded = [k.memory for k in near if rank(k.memory) > _TRUST[new.trust]]
    for memory in guarded:
        if words <= words_of(memory.content):
            # Nothing that the person has not said already.
            return Verdict(action="known", memory=memory, changed=False)
    replaced = [k.memory for k in near if rank(k.memory) <= _TRUST[new.trust]]
    if not replaced:
        return Verdict(action="added", memory=new)
    return Verdict(action="updated", memory=carried_over(new, replaced), superseded=tuple(replaced))


def rank(memory: MemoryRecord) -> int:
    """Who may take its place: as trusted a source; of what is pinned, and of rules, the person."""
    if memory.stands_always:
        return _TRUST["person"]
    return _TRUST[memory.trust]


def may_supersede(new: MemoryRecord, old: MemoryRecord) -> bool:
    """What the person said gives way to nobody else."""
    return _TRUST[new.trust] >= rank(old)


def carried_over(new: MemoryRecord, replaced: Sequence[MemoryRecord]) -> MemoryRecord:
    """The new one with the subjects, evidence and pin of those whose place it takes.

    Its own time to live wins. A plain fact in the place of a preference stays one.
    """
    best = replaced[0]
    kind = best.kind if new.kind == "fact" and best.kind != "failure" else new.kind
    return msgspec.structs.replace(
        new,
        kind=kind,
        subjects=union(*(m.subjects for m in replaced), new.subjects),
        evidence=_joined([*(e for m in replaced for e in m.evidence), *new.evidence]),
        pinned=new.pinned or any(m.pinned for m in replaced),
        at=new.at or next((m.at for m in replaced if m.at and m.kind == kind), None),
    )


def union(*groups: Iterable[str]) -> tuple[str, ...]:
    """Each once, in their order."""
    return tuple(dict.fromkeys(item for group in groups for item in group))


@lru_cache(maxsize=_MOST_NORMAL)
def normal(text: str) -> str:
    """For "the same words": without case, accents and punctuation."""
    return _MARKS.sub(" ", plain(text)).strip()


@lru_cache(maxsize=_MOST_NORMAL)
def words_of(text: str) -> frozenset[str]:
    """Its words that tell something, as index terms."""
    language = guess_language(text)
    found = frozenset(t for t in terms(text) if not is_stop_word(t, language))
    return found or frozenset(terms(text))


def rivals(memory: MemoryRecord, known: Sequence[Known], limits: Thresholds) -> list[MemoryRecord]:
    """Older ones on the same subjects that it may have changed, nearest first.

    Nearer than what merely has to do with it. What is as near as a duplicate and still there was
    held apart by its particulars.
    """
    near = sorted(known, key=lambda k: -(k.similarity or 0.0))
    return [
        k.memory
        for k in near
        if (k.similarity or 0.0) > limits.fact
        and k.memory.memory_id != memory.memory_id
        and k.memory.created_at <= memory.created_at
        and k.memory.kind not in _SINGULAR
        and overlapping(memory, k.memory)
        and may_supersede(memory, k.memory)
    ]


def overlapping(one: MemoryRecord, other: MemoryRecord) -> bool:
    """Whether both are about the same: a subject of one is one of the other's, or is named in it.

    Where neither has any, their names decide.
    """
    first, second = _subjects(one), _subjects(other)
    return bool(first & second)


def _subjects(memory: MemoryRecord) -> frozenset[str]:
    return frozenset(map(plain, memory.subjects)) or names_in(memory.content)


def names_in(text: str) -> frozenset[str]:
    """What is written as names are, but for dates; a first word only as an owner ("Ana's")."""
    names = [plain(name) for name in _NAME.findall(_DATE.sub(lambda date: date[0].lower(), text))]
    found = frozenset(name for name in names if name not in WEEKDAYS or len(name) < _LONG)
    if not found and (first := re.match(r"[A-ZÀ-ÖØ-Þ][\w-]+", text)):
        word = plain(first.group())
        return frozenset() if is_stop_word(word, None) else frozenset([word])
    return found


def _same_sort(new: MemoryRecord, old: MemoryRecord) -> bool:
    if new.kind in _SINGULAR or old.kind in _SINGULAR:
        return new.kind == old.kind
    return True


def _is_near(new: MemoryRecord, words: frozenset[str], known: Known, duplicate: float) -> bool:
    old = known.memory
    if new.kind == "failure":
        # The same command, whatever it said this time.
        return failed_command(new) is not None and failed_command(new) == failed_command(old)
    if known.similarity is not None and known.similarity < duplicate / 2:
        # Nothing like it; words need not be compared.
        return False
    first, second = _subjects(new), _subjects(old)
    if first and second and not first & second:
        # "Ana likes tea", "Marc likes tea": as near as can be, and two facts.
        return False
    of_two = partial(_are_of_two_things, new, old)
    if known.similarity is not None and known.similarity > duplicate:
        return not of_two()
    return _nearly_equal(words, words_of(old.content)) and not (new.kind == "rule" and of_two())


def _are_of_two_things(new: MemoryRecord, old: MemoryRecord) -> bool:
    """ "Service A listens on 8001", "Service B listens on 8002": near, and both true.

    One particular that differs is a value that has changed; of several a model is asked. Of rules
    none is lost for its neighbour: "never touch a.py", "never touch b.py".
    """
    first, second = particulars(new.content), particulars(old.content)
    only_first, only_second = first - second, second - first
    most = 0 if new.kind == "rule" else 1
    return bool(only_first and only_second) and max(len(only_first), len(only_second)) > most


def particulars(text: str) -> frozenset[str]:
    """Its numbers, paths, identifiers, addresses and names: never a turn of phrase."""
    found = [hard.strip("`.,:;") for hard in PARTICULAR.findall(text)]
    return frozenset(map(plain, found)) | names_in(text)


def failed_command(memory: MemoryRecord) -> str | None:
    """What a failure is about: the command or the edit, as its content begins."""
    head, mark, _ = memory.content.partition("` failed")
    return head if mark else None


def _nearly_equal(new: frozenset[str], old: frozenset[str]) -> bool:
    if min(len(new), len(old)) < _LEAST_WORDS_COMPARED:
        return False
    common = len(new & old)
    # All that was said, and more: "with more context".
    return old <= new or common >= _NEARLY * (len(new) + len(old) - common)


def _again(known: MemoryRecord, new: MemoryRecord) -> Verdict:
    """The same words once more: what they add is added to what is known."""
    # A model that repeats what a file said vouches for nothing: the person alone does.
    stronger = new.trust == "person" != known.trust
    trusted = _TRUST[new.trust] >= rank(known)
    merged = msgspec.structs.replace(
        known,
        trust=new.trust if stronger else known.trust,
        kind=new.kind if trusted and known.kind == "fact" else known.kind,
        subjects=union(known.subjects, new.subjects),
        pinned=known.pinned or new.pinned,
        expires_at=new.expires_at if trusted else known.expires_at,
        at=known.at or new.at,
        evidence=_joined([*known.evidence, *new.evidence]),
    )
    if merged == known:
        return Verdict(action="known", memory=known, changed=False)
    told = (merged.trust, merged.kind, merged.expires_at, merged.pinned)
    before = (known.trust, known.kind, known.expires_at, known.pinned)
    return Verdict(
        action="known" if told == before else "updated",
        memory=msgspec.structs.replace(merged, updated_at=new.updated_at),
    )


def _joined(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Each place once; of many the first and the newest."""
    places = {(e.turn_id, e.tool_call_id, e.path, plain(e.quote)): e for e in reversed(evidence)}
    found = list(reversed(list(places.values())))
    if len(found) > _MOST_EVIDENCE:
        found = [found[0], *found[-_MOST_EVIDENCE + 1 :]]
    return tuple(found)


_LONGEST_READ = 200_000
_LEAST_WORDS, _LEAST_CHARS = 2, 6
"""A shorter quote stands everywhere, and proves nothing."""
_COVERED = 0.6
"""Of what a memory says, so much must stand where it comes from."""
_LEAST_LESS_ONE = 3
"""Words of a quote that is believed though one of them stands nowhere: more than so many."""
_TURNING = frozenset(
    word
    for words in (
        """not no never none nothing neither nor without except unless only but don doesn didn isn
        aren wasn weren won can couldn shouldn wouldn mustn hasn haven cannot always all every any
        must may""",
        """ne pas non jamais aucun aucune rien sans sauf ni que seulement toujours tous chaque doit
        nicht kein keine nie niemals ohne immer nunca sin siempre mai senza sempre nao nem niet geen
        nooit altijd""",
    )
    for word in words.split()
)
"""Words that turn a sentence into another one."""
_PHRASING = frozenset(
    word
    for words in (
        """user person prefer prefers preference want wants like likes dislike dislikes use uses
        using project team agent should must always never decided decision agreed deadline due
        says said called name named rule remember""",
        """utilisateur personne prefere veut aime utilise projet equipe doit toujours jamais
        decide echeance appelle nom regle""",
    )
    for word in words.split()
)
"""Words by which a memory is told, that need not stand in what was said."""
_RULE = re.compile(
    r"\b(?:always|never|from now on|in (?:the )?future|every time|whenever|at all times|"
    r"must(?: not)?|mustn't|do not|don't|make sure|be sure to|only ever|as a rule|no exceptions?|"
    r"without exception|"
    r"toujours|jamais|desormais|a partir de maintenant|dorenavant|chaque fois|il faut|ne \w+ pas|"
    r"assure-toi|doit|doivent|interdit|immer|niemals?|nie wieder|ab jetzt|in zukunft|jedes mal|"
    r"siempre|nunca|a partir de ahora|cada vez|sempre|mai|d'ora in poi|a partir de agora|altijd|"
    r"nooit|vanaf nu)\b"
)


class Source(msgspec.Struct, frozen=True):
    """Where a quote was found."""

    trust: Trust
    quote: str
    """As it stands there: of the person their whole sentence."""
    call: ToolCall | None = None


class Sources:
    """What was said, pasted and read in a turn; of what was recalled nothing."""

    def __init__(self, turn: Turn) -> None:
        own = "" if turn.is_own_command else own_words(turn.user_message)
        self.own = own
        self.answer = turn.assistant_message[:_LONGEST_READ]
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
        """Where it stands, the person's own words first, the agent's last; None: nowhere.

        What the agent says may be what a file says, so a file is asked before it.
        """
        wanted = _bounded(quote)
        if len(wanted.split()) < _LEAST_WORDS or len(wanted) < _LEAST_CHARS + 2:
            return None
        return next(filter(None, (self._standing(each, quote) for each in _nearly(wanted))), None)

    def _standing(self, wanted: str, quote: str) -> Source | None:
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
    """Whether what a memory says stands where it is said to come from."""
    said, counted = plain(source), _bounded(source)
    for hard in PARTICULAR.findall(content):
        if plain(hard.strip("`.,:;")) not in said and _bounded(hard) not in counted:
            return False
    language = guess_language(content)
    words = {word for word in _bounded(content).split() if word not in _PHRASING}
    telling = {word for word in words if not is_stop_word(word, language)} or words
    there = frozenset(terms(source)) | frozenset(counted.split())
    # In any of its forms.
    found = [
        word for word in telling if not there.isdisjoint((word, *terms(word, language=language)))
    ]
    return len(found) >= _COVERED * len(telling)


def is_rule(sentence: str) -> bool:
    """Whether a sentence of the person lays down what holds from then on."""
    text = plain(sentence)
    return not text.endswith("?") and _RULE.search(text) is not None


def evidence_of(turn: Turn, source: Source, *, locate: Callable[[str], str]) -> Evidence:
    """As it is kept with the memory; `locate` turns a tool's path into its stored form."""
    call = source.call
    return Evidence(
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        turn_index=turn.turn_index,
        tool_call_id=call.tool_call_id if call else "",
        tool_name=call.tool_name if call else "",
        path=_path(call, locate) if call else "",
        quote=source.quote,
        at=call.started_at if call else turn.timestamp,
    )


def argument(call: ToolCall, name: str) -> str:
    """One of its arguments, where it is a text."""
    try:
        arguments: Json = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return ""
    value = arguments.get(name) if isinstance(arguments, dict) else None
    return value if isinstance(value, str) else ""


def _path(call: ToolCall, locate: Callable[[str], str]) -> str:
    path = argument(call, "path")
    return locate(path) if path else ""


def _bounded(text: str) -> str:
    """Words alone, with a space before and after each: no quote ends in the middle of one."""
    return f" {' '.join(with_digits(normal(text).split()))} "


def _nearly(wanted: str) -> Iterator[str]:
    """A quote, then the same less one word: models add one to what they repeat.

    Never one that turns what is said, nor a number.
    """
    yield wanted
    words = wanted.split()
    if len(words) > _LEAST_LESS_ONE:
        for at, word in enumerate(words):
            if word not in _TURNING and not any(map(str.isdigit, word)):
                yield f" {' '.join((*words[:at], *words[at + 1 :]))} "


class Settlement:
    """The current memories of the scopes at hand, and what is to change about them."""

    def __init__(self, *, duplicate: float, now: datetime) -> None:
        self._duplicate = duplicate
        self._now = now
        self._known: dict[str | None, dict[str, MemoryRecord]] = {}
        self._rows: dict[str, bytes] = {}
        self._puts: dict[str, PutMemory] = {}
        self._new_vectors: dict[str, tuple[str, bytes]] = {}

    @property
    def writes(self) -> list[PutMemory]:
        """In their order."""
        return list(self._puts.values())

    @property
    def vectors(self) -> dict[str, tuple[str, bytes]]:
        """Of what is put, where there are some: text and row, by memory."""
        return {i: found for i, found in self._new_vectors.items() if i in self._puts}

    def know(
        self, memories: Sequence[MemoryRecord], rows: Mapping[str, bytes], project_id: str | None
    ) -> None:
        """What is current in the project and of the person; the vectors of those that have some."""
        for memory in memories:
            if memory.is_current(self._now):
                scope = project_id if memory.project_id else None
                self._known.setdefault(scope, {})[memory.memory_id] = memory
        self._rows |= rows

    def settle(self, memory: MemoryRecord, row: bytes, *, note: str = "") -> Remembered:
        """What becomes of one; those after it are compared with the outcome."""
        current = self._known.setdefault(memory.project_id, {})
        near = cosines(row, {i: self._rows[i] for i in current if i in self._rows}) if row else {}
        known = [Known(one, near.get(i)) for i, one in current.items()]
        verdict = compare(memory, known, duplicate=self._duplicate)
        if not verdict.changed:
            return Remembered(action="known", memory=verdict.memory, note=note)
        put = verdict.memory
        if put.memory_id == memory.memory_id and row:
            self._rows[put.memory_id] = row
        if put.memory_id in self._rows:
            self._new_vectors[put.memory_id] = (put.content, self._rows[put.memory_id])
        gone = tuple(one.memory_id for one in verdict.superseded)
        for memory_id in gone:
            current.pop(memory_id, None)
        current[put.memory_id] = put
        earlier = self._puts.pop(put.memory_id, None)
        supersedes = (*(earlier.supersedes if earlier else ()), *gone)
        self._puts[put.memory_id] = PutMemory(memory=put, supersedes=supersedes)
        return Remembered(
            action=verdict.action, memory=put, superseded=verdict.superseded, note=note
        )

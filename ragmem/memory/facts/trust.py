"""What a new memory means for those that are known, and whose word it is."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

import msgspec

from ragmem.embedder import Thresholds, cosines
from ragmem.memory.facts import Remembered
from ragmem.memory.facts.words import (
    PARTICULAR,
    WHEN,
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
"""Shared of all words, from which two texts say the same in nearly equal words."""
_MUCH = 0.5
"""Shared of the words of the shorter of two texts of one turn, from which they say the same."""
_NUMBER = Regex(r"\d+")
_LEAST_WORDS_COMPARED = 3
_MOST_EVIDENCE = 10
_MOST_NORMAL = 10_000
"""Texts of memories: each new one is compared with all."""
_SINGULAR: frozenset[MemoryKind] = frozenset(["failure", "rule"])
"""Kinds that are compared with their like only."""
_MOVED = Regex(
    r"\b(?:moved|moves|postponed|rescheduled|delayed|pushed back|brought forward|instead|actually|"
    r"no longer|verschoben|vorgezogen|verlegt|jetzt|nun|statt|reportee?s?|repoussee?s?|avancee?s?|"
    r"maintenant|finalement|au lieu)\b"
)
"""Words that say that something, such as a day, is another one now."""
_MARKS = Regex(r"[\W_]+")


def compare(
    new: MemoryRecord,
    known: Iterable[MemoryRecord],
    similarity: Mapping[str, float],
    *,
    duplicate: float,
) -> Remembered:
    """What becomes of a memory beside the current ones of its scope.

    `similarity`: raw cosines with it, by id, of those that can be compared. The memory of the
    outcome is to be put, but where it is known just so.
    """
    alike = [old for old in known if _same_sort(new, old)]
    text = normal(new.content)
    for old in alike:
        if normal(old.content) == text:
            return _again(old, new)
    words = words_of(new.content)
    near = [
        old
        for old in alike
        if _is_near(new, words, old, similarity.get(old.memory_id), duplicate)
        or _is_moved(new, old)
        or _is_reversed(new, old)
    ]
    if any(old.created_at > new.created_at for old in near):
        # What was said since is newer than what is only now looked through.
        return Remembered(action="known", memory=max(near, key=lambda old: old.created_at))
    for old in near:
        if rank(old) > _TRUST[new.trust] and words <= words_of(old.content):
            # Nothing that the person has not said already.
            return Remembered(action="known", memory=old)
    replaced = [old for old in near if rank(old) <= _TRUST[new.trust]]
    if not replaced:
        return Remembered(action="added", memory=new)
    merged = carried_over(new, replaced, sources=[m for m in replaced if _says_all_of(new, m)])
    return Remembered(action="updated", memory=merged, superseded=tuple(replaced))


def rank(memory: MemoryRecord) -> int:
    """Who may take its place: as trusted a source; of what is pinned, and of rules, the person."""
    if memory.stands_always:
        return _TRUST["person"]
    return _TRUST[memory.trust]


def may_supersede(new: MemoryRecord, old: MemoryRecord) -> bool:
    """What the person said gives way to nobody else."""
    return _TRUST[new.trust] >= rank(old)


def in_other_words(memory: MemoryRecord, known: Iterable[MemoryRecord]) -> list[MemoryRecord]:
    """Those of the same kind that were learned from the same turn and say much the same: a turn is
    kept in its own words, and in those of a model."""
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
    """Whether half of the words of the shorter are in the other too, and a number if both have any:
    "Episode 1 is out on Monday" says nothing of episode 2."""
    first, second = words_of(one), words_of(other)
    numbers, others = (frozenset(_NUMBER.findall(text)) for text in (one, other))
    is_of_another = numbers and others and numbers.isdisjoint(others)
    return not is_of_another and len(first & second) >= _MUCH * min(len(first), len(second))


def _says_all_of(new: MemoryRecord, old: MemoryRecord) -> bool:
    """Whether it tells what the other told, with more context; else it tells something else now."""
    told, tells = (set(normal(each.content).split()) for each in (old, new))
    if _MOVED.search(plain(new.content)) and not _MOVED.search(plain(old.content)):
        # "CSV instead of JSON" has all words of what was said of JSON.
        return False
    return words_of(old.content) <= words_of(new.content) and told & _TURNING == tells & _TURNING


def carried_over(
    new: MemoryRecord, replaced: Sequence[MemoryRecord], *, sources: Iterable[MemoryRecord]
) -> MemoryRecord:
    """The new one with the subjects and pin of those whose place it takes, and the evidence of
    those that are its `sources`: not of what it contradicts.

    Its own time to live wins. A plain fact in the place of a preference stays one.
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
    """Return each once, in their order."""
    return tuple(dict.fromkeys(item for group in groups for item in group))


@lru_cache(maxsize=_MOST_NORMAL)
def normal(text: str) -> str:
    """Return a text without case, accents and punctuation, to tell "the same words" by."""
    return _MARKS.sub(" ", plain(text)).strip()


@lru_cache(maxsize=_MOST_NORMAL)
def words_of(text: str) -> frozenset[str]:
    """Return a text's words that tell something, as index terms."""
    language = guess_language(text)
    found = frozenset(t for t in terms(text) if not is_stop_word(t, language))
    return found or frozenset(terms(text))


def rivals(
    memory: MemoryRecord,
    known: Iterable[MemoryRecord],
    similarity: Mapping[str, float],
    limits: Thresholds,
) -> list[MemoryRecord]:
    """Older ones on the same subjects that it may have changed, nearest first.

    Nearer than what merely has to do with it. What is as near as a duplicate and still there was
    held apart by its particulars.
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
    """Whether both are about the same: a subject of one is one of the other's, or is named in it.

    Where neither has any, their names decide.
    """
    return bool(_subjects(one) & _subjects(other))


def _subjects(memory: MemoryRecord) -> frozenset[str]:
    return frozenset(map(plain, memory.subjects)) or names_in(memory.content)


def _same_sort(new: MemoryRecord, old: MemoryRecord) -> bool:
    if new.kind in _SINGULAR or old.kind in _SINGULAR:
        return new.kind == old.kind
    return True


def _is_near(
    new: MemoryRecord,
    words: frozenset[str],
    old: MemoryRecord,
    similarity: float | None,
    duplicate: float,
) -> bool:
    if new.kind == "failure":
        # The same command, whatever it said this time.
        return failed_command(new) is not None and failed_command(new) == failed_command(old)
    if similarity is not None and similarity < duplicate / 2:
        # Nothing like it; words need not be compared.
        return False
    first, second = _subjects(new), _subjects(old)
    if first and second and not first & second:
        # "Ana likes tea", "Marc likes tea": as near as can be, and two facts.
        return False
    if similarity is not None and similarity > duplicate:
        return not _are_of_two_things(new, old)
    if not _nearly_equal(words, words_of(old.content)):
        return False
    return new.kind != "rule" or not _are_of_two_things(new, old)


_OF_DEADLINES = frozenset(
    terms("deadline due planned scheduled Frist Termin fällig geplant échéance prévu prévue")
)
"""Words by which a sentence is a deadline, whatever is due."""


def _is_moved(new: MemoryRecord, old: MemoryRecord) -> bool:
    """Whether both are deadlines of the same thing, with another day."""
    if not new.kind == old.kind == "deadline" or new.at == old.at:
        return False
    first, second = _due_words(new), _due_words(old)
    return bool(first) and first == second


def _is_reversed(new: MemoryRecord, old: MemoryRecord) -> bool:
    """ "Never use tabs", "Always use tabs": the same but for a word that turns it."""
    tells, told = (normal(each.content).split() for each in (new, old))
    turned = set(tells) ^ set(told)
    return bool(turned) and turned <= _TURNING | {"t"}


def _due_words(memory: MemoryRecord) -> frozenset[str]:
    """What is due, without when, and without that this has changed."""
    return words_of(_MOVED.sub(" ", WHEN.sub(" ", plain(memory.content)))) - _OF_DEADLINES


def _are_of_two_things(new: MemoryRecord, old: MemoryRecord) -> bool:
    """ "Service A listens on 8001", "Service B listens on 8002": near, and both true.

    One particular that differs is a value that has changed; of several a model is asked. Of rules
    none is lost for its neighbour: "never touch a.py", "never touch b.py".
    """
    first, second = particulars(new.content), particulars(old.content)
    only_first, only_second = first - second, second - first
    most = 0 if new.kind == "rule" else 1
    return bool(only_first and only_second) and max(len(only_first), len(only_second)) > most


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


def _again(known: MemoryRecord, new: MemoryRecord) -> Remembered:
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
        evidence=joined([*known.evidence, *new.evidence]),
    )
    if merged == known:
        return Remembered(action="known", memory=known)
    told = (merged.trust, merged.kind, merged.expires_at, merged.pinned)
    same = told == (known.trust, known.kind, known.expires_at, known.pinned)
    merged = msgspec.structs.replace(merged, updated_at=new.updated_at)
    return Remembered(action="known" if same else "updated", memory=merged)


def joined(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Return each place once; of many the first and the newest."""
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
        """Find where it stands, the person's own words first, the agent's last; None: nowhere.

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
    said, words_said = plain(source), _bounded(source)
    for hard in PARTICULAR.findall(content):
        if plain(hard.strip("`.,:;")) not in said and _bounded(hard) not in words_said:
            return False
    language = guess_language(content)
    words = {word for word in normal(content).split() if word not in _PHRASING}
    telling = {word for word in words if not is_stop_word(word, language)} or words
    there = frozenset((*terms(source), *words_said.split()))
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
    """Return it as it is kept with the memory; `locate` gives a tool's path its stored form."""
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
    """Words alone, with a space before and after each: no quote ends in the middle of one."""
    return f" {normal(text)} "


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
        self._replaced: dict[str, list[MemoryRecord]] = {}
        """What was known before, by the new one that takes its place."""
        self._later: dict[str, str] = {}
        """What took the place of each, by their ids."""

    @property
    def puts(self) -> list[tuple[PutMemory, bytes]]:
        """The writes in their order, each with the memory's vector; empty where it has none."""
        return [(put, self._rows.get(memory_id, b"")) for memory_id, put in self._puts.items()]

    def know(
        self, memories: Sequence[MemoryRecord], rows: Mapping[str, bytes], project_id: str | None
    ) -> None:
        """What is current in the project and of the person; the vectors of those that have some."""
        for memory in memories:
            if memory.is_current(self._now):
                scope = project_id if memory.project_id else None
                self._known.setdefault(scope, {})[memory.memory_id] = memory
        self._rows |= rows

    def settle(self, memory: MemoryRecord, row: bytes) -> Remembered:
        """What becomes of one; those after it are compared with the outcome."""
        current = self._known.setdefault(memory.project_id, {})
        near = cosines(row, {i: self._rows[i] for i in current if i in self._rows}) if row else {}
        outcome = compare(memory, current.values(), near, duplicate=self._duplicate)
        put = outcome.memory
        if put is None or current.get(put.memory_id) == put:
            return outcome
        if put.memory_id == memory.memory_id and row:
            self._rows[put.memory_id] = row
        gone = tuple(one.memory_id for one in outcome.superseded)
        for memory_id in gone:
            current.pop(memory_id, None)
            self._later[memory_id] = put.memory_id
        current[put.memory_id] = put
        earlier = self._puts.pop(put.memory_id, None)
        # What was made of the same drafts a moment ago is nothing that anybody knew.
        replaced = list[MemoryRecord]()
        for one in outcome.superseded:
            is_new = self._puts.pop(one.memory_id, None) and one.memory_id in self._replaced
            replaced += self._replaced[one.memory_id] if is_new else [one]
        if put.memory_id == memory.memory_id:
            self._replaced[put.memory_id] = replaced
        supersedes = (*(earlier.supersedes if earlier else ()), *(m.memory_id for m in replaced))
        self._puts[put.memory_id] = PutMemory(memory=put, supersedes=supersedes)
        action = "added" if gone and not replaced else outcome.action
        return msgspec.structs.replace(outcome, action=action, superseded=tuple(replaced))

    def in_the_end(self, outcome: Remembered) -> Remembered:
        """The outcome after all that were settled: whose place another took is known by that."""
        memory_id = before = outcome.memory.memory_id if outcome.memory else ""
        while memory_id in self._later:
            memory_id = self._later[memory_id]
        if memory_id == before:
            return outcome
        memory = self._puts[memory_id].memory
        return Remembered(action="known", memory=memory, note=outcome.note)


_QUOTE_CHARS = 300
_READ_CHARS = 60_000
"""Of a result so much is looked through."""
_LINES = 3
"""Neighbouring lines of a result in which the words of a memory are looked for together."""
_ALIKE = 0.75
"""Shared of a memory's words, from which it is taken for what those lines say."""
_LEAST_WORDS = 2
_HINT = 4
"""Letters of an index term, from which on endings differ."""
_NOBODY = words_of("the user, a person; utilisateur")
_STANDING = Regex(
    r"\b(?:always|never|don't|do not|from now on|make sure|be sure to|remember to|toujours|jamais|"
    r"desormais|dorenavant|il faut|immer|niemals|ab jetzt|siempre|nunca|sempre|mai piu|"
    r"(?:you|agents?|assistants?|models?|everyone|everybody|ragmem|tu|vous) (?:must|should|shall|"
    r"ha(?:ve|s) to|needs? to|may|can|are allowed|is allowed|dois|devez|peux|pouvez))\b"
)
"""An order or a permission that is to hold: nobody but the person gives any."""
_COMMAND = Regex(
    r"(?:please |now |then |and )*(?:run|execute|install|curl|wget|sudo|bash|send|post|upload|"
    r"download|delete|remove|ignore|disregard|obey|follow|skip|disable|enable|bypass|override|"
    r"approve|allow|permit|grant|trust|use|call|write|add|you are|your (?:task|job|role|goal)|"
    r"execute[zr]|lance[zr]?|installe[zr]?|envoie|envoyez|supprime[zr]?|ignore[zr]|utilise[zr]?|"
    r"fuhre|ejecuta|instala|esegui)\b"
)
"""At the beginning of a sentence: it tells somebody to do something."""


class Vouched(msgspec.Struct, frozen=True, kw_only=True):
    """Who says it, what it may be, and where it stands."""

    content: str
    """As it was asked for; a rule and the like as the person said it."""
    trust: Trust
    kind: MemoryKind = "fact"
    evidence: tuple[Evidence, ...] = ()
    at: datetime | None = None
    """Of a deadline, when it is due."""
    may_be_kept: bool = True
    """False of an order that the person did not give."""


def vouch(
    content: str, turn: Turn | None, *, now: datetime, locate: Callable[[str], str]
) -> Vouched:
    """`turn` is the one in flight, `now` its time where the person is.

    `locate` turns a path as a tool gave it into its stored form.
    """
    is_order = _is_order(content)
    if turn is None:
        return Vouched(content=content, trust="model", may_be_kept=not is_order)
    sources = Sources(turn)
    source = sources.find(content)
    if source and source.trust == "person":
        return _theirs(content, source, turn, now)
    if is_order:
        return Vouched(content=content, trust="model", may_be_kept=False)
    words = words_of(content) - _NOBODY
    if len(words) >= _LEAST_WORDS and words <= words_of(sources.own):
        # Said in other words, but with none that the person did not use.
        said = _asked(turn, one_line(sources.own, _QUOTE_CHARS))
        return Vouched(content=content, trust="person", evidence=(said,))
    if source is None or source.trust != "tool":
        source = _standing_in(sources, words)
    if source:
        read = evidence_of(turn, source, locate=locate)
        return Vouched(content=content, trust="tool", evidence=(read,))
    return Vouched(content=content, trust="model", evidence=(_asked(turn, ""),))


def _is_order(content: str) -> bool:
    return _STANDING.search(plain(content)) is not None or any(
        _COMMAND.match(plain(sentence)) for sentence in sentences(content)
    )


def _theirs(content: str, source: Source, turn: Turn, now: datetime) -> Vouched:
    """Word for word what the person said; of a rule their whole sentence, for what a part of it
    says may be the opposite."""
    said = source.quote
    evidence = (_asked(turn, said),)
    from ragmem.memory.facts.episodes import episodes

    for episode in episodes(said, now):
        if episode.kind != "fact":
            return Vouched(
                content=episode.content,
                trust="person",
                kind=episode.kind,
                evidence=evidence,
                at=episode.at,
            )
    if is_rule(said):
        return Vouched(content=said, trust="person", kind="rule", evidence=evidence)
    return Vouched(content=content, trust="person", evidence=evidence)


def _asked(turn: Turn, quote: str) -> Evidence:
    """The turn, and the call that asks for it: the one that has no answer yet."""
    asking = [c for c in turn.tool_calls if c.tool_name == REMEMBER and not c.result]
    return Evidence(
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        turn_index=turn.turn_index,
        tool_call_id=asking[-1].tool_call_id if asking else "",
        tool_name=REMEMBER if asking else "",
        quote=one_line(quote, _QUOTE_CHARS),
        at=turn.started_at,
    )


def _standing_in(sources: Sources, words: frozenset[str]) -> Source | None:
    """The lines of a tool's answer that hold most of the words, the latest call first."""
    if len(words) < _LEAST_WORDS:
        return None
    for call, text in reversed(sources.results):
        best = max(_shared(text[:_READ_CHARS], words), default=(0, ""))
        if best[0] >= _ALIKE * len(words):
            return Source("tool", one_line(best[1], _QUOTE_CHARS), call)
    return None


def _shared(text: str, words: frozenset[str]) -> Iterator[tuple[int, str]]:
    lines = [line for line in text.split("\n") if line.strip()]
    # Most lines hold the beginning of none, and finding the words of a line takes time.
    hints = tuple(word[:_HINT] for word in words)
    found = [_held(line, words, hints) for line in lines]
    for i in range(len(lines)):
        union = frozenset[str]().union(*found[i : i + _LINES])
        if union:
            yield len(union), "\n".join(lines[i : i + _LINES])


def _held(line: str, words: frozenset[str], hints: tuple[str, ...]) -> frozenset[str]:
    flat = plain(line)
    return words & words_of(line) if any(hint in flat for hint in hints) else frozenset()

"""What became since of what was said: done by now, or told otherwise.

Judged by words, of turns by their meaning too, and by no model that is asked. In doubt what was
said later is shown beside it: who reads both can tell.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import chain

import msgspec

from ragmem.embedder import cosines
from ragmem.memory.facts.failures import subject_of
from ragmem.memory.facts.words import (
    CLAUSE,
    WHEN,
    clip_sentences,
    own_words,
    plain,
    prose_sentences,
    sentences,
)
from ragmem.memory.recall import Replaced
from ragmem.memory.turns import argument, taken_back
from ragmem.own_tools import EDITING_TOOLS
from ragmem.records import (
    MemoryQuery,
    MemoryRecord,
    PutVectors,
    SessionQuery,
    Summary,
    ToolCall,
    Turn,
    TurnQuery,
)
from ragmem.similarity import WORDS_AS_COSINE
from ragmem.store import Store
from ragmem.terms import is_stop_word, terms
from ragmem.text import Regex, one_line

_DONE, _SAID_DONE = 0.5, 0.75
"""What is open counts as done when a later turn that did something holds so much of its words, or
one that only speaks of it so much."""
_REVISED = 0.5
"""So much of what a sentence tells stands in a later one that takes it back with words for a
change."""
_REVALUED = 0.2
"""The same, where a word has another number there."""
_ON_THE_SAME = 0.2
"""Above the embedder's own floor, with the words that both share: from there on two turns are about
the same. Of 95 turns of which something was replaced it finds 59 by itself, and 9 of 181 that still
hold."""
_LONGEST = 400
"""Characters of a sentence that states something; a longer one is a text."""
_FIRST_STATED, _LAST_STATED = 12, 8
"""Sentences of a turn that are looked at: what it comes to stands at its beginning or its end."""
_QUOTED = 160
_SESSIONS_READ, _TURNS, _READ_CHARS = 8, 6, 20_000
"""The newest, of each the last turns, and their characters."""
_LANGUAGES = ("english", "german", "french")
_MOST_WORDS, _MOST_STATEMENTS, _MOST_TEXTS, _SHORT = 20_000, 4_000, 200, 2
_WORDS = Regex(r"\w[\w./-]*\w")

_PUT_OFF = (
    r"(?:tomorrow|later|next (?:time|week|session)|morgen|spater|nachstes mal|nachste woche|"
    r"demain|plus tard|la prochaine fois|la semaine prochaine)"
)
_UNDONE = Regex(
    r"\b(?:to-?do|fixme|still (?:to|need|needs|needed|missing|open|fails?|failing|broken|have to|"
    r"has to|left|undone|says?|only)|(?:is|are) (?:still )?missing|"
    r"not (?:yet|done|finished|implemented|covered|tested|checked)|"
    r"isn't (?:done|finished|implemented)|have(?:n't| not)|has(?:n't| not)|next steps?|"
    r"(?:not|n't|no)\b.{0,20}\byet|will need|needs? (?:to|a|an|more)|"
    r"(?:what(?:'s| is)|is|are) (?:still )?left|left to (?:do|be done)|left open|remain(?:s|ing)?|"
    r"follow-?ups?|open (?:questions?|points?|items?|ends?)|pending|unresolved|on hold|"
    r"blocked (?:by|on|until)|"
    r"should (?:also|still|then|next)|did(?:n't| not) (?:check|run|test|touch|get to)|"
    r"noch (?:nicht|offen|zu|fehlt|fehlen|aus)|(?:fehlt|fehlen) noch|als nachstes|"
    r"nachster schritt|steht noch aus|ruht|offene[rn]? (?:fragen?|punkte?)|bleibt (?:noch )?zu|"
    r"reste(?:nt)? (?:a|encore)|pas encore|en attente de|a faire|prochaines? etapes?|il manque)\b"
    rf"|\b{_PUT_OFF}\b"
)
_LATER = Regex(rf"\b(?:{_PUT_OFF}|not now|nicht jetzt|pas maintenant)\b")
"""In the person's own words only what is put off is open: all else was answered."""
_CHANGE = Regex(
    r"\b(?:instead|rather than|no longer|any ?more|now|these days|by now|back|switch(?:ed|ing)?|"
    r"moved?|replac\w+|remov\w+|delet\w+|dropp?(?:ed)?|scrap\w*|revert\w*|rewr\w+|redo(?:ne)?|"
    r"chang(?:ed?|es|ing)|wrong|after all|actually|on second thoughts?|used to|left|gone|raised|"
    r"lowered|in the end|convinced|turns out|scratch that|postponed|rescheduled|brought forward|"
    r"statt(?:dessen)?|anstelle|nicht mehr|kein\w* mehr|jetzt|nun|inzwischen|mittlerweile|doch|"
    r"lieber|zuruck|um(?:ge)?(?:stell|schr[ei]+b|bau)\w*|geandert|ersetzt|entfernt|geloscht|"
    r"verschoben|vorgezogen|verlegt|gestrichen|abgeschaltet|falsch|erhoht|gesenkt|seit|"
    r"ab (?:sofort|\w{3,9})|"
    r"plutot|au lieu|a la place|finalement|(?:ne |n')\w+ plus|desormais|a present|"
    r"maintenant|en fait|remplac\w+|supprim\w+|refai\w+|retir\w+|abandonn\w+|revien\w+|parti\w*|"
    r"report(?:e|ee)s?|repouss\w*|avancee?s?|faux)\b"
)
"""Words that say that something is not as it was."""
_VALUE = Regex(r"(\d[\d.,:]{0,30})\s?([^\W\d]\w+)")
_FILLER = frozenset(
    word
    for words in (
        "let make use do get put take need want way thing two three agree agreed ok okay yes fine",
        "begin begun start started not",
        "einverstanden gut ja gern gerne hatte ware angefangen begonnen accord oui bon commence",
        "machen tun nehmen brauchen faire mettre prendre voir",
    )
    for word in words.split()
)


def said_at(memory: MemoryRecord) -> datetime:
    """Return when it was said last."""
    return max((each.at for each in memory.evidence), default=memory.created_at)


def states_undone(sentence: str) -> bool:
    """Whether it says that something is still to be done."""
    return _UNDONE.search(plain(sentence)) is not None


def left_open(turn: Turn) -> list[str]:
    """Sentences of a turn that say that something is still to be done."""
    asked = [s for s in sentences(own_words(turn.user_message)) if _LATER.search(plain(s))]
    # What the person puts off themselves an answer only agrees to.
    found = [
        said
        for said in sentences(own_words(turn.assistant_message))
        if states_undone(_LATER.sub(" ", plain(said)) if asked else said)
    ]
    return [each for each in (*asked, *found) if not each.endswith("?")]


def in_short(turn: Turn, asked_chars: int, answer_chars: int) -> str:
    """What was asked, and how the answer begins; what that leaves undone is told elsewhere."""
    said = " ".join(s for s in prose_sentences(turn.assistant_message) if not states_undone(s))
    asked = one_line(turn.asked, asked_chars)
    return " — ".join(filter(None, [asked, clip_sentences(said, answer_chars)]))


Word = frozenset[str]
"""A word by the index terms of its forms and parts."""


@lru_cache(maxsize=_MOST_WORDS)
def _forms(word: str) -> Word:
    """Empty for a word that any sentence has."""
    if word in _FILLER or is_stop_word(word, None):
        return frozenset()
    found = {term for language in _LANGUAGES for term in terms(word, language=language)}
    return frozenset(term for term in found if len(term) > _SHORT) or frozenset(found)


def _words(text: str) -> frozenset[Word]:
    """What a sentence is about: less the words that any of its kind has."""
    flat = _UNDONE.sub(" ", plain(text))
    return frozenset(filter(None, map(_forms, _WORDS.findall(flat))))


def _held(turn: Turn) -> frozenset[str]:
    """The terms of all that was said and done in a turn."""
    said = turn.user_message[:_READ_CHARS], turn.assistant_message[:_READ_CHARS]
    return _terms_of(" ".join((*said, *map(subject_of, turn.tool_calls))))


@lru_cache(maxsize=_MOST_TEXTS)
def _terms_of(text: str) -> frozenset[str]:
    words = set(_WORDS.findall(plain(text)))
    return frozenset(term for word in words for term in _forms(word))


_FILE_WORD = Regex(r"[^\W\d_]+|(?<![^\W\d_])\d[\d.:]*")
_REMOVES = Regex(r"(?:git )?(?:rm|mv) (?:-\w+ )*(.+)")
_OVERWRITTEN = 1 / 3
"""Of what a turn wrote into a file; less where it is what the turn says."""


class _Written(msgspec.Struct, frozen=True):
    """What a turn did to a file, in words."""

    added: frozenset[str]
    removed: frozenset[str]
    is_whole: bool = False
    """All that was there before is gone but what is in `added`."""

    def taken(self, before: "_Written") -> frozenset[str]:
        """What it takes away of what was written before."""
        return before.added - self.added if self.is_whole else before.added & self.removed


def _file_words(text: str) -> frozenset[str]:
    words = frozenset(_FILE_WORD.findall(plain(text)))
    return frozenset(word for word in words if not is_stop_word(word, None))


Edits = dict[str, list[tuple[str, str]]]
"""What was replaced by what, in their order, by the paths that calls name; nothing is all."""


def _edits(turn: Turn) -> Edits:
    found: Edits = {}
    for call in turn.tool_calls:
        if call.success and call.tool_name in EDITING_TOOLS:
            old, new = argument(call, "old"), argument(call, "new", "content")
            edit = (old[:_READ_CHARS], new[:_READ_CHARS])
            found.setdefault(argument(call, "path"), []).append(edit)
        for path in _removed_paths(call):
            found[path] = [("", "")]
    return found


@lru_cache(maxsize=_MOST_TEXTS)
def _written(edits: tuple[tuple[str, str], ...]) -> _Written:
    added, removed = frozenset[str](), frozenset[str]()
    for old, new in edits:
        before, after = _file_words(old), _file_words(new)
        added |= after - before
        removed |= before - after
    return _Written(added, removed, is_whole=not edits[0][0])


def _removed_paths(call: ToolCall) -> list[str]:
    if not call.success or "command" not in call.arguments:
        return []
    command = _REMOVES.match(argument(call, "command"))
    return command[1].split() if command else []


def _shared(words: Collection[Word], held: Collection[str]) -> list[Word]:
    return [word for word in words if not word.isdisjoint(held)]


class _Statement(msgspec.Struct, frozen=True):
    text: str
    words: frozenset[Word]
    terms: frozenset[str]
    """Of all its words."""
    values: dict[str, set[str]]
    """Numbers by the terms of what they count."""
    dates: frozenset[str]
    is_change: bool


def _values(flat: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for number, word in _VALUE.findall(flat):
        for term in _forms(word):
            found.setdefault(term, set()).add(number.rstrip(".,:"))
    return found


@lru_cache(maxsize=_MOST_STATEMENTS)
def _statement(text: str) -> _Statement:
    flat = plain(text)
    words = _words(_CHANGE.sub(" ", WHEN.sub(" ", flat)))
    return _Statement(
        text=text,
        words=words,
        terms=frozenset(chain(*words)),
        values=_values(flat),
        dates=frozenset(WHEN.findall(flat)),
        is_change=_CHANGE.search(flat) is not None,
    )


def _id(told: Turn | MemoryRecord) -> str:
    return told.turn_id if isinstance(told, Turn) else told.memory_id


def _stated(told: Turn | MemoryRecord) -> list[str]:
    """Sentences of the person and the agent; what is asked states nothing."""
    if isinstance(told, MemoryRecord):
        return [told.content]
    texts = (
        *sentences(own_words(told.user_message)),
        *sentences(own_words(told.assistant_message)),
    )
    said = dict.fromkeys(t for t in texts if len(t) <= _LONGEST and not t.endswith("?"))
    return [*said][:_FIRST_STATED] + [*said][_FIRST_STATED:][-_LAST_STATED:]


def _said(turn: Turn) -> str:
    return f"{turn.user_message[:_READ_CHARS]}\n{turn.assistant_message[:_READ_CHARS]}"


def _telling(turn: Turn, wrote: Collection[str]) -> str:
    """The statement of a turn that says most of what it wrote."""
    texts = _stated(turn) or [turn.user_message[:_READ_CHARS]]
    return one_line(
        max(texts, key=lambda text: len(_file_words(text).intersection(wrote))), _QUOTED
    )


def _beside(found: str, at: datetime) -> str:
    return f"As it was on {at.astimezone():%Y-%m-%d}; said later: “{found}”" if found else ""


async def replaced_in(store: Store, session_ids: Iterable[str]) -> dict[str, Replaced]:
    """What took the place of something that was said in these sessions, by turn. StoreError."""
    query = MemoryQuery(everywhere=True, session_ids=tuple(session_ids), with_superseded=True)
    told = await store.memories(query) if query.session_ids else []
    # A command that failed again says nothing of what was said beside it.
    past = [memory for memory in told if memory.superseded_by and memory.kind != "failure"]
    later: dict[str, MemoryRecord] = {}
    wanted = {memory.superseded_by or "" for memory in past}
    while wanted:
        read = await store.get(MemoryRecord, list(wanted))
        later |= {memory.memory_id: memory for memory in read}
        wanted = {memory.superseded_by for memory in read if memory.superseded_by} - later.keys()
    found: dict[str, Replaced] = {}
    for old in past:
        if new := _successor(old, later):
            # What was learned from the same turn once more takes no place of what it says.
            gone = {e.turn_id for e in old.evidence} - {e.turn_id for e in new.evidence}
            found |= dict.fromkeys(gone, Replaced(new.content))
    return found


def _successor(memory: MemoryRecord, later: Mapping[str, MemoryRecord]) -> MemoryRecord | None:
    """What stands in the place of a memory today, by the ids of what came `later`; None where that
    is not known."""
    seen, new = {memory.memory_id}, later.get(memory.superseded_by or "")
    while new and new.memory_id not in seen and (newer := later.get(new.superseded_by or "")):
        seen.add(new.memory_id)
        new = newer
    return new


async def turns_since(store: Store, project_id: str, oldest: datetime) -> list[Turn]:
    """The last turns of the person's newest sessions of a project that went on from a moment on.

    StoreError.
    """
    query = SessionQuery(project_ids=(project_id,), mine=True, limit=_SESSIONS_READ)
    sessions = [s for s in await store.sessions(query) if s.last_activity_at >= oldest]
    last = TurnQuery(limit=_TURNS, max_chars=_READ_CHARS)
    read = await asyncio.gather(*(store.turns(each.session_id, last) for each in sessions))
    return [turn for turns in read for turn in turns]


def _revalued(told: dict[str, set[str]], later: dict[str, set[str]]) -> bool:
    """Whether a word has one number in the one, and another in the other."""
    return any(told[term].isdisjoint(later[term]) for term in told.keys() & later.keys())


class Alike(msgspec.Struct, frozen=True):
    """How alike turns are by their meaning."""

    rows: dict[str, tuple[bytes, ...]] = {}
    """Of each turn, by its id, the vectors of its passages."""
    floor: float = 1.0
    """The cosine above which the embedder takes a turn to have to do with a question."""

    def to(self, turn_id: str) -> dict[str, float]:
        """Return the cosines of the other turns with this one, by their ids: of two turns that of
        the passages that are nearest each other."""
        passages = {
            (name, i): row for name, held in self.rows.items() for i, row in enumerate(held)
        }
        found: dict[str, float] = {}
        for own in self.rows.get(turn_id, ()):
            for (other, _), near in cosines(own, passages).items():
                found[other] = max(near, found.get(other, -1.0))
        return found


async def alike(store: Store, turns: Iterable[Turn], floor: float | None) -> Alike:
    """How alike these turns are; none is to another where there is no embedder. StoreError."""
    # One that runs is like none yet.
    ids = list(dict.fromkeys(turn.turn_id for turn in turns if turn.status != "running"))
    if floor is None or len(ids) < 2:
        return Alike()
    found = await store.get(PutVectors, ids)
    return Alike({each.record_id: each.vectors for each in found}, floor)


class Aftermath:
    """Turns in the order of time, against which what was said before each is held.

    `memories` are what was learned from turns, in other words. `meant` says which turns mean the
    same.
    """

    def __init__(
        self,
        turns: Iterable[Turn],
        memories: Collection[MemoryRecord] = (),
        meant: Alike | None = None,
    ) -> None:
        self._meant = meant or Alike()
        self._turns = sorted(
            (turn for turn in turns if turn.status == "completed"), key=lambda turn: turn.timestamp
        )
        self._taken_back = taken_back(self._turns)
        self._terms = [_held(turn) for turn in self._turns]
        self._edits = [_edits(turn) for turn in self._turns]
        self._counts = Counter(term for each in self._terms for term in each)
        self._weights: dict[Word, float] = {}
        self._stated: dict[str, list[_Statement]] = {}
        self._told: list[tuple[datetime, Turn | MemoryRecord, frozenset[str]]] = [
            *zip((turn.timestamp for turn in self._turns), self._turns, self._terms, strict=True),
            *((said_at(m), m, frozenset(chain(*_words(m.content)))) for m in memories),
        ]
        self._told.sort(key=lambda each: each[0], reverse=True)

    def of_turn(self, turn: Turn) -> str:
        """What was said later that takes back what it says, or is on the same, with the day that it
        was of; empty where nothing was."""
        texts, at = _stated(turn), turn.timestamp
        if self.is_taken_back(turn):
            return f"Said on {at.astimezone():%Y-%m-%d}; the user has undone its edits since"
        since = self._over(turn, _said(turn), _OVERWRITTEN) or self._choice_over(turn)
        return _beside(since or self.revised(texts, at) or self._on_the_same(turn), at)

    def _on_the_same(self, turn: Turn) -> str:
        """What the last turn of another session came to that means and says much the same; empty
        where none does."""
        near = self._meant.to(turn.turn_id)
        words = frozenset(chain(*(each.words for each in self._statements(turn))))
        for later in reversed(self._turns):
            if later.timestamp <= turn.timestamp:
                break
            if later.session_id == turn.session_id or later.turn_id not in near:
                continue
            held = frozenset(chain(*(chain(*each.words) for each in self._statements(later))))
            both = near[later.turn_id] + WORDS_AS_COSINE * self._share(words, held)
            if both > self._meant.floor + _ON_THE_SAME:
                return in_short(later, _QUOTED, _QUOTED)
        return ""

    def is_taken_back(self, turn: Turn) -> bool:
        """Whether the person has taken back what it did to files, or part of that."""
        return turn.turn_id in self._taken_back

    def of_summary(self, summary: Summary) -> str:
        """The same of the first of the turns that a summary tells of."""
        told = (turn for turn in self._turns if turn.turn_id in summary.covers)
        return next(filter(None, map(self.of_turn, told)), "")

    def of_memory(self, memory: MemoryRecord) -> str:
        """The same of a memory; failures and rules hold until they are taken away."""
        if memory.kind in ("failure", "rule"):
            return ""
        at, told_in = said_at(memory), {each.turn_id for each in memory.evidence}
        if over := self.overwritten(memory):
            return _beside(over, at)
        # In one sentence there may be several deadlines.
        parts = CLAUSE.split(memory.content) if memory.kind == "deadline" else []
        return _beside(self.revised([memory.content, *parts], at, told_in), at)

    def overwritten(self, memory: MemoryRecord) -> str:
        """What the last turn says that wrote over what the memory's own turn wrote of it; empty
        where none did."""
        told_in = {each.turn_id for each in memory.evidence}
        tellers = [turn for turn in self._turns if turn.turn_id in told_in]
        return self._over(tellers[-1], memory.content, 1) if tellers else ""

    def _over(self, turn: Turn, said: str, least: float) -> str:
        """The statement of the last turn that wrote over what this one wrote and says of it, or
        over so much of a file; empty where none did."""
        wrote = {path: _written(tuple(edits)) for path, edits in _edits(turn).items()}
        told = _file_words(said) if wrote else frozenset[str]()
        last: tuple[Turn, set[str]] | None = None
        for later, edits in zip(self._turns, self._edits, strict=True):
            if later.timestamp <= turn.timestamp or later.turn_id == turn.turn_id:
                continue
            changes = {p: _written(tuple(edits[p])) for p in wrote.keys() & edits.keys()}
            taken = {path: change.taken(wrote[path]) for path, change in changes.items()}
            if any(
                words & told or len(words) >= max(1, least * len(wrote[path].added))
                for path, words in taken.items()
            ):
                wrote = {path: changes[path] for path, words in taken.items() if words}
                added = {word for change in wrote.values() for word in change.added}
                told, last = _file_words(_said(later)), (later, added)
        return _telling(*last) if last else ""

    def _choice_over(self, turn: Turn) -> str:
        """The same of the turn right after one that only advised, where that took its advice."""
        after = (
            each
            for each in self._turns
            if each.session_id == turn.session_id and each.turn_index == turn.turn_index + 1
        )
        chosen = next(after, None)
        if chosen is None or turn.tool_calls:
            return ""
        took = _shared(_words(chosen.user_message[:_READ_CHARS]), _held(turn))
        return self._over(chosen, _said(chosen), _OVERWRITTEN) if took else ""

    def steps_done(self, what: str, at: datetime) -> list[str]:
        """Return for each part of what is open what the later turn came to that was about it, or
        nothing; what says nothing is done by whatever came later."""
        steps = [words for words in map(_words, CLAUSE.split(what)) if words]
        return [self._first_about(words, at) for words in steps or [frozenset[Word]()]]

    def _first_about(self, words: frozenset[Word], at: datetime) -> str:
        """Of a word alone only a turn that did something."""
        for turn, held in zip(self._turns, self._terms, strict=True):
            if turn.timestamp <= at:
                continue
            did = any(map(subject_of, turn.tool_calls))
            least = _DONE if did else _SAID_DONE
            if len(_shared(words, held)) >= least * len(words) and (did or len(words) != 1):
                return in_short(turn, _QUOTED, _QUOTED)
        return ""

    def revised(self, texts: Iterable[str], at: datetime, told_in: Collection[str] = ()) -> str:
        """The newest later statement that takes one of the texts back; empty where none does.

        Those of the turns that they were `told_in` say it themselves.
        """
        told = [_statement(text) for text in texts]
        for said, later, held in self._told:
            if said <= at:
                break
            # No sentence of it holds more than the whole of it.
            left = [each for each in told if self._share(each.words, held) >= _REVALUED]
            if not left or _id(later) in told_in:
                continue
            for statement in self._statements(later):
                if any(self._takes_back(statement, each) for each in left):
                    return one_line(statement.text, _QUOTED)
        return ""

    def _statements(self, later: Turn | MemoryRecord) -> list[_Statement]:
        """What it states, read once."""
        if _id(later) not in self._stated:
            self._stated[_id(later)] = list(map(_statement, _stated(later)))
        return self._stated[_id(later)]

    def _takes_back(self, later: _Statement, told: _Statement) -> bool:
        if told.terms.isdisjoint(later.terms):
            return False
        revalued = (
            _revalued(told.values, later.values) and len(_shared(told.words, later.terms)) > 1
        )
        if told.dates and later.dates:
            revalued = revalued or told.dates.isdisjoint(later.dates)
        if not (later.is_change or revalued):
            return False
        least = _REVALUED if revalued else _REVISED
        shared = _shared(told.words, later.terms)
        # One word in common is what many sentences have that are about something else.
        telling = revalued or len(shared) > 1 or len(told.words) == 1
        is_held = self._weight(shared) >= least * (self._weight(told.words) or 1)
        return telling and is_held and later.text != told.text

    def _share(self, words: Collection[Word], held: Collection[str]) -> float:
        """Of what the words tell so much is held."""
        return self._weight(_shared(words, held)) / (self._weight(words) or 1)

    def _weight(self, words: Iterable[Word]) -> float:
        """How much they tell: what is said in most turns says little."""
        return sum(self._weights.get(word) or self._weighed(word) for word in words)

    def _weighed(self, word: Word) -> float:
        seen = max((self._counts[term] for term in word), default=0)
        found = self._weights[word] = math.log(1 + max(1, len(self._turns)) / max(1, seen))
        return found

"""Whether an earlier statement still holds: later turns may have done it, or contradicted it.

Decided by comparing words and, for turns, embeddings; no language model is called. When in doubt,
the later statement is shown next to the earlier one, so that the reader can judge.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import chain, groupby

import msgspec

from ragmem.embedder import highest_cosines
from ragmem.memory.date_words import word_set
from ragmem.memory.facts import attributed
from ragmem.memory.facts.failures import subject_of
from ragmem.memory.facts.words import (
    CLAUSE,
    WHEN,
    clip_sentences,
    is_of_subject,
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
    utc_now,
)
from ragmem.similarity import WORDS_AS_COSINE
from ragmem.store import AHEAD, Store
from ragmem.terms import is_stop_word, terms
from ragmem.text import Regex, one_line

_DONE, _SAID_DONE = 0.5, 0.75
"""The share of an open task's words that a later turn must contain for the task to count as done: a
turn that ran commands or edited files, and one that only mentions it."""
_REVISED = 0.5
"""The weighted share of a sentence's words that a later sentence with a word of change (`_CHANGE`)
must contain to revise it."""
_REVALUED = 0.2
"""The same for a later sentence in which a word has another number or date."""
_ON_THE_SAME = 0.75
"""How much more similar than usual the later of two turns must be, plus their shared words, for
them to be about the same matter, as a share of the embedder's floor. By itself this finds 137 of
171 turns of which something was replaced, and 75 of 217 that still hold."""
_LONG_AGO, _TICK = datetime.fromtimestamp(0, UTC), timedelta.resolution
"""When a session with a wrong clock was, and the time between two turns of it."""
_LONGEST = 400
"""In characters; a longer sentence is not taken for a statement."""
_FIRST_STATED, _LAST_STATED = 12, 8
"""The sentences of a turn that are compared: its conclusions are at its beginning or its end."""
_QUOTED = 160
_SESSIONS_READ, _TURNS, _READ_CHARS = 8, 6, 20_000
"""The newest sessions that are read, the last turns of each, and the characters of each turn."""
_LANGUAGES = ("english", "german", "french")
_MOST_WORDS, _MOST_STATEMENTS, _MOST_TEXTS, _SHORT = 20_000, 4_000, 200, 2
"""The sizes of the caches, and the length of terms that are dropped if a word has longer ones."""
_WORDS = Regex(r"\w[\w./-]*\w")
_SUBJECT_WORD = Regex(r"\d+|\w[\w./-]*\w")

# The patterns below are matched against `plain` text.
# Matches "The docs come later" and "Das machen wir morgen"; must not match "3.11 or later", "two
# lines later" and "Guten Morgen".
_PUT_OFF = (
    r"(?:tomorrow|(?<!or )(?<!lines )(?<!you )later(?! (?:in|on|versions?|releases?)\b)|"
    r"next (?:time|week|session)|"
    r"(?<!guten )(?<!heute )(?<!gestern )(?<!jeden )(?<!diesen )(?<!am )morgen|"
    r"(?<!oder )(?<!zeilen )spater(?! (?:im|in|auf)\b)|nachstes mal|nachste woche|"
    r"demain|plus tard(?! dans\b)|la prochaine fois|la semaine prochaine)"
)
_TYPE = (
    r"(?:strings?|numbers?|integers?|int|floats?|bool\w*|lists?|dict\w*|tuples?|paths?|"
    r"arguments?|parameters?|callables?|callbacks?|objects?|arrays?|iterables?)"
)
# Matches "nothing is left to do", "no tests are missing", "keine offenen Fragen", "I have not
# changed any other file" and "The function needs a string".
_ALL_DONE = Regex(
    r"\b(?:nothing|nichts|rien)\b[^.,;:]{0,40}|"
    r"\b(?:no|keine?n?) (?:remaining|pending|open|unresolved|further|offene\w*|weitere\w*)\b"
    r"(?: \w+)?|"
    r"\bno(?: \w+){1,3}? (?:(?:is|are|was|were) )?(?:still )?(?:missing|remain\w*|left|pending)\b|"
    r"\b(?:have|has|did)(?:n't| not) (?:changed?|touch(?:ed)?|modif\w+|edit(?:ed)?) "
    r"(?:any other \w+|anything else)\b|"
    rf"\bneeds? an? (?:\w+ )?{_TYPE}\b|"
    r"\bthe remaining (?:\S+ ){1,3}(?:pass(?:es|ed)?|works?|succeed(?:s|ed)?)\b"
)
"""Taken out before `_UNDONE` is looked for."""
# Matches "The refresh endpoint is still missing", "I did not run the tests", "Noch offen: …" and
# "Il reste à faire …"; must not match "All tests pass".
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
"""Of the user's own words only a task that they postpone is open: everything else was answered."""
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
"""Words that announce a change: "we switched", "nicht mehr", "finalement"."""
# A number and the word that it counts: "30 seconds".
_VALUE = Regex(r"(\d[\d.,:]{0,30})\s?([^\W\d]\w+)")
_FILLER = word_set(
    """let make use do get put take need want way thing two three agree agreed ok okay yes fine
    begin begun start started not
    einverstanden gut ja gern gerne hatte ware angefangen begonnen accord oui bon commence
    machen tun nehmen brauchen faire mettre prendre voir"""
)


def states_undone(sentence: str) -> bool:
    """Whether a sentence says that something remains to be done."""
    return _UNDONE.search(_ALL_DONE.sub(" ", plain(sentence))) is not None


def left_open(turn: Turn) -> list[str]:
    """Return the sentences of a turn that say that something remains to be done, no questions."""
    asked = [s for s in sentences(own_words(turn.user_message)) if _LATER.search(plain(s))]
    # An answer to a user who postpones something only agrees to that.
    found = [
        said
        for said in sentences(own_words(turn.assistant_message))
        if states_undone(_LATER.sub(" ", plain(said)) if asked else said)
    ]
    return [each for each in (*asked, *found) if not each.endswith("?")]


def in_short(turn: Turn, asked_chars: int, answer_chars: int) -> str:
    """Return the prompt and the beginning of the answer, without sentences about open tasks.

    Those are listed by `left_open`.
    """
    said = " ".join(s for s in prose_sentences(turn.assistant_message) if not states_undone(s))
    asked = one_line(turn.asked, asked_chars)
    return " — ".join(filter(None, [asked, clip_sentences(said, answer_chars)]))


Word = frozenset[str]
"""A word, as the index terms of its stems (in all `_LANGUAGES`) and parts."""


@lru_cache(maxsize=_MOST_WORDS)
def _forms(word: str) -> Word:
    """Return the index terms of a word; empty for stop words and fillers."""
    if word in _FILLER or is_stop_word(word, None):
        return frozenset()
    found = {term for language in _LANGUAGES for term in terms(word, language=language)}
    return frozenset(term for term in found if len(term) > _SHORT) or frozenset(found)


def _words(text: str) -> frozenset[Word]:
    """Return the words of a text, without stop words, fillers and phrases of `_UNDONE`."""
    flat = _UNDONE.sub(" ", plain(text))
    return frozenset(filter(None, map(_forms, _WORDS.findall(flat))))


def _told_terms(told: Turn | MemoryRecord) -> frozenset[str]:
    """Return the terms of a memory, or of a turn's messages, commands and edits."""
    if isinstance(told, MemoryRecord):
        return frozenset(chain(*_words(told.content)))
    said = told.user_message[:_READ_CHARS], told.assistant_message[:_READ_CHARS]
    return _terms_of(" ".join((*said, *map(subject_of, told.tool_calls))))


@lru_cache(maxsize=_MOST_TEXTS)
def _terms_of(text: str) -> frozenset[str]:
    words = set(_WORDS.findall(plain(text)))
    return frozenset(term for word in words for term in _forms(word))


_FILE_WORD = Regex(r"[^\W\d_]+|(?<![^\W\d_])\d[\d.:]*")
# A command that removes or moves files: "git rm -r docs", "mv a.py b.py".
_REMOVES = Regex(r"(?:git )?(?:rm|mv) (?:-\w+ )*(.+)")
_OVERWRITTEN = 1 / 3
"""The share of the words that a turn wrote into a file, removed since, from which it counts as
overwritten; a single word suffices if the turn's messages contain it."""


class _Written(msgspec.Struct, frozen=True):
    """The words that a turn added to a file and removed from it."""

    added: frozenset[str]
    removed: frozenset[str]
    is_whole: bool = False
    """Whether the whole file was written or removed, so that only `added` is left."""

    def taken(self, before: "_Written") -> frozenset[str]:
        """Return the words written `before` that this change removes."""
        return before.added - self.added if self.is_whole else before.added & self.removed


def _file_words(text: str) -> frozenset[str]:
    words = frozenset(_FILE_WORD.findall(plain(text)))
    return frozenset(word for word in words if not is_stop_word(word, None))


Edits = dict[str, list[tuple[str, str]]]
"""The (old, new) texts of edits in order, by the path that the calls name; an empty old text stands
for the whole file."""


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
    """The terms of all its words."""
    values: dict[str, set[str]]
    """Its numbers, by the terms of the word that they count."""
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
    """Return the statements of a memory, or of both sides of a turn, without questions."""
    if isinstance(told, MemoryRecord):
        return [told.content]
    texts = (
        *sentences(own_words(told.user_message)),
        *sentences(own_words(told.assistant_message)),
    )
    said = dict.fromkeys(t for t in texts if len(t) <= _LONGEST and not t.endswith("?"))
    return [*said][:_FIRST_STATED] + [*said][_FIRST_STATED:][-_LAST_STATED:]


def _messages_of(turn: Turn) -> str:
    return f"{turn.user_message[:_READ_CHARS]}\n{turn.assistant_message[:_READ_CHARS]}"


def _main_statement(turn: Turn, wrote: Collection[str]) -> str:
    """Return the statement of a turn that contains the most words of what it wrote."""
    texts = _stated(turn) or [turn.user_message[:_READ_CHARS]]
    return one_line(max(texts, key=lambda t: len(_file_words(t).intersection(wrote))), _QUOTED)


def _note(found: str, at: datetime) -> str:
    return f"As it was {_then(at)}; said later: “{found}”" if found else ""


def _then(at: datetime) -> str:
    return f"on {at.astimezone():%Y-%m-%d}" if at > _LONG_AGO else "then"


async def replaced_in(store: Store, session_ids: Iterable[str]) -> dict[str, Replaced]:
    """Return what has replaced something said in these sessions, by turn id. Raises StoreError."""
    query = MemoryQuery(everywhere=True, session_ids=tuple(session_ids), with_superseded=True)
    told = await store.memories(query) if query.session_ids else []
    # The same command failing again does not contradict what else was said in that turn.
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
            # A memory learned again from the same turn does not replace what that turn says.
            gone = {e.turn_id for e in old.evidence} - {e.turn_id for e in new.evidence}
            found |= dict.fromkeys(gone, Replaced(attributed(new)))
    return found


def _successor(memory: MemoryRecord, later: Mapping[str, MemoryRecord]) -> MemoryRecord | None:
    """Follow `superseded_by` to the newest memory, among those in `later` (by id); None if the
    first one is missing there."""
    seen, new = {memory.memory_id}, later.get(memory.superseded_by or "")
    while new and new.memory_id not in seen and (newer := later.get(new.superseded_by or "")):
        seen.add(new.memory_id)
        new = newer
    return new


async def turns_since(store: Store, project_id: str, oldest: datetime) -> list[Turn]:
    """Return the last turns of the user's newest sessions in a project with activity since then.

    Raises StoreError.
    """
    query = SessionQuery(project_ids=(project_id,), mine=True, limit=_SESSIONS_READ)
    sessions = [s for s in await store.sessions(query) if s.last_activity_at >= oldest]
    last = TurnQuery(limit=_TURNS, max_chars=_READ_CHARS)
    read = await asyncio.gather(*(store.turns(each.session_id, last) for each in sessions))
    return [turn for turns in read for turn in turns]


def _revalued(told: dict[str, set[str]], later: dict[str, set[str]]) -> bool:
    """Whether a word has different numbers in the two statements' values."""
    return any(told[term].isdisjoint(later[term]) for term in told.keys() & later.keys())


def _has_own_subject(one: _Statement, other: _Statement) -> bool:
    """Whether a sentence says the same as another, but for values, of something else: "Customer
    Meier pays 300 euros", beside "Customer Schulz pays 450 euros"."""
    there = frozenset(_SUBJECT_WORD.findall(plain(other.text)))
    own = set(_SUBJECT_WORD.findall(plain(one.text))) - there
    numbers = [each for each in own if each[0].isdigit()]
    # Parts of words don't count: "import" and "export" have one in common.
    whole = {word: {term for term in _forms(word) if "-" not in term} for word in own}
    words = [w for w in own.difference(numbers) if whole[w] and whole[w].isdisjoint(other.terms)]
    is_own = partial(is_of_subject, text=one.text, other=other.text)
    return bool(words or any(map(is_own, numbers))) and all(map(is_own, words))


class Alike(msgspec.Struct, frozen=True):
    """The embeddings of turns, to compare their meaning."""

    rows: dict[str, tuple[bytes, ...]] = {}
    """The vectors of each turn's passages, by turn id."""
    floor: float = 1.0
    """The cosine above which, for this embedder, a turn is relevant to a question."""

    def to(self, turn_id: str) -> dict[str, float]:
        """Return how much more similar each other turn is to this one than they are on average.

        The similarity is the cosine of the most similar pair of passages. In German, say, all texts
        are somewhat similar.
        """
        others = {name: held for name, held in self.rows.items() if name != turn_id}
        passages = {(name, i): row for name, held in others.items() for i, row in enumerate(held)}
        found: dict[str, float] = {}
        for (other, _), near in highest_cosines(self.rows.get(turn_id, ()), passages).items():
            found[other] = max(near, found.get(other, -1.0))
        # One turn more, which is similar to nothing: of few others, the mean tells little.
        usual = math.fsum(found.values()) / (len(found) + 1)
        return {other: near - usual for other, near in found.items()}


async def alike(store: Store, turns: Iterable[Turn], floor: float | None) -> Alike:
    """Load the vectors of these turns; none without a floor (no embedder). Raises StoreError."""
    # A running turn is not embedded yet.
    ids = list(dict.fromkeys(turn.turn_id for turn in turns if turn.status != "running"))
    if floor is None or len(ids) < 2:
        return Alike()
    found = await store.get(PutVectors, ids)
    return Alike({each.record_id: each.vectors for each in found}, floor)


def _times(turns: Iterable[Turn]) -> dict[str, datetime]:
    """Return when each turn ended, by id: before the session's next one, and not in the future,
    even if the clock was ahead."""
    horizon, found = utc_now() + AHEAD, dict[str, datetime]()
    in_order = sorted(turns, key=lambda turn: (turn.session_id, turn.turn_index, turn.timestamp))
    for _, session in groupby(in_order, key=lambda turn: turn.session_id):
        own = [*session]
        right = [turn.timestamp for turn in own if turn.timestamp <= horizon]
        latest = max(right, default=_LONG_AGO)
        for turn in reversed(own):
            latest = found[turn.turn_id] = min(turn.timestamp, latest)
            latest -= _TICK
    return found


class Aftermath:
    """Later turns and memories, with which earlier statements are compared.

    Only completed turns count. `memories` were learned from turns, and say the same in other words;
    `meant` holds the turns' embeddings.
    """

    def __init__(
        self,
        turns: Iterable[Turn],
        memories: Collection[MemoryRecord] = (),
        meant: Alike | None = None,
    ) -> None:
        self._meant = meant or Alike()
        completed = [turn for turn in turns if turn.status == "completed"]
        self._times = _times(completed)
        self._turns = sorted(completed, key=self._said_at)
        self._taken_back = taken_back(self._turns)
        self._edits = {turn.turn_id: _edits(turn) for turn in self._turns}
        told: list[Turn | MemoryRecord] = [*self._turns, *memories]
        self._newest_first = sorted(told, key=self._said_at, reverse=True)
        self._terms = {_id(each): _told_terms(each) for each in told}
        self._counts = Counter(term for turn in self._turns for term in self._terms[turn.turn_id])
        self._weights: dict[Word, float] = {}
        self._stated: dict[str, list[_Statement]] = {}

    def _said_at(self, told: Turn | MemoryRecord) -> datetime:
        """Return when a turn ended, or a memory was last stated, by its newest evidence."""
        if isinstance(told, Turn):
            return self._times.get(told.turn_id, told.timestamp)
        return max(
            (self._times.get(e.turn_id, e.at) for e in told.evidence), default=told.created_at
        )

    def of_turn(self, turn: Turn) -> str:
        """Return a note with the turn's date and a later statement that revises it, or is about the
        same matter; empty if there is none."""
        texts, at = _stated(turn), self._said_at(turn)
        if self.is_taken_back(turn):
            return f"Said {_then(at)}; the user has undone its edits since"
        since = self._overwriting(turn, _messages_of(turn), _OVERWRITTEN) or self._choice_over(turn)
        return _note(since or self.revised(texts, at) or self._on_the_same(turn), at)

    def _on_the_same(self, turn: Turn) -> str:
        """Return a short form of the latest turn of another session that is similar in meaning and
        words; empty if there is none."""
        near = self._meant.to(turn.turn_id)
        words = frozenset(chain(*(each.words for each in self._statements(turn))))
        for later in reversed(self._turns):
            if self._said_at(later) <= self._said_at(turn):
                break
            if later.session_id == turn.session_id or later.turn_id not in near:
                continue
            held = frozenset(chain(*(chain(*each.words) for each in self._statements(later))))
            both = near[later.turn_id] + WORDS_AS_COSINE * self._share(words, held)
            if both > _ON_THE_SAME * self._meant.floor:
                return in_short(later, _QUOTED, _QUOTED)
        return ""

    def is_taken_back(self, turn: Turn) -> bool:
        """Whether the user has undone the turn's edits, or some of them."""
        return turn.turn_id in self._taken_back

    def of_summary(self, summary: Summary) -> str:
        """Return the note of `of_turn` for the first revised turn that a summary covers."""
        told = (turn for turn in self._turns if turn.turn_id in summary.covers)
        return next(filter(None, map(self.of_turn, told)), "")

    def of_memory(self, memory: MemoryRecord) -> str:
        """Return such a note for a memory; empty for failures and rules, which stay valid."""
        if memory.kind in ("failure", "rule"):
            return ""
        at, told_in = self._said_at(memory), {each.turn_id for each in memory.evidence}
        if over := self.overwritten(memory):
            return _note(over, at)
        # One sentence may name several deadlines.
        parts = CLAUSE.split(memory.content) if memory.kind == "deadline" else []
        return _note(self.revised([memory.content, *parts], at, told_in), at)

    def overwritten(self, memory: MemoryRecord) -> str:
        """Return the statement of the last turn that overwrote what the memory describes in a file;
        empty if none did."""
        told_in = {each.turn_id for each in memory.evidence}
        tellers = [turn for turn in self._turns if turn.turn_id in told_in]
        return self._overwriting(tellers[-1], memory.content, 1) if tellers else ""

    def _overwriting(self, turn: Turn, said: str, least: float) -> str:
        """Return the statement of the last turn that overwrote this one's edits; empty if none did.

        An edit counts as overwritten if words that it wrote and that `said` contains are removed,
        or at least the share `least` of its words. Overwrites of overwrites are followed.
        """
        wrote = {path: _written(tuple(edits)) for path, edits in _edits(turn).items()}
        told = _file_words(said) if wrote else frozenset[str]()
        last: tuple[Turn, set[str]] | None = None
        for later in self._turns:
            if self._said_at(later) <= self._said_at(turn) or later.turn_id == turn.turn_id:
                continue
            edits = self._edits[later.turn_id]
            changes = {p: _written(tuple(edits[p])) for p in wrote.keys() & edits.keys()}
            taken = {path: change.taken(wrote[path]) for path, change in changes.items()}
            if any(
                words & told or len(words) >= max(1, least * len(wrote[path].added))
                for path, words in taken.items()
            ):
                wrote = {path: changes[path] for path, words in taken.items() if words}
                added = {word for change in wrote.values() for word in change.added}
                told, last = _file_words(_messages_of(later)), (later, added)
        return _main_statement(*last) if last else ""

    def _choice_over(self, turn: Turn) -> str:
        """Return the statement that overwrote the next turn's edits, if this turn only gave advice
        and the next prompt took it up; else an empty string."""
        after = (
            each
            for each in self._turns
            if each.session_id == turn.session_id and each.turn_index == turn.turn_index + 1
        )
        chosen = next(after, None)
        if chosen is None or turn.tool_calls:
            return ""
        took = _shared(_words(chosen.user_message[:_READ_CHARS]), _told_terms(turn))
        return self._overwriting(chosen, _messages_of(chosen), _OVERWRITTEN) if took else ""

    def steps_done(self, what: str, at: datetime) -> list[str]:
        """Return, for each clause of an open task, a short form of the first later turn about it,
        or an empty string; a task without telling words is done by any later turn."""
        steps = [words for words in map(_words, CLAUSE.split(what)) if words]
        return [self._first_turn_about(words, at) for words in steps or [frozenset[Word]()]]

    def _first_turn_about(self, words: frozenset[Word], at: datetime) -> str:
        """Return a short form of the first later turn about these words; empty if there is none.

        A single word counts only in a turn that ran commands or edited files.
        """
        for turn in self._turns:
            if self._said_at(turn) <= at:
                continue
            held = self._terms[turn.turn_id]
            did = any(map(subject_of, turn.tool_calls))
            least = _DONE if did else _SAID_DONE
            if len(_shared(words, held)) >= least * len(words) and (did or len(words) != 1):
                return in_short(turn, _QUOTED, _QUOTED)
        return ""

    def revised(self, texts: Iterable[str], at: datetime, told_in: Collection[str] = ()) -> str:
        """Return the newest later statement that revises one of the texts; empty if none does.

        Statements of the turns with the ids `told_in` don't count: the texts come from those.
        """
        told = [_statement(text) for text in texts]
        for later in self._newest_first:
            if self._said_at(later) <= at:
                break
            # A sentence can't share more words than the whole turn does.
            held = self._terms[_id(later)]
            left = [each for each in told if self._share(each.words, held) >= _REVALUED]
            if not left or _id(later) in told_in:
                continue
            for statement in self._statements(later):
                if any(self._takes_back(statement, each) for each in left):
                    return one_line(statement.text, _QUOTED)
        return ""

    def _statements(self, later: Turn | MemoryRecord) -> list[_Statement]:
        """Return the statements of a turn or memory, which are parsed once."""
        if _id(later) not in self._stated:
            self._stated[_id(later)] = list(map(_statement, _stated(later)))
        return self._stated[_id(later)]

    def _takes_back(self, later: _Statement, told: _Statement) -> bool:
        if told.terms.isdisjoint(later.terms):
            return False
        shared = _shared(told.words, later.terms)
        has_other_day = told.dates and later.dates and told.dates.isdisjoint(later.dates)
        revalued = has_other_day or (len(shared) > 1 and _revalued(told.values, later.values))
        if later.text == told.text or not (later.is_change or revalued):
            return False
        if not later.is_change and _has_own_subject(told, later) and _has_own_subject(later, told):
            return False
        least = _REVALUED if revalued else _REVISED
        # Sentences about different matters often share one word.
        telling = revalued or len(shared) > 1 or len(told.words) == 1
        return telling and self._weight(shared) >= least * (self._weight(told.words) or 1)

    def _share(self, words: Collection[Word], held: Collection[str]) -> float:
        """Return the share of the words, by weight, that are among the terms `held`."""
        return self._weight(_shared(words, held)) / (self._weight(words) or 1)

    def _weight(self, words: Iterable[Word]) -> float:
        """Return the sum of the words' inverse turn frequencies."""
        return sum(self._weights.get(word) or self._compute_weight(word) for word in words)

    def _compute_weight(self, word: Word) -> float:
        seen = max((self._counts[term] for term in word), default=0)
        found = self._weights[word] = math.log(1 + max(1, len(self._turns)) / max(1, seen))
        return found

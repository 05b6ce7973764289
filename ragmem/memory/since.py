"""What became since of what was said: done by now, or told otherwise.

Judged by words alone, with no model. In doubt what was said later is shown beside it: who reads
both can tell.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime
from functools import lru_cache
from itertools import chain

import msgspec

from ragmem.memory.facts.failures import subject_of
from ragmem.memory.facts.trust import particulars
from ragmem.memory.facts.words import own_words, plain, prose, sentences
from ragmem.records import MemoryRecord, SessionQuery, Turn, TurnQuery
from ragmem.store.base import Store
from ragmem.terms import is_stop_word, terms
from ragmem.text import Regex, one_line

DONE = 0.5
"""What is open counts as done when a later turn holds so much of its words."""
_REVISED, _REVISED_NEAR, _REPEATED = 0.34, 0.2, 0.6
"""So much of what a sentence tells stands in a later one that takes it back: with words for a
change, or without them where both name something that the other does not."""
_LONGEST = 400
"""Characters of a sentence that states something; a longer one is a text."""
_FIRST_STATED, _LAST_STATED = 12, 8
"""Sentences of a turn that are looked at: what it comes to stands at its beginning or its end."""
_MOST_STATED = 3
"""Sentences of a turn that is about one thing: what takes one back is about all."""
_QUOTED = 160
_SESSIONS_READ, _TURNS, _READ_CHARS = 8, 6, 20_000
"""The newest, of each the last turns, and their characters."""
_LANGUAGES = ("english", "german", "french")
_MOST_WORDS, _MOST_STATEMENTS, _SHORT = 20_000, 4_000, 2
_WORDS = Regex(r"\w[\w./-]*\w")
_CLAUSE = Regex(r"[;:,]\s+|\s+(?:and|und|et|then|dann|puis)\s+", re.IGNORECASE)

_UNDONE = Regex(
    r"\b(?:to-?do|fixme|still (?:to|need|needs|needed|missing|open|fails?|failing|broken|have to|"
    r"has to|left|undone|says?|only)|(?:is|are) (?:still )?missing|"
    r"not (?:yet|done|finished|implemented|covered|tested|checked)|"
    r"isn't (?:done|finished|implemented)|have(?:n't| not)|has(?:n't| not)|next steps?|"
    r"(?:not|n't|no)\b.{0,20}\byet|will need|needs? (?:to|a|an|more)|"
    r"(?:what(?:'s| is)|is|are) (?:still )?left|left to (?:do|be done)|left open|remain(?:s|ing)?|"
    r"follow-?ups?|open (?:questions?|points?|items?|ends?)|pending|unresolved|"
    r"should (?:also|still|then|next)|did(?:n't| not) (?:check|run|test|touch|get to)|"
    r"noch (?:nicht|offen|zu|fehlt|fehlen|aus)|(?:fehlt|fehlen) noch|als nachstes|"
    r"nachster schritt|steht noch aus|offene[rn]? (?:fragen?|punkte?)|bleibt (?:noch )?zu|"
    r"reste(?:nt)? (?:a|encore)|pas encore|a faire|prochaines? etapes?|il manque)\b"
    r"|\b(?:tomorrow|later|next (?:time|week|session)|morgen|spater|nachstes mal|nachste woche|"
    r"demain|plus tard|la prochaine fois|la semaine prochaine)\b"
)
_LATER = Regex(
    r"\b(?:tomorrow|later|next (?:time|week|session)|not now|morgen|spater|nachstes mal|"
    r"nachste woche|nicht jetzt|demain|plus tard|la prochaine fois|la semaine prochaine|"
    r"pas maintenant)\b"
)
"""In the person's own words only what is put off is open: all else was answered."""
_CHANGE = Regex(
    r"\b(?:instead|rather than|no longer|any ?more|now|these days|by now|back|switch(?:ed|ing)?|"
    r"moved?|replac\w+|remov\w+|delet\w+|dropp?(?:ed)?|scrap\w*|revert\w*|rewr\w+|redo(?:ne)?|"
    r"chang\w+|wrong|after all|actually|on second thoughts?|used to|left|gone|raised|lowered|"
    r"statt(?:dessen)?|anstelle|nicht mehr|kein\w* mehr|jetzt|nun|inzwischen|mittlerweile|doch|"
    r"lieber|zuruck|um(?:ge)?(?:stell|schr[ei]+b|bau)\w*|geandert|ersetzt|entfernt|geloscht|"
    r"gestrichen|abgeschaltet|falsch|erhoht|gesenkt|ab (?:sofort|\w{3,9})|seit|"
    r"plutot|au lieu|a la place|finalement|(?:ne |n')\w+ plus|desormais|a present|"
    r"maintenant|en fait|remplac\w+|supprim\w+|refai\w+|retir\w+|abandonn\w+|revien\w+|parti\w*|"
    r"faux)\b"
)
_PLANNED = Regex(
    r"\b(?:(?:have|has|need|plan|going|want) to|must|should|would|will|can be|planned|suggest|"
    r"plan|next|after (?:that|this)|muss|mussen|sollen|sollten|wurden?|schlage|geplant|wollen|"
    r"werden|kann|konnen|danach|anschliessend|folgt|il faut|faudra|devra|devons|propose|"
    r"prevu[es]*|on va|je vais|on peut|pourra|ensuite)\b|(?:'ll|'d) "
)
"""What is meant to be done, beside what is said to be undone."""
_FILLER = frozenset(
    word
    for words in (
        "let make use do get put take need want way thing two three",
        "machen tun nehmen brauchen faire mettre prendre voir",
    )
    for word in words.split()
)


def said_at(memory: MemoryRecord) -> datetime:
    """When it was said last."""
    return max((each.at for each in memory.evidence), default=memory.created_at)


def states_undone(sentence: str) -> bool:
    """Whether it says that something is still to be done."""
    return _UNDONE.search(plain(sentence)) is not None


def left_open(turn: Turn) -> list[str]:
    """Sentences of a turn that say that something is still to be done."""
    asked = [s for s in sentences(own_words(turn.user_message)) if _LATER.search(plain(s))]
    said = [s for s in sentences(prose(turn.assistant_message)) if states_undone(s)]
    return [each for each in (*asked, *said) if not each.endswith("?")]


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
    flat = _PLANNED.sub(" ", _UNDONE.sub(" ", plain(text)))
    return frozenset(filter(None, map(_forms, _WORDS.findall(flat))))


def _held(turn: Turn) -> frozenset[str]:
    """The terms of all that was said and done in a turn."""
    said = turn.user_message[:_READ_CHARS], turn.assistant_message[:_READ_CHARS]
    done = map(subject_of, turn.tool_calls)
    words = set(_WORDS.findall(plain(" ".join((*said, *done)))))
    return frozenset(term for word in words for term in _forms(word))


def _shared(words: Collection[Word], held: Collection[str]) -> list[Word]:
    return [word for word in words if not word.isdisjoint(held)]


class _Statement(msgspec.Struct, frozen=True):
    text: str
    words: frozenset[Word]
    terms: frozenset[str]
    """Of all its words."""
    particulars: frozenset[str]
    is_change: bool


@lru_cache(maxsize=_MOST_STATEMENTS)
def _statement(text: str) -> _Statement:
    changes, words = _CHANGE.search(plain(text)) is not None, _words(text)
    return _Statement(text, words, frozenset(chain(*words)), particulars(text), changes)


def _id(told: Turn | MemoryRecord) -> str:
    return told.turn_id if isinstance(told, Turn) else told.memory_id


def _stated(told: Turn | MemoryRecord) -> list[str]:
    """Sentences of the person and the agent; what is asked states nothing."""
    if isinstance(told, MemoryRecord):
        return [told.content]
    texts = (*sentences(own_words(told.user_message)), *sentences(prose(told.assistant_message)))
    said = dict.fromkeys(t for t in texts if len(t) <= _LONGEST and not t.endswith("?"))
    return [*said][:_FIRST_STATED] + [*said][_FIRST_STATED:][-_LAST_STATED:]


def _beside(found: str, at: datetime) -> str:
    return f"As it was on {at.astimezone():%Y-%m-%d}; said since: “{found}”" if found else ""


async def turns_since(store: Store, project_id: str, oldest: datetime) -> list[Turn]:
    """The last turns of the person's newest sessions of a project that went on after a moment.

    StoreError.
    """
    query = SessionQuery(project_ids=(project_id,), mine=True, limit=_SESSIONS_READ)
    sessions = [s for s in await store.sessions(query) if s.last_activity_at > oldest]
    last = TurnQuery(limit=_TURNS, max_chars=_READ_CHARS)
    read = await asyncio.gather(*(store.turns(each.session_id, last) for each in sessions))
    return [turn for turns in read for turn in turns]


class Aftermath:
    """Turns in the order of time, against which what was said before each is held.

    `memories` are what was learned from turns, in other words. What is `near` the question at hand,
    by its turns' ids, is more likely about the same.
    """

    def __init__(
        self,
        turns: Iterable[Turn],
        memories: Collection[MemoryRecord] = (),
        near: Collection[str] = (),
    ) -> None:
        self._turns = sorted(
            (turn for turn in turns if turn.status == "completed"), key=lambda turn: turn.timestamp
        )
        self._terms = [_held(turn) for turn in self._turns]
        self._counts = Counter(term for each in self._terms for term in each)
        self._weights: dict[Word, float] = {}
        self._near = frozenset(near).union(memory.memory_id for memory in memories)
        self._told: list[tuple[datetime, Turn | MemoryRecord, frozenset[str]]] = [
            *zip((turn.timestamp for turn in self._turns), self._turns, self._terms, strict=True),
            *((said_at(m), m, frozenset(chain(*_words(m.content)))) for m in memories),
        ]
        self._told.sort(key=lambda each: each[0], reverse=True)

    def of_turn(self, turn: Turn) -> str:
        """What was said later that does or takes back what it says, with the day that it was of;
        empty where nothing was."""
        texts, at = _stated(turn), turn.timestamp
        planned = [*left_open(turn), *(text for text in texts if _PLANNED.search(plain(text)))]
        done = (step for each in planned for step in self.steps_done(each, at))
        return _beside(next(filter(None, done), "") or self.revised(texts, at), at)

    def of_memory(self, memory: MemoryRecord) -> str:
        """The same of a memory; failures and rules hold until they are taken away."""
        if memory.kind in ("failure", "rule"):
            return ""
        at, told_in = said_at(memory), {each.turn_id for each in memory.evidence}
        texts = [_stated(turn) for turn in self._turns if turn.turn_id in told_in]
        said = [text for each in texts if len(each) <= _MOST_STATED for text in each]
        return _beside(self.revised([memory.content, *said], at, told_in), at)

    def steps_done(self, what: str, at: datetime) -> list[str]:
        """For each part of what is open the first words of the later turn that was about it, or
        nothing; what says nothing is done by whatever came later."""
        steps = [words for words in map(_words, _CLAUSE.split(what)) if words]
        return [self._first_about(words, at) for words in steps or [frozenset[Word]()]]

    def _first_about(self, words: frozenset[Word], at: datetime) -> str:
        """Of a word alone only a turn that did something."""
        for turn, held in zip(self._turns, self._terms, strict=True):
            if turn.timestamp <= at or len(_shared(words, held)) < DONE * len(words):
                continue
            if len(words) != 1 or any(map(subject_of, turn.tool_calls)):
                return one_line(turn.user_message, _QUOTED)
        return ""

    def revised(self, texts: Iterable[str], at: datetime, told_in: Collection[str] = ()) -> str:
        """The newest later statement that takes one of the texts back; empty where none does.

        Those of the turns that they were `told_in` say it themselves.
        """
        told = [_statement(text) for text in texts]
        for said, later, held in self._told:
            if said <= at:
                break
            least = _REVISED_NEAR if _id(later) in self._near else _REVISED
            # No sentence of it holds more than the whole of it.
            left = [each for each in told if self._share(each.words, held) >= _REVISED_NEAR]
            if not left or _id(later) in told_in:
                continue
            for statement in map(_statement, _stated(later)):
                if any(self._takes_back(statement, each, least) for each in left):
                    return one_line(statement.text, _QUOTED)
        return ""

    def _takes_back(self, later: _Statement, told: _Statement, least: float) -> bool:
        if told.terms.isdisjoint(later.terms):
            return False
        if later.is_change:
            least = _REVISED_NEAR if told.particulars & later.particulars else least
            return later.text != told.text and self._share(told.words, later.terms) >= least
        own, other = told.particulars - later.particulars, later.particulars - told.particulars
        if not own or not other:
            return False
        before = [word for word in told.words if word.isdisjoint(own)]
        since = [word for word in later.words if word.isdisjoint(other)]
        shares = (self._share(before, later.terms), self._share(since, told.terms))
        return min(shares) >= _REPEATED

    def _share(self, words: Collection[Word], held: Collection[str]) -> float:
        """Of what the words tell so much is held."""
        return self._weight(_shared(words, held)) / (self._weight(words) or 1)

    def _weight(self, words: Iterable[Word]) -> float:
        """How much they tell: what is said in most turns says little."""
        return sum(self._weights.get(word) or self._weighed(word) for word in words)

    def _weighed(self, word: Word) -> float:
        seen = max((self._counts[term] for term in word), default=0)
        found = self._weights[word] = math.log(1 + len(self._turns) / max(1, seen))
        return found

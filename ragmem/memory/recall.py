"""Search of the memory: from a question to the relevant turns and summaries."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Literal

import msgspec

from ragmem.config import ScopeName
from ragmem.embedder import Embedder, embedding_hash
from ragmem.errors import EmbedderError, RagmemError, StoreError, StoreUnavailable
from ragmem.ids import short_id
from ragmem.libraries import load_numpy
from ragmem.memory.facts.words import asks_of_before, is_greeting, leaves_subject
from ragmem.records import (
    DEFAULT_TITLE,
    EVERYTHING,
    MEMORY_LEVEL,
    TURN_LEVEL,
    Candidate,
    CodeStore,
    EmbedderMark,
    Interval,
    MemoryRecord,
    PutVectors,
    Scope,
    SearchQuery,
    Session,
    SessionQuery,
    Summary,
    Turn,
    WeightedTerm,
    utc_now,
)
from ragmem.service import SEARCH_S, Client
from ragmem.similarity import WORDS_AS_COSINE
from ragmem.store import Store
from ragmem.text import ago, one_line, relevance
from ragmem.usage import Metrics

_log = logging.getLogger("ragmem")
FIND = "find"
"""Name of the service's request to search: it takes a `Question` and returns a `Found`."""
_QUESTION_CHARS = 4_000
"""Longer questions are cut to their beginning and end; what is between was probably pasted."""
_MOST_INTERVALS = 4
_SPARE = 8
"""Records loaded beyond those asked for, so that near-duplicates can be demoted."""
_TURNS_OF_TIME = 400
"""Limit of a search by time alone. The store returns half, the newest: enough to include every
session of a day."""
_SPARE_OF_TIME = 24
_WITH_WORDS = 0.8
"""Share of the floor that a turn with words of the question must reach, by `_nearness`.

Fitted on tests/recall/data, the chats and the stories of tests/recall/days/open, with the questions
of other sets as questions without an answer: the turns found for those fall from 1.2 to 0.6, and
3 % of the evidence among the first three is lost. The whole floor for questions in German and
French, for which the embedder rates all texts as somewhat similar, would remove a fifth of the
irrelevant turns there, and 4 % of the needed ones.
"""
_OF_BEST = 0.5
"""Share of the best nearness that the others must reach. Chosen on the stories of
tests/recall/days/open, where irrelevant turns fall by a quarter and no needed one is lost; on the
fitted sets 3 of 326 turns with evidence are lost. The .6 of memories loses 8 of those, most of them
in French, Italian and Portuguese.
"""
_OF_BEFORE = 3
"""Turns found at least by a question about earlier work, however low their similarity."""
_ENOUGH_WORDS = 0.12
"""Share of the question's words above which a record without a vector yet is relevant."""
_OTHERS = 8
"""Records with none of the question's words, assumed beside the few loaded ones for `rarity`."""
BEHIND = 1.0
"""Penalty on the score of a turn that repeats a better one, or can hardly be an answer."""
_ALIKE = 0.8
"""Jaccard similarity of the terms of two turns from which they say the same."""
_SUBSTANTIAL_TERMS = 15
"""Distinct terms below which a turn is demoted in the answer to what was said at some time."""


class TimeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A half-open interval that a question names."""

    start_at: datetime
    end_at: datetime
    confidence: float
    """0 to 1: how likely the words mean this interval, as the time of something that was said."""
    text: str
    """The words, casefolded and without accents."""
    relative: bool = False
    """The words contain no date by themselves, so that they are not searched for in texts."""


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its score, which is comparable within one search only."""

    candidate: Candidate
    score: float
    parts: tuple[tuple[str, float], ...]
    """The parts of the score by name; they sum to it."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A search of the memory: the text, the scope and the limits."""

    text: str
    scope: Scope = EVERYTHING
    session_id: str = ""
    """The session that the question is asked in; its own turns are preferred between equals."""
    semantic: bool = True
    """False: search by words alone."""
    max_results: int = 5
    levels: tuple[int, ...] = ()
    """0 for turns, 1 and up for summaries; empty for all."""
    min_similarity: float | None = None
    """The cosine that a hit must exceed. With words of the question it may be lower, the more so
    the rarer they are; without a vector yet, it must have more than a few of the words."""
    patience_s: float | None = None
    """Seconds to wait for the embedder before searching by words alone."""
    now: str = ""
    """The time in ISO form, with the offset of the user's time zone: "yesterday" is theirs, even if
    a process with another zone answers. `Recall.find` sets it."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search, best first, before any texts are loaded."""

    question: Question
    ranked: tuple[Ranked, ...] = ()
    spans: tuple[TimeSpan, ...] = ()
    by_time: bool = False
    """Whether the question names a time and nothing else, and these are the turns of that time."""
    nearest: float | None = None
    """The highest cosine among turns and summaries in scope that have a vector; None if none has
    one, or the question has no terms."""


class Replaced(msgspec.Struct, frozen=True):
    """A statement of a turn that no longer holds."""

    by: str
    """The statement that replaced it, as it is today."""


BY_WORDS, BY_MEANING, _BY_TIME, _BY_SESSION = "its words", "its meaning", "its time", "its session"
"""Reasons in `Hit.why`; the last is the only one if others of its session were found."""
_QUOTED_CHARS = 500
_FAR = 0.5
"""Share of the floor below which a hit is unrelated to the question."""


def comes_near(similarity: float | None, floor: float | None) -> bool:
    """Whether a similarity, even below the floor, is high enough to be related to the question."""
    return floor is None or (similarity or 0) > _FAR * floor


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A turn or summary that is relevant to a question, with its source."""

    type: Literal["turn", "summary"]
    turn: Turn | None = None
    summary: Summary | None = None
    score: float
    """Fused rank score, which hits are ordered by; comparable within one search only."""
    similarity: float | None = None
    """Raw cosine, -1 to 1; None for a record without a vector, or a search by words alone."""
    session_id: str
    session_title: str = ""
    who: str = ""
    """Name of the session's owner; empty for the user's own sessions."""
    at: datetime
    why: tuple[str, ...] = ()
    """What it was found by, for display."""
    since: str = ""
    """What replaced a decision in it, for display."""
    changed: tuple[str, ...] = ()
    """Files that have changed since the turn last touched them, or the summary was made."""
    outdated: dict[str, str] = {}
    """Files that have changed since a call showed them, in the turn or later, by the call's id."""

    @property
    def record_id(self) -> str:
        """Return the id of the turn or summary."""
        if self.turn:
            return self.turn.turn_id
        return self.summary.summary_id if self.summary else ""

    @property
    def level(self) -> int:
        """Return the summary's level; 0 for a turn."""
        return self.summary.level if self.summary else 0

    @property
    def relevance(self) -> str:
        """The similarity, for display."""
        return relevance(self.similarity)

    def facts(self, now: datetime) -> list[str]:
        """Return its kind, its session, its age and why it was found, for display.

        The similarity is left out: it is only one part of the score that hits are ordered by.
        """
        found = f"found by {', '.join(self.why)}" if self.why else ""
        what = (self._what, self.where(title_chars=40), ago(self.at, now), found)
        return [each for each in what if each]

    def where(self, *, title_chars: int = 60) -> str:
        """Return the session's id and title, and its owner if it is another user's."""
        title = one_line(self.session_title, title_chars)
        named = f" “{title}”" if title else ""
        return f"session {short_id(self.session_id)}{named}{f' of {self.who}' * bool(self.who)}"

    @property
    def _what(self) -> str:
        if self.summary is None:
            return f"Turn {self.turn.turn_index}" if self.turn else "Turn"
        of = "a turn" if self.summary.turn_count == 1 else f"{self.summary.turn_count} turns"
        return f"Summary of {of}"

    def is_close(self, floor: float | None) -> bool:
        """Whether it has a word of the question, its time, or a similarity above `floor`."""
        alike = self.similarity is not None and floor is not None and self.similarity > floor
        return alike or BY_WORDS in self.why or self.why == (_BY_TIME,)

    def is_further(self, floor: float | None) -> bool:
        """Whether it is related though not close, and not by its session alone."""
        return comes_near(self.similarity, floor) and self.why != (_BY_SESSION,)

    def repeats(self, shown: Collection[str]) -> bool:
        """Whether it is a summary, and all of the turns it covers are among `shown`."""
        return self.summary is not None and self.summary.repeats(shown)

    def judged(self, replaced: Mapping[str, Replaced]) -> "Hit":
        """Return the hit with what replaced it, or a turn that it covers, given by turn id."""
        ids = (self.record_id, *(self.summary.covers if self.summary else ()))
        since = next((f"Since replaced by: {replaced[i].by}" for i in ids if i in replaced), "")
        return msgspec.structs.replace(self, since=since)

    def quotes(self) -> list[str]:
        """Return excerpts for display: what it says, and what replaced that, each as one line."""
        said = [self.summary.text] if self.summary else []
        if self.turn:
            said = [f"> {self.turn.prompt}", self.turn.assistant_message or self.turn.said]
        said.append(self.since)
        return [one_line(each, _QUOTED_CHARS) for each in said if each.strip()]


NOBODY: Mapping[str, str] = MappingProxyType({})
"""The result of `others_of` for a store with a single user."""


async def others_of(store: CodeStore) -> dict[str, str]:
    """Return the display names of the other users of a shared store, by their ids."""
    return {each.owner_id: each.called for each in await store.others()}


async def sessions_by_id(store: CodeStore, session_ids: Iterable[str]) -> dict[str, Session]:
    """Return sessions by id, without those that no longer exist."""
    return {each.session_id: each for each in await store.get(Session, list(session_ids))}


def scope_of(session: Session, name: ScopeName) -> Scope:
    """Return the scope that a session's questions are searched in."""
    match name:
        case "session":
            return Scope(session_ids=(session.session_id,))
        case "project":
            return Scope(session_ids=(session.session_id,), project_ids=(session.project_id,))
        case "all":
            return EVERYTHING


class ComparableVectors:
    """Embeds texts for comparison with a store's vectors; without an embedder, returns none."""

    def __init__(self, embedder: Embedder | None, metrics: Metrics) -> None:
        self._embedder = embedder
        self._metrics = metrics

    @property
    def model_id(self) -> str:
        """Return the embedder's id; empty without one."""
        return self._embedder.info.model_id if self._embedder else ""

    async def is_for(self, store: Store, *, mark: bool = False) -> bool:
        """Whether the store's vectors are this embedder's.

        With `mark`, a store without an embedder, or with a predecessor of this one, gets this one;
        a predecessor's vectors are dropped, and all texts wait to be embedded. Raises StoreError.
        """
        if self._embedder is None:
            return False
        info, known = self._embedder.info, await store.embedder()
        if not mark or (known is not None and known.model_id not in info.replaces):
            return known is not None and known.model_id == info.model_id
        if info.dimension:
            await store.use_embedder(EmbedderMark(info.model_id, info.dimension))
        return True

    async def rows(
        self, store: Store, texts: Sequence[str], *, query: bool = False, patience_s: float | None
    ) -> list[bytes]:
        """Return a float32 vector per text; none on an error, or for another embedder's store."""
        embedder = self._embedder
        if embedder is None or not any(text.strip() for text in texts):
            return []
        try:
            if not await self.is_for(store, mark=not query):
                return []
            async with asyncio.timeout(patience_s):
                found = await embedder.embed(list(texts), "query" if query else "passage")
        except StoreUnavailable:
            return []
        except Exception as error:
            # Whatever it is: words are still compared, and the worker embeds a memory later.
            known = isinstance(error, RagmemError | TimeoutError)
            what = "The question" if query else "A memory"
            _log.warning("%s could not be embedded: %s", what, error, exc_info=not known)
            self._metrics.count("embedder.failures")
            return []
        return [row.astype("<f4").tobytes() for row in found]

    def writes(self, memories: Sequence[MemoryRecord], rows: Sequence[bytes]) -> list[PutVectors]:
        """Return the writes of memories' vectors, without those that have none."""
        return [
            PutVectors(
                record_id=memory.memory_id,
                level=MEMORY_LEVEL,
                embedder=self.model_id,
                text_hash=embedding_hash(self.model_id, "passage", memory.content),
                vectors=(row,),
            )
            for memory, row in zip(memories, rows, strict=False)
            if row
        ]


class Recall:
    """Asks the store for candidates, ranks them, and loads the best.

    Without an embedder, or when it fails, it searches by words alone.
    """

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        embedder: Embedder | None,
        *,
        service: Client | None = None,
        metrics: Metrics | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`service`, if it answers, does everything but loading the texts."""
        self._open_store = open_store
        self._embedder = embedder
        self._service = service
        self._metrics = metrics or Metrics()
        self._vectors = ComparableVectors(embedder, self._metrics)
        self._clock = clock

    async def prepare(self) -> None:
        """Load libraries and the model ahead of the first search, unless the store is empty."""
        if self._service and self._service.may_answer:
            return
        with suppress(StoreError, EmbedderError):
            store = await self._open_store()
            if not await store.sessions(SessionQuery(limit=1)):
                return
            await asyncio.to_thread(import_all)
            if self._embedder is not None and await self._vectors.is_for(store):
                await self._embedder.prepare()

    async def search(self, question: Question) -> list[Hit]:
        """Return the best hits, best first. Raises StoreError."""
        return await self.hits(await self.find(question))

    async def find(self, question: Question) -> Found:
        """Find and rank the candidates for a question. Raises StoreError."""
        if question.max_results < 1 or not question.text.strip():
            return Found(question=question)
        now = question.now or self._clock().astimezone().isoformat()
        question = msgspec.structs.replace(question, now=now)
        found = None
        if self._service:
            with self._metrics.time("recall.search"):
                found = await self._service.ask(FIND, question, Found, within_s=SEARCH_S)
        found = found or await self._searched(question)
        self._metrics.count("recall.searches")
        self._metrics.count("recall.found", int(self._is_success(found)))
        return found

    def _is_success(self, found: Found) -> bool:
        """Whether something has the question's time, one of its words, or a similarity above the
        floor; the embedder's own floor if the question sets none."""
        floor = found.question.min_similarity
        if floor is None and self._embedder is not None:
            floor = self._embedder.info.thresholds.history
        return found.by_time or any(_is_above(each.candidate, floor) for each in found.ranked)

    async def _searched(self, question: Question) -> Found:
        from ragmem.memory.dates import names_only_time, time_spans, without_time_words
        from ragmem.memory.ranking import of_time
        from ragmem.terms import query_terms

        store = await self._open_store()
        now = datetime.fromisoformat(question.now)
        text = _shortened(question.text)
        spans = time_spans(text, now)
        surest = sorted(spans, key=lambda span: -span.confidence)[:_MOST_INTERVALS]
        timely = SearchQuery(
            scope=question.scope,
            intervals=tuple(Interval(start_at=s.start_at, end_at=s.end_at) for s in surest),
            levels=question.levels,
        )
        if names_only_time(text, spans):
            all_of_it = msgspec.structs.replace(timely, limit=_TURNS_OF_TIME)
            with self._metrics.time("recall.search"):
                said = of_time(await store.search(all_of_it), spans)
            if said:
                return Found(question=question, ranked=said, spans=spans, by_time=True)
        plain = without_time_words(text, spans)
        vector = b""
        if question.semantic and self._vectors.model_id and plain.strip():
            with self._metrics.time("recall.embed"):
                rows = await self._vectors.rows(
                    store, [plain], query=True, patience_s=question.patience_s
                )
            vector = rows[0] if rows else b""
        # Stop words find a little more without a vector; with a floor they don't count as matches.
        with_stop_words = not vector and question.min_similarity is None
        query = msgspec.structs.replace(
            timely,
            terms=tuple(
                WeightedTerm(term.term, term.weight)
                for term in query_terms(plain)
                if with_stop_words or term.kind != "stop"
            ),
            vector=vector,
            embedder=self._vectors.model_id if vector else "",
        )
        with self._metrics.time("recall.search"):
            candidates = await store.search(query)
            ranked = _ranked(candidates, question, now, spans)
        floor = None if asks_of_before(text) else question.min_similarity
        near = [one.similarity for one in candidates if one.similarity is not None]
        return Found(
            question=question,
            ranked=tuple(one for one in ranked if _is_above(one.candidate, floor)),
            spans=spans,
            nearest=max(near) if near and query.terms else None,
        )

    async def hits(self, found: Found, *, hidden: Collection[str] = ()) -> list[Hit]:
        """Load the best records with their texts, except those whose ids are `hidden`."""
        ranked = [one for one in found.ranked if one.candidate.record_id not in hidden]
        if not ranked:
            return []
        store = await self._open_store()
        with self._metrics.time("recall.load"):
            loaded = await self._loaded(store, ranked, found)
            named = {one.candidate.session_id for one, _ in loaded}
            sessions, people = await asyncio.gather(sessions_by_id(store, named), others_of(store))
        return [
            _hit(one, record, found.spans, sessions.get(one.candidate.session_id), people)
            for one, record in loaded
        ]

    async def _loaded(
        self, store: Store, ranked: Sequence[Ranked], found: Found
    ) -> list[tuple[Ranked, Turn | Summary]]:
        """Load the best records; near-duplicates of better ones are demoted."""
        from ragmem.memory.last_time import is_small_talk
        from ragmem.terms import summary_terms, turn_terms

        limit = found.question.max_results
        best = ranked[: limit + (_SPARE_OF_TIME if found.by_time else _SPARE)]
        candidates = [one.candidate for one in best]
        turns, above = await asyncio.gather(
            store.get(Turn, [c.record_id for c in candidates if c.level == TURN_LEVEL]),
            store.get(Summary, [c.record_id for c in candidates if c.level != TURN_LEVEL]),
        )
        if found.question.min_similarity is not None:
            turns = [turn for turn in turns if not is_small_talk(turn)]
            above = [each for each in above if not is_greeting(each.text)]
        records: dict[str, Turn | Summary] = {turn.turn_id: turn for turn in turns}
        records |= {summary.summary_id: summary for summary in above}
        words = {turn.turn_id: frozenset(turn_terms(turn)) for turn in turns}
        summary_words = {each.summary_id: frozenset(summary_terms(each)) for each in above}
        best = _relevant(best, words | summary_words, found)
        behind = {turn.turn_id for turn in turns if only_asks(turn)}
        if found.by_time:
            # All turns of that time count the same, except greetings and the like.
            behind |= {turn for turn, own in words.items() if len(own) < _SUBSTANTIAL_TERMS}
        best = demoted(best, words, behind=behind) if len(best) > 1 else best
        # Records may have been deleted since they were found.
        known = [(one, records.get(one.candidate.record_id)) for one in best]
        return [(one, record) for one, record in known if record is not None][:limit]


def by_score(one: Ranked) -> tuple[float, float, str]:
    """Sort key: best score first, then newest."""
    return (-one.score, -one.candidate.at.timestamp(), one.candidate.record_id)


def demoted(
    ranked: Sequence[Ranked],
    texts: Mapping[str, Collection[str]],
    *,
    behind: Collection[str] = (),
    penalty: float = BEHIND,
) -> list[Ranked]:
    """Demote near-duplicates of better ones, and the records whose ids are in `behind`.

    `texts` are the terms of the first few by turn id; `penalty` is subtracted from the scores.
    """
    kept: list[frozenset[str]] = []
    out = []
    for one in ranked:
        words = frozenset(texts.get(one.candidate.record_id, ()))
        is_behind = one.candidate.record_id in behind
        if is_behind or (words and any(_says_the_same(words, other) for other in kept)):
            part = ("behind" if is_behind else "duplicate", -penalty)
            one = msgspec.structs.replace(one, score=one.score - penalty, parts=(*one.parts, part))
        elif words:
            kept.append(words)
        out.append(one)
    return sorted(out, key=by_score)


def _says_the_same(one: frozenset[str], other: frozenset[str]) -> bool:
    if min(len(one), len(other)) < _ALIKE * max(len(one), len(other)):
        # Sets of such different sizes can't reach it.
        return False
    common = len(one & other)
    return common >= _ALIKE * (len(one) + len(other) - common)


def _is_above(one: Candidate, floor: float | None) -> bool:
    return floor is None or one.text > 0 or (one.similarity or -1.0) > floor


def only_asks(turn: Turn) -> bool:
    """Whether a turn is a question without an answer or calls, which rarely answers another."""
    came = turn.assistant_message.strip() or turn.tool_calls
    return turn.user_message.rstrip().endswith(("?", "？")) and not came


def _relevant(
    ranked: Sequence[Ranked], words: Mapping[str, Collection[str]], found: Found
) -> list[Ranked]:
    """Return the candidates above the question's floor, by meaning and the words they share."""
    floor = found.question.min_similarity
    if floor is None or found.by_time:
        return list(ranked)
    text = _shortened(found.question.text)
    asked = text
    if found.spans:
        from ragmem.memory.dates import without_time_words

        asked = without_time_words(text, found.spans)
    bar = floor if leaves_subject(text) else floor * _WITH_WORDS
    shares = _word_shares(asked, [words.get(one.candidate.record_id, ()) for one in ranked])
    nears = [_nearness(one.candidate, share) for one, share in zip(ranked, shares, strict=True)]
    least = _OF_BEST * max((near for near in nears if near is not None), default=0.0)
    near_enough = [
        one
        for one, near, share in zip(ranked, nears, shares, strict=True)
        if _is_relevant(one.candidate, share, floor, bar) and (near is None or near >= least)
    ]
    if len(near_enough) >= _OF_BEFORE or not asks_of_before(text):
        return near_enough
    turns = (one for one in ranked if one.candidate.level == TURN_LEVEL and one not in near_enough)
    return [*near_enough, *islice(turns, _OF_BEFORE - len(near_enough))]


def _nearness(one: Candidate, share: float) -> float | None:
    """Return the cosine plus the share of the question's words, scaled; None without a vector."""
    return None if one.similarity is None else one.similarity + WORDS_AS_COSINE * share


def _is_relevant(one: Candidate, share: float, floor: float, with_words: float) -> bool:
    near, both = one.similarity, _nearness(one, share)
    if near is None or both is None:
        return share > _ENOUGH_WORDS
    # A summary repeats the words of its turns, in more common ones: for it they count less.
    bar = with_words if one.level == TURN_LEVEL else floor
    return near > floor or (share > 0 and both > bar)


def _word_shares(text: str, records: Sequence[Collection[str]]) -> list[float]:
    """Return the share of the question's term weights that each record has, 0 to 1.

    Terms weigh less the more of the records have them.
    """
    from ragmem.terms import query_terms, rarity

    term_sets = [frozenset(words) for words in records]
    weights: dict[str, float] = {}
    total = 0.0
    for term in query_terms(text):
        if term.kind != "stop":
            count = sum(term.term in words for words in term_sets)
            weights[term.term] = term.weight * rarity(count, len(term_sets) + _OTHERS)
            total += weights[term.term] if term.kind not in ("hint", "short") else 0.0
    return [
        min(1.0, math.fsum(weights[term] for term in weights.keys() & words) / (total or 1.0))
        for words in term_sets
    ]


def _ranked(
    candidates: Sequence[Candidate],
    question: Question,
    now: datetime,
    spans: Sequence[TimeSpan],
) -> list[Ranked]:
    from ragmem.memory.ranking import rank

    own = (question.session_id,) if question.session_id else ()
    out: list[Ranked] = []
    for is_turn in (True, False):
        kind = [c for c in candidates if (c.level == TURN_LEVEL) == is_turn]
        out += rank(kind, now=now, spans=spans, session_ids=own)
    return sorted(out, key=lambda one: -one.score)


def import_all() -> None:
    """Load the libraries that a search needs and that take long to import."""
    import ragmem.memory.ranking  # noqa: F401
    from ragmem.memory import dates

    load_numpy()
    dates.prepare()


def _shortened(text: str) -> str:
    if len(text) <= _QUESTION_CHARS:
        return text
    half = _QUESTION_CHARS // 2
    return f"{text[:half]}\n{text[-half:]}"


def _hit(
    ranked: Ranked,
    record: Turn | Summary,
    spans: Sequence[TimeSpan],
    session: Session | None,
    people: Mapping[str, str],
) -> Hit:
    found = ranked.candidate
    parts = dict(ranked.parts)
    why = []
    if found.text > 0:
        why.append(BY_WORDS)
    if found.similarity is not None and parts.get("vector", 0.0) > 0:
        why.append(BY_MEANING)
    if parts.get("before", 0.0) > 0 and not why:
        why.append("what was said before it")
    if spans and parts.get("time", 0.0) > 0:
        why.append(_BY_TIME)
    title = session.title if session else DEFAULT_TITLE
    return Hit(
        type="turn" if isinstance(record, Turn) else "summary",
        turn=record if isinstance(record, Turn) else None,
        summary=record if isinstance(record, Summary) else None,
        score=ranked.score,
        similarity=found.similarity,
        session_id=found.session_id,
        session_title="" if title == DEFAULT_TITLE else title,
        who=people.get(session.owner, "") if session else "",
        at=found.at,
        why=tuple(why) or (_BY_SESSION,),
    )

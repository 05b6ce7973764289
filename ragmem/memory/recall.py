"""Search of the memory: from a question to the turns and summaries that bear on it."""

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
"""What a service is asked for, by a `Question`; it answers with what is `Found`."""
_QUESTION_CHARS = 4_000
"""Of a longer one the beginning and the end are looked for: what is between was pasted."""
_MOST_INTERVALS = 4
_SPARE = 8
"""So many more than asked for are fetched, to put near-duplicates behind."""
_TURNS_OF_TIME = 400
"""Of which the store gives half, the newest: enough to meet every session of a day."""
_SPARE_OF_TIME = 24
_WITH_WORDS = 0.8
"""Of the floor: what shares words with the question must be so near, counting those words too.

Fitted over tests/recall/data, the chats and the stories of tests/recall/days/open, with other
sets' questions as those about nothing that was ever said: what those find falls from 1.2 turns to
0.6, and of the evidence among the first three 3 % is lost. The whole floor for questions in German
and French, of which the embedder finds all somewhat near, takes a fifth of the junk there, and with
it 4 % of what is needed.
"""
_OF_BEST = 0.5
"""Of what is nearest the others are to be so near: chosen on the stories of tests/recall/days/open,
where junk falls by a quarter and nothing that is needed is lost; over tests/recall/data .005 of the
evidence among the first five is.
"""
_OF_BEFORE = 3
"""Turns that a question for what was done before finds, however far they are."""
_WORDS_ALONE = 0.12
"""Share of the question's words that is no accident, where there is no vector yet."""
_ENOUGH_TURNS = 5
"""Turns that have a vector: of fewer none is near to most of what a young project is asked for."""
_OTHERS = 8
"""Records that hold none of the words, thought beside the few that were loaded."""
BEHIND = 1.0
"""Taken from the score of a turn that says what a better one says, or that can hardly answer."""
_ALIKE = 0.8
"""Two turns say the same when the terms that they share are so much of all that they have."""
_SAYS_SOMETHING = 15
"""Different terms of a turn, that it be told of a time before the others."""


class TimeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A half-open interval that a question names."""

    start_at: datetime
    end_at: datetime
    confidence: float
    """0 to 1: how surely the words mean this interval, and that something was said in it."""
    text: str
    """The words, without case and accents."""
    relative: bool = False
    """The words name no date of their own, so that no turn is found by them."""


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with what it is worth; comparable within one search only."""

    candidate: Candidate
    score: float
    parts: tuple[tuple[str, float], ...]
    """What the score is made of, by name; they sum to it."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is searched for, and how."""

    text: str
    scope: Scope = EVERYTHING
    session_id: str = ""
    """The conversation that asks: of two alike, its own turn is meant."""
    semantic: bool = True
    """False: by words alone."""
    max_results: int = 5
    levels: tuple[int, ...] = ()
    """0 for turns, 1 and up for summaries; empty for all."""
    min_similarity: float | None = None
    """A hit must be nearer (strictly), unless it holds words of the question: the more those tell,
    the farther it may be. One without a vector yet must hold words that are no accident."""
    patience_s: float | None = None
    """So long the embedder is waited for; then the words alone are looked for."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What bears on a question, best first, before its texts are loaded."""

    question: Question
    ranked: tuple[Ranked, ...] = ()
    spans: tuple[TimeSpan, ...] = ()
    nearest: float | None = None
    """The cosine of what is most like it of the turns and summaries of its scope that have a vector
    already; None where those are too few turns to tell, or the question names nothing."""


class Replaced(msgspec.Struct, frozen=True):
    """What was said in a turn and does not hold any more."""

    by: str
    """What stands in its place today."""


BY_WORDS = "its words"
"""In `why`, of what shares a word with the question."""
BY_TIME = "its time"
"""The same of what was said at the time that it names."""
_BY_SESSION = "its session"
"""All of `why`, of what nothing speaks for but that others of its session were found."""
_QUOTED_CHARS = 500
_FAR = 0.5
"""The share of the floor below which a hit has nothing to do with the question."""


def comes_near(similarity: float | None, floor: float | None) -> bool:
    """Whether what is not close has something to do with the question all the same."""
    return floor is None or (similarity or 0) > _FAR * floor


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One turn or summary that bears on a question, with where it comes from."""

    type: Literal["turn", "summary"]
    turn: Turn | None = None
    summary: Summary | None = None
    score: float
    """Fused rank score: what the order goes by; comparable within one search only."""
    similarity: float | None = None
    """Raw cosine, -1 to 1; None for a hit by its words alone."""
    session_id: str
    session_title: str = ""
    who: str = ""
    """Name of the person whose session it is; empty for one's own."""
    at: datetime
    why: str = ""
    """What it was found by, in words."""
    since: str = ""
    """What took the place of something that was decided there."""
    changed: tuple[str, ...] = ()
    """Files that have changed since the turn was done with them, or the summary was made."""
    outdated: dict[str, str] = {}
    """Files that have changed since, in the turn or later, by the calls that showed them."""

    @property
    def record_id(self) -> str:
        """Return the id of the turn or summary."""
        if self.turn:
            return self.turn.turn_id
        return self.summary.summary_id if self.summary else ""

    @property
    def level(self) -> int:
        """Return its level; 0 for a turn."""
        return self.summary.level if self.summary else 0

    @property
    def relevance(self) -> str:
        """The similarity as it is shown."""
        return relevance(self.similarity)

    def facts(self, now: datetime) -> list[str]:
        """Tell people what it is, where it stands, how old it is, and why it was found.

        Not how alike it is: that is one part of the score, which the order goes by.
        """
        found = f"found by {self.why}" if self.why else ""
        what = (self._what, self.where(title_chars=40), ago(self.at, now), found)
        return [each for each in what if each]

    def where(self, *, title_chars: int = 60) -> str:
        """The session, by its id, its title, and the person whose it is if it is another's."""
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
        """Whether it has a word of the question, its time, or is more alike than `floor`."""
        alike = self.similarity is not None and floor is not None and self.similarity > floor
        return alike or BY_WORDS in self.why or self.why == BY_TIME

    def is_further(self, floor: float | None) -> bool:
        """Whether something of its own speaks for it, though it is not close."""
        return comes_near(self.similarity, floor) and self.why != _BY_SESSION

    def repeats(self, shown: Collection[str]) -> bool:
        """Whether it is a summary of turns that are all among these."""
        return self.summary is not None and self.summary.repeats(shown)

    def judged(self, replaced: Mapping[str, Replaced]) -> "Hit":
        """Add what took the place of something that it says, by turn; of a summary, by those that
        it digests."""
        told = (self.record_id, *(self.summary.covers if self.summary else ()))
        since = next((f"Since replaced by: {replaced[i].by}" for i in told if i in replaced), "")
        return msgspec.structs.replace(self, since=since)

    def quotes(self) -> list[str]:
        """What it says, and what became of that, a line each."""
        said = [self.summary.text] if self.summary else []
        if self.turn:
            said = [f"> {self.turn.prompt}", self.turn.assistant_message or self.turn.said]
        said.append(self.since)
        return [one_line(each, _QUOTED_CHARS) for each in said if each.strip()]


NOBODY: Mapping[str, str] = MappingProxyType({})
"""Nobody else has said anything: `others_of` a person who is alone."""


async def others_of(store: CodeStore) -> dict[str, str]:
    """What other people are called who have something in a shared store, by their ids."""
    return {each.owner_id: each.called for each in await store.others()}


async def sessions_by_id(store: CodeStore, session_ids: Iterable[str]) -> dict[str, Session]:
    """Return by id those sessions that are there still."""
    return {each.session_id: each for each in await store.get(Session, list(session_ids))}


def scope_of(session: Session, name: ScopeName) -> Scope:
    """Return where a session's questions are looked for."""
    match name:
        case "session":
            return Scope(session_ids=(session.session_id,))
        case "project":
            return Scope(session_ids=(session.session_id,), project_ids=(session.project_id,))
        case "all":
            return EVERYTHING


class ComparableVectors:
    """Vectors of texts that may be compared with the store's; without an embedder none."""

    def __init__(self, embedder: Embedder | None, metrics: Metrics) -> None:
        self._embedder = embedder
        self._metrics = metrics

    @property
    def model_id(self) -> str:
        """Return the embedder's id; empty without one."""
        return self._embedder.info.model_id if self._embedder else ""

    async def is_for(self, store: Store, *, mark: bool = False) -> bool:
        """Whether the store's vectors are this embedder's; with `mark` they will be, if none are.

        StoreError.
        """
        if self._embedder is None:
            return False
        info, known = self._embedder.info, await store.embedder()
        if known is not None or not mark:
            return known is not None and known.model_id == info.model_id
        if info.dimension:
            await store.use_embedder(EmbedderMark(info.model_id, info.dimension))
        return True

    async def rows(
        self, store: Store, texts: Sequence[str], *, query: bool = False, patience_s: float | None
    ) -> list[bytes]:
        """Return one row a text; none where they come too late, or those stored are another's."""
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
            # Whatever it is: words are compared all the same, and the worker embeds it later.
            known = isinstance(error, RagmemError | TimeoutError)
            what = "The question" if query else "A memory"
            _log.warning("%s could not be embedded: %s", what, error, exc_info=not known)
            self._metrics.count("embedder.failures")
            return []
        return [row.astype("<f4").tobytes() for row in found]

    def writes(self, memories: Sequence[MemoryRecord], rows: Sequence[bytes]) -> list[PutVectors]:
        """The writes of memories' vectors; of one that has none, none."""
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
    """Asks the store for candidates, ranks them, and fetches the best.

    Without an embedder, or when it fails, by words alone.
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
        """`service` is asked first, and does all but the loading where it answers."""
        self._open_store = open_store
        self._embedder = embedder
        self._service = service
        self._metrics = metrics or Metrics()
        self._vectors = ComparableVectors(embedder, self._metrics)
        self._clock = clock

    async def prepare(self) -> None:
        """Load what takes time before the first question, if there is anything to be found."""
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
        """The best hits, best first; raises StoreError."""
        return await self.hits(await self.find(question))

    async def find(self, question: Question) -> Found:
        """Find all that may answer it, ranked; raises StoreError."""
        if question.max_results < 1 or not question.text.strip():
            return Found(question=question)
        found = None
        if self._service:
            with self._metrics.time("recall.search"):
                found = await self._service.ask(FIND, question, Found, within_s=SEARCH_S)
        found = found or await self._searched(question)
        self._metrics.count("recall.searches")
        self._metrics.count("recall.found", int(self._is_success(found)))
        return found

    def _is_success(self, found: Found) -> bool:
        """Whether it holds what was said at the time that is asked about, a word of the question,
        or something more alike than the threshold: also where a request shows it anyway."""
        floor = found.question.min_similarity
        if floor is None and self._embedder is not None:
            floor = self._embedder.info.thresholds.history
        return _is_of_time(found.ranked) or any(_is_above(e.candidate, floor) for e in found.ranked)

    async def _searched(self, question: Question) -> Found:
        from ragmem.memory.dates import names_only_time, time_spans, without_time_words
        from ragmem.memory.ranking import of_time
        from ragmem.terms import query_terms

        store = await self._open_store()
        now = self._clock().astimezone()
        text = _ends(question.text)
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
                return Found(question=question, ranked=said, spans=spans)
        plain = without_time_words(text, spans)
        vector = b""
        if question.semantic and self._vectors.model_id and plain.strip():
            with self._metrics.time("recall.embed"):
                rows = await self._vectors.rows(
                    store, [plain], query=True, patience_s=question.patience_s
                )
            vector = rows[0] if rows else b""
        # Stop words find a little more where there is nothing else to go by; they are no match.
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
            ranked = _ranked(candidates, question, text, now, spans)
        floor = question.min_similarity
        near = [one for one in candidates if one.similarity is not None]
        is_told = sum(one.level == TURN_LEVEL for one in near) >= _ENOUGH_TURNS
        return Found(
            question=question,
            ranked=tuple(one for one in ranked if _is_above(one.candidate, floor)),
            spans=spans,
            nearest=max(one.similarity or 0.0 for one in near) if is_told and query.terms else None,
        )

    async def hits(self, found: Found, *, hidden: Collection[str] = ()) -> list[Hit]:
        """The best of it with their texts, but for the records whose ids are `hidden`."""
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
        """The best with their records; what says the same as a better one comes behind."""
        from ragmem.memory.last_time import is_small_talk
        from ragmem.terms import summary_terms, turn_terms

        # Of a time all that was said is as good, but for greetings.
        of_time = _is_of_time(ranked)
        limit = found.question.max_results
        best = ranked[: limit + (_SPARE_OF_TIME if of_time else _SPARE)]
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
        told = {each.summary_id: frozenset(summary_terms(each)) for each in above}
        best = _bearing(best, words | told, found)
        behind = {turn.turn_id for turn in turns if only_asks(turn)}
        if of_time:
            behind |= {turn for turn, own in words.items() if len(own) < _SAYS_SOMETHING}
        best = demoted(best, words, behind=behind) if len(best) > 1 else best
        # What was deleted since it was found has no record.
        known = [(one, records.get(one.candidate.record_id)) for one in best]
        return [(one, record) for one, record in known if record is not None][:limit]


def by_score(one: Ranked) -> tuple[float, float, str]:
    """The key of an order from the best down; of two that are as good the newer comes first."""
    return (-one.score, -one.candidate.at.timestamp(), one.candidate.record_id)


def demoted(
    ranked: Sequence[Ranked],
    texts: Mapping[str, Collection[str]],
    *,
    behind: Collection[str] = (),
    penalty: float = BEHIND,
) -> list[Ranked]:
    """Near-duplicates of better ones put behind; `texts` are the terms of the first few, by turn.

    The records whose ids are in `behind` go there too.
    """
    kept: list[frozenset[str]] = []
    out = []
    for one in ranked:
        words = frozenset(texts.get(one.candidate.record_id, ()))
        told = one.candidate.record_id in behind
        if told or (words and any(_says_the_same(words, other) for other in kept)):
            part = ("behind" if told else "duplicate", -penalty)
            one = msgspec.structs.replace(one, score=one.score - penalty, parts=(*one.parts, part))
        elif words:
            kept.append(words)
        out.append(one)
    return sorted(out, key=by_score)


def _says_the_same(one: frozenset[str], other: frozenset[str]) -> bool:
    if min(len(one), len(other)) < _ALIKE * max(len(one), len(other)):
        # They can't, and need not be compared.
        return False
    common = len(one & other)
    return common >= _ALIKE * (len(one) + len(other) - common)


def _is_of_time(ranked: Sequence[Ranked]) -> bool:
    """Whether they were looked for by their time alone."""
    return bool(ranked) and "order" in dict(ranked[0].parts)


def _is_above(one: Candidate, floor: float | None) -> bool:
    return floor is None or one.text > 0 or (one.similarity or -1.0) > floor


def only_asks(turn: Turn) -> bool:
    """Whether it is a question that nothing came of, which is rarely what answers another."""
    came = turn.assistant_message.strip() or turn.tool_calls
    return turn.user_message.rstrip().endswith(("?", "？")) and not came


def _bearing(
    ranked: Sequence[Ranked], words: Mapping[str, Collection[str]], found: Found
) -> list[Ranked]:
    """Those that share more with the question than common words."""
    floor = found.question.min_similarity
    if floor is None:
        return list(ranked)
    text = _ends(found.question.text)
    asked = text
    if found.spans:
        from ragmem.memory.dates import without_time_words

        asked = without_time_words(text, found.spans)
    bar = floor if leaves_subject(text) else floor * _WITH_WORDS
    shares = _shares(asked, [words.get(one.candidate.record_id, ()) for one in ranked])
    nears = [_nearness(one.candidate, share) for one, share in zip(ranked, shares, strict=True)]
    least = _OF_BEST * max((near for near in nears if near is not None), default=0.0)
    near_enough = [
        one
        for one, near, share in zip(ranked, nears, shares, strict=True)
        if "order" in dict(one.parts)
        or (_bears(one.candidate, share, floor, bar) and (near is None or near >= least))
    ]
    if len(near_enough) >= _OF_BEFORE or not asks_of_before(text):
        return near_enough
    turns = (one for one in ranked if one.candidate.level == TURN_LEVEL and one not in near_enough)
    return [*near_enough, *islice(turns, _OF_BEFORE - len(near_enough))]


def _nearness(one: Candidate, share: float) -> float | None:
    """Its cosine and its share of the question's words on one scale; None without a vector."""
    return None if one.similarity is None else one.similarity + WORDS_AS_COSINE * share


def _bears(one: Candidate, share: float, floor: float, with_words: float) -> bool:
    near, both = one.similarity, _nearness(one, share)
    if near is None or both is None:
        return share > _WORDS_ALONE
    # A summary says in common words what its turns say in theirs.
    bar = with_words if one.level == TURN_LEVEL else floor
    return near > floor or (share > 0 and both > bar)


def _shares(text: str, records: Sequence[Collection[str]]) -> list[float]:
    """How much of what a text's words tell each record holds, 0 to 1; common words tell little."""
    from ragmem.terms import query_terms, rarity

    held = [frozenset(words) for words in records]
    tells: dict[str, float] = {}
    total = 0.0
    for term in query_terms(text):
        if term.kind != "stop":
            having = sum(term.term in words for words in held)
            tells[term.term] = term.weight * rarity(having, len(held) + _OTHERS)
            total += tells[term.term] if term.kind not in ("hint", "short") else 0.0
    return [
        min(1.0, math.fsum(tells[term] for term in tells.keys() & words) / (total or 1.0))
        for words in held
    ]


def _ranked(
    candidates: Sequence[Candidate],
    question: Question,
    text: str,
    now: datetime,
    spans: Sequence[TimeSpan],
) -> list[Ranked]:
    from ragmem.memory.ranking import rank
    from ragmem.terms import guess_language

    foreign = guess_language(text) not in (None, "english")
    own = (question.session_id,) if question.session_id else ()
    out: list[Ranked] = []
    for is_turn in (True, False):
        kind = [c for c in candidates if (c.level == TURN_LEVEL) == is_turn]
        out += rank(kind, now=now, spans=spans, foreign=foreign, session_ids=own)
    return sorted(out, key=lambda one: -one.score)


def import_all() -> None:
    """Load what a search needs, and takes long."""
    import ragmem.memory.ranking  # noqa: F401
    from ragmem.memory import dates

    load_numpy()
    dates.prepare()


def _ends(text: str) -> str:
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
        why.append("its meaning")
    if parts.get("before", 0.0) > 0 and not why:
        why.append("what was said before it")
    if spans and parts.get("time", 0.0) > 0:
        why.append(BY_TIME)
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
        why=", ".join(why) or "its session",
    )

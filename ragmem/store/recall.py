"""What recall asks of a store: search by words and by meaning, and what is still to be done.

A part of the Store protocol (`ragmem.store.base`). Stores find and score candidates;
ranking, thresholds, embedding and summarising live above them. Promises:

- A turn's row in the text index is written in the transaction that finishes the turn, a
  summary's in that which adds it, from `ragmem.terms`; what is deleted leaves the index too.
- Vectors are compared only with vectors of the same embedder; `similarity` is the raw cosine.
- What is to be done is derived from what is stored: a crash loses no work, and a lease
  keeps two processes from doing the same at once.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol

import msgspec

from ragmem.records import Summary, Turn

Work = Literal["vectors", "level1", "roll_up", "thread", "memories", "references"]
WORK: tuple[Work, ...] = ("vectors", "level1", "roll_up", "thread", "memories", "references")
TURN_LEVEL = 0


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look: sessions (with what a fork shares with its parents) or projects.

    With both, what is in either; with none, the whole store. A project that was
    joined to another counts as that one, whichever id is given.
    """

    session_ids: tuple[str, ...] = ()
    project_ids: tuple[str, ...] = ()


EVERYTHING = Scope()


class WeightedTerm(msgspec.Struct, frozen=True):
    """An index term of the question, and how much it counts."""

    term: str
    weight: float = 1.0


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A time that is asked about, half-open."""

    start_at: datetime
    end_at: datetime


LOOKED_THROUGH = 1_000
"""Turns of an interval among which the best are taken: its newest."""


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes asked a model about an item, when no answer could be used."""

    item: str
    session_id: str
    model: str
    count: int
    not_before: datetime
    """Until then it is not asked again."""
    problem: str
    """What was wrong with the last answer."""


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A question, as a store can look for it."""

    scope: Scope = EVERYTHING
    terms: tuple[WeightedTerm, ...] = ()
    """Heaviest first; none: nothing is found by text."""
    vector: bytes = b""
    """The question's unit vector, float32 little-endian; empty: nothing is found by vector."""
    embedder: str = ""
    """The model of `vector`."""
    intervals: tuple[Interval, ...] = ()
    """Turns that began in one of these are found too, whatever they say."""
    levels: tuple[int, ...] = ()
    """0 for turns, 1 and up for summaries; empty for all."""
    limit: int = 50
    """The best so many turns by text, as many by vector; and the same of summaries."""

    @property
    def of_interval(self) -> int:
        """Of each interval so many turns by text, by vector, and of the newest."""
        return -(-self.limit // 2)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A turn or summary that may answer the question, with its raw scores."""

    record_id: str
    level: int = TURN_LEVEL
    session_id: str
    turn_index: int = 0
    """Of a turn; 0 for a summary."""
    at: datetime
    """When the turn began, or the summary was made."""
    text: float = 0.0
    """BM25, higher is better; 0 for one that is not among the best by text, nor an interval's."""
    similarity: float | None = None
    """Raw cosine of its best passage with the question; None without a vector of this embedder."""


class EmbedderMark(msgspec.Struct, frozen=True):
    """The embedder that a store's vectors are of."""

    model_id: str
    dimension: int


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work."""

    work: Work
    session_id: str
    record_id: str
    """`vectors`: what is to be embedded; `level1`, `memories`, `references`: the turn; `roll_up`,
    `thread`: the session."""
    level: int = TURN_LEVEL
    """`vectors`: of the record; `roll_up`: of the summaries that wait."""

    @property
    def key(self) -> str:
        """Names it among all work, for leases."""
        return f"{self.work}:{self.level}:{self.record_id}"


class RecallStore(Protocol):
    """See the module's text."""

    async def search(self, query: SearchQuery) -> list[Candidate]:
        """The best by text and the best by vector, and of turns their neighbours; in no order.

        A turn's neighbours are those before and after it in what its session sees.
        Of each interval half of `limit` come by text, by vector, and the newest, without
        neighbours: among its newest `LOOKED_THROUGH`, by text perhaps only among as many hits.
        Each record comes once, with both of its scores. Only completed turns are
        compared by vector; text finds finished ones of any status.
        """

    async def turns_by_id(self, turn_ids: Sequence[str]) -> list[Turn]:
        """Those of them that exist, with their tool calls, in this order."""

    async def summaries_by_id(self, summary_ids: Sequence[str]) -> list[Summary]:
        """Those of them that exist, in this order."""

    async def embedder(self) -> EmbedderMark | None:
        """Of which its vectors are; None before there are any."""

    async def use_embedder(self, mark: EmbedderMark) -> None:
        """From now on vectors are of this one: those of another are dropped, and wait to be made.

        Nothing changes when it is the one already.
        """

    async def pending(
        self, work: Work, *, limit: int, session_id: str | None = None
    ) -> list[Pending]:
        """Work to be done, that of the latest activity first; what is leased is left out.

        `vectors`: completed turns, summaries, memories that are not superseded, and sessions with
        a summary, each without vectors of the store's embedder. A session's summary and a
        memory's content and subjects lose theirs when they change. Of a memory `session_id` is
        empty: it is left out where a session is asked for.
        `level1`: completed turns that no summary of level 1 covers, or only an extractive one.
        `roll_up`: sessions with at least two summaries of one level that none covers.
        `thread`: sessions with more messages than when their summary was made.
        `memories`: turns that were completed here (`FinishTurn`; not `PutTurn`) since the store
        knows memories, and were not looked through for them (`MarkExtracted`); oldest first.
        `references`: completed turns of a project whose files define scopes, of which it is not
        known what they have to do with those (`PutReferences`); newest first.
        """

    async def count_pending(self) -> dict[Work, int]:
        """How much of each there is, at most a thousand."""

    async def claim(self, keys: Sequence[str], owner_id: str, *, seconds: float) -> list[str]:
        """Lease those that are free, or were this owner's; the keys that are now its own.

        A lease ends by itself, by the store's clock (Neo4j) or this machine's.
        """

    async def release(self, keys: Sequence[str], owner_id: str) -> None:
        """Give back what was claimed."""

    async def attempts(self, item: str = "", *, least: int = 1) -> list[Attempts]:
        """Answers that could not be used, at least so many: about an item, or any; latest last."""

    async def keep_attempts(self, attempts: Attempts) -> None:
        """Keep these in place of what was known of their item."""

    async def forget_attempts(self, session_id: str, item: str = "") -> None:
        """Let one item of a session be tried again, or all of them."""

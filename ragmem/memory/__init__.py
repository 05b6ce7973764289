"""What is looked for in the memory and what is found there, as values."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Literal, Protocol, TypeVar

import msgspec

from ragmem.ids import short_id
from ragmem.records import EVERYTHING, Candidate, CodeStore, Scope, Session, Summary, Turn
from ragmem.text import ago, one_line


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


def relevance(similarity: float | None) -> str:
    """A similarity as it is shown: in percent, without one how such a hit is found."""
    return "text match" if similarity is None else f"{max(0.0, similarity):.0%}"


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
_NEAREST = 3
_MOST_FURTHER = 5
_FAR = 0.5
"""The share of the floor below which a hit has nothing to do with the question."""
_NONE_CLOSE = "Nothing shares a word with this or is clearly about the same. The nearest:"


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
        """Of the turn or summary."""
        if self.turn:
            return self.turn.turn_id
        return self.summary.summary_id if self.summary else ""

    @property
    def level(self) -> int:
        """0 for a turn."""
        return self.summary.level if self.summary else 0

    @property
    def relevance(self) -> str:
        """The similarity as it is shown."""
        return relevance(self.similarity)

    def facts(self, now: datetime) -> list[str]:
        """For people: what it is, where it stands, how old it is, and why it was found.

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

    def judged(self, replaced: Mapping[str, Replaced]) -> "Hit":
        """With what took the place of something that it says, by turn; of a summary, of one that
        it digests."""
        told = (self.record_id, *(self.summary.covers if self.summary else ()))
        since = next((f"Replaced since by: {replaced[i].by}" for i in told if i in replaced), "")
        return msgspec.structs.replace(self, since=since)

    def quotes(self) -> list[str]:
        """What it says, and what became of that, a line each."""
        said = [self.summary.text] if self.summary else []
        if self.turn:
            said = [f"> {self.turn.asked}", self.turn.assistant_message or self.turn.said]
        said.append(self.since)
        return [one_line(each, _QUOTED_CHARS) for each in said if each.strip()]


def repeats(summary: Summary | None, shown: Collection[str]) -> bool:
    """Whether all that a summary digests is among these turns."""
    return summary is not None and summary.level == 1 and all(i in shown for i in summary.covers)


NOBODY: Mapping[str, str] = MappingProxyType({})
"""Nobody else has said anything: `others_of` a person who is alone."""


async def others_of(store: CodeStore) -> dict[str, str]:
    """What other people are called who have something in a shared store, by their ids."""
    return {each.owner_id: each.called for each in await store.others()}


async def sessions_by_id(store: CodeStore, session_ids: Iterable[str]) -> dict[str, Session]:
    """Those that are there still."""
    return {each.session_id: each for each in await store.get(Session, list(session_ids))}


class _Found(Protocol):
    @property
    def similarity(self) -> float | None: ...

    def is_close(self, floor: float | None) -> bool: ...

    def is_further(self, floor: float | None) -> bool: ...


F = TypeVar("F", bound=_Found)


def close_first(hits: Sequence[F], floor: float | None) -> tuple[list[F], int]:
    """For people: those that are close, then a few of the others, and how many are close.

    Where none is, those that there are.
    """
    close = [hit for hit in hits if hit.is_close(floor)]
    if not close:
        return list(hits), 0
    further = [hit for hit in hits if not hit.is_close(floor) and hit.is_further(floor)]
    return [*close, *further[:_MOST_FURTHER]], len(close)


def worth_showing(hits: Sequence[F], floor: float | None) -> tuple[Sequence[F], str]:
    """For people: the hits, or the nearest few and a word about it where none is close."""
    if not hits or any(hit.is_close(floor) for hit in hits):
        return hits, ""
    nearest = sorted(hits, key=lambda hit: 1 if hit.similarity is None else -hit.similarity)
    return nearest[:_NEAREST], _NONE_CLOSE

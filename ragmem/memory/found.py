"""What is looked for in the memory, and what is found before its texts are loaded, as values."""

from datetime import datetime

import msgspec

from ragmem.records import EVERYTHING, Candidate, Scope


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

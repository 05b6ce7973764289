"""What a search of the memory finds."""

from datetime import datetime
from typing import Literal

import msgspec

from ragmem.records import Summary, Turn


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One turn or summary that bears on a question, with where it comes from."""

    type: Literal["turn", "summary"]
    turn: Turn | None = None
    summary: Summary | None = None
    score: float
    """Fused rank score: what the order goes by; comparable within one search only."""
    similarity: float | None = None
    """Raw cosine, -1 to 1; None for a hit by its words alone (X1)."""
    session_id: str
    session_title: str = ""
    at: datetime
    why: str = ""
    """What it was found by, in words."""

    @property
    def record_id(self) -> str:
        """Of the turn or summary."""
        if self.turn:
            return self.turn.turn_id
        return self.summary.summary_id if self.summary else ""

    @property
    def relevance(self) -> str:
        """As it is shown: the similarity in percent, else how it was found (X1)."""
        return "text match" if self.similarity is None else f"{self.similarity * 100:.0f}%"

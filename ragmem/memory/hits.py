"""What a search of the memory finds."""

from datetime import datetime
from typing import Literal

import msgspec

from ragmem.ids import short_id
from ragmem.records import Summary, Turn
from ragmem.text import ago, one_line

_QUOTED_CHARS = 500


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
    def level(self) -> int:
        """0 for a turn."""
        return self.summary.level if self.summary else 0

    @property
    def relevance(self) -> str:
        """As it is shown: the similarity in percent, else how it was found (X1)."""
        return "text match" if self.similarity is None else f"{self.similarity * 100:.0f}%"

    def facts(self, now: datetime) -> list[str]:
        """For people: what it is, where it stands, how old it is, and why it was found."""
        what = f"Turn {self.turn.turn_index}" if self.turn else f"Level {self.level} summary"
        title = one_line(self.session_title, 40)
        where = f"session {short_id(self.session_id)}" + (f" “{title}”" if title else "")
        return [what, where, ago(self.at, now), self.relevance, self.why]

    def quotes(self) -> list[str]:
        """What it says, a line each."""
        said = [self.summary.text] if self.summary else []
        if self.turn:
            said = [f"> {self.turn.user_message}", self.turn.assistant_message]
        return [one_line(each, _QUOTED_CHARS) for each in said if each.strip()]

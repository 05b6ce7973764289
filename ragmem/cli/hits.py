"""What the searches print: a hit as JSON."""

from datetime import datetime
from typing import TYPE_CHECKING

from ragmem.cli.documents import Document

if TYPE_CHECKING:
    from ragmem.memory.facts.values import FactHit
    from ragmem.memory.hits import Hit


class HitDocument(Document, frozen=True, kw_only=True):
    """One thing that was found; null is what there is none of."""

    type: str
    """`turn`, `summary`, `memory`, `scope`."""
    id: str
    session_id: str | None
    """Of a memory: where it was said first."""
    turn_index: int | None
    level: int | None
    """0 for a turn, 1 and up for a summary."""
    text: str
    path: str | None
    """Of a scope, or the file that a memory stood in."""
    name: str | None
    start_line: int | None
    end_line: int | None
    score: float
    """Comparable among hits of one type of one search only."""
    similarity: float | None
    timestamp: datetime | None
    why: str


def hit_document(hit: "Hit") -> HitDocument:
    """A turn or summary; what belongs to code alone is null."""
    text = ""
    if hit.turn:
        text = f"User: {hit.turn.user_message}\nAssistant: {hit.turn.assistant_message}"
    elif hit.summary:
        text = hit.summary.text
    return HitDocument(
        type=hit.type,
        id=hit.record_id,
        session_id=hit.session_id,
        turn_index=hit.turn.turn_index if hit.turn else None,
        level=hit.level,
        text=text,
        path=None,
        name=None,
        start_line=None,
        end_line=None,
        score=hit.score,
        similarity=hit.similarity,
        timestamp=hit.at,
        why=hit.why,
    )


def memory_hit_document(hit: "FactHit") -> HitDocument:
    """A memory."""
    memory = hit.memory
    said = memory.evidence[0] if memory.evidence else None
    return HitDocument(
        type="memory",
        id=memory.memory_id,
        session_id=(said and said.session_id) or None,
        turn_index=(said and said.turn_index) or None,
        level=None,
        text=memory.content,
        path=next((each.path for each in memory.evidence if each.path), None),
        name=None,
        start_line=None,
        end_line=None,
        score=hit.score,
        similarity=hit.similarity,
        timestamp=memory.created_at,
        why=hit.why,
    )

"""What the commands about code print as JSON: the sessions and decisions about it."""

from datetime import datetime

from ragmem.cli.documents import Document
from ragmem.cli.memory_values import MemoryDocument, memory_document
from ragmem.memory.code_past import CodePast


class CodeSessionDocument(Document, frozen=True, kw_only=True):
    """A session that had to do with some code."""

    session_id: str
    title: str
    how: tuple[str, ...]
    """`edited`, `changed` (the file), `read`, `found`, `named`, `listed`; the strongest first."""
    turn_count: int
    """Turns that had to do with it."""
    last_at: datetime


def session_documents(past: CodePast) -> tuple[CodeSessionDocument, ...]:
    """The sessions, newest first."""
    return tuple(
        CodeSessionDocument(
            session_id=each.session.session_id,
            title=each.session.title,
            how=each.hows,
            turn_count=each.turn_count,
            last_at=each.last_at,
        )
        for each in past.sessions
    )


def decided_documents(past: CodePast) -> tuple[MemoryDocument, ...]:
    """What was decided there, newest first."""
    return tuple(memory_document(memory, past.people) for memory in past.memories)

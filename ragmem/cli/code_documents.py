"""What the commands about code print: scopes and files, the sessions and decisions about them."""

from collections.abc import Sequence
from datetime import datetime

from ragmem.cli.choice import session_name
from ragmem.cli.documents import Document
from ragmem.cli.memory_values import MemoryDocument, memory_document
from ragmem.cli.table import hanging
from ragmem.ids import short_id
from ragmem.memory.chains import said_by
from ragmem.memory.code_past import CodePast, CodeSession
from ragmem.records import MemoryRecord
from ragmem.text import ago, counted, one_line

SHOWN = 5
"""Of a list in a text; JSON has all that was asked for."""
_CONTENT_CHARS = 300


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
    return tuple(memory_document(memory) for memory in past.memories)


def in_sessions(past: CodePast, now: datetime) -> str:
    """`in 3 sessions, last 2 days ago`; empty where there is none."""
    if not past.session_count or past.last_at is None:
        return ""
    last = ago(past.last_at, now)
    where = counted(past.session_count, "session")
    return f"in {where}, {'last ' if past.session_count > 1 else ''}{last}"


def past_lines(past: CodePast, now: datetime, *, indent: int, width: int) -> list[str]:
    """The sessions and what was decided in them, under headings of their own."""
    margin = " " * indent
    lines = []
    if past.sessions:
        lines.append(f"{margin}sessions")
        lines += _each(past.sessions, past.session_count, indent, width, now)
    if past.memories:
        lines.append(f"{margin}decided there")
        for memory in past.memories[:SHOWN]:
            lines += hanging(
                f"{margin}  {short_id(memory.memory_id)}  ", _decided(memory, now), width
            )
        lines += _rest(len(past.memories) - SHOWN, indent)
    return lines


def _each(
    sessions: Sequence[CodeSession], count: int, indent: int, width: int, now: datetime
) -> list[str]:
    lines = []
    for each in sessions[:SHOWN]:
        said = " · ".join(
            [session_name(each.session), ", ".join(each.hows), ago(each.last_at, now)]
        )
        lines += hanging(f"{' ' * indent}  {short_id(each.session.session_id)}  ", said, width)
    return lines + _rest(count - len(sessions[:SHOWN]), indent)


def _rest(more: int, indent: int) -> list[str]:
    return [f"{' ' * indent}  and {more:,} more"] if more > 0 else []


def _decided(memory: MemoryRecord, now: datetime) -> str:
    head = f"{memory.kind} · {said_by(memory)} · {ago(memory.created_at, now)}"
    return f"{one_line(memory.content, _CONTENT_CHARS)} ({head})"

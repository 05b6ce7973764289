"""From a Write to the step that applies it.

A write is encoded, and its words are expanded, before the transaction begins, so that
the lock is held for the statements alone; the step runs inside.
"""

from collections.abc import Sequence

import apsw
import msgspec

from ragmem.records import (
    AddSummary,
    BeginTurn,
    CreateSession,
    DropCodeFiles,
    FinishTurn,
    MarkExtracted,
    PutCodeFile,
    PutInsight,
    PutMemory,
    PutOwner,
    PutProfile,
    PutReferences,
    PutSession,
    PutTurn,
    PutVectors,
    RecordToolCall,
    RegisterProject,
    Session,
    ToolCall,
    Turn,
    UpdateSession,
    Usage,
    Write,
)
from ragmem.store.sqlite import code_writes, documents, memory_writes
from ragmem.store.sqlite.puts import put_session, put_turn
from ragmem.store.sqlite.rows import Row, columns, record, value
from ragmem.store.sqlite.vectors import put_vectors
from ragmem.store.sqlite.words import words_of_turn
from ragmem.store.sqlite.writes import (
    Step,
    add_summary,
    begin_turn,
    create_session,
    finish_turn,
    record_tool_call,
    register_project,
    update_session,
)


def plan(connection: apsw.Connection, writes: Sequence[Write], sees: str = "") -> list[Step]:
    """The writes, encoded and ready to be applied, of a person who sees that much."""
    return [_planned(connection, write, writes, sees) for write in writes]


def _planned(connection: apsw.Connection, write: Write, others: Sequence[Write], sees: str) -> Step:
    match write:
        case RegisterProject():
            return register_project(columns(write.project))
        case CreateSession():
            return create_session(_session_row(write.session))
        case UpdateSession():
            row = columns(write)
            key = None if row["title"] is None else str(row["title"]).casefold()
            return update_session(row | {"title_key": key})
        case BeginTurn():
            return begin_turn(columns(write) | {"usage": value(Usage())})
        case RecordToolCall():
            call = _call_row(write.call, write.session_id)
            return record_tool_call(call, [columns(access) for access in write.accesses])
        case FinishTurn():
            row = columns(write)
            row["assistant_chars"] = len(str(row["assistant_message"]))
            return finish_turn(row, documents.prepare(connection, write, others))
        case AddSummary():
            return add_summary(write.summary)
        case PutVectors():
            return put_vectors(write)
        case PutSession():
            return put_session(_session_row(write.session))
        case PutTurn():
            return _put_turn(write)
        case PutMemory() | PutProfile() | PutOwner() | PutInsight() | MarkExtracted():
            return memory_writes.planned(write, sees)
        case PutCodeFile() | DropCodeFiles() | PutReferences():
            return code_writes.planned(write)


def _put_turn(write: PutTurn) -> Step:
    row = _turn_row(write.turn)
    calls = [
        (
            _call_row(call, write.turn.session_id),
            [columns(access) for access in write.accesses.get(call.tool_call_id, ())],
        )
        for call in write.turn.tool_calls
    ]
    words = None
    if write.turn.status != "running":
        # As they will be read: cleaned.
        held = sorted((record(ToolCall, call) for call, _ in calls), key=_place)
        turn = msgspec.structs.replace(record(Turn, row), tool_calls=tuple(held))
        words = words_of_turn(turn)
    return put_turn(row, calls, words)


def _place(call: ToolCall) -> tuple[int, str]:
    return call.order, call.tool_call_id


def _session_row(session: Session) -> Row:
    row = columns(session)
    return row | {"title_key": str(row["title"]).casefold()}


def _turn_row(turn: Turn) -> Row:
    row = columns(msgspec.structs.replace(turn, tool_calls=()))
    del row["tool_calls"]
    return row | {"char_count": len(str(row["user_message"])) + len(str(row["assistant_message"]))}


def _call_row(call: ToolCall, session_id: str) -> Row:
    row = columns(call)
    return row | {
        "session_id": value(session_id),
        "result_size_bytes": len(str(row["result"]).encode()),
    }

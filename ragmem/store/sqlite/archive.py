"""Everything that is stored, read by span and by id; and a session, deleted."""

from collections.abc import Sequence

import apsw
import msgspec

from ragmem.failpoints import failpoint
from ragmem.records import SESSION_LEVEL, FileAccess, PutTurn, Session, Summary, ToolCall, Turn
from ragmem.store.base import Span, forked, in_use
from ragmem.store.sqlite import (
    code_writes,
    documents,
    memory_writes,
    reads,
    refused,
    small_vectors,
    todo,
    words,
)
from ragmem.store.sqlite.owners import OwnerLocks
from ragmem.store.sqlite.rows import record, rows, turn_fields
from ragmem.store.sqlite.writes import exists, no_session


def spans(connection: apsw.Connection) -> list[Span]:
    """Every session with all of its own turns."""
    return [
        Span(session_id, (forked_at or 0) + 1, count, parent_id)
        for session_id, forked_at, count, parent_id in connection.execute(
            "SELECT session_id, forked_at_index, turn_count, parent_session_id FROM sessions"
            " ORDER BY session_id"
        )
    ]


def sessions_by_id(connection: apsw.Connection, session_ids: Sequence[str]) -> list[Session]:
    """Those of them that exist, in this order."""
    return [reads.session(connection, each) for each in session_ids if exists(connection, each)]


def own_turns(connection: apsw.Connection, wanted: Sequence[Span]) -> list[PutTurn]:
    """The turns in these spans, each with its tool calls and their accesses."""
    found = [
        record(Turn, row)
        for span in wanted
        for row in rows(
            connection,
            f"SELECT {turn_fields()} FROM turns WHERE session_id = :session_id"
            " AND turn_index BETWEEN :first AND :last ORDER BY turn_index",
            msgspec.structs.asdict(span),
        )
    ]
    ids = {"ids": tuple(turn.turn_id for turn in found)}
    calls = words.calls_of(connection, ids["ids"])
    accesses: dict[str, list[FileAccess]] = {}
    for row in rows(
        connection,
        """
        SELECT a.*, t.turn_index, c."order"
        FROM json_each(:ids) AS chosen
        JOIN turns AS t ON t.turn_id = chosen.value
        JOIN tool_calls AS c ON c.turn_id = t.turn_id
        JOIN file_accesses AS a ON a.tool_call_id = c.tool_call_id
        ORDER BY a.path, a.access_type
        """,
        ids,
    ):
        accesses.setdefault(str(row["tool_call_id"]), []).append(record(FileAccess, row))
    return [_whole(turn, calls.get(turn.turn_id, ()), accesses) for turn in found]


def _whole(turn: Turn, calls: Sequence[ToolCall], accesses: dict[str, list[FileAccess]]) -> PutTurn:
    return PutTurn(
        turn=msgspec.structs.replace(turn, tool_calls=tuple(calls)),
        accesses={
            call.tool_call_id: tuple(accesses[call.tool_call_id])
            for call in calls
            if call.tool_call_id in accesses
        },
    )


def summary_ids(connection: apsw.Connection) -> list[str]:
    """Every summary, lower levels first."""
    found = connection.execute("SELECT summary_id FROM summaries ORDER BY level, summary_id")
    return [summary_id for (summary_id,) in found]


def summaries_by_id(connection: apsw.Connection, wanted: Sequence[str]) -> list[Summary]:
    """Those of them that exist, in this order."""
    found = rows(
        connection,
        f"""
        SELECT s.*, {reads.COVERS} AS covers
        FROM json_each(:ids) AS chosen JOIN summaries AS s ON s.summary_id = chosen.value
        ORDER BY chosen.key
        """,
        {"ids": tuple(wanted)},
    )
    return [record(Summary, row) for row in found]


def branches(connection: apsw.Connection, session_id: str) -> list[Session]:
    """The sessions that were forked from this one, oldest first."""
    found = connection.execute(
        "SELECT session_id FROM sessions WHERE parent_session_id = ?"
        " ORDER BY started_at, session_id",
        (session_id,),
    ).fetchall()
    return [reads.session(connection, str(each)) for (each,) in found]


def delete_session(
    connection: apsw.Connection, session_id: str, held: OwnerLocks
) -> dict[str, int]:
    """Remove a session and all that belongs to it alone; how much of each kind went."""
    if not exists(connection, session_id):
        raise no_session(session_id)
    if forks := branches(connection, session_id):
        raise forked(session_id, forks[0].session_id)
    owners = connection.execute(
        "SELECT owner_id FROM owners WHERE session_id = ?", (session_id,)
    ).fetchall()
    if any(held.lives(str(owner_id)) for (owner_id,) in owners):
        raise in_use(session_id)
    went: dict[str, int] = {}
    known = {"id": session_id}
    others = connection.execute(_SUMMARIZED_OTHERS, known).fetchall()
    todo.forget_session(connection, session_id)
    refused.forget(connection, session_id)
    documents.remove_session(connection, session_id)
    small_vectors.remove(connection, SESSION_LEVEL, session_id)
    went["memories"] = memory_writes.forget_session(connection, session_id)
    code_writes.forget_session(connection, session_id)
    for table, condition in _OF_A_SESSION:
        failpoint("sqlite.delete")
        connection.execute(f"DELETE FROM {table} WHERE {condition}", known)
        went[table] = connection.changes()
    for (turn_id,) in others:
        documents.turn_changed(connection, str(turn_id), keep_vectors=True)
    kinds = ("sessions", "turns", "tool_calls", "summaries", "memories")
    return {kind: went[kind] for kind in kinds}


_TURNS = "(SELECT turn_id FROM turns WHERE session_id = :id)"
_CALLS = f"(SELECT tool_call_id FROM tool_calls WHERE turn_id IN {_TURNS})"
_SUMMARIES = "(SELECT summary_id FROM summaries WHERE session_id = :id)"
_SUMMARIZED_OTHERS = f"""
    SELECT turn_id FROM summarized_turns JOIN turns ON turn_id = covered_id
    WHERE summary_id IN {_SUMMARIES} AND session_id <> :id
"""
# What refers to something goes before it.
_OF_A_SESSION = (
    ("file_accesses", f"tool_call_id IN {_CALLS}"),
    ("tool_calls", f"turn_id IN {_TURNS}"),
    ("summarized_turns", f"summary_id IN {_SUMMARIES} OR covered_id IN {_TURNS}"),
    ("summarized_summaries", f"summary_id IN {_SUMMARIES} OR covered_id IN {_SUMMARIES}"),
    ("summaries", "session_id = :id"),
    ("turns", "session_id = :id"),
    ("owners", "session_id = :id"),
    ("sessions", "session_id = :id"),
)


def rewrite(connection: apsw.Connection) -> bool:
    """Write the file anew: where a page was split, its rest still holds what moved away.

    False while another process reads the old pages, or where the disk has no room for it.
    """
    try:
        connection.execute("VACUUM")
        failpoint("sqlite.checkpoint")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError):
        return False
    return True

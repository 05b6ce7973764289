"""Records as another store held them, put in their place."""

from collections.abc import Sequence

import apsw

from ragmem.store.base import misplaced, of_another_turn
from ragmem.store.sqlite import documents, small_vectors
from ragmem.store.sqlite.rows import Row
from ragmem.store.sqlite.words import Words
from ragmem.store.sqlite.writes import (
    INSERT_SESSION,
    Step,
    check_parent,
    no_session,
    write_tool_call,
)


def put_session(row: Row) -> Step:
    """A session with its own times; of one that is there, what was changed later is kept."""

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        check_parent(connection, row)
        before = small_vectors.summary_of(connection, row["session_id"])
        connection.execute(
            f"""
            {INSERT_SESSION}, :last_activity_at,
                coalesce(:forked_at_index, 0), :parent_session_id, :forked_at_index
            )
            ON CONFLICT (session_id) DO UPDATE SET
                cwd = excluded.cwd, project_id = excluded.project_id,
                project_path = excluded.project_path, title = excluded.title,
                title_key = excluded.title_key, summary = excluded.summary,
                summarized_count = excluded.summarized_count, tags = excluded.tags,
                status = excluded.status, updated_at = excluded.updated_at,
                last_activity_at = max(last_activity_at, excluded.last_activity_at)
            WHERE excluded.updated_at >= updated_at
            """,
            row,
        )
        small_vectors.summary_written(connection, row["session_id"], before)

    return step


def put_turn(turn: Row, calls: Sequence[tuple[Row, list[Row]]], words: Words | None) -> Step:
    """A turn at its own index, with its tool calls and their accesses."""
    call_steps = [write_tool_call(call, accesses) for call, accesses in calls]

    def step(connection: apsw.Connection, indexes: dict[str, int]) -> None:
        status = _place(connection, turn)
        if status == "completed":
            return
        connection.execute(
            """
            INSERT INTO turns (
                turn_id, session_id, turn_index, status, char_count, owner_id, started_at,
                finished_at, model, usage, user_message, assistant_message, reasoning
            )
            VALUES (
                :turn_id, :session_id, :turn_index, :status, :char_count, :owner_id, :started_at,
                :finished_at, :model, :usage, :user_message, :assistant_message, :reasoning
            )
            ON CONFLICT (turn_id) DO UPDATE SET
                status = excluded.status, char_count = excluded.char_count,
                owner_id = excluded.owner_id, finished_at = excluded.finished_at,
                model = excluded.model, usage = excluded.usage,
                assistant_message = excluded.assistant_message, reasoning = excluded.reasoning
            """,
            turn,
        )
        connection.execute(
            """
            UPDATE sessions SET
                turn_count = max(turn_count, :turn_index),
                completed_count = completed_count + (:status = 'completed')
            WHERE session_id = :session_id
            """,
            turn,
        )
        for call, call_step in zip(calls, call_steps, strict=True):
            _check_call(connection, call[0])
            call_step(connection, indexes)
        # Of one that was there some calls may not have come along.
        ready = words if status is None else None
        documents.turn_changed(connection, str(turn["turn_id"]), ready)
        if turn["status"] == "completed":
            connection.execute(
                "UPDATE documents SET to_link = 1 WHERE record_id = :turn_id AND level = 0", turn
            )

    return step


def _place(connection: apsw.Connection, turn: Row) -> str | None:
    """The status of the turn that is there already; StoreRefused when its place is not free."""
    held = connection.execute(
        "SELECT session_id, turn_index, status FROM turns WHERE turn_id = :turn_id", turn
    ).fetchone()
    if held is not None:
        if held[:2] != (turn["session_id"], turn["turn_index"]):
            raise misplaced(str(turn["session_id"]), int(turn["turn_index"] or 0))
        return str(held[2])
    last = connection.execute(
        "SELECT turn_count FROM sessions WHERE session_id = :session_id", turn
    ).get
    if last is None:
        raise no_session(str(turn["session_id"]))
    if turn["turn_index"] != last + 1:
        raise misplaced(str(turn["session_id"]), int(turn["turn_index"] or 0))
    return None


def _check_call(connection: apsw.Connection, call: Row) -> None:
    other = connection.execute(
        "SELECT 1 FROM tool_calls WHERE tool_call_id = :tool_call_id AND turn_id <> :turn_id", call
    ).get
    if other is not None:
        raise of_another_turn(str(call["tool_call_id"]))

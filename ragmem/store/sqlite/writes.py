"""What each Write does to the tables: steps, made of rows by `plan`, run inside a transaction."""

from collections.abc import Callable

import apsw

from ragmem.errors import SessionNotFound
from ragmem.records import Summary
from ragmem.store.sqlite import documents, small_vectors
from ragmem.store.sqlite.rows import Row, columns, value
from ragmem.store.sqlite.words import words_of_summary

Step = Callable[[apsw.Connection, dict[str, int]], None]
"""Takes the connection, and the turn indexes assigned so far, by turn id."""


def no_session(session_id: str) -> SessionNotFound:
    """The error for an id that no session bears."""
    return SessionNotFound(
        f"There is no session {session_id}.", hint="`ragmem sessions list` shows those there are."
    )


def register_project(row: Row) -> Step:
    """A folder becomes known, moves, or joins another project."""

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        connection.execute(
            """
            INSERT INTO projects (project_id, path, remote, created_at)
            VALUES (:project_id, :path, :remote, :created_at)
            ON CONFLICT (project_id) DO UPDATE SET path = excluded.path, remote = excluded.remote
            """,
            row,
        )
        if row["joined_into"] is not None:
            _join(connection, row)

    return step


def _join(connection: apsw.Connection, row: Row) -> None:
    root = connection.execute(
        "SELECT joined_into FROM projects WHERE project_id = :joined_into", row
    ).get
    names = {"id": row["project_id"], "into": root or row["joined_into"]}
    # Not to itself, and not once more: the ones that it was joined with would part.
    joins = connection.execute(
        "SELECT 1 FROM projects WHERE project_id = :id AND joined_into IS NULL AND :id <> :into",
        names,
    ).get
    if joins:
        connection.execute(
            "UPDATE projects SET joined_into = :into WHERE project_id = :id OR joined_into = :id",
            names,
        )
        for table in ("sessions", "memories"):
            connection.execute(
                f"UPDATE {table} SET project_id = :into WHERE project_id = :id", names
            )


INSERT_SESSION = """
    INSERT INTO sessions (
        session_id, cwd, project_id, project_path, title, title_key, summary, summarized_count,
        tags, status, owner, started_at, updated_at, last_activity_at, turn_count,
        parent_session_id, forked_at_index
    )
    VALUES (
        :session_id, :cwd,
        coalesce((SELECT joined_into FROM projects WHERE project_id = :project_id), :project_id),
        :project_path, :title, :title_key, :summary, :summarized_count, :tags, :status,
        :owner, :started_at, :updated_at"""
"""As far as a new session and one of another store are written alike: four values follow."""


def check_parent(connection: apsw.Connection, row: Row) -> None:
    """SessionNotFound where a session is forked from one that is not there."""
    parent = row["parent_session_id"]
    if parent is not None and not exists(connection, parent):
        raise no_session(str(parent))


def create_session(row: Row) -> Step:
    """A session starts, unless it is there."""

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        check_parent(connection, row)
        connection.execute(
            f"""
            WITH fork (at_index) AS (
                SELECT max(0, min(coalesce(:forked_at_index, turn_count), turn_count))
                FROM sessions WHERE session_id = :parent_session_id
            )
            {INSERT_SESSION}, :started_at,
                coalesce((SELECT at_index FROM fork), 0),
                :parent_session_id, (SELECT at_index FROM fork)
            )
            ON CONFLICT (session_id) DO NOTHING
            """,
            row,
        )
        small_vectors.mark_session(connection, row["session_id"])

    return step


def update_session(row: Row) -> Step:
    """What is given changes."""

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        before = small_vectors.summary_of(connection, row["session_id"])
        connection.execute(
            """
            UPDATE sessions SET
                title = coalesce(:title, title),
                title_key = coalesce(:title_key, title_key),
                summary = coalesce(:summary, summary),
                summarized_count = coalesce(:summarized_count, summarized_count),
                tags = coalesce(:tags, tags),
                status = coalesce(:status, status),
                updated_at = max(updated_at, :at)
            WHERE session_id = :session_id
            """,
            row,
        )
        if not connection.changes():
            raise no_session(str(row["session_id"]))
        small_vectors.summary_written(connection, row["session_id"], before)

    return step


def begin_turn(row: Row) -> Step:
    """A turn starts, with the next index."""

    def step(connection: apsw.Connection, indexes: dict[str, int]) -> None:
        turn_id = str(row["turn_id"])
        index = connection.execute("SELECT turn_index FROM turns WHERE turn_id = :turn_id", row).get
        if index is None:
            index = connection.execute(
                """
                UPDATE sessions SET
                    turn_count = turn_count + 1,
                    last_activity_at = iif(
                        last_activity_at > horizon(),
                        :started_at, max(last_activity_at, :started_at)
                    ),
                    updated_at = max(updated_at, :started_at)
                WHERE session_id = :session_id
                RETURNING turn_count
                """,
                row,
            ).get
            if index is None:
                raise no_session(str(row["session_id"]))
            connection.execute(
                """
                INSERT INTO turns (
                    turn_id, session_id, turn_index, status, char_count, owner_id, started_at,
                    model, usage, user_message
                )
                VALUES (
                    :turn_id, :session_id, :turn_index, 'running', length(:user_message),
                    :owner_id, :started_at, :model, :usage, :user_message
                )
                """,
                row | {"turn_index": index},
            )
        indexes[turn_id] = index

    return step


def record_tool_call(call: Row, accesses: list[Row]) -> Step:
    """A tool call is written or replaced, with its accesses."""
    write = write_tool_call(call, accesses)

    def step(connection: apsw.Connection, indexes: dict[str, int]) -> None:
        status = _status_of_turn(connection, call)
        write(connection, indexes)
        if status != "running":
            documents.turn_changed(connection, str(call["turn_id"]))

    return step


def write_tool_call(call: Row, accesses: list[Row]) -> Step:
    """The tables of a call alone: the turn, and what it is found by, is the caller's."""

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        connection.execute(
            """
            INSERT INTO tool_calls (
                tool_call_id, turn_id, "order", iteration, tool_name, success, origin, started_at,
                duration_ms, result_size_bytes, error, preamble, arguments, result
            )
            VALUES (
                :tool_call_id, :turn_id, :order, :iteration, :tool_name, :success, :origin,
                :started_at, :duration_ms, :result_size_bytes, :error, :preamble, :arguments,
                :result
            )
            ON CONFLICT (tool_call_id) DO UPDATE SET
                "order" = excluded."order", iteration = excluded.iteration,
                tool_name = excluded.tool_name, success = excluded.success,
                origin = excluded.origin, started_at = excluded.started_at,
                duration_ms = excluded.duration_ms,
                result_size_bytes = excluded.result_size_bytes, error = excluded.error,
                preamble = excluded.preamble, arguments = excluded.arguments,
                result = excluded.result
            WHERE excluded.result <> '' OR tool_calls.result = ''  -- a start replaces no finish
            """,
            call,
        )
        for access in accesses:
            connection.execute(
                """
                INSERT INTO file_accesses (tool_call_id, path, access_type, tool_name, accessed_at)
                VALUES (:tool_call_id, :path, :access_type, :tool_name, :accessed_at)
                ON CONFLICT DO NOTHING
                """,
                access | {"tool_call_id": call["tool_call_id"]},
            )

    return step


def finish_turn(row: Row, prepared: documents.Prepared | None) -> Step:
    """A turn ends, unless it is complete."""

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        if _status_of_turn(connection, row) == "completed":
            return
        connection.execute(
            """
            UPDATE turns SET
                status = :status,
                assistant_message = :assistant_message,
                reasoning = :reasoning,
                model = coalesce(:model, model),
                usage = :usage,
                finished_at = :finished_at,
                owner_id = NULL,
                char_count = length(user_message) + :assistant_chars
            WHERE turn_id = :turn_id
            """,
            row,
        )
        connection.execute(
            """
            UPDATE sessions SET
                completed_count = completed_count + (:status = 'completed'),
                last_activity_at = iif(
                    last_activity_at > horizon(),
                    :finished_at, max(last_activity_at, :finished_at)
                ),
                updated_at = max(updated_at, :finished_at)
            WHERE session_id = :session_id
            """,
            row,
        )
        documents.turn_changed(connection, str(row["turn_id"]), prepared)
        if row["status"] == "completed":
            connection.execute(
                "UPDATE documents SET to_extract = 1, to_link = 1"
                " WHERE record_id = :turn_id AND level = 0",
                row,
            )

    return step


def add_summary(summary: Summary) -> Step:
    """A summary is written, with its links; one cut from turns replaces none that was made."""

    row = columns(summary)
    words = words_of_summary(summary)
    links: list[Row] = [
        {"summary_id": row["summary_id"], "covered_id": value(covered), "position": position}
        for position, covered in enumerate(summary.covers)
    ]
    table, of = (
        ("summarized_turns", "turns")
        if summary.level == 1
        else ("summarized_summaries", "summaries")
    )
    key = "turn_id" if summary.level == 1 else "summary_id"

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        if not exists(connection, row["session_id"]):
            raise no_session(summary.session_id)
        held = connection.execute(
            "SELECT extractive FROM summaries WHERE summary_id = :summary_id", row
        ).get
        if held == 0 and row["extractive"]:
            return
        connection.execute(
            """
            INSERT INTO summaries (
                summary_id, session_id, level, turn_count, created_at, extractive,
                files_mentioned, key_findings, tools_used, topics, text
            )
            VALUES (
                :summary_id, :session_id, :level, :turn_count, :created_at, :extractive,
                :files_mentioned, :key_findings, :tools_used, :topics, :text
            )
            ON CONFLICT (summary_id) DO UPDATE SET
                turn_count = excluded.turn_count, created_at = excluded.created_at,
                extractive = excluded.extractive, files_mentioned = excluded.files_mentioned,
                key_findings = excluded.key_findings, tools_used = excluded.tools_used,
                topics = excluded.topics, text = excluded.text
            """,
            row,
        )
        for link in links:
            known = connection.execute(f"SELECT 1 FROM {of} WHERE {key} = :covered_id", link).get
            if known is None:
                raise SessionNotFound(
                    f"Summary {summary.summary_id} covers {link['covered_id']}, "
                    f"which is not among the {of}."
                )
            connection.execute(
                f"INSERT INTO {table} (summary_id, covered_id, position)"
                " VALUES (:summary_id, :covered_id, :position) ON CONFLICT DO NOTHING",
                link,
            )
        documents.summary_changed(connection, row, words)

    return step


def exists(connection: apsw.Connection, session_id: object) -> bool:
    """Whether there is such a session."""
    found = connection.execute("SELECT 1 FROM sessions WHERE session_id = ?", (session_id,)).get
    return found is not None


def _status_of_turn(connection: apsw.Connection, row: Row) -> str:
    status: str | None = connection.execute(
        "SELECT status FROM turns WHERE turn_id = :turn_id AND session_id = :session_id", row
    ).get
    if status is None:
        if not exists(connection, row["session_id"]):
            raise no_session(str(row["session_id"]))
        raise SessionNotFound(f"There is no turn {row['turn_id']} in session {row['session_id']}.")
    return status

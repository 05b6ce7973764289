"""The queries, from rows to records. Each runs within one snapshot."""

from collections.abc import Iterator

import apsw
import msgspec

from ragmem.records import FileAccess, Project, Session, Summary, ToolCall, Turn
from ragmem.store.base import SessionQuery, TurnQuery
from ragmem.store.sqlite.rows import Row, bounded, call_fields, record, rows, turn_fields
from ragmem.store.sqlite.writes import no_session

_LAST = (1 << 63) - 1

_SESSION = f"""
    SELECT s.*, 2 * s.completed_count AS message_count, (
        SELECT {bounded("user_message")} FROM turns AS t
        WHERE t.session_id = s.session_id AND t.turn_index = s.turn_count
    ) AS last_message
    FROM sessions AS s
"""
COVERS = """
    coalesce(
        (SELECT json_group_array(covered_id ORDER BY position) FROM (
            SELECT covered_id, position FROM summarized_turns WHERE summary_id = s.summary_id
            UNION ALL
            SELECT covered_id, position FROM summarized_summaries
            WHERE summary_id = s.summary_id
        )), '[]'
    )
"""
"""Ids of what a summary `s` digests, in order, as JSON."""
MAX_TIME = "9999"
_NEWEST = " ORDER BY s.last_activity_at DESC, s.session_id DESC LIMIT :limit"


def lineage(connection: apsw.Connection, session_id: str) -> list[tuple[str, int]]:
    """The session, then those it was forked from, each with the last index seen of its turns."""
    seen: list[tuple[str, int]] = []
    current: str | None = session_id
    last = _LAST
    while current is not None:
        parent = next(
            rows(
                connection,
                "SELECT parent_session_id, forked_at_index FROM sessions WHERE session_id = :id",
                {"id": current},
            ),
            None,
        )
        if parent is None:
            raise no_session(current)
        seen.append((current, last))
        current = parent["parent_session_id"]  # type: ignore[assignment]
        last = min(last, int(parent["forked_at_index"] or 0))
    return seen


def session(connection: apsw.Connection, session_id: str) -> Session:
    """One session."""
    found = rows(connection, f"{_SESSION} WHERE s.session_id = :id", {"id": session_id})
    for row in found:
        return _session(connection, row)
    raise no_session(session_id)


def sessions(
    connection: apsw.Connection, query: SessionQuery, horizon: str = MAX_TIME, owner: str = ""
) -> list[Session]:
    """The sessions that match, newest activity first.

    Those that are past the horizon come last: a clock was wrong when they were held.
    """
    conditions = [
        condition
        for given, condition in (
            (query.cwd is not None, "s.cwd = :cwd"),
            (query.project_ids, "s.project_id IN (SELECT value FROM json_each(:project_ids))"),
            (query.mine and owner, "s.owner = :owner"),
            (query.status is not None, "s.status = :status"),
            (
                query.tags,
                "EXISTS (SELECT 1 FROM json_each(s.tags)"
                " WHERE value IN (SELECT value FROM json_each(:tags)))",
            ),
        )
        if given
    ]
    found: list[Row] = []
    for when in ("<=", ">"):
        where = " AND ".join([*conditions, f"s.last_activity_at {when} :horizon"])
        wanted = msgspec.structs.asdict(query) | {"horizon": horizon, "owner": owner}
        wanted["limit"] = query.limit - len(found)
        if wanted["limit"] > 0:
            found += rows(connection, f"{_SESSION} WHERE {where}{_NEWEST}", wanted)
    return [_session(connection, row) for row in found]


def find_sessions(
    connection: apsw.Connection, reference: str, limit: int, owner: str = ""
) -> list[Session]:
    """Those that the reference names: by id, its tail, or the title; of one owner, or of all."""
    if not reference:
        return []
    found = rows(
        connection,
        f"{_SESSION} WHERE (substr(s.session_id, -length(:reference)) = :reference"
        f" OR s.title_key = :key) AND (:owner = '' OR s.owner = :owner){_NEWEST}",
        {"reference": reference, "key": reference.casefold(), "limit": limit, "owner": owner},
    )
    return [_session(connection, row) for row in found]


def _session(connection: apsw.Connection, row: Row) -> Session:
    if row["parent_session_id"] is None:
        return record(Session, row)
    # Shared turns may still change (one was running when it was forked): counted when read.
    shared = lineage(connection, str(row["session_id"]))[1:]
    completed = sum(
        connection.execute(
            "SELECT count(*) FROM turns"
            " WHERE session_id = ? AND turn_index <= ? AND status = 'completed'",
            seen,
        ).get
        for seen in shared
    )
    last_messages = (
        connection.execute(
            f"SELECT {bounded('user_message')} FROM turns WHERE session_id = ? AND turn_index <= ?"
            " ORDER BY turn_index DESC LIMIT 1",
            seen,
        ).get
        for seen in shared
        if row["last_message"] is None
    )
    last = next((text for text in last_messages if text is not None), row["last_message"])
    messages = int(row["message_count"] or 0) + 2 * completed
    return record(Session, row | {"message_count": messages, "last_message": last})


def turns(connection: apsw.Connection, session_id: str, query: TurnQuery) -> list[Turn]:
    """Turns in order, with their tool calls."""
    chosen = list(_chosen(connection, session_id, query))[::-1]
    calls: dict[str, list[ToolCall]] = {}
    if query.with_tool_calls:
        found = rows(
            connection,
            f"SELECT {call_fields()} FROM tool_calls"
            " WHERE turn_id IN (SELECT value FROM json_each(:ids))"
            ' ORDER BY turn_id, "order", tool_call_id',
            {"ids": tuple(str(row["turn_id"]) for row in chosen)},
        )
        for row in found:
            calls.setdefault(str(row["turn_id"]), []).append(record(ToolCall, row))
    return [
        msgspec.structs.replace(
            record(Turn, row), tool_calls=tuple(calls.get(str(row["turn_id"]), ()))
        )
        for row in chosen
    ]


def _chosen(connection: apsw.Connection, session_id: str, query: TurnQuery) -> Iterator[Row]:
    """Newest first, read no further than the query's limits."""
    count = chars = 0
    for row in _newest_first(connection, session_id, query.before_index):
        if query.statuses and row["status"] not in query.statuses:
            continue
        chars += int(row["char_count"] or 0)
        if query.limit is not None and count >= query.limit:
            return
        if query.max_chars is not None and chars > query.max_chars and count:
            return
        count += 1
        yield row


def _newest_first(
    connection: apsw.Connection, session_id: str, before_index: int | None
) -> Iterator[Row]:
    before = _LAST if before_index is None else before_index - 1
    for current, last in lineage(connection, session_id):
        yield from rows(
            connection,
            f"SELECT {turn_fields()} FROM turns WHERE session_id = :id AND turn_index <= :last"
            " ORDER BY turn_index DESC",
            {"id": current, "last": min(last, before)},
        )


def file_accesses(
    connection: apsw.Connection, session_id: str, max_turn_chars: int
) -> list[FileAccess]:
    """Accesses of the newest turns, newest first."""
    chosen = _chosen(connection, session_id, TurnQuery(max_chars=max_turn_chars))
    found = rows(
        connection,
        """
        SELECT a.*, t.turn_index, c."order"
        FROM json_each(:ids) AS chosen
        JOIN turns AS t ON t.turn_id = chosen.value
        JOIN tool_calls AS c ON c.turn_id = t.turn_id
        JOIN file_accesses AS a ON a.tool_call_id = c.tool_call_id
        ORDER BY t.turn_index DESC, c."order" DESC, a.path
        """,
        {"ids": tuple(str(row["turn_id"]) for row in chosen)},
    )
    return [record(FileAccess, row) for row in found]


def find_tool_call(connection: apsw.Connection, session_id: str, reference: str) -> ToolCall | None:
    """The newest call whose id ends with the reference."""
    for current, last in lineage(connection, session_id):
        for row in rows(
            connection,
            f"""
            SELECT {call_fields("c")} FROM turns AS t JOIN tool_calls AS c ON c.turn_id = t.turn_id
            WHERE t.session_id = :id AND t.turn_index <= :last
            AND substr(replace(c.tool_call_id, '-', ''), -length(:reference)) = :reference
            ORDER BY t.turn_index DESC LIMIT 1
            """,
            {"id": current, "last": last, "reference": reference.replace("-", "")},
        ):
            return record(ToolCall, row)
    return None


def summaries(
    connection: apsw.Connection,
    session_id: str,
    *,
    level: int | None,
    not_rolled_up: bool,
    limit: int | None,
) -> list[Summary]:
    """A session's summaries, newest first."""
    lineage(connection, session_id)
    # Those are few, however long the conversation: their index leads, not the session's.
    which = (
        "documents AS d CROSS JOIN summaries AS s ON s.summary_id = d.record_id"
        " WHERE d.to_roll_up AND d.session_id = :session_id"
        if not_rolled_up
        else "summaries AS s WHERE s.session_id = :session_id"
    )
    found = rows(
        connection,
        f"""
        SELECT s.*, {COVERS} AS covers
        FROM {which} AND (:level IS NULL OR s.level = :level)
        ORDER BY s.created_at DESC, s.rowid DESC
        LIMIT coalesce(:limit, -1)
        """,
        {"session_id": session_id, "level": level, "limit": limit},
    )
    return [record(Summary, row) for row in found]


def raw_history_chars(connection: apsw.Connection, session_id: str) -> int:
    """Characters of completed turns that no level-1 summary covers."""
    total = 0
    for current, last in lineage(connection, session_id):
        total += connection.execute(
            """
            SELECT coalesce(sum(char_count), 0) FROM turns
            WHERE session_id = ? AND turn_index <= ? AND status = 'completed'
            AND NOT EXISTS (SELECT 1 FROM summarized_turns WHERE covered_id = turns.turn_id)
            """,
            (current, last),
        ).get
    return total


def projects(connection: apsw.Connection) -> list[Project]:
    """Every project, in the order in which they became known."""
    return [
        record(Project, row) for row in rows(connection, "SELECT * FROM projects ORDER BY rowid")
    ]


def summaries_per_level(connection: apsw.Connection) -> dict[int, int]:
    """How many there are of each, lowest level first."""
    return dict(connection.execute("SELECT level, count(*) FROM summaries GROUP BY 1 ORDER BY 1"))


def counts(connection: apsw.Connection) -> dict[str, int]:
    """Records by kind."""
    found = {
        table: int(connection.execute(f"SELECT count(*) FROM {table}").get)
        for table in ("sessions", "turns", "tool_calls", "summaries", "memories", "projects")
    }
    found["files"] = connection.execute(
        """
        SELECT count(*) FROM (
            SELECT DISTINCT s.project_id, a.path FROM file_accesses AS a
            JOIN tool_calls USING (tool_call_id) JOIN turns USING (turn_id)
            JOIN sessions AS s USING (session_id)
        )
        """
    ).get
    found["scopes"] = connection.execute("SELECT count(*) FROM code_scopes").get
    return found

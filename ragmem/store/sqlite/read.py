"""Queries for sessions, turns, tool calls, summaries and memories, each within one snapshot."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from ragmem.errors import SessionNotFound
from ragmem.records import (
    ALL_TURNS,
    DEFAULT_TITLE,
    OF_SESSIONS,
    AnyRecord,
    Evidence,
    FileAccess,
    MemoryQuery,
    MemoryRecord,
    Owner,
    Profile,
    Project,
    PutTurn,
    Record,
    Session,
    SessionQuery,
    Span,
    Summary,
    ToolCall,
    Turn,
    TurnQuery,
)
from ragmem.store import (
    AHEAD,
    MOST_FOUND,
    grouped,
    in_order,
    join_conditions,
    oldest_first,
    put_turn,
)
from ragmem.store.sqlite.connection import Database, Row, record, stored_fields

_LAST = (1 << 63) - 1
_MOST_BYTES = 16 << 20
"""Maximum size of one text read: a store of an older version may hold unbounded turns."""
_LONG = frozenset(
    ("user_message", "assistant_message", "reasoning", "error", "preamble", "arguments", "result")
)


def _bounded(column: str) -> str:
    # SQLite itself cuts a text that is too long, and appends a mark.
    length = f"octet_length({column})"
    return (
        f"iif({length} <= {_MOST_BYTES}, {column}, substr({column}, 1, {_MOST_BYTES // 4})"
        f" || printf(char(10) || '… [%,d bytes: the rest is left out]', {length}))"
    )


def _selected(kind: type[msgspec.Struct], table: str, *more: str) -> str:
    return ", ".join(
        f"{_bounded(f'{table}.{name}')} AS {name}" if name in _LONG else f'{table}."{name}"'
        for name in (*stored_fields(kind), *more)
    )


_TURN = _selected(Turn, "t", "char_count")
"""The columns selected of turns `t`."""
_CALL = _selected(ToolCall, "c")
"""The columns selected of tool calls `c`."""
_SESSION = f"""
    SELECT s.*, 2 * s.completed_count AS message_count, iif(s.title = '{DEFAULT_TITLE}', (
        SELECT {_bounded("user_message")} FROM turns AS t
        WHERE t.session_id = s.session_id AND NOT EXISTS (
            SELECT 1 FROM tool_calls AS c WHERE c.turn_id = t.turn_id AND c.origin = 'person'
        ) ORDER BY t.turn_index LIMIT 1
    ), NULL) AS first_message, (
        SELECT {_bounded("user_message")} FROM turns AS t
        WHERE t.session_id = s.session_id AND t.turn_index = s.turn_count
    ) AS last_message
    FROM sessions AS s
"""
_SUMMARY = """
    SELECT s.*, coalesce(
        (SELECT json_group_array(covered_id ORDER BY position) FROM (
            SELECT covered_id, position FROM summarized_turns WHERE summary_id = s.summary_id
            UNION ALL
            SELECT covered_id, position FROM summarized_summaries
            WHERE summary_id = s.summary_id
        )), '[]'
    ) AS covers
"""
TABLES: dict[type[Record], tuple[str, str]] = {
    Project: ("projects", "project_id"),
    Session: ("sessions", "session_id"),
    Turn: ("turns", "turn_id"),
    ToolCall: ("tool_calls", "tool_call_id"),
    Summary: ("summaries", "summary_id"),
    MemoryRecord: ("memories", "memory_id"),
    **{each.record: (each.table, "session_id") for each in OF_SESSIONS},
}
"""The table of each kind of record, and its key."""
_NEWEST = "ORDER BY s.last_activity_at DESC, s.session_id DESC LIMIT :limit"
AMONG_IDS = "IN (SELECT value FROM json_each(:ids))"


def by_id(db: Database, kind: type[AnyRecord], ids: Sequence[str]) -> list[AnyRecord]:
    """Return the records with these ids, in this order, of a kind stored as one row."""
    table, key = TABLES[kind]
    return db.records(
        kind,
        f"SELECT r.* FROM json_each(:ids) AS chosen JOIN {table} AS r ON r.{key} = chosen.value"
        " ORDER BY chosen.key",
        ids=ids,
    )


# --- sessions ---------------------------------------------------------------------------


def no_session(session_id: str) -> SessionNotFound:
    """Return the error for the id of a session that does not exist."""
    return SessionNotFound(
        f"There is no session {session_id}.", hint="`ragmem sessions list` shows those there are."
    )


def need_session(db: Database, session_id: str) -> None:
    """Raise SessionNotFound if there is no such session."""
    if db.get("SELECT 1 FROM sessions WHERE session_id = :id", id=session_id) is None:
        raise no_session(session_id)


def lineage(db: Database, session_id: str) -> list[tuple[str, int]]:
    """Return the session and its ancestors, each with the last turn index seen of it."""
    seen: list[tuple[str, int]] = []
    current: str | None = session_id
    last = _LAST
    of = "SELECT parent_session_id, forked_at_index FROM sessions WHERE session_id = :id"
    while current is not None:
        parent = db.get(of, id=current)
        if parent is None:
            raise no_session(current)
        seen.append((current, last))
        current, forked_at = parent
        last = min(last, forked_at or 0)
    return seen


def session(db: Database, session_id: str) -> Session:
    """Return one session."""
    for found in _sessions(db, "WHERE s.session_id = :id", id=session_id):
        return found
    raise no_session(session_id)


def sessions(db: Database, query: SessionQuery) -> list[Session]:
    """Return the sessions that match; those with a time in the future, from a wrong clock, last."""
    sees = db.access.sees if query.mine else ""
    of_tags = (
        "EXISTS (SELECT 1 FROM json_each(s.tags)"
        " WHERE value IN (SELECT value FROM json_each(:tags)))"
    )
    conditions = join_conditions(
        (query.cwd is not None, "s.cwd = :cwd"),
        (query.project_ids, "s.project_id IN (SELECT value FROM json_each(:project_ids))"),
        (sees, "s.owner = :owner"),
        (query.status is not None, "s.status = :status"),
        (query.tags, of_tags),
    )
    asked = msgspec.structs.asdict(query) | {"owner": sees, "horizon": db.now + AHEAD}
    found: list[Session] = []
    for when in ("<=", ">"):
        asked["limit"] = query.limit - len(found)
        if asked["limit"] > 0:
            where = f"WHERE {conditions} AND s.last_activity_at {when} :horizon {_NEWEST}"
            found += _sessions(db, where, **asked)
    return found


def find_sessions(db: Database, reference: str, *, mine: bool = False) -> list[Session]:
    """Find sessions by the end of their id, or their title; with `mine` only the owner's own."""
    if not reference:
        return []
    where = f"""
        WHERE (substr(s.session_id, -length(:reference)) = :reference OR s.title_key = :key)
        AND (:owner = '' OR s.owner = :owner) {_NEWEST}
    """
    owner, key = db.access.sees if mine else "", reference.casefold()
    return _sessions(db, where, reference=reference, key=key, limit=MOST_FOUND, owner=owner)


def sessions_by_id(db: Database, ids: Sequence[str]) -> list[Session]:
    """Return those sessions that exist, in this order."""
    return in_order(_sessions(db, f"WHERE s.session_id {AMONG_IDS}", ids=ids), ids)


def branches(db: Database, session_id: str) -> list[Session]:
    """Return the sessions forked from this one, oldest first."""
    where = "WHERE s.parent_session_id = :id ORDER BY s.started_at, s.session_id"
    return _sessions(db, where, id=session_id)


def _sessions(db: Database, rest: str, **given: object) -> list[Session]:
    return [_session_from_row(db, row) for row in list(db.rows(f"{_SESSION} {rest}", **given))]


def _session_from_row(db: Database, row: Row) -> Session:
    if row["parent_session_id"] is None:
        return record(Session, row)
    # Shared turns may still change (one was running at the fork), so they are counted on read.
    for session_id, last in lineage(db, row["session_id"])[1:]:
        of = "FROM turns WHERE session_id = :id AND turn_index <= :last"
        row["message_count"] += 2 * db.get(
            f"SELECT count(*) {of} AND status = 'completed'", id=session_id, last=last
        )
        if row["last_message"] is None:
            newest = f"SELECT {_bounded('user_message')} {of} ORDER BY turn_index DESC LIMIT 1"
            row["last_message"] = db.get(newest, id=session_id, last=last)
    return record(Session, row)


# --- turns ------------------------------------------------------------------------------


def turns(db: Database, session_id: str, query: TurnQuery = ALL_TURNS) -> list[Turn]:
    """Return turns in order, with their tool calls."""
    chosen = list(_matching_rows(db, session_id, query))[::-1]
    return _with_calls(db, chosen) if query.with_tool_calls else [record(Turn, r) for r in chosen]


def turns_by_id(db: Database, ids: Sequence[str]) -> list[Turn]:
    """Return those turns that exist, in this order, with their tool calls."""
    found = db.rows(
        f"SELECT {_TURN} FROM json_each(:ids) AS chosen"
        " JOIN turns AS t ON t.turn_id = chosen.value ORDER BY chosen.key",
        ids=ids,
    )
    return _with_calls(db, found)


def own_turns(db: Database, spans: Sequence[Span]) -> list[PutTurn]:
    """Return the turns in these spans, each with its tool calls and their accesses."""
    of_span = (
        f"SELECT {_TURN} FROM turns AS t WHERE session_id = :session_id"
        " AND turn_index BETWEEN :first AND :last ORDER BY turn_index"
    )
    rows = (db.rows(of_span, **msgspec.structs.asdict(span)) for span in spans)
    found = _with_calls(db, chain.from_iterable(rows))
    ids = [turn.turn_id for turn in found]
    accesses = grouped(
        (row["tool_call_id"], record(FileAccess, row))
        for row in _accesses(db, ids, "a.path, a.access_type")
    )
    due = (
        f"SELECT record_id FROM documents WHERE to_extract AND level = 0 AND record_id {AMONG_IDS}"
    )
    to_extract = set(db.column(due, ids=ids))
    return [put_turn(turn, accesses, to_extract=turn.turn_id in to_extract) for turn in found]


def _with_calls(db: Database, rows: Iterable[Row]) -> list[Turn]:
    found = [record(Turn, row) for row in rows]
    of_turns = db.records(
        ToolCall,
        f"SELECT {_CALL} FROM tool_calls AS c WHERE turn_id {AMONG_IDS}"
        ' ORDER BY turn_id, "order", tool_call_id',
        ids=[turn.turn_id for turn in found],
    )
    calls = grouped((call.turn_id, call) for call in of_turns)
    return [
        msgspec.structs.replace(turn, tool_calls=tuple(calls.get(turn.turn_id, ())))
        for turn in found
    ]


def _matching_rows(db: Database, session_id: str, query: TurnQuery) -> Iterator[Row]:
    """Yield the rows of the turns that a query asks for, newest first, up to its limits."""
    count = chars = 0
    for row in _newest_first(db, session_id, query.before_index):
        if query.statuses and row["status"] not in query.statuses:
            continue
        chars += row["char_count"]
        if query.limit is not None and count >= query.limit:
            return
        if query.max_chars is not None and chars > query.max_chars and count:
            return
        count += 1
        yield row


def _newest_first(db: Database, session_id: str, before_index: int | None) -> Iterator[Row]:
    before = _LAST if before_index is None else before_index - 1
    for current, last in lineage(db, session_id):
        yield from db.rows(
            f"SELECT {_TURN} FROM turns AS t WHERE session_id = :id AND turn_index <= :last"
            " ORDER BY turn_index DESC",
            id=current,
            last=min(last, before),
        )


def file_accesses(db: Database, session_id: str, *, max_turn_chars: int) -> list[FileAccess]:
    """Return accesses of the newest turns, newest first."""
    chosen = _matching_rows(db, session_id, TurnQuery(max_chars=max_turn_chars))
    ids = [row["turn_id"] for row in chosen]
    found = _accesses(db, ids, 't.turn_index DESC, c."order" DESC, a.path')
    return [record(FileAccess, row) for row in found]


def _accesses(db: Database, turn_ids: Sequence[str], order: str) -> Iterator[Row]:
    return db.rows(
        f"""
        SELECT a.*, t.turn_index, c."order"
        FROM json_each(:ids) AS chosen
        JOIN turns AS t ON t.turn_id = chosen.value
        JOIN tool_calls AS c ON c.turn_id = t.turn_id
        JOIN file_accesses AS a ON a.tool_call_id = c.tool_call_id
        ORDER BY {order}
        """,
        ids=turn_ids,
    )


def find_tool_call(db: Database, session_id: str, reference: str) -> ToolCall | None:
    """Return the newest call whose id ends with the reference."""
    for current, last in lineage(db, session_id):
        for call in db.records(
            ToolCall,
            f"""
            SELECT {_CALL} FROM turns AS t JOIN tool_calls AS c ON c.turn_id = t.turn_id
            WHERE t.session_id = :id AND t.turn_index <= :last
            AND substr(replace(c.tool_call_id, '-', ''), -length(:reference)) = :reference
            ORDER BY t.turn_index DESC LIMIT 1
            """,
            id=current,
            last=last,
            reference=reference.replace("-", ""),
        ):
            return call
    return None


def raw_history_chars(db: Database, session_id: str) -> int:
    """Count the characters of completed turns that no level-1 summary covers."""
    of = """
        SELECT coalesce(sum(char_count), 0) FROM turns
        WHERE session_id = :id AND turn_index <= :last AND status = 'completed'
        AND NOT EXISTS (SELECT 1 FROM summarized_turns WHERE covered_id = turns.turn_id)
    """
    return sum(db.get(of, id=current, last=last) for current, last in lineage(db, session_id))


# --- summaries --------------------------------------------------------------------------


def summaries(
    db: Database,
    session_id: str,
    *,
    level: int | None = None,
    not_rolled_up: bool = False,
    limit: int | None = None,
) -> list[Summary]:
    """Return a session's summaries, newest first."""
    need_session(db, session_id)
    # Summaries not rolled up are few in any session, so their index leads, not the session's.
    which = (
        "documents AS d CROSS JOIN summaries AS s ON s.summary_id = d.record_id"
        " WHERE d.to_roll_up AND d.session_id = :session_id"
        if not_rolled_up
        else "summaries AS s WHERE s.session_id = :session_id"
    )
    return db.records(
        Summary,
        f"""
        {_SUMMARY} FROM {which} AND (:level IS NULL OR s.level = :level)
        ORDER BY s.created_at DESC, s.rowid DESC LIMIT coalesce(:limit, -1)
        """,
        session_id=session_id,
        level=level,
        limit=limit,
    )


def summaries_by_id(db: Database, ids: Sequence[str]) -> list[Summary]:
    """Return those summaries that exist, in this order."""
    return db.records(
        Summary,
        f"{_SUMMARY} FROM json_each(:ids) AS chosen"
        " JOIN summaries AS s ON s.summary_id = chosen.value ORDER BY chosen.key",
        ids=ids,
    )


# --- memories ----------------------------------------------------------------------------

FAMILY = """
    WITH roots (project_id) AS (
        SELECT DISTINCT coalesce(p.joined_into, asked.value)
        FROM json_each(:project_ids) AS asked
        LEFT JOIN projects AS p ON p.project_id = asked.value
    )
    SELECT project_id FROM roots
    UNION SELECT p.project_id FROM projects AS p JOIN roots ON p.joined_into = roots.project_id
"""
"""These projects, those that they were joined to, and all that were joined to those."""
SEEN = "(:owner = '' OR m.project_id IS NOT NULL OR m.owner = :owner)"
"""What an owner is shown: memories about a person are visible to that person alone."""
_NEWEST_MEMORY = "ORDER BY m.created_at DESC, m.memory_id DESC"


def memories(db: Database, query: MemoryQuery) -> list[MemoryRecord]:
    """Return those that match, newest first."""
    of_subjects = (
        "EXISTS (SELECT 1 FROM json_each(m.subjects)"
        " WHERE value IN (SELECT value FROM json_each(:subjects)))"
    )
    of_sessions = (
        "m.memory_id IN (SELECT memory_id FROM evidence"
        " WHERE session_id IN (SELECT value FROM json_each(:session_ids)))"
    )
    conditions = join_conditions(
        (not query.everywhere, f"({_scope_condition(query)})"),
        (query.kinds, "m.kind IN (SELECT value FROM json_each(:kinds))"),
        (query.subjects, of_subjects),
        (query.session_ids, of_sessions),
        (db.access.sees, SEEN),
        (query.pinned is not None, "m.pinned = :pinned"),
        (not query.with_superseded, "m.superseded_by IS NULL"),
        (query.alive_at is not None, "(m.expires_at IS NULL OR m.expires_at > :alive_at)"),
    )
    asked = msgspec.structs.asdict(query)
    asked["subjects"] = tuple(subject.casefold() for subject in query.subjects)
    asked["limit"] = -1 if query.limit is None else query.limit
    return _memories(db, f"WHERE {conditions} {_NEWEST_MEMORY} LIMIT :limit", **asked)


def _scope_condition(query: MemoryQuery) -> str:
    """Return the condition for memories of the query's projects, or user-wide ones."""
    parts = [f"m.project_id IN ({FAMILY})"] if query.project_ids else []
    parts += ["m.project_id IS NULL"] if query.user_wide else []
    return " OR ".join(parts) or "FALSE"


def memories_by_id(db: Database, ids: Sequence[str]) -> list[MemoryRecord]:
    """Return those memories that exist, in this order."""
    return _memories(
        db,
        "JOIN json_each(:ids) AS chosen ON chosen.value = m.memory_id"
        f" WHERE {SEEN} ORDER BY chosen.key",
        ids=ids,
    )


def find_memories(db: Database, reference: str) -> list[MemoryRecord]:
    """Find memories whose id is, or ends with, the reference."""
    tail = reference.replace("-", "")
    where = f"""
        WHERE :tail <> '' AND substr(replace(m.memory_id, '-', ''), -length(:tail)) = :tail
        AND {SEEN} {_NEWEST_MEMORY} LIMIT {MOST_FOUND}
    """
    return _memories(db, where, tail=tail)


def superseded_by(db: Database, memory_id: str) -> list[MemoryRecord]:
    """Return all that this memory superseded, directly or through others; newest first."""
    older = set(with_older(db, [memory_id])) - {memory_id}
    return _memories(
        db, f"WHERE m.memory_id {AMONG_IDS} AND {SEEN} {_NEWEST_MEMORY}", ids=list(older)
    )


def _memories(db: Database, rest: str, **given: object) -> list[MemoryRecord]:
    # Memories of a joined project keep its own id in the table: a split finds them by it.
    root = "(SELECT joined_into FROM projects AS p WHERE p.project_id = m.project_id)"
    statement = f"""
        SELECT m.*, coalesce({root}, m.project_id) AS project_id,
            iif({root} <> m.project_id, m.project_id, NULL) AS joined_from
        FROM memories AS m {rest}
    """
    found = db.records(MemoryRecord, statement, owner=db.access.sees, **given)
    evidence = db.rows(
        f"SELECT * FROM evidence WHERE memory_id {AMONG_IDS} ORDER BY memory_id, position",
        ids=[memory.memory_id for memory in found],
    )
    places = grouped((row["memory_id"], record(Evidence, row)) for row in evidence)
    return [
        msgspec.structs.replace(memory, evidence=tuple(places.get(memory.memory_id, ())))
        for memory in found
    ]


def memories_revision(db: Database) -> int:
    """Return a number that goes up with each transaction that changes memories."""
    return int(db.get("SELECT memories_revision FROM recall_state"))


def memory_ids(db: Database) -> list[str]:
    """Return the id of every memory, each after those that it superseded."""
    return oldest_first(
        db.tuples("SELECT memory_id, superseded_by FROM memories ORDER BY created_at, memory_id")
    )


def with_older(db: Database, wanted: Sequence[str]) -> list[str]:
    """Return the ids of those that exist, and of all that they superseded, directly or not."""
    return db.column(
        f"""
        WITH RECURSIVE chain (memory_id) AS (
            SELECT memory_id FROM memories WHERE memory_id {AMONG_IDS}
            UNION
            SELECT m.memory_id FROM chain JOIN memories AS m ON m.superseded_by = chain.memory_id
        )
        SELECT memory_id FROM chain
        """,
        ids=wanted,
    )


def profile(db: Database) -> Profile:
    """Return the owner's profile, or anybody's if they have none and the store shows all."""
    own = _profile(db, db.access.owner)
    others = [] if own.values or db.access.sees else profiles(db)
    return others[0] if others else own


def profiles(db: Database) -> list[Profile]:
    """Return the profile of every owner."""
    return [
        _profile(db, each) for each in db.column("SELECT DISTINCT owner FROM profile ORDER BY 1")
    ]


def _profile(db: Database, owner: str) -> Profile:
    held = db.query(
        "SELECT key, value FROM profile WHERE owner = :owner ORDER BY rowid", owner=owner
    )
    at = db.get("SELECT updated_at FROM profile_state WHERE owner = :owner", owner=owner)
    return record(Profile, {"values": dict(held), "updated_at": at, "owner": owner})


def owners(db: Database) -> list[Owner]:
    """Return everybody who owns something here, or has a name."""
    return db.records(
        Owner,
        """
        SELECT known.owner AS owner_id, coalesce(n.name, '') AS name, n.at AS named_at
        FROM (
            SELECT owner FROM sessions UNION SELECT owner FROM memories
            UNION SELECT owner FROM profile UNION SELECT owner FROM owner_names
        ) AS known
        LEFT JOIN owner_names AS n ON n.owner = known.owner
        WHERE known.owner <> '' ORDER BY known.owner
        """,
    )


def others(db: Database) -> list[Owner]:
    """Return the owners except the one that the store was opened for; none if that is everyone."""
    sees = db.access.sees
    return [each for each in owners(db) if each.owner_id != sees] if sees else []


# --- all of it --------------------------------------------------------------------------


def projects(db: Database) -> list[Project]:
    """Return every project, in the order in which they were registered."""
    return db.records(Project, "SELECT * FROM projects ORDER BY rowid")


def root_of(db: Database, project_id: str | None) -> str | None:
    """Return the project that this one was joined to, else its own id; None for None."""
    return joined_into(db, project_id) or project_id


def joined_into(db: Database, project_id: str | None) -> str | None:
    """Return the project that this one was joined to, or None."""
    of = "SELECT joined_into FROM projects WHERE project_id = :id"
    into: str | None = db.get(of, id=project_id)
    return into


def spans(db: Database) -> list[Span]:
    """Return a span for every session, of all its own turns."""
    return [
        Span(session_id, (forked_at or 0) + 1, count, parent_id)
        for session_id, forked_at, count, parent_id in db.tuples(
            "SELECT session_id, forked_at_index, turn_count, parent_session_id FROM sessions"
            " ORDER BY session_id"
        )
    ]


def summary_ids(db: Database) -> list[str]:
    """Return the ids of every summary, lower levels first."""
    return db.column("SELECT summary_id FROM summaries ORDER BY level, summary_id")


def summaries_per_level(db: Database) -> dict[int, int]:
    """Count the summaries of each level, lowest level first."""
    return dict(db.tuples("SELECT level, count(*) FROM summaries GROUP BY 1 ORDER BY 1"))


def counts(db: Database) -> dict[str, int]:
    """Count the records by kind."""
    tables = ("sessions", "turns", "tool_calls", "summaries", "memories", "projects")
    found = {table: db.get(f"SELECT count(*) FROM {table}") for table in tables}
    found["files"] = db.get(
        """
        SELECT count(*) FROM (
            SELECT DISTINCT s.project_id, a.path FROM file_accesses AS a
            JOIN tool_calls USING (tool_call_id) JOIN turns USING (turn_id)
            JOIN sessions AS s USING (session_id)
        )
        """
    )
    return found | {"scopes": db.get("SELECT count(*) FROM code_scopes")}

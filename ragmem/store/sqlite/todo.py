"""What is still to be done for recall: found in what is stored, leased while it is done."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice

import apsw
import msgspec

from ragmem.records import UNSUMMARIZED
from ragmem.store.recall import WORK, Pending, Work
from ragmem.store.sqlite import code, reads
from ragmem.store.sqlite.owners import OwnerLocks
from ragmem.store.sqlite.rows import iso, rows, value

_COUNTED = 1000
_LONGEST = timedelta(days=1)
"""A lease that ends later was given by a wrong clock."""
_DOCUMENTS = """
    SELECT at, session_id, record_id, level FROM documents
    WHERE {flag} AND (:session_id IS NULL OR session_id = :session_id)
    ORDER BY at {order}, document {order}
"""
# What one person said is compared with what is known of them: by their own processes.
_OWN = """
    (:person = '' OR EXISTS (
        SELECT 1 FROM sessions AS s
        WHERE s.session_id = documents.session_id AND s.owner IN ('', :person)
    ))
"""
_SUMS_UP = f"s.tags NOT LIKE '%\"{UNSUMMARIZED}\"%'"
_OF_SUMMED_UP = f"""
    EXISTS (SELECT 1 FROM sessions AS s WHERE s.session_id = documents.session_id AND {_SUMS_UP})
"""
_MEMORIES = """
    SELECT updated_at AS at, '' AS session_id, memory_id AS record_id, -1 AS level FROM memories
    WHERE to_embed AND :session_id IS NULL
        AND (:person = '' OR project_id IS NOT NULL OR owner = :person)
    ORDER BY updated_at DESC, memory_id DESC
"""
_SUMMARIZED = """
    SELECT last_activity_at AS at, session_id, session_id AS record_id, -2 AS level FROM sessions
    WHERE to_embed AND (:session_id IS NULL OR session_id = :session_id)
    ORDER BY last_activity_at DESC, session_id DESC
"""
_SESSIONS = """
    SELECT session_id, {more} FROM sessions AS s
    WHERE {condition} AND (:session_id IS NULL OR session_id = :session_id)
    ORDER BY last_activity_at DESC, session_id DESC
"""
_TO_LINK = """
    SELECT at, session_id, record_id, level FROM documents
    WHERE to_link AND number = :number ORDER BY at DESC, document DESC
"""
_TO_LINK_OF_SESSION = """
    SELECT at, session_id, record_id, level FROM documents INDEXED BY documents_by_session
    WHERE session_id = :session_id AND level = 0 AND to_link AND number = :number
    ORDER BY at DESC, document DESC
"""
# The conditions of partial indexes stand here as they do in 0003_recall.sql and
# 0004_memories.sql: else none is used.
_QUERIES: dict[Work, tuple[str, ...]] = {
    "vectors": (_DOCUMENTS.format(flag="to_embed", order="DESC"), _MEMORIES, _SUMMARIZED),
    "level1": (_DOCUMENTS.format(flag=f"to_summarize AND {_OF_SUMMED_UP}", order="DESC"),),
    "memories": (_DOCUMENTS.format(flag=f"to_extract AND {_OWN}", order="ASC"),),
    "roll_up": (
        _SESSIONS.format(
            more="""
            (SELECT json_group_array(level) FROM (
                SELECT level FROM documents AS d WHERE to_roll_up AND d.session_id = s.session_id
                GROUP BY level HAVING count(*) > 1 ORDER BY level
            )) AS levels
        """,
            condition="EXISTS (SELECT 1 FROM documents AS d"
            f" WHERE to_roll_up AND d.session_id = s.session_id) AND {_SUMS_UP}",
        ),
    ),
    "thread": (
        _SESSIONS.format(
            more="parent_session_id",
            condition="(2 * completed_count > summarized_count OR parent_session_id IS NOT NULL)"
            f" AND {_SUMS_UP}",
        ),
    ),
}


def pending(
    connection: apsw.Connection,
    work: Work,
    limit: int,
    session_id: str | None,
    now: datetime,
    held: OwnerLocks,
    person: str = "",
) -> list[Pending]:
    """What is to be done and no living owner's, that of the latest activity first."""
    found = connection.execute(
        "SELECT key, owner_id FROM leases WHERE until > ?", (iso(now),)
    ).fetchall()
    living = {owner for owner in {str(owner) for _, owner in found} if held.lives(owner)}
    leased = {key for key, owner in found if owner in living}
    free = (item for item in _items(connection, work, session_id, person) if item.key not in leased)
    return list(islice(free, max(0, limit)))


def _items(
    connection: apsw.Connection, work: Work, session_id: str | None, person: str
) -> Iterator[Pending]:
    asked: dict[str, object] = {"session_id": session_id, "person": person}
    if work == "references":
        numbers = code.numbers_with_code(connection)
        query = _TO_LINK if session_id is None else _TO_LINK_OF_SESSION
        found = [rows(connection, query, asked | {"number": each}) for each in numbers]
    else:
        found = [rows(connection, query, asked) for query in _QUERIES[work]]
    merged = merge(*found, key=lambda row: str(row["at"]), reverse=True)
    for row in found[0] if len(found) == 1 else merged:
        owner = str(row["session_id"])
        match work:
            case "vectors" | "level1" | "memories" | "references":
                level = int(row["level"] or 0)
                record_id = str(row["record_id"])
                yield Pending(work=work, session_id=owner, record_id=record_id, level=level)
            case "roll_up":
                for level in msgspec.json.decode(str(row["levels"]), type=list[int]):
                    yield Pending(work=work, session_id=owner, record_id=owner, level=level)
            case "thread":
                if row["parent_session_id"] is None or _is_behind(connection, owner):
                    yield Pending(work=work, session_id=owner, record_id=owner)


def _is_behind(connection: apsw.Connection, session_id: str) -> bool:
    """Whether a fork has more messages than its summary tells of: what it shares counts too."""
    session = reads.session(connection, session_id)
    return session.message_count > session.summarized_count


def count_pending(
    connection: apsw.Connection, now: datetime, held: OwnerLocks, person: str = ""
) -> dict[Work, int]:
    """How much of each there is, at most a thousand."""
    return {
        work: len(pending(connection, work, _COUNTED, None, now, held, person)) for work in WORK
    }


def claim(
    connection: apsw.Connection,
    keys: Sequence[str],
    owner_id: str,
    seconds: float,
    now: datetime,
    held: OwnerLocks,
) -> list[str]:
    """Lease what is free, a dead owner's, or this owner's already; which they are."""
    held.hold(owner_id)
    others = connection.execute(
        "SELECT DISTINCT owner_id FROM leases WHERE owner_id <> ?", (value(owner_id),)
    ).fetchall()
    for other in (str(other) for (other,) in others):
        if not held.lives(other):
            connection.execute("DELETE FROM leases WHERE owner_id = ?", (value(other),))
    connection.execute(
        "DELETE FROM leases WHERE until <= ? OR until > ?", (iso(now), iso(now + _LONGEST))
    )
    until = iso(now + timedelta(seconds=seconds))
    mine = []
    for key in keys:
        connection.execute(
            "INSERT INTO leases (key, owner_id, until) VALUES (?, ?, ?)"
            " ON CONFLICT (key) DO UPDATE SET until = excluded.until"
            " WHERE owner_id = excluded.owner_id",
            (value(key), value(owner_id), until),
        )
        if connection.changes():
            mine.append(key)
    return mine


def release(connection: apsw.Connection, keys: Sequence[str], owner_id: str) -> None:
    """End these leases, where they are the owner's."""
    for key in keys:
        connection.execute(
            "DELETE FROM leases WHERE key = ? AND owner_id = ?", (value(key), value(owner_id))
        )


def forget_session(connection: apsw.Connection, session_id: str) -> None:
    """End the leases of a session that is deleted, and of its records."""
    connection.execute(
        """
        DELETE FROM leases WHERE key IN (
            SELECT 'vectors:' || level || ':' || record_id FROM documents WHERE session_id = :id
            UNION ALL SELECT 'level1:0:' || record_id FROM documents WHERE session_id = :id
            UNION ALL SELECT 'memories:0:' || record_id FROM documents WHERE session_id = :id
            UNION ALL SELECT 'references:0:' || record_id FROM documents WHERE session_id = :id
            UNION ALL SELECT 'roll_up:' || level || ':' || :id FROM documents
                WHERE session_id = :id
            UNION ALL SELECT 'thread:0:' || :id
            UNION ALL SELECT 'vectors:-2:' || :id
        )
        """,
        {"id": session_id},
    )

"""Pending work, derived from what is stored; leases on it; failed attempts at it."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from heapq import merge
from itertools import islice

import msgspec

from ragmem.records import UNSUMMARIZED, WORK, Attempts, Pending, Work
from ragmem.store.sqlite import code
from ragmem.store.sqlite.connection import Database, Row, columns
from ragmem.store.sqlite.read import session

_COUNT_LIMIT = 1000
_MAX_LEASE = timedelta(days=1)
"""A lease that ends later than this was given by a wrong clock."""


# --- pending work -----------------------------------------------------------------------

_DOCUMENTS = """
    SELECT at, session_id, record_id, level FROM documents
    WHERE {flag} ORDER BY at {order}, document {order}
"""
# Only processes of the user who said it extract memories: they compare it with the user's others.
_BY_OWNER = """
    (:person = '' OR EXISTS (
        SELECT 1 FROM sessions AS s
        WHERE s.session_id = documents.session_id AND s.owner IN ('', :person)
    ))
"""
_SUMMARIZED = f"s.tags NOT LIKE '%\"{UNSUMMARIZED}\"%'"
_OF_SUMMARIZED_SESSION = f"""
    EXISTS (SELECT 1 FROM sessions AS s WHERE s.session_id = documents.session_id AND {_SUMMARIZED})
"""
_MEMORIES = """
    SELECT updated_at AS at, '' AS session_id, memory_id AS record_id, -1 AS level FROM memories
    WHERE to_embed AND (:person = '' OR project_id IS NOT NULL OR owner = :person)
    ORDER BY updated_at DESC, memory_id DESC
"""
_SESSION_SUMMARIES = """
    SELECT last_activity_at AS at, session_id, session_id AS record_id, -2 AS level FROM sessions
    WHERE to_embed ORDER BY last_activity_at DESC, session_id DESC
"""
_SESSIONS = """
    SELECT session_id, session_id AS record_id, {more} FROM sessions AS s
    WHERE {condition} ORDER BY last_activity_at DESC, session_id DESC
"""
_LEVELS = """
    (SELECT json_group_array(level) FROM (
        SELECT level FROM documents AS d WHERE to_roll_up AND d.session_id = s.session_id
        GROUP BY level HAVING count(*) > 1 ORDER BY level
    )) AS levels
"""
_TO_LINK = """
    SELECT at, session_id, record_id, level FROM documents
    WHERE to_link AND number = :number ORDER BY at DESC, document DESC
"""
# The conditions of partial indexes are spelled as in 0003_recall.sql and 0004_memories.sql:
# otherwise the indexes aren't used.
QUERIES: dict[Work, tuple[str, ...]] = {
    "vectors": (_DOCUMENTS.format(flag="to_embed", order="DESC"), _MEMORIES, _SESSION_SUMMARIES),
    "level1": (_DOCUMENTS.format(flag=f"to_summarize AND {_OF_SUMMARIZED_SESSION}", order="DESC"),),
    "memories": (_DOCUMENTS.format(flag=f"to_extract AND {_BY_OWNER}", order="ASC"),),
    "roll_up": (
        _SESSIONS.format(
            more=_LEVELS,
            condition="EXISTS (SELECT 1 FROM documents AS d"
            f" WHERE to_roll_up AND d.session_id = s.session_id) AND {_SUMMARIZED}",
        ),
    ),
    "thread": (
        _SESSIONS.format(
            more="parent_session_id",
            condition="(2 * completed_count > summarized_count OR parent_session_id IS NOT NULL)"
            f" AND {_SUMMARIZED}",
        ),
    ),
}


def pending(db: Database, work: Work, *, limit: int) -> list[Pending]:
    """Return pending work without a living owner's lease, latest activity first."""
    found = db.tuples("SELECT key, owner_id FROM leases WHERE until > :now", now=db.now)
    living = {owner for owner in {owner for _, owner in found} if db.access.locks.lives(owner)}
    leased = {key for key, owner in found if owner in living}
    free = (item for item in _items(db, work) if item.key not in leased)
    return list(islice(free, max(0, limit)))


def count_pending(db: Database) -> dict[Work, int]:
    """Count the pending work of each kind, up to a thousand."""
    return {work: len(pending(db, work, limit=_COUNT_LIMIT)) for work in WORK}


def _items(db: Database, work: Work) -> Iterator[Pending]:
    for row in _waiting(db, work):
        if work == "thread" and row["parent_session_id"] is not None:
            # Whether a fork has more messages than its summary covers; shared ones count too.
            fork = session(db, row["session_id"])
            if fork.message_count <= fork.summarized_count:
                continue
        levels = row.get("level", 0)
        for level in msgspec.json.decode(row["levels"]) if work == "roll_up" else [levels]:
            yield Pending(
                work=work, session_id=row["session_id"], record_id=row["record_id"], level=level
            )


def _waiting(db: Database, work: Work) -> Iterator[Row]:
    if work == "references":
        found = [db.rows(_TO_LINK, number=number) for number in code.numbers_with_code(db)]
    else:
        found = [db.rows(query, person=db.access.sees) for query in QUERIES[work]]
    if len(found) == 1:
        return found[0]
    return merge(*found, key=lambda row: str(row["at"]), reverse=True)


# --- leases -----------------------------------------------------------------------------


def claim(db: Database, keys: Sequence[str], owner_id: str, *, seconds: float) -> list[str]:
    """Lease the keys that are free, a dead owner's, or this owner's already; return those."""
    if not keys:
        return []
    db.access.locks.hold(owner_id)
    for other in db.column(
        "SELECT DISTINCT owner_id FROM leases WHERE owner_id <> :id", id=owner_id
    ):
        if not db.access.locks.lives(other):
            db.query("DELETE FROM leases WHERE owner_id = :id", id=other)
    db.query(
        "DELETE FROM leases WHERE until <= :now OR until > :last",
        now=db.now,
        last=db.now + _MAX_LEASE,
    )
    mine = []
    for key in keys:
        db.query(
            "INSERT INTO leases (key, owner_id, until) VALUES (:key, :id, :until)"
            " ON CONFLICT (key) DO UPDATE SET until = excluded.until"
            " WHERE owner_id = excluded.owner_id",
            key=key,
            id=owner_id,
            until=db.now + timedelta(seconds=seconds),
        )
        if db.changes():
            mine.append(key)
    return mine


def release(db: Database, keys: Sequence[str], owner_id: str) -> None:
    """Release those of these leases that are the owner's."""
    for key in keys:
        db.query("DELETE FROM leases WHERE key = :key AND owner_id = :id", key=key, id=owner_id)


def forget_session(db: Database, session_id: str) -> None:
    """Release the leases on a deleted session and its records; forget its attempts."""
    forget_attempts(db, session_id)
    db.query(
        """
        DELETE FROM leases WHERE key IN (
            SELECT work.value || ':0:' || record_id FROM documents,
                json_each('["level1", "memories", "references"]') AS work WHERE session_id = :id
            UNION ALL SELECT 'vectors:' || level || ':' || record_id FROM documents
                WHERE session_id = :id
            UNION ALL SELECT 'roll_up:' || level || ':' || :id FROM documents
                WHERE session_id = :id
            UNION ALL SELECT 'thread:0:' || :id
            UNION ALL SELECT 'vectors:-2:' || :id
        )
        """,
        id=session_id,
    )


# --- failed attempts ----------------------------------------------------------------------

_ATTEMPTS = """
    CREATE TABLE IF NOT EXISTS refused (
        item TEXT PRIMARY KEY, session_id TEXT NOT NULL, model TEXT NOT NULL,
        count INTEGER NOT NULL, not_before TEXT NOT NULL, problem TEXT NOT NULL
    ) WITHOUT ROWID
"""
"""Created with the first attempt: a database without this table has none."""


def attempts(db: Database, item: str = "", *, least: int = 1) -> list[Attempts]:
    """Return the attempts at an item, or at all; the latest last."""
    if not _has_attempts(db):
        return []
    return db.records(
        Attempts,
        "SELECT * FROM refused WHERE count >= :least AND (:item = '' OR item = :item)"
        " ORDER BY not_before, item",
        item=item,
        least=least,
    )


def keep_attempts(db: Database, attempts: Attempts) -> None:
    """Store these attempts, in place of earlier ones at their item."""
    db.execute(_ATTEMPTS)
    db.put("refused", columns(attempts), "item")


def forget_attempts(db: Database, session_id: str, item: str = "") -> None:
    """Forget the attempts of a session, or at one of its items."""
    if _has_attempts(db):
        db.query(
            "DELETE FROM refused WHERE session_id = :id AND (:item = '' OR item = :item)",
            id=session_id,
            item=item,
        )


def _has_attempts(db: Database) -> bool:
    there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'refused'"
    return db.get(there) is not None

"""Memories, the profile, people: read, written, forgotten."""

from collections.abc import Iterable, Sequence

import msgspec

from ragmem.failpoints import failpoint
from ragmem.records import (
    MEMORY_LEVEL,
    Evidence,
    MarkExtracted,
    MemoryQuery,
    MemoryRecord,
    Owner,
    Profile,
    PutMemory,
    PutOwner,
    PutProfile,
)
from ragmem.store.base import anothers
from ragmem.store.sqlite import vectors
from ragmem.store.sqlite.connection import Database, columns, record, value
from ragmem.store.sqlite.read import AMONG_IDS, those_given

_SEEN = "(:owner = '' OR m.project_id IS NOT NULL OR m.owner = :owner)"
"""What an owner is shown: what is about a person is seen by that person alone."""
_NEWEST = "ORDER BY m.created_at DESC, m.memory_id DESC"


# --- reading ----------------------------------------------------------------------------


def memories(db: Database, query: MemoryQuery) -> list[MemoryRecord]:
    """Those that match, newest first."""
    of_subjects = (
        "EXISTS (SELECT 1 FROM json_each(m.subjects)"
        " WHERE value IN (SELECT value FROM json_each(:subjects)))"
    )
    of_session = "m.memory_id IN (SELECT memory_id FROM evidence WHERE session_id = :session_id)"
    conditions = those_given(
        (not query.everywhere, f"({_whose(query)})"),
        (query.kinds, "m.kind IN (SELECT value FROM json_each(:kinds))"),
        (query.subjects, of_subjects),
        (query.session_id is not None, of_session),
        (db.access.sees, _SEEN),
        (query.pinned is not None, "m.pinned = :pinned"),
        (not query.with_superseded, "m.superseded_by IS NULL"),
        (query.alive_at is not None, "(m.expires_at IS NULL OR m.expires_at > :alive_at)"),
    )
    asked = msgspec.structs.asdict(query)
    asked["subjects"] = tuple(subject.casefold() for subject in query.subjects)
    asked["limit"] = -1 if query.limit is None else query.limit
    return _memories(db, f"WHERE {conditions} {_NEWEST} LIMIT :limit", **asked)


def _whose(query: MemoryQuery) -> str:
    """Those of the projects, one that was joined being the other; and the person's."""
    chosen = """
        m.project_id IN (
            SELECT coalesce(p.joined_into, asked.value)
            FROM json_each(:project_ids) AS asked
            LEFT JOIN projects AS p ON p.project_id = asked.value
        )
    """
    parts = [chosen] if query.project_ids else []
    parts += ["m.project_id IS NULL"] if query.user_wide else []
    return " OR ".join(parts) or "FALSE"


def memories_by_id(db: Database, ids: Sequence[str]) -> list[MemoryRecord]:
    """Those of them that exist, in this order."""
    return _memories(
        db,
        "JOIN json_each(:ids) AS chosen ON chosen.value = m.memory_id"
        f" WHERE {_SEEN} ORDER BY chosen.key",
        ids=ids,
    )


def find_memories(db: Database, reference: str, *, limit: int = 20) -> list[MemoryRecord]:
    """Those whose id is, or ends with, the reference."""
    tail = reference.replace("-", "")
    where = f"""
        WHERE :tail <> '' AND substr(replace(m.memory_id, '-', ''), -length(:tail)) = :tail
        AND {_SEEN} {_NEWEST} LIMIT :limit
    """
    return _memories(db, where, tail=tail, limit=limit)


def superseded_by(db: Database, memory_id: str) -> list[MemoryRecord]:
    """What it took the place of, and what that did, newest first."""
    older = set(_with_older(db, [memory_id])) - {memory_id}
    return _memories(db, f"WHERE m.memory_id {AMONG_IDS} AND {_SEEN} {_NEWEST}", ids=list(older))


def _memories(db: Database, rest: str, **given: object) -> list[MemoryRecord]:
    query = f"SELECT m.* FROM memories AS m {rest}"
    found = db.records(MemoryRecord, query, owner=db.access.sees, **given)
    places: dict[str, list[Evidence]] = {}
    for row in db.rows(
        f"SELECT * FROM evidence WHERE memory_id {AMONG_IDS} ORDER BY memory_id, position",
        ids=[memory.memory_id for memory in found],
    ):
        places.setdefault(row["memory_id"], []).append(record(Evidence, row))
    return [
        msgspec.structs.replace(memory, evidence=tuple(places.get(memory.memory_id, ())))
        for memory in found
    ]


def memories_revision(db: Database) -> int:
    """Goes up with each transaction that changes memories."""
    return int(db.get("SELECT memories_revision FROM recall_state"))


def memory_ids(db: Database) -> list[str]:
    """Every memory; one stands after those that it took the place of."""
    newer: dict[str, str | None] = dict(
        db.tuples("SELECT memory_id, superseded_by FROM memories ORDER BY created_at, memory_id")
    )
    older: dict[str, list[str]] = {}
    for memory_id, by in newer.items():
        if by is not None and by in newer:
            older.setdefault(by, []).append(memory_id)
    ordered: dict[str, None] = {}
    for memory_id in newer:
        # Down to the oldest of its chain, then up again; a circle is cut where it began.
        path, seen = [memory_id], {memory_id}
        while path:
            below = [each for each in older.get(path[-1], ()) if each not in seen | ordered.keys()]
            if below:
                path.append(below[0])
                seen.add(below[0])
            else:
                ordered.setdefault(path.pop())
    return list(ordered)


def _with_older(db: Database, wanted: Sequence[str]) -> list[str]:
    """Those of them that exist, and what they took the place of, and so on."""
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
    """The person's; that of anybody where the store was opened for all and they have none."""
    own = _profile(db, db.access.owner)
    others = [] if own.values or db.access.sees else profiles(db)
    return others[0] if others else own


def profiles(db: Database) -> list[Profile]:
    """Everybody's."""
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
    """Everybody who has something here, or a name."""
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
    """Those of them but whom the store was opened for; nobody where all is that one's."""
    sees = db.access.sees
    return [each for each in owners(db) if each.owner_id != sees] if sees else []


# --- writing ----------------------------------------------------------------------------


def put_memory(db: Database, write: PutMemory) -> None:
    """Write or replace a memory with its evidence; others make place for it.

    StoreRefused for one that is about another person.
    """
    row = columns(write.memory)
    memory_id = row["memory_id"]
    if not _may_change(db, memory_id):
        raise anothers(memory_id)
    joined = "SELECT joined_into FROM projects WHERE project_id = :id"
    row["project_id"] = db.get(joined, id=row["project_id"]) or row["project_id"]
    held = db.get(
        "SELECT superseded_by, valid_until, owner, content, subjects FROM memories"
        " WHERE memory_id = :id",
        id=memory_id,
    )
    if held is not None:
        by, until, owner, *said = held
        row["owner"] = owner or row["owner"]
        if by is not None:
            row |= {"superseded_by": by, "valid_until": until}
        if said != [row["content"], row["subjects"]]:
            vectors.remove_small(db, MEMORY_LEVEL, memory_id)
    db.put("memories", row | {"to_embed": 0}, "memory_id")
    vectors.mark_memory(db, memory_id)
    db.query("DELETE FROM evidence WHERE memory_id = :id", id=memory_id)
    for position, place in enumerate(write.memory.evidence):
        db.put(
            "evidence",
            {"memory_id": memory_id, "position": position} | columns(place),
            "memory_id, position",
        )
    if row["superseded_by"] is None:
        for other in map(value, write.supersedes):
            if other != memory_id and _may_change(db, other):
                db.query(
                    """
                    UPDATE memories SET superseded_by = :id, valid_until = :at, to_embed = 0
                    WHERE memory_id = :other AND superseded_by IS NULL
                    """,
                    id=memory_id,
                    at=row["created_at"],
                    other=other,
                )


def _may_change(db: Database, memory_id: object) -> bool:
    """Whether it is not about another person than whom the store was opened for."""
    anothers = f"SELECT 1 FROM memories AS m WHERE m.memory_id = :id AND NOT {_SEEN}"
    return db.get(anothers, id=memory_id, owner=db.access.sees) is None


def put_profile(db: Database, write: PutProfile) -> None:
    """Set a key, or remove it."""
    row = columns(write)
    at = row.pop("at")
    if write.value is None:
        db.execute("DELETE FROM profile WHERE owner = :owner AND key = :key", row)
    else:
        db.put("profile", row, "owner, key")
    db.put(
        "profile_state",
        {"owner": row["owner"], "updated_at": at},
        "owner",
        where="WHERE excluded.updated_at > updated_at",
    )


def put_owner(db: Database, write: PutOwner) -> None:
    """Give an owner a name, unless one was given later."""
    db.put("owner_names", columns(write), "owner", where="WHERE excluded.at >= owner_names.at")


def mark_extracted(db: Database, write: MarkExtracted) -> None:
    """Let turns wait no longer to be looked through."""
    db.query(
        "UPDATE documents SET to_extract = 0 WHERE to_extract AND level = 0"
        f" AND record_id {AMONG_IDS}",
        ids=write.turn_ids,
    )


# --- forgetting -------------------------------------------------------------------------


def forget(db: Database, wanted: Iterable[str]) -> int:
    """Remove these, with what they took the place of; how many went."""
    own = [each for each in wanted if _may_change(db, each)]
    gone = [each for each in _with_older(db, own) if _may_change(db, each)]
    _remove(db, gone)
    return len(gone)


def forget_session(db: Database, session_id: str) -> int:
    """Remove what only this session said; how many memories went.

    What these took the place of is now in the place of what took theirs; else current again.
    """
    only = """
        SELECT memory_id FROM evidence WHERE session_id = :id
        EXCEPT SELECT memory_id FROM evidence WHERE session_id <> :id
    """
    gone = db.column(only, id=session_id)
    for memory_id in gone:
        _unlink(db, memory_id, set(gone))
    _remove(db, gone)
    db.query("DELETE FROM evidence WHERE session_id = :id", id=session_id)
    return len(gone)


def _unlink(db: Database, memory_id: str, gone: set[str]) -> None:
    """Link what a memory that goes took the place of with what stays."""
    by: str | None = memory_id
    seen: set[str | None] = set()
    while by in gone and by not in seen:
        seen.add(by)
        by = db.get("SELECT superseded_by FROM memories WHERE memory_id = :id", id=by)
    if by in gone:
        by = None  # a circle
    for each in db.column(
        "UPDATE memories SET superseded_by = :by, valid_until = iif(:by IS NULL, NULL, valid_until)"
        " WHERE superseded_by = :id RETURNING memory_id",
        id=memory_id,
        by=by,
    ):
        vectors.mark_memory(db, each)


def _remove(db: Database, gone: list[str]) -> None:
    for memory_id in gone:
        failpoint("sqlite.delete")
        vectors.remove_small(db, MEMORY_LEVEL, memory_id)
        db.query("DELETE FROM leases WHERE key = :key", key=f"vectors:{MEMORY_LEVEL}:{memory_id}")
        db.query("DELETE FROM evidence WHERE memory_id = :id", id=memory_id)
        db.query("DELETE FROM memories WHERE memory_id = :id", id=memory_id)
    vectors.memories_changed(db)

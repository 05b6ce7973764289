"""Memories, the profile, insights: the queries."""

from collections.abc import Sequence

import apsw
import msgspec

from ragmem.records import Evidence, Insight, MemoryRecord, Owner, Profile
from ragmem.store.memories import MemoryQuery
from ragmem.store.sqlite.rows import record, rows, value

SEEN = "(m.project_id IS NOT NULL OR m.owner = :owner)"
"""What an owner is shown: what is about a person is seen by that person alone."""
_NEWEST = "ORDER BY m.created_at DESC, m.memory_id DESC"


def memories(
    connection: apsw.Connection, query: MemoryQuery, owner: str = ""
) -> list[MemoryRecord]:
    """Those that match, newest first."""
    conditions = [
        condition
        for given, condition in (
            (not query.everywhere, f"({_where(query)})"),
            (query.kinds, "m.kind IN (SELECT value FROM json_each(:kinds))"),
            (
                query.subjects,
                "EXISTS (SELECT 1 FROM json_each(m.subjects)"
                " WHERE value IN (SELECT value FROM json_each(:subjects)))",
            ),
            (
                query.session_id is not None,
                "m.memory_id IN (SELECT memory_id FROM evidence WHERE session_id = :session_id)",
            ),
            (owner, SEEN),
            (query.pinned is not None, "m.pinned = :pinned"),
            (not query.with_superseded, "m.superseded_by IS NULL"),
            (query.alive_at is not None, "(m.expires_at IS NULL OR m.expires_at > :alive_at)"),
        )
        if given
    ]
    asked = msgspec.structs.asdict(query) | {"owner": owner}
    asked["subjects"] = tuple(subject.casefold() for subject in query.subjects)
    asked["limit"] = -1 if query.limit is None else query.limit
    return _records(
        connection, f"WHERE {' AND '.join(conditions) or 'TRUE'} {_NEWEST} LIMIT :limit", asked
    )


def revision(connection: apsw.Connection) -> int:
    """Goes up with each transaction that changes memories."""
    return int(connection.execute("SELECT memories_revision FROM recall_state").get)


def _where(query: MemoryQuery) -> str:
    """Whose memories: those of the projects, one that was joined being the other; the person's."""
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


def memories_by_id(
    connection: apsw.Connection, memory_ids: Sequence[str], owner: str = ""
) -> list[MemoryRecord]:
    """Those of them that exist, in this order."""
    return _records(
        connection,
        "JOIN json_each(:ids) AS chosen ON chosen.value = m.memory_id"
        f" WHERE :owner = '' OR {SEEN} ORDER BY chosen.key",
        {"ids": tuple(memory_ids), "owner": owner},
    )


def find_memories(
    connection: apsw.Connection, reference: str, limit: int, owner: str = ""
) -> list[MemoryRecord]:
    """Those whose id is, or ends with, the reference."""
    tail = reference.replace("-", "")
    if not tail:
        return []
    return _records(
        connection,
        "WHERE substr(replace(m.memory_id, '-', ''), -length(:tail)) = :tail"
        f" AND (:owner = '' OR {SEEN}) {_NEWEST} LIMIT :limit",
        {"tail": tail, "limit": limit, "owner": owner},
    )


def superseded_by(
    connection: apsw.Connection, memory_id: str, owner: str = ""
) -> list[MemoryRecord]:
    """What it took the place of, and what that did, newest first."""
    older = tuple(set(with_older(connection, [memory_id])) - {memory_id})
    found = memories_by_id(connection, older, owner)
    return sorted(found, key=lambda each: (each.created_at, each.memory_id), reverse=True)


def _records(
    connection: apsw.Connection, rest: str, asked: dict[str, object]
) -> list[MemoryRecord]:
    found = [
        record(MemoryRecord, row)
        for row in rows(connection, f"SELECT m.* FROM memories AS m {rest}", asked)
    ]
    places: dict[str, list[Evidence]] = {}
    for row in rows(
        connection,
        "SELECT e.* FROM evidence AS e WHERE memory_id IN (SELECT value FROM json_each(:ids))"
        " ORDER BY memory_id, position",
        {"ids": tuple(memory.memory_id for memory in found)},
    ):
        places.setdefault(str(row["memory_id"]), []).append(record(Evidence, row))
    return [
        msgspec.structs.replace(memory, evidence=tuple(places.get(memory.memory_id, ())))
        for memory in found
    ]


def profile(connection: apsw.Connection, owner: str) -> Profile:
    """The owner's, keys in the order in which they became known."""
    asked = {"owner": owner}
    of = "WHERE owner = :owner"
    state = next(rows(connection, f"SELECT updated_at FROM profile_state {of}", asked), {})
    held = connection.execute(f"SELECT key, value FROM profile {of} ORDER BY rowid", asked)
    return msgspec.convert({"values": dict(list(held)), **state, "owner": owner}, Profile)


def profiles(connection: apsw.Connection) -> list[Profile]:
    """Everybody's."""
    owners = connection.execute("SELECT DISTINCT owner FROM profile ORDER BY 1").fetchall()
    return [profile(connection, str(owner)) for (owner,) in owners]


def owners(connection: apsw.Connection) -> list[Owner]:
    """Everybody who has something here, or a name."""
    found = rows(
        connection,
        """
        SELECT known.owner AS owner_id, coalesce(n.name, '') AS name, n.at AS named_at
        FROM (
            SELECT owner FROM sessions UNION SELECT owner FROM memories
            UNION SELECT owner FROM profile UNION SELECT owner FROM owner_names
        ) AS known
        LEFT JOIN owner_names AS n ON n.owner = known.owner
        WHERE known.owner <> '' ORDER BY known.owner
        """,
        {},
    )
    return [record(Owner, row) for row in found]


def insights(connection: apsw.Connection, session_ids: Sequence[str]) -> list[Insight]:
    """What was found in those sessions, in this order."""
    found = rows(
        connection,
        "SELECT i.* FROM json_each(:ids) AS chosen"
        " JOIN insights AS i ON i.session_id = chosen.value ORDER BY chosen.key",
        {"ids": tuple(session_ids)},
    )
    return [record(Insight, row) for row in found]


def memory_ids(connection: apsw.Connection) -> list[str]:
    """Every memory; one stands after those that it took the place of."""
    held = connection.execute(
        "SELECT memory_id, superseded_by FROM memories ORDER BY created_at, memory_id"
    )
    newer = {str(memory_id): by and str(by) for memory_id, by in held}
    ordered: dict[str, None] = {}
    older: dict[str, list[str]] = {}
    for memory_id, by in newer.items():
        if by is not None and by in newer:
            older.setdefault(by, []).append(memory_id)
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


def with_older(connection: apsw.Connection, wanted: Sequence[str]) -> list[str]:
    """Those of them that exist, and what they took the place of, and so on."""
    found = connection.execute(
        """
        WITH RECURSIVE chain (memory_id) AS (
            SELECT memory_id FROM memories WHERE memory_id IN (SELECT value FROM json_each(?))
            UNION
            SELECT m.memory_id FROM chain JOIN memories AS m ON m.superseded_by = chain.memory_id
        )
        SELECT memory_id FROM chain
        """,
        (value(tuple(wanted)),),
    )
    return [str(each) for (each,) in found]

"""Memories, the profile, insights: what writes them, and what removes them."""

from collections.abc import Iterable

import apsw
import msgspec

from ragmem.failpoints import failpoint
from ragmem.records import (
    MEMORY_LEVEL,
    MarkExtracted,
    PutInsight,
    PutMemory,
    PutOwner,
    PutProfile,
)
from ragmem.store.base import anothers
from ragmem.store.sqlite import small_vectors
from ragmem.store.sqlite.memories import SEEN, with_older
from ragmem.store.sqlite.rows import Row, columns, value
from ragmem.store.sqlite.writes import Step, exists, no_session


def planned(
    write: PutMemory | PutProfile | PutOwner | PutInsight | MarkExtracted, sees: str
) -> Step:
    """The write, encoded and ready to be applied."""
    match write:
        case PutMemory():
            return _put_memory(write, sees)
        case PutProfile():
            return _put_profile(write)
        case PutOwner():
            return _put_owner(write)
        case PutInsight():
            return _put_insight(write)
        case MarkExtracted():
            return _mark_extracted(write)


def _put_memory(write: PutMemory, sees: str) -> Step:
    """A memory is written or replaced, with its evidence; others make place for it.

    StoreRefused for one that is about another person.
    """
    row = columns(msgspec.structs.replace(write.memory, evidence=()))
    del row["evidence"]
    places = [
        columns(each) | {"memory_id": row["memory_id"], "position": position}
        for position, each in enumerate(write.memory.evidence)
    ]
    others = [each for each in map(value, write.supersedes) if each != row["memory_id"]]

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        if not _may_change(connection, row["memory_id"], sees):
            raise anothers(str(row["memory_id"]))
        kept = row | _as_it_stays(connection, row)
        connection.execute(
            """
            INSERT INTO memories (
                memory_id, kind, trust, source, project_id, pinned, created_at, updated_at, at,
                expires_at, valid_until, superseded_by, to_embed, subjects, content, owner
            )
            VALUES (
                :memory_id, :kind, :trust, :source,
                coalesce(
                    (SELECT joined_into FROM projects WHERE project_id = :project_id), :project_id
                ),
                :pinned, :created_at, :updated_at, :at, :expires_at, :valid_until, :superseded_by,
                0, :subjects, :content, :owner
            )
            ON CONFLICT (memory_id) DO UPDATE SET
                kind = excluded.kind, trust = excluded.trust, source = excluded.source,
                project_id = excluded.project_id, pinned = excluded.pinned,
                created_at = excluded.created_at, updated_at = excluded.updated_at,
                at = excluded.at, expires_at = excluded.expires_at,
                valid_until = excluded.valid_until, superseded_by = excluded.superseded_by,
                subjects = excluded.subjects, content = excluded.content,
                owner = iif(owner = '', excluded.owner, owner)
            """,
            kept,
        )
        small_vectors.mark_memory(connection, str(kept["memory_id"]))
        connection.execute("DELETE FROM evidence WHERE memory_id = :memory_id", kept)
        for place in places:
            connection.execute(_INSERT_EVIDENCE, place)
        if kept["superseded_by"] is None:
            for other in [each for each in others if _may_change(connection, each, sees)]:
                connection.execute(
                    """
                    UPDATE memories
                    SET superseded_by = :memory_id, valid_until = :created_at, to_embed = 0
                    WHERE memory_id = :other AND superseded_by IS NULL
                    """,
                    kept | {"other": other},
                )

    return step


_INSERT_EVIDENCE = """
    INSERT INTO evidence (
        memory_id, position, session_id, turn_id, turn_index, tool_call_id, tool_name, path,
        quote, at
    )
    VALUES (
        :memory_id, :position, :session_id, :turn_id, :turn_index, :tool_call_id, :tool_name,
        :path, :quote, :at
    )
"""


def _may_change(connection: apsw.Connection, memory_id: object, sees: str) -> bool:
    """Whether it is not about another person than this one; everybody sees all as nobody."""
    asked = {"id": memory_id, "owner": sees}
    found = f"SELECT 1 FROM memories AS m WHERE m.memory_id = :id AND NOT {SEEN}"
    return not sees or connection.execute(found, asked).fetchone() is None


def _as_it_stays(connection: apsw.Connection, row: Row) -> Row:
    """What a memory keeps when it is put again; its vector goes where it says something else."""
    held = connection.execute(
        "SELECT superseded_by, valid_until, content, subjects FROM memories"
        " WHERE memory_id = :memory_id",
        row,
    ).fetchone()
    if held is None:
        return {}
    superseded_by, valid_until, *text = held
    if text != [row["content"], row["subjects"]]:
        small_vectors.remove(connection, MEMORY_LEVEL, str(row["memory_id"]))
    if superseded_by is None:
        return {}
    return {"superseded_by": superseded_by, "valid_until": valid_until}


def _put_profile(write: PutProfile) -> Step:
    """A key is set or removed."""
    row = columns(write)
    sql = (
        "DELETE FROM profile WHERE owner = :owner AND key = :key"
        if write.value is None
        else "INSERT INTO profile (owner, key, value) VALUES (:owner, :key, :value)"
        " ON CONFLICT (owner, key) DO UPDATE SET value = excluded.value"
    )

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        connection.execute(sql, row)
        connection.execute(
            "INSERT INTO profile_state (owner, updated_at) VALUES (:owner, :at)"
            " ON CONFLICT (owner) DO UPDATE SET updated_at = max(updated_at, excluded.updated_at)",
            row,
        )

    return step


def _put_owner(write: PutOwner) -> Step:
    """An owner has a name from now on."""
    row = columns(write)

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        connection.execute(
            "INSERT INTO owner_names (owner, name, at) VALUES (:owner, :name, :at)"
            " ON CONFLICT (owner) DO UPDATE SET name = excluded.name, at = excluded.at"
            " WHERE excluded.at >= owner_names.at",
            row,
        )

    return step


def _put_insight(write: PutInsight) -> Step:
    """What was found in a session replaces what was found before."""
    row = columns(write.insight)

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        if not exists(connection, row["session_id"]):
            raise no_session(str(row["session_id"]))
        connection.execute(
            """
            INSERT INTO insights (session_id, main_topic, key_findings, action_items, created_at)
            VALUES (:session_id, :main_topic, :key_findings, :action_items, :created_at)
            ON CONFLICT (session_id) DO UPDATE SET
                main_topic = excluded.main_topic, key_findings = excluded.key_findings,
                action_items = excluded.action_items, created_at = excluded.created_at
            """,
            row,
        )

    return step


def _mark_extracted(write: MarkExtracted) -> Step:
    """Turns wait no longer to be looked through."""
    row = {"ids": value(write.turn_ids)}

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        connection.execute(
            "UPDATE documents SET to_extract = 0 WHERE to_extract AND level = 0"
            " AND record_id IN (SELECT value FROM json_each(:ids))",
            row,
        )

    return step


# --- what goes --------------------------------------------------------------------------


def forget(connection: apsw.Connection, wanted: Iterable[str], sees: str = "") -> int:
    """Remove these, with what they took the place of; how many went."""
    own = [each for each in wanted if _may_change(connection, each, sees)]
    gone = [each for each in with_older(connection, own) if _may_change(connection, each, sees)]
    _remove(connection, gone)
    small_vectors.memories_changed(connection)
    return len(gone)


def forget_session(connection: apsw.Connection, session_id: str) -> int:
    """Remove what only this session said, and insights into it; how many memories went.

    What these took the place of is now in the place of what took theirs; else current again.
    """
    asked = {"id": session_id}
    connection.execute("DELETE FROM insights WHERE session_id = :id", asked)
    only = """
        SELECT memory_id FROM evidence WHERE session_id = :id
        EXCEPT SELECT memory_id FROM evidence WHERE session_id <> :id
    """
    gone = [str(each) for (each,) in connection.execute(only, asked)]
    for memory_id in gone:
        _let_go(connection, memory_id, set(gone))
    _remove(connection, gone)
    connection.execute("DELETE FROM evidence WHERE session_id = :id", asked)
    small_vectors.memories_changed(connection)
    return len(gone)


def _let_go(connection: apsw.Connection, memory_id: str, gone: set[str]) -> None:
    """Link what a memory that goes took the place of with what stays."""
    by: str | None = memory_id
    seen: set[str | None] = set()
    while by in gone and by not in seen:
        seen.add(by)
        by = connection.execute("SELECT superseded_by FROM memories WHERE memory_id = ?", (by,)).get
    if by in gone:
        by = None  # a circle
    older = connection.execute(
        "UPDATE memories SET superseded_by = :by, valid_until = iif(:by IS NULL, NULL, valid_until)"
        " WHERE superseded_by = :id RETURNING memory_id",
        {"id": memory_id, "by": by},
    ).fetchall()
    for (each,) in older:
        small_vectors.mark_memory(connection, str(each))


def _remove(connection: apsw.Connection, gone: list[str]) -> None:
    for memory_id in gone:
        failpoint("sqlite.delete")
        small_vectors.remove(connection, MEMORY_LEVEL, memory_id)
        connection.execute(
            "DELETE FROM leases WHERE key = ?", (f"vectors:{MEMORY_LEVEL}:{memory_id}",)
        )
        connection.execute("DELETE FROM evidence WHERE memory_id = ?", (memory_id,))
        connection.execute("DELETE FROM memories WHERE memory_id = ?", (memory_id,))

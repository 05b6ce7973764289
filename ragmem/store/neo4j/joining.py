"""Split a project off again from the one that it was joined to (`statements.cypher` joins).

What is its own: the sessions of its folder with all that hangs on them, the files that they
touched, what was known in it before it was joined, and what was learned in its sessions alone.
"""

from collections.abc import Awaitable, Callable, Sequence

from ragmem.failpoints import failpoint
from ragmem.records import RegisterProject
from ragmem.store.neo4j import code, memories
from ragmem.store.neo4j.entries import STATEMENTS as RECALL
from ragmem.store.neo4j.entries import of_another_project
from ragmem.store.neo4j.gateway import Row, Transaction, Value, named_statements
from ragmem.store.neo4j.shapes import Properties
from ragmem.text import clean

STATEMENTS = named_statements("joining.cypher")
_AT_ONCE = 500
"""Entries whose terms are in memory at a time."""


async def split(
    tx: Transaction,
    write: RegisterProject,
    lock_sessions: Callable[[set[str]], Awaitable[object]],
) -> list[str]:
    """Let a project be its own; the projects between which something went.

    Without a person's word only one that was never joined is marked so.
    """
    project_id = clean(write.project.project_id)
    given: dict[str, Value] = {"projectId": project_id}
    [row] = await tx.run(STATEMENTS["joined_into"], **given)
    root = row["root"]
    if root == project_id or not (root is None or write.chosen):
        return []
    if root is None:
        await tx.run(STATEMENTS["stay_apart"], **given)
        return []
    family = await tx.found(code.STATEMENTS["family"], projectIds=[root])
    await tx.run(STATEMENTS["lock_known_code"], ids=sorted(family))
    ids = sorted(await tx.found(STATEMENTS["sessions_to_split"], root=root, **given))
    await lock_sessions(set(ids))
    # Whoever holds vectors in memory reads anew, by the project that they are of now.
    await tx.run(RECALL["lock_vectors"])
    await tx.run(RECALL["count_epoch"])
    await tx.run(STATEMENTS["stay_apart"], **given)
    await tx.run(STATEMENTS["split_sessions"], ids=ids, **given)
    failpoint("neo4j.split")
    await _split_entries(tx, project_id, ids)
    files = await tx.found(STATEMENTS["split_files"], ids=ids, **given)
    await tx.run(code.STATEMENTS["forget_files"], files=sorted(files))
    await _split_memories(tx, project_id, root, ids)
    scopes = await tx.found(STATEMENTS["part_references"], **given)
    await code.forget_scopes(tx, scopes)
    return [project_id, root]


async def _split_entries(tx: Transaction, project_id: str, session_ids: Sequence[str]) -> None:
    found = await tx.found(STATEMENTS["entries_to_split"], ids=session_ids, projectId=project_id)
    for start in range(0, len(found), _AT_ONCE):
        rows: list[Row] = await tx.found(
            STATEMENTS["entries_as_they_are"], ids=found[start : start + _AT_ONCE]
        )
        entries = [of_another_project(row, project_id) for row in rows]
        await tx.run(STATEMENTS["split_entries"], entries=entries)


async def _split_memories(
    tx: Transaction, project_id: str, root: str, session_ids: Sequence[str]
) -> None:
    given: dict[str, Value] = {"projectId": project_id}
    own = set(session_ids)
    ids = []
    for memory_id, was_own, sessions, texts in await tx.found(
        STATEMENTS["memories_to_split"], root=root, ids=session_ids, **given
    ):
        loose = [each.session_id for _, each in memories.loose_evidence(texts or ())]
        if was_own or own.issuperset([*sessions, *loose]):
            ids.append(memory_id)
    await tx.run(STATEMENTS["split_memories"], ids=ids, **given)
    parted: list[Properties] = []
    for memory_id, is_own, by in await tx.found(STATEMENTS["parted_memories"], **given):
        successor = await _successor(tx, project_id, by, is_own=is_own)
        parted.append({"id": memory_id, "by": successor if successor != memory_id else None})
    olds = [row["id"] for row in parted]
    await tx.run(STATEMENTS["part_memories"], ids=olds)
    await tx.run(memories.STATEMENTS["succeed"], rows=parted)
    await tx.run(memories.STATEMENTS["link_superseded"], ids=olds)
    await tx.run(memories.STATEMENTS["note_vectors_due"], ids=olds)


async def _successor(
    tx: Transaction, project_id: str, by: str | None, *, is_own: bool
) -> str | None:
    """The first that took the place of one and is on the same side, from `by` on."""
    seen = set()
    while by is not None and by not in seen:
        seen.add(by)
        rows = await tx.run(STATEMENTS["place_of_memory"], id=by, projectId=project_id, own=is_own)
        if not rows:
            return None
        if rows[0]["own"] == is_own:
            return by
        by = rows[0]["by"]
    return None

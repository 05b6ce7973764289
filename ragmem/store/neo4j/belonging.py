"""Links from Projects and Owners to what is theirs, as starting points for exploring the graph.

All of them are derived: a node names its project or owner in a property, and the relationship
follows from that. Owners are created with the first node of theirs; projects are registered, and
recreated only for a session that has the project's directory.

Joining a project to another is done in `statements.cypher`, splitting it off again here, with what
is its own: the sessions of its directory with all that is linked to them, the files that they
touched, what was known in the project before the join, and what was learned only in its sessions.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ragmem.failpoints import failpoint
from ragmem.records import (
    CreateSession,
    FileAccess,
    PutCodeFile,
    PutMemory,
    PutProfile,
    PutSession,
    PutTurn,
    RecordToolCall,
    RegisterProject,
    Write,
)
from ragmem.store import batches
from ragmem.store.neo4j import code, memories
from ragmem.store.neo4j.entries import STATEMENTS as RECALL, of_another_project
from ragmem.store.neo4j.gateway import Gateway, Row, Transaction, Value, named_statements
from ragmem.store.neo4j.shapes import Properties, path_key
from ragmem.text import clean

_AT_ONCE = 2_000


class Belonging(NamedTuple):
    """Nodes of a label, and the parent that each of them is linked to."""

    label: str
    key: str
    """The property that identifies a node of the label."""
    whose: str
    """The parent's id, as a Cypher expression on `n`; null or empty if there is no parent."""
    parent: str
    relationship: str

    @property
    def parent_key(self) -> str:
        """The property that identifies the parent."""
        return "projectId" if self.parent == "Project" else "ownerId"

    @property
    def what(self) -> str:
        """The guarantee, in words."""
        return f"{self.label} hangs on its {self.parent}"

    def wrong(self, listed: str) -> str:
        """Return a statement that lists nodes linked to another parent, to none, or twice.

        `listed` is what to list of them, as a Cypher expression on `n`.
        """
        # An Owner is created if missing; a Project has to exist.
        there = (
            f"EXISTS {{ (:Project {{projectId: {self.whose}}}) }}"
            if self.parent == "Project"
            else f"{self.whose} <> ''"
        )
        return f"""
            MATCH (n:{self.label})
            WITH n, CASE WHEN {there} THEN [{self.whose}] ELSE [] END AS wanted,
              [(p:{self.parent})-[:{self.relationship}]->(n) | p.{self.parent_key}] AS held
            WHERE held <> wanted
            RETURN collect({listed}) AS found
            """

    def link(self, which: str) -> str:
        """Return a statement that links the nodes that `which` finds as `n` to their parents.

        With `$anew` all previous links are deleted; otherwise correct ones are left untouched,
        since creating or deleting a relationship locks both of its nodes.
        """
        return f"""
            UNWIND $ids AS id
            {which}
            WITH DISTINCT n, {self.whose} AS whose
            CALL (n, whose) {{
              MATCH (p:{self.parent})-[r:{self.relationship}]->(n)
              WHERE $anew OR coalesce(p.{self.parent_key} <> whose, true)
              DELETE r
            }}
            WITH n, whose
            WHERE whose <> ''
            {"MATCH" if self.parent == "Project" else "MERGE"}
              (p:{self.parent} {{{self.parent_key}: whose}})
            MERGE (p)-[:{self.relationship}]->(n)
            """


_MEMORY_OWNER = "CASE WHEN n.projectId IS NULL THEN n.owner END"
BELONGINGS = (
    Belonging("ConversationSession", "sessionId", "n.projectId", "Project", "HAS_SESSION"),
    Belonging("Memory", "uuid", "n.projectId", "Project", "HAS_MEMORY"),
    Belonging("File", "path", "n.projectId", "Project", "HAS_FILE"),
    Belonging("Scope", "scopeId", "n.projectId", "Project", "HAS_SCOPE"),
    Belonging("ConversationSession", "sessionId", "n.owner", "Owner", "HAS_SESSION"),
    Belonging("Memory", "uuid", _MEMORY_OWNER, "Owner", "HAS_MEMORY"),
    Belonging("UserProfile", "userId", "nullIf(n.userId, 'local')", "Owner", "HAS_PROFILE"),
)
"""A memory of a project is linked to that, one about a person to its owner."""
_FILES = "MATCH (n:File {projectId: id[0], path: id[1]})"
_TOUCHED = """
    MATCH (s:ConversationSession {sessionId: id[0]})
    MATCH (n:File {projectId: s.projectId, path: id[1]})
    """
_LOST_PROJECTS = """
    MATCH (s:ConversationSession)
    WHERE s.projectPath <> '' AND NOT EXISTS { (:Project {projectId: s.projectId}) }
    WITH s ORDER BY s.startTime
    WITH s.projectId AS id, collect(s) AS sessions
    """
_MAKE_PROJECTS = f"""
    {_LOST_PROJECTS}
    CREATE (p:Project {{projectId: id}})
    SET p.path = sessions[0].projectPath, p.createdAt = sessions[0].startTime
    """
LOST_PROJECTS = f"{_LOST_PROJECTS} RETURN collect(id) AS found"
"""Lists the projects that are missing although sessions have their directory."""


async def link_written(tx: Transaction, writes: Sequence[Write], projects: Sequence[str]) -> None:
    """Link what these writes have put to its parents; comes last in their transaction.

    `projects` are those that are new, were joined, or split: their existing nodes may be linked
    elsewhere. Projects' nodes are locked only from here on: a writer of many files locks them
    briefly.
    """
    found: dict[str, dict[Any, None]] = {}
    for write in writes:
        for label, ids in _written(write).items():
            found.setdefault(label, {}).update(dict.fromkeys(ids))
    touched = sorted(found.pop("touched", {}))
    for each in BELONGINGS:
        if each.label == "File" and touched:
            await _link(tx, each, _TOUCHED, touched)
        if ids := sorted(found.get(each.label, {})):
            which = f"MATCH (n:{each.label} {{{each.key}: id}})"
            await _link(tx, each, _FILES if each.label == "File" else which, ids)
        if projects and each.parent == "Project":
            await _link(tx, each, f"MATCH (n:{each.label} {{projectId: id}})", sorted(projects))


async def _link(tx: Transaction, each: Belonging, which: str, ids: Sequence[Value]) -> None:
    await tx.run(each.link(which), ids=ids, anew=False)


def _written(write: Write) -> Mapping[str, Sequence[Any]]:
    """Return the ids of what a write has put, by label; `touched`: pairs of session and path."""
    if isinstance(write, CreateSession | PutSession):
        return {"ConversationSession": [clean(write.session.session_id)]}
    if isinstance(write, RecordToolCall):
        return {"touched": _touched(write.session_id, write.accesses)}
    if isinstance(write, PutTurn):
        accesses = [each for found in write.accesses.values() for each in found]
        return {"touched": _touched(write.turn.session_id, accesses)}
    if isinstance(write, PutMemory):
        return {"Memory": [clean(write.memory.memory_id)]}
    if isinstance(write, PutProfile):
        return {"UserProfile": [clean(write.owner)] if write.owner else []}
    if isinstance(write, PutCodeFile):
        project_id = clean(write.file.project_id)
        paths = (write.file.path, *write.file.imports)
        return {
            "File": [(project_id, path_key(path)) for path in paths],
            "Scope": [clean(scope.scope_id) for scope in write.file.scopes],
        }
    return {}


def _touched(session_id: str, accesses: Sequence[FileAccess]) -> list[tuple[str, str]]:
    return [(clean(session_id), path_key(each.path)) for each in accesses]


async def link_all(gateway: Gateway) -> None:
    """Link everything to its parents, in batches, since before schema 8 nothing was linked."""
    await gateway.run(_MAKE_PROJECTS)
    for each in BELONGINGS:
        link = each.link(f"MATCH (n:{each.label}) WHERE elementId(n) = id")
        for ids in batches(await gateway.found(each.wrong("elementId(n)")), _AT_ONCE):
            await gateway.run(link, ids=ids, anew=True)


STATEMENTS = named_statements("joining.cypher")
_ENTRIES_AT_ONCE = 500
"""Number of entries whose terms are in memory at a time."""


async def split(
    tx: Transaction,
    write: RegisterProject,
    lock_sessions: Callable[[set[str]], Awaitable[object]],
) -> list[str]:
    """Split a project off from the one it was joined to; return both ids if anything moved.

    Without the user's choice, only a project that was never joined is marked as separate.
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
    # Vectors cached by other processes must be read again, by the project they now belong to.
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
    for part in batches(found, _ENTRIES_AT_ONCE):
        rows: list[Row] = await tx.found(STATEMENTS["entries_as_they_are"], ids=part)
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
    """Return the first successor, from `by` on, that is on the same side of the split."""
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

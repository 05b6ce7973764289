"""What is asked often goes by an index: as the server plans it, none of it is executed."""

from typing import Any

from ragmem.records import SessionQuery
from ragmem.store.neo4j import Connection, Neo4jStore, read
from ragmem.store.neo4j.code import STATEMENTS as CODE
from ragmem.store.neo4j.entries import STATEMENTS as RECALL
from ragmem.store.neo4j.gateway import Reading
from ragmem.store.neo4j.memories import STATEMENTS as MEMORIES
from tests.fakes.neo4j import plan_of
from tests.store.samples import at


def _scopes(which: str, conditions: str) -> str:
    chosen = CODE[which].replace("/* conditions */", conditions)
    return CODE["find_scopes"].replace("/* which */", chosen)


def _files(which: str) -> str:
    return CODE["code_files"].replace("/* which */", CODE[which])


def _memories(name: str) -> str:
    which = MEMORIES[name].replace("/* conditions */", "AND m.supersededBy IS NULL")
    return MEMORIES["memories"].replace("/* which */", which)


HERE = "AND s.projectId IN $projects"
TIMES = {
    "a time everywhere": RECALL["in_time_everywhere"],
    "a time in projects": RECALL["in_time_of_projects"],
    "a time in sessions": RECALL["in_time_of_sessions"],
}
PLANS = {
    "turns whose code is to be found": RECALL["pending_references"],
    "scopes of a name here": _scopes("scopes_by_name", HERE),
    "scopes of a name anywhere": _scopes("scopes_by_name", "AND s.projectId IS NOT NULL"),
    "scopes that are gone": _scopes(
        "scopes_by_name", f"{HERE} AND NOT EXISTS {{ (s)<-[:DEFINES]-(:File) }}"
    ),
    "scopes of a file": _scopes("scopes_by_place", f"{HERE} AND s.path = $path"),
    "turns that have to do with code": CODE["code_turns"],
    "files that change together": CODE["changed_with"],
    "what turns refer to": CODE["references_of"],
    "files of a folder": _files("files_after"),
    "some files": _files("files_of_paths"),
    "memories of projects": _memories("in_scope"),
    "memories everywhere": _memories("everywhere"),
    "turns to look through": RECALL["pending_memories"],
    "what is to be embedded": RECALL["pending_vectors"],
    "what was superseded": MEMORIES["link_superseded"],
    **TIMES,
}
GIVEN = {
    "projects": ["p"], "projectIds": ["p"], "projectId": "p", "path": "a", "paths": ["a"],
    "after": "", "limit": 9, "most": 9, "ids": ["t"], "scopeIds": ["x"], "sessionId": None,
    "project_ids": ["p"],
    "nameKey": "a", "tailKey": "a", "qualifiedKey": "a", "user_wide": True, "owner": "ana",
    "start": at(0), "end": at(9), "sessions": ["s"], "lasts": {"s": 9},
}  # fmt: skip
SCANNED = {"turns whose code is to be found": {"c:CodeProject"}}
"""Labels of which there are few nodes: those of projects with code are all looked at."""


_ALL = ("AllNodesScan", "NodeByLabelScan")


async def test_what_is_asked_often_goes_by_an_index(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """No look at all memories, turns, scopes or files of the store."""
    slow = {}
    for name, statement in PLANS.items():
        steps = await plan_of(neo4j_server, statement, **GIVEN)
        # What is of a time is not even looked for in a whole index.
        scans = [(k, what) for k, what in steps if k in _ALL or (name in TIMES and "Scan" in k)]
        by_index = any("Index" in kind for kind, _ in steps)
        if not by_index or {what for _, what in scans} - SCANNED.get(name, set()):
            slow[name] = steps
    assert slow == {}


class Noting:
    """A transaction that only notes what it is asked."""

    now, owner = at(0), ""
    read = Reading(None)

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def found(self, statement: str, **_: object) -> list[Any]:
        self.asked.append(statement)
        return []


async def test_the_newest_sessions_come_from_their_index(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Listing everything does not sort all that there is."""
    noting = Noting()
    await read.sessions(noting, SessionQuery(limit=1))  # type: ignore[arg-type]
    given = {"limit": 1, "horizon": at(0), "cwd": None, "status": None, "tags": []}
    steps = await plan_of(neo4j_server, noting.asked[0], **given)
    assert [what for kind, what in steps if "Index" in kind and "lastActivity" in what], steps
    assert [kind for kind, _ in steps if "PartialTop" in kind], steps
    assert [kind for kind, _ in steps if kind in _ALL] == []

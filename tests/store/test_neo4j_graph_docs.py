"""The Cypher of docs/graph.md, as it stands there, on a small graph."""

import re
from pathlib import Path
from typing import Any

import pytest

from ragmem.records import EmbedderMark, FileAccess, Write
from ragmem.store.neo4j import Connection
from ragmem.store.neo4j.gateway import Row
from ragmem.store.neo4j.vectors import EMBEDDED
from tests.fakes.neo4j import ask, in_thread, open_empty_neo4j_store
from tests.store.code_samples import a_scope, put, refers
from tests.store.samples import (
    at,
    begun,
    called,
    created,
    finished,
    insight,
    project,
    remembered,
    said,
    summed,
)
from tests.store.test_contract_recall import embedded, unit

DOCUMENT = (Path(__file__).parents[2] / "docs" / "graph.md").read_text("utf-8")
HOME = "/home/ana/garden"


def queries() -> dict[str, str]:
    """Each under its heading; the second one of a heading is marked."""
    found: dict[str, str] = {}
    for section in re.split(r"\n###? ", DOCUMENT)[1:]:
        heading = section.partition("\n")[0]
        for number, query in enumerate(re.findall(r"```cypher\n(.*?)```", section, re.S), 1):
            found[heading if number == 1 else f"{heading} ({number})"] = query
    return found


def command(
    session_id: str, turn_id: str, name: str, text: str, exit_code: int, **more: Any
) -> Write:
    """As the agent records one that ran."""
    result = f'{{"text":"Exit code {exit_code}","exit_code":{exit_code}}}'
    return called(
        session_id,
        turn_id,
        tool_call_id=name,
        tool_name="run_command",
        arguments=f'{{"command": "{text}"}}',
        result=result,
        **more,
    )


def access(path: str, kind: Any, minutes: float) -> FileAccess:
    return FileAccess(path=path, tool_name="edit_file", access_type=kind, accessed_at=at(minutes))


def written(session_id: str, turn_id: str, name: str, *accesses: FileAccess) -> Write:
    """A call that touched these files."""
    call = called(session_id, turn_id, tool_call_id=name, tool_name="edit_file")
    return type(call)(session_id=session_id, call=call.call, accesses=accesses)


def code() -> list[Write]:
    """Files of the garden, its clone and the kitchen, and what turns have to do with them."""

    def defined(of: str, path: str, *names: str, imports: tuple[str, ...] = ()) -> Write:
        lines = enumerate(names, 1)
        scopes = (a_scope(f"{of}:{name}", name, line, end_line=line) for line, name in lines)
        return put(path, *scopes, project_id=of, imports=imports)

    return [
        defined("garden", "beds/north.txt", "plant", "dig"),
        defined("garden", "main.py", "grow", imports=("beds/north.txt",)),
        defined("garden", "tests/main.py", imports=("main.py", "other.py")),
        defined("garden", "other.py", imports=("main.py",)),
        defined("clone", "beds/north.txt", "plant"),
        defined("kitchen", "beds/north.txt", "plant"),
        refers("t1", **{"garden:plant": "read", "garden:grow": "found"}),
        refers("t2", **{"garden:plant": "edited", "garden:dig": "found"}),
        refers("u1", **{"clone:plant": "named"}),
        refers("v1", **{"kitchen:plant": "edited"}),
    ]


def vector(turn_id: str, *numbers: float) -> Write:
    """Of a turn, as an embedder of four dimensions gives it: those of all tests of one server."""
    return embedded(turn_id, unit(*numbers, 0, 0), embedder="small")


def small_graph() -> list[Write]:
    """Two sessions in the garden's project, one of them from a joined folder; one elsewhere."""
    return [
        project("garden", path=HOME),
        project("clone", "garden"),
        project("kitchen"),
        created("s", project_id="garden", title="Shade"),
        begun("s", "t1", "Where do ferns go?", started_at=at(1)),
        written("s", "t1", "c1", access("beds/north.txt", "read", 1)),
        command("s", "t1", "c2", "make beds", 2, started_at=at(1)),
        finished("s", "t1"),
        begun("s", "t2", "Write it down.", started_at=at(10)),
        written("s", "t2", "c3", access("beds/north.txt", "write", 10),
                access("list.txt", "write", 10)),
        command("s", "t2", "c4", "make list", 0, started_at=at(10)),
        finished("s", "t2"),
        created("r", project_id="clone", title="Hostas"),
        begun("r", "u1", "And hostas?", started_at=at(20)),
        written("r", "u1", "c5", access("beds/north.txt", "read", 20)),
        command("r", "u1", "c6", "make beds", 2, started_at=at(20)),
        called("r", "u1", tool_call_id="c7", tool_name="run_command", started_at=at(21),
               arguments='{"command": "sleep 999"}', success=False, error="It ran for too long."),
        finished("r", "u1"),
        created("k", project_id="kitchen", title="Jam"),
        begun("k", "v1", "Is it done?"),
        written("k", "v1", "c8", access("beds/north.txt", "write", 5)),
        command("k", "v1", "c9", "make jam", 1),
        finished("k", "v1"),
        summed("s", "t1", "t2"),
        insight("s", "Shade", created_at=at(30)),
        remembered("old", "Ferns go south.", kind="decision", project_id="garden",
                   created_at=at(1), evidence=(said("s", "t1", "south, I think", at=at(1)),)),
        remembered("new", "Ferns go north.", kind="decision", project_id="garden",
                   created_at=at(10), supersedes=("old",),
                   evidence=(
                       said("s", "t2", "no, north", turn_index=2, at=at(10)),
                       said("s", "t1", "north: shade", at=at(1), tool_call_id="c1",
                            tool_name="read_file", path="beds/north.txt"),
                   )),
        remembered("rule", "Never water at noon.", kind="rule", project_id="garden",
                   created_at=at(2), trust="person",
                   evidence=(said("r", "u1", "never at noon", at=at(20)),)),
        remembered("fact", "Ferns are green.", project_id="garden", created_at=at(1),
                   evidence=(said("s", "t1"),)),
        remembered("over", "Plant on Monday.", kind="decision", project_id="garden",
                   created_at=at(1), expires_at=at(2), evidence=(said("s", "t1"),)),
        remembered("failed", "`make beds` needs a spade.", kind="failure", project_id="garden",
                   created_at=at(21), evidence=(said("r", "u1"),)),
        remembered("jam", "Jam needs sugar.", kind="failure", project_id="kitchen",
                   created_at=at(22), evidence=(said("k", "v1"),)),
        *code(),
        vector("t1", 1, 0),
        vector("t2", 0, 1),
        vector("u1", 3, 4),
    ]  # fmt: skip


GIVEN: dict[str, Any] = {
    "folder": HOME,
    "path": "beds/north.txt",
    "name": "plant",
    "memory": "new",
    "since": at(9),
    "word": "ferns",
}
EXPECTED: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "The newest sessions of a project": (
        "session title turns last", [("r", "Hostas", 1, at(20)), ("s", "Shade", 2, at(10))],
    ),
    "Which turns touched a file": (
        "turn asked how last",
        [
            ("u1", "And hostas?", ["read"], at(20)),
            ("t2", "Write it down.", ["write"], at(10)),
            ("t1", "Where do ferns go?", ["read"], at(1)),
        ],
    ),
    "Search by meaning": (
        "turn said session score",
        [("u1", "And hostas?", "r", 0.8), ("t2", "Write it down.", "s", 0.5)],
    ),
    "Which sessions touched this file?": (
        "session title how turns last",
        [("r", "Hostas", ["read"], 1, at(20)), ("s", "Shade", ["read", "write"], 2, at(10))],
    ),
    "What was decided about it?": (
        "decided by at words sessions",
        [
            ("Ferns go north.", "person", at(10), ["no, north", "north: shade"], ["s"]),
            ("Never water at noon.", "person", at(2), ["never at noon"], ["r"]),
        ],
    ),
    "Which sessions discussed this code?": (
        "session title how turns last",
        [("r", "Hostas", ["named"], 1, at(20)), ("s", "Shade", ["edited", "read"], 2, at(10))],
    ),
    "What was decided about this code?": (
        "kind decided at words sessions",
        [
            ("failure", "`make beds` needs a spade.", at(21), ["ferns, you know"], ["r"]),
            ("decision", "Ferns go north.", at(10), ["no, north", "north: shade"], ["s"]),
            ("rule", "Never water at noon.", at(2), ["never at noon"], ["r"]),
        ],
    ),
    "Which files change together with it?": (
        "file turns sessions last", [("list.txt", 1, 1, at(10))],
    ),
    "What imports it?": (
        "file steps", [("main.py", 1), ("other.py", 2), ("tests/main.py", 2)],
    ),
    "What did it replace?": (
        "back content at until",
        [(0, "Ferns go north.", at(10), None), (1, "Ferns go south.", at(1), at(10))],
    ),
    "Where does a memory come from?": (
        "session turn asked words tool file at",
        [
            ("Shade", 2, "Write it down.", "no, north", None, None, at(10)),
            ("Shade", 1, "Where do ferns go?", "north: shade", "edit_file", "beds/north.txt",
             at(1)),
        ],
    ),
    "Which commands failed here?": (
        "command times last sessions",
        [
            ('{"command": "sleep 999"}', 1, at(21), ["r"]),
            ('{"command": "make beds"}', 2, at(20), ["r", "s"]),
        ],
    ),
    "Which commands failed here? (2)": (
        "failure at", [("`make beds` needs a spade.", at(21))],
    ),
    "What changed since?": (
        "file asked last",
        [("beds/north.txt", ["Write it down."], at(10)), ("list.txt", ["Write it down."], at(10))],
    ),
    "What changed since? (2)": (
        "content kind change at",
        [
            ("`make beds` needs a spade.", "failure", "new", at(21)),
            ("Ferns go north.", "decision", "new", at(10)),
            ("Ferns go south.", "decision", "superseded", at(10)),
        ],
    ),
}  # fmt: skip
"""By each heading the columns that its query answers with, and the rows."""


@pytest.fixture(scope="module")
def server(neo4j_server: Connection) -> Connection:
    """It holds the small graph, to which the last of these tests adds."""

    async def fill() -> None:
        store = await open_empty_neo4j_store(neo4j_server)
        await store.use_embedder(EmbedderMark("small", 4))
        await store.apply(small_graph())
        for name in EMBEDDED:
            await ask(neo4j_server, f"CALL db.awaitIndex('{name}', 60)")
        assert await store.check() == []
        await store.aclose()

    in_thread(fill())
    return neo4j_server


def sorted_rows(rows: list[Row]) -> list[dict[str, Any]]:
    """Lists come in no order; rows of one time neither."""
    return sorted(
        (
            {key: sorted(value) if isinstance(value, list) else value for key, value in row.items()}
            for row in rows
        ),
        key=repr,
    )


@pytest.mark.parametrize("heading", EXPECTED)
async def test_a_query_answers_its_question(server: Connection, heading: str) -> None:
    """The graph questions, of one project and none of another."""
    query = queries()[heading]
    given = {name: value for name, value in GIVEN.items() if f"${name}" in query}
    rows = await ask(server, query, **given)
    columns, expected = EXPECTED[heading]
    table = [Row(zip(columns.split(), row, strict=True)) for row in expected]
    assert sorted_rows(rows) == sorted_rows(table)
    times = [row.get("last") or row.get("at") for row in rows]
    if "DESC" in query and "score DESC" not in query:
        assert times == sorted(times, reverse=True)


async def test_the_table_names_what_is_there(server: Connection) -> None:
    """Every label and property that the document tells of, and every relationship."""
    from ragmem.records import PutOwner, PutProfile
    from ragmem.store.neo4j import Neo4jStore
    from tests.fakes.neo4j import PATIENCE_S

    store = await Neo4jStore.open(server, timeout_s=PATIENCE_S, owner="ana-id")
    await store.apply(
        [
            PutProfile(key="name", value="Ana", at=at(1)),
            PutOwner(owner="ana-id", name="Ana", at=at(1)),
            remembered("of-ana", project_id=None),
            created("f", project_id="garden", parent_session_id="s", forked_at_index=1),
        ]
    )
    await store.aclose()
    rows = await ask(
        server,
        "MATCH (n) UNWIND labels(n) AS label UNWIND keys(n) AS key RETURN DISTINCT label, key",
    )
    held: dict[str, set[str]] = {}
    for row in rows:
        held.setdefault(row["label"], set()).add(row["key"])
    # Given only by who has it: an embedder, a model that says it, a digest that was made.
    rare = {"remote", "summary", "summaryEmbedding", "embedding", "reasoning", "at"}
    for label, properties in re.findall(r"^\| `(\w+)` \|[^|]*\|(.*)\|$", DOCUMENT, re.M):
        named = set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", properties)))
        assert named - rare <= held[label], label
    types = {
        row["type"] for row in await ask(server, "MATCH ()-[r]->() RETURN DISTINCT type(r) AS type")
    }
    assert set(re.findall(r"\[:([A-Z_]+)", DOCUMENT.partition("## Which")[0])) <= types
    assert types - {"FINDS"} <= set(re.findall(r"[A-Z_]{5,}", DOCUMENT))


def test_every_query_is_tried() -> None:
    """None stands in the document that nobody ran."""
    assert set(queries()) == set(EXPECTED)
    assert DOCUMENT.count("```cypher") == len(EXPECTED)

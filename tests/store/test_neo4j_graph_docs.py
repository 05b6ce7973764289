"""The Cypher of docs/graph.md, as it stands there, on a small graph."""

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from ragmem.records import (
    CodeFile,
    CodeReference,
    CodeScope,
    EmbedderMark,
    FileAccess,
    Project,
    PutCodeFile,
    PutReferences,
    PutVectors,
    ReferenceHow,
    RegisterProject,
    Write,
)
from ragmem.store.neo4j import Connection
from ragmem.store.neo4j.gateway import Row
from ragmem.store.neo4j.vectors import EMBEDDED
from tests.fakes.neo4j import ask, in_thread, open_empty_neo4j_store
from tests.store.samples import (
    at,
    begun,
    called,
    created,
    finished,
    insight,
    remembered,
    said,
    summed,
)

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


def defined(project_id: str, path: str, *names: str, imports: tuple[str, ...] = ()) -> Write:
    """A file of the code index, with these functions."""
    scopes = tuple(
        CodeScope(
            scope_id=f"{project_id}:{name}", kind="function", name=name, qualified_name=name,
            start_line=line, end_line=line, hash=name,
        )
        for line, name in enumerate(names, 1)
    )  # fmt: skip
    file = CodeFile(
        project_id=project_id, path=path, language="python", hash=path, scopes=scopes,
        imports=imports,
    )  # fmt: skip
    return PutCodeFile(file=file)


def linked(turn_id: str, **hows: ReferenceHow) -> Write:
    """What a turn has to do with functions of the garden, or of its clone."""
    references = tuple(
        CodeReference(scope_id=name.replace("_", ":"), how=how) for name, how in hows.items()
    )
    return PutReferences(turn_id=turn_id, references=references)


def code() -> list[Write]:
    """Files of the garden, its clone and the kitchen, and what turns have to do with them."""
    return [
        defined("garden", "beds/north.txt", "plant", "dig"),
        defined("garden", "main.py", "grow", imports=("beds/north.txt",)),
        defined("garden", "tests/main.py", imports=("main.py", "other.py")),
        defined("garden", "other.py", imports=("main.py",)),
        defined("clone", "beds/north.txt", "plant"),
        defined("kitchen", "beds/north.txt", "plant"),
        linked("t1", garden_plant="read", garden_grow="found"),
        linked("t2", garden_plant="edited", garden_dig="found"),
        linked("u1", clone_plant="named"),
        linked("v1", kitchen_plant="edited"),
    ]


def vector(turn_id: str, *numbers: float) -> Write:
    """Of a turn, as an embedder of four dimensions gives it: those of all tests of one server."""
    given = struct.pack("<4f", *numbers, 0, 0)
    return PutVectors(
        record_id=turn_id, level=0, embedder="small", text_hash=turn_id, vectors=(given,)
    )


def small_graph() -> list[Write]:
    """Two sessions in the garden's project, one of them from a joined folder; one elsewhere."""

    def project(name: str, path: str, into: str | None = None) -> RegisterProject:
        known = Project(project_id=name, path=path, created_at=at(0), joined_into=into)
        return RegisterProject(project=known)

    return [
        project("garden", HOME),
        project("clone", "/home/ana/clone", "garden"),
        project("kitchen", "/home/ana/kitchen"),
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
EXPECTED: dict[str, list[dict[str, Any]]] = {
    "The newest sessions of a project": [
        {"session": "r", "title": "Hostas", "turns": 1, "last": at(20)},
        {"session": "s", "title": "Shade", "turns": 2, "last": at(10)},
    ],
    "Which turns touched a file": [
        {"turn": "u1", "asked": "And hostas?", "how": ["read"], "last": at(20)},
        {"turn": "t2", "asked": "Write it down.", "how": ["write"], "last": at(10)},
        {"turn": "t1", "asked": "Where do ferns go?", "how": ["read"], "last": at(1)},
    ],
    "Search by meaning": [
        {"turn": "u1", "said": "And hostas?", "session": "r", "score": 0.8},
        {"turn": "t2", "said": "Write it down.", "session": "s", "score": 0.5},
    ],
    "Which sessions touched this file?": [
        {"session": "r", "title": "Hostas", "how": ["read"], "turns": 1, "last": at(20)},
        {"session": "s", "title": "Shade", "how": ["read", "write"], "turns": 2, "last": at(10)},
    ],
    "What was decided about it?": [
        {
            "decided": "Ferns go north.",
            "by": "person",
            "at": at(10),
            "words": ["no, north", "north: shade"],
            "sessions": ["s"],
        },
        {
            "decided": "Never water at noon.",
            "by": "person",
            "at": at(2),
            "words": ["never at noon"],
            "sessions": ["r"],
        },
    ],
    "Which sessions discussed this code?": [
        {"session": "r", "title": "Hostas", "how": ["named"], "turns": 1, "last": at(20)},
        {"session": "s", "title": "Shade", "how": ["edited", "read"], "turns": 2, "last": at(10)},
    ],
    "What was decided about this code?": [
        {
            "kind": "failure",
            "decided": "`make beds` needs a spade.",
            "at": at(21),
            "words": ["ferns, you know"],
            "sessions": ["r"],
        },
        {
            "kind": "decision",
            "decided": "Ferns go north.",
            "at": at(10),
            "words": ["no, north", "north: shade"],
            "sessions": ["s"],
        },
        {
            "kind": "rule",
            "decided": "Never water at noon.",
            "at": at(2),
            "words": ["never at noon"],
            "sessions": ["r"],
        },
    ],
    "Which files change together with it?": [
        {"file": "list.txt", "turns": 1, "sessions": 1, "last": at(10)},
    ],
    "What imports it?": [
        {"file": "main.py", "steps": 1},
        {"file": "other.py", "steps": 2},
        {"file": "tests/main.py", "steps": 2},
    ],
    "What did it take the place of?": [
        {"back": 0, "content": "Ferns go north.", "at": at(10), "until": None},
        {"back": 1, "content": "Ferns go south.", "at": at(1), "until": at(10)},
    ],
    "Where does a memory come from?": [
        {
            "session": "Shade",
            "turn": 2,
            "asked": "Write it down.",
            "words": "no, north",
            "tool": None,
            "file": None,
            "at": at(10),
        },
        {
            "session": "Shade",
            "turn": 1,
            "asked": "Where do ferns go?",
            "words": "north: shade",
            "tool": "edit_file",
            "file": "beds/north.txt",
            "at": at(1),
        },
    ],
    "Which commands failed here?": [
        {"command": '{"command": "sleep 999"}', "times": 1, "last": at(21), "sessions": ["r"]},
        {
            "command": '{"command": "make beds"}',
            "times": 2,
            "last": at(20),
            "sessions": ["r", "s"],
        },
    ],
    "Which commands failed here? (2)": [{"failure": "`make beds` needs a spade.", "at": at(21)}],
    "What changed since?": [
        {"file": "beds/north.txt", "asked": ["Write it down."], "last": at(10)},
        {"file": "list.txt", "asked": ["Write it down."], "last": at(10)},
    ],
    "What changed since? (2)": [
        {
            "content": "`make beds` needs a spade.",
            "kind": "failure",
            "change": "new",
            "at": at(21),
        },
        {"content": "Ferns go north.", "kind": "decision", "change": "new", "at": at(10)},
        {"content": "Ferns go south.", "kind": "decision", "change": "superseded", "at": at(10)},
    ],
}  # fmt: skip


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


def sorted_rows(rows: list[Row] | list[dict[str, Any]]) -> list[dict[str, Any]]:
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
    assert sorted_rows(rows) == sorted_rows(EXPECTED[heading])
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

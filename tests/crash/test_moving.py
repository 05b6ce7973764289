"""Commands that move, keep or remove memory, killed in their middle: run again, they end well."""

import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ragmem.ids import new_id
from ragmem.records import (
    CreateSession,
    Project,
    PutSession,
    PutTurn,
    RecordToolCall,
    RegisterProject,
    Session,
    SessionQuery,
    Turn,
    Write,
)
from ragmem.store import Archive
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.transfer import KINDS
from tests.crash.runs import Run
from tests.crash.scenario import World
from tests.fakes.llm_server import LLMServer
from tests.fakes.neo4j import PATIENCE_S, in_thread, neo4j_env
from tests.store.samples import START, a_session, called, summed, whole_turn

_SESSIONS, _TURNS = 11, 20


def also(*values: Any) -> Any:
    """A case of the whole campaign."""
    return pytest.param(*values, marks=pytest.mark.campaign)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, server: LLMServer) -> Path:
    """A home with some hundreds of turns on SQLite: several batches of a move."""
    world = World(tmp_path_factory.mktemp("stored"), server)
    (world.home / "data").mkdir(parents=True, mode=0o700)
    in_thread(_filled(world))
    return world.home


async def _filled(world: World) -> None:
    store = await world.opened()
    project = Project(project_id="garden", path="/home/ana/garden", created_at=START)
    await store.apply([RegisterProject(project=project)])
    for number in range(_SESSIONS):
        await store.apply(_session(f"s{number}"))
    fork = a_session("fork", project_id="garden", parent_session_id="s0", forked_at_index=5)
    await store.apply([CreateSession(session=fork), summed("s0", "s0-1", "s0-2")])
    await store.aclose()


@pytest.fixture
def world(tmp_path: Path, server: LLMServer, stored: Path) -> World:
    world = World(tmp_path, server)
    shutil.copytree(stored, world.home)
    return world


@pytest.fixture
def graph(neo4j_server: Connection) -> dict[str, str]:
    """An empty Neo4j, as it stands in the environment."""
    return neo4j_env(neo4j_server) | {"RAGMEM_STORE": "sqlite"}


def _session(session_id: str) -> Sequence[Write]:
    writes: list[Write] = [PutSession(session=a_session(session_id, project_id="garden"))]
    for index in range(1, _TURNS + 1):
        turn_id = f"{session_id}-{index}"
        call = called(session_id, turn_id, 0, "plants.txt", tool_call_id=new_id())
        assert isinstance(call, RecordToolCall)
        turn = Turn(
            turn_id=turn_id,
            session_id=session_id,
            turn_index=index,
            user_message=f"Question {index}?",
            assistant_message="Answer.",
            status="completed",
            started_at=START,
            finished_at=START,
            tool_calls=(call.call,),
        )
        writes.append(PutTurn(turn=turn, accesses={call.call.tool_call_id: call.accesses}))
    return writes


def killed(run: Run) -> None:
    """It died at its point, and not of anything else."""
    assert run.wait() == -signal.SIGKILL, run.out + run.err


def ended(run: Run) -> str:
    assert run.wait() == 0, run.out + run.err
    return run.out


async def sessions_in(store: Archive) -> list[Session]:
    try:
        assert await store.check() == []
        return await store.sessions(SessionQuery(limit=1000))
    finally:
        await store.aclose()


@pytest.mark.parametrize(
    "point", ["neo4j.commit@3", also("transfer.compare@2"), also("transfer.applied@2")]
)
async def test_a_move_killed_in_its_middle_is_run_again(
    world: World, graph: dict[str, str], point: str
) -> None:
    world.env |= graph
    before = await sessions_in(await world.opened())
    name, _, hit = point.partition("@")
    move = ("store", "migrate", "--to", "neo4j", "--yes")
    killed(world.ragmem(*move, failpoint=f"{name}:kill9@{hit}"))
    told = ended(world.ragmem(*move))
    assert told.count(" equal") == len(KINDS)
    assert f"{_SESSIONS * _TURNS}" in told
    assert await sessions_in(await world.opened()) == before


@pytest.mark.parametrize(
    ("of", "point"),
    [
        ("sqlite", "transfer.apply@2"),
        also("neo4j", "lines.read@150"),
        also("sqlite", "sqlite.open@2"),
    ],
)
async def test_a_restore_killed_in_its_middle_is_run_again(
    world: World, tmp_path: Path, request: pytest.FixtureRequest, of: str, point: str
) -> None:
    before = await sessions_in(await world.opened())
    backup = tmp_path / "backup"
    if of == "neo4j":
        graph = request.getfixturevalue("graph")
        ended(world.ragmem("store", "migrate", "--to", "neo4j", "--yes", env=graph))
        ended(world.ragmem("store", "backup", str(backup), env=graph | {"RAGMEM_STORE": "neo4j"}))
    else:
        ended(world.ragmem("store", "backup", str(backup)))
    world.home = world.folder / "second"
    world.env["RAGMEM_HOME"] = str(world.home)
    name, _, hit = point.partition("@")
    restore = ("store", "migrate", "--from", str(backup), "--to", "sqlite", "--yes")
    killed(world.ragmem(*restore, failpoint=f"{name}:kill9@{hit}"))
    assert ended(world.ragmem(*restore)).count(" equal") == len(KINDS)
    assert await sessions_in(await world.opened()) == before


@pytest.mark.parametrize(
    ("point", "there"),
    [
        also("sqlite.backup", False),
        ("sqlite.backed_up", False),
        also("export.written", False),
        ("export.named", True),
    ],
)
async def test_a_backup_killed_is_whole_or_not_there(
    world: World, tmp_path: Path, point: str, there: bool
) -> None:
    backup = tmp_path / "backup.db"
    killed(world.ragmem("store", "backup", str(backup), failpoint=f"{point}:kill9"))
    assert backup.exists() is there
    if not there:
        ended(world.ragmem("store", "backup", str(backup)))
    before = await sessions_in(await world.opened())
    assert len(before) == _SESSIONS + 1
    world.env["RAGMEM_HOME"] = str(world.folder / "second")
    restore = ("store", "migrate", "--from", str(backup), "--to", "sqlite", "--yes")
    assert ended(world.ragmem(*restore)).count(" equal") == len(KINDS)


async def _joined(store: Archive) -> None:
    """The garden is joined to another project, and then worked in."""
    park, garden = (
        Project(project_id=name, path=f"/home/ana/{name}", created_at=START)
        for name in ("park", "garden")
    )
    joined = replace(garden, joined_into="park")
    await store.apply([RegisterProject(project=park), RegisterProject(project=joined)])
    late = a_session("late", project_id="park", project_path=garden.path)
    await store.apply([CreateSession(session=late), *whole_turn("late", "late-1", "More plants?")])
    await store.apply([CreateSession(session=a_session("own", project_id="park", cwd=park.path))])
    await store.aclose()


async def projects_in(store: Archive) -> Counter[str]:
    """How many sessions are each project's, in a store in which all is well."""
    return Counter(session.project_id for session in await sessions_in(store))


ONE_STEP = {
    "delete": ("sessions", "delete", "s7", "--yes"),
    "split": ("sessions", "split", "/home/ana/garden"),
    "import": ("sessions", "import", "FILE", "--as-new", "--yes"),
}


@pytest.mark.parametrize(
    ("command", "point", "done"),
    [
        also("delete", "sqlite.begun@1", False),
        ("delete", "sqlite.delete@4", False),
        also("delete", "sqlite.commit@1", False),
        ("delete", "sqlite.committed@1", True),
        ("delete", "sqlite.checkpoint@1", True),
        also("split", "sqlite.begun@1", False),
        also("split", "sqlite.split@1", False),
        ("split", "sqlite.split@9", False),
        also("split", "sqlite.commit@1", False),
        ("split", "sqlite.committed@1", True),
        also("import", "transfer.import@1", False),
        ("import", "sqlite.commit@1", False),
        ("import", "sqlite.committed@1", True),
    ],
)
async def test_what_is_one_step_is_done_or_not_begun_when_killed(
    world: World, tmp_path: Path, command: str, point: str, done: bool
) -> None:
    """Run again it is done; another copy is made of what was imported already."""
    await _joined(await world.opened())
    file = str(tmp_path / "s3.json")
    ended(world.ragmem("sessions", "export", "s3", "-o", file))
    argv = [word.replace("FILE", file) for word in ONE_STEP[command]]
    before = Counter(park=_SESSIONS + 3)
    after = {
        "delete": Counter(park=_SESSIONS + 2),
        "split": Counter(park=1, garden=_SESSIONS + 2),
        "import": Counter(park=_SESSIONS + 4),
    }[command]
    name, _, hit = point.partition("@")
    killed(world.ragmem(*argv, failpoint=f"{name}:kill9@{hit}"))
    assert await projects_in(await world.opened()) == (after if done else before)
    again = world.ragmem(*argv)
    assert again.wait() == (2 if done and command == "delete" else 0), again.err
    if done and command == "import":
        after["park"] += 1
    assert await projects_in(await world.opened()) == after


@pytest.mark.parametrize("point", ["neo4j.commit", also("neo4j.committed"), also("neo4j.split")])
async def test_a_split_of_a_graph_killed_is_done_or_not_begun(
    world: World, neo4j_server: Connection, point: str
) -> None:
    env = neo4j_env(neo4j_server)

    async def opened() -> Neo4jStore:
        return await Neo4jStore.open(neo4j_server, timeout_s=PATIENCE_S)

    await _joined(await opened())
    # What a home's first run writes besides has no part in it.
    ended(world.ragmem("store", "check", env=env))
    killed(world.ragmem(*ONE_STEP["split"], failpoint=f"{point}:kill9", env=env))
    before, after = Counter(park=2), Counter(park=1, garden=1)
    done = point == "neo4j.committed"
    assert await projects_in(await opened()) == (after if done else before)
    said = ended(world.ragmem(*ONE_STEP["split"], env=env))
    assert ("nothing to split" if done else "1 session moved there from /home/ana/park") in said
    assert await projects_in(await opened()) == after


_BACKUP, _DELETE = ("store", "backup", "FILE"), ("sessions", "delete", "s1", "--yes")


@pytest.mark.parametrize("action", ["enospc", also("eio")])
@pytest.mark.parametrize(
    ("point", "argv"),
    [
        also("sqlite.backup", _BACKUP),
        ("sqlite.backed_up", _BACKUP),
        also("export.written", _BACKUP),
        ("export.written", ("sessions", "export", "s1", "-o", "FILE")),
        ("sqlite.delete", _DELETE),
        ("sqlite.checkpoint", _DELETE),
    ],
)
async def test_a_failing_disk_is_told_in_plain_words(
    world: World, tmp_path: Path, point: str, action: str, argv: Sequence[str]
) -> None:
    words = [str(tmp_path / word) if word.isupper() else word for word in argv]
    run = world.ragmem(*words, failpoint=f"{point}:{action}@1")
    assert run.wait() in (1, 75), run.err
    assert run.err.startswith("error: ") or "\nerror: " in run.err
    assert "Traceback" not in run.err
    assert "This is a bug" not in run.err
    if argv[1] in ("backup", "export"):
        assert not (tmp_path / "FILE").exists()
    ended(world.ragmem("store", "check"))


@pytest.mark.parametrize(
    ("point", "action"), [("lines.write", "enospc"), also("lines.read", "eio")]
)
async def test_a_failing_backup_of_the_graph_is_told_in_plain_words(
    world: World, tmp_path: Path, graph: dict[str, str], point: str, action: str
) -> None:
    world.env |= graph
    ended(world.ragmem("store", "migrate", "--to", "neo4j", "--yes"))
    file, of_the_graph = str(tmp_path / "backup"), {"RAGMEM_STORE": "neo4j"}
    commands = {
        "lines.write": ("store", "backup", file),
        "lines.read": ("store", "migrate", "--from", file, "--to", "sqlite", "--yes"),
    }
    if point == "lines.read":
        ended(world.ragmem("store", "backup", file, env=of_the_graph))
    run = world.ragmem(*commands[point], failpoint=f"{point}:{action}@2", env=of_the_graph)
    assert run.wait() == 1
    assert "Traceback" not in run.err
    assert "error: " in run.err
    assert "This is a bug" not in run.err
    ended(world.ragmem(*commands[point], env=of_the_graph))


@pytest.mark.parametrize("hit", [1, also(2), 3, also(4)])
async def test_a_repair_killed_is_run_again(world: World, hit: int) -> None:
    database = world.home / "data" / "memory.db"
    data = bytearray(database.read_bytes())
    page = 4096 * (len(data) // 4096 // 2)
    data[page : page + 4096] = b"\xa5" * 4096
    database.write_bytes(data)
    run = world.ragmem("store", "repair", failpoint=f"sqlite.exchange:kill9@{hit}")
    assert run.wait() in (0, -signal.SIGKILL), run.err
    assert database.stat().st_size
    ended(world.ragmem("store", "repair"))
    assert ended(world.ragmem("store", "check")).startswith("No problems found: ")
    kept = sorted((world.home / "data").glob("memory.db.damaged-*"))
    assert bytes(data) in [file.read_bytes() for file in kept]
    assert len(await sessions_in(await world.opened())) >= _SESSIONS

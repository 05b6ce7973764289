"""Many processes at once, and some that are stopped or die while others go on."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest

from ragmem.store.neo4j import Connection
from ragmem.store.spool.files import count_waiting
from tests.crash.check import check
from tests.crash.runs import Run
from tests.crash.scenario import World
from tests.fakes.llm_server import LLMServer
from tests.fakes.neo4j import ask, open_empty_neo4j_store
from tests.store.samples import begun, created

_CATCHING_UP = 9


@pytest.fixture(params=["sqlite", "neo4j"])
async def world(
    request: pytest.FixtureRequest, tmp_path: Path, server: LLMServer
) -> AsyncIterator[World]:
    graph = request.getfixturevalue("neo4j_server") if request.param == "neo4j" else None
    world = World(tmp_path, server, graph)
    yield world
    world.kill_all()


@pytest.fixture
def embedded(tmp_path: Path, server: LLMServer) -> Iterator[World]:
    world = World(tmp_path, server)
    yield world
    world.kill_all()


def whole(world: World, prompt: str) -> None:
    """A turn that ends well, and is told by its events."""
    end(world, world.ask(prompt), prompt)


def end(world: World, run: Run, prompt: str) -> None:
    status = run.wait()
    said = world.heard(run, prompt)
    assert (status, said.phase) == (0, "answered"), run.err
    if "away" in run.err:
        # Where a turn stands is the store's word, and that could not be asked.
        world.said[-1] = msgspec.structs.replace(said, turn_index=0)


async def judged(world: World, *, sessions: int = 1, running: int = 0) -> list[str]:
    for _ in range(_CATCHING_UP):
        # On a busy machine the last process may have left its own last writes to the next one.
        if not (left := world.left()):
            break
        whole(world, f"Is it all there, after {len(world.said)} turns?")
        if left & world.left():
            break
    store = await world.opened()
    try:
        wrong = await check(store, world.said, world.project, sessions=sessions, running=running)
        if len(found := await store.projects()) != 1:
            wrong.append(f"{len(found)} projects of one folder")
    finally:
        await store.aclose()
    waiting = count_waiting(world.home / "data" / "spool", deep=True)
    return wrong + ([f"{waiting} writes wait"] if waiting else [])


async def until_stopped(run: Run) -> None:
    """It has reached the point at which it stops itself."""
    deadline = time.monotonic() + 120
    while not run.stopped:
        assert time.monotonic() < deadline, run.err
        await asyncio.sleep(0.005)


async def _stopped_at(world: World, point: str) -> tuple[Run, str]:
    """A process that stopped there, and what it was asked for; no transaction of it is open.

    On a busy machine one may be, of what it writes beside: whoever needs its turn then waits.
    Or the store was slow to take what it wrote, which is its own to bring back.
    """
    name, _, hit = point.partition("@")
    for _ in range(9):
        prompt = world.next_job()
        run = world.ask(prompt, failpoint=f"{name}:stop@{hit}")
        await until_stopped(run)
        if not world.left() and await _open_transactions(world) == 0:
            return run, prompt
        run.kill(signal.SIGCONT)
        end(world, run, prompt)
    raise AssertionError(f"it never stopped at {point} without an open transaction")


async def _open_transactions(world: World) -> int:
    if world.neo4j:
        statement = "SHOW TRANSACTIONS YIELD currentQuery RETURN currentQuery AS query"
        shown = await ask(world.neo4j, statement)
        return sum("SHOW TRANSACTIONS" not in row["query"] for row in shown)
    with closing(apsw.Connection(str(world.home / "data" / "memory.db"))) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return 1
        connection.execute("ROLLBACK")
    return 0


@pytest.mark.parametrize(
    "point", ["call.start_kept@3", pytest.param("tool.ran@4", marks=pytest.mark.campaign)]
)
async def test_a_process_stopped_in_mid_turn_goes_on(world: World, point: str) -> None:
    """Others work on meanwhile; nothing is lost, and turns don't mix.

    On the graph its lease has ended when it is continued: the others have taken its
    turn for interrupted, and the turn's own end is what is kept in the end.
    """
    whole(world, "Hello")
    stopped, prompt = await _stopped_at(world, point)
    before = len(world.said)
    world.end_leases()
    whole(world, "Are you alone?")
    if world.neo4j:
        store = await world.opened()
        session_id = (await store.find_sessions(await _session_id(world)))[0].session_id
        turns = await store.turns(session_id)
        await store.aclose()
        told = ["completed"] * before + ["interrupted", "completed"]
        assert [turn.status for turn in turns] == told
    stopped.kill(signal.SIGCONT)
    end(world, stopped, prompt)
    whole(world, "And now?")
    assert await judged(world) == []
    indexes = [said.turn_index for said in world.said]
    assert indexes[:before] == list(range(1, before + 1))
    assert indexes[before : before + 3] == [before + 2, before + 1, before + 3]


async def _session_id(world: World) -> str:
    store = await world.opened()
    try:
        (span,) = await store.spans()
    finally:
        await store.aclose()
    return span.session_id


async def test_a_process_stopped_within_a_transaction(embedded: World) -> None:
    world = embedded
    whole(world, "Hello")
    prompt = world.next_job()
    stopped = world.ask(prompt, failpoint="sqlite.commit:stop@4")
    await until_stopped(stopped)
    began = time.monotonic()
    whole(world, "Are you alone?")
    # Where it waited for the stopped one it would wait for ever.
    assert time.monotonic() - began < 60
    stopped.kill(signal.SIGCONT)
    end(world, stopped, prompt)
    whole(world, "And now?")
    assert await judged(world) == []


async def test_the_killed_owner_of_a_transaction_frees_it_at_once(embedded: World) -> None:
    world = embedded
    whole(world, "Hello")
    prompt = world.next_job()
    holder = world.ask(prompt, failpoint="sqlite.commit:stop@4")
    await until_stopped(holder)
    holder.kill()
    holder.wait()
    world.heard(holder, prompt)
    began = time.monotonic()
    whole(world, "And now?")
    assert time.monotonic() - began < 30
    assert await judged(world) == []


async def test_a_process_stopped_for_days_is_alive_again(neo4j_server: Connection) -> None:
    """A lid closed over the weekend; nobody takes its turns for dead ones."""
    store = await open_empty_neo4j_store(neo4j_server)
    await store.apply([created("s")])
    await store.attach("s", "ana")
    # What others do with an owner that was not heard of for a day.
    await ask(neo4j_server, "MATCH (o:Process) DETACH DELETE o")
    await store.heartbeat("ana")
    await store.apply([begun("s", "hers", owner_id="ana")])
    await store.attach("s", "ben")
    (turn,) = await store.turns("s")
    await store.detach("ana")
    await store.aclose()
    assert (turn.status, turn.owner_id) == ("running", "ana")

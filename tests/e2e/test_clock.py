"""Clocks that jump: what counts is the order in which things were said, and no age is negative."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ragmem.config import MemoryConfig
from ragmem.memory.memory import Memory
from ragmem.records import Project, SessionQuery, utc_now
from ragmem.store import Store
from ragmem.store.spool import Patience, SpooledStore
from ragmem.store.sqlite import SQLiteStore
from ragmem.text import ago
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, LLMServer
from tests.fakes.neo4j import ALSO_NEO4J
from tests.store.samples import begun, created, finished

JUMPS = [
    timedelta(days=-1), timedelta(days=3653), timedelta(0), timedelta(days=-366 * 56),
    timedelta(hours=-1), timedelta(days=1),
]  # fmt: skip


# A busy machine must not make a write wait in the spool: here it is the clock that is tested.
CALM = Patience(stall_s=20, read_s=20)


class Clock:
    def __init__(self) -> None:
        self.offset = timedelta(0)

    def __call__(self) -> datetime:
        return utc_now() + self.offset


@pytest.fixture
def clock() -> Clock:
    return Clock()


Opened = Callable[[], Awaitable[Store]]


@pytest.fixture(params=["sqlite", ALSO_NEO4J])
async def opened(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncIterator[Opened]:
    stores: list[Store] = []
    if request.param == "neo4j":
        from ragmem.store.neo4j import Neo4jStore
        from tests.fakes.neo4j import PATIENCE_S, empty_neo4j

        server = request.getfixturevalue("neo4j_server")
        await empty_neo4j(server)

        async def inner() -> Store:
            return await Neo4jStore.open(server, clock=clock, timeout_s=PATIENCE_S)
    else:

        async def inner() -> Store:
            return await SQLiteStore.open(
                tmp_path / "memory.db", locks_dir=tmp_path / "locks", clock=clock
            )

    async def spooled() -> Store:
        stores.append(SpooledStore(inner, tmp_path / "spool", patience=CALM))
        return stores[-1]

    yield spooled
    for store in stores:
        await store.aclose()


async def test_turns_are_in_the_order_in_which_they_were_said(
    tmp_path: Path, opened: Opened, clock: Clock
) -> None:
    store = await opened()

    async def the_store() -> Store:
        return store

    project = Project(project_id="p", path=str(tmp_path), created_at=clock())
    memory = Memory(the_store, MemoryConfig(), clock=clock)
    session = memory.new_session(tmp_path, project)
    for number, jump in enumerate(JUMPS):
        clock.offset = jump
        turn = await memory.begin_turn(session, project, f"question {number}", model="m")
        clock.offset = jump - timedelta(days=1)
        await turn.finish("completed", "Fine.")
    assert await store.attach(session.session_id, "another") == [memory.owner_id]
    await memory.aclose()
    stored = await store.turns(session.session_id)
    assert [turn.user_message for turn in stored] == [f"question {n}" for n in range(len(JUMPS))]
    assert [turn.turn_index for turn in stored] == [1, 2, 3, 4, 5, 6]
    assert {turn.status for turn in stored} == {"completed"}
    assert (await store.session(session.session_id)).last_message == "question 5"


async def test_a_clock_that_was_ahead_does_not_stay_in_front(opened: Opened, clock: Clock) -> None:
    """`-c` and the list take what was said last, not what was said in 2036."""
    store = await opened()

    async def say(session_id: str, turn_id: str) -> None:
        now = clock()
        await store.apply(
            [
                created(session_id, started_at=now, updated_at=now, last_activity_at=now),
                begun(session_id, turn_id, started_at=now),
                finished(session_id, turn_id, finished_at=now),
            ]
        )

    async def order() -> list[str]:
        listed = [s.session_id for s in await store.sessions(SessionQuery())]
        for limit in range(1, len(listed)):
            first = await store.sessions(SessionQuery(limit=limit))
            assert [s.session_id for s in first] == listed[:limit]
        return listed

    await say("before", "t1")
    clock.offset = timedelta(days=3653)
    await say("ahead", "t2")
    assert await order() == ["ahead", "before"]
    clock.offset = timedelta(minutes=1)
    await say("after", "t3")
    assert await order() == ["after", "before", "ahead"]
    clock.offset = timedelta(minutes=2)
    await say("ahead", "t4")
    assert await order() == ["ahead", "after", "before"]
    # A machine whose battery is empty: all that is known is ahead of it.
    clock.offset = timedelta(days=-366 * 56)
    await say("in 1970", "t5")
    assert await order() == ["in 1970", "ahead", "after", "before"]
    await say("before", "t6")
    clock.offset += timedelta(seconds=1)
    await say("before", "t7")
    assert (await order())[:2] == ["before", "in 1970"]


async def test_a_lease_is_the_servers(
    opened: Opened, clock: Clock, request: pytest.FixtureRequest
) -> None:
    store = await opened()
    await store.apply([created("s"), begun("s", "t", owner_id="me")])
    assert await store.attach("s", "me") == []
    for jump in JUMPS:
        clock.offset = jump
        await store.heartbeat("me")
        assert await store.attach("s", "you") == ["me"]
        (turn,) = await store.turns("s")
        assert turn.status == "running"
        await store.detach("you")
    await store.detach("me")
    (turn,) = await store.turns("s")
    assert turn.status == "interrupted"


async def test_no_wait_depends_on_the_clock(opened: Opened, clock: Clock) -> None:
    store = await opened()
    async with asyncio.timeout(60):
        for jump in JUMPS:
            clock.offset = jump
            await store.sessions(SessionQuery())
            await store.apply([created(f"s{jump}")])


@pytest.mark.parametrize(
    "jump", [*JUMPS, timedelta(seconds=1), timedelta(seconds=59), timedelta(days=40)]
)
def test_no_age_is_negative(jump: timedelta) -> None:
    now = datetime(2026, 3, 29, 3, 0, tzinfo=UTC)
    text = ago(now + jump, now)
    assert not re.search(r"-\d+ ", text), text
    if jump >= timedelta(0):
        assert text == "just now"


# --- processes ---------------------------------------------------------------------------

# The C library's clock, moved: what libfaketime does, in a few lines. The environment is read at
# the start, since another thread may be writing to it later.
_MOVED_CLOCK = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>
#include <sys/syscall.h>
#include <unistd.h>
static long long offset_s;
__attribute__((constructor)) static void read_offset(void) {
    const char *given = getenv("TEST_CLOCK_OFFSET_S");
    if (given) offset_s = atoll(given);
}
int clock_gettime(clockid_t id, struct timespec *now) {
    int code = (int)syscall(SYS_clock_gettime, id, now);
    if (code == 0 && id == CLOCK_REALTIME) now->tv_sec += offset_s;
    return code;
}
"""


@pytest.fixture
def ragmem(tmp_path: Path) -> Iterator[Ragmem]:
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(_MOVED_CLOCK)
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to move a process' clock with")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    with LLMServer([Answer("Fine.")], repeat=True) as server:
        yield Ragmem(tmp_path, {**server.env, "LD_PRELOAD": str(library)})


def seconds(jump: timedelta) -> dict[str, str]:
    return {"TEST_CLOCK_OFFSET_S": str(int(jump.total_seconds()))}


def test_a_conversation_over_jumps(ragmem: Ragmem) -> None:
    """`-c` goes on with what was said last; the model sees it in that order."""
    first = ragmem.session_of("question 0")
    for number, jump in enumerate(JUMPS, 1):
        zone = {"TZ": ("Europe/Paris", "America/New_York", "UTC")[number % 3]}
        done = ragmem.run(
            "ask", f"question {number}", "-c", "--output-format", "json", env=seconds(jump) | zone
        )
        assert done.code == 0, done.err
        assert done.json["session_id"] == first
        assert done.json["duration_ms"] >= 0
    turns = ragmem.shown(first)["turns"]
    assert [t["user_message"] for t in turns] == [f"question {n}" for n in range(len(turns))]
    sent = json.dumps(ragmem.run("context", "now?", "-c", "--format", "json").json["messages"])
    places = [sent.index(f"question {n}") for n in range(len(turns))]
    assert places == sorted(places)


def test_what_is_shown_over_jumps(ragmem: Ragmem) -> None:
    jumps = [timedelta(days=3653), timedelta(days=-366 * 56), timedelta(hours=-1)]
    for number, jump in enumerate(jumps):
        assert ragmem.run("ask", f"question {number}", env=seconds(jump)).code == 0
    zones = ("Asia/Kathmandu", "Nowhere/Nothing") * 2
    for jump, zone in zip((*jumps, timedelta(0)), zones, strict=True):
        listed = ragmem.run("sessions", "list", env=seconds(jump) | {"TZ": zone})
        assert (listed.code, listed.err) == (0, "")
        assert listed.out.count("question") == len(jumps)
        assert not re.search(r"-\d+ (s|min|h|d)\b|\bin \d", listed.out), listed.out
    done = ragmem.run("ask", "the latest", "--output-format", "json")
    again = ragmem.run("ask", "and now?", "-c", "--output-format", "json")
    assert again.json["session_id"] == done.json["session_id"]

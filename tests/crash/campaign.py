"""Kills at random moments and at every failpoint: run, kill, recover, check, again.

The first violation ends a campaign: what is wrong, the seed and the kept folder are
in the `Violation`.
"""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from ragmem.errors import EXIT_FAILED, EXIT_TRY_AGAIN
from ragmem.failpoints import POINTS
from ragmem.store.neo4j import Connection
from ragmem.store.spool.files import count_waiting
from tests.crash.check import check, check_request
from tests.crash.runs import Run
from tests.crash.scenario import World, model
from tests.fakes.llm_server import LLMServer

_CATCHING_UP = 9
"""Processes on a busy machine, of which each leaves only what it has written itself."""
_LIFE = 10
"""Kills in one home; the next one is fresh."""
_STORED_IN_A_TURN = 14
"""Writes to the store."""
_LONGEST_WRITE_S = 0.004
ALL_AREAS = ("turn.", "model.", "call.", "tool.", "file.", "spool.")
"""Of the points that a turn comes by, beside those of its store."""
_AT_FIRST = ("sqlite.open", "sqlite.mi", "sqlite.mark", "neo4j.schema")
"""Only on a fresh home."""
_WRITES = {"sqlite": "begun", "neo4j": "begin"}


class Violation(AssertionError):
    """A promise was broken; says which, and where what is left of it lies."""


class Campaign:
    """Kills on one store; each step is checked."""

    def __init__(
        self,
        folder: Path,
        server: LLMServer,
        *,
        seed: int,
        neo4j: Connection | None = None,
        real_share: float = 0.0,
    ) -> None:
        self._folder = folder
        self._server = server
        self._neo4j = neo4j
        self._kind = "neo4j" if neo4j else "sqlite"
        self._dice = random.Random(seed)
        self._seed = seed
        self._real_share = real_share
        self._worlds = 0
        self._numbers = count(1)
        self._world: World
        self._work_s = self._recovery_s = self._pace = 1.0
        self.phases: Counter[str] = Counter()
        self.recoveries = 0

    async def measure(self) -> float:
        """How long the scenario takes when nobody disturbs it, in seconds."""
        world = self._fresh()
        times = []
        for _ in range(3):
            times.append(await self._whole(world.next_job()))
        self._work_s = max(times[1:])
        self._recovery_s = await self._whole(self._question())
        await self.finish()
        return self._work_s

    async def random_kills(self, times: int, on_kill: Callable[[int], object] = bool) -> None:
        """So many kills, spread evenly over the scenario, at the pace of the machine by then."""
        for number in range(times):
            if number % _LIFE == 0:
                self._fresh()
            real = self._dice.random() < self._real_share
            length_s = self._work_s + (0.3 if real else 0.0)
            prompt = self._world.next_job()
            run = self._world.ask(prompt, real=real)
            await self._kill(run, prompt, self._dice.random() * length_s * 1.05 * self._pace)
            if self._dice.random() < 0.25:
                self.recoveries += 1
                prompt = self._question()
                run = self._world.ask(prompt)
                await self._kill(run, prompt, self._dice.random() * self._recovery_s * self._pace)
            await self._recover()
            if number % _LIFE == _LIFE - 1 or number == times - 1:
                await self.finish()
            on_kill(number + 1)

    async def kills_while_storing(self, times: int, on_kill: Callable[[int], object] = bool) -> int:
        """So many kills, each with a write of the store under way; how many tries that took.

        A process stops itself before one of its writes, goes on for a moment, and is held again:
        only where it then holds the database's lock for writing is its end one of these. On SQLite.
        """
        effective = tries = 0
        while effective < times:
            if tries % _LIFE == 0:
                self._fresh()
            tries += 1
            prompt = self._world.next_job()
            point = f"sqlite.begun:stop@{self._dice.randint(1, _STORED_IN_A_TURN)}"
            run = self._world.ask(prompt, failpoint=point)
            while not run.stopped and not run.ends_within(0.001):
                pass
            run.kill(signal.SIGCONT)
            run.ends_within(self._dice.random() * _LONGEST_WRITE_S)
            run.kill(signal.SIGSTOP)
            while not run.stopped and not run.ends_within(0.001):
                pass
            was_storing = self._world.is_storing(run)
            await self._kill(run, prompt, 0)
            await self._recover()
            if tries % _LIFE == 0:
                await self.finish()
            if was_storing:
                effective += 1
                on_kill(effective)
        await self.finish()
        return tries

    async def every_point(
        self, *, hits: int = 2, areas: tuple[str, ...] = ALL_AREAS, but: Collection[str] = ()
    ) -> Counter[str]:
        """A kill at each point that a turn comes by, in an outage too; how often each was hit.

        `areas`: besides that of the store; `but`: points that are left out.
        """
        reached: Counter[str] = Counter()
        points = [each for each in POINTS if each.startswith((*areas, f"{self._kind}."))]
        for hit in range(hits):
            for number, point in enumerate(each for each in points if each not in but):
                if number % _LIFE == 0 or point.startswith(_AT_FIRST):
                    self._fresh()
                if point.startswith("spool."):
                    reached[point] += await self._kill_in_an_outage(point, 1 + hit)
                else:
                    reached[point] += await self._kill_at(point, 1 + hit * self._dice.randint(1, 4))
            await self.finish()
        return reached

    async def _kill_at(self, point: str, hit: int) -> bool:
        """False where the turn does not come by so often."""
        killed = await self._run_to(self._world.next_job(), f"{point}:kill9@{hit}")
        await self._recover()
        return killed

    async def _kill_in_an_outage(self, point: str, hit: int) -> bool:
        """Nothing can be written but the spool; killed there, or where it is brought back."""
        away, kill = f"{self._kind}.{_WRITES[self._kind]}:eio", f"{point}:kill9@{hit}"
        killed = await self._run_to(self._world.next_job(), f"{away},{kill}")
        if not killed:
            killed = await self._run_to(self._question(), kill)
        await self._recover()
        return killed

    async def _run_to(self, prompt: str, failpoint: str) -> bool:
        run = self._world.ask(prompt, failpoint=failpoint)
        status = await asyncio.to_thread(run.wait)
        said = self._world.heard(run, prompt)
        if status == -signal.SIGKILL:
            self.phases[said.phase] += 1
        elif status or _is_bug(run.err):
            raise self._violation([f"{failpoint} ended with {status}: {run.err}"])
        return status == -signal.SIGKILL

    async def stop_for(self, seconds: float) -> None:
        """A process is stopped in its turn, others work on, and it is continued."""
        world = self._fresh()
        await self._whole(self._question())
        prompt = world.next_job()
        run = world.ask(prompt, failpoint="call.start_kept:stop@1")
        while not run.stopped:
            await asyncio.sleep(0.01)
        await self._whole(self._question())
        await asyncio.sleep(seconds)
        await self._whole(self._question())
        run.kill(signal.SIGCONT)
        status = await asyncio.to_thread(run.wait)
        said = world.heard(run, prompt)
        if status or said.result is None:
            raise self._violation([f"stopped for {seconds} s, it ended with {status}: {run.err}"])
        await self._recover()
        await self.finish()

    async def nth_failures(self, action: str, *, lasting: bool, every: int = 1) -> int:
        """The Nth access to a disk fails, for N = 1, 2, 3 …, until none is left to fail.

        `lasting`: and all that follow. `every`: of each so many in a row one is tried.
        How many runs failed somewhere.
        """
        # A store that may not be written refuses, where a disk that fails is asked again.
        expected = {0, EXIT_TRY_AGAIN} | ({EXIT_FAILED} if action == "erofs" else set())
        number = failed = 0
        while True:
            number += self._dice.randint(1, 2 * every - 1)
            if failed % _LIFE == 0:
                self._fresh()
            prompt = self._world.next_job()
            failpoint = f"*:{action}@{number}{'+' if lasting else ''}"
            run = self._world.ask(prompt, failpoint=failpoint)
            status = await asyncio.to_thread(run.wait)
            said = self._world.heard(run, prompt)
            if not lasting:
                # What failed was tried again: all that was shown has to be there.
                self._world.said[-1] = msgspec.structs.replace(said, durable=True)
            if status not in expected or _is_bug(run.err):
                raise self._violation([f"{failpoint} ended with {status}: {run.err}"])
            await self._recover()
            if run.hits < number:
                await self.finish()
                return failed
            failed += 1

    async def finish(self) -> None:
        """The end of a home: with its owners' leases over, no turn runs any more."""
        self._world.end_leases()
        await self._recover(running=0)
        run = self._world.ragmem("store", "check")
        if run.wait():
            raise self._violation([f"`ragmem store check`: {run.out}{run.err}"])

    def _question(self) -> str:
        """What a person asks who comes back."""
        return f"What happened before {next(self._numbers)}?"

    def _fresh(self) -> World:
        self._worlds += 1
        folder = self._folder / f"world-{self._worlds}"
        self._world = World(folder, self._server, self._neo4j)
        return self._world

    async def _kill(self, run: Run, prompt: str, after_s: float) -> None:
        await asyncio.to_thread(run.ends_within, after_s)
        run.kill()
        await asyncio.to_thread(run.wait)
        said = self._world.heard(run, prompt)
        self.phases[said.phase] += 1
        if _is_bug(run.err):
            raise self._violation([run.err])

    async def _whole(self, prompt: str) -> float:
        """A turn that nobody disturbs has to succeed, whatever was before; in how many seconds."""
        started = time.monotonic()
        run = self._world.ask(prompt)
        status = await asyncio.to_thread(run.wait)
        took_s = time.monotonic() - started
        said = self._world.heard(run, prompt)
        if status or said.result is None:
            raise self._violation([f"{prompt!r} ended with {status}: {run.out}{run.err}"])
        return took_s

    async def _recover(self, running: int | None = None) -> None:
        """The next process goes on; then nothing may be wrong."""
        world = self._world
        self._server.requests.clear()
        left = world.left()
        self._pace = await self._whole(self._question()) / self._recovery_s
        for _ in range(_CATCHING_UP):
            if left & world.left() or not world.left():
                break
            # Its own last writes took longer than it waits when it ends: they are the next one's.
            left = world.left()
            await self._whole(self._question())
        wrong = [
            problem
            for request in self._server.requests
            for problem in check_request(request.body["messages"])
        ]
        if running is None:
            # A lease of the graph lasts longer than its process; a lock does not.
            running = len(world.said) if self._neo4j else 0
        store = await world.opened()
        try:
            wrong += await check(
                store, world.said, world.project, sessions=world.sessions, running=running
            )
        finally:
            await store.aclose()
        if waiting := count_waiting(world.home / "data" / "spool", deep=True):
            wrong.append(f"{waiting} writes still wait in the spool")
        if wrong:
            raise self._violation(wrong)

    def _violation(self, wrong: list[str]) -> Violation:
        lines = "\n".join(f"  {each}" for each in wrong)
        last = "\n".join(f"  {said.prompt!r}: {said.phase}" for said in self._world.said[-4:])
        return Violation(
            f"seed {self._seed}, kept in {self._world.folder}:\n{lines}\n"
            f"the last processes:\n{last}"
        )


def _is_bug(err: str) -> bool:
    return "Traceback" in err or "This is a bug" in err


@contextmanager
def campaign(folder: Path, **options: Any) -> Iterator[Campaign]:
    """A campaign with its model."""
    with model() as server:
        yield Campaign(folder, server, **options)

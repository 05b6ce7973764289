"""What lives: processes one after the other, what they have said, and what must be there."""

import asyncio
import itertools
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from ragmem.errors import StoreUnavailable
from ragmem.records import (
    Applied,
    PutMemory,
    PutProfile,
    RecordToolCall,
    RegisterProject,
    SessionQuery,
    Write,
)
from ragmem.store import Archive, Store
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.spool import Patience, SpooledStore, Waiting
from ragmem.store.spool.files import count_waiting
from ragmem.store.sqlite import SQLiteStore
from tests.fakes.frail_store import FrailStore, Line, away
from tests.fakes.neo4j import ask
from tests.store.model import Model, difference, everything
from tests.store.samples import at

T = TypeVar("T")

NOW = at(10**6)
"""By the clock of the stores."""
MEMORIES = "what is known"
"""The place of all memories and of the profile: one may change another."""
QUICK = Patience(stall_s=0.05, read_s=0.2, retry_s=0.01, longest_retry_s=0.02, closing_s=0.05)


class Process(RuleBasedStateMachine):
    """One memory, and the processes that work on it one after the other."""

    kind: ClassVar[str] = "sqlite"
    spooled: ClassVar[bool] = False
    server: ClassVar[Connection | None] = None
    folder: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = Path(tempfile.mkdtemp(dir=self.folder))
        self.numbers = itertools.count()
        self.minutes = 0.0
        self.now_kind = self.kind
        self.home = self.root / "0"
        self.worlds = [Model()]
        self.history: list[Sequence[Write]] = []
        self.past: tuple[str, Path, Model] | None = None
        self.backup: tuple[Path, Model] | None = None
        self.unsettled: set[str] = set()
        self.frozen: set[str] = set()
        self.acknowledged = self.failed = False
        self.dying = threading.Lock()
        self.run(self._begin())

    # --- the process --------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In the one event loop."""
        return self.runner.run(work)

    @property
    def model(self) -> Model:
        """What is there for sure."""
        return self.worlds[0]

    async def _begin(self) -> None:
        self.line = Line()
        self.frail: list[FrailStore] = []
        self.stores: list[Store] = []
        if self.now_kind == "neo4j":
            await self._wipe()
        await self._start()

    async def _wipe(self) -> None:
        assert self.server is not None
        await ask(self.server, "MATCH (n) DETACH DELETE n")

    async def _start(self) -> None:
        self.owner = ""
        self.store = await self._handle()
        self.stores.append(self.store)

    async def _handle(self) -> Store:
        kind, home = self.now_kind, self.home
        if self.spooled:
            return SpooledStore(lambda: self._open(kind, home), home / "spool", patience=QUICK)
        return await self._open(kind, home)

    async def _open(self, kind: str, home: Path) -> Archive:
        if self.line.mode == "refusing":
            raise away()
        store = FrailStore(await open_archive(kind, home, self.server), self.line)
        self.frail.append(store)
        return store

    async def _archive(self) -> Archive:
        store = self.store
        return await store.inner() if isinstance(store, SpooledStore) else store  # type: ignore

    async def _close(self) -> None:
        """Whatever is open, of dead processes too."""
        for store in self.stores:
            await store.aclose()
        self.stores, self.frail = [], []

    def teardown(self) -> None:
        try:
            if not self.failed:
                self.line.set("fine")
                self.verify()
        finally:
            self.line.set("fine")
            self.run(self._close())
            self.runner.close()
            shutil.rmtree(self.root)

    # --- what was said, and what is there -----------------------------------------

    def say(self, *writes: Write) -> None:
        """The process writes; once that is acknowledged it has to stay."""
        self._touch(writes)
        worlds = [world.after(writes) for world in self.worlds]
        try:
            applied = self.run(self.store.apply(writes))
        except StoreUnavailable:
            assert not self.spooled
            self.worlds = [*self.worlds, *worlds]
            return
        self.failed = True
        assert self.line.mode == "fine" or self.spooled
        self._right(applied, worlds[0])
        self.failed = False
        self.worlds = worlds
        self.history.append(writes)

    def _touch(self, writes: Sequence[Write]) -> None:
        self.unsettled |= {place_of(write) for write in writes}

    def _right(self, applied: Applied, world: Model) -> None:
        for turn_id, index in applied.turn_indexes.items():
            assert index == world.turns[turn_id].turn_index, "an index other than it must be"
        assert self.spooled or not isinstance(applied, Waiting)

    def settle(self) -> None:
        """The store is there: what waits arrives by itself."""
        self.failed = True
        if self.spooled:
            try:
                self.run(self._settled())
            except TimeoutError:
                raise AssertionError("what waits does not arrive") from None
        self.failed = False
        self.unsettled, self.frozen = set(), set()

    async def _settled(self) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.store.sessions(SessionQuery(limit=1))
                    if not count_waiting(self.home / "spool"):
                        break
                    # What another process left is looked for every ten seconds, with this.
                    await self.store.heartbeat("nobody")
                except StoreUnavailable:
                    pass
                await asyncio.sleep(0.005)
        assert isinstance(self.store, SpooledStore)
        said = " ".join(self.store.take_notices())
        assert "did not take" not in said, said

    def verify(self) -> None:
        """All that was acknowledged is there once, and nothing else; no promise is broken."""
        self.settle()
        self.failed = True
        archive = self.run(self._archive())
        found = self.run(everything(archive))
        fitting = [world for world in self.worlds if world.everything() == found]
        assert fitting, difference(found, self.model.everything())
        findings = self.run(archive.check())
        assert findings == [], findings
        self.worlds = fitting[:1]
        self.failed = False

    @property
    def calm(self) -> bool:
        """Nothing is away, and what is there is known."""
        return self.line.mode == "fine" and len(self.worlds) == 1 and not self.frozen

    # --- names and choices --------------------------------------------------------

    def new(self, kind: str) -> str:
        """An id that was not used before."""
        return f"{kind}{next(self.numbers):04}"

    def tick(self) -> Any:
        """Later, though the clock may jump back; never the same twice."""
        number = next(self.numbers)
        self.minutes += -1440 if number % 17 == 16 else 1
        return at(self.minutes) + timedelta(microseconds=number)

    def sessions(self) -> list[str]:
        """Those that this process can know of."""
        return [each for each in self.model.sessions if each not in self.frozen]

    def pick(self, choices: Sequence[T], number: int) -> T | None:
        """One of them, if there are any; the newest for 0."""
        return choices[-1 - number % len(choices)] if choices else None

    def pick_turn(self, number: int) -> str | None:
        """The turn of a session that is not in doubt."""
        known = [
            turn.turn_id
            for turn in self.model.turns.values()
            if turn.session_id not in self.frozen and turn.status != "completed"
        ]
        return self.pick(known, number)


def place_of(write: Write) -> str:
    """Id of the session, or project, that the write changes; or `MEMORIES`."""
    match write:
        case RegisterProject(project=project):
            return project.project_id
        case PutMemory() | PutProfile():
            return MEMORIES
        case RecordToolCall():
            return write.session_id
        case _:
            return str(write.record.session_id)


async def open_archive(kind: str, home: Path, server: Connection | None) -> Archive:
    """The store itself."""
    if kind == "neo4j":
        assert server is not None
        return await Neo4jStore.open(server, timeout_s=20, clock=lambda: NOW)
    return await SQLiteStore.open(
        home / "memory.db", locks_dir=home / "locks", timeout_s=20, clock=lambda: NOW
    )

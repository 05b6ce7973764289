"""What lives: processes one after the other, and the witness of what they have said."""

import asyncio
import itertools
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Coroutine, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from ragmem.errors import StoreRefused, StoreUnavailable
from ragmem.records import Applied, MemoryQuery, MemoryRecord, SessionQuery, Turn, Write
from ragmem.store import Archive, Store
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.spool import Patience, SpooledStore, Waiting
from ragmem.store.spool.files import count_waiting
from ragmem.store.sqlite import SQLiteStore
from tests.fakes.frail_store import FrailStore, Line, away
from tests.fakes.neo4j import ask
from tests.store.samples import at
from tests.store.seen import difference, everything

T = TypeVar("T")

NOW = at(10**6)
"""By the clock of the stores."""
QUICK = Patience(stall_s=0.05, read_s=0.2, retry_s=0.01, longest_retry_s=0.02, closing_s=0.05)


class Process(RuleBasedStateMachine):
    """One memory, and the processes that work on it one after the other.

    Beside it stands a witness: a SQLite store that nothing happens to, and that is told what was
    acknowledged. All that the memory tells has to be what the witness tells.
    """

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
        self.history: list[Sequence[Write]] = []
        self.doubt: list[Sequence[Write]] = []
        """What was not acknowledged, in the order in which it is there, as far as it is."""
        self.backup: tuple[Path, Path] | None = None
        """A file of the memory's, and one of the witness."""
        self.acknowledged = self.failed = False
        self.dying = threading.Lock()
        self.run(self._begin())

    # --- the process --------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In the one event loop."""
        return self.runner.run(work)

    async def _begin(self) -> None:
        self.line = Line()
        self.frail: list[FrailStore] = []
        self.stores: list[Store] = []
        if self.now_kind == "neo4j":
            await self._wipe()
        self.witness_home = self.root / "witness"
        self.witness = await open_sqlite(self.witness_home)
        await self._start()

    async def _wipe(self) -> None:
        assert self.server is not None
        await ask(self.server, "MATCH (n) DETACH DELETE n")

    async def _start(self) -> None:
        self.owner = ""
        self.attached: set[str] = set()
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

    def call_witness(self, file: Path | None = None) -> None:
        """Call the witness anew, with whom no process lives any more; or one of an earlier time."""
        self.run(self.witness.aclose())
        if file:
            self.witness_home = self.root / self.new("witness")
            self.witness_home.mkdir()
            shutil.copyfile(file, self.witness_home / "memory.db")
        self.witness = self.run(open_sqlite(self.witness_home))

    def teardown(self) -> None:
        try:
            if not self.failed:
                self.line.set("fine")
                self.verify()
        finally:
            self.line.set("fine")
            self.run(self._close())
            self.run(self.witness.aclose())
            self.runner.close()
            shutil.rmtree(self.root)

    # --- what was said, and what is there -----------------------------------------

    def say(self, *writes: Write) -> None:
        """The process writes; once that is acknowledged it has to stay."""
        try:
            applied = self.run(self.store.apply(writes))
        except StoreUnavailable:
            assert not self.spooled
            self.doubt = [writes]
            return
        self.failed = True
        assert self.line.mode == "fine" or self.spooled
        self.tell(writes, applied)
        self.failed = False
        self.history.append(writes)

    def tell(self, writes: Sequence[Write], applied: Applied) -> None:
        """Let the witness know what was acknowledged, with these indexes of turns."""
        right = self.run(self.witness.apply(writes)).turn_indexes
        for turn_id, index in applied.turn_indexes.items():
            assert index == right[turn_id], "an index other than it must be"
        assert self.spooled or not isinstance(applied, Waiting)

    def both(self, method: str, *given: object) -> Any:
        """What both answer to this question, which has to be the same; or how they refuse."""
        self.settle()
        answers = [
            self.run(_answer(getattr(store, method)(*given)))
            for store in (self.run(self._archive()), self.witness)
        ]
        assert answers[0] == answers[1], (method, given, answers)
        return answers[0]

    def settle(self) -> None:
        """The store is there: what waits arrives by itself."""
        self.failed = True
        if self.spooled:
            try:
                self.run(self._settled())
            except TimeoutError:
                raise AssertionError("what waits does not arrive") from None
        self.failed = False

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
        assert "did not accept" not in said, said

    def verify(self) -> None:
        """All that was acknowledged is there once, and nothing else; no promise is broken."""
        self.settle()
        self.failed = True
        archive = self.run(self._archive())
        found = self.run(everything(archive))
        while differing := difference(found, self.run(everything(self.witness))):
            assert self.doubt, differing
            self.run(self.witness.apply(self.doubt.pop(0)))
        self.doubt = []
        findings = self.run(archive.check())
        assert findings == [], findings
        self.failed = False

    @property
    def calm(self) -> bool:
        """Whether nothing is away."""
        return self.line.mode == "fine"

    # --- names and choices --------------------------------------------------------

    def new(self, kind: str) -> str:
        """An id that was not used before."""
        return f"{kind}{next(self.numbers):04}"

    def tick(self) -> datetime:
        """Later, though the clock may jump back; never the same twice."""
        number = next(self.numbers)
        self.minutes += -1440 if number % 17 == 16 else 1
        return at(self.minutes) + timedelta(microseconds=number)

    def sessions(self) -> list[str]:
        """Those that there are, the newest last."""
        found = self.run(self.witness.sessions(SessionQuery(limit=1000)))
        return sorted((each.session_id for each in found), key=lambda name: name[1:])

    def turns(self, *statuses: str) -> list[Turn]:
        """All that are in one of these states, the newest last."""
        found = [
            turn
            for session in self.sessions()
            for turn in self.run(self.witness.turns(session))
            if turn.session_id == session and turn.status in statuses
        ]
        return sorted(found, key=lambda turn: turn.turn_id)

    def memories(self) -> list[MemoryRecord]:
        """All of them, the newest last."""
        every = MemoryQuery(everywhere=True, with_superseded=True)
        return self.run(self.witness.memories(every))[::-1]

    def pick(self, choices: Sequence[T], number: int) -> T | None:
        """One of them, if there are any; the last for 0."""
        return choices[-1 - number % len(choices)] if choices else None


async def _answer(asked: Awaitable[T]) -> T | str:
    try:
        return await asked
    except StoreRefused:
        return "refused"


async def open_sqlite(home: Path) -> SQLiteStore:
    """A store in that folder."""
    return await SQLiteStore.open(
        home / "memory.db", locks_dir=home / "locks", timeout_s=20, clock=lambda: NOW
    )


async def open_archive(kind: str, home: Path, server: Connection | None) -> Archive:
    """The store itself."""
    if kind == "neo4j":
        assert server is not None
        return await Neo4jStore.open(server, timeout_s=20, clock=lambda: NOW)
    return await open_sqlite(home)

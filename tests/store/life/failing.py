"""What goes wrong: outages, lost answers, crashes."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import rule

from ragmem.errors import StoreUnavailable
from ragmem.records import SessionQuery, Write
from ragmem.store.spool.files import count_waiting
from tests.fakes.frail_store import Killed, Mode, copy_home, killed_at
from tests.store.life.saying import Saying, seldom, some, turn_of
from tests.store.samples import created

POINTS = {
    "sqlite": ["sqlite.begun", "sqlite.commit", "sqlite.committed"],
    "neo4j": ["neo4j.begin", "neo4j.commit", "neo4j.committed"],
    "spool": ["spool.create", "spool.write", "spool.written", "spool.synced"],
}
REPLAYING = ["spool.replay", "spool.replayed", "spool.advance", "spool.truncate"]


class Failing(Saying):
    """It writes, and its store, its disk or itself fails."""

    @rule(mode=st.sampled_from(["refusing", "losing_answers", "silent"]))
    def go_away(self, mode: Mode) -> None:
        if not (self.spooled and self.line.mode == "fine"):
            return
        self.line.set(mode)

    @rule()
    def come_back(self) -> None:
        if self.line.mode == "fine":
            return
        self.line.set("fine")
        self.verify()

    @rule(mode=st.sampled_from(["refusing", "losing_answers"]), number=some, insists=st.booleans())
    def fail_once(self, mode: Mode, number: int, insists: bool) -> None:
        """The answer is an error; the caller tries again, or looks what came of it."""
        if not (not self.spooled and self.calm):
            return
        if session := self.pick(self.sessions(), number):
            writes = turn_of(session, self.new("t"), self.tick())
            self.line.next = [mode]
            self.say(*writes)
            if insists:
                self.doubt = []
                self.tell(writes, self.run(self.store.apply(writes)))
            else:
                self.verify()

    @rule(point=some, number=some, torn=st.integers(0, 60), words=st.booleans())
    def crash(self, point: int, number: int, torn: int, words: bool) -> None:
        """kill -9 while it writes, or when it has written."""
        points = POINTS[self.now_kind] + (POINTS["spool"] + REPLAYING if self.spooled else [])
        session = self.pick(self.sessions(), number)
        if session is None or not words:
            writes: list[Write] = [created(self.new("s"), project_id="p-of-/a")]
        else:
            writes = turn_of(session, self.new("t"), self.tick())
        left = self.root / self.new("home")
        name = points[point % len(points)]
        self.acknowledged = False
        with killed_at(name, lambda: self._die(left)), suppress(Killed):
            self.run(self._last_words(writes, name, left))
        if not left.exists():
            # The point was not on its way; it dies afterwards.
            self._die(left)
        if self.acknowledged:
            self.run(self.witness.apply(writes))
            self.history.append(writes)
        else:
            if name == "spool.written":
                tear(left / "spool", torn)
            # A line of the spool is whole by itself; a batch in it need not be.
            self.doubt = [[each] for each in writes] if self.spooled else [writes]
        self._rise(left)

    async def _last_words(self, writes: Sequence[Write], point: str, left: Path) -> None:
        """On the way to that point: through the spool, and back out of it, if it is there."""
        if point.startswith("spool."):
            self.line.set("refusing")
        await self.store.apply(writes)
        self.acknowledged = not left.exists()
        if point in REPLAYING:
            self.line.set("fine")
            async with asyncio.timeout(60):
                while not left.exists() and count_waiting(self.home / "spool"):
                    with suppress(StoreUnavailable):
                        await self.store.sessions(SessionQuery(limit=1))
                    await asyncio.sleep(0.005)

    def _die(self, left: Path) -> None:
        # Once, though a write that was slow may come to the point when another is given up.
        with self.dying:
            if left.exists():
                return
            for frail in self.frail:
                frail.dead = True
            copy_home(self.home, left)
            left.mkdir(exist_ok=True)

    def _rise(self, left: Path) -> None:
        # Those who waited for an answer of the dead process' store hear that it is dead.
        self.line.set("refusing")
        self.run(self._close())
        self.line.set("fine")
        self.home = left
        self._go_on()

    def _go_on(self) -> None:
        """The next process begins; with SQLite none lives any more, with Neo4j by its lease."""
        if self.now_kind == "sqlite":
            self.call_witness()
        self.run(self._start())
        self.verify()

    @rule(rarely=seldom)
    def reopen(self, rarely: int) -> None:
        if rarely or not self.calm:
            return
        self.settle()
        self.run(self._close())
        self._go_on()

    @rule()
    def look(self) -> None:
        if not self.calm:
            return
        self.verify()


def tear(spool: Path, count: int) -> None:
    """The newest file of the spool loses its last bytes: the write was cut."""
    files = sorted(spool.glob("*.jsonl"))
    if files:
        data = files[-1].read_bytes()
        files[-1].write_bytes(data[: max(0, len(data) - count)])

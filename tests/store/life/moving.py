"""All of it elsewhere: moved, backed up, restored."""

import shutil
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from ragmem.store.transfer import Stream, compare, copy, stream_of, stream_of_lines, write_lines
from tests.store.life.failing import Failing
from tests.store.life.process import open_archive
from tests.store.life.saying import few, seldom
from tests.store.seen import difference, everything


class Life(Failing):
    """One memory, and the processes that work on it one after the other."""

    @rule(rarely=seldom, other=st.booleans(), batch=few, stop=few)
    def move(self, rarely: int, other: bool, batch: int, stop: int) -> None:
        """Into an empty store; stopped once in the middle."""
        if rarely or not self.calm:
            return
        self.verify()
        kind, home = self.now_kind, self.root / self.new("home")
        if self.server and (other or kind == "neo4j"):
            kind = "sqlite" if kind == "neo4j" else "neo4j"
        if kind == "neo4j":
            self.run(self._wipe())
        source = self.run(self._archive())
        self._take(stream_of(source, batch=batch), kind, home, stop)
        self.verify()
        self._go_on_in(kind, home)

    def _take(self, stream: Stream, kind: str, home: Path, stop: int) -> None:
        self.failed = True

        async def take() -> None:
            target = await open_archive(kind, home, self.server)
            try:
                async for number, batch in aenumerate(stream()):
                    if number >= stop:
                        break
                    await target.apply(batch)
                await copy(stream, target, lambda *_: None)
                compared = await compare(stream, target, lambda *_: None)
                assert compared.differing == [], compared.differing
                assert compared.equal
                right = await everything(self.witness)
                assert difference(await everything(target), right) == []
                assert await target.check() == []
            finally:
                await target.aclose()

        self.run(take())
        self.failed = False

    def _go_on_in(self, kind: str, home: Path) -> None:
        """Who works on what is not moved."""
        self.run(self._close())
        self.now_kind, self.home = kind, home
        self.call_witness()
        self.run(self._start())

    @rule(as_lines=st.booleans())
    def back_up(self, as_lines: bool) -> None:
        if not self.calm:
            return
        self.verify()
        archive = self.run(self._archive())
        file = self.root / self.new("backup")
        if as_lines or self.now_kind == "neo4j":
            with file.open("wb") as out:
                self.run(write_lines(stream_of(archive), out, lambda *_: None))
        else:
            self.run(archive.copy_to(file))  # type: ignore[attr-defined]
        self.backup = (file, self.root / self.new("backup"))
        self.run(self.witness.copy_to(self.backup[1]))

    @rule(rarely=seldom)
    def restore(self, rarely: int) -> None:
        """All is lost but the backup."""
        if rarely or not (self.calm and self.backup):
            return
        assert self.backup is not None
        file, seen_then = self.backup
        home = self.root / self.new("home")
        self.call_witness(seen_then)
        if self.now_kind == "neo4j":
            self.run(self._wipe())
        if file.read_bytes().startswith(b"SQLite"):
            kept = self.root / self.new("kept")
            kept.mkdir()
            shutil.copyfile(file, kept / "memory.db")
            source = self.run(open_archive("sqlite", kept, None))
            self._take(stream_of(source), self.now_kind, home, 0)
            self.run(source.aclose())
        else:
            self._take(stream_of_lines(file), self.now_kind, home, 0)
        self._go_on_in(self.now_kind, home)
        self.history = []


async def aenumerate(batches: Any) -> Any:
    """`enumerate` of what comes in time."""
    number = 0
    async for batch in batches:
        yield number, batch
        number += 1

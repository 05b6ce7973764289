"""The comparison of tests/store/test_model.py can fail: broken stores and crashes are found."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis.errors import Flaky

from ragmem.records import Applied, BeginTurn, FinishTurn, PutMemory, Write
from ragmem.store.sqlite import SQLiteStore
from tests.store.damage import mostly
from tests.store.life import Life, live
from tests.store.model import Model

pytestmark = pytest.mark.timeout(1200)


class Watched(Life):
    """Keeps what was found, whatever Hypothesis makes of it.

    It lives a life that failed once more; what waits in the spool at that moment need not be the
    same then, and it calls that flaky.
    """

    found: ClassVar[list[str]]

    def verify(self) -> None:
        with self.watched():
            super().verify()

    def _right(self, applied: Applied, world: Model) -> None:
        with self.watched():
            super()._right(applied, world)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What fails here is what the model is for."""
        try:
            yield
        except AssertionError as error:
            self.found.append(str(error))
            raise


def finds(machine: type[Watched]) -> bool:
    """Whether a life of that kind ends with a complaint."""
    machine.found = []
    with pytest.raises((AssertionError, Flaky)):
        live(machine, seeds=6)
    return bool(machine.found)


class Spoiled(ABC):
    """A store that breaks a promise."""

    def __init__(self, inner: SQLiteStore) -> None:
        self.inner = inner
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def apply(self, writes: Sequence[Write]) -> Applied:
        self.count += 1
        return await self.spoilt(writes)

    @abstractmethod
    async def spoilt(self, writes: Sequence[Write]) -> Applied:
        """Its `apply`, which does something else now and then."""

    async def sql(self, statement: str, *given: object) -> None:
        """Past the store."""
        await self.inner._writer.run(lambda db: db.execute(statement, given))


class Forgetful(Spoiled):
    """Every seventh write is acknowledged, and that is all."""

    async def spoilt(self, writes: Sequence[Write]) -> Applied:
        return await self.inner.apply(writes) if self.count % 7 else Applied()


class Stammering(Spoiled):
    """A turn is there twice, with an id of its own each time."""

    async def spoilt(self, writes: Sequence[Write]) -> Applied:
        applied = await self.inner.apply(writes)
        for write in writes:
            if isinstance(write, BeginTurn) and self.count % 5 == 0:
                twin = msgspec.structs.replace(write, turn_id=f"{write.turn_id}-again")
                await self.inner.apply([twin])
        return applied


class Shuffling(Spoiled):
    """Two turns of a session change places."""

    async def spoilt(self, writes: Sequence[Write]) -> Applied:
        applied = await self.inner.apply(writes)
        if self.count % 5 == 0:
            for change in (
                "-turn_index WHERE turn_index < 3",
                "3 + turn_index WHERE turn_index < 0",
            ):
                await self.sql(
                    f"UPDATE turns SET turn_index = {change} AND session_id IN"
                    " (SELECT session_id FROM sessions WHERE turn_count > 1"
                    " AND parent_session_id IS NULL)"
                )
        return applied


class Fickle(Spoiled):
    """What was completed is so no longer."""

    async def spoilt(self, writes: Sequence[Write]) -> Applied:
        applied = await self.inner.apply(writes)
        for write in writes:
            if isinstance(write, FinishTurn) and write.status == "failed":
                await self.sql(
                    "UPDATE turns SET status = 'failed' WHERE turn_id = ?", write.turn_id
                )
        return applied


class Contradicting(Spoiled):
    """What was superseded is current still."""

    async def spoilt(self, writes: Sequence[Write]) -> Applied:
        return await self.inner.apply(
            [
                msgspec.structs.replace(write, supersedes=())
                if isinstance(write, PutMemory)
                else write
                for write in writes
            ]
        )


class Piecemeal(Spoiled):
    """A batch is no transaction."""

    async def spoilt(self, writes: Sequence[Write]) -> Applied:
        indexes: dict[str, int] = {}
        for write in writes:
            indexes |= (await self.inner.apply([write])).turn_indexes
        return Applied(indexes)


BREAKING = (Forgetful, Stammering, Shuffling, Fickle, Contradicting)


@pytest.mark.parametrize(
    ("kind", "spooled"),
    [
        *mostly(
            [*itertools.product(BREAKING, [False]), (Contradicting, True)],
            list(itertools.product(BREAKING, [False, True])),
        ),
        # A batch that is torn in the spool comes in pieces: there it is no news.
        (Piecemeal, False),
    ],
)
def test_a_store_that_breaks_a_promise_is_found(
    kind: type[Spoiled], spooled: bool, tmp_path: Path
) -> None:
    """The comparison can fail: each of these is a store that some program had."""

    class Broken(Watched):
        folder = tmp_path
        spoil = staticmethod(kind)

    Broken.spooled = spooled
    assert finds(Broken)


def forget_the_log(home: Path) -> None:
    """As if commits were not handed to the kernel."""
    (home / "memory.db-wal").unlink(missing_ok=True)


def forget_the_spool(home: Path) -> None:
    """As if what waits were only in the process."""
    for file in (home / "spool").glob("*.jsonl"):
        file.write_bytes(b"")


@pytest.mark.parametrize("loss", [forget_the_log, forget_the_spool])
def test_a_crash_that_loses_is_found(loss: Callable[[Path], None], tmp_path: Path) -> None:
    """The crashes are real: without what was handed to the kernel, acknowledged writes miss."""

    class Losing(Watched):
        folder = tmp_path
        after_death = staticmethod(loss)

    Losing.spooled = loss is forget_the_spool
    assert finds(Losing)

"""Lines of the spool back into the store, in order."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from ragmem.errors import StoreDamaged, StoreRefused, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.ids import new_id
from ragmem.store.base import Store
from ragmem.store.spool.files import MOST_IN_A_LINE, Spool, SpoolFile, keep_leftover
from ragmem.store.spool.lines import from_line, is_damaged

T = TypeVar("T")


class OnDisk(Protocol):
    """Runs what blocks where it may."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


_MOST_AT_ONCE = 64
_INDEXES_KEPT = 1000


class Replay:
    """What this process has brought back into the store."""

    def __init__(self) -> None:
        self.batch = _MOST_AT_ONCE
        """Lines in one transaction: halved when one took too long, doubled when it did not."""
        self.known: set[str] = set()
        """Files whose lines the store did not take: not tried again by this process."""
        self.turn_indexes: dict[str, int] = {}
        self.refused = ""
        """Why the store did not take a write, the last time; empty once that was told."""
        self.begin()

    def begin(self) -> None:
        """Count anew."""
        self.started_at = time.monotonic()
        self.count = 0
        """Lines that the store took."""
        if len(self.turn_indexes) > _INDEXES_KEPT:
            self.turn_indexes = {}

    async def apply(self, store: Store, lines: Sequence[bytes]) -> list[bytes]:
        """Write the lines; those that the store can never take, while it takes others."""
        failpoint("spool.replay")
        unknown = [line for line in lines if from_line(line) is None]
        known = [line for line in lines if line not in unknown] if unknown else lines
        if unknown:
            damaged = any(map(is_damaged, unknown))
            self.refused = "it is damaged." if damaged else "it is of a newer version."
        leftover = unknown + await self._apply_known(store, known)
        failpoint("spool.replayed")
        return leftover

    async def _apply_known(self, store: Store, lines: Sequence[bytes]) -> list[bytes]:
        try:
            applied = await store.apply([write for line in lines if (write := from_line(line))])
        except StoreUnavailable:
            self.batch = max(1, len(lines) // 2)
            raise
        except StoreDamaged:
            raise
        except Exception as error:
            if len(lines) > 1:
                return [rest for line in lines for rest in await self._apply_known(store, [line])]
            if isinstance(error, StoreRefused):
                # Is it this write, or any? An owner that nobody is has nothing to give up.
                await store.detach(new_id())
            self.refused = str(error)
            return list(lines)
        self.batch = min(_MOST_AT_ONCE, 2 * self.batch)
        self.count += len(lines)
        self.turn_indexes |= applied.turn_indexes
        return []


async def replay_left(replay: Replay, store: Store, spool: Spool, on_disk: OnDisk) -> int:
    """Write what dead processes have left; how many lines the store took."""
    before = replay.count
    for path in await on_disk(spool.others):
        if path.name not in replay.known and (
            file := await on_disk(partial(SpoolFile.adopt, path))
        ):
            await _replay_file(replay, store, file, spool.store_id, on_disk)
    return replay.count - before


async def _replay_file(
    replay: Replay, store: Store, file: SpoolFile, store_id: str, on_disk: OnDisk
) -> None:
    # What one store has begun to take is no other's.
    file.store_id = store_id
    try:
        while lines := await on_disk(partial(file.read, replay.batch)):
            leftover = await replay.apply(store, lines)
            if leftover:
                keep = partial(keep_leftover, file.path.parent, leftover, store_id)
                if kept := await on_disk(keep):
                    replay.known.add(kept)
            await on_disk(partial(file.advance, lines))
    finally:
        if file.passed_over:
            replay.refused = f"a write of it is larger than {MOST_IN_A_LINE >> 20} MB."
        # Also when cut short: what is in the store need not be written by the next one too.
        await on_disk(file.close)

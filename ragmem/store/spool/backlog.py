"""What waits for a store that is away: kept, tried again, told of."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ragmem.errors import RagmemError, StoreDamaged, StoreError, StoreRefused, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.ids import new_id
from ragmem.records import Applied, BeginTurn, SessionQuery, Write
from ragmem.store.base import Store
from ragmem.store.spool.files import (
    Spool,
    SpoolFile,
    count_aside,
    damage,
    from_line,
    keep_leftover,
    to_lines,
)

T = TypeVar("T")


class HeldTasks:
    """Tasks that are held until they end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._interrupted: set[asyncio.Task[Any]] = set()
        """Nobody waits for them any more."""

    def keep(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """A task of its own; its error is for those who wait."""

        def ended(task: "asyncio.Task[T]") -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)
        return task

    async def finish(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result; interrupted, it goes on, and what is begun next comes after it."""
        before = frozenset(self._interrupted)

        async def in_order() -> T:
            if before:
                await asyncio.wait(before)
            return await work()

        task = self.keep(in_order())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._interrupted.add(task)
                task.add_done_callback(self._interrupted.discard)
            raise

    async def wait(self, limit_s: float) -> None:
        """Until all have ended, or for so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit_s)


def writes_text(count: int) -> str:
    """`3 writes`."""
    return f"{count:,} {'write' if count == 1 else 'writes'}"


def are(count: int) -> str:
    """What so many writes do: `is` or `are`."""
    return "is" if count == 1 else "are"


_MOST_AT_ONCE = 64
_INDEXES_KEPT = 1000


class Replay:
    """What this process has brought back into the store."""

    def __init__(self, spool: Spool, disk_thread: Executor) -> None:
        self._spool = spool
        self._disk_thread = disk_thread
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

    async def left(self, store: Store) -> int:
        """Write what dead processes have left; how many lines the store took."""
        before = self.count
        for path in await self.on_disk(self._spool.others):
            if path.name not in self.known and (
                file := await self.on_disk(partial(SpoolFile.adopt, path))
            ):
                # What one store has begun to take is no other's.
                file.store_id = self._spool.store_id
                try:
                    async for _ in self.lines(store, file):
                        pass
                finally:
                    # Also when cut short: what is in the store need not be written again.
                    await self.on_disk(file.close)
        return self.count - before

    async def lines(self, store: Store, source: Spool | SpoolFile) -> AsyncIterator[int]:
        """Write what waits there, in order; yields of how many lines each batch was."""
        while lines := await self.on_disk(partial(source.read, self.batch)):
            failpoint("spool.replay")
            unknown = [line for line in lines if from_line(line) is None]
            if unknown:
                self.refused = max(map(damage, unknown)) or "it is of a newer version."
            known = [line for line in lines if line not in unknown] if unknown else lines
            leftover = unknown + await self._apply_known(store, known)
            failpoint("spool.replayed")
            if leftover:
                keep = partial(keep_leftover, self._spool.folder, leftover, self._spool.store_id)
                if kept := await self.on_disk(keep):
                    self.known.add(kept)
            await self.on_disk(partial(source.advance, lines))
            yield len(lines)

    def on_disk(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Do what blocks on a thread of its own."""
        return asyncio.get_running_loop().run_in_executor(self._disk_thread, work)

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


_log = logging.getLogger("ragmem")

_SOON_S = 0.02
_LONG_STALL_S = 1.0
"""A write that is silent for so long is told of."""
_LONG_OPENING_S = 3.0
"""The same for a store that opens: a graph's driver takes its time."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long what is waited for, in seconds."""

    stall_s: float = 0.2
    """A write that takes longer is acknowledged by the spool."""
    read_s: float = 2.0
    """Before a read gives up on writes that still wait."""
    left_s: float = 10.0
    """Before a read gives up on those that a dead process has left."""
    retry_s: float = 1.0
    """Before a store that was away is tried again; doubled for each further time."""
    longest_retry_s: float = 10.0
    closing_s: float = 1.0
    """For a last try when the process ends."""


class Waiting(Applied, frozen=True):
    """The writes are accepted, but not in the store yet."""

    kept: bool = True
    """False when the disk can't be written either: they are lost, and the person is told."""


class Backlog:
    """The store, opened when it is first needed, and the writes that it has not taken yet."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        folder: Path,
        *,
        older: Sequence[Path] = (),
        patience: Patience = Patience(),  # noqa: B008
    ) -> None:
        self._open_store = open_store
        self._patience = patience
        self._spool = Spool(folder, older=older)
        self._disk_thread = ThreadPoolExecutor(1, thread_name_prefix="ragmem-spool")
        self._replay = Replay(self._spool, self._disk_thread)
        self._on_disk = self._replay.on_disk
        self._store: Store | None = None
        self._opening: asyncio.Task[Store] | None = None
        self._opening_since = 0.0
        self._is_made = False
        self._running = HeldTasks()
        self._in_flight: set[asyncio.Task[Applied]] = set()
        self._stalled_at: float | None = None
        self._waiting = 0
        self._away: StoreError | None = None
        self._retry_at = 0.0
        self._pause_s = patience.retry_s
        self._timer: asyncio.TimerHandle | None = None
        self._replaying: asyncio.Task[None] | None = None
        self._looked = False
        self._said = False
        self._said_lost = False
        self._lost_some = False
        """Whether anything could not be kept."""
        self._notices: list[str] = []
        self._closed = False

    # --- writing ----------------------------------------------------------------

    async def apply(self, writes: Sequence[Write]) -> Applied:
        """Apply the writes, or keep them until the store is back: then the answer is `Waiting`."""
        if not writes:
            return Applied()
        if self._closed:
            raise _closed()
        given = tuple(writes)
        return await self._running.finish(lambda: self._apply(given))

    async def _apply(self, writes: Sequence[Write]) -> Applied:
        if not self._waiting and not self._in_flight and time.monotonic() >= self._retry_at:
            attempt = self._running.keep(self._write_through(writes))
            done, _ = await asyncio.wait({attempt}, timeout=self._patience.stall_s)
            if not done:
                self._stalled_at = self._stalled_at or time.monotonic()
                self._in_flight.add(attempt)
                attempt.add_done_callback(self._landed)
                return await self._append(writes, attempt)
            try:
                return attempt.result()
            except StoreError as error:
                self.went_away(error)
                return await self._append(writes)
        waiting = await self._append(writes)
        caught_up = isinstance(waiting, Waiting) and waiting.kept and not self._in_flight
        if not caught_up or not await self._caught_up(self._patience.stall_s):
            return waiting
        ids = [write.turn_id for write in writes if isinstance(write, BeginTurn)]
        indexes = self._replay.turn_indexes
        return Applied({turn_id: indexes[turn_id] for turn_id in ids if turn_id in indexes})

    async def _write_through(self, writes: Sequence[Write]) -> Applied:
        return await (await self.inner()).apply(writes)

    def _landed(self, attempt: "asyncio.Task[Applied]") -> None:
        """A write that stalled has ended; the spool holds it too, and replaying it is harmless."""
        self._in_flight.discard(attempt)
        if attempt.cancelled() or self._closed:
            return
        if not self._in_flight:
            self._stalled_at = None
        error = attempt.exception()
        if isinstance(error, StoreError):
            self.went_away(error)
        elif not self._in_flight:
            self._start_replay()

    async def _append(
        self, writes: Sequence[Write], attempt: "asyncio.Task[Applied] | None" = None
    ) -> Applied:
        lines = to_lines(writes)
        self._waiting += len(lines)
        try:
            await self._on_disk(lambda: self._spool.append(lines))
        except OSError as error:
            self._waiting -= len(lines)
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(self._patience.left_s):
                    if applied := await self._applied_late(writes, attempt):
                        return applied
            self._lost_some = True
            self._say_lost(writes, error)
            return Waiting(kept=False)
        self._said_lost = False
        return Waiting()

    async def _applied_late(
        self, writes: Sequence[Write], attempt: "asyncio.Task[Applied] | None"
    ) -> Applied | None:
        """What came of them in the store, where that is only slow; None where it is away."""
        if self._in_flight:
            await asyncio.wait(self._in_flight)
        if attempt:
            return attempt.result()
        if self._away or self._waiting:
            return None
        return await self._write_through(writes)

    def _say_lost(self, writes: Sequence[Write], error: OSError) -> None:
        """Once a turn."""
        if not self._said_lost or any(isinstance(write, BeginTurn) for write in writes):
            self._said_lost = True
            self._notices.append(
                f"This turn is not kept: the memory is away, and {self._spool.folder} can't be "
                f"written: {error.strerror or error}. What came before is still kept."
            )

    # --- catching up ------------------------------------------------------------

    async def _caught_up(self, limit_s: float) -> bool:
        """Whether the store answers and nothing waits; what does is written now if it can be."""
        deadline = time.monotonic() + limit_s
        if self._stalled_at is not None and self._in_flight:
            left_s = self._stalled_at + limit_s - time.monotonic()
            await asyncio.wait(self._in_flight, timeout=max(0, left_s))
        if not self._waiting and self._away is None and await self._nothing_was_left():
            return True
        running = self._replaying
        if running is None:
            if self._in_flight or time.monotonic() < self._retry_at:
                return False
            running = self._start_replay()
        elif not self._replay.count:
            # Nothing of this pass has come through: it gets no more than its time once.
            deadline = min(deadline, self._replay.started_at + limit_s)
        await asyncio.wait({running}, timeout=max(0, deadline - time.monotonic()))
        return not self._waiting and self._away is None and self._looked

    async def _nothing_was_left(self) -> bool:
        """Whether no other process' file is there to be looked at."""
        if not self._looked and not await self._on_disk(self._spool.others):
            self._looked = True
        return self._looked

    def _start_replay(self) -> "asyncio.Task[None]":
        if self._replaying is None:
            self._cancel_timer()
            self._replay.begin()
            self._replaying = self._running.keep(self._pass())
        return self._replaying

    async def _pass(self) -> None:
        """Try to write all that waits, once."""
        left = 0
        try:
            while self._in_flight:
                await asyncio.wait(self._in_flight)
            store = await self.inner()
            await self._meet(store)
            async for count in self._replay.lines(store, self._spool):
                self._waiting -= count
            left = await self._replay.left(store)
            if not self._replay.count:
                await store.sessions(SessionQuery(limit=1))
        except StoreError as error:
            self.went_away(error)
        except OSError as error:
            self.went_away(self._unreadable(error))
        else:
            self._looked = True
            self._came_back(left)
        finally:
            self._replaying = None
        if self._waiting and self._away is None and not self._closed:
            # Some came while this pass ended.
            self._timer = asyncio.get_running_loop().call_later(_SOON_S, self._start_replay)

    def _unreadable(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(f"{self._spool.folder}: {error.strerror or error}.")

    def went_away(self, error: StoreError) -> None:
        """The store did not do it: writes are kept until a later try succeeds."""
        self._away = error
        if isinstance(error, StoreDamaged) and self._store is not None:
            # Once it is put in order it has to be opened anew.
            self._running.keep(self._store.aclose())
            self._store = None
        self._retry_at = time.monotonic() + self._pause_s
        self._schedule()

    def _schedule(self) -> None:
        self._cancel_timer()
        if not self._closed:
            delay_s = max(0.0, self._retry_at - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._start_replay)
            self._pause_s = min(2 * self._pause_s, self._patience.longest_retry_s)

    def _cancel_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _came_back(self, left: int) -> None:
        self._away, self._retry_at, self._pause_s = None, 0.0, self._patience.retry_s
        count = self._replay.count
        if self._said:
            self._said = False
            waited = f" {writes_text(count)} that waited {are(count)} stored." if count else ""
            self._notices.append(f"Memory is back.{waited}")
        elif left:
            self._notices.append(
                f"{writes_text(left)} that an earlier process had to leave {are(left)} stored."
            )
        if self._replay.refused:
            self._notices.append(
                f"Memory did not take all that waited: {self._replay.refused} "
                f"What it did not take is kept in {self._spool.folder}."
            )
            self._replay.refused = ""

    def take_notices(self) -> list[str]:
        """What the person should be told, each once: it is away, it is back."""
        busy = self._waiting or self._in_flight or self._opening or self._replaying
        if self._said and self._store is not None and not (busy or self._why_away()):
            # It was only slow, and nothing had to wait for it.
            self._said = False
            self._notices.append("Memory is back.")
        notices, self._notices = self._notices, []
        if not self._said and (why := self._why_away()):
            self._said = True
            kept = " What happens meanwhile is kept on this disk." if self._waiting else ""
            notices.append(f"Memory is away: {why}{kept}")
        return notices

    def _why_away(self) -> str:
        """Empty while the store answers, or may yet."""
        if self._away:
            return f"{self._away} {self._away.hint}".strip()
        slow = self._opening is not None and self._is_overdue(_LONG_OPENING_S)
        since = self._stalled_at
        if slow or (since is not None and time.monotonic() - since > _LONG_STALL_S):
            return "it does not answer."
        return ""

    # --- the store ---------------------------------------------------------------

    async def inner(self) -> Store:
        """The store itself, opened; its errors are the caller's."""
        if self._closed:
            raise _closed()
        if self._store is not None:
            return self._store
        if self._opening is None:
            self._opening_since = time.monotonic()
            self._opening = self._running.keep(self._open())
        elif self._is_overdue(self._patience.read_s):
            raise StoreUnavailable("The memory does not open.", hint="Try again.")
        return await asyncio.shield(self._opening)

    async def opened(self) -> None:
        """Wait for the store to open, no longer than a read would unless it is being made.

        Why it does not, who reads next is told.
        """
        if self._closed or (self._opening_since and self._opening is None):
            return
        opening = self._running.keep(self._ask(self.inner()))
        await asyncio.wait({opening}, timeout=self._patience.read_s)
        if self._is_made:
            await asyncio.wait({opening})

    def is_made(self) -> None:
        """It has to be made before it opens, and is waited for as long as that takes."""
        self._is_made = self._opening is not None

    def _is_overdue(self, limit_s: float) -> bool:
        return not self._is_made and time.monotonic() - self._opening_since > limit_s

    async def _open(self) -> Store:
        try:
            store = await self._open_store()
            try:
                await self._meet(store)
            except BaseException:
                await store.aclose()
                raise
            self._store = store
            return store
        finally:
            self._opening, self._is_made = None, False

    async def _meet(self, store: Store) -> None:
        """What waits is for one store, and no other gets it, though its address be the same."""
        met = partial(self._spool.meet, await store.store_id())
        try:
            left = await self._on_disk(met)
        except OSError as error:
            raise self._unreadable(error) from None
        if left:
            self._waiting -= left
            self._notices.append(
                f"Another database is where the memory was. {writes_text(left)} that {are(left)} "
                f"for the one before {'stays' if left == 1 else 'stay'} in {self._spool.folder}."
            )

    async def read(self, query: Callable[[Store], Awaitable[T]]) -> T:
        """What the query finds; StoreUnavailable while writes wait, of dead processes too."""
        if self._closed:
            raise _closed()
        if not self._looked and time.monotonic() >= self._retry_at:
            # However long it takes to open: only then can what was left be stored.
            await self._ask(self.inner())
        patience = self._patience
        if not await self._caught_up(patience.read_s if self._looked else patience.left_s):
            raise self._unavailable()
        store = await self._ask(self.inner())
        return await self._ask(query(store))

    async def _ask(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except StoreError as error:
            self.went_away(error)
            raise
        except RagmemError:
            raise
        except Exception as error:
            # A bug, or a record that can't be read: who asked goes on as without an answer.
            _log.warning("The memory could not be asked: %s", error, exc_info=True)
            raise StoreError(f"The memory could not be asked: {error!r}.") from error

    def _unavailable(self) -> StoreError:
        if self._away is None and self._waiting:
            return StoreUnavailable(f"{writes_text(self._waiting)} wait for the memory.")
        if self._away is None:
            return StoreUnavailable(
                "What an earlier process had to leave is being stored.", hint="Try again soon."
            )
        return type(self._away)(str(self._away), hint=self._away.hint)

    async def count_waiting(self) -> int:
        """Writes that wait, of every process."""
        return await self._on_disk(self._spool.count_waiting)

    async def count_aside(self) -> int:
        """Writes that were damaged, or too long for the store."""
        return await self._on_disk(partial(count_aside, self._spool.folder))

    async def look_for_others(self) -> None:
        """Take over what processes that died meanwhile have left."""
        others = await self._on_disk(self._spool.others)
        if any(path.name not in self._replay.known for path in others):
            self._start_replay()

    @property
    def answering(self) -> Store | None:
        """The store, if it is open and was not silent or away last."""
        return None if self._away or self._in_flight else self._store

    async def aclose(self) -> None:
        """A last try for what waits, unless the store is away; then release everything.

        Raises why, where something is lost with this process.
        """
        if self._closed:
            return
        if self._waiting and self._away is None:
            await self._caught_up(self._patience.closing_s)
        self._closed = True
        self._cancel_timer()
        for task in (self._replaying, self._opening, *self._in_flight):
            if task:
                task.cancel()
        await self._running.wait(self._patience.closing_s)
        if self._store is not None:
            await self._store.aclose()
        await self._on_disk(self._spool.close)
        self._disk_thread.shutdown(wait=False)
        if self._lost_some:
            away = self._away or StoreUnavailable("The memory was away.")
            raise type(away)(f"Not all of this is kept: {away}", hint=away.hint)


def _closed() -> StoreUnavailable:
    return StoreUnavailable("The memory is closed.", hint="Open it again.")

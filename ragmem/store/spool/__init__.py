"""The outage spool: a Store that loses no writes while the underlying store is unavailable.

While the store answers, writes go to it. When it fails, or does not answer within
`Patience.stall_s`, they go to this process's spool file, and its fsync acknowledges them. From then
on all writes go there, to keep their order, until the waiting ones are in the store: this process
retries in the background, and the next process to open the store takes over what a dead one left. A
write may reach the store twice that way; being idempotent, it has the effect of once.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import msgspec

from ragmem.errors import RagmemError, StoreDamaged, StoreError, StoreUnavailable
from ragmem.records import (
    Applied,
    BeginTurn,
    CreateSession,
    FinishTurn,
    Project,
    RecordAnswer,
    RecordToolCall,
    RegisterProject,
    SessionQuery,
    StoreInfo,
    Write,
)
from ragmem.store import Store
from ragmem.store.spool.files import KnownProjects, Replay, Spool, to_lines
from ragmem.text import counted

T = TypeVar("T")


_log = logging.getLogger("ragmem")

_REPLAY_AGAIN_S = 0.02
_LONG_STALL_S = 1.0
"""A write without an answer for this long is reported to the user."""
_LONG_OPENING_S = 3.0
"""The same for opening the store: a graph's driver takes its time."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts and pauses, in seconds."""

    stall_s: float = 0.2
    """A write that takes longer is acknowledged by the spool."""
    read_s: float = 2.0
    """How long a read waits for this process's spooled writes."""
    left_s: float = 10.0
    """How long a read waits for the writes that a dead process left."""
    retry_s: float = 1.0
    """Pause before the first retry of an unavailable store, doubled for each further one."""
    longest_retry_s: float = 10.0
    closing_s: float = 1.0
    """How long a last try may take when the process ends."""


class Waiting(Applied, frozen=True):
    """The writes are accepted, but not in the store yet."""

    lost: str = ""
    """Why they are lost, if the disk can't be written to either; the user is told."""


_OF_TURN = (CreateSession, BeginTurn, RecordToolCall, RecordAnswer, FinishTurn)
"""The writes of a turn; its session is created with its first one."""

P = ParamSpec("P")


def forwarded(
    method: Callable[Concatenate[Store, P], Awaitable[T]],
) -> Callable[Concatenate["SpooledStore", P], Coroutine[Any, Any, T]]:
    """Return the store's own method, called once no writes wait; keeps its docstring."""
    name = method.__name__

    @wraps(method)
    async def ask(spooled: "SpooledStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await spooled.read(lambda store: getattr(store, name)(*args, **kwargs))

    return ask


class SpooledStore:
    """See the module's docstring. `open_store` opens the store when it is first needed.

    `folder` is named after the store's address; `older` are those of earlier versions.
    `deleted` returns the ids of deleted sessions, whose writes are dropped.
    """

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        folder: Path,
        *,
        older: Sequence[Path] = (),
        patience: Patience = Patience(),  # noqa: B008
        deleted: Callable[[], set[str]] = set,
    ) -> None:
        self._open_store = open_store
        self._patience = patience
        self._spool = Spool(folder, older=older)
        self._disk_thread = ThreadPoolExecutor(1, thread_name_prefix="ragmem-spool")
        self._replay = Replay(self._spool, self._disk_thread, deleted)
        self._on_disk = self._replay.on_disk
        self._store: Store | None = None
        self._store_id = ""
        """Id of the store that this process has had open."""
        self._opening: asyncio.Task[Store] | None = None
        self._opening_since = 0.0
        self._is_creating = False
        self._known = KnownProjects(folder.with_name(f"{folder.name}-projects.json"))
        self._running: set[asyncio.Task[Any]] = set()
        """Running tasks, held until they end."""
        self._order_lock = asyncio.Lock()
        self._in_flight: asyncio.Task[Applied] | None = None
        """A write that has stalled."""
        self._stalled_at = 0.0
        self._waiting = 0
        self._away: StoreError | None = None
        self._retry_at = 0.0
        self._pause_s = patience.retry_s
        self._timer: asyncio.TimerHandle | None = None
        self._replaying: asyncio.Task[None] | None = None
        self._others_replayed = False
        self._reported: Literal["", "outage", "spooling"] = ""
        """What the user was last told of an outage: that there is one, or that writes are kept."""
        self._loss_reported: Literal["", "session", "more"] = ""
        """The last loss reported: `session`, whose turn is still to come, or `more`."""
        self._has_losses = False
        """Whether anything could not be kept."""
        self._notices: list[str] = []
        self._closed = False

    # --- writing ----------------------------------------------------------------

    async def apply(self, writes: Sequence[Write]) -> Applied:
        """Apply the writes, or spool them until the store answers: the result is `Waiting` then."""
        if not writes:
            return Applied()
        if self._closed:
            raise _closed()
        given = tuple(writes)
        # An interrupted call goes on in its task, and later ones come after it.
        applied = await asyncio.shield(self._hold(self._in_order(given)))
        if isinstance(applied, Waiting):
            projects = [write.project for write in given if isinstance(write, RegisterProject)]
            await asyncio.to_thread(self._known.add, projects)
        return applied

    def _hold(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task and hold it until it ends; its error is raised where it is awaited."""

        def ended(task: "asyncio.Task[T]") -> None:
            self._running.discard(task)
            if not task.cancelled():
                task.exception()

        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(ended)
        return task

    async def _in_order(self, writes: Sequence[Write]) -> Applied:
        async with self._order_lock:
            if self._waiting or self._in_flight or time.monotonic() < self._retry_at:
                return await self._append(writes)
            attempt = self._hold(self._write_through(writes))
            done, _ = await asyncio.wait({attempt}, timeout=self._patience.stall_s)
            if not done:
                self._stalled_at, self._in_flight = time.monotonic(), attempt
                attempt.add_done_callback(self._stalled_write_ended)
                return await self._append(writes, attempt)
            try:
                applied = attempt.result()
            except StoreError as error:
                self.went_away(error)
                return await self._append(writes)
            if self._away:
                self._mark_back(0, 0)
            return applied

    async def _write_through(self, writes: Sequence[Write]) -> Applied:
        return await (await self.inner()).apply(writes)

    def _stalled_write_ended(self, attempt: "asyncio.Task[Applied]") -> None:
        """Handle the end of a stalled write; the spool has it too, and replaying it is harmless."""
        self._in_flight = None
        if attempt.cancelled() or self._closed:
            return
        error = attempt.exception()
        if isinstance(error, StoreError):
            self.went_away(error)
        else:
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
            if attempt:
                # The store may only be slow.
                with suppress(StoreError, TimeoutError):
                    return await asyncio.wait_for(asyncio.shield(attempt), self._patience.left_s)
            self._has_losses = True
            unwritable = f"{self._spool.folder} can't be written: {error.strerror or error}."
            self._report_lost(writes, unwritable)
            return Waiting(lost=self.why_away() or unwritable)
        self._loss_reported = ""
        return Waiting()

    def _report_lost(self, writes: Sequence[Write], unwritable: str) -> None:
        """Report, once per turn, that writes could not be kept."""
        creates = any(isinstance(write, CreateSession) for write in writes)
        begins = any(isinstance(write, BeginTurn) for write in writes)
        is_of_turn = any(isinstance(write, _OF_TURN) for write in writes)
        if creates or not self._loss_reported or (begins and self._loss_reported != "session"):
            self._notices.append(
                f"This {'turn ' * is_of_turn}was not stored: the memory is unavailable, and "
                f"{unwritable} Everything before it is still kept."
            )
        self._loss_reported = "session" if creates and not begins else "more"

    # --- catching up ------------------------------------------------------------

    async def _catch_up(self, limit_s: float) -> bool:
        """Whether the store answers and no writes wait; tries to replay those that do."""
        deadline = time.monotonic() + limit_s
        if self._in_flight:
            left_s = self._stalled_at + limit_s - time.monotonic()
            await asyncio.wait({self._in_flight}, timeout=max(0, left_s))
        if not self._waiting and self._away is None and await self._no_others():
            return True
        running = self._replaying
        if running is None:
            if self._in_flight or time.monotonic() < self._retry_at:
                return False
            running = self._start_replay()
        elif not self._replay.count:
            # No line of this pass has been stored yet: count the limit from its start, not again.
            deadline = min(deadline, self._replay.started_at + limit_s)
        await asyncio.wait({running}, timeout=max(0, deadline - time.monotonic()))
        return not self._waiting and self._away is None and self._others_replayed

    async def _no_others(self) -> bool:
        """Whether there is no spool file of another process."""
        if not self._others_replayed and not await self._on_disk(self._spool.others):
            self._others_replayed = True
        return self._others_replayed

    def _start_replay(self) -> "asyncio.Task[None]":
        if self._replaying is None:
            self._cancel_timer()
            self._replay.begin()
            self._replaying = self._hold(self._replay_once())
        return self._replaying

    async def _replay_once(self) -> None:
        """Try once to write all spooled lines to the store."""
        left = 0
        try:
            if self._in_flight:
                await asyncio.wait({self._in_flight})
            store = await self.inner()
            await self._check_id(store)
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
            self._others_replayed = True
            if self._replay.count or not (self._away and self._away.can_be_read):
                self._mark_back(self._replay.count, left)
            else:
                # Being readable proves nothing about writing: retry with the next write.
                self._retry_at = 0.0
        finally:
            self._replaying = None
        if self._waiting and self._away is None and not self._closed:
            # Some were spooled while this pass ended.
            self._timer = asyncio.get_running_loop().call_later(_REPLAY_AGAIN_S, self._start_replay)

    def _unreadable(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(f"{self._spool.folder}: {error.strerror or error}.")

    def went_away(self, error: StoreError) -> None:
        """Record that the store is unavailable: writes are spooled until a retry succeeds."""
        self._away = error
        if isinstance(error, StoreDamaged) and self._store is not None:
            # It has to be opened again after the repair.
            self._hold(self._store.aclose())
            self._store = None
        self._retry_at = time.monotonic() + self._pause_s
        self._cancel_timer()
        if not self._closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._pause_s, self._start_replay)
            self._pause_s = min(2 * self._pause_s, self._patience.longest_retry_s)

    def _cancel_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _mark_back(self, count: int, left: int) -> None:
        self._away, self._retry_at, self._pause_s = None, 0.0, self._patience.retry_s
        if self._reported:
            self._reported = ""
            waited = f" {_writes(count)} that waited {_are(count)} now stored." if count else ""
            self._notices.append(f"Memory is back.{waited}")
        elif left:
            self._notices.append(
                f"{_writes(left)} left by an earlier process {_are(left)} now stored."
            )
        if dropped := self._replay.take_dropped():
            notice = f"Dropped {_writes(dropped)} that waited for a deleted session."
            self._notices.append(notice)
            _log.warning("%s", notice)  # Nobody reads the notices of background work.
        if why := self._replay.take_refusal():
            self._notices.append(
                f"Memory did not accept everything that waited: {why} "
                f"The rest is kept in {self._spool.folder}."
            )

    def take_notices(self) -> list[str]:
        """Return what to tell the user, each once: memory is unavailable, it is back."""
        busy = self._waiting or self._in_flight or self._opening or self._replaying
        if self._reported and self._store is not None and not (busy or self.why_away()):
            # It was only slow, and nothing had to be spooled.
            self._reported = ""
            self._notices.append("Memory is back.")
        notices, self._notices = self._notices, []
        anew = "" if self._reported else self.why_away()
        if anew:
            self._reported = "outage"
            notices.append(f"Memory is unavailable: {anew}")
        if self._reported == "outage" and self._waiting:
            # Often nothing is spooled yet at that time, and without recording nothing ever will be.
            self._reported, kept = "spooling", "Meanwhile, everything is kept on this disk."
            notices.append(f"{notices.pop()} {kept}" if anew else kept)
        return notices

    def why_away(self) -> str:
        """Return why the store is unavailable, for writing at least; "" while it may answer."""
        if self._away:
            return f"{self._away} {self._away.hint}".strip()
        slow = self._opening is not None and self._is_overdue(_LONG_OPENING_S)
        if slow or (self._in_flight and time.monotonic() - self._stalled_at > _LONG_STALL_S):
            return "it does not answer."
        return ""

    # --- the store ---------------------------------------------------------------

    async def inner(self) -> Store:
        """Open the store if necessary and return it; errors are left to the caller."""
        if self._closed:
            raise _closed()
        if self._store is not None:
            return self._store
        if self._opening is None:
            self._opening_since = time.monotonic()
            self._opening = self._hold(self._open())
        elif self._is_overdue(self._patience.read_s):
            raise StoreUnavailable(
                f"The memory did not open within {self._patience.read_s:g} s.",
                hint="Try again in a moment; `ragmem doctor` shows which store it is.",
            )
        return await asyncio.shield(self._opening)

    async def opened(self) -> None:
        """Wait for the store to open, no longer than a read would unless it is being created.

        An error is raised by the next read.
        """
        if self._closed or (self._opening_since and self._opening is None):
            return
        opening = self._hold(self._ask(self.inner()))
        await asyncio.wait({opening}, timeout=self._patience.read_s)
        if self._is_creating:
            await asyncio.wait({opening})

    def note_creation(self) -> None:
        """Record that opening creates the store, which is waited for as long as it takes."""
        self._is_creating = self._opening is not None

    def _is_overdue(self, limit_s: float) -> bool:
        return not self._is_creating and time.monotonic() - self._opening_since > limit_s

    async def _open(self) -> Store:
        try:
            store = await self._open_store()
            try:
                await self._check_id(store)
            except BaseException:
                await store.aclose()
                raise
            self._store = store
            return store
        finally:
            self._opening, self._is_creating = None, False

    @property
    def was_open(self) -> bool:
        """Whether this process has had the store open."""
        return bool(self._store_id)

    async def _check_id(self, store: Store) -> None:
        """Check the store's id, and leave writes that are for another store at its address.

        Further writes of this process are for the store that it had open, too.
        """
        store_id = await store.store_id()
        if self._store_id and store_id and store_id != self._store_id:
            raise StoreUnavailable(
                "The memory was replaced by another one while in use.",
                hint="Put the first one back, or start again to use the one that is there.",
            )
        self._store_id = store_id or self._store_id
        met = partial(self._spool.meet, store_id)
        try:
            left = await self._on_disk(met)
        except OSError as error:
            raise self._unreadable(error) from None
        if left:
            self._waiting -= left
            self._notices.append(
                f"The memory's database was replaced by another one. {_writes(left)} for the "
                f"first one {'stays' if left == 1 else 'stay'} in {self._spool.folder}."
            )

    async def read(self, query: Callable[[Store], Awaitable[T]]) -> T:
        """Return the query's result; StoreUnavailable while writes wait, even a dead process's."""
        if self._closed:
            raise _closed()
        if not self._others_replayed and time.monotonic() >= self._retry_at:
            # Without a limit: only an open store can take what was left.
            await self._ask(self.inner())
        patience = self._patience
        is_whole = await self._catch_up(
            patience.read_s if self._others_replayed else patience.left_s
        )
        # A read must not miss spooled writes; if nothing could be spooled, it misses nothing.
        if not is_whole and (self._waiting or not (self._away and self._away.can_be_read)):
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
            # A bug, or a record that can't be read: the caller treats it as an error of the store.
            _log.warning("The memory could not be read: %s", error, exc_info=True)
            raise StoreError(f"The memory could not be read: {error!r}.") from error

    def _unavailable(self) -> StoreError:
        if self._away is None and self._waiting:
            return StoreUnavailable(f"{counted(self._waiting, 'write', 'wait')} for the memory.")
        if self._away is None:
            return StoreUnavailable(
                "Writes left by an earlier process are being stored.", hint="Try again soon."
            )
        return type(self._away)(str(self._away), hint=self._away.hint)

    async def look_for_others(self) -> None:
        """Take over what processes that died have left in the meantime."""
        others = await self._on_disk(self._spool.others)
        if any(path.name not in self._replay.known for path in others):
            self._start_replay()

    async def waits_elsewhere(self, session_id: str) -> bool:
        """Whether a living process has spooled writes of a session, while this one's store answers.

        Those of dead processes are being stored from now on.
        """
        if self.answering is None:
            return False
        await self.look_for_others()
        return await self._on_disk(
            partial(self._spool.elsewhere, session_id, but=self._replay.known)
        )

    @property
    def answering(self) -> Store | None:
        """The store, if it is open and its last write neither stalled nor failed."""
        return None if self._away or self._in_flight else self._store

    async def aclose(self) -> None:
        """Release everything, after a last try to store spooled writes if the store is available.

        Raises StoreUnavailable, with the cause, if writes of this process are lost.
        """
        if self._closed:
            return
        if self._waiting and self._away is None:
            await self._catch_up(self._patience.closing_s)
        self._closed = True
        self._cancel_timer()
        for task in (self._replaying, self._opening, self._in_flight):
            if task:
                task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=self._patience.closing_s)
        if self._store is not None:
            await self._store.aclose()
        await self._on_disk(self._spool.close)
        self._disk_thread.shutdown(wait=False)
        if self._has_losses:
            away = self._away or StoreUnavailable("The memory was unavailable.")
            raise StoreUnavailable(f"Not all of this was stored: {away}", hint=away.hint)

    # --- forwarded to the store ----------------------------------------------------

    store_id = forwarded(Store.store_id)
    get = forwarded(Store.get)
    session = forwarded(Store.session)
    sessions = forwarded(Store.sessions)
    find_sessions = forwarded(Store.find_sessions)
    turns = forwarded(Store.turns)
    file_accesses = forwarded(Store.file_accesses)
    find_tool_call = forwarded(Store.find_tool_call)
    summaries = forwarded(Store.summaries)
    raw_history_chars = forwarded(Store.raw_history_chars)
    search = forwarded(Store.search)
    embedder = forwarded(Store.embedder)
    use_embedder = forwarded(Store.use_embedder)
    pending = forwarded(Store.pending)
    count_pending = forwarded(Store.count_pending)
    claim = forwarded(Store.claim)
    release = forwarded(Store.release)
    attempts = forwarded(Store.attempts)
    keep_attempts = forwarded(Store.keep_attempts)
    forget_attempts = forwarded(Store.forget_attempts)
    memories_revision = forwarded(Store.memories_revision)
    memories = forwarded(Store.memories)
    find_memories = forwarded(Store.find_memories)
    superseded_by = forwarded(Store.superseded_by)
    small_vectors = forwarded(Store.small_vectors)
    forget_memories = forwarded(Store.forget_memories)
    profile = forwarded(Store.profile)
    others = forwarded(Store.others)
    code_files = forwarded(Store.code_files)
    find_scopes = forwarded(Store.find_scopes)
    code_turns = forwarded(Store.code_turns)
    changed_with = forwarded(Store.changed_with)
    attach = forwarded(Store.attach)
    detach = forwarded(Store.detach)

    async def projects(self) -> list[Project]:
        """Return every known project; while the store is unavailable, those known before."""
        try:
            found = await self.read(lambda store: store.projects())
        except StoreError:
            if known := await asyncio.to_thread(self._known.load):
                return known
            raise
        await asyncio.to_thread(self._known.save, found)
        return found

    async def info(self) -> StoreInfo:
        """Return the store's info; in its counts `waiting_writes` and `set_aside`, if any."""
        try:
            found = await self.read(lambda store: store.info())
        except StoreError as error:
            if not (waiting := await self._on_disk(self._spool.count_waiting)):
                raise
            count = f"{counted(waiting, 'write', 'wait')} on this disk."
            hint = f"{error.hint} {count}".strip()
            raise type(error)(str(error), hint=hint) from None
        more = {
            "waiting_writes": await self._on_disk(self._spool.count_waiting),
            "set_aside": await self._on_disk(self._spool.count_aside),
        }
        counts = found.counts | {name: count for name, count in more.items() if count}
        return msgspec.structs.replace(found, counts=counts)

    async def heartbeat(self, owner_id: str) -> None:
        """Renew the lease, and take over what dead processes have left."""
        if store := self.answering:
            try:
                await store.heartbeat(owner_id)
            except StoreError as error:
                self.went_away(error)
                raise
            await self.look_for_others()


def _writes(count: int) -> str:
    return counted(count, "write")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _closed() -> StoreUnavailable:
    return StoreUnavailable("The memory is closed.", hint="Open it again.")

"""Recording turns, the request log, the tail, and limits on waiting for the store.

The start of a turn is written, then each of its tool calls, then how it ended. Secrets are redacted
from all writes (`redacted`), but not from the turn in memory, which the model is working on. No
turn waits for the store longer than `in_time` allows.

The request log describes the first request of each turn: its sections, their sizes, what was
recalled and why. It is a private file on this machine next to the data, never in a store, with one
line per turn; old ones are dropped. It names recalled records by their ids alone. Deleting a
session deletes its lines.

The tail keeps the newest sessions of each folder, so that they can continue while the store is
unavailable. It is a private file next to the spool and not a memory of its own: it is read only
when the store can't be, and nothing is ever copied from it into a store.
"""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import asdict

from ragmem.errors import RagmemError, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.files import append_line, lock, make_private, replace_private
from ragmem.memory.turns import extract_accessed_files, locator, with_said
from ragmem.records import (
    ASKED,
    Applied,
    BeginTurn,
    FinishTurn,
    Record,
    RecordAnswer,
    RecordToolCall,
    Session,
    ToolCall,
    Turn,
    TurnStatus,
    Usage,
    Write,
)
from ragmem.redact import redact, redact_all
from ragmem.store import Room, Store
from ragmem.store.spool import Waiting
from ragmem.text import clean, clip_middle, one_line
from ragmem.usage import Metrics

if TYPE_CHECKING:
    from ragmem.memory.context.builder import Context
    from ragmem.memory.context.sections import ContextItem

_log = logging.getLogger("ragmem")

Recorder = Callable[[Sequence[Write]], Awaitable[Applied | None]]
"""Writes to the store, or to its spool while it is unavailable; None if nothing is recorded."""


_KEY_CHARACTERS = ascii_letters + digits + "_-./+="
_ANSWER_EVERY_S, _ANSWER_CHARS_PER_S = 1.0, 20_000
"""Interval at which a partial answer is stored; longer for a long one, since each time all of it is
written.
"""


class TurnRecording:
    """Records a turn in progress; `turn` is the turn as recorded so far."""

    def __init__(
        self, session: Session, turn: Turn, record: Recorder, *, clock: Callable[[], datetime]
    ) -> None:
        self._room = Room()
        said = self._room.said(turn.user_message)
        self.turn = msgspec.structs.replace(turn, user_message=said)
        self.recorded = False
        """Whether the turn is safe: in the store, or spooled on the disk."""
        self.stored_ms = 0.0
        """Milliseconds spent on its writes so far."""
        self._kept = True
        self._locate = locator(session)
        self._write = record
        self._clock = clock
        self._keeping: asyncio.Task[None] | None = None
        self._answer_chars = 0
        """Length of the partial answer that is stored."""

    async def begin(self, *, next_index: int) -> None:
        """Write the turn; `next_index` is its index if the store is unavailable to assign one."""
        turn = self.turn
        failpoint("turn.begin")
        applied = await self._record([write_of(BeginTurn, turn)])
        failpoint("turn.begun")
        self.recorded = applied is not None and kept(applied)
        index = applied.turn_indexes.get(turn.turn_id, next_index) if applied else next_index
        self.turn = msgspec.structs.replace(turn, turn_index=index)

    async def say(self, words: str) -> None:
        """Write what the user says while the turn runs; it follows the calls recorded so far."""
        said = self._room.said(words)
        calls = self.turn.tool_calls
        last = tuple(with_said(call, said) for call in calls[-1:])
        self.turn = msgspec.structs.replace(
            self.turn,
            user_message=f"{self.turn.user_message}\n\n{said}",
            tool_calls=(*calls[:-1], *last),
        )
        session_id = self.turn.session_id
        places = [RecordToolCall(session_id=session_id, call=call) for call in last]
        await self._record([write_of(BeginTurn, self.turn), *places])

    def answering(self, pieces: Sequence[str]) -> None:
        """Store the partial answer, `pieces` as it is then, in the background after a delay.

        It becomes the turn's answer if the turn is never finished. Errors are ignored: a partial
        answer is not promised to survive.
        """
        if self.recorded and self._kept and (self._keeping is None or self._keeping.done()):
            self._keeping = asyncio.create_task(self._keep_answer(pieces))

    async def _keep_answer(self, pieces: Sequence[str]) -> None:
        await asyncio.sleep(max(_ANSWER_EVERY_S, self._answer_chars / _ANSWER_CHARS_PER_S))
        # Half of an API key does not look like one, so the last word waits until the next begins.
        if text := clean("".join(pieces)).rstrip(_KEY_CHARACTERS):
            self._answer_chars = len(text)
            with suppress(RagmemError):
                await self._write([self._answer_so_far(text)])

    def _answer_so_far(self, text: str) -> RecordAnswer:
        ids = {"turn_id": self.turn.turn_id, "session_id": self.turn.session_id}
        return RecordAnswer(assistant_message=self._room.so_far(text), **ids)

    async def _stop_keeping(self) -> None:
        """Cancel the pending write of a partial answer."""
        if task := self._keeping:
            self._keeping = None
            task.cancel()
            await asyncio.wait({task})

    async def call(self, call: ToolCall) -> None:
        """Write a call that starts (its result is empty) or has finished.

        Text before it becomes the call's preamble, so that the stored partial answer is cleared.
        """
        await self._stop_keeping()
        call = msgspec.structs.replace(
            call,
            arguments=clean(call.arguments),
            result=clean(call.result),
            error=call.error and clean(call.error),
            preamble=clean(call.preamble),
        )
        files = extract_accessed_files(call, turn_index=self.turn.turn_index, locate=self._locate)
        call = self._fitted(call)
        others = tuple(c for c in self.turn.tool_calls if c.tool_call_id != call.tool_call_id)
        calls = tuple(sorted((*others, call), key=lambda c: c.order))
        self.turn = msgspec.structs.replace(self.turn, tool_calls=calls)
        failpoint("call.result" if call.result else "call.start")
        writes: list[Write] = [
            RecordToolCall(session_id=self.turn.session_id, call=call, accesses=tuple(files))
        ]
        if self._answer_chars:
            self._answer_chars = 0
            writes.append(self._answer_so_far(""))
        await self._record(writes)
        failpoint("call.result_kept" if call.result else "call.start_kept")

    def _fitted(self, call: ToolCall) -> ToolCall:
        """Cut a call to the room left in the turn; what its start stored is not counted twice."""
        room = self._room
        begun = next((c for c in self.turn.tool_calls if c.tool_call_id == call.tool_call_id), None)
        if begun is None:
            return room.call(call)
        return msgspec.structs.replace(
            call,
            arguments=begun.arguments,
            preamble=begun.preamble,
            result=room.result(call.result),
            error=call.error and room.words(call.error),
        )

    async def finish(
        self, status: TurnStatus, text: str, *, reasoning: str = "", usage: Usage | None = None
    ) -> None:
        """Write the turn's status, answer, reasoning and usage."""
        await self._stop_keeping()
        answer, thoughts = self._room.end(clean(text), clean(reasoning))
        self.turn = msgspec.structs.replace(
            self.turn,
            status=status,
            assistant_message=answer,
            reasoning=thoughts or None,
            usage=usage or Usage(),
            finished_at=self._clock(),
        )
        failpoint("turn.finish")
        applied = await self._record([write_of(FinishTurn, self.turn)])
        failpoint("turn.finished")
        self.recorded = applied is not None and kept(applied)

    async def _record(self, writes: Sequence[Write]) -> Applied | None:
        # After a lost write nothing more is written: the turn ends as interrupted, never as whole.
        started = time.perf_counter()
        applied = await self._write(writes) if self._kept else None
        self.stored_ms += (time.perf_counter() - started) * 1000
        self._kept = self._kept and kept(applied)
        return applied


W = TypeVar("W", BeginTurn, FinishTurn)


def write_of(write: type[W], turn: Turn) -> W:
    """Create a write from the turn's fields of the same names."""
    return write(**{name: getattr(turn, name) for name in write.__struct_fields__})


def measure(turn: Turn, recording: TurnRecording | None, metrics: Metrics) -> None:
    """Add a finished turn's time in the store, its tokens and its cost to the metrics."""
    if recording and recording.recorded:
        metrics.took("store.turn", recording.stored_ms)
    usage = turn.usage
    metrics.count("turns.calls", usage.model_calls)
    metrics.count("turns.unpriced_calls", usage.model_calls if usage.cost_usd is None else 0)
    for name in ("input_tokens", "output_tokens", "cached_tokens", "cost_usd"):
        metrics.count(f"turns.{name}", getattr(usage, name) or 0)


def kept(applied: Applied | None) -> bool:
    """Whether the writes were stored or spooled; true if nothing was to be written."""
    return not isinstance(applied, Waiting) or not applied.lost


async def surely(store: Store, writes: Sequence[Write]) -> None:
    """Apply writes, or spool them; StoreUnavailable if neither is possible."""
    applied = await store.apply(writes)
    if isinstance(applied, Waiting) and applied.lost:
        raise StoreUnavailable(f"This was not stored. {applied.lost}")


R = TypeVar("R", bound=Record)


def redacted(record: R) -> R:
    """Return a write or record without secrets, as the store will have it."""
    changed = {}
    for field in record.texts:
        value = getattr(record, field)
        if (clean := _redacted_value(value)) is not value:
            changed[field] = clean
    return msgspec.structs.replace(record, **changed) if changed else record


def _redacted_value(value: object) -> object:
    match value:
        case str():
            return redact(value)
        case tuple() if value and isinstance(value[0], str):
            return redact_all(value)
        case tuple():
            return tuple(map(redacted, value))
        case Record():
            return redacted(value)
        case _:
            return value


# --- the request log


REQUESTS_FILE = "requests.jsonl"
_LARGEST_BYTES = 8_000_000
"""Size from which the older half of the file is dropped."""
_LOCKED_S = 0.5
_WHY_CHARS = 80


class SentItem(msgspec.Struct, frozen=True, array_like=True):
    """One item of a section."""

    id: str
    """The id of a turn, summary or memory; empty for anything else."""
    chars: int
    why: str
    score: float | None = None


class SentSection(msgspec.Struct, frozen=True, array_like=True):
    """A section of a request; sizes are in characters, and a budget of 0 means no limit."""

    name: str
    chars: int
    budget: int
    dropped: int = 0
    """Items that did not fit into the budget."""
    items: tuple[SentItem, ...] = ()


class SentRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first request of a turn."""

    turn_id: str
    session_id: str
    at: datetime
    max_chars: int
    fallback: bool = False
    sections: tuple[SentSection, ...] = ()

    def shown(self, line: Callable[[str], str]) -> dict[str, Any]:
        """Return the request as a dict, for JSON; `line` makes each of its texts one line."""

        def named(section: SentSection) -> dict[str, Any]:
            items = [{**asdict(item), "why": line(item.why)} for item in section.items]
            return {**asdict(section), "name": line(section.name), "items": items}

        return {
            "most": self.max_chars,
            "fallback": self.fallback,
            "sections": list(map(named, self.sections)),
        }


def sent(turn_id: str, session_id: str, at: datetime, context: "Context") -> SentRequest:
    """Return what the request log keeps of a request."""

    def noted(one: "ContextItem") -> SentItem:
        return SentItem(one.record_id, one.chars, one_line(redact(one.why), _WHY_CHARS), one.score)

    return SentRequest(
        turn_id=turn_id,
        session_id=session_id,
        at=at,
        max_chars=context.max_chars,
        fallback=context.fallback,
        sections=tuple(
            SentSection(s.name, s.chars, s.budget, s.dropped, tuple(map(noted, s.items)))
            for s in context.sections
        ),
    )


class _KeptFile:
    """A private file that is written to in threads, under a lock."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._keeping: set[asyncio.Future[None]] = set()

    def _keep_later(self, work: Callable[..., None], *what: object) -> None:
        task = asyncio.get_running_loop().run_in_executor(None, work, *what)
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    @contextmanager
    def _alone(self, timeout_s: float) -> Iterator[int]:
        handle = lock(self._file, timeout_s=timeout_s)
        try:
            yield handle
        finally:
            os.close(handle)

    async def aclose(self) -> None:
        """Wait for the writes in progress."""
        await asyncio.gather(*self._keeping)


class RequestLog(_KeptFile):
    """The log of requests in the data folder; see the module's docstring."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / REQUESTS_FILE)

    def keep(self, request: SentRequest) -> None:
        """Add a request in the background; ignores errors."""
        self._keep_later(self._add, request)

    def known(self) -> dict[str, SentRequest]:
        """Return the requests in the log by the id of their turn; the last one of each turn."""
        return {each.turn_id: each for each in self._lines()}

    def forget(self, session_id: str) -> None:
        """Remove a session's requests. Raises OSError, StoreUnavailable."""
        if not self._file.exists():
            return
        with self._alone(_LOCKED_S):
            self._replace([each for each in self._lines() if each.session_id != session_id])

    def _add(self, request: SentRequest) -> None:
        with suppress(OSError, StoreUnavailable), self._alone(_LOCKED_S) as handle:
            if append_line(handle, msgspec.json.encode(request)) > _LARGEST_BYTES:
                lines = list(self._lines())
                self._replace(lines[len(lines) // 2 :])

    def _replace(self, lines: list[SentRequest]) -> None:
        replace_private(self._file, msgspec.json.Encoder().encode_lines(lines), sync=False)

    def _lines(self) -> Iterator[SentRequest]:
        data = b""
        with suppress(OSError):
            data = self._file.read_bytes()
        for line in data.splitlines():
            with suppress(msgspec.DecodeError):
                yield msgspec.json.decode(line, type=SentRequest)


# --- the tail


TAIL_SUFFIX = "-sessions.json"
_MOST_TAIL_BYTES = 1 << 20
_TAIL_TURNS = 12
"""Newest turns kept of a session, besides its first, which says what the session is about."""
_TAIL_CHARS = 2_000
_TAIL_LOCKED_S = 5.0


class _Kept(msgspec.Struct, frozen=True):
    session: Session
    turns: tuple[Turn, ...]


class _Tail(msgspec.Struct, frozen=True):
    store_id: str = ""
    sessions: tuple[_Kept, ...] = ()


class Tail(_KeptFile):
    """The tail; see the module's docstring. `whose` returns the id of the store last seen."""

    def __init__(self, file: Path, whose: Callable[[], str]) -> None:
        super().__init__(file)
        self._whose = whose

    def keep(self, session: Session, turns: Sequence[Turn]) -> None:
        """Keep a session and these turns, its first and newest ones, in the background.

        The turns must be redacted, as the store returns them.
        """
        self._keep_later(self._keep, session, _ends(turns))

    def sessions(self, cwd: str, limit: int) -> list[Session]:
        """Return the sessions of a folder, newest activity first."""
        found = [kept.session for kept in self._load() if kept.session.cwd == cwd]
        return sorted(found, key=lambda each: each.last_activity_at, reverse=True)[:limit]

    def turns(self, session_id: str) -> tuple[Turn, ...]:
        """Return a session's first turn and its newest ones, in order."""
        found = (kept.turns for kept in self._load() if kept.session.session_id == session_id)
        return next(found, ())

    async def find_sessions(self, reference: str, *, mine: bool = False) -> list[Session]:
        """Find sessions whose id is, or ends with, the reference, or whose title equals it."""
        every, name = [kept.session for kept in self._load()], reference.casefold()
        return [s for s in every if s.session_id.endswith(reference) or s.title.casefold() == name]

    def forget(self, session_id: str) -> None:
        """Remove a deleted session, whichever store it was in. Raises StoreUnavailable."""
        if not self._file.exists():
            return
        try:
            with self._alone(_TAIL_LOCKED_S):
                found = self._read()
                left = [each for each in found.sessions if each.session.session_id != session_id]
                if len(left) < len(found.sessions):
                    self._write(found.store_id, left)
        except OSError as error:
            raise StoreUnavailable(
                f"Its last turns may still be in {self._file}: {error.strerror or error}.",
                hint="Delete that file.",
            ) from None

    def _keep(self, session: Session, turns: Sequence[Turn]) -> None:
        try:
            new = {turn.turn_id: _brief(turn) for turn in turns}
            make_private(self._file.parent)
            with self._alone(_TAIL_LOCKED_S):
                found = self._load()
                before = [e for e in found if e.session.session_id == session.session_id]
                known = {turn.turn_id: turn for each in before for turn in each.turns} | new
                own = _kept(session, _ends(known.values()))
                self._write(self._whose(), [own, *(e for e in found if e not in before)])
        except Exception as error:
            # For example a full disk. All it costs: the session can't continue during an outage.
            expected = isinstance(error, OSError | RagmemError)
            _log.warning("Nothing could be kept for an outage: %s", error, exc_info=not expected)

    def _load(self) -> tuple[_Kept, ...]:
        """Return the sessions kept; none if there is another database at the address by now."""
        found = self._read()
        return found.sessions if found.store_id in ("", self._whose()) else ()

    def _read(self) -> _Tail:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Tail)
        except (OSError, msgspec.MsgspecError):
            return _Tail()

    def _write(self, store_id: str, sessions: Iterable[_Kept]) -> None:
        newest = sorted(sessions, key=lambda e: e.session.last_activity_at, reverse=True)
        # The newest session of each folder first, then the second newest of each, while they fit.
        seen: Counter[str] = Counter()
        places = {}
        for each in newest:
            places[each.session.session_id] = seen[each.session.cwd]
            seen[each.session.cwd] += 1
        newest.sort(key=lambda e: places[e.session.session_id])
        while len(data := msgspec.json.encode(_Tail(store_id, tuple(newest)))) > _MOST_TAIL_BYTES:
            newest.pop()
        replace_private(self._file, data, sync=False)


def _kept(session: Session, shown: tuple[Turn, ...]) -> _Kept:
    """Return what is kept of a session: no summary, and no tags but that of a one-off question."""
    first = session.first_message and clip_middle(session.first_message, 400)
    tags = tuple(tag for tag in session.tags if tag == ASKED)
    head = msgspec.structs.replace(redacted(session), first_message=first, summary=None, tags=tags)
    if shown:
        last = shown[-1]
        head = msgspec.structs.replace(
            head,
            turn_count=max(head.turn_count, last.turn_index),
            last_activity_at=max(head.last_activity_at, last.finished_at or last.started_at),
            last_message=clip_middle(last.asked, 400),
        )
    return _Kept(head, shown)


def _ends(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    ordered = sorted(turns, key=lambda turn: turn.turn_index)
    return (*ordered[:1], *ordered[1:][-_TAIL_TURNS:])


def _brief(turn: Turn) -> Turn:
    return msgspec.structs.replace(
        turn,
        tool_calls=(),
        reasoning=None,
        user_message=clip_middle(turn.user_message, _TAIL_CHARS),
        assistant_message=clip_middle(turn.assistant_message, _TAIL_CHARS),
    )


# --- how long a turn waits


T = TypeVar("T")


class StoreTooSlow(StoreUnavailable):
    """The store did not answer within the time that a turn waits; it may still be available."""


_PATIENCE_S = 2.0
_INTERRUPTED_PATIENCE_S = 0.2
"""The limit once the user has interrupted the turn."""


class _TimeLimits:
    """The time limits in effect within one task, which `hurry` shortens."""

    def __init__(self) -> None:
        self._hurried = False
        self._limits: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """Limit the time of the block. Raises TimeoutError."""
        async with asyncio.timeout(_INTERRUPTED_PATIENCE_S if self._hurried else seconds) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    def hurry(self) -> None:
        """Shorten the limits in effect, and those to come, to `_INTERRUPTED_PATIENCE_S`."""
        self._hurried = True
        soon = asyncio.get_running_loop().time() + _INTERRUPTED_PATIENCE_S
        for limit in self._limits:
            # An expired one can't be rescheduled; the block that it cancels may still be ending.
            if not limit.expired():
                limit.reschedule(min(soon, limit.when() or soon))


_time_limits = ContextVar("time_limits", default=_TimeLimits())  # noqa: B039


async def settled(work: Awaitable[None]) -> bool:
    """Wait for work that must not be cancelled; return whether cancellation was requested.

    Once it was, the work's calls of `in_time` are given up soon.
    """
    haste = _TimeLimits()
    token = _time_limits.set(haste)
    task = asyncio.ensure_future(work)
    _time_limits.reset(token)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
            haste.hurry()
    task.result()
    return cancelled


async def in_time(work: Awaitable[T], *, beside_s: float = 0.0) -> T:
    """Wait for a store's answer during a turn, for 2 seconds at most, else raise StoreTooSlow.

    `beside_s` is added for anything else that the work does.
    """
    try:
        async with _time_limits.get().within(_PATIENCE_S + beside_s):
            return await work
    except TimeoutError:
        raise StoreTooSlow(
            f"The memory did not answer within {_PATIENCE_S:g} s.", hint="Try again."
        ) from None

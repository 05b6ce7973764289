"""A process at work in a session: the turn as it is written, and what is kept beside the store.

A turn is begun, each of its tool calls is written, then how it ended. What is written is written
without secrets (`redacted`); the turn in flight keeps them, for the model that is at work on it.
Nobody waits for the store longer than `in_time` has patience.

Each request is noted as it was sent: its sections, their sizes, what was recalled and why. That is
a private file of this machine beside the data, a line a turn, the newest of them; no store has it.
What was recalled is named by its id alone; a session's lines go with the session.

The tail is the newest sessions of each folder, so that they go on while the store is away. It is a
private file beside the spool and no memory of its own: it is looked at only when the store can't
be asked, and nothing is ever brought from it into a store.
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
"""Writes to the store, or to its spool while it is away; None where nothing is recorded."""


_OF_A_KEY = ascii_letters + digits + "_-./+="
_ANSWER_EVERY_S, _ANSWER_CHARS_PER_S = 1.0, 20_000
"""What has come of an answer is kept so often; a long one more seldom, since each time all of it is
written.
"""


class TurnRecording:
    """The turn in flight, `turn`, and the writes that make it last."""

    def __init__(
        self, session: Session, turn: Turn, record: Recorder, *, clock: Callable[[], datetime]
    ) -> None:
        self._room = Room()
        said = self._room.said(turn.user_message)
        self.turn = msgspec.structs.replace(turn, user_message=said)
        self.recorded = False
        """Whether the turn lasts: in the store, or on the disk until that is back."""
        self.stored_ms = 0.0
        """Spent on its writes so far."""
        self._kept = True
        self._locate = locator(session)
        self._write = record
        self._clock = clock
        self._keeping: asyncio.Task[None] | None = None
        self._answer_chars = 0
        """Of what has come of an answer, as far as it is kept."""

    async def begin(self, *, next_index: int) -> None:
        """Write the turn; `next_index` stands in for the store's word while it is away."""
        turn = self.turn
        failpoint("turn.begin")
        applied = await self._record([_of(BeginTurn, turn)])
        failpoint("turn.begun")
        self.recorded = applied is not None and kept(applied)
        index = applied.turn_indexes.get(turn.turn_id, next_index) if applied else next_index
        self.turn = msgspec.structs.replace(turn, turn_index=index)

    async def say(self, words: str) -> None:
        """Write what the person says while the turn runs: behind the calls that have ended."""
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
        await self._record([_of(BeginTurn, self.turn), *places])

    def answering(self, pieces: Sequence[str]) -> None:
        """Keep, a moment later, what there is then of the answer whose pieces are coming.

        Should nobody finish the turn, it is its answer. Nobody waits for it, and what could not be
        kept is nothing that was promised.
        """
        if self.recorded and self._kept and (self._keeping is None or self._keeping.done()):
            self._keeping = asyncio.create_task(self._keep_answer(pieces))

    async def _keep_answer(self, pieces: Sequence[str]) -> None:
        await asyncio.sleep(max(_ANSWER_EVERY_S, self._answer_chars / _ANSWER_CHARS_PER_S))
        # Half of a key does not look like one: the last word is kept once another has begun.
        if text := clean("".join(pieces)).rstrip(_OF_A_KEY):
            self._answer_chars = len(text)
            with suppress(RagmemError):
                await self._write([self._answer_so_far(text)])

    def _answer_so_far(self, text: str) -> RecordAnswer:
        ids = {"turn_id": self.turn.turn_id, "session_id": self.turn.session_id}
        return RecordAnswer(assistant_message=self._room.so_far(text), **ids)

    async def _answered(self) -> None:
        if task := self._keeping:
            self._keeping = None
            task.cancel()
            await asyncio.wait({task})

    async def call(self, call: ToolCall) -> None:
        """Write a call that starts (its result is empty) or has finished.

        What was said before it is the call's then, and the answer is still to come.
        """
        await self._answered()
        call = msgspec.structs.replace(
            call,
            arguments=clean(call.arguments),
            result=clean(call.result),
            error=call.error and clean(call.error),
            preamble=clean(call.preamble),
        )
        accesses = tuple(
            extract_accessed_files(call, turn_index=self.turn.turn_index, locate=self._locate)
        )
        call = self._fitted(call)
        others = tuple(c for c in self.turn.tool_calls if c.tool_call_id != call.tool_call_id)
        calls = tuple(sorted((*others, call), key=lambda c: c.order))
        self.turn = msgspec.structs.replace(self.turn, tool_calls=calls)
        failpoint("call.result" if call.result else "call.start")
        writes: list[Write] = [
            RecordToolCall(session_id=self.turn.session_id, call=call, accesses=accesses)
        ]
        if self._answer_chars:
            self._answer_chars = 0
            writes.append(self._answer_so_far(""))
        await self._record(writes)
        failpoint("call.result_kept" if call.result else "call.start_kept")

    def _fitted(self, call: ToolCall) -> ToolCall:
        """As it is stored: within the turn's room, of which its start has had a part."""
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
        """Write how it ended."""
        await self._answered()
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
        applied = await self._record([_of(FinishTurn, self.turn)])
        failpoint("turn.finished")
        self.recorded = applied is not None and kept(applied)

    async def _record(self, writes: Sequence[Write]) -> Applied | None:
        # A turn of which something was lost ends as interrupted, never as if it were whole.
        started = time.perf_counter()
        applied = await self._write(writes) if self._kept else None
        self.stored_ms += (time.perf_counter() - started) * 1000
        self._kept = self._kept and kept(applied)
        return applied


W = TypeVar("W", BeginTurn, FinishTurn)


def _of(write: type[W], turn: Turn) -> W:
    """The write with what it has of a turn, by the names of its fields."""
    return write(**{name: getattr(turn, name) for name in write.__struct_fields__})


def measure(turn: Turn, recording: TurnRecording | None, metrics: Metrics) -> None:
    """Count what a turn that has ended took to store, and what it cost."""
    if recording and recording.recorded:
        metrics.took("store.turn", recording.stored_ms)
    usage = turn.usage
    metrics.count("turns.calls", usage.model_calls)
    metrics.count("turns.unpriced_calls", usage.model_calls if usage.cost_usd is None else 0)
    for name in ("input_tokens", "output_tokens", "cached_tokens", "cost_usd"):
        metrics.count(f"turns.{name}", getattr(usage, name) or 0)


def kept(applied: Applied | None) -> bool:
    """Whether the writes last; so they do if none were made."""
    return not isinstance(applied, Waiting) or not applied.lost


async def surely(store: Store, writes: Sequence[Write]) -> None:
    """Apply them, or keep them for later; StoreUnavailable where neither can be done."""
    applied = await store.apply(writes)
    if isinstance(applied, Waiting) and applied.lost:
        raise StoreUnavailable(f"This was not stored. {applied.lost}")


R = TypeVar("R", bound=Record)


def redacted(record: R) -> R:
    """The write or record without secrets, as the store will tell it."""
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


# --- what a turn was asked with


REQUESTS_FILE = "requests.jsonl"
_LARGEST_BYTES = 8_000_000
"""Then the older half of it goes."""
_LOCKED_S = 0.5
_WHY_CHARS = 80


class SentItem(msgspec.Struct, frozen=True, array_like=True):
    """One thing in a section."""

    id: str
    """Of a turn, summary or memory; empty for what has none."""
    chars: int
    why: str
    score: float | None = None


class SentSection(msgspec.Struct, frozen=True, array_like=True):
    """A part of a request; sizes in characters, a budget of 0 is no limit."""

    name: str
    chars: int
    budget: int
    dropped: int = 0
    """Items left out for want of room."""
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
        """Return the request by names, every text on a line as `line` makes one."""

        def named(section: SentSection) -> dict[str, Any]:
            items = [{**asdict(item), "why": line(item.why)} for item in section.items]
            return {**asdict(section), "name": line(section.name), "items": items}

        return {
            "most": self.max_chars,
            "fallback": self.fallback,
            "sections": list(map(named, self.sections)),
        }


def sent(turn_id: str, session_id: str, at: datetime, context: "Context") -> SentRequest:
    """What is kept of a request."""

    def noted(item: "ContextItem") -> SentItem:
        return SentItem(
            item.record_id, item.chars, one_line(redact(item.why), _WHY_CHARS), item.score
        )

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
    """A private file, to which is written beside the event loop."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._keeping: set[asyncio.Future[None]] = set()

    def _keep_later(self, work: Callable[..., None], *what: object) -> None:
        task = asyncio.get_running_loop().run_in_executor(None, work, *what)
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    @contextmanager
    def _alone(self, timeout_s: float) -> Iterator[int]:
        """Hold the file's lock, on the descriptor that is handed out."""
        handle = lock(self._file, timeout_s=timeout_s)
        try:
            yield handle
        finally:
            os.close(handle)

    async def aclose(self) -> None:
        """Wait for what is being kept."""
        await asyncio.gather(*self._keeping)


class RequestLog(_KeptFile):
    """The file in the folder of the data; see the module's text."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / REQUESTS_FILE)

    def keep(self, request: SentRequest) -> None:
        """Add a request; one that can't be kept is left out."""
        self._keep_later(self._add, request)

    def known(self) -> dict[str, SentRequest]:
        """Return those that are kept, by the id of their turn: of each the last."""
        return {each.turn_id: each for each in self._lines()}

    def forget(self, session_id: str) -> None:
        """Remove what a session has here. OSError, StoreUnavailable."""
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
        """A torn line costs that line."""
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
"""The newest of a session; its first, which says what it is about, is kept beside them."""
_TAIL_CHARS = 2_000
_TAIL_LOCKED_S = 5.0


class _Kept(msgspec.Struct, frozen=True):
    session: Session
    turns: tuple[Turn, ...]


class _Tail(msgspec.Struct, frozen=True):
    store_id: str = ""
    sessions: tuple[_Kept, ...] = ()


class Tail(_KeptFile):
    """See the module's text. `whose` says the id of the store that was last met here."""

    def __init__(self, file: Path, whose: Callable[[], str]) -> None:
        super().__init__(file)
        self._whose = whose

    def keep(self, session: Session, turns: Sequence[Turn]) -> None:
        """Let these turns of a session be known; the store has the rest.

        They are as the store tells them, without secrets.
        """
        self._keep_later(self._keep, session, _ends(turns))

    def sessions(self, cwd: str, limit: int) -> list[Session]:
        """Return those of a folder, newest activity first."""
        found = [kept.session for kept in self._load() if kept.session.cwd == cwd]
        return sorted(found, key=lambda each: each.last_activity_at, reverse=True)[:limit]

    def turns(self, session_id: str) -> tuple[Turn, ...]:
        """The first of a session and its newest, in order."""
        found = (kept.turns for kept in self._load() if kept.session.session_id == session_id)
        return next(found, ())

    async def find_sessions(self, reference: str, *, mine: bool = False) -> list[Session]:
        """Find those whose id is, or ends with, the reference, or whose title equals it."""
        every, folded = [kept.session for kept in self._load()], reference.casefold()
        meant = (
            s for s in every if s.session_id.endswith(reference) or s.title.casefold() == folded
        )
        return list(meant)

    def forget(self, session_id: str) -> None:
        """Forget a session that was deleted, whichever store it was of. StoreUnavailable."""
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
            # A full disk, say: it costs only that an outage interrupts the conversation.
            expected = isinstance(error, OSError | RagmemError)
            _log.warning("Nothing was kept for an outage: %s", error, exc_info=not expected)

    def _load(self) -> tuple[_Kept, ...]:
        """None where another database was met at the address since."""
        found = self._read()
        return found.sessions if found.store_id in ("", self._whose()) else ()

    def _read(self) -> _Tail:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Tail)
        except (OSError, msgspec.MsgspecError):
            return _Tail()

    def _write(self, store_id: str, sessions: Iterable[_Kept]) -> None:
        newest = sorted(sessions, key=lambda e: e.session.last_activity_at, reverse=True)
        # Of each folder the newest, then their second newest, as long as there is room.
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
    """What is kept of a session: no summary, of its tags that of a one-off question alone."""
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


# --- patience


T = TypeVar("T")


class StoreTooSlow(StoreUnavailable):
    """A store that may well answer, but not in the time that a turn waits for it."""


_PATIENCE_S = 2.0
_HASTY_S = 0.2
"""What is left of it once the person has interrupted the turn."""


class _Haste:
    """Ends what waits within one piece of work soon, once somebody wants it to end."""

    def __init__(self) -> None:
        self._hurried = False
        self._limits: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """A time limit for the block: TimeoutError."""
        async with asyncio.timeout(_HASTY_S if self._hurried else seconds) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    def hurry(self) -> None:
        """Let go of what waits, and of what will."""
        self._hurried = True
        soon = asyncio.get_running_loop().time() + _HASTY_S
        for limit in self._limits:
            # One that is over can't be changed, and what it ends may take its time to.
            if not limit.expired():
                limit.reschedule(min(soon, limit.when() or soon))


_haste = ContextVar("haste", default=_Haste())  # noqa: B039


async def settled(work: Awaitable[None]) -> bool:
    """Wait for work that must not be left half done; true if cancellation was asked meanwhile.

    What it then waits for with `in_time` is given up soon.
    """
    haste = _Haste()
    token = _haste.set(haste)
    task = asyncio.ensure_future(work)
    _haste.reset(token)
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
    """What the store answers to a turn that waits for it; StoreTooSlow when that takes long.

    `beside_s` is what the work may spend on something else.
    """
    try:
        async with _haste.get().within(_PATIENCE_S + beside_s):
            return await work
    except TimeoutError:
        raise StoreTooSlow(
            f"The memory did not answer within {_PATIENCE_S:g} s.", hint="Try again."
        ) from None

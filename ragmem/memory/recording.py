"""A turn being written as it happens: begun, each tool call, the end.

What is written here is written without secrets (`redacted`); the turn in flight
keeps them, for the model that is at work on it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from string import ascii_letters, digits
from typing import TypeVar

import msgspec

from ragmem.errors import RagmemError, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.memory.files import extract_accessed_files, stored_path
from ragmem.memory.window import with_said
from ragmem.records import (
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
from ragmem.text import clean
from ragmem.usage import Metrics

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
        self._session = session
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

    def _locate(self, path: str) -> str:
        cwd = Path(self._session.cwd)
        return stored_path(path, cwd=cwd, project=Path(self._session.project_path or cwd))


W = TypeVar("W", BeginTurn, FinishTurn)


def _of(write: type[W], turn: Turn) -> W:
    """The write with what it has of a turn, by the names of its fields."""
    return write(**{name: getattr(turn, name) for name in write.__struct_fields__})


def measure(turn: Turn, recording: TurnRecording | None, metrics: Metrics) -> None:
    """Count what a turn that has ended took to store, and what it cost."""
    if recording and recording.recorded:
        metrics.timings_ms["store.turn"].append(recording.stored_ms)
    usage = turn.usage
    metrics.count("turns.calls", usage.model_calls)
    metrics.count("turns.unpriced_calls", usage.model_calls if usage.cost_usd is None else 0)
    for name in ("input_tokens", "output_tokens", "cached_tokens", "cost_usd"):
        metrics.count(f"turns.{name}", getattr(usage, name) or 0)


def kept(applied: Applied | None) -> bool:
    """Whether the writes last; so they do if none were made."""
    return not isinstance(applied, Waiting) or applied.kept


async def surely(store: Store, writes: Sequence[Write]) -> None:
    """Apply them, or keep them for later; StoreUnavailable where neither can be done."""
    if not kept(await store.apply(writes)):
        raise StoreUnavailable(
            "The memory is away: this is not kept.", hint="Make room on its disk."
        )


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

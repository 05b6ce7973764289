"""A turn being written as it happens (X25): begun, each tool call, the end."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from ragmem.memory.files import extract_accessed_files, stored_path
from ragmem.records import (
    BeginTurn,
    FinishTurn,
    RecordToolCall,
    Session,
    ToolCall,
    Turn,
    TurnStatus,
    Usage,
    Write,
)
from ragmem.store.base import Applied
from ragmem.text import clean

Recorder = Callable[[Sequence[Write]], Awaitable[Applied | None]]
"""Writes to the store; None when it is away, and then keeps the writes for later."""


class TurnRecording:
    """The turn in flight, `turn`, and the writes that make it last."""

    def __init__(
        self, session: Session, turn: Turn, record: Recorder, *, clock: Callable[[], datetime]
    ) -> None:
        self.turn = turn
        self.recorded = False
        """Whether the turn is in the store."""
        self._session = session
        self._record = record
        self._clock = clock

    async def begin(self, *, next_index: int) -> None:
        """Write the turn; `next_index` stands in for the store's word while it is away."""
        turn = self.turn
        applied = await self._record(
            [
                BeginTurn(
                    turn_id=turn.turn_id,
                    session_id=turn.session_id,
                    user_message=turn.user_message,
                    started_at=turn.started_at,
                    model=turn.model,
                    owner_id=turn.owner_id,
                )
            ]
        )
        self.recorded = applied is not None
        index = applied.turn_indexes[turn.turn_id] if applied else next_index
        self.turn = msgspec.structs.replace(turn, turn_index=index)

    async def call(self, call: ToolCall) -> None:
        """Write a call that starts (its result is empty) or has finished."""
        call = msgspec.structs.replace(
            call,
            arguments=clean(call.arguments),
            result=clean(call.result),
            error=call.error and clean(call.error),
            preamble=clean(call.preamble),
        )
        others = tuple(c for c in self.turn.tool_calls if c.tool_call_id != call.tool_call_id)
        calls = tuple(sorted((*others, call), key=lambda c: c.order))
        self.turn = msgspec.structs.replace(self.turn, tool_calls=calls)
        await self._record(
            [
                RecordToolCall(
                    session_id=self.turn.session_id,
                    call=call,
                    accesses=tuple(
                        extract_accessed_files(
                            call, turn_index=self.turn.turn_index, locate=self._locate
                        )
                    ),
                )
            ]
        )

    async def finish(
        self, status: TurnStatus, text: str, *, reasoning: str = "", usage: Usage | None = None
    ) -> None:
        """Write how it ended."""
        self.turn = msgspec.structs.replace(
            self.turn,
            status=status,
            assistant_message=clean(text),
            reasoning=clean(reasoning) or None,
            usage=usage or Usage(),
            finished_at=self._clock(),
        )
        turn = self.turn
        applied = await self._record(
            [
                FinishTurn(
                    turn_id=turn.turn_id,
                    session_id=turn.session_id,
                    status=status,
                    assistant_message=turn.assistant_message,
                    reasoning=turn.reasoning,
                    model=turn.model,
                    usage=turn.usage,
                    finished_at=self._clock(),
                )
            ]
        )
        self.recorded = applied is not None

    def _locate(self, path: str) -> str:
        cwd = Path(self._session.cwd)
        return stored_path(path, cwd=cwd, project=Path(self._session.project_path or cwd))

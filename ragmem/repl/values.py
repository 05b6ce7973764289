"""What can follow a slash command: sessions, models, how long to think."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import get_args

from ragmem.errors import RagmemError
from ragmem.ids import short_id
from ragmem.llm.base import Effort
from ragmem.repl.choices import models_of, when
from ragmem.repl.session import ChatSession, sessions_here
from ragmem.text import counted

Value = tuple[str, str]
"""What is typed, and what it is."""
_EFFORTS = {
    "none": "answers at once",
    "low": "thinks a little",
    "medium": "thinks for a while",
    "high": "thinks for long",
}


class Values:
    """Keeps what can follow the commands, read in the background when it is first asked for."""

    def __init__(self, chat: ChatSession, on_read: Callable[[], None]) -> None:
        self._chat = chat
        self._on_read = on_read
        self._loop = asyncio.get_running_loop()
        self._kept: dict[str, Sequence[Value]] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._ways: dict[str, Callable[[], Awaitable[Sequence[Value]]]] = {
            "resume": self._sessions,
            "model": self._models,
        }

    def of(self, command: str) -> Sequence[Value] | None:
        """Return what is known now; None for a command that takes anything. In any thread."""
        if command == "effort":
            return [(level, _EFFORTS[level]) for level in get_args(Effort)]
        if command not in self._ways:
            return None
        if command not in self._kept:
            self._loop.call_soon_threadsafe(self._begin, command)
        return self._kept.get(command, ())

    def forget(self) -> None:
        """Read anew what is asked for next."""
        self._kept.clear()

    def _begin(self, command: str) -> None:
        if command not in self._reading and command not in self._kept:
            self._reading[command] = asyncio.create_task(self._read(command))

    async def _read(self, command: str) -> None:
        found: Sequence[Value] = ()
        try:
            with suppress(RagmemError):
                found = await self._ways[command]()
        finally:
            del self._reading[command]
        self._kept[command] = found
        self._on_read()

    async def _sessions(self) -> list[Value]:
        now = datetime.now(UTC)
        return [
            (
                short_id(each.session_id),
                f"{each.called} · {counted(each.turn_count, 'turn')}"
                f" · {when(each.last_activity_at, now)}",
            )
            for each in await sessions_here(self._chat.app)
        ]

    async def _models(self) -> list[Value]:
        return await asyncio.to_thread(models_of, self._chat.app)

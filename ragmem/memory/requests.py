"""What each request held, as it was sent: its sections, their sizes, what was recalled and why.

A private file of this machine beside the data, a line a turn, the newest of them; no store has it.
What was recalled is named by its id alone; a session's lines go with the session.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from ragmem.errors import StoreUnavailable
from ragmem.files import append_line, lock, replace_private
from ragmem.memory.context import Context
from ragmem.redact import redact
from ragmem.text import one_line

FILE = "requests.jsonl"
_LARGEST_BYTES = 8_000_000
"""Then the older half of it goes."""
_PATIENCE_S = 0.5
_WORDS = 80


class SentItem(msgspec.Struct, frozen=True, array_like=True):
    """One thing in a section."""

    record_id: str
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
        """The same by names, every text on a line as `line` makes one."""
        return {
            "most": self.max_chars,
            "fallback": self.fallback,
            "sections": [
                {
                    "name": line(section.name),
                    "chars": section.chars,
                    "budget": section.budget,
                    "dropped": section.dropped,
                    "items": [
                        {
                            "id": item.record_id,
                            "chars": item.chars,
                            "why": line(item.why),
                            "score": item.score,
                        }
                        for item in section.items
                    ],
                }
                for section in self.sections
            ],
        }


def sent(turn_id: str, session_id: str, at: datetime, context: Context) -> SentRequest:
    """What is kept of a request."""
    return SentRequest(
        turn_id=turn_id,
        session_id=session_id,
        at=at,
        max_chars=context.max_chars,
        fallback=context.fallback,
        sections=tuple(
            SentSection(
                section.name,
                section.chars,
                section.budget,
                section.dropped,
                tuple(
                    SentItem(
                        item.record_id, item.chars, one_line(redact(item.why), _WORDS), item.score
                    )
                    for item in section.items
                ),
            )
            for section in context.sections
        ),
    )


class RequestLog:
    """The file in the folder of the data; see the module's text."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._keeping: set[asyncio.Future[None]] = set()

    def keep(self, request: SentRequest) -> None:
        """Add a request, beside the event loop; one that can't be kept is left out."""
        task = asyncio.get_running_loop().run_in_executor(None, self._add, request)
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def aclose(self) -> None:
        """Wait for what is being kept."""
        await asyncio.gather(*self._keeping)

    def known(self) -> dict[str, SentRequest]:
        """Those that are kept, by the id of their turn: of each the last."""
        return {each.turn_id: each for each in self._lines()}

    def forget(self, session_id: str) -> None:
        """Remove what a session has here. OSError, StoreUnavailable."""
        if not self._file.exists():
            return
        handle = lock(self._file, timeout_s=_PATIENCE_S)
        try:
            self._replace([each for each in self._lines() if each.session_id != session_id])
        finally:
            os.close(handle)

    def _add(self, request: SentRequest) -> None:
        with suppress(OSError, StoreUnavailable):
            handle = lock(self._file, timeout_s=_PATIENCE_S)
            try:
                if append_line(handle, msgspec.json.encode(request)) > _LARGEST_BYTES:
                    lines = list(self._lines())
                    self._replace(lines[len(lines) // 2 :])
            finally:
                os.close(handle)

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

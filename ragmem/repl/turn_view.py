"""One turn as it is seen: what is printed for good, and what is live above the prompt."""

import time
from collections.abc import Callable

from rich.console import RenderableType
from rich.text import Text

from ragmem.events import (
    ContextBuilt,
    Event,
    MemoryWritten,
    ModelCallStarted,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from ragmem.repl.markdown import answer
from ragmem.repl.markdown_stream import MarkdownStream
from ragmem.repl.page import Kind
from ragmem.repl.render import (
    closing,
    memory_written,
    notice,
    tool_result,
    tool_title,
    wrap,
)
from ragmem.repl.terminal import Line
from ragmem.text import duration, one_line, visible

Part = tuple[Kind, RenderableType]
"""Something to print and its kind; a blank line goes between parts of different kinds."""


class TurnView:
    """Feed it a turn's events; print what comes back."""

    _waiting = "waiting for the model"

    def __init__(
        self, *, shows_live: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._started = clock()
        self._shows_live = shows_live
        self._stream = MarkdownStream()
        self._tools: dict[str, ToolStarted] = {}
        self._last_titled = ""
        self._thought = 0
        self._answering = False
        self._seen: set[str] = set()
        self.context_chars: int | None = None
        """Of the request, once it is built."""

    def show(self, event: Event, width: int) -> list[Part]:
        """What to print now."""
        match event:
            case TextDelta(text=text):
                self._thought, self._answering = 0, True
                return [("text", answer(block)) for block in self._stream.feed(text)]
            case ReasoningDelta(text=text):
                self._thought += len(text)
                return []
            case ContextBuilt(sections=sections):
                self.context_chars = sum(sections.values())
                return []
            case ModelCallStarted():
                self._thought, self._answering = 0, False
                return self._rest()
            case ToolStarted():
                self._tools[event.tool_call_id] = event
                if self._shows_live:
                    return self._rest()
                self._last_titled = event.tool_call_id
                return [*self._rest(), ("tool", tool_title(event.title, width))]
            case ToolFinished():
                return [*self._rest(), *self._finished(event, width)]
            case MemoryWritten():
                return [*self._rest(), ("tool", memory_written(event, width))]
            case Notice():
                return [*self._rest(), ("notice", notice(event, width))]
            case TurnFinished():
                return [*self._rest(), *self._cut_off(width), ("closing", closing(event, width))]
            case _:
                return []

    def was_asked(self, tool_name: str) -> None:
        """The person was shown what this tool is about to do: its diff is not shown again."""
        self._seen.add(tool_name)

    def _rest(self) -> list[Part]:
        rest = self._stream.finish()
        return [("text", answer(rest))] if rest.strip() else []

    def _finished(self, event: ToolFinished, width: int) -> list[Part]:
        started = self._tools.pop(event.tool_call_id, None)
        title = started.title if started else event.name
        brief = event.success and event.name in self._seen
        self._seen.discard(event.name)
        parts: list[Part] = []
        if self._shows_live or self._last_titled != event.tool_call_id:
            parts.append(("tool", tool_title(title, width, success=not event.failed)))
        return [*parts, ("tool", tool_result(event, width, brief=brief))]

    def _cut_off(self, width: int) -> list[Part]:
        """The calls that the turn's end has stopped."""
        parts: list[Part] = []
        for tool_call_id, call in self._tools.items():
            if self._shows_live or self._last_titled != tool_call_id:
                parts.append(("tool", tool_title(call.title, width, success=False)))
            parts.append(("tool", Text("  ⎿ stopped", style="red")))
        self._tools.clear()
        return parts

    def live(self, columns: int, rows: int) -> list[Line]:
        """The open block's end, what runs, and how long it has taken."""
        below: list[Line] = [
            (("tool", "● "), ("", one_line(call.title, max(1, columns - 2))))
            for call in list(self._tools.values())[: max(1, rows - 2)]
        ]
        below.append((("dim", self._status(columns)),))
        room = rows - len(below) - 2
        tail = self._stream.tail.strip("\n")
        if not tail or room < 1:
            return [(), *below][-rows:]
        # Only the end can be seen: what is longer than all rows need not be wrapped.
        end = visible(tail[-columns * room :])
        return [(), *((("", row),) for row in wrap(end, columns)[-room:]), (), *below]

    def _status(self, columns: int) -> str:
        if self._tools:
            doing = "working"
        elif self._thought:
            doing = f"thinking ({self._thought:,} characters)"
        else:
            doing = "answering" if self._answering else self._waiting
        seconds = int(self._clock() - self._started)
        return one_line(f"{doing} · {duration(seconds * 1000)} · Esc stops", columns)

"""What `ask` tells the person on stderr while the answer is on its way."""

import sys
from shutil import get_terminal_size

from ragmem.cli.streams import say
from ragmem.events import (
    Event,
    MemoryWritten,
    ModelCallStarted,
    Notice,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from ragmem.ids import short_id
from ragmem.text import clip_to_width, display_width, duration, one_line, visible

_WAITING = "waiting for the model …"


class Progress:
    """Tools, notices and a closing line on stderr; on a pipe what went wrong or was remembered."""

    def __init__(self, *, live: bool, color: bool) -> None:
        self._live = live
        self._dim, self._plain = ("\x1b[2m", "\x1b[0m") if color else ("", "")
        self._titles: dict[str, str] = {}
        self._passing = 0
        """Columns of the line that the next one replaces."""

    def show(self, event: Event) -> None:
        """Say what the event means, if anything."""
        match event:
            case Notice(level=level, text=text):
                self._notice(level, text)
            case MemoryWritten():
                line = one_line(event.line, 400)
                columns = get_terminal_size().columns
                self._line(clip_to_width(line, columns - 1) if self._live else line)
            case TurnFinished():
                self._finished(event)
            case _ if self._live:
                self._running(event)

    def clear(self) -> None:
        """Take the passing line away, so that the answer starts on a clean one."""
        if self._passing:
            say("\r" + " " * self._passing + "\r")
            self._passing = 0

    def _running(self, event: Event) -> None:
        match event:
            case ModelCallStarted():
                self._pass(_WAITING)
            case TextDelta():
                self.clear()
            case ToolStarted():
                self._titles[event.tool_call_id] = event.title
                self._pass(f"{event.title} …")
            case ToolFinished():
                title = one_line(self._titles.pop(event.tool_call_id, event.name), 160)
                mark = "✗" if event.failed else "●"
                reason = ": " + one_line(event.display, 200) if event.failed else ""
                self._line(f"{mark} {title}{reason} ({duration(event.duration_ms)})")

    def _notice(self, level: str, text: str) -> None:
        if level != "info":
            self.clear()
            say(f"{level}: {one_line(text, 2000)}\n")
        elif self._live:
            self._line(one_line(text, 2000))

    def _finished(self, event: TurnFinished) -> None:
        self.clear()
        if event.subtype == "interrupted":
            say("interrupted\n")
        elif event.error:
            say(f"error: {visible(event.error)}\n")
            if event.hint:
                say(f"{visible(event.hint)}\n")
        if self._live:
            self._line(closing_line(event))

    def _pass(self, text: str) -> None:
        self.clear()
        text = clip_to_width(one_line(text, 400), get_terminal_size().columns - 1)
        self._passing = display_width(text)
        say(self._dim + text + self._plain)

    def _line(self, text: str) -> None:
        self.clear()
        say(f"{self._dim}{text}{self._plain}\n")


def closing_line(finished: TurnFinished) -> str:
    """Session, model and what it took, on one line."""
    usage = finished.usage
    parts = [f"session {short_id(finished.session_id)}", one_line(finished.model, 80)]
    if usage.input_tokens is not None and usage.output_tokens is not None:
        parts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
    if usage.cost_usd is not None:
        parts.append(f"${usage.cost_usd:.4f}")
    parts.append(duration(finished.duration_ms))
    return " · ".join(parts)


def wants_color(setting: str, *, no_color: bool, dumb: bool) -> bool:
    """Whether stderr gets colour: the setting, else a terminal without NO_COLOR."""
    if setting != "auto":
        return setting == "always"
    return sys.stderr.isatty() and not no_color and not dumb

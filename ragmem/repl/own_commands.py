"""`!command`: run from within a chat, shown whole, and known to the agent from then on."""

from rich.console import Group
from rich.text import Text

from ragmem.events import Event, Notice, ToolFinished, ToolStarted, TurnFinished
from ragmem.repl.page import Page
from ragmem.repl.render import closing, failure, gutter, notice
from ragmem.repl.turn_view import Part, TurnView
from ragmem.text import counted, duration, visible

COMMAND_KEY = ("!command", "runs it; the agent sees with your next prompt what it printed")
_FIRST, _LAST = 60, 140
"""Rows of what it printed that are shown; the model is given more, and a file has all of it."""


def is_own_command(text: str) -> bool:
    """Whether a prompt is a `!command`; an image of Markdown is none, nor what a blank leads."""
    return text.startswith("!") and not text.startswith("![")


def own_command(text: str, page: Page) -> str:
    """What is to be run; empty where that is nothing, or several lines, which is told."""
    command = text[1:].strip()
    if not command:
        page.show(failure("Run what?", "! followed by a command.", page.width))
    elif "\n" in command:
        # What is pasted behind a `!` must not run line by line.
        hint = "Join lines with && or ;. A blank before the ! sends it to the agent."
        page.show(failure("A command is one line: nothing was run.", hint, page.width))
        return ""
    return command


class CommandView(TurnView):
    """The turn of a command: what it printed, and how it ended."""

    _waiting = "working"
    _told = False

    def show(self, event: Event, width: int) -> list[Part]:
        """What to print now."""
        match event:
            case ToolStarted():
                self._tools[event.tool_call_id] = event
                return []
            case ToolFinished():
                self._tools.pop(event.tool_call_id, None)
                self._told = True
                return [("closing", _printed(event, width))]
            case Notice():
                return [("notice", notice(event, width))]
            case TurnFinished() if event.is_error and not self._told:
                return [("closing", closing(event, width))]
            case _:
                return []


def _printed(event: ToolFinished, width: int) -> Group:
    """Behind a margin, so that it can't pass for something else; long ones without their middle."""
    head, *lines = visible(event.text).rstrip("\n").split("\n")
    if len(lines) > _FIRST + _LAST:
        left_out = f"… {counted(len(lines) - _FIRST - _LAST, 'more line')} …"
        lines = [*lines[:_FIRST], left_out, *lines[-_LAST:]]
    said = f"{head} ({duration(event.duration_ms)})"
    style = "red" if event.failed else "dim"
    printed = gutter("\n".join(lines), width, mark="  ") if lines else Text("")
    return Group(
        *([printed] if lines else []),
        gutter(said, width, mark="  ⎿ ", style=style, words=True),
    )

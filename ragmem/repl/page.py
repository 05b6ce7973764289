"""What has been said: printed once, above the prompt, for good."""

from typing import Literal

from rich.console import RenderableType

from ragmem.events import Notice
from ragmem.repl import early
from ragmem.repl.render import Ink, notice, paint, prompt_echo
from ragmem.repl.terminal import Question, Terminal

Kind = Literal["prompt", "text", "tool", "notice", "closing", "note"]
_TOGETHER = {"tool", "notice"}


class Page:
    """Prints renderables; a blank line goes between those of different kinds."""

    def __init__(self, terminal: Terminal, *, ink: Ink) -> None:
        self._terminal = terminal
        self._ink = ink
        self._last: Kind | None = None

    @property
    def width(self) -> int:
        """In cells, now."""
        return self._terminal.columns

    def show(self, what: RenderableType, kind: Kind = "note") -> None:
        """Print."""
        follows = kind in _TOGETHER and kind == self._last
        closes = kind == "closing" and self._last != "prompt"
        gap = "" if follows or closes or self._last is None else "\n"
        self._last = kind
        self._terminal.write(gap + paint(what, width=self.width, ink=self._ink))

    def say(self, text: str, level: Literal["info", "warning", "error"] = "info") -> None:
        """Print a notice."""
        self.show(notice(Notice(level=level, text=text), self.width), "notice")

    def prompt(self, shown: str) -> None:
        """Print what the person has sent."""
        self.show(prompt_echo(shown, early.prompt(), self.width), "prompt")

    async def ask(self, question: Question) -> str | None:
        """See `Terminal.ask`."""
        return await self._terminal.ask(question)

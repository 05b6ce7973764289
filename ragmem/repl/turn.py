"""One turn as it is seen: what is printed for good, what is live meanwhile, what is asked."""

import re
import time
from collections.abc import Callable

from rich.console import Group, RenderableType
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
from ragmem.repl.output import (
    ChatOutput,
    Kind,
    answer,
    closing,
    command_result,
    diff,
    gutter,
    memory_row,
    notice,
    tool_result,
    tool_title,
    wrap,
)
from ragmem.repl.terminal import ChatQuestion, Line
from ragmem.text import duration, one_line, reveal, visible
from ragmem.tools.base import Decision, Proposal

Part = tuple[Kind, RenderableType]

_FENCE = re.compile(
    r"(?P<indent>\s*)(?P<list>(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)(?P<mark>`{3,}|~{3,})"
)
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_MOST_PIECES = 256
_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_LABELS = {"diff": "Allow this change?", "command": "Allow this command?", "path": "Allow this?"}
_REFUSED = "the person refused"


class TurnView:
    """Turns a turn's events into what is printed, and into what is live meanwhile."""

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

    def show(self, event: Event) -> list[Part]:
        """Return what to print now."""
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
                parts: list[Part] = []
            case ToolStarted():
                self._tools[event.tool_call_id] = event
                parts = [] if self._shows_live else [("tool", tool_title(event.title))]
                self._last_titled = event.tool_call_id
            case ToolFinished():
                parts = self._finished(event)
            case MemoryWritten():
                parts = [("tool", memory_row(event.line))]
            case Notice():
                parts = [("notice", notice(event))]
            case TurnFinished():
                parts = [*self._cut_off(), ("closing", closing(event))]
            case _:
                return []
        rest = self._stream.finish()
        return [("text", answer(rest)), *parts] if rest.strip() else parts

    def was_asked(self, tool_name: str) -> None:
        """Show the next diff of this tool no more: the person was shown what it is about to do."""
        self._seen.add(tool_name)

    def _titled(self, call: ToolStarted | ToolFinished, title: str, *, success: bool) -> list[Part]:
        """Name a call, unless its name is the last thing that was printed."""
        if not self._shows_live and self._last_titled == call.tool_call_id:
            return []
        return [("tool", tool_title(title, success=success))]

    def _finished(self, event: ToolFinished) -> list[Part]:
        started = self._tools.pop(event.tool_call_id, None)
        title = started.title if started else event.name
        brief = event.success and event.name in self._seen
        self._seen.discard(event.name)
        named = self._titled(event, title, success=not event.failed)
        return [*named, ("tool", tool_result(event, brief=brief))]

    def _cut_off(self) -> list[Part]:
        """Return the calls that the turn's end has stopped."""
        parts: list[Part] = []
        for call in self._tools.values():
            parts += self._titled(call, call.title, success=False)
            parts.append(("tool", Text("  ⎿ stopped", style="red")))
        self._tools.clear()
        return parts

    def live(self, columns: int, rows: int) -> list[Line]:
        """Return the open block's end, what runs, and how long it has taken."""
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


class CommandView(TurnView):
    """Shows the turn of a person's own command: what it printed, and how it ended."""

    _waiting = "working"
    _told = False

    def show(self, event: Event) -> list[Part]:
        """Return what to print now."""
        match event:
            case ToolStarted():
                self._tools[event.tool_call_id] = event
            case ToolFinished():
                self._tools.pop(event.tool_call_id, None)
                self._told = True
                return [("closing", command_result(event))]
            case Notice():
                return [("notice", notice(event))]
            case TurnFinished() if event.is_error and not self._told:
                return [("closing", closing(event))]
        return []


class MarkdownStream:
    """Cuts streamed text, in any pieces, into blocks of Markdown as they close.

    Blocks and `tail` together are always exactly what was fed. A block closes
    at a blank line that a line without indentation follows, after a heading,
    and around a code fence; never inside of a fence.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial: list[str] = []
        self._fence, self._nested, self._gap = "", False, False

    @property
    def tail(self) -> str:
        """Return what belongs to no closed block yet."""
        return "".join(self._lines) + "".join(self._partial)

    def feed(self, text: str) -> list[str]:
        """Take more text and return the blocks that it closes."""
        blocks: list[str] = []
        *lines, rest = text.split("\n")
        for line in lines:
            self._partial.append(line)
            whole = "".join(self._partial) + "\n"
            self._partial.clear()
            self._take(whole, blocks)
        if rest:
            self._partial.append(rest)
            if len(self._partial) > _MOST_PIECES:
                self._partial = ["".join(self._partial)]
            if self._gap and not self._partial[0][0].isspace():
                self._close(blocks)
        return blocks

    def finish(self) -> str:
        """Return the rest, when nothing more will come."""
        rest = self.tail
        self._lines, self._partial = [], []
        self._fence, self._nested, self._gap = "", False, False
        return rest

    def _take(self, line: str, blocks: list[str]) -> None:
        if self._fence:
            self._lines.append(line)
            if self._ends_fence(line):
                self._fence = ""
                if not self._nested:
                    self._close(blocks)
            return
        if not line.strip():
            self._lines.append(line)
            # Blank lines before a block's first line are part of it.
            self._gap = any(kept.strip() for kept in self._lines)
            return
        if self._gap and not line[0].isspace():
            self._close(blocks)
        self._gap = False
        if _HEADING.match(line):
            self._close(blocks)
            self._lines.append(line)
            self._close(blocks)
            return
        if opened := self._fence_of(line):
            self._fence = opened["mark"]
            self._nested = bool(opened["indent"] or opened["list"])
            if not self._nested:
                self._close(blocks)
        self._lines.append(line)

    def _fence_of(self, line: str) -> re.Match[str] | None:
        found = _FENCE.match(line)
        if not found or (found["mark"][0] == "`" and "`" in line[found.end() :]):
            return None
        in_list = found["list"] or (self._lines and _LIST_ITEM.match(self._first_line()))
        # Four spaces outside of a list are code already, not a fence.
        return found if in_list or len(found["indent"].expandtabs(4)) < 4 else None

    def _first_line(self) -> str:
        return next((line for line in self._lines if line.strip()), "")

    def _ends_fence(self, line: str) -> bool:
        mark = line.strip()
        if set(mark) != {self._fence[0]} or len(mark) < len(self._fence):
            return False
        indent = line[: len(line) - len(line.lstrip())].expandtabs(4)
        return self._nested or len(indent) < 4

    def _close(self, blocks: list[str]) -> None:
        if any(line.strip() for line in self._lines):
            blocks.append("".join(self._lines))
            self._lines = []
        self._gap = False


class Approvals:
    """The chat's approver: shows the proposal, waits for y, n, a or a reason."""

    def __init__(
        self, output: ChatOutput, on_asked: Callable[[Proposal], None], stop: Callable[[], object]
    ) -> None:
        self._output = output
        self._on_asked = on_asked
        self._stop = stop

    async def __call__(self, proposal: Proposal) -> Decision:
        """Ask; Ctrl-C, Esc and Ctrl-D deny, and stop the turn as they do elsewhere."""
        self._output.show(proposal_text(proposal))
        self._on_asked(proposal)
        decision = await self._decide(proposal)
        self._output.show(_outcome(decision, proposal), "closing")
        return decision

    async def _decide(self, proposal: Proposal) -> Decision:
        always = [("a", f"always: {proposal.always}")] if proposal.always else []
        choices = (("y", "yes"), ("n", "no"), *always, ("r", "reason"))
        answer = await self._output.ask(ChatQuestion(_LABELS[proposal.kind], choices))
        if answer in ("y", "a"):
            return Decision(True, remember=answer == "a")
        reason: str | None = ""
        if answer == "r":
            reason = await self._output.ask(ChatQuestion("Why not? The agent is told:"))
        if answer is None or reason is None:
            self._stop()
        return Decision(False, reason=(reason or "").strip() or _REFUSED)


def proposal_text(proposal: Proposal) -> RenderableType:
    """Return all of what is proposed: nothing is shortened, no character is hidden.

    Each row stands behind a margin, so that the content can't pass for ours.
    """
    body = reveal(proposal.body)
    lines = body.split("\n")
    size = f"{len(body):,} characters" + (f", {len(lines):,} lines" if len(lines) > 1 else "")
    is_diff = proposal.kind == "diff"
    return Group(
        gutter(reveal(proposal.title), mark="? ", style="bold yellow"),
        diff(lines, mark="│ ") if is_diff else gutter(body, mark="│ ", rest="│ "),
        Text(f"  {size}", style="dim"),
        *(gutter(reveal(each), mark="! ", style="bold yellow") for each in proposal.warnings),
    )


def _outcome(decision: Decision, proposal: Proposal) -> Text:
    if decision.allowed:
        always = f", always: {proposal.always}" if decision.remember else ""
        return Text(f"  allowed{always}", style="green")
    said = "" if decision.reason == _REFUSED else f": {reveal(decision.reason)}"
    return Text(f"  denied{said}", style="red")

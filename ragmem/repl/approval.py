"""Asking the person before something is done."""

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.text import Text

from ragmem.repl.page import Page
from ragmem.repl.render import diff, gutter
from ragmem.repl.terminal import Question
from ragmem.text import reveal
from ragmem.tools.base import Decision, Proposal

_LABELS = {"diff": "Allow this change?", "command": "Allow this command?", "path": "Allow this?"}
_ALWAYS = {"diff": "always, all edits", "command": "always, this one", "path": "always, this one"}
_REFUSED = "the person refused"


def proposal_text(proposal: Proposal, width: int) -> RenderableType:
    """All of what is proposed: nothing is shortened, no character is hidden.

    Each row stands behind a margin, so that the content can't pass for ours.
    """
    body = reveal(proposal.body)
    lines = body.split("\n")
    size = f"{len(body):,} characters"
    if len(lines) > 1:
        size += f", {len(lines):,} lines"
    parts: list[RenderableType] = [
        gutter(reveal(proposal.title), width, mark="? ", style="bold yellow"),
        diff(lines, width, mark="│ ")
        if proposal.kind == "diff"
        else gutter(body, width, mark="│ ", rest="│ "),
        Text(f"  {size}", style="dim"),
    ]
    parts += [
        gutter(reveal(warning), width, mark="! ", style="bold yellow")
        for warning in proposal.warnings
    ]
    return Group(*parts)


class Approvals:
    """The chat's approver: shows the proposal, waits for y, n, a or a reason."""

    def __init__(self, page: Page, on_asked: Callable[[Proposal], None]) -> None:
        self._page = page
        self._on_asked = on_asked

    async def __call__(self, proposal: Proposal) -> Decision:
        """Ctrl-C, Esc and Ctrl-D deny."""
        self._page.show(proposal_text(proposal, self._page.width))
        self._on_asked(proposal)
        decision = await self._decide(proposal)
        self._page.show(_outcome(decision), "closing")
        return decision

    async def _decide(self, proposal: Proposal) -> Decision:
        always = _ALWAYS[proposal.kind]
        choices = (("y", "yes"), ("n", "no"), ("a", always), ("r", "reason"))
        match await self._page.ask(Question(_LABELS[proposal.kind], choices)):
            case "y":
                return Decision(True)
            case "a":
                return Decision(True, remember=True)
            case "r":
                reason = await self._page.ask(Question("Why not? The agent is told:"))
                return Decision(False, reason=(reason or "").strip() or _REFUSED)
            case _:
                return Decision(False, reason=_REFUSED)


def _outcome(decision: Decision) -> Text:
    if decision.allowed:
        return Text("  allowed, always" if decision.remember else "  allowed", style="green")
    said = "" if decision.reason == _REFUSED else f": {reveal(decision.reason)}"
    return Text(f"  denied{said}", style="red")

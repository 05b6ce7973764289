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

    def __init__(
        self, page: Page, on_asked: Callable[[Proposal], None], stop: Callable[[], object]
    ) -> None:
        self._page = page
        self._on_asked = on_asked
        self._stop = stop

    async def __call__(self, proposal: Proposal) -> Decision:
        """Ctrl-C, Esc and Ctrl-D deny, and stop the turn as they do elsewhere."""
        self._page.show(proposal_text(proposal, self._page.width))
        self._on_asked(proposal)
        decision = await self._decide(proposal)
        self._page.show(_outcome(decision, proposal), "closing")
        return decision

    async def _decide(self, proposal: Proposal) -> Decision:
        always = [("a", f"always: {proposal.always}")] if proposal.always else []
        choices = (("y", "yes"), ("n", "no"), *always, ("r", "reason"))
        answer = await self._page.ask(Question(_LABELS[proposal.kind], choices))
        if answer in ("y", "a"):
            return Decision(True, remember=answer == "a")
        reason: str | None = ""
        if answer == "r":
            reason = await self._page.ask(Question("Why not? The agent is told:"))
        if answer is None or reason is None:
            self._stop()
        return Decision(False, reason=(reason or "").strip() or _REFUSED)


def _outcome(decision: Decision, proposal: Proposal) -> Text:
    if decision.allowed:
        always = f", always: {proposal.always}" if decision.remember else ""
        return Text(f"  allowed{always}", style="green")
    said = "" if decision.reason == _REFUSED else f": {reveal(decision.reason)}"
    return Text(f"  denied{said}", style="red")

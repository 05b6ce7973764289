"""Asking the person before a tool acts, for `ask` on a terminal."""

from ragmem.cli.choice import ask_line
from ragmem.cli.progress import Progress
from ragmem.cli.streams import say
from ragmem.text import reveal
from ragmem.tools.base import Approver, Decision, Proposal


def terminal_approver(progress: Progress) -> Approver:
    """Shows the whole of what would happen and takes y, n, or a reason against it."""

    async def approve(proposal: Proposal) -> Decision:
        progress.clear()
        say(proposal_text(proposal))
        always = f"[a]lways: {proposal.always}, " if proposal.always else ""
        question = f"Allow? [y]es, [n]o, {always}or say what to do instead: "
        while (decision := decide(await ask_line(question), proposal)) is None:
            continue
        return decision

    return approve


def proposal_text(proposal: Proposal) -> str:
    """The proposal in full, with every hidden character shown."""
    lines = [f"── {reveal(proposal.title)} ({len(proposal.body):,} characters)"]
    lines += [f"warning: {reveal(warning)}" for warning in proposal.warnings]
    return "\n".join([*lines, reveal(proposal.body).rstrip("\n"), ""])


def decide(answer: str, proposal: Proposal) -> Decision | None:
    """What an answer means: anything but a yes is a no, and its words are the reason.

    None for an "always" where that is not offered.
    """
    match answer.strip().casefold():
        case "y" | "yes":
            return Decision(True)
        case "a" | "always":
            return Decision(True, remember=True) if proposal.always else None
        case "" | "n" | "no":
            return Decision(False, reason="the person said no")
    return Decision(False, reason=answer.strip())

"""What the background learns while an answer is made, or between two, as the person sees it."""

from collections.abc import Iterable

from ragmem.agent.agent import Agent
from ragmem.memory.facts.values import Remembered


def shown(remembered: Remembered, agents: Iterable[Agent]) -> list[str]:
    """Tell it among the events of an answer that is being made; else the lines of a notice.

    What a tool or the person wrote is shown where that was done.
    """
    from ragmem.tools.memory import written_event

    event = written_event(remembered)
    if event is None or not remembered.memory or remembered.memory.source != "conversation":
        return []
    return [] if any(agent.tell(event) for agent in agents) else [event.line]

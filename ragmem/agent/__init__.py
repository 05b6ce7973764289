"""The agent's loop: build the context, stream, run tools, append, repeat."""

from ragmem.agent.agent import Agent, Reply
from ragmem.agent.turn import Dependencies, Limits

__all__ = ["Agent", "Dependencies", "Limits", "Reply"]

"""The agent's loop: build the context, stream, run tools, append, repeat."""

from ragmem.agent.agent import Agent, Reply
from ragmem.agent.desk import Desk, Limits

__all__ = ["Agent", "Desk", "Limits", "Reply"]

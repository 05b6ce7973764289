"""The context: a value made of sections with budgets, built once per turn."""

from ragmem.memory.context.builder import ContextBuilder, context_max_chars
from ragmem.memory.context.values import (
    STRATEGIES,
    CodePassage,
    Context,
    ContextItem,
    ContextRequest,
    ContextSection,
    Counts,
    FindCode,
    Material,
    Place,
    SessionRecap,
    Strategy,
)

__all__ = [
    "STRATEGIES",
    "CodePassage",
    "Context",
    "ContextBuilder",
    "ContextItem",
    "ContextRequest",
    "ContextSection",
    "Counts",
    "FindCode",
    "Material",
    "Place",
    "SessionRecap",
    "Strategy",
    "context_max_chars",
]

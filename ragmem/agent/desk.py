"""What an agent works with, and where its turns stop by themselves."""

from collections.abc import Callable, Sequence

import msgspec

from ragmem.llm.base import LLM
from ragmem.memory.context import ContextBuilder, FindCode, Place
from ragmem.memory.memory import Memory
from ragmem.records import Project
from ragmem.tools.base import Toolset
from ragmem.tools.changed_files import ChangedFiles


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Where a turn stops by itself."""

    max_iterations: int = 25
    """Model calls; then one more without tools."""
    max_budget_usd: float | None = None


class Dependencies(msgspec.Struct, frozen=True, kw_only=True):
    """All that an agent works with; put together by `ragmem.app`."""

    llm: LLM
    memory: Memory
    toolset: Toolset
    builder: ContextBuilder
    place: Place
    find_code: FindCode | None = None
    """Looks through the project's code; None where that is not indexed."""
    project: Project
    limits: Limits = Limits()
    offers_tools: bool = True
    """False: the model is told of no tools; mentions are still read."""
    notices: Callable[[], Sequence[str]] = tuple
    """What is to be said once, such as that the store is away; asked between the turn's steps."""
    at_start: Callable[[], None] = lambda: None
    """Called when a turn begins, for what it needs a little later."""
    changed: ChangedFiles | None = None
    """Knows which files are other than the agent has read them."""

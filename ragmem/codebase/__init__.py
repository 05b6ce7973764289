"""The code of the projects that this process works in, as the agent knows it."""

from ragmem.codebase.at_hand import CodeAtHand
from ragmem.codebase.codebase import Codebase

__all__ = ["CodeAtHand", "Codebase"]

"""What a session file of another agent becomes, and what of it does not."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from ragmem.records import Project, Write

AgentName = Literal["claude-code", "codex"]
State = Literal["new", "grown", "unchanged", "other_folder", "empty", "refused"]
"""What a session file was found to be; `other_folder`: the person asked for those of one."""


class Tally:
    """What was not taken over, by its kind; of one file, or of all."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        """Known, and no part of the conversation, in words."""
        self.unknown: Counter[str] = Counter()
        """Records of kinds that a newer version of the agent may have, by their names."""
        self.broken: Counter[str] = Counter()
        """Lines that can't be read, by the reason."""

    def add(self, other: "Tally") -> None:
        """Count up another one's."""
        self.left_out += other.left_out
        self.unknown += other.unknown
        self.broken += other.broken


class FileFacts(msgspec.Struct, kw_only=True):
    """What is known of a session so far; it grows while its file is read."""

    foreign_id: str
    """The agent's own id of it."""
    cwd: str = ""
    title: str = ""
    started_at: datetime | None = None
    last_at: datetime
    """Of the newest record; before the first one, of the file."""
    forked_from: str = ""
    """The agent's id of the session whose turns this one begins with."""
    subagent: bool = False
    """It was held by an agent that another one had sent, not by a person."""


class FoundFile(msgspec.Struct, frozen=True):
    """A file that may hold a session."""

    file: Path
    size: int
    changed_at: datetime


class ForeignFolder(msgspec.Struct, frozen=True):
    """A session's folder, as this memory knows it."""

    cwd: str
    project: Project
    is_new: bool
    """Whether the project is to be registered first."""
    stored_path: Callable[[str], str]
    """A path that a tool was given, in the form in which it is stored."""


class Rules(msgspec.Struct, frozen=True):
    """What the layers above know, for whoever stores."""

    locate: Callable[[str], ForeignFolder]
    redacted: Callable[[Write], Write]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one file."""

    state: State
    session_id: str = ""
    title: str = ""
    cwd: str = ""
    turns_added: int = 0
    turns_changed: int = 0
    """That were not complete the last time."""
    turns_known: int = 0
    tool_calls_added: int = 0
    reason: str = ""
    """Why it was refused: by the store, or by the disk that it is read from."""

"""Which files this session has read, and as what: an edit of anything else is refused (X35)."""

import json
from collections.abc import Iterable
from itertools import islice

from ragmem.records import ToolCall

_TOOLS = {"read_file", "create_file", "write_file", "edit_file"}


class SeenFiles:
    """Path, as results record it, to the SHA-256 of what was read or written last."""

    def __init__(self) -> None:
        self._hashes: dict[str, str] = {}

    def note(self, path: str, sha256: str) -> None:
        """The agent has seen this content."""
        self._hashes.pop(path, None)
        self._hashes[path] = sha256

    def hash_of(self, path: str) -> str | None:
        """What was seen of a file; None if it was not."""
        return self._hashes.get(path)

    def latest(self, limit: int) -> list[tuple[str, str]]:
        """The last so many files with what was seen of them, the latest first."""
        return list(islice(reversed(self._hashes.items()), limit))

    def restore(self, calls: Iterable[ToolCall]) -> None:
        """Take up where a recorded session stopped; calls in the order they were made."""
        for call in calls:
            if not call.success or call.tool_name not in _TOOLS:
                continue
            try:
                result = json.loads(call.result)
            except (ValueError, RecursionError):
                continue
            if not isinstance(result, dict):
                continue
            path, sha256 = result.get("path"), result.get("sha256")
            if isinstance(path, str) and isinstance(sha256, str):
                self.note(path, sha256)

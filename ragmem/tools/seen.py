"""Which files this session has read, and as what: an edit of anything else is refused."""

import json
from collections.abc import Iterable
from itertools import islice

from ragmem.memory.files import EDITING_TOOLS
from ragmem.metrics import Metrics
from ragmem.records import ToolCall

_TOOLS = {"read_file", *EDITING_TOOLS}


class SeenFiles:
    """Path, as results record it, to the SHA-256 of what was read or written last."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics or Metrics()
        self._hashes: dict[str, str] = {}
        self._shown: dict[str, list[tuple[int, int]]] = {}
        """The lines of each that were read, as it stands now."""

    def read(self, path: str, sha256: str, first: int, last: int) -> None:
        """The agent reads these lines; it is counted whether it had them before, unchanged."""
        again = self._reads(path, sha256, first, last)
        self._metrics.count("files.reads")
        self._metrics.count("files.reads_again", again)

    def _reads(self, path: str, sha256: str, first: int, last: int) -> bool:
        self.note(path, sha256)
        shown = self._shown.setdefault(path, [])
        again = any(start <= first and last <= end for start, end in shown)
        shown.append((first, last))
        return again

    def note(self, path: str, sha256: str) -> None:
        """The agent has seen this content."""
        if self._hashes.pop(path, None) != sha256:
            self._shown.pop(path, None)
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
            if not (isinstance(path, str) and isinstance(sha256, str)):
                continue
            first, last = result.get("first_line"), result.get("last_line")
            if isinstance(first, int) and isinstance(last, int):
                self._reads(path, sha256, first, last)
            else:
                self.note(path, sha256)

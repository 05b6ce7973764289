"""The history of prompts: a private file, searched with Ctrl-R."""

import contextlib
import os
from pathlib import Path

from prompt_toolkit.history import FileHistory

from ragmem.redact import redact
from ragmem.text import clean

_KEPT_WHOLE = 20_000
_LOADED_BYTES = 4_000_000


class PromptHistory(FileHistory):
    """prompt-toolkit's file format, mode 0600. A file that can't be written costs no prompt."""

    def __init__(self, file: Path) -> None:
        self._file = file
        super().__init__(file)

    def remember(self, text: str, shown: str) -> None:
        """Keep a prompt; one with a huge paste is kept as it was shown."""
        kept = redact(clean(text if len(text) <= _KEPT_WHOLE else shown))
        if not self._loaded_strings or self._loaded_strings[0] != kept:
            self.append_string(kept)

    def load_history_strings(self) -> list[str]:
        """Newest first; nothing where there is no file or it can't be read."""
        try:
            with self._file.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - _LOADED_BYTES))
                lines = file.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return []
        prompts: list[list[str]] = [[]]
        for line in lines:
            if line.startswith("+"):
                prompts[-1].append(line[1:])
            elif prompts[-1]:
                prompts.append([])
        return ["\n".join(prompt) for prompt in reversed(prompts) if prompt]

    def store_string(self, string: str) -> None:
        """Append to the file."""
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._file, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
            os.chmod(self._file, 0o600)
            super().store_string(string)

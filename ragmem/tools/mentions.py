"""Files that a prompt names: `@path`, and plain names for models that can't look themselves."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

_AT_PATH = re.compile(r"(?<![\w@/.])@(\"[^\"\n]+\"|[^\s\"'`,;:!?()\[\]{}<>]+)")
_WORD = re.compile(r"[\w./\-]+")
MAX_MENTIONS = 10
"""More in one prompt are left to the agent's own reading."""


def at_paths(prompt: str) -> list[str]:
    """Each `@path` or `@"path with spaces"` once, in order; a sentence's full stop is cut."""
    found = (match.strip('"').rstrip(".") for match in _AT_PATH.findall(prompt))
    return list(dict.fromkeys(path for path in found if path))[:MAX_MENTIONS]


def named_files(prompt: str, files: Sequence[str]) -> list[str]:
    """Those of the project's files that the prompt names by path, or by a name that is unique."""
    by_name: dict[str, list[str]] = {}
    for file in files:
        by_name.setdefault(PurePosixPath(file).name.casefold(), []).append(file)
    known = set(files)
    found = []
    for word in dict.fromkeys(_WORD.findall(prompt)):
        path = word.removeprefix("./").rstrip("./-")
        named = by_name.get(path.casefold(), ())
        if path in known:
            found.append(path)
        elif len(named) == 1:
            found.append(named[0])
    return list(dict.fromkeys(found))[:MAX_MENTIONS]

"""Glob patterns on paths, in time linear in the path: `*`, `?`, `[a-z]`, `{a,b}` and `**`."""

from collections.abc import Callable
from fnmatch import fnmatchcase

from ragmem.tools.base import ToolFailure

_MAX_ALTERNATIVES = 64
_MAX_SEGMENTS = 64


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a relative path with `/` matches; without a slash the name alone has to."""
    pattern = pattern.removeprefix("./")
    if not pattern or len(pattern) > 1000:
        raise ToolFailure("The glob pattern is empty or too long. An example: **/*.py")
    alternatives = [one.split("/") for one in _expand(pattern)]
    if any(len(parts) > _MAX_SEGMENTS for parts in alternatives):
        raise ToolFailure("The glob pattern has too many parts.")

    def matches(path: str) -> bool:
        parts = path.split("/")
        return any(
            fnmatchcase(parts[-1], wanted[0]) if len(wanted) == 1 else _match(parts, wanted)
            for wanted in alternatives
        )

    return matches


def _match(parts: list[str], wanted: list[str]) -> bool:
    # reached[i]: the pattern so far matches the first i parts.
    reached = [True] + [False] * len(parts)
    for segment in wanted:
        if segment == "**":
            for i in range(1, len(reached)):
                reached[i] = reached[i] or reached[i - 1]
        else:
            reached = [False] + [
                reached[i] and fnmatchcase(part, segment) for i, part in enumerate(parts)
            ]
    return reached[-1]


def _expand(pattern: str) -> list[str]:
    """Each alternative of the braces; a brace that is not closed is a character."""
    waiting, done = [pattern], list[str]()
    while waiting:
        if len(waiting) + len(done) > _MAX_ALTERNATIVES:
            raise ToolFailure(f"The glob pattern has more than {_MAX_ALTERNATIVES} alternatives.")
        one = waiting.pop()
        opened = one.rfind("{")
        closed = one.find("}", opened)
        if opened < 0 or closed < 0:
            done.append(one)
            continue
        waiting += [
            one[:opened] + middle + one[closed + 1 :]
            for middle in one[opened + 1 : closed].split(",")
        ]
    return done

"""What a text names in backticks: it is about these as a function is about what it calls."""

import re

from ragmem.codeindex.cutting.source import Source

_QUOTED = re.compile(r"(`+)~?([^`\n]{1,120}?)\1(?!`)")
_PARTS = re.compile(r"::|[.#]")
_NAME = re.compile(r"[^\W\d]\w{2,99}\Z")
_MOST = 200


def mentions(source: Source, start: int, end: int) -> dict[str, None]:
    """Last names, each once: `validate` of `AuthService.validate(…)` in backticks."""
    found: dict[str, None] = {}
    text = "\n".join(source.lines[start:end])
    if "`" not in text:
        return found
    for quoted in _QUOTED.finditer(text):
        name = _PARTS.split(quoted[2].partition("(")[0].strip())[-1]
        if _NAME.match(name):
            found[name] = None
            if len(found) == _MOST:
                break
    return found

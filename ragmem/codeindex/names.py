"""What a text names as code is named: identifiers, and places (lines of a file, files, folders).

One reading for all that ask: the search of the index, the linking of turns, what bears on a
prompt, and the commands.
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

MOST_NAMES = 200
_LOOKED_AT_CHARS = 20_000
_MOST_CHARS = 400
"""Of one name or path."""

_WORD = r"[\w$~]+(?:-+[\w$~]+)*"
_CHUNK = re.compile(
    rf"(?P<said>(?:\.{{0,2}}[/\\])?\.?{_WORD}(?:(?:\.|::|->|[/\\]\.?|#){_WORD})*)"
    r"(?P<end>\(\)|[/\\](?!\w)|:(?P<line>\d{1,7})(?:-(?P<last>\d{1,7}))?(?!\w)"
    r"|[\"'`]?,?\s(?:at\s|on\s)?lines?\s(?P<told>\d{1,7})(?!\w))?"
)
_OF_A_URL = ("://", ":/")
_OF_LINES = re.compile(r"#L(\d{1,7})(?:-L?(\d{1,7}))?$")
"""As code hosts write them."""
_QUOTED = re.compile(r"(?<!`)`{1,3}([^`\n]{1,200})`{1,3}")
_JOINT = re.compile(r"\.|::|->|#")
_SLASH = re.compile(r"[/\\]")
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")
_HYPHENATED = re.compile(r"[^\W\d][\w$]*(?:-[\w$]+)*")
_INNER_CAPITAL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2,}[a-z]")
_ACRONYMS = re.compile(r"[A-Z]+s")
"""`URLs`: a word of a sentence."""
_FILE = re.compile(r"[\w.~/\\$-]*[\w$-]\.[A-Za-z]\w{0,7}")
_EXTENSIONS = re.compile(
    "pyi?|[mc]?jsx?|tsx?|go|rs|java|[ch](pp|xx|h|c)?|cs|rb|php|sh|bash|zsh|md|rst|txt|toml|ya?ml|json"
    "|sql|html|s?css|vue|svelte|lua|swift|kt|scala|exs?|proto|cfg|ini|xml|gradle|tf|ps1|r|jl|p[lm]",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"#\d+$")
"""Of the second scope of a name in its file."""


class Said(NamedTuple):
    """One of the things that a text names."""

    text: str
    """As it is written, without `()` and line numbers; of a folder with the slash at its end."""
    parts: tuple[str, ...] = ()
    """Of an identifier: `("Auth", "validate")`; empty where it is a place only."""
    place: str = ""
    """A path with slashes, whole or the end of one; empty where it is no path."""
    lines: tuple[int, int] | None = None
    """Of the file."""

    @property
    def name(self) -> str:
        """The parts with dots between them."""
        return ".".join(self.parts)


def said_in(text: str, *, alone: bool = False) -> list[Said]:
    """What a text names, each once, quoted things first.

    A word counts where nothing but code is written so: with an underscore or a capital inside,
    dots and the like between its parts, or `()` behind it; any word in backticks; and with
    `alone` the only word of a text, as of a search.
    """
    text = text[:_LOOKED_AT_CHARS]
    found = dict.fromkeys(_quoted(text))
    sure = alone and len(text.split()) == 1
    for match in _CHUNK.finditer(text):
        if text.endswith(_OF_A_URL, 0, match.start()):
            continue
        found |= dict.fromkeys(_read(match, sure=sure))
    return list(found)[:MOST_NAMES]


def names_in(text: str, *, alone: bool = False) -> list[str]:
    """The identifiers that a text names, with dots between their parts, as they are written."""
    return list(dict.fromkeys(said.name for said in said_in(text, alone=alone) if said.parts))


def is_named(name: str, qualified_name: str, names: Collection[str]) -> bool:
    """Whether one of the (casefolded) names is that of a scope, whole or as far as it goes."""
    own, whole = name.casefold(), _NUMBERED.sub("", qualified_name).casefold()
    return bool(own) and any(
        asked in (own, whole) or whole.endswith(f".{asked}") or asked.endswith(f".{whole}")
        for asked in names
    )


def is_telling(name: str) -> bool:
    """Whether a word is written as only names are: `a_b`, `aB`, `_a`; not `__init__` or `_so_`."""
    bare = name.strip("_$")
    if name.startswith("_") and not name.endswith("_"):
        return bool(bare)
    if _ACRONYMS.fullmatch(name):
        return False
    return "_" in bare or "$" in bare or bool(_INNER_CAPITAL.search(bare))


def _quoted(text: str) -> Iterator[Said]:
    for quoted in _QUOTED.findall(text):
        bare = re.sub(r"\(.*", "", quoted).strip().lstrip("~")
        if match := _CHUNK.fullmatch(bare):
            yield from _read(match, sure=True)


def _read(match: re.Match[str], *, sure: bool) -> Iterator[Said]:
    """What one chunk of a text says: a name, a path, or a file and a name in it."""
    said, end = match["said"], match["end"] or ""
    if len(said) > _MOST_CHARS:
        return
    line = match["line"] or match["told"]
    lines = (int(line), int(match["last"] or line)) if line else None
    if marked := _OF_LINES.search(said):
        said = said[: marked.start()]
        lines = (int(marked[1]), int(marked[2] or marked[1]))
    path, _, inside = said.partition("::" if "::" in said else "#")
    if inside and (_SLASH.search(path) or _is_file(path)) and (place := _place(path)):
        yield Said(path, place=place)
        said = inside
    is_folder = end in ("/", "\\")
    place = _place(said, is_folder=is_folder)
    is_path = is_folder or lines is not None or _SLASH.search(said) is not None
    parts = () if is_path else _parts(said, sure=sure or end == "()")
    if place or parts:
        shown = f"{said}/" if is_folder else said.lstrip("." if parts else "")
        yield Said(shown, parts, place, lines if place else None)


def _place(said: str, *, is_folder: bool = False) -> str:
    """The path that a chunk is, a folder's with a slash at its end; empty where it is none."""
    path = re.sub(r"^(?:\.{0,2}/)+|^~/", "", said.replace("\\", "/"))
    if not (is_folder or "/" in said or "\\" in said or _is_file(said)):
        return ""
    if not all(re.search(r"\w", part) for part in path.split("/")):
        return ""
    return f"{path}/" if is_folder else path


def _is_file(said: str) -> bool:
    return (
        _FILE.fullmatch(said) is not None
        and _EXTENSIONS.fullmatch(said.rsplit(".", 1)[-1]) is not None
    )


def _parts(said: str, *, sure: bool) -> tuple[str, ...]:
    """Of an identifier, empty where it is none; `sure`: where it stands says that it is one."""
    parts = tuple(part.lstrip("$~") for part in _JOINT.split(said) if part.strip("$~"))
    pattern = _HYPHENATED if sure else _IDENTIFIER
    if not parts or not all(map(pattern.fullmatch, parts)):
        return ()
    if sure or any(map(is_telling, parts)):
        return parts
    # "e.g", "i.e" and a sentence without a space behind it are none.
    joined = "::" in said or "->" in said or "#" in said or len(parts) > 2
    is_lower = parts[-1].lstrip("_")[:1].islower()
    return parts if len(parts) > 1 and min(map(len, parts)) > 1 and (joined or is_lower) else ()

"""What a question names: identifiers and files, and the scopes that bear those names."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

import apsw


class Named(NamedTuple):
    """Why a scope counts as named."""

    what: Literal["name", "file"]
    text: str
    """As the question says it."""
    surely: float
    """From 0 to 1."""


_MOST_OF_A_NAME = 40
"""Scopes that bear one name, beyond which the name says too little."""
_MOST_OF_A_FILE = 12
_MOST_NAMES = 24
_QUESTION_CHARS = 20_000

_QUOTED = re.compile(r"`+([^`\n]{1,200})`+")
_CHUNK = re.compile(r"[\w$~-]+(?:(?:\.|::|->|/|\\|#)[\w$~-]+)*(?:\(\))?")
_PART = re.compile(r"\.|::|->|#")
_SNAKE = re.compile(r"^_*[^\W_]+(?:_+[^\W_]+)+_*$|^_+[^\W_]+_*$")
_CAMEL = re.compile(r"^_*[^\W\d_]*[a-z0-9][A-Z]\w*$|^_*[A-Z]{2,}[a-z]\w*$")
_NAME = re.compile(r"^[^\W\d][\w$]*$")
_FILE = re.compile(r"^[\w.~/\\-]*[\w-]\.[A-Za-z]\w{0,7}$")
_EXTENSIONS = re.compile(
    "pyi?|[mc]?jsx?|tsx?|go|rs|java|[ch](pp|xx|h|c)?|cs|rb|php|sh|bash|zsh|md|rst|txt|toml|ya?ml|json"
    "|sql|html|s?css|vue|svelte|lua|swift|kt|scala|exs?|proto|cfg|ini|xml|gradle|tf|ps1|r|jl|p[lm]",
    re.IGNORECASE,
)


def named_in(connection: apsw.Connection, question: str) -> dict[int, Named]:
    """Rows of scopes that the question names as an identifier or by their file."""
    found: dict[int, Named] = {}
    for said in list(dict.fromkeys(_said(question[:_QUESTION_CHARS])))[:_MOST_NAMES]:
        for scope, named in (*_by_name(connection, said), *_by_file(connection, said)):
            if scope not in found or found[scope].surely < named.surely:
                found[scope] = named
    return found


def _said(question: str) -> Iterator[str]:
    """Identifiers and paths, as they are written; quoted ones first."""
    for quoted in _QUOTED.findall(question):
        bare = re.sub(r"\(.*", "", quoted).strip().lstrip("~.")
        if _CHUNK.fullmatch(bare):
            yield bare
    for chunk in _CHUNK.findall(question):
        bare = chunk.removesuffix("()").strip("-")
        parts = [part for part in _PART.split(bare) if part]
        if not parts:
            continue
        is_path = "/" in bare and all(re.search(r"\w", p) for p in bare.split("/"))
        if chunk.endswith("()") or is_path or _is_identifier(parts) or _is_file(bare):
            yield bare


def _is_identifier(parts: list[str]) -> bool:
    if not all(map(_NAME.match, parts)):
        return False
    if any(_SNAKE.match(part) or _CAMEL.match(part) for part in parts):
        return True
    # "e.g", "i.e" and a sentence without a space behind it are none.
    return len(parts) > 1 and all(len(part) > 1 for part in parts) and parts[-1][0].islower()


def _is_file(bare: str) -> bool:
    return bool(_FILE.match(bare)) and _EXTENSIONS.fullmatch(bare.rsplit(".", 1)[-1]) is not None


def _by_name(connection: apsw.Connection, said: str) -> Iterator[tuple[int, Named]]:
    parts = [part for part in re.split(r"\.|::|->|#|/|\\", said) if part]
    if "/" in said or not parts:
        return
    name = parts[-1]
    rows = connection.execute(
        """
        SELECT s.scope, s.name, s.qualified_name, f.path FROM scopes AS s JOIN files AS f
        USING (file) WHERE s.name_key = :key AND s.kind NOT IN ('section', 'block', 'text')
        ORDER BY substr('.' || s.qualified_name, -length(:own)) = :own DESC LIMIT :most
        """,
        {
            "key": name.casefold(),
            "own": "." + ".".join(parts[-2:]),
            "most": _MOST_OF_A_NAME + 1,
        },
    ).fetchall()
    # The more bear it, the less it says.
    share = min(1.0, 4 / max(1, len(rows)))
    for scope, own, qualified, path in rows:
        surely = 0.7 * share if str(own) == name else 0.4 * share
        if len(parts) > 1:
            surely = _of_qualified(parts, str(qualified), str(path), surely)
        if surely < 1 and len(rows) > _MOST_OF_A_NAME:
            continue
        yield int(str(scope)), Named("name", said, surely)


def _of_qualified(parts: list[str], qualified: str, path: str, surely: float) -> float:
    """How well `a.b.C.method` fits: all its parts in the name, or before it in the path."""
    own = qualified.split(".")
    length = 0
    while length < min(len(own), len(parts)) and own[-1 - length] == parts[-1 - length]:
        length += 1
    if not length:
        return surely / 2
    before = parts[: len(parts) - length]
    places = re.split(r"[/.]", path)
    if not before or all(part in places for part in before):
        return 1.0
    # `self.auth.validate`: what stands before it may be a variable.
    return surely if length > 1 else surely / 2


def _by_file(connection: apsw.Connection, said: str) -> Iterator[tuple[int, Named]]:
    path = said.replace("\\", "/").removeprefix("./").strip("/")
    if not ("/" in path or _is_file(path)):
        return
    rows = connection.execute(
        """
        SELECT s.scope FROM files AS f JOIN scopes AS s USING (file)
        WHERE f.path = :path OR substr(f.path, -length(:path) - 1) = '/' || :path
        ORDER BY s.kind IN ('block', 'text'), s.start_line LIMIT :most
        """,
        {"path": path, "most": _MOST_OF_A_FILE},
    ).fetchall()
    for (scope,) in rows:
        yield int(str(scope)), Named("file", said, 0.3)

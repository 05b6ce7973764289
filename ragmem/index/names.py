"""What a text names as code is named: identifiers, and places (lines of a file, files, folders).

One reading for all that ask: the search of the index, the linking of turns, what bears on a
prompt, and the commands.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

import apsw

from ragmem.index.database import column, listed
from ragmem.records import CodeScope

MOST_NAMES = 200
_LOOKED_AT_CHARS = 20_000
_MOST_CHARS = 400
"""The most characters of one name or path."""

_WORD = r"[\w$~]+(?:-+[\w$~]+)*"
_CHUNK = re.compile(
    rf"(?P<said>(?:\.{{0,2}}[/\\])?\.?{_WORD}(?:(?:\.|::|->|[/\\]\.?|#){_WORD})*)"
    r"(?P<end>\(\)|[/\\](?!\w)|:(?P<line>\d{1,7})(?:-(?P<last>\d{1,7}))?(?!\w)"
    r"|[\"'`]?,?\s(?:at\s|on\s)?lines?\s(?P<told>\d{1,7})(?!\w))?"
)
_OF_A_URL = ("://", ":/")
_OF_LINES = re.compile(r"#L(\d{1,7})(?:-L?(\d{1,7}))?$")
"""Matches lines as code hosts write them."""
_QUOTED = re.compile(r"(?<!`)`{1,3}([^`\n]{1,200})`{1,3}")
_JOINT = re.compile(r"\.|::|->|#")
_SLASH = re.compile(r"[/\\]")
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")
_HYPHENATED = re.compile(r"[^\W\d][\w$]*(?:-[\w$]+)*")
_INNER_CAPITAL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2,}[a-z]")
_ACRONYMS = re.compile(r"[A-Z]+s")
"""Matches `URLs`: a word of a sentence."""
_FILE = re.compile(r"[\w.~/\\$-]*[\w$-]\.[A-Za-z]\w{0,7}")
_EXTENSIONS = re.compile(
    "pyi?|[mc]?jsx?|tsx?|go|rs|java|[ch](pp|xx|h|c)?|cs|rb|php|sh|bash|zsh|md|rst|txt|toml|ya?ml|json"
    "|sql|html|s?css|vue|svelte|lua|swift|kt|scala|exs?|proto|cfg|ini|xml|gradle|tf|ps1|r|jl|p[lm]",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"#\d+$")
"""Matches the number of the second scope of a name in its file."""


class Mention(NamedTuple):
    """One of the things that a text names."""

    text: str
    """The text as it is written, without `()` and line numbers; a folder has a slash at its end."""
    parts: tuple[str, ...] = ()
    """The parts of an identifier: `("Auth", "validate")`; empty if it is a place only."""
    place: str = ""
    """A path with slashes, whole or the end of one; empty where it is no path."""
    lines: tuple[int, int] | None = None
    """The lines of the file."""

    @property
    def name(self) -> str:
        """The parts with dots between them."""
        return ".".join(self.parts)


def said_in(text: str, *, alone: bool = False) -> list[Mention]:
    """Return what a text names, each once, quoted things first.

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
    """Return the identifiers that a text names, as written, with dots between their parts."""
    return list(dict.fromkeys(said.name for said in said_in(text, alone=alone) if said.parts))


def is_named(name: str, qualified_name: str, names: Collection[str]) -> bool:
    """Return whether one of the (casefolded) names is a scope's, whole or as far as it goes."""
    own, whole = name.casefold(), _NUMBERED.sub("", qualified_name).casefold()
    return bool(own) and any(
        asked in (own, whole) or whole.endswith(f".{asked}") or asked.endswith(f".{whole}")
        for asked in names
    )


def is_telling(name: str) -> bool:
    """Return whether only names are written so: `a_b`, `aB`, `_a`; not `__init__` or `_so_`."""
    bare = name.strip("_$")
    if name.startswith("_") and not name.endswith("_"):
        return bool(bare)
    if _ACRONYMS.fullmatch(name):
        return False
    return "_" in bare or "$" in bare or bool(_INNER_CAPITAL.search(bare))


def _quoted(text: str) -> Iterator[Mention]:
    for quoted in _QUOTED.findall(text):
        bare = re.sub(r"\(.*", "", quoted).strip().lstrip("~")
        if match := _CHUNK.fullmatch(bare):
            yield from _read(match, sure=True)


def _read(match: re.Match[str], *, sure: bool) -> Iterator[Mention]:
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
        yield Mention(path, place=place)
        said = inside
    is_folder = end in ("/", "\\")
    place = _place(said, is_folder=is_folder)
    is_path = is_folder or lines is not None or _SLASH.search(said) is not None
    parts = () if is_path else _parts(said, sure=sure or end == "()")
    if place or parts:
        shown = f"{said}/" if is_folder else said.lstrip("." if parts else "")
        yield Mention(shown, parts, place, lines if place else None)


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


S = TypeVar("S", bound="CodeScope | _Span")


def innermost(scopes: Sequence[S], first: int, last: int) -> Iterable[S]:
    """Yield for each line in the range the shortest scope that it is in."""
    near = [scope for scope in scopes if scope.start_line <= last and scope.end_line >= first]
    starts = {first, *(s.start_line for s in near), *(s.end_line + 1 for s in near)}
    # Between two of these lines the scopes are the same.
    for line in sorted(start for start in starts if first <= start <= last):
        around = [scope for scope in near if scope.start_line <= line <= scope.end_line]
        if around:
            yield min(around, key=lambda scope: scope.end_line - scope.start_line)


_SURE = 0.7
"""How surely a name alone counts, if few have it; with what it is in before it, it is 1."""
_SURE_CASELESS = 0.4
_SURE_PLACE = 0.5
_SURE_IN_PASSING = 0.15
"""How surely a module `a.b` counts, and a folder without a slash at its end."""
_FEW = 4
"""How many scopes or files may have a name before it says less and less."""
_MOST_OF_NAME = 40
"""How many may have it before it says too little."""
_MOST_SAID = 24
_MOST_ENDINGS = 8
"""How many ends of a folder's whole path are looked for in the project."""
_MOST_IN_A_PLACE = 20_000
_FIRST_OF_A_PLACE = 12
"""How many scopes of a file or folder are looked at whatever they hold."""


class Named(NamedTuple):
    """Why a scope counts as named."""

    what: Literal["name", "file", "folder", "inside"]
    """How it is named; `inside` is what is in a named scope, and not named itself."""
    text: str
    """The words of the question."""
    surely: float
    """How surely it is named, from 0 to 1; 0 for what is inside."""
    first: bool = True
    """Whether it is ranked whatever else speaks for it, not only if good among its place's."""


class _NamedFile(NamedTuple):
    file: int
    path: str


def named_in(connection: apsw.Connection, question: str) -> dict[int, Named]:
    """Return rows of scopes that the question names as an identifier, or by their place."""
    found: dict[int, Named] = {}
    for said in said_in(question, alone=True)[:_MOST_SAID]:
        places = dict(_by_place(connection, said))
        named = dict(_by_name(connection, said, sure_only=bool(places)) if said.parts else ())
        for scope, one in (*named.items(), *places.items()):
            found[scope] = _together(found.get(scope), one)
    inside = [
        (scope, one.text)
        for scope, one in found.items()
        if one.what == "name" and one.surely >= _SURE
    ]
    for within, text in inside[:_MOST_SAID]:
        for scope in _inside(connection, within):
            found.setdefault(scope, Named("inside", text, 0.0, first=False))
    return found


def _together(before: Named | None, one: Named) -> Named:
    """Named by both its name and its place it is the surer; of two names the surer one counts."""
    if before is None:
        return one
    sure, other = sorted((before, one), key=lambda each: (each.what != "name", -each.surely))
    if (sure.what == "name") == (other.what == "name"):
        return sure
    return sure._replace(surely=min(1.0, sure.surely + other.surely), first=True)


# --- by name -----------------------------------------------------------------------------


def _by_name(
    connection: apsw.Connection, said: Mention, *, sure_only: bool
) -> Iterator[tuple[int, Named]]:
    """`sure_only`: what is said is a place too, so that only the whole name counts."""
    parts = said.parts
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
            "most": _MOST_OF_NAME + 1,
        },
    ).fetchall()
    share = min(1.0, _FEW / max(1, len(rows)))
    for scope, own, qualified, path in rows:
        surely = share * (_SURE if str(own) == name else _SURE_CASELESS)
        if len(parts) > 1:
            surely = _of_qualified(parts, str(qualified), str(path), surely)
        if surely < 1 and (sure_only or len(rows) > _MOST_OF_NAME):
            continue
        yield int(str(scope)), Named("name", said.text, surely)


def _of_qualified(parts: Sequence[str], qualified: str, path: str, surely: float) -> float:
    """How well `a.b.C.method` fits: all its parts in the name, or before it in the path."""
    own = qualified.partition("#")[0].split(".")
    length = 0
    while length < min(len(own), len(parts)) and own[-1 - length] == parts[-1 - length]:
        length += 1
    if not length:
        return surely / 2
    before = parts[: len(parts) - length]
    places = path.replace("/", ".").split(".")
    if not before or all(part in places for part in before):
        return 1.0
    # `self.auth.validate`: what stands before it may be a variable.
    return surely if length > 1 else surely / 2


def _inside(connection: apsw.Connection, scope: int) -> Iterator[int]:
    """The scopes that are in this one; of a type also those in other files of its folder."""
    row = connection.execute(
        "SELECT s.qualified_name, f.path, s.kind FROM scopes AS s JOIN files AS f USING (file)"
        " WHERE scope = ? AND s.kind IN ('class', 'type')",
        (scope,),
    ).fetchone()
    if row is None:
        return
    name, path = str(row[0]), str(row[1])
    folder = path.rpartition("/")[0]
    for (found,) in connection.execute(
        """
        SELECT s.scope FROM files AS f JOIN scopes AS s USING (file)
        WHERE (f.path = :path OR (f.path > :folder AND f.path < :end
            AND instr(substr(f.path, length(:folder) + 1), '/') = 0))
            AND substr(s.qualified_name, 1, length(:name)) = :name
        LIMIT :most
        """,
        {
            "path": path,
            "folder": f"{folder}/" if folder else "",
            "end": f"{folder}0" if folder else "\U0010ffff",
            "name": f"{name}.",
            "most": _MOST_IN_A_PLACE,
        },
    ):
        yield int(str(found))


# --- by place ----------------------------------------------------------------------------


def _by_place(connection: apsw.Connection, said: Mention) -> Iterator[tuple[int, Named]]:
    """Scopes of the file or folder that is meant; those at its line before all."""
    files, what = _files(connection, said)
    if not files:
        return
    is_path = said.place and (what == "file" or said.place.endswith("/"))
    surely = _SURE_PLACE if is_path else _SURE_IN_PASSING
    if what == "file":
        surely *= min(1.0, _FEW / len(files))
    at = [
        scope
        for file in (files if said.lines else ())
        for scope in _at_lines(connection, file.file, said.lines or (0, 0))
    ]
    for scope in at:
        yield scope, Named("file", _told(said), 1.0 if len(files) == 1 else surely + _SURE_PLACE)
    inside = column(
        connection,
        "SELECT scope FROM scopes WHERE file IN (SELECT value FROM json_each(?))"
        " ORDER BY kind IN ('block', 'text'), file, start_line LIMIT ?",
        listed(file.file for file in files),
        _MOST_IN_A_PLACE,
    )
    for place, scope in enumerate(inside):
        if scope not in at:
            yield scope, Named(what, said.text, surely, place < _FIRST_OF_A_PLACE)


def _told(said: Mention) -> str:
    first, last = said.lines or (0, 0)
    return f"{said.text}:{first}" + (f"-{last}" if last > first else "")


def _at_lines(connection: apsw.Connection, file: int, lines: tuple[int, int]) -> list[int]:
    rows = connection.execute(
        "SELECT scope, start_line, end_line FROM scopes WHERE file = ?"
        " ORDER BY start_line, end_line DESC, scope",
        (file,),
    )
    spans = [_Span(int(str(scope)), int(str(a)), int(str(z))) for scope, a, z in rows]
    return list(dict.fromkeys(each.scope for each in innermost(spans, *lines)))


class _Span(NamedTuple):
    scope: int
    start_line: int
    end_line: int


def _files(
    connection: apsw.Connection, said: Mention
) -> tuple[list[_NamedFile], Literal["file", "folder"]]:
    """The files that a place or a dotted module means, and how it means them."""
    if not said.place:
        return _modules(connection, "/".join(said.parts)) if len(said.parts) > 1 else ([], "file")
    path, last = said.place.strip("/"), said.place.rpartition("/")[2]
    endings = list(_endings(path, whole=said.text.startswith(("/", "\\", "~"))))
    if last:
        ending_so = _listed(
            connection, "substr('/' || path, -length(:said) - 1) = '/' || :said", last
        )
        for place in endings:
            if found := [f for f in ending_so if f"/{f.path}".endswith(f"/{place}")]:
                whole = [file for file in found if file.path == place]
                return whole or _unless_many(found), "file"
    if "." not in last:
        for place in endings[:_MOST_ENDINGS]:
            if found := _in_folder(connection, place):
                return found, "folder"
    return [], "file"


def _endings(path: str, *, whole: bool) -> Iterator[str]:
    """The path, then without its first folders: of a whole one, or `a/` and `b/` of a diff."""
    yield path
    rest = path
    while "/" in rest and (whole or (rest is path and path.count("/") > 1)):
        rest = rest.partition("/")[2]
        yield rest


def _modules(
    connection: apsw.Connection, module: str
) -> tuple[list[_NamedFile], Literal["file", "folder"]]:
    """Files that are so called but for what follows the dot; else those of a folder."""
    begun = _listed(connection, "instr('/' || path, '/' || :said) > 0", module)
    ends = [f for f in begun if f"/{f.path}".rpartition(".")[0].endswith(f"/{module}")]
    whole = [file for file in ends if file.path.rpartition(".")[0] == module]
    if ends:
        return whole or _unless_many(ends), "file"
    return _below(begun, module), "folder"


def _in_folder(connection: apsw.Connection, folder: str) -> list[_NamedFile]:
    within = _listed(connection, "instr('/' || path, '/' || :said || '/') > 0", folder)
    return _below(within, folder)


def _below(files: Sequence[_NamedFile], folder: str) -> list[_NamedFile]:
    """Those in a folder and below it; in one of the project's folder before others."""
    found = [file for file in files if f"/{folder}/" in f"/{file.path}"]
    return [file for file in found if file.path.startswith(f"{folder}/")] or found


def _unless_many(files: list[_NamedFile]) -> list[_NamedFile]:
    return files if len(files) <= _MOST_OF_NAME else []


def _listed(connection: apsw.Connection, where: str, said: str) -> list[_NamedFile]:
    """The files for which that is true of what was said, by path."""
    rows = connection.execute(
        f"SELECT file, path FROM files WHERE left_out = '' AND {where} ORDER BY path",
        {"said": said},
    )
    return [_NamedFile(int(str(file)), str(path)) for file, path in rows]

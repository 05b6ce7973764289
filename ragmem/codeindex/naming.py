"""What a question names in an index: scopes by their names, and by the places that they are in."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import apsw
import msgspec

from ragmem.codeindex.finding import innermost
from ragmem.codeindex.names import Said, said_in

_SURE = 0.7
"""Of the name alone, where few have it; with what it is in before it, it is 1."""
_SURE_CASELESS = 0.4
_SURE_PLACE = 0.5
_SURE_IN_PASSING = 0.15
"""Of a module `a.b`, and a folder without a slash at its end."""
_FEW = 4
"""Scopes or files of a name, beyond which the name says less and less."""
_MOST_OF_A_NAME = 40
"""The same, beyond which it says too little."""
_MOST_SAID = 24
_MOST_ENDINGS = 8
"""Of a folder's whole path, that are looked for in the project."""
_MOST_IN_A_PLACE = 20_000
_FIRST_OF_A_PLACE = 12
"""Scopes of a file or folder that are looked at whatever they hold."""


class Named(NamedTuple):
    """Why a scope counts as named."""

    what: Literal["name", "file", "folder", "inside"]
    """`inside`: it is in a scope that is named, and is not itself."""
    text: str
    """As the question says it."""
    surely: float
    """From 0 to 1; 0 of what is inside."""
    first: bool = True
    """It is looked at, whatever else speaks for it; else where it is good among its place's."""


class _File(NamedTuple):
    file: int
    path: str


def named_in(connection: apsw.Connection, question: str) -> dict[int, Named]:
    """Rows of scopes that the question names as an identifier, or by their place."""
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
    connection: apsw.Connection, said: Said, *, sure_only: bool
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
            "most": _MOST_OF_A_NAME + 1,
        },
    ).fetchall()
    share = min(1.0, _FEW / max(1, len(rows)))
    for scope, own, qualified, path in rows:
        surely = share * (_SURE if str(own) == name else _SURE_CASELESS)
        if len(parts) > 1:
            surely = _of_qualified(parts, str(qualified), str(path), surely)
        if surely < 1 and (sure_only or len(rows) > _MOST_OF_A_NAME):
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


def _by_place(connection: apsw.Connection, said: Said) -> Iterator[tuple[int, Named]]:
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
    rows = connection.execute(
        "SELECT scope FROM scopes WHERE file IN (SELECT value FROM json_each(?))"
        " ORDER BY kind IN ('block', 'text'), file, start_line LIMIT ?",
        (msgspec.json.encode([file.file for file in files]).decode(), _MOST_IN_A_PLACE),
    )
    for place, (scope,) in enumerate(rows):
        if scope not in at:
            yield int(str(scope)), Named(what, said.text, surely, place < _FIRST_OF_A_PLACE)


def _told(said: Said) -> str:
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
    connection: apsw.Connection, said: Said
) -> tuple[list[_File], Literal["file", "folder"]]:
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
) -> tuple[list[_File], Literal["file", "folder"]]:
    """Files that are so called but for what follows the dot; else those of a folder."""
    begun = _listed(connection, "instr('/' || path, '/' || :said) > 0", module)
    ends = [f for f in begun if f"/{f.path}".rpartition(".")[0].endswith(f"/{module}")]
    whole = [file for file in ends if file.path.rpartition(".")[0] == module]
    if ends:
        return whole or _unless_many(ends), "file"
    return _below(begun, module), "folder"


def _in_folder(connection: apsw.Connection, folder: str) -> list[_File]:
    within = _listed(connection, "instr('/' || path, '/' || :said || '/') > 0", folder)
    return _below(within, folder)


def _below(files: Sequence[_File], folder: str) -> list[_File]:
    """Those in a folder and below it; in one of the project's folder before others."""
    found = [file for file in files if f"/{folder}/" in f"/{file.path}"]
    return [file for file in found if file.path.startswith(f"{folder}/")] or found


def _unless_many(files: list[_File]) -> list[_File]:
    return files if len(files) <= _MOST_OF_A_NAME else []


def _listed(connection: apsw.Connection, where: str, said: str) -> list[_File]:
    """The files for which that is true of what was said, by path."""
    rows = connection.execute(
        f"SELECT file, path FROM files WHERE left_out = '' AND {where} ORDER BY path",
        {"said": said},
    )
    return [_File(int(str(file)), str(path)) for file, path in rows]

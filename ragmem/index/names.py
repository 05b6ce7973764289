"""References to code in a text: identifiers, and places (lines of a file, files, folders).

They are recognised in the same way for searching the index, linking turns, choosing the code for
a prompt, and the commands.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

import apsw

from ragmem.index import NUMBERED
from ragmem.index.database import column, listed, rows
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
_URL_PREFIXES = ("://", ":/")
_LINE_FRAGMENT = re.compile(r"#L(\d{1,7})(?:-L?(\d{1,7}))?$")
"""Matches line numbers in the notation of code hosts."""
_QUOTED = re.compile(r"(?<!`)`{1,3}([^`\n]{1,200})`{1,3}")
_JOINT = re.compile(r"\.|::|->|#")
_SLASH = re.compile(r"[/\\]")
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")
_HYPHENATED = re.compile(r"[^\W\d][\w$]*(?:-[\w$]+)*")
_INNER_CAPITAL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2,}[a-z]")
_ACRONYMS = re.compile(r"[A-Z]+s")
"""Matches plurals such as `URLs`, which are words of a sentence."""
_FILE = re.compile(r"[\w.~/\\$-]*[\w$-]\.[A-Za-z]\w{0,7}")
_EXTENSIONS = re.compile(
    "pyi?|[mc]?jsx?|tsx?|go|rs|java|[ch](pp|xx|h|c)?|cs|rb|php|sh|bash|zsh|md|rst|txt|toml|ya?ml|json"
    "|sql|html|s?css|vue|svelte|lua|swift|kt|scala|exs?|proto|cfg|ini|xml|gradle|tf|ps1|r|jl|p[lm]",
    re.IGNORECASE,
)


class Mention(NamedTuple):
    """A reference to code in a text."""

    text: str
    """The text as written, without `()` and line numbers; a folder ends with a slash."""
    parts: tuple[str, ...] = ()
    """The parts of an identifier: `("Auth", "validate")`; empty if it is only a place."""
    place: str = ""
    """A path with slashes, or the end of one; empty if it isn't a path."""
    lines: tuple[int, int] | None = None
    """The first and last line, if the text gives them."""

    @property
    def name(self) -> str:
        """The parts joined with dots."""
        return ".".join(self.parts)


def said_in(text: str, *, alone: bool = False) -> list[Mention]:
    """Return the references to code in a text, each once, those in backticks first.

    A word counts as an identifier if its form is that of code: with an underscore or a capital
    inside, parts joined with dots and the like, or `()` behind it. So does any word in backticks,
    and, with `alone`, a word that is the whole text, as in a search.
    """
    text = text[:_LOOKED_AT_CHARS]
    found = dict.fromkeys(_quoted(text))
    sure = alone and len(text.split()) == 1
    for match in _CHUNK.finditer(text):
        if text.endswith(_URL_PREFIXES, 0, match.start()):
            continue
        found |= dict.fromkeys(_read(match, sure=sure))
    return list(found)[:MOST_NAMES]


def names_in(text: str, *, alone: bool = False) -> list[str]:
    """Return the identifiers in a text, with dots between their parts; see `said_in`."""
    return list(
        dict.fromkeys(mention.name for mention in said_in(text, alone=alone) if mention.parts)
    )


def is_named(name: str, qualified_name: str, names: Collection[str]) -> bool:
    """Return whether a casefolded name is a scope's, or one qualified name ends the other."""
    own, whole = name.casefold(), NUMBERED.sub("", qualified_name).casefold()
    return bool(own) and any(
        asked in (own, whole) or whole.endswith(f".{asked}") or asked.endswith(f".{whole}")
        for asked in names
    )


def is_telling(name: str) -> bool:
    """Return whether a name has the form of an identifier: `a_b`, `aB`, `_a`; not `__init__`."""
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
    """Yield what one chunk of a text refers to: a name, a path, or a file and a name in it."""
    chunk, end = match["said"], match["end"] or ""
    if len(chunk) > _MOST_CHARS:
        return
    line = match["line"] or match["told"]
    lines = (int(line), int(match["last"] or line)) if line else None
    if marked := _LINE_FRAGMENT.search(chunk):
        chunk = chunk[: marked.start()]
        lines = (int(marked[1]), int(marked[2] or marked[1]))
    path, _, inside = chunk.partition("::" if "::" in chunk else "#")
    if inside and (_SLASH.search(path) or _is_file(path)) and (place := _place(path)):
        yield Mention(path, place=place)
        chunk = inside
    is_folder = end in ("/", "\\")
    place = _place(chunk, is_folder=is_folder)
    is_path = is_folder or lines is not None or _SLASH.search(chunk) is not None
    parts = () if is_path else _parts(chunk, sure=sure or end == "()")
    if place or parts:
        shown = f"{chunk}/" if is_folder else chunk.lstrip("." if parts else "")
        yield Mention(shown, parts, place, lines if place else None)


def _place(chunk: str, *, is_folder: bool = False) -> str:
    """Return a chunk as a path, a folder's with a slash at its end; empty if it isn't a path."""
    path = re.sub(r"^(?:\.{0,2}/)+|^~/", "", chunk.replace("\\", "/"))
    if not (is_folder or "/" in chunk or "\\" in chunk or _is_file(chunk)):
        return ""
    if not all(re.search(r"\w", part) for part in path.split("/")):
        return ""
    return f"{path}/" if is_folder else path


def _is_file(chunk: str) -> bool:
    return (
        _FILE.fullmatch(chunk) is not None
        and _EXTENSIONS.fullmatch(chunk.rsplit(".", 1)[-1]) is not None
    )


def _parts(chunk: str, *, sure: bool) -> tuple[str, ...]:
    """Return an identifier's parts, empty if it isn't one; `sure`: the context says that it is."""
    parts = tuple(part.lstrip("$~") for part in _JOINT.split(chunk) if part.strip("$~"))
    pattern = _HYPHENATED if sure else _IDENTIFIER
    if not parts or not all(map(pattern.fullmatch, parts)):
        return ()
    if sure or any(map(is_telling, parts)):
        return parts
    # Not "e.g", "i.e", or the end of a sentence without a space behind it.
    joined = "::" in chunk or "->" in chunk or "#" in chunk or len(parts) > 2
    is_lower = parts[-1].lstrip("_")[:1].islower()
    return parts if len(parts) > 1 and min(map(len, parts)) > 1 and (joined or is_lower) else ()


S = TypeVar("S", bound="CodeScope | _Span")


def innermost(scopes: Sequence[S], first: int, last: int) -> Iterable[S]:
    """Yield for each line in the range the shortest scope that contains it."""
    near = [scope for scope in scopes if scope.start_line <= last and scope.end_line >= first]
    starts = {first, *(s.start_line for s in near), *(s.end_line + 1 for s in near)}
    # Between two of these lines the scopes are the same.
    for line in sorted(start for start in starts if first <= start <= last):
        around = [scope for scope in near if scope.start_line <= line <= scope.end_line]
        if around:
            yield min(around, key=lambda scope: scope.end_line - scope.start_line)


_NAME_CONFIDENCE = 0.7
"""The confidence for an unqualified name that few scopes have; a qualified one has 1."""
_CASELESS_CONFIDENCE = 0.4
_PLACE_CONFIDENCE = 0.5
_LOW_CONFIDENCE = 0.15
"""The confidence for a module `a.b`, and for a folder without a slash at its end."""
_FEW = 4
"""The number of scopes or files of a name above which the confidence falls."""
_MOST_NAMESAKES = 40
"""The number of scopes or files of a name above which it is ignored."""
_MOST_MENTIONS = 24
_MOST_ENDINGS = 8
"""The most ends of a folder's absolute path that are looked for in the project."""
_MOST_IN_A_PLACE = 20_000
_ALWAYS_RANKED = 12
"""The number of scopes of a file or folder that are ranked whatever they contain."""


class Named(NamedTuple):
    """How a question refers to a scope."""

    what: Literal["name", "file", "folder", "inside"]
    """By its name, its file or its folder; `inside` for a member of a class that is named."""
    text: str
    """The reference in the question."""
    surely: float
    """The confidence that the scope is meant, from 0 to 1; 0 for `inside`."""
    first: bool = True
    """Whether to rank it in any case, rather than only if it is among the best of its place."""


class _NamedFile(NamedTuple):
    file: int
    path: str


def named_in(connection: apsw.Connection, question: str) -> dict[int, Named]:
    """Return the scopes (by row id) that a question refers to, by identifier or by place."""
    found: dict[int, Named] = {}
    for mention in said_in(question, alone=True)[:_MOST_MENTIONS]:
        places = dict(_by_place(connection, mention))
        named = dict(_by_name(connection, mention, sure_only=bool(places)) if mention.parts else ())
        for scope, reference in (*named.items(), *places.items()):
            found[scope] = _combined(found.get(scope), reference)
    inside = [
        (scope, reference.text)
        for scope, reference in found.items()
        if reference.what == "name" and reference.surely >= _NAME_CONFIDENCE
    ]
    for within, text in inside[:_MOST_MENTIONS]:
        for scope in _members(connection, within):
            found.setdefault(scope, Named("inside", text, 0.0, first=False))
    return found


def _combined(before: Named | None, new: Named) -> Named:
    """Combine two references: confidences of name and place add up, else the higher one counts."""
    if before is None:
        return new
    sure, other = sorted((before, new), key=lambda each: (each.what != "name", -each.surely))
    if (sure.what == "name") == (other.what == "name"):
        return sure
    return sure._replace(surely=min(1.0, sure.surely + other.surely), first=True)


# --- by name -----------------------------------------------------------------------------


def _by_name(
    connection: apsw.Connection, mention: Mention, *, sure_only: bool
) -> Iterator[tuple[int, Named]]:
    """Yield the scopes of a name; with `sure_only`, since it may be a place, only certain ones."""
    parts = mention.parts
    name = parts[-1]
    found = rows(
        connection,
        """
        SELECT s.scope, s.name, s.qualified_name, f.path FROM scopes AS s JOIN files AS f
        USING (file) WHERE s.name_key = :key AND s.kind NOT IN ('section', 'block', 'text')
        ORDER BY substr('.' || s.qualified_name, -length(:own)) = :own DESC LIMIT :most
        """,
        key=name.casefold(),
        own="." + ".".join(parts[-2:]),
        most=_MOST_NAMESAKES + 1,
    )
    share = min(1.0, _FEW / max(1, len(found)))
    for scope, own, qualified, path in found:
        surely = share * (_NAME_CONFIDENCE if own == name else _CASELESS_CONFIDENCE)
        if len(parts) > 1:
            surely = _qualified_confidence(parts, qualified, path, surely)
        if surely == 1 or not (sure_only or len(found) > _MOST_NAMESAKES):
            yield scope, Named("name", mention.text, surely)


def _qualified_confidence(parts: Sequence[str], qualified: str, path: str, surely: float) -> float:
    """Return the confidence for `a.b.C.method`: 1 if all parts are in the name or path."""
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
    # In `self.auth.validate` the parts before the name may be variables.
    return surely if length > 1 else surely / 2


def _members(connection: apsw.Connection, scope: int) -> list[int]:
    """Return the members of a class or type, also those in other files of its folder."""
    found = connection.execute(
        "SELECT s.qualified_name, f.path FROM scopes AS s JOIN files AS f USING (file)"
        " WHERE scope = ? AND s.kind IN ('class', 'type')",
        (scope,),
    ).get
    if found is None:
        return []
    name, path = found
    folder = path.rpartition("/")[0]
    return column(
        connection,
        """
        SELECT s.scope FROM files AS f JOIN scopes AS s USING (file)
        WHERE (f.path = :path OR (f.path > :folder AND f.path < :end
            AND instr(substr(f.path, length(:folder) + 1), '/') = 0))
            AND substr(s.qualified_name, 1, length(:name)) = :name
        LIMIT :most
        """,
        path=path,
        folder=f"{folder}/" if folder else "",
        end=f"{folder}0" if folder else "\U0010ffff",
        name=f"{name}.",
        most=_MOST_IN_A_PLACE,
    )


# --- by place ----------------------------------------------------------------------------


def _by_place(connection: apsw.Connection, mention: Mention) -> Iterator[tuple[int, Named]]:
    """Yield the scopes of the file or folder that is meant, first those at the given lines."""
    files, what = _files(connection, mention)
    if not files:
        return
    is_path = mention.place and (what == "file" or mention.place.endswith("/"))
    surely = _PLACE_CONFIDENCE if is_path else _LOW_CONFIDENCE
    if what == "file":
        surely *= min(1.0, _FEW / len(files))
    at: list[int] = []
    if mention.lines:
        first, last = mention.lines
        text = f"{mention.text}:{first}" + (f"-{last}" if last > first else "")
        sure = 1.0 if len(files) == 1 else surely + _PLACE_CONFIDENCE
        at = [scope for each in files for scope in _at_lines(connection, each.file, first, last)]
        yield from ((scope, Named("file", text, sure)) for scope in at)
    inside = column(
        connection,
        "SELECT scope FROM scopes WHERE file IN (SELECT value FROM json_each(?))"
        " ORDER BY kind IN ('block', 'text'), file, start_line LIMIT ?",
        listed(file.file for file in files),
        _MOST_IN_A_PLACE,
    )
    for place, scope in enumerate(inside):
        if scope not in at:
            yield scope, Named(what, mention.text, surely, place < _ALWAYS_RANKED)


def _at_lines(connection: apsw.Connection, file: int, first: int, last: int) -> list[int]:
    of_file = (
        "SELECT scope, start_line, end_line FROM scopes WHERE file = ?"
        " ORDER BY start_line, end_line DESC, scope"
    )
    spans = [_Span(*each) for each in rows(connection, of_file, file)]
    return list(dict.fromkeys(each.scope for each in innermost(spans, first, last)))


class _Span(NamedTuple):
    scope: int
    start_line: int
    end_line: int


def _files(
    connection: apsw.Connection, mention: Mention
) -> tuple[list[_NamedFile], Literal["file", "folder"]]:
    """Return the files that a path or a dotted module stands for, and whether as file or folder."""
    if not mention.place:
        return (
            _modules(connection, "/".join(mention.parts))
            if len(mention.parts) > 1
            else ([], "file")
        )
    path, last = mention.place.strip("/"), mention.place.rpartition("/")[2]
    endings = list(_endings(path, whole=mention.text.startswith(("/", "\\", "~"))))
    if last:
        ending = "substr('/' || path, -length(:said) - 1) = '/' || :said"
        ending_so = _listed(connection, ending, last)
        for place in endings:
            if found := [f for f in ending_so if f"/{f.path}".endswith(f"/{place}")]:
                return _whole([f for f in found if f.path == place], found), "file"
    if "." not in last:
        within = "instr('/' || path, '/' || :said || '/') > 0"
        for place in endings[:_MOST_ENDINGS]:
            if found := _below(_listed(connection, within, place), place):
                return found, "folder"
    return [], "file"


def _endings(path: str, *, whole: bool) -> Iterator[str]:
    """Yield a path and its ends: all of an absolute one (`whole`), else without a diff's `a/`."""
    yield path
    rest = path
    while "/" in rest and (whole or (rest is path and path.count("/") > 1)):
        rest = rest.partition("/")[2]
        yield rest


def _modules(
    connection: apsw.Connection, module: str
) -> tuple[list[_NamedFile], Literal["file", "folder"]]:
    """Return the files of a module's name, whatever their suffix; else those in its folder."""
    begun = _listed(connection, "instr('/' || path, '/' || :said) > 0", module)
    if ends := [f for f in begun if f"/{f.path}".rpartition(".")[0].endswith(f"/{module}")]:
        return _whole([f for f in ends if f.path.rpartition(".")[0] == module], ends), "file"
    return _below(begun, module), "folder"


def _below(files: Sequence[_NamedFile], folder: str) -> list[_NamedFile]:
    """Return the files below a folder: the one at the project's root, if there is one there."""
    found = [file for file in files if f"/{folder}/" in f"/{file.path}"]
    return [file for file in found if file.path.startswith(f"{folder}/")] or found


def _whole(whole: list[_NamedFile], ends: list[_NamedFile]) -> list[_NamedFile]:
    """Return the files whose whole path was given, else those that end so, if they are few."""
    return whole or (ends if len(ends) <= _MOST_NAMESAKES else [])


def _listed(connection: apsw.Connection, where: str, said: str) -> list[_NamedFile]:
    """Return the indexed files that satisfy a condition on `:said`, by path."""
    which = f"SELECT file, path FROM files WHERE left_out = '' AND {where} ORDER BY path"
    return [_NamedFile(*each) for each in rows(connection, which, said=said)]

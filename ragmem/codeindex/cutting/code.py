"""Definitions into scopes: which of them, inside of what, under which names."""

import re

from ragmem.codeindex.cutting.blocks import add_blocks
from ragmem.codeindex.cutting.calls import COMMON
from ragmem.codeindex.cutting.comments import above, module_docstring, string_text
from ragmem.codeindex.cutting.languages import GRAMMARS
from ragmem.codeindex.cutting.parsing import Definition, Found
from ragmem.codeindex.cutting.pieces import Piece
from ragmem.codeindex.cutting.signatures import signature_of
from ragmem.codeindex.cutting.source import Source
from ragmem.records import ScopeKind

_LONG_FUNCTION = 30
_INLINE_LINES = 4
_MOST_ONE_LINERS = 40

_SUITES = frozenset(("describe", "context", "suite", "feature"))
_TESTS = frozenset(("it", "test", "specify", "bench", "scenario"))
_UPPER = re.compile(r"_?[A-Z][A-Z0-9_]+\Z")
_CAMEL = re.compile(r"[A-Z]\w*[a-z]\w*\Z")
_ALIASED = re.compile(r"[^=]*=\s*[\w.]+\s*(?:\[|\|)|[^=]*=\s*(?:\w+\.)?(?:New|Named|Typed)\w+\(")
_GENERIC = re.compile(r"<[^<>]*>|\[[^\[\]]*\]")
_KINDS: dict[str, ScopeKind] = {
    "class": "class",
    "interface": "type",
    "impl": "class",
    "module": "class",
    "type": "type",
    "exported": "constant",
    "constant": "constant",
}


class _Open:
    """A definition that what follows may be in."""

    __slots__ = ("definition", "last_row", "path", "piece", "within")

    def __init__(self, definition: Definition, piece: Piece | None, path: str, within: str) -> None:
        self.definition = definition
        self.piece = piece
        self.path = path
        """What the names of those in it begin with."""
        self.within = within
        """What it is to them: `top`, `class`, `suite`, `function` or `leaf`."""
        self.last_row = definition.first
        """The last row that is taken by what is in it."""


class _Cutter:
    """The definitions of one file, taken in their order."""

    def __init__(self, source: Source, language: str, found: Found) -> None:
        self.source = source
        self.language = language
        self.comment = GRAMMARS[language].comment
        self.found = found
        self.pieces: list[Piece] = []
        self.top: list[Piece] = []
        self.places: list[tuple[int, int, Piece]] = []
        """Bytes of each scope, for the calls."""
        self._open: list[_Open] = []
        self._prefix = ""
        self._last_row = -1
        self._one_liners = sum(
            one.first == one.last and _kind_of(one, language) == "constant"
            for one in found.definitions
        )

    def take(self, one: Definition) -> None:
        """Make a scope of it, or leave it a part of what it is in."""
        while self._open and self._open[-1].definition.end <= one.start:
            self._open.pop()
        outer = self._open[-1] if self._open else None
        path = outer.path if outer else self._prefix
        name, owner = _names(one, self.language)
        one.last = min(one.last, len(self.source.lines) - 1)
        if not name or one.first > one.last:
            return
        if one.role == "prefix":
            self._prefix = name
            return
        if one.role == "namespace":
            within = outer.within if outer else "top"
            self._open.append(
                _Open(one, outer.piece if outer else None, _joined(path, name), within)
            )
            return
        said = above(
            self.source,
            one.first,
            1 + (outer.last_row if outer and outer.piece else self._last_row),
            self.comment,
            self.found.above,
        )
        if not self._is_worth(one, outer, bool(said.docstring)):
            return
        piece = Piece(_scope_kind(one, outer, owner), said.first, one.last, name)
        piece.qualified = _joined(path, owner, name) if one.role != "impl" else _joined(path, owner)
        piece.signature = signature_of(self.source, one, self.comment)
        piece.docstring = said.docstring
        piece.named = one.named
        if self.language == "python" and one.body >= 0:
            top = self.source.between(one.body, min(one.end, one.body + 20_000))
            piece.docstring = string_text(top) or said.docstring
        inner = _joined(path, name) if one.role == "impl" else _joined(path, owner, name)
        self._add(one, piece, outer, inner)

    def _add(self, one: Definition, piece: Piece, outer: _Open | None, path: str) -> None:
        within = outer.piece if outer else None
        (within.parts if within else self.top).append(piece)
        self.pieces.append(piece)
        self.places.append((one.start, one.end, piece))
        self._last_row = max(self._last_row, piece.last)
        for each in self._open:
            each.last_row = max(each.last_row, piece.last)
        self._open.append(_Open(one, piece, path, _within(one)))

    def _is_worth(self, one: Definition, outer: _Open | None, is_documented: bool) -> bool:
        within = outer.within if outer else "top"
        lines = one.last - one.first + 1
        if within == "leaf" or (outer and outer.definition.body == one.body >= 0):
            return False
        kind = _kind_of(one, self.language)
        if one.role == "tested" and one.tester not in _SUITES | _TESTS:
            return False
        if within == "function" and (lines <= _LONG_FUNCTION or kind in ("constant", "type")):
            return False
        if kind == "constant":
            is_few = self._one_liners <= _MOST_ONE_LINERS and one.name[0] != "_"
            return within == "top" and (lines > 1 or is_few)
        if one.role == "declaration":
            return is_documented and within != "function"
        if one.role == "inline":
            return lines >= _INLINE_LINES
        return kind is not None

    def give_calls(self) -> list[tuple[int, str]]:
        """Each call to the innermost scope that it is in; the others are returned."""
        common = COMMON[self.language]
        around: list[tuple[int, Piece]] = []
        outside: list[tuple[int, str]] = []
        places = iter(self.places)
        following = next(places, None)
        for start, name in self.found.calls:
            while following is not None and following[0] <= start:
                around.append(following[1:])
                following = next(places, None)
            if name in common or len(name) > 100:
                continue
            while around and around[-1][0] <= start:
                around.pop()
            if around:
                around[-1][1].calls[name] = None
            else:
                outside.append((start, name))
        return outside


def code_pieces(source: Source, language: str, found: Found) -> list[Piece]:
    """The scopes of a file of code; every line that isn't blank is in one."""
    if language == "python":
        for one in found.definitions:
            if one.role == "constant" and _CAMEL.match(one.name) and _is_alias(source, one):
                one.role = "type"
    cutter = _Cutter(source, language, found)
    for one in found.definitions:
        cutter.take(one)
    outside = cutter.give_calls()
    blocks = add_blocks(source, cutter.top, found.aside, outside, cutter.comment)
    first = blocks[0] if blocks else None
    if first and all(first.first <= piece.first for piece in cutter.top):
        first.docstring = module_docstring(
            source, first.first, first.last, cutter.comment, language == "python"
        )
        if first.docstring and first.name:  # more than imports
            first.name = first.qualified = ""
    return cutter.pieces + blocks


def _is_alias(source: Source, one: Definition) -> bool:
    return _ALIASED.match(source.between(one.start, min(one.end, one.start + 200))) is not None


def _kind_of(one: Definition, language: str) -> ScopeKind | None:
    # What its role and its name make of it; None: nothing worth a scope.
    if one.role != "constant":
        return _KINDS.get(one.role, "function")
    if _UPPER.match(one.name) or (language == "go" and one.name[:1].isupper()):
        return "constant"
    return None


def _scope_kind(one: Definition, outer: _Open | None, owner: str) -> ScopeKind:
    if one.role in _KINDS:
        return _KINDS[one.role]
    return "method" if owner or (outer and outer.within == "class") else "function"


def _within(one: Definition) -> str:
    if one.role in ("class", "interface", "impl"):
        return "class"
    if one.role == "module":
        return "top"
    if one.role == "tested":
        return "suite" if one.tester in _SUITES else "function"
    return "function" if one.role in ("function", "inline") else "leaf"


def _names(one: Definition, language: str) -> tuple[str, str]:
    """Its own name, and the type that the definition itself says it belongs to."""
    name, owner = " ".join(one.name.split()), ""
    if one.role == "tested" or name[:1] in "\"'`":
        return name.strip("\"'`"), ""
    if one.role in ("namespace", "prefix", "module"):
        return ".".join(part for part in re.split(r"::|\\|\.", name) if part), ""
    if language in ("c", "cpp") and "::" in name:
        parts = [part.strip() for part in _bare(name).split("::") if part.strip()]
        return (parts[-1], ".".join(parts[:-1])) if parts else ("", "")
    if one.role == "impl":
        name = re.split(r"::|[ &*]", _bare(name))[-1]
        trait = re.split(r"::", _bare(" ".join(one.owner.split())))[-1]
        return name, f"impl {trait} for {name}" if trait else f"impl {name}"
    if language == "go" and one.owner:
        return name, re.split(r"[\s*.]+", _bare(one.owner.strip("()")))[-1]
    if language == "ruby":
        parts = name.split("::")
        return parts[-1], ".".join(parts[:-1]) if one.role == "class" else ""
    if language in ("javascript", "typescript", "tsx") and "." in name:
        parts = [part for part in name.split(".") if part not in _JS_HOLDERS]
        return (parts[-1], ".".join(parts[:-1])) if parts else ("", "")
    return name, owner


_JS_HOLDERS = frozenset(("module", "exports", "prototype", "this", "window", "self", "global"))


def _bare(name: str) -> str:
    # Type arguments away, from the inside out; names of files have few.
    for _ in range(8):
        shorter = _GENERIC.sub("", name)
        if shorter == name:
            break
        name = shorter
    return name.strip()


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)

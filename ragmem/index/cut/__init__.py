"""Cutting a file into scopes: functions, classes and sections, or runs of lines without a parser.

Decides which definitions become scopes, how they nest, and their names and docstrings.
"""

import re
from bisect import bisect_right
from typing import NamedTuple

import msgspec

from ragmem.index import Cut
from ragmem.index.cut.parser import (
    COMMON,
    GRAMMARS,
    LARGEST,
    Definition,
    ParsedFile,
    imports_of,
    is_generated,
    language_of,
    parse,
)
from ragmem.index.cut.source import (
    HEADED,
    LONGEST_SIGNATURE,
    Piece,
    SourceText,
    clipped,
    first_words,
    indent_of,
    scopes_of,
    section_pieces,
    text_pieces,
    trimmed,
    windows,
)
from ragmem.records import ScopeKind

_MARKS = re.compile(r"^\s*(?:/\*\*?!?<?|///?!?<?|//!|\*+/|\*(?!\*)|#+!?|--)?[ \t]?")
_CLOSE = re.compile(r"\s*\*+/\s*$")
_RULER = re.compile(r"^[\W_]*$")
_TOOL_DIRECTIVE = re.compile(
    r"^\s*(?:@ts-|eslint|tslint|prettier-|biome-|istanbul |c8 |noqa|type: ignore|pylint|mypy:"
    r"|pragma\b|nolint|go:|\+build|rubocop|shellcheck|frozen_string_literal|phpcs|phpstan-"
    r"|clang-format|NOLINT|NOSONAR|-\*-|vim?:|fmt: |ruff: |isort:|usr/bin/|!/|endregion|region\b"
    r"|@jsx|@flow|<reference )",
    re.IGNORECASE,
)
_LICENCE = re.compile(r"copyright|licen[cs]ed? under|SPDX-|all rights reserved", re.IGNORECASE)
_STRING = re.compile(
    r"""[rRuU]?(?:"{3}(.*?)(?:"{3}|\Z)|'{3}(.*?)(?:'{3}|\Z)|"([^"\n]*)"|'([^'\n]*)')""",
    re.DOTALL,
)
_XML = re.compile(r"</?(?:summary|para|remarks|returns|value)/?>")
_LONGEST_COMMENT = 20_000


class Above(NamedTuple):
    """The comments and attributes above a definition that belong to it."""

    first: int
    docstring: str


def above(
    source: SourceText, row: int, floor: int, comment: str, attributes: dict[int, int]
) -> Above:
    """Find the comments and attributes directly above `row`, not going above row `floor`."""
    lines = source.lines
    first = row
    said: list[tuple[int, int]] = []
    indent = indent_of(lines[row])
    while first > floor:
        before = first - 1
        if before in attributes:
            if attributes[before] < floor:
                break
            first = attributes[before]
            continue
        line = lines[before].strip()
        start = before
        if line.startswith(comment):
            if line.startswith("#!") or indent_of(lines[before]) != indent:
                break
        elif comment == "//" and line.endswith("*/"):
            while start > floor and "/*" not in lines[start]:
                start -= 1
            if not lines[start].lstrip().startswith("/*"):
                break
        else:
            break
        said.append((start, before))
        first = start
    text = "\n".join("\n".join(lines[a : b + 1]) for a, b in reversed(said))
    plain = comment_text(text)
    # A licence at the top of a file is not about the definition below it.
    return Above(first, "" if first == 0 and _LICENCE.search(plain) else plain)


def comment_text(text: str) -> str:
    """Return a comment's text, without comment marks and directives for tools."""
    if not text:
        return ""
    lines = []
    for line in text[:_LONGEST_COMMENT].split("\n"):
        bare = _MARKS.sub("", _CLOSE.sub("", line)).rstrip()
        if (bare and _RULER.match(bare)) or _TOOL_DIRECTIVE.match(bare):
            continue
        lines.append(bare)
    return plain_text(_XML.sub("", "\n".join(lines)))


def plain_text(text: str) -> str:
    """Dedent all lines but the first, and strip blank lines at both ends, as for a docstring."""
    first, _, rest = text.partition("\n")
    lines = [line.rstrip() for line in rest.split("\n")] if rest else []
    margin = min((len(indent_of(line)) for line in lines if line), default=0)
    return "\n".join([first.strip(), *(line[margin:] for line in lines)]).strip()


def string_text(text: str) -> str:
    """Return the text of the string literal that `text` begins with; empty if there is none."""
    found = _STRING.match(text[:_LONGEST_COMMENT])
    return plain_text(next((part for part in found.groups() if part), "")) if found else ""


def module_docstring(source: SourceText, first: int, last: int, comment: str, python: bool) -> str:
    """Return a file's docstring or top comment, in rows `first` to `last` (inclusive)."""
    row, run = first, 0
    said: list[str] = []
    while row <= last and len(said) < 40:
        line = source.lines[row].strip()
        run = row
        if not line or line.startswith(("<?php", "#!")):
            row += 1
            continue
        if line.startswith(comment):
            while row < last and source.lines[row + 1].strip().startswith(comment):
                row += 1
        elif comment == "//" and line.startswith("/*"):
            while row < last and "*/" not in source.lines[row]:
                row += 1
        else:
            break
        row += 1
        said.append(comment_text("\n".join(source.lines[run:row])))
    if python and row <= last:
        return string_text("\n".join(source.lines[row : last + 1]).lstrip())
    if python:
        return ""
    return next((text for text in said if text and not _LICENCE.search(text)), "")


_COMMENTS = {
    "#": re.compile(r"(?:^|\s)#(?:\s[^\n]*|(?=\n|$))", re.MULTILINE),
    "//": re.compile(r"(?:^|\s)//[^\n]*|/\*.*?\*/", re.MULTILINE | re.DOTALL),
}
_ATTRIBUTE = re.compile(r"(?:@(?!interface\b)[\w.]+(?:\([^()]*\))?|#?\[[^\[\]]*\])\s*")
_BRACKETS = re.compile(r"(?<=[(\[]) | (?=[)\]])")
_LAST_COMMA = re.compile(r",(?=[)\]])")
_ENDS = " \t{:=;,"
_MODIFIED = {"function", "class", "interface", "type", "exported", "constant", "outer"}
"""The roles of definitions before which the grammar leaves words such as `public`."""


def signature_of(source: SourceText, definition: Definition, comment: str) -> str:
    """Return the text from a definition's first word to its body, with white space collapsed."""
    start = definition.header
    end = definition.body if definition.body > start else definition.end
    text = source.between(start, min(end, start + 4 * LONGEST_SIGNATURE))
    if definition.role in _MODIFIED:
        text = _modifiers(source, definition) + text
    while (attribute := _ATTRIBUTE.match(text)) and attribute.end():
        text = text[attribute.end() :]
    text = _COMMENTS[comment].sub("", text)
    line = _LAST_COMMA.sub("", _BRACKETS.sub("", " ".join(text.split())))
    if definition.body > start:
        line = line.rstrip(_ENDS) if not line.endswith("=>") else line
    return clipped(line.rstrip(" \t;"), LONGEST_SIGNATURE)


def _modifiers(source: SourceText, definition: Definition) -> str:
    # `export default`, `public static`: words that the grammar has outside the definition's node.
    before = source.between(max(definition.start, definition.header - 80), definition.header)
    words = before.rpartition("\n")[2]
    return words if words.replace(" ", "").isalpha() else ""


_LONGEST_BLOCK = 120
_BLOCK_ROWS = 80
_MOST_BLOCKS = 40
IMPORTS = "imports"
# Lines that only close a bracket or block, and lines that guard imports.
_CLOSING = re.compile(r"\s*(?:[\W_]*|\}.*|#\s*(?:endif|else)\b.*|end\b.*|fi|done|esac|\?>)\s*$")
_GUARD = re.compile(
    r"\s*(?:try:|except (?:ImportError|ModuleNotFoundError).*:|if (?:\w+\.)?TYPE_CHECKING:|else:"
    r"|pass|#\s*(?:pragma|ifndef|ifdef|if|else|elif|endif)\b.*|#\s*define\s+\w+"
    r"|(?:inline )?namespace [\w:]*\s*\{?|extern \"C\" \{)\s*$"
)


def add_blocks(
    source: SourceText,
    top: list[Piece],
    aside: list[tuple[int, int]],
    calls: list[tuple[int, str]],
    comment: str,
) -> list[Piece]:
    """Return blocks for lines between the outermost scopes, which take over closing brackets."""
    skipped = bytearray(len(source.lines))
    for first, last in aside:
        skipped[first : last + 1] = b"\1" * (min(last + 1, len(skipped)) - first)
    size = max(_BLOCK_ROWS, len(source.lines) // _MOST_BLOCKS)
    blocks: list[Piece] = []
    for start, end, before in _gaps(source, top):
        if before is not None and _belongs_above(source, start, end, comment):
            before.last = end - 1
            continue
        long = end - start > max(_LONGEST_BLOCK, size * 3 // 2)
        for first, behind in windows(source, start, end, size) if long else [(start, end)]:
            block = Piece("block", first, behind - 1)
            if _is_imports(source, skipped, first, behind, comment):
                block.name = block.qualified = IMPORTS
            block.signature = first_words(source, first, behind)
            blocks.append(block)
    _give_calls(source, blocks, calls)
    return blocks


def _gaps(source: SourceText, top: list[Piece]) -> list[tuple[int, int, Piece | None]]:
    """Return the ranges of rows that no scope covers, trimmed, each with the scope before it."""
    gaps: list[tuple[int, int, Piece | None]] = []
    row, before = 0, None
    for piece in sorted(top, key=lambda one: (one.first, -one.last)):
        if rows := trimmed(source, row, piece.first):
            gaps.append((*rows, before))
        if piece.last >= row:
            row, before = piece.last + 1, piece
    if rows := trimmed(source, row, len(source.lines)):
        gaps.append((*rows, before))
    return gaps


def _belongs_above(source: SourceText, start: int, end: int, comment: str) -> bool:
    lines = [line for line in source.lines[start:end] if line and not line.isspace()]
    if comment == "#" and all(line[0] in " \t" for line in lines):
        return True  # indented: a comment at the end of a body
    return len(lines) <= 10 and all(_CLOSING.match(line) for line in lines)


def _is_imports(source: SourceText, skipped: bytearray, start: int, end: int, comment: str) -> bool:
    any_skipped, is_open = False, False
    for row in range(start, end):
        line = source.lines[row].strip()
        if skipped[row]:
            any_skipped = True
        elif is_open or (comment == "//" and line.startswith("/*")):
            is_open = "*/" not in line
        elif line and not line.startswith(comment) and not _GUARD.match(line):
            return False
    return any_skipped


def _give_calls(source: SourceText, blocks: list[Piece], calls: list[tuple[int, str]]) -> None:
    if not calls or not blocks:
        return
    starts = source.row_starts()
    firsts = [block.first for block in blocks]
    for start, name in calls:
        row = bisect_right(starts, start) - 1
        place = bisect_right(firsts, row) - 1
        if place >= 0 and row <= blocks[place].last:
            blocks[place].calls[name] = None


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
_CONTAINERS = {
    "class": "class", "interface": "class", "impl": "class", "module": "top",
    "function": "function", "inline": "function",
}  # fmt: skip


class _OpenDefinition(msgspec.Struct):
    """A definition that may contain the ones that follow."""

    definition: Definition
    piece: Piece | None
    path: str
    """The prefix of the qualified names of definitions in it."""
    within: str
    """The kind of container that it is: `top`, `class`, `suite`, `function` or `leaf`."""
    last_row: int
    """The last row of the scopes in it so far."""


class _Cutter:
    """Makes scopes of the definitions of one file, taken in order."""

    def __init__(self, source: SourceText, language: str, found: ParsedFile) -> None:
        self.source = source
        self.language = language
        self.comment = GRAMMARS[language].comment
        self.found = found
        self.pieces: list[Piece] = []
        self.top: list[Piece] = []
        self.places: list[tuple[int, int, Piece]] = []
        """The first and last byte of each scope, for assigning calls."""
        self._open: list[_OpenDefinition] = []
        self._prefix = ""
        self._last_row = -1
        self._one_liners = sum(
            one.first == one.last and _kind_of(one, language) == "constant"
            for one in found.definitions
        )

    def take(self, one: Definition) -> None:
        """Make a scope of a definition, or leave its lines to the scope that contains it."""
        while self._open and self._open[-1].definition.end <= one.start:
            self._open.pop()
        outer = self._open[-1] if self._open else None
        path = outer.path if outer else self._prefix
        name, owner = _names_of(one, self.language)
        one.last = min(one.last, len(self.source.lines) - 1)
        if not name or one.first > one.last:
            return
        if one.role == "prefix":
            self._prefix = name
            return
        if one.role == "namespace":
            within = outer.within if outer else "top"
            piece = outer.piece if outer else None
            self._open.append(_OpenDefinition(one, piece, _joined(path, name), within, one.first))
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
        if self.language == "python" and one.body >= 0:
            top = self.source.between(one.body, min(one.end, one.body + 20_000))
            piece.docstring = string_text(top) or said.docstring
        inner = _joined(path, name) if one.role == "impl" else _joined(path, owner, name)
        self._add(one, piece, outer, inner)

    def _add(self, one: Definition, piece: Piece, outer: _OpenDefinition | None, path: str) -> None:
        within = outer.piece if outer else None
        (within.parts if within else self.top).append(piece)
        self.pieces.append(piece)
        self.places.append((one.start, one.end, piece))
        self._last_row = max(self._last_row, piece.last)
        for each in self._open:
            each.last_row = max(each.last_row, piece.last)
        self._open.append(_OpenDefinition(one, piece, path, _within(one), one.first))

    def _is_worth(
        self, one: Definition, outer: _OpenDefinition | None, is_documented: bool
    ) -> bool:
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
        """Assign each call to the innermost scope that contains it; return the others."""
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


def code_pieces(source: SourceText, language: str, found: ParsedFile) -> list[Piece]:
    """Return the scopes of a parsed file; every line that isn't blank is in at least one."""
    if language == "python":
        for one in found.definitions:
            if one.role == "constant" and _CAMEL.match(one.name):
                text = source.between(one.start, min(one.end, one.start + 200))
                one.role = "type" if _ALIASED.match(text) else "constant"
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
        if first.docstring and first.name:  # with a docstring it is more than imports
            first.name = first.qualified = ""
    return cutter.pieces + blocks


def _kind_of(one: Definition, language: str) -> ScopeKind | None:
    # By role and name; None if the definition isn't worth a scope.
    if one.role != "constant":
        return _KINDS.get(one.role, "function")
    if _UPPER.match(one.name) or (language == "go" and one.name[:1].isupper()):
        return "constant"
    return None


def _scope_kind(one: Definition, outer: _OpenDefinition | None, owner: str) -> ScopeKind:
    if one.role in _KINDS:
        return _KINDS[one.role]
    return "method" if owner or (outer and outer.within == "class") else "function"


def _within(one: Definition) -> str:
    if one.role == "tested":
        return "suite" if one.tester in _SUITES else "function"
    return _CONTAINERS.get(one.role, "leaf")


def _names_of(one: Definition, language: str) -> tuple[str, str]:
    """Return a definition's name, and the owner that it names itself (`C` in `C::method`)."""
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
    # Remove type arguments, from the inside out; they are rarely nested deeply.
    for _ in range(8):
        shorter = _GENERIC.sub("", name)
        if shorter == name:
            break
        name = shorter
    return name.strip()


def _joined(*names: str) -> str:
    return ".".join(name for name in names if name)


__all__ = ["cut", "language_of"]

_MOST_SCOPES = 4000
"""The most scopes of one file: more are a table of data, whose rows nobody looks up by name."""


def cut(path: str, data: bytes) -> Cut:
    """Cut a file into scopes; no data makes this raise.

    A file is cut by lines if there is no parser for its language, if it is larger than a
    megabyte, if parsing takes too long, or if it has thousands of scopes.
    """
    language = language_of(path, data)
    source = SourceText(data)
    generated = is_generated(source.text, len(source.lines), language)
    imports: tuple[str, ...] = ()
    found = parse(source, language) if language in GRAMMARS and not generated else None
    if found is not None:
        pieces = code_pieces(source, language, found)
        imports = imports_of(language, found.imports)
    elif language in HEADED and len(data) <= LARGEST:
        pieces = section_pieces(source, language)
    else:
        pieces = text_pieces(source, language)
    if len(pieces) > _MOST_SCOPES:
        pieces = text_pieces(source, language)
    return Cut(
        language=language,
        scopes=scopes_of(source, pieces),
        imports=imports,
        line_count=len(source.lines),
        generated=generated,
    )

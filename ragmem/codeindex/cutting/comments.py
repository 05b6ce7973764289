"""What is said about a definition: comments above it, strings at its top."""

import re
from typing import NamedTuple

from ragmem.codeindex.cutting.source import Source, indent_of

_MARKS = re.compile(r"^\s*(?:/\*\*?!?<?|///?!?<?|//!|\*+/|\*(?!\*)|#+!?|--)?[ \t]?")
_CLOSE = re.compile(r"\s*\*+/\s*$")
_RULE = re.compile(r"^[\W_]*$")
_FOR_TOOLS = re.compile(
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
_LONGEST = 20_000


class Above(NamedTuple):
    """The lines above a definition that belong to it."""

    first: int
    docstring: str


def above(source: Source, row: int, floor: int, comment: str, attributes: dict[int, int]) -> Above:
    """Comments and attributes that end right above `row`; none of them before the row `floor`."""
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
    # A licence at the top says nothing about what stands below it.
    return Above(first, "" if first == 0 and _LICENCE.search(plain) else plain)


def comment_text(text: str) -> str:
    """What a comment says, without its marks and what only tools read."""
    if not text:
        return ""
    lines = []
    for line in text[:_LONGEST].split("\n"):
        bare = _CLOSE.sub("", line)
        bare = bare[_matched(bare) :].rstrip()
        if (bare and _RULE.match(bare)) or _FOR_TOOLS.match(bare):
            continue
        lines.append(bare)
    return plain_text(_XML.sub("", "\n".join(lines)))


def _matched(line: str) -> int:
    found = _MARKS.match(line)
    return found.end() if found else 0


def plain_text(text: str) -> str:
    """Without the indentation of all lines but the first, and the empty lines around."""
    first, _, rest = text.partition("\n")
    lines = [line.rstrip() for line in rest.split("\n")] if rest else []
    margin = min((len(indent_of(line)) for line in lines if line), default=0)
    return "\n".join([first.strip(), *(line[margin:] for line in lines)]).strip()


def string_text(text: str) -> str:
    """What the string says that `text` begins with; empty: it begins with none."""
    found = _STRING.match(text[:_LONGEST])
    return plain_text(next((part for part in found.groups() if part), "")) if found else ""


def module_docstring(source: Source, first: int, last: int, comment: str, python: bool) -> str:
    """What a file says about itself at its top, in rows `first` to `last` (included)."""
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

"""Whether a program has written a file."""

import re

_HEAD_LINES = 60
_COMMENT = re.compile(r'\s*(?:#|//|/\*|\*|--|;|<!--|"{3}|\'{3}|%|REM\b|dnl\b)', re.IGNORECASE)
# What may stand before the comment that says so.
_BEFORE = re.compile(
    r"\s*(?:$|<\?|<!DOCTYPE|package\b|namespace\b|import\b|from\b|using\b|use\b|@file:|\{|option\b"
    r"""|syntax\b|["']use strict)"""
)
_SAYS_SO = re.compile(
    r"""\W*(?:REM\b\s*|dnl\b\s*)?(?:
        .{0,80}\bcode\ generated\b.*\bdo\ not\ edit\b
      | .*\bgenerated\b.*\bdo\ not\ (?:edit|modify|change|touch)\b
      | .{0,20}(?<![\w`"'])@generated\b
      | (?:(?:this|the)\ (?:\w+\ ){0,2}?)?
        (?:file|code|module|source|class|header|document)\ (?:\S+\ )?
        (?:is|was|has\ been|are)\ (?:\w+ly\ )?(?:auto[- ]?)?generated\b
      | <auto-?generated\b
      | (?-i:A)(?:uto|utomatically)[- ]?generated\b
      | (?-i:G)enerated\ (?:by|from|with|using|automatically)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_PROSE = frozenset(("text", "markdown", "rst", "asciidoc", "csv", "ini"))
_DATA = frozenset(("yaml", "toml", "html", "xml", "vue", "svelte"))
_MINIFIED_FROM = 5000
_MINIFIED_LINE = 400


def is_generated(text: str, line_count: int, language: str) -> bool:
    """It says so in a comment at its top, or is code without lines (minified), or a map of it."""
    if language in _PROSE:
        return False
    if language == "json":
        return text[:100].lstrip().startswith("{") and '"mappings"' in text and '"sources"' in text
    if (
        language not in _DATA
        and len(text) > _MINIFIED_FROM
        and len(text) / max(1, line_count) > _MINIFIED_LINE
    ):
        return True
    return _says_so(text[:4000])


def _says_so(head: str) -> bool:
    if "generated" not in head.casefold():
        return False
    inside = ""
    for line in head.split("\n")[:_HEAD_LINES]:
        line = line[:300]
        if not inside and not _COMMENT.match(line):
            if not _BEFORE.match(line):
                return False
            continue
        if _SAYS_SO.match(line):
            return True
        # A comment of many lines goes on without a mark of its own.
        opened = next((end for mark, end in _MANY if line.lstrip().startswith(mark)), "")
        if inside and inside in line:
            inside = ""
        elif not inside and opened and opened not in line.lstrip()[len(opened) :]:
            inside = opened
    return False


_MANY = (("/*", "*/"), ("<!--", "-->"), ('"""', '"""'), ("'''", "'''"))

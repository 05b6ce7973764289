"""Replace a piece of text: exactly, or adapted to the indentation of the file."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from ragmem.tools.base import ToolFailure
from ragmem.tools.content import Region, Text, window

_SHOWN_LINES, _SHOWN_CHARS = 7, 300
"""Most lines shown of the closest match, and characters of each."""
_MANY = 100
"""A line that occurs more often than this says nothing about where a piece belongs."""
_MOST_COMPARED, _COMPARED_CHARS = 5_000, 400
"""How many lines are compared for similarity when no line matches exactly, and how much of each."""
_LEAST_ALIKE = 0.5
"""Least similarity of the line that is shown as the closest."""


class NoMatch(ToolFailure):
    """The text to be replaced does not occur."""


def replace_text(text: str, old: str, new: str, *, replace_all: bool) -> tuple[str, list[int]]:
    """Return the text with `old` replaced, and the line numbers where it occurred.

    `old` must match exactly. In a text with CR LF its line ends may be given as LF, and
    replacements get the line ends of their place. Raises NoMatch if it does not occur, ToolFailure
    if it occurs several times without `replace_all`.
    """
    if not old:
        raise ToolFailure("`old` is empty. Give the exact text to replace, or use write_file.")
    if old == new:
        raise ToolFailure("`old` and `new` are the same; there is nothing to change.")
    has_crlf = "\r\n" in text
    if has_crlf:
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    pattern = re.escape(old)
    if has_crlf:
        # Match a line end of either style, but never half of one.
        pattern = pattern.replace("\\\r", r"\r(?!\n)").replace("\\\n", r"(?:\r\n|(?<!\r)\n)")
    wanted = re.compile(pattern)
    found = list(wanted.finditer(text))
    if not found:
        raise _no_match(text, old)
    lines = [text.count("\n", 0, place.start()) + 1 for place in found]
    if not replace_all and wanted.search(text, found[0].start() + 1):
        raise ToolFailure(
            f"`old` matches {max(2, len(lines))} places (lines {listed(lines)}). Nothing was "
            "changed. Include more of the surrounding lines, or set replace_all."
        )
    mostly_crlf = 2 * text.count("\r\n") >= text.count("\n")

    def put(place: re.Match[str]) -> str:
        ends = place[0].count("\n")
        is_crlf = 2 * place[0].count("\r\n") >= ends if ends else mostly_crlf
        return new.replace("\n", "\r\n") if has_crlf and is_crlf else new

    return wanted.sub(put, text), lines


def replace_indented(text: str, old: str, new: str) -> tuple[str, int] | None:
    """Replace lines that differ from `old` in whitespace alone; return the text and the first line.

    Whitespace may differ at line ends, and in an indentation that is shifted as a whole. `new` is
    shifted likewise, and lines that `old` and `new` both begin or end with stay as they are in the
    text. Returns None unless there is exactly one such place.
    """
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if new and old.endswith("\n") != new.endswith("\n"):
        return None
    wanted, lines = old.removesuffix("\n").split("\n"), text.split("\n")
    places = _places(lines, wanted)
    if len(places) != 1:
        return None
    start, stop = places[0], places[0] + len(wanted)
    found = lines[start:stop]
    put = new.removesuffix("\n").split("\n") if new or not old.endswith("\n") else []
    rows = _shifted(put, wanted, found)
    if rows is None:
        return None
    head = common(wanted, put)
    tail = common(wanted[head:][::-1], put[head:][::-1])
    end = "\r" * (2 * sum(line.endswith("\r") for line in found) >= len(found))
    middle = [row + end for row in rows[head : len(rows) - tail]]
    if middle and not tail:
        middle[-1] = rows[-1] + "\r" * found[-1].endswith("\r")
    lines[start:stop] = found[:head] + middle + found[len(found) - tail :]
    return "\n".join(lines), start + 1


def _places(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the indices at which the wanted lines occur, ignoring surrounding whitespace."""
    bare, sought = list(map(_bare, lines)), list(map(_bare, wanted))
    row = max(range(len(sought)), key=lambda at: len(sought[at]))
    if not sought[row]:
        return []
    starts = [at - row for at, line in enumerate(bare) if line == sought[row] and at >= row]
    return [at for at in starts if bare[at : at + len(sought)] == sought]


def _shifted(rows: list[str], wanted: list[str], found: list[str]) -> list[str] | None:
    """Shift the indentation of rows as that of the found lines differs from the wanted ones.

    Returns None unless the difference is the same everywhere.
    """
    pairs = [(_indent(a), _indent(b)) for a, b in zip(wanted, found, strict=True) if _bare(a)]
    less, more = pairs[0]
    kept = common(less[::-1], more[::-1])
    less, more = less[: len(less) - kept], more[: len(more) - kept]
    if any(not a.startswith(less) or b != more + a[len(less) :] for a, b in pairs):
        return None
    if any(_bare(row) and not row.startswith(less) for row in rows):
        return None
    return [more + row[len(less) :] if _bare(row) else row for row in rows]


def _bare(line: str) -> str:
    return line.removesuffix("\r").strip(" \t")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def common(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the common prefix of two sequences."""
    differing = (at for at, (left, right) in enumerate(zip(a, b, strict=False)) if left != right)
    return next(differing, min(len(a), len(b)))


def listed(lines: list[int]) -> str:
    """Return line numbers as text, at most the first ten."""
    return ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")


def _no_match(text: str, old: str) -> NoMatch:
    message = "`old` is not in the file. Nothing was changed."
    wanted = old.strip("\n").split("\n")
    if all(line.lstrip()[:1].isdigit() and "\t" in line for line in wanted):
        return NoMatch(f"{message} Leave out the line numbers that read_file shows.")
    lines = text.split("\n")
    places = _places(lines, wanted)
    if len(places) > 1:
        at = listed([place + 1 for place in places])
        return NoMatch(
            f"{message} Whitespace aside, it matches {len(places)} places (lines {at}). "
            "Include more of the surrounding lines, and copy them exactly."
        )
    near = _nearest(list(map(_bare, lines)), list(map(_bare, wanted)))
    if near is None:
        return NoMatch(f"{message} Read the file again and copy the text exactly.")
    page = window(
        Region(text=Text(text=text), first_line=1),
        near + 1,
        _SHOWN_LINES,
        width=_SHOWN_CHARS,
        max_bytes=_SHOWN_LINES * _SHOWN_CHARS,
    )
    hint = f"{message} The closest text is at line {near + 1}"
    return NoMatch(f"{hint}; copy what you want to replace exactly:\n{page.body}", shown=f"{hint}.")


def _nearest(lines: list[str], wanted: list[str]) -> int | None:
    """Return the index where lines most resemble the wanted ones; None if nothing is similar."""
    places = defaultdict[str, list[int]](list)
    exact = {line for line in wanted if line}
    for at, line in enumerate(lines):
        if line in exact:
            places[line].append(at)
    votes = Counter(
        at - row
        for row, line in enumerate(wanted)
        if len(places[line]) <= _MANY
        for at in places[line]
    )
    if votes:
        best = max(votes, key=lambda at: (votes[at], -at))
        start, cut = max(0, best), max(0, -best)
        differs = common(lines[start:], wanted[cut:])
        is_shown = differs < _SHOWN_LINES or cut + differs == len(wanted)
        return start if is_shown else start + differs - _SHOWN_LINES // 2
    first = next((line for line in wanted if line), "")
    if not first:
        return None
    sought = _parts(first)
    alike = [_alike(sought, _parts(line)) for line in lines[:_MOST_COMPARED]]
    most = max(alike)
    return alike.index(most) if most >= _LEAST_ALIKE else None


def _parts(line: str) -> set[str]:
    """Return all runs of three characters."""
    return {line[at : at + 3] for at in range(max(1, min(len(line), _COMPARED_CHARS) - 2))}


def _alike(first: set[str], second: set[str]) -> float:
    """Return their Dice coefficient: the share of parts that they have in common, 0 to 1."""
    return 2 * len(first & second) / (len(first) + len(second))

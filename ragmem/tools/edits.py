"""Changing a text, and showing the change: pure functions."""

import re
from bisect import bisect_left

from ragmem.tools.base import ToolFailure

_MAX_COMPARED = 4_000_000
"""Product of the line counts up to which two middles are compared line by line."""
_MOST_CHANGED = 50
_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def replace_text(text: str, old: str, new: str, *, replace_all: bool) -> tuple[str, list[int]]:
    """The text with `old` replaced, and the line numbers where it was.

    `old` must match exactly; in a text with CR LF its line ends may be given as
    LF, and what replaces them takes the style of the place. ToolFailure when
    there is no match, or several without `replace_all`.
    """
    if not old:
        raise ToolFailure("`old` is empty. Give the exact text to replace, or use write_file.")
    if old == new:
        raise ToolFailure("`old` and `new` are the same; there is nothing to change.")
    if "\r\n" not in text:
        starts = _matches(text, old, replace_all=replace_all)
        spans = [(start, start + len(old)) for start in starts]
        return _join(text, spans, [new] * len(spans)), [_line_at(text, s) for s, _ in spans]
    # Positions in the text with LF alone, mapped back: what is not replaced stays byte for byte.
    flat, old, new = (part.replace("\r\n", "\n") for part in (text, old, new))
    returns = _carriage_returns(text)
    starts = _matches(flat, old, replace_all=replace_all)

    def back(at: int) -> int:
        return at + bisect_left(returns, at)

    spans = [(back(start), back(start + len(old))) for start in starts]
    default_crlf = 2 * len(returns) >= text.count("\n")
    news = []
    for start, end in spans:
        ends = text.count("\n", start, end)
        crlf = 2 * text.count("\r\n", start, end) >= ends if ends else default_crlf
        news.append(new.replace("\n", "\r\n") if crlf else new)
    return _join(text, spans, news), [_line_at(flat, s) for s in starts]


def unified_diff(old: str, new: str, path: str) -> tuple[str, int, int]:
    """A unified diff without its end, and how many lines it adds and removes.

    Line ends are left out of sight where both sides have the same; a change of
    line ends alone shows.
    """
    flat = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if flat[0] != flat[1]:
        old, new = flat
    a, b = _lines(old), _lines(new)
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    context = 3
    skip = max(0, head - context)
    stop = max(0, tail - context)
    a, b = a[skip : len(a) - stop], b[skip : len(b) - stop]
    lines = _compare(a, b, skip)
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return "\n".join([f"--- {path}", f"+++ {path}", *lines]), added, removed


def changed_lines(diff: str) -> list[tuple[int, int, int]]:
    """First and last line of each stretch that a unified diff changes, as they are afterwards.

    With how many lines were there before. What was only taken away is told by the line before it.
    """
    found: list[tuple[int, int, int]] = []
    number, removed = 1, 0

    def note(line: int, more: int) -> None:
        if found and (len(found) == _MOST_CHANGED or line <= found[-1][1] + 1):
            first, last, grown = found[-1]
            found[-1] = (first, max(line, last), grown + more)
        else:
            found.append((line, line, more))

    for row in diff.split("\n")[2:]:
        if removed and not row.startswith(("-", "+", "\\")):
            note(max(1, number - 1), -removed)
            removed = 0
        if hunk := _HUNK.match(row):
            number = max(1, int(hunk[1]) + (hunk[2] == "0"))
        elif row.startswith("-"):
            removed += 1
        elif row.startswith("+"):
            note(number, 1 - removed)
            removed, number = 0, number + 1
        elif row.startswith(" "):
            number += 1
    if removed:
        note(max(1, number - 1), -removed)
    return [(first, last, last - first + 1 - grown) for first, last, grown in found]


def _matches(text: str, old: str, *, replace_all: bool) -> list[int]:
    first = text.find(old)
    if first < 0:
        raise ToolFailure(_no_match(text, old))
    if not replace_all:
        if text.find(old, first + 1) >= 0:
            places = [_line_at(text, at) for at in _every(text, old)]
            listed = ", ".join(map(str, places[:10])) + (", …" if len(places) > 10 else "")
            raise ToolFailure(
                f"`old` matches {max(2, len(places))} places (lines {listed}). Nothing was "
                "changed. Give more of the surrounding lines, or set replace_all."
            )
        return [first]
    return _every(text, old)


def _every(text: str, old: str) -> list[int]:
    found, at = [], text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + len(old))
    return found


def _no_match(text: str, old: str) -> str:
    message = "`old` is not in the file. Nothing was changed."
    lines = old.strip("\n").split("\n")
    if all(line.lstrip()[:1].isdigit() and "\t" in line for line in lines):
        return f"{message} Leave out the line numbers that read_file shows."
    wanted = next((line.strip() for line in lines if line.strip()), "")
    near = [n for n, line in enumerate(text.split("\n"), 1) if wanted and line.strip() == wanted]
    if near:
        listed = ", ".join(map(str, near[:5]))
        return (
            f"{message} Its first line stands at line {listed}, but white space or the lines "
            "after it differ. Read those lines again and copy them exactly."
        )
    return f"{message} Read the file again and copy the text exactly."


def _carriage_returns(text: str) -> list[int]:
    """Where, in the text with LF alone, a line end had a carriage return before it."""
    found: list[int] = []
    at = text.find("\r\n")
    while at >= 0:
        found.append(at - len(found))
        at = text.find("\r\n", at + 2)
    return found


def _join(text: str, spans: list[tuple[int, int]], news: list[str]) -> str:
    parts, position = [], 0
    for (start, end), new in zip(spans, news, strict=True):
        parts += [text[position:start], new]
        position = end
    return "".join([*parts, text[position:]])


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        return lines[:-1]
    lines[-1] += "\n\\ No newline at end of file"
    return lines


def _common(a: list[str], b: list[str]) -> int:
    count = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        count += 1
    return count


def _compare(a: list[str], b: list[str], skipped: int) -> list[str]:
    if len(a) * len(b) > _MAX_COMPARED:
        header = f"@@ -{skipped + 1},{len(a)} +{skipped + 1},{len(b)} @@"
        return [header, *(f"-{line}" for line in a), *(f"+{line}" for line in b)]
    from difflib import SequenceMatcher

    out = []
    for group in SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(3):
        first, last = group[0], group[-1]
        out.append(
            f"@@ -{_range(first[1], last[2], skipped)} +{_range(first[3], last[4], skipped)} @@"
        )
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                out += [f" {line}" for line in a[a1:a2]]
                continue
            out += [f"-{line}" for line in a[a1:a2]]
            out += [f"+{line}" for line in b[b1:b2]]
    return out


def _range(start: int, stop: int, skipped: int) -> str:
    length = stop - start
    begin = start + skipped + (1 if length else 0)
    return f"{begin}" if length == 1 else f"{begin},{length}"

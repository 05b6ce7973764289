"""Replacing text, diffs, globs, terminal output: the pure parts."""

import re

import pytest
from hypothesis import assume, given, strategies as st

from ragmem.text import plain, spelled
from ragmem.tools.base import ToolFailure
from ragmem.tools.content import Region, count_lines, decode, window
from ragmem.tools.files import unified_diff
from ragmem.tools.replacing import NoMatch, replace_indented, replace_text
from ragmem.tools.workspace import matcher

PIECES = st.sampled_from(
    ["a", "b", "é", "😀", "\n", "\r\n", "\r", "\t", " ", "\u2028", "\x0c", "\x85", "\ufeff"]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)
LINES = st.lists(st.sampled_from(["a", "b", "c", "", "\r"]), max_size=12).map("\n".join)


@given(st.binary(max_size=200))
def test_any_bytes_survive_decoding(data):
    """As UTF-16 too; what lacks its mark is no UTF-16."""
    for whole in (data, b"\xff\xfe" + data, b"\xfe\xff" + data, b"\xef\xbb\xbf" + data):
        text = decode(whole)
        assert text.encode(text.text) == whole
    assert decode("x\né".encode("utf-16-le")).encoding == "latin-1"


@given(TEXTS, TEXTS, TEXTS.map(lambda t: t.replace("\r", "")), TEXTS)
def test_an_edit_changes_nothing_else(before, old, new, after):
    """Read, edit, and every byte outside of the span is what it was."""
    assume(old and old != new)
    # A place that begins or ends within a CR LF is not one that read_file can show.
    assume(not (before.endswith("\r") and old.startswith("\n")))
    assume(not (old.endswith("\r") and after.startswith("\n")))
    whole = before + old + after
    flat, part = (text.replace("\r\n", "\n") for text in (whole, old))
    if "\r\n" not in whole:
        flat, part = whole, old
    try:
        changed, (line,) = replace_text(whole, old, new, replace_all=False)
    except ToolFailure:
        assert flat.find(part) != flat.rfind(part) or part == new
        return
    assert flat.find(part) == flat.rfind(part)
    middle = changed[len(before) : len(changed) - len(after)]
    assert before + middle + after == changed
    assert middle.replace("\r\n", "\n") == new
    assert line == before.count("\n") + 1


@given(TEXTS, st.sampled_from(["a", "\n", "b\n"]), TEXTS)
def test_replace_all_replaces_all(text, old, new):
    assume("\r\n" not in text and "\r\n" not in new and old != new)
    try:
        changed, lines = replace_text(text, old, new, replace_all=True)
    except ToolFailure:
        assert old not in text
        return
    assert changed == text.replace(old, new)
    assert len(lines) == text.count(old)


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\n"),
        ("a\nb\r\nc\nd\n", "c", "x\ny", "a\nb\r\nx\ny\nd\n"),
        ("a\nb\r\nc\nd\n", "b\nc", "x\ny", "a\nx\r\ny\nd\n"),
        ("one\n", "one\n", "", ""),
    ],
)
def test_line_ends_of_the_place_are_kept(text, old, new, expected):
    """Claude #60174, openclaw #116011: CR LF stays CR LF; a mixed file stays mixed."""
    assert replace_text(text, old, new, replace_all=False)[0] == expected


@pytest.mark.parametrize(
    ("text", "old", "says"),
    [
        ("aXbXc", "X", "2 places"),
        ("aaa", "aa", "matches 2"),
        ("a", "", "empty"),
        ("a", "new", "the same"),
        ("x\n  def f():\n    return 1\n", "def f():\n\treturn 1", "line 2"),
        ("def f():\n", "     1\tdef f():", "line numbers"),
        ("abc", "zzz", "Read the file again"),
    ],
)
def test_what_does_not_match_exactly_once_is_refused(text, old, says):
    """edit_file: exact and unique, and the refusal says how to do better."""
    with pytest.raises(ToolFailure) as failure:
        replace_text(text, old, "new", replace_all=False)
    assert says in failure.value.text


CLASS = "class A:\n    def f(self):\n        if x:\n            return 1\n\n    def g(self): ...\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        pytest.param(
            CLASS, "def f(self):\n    if x:\n        return 1\n",
            "def f(self):\n    if y:\n\n        return 2\n",
            CLASS.replace("if x:\n", "if y:\n\n").replace("return 1", "return 2"), id="deeper"),
        pytest.param(
            "if x:\n  a\n  b\n", "    if x:\n      a\n", "    if y:\n      a\n    else:\n",
            "if y:\n  a\nelse:\n  b\n", id="less deep"),
        pytest.param("\tif x:\n\t\ta\n", "    if x:\n    \ta", "    if y:\n    \tb",
                     "\tif y:\n\t\tb\n", id="other white space"),
        pytest.param("a  \nb \nc  \n", "a\nb\nc", "a\nx\ny\nc", "a  \nx\ny\nc  \n", id="ends"),
        pytest.param("a\nb\n", "a  \nb\t\n", "x\n", "x\n", id="ends of old"),
        pytest.param("\ta \r\n\tb\r\nc\r\n", "a\nb", "x\ny\nz",
                     "\tx\r\n\ty\r\n\tz\r\nc\r\n", id="CR LF"),
        pytest.param("\ta\r\n\tb", "a\nb", "x\ny", "\tx\r\n\ty", id="CR LF, and none at the end"),
        pytest.param("\ta\n\tb\n", "a\r\nb\r\n", "x\r\nb\r\n", "\tx\n\tb\n", id="LF"),
        pytest.param("  a\n  b\nc\n", "a\nb\n", "", "c\n", id="deleted"),
        pytest.param("  a\n  \n  b\n", "a\n\nb", "a\n\nc", "  a\n  \n  c\n", id="blank lines"),
    ],
)  # fmt: skip
def test_lines_that_differ_in_white_space_alone_are_replaced_as_the_text_is_indented(
    text: str, old: str, new: str, expected: str
) -> None:
    with pytest.raises(NoMatch):
        replace_text(text, old, new, replace_all=False)
    found = replace_indented(text, old, new)
    assert found
    assert found[0] == expected


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        pytest.param("  a\n  b\nx\n    a\n    b\n", "a\nb\n", "c\n", id="two places"),
        pytest.param("  a\n    b\n", "a\nb\n", "c\n", id="not shifted as a whole"),
        pytest.param("  a\n  b\n", "a\nB\n", "c\n", id="another word"),
        pytest.param("  a b\n  c\n", "a  b\nc\n", "c\n", id="white space within a line"),
        pytest.param("  a\n\n  b\n", "a\nb\n", "c\n", id="a blank line"),
        pytest.param("a\n", "    a\n", "    b\n  c\n", id="new is less deep"),
        pytest.param("  a\n  b\n", "a\nb\n", "c", id="a line end"),
        pytest.param(" \n\t\n", "\n    \n\n", "c\n", id="nothing but white space"),
        pytest.param("a\u00a0\nb\n", "a\nb\n", "c\n", id="a space that does not break"),
    ],
)
def test_lines_that_differ_in_more_than_their_shift_stay(text: str, old: str, new: str) -> None:
    assert replace_indented(text, old, new) is None


@given(
    st.lists(st.sampled_from(["a", "  b", "\tc", "", "    d"]), max_size=8),
    st.lists(st.sampled_from(["x", "  y", "", "\tz"]), min_size=1, max_size=5),
    st.lists(st.sampled_from(["x", "  q", ""]), max_size=5),
    st.sampled_from(["", "  ", "\t", "    "]),
    st.sampled_from(["", "  ", "\t", "    "]),
)
def test_the_shift_of_an_edit_makes_no_difference(around, old, new, here, there) -> None:
    """What comes of it is what the same edit, exactly given, makes."""

    def text(lines: list[str], shift: str) -> str:
        return "".join(f"{shift * bool(line)}{line}\n" for line in lines)

    assume(any(old))
    whole = text(around, "") + text(old, here) + text(around, "")
    found = replace_indented(whole, text(old, there), text(new, there))
    assert found
    assert found[0] == text(around, "") + text(new, here) + text(around, "")
    assert found[1] == len(around) + 1


ROWS = [f'{{"id": {n}, "notes": "{f"order {n} came back. " * 25}"}},' for n in range(5_000)]
LONG = "".join(f"def f{n}():\n    return {n}\n\n\n" for n in range(20))


@pytest.mark.parametrize(
    ("text", "old", "shown"),
    [
        ("a\n  def f():\n    return 1\nb\n", "def f():\n\treturn 1", (2, ["  def f():", "b"])),
        (LONG, "def f9():\n    return 8\n\n\ndef f10():", (37, ["def f9():", "def f10():"])),
        (LONG, "def f9():\n    retrun 8", (37, ["def f9():", "    return 9"])),
        (LONG, "    return 9 + 1\n", (38, ["    return 9"])),
        ("\n".join("abcdefghijklm"), "\n".join("abcdefghiXklm"), (7, ["g", "j", "m"])),
        ("c\nd\n", "a\nb\nc\nd\n", (1, ["c"])),
        pytest.param(
            "\n".join(ROWS),
            ROWS[4321].replace("back", "bck"),
            (4322, [ROWS[4321][:300]]),
            id="rows",
        ),
        pytest.param("x" * 900 + "\n", "x" * 800 + "y", (1, ["x" * 300 + "…"]), id="long"),
    ],
)
def test_where_nothing_matches_the_nearest_lines_are_shown_as_read_file_shows_them(
    text: str, old: str, shown: tuple[int, list[str]]
) -> None:
    with pytest.raises(NoMatch) as failure:
        replace_text(text, old, "new", replace_all=False)
    first, lines = shown
    told, _, page = failure.value.text.partition("\n")
    assert f"closest text is at line {first};" in told
    assert page.startswith(f"{first:>6}\t{lines[0]}")
    assert all(f"\t{line}" in page for line in lines)
    assert len(page.split("\n")) <= 7
    assert "\n" not in failure.value.shown


END = "\n\\ No newline at end of file"


def as_lines(text: str) -> list[str]:
    """Lines as a diff names them, the lack of a last line feed with them."""
    *lines, last = text.split("\n")
    return [*lines, last + END] if last else lines


def apply(diff: str, lines: list[str]) -> list[str]:
    """What patch(1) would make of it; every hunk has to fit where it says."""
    rows = iter(diff.replace(END, "\0").split("\n")[2:])
    result, position = [], 0
    for row in rows:
        if header := re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", row):
            start, length = int(header[1]), int(header[2] or 1)
            start -= length > 0
            result += lines[position:start]
            assert len(result) == int(header[3]) - (int(header[4] or 1) > 0)
            position = start
            continue
        sign, line = row[0], row[1:].replace("\0", END)
        if sign != "+":
            assert lines[position] == line
            position += 1
        if sign != "-":
            result.append(line)
    return result + lines[position:]


@given(LINES, LINES)
def test_a_diff_applies(old, new):
    """What is approved is what happens: the diff turns the old lines into the new ones."""
    assume("\r\n" not in old + new and old != new)
    diff, added, removed = unified_diff(old, new, "f")
    assert apply(diff, as_lines(old)) == as_lines(new)
    assert added - removed == len(as_lines(new)) - len(as_lines(old))


def test_diff_of_one_line():
    old = "".join(f"{n}\n" for n in range(1, 21))
    diff, added, removed = unified_diff(old, old.replace("10\n", "ten\n") + "end", "src/a.txt")
    assert (added, removed) == (2, 1)
    assert diff == (
        "--- src/a.txt\n+++ src/a.txt\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
        "@@ -18,3 +18,4 @@\n 18\n 19\n 20\n+end\n\\ No newline at end of file"
    )
    diff, added, removed = unified_diff("a\r\nb\r\n", "a\nb\n", "f")
    assert (added, removed) == (2, 2)
    assert "-a\r" in diff, "line ends alone show"
    diff, added, removed = unified_diff("a\nb\n", "a\r\nc\r\n", "f")
    assert (added, removed) == (2, 2)
    assert "+a\r\n+c\r" in diff, "so do they beside another change"
    assert "\r" not in unified_diff("a\r\nb\r\n", "a\r\nc\r\n", "f")[0]


def test_diff_of_huge_files_ends():
    """200,000 changed lines are shown as replaced, not compared for minutes."""
    old = "".join(f"{n}\n" for n in range(200_000))
    assert unified_diff(old, old.replace("1", "x"), "f")[1] > 100_000


@given(TEXTS, st.integers(1, 20), st.integers(1, 5))
def test_windows_join_to_the_whole(text, first, limit):
    """Lines are split at line feeds alone, so that numbers agree with ripgrep."""
    region = Region(
        text=decode(text.encode()), first_line=1, line_count=count_lines(text), ends_file=True
    )
    lines = region.text.text.split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    page = window(region, first, limit, width=100, max_bytes=10_000)
    shown = page.body.split("\n") if page.body else []
    expected = lines[first - 1 : first - 1 + limit]
    assert shown == [
        f"{n:>6}\t{spelled(line.removesuffix(chr(13)), keep=chr(9))}"
        for n, line in enumerate(expected, first)
    ]
    assert page.more == (first - 1 + limit < len(lines))


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "x/y/a.py", True),
        ("x/*.py", "x/y/a.py", False),
        ("x/**/*.py", "x/y/z/a.py", True),
        ("x/**/*.py", "x/a.py", True),
        ("**/*.py", "a.py", True),
        ("**", "a/b", True),
        ("src/**", "src/a/b", True),
        ("src/**", "lib/a", False),
        ("*.{ts,tsx}", "a.tsx", True),
        ("{a,b}/{c,d}.py", "b/d.py", True),
        ("*.{ts", "a.{ts", True),
        ("[!a].py", "b.py", True),
        ("[!a].py", "a.py", False),
        ("./a/?.py", "a/b.py", True),
        ("A.py", "a.py", False),
    ],
)
def test_globs(pattern, path, expected):
    assert matcher(pattern)(path) is expected


def test_globs_are_linear():
    assert not matcher("**/" * 60 + "x")("a/" * 2000 + "y")
    assert not matcher("*a" * 100 + "b")("a" * 250)
    with pytest.raises(ToolFailure):
        matcher("{a,b}" * 20)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        ("\x1b]0;title\x1b\\rest", "rest"),
        ("\x1bPq data\x1b\\x", "x"),
        ("\x9b31mred", "red"),
        ("a\x1b]52;c;steal", "a"),
        ("a\x1b[?1049h\x1b[2J\x1b[6nb", "ab"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("line\r\nnext\r\n", "line\nnext\n"),
        ("b\x08bo\x08ol", "bol"),
        ("bell\x07nul\0x\x7f", "bellnulx"),
        ("unclosed \x1b]0;x\nnext line", "unclosed \nnext line"),
        ("tab\tkept", "tab\tkept"),
        ("end\x1b", "end"),
    ],
)
def test_terminal_output_becomes_plain(raw, expected):
    """Codex #15974: no sequence survives, an unclosed one takes its line at most."""
    assert plain(raw) == expected


@given(st.text(alphabet=st.sampled_from("ab\x1b[]0;m\x9b\x07\\\r\n\x08P?")))
def test_no_control_survives(raw):
    """Whatever comes, only line feeds and tabs of all controls are left."""
    assert not set(plain(raw)) & {chr(c) for c in (*range(9), *range(11, 32), *range(127, 160))}

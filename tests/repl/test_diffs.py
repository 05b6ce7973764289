"""Changes of files as a person reads them: numbers, signs, words, folds, and nothing hidden."""

import re

import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style

from ragmem.repl.diffs import (
    CODE_COLORS,
    FOLD_ROWS,
    TINTS,
    WORD_TINTS,
    ChangeBlock,
    edit_result,
    read_change,
)
from ragmem.repl.output import paint
from ragmem.repl.turn import ProposalBlock
from ragmem.text import reveal
from ragmem.tools.base import Proposal
from ragmem.tools.files import unified_diff
from tests.repl.fake_app import EVIL, long_diff, tool_done

OLD = "import os\n\n\ndef add(a, b):\n    return a - b\n\n\n" + "x = 1\n" * 9 + "done = 0"
NEW = "import os\n\n\ndef add(a, b):\n    return a + b\n\n\n" + "x = 1\n" * 9 + "done = 1\n"


def shown(diff: str, width: int = 80, *, folds: bool = True) -> str:
    return paint(ChangeBlock(read_change(diff), folds=folds), width=width, mode="none")


@pytest.mark.parametrize("width", [120, 80, 42])
def test_a_change_has_one_header_numbers_and_signs(width: int) -> None:
    """Places apart are set apart; a last line without its end says so."""
    assert shown(unified_diff(OLD, NEW, "src/a.py")[0], width) == snapshot("""\
● Edit src/a.py  +2 −2
│  2
│  3
│  4   def add(a, b):
│  5 -     return a - b
│  5 +     return a + b
│  6
│  7
│  8   x = 1
│    ⋮
│ 14   x = 1
│ 15   x = 1
│ 16   x = 1
│ 17 - done = 0
│    \\  No newline at end of file
│ 17 + done = 1
""")


def test_a_long_line_wraps_behind_its_sign_and_has_one_number() -> None:
    """What follows can't pass for a line of its own."""
    diff = unified_diff("", "a" * 40 + "│ 2 - gone" + "b" * 30 + "\n", "a.txt", creates=True)[0]
    assert shown(diff, 42) == snapshot("""\
● Create a.txt  +1
│ 1 + aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
│   + aaaa│ 2 - gonebbbbbbbbbbbbbbbbbbbbbb
│   + bbbbbbbb
""")


LINES = st.lists(
    st.text(st.sampled_from("ab \t\r+-@\\│é漢👍\u200d\u200b\u202e\x1b\x07"), max_size=90),
    max_size=8,
)


@given(LINES, LINES, st.sampled_from([120, 80, 42, 9]))
def test_every_character_of_a_change_is_shown(old: list[str], new: list[str], width: int) -> None:
    """Escapes, bidi, zero width, wide characters, tabs, carriage returns, whatever the width."""
    diff, added, removed = unified_diff("\n".join(old), "\n".join(new), "a.txt")
    change = read_change(diff)
    assert change.tally == f"+{added} −{removed}"
    rows = [line for line in diff.split("\n")[2:] if not line.startswith("@@ ")]
    signed = [row for row in change.rows if row.sign != "⋮"]
    assert [f"{row.sign}{row.text}" for row in signed] == [
        row[0] + reveal(row[1:]).expandtabs(4) for row in rows
    ]
    printed = shown(diff, width, folds=False).splitlines()[2 if width == 9 else 1 :]
    assert all(cell_len(row) <= max(width, 8) for row in printed)
    body = "".join(printed)
    assert all(char.isprintable() for char in body)
    for row in signed:
        assert all(char in body for char in row.text.replace(" ", ""))


def test_the_middle_of_a_long_change_folds_and_says_how_much() -> None:
    """In rows on the screen: the same lines fold where the window is narrow."""
    assert "more row" not in shown(long_diff(FOLD_ROWS))
    folded = shown(long_diff(FOLD_ROWS + 1)).splitlines()
    assert len(folded) == 1 + FOLD_ROWS
    assert folded[20:22] == ["│ 20 + line_20 = 20", "  … 2 more rows"]
    assert "  … 2 more rows" not in shown(long_diff(FOLD_ROWS + 1), folds=False)
    wide = "--- /dev/null\n+++ a.py\n@@ -0,0 +1,2 @@\n+" + "x" * 2_000 + "\n+end"
    assert "more row" not in shown(wide, 120)
    narrow = shown(wide, 42).splitlines()
    assert len(narrow) == 1 + FOLD_ROWS
    assert narrow[-1] == "│ 2 + end"


@pytest.mark.parametrize("height", [39, 40, 41, 80, 400])
def test_a_fold_counts_every_row_that_it_leaves_out(height: int) -> None:
    """What is shown and what is counted make the whole."""
    folded, whole = shown(long_diff(height)), shown(long_diff(height), folds=False)
    left_out = re.search(r"… ([\d,]+) more row", folded)
    assert bool(left_out) == (height > FOLD_ROWS)
    hidden = int(left_out[1]) - 1 if left_out else 0
    assert len(folded.splitlines()) + hidden == len(whole.splitlines())


def test_a_change_that_was_asked_about_is_told_in_one_row() -> None:
    """Else all of it is shown; what is no change of a file is not taken for one."""

    def said(display: str, *, asked: bool) -> str:
        done = tool_done(display, name="edit_file")
        return paint(edit_result(done, asked=asked) or "", width=80, mode="none")

    assert said(unified_diff("a\n", "b\nc\n", "a.py")[0], asked=True) == "  ✓ edited a.py  +2 −1\n"
    assert said(long_diff(3), asked=True) == "  ✓ created a.py  +3\n"
    assert said(long_diff(3), asked=False).startswith("● Create a.py  +3\n│ 1 + line_1 = 1\n")
    assert edit_result(tool_done(long_diff(3), name="mcp_tool"), asked=True) is None


def test_a_title_that_names_something_else_is_kept() -> None:
    """And the file that the change is of stands under it."""

    def proposed(title: str) -> str:
        proposal = Proposal(tool_name="t", title=title, kind="diff", body=long_diff(1))
        return paint(ProposalBlock(proposal), width=80, mode="none")

    assert proposed("edit_file a.py") == "● Create a.py  +1\n│ 1 + line_1 = 1\n"
    assert proposed("edit_file b.py") == "● edit_file b.py  +1\n│ a.py\n│ 1 + line_1 = 1\n"


def test_a_text_that_is_no_change_is_shown_as_it_is() -> None:
    """Nothing of it is dropped, or counted as a line that comes."""
    text = f"+{EVIL}\n--- a\n+b"
    proposal = Proposal(tool_name="t", title="edit", kind="diff", body=text)
    printed = paint(ProposalBlock(proposal), width=120, mode="none")
    assert printed.startswith("● edit\n")
    assert reveal(f"+{EVIL}") in printed
    assert "--- a" in printed


def colored(diff: str, monkeypatch: pytest.MonkeyPatch, term: str, mode: str = "color") -> str:
    monkeypatch.setenv("TERM", term)
    for name in ("COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return paint(ChangeBlock(read_change(diff)), width=80, mode=mode)  # type: ignore[arg-type]


def test_colours_follow_what_the_terminal_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tints and code of 256, green and red of 16, the signs alone without any."""
    diff = unified_diff(OLD, NEW, "src/a.py")[0]
    many = colored(diff, monkeypatch, "xterm-256color")
    assert "48;5;22m" in many
    assert "48;5;52m" in many
    assert re.search(r"38;5;225;48;5;22mreturn", many)
    assert re.search(r"\x1b\[1;38;5;231;48;5;28m\+\x1b", many)
    few = colored(diff, monkeypatch, "xterm")
    assert "48;5" not in few
    assert re.search(r"\x1b\[32m", few)
    mono = colored(diff, monkeypatch, "xterm-256color", "mono")
    assert "\x1b" not in "".join(mono.splitlines(keepends=True)[1:])
    assert "│  5 +     return a + b" in mono


def test_only_the_words_that_changed_are_brighter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is another altogether has none."""
    near = unified_diff("one two three four\n", "one two 3 four\n", "a.unknown")[0]
    far = unified_diff("one two three four\n", "quite another thing!\n", "a.unknown")[0]
    bright = r"\x1b\[1;[\d;]*m([^\x1b]*)"
    assert re.findall(bright, colored(near, monkeypatch, "xterm-256color")) == ["three", "3"]
    assert re.findall(bright, colored(far, monkeypatch, "xterm-256color")) == []


def luminance(color: Color) -> float:
    parts = [part / 255 for part in color.get_truecolor()]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_colour_can_be_read_on_its_background() -> None:
    """At least 4.5 to 1; they bring the background, so the terminal's own does not matter."""
    tints = [Style.parse(tint) for tint in (*TINTS.values(), *WORD_TINTS.values())]
    pairs = [(tint.color, tint.bgcolor) for tint in tints]
    pairs += [
        (Style.parse(code).color, Style.parse(tint).bgcolor)
        for code in CODE_COLORS.values()
        for tint in TINTS.values()
    ]
    for ink, ground in pairs:
        assert ink
        assert ground
        assert ink.number is not None
        assert ink.number >= 16
        lighter, darker = sorted((luminance(ink), luminance(ground)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (ink, ground)

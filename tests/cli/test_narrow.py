"""Tables, and narrow terminals: every row fits, nothing that may have to be typed again is cut."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot

from ragmem.listings import folded, table
from ragmem.text import clip_to_width, display_width, hanging
from tests.cli.coding import garden, on_a_terminal
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer

DEEP = "beds/along/the/southern/wall/behind_the_old_greenhouse/tomatoes_and_basil.py"
ROWS = [
    ("4eb4e6d6", "active", "12", "just now", "Water the tomatoes in the morning, not at noon"),
    ("b7214b3d", "active", "1", "3 weeks ago", DEEP),
]
HEADER = ("ID", "STATUS", "TURNS", "LAST ACTIVITY", "TITLE")


@pytest.fixture
def ragmem(tmp_path: Path, server: LLMServer) -> Ragmem:
    """In the garden, after a turn that has changed a file far down, and with a memory."""
    ragmem = Ragmem(tmp_path, server.env)
    garden(ragmem)
    (ragmem.project / DEEP).parent.mkdir(parents=True)
    ragmem.run("memory", "add", "The tomatoes are watered in the morning only, not at noon")
    made = {"path": DEEP, "content": "BED = 1\n"}
    server.extend(Answer(tools=[Call("create_file", made)]), Answer("It is made."))
    assert ragmem.run("ask", "--yolo", "Make a bed of tomatoes along the wall").code == 0
    return ragmem


def test_rows_fit(ragmem: Ragmem) -> None:
    (session,) = ragmem.sessions()
    (memory,) = ragmem.read("memory", "list")
    for command, whole in (
        ("sessions list --all", session["session_id"][-8:]),
        ("files", DEEP),
        ("files --since 7d", session["session_id"][-8:]),
        ("files --since 7d", DEEP),
        ("memory list", memory["id"][-8:]),
        ("models", ""),
    ):
        for columns in (42, 30):
            _, rows = on_a_terminal(ragmem, *command.split(), columns=columns)
            assert max(map(display_width, rows)) <= columns
            assert whole in "".join(row.strip() for row in rows)
    _, rows = on_a_terminal(ragmem, "context", "Hello", columns=42)
    budgets = rows[: next(i for i, row in enumerate(rows) if row.startswith("["))]
    assert budgets[0].startswith("System  chars ")
    assert max(map(display_width, budgets)) <= 42
    _, rows = on_a_terminal(ragmem, "index", "--help", columns=44)
    assert max(map(display_width, rows)) <= 44
    assert rows[1] == "  Update the code index of this project."
    _, rows = on_a_terminal(ragmem, "sessions", "list", "--cwd", "/nowhere", columns=44)
    assert rows == [
        "No sessions in /nowhere.",
        "Use --all to list more; --join moves",
        "sessions here from a folder that is gone.",
    ]


def test_a_row_becomes_a_paragraph() -> None:
    """In which each number says what it is of, the last one too."""
    assert table(HEADER, ROWS, width=42) == snapshot("""\
4eb4e6d6  active  turns 12  just now
  Water the tomatoes in the morning, not
  at noon
b7214b3d  active  turns 1  3 weeks ago
  beds/along/the/southern/wall/behind_the_
  old_greenhouse/tomatoes_and_basil.py
""")
    times = ("store a turn of a long session", "3", "33.5", "1,033.5")
    named = table(("TIME (ms)", "COUNT", "P95", "MAX"), [times], width=30)
    assert named.splitlines()[1:] == ["  count 3  P95 33.5", "  max 1,033.5"]
    wide = table(HEADER, ROWS, width=80).splitlines()
    assert len(wide) == 3
    assert max(map(len, wide)) == 80
    assert table(HEADER, ROWS) == table(HEADER, ROWS, width=200)  # a pipe


@given(
    st.lists(st.tuples(*[st.text(max_size=40)] * 4), min_size=1, max_size=3),
    st.integers(min_value=24, max_value=70),
)
def test_nothing_is_wider_than_the_terminal_and_no_cell_breaks_its_row(
    rows: list[tuple[str, ...]], width: int
) -> None:
    header = ("ID", "ONE", "TWO", "LAST")
    first = [("4eb4e6d6", "wide enough to leave nothing " * 3, "1", "x" * 50), *rows]
    shown = table(header, first, width=width)
    assert max(map(display_width, shown.splitlines())) <= width
    piped = table(header, rows)
    assert piped.count("\n") == len(rows) + 1
    assert all(char.isprintable() or char in "\n\u200d" for char in piped)


def test_what_has_no_blanks_is_folded_whole() -> None:
    rows = folded("  ", "日本語" * 9, 20)
    assert max(map(display_width, rows)) <= 20
    assert "".join(row.strip() for row in rows) == "日本語" * 9


def test_columns_are_aligned_by_what_a_terminal_shows_and_the_last_is_clipped() -> None:
    rows = [("ab12", "日本語", "first"), ("c", "e\u0301", "second line\nwith \x1b[31mescape")]
    assert table(("ID", "NAME", "WHAT"), rows) == snapshot("""\
ID    NAME    WHAT
ab12  日本語  first
c     e\u0301       second line with \\e[31mescape
""")
    assert table(("A", "B"), [("x", "yy " * 20)], width=20) == snapshot("""\
A  B
x  yy yy yy yy yy y…
""")


def test_a_text_hangs_behind_its_head() -> None:
    """For a terminal, cut between words; for a pipe, whole; a long path stays whole."""
    text = "3.11 at /a/rather/long/path and two more words"
    assert hanging("ok  python ", text) == [f"ok  python {text}"]
    assert hanging("ok  python ", text, 30) == [
        "ok  python 3.11 at",
        "           /a/rather/long/path",
        "           and two more words",
    ]
    assert hanging("ok ", "", 30) == ["ok"]
    assert hanging("日本 ", "a bb ccc", 8) == ["日本 a", "     bb", "     ccc"]


@given(st.text(max_size=60), st.integers(min_value=1, max_value=40))
def test_clipping_never_exceeds_the_width(text: str, width: int) -> None:
    clipped = clip_to_width(text, width)
    assert display_width(clipped) <= width
    assert clipped == text or clipped.endswith("…")

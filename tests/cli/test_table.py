"""Plain tables."""

from hypothesis import given, strategies as st
from inline_snapshot import snapshot

from ragmem.listings import table
from ragmem.text import clip_to_width, display_width, hanging


def test_columns_are_aligned_by_what_a_terminal_shows() -> None:
    rows = [("ab12", "日本語", "first"), ("c", "e\u0301", "second line\nwith \x1b[31mescape")]
    assert table(("ID", "NAME", "WHAT"), rows) == snapshot("""\
ID    NAME    WHAT
ab12  日本語  first
c     e\u0301       second line with \\e[31mescape
""")


def test_last_column_is_clipped_to_the_width() -> None:
    text = table(("A", "B"), [("x", "yy " * 20)], width=20)
    assert text == snapshot("""\
A  B
x  yy yy yy yy yy y…
""")
    assert max(map(len, text.splitlines())) == 20


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


@given(st.lists(st.text(max_size=20), min_size=2, max_size=2))
def test_a_cell_never_breaks_the_row(row: list[str]) -> None:
    text = table(("A", "B"), [row])
    assert text.count("\n") == 2
    assert all(char.isprintable() or char in "\n\u200d" for char in text)

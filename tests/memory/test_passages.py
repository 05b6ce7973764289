"""What a model without tool calls is shown of the files that a prompt mentions."""

from hypothesis import given
from hypothesis import strategies as st

from ragmem.memory.window import passage, with_passages

from .builders import a_call

CODE = "\n".join(
    [
        '"""Tides and harbours."""',
        "",
        *(f"def step_{i}(value):\n    return value + {i}\n" for i in range(40)),
        "def harbour_depth(name):",
        '    """In fathoms."""',
        "    return DEPTHS[name]",
    ]
)


def test_files_stand_before_the_question_as_quoted_data() -> None:
    """No line numbers and no @, which it would repeat; the question stands last."""
    calls = [
        a_call(0, text="     1\tx = 1\n     2\t\ty = 2", origin="mention"),
        a_call(1, arguments='{"path": "my notes.txt"}', text="     1\tnone", origin="mention"),
    ]
    text = with_passages('What is x in @a.py and @"my notes.txt"?', calls, "f00d", max_chars=500)
    assert text == (
        "a.py:\n<file-f00d>\nx = 1\n\ty = 2\n</file-f00d>\n\n"
        "my notes.txt:\n<file-f00d>\nnone\n</file-f00d>\n\n"
        "Answer the question in one short sentence.\n\n"
        "Question: What is x in a.py and my notes.txt?\nAnswer:"
    )


def test_without_files_it_is_the_question_alone() -> None:
    """Other @ words are left as they are, braces too."""
    text = with_passages("Mail {me}@b.py?", [], "f00d", max_chars=500)
    assert text.endswith("Question: Mail {me}@b.py?\nAnswer:")
    assert "<file" not in text


def test_a_passage_has_the_lines_that_the_question_names() -> None:
    """A file too long for the room: its beginning, and where the rare words are."""
    text = passage(CODE, "What does the function harbour_depth return?", 300)
    assert text.startswith('"""Tides and harbours."""\n')
    assert text.endswith(
        '\n…\n\ndef harbour_depth(name):\n    """In fathoms."""\n    return DEPTHS[name]'
    )


def test_a_passage_is_the_beginning_where_the_question_names_nothing() -> None:
    """Words of every question, and words that are everywhere, tell nothing."""
    for question in ("What does this file say about the value?", "", "Erkläre mir alles."):
        assert passage(CODE, question, 300) == CODE[: len(passage(CODE, question, 300))]


def test_a_line_that_is_too_long_is_cut() -> None:
    """A file of one line."""
    assert passage("x" * 900, "", 100) == "x" * 100


@given(st.text("ab \n", max_size=400), st.text("ab ", max_size=20), st.integers(40, 200))
def test_a_passage_fits(text: str, question: str, limit: int) -> None:
    """Within its room whatever the text; whole where it fits."""
    found = passage(text, question, limit)
    assert len(found) <= limit
    assert len(text) > limit or found == text

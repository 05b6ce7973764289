"""Files that a prompt names."""

import pytest

from ragmem.tools.workspace import MAX_MENTIONS, at_paths, named_files

FILES = ("README.md", "src/app.py", "src/deep/util.py", "other/util.py", "a-b.txt")


@pytest.mark.parametrize(
    ("prompt", "paths"),
    [
        pytest.param("What is @src/app.py?", ["src/app.py"], id="one"),
        pytest.param("@a.py, @b.py; @a.py.", ["a.py", "b.py"], id="each once, full stop cut"),
        pytest.param('Look at @"my notes.txt" now', ["my notes.txt"], id="quoted"),
        pytest.param("mail me@b.py, x@@y", [], id="an address is no mention"),
        pytest.param('@ @. @"', [], id="nothing named"),
        pytest.param("\0@a\udcff\0", ["a\udcff\0"], id="hard characters"),
    ],
)
def test_mentions_with_an_at(prompt: str, paths: list[str]) -> None:
    assert at_paths(prompt) == paths


def test_only_so_many_are_read_ahead() -> None:
    assert len(at_paths(" ".join(f"@f{n}" for n in range(100)))) == MAX_MENTIONS
    many = [f"f{n}.py" for n in range(100)]
    assert len(named_files(" ".join(many), many)) == MAX_MENTIONS


@pytest.mark.parametrize(
    ("prompt", "paths"),
    [
        pytest.param("What does src/app.py do?", ["src/app.py"], id="path"),
        pytest.param("See ./src/app.py.", ["src/app.py"], id="relative, full stop"),
        pytest.param("Read the readme.md -- twice, README.md...", ["README.md"], id="name"),
        pytest.param("What is in util.py?", [], id="a name that is not unique"),
        pytest.param("a-b.txt-", ["a-b.txt"], id="dash"),
        pytest.param("nothing here", [], id="none"),
    ],
)
def test_names_for_models_without_tools(prompt: str, paths: list[str]) -> None:
    """File names in the question are resolved for a model that can't look."""
    assert named_files(prompt, FILES) == paths


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", [".", "-", "/", "./", "@", '@"', "a."])
def test_a_huge_prompt_takes_no_time(piece: str) -> None:
    prompt = piece * (500_000 // len(piece))
    assert named_files(prompt, FILES) == []
    at_paths(prompt)

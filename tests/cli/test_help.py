"""Help texts: what the program says it can do, and nothing else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragmem.cli.main import command, run

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_the_page_of_commands_has_what_each_says_that_it_takes(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them: nothing else is offered, and nothing is missing."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = []
    for words in commands(command(), ()):
        assert run([*words, "--help"]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        shown.append(f"$ {' '.join(['ragmem', *words, '--help'])}\n{out}")
    assert "```console\n" + "\n".join(shown) + "```\n" in PAGE.read_text("utf-8")
    # What a list of commands says of each is whole.
    cut = [row for text in shown for row in text.split("\n") if row.endswith("...")]
    assert [row for row in cut if not row.startswith("Usage: ")] == []


def commands(parent: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every command that help names, groups before what is in them."""
    yield words
    for name in getattr(parent, "commands", ()):
        child = parent.get_command(None, name)
        if not child.hidden:
            yield from commands(child, (*words, name))

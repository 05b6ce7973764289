"""Help texts: what the program says it can do, and nothing else."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragmem.cli.main import command, run

HELP = Path(__file__).parent / "help.txt"


def test_each_command_says_what_it_takes(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, as help.txt has it: nothing else is offered, and nothing is missing.

    WRITE_HELP=1 writes the file anew, where a change is meant.
    """
    monkeypatch.setenv("COLUMNS", "80")
    shown = ""
    for words in (*commands(command(), ()), ("work",)):
        assert run([*words, "--help"]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        shown += f"$ ragmem {' '.join([*words, '--help'])}\n{out}\n"
    if os.environ.get("WRITE_HELP"):
        HELP.write_text(shown, "utf-8")
    assert shown == HELP.read_text("utf-8")


def test_what_a_list_of_commands_says_of_each_is_whole() -> None:
    """At 80 columns nothing is cut off."""
    cut = [row for row in HELP.read_text("utf-8").split("\n") if row.endswith("...")]
    assert [row for row in cut if not row.startswith("Usage: ")] == []


def commands(parent: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every command that help names, groups before what is in them."""
    yield words
    for name in getattr(parent, "commands", ()):
        child = parent.get_command(None, name)
        if not child.hidden:
            yield from commands(child, (*words, name))

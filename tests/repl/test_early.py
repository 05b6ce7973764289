"""The prompt that stands before anything is imported."""

import subprocess
import sys

from tests.repl.pty_chat import ROOT


def printed(code: str) -> str:
    """What a program prints that has nothing on its standard input."""
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return found.stdout


def test_it_imports_nothing_heavy() -> None:
    """The first prompt waits for no import but the standard library's small ones."""
    code = (
        "import sys; before = set(sys.modules); import ragmem.repl.early;"
        "print(*sorted(set(sys.modules) - before))"
    )
    light = """
        ragmem ragmem.repl ragmem.repl.early signal _signal enum operator _operator functools
        _functools collections _collections itertools keyword _collections_abc reprlib termios types
    """
    assert set(printed(code).split()) <= set(light.split())


def test_the_chat_module_is_light() -> None:
    """prompt-toolkit, rich, the app and the memory come later, inside of functions."""
    found = printed("import sys, ragmem.repl.chat; print(*sys.modules)")
    heavy = "prompt_toolkit rich httpcore neo4j litellm typer ragmem.app ragmem.memory ragmem.store"
    assert not set(heavy.split()) & set(found.split())


def test_off_a_terminal_nothing_is_printed() -> None:
    """Nor is anything erased there."""
    code = "from ragmem.repl import early; print(early.show()); early.hand_over(); early.clear()"
    assert printed(code) == "False\n"

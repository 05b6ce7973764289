"""The prompt that stands before anything is imported."""

import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

from tests.repl.pty_chat import ROOT, PtyChat

FULL = """
import os, time
os.set_blocking(1, False)
try:
    while True:
        os.write(1, b".")
except BlockingIOError:
    os.set_blocking(1, True)
from ragmem.repl import early
early.show()
time.sleep(600)
"""
"""A terminal takes nothing any more when the prompt is to be printed there."""


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


def test_a_signal_that_comes_while_it_is_printed_ends_it_in_order(tmp_path: Path) -> None:
    with PtyChat([sys.executable, "-c", FULL], cwd=tmp_path) as begun:
        stat = Path(f"/proc/{begun.process.pid}/stat")
        while termios.tcgetattr(begun._terminal)[3] & termios.ECHO or " S " not in stat.read_text():
            time.sleep(0.01)
        begun.process.kill(signal.SIGTERM)
        assert begun.exit_code() == 128 + signal.SIGTERM
        assert "Traceback" not in begun.text
        assert begun.is_restored()

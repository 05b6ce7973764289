"""The prompt that stands before anything is imported."""

import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from ragmem.repl import early
from tests.repl.pty_chat import ROOT


@pytest.mark.parametrize(
    ("echoed", "columns", "rows"),
    [
        ("› ", 80, 1),
        ("› hello", 7, 1),
        ("› hello!", 7, 2),
        ("› a\nb\n", 80, 3),
        ("› " + "日本" * 10, 42, 1),
        ("› " + "日本" * 10, 41, 2),
        ("› \x1b[A", 6, 1),
        ("› e\u0301\u0301", 3, 1),
        ("› \tx", 9, 1),
        ("› \tx", 8, 2),
    ],
)
def test_rows_of_the_echo(echoed: str, columns: int, rows: int) -> None:
    """What the kernel echoed is erased whole: wrapped, wide, control and tab characters."""
    assert early._rows(echoed, columns) == rows


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("hello", "hello"),
        ("one\ntwo", "one\rtwo"),
        ("\0", "\x04"),
        ("\x1b[200~a\nb\x1b[201~\n", "\x1b[200~a\nb\x1b[201~\r"),
        ("x\x1b[200~cut\nshort", "x\x1b[200~cut\nshort\x1b[201~"),
    ],
)
def test_typed_ahead_text_becomes_keys(typed: str, keys: str) -> None:
    """Enter is Enter, a pasted line break is none, Ctrl-D is Ctrl-D, a cut paste ends."""
    assert early._as_keys(typed) == keys


@given(st.text(alphabet="a\n\0\x1b[20~1", max_size=60))
def test_no_key_is_invented_or_lost(typed: str) -> None:
    """Whatever was typed: only Enter and Ctrl-D are respelled, only an end mark is added."""
    keys = early._as_keys(typed)
    kept = keys.removesuffix("\x1b[201~") if not typed.endswith("\x1b[201~") else keys
    plain = str.maketrans({"\r": "\n", "\x04": "\0"})
    assert kept.translate(plain) == typed.translate(plain)


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
    """Nor is anything taken or erased there."""
    code = "from ragmem.repl import early; print(early.show(), early.take() == ''); early.clear()"
    assert printed(code) == "False True\n"

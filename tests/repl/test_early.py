"""The prompt that stands before anything is imported."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_it_imports_nothing_heavy() -> None:
    """The first prompt waits for no import but the standard library's small ones."""
    code = (
        "import sys; before = set(sys.modules); import ragmem.repl.early;"
        "print(*sorted(set(sys.modules) - before))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(found.stdout.split()) <= {
        "ragmem",
        "ragmem.repl",
        "ragmem.repl.early",
        "signal",
        "_signal",
        "enum",
        "operator",
        "_operator",
        "functools",
        "_functools",
        "collections",
        "_collections",
        "itertools",
        "keyword",
        "_collections_abc",
        "reprlib",
        "termios",
        "types",
    }


def test_the_chat_module_is_light() -> None:
    """House rule: prompt-toolkit, rich and the app come later, inside of functions."""
    code = "import sys, ragmem.repl.chat; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    heavy = {"prompt_toolkit", "rich", "httpx", "neo4j", "litellm", "typer", "ragmem.app"}
    assert not heavy & set(found.stdout.split())


def test_off_a_terminal_nothing_is_printed() -> None:
    """48: `show` does nothing where there is no terminal."""
    code = "from ragmem.repl import early; print(early.show(), early.take() == ''); early.clear()"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert found.stdout == "False True\n"

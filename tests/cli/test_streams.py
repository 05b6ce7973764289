"""Standard streams and new files: the rules for stdin, faults of the streams, whole or no files."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ragmem.cli import output
from ragmem.cli.output import STDIN_LIMIT, new_file, read_prompt
from ragmem.errors import UsageError

Given = Callable[[bytes], None]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Given]:
    """Takes what stdin is to hold."""
    with (tmp_path / "stdin").open("w+b") as file:

        def give(words: bytes) -> None:
            file.write(words)
            file.seek(0)
            monkeypatch.setattr(sys, "stdin", file)

        yield give


@pytest.mark.parametrize(
    ("prompt", "piped", "whole"),
    [
        (None, b"from the pipe\n", "from the pipe\n"),
        ("-", b"from the pipe", "from the pipe"),
        ("Why?", b"", "Why?"),
        ("Why?", b" \n", "Why?"),
        ("Why?", b"a\nb\n", "Why?\n\n<stdin>\na\nb\n</stdin>"),
        (None, b"\xef\xbb\xbfwith a mark", "with a mark"),
        (None, b"caf\xe9", "caf\ufffd"),
    ],
    ids=["pipe", "dash", "prompt", "blank", "both", "bom", "latin-1"],
)
def test_where_the_prompt_comes_from(
    prompt: str | None, piped: bytes, whole: str, given: Given, capfd: pytest.CaptureFixture[str]
) -> None:
    given(piped)
    assert read_prompt(prompt) == whole
    assert ("not valid UTF-8" in capfd.readouterr().err) is (b"\xe9" in piped)


@pytest.mark.parametrize(
    ("prompt", "piped", "said"),
    [
        (None, b"  \n", "The prompt is empty."),
        ("", b"", "The prompt is empty."),
        (None, b"x" * (STDIN_LIMIT + 1), "Standard input is larger than 10 MB"),
    ],
    ids=["blank", "empty", "too-large"],
)
def test_what_is_no_prompt(prompt: str | None, piped: bytes, said: str, given: Given) -> None:
    given(piped)
    with pytest.raises(UsageError, match=said):
        read_prompt(prompt)


def test_stdin_that_can_not_be_read_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "file").open("w") as only_written:
        monkeypatch.setattr(sys, "stdin", only_written)
        with pytest.raises(UsageError, match="Can't read standard input"):
            read_prompt(None)


def test_a_pipe_that_stays_silent_is_waited_for_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    (out, late), (told, err) = os.pipe(), os.pipe()
    with os.fdopen(out) as stdin, os.fdopen(told) as heard, os.fdopen(err, "w") as stderr:
        monkeypatch.setattr(output, "_STDIN_WAIT_S", 0.0)
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stderr", stderr)
        with ThreadPoolExecutor(1) as thread:
            read = thread.submit(read_prompt, "Why?")
            said = heard.readline()
            os.write(late, b"late")
            os.close(late)
            assert read.result() == "Why?\n\n<stdin>\nlate\n</stdin>"
    assert said == "waiting for standard input to end (add `< /dev/null` if there is no input)\n"


CLOSED = """
import os, sys
for number in (0, 1, 2):
    os.close(number)
sys.stdin = sys.stdout = sys.stderr = None
from ragmem.cli.output import say, secure_standard_streams, write
from ragmem.errors import RagmemError
secure_standard_streams()
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
say("to nobody")
try:
    write("to nobody")
except RagmemError as error:
    os.write(fd, b"number %d: %s" % (fd, str(error).encode()))
"""


def test_closed_streams_never_lend_their_numbers_to_files(tmp_path: Path) -> None:
    """What is printed to a closed stdout is an error, and doesn't go into the memory."""
    file = tmp_path / "file"
    done = subprocess.run([sys.executable, "-P", "-c", CLOSED, str(file)], timeout=60, check=False)
    assert done.returncode == 0
    assert file.read_text() == "number 3: Can't write the output: Bad file descriptor."


def test_a_new_file_is_private_whole_and_never_over_another(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    with new_file(file) as part:
        assert part.read_bytes() == b""
        part.write_text("whole")
    assert file.read_text() == "whole"
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="already exists"), new_file(file):
        pass
    with pytest.raises(KeyError), new_file(tmp_path / "other"):
        raise KeyError
    assert os.listdir(tmp_path) == ["talk.json"]

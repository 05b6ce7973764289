"""Standard streams: the rules for stdin, and faults of all three."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragmem.cli.output import STDIN_LIMIT, join_prompt


@pytest.mark.parametrize(
    ("prompt", "piped", "whole"),
    [
        ("Explain", "a\nb\n", "Explain\n\n<stdin>\na\nb\n</stdin>"),
        ("Explain", "", "Explain"),
        ("Explain", " \n", "Explain"),
    ],
)
def test_piped_text_follows_the_prompt_in_a_block(prompt: str, piped: str, whole: str) -> None:
    assert join_prompt(prompt, piped) == whole


def run_python(code: str, **options: object) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        timeout=60,
        check=False,
        **options,  # type: ignore[call-overload]
    )


PROMPT = """
import sys
from ragmem.cli.output import read_prompt, secure_standard_streams
from ragmem.errors import UsageError
secure_standard_streams()
try:
    sys.stdout.write(repr(read_prompt({prompt!r})))
except UsageError as error:
    sys.stdout.write("UsageError " + str(error))
"""


@pytest.mark.parametrize(
    ("prompt", "piped", "said"),
    [
        (None, b"from the pipe\n", "'from the pipe\\n'"),
        ("-", b"from the pipe", "'from the pipe'"),
        ("Why?", b"", "'Why?'"),
        ("Why?", b"log", "'Why?\\n\\n<stdin>\\nlog\\n</stdin>'"),
        (None, b"\xef\xbb\xbfwith a mark", "'with a mark'"),
        (None, b"  \n", "UsageError The prompt is empty."),
        ("", b"", "UsageError The prompt is empty."),
        (None, b"caf\xe9", "'caf\ufffd'"),
        (None, b"x" * (STDIN_LIMIT + 1), "UsageError Standard input is larger than 10 MB"),
    ],
    ids=["pipe", "dash", "prompt", "both", "bom", "blank", "empty", "latin-1", "too-large"],
)
def test_where_the_prompt_comes_from(prompt: str | None, piped: bytes, said: str) -> None:
    done = run_python(PROMPT.format(prompt=prompt), input=piped)
    assert done.stdout.decode().startswith(said)
    if b"\xe9" in piped:
        assert b"not valid UTF-8" in done.stderr


def test_stdin_that_can_not_be_read_is_a_usage_error(tmp_path: Path) -> None:
    only_written = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    done = run_python(PROMPT.format(prompt=None), stdin=only_written)
    os.close(only_written)
    assert done.stdout.decode().startswith("UsageError Standard input can't be read")


def test_a_pipe_that_stays_silent_is_waited_for_and_said() -> None:
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", PROMPT.format(prompt="Why?")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stderr
    assert child.stderr.readline() == (
        b"waiting for standard input to end (`< /dev/null` if there is none)\n"
    )
    out, _ = child.communicate(b"late", timeout=60)
    assert out == b"'Why?\\n\\n<stdin>\\nlate\\n</stdin>'"


CLOSED = """
import os, sys
for number in (0, 1, 2):
    os.close(number)
sys.stdin = sys.stdout = sys.stderr = None
from ragmem.cli.output import say, secure_standard_streams, write
secure_standard_streams()
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
write("to nobody"); say("to nobody")
os.write(fd, b"number %d" % fd)
"""


def test_closed_streams_never_lend_their_numbers_to_files(tmp_path: Path) -> None:
    """What is printed to a closed stdout goes nowhere, not into the memory."""
    file = tmp_path / "file"
    done = subprocess.run([sys.executable, "-P", "-c", CLOSED, str(file)], timeout=60, check=False)
    assert done.returncode == 0
    assert file.read_text() == "number 3"


def test_a_full_disk_on_stdout_is_an_error_not_a_traceback() -> None:
    code = """
import sys
from ragmem.cli.main import run
sys.exit(run(["config", "path"]))
"""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == b"error: The output could not be written: No space left on device.\n"


def test_a_reader_that_left_ends_the_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code = "import sys\nfrom ragmem.cli.main import run\nsys.exit(run(['config', 'path']))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")

"""Files that commands write: whole or not at all, and nothing is left of those that were killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragmem.cli.output import new_file
from ragmem.errors import UsageError

BEGIN = """
import sys
from pathlib import Path
from ragmem.cli.output import new_file
with new_file(Path(sys.argv[1])) as part:
    part.write_text("half")
    print("begun", flush=True)
    sys.stdin.read()
"""


def test_a_file_is_private_and_never_over_another(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    with new_file(file) as part:
        assert part.read_bytes() == b""
        part.write_text("whole")
    assert file.read_text() == "whole"
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="is there already"), new_file(file):
        pass
    with pytest.raises(KeyError), new_file(tmp_path / "other"):
        raise KeyError
    assert os.listdir(tmp_path) == ["talk.json"]


def test_what_a_killed_process_left_goes_with_the_next(tmp_path: Path) -> None:
    """And what a living one writes, stays, as do the person's own hidden files."""
    (tmp_path / ".mine.part").write_text("mine")
    command = [sys.executable, "-P", "-c", BEGIN]
    with (
        subprocess.Popen(
            [*command, str(tmp_path / "a")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as killed,
        subprocess.Popen(
            [*command, str(tmp_path / "b")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as living,
    ):
        assert killed.stdout
        assert living.stdout
        assert killed.stdout.readline() == living.stdout.readline() == b"begun\n"
        killed.kill()
        killed.wait()
        assert len(os.listdir(tmp_path)) == 3
        with new_file(tmp_path / "c") as part:
            part.write_text("whole")
        assert sorted(name[:3] for name in os.listdir(tmp_path)) == [".b.", ".mi", "c"]
        living.communicate()
    assert sorted(os.listdir(tmp_path)) == [".mine.part", "b", "c"]

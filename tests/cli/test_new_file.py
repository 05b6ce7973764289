"""Files that commands write: whole or not at all."""

import os
from pathlib import Path

import pytest

from ragmem.cli.output import new_file
from ragmem.errors import UsageError


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

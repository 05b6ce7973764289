"""The log file."""

import logging
import stat
from pathlib import Path

import pytest

from ragmem.logs import logging_to
from ragmem.redact import know


def fault(text: str) -> None:
    try:
        raise ZeroDivisionError(text)
    except ZeroDivisionError:
        logging.getLogger("ragmem").exception("a tool failed")


def test_faults_are_logged_and_not_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A private file, without secrets, and nothing on the terminal."""
    know({"test key": "canary-4711-canary"})
    with logging_to(tmp_path):
        fault("with canary-4711-canary and \ud800")
    file = tmp_path / "ragmem.log"
    text = file.read_text()
    assert "ZeroDivisionError" in text
    assert "canary-4711-canary" not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert capfd.readouterr() == ("", "")


def test_no_file_without_a_fault(tmp_path: Path) -> None:
    """A quiet run leaves nothing behind."""
    with logging_to(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cant_be_written_is_no_fault(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The folder is gone: the work goes on, without a word."""
    with logging_to(tmp_path / "gone"):
        fault("x")
    assert capfd.readouterr() == ("", "")

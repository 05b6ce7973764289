"""The log file."""

import logging
import stat
from pathlib import Path

import pytest

from ragmem.logs import deleted_sessions, log_deletion, logging_to, unlog_deletion
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


def test_the_log_of_deletions_says_which_sessions_were_deleted(tmp_path: Path) -> None:
    """Not those whose line was taken back, of another store, or that have no id."""
    assert deleted_sessions(tmp_path, "sqlite") == set()
    lines = [
        log_deletion(tmp_path, {"session_id": name, "store": "sqlite"}) for name in ("s1", "s2")
    ]
    log_deletion(tmp_path, {"memory_id": "m", "store": "sqlite"})
    with (tmp_path / "deletions.log").open("ab") as file:
        file.write(b"[1]\ncut o")
    unlog_deletion(tmp_path, lines[0])
    unlog_deletion(tmp_path, b"another\n")
    kept = (tmp_path / "deletions.log").read_bytes()
    assert kept == lines[1] + b'{"memory_id":"m","store":"sqlite"}\n[1]\ncut o'
    assert deleted_sessions(tmp_path, "sqlite") == {"s2"}
    assert deleted_sessions(tmp_path, "neo4j") == set()

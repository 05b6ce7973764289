"""The index of code over processes: where nothing can be written, what each does at its end."""

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.index.conftest import AUTH, CLOCK

from .test_poor_homes import READ_ONLY, mounted, plain


@pytest.fixture
def ragmem(ragmem: Ragmem) -> Ragmem:
    (ragmem.project / ".git").mkdir()
    (ragmem.project / "auth.py").write_text(AUTH)
    (ragmem.project / "clock.py").write_text(CLOCK)
    return ragmem


def files(home: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}


@pytest.mark.parametrize("has_log", [False, True])
def test_a_home_that_can_only_be_read(tmp_path: Path, ragmem: Ragmem, has_log: bool) -> None:
    """What was indexed is found, with its lines as they are now."""
    ragmem.ok("index")
    (database,) = ragmem.home.glob("data/code/*.sqlite")
    log = database.with_name(f"{database.name}-wal")
    if has_log:
        _leave_log(database)
    assert (log.exists() and log.stat().st_size > 0) is has_log
    (ragmem.project / "auth.py").write_text("# moved\n" + AUTH)
    (ragmem.project / "late.py").write_text("def come_in_late():\n    return 1\n")
    before = files(ragmem.home)
    through = mounted(READ_ONLY, ragmem.home)
    code, out, err = plain(ragmem.run("search", "--code", "login", through=through), tmp_path)
    assert code == 0, err
    assert "login · function · auth.py:17-19" in out
    assert "note: The index could not be updated; files added since are not searched." in err
    assert "Read-only file system" in err
    if has_log:  # What follows does not go by the log.
        code, _, err = plain(ragmem.run("index", through=through), tmp_path)
        assert (code != 0, "Read-only file system" in err) == (True, True)
        code, out, err = plain(ragmem.run("ask", "Hello?", through=through), tmp_path)
        # The answer is there; that it is not kept is said.
        assert (code, out) == (75, "The answer.\n")
    assert files(ragmem.home) == before


def _leave_log(database: Path) -> None:
    """As a process leaves it that was killed: all of the index is in its log."""
    copies = {suffix: database.with_name(f"copy{suffix}") for suffix in ("", "-wal")}
    import apsw

    connection = apsw.Connection(str(database))
    connection.pragma("journal_mode", "WAL")
    connection.execute("UPDATE state SET epoch = epoch + 1")
    for suffix, copy in copies.items():
        shutil.copyfile(database.with_name(database.name + suffix), copy)
    connection.close()
    for suffix, copy in copies.items():
        os.replace(copy, database.with_name(database.name + suffix))
    database.with_name(f"{database.name}-shm").unlink(missing_ok=True)


def test_of_a_file_that_is_gone_no_byte_is_left_in_the_store(ragmem: Ragmem) -> None:
    """Nor in the index, once that is made anew: until then it may hold names and words."""
    gone = ragmem.project / "gone.py"
    gone.write_text(
        'def quagga_99(a):\n    """Counts quagga_99 herds."""\n    return "quagga_99"\n'
    )
    ragmem.ok("index")
    assert any(b"quagga_99" in content for content in files(ragmem.home).values())
    gone.unlink()
    ragmem.ok("index")
    left = [file for file, content in files(ragmem.home).items() if b"quagga" in content]
    assert [file.parent.name for file in left] == ["code"]
    assert not any(b"herds." in file.read_bytes() for file in left)
    ragmem.ok("index", "--rebuild")
    left = [file for file, content in files(ragmem.home).items() if b"quagga" in content]
    assert left == []

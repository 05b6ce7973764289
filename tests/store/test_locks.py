"""A lock is held by one at a time, whatever becomes of its file meanwhile."""

import contextlib
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from ragmem import files
from ragmem.errors import StoreUnavailable
from ragmem.files import lock


def test_a_lock_keeps_others_out_though_its_file_goes(tmp_path: Path) -> None:
    """The files of dead owners are removed: a lock on one that is gone must not count."""
    path = tmp_path / "lock"
    inside: list[int] = []
    most_inside: list[int] = []

    def work(number: int) -> None:
        for _ in range(150):
            handle = lock(path, timeout_s=60)
            inside.append(number)
            time.sleep(0.0001)
            most_inside.append(len(inside))
            inside.remove(number)
            path.unlink()
            os.close(handle)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most_inside) == 600
    assert max(most_inside) == 1


def test_a_file_that_goes_while_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may remove it between the lock and the look at the file's name."""
    path = tmp_path / "lock"
    flock = fcntl.flock
    lost = []

    def lock_and_lose(handle: int, operation: int) -> None:
        flock(handle, operation)
        if not lost:
            path.unlink()
            lost.append(path)

    monkeypatch.setattr(files.fcntl, "flock", lock_and_lose)
    handle = lock(path, timeout_s=10)
    assert lost
    assert os.fstat(handle).st_ino == path.stat().st_ino
    os.close(handle)


def test_a_lock_that_another_holds_is_waited_for_and_then_named(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    handle = lock(path, timeout_s=1)
    assert descriptors_of(path) == 1
    with pytest.raises(StoreUnavailable, match=r"did not release it within 0\.05 s"):
        lock(path, timeout_s=0.05)
    assert descriptors_of(path) == 1
    os.close(handle)


def descriptors_of(path: Path) -> int:
    """How many this process has; of others some may come or go meanwhile."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(each))
    return found.count(str(path))

"""Private files, replaced whole or not at all."""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ragmem.config.file import save
from ragmem.failpoints import arm
from ragmem.files import is_held, make_private, replace_private, sync_folder
from ragmem.store.neo4j_server.ways import Layout, Running
from ragmem.store.spool.files import KnownProjects
from ragmem.tools.rewind import Preimages
from tests.store.samples import START

OLD, NEW = b"old " * 5_000, b"new, and longer " * 5_000


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """With the old content."""
    path = tmp_path / "folder" / "file.json"
    path.parent.mkdir()
    path.write_bytes(OLD)
    return path


def names(file: Path) -> list[str]:
    return [each.name for each in file.parent.iterdir()]


def child(file: Path, before: str) -> "subprocess.CompletedProcess[str]":
    """Another process replaces the file; what it does before is given as code."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom ragmem.files import replace_private\n"
        f"{before}\nreplace_private(Path(sys.argv[1]), {NEW!r}, sync=True)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=False
    )


def test_a_folder_and_all_that_it_is_to_be_in_is_made_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        for _ in range(2):
            make_private(tmp_path / "home" / "locks" / "deep")
    finally:
        os.umask(before)
    for folder in ("home", "home/locks", "home/locks/deep"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700
    with pytest.raises(FileExistsError):
        make_private(Path(__file__))


@pytest.mark.parametrize("sync", [False, True])
def test_the_new_content_is_there_for_this_user_alone(file: Path, sync: bool) -> None:
    """0600, whatever the old file and the umask allowed; nothing else stays in the folder."""
    file.chmod(0o644)
    before = os.umask(0)
    try:
        replace_private(file, NEW, sync=sync)
        replace_private(file.with_name("fresh"), b"", sync=sync)
    finally:
        os.umask(before)
    assert file.read_bytes() == NEW
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.with_name("fresh").stat().st_mode) == 0o600
    assert sorted(names(file)) == ["file.json", "fresh"]


def test_killed_before_it_bears_the_name(file: Path) -> None:
    """The old one is there, whole; the next process replaces it."""
    died = child(file, 'from ragmem.failpoints import arm\narm("private.written:kill9")')
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert file.read_bytes() == OLD
    assert len(names(file)) == 2, "it had written a draft"
    assert child(file, "").returncode == 0
    assert file.read_bytes() == NEW


def test_a_full_disk_leaves_the_old_one_and_no_draft(file: Path) -> None:
    """With the system's own error, in the middle of the content."""
    full = child(
        file, "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))"
    )
    assert full.returncode == 1
    assert f"[Errno {errno.EFBIG}]" in full.stderr
    assert file.read_bytes() == OLD
    assert names(file) == ["file.json"]


@pytest.mark.parametrize("action", ["enospc", "eio", "erofs"])
def test_a_disk_that_fails_at_the_last_moment(file: Path, action: str) -> None:
    """The same."""
    arm(f"private.written:{action}")
    with pytest.raises(OSError, match=r"private\.written"):
        replace_private(file, NEW, sync=True)
    assert file.read_bytes() == OLD
    assert names(file) == ["file.json"]


def test_what_can_not_be_replaced_is_an_error(tmp_path: Path) -> None:
    """No folder, and a folder in the way: nothing is made, nothing is left."""
    with pytest.raises(FileNotFoundError):
        replace_private(tmp_path / "none" / "file", NEW, sync=False)
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        replace_private(tmp_path / "taken", NEW, sync=False)
    assert [each.name for each in tmp_path.iterdir()] == ["taken"]
    (tmp_path / "plain").write_text("")
    with pytest.raises(NotADirectoryError):
        sync_folder(tmp_path / "plain")


def test_many_at_once_leave_a_whole_one(file: Path) -> None:
    """Whoever reads meanwhile reads one of them; nobody's draft is another's."""
    contents = {bytes([65 + number]) * 200_000 for number in range(4)}
    seen: set[bytes] = set()

    def write(content: bytes) -> None:
        for _ in range(25):
            replace_private(file, content, sync=False)

    writers = [threading.Thread(target=write, args=(each,)) for each in contents]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        seen.add(file.read_bytes())
    for writer in writers:
        writer.join()
    assert seen <= contents | {OLD}
    assert file.read_bytes() in contents
    assert names(file) == ["file.json"]


def _preimage(folder: Path) -> Path:
    name = Preimages(folder).keep(NEW)
    return folder / name[:2] / name


def _record(folder: Path) -> Path:
    Layout(folder).remember(Running(way="path", port=7687, http=7474))
    return folder / "running.json"


def _password(folder: Path) -> Path:
    Layout(folder).password()
    return folder / "password"


def _settings(folder: Path) -> Path:
    save(folder / "ragmem.toml", "[model]\n")
    return folder / "ragmem.toml"


def _projects(folder: Path) -> Path:
    from ragmem.records import Project

    file = folder / "projects.json"
    KnownProjects(file).save([Project(project_id="p", path="/p", created_at=START)])
    return file


@pytest.mark.parametrize(
    ("make", "synced"),
    [
        (_preimage, ["draft", "folder"]),
        (_record, ["draft"]),
        (_password, ["draft"]),
        (_settings, ["draft"]),
        (_projects, []),
    ],
)
def test_what_has_to_last_is_synced_before_it_bears_the_name(
    make: Callable[[Path], Path],
    synced: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a power cut may not take; a comfort that can be had again costs no sync."""
    calls: list[str] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name
        calls.append("draft" if name.startswith(".ragmem-") else "folder")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    made = make(tmp_path)
    assert calls == synced
    assert stat.S_IMODE(made.stat().st_mode) == 0o600


def test_of_two_that_look_whether_an_owner_lives_the_later_takes_no_new_lock_away(
    tmp_path: Path,
) -> None:
    """Both have found it dead; once its file is gone, it may be held anew under the same name."""
    file = tmp_path / "0a.lock"
    file.touch()
    looks_too = os.open(file, os.O_RDWR)
    fcntl.flock(looks_too, fcntl.LOCK_SH)
    assert not is_held(file)
    assert file.exists(), "it is removed by who looks last, or not at all"
    os.close(looks_too)
    assert not is_held(file)
    assert not file.exists()

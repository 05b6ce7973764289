"""Paths: containment by real path, links, races, things that are not files."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from ragmem.errors import UsageError
from ragmem.tools.base import ToolFailure
from ragmem.tools.workspace import Workspace, open_file
from tests.tools.conftest import EDITING, LOOKING

READERS, WRITERS = list(LOOKING.items()), list(EDITING.items())


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A canary beside the working directory, with a name that begins like it."""
    folder = tmp_path / "w-evil"
    folder.mkdir()
    (folder / "canary").write_text("SECRET")
    return folder / "canary"


@pytest.mark.parametrize(("tool", "arguments"), READERS + WRITERS, ids=lambda v: str(v)[:12])
@pytest.mark.parametrize(
    "spelling",
    ["{outside}", "../w-evil/canary", "../../../../../../..{outside}", "sub/../../w-evil/canary"],
)
async def test_outside_is_refused(desk, outside, tool, arguments, spelling):
    """CVE-2025-54794, CVE-2025-53110, CVE-2026-27735: look-alike prefixes and `..` don't pass."""
    (desk.cwd / "sub").mkdir()
    desk.deny("no")
    outcome = await desk.fails(tool, path=spelling.format(outside=outside), **arguments)
    assert outcome.denied
    assert "SECRET" not in outcome.text
    assert outside.read_text() == "SECRET"


@pytest.mark.parametrize(("tool", "arguments"), READERS + WRITERS, ids=lambda v: str(v)[:12])
async def test_links_to_the_outside_are_refused(desk, outside, tool, arguments):
    """CVE-2025-53109, CVE-2025-55345, CVE-2026-39861: a link as last part, parent, or chain."""
    (desk.cwd / "file").symlink_to(outside)
    (desk.cwd / "folder").symlink_to(outside.parent)
    (desk.cwd / "hop0").symlink_to(outside)
    for n in range(1, 20):
        (desk.cwd / f"hop{n}").symlink_to(f"hop{n - 1}")
    desk.deny()
    for path in ("file", "folder/canary", "hop19"):
        outcome = await desk.fails(tool, path=path, **arguments)
        assert outcome.denied, path
    assert (await desk.fails("create_file", path="folder/new", content="x")).denied
    assert sorted(os.listdir(outside.parent)) == ["canary"]
    assert outside.read_text() == "SECRET"


@pytest.mark.parametrize(
    "path", ["loop", "x" * 300, "c41", "dangling", "a\0b", "", "\ud800"],
    ids=["loop", "long", "chain", "dangling", "nul", "empty", "half"],
)  # fmt: skip
async def test_what_cannot_be_resolved_is_refused(desk, path):
    """CVE-2026-50549: a loop, 41 links, a name too long: refused, not guessed."""
    (desk.cwd / "loop").symlink_to("loop")
    (desk.cwd / "dangling").symlink_to("nowhere")
    (desk.cwd / "c0").write_text("x")
    for n in range(1, 42):
        (desk.cwd / f"c{n}").symlink_to(f"c{n - 1}")
    for tool, arguments in READERS + WRITERS:
        outcome = await desk.fails(tool, path=path, **arguments)
        assert "Traceback" not in outcome.text
    assert not (desk.cwd / "nowhere").exists()


async def test_links_inside_are_followed_and_kept(desk):
    desk.file("real.txt", "one\n")
    (desk.cwd / "link.txt").symlink_to("real.txt")
    await desk.do("read_file", path="link.txt")
    outcome = await desk.do("edit_file", path="link.txt", old="one", new="two")
    assert (desk.cwd / "link.txt").is_symlink()
    assert (desk.cwd / "real.txt").read_text() == "two\n"
    assert outcome.data["path"] == "real.txt"
    assert "goes through a symlink" in desk.proposals[0].warnings[0]


async def test_swap_while_asked_is_refused(desk, outside):
    """SymJack, GhostApproval: what the approval named and what is written are the same."""
    desk.file("docs/a.txt", "one\n")
    await desk.do("read_file", path="docs/a.txt")

    def swap() -> None:
        (desk.cwd / "docs").rename(desk.cwd / "old")
        (desk.cwd / "docs").symlink_to(outside.parent)
        (outside.parent / "a.txt").write_text("one\n")

    desk.meanwhile = swap
    await desk.fails("edit_file", path="docs/a.txt", old="one", new="two")
    assert (outside.parent / "a.txt").read_text() == "one\n"


def test_flipping_a_link_never_opens_the_outside(desk, outside):
    """TOCTOU: a thread swaps folder and link as fast as it can; no open follows it."""
    desk.file("a/canary", "inside")
    (desk.cwd / "b").symlink_to(outside.parent)
    stop = threading.Event()

    def flip() -> None:
        a, b, c = (desk.cwd / name for name in "abc")
        while not stop.is_set():
            a.rename(c)
            b.rename(a)
            a.rename(b)
            c.rename(a)

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        opened = tries = 0
        # The thread may stand still for a while, with the name away or a link.
        while tries < 3000 or not opened:
            tries += 1
            try:
                target = desk.workspace.resolve("a/canary")
                if not target.inside:
                    continue
                with open_file(target.real) as fd:
                    assert os.read(fd, 100) == b"inside"
                    opened += 1
            except (ToolFailure, OSError):
                continue
    finally:
        stop.set()
        thread.join()
    assert opened


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("read_file", {}), ("grep_files", {"pattern": "x"}), ("edit_file", {"old": "a", "new": "b"})],
)
async def test_fifo_and_socket_do_not_hang(desk, tool, arguments, monkeypatch):
    """Ripgrep #2761: only regular files are opened."""
    os.mkfifo(desk.cwd / "fifo")
    monkeypatch.chdir(desk.cwd)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        for name, word in (("fifo", "FIFO"), ("sock", "socket")):
            desk.seen.note(name, "0")
            outcome = await asyncio.wait_for(desk.fails(tool, path=name, **arguments), 30)
            assert word in outcome.text


@pytest.mark.parametrize(
    "path",
    [
        "/dev/zero", "/dev/tty", "/dev/stdin", "/proc/self/environ", "/proc/self/mem",
        "/proc/kmsg", "/proc/1/environ", "/sys/kernel/uevent_seqnum",
    ],
)  # fmt: skip
async def test_devices_and_proc_are_refused_in_every_mode(make_desk, path):
    """Also over a link."""
    desk = make_desk(mode="bypassPermissions")
    (desk.cwd / "link").symlink_to(path)
    for where, (tool, arguments) in product((path, "link"), READERS[::3]):
        outcome = await asyncio.wait_for(desk.fails(tool, path=where, **arguments), 30)
        assert outcome.denied
        assert len(outcome.text) < 100


async def test_a_folder_that_was_moved_away_is_gone_and_made_anew_it_is_worked_in(make_desk):
    """Nothing is written to where it was, nor to where it went."""
    desk = make_desk(mode="bypassPermissions")
    file = desk.file("a.py", "old\n")
    moved = desk.cwd.rename(desk.cwd.with_name("moved"))
    for tool, arguments in (
        ("read_file", {"path": "a.py"}),
        ("list_directory", {"path": "."}),
        ("create_file", {"path": "b.py", "content": "y"}),
        ("run_command", {"command": "touch c.py"}),
    ):
        said = (await desk.fails(tool, **arguments)).text
        assert "gone" in said or "does not exist" in said or "no longer" in said, said
    assert not desk.cwd.exists()
    assert os.listdir(moved) == ["a.py"]
    desk.cwd.mkdir()
    file.write_text("new\n")
    assert "new" in (await desk.do("read_file", path="a.py")).text
    assert "new" in (await desk.do("run_command", command="cat a.py")).text


@pytest.mark.parametrize(
    "name", ["-rf", "--help", "a\nb", "a\x1b[2Jb", "$(touch x)", "`id`", "ü", "caf\udcff.txt"]
)
async def test_strange_names_are_names(desk, name):
    """CVE-2025-68144: leading dashes, newlines, escapes, substitutions; bytes that are no UTF-8."""
    desk.file(name, "needle\n")
    listed = (await desk.do("list_directory")).text.splitlines()[0]
    shown = listed.removesuffix("  7 bytes")
    assert "\x1b" not in shown
    assert (await desk.do("glob_files", pattern="*")).text == shown
    found = await desk.do("grep_files", pattern="needle", path=shown)
    assert found.data["files"] == [{"path": shown}]
    read = await desk.do("read_file", path=shown)
    assert read.data["path"] == shown
    read.result_json.encode()
    await desk.do("edit_file", path=shown, old="needle", new="pin")
    assert (desk.cwd / name).read_text() == "pin\n"
    assert os.listdir(desk.cwd) == [name]


async def test_one_form_of_a_path(desk):
    """`./a.py`, `a.py`, the absolute path and a detour are recorded alike."""
    file = desk.file("sub/a.py", "x")
    for path in ("sub/a.py", "./sub/a.py", str(file), "sub/../sub/a.py", "sub//a.py"):
        assert (await desk.do("read_file", path=path)).data["path"] == "sub/a.py"
    assert not desk.proposals


async def test_added_folders_are_inside(make_desk, tmp_path, outside):
    desk = make_desk(extra=(outside.parent,))
    outcome = await desk.do("read_file", path=str(outside))
    assert outcome.data["path"] == str(outside)
    assert not desk.proposals
    await desk.do("edit_file", path=str(outside), old="SECRET", new="open")
    assert outside.read_text() == "open"


async def test_reading_outside_asks_with_the_resolved_path(desk, outside):
    (desk.cwd / "innocent").symlink_to(outside)
    await desk.do("read_file", path="innocent")
    (proposal,) = desk.proposals
    assert (proposal.kind, proposal.body) == ("path", str(outside))


async def test_deep_folders_are_refused_or_reported(desk):
    """500 levels are searched as far as the system can name them, without a crash."""
    here = os.open(desk.cwd, os.O_RDONLY)
    try:
        for _ in range(500):
            os.mkdir("d" * 10, dir_fd=here)
            below = os.open("d" * 10, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    desk.file("top.txt", "needle\n")
    assert "top.txt" in (await desk.do("glob_files", pattern="*.txt")).text
    assert "top.txt" in (await desk.do("grep_files", pattern="needle")).text
    await desk.do("list_directory")
    await desk.fails("read_file", path="/".join(["d" * 10] * 500) + "/x")
    await desk.do("run_command", command="rm -rf dddddddddd")


def test_folders_that_do_not_exist(tmp_path):
    (tmp_path / "file").touch()
    for extra in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(UsageError, match="can't be used"):
            Workspace(tmp_path, (extra,))


def test_paths_are_shown_as_the_session_recorded_them_or_whole(tmp_path: Path) -> None:
    sub = tmp_path / "sub"
    sub.mkdir()
    here, moved = Workspace(tmp_path), Workspace(tmp_path, session_cwd=sub)
    assert here.record_path(tmp_path / "x" / "y") == "x/y"
    assert here.record_path(tmp_path.parent / "z") == str(tmp_path.parent / "z")
    assert moved.record_path(tmp_path / "x") == str(tmp_path / "x")
    assert (here.recorded_path("a"), moved.recorded_path("a")) == ("a", str(sub / "a"))


def test_the_working_directory_may_be_reached_over_a_link(tmp_path: Path, make_desk: Callable):
    desk = make_desk()
    (tmp_path / "alias").symlink_to(desk.cwd)
    workspace = Workspace(tmp_path / "alias")
    assert workspace.cwd == desk.cwd
    desk.file("a.txt", "x")
    assert workspace.resolve(str(tmp_path / "alias" / "a.txt")).inside

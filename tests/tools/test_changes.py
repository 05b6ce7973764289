"""What was read: again, or changed by others since; and which lines an edit has changed."""

import hashlib
import os
from collections.abc import Callable
from typing import Any

import pytest

from ragmem.tools import files
from ragmem.tools.files import ChangedFiles, SeenFiles, changed_lines, unified_diff
from ragmem.usage import Metrics
from tests.tools.conftest import Desk, recorded


@pytest.fixture
def changed(desk: Any) -> ChangedFiles:
    return ChangedFiles(desk.workspace, desk.seen)


async def test_told_once(desk: Any, changed: ChangedFiles, make_desk: Callable[..., Desk]) -> None:
    desk.file("a.py", "one\n")
    desk.file("b.py", "one\n")
    assert await changed.news() == ""
    read = await desk.do("read_file", path="a.py")
    await desk.do("create_file", path="sub/b.py", content="x\n")
    assert await changed.news() == "", "its own edits are no news"

    desk.file("a.py", "two\n")
    desk.file("b.py", "two\n")
    told = (
        "Changed on disk since you read them: a.py. "
        "Read them again before you rely on them or edit them."
    )
    assert await changed.look() == told
    assert await changed.news() == told
    assert await changed.news() == ""
    desk.file("a.py", "three\n")
    assert "a.py" in await changed.news()

    await desk.do("read_file", path="a.py")
    await desk.do("edit_file", path="a.py", old="three", new="four")
    assert await changed.news() == ""
    desk.file("a.py", "five\n")
    assert "a.py" in await changed.news()

    resumed = make_desk()
    resumed.seen.restore([recorded("read_file", read)])
    changed = ChangedFiles(resumed.workspace, resumed.seen)
    assert "a.py" in await changed.news(), "what was read before a resume is watched too"
    assert await changed.news() == ""


async def test_touched_moved_back_and_gone(desk: Any, changed: ChangedFiles) -> None:
    """Content counts, not the clock or the size; a file that is gone is told of, and its return."""
    file = desk.file("a.py", "one\n")
    await desk.do("read_file", path="a.py")
    os.utime(file, ns=(1, 1))
    assert await changed.news() == ""
    file.write_text("two\n")
    os.utime(file, ns=(1, 1))
    assert "a.py" in await changed.news()
    file.unlink()
    assert "a.py" in await changed.news()
    assert await changed.news() == ""
    desk.file("a.py", "one\n")
    assert await changed.news() == ""
    desk.file("a.py", "two\n")
    assert "a.py" in await changed.news()


async def test_written_again_within_a_tick(
    desk: Any, changed: ChangedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that ticks now and then, as many file systems' do, hides no change."""
    fine, tick_ns = files.identity, 100_000_000

    def ticking(status: os.stat_result) -> tuple[int, ...]:
        *what, modified, changed = fine(status)
        return *what, modified // tick_ns, changed // tick_ns

    monkeypatch.setattr(files, "identity", ticking)
    for n in range(100):
        file = desk.file("a.py", f"{n:03}\n")
        assert changed._hash_of("a.py") == hashlib.sha256(file.read_bytes()).hexdigest()


async def test_dozens_are_counted(desk: Any, changed: ChangedFiles) -> None:
    for n in range(50):
        desk.file(f"f{n}.py", "one\n")
        await desk.do("read_file", path=f"f{n}.py")
        desk.file(f"f{n}.py", "two\n")
    text = await changed.news()
    assert text.startswith("Changed on disk since you read them (50 files): f49.py, f48.py")
    assert "f30.py and 30 more." in text
    assert await changed.news() == ""


async def test_names_that_would_deceive(desk: Any, changed: ChangedFiles) -> None:
    """One line, whatever a file is called; links and folders in its place."""
    odd = "a\nNow obey.py"
    desk.file(odd, "one\n")
    await desk.do("read_file", path=odd)
    desk.file(odd, "two\n")
    assert "\n" not in await changed.news()

    file = desk.file("b.py", "one\n")
    await desk.do("read_file", path="b.py")
    file.unlink()
    file.mkdir()
    assert await changed.news() == ""


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("a\nb\nc\n", "a\nX\nc\n", [(2, 2, 1)]),
        ("a\nb\nc\n", "a\nX\nY\nc\n", [(2, 3, 1)]),
        ("a\nb\nc\n", "a\nc\n", [(1, 1, 2)]),
        ("a\nb\n", "b\n", [(1, 1, 2)]),
        ("", "a\nb\n", [(1, 2, 0)]),
        ("a\nb\n", "a\nX\nY\nb\n", [(2, 3, 0)]),
        ("a\n", "a\nb", [(2, 2, 0)]),
        ("a\nb", "a\nb\n", [(2, 2, 1)]),
        (
            "a\n" * 3 + "b\n" * 20 + "c\n",
            "X\n" + "a\n" * 2 + "b\n" * 20 + "Y\n",
            [(1, 1, 1), (24, 24, 1)],
        ),
        ("--- x\n", "+++ y\n", [(1, 1, 1)]),
    ],
)
def test_changed_lines(old: str, new: str, lines: list[tuple[int, int, int]]) -> None:
    """As they are afterwards, and how many they were; what went by the line before it."""
    assert changed_lines(unified_diff(old, new, "f")[0]) == lines


def test_changed_lines_of_many_changes_are_fifty() -> None:
    old = "".join(f"{n}\n" for n in range(1_000))
    new = "".join(f"{n}{'x' * (n % 5 == 0)}\n" for n in range(1_000))
    found = changed_lines(unified_diff(old, new, "f")[0])
    assert len(found) == 50
    assert found[-1][1:] == (996, found[-1][1] - found[-1][0] + 1)


async def test_edits_are_recorded_with_their_lines(desk: Any) -> None:
    desk.file("a.py", "one\ntwo\nthree\n")
    await desk.do("read_file", path="a.py")
    edited = await desk.do("edit_file", path="a.py", old="two\n", new="2\n2b\n")
    assert (edited.data["changed"], edited.data["replaced"]) == ([[2, 3]], [1])
    written = await desk.do("write_file", path="a.py", content="one\n2\n2b\nfour\n")
    assert (written.data["changed"], written.data["replaced"]) == ([[4, 4]], [1])


@pytest.fixture
def counted(desk: Desk) -> Metrics:
    metrics = desk.seen._metrics
    desk.file("a.txt", "".join(f"{n}\n" for n in range(1, 101)))
    return metrics


async def test_only_what_was_shown_unchanged_is_read_again(desk: Desk, counted: Metrics) -> None:
    async def again(**lines: int) -> int:
        before = counted.counts["files.reads_again"]
        await desk.do("read_file", path="a.txt", **lines)
        return int(counted.counts["files.reads_again"] - before)

    assert not await again(limit=40)
    assert not await again(offset=41)  # the next page
    assert await again(offset=10, limit=5)
    assert not await again()  # all of it was never shown at once
    assert await again(offset=2)
    await desk.do("edit_file", path="a.txt", old="7\n8\n", new="seven\n8\n")
    assert not await again()
    (desk.cwd / "a.txt").write_text("other\n")
    assert not await again()
    assert await again()
    assert counted.counts["files.reads"] == 8


async def test_a_resumed_session_knows_what_it_has_read(desk: Desk, counted: Metrics) -> None:
    outcome = await desk.do("read_file", path="a.txt")
    desk.seen = SeenFiles(counted)
    desk.seen.restore([recorded("read_file", outcome)])
    sha256 = desk.seen.hash_of("a.txt")
    assert sha256
    assert (counted.counts["files.reads"], counted.counts["files.reads_again"]) == (1, 0)
    desk.seen.read("a.txt", sha256, 1, 100)
    assert (counted.counts["files.reads"], counted.counts["files.reads_again"]) == (2, 1)

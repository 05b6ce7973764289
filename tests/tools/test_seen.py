"""Reading again what was read before, and has not changed, is counted."""

import pytest

from ragmem.tools.files import SeenFiles
from ragmem.usage import Metrics
from tests.tools.conftest import Desk, recorded


@pytest.fixture
def counted(desk: Desk) -> Metrics:
    metrics = desk.seen._metrics
    desk.file("a.txt", "".join(f"{n}\n" for n in range(1, 101)))
    return metrics


async def test_only_what_was_shown_and_is_unchanged_is_read_again(
    desk: Desk, counted: Metrics
) -> None:
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

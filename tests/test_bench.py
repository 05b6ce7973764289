"""`scripts/bench` on how cost grows: what it fills is a whole memory, what it draws can be read."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from ragmem.store.sqlite import SQLiteStore

ROOT = Path(__file__).parents[1]
FILL = """
import asyncio, sys
from pathlib import Path
from benches.growth import Place, fill
filled = asyncio.run(fill(Place(home=Path(sys.argv[1])), 700))
print(len(filled.session_ids), sum(filled.lengths.values()), len(filled.long_ids))
"""


def bench(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'scripts'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_the_memory_that_is_measured_is_whole(tmp_path: Path) -> None:
    """Issue 4: so many turns, each with its two calls, in sessions of many lengths."""
    sessions, turns, long = map(int, bench("-c", FILL, str(tmp_path)).split())
    assert (turns, long) == (700, 1)
    data = tmp_path / "data"
    store = await SQLiteStore.open(data / "memory.db", locks_dir=tmp_path / "locks")
    assert await store.check() == []
    counts = (await store.info()).counts
    assert (counts["sessions"], counts["turns"]) == (sessions, 700)
    assert counts["tool_calls"] == 1400
    await store.aclose()


def test_how_cost_grows_is_drawn(tmp_path: Path) -> None:
    """Issue 4: from measurements to charts that a reader of SVG takes, with every name in them."""
    spread = {"minimum": 1.0, "median": 2.0, "p95": 3.0, "maximum": 4.0, "runs": 9}
    names = ["append: turn begun", "append: tool call", "append: turn ended", "append: bare insert"]
    names += ["load the newest 30 turns", "load a session of 300", "list a folder"]
    names += ["list a project", "list everything, newest 50", "find by the tail of an id"]
    rows = [
        {
            "store": "sqlite",
            "turns": turns,
            "sessions": turns // 36 + 1,
            "fill_turns_per_s": 4000.0,
            "read_turns_per_s": 9000.0,
            "size_bytes": 5700 * turns,
            "fill_rss_bytes": 50_000_000,
            "work_rss_bytes": 60_000_000,
            "open_ms": 5.0,
            "check_ms": 0.01 * turns,
            "info_ms": 0.004 * turns,
            "steps": dict.fromkeys(names, spread),
        }
        for turns in (1_000, 100_000)
    ]
    measured = tmp_path / "measured.json"
    measured.write_bytes(msgspec.json.encode(rows))
    table = bench("-m", "benches", "--measured", str(measured), "--plot", str(tmp_path))
    assert "sqlite 100,000" in table
    assert "2.00 (3.00)" in table
    drawn = sorted(file.name for file in tmp_path.glob("*.svg"))
    assert drawn == [
        f"growth-sqlite-{subject}.svg" for subject in ("append", "read", "size", "whole")
    ]
    texts = [
        element.text or ""
        for element in ElementTree.parse(tmp_path / "growth-sqlite-append.svg").iter()
        if element.tag.endswith("text")
    ]
    assert any(text.startswith("bare insert") for text in texts)
    assert {"1,000", "100,000", "milliseconds"} <= set(texts)

"""Draws docs/pictures/graph-*.png: `python -m tests.graph.draw`, called by scripts/pictures.

With the system's Chromium and pngquant.
"""

import asyncio
import random
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import sync_playwright

from ragmem.graph import to_html
from ragmem.memory.graph import Wanted, collect
from ragmem.store.sqlite import SQLiteStore
from tests.graph.conftest import ARGUMENTS, chromium
from tests.graph.garden import PROJECT, garden, requests

TARGET = Path(__file__).parents[2] / "docs" / "pictures"
PICTURES = (
    ("graph-map", "light", (1200, 760), "#map"),
    ("graph-story", "dark", (1200, 760), "#stories/file=beds%2Fwatering.py"),
    ("graph-phone", "light", (390, 760), "#days"),
)


async def page() -> bytes:
    """The garden, with two weeks of numbers."""
    some = random.Random(3)
    numbers = [
        {
            "day": f"2026-11-{day:02}",
            "tokens": some.randint(20, 160) * 1000,
            "background_tokens": some.randint(5, 30) * 1000,
            "cost_usd": some.random() / 2,
        }
        for day in range(9, 24)
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "memory.db")
        store = await SQLiteStore.open(file, locks_dir=Path(folder, "locks"), timeout_s=30)
        await store.apply(garden())
        wanted = Wanted(title=f"Memory of {PROJECT.path}", project=PROJECT)
        now = datetime(2026, 11, 24, 9, 30, tzinfo=UTC)
        graph = await collect(store, wanted, now=now, sent=requests(), numbers=numbers)
        await store.aclose()
    return to_html(graph)


def main(made: bytes) -> None:
    """Write them."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder, "graph.html")
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        file.write_bytes(made)
        for name, scheme, (width, height), where in PICTURES:
            size = {"width": width, "height": height}
            shown = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
            shown.goto(f"{file.as_uri()}{where}")
            shown.wait_for_selector("body[data-ready]")
            if where == "#map":
                shown.wait_for_selector("body[data-settled=yes]")
            picture = TARGET / f"{name}.png"
            shown.screenshot(path=picture)
            # Half the size, to the eye the same.
            subprocess.run(["pngquant", "--force", "--output", picture, "128", picture], check=True)
        browser.close()


if __name__ == "__main__":
    main(asyncio.run(page()))

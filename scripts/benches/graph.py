"""The page of `ragmem graph`: the time to make and open it, and its frame rate."""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from playwright.sync_api import Page, sync_playwright

from benches.growth import Place, fill, in_child
from benches.results import CannotMeasure
from benches.tables import aligned
from ragmem.graph import to_html
from ragmem.memory.graph import Wanted, collect
from ragmem.records import utc_now
from tests.graph.conftest import ARGUMENTS, chromium

SIZES = "1500,15000,100000"
"""Numbers of turns; there are about a third more nodes."""
OPEN_MS = 2_000
FRAMES = 50
_FRAMES = """() => new Promise((done) => {
  const began = performance.now();
  let frames = 0;
  const step = (now) => {
    frames += 1;
    map.x += 6 * Math.cos((now - began) / 500);
    map.y += 6 * Math.sin((now - began) / 500);
    moved();
    if (now - began < 3000) requestAnimationFrame(step);
    else done(frames / ((now - began) / 1000));
  };
  requestAnimationFrame(step);
})"""


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a memory's page."""

    turns: int
    nodes: int
    edges: int
    collect_s: float
    page_mb: float
    open_ms: float
    """The time from the start of the navigation until the page is usable."""
    shapes: int
    """The shapes on the map when it opens."""
    frames: float
    """Frames per second while that map is moved."""
    frames_apart: float
    """The same with a shape for each node."""

    @property
    def kept(self) -> bool:
        """Whether the targets are met; they apply to pages that contain the whole memory."""
        return self.open_ms <= OPEN_MS and min(self.frames, self.frames_apart) >= FRAMES


class Graphs(msgspec.Struct, frozen=True, tag="graph"):
    """The results of one run."""

    drawn: list[Drawn] = []

    @property
    def kept(self) -> bool:
        """Whether every target is met."""
        return all(each.kept for each in self.drawn)


def measure_graph(folder: Path, turns: str) -> Iterator[Graphs]:
    """Measure the page of each memory, in a browser without a GPU."""
    if chromium() is None:
        raise CannotMeasure("there is no Chromium here: install the system's package `chromium`")
    for size in map(int, (turns or SIZES).split(",")):
        place, page = Place(home=folder / f"graph-{size}"), folder / f"graph-{size}.html"
        in_child(fill, place, size)
        drawn = in_child(_write, place, page, size)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
            shown = browser.new_page(viewport={"width": 1400, "height": 900})
            yield Graphs([_looked(shown, page, drawn)])
            browser.close()


async def _write(place: Place, page: Path, size: int) -> Drawn:
    store = await place.open()
    began = time.perf_counter()
    graph = await collect(store, Wanted(title="Filled"), now=utc_now())
    seconds = time.perf_counter() - began
    await store.aclose()
    data = to_html(graph)
    page.write_bytes(data)  # noqa: ASYNC240
    return Drawn(
        turns=size,
        nodes=len(graph.nodes),
        edges=len(graph.edges),
        collect_s=seconds,
        page_mb=len(data) / 1e6,
        open_ms=0,
        shapes=0,
        frames=0,
        frames_apart=0,
    )


def _looked(shown: Page, page: Path, drawn: Drawn) -> Drawn:
    opened = []
    for _ in range(3):
        shown.goto("about:blank")
        shown.goto(page.as_uri())
        shown.wait_for_selector("body[data-ready]")
        opened.append(float(shown.get_attribute("body", "data-ready") or 0))
    settled = "body[data-settled=yes]"
    shown.wait_for_selector(settled)
    shapes, frames = shown.evaluate("map.items.length"), shown.evaluate(_FRAMES)
    shown.select_option("#group", "none")
    shown.wait_for_selector(settled)
    return msgspec.structs.replace(
        drawn,
        open_ms=sorted(opened)[1],
        shapes=shapes,
        frames=frames,
        frames_apart=shown.evaluate(_FRAMES),
    )


def graph_table(found: Graphs) -> str:
    """Return a row for each memory."""
    head = ["turns", "nodes", "lines", "made, s", "page, MB", "opens, ms", "shapes"]
    rows = [[*head, "frames/s", "all apart", ""]]
    rows += [
        [
            f"{each.turns:,}",
            f"{each.nodes:,}",
            f"{each.edges:,}",
            f"{each.collect_s:.1f}",
            f"{each.page_mb:.1f}",
            f"{each.open_ms:,.0f}",
            f"{each.shapes:,}",
            f"{each.frames:.0f}",
            f"{each.frames_apart:.0f}",
            "ok" if each.kept else "MISSED",
        ]
        for each in found.drawn
    ]
    return aligned(rows)

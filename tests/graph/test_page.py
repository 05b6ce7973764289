"""The page in a real browser: views, search, links, keyboard; nothing runs, nothing leaves."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from ragmem.graph import to_html
from ragmem.memory.graph import Graph, Wanted, collect
from ragmem.records import Write
from ragmem.store import Store
from ragmem.store.neo4j import Connection, Neo4jStore
from ragmem.store.sqlite import SQLiteStore
from tests.fakes.neo4j import ALSO_NEO4J, in_thread, open_empty_neo4j_store
from tests.graph.evil import EVIL
from tests.graph.garden import PROJECT, fill, garden, requests

pytestmark = pytest.mark.asyncio(loop_scope="package")
NOW = datetime(2026, 11, 24, tzinfo=UTC)
DAY = {"day": "2026-11-23", "tokens": 1000, "background_tokens": 100, "cost_usd": 0.5}
SIZES = {"wide": (1400, 900), "phone": (390, 844)}


async def collected(store: Store, writes: list[Write]) -> tuple[Graph, dict[str, int]]:
    await fill(store, writes)
    wanted = Wanted(title="The garden", project=PROJECT)
    graph = await collect(store, wanted, now=NOW, sent=requests(), numbers=(DAY,))
    counts = (await store.info()).counts
    await store.aclose()
    return graph, counts


def in_sqlite(folder: Path, writes: list[Write]) -> tuple[Graph, dict[str, int]]:
    async def work() -> tuple[Graph, dict[str, int]]:
        file = folder / "memory.db"
        store = await SQLiteStore.open(file, locks_dir=folder / "locks", timeout_s=30)
        return await collected(store, writes)

    return in_thread(work())


def in_neo4j(server: Connection, writes: list[Write]) -> tuple[Graph, dict[str, int]]:
    async def work() -> tuple[Graph, dict[str, int]]:
        store: Neo4jStore = await open_empty_neo4j_store(server)
        return await collected(store, writes)

    return in_thread(work())


class Look:
    """A page that is opened, and all that it asked for or complained of."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page = page
        self.file = file
        self.asked: list[str] = []
        self.said: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        self.failed: list[str] = []
        page.on("requestfailed", lambda request: self.failed.append(request.url))
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))

    async def open(self, hash: str = "") -> "Look":
        await self.page.goto("about:blank")
        self.asked.clear()
        await self.page.goto(f"{self.file.as_uri()}{hash}")
        await self.page.wait_for_selector("body[data-ready]")
        return self

    async def settled(self) -> None:
        await self.page.wait_for_selector("body[data-settled=yes]", timeout=30_000)

    async def view(self, name: str) -> None:
        await self.page.click(f"#tabs [data-view={name}]")
        await self.page.wait_for_selector(f"body[data-view={name}]")

    async def until(self, true: str) -> None:
        """Wait for an expression to hold; the page's policy forbids Playwright's own way."""
        for _ in range(600):
            if await self.page.evaluate(true):
                return
            await self.page.wait_for_timeout(25)
        raise AssertionError(true)

    async def count(self, selector: str) -> int:
        return await self.page.locator(selector).count()

    async def text(self, selector: str) -> str:
        return await self.page.locator(selector).first.inner_text()

    def assert_quiet(self) -> None:
        assert self.said == []
        assert [url for url in self.asked if url.split("#")[0] != self.file.as_uri()] == []


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, dict[str, int]]:
    """The garden, and how many of each kind its store counts."""
    return in_sqlite(tmp_path_factory.mktemp("garden"), garden())


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def garden_page(
    browser: Browser,
    planted: tuple[Graph, dict[str, int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator["Look"]:
    """That of the garden, for one test after the other."""
    async with opened(browser, planted[0], tmp_path_factory.mktemp("page")) as one:
        yield one


@pytest_asyncio.fixture(loop_scope="package")
async def look(garden_page: Look) -> AsyncIterator[Look]:
    """That page as it is when it is opened; it has to have been quiet at the end."""
    garden_page.said.clear()
    yield await garden_page.open()
    garden_page.assert_quiet()


@asynccontextmanager
async def opened(
    browser: Browser, graph: Graph, folder: Path, size: str = "wide"
) -> AsyncIterator[Look]:
    """A page of the graph, closed at the end; it has to have been quiet."""
    file, (width, height) = folder / "graph.html", SIZES[size]
    file.write_bytes(to_html(graph))
    async with await browser.new_page(viewport={"width": width, "height": height}) as page:
        look = await Look(page, file).open()
        yield look
    look.assert_quiet()


@pytest.mark.parametrize("kind", ["sqlite", ALSO_NEO4J])
async def test_each_view_shows_what_the_store_counts(
    kind: str, browser: Browser, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "neo4j":
        graph, counts = in_neo4j(request.getfixturevalue("neo4j_server"), garden())
    else:
        graph, counts = request.getfixturevalue("planted")
    async with opened(browser, graph, tmp_path) as look:
        await look.settled()
        for name, stored in {
            "session": "sessions", "turn": "turns", "file": "files", "code": "scopes",
            "memory": "memories", "summary": "summaries",
        }.items():  # fmt: skip
            assert await look.text(f".chip[data-kind={name}] small") == str(counts[stored])
        whole = len(graph.nodes)
        assert (await look.text("#map-count")).startswith(f"{whole} shapes for {whole} nodes")
        await look.view("days")
        assert await look.count(".bead") == counts["turns"]
        assert await look.count(".bead.bad") == 12
        await look.view("summaries")
        assert await look.count(".rows > details.tree") == counts["sessions"]
        await look.view("stories")
        assert await look.count(".entry") == counts["files"] + counts["scopes"]
        await look.view("memories")
        shown = await look.count(".memory-card")
        assert shown == counts["memories"] - 1
        assert await look.count("blockquote") == shown
        await look.view("requests")
        assert await look.count(".strip") == len(requests())
        await look.view("numbers")
        assert await look.count(".chart") == 10


async def test_words_open_with_a_click_and_links_lead_on(look: Look) -> None:
    page = look.page
    await look.open("#days")
    await page.click(".bead.bad >> nth=-1")
    assert await look.text("#panel h2") == "The plan waters twice after midnight."
    assert "#days/turn=turn-0-3" in page.url
    await page.click("#panel details.call:nth-of-type(2) summary")
    # What is opened is filled a moment later.
    await page.wait_for_selector("#panel details[open] >> text=1 failed: tests/test_watering.py")
    await page.click("#panel .links [data-id='file=beds/watering.py']")
    assert await look.text("#panel h2") == "beds/watering.py"
    await page.click("#panel >> text=See in Stories")
    assert await look.count(".story .card") == 12
    await page.evaluate("history.go(-2)")
    await look.until("state.selected === 'turn=turn-0-3'")
    assert await look.text("#panel h2") == "The plan waters twice after midnight."
    await page.keyboard.press("Escape")
    assert await page.locator("#panel").is_hidden()


async def test_a_link_to_a_turn_opens_it_and_the_tree_leads_down_to_the_words(look: Look) -> None:
    page = look.page
    await look.open("#turn=turn-1-2")
    assert await look.text("#panel .asked") == "Keep the Latin name apart."
    assert await page.get_attribute("body", "data-view") == "map"
    await look.open("#summaries")
    await page.fill("#q", "Watering weather")
    await look.until("state.found && state.found.size > 1")
    await page.click("#view details.tree >> nth=-1 >> summary >> nth=0")
    for level in ("Level 2", "Level 1"):
        await page.click(f"#view summary:has-text('{level}') >> nth=0")
    await page.click("#view details .line >> nth=0 >> button")
    assert await look.text("#panel .asked") == "Skip watering when rain is forecast."


async def test_search_and_filters_say_how_many(look: Look) -> None:
    page = look.page
    await look.settled()
    await page.keyboard.press("/")
    await page.keyboard.type("frost threshold")
    await look.until("state.found !== null")
    hits = int((await look.text("#found")).split()[0])
    assert hits == await look.count("#hits .line")
    assert await look.count("#hits [data-id^='memory=']") == 1
    await page.click("#hits [data-id='memory=memory-6']")
    assert "threshold of its own" in await look.text("#panel .words")
    await page.keyboard.press("Escape")
    await page.keyboard.press("Escape")
    before = await look.text("#map-count")
    await page.click(".chip[data-kind=turn]")
    assert await look.text("#map-count") != before
    assert "81 nodes" in await look.text("#map-count")
    await look.view("memories")
    await page.select_option("#trust", "tool")
    assert await look.count(".memory-card") == 1
    assert await look.text(".hint") == "1 memory."
    await page.select_option("#trust", "")
    await page.fill("input[type=date] >> nth=0", "2026-11-12")
    assert await look.count(".memory-card") == 5


async def test_a_deadline_is_a_day(look: Look) -> None:
    """What is true since the day that it was said says so once."""
    told = """([kind, due]) =>
        dueText({ time: Date.parse("2026-11-20T10:00Z"), facts: { kind, due } })"""
    for kind, day, said in [
        ("deadline", "2026-12-04T12:00Z", "due 4 Dec 2026"),
        ("fact", "2026-11-19T12:00Z", "on 19 Nov 2026"),
        ("fact", "2026-11-20T10:00Z", ""),
        ("fact", None, ""),
    ]:
        assert await look.page.evaluate(told, [kind, day]) == said
    await look.view("numbers")
    assert await look.text(".ends small") == "23 Nov 2026"


async def test_the_map_is_chosen_from_moved_and_gathered(look: Look) -> None:
    page = look.page
    await look.settled()
    place = await page.evaluate(
        "(() => { const i = map.byId.get('session=session-3');"
        " const b = map.canvas.getBoundingClientRect();"
        " return [b.left + i.x * map.k + map.x, b.top + i.y * map.k + map.y] })()"
    )
    await page.mouse.click(*place)
    assert await look.text("#panel h2") == "The calendar page"
    await page.keyboard.press("Escape")
    before = await page.evaluate("[map.x, map.k]")
    await page.keyboard.press("ArrowLeft")
    await page.keyboard.press("+")
    assert await page.evaluate("[map.x, map.k]") != before
    for group, shapes in (("session", 24), ("file", 32), ("time", 11)):
        await page.select_option("#group", group)
        told = await look.text("#map-count")
        assert re.match(rf"{shapes} shapes for 161 nodes", told), told
    await page.select_option("#group", "none")
    for key, view in zip("1234567", ("map", "days", "summaries", "stories"), strict=False):
        await page.keyboard.press("Escape")
        await page.keyboard.press(key)
        assert await page.get_attribute("body", "data-view") == view
    await page.keyboard.press("?")
    assert await page.locator("#help").is_visible()


async def test_nothing_hostile_runs_leaves_or_hides(browser: Browser, tmp_path: Path) -> None:
    graph, _ = in_sqlite(tmp_path, garden(1, EVIL))
    async with opened(browser, graph, tmp_path, "phone") as look:
        page = look.page
        ids = [node.id for node in graph.nodes]
        assert any("</script>" in each for each in ids)
        for view in ("map", "days", "summaries", "stories", "memories", "requests", "numbers"):
            await look.view(view)
            # The words of one of each kind, with all that is folded.
            await page.evaluate(
                """async (ids) => {
                  for (const id of ids) {
                    go(state.view, id);
                    await new Promise((next) => setTimeout(next, 0));
                    for (let i = 0; i < 4; i += 1) {
                      document.querySelectorAll('details').forEach((each) => each.open = true);
                      await new Promise((next) => setTimeout(next, 0));
                    }
                  }
                }""",
                [ids[0], *[next(i for i in ids if i.startswith(k)) for k in ("turn", "memory")]],
            )
            assert await page.evaluate("typeof owned") == "undefined"
            foreign = "script[src], iframe, img, base, link, form:not([method=dialog]), a, object"
            assert await look.count(foreign) == 0
        assert await look.count("[onerror], [onload], [onmouseover], [ontoggle], [style]") == 0
        assert await page.title() == "The garden"
        for evil in EVIL[:4]:
            assert evil in await page.evaluate("nodes.get('turn=turn-0-0').facts.asked")
        # Nothing is wider than the phone.
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390


async def test_the_policy_stops_what_would_run_or_be_asked_for(look: Look) -> None:
    """What the page itself never does is forbidden to it as well."""
    for attempt in (
        "document.body.append(el('img', {src: 'https://evil.example/x.png'}))",
        "document.body.append(el('script', {}, 'window.owned = 1'))",
        "fetch('https://evil.example/').catch(() => 0)",
    ):
        await look.page.evaluate(f"() => {{ {attempt}; }}")
    while len(look.said) < 3:
        await look.page.wait_for_timeout(25)
    assert await look.page.evaluate("typeof owned") == "undefined"
    assert all("Content Security Policy" in each for each in look.said)
    assert set(look.failed) == set(look.asked) - {look.file.as_uri()}
    look.said.clear()
    look.asked.clear()

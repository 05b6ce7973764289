"""A browser, and what the page asks of it."""

import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """The system's browser; None where there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One browser serves all tests of the page but those that need a Neo4j."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()) and "neo4j" not in item.name:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser() -> AsyncIterator[Browser]:
    """The system's Chromium, without a window."""
    found = chromium()
    if found is None:
        pytest.skip("there is no Chromium here: install the system's package `chromium`")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        await browser.close()

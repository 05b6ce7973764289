"""Fixtures of the adapters' tests."""

from collections.abc import AsyncIterator, Callable

import pytest

from ragmem.llm import retry
from ragmem.llm.base import LLM
from tests.llm.adapters import ADAPTERS, Connect


def pytest_configure(config: pytest.Config) -> None:
    """Tests of the small local model run where it is installed: `-m local_model`."""
    config.addinivalue_line("markers", "local_model: needs ragmem[local] and the model's wheel")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without that choice they are deselected, and counted so in the closing line."""
    if "local_model" in config.option.markexpr:
        return
    chosen = [item for item in items if item.get_closest_marker("local_model") is None]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=[i for i in items if i not in chosen])
        items[:] = chosen


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.01)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=sorted(ADAPTERS))
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Makes an adapter for a URL, one kind a run of the test, and closes it at the end."""
    made: list[LLM] = []
    make: Callable[..., LLM] = ADAPTERS[request.param]

    def opened(*args: object, **options: object) -> LLM:
        made.append(make(*args, **options))
        return made[-1]

    yield opened
    for llm in made:
        await llm.aclose()

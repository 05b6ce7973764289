"""Fixtures of the adapters' tests."""

from collections.abc import AsyncIterator, Callable

import pytest

from ragmem import errors
from ragmem.llm.base import LLM
from tests.llm.adapters import ADAPTERS, Connect, warm


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "FIRST_WAIT_S", 0.01)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=sorted(ADAPTERS))
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Makes an adapter for a URL, one kind a run of the test, and closes it at the end."""
    made: list[LLM] = []
    make: Callable[..., LLM] = ADAPTERS[request.param]
    if request.param == "litellm":
        await warm(make)

    def opened(*args: object, **options: object) -> LLM:
        made.append(make(*args, **options))
        return made[-1]

    yield opened
    for llm in made:
        await llm.aclose()

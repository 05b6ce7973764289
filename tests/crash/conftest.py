"""What a worker's crash tests share: the model, and the process that theirs are forked from."""

from collections.abc import Iterator

import pytest

from tests.crash.scenario import model
from tests.crash.zygote import Zygote
from tests.fakes.llm_server import LLMServer


@pytest.fixture(scope="session")
def server() -> Iterator[LLMServer]:
    """The model."""
    with model() as running:
        yield running


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Warm processes, without a planted bug; its start takes seconds."""
    with Zygote() as running:
        yield running

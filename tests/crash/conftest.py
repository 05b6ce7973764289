"""What a worker's crash tests share: the model."""

from collections.abc import Iterator

import pytest

from tests.crash.scenario import model
from tests.fakes.llm_server import LLMServer


@pytest.fixture(scope="session")
def server() -> Iterator[LLMServer]:
    """The model."""
    with model() as running:
        yield running

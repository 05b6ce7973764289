"""A person who chats, and who runs commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.e2e.house import house
from tests.fakes.llm_server import Answer, LLMServer

__all__ = ["house"]


@pytest.fixture
def server() -> Iterator[LLMServer]:
    """A model that says the same when nothing else is left to say."""
    with LLMServer([Answer("The answer.")], repeat=True) as running:
        yield running


@pytest.fixture
def ragmem(tmp_path: Path, server: LLMServer) -> Ragmem:
    """A home and a project, and that model."""
    return Ragmem(tmp_path, server.env)

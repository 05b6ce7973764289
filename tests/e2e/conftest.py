"""A person who chats, and who runs commands."""

from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.e2e.house import house, server
from tests.fakes.llm_server import LLMServer

__all__ = ["house", "server"]


@pytest.fixture
def ragmem(tmp_path: Path, server: LLMServer) -> Ragmem:
    """A home and a project, and that model."""
    return Ragmem(tmp_path, server.env)

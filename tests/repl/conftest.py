"""A person who chats, with the real agent or a scripted one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.house import house, server
from tests.repl.pty_chat import FakeChat

__all__ = ["house", "server"]


@pytest.fixture
def chat(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FakeChat]:
    """A chat that takes prompts, with the settings and options of the test's mark `chat`."""
    given = request.node.get_closest_marker("chat") or pytest.mark.chat().mark
    with FakeChat(tmp_path, *given.args, **given.kwargs) as begun:
        yield begun

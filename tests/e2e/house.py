"""A project in which a person chats: the real command on a pty, and a scripted model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.process import COMMAND, Ragmem
from tests.fakes.llm_server import Answer, LLMServer
from tests.repl.pty_chat import PtyChat


class House(Ragmem):
    """A project, a home for ragmem, and a scripted model."""

    def __init__(self, folder: Path, server: LLMServer) -> None:
        super().__init__(folder, server.env)
        self.server = server
        (self.project / "a.py").write_text('print("hello")\n')

    def chat(self, *arguments: str, **options: Any) -> PtyChat:
        """`ragmem chat` in the project."""
        env = {**self.env, **options.pop("env", {})}
        return PtyChat([*COMMAND, *arguments], cwd=self.project, env=env, **options)

    def sessions(self) -> Any:
        """`sessions list`, each with its turns."""
        return [self.shown(each["session_id"]) for each in super().sessions()]

    def last_prompt(self) -> str:
        """All that the model was sent last."""
        return json.dumps(self.server.requests[-1].body["messages"])


@pytest.fixture
def server() -> Iterator[LLMServer]:
    """A model that says the same when nothing else is left to say."""
    with LLMServer([Answer("The answer.")], repeat=True) as running:
        yield running


@pytest.fixture
def house(tmp_path: Path, server: LLMServer) -> House:
    """And the model, with nothing else to say yet."""
    return House(tmp_path, server)


def loaded(chat: PtyChat) -> None:
    chat.wait_for_screen(r"openai/scripted · \S")

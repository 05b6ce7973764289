"""A project in which a person chats: the real command on a pty, and a scripted model."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.process import run_warm
from tests.fakes.llm_server import LLMServer
from tests.repl.pty_chat import ROOT, PtyChat


class House:
    """A project, a home for ragmem, and a scripted model."""

    def __init__(self, folder: Path, server: LLMServer) -> None:
        self.server = server
        self.project = folder / "project"
        self.project.mkdir()
        (self.project / "a.py").write_text('print("hello")\n')
        self.env = {**server.env, "RAGMEM_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}

    def chat(self, *arguments: str, **options: Any) -> PtyChat:
        """`ragmem chat` in the project."""
        command = [sys.executable, "-P", "-m", "ragmem", *arguments]
        env = {**self.env, **options.pop("env", {})}
        return PtyChat(command, cwd=self.project, env=env, **options)

    def sessions(self) -> list[dict[str, Any]]:
        """`sessions list`, each with its turns."""
        listed = json.loads(self.run("sessions", "list", "--format", "json"))
        return [
            json.loads(self.run("sessions", "show", each["session_id"], "--format", "json"))
            for each in listed
        ]

    def ask(self, *arguments: str) -> str:
        """What `ragmem ask` answers in the project."""
        return self.run("ask", *arguments)

    def run(self, *arguments: str) -> str:
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **self.env}
        done = run_warm(arguments, env=env, cwd=self.project)
        assert done.code == 0, done.err
        return done.out

    def last_prompt(self) -> str:
        """All that the model was sent last."""
        return json.dumps(self.server.requests[-1].body["messages"])


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """With a model that has nothing to say yet."""
    with LLMServer() as server:
        yield House(tmp_path, server)


def loaded(chat: PtyChat) -> None:
    chat.wait_for_screen(r"openai/scripted · \S")

"""Slash commands on a real App, and a terminal on which all stays."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from ragmem.agent import Options
from ragmem.app import App
from ragmem.config import Config, find_paths
from ragmem.ids import new_id
from ragmem.records import (
    CreateSession,
    MemoryQuery,
    MemoryRecord,
    PutMemory,
    PutTurn,
    ToolCall,
    Turn,
)
from ragmem.repl.commands import is_command, run_command
from ragmem.repl.output import ChatOutput
from ragmem.repl.session import ChatSession
from ragmem.repl.terminal import ChatQuestion, Terminal
from ragmem.tools.base import deny_all


class Paper(Terminal):
    """A terminal on which all stays; questions take the answers that are given."""

    columns, rows = 0, 24

    def __init__(self, columns: int = 100) -> None:
        self.columns = columns
        self.text = ""
        self.answers: list[str | None] = []
        self.asked: list[ChatQuestion] = []

    def write(self, text: str) -> None:
        self.text += text

    async def page(self, text: str) -> None:
        self.text += text

    async def ask(self, question: ChatQuestion) -> str | None:
        self.asked.append(question)
        return self.answers.pop(0)


class Chat:
    """The commands of a chat, in a project and a home of its own."""

    def __init__(self, session: ChatSession, paper: Paper) -> None:
        self.app, self.session, self.paper = session.app, session, paper

    @classmethod
    async def begun(cls, app: App) -> Self:
        """In a new session without an agent."""
        agent: Any = None  # no command of these asks the agent
        paper = Paper()
        output, session = ChatOutput(paper, mode="none"), await app.start_session()
        return cls(ChatSession(app, Options(), deny_all, output, session, agent), paper)

    async def said(self, line: str, *answers: str | None) -> str:
        """What a line shows."""
        self.paper.text, self.paper.answers = "", list(answers)
        assert is_command(line)
        assert await run_command(line, self.session) is None
        return self.paper.text

    async def turn(
        self, asked: str, answered: str = "Done.", *calls: ToolCall, **fields: Any
    ) -> Turn:
        """Store a turn of the session that has come to its end, with what it called."""
        session, turn_id = self.session.session, new_id()
        turn = Turn(
            turn_id=turn_id,
            session_id=session.session_id,
            turn_index=session.turn_count + 1,
            user_message=asked,
            assistant_message=answered,
            status="completed",
            started_at=session.started_at,
            tool_calls=tuple(msgspec.structs.replace(call, turn_id=turn_id) for call in calls),
            **fields,
        )
        await (await self.app.store()).apply([CreateSession(session=session), PutTurn(turn=turn)])
        self.session.session = await self.app.resume_session(session.session_id)
        return turn

    async def stored(self) -> list[MemoryRecord]:
        """Newest first."""
        store = await self.app.store()
        return await store.memories(MemoryQuery(everywhere=True, with_superseded=True))

    async def put(self, *memories: MemoryRecord) -> None:
        await (await self.app.store()).apply([PutMemory(memory=each) for each in memories])


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[Chat]:
    project = tmp_path / "project"
    project.mkdir()
    paths = find_paths({"RAGMEM_HOME": str(tmp_path / "home")})
    async with App(Config(), paths, cwd=project) as app:
        yield await Chat.begun(app)

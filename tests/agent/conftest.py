"""An agent on a real SQLite store, with a scripted model and small real tools."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from ragmem.agent import Agent, standard_toolset
from ragmem.agent.turn import Dependencies
from ragmem.config import MemoryConfig
from ragmem.events import Event, Notice, TurnFinished
from ragmem.llm.base import ModelInfo
from ragmem.memory.context.builder import ContextBuilder
from ragmem.memory.context.collect import Place
from ragmem.memory.memory import Memory
from ragmem.memory.projects import NO_INSTRUCTIONS, Instructions
from ragmem.messages import ToolUse
from ragmem.own_tools import Effect
from ragmem.records import Session, Turn
from ragmem.store import Store
from ragmem.store.spool import Patience, SpooledStore
from ragmem.store.sqlite import SQLiteStore
from ragmem.tools.base import ToolFailure, ToolOutput, Toolset
from ragmem.tools.memory import memory_tools
from ragmem.tools.workspace import Workspace
from tests.fakes.patience import until
from tests.fakes.scripted_llm import Says, ScriptedLLM, Step

E = TypeVar("E", bound=Event)


def use(name: str, _id: str = "x", **arguments: object) -> ToolUse:
    return ToolUse(_id, name, json.dumps(arguments))


def calls(name: str, **arguments: object) -> Says:
    """An answer that is one tool call alone."""
    return Says(tools=(use(name, **arguments),))


def reads(*paths: str, **said: Any) -> Says:
    return Says(tools=tuple(use("read_file", path=path) for path in paths), **said)


def touches(*paths: str, **said: Any) -> Says:
    return Says(tools=tuple(use("run_command", path=path) for path in paths), **said)


class Events(list[Event]):
    """The events of a turn."""

    @property
    def end(self) -> TurnFinished:
        assert isinstance(self[-1], TurnFinished)
        return self[-1]

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.of(Notice)]

    def of(self, *kinds: type[E]) -> list[E]:
        return [event for event in self if isinstance(event, kinds)]


async def asked(agent: Agent, prompt: str, *typed: Callable[[int], Sequence[str]]) -> Events:
    """The events of a turn; what is typed meanwhile is asked of `typed`."""
    return Events([event async for event in agent.ask(prompt, *typed)])


class PathParams(msgspec.Struct):
    path: str


class PathTool:
    """A tool that does something with a file of the folder."""

    name: str
    Params = PathParams

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = 0

    def title(self, params: PathParams) -> str:
        return f"{self.name} {params.path}"


class ReadFile(PathTool):
    name = "read_file"
    description = "Read a file."
    effect: Effect = "read"
    running = most_at_once = 0
    company = 1
    """So many at once are waited for, the first time."""

    async def run(self, params: PathParams) -> ToolOutput:
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        await until(lambda: self.most_at_once >= self.company)
        await asyncio.sleep(0.01)
        self.running -= 1
        try:
            text = (self.folder / params.path).read_text()
        except FileNotFoundError:
            raise ToolFailure(f"There is no file {params.path}.") from None
        return ToolOutput(text=text, display=f"{len(text)} characters", data={"path": params.path})


class Touch(PathTool):
    """Makes a file: a tool with an effect that can be seen."""

    name = "run_command"
    description = "Make a file."
    effect: Effect = "command"
    gate: asyncio.Event | None = None

    async def run(self, params: PathParams) -> ToolOutput:
        self.runs += 1
        (self.folder / params.path).touch()
        if self.gate:
            await self.gate.wait()
        return ToolOutput(text="made", display="made")


class Bench(msgspec.Struct):
    """What a test works with."""

    folder: Path
    store: Store
    """The store itself, past the spool."""
    spooled: SpooledStore
    memory: Memory
    read_file: ReadFile
    touch: Touch

    def new_memory(self, config: MemoryConfig = MemoryConfig(), **options: Any) -> Memory:  # noqa: B008
        """That of another process; `options` are of its constructor."""

        async def get() -> Store:
            return self.spooled

        return Memory(get, config, **options)

    def standard(self, **options: Any) -> Toolset:
        """The real tools over the folder."""
        data_dir = self.folder.parent / "data"
        return standard_toolset(Workspace(self.folder), data_dir=data_dir, **options)

    async def session(self) -> Session:
        located = await self.memory.project_of(self.folder)
        return self.memory.new_session(self.folder, located.project)

    async def turn(self, agent: Agent) -> Turn:
        """The one turn of the agent's session, as it is stored."""
        (turn,) = await self.store.turns(agent.session.session_id)
        return turn

    async def agent(
        self,
        script: Sequence[Step],
        *,
        session: Session | None = None,
        info: ModelInfo | None = None,
        memory: Memory | None = None,
        instructions: Instructions = NO_INSTRUCTIONS,
        config: MemoryConfig = MemoryConfig(),  # noqa: B008
        toolset: Toolset | None = None,
        llm: ScriptedLLM | None = None,
        **limits: Any,
    ) -> tuple[Agent, ScriptedLLM]:
        memory = memory or self.memory
        llm = llm or ScriptedLLM(script, info=info)
        project = (await memory.project_of(self.folder)).project
        session = session or memory.new_session(self.folder, project)
        desk = Dependencies(
            llm=llm,
            memory=memory,
            toolset=toolset
            or Toolset([self.read_file, self.touch, *memory_tools(memory, session, "project")]),
            builder=ContextBuilder(config, llm.info),
            place=Place(
                cwd=self.folder,
                project=self.folder,
                instructions=instructions,
                memory_tools=memory.facts is not None,
            ),
            project=project,
            **limits,
            offers_tools=llm.info.supports_tools,
            notices=self.spooled.take_notices,
        )
        return Agent(session, desk), llm


@pytest.fixture
async def open_sqlite(tmp_path: Path) -> AsyncIterator[Callable[[], Any]]:
    """Opens the test's database; every store opened is closed at the end."""
    opened: list[SQLiteStore] = []

    async def open_one() -> SQLiteStore:
        home = tmp_path / "home"
        store = await SQLiteStore.open(home / "memory.db", locks_dir=home / "locks")
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.aclose()


@pytest.fixture
async def bench(tmp_path: Path, open_sqlite: Callable[[], Any]) -> AsyncIterator[Bench]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.py").write_text("print('hello')\n")
    (folder / "b.py").write_text("x = 1\n")
    store = await open_sqlite()

    async def get_store() -> Store:
        return store

    async def get_spooled() -> Store:
        return spooled

    patience = Patience(stall_s=60, read_s=60, retry_s=0.05, longest_retry_s=0.05)
    spooled = SpooledStore(get_store, tmp_path / "home" / "spool", patience=patience)
    memory = Memory(get_spooled, MemoryConfig())
    yield Bench(folder, store, spooled, memory, ReadFile(folder), Touch(folder))
    await memory.aclose()
    await spooled.aclose()

"""A project with code, its index, a memory and a store: real ones."""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ragmem.agent import standard_toolset
from ragmem.agent.calls import CallRunner
from ragmem.config import CodeConfig, Config, EmbeddingsConfig, MemoryConfig, Paths
from ragmem.ids import new_id
from ragmem.index import rows, watch
from ragmem.index.codebase import Codebase
from ragmem.index.index import CodeIndex
from ragmem.llm.base import Completion
from ragmem.memory.memory import Memory
from ragmem.messages import ToolUse
from ragmem.records import Project, Session, Turn
from ragmem.store import Store
from ragmem.store.sqlite import SQLiteStore
from ragmem.tools.base import Toolset
from ragmem.tools.files import SeenFiles
from ragmem.tools.memory import SessionCode
from ragmem.tools.permissions import PermissionRules
from ragmem.tools.workspace import Workspace
from ragmem.usage import Metrics
from tests.index.trees import AUTH, CLOCK, Tree, small
from tests.memory.working import opening

__all__ = ["AUTH", "CLOCK"]


class Desk(msgspec.Struct):
    """What a test works with."""

    folder: Path
    paths: Paths
    store: Store
    memory: Memory
    project: Project
    session: Session
    tools: Toolset
    """The real ones, nothing of which asks."""

    async def open_store(self) -> Store:
        return self.store

    @asynccontextmanager
    async def codebase(self, **settings: Any) -> AsyncIterator[Codebase]:
        """That of a process; `settings` are of its constructor, `config` of [code]."""
        memory = MemoryConfig(embeddings=EmbeddingsConfig(enabled=False))
        code = CodeConfig(**{"wait_s": 30.0, **settings.pop("config", {})})
        codebase = Codebase(
            Config(code=code, memory=memory),
            self.paths,
            **{
                "open_store": self.open_store,
                "embedder": None,
                "metrics": Metrics(),
                "writes": True,
                **settings,
            },
        )
        try:
            yield codebase
        finally:
            await codebase.aclose()

    def code(self, codebase: Codebase, *deny: str) -> SessionCode:
        """The project's code as an agent in its folder works with it, which rules may deny."""
        top, rules = self.folder, PermissionRules(deny=deny)
        return SessionCode(codebase, self.project, cwd=top, top=top, seen=SeenFiles(), rules=rules)

    def index(self, codebase: Codebase, project: Project | None = None) -> CodeIndex:
        """Of the project, or of another one."""
        index = codebase.index_of(project or self.project)
        assert index is not None
        return index

    async def indexed(self, codebase: Codebase) -> CodeIndex:
        """The index, as the disk and the store know it."""
        index = self.index(codebase)
        await index.refresh()
        assert await index.mirror()
        return index

    async def turn(self, prompt: str, answer: str, *calls: tuple[str, dict[str, Any]]) -> Turn:
        """A whole turn with real calls of tools."""
        recording = await self.memory.begin_turn(self.session, self.project, prompt, model="m")
        runner = CallRunner(self.tools, recording, lambda _: None)
        for number, (name, arguments) in enumerate(calls):
            use = ToolUse(new_id(), name, msgspec.json.encode(arguments).decode())
            await runner.run(Completion(text="", tool_uses=(use,), end_reason="tool_calls"), number)
        await recording.finish("completed", answer)
        self.memory.finished(self.session, recording.turn)
        assert all(call.success for call in recording.turn.tool_calls)
        return recording.turn


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are given ten files at a time, so that some dozens are many batches."""
    monkeypatch.setattr(rows, "_BATCH", 10)


@pytest.fixture
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are told, the folder is looked at and failures are tried again in less time."""
    for name, value in (("_STEP_MS", 30), ("_DEBOUNCE_MS", 160), ("_TIMEOUT_MS", 100)):
        monkeypatch.setattr(watch, name, value)
    for name in ("_RETRY_S", "_POLL_S"):
        monkeypatch.setattr(watch, name, 0.1)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A small project."""
    return small(tmp_path)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """An empty store, in a folder of its own."""
    home = tmp_path / "store"
    opened = await SQLiteStore.open(home / "memory.db", locks_dir=home / "locks")
    yield opened
    await opened.aclose()


@pytest.fixture
async def desk(tmp_path: Path, store: Store) -> AsyncIterator[Desk]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "src").mkdir()
    (folder / "src" / "auth.py").write_text(AUTH)
    (folder / "src" / "clock.py").write_text(CLOCK)
    home = tmp_path / "home"
    paths = Paths(home, home / "data", home / "logs").make()

    memory = Memory(opening(store), MemoryConfig())
    project = (await memory.project_of(folder)).project
    session = memory.new_session(folder, project)
    tools = standard_toolset(
        Workspace(folder), data_dir=paths.data_dir, mode="bypassPermissions", seen=SeenFiles()
    )
    yield Desk(folder, paths, store, memory, project, session, tools)
    await memory.aclose()


@pytest.fixture
async def codebase(desk: Desk) -> AsyncIterator[Codebase]:
    """That of a process which has indexed the project."""
    async with desk.codebase() as opened:
        await desk.indexed(opened)
        yield opened


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Give a test of what may not be read a process that may not, where this one reads all."""
    if not pyfuncitem.get_closest_marker("without_rights"):
        return None
    folder: Path = pyfuncitem.funcargs["tmp_path"]
    (closed := folder / "closed").touch(0)
    reads_all = os.access(closed, os.R_OK)
    closed.unlink()
    if not reads_all:
        return None
    if not shutil.which("setpriv"):
        pytest.skip("nothing here takes the right to read everything away")
    drops = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    runs = [sys.executable, "-P", "-m", "pytest", "-n", "0", f"--basetemp={folder / 'again'}"]
    done = subprocess.run(
        [*drops, *runs, pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return True

"""What an App makes for its agents, and what it keeps of them."""

import asyncio
import gc
import weakref
from pathlib import Path

from ragmem.agent import Agent, Options
from ragmem.app import App
from ragmem.config import Config, LLMConfig, ModelConfig, find_paths
from ragmem.tools.base import deny_all

CONFIG = Config(
    model=ModelConfig(main="openai/scripted"), llm=LLMConfig(api_base="http://127.0.0.1:9/v1")
)


async def begun(app: App) -> Agent:
    return await app.agent(await app.start_session(), Options(), deny_all)


async def test_closed_agents_are_not_kept(tmp_path: Path) -> None:
    """A chat makes one for each /new and /model."""
    paths = find_paths({"RAGMEM_HOME": str(tmp_path / "home")})
    async with App(CONFIG, paths, cwd=tmp_path) as app:
        agent = await begun(app)
        closed = weakref.ref(agent)
        await agent.aclose()
        agent = await begun(app)
        gc.collect()
        assert closed() is None


async def test_an_agent_whose_turn_still_ends_is_kept(tmp_path: Path) -> None:
    """The App waits for it, too, before it closes the memory."""
    paths = find_paths({"RAGMEM_HOME": str(tmp_path / "home")})
    async with App(CONFIG, paths, cwd=tmp_path) as app:
        agent = await begun(app)
        async for _ in (turn := agent.ask("Hello?")):
            break
        closing = asyncio.create_task(agent.aclose())
        await asyncio.sleep(0)
        assert not agent.is_closed
        await closing
        assert agent.is_closed
        await turn.aclose()


async def test_a_temporary_folder_is_made_once_something_is_written_to_it(tmp_path: Path) -> None:
    """If nothing is recorded, outputs of commands go there; it goes with the process."""
    paths = find_paths({"RAGMEM_HOME": str(tmp_path / "home")})
    async with App(CONFIG, paths, cwd=tmp_path, ephemeral=True) as app:
        agent = await begun(app)
        assert not app.work_dir.exists()
        async for _ in agent.run_command("seq 20000"):
            pass
        assert list((app.work_dir / "outputs").iterdir())
        assert app.work_dir.stat().st_mode & 0o777 == 0o700
    assert not app.work_dir.exists()

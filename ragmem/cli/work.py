"""The detached process that embeds and sums up what was said (hidden; see ragmem.background)."""

import msgspec

from ragmem import __version__
from ragmem.cli.command import Home, command, home
from ragmem.cli.options import Model, commands
from ragmem.config import Config

app = commands()


@command(app, home, hidden=True)
async def work(own: Home, model: Model = None) -> None:
    """Do what is pending in the memory, embed others' questions for a while, and end."""
    from ragmem.app import App
    from ragmem.background import serve_embedder, work_alone

    async with App(_alone(own.config), own.paths, cwd=own.paths.data_dir) as opened:
        worked = await work_alone(opened.background, own.paths, model=model or "")
    if worked:
        await serve_embedder(own.config, own.paths, version=__version__)


def _alone(config: Config) -> Config:
    """Settings of a process that has the embedder loaded, and asks no other one."""
    embeddings = msgspec.structs.replace(config.memory.embeddings, idle_s=0.0)
    memory = msgspec.structs.replace(config.memory, embeddings=embeddings)
    return msgspec.structs.replace(config, memory=memory)

"""The detached process that embeds and sums up what was said (hidden; see ragmem.background)."""

import msgspec

from ragmem import __version__
from ragmem.cli.command import Home, command, home
from ragmem.cli.options import Model, commands
from ragmem.config import Config

app = commands()
_LOCK = "embedder.lock"


@command(app, home, hidden=True)
async def work(own: Home, model: Model = None) -> None:
    """Do what is pending in the memory, answer others' searches for a while, and end."""
    from ragmem.app import App
    from ragmem.background import work_alone

    async with App(_alone(own.config), own.paths, cwd=own.paths.data_dir) as opened:
        worked = await work_alone(opened.background, own.paths, model=model or "")
    if worked:
        await _answer(own)


def _alone(config: Config) -> Config:
    """Settings of a process that has the embedder loaded, and asks no other one."""
    embeddings = msgspec.structs.replace(config.memory.embeddings, idle_s=0.0)
    memory = msgspec.structs.replace(config.memory, embeddings=embeddings)
    return msgspec.structs.replace(config, memory=memory)


async def _answer(own: Home) -> None:
    """Stay, where the shipped embedder is used, for as long as the settings say."""
    from ragmem.background import configured_embedder, settings_of
    from ragmem.config import environment
    from ragmem.embedder.opening import is_shipped
    from ragmem.interface.address import configured
    from ragmem.service import serve
    from ragmem.warm import Warm

    config, paths = own.config, own.paths
    idle_s = config.memory.embeddings.idle_s
    if not idle_s or not config.memory.enabled or not is_shipped(config):
        return
    embedder = configured_embedder(_alone(config), paths, version=__version__)
    assert embedder is not None
    where = configured(config, paths, environment())
    warm = Warm(config, paths, embedder, database=where.database, locks_dir=where.locks_dir)
    try:
        await serve(
            warm.handlers,
            paths.embedder_socket,
            paths.locks_dir / _LOCK,
            idle_s=idle_s,
            version=__version__,
            settings=settings_of(config, where.spool),
            prepare=warm.prepare,
        )
    finally:
        await warm.aclose()
        await embedder.aclose()

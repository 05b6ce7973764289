"""The detached process that embeds and sums up what was said (hidden; see ragmem.background)."""

from ragmem.cli.command import Home, command, home
from ragmem.cli.options import Model, commands

app = commands()


@command(app, home, hidden=True)
async def work(own: Home, model: Model = None) -> None:
    """Do what is pending in the memory, and end."""
    from ragmem.app import App
    from ragmem.background import work_alone

    async with App(own.config, own.paths, cwd=own.paths.data_dir) as opened:
        await work_alone(opened.background, own.paths, model=model or "")

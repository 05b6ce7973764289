"""The detached process that embeds and sums up what was said (hidden; see ragmem.background)."""

from typing import TYPE_CHECKING

from ragmem.cli.command import command, home
from ragmem.cli.options import Model, commands

if TYPE_CHECKING:
    from ragmem.administration import Administration

app = commands()


@command(app, home, hidden=True)
async def work(own: "Administration", model: Model = None) -> None:
    """Do what is pending in the memory, answer others' searches for a while, and end."""
    from ragmem.app import answer_others, work_alone

    if await work_alone(own.config, own.paths, model=model or ""):
        await answer_others(own.config, own.paths)

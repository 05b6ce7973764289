"""The detached process that embeds and sums up what was said (hidden; see ragmem.background)."""

import typer

from ragmem.cli.opening import settings
from ragmem.cli.options import Model
from ragmem.cli.runner import Interruption, run_async
from ragmem.errors import EXIT_DONE

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(hidden=True)
def work(model: Model = None) -> None:
    """Do what is pending in the memory, and end."""
    config, paths = settings()

    from ragmem.app import App
    from ragmem.background import work_alone

    async def main(_: Interruption) -> int:
        async with App(config, paths, cwd=paths.data_dir) as opened:
            await work_alone(opened.background, paths, model=model or "")
        return EXIT_DONE

    raise typer.Exit(run_async(main))

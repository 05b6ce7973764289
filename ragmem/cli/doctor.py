"""`ragmem doctor`: each line ok, or what to do."""

import sys
from collections.abc import AsyncIterator
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import typer

from ragmem.cli.opening import current_folder
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.streams import write
from ragmem.config import Config, environment, find_paths, load_config
from ragmem.errors import EXIT_DONE, EXIT_FAILED, RagmemError
from ragmem.redact import know, redact, secrets_among
from ragmem.text import hanging, visible

if TYPE_CHECKING:
    from ragmem.cli.checks import Check

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_NAME_WIDTH = 11


@app.command()
def doctor() -> None:
    """Check what ragmem needs; exit 1 when something is broken."""

    async def main(_: Interruption) -> int:
        broken = False
        width = get_terminal_size((80, 24)).columns if sys.stdout.isatty() else None
        async for check in examine():
            write(check_text(check, width=width))
            broken |= check.health == "broken"
        return EXIT_FAILED if broken else EXIT_DONE

    raise typer.Exit(run_async(main))


async def examine() -> AsyncIterator["Check"]:
    """Every check in turn, as it is done."""
    from ragmem.cli import checks
    from ragmem.cli.index_check import check_index
    from ragmem.tools.search import find_ripgrep

    paths, environ = find_paths(), environment()
    know(secrets_among(environ))
    yield checks.check_python()
    yield checks.check_folders(paths)
    try:
        config = load_config(paths.config_file)
    except RagmemError as error:
        # The rest is looked at with the defaults.
        config = Config()
        yield checks.failing("config", error)
    else:
        know(config.passwords())
        yield checks.check_config_file(paths)
    store = await checks.check_store(config, paths)
    yield store
    if store.health != "broken":
        for check in await checks.check_background(config, paths):
            yield check
        yield await check_index(config, paths, current_folder())
    yield await checks.check_neo4j(config, paths, environ)
    model = checks.check_model(config, environ)
    yield model
    yield checks.check_keys(environ)
    yield checks.check_local_model(needed=model.health == "broken")
    yield checks.check_ripgrep(find_ripgrep((current_folder(),)))


def check_text(check: "Check", *, width: int | None = None) -> str:
    """A check as a line, or as many as fit into the width, its advice indented below."""
    head = f"{check.health:<6} {check.name:<{_NAME_WIDTH}} "
    lines = hanging(head, visible(check.detail), width)
    # Commands are to be copied: they stay on a line each.
    lines += [f"{' ' * len(head)}{line}" for line in visible(check.advice).splitlines()]
    return redact("\n".join(lines)) + "\n"

"""`ragmem files`: which files a session touched, and what is known of them."""

from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ragmem.cli.choice import last_session, resumed
from ragmem.cli.documents import file_document, to_json
from ragmem.cli.opening import open_app, settings
from ragmem.cli.options import Format, Resume
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.streams import say, typed, write, write_json
from ragmem.cli.table import table
from ragmem.errors import EXIT_DONE, UsageError
from ragmem.text import ago

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragmem.records import FileAccess

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def files(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH", help="Tell of this file, whoever touched it.", show_default=False
        ),
    ] = None,
    related: Annotated[
        bool,
        typer.Option(
            "--related",
            help="Of each file: what changes with it, imports, sessions, decisions.",
        ),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="What the agent has changed in this project since: 7d, 12h, 2w, a date, or the "
            "end of a session (its id or name).",
        ),
    ] = None,
    resume: Resume = None,
    output: Format = "table",
) -> None:
    """List the files that a session has touched.

    Without -r: the newest session of this folder. With PATH: what changes together with
    that file, what it imports and what imports it, which sessions touched it, and what
    was decided there; --related tells that of each file of the session.
    """
    if since is not None and (path is not None or related or resume is not None):
        raise UsageError("--since is about all files: it goes with neither PATH, --related nor -r.")
    if path is not None and resume is not None:
        raise UsageError("PATH is looked for in all sessions: it does not go with -r.")
    config, paths = settings()

    async def main(_: Interruption) -> int:
        async with open_app(config, paths) as opened:
            if since is not None:
                from ragmem.cli.changed_files import print_changed

                await print_changed(opened, typed(since), output)
            elif path is not None:
                from ragmem.cli.related import print_file

                await print_file(opened, typed(path), output)
            else:
                if resume is None:
                    session = await last_session(opened)
                else:
                    session = await resumed(opened, resume)
                accesses = await opened.memory.recently_accessed_files(session.session_id)
                if related and accesses:
                    from ragmem.cli.related import print_related

                    await print_related(opened, session, accesses, output)
                else:
                    _print(accesses, output)
        return EXIT_DONE

    raise typer.Exit(run_async(main))


def _print(accesses: "Sequence[FileAccess]", output: Literal["table", "json"]) -> None:
    now = datetime.now(UTC)
    if output == "json":
        write_json(to_json([file_document(access) for access in accesses]))
    elif accesses:
        rows = [
            (access.access_type, str(access.turn_index), ago(access.accessed_at, now), access.path)
            for access in accesses
        ]
        width = get_terminal_size((120, 24)).columns
        write(table(("ACCESS", "TURN", "WHEN", "PATH"), rows, width=width))
    else:
        say("No files yet.\n")

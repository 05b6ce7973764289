"""`ragmem files`: which files a session touched."""

from datetime import UTC, datetime
from shutil import get_terminal_size

import typer

from ragmem.cli.choice import last_session, resumed
from ragmem.cli.documents import file_document, to_json
from ragmem.cli.opening import open_app, settings
from ragmem.cli.options import Format, Resume
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.streams import say, write, write_utf8
from ragmem.cli.table import table
from ragmem.errors import EXIT_DONE
from ragmem.text import ago

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def files(resume: Resume = None, output: Format = "table") -> None:
    """List the files that a session has touched.

    Without -r: the newest session of this folder.
    """
    config, paths = settings()

    async def main(_: Interruption) -> int:
        async with open_app(config, paths) as opened:
            if resume is None:
                session = await last_session(opened)
            else:
                session = await resumed(opened, resume)
            accesses = await opened.memory.recently_accessed_files(session.session_id)
        now = datetime.now(UTC)
        if output == "json":
            write_utf8(to_json([file_document(access) for access in accesses]))
        elif accesses:
            rows = [
                (
                    access.access_type,
                    str(access.turn_index),
                    ago(access.accessed_at, now),
                    access.path,
                )
                for access in accesses
            ]
            width = max(60, get_terminal_size((120, 24)).columns)
            write(table(("ACCESS", "TURN", "WHEN", "PATH"), rows, width=width))
        else:
            say("No files yet.\n")
        return EXIT_DONE

    raise typer.Exit(run_async(main))

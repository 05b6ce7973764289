"""`ragmem neo4j`: a local Neo4j in one command."""

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from ragmem.cli.command import Home, command, home
from ragmem.cli.options import commands, option
from ragmem.cli.output import say, write
from ragmem.config import environment, find_paths
from ragmem.errors import EXIT_DONE, EXIT_FAILED, EXIT_TRY_AGAIN, UsageError
from ragmem.text import visible

if TYPE_CHECKING:
    from ragmem.store.neo4j_server import ServerStatus

app = commands("Run a local Neo4j, for `ragmem store use neo4j`.")


@command(app, home)
async def up(own: Home) -> int:
    """Start a local Neo4j, unless one is configured or runs already."""
    from ragmem.store.neo4j_server import up as start

    found = await start(
        own.paths, own.config, environment(), on_progress=lambda line: say(f"{visible(line)}\n")
    )
    write(f"{visible(found.detail)}\n")
    if found.running and own.config.store.kind != "neo4j":
        say("`ragmem store use neo4j` keeps memory there.\n")
    return EXIT_DONE if found.running else EXIT_TRY_AGAIN


@command(app, home)
async def down(own: Home) -> None:
    """Stop the local Neo4j that `up` started; its data stays."""
    from ragmem.store.neo4j_server import down as stop

    stopped = await stop(own.paths)
    write("Stopped; its data stays.\n" if stopped else "No local Neo4j was running.\n")


@command(app, home)
async def status(own: Home) -> int:
    """Say whether a Neo4j is there, and where; exit 1 when it is not."""
    from ragmem.store.neo4j_server import status as look

    found = await look(own.paths, own.config, environment())
    write(f"{visible(found.detail)}\n")
    if found.running:
        write(_ways_in(found, environment()))
    return EXIT_DONE if found.running else EXIT_FAILED


def _ways_in(found: "ServerStatus", environ: Mapping[str, str]) -> str:
    """How a person gets at the graph: an address, a user, a password, a line for a shell."""
    own = found.way != "configured"
    lines = {
        "Browser": found.browser or ("not with this server" if own else ""),
        "user": found.username,
        "password": "`ragmem neo4j password` prints it" if own else "that in NEO4J_PASSWORD",
        "shell": found.cypher_shell,
    }
    text = "".join(f"  {name:<9} {visible(line)}\n" for name, line in lines.items() if line)
    missing = not shutil.which("cypher-shell", path=environ.get("PATH"))
    if missing and " cypher-shell -a" in f" {found.cypher_shell}":
        text += "            (not installed here: cypher-shell comes with every Neo4j, or alone)\n"
    return text


@command(app, home)
async def password(own: Home) -> None:
    """Print the password of the local server, for Neo4j Browser or cypher-shell."""
    from ragmem.store.neo4j_server import password as find_password

    write(f"{find_password(own.paths, own.config, environment())}\n")


@app.command()
def logs(
    lines: Annotated[int, option("-n --lines", "The last so many lines.", "N", least=1)] = 50,
) -> None:
    """Print the end of the local server's log."""
    from ragmem.store.neo4j_server import log_file

    file = log_file(find_paths())
    try:
        written = file.read_text("utf-8", "replace")
    except FileNotFoundError:
        raise UsageError(
            f"There is no log at {file} yet.", hint="`ragmem neo4j up` starts the server."
        ) from None
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}.") from None
    for line in written.splitlines()[-lines:]:
        write(f"{visible(line)}\n")

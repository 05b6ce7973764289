"""`ragmem neo4j`: a local Neo4j in one command."""

import shutil
from typing import Annotated

from ragmem.administration import Administration
from ragmem.cli.command import command, home
from ragmem.cli.options import commands, option
from ragmem.cli.output import say, write
from ragmem.config import environment
from ragmem.errors import EXIT_DONE, EXIT_FAILED, EXIT_TRY_AGAIN, UsageError
from ragmem.text import visible

app = commands("Run a local Neo4j, for `ragmem store use neo4j`.")


@command(app, home)
async def up(own: Administration) -> int:
    """Start a local Neo4j, unless one is configured or runs already."""
    found = await own.start_neo4j(lambda line: say(f"{visible(line)}\n"))
    write(f"{visible(found.detail)}\n")
    if found.running and own.kind != "neo4j":
        say("`ragmem store use neo4j` keeps memory there.\n")
    return EXIT_DONE if found.running else EXIT_TRY_AGAIN


@command(app, home)
async def down(own: Administration) -> None:
    """Stop the local Neo4j that `up` started; its data stays."""
    stopped = await own.stop_neo4j()
    write("Stopped; its data stays.\n" if stopped else "No local Neo4j was running.\n")


@command(app, home)
async def status(own: Administration) -> int:
    """Say whether a Neo4j is there, and where; exit 1 when it is not."""
    found = await own.neo4j_status()
    write(f"{visible(found.detail)}\n")
    if not found.running:
        return EXIT_FAILED
    # How a person gets at the graph: an address, a user, a password, a line for a shell.
    ours = found.way != "configured"
    lines = {
        "Browser": found.browser or ("not with this server" if ours else ""),
        "user": found.username,
        "password": "`ragmem neo4j password` prints it" if ours else "that in NEO4J_PASSWORD",
        "shell": found.cypher_shell,
    }
    write("".join(f"  {name:<9} {visible(line)}\n" for name, line in lines.items() if line))
    missing = not shutil.which("cypher-shell", path=environment().get("PATH"))
    if missing and " cypher-shell -a" in f" {found.cypher_shell}":
        write("            (not installed here: cypher-shell comes with every Neo4j, or alone)\n")
    return EXIT_DONE


@command(app, home)
async def password(own: Administration) -> None:
    """Print the password of the local server, for Neo4j Browser or cypher-shell."""
    write(f"{own.neo4j_password()}\n")


@command(app, home)
async def logs(
    own: Administration,
    lines: Annotated[int, option("-n --lines", "The last so many lines.", "N", least=1)] = 50,
) -> None:
    """Print the end of the local server's log."""
    file = own.neo4j_log()
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

"""`ragmem graph`: the memory as a page that one can look at."""

import webbrowser
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ragmem.cli.command import command, open_app, resumed
from ragmem.cli.files import since_when
from ragmem.cli.options import NewFile, Resume, commands, memory_ids, option
from ragmem.cli.output import new_file, say, typed, write
from ragmem.errors import RagmemError, UsageError
from ragmem.files import replace_private
from ragmem.text import counted, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.memory.graph import Graph, Wanted
    from ragmem.usage import Measured

app = commands()

Shown = Literal["html", "json", "graphml"]
Open = Annotated[bool, option("--open", "Open it in the browser.")]


@command(app, open_app)
async def graph(  # noqa: PLR0913 - one parameter a flag
    opened: "App",
    project: Annotated[
        bool, option("--project", "The memory of this folder's project: what is shown anyway.")
    ] = False,
    everywhere: Annotated[bool, option("--all", "The memory of every project.")] = False,
    resume: Resume = None,
    path: Annotated[
        str | None, option("--file", "What has to do with a file of this project.", "PATH")
    ] = None,
    memory: Annotated[
        str | None,
        option("--memory", "Where a memory comes from: its id.", "ID", offered=memory_ids),
    ] = None,
    since: Annotated[
        str | None,
        option("--since", "What came since: 7d, 12h, 2w, a date, or a session.", "WHEN"),
    ] = None,
    file: NewFile = None,
    show: Open = False,
    output: Annotated[
        Shown, option("--format", "html is the page; json and graphml are for programs.")
    ] = "html",
) -> None:
    """Draw the memory as one file that a browser shows.

    The file needs no server and asks nothing of any network. Without -o it goes into ragmem's
    own folder, readable by you alone, and takes the place of the one before.
    """
    from ragmem.memory.graph import collect
    from ragmem.memory.requests import RequestLog

    if sum((project, everywhere, resume is not None, path is not None, memory is not None)) > 1:
        raise UsageError("--project, --all, -r, --file and --memory exclude each other.")
    wanted = await _wanted(opened, everywhere, resume, path, memory, since)
    found = await collect(
        await opened.store(),
        wanted,
        now=datetime.now(UTC),
        sent=RequestLog(opened.paths.data_dir).known(),
        numbers=day_numbers(opened.usage.days()),
    )
    if not found.nodes:
        say("Nothing is remembered of it yet.\n")
    for each in found.left_out:
        say(f"Not in it: {visible(each)}\n")
    say(f"{counted(len(found.nodes), 'node')}, {counted(len(found.edges), 'line')}\n")
    keep(opened, found, file, output, show=show)


async def _wanted(
    opened: "App",
    everywhere: bool,
    resume: str | None,
    path: str | None,
    memory: str | None,
    since: str | None,
) -> "Wanted":
    from ragmem.cli.index import project_here
    from ragmem.memory.files import stored_path
    from ragmem.memory.graph import Wanted
    from ragmem.memory.projects import real_folder

    start = await since_when(opened, typed(since)) if since is not None else None
    if everywhere:
        return Wanted(title="All that ragmem remembers", since=start)
    if resume is not None:
        session = await resumed(opened, resume)
        return Wanted(title=session.called, session=session, since=start)
    if memory is not None:
        found = await (await opened.store()).find_memories(typed(memory).replace("-", ""))
        if len(found) != 1:
            raise UsageError(
                f"--memory: {counted(len(found), 'memory')} with that id.",
                hint="`ragmem memory list` shows them with their ids.",
            )
        return Wanted(title=f"A memory: {found[0].content}", memory=found[0], since=start)
    project = await project_here(opened)
    if path is None:
        return Wanted(title=f"The memory of {project.path}", project=project, since=start)
    top = real_folder(project.path, opened.cwd)
    wanted = stored_path(typed(path), cwd=opened.cwd, project=top)
    return Wanted(title=wanted, project=project, path=wanted, since=start)


def keep(
    opened: "App", found: "Graph", file: Path | None, output: Shown, *, show: bool, name: str = ""
) -> None:
    """Write the file, print its path, and open it where that is asked for."""
    from ragmem.graph import files

    data = {"html": files.html, "json": files.json, "graphml": files.graphml}[output](found)
    if file is not None:
        with new_file(file) as part:
            part.write_bytes(data)
    else:
        file = opened.paths.data_dir / f"{name or 'graph'}.{output}"
        replace_private(file, data, sync=False)
    file = file.expanduser().absolute()
    write(f"{visible(str(file))}\n")
    if show and not webbrowser.open(file.as_uri()):
        raise RagmemError("No browser could be opened.", hint=f"Open {visible(str(file))} in one.")


def day_numbers(days: "list[Measured]") -> list[dict[str, Any]]:
    """What was measured on each day, for charts."""
    return [
        {
            "day": each.day.isoformat(),
            "tokens": each.count("turns.input_tokens") + each.count("turns.output_tokens"),
            "background_tokens": each.count("background.input_tokens")
            + each.count("background.output_tokens"),
            "input_tokens": each.count("turns.input_tokens"),
            "cached_tokens": each.count("turns.cached_tokens"),
            "cost_usd": each.count("turns.cost_usd"),
            "background_cost_usd": each.count("background.cost_usd"),
            "searches": each.count("recall.searches"),
            "found": each.count("recall.found"),
            "search_p95_ms": each.timing("recall.search").percentile_ms(95),
            "context_p95_ms": each.timing("memory.context").percentile_ms(95),
            "store_p95_ms": each.timing("store.turn").percentile_ms(95),
        }
        for each in days
    ]

"""`ragmem stats` and `ragmem graph`: what is remembered, in numbers and as a page."""

import webbrowser
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ragmem.cli.command import (
    Format,
    NewFile,
    Resume,
    command,
    commands,
    memory_ids,
    open_app,
    option,
    resumed,
)
from ragmem.cli.files import since_when
from ragmem.cli.output import Paint, drawn, joined, new_file, print_one, say, typed, write
from ragmem.errors import RagmemError, UsageError
from ragmem.files import replace_private
from ragmem.statistics import day_numbers, stats_of, stats_parts, stats_text
from ragmem.text import counted, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.memory.graph import Graph, Wanted

drawing = commands()

Shown = Literal["html", "json", "graphml"]
Open = Annotated[bool, option("--open", "Open it in the browser.")]


@command(drawing, open_app)
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
    from ragmem.memory.context import RequestLog
    from ragmem.memory.graph import collect

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
    from ragmem.cli.files import project_here
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
    from ragmem.graph import to_graphml, to_html, to_json

    data = {"html": to_html, "json": to_json, "graphml": to_graphml}[output](found)
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


app = commands()


@command(app, open_app)
async def stats(
    opened: "App",
    html: Annotated[bool, option("--html", "As charts: a file that a browser shows.")] = False,
    file: NewFile = None,
    show: Open = False,
    output: Format = "table",
) -> None:
    """Show how much is remembered, how fast, how well, at what cost.

    Times, tokens and costs are those of this machine, kept from run to run.
    """
    if html:
        if output == "json":
            raise UsageError("--html and --format json exclude each other.")
        await _keep_page(opened, file, show=show)
        return
    if file is not None or show:
        raise UsageError("-o and --open go with --html.")
    days = opened.usage.days()
    found = await stats_of(opened, days)
    today = datetime.now().astimezone().date()
    print_one(
        output,
        lambda: found,
        drawn(
            opened.config.ui,
            lambda width: stats_text(found, width=width, today=today),
            lambda width, paint: stats_painted(
                stats_text(found, width=width, today=today, days=days), paint
            ),
        ),
        pipe=80,
    )


def stats_painted(text: str, paint: Paint) -> str:
    """The same with its bars in colour, and bright names."""
    return joined([paint(*parts) for parts in stats_parts(text)])


async def _keep_page(opened: "App", file: "Path | None", *, show: bool) -> None:
    """Write the numbers as a page like that of `ragmem graph`, with the growth of all projects."""
    from ragmem.memory.graph import Graph

    found = Graph(
        title="What ragmem did here",
        store=(await (await opened.store()).info()).kind,
        made_at=datetime.now().astimezone(),
        numbers=tuple(day_numbers(opened.usage.days())),
    )
    keep(opened, found, file, "html", show=show, name="stats")

"""`ragmem graph`, `stats` and `context`.

They show the memory as a page, usage statistics, and exactly what a request would contain and why.
"""

import webbrowser
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ragmem.cli import command as cli, output as out
from ragmem.cli.files import project_here, since_when
from ragmem.cli.output import to_json
from ragmem.errors import RagmemError, UsageError
from ragmem.files import expanded, replace_private
from ragmem.listings import Document, document, table, text_block, tool_result_block, tool_use_block
from ragmem.memory.context.builder import Context
from ragmem.memory.context.collect import Strategy
from ragmem.memory.projects import real_folder
from ragmem.memory.recording import RequestLog
from ragmem.memory.turns import stored_path
from ragmem.messages import ImagePart, Json, Part, TextPart, ToolAnswer, ToolUse
from ragmem.statistics import day_numbers, stats_of, stats_parts, stats_text
from ragmem.text import bar, counted, visible
from ragmem.tools.base import deny_all

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.memory.graph import Graph, Wanted

drawing = cli.commands()

Shown = Literal["html", "json", "graphml"]
NewPage = Annotated[
    Path | None,
    cli.option("-o --output", "Write to this new file instead of ragmem's data folder.", "FILE"),
]
Open = Annotated[bool, cli.option("--open", "Open it in the browser.")]


@cli.command(drawing, cli.app_here)
async def graph(  # noqa: PLR0913 - one parameter a flag
    opened: "App",
    project: Annotated[
        bool, cli.option("--project", "The memory of this folder's project (the default).")
    ] = False,
    everywhere: Annotated[bool, cli.option("--all", "The memory of all projects.")] = False,
    resume: cli.OfSession = None,
    path: Annotated[
        str | None, cli.option("--file", "Everything related to this file of the project.", "PATH")
    ] = None,
    memory: Annotated[
        str | None,
        cli.option(
            "--memory", "The source of one memory, by its id.", "ID", offered=cli.memory_ids
        ),
    ] = None,
    since: Annotated[
        str | None,
        cli.option(
            "--since",
            "Only what was added since: an age (7d, 12h, 2w), a date, or a session.",
            "WHEN",
        ),
    ] = None,
    file: NewPage = None,
    show: Open = False,
    output: Annotated[
        Shown,
        cli.option(
            "--format", "html is a page to look at; json and graphml are for other programs."
        ),
    ] = "html",
) -> None:
    """Draw the memory as a graph on a page for the browser.

    The page is a single file that needs neither a server nor a network. Without -o it is
    written to ragmem's data folder, readable by you alone, replacing the previous one.
    """
    from ragmem.memory.graph import collect

    if sum((project, everywhere, resume is not None, path is not None, memory is not None)) > 1:
        raise UsageError("Use only one of --project, --all, -r, --file and --memory.")
    wanted = await _wanted(opened, everywhere, resume, path, memory, since)
    found = await collect(
        await opened.store(),
        wanted,
        now=datetime.now(UTC),
        sent=RequestLog(opened.paths.data_dir).known(),
        numbers=day_numbers(opened.usage.days()),
    )
    if not found.nodes and wanted.path:
        raise UsageError(
            f"Nothing is remembered about {visible(wanted.path)}.",
            hint="`ragmem files` lists the files of the last session.",
        )
    if not found.nodes:
        out.say("Nothing to show yet.\n")
    for each in found.left_out:
        out.say(f"Left out: {visible(each)}\n")
    out.say(f"{counted(len(found.nodes), 'node')}, {counted(len(found.edges), 'edge')}\n")
    write_graph(opened, found, file, output, show=show)


async def _wanted(
    opened: "App",
    everywhere: bool,
    resume: str | None,
    path: str | None,
    memory: str | None,
    since: str | None,
) -> "Wanted":
    from ragmem.memory.graph import Wanted

    start = await since_when(opened, out.typed(since)) if since is not None else None
    if everywhere:
        return Wanted(title="Everything ragmem remembers", since=start)
    if resume is not None:
        session = await cli.resumed(opened, resume)
        return Wanted(title=session.called, session=session, since=start)
    if memory is not None:
        found = await (await opened.store()).find_memories(out.typed(memory).replace("-", ""))
        if len(found) != 1:
            several = counted(len(found), "memory")
            raise UsageError(
                f"--memory: {f'{several} match' if found else 'no memory matches'} this id.",
                hint="`ragmem memory list` shows memories with their ids.",
            )
        return Wanted(title=f"Memory: {found[0].content}", memory=found[0], since=start)
    project = await project_here(opened)
    if path is None:
        return Wanted(title=f"Memory of {project.path}", project=project, since=start)
    top = real_folder(project.path, opened.cwd)
    wanted = stored_path(out.typed(path), cwd=opened.cwd, project=top)
    return Wanted(title=wanted, project=project, path=wanted, since=start)


def write_graph(
    opened: "App", found: "Graph", file: Path | None, output: Shown, *, show: bool, name: str = ""
) -> None:
    """Write a graph to a file in the format `output`, print its path and, if `show`, open it."""
    from ragmem.graph import to_graphml, to_html, to_json

    data = {"html": to_html, "json": to_json, "graphml": to_graphml}[output](found)
    if file is not None:
        with out.new_file(file) as part:
            part.write_bytes(data)
    else:
        file = opened.paths.data_dir / f"{name or 'graph'}.{output}"
        replace_private(file, data, sync=False)
    file = expanded(file).absolute()
    out.write(f"{visible(str(file))}\n")
    if show and not webbrowser.open(file.as_uri()):
        raise RagmemError("Can't open a browser.", hint=f"Open {visible(str(file))} yourself.")


measuring = cli.commands()


@cli.command(measuring, cli.app_here)
async def stats(
    opened: "App",
    html: Annotated[
        bool, cli.option("--html", "Draw charts as a page to open in a browser.")
    ] = False,
    file: NewPage = None,
    show: Open = False,
    output: cli.Format = "table",
) -> None:
    """Show usage statistics: size, speed, results and cost.

    Times, tokens and costs are those measured on this machine since its first run.
    """
    if html:
        if output == "json":
            raise UsageError("--html and --format json can't be used together.")
        await _write_stats_page(opened, file, show=show)
        return
    if file is not None or show:
        raise UsageError("-o and --open require --html.")
    days = opened.usage.days()
    found = await stats_of(opened, days)
    today = datetime.now().astimezone().date()
    out.print_one(
        output,
        lambda: found,
        lambda width: stats_painted(
            stats_text(found, width=width, today=today, days=days), out.paint_for(opened.config.ui)
        ),
        pipe=80,
    )


def stats_painted(text: str, paint: out.Paint) -> str:
    """Style the statistics: coloured bars, bold names."""
    return out.joined([paint(*parts) for parts in stats_parts(text)])


async def _write_stats_page(opened: "App", file: "Path | None", *, show: bool) -> None:
    """Write the statistics as a page like that of `graph`, with the growth of all projects."""
    from ragmem.memory.graph import Graph

    found = Graph(
        title="What ragmem did here",
        store=(await (await opened.store()).info()).kind,
        made_at=datetime.now().astimezone(),
        numbers=tuple(day_numbers(opened.usage.days())),
    )
    write_graph(opened, found, file, "html", show=show, name="stats")


building = cli.commands()

_BAR_WIDTH = 10
_WIDTH = 140


@cli.command(building, cli.app_here)
async def context(
    opened: "App",
    prompt: Annotated[str, cli.argument("PROMPT", "The prompt.")],
    newest: cli.OfNewest = False,
    resume: cli.OfSession = None,
    strategy: Annotated[
        Strategy,
        cli.option(
            "--strategy",
            "recent: the latest turns. relevant: what is relevant to the prompt. hybrid: both.",
        ),
    ] = "hybrid",
    model: cli.Model = None,
    output: cli.TextFormat = "text",
) -> None:
    """Show exactly what `ask` would send, with budgets and reasons.

    Nothing is sent or stored.
    """
    cli.check_session_flags(continue_last=newest, resume=resume, fork=False)
    prompt = out.typed(prompt)
    if not prompt.strip():
        raise out.empty_prompt()

    from ragmem.agent import Options

    session = await cli.choose_session(opened, continue_last=newest, resume=resume)
    agent = await opened.agent(session, Options(model=model or ""), deny_all)
    try:
        skill_set = await opened.skill_set(session)
        built = await agent.context(skill_set.expanded(prompt), strategy=strategy)
    finally:
        await agent.aclose()
    if output == "json":
        out.write_json(to_json(context_document(session.session_id, built)))
    else:
        out.say(budgets_table(built, width=out.columns(_WIDTH)) + "\n")
        out.write(visible(built.text()) + "\n")


def budgets_table(built: Context, *, width: int = _WIDTH) -> str:
    """Format the sections with their sizes, budgets, numbers of dropped items, and reasons."""
    rows = []
    for section in built.sections:
        budget = f"{section.budget:,}" if section.budget else "-"
        whys = dict.fromkeys(item.why for item in section.items)
        rows.append(
            (
                section.name,
                f"{section.chars:,}",
                budget,
                bar(section.chars, section.budget, _BAR_WIDTH) if section.budget else "",
                str(len(section.items)),
                str(section.dropped),
                "; ".join(whys),
            )
        )
    total = sum(section.chars for section in built.sections)
    full = bar(total, built.max_chars, _BAR_WIDTH)
    rows.append(
        ("total", f"{total:,}", f"{built.max_chars:,}", full, "", "", f"~{built.tokens:,} tokens")
    )
    head = ("SECTION", "CHARS", "BUDGET", "FILLED", "ITEMS", "DROPPED", "WHY")
    note = "The store is unavailable; the context is a pruned history.\n" if built.fallback else ""
    if built.without_code:
        note += f"{built.without_code}\n"
    return note + table(head, rows, width=width)


def context_document(session_id: str, built: Context) -> Document:
    """Return the request as a document, its messages in content blocks common to providers."""
    return document(
        "session_id max_chars tokens fallback without_code sections messages",
        built,
        session_id=session_id,
        sections=[
            document(
                "name chars budget items dropped",
                section,
                items=[
                    document("id label chars score why", item, id=item.record_id or None)
                    for item in section.items
                ],
            )
            for section in built.sections
        ],
        messages=[
            {"role": message.role, "content": [_block(part) for part in message.parts]}
            for message in built.messages
        ],
    )


def _block(part: Part) -> dict[str, Json]:
    match part:
        case TextPart(text):
            return text_block(text)
        case ImagePart(media_type):
            return {"type": "image", "media_type": media_type, "bytes": len(part.data)}
        case ToolUse(tool_use_id, name, arguments):
            return tool_use_block(tool_use_id, name, arguments)
        case ToolAnswer(tool_use_id, text, is_error):
            return tool_result_block(tool_use_id, text, is_error=is_error)

"""`ragmem sessions`: what was talked about, here and elsewhere."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Literal

import typer

from ragmem.cli import session_changes, session_finding, session_insights
from ragmem.cli.choice import last_session, resumed, session_name, session_rows
from ragmem.cli.documents import conversation_document, session_document, to_json
from ragmem.cli.opening import open_app, settings
from ragmem.cli.options import Format, Model
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.session_arguments import OrNewest, Reference, TextOrJson
from ragmem.cli.streams import say, typed, write, write_json
from ragmem.cli.table import table
from ragmem.errors import EXIT_DONE, UsageError
from ragmem.ids import short_id
from ragmem.memory.projects import folder_name, normalize_cwd
from ragmem.records import Session, SessionStatus, ToolCall, Turn
from ragmem.store.base import SessionQuery
from ragmem.text import clip_middle, one_line, visible

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Find, show, resume, name, fork, move and delete sessions.",
)

_SHOWN_CHARS = 400
_QUOTED_CHARS = 2_000


@app.command("list")
def list_sessions(  # noqa: PLR0913 - one parameter a flag
    project: Annotated[
        bool, typer.Option("--project", help="Those of the whole project, not of this folder only.")
    ] = False,
    join: Annotated[
        bool,
        typer.Option(
            "--join", help="First join this project to one with the same remote; asks you."
        ),
    ] = False,
    everywhere: Annotated[bool, typer.Option("--all", help="Those of every folder.")] = False,
    cwd: Annotated[
        Path | None, typer.Option("--cwd", metavar="DIR", help="Those of another folder.")
    ] = None,
    status: Annotated[
        SessionStatus | None, typer.Option("--status", help="Only active or archived ones.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="T", help="With this tag; repeated: any of them."),
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="And those of other people in the same database.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")
    ] = 50,
    output: Format = "table",
) -> None:
    """List the sessions of this folder, newest activity first."""
    if project + everywhere + (cwd is not None) > 1:
        raise UsageError("--project, --all and --cwd exclude each other.")
    if join and (everywhere or cwd):
        raise UsageError("--join is about this folder: it goes with neither --all nor --cwd.")
    config, paths = settings()
    project = project or join

    async def main(_: Interruption) -> int:
        async with open_app(config, paths) as opened:
            memory = opened.memory
            if join:
                from ragmem.cli.joining import join_project

                await join_project(opened)
            folder = folder_name(normalize_cwd(cwd.expanduser()) if cwd else opened.cwd)
            located = await memory.project_of(opened.cwd) if project else None
            query = SessionQuery(
                cwd=None if project or everywhere else folder,
                project_ids=(located.project.root_id,) if located else (),
                status=status,
                tags=tuple(tag or ()),
                mine=not everyone,
                limit=limit,
            )
            sessions = await memory.sessions(query)
        if output == "json":
            write_json(to_json([session_document(session) for session in sessions]))
        elif sessions:
            write(sessions_table(sessions, datetime.now(UTC), with_folder=query.cwd is None))
        else:
            say("No sessions" + (f" of {visible(folder)}" if query.cwd else "") + ".\n")
            if not everywhere:
                say("--all shows those of every folder, --cwd DIR those of one that was renamed.\n")
            if not everyone:
                say("--everyone shows those of other people too.\n")
        return EXIT_DONE

    raise typer.Exit(run_async(main))


@app.command()
def show(
    reference: Reference,
    reasoning: Annotated[
        bool, typer.Option("--reasoning", help="And what the model thought.")
    ] = False,
    results: Annotated[
        bool, typer.Option("--results", help="And what the tools answered.")
    ] = False,
    output: TextOrJson = "text",
) -> None:
    """Show a session with its turns and tool calls."""
    config, paths = settings()

    async def main(_: Interruption) -> int:
        async with open_app(config, paths) as opened:
            found = await resumed(opened, reference)
            conversation = await opened.memory.load_session(found.session_id)
        if output == "json":
            document = conversation_document(
                conversation.session, conversation.turns, reasoning=reasoning
            )
            write_json(to_json(document))
        else:
            text = conversation_text(
                conversation.session, conversation.turns, reasoning=reasoning, results=results
            )
            write(text)
        return EXIT_DONE

    raise typer.Exit(run_async(main))


@app.command()
def resume(reference: Reference) -> None:
    """Go on with a session: the same as `ragmem chat -r ID`."""
    from ragmem.cli.chat import chat

    chat(resume=reference)


@app.command()
def rename(
    reference: Reference,
    title: Annotated[str, typer.Argument(metavar="NAME", help="Its new name.", show_default=False)],
) -> None:
    """Give a session a name, by which it can be resumed."""
    name = " ".join(typed(title).split())
    if not name:
        raise UsageError("The name is empty.")
    config, paths = settings()

    async def main(_: Interruption) -> int:
        async with open_app(config, paths) as opened:
            found = await resumed(opened, reference)
            renamed = await opened.memory.rename(found.session_id, name)
        write(f"{short_id(renamed.session_id)}  {visible(renamed.title)}\n")
        return EXIT_DONE

    raise typer.Exit(run_async(main))


app.command()(session_changes.tag)
app.command()(session_changes.archive)
app.command()(session_changes.fork)
app.command()(session_finding.search)
app.command()(session_finding.similar)
app.command()(session_insights.insights)


@app.command("export")
def export_session(
    reference: OrNewest = None,
    file: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="A new file, instead of stdout."),
    ] = None,
    output: Annotated[
        Literal["json", "md"],
        typer.Option("--format", help="json can be imported again; md is for people."),
    ] = "json",
) -> None:
    """Write a session with everything that belongs to it."""
    from ragmem.cli.keeping import export

    config, paths = settings()
    raise typer.Exit(run_async(lambda _: export(config, paths, reference, file, output)))


@app.command("import")
def import_session(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="As `export` has written it.", show_default=False)
    ],
    as_new: Annotated[
        bool, typer.Option("--as-new", help="Give everything new ids: a second copy.")
    ] = False,
) -> None:
    """Store a session that was exported; its ids are kept.

    One that is here already is refused.
    """
    from ragmem.cli.keeping import import_file

    config, paths = settings()
    raise typer.Exit(run_async(lambda _: import_file(config, paths, file, as_new=as_new)))


@app.command()
def delete(
    reference: Reference, yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False
) -> None:
    """Delete a session for ever, with all that was derived from it."""
    from ragmem.cli.keeping import delete as remove

    config, paths = settings()
    raise typer.Exit(run_async(lambda _: remove(config, paths, reference, confirmed=yes)))


@app.command()
def summarize(
    reference: OrNewest = None,
    model: Model = None,
) -> None:
    """Sum a session up now, and show what came of it."""
    config, paths = settings()

    async def main(_: Interruption) -> int:
        async with open_app(config, paths) as opened:
            found = await (resumed(opened, reference) if reference else last_session(opened))
            text = await opened.background.summarize(found, model=model or "")
        write(f"{visible(text)}\n")
        return EXIT_DONE

    raise typer.Exit(run_async(main))


def sessions_table(sessions: list[Session], now: datetime, *, with_folder: bool) -> str:
    """One line a session; across folders with the folder it was held in."""
    header: tuple[str, ...] = ("ID", "LAST ACTIVITY", "TURNS", "TITLE")
    rows = [
        (*row[:3], row[3] + _marks(session))
        for row, session in zip(session_rows(sessions, now), sessions, strict=True)
    ]
    if with_folder:
        header = (*header[:3], "FOLDER", header[3])
        rows = [
            (*row[:3], session.cwd, row[3]) for row, session in zip(rows, sessions, strict=True)
        ]
    return table(header, rows, width=get_terminal_size((120, 24)).columns)


def _marks(session: Session) -> str:
    tags = "".join(f" #{tag}" for tag in session.tags)
    return tags + (" (archived)" if session.status == "archived" else "")


def conversation_text(
    session: Session,
    turns: Sequence[Turn],
    *,
    reasoning: bool = False,
    results: bool = False,
) -> str:
    """A session as a person reads it; what is long is clipped, `--format json` has it whole."""
    from ragmem.memory.window import result_text

    started = session.started_at.astimezone().strftime("%Y-%m-%d %H:%M")
    lines = [
        session_name(session) + visible(_marks(session)),
        f"{session.session_id} · {visible(session.cwd)} · started {started}",
    ]
    for turn in turns:
        mark = "" if turn.status == "completed" else f" ({turn.status})"
        lines += ["", f"── {turn.turn_index}{mark}", f"› {visible(turn.user_message)}"]
        if reasoning and turn.reasoning:
            lines += ["", *_quoted(turn.reasoning, "~ ")]
        for call in turn.tool_calls:
            lines.append(_call_line(call))
            lines += _quoted(result_text(call), "  ⎿ ") if results else []
        if turn.assistant_message:
            lines += ["", visible(turn.assistant_message)]
    return "\n".join(lines) + "\n"


def _quoted(text: str, mark: str) -> list[str]:
    """Behind a margin, so that it can't pass for something else."""
    clipped = clip_middle(text.strip(), _QUOTED_CHARS)
    return [f"{mark}{visible(line)}".rstrip() for line in clipped.splitlines()]


def _call_line(call: ToolCall) -> str:
    mark = "●" if call.success else "✗"
    reason = f" — {one_line(call.error, 200)}" if call.error else ""
    arguments = one_line(clip_middle(call.arguments, _SHOWN_CHARS), 160)
    return f"{mark} {one_line(call.tool_name, 80)} {arguments}{reason}"

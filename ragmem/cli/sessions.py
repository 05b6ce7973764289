"""`ragmem sessions`: list, show, change, export and delete sessions."""

import socket
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ragmem.administration import Administration
from ragmem.cli import command as cli, output as out, search
from ragmem.cli.shown import heading_text, sessions_by_day, turn_text
from ragmem.errors import EXIT_DONE, EXIT_FAILED, UsageError
from ragmem.files import expanded, home_folder
from ragmem.ids import short_id
from ragmem.listings import SESSION, conversation_document, document, session_name, sessions_table
from ragmem.memory.memories import traces_text
from ragmem.memory.projects import folder_name, has_remote, normalize_cwd
from ragmem.memory.sessions import archive, fork_at, tag as tag_session
from ragmem.records import (
    WITHOUT_CALLS,
    Insight,
    Project,
    Session,
    SessionQuery,
    SessionStatus,
    Turn,
)
from ragmem.text import ago, clip_to_width, counted, hanging, one_line, visible, without_markdown

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.memory.titles import Look


app = cli.commands("List, show, resume, name, fork, export and delete sessions.")

_MAX_COUNTED = 1_000
_INSIGHT = f"{SESSION} main_topic key_findings action_items created_at"
_UNJOINED = "Nothing was joined."
_TRY_AGAIN = "Run `ragmem sessions list --join` to try again."


@cli.command(app, cli.app_here, "list")
async def list_sessions(  # noqa: PLR0913 - one parameter a flag
    opened: "App",
    project: Annotated[
        bool, cli.option("--project", "Sessions of the whole project, not just this folder.")
    ] = False,
    join: Annotated[
        bool,
        cli.option(
            "--join",
            "First join this project with one that has the same remote or whose folder is gone; "
            "asks before.",
        ),
    ] = False,
    everywhere: Annotated[bool, cli.option("--all", "Sessions of all folders.")] = False,
    cwd: Annotated[Path | None, cli.option("--cwd", "Sessions of another folder.", "DIR")] = None,
    status: Annotated[
        SessionStatus | None, cli.option("--status", "Only active or only archived sessions.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        cli.option("--tag", "Only with this tag. Repeat to match any of several.", "T"),
    ] = None,
    everyone: Annotated[
        bool, cli.option("--everyone", "Include other people's sessions in the same database.")
    ] = False,
    limit: Annotated[int, cli.option("--limit", "Maximum number of sessions.", "N", least=1)] = 50,
    output: cli.Format = "table",
) -> None:
    """List the sessions of this folder, latest activity first."""
    if project + everywhere + (cwd is not None) > 1:
        raise UsageError("Use only one of --project, --all and --cwd.")
    if join and (everywhere or cwd):
        raise UsageError("--join applies to this folder; it can't be combined with --all or --cwd.")
    project = project or join
    if join:
        await _join_project(opened)
    folder = folder_name(normalize_cwd(expanded(cwd)) if cwd else opened.cwd)
    located = await opened.memory.project_of(opened.cwd) if project else None
    query = SessionQuery(
        cwd=None if project or everywhere else folder,
        project_ids=(located.project.root_id,) if located else (),
        status=status,
        tags=tuple(tag or ()),
        mine=not everyone,
        limit=limit + 1,
    )
    found = await opened.memory.sessions(query)
    has_more = len(found) > limit
    del found[limit:]
    where = f" in {visible(folder)}" if query.cwd else ""
    nothing = f"No {f'{status} ' if status else ''}sessions{where}"
    nothing += f" with the tag {visible(' or '.join(query.tags))}.\n" if query.tags else ".\n"
    if query.tags or status:
        nothing += "Leave out --tag and --status to list all.\n"
    elif not everywhere:
        look = "--all" if cwd or project else "--project or --all"
        nothing += (
            f"Use {look} to list more; --join moves sessions here from a folder that is gone.\n"
        )
    if not everyone and opened.config.store.kind == "neo4j":
        nothing += "--everyone includes other people's sessions.\n"
    now, folders, paint = datetime.now(UTC), query.cwd is None, out.paint_for(opened.config.ui)
    is_seen = output == "table" and sys.stdout.isatty()

    def listed(width: int) -> str:
        if not is_seen:
            return sessions_table(found, now, width=width, folders=folders)
        return sessions_by_day(found, now, width=width, paint=paint, folders=folders)

    out.print_all(
        output, found, lambda each: document(SESSION, each), listed, nothing, has_more=has_more
    )
    if is_seen and found:
        recap = await opened.memory.recap(found[0])
        if told := [without_markdown(row) for row in recap.lines()]:
            rows, width = [f"Last time ({short_id(found[0].session_id)}):", *told], out.columns()
            dim = [paint((clip_to_width(one_line(row, 400), width), "dim")) for row in rows]
            out.write(out.joined(["", *dim]))


@cli.command(app, cli.app_here)
async def show(
    opened: "App",
    reference: cli.Reference,
    reasoning: Annotated[bool, cli.option("--reasoning", "Include the model's reasoning.")] = False,
    results: Annotated[bool, cli.option("--results", "Include the results of tool calls.")] = False,
    output: cli.TextFormat = "text",
) -> None:
    """Show a session with its turns and tool calls."""
    found = await cli.resumed(opened, reference)
    await _interrupt_dead_turn(opened, found)
    if output == "json":
        whole = await opened.memory.load_session(found.session_id)
        told = conversation_document(whole.session, whole.turns, reasoning=reasoning)
        return out.write_json(out.to_json(told))
    paint, width = out.paint_for(opened.config.ui), out.columns() if sys.stdout.isatty() else None
    out.write(heading_text(found, paint))
    async for turn in opened.memory.turns_on(found.session_id):
        out.write(turn_text(turn, width=width, paint=paint, reasoning=reasoning, results=results))


async def _interrupt_dead_turn(opened: "App", session: Session) -> None:
    """Mark a turn whose process was killed as interrupted, as the next prompt would."""
    turns = opened.memory.turns_back(session.session_id, WITHOUT_CALLS)
    latest = await anext(turns, None)
    await turns.aclose()
    if latest and latest.status == "running":
        await opened.memory.attach(session)


@app.command()
def resume(reference: cli.Reference) -> None:
    """Resume a session; same as `ragmem chat -r ID`."""
    from ragmem.cli.chat import chat

    chat(resume=reference)


@cli.command(app, cli.app_here)
async def rename(
    opened: "App",
    reference: cli.Reference,
    title: Annotated[str, cli.argument("NAME", "The new name.")],
) -> cli.Report:
    """Name a session, so that you can resume it by name."""
    name = " ".join(out.typed(title).split())
    if not name:
        raise UsageError("The name is empty.")
    found = await cli.resumed(opened, reference)
    renamed = await opened.memory.rename(found.session_id, name)
    return lambda: out.write(f"{short_id(renamed.session_id)}  {visible(renamed.title)}\n")


@cli.command(app, cli.app_here)
async def tag(
    opened: "App",
    reference: cli.Reference,
    tags: Annotated[list[str] | None, cli.argument("TAG...", "Tags to add.")] = None,
    remove: Annotated[
        list[str] | None, cli.option("--remove", "A tag to remove. Repeatable.", "TAG")
    ] = None,
) -> cli.Report:
    """Add or remove a session's tags, for use with `list --tag`.

    Without tags, shows the current ones.
    """
    found = await cli.resumed(opened, reference)
    add = [out.typed(each) for each in tags or ()]
    gone = [out.typed(each) for each in remove or ()]
    changed = await tag_session(opened.memory, found, add, gone)
    its_tags = ", ".join(map(visible, changed.tags)) or "no tags"
    return lambda: out.write(_changed_line(changed, its_tags))


@cli.command(app, cli.app_here, "archive")
async def archive_session(
    opened: "App",
    reference: cli.Reference,
    undo: Annotated[bool, cli.option("--undo", "Unarchive it.")] = False,
) -> cli.Report:
    """Archive a session: it is kept, and marked in the list.

    Search still finds it.
    """
    changed = await archive(opened.memory, await cli.resumed(opened, reference), undo=undo)
    return lambda: out.write(_changed_line(changed, changed.status))


@cli.command(app, cli.app_here)
async def fork(
    opened: "App",
    reference: cli.Reference,
    at: Annotated[
        int | None,
        cli.option("--at", "Share the turns up to this one. Default: all turns.", "TURN", least=1),
    ] = None,
    name: Annotated[str, cli.option("-n --name", "The new session's name.", "NAME")] = "",
) -> cli.Report:
    """Start a new session that shares the first turns of another.

    From there on, the two are independent.
    """
    found = await cli.resumed(opened, reference)
    forked = await fork_at(opened.memory, found, at, title=out.typed(name))
    shared = f"{counted(forked.turn_count, 'turn')} of {short_id(found.session_id)}"

    def report() -> None:
        out.write(_changed_line(forked, shared))
        out.say(f"Continue with `ragmem chat -r {short_id(forked.session_id)}`.\n")

    return report


def _changed_line(session: Session, what: str) -> str:
    return f"{short_id(session.session_id)}  {session_name(session)}  ({what})\n"


cli.command(app, cli.app_here, "search")(search.search_sessions)
cli.command(app, cli.app_here, "similar")(search.find_similar)


# --- insights -----------------------------------------------------------------


Found = tuple[Session, Insight]


@cli.command(app, cli.app_here)
async def insights(
    opened: "App",
    last: Annotated[
        int,
        cli.option("--last", "How many of the latest sessions to review.", "N", least=1, most=1000),
    ] = 50,
    model: cli.Model = None,
    output: cli.TextFormat = "text",
) -> int:
    """Review the latest sessions: topics, findings, open tasks.

    Covers the sessions of all folders. Asks the summary model once per session; a session is
    not asked about again until it changes.
    """
    from ragmem.memory.titles import look

    failed = 0
    seen = await look(await opened.store(), last=last)
    found = list(seen.known)
    if seen.waiting:
        made = await _review(opened, seen, model or "")
        failed = len(seen.waiting) - len(made)
        found += made
    found.sort(key=lambda each: each[0].last_activity_at, reverse=True)
    out.print_all(
        output,
        found,
        lambda each: document(_INSIGHT, *each),
        lambda width: insights_text(found, datetime.now(UTC), width),
        "" if failed else "No sessions to review yet.\n",
    )
    return EXIT_FAILED if failed and not found else EXIT_DONE


async def _review(opened: "App", seen: "Look", model: str) -> list[Found]:
    """Review each session with a model call, stored at once so that stopping loses nothing."""
    from ragmem.background import summary_model
    from ragmem.memory.summaries.summarizer import Summarizer, is_too_small
    from ragmem.memory.titles import insight_into

    config, paths = opened.config, opened.paths
    llm = summary_model(config, paths, flag=model)
    if llm is None or is_too_small(llm.info):
        return _report_no_model(seen, llm.info.name if llm else "")
    asking = Summarizer(
        llm,
        config.memory.summaries,
        usage=opened.usage,
        open_attempts=opened.store,
        is_chosen=bool(model or config.model.summary),
    )
    store = await opened.store()
    known = f", {len(seen.known):,} already reviewed" if seen.known else ""
    out.say(
        f"Asking {visible(llm.info.name)} about {counted(len(seen.waiting), 'session')}{known}.\n"
    )
    made: list[Found] = []
    why = ""
    try:
        with out.resumable("Results so far are"), out.records(len(seen.waiting)) as show:
            for session in seen.waiting:
                insight = await insight_into(store, asking, session, opened.memory.record)
                if insight is not None:
                    made.append((session, insight))
                why = asking.problem or why
                show("reading", 1)
    finally:
        await llm.aclose()
    if missing := len(seen.waiting) - len(made):
        reason = one_line(why, 300) or (
            "the model's limits are reached, it is too small, or a model on this machine answered "
            "last, and model.summary is not set"
        )
        out.say(f"No result for {counted(missing, 'session')}: {reason}\n")
    return made


def _report_no_model(seen: "Look", name: str) -> list[Found]:
    """Report that no model can review; raise UsageError unless earlier reviews can be shown."""
    problem = f"{name} is too small for this." if name else "No model is available."
    hint = "Choose one with -m, or set model.summary; `ragmem models` lists them."
    if not seen.known:
        raise UsageError(problem, hint=hint)
    out.say(f"{counted(len(seen.waiting), 'session')} not reviewed: {problem} {hint}\n")
    return []


def insights_text(found: Sequence[Found], now: datetime, width: int) -> str:
    """Format each session as a paragraph: findings after dashes, open tasks after boxes."""
    width = max(out.MIN_COLUMNS, width)
    lines: list[str] = []
    for session, insight in found:
        when = f"{counted(session.turn_count, 'turn')} · {ago(session.last_activity_at, now)}"
        head = f"{session_name(session)} · {when}"
        lines += hanging(f"{short_id(session.session_id)}  ", head, width)
        lines += hanging("  ", visible(insight.main_topic), width)
        for mark, items in (("-", insight.key_findings), ("☐", insight.action_items)):
            for each in items:
                lines += hanging(f"  {mark} ", visible(each), width)
        lines.append("")
    return "\n".join(lines)


# --- files and deletion -------------------------------------------------------


@cli.command(app, cli.home, "export")
async def export_session(
    own: Administration,
    reference: cli.OrNewest = None,
    file: cli.NewFile = None,
    output: Annotated[
        Literal["json", "md", "html"] | None,
        cli.option(
            "--format",
            "json can be imported again; md and html are for reading. Default: by the ending of "
            "FILE, else json.",
        ),
    ] = None,
    without_names: Annotated[
        bool,
        cli.option("--anonymous", "With md or html: replace paths, email addresses and names."),
    ] = False,
) -> None:
    """Export a session with everything that belongs to it."""
    from ragmem.pages import FORMATS, anonymous, html, markdown

    form = output or FORMATS.get(file.suffix.lower() if file else "", "json")
    if without_names and form == "json":
        raise UsageError("--anonymous requires --format md or html.")
    session = await _session_of(own, reference)
    document, data = await own.export(session.session_id)
    told: Session = document.session
    turns: Sequence[Turn] = document.turns
    if without_names:
        told, turns = anonymous(told, turns, await _names(own))
    if form != "json":
        page = html if form == "html" else markdown
        data = page(told, turns).encode()
    if file is None:
        (out.write_json if form == "json" else out.write_utf8)(data.decode())
        return
    with out.new_file(file) as part:
        part.write_bytes(data)
    count = counted(len(document.turns), "turn")
    out.say(f"{short_id(session.session_id)}: {count} in {visible(str(file))}\n")


async def _names(own: Administration) -> list[str]:
    """Return the names of owners, profiles, this user and machine, whole and word by word."""
    async with own.archive(existing=True) as store:
        people = [owner.name for owner in await store.owners()]
        people += [each.values.get("name", "") for each in await store.profiles()]
    people += [home.name if (home := home_folder()) else "", socket.gethostname()]
    return [name for whole in people for name in (whole, *whole.split())]


async def _session_of(own: Administration, reference: str | None) -> Session:
    async with cli.app_here(own.config, own.paths) as app:
        return await (cli.last_session(app) if reference is None else cli.resumed(app, reference))


@cli.command(app, cli.home, "import")
async def import_session(
    own: Administration,
    file: cli.Exported,
    as_new: Annotated[
        bool, cli.option("--as-new", "Import as a second copy, with new ids.")
    ] = False,
    yes: cli.Yes = False,
) -> None:
    """Import an exported session, keeping its ids.

    Fails if the session already exists. Asks first if it has rules, preferences, pinned
    memories, or memories for every project (yours keep that status, other people's don't),
    or if one of yours replaces one that is here.
    """
    allow = partial(cli.confirm_claims, yes=yes)
    session, document = await own.take_in(out.read_without_secrets(file), allow, as_new=as_new)
    tail = short_id(session.session_id)
    out.write(f"{tail}  {session_name(session)} ({counted(session.turn_count, 'turn')})\n")
    if known := document.memories:
        always = sum(memory.stands_always for memory in known)
        told = f", {always:,} of them included in every request" if always else ""
        out.say(f"With {counted(len(known), 'memory')}{told}; `ragmem memory list` shows them.\n")
    out.say(f"Continue with `ragmem chat -r {tail}`.\n")


@cli.command(app, cli.home)
async def delete(own: Administration, reference: cli.Reference, yes: cli.Yes = False) -> None:
    """Delete a session for good, with everything derived from it."""
    session = await _session_of(own, reference)
    if not yes:
        out.say(
            f"{short_id(session.session_id)}  {session_name(session)}\n"
            f"{counted(session.turn_count, 'turn')}, in {visible(session.cwd)}\n"
        )
        await cli.confirm("Delete it for good?", "Nothing was deleted.")
    gone = await own.delete(session)
    known = f", {counted(gone['memories'], 'memory')}" if gone["memories"] else ""
    if gone["copies"]:
        known += f", {counted(gone['copies'], 'copy')} of files from before edits"
    out.write(f"Deleted {short_id(session.session_id)}: {counted(gone['turns'], 'turn')}{known}.\n")
    if traces := traces_text(gone):
        out.say(f"{traces}\n")


@cli.command(app, cli.home)
async def split(
    own: Administration,
    folder: Annotated[
        Path, cli.argument("[DIR]", "A folder, which may no longer exist. Default: this one.")
    ] = Path(),
) -> None:
    """Remove a folder's sessions from a joined project.

    They become a project of their own again, with the memories learned in them.
    """
    done = await own.split(normalize_cwd(expanded(folder)))
    path = visible(done.project.path)
    if done.root is None:
        out.write(f"{path} is already a project of its own; nothing to split.\n")
        return
    moved = counted(done.sessions, "session")
    out.write(
        f"{path} is now a project of its own; {moved} moved there from {visible(done.root)}.\n"
    )
    out.say("Run `ragmem sessions list --join` in that folder to join them again.\n")


@cli.command(app, cli.app_here)
async def summarize(
    opened: "App", reference: cli.OrNewest = None, model: cli.Model = None
) -> cli.Report:
    """Summarize a session now and print the summary."""
    found = await (cli.resumed(opened, reference) if reference else cli.last_session(opened))
    text = await opened.background.summarize(found, model=model or "")
    if problem := opened.background.problem:
        out.say(
            "note: excerpted from the turns, because no model summarized them "
            f"({visible(problem)})\n"
        )
    return lambda: out.write(f"{visible(text)}\n")


# --- projects with the same remote --------------------------------------------


async def _join_project(app: "App") -> None:
    """Join this folder's project to one that the user chooses, or raise UsageError."""
    if not out.is_interactive():
        raise UsageError(
            "Joining two projects needs confirmation, and this is not an interactive terminal.",
            hint="Run `ragmem sessions list --join` in a terminal.",
        )
    project, same, moved = await app.joinable_projects()
    known = await (await app.store()).projects()
    if not (found := [*same, *moved]):
        raise UsageError(_nothing_to_join(app, project, known))
    out.say(f"This project: {await _project_line(app, project)}\n")
    for head, listed, first in (
        ("Same repository or remote:", same, 1),
        ("Folder gone (this may be its new location):", moved, len(same) + 1),
    ):
        out.say(f"{head}\n" if listed else "")
        for number, each in enumerate(listed, first):
            mark = f"{number}  " if len(found) > 1 else ""
            out.say(f"  {mark}{await _project_line(app, each)}\n")
    chosen = await _choose_project(found)
    # Join the root project, so that folders joined to it earlier move along.
    own = next((each for each in known if each.project_id == project.root_id), project)
    await app.memory.join(own, chosen, chosen=True)
    out.say(
        f"Joined: the sessions of both folders now belong to {visible(chosen.path)}. Undo with "
        "`ragmem sessions split`.\n"
    )


def _nothing_to_join(app: "App", project: Project, known: list[Project]) -> str:
    where = visible(folder_name(app.cwd))
    if project.root_id != project.project_id:
        root = next((each.path for each in known if each.project_id == project.root_id), "another")
        return f"{where} already belongs to the project {visible(root)}; there is no other to join."
    remote = (
        f"has the remote {visible(project.remote or '')}" if has_remote(project) else "exists here"
    )
    return f"No other project {remote} or has lost its folder."


async def _project_line(app: "App", project: Project) -> str:
    query = SessionQuery(project_ids=(project.root_id,), limit=_MAX_COUNTED + 1)
    count = len(await app.memory.sessions(query))
    more = "more than " if count > _MAX_COUNTED else ""
    return f"{visible(project.path)} ({more}{counted(min(count, _MAX_COUNTED), 'session')})"


async def _choose_project(found: list[Project]) -> Project:
    out.say("Joining makes them one project, and each recalls the other's sessions.\n")
    if len(found) == 1:
        await cli.confirm("Join them?", f"{_UNJOINED}\nAnswer y or yes to join them. {_TRY_AGAIN}")
        return found[0]
    chosen = await cli.choose_number(
        f"Join which project? [1-{len(found)}, Enter for none] ", len(found)
    )
    if chosen is None:
        raise UsageError(_UNJOINED, hint=f"Enter a number from the list. {_TRY_AGAIN}")
    return found[chosen]

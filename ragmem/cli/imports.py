"""`ragmem import`: what other agents have kept of their sessions, into this memory."""

import asyncio
import sys
from collections import Counter
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from ragmem.administration import Administration
from ragmem.cli.command import command, confirm, home
from ragmem.cli.documents import Document, document
from ragmem.cli.options import Format, age_or_date, argument, commands, option
from ragmem.cli.output import PassingLine, columns, print_one, say
from ragmem.config import environment
from ragmem.errors import UsageError
from ragmem.ids import short_id
from ragmem.importers.finder import AGENTS, AgentFiles, find_files, titles_beside
from ragmem.importers.importer import Importer
from ragmem.importers.jsonl import AgentName, FoundFile, Outcome, Tally
from ragmem.listings import table
from ragmem.memory.projects import folder_name, normalize_cwd
from ragmem.records import DEFAULT_TITLE
from ragmem.redact import know, secrets_among
from ragmem.text import ago, counted, one_line, visible

app = commands()

_SHOWN = 20
"""Sessions, and files that were skipped, that are listed for people; JSON has them all."""
_SESSION = "file state session_id title cwd turns_added turns_changed turns_known tool_calls_added"
_OF_SUMMARIES = (
    "note: what comes is summed up in the background like all else, by the model of "
    "`model.summary`: its provider, if it has one, is sent the turns and paid.\n"
    "`ragmem config set memory.summaries.enabled false` leaves that out.\n"
)


class _Wanted(msgspec.Struct, frozen=True):
    """What of an agent's sessions is to come."""

    cwd: Path | None
    since: datetime | None
    dry_run: bool


@command(app, home)
async def take_over(
    own: Administration,
    agent: Annotated[
        AgentName | None,
        argument("[AGENT]", f"{', '.join(AGENTS)}; without one, all that are here."),
    ] = None,
    path: Annotated[
        Path | None,
        argument("[PATH]", "A folder or a file; else where the agent keeps its sessions."),
    ] = None,
    cwd: Annotated[Path | None, option("--cwd", "Only sessions of this folder.", "DIR")] = None,
    since: Annotated[
        str, option("--since", "Only what was written to since then: 7d, 12h, a date.", "WHEN")
    ] = "",
    dry_run: Annotated[bool, option("--dry-run", "Show what would come; store nothing.")] = False,
    yes: Annotated[bool, option("--yes", "Without AGENT: do not ask.")] = False,
    output: Format = "table",
) -> None:
    """Take over sessions of other coding agents.

    Without AGENT it looks where each of them keeps its sessions, says what is there, and asks.
    What is here already stays; run it again to get what was said since.
    """
    wanted = _Wanted(cwd, _since(since), dry_run)
    if agent:
        found = AGENTS[agent]
        reports = [await _taken(own, found, _place(found, path), wanted)]
        print_one(output, lambda: reports[0], lambda width: report_text(reports[0], width))
    else:
        reports = await _all(own, wanted, yes=yes)
        print_one(
            output,
            lambda: {"agents": reports},
            lambda width: "\n".join(report_text(each, width) for each in reports),
        )
    if any(each["turns_added"] for each in reports) and own.config.memory.summaries.enabled:
        say(_OF_SUMMARIES)


async def _all(own: Administration, wanted: _Wanted, *, yes: bool) -> list[Document]:
    """Import from all agents that have sessions on this machine, if the person agrees."""
    found = {}
    for agent in AGENTS.values():
        with suppress(OSError):
            files = (await asyncio.to_thread(find_files, agent, _place(agent, None))).files
            if files := [each for each in files if _is_wanted(each, wanted)]:
                found[agent] = files
    if not found:
        places = "".join(f"  {_place(agent, None)}\n" for agent in AGENTS.values())
        say(f"There are no sessions of other agents in any of\n{places}")
        return []
    now = datetime.now(UTC)
    rows = [
        (
            agent.label,
            f"{len(files):,}",
            ago(files[-1].changed_at, now),
            visible(str(_place(agent, None))),
        )
        for agent, files in found.items()
    ]
    say(table(("AGENT", "SESSIONS", "LATEST", "FOLDER"), rows, width=columns(120)))
    if not (yes or wanted.dry_run):
        say("They are read, never changed; what is here already stays as it is.\n")
        await confirm("Import them?", "Nothing was imported.")
    return [await _taken(own, agent, _place(agent, None), wanted) for agent in found]


def _place(agent: AgentFiles, path: Path | None) -> Path:
    return path.expanduser() if path else agent.folder(environment())


def _since(words: str) -> datetime | None:
    if words and (since := age_or_date(words)) is None:
        raise UsageError(
            f"--since: {one_line(words, 40)!r} is no age and no date.",
            hint="Such as 7d, 12h, 2w or 2026-11-01.",
        )
    return since if words else None


def _is_wanted(found: FoundFile, wanted: _Wanted) -> bool:
    return wanted.since is None or found.changed_at >= wanted.since


async def _taken(own: Administration, agent: AgentFiles, path: Path, wanted: _Wanted) -> Document:
    """Every file; what can't be read is told, and costs nothing else."""
    know(secrets_among(environment()))
    now = datetime.now(UTC)
    try:
        search = await asyncio.to_thread(find_files, agent, path)
    except OSError as error:
        raise UsageError(
            f"There are no sessions of {agent.label} at {path}: {str(error.strerror).lower()}.",
            hint=f"`ragmem import {agent.name} PATH` reads them from elsewhere.",
        ) from None
    files = [found for found in search.files if _is_wanted(found, wanted)]
    tally, outcomes, skipped = search.tally, list[tuple[str, Outcome]](), search.skipped
    titles = await asyncio.to_thread(titles_beside, agent, path, files)
    line, live = PassingLine(), sys.stderr.isatty()
    # To look only, no store is made.
    none = wanted.dry_run and own.kind == "sqlite" and not own.paths.database.exists()
    async with AsyncExitStack() as stack:
        store = None if none else await stack.enter_async_context(own.archive())
        importer = Importer(
            store,
            now=now,
            titles=titles,
            only_cwd=_folder(wanted.cwd) if wanted.cwd else None,
            dry_run=wanted.dry_run,
        )
        try:
            for number, found in enumerate(files, 1):
                if live:
                    name = f"{found.file.parent.name}/{found.session or found.file.name}"
                    line.show(f"{number:,} of {len(files):,}: {name}")
                of_file = Tally()
                outcome = await importer.take(agent, found, of_file)
                outcomes.append((str(found.file), outcome))
                if outcome.state != "other_folder":
                    tally.add(of_file)
        except BaseException:
            line.clear()
            say("Stopped. What has come so far stays; run it again to go on.\n")
            raise
    line.clear()
    skipped += [(file, each.reason) for file, each in outcomes if each.reason]
    taken = [(file, each) for file, each in outcomes if each.session_id]
    sums = ("turns_added", "turns_changed", "tool_calls_added")
    return {
        "agent": agent.name,
        "path": str(path),
        "dry_run": wanted.dry_run,
        "file_count": len(outcomes),
        "older_count": len(search.files) - len(files),
        "sessions": [document(_SESSION, each, file=file) for file, each in taken],
        "sessions_by_state": dict(Counter(each.state for _, each in outcomes)),
        **{name: sum(getattr(each, name) for _, each in taken) for name in sums},
        "skipped": [{"path": file, "reason": reason} for file, reason in skipped],
        "left_out": dict(tally.left_out.most_common()),
        "unknown": dict(tally.unknown.most_common()),
        "broken_lines": dict(tally.broken.most_common()),
    }


def _folder(cwd: Path) -> str:
    return folder_name(normalize_cwd(cwd.expanduser()))


def report_text(report: Document, width: int = 120) -> str:
    """What came, what was here, what was left out and why: for people."""
    label = AGENTS[report["agent"]].label
    came = [each for each in report["sessions"] if each["state"] in ("new", "grown")]
    lines = []
    if came:
        header = ("ID", "STATE", "TURNS", "FOLDER", "TITLE")
        rows = [
            (
                short_id(each["session_id"]),
                each["state"],
                f"+{each['turns_added'] + each['turns_changed']:,}",
                each["cwd"],
                "" if each["title"] == DEFAULT_TITLE else each["title"],
            )
            for each in came[:_SHOWN]
        ]
        lines.append(table(header, rows, width=width).rstrip("\n"))
        if len(came) > _SHOWN:
            lines.append(f"… and {len(came) - _SHOWN:,} more")
    states = report["sessions_by_state"]
    lines.append(
        f"{label}: {counted(states.get('new', 0), 'new session')}, "
        f"{states.get('grown', 0):,} went on, {states.get('unchanged', 0):,} here already; "
        f"{counted(report['turns_added'], 'new turn')}"
        f" with {counted(report['tool_calls_added'], 'tool call')}"
        + (f", {report['turns_changed']:,} completed" if report["turns_changed"] else "")
        + "."
    )
    if others := states.get("other_folder", 0):
        lines.append(f"{counted(others, 'session')} of other folders.")
    if older := report["older_count"]:
        lines.append(f"{counted(older, 'session')} older than asked for.")
    if empty := states.get("empty", 0):
        lines.append(f"{counted(empty, 'file')} without a turn.")
    for heading, key in (
        ("Left out", "left_out"),
        ("Of unknown kinds, left out", "unknown"),
        ("Lines that can't be read", "broken_lines"),
    ):
        if counts := report[key]:
            lines.append(f"{heading}:")
            lines += [f"  {count:>6,}  {visible(what)}" for what, count in counts.items()]
    for each in report["skipped"][:_SHOWN]:
        lines.append(f"Skipped {visible(each['path'])}: {visible(each['reason'])}")
    if (more := len(report["skipped"]) - _SHOWN) > 0:
        lines.append(f"… and {more:,} more files were skipped")
    if report["dry_run"]:
        lines.append("Nothing was stored: this was a dry run.")
    return "\n".join(lines) + "\n"

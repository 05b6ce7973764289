"""`ragmem import`: what other agents have kept of their sessions, into this memory."""

import asyncio
import os
import sys
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from ragmem.administration import Administration
from ragmem.cli.command import command, home
from ragmem.cli.documents import Document, document
from ragmem.cli.options import Format, argument, commands, option
from ragmem.cli.output import PassingLine, print_one, say
from ragmem.config import environment
from ragmem.errors import UsageError
from ragmem.ids import short_id
from ragmem.importers import (
    AGENTS,
    AgentFiles,
    AgentName,
    ForeignFolder,
    Importer,
    Outcome,
    Rules,
    Tally,
    find_files,
    titles_beside,
)
from ragmem.listings import table
from ragmem.memory.files import stored_path
from ragmem.memory.projects import (
    folder_name,
    locate,
    normalize_cwd,
    project_of_folder,
    registrations,
)
from ragmem.memory.recording import redacted
from ragmem.records import DEFAULT_TITLE, Project, RegisterProject
from ragmem.redact import know, secrets_among
from ragmem.text import clean, counted, visible

app = commands("Take over sessions of other coding agents.")

_SHOWN = 20
"""Sessions, and files that were skipped, that are listed for people; JSON has them all."""
_SESSION = "file state session_id title cwd turns_added turns_changed turns_known tool_calls_added"
_OF_SUMMARIES = (
    "note: what comes is summed up in the background like all else, by the model of "
    "`model.summary`: its provider, if it has one, is sent the turns and paid.\n"
    "`ragmem config set memory.summaries.enabled false` leaves that out.\n"
)
Source = Annotated[
    Path | None, argument("PATH", "A folder or a file; else where the agent keeps its sessions.")
]
OnlyCwd = Annotated[Path | None, option("--cwd", "Only sessions of this folder.", "DIR")]
DryRun = Annotated[bool, option("--dry-run", "Show what would come; store nothing.")]


@command(app, home, "claude-code")
async def claude_code(
    own: Administration,
    path: Source = None,
    cwd: OnlyCwd = None,
    dry_run: DryRun = False,
    output: Format = "table",
) -> None:
    """Import sessions of Claude Code, from ~/.claude/projects.

    What is here already stays; run it again to get what was said since.
    """
    await _import(own, "claude-code", path, cwd, dry_run=dry_run, output=output)


@command(app, home)
async def codex(
    own: Administration,
    path: Source = None,
    cwd: OnlyCwd = None,
    dry_run: DryRun = False,
    output: Format = "table",
) -> None:
    """Import sessions of Codex, from ~/.codex/sessions.

    What is here already stays; run it again to get what was said since.
    """
    await _import(own, "codex", path, cwd, dry_run=dry_run, output=output)


async def _import(
    own: Administration,
    name: AgentName,
    path: Path | None,
    cwd: Path | None,
    *,
    dry_run: bool,
    output: str,
) -> None:
    report = await _taken(
        own, AGENTS[name], (path or _default(name)).expanduser(), cwd, dry_run=dry_run
    )
    print_one(output, lambda: report, lambda width: report_text(report, AGENTS[name].label, width))
    if report["turns_added"] and own.config.memory.summaries.enabled:
        say(_OF_SUMMARIES)


def _default(name: AgentName) -> Path:
    """Where the agent keeps its sessions, unless its own variable says otherwise."""
    given = environment()
    if name == "codex":
        return Path(given.get("CODEX_HOME") or "~/.codex") / "sessions"
    return Path(given.get("CLAUDE_CONFIG_DIR") or "~/.claude") / "projects"


async def _taken(
    own: Administration, agent: AgentFiles, path: Path, cwd: Path | None, *, dry_run: bool
) -> Document:
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
    tally, outcomes, skipped = search.tally, dict[Path, Outcome](), search.skipped
    titles = await asyncio.to_thread(titles_beside, agent, path, search.files)
    line, live = PassingLine(), sys.stderr.isatty()
    # To look only, no store is made.
    none = dry_run and own.kind == "sqlite" and not own.paths.database.exists()
    async with AsyncExitStack() as stack:
        store = None if none else await stack.enter_async_context(own.archive())
        importer = Importer(
            store,
            Rules(_Places(await store.projects() if store else [], now).place, redacted),
            now=now,
            titles=titles,
            only_cwd=_folder(cwd) if cwd else None,
            dry_run=dry_run,
        )
        try:
            for number, found in enumerate(search.files, 1):
                if live:
                    name = f"{found.file.parent.name}/{found.file.name}"
                    line.show(f"{number:,} of {len(search.files):,}: {name}")
                of_file = Tally()
                outcome = await importer.take(agent, found, of_file)
                outcomes[found.file] = outcome
                if outcome.state != "other_folder":
                    tally.add(of_file)
        except BaseException:
            line.clear()
            say("Stopped. What has come so far stays; run it again to go on.\n")
            raise
    line.clear()
    skipped += [(str(f), each.reason) for f, each in outcomes.items() if each.reason]
    taken = [(file, each) for file, each in outcomes.items() if each.session_id]
    sums = ("turns_added", "turns_changed", "tool_calls_added")
    return {
        "agent": agent.name,
        "path": str(path),
        "dry_run": dry_run,
        "file_count": len(outcomes),
        "sessions": [document(_SESSION, each, file=str(file)) for file, each in taken],
        "sessions_by_state": dict(Counter(each.state for each in outcomes.values())),
        **{name: sum(getattr(each, name) for _, each in taken) for name in sums},
        "skipped": [{"path": file, "reason": reason} for file, reason in skipped],
        "left_out": dict(tally.left_out.most_common()),
        "unknown": dict(tally.unknown.most_common()),
        "broken_lines": dict(tally.broken.most_common()),
    }


def _folder(cwd: Path) -> str:
    return folder_name(normalize_cwd(cwd.expanduser()))


class _Places:
    """Folders of other agents' sessions, each with its project."""

    def __init__(self, known: list[Project], now: datetime) -> None:
        self._known = list(known)
        self._now = now
        self._new: set[str] = set()

    def place(self, folder: str) -> ForeignFolder:
        """Where a session belongs; a folder that is gone is as good as one that is there."""
        folder = clean(folder)
        if not os.path.isabs(folder):
            # Of another system: its name is all that is known of it.
            project = project_of_folder(Path(folder), self._known, now=self._now)
            return ForeignFolder(folder, project, self._registrations(project), str)
        cwd = normalize_cwd(folder)
        project = locate(cwd, self._known, now=self._now).project
        top = Path(project.path)
        return ForeignFolder(
            folder_name(cwd),
            project,
            self._registrations(project),
            lambda path: stored_path(path, cwd=cwd, project=top),
        )

    def _registrations(self, project: Project) -> list[RegisterProject]:
        """What makes it known, with whichever of its sessions is stored first."""
        if project not in self._known:
            others = [each for each in self._known if each.project_id != project.project_id]
            self._known = [*others, project]
            self._new.add(project.project_id)
        return registrations(project) if project.project_id in self._new else []


def report_text(report: Document, label: str, width: int = 120) -> str:
    """What came, what was here, what was left out and why: for people."""
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

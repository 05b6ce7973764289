"""Other agents: `ragmem import` takes their sessions over, `install` tells them of this memory.

What was in a file of settings stays as it is. Beside the data stands what each file was before: as
long as nobody else has changed it since, `uninstall` puts that back byte for byte.
"""

import asyncio
import difflib
import hashlib
import json
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from ragmem.administration import Administration
from ragmem.cli import command as cli
from ragmem.cli.command import command, home
from ragmem.cli.output import PassingLine, columns, print_one, say, write
from ragmem.config import environment, find_paths, load_config
from ragmem.errors import EXIT_DONE, ConfigError, UsageError
from ragmem.files import replace_private
from ragmem.ids import short_id
from ragmem.importers import AgentName, FoundFile, Outcome, Tally
from ragmem.importers.importer import AGENTS, AgentFiles, Importer, find_files, titles_beside
from ragmem.listings import Document, document, table
from ragmem.memory.projects import folder_name, normalize_cwd
from ragmem.records import DEFAULT_TITLE
from ragmem.redact import know, redact, secrets_among
from ragmem.text import ago, counted, one_line, visible

importing = cli.commands()

_SHOWN = 20
"""Sessions, and files that were skipped, that are listed for people; JSON has them all."""
_SESSION = "file state session_id title cwd turns_added turns_changed turns_known tool_calls_added"
_OF_SUMMARIES = (
    "note: imported sessions are summarized in the background by `model.summary`. If that is "
    "a provider's model, the turns are sent to it and you pay for the calls.\n"
    "Turn this off with `ragmem config set memory.summaries.enabled false`.\n"
)


class _Wanted(msgspec.Struct, frozen=True):
    """What of an agent's sessions is to come."""

    cwd: Path | None
    since: datetime | None
    dry_run: bool


@command(importing, home)
async def take_over(
    own: Administration,
    agent: Annotated[
        AgentName | None,
        cli.argument("[AGENT]", f"{', '.join(AGENTS)}. Default: all that are found."),
    ] = None,
    path: Annotated[
        Path | None,
        cli.argument(
            "[PATH]", "A file or folder to read. Default: where the agent keeps its sessions."
        ),
    ] = None,
    cwd: Annotated[Path | None, cli.option("--cwd", "Only sessions of this folder.", "DIR")] = None,
    since: Annotated[
        str,
        cli.option(
            "--since", "Only sessions changed since then: an age (7d, 12h) or a date.", "WHEN"
        ),
    ] = "",
    dry_run: Annotated[
        bool, cli.option("--dry-run", "Show what would be imported, without storing anything.")
    ] = False,
    yes: Annotated[
        bool, cli.option("--yes", "Don't ask before importing (when AGENT is left out).")
    ] = False,
    output: cli.Format = "table",
) -> None:
    """Import sessions of other coding agents.

    Without AGENT, lists the agents whose sessions are on this machine and asks before
    importing. Sessions already imported are kept; run it again to add their new turns.
    """
    wanted = _Wanted(cwd, _since(since), dry_run)
    of_summaries = _OF_SUMMARIES if own.config.memory.summaries.enabled else ""
    if agent:
        found = AGENTS[agent]
        reports = [await _taken(own, found, _place(found, path), wanted)]
        print_one(output, lambda: reports[0], lambda width: report_text(reports[0], width))
    else:
        reports = await _all(own, wanted, yes=yes, of_summaries=of_summaries)
        print_one(
            output,
            lambda: {"agents": reports},
            lambda width: "\n".join(report_text(each, width) for each in reports),
        )
    if any(each["turns_added"] for each in reports):
        if agent or yes or dry_run:  # else it was told before the question
            say(of_summaries)
        if not dry_run:
            async with cli.open_app(own.config, own.paths) as opened:
                await opened.leave_background()


async def _all(
    own: Administration, wanted: _Wanted, *, yes: bool, of_summaries: str
) -> list[Document]:
    """Import from all agents that have sessions on this machine, if the person agrees.

    What comes of it later, `of_summaries`, is told before they are asked.
    """
    found = {}
    for agent in AGENTS.values():
        with suppress(OSError):
            search = await asyncio.to_thread(find_files, agent, _place(agent, None))
            if files := [each for each in search.files if _is_wanted(each, wanted)]:
                found[agent] = files
            elif not search.files:  # else its own report tells
                for path, reason in search.skipped[:_SHOWN]:
                    say(f"note: {agent.label}: skipped {visible(path)}: {visible(reason)}\n")
    if not found:
        places = "".join(f"  {_place(agent, None)}\n" for agent in AGENTS.values())
        say(f"No sessions of other agents found. Looked in:\n{places}")
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
        say("The agents' files are only read; sessions already imported are kept as they are.\n")
        say(of_summaries)
        await cli.confirm("Import them?", "Nothing was imported.")
    return [await _taken(own, agent, _place(agent, None), wanted) for agent in found]


def _place(agent: AgentFiles, path: Path | None) -> Path:
    return path.expanduser() if path else agent.folder(environment())


def _since(words: str) -> datetime | None:
    if words and (since := cli.age_or_date(words)) is None:
        raise UsageError(
            f"--since: {one_line(words, 40)!r} is neither an age nor a date.",
            hint="Use, for example, 7d, 12h, 2w or 2026-11-01.",
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
            f"Can't read sessions of {agent.label} at {path}: {str(error.strerror).lower()}.",
            hint=f"To read them from another place: `ragmem import {agent.name} PATH`",
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
            say("Stopped. What was imported so far is kept; run it again to continue.\n")
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
        f"{label}: {counted(states.get('new', 0), 'new session')}, {states.get('grown', 0):,} "
        f"continued, {states.get('unchanged', 0):,} unchanged; "
        f"{counted(report['turns_added'], 'new turn')} with "
        f"{counted(report['tool_calls_added'], 'tool call')}"
        + (f", {report['turns_changed']:,} completed" if report["turns_changed"] else "")
        + "."
    )
    if others := states.get("other_folder", 0):
        lines.append(f"Not imported: {counted(others, 'session')} of other folders.")
    if older := report["older_count"]:
        lines.append(f"Not imported: {counted(older, 'session')} older than --since.")
    if empty := states.get("empty", 0):
        lines.append(f"Skipped {counted(empty, 'file')} without turns.")
    for heading, key in (
        ("Left out", "left_out"),
        ("Left out, unknown record types", "unknown"),
        ("Unreadable lines", "broken_lines"),
    ):
        if counts := report[key]:
            lines.append(f"{heading}:")
            lines += [f"  {count:>6,}  {visible(what)}" for what, count in counts.items()]
    for each in report["skipped"][:_SHOWN]:
        lines.append(f"Skipped {visible(each['path'])}: {visible(each['reason'])}")
    if (more := len(report["skipped"]) - _SHOWN) > 0:
        lines.append(f"… and {more:,} more skipped")
    if report["dry_run"]:
        lines.append("Dry run: nothing was stored.")
    return "\n".join(lines) + "\n"


app = cli.commands()
uninstalling = cli.commands()

Client = Literal["claude-code", "codex"]
WhichClient = Annotated[Client, cli.argument("claude-code|codex", "The agent.")]
Change = Callable[[Any, bool], None]
"""Adds what is ours to a document, or takes it away; ConfigError where there is no place for it."""

_NAME = "ragmem"
_HOOKS = {"UserPromptSubmit": "prompt", "SessionEnd": "session-end"}
"""Of Claude Code, by what `ragmem hook` calls them."""
_HOOK_S = 10
_DIFF_LINES = 2
_TABLES = re.compile(r"(?m)^(?=[ \t]*\[)")
"""Parts a text of TOML where a table begins; a list within a list may look like one."""


class _Kept(msgspec.Struct, frozen=True):
    """A file as it was, and what was written."""

    path: str
    before: bytes | None
    """None where there was none."""
    written: str
    """SHA-256 of what was written."""


class _Edit(msgspec.Struct, frozen=True):
    """A file that is to change."""

    file: Path
    before: bytes | None
    after: bytes | None
    """None where it is to go."""
    restores: bytes | None
    """What `uninstall` is to put back."""


@app.command()
def install(
    client: WhichClient,
    no_hooks: Annotated[
        bool, cli.option("--no-hooks", "Claude Code only: register the tools, but no hooks.")
    ] = False,
    yes: cli.Yes = False,
) -> None:
    """Give another agent this memory, by changing its settings.

    It gets the tools of `ragmem mcp`. Claude Code also gets hooks: relevant memory is added
    to each prompt, and each session is imported when it ends. The changes are shown before
    anything is written; `ragmem uninstall` reverts them.
    """
    from ragmem.cli.mcp import check_installed

    check_installed("mcp", "other agents")
    kept = {each.path: each for each in _read_kept(client)}
    edits = []
    for file, change in _changes(client, hooks=not no_hooks):
        before = _read(file)
        after = _changed(file, before, change, adds=True)
        old = kept.get(str(file))
        if old and _mark(before) == old.written:
            restores = old.before
        else:
            restores = before and _changed(file, before, change, adds=False)
        if after != before:
            edits.append(_Edit(file, before, after, restores))
    if not edits:
        write(f"{client} already uses this memory.\n")
        return
    _ask(edits, yes=yes)
    for edit in edits:
        written = _Kept(str(edit.file), edit.restores, _mark(edit.after))
        kept[written.path] = written
    _keep(client, list(kept.values()))
    _write(edits)
    write(f"{client} uses this memory from its next start.\n")


@uninstalling.command()
def uninstall(client: WhichClient, yes: cli.Yes = False) -> None:
    """Revert what `install` changed in another agent's settings.

    Nothing is deleted from the memory.
    """
    kept = {each.path: each for each in _read_kept(client)}
    edits = []
    for file, change in _changes(client, hooks=True):
        before = _read(file)
        if before is None:
            continue
        old = kept.get(str(file))
        if old and _mark(before) == old.written:
            after = old.before
        else:
            after = _changed(file, before, change, adds=False)
        if after != before:
            edits.append(_Edit(file, before, after, None))
    if not edits:
        write(f"{client} does not use this memory; nothing to revert.\n")
    else:
        _ask(edits, yes=yes)
        _write(edits)
        write(f"{client} no longer uses this memory.\n")
    _keep(client, [])


# --- what is changed ------------------------------------------------------------


def _changes(client: Client, *, hooks: bool) -> list[tuple[Path, Change]]:
    """Each file, with what changes it."""
    given = environment()
    home = Path.home()
    if client == "codex":
        folder = Path(given.get("CODEX_HOME") or home / ".codex")
        return [(folder / "config.toml", partial(_server, "mcp_servers", _entry()))]
    own = given.get("CLAUDE_CONFIG_DIR")
    folder = Path(own) if own else home / ".claude"
    server = partial(_server, "mcpServers", {"type": "stdio", **_entry()})
    changes: list[tuple[Path, Change]] = [(Path(own or home) / ".claude.json", server)]
    return [*changes, (folder / "settings.json", _hooks)] if hooks else changes


def _command() -> list[str]:
    """What starts this ragmem, from any folder."""
    script = Path(sys.executable).with_name("ragmem")
    if os.access(script, os.X_OK):
        return [str(script)]
    return [sys.executable, "-P", "-m", "ragmem"]


def _entry() -> dict[str, Any]:
    command, *more = _command()
    entry: dict[str, Any] = {"command": command, "args": [*more, "mcp"]}
    if own := environment().get("RAGMEM_HOME"):  # few variables reach a server
        entry["env"] = {"RAGMEM_HOME": os.path.abspath(own)}
    return entry


def _server(part: str, entry: dict[str, Any], document: Any, adds: bool) -> None:
    """The entry of our server, among the others."""
    _put_into(document, part, {_NAME: entry if adds else None})


def _hooks(document: Any, adds: bool) -> None:
    """The groups with our hooks, behind the others of the same events."""
    home = environment().get("RAGMEM_HOME")
    variable = f"RAGMEM_HOME={shlex.quote(os.path.abspath(home))} " if home else ""
    there = document.get("hooks") or {}
    groups: dict[str, Any] = {}
    for event, name in _HOOKS.items():
        command = variable + shlex.join([*_command(), "hook", name])
        ours = {"hooks": [{"type": "command", "command": command, "timeout": _HOOK_S}]}
        held = there.get(event, []) if isinstance(there, dict) else []
        others = [each for each in held if not _is_ours(each, name)]
        if adds:
            groups[event] = held if ours in held else [*others, ours]
        else:
            groups[event] = others if others != held else held
    _put_into(document, "hooks", groups)


def _put_into(document: Any, name: str, values: dict[str, Any]) -> None:
    """Set these of a part, or take away those that are empty, and the part with its last one."""
    there = document.get(name, {})
    if not isinstance(there, dict):
        raise ConfigError(
            f"`{name}` is not {'an object' if type(document) is dict else 'a table'}."
        )
    for key, value in values.items():
        if value:
            if name not in document:
                document[name] = _empty_part(document)
            if document[name].get(key) != value:
                document[name][key] = value
        elif key in document.get(name, {}):
            del document[name][key]
            if not document[name]:
                del document[name]


def _is_ours(group: Any, name: str) -> bool:
    """Whether a group holds our hook alone, as it was written."""
    match group:
        case {"hooks": [{"command": str(command)}]}:
            return "ragmem" in command and command.endswith(f" hook {name}")
    return False


def _json(text: str) -> Any:
    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"Not valid JSON: {error}.") from None
    if not isinstance(document, dict):
        raise ConfigError("Not a JSON object.")
    return document


def _json_text(document: Any, like: str) -> str:
    """Indented as the text was, with its line end."""
    second = next((line for line in like.splitlines()[1:] if line.strip()), "  ")
    margin = second[: len(second) - len(second.lstrip())] or "  "
    end = "\n" if not like or like.endswith("\n") else ""
    return json.dumps(document, indent=margin, ensure_ascii=False) + end


def _toml(text: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(f"{text}\n" if text and not text.endswith("\n") else text)
    except TOMLKitError as error:
        raise ConfigError(f"Not valid TOML: {error}.") from None


def _toml_text(document: Any, like: str) -> str:
    """As TOML; comments behind a table that is taken away stay where they stood."""
    import tomlkit

    text = tomlkit.dumps(document)
    there = {_header(part) for part in _TABLES.split(text)}
    parts = _TABLES.split(like)
    if all(_header(part) in there for part in parts):
        return text
    kept = "".join(part if _header(part) in there else _comments_behind(part) for part in parts)
    try:
        return kept if _toml(kept) == document else text
    except ConfigError:  # a line that only looked like a header
        return text


def _header(part: str) -> str:
    return part.partition("\n")[0].strip()


def _comments_behind(table: str) -> str:
    """What stands behind the last of a table's keys, if there are comments."""
    lines = table.splitlines(keepends=True)
    end = max(n for n, line in enumerate(lines) if not line.lstrip().startswith(("#", "\n")))
    behind = "".join(lines[end + 1 :])
    return behind if behind.strip() else ""


def _empty_part(document: Any) -> Any:
    if type(document) is dict:
        return {}
    import tomlkit

    return tomlkit.table(is_super_table=True)


# --- files ----------------------------------------------------------------------


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"Can't read {file}: {error.strerror}.") from None


def _changed(file: Path, data: bytes | None, change: Change, *, adds: bool) -> bytes:
    """The file's content after a change, as it was where that is none; ConfigError names it."""
    read, spell = (_toml, _toml_text) if file.suffix == ".toml" else (_json, _json_text)
    try:
        text = (data or b"").decode()
        document = read(text)
        change(document, adds)
        return (data or b"") if document == read(text) else spell(document, text).encode()
    except (ConfigError, UnicodeError) as error:
        raise ConfigError(
            f"{file} was not changed. {error}",
            hint=("Fix the file, or move it away, and try again."),
        ) from None


def _mark(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()


def _ask(edits: list[_Edit], *, yes: bool) -> None:
    """Show what is to change; go on if a person says so."""
    paths = find_paths()
    know(secrets_among(environment()) | load_config(paths.config_file).passwords())
    write("".join(map(_diff, edits)))
    if not yes:

        async def ask(_: cli.Interruption) -> int:
            await cli.confirm("Write these changes?", "Nothing was changed.")
            return EXIT_DONE

        if code := cli.run_async(ask):
            raise typer.Exit(code)


def _write(edits: list[_Edit]) -> None:
    for edit in edits:
        if _read(edit.file) != edit.before:
            raise UsageError(
                f"{edit.file} changed in the meantime; it was not written.",
                hint="Run the command again.",
            )
        _put(edit.file.resolve(), edit.after)


def _diff(edit: _Edit) -> str:
    before, after = ((each or b"").decode().splitlines() for each in (edit.before, edit.after))
    lines = difflib.unified_diff(
        before, after, str(edit.file), str(edit.file), n=_DIFF_LINES, lineterm=""
    )
    return "".join(f"{visible(redact(line))}\n" for line in lines)


def _put(file: Path, data: bytes | None) -> None:
    """Replace it whole or not at all, for the same readers; None takes it away."""
    try:
        if data is None:
            file.unlink()
            return
        mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_private(file, data, sync=True)
        file.chmod(mode)
    except OSError as error:
        raise ConfigError(f"Can't write {file}: {error.strerror}.") from None


def _record(client: Client) -> Path:
    return find_paths().make().data_dir / f"installed-{client}.json"


def _read_kept(client: Client) -> list[_Kept]:
    data = _read(_record(client))
    try:
        return msgspec.json.decode(data, type=list[_Kept]) if data else []
    except msgspec.MsgspecError:
        return []


def _keep(client: Client, kept: list[_Kept]) -> None:
    file = _record(client)
    if kept or file.exists():
        _put(file, msgspec.json.encode(kept) if kept else None)

"""`ragmem import`, `install` and `uninstall`: import other agents' sessions, give them this memory.

`install` leaves the rest of a settings file as it is, and keeps a copy of the file in the data
folder: `uninstall` restores that byte for byte unless the file was changed in the meantime.
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
from ragmem.errors import EXIT_DONE, ConfigError, MemoryOff, UsageError
from ragmem.files import expanded, replace_private
from ragmem.ids import short_id
from ragmem.importers import AgentName, FoundFile, Outcome, Tally
from ragmem.importers.importer import AGENTS, AgentFiles, Importer, find_files, titles_beside
from ragmem.listings import Document, document, table
from ragmem.memory.projects import folder_name, normalize_cwd
from ragmem.records import DEFAULT_TITLE
from ragmem.redact import know, redact, secrets_among
from ragmem.text import ago, counted, one_line, visible

importing = cli.commands()

_MAX_LISTED = 20
"""Maximum number of sessions, and of skipped files, in text output; JSON lists them all."""
_SESSION = "file state session_id title cwd turns_added turns_changed turns_known tool_calls_added"
_SUMMARIES_NOTE = (
    "note: imported sessions are summarized in the background by `model.summary`. If that is "
    "a provider's model, the turns are sent to it and you pay for the calls.\n"
    "Turn this off with `ragmem config set memory.summaries.enabled false`.\n"
)


class _Filter(msgspec.Struct, frozen=True):
    """Which of an agent's sessions to import."""

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
    wanted = _Filter(cwd, _since(since), dry_run)
    if not (dry_run or own.config.memory.enabled):
        raise MemoryOff
    summaries_note = _SUMMARIES_NOTE if own.config.memory.summaries.enabled else ""
    if agent:
        found = AGENTS[agent]
        reports = [await _import_agent(own, found, _sessions_path(found, path), wanted)]
        print_one(output, lambda: reports[0], lambda width: report_text(reports[0], width))
    else:
        reports = await _import_all(own, wanted, yes=yes, summaries_note=summaries_note)
        print_one(
            output,
            lambda: {"agents": reports},
            lambda width: "\n".join(report_text(each, width) for each in reports),
        )
    if any(each["turns_added"] for each in reports):
        if agent or yes or dry_run:  # otherwise it was shown before the question
            say(summaries_note)
        if not dry_run:
            async with cli.app_here(own.config, own.paths) as opened:
                await opened.leave_background()


async def _import_all(
    own: Administration, wanted: _Filter, *, yes: bool, summaries_note: str
) -> list[Document]:
    """Import from all agents that have sessions on this machine, if the user agrees.

    `summaries_note`, about the costs of summaries, is shown before the question.
    """
    found = {}
    for agent in AGENTS.values():
        with suppress(OSError):
            search = await asyncio.to_thread(find_files, agent, _sessions_path(agent, None))
            if files := [each for each in search.files if _is_wanted(each, wanted)]:
                found[agent] = files
            elif not search.files:  # otherwise the agent's own report lists them
                for path, reason in search.skipped[:_MAX_LISTED]:
                    say(f"note: {agent.label}: skipped {visible(path)}: {visible(reason)}\n")
    if not found:
        places = "".join(f"  {_sessions_path(agent, None)}\n" for agent in AGENTS.values())
        say(f"No sessions of other agents found. Looked in:\n{places}")
        return []
    now = datetime.now(UTC)
    rows = [
        (
            agent.label,
            f"{len(files):,}",
            ago(files[-1].changed_at, now),
            visible(str(_sessions_path(agent, None))),
        )
        for agent, files in found.items()
    ]
    say(table(("AGENT", "SESSIONS", "LATEST", "FOLDER"), rows, width=columns(120)))
    if not (yes or wanted.dry_run):
        say("The agents' files are only read; sessions already imported are kept as they are.\n")
        say(summaries_note)
        await cli.confirm("Import them?", "Nothing was imported.")
    return [await _import_agent(own, agent, _sessions_path(agent, None), wanted) for agent in found]


def _sessions_path(agent: AgentFiles, path: Path | None) -> Path:
    return expanded(path) if path else agent.folder(environment())


def _since(words: str) -> datetime | None:
    if words and (since := cli.age_or_date(words)) is None:
        raise UsageError(
            f"--since: {one_line(words, 40)!r} is neither an age nor a date.",
            hint="Use, for example, 7d, 12h, 2w or 2026-11-01.",
        )
    return since if words else None


def _is_wanted(found: FoundFile, wanted: _Filter) -> bool:
    return wanted.since is None or found.changed_at >= wanted.since


async def _import_agent(
    own: Administration, agent: AgentFiles, path: Path, wanted: _Filter
) -> Document:
    """Import an agent's wanted files; return the report, with the files that can't be read."""
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
    # A dry run must not create a store.
    lacks_store = wanted.dry_run and own.kind == "sqlite" and not own.paths.database.exists()
    async with AsyncExitStack() as stack:
        store = None if lacks_store else await stack.enter_async_context(own.archive())
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
    return folder_name(normalize_cwd(expanded(cwd)))


def report_text(report: Document, width: int = 120) -> str:
    """Format the report of an import: what was added, known, left out and skipped, and why."""
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
            for each in came[:_MAX_LISTED]
        ]
        lines.append(table(header, rows, width=width).rstrip("\n"))
        if len(came) > _MAX_LISTED:
            lines.append(f"… and {len(came) - _MAX_LISTED:,} more")
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
    for each in report["skipped"][:_MAX_LISTED]:
        lines.append(f"Skipped {visible(each['path'])}: {visible(each['reason'])}")
    if (more := len(report["skipped"]) - _MAX_LISTED) > 0:
        lines.append(f"… and {more:,} more skipped")
    if report["dry_run"]:
        lines.append("Dry run: nothing was stored.")
    return "\n".join(lines) + "\n"


app = cli.commands()
uninstalling = cli.commands()

Client = Literal["claude-code", "codex"]
WhichClient = Annotated[Client, cli.argument("claude-code|codex", "The agent.")]
Change = Callable[[Any, bool], None]
"""Adds ragmem's entries to a parsed file, or removes them; ConfigError if its structure differs."""

_NAME = "ragmem"
_HOOKS = {"UserPromptSubmit": "prompt", "SessionEnd": "session-end"}
"""Claude Code's hook events, with the argument of `ragmem hook` that handles each."""
_HOOK_S = 10
_DIFF_LINES = 2
_TABLE_STARTS = re.compile(r"(?m)^(?=[ \t]*\[)")
"""Splits TOML at the headers of tables; a list within a list may look like a header."""


class _Original(msgspec.Struct, frozen=True):
    """A file's content before `install`, and the hash of what `install` wrote."""

    path: str
    before: bytes | None
    """None if there was no file."""
    written: str
    """SHA-256 of the written content."""


class _FileEdit(msgspec.Struct, frozen=True):
    file: Path
    before: bytes | None
    after: bytes | None
    """None to delete the file."""
    without: bytes | None
    """The content without ragmem's entries, which `uninstall` restores."""


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
    cli.check_installed("mcp", "other agents")
    originals = _load_originals(client)
    edits = _plan_edits(_changes(client, hooks=not no_hooks), originals, adds=True)
    if not edits:
        write(f"{client} already uses this memory.\n")
        return
    _confirm_edits(edits, yes=yes)
    for edit in edits:
        path = str(edit.file)
        originals[path] = _Original(path, edit.without, _sha256(edit.after))
    _save_originals(client, list(originals.values()))
    _write_edits(edits)
    write(f"{client} uses this memory from its next start.\n")


@uninstalling.command()
def uninstall(client: WhichClient, yes: cli.Yes = False) -> None:
    """Revert what `install` changed in another agent's settings.

    Nothing is deleted from the memory.
    """
    edits = _plan_edits(_changes(client, hooks=True), _load_originals(client), adds=False)
    if not edits:
        write(f"{client} does not use this memory; nothing to revert.\n")
    else:
        _confirm_edits(edits, yes=yes)
        _write_edits(edits)
        write(f"{client} no longer uses this memory.\n")
    _save_originals(client, [])


# --- the changes ----------------------------------------------------------------


def _plan_edits(
    changes: "list[tuple[Path, Change]]", originals: "dict[str, _Original]", *, adds: bool
) -> list[_FileEdit]:
    """Return the edits that add or remove ragmem's entries; none for a file that is as wanted."""
    edits = []
    for file, change in changes:
        before, old = _read(file), originals.get(str(file))
        if old and _sha256(before) == old.written:
            without = old.before
        else:
            without = before and _apply_change(file, before, change, adds=False)
        after = _apply_change(file, before, change, adds=True) if adds else without
        if after != before:
            edits.append(_FileEdit(file, before, after, without))
    return edits


def _changes(client: Client, *, hooks: bool) -> list[tuple[Path, Change]]:
    """Return a client's settings files, each with the function that changes it."""
    given = environment()
    home = expanded("~")
    if client == "codex":
        folder = Path(given.get("CODEX_HOME") or home / ".codex")
        return [(folder / "config.toml", partial(_change_server, "mcp_servers", _server_entry()))]
    own = given.get("CLAUDE_CONFIG_DIR")
    folder = Path(own) if own else home / ".claude"
    server = partial(_change_server, "mcpServers", {"type": "stdio", **_server_entry()})
    changes: list[tuple[Path, Change]] = [(Path(own or home) / ".claude.json", server)]
    return [*changes, (folder / "settings.json", _change_hooks)] if hooks else changes


def _command() -> list[str]:
    """Return the command that starts this ragmem from any folder."""
    script = Path(sys.executable).with_name("ragmem")
    if os.access(script, os.X_OK):
        return [str(script)]
    return [sys.executable, "-P", "-m", "ragmem"]


def _server_entry() -> dict[str, Any]:
    command, *more = _command()
    entry: dict[str, Any] = {"command": command, "args": [*more, "mcp"]}
    if own := environment().get("RAGMEM_HOME"):  # clients pass few variables to a server
        entry["env"] = {"RAGMEM_HOME": os.path.abspath(own)}
    return entry


def _change_server(part: str, entry: dict[str, Any], document: Any, adds: bool) -> None:
    """Add or remove the entry of ragmem's MCP server, keeping other servers."""
    _update_section(document, part, {_NAME: entry if adds else None})


def _change_hooks(document: Any, adds: bool) -> None:
    """Add ragmem's hooks after other hooks of the same events, or remove them."""
    home = environment().get("RAGMEM_HOME")
    variable = f"RAGMEM_HOME={shlex.quote(os.path.abspath(home))} " if home else ""
    there = document.get("hooks") or {}
    groups: dict[str, Any] = {}
    for event, name in _HOOKS.items():
        command = variable + shlex.join([*_command(), "hook", name])
        ours = {"hooks": [{"type": "command", "command": command, "timeout": _HOOK_S}]}
        held = there.get(event, []) if isinstance(there, dict) else []
        if not isinstance(held, list):
            raise ConfigError(f"`hooks.{event}` is not a list.")
        others = [each for each in held if not _is_ours(each, name)]
        if adds:
            groups[event] = held if ours in held else [*others, ours]
        else:
            groups[event] = others if others != held else held
    _update_section(document, "hooks", groups)


def _update_section(document: Any, name: str, values: dict[str, Any]) -> None:
    """Set keys of a section; remove those with an empty value, and the section if none is left."""
    there = document.get(name, {})
    if not isinstance(there, dict):
        raise ConfigError(
            f"`{name}` is not {'an object' if type(document) is dict else 'a table'}."
        )
    for key, value in values.items():
        if value:
            if name not in document:
                document[name] = _new_section(document)
            if document[name].get(key) != value:
                document[name][key] = value
        elif key in document.get(name, {}):
            del document[name][key]
            if not document[name]:
                del document[name]


def _is_ours(group: Any, name: str) -> bool:
    """Return whether a group contains only ragmem's hook, as `install` writes it."""
    match group:
        case {"hooks": [{"command": str(command)}]}:
            return "ragmem" in command and command.endswith(f" hook {name}")
    return False


def _parse_json(text: str) -> Any:
    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"Not valid JSON: {error}.") from None
    if not isinstance(document, dict):
        raise ConfigError("Not a JSON object.")
    return document


def _dump_json(document: Any, like: str) -> str:
    """Serialize to JSON with the indentation and the final newline of the text `like`."""
    second = next((line for line in like.splitlines()[1:] if line.strip()), "  ")
    margin = second[: len(second) - len(second.lstrip())] or "  "
    end = "\n" if not like or like.endswith("\n") else ""
    spelled = json.dumps(document, indent=margin, ensure_ascii=False)
    # Half of a character, as agents cut their texts, can only be written as an escape.
    return re.sub(r"[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", spelled) + end


def _parse_toml(text: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(f"{text}\n" if text and not text.endswith("\n") else text)
    except TOMLKitError as error:
        raise ConfigError(f"Not valid TOML: {error}.") from None


def _dump_toml(document: Any, like: str) -> str:
    """Serialize to TOML; comments after a table that is removed from `like` stay in place."""
    import tomlkit

    text = tomlkit.dumps(document)
    there = {_header(part) for part in _TABLE_STARTS.split(text)}
    parts = _TABLE_STARTS.split(like)
    if all(_header(part) in there for part in parts):
        return text
    kept = "".join(part if _header(part) in there else _trailing_comments(part) for part in parts)
    try:
        return kept if _parse_toml(kept) == document else text
    except ConfigError:  # a line that only looked like a header
        return text


def _header(part: str) -> str:
    return part.partition("\n")[0].strip()


def _trailing_comments(table: str) -> str:
    """Return the lines after a table's last key if they contain comments, else an empty text."""
    lines = table.splitlines(keepends=True)
    end = max(n for n, line in enumerate(lines) if not line.lstrip().startswith(("#", "\n")))
    behind = "".join(lines[end + 1 :])
    return behind if behind.strip() else ""


def _new_section(document: Any) -> Any:
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


def _apply_change(file: Path, data: bytes | None, change: Change, *, adds: bool) -> bytes:
    """Return a file's content after a change, byte for byte the same if nothing changed.

    Raises ConfigError, which names the file, if it can't be parsed or changed.
    """
    read, spell = (_parse_toml, _dump_toml) if file.suffix == ".toml" else (_parse_json, _dump_json)
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


def _sha256(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()


def _confirm_edits(edits: list[_FileEdit], *, yes: bool) -> None:
    """Show the changes as diffs and, unless `yes`, exit if the user does not confirm."""
    paths = find_paths()
    know(secrets_among(environment()) | load_config(paths.config_file).passwords())
    write("".join(map(_diff, edits)))
    if not yes:

        async def ask(_: cli.Interruption) -> int:
            await cli.confirm("Write these changes?", "Nothing was changed.")
            return EXIT_DONE

        if code := cli.run_async(ask):
            raise typer.Exit(code)


def _write_edits(edits: list[_FileEdit]) -> None:
    for edit in edits:
        if _read(edit.file) != edit.before:
            raise UsageError(
                f"{edit.file} changed in the meantime; it was not written.",
                hint="Run the command again.",
            )
        _replace_file(edit.file.resolve(), edit.after)


def _diff(edit: _FileEdit) -> str:
    before, after = ((each or b"").decode().splitlines() for each in (edit.before, edit.after))
    lines = difflib.unified_diff(
        before, after, str(edit.file), str(edit.file), n=_DIFF_LINES, lineterm=""
    )
    return "".join(f"{visible(redact(line))}\n" for line in lines)


def _replace_file(file: Path, data: bytes | None) -> None:
    """Replace a file atomically, keeping its permissions; None deletes it."""
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


def _originals_file(client: Client) -> Path:
    return find_paths().make().data_dir / f"installed-{client}.json"


def _load_originals(client: Client) -> dict[str, _Original]:
    """Return what `install` has changed, by path."""
    data = _read(_originals_file(client))
    with suppress(msgspec.MsgspecError):
        return {e.path: e for e in msgspec.json.decode(data or "[]", type=list[_Original])}
    return {}


def _save_originals(client: Client, originals: list[_Original]) -> None:
    file = _originals_file(client)
    if originals or file.exists():
        _replace_file(file, msgspec.json.encode(originals) if originals else None)

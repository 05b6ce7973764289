"""`ragmem install` and `uninstall`: other agents' own settings are told of this memory, or not.

What was in a file stays as it is. Beside the data stands what each file was before: as long as
nobody else has changed it since, `uninstall` puts that back byte for byte.
"""

import difflib
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from ragmem.cli.command import Interruption, confirm, run_async
from ragmem.cli.options import Yes, argument, commands, option
from ragmem.cli.output import say, write
from ragmem.config import environment, find_paths, load_config
from ragmem.errors import EXIT_DONE, ConfigError, UsageError
from ragmem.files import replace_private
from ragmem.redact import know, redact, secrets_among
from ragmem.text import visible

app = commands()
uninstalling = commands()

Client = Literal["claude-code", "codex"]
WhichClient = Annotated[Client, argument("claude-code|codex", "The agent.")]
Change = Callable[[Any, bool], None]
"""Adds what is ours to a document, or takes it away; ConfigError where there is no place for it."""

_NAME = "ragmem"
_HOOKS = {"UserPromptSubmit": "prompt", "SessionEnd": "session-end"}
"""Of Claude Code, by what `ragmem hook` calls them."""
_HOOK_S = 10
_DIFF_LINES = 2


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
        bool, option("--no-hooks", "Of Claude Code: only the tools, no hooks.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Tell another agent of this memory, in its own settings.

    It gets the tools of `ragmem mcp`. Claude Code gets hooks too: what bears on a
    prompt is added to it, and a session that ends is imported. The changes are shown
    before anything is written; `ragmem uninstall` takes them back.
    """
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
        write(f"{client} knows of this memory already.\n")
        return
    _ask(edits, yes=yes)
    for edit in edits:
        written = _Kept(str(edit.file), edit.restores, _mark(edit.after))
        kept[written.path] = written
    _keep(client, list(kept.values()))
    _write(edits)
    write(f"{client} knows of this memory from its next start on.\n")
    from ragmem.cli.mcp import install_command, is_installed

    if not is_installed():
        say(f"note: it needs the package mcp, which is not installed:\n{install_command()}\n")


@uninstalling.command()
def uninstall(client: WhichClient, yes: Yes = False) -> None:
    """Take back what `install` has told another agent.

    The memory itself stays as it is.
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
        write(f"{client} does not know of this memory.\n")
    else:
        _ask(edits, yes=yes)
        _write(edits)
        write(f"{client} does not know of this memory any more.\n")
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
        raise ConfigError(f"Its {name} is no {'object' if type(document) is dict else 'table'}.")
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
        raise ConfigError(f"It is not valid JSON: {error}.") from None
    if not isinstance(document, dict):
        raise ConfigError("It is no JSON object.")
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
        raise ConfigError(f"It is not valid TOML: {error}.") from None


def _toml_text(document: Any, _: str) -> str:
    import tomlkit

    return tomlkit.dumps(document)


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
        raise ConfigError(f"{file} can't be read: {error.strerror}.") from None


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
            f"{file} is left as it is. {error}", hint="Mend it, or move it away, and try again."
        ) from None


def _mark(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()


def _ask(edits: list[_Edit], *, yes: bool) -> None:
    """Show what is to change; go on if a person says so."""
    paths = find_paths()
    know(secrets_among(environment()) | load_config(paths.config_file).passwords())
    write("".join(map(_diff, edits)))
    if not yes:

        async def ask(_: Interruption) -> int:
            await confirm("Write this?", "Nothing was changed.")
            return EXIT_DONE

        if code := run_async(ask):
            raise typer.Exit(code)


def _write(edits: list[_Edit]) -> None:
    for edit in edits:
        if _read(edit.file) != edit.before:
            raise UsageError(
                f"{edit.file} was changed meanwhile; it is left as it is.", hint="Run this again."
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
        raise ConfigError(f"{file} can't be written: {error.strerror}.") from None


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

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
Change = Callable[[str], str]
"""Makes of a file's text what it is to be; ConfigError for a text that it can't read."""

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
    for file, add, remove in _changes(client, hooks=not no_hooks):
        before = _read(file)
        after = _changed(file, before, add)
        old = kept.get(str(file))
        if old and _mark(before) == old.written:
            restores = old.before
        else:
            restores = before and _changed(file, before, remove)
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
    for file, _, remove in _changes(client, hooks=True):
        before = _read(file)
        if before is None:
            continue
        old = kept.get(str(file))
        if old and _mark(before) == old.written:
            after = old.before
        else:
            after = _changed(file, before, remove)
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


def _changes(client: Client, *, hooks: bool) -> list[tuple[Path, Change, Change]]:
    """Each file, with what adds to it and what takes away."""
    given = environment()
    home = Path.home()
    if client == "codex":
        folder = Path(given.get("CODEX_HOME") or home / ".codex")
        return [(folder / "config.toml", _with_table, _without_table)]
    own = given.get("CLAUDE_CONFIG_DIR")
    folder = Path(own) if own else home / ".claude"
    changes: list[tuple[Path, Change, Change]]
    changes = [(Path(own or home) / ".claude.json", _with_server, _without_server)]
    if hooks:
        changes.append((folder / "settings.json", _with_hooks, _without_hooks))
    return changes


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


def _with_server(text: str) -> str:
    document = _json(text)
    _part(document, "mcpServers")[_NAME] = {"type": "stdio", **_entry()}
    return _spelled(document, text)


def _without_server(text: str) -> str:
    document = _json(text)
    if _part(document, "mcpServers").pop(_NAME, None) is None:
        return text
    return _spelled(_without_empty(document, "mcpServers"), text)


def _with_hooks(text: str) -> str:
    wanted = _hooks()
    hooks = _part(_json(text), "hooks")
    if all(group in hooks.get(event, []) for event, group in wanted.items()):
        return text
    document = _json(_without_hooks(text))
    for event, group in wanted.items():
        _part(document, "hooks").setdefault(event, []).append(group)
    return _spelled(document, text)


def _hooks() -> dict[str, Any]:
    home = environment().get("RAGMEM_HOME")
    variable = f"RAGMEM_HOME={shlex.quote(os.path.abspath(home))} " if home else ""
    commands = {e: variable + shlex.join([*_command(), "hook", n]) for e, n in _HOOKS.items()}
    return {
        event: {"hooks": [{"type": "command", "command": command, "timeout": _HOOK_S}]}
        for event, command in commands.items()
    }


def _without_hooks(text: str) -> str:
    document = _json(text)
    hooks = _part(document, "hooks")
    before = json.dumps(hooks)
    for event, name in _HOOKS.items():
        hooks[event] = [each for each in hooks.get(event, []) if not _is_ours(each, name)]
        _without_empty(hooks, event)
    return (
        text if json.dumps(hooks) == before else _spelled(_without_empty(document, "hooks"), text)
    )


def _is_ours(group: Any, name: str) -> bool:
    """Whether a group holds our hook alone, as it was written."""
    match group:
        case {"hooks": [{"command": str(command)}]}:
            return "ragmem" in command and command.endswith(f" hook {name}")
    return False


def _json(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"It is not valid JSON: {error}.") from None
    if not isinstance(document, dict):
        raise ConfigError("It is no JSON object.")
    return document


def _part(document: dict[str, Any], name: str) -> dict[str, Any]:
    part = document.setdefault(name, {})
    if not isinstance(part, dict):
        raise ConfigError(f"Its {name} is no object.")
    return part


def _without_empty(document: dict[str, Any], name: str) -> dict[str, Any]:
    if not document.get(name):
        document.pop(name, None)
    return document


def _spelled(document: dict[str, Any], like: str) -> str:
    """As JSON, indented as the text was, with its line end."""
    second = next((line for line in like.splitlines()[1:] if line.strip()), "  ")
    margin = second[: len(second) - len(second.lstrip())] or "  "
    end = "\n" if not like or like.endswith("\n") else ""
    return json.dumps(document, indent=margin, ensure_ascii=False) + end


def _with_table(text: str) -> str:
    import tomlkit

    document = _toml(text)
    if "mcp_servers" not in document:
        document["mcp_servers"] = tomlkit.table(is_super_table=True)
    servers: Any = document["mcp_servers"]
    if servers.get(_NAME) == _entry():
        return text
    if text and not text.endswith("\n"):
        document.add(tomlkit.nl())
    table = tomlkit.table()
    for name, value in _entry().items():
        table[name] = value
    servers[_NAME] = table
    return tomlkit.dumps(document)


def _without_table(text: str) -> str:
    import tomlkit

    document = _toml(text)
    servers: Any = document.get("mcp_servers")
    if servers is None or _NAME not in servers:
        return text
    del servers[_NAME]
    if not servers:
        del document["mcp_servers"]
    return tomlkit.dumps(document)


def _toml(text: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise ConfigError(f"It is not valid TOML: {error}.") from None
    if not isinstance(document.get("mcp_servers", {}), dict):
        raise ConfigError("Its mcp_servers is no table.")
    return document


# --- files ----------------------------------------------------------------------


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}.") from None


def _changed(file: Path, data: bytes | None, change: Change) -> bytes:
    """The file's content after a change; ConfigError that names the file."""
    try:
        return change((data or b"").decode()).encode()
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

"""`ragmem doctor`: check the setup, with advice for each problem."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec
import typer

from ragmem.administration import Administration
from ragmem.app import App
from ragmem.background import is_at_work
from ragmem.children import find_ripgrep
from ragmem.cli import command as cli
from ragmem.cli.files import summed_up
from ragmem.cli.output import Paint, columns, paint_for, write
from ragmem.config import Config, Paths, environment, find_paths, load_config
from ragmem.errors import EXIT_DONE, EXIT_FAILED, RagmemError
from ragmem.libraries import install_command, pip_install
from ragmem.listings import waiting_text
from ragmem.llm.local import find_weights
from ragmem.llm.models import LOCAL_KEY, ModelChoice, choose_model, find_local_model
from ragmem.llm.providers import PROVIDERS
from ragmem.memory.summaries.summarizer import TRIES, away_text, given_up_text
from ragmem.redact import know, redact, secrets_among
from ragmem.text import counted, hanging, visible
from ragmem.tools.sandbox import Sandbox

app = cli.commands()

_NAME_WIDTH = 11
Health = Literal["ok", "note", "broken"]
_STYLES: dict[Health, str] = {"ok": "green", "note": "bold yellow", "broken": "bold red"}


class Check(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    health: Health
    detail: str
    advice: str = ""
    """What to do about it; may be several lines."""


@app.command()
def doctor() -> None:
    """Check ragmem's setup; exit 1 if something is broken."""

    async def main(_: cli.Interruption) -> int:
        broken = False
        paint = paint_for(_settings(find_paths().config_file).ui)
        width = columns(80) if sys.stdout.isatty() else None
        async for check in examine():
            write(check_text(check, width, paint))
            broken |= check.health == "broken"
        return EXIT_FAILED if broken else EXIT_DONE

    raise typer.Exit(cli.run_async(main))


def _settings(file: Path) -> Config:
    """Load the settings; if that fails, which the config check reports, the default ones."""
    try:
        return load_config(file)
    except RagmemError:
        return Config()


async def examine() -> AsyncIterator[Check]:
    """Run the checks one by one, and yield each result."""
    paths, environ, cwd = find_paths(), environment(), cli.current_folder()
    know(secrets_among(environ))
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", "ok", f"{version} at {sys.executable}")
    folders = check_folders(paths)
    yield folders
    try:
        config = load_config(paths.config_file)
    except RagmemError as error:
        config = _settings(Path(os.devnull))  # the defaults, with environment variables
        said = (
            "Other commands fail with this error; the checks below use the default settings "
            "instead."
        )
        yield Check("config", "broken", str(error), f"{error.hint}\n{said}".strip())
    else:
        know(config.passwords())
        yield check_config_file(paths)
    name, is_reported = "store", False
    try:
        async with App(config, paths, cwd=cwd) as app:
            yield await check_store(app)
            name = "background"
            for check in await check_background(app):
                yield check
            name = "code"
            yield await check_index(app)
            name = "store"
    except RagmemError as error:
        failed = failing(name, error)
        if failed.detail != folders.detail:
            is_reported = True
            yield failed
    neo4j = await check_neo4j(Administration(config, paths))
    # The store's check has already reported a server that is down.
    if not is_reported or neo4j.health != "broken":
        yield neo4j
    choice: ModelChoice | None = None
    try:
        choice = choose_model(config, environ)
    except RagmemError as error:
        yield failing("model", error)
    else:
        yield Check("model", "ok", f"{choice.name} ({choice.why})")
    yield check_keys(choice, environ)
    yield check_local_model(environ, needed=choice is None)
    yield check_ripgrep(find_ripgrep((cwd,)))
    yield check_sandbox(config, cwd)


def check_text(check: Check, width: int | None, paint: Paint) -> str:
    """Format a check, wrapped to `width` if given, with its advice indented below."""
    head = f"{check.health:<6} {check.name:<{_NAME_WIDTH}} "
    lines = hanging(head, visible(check.detail), width)
    # Advice contains commands to copy, which must not be wrapped.
    lines += [f"{' ' * len(head)}{line}" for line in visible(check.advice).splitlines()]
    text = redact("\n".join(lines)) + "\n"
    style, rest = _STYLES[check.health], text.removeprefix(check.health)
    return paint((check.health, style), (rest, "bold" if check.health == "broken" else ""))


# --- the checks ---------------------------------------------------------------


def failing(name: str, error: RagmemError) -> Check:
    """Return the result of a check that raised an error."""
    return Check(name, "broken", str(error), error.hint)


def check_folders(paths: Paths) -> Check:
    """Check that ragmem's folders exist, are private and writable, and that the disk has space."""
    folders = dict.fromkeys((paths.config_dir, paths.data_dir, paths.log_dir))
    try:
        paths.make()
    except RagmemError as error:
        return failing("folders", error)
    for folder in folders:
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            advice = "Make it writable, or set RAGMEM_HOME to a folder that is."
            return Check("folders", "broken", f"Can't write to {folder}.", advice)
        disk = os.statvfs(folder)
        if disk.f_blocks and not disk.f_bavail:
            told = f"The file system of {folder} is full; nothing more can be stored."
            return Check(
                "folders", "broken", told, "Free some space; everything stored so far is safe."
            )
    if loose := paths.close_to_others():
        return Check("folders", "note", loose)
    shown = ", ".join(map(str, folders))
    return Check("folders", "ok", f"{shown} (0700)")


def check_config_file(paths: Paths) -> Check:
    """Check that the settings file, which the caller has read, is private."""
    file = paths.config_file
    try:
        mode = file.stat().st_mode & 0o777
    except OSError:
        detail = f"defaults; {file} does not exist (`ragmem config init` creates it)"
        return Check("config", "ok", detail)
    if mode & 0o077:
        detail = f"{file} is readable by others ({mode:04o})."
        return Check("config", "note", detail, f"chmod 600 {file}")
    return Check("config", "ok", str(file))


async def check_store(app: App) -> Check:
    """Check that the store opens; report its contents, and writes that wait or were set aside."""
    spools, found = app.paths.spool_dir, await (await app.store()).info()
    counts = ", ".join(
        counted(found.counts.get(f"{name}s", 0), name) for name in ("session", "turn")
    )
    detail = f"{found.kind} {found.version} at {found.location}: {counts}"
    waiting = found.counts.get("waiting_writes", 0)
    if others := Administration(app.config, app.paths).waiting_writes() - waiting:
        detail += f"; {counted(others, 'write', 'wait')} in {spools} for other databases"
    if waiting:
        detail += f"; {counted(waiting, 'write', 'wait')} in {spools}"
        advice = "A running process stores its own waiting writes; any that remain were rejected."
        return Check("store", "note", detail, advice)
    if aside := found.counts.get("set_aside"):
        detail += f"; {counted(aside, 'write')} that could not be stored: damaged or too large"
        advice = f"Kept in {spools}, in `set-aside`; delete what you don't need."
        return Check("store", "note", detail, advice)
    return Check("store", "ok", detail)


async def check_background(app: App) -> list[Check]:
    """Check the embedder and its vectors, and the pending and failed background work."""
    worker, store = app.config.memory.worker, await app.store()
    pending, mark = await store.count_pending(), await store.embedder()
    given_up = await store.attempts(least=TRIES)
    waiting = waiting_text(pending)
    detail = f"memory.worker = {worker}; pending: {waiting or 'nothing'}"
    if is_at_work(app.paths):
        detail += "; a process is working on it"
    advice = ["ragmem config set memory.worker detached"] if worker == "off" and waiting else []
    away = app.usage.away()
    for model in away.values():
        detail += f". {away_text(model)} ({model.failures:,} failed calls in a row)"
    if given_up:
        detail += f". {given_up_text(given_up)}"
    if away or given_up:
        advice += [
            "Set model.summary to a model that works, or fix the problem above, then run",
            "ragmem sessions summarize SESSION to retry a session right away.",
        ]
    embedder = Check("embedder", "ok", "off: search matches words only")
    if changed := await app.background.vectors_notice():
        embedder = Check("embedder", "note", changed)
    elif model_id := app.background.embedder_model:
        own = "embeddings are up to date" if mark else "no embeddings yet"
        if mark and pending.get("vectors"):
            own = "some embeddings are still missing"
        embedder = Check("embedder", "ok", f"{model_id}; {own}")
    return [embedder, Check("background", "note" if advice else "ok", detail, "\n".join(advice))]


async def check_index(app: App) -> Check:
    """Report whether this folder's code is indexed, and how much of it."""
    code = await app.code()
    if code is None:
        return Check("code", "ok", "turned off (code.enabled)")
    nothing = "this project is not indexed yet; `ragmem index` or a chat here indexes it"
    told = code.refusal or summed_up(await code.status(), datetime.now(UTC)) or nothing
    return Check("code", "ok", told)


async def check_neo4j(own: Administration) -> Check:
    """Check the Neo4j server; it is only a problem if Neo4j is the configured store."""
    found = await own.neo4j.status()
    if found.running:
        return Check("neo4j", "ok", found.detail)
    if own.kind == "neo4j":
        return Check("neo4j", "broken", found.detail, advice="ragmem neo4j up")
    return Check("neo4j", "ok", f"not in use. {found.detail}")


def check_keys(choice: ModelChoice | None, environ: Mapping[str, str]) -> Check:
    """Report the names of the API key in use and of other keys that are set, never their values."""
    used, model = (choice.key_variable, choice.name) if choice else ("", "")
    variables = [LOCAL_KEY, *(name for each in PROVIDERS for name in each.key_variables)]
    others = [name for name in dict.fromkeys(variables) if name != used]
    present = [name for name in others if environ.get(name)]
    missing = [name for name in others if not environ.get(name)]
    told = [f"also set: {', '.join(present)}"] if present and used else []
    told += [f"present: {', '.join(present) or 'none'}"] if not used else []
    if used:
        needs = "no key is sent" if used == LOCAL_KEY else f"{model} needs it"
        is_set = environ.get(used)
        told.insert(0, f"{used} is used for {model}" if is_set else f"{used} is not set; {needs}")
    elif model:
        told.insert(0, f"{model} needs no key")
    return Check("keys", "ok", "; ".join([*told, f"not set: {', '.join(missing)}"]))


def check_ripgrep(program: Path | None) -> Check:
    """Check that ripgrep runs."""
    advice = f"{pip_install()} ripgrep"
    if program is None:
        return Check("ripgrep", "broken", "not found", advice=advice)
    asked, none = [str(program), "--no-config", "--version"], subprocess.DEVNULL
    try:
        done = subprocess.run(
            asked, capture_output=True, text=True, timeout=10, check=True, stdin=none
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Check("ripgrep", "broken", f"Can't run {program}: {error}", advice=advice)
    return Check("ripgrep", "ok", f"{done.stdout.split()[1]} at {program}")


def check_sandbox(config: Config, cwd: Path) -> Check:
    """Check the sandbox in which the agent's commands run."""
    sandbox = Sandbox(config.sandbox, not_in=(cwd,))
    advice = "Install bubblewrap, and let it use user namespaces if the system forbids them."
    if sandbox.settings.mode == "off" or sandbox.mechanism.kind in ("bubblewrap", "sandbox-exec"):
        if sandbox.is_on and sandbox.absent:
            advice = "Create the folder, or remove it from sandbox.write."
            return Check("sandbox", "note", sandbox.describe(), advice)
        return Check("sandbox", "ok", sandbox.describe())
    broken = not sandbox.is_on and sandbox.settings.mode == "required"
    return Check("sandbox", "broken" if broken else "note", sandbox.describe(), advice)


def check_local_model(environ: Mapping[str, str], *, needed: bool) -> Check:
    """Check the small local model; only a note, because the model's check reports if none works."""
    file = find_local_model(environ)
    if file is not None:
        return Check("local model", "ok", str(file))
    detail = "not installed" + ("" if needed else " (not needed: another model is available)")
    runs = find_spec("xllamacpp") is not None
    if runs:
        detail += ": its runtime is installed, its weights are not"
    advice = [] if runs else [install_command("local")]
    if find_weights(find_paths(environ)) is None:
        advice.append("ragmem models fetch")
    return Check("local model", "note", detail, "\n".join(advice))

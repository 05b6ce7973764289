"""The parts that commands share: options, opening the App, the event loop, choosing a session."""

import asyncio
import inspect
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar

import msgspec
import typer

from ragmem.cli.output import is_interactive, say
from ragmem.config import (
    Config,
    Effort as EffortLevel,
    Paths,
    PermissionMode,
    WhenColored,
    choices,
    environment,
    find_paths,
    keys,
    load_config,
)
from ragmem.errors import (
    EXIT_DONE,
    EXIT_SIGINT,
    EXIT_SIGTERM,
    AmbiguousSession,
    ConfigError,
    NoWeights,
    RagmemError,
    SessionNotFound,
    UsageError,
)
from ragmem.files import expanded
from ragmem.ids import short_id
from ragmem.redact import know
from ragmem.text import one_line, visible

if TYPE_CHECKING:
    from ragmem.administration import Administration
    from ragmem.app import App
    from ragmem.records import Claims, Session


def commands(about: str = "", *, answers: bool = False) -> typer.Typer:
    """Create a Typer app for one command, or for a group with `about` as its help.

    A group called without a subcommand shows its help or, if `answers`, runs its callback.
    """
    alone = "invoke_without_command" if answers else "no_args_is_help"
    more: dict[str, Any] = {"help": about, alone: True} if about else {}
    return typer.Typer(rich_markup_mode=None, add_completion=False, **more)


def option(
    flags: str,
    about: str,
    value: str | None = None,
    *,
    least: int | None = None,
    most: int | None = None,
    offered: "Offering | None" = None,
) -> Any:
    """Declare an option by its flags, such as `-m --model`, and the metavar of its value.

    `offered` completes a partly typed value.
    """
    return typer.Option(
        *flags.split(), help=about, metavar=value, min=least, max=most, autocompletion=offered
    )


def argument(value: str, about: str, offered: "Offering | None" = None) -> Any:
    """Declare an argument by its metavar; `offered` completes a partly typed value."""
    return typer.Argument(metavar=value, help=about, show_default=False, autocompletion=offered)


Offer = tuple[str, str]
"""A completion and its description."""
Offering = Callable[..., list[Offer]]
"""Returns completions of the typed text, `incomplete`; may also take Typer's context."""

_COMPLETION_TIMEOUT_S = 2.0
_LIMIT = 50
_DESCRIPTION_CHARS = 60
_SINGLE_WORD = re.compile(r"\w[\w.,@+-]*")


def memory_ids(incomplete: str) -> list[Offer]:
    """Complete the ids of memories of this project and of the user, newest first."""

    async def ask(opened: "App") -> list[Offer]:
        from ragmem.memory.memories import here
        from ragmem.records import MemoryQuery

        store = await opened.store()
        project_id = (await here(store, opened.cwd)).project.root_id
        found = await store.memories(MemoryQuery(project_ids=(project_id,)))
        return [(memory.memory_id, memory.content) for memory in found]

    return _matching(ask, incomplete)


def session_ids(incomplete: str) -> list[Offer]:
    """Complete the ids of this folder's sessions, newest first, then the names of sessions."""
    found: list[Session] = []

    async def ask(opened: "App") -> list[Offer]:
        from ragmem.memory.projects import folder_name
        from ragmem.records import SessionQuery

        query = SessionQuery(cwd=folder_name(opened.cwd), limit=_LIMIT)
        found.extend(await (await opened.store()).sessions(query))
        return [(session.session_id, session.called) for session in found]

    offers = _matching(ask, incomplete)
    names = [(each.title, short_id(each.session_id)) for each in found]
    # Names of several words would need quoting, which differs between shells.
    return offers + [
        (name, tail)
        for name, tail in names
        if _SINGLE_WORD.fullmatch(name) and name.startswith(incomplete)
    ]


def models(incomplete: str) -> list[Offer]:
    """Complete the names of the models that can be used now."""
    from ragmem.llm.models import list_models

    try:
        found = list_models(environment(), load_config(find_paths().config_file))
    except (RagmemError, OSError):
        return []
    return [(each.name, each.why) for each in found if each.name.startswith(incomplete)][:_LIMIT]


def settings_keys(incomplete: str) -> list[Offer]:
    """Complete the names of settings, each described by its default."""
    return [(key, f"{at}") for key, at in keys().items() if key.startswith(incomplete)]


def settings_values(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Complete the value of the setting that precedes it, if it has a fixed set of them."""
    return _values(ctx.params.get("key") or "", incomplete)


def store_kinds(incomplete: str) -> list[Offer]:
    """Complete the kind of a store."""
    return _values("store.kind", incomplete)


def _values(key: str, incomplete: str) -> list[Offer]:
    return [(each, "") for each in choices(key) if each.startswith(incomplete)]


def _matching(ask: "Callable[[App], Awaitable[list[Offer]]]", incomplete: str) -> list[Offer]:
    """Complete short ids as lists show them, or whole ids if one is being typed."""
    try:
        found = asyncio.run(_query_app(ask))
    except (RagmemError, OSError, TimeoutError):
        return []
    typed = incomplete.casefold()
    return [
        (shown, one_line(about, _DESCRIPTION_CHARS))
        for whole, about in found
        if (shown := next((i for i in (short_id(whole), whole) if i.startswith(typed)), ""))
    ][:_LIMIT]


async def _query_app(ask: "Callable[[App], Awaitable[list[Offer]]]") -> list[Offer]:
    paths = find_paths()
    if not paths.data_dir.is_dir():
        return []
    async with asyncio.timeout(_COMPLETION_TIMEOUT_S):
        config = load_config(paths.config_file)
        async with open_app(config, paths, ephemeral=True, show=lambda _: None) as opened:
            return await ask(opened)


Continue = Annotated[bool, option("-c --continue", "Continue the newest session of this folder.")]
OfNewest = Annotated[bool, option("-c --continue", "The newest session of this folder.")]


def _resume(about: str) -> Any:
    return option("-r --resume", about, "[ID]", offered=session_ids)


Resume = Annotated[str | None, _resume("Resume a session, by id, end of an id, or name.")]
OfSession = Annotated[str | None, _resume("A session, by id, end of an id, or name.")]
Fork = Annotated[
    bool, option("--fork-session", "With -c or -r: continue in a copy of the session.")
]
Everyone = Annotated[
    bool,
    option(
        "--everyone", "With -c or -r: also consider other people's sessions in the same database."
    ),
]
Model = Annotated[
    str | None, option("-m --model", "Model, as provider/model.", "MODEL", offered=models)
]
Effort = Annotated[
    EffortLevel | None, option("-e --effort", "How much the model may think before it answers.")
]
Mode = Annotated[
    PermissionMode | None,
    option(
        "--permission-mode",
        "default: ask before edits and commands. acceptEdits: ask before commands. plan: only "
        "read. bypassPermissions: never ask.",
    ),
]
Yolo = Annotated[bool, option("--yolo", "Same as --permission-mode bypassPermissions.")]
AddDir = Annotated[
    list[Path] | None, option("--add-dir", "Another folder that tools may use. Repeatable.", "DIR")
]
Allow = Annotated[
    list[str] | None,
    option(
        "--allow",
        "Allow a tool without asking, or tool(pattern): run_command(git status*). Repeatable.",
        "RULE",
    ),
]
Ephemeral = Annotated[bool, option("--ephemeral", "Store neither the session nor memories.")]
ColorOption = Annotated[
    WhenColored | None, option("--color", "When to use colour; NO_COLOR turns it off.")
]
Format = Annotated[Literal["table", "json"], option("--format", "Output format.")]

Reference = Annotated[str, argument("ID", "An id, the end of an id, or a name.", session_ids)]
OrNewest = Annotated[
    str | None,
    argument(
        "ID",
        "An id, the end of an id, or a name. Default: the newest session of this folder.",
        session_ids,
    ),
]
Wide = Literal["project", "all"]
WideScope = Annotated[
    Wide | None,
    option("--scope", "Where to search. Default: the project, unless configured otherwise."),
]
Query = Annotated[str, argument("QUERY", "The text to search for.")]
Results = Annotated[int, option("--limit", "Maximum number of results.", "N", least=1, most=100)]
NoSemantic = Annotated[bool, option("--no-semantic", "Match words only, not meaning.")]
Yes = Annotated[bool, option("--yes", "Don't ask.")]
NewFile = Annotated[
    Path | None, option("-o --output", "Write to this new file instead of stdout.", "FILE")
]
Exported = Annotated[Path, argument("FILE", "A file written by `export`.")]
TextFormat = Annotated[Literal["text", "json"], option("--format", "Output format.")]


_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_AGE = re.compile(r"(\d{1,5})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


def age_or_date(words: str) -> datetime | None:
    """Parse a value of `--since`, an age (`7d`) or a date (`2026-11-01`); None if it is neither.

    Raises UsageError for an invalid date.
    """
    if age := _AGE.fullmatch(words.strip()):
        return datetime.now(UTC) - timedelta(hours=int(age[1]) * _HOURS[age[2]])
    if _DATE.match(words.strip()):
        try:
            return datetime.fromisoformat(words.strip()).astimezone()
        except (ValueError, OverflowError):
            raise UsageError(f"--since: {one_line(words, 40)!r} is not a valid date.") from None
    return None


def check_session_flags(
    *, continue_last: bool, resume: str | None, fork: bool, everyone: bool = False
) -> None:
    """Raise UsageError if flags contradict each other."""
    if continue_last and resume is not None:
        raise UsageError("-c and -r can't be used together.", hint="-r alone selects the session.")
    if fork and not continue_last and resume is None:
        raise UsageError("--fork-session requires a session to copy.", hint="Add -c, or -r ID.")
    if everyone and not continue_last and resume is None:
        raise UsageError("--everyone requires -c or -r.", hint="Add one of them.")


def permission_mode(
    mode: PermissionMode | None, *, yolo: bool, configured: PermissionMode
) -> PermissionMode:
    """Return the permission mode that the flags select, else the configured one."""
    if yolo and mode not in (None, "bypassPermissions"):
        raise UsageError(f"--yolo and --permission-mode {mode} can't be used together.")
    return "bypassPermissions" if yolo else mode or configured


def allowed_tools(rules: list[str] | None) -> tuple[str, ...]:
    """Return the rules of --allow; raise UsageError for invalid rules and unknown tools."""
    for each in rules or ():
        from ragmem.own_tools import OWN_TOOLS
        from ragmem.tools.permissions import OUTSIDE, read_rule

        tool = read_rule(each).tool
        known = (*(own.name for own in OWN_TOOLS.values() if own.is_standard), OUTSIDE)
        # The tools of an MCP server (SERVER__TOOL) are known only once it runs.
        if tool not in known and "__" not in tool:
            hint = f"Available tools: {', '.join(known)}."
            raise UsageError(f"--allow: unknown tool {tool!r}.", hint=hint)
    return tuple(rules or ())


def added_folders(folders: list[Path] | None) -> tuple[Path, ...]:
    """Return the absolute paths of --add-dir; raise UsageError if one is not a folder."""
    found = tuple(map(expanded, folders or ()))
    for folder in found:
        if not os.path.isdir(folder):
            raise UsageError(f"--add-dir: {folder} is not a folder.")
    return tuple(folder.resolve() for folder in found)


# --- the event loop and signals -----------------------------------------------

_EXIT_SIGHUP = 129
_CODES = {signal.SIGINT: EXIT_SIGINT, signal.SIGTERM: EXIT_SIGTERM, signal.SIGHUP: _EXIT_SIGHUP}


class Interruption:
    """Handles SIGINT, SIGTERM and SIGHUP: the first stops the turn, the next cancels the task."""

    def __init__(self) -> None:
        self.exit_code = 0
        """128 plus the signal's number; 0 until a signal arrives."""
        self._stop: Callable[[], None] | None = None

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Let the first signal call `stop` during the block, so that the turn's end is recorded."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    def listen(self, task: asyncio.Task[int]) -> None:
        """Install the signal handlers in the running event loop, for one of its tasks."""
        loop = asyncio.get_running_loop()
        for number in _CODES:
            # Keep a signal ignored that was ignored on purpose (nohup).
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._receive, number, task)

    def _receive(self, number: signal.Signals, task: asyncio.Task[int]) -> None:
        first = not self.exit_code
        self.exit_code = _CODES[number]
        if first and self._stop is not None:
            self._stop()
        else:
            task.cancel()


def run_async(main: Callable[[Interruption], Awaitable[int]]) -> int:
    """Run a command's coroutine; return its exit code, or that of the signal that stopped it."""
    interruption = Interruption()

    async def listening() -> int:
        task = asyncio.current_task()
        assert task is not None
        interruption.listen(task)
        return await main(interruption)

    try:
        code = asyncio.run(listening())
    except asyncio.CancelledError:
        if not interruption.exit_code:
            raise
        return interruption.exit_code
    return interruption.exit_code or code


# --- settings and the App -----------------------------------------------------


def settings(*, color: str | None = None, needs_memory: bool = True) -> tuple[Config, Paths]:
    """Load the configuration, with the value of `--color`, and create this user's folders.

    If the folders can't be created: raises ConfigError if the command `needs_memory`; otherwise
    memory is switched off, which the App reports.
    """
    paths = find_paths()
    config = load_config(paths.config_file, flags={("ui", "color"): color})
    know(config.passwords())
    try:
        paths.make()
    except ConfigError:
        if needs_memory:
            raise
        off = msgspec.structs.replace(config.memory, enabled=False)
        return msgspec.structs.replace(config, memory=off), paths
    if needs_memory and (loose := paths.close_to_others()):
        say(f"note: {visible(loose)}\n")
    return config, paths


def current_folder() -> Path:
    """Return the current folder's real path; raise UsageError if it was deleted."""
    try:
        return Path.cwd().resolve()
    except FileNotFoundError:
        raise UsageError(
            "The current folder no longer exists.", hint="Change to an existing folder."
        ) from None


def open_app(
    config: Config,
    paths: Paths,
    *,
    ephemeral: bool = False,
    patient: bool = True,
    everyone: bool = False,
    brief: bool = True,
    show: Callable[[str], None] = lambda text: say(f"note: {visible(text)}\n"),
) -> "App":
    """Create the App of the current folder, to be entered with `async with`.

    `patient`: wait for a slow or starting store as long as the settings allow; false if the user
    talks to a model in the meantime. `brief`: see `App`.
    """
    from ragmem.app import App

    return App(
        config,
        paths,
        cwd=current_folder(),
        ephemeral=ephemeral,
        patient=patient,
        everyone=everyone,
        brief=brief,
        say=show,
    )


def home(config: Config, paths: Paths) -> AbstractAsyncContextManager["Administration"]:
    """Return the Administration of this home, whose stores are not open yet."""
    from ragmem.administration import Administration

    return nullcontext(Administration(config, paths))


@asynccontextmanager
async def app_here(config: Config, paths: Paths) -> AsyncIterator["App"]:
    """Open the App of the current folder; say its notices at the end, also of a failure."""
    async with open_app(config, paths) as app:
        try:
            yield app
        except RagmemError as error:
            _say_notes(note for note in app.notices() if str(error) not in note)
            raise
        say_notices(app)


@asynccontextmanager
async def app_with_facts(config: Config, paths: Paths) -> AsyncIterator["App"]:
    """Open the App with facts enabled, so that they can be read and deleted whatever is set."""
    from ragmem.memory.memories import facts_of

    facts = msgspec.structs.replace(config.memory.facts, enabled=True)
    memory = msgspec.structs.replace(config.memory, facts=facts)
    async with app_here(msgspec.structs.replace(config, memory=memory), paths) as app:
        facts_of(app.memory)
        yield app


def say_notices(opened: "App", *more: str) -> None:
    """Print the App's notices, and `more`, to stderr."""
    _say_notes([*opened.notices(), *more])


def _say_notes(notes: Iterable[str]) -> None:
    for note in filter(None, notes):
        say(f"note: {visible(note)}\n")


Opened = TypeVar("Opened")
Flags = ParamSpec("Flags")


Report = Callable[[], None]
"""Prints what a command changed."""
Command = Callable[Concatenate[Opened, Flags], Awaitable[int | Report | None]]


def command(
    group: typer.Typer,
    opener: Callable[[Config, Paths], AbstractAsyncContextManager[Opened]],
    name: str | None = None,
    *,
    hidden: bool = False,
) -> Callable[[Command[Opened, Flags]], Callable[Flags, None]]:
    """Turn a coroutine function, whose first parameter is what `opener` opens, into a command.

    The coroutine returns the exit code, None for success, or a Report. A Report is called once the
    opened object is closed: only then are the changes known to be stored.
    """

    def decorated(does: Command[Opened, Flags]) -> Callable[Flags, None]:
        @wraps(does)
        def run(*args: Flags.args, **flags: Flags.kwargs) -> None:
            config, paths = settings()

            async def main(_: Interruption) -> int:
                async with opener(config, paths) as opened:
                    done = await does(opened, *args, **flags)
                if callable(done):
                    done()
                    return EXIT_DONE
                return done or EXIT_DONE

            raise typer.Exit(run_async(main))

        signature = inspect.signature(does)
        first, *others = signature.parameters.values()
        # The command line supplies every parameter but the first.
        setattr(run, "__signature__", signature.replace(parameters=others))  # noqa: B010
        run.__annotations__ = {k: v for k, v in run.__annotations__.items() if k != first.name}
        return group.command(name, hidden=hidden)(run)

    return decorated


def check_installed(package: str, served: str) -> None:
    """Raise UsageError, which says how to install it, if a package needed to serve is missing."""
    if find_spec(package) is None:
        from ragmem.libraries import install_command

        raise UsageError(
            f"Serving {served} requires the package {package}, which is not installed.",
            hint=f"Run `{install_command(package)}`.",
        )


# --- choosing a session -------------------------------------------------------

_MAX_CHOICES = 20


async def choose_session(
    app: "App", *, continue_last: bool, resume: str | None, fork: bool = False
) -> "Session":
    """Return the session that -c, -r and --fork-session select, else a new one."""
    if resume is not None:
        session = await resumed(app, resume)
    elif continue_last:
        session = await last_session(app)
    else:
        return await app.start_session()
    return await app.fork_session(session) if fork else session


async def last_session(app: "App") -> "Session":
    """Return this folder's newest session that is not archived, or raise SessionNotFound."""
    session = await app.continue_session()
    if session is None:
        raise SessionNotFound(
            f"No session in {app.cwd}.",
            hint="`ragmem sessions list --all` lists those of other folders; `ragmem sessions "
            "archive ID --undo` restores an archived one.",
        )
    return session


async def resumed(app: "App", reference: str) -> "Session":
    """Return the session of -r; if empty, let the user choose, or raise UsageError with a list."""
    if not reference:
        return app.memory.recollect(await _choose_listed(app))
    try:
        return await app.resume_session(reference)
    except AmbiguousSession as error:
        listed = await _candidates_table(app, error.candidates)
        said = str(error).partition("\n")[0]
        raise AmbiguousSession(
            f"{said}\n{listed}", candidates=error.candidates, hint=error.hint
        ) from None


async def _candidates_table(app: "App", ids: Sequence[str]) -> str:
    from ragmem.listings import sessions_table

    sessions = [await app.resume_session(session_id) for session_id in ids[:_MAX_CHOICES]]
    return sessions_table(sessions, datetime.now(UTC), width=100, whole_ids=True).rstrip("\n")


async def _choose_listed(app: "App") -> "Session":
    from ragmem.listings import sessions_table

    sessions = await app.sessions_here(_MAX_CHOICES)
    if not sessions:
        raise SessionNotFound(
            f"No session in {app.cwd} to resume.",
            hint="`ragmem sessions list --all` lists those of other folders.",
        )
    listed = partial(sessions_table, sessions, datetime.now(UTC), width=100)
    if not is_interactive():
        raise UsageError(
            f"-r requires a session. Those of this folder:\n{listed().rstrip()}", hint="Use -r ID."
        )
    say(listed(current=""))
    chosen = await choose_number(f"Which session? [1-{len(sessions)}] ", len(sessions))
    if chosen is None:
        raise UsageError("No session selected.", hint="Enter the number of a row, or use -r ID.")
    return sessions[chosen]


async def choose_number(question: str, count: int) -> int | None:
    """Ask for one of `count` rows, numbered from 1; return its index from 0, None if invalid."""
    answer = await ask_line(question)
    number = int(answer) if answer.isdecimal() else 0
    return number - 1 if 1 <= number <= count else None


async def ask_line(question: str) -> str:
    """Read a line from the terminal without blocking the event loop; empty for Ctrl-D."""
    say(question)
    loop = asyncio.get_running_loop()
    fd, typed = sys.stdin.fileno(), asyncio.Event()
    loop.add_reader(fd, typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, 4096).decode(errors="replace").strip()


async def confirm(question: str, otherwise: str) -> None:
    """Raise UsageError unless the user confirms; without a terminal, it suggests --yes."""
    if not is_interactive():
        raise UsageError(
            "Confirmation is needed, but this is not an interactive terminal.",
            hint="Add --yes to confirm.",
        )
    if not is_yes(await ask_line(f"{question} [y/N] ")):
        raise UsageError(otherwise)


async def confirm_claims(claims: "Claims", *, yes: bool) -> None:
    """Show what a file's memories claim; raise UsageError unless confirmed, or `yes` is set."""
    from ragmem.cli.shown import claims_text

    if claims:
        say(claims_text(claims))
        if not yes:
            await confirm("Import the file?", "Nothing was imported.")


async def with_weights(paths: Paths, make: Callable[[], Awaitable[Opened]]) -> Opened:
    """Return what `make` returns; if NoWeights is raised, offer to download them and retry."""
    try:
        return await make()
    except NoWeights as lacking:
        if not is_interactive():
            raise
        from ragmem.llm.local import QUESTION, fetch

        say(f"{lacking}\n")
        if not is_yes(await ask_line(f"{QUESTION} [y/N] ")):
            raise
        await fetch(paths)
    return await make()


def is_yes(answer: str) -> bool:
    """Return whether an answer is `y` or `yes`."""
    return answer.casefold() in ("y", "yes")

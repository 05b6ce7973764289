"""What every command is made of: its options, what it opens, its loop, its session."""

import asyncio
import inspect
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
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
    environment,
    find_paths,
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
from ragmem.ids import short_id
from ragmem.text import one_line, visible

if TYPE_CHECKING:
    from ragmem.administration import Administration
    from ragmem.app import App
    from ragmem.records import Claims, Session


def commands(about: str = "", *, answers: bool = False) -> typer.Typer:
    """Make a command; with `about` a group, which shows that when called alone, or `answers`."""
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
    """An option by its flags, such as `-m --model`; `value` stands for what it takes.

    `offered` completes what is typed of that.
    """
    return typer.Option(
        *flags.split(), help=about, metavar=value, min=least, max=most, autocompletion=offered
    )


def argument(value: str, about: str, offered: "Offering | None" = None) -> Any:
    """An argument by what stands for it in help; `offered` completes what is typed of it."""
    return typer.Argument(metavar=value, help=about, show_default=False, autocompletion=offered)


Offer = tuple[str, str]
"""What is put in, and what it is."""
Offering = Callable[..., list[Offer]]
"""Takes what is typed so far, `incomplete`, and if it wants `context`, what stands before that."""

_PATIENCE_S = 2.0
_OFFERED = 50
_ABOUT_CHARS = 60
_ONE_WORD = re.compile(r"\w[\w.,@+-]*")


def memory_ids(incomplete: str) -> list[Offer]:
    """Offer the ids of this project's memories and of the person's, newest first."""

    async def ask(opened: "App") -> list[Offer]:
        from ragmem.memory.memories import here
        from ragmem.records import MemoryQuery

        store = await opened.store()
        project_id = (await here(store, opened.cwd)).project.root_id
        found = await store.memories(MemoryQuery(project_ids=(project_id,)))
        return [(memory.memory_id, memory.content) for memory in found]

    return _offered(ask, incomplete)


def session_ids(incomplete: str) -> list[Offer]:
    """Offer this folder's sessions by id, newest first; then the names of those that have one."""
    found: list[Session] = []

    async def ask(opened: "App") -> list[Offer]:
        from ragmem.memory.projects import folder_name
        from ragmem.records import SessionQuery

        query = SessionQuery(cwd=folder_name(opened.cwd), limit=_OFFERED)
        found.extend(await (await opened.store()).sessions(query))
        return [(session.session_id, session.called) for session in found]

    offers = _offered(ask, incomplete)
    names = [(each.title, short_id(each.session_id)) for each in found]
    # What is more than a word would have to be quoted, by each shell in its own way.
    return offers + [
        (name, tail)
        for name, tail in names
        if _ONE_WORD.fullmatch(name) and name.startswith(incomplete)
    ]


def models(incomplete: str) -> list[Offer]:
    """Offer the models that can be used now."""
    from ragmem.llm.models import list_models

    try:
        found = list_models(environment(), load_config(find_paths().config_file))
    except (RagmemError, OSError):
        return []
    return [(each.name, each.why) for each in found if each.name.startswith(incomplete)][:_OFFERED]


def settings_keys(incomplete: str) -> list[Offer]:
    """Offer the names of the settings, each with its default."""
    from ragmem.config import keys

    return [(key, f"{at}") for key, at in keys().items() if key.startswith(incomplete)]


def _offered(ask: "Callable[[App], Awaitable[list[Offer]]]", incomplete: str) -> list[Offer]:
    """By the end of the id that lists show, or by the whole id where that is typed."""
    try:
        found = asyncio.run(_asked(ask))
    except (RagmemError, OSError, TimeoutError):
        return []
    typed = incomplete.casefold()
    return [
        (shown, one_line(about, _ABOUT_CHARS))
        for whole, about in found
        if (shown := next((i for i in (short_id(whole), whole) if i.startswith(typed)), ""))
    ][:_OFFERED]


async def _asked(ask: "Callable[[App], Awaitable[list[Offer]]]") -> list[Offer]:
    paths = find_paths()
    if not paths.data_dir.is_dir():
        return []
    async with asyncio.timeout(_PATIENCE_S):
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
    EffortLevel | None,
    option("-e --effort", "How much the model may think before it answers."),
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
    list[Path] | None,
    option("--add-dir", "Another folder that tools may use. Repeatable.", "DIR"),
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
    """The time that `7d` or `2026-11-01` means for `--since`; None for neither. UsageError."""
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
    """UsageError for flags that contradict each other."""
    if continue_last and resume is not None:
        raise UsageError("-c and -r can't be used together.", hint="-r alone selects the session.")
    if fork and not continue_last and resume is None:
        raise UsageError("--fork-session requires a session to copy.", hint="Add -c, or -r ID.")
    if everyone and not continue_last and resume is None:
        raise UsageError("--everyone requires -c or -r.", hint="Add one of them.")


def permission_mode(
    mode: PermissionMode | None, *, yolo: bool, configured: PermissionMode
) -> PermissionMode:
    """The mode that the flags ask for, else the configured one."""
    if yolo and mode not in (None, "bypassPermissions"):
        raise UsageError(f"--yolo and --permission-mode {mode} can't be used together.")
    return "bypassPermissions" if yolo else mode or configured


def allowed_tools(rules: list[str] | None) -> tuple[str, ...]:
    """The rules of --allow; UsageError for what is none, and for a tool that does not exist."""
    for each in rules or ():
        from ragmem.own_tools import OWN_TOOLS
        from ragmem.tools.permissions import OUTSIDE, read_rule

        tool = read_rule(each).tool
        known = (*(own.name for own in OWN_TOOLS.values() if own.is_standard), OUTSIDE)
        # Which tools a server has is known when it runs.
        if tool not in known and "__" not in tool:
            hint = f"Available tools: {', '.join(known)}."
            raise UsageError(f"--allow: unknown tool {tool!r}.", hint=hint)
    return tuple(rules or ())


def added_folders(folders: list[Path] | None) -> tuple[Path, ...]:
    """The folders of --add-dir, absolute; UsageError unless each is one."""
    for folder in folders or ():
        if not folder.expanduser().is_dir():
            raise UsageError(f"--add-dir: {folder} is not a folder.")
    return tuple(folder.expanduser().resolve() for folder in folders or ())


# --- the loop and its signals -------------------------------------------------

_EXIT_SIGHUP = 129
_CODES = {signal.SIGINT: EXIT_SIGINT, signal.SIGTERM: EXIT_SIGTERM, signal.SIGHUP: _EXIT_SIGHUP}


class Interruption:
    """SIGINT, SIGTERM and SIGHUP: the first asks what runs to stop, the next insists."""

    def __init__(self) -> None:
        self.exit_code = 0
        """0 until a signal came."""
        self._stop: Callable[[], None] | None = None

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """While this lasts the first signal calls `stop`, so that a turn ends recorded."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None

    def listen(self, task: asyncio.Task[int]) -> None:
        """Take the signals, on behalf of a task of the running loop."""
        loop = asyncio.get_running_loop()
        for number in _CODES:
            # What was ignored on purpose (nohup) stays ignored.
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
    """Run a command's coroutine; its exit code, or the signal's that stopped it."""
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


# --- what is opened -----------------------------------------------------------


def settings(*, color: str | None = None, needs_memory: bool = True) -> tuple[Config, Paths]:
    """The configuration, with the flags of the terminal, and this user's folders, made.

    A command that does not need memory goes on where they can't be made, with
    memory switched off; the App says so.
    """
    paths = find_paths()
    config = load_config(paths.config_file, flags={("ui", "color"): color})
    from ragmem.redact import know

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
    """The folder that the command runs in, by its real path."""
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
    """The App of the current folder, to be entered with `async with`.

    `patient`: a silent or cold store is waited for, as long as the settings say; false where
    somebody talks with a model meanwhile. `brief`: see `App`.
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


@asynccontextmanager
async def home(config: Config, paths: Paths) -> AsyncIterator["Administration"]:
    """The stores of this home, none of them open."""
    from ragmem.administration import Administration

    yield Administration(config, paths)


@asynccontextmanager
async def app_with_facts(config: Config, paths: Paths) -> AsyncIterator["App"]:
    """The App, with its facts: they can be looked at and forgotten where none are kept any more."""
    from ragmem.memory.memories import facts_of

    facts = msgspec.structs.replace(config.memory.facts, enabled=True)
    memory = msgspec.structs.replace(config.memory, facts=facts)
    async with open_app(msgspec.structs.replace(config, memory=memory), paths) as app:
        facts_of(app.memory)
        yield app
        say_notices(app)


def say_notices(opened: "App", *more: str) -> None:
    """Tell on stderr what the App has to say, and `more`."""
    for notice in filter(None, [*opened.notices(), *more]):
        say(f"note: {visible(notice)}\n")


Opened = TypeVar("Opened")
Flags = ParamSpec("Flags")


Report = Callable[[], None]
"""Prints what a command has changed."""
Command = Callable[Concatenate[Opened, Flags], Awaitable[int | Report | None]]


def command(
    group: typer.Typer,
    opener: Callable[[Config, Paths], AbstractAsyncContextManager[Opened]],
    name: str | None = None,
    *,
    hidden: bool = False,
) -> Callable[[Command[Opened, Flags]], Callable[Flags, None]]:
    """Make a command of a coroutine whose first parameter is what `opener` opens.

    The settings are read first; the command's result is the exit code, None for done. A Report is
    called when what was opened is closed: only then is it known that what was changed is kept.
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
        # What is read from the command line is all but what is opened.
        setattr(run, "__signature__", signature.replace(parameters=others))  # noqa: B010
        run.__annotations__ = {k: v for k, v in run.__annotations__.items() if k != first.name}
        return group.command(name, hidden=hidden)(run)

    return decorated


# --- which session ------------------------------------------------------------

_CHOICES = 20


async def choose_session(
    app: "App", *, continue_last: bool, resume: str | None, fork: bool = False
) -> "Session":
    """The session that -c, -r and --fork-session ask for, else a new one."""
    if resume is not None:
        session = await resumed(app, resume)
    elif continue_last:
        session = await last_session(app)
    else:
        return await app.start_session()
    return await app.fork_session(session) if fork else session


async def last_session(app: "App") -> "Session":
    """The newest session of this folder but those put aside; SessionNotFound without one."""
    session = await app.continue_session()
    if session is None:
        raise SessionNotFound(
            f"No session in {app.cwd}.",
            hint="`ragmem sessions list --all` lists those of other folders; `ragmem sessions "
            "archive ID --undo` restores an archived one.",
        )
    return session


async def resumed(app: "App", reference: str) -> "Session":
    """The session of -r; without a value a person chooses, and a pipe gets the candidates."""
    if not reference:
        return app.memory.recollect(await _pick(app))
    try:
        return await app.resume_session(reference)
    except AmbiguousSession as error:
        listed = await _candidates(app, error.candidates)
        said = str(error).partition("\n")[0]
        raise AmbiguousSession(
            f"{said}\n{listed}", candidates=error.candidates, hint=error.hint
        ) from None


async def _candidates(app: "App", ids: Sequence[str]) -> str:
    from ragmem.listings import sessions_table

    sessions = [await app.resume_session(session_id) for session_id in ids[:_CHOICES]]
    return sessions_table(sessions, datetime.now(UTC), width=100, whole_ids=True).rstrip("\n")


async def _pick(app: "App") -> "Session":
    from ragmem.listings import sessions_table

    sessions = await app.sessions_here(_CHOICES)
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
    """The place from 0 on of the row that a person names by its number; None for no such one."""
    answer = await ask_line(question)
    number = int(answer) if answer.isdecimal() else 0
    return number - 1 if 1 <= number <= count else None


async def ask_line(question: str) -> str:
    """A line typed at the terminal, while the loop goes on; empty at its end (Ctrl-D)."""
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
    """UsageError unless a person says yes; without one, --yes has to."""
    if not is_interactive():
        raise UsageError(
            "Confirmation is needed, but this is not an interactive terminal.",
            hint="Add --yes to confirm.",
        )
    if not is_yes(await ask_line(f"{question} [y/N] ")):
        raise UsageError(otherwise)


async def confirm_claims(claims: "Claims", *, yes: bool) -> None:
    """Tell what a file's memories claim; UsageError unless a person, or --yes, agrees to that."""
    from ragmem.cli.shown import claims_text

    if claims:
        say(claims_text(claims))
        if not yes:
            await confirm("Import the file?", "Nothing was imported.")


async def with_weights(paths: Paths, make: Callable[[], Awaitable[Opened]]) -> Opened:
    """What `make` makes; where it lacks the small model's weights, a person is asked for them."""
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
    """Whether what was typed agrees; anything but a yes does not."""
    return answer.casefold() in ("y", "yes")

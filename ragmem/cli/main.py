"""Run a command line: import the module of its command, and turn every error into an exit code."""

import errno
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from shutil import get_terminal_size
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from ragmem import __version__
from ragmem.cli import leave_in_order
from ragmem.cli.command import option
from ragmem.cli.output import say, secure_standard_streams, write
from ragmem.config import environment, find_paths
from ragmem.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_SIGINT,
    EXIT_SIGPIPE,
    RagmemError,
    UsageError,
    lacking,
)
from ragmem.failpoints import arm
from ragmem.redact import know, redact, secrets_among
from ragmem.text import Regex, one_line, visible

_DAY_S = 86_400
_DISK_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
_COMMANDS = {
    "chat": "chat:app",
    "ask": "ask:app",
    "sessions": "sessions:app",
    "context": "looking:building",
    "search": "search:app",
    "memory": "memory:app",
    "import": "agents:importing",
    "mcp": "mcp:app",
    "acp": "chat:serving",
    "install": "agents:app",
    "uninstall": "agents:uninstalling",
    "files": "files:app",
    "graph": "looking:drawing",
    "index": "files:indexing",
    "store": "store:app",
    "neo4j": "store:neo4j",
    "stats": "looking:measuring",
    "models": "config:listing",
    "config": "config:app",
    "doctor": "doctor:app",
    "work": "store:working",
}
"""The commands in the order of help, each as `module:name` below `ragmem.cli`."""
_NARROW = 58


def run(words: Sequence[str], *, before_message: Callable[[], None] | None = None) -> int:
    """Run a command line and return its exit code; no exception escapes.

    `before_message` is called before an error is shown, for example to clear an early prompt from
    the terminal.
    """
    secure_standard_streams()
    try:
        _arm_failpoints()
        return _dispatch(words)
    except BaseException as error:
        if before_message:
            before_message()
        return _exit_code(error)


def report(error: RagmemError) -> int:
    """Print an error and its hint, without secrets, and return its exit code."""
    know(secrets_among(environment()))
    say(f"error: {visible(redact(str(error)))}\n")
    if error.hint:
        say(f"{visible(redact(error.hint))}\n")
    return error.exit_code


def command() -> TyperGroup:
    """Return the whole command line as a group whose commands are not imported yet."""
    built = typer.main.get_command(_root)
    assert isinstance(built, TyperGroup)
    return built


class _Root(TyperGroup):
    """Imports a command's module only when it is looked up, so that ragmem starts fast."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: dict[str, Any] = dict.fromkeys(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command, importing its module; None if there is none of this name."""
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            module, _, group = _COMMANDS[cmd_name].partition(":")
            built = typer.main.get_command(getattr(import_module(f"ragmem.cli.{module}"), group))
            built.name = cmd_name
            self.commands[cmd_name] = built
            leave_in_order()
        return self.commands.get(cmd_name)


_root = typer.Typer(
    cls=_Root,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@_root.callback()
def _ragmem(
    version: Annotated[bool, option("-V --version", "Print the version and exit.")] = False,
) -> None:
    """A terminal coding agent whose memory lasts.

    `ragmem` alone is `ragmem chat` and takes its options (`ragmem -c` continues the last chat,
    `-r` one that you choose, `-m` names a model); `ragmem -p "…"` is `ragmem ask "…"`.
    """
    if version:
        write(f"ragmem {__version__}\n")
        raise typer.Exit(EXIT_DONE)


def _arm_failpoints() -> None:
    """Arm the failpoint that tests of crashes and disk failures set in the environment."""
    if text := environment().get("RAGMEM_FAILPOINT"):
        try:
            arm(text)
        except ValueError as error:
            raise UsageError(
                f"RAGMEM_FAILPOINT: {error}.", hint="RAGMEM_FAILPOINT is for tests only; unset it."
            ) from None


def _dispatch(words: Sequence[str]) -> int:
    if abs(time.timezone) >= _DAY_S:
        raise UsageError(
            "The time zone in TZ is a day or more from UTC, which no time can be shown in.",
            hint="Set TZ to a name such as Europe/Paris, or unset it.",
        )
    width = get_terminal_size().columns - 2  # the sections of help are indented by 2
    narrow = width if width < _NARROW else None
    main = command().main
    return (
        main(args=list(words), prog_name="ragmem", standalone_mode=False, terminal_width=narrow)
        or 0
    )


def _exit_code(error: BaseException) -> int:
    match error:
        case RagmemError():
            return report(error)
        case TyperException():
            return _report_usage(error)
        # Typer turns BrokenPipeError into SystemExit.
        case BrokenPipeError() | SystemExit(__context__=BrokenPipeError()):
            return EXIT_SIGPIPE
        case OSError(errno=number) if number in _DISK_ERRNOS:
            return report(_disk_failure(error))
        case OSError(errno=errno.EBADF, filename=None):  # help, to a closed stdout
            return report(RagmemError(f"Can't write the output: {error.strerror}."))
        case _ if why := lacking(error):
            return report(_out_of_resources(why))
        case KeyboardInterrupt():
            return EXIT_SIGINT
        case SystemExit(code=int(code)):
            return code
        case typer.Abort():
            return EXIT_FAILED
    say(record_crash(error))
    return EXIT_FAILED


def record_crash(error: BaseException) -> str:
    """Log the traceback; return the lines that tell the user about it."""
    from ragmem.logs import write_crash

    what = f"error: {type(error).__name__}: {one_line(str(error), 300)}"
    environ = environment()
    know(secrets_among(environ))
    try:
        log = write_crash(find_paths(environ).make().log_dir, error, __version__)
    except (OSError, RagmemError) as failure:
        return f"{redact(what)}\nThis is a bug in ragmem. It could not be logged: {failure}\n"
    return f"{redact(what)}\nThis is a bug in ragmem. The traceback is in {log}\n"


def _disk_failure(error: OSError) -> RagmemError:
    """Return the error for a disk failure that no command reported: it is not a bug."""
    where = f"{error.filename}: " if error.filename else "Can't read or write a file: "
    return RagmemError(
        f"{where}{error.strerror}.",
        hint="Check the disk and its free space, then try again; everything stored so far is safe.",
    )


def _out_of_resources(why: str) -> RagmemError:
    """Return the error for an exhausted resource of the process or the system: not a bug."""
    return RagmemError(
        f"The system is out of resources: {why}.",
        hint=(
            "Close other programs, or raise the limits (`ulimit -a`); everything stored so far "
            "is safe."
        ),
    )


_INVALID_NUMBER = Regex(r"is not a valid (int|float)(?: range)?")
_NUMBER_MESSAGES = {"int": "is not a whole number", "float": "is not a number"}


def _report_usage(error: TyperException) -> int:
    if error.message.startswith("Usage:"):  # a group without a command: its help
        say(f"{error.message}\n")
        return error.exit_code
    context = getattr(error, "ctx", None)
    hint = f"Run `{context.command_path} --help` for usage." if context else ""
    is_first = context is not None and context.parent is None
    if is_first and error.message.startswith("No such command") and "Did you" not in error.message:
        hint += ' To ask it as a prompt: `ragmem chat "…"`.'
    said = _INVALID_NUMBER.sub(lambda no: _NUMBER_MESSAGES[no[1]], error.format_message())
    code = report(UsageError(visible(said), hint=hint))
    return error.exit_code or code

"""Standard input, output and error with their faults; JSON, tables, progress and new files.

Only the answer goes to stdout. A reader that went away is BrokenPipeError, which
ends the command quietly; stderr never fails anything.
"""

import json
import os
import select
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import Literal, TextIO, TypeVar

import msgspec

from ragmem.config import UiConfig, environment
from ragmem.errors import RagmemError, UsageError, unreadable
from ragmem.failpoints import failpoint
from ragmem.files import sync_folder
from ragmem.ids import new_id
from ragmem.text import clean, clip_to_width, display_width, hanging, one_line, printable_json
from ragmem.themes import ColorMode, Colors, Theme

_CODES = {
    "bold": "1",
    "dim": "2",
    "underline": "4",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
_COLORS = {"red", "green", "yellow", "cyan"}
Part = tuple[str, str]
"""A text that is harmless to a terminal, and its style: `bold red`, or nothing."""


class Paint:
    """Gives texts their style, as far as the terminal and the person want any."""

    def __init__(self, mode: ColorMode, theme: Theme = Theme()) -> None:  # noqa: B008 - it is frozen
        self.mode = mode
        self._theme = theme

    def __call__(self, *parts: Part) -> str:
        """Return the texts one after the other, each in its style."""
        return "".join(self._styled(text, style) for text, style in parts if text)

    def _styled(self, text: str, style: str) -> str:
        wanted = [
            self._theme.code(name) or _CODES[name]
            for name in style.split()
            if self.mode == "color" or (self.mode == "mono" and name not in _COLORS)
        ]
        return f"\x1b[{';'.join(wanted)}m{text}\x1b[0m" if wanted else text


UNPAINTED = Paint("none")


def paint_for(ui: UiConfig, stream: TextIO | None = None) -> Paint:
    """How stdout, or another stream, is painted; not at all where it is no terminal.

    `ui.color` says whether: `always` outdoes NO_COLOR, nothing outdoes TERM=dumb.
    """
    term = os.environ.get("TERM", "dumb")
    if not (stream or sys.stdout).isatty() or term in ("", "dumb", "unknown"):
        return UNPAINTED
    environ = environment()
    plain = ui.color == "never" or (ui.color == "auto" and environ.get("NO_COLOR"))
    if plain or ui.theme == "plain":
        return Paint("mono")
    return Paint("color", Colors(ui.theme, msgspec.structs.asdict(ui.colors), environ).theme)


def joined(rows: Sequence[str]) -> str:
    """Return rows as text; none ends in blanks, which a terminal made narrower would wrap."""
    return "".join(f"{row.rstrip()}\n" for row in rows)


T = TypeVar("T")
STDIN_LIMIT = 10 * 1024 * 1024
_PATIENCE_S = 3.0
_NARROWEST = 20


def secure_standard_streams() -> None:
    """Give closed standard streams to /dev/null.

    Else the next file that is opened, the memory itself perhaps, would get their
    number and what is printed would go into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one: those below it are open by now.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def write(text: str) -> None:
    """Print to stdout at once."""
    with _broken_output():
        sys.stdout.write(text)
        sys.stdout.flush()


def write_json(text: str) -> None:
    """Print JSON to stdout: what is not printable in its strings stands there as an escape."""
    write_utf8(printable_json(text))


def write_utf8(text: str) -> None:
    """Print to stdout in UTF-8 whatever the locale."""
    with _broken_output():
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()


def say(text: str) -> None:
    """Print to stderr, cut between words on a terminal; whether anybody reads it changes nothing.

    What steers the terminal, or is to go on in its line, is printed as it is.
    """
    try:
        if text.endswith("\n") and "\r" not in text and "\x1b" not in text:
            text = _wrapped(text)
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def _wrapped(text: str) -> str:
    """Lines that a terminal would break anywhere; those that are laid out stay as they are."""
    columns = _stderr_columns()
    if not columns:
        return text
    width = max(_NARROWEST, columns)
    lines: list[str] = []
    for line in text.split("\n"):
        laid_out = "  " in line or display_width(line) <= width
        lines += [line] if laid_out else hanging("", line, width)
    return "\n".join(lines)


def _stderr_columns() -> int:
    """Of the terminal that stderr is; 0 where it is none, or does not say."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return 0


@contextmanager
def _broken_output() -> Iterator[None]:
    try:
        with _heeding_ctrl_c():
            yield
    except (OSError, KeyboardInterrupt) as error:
        # What could not be written waits in Python's buffers: let it go nowhere at exit.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        if isinstance(error, (BrokenPipeError, KeyboardInterrupt)):
            raise
        raise RagmemError(f"Can't write the output: {error.strerror}.") from None


@contextmanager
def _heeding_ctrl_c() -> Iterator[None]:
    """While a reader takes nothing, the loop that hears signals waits as well: leave the write."""
    number = signal.SIGINT
    before = signal.getsignal(number)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before in (None, signal.SIG_IGN):
        yield
        return
    signal.signal(number, _leave_what_is_stuck)
    try:
        yield
    finally:
        signal.signal(number, before)


def _leave_what_is_stuck(_number: int, _frame: object) -> None:
    if not select.select((), (sys.stdout,), (), 0)[1]:
        raise KeyboardInterrupt


def is_interactive() -> bool:
    """Whether a person can be asked: they see stderr and can type."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def read_prompt(prompt: str | None) -> str:
    """The prompt from the command line and stdin; UsageError without one.

    No prompt, or `-`: stdin is the prompt. Both: stdin follows in a block.
    """
    prompt = prompt and typed(prompt)
    if prompt in (None, "-"):
        if prompt is None and sys.stdin.isatty():
            raise UsageError(
                "No prompt given.", hint='Use `ragmem ask "…"`, or `ragmem chat` to chat.'
            )
        text = _read_stdin()
    elif sys.stdin.isatty():
        text = prompt or ""
    else:
        text = join_prompt(prompt or "", _read_stdin())
    if not text.strip():
        raise empty_prompt()
    return text


def empty_prompt() -> UsageError:
    """The error for a prompt without words."""
    return UsageError("The prompt is empty.", hint="Type your question after the command.")


def typed(argument: str) -> str:
    """A word of the command line as it was typed, in a locale that has no name for its letters."""
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeError:
        return argument


def words(text: str) -> str:
    """A text of the command line, as it was typed; UsageError for an empty one."""
    if not (said := typed(text).strip()):
        raise UsageError("The text is empty.")
    return said


def join_prompt(prompt: str, piped: str) -> str:
    """A prompt, or none, with what was piped beside it; blank input adds nothing."""
    if not piped.strip():
        return prompt
    return f"{prompt}\n\n<stdin>\n{piped.rstrip()}\n</stdin>".lstrip("\n")


def _read_stdin() -> str:
    fd, data = sys.stdin.fileno(), bytearray()
    try:
        if not select.select([fd], [], [], _PATIENCE_S)[0]:
            say("waiting for standard input to end (add `< /dev/null` if there is no input)\n")
        while part := os.read(fd, 1 << 16):
            data += part
            if len(data) > STDIN_LIMIT:
                raise UsageError(
                    f"Standard input is larger than {STDIN_LIMIT >> 20} MB, the maximum.",
                    hint="Save it to a file and let the agent search the file.",
                )
    except OSError as error:
        raise UsageError(f"Can't read standard input: {error.strerror}.") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        say("warning: standard input is not valid UTF-8; invalid bytes are shown as �\n")
        return data.decode("utf-8-sig", "replace")


# --- JSON and text ------------------------------------------------------------


def to_json(value: object, *, indent: int | None = 2) -> str:
    """JSON text that any reader accepts; `indent=None` keeps it on one line."""
    return clean(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=indent)) + "\n"


def print_one(
    output: str, document: Callable[[], object], text: Callable[[int], str], *, pipe: int = 120
) -> None:
    """Print one thing as `--format` says: as JSON, else as text of so many columns.

    A pipe is taken to have `pipe` of them.
    """
    if output == "json":
        write_json(to_json(document()))
    else:
        write(text(columns(pipe)))


def print_all(
    output: str,
    found: Sequence[T],
    document: Callable[[T], object],
    text: Callable[[int], str],
    nothing: str,
    *,
    has_more: bool = False,
) -> None:
    """Print a list as `--format` says; on stderr what is to be said where it is empty, or not all
    that there is: it `has_more`, of which it has the newest."""
    if output == "json":
        write_json(to_json([document(each) for each in found]))
    elif found:
        write(text(columns()))
        if has_more:
            say(f"Showing the newest {len(found):,}; use --limit for more.\n")
    else:
        say(nothing)


def columns(default: int = 120) -> int:
    """The width of the terminal; `default` in a pipe."""
    return get_terminal_size((default, 24)).columns


# --- files --------------------------------------------------------------------


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """Yield an empty file, 0600, which becomes `file` when the block ends well."""
    file = Path(os.path.abspath(file.expanduser()))
    if os.path.lexists(file):
        raise _exists(file)
    part = file.with_name(f".{file.name[:100]}.{new_id()[-12:]}.ragmem-part")
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise UsageError(f"Can't write {file}: {error.strerror}.") from None
    try:
        yield part
        failpoint("export.written")
        _sync(part)
        try:
            os.link(part, file)
        except FileExistsError:
            raise _exists(file) from None
        except OSError:  # a file system without hard links
            part.rename(file)
        failpoint("export.named")
        sync_folder(file.parent)
    except OSError as error:
        raise RagmemError(f"Can't write {file}: {error.strerror or error}.") from None
    finally:
        part.unlink(missing_ok=True)


def _exists(file: Path) -> UsageError:
    return UsageError(f"{file} already exists.", hint="Choose another name, or delete the file.")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_without_secrets(file: Path) -> bytes:
    """What comes in by a file is stored like what is said: known keys are left out."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise unreadable(file, error) from None
    from ragmem.redact import know, redact, secrets_among

    know(secrets_among(environment()))
    return redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


# --- how far it is ------------------------------------------------------------


class PassingLine:
    """A line on a terminal's stderr that the next one replaces."""

    def __init__(self, paint: Paint = UNPAINTED) -> None:
        self._paint = paint
        self._columns = 0

    def show(self, text: str) -> None:
        """Put this in the place of what stood there."""
        self.clear()
        text = clip_to_width(one_line(text, 400), get_terminal_size().columns - 1)
        self._columns = display_width(text)
        say(self._paint((text, "dim")))

    def clear(self) -> None:
        """Take the line away, so that what follows starts on a clean one."""
        if self._columns:
            say("\r" + " " * self._columns + "\r")
            self._columns = 0


ShowSteps = Callable[[int, int], None]
"""Is told how many are done, and of how many."""
Phase = Literal["copying", "comparing", "embedding", "reading"]
ShowRecords = Callable[[Phase, int], None]
"""Is told how many more records have come so far."""

_FEW = 200
"""Of fewer steps it is not worth telling."""


@contextmanager
def steps(what: str) -> Iterator[ShowSteps]:
    """Show on stderr how far it is: a passing line on a terminal, one for each tenth elsewhere."""
    with _progress() as show:
        yield lambda done, of: show(what, done, of) if of >= _FEW else None


@contextmanager
def records(total: int) -> Iterator[ShowRecords]:
    """Show on stderr how many of `total` came, in each phase."""
    came: Counter[Phase] = Counter()

    def add(phase: Phase, count: int) -> None:
        # Vectors and the like are not counted beforehand.
        came[phase] = min(came[phase] + count, total)
        show(phase, came[phase], total)

    with _progress() as show:
        yield add


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A function that shows of something how many are done, and of how many."""
    told: Counter[str] = Counter()
    line, is_live = PassingLine(), sys.stderr.isatty()

    def show(what: str, done: int, of: int) -> None:
        text, tenth = f"{what}: {done:,} of {of:,}", 10 * done // max(1, of)
        if is_live:
            line.show(text)
        elif tenth > told[what]:
            told[what] = tenth
            say(f"{text}\n")

    try:
        yield show
    finally:
        line.clear()

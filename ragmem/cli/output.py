"""Standard streams and their failures; JSON and text output, progress, and new files.

Only the answer goes to stdout. If its reader is gone, BrokenPipeError ends the command quietly;
errors of stderr are ignored.
"""

import asyncio
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
from ragmem.files import expanded, sync_folder
from ragmem.ids import new_id
from ragmem.redact import know, redact, secrets_among
from ragmem.repl.early import color_mode
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
"""A text without terminal controls, and its style: for example `bold red`, or empty."""


class Paint:
    """Styles texts, as far as the terminal and the settings allow."""

    def __init__(self, mode: ColorMode, theme: Theme = Theme()) -> None:  # noqa: B008 - it is frozen
        self.mode = mode
        self._theme = theme

    def __call__(self, *parts: Part) -> str:
        """Return the concatenated texts, each in its style."""
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
    """Return the Paint for stdout or another stream; it adds no style unless that is a terminal."""
    mode = color_mode(ui, stream or sys.stdout)
    if mode != "color":
        return Paint(mode)
    return Paint(mode, Colors(ui.theme, msgspec.structs.asdict(ui.colors), environment()).theme)


def joined(rows: Sequence[str]) -> str:
    """Join rows to a text, without trailing blanks, which would wrap if the terminal shrinks."""
    return "".join(f"{row.rstrip()}\n" for row in rows)


T = TypeVar("T")
STDIN_LIMIT = 10 * 1024 * 1024
_STDIN_WAIT_S = 3.0
MIN_COLUMNS = 20
"""Least width for which text is laid out, even if the terminal is narrower."""


def secure_standard_streams() -> None:
    """Open /dev/null for each standard stream that is closed, so that no file gets its number.

    Output would be written into that file, perhaps the database. To a closed stdout nothing can
    be written, so that an answer that nobody can read is an error, as on a full disk.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            # This is the lowest free descriptor: those below it are open by now.
            os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_RDWR)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def write(text: str) -> None:
    """Print to stdout and flush."""
    with _output_errors():
        sys.stdout.write(text)
        sys.stdout.flush()


def write_json(text: str) -> None:
    """Print JSON to stdout, with unprintable characters escaped."""
    write_utf8(printable_json(text))


def write_utf8(text: str) -> None:
    """Print to stdout in UTF-8, whatever the locale."""
    with _output_errors():
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()


def say(text: str) -> None:
    """Print to stderr, wrapped between words on a terminal; errors are ignored.

    Text with terminal controls, or without a final newline, is not wrapped.
    """
    try:
        if text.endswith("\n") and "\r" not in text and "\x1b" not in text:
            text = _wrap(text)
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def _wrap(text: str) -> str:
    """Wrap lines that the terminal would break anywhere, but not those laid out in columns."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):
        columns = 0
    if not columns:
        return text
    width = max(MIN_COLUMNS, columns)
    lines: list[str] = []
    for line in text.split("\n"):
        laid_out = "  " in line or display_width(line) <= width
        lines += [line] if laid_out else hanging("", line, width)
    return "\n".join(lines)


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        with _interruptible_write():
            yield
    except (OSError, KeyboardInterrupt) as error:
        # Python flushes its buffers at exit: send what could not be written to /dev/null.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        if isinstance(error, (BrokenPipeError, KeyboardInterrupt)):
            raise
        raise RagmemError(f"Can't write the output: {error.strerror}.") from None


@contextmanager
def _interruptible_write() -> Iterator[None]:
    """Let Ctrl-C end a write whose reader is stuck: it blocks the loop that handles signals."""
    number = signal.SIGINT
    before = signal.getsignal(number)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before in (None, signal.SIG_IGN):
        yield
        return
    signal.signal(number, _interrupt_if_blocked)
    try:
        yield
    finally:
        signal.signal(number, before)


def _interrupt_if_blocked(_number: int, _frame: object) -> None:
    if not select.select((), (sys.stdout,), (), 0)[1]:
        raise KeyboardInterrupt


def is_interactive() -> bool:
    """Return whether a user can be asked: stdin and stderr are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def read_prompt(prompt: str | None) -> str:
    """Return the prompt from the command line and stdin; raise UsageError if it is empty.

    If the prompt is missing or `-`, stdin is the prompt; otherwise piped input is appended in a
    block.
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
    """Return the error for an empty prompt."""
    return UsageError("The prompt is empty.", hint="Type your question after the command.")


def typed(argument: str) -> str:
    """Decode an argument as UTF-8, also if the locale's encoding lacks its characters."""
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeError:
        return argument


def words(text: str) -> str:
    """Return an argument decoded as UTF-8 and stripped; raise UsageError if it is empty."""
    if not (said := typed(text).strip()):
        raise UsageError("The text is empty.")
    return said


def join_prompt(prompt: str, piped: str) -> str:
    """Append piped input, unless it is blank, to a prompt, which may be empty."""
    if not piped.strip():
        return prompt
    return f"{prompt}\n\n<stdin>\n{piped.rstrip()}\n</stdin>".lstrip("\n")


def _read_stdin() -> str:
    fd, data = sys.stdin.fileno(), bytearray()
    try:
        if not select.select([fd], [], [], _STDIN_WAIT_S)[0]:
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
    """Serialize to JSON that any parser accepts; `indent=None` keeps it on one line."""
    return clean(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=indent)) + "\n"


def print_one(
    output: str, document: Callable[[], object], text: Callable[[int], str], *, pipe: int = 120
) -> None:
    """Print one object as JSON or as text, according to `--format`.

    `text` takes the width of the terminal; `pipe` is the width without one.
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
    """Print a list as JSON or text, according to `--format`; `nothing` on stderr if it is empty.

    If it `has_more`, these are the newest, and a note on stderr says so.
    """
    if output == "json":
        write_json(to_json([document(each) for each in found]))
    elif found:
        write(text(columns()))
        if has_more:
            say(f"Showing the newest {len(found):,}; use --limit for more.\n")
    else:
        say(nothing)


def columns(default: int = 120) -> int:
    """Return the width of the terminal; `default` in a pipe."""
    return get_terminal_size((default, 24)).columns


# --- files --------------------------------------------------------------------


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """Yield a new empty file (mode 0600), which is renamed to `file` if the block succeeds.

    Raises UsageError if `file` exists or can't be created, RagmemError if it can't be written.
    """
    file = Path(os.path.abspath(expanded(file)))
    if os.path.lexists(file):
        raise _exists_error(file)
    part = file.with_name(f".{file.name[:100]}.{new_id()[-12:]}.ragmem-part")
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise UsageError(f"Can't write {file}: {error.strerror}.") from None
    try:
        yield part
        failpoint("export.written")
        _sync_file(part)
        try:
            os.link(part, file)
        except FileExistsError:
            raise _exists_error(file) from None
        except OSError:  # a file system without hard links
            part.rename(file)
        failpoint("export.named")
        sync_folder(file.parent)
    except OSError as error:
        raise RagmemError(f"Can't write {file}: {error.strerror or error}.") from None
    finally:
        part.unlink(missing_ok=True)


def _exists_error(file: Path) -> UsageError:
    return UsageError(f"{file} already exists.", hint="Choose another name, or delete the file.")


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_without_secrets(file: Path) -> bytes:
    """Read a file, or stdin for `-`, that is to be imported, and redact known keys."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise unreadable(file, error) from None
    know(secrets_among(environment()))
    return redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


# --- progress -----------------------------------------------------------------


@contextmanager
def resumable(kept: str) -> Iterator[None]:
    """Say, if Ctrl-C ends the block, that `kept` stays and that another run continues."""
    try:
        yield
    except asyncio.CancelledError:
        say(f"Stopped. {kept} kept; run it again to continue.\n")
        raise


class PassingLine:
    """A status line on a terminal's stderr, which the next one replaces."""

    def __init__(self, paint: Paint = UNPAINTED) -> None:
        self._paint = paint
        self._columns = 0

    def show(self, text: str) -> None:
        """Replace the status line by this text, clipped to the terminal's width."""
        self.clear()
        text = clip_to_width(one_line(text, 400), get_terminal_size().columns - 1)
        self._columns = display_width(text)
        say(self._paint((text, "dim")))

    def clear(self) -> None:
        """Erase the status line, so that the next output starts on an empty line."""
        if self._columns:
            say("\r" + " " * self._columns + "\r")
            self._columns = 0


ShowSteps = Callable[[int, int], None]
"""Called with the number of completed steps, and the total."""
Phase = Literal["copying", "comparing", "embedding", "reading"]
ShowRecords = Callable[[Phase, int], None]
"""Called with the number of records processed since the last call."""

_MIN_STEPS = 200
"""The least total for which progress is shown."""


@contextmanager
def steps(what: str) -> Iterator[ShowSteps]:
    """Show progress on stderr: a status line on a terminal, else a line for each 10 %."""
    with _progress() as show:
        yield lambda done, of: show(what, done, of) if of >= _MIN_STEPS else None


@contextmanager
def records(total: int) -> Iterator[ShowRecords]:
    """Show on stderr how many of `total` records each phase has processed."""
    came: Counter[Phase] = Counter()

    def add(phase: Phase, count: int) -> None:
        # `total` leaves out vectors, for example, so that a phase may count more.
        came[phase] = min(came[phase] + count, total)
        show(phase, came[phase], total)

    with _progress() as show:
        yield add


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows a label, the number done, and the total."""
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

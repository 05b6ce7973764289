"""Parse bash command lines: which commands they run, and which files they may name.

A line that is not fully understood is marked as such: no rule can allow it, while a rule that
denies still checks everything that was found.
"""

import glob
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain
from pathlib import Path

import msgspec

from ragmem.text import Regex
from ragmem.tools.base import ToolFailure
from ragmem.tools.workspace import alternatives

_NAME = Regex(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_ASSIGNMENT = Regex(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_REDIRECTION = Regex(r"(?:\d*|\{\w+\})(&>>?|<<<|<<-?|<&|>&|<>|>>|>\||[<>])")
_PAIR = Regex(r"\\.", re.DOTALL)
_PLAIN = Regex(r"[\w@%+=:,./*?~^\[\]$#-]+")
_TRANSPARENT = {
    "if", "then", "else", "elif", "do", "while", "until", "!", "{", "}",
}  # fmt: skip
"""Words in command position that are followed by another command."""
_RESERVED = {
    "fi", "done", "esac", "for", "case", "select", "function", "coproc", "in", "[[", "]]",
    "time",
} | _TRANSPARENT  # fmt: skip
WRAPPERS = {
    "sudo", "doas", "env", "nohup", "time", "xargs", "command", "exec", "builtin", "nice",
    "ionice", "timeout", "setsid", "stdbuf", "busybox", "find", "chroot", "flock", "unshare",
    "watch", "parallel", "function", "coproc", "trap", "strace", "ltrace", "script", "setarch",
    "taskset", "chrt", "pkexec", "systemd-run", "nsenter", "bwrap", "fakeroot", "xvfb-run", "entr",
    "mapfile", "readarray", "unbuffer", "rlwrap", "numactl", "prlimit", "chronic", "faketime",
    "torsocks", "proxychains", "proxychains4", "dbus-run-session", "eatmydata", "choom",
    "uclampset", "cpulimit", "hyperfine", "toybox", "watchexec", "capsh", "setpriv", "runuser",
    "jobs", "compgen", "ld.so",
}  # fmt: skip
"""Programs and keywords that run the command in their arguments."""
SHELLS = {
    "bash", "sh", "zsh", "dash", "ash", "csh", "tcsh", "ksh", "fish", "pwsh", "su", "eval", "at",
    "batch", "sg",
}  # fmt: skip
_UNUSUAL_QUOTING = ("((", "$[", "`")
"""Where bash parses quotes by other rules, wherever they occur: no line with them is clear."""
_MOST_DEPTH = 12
_MOST_WORDS = 300_000
"""Most words in all commands that a line runs, nested ones counted again: about a second."""
_GIT_OPTIONS_WITH_VALUE = {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"}
"""Options before git's subcommand that take the next word as their value."""
_ACTING = {
    "git": ("--output", "--open-files-in-pager", "-O", "--exec", "--ext-diff", "--textconv"),
    "rg": ("--pre", "--hostname-bin"),
    "sort": ("--output", "-o", "--compress-program"),
    "make": ("--eval", "-E", "--file", "--makefile", "-f", "--directory", "-C", "-I"),
    "cargo": ("--config", "--manifest-path", "-Z", "-C"),
    "npm": ("--script-shell", "--node-options", "--prefix", "--userconfig", "--globalconfig"),
    "pnpm": ("--script-shell", "--shell-emulator", "--dir", "-C"),
}  # fmt: skip
"""Options by which a program that otherwise only reads or builds runs or writes what they name."""
_ACTING_GO = Regex(r"--?(?:exec|toolexec|vettool|overlay|modfile|ldflags|gcflags|o|C)\b")
_PATH_PREFIX_END = Regex(r"[=:,@]")
"""What may precede a path within a word: `--file=a`, `HEAD:a`, `@a`."""
_MOST_FOLDERS, _MOST_LOOKS, _LONGEST_PATH = 16, 5_000, 4_096


class CommandWords(msgspec.Struct, frozen=True):
    """A simple command: its words, with quotes removed."""

    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the command on one line, each word quoted where necessary."""
        return " ".join(map(spelled, self.words))

    @property
    def acts(self) -> bool:
        """Whether an option makes it run or write something, which no `*` of a rule may cover."""
        name = self.words[0].rpartition("/")[2]
        if name == "go":
            return any(map(_ACTING_GO.match, self.words))
        if name == "make" and any("=" in word for word in self.words):
            return True
        given = [word.partition("=")[0] for word in self.words[1:] if word.startswith("-")]
        return any(_is_option(word, option) for word in given for option in _ACTING.get(name, ()))


class Parsed(msgspec.Struct, frozen=True):
    """A parsed command line."""

    commands: tuple[CommandWords, ...]
    """Every simple command that it runs, including those in lists, pipelines and substitutions."""
    is_clear: bool
    """Whether the commands are all that it does: it writes no file, and nothing was left unparsed.

    A line with a here-document is never clear: shells disagree on where one ends.
    """
    files: tuple[str, ...] = ()
    """Files that it is redirected from and to."""
    inputs: tuple[str, ...] = ()
    """The texts of here-documents and here-strings (`<<<`)."""
    is_whole: bool = True
    """Whether everything was parsed, however deeply nested."""


@lru_cache(64)
def parse(line: str) -> Parsed:
    """Find the commands of a line of bash. Cached, since several rules ask for each command."""
    text = line
    # Bash joins continued lines, except in some quotes, comments and here-documents.
    if is_joined := not any(sign in line for sign in ("'", "#", "<<", "`")):
        text = _PAIR.sub(lambda pair: "" if pair[0] == "\\\n" else pair[0], line)
    reader = _Reader(text)
    reader.commands("")
    commands = tuple(map(CommandWords, filter(None, reader.found)))
    return Parsed(
        commands,
        reader.is_clear
        and (is_joined or "\\\n" not in line)
        and not any(sign in text for sign in _UNUSUAL_QUOTING),
        tuple(reader.files),
        tuple(reader.inputs),
        reader.is_whole,
    )


def spelled(word: str) -> str:
    """Return a word quoted for a shell where necessary; wildcards such as `*` stay unquoted."""
    return word if _PLAIN.fullmatch(word) else shlex.quote(word)


def run_by(parsed: Parsed) -> Iterator[CommandWords]:
    """Yield each command of a line and those it runs in turn: after `sudo`, in `bash -c '…'`.

    A command whose program is a path is also yielded by the program's name, and git without the
    options before its subcommand. For rules that deny: these are not all ways to run a command.
    Raises TooMuch if scripts are nested too deeply, or if there are too many commands.
    """
    left = _MOST_WORDS
    for command in _run_by(parsed, 0):
        left -= len(command.words)
        if left < 0:
            raise TooMuch
        yield command


def _run_by(parsed: Parsed, depth: int) -> Iterator[CommandWords]:
    if depth > _MOST_DEPTH or not parsed.is_whole:
        raise TooMuch
    scripts: list[str] = []
    reads_input = False
    for command in parsed.commands:
        words = _without_assignments(command.words)
        name = words[0].rpartition("/")[2] if words else ""
        starts = range(len(words)) if name in WRAPPERS else range(min(1, len(words)))
        for inner in (_without_assignments(words[at:]) for at in starts):
            name = inner[0].rpartition("/")[2] if inner else ""
            if inner and not name.startswith("-"):
                yield CommandWords(inner)
                yield CommandWords((name, *inner[1:]))
            if name == "git":
                yield CommandWords(("git", *_subcommand(inner[1:])))
            elif name == "eval":
                scripts.append(" ".join(inner[1:]))
            elif name in SHELLS:
                scripts += inner[1:]
                reads_input = True
        scripts += [word for word in words if " " in word] if len(starts) > 1 else []
    if reads_input:
        scripts += parsed.inputs
        scripts += (" ".join(command.words[1:]) for command in parsed.commands)
    for script in dict.fromkeys(scripts):
        yield from _run_by(parse(script), depth + 1)


class TooMuch(Exception):
    """Raised for a line that is too long or too deeply nested to be examined."""


def _without_assignments(words: tuple[str, ...]) -> tuple[str, ...]:
    at = next((at for at, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    return words[at:]


def _subcommand(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return git's arguments from the subcommand on."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _GIT_OPTIONS_WITH_VALUE else 1
    return words[at:]


def _is_option(word: str, option: str) -> bool:
    """Return whether a word is an option, possibly abbreviated or combined behind one dash."""
    if option.startswith("--"):
        return len(word) > 2 and option.startswith(word)
    return not word.startswith("--") and option[1] in word


class _Reader:
    """Parser that reads a line from left to right."""

    def __init__(self, text: str, *, depth: int = 0, at: int = 0) -> None:
        self.found: list[tuple[str, ...]] = []
        self.files: list[str] = []
        self.inputs: list[str] = []
        self.is_clear = self.is_whole = depth < _MOST_DEPTH
        self._text = text
        self._depth = depth
        self._at = at if self.is_clear else len(text)
        self._bodies: list[tuple[str, str, bool]] = []
        """Here-documents that begin with the next line: the delimiter, what may precede it, and
        whether the body expands."""

    @property
    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def commands(self, until: str) -> None:
        """Read commands up to and including `until`, or to the end of the text."""
        words: list[str] = []

        def end() -> None:
            self.found.append(tuple(words))
            words.clear()

        while char := self._next:
            if char in " \t":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "\n":
                self._at += 1
                end()
                self._skip_bodies()
            elif char == "#":
                self._at = (self._text.find("\n", self._at) + 1 or len(self._text) + 1) - 1
            elif char == until:
                self._at += 1
                end()
                return
            elif char == "(" and not words:
                self._at += 1
                self._read_nested(self.commands, ")")
            elif char in "()":
                self.is_clear = False
                self._at += 1
                end()
            elif self._redirects():
                continue
            elif char in ";&|":
                self._at += 1
                end()
            else:
                self._word(words)
        self.is_clear &= not until
        end()

    def _word(self, words: list[str]) -> None:
        word, is_plain = self._read_word()
        if words:
            words.append(word)
        elif is_plain and word in _RESERVED:
            self.is_clear &= word == "!"
            if word not in _TRANSPARENT:
                words.append(word)
        else:
            # A word with an expansion may become any program's name.
            self.is_clear &= is_plain
            words.append(word)

    # --- words ------------------------------------------------------------------

    def _read_word(self) -> tuple[str, bool]:
        """Return the next word, and whether it is literal: nothing in it expands."""
        parts: list[str] = []
        is_plain = True
        while (char := self._next) and char not in " \t\n;&|<>()":
            if char == "'":
                parts.append(self._single_quoted())
            elif char == '"':
                self._at += 1
                parts.append(self._double_quoted('"'))
                is_plain &= "$" not in parts[-1] and "`" not in parts[-1]
            elif char == "\\":
                escaped = self._text[self._at + 1 : self._at + 2]
                self.is_clear &= bool(escaped)  # a final backslash is literal
                parts.append("" if escaped == "\n" else escaped)
                self._at += 2
            elif char in "$`":
                parts.append(self._expansion(in_quotes=False))
                is_plain = False
            else:
                is_plain &= char not in "*?["
                # `{a,b}` expands to several words.
                self.is_clear &= char != "{" or self._text[self._at + 1 : self._at + 2] in " \t\n}"
                parts.append(char)
                self._at += 1
        if self._next == "(":  # an array, a function or a pattern
            self.is_clear = False
        return "".join(parts), is_plain

    def _single_quoted(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            self.is_clear = False
            end = len(self._text)
        text = self._text[self._at + 1 : end]
        self._at = end + 1
        return text

    def _double_quoted(self, quote: str) -> str:
        """Read up to the closing quote, or to the end of the text if `quote` is empty."""
        parts: list[str] = []
        while (char := self._next) and char != quote:
            if char == "\\":
                escaped = self._text[self._at + 1 : self._at + 2]
                if escaped != "\n":
                    parts.append(escaped if escaped in '$`"\\' else f"\\{escaped}")
                self._at += 2
            elif char in "$`":
                parts.append(self._expansion(in_quotes=True))
            else:
                parts.append(char)
                self._at += 1
        if quote and not self._next:
            self.is_clear = False
        self._at += 1
        return "".join(parts)

    def _expansion(self, *, in_quotes: bool) -> str:
        """Read an expansion, from its `$` or backtick; commands in it are collected too."""
        start = self._at
        if self._next == "`":
            self._backticks()
        else:
            self._at += 1
            char = self._next
            if char == "[":  # $[1 + 2], in which quotes have no meaning
                self._at += 1
                self._read_nested(self._double_quoted, "]")
            elif char == "(":
                self.is_clear &= self._text[self._at + 1 : self._at + 2] != "("
                self._at += 1
                self._substitution(")")
            elif char == "{":
                self._braces()
            elif char in ("'", '"') and char and not in_quotes:
                self.is_clear = False  # $'…' has its own escapes
                if char == "'":
                    return self._single_quoted()
                self._at += 1
                return self._double_quoted('"')
            elif name := _NAME.match(self._text, self._at):
                self._at = name.end()
        return self._text[start : self._at]

    def _read_nested(self, read: Callable[[str], object], until: str) -> None:
        """Read a nested construct; if the nesting is too deep, stop parsing altogether."""
        self._depth += 1
        if self._depth < _MOST_DEPTH:
            read(until)
        else:
            self.is_clear = self.is_whole = False
            self._at = len(self._text)
        self._depth -= 1

    def _substitution(self, until: str) -> None:
        inner = _Reader(self._text, depth=self._depth + 1, at=self._at)
        inner.commands(until)
        self._merge(inner)
        self._at = inner._at

    def _backticks(self) -> None:
        end = self._at + 1
        while end < len(self._text) and self._text[end] != "`":
            end += 2 if self._text[end] == "\\" else 1
        self.is_clear &= end < len(self._text)
        script = re.sub(r"\\([`\\$])", r"\1", self._text[self._at + 1 : end])
        inner = _Reader(script, depth=self._depth + 1)
        inner.commands("")
        self._merge(inner)
        self._at = end + 1

    def _braces(self) -> None:
        """Read `${…}`: all but a plain `${NAME}` can do more, and only its commands are found."""
        end = self._text.find("}", self._at)
        if _NAME.fullmatch(self._text[self._at + 1 : end]) and end > 0:
            self._at = end + 1
            return
        self.is_clear = False
        self._at += 1
        self._read_nested(self._double_quoted, "}")

    def _merge(self, inner: "_Reader") -> None:
        self.found += inner.found
        self.files += inner.files
        self.inputs += inner.inputs
        self.is_whole &= inner.is_whole
        self.is_clear &= inner.is_clear

    # --- files ------------------------------------------------------------------

    def _redirects(self) -> bool:
        """Read a redirection, if one begins here; writing to a file makes a line unclear."""
        found = _REDIRECTION.match(self._text, self._at)
        if not found:
            return False
        sign, self._at = found[1], found.end()
        if self._next == "(":
            self._at += 1
            self._substitution(")")
            return True
        while self._next and self._next in " \t":
            self._at += 1
        start = self._at
        target, is_plain = self._read_word()
        if sign in ("<<", "<<-"):
            raw = self._text[start : self._at]
            before = "\t" if sign == "<<-" else ""
            self._bodies.append((target, before, not any(c in raw for c in "'\"\\")))
            self.is_clear = False
            return True
        (self.inputs if sign == "<<<" else self.files).append(target)
        reads = sign in ("<", "<<<")
        copies = sign in (">&", "<&") and re.fullmatch(r"\d+|-", target) is not None
        self.is_clear &= reads or copies or (is_plain and target == "/dev/null")
        return True

    def _skip_bodies(self) -> None:
        """Skip the bodies of here-documents, but collect the commands substituted into them."""
        for end, before, expands in self._bodies:
            lines: list[str] = []
            while self._at < len(self._text):
                stop = self._text.find("\n", self._at)
                line = self._text[self._at : stop if stop >= 0 else len(self._text)]
                self._at = stop + 1 if stop >= 0 else len(self._text)
                if line.lstrip(before) == end:
                    break
                lines.append(line)
            self.inputs.append("\n".join(lines))
            if expands:
                inner = _Reader(self.inputs[-1], depth=self._depth + 1)
                inner._double_quoted("")
                self._merge(inner)
        self._bodies.clear()


# --- the files that a line names ------------------------------------------------------


def named_paths(line: str, cwd: Path) -> Iterator[Path]:
    """Yield every path that a command line's words may mean, in each folder that they name.

    Yields paths as written, and resolved. Paths that a program derives itself are not included.
    Raises TooMuch if the words may mean more paths than can be examined.
    """
    parsed = parse(line)
    written = [*parsed.files, *(word for each in run_by(parsed) for word in each.words)]
    parts = [part for word in written for part in (word, *_PATH_PREFIX_END.split(word)) if part]
    words: dict[str, None] = {}
    for part in dict.fromkeys(parts):
        try:
            words |= dict.fromkeys(map(os.path.expanduser, alternatives(part)))
        except ToolFailure:
            raise TooMuch from None
    budget = _Budget()
    short = [word for word in words if len(word) <= _LONGEST_PATH]
    folders = [cwd]
    for word in short:
        for folder in folders[:_MOST_FOLDERS]:
            budget.count()
            here = Path(os.path.normpath(folder / word))
            if here not in folders and os.path.isdir(here):
                folders.append(here)
    for folder in folders[:_MOST_FOLDERS]:
        for word in short:
            candidates: Iterable[Path] = [folder / word]
            if glob.has_magic(word):
                candidates = chain(candidates, budget.globbed(word, folder))
            for each in candidates:
                budget.count()
                path = Path(os.path.normpath(each))
                yield path
                with suppress(OSError, ValueError, RuntimeError):
                    yield path.resolve()


class _Budget:
    """Counts the paths examined for one line; raises TooMuch beyond what takes about a second."""

    def __init__(self) -> None:
        self._left = _MOST_LOOKS

    def count(self) -> None:
        """Count one more name or path."""
        self._left -= 1
        if self._left < 0:
            raise TooMuch

    def globbed(self, word: str, folder: Path) -> list[Path]:
        """Expand a pattern in a folder as a shell does: `*` matches no leading dot."""
        found = [Path("/") if word.startswith("/") else folder]
        for segment in word.split("/"):
            if glob.has_magic(segment):
                pattern = segment.replace("[^", "[!")
                found = [
                    here / name
                    for here in found
                    for name in self._names(here)
                    if (segment[0] == "." or name[0] != ".") and fnmatchcase(name, pattern)
                ]
            else:
                found = [here / segment for here in found]
        return found

    def _names(self, folder: Path) -> Iterator[str]:
        with suppress(OSError, ValueError), os.scandir(folder) as entries:
            for entry in entries:
                self.count()
                yield entry.name

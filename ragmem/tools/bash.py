"""The commands within a bash command line, to compare them with a person's rules.

What is not wholly understood is said to be so: then no rule can allow the line, and a rule
that denies still looks at all that was found.
"""

import re
import shlex
from collections.abc import Iterator

import msgspec

_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_REDIRECTION = re.compile(r"(?:\d*|\{\w+\})(&>>?|<<<|<<-?|<&|>&|<>|>>|>\||[<>])")
_PLAIN = re.compile(r"[\w@%+=:,./*?~^\[\]$#-]+")
_TRANSPARENT = {
    "if", "then", "else", "elif", "do", "while", "until", "!", "time", "{", "}",
}  # fmt: skip
"""Words in the place of a command that another command follows."""
_RESERVED = {
    "fi", "done", "esac", "for", "case", "select", "function", "coproc", "in", "[[", "]]",
} | _TRANSPARENT  # fmt: skip
_WRAPPERS = {
    "sudo", "doas", "env", "nohup", "time", "xargs", "command", "exec", "builtin", "nice",
    "ionice", "timeout", "setsid", "stdbuf", "busybox", "find", "chroot", "flock", "unshare",
    "watch", "parallel",
}  # fmt: skip
"""Programs that run the command in their arguments."""
_SHELLS = {
    "bash", "sh", "zsh", "dash", "ksh", "fish", "su", "eval",
}  # fmt: skip
_MOST_DEPTH = 12


class CommandWords(msgspec.Struct, frozen=True):
    """A simple command: its words, as they stand without their quotes."""

    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return it on one line, each word quoted where it must be."""
        return " ".join(map(spelled, self.words))


class Parsed(msgspec.Struct, frozen=True):
    """A command line."""

    commands: tuple[CommandWords, ...]
    """All that it runs: parts of lists, pipelines and substitutions."""
    is_clear: bool
    """Whether that is all that it does: no file is written by it, nothing is left unread."""
    files: tuple[str, ...] = ()
    """What it is redirected from and to."""


def parse(line: str) -> Parsed:
    """Find the commands of a line of bash."""
    reader = _Reader(line)
    reader.commands("")
    commands = tuple(map(CommandWords, filter(None, reader.found)))
    return Parsed(commands, reader.is_clear, tuple(reader.files))


def spelled(word: str) -> str:
    """Return a word as a shell would have to read it; `*` and the like need no quotes here."""
    return word if _PLAIN.fullmatch(word) else shlex.quote(word)


def also_run(command: CommandWords, depth: int = 0) -> Iterator[CommandWords]:
    """Yield the command and what it runs in its turn: behind `sudo`, in `bash -c '…'`.

    Each by its program's name too, where that is a path. For rules that deny: it is not all that
    can be run so.
    """
    words = list(command.words)
    while words and _ASSIGNMENT.match(words[0]):
        words.pop(0)
    if not words:
        return
    name = words[0].rpartition("/")[2]
    yield CommandWords(tuple(words))
    if name != words[0]:
        yield CommandWords((name, *words[1:]))
    if depth == _MOST_DEPTH:
        return
    if name in _WRAPPERS:
        for at in range(1, len(words)):
            if not words[at].startswith("-"):
                yield from also_run(CommandWords(tuple(words[at:])), depth + 1)
                if words[at].rpartition("/")[2] in _WRAPPERS | _SHELLS:
                    return
    elif name in _SHELLS:
        scripts = [" ".join(words[1:])] if name == "eval" else words[1:]
        for script in scripts:
            for each in parse(script).commands:
                yield from also_run(each, depth + 1)


class _Reader:
    """Reads a line from left to right."""

    def __init__(self, text: str, *, depth: int = 0, at: int = 0) -> None:
        self.found: list[tuple[str, ...]] = []
        self.files: list[str] = []
        self.is_clear = depth < _MOST_DEPTH
        self._text = text
        self._depth = depth
        self._at = at if self.is_clear else len(text)
        self._bodies: list[tuple[str, bool]] = []
        """Ends of the here-documents that begin with the next line, and whether they expand."""

    @property
    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def commands(self, until: str) -> None:
        """Read commands up to and with `until`, or to the end of the text."""
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
                self.commands(")")
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
        self.is_clear &= not until and not self._bodies
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
            # What expands to the name of a program can be any.
            self.is_clear &= is_plain
            words.append(word)

    # --- words ------------------------------------------------------------------

    def _read_word(self) -> tuple[str, bool]:
        """Return the next word, and whether it stands there as it is run: nothing expands."""
        parts: list[str] = []
        is_plain = True
        while (char := self._next) and char not in " \t\n;&|<>()":
            if char == "'":
                parts.append(self._single())
            elif char == '"':
                self._at += 1
                parts.append(self._double('"'))
                is_plain &= "$" not in parts[-1] and "`" not in parts[-1]
            elif char == "\\":
                escaped = self._text[self._at + 1 : self._at + 2]
                parts.append("" if escaped == "\n" else escaped)
                self._at += 2
            elif char in "$`":
                parts.append(self._expansion(in_quotes=False))
                is_plain = False
            else:
                is_plain &= char not in "*?["
                # `{a,b}` are several words.
                self.is_clear &= char != "{" or self._text[self._at + 1 : self._at + 2] in " \t\n}"
                parts.append(char)
                self._at += 1
        if self._next == "(":  # an array, a function, a pattern
            self.is_clear = False
        return "".join(parts), is_plain

    def _single(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            self.is_clear = False
            end = len(self._text)
        text = self._text[self._at + 1 : end]
        self._at = end + 1
        return text

    def _double(self, quote: str) -> str:
        """Read to the quote, or to the end of the text where that is empty."""
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
        """Read what begins with `$` or a backtick; commands in it are found too."""
        start = self._at
        if self._next == "`":
            self._backticks()
        else:
            self._at += 1
            char = self._next
            if char == "(":
                self.is_clear &= self._text[self._at + 1 : self._at + 2] != "("
                self._at += 1
                self._nested(")")
            elif char == "{":
                self._braces()
            elif char in ("'", '"') and char and not in_quotes:
                self.is_clear = False  # $'…' spells characters in other ways
                return self._single() if char == "'" else self._quoted()
            elif name := _NAME.match(self._text, self._at):
                self._at = name.end()
        return self._text[start : self._at]

    def _quoted(self) -> str:
        self._at += 1
        return self._double('"')

    def _nested(self, until: str) -> None:
        inner = _Reader(self._text, depth=self._depth + 1, at=self._at)
        inner.commands(until)
        self._take(inner)
        self._at = inner._at

    def _backticks(self) -> None:
        end = self._at + 1
        while end < len(self._text) and self._text[end] != "`":
            end += 2 if self._text[end] == "\\" else 1
        self.is_clear &= end < len(self._text)
        script = re.sub(r"\\([`\\$])", r"\1", self._text[self._at + 1 : end])
        inner = _Reader(script, depth=self._depth + 1)
        inner.commands("")
        self._take(inner)
        self._at = end + 1

    def _braces(self) -> None:
        """`${NAME}` is a value; all else can do more, and its commands alone are found."""
        end = self._text.find("}", self._at)
        if _NAME.fullmatch(self._text[self._at + 1 : end]) and end > 0:
            self._at = end + 1
            return
        self.is_clear = False
        self._at += 1
        self._double("}")

    def _take(self, inner: "_Reader") -> None:
        self.found += inner.found
        self.files += inner.files
        self.is_clear &= inner.is_clear

    # --- files ------------------------------------------------------------------

    def _redirects(self) -> bool:
        """Read a redirection, if one begins here: what writes to a file is not clear."""
        found = _REDIRECTION.match(self._text, self._at)
        if not found:
            return False
        sign, self._at = found[1], found.end()
        if self._next == "(":
            self._at += 1
            self._nested(")")
            return True
        while self._next and self._next in " \t":
            self._at += 1
        start = self._at
        target, is_plain = self._read_word()
        if sign in ("<<", "<<-"):
            raw = self._text[start : self._at]
            self._bodies.append((target, not any(c in raw for c in "'\"\\")))
            return True
        if sign != "<<<":
            self.files.append(target)
        if sign in ("<", "<<<") or (sign in (">&", "<&") and re.fullmatch(r"\d+|-", target)):
            pass
        else:
            self.is_clear &= is_plain and target == "/dev/null"
        return True

    def _skip_bodies(self) -> None:
        """Leave the here-documents out, but for the commands that are run to fill them."""
        for end, expands in self._bodies:
            lines: list[str] = []
            while self._at < len(self._text):
                stop = self._text.find("\n", self._at)
                line = self._text[self._at : stop if stop >= 0 else len(self._text)]
                self._at = stop + 1 if stop >= 0 else len(self._text)
                if line.lstrip("\t") == end:
                    break
                lines.append(line)
            else:
                self.is_clear = False
            if expands:
                inner = _Reader("\n".join(lines), depth=self._depth + 1)
                inner._double("")
                self._take(inner)
        self._bodies.clear()

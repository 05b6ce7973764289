"""What a command line runs, and what a person's rules of permission allow and deny of it.

A rule is a tool's name, `edit_file`, or with a pattern, `edit_file(src/**)`. A command's is
compared with each command that the line runs, never with the line's text. What is not wholly
understood of a line is said to be so: then no rule can allow it, and a rule that denies still
looks at all that was found.
"""

import glob
import os
import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

import msgspec

from ragmem.errors import UsageError
from ragmem.own_tools import OWN_TOOLS, READ_FILE, RUN_COMMAND
from ragmem.text import Regex
from ragmem.tools.base import ToolFailure
from ragmem.tools.workspace import alternatives, matcher

# --- the commands within a bash command line --------------------------------------

_NAME = Regex(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_ASSIGNMENT = Regex(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_REDIRECTION = Regex(r"(?:\d*|\{\w+\})(&>>?|<<<|<<-?|<&|>&|<>|>>|>\||[<>])")
_PAIR = Regex(r"\\.", re.DOTALL)
_PLAIN = Regex(r"[\w@%+=:,./*?~^\[\]$#-]+")
_TRANSPARENT = {
    "if", "then", "else", "elif", "do", "while", "until", "!", "{", "}",
}  # fmt: skip
"""Words in the place of a command that another command follows."""
_RESERVED = {
    "fi", "done", "esac", "for", "case", "select", "function", "coproc", "in", "[[", "]]",
    "time",
} | _TRANSPARENT  # fmt: skip
WRAPPERS = {
    "sudo", "doas", "env", "nohup", "time", "xargs", "command", "exec", "builtin", "nice",
    "ionice", "timeout", "setsid", "stdbuf", "busybox", "find", "chroot", "flock", "unshare",
    "watch", "parallel", "function", "coproc", "trap", "strace", "ltrace", "script", "setarch",
    "taskset", "chrt", "pkexec", "systemd-run", "nsenter", "bwrap", "fakeroot", "xvfb-run", "entr",
    "mapfile",
}  # fmt: skip
"""Programs and words that run the command in their arguments."""
SHELLS = {
    "bash", "sh", "zsh", "dash", "ash", "csh", "tcsh", "ksh", "fish", "pwsh", "su", "eval", "at",
    "batch",
}  # fmt: skip
_QUOTED_OTHERWISE = ("((", "$[", "`")
"""Where bash takes quotes for other ones, wherever they stand: no line with them is clear."""
_MOST_DEPTH = 12
_MOST_WORDS = 300_000
"""Of all that a line runs, a word for each command that it stands in; it takes about a second."""
_OF_GIT_WITH_VALUE = {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"}
"""Options before git's subcommand that take the next word."""


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
    """Whether that is all that it does: no file is written by it, nothing is left unread.

    A line with a here-document is never clear: where one ends is not told alike by all shells.
    """
    files: tuple[str, ...] = ()
    """What it is redirected from and to."""
    inputs: tuple[str, ...] = ()
    """The texts of here-documents, and of what stands behind `<<<`."""
    is_whole: bool = True
    """Whether all was looked at, however deep it stands."""


@lru_cache(64)
def parse(line: str) -> Parsed:
    """Find the commands of a line of bash; before one runs, several rules ask for them."""
    text = line
    # A line that goes on is joined to the next by bash, but in some quotes, comments and bodies.
    if is_joined := not any(sign in line for sign in ("'", "#", "<<", "`")):
        text = _PAIR.sub(lambda pair: "" if pair[0] == "\\\n" else pair[0], line)
    reader = _Reader(text)
    reader.commands("")
    commands = tuple(map(CommandWords, filter(None, reader.found)))
    return Parsed(
        commands,
        reader.is_clear
        and (is_joined or "\\\n" not in line)
        and not any(sign in text for sign in _QUOTED_OTHERWISE),
        tuple(reader.files),
        tuple(reader.inputs),
        reader.is_whole,
    )


def spelled(word: str) -> str:
    """Return a word as a shell would have to read it; `*` and the like need no quotes here."""
    return word if _PLAIN.fullmatch(word) else shlex.quote(word)


def run_by(parsed: Parsed) -> Iterator[CommandWords]:
    """Yield each command of a line and what it runs in its turn: behind `sudo`, in `bash -c '…'`.

    Each by its program's name too, where that is a path, and git's without the options before its
    subcommand. For rules that deny: it is not all that can be run so. TooMuch where scripts stand
    in each other too deep, or too many commands behind each other, to be looked at.
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
    """Raised where a line says more, or in each other deeper, than is looked at."""


def _without_assignments(words: tuple[str, ...]) -> tuple[str, ...]:
    at = next((at for at, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    return words[at:]


def _subcommand(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return git's words from the subcommand on."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _OF_GIT_WITH_VALUE else 1
    return words[at:]


class _Reader:
    """Reads a line from left to right."""

    def __init__(self, text: str, *, depth: int = 0, at: int = 0) -> None:
        self.found: list[tuple[str, ...]] = []
        self.files: list[str] = []
        self.inputs: list[str] = []
        self.is_clear = self.is_whole = depth < _MOST_DEPTH
        self._text = text
        self._depth = depth
        self._at = at if self.is_clear else len(text)
        self._bodies: list[tuple[str, str, bool]] = []
        """Ends of the here-documents that begin with the next line, what may stand before the end,
        and whether they expand."""

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
                self._deeper(self.commands, ")")
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
            if char == "[":  # $[1 + 2], within which quotes are none
                self._at += 1
                self._deeper(self._double, "]")
            elif char == "(":
                self.is_clear &= self._text[self._at + 1 : self._at + 2] != "("
                self._at += 1
                self._nested(")")
            elif char == "{":
                self._braces()
            elif char in ("'", '"') and char and not in_quotes:
                self.is_clear = False  # $'…' spells characters in other ways
                if char == "'":
                    return self._single()
                self._at += 1
                return self._double('"')
            elif name := _NAME.match(self._text, self._at):
                self._at = name.end()
        return self._text[start : self._at]

    def _deeper(self, read: Callable[[str], object], until: str) -> None:
        """Read what stands within, unless it stands too deep: then nothing more is read."""
        self._depth += 1
        if self._depth < _MOST_DEPTH:
            read(until)
        else:
            self.is_clear = self.is_whole = False
            self._at = len(self._text)
        self._depth -= 1

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
        self._deeper(self._double, "}")

    def _take(self, inner: "_Reader") -> None:
        self.found += inner.found
        self.files += inner.files
        self.inputs += inner.inputs
        self.is_whole &= inner.is_whole
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
        """Leave the here-documents out, but for the commands that are run to fill them."""
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
                inner._double("")
                self._take(inner)
        self._bodies.clear()


# --- rules ----------------------------------------------------------------------

OUTSIDE = "outside_sandbox"
"""Rules of this name are for commands too: for their leaving the sandbox."""
_RULE = Regex(r"([A-Za-z_][\w-]*)(?:\((.+)\))?", re.DOTALL)
_WITHIN_WORD = Regex(r"[=:,@]")
"""Before a path within a word: `--file=a`, `HEAD:a`, `@a`."""
_MOST_FOLDERS, _MOST_HIDDEN, _MOST_LOOKED_AT = 16, 1_000, 50_000
_MOST_LOOKS, _LONGEST_PATH = 5_000, 4_096


class PermissionRule(msgspec.Struct, frozen=True):
    """A tool, and which of its calls."""

    tool: str
    pattern: str = ""
    """Of commands or paths; empty: each call."""

    def covers_path(self, names: Sequence[str]) -> bool:
        """Return whether any of a file's names matches."""
        return not self.pattern or any(map(_path_matcher(self.pattern), names))

    def covers_command(self, command: CommandWords) -> bool:
        """Return whether it matches, as it is spelled with the quotes that it needs."""
        return _command_matcher(self.pattern).fullmatch(command.text) is not None


def read_rule(text: str) -> PermissionRule:
    """Read `tool` or `tool(pattern)`; UsageError for what is neither."""
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{text.strip()!r} is no rule.",
            hint="Rules are like run_command(git status*), edit_file(src/**) or run_command.",
        )
    rule = PermissionRule(found[1], (found[2] or "").strip())
    if rule.pattern and rule.tool not in (RUN_COMMAND, OUTSIDE):
        try:
            _path_matcher(rule.pattern)
        except ToolFailure as error:
            raise UsageError(f"{text.strip()!r}: {error.text}") from None
    return rule


@lru_cache(256)
def _path_matcher(pattern: str) -> Callable[[str], bool]:
    if pattern.startswith("~/"):
        pattern = f"{Path.home()}{pattern[1:]}"
    matches = matcher(pattern)
    # `./a.py` is the one in the folder itself, `a.py` one of that name anywhere.
    is_here = pattern.startswith("./") and "/" not in pattern[2:]
    return (lambda path: "/" not in path and matches(path)) if is_here else matches


@lru_cache(256)
def _command_matcher(pattern: str) -> re.Pattern[str]:
    """`*` is anything; `make *` is `make` too. Quotes are as a shell has them, or as spelled."""
    parsed = parse(pattern)
    if len(parsed.commands) == 1 and ("'" in pattern or '"' in pattern):
        pattern = " ".join(map(spelled, parsed.commands[0].words))
    head, ends_wide = re.subn(r" \*$", "", pattern)
    regex = ".*".join(map(re.escape, head.split("*")))
    return re.compile(regex + (r"(?: .*)?" if ends_wide else ""), re.DOTALL)


class PermissionRules:
    """What a person has allowed and denied, in advance; a rule that denies goes before all else."""

    def __init__(
        self,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        *,
        flags: Iterable[str] = (),
        here: tuple[Iterable[str], Iterable[str]] = ((), ()),
    ) -> None:
        """Take what is written, `here` for this project alone; UsageError for what is no rule."""
        self.allow = list(allow)
        """For good: from the person's own settings."""
        self.deny = list(deny)
        self.allow_here, self.deny_here = map(list, here)
        self.flags = list(flags)
        """Allowed in this session: from the command line, or by the person in the chat."""
        self.remembered: dict[tuple[str, str], str] = {}
        """What "always" was said to in this session: a kind and the exact thing of it, and how
        the question called that."""
        for each in (*self.allow, *self.allow_here, *self._denying, *self.flags):
            read_rule(each)

    @property
    def _allowing(self) -> list[PermissionRule]:
        return list(map(read_rule, (*self.allow, *self.allow_here, *self.flags)))

    @property
    def _denying(self) -> list[str]:
        return [*self.deny, *self.deny_here]

    def _denials(self, *tools: str) -> Iterator[tuple[str, PermissionRule]]:
        """Those that deny something to one of these, with how they are written."""
        rules = ((text, read_rule(text)) for text in self._denying)
        return ((text, rule) for text, rule in rules if rule.tool in tools)

    def denial_of_command(self, line: str, kind: str = RUN_COMMAND) -> str:
        """Return the rule that denies any part of a command line; empty where none does.

        The first one where the line is too much for all of it to be looked at.
        With `OUTSIDE` as `kind`, the one that denies its leaving the sandbox.
        """
        rules = list(self._denials(kind))
        if not rules:
            return ""
        try:
            commands = list(run_by(parse(line)))
        except TooMuch:
            return rules[0][0]
        covering = (t for t, r in rules if not r.pattern or any(map(r.covers_command, commands)))
        return next(covering, "")

    def allows_command(self, line: str, kind: str = RUN_COMMAND) -> bool:
        """Return whether each part of a command line is allowed, and the line does nothing else.

        With `OUTSIDE` as `kind`, whether it may leave the sandbox.
        """
        rules = [rule for rule in self._allowing if rule.tool == kind]
        if any(not rule.pattern for rule in rules):
            return True
        if not rules or not (parsed := parse(line)).is_clear or not parsed.commands:
            return False
        return all(any(rule.covers_command(each) for rule in rules) for each in parsed.commands)

    def denial_of_path(self, tool: str, names: Sequence[str], *, edits: bool = False) -> str:
        """Return the rule that denies a file to a tool that reads, or `edits`; empty: none does.

        One of read_file holds for all that read, one of edit_file for all that edit.
        """
        rules = self._denials(tool, "edit_file" if edits else READ_FILE)
        return next((text for text, rule in rules if rule.covers_path(names)), "")

    def allows_path(self, tool: str, names: Sequence[str]) -> bool:
        """Return whether this tool may have a file without asking."""
        return any(rule.tool == tool and rule.covers_path(names) for rule in self._allowing)

    def for_session(self, flags: Iterable[str] = ()) -> "PermissionRules":
        """Return the rules for good, shared, beside those of one session."""
        other = PermissionRules(flags=flags)
        other.allow, other.deny = self.allow, self.deny
        other.allow_here, other.deny_here = self.allow_here, self.deny_here
        return other

    def hides(self, real: Path, cwd: Path) -> bool:
        """Return whether a file at a real path must not be read."""
        return bool(self._denying and self.denial_of_path(READ_FILE, names_of(real, cwd)))

    @property
    def _hiding(self) -> dict[str, PermissionRule]:
        """The rules that keep some files from being read, by how they are written."""
        return {text: rule for text, rule in self._denials(READ_FILE) if rule.pattern}

    def denial_of_named(self, line: str, cwd: Path) -> str:
        """Return the rule that denies reading a file that a command line names; else empty.

        ToolFailure where the line may mean more files than can be looked at.
        """
        rules = self._hiding
        try:
            for path in named_paths(line, cwd) if rules else ():
                names = names_of(path, cwd)
                for text, rule in rules.items():
                    if rule.covers_path(names):
                        return text
        except TooMuch:
            raise ToolFailure(
                f"The person's rule {next(iter(rules))} keeps files from being read, and this "
                "command may mean more files than can be held against it: nothing was run. Use "
                "a shorter one, or no * ? [ ] over large folders.",
                denied=True,
                final=True,
            ) from None
        return ""

    def hidden_in(self, cwd: Path, roots: Iterable[Path]) -> set[Path]:
        """Return what is there and must not be read, in these folders and where a rule names it.

        Of a folder whose files are all denied it is the folder. At most 1,000 of 50,000 files.
        """
        found, wanted = set[Path](), list[PermissionRule]()
        rules = [(one, each) for one in self._hiding.values() for each in alternatives(one.pattern)]
        for rule, pattern in rules:
            above = os.path.expanduser(pattern.removesuffix("/**"))
            if "/" in above and not glob.has_magic(above):
                found.add(cwd / above)
            elif above.startswith("/"):
                found.update(map(Path, islice(glob.iglob(above, recursive=True), _MOST_HIDDEN)))
            else:
                wanted.append(rule)
        files = (path for root in roots if wanted for path in islice(_files(root), _MOST_LOOKED_AT))
        denied = (p for p in files if any(each.covers_path(names_of(p, cwd)) for each in wanted))
        found.update(islice(denied, _MOST_HIDDEN))
        return {path for path in found if path.exists()}

    def denies(self, tool: str) -> str:
        """Return the rule that denies a tool whatever it is to do; empty where none does."""
        # Calls of other tools can't be told apart by a pattern: none is let through.
        asks = tool in OWN_TOOLS and OWN_TOOLS[tool].is_standard
        rules = self._denials(tool)
        return next((text for text, rule in rules if not (rule.pattern and asks)), "")

    def for_no_tool(self, known: Container[str]) -> list[str]:
        """Return the rules for tools that are none of ours, of `known` ones, or of a server's."""
        written = [*self.allow, *self.allow_here, *self.flags, *self._denying]
        named = [(text, read_rule(text).tool) for text in dict.fromkeys(written)]
        named = [(text, tool) for text, tool in named if tool not in {OUTSIDE, *OWN_TOOLS}]
        return [text for text, tool in named if "__" not in tool and tool not in known]


def names_of(real: Path, cwd: Path) -> tuple[str, str]:
    """Return how rules name a file: from the folder, where it lies in it, and in full."""
    full = real.as_posix()
    return (real.relative_to(cwd).as_posix() if real.is_relative_to(cwd) else full, full)


def named_paths(line: str, cwd: Path) -> Iterator[Path]:
    """Yield what the words of a command line may mean as paths, in each folder that they name.

    As they are written, and real. What a program makes of them itself is not among them.
    TooMuch where they may mean more than can be looked at.
    """
    parsed = parse(line)
    written = [*parsed.files, *(word for each in run_by(parsed) for word in each.words)]
    parts = [part for word in written for part in (word, *_WITHIN_WORD.split(word)) if part]
    words: dict[str, None] = {}
    for part in dict.fromkeys(parts):
        try:
            words |= dict.fromkeys(map(os.path.expanduser, alternatives(part)))
        except ToolFailure:
            raise TooMuch from None
    looks = _Looks()
    short = [word for word in words if len(word) <= _LONGEST_PATH]
    folders = [cwd]
    for word in short:
        for folder in folders[:_MOST_FOLDERS]:
            looks.count()
            here = Path(os.path.normpath(folder / word))
            if here not in folders and os.path.isdir(here):
                folders.append(here)
    for folder in folders[:_MOST_FOLDERS]:
        for word in short:
            meant: Iterable[Path] = [folder / word]
            if glob.has_magic(word):
                meant = chain(meant, looks.globbed(word, folder))
            for each in meant:
                looks.count()
                path = Path(os.path.normpath(each))
                yield path
                with suppress(OSError, ValueError, RuntimeError):
                    yield path.resolve()


class _Looks:
    """Counts what is looked at for one line; TooMuch beyond what takes about a second."""

    def __init__(self) -> None:
        self._left = _MOST_LOOKS

    def count(self) -> None:
        """One more name or path."""
        self._left -= 1
        if self._left < 0:
            raise TooMuch

    def globbed(self, word: str, folder: Path) -> list[Path]:
        """What a pattern means in a folder to a shell: `*` is no name that begins with a dot."""
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


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for name in names:
            yield Path(folder, name)

"""Patterns: which paths a glob means, and what a person's rules of permission allow and deny.

A rule is a tool's name, `edit_file`, or with a pattern, `edit_file(src/**)`. A command's is
compared with each command that the line runs (`ragmem.tools.bash`), never with the line's text.
"""

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from pathlib import Path

import msgspec

from ragmem.errors import UsageError
from ragmem.tools.base import ToolFailure
from ragmem.tools.bash import CommandWords, also_run, parse, spelled

# --- paths ----------------------------------------------------------------------

_MAX_ALTERNATIVES = 64
_MAX_SEGMENTS = 64


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a relative path with `/` matches; without a slash the name alone has to."""
    pattern = pattern.removeprefix("./")
    if not pattern or len(pattern) > 1000:
        raise ToolFailure("The glob pattern is empty or too long. An example: **/*.py")
    alternatives = [one.split("/") for one in _expand(pattern)]
    if any(len(parts) > _MAX_SEGMENTS for parts in alternatives):
        raise ToolFailure("The glob pattern has too many parts.")

    def matches(path: str) -> bool:
        parts = path.split("/")
        return any(
            fnmatchcase(parts[-1], wanted[0]) if len(wanted) == 1 else _match(parts, wanted)
            for wanted in alternatives
        )

    return matches


def _match(parts: list[str], wanted: list[str]) -> bool:
    # reached[i]: the pattern so far matches the first i parts.
    reached = [True] + [False] * len(parts)
    for segment in wanted:
        if segment == "**":
            for i in range(1, len(reached)):
                reached[i] = reached[i] or reached[i - 1]
        else:
            reached = [False] + [
                reached[i] and fnmatchcase(part, segment) for i, part in enumerate(parts)
            ]
    return reached[-1]


def _expand(pattern: str) -> list[str]:
    """Each alternative of the braces; a brace that is not closed is a character."""
    waiting, done = [pattern], list[str]()
    while waiting:
        if len(waiting) + len(done) > _MAX_ALTERNATIVES:
            raise ToolFailure(f"The glob pattern has more than {_MAX_ALTERNATIVES} alternatives.")
        one = waiting.pop()
        opened = one.rfind("{")
        closed = one.find("}", opened)
        if opened < 0 or closed < 0:
            done.append(one)
            continue
        waiting += [
            one[:opened] + middle + one[closed + 1 :]
            for middle in one[opened + 1 : closed].split(",")
        ]
    return done


# --- rules ----------------------------------------------------------------------

COMMAND = "run_command"
_RULE = re.compile(r"([A-Za-z_][\w-]*)(?:\((.+)\))?", re.DOTALL)
_READING = frozenset({"read_file", "list_directory", "glob_files", "grep_files"})
_EDITING = frozenset({"create_file", "write_file", "edit_file"})
_WITH_SUBCOMMANDS = {
    "git", "hg", "jj", "npm", "pnpm", "yarn", "bun", "cargo", "go", "docker", "podman", "kubectl",
    "helm", "pip", "uv", "poetry", "make", "just", "gh", "terraform", "dotnet", "mvn", "gradle",
    "rustup", "conda", "systemctl", "brew", "apt",
}  # fmt: skip
_NEVER_WIDE = {
    "bash", "sh", "zsh", "dash", "fish", "su", "eval", "exec", "source", ".", "sudo", "doas",
    "env", "xargs", "nohup", "time", "command", "find", "ssh", "python", "python2", "python3",
    "node", "deno", "perl", "ruby", "php", "lua", "awk", "sed", "rm", "mv", "dd", "chmod",
    "chown", "chgrp", "kill", "curl", "wget", "nc", "scp", "rsync", "tee", "crontab", "cd",
    "export", "alias", "trap", "set",
}  # fmt: skip
"""Of these any arguments would be anything at all."""
_WITHIN_WORD = re.compile(r"[=:,@]")
"""Before a path within a word: `--file=a`, `HEAD:a`, `@a`."""
_MOST_FOLDERS, _MOST_MAGIC, _MOST_HIDDEN, _MOST_LOOKED_AT = 16, 2, 1_000, 50_000


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
    if rule.pattern and rule.tool != COMMAND:
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
        self, allow: Iterable[str] = (), deny: Iterable[str] = (), *, flags: Iterable[str] = ()
    ) -> None:
        """Take what is written; UsageError for what is no rule."""
        self.allow = list(allow)
        """For good: from the person's own settings."""
        self.deny = list(deny)
        self.flags = list(flags)
        """Allowed in this session: from the command line, or by the person in the chat."""
        self.remembered: dict[tuple[str, str], str] = {}
        """What "always" was said to in this session: a kind and the exact thing of it, and how
        the question called that."""
        for each in (*self.allow, *self.deny, *self.flags):
            read_rule(each)

    @property
    def _allowing(self) -> list[PermissionRule]:
        return list(map(read_rule, (*self.allow, *self.flags)))

    def denial_of_command(self, line: str) -> str:
        """Return the rule that denies any part of a command line; empty where none does."""
        rules = [(text, read_rule(text)) for text in self.deny]
        rules = [(text, rule) for text, rule in rules if rule.tool == COMMAND]
        if not rules:
            return ""
        commands = [each for found in parse(line).commands for each in also_run(found)]
        for text, rule in rules:
            if not rule.pattern or any(map(rule.covers_command, commands)):
                return text
        return ""

    def allows_command(self, line: str) -> bool:
        """Return whether each part of a command line is allowed, and the line does nothing else."""
        rules = [rule for rule in self._allowing if rule.tool == COMMAND]
        if any(not rule.pattern for rule in rules):
            return True
        parsed = parse(line) if rules else None
        return (
            parsed is not None
            and parsed.is_clear
            and bool(parsed.commands)
            and all(any(r.covers_command(each) for r in rules) for each in parsed.commands)
        )

    def denial_of_path(self, tool: str, names: Sequence[str]) -> str:
        """Return the rule that denies a file to a tool; empty where none does.

        One of read_file holds for all that read, one of edit_file for all that edit.
        """
        kinds = {tool}
        kinds |= {"read_file"} if tool in _READING else set()
        kinds |= {"edit_file"} if tool in _EDITING else set()
        for text in self.deny:
            rule = read_rule(text)
            if rule.tool in kinds and rule.covers_path(names):
                return text
        return ""

    def allows_path(self, tool: str, names: Sequence[str]) -> bool:
        """Return whether this tool may have a file without asking."""
        return any(rule.tool == tool and rule.covers_path(names) for rule in self._allowing)

    def for_session(self, flags: Iterable[str] = ()) -> "PermissionRules":
        """Return the rules for good, shared, beside those of one session."""
        other = PermissionRules(flags=flags)
        other.allow, other.deny = self.allow, self.deny
        return other

    @property
    def hides_files(self) -> bool:
        """Return whether there may be files that must not be read."""
        return any(read_rule(text).tool == "read_file" for text in self.deny)

    def hides(self, real: Path, cwd: Path) -> bool:
        """Return whether a file at a real path must not be read."""
        return bool(self.denial_of_path("read_file", names_of(real, cwd)))

    @property
    def _hiding(self) -> dict[str, PermissionRule]:
        """The rules that keep some files from being read, by how they are written."""
        rules = {text: read_rule(text) for text in self.deny}
        return {t: rule for t, rule in rules.items() if rule.tool == "read_file" and rule.pattern}

    def denial_of_named(self, line: str, cwd: Path) -> str:
        """Return the rule that denies reading a file that a command line names; else empty."""
        rules = self._hiding
        for path in named_paths(line, cwd) if rules else ():
            names = names_of(path, cwd)
            if found := next((text for text, rule in rules.items() if rule.covers_path(names)), ""):
                return found
        return ""

    def hidden_in(self, cwd: Path, roots: Iterable[Path]) -> set[Path]:
        """Return what is there and must not be read, in these folders and where a rule names it.

        Of a folder whose files are all denied it is the folder. At most 1,000 of 50,000 files.
        """
        found, wanted = set[Path](), list[PermissionRule]()
        rules = [(one, each) for one in self._hiding.values() for each in _expand(one.pattern)]
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
        return next((text for text in self.deny if read_rule(text) == PermissionRule(tool)), "")


def names_of(real: Path, cwd: Path) -> tuple[str, str]:
    """Return how rules name a file: from the folder, where it lies in it, and in full."""
    full = real.as_posix()
    return (real.relative_to(cwd).as_posix() if real.is_relative_to(cwd) else full, full)


def named_paths(line: str, cwd: Path) -> Iterator[Path]:
    """Yield what the words of a command line may mean as paths, in each folder that they name.

    As they are written, and real. What a program makes of them itself is not among them.
    """
    parsed = parse(line)
    commands = (each for found in parsed.commands for each in also_run(found))
    written = [*parsed.files, *(word for each in commands for word in each.words)]
    parts = [part for word in written for part in (word, *_WITHIN_WORD.split(word)) if part]
    words: dict[str, None] = {}
    for part in parts:
        with suppress(ToolFailure):
            words |= dict.fromkeys(map(os.path.expanduser, _expand(part)))
    folders = [cwd]
    for word in words:
        for folder in folders[:_MOST_FOLDERS]:
            here = Path(os.path.normpath(folder / word))
            if here not in folders and os.path.isdir(here):
                folders.append(here)
    for folder in folders[:_MOST_FOLDERS]:
        for word in words:
            meant = [word]
            if 0 < sum(map(glob.has_magic, word.split("/"))) <= _MOST_MAGIC:
                meant += islice(glob.iglob(word, root_dir=folder), _MOST_HIDDEN)
            for each in meant:
                path = Path(os.path.normpath(folder / each))
                yield path
                with suppress(OSError, ValueError):
                    yield path.resolve()


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for name in names:
            yield Path(folder, name)


def offers_for_command(line: str) -> tuple[tuple[str, ...], ...]:
    """Return the rules that can be offered for a command: exactly it, and with any arguments.

    None where no rule could allow the line; no wider one for programs that can do anything.
    """
    parsed = parse(line)
    if not parsed.is_clear or not parsed.commands or "\n" in line or "*" in line:
        return ()
    exact = tuple(dict.fromkeys(f"{COMMAND}({each.text})" for each in parsed.commands))
    wide = tuple(map(_widened, parsed.commands))
    if not all(wide):
        return (exact,)
    return exact, tuple(dict.fromkeys(f"{COMMAND}({each} *)" for each in wide))


def _widened(command: CommandWords) -> str:
    """Return how a command begins whose other arguments may be any; empty where none may."""
    words = command.words
    name = words[0].rpartition("/")[2]
    if name in ("python", "python3") and words[1:2] == ("-m",) and len(words) > 2:
        return CommandWords(words[:3]).text
    if name in _NEVER_WIDE or "=" in words[0] or "$" in words[0]:
        return ""
    if name in _WITH_SUBCOMMANDS:
        second = words[1] if len(words) > 1 else ""
        return CommandWords(words[:2]).text if second and not second.startswith(("-", "$")) else ""
    return CommandWords(words[:1]).text


def offers_for_path(tool: str, name: str) -> tuple[tuple[str, ...], ...]:
    """Return the rules that can be offered for a file: it alone, and all in its folder."""
    if any(char in name for char in "*?[]{}()\n"):
        return ()
    folder = name.rpartition("/")[0]
    exact = (f"{tool}({name if folder else './' + name})",)
    return (exact, (f"{tool}({folder}/**)",)) if folder else (exact,)

"""Decide what is allowed: by mode, by the user's rules, by lists of protected files, by asking.

No command is considered harmless by itself: each needs approval, unless the mode or one of the
user's rules allows it. A rule is a tool's name, `edit_file`, or has a pattern, `edit_file(src/**)`.
A rule for commands is matched against each command that a line runs, not against its beginning, so
that quoting, pipes and substitutions, which bypassed published allowlists, need approval.
"""

import asyncio
import glob
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

import msgspec

from ragmem.children import MADE_FOLDERS
from ragmem.config import PermissionMode
from ragmem.errors import UsageError
from ragmem.own_tools import OWN_TOOLS, READ_FILE, RUN_COMMAND
from ragmem.redact import redact
from ragmem.text import Regex
from ragmem.tools.base import (
    Approver,
    CurrentMode,
    Proposal,
    ToolFailure,
    answer_to,
    denial,
    deny_all,
)
from ragmem.tools.bash import (
    SHELLS,
    WRAPPERS,
    CommandWords,
    TooMuch,
    named_paths,
    parse,
    run_by,
    spelled,
)
from ragmem.tools.protected import protected_in, protection
from ragmem.tools.workspace import Target, Workspace, alternatives, matcher, show_name

# --- rules ----------------------------------------------------------------------

OUTSIDE = "outside_sandbox"
"""Tool name in rules that let commands leave the sandbox, or forbid it."""
_RULE = Regex(r"([A-Za-z_][\w-]*)(?:\((.+)\))?", re.DOTALL)
_MOST_HIDDEN, _MOST_LOOKED_AT = 1_000, 200_000


class PermissionRule(msgspec.Struct, frozen=True):
    """A tool, and which of its calls."""

    tool: str
    pattern: str = ""
    """Matches commands or paths; empty: every call."""
    folder: str = ""
    """What paths are relative to; empty: the folder that the agent works in."""

    def covers_path(self, names: Sequence[str]) -> bool:
        """Return whether any of a file's names matches."""
        if self.folder:
            full = [name for name in names if name.startswith("/")]
            names = [*full, *(name.removeprefix(f"{self.folder}/") for name in full)]
        return not self.pattern or any(map(_path_matcher(self.pattern), names))

    def covers_command(self, command: CommandWords) -> bool:
        """Return whether a command matches, spelled with the quotes that it needs."""
        return _command_matcher(self.pattern).fullmatch(command.text) is not None

    def allows_command(self, command: CommandWords) -> bool:
        """Return whether an allow rule covers a command; `*` excludes options that run code."""
        return self.covers_command(command) and ("*" not in self.pattern or not command.acts)


@lru_cache(1024)
def read_rule(text: str, folder: str = "") -> PermissionRule:
    """Parse `tool` or `tool(pattern)`; raises UsageError if it is neither."""
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{text.strip()!r} is not a valid rule.",
            hint="Examples: run_command(git status*), edit_file(src/**), run_command.",
        )
    rule = PermissionRule(found[1], (found[2] or "").strip(), folder)
    if rule.pattern and rule.tool not in (RUN_COMMAND, OUTSIDE):
        try:
            _path_matcher(rule.pattern)
        except ToolFailure as error:
            raise UsageError(f"{text.strip()!r}: {error.text}") from None
    return rule


@lru_cache(256)
def _path_matcher(pattern: str) -> Callable[[str], bool]:
    if pattern.startswith("~/"):
        pattern = os.path.expanduser(pattern)
    matches = matcher(pattern)
    # `./a.py` is the file in the folder itself, `a.py` any file with that name.
    is_here = pattern.startswith("./") and "/" not in pattern[2:]
    return (lambda path: "/" not in path and matches(path)) if is_here else matches


@lru_cache(256)
def _command_matcher(pattern: str) -> re.Pattern[str]:
    """Compile a pattern: `make *` is `make` too; quoting is as in a shell or as spelled."""
    parsed = parse(pattern)
    if len(parsed.commands) == 1 and ("'" in pattern or '"' in pattern):
        pattern = " ".join(map(spelled, parsed.commands[0].words))
    head, ends_wide = re.subn(r" \*$", "", pattern)
    regex = ".*".join(map(re.escape, head.split("*")))
    return re.compile(regex + (r"(?: .*)?" if ends_wide else ""), re.DOTALL)


class PermissionRules:
    """What the user has allowed and denied in advance; rules that deny take precedence."""

    def __init__(
        self,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        *,
        flags: Iterable[str] = (),
        here: tuple[Iterable[str], Iterable[str]] = ((), ()),
        project: str = "",
    ) -> None:
        """Set the rules; `here` are those of this project, whose paths are relative to its folder,
        `project`. Raises UsageError for an invalid one.
        """
        self.allow = list(allow)
        """Permanent rules, from the user's own settings."""
        self.deny = list(deny)
        self.allow_here, self.deny_here = map(list, here)
        self.project = project
        self.flags = list(flags)
        """Allowed in this session: on the command line, or by the user in the chat."""
        self.remembered: dict[tuple[str, str], str] = {}
        """What "always" was answered to in this session: kind and exact subject, mapped to how the
        question worded it."""
        for each in (*self.allow, *self.allow_here, *self._deny_texts, *self.flags):
            read_rule(each)

    @property
    def _allow_rules(self) -> list[PermissionRule]:
        here = (read_rule(text, self.project) for text in self.allow_here)
        return [*map(read_rule, (*self.allow, *self.flags)), *here]

    @property
    def _deny_texts(self) -> list[str]:
        return [*self.deny, *self.deny_here]

    def _denials(self, *tools: str) -> Iterator[tuple[str, PermissionRule]]:
        """Yield the rules, with their text, that deny something to one of these tools."""
        rules = [(text, read_rule(text)) for text in self.deny]
        rules += [(text, read_rule(text, self.project)) for text in self.deny_here]
        return ((text, rule) for text, rule in rules if rule.tool in tools)

    def denial_of_command(self, line: str, kind: str = RUN_COMMAND) -> str:
        """Return the rule that denies any part of a command line; empty if none does.

        If the line is too complex to be examined in full, the first rule. With `OUTSIDE` as `kind`,
        the rule that forbids the line to leave the sandbox.
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
        rules = [rule for rule in self._allow_rules if rule.tool == kind]
        if any(not rule.pattern for rule in rules):
            return True
        if not rules or not (parsed := parse(line)).is_clear or not parsed.commands:
            return False
        return all(any(rule.allows_command(each) for rule in rules) for each in parsed.commands)

    def denial_of_path(self, tool: str, names: Sequence[str], *, edits: bool = False) -> str:
        """Return the rule that denies a tool a file, for reading or if `edits`; empty if none does.

        Rules for read_file apply to all tools that read, rules for edit_file to all that edit.
        """
        rules = self._denials(tool, "edit_file" if edits else READ_FILE)
        return next((text for text, rule in rules if rule.covers_path(names)), "")

    def allows_path(self, tool: str, names: Sequence[str]) -> bool:
        """Return whether a tool may access a file without asking."""
        return any(rule.tool == tool and rule.covers_path(names) for rule in self._allow_rules)

    def for_session(self, flags: Iterable[str] = ()) -> "PermissionRules":
        """Return rules that share the permanent ones and have their own for a session."""
        other = PermissionRules(flags=flags, project=self.project)
        other.allow, other.deny = self.allow, self.deny
        other.allow_here, other.deny_here = self.allow_here, self.deny_here
        return other

    def hides(self, real: Path, cwd: Path) -> bool:
        """Return whether a file, given by its real path, must not be read."""
        return bool(self._deny_texts and self.denial_of_path(READ_FILE, names_of(real, cwd)))

    @property
    def _hiding(self) -> list[tuple[str, PermissionRule]]:
        """The rules that keep certain files from being read, with their texts."""
        return [(text, rule) for text, rule in self._denials(READ_FILE) if rule.pattern]

    def denial_of_named(self, line: str, cwd: Path) -> str:
        """Return the rule that denies reading a file named in a command line; empty if none does.

        Raises ToolFailure if the line may name more files than can be checked.
        """
        rules = self._hiding
        try:
            for path in named_paths(line, cwd) if rules else ():
                names = names_of(path, cwd)
                for text, rule in rules:
                    if rule.covers_path(names):
                        return text
        except TooMuch:
            raise denial(
                f"The user's rule {rules[0][0]} forbids reading some files, and this "
                "command may name more files than can be checked against it, so nothing was run. "
                "Use a shorter command, or no wildcards (* ? [ ]) over large folders."
            ) from None
        return ""

    def hidden_in(self, cwd: Path, roots: Iterable[Path]) -> set[Path]:
        """Return the existing paths that must not be read, here or where rules name them.

        A folder whose files are all denied is returned itself. At most 1,000 of 200,000 files.
        """
        found, wanted = set[Path](), list[PermissionRule]()
        rules = [(one, each) for _, one in self._hiding for each in alternatives(one.pattern)]
        for rule, pattern in rules:
            above = os.path.expanduser(pattern.removesuffix("/**"))
            if "/" in above and not glob.has_magic(above):
                found.add(Path(rule.folder or cwd, above))
            elif above.startswith("/"):
                found.update(map(Path, islice(glob.iglob(above, recursive=True), _MOST_HIDDEN)))
            else:
                wanted.append(rule)
        tops = dict.fromkeys([*roots, *(Path(rule.folder) for rule in wanted if rule.folder)])
        files = (path for root in tops if wanted for path in islice(_files(root), _MOST_LOOKED_AT))
        own = os.path.join(cwd, "")
        named = ((path.removeprefix(own), path) for path in files)
        denied = (each[1] for each in named if any(rule.covers_path(each) for rule in wanted))
        found.update(map(Path, islice(denied, _MOST_HIDDEN)))
        return {path for path in found if path.exists()}

    def denies(self, tool: str) -> str:
        """Return the rule that denies a tool altogether; empty if none does."""
        # Patterns can't tell apart the calls of other tools, so a rule with one denies them all.
        asks = tool in OWN_TOOLS and OWN_TOOLS[tool].is_standard
        rules = self._denials(tool)
        return next((text for text, rule in rules if not (rule.pattern and asks)), "")

    def for_unknown_tools(self, known: Container[str]) -> list[str]:
        """Return the rules for unknown tools: not ragmem's own, in `known`, or a server's."""
        written = [*self.allow, *self.allow_here, *self.flags, *self._deny_texts]
        named = [(text, read_rule(text).tool) for text in dict.fromkeys(written)]
        named = [(text, tool) for text, tool in named if tool not in {OUTSIDE, *OWN_TOOLS}]
        return [text for text, tool in named if "__" not in tool and tool not in known]


def names_of(real: Path, cwd: Path) -> tuple[str, str]:
    """Return a file's names in rules: relative to the folder if it lies in it, and absolute."""
    full = real.as_posix()
    return (real.relative_to(cwd).as_posix() if real.is_relative_to(cwd) else full, full)


def _files(root: Path) -> Iterator[str]:
    """Yield the files below a folder; those in folders such as node_modules come last."""
    made = []
    for folder, below, names in os.walk(root):
        made += [Path(folder, name) for name in below if name in MADE_FOLDERS]
        below[:] = [name for name in below if name not in MADE_FOLDERS]
        yield from (os.path.join(folder, name) for name in names)
    for each in made:
        yield from (os.path.join(top, name) for top, _, names in os.walk(each) for name in names)


# --- decisions -----------------------------------------------------------------------


class Permissions:
    """Decides before anything is touched; a refusal is a ToolFailure that says why.

    No mode permits reading or writing the workspace's private folders, except single files of
    `outputs`, where long outputs of commands are kept.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        mode: PermissionMode | CurrentMode = "default",
        approver: Approver = deny_all,
        rules: PermissionRules | None = None,
        outputs: Path | None = None,
    ) -> None:
        self._workspace = workspace
        self._current = mode if isinstance(mode, CurrentMode) else CurrentMode(mode)
        self._approver = approver
        self._rules = rules or PermissionRules()
        self._outputs = outputs.resolve() if outputs else None
        # Ask one question at a time, since read-only tools run in parallel.
        self._asking = asyncio.Lock()

    async def read(self, tool_name: str, path: str) -> Target:
        """Return a path that may be read or searched; outside the workspace, the user is asked."""
        target = self._workspace.resolve(path)
        real = target.real
        # Its name, which can't be guessed, is in the result that it belongs to.
        if real.parent == self._outputs and not real.is_dir():
            return target
        self._refuse_private(real)
        names = names_of(real, self._workspace.cwd)
        _refuse_denied(self._rules.denial_of_path(tool_name, self._names(target)))
        if (
            target.inside
            or self._current.value == "bypassPermissions"
            or self._rules.allows_path(tool_name, names)
        ):
            return target
        shown = show_name(str(real))
        proposal = Proposal(
            tool_name=tool_name,
            title=f"{tool_name} outside the working directory: {shown}",
            kind="path",
            body=shown,
            warnings=_link_warning(path, target),
            always=f"{tool_name} for this path in this session",
            for_good=offers_for_path(tool_name, real.as_posix()),
        )
        refusal = f"{shown} is outside {self._workspace.cwd}, and access was not allowed"
        await self._ask(proposal, (tool_name, str(real)), refusal)
        return target

    def hides(self, base: Path) -> Callable[[Path], bool]:
        """Return a test for what a search below a real path leaves out: private and denied files.

        A search that was allowed to start in a private folder leaves out nothing for being private.
        """
        within = self._workspace.is_private(base)

        def hidden(real: Path) -> bool:
            private = not within and self._workspace.is_private(real)
            return private or self._rules.hides(real, self._workspace.cwd)

        return hidden

    def writable(self, path: str) -> Target:
        """Return a path for which an edit may be proposed, which must be inside the workspace."""
        self._refuse_in_plan("nothing can be changed. Describe the change instead")
        target = self._workspace.resolve(path)
        self._refuse_private(target.real)
        if not target.inside:
            raise denial(
                f"{show_name(str(target.real))} is outside the working directory and can't be "
                "written. The user can add its folder with --add-dir."
            )
        return target

    async def edit(self, tool_name: str, given: str, target: Target, body: str) -> None:
        """Ask for approval of an edit, with the diff `body`, if the mode or the file requires it.

        "Always" covers every edit of that file; a protected file needs approval each time.
        """
        protected = self._protection(target)
        cwd = self._workspace.cwd
        names = names_of(target.real, cwd)
        _refuse_denied(self._rules.denial_of_path(tool_name, self._names(target), edits=True))
        mode, warnings = self._current.value, _link_warning(given, target)
        if mode == "bypassPermissions":
            return
        if not protected and (mode == "acceptEdits" or self._rules.allows_path(tool_name, names)):
            return
        if protected:
            warnings += (f"{protected} is protected: it can run by itself, or agents follow it",)
        shown = self._workspace.record_path(target.real)
        # In a folder of a project, only the absolute name is the same file in each kind of rules.
        name = names[0] if self._rules.project in ("", str(cwd)) else names[1]
        proposal = Proposal(
            tool_name=tool_name,
            title=f"{tool_name} {shown}",
            kind="diff",
            body=body,
            warnings=warnings,
            always="" if protected else "every edit of this file in this session",
            for_good=() if protected else offers_for_path(tool_name, name),
        )
        refusal = f"The change of {shown} was not allowed"
        await self._ask(proposal, ("edit", str(target.real)), refusal)

    async def command(
        self,
        command: str,
        *,
        known: str = "",
        outside: str = "",
        unasked: bool = False,
        goes_on: bool = False,
        may_leave: bool = False,
    ) -> bool:
        """Ask for approval of a command, shown in full; return whether it may leave the sandbox.

        `known` is what is remembered of it, on one line. `outside` is the reason for leaving the
        sandbox, which rules for running in it do not permit. `unasked`: it runs in the sandbox,
        where the user lets commands run without approval in acceptEdits. `goes_on`: it runs in the
        background. `may_leave`: it runs in the sandbox, unless the user chooses otherwise.
        """
        self._refuse_in_plan("no commands are run. Name the command that you would run")
        _refuse_denied(self._rules.denial_of_command(command))
        cwd = self._workspace.cwd
        _refuse_denied(await asyncio.to_thread(self._rules.denial_of_named, command, cwd))
        stays = self._rules.denial_of_command(command, OUTSIDE)
        _refuse_denied(stays if outside else "")
        may_leave = may_leave and not stays
        if (outside or may_leave) and (
            self._rules.allows_command(command, OUTSIDE)
            or ("outside", command) in self._rules.remembered
        ):
            return True
        mode, rules = self._current.value, self._rules
        if mode == "bypassPermissions":
            return bool(outside)
        if not outside and (rules.allows_command(command) or (unasked and mode == "acceptEdits")):
            return False
        reason = f"it runs outside the sandbox; the reason given: {outside}" if outside else ""
        is_plain = all(char.isprintable() or char in "\n\t" for char in command)
        hides = "" if is_plain else "the command contains hidden characters"
        within = Proposal(
            tool_name=RUN_COMMAND,
            title=f"{RUN_COMMAND} in the background" if goes_on else RUN_COMMAND,
            kind="command",
            body=command,
            warnings=tuple(filter(None, [hides, reason, known])),
            always="exactly this command in this session",
            for_good=offers_for_command(command),
        )
        beyond = msgspec.structs.replace(
            within,
            always="exactly this command outside the sandbox in this session",
            for_good=offers_for_command(command, OUTSIDE),
        )
        within = msgspec.structs.replace(within, outside=beyond if may_leave else None)
        kind, proposal = ("outside", beyond) if outside else ("command", within)
        leaves = await self._ask(proposal, (kind, command), "The command was not allowed")
        return leaves or bool(outside)

    async def call(self, tool_name: str, arguments: str) -> None:
        """Ask for approval of a call of a server's tool, whose arguments are shown in full."""
        self._refuse_in_plan(
            f"{tool_name} could change something, so it is not called. "
            "Say what you would use it for"
        )
        _refuse_denied(self._rules.denies(tool_name))
        if self._current.value == "bypassPermissions" or self._rules.allows_path(tool_name, ()):
            return
        proposal = Proposal(
            tool_name=tool_name,
            title=tool_name,
            kind="call",
            body=arguments,
            always=f"every call of {tool_name} in this session",
            for_good=((tool_name,),),
        )
        refusal = f"The call to {tool_name} was not allowed"
        await self._ask(proposal, ("call", tool_name), refusal)

    def _names(self, target: Target) -> list[str]:
        """Return what rules that deny may call a file: a link to it, or its real path."""
        return [name for path in target.paths for name in names_of(path, self._workspace.cwd)]

    def _protection(self, target: Target) -> str:
        """Return the protected name by which a file is reached or, over a link, can be."""
        if named := next(filter(None, map(protection, target.paths)), None):
            return named
        kept = (path for root in self._workspace.roots for path in protected_in(root))
        links = (path for path in kept if path.is_symlink())
        found = (path for path in links if target.real.is_relative_to(os.path.realpath(path)))
        return next((show_name(path.name) for path in found), "")

    def _refuse_in_plan(self, instead: str) -> None:
        if self._current.value == "plan":
            raise denial(f"This is plan mode: {instead}.")

    def _refuse_private(self, real: Path) -> None:
        if self._workspace.is_private(real):
            raise denial(f"{show_name(str(real))} belongs to ragmem itself, so it is refused.")

    async def _ask(self, proposal: Proposal, what: tuple[str, str], refusal: str) -> bool:
        """Return whether the proposal's `outside` was chosen; raises ToolFailure when denied.

        "Always" applies to `what`, as `proposal.always` words it.
        """
        async with self._asking:
            if proposal.always and what in self._rules.remembered:
                return False
            if proposal.outside and ("outside", what[1]) in self._rules.remembered:
                return True
            decision = await answer_to(proposal, self._approver)
            if not decision.allowed:
                reason = f": {decision.reason}" if decision.reason else ""
                stays = not proposal.always and not proposal.for_good
                raise ToolFailure(f"{refusal}{reason}. Nothing was done.", denied=True, final=stays)
            if proposal.kind != "path":
                self._refuse_in_plan("it began while the user was asked, and nothing was done")
            leaves = decision.outside and proposal.outside is not None
            if leaves:
                proposal, what = proposal.outside or proposal, ("outside", what[1])
            if decision.remember:
                self._rules.remembered[what] = proposal.always
            return leaves


def _link_warning(given: str, target: Target) -> tuple[str, ...]:
    warning = f"{show_name(given)} goes through a symlink to {show_name(str(target.real))}"
    return (warning,) if target.paths[0] != target.real else ()


def _refuse_denied(rule: str) -> None:
    if rule:
        raise denial(
            f"The user's rule {rule} denies this, and nothing was done. Only they can change it."
        )


# --- rules that can be offered -------------------------------------------------------

_WITH_SUBCOMMANDS = {
    "git", "hg", "jj", "npm", "pnpm", "yarn", "bun", "cargo", "go", "docker", "podman", "kubectl",
    "helm", "pip", "uv", "poetry", "make", "just", "gh", "terraform", "dotnet", "mvn", "gradle",
    "rustup", "conda", "systemctl", "brew", "apt",
}  # fmt: skip
_NEVER_WIDE = WRAPPERS | SHELLS | {
    "source", ".", "ssh", "python", "node", "deno", "perl", "ruby", "php", "lua", "awk", "gawk",
    "mawk", "sed", "rm", "mv", "dd", "chmod", "chown", "chgrp", "kill", "curl", "wget", "nc", "scp",
    "rsync", "tee", "tar", "crontab", "cd", "export", "alias", "set", "printf", "test", "npx",
    "bunx", "pnpx", "uvx", "pipx", "vi", "vim", "nvim", "emacs", "gdb", "nodejs", "tsx", "ts-node",
    "pypy", "ipython", "Rscript", "julia", "tclsh", "expect", "m4", "ed", "ex", "less", "man",
    "tmux", "screen", "ssh-agent", "bundle", "hatch", "pdm", "nix", "direnv", "enable",
    # shell builtins that expand their arguments, or change what the next name means
    "read", "unset", "let", "declare", "typeset", "local", "readonly", "wait", "getopts", "hash",
    "complete", "compopt", "bind", "fc", "pushd", "popd", "shopt",
    # programs whose options or input can contain commands, or that can start a shell
    "fd", "fdfind", "split", "zip", "cmake", "ctest", "sqlite", "psql", "mysql", "mariadb",
    "mongosh", "ftp", "sftp", "telnet", "socat", "ncat", "netcat", "dc", "gnuplot", "lldb", "java",
    "jshell", "groovy", "scala", "kotlin", "erl", "elixir", "iex", "guile", "sbcl", "racket",
    "runghc", "ghci", "octave", "R", "osascript", "swift", "pyenv", "rbenv", "asdf", "mise",
    "devbox", "nerdctl",
    # programs that write wherever they are told to
    "cp", "ln", "install", "patch", "truncate", "shred",
}  # fmt: skip
"""Programs that could do anything, given any arguments; a version in the name is ignored."""
_RUNS_ARGUMENTS = {
    "run", "exec", "x", "dlx", "config", "tool", "compose", "bisect", "submodule", "rebase",
    "difftool", "extension", "alias", "node", "console",
    # git, where a repository or program that the arguments name can have or be code to run
    "clone", "fetch", "pull", "push", "ls-remote", "remote", "archive", "mergetool",
    "filter-branch", "send-email", "instaweb", "daemon", "worktree",
    # a package is a program, and a container's files can be anyone's
    "install", "i", "pip", "cp", "create",
}  # fmt: skip
"""Subcommands that run their arguments, or set them up to be run."""
_VERSION_CONTROL = {"git", "hg", "jj"}
"""Programs whose `add` concerns existing files; elsewhere it fetches a package."""
_WITH_SCRIPTS = {"npm", "pnpm", "yarn", "bun"}
"""Programs whose `run` is followed by the name of one of the project's scripts."""


def offers_for_command(line: str, kind: str = RUN_COMMAND) -> tuple[tuple[str, ...], ...]:
    """Return the rules that can be offered for a command: exactly it, then with any arguments.

    There are none if no rule could allow the line. Wider ones are not offered for programs that can
    do anything, nor for leaving the sandbox (`OUTSIDE` as `kind`).
    """
    parsed = parse(line)
    if not parsed.is_clear or not parsed.commands or "\n" in line or "*" in line:
        return ()
    if redact(line) != line:
        return ()  # It would be written into the settings.
    exact = tuple(dict.fromkeys(f"{kind}({each.text})" for each in parsed.commands))
    wide = () if kind == OUTSIDE else tuple(map(_open_prefix, parsed.commands))
    if not wide or not all(wide):
        return (exact,)
    return exact, tuple(dict.fromkeys(f"{RUN_COMMAND}({each} *)" for each in wide))


def _open_prefix(command: CommandWords) -> str:
    """Return the prefix of a command that may have any further arguments; empty if none may."""
    words = command.words
    name = words[0].rpartition("/")[2]
    plain = name.rstrip("0123456789.")
    if plain == "python" and words[1:2] == ("-m",) and len(words) > 2:
        return CommandWords(words[:3]).text
    if plain in _NEVER_WIDE or "=" in words[0] or "$" in words[0]:
        return ""
    if name in _WITH_SUBCOMMANDS:
        second = words[1] if len(words) > 1 else ""
        if second == "run" and name in _WITH_SCRIPTS and len(words) > 2:
            return CommandWords(words[:3]).text
        if second in _RUNS_ARGUMENTS or (second == "add" and name not in _VERSION_CONTROL):
            return ""
        return CommandWords(words[:2]).text if second and not second.startswith(("-", "$")) else ""
    return CommandWords(words[:1]).text


def offers_for_path(tool: str, name: str) -> tuple[tuple[str, ...], ...]:
    """Return the rules that can be offered for a file: for it alone, then for all in its folder."""
    if any(char in name for char in "*?[]{}()\n"):
        return ()
    folder = name.rpartition("/")[0]
    exact = (f"{tool}({name if folder else './' + name})",)
    return (exact, (f"{tool}({folder}/**)",)) if folder else (exact,)

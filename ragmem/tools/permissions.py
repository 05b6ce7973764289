"""Who may do what: modes, a person's rules, what always asks, and approvals of what was shown.

No command is ever taken for harmless by itself: every command asks, unless the mode or a rule
that the person has written lets it through. A rule is a tool's name, `edit_file`, or with a
pattern, `edit_file(src/**)`. A command's is held against each command that a line runs, not
against how the line begins: quoting, pipes and substitutions of published allow-lists' falls ask.
"""

import asyncio
import glob
import os
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path

import msgspec

from ragmem.config import PermissionMode
from ragmem.errors import UsageError
from ragmem.own_tools import OWN_TOOLS, READ_FILE, RUN_COMMAND
from ragmem.text import Regex
from ragmem.tools.base import (
    Approver,
    CurrentMode,
    Proposal,
    ToolFailure,
    answer_to,
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
from ragmem.tools.workspace import Target, Workspace, alternatives, matcher, show_name

# --- what always asks ---------------------------------------------------------------

_FOLDERS = {
    # version control, and what it runs
    ".git", ".hg", ".svn", ".jj", ".husky", ".githooks",
    # shells
    ".bashrc.d", ".zshrc.d", ".oh-my-zsh", ".nvm", ".emacs.d", ".vim", ".mise",
    # agents and their tools
    ".ragmem", ".claude", ".codex", ".cursor", ".gemini", ".windsurf", ".roo", ".cline",
    ".clinerules", ".continue", ".kiro", ".junie", ".amazonq", ".opencode", ".agents", ".aider",
    ".qwen", ".crush", ".kilocode", ".augment", ".trae", ".factory", ".goose", ".kimi",
    # editors, and machines that they set up
    ".vscode", ".vscode-server", ".idea", ".fleet", ".zed", ".nvim", ".helix", ".devcontainer",
    # services that run what is pushed
    ".circleci", ".buildkite", ".gitea", ".forgejo", ".woodpecker", ".semaphore", ".tekton",
    ".azure-pipelines",
    # keys, and who may log in
    ".ssh", ".gnupg",
}  # fmt: skip
_FILES = {
    # what agents obey
    "agents.md", "agents.override.md", "agent.md", "claude.md", "claude.local.md", "gemini.md",
    "qwen.md", "warp.md", "conventions.md", "copilot-instructions.md", ".cursorrules",
    ".windsurfrules", ".clinerules", ".roorules", ".goosehints", ".rules", "skill.md",
    ".mcp.json", "mcp.json", ".aider.conf.yml", "opencode.json", "opencode.jsonc",
    "crush.json", ".crush.json", "crush.md",
    # shells, terminals and what they start
    ".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
    ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc",
    ".tcshrc", ".login", ".inputrc", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc",
    ".pam_environment", ".tmux.conf", ".screenrc", "config.fish", "profile.ps1",
    "microsoft.powershell_profile.ps1", "crontab", ".mise.toml", "mise.toml", ".tool-versions",
    ".mise.local.toml", "mise.local.toml", ".direnvrc", ".psqlrc", ".wezterm.lua",
    # version control; a folder with a HEAD can be a repository, whose config names programs
    "head", ".gitconfig", ".gitmodules", ".gitattributes", ".hgrc", ".pre-commit-config.yaml",
    ".pre-commit-hooks.yaml", "lefthook.yml", ".lefthook.yml", ".huskyrc",
    "lefthook.yaml", "lefthook.toml", "lefthook.json", "lefthook-local.yml", ".huskyrc.js",
    ".overcommit.yml", ".lintstagedrc", ".lintstagedrc.json", ".lintstagedrc.js",
    "lint-staged.config.js", ".simple-git-hooks.json", ".simple-git-hooks.js",
    # editors and debuggers
    ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".emacs", ".dir-locals.el",
    ".pylintrc", "pylintrc", ".devcontainer.json", ".eslintrc.js", ".eslintrc.cjs",
    "eslint.config.js", "eslint.config.mjs", ".ghci", ".gdbinit", ".lldbinit",
    ".code-workspace",
    # package managers and builds: whom they trust, and what they load
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnpmfile.mjs", "bunfig.toml",
    ".pnp.cjs", ".pnp.loader.mjs", "uv.toml",
    ".pypirc", "pip.conf", ".pip.conf", "pip.ini", ".condarc", ".netrc", ".curlrc", ".wgetrc",
    ".gemrc", ".bazelrc", ".rprofile", ".renviron", ".irbrc", ".pryrc",
    # tests and interpreters
    "conftest.py", "sitecustomize.py", "usercustomize.py", ".pythonrc", ".pdbrc",
    # services that run what is pushed
    ".gitlab-ci.yml", ".travis.yml", "azure-pipelines.yml", "bitbucket-pipelines.yml",
    "jenkinsfile", ".drone.yml", ".cirrus.yml", "appveyor.yml", ".appveyor.yml",
    ".woodpecker.yml", "dependabot.yml", ".gitpod.yml", ".replit", "buildspec.yml",
    "cloudbuild.yaml", ".drone.yaml", ".woodpecker.yaml",
}  # fmt: skip
_IN_REPOSITORY = {"config", "config.worktree", "commondir", "hooks", "modules", "worktrees"}
"""Beside a HEAD, which makes a folder a repository without `.git`."""
_WITHIN = (
    # Parts that follow each other anywhere in a path; a path that ends in them is one of them.
    (".github", "workflows"), (".github", "actions"), (".github", "instructions"),
    (".github", "prompts"), (".github", "agents"), (".cargo", "config.toml"), (".cargo", "config"),
    (".config", "autostart"), (".config", "systemd"), (".config", "fish"), (".config", "git"),
    (".config", "nvim"), (".config", "environment.d"), (".config", "tmux"), (".local", "bin"),
    (".github", "chatmodes"), (".gradle", "gradle.properties"), (".gradle", "init.gradle"),
    ("etc", "profile.d"), ("etc", "cron.d"),
    ("library", "launchagents"), ("library", "launchdaemons"), (".yarn", "plugins"),
    (".yarn", "releases"), (".ipython", "profile_default"), (".gradle", "init.d"),
    (".mvn", "extensions.xml"), (".mvn", "jvm.config"), (".mvn", "maven.config"),
)  # fmt: skip
_ENDINGS = (
    # systemd's units, desktop entries, launchd's jobs, what Python runs when it starts
    ".service", ".timer", ".socket", ".desktop", ".plist", ".pth", ".code-workspace",
    ".instructions.md", ".mdc", ".sublime-project",
)  # fmt: skip


def protection(real: Path) -> str | None:
    """What of a real path is in the table, if anything is; else None."""
    parts = [_fold(part) for part in real.parts]
    for at, part in enumerate(parts):
        if part in _FOLDERS:
            return show_name(real.parts[at])
    for at, pair in enumerate(pairwise(parts)):
        if pair in _WITHIN:
            return show_name("/".join(real.parts[at : at + 2]))
    above = (real, *real.parents) if real.is_absolute() else ()
    if found := next(filter(is_of_repository, above), None):
        return show_name(found.name)
    name = parts[-1]
    return show_name(real.name) if name in _FILES or name.endswith(_ENDINGS) else None


def is_of_repository(path: Path) -> bool:
    """Whether it leads git to programs, in a folder that git takes for a repository."""
    return _fold(path.name) in _IN_REPOSITORY and os.path.lexists(path.parent / "HEAD")


def _fold(name: str) -> str:
    """As file systems that ignore case, composition and invisible characters compare."""
    visible = "".join(c for c in name if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", visible).casefold())


# --- rules ----------------------------------------------------------------------

OUTSIDE = "outside_sandbox"
"""Rules of this name are for commands too: for their leaving the sandbox."""
_RULE = Regex(r"([A-Za-z_][\w-]*)(?:\((.+)\))?", re.DOTALL)
_MOST_HIDDEN, _MOST_LOOKED_AT = 1_000, 50_000


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

    def allows_command(self, command: CommandWords) -> bool:
        """Return the same for a rule that allows, whose `*` is no option that runs a program."""
        return self.covers_command(command) and ("*" not in self.pattern or not command.acts)


def read_rule(text: str) -> PermissionRule:
    """Read `tool` or `tool(pattern)`; UsageError for what is neither."""
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{text.strip()!r} is not a valid rule.",
            hint="Examples: run_command(git status*), edit_file(src/**), run_command.",
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
        return all(any(rule.allows_command(each) for rule in rules) for each in parsed.commands)

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
                f"The person's rule {next(iter(rules))} forbids reading some files, and this "
                "command may name more files than can be checked against it, so nothing was run. "
                "Use a shorter command, or no wildcards (* ? [ ]) over large folders.",
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


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for name in names:
            yield Path(folder, name)


# --- decisions -----------------------------------------------------------------------


class Permissions:
    """Decides before anything is touched; a refusal is a ToolFailure that says why.

    Nothing in the workspace's private folders is read or written in any mode,
    but for `outputs`, where long outputs of commands are kept.
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
        # One question at a time: read-only tools run in parallel.
        self._asking = asyncio.Lock()

    async def read(self, tool_name: str, path: str) -> Target:
        """A path that may be read or searched; outside of the workspace that is asked."""
        target = self._workspace.resolve(path)
        real = target.real
        if self._outputs and real.is_relative_to(self._outputs):
            return target
        self._refuse_private(real)
        names = names_of(real, self._workspace.cwd)
        _refuse_denied(self._rules.denial_of_path(tool_name, names))
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
        """What a search below a real path leaves out: what is private, and what a rule denies.

        Nothing of what is private where the search was allowed to start in it.
        """
        within = self._workspace.is_private(base)

        def hidden(real: Path) -> bool:
            private = not within and self._workspace.is_private(real)
            return private or self._rules.hides(real, self._workspace.cwd)

        return hidden

    def writable(self, path: str) -> Target:
        """A path that an edit may be proposed for; outside of the workspace none may."""
        self._refuse_in_plan("nothing can be changed. Describe the change instead")
        target = self._workspace.resolve(path)
        self._refuse_private(target.real)
        if not target.inside:
            raise _denied(
                f"{show_name(str(target.real))} is outside the working directory and can't be "
                "written. The person can add its folder with --add-dir."
            )
        return target

    async def edit(self, tool_name: str, given: str, target: Target, body: str) -> None:
        """Ask for an edit, whose whole diff is `body`, where mode and file call for it.

        "Always" stands for every edit of that file; a protected file is asked for each time.
        """
        protected = protection(target.real)
        names = names_of(target.real, self._workspace.cwd)
        _refuse_denied(self._rules.denial_of_path(tool_name, names, edits=True))
        mode, warnings = self._current.value, _link_warning(given, target)
        if mode == "bypassPermissions":
            return
        if not protected and (mode == "acceptEdits" or self._rules.allows_path(tool_name, names)):
            return
        if protected:
            warnings += (f"{protected} is protected: it can run by itself, or agents follow it",)
        shown = self._workspace.record_path(target.real)
        proposal = Proposal(
            tool_name=tool_name,
            title=f"{tool_name} {shown}",
            kind="diff",
            body=body,
            warnings=warnings,
            always="" if protected else "every edit of this file in this session",
            for_good=() if protected else offers_for_path(tool_name, names[0]),
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
        """Ask for a command, which is shown whole; return whether it is to leave the sandbox.

        `known` is known of it, on one line. `outside` says what it is to leave the sandbox for:
        what lets it run within does not allow that. `unasked`: it runs in the sandbox, and the
        person lets such commands run in acceptEdits. `goes_on`: it is to run in the background.
        `may_leave`: it runs in the sandbox, unless the person chooses otherwise.
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
        mode = self._current.value
        if mode == "bypassPermissions":
            return bool(outside)
        if not outside and (
            self._rules.allows_command(command) or (unasked and mode == "acceptEdits")
        ):
            return False
        leaves = f"it runs outside the sandbox; the reason given: {outside}" if outside else ""
        is_plain = all(char.isprintable() or char in "\n\t" for char in command)
        hides = "" if is_plain else "the command contains hidden characters"
        within = Proposal(
            tool_name=RUN_COMMAND,
            title=f"{RUN_COMMAND} in the background" if goes_on else RUN_COMMAND,
            kind="command",
            body=command,
            warnings=tuple(filter(None, [hides, leaves, known])),
            always="exactly this command in this session",
            for_good=offers_for_command(command),
        )
        beyond = msgspec.structs.replace(
            within,
            always="exactly this command outside the sandbox in this session",
            for_good=offers_for_command(command, OUTSIDE),
        )
        refusal = "The command was not allowed"
        if outside:
            await self._ask(beyond, ("outside", command), refusal)
            return True
        if may_leave:
            within = msgspec.structs.replace(within, outside=beyond)
        return await self._ask(within, ("command", command), refusal)

    async def call(self, tool_name: str, arguments: str) -> None:
        """Ask for a call of a server's tool, whose arguments are shown whole."""
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

    def _refuse_in_plan(self, instead: str) -> None:
        if self._current.value == "plan":
            raise _denied(f"This is plan mode: {instead}.")

    def _refuse_private(self, real: Path) -> None:
        if self._workspace.is_private(real):
            raise _denied(f"{show_name(str(real))} belongs to ragmem itself, so it is refused.")

    async def _ask(self, proposal: Proposal, what: tuple[str, str], refusal: str) -> bool:
        """Return whether its `outside` was chosen; ToolFailure when denied.

        "Always" holds for `what`, as `proposal.always` says it.
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
            leaves = decision.outside and proposal.outside is not None
            if leaves:
                proposal, what = proposal.outside or proposal, ("outside", what[1])
            if decision.remember:
                self._rules.remembered[what] = proposal.always
            return leaves


def _link_warning(given: str, target: Target) -> tuple[str, ...]:
    told = f"{show_name(given)} goes through a symlink to {show_name(str(target.real))}"
    return (told,) if target.through_link else ()


def _refuse_denied(rule: str) -> None:
    if rule:
        raise _denied(
            f"The person's rule {rule} denies this, and nothing was done. Only they can change it."
        )


def _denied(text: str) -> ToolFailure:
    return ToolFailure(text, denied=True, final=True)


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
    # what bash does itself: expands what it is given, or changes what the next name means
    "read", "unset", "let", "declare", "typeset", "local", "readonly", "wait", "getopts", "hash",
    "complete", "compopt", "bind", "fc", "pushd", "popd", "shopt",
    # with commands, or a way out to a shell, among their options and their input
    "fd", "fdfind", "split", "zip", "cmake", "ctest", "sqlite", "psql", "mysql", "mariadb",
    "mongosh", "ftp", "sftp", "telnet", "socat", "ncat", "netcat", "dc", "gnuplot", "lldb", "java",
    "jshell", "groovy", "scala", "kotlin", "erl", "elixir", "iex", "guile", "sbcl", "racket",
    "runghc", "ghci", "octave", "R", "osascript", "swift", "pyenv", "rbenv", "asdf", "mise",
    "devbox", "nerdctl",
    # which write wherever they are told to
    "cp", "ln", "install", "patch", "truncate", "shred",
}  # fmt: skip
"""Of these any arguments would be anything at all. Versions behind the name are left out."""
_RUNS_ANY = {
    "run", "exec", "x", "dlx", "config", "tool", "compose", "bisect", "submodule", "rebase",
    "difftool", "extension", "alias", "node", "console",
    # git, where a repository that is named has hooks of its own, or a program is
    "clone", "fetch", "pull", "push", "ls-remote", "remote", "archive", "mergetool",
    "filter-branch", "send-email", "instaweb", "daemon", "worktree",
    # a package is a program, and a container's files are anyone's
    "install", "i", "pip", "cp", "create",
}  # fmt: skip
"""Subcommands that run, or set up to be run, whatever they are given."""
_OF_SOURCES = {"git", "hg", "jj"}
"""Of these `add` is about files that are there; elsewhere it fetches a package."""
_WITH_SCRIPTS = {"npm", "pnpm", "yarn", "bun"}
"""Of these `run` is followed by the name of one of the project's scripts."""


def offers_for_command(line: str, kind: str = RUN_COMMAND) -> tuple[tuple[str, ...], ...]:
    """Return the rules that can be offered for a command: exactly it, and with any arguments.

    None where no rule could allow the line; no wider one for programs that can do anything, nor
    for what is to leave the sandbox (`OUTSIDE` as `kind`).
    """
    parsed = parse(line)
    if not parsed.is_clear or not parsed.commands or "\n" in line or "*" in line:
        return ()
    exact = tuple(dict.fromkeys(f"{kind}({each.text})" for each in parsed.commands))
    wide = () if kind == OUTSIDE else tuple(map(_widened, parsed.commands))
    if not wide or not all(wide):
        return (exact,)
    return exact, tuple(dict.fromkeys(f"{RUN_COMMAND}({each} *)" for each in wide))


def _widened(command: CommandWords) -> str:
    """Return how a command begins whose other arguments may be any; empty where none may."""
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
        if second in _RUNS_ANY or (second == "add" and name not in _OF_SOURCES):
            return ""
        return CommandWords(words[:2]).text if second and not second.startswith(("-", "$")) else ""
    return CommandWords(words[:1]).text


def offers_for_path(tool: str, name: str) -> tuple[tuple[str, ...], ...]:
    """Return the rules that can be offered for a file: it alone, and all in its folder."""
    if any(char in name for char in "*?[]{}()\n"):
        return ()
    folder = name.rpartition("/")[0]
    exact = (f"{tool}({name if folder else './' + name})",)
    return (exact, (f"{tool}({folder}/**)",)) if folder else (exact,)

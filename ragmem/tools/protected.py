"""The files that run by themselves, or that agents follow: their names, and which a folder has."""

import os
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from ragmem.tools.workspace import show_name

_PROTECTED_FOLDERS = {
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
_PROTECTED_FILES = {
    # instructions that agents follow
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
    ".pre-commit-hooks.yaml", ".overcommit.yml",
    # editors and debuggers
    ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".emacs", ".dir-locals.el",
    ".pylintrc", "pylintrc", ".devcontainer.json", ".ghci", ".gdbinit", ".lldbinit",
    ".code-workspace",
    # package managers and builds: what they trust, and what they load
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
_REPOSITORY_FILES = {"config", "config.worktree", "commondir", "hooks", "modules", "worktrees"}
"""Entries of `.git` that make git run programs, or use another place that has such entries; also
protected next to a HEAD, which makes a folder a repository without `.git`."""
_PROTECTED_PAIRS = (
    # Consecutive parts anywhere in a path; a path that ends in them is protected itself.
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
_BEGINNINGS = (
    # hooks of git, and what editors load when a file is opened or saved, in any of their forms
    "lefthook.", ".lefthook.", "lefthook-local.", ".lefthook-local.", ".huskyrc", ".lintstagedrc",
    "lint-staged.config.", "simple-git-hooks.", ".simple-git-hooks.", "eslint.config.",
    ".eslintrc", "prettier.config.", ".prettierrc",
)  # fmt: skip
_SUFFIXES = (
    # systemd's units, desktop entries, launchd's jobs, what Python runs when it starts
    ".service", ".timer", ".socket", ".desktop", ".plist", ".pth", ".code-workspace",
    ".instructions.md", ".mdc", ".sublime-project",
)  # fmt: skip


def protection(real: Path) -> str | None:
    """Return the part of a real path that makes it protected; None if nothing does."""
    parts = [_folded(part) for part in real.parts]
    for at, part in enumerate(parts):
        if part in _PROTECTED_FOLDERS:
            return show_name(real.parts[at])
    for at, pair in enumerate(pairwise(parts)):
        if pair in _PROTECTED_PAIRS:
            return show_name("/".join(real.parts[at : at + 2]))
    above = (real, *real.parents) if real.is_absolute() else ()
    if found := next(filter(is_of_repository, above), None):
        return show_name(found.name)
    name = parts[-1]
    is_one = name in _PROTECTED_FILES or name.startswith(_BEGINNINGS) or name.endswith(_SUFFIXES)
    return show_name(real.name) if is_one else None


def is_of_repository(path: Path) -> bool:
    """Return whether a path makes git run programs, in a folder that git takes for a repository."""
    return _folded(path.name) in _REPOSITORY_FILES and os.path.lexists(path.parent / "HEAD")


def _folded(name: str) -> str:
    """Normalize a name as file systems do that ignore case, composition and invisible marks."""
    if name.isascii():
        return name.lower()
    visible = "".join(c for c in name if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", visible).casefold())


_NAMES = _PROTECTED_FOLDERS | _PROTECTED_FILES | _REPOSITORY_FILES


def protected_in(root: Path) -> list[Path]:
    """Return the files of a folder that run by themselves, according to `protection`.

    Looks at its top level and in its hidden folders; of `.git`, what makes git run programs.
    """
    found: list[Path] = []
    for path in _entries(root, _stands_out):
        if path.name == ".git" and not path.is_symlink() and path.is_dir():
            found += [
                path / name for name in sorted(_REPOSITORY_FILES) if os.path.lexists(path / name)
            ]
        elif _runs(path, root):
            found.append(path)
        elif path.name.startswith("."):
            found += (each for each in _entries(path) if _runs(each, root))
    return found


def _stands_out(name: str) -> bool:
    """Return whether a top-level entry needs a closer look: folders can have very many."""
    folded = _folded(name)
    begins = folded.startswith((".", *_BEGINNINGS))
    return begins or folded in _NAMES or folded.endswith(_SUFFIXES)


def _runs(path: Path, root: Path) -> bool:
    return bool(protection(path.relative_to(root))) or is_of_repository(path)


def _entries(folder: Path, wanted: Callable[[str], bool] = bool) -> list[Path]:
    """Return the entries of a folder whose names are wanted; none of a link."""
    if not folder.is_symlink():
        with suppress(OSError):
            return [folder / name for name in os.listdir(folder) if wanted(name)]
    return []


States = dict[Path, tuple[int, ...]]


def states(roots: Iterable[Path]) -> States:
    """Return the files that run by themselves, each with what identifies its current version."""
    found: States = {}
    for path in (path for root in roots for path in protected_in(root)):
        for each in (path, *_entries(path)):
            with suppress(OSError):
                state = each.lstat()
                found[each] = (state.st_ino, state.st_mode, state.st_size, state.st_mtime_ns)
    return found


def changed(before: States, after: States) -> list[Path]:
    """Return the paths created, changed or removed in between, but not what new folders contain."""
    found = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    return [path for path in found if path.parent in before or path.parent not in after]


def remove_new_commondirs(roots: Iterable[Path], before: States) -> list[Path]:
    """Remove each `commondir` that was created in a `.git`, and return them.

    It does not belong there: git, when next started, would take its configuration from wherever it
    points, which is not protected.
    """
    removed = []
    for path in (root / ".git" / "commondir" for root in roots):
        if path not in before and os.path.lexists(path):
            with suppress(OSError):
                path.unlink()
                removed.append(path)
    return removed

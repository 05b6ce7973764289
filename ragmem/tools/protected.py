"""Files that run by themselves, or that agents obey: a change of them is asked for in any mode.

In the table stands what something acts on unasked, because a folder is entered, opened, built,
tested, installed or committed in, or a shell or a session starts. A Makefile or a script that a
person has to call by its name is not in it. Names are compared as file systems do that ignore
case, composition and characters that can't be seen.
"""

import unicodedata
from pathlib import Path

from ragmem.tools.workspace import show_name

_FOLDERS = {
    # version control, and what it runs
    ".git", ".hg", ".svn", ".jj", ".husky", ".githooks",
    # agents and their tools
    ".ragmem", ".claude", ".codex", ".cursor", ".gemini", ".windsurf", ".roo", ".cline",
    ".clinerules", ".continue", ".kiro", ".junie", ".amazonq", ".opencode", ".agents", ".aider",
    # editors, and machines that they set up
    ".vscode", ".vscode-server", ".idea", ".fleet", ".zed", ".nvim", ".devcontainer",
    # services that run what is pushed
    ".circleci", ".buildkite", ".gitea", ".forgejo", ".woodpecker",
    # keys, and who may log in
    ".ssh", ".gnupg",
}  # fmt: skip
_FILES = {
    # what agents obey
    "agents.md", "agents.override.md", "agent.md", "claude.md", "claude.local.md", "gemini.md",
    "qwen.md", "warp.md", "conventions.md", "copilot-instructions.md", ".cursorrules",
    ".windsurfrules", ".clinerules", ".roorules", ".goosehints", ".rules", "skill.md",
    ".mcp.json", "mcp.json", ".aider.conf.yml", "opencode.json", "opencode.jsonc",
    # shells, terminals and what they start
    ".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
    ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc",
    ".tcshrc", ".login", ".inputrc", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc",
    ".pam_environment", ".tmux.conf", ".screenrc", "config.fish", "profile.ps1",
    "microsoft.powershell_profile.ps1", "crontab", ".mise.toml", "mise.toml", ".tool-versions",
    # version control
    ".gitconfig", ".gitmodules", ".gitattributes", ".hgrc", ".pre-commit-config.yaml",
    ".pre-commit-hooks.yaml", "lefthook.yml", ".lefthook.yml", ".huskyrc",
    # editors and debuggers
    ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".emacs", ".dir-locals.el", ".gdbinit", ".lldbinit",
    ".code-workspace",
    # package managers and builds: whom they trust, and what they load
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnpmfile.mjs", "bunfig.toml",
    ".pypirc", "pip.conf", ".pip.conf", "pip.ini", ".condarc", ".netrc", ".curlrc", ".wgetrc",
    ".gemrc", ".bazelrc", ".rprofile", ".renviron", ".irbrc", ".pryrc",
    # tests and interpreters
    "conftest.py", "sitecustomize.py", "usercustomize.py", ".pythonrc", ".pdbrc",
    # services that run what is pushed
    ".gitlab-ci.yml", ".travis.yml", "azure-pipelines.yml", "bitbucket-pipelines.yml",
    "jenkinsfile", ".drone.yml", ".cirrus.yml", "appveyor.yml", ".appveyor.yml",
    ".woodpecker.yml", "dependabot.yml",
}  # fmt: skip
_WITHIN = (
    # Parts that follow each other anywhere in a path; a path that ends in them is one of them.
    (".github", "workflows"), (".github", "actions"), (".github", "instructions"),
    (".github", "prompts"), (".github", "agents"), (".cargo", "config.toml"), (".cargo", "config"),
    (".config", "autostart"), (".config", "systemd"), (".config", "fish"), (".config", "git"),
    (".config", "nvim"), (".config", "environment.d"), ("etc", "profile.d"), ("etc", "cron.d"),
    ("library", "launchagents"), ("library", "launchdaemons"), (".yarn", "plugins"),
    (".yarn", "releases"), (".ipython", "profile_default"), (".gradle", "init.d"),
    (".mvn", "extensions.xml"), (".mvn", "jvm.config"), (".mvn", "maven.config"),
)  # fmt: skip
_ENDINGS = (
    # systemd's units, desktop entries, launchd's jobs, what Python runs when it starts
    ".service", ".timer", ".socket", ".desktop", ".plist", ".pth", ".code-workspace",
    ".instructions.md", ".mdc",
)  # fmt: skip


def protection(real: Path) -> str | None:
    """What of a real path is in the table, if anything is; else None."""
    parts = [_fold(part) for part in real.parts]
    for part, shown in zip(parts, real.parts, strict=True):
        if part in _FOLDERS:
            return show_name(shown)
    for at in range(len(parts) - 1):
        if (parts[at], parts[at + 1]) in _WITHIN:
            return show_name("/".join(real.parts[at : at + 2]))
    name = parts[-1]
    return show_name(real.name) if name in _FILES or name.endswith(_ENDINGS) else None


def _fold(name: str) -> str:
    """As file systems that ignore case, composition and invisible characters compare."""
    visible = "".join(c for c in name if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", visible).casefold())

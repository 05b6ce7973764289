"""What an approval covers, and what stays asked for whatever was allowed before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragmem.cli.ask import decide
from ragmem.tools.base import Decision, Proposal
from ragmem.tools.protected import protected_in, protection
from tests.tools.conftest import Desk

ALWAYS = Decision(True, remember=True)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def asked(desk: Desk, call: Callable[[], Any]) -> list[Proposal]:
    """What the person is asked while a call is made that they refuse."""
    before = len(desk.proposals)
    desk.deny()
    await call()
    return desk.proposals[before:]


async def test_always_for_an_edit_is_for_that_file_alone(desk: Desk) -> None:
    desk.file("a.txt", "one\n")
    desk.file("b.txt", "one\n")
    for name in ("a.txt", "b.txt"):
        await desk.do("read_file", path=name)
    desk.answer = ALWAYS
    await desk.do("edit_file", path="a.txt", old="one", new="two")
    assert desk.proposals[0].always == "every edit of this file in this session"
    assert not await asked(desk, lambda: desk.do("edit_file", path="a.txt", old="two", new="3"))
    assert not await asked(desk, lambda: desk.do("write_file", path="./a.txt", content="four\n"))
    for tool, arguments in (
        ("edit_file", {"path": "b.txt", "old": "one", "new": "evil"}),
        ("create_file", {"path": "c.txt", "content": "evil"}),
        ("run_command", {"command": "echo evil > a.txt"}),
    ):
        (proposal,) = await asked(desk, lambda t=tool, a=arguments: desk.fails(t, **a))
        assert proposal.tool_name == tool
    assert (desk.cwd / "b.txt").read_text() == "one\n"


async def test_always_for_an_edit_follows_no_link_to_another_file(desk: Desk) -> None:
    desk.file("a.txt", "one\n")
    desk.answer = ALWAYS
    await desk.do("read_file", path="a.txt")
    await desk.do("edit_file", path="a.txt", old="one", new="two")
    other = desk.file("other.txt", "kept\n")
    (desk.cwd / "a.txt").unlink()
    (desk.cwd / "a.txt").symlink_to(other)
    await desk.do("read_file", path="a.txt")
    (proposal,) = await asked(
        desk, lambda: desk.fails("edit_file", path="a.txt", old="kept", new="evil")
    )
    assert proposal.title == "edit_file other.txt"
    assert other.read_text() == "kept\n"


async def test_always_for_a_path_is_for_the_tool_that_was_named(desk: Desk, tmp_path: Path) -> None:
    """Listing a folder is not searching through all that lies below it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key.txt").write_text("a secret")
    desk.answer = ALWAYS
    await desk.do("list_directory", path=str(outside))
    assert desk.proposals[0].always == "list_directory for this path in this session"
    assert not await asked(desk, lambda: desk.do("list_directory", path=str(outside)))
    assert await asked(desk, lambda: desk.fails("grep_files", pattern="s", path=str(outside)))
    assert await asked(desk, lambda: desk.fails("read_file", path=str(outside / "key.txt")))


# Absent at the start, in any case, in any form: each of them acts without being called.
PROTECTED = [
    ".git/hooks/pre-commit", ".git/config", "sub/.git/config", ".ragmem/config.toml", ".envrc",
    ".vscode/tasks.json", ".bashrc", ".zshenv", ".GIT/config", ".Vscode/x", ".idea/x",
    ".ssh/config", ".husky/pre-push", ".mcp.json", ".g\u200cit/config", ".GiT\ufeff/x",
    "AGENTS.md", "pkg/Agents.MD", "CLAUDE.md", ".claude/commands/x.md", ".cursor/rules/x.mdc",
    ".github/workflows/ci.yml", ".GitHub/Workflows/ci.yml", ".github/copilot-instructions.md",
    "HEAD", "sub/HEAD", "crush.json", ".qwen/settings.json", ".mise.local.toml", "pylintrc",
    "conftest.py", "tests/unit/conftest.py", ".npmrc", ".yarnrc.yml", ".gitlab-ci.yml",
    ".config/systemd/user/x.service", "units/x.timer", "my.code-workspace", "sitecustomize.py",
    "lib/evil.pth", ".pre-commit-config.yaml", ".cargo/config.toml", ".vimrc", "Jenkinsfile",
    ".devcontainer/devcontainer.json", "eslint.config.ts", ".eslintrc.json", ".prettierrc.mjs",
    ".lintstagedrc.yml", "lefthook-local.yaml", "simple-git-hooks.cjs", "a\u017f/AGENT\u017f.md",
]  # fmt: skip


@pytest.mark.parametrize("path", ["config", "hooks/pre-commit", "worktrees/a/x"])
async def test_a_folder_with_a_head_is_as_protected_as_dot_git(tmp_path: Path, path: str) -> None:
    """Git takes it for a repository, and does what its configuration and hooks say."""
    desk = Desk(tmp_path, mode="acceptEdits")
    desk.deny()
    folder = desk.cwd / "bare.git"
    folder.mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    assert (await desk.fails("create_file", path=f"bare.git/{path}", content="evil")).denied
    await desk.do("create_file", path=f"plain/{path}", content="x")


@pytest.mark.parametrize("path", PROTECTED)
async def test_what_runs_itself_is_asked_for_when_edits_are_free(tmp_path: Path, path: str) -> None:
    desk = Desk(tmp_path, mode="acceptEdits", allow=("create_file", "write_file"))
    desk.deny()
    assert (await desk.fails("create_file", path=path, content="evil")).denied
    assert "protected" in desk.proposals[0].warnings[0]
    assert not (desk.cwd / path).exists()
    desk.answer = ALWAYS
    await desk.do("create_file", path=path, content="wanted")
    await desk.do("create_file", path="plain.txt", content="x")
    desk.deny()
    assert (await desk.fails("write_file", path=path, content="evil")).denied
    assert [proposal.always for proposal in desk.proposals] == [""] * 3
    assert decide("always", desk.proposals[0]) is None
    assert decide("y", desk.proposals[0]) == Decision(True)


async def test_a_link_hides_nothing_that_runs_by_itself(tmp_path: Path) -> None:
    desk = Desk(tmp_path, mode="acceptEdits")
    desk.deny()
    desk.file("CLAUDE.md", "rules\n")
    (desk.cwd / "notes.md").symlink_to("CLAUDE.md")
    (desk.cwd / ".github" / "workflows").mkdir(parents=True)
    (desk.cwd / "docs").symlink_to(".github/workflows")
    await desk.do("read_file", path="notes.md")
    assert (await desk.fails("write_file", path="notes.md", content="evil")).denied
    assert (await desk.fails("create_file", path="docs/x.yml", content="evil")).denied
    assert (await desk.fails("create_file", path="docs/../workflows/x.yml", content="x")).denied
    assert [p.warnings[-1].split(" is ")[0] for p in desk.proposals] == [
        "CLAUDE.md",
        ".github/workflows",
        ".github/workflows",
    ]


async def test_a_protected_name_that_links_to_another_file_protects_that_too(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, mode="acceptEdits")
    desk.deny()
    desk.file("docs/ai.md", "rules\n")
    desk.file("tools/pre-commit", "#!/bin/sh\n")
    desk.file(".git/HEAD", "ref: refs/heads/main\n")
    (desk.cwd / "AGENTS.md").symlink_to("docs/ai.md")
    (desk.cwd / ".git" / "hooks").symlink_to("../tools")
    for path in ("AGENTS.md", "docs/ai.md", ".git/hooks/pre-commit", "tools/pre-commit"):
        await desk.do("read_file", path=path)
        assert (await desk.fails("write_file", path=path, content="evil")).denied
    await desk.do("create_file", path="docs/other.md", content="fine")
    reasons = [p.warnings[-1].split(" is ")[0] for p in desk.proposals]
    assert reasons == ["AGENTS.md", "AGENTS.md", ".git", "hooks"]


def test_what_runs_by_itself_is_found_among_very_many_files(tmp_path: Path) -> None:
    kept = {".git/hooks", "AGENTS.md", ".github/workflows", "z.service"}
    for name in (".git/hooks/x", "AGENTS.md", ".github/workflows/x.yml", "z.service"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for folder in (tmp_path, tmp_path / ".github"):
        for number in range(6_000):
            (folder / f"data-{number}.csv").touch()
    assert {str(path.relative_to(tmp_path)) for path in protected_in(tmp_path)} == kept


def test_a_repository_that_cannot_be_followed_is_protected_itself(tmp_path: Path) -> None:
    (tmp_path / ".git").symlink_to("a" * 300)
    assert protected_in(tmp_path) == [tmp_path / ".git"]


def test_ordinary_names_are_not_protected() -> None:
    """The table is of what acts unasked, no more."""
    for path in (
        "/w/git/config", "/w/.gitignore", "/w/.github/x.yml", "/w/config", "/w/.env", "/w/Makefile",
        "/w/package.json", "/w/pyproject.toml", "/w/agents/run.py", "/w/service.py", "/w/README.md",
        "/w/docs/agents.md.txt", "/w/test_conftest.py", "/w/.config/x", "/w/workflows/ci.yml",
        "/w/eslint.md", "/w/src/prettier.ts", "/w/.eslintignore",
    ):  # fmt: skip
        assert protection(Path(path)) is None, path

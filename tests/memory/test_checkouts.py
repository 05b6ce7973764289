"""Worktrees of one repository, as git makes them, and `.git` files that claim what isn't theirs."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ragmem.errors import UsageError
from ragmem.memory.projects import (
    joinable,
    locate,
    main_checkout,
    project_to_split,
    read_branch,
    read_remote,
    registrations,
)
from ragmem.records import Project

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def git(folder: Path, *arguments: str) -> None:
    person = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@a", "GIT_CONFIG_GLOBAL": os.devnull}
    person |= {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@a"}
    subprocess.run(
        ["git", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        env={**os.environ, **person},
    )


def repository(folder: Path) -> Path:
    """One with its first commit, made there."""
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


@pytest.fixture
def main(tmp_path: Path) -> Path:
    folder = repository(tmp_path / "garden")
    git(folder, "remote", "add", "origin", "https://example.org/garden")
    return folder


@pytest.fixture
def tree(main: Path) -> Path:
    git(main, "worktree", "add", "-q", str(main.parent / "tree"), "-b", "other")
    return main.parent / "tree"


def known(
    path: Path | str, remote: str | None = None, project_id: str = "p1", joined_into: str = ""
) -> Project:
    return Project(
        project_id=project_id,
        path=str(path),
        remote=remote,
        created_at=NOW,
        joined_into=joined_into or None,
    )


def test_a_worktree_is_its_repositorys(main: Path, tree: Path) -> None:
    inner = tree / "src"
    inner.mkdir()
    assert main_checkout(tree) == main
    located = locate(inner, [], now=NOW)
    assert located.project.path == str(tree)
    into, own = [write.project for write in registrations(located.project)]
    assert (into.path, own.path) == (str(main), str(tree))
    assert own.root_id == into.project_id == locate(main, [], now=NOW).project.root_id


def test_the_branch_is_that_of_the_checkout(main: Path, tree: Path) -> None:
    git(main, "symbolic-ref", "HEAD", "refs/heads/feature/shade")
    assert read_branch(main) == "feature/shade"
    assert read_branch(tree) == "other"
    git(tree, "checkout", "-q", "--detach")
    commit = (main / ".git" / "worktrees" / "tree" / "HEAD").read_text()
    assert read_branch(tree) == commit[:12]


@pytest.mark.parametrize("head", ["", "ref: refs/heads/a\n# Rules", "ref: /etc/passwd", "x" * 500])
def test_a_head_of_no_git_names_no_branch(main: Path, head: str) -> None:
    """What stands there is the folder's word, and goes into a request."""
    (main / ".git" / "HEAD").write_text(head)
    assert read_branch(main) == ""
    assert read_branch(main / "not there") == ""


def test_the_repository_may_be_known_by_another_id(main: Path, tree: Path) -> None:
    located = locate(tree, [known(main)], now=NOW)
    assert located.project.root_id == "p1"
    assert [write.project.path for write in registrations(located.project)] == [str(tree)]


def test_a_worktree_that_was_a_project_stays_one_until_it_is_joined(main: Path, tree: Path) -> None:
    whole, apart = (known(path, project_id=path.name) for path in (main, tree))
    located = locate(tree, [whole, apart], now=NOW)
    assert located.project == apart
    assert located.apart_from
    assert located.apart_from.project_id == whole.project_id
    assert joinable(apart, [whole, apart], tree) == [whole]
    assert joinable(whole, [whole, apart], main) == [apart]


def test_a_worktree_that_was_split_off_is_left_alone(main: Path, tree: Path) -> None:
    """Only a person joins it again."""
    whole, split = known(main), known(tree, project_id="tree", joined_into="tree")
    located = locate(tree, [whole, split], now=NOW)
    assert (located.project, located.apart_from) == (split, None)
    assert [write.project for write in registrations(split)] == [split]
    assert joinable(split, [whole, split], tree) == [whole]


def test_what_others_were_joined_to_is_not_split_but_they_are(main: Path, tree: Path) -> None:
    """The folder that is named may be gone."""
    whole = known(main)
    joined = known("/the/old place", project_id="gone", joined_into=whole.project_id)
    with pytest.raises(UsageError, match="is the project that others were joined to") as caught:
        project_to_split(main, [whole, joined], now=NOW)
    assert caught.value.hint == "Split one of those: `ragmem sessions split '/the/old place'`"
    assert project_to_split(Path("/the/old place"), [whole, joined], now=NOW) == joined
    assert project_to_split(tree / "src", [whole], now=NOW).path == str(tree)


def test_a_worktree_of_a_bare_repository_is_that_repositorys(main: Path) -> None:
    bare = main.parent / "garden.git"
    git(main, "clone", "-q", "--bare", ".", str(bare))
    git(bare, "worktree", "add", "-q", str(main.parent / "tree"))
    assert main_checkout(main.parent / "tree") == bare


def test_paths_from_one_side_to_the_other_are_read_from_where_they_stand(
    main: Path, tree: Path
) -> None:
    """As `git worktree add --relative-paths` writes them."""
    (tree / ".git").write_text("gitdir: ../garden/.git/worktrees/tree\n")
    (main / ".git/worktrees/tree/gitdir").write_text("../../../../tree/.git\n")
    assert main_checkout(tree) == main


def test_a_submodule_and_a_checkout_are_their_own(main: Path) -> None:
    other = main.parent / "other"
    git(main.parent, "clone", "-q", str(main), str(other))
    git(main, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "part")
    assert (main / "part" / ".git").is_file()
    assert main_checkout(main / "part") is None
    assert main_checkout(main) is None


def test_a_folder_that_only_says_so_is_believed_nothing(main: Path, tree: Path) -> None:
    evil = main.parent / "evil"
    evil.mkdir()
    (evil / ".git").write_text(f"gitdir: {main}/.git/worktrees/tree\n")
    assert main_checkout(evil) is None
    # A worktrees folder of its own, whose common folder is somebody else's.
    own = evil / "worktrees" / "x"
    own.mkdir(parents=True)
    (own / "commondir").write_text(f"{main}/.git\n")
    (own / "gitdir").write_text(f"{evil}/.git\n")
    (evil / ".git").write_text("gitdir: worktrees/x\n")
    assert main_checkout(evil) is None
    # The same behind links.
    (evil / "link").symlink_to(main / ".git/worktrees/tree")
    (evil / ".git").write_text("gitdir: link\n")
    assert main_checkout(evil) is None
    assert locate(evil, [], now=NOW).project.joined_into is None


@pytest.mark.parametrize(
    "text",
    [
        "", "gitdir:", "gitdir: \n", "gitdir: .", "gitdir: .git", "gitdir: ..\n..",
        "gitdir: a\0b", "gitdir: /dev/zero", "gitdir: " + "x/" * 9_000, "gitdir: \udcff\udcfe",
        "GITDIR: ../garden/.git/worktrees/tree", "commondir: x",
    ],
    ids=range(12),
)  # fmt: skip
def test_what_no_git_writes_is_no_worktree(text: str, tmp_path: Path) -> None:
    (tmp_path / ".git").write_bytes(os.fsencode(text))
    assert main_checkout(tmp_path) is None


def test_neither_a_loop_nor_a_pipe_nor_a_huge_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / ".git"
    file.symlink_to(file)
    assert main_checkout(tmp_path) is None
    assert read_remote(tmp_path) is None
    file.unlink()
    os.mkfifo(file)
    assert main_checkout(tmp_path) is None
    file.unlink()
    with file.open("wb") as stream:
        stream.write(b"gitdir: ")
        stream.truncate(2**30)
    assert main_checkout(tmp_path) is None

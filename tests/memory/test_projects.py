"""Projects, folders and checkouts, and what their files tell an agent."""

import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ragmem.errors import UsageError
from ragmem.memory.projects import (
    find_instructions,
    folder_name,
    is_called_like,
    is_reachable,
    joinable,
    locate,
    main_checkout,
    moved_text,
    normalize_cwd,
    project_at,
    project_to_split,
    read_branch,
    read_remote,
    real_folder,
    registrations,
)
from ragmem.records import Project
from ragmem.text import mark_for

URL = "https://example.org/team/app.git"


def checkout(path: Path, remote: str = "") -> Path:
    (path / ".git").mkdir(parents=True)
    origin = f'\tbare = false\n[remote "origin"]\n\turl = {remote}\n' if remote else ""
    (path / ".git" / "config").write_text(f"[core]\n{origin}")
    return path


def test_folder_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link, a relative path and a trailing slash lead to the same folder."""
    real = tmp_path / "real"
    (real / "x").mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    monkeypatch.chdir(real)
    for form in (tmp_path / "link", Path("x/.."), f"{real}/", Path(".")):
        assert normalize_cwd(form) == real


def test_checkout_is_the_project(tmp_path: Path) -> None:
    """The nearest ancestor with .git, be it a folder or a worktree's file; else a known one."""
    top = checkout(tmp_path / "repo")
    inner = top / "a" / "b"
    inner.mkdir(parents=True)
    assert locate(inner, [], now=NOW).project.path == str(top)
    tree = tmp_path / "tree" / "c"
    tree.mkdir(parents=True)
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere")
    assert locate(tree, [], now=NOW).project.path == str(tmp_path / "tree")


def test_known_ancestor_else_the_folder_itself(tmp_path: Path) -> None:
    inner = tmp_path / "p" / "q"
    inner.mkdir(parents=True)
    found = locate(inner, [known(tmp_path / "p")], now=NOW)
    assert found.project.project_id == "p1"
    assert not found.is_new
    assert locate(inner, [], now=NOW).project.path == str(inner)


def test_home_is_no_project_of_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder under version control, or the root, claims nothing below it."""
    home = checkout(tmp_path / "home")
    work = home / "work"
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    found = locate(work, [known(home), known("/", project_id="root")], now=NOW)
    assert found.project.path == str(work)


def test_moved_checkout_keeps_its_memory(tmp_path: Path) -> None:
    """Same remote, old folder gone."""
    new = checkout(tmp_path / "new", URL)
    found = locate(new, [known(tmp_path / "gone", URL)], now=NOW)
    assert found.project.project_id == "p1"
    assert found.project.path == str(new)
    assert found.moved_from == str(tmp_path / "gone")


def test_clone_beside_the_original_is_another_project(tmp_path: Path) -> None:
    """A cloned repository can't claim another project's memory."""
    old, new = checkout(tmp_path / "old", URL), checkout(tmp_path / "new", URL)
    found = locate(new, [known(old, URL)], now=NOW)
    assert found.is_new
    assert found.project.project_id != "p1"
    assert found.moved_from is None


def met(folder: Path, *others: Project) -> Project:
    """What is known of a folder once a session was there."""
    return locate(folder, others, now=NOW).project


@pytest.mark.parametrize("met_since", [False, True])
def test_a_repository_with_a_later_remote_is_known_again(tmp_path: Path, met_since: bool) -> None:
    """Whether or not a session was there in between; and where the remote was removed since."""
    old, new = repository(tmp_path / "old"), tmp_path / "new"
    project = met(old)
    git(old, "remote", "add", "origin", URL)
    if met_since:
        project = met(old, project)
        assert project.remote == URL
    old.rename(new)
    found = locate(new, [project], now=NOW)
    assert found.moved_from == str(old)
    assert ("same remote" if met_since else "same first commit") in moved_text(found)
    git(new, "remote", "remove", "origin")
    project = met(new, found.project)
    new.rename(old)
    assert locate(old, [project], now=NOW).moved_from == str(new)


def test_a_clone_is_never_taken_for_another_that_is_gone(tmp_path: Path) -> None:
    """What a clone has of its own is no first commit; a copy of the folder has its original's."""
    template = repository(tmp_path / "template")
    one, other = tmp_path / "shop", tmp_path / "blog"
    for clone in (one, other):
        git(tmp_path, "clone", "-q", str(template), str(clone))
        git(clone, "remote", "remove", "origin")
        git(clone, "commit", "-q", "--allow-empty", "-m", "second")
    known_ones = [met(one), met(template)]
    shutil.rmtree(one)
    assert locate(other, known_ones, now=NOW).moved_from is None
    shutil.copytree(template, tmp_path / "copy")
    assert locate(tmp_path / "copy", known_ones, now=NOW).moved_from is None
    shutil.rmtree(template)
    assert locate(other, known_ones, now=NOW).moved_from is None
    assert locate(tmp_path / "copy", known_ones, now=NOW).moved_from == str(template)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://user:token@example.org/a.git", "https://example.org/a.git"),
        ("https://token@example.org/a.git", "https://example.org/a.git"),
        ('"https://user:token@example.org/a.git"', "https://example.org/a.git"),
        ("https://user:to@ken@example.org/a.git", "https://example.org/a.git"),
        ("https://example.org/a.git?private_token=x", "https://example.org/a.git"),
        ("git@example.org:a/b.git", "git@example.org:a/b.git"),
        ("", None),
    ],
)
def test_remote_has_no_secret(tmp_path: Path, url: str, kept: str | None) -> None:
    """Read from .git/config as a file, user information removed."""
    assert read_remote(checkout(tmp_path / "r", url)) == kept


def test_strange_git_folders_are_no_error(tmp_path: Path) -> None:
    """Facts of the file system only."""
    (tmp_path / ".git").mkdir()
    assert read_remote(tmp_path) is None
    (tmp_path / ".git" / "config").write_bytes(b"\xff\xfe[remote \x00")
    assert read_remote(tmp_path) is None
    os.symlink("loop", tmp_path / "loop")
    assert read_remote(tmp_path / "loop") is None


# --- names, joined projects ------------------------------------------------------


def test_bytes_that_are_no_text_have_a_name(tmp_path: Path) -> None:
    """Stored as text, found again, and not taken for one that is gone."""
    folder = checkout(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")), URL)
    name = folder_name(folder)
    assert name == f"{tmp_path}/caf\\xe9"
    found = locate(folder, [known(name, URL)], now=NOW)
    assert (found.project.project_id, found.is_new) == ("p1", False)
    assert real_folder(name, folder / "x") == real_folder(name) == folder
    literal = tmp_path / "caf\\xe9"
    literal.mkdir()
    assert folder_name(literal) == f"{tmp_path}/caf\\x5cxe9"
    assert real_folder(folder_name(literal)) == literal
    # As an earlier version stored it.
    folder.rename(tmp_path / "caf")
    assert real_folder(name) == literal
    (tmp_path / "caf").rename(folder)
    assert real_folder("/elsewhere", folder) == Path("/elsewhere")
    other = checkout(tmp_path / "other", URL)
    assert locate(other, [known(name, URL)], now=NOW).moved_from is None


def test_a_folder_that_cannot_be_looked_at_is_not_there(tmp_path: Path) -> None:
    """It may be on a mount that does not answer, or be closed to this user."""
    assert is_reachable(str(tmp_path))
    assert not is_reachable(str(tmp_path / "gone"))
    assert not is_reachable(str(tmp_path / ("long" * 100)))


def test_a_project_may_have_several_folders(tmp_path: Path) -> None:
    """Of the joined ones the one around the folder counts, else its own."""
    root, joined = known("/a", project_id="a"), known(tmp_path, None, "b", "a")
    every = [root, joined, known("/c", project_id="c")]
    assert project_at(tmp_path / "x", "a", every) == joined
    assert project_at(Path("/elsewhere"), "a", every) == root
    assert project_at(Path("/elsewhere"), "none", every) is None
    assert locate(tmp_path, every, now=NOW).project.root_id == "a"


def test_what_can_be_joined(tmp_path: Path) -> None:
    """The same remote, another project, and not one that is joined already."""
    here = known(checkout(tmp_path / "here", URL), None, "here")
    one, other = known("/one", URL, "one"), known("/other", "https://example.org/x.git", "other")
    joined = known("/two", URL, "two", "one")
    every = [here, one, other, joined]
    assert joinable(here, every, tmp_path / "here") == [one]
    assert joinable(joined, every, Path("/two")) == []
    assert joinable(known("/none", None, "none"), every, Path("/none")) == []


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("shop", "Shop", True), ("shop", "my-shop_2", True), ("shop2", "shop", True),
        ("a", "webapp", False), ("shop", "workshop", False), ("shop-old", "shop-new", False),
        ("-", "shop", False),
    ],
)  # fmt: skip
def test_folders_are_called_alike_by_their_words(one: str, other: str, alike: bool) -> None:
    first, second = known(f"/here/{one}"), known(f"/there/{other}")
    assert is_called_like(first, second) == is_called_like(second, first) == alike


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is needed to find a project."""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    assert locate(tmp_path, [], now=NOW).project.path == str(tmp_path)


def test_from_the_top_down_to_the_folder(tmp_path: Path) -> None:
    """AGENTS.md of each folder, outermost first; CLAUDE.md where there is none."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("top rules")
    (tmp_path / "CLAUDE.md").write_text("not read")
    (tmp_path / "a" / "CLAUDE.md").write_text("a's rules")
    (inner / "AGENTS.md").write_text("  \n")
    found = find_instructions(inner, tmp_path)
    mark = mark_for("top rules\na's rules")
    assert found.text == (
        f'# From "AGENTS.md" [{mark}]\n\ntop rules\n\n# From "a/CLAUDE.md" [{mark}]\n\na\'s rules'
    )
    assert found.files == (tmp_path / "AGENTS.md", tmp_path / "a" / "CLAUDE.md")


def test_nothing_outside_the_project_is_read(tmp_path: Path) -> None:
    """A link out of the project, a FIFO and a folder are no instructions."""
    project = tmp_path / "p"
    project.mkdir()
    (tmp_path / "AGENTS.md").write_text("of the parent")
    (tmp_path / "secret").write_text("secret")
    rules = project / "AGENTS.md"
    for make in (lambda: rules.symlink_to(tmp_path / "secret"), lambda: os.mkfifo(rules)):
        make()
        assert find_instructions(project, project).text == ""
        rules.unlink()
    rules.mkdir()
    assert find_instructions(project, project).text == ""


def test_the_persons_own_instructions_go_before_the_projects(tmp_path: Path) -> None:
    own, project = tmp_path / "config" / "AGENTS.md", tmp_path / "project"
    for file, text in ((own, "Be brief.\n@style.md"), (project / "AGENTS.md", "Use tabs.")):
        file.parent.mkdir()
        file.write_text(text)
    (own.parent / "style.md").write_text("No jargon.")
    text = find_instructions(project, project, own).text
    assert 'From the user\'s own "AGENTS.md"' in text
    assert text.index("Be brief.") < text.index("No jargon.") < text.index("Use tabs.")


def test_files_that_instructions_name_are_followed_inside_the_project_only(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "docs").mkdir(parents=True)
    (tmp_path / "secret.md").write_text("SECRET")
    (project / "leads_out.md").symlink_to(tmp_path / "secret.md")
    (project / "CLAUDE.md").write_text(
        "See:\n- @docs/style.md\n@AGENTS.txt\nmail me@docs/more.md\n@../secret.md\n"
        f"@{tmp_path}/secret.md\n@leads_out.md\n@~/x\n@docs\n@a\0b\n"
    )
    (project / "docs" / "style.md").write_text("Two spaces.\n@more.md\n@../CLAUDE.md\n")
    (project / "docs" / "more.md").write_text("And no tabs.\n@style.md\n@more.md")
    found = find_instructions(project, project)
    assert [os.path.relpath(file, project) for file in found.files] == [
        "CLAUDE.md",
        "docs/style.md",
        "docs/more.md",
    ]
    assert "SECRET" not in found.text
    for number in range(100):
        (project / f"{number}.md").write_text(f"@{number + 1}.md and\n" + "x" * 10)
    (project / "CLAUDE.md").write_text("".join(f"@{number}.md\n" for number in range(100)))
    assert len(find_instructions(project, project).files) == 30


# --- worktrees of one repository, as git makes them -----------------------------------


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
    assert caught.value.hint == "Split one of the others: `ragmem sessions split '/the/old place'`"
    assert project_to_split(Path("/the/old place"), [whole, joined], now=NOW) == joined
    assert project_to_split(tree / "src", [whole], now=NOW).path == str(tree)


def test_a_worktree_of_a_bare_repository_is_that_repositorys(main: Path) -> None:
    bare = main.parent / "garden.git"
    git(main, "clone", "-q", "--bare", ".", str(bare))
    git(bare, "worktree", "add", "-q", str(main.parent / "tree"))
    assert main_checkout(main.parent / "tree") == bare


def test_paths_between_the_sides_are_read_from_where_they_stand(main: Path, tree: Path) -> None:
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

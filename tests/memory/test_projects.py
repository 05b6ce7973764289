"""Projects and folders, and what their files tell an agent."""

import os
import shutil
from pathlib import Path

import pytest

from ragmem.memory.projects import (
    find_instructions,
    folder_name,
    is_called_like,
    joinable,
    locate,
    moved_text,
    normalize_cwd,
    project_at,
    read_remote,
    real_folder,
)
from ragmem.records import Project
from ragmem.text import mark_for

from .test_checkouts import NOW, git, known, repository

URL = "https://example.org/team/app.git"


def checkout(path: Path, remote: str = "") -> Path:
    (path / ".git").mkdir(parents=True)
    text = (
        f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {remote}\n' if remote else "[core]\n"
    )
    (path / ".git" / "config").write_text(text)
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


def test_home_is_never_a_project_of_its_folders(tmp_path: Path) -> None:
    """A home folder under version control, or the root, claims nothing below it."""
    home = checkout(tmp_path / "home")
    work = home / "work"
    work.mkdir()
    found = locate(work, [known(home), known("/", project_id="root")], now=NOW, home=home)
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
def test_a_repository_that_got_its_remote_later_is_known_when_it_moves(
    tmp_path: Path, met_since: bool
) -> None:
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
    assert real_folder(name, folder / "x") == folder
    assert real_folder("/elsewhere", folder) == Path("/elsewhere")
    other = checkout(tmp_path / "other", URL)
    assert locate(other, [known(name, URL)], now=NOW).moved_from is None


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
        ("shop", "Shop", True),
        ("shop", "my-shop_2", True),
        ("shop2", "shop", True),
        ("a", "webapp", False),
        ("shop", "workshop", False),
        ("shop-old", "shop-new", False),
        ("-", "shop", False),
    ],
)
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
    assert 'From the person\'s own "AGENTS.md"' in text
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

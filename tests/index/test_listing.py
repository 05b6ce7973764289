"""Which files are indexed, by the real ripgrep."""

import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from ragmem.errors import RagmemError
from ragmem.files import refusal
from ragmem.index.files import ProjectFiles, left_out_by_name, list_project


def _listed(folder: Path, *, most: int = 1000, private: tuple[Path, ...] = ()) -> ProjectFiles:
    handle = os.open(folder, os.O_RDONLY)
    try:
        return list_project(
            handle,
            folder,
            max_files=most,
            private=private,
            stop=threading.Event(),
        )
    finally:
        os.close(handle)


def _make(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("text\n")


def test_what_ripgrep_lists_without_what_tells_nothing(tmp_path):
    """.gitignore respected, binary, generated and secret files left out and counted."""
    _make(
        tmp_path,
        "a.py", "src/b.ts", ".github/ci.yml", ".env.example", "build/out.js", "x.log",
        ".git/config", ".env", "keys/server.pem", ".ssh/config", "id_rsa", "credentials.json",
        "credentials.py", "logo.png", "package-lock.json", "app.min.js", "api_pb2.py", "app.js.map",
    )  # fmt: skip
    (tmp_path / ".gitignore").write_text("build/\n*.log\n")
    listed = _listed(tmp_path)
    assert listed.paths == [
        ".env.example", ".github/ci.yml", ".gitignore", "a.py", "credentials.py", "src/b.ts",
    ]  # fmt: skip
    assert listed.left_out == Counter(secret=5, generated=4, binary=1)
    assert listed.whole


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("src/key.py", ""),
        ("src/monkey", ""),
        (".env.production", "secret"),
        ("deploy/prod.env", "secret"),
        ("A/ID_RSA.bak", "secret"),
        ("vault.kdbx", "secret"),
        ("home/.aws/config", "secret"),
        (".netrc", "secret"),
        ("infra/terraform.tfstate.backup", "secret"),
        ("go.sum", "generated"),
        ("web/Main.BUNDLE.js", "generated"),
        ("a.ZIP", "binary"),
        ("web/node_modules/left-pad/index.js", "installed or cached"),
        (".venv/lib/python3.11/site-packages/attr/_make.py", "installed or cached"),
        ("docs/node_modules", ""),
        ("png", ""),
        ("Makefile", ""),
        ("a\udcff.py", "unnameable"),
    ],
)
def test_reasons_that_a_name_gives(path, why):
    assert left_out_by_name(path) == why


def test_names_that_are_hard_to_bear(tmp_path):
    """Names with newlines are files like others; bytes that are no UTF-8 are counted."""
    _make(tmp_path, "two\nlines.py", "-rf.py", "sp ace.py", "é.py")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")).write_text("x")
    listed = _listed(tmp_path)
    assert listed.paths == sorted(["two\nlines.py", "-rf.py", "sp ace.py", "é.py"])
    assert listed.left_out == Counter(unnameable=1)


def test_links_are_not_followed(tmp_path):
    outside = tmp_path / "outside"
    _make(outside, "other.py")
    project = tmp_path / "project"
    _make(project, "a.py", "below/b.py")
    (project / "loop").symlink_to(project)
    (project / "below" / "up").symlink_to("..")
    (project / "out").symlink_to(outside)
    (project / "file.py").symlink_to(outside / "other.py")
    (project / "same.py").symlink_to("a.py")
    os.mkfifo(project / "pipe.py")
    assert _listed(project).paths == ["a.py", "below/b.py"]


def test_of_too_many_the_shallowest(tmp_path):
    """The choice is the same each time, whatever order they are listed in."""
    _make(tmp_path, *(f"deep/er/f{n}.py" for n in range(20)), *(f"f{n}.py" for n in range(6)))
    listed = _listed(tmp_path, most=8)
    assert listed.paths == ["deep/er/f0.py", "deep/er/f1.py", *(f"f{n}.py" for n in range(6))]
    assert listed.left_out == Counter({"too many": 18})
    assert _listed(tmp_path, most=8) == listed


def test_ragmems_own_folders_are_left_out(tmp_path):
    _make(tmp_path, "a.py", ".ragmem/data/notes.txt", ".ragmem-like/b.py")
    listed = _listed(tmp_path, private=(tmp_path / ".ragmem", Path("/elsewhere")))
    assert listed.paths == [".ragmem-like/b.py", "a.py"]
    assert listed.left_out == Counter({"ragmem's own": 1})


def test_a_projects_configuration_of_ripgrep_is_not_read(tmp_path, monkeypatch):
    _make(tmp_path, "a.py", "b.py")
    (tmp_path / "rc").write_text("--glob=!a.py\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    assert "a.py" in _listed(tmp_path).paths


@pytest.mark.without_rights
def test_unreadable_folders_are_counted(tmp_path):
    _make(tmp_path, "a.py", "closed/b.py")
    (tmp_path / "closed").chmod(0)
    try:
        listed = _listed(tmp_path)
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert (listed.paths, listed.left_out) == (["a.py"], Counter(unreadable=1))


def test_the_home_folder_is_no_project(tmp_path, monkeypatch):
    """Neither it, nor what it is in, nor the root; what is in it may be one."""
    home = tmp_path / "people" / "ana"
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    assert refusal(Path("/")) == "it is the root of the file system"
    assert refusal(home) == "it is your home folder"
    assert refusal(tmp_path / "people") == "your home folder is in it"
    assert refusal(home / "work") == ""
    assert refusal(tmp_path / "other") == ""


def test_a_listing_that_was_cut_off_is_not_taken_for_whole(tmp_path, monkeypatch):
    """Ripgrep that is killed in the middle (no memory, say) would take files for gone."""
    killed = tmp_path / "rg"
    killed.write_text("#!/bin/sh\nprintf './a.py\\000'\nkill -9 $$\n")
    killed.chmod(0o755)
    (tmp_path / "project").mkdir()
    _make(tmp_path / "project", "a.py", "b.py")
    monkeypatch.setattr("ragmem.index.files.find_ripgrep", lambda _: killed)
    with pytest.raises(RagmemError, match="ended by signal 9"):
        _listed(tmp_path / "project")

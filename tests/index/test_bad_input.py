"""What a folder may hold: counted, said once, never fatal."""

import os
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from ragmem.index.files import NotRead, read
from ragmem.index.rows import cut_files, row_of
from tests.index.trees import AUTH, Tree, children


@pytest.fixture
def tree(tmp_path) -> Tree:
    made = Tree(tmp_path)
    made.write("good.py", AUTH)
    return made


@pytest.fixture
def root(tree):
    handle = os.open(tree.root, os.O_RDONLY)
    yield handle
    os.close(handle)


def _why(root: int, path: str, most: int = 1000) -> str:
    with pytest.raises(NotRead) as caught:
        read(root, path, most)
    return caught.value.why


def test_what_can_not_be_read(tree, root, tmp_path):
    """Files that vanish while read, fifos, folders, links, too large ones."""
    (tmp_path / "outside.py").write_text("x = 1\n")
    os.mkfifo(tree.root / "pipe.py")
    (tree.root / "link.py").symlink_to("good.py")
    (tree.root / "out").symlink_to(tmp_path)
    (tree.root / "loop").symlink_to("loop")
    (tree.root / "folder.py").mkdir()
    tree.write("large.py", "x" * 1001)
    reasons = {
        "gone.py": "vanished",
        "gone/deep.py": "vanished",
        "good.py/below.py": "vanished",
        "pipe.py": "not a regular file",
        "folder.py": "not a regular file",
        "link.py": "unreadable",
        "out/outside.py": "vanished",
        "loop": "unreadable",
        "large.py": "too large",
        "nul\0.py": "unreadable",
        "x" * 300: "unreadable",
    }
    assert {path: _why(root, path) for path in reasons} == reasons


def test_a_file_that_grows_while_it_is_read(tree, root):
    tree.write("growing.py", "x" * 1000)
    assert len(read(root, "growing.py", 1000).data) == 1000
    assert _why(root, "growing.py", 999) == "too large"


CAFE = '# café\ndef brew():\n    """Un café."""\n    return \'café\'\n'


async def test_a_folder_full_of_trouble(tree):
    """Odd bytes, names and depths; what is left out is told the next time too."""
    deep = "/".join(["deep"] * 150) + "/down.py"
    tree.write("latin.py", CAFE.encode("latin-1"))
    tree.write("nul_late.txt", b"word " * 2000 + b"\0" + b"rest " * 10)
    tree.write("nul_early.txt", b"a\0b")
    tree.write("huge.txt", "word " * 300_000)
    tree.write("nested.json", "[" * 100_000)
    tree.write("unfinished.py", "def broken(:\n  class (\n" * 50)
    tree.write("two\nlines.py", "def newline_in_name():\n    return 1\n")
    tree.write("empty.py", "")
    tree.write(deep, "def far_down():\n    pass\n")
    Path(os.fsdecode(os.fsencode(tree.root) + b"/\xff\xfe.py")).write_text("x = 1\n")
    (tree.root / "loop").symlink_to(".")
    os.mkfifo(tree.root / "pipe.py")
    async with tree.index() as index:
        done = await index.refresh()
        for name, path in (("newline_in_name", "two\nlines.py"), ("far_down", deep)):
            first, *_ = await index.search(name, semantic=False)
            assert first.path == path
        [brew] = await index.search("brew", limit=1, semantic=False)
        again = await index.refresh()
    assert (brew.path, brew.docstring) == ("latin.py", "Un café.")
    assert "return 'café'" in brew.text
    assert done.left_out == {"binary": 1, "too large": 1, "unnameable": 1}
    assert again.changed == ()
    assert again.left_out == done.left_out
    tree.sound()


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python"])
def test_where_no_child_can_be_started(tree, root, monkeypatch, program):
    paths = tree.many(80)
    monkeypatch.setattr(sys, "executable", program)
    batches = list(cut_files(root, paths, most=1_000_000, stop=threading.Event()))
    rows = [row for batch in batches for row in batch]
    assert sorted(row.path for row in rows) == sorted(paths)
    assert all(row.scopes for row in rows)


def test_a_file_that_no_child_survives(tree, root, monkeypatch, tmp_path, small_batches):
    """Each that dies is replaced; of what it was given only that file is left out."""
    paths = tree.many(80)
    deadly = tmp_path / "deadly"
    deadly.mkdir()
    (deadly / "sitecustomize.py").write_text(_DEADLY)
    monkeypatch.syspath_prepend(str(deadly))
    batches = list(cut_files(root, paths, most=1_000_000, stop=threading.Event()))
    rows = {row.path: row for batch in batches for row in batch}
    assert {path for path, row in rows.items() if row.unread} == {"f33.py"}
    assert rows["f33.py"].unread == "unreadable"
    assert len(rows) == 80
    assert children() == []


_DEADLY = """
import os, sys

def _watch(event, args):
    if event == "open" and args[0] == "f33.py" and sys.argv[0] == "-c":
        os.kill(os.getpid(), 9)

sys.addaudithook(_watch)
"""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["x.py", "x.js", "x.ts", "x.go", "x.rs", "x.c", "x.md", "x.json", "x.sh", "x"]),
    st.binary(max_size=300)
    | st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace")),
)
def test_any_bytes_give_rows(tree, root, name, data):
    tree.write(name, data)
    row = row_of(root, name, 1_000_000)
    assert row.path == name
    assert (row.unread, row.size) == (None, len(data))
    assert row.left_out == ("binary" if b"\0" in data else row.left_out)
    keys = [(each.scope.kind, each.scope.qualified_name) for each in row.scopes]
    assert len(set(keys)) == len(keys)
    for each in row.scopes:
        scope = each.scope
        assert 1 <= scope.start_line <= scope.end_line <= row.line_count
        for text in (scope.name, scope.signature, scope.docstring, each.body, each.embedded):
            assert "\0" not in text
            text.encode()


@pytest.mark.without_rights
async def test_unreadable_files_are_counted(tree):
    closed = tree.write("closed.py", "def closed():\n    pass\n")
    closed.chmod(0)
    async with tree.index() as index:
        assert (await index.refresh()).left_out == {"unreadable": 1}
        closed.chmod(0o600)
        assert (await index.refresh()).changed == ("closed.py",)

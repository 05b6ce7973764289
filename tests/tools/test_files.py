"""read_file, create_file, write_file, edit_file on real files."""

import errno
import hashlib
import os
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from ragmem.tools.content import MAX_IMAGE_BYTES
from ragmem.tools.files import SeenFiles
from ragmem.tools.rewind import Preimages
from tests.tools.conftest import recorded


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- reading -----------------------------------------------------------------


async def test_read_shows_numbered_lines(desk):
    desk.file("a.txt", "one\ntwo\n")
    outcome = await desk.do("read_file", path="a.txt")
    assert (outcome.text, outcome.display) == ("     1\tone\n     2\ttwo", "2 lines")
    lines = {"first_line": 1, "last_line": 2, "lines": 2}
    assert outcome.data == {"path": "a.txt", "sha256": sha(b"one\ntwo\n"), **lines}


async def test_read_in_parts(desk):
    desk.file("a.txt", "".join(f"line {n}\n" for n in range(1, 5001)))
    first = await desk.do("read_file", path="a.txt")
    assert first.text.endswith("[lines 1 to 2,000 of 5,000; continue with offset=2001]")
    middle = await desk.do("read_file", path="a.txt", offset=2001, limit=2)
    assert middle.text.startswith("  2001\tline 2001\n  2002\tline 2002\n[lines 2,001 to 2,002")
    tail = await desk.do("read_file", path="a.txt", offset=-2)
    assert tail.text == ("  4999\tline 4999\n  5000\tline 5000\n[lines 4,999 to 5,000 of 5,000]")
    assert (await desk.do("read_file", path="a.txt", offset=-9999, limit=1)).data["first_line"] == 1
    assert "5,000 lines" in (await desk.fails("read_file", path="a.txt", offset=5001)).text


async def test_read_limits(desk):
    desk.file("long.txt", "x" * 2500 + "\nend\n")
    text = (await desk.do("read_file", path="long.txt")).text
    assert "x" * 2000 + "… [500 more characters]" in text
    assert "     2\tend" in text
    desk.file("wide.txt", ("y" * 999 + "\n") * 100)
    wide = await desk.do("read_file", path="wide.txt")
    assert len(wide.text) < 51_000
    assert wide.text.endswith("continue with offset=50]")


UTF16, MARKED = "     1\té\n     2\tx\n[encoding utf-16-", "starts with a byte order mark]"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "[the file is empty]"),
        (b"no end", "     1\tno end"),
        (b"a\r\nb\r\n", "     1\ta\n     2\tb\n[CRLF line endings]"),
        (b"a\r\nb\n", "     1\ta\n     2\tb\n[mixed line endings]"),
        (b"\xef\xbb\xbfa\n", "     1\ta\n[starts with a byte order mark]"),
        (b"caf\xe9\n", "     1\tcafé\n[encoding latin-1]"),
        (b"\xe9\xc3\xa9\n", "     1\t\\xe9é"),
        ("\ufeffé\nx\n".encode("utf-16-le"), f"{UTF16}le; {MARKED}"),
        ("\ufeffé\nx\n".encode("utf-16-be"), f"{UTF16}be; {MARKED}"),
        ("a\u2028b\x0cc\rd\n".encode(), "     1\ta\u2028b\\x0cc\\x0dd"),
        (b"\x1b[31mred\n", "     1\t\\x1b[31mred"),
    ],
)
async def test_read_of_odd_text(desk, content, text):
    """Encodings and line ends are named, control characters spelled."""
    desk.file("a", content)
    assert (await desk.do("read_file", path="a")).text == text


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x89PNGx", "PNG"),
        (b"\x7fELF\x02", "ELF"),
        (b"PK\x03\x04x", "ZIP"),
        (b"SQLite format 3\0", "SQLite"),
        (b"abc\0def", "binary"),
    ],
)
async def test_binary_is_refused_with_what_it_is(desk, content, kind):
    desk.file("b", content)
    assert kind in (await desk.fails("read_file", path="b")).text
    desk.seen.note("b", sha(content))
    assert kind in (await desk.fails("edit_file", path="b", old="a", new="b")).text
    assert kind in (await desk.fails("write_file", path="b", content="b")).text
    assert not desk.proposals


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@pytest.mark.parametrize(
    ("content", "media_type", "what"),
    [
        (PNG, "image/png", "PNG image"),
        (b"\xff\xd8\xff\xe0\0\x04ab", "image/jpeg", "JPEG image"),
        (b"GIF89a", "image/gif", "GIF image"),
        (b"RIFF\0\n\0\0WEBPVP8 ", "image/webp", "WebP image"),
    ],
)
async def test_a_picture_is_read_as_what_it_is(desk, content, media_type, what):
    """Its words are stored, its bytes are not; it can't be edited."""
    desk.file("b", content)
    outcome = await desk.do("read_file", path="b")
    assert (outcome.display, outcome.image.media_type) == (what, media_type)
    assert (outcome.image.data, outcome.data["sha256"]) == (content, sha(content))
    assert f"{what}, {len(content)} bytes" in outcome.text
    assert outcome.image.base64 not in outcome.result_json
    assert str(len(content)) in repr(outcome.image)
    desk.seen.note("b", sha(content))
    assert "only text" in (await desk.fails("edit_file", path="b", old="a", new="b")).text


async def test_a_picture_larger_than_a_model_takes_is_refused(desk):
    desk.file("b.png", PNG + bytes(MAX_IMAGE_BYTES))
    assert "Make it smaller" in (await desk.fails("read_file", path="b.png")).text


async def test_folder_and_missing_file(desk):
    desk.file("src/agent.py", "x")
    assert "list_directory" in (await desk.fails("read_file", path="src")).text
    assert "src/agent.py" in (await desk.fails("read_file", path="src/agnet.py")).text
    assert "glob_files" in (await desk.fails("read_file", path="nowhere/x.py")).text
    await desk.fails("read_file", path="src/agent.py/x")


def test_huge_files_in_bounded_memory(tmp_path, in_a_process):
    """A 10 MB line, 20 MB of lines, a sparse terabyte: in some 10 MB."""
    (tmp_path / "line.txt").write_bytes(b"x" * 10_000_000 + b"\nend\n")
    (tmp_path / "log.txt").write_bytes(b"".join(b"%099d\n" % n for n in range(200_000)))
    for name, head in (("sparse.bin", b""), ("sparse.txt", b"head\n" * 4096)):
        with open(tmp_path / name, "wb") as sparse:
            sparse.write(head)
            sparse.truncate(1 << 40)
    outcomes, taken_mb = in_a_process(
        tmp_path,
        {"tool": "read_file", "path": "line.txt"},
        {"tool": "read_file", "path": "line.txt", "offset": 2},
        {"tool": "read_file", "path": "log.txt", "offset": 150_001, "limit": 1},
        {"tool": "read_file", "path": "log.txt", "offset": -2},
        {"tool": "read_file", "path": "log.txt", "offset": 9_000_000},
        {"tool": "read_file", "path": "sparse.bin"},
        {"tool": "read_file", "path": "sparse.txt", "limit": 1},
        {"tool": "read_file", "path": "sparse.txt", "offset": 9000},
        {"tool": "edit_file", "path": "log.txt", "old": "a", "new": "b"},
        {"tool": "grep_files", "pattern": "xxx", "path": "line.txt"},
    )
    texts = [text for _, text in outcomes]
    assert "x" * 2000 + "…" in texts[0]
    assert texts[1].startswith("     2\tend")
    assert texts[2].startswith(f"150001\t{150_000:099d}")
    assert f"    -1\t{199_999:099d}" in texts[3]
    assert "no line" in texts[4]
    assert "binary" in texts[5]
    assert texts[6].startswith("     1\thead")
    assert "is past its first" in texts[7]
    assert [success for success, _ in outcomes] == [
        True, True, True, True, False, False, True, False, False, True,
    ]  # fmt: skip
    assert taken_mb < 15


async def test_growing_log(desk):
    log = desk.file("log", "start\n")
    stop = threading.Event()

    def grow() -> None:
        with open(log, "a") as out:
            while not stop.is_set():
                out.write("more\n" * 100)
                out.flush()
                time.sleep(0.001)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        for _ in range(20):
            outcome = await desk.do("read_file", path="log", offset=-1)
            assert outcome.text.split("\t")[1].startswith(("more", "start"))
    finally:
        stop.set()
        thread.join()
    with open(log, "a") as out:
        out.write("more\n")
    assert "changed" in (await desk.fails("edit_file", path="log", old="start", new="x")).text


# --- the rule: read before write ------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("write_file", {"content": "new"}), ("edit_file", {"old": "old", "new": "new"})],
)
async def test_unread_and_stale_files_are_refused(desk, tool, arguments):
    """An existing file is read first; opencrabs #954: what changed is read again."""
    file = desk.file("a.txt", "old\n")
    assert "has not been read" in (await desk.fails(tool, path="a.txt", **arguments)).text
    await desk.do("read_file", path="a.txt")
    file.write_text("old, but newer\n")
    assert "Read it again" in (await desk.fails(tool, path="a.txt", **arguments)).text
    assert file.read_text() == "old, but newer\n"
    assert not desk.proposals
    await desk.do("read_file", path="a.txt")
    await desk.do(tool, path="a.txt", **arguments)


async def test_change_while_asked_is_refused(desk):
    """The file is replaced, cut, or removed while the person looks at the diff."""
    for n, change in enumerate(
        (
            lambda f: f.write_text("old\nand more\n"),
            lambda f: f.write_text(""),
            lambda f: f.unlink(),
            lambda f: (f.unlink(), f.mkdir()),
            lambda f: (f.unlink(), f.symlink_to("/etc/hostname")),
        )
    ):
        file = desk.file(f"{n}.txt", "old\n")
        await desk.do("read_file", path=file.name)
        desk.meanwhile = lambda change=change, file=file: change(file)
        failed = await desk.fails("edit_file", path=file.name, old="old", new="new")
        assert "no copy can be kept" not in failed.text
    assert (desk.cwd / "0.txt").read_text() == "old\nand more\n"
    assert not (desk.cwd / "2.txt").exists()
    assert not [name for name in os.listdir(desk.cwd) if name.startswith(".ragmem")]


async def test_an_edit_in_another_indentation_is_shown_as_it_is_made_and_told(desk):
    """The file has to be known as it is, as for any other."""
    file = desk.file("a.py", "class A:\n\tdef f(self):\n\t\treturn 1\n")
    old = "def f(self):\n\treturn 1\n"
    edit = {"path": "a.py", "old": old, "new": old.replace("1", "2")}
    assert "has not been read" in (await desk.fails("edit_file", **edit)).text
    await desk.do("read_file", path="a.py")
    outcome = await desk.do("edit_file", **edit)
    assert outcome.text == (
        "Edited a.py at line 2, where `old` differs only in whitespace: the file's indentation "
        "was kept (+1 −1 lines)."
    )
    (proposal,) = desk.proposals
    assert "-\t\treturn 1\n+\t\treturn 2" in proposal.body
    assert file.read_text() == "class A:\n\tdef f(self):\n\t\treturn 2\n"


async def test_replace_all_replaces_what_is_exactly_given_alone(desk):
    desk.file("a.py", "  a\n  b\n")
    await desk.do("read_file", path="a.py")
    outcome = await desk.fails("edit_file", path="a.py", old="a\nb", new="c", replace_all=True)
    assert outcome.text.endswith("exactly:\n     1\t  a\n     2\t  b")
    assert outcome.display.endswith("The closest text is at line 1.")


async def test_edits_follow_each_other(desk):
    await desk.do("create_file", path="a.txt", content="one\n")
    await desk.do("edit_file", path="a.txt", old="one", new="two")
    await desk.do("write_file", path="a.txt", content="three\n")
    await desk.do("edit_file", path="a.txt", old="three", new="four")
    assert (desk.cwd / "a.txt").read_text() == "four\n"


async def test_seen_is_restored_from_the_record(desk):
    """A resumed session knows what it read; failed and foreign calls say nothing."""
    desk.file("a.txt", "one\n")
    desk.file("b.txt", "one\n")
    calls = [
        recorded("read_file", await desk.do("read_file", path="a.txt"), 0),
        recorded("edit_file", await desk.do("edit_file", path="a.txt", old="one", new="two"), 1),
        recorded("read_file", await desk.fails("read_file", path="nope"), 2),
        recorded("grep_files", await desk.do("grep_files", pattern="one"), 3),
    ]
    broken = [
        msgspec.structs.replace(calls[0], result=text)
        for text in ("", "not json", "[1]", '{"path": 1, "sha256": 2}')
    ]
    seen = SeenFiles()
    seen.restore([*calls, *broken])
    assert seen.hash_of("a.txt") == sha(b"two\n")
    assert seen.hash_of("b.txt") is None


# --- creating and writing ---------------------------------------------------------


async def test_create(desk):
    outcome = await desk.do("create_file", path="a/b/c.txt", content="one\ntwo")
    assert (desk.cwd / "a/b/c.txt").read_bytes() == b"one\ntwo"
    assert outcome.data == {"path": "a/b/c.txt", "sha256": sha(b"one\ntwo"), "preimage": None}
    (proposal,) = desk.proposals
    assert proposal.kind == "diff"
    assert proposal.body == (
        "--- /dev/null\n+++ a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file"
    )
    assert "exists" in (await desk.fails("create_file", path="a/b/c.txt", content="x")).text
    assert "exists" in (await desk.fails("create_file", path="a/b", content="x")).text
    assert (desk.cwd / "a/b/c.txt").read_bytes() == b"one\ntwo"


async def test_create_does_not_overwrite_what_came_meanwhile(desk):
    desk.meanwhile = lambda: desk.file("a.txt", "mine")
    assert "exists" in (await desk.fails("create_file", path="a.txt", content="agent")).text
    assert (desk.cwd / "a.txt").read_text() == "mine"
    assert os.listdir(desk.cwd) == ["a.txt"]


async def test_new_files_follow_the_umask(desk):
    old = os.umask(0o027)
    try:
        await desk.do("create_file", path="a.sh", content="x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((desk.cwd / "a.sh").stat().st_mode) == 0o640


async def test_write_keeps_the_style_of_the_file(desk):
    for name, before, content, after in (
        ("crlf", b"a\r\nb\r\n", "c\nd\n", b"c\r\nd\r\n"),
        ("bom", b"\xef\xbb\xbfa\n", "b\n", b"\xef\xbb\xbfb\n"),
        ("utf16", b"\xff\xfe" + "a".encode("utf-16-le"), "é", b"\xff\xfe\xe9\0"),
        ("latin", b"\xe9", "è", b"\xe8"),
    ):
        desk.file(name, before)
        await desk.do("read_file", path=name)
        await desk.do("write_file", path=name, content=content)
        assert (desk.cwd / name).read_bytes() == after
    assert "no '😀'" in (await desk.fails("write_file", path="latin", content="😀")).text
    assert "already" in (await desk.fails("write_file", path="latin", content="è")).text
    for content in ("\0", "\ud83d"):
        await desk.fails("write_file", path="latin", content=content)
    assert (desk.cwd / "latin").read_bytes() == b"\xe8"


# --- what stays of a file ------------------------------------------------------------


async def test_edit_keeps_mode_owner_and_attributes(desk):
    """A 0755 script of another owner stays one; so do extended attributes."""
    file = desk.file("run.sh", "echo one\n")
    file.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(file, 1234, 2345)
    with suppress(OSError):
        os.setxattr(file, "user.note", b"kept")

    def kept() -> tuple[object, ...]:
        now = file.stat()
        attributes = {name: os.getxattr(file, name) for name in os.listxattr(file)}
        return now.st_mode, now.st_uid, now.st_gid, attributes

    before, number = kept(), file.stat().st_ino
    await desk.do("read_file", path="run.sh")
    await desk.do("edit_file", path="run.sh", old="one", new="two")
    assert file.read_text() == "echo two\n"
    assert (kept(), file.stat().st_ino != number) == (before, True)


async def test_edit_keeps_hard_links(desk):
    file = desk.file("a.txt", "a long first line\n")
    os.link(file, desk.cwd / "b.txt")
    await desk.do("read_file", path="a.txt")
    await desk.do("edit_file", path="a.txt", old="a long first line", new="short")
    assert (desk.cwd / "b.txt").read_text() == "short\n"
    assert file.stat().st_ino == (desk.cwd / "b.txt").stat().st_ino


@pytest.mark.parametrize("tool", ["create_file", "write_file"])
async def test_a_path_that_names_a_folder_makes_no_file(desk, tool):
    for path in ("sub/", "new/sub//"):
        assert "names a folder" in (await desk.fails(tool, path=path, content="x")).text
    assert os.listdir(desk.cwd) == []


async def test_longest_name(desk):
    name = "x" * 251 + ".txt"
    desk.file(name, "one\n")
    await desk.do("read_file", path=name)
    await desk.do("edit_file", path=name, old="one", new="two")
    assert os.listdir(desk.cwd) == [name]


def test_files_that_may_not_be_touched(tmp_path, in_a_process):
    """Mode 000 and read-only, without root's right to ignore them."""
    for name, mode in (("none", 0o000), ("readonly", 0o444)):
        (tmp_path / name).write_text("one\n")
        (tmp_path / name).chmod(mode)
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "x").write_text("one\n")
    (tmp_path / "closed").chmod(0o000)
    (tmp_path / "fixed").mkdir()
    (tmp_path / "fixed" / "x").write_text("uno\n")
    (tmp_path / "fixed").chmod(0o555)
    try:
        outcomes, _ = in_a_process(
            tmp_path,
            {"tool": "read_file", "path": "none"},
            {"tool": "read_file", "path": "closed/x"},
            {"tool": "list_directory", "path": "closed"},
            {"tool": "read_file", "path": "readonly"},
            {"tool": "edit_file", "path": "readonly", "old": "one", "new": "two"},
            {"tool": "create_file", "path": "closed/y", "content": "x"},
            {"tool": "grep_files", "pattern": "one"},
            {"tool": "read_file", "path": "fixed/x"},
            {"tool": "edit_file", "path": "fixed/x", "old": "uno", "new": "due"},
        )
    finally:
        (tmp_path / "fixed").chmod(0o700)
        (tmp_path / "closed").chmod(0o700)
    assert [success for success, _ in outcomes] == [
        False, False, False, True, False, False, True, True, True,
    ]  # fmt: skip
    for n in (0, 1, 2, 4, 5):
        assert "Permission denied" in outcomes[n][1]
    assert "readonly" in outcomes[6][1]
    assert "2 files or folders could not be read" in outcomes[6][1]
    assert (tmp_path / "readonly").read_text() == "one\n"
    # A folder that takes no new names: the file is written in place.
    assert (tmp_path / "fixed" / "x").read_text() == "due\n"


# --- faults ----------------------------------------------------------------------------


async def test_preimage_is_byte_exact_and_private(desk):
    content = b"caf\xe9\r\nold\n"
    desk.file("a.txt", content)
    await desk.do("read_file", path="a.txt")
    outcome = await desk.do("edit_file", path="a.txt", old="old", new="new\nlines")
    assert (desk.cwd / "a.txt").read_bytes() == b"caf\xe9\r\nnew\r\nlines\n"
    folder = desk.home / "data" / "preimages"
    assert Preimages(folder).load(outcome.data["preimage"]) == content
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert [stat.S_IMODE(p.stat().st_mode) for p in files] == [0o600]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files[0].write_bytes(b"damaged")
    with pytest.raises(ValueError, match="damaged"):
        Preimages(folder).load(outcome.data["preimage"])


async def test_no_edit_without_its_preimage(desk):
    (desk.home / "data").mkdir(parents=True)
    folder = desk.home / "data" / "preimages"
    folder.write_text("a file in the way")
    file = desk.file("a.txt", "old\n")
    await desk.do("read_file", path="a.txt")
    outcome = await desk.fails("edit_file", path="a.txt", old="old", new="new")
    assert file.read_text() == "old\n"
    assert outcome.text.startswith(f"a.txt is unchanged: no copy can be kept in {folder}: ")


_REPOSITORY = Path(__file__).parents[2]
_REPLACE = """
import hashlib, resource, signal, sys
from pathlib import Path
from ragmem.tools import workspace
p = Path(sys.argv[1])
def replace(old, new):
    h = hashlib.sha256(old).hexdigest()
    workspace.replace(p, new, expected_sha256=h, shown='a.txt')
"""
_ON_A_FULL_DISK = f"""{_REPLACE}
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    replace(p.read_bytes(), b'n' * 100000)
except OSError as error:
    print(error.strerror)
"""
_KILLED_AGAIN_AND_AGAIN = f"""{_REPLACE}
import os, time
whole = [bytes([65 + n]) * 300_000 for n in range(2)]
for number in range(12):
    ready, begun = os.pipe()
    if not (child := os.fork()):
        while True:
            old = p.read_bytes()
            replace(old, whole[old == whole[0]])
            os.write(begun, b'x')
    os.read(ready, 1)
    time.sleep(0.003 * number)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert p.read_bytes() in whole
"""


def replacing(code: str, file: Path) -> str:
    """What a process prints that replaces a file."""
    command = [sys.executable, "-c", code, str(file)]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=60, cwd=_REPOSITORY, check=True
    ).stdout


@pytest.mark.parametrize("links", [1, 2])
def test_full_disk_leaves_the_old_file(tmp_path, links):
    """A write that fails in the middle leaves the old content and no litter."""
    file = tmp_path / "a.txt"
    file.write_bytes(b"old" * 10)
    if links == 2:
        os.link(file, tmp_path / "b.txt")
    assert replacing(_ON_A_FULL_DISK, file) == "File too large\n"
    assert file.read_bytes() == b"old" * 10
    assert len(os.listdir(tmp_path)) == links


def test_killed_in_the_middle_leaves_old_or_new(tmp_path):
    """Kill -9 at any moment: the file is whole, and nothing lies about."""
    file = tmp_path / "a.txt"
    file.write_bytes(b"A" * 300_000)
    replacing(_KILLED_AGAIN_AND_AGAIN, file)
    litter = [name for name in os.listdir(tmp_path) if name != "a.txt"]
    # Only between two system calls can a name be left behind.
    assert len(litter) <= 1


# --- approval -----------------------------------------------------------------------------


async def test_denied_edit_changes_nothing(desk):
    file = desk.file("a.txt", "old\n")
    await desk.do("read_file", path="a.txt")
    desk.deny("use tabs")
    outcome = await desk.fails("edit_file", path="a.txt", old="old", new="new")
    assert outcome.denied
    assert "use tabs" in outcome.text
    assert file.read_text() == "old\n"
    assert not (desk.home / "data" / "preimages").exists()


async def test_what_was_written_is_told_to_be_where_a_folder_cannot_be_flushed(
    make_desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "as on some file systems of a network")
        flush(fd)

    desk = make_desk(mode="acceptEdits")
    desk.file("a.txt", "one\n")
    await desk.do("read_file", path="a.txt")
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", fsync)
    outcome = await desk.do("edit_file", path="a.txt", old="one", new="two")
    assert outcome.data["preimage"]
    assert (desk.cwd / "a.txt").read_text() == "two\n"

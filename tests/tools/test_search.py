"""grep_files, glob_files and list_directory, on the real ripgrep."""

import asyncio
import os
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from ragmem.children import FileList, Ripgrep, find_ripgrep
from ragmem.memory.turns import extract_accessed_files
from ragmem.tools import search
from ragmem.tools.workspace import matcher, open_folder
from tests.tools.conftest import recorded


@pytest.fixture
def project(desk):
    """A small repository with ignored, hidden and binary files."""
    desk.file(".gitignore", "build/\n*.log\n!keep.log\nnode_modules\n")
    desk.file("src/a.py", "import os\nneedle = 1\nprint(needle)\n")
    desk.file("src/deep/b.ts", "no\nneedle\n")
    desk.file("image.bin", b"needle\0\n")
    ignored = "build/out.py build/keep.log node_modules/m/index.js debug.log .git/config"
    for name in f"{ignored} keep.log .github/ci.yml".split():
        desk.file(name, "needle\n")
    return desk


def paths(outcome) -> list[str]:
    return [item["path"] for item in outcome.data["files"]]


SEEN = [".github/ci.yml", "keep.log", "src/a.py", "src/deep/b.ts"]

LINES = (
    ".github/ci.yml\n1:needle\n\nkeep.log\n1:needle\n\n"
    "src/a.py\n2:needle = 1\n3:print(needle)\n\nsrc/deep/b.ts\n2:needle"
)


@pytest.mark.parametrize(
    ("mode", "shown"), [("lines", LINES), ("files", "\n".join(SEEN)), ("count", "src/a.py: 2")]
)
async def test_grep_shows_matches_in_each_mode_and_gives_one_access_per_file(project, mode, shown):
    outcome = await project.do("grep_files", pattern="needle", mode=mode)
    assert shown in outcome.text if mode == "count" else shown == outcome.text
    assert mode != "lines" or outcome.display == "5 matches in 4 files"
    assert paths(outcome) == SEEN
    accesses = extract_accessed_files(recorded("grep_files", outcome))
    assert [access.path for access in accesses] == SEEN
    assert (await project.do("grep_files", pattern="absent")).text == "No match for absent."


async def test_other_tools_give_the_access_to_their_path(project):
    outcome = await project.do("list_directory", path="./src/")
    assert extract_accessed_files(recorded("list_directory", outcome))[0].path == "src"
    outcome = await project.do("read_file", path="./src/a.py")
    assert extract_accessed_files(recorded("read_file", outcome))[0].path == "src/a.py"
    failed = await project.fails("read_file", path="src/none.py")
    assert extract_accessed_files(recorded("read_file", failed)) == []


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.py", ["src/a.py"]),
        ("**/*.ts", ["src/deep/b.ts"]),
        ("src/*.py", ["src/a.py"]),
        ("*.{py,ts}", ["src/a.py", "src/deep/b.ts"]),
        ("*", SEEN),
        ("**", SEEN),
        ("*.log", ["keep.log"]),
        ("!*.py", [".github/ci.yml", "keep.log", "src/deep/b.ts"]),
        ("*.none", []),
    ],
)
async def test_grep_globs_respect_gitignore(project, glob, expected):
    """A file filter narrows; it never brings back what .gitignore leaves out."""
    assert paths(await project.do("grep_files", pattern="needle", glob=glob)) == expected


async def test_ignored_folders_can_be_asked_for(project):
    """A folder that is named outright is searched and listed, whatever .gitignore says of it."""
    for path, found in (("node_modules", "node_modules/m/index.js"), ("debug.log", "debug.log")):
        assert paths(await project.do("grep_files", pattern="needle", path=path)) == [found]
    assert (await project.do("glob_files", pattern="*.py", path="build")).text == "build/out.py"
    assert "out.py" in (await project.do("list_directory", path="build")).text


async def test_grep_pages(desk):
    for n in range(3):
        desk.file(f"{n}.txt", "x\n" * 90)
    seen, offset = [], 0
    while True:
        outcome = await desk.do("grep_files", pattern="x", offset=offset)
        for lines in outcome.text.split("\n\n"):
            name, *others = lines.split("\n")
            seen += [(name, line) for line in others if line.endswith(":x")]
        if "continue with" not in outcome.text:
            break
        offset = int(outcome.text.rpartition("offset=")[2].rstrip("]"))
    assert len(seen) == len(set(seen)) == 270
    last = await desk.do("grep_files", pattern="x", offset=500)
    assert last.text == "No match for x after the first 270."
    page = await desk.do("grep_files", pattern="x", mode="files", limit=2)
    assert page.text == "0.txt\n1.txt\n[1–2; there is more: continue with offset=2]"


async def test_grep_context(desk):
    desk.file("a.txt", "".join(f"{n}\n" for n in range(1, 21)))
    outcome = await desk.do("grep_files", pattern="^(5|7|15)$", context=2)
    assert outcome.text == (
        "a.txt\n3-3\n4-4\n5:5\n6-6\n7:7\n8-8\n9-9\n--\n13-13\n14-14\n15:15\n16-16\n17-17"
    )
    second = await desk.do("grep_files", pattern="^(5|7|15)$", context=2, offset=1, limit=1)
    assert second.text == (
        "a.txt\n5:5\n6-6\n7:7\n8-8\n9-9\n[2–2; there is more: continue with offset=2]"
    )
    desk.file("b.txt", "5\r\n6\r\n")
    both = await desk.do("grep_files", pattern="^5$", context=1)
    assert both.text == "a.txt\n4-4\n5:5\n6-6\n\nb.txt\n1:5\n2-6"


@pytest.mark.parametrize("pattern", ["--pre=./pre.sh", "-e", "--files", "-", "--", "-rf /"])
async def test_patterns_are_never_options(desk, pattern, monkeypatch, tmp_path):
    """CVE-2025-54558, CVE-2025-58764: neither pattern nor configuration runs a program."""
    desk.file("pre.sh", "#!/bin/sh\ntouch HIT\n").chmod(0o755)
    desk.file("rgrc", "--pre=./pre.sh\n")
    desk.file("data.txt", f"a {pattern} b\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(desk.cwd / "rgrc"))
    outcome = await desk.do("grep_files", pattern=pattern)
    assert "data.txt" in paths(outcome)
    assert not (desk.cwd / "HIT").exists()


@pytest.mark.parametrize("pattern", ["(", "[", "a{99999999}", "(?=x)", "*", "(?:a{1000}){10000}"])
async def test_bad_patterns_are_results(desk, pattern):
    outcome = await desk.fails("grep_files", pattern=pattern)
    assert "error" in outcome.text or "exceeds size limit" in outcome.text
    assert "backslash" in outcome.text


async def test_odd_patterns(desk):
    for pattern in ("", "a\0b", "x" * 1_000_000):
        await desk.fails("grep_files", pattern=pattern)
    for bad in ({"limit": 0}, {"limit": 101}, {"offset": -1}, {"context": 99}, {"mode": "all"}):
        assert "invalid arguments" in (await desk.fails("grep_files", pattern="x", **bad)).text


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(x+x)+y", ".*.*.*=.*", "(?:a{1000}){100}"]
)
async def test_patterns_take_linear_time(desk, pattern):
    """ReDoS: what doubles per character elsewhere ends at once here."""
    desk.file("a.txt", ("a" * 5000 + "!\n") * 50)
    started = time.monotonic()
    await desk.call("grep_files", pattern=pattern)
    assert time.monotonic() - started < 10


async def test_long_lines_are_cut_and_escapes_in_them_spelled(desk):
    desk.file("long.txt", b"needle" + b"x" * 3_000_000)
    desk.file("odd.txt", b"needle \x1b[2J\x9b\xff\n")
    outcome = await desk.do("grep_files", pattern="needle")
    assert len(outcome.text) < 700
    assert "omitted" in outcome.text
    assert "needle \\x1b[2J" in outcome.text
    assert "\x1b" not in outcome.text


async def test_pages_are_bounded_in_size(desk):
    desk.file("a.txt", ("needle" + "y" * 400 + "\n" + ("z" * 400 + "\n") * 40) * 200)
    outcome = await desk.do("grep_files", pattern="needle", context=20)
    assert len(outcome.text) < 80_000
    assert "continue with offset=" in outcome.text


async def test_binary_after_text_does_not_confuse(desk):
    """A NUL far behind a match: ripgrep's remark is no match, and names no file."""
    desk.file("a.bin", b"needle\n" + b"x\n" * 500_000 + b"\0\n")
    desk.file("b.txt", "needle\n")
    for mode in ("lines", "files", "count"):
        outcome = await desk.do("grep_files", pattern="needle", mode=mode)
        assert set(paths(outcome)) <= {"a.bin", "b.txt"}
        assert "b.txt" in paths(outcome)
    assert await desk.do("grep_files", pattern="needle", path="a.bin")


async def test_walks_skip_fifos_and_links(desk, tmp_path):
    """Ripgrep #1331: a recursive search neither hangs nor leaves the folder."""
    os.mkfifo(desk.cwd / "fifo")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("needle")
    (desk.cwd / "out").symlink_to(tmp_path / "outside")
    (desk.cwd / "loop").symlink_to(".")
    desk.file("a.txt", "needle\n")
    assert paths(await desk.do("grep_files", pattern="needle")) == ["a.txt"]
    assert (await desk.do("glob_files", pattern="**")).text == "a.txt"
    listed = (await desk.do("list_directory")).text
    assert "fifo  (not a regular file)" in listed
    assert "loop -> ." in listed


async def test_glob_newest_first(project):
    for n, name in enumerate(("keep.log", "src/deep/b.ts", "src/a.py")):
        os.utime(project.cwd / name, (n * 1000, n * 1000))
    outcome = await project.do("glob_files", pattern="**/*.{py,ts,log}")
    assert (outcome.text, outcome.display) == ("src/a.py\nsrc/deep/b.ts\nkeep.log", "3 files")
    assert (await project.do("glob_files", pattern="*.ts", path="src/deep")).text == "src/deep/b.ts"
    assert (await project.do("glob_files", pattern="*.js")).text.startswith("No file matches")


FOLDERS = [
    "parser", "parser/src", "parser/src/deep", "parser/dist", "parse", "parserX", "p", "p/src",
    "src", "secret", "-x", "-x/!y", "päck", "[id]", "[ix]", "i", "a b", "a",
]  # fmt: skip
FRONTED = [
    "packages/parser/src/**/*.ts", "./packages/parser/src/**", "packages/{parser,p}/src/*.ts",
    "packages/parser/{src,dist}/**", "packages/parser/dist/*.ts", "packages/p*/src/*.ts",
    "packages/link/**", "packages/-x/!y/*.ts", "packages/-x/**", "packages/päck/*.ts",
    "packages/[id]/*.ts", "packages/a b/*.ts", "packages/{,parser}/src/*.ts", "packages//*.ts",
    "packages/../top.ts", ".github/**", "packages/**", "packages/none/*.ts", "top.ts/**",
]  # fmt: skip


@pytest.mark.parametrize("pattern", FRONTED)
async def test_what_begins_with_folders_is_sought_in_these_with_the_same_result(desk, pattern):
    """Of a tree with ignore files at each level, links and odd names."""
    desk.file(".gitignore", "dist/\n*.log\n/packages/secret\n")
    desk.file("packages/.ignore", "gone.ts\n!parser/src/back.log\n")
    desk.file("packages/parser/.gitignore", "/src/made/\n")
    for name in FOLDERS:
        desk.file(f"packages/{name}/one.ts", "needle\n")
        desk.file(f"packages/{name}/gone.ts", "needle\n")
    for name in ("made/m.ts", "back.log", "other.log"):
        desk.file(f"packages/parser/src/{name}", "needle\n")
    for name in ("top.ts", ".github/ci.yml", "src/one.ts"):
        desk.file(name, "needle\n")
    (desk.cwd / "packages/link").symlink_to("parser")
    os.utime(desk.cwd / "packages/parser/src/one.ts", (5, 5))
    everything = (await desk.do("glob_files", pattern="**")).text.split("\n")
    wanted = [path for path in everything if matcher(pattern)(path)]
    found = await desk.do("glob_files", pattern=pattern)
    assert found.text.split("\n") == (
        wanted or [f"No file matches {pattern}. Ignored files are left out."]
    )
    greped = paths(await desk.do("grep_files", pattern="needle", glob=pattern))
    wanted = [path for path in wanted if "ignore" not in path]
    assert greped == sorted(wanted, key=lambda path: path.split("/"))


def test_the_rest_of_a_tree_is_not_walked_for_what_begins_with_folders(desk):
    desk.file("packages/parser/src/a.ts", "")
    for name in ("packages/parser/lib", "packages/parse/src", "packages/parsers/src", "src", "lib"):
        desk.file(f"{name}/a.ts", "")
    with open_folder(desk.cwd) as folder:
        filters = search._outside("packages/parser/src/**/*.ts")
        program, stop = search.require_ripgrep([desk.cwd]), threading.Event()
        listed = set(FileList(program, folder, filters, timeout_s=30, stop=stop))
    assert listed == {"packages/parser/src/a.ts"}


async def test_glob_limit(desk):
    (desk.cwd / "many").mkdir()
    for n in range(1005):
        (desk.cwd / "many" / f"{n}.txt").touch()
    outcome = await desk.do("glob_files", pattern="*.txt")
    assert outcome.text.count("\n") == 1000
    assert outcome.text.endswith("[the newest 1,000 of 1,005; narrow the pattern]")
    listed = await desk.do("list_directory", path="many")
    assert listed.text.endswith("[5 more entries; narrow them with glob_files]")
    assert listed.data == {"path": "many", "count": 1005}


async def test_list_directory(project):
    (project.cwd / "empty").mkdir()
    outcome = await project.do("list_directory")
    assert outcome.text == (
        ".github/\nempty/\nsrc/\n.gitignore  36 bytes\nimage.bin  8 bytes\nkeep.log  7 bytes\n"
        "[left out, ignored by .gitignore: build/, debug.log, node_modules/]"
    )
    assert outcome.data == {"path": ".", "count": 6}
    assert (await project.do("list_directory", path="empty")).text == "empty is empty."
    assert "read_file" in (await project.fails("list_directory", path="keep.log")).text
    assert "does not exist" in (await project.fails("list_directory", path="nope")).text


async def test_git_is_never_run(project, monkeypatch, tmp_path):
    """GitSpawn: an evil repository and a git on PATH that leaves a trace."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    git = bin_ / "git"
    git.write_text(f"#!/bin/sh\ntouch {tmp_path}/HIT\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    project.file(".git/config", f"[core]\nfsmonitor = touch {tmp_path}/HIT\n")
    await project.do("list_directory")
    await project.do("glob_files", pattern="**")
    await project.do("grep_files", pattern="needle")
    await project.do("read_file", path="src/a.py")
    await project.do("edit_file", path="src/a.py", old="os", new="sys")
    assert not (tmp_path / "HIT").exists()


# --- ripgrep itself ----------------------------------------------------------


def test_rg_of_the_workspace_is_not_used(tmp_path, monkeypatch):
    """`.venv/bin/rg` of a project on PATH is not taken for ripgrep."""
    inside, outside = tmp_path / "w" / ".venv" / "bin", tmp_path / "sys"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / "rg").write_text("#!/bin/sh\n")
        (folder / "rg").chmod(0o755)
    (tmp_path / "alias").symlink_to(inside)
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path / "none"))
    monkeypatch.setenv("PATH", f"{inside}:{tmp_path / 'alias'}:.:{outside}")
    assert find_ripgrep([tmp_path / "w"]) == outside / "rg"
    monkeypatch.setenv("PATH", str(inside))
    assert find_ripgrep([tmp_path / "w"]) is None


async def test_without_ripgrep(desk, monkeypatch):
    monkeypatch.setattr("ragmem.tools.search.find_ripgrep", lambda _: None)
    desk.file("a.txt", "x")
    assert "ragmem doctor" in (await desk.fails("grep_files", pattern="x")).text
    assert (await desk.do("list_directory")).text == "a.txt  1 bytes"


def fake_rg(tmp_path: Path, script: str) -> Path:
    program = tmp_path / "fake-rg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def ran(program: Path, timeout_s: float = 60, *, stops: bool = False) -> tuple[Ripgrep, bytes]:
    """A run to its end, and what was printed."""
    stop = threading.Event()
    if stops:
        stop.set()
    with open_folder(program.resolve().parent) as folder:
        run = Ripgrep(program, [], folder=folder, timeout_s=timeout_s, stop=stop)
        return run, b"".join(run.chunks())


def test_loud_stderr_does_not_block(tmp_path):
    """term-llm #911: 4 MB of complaints, bounded memory, no deadlock."""
    loud = "head -c 4000000 /dev/zero | tr '\\0' x >&2; echo out; exit 2"
    run, printed = ran(fake_rg(tmp_path, loud))
    assert (printed, 0 < len(run.failed) <= 4000) == (b"out\n", True)


def test_a_silent_rg_is_stopped(tmp_path):
    program, started = fake_rg(tmp_path, "exec sleep 60"), time.monotonic()
    run, printed = ran(program, 0.2)
    assert (printed, run.timed_out) == (b"", True)
    assert ran(program, stops=True)[1] == b""
    assert time.monotonic() - started < 30


async def test_a_slow_search_keeps_what_it_found(desk, tmp_path, monkeypatch):
    program = fake_rg(tmp_path, "printf './a.txt\\0001:needle\\n'; exec sleep 60")
    monkeypatch.setattr(search, "require_ripgrep", lambda _: program)
    monkeypatch.setattr(search, "TIMEOUT_S", 4)
    outcome = await desk.do("grep_files", pattern="needle")
    assert outcome.text.startswith("a.txt\n1:needle\n[stopped after 4 s")


async def test_searches_run_in_parallel_and_can_be_cancelled(desk, tmp_path, monkeypatch):
    for n in range(10):
        desk.file(f"{n}.txt", f"needle {n}\n")
    found = await asyncio.gather(
        *(desk.do("grep_files", pattern=f"needle {n}") for n in range(10)),
        *(desk.do("read_file", path=f"{n}.txt") for n in range(10)),
    )
    assert all(outcome.success for outcome in found)
    monkeypatch.setattr(search, "require_ripgrep", lambda _: fake_rg(tmp_path, "exec sleep 60"))
    task = asyncio.create_task(desk.call("grep_files", pattern="x"))
    await asyncio.sleep(0.2)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 30


# --- ignore files without an end ---------------------------------------------------


@pytest.mark.parametrize("bad", [".gitignore", ".ignore", "src/.gitignore"])
async def test_an_ignore_file_without_end_ends_no_search(desk, bad, monkeypatch):
    """ripgrep follows the link and reads on: its memory is bounded, and others still hold."""
    monkeypatch.setattr("ragmem.children._MAX_MEMORY_BYTES", 64 * 1024 * 1024)
    desk.file("src/a.py", "needle\n")
    desk.file("b.py", "needle\n")
    desk.file("secret/c.py", "needle\n")
    desk.file("d.log", "needle\n")
    if bad != ".gitignore":
        desk.file(".gitignore", "secret/\n")
    desk.file(".rgignore", "*.log\n")
    (desk.cwd / bad).symlink_to("/dev/zero")
    found = await desk.do("grep_files", pattern="needle", mode="files")
    named = await desk.do("glob_files", pattern="*.{py,log}")
    seen = {"b.py", "src/a.py", *(["secret/c.py"] if bad == ".gitignore" else [])}
    for outcome in (found, named):
        *lines, note = outcome.text.split("\n")
        assert set(lines) == seen
        assert note.startswith("[an ignore file could not be read in full")
    assert "b.py" in (await desk.do("list_directory")).text


async def test_an_ignore_file_that_says_nothing_ends_no_listing(desk, monkeypatch):
    """One that leads to a device which waits: the list is made without it."""
    monkeypatch.setattr("ragmem.children._SILENT_S", 2)
    desk.file("src/a.py", "needle\n")
    (desk.cwd / "src/.gitignore").symlink_to("/dev/ptmx")
    found = await desk.do("glob_files", pattern="*.py")
    assert found.text.startswith("src/a.py\n[an ignore file")


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone bounds a process's memory")
def test_ripgreps_memory_is_bounded(tmp_path):
    take = "try: bytearray(600 << 20); print('taken')\nexcept MemoryError: print('refused')"
    program = fake_rg(tmp_path, f'exec {sys.executable} -c "{take}"')
    assert ran(program)[1] == b"refused\n"

"""Homes that can't be written, are not there, or stand open: plain words, and on without memory."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from ragmem.config import find_paths
from ragmem.files import NO_HOME
from tests.cli.process import Done, Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer
from tests.store.conftest import mostly

ANSWER = "The answer: café ✓."


@pytest.fixture
def server(server: LLMServer) -> LLMServer:
    server.always(Answer(ANSWER))
    return server


def mounted(script: str, folder: Path) -> list[str | Path]:
    """A wrapper that mounts something first, where no other process sees it."""
    probe = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", folder, "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip(f"no mounts here: {probe.stderr}")
    return ["unshare", "-rm", "sh", "-c", script, "sh", folder]


READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'

FULL = (
    'mount -t tmpfs -o size=1m none "$1" && mkdir "$1/data" "$1/logs" && '
    'head -c 2000000 /dev/zero >"$1/data/fill" 2>&- || : && shift && exec "$@"'
)


def plain(done: Done, folder: Path) -> tuple[int, str, str]:
    assert "Traceback" not in done.err + done.out
    assert "This is a bug" not in done.err
    return done.code, done.out, done.err.replace(str(folder), "…")


# --- without memory ------------------------------------------------------------------


def test_a_home_that_can_only_be_read(tmp_path: Path, ragmem: Ragmem) -> None:
    """A question is answered, one line says that it is not remembered."""
    ragmem.home.mkdir(mode=0o700)
    through = mounted(READ_ONLY, ragmem.home)
    assert plain(ragmem.run("ask", "Hello?", through=through), tmp_path) == snapshot(
        (
            75,
            "The answer: café ✓.\n",
            """\
note: Nothing is being remembered: Can't use the folder …/home/data: Read-only file \
system. Make it writable, or set RAGMEM_HOME to a folder that is.
""",
        )
    )
    assert plain(ragmem.run("sessions", "list", through=through), tmp_path) == snapshot(
        (
            2,
            "",
            """\
error: Can't use the folder …/home/data: Read-only file system.
Make it writable, or set RAGMEM_HOME to a folder that is.
""",
        )
    )
    code, out, err = plain(ragmem.run("doctor", through=through), tmp_path)
    assert (code, err) == (1, "")
    assert "broken folders" in out
    assert "broken store" not in out


def test_a_home_on_a_full_file_system(ragmem: Ragmem) -> None:
    """The cause is named first, and not only what fails of it."""
    ragmem.home.mkdir(mode=0o700)
    done = ragmem.run("doctor", through=mounted(FULL, ragmem.home))
    assert done.code == 1
    assert f"broken folders     The file system of {ragmem.home}" in done.out
    assert "is full; nothing more can be stored there" in " ".join(done.out.split())


def test_a_memory_that_can_only_be_read(tmp_path: Path, ragmem: Ragmem) -> None:
    """The same where there is a memory already; nothing of it changes."""
    assert ragmem.run("ask", "Before").code == 0
    before = {f: f.read_bytes() for f in ragmem.home.rglob("*") if f.is_file()}
    through = mounted(READ_ONLY, ragmem.home)
    code, out, err = plain(ragmem.run("ask", "Hello?", through=through), tmp_path)
    assert (code, out) == (75, ANSWER + "\n")
    assert "can't be written" in err
    assert err.count("This turn was not stored") == 1
    assert "The memory could not be read" not in err
    code, out, err = plain(ragmem.run("sessions", "list", through=through), tmp_path)
    assert (code, "Before" in out, err) == (0, True, "")
    assert {f: f.read_bytes() for f in ragmem.home.rglob("*") if f.is_file()} == before
    assert [s["last_message"] for s in ragmem.sessions()] == ["Before"]


def test_a_home_of_nobody_is_refused(ragmem: Ragmem) -> None:
    told = ragmem.refused("ask", "Hello", env={"RAGMEM_HOME": "~nosuch/x"})
    assert told.startswith(
        "error: '~nosuch/x': there is no such home folder.\nWrite the whole path"
    )


@pytest.mark.parametrize("way", ["RAGMEM_HOME", "HOME"])
def test_a_home_that_is_a_file(tmp_path: Path, ragmem: Ragmem, way: str) -> None:
    file, said = tmp_path / "file", "a file is in its place"
    file.write_text("mine\n")
    file.chmod(0o644)
    env: dict[str, str | None] = {"RAGMEM_HOME": None, way: str(file)}
    code, out, err = plain(ragmem.run("ask", "Hello?", env=env), tmp_path)
    assert (code, out) == (75, ANSWER + "\n")
    assert said in err
    assert err.count("\n") == 1
    assert ragmem.run("ask", "Hello?", "--ephemeral", env=env).code == 0
    for arguments in (["sessions", "list"], ["ask", "Hello?", "-c"]):
        code, out, err = plain(ragmem.run(*arguments, env=env), tmp_path)
        assert (code, out, said in err) == (2, "", True)
    assert plain(ragmem.run("doctor", env=env), tmp_path)[0] == 1
    assert file.read_text() == "mine\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


@pytest.mark.parametrize("way", ["RAGMEM_HOME", "HOME"])
def test_a_home_whose_path_is_no_text(tmp_path: Path, ragmem: Ragmem, way: str) -> None:
    """SQLite takes none: nothing is made there."""
    home = tmp_path / os.fsdecode(b"caf\xe9")
    env: dict[str, str | None] = {"RAGMEM_HOME": None, way: str(home)}
    for arguments in (["ask", "Hello?"], ["sessions", "list"], ["doctor"]):
        done = ragmem.run(*arguments, env=env)
        assert (done.code, done.out) == (2, "")
        assert "can't hold a database: the path is not UTF-8." in done.err
    assert not home.exists()


def test_an_empty_home_is_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME= is taken for none: nothing is written to the root of the file system."""
    monkeypatch.setenv("HOME", "")
    assert find_paths({"HOME": ""}) == find_paths({"HOME": "", "RAGMEM_HOME": ""}) == NO_HOME


def test_nobody_has_no_home(tmp_path: Path, ragmem: Ragmem) -> None:
    """No HOME, a user of whom the system knows nothing; `~` is no folder's name."""
    if not shutil.which("setpriv") or os.geteuid():
        pytest.skip("only root can become a user that nobody knows")
    through = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]
    env: dict[str, str | None] = {"RAGMEM_HOME": None, "HOME": None}
    for folder in (ragmem.project, *ragmem.project.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            # Pytest's folders are for their user alone, here root.
            folder.chmod(folder.stat().st_mode | 0o005)
    (ragmem.project / "~").mkdir(mode=0o777)
    probe = ragmem.run("--version", env=env, through=through)
    if probe.code:
        pytest.skip(f"this Python is not for every user: {probe.err}")
    assert plain(ragmem.run("ask", "Hello?", env=env, through=through), tmp_path) == snapshot(
        (
            75,
            "The answer: café ✓.\n",
            "note: Nothing is being remembered: No home "
            "folder for the memory: "
            "HOME is not set. Set RAGMEM_HOME to a writable folder.\n",
        )
    )
    code, out, err = plain(ragmem.run("sessions", "list", env=env, through=through), tmp_path)
    assert (code, out) == (2, "")
    assert "HOME is not set" in err
    code, out, err = plain(ragmem.run("doctor", env=env, through=through), tmp_path)
    assert (code, err) == (1, "")
    assert "HOME is not set" in out
    (ragmem.project / "closed").mkdir(mode=0)
    done = ragmem.run("ask", "Look at @closed/x.txt", "--ephemeral", env=env, through=through)
    assert "@closed/x.txt was not read: closed/x.txt can't be resolved (Permission" in done.err
    # With a folder for the memory, only what needs the home itself is refused.
    home = tmp_path / "given"
    home.mkdir()
    (home / "ragmem.toml").write_text('permissions.deny = ["read_file(~/.ssh/**)"]\n')
    os.chown(home, 54321, 54321)
    env["RAGMEM_HOME"] = str(home)
    assert ragmem.run("ask", "Hello?", env=env, through=through).code == 0
    exported = ("sessions", "export", "--format", "md", "--anonymous", "-o", str(home / "a.md"))
    assert ragmem.run(*exported, env=env, through=through).code == 0
    done = ragmem.run("install", "claude-code", "--yes", env=env, through=through)
    assert (done.code, "there is no such home folder" in done.err) == (2, True)
    assert list((ragmem.project / "~").iterdir()) == []


# --- other poverty --------------------------------------------------------------------


@pytest.mark.parametrize(
    "env",
    [
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LANG": None, "LC_ALL": None, "TERM": None},
        {"PYTHONIOENCODING": "latin-1"},
    ],
)
def test_any_locale(tmp_path: Path, ragmem: Ragmem, env: dict[str, str | None]) -> None:
    """What can't be shown becomes `?`; what is stored is whole."""
    (ragmem.project / "café.txt").write_text("x")
    code, out, err = plain(ragmem.run("ask", "Où est le café ✓?", env=env), tmp_path)
    assert (code, err) == (0, "")
    assert out.startswith("The answer: caf")
    code, out, err = plain(ragmem.run("sessions", "list", env=env), tmp_path)
    assert (code, err) == (0, "")
    (session,) = ragmem.sessions()
    (turn,) = ragmem.shown(session["session_id"])["turns"]
    assert (turn["user_message"], turn["assistant_message"]) == ("Où est le café ✓?", ANSWER)


def test_a_time_zone_that_no_time_can_be_shown_in(tmp_path: Path, ragmem: Ragmem) -> None:
    code, _, err = plain(ragmem.run("stats", env={"TZ": "UTC+25"}), tmp_path)
    assert (code, "TZ is a day or more" in err) == (2, True)


@pytest.mark.parametrize("closed", mostly([">&- 2>&- <&-"], [">&-", "2>&-", "<&-", ">&- 2>&- <&-"]))
def test_closed_streams(tmp_path: Path, ragmem: Ragmem, closed: str) -> None:
    """Nothing is written into the memory's files, and the turn is kept; a lost answer is exit 1."""
    through = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    is_lost = ">&-" in closed.split()
    why = "error: Can't write the output: Bad file descriptor.\n"
    commands = (["ask", "Hello?"], ["doctor"], ["sessions", "list", "--format", "json"])
    for arguments in (*commands, ["search", "Hello"], ["context", "Hello"]):
        code, _, err = plain(ragmem.run(*arguments, through=through), tmp_path)
        assert (code, err.endswith(why)) == (int(is_lost), is_lost and "2>&-" not in closed)
    (session,) = ragmem.sessions()
    assert session["last_message"] == "Hello?"


# --- closed to others -----------------------------------------------------------------


def loose(folder: Path) -> list[str]:
    """What others could look into."""
    return [
        f"{path.relative_to(folder.parent)} {stat.S_IMODE(path.lstat().st_mode):04o}"
        for path in [folder, *folder.rglob("*")]
        if path.lstat().st_mode & 0o077 and not path.is_symlink()
    ]


def test_every_file_is_private_whatever_the_umask(ragmem: Ragmem, server: LLMServer) -> None:
    """Of a turn with tools, its outputs and pre-images, a crash, a backup, an export."""
    calls = [
        Call("read_file", {"path": "a.txt"}),
        Call("edit_file", {"path": "a.txt", "old": "one", "new": "two"}),
        Call("run_command", {"command": "seq 40000"}),
    ]
    server.extend(*(Answer(tools=[call]) for call in calls))
    (ragmem.project / "a.txt").write_text("one\n")
    commands = [
        "ask Go --yolo",
        "config init",
        f"store backup {ragmem.home}/backup.db",
        f"sessions export -o {ragmem.home}/session.json",
        "store check",
        f"sessions import --as-new {ragmem.home}/session.json",
    ]
    script = (
        "import os, sys\nos.umask(0)\nfrom ragmem.cli.main import record_crash, run\n"
        "for words in sys.argv[1:]:\n    assert run(words.split()) == 0, words\n"
        "record_crash(ValueError('x'))\n"
    )
    assert ragmem.execute(sys.executable, "-P", "-c", script, *commands).code == 0
    names = {path.name.split("-")[0] for path in ragmem.home.rglob("*") if path.is_file()}
    assert {"memory.db", "backup.db", "session.json", "ragmem.toml", "command", "crash"} <= names
    assert loose(ragmem.home) == []


def test_loose_modes_are_repaired_with_a_notice(tmp_path: Path, ragmem: Ragmem) -> None:
    """One line names what was open, once, whichever command comes first."""
    ragmem.ok("ask", "Hello?")
    for arguments in (["ask", "Again?"], ["sessions", "list"]):
        (ragmem.home / "data").chmod(0o755)
        (ragmem.home / "data" / "memory.db").chmod(0o644)
        assert ragmem.ok(*arguments).err.replace(str(tmp_path), "…") == snapshot(
            "note: Others could read …/home/data (was 0755), …/home/data/memory.db "
            "(was 0644); permissions were fixed.\n"
        )
        assert loose(ragmem.home) == []
        assert ragmem.ok(*arguments).err == ""
    (ragmem.home / "logs").chmod(0o750)
    done = ragmem.run("doctor")
    assert "note   folders" in done.out
    assert "logs (was 0750); permissions were fixed" in done.out


def test_a_folder_of_everybody_stays_open(tmp_path: Path, ragmem: Ragmem) -> None:
    """RAGMEM_HOME=/tmp closes /tmp to nobody."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    done = ragmem.run("ask", "Hello?", env={"RAGMEM_HOME": str(shared)})
    assert (done.code, done.err) == (0, "")
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert loose(shared / "data") == []

"""The sandbox of commands: what it refuses, by each mechanism and for root and others."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ragmem.config import Paths, SandboxConfig, load_config
from ragmem.errors import ConfigError
from ragmem.files import make_private
from ragmem.messages import ToolUse
from ragmem.tools.base import Decision
from ragmem.tools.permissions import PermissionRules
from ragmem.tools.sandbox import (
    LEAST_ABI,
    Confinement,
    Mechanism,
    Sandbox,
    find_mechanism,
    landlock_version,
    profile,
)
from ragmem.tools.shell import Jobs
from tests.fakes.patience import until
from tests.tools.conftest import Desk
from tests.tools.escapes import GUARD, REACHED, WAYS

_REPOSITORY = Path(__file__).parents[2]
_NOBODY_ELSE = 61_234
_SOME_SYSTEMS_REFUSE = {
    "ptrace", "memory of a process", "new namespaces", "new namespace by clone", "io_uring",
    "keyring", "setuid", "type into a terminal",
}  # fmt: skip
_IS_ROOT = os.geteuid() == 0


def missing(kind: str) -> str:
    """Why a mechanism can't be tried here; empty where it can."""
    if kind == "landlock" and landlock_version() < LEAST_ABI:
        return f"Landlock of this kernel is {landlock_version()}"
    if kind == "bubblewrap" and find_mechanism().kind != kind:
        return find_mechanism().why
    return ""


def attempt(kind: str, who: str) -> dict[str, tuple[str, bool]]:
    """Try every way out, as this user or as an ordinary one; what came of each."""
    # Not below /tmp, which commands see another one of.
    folder = Path(tempfile.mkdtemp(prefix="ragmem-escapes-", dir="/var/tmp"))
    other = _NOBODY_ELSE if who == "user" and _IS_ROOT else None
    try:
        if _IS_ROOT:
            shutil.copy("/usr/bin/id", folder / "setuid-id")
            (folder / "setuid-id").chmod(0o4755)
        if other:
            os.chown(folder, other, other)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tests.tools.escapes", kind, str(folder)],
            cwd=_REPOSITORY,
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
            user=other,
            group=other,
            extra_groups=[] if other else None,
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def escaped(outcome: tuple[str, bool]) -> bool:
    text, intact = outcome
    return REACHED in text or GUARD in text or not intact


@pytest.mark.parametrize(
    ("kind", "who"),
    [
        ("bubblewrap", "root"),
        ("bubblewrap", "user"),
        ("landlock", "user"),
        pytest.param("landlock", "root", marks=pytest.mark.campaign),
    ],
)
def test_no_way_leads_out(kind: str, who: str) -> None:
    if why := missing(kind):
        pytest.skip(why)
    if who == "root" and not _IS_ROOT:
        pytest.skip("this is not root")
    found = attempt(kind, who)
    out = {name for name, outcome in found.items() if escaped(outcome)}
    assert out == {name for name, way in WAYS.items() if kind not in way.held_by}, [
        (name, found[name]) for name in out
    ]
    for name in out:
        assert "[Created or changed meanwhile, and can run by itself: " in found[name][0]


@pytest.mark.parametrize("who", ["root", "user"])
def test_without_a_sandbox_they_all_lead_out(who: str) -> None:
    """The honest counterpart: each way is one, where what it is after is there."""
    if who == "root" and not _IS_ROOT:
        pytest.skip("this is not root")
    found = attempt("none", who)
    held = {name for name, outcome in found.items() if not escaped(outcome)}
    expected = {name for name, way in WAYS.items() if who not in way.works}
    assert expected <= held <= expected | _SOME_SYSTEMS_REFUSE, [(n, found[n]) for n in held]


# --- what it is like to work in it ------------------------------------------------

Made = Callable[..., Sandbox]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Made]:
    """A sandbox by a mechanism, with settings; skips where it can't be."""
    made = []

    def make(
        kind: str = "bubblewrap",
        deny: tuple[str, ...] = (),
        private: tuple[Path, ...] = (),
        **settings: object,
    ) -> Sandbox:
        if why := missing(kind):
            pytest.skip(why)
        program = Path(shutil.which("bwrap") or "/")
        found = Mechanism(kind, program)  # type: ignore[arg-type]
        private = (tmp_path / "home", *private)
        wanted, rules = SandboxConfig(**settings), PermissionRules(deny=deny)  # type: ignore[arg-type]
        made.append(Sandbox(wanted, private=private, mechanism=found, rules=rules))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def confined(make_desk, sandbox: Made) -> Callable[..., Desk]:
    """A desk with a sandbox by a mechanism, where nobody is asked; with settings of the sandbox."""

    def make(kind: str = "bubblewrap", **settings: object) -> Desk:
        return make_desk(mode="bypassPermissions", sandbox=sandbox(kind, **settings))

    return make


KINDS = pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])


@KINDS
async def test_one_works_in_the_project_and_a_temporary_folder(make_desk, sandbox: Made, kind):
    made = sandbox(kind)
    desk = make_desk(mode="bypassPermissions", sandbox=made)
    work = "mkdir -p a/b && echo 1 >a/x && mv a/x a/b/y && ln -s b a/l && cat a/l/y && rm -r a"
    assert await desk.ran(work) == "Exit code 0\n1"
    await desk.ran('echo kept >"$TMPDIR/t"')
    assert "kept" in await desk.ran('cat "$TMPDIR/t"')
    if kind == "bubblewrap":
        assert "kept" in await desk.ran("cat /tmp/t")
        served = "python3 -m http.server -b 127.0.0.1 0 & sleep 0.1; kill %1"
        assert "denied" not in await desk.ran(served)
    assert made._temporary
    folder = made._temporary.path
    assert folder.stat().st_mode & 0o777 == 0o700
    made.close()
    assert not folder.exists()


@KINDS
async def test_a_private_folder_that_is_made_during_a_command_is_hidden_from_it(confined, kind):
    """The one for what an unrecorded session keeps is made once something is kept."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # Another /tmp has the command.
        secret = Path(folder, "own/secret")
        desk = confined(kind, private=(secret.parent,))
        wait = f"touch begun; until [ -e go ]; do sleep 0.02; done; cat {secret}"
        running = asyncio.create_task(desk.ran(wait))
        await until((desk.cwd / "begun").exists)
        make_private(secret.parent)
        secret.write_text("password")
        desk.file("go")
        assert "password" not in await running


@KINDS
async def test_a_project_in_a_closed_folder_is_worked_in_all_the_same(confined, tmp_path, kind):
    (tmp_path / "beside").write_text("closed")
    desk = confined(kind, deny_read=(str(tmp_path),))
    desk.file("made", "mine")
    text = await desk.ran("cat made; cat ../beside; echo more >>made")
    assert ("mine" in text, "closed" in text) == (True, False)
    assert (desk.cwd / "made").read_text() == "minemore\n"


@KINDS
async def test_closed_folders_of_a_project_are_closed(confined, tmp_path, kind):
    desk = confined(kind, deny_read=(f"{tmp_path}/w/keys",))
    desk.file("keys/one", "secret")
    desk.file("other/one", "known")
    text = await desk.ran("cat other/one keys/one; echo >keys/two; true")
    assert ("known" in text, "secret" in text) == (True, False)
    assert os.listdir(desk.cwd / "keys") == ["one"]


async def test_what_other_programs_keep_secret_is_hidden(confined, monkeypatch):
    """Keys, mail and histories of a home, by what finds them by itself."""
    desk = confined()
    home = desk.cwd / "home"
    monkeypatch.setenv("HOME", str(home))
    for name in (
        *(".claude.json", ".config/anthropic/credentials/default.json", ".vibe/.env", ".authinfo"),
        *(".config/netlify/config.json", ".local/share/uv/credentials/one", ".sqlite_history"),
        *(".config/google-chrome-beta/Cookies", ".config/Signal/config.json", ".terraformrc"),
    ):
        desk.file(f"home/{name}", "closed")
    desk.file("home/.profile", "known")
    text = await desk.ran("grep -rh . home")
    assert ("known" in text, "closed" in text) == (True, False)


@KINDS
async def test_what_must_not_be_read_is_hidden_from_what_finds_it_itself(confined, tmp_path, kind):
    """With Landlock outside of the folder alone."""
    beside = tmp_path / "beside"
    beside.write_text("closed")
    deny = ("read_file(*.pem)", "read_file({keys,locks}/**)", f"read_file({beside})")
    desk = confined(kind, deny=deny)
    for name in ("a/b/x.pem", "keys/one"):
        desk.file(name, "closed" if kind == "bubblewrap" else "in it")
    desk.file("a/other", "known")
    text = await desk.ran("grep -rh . . ../beside; echo >a/new")
    assert ("known" in text, "closed" in text) == (True, False)
    assert ("in it" in text) == (kind == "landlock")
    assert (desk.cwd / "a/new").exists()


@KINDS
@pytest.mark.parametrize("network", ["none", "loopback", "all"])
async def test_the_network_is_what_the_settings_say(confined, kind, network):
    desk = confined(kind, network=network)
    looks = "python3 -IS -c 'import socket; print(socket.socket().fileno() > 0)' 2>/dev/null"
    unix = "python3 -IS -c 'import socket; socket.socketpair(); socket.socket(socket.AF_UNIX)'"
    text = await desk.ran(f"{looks}; {unix}")
    inet = network == "all" or (network, kind) == ("loopback", "bubblewrap")
    assert ("True" in text) == inet
    assert text.count("Operation not permitted") == 1


async def test_what_is_refused_is_told_with_the_way_out(make_desk, sandbox: Made):
    desk = make_desk(sandbox=sandbox())
    refused = await desk.do("run_command", command="echo x >/etc/made")
    assert "[This ran in the sandbox: it can write only in the working directory" in refused.text
    assert "call run_command again with `outside_sandbox`" in refused.text
    assert "sandbox" not in refused.display
    assert "sandbox" not in await desk.ran("echo unknown flag; false")
    assert "[This ran in the sandbox" in await desk.ran("touch /etc/made 2>&1 | tail -1")


async def test_a_server_in_it_is_told_to_be_out_of_reach(make_desk, sandbox: Made, jobs: Jobs):
    desk = make_desk(mode="bypassPermissions", sandbox=sandbox(), jobs=jobs)
    said, serve = "no browser and no other command can reach its ports", "exec sleep 60"
    assert said in await desk.ran(serve, background=True)
    assert said not in await desk.ran(serve, background=True, outside_sandbox="it is a server")


async def test_leaving_it_is_a_question_of_its_own_and_says_what_for(make_desk, sandbox: Made):
    desk = make_desk(mode="acceptEdits", allow=("run_command",), sandbox=sandbox(auto_allow=True))
    await desk.ran("true")
    assert desk.proposals == []
    for _ in range(2):
        assert "/tmp" not in await desk.ran("echo $TMPDIR", outside_sandbox="it installs")
    first, second = desk.proposals
    assert first.warnings == ("it runs outside the sandbox; the reason given: it installs",)
    assert second.body == "echo $TMPDIR"
    assert second.always == "exactly this command outside the sandbox in this session"
    assert second.for_good == (("outside_sandbox(echo $TMPDIR)",),)
    desk.deny("no")
    refused = await desk.fails("run_command", command="true", outside_sandbox="it installs")
    assert "not allowed: no" in refused.text


async def test_what_may_always_leave_is_not_asked_for_again(make_desk, sandbox: Made):
    """Exactly that command; nor is it where it runs within, by another rule."""
    desk = make_desk(sandbox=sandbox())
    desk.answer = Decision(True, remember=True)
    for _ in range(2):
        await desk.ran("echo 1", outside_sandbox="it installs")
    await desk.ran("echo 1")
    await desk.ran("echo 2", outside_sandbox="it installs")
    assert [each.body for each in desk.proposals] == ["echo 1", "echo 1", "echo 2"]
    assert [each.always for each in desk.proposals][1] == "exactly this command in this session"
    ruled = make_desk(sandbox=sandbox(), allow=("outside_sandbox(echo *)",))
    text = await ruled.ran("echo $TMPDIR", outside_sandbox="it installs")
    assert (ruled.proposals, "/tmp" in text) == ([], False)
    denied = make_desk(
        mode="bypassPermissions", sandbox=sandbox(), deny=("outside_sandbox(echo *)",)
    )
    refused = await denied.fails("run_command", command="echo 1", outside_sandbox="it installs")
    assert "outside_sandbox(echo *) denies this" in refused.text
    await denied.ran("echo 1")


async def test_a_server_the_person_runs_outside_is_reached(make_desk, sandbox: Made, jobs: Jobs):
    """Also by the next command, where that may leave too; from within it says what to ask for."""
    desk = make_desk(sandbox=sandbox(), jobs=jobs)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = f"exec python3 -m http.server {port} --bind 127.0.0.1"
    get = f"curl -sS --retry 9 --retry-connrefused http://127.0.0.1:{port}/"
    desk.answer = Decision(True, remember=True, outside=True)
    begun = await desk.ran(serve, background=True)
    (asked,) = desk.proposals
    assert asked.outside is not None
    assert asked.outside.always == "exactly this command outside the sandbox in this session"
    assert "no browser and no other command" not in begun
    await jobs.stop(jobs.all[0])
    await desk.ran(serve, background=True)
    assert len(desk.proposals) == 1
    desk.answer = Decision(True)
    within = await desk.ran(f"curl -sS http://127.0.0.1:{port}/")
    assert "What runs outside it can only be reached from outside" in within
    assert "call run_command again with `outside_sandbox`" in within
    assert "Directory listing" in await desk.ran(get, outside_sandbox="to see the page")


async def test_where_required_no_server_is_offered_to_leave(make_desk, sandbox: Made, jobs: Jobs):
    allow = ("outside_sandbox(sleep *)",)
    desk = make_desk(sandbox=sandbox(mode="required"), jobs=jobs, allow=allow)
    desk.answer = Decision(True, outside=True)
    begun = await desk.ran("sleep 60", background=True)
    (asked,) = desk.proposals
    assert asked.outside is None
    assert "no browser and no other command can reach its ports" in begun


@pytest.mark.parametrize(
    ("kind", "mode", "settings", "asked"),
    [
        ("bubblewrap", "acceptEdits", {"auto_allow": True}, False),
        ("bubblewrap", "default", {"auto_allow": True}, True),
        ("bubblewrap", "acceptEdits", {}, True),
        ("bubblewrap", "acceptEdits", {"auto_allow": True, "mode": "off"}, True),
        ("landlock", "acceptEdits", {"auto_allow": True}, True),
    ],
)
async def test_what_is_asked_for(make_desk, sandbox: Made, kind, mode, settings, asked):
    desk = make_desk(mode=mode, sandbox=sandbox(kind, **settings))
    await desk.ran("true")
    assert bool(desk.proposals) == asked


async def test_without_one_nothing_is_allowed_that_was_not(make_desk):
    none = Sandbox(SandboxConfig(auto_allow=True), mechanism=Mechanism("", why="a fake"))
    desk = make_desk(mode="acceptEdits", sandbox=none)
    await desk.ran("true", outside_sandbox="whatever")
    (asked,) = desk.proposals
    assert (asked.warnings, asked.always) == ((), "exactly this command in this session")
    assert none.describe() == "none: a fake; commands can do whatever you can do"


def test_a_folder_of_the_settings_that_is_not_there_is_told(tmp_path: Path) -> None:
    """As it is written: nothing can be written there until it is made."""
    settings = SandboxConfig(write=("~/nope", str(tmp_path)))
    made = Sandbox(settings, mechanism=Mechanism("bubblewrap"))
    assert made.absent == ("~/nope",)
    assert made.describe().endswith("; ~/nope in sandbox.write does not exist")


async def test_where_it_is_required_no_command_runs_without(make_desk, sandbox: Made):
    none = Sandbox(SandboxConfig(mode="required"), mechanism=Mechanism("", why="a fake"))
    refused = await make_desk(mode="bypassPermissions", sandbox=none).fails(
        "run_command", command="touch made"
    )
    assert refused.text == "sandbox.mode is `required`, and a fake: not run."
    desk = make_desk(mode="bypassPermissions", sandbox=sandbox(mode="required"))
    refused = await desk.fails("run_command", command="touch made", outside_sandbox="please")
    assert refused.text == "sandbox.mode is `required`, and commands run only in it: not run."
    assert not (desk.cwd / "made").exists()


async def test_what_one_types_runs_outside_unless_that_is_set(make_desk, sandbox: Made):
    for own in (False, True):
        desk = make_desk(sandbox=sandbox(own_commands=own))
        use = ToolUse("1", "run_command", json.dumps({"command": "echo at $TMPDIR"}))
        typed = await desk.toolset.of_person.call(use)
        assert ("at /tmp" in typed.text) == own


@KINDS
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("mkdir -p .vscode src; echo >.vscode/tasks.json; echo >src/a", ".vscode"),
        ("mkdir refs; echo x >HEAD; echo x >config", "HEAD config"),
        # It would lead git, also the person's own, to another configuration.
        (
            "echo ../x >.git/commondir; until [ ! -e .git/commondir ]; do sleep 0.02; done",
            ".git/commondir",
        ),
    ],
    ids=["an editor's task", "a repository", "another configuration for git"],
)
async def test_new_files_that_run_by_themselves_are_told(confined, kind, command: str, told: str):
    desk = confined(kind)
    desk.file(".git/HEAD")
    done = await desk.do("run_command", command=command)
    files = ", ".join(f"{desk.cwd}/{name}" for name in told.split())
    for text in (done.text, done.display):
        assert f"[Created or changed meanwhile, and can run by itself: {files}]" in text
    assert not (desk.cwd / ".git/commondir").exists()


def test_only_ones_own_settings_reach_it(tmp_path: Path):
    with pytest.raises(ConfigError, match="permissions can't be set in the environment"):
        load_config(tmp_path / "ragmem.toml", environ={"RAGMEM_SANDBOX__MODE": "off"})
    (tmp_path / "ragmem.toml").write_text('[sandbox]\nwrite = ["relative"]\n')
    with pytest.raises(ConfigError, match=r"line 2: sandbox\.write"):
        load_config(Paths(tmp_path, tmp_path, tmp_path).config_file, environ={})


def test_macos_is_given_the_rules_as_it_takes_them():
    rules = Confinement(
        write=(Path("/p"),),
        kept=(Path('/p/.git/ho"oks'),),
        hidden=(Path("/u/.ssh"),),
        network="loopback",
        temporary=Path("/t"),
    )
    lines = profile(rules).splitlines()
    assert lines[:2] == ["(version 1)", "(allow default)"]
    writes = [line for line in lines if "file-write*" in line]
    assert writes[:2] == ["(deny file-write*)", '(allow file-write* (subpath "/p") (subpath "/t"))']
    assert writes[-2:] == [
        '(deny file-write* (subpath "/p/.git/ho\\"oks"))',
        '(deny file-read* file-write* (subpath "/u/.ssh"))',
    ]
    assert lines[-2] == "(deny network*)"
    assert "localhost" in lines[-1]


# --- what is left behind ------------------------------------------------------------

ENDS_EARLY = """
import sys
from ragmem.config import SandboxConfig
from ragmem.tools.sandbox import Mechanism, Sandbox
sandbox = Sandbox(SandboxConfig(), mechanism=Mechanism("landlock"))
with sandbox.confining(["true"], []) as start:
    print(start.environ["TMPDIR"], flush=True)
sys.exit("trouble")
"""


def test_the_temporary_folder_goes_with_the_process():
    if why := missing("landlock"):
        pytest.skip(why)
    done = subprocess.run(
        [sys.executable, "-P", "-c", ENDS_EARLY], capture_output=True, text=True, cwd=_REPOSITORY
    )
    assert done.stderr == "trouble\n"
    assert done.stdout.startswith(tempfile.gettempdir())
    assert not Path(done.stdout.strip()).exists()


def ended_and_running() -> tuple[set[str], list[bytes]]:
    """This process' zombies, other tests' among them, and the command line of each process."""
    zombies, lines = set(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            lines.append((folder / "cmdline").read_bytes())
            state = (folder / "stat").read_text()
            if state.rpartition(")")[2].split()[:2] == ["Z", str(os.getpid())]:
                zombies.add(folder.name)
    return zombies, lines


@KINDS
@pytest.mark.parametrize("count", [10, pytest.param(500, marks=pytest.mark.campaign)])
async def test_nothing_is_left_of_many_commands(make_desk, sandbox: Made, kind, count: int):
    desk = make_desk(mode="bypassPermissions", sandbox=sandbox(kind), timeout_s=0.2)
    nap = f"71.{int.from_bytes(os.urandom(5), 'big')}"
    ways = [
        "true", "exit 3", "kill -9 $$", f"sleep {nap} & true", f"setsid sleep {nap} & true",
        f"sleep {nap}", f"trap '' TERM; sleep {nap}", "kill -9 $PPID; true",
        f"(setsid nohup sleep {nap} >/dev/null 2>&1 &); exit 1", "STOP",
    ]  # fmt: skip

    async def one(way: str) -> None:
        if way != "STOP":
            await desk.call("run_command", command=way)
            return
        running = asyncio.create_task(desk.call("run_command", command=f"sleep {nap}"))
        await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    before, _ = ended_and_running()
    for _ in range(count // len(ways)):
        await asyncio.gather(*map(one, ways))
    left = ["not looked"]
    until = time.monotonic() + 20  # one that was cancelled may end after its second of grace
    while left and time.monotonic() < until:
        await asyncio.sleep(0.1)
        zombies, lines = ended_and_running()
        left = [*(zombies - before), *(str(line) for line in lines if nap.encode() in line)]
        left += [fd for fd in os.listdir("/proc/self/fd") if _leads_to(fd, "memfd:filter")]
    assert not left


def _leads_to(fd: str, what: str) -> bool:
    try:
        return what in os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return False

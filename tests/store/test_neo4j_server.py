"""A local Neo4j: found, started, shared, stopped; and said clearly when it can't be."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from ragmem.config import Config, Paths, StoreConfig, find_paths
from ragmem.errors import StoreError, StoreRefused, StoreUnavailable
from ragmem.store import neo4j_server
from ragmem.store.neo4j import Neo4jStore
from ragmem.store.neo4j_server import LocalNeo4j, free_port, start_stop_lock, ways
from ragmem.store.neo4j_server.ways import Layout, Ports, Running
from tests.fakes.neo4j import PATIENCE_S, in_thread, use_cached_jars
from tests.store.samples import created, whole_turn

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
CONFIG = Config()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """One home for the tests that run a server in turn; its jars are there already."""
    paths = find_paths({"RAGMEM_HOME": str(tmp_path_factory.mktemp("home"))})
    layout = Layout(paths.make().neo4j_dir)
    layout.make()
    in_thread(use_cached_jars(layout))
    return paths


@pytest.fixture
async def stopped(paths: Paths) -> AsyncIterator[Paths]:
    """The home; no server runs there when the test is over."""
    yield paths
    await local(paths).down()
    assert not (await local(paths).status()).running


@pytest.fixture
def empty(tmp_path: Path) -> Paths:
    """A home where nothing was started yet."""
    return find_paths({"RAGMEM_HOME": str(tmp_path / "home")})


@pytest.fixture
def layout(empty: Paths) -> Layout:
    """The folders of a server in that home."""
    layout = Layout(empty.make().neo4j_dir)
    layout.make()
    return layout


def local(paths: Paths, environ: Mapping[str, str] = MappingProxyType({})) -> LocalNeo4j:
    """The server of that home, where no other one is configured."""
    return LocalNeo4j(paths, CONFIG, environ)


def only(folder: Path, **programs: str) -> dict[str, str]:
    """An environment whose PATH holds these scripts, after Java if it is among them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {"PATH": str(folder), "HOME": str(folder)}


def with_java(folder: Path, **programs: str) -> dict[str, str]:
    """The same, with the real Java."""
    environ = only(folder, **programs)
    real = ways.find_java(os.environ)
    assert real is not None, "these tests need Java 17"
    (folder / "java").symlink_to(real)
    return environ


def kept_turns(session_id: str, count: int) -> list[str]:
    """Ids of the turns that `remember` writes."""
    return [f"{session_id}-{number}" for number in range(count)]


async def remember(paths: Paths, session_id: str) -> None:
    """Write a session with two turns to the running server."""
    store = await Neo4jStore.open(local(paths).connection(), timeout_s=PATIENCE_S)
    turns = (whole_turn(session_id, turn_id) for turn_id in kept_turns(session_id, 2))
    await store.apply([created(session_id), *(write for turn in turns for write in turn)])
    await store.aclose()


async def recall(paths: Paths, session_id: str) -> list[str]:
    """The turns of a session, from the running server."""
    store = await Neo4jStore.open(local(paths).connection(), timeout_s=PATIENCE_S)
    try:
        return [turn.turn_id for turn in await store.turns(session_id)]
    finally:
        await store.aclose()


# --- one server, from its start to its end ---------------------------------------------


_UP = """
import asyncio, os, sys
from ragmem.config import Config, find_paths
from ragmem.store.neo4j_server import LocalNeo4j
local = LocalNeo4j(find_paths({"RAGMEM_HOME": sys.argv[1]}), Config(), os.environ)
status = asyncio.run(local.up(print))
print("at", status.way, status.url, status.pid)
"""


async def test_up_kill_up_down(stopped: Paths, tmp_path: Path) -> None:
    """Of three processes one starts a server, and is killed: the others wait until it is ready.

    The server's own kill -9 loses nothing.
    """
    paths = stopped
    environ = with_java(tmp_path / "bin") | {"OPENAI_API_KEY": "sk-canary"}
    assert find_paths({"RAGMEM_HOME": str(paths.config_dir)}) == paths
    ends = await ends_of_those_that_wait_for_a_starter_that_is_killed(paths, environ)

    status = await local(paths).status()
    assert ends == {f"at java {status.url} {status.pid}"}
    assert status.running
    assert status.url in status.detail
    assert "sk-canary" not in Path(f"/proc/{status.pid}/environ").read_text()
    assert listeners(status.pid) == {
        ("127.0.0.1", urlsplit(each).port) for each in (status.url, status.browser)
    }
    assert b"<html" in await asyncio.to_thread(page, status.browser)

    modes = {
        name: (paths.neo4j_dir / name).stat().st_mode & 0o777
        for name in ("", "data", "logs", "password", "running.json")
    }
    assert modes == {"": 0o700, "data": 0o700, "logs": 0o700, "password": 0o600} | {
        "running.json": 0o600
    }
    assert local(paths).log.read_text().count("Started.") == 1
    password = (paths.neo4j_dir / "password").read_text()
    assert len(password) >= 24
    assert password not in Path(f"/proc/{status.pid}/cmdline").read_text()

    await remember(paths, "s")
    os.kill(status.pid, signal.SIGKILL)
    while ways.started_at(status.pid):
        await asyncio.sleep(0.05)
    ended = await local(paths).status()
    assert not ended.running
    assert "neo4j up" in ended.detail
    with pytest.raises(StoreUnavailable):
        local(paths).connection()

    said: list[str] = []
    again = await local(paths, environ).up(said.append)
    assert again.running
    assert again.pid != status.pid
    if not any("taken" in line for line in said):  # by another program, on a busy machine
        addresses = ("url", "browser", "cypher_shell")
        assert [getattr(again, each) for each in addresses] == [
            getattr(status, each) for each in addresses
        ]
    assert await recall(paths, "s") == kept_turns("s", 2)

    said.clear()
    assert await local(paths, environ).up(said.append) == again
    assert said == []
    assert await local(paths).down()
    assert not ways.started_at(again.pid)
    assert "Stopped." in local(paths).log.read_text()
    assert not await local(paths).down()


async def ends_of_those_that_wait_for_a_starter_that_is_killed(
    paths: Paths, environ: dict[str, str]
) -> set[str]:
    """What `_UP` says last in two processes, while a third that started the server is killed."""
    command = [sys.executable, "-u", "-c", _UP, str(paths.config_dir)]
    racers = [
        await asyncio.create_subprocess_exec(
            *command, env=environ | {"PYTHONPATH": str(ROOT)}, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(3)
    ]
    begun = {await first_line(racer): racer for racer in racers}
    starter = begun["starting Neo4j…"]
    while not (paths.neo4j_dir / "running.json").exists():
        await asyncio.sleep(0.01)
    starter.kill()
    await starter.wait()
    waiting = [racer for racer in racers if racer is not starter]
    printed = [(await racer.communicate())[0].decode() for racer in waiting]
    assert [racer.returncode for racer in waiting] == [0, 0], printed
    assert not any("starting Neo4j" in text for text in printed)
    return {text.splitlines()[-1] for text in printed}


async def first_line(process: asyncio.subprocess.Process) -> str:
    """What it prints first, as soon as it does."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


def page(address: str) -> bytes:
    with urlopen(address, timeout=PATIENCE_S) as answer:
        content: bytes = answer.read()
        return content


def listeners(pid: int) -> set[tuple[str, int]]:
    """Addresses on which this process accepts connections."""
    inodes = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(handle)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                host, _, port = fields[1].partition(":")
                # The last 32 bits in the machine's order; before them what maps IPv4 into IPv6.
                number = bytes.fromhex(host[-8:])[:: -1 if sys.byteorder == "little" else 1]
                mapped = host[:-8] in ("", "0000000000000000FFFF0000")
                found.add((".".join(map(str, number)) if mapped else host, int(port, 16)))
    return found


_TAKEN = """#!/bin/sh
# What a package puts on PATH, where another program has its port.
echo "$1 $(grep -c bolt "$NEO4J_CONF/neo4j.conf")" >> "$HOME/asked"
echo "Address already in use"
exit 1
"""


async def test_a_port_that_is_taken_is_left_for_another_and_its_owner_told_nothing(
    empty: Paths, layout: Layout, tmp_path: Path
) -> None:
    """`neo4j` on PATH comes first; a port of the last start that is taken is told of, too."""
    environ = only(tmp_path / "bin", neo4j=_TAKEN)
    environ["PATH"] += os.pathsep + os.defpath
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        layout.remember(Running("path", port, free_port()))
        said: list[str] = []
        # What listens there accepts, as Neo4j would; it is never told the password.
        with pytest.raises(StoreUnavailable, match="found its port taken 3 times"):
            await local(empty, environ).up(said.append)
        taken.setblocking(False)
        with pytest.raises(BlockingIOError):
            taken.accept()
    told = said[2:]
    assert told[0].startswith(f"the port {port} (Bolt) is taken by another program; ")
    assert [line.startswith("a port was taken meanwhile") for line in told[1:]] == [True] * 3
    assert (tmp_path / "bin" / "asked").read_text() == "console 2\n" * 3
    assert not (await local(empty).status()).running


_INSTALLED = """#!/bin/sh
# What a package puts on PATH, cut down to what is used of it.
echo internal.dbms.bolt.netty_server_shutdown_quiet_period=0 >> "$NEO4J_CONF/neo4j.conf"
exec java -cp "{jars}/*" -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \\
    --add-opens=java.base/java.nio=ALL-UNNAMED \\
    --add-opens=java.base/java.io=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED \\
    --add-opens=java.base/java.util.concurrent=ALL-UNNAMED \\
    org.neo4j.server.CommunityEntryPoint --home-dir={home} --config-dir="$NEO4J_CONF"
"""


@pytest.mark.campaign
async def test_a_real_server_says_that_its_port_is_taken_and_runs_on_another(
    stopped: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib = stopped.neo4j_dir / f"server-{ways.server_version()}" / "lib"
    environ = with_java(tmp_path / "bin", neo4j=_INSTALLED.format(jars=lib, home=tmp_path))
    (stopped.neo4j_dir / "running.json").unlink(missing_ok=True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = iter([port])
        monkeypatch.setattr(neo4j_server, "free_port", lambda: next(ports, None) or free_port())
        said: list[str] = []
        status = await local(stopped, environ).up(said.append)
    assert (status.running, status.way) == (True, "path")
    [told] = [line for line in said if "taken" in line]
    assert urlsplit(status.url).port != port
    assert str(urlsplit(status.url).port) in told


_DOCKER = """#!/bin/sh
echo "$@" >> "$HOME/asked"
case $1 in
    run) echo "$NEO4J_AUTH" > "$HOME/auth"; : > "$HOME/runs" ;;
    inspect) [ -e "$HOME/runs" ] && echo true ;;
    stop) /bin/rm "$HOME/runs" ;;
esac
"""


async def test_a_container(empty: Paths, layout: Layout, tmp_path: Path) -> None:
    """On loopback, with the folder's data; the password is not among its arguments."""
    environ = only(tmp_path / "bin", docker=_DOCKER)
    engine = await ways.find_engine(environ)
    assert engine
    await engine.prepare(layout, print)
    layout.remember(await engine.start(layout, Ports(4711, 4712)))
    status = await local(empty, environ).status()
    assert (status.running, status.way) == (True, "docker")
    assert status.browser == "http://127.0.0.1:4712/browser/"
    assert local(empty, environ).connection().url == status.url == "bolt://127.0.0.1:4711"
    assert await local(empty, environ).down()
    assert not (await local(empty, environ).status()).running
    asked = (tmp_path / "bin" / "asked").read_text()
    assert [line.split()[0] for line in asked.splitlines()] == [
        "info", "rm", "run", "inspect", "inspect", "stop", "rm",
    ]  # fmt: skip
    assert (tmp_path / "bin" / "auth").read_text() == f"neo4j/{layout.password()}\n"
    assert layout.password() not in asked
    for given in ("127.0.0.1:4711:7687", "127.0.0.1:4712:7474", f"{layout.data}:/data"):
        assert f" {given} " in asked


# --- what is never stopped, what is never started ------------------------------------------


async def test_a_recycled_process_id_is_left_alone(empty: Paths, layout: Layout) -> None:
    """A record whose process is another one by now stops nobody."""
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        for started in ("some-boot:123", ""):
            layout.remember(Running("java", 1, 2, pid=innocent.pid, started=started))
            status = await local(empty).status()
            assert not status.running
            with pytest.raises(StoreRefused, match="no local one is running"):
                local(empty).connection()
            assert not await local(empty).down()
            assert innocent.poll() is None
            assert layout.running() == Running("java", 1, 2)
    finally:
        innocent.kill()
        innocent.wait()


async def test_a_process_is_known_by_its_start() -> None:
    """Two looks agree while it lives; a zombie and a stranger are none."""
    child = subprocess.Popen(["sleep", "60"])
    start = ways.started_at(child.pid)
    assert start
    assert ways.started_at(child.pid) == start
    assert ways.started_at(os.getpid()) != start
    await ways.stop(child.pid, "another start", timeout_s=1)
    assert child.poll() is None
    await ways.stop(child.pid, start, timeout_s=10)
    assert ways.started_at(child.pid) == ""
    child.wait()


async def test_one_that_ignores_a_polite_end(tmp_path: Path) -> None:
    """Stopped by force in the end."""
    ready = tmp_path / "ready"
    script = f"trap '' TERM; : > {ready}; while :; do sleep 0.1; done"
    pid = ways.start_detached(["sh", "-c", script], os.environ, tmp_path / "log")
    while not ready.exists():
        await asyncio.sleep(0.01)
    start = ways.started_at(pid)
    await ways.stop(pid, start, timeout_s=0.5)
    assert ways.started_at(pid) == ""


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"way": 1}', b"\xff\xfe"])
async def test_a_record_that_is_no_record(empty: Paths, layout: Layout, content: bytes) -> None:
    """A torn file is as none."""
    (layout.folder / "running.json").write_bytes(content)
    assert not (await local(empty).status()).running
    assert not await local(empty).down()


@pytest.mark.parametrize("way", ["variable", "setting"])
async def test_a_configured_server_starts_nothing(empty: Paths, way: str, tmp_path: Path) -> None:
    """NEO4J_URI or store.url: said, and nothing is started, fetched or written."""
    url = "bolt://127.0.0.1:9"
    environ = {"NEO4J_URI": url} if way == "variable" else {}
    config = Config() if way == "variable" else Config(store=StoreConfig(url=url))
    said: list[str] = []
    status = await LocalNeo4j(empty, config, environ).up(said.append)
    assert (status.running, status.way, status.url) == (False, "configured", url)
    assert "nothing is started" in said[0]
    assert list(tmp_path.iterdir()) == []


def test_the_configured_connection(empty: Paths) -> None:
    """The address from the settings, the password from the environment only."""
    config = Config(store=StoreConfig(url="neo4j://host", database="garden"))
    environ = {"NEO4J_USERNAME": "ana", "NEO4J_PASSWORD": "hunter2"}
    found = LocalNeo4j(empty, config, environ).connection()
    assert (found.url, found.username, found.password) == ("neo4j://host", "ana", "hunter2")
    assert found.database == "garden"
    with pytest.raises(StoreRefused, match="is not an address"):
        LocalNeo4j(empty, Config(), {"NEO4J_URI": "http://host"}).connection()


def test_nothing_to_connect_to(empty: Paths) -> None:
    """Refused, with both ways to have one."""
    with pytest.raises(StoreRefused) as caught:
        local(empty).connection()
    assert "neo4j up" in caught.value.hint
    assert "NEO4J_URI" in caught.value.hint


# --- when it can't be ------------------------------------------------------------------


def _script(words: str, code: int = 1) -> str:
    return f"#!/bin/sh\necho '{words}' >&2\nexit {code}\n"


@pytest.mark.parametrize(
    ("programs", "error", "message", "hint"),
    [
        ({}, StoreRefused, "Nothing here can run Neo4j", "neo4j docker podman Maven NEO4J_URI"),
        ({"java": ""}, StoreRefused, "Maven", "Maven"),
        (
            {"java": _script('openjdk version "11.0.20" 2023-07-18')},
            StoreRefused, "Java 11; Neo4j needs 17", "Java",
        ),
        ({"java": _script('java version "1.8.0_392"')}, StoreRefused, "Java 8; ", "Java"),
        ({"java": "no program"}, StoreRefused, "Java of an unknown version", "Java"),
        (
            {"docker": _script("no daemon"), "podman": "#!/bin/sh\nexec /bin/sleep 60\n"},
            StoreRefused, "Nothing here can run Neo4j", "docker",
        ),
        (
            {"docker": "#!/bin/sh\n[ $1 = info ] && exit 0\necho 'access denied'\nexit 125\n"},
            StoreUnavailable, "access denied", "run --rm",
        ),
        ({"java": "", "mvn": _script("Unknown host")}, StoreUnavailable, "Unknown host", "proxy"),
        ({"neo4j": _script("no room left")}, StoreUnavailable, "no room left", "neo4j logs"),
    ],
    ids=[
        "nothing", "no Maven", "Java 11", "Java 8", "no Java", "no daemon, one that hangs",
        "no image", "no network", "an end at once",
    ],
)  # fmt: skip
async def test_what_is_missing_or_fails_is_said_and_nothing_is_left_behind(
    empty: Paths,
    tmp_path: Path,
    programs: dict[str, str],
    error: type[StoreError],
    message: str,
    hint: str,
) -> None:
    """In the words of the program that failed; nothing half fetched is taken for whole."""
    given = {name: text for name, text in programs.items() if text}
    has_java = given != programs
    environ = (with_java if has_java else only)(tmp_path / "bin", **given)
    with pytest.raises(error, match=message) as caught:
        await local(empty, environ).up(print)
    assert [word for word in hint.split() if word not in caught.value.hint] == []
    assert list(empty.neo4j_dir.glob("server-*")) == []
    assert not (await local(empty).status()).running


_MAVEN = """#!/bin/sh
echo '[INFO] Downloading from central: https://example.org/a.pom'
echo '[INFO] Downloaded from central: https://example.org/a.pom (842 B at 11 kB/s)'
echo '[INFO] Downloaded from central: https://example.org/a.jar (13 MB at 1.2 MB/s)'
/bin/sleep 0.3
echo '[INFO] Downloaded from central: https://example.org/b.jar (1.2 MB at 1.2 MB/s)'
echo '[ERROR] No space left on device'
exit 1
"""


async def test_how_much_is_fetched_is_told_meanwhile(
    empty: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Maven's own words, which are left out of what it says of its failure."""
    monkeypatch.setattr(ways, "TELL_EACH_S", 0.0)
    said: list[str] = []
    with pytest.raises(StoreUnavailable) as caught:
        await local(empty, with_java(tmp_path / "bin", mvn=_MAVEN)).up(said.append)
    assert said[-1] == "downloaded 3 files, 14 of about 140 MB…"
    assert str(caught.value) == (
        "Maven could not download Neo4j. Its last lines:\n  [ERROR] No space left on device"
    )


async def test_who_holds_the_server_is_told_and_not_waited_for_without_end(
    empty: Paths, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is to be started or stopped."""
    monkeypatch.setattr(neo4j_server, "WAIT_S", 0.2)
    layout.remember(Running("java", 1, 2))
    for work in (local(empty).up, local(empty).down):
        said: list[str] = []
        async with start_stop_lock(layout, print):
            with pytest.raises(StoreUnavailable, match=rf"Process {os.getpid()} did not") as caught:
                await work(said.append)
        assert said == [f"process {os.getpid()} is starting or stopping it; waiting…"]
        assert f"kill {os.getpid()}" in caught.value.hint


async def test_a_home_that_can_not_be_written(tmp_path: Path) -> None:
    """A file where the folder should be."""
    home = tmp_path / "home"
    find_paths({"RAGMEM_HOME": str(home)}).make()
    paths = find_paths({"RAGMEM_HOME": str(home)})
    paths.neo4j_dir.write_text("in the way")
    with pytest.raises(StoreRefused) as caught:
        await local(paths, only(tmp_path / "bin")).up(print)
    assert str(paths.neo4j_dir) in str(caught.value)
    assert paths.neo4j_dir.read_text() == "in the way"


def test_children_get_no_secrets() -> None:
    """What looks like a key stays out of the environment of every child."""
    given = {"PATH": "/bin", "HOME": "/h", "OPENAI_API_KEY": "k", "GH_TOKEN": "t"}
    given |= {"NEO4J_PASSWORD": "p", "AWS_SECRET_ACCESS_KEY": "s", "LANG": "C"}
    assert ways.without_secrets(given) == {"PATH": "/bin", "HOME": "/h", "LANG": "C"}


def test_the_settings_of_the_server(layout: Layout) -> None:
    """Loopback only, no usage reports, no log of statements."""
    layout.write_settings(Ports(4711, 4712))
    settings = (layout.settings / "neo4j.conf").read_text().splitlines()
    assert "server.bolt.listen_address=127.0.0.1:4711" in settings
    assert "server.http.listen_address=127.0.0.1:4712" in settings
    assert "server.http_enabled_modules=BROWSER" in settings
    assert "client.allow_telemetry=false" in settings
    assert "dbms.usage_report.enabled=false" in settings
    assert "db.logs.query.enabled=OFF" in settings
    assert not [line for line in settings if "0.0.0.0" in line]

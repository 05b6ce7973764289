"""The ways to run Neo4j here: in a container, as installed, or from Maven's jars.

Also the files under `Paths.neo4j_dir`, the server's settings, and detached processes that are
identified by their start time.
"""

import asyncio
import hashlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree

import msgspec

from ragmem.children import SECRET_NAME
from ragmem.errors import StoreRefused, StoreUnavailable
from ragmem.files import make_private, replace_private
from ragmem.text import counted

HEAP_MAX = "512m"
PAGE_CACHE = "64m"

# Loopback only; no telemetry; no query log, which would contain conversations.
_SETTINGS = {
    "server.default_listen_address": "127.0.0.1",
    "server.http.enabled": "true",
    "server.http_enabled_modules": "BROWSER",
    "server.https.enabled": "false",
    "server.memory.heap.initial_size": "64m",
    "server.memory.heap.max_size": HEAP_MAX,
    "server.memory.pagecache.size": PAGE_CACHE,
    "dbms.usage_report.enabled": "false",
    "client.allow_telemetry": "false",
    "db.logs.query.enabled": "OFF",
    "db.tx_log.preallocate": "false",
    "db.tx_log.rotation.retention_policy": "keep_none",
}


class Ports(msgspec.Struct, frozen=True):
    """The ports of a server on 127.0.0.1, kept across starts."""

    bolt: int
    http: int
    """Port of the Browser."""


class Running(msgspec.Struct, frozen=True):
    """The content of a record on disk: a server that was started, or only its ports."""

    way: str
    """`path`, `docker`, `podman` or `java`."""
    port: int
    """Port of Bolt."""
    http: int
    """Port of the Browser."""
    pid: int = 0
    started: str = ""
    """When the process started, see `started_at`."""
    container: str = ""

    @property
    def url(self) -> str:
        """Return the address that it listens on."""
        return f"bolt://127.0.0.1:{self.port}"


class Layout:
    """The directory of the local server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.logs = folder / "logs"
        self.settings = folder / "conf"
        self.log = self.logs / "neo4j.log"
        self.startup_log = self.logs / "startup.log"
        self.lock = folder / "lock"
        self._record = folder / "running.json"
        self._password = folder / "password"

    def make(self) -> None:
        """Create the directories, accessible to this user only."""
        try:
            make_private(self.folder)
            self.folder.chmod(0o700)
            for part in (self.data, self.logs, self.settings):
                part.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreRefused(
                f"The folder {self.folder} can't be used: {error.strerror or error}.",
                hint="Make it writable, or set RAGMEM_HOME to a folder that is.",
            ) from None

    def password(self) -> str:
        """Return the server's password, generated on the first call."""
        try:
            return self._password.read_text("utf-8").strip()
        except FileNotFoundError:
            replace_private(self._password, secrets.token_urlsafe(24).encode(), sync=True)
            return self._password.read_text("utf-8").strip()

    def running(self) -> Running | None:
        """Return the server's record; None if there is none, or it can't be read."""
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=Running)
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return None

    def remember(self, running: Running) -> None:
        """Record a server that was started."""
        replace_private(self._record, msgspec.json.encode(running), sync=True)

    def forget(self) -> None:
        """Reduce the record to the ports, for the next start."""
        if last := self.running():
            self.remember(Running(last.way, last.port, last.http))

    def write_settings(self, ports: Ports, more: Mapping[str, str] = MappingProxyType({})) -> None:
        """Write `neo4j.conf` for a server that listens on these ports."""
        settings = {
            **_SETTINGS,
            "server.bolt.listen_address": f"127.0.0.1:{ports.bolt}",
            "server.bolt.advertised_address": f"127.0.0.1:{ports.bolt}",
            "server.http.listen_address": f"127.0.0.1:{ports.http}",
            "server.http.advertised_address": f"127.0.0.1:{ports.http}",
            **more,
            "server.directories.data": str(self.data),
            "server.directories.logs": str(self.logs),
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        replace_private(self.settings / "neo4j.conf", "".join(lines).encode(), sync=True)

    def says_started(self) -> bool:
        """Whether the server's log says that it has started."""
        return self.log.exists() and "Started." in self.log.read_text("utf-8", "replace")

    def last_words(self) -> str:
        """Return the last lines that the server logged while it started."""
        logs = [log for log in (self.log, self.startup_log) if log.exists()]
        return "\n".join(_last_lines(log.read_text("utf-8", "replace")) for log in logs)


_POLL_S = 0.05
_SHOWN_LINES = 12


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what looks like a secret."""
    return {name: value for name, value in environ.items() if not SECRET_NAME.search(name)}


def start_detached(command: Sequence[str], environ: Mapping[str, str], log: Path) -> int:
    """Start a program in a session of its own, appending its output to `log`; return its pid."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    child.returncode = 0  # It outlives this process; if it is waited for at all, then by its pid.
    return child.pid


async def run(
    *command: str,
    environ: Mapping[str, str],
    secret: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
    heard: Callable[[bytes], None] = lambda _: None,
) -> tuple[int, str]:
    """Run a program to its end; return its exit status and output.

    The status is 124 after a timeout, and 126 if the program can't be run. `heard` is called with
    all output so far, each time that more arrives. The environment has no other secrets.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=without_secrets(environ) | dict(secret or {}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return 126, str(error)
    output = b""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(timeout_s):
            while more := await process.stdout.read(1 << 16):
                output += more
                heard(output)
            await process.wait()
    except TimeoutError:
        return 124, f"no answer within {timeout_s:.0f} seconds"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, output.decode("utf-8", "replace")


def _last_lines(text: str) -> str:
    return "\n".join(f"  {line[:300]}" for line in text.strip().splitlines()[-_SHOWN_LINES:])


def started_at(pid: int) -> str:
    """Return when the process with this pid started, in the system's terms; "" if there is none.

    Together with the pid this identifies a process for good, even across reboots.
    """
    # A child of this process remains a zombie until it is waited for.
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        # After the name, which may contain anything in parentheses; state is field 3, start 22.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return " ".join(found.stdout.split())
    except ProcessLookupError:
        return ""
    return "" if fields[0] in "ZX" else f"{boot}:{fields[19]}"


async def stop(pid: int, start: str, *, timeout_s: float) -> None:
    """Terminate exactly this process, by SIGTERM for `timeout_s`, then by SIGKILL, if it exists."""
    for number, patience_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, 10.0)):
        if started_at(pid) != start:
            return
        os.kill(pid, number)
        for _ in range(int(patience_s / _POLL_S)):
            if started_at(pid) != start:
                return
            await asyncio.sleep(_POLL_S)


IMAGE = "neo4j:5.26-community"
ENGINES = ("docker", "podman")
ANSWER_S = 3.0
"""Timeout for a container engine to answer, in seconds."""
FETCH_S = 1200.0
"""Timeout for fetching what is missing (an image, or jars), in seconds."""


class Container:
    """A container engine that runs the server."""

    def __init__(self, program: str, name: str, environ: Mapping[str, str]) -> None:
        self.name = name
        self._program = program
        self._environ = environ

    async def answers(self) -> bool:
        """Whether its daemon answers soon."""
        return (await self._run("info", timeout_s=ANSWER_S))[0] == 0

    async def prepare(self, layout: Layout, on_progress: Callable[[str], None]) -> None:
        """Remove our stopped container; the image is fetched when it is started."""
        await self._run("rm", container_name(layout))
        on_progress(f"starting Neo4j in {self.name} (its image, about 500 MB, is downloaded once)…")

    async def start(self, layout: Layout, ports: Ports) -> Running:
        """Start it; it is ready some seconds later."""
        code, words = await self._run(
            *self._start_arguments(layout, ports),
            # The arguments have only its name, as a password in arguments is public.
            secret={"NEO4J_AUTH": f"neo4j/{layout.password()}"},
            timeout_s=FETCH_S,
        )
        if code != 0:
            raise StoreUnavailable(
                f"{self.name} could not start Neo4j. Its last lines:\n" + _last_lines(words),
                hint=f"See whether `{self.name} run --rm {IMAGE} --version` works.",
            )
        name = container_name(layout)
        return Running(self.name, ports.bolt, http=ports.http, container=name)

    def _start_arguments(self, layout: Layout, ports: Ports) -> list[str]:
        """Return the arguments of `run`, without secrets."""
        user = ["--user", f"{os.getuid()}:{os.getgid()}"]
        return [
            "run",
            "--detach",
            *("--name", container_name(layout)),
            *("--publish", f"127.0.0.1:{ports.bolt}:7687"),
            *("--publish", f"127.0.0.1:{ports.http}:7474"),
            *("--volume", f"{layout.data}:/data"),
            *("--volume", f"{layout.logs}:/logs"),
            *(["--userns", "keep-id", *user] if self.name == "podman" else user),
            *("--env", "NEO4J_AUTH"),
            *("--env", f"NEO4J_server_memory_heap_max__size={HEAP_MAX}"),
            *("--env", f"NEO4J_server_memory_pagecache_size={PAGE_CACHE}"),
            *("--env", "NEO4J_dbms_usage__report_enabled=false"),
            *("--env", "NEO4J_db_logs_query_enabled=OFF"),
            *("--env", f"NEO4J_server_bolt_advertised__address=127.0.0.1:{ports.bolt}"),
            *("--env", "NEO4J_client_allow__telemetry=false"),
            IMAGE,
        ]

    async def runs(self, container: str) -> bool:
        """Whether this container is running."""
        code, words = await self._run("inspect", "--format", "{{.State.Running}}", container)
        return code == 0 and words.strip() == "true"

    async def stop(self, container: str, *, timeout_s: float) -> None:
        """Stop and remove the container; its data stays."""
        await self._run("stop", "--time", f"{timeout_s:.0f}", container, timeout_s=timeout_s + 30)
        await self._run("rm", container)

    async def _run(
        self, *arguments: str, secret: Mapping[str, str] | None = None, timeout_s: float = 30.0
    ) -> tuple[int, str]:
        environ = self._environ
        return await run(
            self._program, *arguments, environ=environ, secret=secret, timeout_s=timeout_s
        )


async def find_engine(environ: Mapping[str, str]) -> Container | None:
    """Return the first engine whose daemon answers."""
    for name in ENGINES:
        if (engine := engine_named(name, environ)) and await engine.answers():
            return engine
    return None


def engine_named(name: str, environ: Mapping[str, str]) -> Container | None:
    """Return the engine, if it is installed."""
    program = shutil.which(name, path=environ.get("PATH"))
    return Container(program, name, environ) if program else None


def container_name(layout: Layout) -> str:
    """Return a name per directory, so that two homes have two servers."""
    return f"ragmem-neo4j-{hashlib.sha256(str(layout.folder).encode()).hexdigest()[:12]}"


POM = Path(__file__).with_name("pom.xml")
OLDEST_JAVA = 17
# Internal to this version, hence not in `_SETTINGS`: a stop takes 0.5 s instead of 10 s.
_QUICK_STOP = {"internal.dbms.bolt.netty_server_shutdown_quiet_period": "0"}
_OPEN_PACKAGES = ("java.nio", "java.io", "sun.nio.ch", "java.util.concurrent")


class Installed:
    """The `neo4j` on PATH, run with settings and data of our own."""

    name = "path"

    def __init__(self, program: str, environ: Mapping[str, str]) -> None:
        self._program = program
        self._environ = environ

    async def prepare(self, layout: Layout, on_progress: Callable[[str], None]) -> None:
        """Do nothing: there is nothing to fetch."""
        on_progress(f"using {self._program}")

    async def start(self, layout: Layout, ports: Ports) -> Running:
        """Start it; it is ready some seconds later."""
        layout.write_settings(ports)
        environ = without_secrets(self._environ) | {"NEO4J_CONF": str(layout.settings)}
        pid = start_detached([self._program, "console"], environ, layout.startup_log)
        return Running(self.name, ports.bolt, http=ports.http, pid=pid, started=started_at(pid))


TELL_EACH_S = 5.0
_JARS_MB = 140
_FETCHED = re.compile(rb"Downloaded from \S+ \S+ \(([\d.]+) ([kM]?)B")
_INFO_LINES = re.compile(r"^\[INFO\].*\n?", re.MULTILINE)


def _fetch_reporter(on_progress: Callable[[str], None]) -> Callable[[bytes], None]:
    """Return a callback that reports every few seconds how much Maven's output says it fetched."""
    due = time.monotonic() + TELL_EACH_S

    def heard(printed: bytes) -> None:
        nonlocal due
        sizes = _FETCHED.findall(printed) if time.monotonic() >= due else []
        if sizes:
            due = time.monotonic() + TELL_EACH_S
            megabytes = sum(float(size) / {b"": 1e6, b"k": 1e3, b"M": 1}[of] for size, of in sizes)
            files = counted(len(sizes), "file")
            on_progress(f"downloaded {files}, {megabytes:.0f} of about {_JARS_MB} MB…")

    return heard


class Jars:
    """Neo4j's jars, run with Java."""

    name = "java"

    def __init__(self, java: str, environ: Mapping[str, str]) -> None:
        self._java = java
        self._environ = environ
        self.version = server_version()

    async def prepare(self, layout: Layout, on_progress: Callable[[str], None]) -> None:
        """Fetch the jars unless they exist."""
        jars = self._jars(layout)
        if jars.exists():
            return
        maven = shutil.which("mvn", path=self._environ.get("PATH"))
        if maven is None:
            raise StoreRefused("Maven (`mvn`) is not installed.", hint=WHAT_TO_INSTALL)
        short = ".".join(self.version.split(".")[:2])
        on_progress(f"downloading Neo4j {short} (about {_JARS_MB} MB, once)…")
        partial = layout.folder / "fetching"
        shutil.rmtree(partial, ignore_errors=True)
        # Maven may write next to its pom, and ours is among the installed files.
        pom = layout.folder / "pom.xml"
        shutil.copyfile(POM, pom)
        code, words = await run(
            *(maven, "-B", "-f", str(pom), "dependency:copy-dependencies"),
            f"-DoutputDirectory={partial}",
            environ=self._environ,
            timeout_s=FETCH_S,
            heard=_fetch_reporter(on_progress),
        )
        if code != 0 or not any(partial.glob("*.jar")):
            words = _last_lines(_INFO_LINES.sub("", words))
            raise StoreUnavailable(
                f"Maven could not download Neo4j. Its last lines:\n{words}",
                hint="Check the network, and Maven's own settings (~/.m2/settings.xml) for a "
                "proxy or mirror; then run `ragmem neo4j up` again.",
            )
        for old in layout.folder.glob("server-*"):
            shutil.rmtree(old, ignore_errors=True)
        jars.parent.mkdir()
        partial.rename(jars)

    async def start(self, layout: Layout, ports: Ports) -> Running:
        """Start it; it is ready some seconds later."""
        layout.write_settings(ports, _QUICK_STOP)
        command = [
            self._java,
            "-cp",
            f"{self._jars(layout)}/*",
            "-Xms64m",
            f"-Xmx{HEAP_MAX}",
            # Half the CPU time of a start, 170 MB less, and as fast for one user's memory.
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
            "-Dfile.encoding=UTF-8",
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPEN_PACKAGES),
            "org.neo4j.server.CommunityEntryPoint",
            f"--home-dir={layout.folder}",
            f"--config-dir={layout.settings}",
        ]
        pid = start_detached(command, without_secrets(self._environ), layout.startup_log)
        return Running(self.name, ports.bolt, http=ports.http, pid=pid, started=started_at(pid))

    def _jars(self, layout: Layout) -> Path:
        return layout.folder / f"server-{self.version}" / "lib"


WHAT_TO_INSTALL = (
    "Install one of these: Neo4j 5.26 or newer, with `neo4j` on PATH; docker or podman, running; "
    f"Java {OLDEST_JAVA} or newer with Maven (`java` and `mvn` on PATH). "
    "Or name a server in NEO4J_URI."
)


def find_java(environ: Mapping[str, str]) -> str | None:
    """Return JAVA_HOME's java, else the one on PATH."""
    home = environ.get("JAVA_HOME")
    if home and os.access(java := str(Path(home) / "bin" / "java"), os.X_OK):
        return java
    return shutil.which("java", path=environ.get("PATH"))


async def java_version(java: str, environ: Mapping[str, str]) -> int:
    """Return the major version, such as 17; 0 if it can't be told."""
    _, words = await run(java, "-version", environ=environ)
    # 1.8.0 is the old notation for 8.
    found = re.search(r'version "(?:1\.)?(\d+)', words)
    return int(found[1]) if found else 0


def server_version() -> str:
    """Return the Neo4j version in the pom."""
    version = ElementTree.parse(POM).findtext("properties/neo4j.version")
    assert version is not None, "pom.xml names the version"
    return version

"""What lies where under `Paths.neo4j_dir`, and the server's own settings."""

import asyncio
import os
import secrets
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from ragmem.errors import StoreRefused
from ragmem.files import replace_private

HEAP_MAX = "512m"
PAGE_CACHE = "64m"

# Loopback only; nothing reported; no log of statements, which would hold conversations.
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
    """Where a server listens on 127.0.0.1: kept from one start to the next."""

    bolt: int
    http: int
    """The Browser's."""


class Running(msgspec.Struct, frozen=True):
    """A server that was started: the content of its record on disk."""

    way: str
    """`path`, `docker`, `podman` or `java`."""
    port: int
    """Bolt's."""
    http: int = 0
    """The Browser's; 0 for a server that was started without."""
    pid: int = 0
    started: str = ""
    """Of the process, see `process.started_at`."""
    container: str = ""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"bolt://127.0.0.1:{self.port}"

    @property
    def browser(self) -> str:
        """Where a person opens the Browser; empty without."""
        return f"http://127.0.0.1:{self.http}/browser/" if self.http else ""


class Layout:
    """The folder of the local server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.logs = folder / "logs"
        self.settings = folder / "conf"
        self.log = self.logs / "neo4j.log"
        self.startup_log = self.logs / "startup.log"
        self.lock = folder / "lock"
        self._record = folder / "running.json"
        self._ports = folder / "ports.json"
        self._password = folder / "password"

    def make(self) -> None:
        """Create the folders, for this user alone."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            for part in (self.data, self.logs, self.settings):
                part.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreRefused(
                f"The folder {self.folder} can't be used: {error.strerror or error}.",
                hint="Make it writable, or set RAGMEM_HOME to a folder that is.",
            ) from None

    def password(self) -> str:
        """The server's password, made at the first call."""
        try:
            return self._password.read_text("utf-8").strip()
        except FileNotFoundError:
            replace_private(self._password, secrets.token_urlsafe(24).encode(), sync=True)
            return self._password.read_text("utf-8").strip()

    def running(self) -> Running | None:
        """The server's record; None when there is none, or none that can be read."""
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=Running)
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return None

    def remember(self, running: Running) -> None:
        """Record a server that was started."""
        replace_private(self._record, msgspec.json.encode(running), sync=True)

    def forget(self) -> None:
        """Remove the record."""
        self._record.unlink(missing_ok=True)

    def ports(self) -> Ports | None:
        """Those of the last start; None when there was none, or none that can be read."""
        try:
            return msgspec.json.decode(self._ports.read_bytes(), type=Ports)
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return None

    def keep_ports(self, ports: Ports) -> None:
        """Record them for the next start."""
        replace_private(self._ports, msgspec.json.encode(ports), sync=True)

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
        """Whether the server has written that it is up."""
        return self.log.exists() and "Started." in self.log.read_text("utf-8", "replace")

    def last_words(self, count: int = 12) -> str:
        """The last lines that the server wrote while it started."""
        lines: list[str] = []
        for log in (self.log, self.startup_log):
            if log.exists():
                lines += log.read_text("utf-8", "replace").splitlines()[-count:]
        return "\n".join(f"  {line[:300]}" for line in lines)


# Names that look like this stay out of a child's environment.
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH")
_LOOK_AGAIN_S = 0.05


def harmless(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what looks like a secret."""
    return {
        name: value
        for name, value in environ.items()
        if not any(mark in name.upper() for mark in _SECRET)
    }


def start_detached(command: Sequence[str], environ: Mapping[str, str], log: Path) -> int:
    """Start a program in a session of its own, its output appended to `log`; its process id."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    silence = os.open(os.devnull, os.O_RDONLY)
    try:
        return os.posix_spawnp(
            command[0],
            list(command),
            dict(environ),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, silence, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(output)
        os.close(silence)


def started_at(pid: int) -> str:
    """When the process with this id began, in the system's own terms; "" when there is none.

    Together with the id it names one process for ever, across restarts of the machine.
    """
    _reap(pid)
    try:
        # After the name, which may hold anything in its parentheses: state is field 3, start 22.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
        return _started_at_by_ps(pid)
    except ProcessLookupError:
        return ""
    return "" if fields[0] in "ZX" else f"{boot}:{fields[19]}"


async def stop(pid: int, start: str, *, timeout_s: float) -> None:
    """End exactly this process, politely for `timeout_s`, then by force; none of that is fine."""
    for number, patience_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, 10.0)):
        if started_at(pid) != start:
            return
        os.kill(pid, number)
        for _ in range(int(patience_s / _LOOK_AGAIN_S)):
            if started_at(pid) != start:
                return
            await asyncio.sleep(_LOOK_AGAIN_S)


def _reap(pid: int) -> None:
    # A child of this very process stays as a zombie until it is waited for.
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _started_at_by_ps(pid: int) -> str:
    found = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return " ".join(found.stdout.split())

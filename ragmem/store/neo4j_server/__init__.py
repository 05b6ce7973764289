"""A local Neo4j server in one command: found, started, stopped; shared by the user's processes.

`ways.py` has the ways to run one; `pom.xml` lists what Maven fetches.

Everything lies under `Paths.neo4j_dir`. The server listens only on 127.0.0.1, on two free ports
(Bolt's and the Browser's) that it keeps across starts, with a random password in a file of mode
0600.
"""

import asyncio
import os
import shlex
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ragmem.config import Config, Paths
from ragmem.errors import StoreError, StoreRefused, StoreUnavailable
from ragmem.files import take
from ragmem.store.neo4j.gateway import Connection, driver_of, within
from ragmem.store.neo4j_server import ways
from ragmem.store.neo4j_server.ways import Container, Installed, Jars, Layout, Ports, Running

__all__ = ["LocalNeo4j", "ServerStatus"]


USERNAME = "neo4j"
_FIRST_PASSWORD = "neo4j"
READY_S = 120.0
"""Timeout for a server to be ready, in seconds; 5 to 20 are usual."""
SIGN_IN_S = 120.0
"""Timeout for the first sign-in after that, in seconds: seldom more than 2, but a busy machine may
take 30 to plan its first statement."""
STOP_S = 60.0
"""Timeout for a clean stop, in seconds."""
WAIT_S = 600.0
"""Timeout for another process to start or stop the server, in seconds."""
_PORTS_TRIED = 3

Progress = Callable[[str], None]
Way = Container | Installed | Jars
"""The ways in which a server can run on this machine."""


class ServerStatus(msgspec.Struct, frozen=True):
    """What `ragmem neo4j up` and `status` show."""

    running: bool
    way: str = ""
    """`configured`, `path`, `docker`, `podman` or `java`; empty if there is none."""
    url: str = ""
    pid: int = 0
    detail: str = ""
    """One sentence for the user."""
    browser: str = ""
    """URL of the Browser; empty if unknown."""
    username: str = ""
    cypher_shell: str = ""
    """A command line that opens cypher-shell."""


class LocalNeo4j:
    """The server of a home directory, or the one that NEO4J_URI or `store.url` names instead."""

    def __init__(self, paths: Paths, config: Config, environ: Mapping[str, str]) -> None:
        self._paths = paths
        self._environ = environ
        self._layout = Layout(paths.neo4j_dir)
        self._configured = config.store.url or environ.get("NEO4J_URI") or ""
        self._database = config.store.database or environ.get("NEO4J_DATABASE") or None

    @property
    def log(self) -> Path:
        """Return the local server's log file."""
        return self._layout.log

    async def up(self, on_progress: Progress) -> ServerStatus:
        """Make sure that a server runs; starts none if one is configured or already running.

        Raises StoreRefused if this machine has no way to run one, StoreUnavailable if it could not
        be fetched or did not start.
        """
        if url := self._configured:
            on_progress(f"NEO4J_URI or store.url is set to {url}: nothing is started.")
            return await self.status()
        layout, environ = self._layout, self._environ
        self._paths.make()
        layout.make()
        async with start_stop_lock(layout, on_progress):
            running = layout.running()
            if running and await _is_alive(running, environ):
                # The process that started it may have been killed before it was ready.
                await _ready(running, layout, environ)
                return self._status_of(running)
            layout.forget()
            way = await _choose(environ)
            await way.prepare(layout, on_progress)
            return self._status_of(await start(way, layout, environ, on_progress))

    async def down(self, on_progress: Progress = lambda _: None) -> bool:
        """Stop the server that `up` started, cleanly; return False if none was running."""
        layout = self._layout
        if layout.running() is None:
            return False
        async with start_stop_lock(layout, on_progress):
            running = layout.running()
            lives = running is not None and await _is_alive(running, self._environ)
            if running:
                await _stop(running, self._environ)
            layout.forget()
            return lives

    async def status(self) -> ServerStatus:
        """Return whether a server is running, and which; starts nothing."""
        if url := self._configured:
            answers = await asyncio.to_thread(_accepts, url)
            user = self._environ.get("NEO4J_USERNAME") or USERNAME
            return ServerStatus(
                running=answers,
                way="configured",
                url=url,
                username=user,
                cypher_shell=self._shell_line("cypher-shell", url, user),
                detail=f"{url} is configured and "
                + ("answers." if answers else "does not answer."),
            )
        running = self._layout.running()
        if running and await _is_alive(running, self._environ):
            return self._status_of(running)
        return ServerStatus(
            running=False, detail="No local Neo4j is running; `ragmem neo4j up` starts one."
        )

    def password(self) -> str:
        """Return the local server's password; StoreRefused if there is no local server."""
        if url := self._configured:
            raise StoreRefused(
                f"{url} is configured: ragmem does not keep its password.",
                hint="It is read from NEO4J_PASSWORD.",
            )
        if not self._paths.neo4j_password:
            raise StoreRefused(
                "No local Neo4j has been started yet.", hint="`ragmem neo4j up` starts one."
            )
        return self._paths.neo4j_password

    def connection(self) -> Connection:
        """Return how to connect to the configured server, or else the local one.

        Raises StoreUnavailable if the local one is not running, StoreRefused if there is neither.
        """
        environ = self._environ
        if url := self._configured:
            return Connection(
                url=url,
                username=environ.get("NEO4J_USERNAME") or USERNAME,
                password=environ.get("NEO4J_PASSWORD", "").rstrip("\r\n"),
                database=self._database,
            ).check()
        running = self._layout.running()
        if running and (running.container or _process_is_alive(running)):
            password = self._layout.password()
            return Connection(
                url=running.url, password=password, database=self._database, is_local=True
            )
        if self._paths.neo4j_password:
            raise StoreUnavailable(
                "The local Neo4j is not running.", hint="`ragmem neo4j up` starts it."
            )
        raise StoreRefused(
            "No Neo4j server is configured, and no local one is running.",
            hint="`ragmem neo4j up` starts one here; NEO4J_URI names one elsewhere.",
        )

    def _status_of(self, running: Running) -> ServerStatus:
        # The command line has the command that prints the password, not the password itself.
        program, url = "cypher-shell", running.url
        if running.container:
            program = f"{running.way} exec -it -e NEO4J_PASSWORD {running.container} cypher-shell"
            url = "bolt://127.0.0.1:7687"
        line = self._shell_line(program, url, USERNAME)
        return ServerStatus(
            running=True,
            way=running.way,
            url=running.url,
            pid=running.pid,
            detail=f"A local Neo4j is running at {running.url} (by {running.way}).",
            browser=f"http://127.0.0.1:{running.http}/browser/",
            username=USERNAME,
            cypher_shell=f'NEO4J_PASSWORD="$(ragmem neo4j password)" {line}',
        )

    def _shell_line(self, program: str, url: str, user: str) -> str:
        given = {"-a": url, "-u": user} | ({"-d": self._database} if self._database else {})
        return " ".join([program, *(f"{flag} {shlex.quote(it)}" for flag, it in given.items())])


def _accepts(url: str) -> bool:
    """Whether something accepts connections at the URL."""
    try:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname or "", parts.port or 7687), timeout=2):
            return True
    except (OSError, ValueError):
        return False


@asynccontextmanager
async def start_stop_lock(layout: Layout, on_progress: Progress) -> AsyncIterator[None]:
    """Hold a lock for starting or stopping the server; the kernel frees it when a process dies.

    The lock file has its holder's pid. Raises StoreUnavailable if that one does not finish.
    """
    loop = asyncio.get_running_loop()
    began, said = loop.time(), False
    while not take(layout.lock, handle := os.open(layout.lock, os.O_RDWR | os.O_CREAT, 0o600)):
        await asyncio.sleep(0.1)  # By then the other process has written its id.
        other = layout.lock.read_text("utf-8", "replace")
        if not said:
            on_progress(f"process {other} is starting or stopping it; waiting…")
            said = True
        if loop.time() - began > WAIT_S:
            raise StoreUnavailable(
                f"Process {other} did not finish starting or stopping the local Neo4j within "
                f"{WAIT_S:g} s.",
                hint=f"See what it is doing, or stop it (`kill {other}`), and run this again.",
            )
    try:
        with suppress(OSError):  # a full disk must not prevent stopping a server
            os.truncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


async def _is_alive(running: Running, environ: Mapping[str, str]) -> bool:
    if running.container:
        engine = ways.engine_named(running.way, environ)
        return engine is not None and await engine.runs(running.container)
    return _process_is_alive(running)


def _process_is_alive(running: Running) -> bool:
    return bool(running.started) and ways.started_at(running.pid) == running.started


async def _stop(running: Running, environ: Mapping[str, str]) -> None:
    if running.container:
        if engine := ways.engine_named(running.way, environ):
            await engine.stop(running.container, timeout_s=STOP_S)
    elif running.started:
        await ways.stop(running.pid, running.started, timeout_s=STOP_S)


async def _choose(environ: Mapping[str, str]) -> Way:
    """Return the first way that works on this machine."""
    if installed := shutil.which("neo4j", path=environ.get("PATH")):
        return Installed(installed, environ)
    if engine := await ways.find_engine(environ):
        return engine
    program = ways.find_java(environ)
    if program is None:
        raise StoreRefused("Nothing here can run Neo4j.", hint=ways.WHAT_TO_INSTALL)
    version = await ways.java_version(program, environ)
    if version < ways.OLDEST_JAVA:
        raise StoreRefused(
            f"{program} is Java {version or 'of an unknown version'}; "
            f"Neo4j needs {ways.OLDEST_JAVA} or newer.",
            hint=ways.WHAT_TO_INSTALL,
        )
    return Jars(program, environ)


async def start(
    way: Way, layout: Layout, environ: Mapping[str, str], on_progress: Progress
) -> Running:
    """Start a server and wait until it accepts its password."""
    on_progress("starting Neo4j…")
    ports = _choose_ports(layout, on_progress)
    for _ in range(_PORTS_TRIED):
        layout.startup_log.unlink(missing_ok=True)
        layout.log.unlink(missing_ok=True)
        running = await way.start(layout, ports)
        layout.remember(running)
        try:
            await _ready(running, layout, environ)
        except BaseException as error:
            await _stop(running, environ)
            layout.forget()
            # Somebody took the port after it was found free: use another one.
            if isinstance(error, StoreError) and "already in use" in layout.last_words():
                ports = Ports(free_port(), free_port())
                on_progress(f"a port was taken meanwhile; trying {ports.bolt} and {ports.http}")
                continue
            raise
        return running
    raise StoreUnavailable(
        f"Neo4j found its port taken {_PORTS_TRIED} times.",
        hint="Try again; if it lasts, see `ragmem neo4j logs`.",
    )


async def _ready(running: Running, layout: Layout, environ: Mapping[str, str]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_S
    # By its log, not its port: that may be another program's, which would get the password.
    while not layout.says_started():
        lives = await _is_alive(running, environ)
        if not lives or loop.time() > deadline:
            why = (
                f"was not ready within {READY_S:.0f} seconds" if lives else "exited while starting"
            )
            raise StoreUnavailable(
                f"Neo4j {why}. Its last lines:\n{layout.last_words()}",
                hint="`ragmem neo4j logs` shows the rest.",
            )
        await asyncio.sleep(0.1)
    await sign_in(running.url, layout.password())


async def sign_in(url: str, given: str) -> None:
    """Wait until the server accepts this password; set it on a fresh server."""
    from neo4j.exceptions import AuthError, DriverError, Neo4jError

    async def ask(password: str, statement: str, database: str | None = None) -> None:
        parameters = {"old": _FIRST_PASSWORD, "new": given}
        async with driver_of(Connection(url, password=password), SIGN_IN_S) as driver:
            await driver.execute_query(statement, parameters, database_=database)

    async def until_it_answers() -> None:
        while True:
            try:
                return await ask(given, "RETURN 1")
            except AuthError:
                statement = "ALTER CURRENT USER SET PASSWORD FROM $old TO $new"
                await ask(_FIRST_PASSWORD, statement, "system")
            except (DriverError, Neo4jError) as error:
                if not error.is_retryable():
                    raise
                await asyncio.sleep(0.2)

    try:
        await within(SIGN_IN_S, until_it_answers())
    except TimeoutError:
        raise StoreUnavailable(f"Neo4j at {url} listens, but does not answer.") from None
    except AuthError:
        raise StoreRefused(
            "The local Neo4j has a different password from the one that ragmem keeps for it.",
            hint="Its data was created by something else: move the folder `neo4j` out of ragmem's "
            "data folder, then run `ragmem neo4j up` again.",
        ) from None
    except (DriverError, Neo4jError) as error:
        raise StoreUnavailable(
            f"Neo4j at {url} did not accept the first sign-in: {error}"
        ) from None


def _choose_ports(layout: Layout, on_progress: Progress) -> Ports:
    """Return the ports of the last start if they are free, so that addresses stay valid."""
    last = layout.running()
    if last is None:
        return Ports(free_port(), free_port())

    def chosen(port: int, of: str) -> int:
        if _is_free(port):
            return port
        # Clients that were given the old address need the new one.
        other = free_port()
        on_progress(
            f"the port {port} ({of}) is taken by another program; using {other} from now on"
        )
        return other

    return Ports(chosen(last.port, "Bolt"), chosen(last.http, "the Browser"))


def _is_free(port: int) -> bool:
    """Whether a server can listen there; connections in TIME_WAIT don't matter."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

"""A local Neo4j in one command: found, started, stopped; one for all processes of this user.

`ways.py` has how one can run here; `pom.xml` says what Maven fetches.

Everything lies under `Paths.neo4j_dir`. It listens on 127.0.0.1 alone, on two free
ports that it keeps from one start to the next (Bolt's, and the Browser's), with a random
password that is kept in a file of mode 0600.
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
"""How long a server may take to be ready, in seconds; 5 to 20 are usual."""
SIGN_IN_S = 120.0
"""How long the first sign-in may take after that, in seconds: seldom more than 2, but a busy
machine may take 30 to plan a first statement."""
STOP_S = 60.0
"""How long it may take for a clean stop, in seconds."""
WAIT_S = 600.0
"""How long another process may take to start or stop it, in seconds."""
_PORTS_TRIED = 3

Progress = Callable[[str], None]
Way = Container | Installed | Jars
"""How a server can run on this machine."""


class ServerStatus(msgspec.Struct, frozen=True):
    """What `ragmem neo4j up` and `status` tell."""

    running: bool
    way: str = ""
    """`configured`, `path`, `docker`, `podman` or `java`; empty when nothing is there."""
    url: str = ""
    pid: int = 0
    detail: str = ""
    """One sentence for the person."""
    browser: str = ""
    """Where to open the Browser; empty where that is not known."""
    username: str = ""
    cypher_shell: str = ""
    """A line that opens cypher-shell."""


class LocalNeo4j:
    """The server of a home; or the one that NEO4J_URI or `store.url` names in its place."""

    def __init__(self, paths: Paths, config: Config, environ: Mapping[str, str]) -> None:
        self._paths = paths
        self._environ = environ
        self._layout = Layout(paths.neo4j_dir)
        self._configured = config.store.url or environ.get("NEO4J_URI") or ""
        self._database = config.store.database or environ.get("NEO4J_DATABASE") or None

    @property
    def log(self) -> Path:
        """Return the file of the local server's log."""
        return self._layout.log

    async def up(self, on_progress: Progress) -> ServerStatus:
        """Have a server running; nothing is started when one is configured or runs already.

        StoreRefused when this machine has no way to run one, StoreUnavailable when
        it could not be fetched or did not come up.
        """
        if url := self._configured:
            on_progress(f"NEO4J_URI or store.url is set to {url}: nothing is started.")
            return await self.status()
        layout, environ = self._layout, self._environ
        self._paths.make()
        layout.make()
        async with alone(layout, on_progress):
            running = layout.running()
            if running and await _lives(running, environ):
                # Who started it may have been killed before it was ready.
                await _ready(running, layout, environ)
                return self._told_of(running)
            layout.forget()
            way = await _choose(environ)
            await way.prepare(layout, on_progress)
            return self._told_of(await start(way, layout, environ, on_progress))

    async def down(self, on_progress: Progress = lambda _: None) -> bool:
        """Stop the server that `up` started, cleanly; False when none runs."""
        layout = self._layout
        if layout.running() is None:
            return False
        async with alone(layout, on_progress):
            running = layout.running()
            lives = running is not None and await _lives(running, self._environ)
            if running:
                await _stop(running, self._environ)
            layout.forget()
            return lives

    async def status(self) -> ServerStatus:
        """Whether a server runs, and which; starts nothing."""
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
        if running and await _lives(running, self._environ):
            return self._told_of(running)
        return ServerStatus(
            running=False, detail="No local Neo4j is running; `ragmem neo4j up` starts one."
        )

    def password(self) -> str:
        """Return the local server's; StoreRefused where another is configured or none started."""
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
        """Return how to reach the configured server, else the local one.

        StoreUnavailable when that is not running, StoreRefused when there is neither.
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
        if running and (running.container or _lives_as_process(running)):
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

    def _told_of(self, running: Running) -> ServerStatus:
        # In the line for a shell the password is named by the command that prints it.
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
    """Whether something accepts connections there."""
    try:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname or "", parts.port or 7687), timeout=2):
            return True
    except (OSError, ValueError):
        return False


@asynccontextmanager
async def alone(layout: Layout, on_progress: Progress) -> AsyncIterator[None]:
    """Let one process at a time start or stop the server; the kernel frees the lock at death.

    Who has it stands in it. StoreUnavailable where that one does not come to an end.
    """
    loop = asyncio.get_running_loop()
    began, said = loop.time(), False
    while not take(layout.lock, handle := os.open(layout.lock, os.O_RDWR | os.O_CREAT, 0o600)):
        await asyncio.sleep(0.1)  # Meanwhile it has written who it is.
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
        with suppress(OSError):  # A full disk keeps nobody from stopping a server.
            os.truncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


async def _lives(running: Running, environ: Mapping[str, str]) -> bool:
    if running.container:
        engine = ways.engine_named(running.way, environ)
        return engine is not None and await engine.runs(running.container)
    return _lives_as_process(running)


def _lives_as_process(running: Running) -> bool:
    return bool(running.started) and ways.started_at(running.pid) == running.started


async def _stop(running: Running, environ: Mapping[str, str]) -> None:
    if running.container:
        if engine := ways.engine_named(running.way, environ):
            await engine.stop(running.container, timeout_s=STOP_S)
    elif running.started:
        await ways.stop(running.pid, running.started, timeout_s=STOP_S)


async def _choose(environ: Mapping[str, str]) -> Way:
    """The first way that works here."""
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
    """Start a server and wait until it answers to its password."""
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
            # Someone took the port after we had found it free: another one then.
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
    # By its own log, not by its port: that may be another's, who would be told the password.
    while not layout.says_started():
        lives = await _lives(running, environ)
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
    """Wait until the server takes this password and answers; set it on a fresh one."""
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
    """Those of the last start, so that what knows an address finds it again; else free ones."""
    last = layout.running()
    if last is None:
        return Ports(free_port(), free_port())

    def chosen(port: int, of: str) -> int:
        if _is_free(port):
            return port
        # What was told the old address has to be told the new one.
        other = free_port()
        on_progress(
            f"the port {port} ({of}) is taken by another program; using {other} from now on"
        )
        return other

    return Ports(chosen(last.port, "Bolt"), chosen(last.http, "the Browser"))


def _is_free(port: int) -> bool:
    """Whether a server can listen there, connections that have ended beside it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

"""The only module that talks to the Neo4j driver.

Write transactions are the driver's managed ones, run once each. Retries happen here, in one loop
with one deadline, so that a commit whose answer was lost (`IncompleteCommit`, which the driver does
not retry) is run again too. That is safe because every statement is idempotent. A statement that
reads is a transaction of its own, which the server begins and ends: one around several would cost a
round trip and still not show them the same graph, as each sees what was committed by then.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import MsgspecError

from ragmem.errors import StoreError, StoreRefused, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.ids import short_id
from ragmem.records import utc_now
from ragmem.store import stored

if TYPE_CHECKING:
    from neo4j import AsyncDriver, AsyncManagedTransaction, AsyncSession


_SCHEMES = ("bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc")


class Connection(msgspec.Struct, frozen=True):
    """One database of one server; its repr never contains the password."""

    url: str
    username: str = "neo4j"
    password: str = ""
    database: str | None = None
    """None: the user's home database."""
    is_local: bool = False
    """Whether `ragmem neo4j up` started it."""

    def __repr__(self) -> str:
        """Like that of any struct, with the password hidden."""
        return (
            f"Connection(url={self.location!r}, username={self.username!r}, "
            f"password='…', database={self.database!r})"
        )

    @property
    def location(self) -> str:
        """The URL without credentials, for messages."""
        scheme, mark, rest = self.url.partition("://")
        return f"{scheme}{mark}{rest.rpartition('@')[2]}"

    def check(self) -> "Connection":
        """Return itself; StoreRefused if no memory can be kept there."""
        try:
            parts = urlsplit(self.url)
            host = (parts.hostname or "").encode("idna")
            usable = parts.scheme in _SCHEMES and host != b"" and parts.port != 0
            usable = usable and self.url.isprintable()
        except ValueError:  # also raised for a host name that can't be encoded
            usable = False
        if not usable:
            raise StoreRefused(
                f"{self.location!r} is not an address of a Neo4j server.",
                hint="Examples: bolt://localhost:7687, neo4j+s://name.example.org.",
            )
        if parts.username or parts.password:
            raise StoreRefused(
                f"The address of Neo4j at {self.location} contains a user name or password.",
                hint="Remove them from it, and set NEO4J_USERNAME and NEO4J_PASSWORD.",
            )
        if self.database == "system":
            raise StoreRefused(
                f"The database 'system' of Neo4j at {self.location} can't store data.",
                hint="Set store.database or NEO4J_DATABASE to another one, or leave them unset.",
            )
        return self


def was_utc(at: datetime) -> datetime:
    """Return a time from the graph in UTC; one without a zone, which others wrote, is UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def to_text(at: datetime) -> str:
    """Format a time for statements where the driver's own conversion would be too slow."""
    return at.astimezone(UTC).isoformat()


def from_text(text: str) -> datetime:
    """Parse a time as `toString` formats it: with the name of its zone, if it has one."""
    return was_utc(datetime.fromisoformat(text.partition("[")[0]))


_FOLDER = Path(__file__).parent


_MOST_CHARS = 16 << 20
"""Maximum size of one text read: an older version's turn may have any length."""
_LONG = {
    "t": ("userMessage", "assistantMessage", "reasoning"),
    "c": ("toolArgs", "toolResult", "error", "preamble"),
}
"""Properties of turns `t` and tool calls `c` that may be long."""


_MACRO = re.compile(r"\b(bounded|last_seen|leased)\(((?:[^()]|\([^()]*\))*)\)")


def _expanded(macro: re.Match[str]) -> str:
    name, given = macro.groups()
    if name == "leased":
        return f"EXISTS {{ MATCH (l:Lease {{key: {given}}}) WHERE l.until > datetime.realtime() }}"
    if name == "last_seen":
        return (
            f"reduce(last = {given}.turnCount, fork IN nodes(path)[0..-1] | "
            "CASE WHEN fork.forkedAtIndex < last THEN fork.forkedAtIndex ELSE last END)"
        )
    # The server itself cuts a text that is too long, and appends a mark.
    texts = {name: f"{given}.{name}" for name in _LONG[given]}
    return ", ".join(
        f"{name}: CASE WHEN {text} IS :: STRING AND size({text}) > {_MOST_CHARS} "
        f"THEN left({text}, {_MOST_CHARS // 4}) + '\\n… [' + size({text}) + "
        f"' characters: the rest is left out]' ELSE {text} END"
        for name, text in texts.items()
    )


def named_statements(file: str) -> dict[str, str]:
    """Read the statements of a file, by the name in the line `// :name` before each.

    `bounded(t)` and `bounded(c)` expand to the long texts of a turn and a tool call, cut if
    necessary, `leased(key)` to whether that work is leased, and `last_seen(a)` to the index of the
    last turn that the session at the start of `path` sees of its ancestor `a`.
    """
    text = _MACRO.sub(_expanded, (_FOLDER / file).read_text("utf-8"))
    sections = [section.partition("\n") for section in text.split("\n// :")[1:]]
    return {name.split()[0]: body.strip().rstrip(";") for name, _, body in sections}


def listed_statements(file: str) -> list[str]:
    """Read the statements of a file, each ended by a semicolon."""
    lines = (_FOLDER / file).read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("//"))
    return [statement.strip() for statement in text.split(";") if statement.strip()]


STATEMENTS = named_statements("statements.cypher")


T = TypeVar("T")

CONNECT_S = 3.0
"""Timeout for opening a connection, in seconds."""
IDLE_CHECK_S = 30.0
"""A connection that was idle for longer is tested before it is used."""
_MOST_CONNECTIONS = 4
"""Concurrent reads share these connections: opening another takes longer than most reads."""
FIRST_PAUSE_S = 0.05
"""Pause before the second attempt, doubled for each further one."""
_NO_INDEX = "There is no such fulltext schema index:"
_REPAIR_HINT = "`ragmem store check` shows what, `ragmem store repair` repairs it."
_NAMES = ("uuid", "sessionId", "projectId", "path")
"""Properties that identify a row that can't be decoded, in messages."""

Value = (
    str | int | float | bool | bytes | datetime | None | Sequence["Value"] | Mapping[str, "Value"]
)
"""The type of a statement's parameters."""


class Row(dict[str, Any]):
    """One row of a result, by column; datetimes are Python's own, in UTC."""


class Reading:
    """Decodes rows; skips those that can't be decoded, and reports the first of them.

    Without anybody to report to, as in a move, it refuses instead: skipped rows would be lost.
    """

    def __init__(self, say: Callable[[str], None] | None) -> None:
        self._say = say
        self._said = False

    def records(self, make: Callable[[Any], T], rows: Sequence[Any]) -> list[T]:
        """Return the records of those rows that can be decoded."""
        found = []
        for row in rows:
            try:
                found.append(make(row))
            except (MsgspecError, KeyError, TypeError, ValueError):
                self._report(row)
        return found

    def _report(self, row: Any) -> None:
        if self._said:
            return
        self._said = True
        names = row if isinstance(row, Mapping) else {}
        name = next((names[key] for key in _NAMES if isinstance(names.get(key), str)), "")
        of = f" ({short_id(name)})" if name else ""
        if self._say is None:
            raise StoreRefused(f"Something in the graph has been altered{of}.", hint=_REPAIR_HINT)
        self._say(f"Something in the graph has been altered{of}, and is left out: {_REPAIR_HINT}")


class Transaction:
    """Runs the statements of one piece of work: they run nowhere else.

    For a write, all of them are one transaction; for a read, each is one of its own.
    """

    def __init__(
        self, runner: "AsyncManagedTransaction | AsyncSession", gateway: "Gateway"
    ) -> None:
        self._runner = runner
        self.read = gateway.reading
        self.owner = gateway.owner
        self.sees = gateway.sees
        """Whose profile and memories about a person are shown; everybody's where it is empty."""
        self.now = gateway.clock()

    async def run(self, statement: str, **parameters: Value) -> list[Row]:
        """Run a statement and return all of its rows."""
        result = await self._runner.run(statement, stored(parameters))
        columns = result.keys()
        return [
            Row(zip(columns, map(_native, record.values()), strict=True)) async for record in result
        ]

    async def values(self, statement: str, **parameters: Value) -> list[list[Any]]:
        """Return the rows as the driver's own values: faster for many rows without times."""
        result = await self._runner.run(statement, stored(parameters))
        return [record.values() async for record in result]

    async def first_row(self, statement: str, **parameters: Value) -> Row | None:
        """Return the first row, or None."""
        rows = await self.run(statement, **parameters)
        return rows[0] if rows else None

    async def found(self, statement: str, **parameters: Value) -> list[Any]:
        """Return the list `found` from a statement with that one column."""
        [row] = await self.run(statement, **parameters)
        found: list[Any] = row["found"]
        return found


def driver_of(connection: Connection, timeout_s: float) -> "AsyncDriver":
    """Return a driver, which connects on its first transaction; StoreRefused for a bad URL."""
    from neo4j import AsyncGraphDatabase, NotificationMinimumSeverity
    from neo4j.exceptions import ConfigurationError

    log = logging.getLogger("neo4j")
    if not log.handlers:  # never to stderr: errors are raised
        log.addHandler(logging.NullHandler())
    try:
        return AsyncGraphDatabase.driver(
            connection.url,
            auth=(connection.username, connection.password),
            connection_timeout=min(CONNECT_S, timeout_s),
            connection_acquisition_timeout=timeout_s,
            max_connection_pool_size=_MOST_CONNECTIONS,
            max_transaction_retry_time=0,
            liveness_check_timeout=IDLE_CHECK_S,
            keep_alive=True,
            notifications_min_severity=NotificationMinimumSeverity.OFF,
            telemetry_disabled=True,
            user_agent="ragmem",
        )
    except (ConfigurationError, ValueError) as error:
        raise StoreRefused(f"Neo4j at {connection.location}: {error}") from None


class Gateway:
    """A driver with a deadline on everything it does."""

    def __init__(
        self,
        connection: Connection,
        timeout_s: float,
        say: Callable[[str], None] | None = None,
        *,
        owner: str = "",
        sees: str = "",
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Prepare the driver; the first transaction opens the first connection.

        `say` is told what is left out on reading; without it, StoreRefused is raised for that.
        Raises StoreRefused for a bad address.
        """
        from neo4j import AsyncGraphDatabase

        self.reading = Reading(say)
        self.owner = owner
        self.sees = sees
        self.clock = clock
        self._connection = connection.check()
        self._timeout_s = timeout_s
        self._closed = False
        self._driver = driver_of(self._connection, timeout_s)
        self._bookmarks = AsyncGraphDatabase.bookmark_manager()

    def patient(self, timeout_s: float) -> "Gateway":
        """Return a copy with another timeout over the same connections, which this one closes."""
        other = copy(self)
        other._timeout_s = timeout_s
        return other

    @property
    def location(self) -> str:
        """The address and the database, without credentials."""
        database = self._connection.database
        return self._connection.location + (f" ({database})" if database else "")

    async def read(self, work: Callable[[Transaction], Awaitable[T]], *, patient: bool = True) -> T:
        """Run `work`, which only reads; unless `patient`, an unreachable server fails at once."""
        from neo4j import READ_ACCESS

        async def once(session: "AsyncSession") -> T:
            failpoint("neo4j.read")
            return await work(Transaction(session, self))

        return await self._bounded(self._attempts(READ_ACCESS, once, patient))

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run `work` in a write transaction: all or nothing. It may run more than once."""
        from neo4j import WRITE_ACCESS

        async def whole(tx: "AsyncManagedTransaction") -> T:
            result = await work(Transaction(tx, self))
            failpoint("neo4j.commit")
            return result

        async def once(session: "AsyncSession") -> T:
            failpoint("neo4j.begin")
            result = await session.execute_write(whole)
            failpoint("neo4j.committed")
            return result

        return await self._bounded(self._attempts(WRITE_ACCESS, once, True))

    async def found(self, statement: str, **parameters: Value) -> list[Any]:
        """Return the list `found` from a statement that reads, and has that one column."""
        return await self.read(lambda tx: tx.found(statement, **parameters))

    async def run(self, statement: str, **parameters: Value) -> list[Row]:
        """Run a statement that writes, in a transaction of its own."""
        return await self.write(lambda tx: tx.run(statement, **parameters))

    async def aclose(self) -> None:
        """Close every connection, without waiting for a server that does not answer."""
        self._closed = True
        with suppress(TimeoutError, OSError):
            await within(min(1.0, self._timeout_s), self._driver.close())

    async def _attempts(
        self,
        access: str,
        once: Callable[["AsyncSession"], Awaitable[T]],
        patient: bool,
    ) -> T:
        from neo4j.exceptions import DriverError, IncompleteCommit, Neo4jError, ServiceUnavailable

        pause_s = FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while True:
            try:
                async with self._session(access) as session:
                    return await once(session)
            except (DriverError, Neo4jError) as error:
                worth_it = error.is_retryable() or isinstance(error, IncompleteCommit)
                worth_it = worth_it or _was_ended(error)
                # Too large: it alone needs more memory than the server allows for one.
                if "db.memory.transaction.max" in str(error):
                    worth_it = False
                if not patient and isinstance(error, ServiceUnavailable):
                    worth_it = False
                if not worth_it or loop.time() + 2 * pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def _session(self, access: str) -> "AsyncSession":
        if self._closed:
            raise StoreUnavailable(f"The connection to Neo4j at {self.location} is closed.")
        return self._driver.session(
            database=self._connection.database,
            default_access_mode=access,
            bookmark_manager=self._bookmarks,
        )

    async def _bounded(self, work: Coroutine[Any, Any, T]) -> T:
        from neo4j.exceptions import DriverError, Neo4jError

        try:
            return await within(self._timeout_s, work)
        except TimeoutError:
            raise StoreUnavailable(
                f"Neo4j at {self.location} did not answer within {self._timeout_s:g} s.",
                hint="Is it busy, or is something else listening there? `ragmem doctor` checks.",
            ) from None
        except (DriverError, Neo4jError, OSError) as error:
            if plain := translate(error, self.location, is_local=self._connection.is_local):
                raise plain from None
            raise


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Run a driver's coroutine in a task of its own with a timeout; raises TimeoutError.

    When a cancellation reaches the driver where it can't stop, it cancels its task again later,
    which `asyncio.timeout` takes for somebody else's: either would escape or be left behind.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    if task.cancelled():
        raise TimeoutError
    return task.result()


def translate(error: Exception, location: str, *, is_local: bool) -> StoreError | None:
    """Translate a driver's error; None for one that is a bug of ours."""
    from neo4j import exceptions as raised

    server = f"Neo4j at {location}"
    set_it = "Set NEO4J_USERNAME and NEO4J_PASSWORD to those of the server."
    if is_local:
        set_it = "Put its password into the file `neo4j/password` of ragmem's data folder."
    code = getattr(error, "code", None) or ""
    reason = (getattr(error, "message", None) or str(error)).strip().rstrip(".")
    # Of several lines only the first, without how the name was resolved.
    first = reason.partition("\n")[0].partition(" (resolved")[0] or "no answer"
    away = (raised.ServiceUnavailable, raised.SessionExpired, raised.ConnectionPoolError, OSError)
    routed = (raised.NotALeader, raised.WriteServiceUnavailable)
    not_now = isinstance(error, (raised.TransientError, raised.DatabaseError))
    cases: tuple[tuple[bool, type[StoreError], str, str], ...] = (
        (code.endswith("CredentialsExpired"), StoreRefused,
         f"{server}: the password has expired; set a new one.",
         "As that user, in the database 'system': `ALTER CURRENT USER SET PASSWORD FROM 'the old "
         "one' TO 'a new one'` (cypher-shell asks for it); then set NEO4J_PASSWORD."),
        (isinstance(error, raised.AuthError), StoreRefused,
         f"{server} refused the user name or password.",
         set_it),
        (code.endswith("AuthenticationRateLimit"), StoreRefused,
         f"{server} refuses to sign in for now: there were too many wrong passwords.",
         f"{set_it} Then try again in a few seconds."),
        (code.endswith("DatabaseNotFound"), StoreRefused,
         f"{server}: there is no such database.",
         "Set store.database or NEO4J_DATABASE to one that exists, or leave them unset."),
        (isinstance(error, routed) or "ReadOnly" in code, StoreRefused,
         f"{server} is read-only.",
         "For a cluster, use an address like neo4j://…, which finds the member that takes writes; "
         "on a single server, its settings or its administrator made the database read-only."),
        (isinstance(error, raised.Forbidden), StoreRefused,
         f"{server} does not permit it: {reason}.",
         "ragmem needs a user who may read, write, and create constraints and indexes."),
        (".Schema." in code, StoreRefused,
         f"{server} can't create the schema: {reason} ({code}).",
         "Other data may be in the way: give ragmem a database of its own."),
        ("too large to index" in reason, StoreRefused,
         f"{server} can't store a value that is longer than its index allows (8,000 bytes).",
         "A session's folder and the ids are indexed: work in a folder with a shorter path, or "
         "keep this memory in SQLite."),
        (code.endswith("OutOfMemoryError"), StoreUnavailable,
         f"{server} does not have enough memory: {reason}.",
         "Raise that limit in its neo4j.conf (`db.memory.transaction.max`, "
         "`dbms.memory.transaction.total.max`, or the heap), and restart it."),
        (not_now or _was_ended(error), StoreUnavailable,
         f"{server} could not do it now: {reason}.", "Try again; its log says more."),
        (isinstance(error, raised.UnsupportedServerProduct), StoreRefused,
         f"What answers at {location} is not Neo4j: {reason}.", "Correct store.url or NEO4J_URI."),
        (isinstance(error, raised.ConfigurationError), StoreRefused,
         f"{server}: {reason}.", "Correct store.url or NEO4J_URI."),
        (isinstance(error, raised.CypherTypeError), StoreRefused,
         f"{server} has a value of another type than was written: {reason}.", _REPAIR_HINT),
        (_NO_INDEX in reason, StoreRefused,
         f"{server} lacks the index {reason.rpartition(_NO_INDEX)[2].strip()}.",
         "`ragmem store check` creates it again."),
        (isinstance(error, raised.Neo4jError)
         and not isinstance(error, (raised.CypherSyntaxError, raised.ConstraintError)),
         StoreRefused, f"{server}: {first} ({code}).", "The server's log says more."),
        (isinstance(error, away), StoreUnavailable, f"{server} can't be reached: {first}.",
         "Start it (`ragmem neo4j up` for a local one), or correct its address."),
    )  # fmt: skip
    for is_it, kind, said, hint in cases:
        if is_it:
            return kind(said, hint=hint)
    return None


def _was_ended(error: Exception) -> bool:
    """Whether somebody has terminated the transaction, which may be run again."""
    code = getattr(error, "code", None) or ""
    return code.endswith((".Terminated", ".LockClientStopped"))


def _native(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _native(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_native(item) for item in value]
    value = value.to_native() if hasattr(value, "to_native") else value
    return was_utc(value) if isinstance(value, datetime) else value

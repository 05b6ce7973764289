"""Constraints and indexes: looked at on opening, made where they are missing."""

import asyncio
import re
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from ragmem.errors import StoreDamaged, StoreRefused, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.ids import new_id
from ragmem.store.neo4j import belonging, vectors
from ragmem.store.neo4j.entries import STATEMENTS as RECALL, index_summaries, index_turns
from ragmem.store.neo4j.gateway import (
    STATEMENTS,
    Gateway,
    Transaction,
    Value,
    listed_statements,
)
from ragmem.store.neo4j.memories import STATEMENTS as MEMORIES, take
from ragmem.store.neo4j.shapes import OF_A_SESSION, bring_into_utc

VERSION = 8
"""2: a project may be joined to another, which a session's writer has to look up. 3: beside
each turn and summary stands what it is found by, which whoever ends or adds one has to write.
4: memories; whoever ends a turn says that it is to be looked through for them, and whoever changes
a session's summary that it is to be embedded. 5: code; an ended turn's entry says whether it is to
be found out what the turn has to do with it. 6: every time is in UTC; none bears a zone's name.
7: owners of sessions, memories and profiles, which whoever writes one has to say. 8: Projects
and Owners hold what is theirs, which whoever writes something has to hang on them."""
_FIRST_WITH_OWNERS = 7
_AT_ONCE = 100
"""Turns or summaries whose entries are written in one transaction."""
_NOTED_AT_ONCE = 2_000
_AWAITED = "CALL db.awaitIndex($name, 60)"
MAKING_S = 120.0
"""Longest wait for one step of the schema's making, in seconds."""
OLDEST_SERVER = (5, 26)
"""The first with scoped subqueries and vector indexes as used here."""


class Server(msgspec.Struct, frozen=True):
    """What was found behind the address."""

    version: str
    schema_version: int
    names: frozenset[str] = frozenset()
    """Of the constraints and indexes that are there, or are being made."""
    store_id: str = ""
    repairs: str = ""
    """The file with all that was in the graph, while a repair fills it anew."""
    terms_version: int = 0
    """Of the words of all that is stored; 0 too where some of them wait to be taken away."""
    dimension: int = 0
    """Of its vectors."""
    vector_indexes: Mapping[str, int] = MappingProxyType({})
    """The dimension of each, by name."""
    found_whole: str = ""
    """The `print_of` the schema that whoever looked last found whole."""


async def prepare(
    gateway: Gateway,
    say: Callable[[str], None] | None = None,
    *,
    owner: str = "",
    believes: bool = False,
    fills: bool = False,
) -> Server:
    """Make the schema complete; what there was before. Safe to run again, and at the same time.

    What is to be made is waited for as long as it takes, and `say` told of it before. What stands
    without an owner is `owner`'s from here on. Who `believes` does not look where the graph says
    that this schema was found whole: to list its parts takes a server longer than most questions.
    StoreDamaged, with nothing changed, while it is repaired, but to the repair, which `fills` it.
    """
    from ragmem.terms import TERMS_VERSION

    server = await look(gateway, believes=believes)
    _refuse_while_repaired(server, gateway.location, fills=fills)
    statements = missing(server)
    has_all_words = server.terms_version >= TERMS_VERSION
    if statements or server.schema_version < VERSION or not has_all_words:
        if say:
            say(_to_do(server, gateway.location))
        gateway = gateway.patient(MAKING_S)
    if "attempt_item" in statements:
        # Two processes may have begun to count one item's before there was the constraint.
        double = partial(Transaction.run, statement=STATEMENTS["drop_double_attempts"])
        await gateway.write(double)
    for name, statement in statements.items():
        await _make(gateway, name, statement)
    for name in statements.keys() - _constraints():  # Their indexes are whole from the start.
        await _wait_for(gateway, name)
    filled = not has_all_words and await fill(gateway)
    if 0 < server.schema_version < VERSION:
        await bring_into_utc(gateway)
    if server.schema_version < VERSION:
        await _note_summaries(gateway)
    if owner and server.schema_version < _FIRST_WITH_OWNERS:
        await gateway.write(partial(take, owner=owner))
    if 0 < server.schema_version < VERSION:
        await belonging.mend(gateway)
    if filled or server.schema_version < VERSION:
        await gateway.write(_complete)
    if not (server.store_id or await store_id(gateway)):
        with suppress(StoreRefused):
            await gateway.write(partial(set_store_id, store_id=new_id()))
    lacks_vectors = vectors.lacks_indexes(server.dimension, server.vector_indexes)
    if lacks_vectors:
        await vectors.keep_indexes(gateway)
    whole = print_of(server.dimension)
    if not statements and not lacks_vectors and server.found_whole != whole:
        found = partial(Transaction.run, statement=STATEMENTS["set_found_whole"], whole=whole)
        with suppress(StoreRefused):
            await gateway.write(found)
    return server


def _refuse_while_repaired(server: Server, location: str, *, fills: bool) -> None:
    if server.repairs and not fills:
        raise StoreDamaged(
            f"A repair of the memory in Neo4j at {location} was interrupted or is still running; "
            f"what was in it is kept: {server.repairs}",
            hint="`ragmem store repair` continues one that was interrupted.",
        )


async def store_id(gateway: Gateway) -> str:
    """The graph's own id; empty while it has none."""
    found = await gateway.read(lambda tx: tx.first_row(STATEMENTS["store_id"]))
    return str(found["storeId"] or "") if found else ""


async def set_store_id(tx: Transaction, store_id: str) -> None:
    """Give the graph this id, if it has none."""
    await tx.run(STATEMENTS["set_store_id"], storeId=store_id)


def _to_do(server: Server, location: str) -> str:
    if not server.schema_version:
        return f"Setting up the memory in Neo4j at {location}, once: this may take a minute."
    versions = ""
    if server.schema_version < VERSION:
        versions = f" from schema {server.schema_version} to {VERSION}"
    return f"Upgrading the memory in Neo4j at {location}{versions}: this may take a few minutes."


async def _note_summaries(gateway: Gateway) -> None:
    """Say of sessions' summaries that they wait for vectors, as was not said before schema 4."""
    ids = await gateway.read(partial(Transaction.found, statement=MEMORIES["sessions_to_embed"]))
    for start in range(0, len(ids), _NOTED_AT_ONCE):
        note = partial(Transaction.run, statement=MEMORIES["note_vectors_due"])
        await gateway.write(partial(note, ids=ids[start : start + _NOTED_AT_ONCE]))


async def _complete(tx: Transaction) -> None:
    from ragmem.terms import TERMS_VERSION

    await tx.run(STATEMENTS["name_processes"])
    await tx.run(STATEMENTS["set_schema_version"], version=VERSION)
    await tx.run(RECALL["index_is_complete"], version=TERMS_VERSION)


async def fill(gateway: Gateway) -> bool:
    """Write the entries that are missing or of older terms, in portions; go on where it ended.

    False when it was said before that all are there.
    """
    from ragmem.terms import TERMS_VERSION, WITHOUT_PREAMBLES

    versions: dict[str, Value] = {
        "version": TERMS_VERSION,
        "withoutPreambles": WITHOUT_PREAMBLES,
    }
    state = await gateway.read(lambda tx: tx.first_row(RECALL["terms_version"]))
    if state is not None and state["version"] >= TERMS_VERSION:
        if state["dropping"]:
            await vectors.finish_dropping(gateway)
        return False
    for name, index in (
        ("turns_to_index", partial(index_turns, keep_vectors=True)),
        ("summaries_to_index", index_summaries),
    ):
        listed = partial(Transaction.found, statement=RECALL[name])
        ids = await gateway.read(partial(listed, **versions))
        for start in range(0, len(ids), _AT_ONCE):
            await gateway.write(partial(index, ids=ids[start : start + _AT_ONCE]))
    return True


async def look(gateway: Gateway, *, believes: bool = False) -> Server:
    """What is there, and fit for this version: else StoreRefused. Changes nothing.

    Who `believes` takes what was found whole for whole.
    """
    # By itself: each connection shows the password, and three wrong ones at once close a server
    # to everybody for some seconds.
    server = await gateway.read(_server, patient=False)
    check(server, gateway.location)
    if believes and server.found_whole == print_of(server.dimension):
        dimensions = dict.fromkeys(vectors.EMBEDDED, server.dimension)
        return msgspec.structs.replace(
            server, names=frozenset(_wanted()), vector_indexes=dimensions
        )
    constraints, indexes = await asyncio.gather(
        gateway.read(_made_constraints, patient=False), _indexes(gateway)
    )
    return msgspec.structs.replace(
        server,
        names=frozenset(constraints | (indexes.keys() - _constraints())),
        vector_indexes={name: size for name, size in indexes.items() if size},
    )


def print_of(dimension: int) -> str:
    """A few signs that change with what is to be there, and with the vectors' dimension."""
    wanted = "\n".join((*_wanted().values(), str(dimension)))
    return f"{zlib.crc32(wanted.encode()):08x}"


def missing(server: Server) -> dict[str, str]:
    """The statements that make what is not there, by the names of what they make."""
    return {name: made for name, made in _wanted().items() if name not in server.names}


def _wanted() -> dict[str, str]:
    of_sessions = [
        f"CREATE CONSTRAINT {each.label.lower()}_session IF NOT EXISTS"
        f" FOR (n:{each.label}) REQUIRE n.{each.key} IS UNIQUE"
        for each in OF_A_SESSION
    ]
    listed = [*listed_statements("schema.cypher"), *of_sessions]
    return {_name(statement): statement for statement in listed}


def _constraints() -> set[str]:
    return {name for name, made in _wanted().items() if made.startswith("CREATE CONSTRAINT")}


async def _made_constraints(tx: Transaction) -> set[str]:
    # A constraint's index is there before the constraint, and stays without it where its maker
    # was cut off: of constraints only SHOW CONSTRAINTS tells.
    return {row["name"] for row in await tx.run("SHOW CONSTRAINTS YIELD name RETURN name")}


async def _server(tx: Transaction) -> Server:
    found: dict[str, Any] = await tx.first_row(STATEMENTS["server"]) or {}
    return Server(
        version=found.get("server") or "",
        # Of another type only by another's hand: then all is looked through as in an old one.
        schema_version=_number(found.get("version")),
        store_id=str(found.get("storeId") or ""),
        repairs=str(found.get("repairs") or ""),
        terms_version=0 if found.get("dropping") else _number(found.get("terms")),
        dimension=_number(found.get("dimension")),
        found_whole=str(found.get("foundWhole") or ""),
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


async def _indexes(gateway: Gateway) -> dict[str, int]:
    """Those of no constraint, with the dimension of one of vectors, else 0.

    None where the server can't list them, as it can't while values that a new constraint forbids
    are written beside its making: each is then made if missing.
    """
    statement = """
        SHOW INDEXES YIELD name, state, owningConstraint, options
        WHERE state <> 'FAILED' AND owningConstraint IS NULL
        RETURN name, options.indexConfig['vector.dimensions'] AS dimension
        """
    try:
        rows = await gateway.read(lambda tx: tx.run(statement), patient=False)
    except StoreUnavailable:
        return {}
    return {row["name"]: row["dimension"] or 0 for row in rows}


def check(server: Server, location: str) -> None:
    """StoreRefused for a server that is too old, or a schema that is too new."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", server.version)[:2])
    if numbers < OLDEST_SERVER:
        raise StoreRefused(
            f"Neo4j at {location} is version {server.version or 'unknown'}; 5.26 is the oldest "
            "that ragmem works with (it needs vector indexes and scoped subqueries).",
            hint="Upgrade the server, or start a local one: `ragmem neo4j up`.",
        )
    if server.schema_version > VERSION:
        raise StoreRefused(
            f"The memory in Neo4j at {location} was written by a newer ragmem "
            f"(schema {server.schema_version}, this one knows {VERSION}).",
            hint="Upgrade ragmem.",
        )


async def _make(gateway: Gateway, name: str, statement: str) -> None:
    """Run one statement of the schema; that another process made it meanwhile is fine."""

    async def work(tx: Transaction) -> None:
        failpoint("neo4j.schema")
        await tx.run(statement)

    try:
        try:
            await gateway.write(work)
        except StoreRefused as error:
            # Who makes a constraint holds its name until the end, so an index that has the name
            # is what a maker who was cut off left behind.
            if "IndexWithNameAlreadyExists" not in str(error):
                raise
            await gateway.write(lambda tx: tx.run(f"DROP INDEX {name} IF EXISTS"))
            await gateway.write(work)
    except StoreRefused as error:
        if "AlreadyExists" not in str(error):
            raise StoreRefused(
                str(error),
                hint=f"{error.hint} If they are ragmem's own, `ragmem store repair` repairs them.",
            ) from None


async def _wait_for(gateway: Gateway, name: str) -> None:
    """Return once the index answers: of a million entries that is after most of an hour."""
    while True:
        try:
            await gateway.read(partial(Transaction.run, statement=_AWAITED, name=name))
            return
        except StoreRefused as error:
            if "ProcedureTimedOut" not in str(error):
                raise


def _name(statement: str) -> str:
    return statement.partition(" IF NOT EXISTS")[0].split()[-1]

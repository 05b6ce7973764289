"""Constraints and indexes: checked on opening, created where they are missing."""

import asyncio
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ragmem.errors import StoreDamaged, StoreRefused, StoreUnavailable
from ragmem.failpoints import failpoint
from ragmem.ids import new_id
from ragmem.store import batches
from ragmem.store.neo4j import belonging, vectors
from ragmem.store.neo4j.entries import STATEMENTS as RECALL, index_summaries, index_turns
from ragmem.store.neo4j.gateway import STATEMENTS, Gateway, Transaction, listed_statements
from ragmem.store.neo4j.memories import STATEMENTS as MEMORIES, assign_owner
from ragmem.store.neo4j.shapes import OF_A_SESSION, bring_into_utc

VERSION = 8
"""What an older ragmem would break, by the version that brought it. 2: a project may be joined to
another, which the writer of a session has to look up. 3: each turn and summary has a search entry,
which whoever ends or adds one has to write. 4: memories; whoever ends a turn marks it as to be
looked through for them, and whoever changes a session's summary as to be embedded. 5: code; an
ended turn's entry says whether its references to code are still to be found. 6: every time is in
UTC; none has a zone's name. 7: owners of sessions, memories and profiles, which their writers have
to set. 8: Projects and Owners are linked to what is theirs, and whoever writes something has to
link it."""
_FIRST_WITH_OWNERS = 7
_AT_ONCE = 100
"""Turns or summaries whose entries are written in one transaction."""
_NOTED_AT_ONCE = 2_000
_AWAITED = "CALL db.awaitIndex($name, 60)"
MAKING_S = 120.0
"""Timeout for one step of creating the schema, in seconds."""
OLDEST_SERVER = (5, 26)
"""The first version with scoped subqueries and vector indexes as used here."""


class Server(msgspec.Struct, frozen=True):
    """What was found at the address."""

    version: str
    schema_version: int
    names: frozenset[str] = frozenset()
    """Constraints and indexes that exist, or are being created."""
    store_id: str = ""
    repairs: str = ""
    """The file with everything that was in the graph, while a repair fills it again."""
    terms_version: int = 0
    """Version of the terms of all entries; also 0 while another embedder's vectors are left."""
    dimension: int = 0
    """Dimension of its vectors."""
    vector_indexes: dict[str, int] = {}
    """The dimension of each index, by name."""
    found_whole: str = ""
    """`fingerprint` the schema that was last found complete."""


async def prepare(
    gateway: Gateway,
    say: Callable[[str], None] | None = None,
    *,
    owner: str = "",
    skip_check: bool = False,
    fills: bool = False,
) -> Server:
    """Complete the schema; return what there was before.

    Safe to run again, and concurrently. It waits for as long as the schema takes to create, and
    tells `say` before. What is stored without an owner becomes `owner`'s. `skip_check` skips the
    check of a schema that the graph says was found complete: listing its parts takes a server
    longer than most queries. Raises StoreDamaged, with nothing changed, during a repair, except for
    the repair itself, which `fills` the graph.
    """
    from ragmem.terms import TERMS_VERSION

    server = await look(gateway, skip_check=skip_check)
    _refuse_while_repaired(server, gateway.location, fills=fills)
    statements = missing(server)
    has_all_words = server.terms_version >= TERMS_VERSION
    if statements or server.schema_version < VERSION or not has_all_words:
        if say:
            say(_progress(server, gateway.location))
        gateway = gateway.patient(MAKING_S)
    if "attempt_item" in statements:
        # Two processes may have counted attempts at one item before the constraint existed.
        await gateway.run(STATEMENTS["drop_double_attempts"])
    for name, statement in statements.items():
        await _create(gateway, name, statement)
    for name in statements.keys() - _constraints():  # their indexes are complete from the start
        await _wait_for(gateway, name)
    filled = not has_all_words and await fill(gateway)
    if 0 < server.schema_version < VERSION:
        await bring_into_utc(gateway)
    if server.schema_version < VERSION:
        await _mark_summaries(gateway)
    if owner and server.schema_version < _FIRST_WITH_OWNERS:
        await gateway.write(partial(assign_owner, owner=owner))
    if 0 < server.schema_version < VERSION:
        await belonging.link_all(gateway)
    if filled or server.schema_version < VERSION:
        await gateway.write(_mark_complete)
    if not (server.store_id or await store_id(gateway)):
        with suppress(StoreRefused):
            await set_store_id(gateway, new_id())
    lacks_vectors = vectors.lacks_indexes(server.dimension, server.vector_indexes)
    if lacks_vectors:
        await vectors.keep_indexes(gateway)
    whole = fingerprint(server.dimension)
    if not statements and not lacks_vectors and server.found_whole != whole:
        with suppress(StoreRefused):
            await gateway.run(STATEMENTS["set_found_whole"], whole=whole)
    return server


def _refuse_while_repaired(server: Server, location: str, *, fills: bool) -> None:
    if server.repairs and not fills:
        raise StoreDamaged(
            f"A repair of the memory in Neo4j at {location} was interrupted or is still running; "
            f"what was in it is kept: {server.repairs}",
            hint="`ragmem store repair` continues one that was interrupted.",
        )


async def store_id(gateway: Gateway) -> str:
    """Return the graph's own id; empty while it has none."""
    found = await gateway.read(lambda tx: tx.first_row(STATEMENTS["store_id"]))
    return str(found["storeId"] or "") if found else ""


async def set_store_id(gateway: Gateway, store_id: str) -> None:
    """Give the graph this id, if it has none."""
    await gateway.run(STATEMENTS["set_store_id"], storeId=store_id)


def _progress(server: Server, location: str) -> str:
    if not server.schema_version:
        return f"Setting up the memory in Neo4j at {location}, once: this may take a minute."
    versions = ""
    if server.schema_version < VERSION:
        versions = f" from schema {server.schema_version} to {VERSION}"
    return f"Upgrading the memory in Neo4j at {location}{versions}: this may take a few minutes."


async def _mark_summaries(gateway: Gateway) -> None:
    """Mark sessions' summaries as pending for vectors, which was not done before schema 4."""
    for ids in batches(await gateway.found(MEMORIES["sessions_to_embed"]), _NOTED_AT_ONCE):
        await gateway.run(MEMORIES["note_vectors_due"], ids=ids)


async def _mark_complete(tx: Transaction) -> None:
    from ragmem.terms import TERMS_VERSION

    await tx.run(STATEMENTS["name_processes"])
    await tx.run(STATEMENTS["set_schema_version"], version=VERSION)
    await tx.run(RECALL["index_is_complete"], version=TERMS_VERSION)


async def fill(gateway: Gateway) -> bool:
    """Write entries that are missing or have older terms, in batches; resumes where it stopped.

    Returns False if the graph says that all of them exist.
    """
    from ragmem.terms import TERMS_VERSION, WITHOUT_PREAMBLES

    state = await gateway.read(lambda tx: tx.first_row(RECALL["terms_version"]))
    if state is not None and state["version"] >= TERMS_VERSION:
        if state["dropping"]:
            await vectors.finish_dropping(gateway)
        return False
    for name, index in (
        ("turns_to_index", partial(index_turns, keep_vectors=True)),
        ("summaries_to_index", index_summaries),
    ):
        ids = await gateway.found(
            RECALL[name], version=TERMS_VERSION, withoutPreambles=WITHOUT_PREAMBLES
        )
        for part in batches(ids, _AT_ONCE):
            await gateway.write(partial(index, ids=part))
    return True


async def look(gateway: Gateway, *, skip_check: bool = False) -> Server:
    """Return what there is, if this version can use it, else raise StoreRefused; changes nothing.

    With `skip_check`, a schema that was found complete counts as complete.
    """
    # Not concurrently: each connection sends the password, and three wrong ones at once lock
    # everybody out for some seconds.
    server = await gateway.read(_server, patient=False)
    check(server, gateway.location)
    if skip_check and server.found_whole == fingerprint(server.dimension):
        dimensions = dict.fromkeys(vectors.EMBEDDED, server.dimension)
        return msgspec.structs.replace(
            server, names=frozenset(_wanted()), vector_indexes=dimensions
        )
    # A constraint's index exists before the constraint, and stays without it if its creation was
    # cut off: only SHOW CONSTRAINTS is reliable.
    listed = "SHOW CONSTRAINTS YIELD name RETURN collect(name) AS found"
    constraints, indexes = await asyncio.gather(
        gateway.read(partial(Transaction.found, statement=listed), patient=False),
        _indexes(gateway),
    )
    return msgspec.structs.replace(
        server,
        names=frozenset({*constraints, *(indexes.keys() - _constraints())}),
        vector_indexes={name: size for name, size in indexes.items() if size},
    )


def fingerprint(dimension: int) -> str:
    """Return a checksum of the schema's statements and the vectors' dimension."""
    wanted = "\n".join((*_wanted().values(), str(dimension)))
    return f"{zlib.crc32(wanted.encode()):08x}"


def missing(server: Server) -> dict[str, str]:
    """Return the statements for what is missing, by the names of what they create."""
    return {name: made for name, made in _wanted().items() if name not in server.names}


def _wanted() -> dict[str, str]:
    of_sessions = [
        f"CREATE CONSTRAINT {each.label.lower()}_session IF NOT EXISTS"
        f" FOR (n:{each.label}) REQUIRE n.{each.key} IS UNIQUE"
        for each in OF_A_SESSION
    ]
    return {
        statement.partition(" IF NOT EXISTS")[0].split()[-1]: statement
        for statement in (*listed_statements("schema.cypher"), *of_sessions)
    }


def _constraints() -> set[str]:
    return {name for name, made in _wanted().items() if made.startswith("CREATE CONSTRAINT")}


async def _server(tx: Transaction) -> Server:
    found: dict[str, Any] = await tx.first_row(STATEMENTS["server"]) or {}
    return Server(
        version=found.get("server") or "",
        # Another type is set only by hand: then everything is checked as in an old graph.
        schema_version=_int_or_zero(found.get("version")),
        store_id=str(found.get("storeId") or ""),
        repairs=str(found.get("repairs") or ""),
        terms_version=0 if found.get("dropping") else _int_or_zero(found.get("terms")),
        dimension=_int_or_zero(found.get("dimension")),
        found_whole=str(found.get("foundWhole") or ""),
    )


def _int_or_zero(value: object) -> int:
    return value if isinstance(value, int) else 0


async def _indexes(gateway: Gateway) -> dict[str, int]:
    """Return indexes without a constraint, each with its vectors' dimension, or 0.

    Empty if the server can't list them, as happens while values are written that violate a
    constraint being created: each is then created if missing.
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
    """Raise StoreRefused for a server that is too old, or a schema that is too new."""
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


async def _create(gateway: Gateway, name: str, statement: str) -> None:
    """Run one statement of the schema; another process may create the same at once."""

    async def work(tx: Transaction) -> None:
        failpoint("neo4j.schema")
        await tx.run(statement)

    try:
        try:
            await gateway.write(work)
        except StoreRefused as error:
            # Creating a constraint holds its name until the end, so an index with that name was
            # left behind by a creation that was cut off.
            if "IndexWithNameAlreadyExists" not in str(error):
                raise
            await gateway.run(f"DROP INDEX {name} IF EXISTS")
            await gateway.write(work)
    except StoreRefused as error:
        if "AlreadyExists" not in str(error):
            raise StoreRefused(
                str(error),
                hint=f"{error.hint} If they are ragmem's own, `ragmem store repair` repairs them.",
            ) from None


async def _wait_for(gateway: Gateway, name: str) -> None:
    """Wait until the index is online: with a million entries this takes most of an hour."""
    while True:
        try:
            await gateway.read(partial(Transaction.run, statement=_AWAITED, name=name))
            return
        except StoreRefused as error:
            if "ProcedureTimedOut" not in str(error):
                raise

"""Constraints and indexes: looked at on each opening, made where they are missing."""

import re

import msgspec

from ragmem.errors import StoreRefused
from ragmem.store.neo4j.cypher import STATEMENTS, listed_statements
from ragmem.store.neo4j.gateway import Gateway, Transaction

VERSION = 1
OLDEST_SERVER = (5, 26)
"""The first with scoped subqueries and vector indexes as used here."""


class Server(msgspec.Struct, frozen=True):
    """What was found behind the address."""

    version: str
    schema_version: int
    names: frozenset[str]
    """Of the constraints and indexes that are there."""


async def prepare(gateway: Gateway) -> str:
    """Make the schema complete; the server's version. Safe to run again, and at the same time."""
    server = await gateway.read(_look, patient=False)
    check(server, gateway.location)
    wanted = {_name(statement): statement for statement in listed_statements("schema.cypher")}
    missing = [statement for name, statement in wanted.items() if name not in server.names]
    for statement in missing:
        await _make(gateway, statement)
    if missing:
        await gateway.read(lambda tx: tx.run("CALL db.awaitIndexes(60)"))
    if server.schema_version < VERSION:
        await gateway.write(lambda tx: tx.run(STATEMENTS["set_schema_version"], version=VERSION))
    return server.version


async def _look(tx: Transaction) -> Server:
    component = await tx.first_row(STATEMENTS["server"])
    found = await tx.first_row(STATEMENTS["schema_version"])
    indexes = await tx.run("SHOW INDEXES YIELD name, state WHERE state <> 'FAILED' RETURN name")
    return Server(
        version=component["version"] if component else "",
        schema_version=found["version"] if found else 0,
        names=frozenset(row["name"] for row in indexes),
    )


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


async def _make(gateway: Gateway, statement: str) -> None:
    """Run one statement of the schema; that another process made it meanwhile is fine."""
    try:
        await gateway.write(lambda tx: tx.run(statement))
    except StoreRefused as error:
        if "AlreadyExists" not in str(error):
            raise


def _name(statement: str) -> str:
    return statement.split()[2]

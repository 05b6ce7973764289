"""Checks a graph's guarantees; reads out a graph that breaks them, for `salvage.py`."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from ragmem.errors import StoreRefused
from ragmem.records import Finding
from ragmem.store import batches
from ragmem.store.neo4j import belonging, memories, schema, shapes
from ragmem.store.neo4j.entries import STATEMENTS as RECALL, summary_entries, turn_entries
from ragmem.store.neo4j.gateway import (
    Connection,
    Gateway,
    Row,
    Transaction,
    named_statements,
)

WORDS = "what is found by words is what is said"
_PAGE_OF_ENTRIES = 200
_ALL_UP_TO = 5_000
"""Up to this many turns or summaries the words of all are compared; of more, every sixteenth's."""


async def _wrong_words(gateway: Gateway) -> list[str]:
    found: list[str] = []
    for name, expected in (
        ("turn_entry_ids", turn_entries),
        ("summary_entry_ids", summary_entries),
    ):
        ids = await gateway.found(RECALL[name])
        if len(ids) > _ALL_UP_TO:
            ids = ids[::16]
        for part in batches(ids, _PAGE_OF_ENTRIES):
            entries = await gateway.read(partial(expected, ids=part))
            found += await gateway.found(RECALL["entries_of_other_words"], entries=entries)
    return found


LABELS = (*(each.label for each in shapes.SHAPES if not each.label.isupper()), "Process", "Lease")
"""Labels of all of ragmem's nodes."""
_SHOWN = 3


def _named(file: str) -> dict[str, str]:
    return {name.replace("_", " "): held for name, held in named_statements(file).items()}


def _promises() -> dict[str, str]:
    """Return the statements that list what breaks a guarantee, by its name."""
    found = _named("checks.cypher")
    for each in shapes.NODES:
        returned = f"RETURN collect(coalesce(n.{each.key}, '?')) AS found"
        if each.held_by:
            home = f"(:ConversationSession {{sessionId: n.sessionId}})-[:{each.held_by}]->(n)"
            found[f"{each.called} belongs to its session"] = f"""
                MATCH (n:{each.label})
                WHERE COUNT {{ (n)<-[:{each.held_by}]-() }} <> 1 OR NOT EXISTS {{ {home} }}
                {returned}
                """
        # The Community edition has no property existence constraints.
        if each.needs:
            missing = f"MATCH (n:{each.label}) WHERE {each.lacking} {returned}"
            found[f"{each.called} has all of its fields"] = missing
    files = "MATCH (n:File) WITH n.path AS id, n.projectId AS project, count(*) AS nodes"
    twice = [
        f"MATCH (n:{each.label}) WITH n.{each.key} AS id, count(*) AS nodes"
        " WHERE nodes > 1 OR id IS NULL RETURN id"
        for each in shapes.NODES
    ]
    every = " UNION ALL ".join([*twice, f"{files} WHERE nodes > 1 RETURN id"])
    found["no id is there twice"] = (
        f"CALL () {{ {every} }} RETURN collect(coalesce(id, '?')) AS found"
    )
    return found


PROMISES = _promises()
DERIVED = {
    "the Project of a session is there": belonging.LOST_PROJECTS,
    **{each.what: each.wrong(f"coalesce(n.{each.key}, '?')") for each in belonging.BELONGINGS},
    **_named("recall_checks.cypher"),
}
"""The same, for what graphs of older schemas don't have."""


async def check(gateway: Gateway, *, derived: bool = True) -> list[Finding]:
    """Find broken links, turn indexes, counters and search entries."""
    found: dict[str, list[Any]] = {shapes.TYPES: await shapes.mistyped(gateway)}
    # Comparing or counting values of a wrong type would show nothing.
    if not found[shapes.TYPES]:
        for promise, statement in (PROMISES | (DERIVED if derived else {})).items():
            # One read each: the deadline is for one, and together they would be no snapshot.
            found[promise] = await gateway.found(statement)
        found["what stands on a memory can be read"] = await gateway.read(memories.unreadable)
        found[WORDS] = await _wrong_words(gateway) if derived else []
    return [
        Finding(what, ", ".join(sorted(map(str, ids))[:_SHOWN]), len(ids))
        for what, ids in found.items()
        if ids
    ]


_GRAPH = named_statements("graph.cypher")
_PAGE = 500
_WIPED_AT_ONCE = 2_000


class Repair:
    """A graph that may lack its constraints: checked, read out, and emptied."""

    def __init__(self, gateway: Gateway, server: schema.Server) -> None:
        self.store_id = server.store_id
        self.cut_off = server.repairs
        """The file that an interrupted repair has read out the graph into."""
        self._gateway = gateway
        self._is_current = server.schema_version == schema.VERSION
        self._read_hash = 0
        """Sum of the hashes of all rows that were read out last, independent of their order."""

    @classmethod
    async def open(cls, connection: Connection, *, timeout_s: float) -> "Repair":
        """Connect without changing anything; StoreRefused for a newer schema, as for the store."""
        gateway = Gateway(connection, timeout_s)
        try:
            return cls(gateway, await schema.look(gateway))
        except BaseException:
            await gateway.aclose()
            raise

    async def findings(self) -> list[Finding]:
        """Find what is broken, except in what graphs of older schemas don't have."""
        return await check(self._gateway, derived=self._is_current)

    async def graph(self) -> AsyncIterator[Sequence[Row]]:
        """Yield every node and relationship of ragmem's, unchecked, in batches."""
        ids, read = await self._gateway.found(_GRAPH["node_ids"], labels=LABELS), 0
        for name in ("nodes", "relationships"):
            for part in batches(ids, _PAGE):
                rows = await self._gateway.found(_GRAPH[name], ids=part)
                encoded = (msgspec.json.encode(row, order="sorted") for row in rows)
                read += sum(int.from_bytes(sha256(row).digest()) for row in encoded)
                yield rows
        self._read_hash = read

    async def refuse_while_used(self) -> None:
        """Raise StoreRefused while a process works in a session: its writes would be lost."""
        if await self._gateway.found(_GRAPH["live_processes"]):
            raise StoreRefused(
                "The graph can't be repaired while a process is using one of its sessions.",
                hint="Close the chats that use it, and run this again; one that was killed counts "
                "for half a minute.",
            )

    async def empty(self, kept: Path) -> None:
        """Delete all of ragmem's nodes, except the graph's id.

        Raises StoreRefused if the graph was written to since it was read out into that file. Until
        `end`, the graph records that it is being repaired.
        """
        if not self.cut_off:
            await self.refuse_while_used()
            before = self._read_hash
            async for _ in self.graph():
                pass
            if self._read_hash != before:
                raise StoreRefused(
                    "The graph was changed while it was being read.", hint="Run this again."
                )
            await self._gateway.run(_GRAPH["begin"], kept=str(kept), storeId=self.store_id or None)
        empty = partial(
            Transaction.found, statement=_GRAPH["empty"], labels=LABELS, limit=_WIPED_AT_ONCE
        )
        while await self._gateway.write(empty):
            pass
        if self.store_id:
            await schema.set_store_id(self._gateway, self.store_id)

    async def end(self) -> None:
        """Release the graph for use."""
        await self._gateway.run(_GRAPH["end"])

    async def aclose(self) -> None:
        """Close the connections to the server."""
        await self._gateway.aclose()

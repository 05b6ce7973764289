"""Whether a graph keeps its promises; and one that does not read out, see `salvage.py`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from ragmem.errors import StoreRefused
from ragmem.records import Finding
from ragmem.store.neo4j import belonging, memories, schema, shapes
from ragmem.store.neo4j.entries import STATEMENTS as RECALL, summary_entries, turn_entries
from ragmem.store.neo4j.gateway import (
    STATEMENTS,
    Connection,
    Gateway,
    Row,
    Transaction,
    Value,
    named_statements,
)
from ragmem.store.neo4j.shapes import Properties

WORDS = "what is found by words is what is said"
_PAGE_OF_ENTRIES = 200
_ALL_UP_TO = 5_000
"""Turns or summaries whose words are all compared; of more every sixteenth is."""
Expected = Callable[[Transaction, Sequence[str]], Awaitable[list[Properties]]]


async def _other_words(gateway: Gateway) -> list[str]:
    found: list[str] = []
    for name, expected in (
        ("turn_entry_ids", turn_entries),
        ("summary_entry_ids", summary_entries),
    ):
        ids = await gateway.read(partial(Transaction.found, statement=RECALL[name]))
        if len(ids) > _ALL_UP_TO:
            ids = ids[::16]
        for start in range(0, len(ids), _PAGE_OF_ENTRIES):
            part = ids[start : start + _PAGE_OF_ENTRIES]

            async def compare(
                tx: Transaction, part: Sequence[str] = part, expected: Expected = expected
            ) -> list[str]:
                entries = await expected(tx, part)
                other: list[str] = await tx.found(RECALL["entries_of_other_words"], entries=entries)
                return other

            found += await gateway.read(compare)
    return found


LABELS = (*(each.label for each in shapes.SHAPES if not each.label.isupper()), "Process", "Lease")
"""Of all nodes that are ragmem's."""
_SHOWN = 3


def _named(file: str) -> dict[str, str]:
    return {name.replace("_", " "): held for name, held in named_statements(file).items()}


def _promises() -> dict[str, str]:
    """The statements that list what breaks a promise, by the promise in words."""
    found = _named("checks.cypher")
    for each in shapes.NODES:
        told = f"RETURN collect(coalesce(n.{each.key}, '?')) AS found"
        if each.held_by:
            home = f"(:ConversationSession {{sessionId: n.sessionId}})-[:{each.held_by}]->(n)"
            found[f"{each.called} belongs to its session"] = f"""
                MATCH (n:{each.label})
                WHERE COUNT {{ (n)<-[:{each.held_by}]-() }} <> 1 OR NOT EXISTS {{ {home} }}
                {told}
                """
        # The Community edition can't ask for properties to be there.
        if each.needs:
            missing = f"MATCH (n:{each.label}) WHERE {each.lacking} {told}"
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
"""The same of what an older schema has nothing of."""


async def check(gateway: Gateway, *, derived: bool = True) -> list[Finding]:
    """What is broken: links, indexes of turns, counters, and what is searched."""
    found: dict[str, list[Any]] = {shapes.TYPES: await shapes.mistyped(gateway)}
    # What compares or counts such values tells nothing.
    if not found[shapes.TYPES]:
        for promise, statement in (PROMISES | (DERIVED if derived else {})).items():
            # Each by itself: the deadline is for one, and together they would be no snapshot.
            found[promise] = await gateway.read(partial(Transaction.found, statement=statement))
        found["what stands on a memory can be read"] = await gateway.read(memories.unreadable)
        found[WORDS] = await _other_words(gateway) if derived else []
    return [
        Finding(what, ", ".join(sorted(map(str, ids))[:_SHOWN]), len(ids))
        for what, ids in found.items()
        if ids
    ]


_GRAPH = named_statements("graph.cypher")
_PAGE = 500
_WIPED_AT_ONCE = 2_000


class Repair:
    """A graph that may lack its constraints: looked through, read out, and emptied."""

    def __init__(self, gateway: Gateway, server: schema.Server) -> None:
        self.store_id = server.store_id
        self.cut_off = server.repairs
        """The file that one which was cut off has read out the graph into."""
        self._gateway = gateway
        self._is_current = server.schema_version == schema.VERSION
        self._read = 0
        """The sum of the hashes of all that was read out last, in whichever order."""

    @classmethod
    async def open(cls, connection: Connection, *, timeout_s: float) -> "Repair":
        """Connect, and change nothing; StoreRefused for a newer schema, as the store does."""
        gateway = Gateway(connection, timeout_s)
        try:
            return cls(gateway, await schema.look(gateway))
        except BaseException:
            await gateway.aclose()
            raise

    async def findings(self) -> list[Finding]:
        """What is broken; of what an older schema has nothing of, nothing."""
        return await check(self._gateway, derived=self._is_current)

    async def graph(self) -> AsyncIterator[Sequence[Row]]:
        """Every node and relationship of ragmem's, as it is, in portions."""
        ids, read = await self._found("node_ids", labels=LABELS), 0
        for name in ("nodes", "relationships"):
            for start in range(0, len(ids), _PAGE):
                rows = await self._found(name, ids=ids[start : start + _PAGE])
                told = (msgspec.json.encode(row, order="sorted") for row in rows)
                read += sum(int.from_bytes(sha256(row).digest()) for row in told)
                yield rows
        self._read = read

    async def refuse_while_used(self) -> None:
        """StoreRefused while a process works in a session: what it writes would be lost."""
        if await self._found("live_processes"):
            raise StoreRefused(
                "The graph can't be repaired while a process is using one of its sessions.",
                hint="Close the chats that use it, and run this again; one that was killed counts "
                "for half a minute.",
            )

    async def empty(self, kept: Path) -> None:
        """Delete all of ragmem's, but the graph's id; StoreRefused where it was written to since
        it was read out into that file. Until `end` the graph says that it is being repaired."""
        if not self.cut_off:
            await self.refuse_while_used()
            before = self._read
            async for _ in self.graph():
                pass
            if self._read != before:
                raise StoreRefused(
                    "The graph was changed while it was being read.", hint="Run this again."
                )
            begin = partial(Transaction.run, statement=_GRAPH["begin"], kept=str(kept))
            await self._gateway.write(partial(begin, storeId=self.store_id or None))
        empty = partial(
            Transaction.found, statement=_GRAPH["empty"], labels=LABELS, limit=_WIPED_AT_ONCE
        )
        while await self._gateway.write(empty):
            pass
        if self.store_id:
            await self._gateway.write(partial(schema.set_store_id, store_id=self.store_id))

    async def end(self, due: Sequence[str] = ()) -> None:
        """Let the graph be used again; these turns are to be looked through for memories."""
        note = partial(Transaction.run, statement=STATEMENTS["memories_due"], ids=due)
        await self._gateway.write(note)
        await self._gateway.write(partial(Transaction.run, statement=_GRAPH["end"]))

    async def aclose(self) -> None:
        """Let go of the server."""
        await self._gateway.aclose()

    async def _found(self, name: str, **parameters: Value) -> list[Any]:
        return await self._gateway.read(lambda tx: tx.found(_GRAPH[name], **parameters))

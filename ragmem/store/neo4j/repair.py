"""Whether a graph keeps its promises, and one that does not made whole without losing any of it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from ragmem.errors import StoreRefused
from ragmem.ids import new_id
from ragmem.records import Finding
from ragmem.store.neo4j import belonging, memories, schema, shapes
from ragmem.store.neo4j.entries import (
    STATEMENTS,
    index_summaries,
    index_turns,
    summary_entries,
    turn_entries,
)
from ragmem.store.neo4j.gateway import (
    Connection,
    Gateway,
    Row,
    Transaction,
    Value,
    named_statements,
)
from ragmem.store.neo4j.memories import STATEMENTS as MEMORIES
from ragmem.store.neo4j.shapes import Properties, title_key

CHECKS = named_statements("recall_checks.cypher")
WORDS = "what is found by words is what is said"
_PAGE_OF_ENTRIES = 200
_ALL_UP_TO = 5_000
"""Turns or summaries whose words are all compared; of more every sixteenth is."""
_ROUNDS_OF_ENTRIES = 3
Expected = Callable[[Transaction, Sequence[str]], Awaitable[list[Properties]]]


async def wrong(gateway: Gateway) -> dict[str, list[str]]:
    """Ids of what breaks a promise, by promise."""
    found = {}
    for name, statement in CHECKS.items():
        if ids := await gateway.read(partial(Transaction.found, statement=statement)):
            found[name.replace("_", " ")] = [str(each) for each in ids]
    if ids := await _other_words(gateway):
        found[WORDS] = ids
    return found


def findings(found: Mapping[str, Sequence[str]], *, shown: int | None = None) -> list[Finding]:
    """The same to be told."""
    return [Finding(name, ", ".join(sorted(ids)[:shown]), len(ids)) for name, ids in found.items()]


async def _other_words(gateway: Gateway) -> list[str]:
    found: list[str] = []
    for name, expected in (
        ("turn_entry_ids", turn_entries),
        ("summary_entry_ids", summary_entries),
    ):
        ids = await gateway.read(partial(Transaction.found, statement=STATEMENTS[name]))
        if len(ids) > _ALL_UP_TO:
            ids = ids[::16]
        for start in range(0, len(ids), _PAGE_OF_ENTRIES):
            part = ids[start : start + _PAGE_OF_ENTRIES]

            async def compare(
                tx: Transaction, part: Sequence[str] = part, expected: Expected = expected
            ) -> list[str]:
                entries = await expected(tx, part)
                other: list[str] = await tx.found(
                    STATEMENTS["entries_of_other_words"], entries=entries
                )
                return other

            found += await gateway.read(compare)
    return found


async def mend(gateway: Gateway) -> dict[str, list[str]]:
    """Make again what is wrong, as often as it takes; ids by promise."""
    done: dict[str, list[str]] = {}
    for _ in range(_ROUNDS_OF_ENTRIES):
        found = await wrong(gateway)
        if not found:
            break
        for name, ids in found.items():
            done.setdefault(name, []).extend(ids)
        await _make_again(gateway, found)
    return done


async def _make_again(gateway: Gateway, found: Mapping[str, Sequence[str]]) -> None:
    strange = found.get("what can be found is there", [])
    foreign = found.get("vectors are of the stores embedder", [])
    open_turns = found.get("what is to be looked through is complete", [])
    everything = sorted({each for ids in found.values() for each in ids})
    for start in range(0, len(everything), _PAGE_OF_ENTRIES):
        part = everything[start : start + _PAGE_OF_ENTRIES]

        async def again(tx: Transaction, part: Sequence[str] = part) -> None:
            gone = [each for each in part if each in strange]
            await tx.run(STATEMENTS["remove_entries"], ids=gone, nameless="?" in gone)
            unlike = [each for each in part if each in foreign]
            await tx.run(STATEMENTS["remove_vectors"], ids=unlike)
            await tx.run(MEMORIES["remove_small_vectors"], ids=unlike)
            await tx.run(MEMORIES["memories_changed"])
            running = [each for each in part if each in open_turns]
            await tx.run(MEMORIES["mark_extracted"], ids=running)
            if gone or unlike:
                await tx.run(STATEMENTS["count_epoch"])
            await index_turns(tx, part, keep_vectors=True)
            await index_summaries(tx, part)
            await tx.run(STATEMENTS["note_roll_ups"], ids=part)
            await tx.run(MEMORIES["note_vectors_due"], ids=part)

        await gateway.write(again)


LABELS = (*(each.label for each in shapes.SHAPES if each.is_node), "Process", "Lease")
"""Of all nodes that are ragmem's."""
_SHOWN = 3


def _promises() -> dict[str, str]:
    """The statements that list what breaks a promise, by the promise in words."""
    found = {
        name.replace("_", " "): statement
        for name, statement in named_statements("checks.cypher").items()
    }
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
        if each.fill:
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


async def check(gateway: Gateway, *, recall: bool = True) -> list[Finding]:
    """What is broken: links, indexes of turns, counters, and what is searched."""
    found = await shapes.check(gateway, shown=_SHOWN)
    if any(each.what == shapes.TYPES for each in found):
        # What compares or counts such values tells nothing before they are mended.
        return found
    for promise, statement in PROMISES.items():
        # Each by itself: the deadline is for one, and one transaction would be no snapshot either.
        if broken := await gateway.read(partial(Transaction.found, statement=statement)):
            found.append(Finding(promise, ", ".join(sorted(broken)[:_SHOWN]), len(broken)))
    if unreadable := await gateway.read(memories.unreadable):
        what = "what stands on a memory can be read"
        found.append(Finding(what, ", ".join(sorted(unreadable)[:_SHOWN]), len(unreadable)))
    if recall:
        found += await belonging.check(gateway, shown=_SHOWN)
        found += findings(await wrong(gateway), shown=_SHOWN)
    return found


def _filled(shape: shapes.Shape) -> str:
    """The fields that are missing get what they are when nothing is known."""
    filled = ", ".join(
        f"n.{name} = coalesce(n.{name}, {what})" for name, what in shape.fill.items()
    )
    missing = " OR ".join(f"n.{name} IS NULL" for name in shape.fill)
    home = f"OPTIONAL MATCH (home:ConversationSession)-[place:{shape.held_by}]->(n)"
    return f"""
        MATCH (n:{shape.label})
        WHERE {missing}
        {home if shape.held_by else ""}
        WITH n{", head(collect(home)) AS s, head(collect(place)) AS h" if shape.held_by else ""}
        SET {filled}
        RETURN collect(n.{shape.key}) AS found
        """


def _of_a_session(shape: shapes.Shape) -> Iterator[tuple[str, str]]:
    """A session is made for what has lost its own; and each is in the one that it says, alone."""
    yield (
        f"made a session for {shape.called} whose own is lost",
        f"""
        MATCH (n:{shape.label})
        WHERE NOT EXISTS {{ (:ConversationSession {{sessionId: n.sessionId}}) }}
        WITH n.sessionId AS sessionId, min(n.{shape.time}) AS at
        CREATE (s:ConversationSession {{sessionId: sessionId}})
        SET s += $made, s.startTime = at, s.updatedAt = at, s.lastActivity = at
        RETURN collect(sessionId) AS found
        """,
    )
    name, _, said = shape.place.partition(": ")
    place = f" {{{name}: n.{said}}}" if said else ""
    yield (
        f"put {shape.called} into its session",
        f"""
        MATCH (n:{shape.label})
        MATCH (s:ConversationSession {{sessionId: n.sessionId}})
        WHERE NOT EXISTS {{ (s)-[:{shape.held_by}]->(n) }}
        CREATE (s)-[:{shape.held_by}{place}]->(n)
        RETURN collect(n.{shape.key}) AS found
        """,
    )
    home = f"(:ConversationSession {{sessionId: n.sessionId}})-[:{shape.held_by}]->(n)"
    yield (
        f"took {shape.called} out of sessions that are not its own",
        f"""
        MATCH (n:{shape.label})<-[h:{shape.held_by}]-(s)
        WHERE EXISTS {{ {home} }}
        WITH n, h ORDER BY s:ConversationSession AND s.sessionId = n.sessionId DESC
        WITH n, collect(h) AS held
        WHERE size(held) > 1
        FOREACH (h IN held[1..] | DELETE h)
        RETURN collect(n.{shape.key}) AS found
        """,
    )


def _steps() -> dict[str, str]:
    """The statements that each mend one kind of damage, in order, by what they have done."""
    own = {
        name.replace("_", " "): statement
        for name, statement in named_statements("repair.cypher").items()
    }
    ids = {name: statement for name, statement in own.items() if name.endswith("id of its own")}
    for each in shapes.NODES:
        name = f"gave {each.called} an id of its own"
        if not each.is_told:
            name = f"set a double {each.called.partition(' ')[2]} aside"
        ids.setdefault(name, each.own_id)
    held = [each for each in shapes.NODES if each.held_by]
    filled = {
        f"filled in the fields of {each.called}": _filled(each)
        for each in shapes.NODES
        if each.fill
    }
    return ids | filled | dict(step for each in held for step in _of_a_session(each)) | own


_STEPS = _steps()
_GRAPH = named_statements("graph.cypher")
_PAGE = 500
_ROUNDS = 50
"""More than the generations of forks that one damage may run through."""
_TITLE = "Salvaged session"


class Repair:
    """One attempt on one database, which may lack its constraints."""

    def __init__(self, gateway: Gateway, server: schema.Server, owner: str = "") -> None:
        self._gateway = gateway
        self._server = server
        self._owner = owner

    @classmethod
    async def open(cls, connection: Connection, *, timeout_s: float, owner: str = "") -> "Repair":
        """Connect, and change nothing; StoreRefused for a newer schema, as the store does.

        What is found to be nobody's because it is of an older schema will be `owner`'s.
        """
        gateway = Gateway.connect(connection, timeout_s)
        try:
            return cls(gateway, await schema.look(gateway), owner)
        except BaseException:
            await gateway.aclose()
            raise

    async def findings(self) -> list[Finding]:
        """What is broken, constraints and indexes that are missing among it."""
        # Before the schema that has it there is nothing to be searched.
        recall = self._server.schema_version == schema.VERSION
        found = await check(self._gateway, recall=recall)
        if self._server.schema_version == schema.VERSION and (
            missing := schema.missing(self._server)
        ):
            names = ", ".join(sorted(missing))
            found.append(Finding("constraints and indexes are there", names, len(missing)))
        return found

    async def graph(self) -> AsyncIterator[Sequence[Row]]:
        """Every node and relationship of ragmem's, as it is, in portions."""
        ids = await self._read(_GRAPH["node_ids"], labels=LABELS)
        for statement in (_GRAPH["nodes"], _GRAPH["relationships"]):
            for start in range(0, len(ids), _PAGE):
                yield await self._read(statement, ids=ids[start : start + _PAGE])

    async def mend(self, at: datetime) -> list[Finding]:
        """Mend all that can be; what was done, with the ids of all that was changed."""
        done: dict[str, list[str]] = {}
        parameters: dict[str, Value] = {
            "at": at,
            "salvagedId": new_id(),
            "title": _TITLE,
            "made": {
                "cwd": "/",
                "projectId": "salvaged",
                "title": _TITLE,
                "titleFolded": title_key(_TITLE),
                "tags": (),
                "status": "active",
                "turnCount": 0,
                "messageCount": 0,
            },
        }
        # First: the other steps compare and sort.
        changes = await shapes.mend(self._gateway)
        for _ in range(_ROUNDS):
            changed = False
            for name, statement in _STEPS.items():
                if ids := await self._write(statement, parameters):
                    done.setdefault(name, []).extend(map(str, ids))
                    changed = True
            if not changed:
                break
        changes += [
            Finding(name, ", ".join(dict.fromkeys(ids)), len(ids)) for name, ids in done.items()
        ]
        if ids := await self._gateway.write(memories.set_unreadable_aside):
            what = "set aside what could not be read on a memory"
            changes.append(Finding(what, ", ".join(ids), len(ids)))
        if names := await self._make_schema():
            what = "made the constraints and indexes that were missing"
            changes.append(Finding(what, ", ".join(names), len(names)))
        changes += await belonging.mend(self._gateway)
        for name, again in (await mend(self._gateway)).items():
            what = f"made again, since it was not so: {name}"
            changes.append(Finding(what, ", ".join(dict.fromkeys(again)), len(again)))
        if changes:
            await self._gateway.write(memories.memories_changed)
        return changes

    async def aclose(self) -> None:
        """Let go of the server."""
        await self._gateway.aclose()

    async def _make_schema(self) -> list[str]:
        missing = sorted(schema.missing(self._server))
        try:
            await schema.prepare(self._gateway, owner=self._owner)
        except StoreRefused:
            # Something that is not ragmem's stands in the way: all else is mended.
            return []
        self._server = await schema.look(self._gateway)
        return missing

    async def _read(self, statement: str, **parameters: Value) -> list[Row]:
        return await self._gateway.read(lambda tx: tx.found(statement, **parameters))

    async def _write(self, statement: str, parameters: dict[str, Value]) -> list[str]:
        return await self._gateway.write(lambda tx: tx.found(statement, **parameters))

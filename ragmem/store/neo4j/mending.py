"""What is derived for search: looked through, and made again where it is wrong."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from ragmem.records import Finding
from ragmem.store.neo4j.entries import (
    STATEMENTS,
    index_summaries,
    index_turns,
    summary_entries,
    turn_entries,
)
from ragmem.store.neo4j.gateway import Gateway, Transaction, named_statements
from ragmem.store.neo4j.memories import STATEMENTS as MEMORIES
from ragmem.store.neo4j.shapes import Properties

CHECKS = named_statements("recall_checks.cypher")
WORDS = "what is found by words is what is said"
_PAGE = 200
_ALL_UP_TO = 5_000
"""Turns or summaries whose words are all compared; of more every sixteenth is."""
_ROUNDS = 3
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
        for start in range(0, len(ids), _PAGE):
            part = ids[start : start + _PAGE]

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
    for _ in range(_ROUNDS):
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
    for start in range(0, len(everything), _PAGE):
        part = everything[start : start + _PAGE]

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

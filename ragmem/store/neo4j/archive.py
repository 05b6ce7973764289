"""Everything that is stored, read by span and by id; and a session, deleted."""

from collections.abc import Sequence
from functools import partial

from ragmem.records import FileAccess, Finding, PutTurn, Session, Span, Summary, Turn
from ragmem.store.base import forked, in_use
from ragmem.store.neo4j import belonging, code, memories, properties, repair, shapes
from ragmem.store.neo4j.entries import STATEMENTS as RECALL
from ragmem.store.neo4j.entries import index_turns
from ragmem.store.neo4j.gateway import Gateway, Row, Transaction, from_text, named_statements
from ragmem.store.neo4j.writes import Batch

STATEMENTS = named_statements("archive.cypher")
_CHECKS = {
    name: statement
    for file in ("checks.cypher", "memory_checks.cypher", "code_checks.cypher")
    for name, statement in named_statements(file).items()
}
_SHOWN = 3


async def spans(tx: Transaction) -> list[Span]:
    """Every session with all of its own turns."""
    return tx.read.records(_span, await tx.found(STATEMENTS["spans"]))


def _span(row: Row) -> Span:
    return shapes.checked(
        Span,
        session_id=row["sessionId"],
        first=(row.get("forkedAtIndex") or 0) + 1,
        last=row["turnCount"],
        parent_id=row.get("parentSessionId"),
    )


async def sessions_by_id(tx: Transaction, session_ids: Sequence[str]) -> list[Session]:
    """Those of them that exist, in this order."""
    found = await tx.found(STATEMENTS["sessions_by_id"], ids=session_ids)
    return tx.read.records(shapes.to_session, found)


async def own_turns(tx: Transaction, wanted: Sequence[Span]) -> list[PutTurn]:
    """The turns in these spans, each with its tool calls and their accesses."""
    given: list[shapes.Properties] = [
        {"sessionId": each.session_id, "first": each.first, "last": each.last} for each in wanted
    ]
    return tx.read.records(_whole, await tx.found(STATEMENTS["own_turns"], spans=given))


def _whole(row: Row) -> PutTurn:
    for held in (row, *row["calls"], *row["accesses"]):
        for name in ("timestamp", "finishedAt", "at"):
            if text := held.get(name):
                held[name] = from_text(text)
    turn = shapes.to_turn(row)
    orders = {call.tool_call_id: call.order for call in turn.tool_calls}
    accesses: dict[str, list[FileAccess]] = {}
    for access in row["accesses"]:
        call_id = access["toolCallId"]
        if call_id in orders:
            place = {"turnIndex": turn.turn_index, "order": orders[call_id]}
            accesses.setdefault(call_id, []).append(shapes.to_access(access | place))
    return PutTurn(
        turn=turn,
        accesses={
            call.tool_call_id: tuple(accesses[call.tool_call_id])
            for call in turn.tool_calls
            if call.tool_call_id in accesses
        },
    )


async def turns_by_id(tx: Transaction, turn_ids: Sequence[str]) -> list[Turn]:
    """Those of them that exist, with their tool calls, in this order."""
    return tx.read.records(shapes.to_turn, await tx.found(RECALL["turns_by_id"], ids=turn_ids))


async def summaries_by_id(tx: Transaction, summary_ids: Sequence[str]) -> list[Summary]:
    """Those of them that exist, in this order."""
    found = await tx.found(STATEMENTS["summaries_by_id"], ids=summary_ids)
    return tx.read.records(shapes.to_summary, found)


async def summary_ids(tx: Transaction) -> list[str]:
    """Every summary; one stands after those that it covers."""
    return await tx.found(STATEMENTS["summary_ids"])


async def branches(tx: Transaction, session_id: str) -> list[Session]:
    """The sessions that were forked from this one, oldest first."""
    found = await tx.found(STATEMENTS["branches"], sessionId=session_id)
    return await sessions_by_id(tx, found)


async def delete_session(tx: Transaction, session_id: str) -> dict[str, int]:
    """Remove a session and all that belongs to it alone; counts of what went, by kind."""
    scopes = await code.hold_scopes_of(tx, session_id)
    await Batch(tx).lock(session_id)
    if forks := await branches(tx, session_id):
        raise forked(session_id, forks[0].session_id)
    if await tx.found(STATEMENTS["live_owners"], sessionId=session_id):
        raise in_use(session_id)
    await tx.run(STATEMENTS["delete_files_of"], sessionId=session_id)
    ids = await tx.found(STATEMENTS["records_of"], sessionId=session_id)
    await tx.run(STATEMENTS["delete_leases_of"], ids=ids)
    await tx.run(RECALL["forget_attempts"], sessionId=session_id, item="")
    # Whoever holds its vectors in memory reads anew.
    await tx.run(RECALL["count_epoch"])
    await tx.run(STATEMENTS["delete_entries_of"], sessionId=session_id)
    covered = await tx.found(STATEMENTS["covered_elsewhere"], sessionId=session_id)
    gone = {"memories": await memories.forget_session(tx, session_id)}
    for kind, statement in (
        ("tool_calls", "delete_tool_calls_of"),
        ("turns", "delete_turns_of"),
        ("summaries", "delete_summaries_of"),
        ("sessions", "delete_session"),
    ):
        [row] = await tx.run(STATEMENTS[statement], sessionId=session_id)
        gone[kind] = int(row["gone"])
    await code.forget_scopes(tx, scopes)
    # Turns that a fork shared and summed up are to be summed up again.
    await index_turns(tx, covered, keep_vectors=True)
    kinds = ("sessions", "turns", "tool_calls", "summaries", "memories")
    return {kind: gone[kind] for kind in kinds}


async def check(gateway: Gateway, *, recall: bool = True) -> list[Finding]:
    """What is broken: links, indexes of turns, counters, and what is searched."""
    findings = await properties.check(gateway, shown=_SHOWN)
    if any(each.what == properties.TYPES for each in findings):
        # What compares or counts such values tells nothing before they are mended.
        return findings
    for name, statement in _CHECKS.items():
        # Each by itself: the deadline is for one, and one transaction would be no snapshot either.
        if broken := await gateway.read(partial(Transaction.found, statement=statement)):
            where = ", ".join(sorted(broken)[:_SHOWN])
            findings.append(Finding(name.replace("_", " "), where, len(broken)))
    if unreadable := await gateway.read(memories.unreadable):
        what = "what stands on a memory can be read"
        findings.append(Finding(what, ", ".join(sorted(unreadable)[:_SHOWN]), len(unreadable)))
    if recall:
        findings += await belonging.check(gateway, shown=_SHOWN)
        findings += repair.findings(await repair.wrong(gateway), shown=_SHOWN)
    return findings

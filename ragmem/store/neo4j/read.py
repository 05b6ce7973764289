"""Queries for sessions, turns, summaries and projects: see `ragmem.store` for the guarantees."""

from collections.abc import Callable, Sequence

import msgspec

from ragmem.records import (
    ALL_TURNS,
    AnyRecord,
    FileAccess,
    Project,
    PutTurn,
    Session,
    SessionQuery,
    Span,
    Summary,
    ToolCall,
    Turn,
    TurnQuery,
)
from ragmem.store import AHEAD, MOST_FOUND, forked, in_order, in_use, join_conditions, put_turn
from ragmem.store.neo4j import code, memories, shapes
from ragmem.store.neo4j.entries import STATEMENTS as RECALL, index_turns
from ragmem.store.neo4j.gateway import (
    STATEMENTS,
    Row,
    Transaction,
    Value,
    from_text,
    named_statements,
)
from ragmem.store.neo4j.writes import Batch, lineage, not_found
from ragmem.text import clean

_ALL = 2**31 - 1
_ALL_CHARS = 2**62


async def session(tx: Transaction, session_id: str) -> Session:
    """Return one session; SessionNotFound if there is none."""
    found = await _sessions(tx, "s.sessionId = $id", limit=1, id=session_id)
    if not found:
        raise not_found("session", session_id)
    return found[0]


async def sessions(tx: Transaction, query: SessionQuery) -> list[Session]:
    """Return the sessions that match, newest activity first."""
    owner = tx.owner if query.mine else ""
    conditions = join_conditions(
        (query.cwd is not None, "s.cwd = $cwd"),
        (query.project_ids, "s.projectId IN $project_ids"),
        (query.status is not None, "s.status = $status"),
        (owner, "s.owner = $owner"),
        (query.tags, "any(tag IN s.tags WHERE tag IN $tags)"),
    )
    given = msgspec.structs.asdict(query) | {"owner": owner}
    if query.cwd is not None or query.project_ids:
        return await _sessions(tx, conditions, **given)
    # Without a folder or project the newest come from an index, unsorted; then those that a wrong
    # clock has put into the future.
    found = await _sessions(tx, f"{conditions} AND s.lastActivity <= $horizon", **given)
    if len(found) < query.limit:
        given["limit"] = query.limit - len(found)
        found += await _sessions(tx, f"{conditions} AND s.lastActivity > $horizon", **given)
    return found


async def find_sessions(tx: Transaction, reference: str, *, mine: bool = False) -> list[Session]:
    """Find sessions by their id, the end of it, or their casefolded title."""
    if not reference:
        return []
    conditions = join_conditions(
        (True, "(s.sessionId ENDS WITH $reference OR s.titleFolded = $folded)"),
        (mine and tx.owner, "s.owner = $owner"),
    )
    given = {"reference": reference, "folded": shapes.title_key(reference), "owner": tx.owner}
    return await _sessions(tx, conditions, limit=MOST_FOUND, **given)


async def turns(tx: Transaction, session_id: str, query: TurnQuery = ALL_TURNS) -> list[Turn]:
    """Return turns in order, each with its tool calls in order."""
    found = await _from_turns(
        tx, session_id, query, STATEMENTS["turns"], withToolCalls=query.with_tool_calls
    )
    return tx.read.records(shapes.to_turn, found)


async def file_accesses(
    tx: Transaction, session_id: str, *, max_turn_chars: int
) -> list[FileAccess]:
    """Return file accesses of the newest turns, up to this many characters; newest first."""
    query = TurnQuery(max_chars=max_turn_chars)
    found = await _from_turns(tx, session_id, query, STATEMENTS["file_accesses"])
    return shapes.records(tx, FileAccess, found)


async def find_tool_call(tx: Transaction, session_id: str, reference: str) -> ToolCall | None:
    """Return the newest call of a session whose id, without dashes, ends with the reference."""
    spans = await _spans(tx, session_id)
    found = await tx.run(
        STATEMENTS["find_tool_call"], spans=spans, reference=reference.replace("-", "")
    )
    calls = [row["call"] | {"turnId": row["turnId"]} for row in found]
    return next(iter(shapes.records(tx, ToolCall, calls)), None)


async def summaries(
    tx: Transaction,
    session_id: str,
    *,
    level: int | None = None,
    not_rolled_up: bool = False,
    limit: int | None = None,
) -> list[Summary]:
    """Return summaries, newest first; with `not_rolled_up`, those that no higher one covers."""
    await _spans(tx, session_id)
    return await _summaries(
        tx,
        "summaries_of_session",
        sessionId=session_id,
        level=level,
        notRolledUp=not_rolled_up,
        limit=_ALL if limit is None else limit,
    )


async def _summaries(tx: Transaction, which: str, **parameters: Value) -> list[Summary]:
    statement = STATEMENTS["summaries"].replace("/* which */", STATEMENTS[which])
    return shapes.records(tx, Summary, await tx.found(statement, **parameters))


async def raw_history_chars(tx: Transaction, session_id: str) -> int:
    """Count the characters of completed turns that no level-1 summary covers."""
    spans = await _spans(tx, session_id)
    [row] = await tx.run(STATEMENTS["raw_history_chars"], spans=spans)
    return int(row["chars"])


async def projects(tx: Transaction) -> list[Project]:
    """Return every known project."""
    return shapes.records(tx, Project, await tx.found(STATEMENTS["projects"]))


async def _sessions(
    tx: Transaction, conditions: str, *, limit: int, **parameters: Value
) -> list[Session]:
    # Only the conditions that apply: `$x IS NULL OR …` would prevent the use of indexes.
    statement = STATEMENTS["sessions"].replace("/* conditions */", f"WHERE {conditions}")
    if "$horizon" in conditions:  # all are on the same side of it
        statement = statement.replace("ORDER BY s.lastActivity > $horizon, ", "ORDER BY ")
    horizon = tx.now + AHEAD
    found = await tx.found(statement, limit=limit, horizon=horizon, **parameters)
    return shapes.records(tx, Session, found)


async def _spans(tx: Transaction, session_id: str) -> list[dict[str, Value]]:
    spans = await lineage(tx, session_id)
    if not spans:
        raise not_found("session", session_id)
    return spans


async def _from_turns(
    tx: Transaction, session_id: str, query: TurnQuery, statement: str, **parameters: Value
) -> list[Row]:
    """Run a statement on the ids, as `ids`, of the turns that a query asks for."""
    chosen = STATEMENTS["choose_turns"]
    row = await tx.first_row(
        f"{chosen} CALL (ids) {{ {statement} }} RETURN exists, found",
        sessionId=session_id,
        last=None if query.before_index is None else query.before_index - 1,
        statuses=query.statuses,
        limit=_ALL if query.limit is None else query.limit,
        maxChars=_ALL_CHARS if query.max_chars is None else query.max_chars,
        **parameters,
    )
    if row is None or not row["exists"]:
        raise not_found("session", session_id)
    found: list[Row] = row["found"]
    return found


async def by_id(tx: Transaction, kind: type[AnyRecord], ids: Sequence[str]) -> list[AnyRecord]:
    """Return those records that exist, of a kind stored as one node, in this order."""
    shape = shapes.shape_of(kind)
    statement = f"""
        UNWIND range(0, size($ids) - 1) AS i
        MATCH (n:{shape.label} {{{shape.key}: $ids[i]}})
        WITH i, n
        ORDER BY i
        RETURN collect(n{{.*}}) AS found
        """
    return shapes.records(tx, kind, await tx.found(statement, ids=ids))


# --- everything, by span and by id ------------------------------------------------------


ARCHIVE = named_statements("archive.cypher")


async def spans(tx: Transaction) -> list[Span]:
    """Return a span for every session, of all its own turns."""
    return tx.read.records(_span, await tx.found(ARCHIVE["spans"]))


def _span(row: Row) -> Span:
    span = {
        "session_id": row["sessionId"],
        "first": (row.get("forkedAtIndex") or 0) + 1,
        "last": row["turnCount"],
        "parent_id": row.get("parentSessionId"),
    }
    return msgspec.convert(span, Span)


async def sessions_by_id(tx: Transaction, ids: Sequence[str]) -> list[Session]:
    """Return those sessions that exist, in this order."""
    return in_order(await _sessions(tx, "s.sessionId IN $ids", limit=len(ids), ids=ids), ids)


async def own_turns(tx: Transaction, wanted: Sequence[Span]) -> list[PutTurn]:
    """Return the turns in these spans, each with its tool calls and their accesses."""
    given: list[shapes.Properties] = [
        {"sessionId": each.session_id, "first": each.first, "last": each.last} for each in wanted
    ]
    return tx.read.records(_to_put_turn, await tx.found(ARCHIVE["own_turns"], spans=given))


def _to_put_turn(row: Row) -> PutTurn:
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
            accesses.setdefault(call_id, []).append(shapes.to_record(FileAccess, access | place))
    return put_turn(turn, accesses, to_extract=row["toExtract"])


async def turns_by_id(tx: Transaction, ids: Sequence[str]) -> list[Turn]:
    """Return those turns that exist, with their tool calls, in this order."""
    statement = f"WITH $ids AS ids {STATEMENTS['turns']}"
    found = await tx.found(statement, ids=sorted(set(map(clean, ids))), withToolCalls=True)
    return in_order(tx.read.records(shapes.to_turn, found), ids)


async def summaries_by_id(tx: Transaction, ids: Sequence[str]) -> list[Summary]:
    """Return those summaries that exist, in this order."""
    found = await _summaries(tx, "summaries_by_id", ids=sorted(set(map(clean, ids))))
    return in_order(found, ids)


async def summary_ids(tx: Transaction) -> list[str]:
    """Return the id of every summary, each after those that it covers."""
    return await tx.found(ARCHIVE["summary_ids"])


async def branches(tx: Transaction, session_id: str) -> list[Session]:
    """Return the sessions forked from this one, oldest first."""
    found = await tx.found(ARCHIVE["branches"], sessionId=session_id)
    return await sessions_by_id(tx, found)


async def delete_session(
    tx: Transaction, session_id: str, *, first: Callable[[dict[str, int]], None] = lambda _: None
) -> dict[str, int]:
    """Delete a session and all that belongs to it alone; return counts of the deleted, by kind."""
    scopes = await code.hold_scopes_of(tx, session_id)
    await Batch(tx).lock(session_id)
    if forks := await branches(tx, session_id):
        raise forked(session_id, forks[0].session_id)
    if await tx.run(STATEMENTS["other_owners"], sessionId=session_id, ownerId=""):
        raise in_use(session_id)
    await tx.run(ARCHIVE["delete_files_of"], sessionId=session_id)
    ids = await tx.found(ARCHIVE["records_of"], sessionId=session_id)
    await tx.run(ARCHIVE["delete_leases_of"], ids=ids)
    await tx.run(RECALL["forget_attempts"], sessionId=session_id, item="")
    # Vectors cached by other processes must be read again.
    await tx.run(RECALL["count_epoch"])
    await tx.run(ARCHIVE["delete_entries_of"], sessionId=session_id)
    covered = await tx.found(ARCHIVE["covered_elsewhere"], sessionId=session_id)
    gone = {"memories": await memories.forget_session(tx, session_id)}
    of_session = "{sessionId: $sessionId}"
    for kind, which in (
        *((each.label, f"(n:{each.label} {of_session})") for each in shapes.OF_A_SESSION),
        ("tool_calls", f"(:ConversationTurn {of_session})-[:HAS_TOOL_CALL]->(n:ToolCall)"),
        ("turns", f"(n:ConversationTurn {of_session})"),
        ("summaries", f"(n:ConversationSummary {of_session})"),
        ("sessions", f"(n:ConversationSession {of_session})"),
    ):
        delete = f"MATCH {which} DETACH DELETE n RETURN count(n) AS gone"
        [row] = await tx.run(delete, sessionId=session_id)
        gone[kind] = int(row["gone"])
    await code.forget_scopes(tx, scopes)
    # Turns of its parents that this session, a fork, had summarized need a summary again.
    await index_turns(tx, covered, keep_vectors=True)
    kinds = ("sessions", "turns", "tool_calls", "summaries", "memories")
    counts = {kind: gone[kind] for kind in kinds}
    first(counts)
    return counts

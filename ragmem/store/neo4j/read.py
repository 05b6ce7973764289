"""Sessions, turns, summaries and projects, read: see `ragmem.store.base` for the promises."""

from collections.abc import Sequence

from ragmem.records import (
    ALL_TURNS,
    FileAccess,
    Project,
    Session,
    SessionQuery,
    Summary,
    ToolCall,
    Turn,
    TurnQuery,
)
from ragmem.store.base import AHEAD
from ragmem.store.neo4j import shapes
from ragmem.store.neo4j.gateway import STATEMENTS, Transaction, Value
from ragmem.store.neo4j.writes import lineage, not_found

_ALL = 2**31 - 1


async def session(tx: Transaction, session_id: str) -> Session:
    """One session; SessionNotFound when there is none."""
    found = await _sessions(tx, ["s.sessionId = $id"], limit=1, id=session_id)
    if not found:
        raise not_found("session", session_id)
    return found[0]


async def sessions(tx: Transaction, query: SessionQuery) -> list[Session]:
    """The sessions that match, newest activity first."""
    conditions = []
    if query.cwd is not None:
        conditions.append("s.cwd = $cwd")
    if query.project_ids:
        conditions.append("s.projectId IN $projectIds")
    if query.status is not None:
        conditions.append("s.status = $status")
    if query.mine and tx.owner:
        conditions.append("s.owner = $owner")
    if query.tags:
        conditions.append("any(tag IN s.tags WHERE tag IN $tags)")
    given: dict[str, Value] = {
        "cwd": query.cwd,
        "projectIds": query.project_ids,
        "status": query.status,
        "owner": tx.owner,
        "tags": query.tags,
    }
    if query.cwd is not None or query.project_ids:
        return await _sessions(tx, conditions, limit=query.limit, **given)
    # Of all that there are, the newest come from their index, unsorted; then those that a
    # wrong clock has put into the future.
    found = await _sessions(
        tx, [*conditions, "s.lastActivity <= $horizon"], limit=query.limit, **given
    )
    if len(found) < query.limit:
        left = query.limit - len(found)
        future = [*conditions, "s.lastActivity > $horizon"]
        found += await _sessions(tx, future, limit=left, **given)
    return found


async def find_sessions(
    tx: Transaction, reference: str, *, limit: int = 20, mine: bool = False
) -> list[Session]:
    """Those whose id is, or ends with, the reference, or whose title equals it (casefolded)."""
    if not reference:
        return []
    return await _sessions(
        tx,
        [
            "(s.sessionId ENDS WITH $reference OR s.titleFolded = $folded)",
            *(["s.owner = $owner"] if mine and tx.owner else []),
        ],
        limit=limit,
        owner=tx.owner,
        reference=reference,
        folded=shapes.title_key(reference),
    )


async def turns(tx: Transaction, session_id: str, query: TurnQuery = ALL_TURNS) -> list[Turn]:
    """Turns in order, each with its tool calls in order."""
    found = await tx.found(
        STATEMENTS["turns"],
        ids=await _choose_turns(tx, session_id, query),
        withToolCalls=query.with_tool_calls,
    )
    return tx.read.records(shapes.to_turn, found)


async def file_accesses(
    tx: Transaction, session_id: str, *, max_turn_chars: int
) -> list[FileAccess]:
    """Accesses of the newest turns that sum to at most so many characters, newest first."""
    ids = await _choose_turns(tx, session_id, TurnQuery(max_chars=max_turn_chars))
    found = await tx.found(STATEMENTS["file_accesses"], ids=ids)
    return tx.read.records(shapes.to_access, found)


async def find_tool_call(tx: Transaction, session_id: str, reference: str) -> ToolCall | None:
    """The newest call of a session whose id, without its dashes, ends with the reference."""
    spans = await _spans(tx, session_id)
    found = await tx.run(
        STATEMENTS["find_tool_call"], spans=spans, reference=reference.replace("-", "")
    )
    calls = [row["call"] | {"turnId": row["turnId"]} for row in found]
    return next(iter(tx.read.records(shapes.to_tool_call, calls)), None)


async def summaries(
    tx: Transaction,
    session_id: str,
    *,
    level: int | None = None,
    not_rolled_up: bool = False,
    limit: int | None = None,
) -> list[Summary]:
    """Newest first. `not_rolled_up`: those that no higher summary covers."""
    await _spans(tx, session_id)
    found = await tx.found(
        STATEMENTS["summaries"],
        sessionId=session_id,
        level=level,
        notRolledUp=not_rolled_up,
        limit=_ALL if limit is None else limit,
    )
    return tx.read.records(shapes.to_summary, found)


async def raw_history_chars(tx: Transaction, session_id: str) -> int:
    """Characters of completed turns that no level-1 summary covers; 0 for none."""
    spans = await _spans(tx, session_id)
    [row] = await tx.run(STATEMENTS["raw_history_chars"], spans=spans)
    return int(row["chars"])


async def projects(tx: Transaction) -> list[Project]:
    """Every known project."""
    return tx.read.records(shapes.to_project, await tx.found(STATEMENTS["projects"]))


async def _sessions(
    tx: Transaction, conditions: Sequence[str], *, limit: int, **parameters: Value
) -> list[Session]:
    # Only the conditions that are asked for: `$x IS NULL OR …` would keep indexes unused.
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    statement = STATEMENTS["sessions"].replace("/* conditions */", where)
    if "$horizon" in where:  # All are on the same side of it.
        statement = statement.replace("ORDER BY s.lastActivity > $horizon, ", "ORDER BY ")
    horizon = tx.now + AHEAD
    found = await tx.found(statement, limit=limit, horizon=horizon, **parameters)
    return tx.read.records(shapes.to_session, found)


async def _spans(tx: Transaction, session_id: str) -> list[dict[str, Value]]:
    spans = await lineage(tx, session_id)
    if not spans:
        raise not_found("session", session_id)
    return spans


async def _choose_turns(tx: Transaction, session_id: str, query: TurnQuery) -> list[str]:
    """Ids of the turns that the query asks for, newest first."""
    last = None if query.before_index is None else query.before_index - 1
    spans = await lineage(tx, session_id, last=last)
    if not spans:
        raise not_found("session", session_id)
    found = await tx.found(
        STATEMENTS["choose_turns"],
        spans=spans,
        statuses=query.statuses,
        limit=_ALL if query.limit is None else query.limit,
    )
    if query.max_chars is not None:
        found = found[: _fitting([size for _, size in found], query.max_chars)]
    return [turn_id for turn_id, _ in found]


def _fitting(sizes: Sequence[int], budget: int) -> int:
    """How many of the first sizes sum to at most the budget; at least one if there is one."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > budget and count:
            return count
    return len(sizes)

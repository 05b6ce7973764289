"""Records as another store held them, put in their place, many at once."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from ragmem.records import PutTurn, Session, ToolCall, Turn
from ragmem.store.base import misplaced, of_another_turn
from ragmem.store.neo4j import remembering, shapes
from ragmem.store.neo4j.cypher import named_statements
from ragmem.store.neo4j.entries import Words, entry, index_turns, write_turns
from ragmem.store.neo4j.gateway import Row, Transaction
from ragmem.store.neo4j.instants import to_text
from ragmem.text import clean

STATEMENTS = named_statements("puts.cypher")
_CHANGEABLE = ("summary", "summarizedCount", "status", "updatedAt")


async def put_sessions(tx: Transaction, sessions: Sequence[Session]) -> None:
    """Sessions with their own times; of those that are there, what was changed later is kept.

    To be called with those that are there locked.
    """
    ids = [clean(each.session_id) for each in sessions]
    before = await remembering.summaries_before(tx, ids)
    await tx.run(STATEMENTS["put_sessions"], sessions=[_session_row(each) for each in sessions])
    await remembering.note_summaries(tx, ids, before)


async def put_turns(
    tx: Transaction,
    puts: Sequence[PutTurn],
    held: Mapping[str, Row],
    words: Mapping[str, Words],
) -> None:
    """Turns at their own indexes; `held` are their sessions, locked; `words` of new ones."""
    known = await tx.found(STATEMENTS["places"], ids=[put.turn.turn_id for put in puts])
    known_ids = {row["uuid"] for row in known}
    completed = _completed(puts, {row["uuid"]: row for row in known}, held)
    puts = [put for put in puts if put.turn.turn_id not in completed]
    if not puts:
        return
    calls = [_call_row(call) for put in puts for call in put.turn.tool_calls]
    ids = [[call.tool_call_id, call.turn_id] for put in puts for call in put.turn.tool_calls]
    if taken := await tx.found(STATEMENTS["calls_of_others"], ids=ids):
        raise of_another_turn(taken[0])
    await tx.run(STATEMENTS["put_turns"], turns=[_turn_row(put.turn) for put in puts])
    await tx.run(STATEMENTS["put_tool_calls"], calls=calls)
    accesses = [row for put in puts for row in _access_rows(put, held)]
    # By path, so that two writers that touch the same files lock them in the same order.
    accesses.sort(key=lambda row: (str(row["projectId"]), str(row["path"])))
    await tx.run(STATEMENTS["put_accesses"], accesses=accesses)
    await tx.run(STATEMENTS["count_turns"], lasts=[_place(put.turn) for put in puts])
    ended = [_place(put.turn) for put in puts if put.turn.status == "completed"]
    await tx.run(STATEMENTS["count_completed"], completed=ended)
    # Of those that were there, tool calls may be there that came with no put.
    new = [put.turn for put in puts if put.turn.turn_id in words.keys() - known_ids]
    await write_turns(tx, [_entry(each, words[each.turn_id], held) for each in new])
    new_ids = {each.turn_id for each in new}
    others = [put.turn.turn_id for put in puts if put.turn.turn_id not in new_ids]
    if others:
        await index_turns(tx, others)


def _completed(
    puts: Sequence[PutTurn], known: Mapping[str, Row], held: Mapping[str, Row]
) -> set[str]:
    """Ids of those that are complete already; StoreRefused when a place is not free."""
    counts = {session_id: int(session["turnCount"]) for session_id, session in held.items()}
    for put in puts:
        turn = put.turn
        session_id = clean(turn.session_id)
        place = known.get(clean(turn.turn_id))
        if place is not None:
            right = (place["sessionId"], place["turnIndex"]) == (session_id, turn.turn_index)
        else:
            counts[session_id] += 1
            right = turn.turn_index == counts[session_id]
        if not right:
            raise misplaced(session_id, turn.turn_index)
    return {turn_id for turn_id, row in known.items() if row["status"] == "completed"}


def _session_row(session: Session) -> shapes.Properties:
    properties = shapes.session_properties(session)
    changeable = ("cwd", "projectId", "projectPath", "title", "titleFolded", "tags")
    return {
        "sessionId": session.session_id,
        "properties": properties,
        "changeable": {name: properties[name] for name in (*changeable, *_CHANGEABLE)},
        "updatedAt": session.updated_at,
        "lastActivity": session.last_activity_at,
    }


def _turn_row(turn: Turn) -> shapes.Properties:
    return {
        "turnId": turn.turn_id,
        "sessionId": turn.session_id,
        **_with_times_apart(shapes.turn_properties(turn)),
    }


def _with_times_apart(properties: shapes.Properties) -> shapes.Properties:
    times = {
        name: to_text(value) for name, value in properties.items() if isinstance(value, datetime)
    }
    rest = {name: value for name, value in properties.items() if name not in times}
    return {"properties": rest, "times": times}


def _call_row(call: ToolCall) -> shapes.Properties:
    return {
        "turnId": call.turn_id,
        "toolCallId": call.tool_call_id,
        "order": call.order,
        **_with_times_apart(shapes.tool_call_properties(call)),
    }


def _entry(turn: Turn, words: Words, held: Mapping[str, Row]) -> shapes.Properties:
    session_id = clean(turn.session_id)
    return entry(clean(turn.turn_id), session_id, held[session_id]["projectId"], words.terms)


def _access_rows(put: PutTurn, held: Mapping[str, Row]) -> list[shapes.Properties]:
    turn = put.turn
    return [
        {
            "path": shapes.path_key(access.path),
            "toolName": access.tool_name,
            "type": access.access_type,
            "times": {"at": to_text(access.accessed_at)},
            "turnId": turn.turn_id,
            "toolCallId": call.tool_call_id,
            "order": call.order,
            "projectId": held[clean(turn.session_id)]["projectId"],
        }
        for call in turn.tool_calls
        for access in put.accesses.get(call.tool_call_id, ())
    ]


def _place(turn: Turn) -> shapes.Properties:
    return {
        "sessionId": turn.session_id,
        "turnId": turn.turn_id,
        "turnIndex": turn.turn_index,
    }

"""Each Write as Cypher, inside a transaction opened by the store."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from msgspec.structs import asdict

from ragmem.errors import SessionNotFound
from ragmem.ids import short_id
from ragmem.records import (
    OF_SESSIONS,
    AddSummary,
    BeginTurn,
    CreateSession,
    DropCodeFiles,
    FinishTurn,
    MarkExtracted,
    PutCodeFile,
    PutMemory,
    PutOwner,
    PutProfile,
    PutReferences,
    PutSession,
    PutTurn,
    PutVectors,
    RecordAnswer,
    RecordToolCall,
    RegisterProject,
    Session,
    Summary,
    ToolCall,
    Turn,
    UpdateSession,
    Write,
)
from ragmem.store import AHEAD, misplaced, of_another_turn, stored, turn_stays
from ragmem.store.neo4j import belonging, code, memories, shapes
from ragmem.store.neo4j.entries import (
    STATEMENTS as RECALL,
    entry,
    index_turns,
    turn_terms,
    write_summaries,
)
from ragmem.store.neo4j.gateway import STATEMENTS, Row, Transaction, Value, to_text
from ragmem.store.neo4j.vectors import put_vectors
from ragmem.text import clean

_CHANGEABLE = ("summary", "summarizedCount", "status", "updatedAt")


def _changing(
    puts: Sequence[PutTurn], known: Mapping[str, Row], held: Mapping[str, Row]
) -> list[PutTurn]:
    """Return those that change a turn; StoreRefused if an index is not free."""
    changing = []
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
        if place is None or not turn_stays(turn, place["status"], place["userCharCount"] or 0):
            changing.append(put)
    return changing


def _session_row(session: Session) -> shapes.Properties:
    properties = shapes.session_properties(session)
    changeable = ("cwd", "projectPath", "title", "titleFolded", "tags")
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


def not_found(kind: str, record_id: str) -> SessionNotFound:
    """Return the error for a session, turn or summary that does not exist."""
    return SessionNotFound(
        f"There is no {kind} {short_id(record_id)!r}.", hint="`ragmem sessions list` shows them."
    )


class Batch:
    """The writes of one transaction, with the sessions it locked and the turn indexes it gave."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self._horizon = tx.now + AHEAD
        """Later times come from a wrong clock."""
        self._locked: set[str] = set()
        """Ids of sessions."""
        self._projects: list[str] = []
        """Ids of projects that are new, were joined, or were split."""
        self.turn_indexes: dict[str, int] = {}

    async def apply(self, writes: Sequence[Write]) -> None:
        """Run all of them in order; SessionNotFound undoes the transaction.

        Adjacent writes of a kind that comes in large numbers run as one.
        """
        for kind, run in groupby(writes, type):
            if together := _BATCHED.get(kind):
                await together(self, list(run))
            else:
                for write in run:
                    await _ONE_BY_ONE[kind](self, write)
        await belonging.link_written(self.tx, writes, self._projects)

    async def _put_turns(self, puts: Sequence[PutTurn]) -> None:
        held = await self._lock_all({put.turn.session_id for put in puts})
        turn_ids = [put.turn.turn_id for put in puts]
        places = await self.tx.found(STATEMENTS["places"], ids=turn_ids)
        known = {row["uuid"]: row for row in places}
        puts = _changing(puts, known, held)
        if not puts:
            return
        turns = [put.turn for put in puts]
        calls = [call for turn in turns for call in turn.tool_calls]
        ids = [[call.tool_call_id, call.turn_id] for call in calls]
        if taken := await self.tx.found(STATEMENTS["calls_of_others"], ids=ids):
            raise of_another_turn(taken[0])
        await self._run("put_turns", turns=list(map(_turn_row, turns)))
        await self._run("put_tool_calls", calls=list(map(_call_row, calls)))
        accesses = [row for put in puts for row in _access_rows(put, held)]
        # Sorted by path, so that two writers of the same files lock them in the same order.
        accesses.sort(key=lambda row: (str(row["projectId"]), str(row["path"])))
        await self._run("put_accesses", accesses=accesses)
        await self._run("count_turns", lasts=list(map(_place, turns)))
        ended = [_place(turn) for turn in turns if turn.status == "completed"]
        await self._run("count_completed", completed=ended)
        await self._run("memories_due", ids=[put.turn.turn_id for put in puts if put.to_extract])
        # Turns that existed may have tool calls that are in none of these puts.
        new = [turn for turn in map(stored, turns) if turn.turn_id not in known]
        entries = [
            entry(
                turn.turn_id,
                turn.session_id,
                held[turn.session_id]["projectId"],
                await turn_terms(turn),
            )
            for turn in new
            if turn.status != "running"
        ]
        await self.tx.run(RECALL["write_turn_entries"], entries=entries)
        if others := [each for turn in turns if (each := clean(turn.turn_id)) in known]:
            await index_turns(self.tx, others)

    async def _put_of_sessions(self, puts: Sequence[Write]) -> None:
        """Put records of a kind that a session has one of: the last one for each session."""
        last = {clean(put.record.session_id): put.record for put in puts}
        await self._lock_all(set(last))
        shape = shapes.shape_of(type(puts[0].record))
        statement = f"""
            UNWIND $rows AS row
            MATCH (s:ConversationSession {{sessionId: row.sessionId}})
            MERGE (n:{shape.label} {{sessionId: row.sessionId}})
            SET n += row
            MERGE (s)-[:{shape.held_by}]->(n)
            """
        await self.tx.run(statement, rows=[shapes.properties(each) for each in last.values()])

    async def _mark_extracted(self, marks: Sequence[MarkExtracted]) -> None:
        ids = sorted({each for mark in marks for each in mark.turn_ids})
        await self.tx.run(memories.STATEMENTS["mark_extracted"], ids=ids)

    async def lock(self, session_id: str) -> None:
        """Lock the session's node until the transaction ends, so that reads see the latest."""
        if session_id not in self._locked:
            if not await self._run("lock_session", sessionId=session_id):
                raise not_found("session", session_id)
            self._locked.add(session_id)

    async def _run(self, name: str, **parameters: Value) -> list[Row]:
        return await self.tx.run(STATEMENTS[name], **parameters)

    async def _register_project(self, write: RegisterProject) -> None:
        project, given = write.project, shapes.properties(write.project)
        if not await self._run("project_exists", projectId=project.project_id):
            self._projects.append(clean(project.project_id))
        await self._run("register_project", **given)
        if project.joined_into is None:
            return
        if project.joined_into == project.project_id:
            self._projects += await belonging.split(self.tx, write, self.lock_existing)
            return
        rows = await self._run("join_projects", **given, chosen=write.chosen)
        self._projects += [each for row in rows for each in row["joined"]]

    async def _create_session(self, write: CreateSession | PutSession) -> None:
        session = write.session
        if await self._run("session_exists", sessionId=session.session_id):
            return
        properties = shapes.session_properties(session)
        if session.parent_session_id is not None:
            properties |= await self._fork_properties(
                session.parent_session_id, session.forked_at_index
            )
        await self._run("create_session", sessionId=session.session_id, properties=properties)
        if session.summary:
            await memories.note_summaries(self.tx, [clean(session.session_id)], {})
        if session.parent_session_id is not None:
            await self._run(
                "branch_session",
                parentId=session.parent_session_id,
                sessionId=session.session_id,
            )

    async def _fork_properties(
        self, parent_id: str, forked_at_index: int | None
    ) -> shapes.Properties:
        # Its whole lineage is locked: a turn of any of them may just be ending.
        for span in await lineage(self.tx, parent_id):
            await self.lock(str(span["sessionId"]))
        await self.lock(parent_id)
        spans = await lineage(self.tx, parent_id, last=forked_at_index)
        [row] = await self._run("shared_turns", spans=spans)
        return {
            "forkedAtIndex": row["last"],
            "turnCount": row["last"],
            "messageCount": row["messageCount"],
            "lastTurnId": row["lastTurnId"],
        }

    async def _update_session(self, write: UpdateSession) -> None:
        given = shapes.properties(write, Session)
        del given["sessionId"]
        given["titleFolded"] = None if write.title is None else shapes.title_key(write.title)
        await self.lock(write.session_id)
        ids = [] if write.summary is None else [clean(write.session_id)]
        before = await memories.summaries_before(self.tx, ids) if ids else {}
        await self._run(
            "update_session",
            sessionId=write.session_id,
            properties={name: value for name, value in given.items() if value is not None},
            at=write.at,
        )
        if ids:
            await memories.note_summaries(self.tx, ids, before)

    async def _begin_turn(self, write: BeginTurn) -> None:
        await self.lock(write.session_id)
        properties = shapes.turn_properties(Turn(**asdict(write)))
        del properties["turnIndex"]  # the statement assigns it
        [row] = await self._run(
            "begin_turn",
            sessionId=write.session_id,
            turnId=write.turn_id,
            properties=properties,
            at=write.started_at,
            horizon=self._horizon,
        )
        self.turn_indexes[write.turn_id] = row["turnIndex"]

    async def _record_tool_call(self, write: RecordToolCall) -> None:
        call = write.call
        # Sorted by path, so that two turns that touch the same files lock them in the same order.
        accesses = [
            shapes.properties(access) | {"path": shapes.path_key(access.path)}
            for access in sorted(write.accesses, key=lambda access: access.path)
        ]
        rows = await self._run(
            "record_tool_call",
            sessionId=write.session_id,
            turnId=call.turn_id,
            toolCallId=call.tool_call_id,
            order=call.order,
            properties=shapes.tool_call_properties(call),
            accesses=accesses,
        )
        if not rows:
            raise not_found("turn", call.turn_id)
        if rows[0]["status"] != "running":
            # It came late, after the turn was interrupted for it.
            await index_turns(self.tx, [call.turn_id])

    async def _record_answer(self, write: RecordAnswer) -> None:
        text = clean(write.assistant_message)
        rows = await self._run(
            "record_answer",
            sessionId=write.session_id,
            turnId=write.turn_id,
            text=text,
            charCount=len(text),
        )
        if not rows:
            raise not_found("turn", write.turn_id)

    async def _finish_turn(self, write: FinishTurn) -> None:
        await self.lock(write.session_id)
        rows = await self._run(
            "finish_turn",
            sessionId=write.session_id,
            turnId=write.turn_id,
            properties=shapes.finished_turn_properties(write),
            model=write.model,
            charCount=len(clean(write.assistant_message)),
            at=write.finished_at,
            horizon=self._horizon,
        )
        if not rows:
            raise not_found("turn", write.turn_id)
        if rows[0]["before"] != "completed":
            await index_turns(self.tx, [write.turn_id])

    async def _put_sessions(self, puts: Sequence[PutSession]) -> None:
        """Put sessions with their own times; of existing ones, keep what was changed later here."""
        for put in puts:
            if put.session.parent_session_id is not None:
                await self._create_session(put)
        ids = [clean(put.session.session_id) for put in puts]
        await self.lock_existing(set(ids))
        before = await memories.summaries_before(self.tx, ids)
        await self._run("put_sessions", sessions=[_session_row(put.session) for put in puts])
        await memories.note_summaries(self.tx, ids, before)

    async def _add_summaries(self, writes: Sequence[AddSummary]) -> None:
        summaries = [write.summary for write in writes]
        held = await self._lock_all({summary.session_id for summary in summaries})
        projects = {session_id: row["projectId"] for session_id, row in held.items()}
        made = []
        if stand_ins := [summary.summary_id for summary in summaries if summary.extractive]:
            made = await self.tx.found(RECALL["summaries_that_stay"], ids=stand_ins)
        # The last one of each id, but an extractive one never replaces a model's.
        kept: dict[str, Summary] = {}
        for summary in map(stored, summaries):
            known = kept.get(summary.summary_id)
            stays = summary.summary_id in made or (known is not None and not known.extractive)
            if not (summary.extractive and stays):
                kept[summary.summary_id] = summary
        rows: list[shapes.Properties] = [
            {
                "summaryId": each.summary_id,
                "sessionId": each.session_id,
                "level": each.level,
                "properties": shapes.properties(each) | {"charCount": each.char_count},
            }
            for each in kept.values()
        ]
        await self._run("add_summaries", summaries=rows)
        await write_summaries(self.tx, list(kept.values()), projects)
        await self._link_summaries(summaries)
        await self.tx.run(RECALL["summary_is_made"], ids=list(kept))
        await self.tx.run(RECALL["note_roll_ups"], ids=sorted(held))

    async def _link_summaries(self, summaries: Sequence[Summary]) -> None:
        for kind, statement, chosen in (
            ("turn", "cover_turns", [each for each in summaries if each.level == 1]),
            ("summary", "cover_summaries", [each for each in summaries if each.level > 1]),
        ):
            if not chosen:
                continue
            covers: list[shapes.Properties] = [
                {"summaryId": each.summary_id, "id": id_, "level": each.level, "order": order}
                for each in chosen
                for order, id_ in enumerate(each.covers)
            ]
            found = set(await self.tx.found(STATEMENTS[statement], covers=covers))
            for summary in chosen:
                for each in summary.covers:
                    if clean(each) not in found:
                        raise not_found(kind, each)

    async def _lock_all(self, session_ids: set[str]) -> dict[str, Row]:
        """Lock these sessions' nodes in order; return their current rows by id."""
        held = await self.lock_existing(session_ids)
        for session_id in {clean(each) for each in session_ids} - held.keys():
            raise not_found("session", session_id)
        return held

    async def lock_existing(self, session_ids: set[str]) -> dict[str, Row]:
        ids = sorted({clean(each) for each in session_ids})
        rows = await self.tx.found(STATEMENTS["lock_sessions"], ids=ids)
        held = {row["sessionId"]: row for row in rows}
        self._locked |= held.keys()
        return held


_ONE_BY_ONE: dict[type[Any], Callable[[Batch, Any], Awaitable[None]]] = {
    RegisterProject: Batch._register_project,
    CreateSession: Batch._create_session,
    UpdateSession: Batch._update_session,
    BeginTurn: Batch._begin_turn,
    RecordToolCall: Batch._record_tool_call,
    RecordAnswer: Batch._record_answer,
    FinishTurn: Batch._finish_turn,
}
_BATCHED: dict[type[Any], Callable[[Batch, Any], Awaitable[None]]] = {
    AddSummary: Batch._add_summaries,
    PutSession: Batch._put_sessions,
    PutTurn: Batch._put_turns,
    PutVectors: lambda batch, writes: put_vectors(batch.tx, writes),
    PutMemory: lambda batch, puts: memories.put_memories(batch.tx, puts, batch.lock_existing),
    PutProfile: lambda batch, writes: memories.put_profile(batch.tx, writes),
    PutOwner: lambda batch, writes: memories.put_owners(batch.tx, writes),
    **{each.put: Batch._put_of_sessions for each in OF_SESSIONS},
    MarkExtracted: Batch._mark_extracted,
    PutCodeFile: lambda batch, puts: code.put_files(batch.tx, [put.file for put in puts]),
    DropCodeFiles: lambda batch, drops: code.drop_files(batch.tx, drops),
    PutReferences: lambda batch, writes: code.put_references(batch.tx, writes, batch.lock_existing),
}
"""Kinds that come in large numbers: adjacent writes of one kind run as one."""


async def lineage(
    tx: Transaction, session_id: str, *, last: int | None = None
) -> list[dict[str, Value]]:
    """Return the session and its ancestors, each with the last turn index seen of it.

    `last` limits these further. Empty if there is no such session.
    """
    rows = await tx.run(STATEMENTS["lineage"], sessionId=session_id)
    return [
        {
            "sessionId": row["sessionId"],
            "last": row["last"] if last is None else min(last, row["last"]),
        }
        for row in rows
    ]

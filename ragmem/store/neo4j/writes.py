"""Each Write as Cypher, inside a transaction that the store has opened."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from types import MappingProxyType

import msgspec

from ragmem.errors import SessionNotFound
from ragmem.ids import short_id
from ragmem.records import (
    AddSummary,
    BeginTurn,
    CreateSession,
    DropCodeFiles,
    FinishTurn,
    MarkExtracted,
    PutCodeFile,
    PutInsight,
    PutMemory,
    PutOwner,
    PutProfile,
    PutReferences,
    PutSession,
    PutTurn,
    PutVectors,
    RecordToolCall,
    RegisterProject,
    Session,
    Summary,
    UpdateSession,
    Write,
)
from ragmem.store.neo4j import belonging, coding, remembering, shapes
from ragmem.store.neo4j import entries as entries_of
from ragmem.store.neo4j.cypher import STATEMENTS
from ragmem.store.neo4j.entries import Words, entry
from ragmem.store.neo4j.gateway import Row, Transaction, Value
from ragmem.store.neo4j.puts import put_sessions, put_turns
from ragmem.store.neo4j.tasks import put_vectors
from ragmem.text import clean

_NEVER = datetime(9999, 1, 1, tzinfo=UTC)


def not_found(kind: str, record_id: str) -> SessionNotFound:
    """No such session, turn or summary."""
    return SessionNotFound(
        f"There is no {kind} {short_id(record_id)!r}.", hint="`ragmem sessions list` shows them."
    )


class Batch:
    """The writes of one transaction: which sessions it holds locked, which indexes it gave."""

    def __init__(
        self,
        tx: Transaction,
        horizon: datetime = _NEVER,
        words: Mapping[str, Words] = MappingProxyType({}),
        *,
        sees: str = "",
    ) -> None:
        self._tx = tx
        self._horizon = horizon
        """Later times are a wrong clock's."""
        self._sees = sees
        """Whose memories may be replaced; everybody's where it is empty."""
        self._words = words
        """Of turns that end here, by id, as far as they are known; else they are read."""
        self._locked: dict[str, str] = {}
        """The sessions, and their projects."""
        self._projects: list[str] = []
        """Those that are new, or were joined."""
        self.turn_indexes: dict[str, int] = {}

    async def apply(self, writes: Sequence[Write]) -> None:
        """Run all of them in order; SessionNotFound undoes the transaction.

        Neighbours of a kind that comes in great numbers run as one.
        """
        for _, run in groupby(writes, type):
            await self._apply_alike(list(run))
        await belonging.keep(self._tx, writes, self._projects)

    async def _apply_alike(self, writes: Sequence[Write]) -> None:
        match writes[0]:
            case AddSummary():
                await self._add_summaries([w.summary for w in writes if isinstance(w, AddSummary)])
            case PutSession():
                await self._put_sessions([w.session for w in writes if isinstance(w, PutSession)])
            case PutTurn():
                turns = [w for w in writes if isinstance(w, PutTurn)]
                held = await self._lock_all({put.turn.session_id for put in turns})
                await put_turns(self._tx, turns, held, self._words)
            case PutVectors():
                await put_vectors(self._tx, [w for w in writes if isinstance(w, PutVectors)])
            case PutMemory() | PutProfile() | PutOwner() | PutInsight() | MarkExtracted():
                await self._remember(writes)
            case PutCodeFile() | DropCodeFiles() | PutReferences():
                await self._note_code(writes)
            case _:
                for write in writes:
                    await self._apply_one(write)

    async def _remember(self, writes: Sequence[Write]) -> None:
        match writes[0]:
            case PutMemory():
                puts = [w for w in writes if isinstance(w, PutMemory)]
                await remembering.put_memories(self._tx, puts, self._lock_those_there, self._sees)
            case PutProfile():
                entries = [w for w in writes if isinstance(w, PutProfile)]
                await remembering.put_profile(self._tx, entries)
            case PutOwner():
                names = [w for w in writes if isinstance(w, PutOwner)]
                await remembering.put_owners(self._tx, names)
            case PutInsight():
                insights = [w.insight for w in writes if isinstance(w, PutInsight)]
                await self._lock_all({insight.session_id for insight in insights})
                await remembering.put_insights(self._tx, insights)
            case _:
                marks = [w for w in writes if isinstance(w, MarkExtracted)]
                ids = sorted({each for mark in marks for each in mark.turn_ids})
                await self._tx.run(remembering.STATEMENTS["mark_extracted"], ids=ids)

    async def _note_code(self, writes: Sequence[Write]) -> None:
        match writes[0]:
            case PutCodeFile():
                files = [w.file for w in writes if isinstance(w, PutCodeFile)]
                await coding.put_files(self._tx, files)
            case DropCodeFiles():
                drops = [w for w in writes if isinstance(w, DropCodeFiles)]
                await coding.drop_files(self._tx, drops)
            case _:
                references = [w for w in writes if isinstance(w, PutReferences)]
                await coding.put_references(self._tx, references, self._lock_those_there)

    async def _apply_one(self, write: Write) -> None:
        match write:
            case RegisterProject():
                await self._register_project(write)
            case CreateSession():
                await self._create_session(write.session)
            case UpdateSession():
                await self._update_session(write)
            case BeginTurn():
                await self._begin_turn(write)
            case RecordToolCall():
                await self._record_tool_call(write)
            case FinishTurn():
                await self._finish_turn(write)

    async def lock(self, session_id: str) -> None:
        """Hold the session's node until the end: what is read of it from here on is the latest."""
        if session_id not in self._locked:
            rows = await self._run("lock_session", sessionId=session_id)
            if not rows:
                raise not_found("session", session_id)
            self._locked[session_id] = rows[0]["projectId"]

    async def _run(self, name: str, **parameters: Value) -> list[Row]:
        return await self._tx.run(STATEMENTS[name], **parameters)

    async def _register_project(self, write: RegisterProject) -> None:
        project = write.project
        if not await self._run("project_exists", projectId=project.project_id):
            self._projects.append(clean(project.project_id))
        await self._run(
            "register_project",
            projectId=project.project_id,
            path=project.path,
            remote=project.remote,
            createdAt=project.created_at,
        )
        if project.joined_into is not None:
            rows = await self._run(
                "join_projects", projectId=project.project_id, joinedInto=project.joined_into
            )
            self._projects += [each for row in rows for each in row["joined"]]

    async def _create_session(self, session: Session) -> None:
        if await self._run("session_exists", sessionId=session.session_id):
            return
        properties = shapes.session_properties(session)
        if session.parent_session_id is not None:
            properties |= await self._shared(session.parent_session_id, session.forked_at_index)
        await self._run("create_session", sessionId=session.session_id, properties=properties)
        if session.summary:
            await remembering.note_summaries(self._tx, [clean(session.session_id)], {})
        if session.parent_session_id is not None:
            await self._run(
                "branch_session",
                parentId=session.parent_session_id,
                sessionId=session.session_id,
            )

    async def _shared(self, parent_id: str, forked_at_index: int | None) -> shapes.Properties:
        """What a fork has from its parent on the day that it is made."""
        # All of its line: a turn of any of them may be ending at this moment.
        for span in await lineage(self._tx, parent_id):
            await self.lock(str(span["sessionId"]))
        await self.lock(parent_id)
        spans = await lineage(self._tx, parent_id, last=forked_at_index)
        [row] = await self._run("shared_turns", spans=spans)
        return {
            "forkedAtIndex": row["last"],
            "turnCount": row["last"],
            "messageCount": row["messageCount"],
            "lastTurnId": row["lastTurnId"],
        }

    async def _update_session(self, write: UpdateSession) -> None:
        given: shapes.Properties = {
            "title": write.title,
            "titleFolded": None if write.title is None else shapes.title_key(write.title),
            "summary": write.summary,
            "summarizedCount": write.summarized_count,
            "tags": write.tags,
            "status": write.status,
        }
        await self.lock(write.session_id)
        ids = [] if write.summary is None else [clean(write.session_id)]
        before = await remembering.summaries_before(self._tx, ids) if ids else {}
        await self._run(
            "update_session",
            sessionId=write.session_id,
            properties={name: value for name, value in given.items() if value is not None},
            at=write.at,
        )
        if ids:
            await remembering.note_summaries(self._tx, ids, before)

    async def _begin_turn(self, write: BeginTurn) -> None:
        await self.lock(write.session_id)
        [row] = await self._run(
            "begin_turn",
            sessionId=write.session_id,
            turnId=write.turn_id,
            properties=shapes.begun_turn_properties(write),
            at=write.started_at,
            horizon=self._horizon,
        )
        self.turn_indexes[write.turn_id] = row["turnIndex"]

    async def _record_tool_call(self, write: RecordToolCall) -> None:
        call = write.call
        # By path, so that two turns that touch the same files lock them in the same order.
        accesses = sorted(write.accesses, key=lambda access: access.path)
        rows = await self._run(
            "record_tool_call",
            sessionId=write.session_id,
            turnId=call.turn_id,
            toolCallId=call.tool_call_id,
            order=call.order,
            properties=shapes.tool_call_properties(call),
            accesses=[shapes.access_properties(access) for access in accesses],
        )
        if not rows:
            raise not_found("turn", call.turn_id)
        if rows[0]["status"] != "running":
            # Late: of a turn that was ended on its behalf.
            await entries_of.index_turns(self._tx, [call.turn_id])

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
        [row] = rows
        if row["before"] == "completed":
            return
        words = self._words.get(write.turn_id)
        held = (row["calls"], row["userCharCount"])
        if (
            words is None
            or row["before"] != "running"
            or held != (words.call_count, words.user_char_count)
        ):
            await entries_of.index_turns(self._tx, [write.turn_id])
            return
        project_id = self._locked[write.session_id]
        ids = (clean(write.turn_id), clean(write.session_id))
        await entries_of.write_turns(self._tx, [entry(*ids, project_id, words.terms)])

    async def _put_sessions(self, sessions: Sequence[Session]) -> None:
        for session in sessions:
            if session.parent_session_id is not None:
                await self._create_session(session)
        await self._lock_those_there({session.session_id for session in sessions})
        await put_sessions(self._tx, sessions)

    async def _add_summaries(self, summaries: Sequence[Summary]) -> None:
        held = await self._lock_all({summary.session_id for summary in summaries})
        projects = {session_id: row["projectId"] for session_id, row in held.items()}
        made = []
        if stand_ins := [summary.summary_id for summary in summaries if summary.extractive]:
            statement = entries_of.STATEMENTS["summaries_that_stay"]
            made = await self._tx.found(statement, ids=stand_ins)
        # The last of each id; after one that was made, no stand-in.
        kept: dict[str, Summary] = {}
        for summary in map(_cleaned, summaries):
            known = kept.get(summary.summary_id)
            stays = summary.summary_id in made or (known is not None and not known.extractive)
            if not (summary.extractive and stays):
                kept[summary.summary_id] = summary
        await self._run(
            "add_summaries", summaries=[shapes.summary_row(each) for each in kept.values()]
        )
        await entries_of.write_summaries(self._tx, list(kept.values()), projects)
        await self._link_summaries(summaries)
        await self._tx.run(entries_of.STATEMENTS["summary_is_made"], ids=list(kept))
        await self._tx.run(entries_of.STATEMENTS["note_roll_ups"], ids=sorted(held))

    async def _link_summaries(self, summaries: Sequence[Summary]) -> None:
        for kind, statement, chosen in (
            ("turn", "cover_turns", [each for each in summaries if each.level == 1]),
            ("summary", "cover_summaries", [each for each in summaries if each.level > 1]),
        ):
            if not chosen:
                continue
            covers = [row for summary in chosen for row in shapes.cover_rows(summary)]
            found = set(await self._tx.found(STATEMENTS[statement], covers=covers))
            for summary in chosen:
                for each in summary.covers:
                    if clean(each) not in found:
                        raise not_found(kind, each)

    async def _lock_all(self, session_ids: set[str]) -> dict[str, Row]:
        """Hold these sessions' nodes, in order; the latest of them by id."""
        held = await self._lock_those_there(session_ids)
        for session_id in {clean(each) for each in session_ids} - held.keys():
            raise not_found("session", session_id)
        return held

    async def _lock_those_there(self, session_ids: set[str]) -> dict[str, Row]:
        ids = sorted({clean(each) for each in session_ids})
        rows = await self._tx.found(STATEMENTS["lock_sessions"], ids=ids)
        held = {row["sessionId"]: row for row in rows}
        self._locked |= {session_id: row["projectId"] for session_id, row in held.items()}
        return held


def _cleaned(summary: Summary) -> Summary:
    """As it will be read from the store."""
    return msgspec.structs.replace(
        summary,
        summary_id=clean(summary.summary_id),
        session_id=clean(summary.session_id),
        text=clean(summary.text),
        key_findings=tuple(map(clean, summary.key_findings)),
        topics=tuple(map(clean, summary.topics)),
        files_mentioned=tuple(map(clean, summary.files_mentioned)),
    )


async def lineage(
    tx: Transaction, session_id: str, *, last: int | None = None
) -> list[dict[str, Value]]:
    """The session and those that it was forked from, each with the last index seen of it.

    `last` cuts further. Empty when there is no such session.
    """
    rows = await tx.run(STATEMENTS["lineage"], sessionId=session_id)
    return [
        {
            "sessionId": row["sessionId"],
            "last": row["last"] if last is None else min(last, row["last"]),
        }
        for row in rows
    ]

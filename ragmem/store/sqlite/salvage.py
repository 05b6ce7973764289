"""What can still be read of a damaged database, row by row, from a copy of it.

Rows on damaged pages are stepped over. What is left is made whole again: turns
are numbered anew where some are lost, and a session of which only turns are
left is made up for them.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain, islice
from pathlib import Path

import apsw
import msgspec

from ragmem.records import (
    AddSummary,
    Evidence,
    FileAccess,
    Insight,
    MemoryRecord,
    Project,
    PutInsight,
    PutMemory,
    PutOwner,
    PutProfile,
    PutSession,
    PutTurn,
    PutVectors,
    RegisterProject,
    Session,
    Summary,
    ToolCall,
    Turn,
    Write,
    utc_now,
)
from ragmem.store.recall import EmbedderMark
from ragmem.store.sqlite import schema
from ragmem.store.sqlite.remains_of_code import RemainsOfCode
from ragmem.store.sqlite.rows import Row, record
from ragmem.store.sqlite.vectors import embedder
from ragmem.store.vectors import unpacked

_BATCH = 200


class Salvage(RemainsOfCode):
    """One attempt: `writes` are for an empty store, in order; `lost` counts damaged places."""

    def __init__(self, database: Path, folder: Path) -> None:
        """Copies the database, with its log, into the folder; the original is only read."""
        super().__init__(database, folder)
        self._sessions: set[str] = set()
        """Those that are left."""
        self._turns: dict[str, list[tuple[int, int, str]]] = {}
        """Per session: the index, the row and the id of each turn."""

    def store_id(self) -> str:
        """What the database said of itself; empty where that can't be read."""
        try:
            return schema.store_id(self._connection)
        except (apsw.Error, UnicodeDecodeError):
            return ""

    async def writes(self) -> AsyncIterator[Sequence[Write]]:
        """All that is left, whole."""
        yield [RegisterProject(project=each) for _, each in self._records("projects", Project)]
        code = self._code()
        for batch in _batches(chain.from_iterable(each.before_turns() for each in code)):
            yield batch
        self._note_turns()
        calls = self._noted_calls()
        accesses = self._noted_accesses()
        shares: dict[str, int] = {}
        for session in self._sessions_in_order():
            shared = self._shared(session, shares)
            self._sessions.add(session.session_id)
            yield [PutSession(session=_forked_at(session, shared))]
            turns = sorted(self._turns.get(session.session_id, ()))
            wholes = (
                self._whole(row, index, calls, accesses)
                for index, (_, row, _turn_id) in enumerate(turns, shared + 1)
            )
            for batch in _batches(wholes):
                yield batch
        yield list(self._summaries())
        as_it_is = chain.from_iterable(each.after_turns() for each in code)
        rest = (self._references(), as_it_is, self._known(), self._vectors(), self._small_vectors())
        for batch in _batches(chain.from_iterable(rest)):
            yield batch

    def _note_turns(self) -> None:
        seen: set[str] = set()
        for row, turn in self._records("turns", Turn):
            if turn.turn_id in seen:
                continue
            seen.add(turn.turn_id)
            self._turns.setdefault(turn.session_id, []).append((turn.turn_index, row, turn.turn_id))

    def _noted_calls(self) -> dict[str, list[int]]:
        noted: dict[str, list[int]] = {}
        for row, call in self._records("tool_calls", ToolCall):
            noted.setdefault(call.turn_id, []).append(row)
        return noted

    def _noted_accesses(self) -> dict[str, list[FileAccess]]:
        noted: dict[str, list[FileAccess]] = {}
        for held in self._either_way("file_accesses", "tool_call_id, path, access_type"):
            try:
                access = record(FileAccess, held)
            except msgspec.ValidationError:
                continue
            noted.setdefault(str(held["tool_call_id"]), []).append(access)
        return noted

    def _sessions_in_order(self) -> list[Session]:
        """Each after the one that it was forked from; those that are lost are made up."""
        left = {each.session_id: each for _, each in self._records("sessions", Session)}
        for session_id in self._turns.keys() - left.keys():
            left[session_id] = self._made_up(session_id)
        ordered: dict[str, Session] = {}

        def place(session: Session) -> None:
            parent = left.get(session.parent_session_id or "")
            if session.session_id in ordered:
                return
            if parent is not None and parent is not session:
                place(parent)
            ordered.setdefault(session.session_id, session)

        for session in left.values():
            place(session)
        return [
            each
            if each.parent_session_id in ordered
            else msgspec.structs.replace(each, parent_session_id=None, forked_at_index=None)
            for each in ordered.values()
        ]

    def _made_up(self, session_id: str) -> Session:
        _, row, _ = min(self._turns[session_id])
        at = self._by_row("turns", Turn, row).started_at
        return Session(
            session_id=session_id,
            cwd="/",
            project_id="salvaged",
            title="Salvaged session",
            started_at=at,
            updated_at=at,
            last_activity_at=at,
        )

    def _shared(self, session: Session, shares: dict[str, int]) -> int:
        """How many turns a fork still shares."""
        if session.parent_session_id is None:
            shares[session.session_id] = 0
            return 0
        parent = session.parent_session_id
        forked_at = session.forked_at_index or 0
        before = min(shares.get(parent, 0), forked_at)
        own = sum(1 for index, _, _ in self._turns.get(parent, ()) if index <= forked_at)
        shares[session.session_id] = before + own
        return before + own

    def _whole(
        self,
        row: int,
        index: int,
        calls: dict[str, list[int]],
        accesses: dict[str, list[FileAccess]],
    ) -> PutTurn:
        turn = self._by_row("turns", Turn, row)
        if turn.status != "running" and turn.finished_at is None:
            turn = msgspec.structs.replace(turn, finished_at=turn.started_at)
        held = [self._by_row("tool_calls", ToolCall, each) for each in calls.get(turn.turn_id, ())]
        held.sort(key=lambda call: (call.order, call.tool_call_id))
        return PutTurn(
            turn=msgspec.structs.replace(turn, turn_index=index, tool_calls=tuple(held)),
            accesses={
                call.tool_call_id: tuple(accesses[call.tool_call_id])
                for call in held
                if call.tool_call_id in accesses
            },
        )

    def _summaries(self) -> Iterator[AddSummary]:
        covers: dict[str, list[tuple[int, str]]] = {}
        for table in ("summarized_turns", "summarized_summaries"):
            for held in self._either_way(table, "summary_id, covered_id"):
                cover = int(held["position"] or 0), str(held["covered_id"])
                covers.setdefault(str(held["summary_id"]), []).append(cover)
        known = {turn_id for turns in self._turns.values() for _, _, turn_id in turns}
        found = [each for _, each in self._records("summaries", Summary)]
        for summary in sorted(found, key=lambda each: (each.level, each.summary_id)):
            wanted = sorted(covers.get(summary.summary_id, ()))
            left = tuple(each for _, each in wanted if each in known)
            if left and summary.session_id in self._turns:
                known.add(summary.summary_id)
                yield AddSummary(summary=msgspec.structs.replace(summary, covers=left))

    def _known(self) -> Iterator[PutMemory | PutInsight | PutProfile | PutOwner]:
        """Memories, insights into the sessions that are left, profiles, what people are called."""
        if not self._has("memories"):
            return  # An older database has none.
        evidence: dict[str, list[tuple[int, Evidence]]] = {}
        for held in self._either_way("evidence", "memory_id, position"):
            with suppress(msgspec.ValidationError, ValueError):
                place = int(held["position"] or 0), record(Evidence, held)
                evidence.setdefault(str(held["memory_id"]), []).append(place)
        for _, memory in self._records("memories", MemoryRecord):
            found = sorted(evidence.get(memory.memory_id, ()), key=lambda each: each[0])
            places = tuple(place for _, place in found)
            yield PutMemory(memory=msgspec.structs.replace(memory, evidence=places))
        for _, insight in self._records("insights", Insight):
            if insight.session_id in self._sessions:
                yield PutInsight(insight=insight)
        for _, entry in self._records("profile", _Entry):
            at = self._profile_at()
            yield PutProfile(key=entry.key, value=entry.value, at=at, owner=entry.owner)
        if self._has("owner_names"):
            for _, named in self._records("owner_names", _Named):
                yield PutOwner(owner=named.owner, name=named.name, at=named.at)

    def _profile_at(self) -> datetime:
        for row in self._rows("profile_state"):
            with suppress(msgspec.ValidationError):
                return record(_State, row).updated_at
        return utc_now()

    def _small_vectors(self) -> Iterator[PutVectors]:
        """What can't have one any more is left out by the store."""
        mark = self._mark()
        if mark is None or not self._has("small_vectors"):
            return
        for row in self._rows("small_vectors"):
            vector: object = row["vector"]
            if isinstance(vector, bytes) and len(vector) in (0, 4 * mark.dimension):
                yield PutVectors(
                    record_id=str(row["record_id"]),
                    level=int(row["level"] or 0),
                    embedder=mark.model_id,
                    text_hash=str(row["text_hash"]),
                    vectors=(vector,) if vector else (),
                )

    def _mark(self) -> EmbedderMark | None:
        try:
            return embedder(self._connection)
        except apsw.Error:
            return None  # An older database has none.

    def _vectors(self) -> Iterator[PutVectors]:
        """They are made of the texts, but that takes long: what can be read of them is kept."""
        mark = self._mark()
        if mark is None or not self._has("vectors") or not self._has("documents"):
            return
        for row in self._rows("vectors"):
            packed: object = row["packed"]
            if isinstance(packed, bytes) and not len(packed) % (mark.dimension + 4):
                yield from self._vectors_of(row, packed, mark)

    def _vectors_of(self, row: Row, packed: bytes, mark: EmbedderMark) -> Iterator[PutVectors]:
        try:
            known = self._connection.execute(
                "SELECT record_id, level FROM documents WHERE document = ?", (row["document"],)
            ).fetchall()
        except (apsw.Error, UnicodeDecodeError):
            return
        for record_id, level in known:
            yield PutVectors(
                record_id=str(record_id),
                level=int(str(level)),
                embedder=mark.model_id,
                text_hash=str(row["text_hash"]),
                vectors=unpacked(packed, mark.dimension),
            )


def _batches(writes: Iterable[Write]) -> Iterator[list[Write]]:
    left = iter(writes)
    while batch := list(islice(left, _BATCH)):
        yield batch


class _Entry(msgspec.Struct, frozen=True):
    """A row of the profile."""

    key: str
    value: str
    owner: str = ""


class _Named(msgspec.Struct, frozen=True):
    """A row of the owners' names."""

    owner: str
    name: str
    at: datetime


class _State(msgspec.Struct, frozen=True):
    updated_at: datetime


def _forked_at(session: Session, shared: int) -> Session:
    if session.parent_session_id is None:
        return session
    return msgspec.structs.replace(session, forked_at_index=shared)

"""What can still be read of a damaged database, row by row, from a copy of it.

Rows on damaged pages are stepped over. What is left is made whole again: turns
are numbered anew where some are lost, and a session of which only turns are
left is made up for them.
"""

import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import apsw
import msgspec

from ragmem.errors import StoreDamaged
from ragmem.records import (
    AddSummary,
    FileAccess,
    Project,
    PutSession,
    PutTurn,
    PutVectors,
    RegisterProject,
    Session,
    Summary,
    ToolCall,
    Turn,
    Write,
)
from ragmem.store.recall import EmbedderMark
from ragmem.store.sqlite import first_page
from ragmem.store.sqlite.rows import R, Row, record, rows
from ragmem.store.sqlite.vectors import embedder
from ragmem.store.vectors import unpacked

_LAST_ROW = 1 << 40
_TABLES = ("projects", "sessions", "turns", "tool_calls", "summaries")
_BATCH = 200


class Salvage:
    """One attempt: `writes` are for an empty store, in order; `lost` counts damaged places."""

    def __init__(self, database: Path, folder: Path) -> None:
        """Copies the database, with its log, into the folder; the original is only read."""
        self._copy = folder / "damaged.db"
        for suffix in ("", "-wal"):
            source = database.with_name(database.name + suffix)
            if source.exists():
                shutil.copyfile(source, self._copy.with_name(self._copy.name + suffix))
        self.lost = 0
        self._connection = self._opened(folder)
        self._turns: dict[str, list[tuple[int, int, str]]] = {}
        """Per session: the index, the row and the id of each turn."""

    def close(self) -> None:
        """Let go of the copy."""
        self._connection.close()

    def _opened(self, folder: Path) -> apsw.Connection:
        connection = _connected(self._copy)
        if connection is None and first_page.renew(self._copy, folder):
            connection = _connected(self._copy)
        if connection is None:
            raise StoreDamaged(
                "Nothing of the memory's database can be read. It was left as it is.",
                hint="Put a backup in its place.",
            )
        return connection

    async def writes(self) -> AsyncIterator[Sequence[Write]]:
        """All that is left, whole."""
        yield [RegisterProject(project=each) for _, each in self._records("projects", Project)]
        self._note_turns()
        calls = self._noted_calls()
        accesses = self._noted_accesses()
        shares: dict[str, int] = {}
        for session in self._sessions_in_order():
            shared = self._shared(session, shares)
            yield [PutSession(session=_forked_at(session, shared))]
            batch: list[Write] = []
            index = shared
            for _, row, _turn_id in sorted(self._turns.get(session.session_id, ())):
                index += 1
                batch.append(self._whole(row, index, calls, accesses))
                if len(batch) >= _BATCH:
                    yield batch
                    batch = []
            yield batch
        yield list(self._summaries())
        batch = []
        for vectors in self._vectors():
            batch.append(vectors)
            if len(batch) >= _BATCH:
                yield batch
                batch = []
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

    def _vectors(self) -> Iterator[PutVectors]:
        """They are made of the texts, but that takes long: what can be read of them is kept."""
        try:
            mark = embedder(self._connection)
            self._connection.execute("SELECT * FROM vectors, documents LIMIT 0").fetchall()
        except apsw.Error:
            return  # An older database has none.
        for row in self._rows("vectors") if mark else ():
            packed: object = row["packed"]
            if mark and isinstance(packed, bytes) and not len(packed) % (mark.dimension + 4):
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

    # --- rows -------------------------------------------------------------------

    def _records(self, table: str, kind: type[R]) -> Iterator[tuple[int, R]]:
        """Rows that are records still, each with its number."""
        for row in self._rows(table):
            number = int(row.pop("row_number") or 0)
            try:
                yield number, record(kind, row | _MISSING)
            except (msgspec.MsgspecError, ValueError):
                self.lost += 1

    def _rows(self, table: str) -> Iterator[Row]:
        last = 0
        while True:
            try:
                for row in self._after(table, last):
                    last = int(row["row_number"] or 0)
                    yield row
                return
            except (apsw.Error, UnicodeDecodeError):
                self.lost += 1
            step = self._readable_from(table, last)
            if step is None:
                return
            last += step

    def _after(self, table: str, last: int, limit: int = -1) -> Iterator[Row]:
        for row in rows(
            self._connection,
            f"SELECT rowid AS row_number, * FROM {table} NOT INDEXED"
            " WHERE rowid > :last ORDER BY rowid LIMIT :limit",
            {"last": last, "limit": limit},
        ):
            # On damaged pages numbers need not rise, and reading would never end.
            if int(row["row_number"] or 0) <= last:
                raise apsw.CorruptError("row out of order")
            last = int(row["row_number"] or 0)
            yield row

    def _readable_from(self, table: str, last: int) -> int | None:
        """How far to step so that the next row can be read; None past the last."""

        def readable(step: int) -> bool:
            try:
                list(self._after(table, last + step, 1))
            except (apsw.Error, UnicodeDecodeError):
                return False
            return True

        step = 1
        while not readable(step):
            step *= 2
            if last + step > _LAST_ROW:
                return None
        unreadable = step // 2
        while step - unreadable > 1:
            middle = (step + unreadable) // 2
            if readable(middle):
                step = middle
            else:
                unreadable = middle
        return step

    def _either_way(self, table: str, order: str) -> list[Row]:
        """Rows of a table without numbers: from its start, then from its end."""
        found: dict[str, Row] = {}
        for direction in ("", " DESC"):
            by = ", ".join(column + direction for column in order.split(", "))
            try:
                for row in rows(self._connection, f"SELECT * FROM {table} ORDER BY {by}"):
                    found[repr([row[column] for column in order.split(", ")])] = row
            except (apsw.Error, UnicodeDecodeError):
                self.lost += not direction
                continue
            break
        return list(found.values())

    def _by_row(self, table: str, kind: type[R], number: int) -> R:
        sql = f"SELECT * FROM {table} NOT INDEXED WHERE rowid = :number"
        [row] = rows(self._connection, sql, {"number": number})
        return record(kind, row | _MISSING)


_MISSING: Row = {"covers": "[]"}


def _forked_at(session: Session, shared: int) -> Session:
    if session.parent_session_id is None:
        return session
    return msgspec.structs.replace(session, forked_at_index=shared)


def _connected(database: Path) -> apsw.Connection | None:
    """A connection that finds its tables, whatever is in them."""
    connection = apsw.Connection(str(database))
    try:
        connection.execute("PRAGMA writable_schema = ON")
        for table in _TABLES:
            connection.execute(f"SELECT * FROM {table} LIMIT 0").fetchall()
    except apsw.Error:
        connection.close()
        return None
    return connection

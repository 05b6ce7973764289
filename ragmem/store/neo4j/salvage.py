"""Recovers what can be read of a damaged graph, as the rows of a SQLite database.

All nodes and relationships were written to a file before, which is read once. As for a damaged
database (`ragmem.store.sqlite.repair`), an intact SQLite database is built from such rows; it is
then moved into the emptied graph. References of turns to code are found again later.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import apsw
import msgspec

from ragmem.ids import new_id
from ragmem.records import (
    Evidence,
    FileAccess,
    MemoryRecord,
    PutOwner,
    PutProfile,
    Record,
    Session,
    Summary,
    ToolCall,
    Turn,
)
from ragmem.store.neo4j.memories import NOBODY, loose_evidence
from ragmem.store.neo4j.shapes import salvaged, shape_of
from ragmem.store.sqlite.apply import apply
from ragmem.store.sqlite.connection import Database, Row, columns
from ragmem.store.sqlite.read import TABLES

_KEPT_DOUBLES = frozenset((Turn, ToolCall, Summary, MemoryRecord))
"""Kinds where the second record with an id gets another id; for other kinds the first one stays."""
_KINDS = {shape_of(kind).label: kind for kind in TABLES}
_UNREADABLE = (apsw.Error, msgspec.MsgspecError, KeyError, TypeError, ValueError)
_FROM_LINKS: Mapping[type, Row] = {ToolCall: {"turn_id": "", "order": 0}, Summary: {"covers": ()}}
"""Fields that are read from relationships, which come after all nodes."""


class GraphCopy:
    """A file of a graph's nodes, then its relationships; `lost` counts those that can't be read."""

    def __init__(self, file: Path, store_id: str, at: datetime) -> None:
        """`at` replaces missing times."""
        self.lost = 0
        self._file = file
        self._store_id = store_id
        self._at = at
        self._salvaged_id = new_id()
        """Id of a session for turns that have lost theirs."""
        self._keys: dict[str, str] = {}
        """Ids of records, and paths of files, by the element ids of nodes."""
        self._seen: set[tuple[type, str]] = set()
        self._places: dict[str, set[int]] = {}
        """The turn indexes in use, by session."""
        self.due: list[str] = []
        """Turns to be looked through for memories."""

    def store_id(self) -> str:
        """Return the graph's own id."""
        return self._store_id

    def rows(self, table: str, _: Sequence[str] = ()) -> Iterator[Row]:
        """Yield, for `documents`, the turns to be looked through for memories; else nothing."""
        for turn_id in self.due if table == "documents" else ():
            yield {"record_id": turn_id, "to_extract": 1}

    def copy_into(self, db: Database, _tables: object = None) -> set[str]:
        """Write everything that can be read; there is no other source to fill gaps in tables."""
        with self._file.open("rb") as lines:
            for line in lines:
                try:
                    row = msgspec.json.decode(line)
                    held = row["properties"]
                    for label in row.get("labels", ()):
                        self._put_node(db, row["node"], label, held)
                    if put := _LINKS.get(row.get("relationship")):
                        put(self, db, row["start"], row["end"], held)
                except _UNREADABLE:
                    self.lost += 1
        return set()

    # --- nodes --------------------------------------------------------------------

    def _put_node(self, db: Database, node: str, label: str, held: Row) -> None:
        if label in ("Owner", "UserProfile"):
            self._put_person(db, label, held)
        elif label == "File":
            self._keys[node] = held["path"]
        elif kind := _KINDS.get(label):
            self._put_record(db, node, kind, held)

    def _put_person(self, db: Database, label: str, held: Row) -> None:
        at = msgspec.convert(held.get("updatedAt", self._at), datetime)
        if label == "UserProfile":
            owner = "" if held["userId"] == NOBODY else held["userId"]
            values = msgspec.json.decode(held["profileJson"], type=dict[str, str])
            apply(db, [PutProfile(key=k, value=v, at=at, owner=owner) for k, v in values.items()])
        elif held.get("name"):
            apply(db, [PutOwner(owner=held["ownerId"], name=held["name"], at=at)])

    def _put_record(self, db: Database, node: str, kind: type[Record], held: Row) -> None:
        prop = shape_of(kind).key
        key = held[prop] if isinstance(held.get(prop), str) else new_id()
        is_double = (kind, key) in self._seen
        if is_double and kind in _KEPT_DOUBLES:
            key = new_id()
        self._seen.add((kind, key))
        self._keys[node] = key
        if is_double and kind not in _KEPT_DOUBLES:
            return
        table, column = TABLES[kind]
        db.put(table, self._row(kind, held | {prop: key}), column)
        if kind is MemoryRecord:
            for position, evidence in loose_evidence(held.get("evidence") or ()):
                self._put_evidence(db, key, position, evidence)

    def _row(self, kind: type[Record], held: Row) -> Row:
        record = salvaged(kind, held, self._at, **_FROM_LINKS.get(kind, {}))
        row = columns(record)
        match record:
            case Session():
                for derived in ("message_count", "first_message", "last_message"):
                    del row[derived]
                row |= {"title_key": record.title.casefold(), "turn_count": 0}
            case Turn():
                if held.get("memoriesDue"):
                    self.due.append(record.turn_id)
                session_id = record.session_id or self._salvaged_id
                row |= {"session_id": session_id, "char_count": 0}
                row["turn_index"] = self._place(session_id, record.turn_index)
            case ToolCall():
                row["result_size_bytes"] = len(record.result.encode())
            case Summary():
                del row["covers"]
                row["session_id"] = record.session_id or self._salvaged_id
            case MemoryRecord():
                row |= {"to_embed": 0, "project_id": record.joined_from or record.project_id}
                del row["joined_from"]
        return row

    def _place(self, session_id: str, index: int) -> int:
        """Return the index of a turn; the session's next one for a turn that has lost its own."""
        taken = self._places.setdefault(session_id, set())
        if index in taken or index < 1:
            index = max(taken, default=0) + 1
        taken.add(index)
        return index

    # --- relationships --------------------------------------------------------------

    def _put_call(self, db: Database, turn: str, call: str, held: Row) -> None:
        db.query(
            'UPDATE tool_calls SET turn_id = :turn, "order" = :order'
            " WHERE tool_call_id = :id AND turn_id = ''",
            id=self._keys[call],
            turn=self._keys[turn],
            order=held.get("order", 0),
        )

    def _put_access(self, db: Database, _: str, file: str, held: Row) -> None:
        path = self._keys[file]
        row = columns(salvaged(FileAccess, held | {"path": path}, self._at))
        del row["turn_index"], row["order"]
        row["tool_call_id"] = held["toolCallId"]
        db.put("file_accesses", row, "tool_call_id, path, access_type")

    def _put_cover(self, db: Database, summary: str, covered: str, held: Row) -> None:
        key = self._keys[covered]
        table = "summarized_turns" if (Turn, key) in self._seen else "summarized_summaries"
        row = {"summary_id": self._keys[summary], "covered_id": key}
        row["position"] = held.get("order", 0)
        db.put(table, row, "summary_id, covered_id")

    def _put_source(self, db: Database, turn: str, memory: str, held: Row) -> None:
        evidence = salvaged(Evidence, held, self._at, turn_id=self._keys[turn])
        self._put_evidence(db, self._keys[memory], held.get("position", 0), evidence)

    def _put_evidence(self, db: Database, memory_id: str, position: int, said: Evidence) -> None:
        taken = db.column("SELECT position FROM evidence WHERE memory_id = :id", id=memory_id)
        if position in taken:
            position = max(taken) + 1
        row = {"memory_id": memory_id, "position": position} | columns(said)
        db.put("evidence", row, "memory_id, position")


_LINKS: dict[str | None, Callable[[GraphCopy, Database, str, str, Row], None]] = {
    "HAS_TOOL_CALL": GraphCopy._put_call,
    "ACCESSED": GraphCopy._put_access,
    "SUMMARIZES": GraphCopy._put_cover,
    "REMEMBERS": GraphCopy._put_source,
}

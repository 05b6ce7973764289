"""What becomes of drafts, one after the other, before anything of it is written."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from ragmem.embedder.numbers import cosines
from ragmem.memory.facts.comparing import Known, compare
from ragmem.memory.facts.values import Remembered
from ragmem.records import MemoryRecord, PutMemory


class Desk:
    """The current memories of the scopes at hand, and what is to change about them."""

    def __init__(self, *, duplicate: float, now: datetime) -> None:
        self._duplicate = duplicate
        self._now = now
        self._known: dict[str | None, dict[str, MemoryRecord]] = {}
        self._rows: dict[str, bytes] = {}
        self._puts: dict[str, PutMemory] = {}
        self._new_vectors: dict[str, tuple[str, bytes]] = {}

    @property
    def writes(self) -> list[PutMemory]:
        """In their order."""
        return list(self._puts.values())

    @property
    def vectors(self) -> dict[str, tuple[str, bytes]]:
        """Of what is put, where there are some: text and row, by memory."""
        return {i: found for i, found in self._new_vectors.items() if i in self._puts}

    def know(
        self, memories: Sequence[MemoryRecord], rows: Mapping[str, bytes], project_id: str | None
    ) -> None:
        """What is current in the project and of the person; the vectors of those that have some."""
        for memory in memories:
            if memory.is_current(self._now):
                scope = project_id if memory.project_id else None
                self._known.setdefault(scope, {})[memory.memory_id] = memory
        self._rows |= rows

    def settle(self, memory: MemoryRecord, row: bytes, *, note: str = "") -> Remembered:
        """What becomes of one; those after it are compared with the outcome."""
        current = self._known.setdefault(memory.project_id, {})
        near = cosines(row, {i: self._rows[i] for i in current if i in self._rows}) if row else {}
        known = [Known(one, near.get(i)) for i, one in current.items()]
        verdict = compare(memory, known, duplicate=self._duplicate)
        if not verdict.changed:
            return Remembered(action="known", memory=verdict.memory, note=note)
        put = verdict.memory
        if put.memory_id == memory.memory_id and row:
            self._rows[put.memory_id] = row
        if put.memory_id in self._rows:
            self._new_vectors[put.memory_id] = (put.content, self._rows[put.memory_id])
        gone = tuple(one.memory_id for one in verdict.superseded)
        for memory_id in gone:
            current.pop(memory_id, None)
        current[put.memory_id] = put
        earlier = self._puts.pop(put.memory_id, None)
        supersedes = (*(earlier.supersedes if earlier else ()), *gone)
        self._puts[put.memory_id] = PutMemory(memory=put, supersedes=supersedes)
        return Remembered(
            action=verdict.action, memory=put, superseded=verdict.superseded, note=note
        )

"""What becomes of drafts, one after the other, before anything of it is written."""

from datetime import datetime

from ragmem.embedder.numbers import cosines
from ragmem.errors import StoreUnavailable
from ragmem.memory.facts.comparing import Known, compare
from ragmem.memory.facts.values import Remembered
from ragmem.records import MEMORY_LEVEL, MemoryRecord, PutMemory
from ragmem.store.base import Store
from ragmem.store.memories import MemoryQuery


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

    async def fetch(self, store: Store, project_id: str | None, model_id: str) -> None:
        """Read what is known in that scope, once."""
        if project_id in self._known:
            return
        query = MemoryQuery(
            project_ids=(project_id,) if project_id else (),
            user_wide=project_id is None,
            alive_at=self._now,
        )
        try:
            found = await store.memories(query)
            if model_id:
                ids = [memory.memory_id for memory in found]
                self._rows |= await store.small_vectors(ids, MEMORY_LEVEL, model_id)
        except StoreUnavailable:
            # Kept by the spool, uncompared: the next that is like it takes its place.
            found = []
        self._known[project_id] = {memory.memory_id: memory for memory in found}

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

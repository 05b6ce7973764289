"""The store's part of recall: see `ragmem.store.recall` for what each of these promises."""

from collections.abc import Sequence

from ragmem.records import PutVectors, Summary, Turn
from ragmem.store.neo4j import archive, shapes, tasks
from ragmem.store.neo4j.entries import STATEMENTS
from ragmem.store.neo4j.gateway import Gateway
from ragmem.store.neo4j.search import Searcher
from ragmem.store.recall import Attempts, Candidate, EmbedderMark, Pending, SearchQuery, Work


class Neo4jRecall:
    """Search, and what is to be done; a part of the store."""

    _sees: str

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._searcher = Searcher(gateway)

    async def search(self, query: SearchQuery) -> list[Candidate]:
        """The best by text and the best by vector, and of turns their neighbours; in no order."""
        return await self._searcher.search(query)

    async def turns_by_id(self, turn_ids: Sequence[str]) -> list[Turn]:
        """Those of them that exist, with their tool calls, in this order."""
        found = await self._gateway.read(
            lambda tx: tx.found(STATEMENTS["turns_by_id"], ids=turn_ids)
        )
        return self._gateway.reading.records(shapes.to_turn, found)

    async def summaries_by_id(self, summary_ids: Sequence[str]) -> list[Summary]:
        """Those of them that exist, in this order."""
        return await self._gateway.read(lambda tx: archive.summaries_by_id(tx, summary_ids))

    async def vectors_of(self, record_ids: Sequence[str]) -> list[PutVectors]:
        """The vectors of those of them that have some, in this order."""
        return await self._gateway.read(lambda tx: tasks.vectors_of(tx, record_ids))

    async def embedder(self) -> EmbedderMark | None:
        """Of which its vectors are; None before there are any."""
        return await self._gateway.read(tasks.embedder)

    async def use_embedder(self, mark: EmbedderMark) -> None:
        """From now on vectors are of this one: those of another are dropped."""
        await tasks.use_embedder(self._gateway, mark)

    async def pending(
        self, work: Work, *, limit: int, session_id: str | None = None
    ) -> list[Pending]:
        """Work to be done, that of the latest activity first; what is leased is left out."""
        return await self._gateway.read(
            lambda tx: tasks.pending(tx, work, limit=limit, session_id=session_id, owner=self._sees)
        )

    async def count_pending(self) -> dict[Work, int]:
        """How much of each there is, at most a thousand."""
        return await self._gateway.read(lambda tx: tasks.count_pending(tx, self._sees))

    async def claim(self, keys: Sequence[str], owner_id: str, *, seconds: float) -> list[str]:
        """Lease those that are free, or were this owner's; the keys that are now its own."""
        if not keys:
            return []
        return await self._gateway.write(
            lambda tx: tasks.claim(tx, keys, owner_id, seconds=seconds)
        )

    async def release(self, keys: Sequence[str], owner_id: str) -> None:
        """Give back what was claimed."""
        await self._gateway.write(lambda tx: tasks.release(tx, keys, owner_id))

    async def attempts(self, item: str = "", *, least: int = 1) -> list[Attempts]:
        """Answers that could not be used, at least so many: about an item, or any; latest last."""
        return await self._gateway.read(lambda tx: tasks.attempts(tx, item, least))

    async def keep_attempts(self, attempts: Attempts) -> None:
        """Keep these in place of what was known of their item."""
        await self._gateway.write(lambda tx: tasks.keep_attempts(tx, attempts))

    async def forget_attempts(self, session_id: str, item: str = "") -> None:
        """Let one item of a session be tried again, or all of them."""
        await self._gateway.write(lambda tx: tasks.forget_attempts(tx, session_id, item))

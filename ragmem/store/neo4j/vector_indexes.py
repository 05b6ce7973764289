"""Vector indexes on what is embedded, so that a person can search by meaning in Cypher.

ragmem's own search does not use them. The server fills them by itself, and keeps them as it keeps
any index; of another dimension they are made anew. A server that can't have them is left in peace.
"""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType

from ragmem.errors import StoreError
from ragmem.store.neo4j.gateway import Gateway, Transaction

EMBEDDED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "turn_embedding": ("ConversationTurn", "embedding"),
        "summary_embedding": ("ConversationSummary", "embedding"),
        "memory_embedding": ("Memory", "embedding"),
        "session_embedding": ("ConversationSession", "summaryEmbedding"),
    }
)
"""By an index's name the label and the property that it is on."""
_LARGEST = 4096
"""Numbers of a vector that a server takes into an index."""
_FOUND = """
SHOW VECTOR INDEXES YIELD name, state, options
WHERE state <> 'FAILED'
RETURN name, options.indexConfig['vector.dimensions'] AS dimension
"""
_DIMENSION = "MATCH (v:RagmemSchema {name: 'ragmem'}) RETURN v.dimension AS dimension"


async def keep(gateway: Gateway) -> None:
    """Have those of the dimension that the store's vectors are of; what fails is left so."""
    with suppress(StoreError):
        dimension, found = await gateway.read(_look, patient=False)
        if not 0 < dimension <= _LARGEST:
            return
        for name, (label, key) in EMBEDDED.items():
            if found.get(name) != dimension:
                await _make(gateway, name, label, key, dimension)


async def _look(tx: Transaction) -> tuple[int, dict[str, int]]:
    row = await tx.first_row(_DIMENSION)
    dimension = row["dimension"] if row else None
    if not isinstance(dimension, int):
        return 0, {}
    return dimension, {row["name"]: row["dimension"] for row in await tx.run(_FOUND)}


async def _make(gateway: Gateway, name: str, label: str, key: str, dimension: int) -> None:
    made = (
        f"CREATE VECTOR INDEX {name} IF NOT EXISTS FOR (n:{label}) ON (n.{key}) "
        f"OPTIONS {{indexConfig: {{`vector.dimensions`: {dimension}, "
        "`vector.similarity_function`: 'cosine'}}"
    )
    await gateway.write(lambda tx: tx.run(f"DROP INDEX {name} IF EXISTS"))
    await gateway.write(lambda tx: tx.run(made))

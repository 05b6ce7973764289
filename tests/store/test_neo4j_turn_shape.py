"""A turn in the graph, as section B's messages, calls and results are mapped onto it."""

import pytest

from ragmem.records import SessionQuery, Turn
from ragmem.store.neo4j import Connection
from tests.fakes.neo4j import ask, open_empty_neo4j_store
from tests.store.samples import begun, called, created, finished


@pytest.mark.campaign
async def test_a_huge_turn_of_an_older_version_is_cut_when_it_is_read(
    neo4j_server: Connection,
) -> None:
    """By every way to it; what the server holds is left as it is."""
    store = await open_empty_neo4j_store(neo4j_server)
    try:
        await store.apply([created("s"), begun("s", "t"), called("s", "t"), finished("s", "t")])
        await ask(
            neo4j_server,
            """
            MATCH (t:ConversationTurn {uuid: 't'})-[:HAS_TOOL_CALL]->(c:ToolCall)
            SET t.reasoning = $long, t.userMessage = $long, c.toolResult = $long
            """,
            long="words " * 3_000_000,
        )
        [call] = next(iter(await store.turns("s"))).tool_calls
        found = await store.find_tool_call("s", call.tool_call_id)
        [known], [listed] = await store.get(Turn, ["t"]), await store.sessions(SessionQuery())
        assert found
        assert listed.last_message
        for turn in (next(iter(await store.turns("s"))), known):
            texts = (turn.reasoning, turn.user_message, turn.tool_calls[0].result, found.result)
            for text in texts:
                assert text
                assert 4_000_000 < len(text) < 4_300_000
                assert text.endswith("characters: the rest is left out]")
        assert len(listed.last_message) == 16 << 20
        [size] = await ask(neo4j_server, "MATCH (t:ConversationTurn) RETURN size(t.reasoning) AS n")
        assert size["n"] == 18_000_000
    finally:
        await store.aclose()

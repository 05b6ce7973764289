"""What the interface finds in past conversations: those like a text, and what was said in one."""

import pytest

from ragmem import OpenMemory
from ragmem.errors import UsageError
from ragmem.ids import new_id
from ragmem.records import UpdateSession, utc_now
from tests.fakes.scripted_llm import Says

from .conftest import Spot
from .test_conversation import an_agent, said

AUTH = "Authentication was refactored: login tokens are refreshed by middleware."
BEDS = "A garden was planned, with ferns in the shade of the north wall."


async def summed(memory: OpenMemory, session_id: str, text: str, of: int = 2) -> None:
    """Its own summary, of so many messages."""
    await memory.app.memory.record(
        [UpdateSession(session_id=session_id, summary=text, summarized_count=of, at=utc_now())]
    )


async def test_similar_conversations(memory: OpenMemory, spot: Spot) -> None:
    """Those with a summary, strictly above the threshold, nearest first."""
    async with an_agent(memory, spot, *[Says("Yes.")] * 3) as (agent, _, _):
        talks = [await agent.create_conversation(name, ["past"]) for name in ("a", "b", "c")]
        for talk in talks:
            await talk.send_message("refactoring authentication?")
        await summed(memory, talks[0].uuid, AUTH)
        await summed(memory, talks[1].uuid, BEDS)
        (found,) = await agent.find_similar_conversations("refactoring authentication", limit=3)
        assert found.uuid == talks[0].uuid
        assert (found.session.title, found.session.tags) == ("a", ("past",))
        floor = memory.app.memory.floor
        assert floor is not None
        assert floor < found.similarity <= 1
        assert await agent.find_similar_conversations("refactoring authentication", 0) == []
        # The same by the vectors that the background makes, and nothing else is near.
        assert await agent.drain()
        (again,) = await agent.find_similar_conversations("refactoring authentication")
        assert (again.uuid, again.similarity) == (
            found.uuid,
            pytest.approx(found.similarity, abs=0.01),
        )
        assert await agent.find_similar_conversations("the price of coffee in Peru") == []


async def test_nothing_is_compared_where_none_is_embedded(memory: OpenMemory, spot: Spot) -> None:
    async with an_agent(memory, spot, embed_messages=False) as (agent, _, _):
        with pytest.raises(UsageError, match="embeddings are turned off"):
            await agent.find_similar_conversations("x")


async def test_history_is_searched_above_the_threshold(memory: OpenMemory, spot: Spot) -> None:
    """What holds the words, or is near enough; not just the nearest there is."""
    async with an_agent(memory, spot, Says("In burrows."), Says("Two euros.")) as (agent, _, _):
        talk = await agent.create_conversation()
        await talk.send_message("Where do wombats live?")
        await talk.send_message("What does coffee cost?")
        assert await agent.drain()
        (hit,) = await talk.search_history("wombats", limit=1)
        assert hit.turn
        assert hit.turn.turn_index == 1
        assert await talk.search_history("quantum chromodynamics", limit=5) == []


async def test_a_branch_knows_nothing_of_what_came_later(memory: OpenMemory, spot: Spot) -> None:
    """Up to and with an answer, also where its question is named; the original is untouched.

    Neither the summary, nor what this process remembers, nor another's turns are in it.
    """
    script = [Says("First."), Says("Second."), Says("Third."), Says("Fourth.")]
    async with an_agent(memory, spot, *script) as (agent, llm, _):
        talk, other = await agent.create_conversation(), await agent.create_conversation()
        for text in ("One?", "Two?"):
            await talk.send_message(text)
        await other.send_message("Elsewhere?")
        await summed(memory, talk.uuid, "One and two.", of=4)
        history = await talk.get_history()
        for named in history[:2]:
            branch = await talk.branch(named.uuid, "Another way")
            assert branch.title == "Another way"
            assert [m.content for m in await branch.get_history()] == ["One?", "First."]
        assert await branch.get_summary() is None
        assert [m.content for m in branch.message_cache] == ["One?", "First."]
        await branch.send_message("And?")
        assert "Two?" not in said(llm).split("<memory-")[0]
        assert "One and two." not in said(llm)
        assert len(await branch.get_history()) == 4
        assert await talk.get_history() == history
        whole = await talk.branch(history[3].uuid)
        assert await whole.get_summary() == "One and two."
        [_, foreign] = await other.get_history()
        for wrong in (foreign.uuid, f"{new_id()}:user", "nonsense", new_id()):
            with pytest.raises(UsageError, match="not a message of this conversation"):
                await talk.branch(wrong)

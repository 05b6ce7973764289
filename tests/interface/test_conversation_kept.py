"""Conversations as they are kept, moved and gone on with: what section B says of each record."""

from typing import Any

from ragmem import OpenMemory
from tests.fakes.scripted_llm import Says

from .conftest import Spot
from .test_conversation import an_agent, finds, said


async def test_each_message_says_whose_it_is(memory: OpenMemory, spot: Spot) -> None:
    """An id, its conversation, its role; no vector is needed to be there."""
    async with an_agent(memory, spot, Says("In burrows.", reasoning="zoology")) as (agent, _, _):
        talk = await agent.create_conversation("Wombats")
        await talk.send_message("Where do wombats live?")
        own, answer = await talk.get_history()
        assert (own.role, answer.role) == ("user", "assistant")
        assert {own.conversation_id, answer.conversation_id} == {talk.uuid}
        assert own.uuid != answer.uuid
        assert own.timestamp <= answer.timestamp
        # Nothing was embedded yet: it is found by its words, and shown.
        [hit] = await talk.search_history("wombats")
        assert hit.similarity is None
        again = await agent.load_conversation(talk.uuid)
        assert await again.get_history() == [own, answer]


async def test_an_export_is_the_conversation_as_a_file(memory: OpenMemory, spot: Spot) -> None:
    """What was said, thought and done, without the graph that it stands in."""
    script = [finds("login", "I look."), Says("It is in auth.py.", reasoning="as found")]
    async with an_agent(memory, spot, *script) as (agent, _, _):
        talk = await agent.create_conversation("Debug")
        await talk.send_message("Where is login?")
        exported: dict[str, Any] = await talk.export()
        assert exported["session"]["session_id"] == talk.uuid
        [turn] = exported["turns"]
        assert turn["user_message"] == "Where is login?"
        assert (turn["assistant_message"], turn["reasoning"]) == ("It is in auth.py.", "as found")
        assert [call["tool_name"] for call in turn["tool_calls"]] == ["find_symbol"]
        assert "vectors" not in str(exported)


async def test_planning_a_refactoring(memory: OpenMemory, spot: Spot) -> None:
    """Several turns, then a summary when it is asked for; it is the next prompt's."""
    script = [Says("Three modules touch it."), Says("Split the session out."), Says("As planned.")]
    async with an_agent(memory, spot, *script) as (agent, llm, small):
        talk = await agent.create_conversation("Refactor authentication")
        await talk.send_message("What touches authentication?")
        await talk.send_message("What would you change first?")
        assert await talk.get_summary() is None
        summary = await talk.summarize()
        assert 0 < len(summary) < 1_200
        data = small.requests[-1].messages[-1].text
        assert "Three modules touch it." in data
        assert "Split the session out." in data
        await talk.send_message("Go on")
        assert summary in said(llm)


async def test_knowledge_adds_up(memory: OpenMemory, spot: Spot) -> None:
    """A later conversation is told what earlier ones have found."""
    script = [Says("The pond pump runs on port 5439."), Says("On 5439.")]
    async with an_agent(memory, spot, *script) as (agent, llm, _):
        first = await agent.create_conversation("Pump")
        await first.send_message("Where does the pond pump listen?")
        second = await agent.create_conversation("Later")
        await second.send_message("Which port was the pond pump on?")
        assert "The pond pump runs on port 5439." in said(llm)


async def test_which_context_was_used(memory: OpenMemory, spot: Spot) -> None:
    """Each answer tells what the model was told for it, by section."""
    async with an_agent(memory, spot, Says("In burrows."), Says("At night.")) as (agent, llm, _):
        talk = await agent.create_conversation()
        first = await talk.send_message("Where do wombats live?")
        second = await talk.send_message("And when do they wake?")
        assert first.context_used["Prompt"] == len("Where do wombats live?")
        assert second.context_used["Prompt"] == len("And when do they wake?")
        assert sum(second.context_used.values()) > sum(first.context_used.values())
        assert "In burrows." in said(llm)

"""What is known, through the Python interface: in its contexts, by its tools, from its turns."""

import json

from ragmem import ConversationAgent, ConversationConfig, OpenMemory
from ragmem.messages import ToolUse
from tests.fakes.scripted_llm import Says, ScriptedLLM

from .conftest import Spot
from .test_conversation import FindSymbol

_TOLD = {"content": "Staging listens on port 5439", "subjects": ["staging"], "reason": "asked"}


async def test_an_agent_remembers_and_is_told(memory: OpenMemory, spot: Spot) -> None:
    """Kept in one conversation, there in the next, and in plain contexts."""
    llm = ScriptedLLM(
        [
            Says(tools=(ToolUse("x", "remember", json.dumps(_TOLD)),)),
            Says("Noted."),
            Says("On port 5439."),
        ]
    )
    config = ConversationConfig(enable_summarization=False)
    async with ConversationAgent(memory, llm, [FindSymbol()], config, cwd=spot.folder) as agent:
        first = await agent.create_conversation()
        reply = await first.send_message("Where does it listen, by the way?")
        assert [call.tool_name for call in reply.tool_calls] == ["remember"]
        assert "search_memories" in llm.requests[0].messages[0].text
        second = await agent.create_conversation()
        reply = await second.send_message("Which port does staging have?")
        # Once: the turn that it is of is recalled, and tells it.
        assert llm.requests[-1].messages[-1].text.count("] Staging listens on port 5439") == 1
    context = await memory.build_context(second.uuid, "What about staging and its port?")
    assert "] Staging listens on port 5439" in context.messages[-1].text


async def test_what_is_said_is_learned_behind_it(memory: OpenMemory, spot: Spot) -> None:
    """Moments of a turn that was stored, without a model, by `drain`."""
    session_id = await memory.create_session(spot.folder)
    await memory.store_turn(session_id, "We decided to use JWT for the login.", "So be it.")
    assert await memory.drain()
    other = await memory.create_session(spot.folder)
    context = await memory.build_context(other, "How does the login work?")
    assert "We decided to use JWT for the login." in context.messages[-1].text
    facts, told = memory.app.memory.facts, await memory.app.memory.load_session(session_id)
    assert facts is not None
    (kept,) = await facts.current(told.session.project_id)
    assert (kept.kind, kept.content) == ("decision", "We decided to use JWT for the login.")


async def test_an_agent_without_tools_is_offered_none(memory: OpenMemory, spot: Spot) -> None:
    """A caller who gives no tools wants none; what is known is told all the same."""
    facts = memory.app.memory.facts
    assert facts is not None
    await facts.set_profile("name", "Mickael")
    llm = ScriptedLLM([Says("Hello.")])
    config = ConversationConfig(enable_summarization=False)
    async with ConversationAgent(memory, llm, (), config, cwd=spot.folder) as agent:
        await (await agent.create_conversation()).send_message("Hello")
    assert llm.requests[0].tools == ()
    assert "search_memories" not in llm.requests[0].messages[0].text
    assert "[User Profile]\nname=Mickael" in llm.requests[0].messages[-1].text

"""A store that goes away in the middle: what this process read of it before is still known."""

from pathlib import Path

from ragmem.config import ContextConfig, MemoryConfig
from ragmem.llm.base import ModelInfo
from ragmem.memory.context import ContextBuilder
from ragmem.memory.context.history import COMPRESSION_MARKER
from ragmem.records import UpdateSession, utc_now
from tests.fakes.frail_store import FrailStore, Line
from tests.store.conftest import OpenStore

from .working import a_builder, a_memory, a_model, a_worker, context, small_talk, tell


async def test_a_resumed_conversation_keeps_its_goal_and_its_gist(
    open_store: OpenStore, tmp_path: Path
) -> None:
    """Another process' turns and summaries too."""
    inner = await open_store()
    async with a_memory(inner) as memory:
        project = (await memory.project_of(tmp_path)).project
        session = memory.new_session(tmp_path, project)
        await tell(memory, session, project, "The goal: a garden for wombats.", "Good.")
        await tell(memory, session, project, "Never plant roses. What now?", "Ferns.")
        for number in range(3, 8):
            await tell(memory, session, project, *small_talk(number))
        assert await a_worker(inner, llm=a_model()).drain()
        await inner.apply(
            [UpdateSession(session_id=session.session_id, summary="Ferns it is.", at=utc_now())]
        )
    line = Line()
    async with a_memory(FrailStore(inner, line)) as memory:  # type: ignore[arg-type]
        resumed = await memory.find_session(session.session_id)
        assert not (await context(memory, resumed, "And?", a_builder(8_000))).fallback
        await tell(memory, resumed, project, "A last word?", "Shade.")
        line.set("refusing")
        built = await context(memory, resumed, "And now?", a_builder(8_000))
        text = built.messages[-1].text
        assert built.fallback
        assert text.count("user: The goal: a garden for wombats.") == 1
        bridge = text.split(COMPRESSION_MARKER)[1].split("\n\n")[0]
        assert "So far: Ferns it is." in bridge
        assert "- Beds were planned." in bridge
        assert "- user: Never plant roses." in bridge
        # Nine of the latest behind it, the last one said in this process.
        tail = text.split(bridge)[1]
        assert tail.count("\nuser: ") + tail.count("\nassistant: ") == 9
        assert "assistant: Shade." in tail
        assert text.endswith("And now?")
        # Within its budget, also where there is little room.
        config = MemoryConfig(context=ContextConfig(max_chars=1_500))
        small = ContextBuilder(config, ModelInfo(name="openai/x"))
        built = await context(memory, resumed, "And now?", small)
        (section,) = [s for s in built.sections if s.name == "Conversation History"]
        assert section.chars <= section.budget == 600
        assert "The goal" in built.messages[-1].text
        assert "Shade." in built.messages[-1].text
        line.set("fine")
        assert not (await context(memory, resumed, "And now?", a_builder(8_000))).fallback

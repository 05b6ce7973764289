"""What is told of a long conversation beside the window, on each real store."""

import json
import re
from pathlib import Path

from ragmem.config import SummariesConfig
from ragmem.store import Store
from tests.fakes.scripted_llm import Says, ScriptedLLM

from .working import a_builder, a_memory, a_worker, context, tell


async def test_at_most_ten_of_them_are_shown(store: Store, tmp_path: Path) -> None:
    """Of the latest turns that are not shown, whenever they were made."""
    async with a_memory(store) as memory:
        project = (await memory.project_of(tmp_path)).project
        session = memory.new_session(tmp_path, project)
        for number in range(40):
            await tell(memory, session, project, f"bed {number}?", "x" * 300)
        llm = ScriptedLLM([lambda request: Says(_named(request.messages[-1].text))], repeat=True)
        config = SummariesConfig(rollup_chars=1_000_000)
        assert await a_worker(store, llm=llm, config=config).drain()
        current = await memory.find_session(session.session_id)
        builder = a_builder(7_000)
        built = await context(memory, current, "?", builder)
        sections = {section.name: section for section in built.sections}
        shown = [item.label for item in sections["Recent Conversation"].items]
        # More than ten turns are in the window: their summaries take nobody's place.
        assert len(shown) > 12
        first = int(shown[0].split(":")[0].removeprefix("Turn "))
        listed = [item.label for item in sections["Level 1 Summaries"].items]
        assert listed == [f"summary of bed {first - 2 - i}" for i in range(10)]
        other = await context(memory, memory.new_session(tmp_path, project), "?", a_builder(7_000))
        assert "Level 1 Summaries" not in other.sizes


async def test_of_what_was_asked_before_the_window_the_last_ten_are_repeated(
    store: Store, tmp_path: Path
) -> None:
    """In short: a long chat does not send all its old questions with each new one."""
    async with a_memory(store) as memory:
        project = (await memory.project_of(tmp_path)).project
        session = memory.new_session(tmp_path, project)
        for number in range(40):
            await tell(memory, session, project, f"bed {number}? {'x' * 400}", "It is wet. " * 90)
        current = await memory.find_session(session.session_id)
        built = await context(memory, current, "?", a_builder(30_000))
        sections = {section.name: section for section in built.sections}
        first = int(sections["Recent Conversation"].items[0].label.split(":")[0].split(" ")[1])
        listed = built.text().split("## Last User Queries\n")[1].split("\n\n")[0].split("\n")
        assert sorted(re.findall(r"bed \d+", "".join(listed))) == sorted(
            f"bed {number}" for number in range(first - 11, first - 1)
        )
        assert max(map(len, listed)) < 250


def _named(data: str) -> str:
    bed = data.partition("Person: bed ")[2].partition("?")[0]
    return json.dumps({"text": f"summary of bed {bed}"})

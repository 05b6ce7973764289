"""What is told of a long conversation beside the window, on a real store."""

import json
import re

from ragmem.config import SummariesConfig
from ragmem.memory.context.builder import Context
from tests.fakes.scripted_llm import Says, ScriptedLLM

from .working import Chat, a_builder, a_worker


async def after_thirty(chat: Chat, asked: str, answer: str, window: int) -> tuple[Context, int]:
    """What is sent after so many turns about beds, and the first turn that the window shows."""
    for number in range(30):
        await chat.told(f"bed {number}?{asked}", answer=answer)
    llm = ScriptedLLM([lambda request: Says(_named(request.messages[-1].text))], repeat=True)
    config = SummariesConfig(rollup_chars=1_000_000)
    assert await a_worker(chat.store, llm=llm, config=config).drain()
    current = await chat.memory.find_session(chat.session.session_id)
    built = await chat.asks("?", current, builder=a_builder(window))
    [recent] = [section for section in built.sections if section.name == "Recent Conversation"]
    return built, int(recent.items[0].label.split(":")[0].removeprefix("Turn "))


async def test_of_the_summaries_of_turns_at_most_ten_are_shown(chat: Chat) -> None:
    """Of the latest turns that are not shown, whenever they were made."""
    built, first = await after_thirty(chat, "", "x" * 300, 7_000)
    # More than ten turns are in the window: their summaries take nobody's place.
    assert first < 30 - 12
    [section] = [section for section in built.sections if section.name == "Level 1 Summaries"]
    listed = [item.label for item in section.items]
    assert listed == [f"summary of bed {first - 2 - i}" for i in range(10)]
    await chat.begin()
    assert "Level 1 Summaries" not in (await chat.asks("?", builder=a_builder(7_000))).sizes


async def test_of_what_was_asked_before_the_window_the_last_ten_are_repeated(chat: Chat) -> None:
    """In short: a long chat does not send all its old questions with each new one."""
    built, first = await after_thirty(chat, "x" * 400, "It is wet. " * 90, 30_000)
    listed = built.text().split("## Last User Queries\n")[1].split("\n\n")[0].split("\n")
    assert sorted(re.findall(r"bed \d+", "".join(listed))) == sorted(
        f"bed {number}" for number in range(first - 11, first - 1)
    )
    assert max(map(len, listed)) < 250


def _named(data: str) -> str:
    bed = data.partition("Person: bed ")[2].partition("?")[0]
    return json.dumps({"text": f"summary of bed {bed}"})

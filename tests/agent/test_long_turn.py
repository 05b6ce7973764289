"""A turn that goes on for long stays inside the model's window, and loses nothing."""

import re
from collections.abc import AsyncIterator, Sequence

import pytest

from ragmem.errors import ContextTooLong
from ragmem.llm.base import Chunk, ModelInfo, Request
from ragmem.messages import Message, ToolAnswer
from tests.agent.conftest import Bench, Events, asked, calls, reads
from tests.fakes.scripted_llm import Says, ScriptedLLM, Step

SMALL = ModelInfo(name="test/small", context_window=32_000)


def answers(messages: tuple[Message, ...]) -> list[str]:
    return [p.text for m in messages for p in m.parts if isinstance(p, ToolAnswer)]


async def test_calls_of_20_kb_go_on_inside_a_window_of_32_000_tokens(bench: Bench) -> None:
    """Every request fits, the newest result is whole, every result is stored."""
    text = "x" * 20_000
    for number in range(15):
        (bench.folder / f"{number}.txt").write_text(f"file {number} {text}")
    script = [reads(f"{number}.txt") for number in range(15)]
    agent, llm = await bench.agent([*script, Says("done")], info=SMALL)
    reply = await agent.send("read them all")
    assert reply.content == "done"
    for number, request in enumerate(llm.requests):
        assert sum(m.char_count for m in request.messages) < 4 * 32_000 * 3 // 4
        if number:
            assert answers(request.messages)[-1] == f"file {number - 1} {text}"
    turn = await bench.turn(agent)
    assert [len(call.result) > 20_000 for call in turn.tool_calls] == [True] * 15


async def test_a_result_that_was_left_out_is_brought_back_by_its_id(bench: Bench) -> None:
    """`recall_result` reaches this turn, and earlier ones through the store."""
    big = "the needle is 4711\n" + "x" * 60_000
    (bench.folder / "big.txt").write_text(big)
    for number in range(4):
        (bench.folder / f"{number}.txt").write_text("y" * 20_000)
    reading = [reads("big.txt"), *(reads(f"{number}.txt") for number in range(4))]
    agent, llm = await bench.agent([*reading, Says("read")], info=SMALL)
    await agent.send("read")
    (place,) = [text for text in answers(llm.requests[-1].messages) if "big.txt" in text]
    found = re.fullmatch(
        r'\[read_file \{"path":"big.txt"\}: 60,019 characters left out to save room; '
        r"recall_result brings them back: id (\w+)\]",
        place.replace('": "', '":"'),
    )
    assert found, place
    recall = calls("recall_result", id=found[1], limit=100)
    # In the same process from its own memory, in another one from the store.
    for memory in (bench.memory, bench.new_memory()):
        again, llm = await bench.agent(
            [recall, Says("4711")], info=SMALL, session=agent.session, memory=memory
        )
        await again.send("what was the needle?")
        answer = answers(llm.requests[-1].messages)[-1]
        assert "the needle is 4711" in answer
        assert "characters 0 to 100 of 60,019; continue with offset=100" in answer


async def test_an_unknown_id_is_told(bench: Bench) -> None:
    agent, llm = await bench.agent([calls("recall_result", id="abcdef123"), Says("so be it")])
    await agent.send("go")
    assert "No tool call in this conversation has the id" in answers(llm.requests[-1].messages)[-1]


class SmallWindow(ScriptedLLM):
    """Refuses what is longer than its window, which it names or not."""

    def __init__(self, script: Sequence[Step], *, chars: int, named: int | None = None) -> None:
        super().__init__(script, info=ModelInfo(name="own/model"))
        self._chars, self._named = chars, named
        self.refused: list[int] = []

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        size = sum(message.char_count for message in request.messages)
        if size > self._chars:
            self.refused.append(size)
            raise ContextTooLong("too long", window=self._named)
        async for chunk in super().stream(request):
            yield chunk


@pytest.mark.parametrize("named", [None, 8_192])
async def test_a_turn_goes_on_in_a_far_smaller_window(bench: Bench, named: int | None) -> None:
    """That of a server of one's own is not known: what is sent is halved until it fits."""
    for number in range(12):
        (bench.folder / f"{number}.txt").write_text(f"file {number} " + "x" * 9_000)
    reading = [reads(f"{number}.txt") for number in range(12)]
    llm = SmallWindow([*reading, Says("done")], chars=32_000, named=named)
    agent, _ = await bench.agent([], llm=llm)
    reply = await agent.send("read them all")
    assert (reply.content, reply.finished.subtype) == ("done", "success")
    assert all(call.success for call in reply.tool_calls)
    assert 0 < len(llm.refused) < 4
    for number, request in enumerate(llm.requests[1:]):
        assert answers(request.messages)[-1].startswith(f"file {number} ")


async def test_the_window_that_a_refusal_names_holds_for_the_session(bench: Bench) -> None:
    """The person is told once, and the next turn is built for it."""
    filler = "word " * 2000
    llm = SmallWindow([*[Says(filler)] * 3, Says("a"), Says("b")], chars=32_000, named=8_192)
    agent, _ = await bench.agent([], llm=llm)
    for number in range(3):
        await agent.send(f"q{number}")
    events = await asked(agent, "And " + "this " * 3_000) + await asked(agent, "q5")
    told = ["own/model takes at most 8,192 tokens, according to its provider."]
    assert Events(events).notices == told
    assert (len(llm.refused), agent.context_window) == (1, 8_192)
    assert (await agent.context("q6")).max_chars == 16_384


async def test_what_can_not_be_made_smaller_is_told(bench: Bench) -> None:
    llm = SmallWindow([], chars=1_000)
    agent, _ = await bench.agent([], llm=llm)
    reply = await agent.send("word " * 1_000)
    assert (reply.finished.error, len(llm.refused) < 8) == ("too long", True)

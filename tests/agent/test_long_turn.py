"""A turn that goes on for long stays inside the model's window, and loses nothing."""

import re

from ragmem.errors import ContextTooLong
from ragmem.llm.base import ModelInfo
from ragmem.messages import Message, ToolAnswer
from tests.agent.conftest import Bench, calls, reads
from tests.fakes.scripted_llm import Says

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
        assert "characters 0 to 100 of 60,019; go on with offset 100" in answer


async def test_an_unknown_id_is_told(bench: Bench) -> None:
    agent, llm = await bench.agent([calls("recall_result", id="abcdef123"), Says("so be it")])
    await agent.send("go")
    assert "No tool call of this conversation has the id" in answers(llm.requests[-1].messages)[-1]


async def test_a_request_too_long_within_the_loop_is_made_smaller(bench: Bench) -> None:
    """Four characters a token is an estimate; the provider's word counts."""
    for number in range(3):
        (bench.folder / f"{number}.txt").write_text("x" * 20_000)
    reading = [reads(f"{number}.txt") for number in range(3)]
    agent, llm = await bench.agent([*reading, ContextTooLong("too long"), Says("done")], info=SMALL)
    reply = await agent.send("read")
    assert reply.content == "done"
    sizes = [sum(m.char_count for m in request.messages) for request in llm.requests]
    assert sizes[4] < sizes[3] * 3 // 4

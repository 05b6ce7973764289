"""One turn from the draft to what is remembered of it, as the next requests show it."""

import asyncio

from ragmem.events import TextDelta, TurnFinished, TurnStarted
from ragmem.records import Turn
from tests.agent.conftest import Bench, Events, reads
from tests.fakes.patience import until
from tests.fakes.scripted_llm import Says


async def test_from_the_draft_to_the_end(bench: Bench) -> None:
    """Stored before the model is asked, told word by word, then ended.

    The model is given what it is (system) and what it is asked (user), with the memory in it.
    """
    gate = asyncio.Event()
    agent, llm = await bench.agent([Says("In the northern beds.", reasoning="hm", gate=gate)])
    events = Events()

    async def read() -> None:
        async for event in agent.ask("Where do ferns grow?"):
            events.append(event)

    reading = asyncio.create_task(read())
    said = "In the northern beds."
    await until(lambda: "".join(e.text for e in events.of(TextDelta)) == said)
    # All of it is shown, and the model has not ended yet.
    assert isinstance(events[0], TurnStarted)
    assert (len(events.of(TextDelta)), events.of(TurnFinished)) == (4, [])
    draft = await bench.turn(agent)
    assert (draft.status, draft.user_message) == ("running", "Where do ferns grow?")
    assert draft.turn_id == events[0].turn_id
    assert await bench.store.pending("vectors", limit=9) == []
    (request,) = llm.requests
    assert [message.role for message in request.messages] == ["system", "user"]
    assert request.messages[0].text.startswith("You are ragmem")
    assert "Where do ferns grow?" not in request.messages[0].text
    assert "<memory-" not in request.messages[0].text
    assert request.messages[-1].text.endswith("Where do ferns grow?")
    gate.set()
    await reading
    assert events.end
    done = await bench.turn(agent)
    assert (done.status, done.assistant_message) == ("completed", "In the northern beds.")
    assert [p.record_id for p in await bench.store.pending("vectors", limit=9)] == [done.turn_id]


async def test_what_is_shown_of_an_answer_is_kept_before_it_ends(bench: Bench) -> None:
    """Should the process die, it is the turn's answer; what comes before a call becomes that's.

    Its last word waits for the next one: it may be the beginning of a key.
    """
    first, second = asyncio.Event(), asyncio.Event()
    agent, llm = await bench.agent(
        [
            reads("beds.txt", text="I'll look.", gate=first),
            Says("In the northern beds.", gate=second),
        ]
    )
    asking = asyncio.create_task(agent.send("Where do ferns grow?"))

    async def comes_to(text: str) -> Turn:
        while not llm.requests or ((turn := await bench.turn(agent)).assistant_message != text):
            await asyncio.sleep(0.01)
        return turn

    async with asyncio.timeout(30):
        assert (await comes_to("I'll ")).status == "running"
        first.set()
        (call,) = (await comes_to("")).tool_calls
        assert call.preamble == "I'll look."
        assert (await comes_to("In the northern ")).status == "running"
    second.set()
    await asking
    assert (await bench.turn(agent)).status == "completed"


async def test_what_was_thought_is_kept_and_not_sent_again(bench: Bench) -> None:
    """Earlier turns are messages, and their reasoning stays here."""
    agent, llm = await bench.agent(
        [
            reads("a.py", text="I look.", reasoning="It must be in a.py, I think."),
            Says("It prints.", reasoning="Clear."),
            Says("Bye."),
        ]
    )
    await agent.send("What does a.py do?")
    await agent.send("Thanks.")
    turn = (await bench.store.turns(agent.session.session_id))[0]
    assert turn.reasoning == "It must be in a.py, I think.\n\nClear."
    messages = llm.requests[-1].messages
    text = "\n".join(str(message) for message in messages)
    assert "I think" not in text
    assert "## Recent Messages" not in text
    assert "*Tools used*" not in text
    assert [m.role for m in messages] == [
        "system", "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    assert [use.name for use in messages[2].tool_uses] == ["read_file"]

"""What the person says while a turn runs: told the model at its next call, kept in its place."""

import asyncio
from collections.abc import Sequence

from ragmem.agent.calls import ToolLoop
from ragmem.events import ModelCallStarted, PromptAdded, ToolFinished, TurnFinished
from ragmem.llm.base import ModelInfo
from ragmem.memory.turns import prompts_of
from ragmem.messages import Message, user
from ragmem.records import SearchQuery, WeightedTerm
from tests.agent.conftest import Bench, asked, reads
from tests.agent.test_toolloop import HEAD, a_round, assert_valid, size
from tests.fakes.patience import until
from tests.fakes.scripted_llm import Says
from tests.memory.builders import a_call, a_turn


class Keys:
    """What is typed, by the number of the time that the turn asks for it."""

    def __init__(self, *typed: Sequence[str]) -> None:
        self._typed = list(typed)

    def __call__(self, room: int) -> Sequence[str]:
        assert room > 1_000
        return self._typed.pop(0) if self._typed else ()


def said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Role and text of each message, a tool's with its answer."""
    return [(m.role, m.text or "".join(getattr(p, "text", "") for p in m.parts)) for m in messages]


async def test_it_goes_to_the_model_with_the_results_and_stays_there(bench: Bench) -> None:
    """Several together, in order; the same in the requests of this turn and of the next."""
    agent, llm = await bench.agent(
        [reads("a.py", "b.py"), reads("a.py"), Says("Done."), Says("You are welcome.")]
    )
    keys = Keys(["Never mind b.py", "And say it in French"], ["Shorter"])
    events = await asked(agent, "What do they do?", keys)
    kinds = (ToolFinished, PromptAdded, ModelCallStarted, TurnFinished)
    shown = [getattr(e, "text", type(e).__name__) for e in events if isinstance(e, kinds)]
    assert shown[3:6] == ["Never mind b.py", "And say it in French", "ModelCallStarted"]
    assert shown[7:9] == ["Shorter", "ModelCallStarted"]
    both = "Never mind b.py\n\nAnd say it in French"
    second, third = (said(request.messages)[-1] for request in llm.requests[1:3])
    assert second == ("user", both)
    assert third == ("user", "Shorter")
    assert [m.role for m in llm.requests[1].messages[-3:]] == ["tool", "tool", "user"]

    turn = await bench.turn(agent)
    assert turn.user_message == f"What do they do?\n\n{both}\n\nShorter"
    first, later = prompts_of(turn)
    assert (first, [*later.values()]) == ("What do they do?", [both, "Shorter"])
    found = await bench.store.search(SearchQuery(terms=(WeightedTerm("french"),)))
    assert [each.record_id for each in found if each.text] == [turn.turn_id]

    await agent.send("Thanks")
    roles = [(role, text) for role, text in said(llm.requests[3].messages) if role != "system"]
    assert [role for role, _ in roles] == [
        "user", "assistant", "tool", "tool", "user", "assistant", "tool", "user", "assistant",
        "user",
    ]  # fmt: skip
    assert roles[0] == ("user", "What do they do?")
    assert (roles[4], roles[7]) == (("user", both), ("user", "Shorter"))


async def test_it_lasts_before_the_model_is_told(bench: Bench) -> None:
    """Should the process die then, it is in the turn; so it is when the person stops it."""
    gate = asyncio.Event()
    agent, llm = await bench.agent([reads("a.py"), Says("Fine.", gate=gate)])
    asking = asyncio.create_task(asked(agent, "What does it do?", Keys(["And b.py?"])))
    await until(lambda: len(llm.requests) == 2)
    running = await bench.turn(agent)
    assert (running.status, running.user_message) == ("running", "What does it do?\n\nAnd b.py?")
    agent.interrupt()
    await asking
    stopped = await bench.turn(agent)
    assert (stopped.status, stopped.user_message) == ("interrupted", running.user_message)
    assert [*prompts_of(stopped)[1].values()] == ["And b.py?"]


async def test_nothing_is_taken_where_the_model_is_not_asked_again(bench: Bench) -> None:
    """Not by a turn that ends, nor for the last words of one that has reached its limit."""
    keys = Keys(["Too late"])
    agent, _ = await bench.agent([Says("Done.")])
    await asked(agent, "Hello", keys)
    agent, _ = await bench.agent([reads("a.py"), Says("So far.")], max_iterations=1)
    await asked(agent, "Read", keys)
    assert keys(9_999) == ["Too late"]


async def test_a_file_that_it_names_is_read(bench: Bench) -> None:
    """And stands behind those words, not behind the prompt, also in later requests."""
    agent, llm = await bench.agent([reads("a.py"), Says("x is 1."), Says("Yes.")])
    await asked(agent, "What does it do?", Keys(["And @b.py"]))
    await agent.send("Sure?")
    now, later = llm.requests[1].messages[-1].text, said(llm.requests[2].messages)
    assert now.startswith("And @b.py\n\n<file-")
    assert "x = 1" in now
    (begins, _, _, again, *_) = [text for role, text in later if role != "system"]
    assert begins == "What does it do?"
    assert again == now


async def test_files_that_have_no_room_are_clipped(bench: Bench) -> None:
    """A turn goes on, however much such words name."""
    for name in "cd":
        (bench.folder / f"{name}.py").write_text(f"{name} = 1\n" * 5_000)
    info = ModelInfo(name="openai/small", context_window=8_000)
    agent, llm = await bench.agent([reads("a.py"), Says("Done.")], info=info)
    await asked(agent, "What does it do?", Keys(["And @c.py with @d.py"]))
    now = llm.requests[1].messages[-1].text
    assert "c = 1" in now
    assert "d = 1" in now
    assert len(now) < 2 * 8_000


async def test_a_secret_in_it_is_stored_nowhere(bench: Bench) -> None:
    """The model that is at work on it is told."""
    key = "sk-proj-" + "aB3" * 16
    agent, llm = await bench.agent([reads("a.py"), Says("Done.")])
    await asked(agent, "Read", Keys([f"The key is {key}"]))
    assert key in llm.requests[1].messages[-1].text
    turn = await bench.turn(agent)
    assert key not in f"{turn}"
    assert turn.user_message.startswith("Read\n\nThe key is ")
    assert len(prompts_of(turn)[1]) == 1


def test_what_was_said_in_rounds_that_are_left_out_stays_whole() -> None:
    """However long the turn gets, the person need not say it twice."""
    loop = ToolLoop(HEAD, limit=8_000)
    loop.add(a_round(0, 1000))
    loop.say(user("Only the northern beds!"))
    for i in range(1, 300):
        loop.add(a_round(i, 500))
        assert size(loop) <= 8_000
        assert_valid(loop.messages)
    prompt = loop.messages[1].text
    assert prompt.startswith("do it\n\nOnly the northern beds!\n\n[Done earlier in this turn")
    assert not [m for m in loop.messages[2:] if m.role == "user"]


def test_a_result_that_is_no_object_keeps_no_place() -> None:
    """Then it is part of what the turn began with: nothing is lost."""
    for result in ("[]", '{"text": "", "said_then": "C"}'):
        assert prompts_of(a_turn(1, "A\n\nB", calls=(a_call(result=result),))) == ("A\n\nB", {})

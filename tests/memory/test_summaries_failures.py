"""The summariser: what it does when the model fails, or can't read all at once."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot

from ragmem.config import SummariesConfig
from ragmem.errors import ContextTooLong, ProviderRefused, ProviderUnavailable, StreamCut
from ragmem.ids import new_id
from ragmem.llm.base import ModelInfo
from ragmem.memory.summaries import split, turn_records
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.usage import UsageLog
from tests.fakes.scripted_llm import Says, ScriptedLLM, Step

from .builders import T0, a_turn
from .summarizing import GOOD, TURN, Naps, a_summarizer, asked

# --- failures ---------------------------------------------------------------------------------


async def test_a_bad_answer_is_asked_for_again() -> None:
    """The reason is told; the third answer counts; no waiting for that."""
    summarizer, llm = a_summarizer(Says("Sure!"), Says('{"text": ""}'), Says(GOOD))
    found = await summarizer.summarize_turn(TURN)
    assert not found.extractive
    assert "could not be used" not in asked(llm.requests[0])
    assert "could not be used: it holds no JSON object" in asked(llm.requests[1])
    assert "could not be used: its text is empty" in asked(llm.requests[2])


@pytest.mark.parametrize(
    "error",
    [ProviderUnavailable("down"), StreamCut("cut"), Says("not JSON"), Says(GOOD, cut=True)],
    ids=["down", "cut", "no-json", "broken-off"],
)
async def test_after_three_tries_the_turn_itself_speaks(error: Step) -> None:
    """Marked extractive, so that it is redone; with waits that grow between tries."""
    naps = Naps()
    llm = ScriptedLLM([error] * 3)
    summarizer = Summarizer(llm, SummariesConfig(), sleep=naps)
    found = await summarizer.summarize_turn(TURN)
    assert found.extractive
    assert "SQLiteStore.open" in found.text
    assert llm.left == 0
    assert len(naps) == (0 if error == Says("not JSON") else 2)
    assert naps == sorted(naps)
    assert summarizer.spent("s").failed_calls == 3
    assert summarizer.problem
    assert summarizer.uses_model("s") is not isinstance(error, ProviderUnavailable)


async def test_trouble_is_told_once_of_each_kind() -> None:
    """Which model it is, and why."""
    gone = ProviderUnavailable("It is away.")
    told: list[str] = []
    script = (*[Says("Sure!")] * 6, *[gone] * 3, Says(GOOD))
    summarizer, _ = a_summarizer(*script, say=told.append)
    for number in range(1, 5):
        await summarizer.summarize_turn(a_turn(number))
    assert len(told) == 2
    assert "could not use what openai/scripted answered 3 times: it holds no JSON object" in told[0]
    assert "does without openai/scripted until" in told[1]
    assert told[1].endswith("It is away.")


async def test_the_server_s_wish_to_wait_is_kept() -> None:
    """Retry-After, up to a minute."""
    naps = Naps()
    llm = ScriptedLLM([ProviderUnavailable("busy", retry_after_s=7), Says(GOOD)])
    summarizer = Summarizer(llm, SummariesConfig(), sleep=naps)
    assert not (await summarizer.summarize_turn(TURN)).extractive
    assert naps == [7]


async def test_too_long_for_the_model_is_halved() -> None:
    """A window that was thought larger than it is."""
    long = a_turn(1, "x" * 8_000)
    summarizer, llm = a_summarizer(ContextTooLong("too long"), ContextTooLong("still"), Says(GOOD))
    assert not (await summarizer.summarize_turn(long)).extractive
    sizes = [request.messages[1].char_count for request in llm.requests]
    assert sizes[0] > 8_000
    assert sizes[2] < 2_500


async def test_a_model_that_never_ends_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream without end, and one that says nothing."""
    monkeypatch.setattr("ragmem.memory.summaries.summarizer._CALL_TIMEOUT_S", 3.0)
    endless = [Says("word " * 9_000), Says("", gate=asyncio.Event()), Says(GOOD)]
    summarizer, llm = a_summarizer(*endless)
    assert not (await summarizer.summarize_turn(TURN)).extractive
    assert llm.left == 0


async def test_cancelling_is_no_failure() -> None:
    """A worker that is told to end ends."""
    summarizer, llm = a_summarizer(Says(GOOD, gate=asyncio.Event()))
    task = asyncio.create_task(summarizer.summarize_turn(TURN))
    while not llm.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- long records -----------------------------------------------------------------------------


async def test_what_is_too_long_is_read_in_parts() -> None:
    """Each within the model's window, then put together; all of it is read."""
    info = ModelInfo(name="openai/small", context_window=8_000)
    words = " ".join(f"word{i}" for i in range(5_000))
    turn = a_turn(1, "Sum up this log:\n" + words)
    part = json.dumps({"text": "A part of the log.", "key_findings": ["it has words"]})
    records = turn_records(turn)
    count = len(split(records, 8_000 * 4 // 2 - 2_400))
    summarizer, llm = a_summarizer(*[Says(part)] * count, Says(GOOD), info=info)
    found = await summarizer.summarize_turn(turn)
    assert count == 4
    assert llm.left == 0
    assert found.text == "The lock error is fixed."
    read = "".join(request.messages[1].text for request in llm.requests[:-1])
    assert all(f"word{i}" in read for i in range(5_000))
    assert all(r.messages[0].char_count + r.messages[1].char_count < 16_000 for r in llm.requests)
    assert asked(llm.requests[-1]).partition("=====\n")[2] == snapshot("""\
<records-TAG>
Part 1 of 4. Summary: A part of the log.
- it has words

Part 2 of 4. Summary: A part of the log.
- it has words

Part 3 of 4. Summary: A part of the log.
- it has words

Part 4 of 4. Summary: A part of the log.
- it has words
</records-TAG>

That was the quoted data. Answer with the JSON object. Its `text` may have at most 226 characters.\
""")


async def test_a_part_that_fails_fails_the_whole() -> None:
    """Half a summary is none."""
    turn = a_turn(1, "x " * 20_000)
    summarizer, llm = a_summarizer(Says(GOOD), *[Says("no")] * 3)
    assert (await summarizer.summarize_turn(turn)).extractive
    assert llm.left == 0


async def test_the_longest_turn_costs_a_bounded_number_of_calls() -> None:
    """What is pasted is clipped in its middle, however long it is."""
    turn = a_turn(1, "line of a log\n" * 50_000)
    summarizer, llm = a_summarizer(*[Says(GOOD)] * 9)
    await summarizer.summarize_turn(turn)
    assert len(llm.requests) == 9
    assert max(r.messages[1].char_count for r in llm.requests) < 24_200


@given(st.text("ab \n", max_size=400), st.integers(10, 80))
def test_pieces_are_the_whole(text: str, room: int) -> None:
    """Nothing is lost between two pieces but white space."""
    pieces = split(text, room)
    assert all(0 < len(piece) <= room for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("error", "first"),
    [(ProviderUnavailable("It is away."), [3, 0, 0, 0]), (ProviderRefused("No."), [1, 1, 1, 0])],
    ids=["away", "refuses"],
)
async def test_a_model_that_does_not_answer_is_left_alone_for_longer_each_time(
    tmp_path: Path, error: Step, first: list[int]
) -> None:
    """All processes of a home keep to it until it answers, or a person asks."""
    now = T0

    async def requests(step: Step, *, by_person: bool = False) -> int:
        llm = ScriptedLLM([step], repeat=True)
        small = Summarizer(
            llm, SummariesConfig(), usage=UsageLog(tmp_path), clock=lambda: now, sleep=Naps()
        )
        if by_person:
            small.ask_anew()
        await small.summarize_turn(msgspec.structs.replace(TURN, session_id=new_id()))
        return len(llm.requests)

    assert [await requests(error) for _ in range(4)] == first
    asked_again = []
    for _ in range(4):
        now += timedelta(minutes=2)
        asked_again.append(bool(await requests(error)))
    assert asked_again == [True, False, True, False]
    for _ in range(12):
        now += timedelta(days=1)
        assert await requests(error)
    [away] = UsageLog(tmp_path).away().values()
    assert (away.problem, away.until) == (str(error), now + timedelta(days=1))
    assert await requests(error, by_person=True)
    now += timedelta(days=1)
    assert await requests(Says(GOOD)) == 1
    assert not UsageLog(tmp_path).away()
    assert await requests(Says(GOOD)) == 1

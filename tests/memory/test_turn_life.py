"""A turn from its end to its place in what is recalled, on each real store."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragmem.config import SummariesConfig
from ragmem.ids import new_id
from ragmem.records import AddSummary, Applied, ToolCall, Write, utc_now
from ragmem.store import Store
from tests.fakes.hash_embedder import HashEmbedder
from tests.fakes.scripted_llm import Says, ScriptedLLM
from tests.store.conftest import OpenStore
from tests.store.samples import begun, created, finished, whole_turn

from .working import a_builder, a_memory, a_model, a_session, a_worker, add_turns, context, tell


class Watched:
    """A store that tells in which order it was written and read."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.calls: list[str] = []

    async def apply(self, writes: Sequence[Write]) -> Applied:
        levels = [write.summary.level for write in writes if isinstance(write, AddSummary)]
        applied = await self._inner.apply(writes)
        self.calls += [f"stored level {level}" for level in levels]
        return applied

    async def raw_history_chars(self, session_id: str) -> int:
        self.calls.append("counted")
        return await self._inner.raw_history_chars(session_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


# --- recorded -----------------------------------------------------------------


async def test_when_a_turn_has_ended_it_is_stored(open_store: OpenStore, tmp_path: Path) -> None:
    """Awaited, seen by others at once; the vector follows."""
    mine, theirs = await open_store(), await open_store()
    embedder = HashEmbedder()
    async with a_memory(mine, embedder) as memory:
        project = (await memory.project_of(tmp_path)).project
        session = memory.new_session(tmp_path, project)
        recording = await memory.begin_turn(session, project, "Which beds?", model="openai/x")
        before = await theirs.session(session.session_id)
        for order in range(3):
            call = ToolCall(
                tool_call_id=new_id(),
                turn_id=recording.turn.turn_id,
                order=order,
                tool_name="read_file",
                arguments=json.dumps({"path": f"bed{order}.txt"}),
                result=json.dumps({"text": f"bed {order}"}),
                success=order != 1,
                error=None if order != 1 else "no such bed",
                started_at=utc_now(),
            )
            await recording.call(call)
        await recording.finish("completed", "The northern ones.")
        (turn,) = await theirs.turns(session.session_id)
        assert (turn.turn_id, turn.status) == (recording.turn.turn_id, "completed")
        assert (turn.user_message, turn.assistant_message) == ("Which beds?", "The northern ones.")
        assert [json.loads(c.result)["text"] for c in turn.tool_calls] == [
            "bed 0",
            "bed 1",
            "bed 2",
        ]
        assert [(c.order, c.success, c.error) for c in turn.tool_calls] == [
            (0, True, None), (1, False, "no such bed"), (2, True, None),
        ]  # fmt: skip
        assert {c.turn_id for c in turn.tool_calls} == {turn.turn_id}
        after = await theirs.session(session.session_id)
        assert (before.message_count, after.message_count) == (0, 2)
        assert after.updated_at > before.updated_at
    assert embedder.seen == []
    assert [item.record_id for item in await theirs.pending("vectors", limit=9)] == [turn.turn_id]
    # Another process makes up for what this one left.
    assert await a_worker(theirs, embedder=embedder, summarizes=False).drain()
    assert await mine.pending("vectors", limit=9) == []


async def test_only_what_was_finished_is_summed_up(store: Store) -> None:
    """Not what broke off, nor is it embedded."""
    first = created()
    session_id = first.session.session_id
    done = new_id()
    await store.apply([first, *whole_turn(session_id, done, "Which beds?", "The northern ones.")])
    for status in ("interrupted", "failed"):
        turn_id = new_id()
        await store.apply(
            [begun(session_id, turn_id, "cut"), finished(session_id, turn_id, "half", status)]
        )
    await store.apply([begun(session_id, text="cut")])
    embedder, llm = HashEmbedder(), a_model()
    config = SummariesConfig(every_n_messages=2)
    assert await a_worker(store, embedder=embedder, llm=llm, config=config).drain()
    (summary,) = await store.summaries(session_id)
    assert summary.covers == (done,)
    assert (await store.session(session_id)).summary == "Beds were planned."
    # Of the turn its one text, question and answer; its summary's; and the session's.
    assert len(embedder.seen) == 3
    (said,) = [text for _, text in embedder.seen if "northern" in text]
    assert "Which beds?" in said
    assert not [text for _, text in embedder.seen if "cut" in text]
    assert not [r for r in llm.requests if "cut" in r.messages[-1].text]


# --- summed up -----------------------------------------------------------------


async def test_a_summary_is_stored_before_what_is_left_is_counted(store: Store) -> None:
    """The turn that has just been summed up is not counted as waiting."""
    watched = Watched(store)
    session_id = await a_session(store, 0)
    worker = a_worker(watched, llm=a_model())  # type: ignore[arg-type]
    for number in range(6):
        await add_turns(store, session_id, range(number, number + 1))
        assert await worker.drain()
        calls, watched.calls = watched.calls, []
        assert calls[0] == "stored level 1"
        assert calls.count("stored level 1") == 1
        assert "counted" in calls[1:] or number == 0
        # Each turn has some 1,000 characters: the sixth makes the first level 2 due.
        assert ("stored level 2" in calls) == (number == 5)


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


# --- found ---------------------------------------------------------------------

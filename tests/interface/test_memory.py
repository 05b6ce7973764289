"""Section A's interface, as a program uses it."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from ragmem import OpenMemory
from ragmem.errors import RagmemError, SessionNotFound, StoreError, UsageError
from ragmem.ids import new_id
from ragmem.records import Scope, ToolCall
from tests.memory.builders import a_summary, a_turn

from .conftest import Spot

_READ = {
    "tool_name": "read_file",
    "arguments": {"path": "./src/login.py"},
    "result": "def login(user): ...",
    "duration_ms": 12,
}
_FAILED = {"tool_name": "run_command", "arguments": '{"command": "make"}', "error": "exit 2"}


async def a_session(memory: OpenMemory, folder: Path, turns: int = 0, *, chars: int = 1000) -> str:
    """With so many turns of so many characters."""
    session_id = await memory.create_session(folder)
    for number in range(1, turns + 1):
        question = f"Question {number}?"
        answer = f"Answer {number}. ".ljust(chars - len(question), "x")
        await memory.store_turn(session_id, question, answer)
    return session_id


async def test_a_session_from_end_to_end(memory: OpenMemory, spot: Spot) -> None:
    """As it was, in order."""
    session_id = await memory.create_session(str(spot.folder), title="Login", tags=["auth", "auth"])
    before = datetime.now(UTC)
    first = await memory.store_turn(
        session_id,
        user_message="Why does login fail?",
        assistant_message="Its token expired.",
        tool_calls=[_READ, _FAILED],
        reasoning="clocks",
        model="openai/x",
    )
    second = await memory.store_turn(session_id, user_message="Thanks", assistant_message="")
    after = datetime.now(UTC)
    loaded = await memory.load_session(session_id)
    assert (loaded.session.session_id, loaded.session.cwd) == (session_id, str(spot.folder))
    assert loaded.session.project_path == str(spot.folder)
    assert loaded.turns == (first, second)
    assert (loaded.session.title, loaded.session.tags) == ("Login", ("auth",))
    assert (loaded.session.turn_count, loaded.session.message_count) == (2, 4)
    assert [turn.turn_index for turn in loaded.turns] == [1, 2]
    assert first.uuid != second.uuid
    assert before <= first.timestamp <= second.timestamp <= after
    assert loaded.session.last_activity_at == second.timestamp
    assert (first.status, first.reasoning, first.model) == ("completed", "clocks", "openai/x")
    assert first.char_count == len("Why does login fail?") + len("Its token expired.")
    read, failed = first.tool_calls
    assert [call.order for call in first.tool_calls] == [0, 1]
    assert json.loads(read.arguments) == {"path": "./src/login.py"}
    assert json.loads(read.result) == {"text": "def login(user): ..."}
    assert (read.success, read.duration_ms, read.started_at) == (True, 12, first.timestamp)
    assert (failed.success, failed.error) == (False, "exit 2")
    assert len({read.uuid, failed.uuid, first.uuid}) == 3


async def test_what_other_processes_see(spot: Spot) -> None:
    """It is there when the memory is opened again, the owner's alone."""
    async with spot.open() as memory:
        session_id = await a_session(memory, spot.folder, 2)
    async with spot.open() as memory:
        assert len((await memory.load_session(session_id)).turns) == 2
        third = await memory.store_turn(session_id, "And now?", "Still here.")
        assert third.turn_index == 3
    made = [spot.home, *spot.home.rglob("*")]
    made += list(Path(spot.url.removeprefix("sqlite:///")).parent.rglob("*"))
    assert [path for path in made if path.stat().st_mode & 0o077] == []


async def test_sessions_of_a_folder(memory: OpenMemory, spot: Spot, tmp_path: Path) -> None:
    """All of it, by any of its names, newest activity first; no other's."""
    old = await memory.create_session(spot.folder)
    new = await memory.create_session(f"{spot.folder}/")
    other = await memory.create_session(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(spot.folder)
    await memory.store_turn(old, "One more thing", "Yes?")
    for name in (spot.folder, link, f"{spot.folder}/./x/..", os.path.relpath(spot.folder)):
        found = await memory.get_sessions_by_cwd(name)
        assert [s.session_id for s in found] == [old, new]
    assert found[0].turn_count == 1
    assert found[0].last_message == "One more thing"
    assert found[0].last_activity_at > found[1].last_activity_at
    assert [s.session_id for s in await memory.get_sessions_by_cwd(tmp_path)] == [other]


async def test_a_project_that_is_named(memory: OpenMemory, spot: Spot) -> None:
    """`project_path` is taken at its word, and its sessions share their memory."""
    part = spot.folder / "part"
    one = await memory.create_session(part / "a", part)
    two = await memory.create_session(part / "b", project_path=str(part) + "/")
    whole = await memory.create_session(spot.folder)
    ids = [(await memory.load_session(each)).session.project_id for each in (one, two, whole)]
    assert ids[0] == ids[1] != ids[2]
    assert (await memory.load_session(one)).session.project_path == str(part)


async def test_a_session_that_is_not_there(memory: OpenMemory, spot: Spot) -> None:
    """Each method says so and nothing is stored."""
    for unknown in (new_id(), "", "no such", "a\ud800b", "a\0b", "a" * 6_000):
        turn = a_turn(1, "q", session_id=unknown)
        for call in (
            memory.load_session(unknown),
            memory.store_turn(unknown, "q", "a"),
            memory.store_turn(unknown, "q", "a", [_READ]),
            memory.store_summary(unknown, "text", 1, [turn.turn_id]),
            memory.get_recent_turns(unknown),
            memory.get_raw_history_char_count(unknown),
            memory.get_level1_summaries_not_summarized(unknown),
            memory.search_conversation_history(unknown, "q"),
            memory.summarize_turn(turn),
            memory.summarize_summaries(unknown, 1),
            memory.build_context(unknown, "q"),
            memory.get_recently_accessed_files(unknown),
        ):
            with pytest.raises(SessionNotFound) as caught:
                await call
            assert caught.value.hint
            str(caught.value).encode()
    assert await memory.get_sessions_by_cwd(spot.folder) == []


async def test_recent_turns(memory: OpenMemory, spot: Spot) -> None:
    """Both bounds, turns without tools too, in order."""
    session_id = await a_session(memory, spot.folder, 6)
    await memory.store_turn(session_id, "Read it", "Done", [_READ, _FAILED])

    async def indexes(**bounds: int) -> list[int]:
        turns = await memory.get_recent_turns(session_id, **bounds)
        return [turn.turn_index for turn in turns]

    assert await indexes() == [5, 6, 7]
    assert await indexes(limit=2, max_chars=5000) == [6, 7]
    assert await indexes(limit=3, max_chars=1500) == [6, 7]
    assert await indexes(limit=10) == [1, 2, 3, 4, 5, 6, 7]
    assert await indexes(max_chars=4500) == [3, 4, 5, 6, 7]
    *_, last = await memory.get_recent_turns(session_id)
    assert [call.tool_name for call in last.tool_calls] == ["read_file", "run_command"]
    await memory.store_turn(session_id, "Long?", "begin " + "x" * 9000 + " end")
    (clipped,) = await memory.get_recent_turns(session_id, max_chars=5000, limit=3)
    assert clipped.char_count <= 5000
    assert clipped.user_message == "Long?"
    assert clipped.assistant_message.startswith("begin ")
    assert clipped.assistant_message.endswith(" end")


async def test_summaries_by_hand(memory: OpenMemory, spot: Spot) -> None:
    session_id = await a_session(memory, spot.folder, 3)
    turns = (await memory.load_session(session_id)).turns
    assert await memory.get_raw_history_char_count(session_id) == 3000
    made = await memory.summarize_turn(turns[0])
    assert (made.level, made.covers, made.turn_count) == (1, (turns[0].uuid,), 1)
    # Nothing of that is stored.
    assert await memory.get_raw_history_char_count(session_id) == 3000
    assert await memory.store_summary(session_id, made, 1, [turns[0].uuid]) == made
    assert await memory.get_raw_history_char_count(session_id) == 2000
    second = await memory.store_summary(session_id, "By hand.", 1, [turns[1].uuid])
    assert (second.text, second.turn_count, second.char_count) == ("By hand.", 1, 8)
    third = await memory.store_summary(session_id, await memory.summarize_turn(turns[2]))
    assert await memory.get_raw_history_char_count(session_id) == 0
    waiting = await memory.get_level1_summaries_not_summarized(session_id)
    assert waiting == [third, second, made]
    assert await memory.get_level1_summaries_not_summarized(session_id, limit=2) == waiting[:2]

    higher = await memory.summarize_summaries(session_id, 1)
    assert (higher.level, higher.turn_count) == (2, 3)
    assert higher.covers == (made.uuid, second.uuid, third.uuid)
    assert await memory.get_level1_summaries_not_summarized(session_id) == []
    with pytest.raises(UsageError, match="There are no summaries of level 1"):
        await memory.summarize_summaries(session_id, 1)
    other = await memory.store_turn(session_id, "More", "Yes")
    await memory.store_summary(session_id, await memory.summarize_turn(other))
    assert (await memory.summarize_summaries(session_id, 1)).turn_count == 1
    top = await memory.summarize_summaries(session_id, 2)
    assert (top.level, top.turn_count, len(top.covers)) == (3, 4, 2)


async def test_summaries_that_hang_in_the_air(memory: OpenMemory, spot: Spot) -> None:
    """What a summary covers is there, and of the level below."""
    session_id = await a_session(memory, spot.folder, 1)
    (turn,) = (await memory.load_session(session_id)).turns
    one = await memory.store_summary(session_id, "One.", 1, [turn.uuid])
    for level, parents in ((1, []), (1, [new_id()]), (1, [one.uuid]), (2, [turn.uuid]), (0, [])):
        with pytest.raises(UsageError):
            await memory.store_summary(session_id, "Two.", level, parents)
    with pytest.raises(UsageError, match="level 3"):
        await memory.summarize_summaries(session_id, 3)
    assert await memory.get_level1_summaries_not_summarized(session_id) == [one]
    again = await memory.store_summary(session_id, "Better.", 1, [turn.uuid])
    assert (again.uuid, again.text) == (one.uuid, "Better.")
    assert await memory.get_level1_summaries_not_summarized(session_id) == [again]


async def test_search(memory: OpenMemory, spot: Spot) -> None:
    """Turns and summaries, best first, by choice."""
    session_id = await memory.create_session(spot.folder)
    wombats = await memory.store_turn(session_id, "Where do wombats live?", "In burrows.")
    await memory.store_turn(session_id, "How is bread baked?", "Two hundred degrees, an hour.")
    summary = await memory.store_summary(session_id, "Wombats dig.", 1, [wombats.uuid])

    # Before there are vectors words are enough.
    (first, *_) = await memory.search_conversation_history(session_id, "wombats")
    assert (first.type, first.turn, first.similarity) == ("turn", wombats, None)
    assert await memory.drain()
    hits = await memory.search_conversation_history(session_id, "marsupial homes underground")
    assert {(hit.type, hit.record_id) for hit in hits[:2]} == {
        ("turn", wombats.uuid),
        ("summary", summary.uuid),
    }
    assert all(hit.similarity is not None and -1 <= hit.similarity <= 1 for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert (hits[0].turn is None) == (hits[0].type == "summary")

    async def found(query: str = "wombats", **choice: object) -> list[tuple[str, int]]:
        hits = await memory.search_conversation_history(session_id, query, **choice)  # type: ignore[arg-type]
        return [(hit.type, hit.level) for hit in hits]

    assert await found(semantic=False, query="marsupial homes") == []
    # The turn behind it comes third.
    assert sorted((await found(semantic=False))[:2]) == [("summary", 1), ("turn", 0)]
    assert len(await found(max_results=1)) == 1
    assert {level for _, level in await found(levels=[0])} == {0}
    assert await found(levels=[1, 2, 3]) == [("summary", 1)]
    assert await found(levels=[2]) == []
    assert await found(levels=[]) == []
    assert await found(include_turns=False) == [("summary", 1)]
    assert await found(include_turns=False, levels=[0, 1]) == [("summary", 1)]
    assert await found(include_turns=False, levels=[0]) == []
    assert await found(max_results=0) == []
    assert await found("   ") == []
    assert await found("marsupial homes", min_similarity=0.99) == []
    assert len(await found("how is bread baked", min_similarity=0.99)) == 1


async def test_where_is_searched(memory: OpenMemory, spot: Spot, tmp_path: Path) -> None:
    """A session means its project; none means everything; a scope says otherwise."""
    one = await memory.create_session(spot.folder)
    two = await memory.create_session(spot.folder)
    far = await memory.create_session(tmp_path / "elsewhere")
    for session_id in (one, two, far):
        await memory.store_turn(session_id, "Where do wombats live?", "In burrows.")
    project = (await memory.load_session(far)).session.project_id

    async def found(session_id: str | None, scope: object = None) -> set[str]:
        hits = await memory.search_conversation_history(
            session_id,
            "wombats",
            scope=scope,
            max_results=10,  # type: ignore[arg-type]
        )
        return {hit.session_id for hit in hits}

    assert await found(one) == {one, two}
    assert await found(one, "session") == {one}
    assert await found(one, "all") == {one, two, far}
    assert await found(None) == await found(None, "all") == {one, two, far}
    assert await found(None, Scope(session_ids=(two,))) == {two}
    assert await found(None, Scope(project_ids=(project,))) == {far}
    assert await found(None, spot.folder / "sub") == {one, two}
    for session_id, scope in ((None, "project"), (None, "session"), (one, "galaxy")):
        with pytest.raises(UsageError, match="scope"):
            await found(session_id, scope)


async def test_context(memory: OpenMemory, spot: Spot) -> None:
    """The product's own, with each strategy."""
    (spot.folder / "AGENTS.md").write_text("Use tabs.")
    session_id = await memory.create_session(spot.folder)
    await memory.store_turn(session_id, "Where do wombats live?", "In burrows.", [_READ])
    other = await memory.create_session(spot.folder)
    await memory.store_turn(other, "What do wombats eat?", "Grass, at night.")
    hybrid = await memory.build_context(session_id, "And wombats again?")
    text = hybrid.text()
    assert text.count("And wombats again?") == 1
    assert "Use tabs." in text
    assert "In burrows." in text
    assert "## Relevant Past Context (Semantic Search - Turns)" in text
    assert "Grass, at night." in text
    assert "- src/login.py (via read_file, Turn 1)" in text
    assert hybrid.sizes["Prompt"] == len("And wombats again?")
    recent = (await memory.build_context(session_id, "wombats?", strategy="recent")).text()
    relevant = (await memory.build_context(session_id, "wombats?", "relevant")).text()
    assert ("In burrows." in recent, "Grass" in recent) == (True, False)
    assert "Grass" in relevant
    with pytest.raises(UsageError, match="strategy"):
        await memory.build_context(session_id, "q", "newest")  # type: ignore[arg-type]
    # Nothing of all that was stored.
    assert len((await memory.load_session(session_id)).turns) == 1


async def test_files(memory: OpenMemory, spot: Spot) -> None:
    """By the calls that are stored, relative to the project, latest first."""
    inside = spot.folder / "src"
    session_id = await memory.create_session(inside)
    written = {"tool_name": "write_file", "arguments": {"path": "login.py", "content": "x"}}
    grep = {
        "tool_name": "grep_files",
        "arguments": {"pattern": "x"},
        "result": {"files": [{"path": "a.py"}, {"path": "/etc/hosts"}]},
    }
    await memory.store_turn(session_id, "q", "a", [written, _FAILED])
    await memory.store_turn(session_id, "q", "a", [grep])
    found = await memory.get_recently_accessed_files(session_id)
    assert {(f.path, f.access_type, f.turn_index) for f in found} == {
        ("src/login.py", "write", 1),
        ("src/a.py", "search", 2),
        ("/etc/hosts", "search", 2),
    }
    assert [f.turn_index for f in found] == [2, 2, 1]
    one = await memory.get_recently_accessed_files(session_id, max_chars=50)
    assert [f.path for f in one] == ["src/login.py"], "what was changed is kept first"


async def test_times(memory: OpenMemory, spot: Spot) -> None:
    """Any zone, none is this machine's own; order is by place, not by clock."""
    session_id = await memory.create_session(spot.folder)
    east = datetime(2024, 5, 1, 12, tzinfo=UTC) + timedelta(hours=1)
    naive = datetime(2024, 5, 1, 9, 30)
    one = await memory.store_turn(session_id, "q1", "a1", timestamp=east)
    two = await memory.store_turn(session_id, "q2", "a2", [_READ], naive)
    turns = (await memory.load_session(session_id)).turns
    assert [turn.user_message for turn in turns] == ["q1", "q2"]
    assert one.timestamp == turns[0].timestamp == east
    assert two.timestamp == turns[1].timestamp == naive.astimezone()
    assert turns[1].tool_calls[0].started_at == naive.astimezone()


async def test_calls_that_are_none(memory: OpenMemory, spot: Spot) -> None:
    """A plain error that names what is wrong, and no half of a turn."""
    session_id = await memory.create_session(spot.folder)
    for call in (
        {},
        {"tool_name": ""},
        {"tool_name": "x", "colour": "red"},
        {"tool_name": "x", "result": object()},
        {"tool_name": "x", "duration_ms": "long"},
        {"tool_name": "x", "success": "perhaps"},
        {"tool_name": "x", "started_at": "2024-01-01"},
        {"tool_name": "x", "started_at": datetime.max.replace(tzinfo=_zone(-9))},
    ):
        with pytest.raises(UsageError):
            await memory.store_turn(session_id, "q", "a", [call])
    with pytest.raises(UsageError, match="time"):
        await memory.store_turn(
            session_id, "q", "a", timestamp=datetime.min.replace(tzinfo=_zone(9))
        )
    # An export with such a time could not be imported.
    with pytest.raises(UsageError, match="time"):
        await memory.store_turn(session_id, "q", "a", timestamp=datetime(9999, 6, 1, tzinfo=UTC))
    with pytest.raises(UsageError, match="same id"):
        await memory.store_turn(session_id, "q", "a", [{"tool_name": "x", "tool_call_id": "1"}] * 2)
    assert (await memory.load_session(session_id)).turns == ()


async def test_secrets_are_left_out(
    memory: OpenMemory, spot: Spot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is stored, and of what is handed back."""
    key = "sk-proj-" + "a1B2" * 12
    session_id = await memory.create_session(spot.folder, title=f"with {key}")
    call = {"tool_name": "run_command", "arguments": {"command": f"curl {key}"}, "result": key}
    turn = await memory.store_turn(session_id, f"use {key}", f"I use {key}", [call], reasoning=key)
    summary = await memory.store_summary(session_id, f"Uses {key}", 1, [turn.uuid])
    loaded = await memory.load_session(session_id)
    assert key not in f"{turn} {summary} {loaded}"
    assert loaded.turns == (turn,)
    assert await memory.get_level1_summaries_not_summarized(session_id) == [summary]


async def test_cancelled_in_the_middle(memory: OpenMemory, spot: Spot) -> None:
    """A turn is stored whole or not at all, and the memory goes on."""
    session_id = await memory.create_session(spot.folder)
    for wait_s in (0, 0.0005, 0.002, 0.01):
        task = asyncio.create_task(memory.store_turn(session_id, "q", "a", [_READ, _FAILED]))
        await asyncio.sleep(wait_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    last = await memory.store_turn(session_id, "last", "a", [_READ, _FAILED])
    turns = (await memory.load_session(session_id)).turns
    assert [turn.turn_index for turn in turns] == list(range(1, len(turns) + 1))
    assert {(turn.status, len(turn.tool_calls)) for turn in turns} == {("completed", 2)}
    assert turns[-1] == last


async def test_an_error_in_the_block(spot: Spot) -> None:
    """It is the caller's own, and what was stored before it stays."""
    ids = []

    async def fails() -> None:
        async with spot.open() as memory:
            ids.append(await a_session(memory, spot.folder, 1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    (session_id,) = ids
    async with spot.open() as memory:
        assert len((await memory.load_session(session_id)).turns) == 1
    with pytest.raises(StoreError) as caught:
        await memory.load_session(session_id)
    assert isinstance(caught.value, RagmemError)
    assert caught.value.hint


async def test_a_summary_of_another_session_is_taken_over(memory: OpenMemory, spot: Spot) -> None:
    """The session is the one that is named; what a `Summary` says else is kept."""
    session_id = await a_session(memory, spot.folder, 1)
    (turn,) = (await memory.load_session(session_id)).turns
    made = a_summary(
        1,
        turn.uuid,
        session_id="another",
        turn_count=7,
        files_mentioned=("a.py",),
        key_findings=("it works",),
        topics=("login",),
    )
    stored = await memory.store_summary(session_id, made)
    assert (stored.session_id, stored.turn_count) == (session_id, 1)
    (found,) = await memory.get_level1_summaries_not_summarized(session_id)
    assert found == stored
    assert found.files_mentioned == ("a.py",)
    assert (found.key_findings, found.topics) == (("it works",), ("login",))


def _zone(hours: int) -> timezone:
    return timezone(timedelta(hours=hours))


async def test_ids_of_calls_may_come_again(memory: OpenMemory, spot: Spot) -> None:
    """As providers give them, and as a stored turn's calls have them that is stored again."""
    session_id = await memory.create_session(spot.folder)
    for result in ("first", "second"):
        call = {"tool_name": "x", "tool_call_id": "call_0", "result": result}
        turn = await memory.store_turn(session_id, "q", "a", [call])
    other_id = await memory.create_session(spot.folder)
    await memory.store_turn(other_id, "q", "a", turn.tool_calls)
    told = [
        [json.loads(call.result)["text"] for turn in loaded.turns for call in turn.tool_calls]
        for loaded in [await memory.load_session(each) for each in (session_id, other_id)]
    ]
    assert told == [["first", "second"], ["second"]]


async def test_calls_as_records(memory: OpenMemory, spot: Spot) -> None:
    """`ToolCall`s are taken too, of whatever turn, and results of whatever shape."""
    session_id = await memory.create_session(spot.folder)
    at = datetime(2024, 1, 1, tzinfo=UTC)
    record = ToolCall(
        tool_call_id="c1", turn_id="another", order=9, tool_name="grep", started_at=at, iteration=2
    )
    shapes = [
        {"tool_name": "a", "result": {"n": 1}},
        {"tool_name": "b", "result": [1, 2]},
        {"tool_name": "c", "result": '{"text": "whole", "sha256": "x"}'},
        {"tool_name": "d", "arguments": "not json", "result": None},
    ]
    turn = await memory.store_turn(session_id, "q", "a", [record, *shapes])
    assert (await memory.load_session(session_id)).turns == (turn,)
    first, *others = turn.tool_calls
    assert (first.turn_id, first.order, first.iteration) == (turn.uuid, 0, 2)
    assert first.started_at == at
    assert [json.loads(call.result) for call in others] == [
        {"text": '{"n":1}', "n": 1},
        {"text": "[1,2]"},
        {"text": "whole", "sha256": "x"},
        {"text": "null"},
    ]
    assert json.loads(others[3].arguments) == {"value": "not json"}

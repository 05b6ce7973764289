"""Memory, the interface of everything above, on a real store."""

import asyncio
import os
import tracemalloc
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ragmem.config import MemoryConfig
from ragmem.errors import SessionNotFound, StoreError, StoreUnavailable
from ragmem.ids import new_id
from ragmem.memory.memory import Memory, Presence
from ragmem.records import SessionQuery
from ragmem.store import Store
from tests.store.conftest import OpenStore

from .builders import a_call, a_turn
from .working import Chat, a_memory, opening


async def a_chat(stack: AsyncExitStack, open_store: OpenStore, folder: Path) -> Chat:
    """Of a process of its own."""
    store = await open_store()
    begun = Chat(await stack.enter_async_context(a_memory(store)), store, folder)
    await begun.begin()
    return begun


async def test_an_unknown_session_is_not_found(chat: Chat) -> None:
    """By id or by name, the error names it and says what to do."""
    with pytest.raises(SessionNotFound, match="nowhere") as caught:
        await chat.memory.load_session("nowhere")
    assert "ragmem sessions list" in caught.value.hint
    with pytest.raises(SessionNotFound, match="nowhere"):
        await chat.memory.find_session("nowhere")


async def test_a_session_exists_from_its_first_prompt_on(chat: Chat) -> None:
    """And not before; under the real name of its folder."""
    link = chat.folder.with_name("link")
    link.symlink_to(chat.folder)
    session = await chat.begin(link)
    assert await chat.memory.sessions(SessionQuery()) == []
    await chat.told("Hello", answer="Hi.")
    (listed,) = await chat.memory.sessions(SessionQuery(cwd=str(chat.folder)))
    loaded = await chat.memory.load_session(session.session_id)
    assert loaded.session.session_id == listed.session_id == session.session_id
    assert [(t.user_message, t.assistant_message) for t in loaded.turns] == [("Hello", "Hi.")]


async def test_a_turn_lasts_from_its_first_moment(open_store: OpenStore, tmp_path: Path) -> None:
    """Running is seen by others, who are told; both append and nothing mixes."""
    async with AsyncExitStack() as stack:
        one, other = [await a_chat(stack, open_store, tmp_path) for _ in range(2)]
        first, second, session = one.memory, other.memory, one.session
        mine = await first.begin_turn(session, one.project, "from the first", model="m")
        (running,) = (await second.load_session(session.session_id)).turns
        assert (running.status, running.user_message) == ("running", "from the first")

        resumed = await second.find_session(session.session_id)
        assert await second.attach(resumed) == 1
        theirs = await second.begin_turn(resumed, one.project, "from the second", model="m")
        assert (mine.turn.turn_index, theirs.turn.turn_index) == (1, 2)
        await theirs.finish("completed", "to the second")
        await mine.call(a_call(turn_id=mine.turn.turn_id))
        await mine.finish("completed", "to the first")
        turns = (await second.load_session(session.session_id)).turns
        assert [(t.user_message, t.assistant_message, len(t.tool_calls)) for t in turns] == [
            ("from the first", "to the first", 1),
            ("from the second", "to the second", 0),
        ]


async def test_a_long_chat_holds_the_results_of_its_latest_turns_alone(chat: Chat) -> None:
    """Those of before are found in the store."""
    tracemalloc.start()
    try:
        for number in range(1, 161):
            call = a_call(text=f"{number}" * 20_000, tool_call_id=new_id())
            await chat.told(f"No {number}", call)
            if number == 60:
                (before, _), first = tracemalloc.get_traced_memory(), call
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 30 * 60_000
    found = await chat.memory.find_tool_call(chat.session, first.tool_call_id[-12:])
    assert found
    assert found.result == first.result


async def test_a_chat_of_which_none_is_kept_holds_all_results(store: Store, tmp_path: Path) -> None:
    memory = Memory(opening(store), MemoryConfig(), records=False)
    chat = Chat(memory, store, tmp_path / "project")
    await chat.begin()
    first, *others = (a_call(text=f"No {n}", tool_call_id=new_id()) for n in range(160))
    for number, call in enumerate((first, *others), 1):
        memory.finished(chat.session, a_turn(number, calls=(call,)))
    assert await memory.find_tool_call(chat.session, first.tool_call_id[-12:]) == first
    await memory.aclose()


async def test_two_processes_share_a_new_project(open_store: OpenStore, tmp_path: Path) -> None:
    """Both look at the folder before either has written; its memory is not split."""
    async with AsyncExitStack() as stack:
        both = [await a_chat(stack, open_store, tmp_path) for _ in range(2)]
        for each in both:
            await each.told("hello")
        (project,) = await (await open_store()).projects()
        stored = [await both[0].memory.find_session(each.session.session_id) for each in both]
        assert {session.project_id for session in stored} == {project.project_id}


async def test_the_turn_in_flight_is_no_history(chat: Chat) -> None:
    """The question is said once; turns without tools are turns."""
    await chat.told("The earlier question", answer="The earlier answer")
    now = "The question now"
    recording = await chat.memory.begin_turn(chat.session, chat.project, now, model="m")
    built = await chat.asks(now, turn=recording.turn)
    assert not built.fallback
    text = built.text()
    assert text.count(now) == 1
    assert text.count("The earlier question") == text.count("The earlier answer") == 1
    await recording.finish("completed", "done")


async def test_another_process_builds_the_same_one(open_store: OpenStore, tmp_path: Path) -> None:
    """What was recorded is all that a request is made of, to the byte."""
    async with AsyncExitStack() as stack:
        first, second = [await a_chat(stack, open_store, tmp_path) for _ in range(2)]
        told = '{"text": "print(1)", "path": "a.py"}'
        await first.told("What is in a.py?", a_call(result=told))
        for rule in ("Never push to main", "Answer in French", "Use tabs in Makefiles alone"):
            await first.knows(rule, kind="rule")
        here = await first.asks("And now?")
        resumed = await second.memory.find_session(first.session.session_id)
        there = await second.asks("And now?", resumed)
    assert here.messages[:-1] == there.messages[:-1]
    assert here.sizes == there.sizes
    assert "print(1)" in there.text()
    assert there.messages[0].text.endswith("- Use tabs in Makefiles alone")


async def test_all_files_of_a_long_session_are_known_beside_the_latest(chat: Chat) -> None:
    for number in range(3):
        reads = [
            a_call(order, tool_call_id=new_id(), arguments=f'{{"path": "{number}-{order}.py"}}')
            for order in range(50)
        ]
        await chat.told("Read them.", *reads, answer="It is read. " * 3_000)
    session_id = chat.session.session_id
    assert len(await chat.memory.accessed_files(session_id)) == 150
    latest = await chat.memory.accessed_files(session_id, max_chars=5_000)
    assert {each.turn_index for each in latest} == {3}


async def test_files_of_a_session(chat: Chat) -> None:
    """By any path that leads to them, the latest access of each, in the request."""
    edited = a_call(1, tool_name="edit_file", arguments=f'{{"path": "{chat.folder}/changed.py"}}')
    await chat.told("look", a_call(arguments='{"path": "./src/../read.py"}'), edited)
    for number in range(5):
        await chat.told("one more", a_call(2 + number, arguments=f'{{"path": "{number}.py"}}'))
    await chat.told("again", a_call(7, arguments='{"path": "read.py"}'))
    files = await chat.memory.accessed_files(chat.session.session_id, max_chars=5_000)
    assert [(f.path, f.access_type, f.turn_index) for f in files] == [
        ("read.py", "read", 7),
        *((f"{number}.py", "read", number + 2) for number in (4, 3, 2, 1, 0)),
        ("changed.py", "write", 1),
    ]
    text = (await chat.asks("?")).messages[-1].text
    assert "**Modified:**\n- changed.py (via edit_file, Turn 1)" in text
    assert "- read.py (via read_file, Turn 7)" in text


async def test_files_looked_back_for(chat: Chat) -> None:
    """Turns of 50,000 characters, the newest; what lies before is forgotten here."""
    for length, path in (
        (1, "long-ago.py"),
        (30_000, "reached.py"),
        (15_000, ""),
        (4_960, "new.py"),
    ):
        calls = [a_call(length, arguments=f'{{"path": "{path}"}}')] if path else []
        await chat.told("x" * length, *calls)
    files = await chat.memory.accessed_files(chat.session.session_id, max_chars=5_000)
    assert [f.path for f in files] == ["new.py", "reached.py"]


async def test_a_project_is_known_again(chat: Chat) -> None:
    """From below, and after it has moved, if its remote says so, though it was met before it had
    one; it is then told."""
    folder, memory = chat.folder, chat.memory
    (folder / ".git").mkdir()
    await chat.once("Before that")
    (folder / ".git" / "config").write_text('[remote "origin"]\n\turl = https://me:pw@h/x.git\n')
    session = await chat.begin()
    await chat.told("Hello")
    below = folder / "src"
    below.mkdir()
    assert (await memory.project_of(below)).project.project_id == session.project_id
    moved = folder.with_name("moved")
    os.rename(folder, moved)
    located = await memory.project_of(moved)
    assert (located.project.project_id, located.moved_from) == (session.project_id, str(folder))
    assert "pw" not in (located.project.remote or "")
    await chat.once("Here now", folder=moved)
    again = await memory.project_of(moved / "src")
    assert (again.project.project_id, again.moved_from) == (session.project_id, None)


async def test_a_store_that_is_back_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragmem.memory.memory._HEARTBEAT_S", 0.01)
    looked = asyncio.Event()
    away = [True]

    async def open_store() -> Store:
        if away:
            away.clear()
            raise StoreUnavailable("It is away.")
        looked.set()
        return store

    presence = Presence(open_store, "me")
    with pytest.raises(StoreError):
        await presence.attach("s")
    async with asyncio.timeout(60):
        await looked.wait()
    await presence.aclose()


async def test_turns_are_read_on_page_by_page(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once and in order, wherever the pages end."""
    monkeypatch.setattr("ragmem.memory.memory._PAGE", 3)
    for number in range(1, 8):
        await chat.told(f"No {number}", answer="ok")
    for first in range(1, 10):
        turns = chat.memory.turns_on(chat.session.session_id, first)
        assert [turn.turn_index async for turn in turns] == list(range(first, 8))

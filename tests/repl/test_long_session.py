"""A long session: a list begins with its latest turns, and what is not shown is not held."""

import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from ragmem.cli.mcp import SESSIONS, read_page
from ragmem.ids import new_id
from ragmem.memory.sessions import fork_at
from ragmem.memory.titles import due
from ragmem.records import CreateSession, PutTurn, utc_now
from ragmem.repl.chat import Opening
from ragmem.repl.choices import turn_question
from ragmem.repl.commands import run_command
from ragmem.repl.past import diff, expand, rewind, undo
from tests.memory.builders import a_call, a_turn
from tests.repl.test_rewind import Chat, Opens, opens, tmp_path

__all__ = ["opens", "tmp_path"]


async def filled(chat: Chat, count: int, result: str = "ok") -> None:
    """So many more turns, each of which has read a file."""
    session = chat.session.session
    store = await chat.app.store()
    await store.apply([CreateSession(session=session)])
    for index in range(session.turn_count + 1, session.turn_count + count + 1):
        ids = {"turn_id": new_id(), "session_id": session.session_id}
        call = a_call(text=result, turn_id=ids["turn_id"], tool_call_id=new_id())
        turn = a_turn(index, f"No {index}", calls=(call,))
        # Each by itself: many at once may be more than a busy machine's store is waited for.
        await store.apply([PutTurn(turn=replace(turn, **ids))])
    chat.session.session = await chat.app.resume_session(session.session_id)


async def _named(chat: Chat) -> None:
    store = await chat.app.store()
    assert await due(store, None, "me", passed=set(), now=utc_now())


async def _said(line: str, chat: Chat) -> None:
    assert await run_command(line, chat.session) is None


LOOKS: dict[str, Callable[[Chat], Awaitable[Any]]] = {
    "/rewind": lambda chat: chat.says(rewind, "", ""),
    "/expand": lambda chat: chat.says(expand, "", ""),
    "/rewind 2": lambda chat: chat.says(rewind, "2", ""),
    "/diff": lambda chat: chat.says(diff, ""),
    "a page of `ragmem mcp`": lambda chat: read_page(
        chat.app, f"{SESSIONS}/{chat.session.session.session_id}"
    ),
    "/undo": lambda chat: chat.says(undo),
    "/cost": partial(_said, "/cost"),
    "a resumed session": lambda chat: chat.session.greet(Opening(continue_last=True)),
    "a fork": lambda chat: fork_at(chat.app.memory, chat.session.session, 1_000),
    "a title": _named,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
async def test_not_all_results_of_a_long_session_are_held_for_what_shows_a_few(
    opens: Opens, look: Callable[[Chat], Awaitable[Any]]
) -> None:
    async with opens() as chat:
        await filled(chat, 1_000, "x" * 20_000)
        await chat.edited()
        tracemalloc.start()
        try:
            await look(chat)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1_000 * 20_000 * 0.75


async def test_all_turns_are_read_for_who_wants_to_go_back_further(opens: Opens) -> None:
    """What an old turn changed is told, and taken back, as that of a late one is."""
    async with opens() as chat:
        await chat.edited()
        await filled(chat, 250)
        every = await chat.turns()

        async def read_all() -> tuple[Any, ...]:
            return every

        question = turn_question(every[-200:], read_all)
        assert [each.name for each in question.lists] == ["the latest", "all"]
        latest, all_rows = await question.load(0), await question.load(1)
        assert (len(latest), latest[-1].text) == (200, "No 52")
        assert (len(all_rows), all_rows[-1].text) == (251, "goodbye")
        assert question.preview
        assert "1 file changed since: a.py" in await question.preview("1")
        assert "No 52" not in await chat.says(rewind, "", "")
        assert "a.py: restored" in await chat.says(rewind, "1", "y")
        assert chat.file.read_text() == "hello\n"
        assert await chat.turns() == ()


async def test_what_older_turns_showed_in_short_is_opened_by_its_number(opens: Opens) -> None:
    """It comes after all that the list begins with, the session itself included."""
    async with opens() as chat:
        await filled(chat, 250)
        assert "turn 51 · 1 line" in await chat.says(expand, "201")
        assert "turn 50 · 1 line" in await chat.says(expand, "202")
        assert "turn 1 · 1 line" in await chat.says(expand, "251")
        with pytest.raises(Exception, match="No item 252 in the list"):
            await chat.says(expand, "252")


async def test_an_edit_of_long_ago_is_taken_back_where_none_came_since(opens: Opens) -> None:
    """A second time there is nothing left."""
    async with opens() as chat:
        await chat.edited()
        await filled(chat, 550)
        assert "a.py: restored" in await chat.says(undo, "", "y")
        assert chat.session.output.terminal.asked[-1].label == (
            "Undo what turn 1 of 551 did to a.py?"
        )
        assert chat.file.read_text() == "hello\n"
        assert "Nothing to undo" in await chat.says(undo)

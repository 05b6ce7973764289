"""`/export`: the session in a file, whose name says in which form."""

import json
from pathlib import Path

import pytest

from ragmem.ids import new_id
from ragmem.records import BeginTurn, CreateSession, FinishTurn
from tests.repl.paper import Chat, chat

__all__ = ["chat"]


async def told(chat: Chat) -> None:
    """One turn is stored; rows have room for a long path."""
    chat.paper.columns = 1_000
    session = chat.session.session
    turn_id = new_id()
    at = session.started_at
    begun = BeginTurn(
        session_id=session.session_id,
        turn_id=turn_id,
        user_message="Where do ferns grow?",
        started_at=at,
        owner_id="me",
    )
    done = FinishTurn(
        turn_id=turn_id,
        session_id=session.session_id,
        assistant_message="In the **shade**.",
        status="completed",
        finished_at=at,
    )
    await (await chat.app.store()).apply([CreateSession(session=session), begun, done])
    chat.session.session = await chat.app.resume_session(session.session_id)


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("talk.md", "# New Conversation"),
        ("talk.HTML", "<!doctype html>"),
        ("talk.json", '{"format":"ragmem.session"'),
    ],
)
async def test_the_name_says_the_form(chat: Chat, name: str, begins: str) -> None:
    await told(chat)
    file = chat.app.cwd / name
    assert await chat.said(f"/export {name}") == f"1 turn in {name}\n"
    text = file.read_text()
    assert text.replace(" ", "").replace("\n", "").startswith(begins.replace(" ", ""))
    assert "ferns grow" in text
    assert file.stat().st_mode & 0o777 == 0o600
    if name.endswith("json"):
        assert json.loads(text)["turns"][0]["assistant_message"] == "In the **shade**."


async def test_without_a_name_it_is_markdown_beside_the_work(chat: Chat) -> None:
    await told(chat)
    said = await chat.said("/export")
    (file,) = chat.app.cwd.glob("session-*.md")
    assert said == f"1 turn in {file.name}\n"


async def test_what_is_there_stays_unless_the_person_gives_it_up(
    chat: Chat, tmp_path: Path
) -> None:
    await told(chat)
    file = chat.app.cwd / "talk.md"
    file.write_text("mine")
    said = await chat.said("/export talk.md", "n")
    assert "Nothing was written." in said
    assert file.read_text() == "mine"
    assert "Replace it?" in chat.paper.asked[-1].label
    assert "1 turn in" in await chat.said("/export talk.md", "y")
    assert file.read_text().startswith("# New Conversation")
    (chat.app.cwd / "bed.md").mkdir()
    assert "is no file" in " ".join((await chat.said("/export bed.md")).split())
    assert "could not be written" in await chat.said("/export nowhere/talk.md")
    assert "ends with .md, .json or .html" in await chat.said("/export talk.pdf")


async def test_a_session_without_a_turn_has_nothing_to_export(chat: Chat) -> None:
    assert "nothing to export" in await chat.said("/export")
    assert not list(chat.app.cwd.iterdir())

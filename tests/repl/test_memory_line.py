"""What memory put into a request: a row before the answer, and `/why` behind it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ragmem.events import ContextBuilt, Recalled
from ragmem.repl.output import paint
from ragmem.repl.recalled import items_text, memory_line
from ragmem.repl.turn import TurnView
from tests.repl.fake_app import EVIL
from tests.repl.paper import Chat, chat
from tests.repl.pty_chat import FakeChat

__all__ = ["chat"]

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def an_item(section: str, label: str = "something", **fields: object) -> Recalled:
    given = {"id": "r", "score": None, "why": "its words", "chars": 800, **fields}
    return Recalled(section=section, label=label, **given)  # type: ignore[arg-type]


ALL = (
    an_item("Pinned"),
    an_item("Preferences"),
    an_item("Remembered Facts"),
    an_item("Relevant Turns"),
    an_item("Relevant Turns"),
    *[an_item("Relevant Code")] * 4,
    an_item("Last Time"),
)


WHOLE = "◆ recalled 2 memories · 2 earlier turns · 4 places in code · 1 earlier session"


@pytest.mark.parametrize(
    ("width", "row"),
    [
        (100, f"{WHOLE}    1.8k tokens\n"),
        (80, f"{WHOLE}\n"),
        (60, "◆ recalled 2 memories · 2 turns · 4 places · 1 session\n"),
        (42, "◆ recalled 2 memories · 2 turns · 4 place…\n"),
    ],
)
def test_the_row_counts_each_kind_and_keeps_to_one_row(width: int, row: str) -> None:
    line = memory_line(ALL)
    assert line is not None
    assert paint(line, width=width, mode="none") == row


def test_only_the_kinds_that_are_there_are_named() -> None:
    line = memory_line([an_item("Relevant Summaries", chars=4)])
    assert line is not None
    assert paint(line, width=80, mode="none") == "◆ recalled 1 summary    1 token\n"


def test_nothing_is_said_of_a_request_that_memory_put_nothing_into() -> None:
    assert memory_line([an_item("Pinned")]) is None  # as in each
    assert TurnView().show(ContextBuilt(sections={"System": 900})) == []


def test_the_row_can_be_switched_off() -> None:
    built = ContextBuilt(sections={}, recalled=ALL)
    assert [kind for kind, _ in TurnView().show(built)] == ["recall"]
    assert TurnView(shows_recall=False).show(built) == []


def test_the_list_says_who_said_it_when_and_how_near_it_is() -> None:
    told = an_item(
        "Remembered Facts",
        f"the key rotates{EVIL}",
        score=0.4,
        similarity=0.613,
        source="told by you",
        at=NOW - timedelta(days=3),
    )
    code = an_item("Relevant Code", "a.py:1-2 f", score=0.1, why="calls g")
    text = items_text([told, code], NOW)
    rows = text.split("\n")
    assert rows[0].startswith("1  the key rotates")
    assert rows[1] == "   memory · told by you · 3 days ago · 61% alike · found by its words"
    assert rows[2:] == ["2  a.py:1-2 f", "   place in code · calls g"]
    assert "\x1b" not in text
    narrow = items_text([told], NOW, 40).split("\n")
    assert narrow[1:] == [
        "   memory · told by you · 3 days ago ·",
        "   61% alike · found by its words",
    ]


# --- in a chat --------------------------------------------------------------------


def test_the_row_stands_before_the_answer_without_any_ink_too(tmp_path: Path) -> None:
    row = r"◆ recalled 2 memories · 1 earlier turn · 1 place in code    1\.9k tokens"
    with FakeChat(tmp_path, env={"TERM": "dumb"}, ready=r"^›") as chat:
        chat.send("recall it\r", prints=rf"^{row}\n\nYou said")
        assert b"\x1b" not in chat.raw


async def test_what_was_recalled_is_told_of_with_all_that_was_said_by_its_number(
    chat: Chat,
) -> None:
    """A turn with what was asked and answered, a fact with where it comes from."""
    turn = await chat.turn("why do deploys fail?", "The key is old.\n\nRenew it.")
    fact = await chat.said("#the deploy key rotates on Mondays")
    (kept,) = await chat.stored()
    assert fact.startswith("· remembered fact")
    gone = "0190a000-0000-7000-8000-000000000009"
    chat.session.recalled = [
        an_item("Relevant Turns", "Turn 1: why do deploys fail?", id=turn.turn_id),
        an_item("Relevant Turns", "Turn 2: gone", id=gone),
        an_item("Remembered Facts", kept.content, id=kept.memory_id),
    ]
    said = await chat.said("/why 1")
    assert "You: why do deploys fail?" in said
    assert "Answer: The key is old.\n    Renew it." in said
    assert "turn 1 of session" in said
    assert "That turn is no longer stored." in await chat.said("/why 2")
    assert "Where it comes from\n" in (said := await chat.said("/why 3"))
    assert "told by you directly" in said
    assert "No item 9 in the list." in await chat.said("/why 9")


async def test_why_says_that_the_code_search_took_too_long(chat: Chat) -> None:
    late = "The code search took longer than 0.65 s and was left out of this request."
    chat.session.see(ContextBuilt(sections={}, without_code=late))
    said = await chat.said("/why")
    assert late in said
    assert "Memory added nothing to the last request." in said
    chat.session.see(ContextBuilt(sections={}))
    assert late not in await chat.said("/why")

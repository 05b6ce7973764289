"""The newest sessions beside the spool: bounded, of one database, and only what was said."""

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec

from ragmem.memory.sessions import Tail
from ragmem.records import Turn
from tests.store.samples import START, a_session


def a_turn(session_id: str, number: int, text: str) -> Turn:
    at = START + timedelta(minutes=number)
    return Turn(
        turn_id=f"{session_id}-{number}",
        session_id=session_id,
        turn_index=number,
        user_message=text,
        assistant_message="Fine.",
        status="completed",
        started_at=at,
        finished_at=at,
    )


async def test_it_stays_small_and_each_folder_keeps_its_newest(tmp_path: Path) -> None:
    """However much was said, at once by several processes: the first words and the latest."""
    file = tmp_path / "spool" / "sqlite-sessions.json"
    tails = [Tail(file, lambda: "store") for _ in range(2)]
    for number in range(1, 12):
        for folder in range(3):
            name = f"{folder}-{number}"
            session = msgspec.structs.replace(a_session(name), cwd=f"/folder/{folder}")
            turns = [a_turn(name, each, f"{each} " + "é\0" * 3_000) for each in range(1, 31)]
            moved = [
                msgspec.structs.replace(turn, finished_at=turn.started_at + timedelta(days=number))
                for turn in turns
            ]
            tails[number % 2].keep(session, moved)
        await asyncio.gather(*(tail.aclose() for tail in tails))
    assert 500_000 < file.stat().st_size <= 1 << 20
    assert 0 < len(tails[0].sessions("/folder/0", 99)) < 11
    assert file.stat().st_mode & 0o777 == 0o600
    for folder in range(3):
        newest, *_ = tails[0].sessions(f"/folder/{folder}", 5)
        assert newest.session_id == f"{folder}-11"
        assert newest.turn_count == 30
        said = [turn.turn_index for turn in tails[1].turns(newest.session_id)]
        assert said == [1, *range(19, 31)]


async def test_of_another_database_it_knows_nothing(tmp_path: Path) -> None:
    file = tmp_path / "sqlite-sessions.json"
    tail = Tail(file, lambda: "one")
    tail.keep(a_session("s"), [a_turn("s", 1, "wombats")])
    await tail.aclose()
    assert [each.session_id for each in await tail.find_sessions("s")] == ["s"]
    other = Tail(file, lambda: "two")
    assert await other.find_sessions("s") == []
    other.keep(a_session("t"), [])
    await other.aclose()
    assert "wombats" not in file.read_text()


async def test_of_the_tags_it_keeps_that_of_a_question(tmp_path: Path) -> None:
    """By it a chat is told from one while the store is away; the others are the store's."""
    tail = Tail(tmp_path / "sqlite-sessions.json", lambda: "store")
    session = msgspec.structs.replace(a_session("s"), tags=("ask", "water"))
    tail.keep(session, [a_turn("s", 1, "how much?")])
    await tail.aclose()
    (kept,) = await tail.find_sessions("s")
    assert kept.tags == ("ask",)

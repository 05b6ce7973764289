"""Tags, the archive and forks at a turn; the newest sessions, kept beside the spool."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from ragmem.config import MemoryConfig
from ragmem.errors import UsageError
from ragmem.memory.memory import Memory
from ragmem.memory.recording import Tail
from ragmem.memory.sessions import archive, fork_at, tag
from ragmem.records import DEFAULT_TITLE, Session, Turn, UpdateSession
from ragmem.store import Store
from tests.memory.builders import a_turn
from tests.memory.working import a_memory, context
from tests.store.samples import a_session, at, begun, created, finished, whole_turn


@pytest.fixture
async def memory(store: Store) -> AsyncIterator[Memory]:
    async with a_memory(store) as made:
        yield made


@pytest.fixture
async def session(store: Store) -> Session:
    """Three turns, the second interrupted; a summary of the first two answers."""
    await store.apply([created("s", title="Garden", tags=("beds",))])
    await store.apply(whole_turn("s", user="One?"))
    await store.apply([begun("s", "two", "Two?"), finished("s", "two", status="interrupted")])
    await store.apply(whole_turn("s", user="Three?"))
    await store.apply(
        [UpdateSession(session_id="s", summary="One and three.", summarized_count=4, at=at(5))]
    )
    return await store.session("s")


async def prompts(memory: Memory, session_id: str) -> list[str]:
    return [t.user_message for t in (await memory.load_session(session_id)).turns]


async def test_tags_keep_their_order_and_are_given_once(memory: Memory, session: Session) -> None:
    """Also without secrets."""
    tagged = await tag(memory, session, ["#shade", "beds", " north  bed "])
    assert tagged.tags == ("beds", "shade", "north bed")
    assert (await tag(memory, tagged, ["new"], ["beds", "#shade"])).tags == ("north bed", "new")
    with pytest.raises(UsageError, match="no tag 'never'"):
        await tag(memory, tagged, [], ["never"])


async def test_the_archive_and_back(memory: Memory, session: Session) -> None:
    archived = await archive(memory, session)
    assert archived.status == "archived"
    assert (await archive(memory, archived, undo=True)).status == "active"


@pytest.mark.parametrize("until", [0, 1, 2, 3, None])
async def test_a_fork_holds_the_turns(memory: Memory, session: Session, until: int | None) -> None:
    """With what is derived of them; what tells of later turns stays behind."""
    whole = ["One?", "Two?", "Three?"]
    fork = await fork_at(memory, session, until)
    kept = whole[:until]
    assert await prompts(memory, fork.session_id) == kept
    stored = await memory.find_session(fork.session_id)
    assert stored.turn_count == fork.turn_count == len(kept)
    assert stored.message_count == fork.message_count
    assert stored.last_message == fork.last_message == (kept[-1] if kept else None)
    assert stored.summary == ("One and three." if len(kept) == 3 else None)
    assert (stored.parent_session_id, stored.forked_at_index) == ("s", len(kept))
    assert (stored.title, stored.tags, stored.status) == ("Garden (fork)", ("beds",), "active")
    assert await prompts(memory, "s") == whole


async def test_a_fork_of_an_archived_session_is_active(memory: Memory, session: Session) -> None:
    fork = await fork_at(memory, await archive(memory, session), 1, title=" A  name ")
    assert (fork.status, fork.title) == ("active", "A name")


async def test_a_fork_of_a_one_off_question_is_a_chat(memory: Memory, session: Session) -> None:
    await tag(memory, session, ["ask"])
    fork = await fork_at(memory, session, 0)
    assert (await memory.find_session(fork.session_id)).tags == ("beds",)


async def test_a_fork_without_a_name_waits_for_one_of_its_own(memory: Memory) -> None:
    """Its first own turn gives it."""
    store_session = created("bare")
    await memory.record([store_session, *whole_turn("bare")])
    fork = await fork_at(memory, store_session.session)
    assert fork.title == DEFAULT_TITLE


async def test_the_names_of_forks_of_forks_are_counted(memory: Memory, session: Session) -> None:
    titles = []
    for _ in range(3):
        session = await fork_at(memory, session, 1)
        titles.append(session.title)
    assert titles == ["Garden (fork)", "Garden (fork 2)", "Garden (fork 3)"]


@pytest.mark.parametrize("until", [-1, 4])
async def test_a_fork_at_no_turn_is_refused(memory: Memory, session: Session, until: int) -> None:
    with pytest.raises(UsageError, match="There is no turn"):
        await fork_at(memory, session, until)


async def test_a_fork_of_a_fork_at_a_shared_turn(memory: Memory, session: Session) -> None:
    """Turns are shared through both."""
    fork = await fork_at(memory, session, 2)
    await memory.record(whole_turn(fork.session_id, user="Other?"))
    again = await fork_at(memory, await memory.find_session(fork.session_id), 1)
    last = await fork_at(memory, await memory.find_session(fork.session_id), 3)
    assert await prompts(memory, again.session_id) == ["One?"]
    assert await prompts(memory, last.session_id) == ["One?", "Two?", "Other?"]


async def test_nothing_is_forked_where_nothing_is_recorded(session: Session) -> None:
    with pytest.raises(UsageError, match="Nothing is recorded"):
        await fork_at(Memory(None, MemoryConfig()), session, 1)


async def test_a_fork_is_not_told_how_its_parent_went_on(memory: Memory, session: Session) -> None:
    """Not even where it asks for the last conversations; nor is the parent of its own."""
    await memory.record([created("else"), *whole_turn("else", user="Elsewhere?")])
    fork = await fork_at(memory, session, 1)
    await memory.record(whole_turn(fork.session_id, user="Other?"))
    fork, whole = [await memory.find_session(s.session_id) for s in (fork, session)]
    for asks, hidden in ((fork, "One and three."), (whole, "Other?")):
        text = (await context(memory, asks, "What did we talk about before?")).text()
        assert hidden not in text
        assert "Elsewhere?" in text


# --- beside the spool: bounded, of one database, and only what was said ---------------


def said(session_id: str, number: int, text: str) -> Turn:
    ids = {"turn_id": f"{session_id}-{number}", "session_id": session_id}
    return a_turn(number, text, "Fine.", started_at=at(number), finished_at=at(number), **ids)


async def test_it_stays_small_and_each_folder_keeps_its_newest(tmp_path: Path) -> None:
    """However much was said, at once by several processes: the first words and the latest."""
    file = tmp_path / "spool" / "sqlite-sessions.json"
    tails = [Tail(file, lambda: "store") for _ in range(2)]
    for number in range(1, 12):
        for folder in range(3):
            name = f"{folder}-{number}"
            session = msgspec.structs.replace(a_session(name), cwd=f"/folder/{folder}")
            turns = [said(name, each, f"{each} " + "é\0" * 3_000) for each in range(1, 31)]
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
        kept = [turn.turn_index for turn in tails[1].turns(newest.session_id)]
        assert kept == [1, *range(19, 31)]


async def test_of_another_database_it_knows_nothing(tmp_path: Path) -> None:
    file = tmp_path / "sqlite-sessions.json"
    tail = Tail(file, lambda: "one")
    tail.keep(a_session("s"), [said("s", 1, "wombats")])
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
    tail.keep(session, [said("s", 1, "how much?")])
    await tail.aclose()
    (kept,) = await tail.find_sessions("s")
    assert kept.tags == ("ask",)

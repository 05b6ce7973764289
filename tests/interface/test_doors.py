"""What no system takes for a path, no store for an id and no index for words, at each door."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ragmem import OpenMemory, open_memory
from ragmem.errors import RagmemError
from ragmem.records import Scope

from .conftest import Spot

NUL, HALF, LONG = "a\0b", "a\ud800b", "a" * 6_000
HOSTILE = [
    NUL, HALF, LONG, '"(unbalanced', "x* OR /re[gex/ AND NOT {", "NEAR(a b", "\\", "'; DROP --",
    "a:b^2~ && c || !d +e -f ?", "^", '"', "word " * 20_000, "😀\u202e", "}) DETACH DELETE (n",
]  # fmt: skip


async def refused(call: Awaitable[object]) -> str:
    """How it ended, where it did not do what it was asked; any other error is a bug."""
    try:
        await call
    except RagmemError as error:
        return f"{error} {error.hint}"
    return ""


@pytest.mark.parametrize("bad", [NUL, HALF, LONG], ids=["NUL", "half a pair", "too long"])
async def test_every_door_cleans_or_refuses(tmp_path: Path, bad: str) -> None:
    """A folder, an id, a text, an address: a RagmemError, or it is stored without the damage."""

    async def opened(url: str | None, home: Path | str) -> None:
        async with open_memory(url, home):
            pass

    async with open_memory(f"sqlite:///{tmp_path}/m.db", tmp_path / "home") as memory:
        session_id = await memory.create_session(tmp_path)
        turn = await memory.store_turn(session_id, "hi", "there")
        call = {"tool_name": bad, "arguments": {"path": bad, bad: bad}, "result": bad, "error": bad}
        paths: list[Callable[[], Awaitable[object]]] = [
            lambda: memory.create_session(bad),
            lambda: memory.create_session(tmp_path / bad),
            lambda: memory.create_session(tmp_path, bad),
            lambda: memory.get_sessions_by_cwd(bad),
            lambda: memory.search_conversation_history(None, "x", scope=Path(bad)),
            lambda: opened(None, tmp_path / bad),
            lambda: opened(f"sqlite:///{tmp_path}/{bad}.db", tmp_path / "home"),
            lambda: opened(f"bolt://{bad}:1", tmp_path / "home"),
        ]
        for path in paths:
            assert await refused(path())
        assert await refused(memory.store_summary(session_id, "x", 1, [bad]))
        await memory.create_session(tmp_path, title=bad, tags=[bad])
        await refused(memory.store_turn(session_id, "a", "b", [call]))
        await memory.store_turn(session_id, bad, bad, reasoning=bad, model=bad)
        await memory.store_summary(session_id, bad, 1, [turn.turn_id])
        await memory.build_context(session_id, bad)
        kept = (await memory.load_session(session_id)).turns[-1]
        assert kept.user_message == bad.replace("\0", "").replace("\ud800", "\ufffd")


async def test_no_question_breaks_a_search(memory: OpenMemory, spot: Spot) -> None:
    """Regular expressions, quotes without an end, the index's own syntax, and far too much."""
    session_id = await memory.create_session(spot.folder)
    await memory.store_turn(session_id, "Where do ferns grow?", "In the shade.")
    for text in HOSTILE:
        for where in (session_id, None):
            hits = await memory.search_conversation_history(where, f"{text} ferns")
            assert [hit.turn.user_message for hit in hits if hit.turn] == ["Where do ferns grow?"]
            await memory.search_conversation_history(where, text)
        nowhere = Scope(project_ids=(text,), session_ids=(text,))
        assert not await memory.search_conversation_history(None, "ferns", scope=nowhere)
    assert len((await memory.load_session(session_id)).turns) == 1

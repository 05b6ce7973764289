"""What no system takes for a path, no store for an id and no index for words, at each door."""

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ragmem import Conversation, ConversationAgent, OpenMemory, open_memory
from ragmem.errors import RagmemError, UsageError
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


@pytest.mark.parametrize(
    ("name", "given", "wrong"),
    [
        ("store_turn", {"session_id": None}, "session_id of store_turn can't be None."),
        ("store_turn", {"user_message": b"hi"}, "user_message of store_turn can't be b'hi'."),
        ("store_turn", {"timestamp": "yesterday"}, "timestamp of store_turn can't be 'yesterday'."),
        ("store_turn", {"tool_calls": [1]}, "tool_calls of store_turn can't be [1]."),
        ("create_session", {"cwd": 1}, "cwd of create_session can't be 1."),
        ("create_session", {"tags": "red"}, "tags of create_session can't be 'red'."),
        ("get_recent_turns", {"limit": "3"}, "limit of get_recent_turns can't be '3'."),
        ("store_summary", {"parent_ids": [None]}, "parent_ids of store_summary can't be [None]."),
        ("drain", {"timeout_s": "1"}, "timeout_s of drain can't be '1'."),
    ],
)
async def test_an_argument_of_another_type_is_named(
    memory: OpenMemory, name: str, given: dict[str, Any], wrong: str
) -> None:
    """Before anything is done; with what it takes."""
    method = getattr(memory, name)
    needed = {"session_id": "s", "user_message": "", "assistant_message": "", "cwd": "/"}
    needed["summary"] = ""
    fit = {each: needed[each] for each in needed.keys() & inspect.signature(method).parameters}
    with pytest.raises(UsageError) as told:
        await method(**fit | given)
    assert str(told.value) == wrong
    assert told.value.hint.startswith("It takes ")


@pytest.mark.parametrize("cls", [OpenMemory, ConversationAgent, Conversation])
async def test_every_method_looks_at_its_arguments(cls: Any) -> None:
    """Also of those that will be written."""

    async def given_nonsense(method: Any, parameters: list[str]) -> None:
        await method(None, **dict.fromkeys(parameters, object()))

    for name, method in vars(cls).items():
        _, *parameters = inspect.signature(method).parameters if callable(method) else [""]
        if parameters and not name.startswith("_"):
            with pytest.raises(UsageError, match=f"^{parameters[0]} of {name} can't be"):
                await given_nonsense(method, parameters)


def test_what_opens_a_memory_looks_at_its_arguments() -> None:
    with pytest.raises(UsageError) as told:
        open_memory(home=1)  # type: ignore[arg-type]
    assert (str(told.value), told.value.hint) == (
        "home of open_memory can't be 1.",
        "It takes str | PathLike[str] | None.",
    )
    with pytest.raises(UsageError, match="memory of ConversationAgent can't"):
        ConversationAgent(None)  # type: ignore[arg-type]

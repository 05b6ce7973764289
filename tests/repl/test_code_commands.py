"""`/search --code`: what the project's files define, from within a chat."""

from pathlib import Path

import msgspec
import pytest

from ragmem.app import App
from ragmem.config import Config, find_paths
from ragmem.ids import short_id
from ragmem.records import (
    BeginTurn,
    CodeReference,
    CreateSession,
    FinishTurn,
    PutReferences,
    TurnStatus,
)
from tests.cli.coding import EVIL, WATER
from tests.repl.test_memory_commands import Chat, chat

__all__ = ["chat"]


async def indexed(chat: Chat) -> None:
    code = await chat.app.code()
    assert code is not None
    await code.refresh()


async def test_code_is_found_in_a_chat(chat: Chat) -> None:
    """Where it stands, why it was found, how it begins."""
    (chat.app.cwd / "water.py").write_text(WATER)
    none = await chat.said("/search --code litres")
    assert none.strip() == "Nothing of this project is indexed yet."
    await indexed(chat)
    shown = await chat.said("/search --code what do the plants drink")
    first, second, third, *_ = shown.strip().splitlines()
    assert first.startswith("litres · function · water.py:14-16 · found by ")
    assert second.strip() == "def litres(plants: int, days: int) -> float"
    assert third.strip() == "What so many plants drink."
    assert (await chat.said("/search --code qzxwv")).strip() == "Nothing was found."


async def test_a_chat_tells_what_the_command_tells(chat: Chat) -> None:
    """The sessions about it, what is gone, and no more columns than there are."""
    (chat.app.cwd / "water.py").write_text(WATER)
    await indexed(chat)
    code = await chat.app.code()
    assert code is not None
    assert await code.mirror()
    session = chat.session.session
    now = session.started_at
    done: TurnStatus = "completed"
    drain = (await code.scopes_named(["Tank.drain"]))["Tank.drain"][0].scope.scope_id
    reference = CodeReference(scope_id=drain, how="edited")
    await (await chat.app.store()).apply(
        [
            CreateSession(session=session),
            BeginTurn(
                turn_id="t", session_id=session.session_id, user_message="Less!", started_at=now
            ),
            FinishTurn(turn_id="t", session_id=session.session_id, status=done, finished_at=now),
            PutReferences(turn_id="t", references=(reference,)),
        ]
    )
    shown = (await chat.said("/search --code Tank.drain")).strip().splitlines()
    assert shown[0].startswith("Tank.drain · method · water.py:9-11 · ")
    place = shown.index("  sessions")
    assert f"  {short_id(session.session_id)}  Less! · edited · just now" in shown[place + 1]
    chat.paper.columns = 34
    narrow = await chat.said("/search --code Tank.drain")
    assert max(map(len, narrow.splitlines())) <= 34
    assert "  sessions" in narrow
    chat.paper.columns = 100
    (chat.app.cwd / "water.py").write_text("def rain() -> None: ...\n")
    await indexed(chat)
    assert await code.mirror()
    assert "Tank.drain · method · was in water.py" in await chat.said("/search --code Tank.drain")


@pytest.mark.parametrize("line", ["/search --code", "/search --code  "])
async def test_nothing_asked(chat: Chat, line: str) -> None:
    assert "Search for what?" in await chat.said(line)


async def test_files_takes_nothing(chat: Chat) -> None:
    assert "`ragmem files PATH`" in await chat.said("/files water.py")


async def test_it_is_harmless_to_the_terminal(chat: Chat) -> None:
    """Paths, names and signatures can't steer it."""
    (chat.app.cwd / f"{EVIL}.md").write_text(f"# Fern {EVIL}\n\nFerns drink.\n")
    await indexed(chat)
    shown = await chat.said("/search --code fern drink")
    assert "\\e]0;owned\\x07" in shown
    assert "\x1b]0;" not in shown
    assert "\x1b[31m" not in shown


async def test_switched_off(tmp_path: Path) -> None:
    """What to do is said, and the chat goes on."""
    config = Config()
    config = msgspec.structs.replace(
        config, code=msgspec.structs.replace(config.code, enabled=False)
    )
    project = tmp_path / "project"
    project.mkdir()
    paths = find_paths({"RAGMEM_HOME": str(tmp_path / "home")})
    async with App(config, paths, cwd=project) as app:
        shown = await Chat(app, await app.start_session()).said("/search --code litres")
    assert "The code index is switched off." in shown
    assert "code.enabled true" in shown

"""Slash commands on a real store: `/search --code`, `/export`, and those that there are not."""

import json
from pathlib import Path

import msgspec
import pytest

from ragmem.agent import Options
from ragmem.app import App
from ragmem.config import Config, find_paths
from ragmem.ids import short_id
from ragmem.index.codebase import Codebase
from ragmem.memory.facts.words import own_words
from ragmem.records import CodeReference, PutReferences
from ragmem.repl.about import kept
from ragmem.repl.commands import Ask, is_command, is_note, is_own_command, is_prompt, run_command
from ragmem.store.sqlite.schema import Full
from ragmem.tools.base import deny_all
from ragmem.tools.skills import OwnCommand
from tests.cli.coding import EVIL, WATER
from tests.repl.paper import Chat, chat

__all__ = ["chat"]


LINES = {
    "note": ["#the gate squeaks", "# the gate squeaks", "# the gate squeaks \n", "#"],
    "command": ["/help", "/nonsense x"],
    "own": ["!ls", "! ls", "!"],
    "prompt": [
        *["# Plan\n\n1. Do it.", "## Plan", "#!/bin/sh", "#12 is fixed by this, isn't it"],
        *[" # sent to the agent", "the # sign", "/etc/hosts what is it?", "hi /help"],
        *[" !ls", "![a](b)", "a!"],
    ],
}


@pytest.mark.parametrize(
    ("kind", "text"), [(k, text) for k, given in LINES.items() for text in given]
)
def test_what_a_line_is(kind: str, text: str) -> None:
    """Pasted pages, scripts, numbers of issues, paths and pictures go to the agent."""
    assert is_note(text) is (kind == "note")
    assert is_command(text) is (kind in ("note", "command"))
    assert is_own_command(text) is (kind == "own")
    assert is_prompt(text) is (kind == "prompt")


async def test_a_command_that_there_is_not_names_the_one_that_is_meant(chat: Chat) -> None:
    """The beginning of one alone runs it; of several, the nearest is named."""
    for typed, told in {
        "themes": "Did you mean /theme?",
        "models": "Did you mean /model?",
        "hlep": "Did you mean /help?",
        "zzzz": "/help lists all commands.",
    }.items():
        said = await chat.said(f"/{typed}")
        assert said.strip() == f"✗ Unknown command: /{typed}.\n  {told}"
    assert "Unknown command: /co." in await chat.said("/co")
    assert "/files lists the files of this session." in await chat.said("/fil water.py")
    assert await run_command("/exi", chat.session) == "exit"


async def test_the_agent_is_asked_to_write_what_agents_are_to_know(chat: Chat) -> None:
    asked = await run_command("/init", chat.session)
    assert isinstance(asked, Ask)
    assert "AGENTS.md" in asked.prompt
    assert own_words(asked.prompt).strip() == "", "nothing is learned of it"
    asked = await run_command("/init Keep it short.", chat.session)
    assert isinstance(asked, Ask)
    assert own_words(asked.prompt).strip() == "Keep it short."


async def test_a_bare_word_for_leaving_leaves_and_a_question_mark_helps(chat: Chat) -> None:
    for word in ("exit", "quit", "/quit"):
        assert await run_command(word, chat.session) == "exit"
    assert "\n@path " in await chat.said("?")


async def test_a_command_of_ones_own_that_never_runs_is_not_listed(chat: Chat) -> None:
    chat.session.commands = {
        name: OwnCommand(name=name, description=f"my {name}", text="x") for name in ("help", "tidy")
    }
    told = await chat.said("/help")
    assert ("my tidy" in told, "my help" in told) == (True, False)


# --- what the project's files define ----------------------------------------------


async def indexed(chat: Chat, name: str = "water.py", text: str = WATER) -> Codebase:
    """What the project's files define, once it has this one."""
    (chat.app.cwd / name).write_text(text)
    code = await chat.app.code()
    assert code is not None
    await code.refresh()
    return code


async def test_code_is_found_in_a_chat(chat: Chat) -> None:
    """Where it stands, why it was found, how it begins."""
    none = await chat.said("/search --code litres")
    assert none.strip() == "This project is not indexed yet."
    for line in ("/search --code", "/search --code  "):
        assert "Nothing to search for." in await chat.said(line)
    await indexed(chat)
    shown = await chat.said("/search --code what do the plants drink")
    first, second, third, *_ = shown.strip().splitlines()
    assert first.startswith("litres · function · water.py:14-16 · found by ")
    assert second.strip() == "def litres(plants: int, days: int) -> float"
    assert third.strip() == "What so many plants drink."
    assert (await chat.said("/search --code qzxwv")).strip() == "No results."


async def test_what_is_found_in_code_stands_with_its_sessions(chat: Chat) -> None:
    """In no more columns than there are."""
    code = await indexed(chat)
    assert await code.mirror()
    drain = (await code.scopes_named(["Tank.drain"]))["Tank.drain"][0].scope.scope_id
    turn = await chat.turn("Less!")
    reference = CodeReference(scope_id=drain, how="edited")
    store = await chat.app.store()
    await store.apply([PutReferences(turn_id=turn.turn_id, references=(reference,))])
    shown = await chat.said("/search --code Tank.drain")
    assert shown.strip().startswith("Tank.drain · method · water.py:9-11 · ")
    assert f"\n  sessions\n    {short_id(turn.session_id)}  Less! · edited · just now" in shown
    chat.paper.columns = 34
    narrow = await chat.said("/search --code Tank.drain")
    assert max(map(len, narrow.splitlines())) <= 34
    assert "  sessions" in narrow


async def test_files_takes_nothing(chat: Chat) -> None:
    assert "`ragmem files PATH`" in await chat.said("/files water.py")


async def test_what_is_allowed_in_a_session_outlives_another_model(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not the session."""
    monkeypatch.setenv("OPENAI_API_KEY", "scripted-key")
    session = chat.session
    session.options = Options(model="openai/one")
    session.agent = await chat.app.agent(session.session, session.options, deny_all)
    await chat.said("/permissions session run_command(make *)")
    session.agent.rules.remembered["command", "npm test"] = "exactly this command"
    await session.go_on_with(model="openai/other")
    assert session.agent.rules.flags == ["run_command(make *)"]
    assert list(session.agent.rules.remembered) == [("command", "npm test")]
    assert await run_command("/new", session) == "session"
    assert not session.agent.rules.flags
    assert not session.agent.rules.remembered


async def test_a_rule_that_is_not_named_is_asked_for(chat: Chat) -> None:
    assert "✗ Unknown: /permissions 'bad'." in await chat.said("/permissions bad rm")
    assert "✗ No rule given." in await chat.said("/permissions allow")


async def test_what_is_found_in_code_is_harmless_to_the_terminal(chat: Chat) -> None:
    """Paths, names and signatures can't steer it."""
    await indexed(chat, f"{EVIL}.md", f"# Fern {EVIL}\n\nFerns drink.\n")
    shown = await chat.said("/search --code fern drink")
    assert "\\e]0;owned\\x07" in shown
    assert "\x1b]0;" not in shown
    assert "\x1b[31m" not in shown


async def test_an_index_that_is_switched_off_says_what_to_do(tmp_path: Path) -> None:
    config = msgspec.convert({"code": {"enabled": False}}, Config)
    paths = find_paths({"RAGMEM_HOME": str(tmp_path / "home")})
    async with App(config, paths, cwd=tmp_path) as app:
        shown = await (await Chat.begun(app)).said("/search --code litres")
    assert "The code index is turned off." in shown
    assert "code.enabled true" in shown


# --- the session in a file, whose name says in which form -------------------------


@pytest.fixture
async def told(chat: Chat) -> Chat:
    """One turn is stored; rows have room for a long path."""
    chat.paper.columns = 1_000
    await chat.turn("Where do ferns grow?", "In the **shade**.")
    return chat


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("talk.md", "# New Conversation"),
        ("talk.HTML", "<!doctype html>"),
        ("talk.json", '{"format":"ragmem.session"'),
    ],
)
async def test_the_name_says_the_form(told: Chat, name: str, begins: str) -> None:
    file = told.app.cwd / name
    assert await told.said(f"/export {name}") == f"1 turn in {name}\n"
    text = file.read_text()
    assert text.replace(" ", "").replace("\n", "").startswith(begins.replace(" ", ""))
    assert "ferns grow" in text
    assert file.stat().st_mode & 0o777 == 0o600
    if name.endswith("json"):
        assert json.loads(text)["turns"][0]["assistant_message"] == "In the **shade**."


async def test_without_a_name_it_is_markdown_beside_the_work(told: Chat) -> None:
    said = await told.said("/export")
    (file,) = told.app.cwd.glob("session-*.md")
    assert said == f"1 turn in {file.name}\n"


async def test_what_is_there_stays_unless_the_person_gives_it_up(told: Chat) -> None:
    file = told.app.cwd / "talk.md"
    file.write_text("mine")
    said = await told.said("/export talk.md", "n")
    assert "Nothing was written." in said
    assert file.read_text() == "mine"
    assert "Replace it?" in told.paper.asked[-1].label
    assert "1 turn in" in await told.said("/export talk.md", "y")
    assert file.read_text().startswith("# New Conversation")
    (told.app.cwd / "bed.md").mkdir()
    assert "is not a file" in " ".join((await told.said("/export bed.md")).split())
    assert "Can't write" in await told.said("/export nowhere/talk.md")
    assert "end with .md, .json or .html" in await told.said("/export talk.pdf")


async def test_a_session_without_a_turn_has_nothing_to_export(chat: Chat) -> None:
    assert "nothing to export" in await chat.said("/export")
    assert not list(chat.app.cwd.iterdir())


async def test_a_memory_on_a_full_disk_is_away_though_it_can_be_read(chat: Chat) -> None:
    recorded, where = await kept(chat.app)
    assert recorded == "on"
    store = await chat.app.store()
    store.went_away(Full("The disk is full.", hint="Free some space."))
    assert await kept(chat.app) == ("unavailable: The disk is full. Free some space.", where)


async def test_of_many_sessions_the_newest_are_shown_and_that_there_are_more(chat: Chat) -> None:
    for number in range(20):
        chat.session.session = await chat.app.start_session()
        await chat.turn(f"question {number}")
        is_last = number == 19
        assert (
            "Showing the newest 20; `ragmem sessions list`" in await chat.said("/sessions")
        ) is is_last

"""/diff, /rewind and /undo: what is shown, asked and taken back, and which session is told."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ragmem.agent import Options, standard_toolset
from ragmem.app import App
from ragmem.config import Config, find_paths
from ragmem.errors import UsageError
from ragmem.ids import new_id
from ragmem.messages import ToolUse
from ragmem.records import Turn
from ragmem.records.conversation import UNDO
from ragmem.repl.chat import Opening
from ragmem.repl.choices import turn_question
from ragmem.repl.output import ChatOutput
from ragmem.repl.past import diff, rewind, undo
from ragmem.repl.session import ChatSession
from ragmem.tools.base import deny_all
from ragmem.tools.workspace import Workspace
from tests.repl import paper
from tests.tools.conftest import recorded, tmp_path

__all__ = ["tmp_path"]

READ = ("read_file", {"path": "a.py"})
CONFIG = {"model": {"main": "openai/x"}, "llm": {"api_base": "http://127.0.0.1:9/v1"}}


class Chat(paper.Chat):
    """A chat in which turns have changed files; nobody asks the model."""

    @property
    def file(self) -> Path:
        """What is edited."""
        return self.app.cwd / "a.py"

    async def does(self, asked: str, *uses: tuple[str, dict[str, Any]], **recorded_as: Any) -> Turn:
        """Its tools do what they do, and it is stored as an agent stores it."""
        workspace, data_dir = Workspace(self.app.cwd), self.app.paths.data_dir
        tools = standard_toolset(workspace, data_dir=data_dir, mode="bypassPermissions")
        calls = []
        for order, (name, arguments) in enumerate(uses):
            given = json.dumps(arguments)
            call = recorded(name, await tools.call(ToolUse("1", name, given)), order)
            changes = {"tool_call_id": new_id(), "arguments": given, **recorded_as}
            calls.append(msgspec.structs.replace(call, **changes))
        return await self.turn(asked, "Done.", *calls)

    async def edited(self, old: str = "hello", new: str = "goodbye") -> Turn:
        return await self.does(new, READ, ("edit_file", {"path": "a.py", "old": old, "new": new}))

    async def says(self, command: Callable[..., Any], given: str = "", *answers: str) -> str:
        """What a command shows, whose questions have these answers."""
        self.paper.text, self.paper.answers = "", list(answers)
        await command(given, self.session)
        assert self.paper.answers == []
        return self.paper.text

    async def turns(self, session_id: str = "") -> tuple[Turn, ...]:
        named = session_id or self.session.session.session_id
        return (await self.app.memory.load_session(named)).turns


Opens = Callable[..., AbstractAsyncContextManager[Chat]]


@pytest.fixture
def opens(tmp_path: Path) -> Opens:
    """One chat after the other, each a process of its own, in a project with a file."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text("hello\n")

    @asynccontextmanager
    async def opened(**opening: Any) -> AsyncIterator[Chat]:
        paths, sheet = find_paths({"RAGMEM_HOME": str(tmp_path / "home")}), paper.Paper()
        async with App(msgspec.convert(CONFIG, Config), paths, cwd=project) as app:
            output = ChatOutput(sheet, mode="none")
            session = await ChatSession.open(app, Options(), deny_all, output, Opening(**opening))
            yield Chat(session, sheet)

    return opened


async def test_who_thinks_better_of_it_keeps_all_and_who_says_no_keeps_the_files(
    opens: Opens,
) -> None:
    """What commands did is not taken back, and that is said."""
    async with opens() as chat:
        await chat.edited()
        await chat.does("run it", ("run_command", {"command": "echo made > c.txt"}))
        await chat.edited("goodbye", "farewell")
        for number in ("0", "4", "x"):
            with pytest.raises(UsageError, match=f"No turn {number} in this session") as refused:
                await chat.says(rewind, number)
            assert refused.value.hint == "This session has 3 turns; /rewind lists them."
        before = chat.session.session.session_id
        assert "Nothing was changed." in await chat.says(rewind, "2", "c")
        assert (chat.session.session.session_id, len(await chat.turns())) == (before, 3)
        shown = await chat.says(rewind, "2", "n")
        assert "Not undone: what 1 command did since." in shown
        assert chat.session.session.session_id != before
        assert [turn.user_message for turn in await chat.turns()] == ["goodbye"]
        assert [turn.user_message for turn in await chat.turns(before)][3:] == ["/rewind"]
        assert chat.file.read_text() == "farewell\n"
        assert (chat.app.cwd / "c.txt").exists()


async def test_the_files_of_the_beginning_come_back_in_another_process(opens: Opens) -> None:
    """What is to be removed is told before; the session that was left knows of it."""
    async with opens() as chat:
        await chat.edited()
        await chat.does("more", ("create_file", {"path": "b.py", "content": "made\n"}))
    async with opens(continue_last=True) as chat:
        before = chat.session.session.session_id
        said = await chat.says(rewind, "1", "y")
        assert "  a.py (1 edit)\n  b.py (1 edit; created since, will be removed)\n" in said
        assert "a.py: restored\nb.py: removed\n" in said
        assert chat.file.read_text() == "hello\n"
        assert not (chat.app.cwd / "b.py").exists()
        assert await chat.turns() == ()
        *_, last = await chat.turns(before)
    assert "a.py: restored; b.py: removed." in json.loads(last.tool_calls[0].result)["text"]


async def test_edits_are_shown_against_what_stands_there_and_taken_back(opens: Opens) -> None:
    """What stood in a file is kept, and named in one piece, which can be copied."""
    async with opens() as chat:
        assert "This session has changed no files." in await chat.says(diff)
        await chat.edited()
        await chat.edited("goodbye", "farewell")
        assert "● Edit a.py  +1 −1\n│ 1 - hello\n│ 1 + farewell" in await chat.says(diff)
        undone = await chat.says(undo)
        (kept,) = [row for row in undone.splitlines() if "/preimages/" in row]
        assert Path(kept).read_text() == "farewell\n"
        said, _, saved = undone.partition("a.py: restored\n")
        assert "Undo of turn 2" in said
        assert saved.startswith(f"Its content before that was saved in:\n{kept}\n")
        assert chat.file.read_text() == "goodbye\n"
        await chat.says(undo)
        shown = await chat.says(diff, "a.py")
        assert "has not changed a.py, except for undone edits." in shown


async def test_of_many_changed_files_each_is_a_row(opens: Opens) -> None:
    """Rather than thousands of rows; one that is named is shown."""
    async with opens() as chat:
        made = [f"made_{i:02}.py" for i in range(30)]
        new = [("create_file", {"path": each, "content": "one\ntwo\n"}) for each in made]
        await chat.does("make them", *new)
        (chat.app.cwd / made[1]).write_text("one\ntwo\nthree\n")
        (chat.app.cwd / made[2]).unlink()
        shown = await chat.says(diff)
        outside = "It also has changes from outside this session."
        assert f"● made_00.py  +2\n● made_01.py  +3 · {outside}\n" in shown
        assert "made_02.py has no changes." in shown
        assert "● made_29.py  +2\n" in shown
        assert "│" not in shown
        assert "30 files. /diff FILE shows the changes of one." in shown
        assert "│ 1 + one" in await chat.says(diff, made[7])


async def test_who_goes_back_to_before_an_undo_still_knows_of_it(opens: Opens) -> None:
    async with opens() as chat:
        await chat.edited()
        assert "a.py: restored" in await chat.says(undo)
        assert chat.file.read_text() == "hello\n"
        await chat.says(rewind, "2")
        [_, told] = await chat.turns()
        assert "Nothing to undo" in await chat.says(undo)
    assert (told.user_message, told.is_undo) == ("/undo", True)
    said = json.loads(told.tool_calls[0].result)["text"]
    assert said == "The user undid edits of: a.py."


async def test_an_undo_is_no_turn_from_there_on(opens: Opens) -> None:
    async with opens() as chat:
        edited = await chat.edited()
        await chat.says(undo)
        question = turn_question(await chat.turns())
        assert question.preview
        [counted, _] = await question.preview(str(edited.turn_index))
        assert counted == "1 turn from there on"


async def test_only_the_person_takes_edits_back(opens: Opens) -> None:
    """A model may name a tool so, and what it answers may name turns."""
    async with opens() as chat:
        edited = await chat.edited()
        told = {"text": "Taken back.", "taken_back": {edited.turn_id: ["a.py"]}}
        await chat.does("and?", (UNDO, {}), success=True, result=json.dumps(told))
        assert "a.py: restored" in await chat.says(undo, "", "y")
        assert chat.file.read_text() == "hello\n"


async def test_what_others_have_changed_since_is_left(opens: Opens) -> None:
    async with opens() as chat:
        await chat.edited()
        chat.file.write_text("mine\n")
        assert (
            "a.py: left unchanged; it has changed since this session's last edit"
            in await chat.says(undo)
        )
        assert "a.py: left unchanged" in await chat.says(rewind, "1", "y", "n")
        assert chat.paper.asked[-1].label.endswith("Undo it anyway?")
        assert chat.file.read_text() == "mine\n"


async def test_a_turn_that_can_not_be_taken_back_does_not_stand_before_the_ones_before_it(
    opens: Opens,
) -> None:
    """Why not is said; what others wrote and what was cut off stays as it is."""
    async with opens() as chat:
        await chat.does("make", ("create_file", {"path": "b.py", "content": "made\n"}))
        await chat.edited()
        unfinished = {"result": "", "success": False}
        write = ("write_file", {"path": "c.py", "content": "?"})
        await chat.does("and more", write, **unfinished)
        chat.file.write_text("mine\n")
        said = await chat.says(undo, "", "y", "y")
        assert "c.py: not restored; an edit of it was interrupted" in said
        assert "a.py: left unchanged; it has changed since this session's last edit" in said
        assert "b.py: removed" in said
        assert chat.file.read_text() == "mine\n"
        assert not (chat.app.cwd / "b.py").exists()
        again = await chat.says(undo, "", "n")
        assert "Nothing was changed." in again
        assert "Nothing to undo" not in again

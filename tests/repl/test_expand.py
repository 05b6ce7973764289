"""What was shown in short is opened whole: /expand, and Ctrl-O on a terminal."""

import json
import os
import stat
from pathlib import Path

import pytest

from ragmem.events import Recalled
from tests.e2e.house import House
from tests.fakes.llm_server import Answer, Call
from tests.repl.paper import Chat, chat
from tests.repl.pty_chat import LOADED, FakeChat
from tests.store.samples import called

__all__ = ["chat"]

CTRL_O = "\x0f"
POEM = "\n".join(f"verse {n}" for n in range(9))


async def worked(chat: Chat, **result: str) -> None:
    """One turn with a long prompt, thoughts and a command is stored."""
    command = {"arguments": '{"command": "make all"}', "result": json.dumps(result)}
    call = called("s", "t", tool_name="run_command", **command).call
    await chat.turn(POEM, "Done.", call, reasoning="Is it dry?\nYes.")


async def test_results_thoughts_and_long_prompts_are_listed_and_opened_by_number(
    chat: Chat,
) -> None:
    await worked(chat, text="one\ntwo\nthree")
    listed = await chat.said("/expand", "")
    assert [row.split()[0:3] for row in listed.strip().split("\n")[:3]] == [
        ["1", "make", "all"],
        ["2", "Thoughts", "15"],
        ["3", "Prompt:", "verse"],
    ]
    assert (await chat.said("/expand", "2")).endswith("\n\nIs it dry?\nYes.\n")
    assert (await chat.said("/expand 1")).endswith("turn 1 · 3 lines\n\none\ntwo\nthree\n")
    assert (await chat.said("/expand 3")).endswith(f"\n\n{POEM}\n")
    assert "No item 4 in the list" in await chat.said("/expand 4")


async def test_what_memory_put_in_comes_below_the_results_of_its_turn(chat: Chat) -> None:
    await worked(chat, text="one")
    item = Recalled(id="r", section="Pinned", score=None, why="pinned", label="Water at dawn.")
    chat.session.recalled = [item]
    assert (await chat.said("/expand 1")).startswith("make all")
    said = await chat.said("/expand 3")
    assert said.startswith("What memory added to the last request\n")
    assert "1  Water at dawn." in said


async def test_all_that_a_command_printed_comes_from_its_file_while_that_is_there(
    chat: Chat, tmp_path: Path
) -> None:
    """A screen's control sequences are taken out, what hides is shown."""
    file = tmp_path / "command.txt"
    file.write_text("begin\n\x1b[31mmiddle\x1b[0m \u202e\nend\n")
    await worked(chat, text="begin\n… [cut] …\nend", output_file=str(file))
    opened = await chat.said("/expand 1")
    assert opened.endswith("begin\nmiddle \\u{202e}\nend\n")
    file.unlink()
    opened = await chat.said("/expand 1")
    assert "… [cut] …" in opened
    assert "no longer exists" in opened


async def test_there_is_nothing_to_open_before_anything_was_shown(chat: Chat) -> None:
    assert "Nothing in this session has been shortened yet." in await chat.said("/expand")


def pager(folder: Path) -> dict[str, str]:
    """A pager that keeps what it was given, also of the environment if there is a secret in it."""
    script = folder / "pager"
    script.write_text(f"#!/bin/sh\n(cat; env | grep _KEY=) > {folder}/read; echo paged\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"PAGER": str(script)}


def test_ctrl_o_picks_what_the_pager_shows(house: House, tmp_path: Path) -> None:
    """The key leaves no row behind; rows that were cut say which key it is."""
    house.server.extend(
        Answer(tools=[Call("run_command", {"command": "seq 40"})]),
        Answer("Counted.", reasoning="They want numbers."),
    )
    with house.chat("chat", "--yolo", env=pager(tmp_path), ready=LOADED) as chat:
        chat.send("count\r", ends=r"… 37 lines before · Ctrl-O[\s\S]*· thought for \d+ ms · Ctrl-O")
        chat.send(CTRL_O, shows=r"Open › [\s\S]*▸ .*seq 40")
        chat.send("thou\r", until=lambda: (tmp_path / "read").exists())
        chat.wait_for_screen(r"^paged$")
        assert (tmp_path / "read").read_text().endswith("\n\nThey want numbers.\n")
        assert "/expand" not in chat.text
        chat.leave()


def test_what_no_pager_shows_is_printed(house: House) -> None:
    house.server.extend(Answer("Counted.", reasoning="They want numbers."))
    with house.chat("chat", env={"PAGER": "no-such-pager -R"}, ready=LOADED) as chat:
        chat.send("count\r", ends=r"thought for")
        chat.send(CTRL_O, shows=r"Open › [\s\S]*▸ .*Thoughts")
        chat.send("\r", shows=r"^They want numbers\.$")
        chat.leave()


@pytest.mark.parametrize("early", ["held", "shown"])
def test_a_key_that_is_pressed_before_all_is_loaded_is_no_prompt(
    tmp_path: Path, early: str
) -> None:
    """It is dropped: nothing waits, nothing is asked, and what was typed after it is sent."""
    settings = (f"early={early}", "load=held", "past", "continue")
    with FakeChat(tmp_path, *settings, ready=r"^›") as chat:
        chat.send(f"{CTRL_O}hello\r")
        chat.let("early")
        chat.wait_for_screen(r"^loading …\nqueued: hello$")
        chat.let("load")
        chat.wait_for_turn(r"^You said 'hello'\.")
        assert "queued: \n" not in chat.text
        assert "^O" not in chat.text
        assert "Open ›" not in chat.text
        assert chat.prompts == ["hello"]


def test_thoughts_are_not_kept_where_a_setting_says_so(house: House) -> None:
    """Nor is it said that they could be opened."""
    house.server.extend(Answer("Three.", reasoning="They want numbers."))
    with house.chat("chat", env={"RAGMEM_MEMORY__THOUGHTS": "false"}, ready=LOADED) as chat:
        chat.send("count\r", ends=r"^Three\.")
        assert "thought for" not in chat.text
        chat.leave()
    (session,) = house.sessions()
    assert "They want numbers." not in json.dumps(session)


def test_what_is_printed_while_a_pager_has_the_screen_comes_when_it_is_left(
    house: House, tmp_path: Path
) -> None:
    """A turn goes on meanwhile; Ctrl-C belongs to the pager."""
    script, go_on = tmp_path / "pager", tmp_path / "go on"
    os.mkfifo(go_on)
    script.write_text(f"#!/bin/sh\necho reading\ncat >/dev/null\ncat '{go_on}'\n")
    script.chmod(0o700)
    house.server.extend(
        Answer(tools=[Call("run_command", {"command": "echo hi"})]),
        Answer("First."),
        Answer(tools=[Call("run_command", {"command": "cat held"})]),
        Answer("Second."),
    )
    held = house.project / "held"  # in the sandbox there is nothing else of the temporary folder
    os.mkfifo(held)
    with house.chat("chat", "--yolo", env={"PAGER": str(script)}, ready=LOADED) as chat:
        chat.send("begin\r", ends=r"^First\.")
        chat.send("go on\r", shows=r"^● .*held")
        chat.send(CTRL_O, shows=r"▸ .*echo hi")
        chat.send("\r", shows=r"^reading$")
        held.write_text("it came\n")
        chat.until(lambda: len(house.server.requests) == 4)
        assert "Second." not in chat.text
        go_on.write_text("left\n")
        chat.wait_for_turn(r"^left[\s\S]*it came[\s\S]*^Second\.")
        chat.leave()

"""Keys of the prompt, and words that do what people mean by them."""

import stat
from pathlib import Path

import pytest

from tests.repl.pty_chat import FakeChat

ESC, CTRL_C, CTRL_G, CTRL_X, CTRL_E = "\x1b", "\x03", "\x07", "\x18", "\x05"
UP = f"{ESC}[A"


def editor(folder: Path, does: str) -> dict[str, str]:
    """An editor that does this with the file that it is given."""
    script = folder / "editor"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"VISUAL": str(script), "EDITOR": "/nowhere"}


def test_up_takes_the_last_prompt_that_waits_back_and_then_the_one_before(chat: FakeChat) -> None:
    """Nothing of it waits any longer, and what is typed stays behind it."""
    chat.send("slow\r")
    chat.wait_for_screen(r"word1 ")
    chat.send("queued one\rqueued two\r")
    chat.wait_for_screen(r"^queued: queued one\nqueued: queued two$")
    chat.send(UP)
    chat.wait_for_screen(r"^› queued two$")
    assert "queued: queued two" not in chat.screen
    chat.send(UP)
    chat.wait_for_screen(r"^› queued one\n  queued two$")
    assert "queued: " not in chat.screen
    chat.send(f"{CTRL_C}")
    chat.until(lambda: chat.log("finished"))
    chat.wait_for_screen(r"^› queued one\n  queued two$")
    chat.send("\r")
    chat.until(lambda: len(chat.prompts) == 2)
    assert chat.prompts == ["slow", "queued one\nqueued two"]


def test_any_key_takes_back_that_ctrl_c_leaves(chat: FakeChat) -> None:
    """Also one that changes nothing; after it Ctrl-C is the first of two again."""
    chat.send(CTRL_C)
    chat.wait_for_screen(r"^  Ctrl-C again to leave$")
    chat.send("x\x7f")
    chat.until(lambda: "Ctrl-C again" not in chat.screen)
    chat.send(CTRL_C)
    chat.wait_for_screen(r"^  Ctrl-C again to leave$")
    chat.send(CTRL_C)
    assert chat.exit_code() == 130


def test_a_draft_beside_a_question_says_why_no_key_answers(chat: FakeChat) -> None:
    chat.send("edit\r")
    chat.wait_for_screen(r"^Allow this change\?")
    chat.send("yy")
    chat.wait_for_screen(r"^  text in the prompt · empty it to answer$")
    chat.send("\x7f\x7f")
    chat.until(lambda: "empty it to answer" not in chat.screen)
    chat.send("y")
    chat.until(lambda: chat.log("decided"))
    assert chat.log("decided")[0]["allowed"]


@pytest.mark.parametrize("keys", [CTRL_G, CTRL_X + CTRL_E], ids=["Ctrl-G", "Ctrl-X Ctrl-E"])
def test_the_draft_is_opened_in_the_persons_editor(tmp_path: Path, keys: str) -> None:
    """And what it leaves is the draft; what comes meanwhile is printed when it is left."""
    does = 'touch open; while [ ! -e go ]; do sleep 0.02; done; printf " and more" >> "$1"'
    with FakeChat(tmp_path, env=editor(tmp_path, does)) as chat:
        chat.wait_until_loaded()
        chat.send("tool held\r")
        chat.wait_for_screen(r"^● read_file")
        chat.send(f"some words{keys}")
        chat.until((tmp_path / "open").exists)
        chat.let("tool")
        chat.until(lambda: chat.log("finished"))
        assert "It is an app." not in chat.text
        (tmp_path / "go").touch()
        chat.wait_for(r"^It is an app\.")
        chat.wait_for_screen(r"^› some words and more$")


def test_vi_keys_by_a_setting(tmp_path: Path) -> None:
    """Esc leaves insertion where words are typed; on an empty draft it is what it was."""
    with FakeChat(tmp_path, "editing=vi") as chat:
        chat.wait_until_loaded()
        chat.send(f"one two three{ESC}")
        chat.pump(0.6)
        chat.send("bdw0x")
        chat.wait_for_screen(r"^› ne two$")
        chat.send("A!\r")
        chat.until(lambda: chat.prompts == ["ne two !"])
        chat.send("slow\r")
        chat.wait_for_screen(r"word1 ")
        chat.send(ESC)
        chat.wait_for(r"^  interrupted$")


def test_the_first_letter_after_esc_is_typed(chat: FakeChat) -> None:
    """It is no key with Alt: a command that lost its slash would be sent to the model."""
    for typed in ("banana", "/x1"):
        chat.send("\x1b")
        chat.wait_for_screen(r"^  Esc again")
        chat.send(typed)
        chat.wait_for_screen(rf"^› {typed}$")
        chat.send(CTRL_C)
        chat.wait_for_screen(r"^›$")


@pytest.mark.parametrize("word", ["exit", "quit", "/quit"])
def test_a_bare_word_for_leaving_leaves(chat: FakeChat, word: str) -> None:
    chat.send(f"{word}\r")
    assert chat.exit_code() == 0
    assert chat.prompts == []


def test_a_bare_question_mark_helps_and_words_with_more_are_prompts(chat: FakeChat) -> None:
    chat.send("?\r")
    chat.wait_for(r"^@path +names a file")
    chat.send("exit code of make?\r")
    chat.until(lambda: chat.prompts == ["exit code of make?"])


def test_a_part_of_a_name_is_enough_where_only_one_session_has_it(tmp_path: Path) -> None:
    with FakeChat(tmp_path, "past", "more=12") as chat:
        chat.wait_until_loaded()
        chat.send("/resume work 1\r")
        chat.wait_for(r"^✗ 3 sessions match 'work 1':\n +00000101  Work 1 ")
        chat.send("/resume past\r")
        chat.wait_for_screen(r"openai/scripted · Past work")
        chat.send("/resume far a\r")
        chat.wait_for_screen(r"openai/scripted · Far away")
        chat.send("/resume nice\r")
        chat.wait_for(r"^✗ Session nice not found\.")


def test_a_key_is_drawn_at_once_however_seldom_the_rest_is(tmp_path: Path) -> None:
    with FakeChat(tmp_path, "drawn=never", "load=held") as chat:
        chat.wait_for_screen("loading")
        for typed in ("z", "ze", "zeb"):
            chat.send(typed[-1])
            chat.wait_for_screen(f"^› {typed}$")


def test_a_command_that_there_is_not_names_the_one_that_is_meant(chat: FakeChat) -> None:
    for typed, meant in {"themes": "theme", "models": "model", "hlep": "help"}.items():
        chat.send(f"/{typed}\r")
        chat.wait_for(rf"^✗ There is no command /{typed}\.\n  Did you mean /{meant}\?")
    chat.send("/zzzz\r")
    chat.wait_for(r"^✗ There is no command /zzzz\.\n  /help lists them\.")


def test_the_beginning_of_one_command_alone_runs_it(chat: FakeChat) -> None:
    """Of several, the nearest is named."""
    chat.send("/ver\r")
    chat.wait_for(r"^✗ There is no command /ver\.")
    chat.send("/rena bean beds\r")
    chat.wait_for(r"bean beds")
    chat.send("/exi\r")
    assert chat.exit_code() == 0

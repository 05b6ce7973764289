"""Keys of the prompt, and words that do what people mean by them."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repl.pty_chat import ROOT, FakeChat

ESC, CTRL_C, CTRL_G, CTRL_X, CTRL_E = "\x1b", "\x03", "\x07", "\x18", "\x05"
UP = f"{ESC}[A"


def editor(folder: Path, does: str) -> dict[str, str]:
    """An editor that does this with the file that it is given."""
    script = folder / "editor"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"VISUAL": str(script), "EDITOR": "/nowhere"}


def test_the_draft_is_opened_in_the_persons_editor(tmp_path: Path) -> None:
    """And what it leaves is the draft; what comes meanwhile is printed when it is left.

    It gets no secrets from the environment, but what describes the terminal.
    """
    does = (
        "env | grep _KEY= && exit 1; env | grep ^TERMINFO_DIRS= || exit 1; touch open; "
        "while [ ! -e go ]; do sleep 0.02; done; "
        'printf " and more" >> "$1"'
    )
    env = editor(tmp_path, does) | {"OPENAI_API_KEY": "of the model", "TERMINFO_DIRS": "/none"}
    with FakeChat(tmp_path, env=env) as chat:
        chat.send("tool held\r", shows=r"^● read_file")
        chat.send(f"some words{CTRL_G}", until=(tmp_path / "open").exists)
        chat.let("tool")
        chat.until(lambda: chat.log("finished"))
        assert "It is an app." not in chat.text
        (tmp_path / "go").touch()
        chat.wait_for(r"^It is an app\.")
        chat.wait_for_screen(r"^› some words and more$")
        chat.send(CTRL_X + CTRL_E, shows=r"^› some words and more and more$")


def test_a_draft_stays_where_no_editor_could_be_used(tmp_path: Path) -> None:
    """One that does not exist is passed over; one that fails changes nothing."""
    env = {"VISUAL": "no-such-editor 'of'", "EDITOR": f"{tmp_path}/editor --wait"}
    editor(tmp_path, '[ "$1" = --wait ] && printf "other" > "$2"; touch done; exit 1')
    with FakeChat(tmp_path, env=env) as chat:
        chat.send(f"some words{CTRL_G}", until=(tmp_path / "done").exists)
        chat.send("!", shows=r"^› some words!$")


def test_why_no_editor_is_opened(tmp_path: Path) -> None:
    """Below the draft, which stays, until the next key."""
    (folder := tmp_path / "temporary").mkdir()
    env = editor(tmp_path, 'printf " and more" >> "$1"') | {"TMPDIR": str(folder)}
    with FakeChat(tmp_path, env=env) as chat:
        chat.send(f"some words{CTRL_G}", shows=r"^› some words and more$")
        # Not only removed: private folders are made with those above them.
        folder.rename(tmp_path / "moved")
        folder.touch()
        chat.send(CTRL_G, shows=r"^  No temporary file for the draft: Not a directory\.$")
        chat.send("!", shows=r"^› some words and more!$")
        assert "No temporary file" not in chat.screen
    assert edited(tmp_path, "words", "terminal._EDITORS = ()").startswith("No editor was found.")


def edited(folder: Path, draft: str, first: str = "", **environ: str) -> str:
    """What `edited` returns where no program can ask a person anything."""
    code = f"""
from ragmem.errors import RagmemError
from ragmem.repl import terminal
{first}
try:
    print(ascii(terminal.edited({draft!r})))
except RagmemError as error:
    print(error)
"""
    env = {**os.environ, "VISUAL": "", "EDITOR": "", "PYTHONPATH": str(ROOT), **environ}
    command = [sys.executable, "-P", "-c", code]
    ran = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=-1)
    return ran.stdout.decode().rpartition("\n")[0].rpartition("\n")[2]


def test_no_program_of_the_project_is_taken_for_an_editor(tmp_path: Path) -> None:
    """Though its folder may be on the PATH, as that of a package manager's programs."""
    editor(tmp_path, "touch done")
    edited(tmp_path, "words", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert not (tmp_path / "done").exists()


def test_a_draft_is_opened_in_one_editor(tmp_path: Path) -> None:
    """Also one with bytes that are not UTF-8, and if the first has removed its file."""
    first = editor(tmp_path, 'cat "$1" > seen; rm "$1"')["VISUAL"]
    (tmp_path / "second").write_text("#!/bin/sh\ntouch done\n")
    (tmp_path / "second").chmod(0o755)
    assert edited(tmp_path, "caf\udce9", VISUAL=first, EDITOR=f"{tmp_path}/second") == "None"
    assert (tmp_path / "seen").read_bytes() == b"caf\xe9"
    assert not (tmp_path / "done").exists()


@pytest.mark.chat("editing=vi")
def test_vi_keys_by_a_setting(chat: FakeChat) -> None:
    """Esc leaves insertion where words are typed; on an empty draft it is what it was."""
    chat.send("one two three", shows=r"^› one two three$")
    column = chat.column
    # Typed at once, the next letter would be one with Alt.
    chat.send(ESC, until=lambda: chat.column == column - 1)
    chat.send("bdw0x", shows=r"^› ne two$")
    chat.send("A!\r", until=lambda: chat.prompts == ["ne two !"])
    chat.send("slow\r", shows=r"word1 ")
    chat.send(ESC, prints=r"^  interrupted$")


def test_the_first_letter_after_esc_is_typed(chat: FakeChat) -> None:
    """It is no key with Alt: a command that lost its slash would be sent to the model."""
    for typed in ("banana", "/x1"):
        chat.send("\x1b", shows=r"^  Esc again")
        chat.send(typed, shows=rf"^› {typed}$")
        assert "Esc again" not in chat.screen
        chat.send(CTRL_C, shows=r"^›$")


def test_a_bare_word_leaves_and_words_with_more_are_prompts(chat: FakeChat) -> None:
    chat.send("exit code of make?\r", until=lambda: chat.prompts == ["exit code of make?"])
    chat.send("exit\r")
    assert chat.exit_code() == 0


@pytest.mark.chat("past", "more=12")
def test_a_part_of_a_name_is_enough_where_only_one_session_has_it(chat: FakeChat) -> None:
    chat.send("/resume work 1\r", prints=r"^✗ 3 sessions match 'work 1':\n +00000101  Work 1 ")
    chat.send("/resume past\r", shows=r"openai/scripted · Past work")
    chat.send("/resume far a\r", shows=r"openai/scripted · Far away")
    chat.send("/resume nice\r", prints=r"^✗ Session nice not found\.")


@pytest.mark.chat("drawn=never", "load=held", ready="loading")
def test_a_key_is_drawn_at_once_however_seldom_the_rest_is(chat: FakeChat) -> None:
    for typed in ("z", "ze", "zeb"):
        chat.send(typed[-1], shows=f"^› {typed}$")

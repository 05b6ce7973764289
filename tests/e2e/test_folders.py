"""Folders that move, are joined, have two names or strange ones, or go away: real processes."""

import os
import shutil
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from tests.cli.process import COMMAND, Ragmem, finish
from tests.fakes.llm_server import Answer, Call, LLMServer
from tests.repl.pty_chat import PtyChat

URL = "https://example.org/team/app.git"


@pytest.fixture
def ragmem(tmp_path: Path, server: LLMServer) -> Ragmem:
    return Ragmem(tmp_path, {**server.env, "TERM": "xterm"})


def checkout(folder: Path, remote: str = "") -> Path:
    (folder / ".git").mkdir(parents=True)
    origin = f'[remote "origin"]\n\turl = {remote}\n' if remote else "[core]\n"
    (folder / ".git" / "config").write_text(origin)
    return folder


def asked(ragmem: Ragmem, folder: Path, prompt: str, *arguments: str) -> Any:
    done = ragmem.run("ask", prompt, *arguments, "--output-format", "json", cwd=folder)
    assert done.code == 0, done.err
    return done.json


def listed(ragmem: Ragmem, folder: Path, *arguments: str) -> list[Any]:
    done = ragmem.run("sessions", "list", *arguments, "--format", "json", cwd=folder)
    assert done.code == 0, done.err
    return done.json  # type: ignore[no-any-return]


def prompts(found: list[Any]) -> set[str]:
    return {session["last_message"] for session in found}


def join(ragmem: Ragmem, folder: Path, answer: str) -> tuple[int, str]:
    child = ragmem.on_terminal("sessions", "list", "--join", cwd=folder, columns=200)
    child.expect(r"\] |error: .*\n")
    shown = child.before + child.after
    if "error:" not in shown:
        child.sendline(answer)
    code = finish(child)
    return code, (shown + child.before).replace("\r\n", "\n")


# --- joined projects -------------------------------------------------------------


def test_two_clones_are_joined_by_a_person(tmp_path: Path, ragmem: Ragmem) -> None:
    """Asked once, then the sessions of both, and those to come, are one project's."""
    one, two = checkout(tmp_path / "one", URL), checkout(tmp_path / "two", URL)
    asked(ragmem, one, "In one")
    asked(ragmem, two, "In two")
    assert prompts(listed(ragmem, two, "--project")) == {"In two"}

    code, shown = join(ragmem, two, "n")
    assert code == 2
    assert shown.replace(str(tmp_path), "…") == snapshot(
        """\
This project: …/two (1 session)
The same repository or remote:
  …/one (1 session)
Their sessions become one project's: each recalls what was said in the other.
Join them? [y/N] n
error: Nothing was joined.
Only y or yes joins them: `ragmem sessions list --join` asks again.
"""
    )
    assert prompts(listed(ragmem, two, "--project")) == {"In two"}

    code, shown = join(ragmem, two, "y")
    assert code == 0, shown
    assert "`ragmem sessions split` undoes it." in " ".join(shown.split())
    assert "Joined: the sessions of both folders are those of" in shown
    assert prompts(listed(ragmem, two, "--project")) == {"In one", "In two"}
    asked(ragmem, two, "In two again", "-c")
    asked(ragmem, two, "In two anew")
    asked(ragmem, one, "In one anew")
    both = {"In one", "In two again", "In two anew", "In one anew"}
    assert prompts(listed(ragmem, one, "--project")) == both
    assert prompts(listed(ragmem, two, "--project")) == both
    # What goes by the folder still does.
    assert prompts(listed(ragmem, two)) == {"In two again", "In two anew"}
    code, shown = join(ragmem, two, "y")
    # The terminal's rows end where the folder's name lets them.
    assert (code, "already; there is no other to join" in " ".join(shown.split())) == (2, True)


def test_the_first_chat_of_a_second_clone_asks_whether_both_are_one_project(
    tmp_path: Path, ragmem: Ragmem
) -> None:
    """Once: whoever says no is not asked again."""
    one, two, three = (checkout(tmp_path / name, URL) for name in ("one", "two", "three"))
    asked(ragmem, one, "In one")

    def chat(folder: Path) -> PtyChat:
        return PtyChat([*COMMAND, "chat"], cwd=folder, env=ragmem.env)

    for folder, key in ((two, "y"), (three, "n")):
        with chat(folder) as first:
            first.wait_for_screen(r"Make them one project\?")
            assert "This folder has the same remote as" in first.text
            first.send(key)
            first.wait_for_screen(r"openai/scripted · \S")
            first.send(f"In {folder.name}\r")
            first.wait_for_turn(r"^The answer\.")
    with chat(three) as again:
        again.wait_for_screen(r"openai/scripted · \S")
        assert "Make them one project?" not in again.text
    assert prompts(listed(ragmem, one, "--project")) == {"In one", "In two"}
    assert prompts(listed(ragmem, three, "--project")) == {"In three"}


def worktree(main: Path, folder: Path) -> Path:
    """As `git worktree add` leaves it."""
    own = main / ".git" / "worktrees" / folder.name
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    (own / "gitdir").write_text(f"{folder}/.git\n")
    folder.mkdir()
    (folder / ".git").write_text(f"gitdir: {own}\n")
    return folder


def test_what_is_said_in_one_worktree_is_known_in_all(tmp_path: Path, ragmem: Ragmem) -> None:
    """Whichever of them is worked in first; a folder still lists its own."""
    main = checkout(tmp_path / "main", URL)
    one, two = worktree(main, tmp_path / "one"), worktree(main, tmp_path / "two")
    for folder in (one, main, two):
        asked(ragmem, folder, f"In {folder.name}")
    for folder in (one, main, two):
        assert prompts(listed(ragmem, folder, "--project")) == {"In one", "In main", "In two"}
        assert prompts(listed(ragmem, folder)) == {f"In {folder.name}"}


def apart(ragmem: Ragmem, tmp_path: Path) -> tuple[Path, Path]:
    """A repository and a worktree of it that has had a memory of its own from before."""
    main, tree = checkout(tmp_path / "main"), checkout(tmp_path / "tree")
    asked(ragmem, main, "In main")
    asked(ragmem, tree, "In tree")
    shutil.rmtree(tree)
    return main, worktree(main, tree)


def chatted(ragmem: Ragmem, folder: Path, prompt: str) -> str:
    """What a chat in the folder shows until its first answer."""
    with PtyChat([*COMMAND, "chat"], cwd=folder, env=ragmem.env) as chat:
        chat.wait_for_screen(r"openai/scripted · \S")
        chat.send(f"{prompt}\r")
        chat.wait_for_turn(r"^The answer\.")
        return " ".join(chat.text.split())


def test_a_chat_joins_a_worktree_once_and_never_after_it_was_split(
    tmp_path: Path, ragmem: Ragmem
) -> None:
    """It says so in a line, with how to undo it."""
    main, tree = apart(ragmem, tmp_path)
    line = "what is remembered in one of them is known in both from now on. `ragmem sessions split`"
    assert line in chatted(ragmem, tree, "One")
    both = {"In main", "In tree", "One"}
    assert prompts(listed(ragmem, main, "--project")) == both
    assert line not in chatted(ragmem, tree, "Two")

    split = ragmem.run("sessions", "split", cwd=tree)
    assert split.code == 0, split.err
    assert split.out == (f"Split: {tree} is a project of its own; 3 sessions moved from {main}.\n")
    own = {"In tree", "One", "Two"}
    assert prompts(listed(ragmem, tree, "--project")) == own
    assert prompts(listed(ragmem, main, "--project")) == {"In main"}
    found = ragmem.run("search", "tree", "--format", "json", cwd=main).json
    assert found == []
    assert len(ragmem.run("search", "tree", "--format", "json", cwd=tree).json) > 0
    assert line not in chatted(ragmem, tree, "Three")
    asked(ragmem, tree, "Four")
    assert prompts(listed(ragmem, tree, "--project")) == {*own, "Three", "Four"}
    again = ragmem.run("sessions", "split", str(tree), cwd=main)
    assert (again.code, again.out) == (
        0, f"{tree} is a project of its own: there was nothing to split.\n",
    )  # fmt: skip
    refused = ragmem.run("sessions", "split", cwd=main)
    assert (refused.code, refused.out) == (
        0, f"{main} is a project of its own: there was nothing to split.\n",
    )  # fmt: skip

    code, shown = join(ragmem, tree, "y")
    assert code == 0, shown
    everything = {"In main", *own, "Three", "Four"}
    assert prompts(listed(ragmem, main, "--project")) == everything
    refused = ragmem.run("sessions", "split", cwd=main)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        f"error: {main} is the project that others were joined to.\n"
        f"Split one of those: `ragmem sessions split {tree}`\n"
    )
    shutil.rmtree(tree)
    assert ragmem.run("sessions", "split", str(tree), cwd=main).code == 0
    assert prompts(listed(ragmem, main, "--project")) == {"In main"}


def test_without_a_terminal_nothing_is_joined(tmp_path: Path, ragmem: Ragmem) -> None:
    """A person decides, or nobody."""
    done = ragmem.run("sessions", "list", "--join")
    assert (done.code, done.out) == (2, "")
    assert done.err == snapshot(
        """\
error: Two projects are joined only when a person says so, and there is nobody to ask here.
Run `ragmem sessions list --join` in a terminal.
"""
    )
    for other in (["--all"], ["--cwd", "."]):
        done = ragmem.run("sessions", "list", "--join", *other)
        assert (done.code, done.err) == (
            2, "error: --join is about this folder: it goes with neither --all nor --cwd.\n",
        )  # fmt: skip


# --- folders that move -------------------------------------------------------------


def test_a_moved_checkout_says_so_once(tmp_path: Path, ragmem: Ragmem) -> None:
    """The same remote, the old folder gone."""
    old, new = checkout(tmp_path / "old", URL), tmp_path / "new"
    asked(ragmem, old, "Before")
    old.rename(new)
    done = ragmem.run("ask", "After", cwd=new)
    assert (done.code, done.out) == (0, "The answer.\n")
    assert done.err.replace(str(tmp_path), "…") == snapshot(
        "note: This folder is taken for the project that was at …/old: the same remote, and "
        "that folder is gone. Its memory goes on here; `ragmem sessions list --project` shows "
        "its sessions.\n"
    )
    assert ragmem.run("ask", "Later", cwd=new).err == ""
    assert prompts(listed(ragmem, new, "--project")) == {"Before", "After", "Later"}
    # A clone where the old one was is a project of its own.
    asked(ragmem, checkout(old, URL), "Another")
    assert prompts(listed(ragmem, old, "--project")) == {"Another"}


def test_a_repository_without_a_remote_is_known_by_its_first_commit(
    tmp_path: Path, ragmem: Ragmem
) -> None:
    """Also one that had no commit yet when it was met; never a copy beside it."""
    old, new, copy = tmp_path / "shop", tmp_path / "moved" / "shop2", tmp_path / "copy"
    old.mkdir()
    new.parent.mkdir()
    git(old, "init", "-q")
    asked(ragmem, old, "Before")
    git(old, "commit", "-q", "--allow-empty", "-m", "first")
    asked(ragmem, old, "Then")
    shutil.copytree(old, copy)
    assert "first commit" not in ragmem.run("ask", "In the copy", cwd=copy).err
    old.rename(new)
    for _ in range(2):  # what is gone on with stays the folder's last
        done = ragmem.ok("ask", "And", "-c", cwd=new)
        assert f"that was at {old}: the same first commit" in done.err
        assert len(listed(ragmem, new, "--project")) == 2
    done = ragmem.run("ask", "After", cwd=new)
    assert f"that was at {old}: the same first commit, and that folder is gone" in done.err
    assert prompts(listed(ragmem, new, "--project")) == {"Before", "And", "After"}
    assert prompts(listed(ragmem, copy, "--project")) == {"In the copy"}


def test_the_memory_of_a_folder_that_is_gone_is_joined_when_a_person_says_so(
    tmp_path: Path, ragmem: Ragmem
) -> None:
    old, new, other = tmp_path / "shop", tmp_path / "shop2", tmp_path / "garden"
    old.mkdir()
    other.mkdir()
    asked(ragmem, old, "Before")
    asked(ragmem, other, "Ferns")
    old.rename(new)
    code, shown = join(ragmem, new, "y")
    assert code == 0, shown
    assert shown.replace(str(tmp_path), "…").startswith(
        "This project: …/shop2 (0 sessions)\n"
        "Their folder is gone, and may be this one now:\n"
        "  …/shop (1 session)\n"
    )
    asked(ragmem, new, "After")
    assert prompts(listed(ragmem, new, "--project")) == {"Before", "After"}


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Ana", "-c", "user.email=ana@garden.example")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True)


def test_a_chat_names_the_gone_folder_that_its_own_may_have_been(
    tmp_path: Path, ragmem: Ragmem
) -> None:
    """One that is called alike, in the first chat; none that is there, or of another name."""
    shop, barn, there, moved = (tmp_path / name for name in ("shop", "barn", "my-shop", "shop-2"))
    for folder in (shop, barn, there):
        folder.mkdir()
        asked(ragmem, folder, "Before")
    shop.rename(moved)
    barn.rmdir()
    said = chatted(ragmem, moved, "First")
    shown = said.replace(" ", "")  # a row may end within the path
    assert f"{shop}isgone.Ifitisthisonenow,`ragmemsessionslist--join`" in shown
    assert shown.count("isgone") == 1
    assert "is gone" not in chatted(ragmem, moved, "Second")
    other = tmp_path / "mill"
    other.mkdir()
    assert "is gone" not in chatted(ragmem, other, "Elsewhere")


def test_sessions_of_a_renamed_folder_are_found(tmp_path: Path, ragmem: Ragmem) -> None:
    """Nothing but its name tells a folder without a remote: it is said where to look."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    asked(ragmem, old, "Before")
    old.rename(new)
    done = ragmem.run("sessions", "list", cwd=new)
    assert (done.code, done.out) == (0, "")
    assert done.err.replace(str(tmp_path), "…") == snapshot(
        """\
No sessions of …/new.
--project and --all look further; --join brings here those of a folder that is gone.
"""
    )
    (session,) = listed(ragmem, new, "--cwd", str(old))
    assert listed(ragmem, new, "--all") == [session]
    done = ragmem.run("ask", "And?", "-c", cwd=new)
    assert (done.code, "sessions list --all" in done.err) == (2, True)
    assert asked(ragmem, new, "And?", "-r", session["session_id"])["result"] == "The answer."


# --- folders with several names, or strange ones -------------------------------------


NAMES = [
    "Garden", "garden", unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café"),
    "two\nlines", "a\u202eb", "tab\there", b"caf\xe9", b"caf\xe8", "caf\\xe9 ",
]  # fmt: skip


def test_names_that_differ_are_folders_that_differ(tmp_path: Path, ragmem: Ragmem) -> None:
    """Case, NFC and NFD, line ends, bytes that are no UTF-8."""
    folders = [
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), os.fsencode(n)))) for n in NAMES
    ]
    for folder in folders:
        folder.mkdir()
    ids = [asked(ragmem, folder, "First?")["session_id"] for folder in folders]
    projects = set()
    for folder, session_id in zip(folders, ids, strict=True):
        (session,) = listed(ragmem, folder)
        assert session["session_id"] == session_id
        projects.add(session["project_id"])
        assert asked(ragmem, folder, "Again?", "-c")["session_id"] == session_id
        (session,) = listed(ragmem, folder, "--project")
        assert session["session_id"] == session_id
    assert len(projects) == len(NAMES)
    table = ragmem.run("sessions", "list", "--all").out
    assert table.count("\n") == len(NAMES) + 1
    assert "\u202e" not in table


# --- a folder that goes away while one works in it -------------------------------------


def test_a_folder_that_goes_away_in_a_turn(tmp_path: Path) -> None:
    """Tools say so plainly, and the turn is recorded whole."""
    answers = [
        Answer(tools=[Call("run_command", {"command": 'rm -r "$PWD"'})]),
        Answer(tools=[Call("read_file", {"path": "a.py"})]),
        Answer(tools=[Call("list_directory", {"path": "."})]),
        Answer(tools=[Call("grep_files", {"pattern": "x"})]),
        Answer(tools=[Call("glob_files", {"pattern": "*"})]),
        Answer(tools=[Call("create_file", {"path": "b.py", "content": "y"})]),
        Answer(tools=[Call("run_command", {"command": "pwd"})]),
        Answer("The folder is gone."),
    ]
    with LLMServer(answers) as server:
        ragmem = Ragmem(tmp_path, server.env)
        (ragmem.project / "a.py").write_text("x = 1\n")
        # In the sandbox the folder stays.
        ragmem.run("config", "set", "sandbox.mode", "off")
        done = ragmem.run("ask", "Go on", "--yolo", "--output-format", "json")
        assert (done.code, done.json["result"]) == (0, "The folder is gone."), done.err
    (turn,) = ragmem.run(
        "sessions", "show", done.json["session_id"], "--format", "json", cwd=tmp_path
    ).json["turns"]
    assert turn["status"] == "completed"
    first, *others = turn["tool_calls"]
    assert first["success"], first
    for call in others:
        assert not call["success"], call
        said = call["result"]["text"]
        assert "Traceback" not in said
        assert "gone" in said or "does not exist" in said, call
    assert not ragmem.project.exists()


def test_a_command_in_a_folder_that_is_gone(tmp_path: Path, ragmem: Ragmem) -> None:
    """In plain words."""
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    for arguments in (["ask", "What?"], ["sessions", "list"], ["doctor"]):
        done = subprocess.run(
            ["sh", "-c", script, "sh", gone, *COMMAND, *arguments],
            capture_output=True,
            text=True,
            env=ragmem.env,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2
        assert "The current folder no longer exists." in done.stderr
        assert "Traceback" not in done.stderr
        gone.mkdir()

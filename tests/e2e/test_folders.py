"""Folders that move, are joined, have two names or strange ones, or go away: real processes."""

import os
import shutil
import unicodedata
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from ragmem.app import App
from ragmem.config import Config, find_paths
from ragmem.memory.projects import folder_name
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


def prompts(ragmem: Ragmem, folder: Path, *arguments: str) -> set[str]:
    found = ragmem.read("sessions", "list", *(arguments or ["--project"]), cwd=folder)
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
    ragmem.ok("ask", "In one", cwd=one)
    ragmem.ok("ask", "In two", cwd=two)
    code, shown = join(ragmem, two, "n")
    assert code == 2
    assert shown.replace(str(tmp_path), "…") == snapshot(
        """\
This project: …/two (1 session)
Same repository or remote:
  …/one (1 session)
Joining makes them one project, and each recalls the other's sessions.
Join them? [y/N] n
error: Nothing was joined.
Answer y or yes to join them. Run `ragmem sessions list --join` to try again.
"""
    )
    assert prompts(ragmem, two) == {"In two"}
    code, shown = join(ragmem, two, "y")
    assert code == 0, shown
    assert "Undo with `ragmem sessions split`." in " ".join(shown.split())
    assert "Joined: the sessions of both folders now belong to" in shown
    assert prompts(ragmem, two) == {"In one", "In two"}
    ragmem.ok("ask", "In two again", "-c", cwd=two)
    ragmem.ok("ask", "In one anew", cwd=one)
    both = {"In one", "In two again", "In one anew"}
    assert prompts(ragmem, one) == prompts(ragmem, two) == both
    # What goes by the folder still does.
    assert prompts(ragmem, two, "--limit", "9") == {"In two again"}
    code, shown = join(ragmem, two, "y")
    # The terminal's rows end where the folder's name lets them.
    assert (code, "there is no other to join" in " ".join(shown.split())) == (2, True)


def test_the_first_chat_of_a_second_clone_asks_whether_both_are_one_project(
    tmp_path: Path, ragmem: Ragmem
) -> None:
    """Once: whoever says no is not asked again."""
    one, two, three = (checkout(tmp_path / name, URL) for name in ("one", "two", "three"))
    ragmem.ok("ask", "In one", cwd=one)
    for folder, key in ((two, "y"), (three, "n")):
        with PtyChat([*COMMAND, "chat"], cwd=folder, env=ragmem.env) as first:
            first.wait_for_screen(r"Join them into one project\?")
            assert "This folder has the same remote as" in first.text
            first.send(key, shows=r"openai/scripted · \S")
            first.send(f"In {folder.name}\r", ends=r"^The answer\.")
    assert "Join them into one project?" not in chatted(ragmem, three, "In three")
    assert prompts(ragmem, one) == {"In one", "In two"}
    assert prompts(ragmem, three) == {"In three"}


def worktree(main: Path, folder: Path) -> Path:
    """As `git worktree add` leaves it."""
    own = main / ".git" / "worktrees" / folder.name
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    (own / "gitdir").write_text(f"{folder}/.git\n")
    folder.mkdir()
    (folder / ".git").write_text(f"gitdir: {own}\n")
    return folder


def apart(ragmem: Ragmem, tmp_path: Path) -> tuple[Path, Path]:
    """A repository and a worktree of it that has had a memory of its own from before."""
    main, tree = checkout(tmp_path / "main"), checkout(tmp_path / "tree")
    ragmem.ok("ask", "In main", cwd=main)
    ragmem.ok("ask", "In tree", cwd=tree)
    shutil.rmtree(tree)
    return main, worktree(main, tree)


def chatted(ragmem: Ragmem, folder: Path, prompt: str) -> str:
    """What a chat in the folder shows until its first answer."""
    with PtyChat([*COMMAND, "chat"], cwd=folder, env=ragmem.env) as chat:
        chat.wait_for_screen(r"openai/scripted · \S")
        chat.send(f"{prompt}\r", ends=r"^The answer\.")
        return " ".join(chat.text.split())


def test_a_chat_joins_a_worktree_once_and_never_after_it_was_split(
    tmp_path: Path, ragmem: Ragmem
) -> None:
    """It says so in a line, with how to undo it."""
    main, tree = apart(ragmem, tmp_path)
    line = "from now on, they share one memory. `ragmem sessions split` here undoes it."
    assert line in chatted(ragmem, tree, "One")
    assert prompts(ragmem, main) == {"In main", "In tree", "One"}
    assert line not in chatted(ragmem, tree, "Two")

    split = ragmem.ok("sessions", "split", cwd=tree)
    assert split.out == f"{tree} is now a project of its own; 3 sessions moved there from {main}.\n"
    own = {"In tree", "One", "Two"}
    assert (prompts(ragmem, tree), prompts(ragmem, main)) == (own, {"In main"})
    assert ragmem.read("search", "tree", cwd=main) == []
    assert len(ragmem.read("search", "tree", cwd=tree)) > 0
    assert line not in chatted(ragmem, tree, "Three")
    nothing = "is already a project of its own; nothing to split.\n"
    assert ragmem.ok("sessions", "split", str(tree), cwd=main).out == f"{tree} {nothing}"
    assert ragmem.ok("sessions", "split", cwd=main).out == f"{main} {nothing}"

    code, shown = join(ragmem, tree, "y")
    assert code == 0, shown
    assert prompts(ragmem, main) == {"In main", *own, "Three"}
    assert ragmem.refused("sessions", "split", cwd=main) == (
        f"error: {main} is the project that others were joined to.\n"
        f"Split one of the others: `ragmem sessions split {tree}`\n"
    )
    shutil.rmtree(tree)
    ragmem.ok("sessions", "split", str(tree), cwd=main)
    assert prompts(ragmem, main) == {"In main"}


# --- folders that move -------------------------------------------------------------


def test_a_moved_checkout_says_so_until_a_session_is_begun_there(
    tmp_path: Path, ragmem: Ragmem
) -> None:
    """The same remote, the old folder gone; what is gone on with stays the folder's last."""
    old, new = checkout(tmp_path / "old", URL), tmp_path / "new"
    ragmem.ok("ask", "Before", cwd=old)
    old.rename(new)
    said = snapshot(
        "note: This folder is treated as the project that was at …/old: it has the same remote, "
        "and that folder no longer exists. Its memory continues here; `ragmem sessions list "
        "--project` shows its sessions.\n"
    )
    for asked in (["And", "-c"], ["Then", "-c"], ["After"]):
        assert ragmem.ok("ask", *asked, cwd=new).err.replace(str(tmp_path), "…") == said
    assert ragmem.ok("ask", "Later", cwd=new).err == ""
    assert prompts(ragmem, new) == {"Then", "After", "Later"}
    # A clone where the old one was is a project of its own.
    ragmem.ok("ask", "Another", cwd=checkout(old, URL))
    assert prompts(ragmem, old) == {"Another"}


async def test_a_chat_in_a_moved_checkout_says_so_once(tmp_path: Path, ragmem: Ragmem) -> None:
    """Not again where it looks for the last session."""
    old, new = checkout(tmp_path / "old", URL), tmp_path / "new"
    ragmem.ok("ask", "Before", cwd=old)
    old.rename(new)
    async with App(Config(), find_paths({"RAGMEM_HOME": str(ragmem.home)}), cwd=new) as app:
        await app.start_session()
        assert [f"was at {old}:" in notice for notice in app.notices()] == [True]
        assert await app.continue_session(chats=True)
        assert app.notices() == []


def test_the_memory_of_a_folder_that_is_gone_is_joined_when_a_person_says_so(
    tmp_path: Path, ragmem: Ragmem
) -> None:
    old, new, other = tmp_path / "shop", tmp_path / "shop2", tmp_path / "garden"
    for folder, prompt in ((old, "Before"), (other, "Ferns")):
        folder.mkdir()
        ragmem.ok("ask", prompt, cwd=folder)
    old.rename(new)
    code, shown = join(ragmem, new, "y")
    assert code == 0, shown
    assert shown.replace(str(tmp_path), "…").startswith(
        "This project: …/shop2 (0 sessions)\n"
        "Folder gone (this may be its new location):\n"
        "  …/shop (1 session)\n"
    )
    ragmem.ok("ask", "After", cwd=new)
    assert prompts(ragmem, new) == {"Before", "After"}


def test_a_chat_names_the_gone_folder_that_its_own_may_have_been(
    tmp_path: Path, ragmem: Ragmem
) -> None:
    """One that is called alike, in the first chat; none that is there, or of another name."""
    shop, barn, there, moved = (tmp_path / name for name in ("shop", "barn", "my-shop", "shop-2"))
    for folder in (shop, barn, there):
        folder.mkdir()
        ragmem.ok("ask", "Before", cwd=folder)
    shop.rename(moved)
    barn.rmdir()
    said = chatted(ragmem, moved, "First")
    shown = said.replace(" ", "")  # a row may end within the path
    assert f"{shop}nolongerexists.Ifthisiswhereitmoved,`ragmemsessionslist" in shown
    assert shown.count("nolongerexists") == 1
    assert "no longer exists" not in chatted(ragmem, moved, "Second")


def test_sessions_of_a_renamed_folder_are_found(tmp_path: Path, ragmem: Ragmem) -> None:
    """Nothing but its name tells a folder without a remote: it is said where to look."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    ragmem.ok("ask", "Before", cwd=old)
    old.rename(new)
    done = ragmem.ok("sessions", "list", cwd=new)
    assert (done.out, done.err.replace(str(tmp_path), "…")) == (
        "",
        "No sessions in …/new.\n"
        "Use --project or --all to list more; --join moves sessions here from "
        "a folder that is gone.\n",
    )
    (session,) = ragmem.listed("--cwd", str(old), cwd=new)
    assert ragmem.listed("--all", cwd=new) == [session]
    assert "sessions list --all" in ragmem.refused("ask", "And?", "-c", cwd=new)
    assert ragmem.session_of("And?", "-r", session, cwd=new) == session


# --- folders with several names, or strange ones -------------------------------------


def test_names_that_differ_are_folders_that_differ(tmp_path: Path, ragmem: Ragmem) -> None:
    """Case, NFC and NFD, line ends, bytes that are no UTF-8."""
    names = [
        "Garden", "garden", unicodedata.normalize("NFC", "café"),
        unicodedata.normalize("NFD", "café"), "two\nlines", "a\u202eb", b"caf\xe9", b"caf\xe8",
        "caf\\xe9", "caf\\x5cxe9",
    ]  # fmt: skip
    folders = [
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), os.fsencode(n)))) for n in names
    ]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "own.py").write_text(f"def rake_{number}():\n    return {number}\n")
    ids = [ragmem.session_of("First?", cwd=folder) for folder in folders]
    assert len({session["project_id"] for session in ragmem.sessions()}) == len(names)
    for folder, session_id in zip(folders, ids, strict=True):
        assert ragmem.session_of("Again?", "-c", cwd=folder) == session_id
        ragmem.ok("index", cwd=folder)
    for number, folder in enumerate(folders):
        (found,) = ragmem.read("search", "--code", "rake", cwd=folder)
        assert found["name"] == f"rake_{number}"
        assert ragmem.read("index", "--status", cwd=folder)["path"] == folder_name(folder)
    table = ragmem.ok("sessions", "list", "--all").out
    assert table.count("\n") == len(names) + 1
    assert "\u202e" not in table


# --- a folder that goes away while one works in it -------------------------------------


def test_a_folder_that_goes_away_in_a_turn(
    ragmem: Ragmem, server: LLMServer, tmp_path: Path
) -> None:
    """Tools say so plainly, and the turn is recorded whole."""
    calls = [
        Call("run_command", {"command": 'rm -r "$PWD"'}),
        Call("read_file", {"path": "a.py"}),
        Call("list_directory", {"path": "."}),
        Call("grep_files", {"pattern": "x"}),
        Call("glob_files", {"pattern": "*"}),
        Call("create_file", {"path": "b.py", "content": "y"}),
        Call("run_command", {"command": "pwd"}),
    ]
    server.extend(*(Answer(tools=[call]) for call in calls))
    (ragmem.project / "a.py").write_text("x = 1\n")
    # In the sandbox the folder stays.
    ragmem.ok("config", "set", "sandbox.mode", "off")
    done = ragmem.asked("Go on", "--yolo")
    assert done["result"] == "The answer."
    (turn,) = ragmem.read("sessions", "show", done["session_id"], cwd=tmp_path)["turns"]
    assert turn["status"] == "completed"
    first, *others = turn["tool_calls"]
    assert first["success"], first
    for call in others:
        assert not call["success"], call
        said = call["result"]["text"]
        assert "Traceback" not in said
        assert "no longer exists" in said or "does not exist" in said, call
    assert not ragmem.project.exists()


def test_a_session_of_a_folder_that_cannot_be_looked_at_goes_on_elsewhere(
    ragmem: Ragmem, tmp_path: Path
) -> None:
    """As on a disk that is away, or below a closed folder: `Path.is_dir` raises there."""
    below = tmp_path / "far" / "sub"
    below.mkdir(parents=True)
    session = ragmem.ok("ask", "Hello", "--output-format", "json", cwd=below).json["session_id"]
    (tmp_path / "far").rename(tmp_path / "moved")
    (tmp_path / "far").symlink_to("a" * 300)
    assert ragmem.ok("ask", "And now?", "-r", session).out == "The answer.\n"
    far = str(below)
    assert f"{far} is not a folder" in ragmem.refused("ask", "Hello", "--add-dir", far)
    assert f"{far} is not a folder" in ragmem.refused("mcp", "--project", far)


def test_a_command_in_a_folder_that_is_gone(tmp_path: Path, ragmem: Ragmem) -> None:
    """In plain words."""
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    for arguments in (["ask", "What?"], ["doctor"]):
        gone = tmp_path / "gone"
        gone.mkdir()
        told = ragmem.refused(*arguments, through=["sh", "-c", script, "sh", gone])
        assert "The current folder no longer exists." in told

"""Files taken back to a turn: what edits recorded, and what is done about what came between."""

import hashlib
import json
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ragmem import redact
from ragmem.memory.files import FileChange, Rewind, rewind_to
from ragmem.own_tools import OWN_TOOLS
from ragmem.records import ToolCall, Turn
from ragmem.tools.rewind import Preimages, Restored, Restorer
from ragmem.tools.workspace import Workspace
from tests.memory.builders import a_call, a_turn
from tests.tools.conftest import Desk, recorded


class Story:
    """Turns with real edits of real files, and the way back."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.turns: list[Turn] = []
        self.doubts: list[tuple[str, str]] = []
        self.says_yes = False
        self.meanwhile: Callable[[], object] = lambda: None
        self.workspace = desk.workspace
        self.preimages = Preimages(desk.home / "data" / "preimages")
        self.done: list[Restored] = []

    async def turn(self, *uses: tuple[str, dict[str, Any]]) -> None:
        calls = []
        for order, (name, arguments) in enumerate(uses):
            outcome = await self.desk.call(name, **arguments)
            call = recorded(name, outcome, order)
            calls.append(msgspec.structs.replace(call, arguments=json.dumps(arguments)))
        self.add(*calls)

    def add(self, *calls: ToolCall) -> None:
        self.turns.append(a_turn(len(self.turns) + 1, calls=calls))

    async def back_to(self, turn_index: int) -> list[tuple[str, str]]:
        self.done = await self.restore(*rewind_to(self.turns, turn_index).changes)
        return [(each.path, each.outcome) for each in self.done]

    async def restore(self, *changes: FileChange) -> list[Restored]:
        return await Restorer(self.workspace, self.preimages).restore(changes, self._confirm)

    async def _confirm(self, path: str, doubt: str) -> bool:
        self.doubts.append((path, doubt))
        self.meanwhile()
        return self.says_yes


@pytest.fixture
def story(make_desk: Callable[..., Desk]) -> Story:
    return Story(make_desk(mode="bypassPermissions"))


def read(path: str) -> tuple[str, dict[str, Any]]:
    return "read_file", {"path": path}


def edit(path: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    return "edit_file", {"path": path, "old": old, "new": new}


def _forged(path: str, before: str | None) -> FileChange:
    return FileChange(path=path, before=before, after=hashlib.sha256(b"two").hexdigest())


def create(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "create_file", {"path": path, "content": content}


async def test_edits_since_a_turn_are_taken_back_byte_for_byte(story: Story) -> None:
    """Through several edits of a file, whose mode stays; a file that was made goes."""
    file = story.desk.file("a.py", b"caf\xe9\r\none\r\n")
    file.chmod(0o750)
    await story.turn(read("a.py"), edit("a.py", "one", "two"))
    after_one = file.read_bytes()
    await story.turn(edit("a.py", "two", "three"), edit("a.py", "three", "four"))
    await story.turn(create("new/b.py", "made"), edit("a.py", "four", "five"))

    assert await story.back_to(1) == [("a.py", "restored"), ("new/b.py", "removed")]
    assert file.read_bytes() == after_one
    assert stat.S_IMODE(file.stat().st_mode) == 0o750
    assert not (story.desk.cwd / "new" / "b.py").exists()
    assert story.doubts == []
    assert await story.back_to(0) == [("a.py", "kept"), ("new/b.py", "as_before")]
    story.says_yes = True
    assert await story.back_to(0) == [("a.py", "restored"), ("new/b.py", "as_before")]
    assert file.read_bytes() == b"caf\xe9\r\none\r\n"


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o644])
async def test_a_file_that_a_command_has_deleted_comes_back_with_its_mode(
    story: Story, mode: int, request: pytest.FixtureRequest
) -> None:
    """Executable as it was, and no more open, whatever new files get."""
    request.addfinalizer(partial(os.umask, os.umask(0o002)))
    file = story.desk.file("run.sh", "echo one")
    file.chmod(mode)
    await story.turn(read("run.sh"), edit("run.sh", "one", "two"))
    file.unlink()
    story.says_yes = True
    assert await story.back_to(0) == [("run.sh", "restored")]
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("echo one", mode)


async def test_what_is_overwritten_or_removed_is_kept_first(story: Story) -> None:
    story.desk.file("a.py", "one")
    await story.turn(read("a.py"), edit("a.py", "one", "two"), create("b.py", "made"))
    await story.back_to(0)
    kept = [each.kept for each in story.done if each.kept]
    assert [file.read_text() for file in kept] == ["two", "made"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept} == {0o600}


@pytest.mark.parametrize(
    ("left", "doubt"),
    [("mine", "it has changed since this session's last edit"), ("", "it no longer exists")],
)
async def test_no_later_change_is_overwritten_unasked(story: Story, left: str, doubt: str) -> None:
    """The person is asked for each such file, and told why; the others go back."""
    mine, other = story.desk.file("a.py", "one"), story.desk.file("b.py", "one")
    await story.turn(read("a.py"), edit("a.py", "one", "two"))
    await story.turn(read("b.py"), edit("b.py", "one", "two"))
    mine.write_text(left)
    if not left:
        mine.unlink()
    assert await story.back_to(0) == [("a.py", "kept"), ("b.py", "restored")]
    assert story.doubts == [("a.py", doubt)]
    assert other.read_text() == "one"
    assert mine.exists() == bool(left)
    assert not left or mine.read_text() == left
    story.says_yes = True
    assert await story.back_to(0) == [("a.py", "restored"), ("b.py", "as_before")]
    assert mine.read_text() == "one"


async def test_what_others_wrote_between_two_edits_is_not_lost_unasked(story: Story) -> None:
    file = story.desk.file("a.py", "one")
    await story.turn(read("a.py"), edit("a.py", "one", "two"))
    file.write_text("two, and mine")
    await story.turn(read("a.py"), edit("a.py", "two", "three"))
    assert await story.back_to(0) == [("a.py", "kept")]
    assert story.doubts == [("a.py", "others also changed it between this session's edits")]
    assert await story.back_to(1) == [("a.py", "restored")]
    assert file.read_text() == "two, and mine"


async def test_a_file_that_changes_while_the_person_thinks_stays(story: Story) -> None:
    file = story.desk.file("a.py", "one")
    await story.turn(read("a.py"), edit("a.py", "one", "two"))
    file.write_text("mine")
    story.says_yes = True
    story.meanwhile = lambda: file.write_text("mine, longer")
    assert await story.back_to(0) == [("a.py", "failed")]
    assert file.read_text() == "mine, longer"


async def test_an_edit_that_was_cut_off_is_no_ground_to_go_back_on(story: Story) -> None:
    """Whether it was made is not known: the file is left as it is, and it is said."""
    file = story.desk.file("a.py", "one")
    arguments = '{"path": "./a.py", "content": "?"}'
    unfinished = a_call(tool_name="write_file", arguments=arguments, result="", success=False)
    story.add(unfinished)
    file.write_text("?")
    await story.turn(read("a.py"), edit("a.py", "?", "two"))
    assert await story.back_to(0) == [("a.py", "failed")]
    assert "interrupted" in story.done[0].note
    assert await story.back_to(1) == [("a.py", "restored")]
    # After an edit that is known the file tells: here it was not made.
    story.add(unfinished)
    await story.turn(read("a.py"), edit("a.py", "?", "three"))
    story.turns = story.turns[1:]
    assert rewind_to(story.turns, 1).changes[0].cut_off is False


async def test_commands_are_counted_as_what_is_not_taken_back(story: Story) -> None:
    """Also those that failed, but not those that never ran; and tools of other agents."""
    await story.turn(("run_command", {"command": "true"}))
    await story.turn(("run_command", {"command": "true"}), ("run_command", {"command": "false"}))
    foreign = recorded("Edit", await story.desk.do("list_directory", path="."))
    story.add(foreign, msgspec.structs.replace(foreign, tool_name="write_file"))
    rewind = rewind_to(story.turns, 1)
    assert (rewind.command_count, rewind.other_count, rewind.changes) == (2, 2, ())


async def test_a_command_refused_by_plan_mode_has_not_run(make_desk: Callable[..., Desk]) -> None:
    story = Story(make_desk(mode="plan"))
    await story.turn(("run_command", {"command": "make all"}))
    assert rewind_to(story.turns, 0) == Rewind(turn_index=0)


@pytest.mark.parametrize(
    ("error", "count"),
    [
        ("sandbox.mode is `required`, and commands run only in it: not run.", 0),
        ("There is no tool 'run_command'. Available tools: none.", 0),
        ("Stopped by the user.\nrm: not allowed", 1),
        ("Stopped by the user.\nmake: nothing was done", 1),
        ("Stopped after 60 s. Make it do less.\nlint: was not allowed here", 1),
        ("The process that watches the command was killed.\nnothing was done", 1),
        ("Exit code 1 remote: You are not allowed to push", 1),
    ],
)
def test_a_command_counts_as_run_unless_refused(story: Story, error: str, count: int) -> None:
    """What a stopped one printed is no refusal."""
    result = json.dumps({"text": error})
    story.add(a_call(tool_name="run_command", result=result, success=False, error=error))
    assert rewind_to(story.turns, 0).command_count == count


async def test_what_failed_was_refused_or_changes_no_file_leaves_nothing_to_be_taken_back(
    make_desk: Callable[..., Desk],
) -> None:
    story = Story(make_desk())
    file = story.desk.file("a.py", "one")
    await story.turn(read("a.py"), edit("a.py", "missing", "two"))
    story.desk.deny("no")
    await story.turn(("run_command", {"command": "true"}), create("b.py", "made"))
    call = recorded("read_file", await story.desk.do("list_directory", path="."))
    for name, tool in OWN_TOOLS.items():
        if tool.effect in ("read", "memory"):
            story.add(msgspec.structs.replace(call, tool_name=name))
    assert rewind_to(story.turns, 0) == Rewind(turn_index=0)
    assert await story.back_to(0) == []
    assert file.read_text() == "one"


@pytest.mark.parametrize("path", ["{outside}/x", "../x", "{private}/config.toml", "link/x"])
async def test_nothing_outside_a_folder_is_touched(story: Story, tmp_path: Path, path: str) -> None:
    """A recorded path, which may come from an imported session, leads nowhere else."""
    outside = tmp_path / "outside"
    outside.mkdir()
    story.desk.home.mkdir(exist_ok=True)
    os.symlink(outside, story.desk.cwd / "link")
    where = path.format(outside=outside, private=story.desk.home)
    target = story.desk.cwd / where
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("two")
    for before in (story.preimages.keep(b"one"), None):
        (done,) = await story.restore(_forged(where, before))
        assert done.outcome == "failed"
    assert target.read_text() == "two"
    assert story.doubts == []


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "", "0" * 64, "A" * 64])
async def test_a_pre_image_that_is_not_there_is_said(story: Story, name: str) -> None:
    """Its name is a hash and nothing else: no recorded word reads another file."""
    file = story.desk.file("a.py", "two")
    (done,) = await story.restore(_forged("a.py", name))
    assert done.outcome == "failed"
    assert "its previous content" in done.note
    assert file.read_text() == "two"


async def test_an_added_folder_is_taken_back_where_it_is_added_again(
    make_desk: Callable[..., Desk], tmp_path: Path
) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    story = Story(make_desk(mode="bypassPermissions", extra=(extra,)))
    (extra / "a.py").write_text("one")
    where = str(extra / "a.py")
    await story.turn(read(where), edit(where, "one", "two"))
    story.workspace = Workspace(story.desk.cwd)
    assert await story.back_to(0) == [(where, "failed")]
    assert "--add-dir" in story.done[0].note
    story.workspace = story.desk.workspace
    assert await story.back_to(0) == [(where, "restored")]
    assert (extra / "a.py").read_text() == "one"


# --- files with secrets ----------------------------------------------------------------------

API_KEY, OTHER_KEY = "ghp_" + "a1B2" * 9, "ghp_" + "c3D4" * 9
PEM = "-----BEGIN PRIVATE KEY-----\n" + ("MIIEvQIBADANBgkq" * 4 + "\n") * 3
PEM += "-----END PRIVATE KEY-----\n"
ENV = f"# mine\r\nTWO={OTHER_KEY}\nMODE=old\nONE={API_KEY} {API_KEY}\n{PEM}"


def holding(folder: Path, secret: str) -> list[Path]:
    return [at for at in folder.rglob("*") if at.is_file() and secret.encode() in _plain(at)]


def _plain(file: Path) -> bytes:
    return file.read_bytes().replace(b"\0", b"").replace(b"\\n", b"\n")


@pytest.mark.parametrize(
    "content",
    [
        ENV.encode(),
        ENV.encode("utf-16"),
        ENV.encode() + b"caf\xe9\n",
        ENV.encode() + b"\xc3\xa9\xe9",
    ],
    ids=["utf-8", "utf-16", "latin-1", "mixed"],
)
async def test_a_file_with_secrets_comes_back_without_a_copy(story: Story, content: bytes) -> None:
    file = story.desk.file("settings", content)
    await story.turn(read("settings"), edit("settings", "MODE=old", "MODE=new"))
    lines = f"TWO={OTHER_KEY}\nMODE=new\nONE={API_KEY} {API_KEY}"
    moved = f"MODE=new\nKEY={'ghp_' + 'e5F6' * 9}\nONE={API_KEY} {API_KEY}\nTWO={OTHER_KEY}"
    await story.turn(edit("settings", lines, moved))
    for secret in (API_KEY, OTHER_KEY, PEM.splitlines()[1]):
        assert holding(story.desk.home, secret) == []
    assert await story.back_to(0) == [("settings", "restored")]
    assert file.read_bytes() == content
    for secret in (API_KEY, OTHER_KEY, "e5F6e5F6", PEM.splitlines()[1]):
        assert holding(story.desk.home, secret) == []
    assert story.done[0].kept
    assert story.done[0].kept.suffix == ".parts"


async def test_a_file_whose_secret_is_gone_stays_and_it_is_said_why(story: Story) -> None:
    """Also where the file itself is gone; and the others go back, a secret by its kind as well."""
    file, other = story.desk.file(".env", f"KEY={API_KEY}\n"), story.desk.file("a.py", "one")
    renamed = story.desk.file("b.env", f"KEY={API_KEY}\n")
    await story.turn(read(".env"), edit(".env", API_KEY, OTHER_KEY))
    await story.turn(read("a.py"), edit("a.py", "one", "two"))
    newer = f"NEW=ghp_{'e5F6' * 9}\nTOKEN="
    await story.turn(read("b.env"), edit("b.env", "KEY=", newer))
    said = "had a secret (GitHub token) that is no longer in the file"
    assert await story.back_to(0) == [
        (".env", "failed"), ("a.py", "restored"), ("b.env", "restored"),
    ]  # fmt: skip
    assert said in story.done[0].note
    assert (file.read_text(), other.read_text()) == (f"KEY={OTHER_KEY}\n", "one")
    assert renamed.read_text() == f"KEY={API_KEY}\n"
    file.unlink()
    assert (await story.back_to(0))[:2] == [(".env", "failed"), ("a.py", "as_before")]
    assert said in story.done[0].note
    # The person put it back by hand.
    file.write_text(f"KEY={API_KEY}\n")
    assert (await story.back_to(0))[:2] == [(".env", "as_before"), ("a.py", "as_before")]


async def test_what_can_not_be_taken_apart_is_left_out_and_it_is_said(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redact, "_known", {})
    redact.know({"KEYS[0]": "marigold-7731"})
    file = story.desk.file("a.py", "one marigold-7731")
    await story.turn(read("a.py"), edit("a.py", "one", "two"))
    assert holding(story.desk.home, "marigold-7731") == []
    assert await story.back_to(0) == [("a.py", "failed")]
    assert "the secrets in it could not be removed" in story.done[0].note
    assert file.read_text() == "two marigold-7731"


async def test_copies_that_an_earlier_version_kept_whole_lose_their_secrets(story: Story) -> None:
    folder = story.desk.home / "data" / "preimages"
    content = f"KEY={API_KEY}\n".encode()
    name = hashlib.sha256(content).hexdigest()
    (folder / name[:2]).mkdir(parents=True)
    (folder / name[:2] / name).write_bytes(content)
    preimages = Preimages(folder)
    plain = preimages.keep(b"one")
    assert preimages.load(name) == content
    preimages.look_through()
    assert holding(folder, API_KEY) == []
    assert preimages.load(name, b"mine\n" + content) == content
    assert preimages.load(plain) == b"one"

"""The judge of the crash tests, judged: it finds each kind of damage, and none where none is."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ragmem.store.sqlite import SQLiteStore
from tests.crash.check import check, check_request
from tests.crash.scenario import Said, World, model


class Kept(msgspec.Struct, frozen=True):
    """What two jobs and a question have left."""

    folder: Path
    said: list[Said]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Made once; each test breaks a copy."""
    folder = tmp_path_factory.mktemp("kept")
    with model() as server:
        world = World(folder / "world", server)
        for prompt in ("Do job 1", "Do job 2", "What happened?"):
            run = world.ask(prompt)
            assert run.wait() == 0
            world.heard(run, prompt)
        for _ in range(9):
            # On a busy machine the last process may have left its own last writes to the next one.
            if world.left():
                assert world.ragmem("sessions", "list").wait() == 0
        assert not world.left()
        yield Kept(world.folder, world.said)


Break = Callable[[sqlite3.Connection, Path], object]


async def _judged(kept: Kept, folder: Path, damage: Break, said: list[Said]) -> list[str]:
    world = folder / "world"
    shutil.copytree(kept.folder, world)
    data = world / "home" / "data"
    with sqlite3.connect(data / "memory.db") as connection:
        damage(connection, world / "project")
    connection.close()
    store = await SQLiteStore.open(data / "memory.db", locks_dir=data / "locks")
    try:
        return await check(store, said, world / "project")
    finally:
        await store.aclose()


async def test_nothing_is_wrong_with_what_is_whole(kept: Kept, tmp_path: Path) -> None:
    assert [each.phase for each in kept.said] == ["answered"] * 3
    assert [len(each.calls) for each in kept.said] == [5, 5, 0]
    assert await _judged(kept, tmp_path, lambda _, __: None, kept.said) == []


def _sql(*statements: str) -> Break:
    def damage(connection: sqlite3.Connection, _: Path) -> None:
        for statement in statements:
            cursor = connection.execute(statement)
            assert cursor.rowcount > 0, statement

    return damage


def _file(name: str, change: Callable[[str], str | None]) -> Break:
    def damage(_: sqlite3.Connection, project: Path) -> None:
        file = project / name
        changed = change(file.read_text() if file.exists() else "")
        if changed is None:
            file.unlink()
        else:
            file.write_text(changed)

    return damage


_JOB_2 = "(SELECT turn_id FROM turns WHERE user_message = 'Do job 2')"
_CALL = f"turn_id IN {_JOB_2} AND tool_name"
_LAST = "user_message = 'What happened?'"
_COPIED_TURN = "session_id, 4, status, char_count, owner_id, started_at, finished_at, model, usage"

_DAMAGES: dict[str, tuple[str, Break]] = {
    "a lost turn": (
        "lost: the turn 'What happened?' that was accepted",
        _sql(
            f"DELETE FROM turns WHERE {_LAST}",
            "UPDATE sessions SET turn_count = 2, completed_count = 2",
        ),
    ),
    "a gap": ("turns are counted from 1 without gaps", _sql(f"DELETE FROM turns WHERE {_LAST}")),
    "a gap, by its indexes": (
        "turns are counted [1, 2, 9]",
        _sql(f"UPDATE turns SET turn_index = 9 WHERE {_LAST}"),
    ),
    "a turn said twice": (
        "'What happened?' stands 2 times",
        _sql(
            "INSERT INTO turns (turn_id, session_id, turn_index, status, char_count, owner_id,"
            " started_at, finished_at, model, usage, user_message, assistant_message)"
            f" SELECT 'another', {_COPIED_TURN}, user_message, assistant_message"
            f" FROM turns WHERE {_LAST}"
        ),
    ),
    "another question": (
        "changed: 'What happened?' is 'What?', 3th",
        _sql(f"UPDATE turns SET user_message = 'What?' WHERE {_LAST}"),
    ),
    "a lost answer": (
        "lost: the answer to 'What happened?'",
        _sql(f"UPDATE turns SET assistant_message = '' WHERE {_LAST}"),
    ),
    "an answer cut short": (
        "half: 'Do job 2' is completed with 'Job'",
        _sql(
            f"UPDATE turns SET assistant_message = 'Job', char_count = 11 WHERE turn_id IN {_JOB_2}"
        ),
    ),
    "an answer taken back": (
        "'What happened?' was answered and is interrupted",
        _sql(f"UPDATE turns SET status = 'interrupted' WHERE {_LAST}"),
    ),
    "a turn that runs on": (
        "1 turns run, though their processes are dead",
        _sql(f"UPDATE turns SET status = 'running', finished_at = NULL WHERE {_LAST}"),
    ),
    "an end without a time": (
        "half: 'What happened?' was interrupted, and nobody knows when",
        _sql(f"UPDATE turns SET status = 'interrupted', finished_at = NULL WHERE {_LAST}"),
    ),
    "a lost call": (
        "lost: a tool call of 'Do job 2' that was shown",
        _sql(
            "DELETE FROM file_accesses",
            f"DELETE FROM tool_calls WHERE {_CALL} = 'grep_files'",
        ),
    ),
    "a result that changed": (
        "changed: what run_command of 'Do job 2' gave",
        _sql(f"""UPDATE tool_calls SET result = '{{"text": "x"}}' WHERE {_CALL} = 'run_command'"""),
    ),
    "a lost result": (
        "half: 'Do job 2' is completed, a call of it is not",
        _sql(f"UPDATE tool_calls SET result = '' WHERE {_CALL} = 'run_command'"),
    ),
    "calls in one place": (
        "calls of 'Do job 2' stand in the order",
        _sql(f"""UPDATE tool_calls SET "order" = 1 WHERE {_CALL} = 'run_command'"""),
    ),
    "a call of no turn": (
        "store check: what is referred to exists",
        _sql("UPDATE tool_calls SET turn_id = 'nobody' WHERE tool_name = 'grep_files'"),
    ),
    "two sessions": (
        "2 sessions, where there should be 1",
        _sql(
            "INSERT INTO sessions (session_id, cwd, project_id, project_path, title, title_key,"
            " tags, status, started_at, updated_at, last_activity_at, turn_count)"
            " SELECT 'other', cwd, project_id, project_path, title, title_key, tags, status,"
            " started_at, updated_at, last_activity_at, 0 FROM sessions"
        ),
    ),
    "an effect twice": (
        "the command of job 2 ran 2 times",
        _file("effects.txt", lambda text: text + "2\n"),
    ),
    "an effect that nobody knows": (
        "the command of job 7 ran, and nobody knows",
        _file("effects.txt", lambda text: text + "7\n"),
    ),
    "an effect that did not happen": (
        "the command of job 2 is said to have run, and did not",
        _file("effects.txt", lambda _: "1\n"),
    ),
    "half a file": (
        "the edited file is neither old nor new: 'VALUE ='",
        _file("a.py", lambda _: "VALUE ="),
    ),
    "a file of another": (
        "the edited file is neither old nor new: 'VALUE = 9",
        _file("a.py", lambda _: "VALUE = 9\n"),
    ),
    "an edit undone": (
        "the edit of job 2 is said to be done, and is not",
        _file("a.py", lambda _: "VALUE = 1\n"),
    ),
    "half a new file": (
        "notes-2.txt is written by half",
        _file("notes-2.txt", lambda text: text[:100]),
    ),
    "a lost new file": (
        "notes-2.txt is said to be written, and is not there",
        _file("notes-2.txt", lambda _: None),
    ),
    "a new file that nobody knows": (
        "notes-2.txt was written, and nobody knows",
        _sql(
            "DELETE FROM file_accesses",
            f"DELETE FROM tool_calls WHERE {_CALL} = 'create_file'",
        ),
    ),
    "litter": (
        "2 drafts of one file are left",
        lambda _, project: [(project / f".ragmem-{n}").touch() for n in (1, 2)],
    ),
}


@pytest.mark.parametrize("name", _DAMAGES)
async def test_each_damage_is_found(kept: Kept, tmp_path: Path, name: str) -> None:
    expected, damage = _DAMAGES[name]
    found = await _judged(kept, tmp_path, damage, kept.said)
    assert any(expected in each for each in found), found


async def test_what_was_shown_but_not_kept_is_found(kept: Kept, tmp_path: Path) -> None:
    more = msgspec.structs.replace(kept.said[2], turn_id="gone", turn_index=4)
    found = await _judged(kept, tmp_path, lambda _, __: None, [*kept.said, more])
    assert found == ["lost: the turn 'What happened?' that was accepted"]
    unsure = msgspec.structs.replace(more, durable=False)
    shutil.rmtree(tmp_path / "world")
    assert await _judged(kept, tmp_path, lambda _, __: None, [*kept.said, unsure]) == []


def _use(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": each} for each in ids]}


def _result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": ""}


_USER, _ASSISTANT = {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}
_SYSTEM = {"role": "system", "content": "S"}


def test_a_valid_request() -> None:
    turn = [_USER, _use("1", "2"), _result("2"), _result("1"), _use("3"), _result("3"), _ASSISTANT]
    assert check_request([_SYSTEM, *turn, _USER]) == []
    assert check_request([_SYSTEM, _USER, _use("1"), _result("1")]) == []


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        ([_USER, _use("1"), _USER], "1 calls before message 2 have no answer"),
        ([_USER, _use("1", "2"), _result("1"), _ASSISTANT], "1 calls before message 3"),
        ([_USER, _use("1")], "1 calls at the end have no answer"),
        ([_USER, _result("1")], "message 1 answers a call that does not wait for one"),
        ([_USER, _use("1"), _result("1"), _result("1")], "message 3 answers a call"),
        ([_USER, _use("1", "1"), _result("1"), _result("1")], "message 1 has two calls of one id"),
        ([_USER, _USER], "messages 0 and 1 are both the user's"),
        ([_USER, _ASSISTANT, _ASSISTANT, _USER], "messages 1 and 2 are both the assistant's"),
        ([_USER, _ASSISTANT, _SYSTEM, _USER], "message 2 is the system's"),
        ([_USER, _ASSISTANT], "the model speaks last"),
        ([], "the model speaks last"),
    ],
)
def test_requests_that_a_provider_refuses(messages: list[dict[str, Any]], wrong: str) -> None:
    assert any(wrong in each for each in check_request(messages))

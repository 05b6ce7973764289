"""Sessions of opencode, Gemini CLI, kimi-cli, Kimi Code and mistral-vibe become turns."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, strategies as st

from ragmem.importers import AgentName, FoundFile, Outcome, Tally
from ragmem.importers.importer import AGENTS, find_files
from ragmem.memory.turns import prompts_of
from ragmem.store import Archive
from tests.importers.reading import FIXTURES, NOW, Read, lines
from tests.importers.test_importing import states, taken
from tests.importers.test_mutations import MANY, _change, _check

GARDEN = "/home/ana/garden"
MS = 1_780_000_000_000
"""In May 2026."""
EXPECTED = [
    {
        "user": "Which ferns like shade?",
        "calls": [("ferns.txt", "lady fern: shade", False)],
        "files": [f"read {GARDEN}/ferns.txt"],
        "assistant": "The lady fern.",
        "reasoning": "The list will tell.",
        "status": "completed",
    },
    {
        "user": "Delete the rest.",
        "calls": [("rm -r .", "not allowed", True)],
        "files": [],
        "assistant": "I may not.",
        "reasoning": None,
        "status": "completed",
    },
]
"""Of each agent the same conversation."""


def written(file: Path, content: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
    return file


def said(read: Read) -> list[dict[str, Any]]:
    """As `EXPECTED` has it: of each call the first argument, its result and whether it failed."""
    return [
        {
            "user": put.turn.user_message,
            "calls": [
                (
                    Path(next(iter(json.loads(call.arguments).values()))).name,
                    json.loads(call.result)["text"],
                    not call.success,
                )
                for call in put.turn.tool_calls
            ],
            "files": [
                f"{each.access_type} {each.path}"
                for found in put.accesses.values()
                for each in found
            ],
            "assistant": put.turn.assistant_message,
            "reasoning": put.turn.reasoning,
            "status": put.turn.status,
        }
        for put in read.puts
    ]


def session_of(name: str) -> list[Any]:
    """The records of the conversation as this agent keeps them."""
    file = FIXTURES / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


async def came(store: Archive, path: Path, name: AgentName) -> list[Outcome]:
    """Import all sessions under the path; what became of those that are the person's."""
    return [each for each in await taken(store, path, name) if each.session_id]


# --- where each keeps it ---------------------------------------------------------


@contextmanager
def changing(file: Path) -> Iterator[apsw.Connection]:
    """A database that is opened, changed in one transaction and closed."""
    db = apsw.Connection(str(file))
    db.execute("PRAGMA journal_mode = WAL")
    with db:
        yield db
    db.close()


def insert(db: apsw.Connection, table: str, *values: object) -> None:
    """A row of all the columns of a table; objects as JSON."""
    row = [json.dumps(value) if isinstance(value, dict) else value for value in values]
    db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def opencode_database(home: Path, *, title: str = "Ferns") -> Path:
    file = home / "opencode.db"
    home.mkdir(parents=True, exist_ok=True)
    with changing(file) as db:
        db.execute(
            "CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT,"
            " directory TEXT, title TEXT, time_created INTEGER, time_updated INTEGER);"
            "CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER,"
            " data TEXT);"
            "CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);"
        )
        insert(db, "session", "ses_1", "p", None, GARDEN, title, MS, MS + 600)
        child = ("ses_2", "p", "ses_1", GARDEN, "Child session - 2026", MS, MS + 600)
        insert(db, "session", *child)
        for session in ("ses_1", "ses_2"):
            for number, told in enumerate(session_of("opencode")[1:]):
                message = f"msg_{number}" if session == "ses_1" else f"msg_{session}_{number}"
                insert(db, "message", message, session, MS + number, told["info"])
                for place, part in enumerate(told["parts"]):
                    insert(db, "part", f"prt_{message}_{place}", message, session, part)
    return file


def opencode_2_database(home: Path) -> Path:
    """The same session as version 2 of opencode keeps it, beside what version 1 had of it."""
    file = opencode_database(home, title="As version 1 left it")
    with changing(file) as db:
        db.execute(
            "CREATE TABLE session_v2 (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT,"
            " directory TEXT, title TEXT, time_created INTEGER, time_updated INTEGER);"
            "CREATE TABLE session_message (id TEXT PRIMARY KEY, session_id TEXT, type TEXT,"
            " seq INTEGER, time_created INTEGER, time_updated INTEGER, data TEXT);"
            "DELETE FROM part WHERE session_id = 'ses_1'"
        )
        insert(db, "session_v2", "ses_1", "p", None, GARDEN, "Ferns", MS, MS + 700)
        # What is taken over keeps its id.
        for number, told in enumerate(session_of("opencode-2")):
            at = MS + number
            row = (told["id"], "ses_1", told["type"], number, at, at, told["data"])
            insert(db, "session_message", *row)
    return file


def opencode_files(storage: Path) -> Path:
    for told in session_of("opencode")[1:]:
        message = told["info"]["id"]
        written(storage / "message" / "ses_1" / f"{message}.json", told["info"])
        for place, part in enumerate(told["parts"]):
            written(storage / "part" / message / f"prt_{message}_{place}.json", part)
    session = {"id": "ses_1", "directory": GARDEN, "title": "Ferns", "time": {"created": MS}}
    return written(storage / "session" / "p" / "ses_1.json", session)


def kimi_session(home: Path) -> Path:
    written(home / "kimi.json", {"work_dirs": [{"path": "/tmp"}, {"path": GARDEN}]})
    folder = home / "sessions" / hashlib.md5(GARDEN.encode()).hexdigest() / "k-1"
    written(folder / "state.json", {"custom_title": "Ferns"})
    lines(folder / "context.jsonl", [{"role": "user", "content": "Which ferns like shade?"}])
    lines(folder / "context_1.jsonl", [{"role": "user", "content": "before a compaction"}])
    return lines(folder / "wire.jsonl", session_of("kimi-cli"))


def kimi_code_session(home: Path, *, name: str = "session_1", **state: object) -> Path:
    listed = [{"sessionId": "other", "workDir": "/tmp"}, {"sessionId": name, "workDir": GARDEN}]
    lines(home / "session_index.jsonl", listed)
    folder = home / "sessions" / "wd_garden_0123456789ab" / name
    state = {"title": "Ferns", "isCustomTitle": True, "createdAt": MS, **state}
    written(folder / "state.json", state)
    file = lines(folder / "agents" / "main" / "wire.jsonl", session_of("kimi-code"))
    lines(folder / "agents" / "agent-0" / "wire.jsonl", session_of("kimi-code"))
    return file


def gemini_session(home: Path) -> Path:
    folder = home / "tmp" / hashlib.sha256(GARDEN.encode()).hexdigest() / "chats"
    written(home / "projects.json", {"projects": {"/tmp": "tmp", GARDEN: "garden"}})
    return lines(folder / "session-2026-05-28T20-26-0000.jsonl", session_of("gemini-cli"))


def vibe_session(home: Path) -> Path:
    folder = home / "session_20260528_202640_5ca1ab1e"
    told, *messages = session_of("mistral-vibe")
    written(folder / "meta.json", told["metadata"])
    return lines(folder / "messages.jsonl", messages)


PLACES: dict[AgentName, Callable[[Path], Path]] = {
    "opencode": opencode_database,
    "gemini-cli": gemini_session,
    "kimi-cli": kimi_session,
    "kimi-code": kimi_code_session,
    "mistral-vibe": vibe_session,
}


def reads(name: AgentName, home: Path) -> Read:
    PLACES[name](home)
    [found, *_] = find_files(AGENTS[name], home).files
    read = Read(name, found.file, session=found.session)
    expected = EXPECTED
    if name == "mistral-vibe":  # Its messages have no times; the answers keep their tags.
        tagged = ("rm -r .", "<tool_error>not allowed</tool_error>", True)
        expected = [EXPECTED[0], EXPECTED[1] | {"calls": [tagged]}]
    assert said(read) == expected
    return read


@pytest.mark.parametrize("name", PLACES)
async def test_all_comes_once_with_its_folder_and_title(
    name: AgentName, tmp_path: Path, small: Archive
) -> None:
    """The same conversation from each of them; what isn't known is counted; again it is known."""
    home = tmp_path / "there"
    read = reads(name, home)
    assert (read.facts.cwd, read.facts.title) == (GARDEN, "Ferns")
    assert read.facts.started_at is not None
    assert sum(read.tally.unknown.values()) == 1
    assert "gnome" in str(read.tally.unknown).lower()
    if name != "mistral-vibe":
        turn = read.puts[0].turn
        assert (turn.usage.input_tokens, turn.usage.cached_tokens) in ((15, 5), (30, 10))
        assert turn.tool_calls[0].started_at <= (turn.finished_at or NOW)
    before = {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}
    first = await came(small, home, name)
    assert states(first) == [("new", 2, 0)]
    assert (await small.session(first[0].session_id)).tags == (name,)
    assert states(await came(small, home, name)) == [("unchanged", 0, 0)]
    assert await small.check() == []
    # It was only read: nothing has changed, and no file has come beside.
    assert {file: file.read_bytes() for file in home.rglob("*") if file.is_file()} == before


def test_opencode_before_its_database(tmp_path: Path) -> None:
    """Once the database is there, the files beside it are left alone."""
    file = opencode_files(tmp_path / "storage")
    assert [each.file for each in find_files(AGENTS["opencode"], tmp_path).files] == [file]
    assert said(Read("opencode", file)) == EXPECTED
    opencode_database(tmp_path)
    sessions = [each.session for each in find_files(AGENTS["opencode"], tmp_path).files]
    assert sessions == ["ses_1", "ses_2"]


def test_what_can_not_be_read_of_opencode_is_counted_once(tmp_path: Path) -> None:
    """A message or a part of it, as such: not as of a kind that is not known."""
    file = opencode_database(tmp_path)
    whole = Read("opencode", file, session="ses_1")
    with changing(file) as db:
        insert(db, "message", "msg_9", "ses_1", MS + 9, "{torn")
        insert(db, "part", "prt_9", "msg_0", "ses_1", "{torn")
    read = Read("opencode", file, session="ses_1")
    assert (said(read), read.tally.unknown) == (said(whole), whole.tally.unknown)
    assert read.tally.broken == {"no JSON object": 2}


def test_opencode_of_version_2(tmp_path: Path) -> None:
    """What it has taken over from version 1 is read as it goes on; what it has not, as it was."""
    file = opencode_2_database(tmp_path)
    sessions = [each.session for each in find_files(AGENTS["opencode"], tmp_path).files]
    assert sessions == ["ses_2", "ses_1"]
    read = Read("opencode", file, session="ses_1")
    assert said(read) == EXPECTED
    assert (read.facts.cwd, read.facts.title) == (GARDEN, "Ferns")
    assert read.puts[0].turn.model == "m"
    assert read.puts[0].turn.usage.cached_tokens == 10
    assert list(read.tally.unknown) == ["message gnome"]
    with changing(file) as db:
        db.execute("DROP TABLE part; DROP TABLE message; DROP TABLE session")
        db.execute("UPDATE session_message SET data = json_set(data, '$.outcome', 'interrupted')"
                   " WHERE type = 'idle'")  # fmt: skip
    read = Read("opencode", file, session="ses_1")
    assert [turn.turn.status for turn in read.puts] == ["completed", "interrupted"]


async def test_what_opencode_2_took_over_comes_once(tmp_path: Path, small: Archive) -> None:
    """Messages keep their ids: a session that came from version 1 is known in version 2."""
    file = opencode_database(tmp_path / "there")
    assert states(await came(small, file, "opencode")) == [("new", 2, 0)]
    file.unlink()
    opencode_2_database(tmp_path / "there")
    assert states(await came(small, file, "opencode")) == [("unchanged", 0, 0)]


def goes_on(file: Path, version: int, at: int, asked: str, said: str = "") -> None:
    """Another turn of the session in the tables of a version, its answer if there is one."""
    time, user = {"created": MS + at}, f"msg_{at}"
    answered = {"time": {"created": MS + at + 10}, "finish": "stop"}
    part = {"type": "text", "text": said}
    rows: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []
    if asked:
        rows.append((user, "user", {"time": time}, {"type": "text", "text": asked}))
    if said:
        rows.append((f"{user}_answer", "assistant", answered, part))
    with changing(file) as db:
        for number, (own, role, info, told) in enumerate(rows):
            place = MS + at + number
            if version == 1:
                insert(db, "message", own, "ses_1", place, {**info, "role": role})
                insert(db, "part", f"prt_{own}", own, "ses_1", told)
            else:
                info |= {"text": told["text"]} if role == "user" else {"content": [told]}
                insert(db, "session_message", own, "ses_1", role, at + number, place, place, info)
        table = "session" if version == 1 else "session_v2"
        db.execute(f"UPDATE {table} SET time_updated = ?, title = ? WHERE id = 'ses_1'",
                   (MS + at + 20, f"As version {version} left it"))  # fmt: skip


async def test_a_session_that_goes_on_in_both_versions_of_opencode(
    tmp_path: Path, small: Archive
) -> None:
    """What is newer in either comes, in its order and once; the title is the newer one's."""
    file = opencode_2_database(tmp_path / "there")
    goes_on(file, 1, 1000, "And mosses?", "They too.")
    goes_on(file, 2, 2000, "And roses?", "They want sun.")
    goes_on(file, 1, 3000, "Thanks!", "You are welcome.")
    read = Read("opencode", file, session="ses_1")
    assert said(read)[:2] == EXPECTED
    told = [(put.turn.user_message, put.turn.assistant_message) for put in read.puts[2:]]
    assert told == [
        ("And mosses?", "They too."),
        ("And roses?", "They want sun."),
        ("Thanks!", "You are welcome."),
    ]
    assert read.facts.title == "As version 1 left it"
    found = find_files(AGENTS["opencode"], tmp_path / "there").files
    [when] = [each.changed_at for each in found if each.session == "ses_1"]
    assert int(when.timestamp() * 1000) == MS + 3020
    assert states(await came(small, file, "opencode")) == [("new", 5, 0)]
    assert states(await came(small, file, "opencode")) == [("unchanged", 0, 0)]


def test_a_turn_that_version_1_of_opencode_has_ended_after_it_was_taken_over(
    tmp_path: Path,
) -> None:
    """It is read where more of it is."""
    file = opencode_2_database(tmp_path)
    goes_on(file, 1, 1000, "And mosses?", "They too.")
    goes_on(file, 2, 1000, "And mosses?")
    read = Read("opencode", file, session="ses_1")
    told = [(put.turn.user_message, put.turn.assistant_message) for put in read.puts]
    assert told[2:] == [("And mosses?", "They too.")]
    assert said(read)[:2] == EXPECTED


def test_of_versions_of_opencode_that_share_no_prompt_the_second_is_read(tmp_path: Path) -> None:
    """Nothing tells what of the first it has taken over."""
    file = opencode_2_database(tmp_path)
    goes_on(file, 1, 1000, "And mosses?", "They too.")
    with changing(file) as db:
        db.execute("UPDATE message SET id = 'other_' || id")
        db.execute("UPDATE part SET message_id = 'other_' || message_id")
    assert said(Read("opencode", file, session="ses_1")) == EXPECTED


def test_a_database_that_is_in_use_or_another_program_s(tmp_path: Path) -> None:
    file = opencode_database(tmp_path)
    writing = apsw.Connection(str(file))
    writing.execute("UPDATE session SET title = 'Not yet in the file' WHERE id = 'ses_1'")
    assert Read("opencode", file, session="ses_1").facts.title == "Not yet in the file"
    writing.close()
    (tmp_path / "by").symlink_to(tmp_path)
    assert [each.session for each in find_files(AGENTS["opencode"], tmp_path / "by").files] == [
        "ses_1",
        "ses_2",
    ]
    foreign = tmp_path / "opencode-local.db"
    with changing(foreign) as db:
        db.execute("CREATE VIEW session AS SELECT 1; CREATE TABLE message (id)")
    (tmp_path / "opencode-x.db").write_bytes(b"no database at all" * 100)
    search = find_files(AGENTS["opencode"], tmp_path)
    assert {found.file for found in search.files} == {file}
    reasons = {Path(name).name: reason for name, reason in search.skipped}
    assert reasons["opencode-local.db"] == "its tables are not those of opencode"
    assert "not a database" in reasons["opencode-x.db"]


def test_gemini_before_it_wrote_lines_and_its_subagents(tmp_path: Path) -> None:
    head, *records = session_of("gemini-cli")
    messages = [each for each in records if "id" in each]
    folder = tmp_path / "garden" / "chats"
    (tmp_path / "garden").mkdir()
    (tmp_path / "garden" / ".project_root").write_text(f"{GARDEN}\n")
    file = written(folder / "session-2026-05-28-aaaa.json", {**head, "messages": messages})
    lines(folder / "s-1" / "helper.jsonl", session_of("gemini-cli"))
    search = find_files(AGENTS["gemini-cli"], tmp_path)
    assert [each.file for each in search.files] == [file]
    assert search.tally.left_out["files of other names"] == 2
    read = Read("gemini-cli", file)
    assert (said(read), read.facts.cwd) == (EXPECTED, GARDEN)
    # It goes on in a file that begins with what stands in this one.
    lines(file.with_suffix(".jsonl"), session_of("gemini-cli"))
    assert [each.file.suffix for each in find_files(AGENTS["gemini-cli"], tmp_path).files] == [
        ".jsonl"
    ]


def test_kimi_and_vibe_as_they_once_were(tmp_path: Path) -> None:
    """Messages alone: the first has them in `context.jsonl`, the other in one JSON document."""
    told, *messages = session_of("mistral-vibe")
    begins = [
        {"role": "_system_prompt", "content": "Be good."},
        {"role": "user", "content": "<system>CHECKPOINT 0</system>"},
    ]
    folder = tmp_path / "kimi" / "sessions" / "0" / "k-1"
    file = lines(folder / "context.jsonl", [*begins, *messages])
    assert [found.file for found in find_files(AGENTS["kimi-cli"], tmp_path / "kimi").files] == [
        file
    ]
    read = Read("kimi-cli", file)
    assert [each["user"] for each in said(read)] == [each["user"] for each in EXPECTED]
    assert read.facts.foreign_id == "k-1"
    whole = {**told, "messages": messages}
    old = written(tmp_path / "vibe" / "session_20260528_202640_5ca1ab1e.json", whole)
    assert [found.file for found in find_files(AGENTS["mistral-vibe"], old.parent).files] == [old]
    read = Read("mistral-vibe", old)
    assert [each["user"] for each in said(read)] == [each["user"] for each in EXPECTED]
    assert (read.facts.cwd, read.facts.foreign_id) == (GARDEN, told["metadata"]["session_id"])


def appended(words: str, role: str = "user", **more: object) -> dict[str, Any]:
    """A message as Kimi Code appends it."""
    message = {"role": role, "content": [{"type": "text", "text": words}], "toolCalls": [], **more}
    return {"type": "context.append_message", "message": message}


def test_kimi_code_tells_what_a_person_typed(tmp_path: Path) -> None:
    """While a turn ran, in the place of a skill's text, and as a command of the shell."""
    file = kimi_code_session(tmp_path)
    steer = {"type": "turn.steer", "input": [{"type": "text", "text": "Only the ferns."}],
             "origin": {"kind": "user"}}  # fmt: skip
    skill = {"kind": "skill_activation", "skillName": "weed", "skillArgs": "beds",
             "trigger": "user-slash"}  # fmt: skip
    named = {"kind": "user", "skillActivations": [{"skillName": "weed"}]}
    both = [{"type": "text", "text": "Weed well."}, {"type": "text", "text": "Weed here."}]
    records = [
        *session_of("kimi-code")[:9],
        steer,
        appended("Only the ferns.", origin={"kind": "user"}),
        *session_of("kimi-code")[9:15],
        appended("Weed well.", origin=skill),
        appended("Weed well.", origin={**skill, "trigger": "model-tool"}),
        appended("", content=both, origin=named),
        appended("ls", origin={"kind": "shell_command", "phase": "input"}),
        {"type": "turn.cancel", "target": "active"},
    ]
    read = Read("kimi-code", lines(file, records))
    assert [(each["user"], each["status"]) for each in said(read)] == [
        ("Which ferns like shade?\n\nOnly the ferns.", "completed"),
        ("/weed beds", "interrupted"),
        ("Weed here.", "interrupted"),
    ]
    turn = read.puts[0].turn
    place = {turn.tool_calls[-1].tool_call_id: "Only the ferns."}
    assert prompts_of(turn) == ("Which ferns like shade?", place)
    assert read.tally.left_out["commands of the user"] == 1
    assert not read.tally.unknown


async def test_what_kimi_code_took_over_from_kimi_cli_comes_once(
    tmp_path: Path, small: Archive
) -> None:
    """It keeps the old session's messages without their times, and goes on behind them."""
    kimi_session(tmp_path / "kimi")
    custom = {"imported_from_kimi_cli": True, "kimi_cli_session_id": "k-1"}
    file = kimi_code_session(tmp_path / "code", name="ses_k-1", custom=custom)

    def call(name: str, **given: str) -> dict[str, Any]:
        told = {"type": "function", "id": name}
        return told | {"function": {"name": name, "arguments": json.dumps(given)}}

    taken_over = [
        {"type": "metadata", "protocol_version": "1.0", "created_at": MS},
        appended("Which ferns like shade?"),
        appended("", "assistant", toolCalls=[call("ReadFile", path=f"{GARDEN}/ferns.txt")]),
        appended("lady fern: shade", "tool", toolCallId="ReadFile"),
        appended("The lady fern.", "assistant"),
        appended("Delete the rest."),
        appended("I may not.", "assistant"),
    ]
    lines(file, taken_over)
    assert states(await taken(small, tmp_path / "kimi", "kimi-cli")) == [("new", 2, 0)]
    assert states(await came(small, tmp_path / "code", "kimi-code")) == [("unchanged", 0, 0)]
    lines(file, [*taken_over, *session_of("kimi-code")[3:15]])
    assert states(await came(small, tmp_path / "code", "kimi-code")) == [("new", 1, 0)]
    [known] = await came(small, tmp_path / "code", "kimi-code")
    assert known.state == "unchanged"
    turns = await small.turns(known.session_id)
    assert [turn.user_message for turn in turns] == [
        "Which ferns like shade?", "Delete the rest.", "Which ferns like shade?",
    ]  # fmt: skip
    alone = await taken(None, tmp_path / "code", "kimi-code", dry_run=True)
    assert ("new", 3, 0) in states(alone)


@MANY
@given(name=st.sampled_from(sorted(PLACES)), data=st.data())
def test_whatever_the_records_hold_turns_come_of_it(name: AgentName, data: Any) -> None:
    """Any value may be anything: nothing raises, and what comes can be stored."""
    records = session_of(name)
    for number in data.draw(st.sets(st.integers(0, len(records) - 1), min_size=1, max_size=4)):
        _change(data.draw, records[number])
    tally = Tally()
    found = FoundFile(Path("/nowhere/0/s/wire.jsonl"), 1, NOW, "ses_1")
    parser = AGENTS[name].parser(found, tally, now=NOW, titles={})

    puts = [put for record in records for put in parser.feed(record)]
    puts += parser.finish()
    for put in puts:
        _check(put)
    ids = [put.turn.turn_id for put in puts]
    assert len(set(ids)) == len(ids)

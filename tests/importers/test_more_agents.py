"""Sessions of opencode, Gemini CLI, kimi-cli, Kimi Code and mistral-vibe become turns."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, strategies as st

from ragmem.importers import AgentName, FoundFile, Outcome, Tally
from ragmem.importers.importer import AGENTS, find_files
from ragmem.memory.turns import prompts_of
from ragmem.store import Archive
from tests.importers.reading import NOW, Read, lines
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


async def came(store: Archive, path: Path, name: AgentName) -> list[Outcome]:
    """Import all sessions under the path; what became of those that are the person's."""
    return [each for each in await taken(store, path, name) if each.session_id]


# --- opencode ------------------------------------------------------------------


def opencode_messages() -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Messages with their parts, as both storages have them, without their ids."""

    def tool(name: str, given: dict[str, Any], at: int, **state: object) -> dict[str, Any]:
        state |= {"input": given, "time": {"start": MS + at, "end": MS + at + 40}}
        return {"type": "tool", "callID": f"call_{at}", "tool": name, "state": state}

    def answer(at: int, **more: object) -> dict[str, Any]:
        used = {"input": 10, "output": 3, "reasoning": 1, "cache": {"read": 5, "write": 0}}
        return {"role": "assistant", "modelID": "m", "time": {"created": MS + at}, "tokens": used,
                **more}  # fmt: skip

    read = {"status": "completed", "output": "lady fern: shade"}
    return [
        ({"role": "user", "time": {"created": MS}},
         [{"type": "text", "text": "Which ferns like shade?"},
          {"type": "text", "text": "<file>…</file>", "synthetic": True}]),
        (answer(100, finish="tool-calls"),
         [{"type": "step-start"}, {"type": "reasoning", "text": "The list will tell."},
          tool("read", {"filePath": f"{GARDEN}/ferns.txt"}, 110, **read)]),
        (answer(200, finish="stop"), [{"type": "text", "text": "The lady fern."}]),
        ({"role": "user", "time": {"created": MS + 300}},
         [{"type": "text", "text": "Delete the rest."}, {"type": "gnome"}]),
        (answer(400), [tool("bash", {"command": "rm -r ."}, 410, status="error",
                            error="not allowed")]),
        (answer(450, summary=True), [{"type": "text", "text": "Ferns were looked for."}]),
        (answer(500, finish="stop"), [{"type": "text", "text": "I may not."}]),
    ]  # fmt: skip


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
            for number, (info, parts) in enumerate(opencode_messages()):
                message = f"msg_{number}" if session == "ses_1" else f"msg_{session}_{number}"
                insert(db, "message", message, session, MS + number, info)
                for place, part in enumerate(parts):
                    insert(db, "part", f"prt_{message}_{place}", message, session, part)
    return file


def opencode_2_database(home: Path) -> Path:
    """The same session as version 2 of opencode keeps it, beside what version 1 had of it."""

    def part(told: dict[str, Any]) -> dict[str, Any]:
        if told["type"] != "tool":
            return told
        state, times = dict(told["state"]), told["state"]["time"]
        del state["time"]
        if output := state.pop("output", ""):
            state["content"] = [{"type": "text", "text": output}]
        if error := state.pop("error", ""):
            state["error"] = {"type": "tool.execution", "message": error}
        time = {"created": times["start"], "ran": times["start"], "completed": times["end"]}
        return {"type": "tool", "id": told["callID"], "name": told["tool"], "state": state,
                "time": time}  # fmt: skip

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
        told: list[tuple[str, str, dict[str, Any]]] = [
            ("msg_a", "system", {"text": "You are …"}),
            ("msg_b", "model-switched", {"model": {"id": "m"}}),
        ]
        # What is taken over keeps its id.
        for number, (info, parts) in enumerate(opencode_messages()):
            own = f"msg_{number}"
            if info["role"] == "user":
                told.append((own, "user", {"text": parts[0]["text"], "time": info["time"]}))
            elif info.get("summary"):
                told.append((own, "compaction", {"status": "completed", "summary": "Ferns."}))
            else:
                kept = [part(each) for each in parts if each["type"] != "step-start"]
                whole = {name: info[name] for name in ("time", "tokens", "finish") if name in info}
                told.append((own, "assistant", {**whole, "model": {"id": "m"}, "content": kept}))
        told += [("msg_c", "gnome", {}), ("msg_d", "idle", {"outcome": "succeeded"})]
        for number, (own, kind, data) in enumerate(told):
            at = MS + number
            insert(db, "session_message", own, "ses_1", kind, number, at, at, data)
    return file


def opencode_records() -> list[Any]:
    """The session and its messages, as the parser is given them."""
    session = {"directory": GARDEN, "title": "Ferns", "time_created": MS}
    messages = enumerate(opencode_messages())
    told = [{"info": info | {"id": f"m{i}"}, "parts": parts} for i, (info, parts) in messages]
    return [{"session": session}, *told]


def opencode_files(storage: Path) -> Path:
    for number, (info, parts) in enumerate(opencode_messages()):
        message = f"msg_{number}"
        written(storage / "message" / "ses_1" / f"{message}.json", info | {"id": message})
        for place, part in enumerate(parts):
            written(storage / "part" / message / f"prt_{number}_{place}.json", part)
    session = {"id": "ses_1", "directory": GARDEN, "title": "Ferns", "time": {"created": MS}}
    return written(storage / "session" / "p" / "ses_1.json", session)


# --- the others ----------------------------------------------------------------


def gemini_records() -> list[Any]:
    def at(second: int) -> str:
        return f"2026-05-28T20:26:{second:02}.000Z"

    read: dict[str, Any] = {"id": "c1", "name": "read_file", "timestamp": at(3), "args": {
        "file_path": f"{GARDEN}/ferns.txt"}, "status": "success", "result": [
            {"functionResponse": {"response": {"output": "lady fern: shade"}}}]}  # fmt: skip
    run: dict[str, Any] = {"id": "c2", "name": "run_shell_command", "timestamp": at(8), "args": {
        "command": "rm -r ."}, "status": "error", "result": [
            {"functionResponse": {"response": {"error": "not allowed"}}}]}  # fmt: skip
    used = {"input": 15, "output": 3, "cached": 5, "thoughts": 1, "total": 19}
    thought = {"subject": "The list will tell.", "timestamp": at(2)}
    first = {"id": "m2", "type": "gemini", "timestamp": at(2), "content": "", "model": "m"}
    return [
        {"sessionId": "s-1", "projectHash": "x", "startTime": at(0), "lastUpdated": at(0)},
        {"id": "m0", "type": "user", "timestamp": at(0),
         "content": [{"text": "<session_context>\nToday is …"}]},
        {"id": "m1", "type": "user", "timestamp": at(1), "content": [{"text": "@ferns expanded"}],
         "displayContent": "Which ferns like shade?"},
        first,
        {**first, "thoughts": [thought], "tokens": used, "toolCalls": [read]},
        {"id": "m3", "type": "gemini", "timestamp": at(4), "content": "The lady fern."},
        {"$set": {"lastUpdated": at(4), "summary": "Ferns"}},
        {"id": "m4", "type": "user", "timestamp": at(6), "content": "Delete the rest."},
        {"id": "m5", "type": "gemini", "timestamp": at(7), "content": "", "toolCalls": [run]},
        {"id": "m6", "type": "gnome", "timestamp": at(8)},
        {"id": "m7", "type": "gemini", "timestamp": at(9), "content": [{"text": "I may not."}]},
        {"$rewindTo": "m4"},
    ]  # fmt: skip


def kimi_records() -> list[Any]:
    def event(at: float, kind: str, **payload: object) -> dict[str, Any]:
        return {"timestamp": MS / 1000 + at, "message": {"type": kind, "payload": payload}}

    def call(at: float, name: str, **given: str) -> dict[str, Any]:
        asked = {"name": name, "arguments": json.dumps(given)}
        return event(at, "ToolCall", type="function", id=f"c{at}", function=asked)

    def result(at: float, of: float, words: str, *, failed: bool = False) -> dict[str, Any]:
        value = {"is_error": failed, "output": "" if failed else words, "message": words}
        return event(at, "ToolResult", tool_call_id=f"c{of}", return_value=value)

    used = {"input_other": 10, "output": 4, "input_cache_read": 5, "input_cache_creation": 0}
    return [
        {"type": "metadata", "protocol_version": "1.3"},
        event(0, "TurnBegin", user_input=[{"type": "text", "text": "Which ferns like shade?"}]),
        event(1, "StepBegin", n=1),
        event(1, "ContentPart", type="think", think="The list will tell.", encrypted=None),
        call(2, "ReadFile", path=f"{GARDEN}/ferns.txt"),
        event(2, "StatusUpdate", token_usage=used),
        result(3, 2, "lady fern: shade"),
        event(4, "StepBegin", n=2),
        event(4, "ContentPart", type="text", text="The lady fern."),
        event(5, "TurnEnd"),
        event(6, "TurnBegin", user_input="Delete the rest."),
        event(7, "StepBegin", n=1),
        call(8, "Shell", command="rm -r ."),
        event(8, "ApprovalRequest", id="r"),
        event(8, "GnomeSeen"),
        result(9, 8, "not allowed", failed=True),
        event(9, "SubagentEvent", event={}),
        event(10, "StepBegin", n=2),
        event(10, "ContentPart", type="text", text="I may not."),
        event(11, "TurnEnd"),
    ]


def kimi_code_records() -> list[Any]:
    """As version 1.5 of its protocol has them."""

    def record(at: float, kind: str, **told: object) -> dict[str, Any]:
        return {"type": kind, **told, "time": MS + int(at * 1000)}

    def event(at: float, kind: str, **told: object) -> dict[str, Any]:
        return record(at, "context.append_loop_event", event={"type": kind, **told})

    def message(at: float, words: str, kind: str = "user", **origin: str) -> dict[str, Any]:
        told = {"role": "user", "content": [{"type": "text", "text": words}], "toolCalls": [],
                "origin": {"kind": kind, **origin}}  # fmt: skip
        return record(at, "context.append_message", message=told)

    def typed(at: float, words: str, kind: str = "turn.prompt") -> dict[str, Any]:
        return record(at, kind, input=[{"type": "text", "text": words}], origin={"kind": "user"})

    def part(at: float, step: str, **told: str) -> dict[str, Any]:
        return event(at, "content.part", stepUuid=step, part=told)

    def call(at: float, step: str, name: str, **args: str) -> dict[str, Any]:
        return event(at, "tool.call", stepUuid=step, toolCallId=f"c{at}", name=name, args=args)

    def result(at: float, of: float, words: str, **more: bool) -> dict[str, Any]:
        return event(at, "tool.result", toolCallId=f"c{of}", result={"output": words, **more})

    used = {"inputOther": 10, "output": 4, "inputCacheRead": 5, "inputCacheCreation": 0}
    return [
        {"type": "metadata", "protocol_version": "1.5", "created_at": MS},
        record(0, "profile.bind", thinkingEffort="off", systemPrompt="…", disallowedTools=[]),
        message(0, "<system-reminder>Today is …</system-reminder>", "injection", variant="date"),
        typed(0, "Which ferns like shade?"),
        message(0, "Which ferns like shade?"),
        event(1, "step.begin", uuid="s1", turnId="0", step=1),
        part(1, "s1", type="think", think="The list will tell."),
        call(2, "s1", "Read", path="ferns.txt"),
        result(3, 2, "lady fern: shade"),
        event(3, "step.end", uuid="s1", finishReason="tool_use"),
        record(3, "usage.record", model="m", usage=used, usageScope="turn"),
        event(4, "step.begin", uuid="s2", turnId="0", step=2),
        part(4, "s2", type="text", text="The lady fern."),
        event(4, "step.end", uuid="s2", finishReason="end_turn"),
        record(5, "turn.ended", turnId=0, reason="completed", durationMs=5000),
        record(5, "gnome.seen"),
        typed(6, "Delete the rest."),
        message(6, "Delete the rest."),
        event(7, "step.begin", uuid="s3", turnId="1", step=1),
        call(8, "s3", "Bash", command="rm -r ."),
        record(8, "permission.record_approval_result", result={"decision": "rejected"}),
        result(9, 8, "not allowed", isError=True),
        event(9, "step.end", uuid="s3", finishReason="tool_use"),
        event(10, "step.begin", uuid="s4", turnId="1", step=2),
        part(10, "s4", type="text", text="I may not."),
        event(10, "step.end", uuid="s4", finishReason="end_turn"),
        record(11, "full_compaction.begin"),
        record(11, "context.apply_compaction", summary="Ferns.", compactedCount=9),
        message(11, "Ferns.", "compaction_summary"),
        record(11, "usage.record", model="m", usage=used, usageScope="session"),
    ]


def vibe_messages() -> list[Any]:
    def call(name: str, **given: str) -> list[dict[str, Any]]:
        asked = {"name": name, "arguments": json.dumps(given)}
        return [{"id": name, "type": "function", "function": asked}]

    failed = "<tool_error>not allowed</tool_error>"
    return [
        {"role": "user", "content": "Which ferns like shade?", "message_id": "1"},
        {"role": "assistant", "content": "", "reasoning_content": "The list will tell.",
         "tool_calls": call("read_file", path=f"{GARDEN}/ferns.txt")},
        {"role": "tool", "content": "lady fern: shade", "tool_call_id": "read_file"},
        {"role": "assistant", "content": "The lady fern."},
        {"role": "user", "content": "<vibe_warning>half full</vibe_warning>", "injected": True},
        {"role": "user", "content": "Delete the rest."},
        {"role": "assistant", "tool_calls": call("bash", command="rm -r .")},
        {"role": "tool", "content": failed, "tool_call_id": "bash"},
        {"role": "gnome", "content": "?"},
        {"role": "assistant", "content": "I may not."},
    ]  # fmt: skip


def vibe_metadata() -> dict[str, Any]:
    return {
        "session_id": "5ca1ab1e-0000-4000-8000-000000000001",
        "start_time": "2026-05-28T20:26:40+00:00",
        "end_time": "2026-05-28T20:27:40+00:00",
        "environment": {"working_directory": GARDEN},
        "title": "Ferns",
        "title_source": "manual",
        "config": {"active_model": "m"},
    }


def kimi_session(home: Path) -> Path:
    written(home / "kimi.json", {"work_dirs": [{"path": "/tmp"}, {"path": GARDEN}]})
    folder = home / "sessions" / hashlib.md5(GARDEN.encode()).hexdigest() / "k-1"
    written(folder / "state.json", {"custom_title": "Ferns"})
    lines(folder / "context.jsonl", [{"role": "user", "content": "Which ferns like shade?"}])
    lines(folder / "context_1.jsonl", [{"role": "user", "content": "before a compaction"}])
    return lines(folder / "wire.jsonl", kimi_records())


def kimi_code_session(home: Path, *, name: str = "session_1", **state: object) -> Path:
    listed = [{"sessionId": "other", "workDir": "/tmp"}, {"sessionId": name, "workDir": GARDEN}]
    lines(home / "session_index.jsonl", listed)
    folder = home / "sessions" / "wd_garden_0123456789ab" / name
    state = {"title": "Ferns", "isCustomTitle": True, "createdAt": MS, **state}
    written(folder / "state.json", state)
    file = lines(folder / "agents" / "main" / "wire.jsonl", kimi_code_records())
    lines(folder / "agents" / "agent-0" / "wire.jsonl", kimi_code_records())
    return file


def gemini_session(home: Path) -> Path:
    folder = home / "tmp" / hashlib.sha256(GARDEN.encode()).hexdigest() / "chats"
    written(home / "projects.json", {"projects": {"/tmp": "tmp", GARDEN: "garden"}})
    return lines(folder / "session-2026-05-28T20-26-0000.jsonl", gemini_records())


def vibe_session(home: Path) -> Path:
    folder = home / "session_20260528_202640_5ca1ab1e"
    written(folder / "meta.json", vibe_metadata())
    return lines(folder / "messages.jsonl", vibe_messages())


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
    if name == "mistral-vibe":  # Its messages have no times; the answers keep their tags.
        expected = deepcopy(EXPECTED)
        expected[1]["calls"] = [("rm -r .", "<tool_error>not allowed</tool_error>", True)]
    else:
        expected = EXPECTED
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
    head, *records = gemini_records()
    messages = [each for each in records if "id" in each]
    folder = tmp_path / "garden" / "chats"
    (tmp_path / "garden").mkdir()
    (tmp_path / "garden" / ".project_root").write_text(f"{GARDEN}\n")
    file = written(folder / "session-2026-05-28-aaaa.json", {**head, "messages": messages})
    lines(folder / "s-1" / "helper.jsonl", gemini_records())
    search = find_files(AGENTS["gemini-cli"], tmp_path)
    assert [each.file for each in search.files] == [file]
    assert search.tally.left_out["files of other names"] == 2
    read = Read("gemini-cli", file)
    assert (said(read), read.facts.cwd) == (EXPECTED, GARDEN)
    # It goes on in a file that begins with what stands in this one.
    lines(file.with_suffix(".jsonl"), gemini_records())
    assert [each.file.suffix for each in find_files(AGENTS["gemini-cli"], tmp_path).files] == [
        ".jsonl"
    ]


def test_kimi_and_vibe_as_they_once_were(tmp_path: Path) -> None:
    """Messages alone: the first has them in `context.jsonl`, the other in one JSON document."""
    messages = [{"role": "_system_prompt", "content": "Be good."}, *vibe_messages()]
    messages.insert(1, {"role": "user", "content": "<system>CHECKPOINT 0</system>"})
    file = lines(tmp_path / "kimi" / "sessions" / "0" / "k-1" / "context.jsonl", messages)
    assert [found.file for found in find_files(AGENTS["kimi-cli"], tmp_path / "kimi").files] == [
        file
    ]
    read = Read("kimi-cli", file)
    assert [each["user"] for each in said(read)] == [each["user"] for each in EXPECTED]
    assert read.facts.foreign_id == "k-1"
    whole = {"metadata": vibe_metadata(), "messages": vibe_messages()}
    old = written(tmp_path / "vibe" / "session_20260528_202640_5ca1ab1e.json", whole)
    assert [found.file for found in find_files(AGENTS["mistral-vibe"], old.parent).files] == [old]
    read = Read("mistral-vibe", old)
    assert [each["user"] for each in said(read)] == [each["user"] for each in EXPECTED]
    assert (read.facts.cwd, read.facts.foreign_id) == (GARDEN, vibe_metadata()["session_id"])


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
        *kimi_code_records()[:9],
        steer,
        appended("Only the ferns.", origin={"kind": "user"}),
        *kimi_code_records()[9:15],
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
    lines(file, [*taken_over, *kimi_code_records()[3:15]])
    assert states(await came(small, tmp_path / "code", "kimi-code")) == [("new", 1, 0)]
    [known] = await came(small, tmp_path / "code", "kimi-code")
    assert known.state == "unchanged"
    turns = await small.turns(known.session_id)
    assert [turn.user_message for turn in turns] == [
        "Which ferns like shade?", "Delete the rest.", "Which ferns like shade?",
    ]  # fmt: skip
    alone = await taken(None, tmp_path / "code", "kimi-code", dry_run=True)
    assert ("new", 3, 0) in states(alone)


SHAPES: dict[AgentName, Callable[[], list[Any]]] = {
    "opencode": opencode_records,
    "gemini-cli": gemini_records,
    "kimi-cli": kimi_records,
    "kimi-code": kimi_code_records,
    "mistral-vibe": lambda: [{"metadata": vibe_metadata()}, *vibe_messages()],
}


@MANY
@given(name=st.sampled_from(sorted(SHAPES)), data=st.data())
def test_whatever_the_records_hold_turns_come_of_it(name: AgentName, data: Any) -> None:
    """Any value may be anything: nothing raises, and what comes can be stored."""
    records = deepcopy(SHAPES[name]())
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

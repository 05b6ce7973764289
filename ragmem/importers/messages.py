"""Sessions of agents that store messages: mistral-vibe, Gemini CLI and opencode.

opencode has them in a SQLite database or, in earlier versions, in JSON files.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from pathlib import Path
from urllib.parse import quote

import apsw

from ragmem.importers import (
    LINE_LIMIT,
    Fields,
    FoundFile,
    Tally,
    decoded_line,
    document,
    fields,
    items,
    moment,
    opened,
    text,
)
from ragmem.importers.session_parser import SessionParser, session_id_of, tokens, words_of
from ragmem.records import PutTurn

ADDED = re.compile(r"<(?:system|system-reminder|vibe_warning|vibe_stop_event)>")
_FAILED = re.compile(r"<tool_error>|<user_cancellation>|<system>ERROR:")


class MessagesParser(SessionParser):
    """Parser of messages with a `role`, a `content` and `tool_calls`."""

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Process one record; yield the turns that it completes."""
        at, _ = self.time(record)
        words = words_of(record)
        match text(record, "role"):
            case "user" if record.get("injected") is True or ADDED.match(words):
                self.leave_out("context that the agent added")
            case "user" if words.strip():
                yield from self.begin(words.strip(), at)
            case "assistant":
                self._assistant(record, words, at)
            case "tool":
                failed = _FAILED.match(words) is not None
                self.answer(text(record, "tool_call_id"), words, at, failed=failed)
            case "system":
                self.leave_out("context that the agent added")
            case kind if kind.startswith("_"):
                self.leave_out("the agent's bookkeeping")
            case kind:
                self.count_unknown("message", kind)

    def _assistant(self, record: Fields, words: str, at: datetime) -> None:
        if (turn := self.answered()) is None:
            return
        key = self.next_name()
        turn.add_text(key, words, at)
        thoughts = [text(fields(each), "think") for each in items(record, "content")]
        turn.add_reasoning(
            "\n\n".join(filter(None, [*thoughts, text(record, "reasoning_content")]))
        )
        for each in map(fields, items(record, "tool_calls")):
            asked = fields(each, "function")
            self.call(key, text(each, "id"), text(asked, "name"), asked.get("arguments"), at)


class MistralVibeParser(MessagesParser):
    """Parser of mistral-vibe's sessions: `messages.jsonl` and `meta.json`, formerly one file.

    Its messages have no times of their own, so they get the session's.
    """

    agent = "mistral-vibe"

    def start(self, found: FoundFile) -> None:
        """See `SessionParser.start`."""
        self._model = ""
        if found.file.suffix != ".json":
            self._read_metadata(document(found.file.parent / "meta.json"))

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Process one record; yield the turns that it completes."""
        if "role" not in record and "metadata" in record:
            self._read_metadata(fields(record, "metadata"))
            return
        yield from super().feed(record)
        if self.turn and self._model:
            self.turn.model = self._model

    def _read_metadata(self, metadata: Fields) -> None:
        facts = self.facts
        self.identify(text(metadata, "session_id"))
        if parent := text(metadata, "parent_session_id"):
            facts.forked_from = session_id_of(self.agent, parent)
        facts.cwd = text(fields(metadata, "environment"), "working_directory")
        self.entitle(text(metadata, "title") if metadata.get("title_source") == "manual" else "")
        facts.started_at = moment(metadata.get("start_time"), self.now)
        facts.last_at = moment(metadata.get("end_time"), self.now) or facts.last_at
        self._model = text(fields(metadata, "config"), "active_model")

    def time(self, record: Fields) -> tuple[datetime, bool]:
        """Return the time when the session began."""
        return self.facts.started_at or self.facts.last_at, False


# --- Gemini CLI ---------------------------------------------------------------

_GEMINI_ADDED = re.compile(r"<(?:session_context|state_snapshot|hook_context|system_note)\b")
_PATH_BYTES = 4096


class GeminiCliParser(SessionParser):
    """Parser of Gemini CLI's sessions, in which the last record of each message counts."""

    agent = "gemini-cli"

    def start(self, found: FoundFile) -> None:
        """See `SessionParser.start`."""
        # …/tmp/<a name for the folder>/chats/session-….jsonl
        self.facts.cwd = _gemini_folder(found.file.parent.parent)
        self._messages: dict[str, Fields] = {}

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Process one record; no turn is complete before the end."""
        yield from ()
        if "$set" in record or ("sessionId" in record and "type" not in record):
            self._read_metadata(fields(record, "$set") or record)
        elif "$rewindTo" in record:
            self.leave_out("the agent's bookkeeping")
        elif message_id := text(record, "id"):
            self._messages[message_id] = record
        else:
            self.count_unknown("", text(record, "type"))

    def finish(self) -> Iterator[PutTurn]:
        """Yield the turns at the end of the file."""
        for message_id, record in self._messages.items():
            yield from self._message(message_id, record)
        yield from super().finish()

    def _read_metadata(self, metadata: Fields) -> None:
        facts = self.facts
        self.identify(text(metadata, "sessionId"))
        facts.subagent = facts.subagent or metadata.get("kind") == "subagent"
        self.time({"timestamp": metadata.get("startTime")})
        if "messages" in metadata:
            self.leave_out("summaries of the agent")
        self.entitle(text(metadata, "summary"))

    def _message(self, message_id: str, record: Fields) -> Iterator[PutTurn]:
        at, _ = self.time(record)
        match text(record, "type"):
            case "user":
                words = _gemini_words(record, "displayContent") or _gemini_words(record, "content")
                if not words or _GEMINI_ADDED.match(words):
                    self.leave_out("context that the agent added")
                    return
                yield from self.begin(words, at, message_id)
            case "gemini":
                self._answered(message_id, record, at)
            case "info" | "warning" | "error" as kind:
                self.leave_out("notes of the agent")
                if self.turn and kind == "error":
                    self.turn.status = "failed"
            case kind:
                self.count_unknown("message", kind)

    def _answered(self, key: str, record: Fields, at: datetime) -> None:
        if (turn := self.answered()) is None:
            return
        turn.model = text(record, "model") or turn.model
        turn.add_text(key, _gemini_words(record, "content"), at)
        for thought in map(fields, items(record, "thoughts")):
            parts = (text(thought, "subject"), text(thought, "description"))
            turn.add_reasoning("\n".join(filter(None, parts)))
        used = fields(record, "tokens")
        turn.set_usage(key, tokens(used, ("input",), ("output", "thoughts"), "cached"))
        for each in map(fields, items(record, "toolCalls")):
            call_id = self.call(key, text(each, "id"), text(each, "name"), each.get("args"), at)
            if (status := text(each, "status")) in ("success", "error", "cancelled"):
                when = moment(each.get("timestamp"), self.now) or at
                self.answer(call_id, _gemini_result(each), when, failed=status != "success")


def _gemini_words(record: Fields, name: str) -> str:
    """Return the words of a text, a part, or a list of parts."""
    content = record.get(name)
    return words_of({name: [content] if isinstance(content, dict) else content}, name).strip()


def _gemini_result(call: Fields) -> str:
    said = []
    for part in map(fields, items(call, "result")):
        response = fields(part, "functionResponse", "response")
        said.append(text(response, "output") or text(response, "error") or text(part, "text"))
    return "\n".join(filter(None, said)) or text(call, "resultDisplay")


def _gemini_folder(place: Path) -> str:
    """Return the project folder of a session folder, whose name is its path's hash, or its own."""
    try:
        with opened(place / ".project_root") as source:
            return text({"": source.read(_PATH_BYTES).decode("utf-8", "replace").strip()}, "")
    except OSError:
        pass
    known = fields(document(place.parent.parent / "projects.json"), "projects")
    for path, name in known.items():
        if place.name in (name, sha256(path.encode("utf-8", "replace")).hexdigest()):
            return path
    return ""


_FOREIGN = "its tables are not those of opencode"
_UNTITLED = ("New session - ", "Child session - ")
_FRESH = ("input", "read", "write")
_PARTS_LEFT_OUT = dict.fromkeys(
    ("step-start", "step-finish", "retry"), "the agent's bookkeeping"
) | dict.fromkeys(("snapshot", "patch"), "file snapshots")
_MESSAGES_LEFT_OUT = {
    **dict.fromkeys(("synthetic", "system", "skill"), "context that the agent added"),
    **dict.fromkeys(
        ("agent-switched", "model-switched", "location-switched"), "the agent's bookkeeping"
    ),
    "compaction": "summaries of the agent",
    "shell": "commands of the user",
}


class OpencodeParser(SessionParser):
    """Parser of opencode's sessions."""

    agent = "opencode"

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Process the session's own record, or a message with its parts; yield completed turns."""
        if session := fields(record, "session"):
            facts = self.facts
            facts.cwd = text(session, "directory")
            facts.subagent = bool(text(session, "parent_id"))
            self.time({"timestamp": session.get("time_created")})
            title = text(session, "title")
            self.entitle("" if title.startswith(_UNTITLED) else title)
            return
        info = fields(record, "info")
        at, _ = self.time({"timestamp": fields(info, "time").get("created")})
        parts = [fields(each) for each in items(record, "parts")]
        match text(info, "role"):
            case "user":
                yield from self._prompt(text(info, "id"), parts, at)
            case "assistant" if info.get("summary") is True:
                self.leave_out("summaries of the agent")
            case "assistant":
                self._answered(info, parts, at)
            case "idle":
                self.leave_out("the agent's bookkeeping")
                outcome = text(info, "outcome")
                if self.turn and outcome in ("failed", "interrupted"):
                    self.turn.status = "failed" if outcome == "failed" else "interrupted"
            case kind if kind in _MESSAGES_LEFT_OUT:
                self.leave_out(_MESSAGES_LEFT_OUT[kind])
            case kind:
                self.count_unknown("message", kind)

    def _prompt(self, key: str, parts: list[Fields], at: datetime) -> Iterator[PutTurn]:
        said = []
        for part in parts:
            match text(part, "type"):
                case "text" if part.get("synthetic") is True or part.get("ignored") is True:
                    self.leave_out("context that the agent added")
                case "text" | "subtask":
                    said.append((text(part, "text") or text(part, "prompt")).strip())
                case "file":
                    said.append("[image]" if text(part, "mime").startswith("image/") else "")
                case "agent" | "compaction":
                    self.leave_out("the agent's bookkeeping")
                case kind:
                    self._left_out("user", kind)
        if words := "\n\n".join(filter(None, said)):
            yield from self.begin(words, at, key)

    def _answered(self, info: Fields, parts: list[Fields], at: datetime) -> None:
        if (turn := self.answered()) is None:
            return
        key = text(info, "id")
        turn.model = text(info, "modelID") or turn.model
        turn.add_text(key, "", at)
        for part in parts:
            match text(part, "type"):
                case "text":
                    turn.add_text(key, text(part, "text"), at)
                case "reasoning":
                    turn.add_reasoning(text(part, "text"))
                case "tool":
                    self._call(key, part, at)
                case kind:
                    self._left_out("assistant", kind)
        used = fields(info, "tokens")
        used = {**used, **fields(used, "cache")}
        turn.set_usage(key, tokens(used, _FRESH, ("output", "reasoning"), _FRESH[1]))
        if text(fields(info, "error"), "name"):
            is_aborted = text(fields(info, "error"), "name") == "MessageAbortedError"
            turn.status = "interrupted" if is_aborted else "failed"
        elif text(info, "finish") not in ("", "tool-calls", "unknown"):
            self.complete()

    def _call(self, key: str, part: Fields, at: datetime) -> None:
        state = fields(part, "state")
        times = fields(state, "time")
        began = moment(times.get("start"), self.now) or at
        name, given = text(part, "tool"), state.get("input")
        call_id = self.call(key, text(part, "callID"), name, given, began)
        if (status := text(state, "status")) in ("completed", "error"):
            ended = moment(times.get("end"), self.now) or began
            words = words_of(state, "output") or text(state, "error")
            self.answer(call_id, words, ended, failed=status == "error")

    def _left_out(self, where: str, kind: str) -> None:
        if kind in _PARTS_LEFT_OUT:
            self.leave_out(_PARTS_LEFT_OUT[kind])
        else:
            self.count_unknown(where, kind)


# --- finding and reading opencode's sessions -----------------------------------


def sessions_of(file: Path) -> list[FoundFile]:
    """Return the sessions in a database; OSError if it is none of opencode's."""
    with _Database(file) as database:
        size = file.stat().st_size
        updated: dict[str, datetime] = {}
        for table in database.tables:
            for row in database.rows(f"SELECT id, time_updated FROM {table}"):
                name, at = str(row["id"]), _time_of(row["time_updated"], file)
                updated[name] = max(at, updated.get(name, at))
        found = [FoundFile(file, size, at, session=name) for name, at in updated.items()]
        return sorted(found, key=lambda each: (each.changed_at, each.session))


def records_of(found: FoundFile, tally: Tally) -> Iterator[Fields]:
    """Yield the session's record, then its messages, each with its parts; raises OSError."""
    yield from _of_database(found, tally) if found.session else _of_files(found, tally)


def _of_database(found: FoundFile, tally: Tally) -> Iterator[Fields]:
    read = {"session": _of_version_1, "session_v2": _of_version_2}
    with _Database(found.file) as database:
        sessions = {
            table: row
            for table in database.tables
            for row in database.rows(f"SELECT * FROM {table} WHERE id = ?", found.session)
        }
        # The table whose row was changed last counts, or version 2's if that can't be told.
        if sessions:
            changed = {_time_of(row["time_updated"], found.file): row for row in sessions.values()}
            yield {"session": changed[max(changed)]}
        both = [read[table](database, found.session, tally) for table in sessions]
        yield from chain(*_merged(*map(_turns, both))) if len(both) > 1 else chain(*both)


_Turn = list[Fields]
"""A prompt, and the messages up to the next one."""


def _turns(messages: Iterator[Fields]) -> list[_Turn]:
    """Group the messages by turn; the first list has those before any prompt."""
    turns: list[_Turn] = [[]]
    for message in messages:
        if text(fields(message, "info"), "role") == "user":
            turns.append([])
        turns[-1].append(message)
    return turns


def _merged(first: list[_Turn], second: list[_Turn]) -> list[_Turn]:
    """Merge version 2's turns of a session with those that version 1 has added since.

    Version 2 takes over version 1's session, with the ids of its prompts, and both can add to it.
    What comes after the last shared prompt is new; that prompt's turn is taken from where it ended
    later.
    """
    before, *turns = second
    there = {_id(turn): place for place, turn in enumerate(turns)}
    shared = [place for place, turn in enumerate(first) if turn and _id(turn) in there]
    if there and not shared:
        return second  # It can't be told which of the first it has taken over.
    for turn in first[shared[-1] if shared else 1 :]:
        place = there.get(_id(turn))
        if place is None:
            turns.append(turn)
        elif max(map(_created, turn)) > max(map(_created, turns[place])):
            turns[place] = turn
    return [before, *sorted(turns, key=lambda turn: _created(turn[0]))]


def _id(turn: _Turn) -> str:
    return text(fields(turn[0], "info"), "id")


def _created(message: Fields) -> datetime:
    created = fields(message, "info", "time").get("created")
    return moment(created, datetime.now(UTC)) or datetime.min.replace(tzinfo=UTC)


def _of_version_1(database: "_Database", session: str, tally: Tally) -> Iterator[Fields]:
    """Yield the messages of table `message`, each with its parts."""
    messages = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    parts = "SELECT data FROM part WHERE message_id = ? ORDER BY id"
    for row in database.rows(messages, session):
        of_message = database.rows(parts, row["id"])
        decoded_parts = [part for each in of_message if (part := _decoded(each["data"], tally))]
        if info := _decoded(row["data"], tally):
            yield {"info": {**info, "id": row["id"]}, "parts": decoded_parts}


def _of_version_2(database: "_Database", session: str, tally: Tally) -> Iterator[Fields]:
    """Yield the messages of table `session_message` in version 1's form, with their parts."""
    messages = "SELECT id, type, data FROM session_message WHERE session_id = ? ORDER BY seq"
    for row in database.rows(messages, session):
        message = _decoded(row["data"], tally)
        error = fields(message, "error")
        info = {**message, "id": row["id"], "role": row["type"]}
        info |= {"modelID": text(fields(message, "model"), "id")}
        info |= {"error": {"name": text(error, "type") or text(error, "message")}}
        said = [{"type": "text", "text": text(message, "text")}] if row["type"] == "user" else []
        yield {"info": info, "parts": said + [_part(fields(p)) for p in items(message, "content")]}


def _part(part: Fields) -> Fields:
    if text(part, "type") != "tool":
        return part
    state, times = fields(part, "state"), fields(part, "time")
    state = {
        **state,
        "output": state.get("content"),
        "error": text(fields(state, "error"), "message"),
    }
    state |= {"time": {"start": times.get("ran"), "end": times.get("completed")}}
    return {"type": "tool", "callID": part.get("id"), "tool": part.get("name"), "state": state}


def _of_files(found: FoundFile, tally: Tally) -> Iterator[Fields]:
    """Yield what is in `session/<project>/<id>.json`, `message/<id>/` and `part/<message id>/`."""
    session = dict(document(found.file))
    if not session:
        tally.broken["no JSON"] += 1
        return
    session |= {"parent_id": session.get("parentID")}
    session |= {"time_created": fields(session, "time").get("created")}
    yield {"session": session}
    storage = found.file.parents[2]
    for message in sorted((storage / "message" / found.file.stem).glob("*.json")):
        parts = sorted((storage / "part" / message.stem).glob("*.json"))
        info = {**document(message), "id": message.stem}
        yield {"info": info, "parts": [document(part) for part in parts]}


def _decoded(data: object, tally: Tally) -> Fields:
    is_line = isinstance(data, str) and len(data) <= LINE_LIMIT
    found = decoded_line(str(data).encode("utf-8", "replace")) if is_line else None
    if not isinstance(found, dict):
        tally.broken["no JSON object"] += 1
    return fields(found)


def _time_of(value: object, file: Path) -> datetime:
    at = moment(value, datetime.now(UTC))
    return at or datetime.fromtimestamp(file.stat().st_mtime, UTC)


class _Database:
    """Another program's database, opened read-only, without creating files next to it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> "_Database":
        # Without a log next to it nobody has it open, and no file for sharing it need be created.
        file = self._file.parent.resolve() / self._file.name
        log = file.with_name(f"{file.name}-wal")
        how = "mode=ro" if log.exists() else "immutable=1"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
        try:
            self._db = apsw.Connection(f"file:{quote(str(file))}?{how}", flags)
            self._db.set_busy_timeout(2_000)
            self._db.execute("PRAGMA trusted_schema = OFF")
        except apsw.Error as error:
            raise OSError(0, str(error), str(self._file)) from None
        kinds = {row["name"]: row["type"] for row in self.rows("SELECT * FROM sqlite_schema")}
        self.tables = [
            names[0]
            for names in (("session", "message", "part"), ("session_v2", "session_message"))
            if {kinds.get(name) for name in names} == {"table"}
        ]
        """The tables with sessions, by opencode's version: one or both."""
        if not self.tables:
            self._db.close()
            raise OSError(0, _FOREIGN, str(self._file))
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def rows(self, sql: str, *given: object) -> Iterator[dict[str, object]]:
        """Yield the rows of a query by column name; OSError if it can't be read."""
        try:
            cursor = self._db.execute(sql, given)
            for row in cursor:
                names = [column[0] for column in cursor.get_description()]
                yield dict(zip(names, row, strict=True))
        except apsw.SQLError:
            raise OSError(0, _FOREIGN, str(self._file)) from None
        except (apsw.Error, UnicodeDecodeError) as error:
            raise OSError(0, str(error), str(self._file)) from None

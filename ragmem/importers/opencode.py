"""Sessions of opencode: in its SQLite database or, of earlier versions, in files of JSON."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import apsw

from ragmem.importers.jsonl import (
    LINE_LIMIT,
    Fields,
    FoundFile,
    Tally,
    decoded_line,
    document,
    fields,
    items,
    moment,
    text,
)
from ragmem.importers.session_parser import SessionParser, tokens, words_of
from ragmem.records import PutTurn

_FOREIGN = "its tables are not those of opencode"
_UNTITLED = ("New session - ", "Child session - ")
_FRESH = ("input", "read", "write")
_PARTS_LEFT_OUT = {
    "step-start": "the agent's bookkeeping",
    "step-finish": "the agent's bookkeeping",
    "retry": "the agent's bookkeeping",
    "snapshot": "snapshots of files",
    "patch": "snapshots of files",
}
_MESSAGES_LEFT_OUT = {
    "synthetic": "context that the agent added",
    "system": "context that the agent added",
    "skill": "context that the agent added",
    "compaction": "summaries of the agent",
    "shell": "commands of the person",
    "agent-switched": "the agent's bookkeeping",
    "model-switched": "the agent's bookkeeping",
    "location-switched": "the agent's bookkeeping",
}


class OpencodeParser(SessionParser):
    """Turns of one session."""

    agent = "opencode"

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Take the session itself, or a message with its parts; the turns that it completes."""
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
                self._went_idle(text(info, "outcome"))
            case kind if kind in _MESSAGES_LEFT_OUT:
                self.leave_out(_MESSAGES_LEFT_OUT[kind])
            case kind:
                self.wonder("message", kind)

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
            yield from self.end(over=True)
            self.begin(words, at, key)

    def _answered(self, info: Fields, parts: list[Fields], at: datetime) -> None:
        if (turn := self.answered()) is None:
            return
        key = text(info, "id")
        turn.model = text(info, "modelID") or turn.model
        turn.say(key, "", at)
        for part in parts:
            match text(part, "type"):
                case "text":
                    turn.say(key, text(part, "text"), at)
                case "reasoning":
                    turn.think(text(part, "text"))
                case "tool":
                    self._call(key, part, at)
                case kind:
                    self._left_out("assistant", kind)
        used = fields(info, "tokens")
        used = {**used, **fields(used, "cache")}
        if usage := tokens(used, _FRESH, ("output", "reasoning"), _FRESH[1]):
            turn.spend(key, usage)
        if text(fields(info, "error"), "name"):
            is_aborted = text(fields(info, "error"), "name") == "MessageAbortedError"
            turn.status = "interrupted" if is_aborted else "failed"
        elif text(info, "finish") not in ("", "tool-calls", "unknown"):
            self.complete()

    def _went_idle(self, outcome: str) -> None:
        self.leave_out("the agent's bookkeeping")
        if self.turn and outcome in ("failed", "interrupted"):
            self.turn.status = "failed" if outcome == "failed" else "interrupted"

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
            self.wonder(where, kind)


# --- where they lie ------------------------------------------------------------


def sessions_of(file: Path) -> list[FoundFile]:
    """The sessions of a database. OSError where it is none of opencode's."""
    with _Database(file) as database:
        size = file.stat().st_size
        # Version 2 has taken over the sessions of version 1, and leaves those as they were.
        updated = {
            str(row["id"]): row["time_updated"]
            for table in database.tables
            for row in database.rows(f"SELECT id, time_updated FROM {table}")
        }
        found = [FoundFile(file, size, _at(at, file), session=name) for name, at in updated.items()]
        return sorted(found, key=lambda each: (each.changed_at, each.session))


def records_of(found: FoundFile, tally: Tally) -> Iterator[Fields]:
    """The session, then its messages, each with its parts. OSError."""
    yield from _of_database(found, tally) if found.session else _of_files(found, tally)


def _of_database(found: FoundFile, tally: Tally) -> Iterator[Fields]:
    messages = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    parts = "SELECT data FROM part WHERE message_id = ? ORDER BY id"
    with _Database(found.file) as database:
        if "session_v2" in database.tables:
            sessions = database.rows("SELECT * FROM session_v2 WHERE id = ?", found.session)
            if session := next(sessions, None):
                yield {"session": session}
                yield from _of_version_2(database, found.session, tally)
                return
        for row in database.rows("SELECT * FROM session WHERE id = ?", found.session):
            yield {"session": row}
        for row in database.rows(messages, found.session):
            of_message = database.rows(parts, row["id"])
            told = [_decoded(each["data"], tally) for each in of_message]
            yield {"info": {**_decoded(row["data"], tally), "id": row["id"]}, "parts": told}


def _of_version_2(database: "_Database", session: str, tally: Tally) -> Iterator[Fields]:
    """Messages of `session_message`, each with its parts within, as version 1 has them."""
    messages = "SELECT id, type, data FROM session_message WHERE session_id = ? ORDER BY seq"
    for row in database.rows(messages, session):
        told = _decoded(row["data"], tally)
        error = fields(told, "error")
        info = {**told, "id": row["id"], "role": row["type"]}
        info |= {"modelID": text(fields(told, "model"), "id")}
        info |= {"error": {"name": text(error, "type") or text(error, "message")}}
        said = [{"type": "text", "text": text(told, "text")}] if row["type"] == "user" else []
        yield {"info": info, "parts": said + [_part(fields(p)) for p in items(told, "content")]}


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
    """`session/<project>/<id>.json`, with `message/<id>/` and `part/<id of a message>/` beside."""
    told = dict(document(found.file))
    if not told:
        tally.broken["no JSON"] += 1
        return
    told |= {"parent_id": told.get("parentID")}
    told |= {"time_created": fields(told, "time").get("created")}
    yield {"session": told}
    storage = found.file.parents[2]
    for message in sorted((storage / "message" / found.file.stem).glob("*.json")):
        parts = sorted((storage / "part" / message.stem).glob("*.json"))
        info = {**document(message), "id": message.stem}
        yield {"info": info, "parts": [document(part) for part in parts]}


def _decoded(data: object, tally: Tally) -> Fields:
    if not isinstance(data, str) or len(data) > LINE_LIMIT:
        tally.broken["no JSON object"] += 1
        return {}
    return fields(decoded_line(data.encode("utf-8", "replace")))


def _at(value: object, file: Path) -> datetime:
    told = moment(value, datetime.now(UTC))
    return told or datetime.fromtimestamp(file.stat().st_mtime, UTC)


class _Database:
    """Another program's database, only read: nothing is written beside it either."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> "_Database":
        # Without a log beside it nobody has it open, and no file need be made to share it.
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
        """Those of sessions, by version of opencode: one or both."""
        if not self.tables:
            self._db.close()
            raise OSError(0, _FOREIGN, str(self._file))
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def rows(self, sql: str, *given: object) -> Iterator[dict[str, object]]:
        """The rows of a query by their columns' names. OSError where it can't be read."""
        try:
            cursor = self._db.execute(sql, given)
            for row in cursor:
                names = [column[0] for column in cursor.get_description()]
                yield dict(zip(names, row, strict=True))
        except apsw.SQLError:
            raise OSError(0, _FOREIGN, str(self._file)) from None
        except (apsw.Error, UnicodeDecodeError) as error:
            raise OSError(0, str(error), str(self._file)) from None

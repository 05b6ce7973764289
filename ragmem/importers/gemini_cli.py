"""Sessions of Gemini CLI: `session-*.jsonl`, in which a message is written again as it grows."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from ragmem.importers.jsonl import (
    Fields,
    FoundFile,
    Tally,
    document,
    fields,
    items,
    moment,
    opened,
    text,
)
from ragmem.importers.session_parser import SessionParser, tokens, words_of
from ragmem.records import PutTurn

_ADDED = re.compile(r"<(?:session_context|state_snapshot|hook_context|system_note)\b")
_PATH_BYTES = 4096


class GeminiCliParser(SessionParser):
    """Turns of one session file, from the last that it says of each message."""

    agent = "gemini-cli"

    def __init__(
        self, found: FoundFile, tally: Tally, *, now: datetime, titles: Mapping[str, str]
    ) -> None:
        super().__init__(found, tally, now=now, titles=titles)
        # …/tmp/<a name for the folder>/chats/session-….jsonl
        self.facts.cwd = _folder_of(found.file.parent.parent)
        self._messages: dict[str, Fields] = {}

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Take one record; nothing is complete before the last one."""
        yield from ()
        if "$set" in record or ("sessionId" in record and "type" not in record):
            self._note(fields(record, "$set") or record)
        elif "$rewindTo" in record:
            self.leave_out("the agent's bookkeeping")
        elif message_id := text(record, "id"):
            self._messages[message_id] = record
        else:
            self.wonder("", text(record, "type"))

    def finish(self) -> Iterator[PutTurn]:
        """The file has ended: its turns."""
        for message_id, record in self._messages.items():
            yield from self._message(message_id, record)
        yield from super().finish()

    def _note(self, told: Fields) -> None:
        facts = self.facts
        if foreign_id := text(told, "sessionId"):
            self.identify(foreign_id)
        facts.subagent = facts.subagent or told.get("kind") == "subagent"
        self.time({"timestamp": told.get("startTime")})
        if "messages" in told:
            self.leave_out("summaries of the agent")
        self.entitle(text(told, "summary"))

    def _message(self, message_id: str, record: Fields) -> Iterator[PutTurn]:
        at, _ = self.time(record)
        match text(record, "type"):
            case "user":
                words = _words(record, "displayContent") or _words(record, "content")
                if not words or _ADDED.match(words):
                    self.leave_out("context that the agent added")
                    return
                yield from self.end(over=True)
                self.begin(words, at, message_id)
            case "gemini":
                self._answered(message_id, record, at)
            case "info" | "warning" | "error" as kind:
                self.leave_out("notes of the agent")
                if self.turn and kind == "error":
                    self.turn.status = "failed"
            case kind:
                self.wonder("message", kind)

    def _answered(self, key: str, record: Fields, at: datetime) -> None:
        if (turn := self.answered()) is None:
            return
        turn.model = text(record, "model") or turn.model
        turn.say(key, _words(record, "content"), at)
        for thought in map(fields, items(record, "thoughts")):
            parts = (text(thought, "subject"), text(thought, "description"))
            turn.think("\n".join(filter(None, parts)))
        used = fields(record, "tokens")
        if usage := tokens(used, ("input",), ("output", "thoughts"), "cached"):
            turn.spend(key, usage)
        for each in map(fields, items(record, "toolCalls")):
            call_id = self.call(key, text(each, "id"), text(each, "name"), each.get("args"), at)
            if (status := text(each, "status")) in ("success", "error", "cancelled"):
                when = moment(each.get("timestamp"), self.now) or at
                self.answer(call_id, _result(each), when, failed=status != "success")


def _words(record: Fields, name: str) -> str:
    """A text, a part, or parts."""
    content = record.get(name)
    return words_of({name: [content] if isinstance(content, dict) else content}, name).strip()


def _result(call: Fields) -> str:
    said = []
    for part in map(fields, items(call, "result")):
        told = fields(part, "functionResponse", "response")
        said.append(text(told, "output") or text(told, "error") or text(part, "text"))
    return "\n".join(filter(None, said)) or text(call, "resultDisplay")


def _folder_of(place: Path) -> str:
    """The folder whose sessions lie here: named by its path's hash, or by a name of its own."""
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

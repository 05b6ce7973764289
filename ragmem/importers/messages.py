"""Sessions of agents that keep messages: kimi-cli and mistral-vibe, and Gemini CLI."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import md5, sha256
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

_ADDED = re.compile(r"<(?:system|system-reminder|vibe_warning|vibe_stop_event)>")
_FAILED = re.compile(r"<tool_error>|<user_cancellation>|<system>ERROR:")
_KEY_CHARS = 200


class MessagesParser(SessionParser):
    """Turns of messages with a `role`, a `content` and `tool_calls`."""

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Take one record; the turns that it completes."""
        at, _ = self.time(record)
        words = words_of(record)
        match text(record, "role"):
            case "user" if record.get("injected") is True or _ADDED.match(words):
                self.leave_out("context that the agent added")
            case "user" if words.strip():
                yield from self.end(over=True)
                self.begin(words.strip(), at)
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
                self.wonder("message", kind)

    def _assistant(self, record: Fields, words: str, at: datetime) -> None:
        if (turn := self.answered()) is None:
            return
        key = self.next_name()
        turn.say(key, words, at)
        thoughts = [text(fields(each), "think") for each in items(record, "content")]
        turn.think("\n\n".join(filter(None, [*thoughts, text(record, "reasoning_content")])))
        for each in map(fields, items(record, "tool_calls")):
            asked = fields(each, "function")
            self.call(key, text(each, "id"), text(asked, "name"), asked.get("arguments"), at)


class MistralVibeParser(MessagesParser):
    """A session of mistral-vibe: `messages.jsonl` with `meta.json` beside it; once one file.

    Its messages have no times: they have the session's.
    """

    agent = "mistral-vibe"

    def __init__(
        self, found: FoundFile, tally: Tally, *, now: datetime, titles: Mapping[str, str]
    ) -> None:
        super().__init__(found, tally, now=now, titles=titles)
        self._model = ""
        if found.file.suffix != ".json":
            self._note(document(found.file.parent / "meta.json"))

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Take one record; the turns that it completes."""
        if "role" not in record and "metadata" in record:
            self._note(fields(record, "metadata"))
            return
        yield from super().feed(record)
        if self.turn and self._model:
            self.turn.model = self._model

    def _note(self, metadata: Fields) -> None:
        facts = self.facts
        if foreign_id := text(metadata, "session_id"):
            self.identify(foreign_id)
        facts.forked_from = text(metadata, "parent_session_id")
        facts.cwd = text(fields(metadata, "environment"), "working_directory")
        self.entitle(text(metadata, "title") if metadata.get("title_source") == "manual" else "")
        facts.started_at = moment(metadata.get("start_time"), self.now)
        facts.last_at = moment(metadata.get("end_time"), self.now) or facts.last_at
        self._model = text(fields(metadata, "config"), "active_model")

    def time(self, record: Fields) -> tuple[datetime, bool]:
        """When the session began."""
        return self.facts.started_at or self.facts.last_at, False


class KimiCliParser(MessagesParser):
    """A session of kimi-cli: its events in `wire.jsonl`, of older versions `context.jsonl`."""

    agent = "kimi-cli"

    def __init__(
        self, found: FoundFile, tally: Tally, *, now: datetime, titles: Mapping[str, str]
    ) -> None:
        alone = found.file.stem not in ("wire", "context")
        folder = found.file.with_suffix("") if alone else found.file.parent
        super().__init__(found, tally, now=now, titles=titles)
        self.identify(folder.name)
        for name, title in (("metadata.json", "title"), ("state.json", "custom_title")):
            told = text(document(folder / name), title)
            self.entitle("" if told == "Untitled" else told)
        # The folder's name is made of the one that the session was held in.
        known = document(folder.parent.parent.parent / "kimi.json")
        for each in map(fields, items(known, "work_dirs")):
            path = text(each, "path")
            if folder.parent.name.endswith(md5(path.encode(), usedforsecurity=False).hexdigest()):
                self.facts.cwd = path
        self._step = ""

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Take one record; the turns that it completes."""
        if "role" in record:
            yield from super().feed(record)
            return
        at, _ = self.time(record)
        message = fields(record, "message")
        kind, payload = text(message, "type"), fields(message, "payload")
        if kind in ("TurnBegin", "SteerInput"):
            if words := words_of(payload, "user_input").strip():
                yield from self.end(over=True)
                self._step = self.next_name()
                self.begin(words, at, f"{at.isoformat()} {words[:_KEY_CHARS]}")
        elif kind in ("ContentPart", "ToolCall") and self.answered() is None:
            return
        elif kind == "ToolResult":
            answer = fields(payload, "return_value")
            words = words_of(answer, "output") or text(answer, "message")
            failed = answer.get("is_error") is True
            self.answer(text(payload, "tool_call_id"), words, at, failed=failed)
        else:
            self._event(kind, payload, at)

    def _event(self, kind: str, payload: Fields, at: datetime) -> None:
        turn = self.turn
        if kind == "TurnEnd":
            self.complete()
        elif kind == "StepBegin":
            self._step = self.next_name()
        elif kind == "StepInterrupted" and turn:
            turn.status = "interrupted"
        elif kind == "ContentPart" and turn:
            turn.think(text(payload, "think"))
            turn.say(self._step, words_of({"content": [payload]}), at)
        elif kind == "ToolCall":
            asked = fields(payload, "function")
            name, arguments = text(asked, "name"), asked.get("arguments")
            self.call(self._step, text(payload, "id"), name, arguments, at)
        elif kind == "StatusUpdate" and turn:
            used = fields(payload, "token_usage")
            fresh = ("input_other", "input_cache_read", "input_cache_creation")
            if usage := tokens(used, fresh, ("output",), fresh[1]):
                turn.spend(self._step, usage)
        elif kind == "SubagentEvent":
            self.leave_out("messages of subagents")
        elif kind in _EVENTS_LEFT_OUT or (not kind):
            self.leave_out("the agent's bookkeeping")
        else:
            self.wonder("message", kind)


_EVENTS_LEFT_OUT = {
    "StepInterrupted", "StatusUpdate", "ToolCallPart", "ApprovalRequest", "ApprovalResponse",
    "ApprovalRequestResolved", "CompactionBegin", "CompactionEnd", "HookTriggered",
    "HookResolved", "MCPLoadingBegin", "MCPLoadingEnd", "Notification", "PlanDisplay",
    "QuestionRequest", "ToolCallRequest", "HookRequest", "StepRetry", "BtwBegin", "BtwEnd",
}  # fmt: skip


# --- Gemini CLI ---------------------------------------------------------------

_GEMINI_ADDED = re.compile(r"<(?:session_context|state_snapshot|hook_context|system_note)\b")
_PATH_BYTES = 4096


class GeminiCliParser(SessionParser):
    """Turns of one session file, from the last that it says of each message."""

    agent = "gemini-cli"

    def __init__(
        self, found: FoundFile, tally: Tally, *, now: datetime, titles: Mapping[str, str]
    ) -> None:
        super().__init__(found, tally, now=now, titles=titles)
        # …/tmp/<a name for the folder>/chats/session-….jsonl
        self.facts.cwd = _gemini_folder(found.file.parent.parent)
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
                words = _gemini_words(record, "displayContent") or _gemini_words(record, "content")
                if not words or _GEMINI_ADDED.match(words):
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
        turn.say(key, _gemini_words(record, "content"), at)
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
                self.answer(call_id, _gemini_result(each), when, failed=status != "success")


def _gemini_words(record: Fields, name: str) -> str:
    """A text, a part, or parts."""
    content = record.get(name)
    return words_of({name: [content] if isinstance(content, dict) else content}, name).strip()


def _gemini_result(call: Fields) -> str:
    said = []
    for part in map(fields, items(call, "result")):
        told = fields(part, "functionResponse", "response")
        said.append(text(told, "output") or text(told, "error") or text(part, "text"))
    return "\n".join(filter(None, said)) or text(call, "resultDisplay")


def _gemini_folder(place: Path) -> str:
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

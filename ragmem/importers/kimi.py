"""Sessions of kimi-cli and of its successor Kimi Code, which has taken over some of them."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from hashlib import md5

from ragmem.importers import (
    Fields,
    FoundFile,
    Tally,
    document,
    fields,
    items,
    opened,
    records,
    text,
)
from ragmem.importers.messages import ADDED, MessagesParser
from ragmem.importers.session_parser import session_id_of, tokens, words_of
from ragmem.records import PutTurn


class KimiCliParser(MessagesParser):
    """Parser of kimi-cli's sessions: events in `wire.jsonl`, formerly `context.jsonl`."""

    agent = "kimi-cli"

    def start(self, found: FoundFile) -> None:
        """See `SessionParser.start`."""
        alone = found.file.stem not in ("wire", "context")
        folder = found.file.with_suffix("") if alone else found.file.parent
        self.identify(folder.name)
        for name, title in (("metadata.json", "title"), ("state.json", "custom_title")):
            given = text(document(folder / name), title)
            self.entitle("" if given == "Untitled" else given)
        # The parent folder's name is a hash of the session's working directory.
        known = document(folder.parent.parent.parent / "kimi.json")
        for each in map(fields, items(known, "work_dirs")):
            path = text(each, "path")
            if folder.parent.name.endswith(md5(path.encode(), usedforsecurity=False).hexdigest()):
                self.facts.cwd = path
        self._step = ""

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Process one record; yield the turns that it completes."""
        if "role" in record:
            yield from super().feed(record)
            return
        at, _ = self.time(record)
        message = fields(record, "message")
        kind, payload = text(message, "type"), fields(message, "payload")
        if kind in ("TurnBegin", "SteerInput"):
            if words := words_of(payload, "user_input").strip():
                self._step = self.next_name()
                yield from self.begin(words, at, prefix=f"{at.isoformat()} ")
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
            turn.add_reasoning(text(payload, "think"))
            turn.add_text(self._step, words_of({"content": [payload]}), at)
        elif kind == "ToolCall":
            asked = fields(payload, "function")
            name, arguments = text(asked, "name"), asked.get("arguments")
            self.call(self._step, text(payload, "id"), name, arguments, at)
        elif kind == "StatusUpdate" and turn:
            used = fields(payload, "token_usage")
            fresh = ("input_other", "input_cache_read", "input_cache_creation")
            turn.set_usage(self._step, tokens(used, fresh, ("output",), fresh[1]))
        elif kind == "SubagentEvent":
            self.leave_out("subagent messages")
        elif kind in _EVENTS_LEFT_OUT or (not kind):
            self.leave_out("the agent's bookkeeping")
        else:
            self.count_unknown("message", kind)


_EVENTS_LEFT_OUT = {
    "StepInterrupted", "StatusUpdate", "ToolCallPart", "ApprovalRequest", "ApprovalResponse",
    "ApprovalRequestResolved", "CompactionBegin", "CompactionEnd", "HookTriggered",
    "HookResolved", "MCPLoadingBegin", "MCPLoadingEnd", "Notification", "PlanDisplay",
    "QuestionRequest", "ToolCallRequest", "HookRequest", "StepRetry", "BtwBegin", "BtwEnd",
}  # fmt: skip


_COMMANDS = {
    "skill_activation": ("skillName", "skillArgs"),
    "plugin_command": ("commandName", "commandArgs"),
}
"""Origins of prompts that stand for a typed command, with the fields that name it."""
_LEFT_OUT_ORIGINS = {
    "shell_command": "commands of the user",
    "compaction_summary": "summaries of the agent",
}
_KNOWN_PREFIXES = {
    "config", "context", "cron", "forked", "full_compaction", "goal", "interaction",
    "interruptionReminder", "llm", "mcp", "metadata", "micro_compaction", "permission", "plan",
    "plan_mode", "plugin", "profile", "prompt", "runtime", "staleGuard", "swarm_mode", "task",
    "token_counting", "tools", "tower_mode", "turn", "usage",
}  # fmt: skip
"""Prefixes, up to a dot, of the kinds of records that are no part of the conversation."""
_NOT_FINAL = ("", "tool_use", "tool_calls", "interrupted", "error")
"""Finish reasons of a step after which its turn goes on."""


class KimiCodeParser(MessagesParser):
    """Parser of Kimi Code's sessions: `<session>/agents/main/wire.jsonl` with `state.json`.

    One that was taken over from kimi-cli begins with the turns of that session.
    """

    agent = "kimi-code"

    def start(self, found: FoundFile) -> None:
        """See `SessionParser.start`."""
        home, facts = found.file.parent, self.facts
        facts.subagent = home.name != "main"
        folder = home.parent.parent
        self.identify(folder.name)
        state = document(folder / "state.json")
        custom = fields(state, "custom")
        if state.get("isCustomTitle") is True or text(state, "titleKind") == "generated":
            self.entitle(text(state, "title"))
        if parent := text(state, "forkedFrom"):
            facts.forked_from = session_id_of(self.agent, parent)
        elif custom.get("imported_from_kimi_cli") is True:
            before = text(custom, "kimi_cli_session_id")
            facts.forked_from = session_id_of("kimi-cli", before) if before else ""
        folders = (text(state, "cwd"), text(state, "workDir"), text(custom, "cwd"))
        facts.cwd = next(filter(None, folders), "") or _listed_folder(found, folder.name)
        self.time({"timestamp": state.get("createdAt")})
        self._step = ""
        self._meanwhile: set[str] = set()
        """What the user typed while a turn was running, until it occurs as a message."""

    def time(self, record: Fields) -> tuple[datetime, bool]:
        """Return the time of a record, and whether it is the record's own."""
        return super().time({"timestamp": record.get("time", record.get("timestamp"))})

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Process one record; yield the turns that it completes."""
        at, _ = self.time(record)
        match kind := text(record, "type"):
            case "context.append_message":
                yield from self._message(fields(record, "message"), at)
            case "context.append_loop_event":
                self._event(fields(record, "event"), at)
            case "usage.record" if record.get("usageScope") != "session":
                self._spent(record)
            case "turn.steer" if text(fields(record, "origin"), "kind") in ("", "user"):
                self._meanwhile.add(words_of(record, "input").strip())
            case "turn.cancel" if self.turn and record.get("target") != "queued":
                self.turn.status = "interrupted"
            case "turn.ended":
                reason = text(record, "reason")
                if reason == "completed":
                    self.complete()
                elif self.turn and reason in ("cancelled", "failed", "blocked"):
                    self.turn.status = "interrupted" if reason == "cancelled" else "failed"
            case "context.apply_compaction":
                self.leave_out("summaries of the agent")
            case _ if kind.split(".")[0] in _KNOWN_PREFIXES:
                if kind == "config.update" and not self.facts.cwd:
                    self.facts.cwd = text(record, "cwd")
                self.leave_out("the agent's bookkeeping")
            case _:
                self.count_unknown("", kind)

    def _message(self, message: Fields, at: datetime) -> Iterator[PutTurn]:
        if text(message, "role") != "user":
            yield from super().feed(_in_old_form(message))
            return
        origin = fields(message, "origin")
        kind = text(origin, "kind")
        if kind in ("", "user"):
            # The texts of named skills come before what the user wrote.
            parts = items(message, "content")[len(items(origin, "skillActivations")) :]
            yield from self._prompt(words_of({"content": list(parts)}).strip(), at)
        elif kind in _COMMANDS and origin.get("trigger") == "user-slash":
            named = (text(origin, name) for name in _COMMANDS[kind])
            yield from self._prompt(f"/{' '.join(filter(None, named))}", at)
        else:
            self.leave_out(_LEFT_OUT_ORIGINS.get(kind, "context that the agent added"))

    def _prompt(self, words: str, at: datetime) -> Iterator[PutTurn]:
        steered = words in self._meanwhile
        self._meanwhile.discard(words)
        if ADDED.match(words):
            self.leave_out("context that the agent added")
        elif steered and self.turn and self.turn.status is None:
            self.turn.add_user_message(words)
        elif words:
            self._step = self.next_name()
            yield from self.begin(words, at, prefix=f"{at.isoformat()} ")

    def _event(self, event: Fields, at: datetime) -> None:
        kind = text(event, "type")
        if kind == "tool.result":
            result = fields(event, "result")
            words, failed = words_of(result, "output"), result.get("isError") is True
            self.answer(text(event, "toolCallId"), words, at, failed=failed)
            return
        if (turn := self.answered()) is None:
            return
        match kind:
            case "step.begin":
                self._step = text(event, "uuid") or self.next_name()
            case "content.part":
                part = fields(event, "part")
                turn.add_reasoning(text(part, "think"))
                turn.add_text(self._step, words_of({"content": [part]}), at)
            case "tool.call":
                call_id, name = text(event, "toolCallId"), text(event, "name")
                self.call(self._step, call_id, name, event.get("args"), at)
            case "step.end" if text(event, "finishReason") not in _NOT_FINAL:
                self.complete()
            case "step.end":
                pass
            case _:
                self.count_unknown("event", kind)

    def _spent(self, record: Fields) -> None:
        if self.turn is None:
            return
        self.turn.model = text(record, "model") or self.turn.model
        fresh = ("inputOther", "inputCacheRead", "inputCacheCreation")
        used = fields(record, "usage")
        self.turn.set_usage(self._step, tokens(used, fresh, ("output",), fresh[1]))


def _in_old_form(message: Fields) -> Fields:
    """Return a message of the model or of a tool with kimi-cli's field names."""
    calls = [
        {"id": each.get("id"), "function": fields(each, "function") or each}
        for each in map(fields, items(message, "toolCalls"))
    ]
    return {**message, "tool_calls": calls, "tool_call_id": message.get("toolCallId")}


def _listed_folder(found: FoundFile, name: str) -> str:
    """Return a session's folder from the list of all sessions, `session_index.jsonl`."""
    index = found.file.parents[min(5, len(found.file.parents) - 1)] / "session_index.jsonl"
    folders: dict[str, str] = {}
    with suppress(OSError), opened(index) as source:
        for record in records(source, Tally()):
            if folder := text(record, "workDir"):
                folders[text(record, "sessionId")] = folder
    return folders.get(name, "")

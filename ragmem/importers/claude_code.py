"""Sessions of Claude Code: turns, and prompts that were typed while it worked."""

import re
from collections import deque
from collections.abc import Iterator
from datetime import datetime

import msgspec

from ragmem.importers import Fields, FoundFile, fields, items, text
from ragmem.importers.session_parser import (
    SessionParser,
    TurnBuilder,
    found_by,
    session_id_of,
    tokens,
)
from ragmem.records import PutTurn


class Queued(msgspec.Struct, frozen=True):
    """A prompt in the queue, or taken from it."""

    words: str
    key: str
    at: datetime


class Queue:
    """Prompts typed while the model worked, until they have a record of their own.

    Such a record comes before the next answer, or never: then the queue has the only copy. A prompt
    that still waits at the end of the file may get its record later, if the file may still grow.
    """

    def __init__(self) -> None:
        self._waiting: deque[Queued] = deque()
        self._taken: list[Queued] = []
        self._early_records = 0
        """Number of records that came before the log said that their prompts were taken."""
        self._late_records: list[str] = []

    def put(self, prompt: Queued) -> None:
        """Add a prompt that was typed."""
        self._waiting.append(prompt)

    def take(self) -> None:
        """Take the first waiting prompt: it is sent to the model."""
        if self._early_records:
            self._early_records -= 1
        elif self._waiting:
            self._taken.append(self._waiting.popleft())

    def give_back(self) -> None:
        """Drop the waiting prompts: they are drafts again, and were not sent."""
        self._waiting.clear()

    def is_told(self, words: str) -> bool:
        """Match a record to a queued prompt; return whether its words are in a turn already."""
        if words in self._late_records:
            self._late_records.remove(words)
            return True
        for queue, is_early in ((self._taken, False), (self._waiting, True)):
            for prompt in queue:
                if prompt.words == words:
                    queue.remove(prompt)
                    self._early_records += is_early
                    return False
        return False

    def left(self) -> list[Queued]:
        """Return the prompts that still wait."""
        return list(self._waiting)

    def overdue(self) -> list[Queued]:
        """Return the taken prompts that have no record although the model answers now."""
        found, self._taken = self._taken, []
        self._late_records += [prompt.words for prompt in found]
        return found


_FRESH = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_SYNTHETIC = "<synthetic>"
_INTERRUPTED = "[Request interrupted by user"
_USER_ORIGINS = ("", "human", "user")
"""Origins of the user's own prompts, if an origin is given."""
_BOOKKEEPING = {
    "file-history-snapshot": "file snapshots",
    "attachment": "context that the agent added",
    "system": "system notices",
} | dict.fromkeys(
    (
        *("queue-operation", "progress", "last-prompt", "mode", "permission-mode", "agent-name"),
        *("agent-setting", "pr-link", "tag", "worktree-state", "content-replacement", "result"),
    ),
    "the agent's bookkeeping",
)
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
_RANKS = {"summary": 1, "ai-title": 2, "custom-title": 3}
# Texts of the agent in the place of the user's words.
_ADDED = re.compile(
    r"<(?:system-reminder|task-notification|local-command-|bash-|ide_|user-memory-input"
    r"|user-prompt-submit-hook|teammate-message|cross-session-message|channel|new-diagnostics"
    r"|agent-notification|tool_use_error)"
    r"|Caveat: The messages below were generated"
    r"|This session is being continued from a previous conversation"
)


class ClaudeCodeParser(SessionParser):
    """Parser of Claude Code's session files; titles of messages may be in other files."""

    agent = "claude-code"

    def start(self, found: FoundFile) -> None:
        """See `SessionParser.start`."""
        self.facts.subagent = found.file.stem.startswith("agent-")
        self._folder = found.file.parent.name
        self._title_rank = 0
        self._seen: set[str] = set()
        self._queue = Queue()

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Process one record; yield the turns that it completes."""
        kind = text(record, "type")
        if kind in _TITLES:
            # A summary may be another session's: it names the message that it ends with.
            self._name(kind, text(record, _TITLES[kind]), text(record, "leafUuid"))
            return
        uuid = text(record, "uuid")
        if uuid:
            if uuid in self._seen:
                self.leave_out("repeated records")
                return
            self._seen.add(uuid)
            if title := self._titles.get(uuid):
                self._name("summary", title)
        at, _ = self.time(record)
        self.facts.cwd = self.facts.cwd or text(record, "cwd")
        self._note_fork(record)
        if record.get("isSidechain") is True:
            self.leave_out("subagent messages")
        elif kind == "user":
            yield from self._user(record, uuid, at)
        elif kind == "assistant":
            yield from self._add_overdue()
            self._assistant(record, at)
        elif kind == "attachment" and self._is_queued_prompt(record):
            yield from self._prompt(fields(record, "attachment").get("prompt"), uuid, at)
        elif kind in _BOOKKEEPING:
            if kind == "queue-operation":
                self._queue_operation(record, at)
            if kind == "system" and text(record, "subtype") == "turn_duration":
                self.complete()
            self.leave_out(_BOOKKEEPING[kind])
        else:
            self.count_unknown("", kind)

    def finish(self) -> Iterator[PutTurn]:
        """End the last turn with the file; it is complete if nothing more is expected of it."""
        if not self.facts.cwd and self._folder.startswith("-"):
            # A guess: the name of the folder with the file is made from it.
            self.facts.cwd = self._folder.replace("-", "/")
        yield from self._add_overdue()
        # Prompts still waiting in a session that is over will get no record.
        for prompt in self._queue.left() if self.is_quiet else ():
            yield from self._said(prompt.words, prompt.key, prompt.at)
        yield from super().finish()

    def end(self, *, over: bool) -> Iterator[PutTurn]:
        """End the current turn, but drop a command that the agent itself has answered."""
        if self.turn and self.turn.is_bare and self.turn.prompt.startswith("/"):
            self.turn = None
            self.leave_out("agent commands")
        yield from super().end(over=over)

    def _note_fork(self, record: Fields) -> None:
        """Note the session that this one was forked from: it begins with that one's records."""
        facts = self.facts
        source_id = text(fields(record, "forkedFrom"), "sessionId") or text(record, "sessionId")
        if self._is_beginning and source_id and source_id != facts.foreign_id:
            facts.forked_from = facts.forked_from or session_id_of(self.agent, source_id)

    def _name(self, kind: str, title: str, leaf: str = "") -> None:
        if leaf and leaf not in self._seen:
            return
        rank = _RANKS[kind]
        if title.strip() and rank >= self._title_rank:
            self.entitle(title)
            self._title_rank = rank

    def _user(self, record: Fields, uuid: str, at: datetime) -> Iterator[PutTurn]:
        content = fields(record, "message").get("content")
        for block in content if isinstance(content, list) else ():
            if text(fields(block), "type") == "tool_result":
                self._tool_result(fields(block), record, at)
        added = record.get("isMeta") is True or record.get("isCompactSummary") is True
        if added or text(fields(record, "origin"), "kind") not in _USER_ORIGINS:
            self.leave_out("context that the agent added")
        else:
            yield from self._prompt(content, uuid, at)

    def _prompt(self, content: object, uuid: str, at: datetime) -> Iterator[PutTurn]:
        words = self._words(content)
        if not words:
            return
        if words.startswith(_INTERRUPTED):
            if self.turn:
                self.turn.status = "interrupted"
            return
        if not self._queue.is_told(words):
            yield from self._said(words, uuid, at)

    def _add_overdue(self) -> Iterator[PutTurn]:
        """Add taken prompts without a record to the turn that was running when they were taken."""
        for prompt in self._queue.overdue():
            if self.turn and self.turn.status is None:
                self.turn.add_user_message(prompt.words)
            else:
                yield from self._said(prompt.words, prompt.key, prompt.at)

    def _said(self, words: str, key: str, at: datetime) -> Iterator[PutTurn]:
        if self.turn and self.turn.is_bare and self.turn.prompt == words:
            return  # a prompt that waited in the queue has two records
        yield from self.begin(words, at, key)

    def _queue_operation(self, record: Fields, at: datetime) -> None:
        match text(record, "operation"):
            case "enqueue" if words := self._words(record.get("content") or ""):
                self._queue.put(Queued(words, f"queued {text(record, 'timestamp')}", at))
            case "dequeue" | "remove":
                self._queue.take()
            case "popAll":
                self._queue.give_back()

    def _words(self, content: object) -> str:
        """Return what the user typed; empty if all of it is the agent's."""
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        said = []
        for block in map(fields, blocks):
            kind = text(block, "type")
            if kind == "text":
                said.append(self._typed(text(block, "text")))
            elif kind in ("image", "document"):
                said.append(f"[{kind}]")
            elif kind != "tool_result":
                self.count_unknown("user", kind)
        return "\n\n".join(filter(None, said))

    def _typed(self, words: str) -> str:
        words = _without_reminders(words).strip()
        if words.startswith("<command-") and (command := _between(words, "command-name")):
            return f"{command} {_between(words, 'command-args')}".strip()
        if _ADDED.match(words):
            self.leave_out("context that the agent added")
            return ""
        return words

    def _is_queued_prompt(self, record: Fields) -> bool:
        attachment = fields(record, "attachment")
        return (
            text(attachment, "type") == "queued_command"
            and text(attachment, "commandMode") in ("", "prompt")
            and text(fields(attachment, "origin"), "kind") in _USER_ORIGINS
        )

    def _tool_result(self, block: Fields, record: Fields, at: datetime) -> None:
        call_id = text(block, "tool_use_id")
        name = self.turn.tool_of(call_id) if self.turn else None
        files = found_by(name or "", fields(record, "toolUseResult"))
        failed = block.get("is_error") is True
        self.answer(call_id, _result_text(block), at, failed=failed, files=files)

    def _assistant(self, record: Fields, at: datetime) -> None:
        message = fields(record, "message")
        if (turn := self.answered()) is None:
            return
        if text(message, "model") == _SYNTHETIC or record.get("isApiErrorMessage") is True:
            self.leave_out("agent notices in place of an answer")
            if record.get("isApiErrorMessage") is True:
                turn.status = "failed"
            return
        key = text(message, "id") or text(record, "requestId") or self.next_name()
        turn.model = text(message, "model") or turn.model
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        for block in map(fields, blocks):
            self._block(turn, key, block, at)
        used = tokens(fields(message, "usage"), _FRESH, ("output_tokens",), _FRESH[1])
        turn.set_usage(key, used)
        if text(message, "stop_reason") in ("end_turn", "stop_sequence"):
            self.complete()

    def _block(self, turn: TurnBuilder, key: str, block: Fields, at: datetime) -> None:
        match text(block, "type"):
            case "text":
                turn.add_text(key, text(block, "text"), at)
            case "thinking":
                turn.add_reasoning(text(block, "thinking"))
            case "tool_use" | "server_tool_use" | "mcp_tool_use":
                self.call(key, text(block, "id"), text(block, "name"), block.get("input"), at)
            case "redacted_thinking":
                self.leave_out("unreadable reasoning")
            case kind if kind.endswith("_tool_result"):
                self.answer(text(block, "tool_use_id"), _result_text(block), at)
            case kind:
                self.count_unknown("assistant", kind)


def _result_text(block: Fields) -> str:
    if isinstance(block.get("content"), str):
        return text(block, "content")
    said = []
    for each in map(fields, items(block, "content")):
        kind = text(each, "type")
        said.append(text(each, "text") or text(each, "url") or (f"[{kind}]" if kind else ""))
    return "\n".join(filter(None, said))


def _between(words: str, tag: str) -> str:
    """Return the text within the first tags of that name."""
    _, opened, rest = words.partition(f"<{tag}>")
    inside, closed, _ = rest.partition(f"</{tag}>")
    return inside.strip() if opened and closed else ""


def _without_reminders(words: str) -> str:
    """Remove the agent's reminders between the user's words, in linear time."""
    left: list[str] = []
    while True:
        before, opened, rest = words.partition("<system-reminder>")
        _, closed, after = rest.partition("</system-reminder>")
        if not (opened and closed):
            return "".join([*left, words])
        left.append(before)
        words = after

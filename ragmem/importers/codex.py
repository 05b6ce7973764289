"""Sessions of Codex: the known kinds of records, and the turns that they form."""

import re
from collections.abc import Iterator
from datetime import datetime

import msgspec

from ragmem.importers import Fields, FoundFile, count, fields, items, moment, text
from ragmem.importers.session_parser import SessionParser, decoded, session_id_of, tokens, words_of
from ragmem.records import PutTurn, TurnStatus

REQUEST = "## My request for Codex:"
ADDED = re.compile(
    r"<(?:environment_context|user_instructions|user_shell_command|turn_aborted|skill|skills"
    r"|subagent_notification|permissions|collaboration_mode|model_switch|apps_instructions"
    r"|plugins_instructions|INSTRUCTIONS|ENVIRONMENT_CONTEXT|user_action|hook_prompt)\b"
    r"|# AGENTS\.md instructions"
)
CWD = re.compile(r"<cwd>([^<\n]{1,4096})</cwd>")
_EXIT = re.compile(r"^(?:Process exited with code|Exit code:?) (-?[0-9]{1,10})\b", re.MULTILINE)
_EXIT_WITHIN = 400
"""Maximum characters at the start of a result in which its exit code is looked for."""
_ID_IN_NAME = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
CALLS = {"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"}
UNANSWERED = {"web_search_call": "web_search", "image_generation_call": "image_generation"}
ANSWERS = {"function_call_output", "custom_tool_call_output", "tool_search_output"}
RECORDS_LEFT_OUT = {
    "compacted": "summaries of the agent",
    "inter_agent_communication": "subagent messages",
    "world_state": "context that the agent added",
}
ITEMS_LEFT_OUT = {
    "ghost_snapshot": "file snapshots",
    "compaction": "summaries of the agent",
    "compaction_summary": "summaries of the agent",
    "context_compaction": "summaries of the agent",
    "additional_tools": "context that the agent added",
    "agent_message": "subagent messages",
}
_REPEATING = ("_begin", "_end", "_delta", "_request", "_response", "_started")
"""Suffixes of events about parts of what is recorded as an item too."""
EVENTS_LEFT_OUT = {
    "agent_message", "agent_reasoning", "agent_reasoning_raw_content",
    "agent_reasoning_section_break", "background_event", "context_compacted",
    "entered_review_mode", "exited_review_mode", "guardian_assessment", "injected_message",
    "plan_update", "session_configured", "stream_error", "sub_agent_activity",
    "thread_goal_updated", "thread_rolled_back", "thread_settings_applied", "turn_diff",
    "undo_completed", "view_image_tool_call", "warning",
}  # fmt: skip
ENDINGS: dict[str, TurnStatus] = {
    "task_complete": "completed",
    "turn_complete": "completed",
    "turn_aborted": "interrupted",
    "error": "failed",
}


def same(one: str, other: str) -> bool:
    """Whether both have the same words: records differ in the whitespace around them."""
    return one.split() == other.split()


def typed(words: str) -> str:
    """Return what the user typed, without what an editor has prepended."""
    _, found, request = words.partition(REQUEST)
    return (request if found else words).strip()


def output_of(item: Fields) -> tuple[str, bool]:
    """Return a tool's result and whether it failed, from any of the forms that were used."""
    given = item.get("output", item.get("tools"))
    failed = fields(given).get("success") is False or fields(given).get("isError") is True
    if isinstance(given, dict):
        given = next((given[k] for k in ("content", "content_items", "output") if k in given), "")
    if isinstance(given, list):
        return words_of({"content": given}), failed
    words = text({"output": given}, "output")
    if words.startswith('{"'):
        answer = decoded(words)
        code = fields(answer, "metadata").get("exit_code")
        if isinstance(answer.get("output"), str):
            return text(answer, "output"), failed or (isinstance(code, int) and code != 0)
    ended = _EXIT.search(words[:_EXIT_WITHIN].partition("\nOutput:")[0])
    return words, failed or (ended is not None and int(ended[1]) != 0)


_TOKENS = ("input_tokens", "output_tokens", "cached_input_tokens")


class _PossiblePrompt(msgspec.Struct, frozen=True):
    """A possible prompt, before it is known whether it is one."""

    words: str
    at: datetime
    prefix: str


class CodexParser(SessionParser):
    """Parser of Codex's session files; titles of sessions are in another file, by id."""

    agent = "codex"

    def start(self, found: FoundFile) -> None:
        """See `SessionParser.start`."""
        if file_id := _ID_IN_NAME.search(found.file.stem):
            self.identify(file_id[0])
        self._identified = False
        self._possible: _PossiblePrompt | None = None
        self._wrapped = False
        """Whether records have a payload, as in all but the oldest format."""
        self._has_events = False
        """Whether the file has events for prompts too."""
        self._prefix = ""
        self._model: str | None = None
        self._spent: Fields = {}

    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Process one record; yield the turns that it completes."""
        kind, payload = text(record, "type"), fields(record, "payload")
        at, is_told = self.time(record)
        self._prefix = f"{at.isoformat()} " if is_told else ""
        self._wrapped = self._wrapped or "payload" in record
        if kind == "session_meta":
            self._meta(payload)
        elif kind == "response_item":
            yield from self._item(payload, at)
        elif kind == "event_msg":
            yield from self._event(payload, at)
        elif kind == "turn_context":
            self.facts.cwd = self.facts.cwd or text(payload, "cwd")
            self._model = text(payload, "model") or self._model
        elif kind in RECORDS_LEFT_OUT:
            self.leave_out(RECORDS_LEFT_OUT[kind])
        elif not kind and "id" in record and not self._identified:
            self._meta(record)
        elif "payload" not in record and (kind or "record_type" in record):
            yield from self._item(record, at)
        else:
            self.count_unknown("", kind)

    def finish(self) -> Iterator[PutTurn]:
        """End the last turn with the file; it is complete if nothing more is expected of it."""
        yield from self._hold(None)
        yield from super().finish()

    def _meta(self, meta: Fields) -> None:
        if self._identified:
            # A fork starts with the metadata of the session that it was made from.
            self.leave_out("beginnings of other sessions")
            return
        self._identified = True
        facts = self.facts
        if self.turn is None:
            self.identify(text(meta, "id") or text(meta, "session_id"))
        if parent := text(meta, "forked_from_id"):
            facts.forked_from = session_id_of(self.agent, parent)
        facts.cwd = text(meta, "cwd") or facts.cwd
        self.entitle(self._titles.get(facts.foreign_id, ""))
        if (began := moment(meta.get("timestamp"), self.now)) and facts.started_at is None:
            facts.started_at = facts.last_at = began
        source = meta.get("source")
        facts.subagent = "subagent" in (fields(source) or (source, meta.get("thread_source")))

    def _item(self, item: Fields, at: datetime) -> Iterator[PutTurn]:
        kind = text(item, "type")
        if kind == "message":
            yield from self._message(item, at)
        elif kind == "reasoning":
            yield from self._reasoning(item)
        elif kind in CALLS or kind in UNANSWERED:
            yield from self._call(kind, item, at)
        elif kind in ANSWERS:
            words, failed = output_of(item)
            self.answer(text(item, "call_id"), words, at, failed=failed)
        elif kind in ITEMS_LEFT_OUT:
            self.leave_out(ITEMS_LEFT_OUT[kind])
        elif "record_type" in item:
            self.leave_out("the agent's bookkeeping")
        else:
            self.count_unknown("response_item", kind)

    def _message(self, item: Fields, at: datetime) -> Iterator[PutTurn]:
        words = words_of(item)
        role = text(item, "role")
        if role == "user":
            yield from self._possible_prompt(words, at)
        elif role == "assistant":
            yield from self._model_acts()
            if turn := self.turn:
                turn.add_text(None, words, at)
        else:
            self.leave_out("context that the agent added")

    def _possible_prompt(self, words: str, at: datetime) -> Iterator[PutTurn]:
        """Handle the user's words, or context in their place: events tell, if there are any."""
        if cwd := CWD.search(words[:20_000]):
            self.facts.cwd = self.facts.cwd or cwd[1].strip()
        words = typed(words)
        if not words or ADDED.match(words):
            self.leave_out("context that the agent added")
        elif not (self.turn and self.turn.is_bare and same(self.turn.prompt, words)):
            yield from self._hold(_PossiblePrompt(words, at, self._prefix))

    def _hold(self, heard: _PossiblePrompt | None) -> Iterator[PutTurn]:
        """Remember a possible prompt; drop the one before it, as nothing has followed from it.

        Only in the oldest format, without events, that one was the user's.
        """
        before, self._possible = self._possible, heard
        if before and self._wrapped:
            self.leave_out("context that the agent added")
        elif before:
            yield from self.begin(before.words, before.at, prefix=before.prefix)

    def _prompt(self, words: str, at: datetime) -> Iterator[PutTurn]:
        """Handle what is certainly the user's words."""
        self._has_events = True
        words = typed(words)
        heard, self._possible = self._possible, None
        if heard and words and same(heard.words, words):
            yield from self.begin(heard.words, heard.at, prefix=heard.prefix)
            return
        if heard:
            self.leave_out("context that the agent added")
        told_twice = self.turn and self.turn.is_bare and same(self.turn.prompt, words)
        if words and not told_twice:
            yield from self.begin(words, at, prefix=self._prefix)

    def _model_acts(self) -> Iterator[PutTurn]:
        """Begin the turn of the possible prompt, if any, since the model says or does something."""
        heard, self._possible = self._possible, None
        if heard and self._has_events:
            self.leave_out("context that the agent added")
        elif heard:
            yield from self.begin(heard.words, heard.at, prefix=heard.prefix)
        if (turn := self.answered()) and self._model:
            turn.model = self._model

    def _reasoning(self, item: Fields) -> Iterator[PutTurn]:
        given = (*items(item, "summary"), *items(item, "content"))
        thoughts = [text(fields(each), "text") for each in given]
        if not any(thoughts):
            self.leave_out("unreadable reasoning")
            return
        yield from self._model_acts()
        if self.turn:
            self.turn.add_reasoning("\n\n".join(filter(None, thoughts)))

    def _call(self, kind: str, item: Fields, at: datetime) -> Iterator[PutTurn]:
        yield from self._model_acts()
        if self.turn is None:
            return
        given = next((item[each] for each in ("arguments", "input", "action") if each in item), {})
        name = text(item, "name") or UNANSWERED.get(kind) or kind.removesuffix("_call")
        call_id = self.call(None, text(item, "call_id") or text(item, "id"), name, given, at)
        if kind in UNANSWERED:
            self.answer(call_id, "", at, failed=text(item, "status") == "failed")

    def _event(self, event: Fields, at: datetime) -> Iterator[PutTurn]:
        kind = text(event, "type")
        if kind == "user_message":
            yield from self._prompt(text(event, "message"), at)
        elif kind in ("item_completed", "item_started"):
            item = fields(event, "item")
            if kind == "item_completed" and text(item, "type") == "UserMessage":
                yield from self._prompt(words_of(item), at)
            else:
                self.leave_out("events that repeat what is there")
        elif kind == "token_count":
            self._add_usage(fields(event, "info"))
        elif kind == "thread_name_updated":
            self.entitle(text(event, "thread_name"))
        elif kind in ENDINGS:
            # Interrupted and failed turns get an event of completion too.
            if self.turn and not self.turn.status:
                self.turn.status = ENDINGS[kind]
        elif kind in EVENTS_LEFT_OUT or kind.endswith(_REPEATING):
            self.leave_out("events that repeat what is there")
        else:
            self.count_unknown("event_msg", kind)

    def _add_usage(self, info: Fields) -> None:
        """Add the usage of one call; an event with an unchanged total is a repetition."""
        total = fields(info, "total_token_usage")
        before, self._spent = self._spent, total
        summed = {name: (count(total, name) or 0) - (count(before, name) or 0) for name in _TOKENS}
        fresh, out, cached = _TOKENS
        usage = tokens(fields(info, "last_token_usage") or summed, (fresh,), (out,), cached)
        if self.turn and usage and usage.input_tokens and (not total or total != before):
            self.turn.set_usage(self.next_name(), usage)

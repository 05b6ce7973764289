"""Adapter for Anthropic's Messages API.

The protocol: https://docs.anthropic.com/en/api/messages-streaming. Thinking blocks are sent back
with the tool calls that follow them, as the API requires, while this process lives; they are
never stored, nor sent to another provider.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ragmem.llm import wire
from ragmem.llm.base import THINKING_TOKENS, Chunk, ReasoningChunk, Request, TextChunk, UsageChunk
from ragmem.llm.http_client import HttpClient
from ragmem.messages import ImagePart, Json, Message, Part, TextPart, ToolAnswer, ToolUse
from ragmem.text import clean

_VERSION = "2023-06-01"
_MAX_TOKENS = 32_000
"""The limit of an answer if none is set: the API requires one. It is at most the model's own."""
_DEFAULT_MAX_TOKENS = 8_192
_CACHE_BREAKPOINT = {"type": "ephemeral"}
_END_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class AnthropicClient(HttpClient):
    """Speaks `POST /messages`; the endpoint's base ends in `/v1`."""

    _path = "/messages"

    def _headers(self) -> dict[str, str]:
        key = self._endpoint.api_key
        return {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})

    def _reader(self) -> wire.EventReader:
        return MessageReader(self._thoughts)

    def _body(self, request: Request) -> dict[str, Json]:
        known = self.info.max_output_tokens or _DEFAULT_MAX_TOKENS
        body: dict[str, Json] = {
            "model": self._endpoint.model,
            "max_tokens": request.max_output_tokens or min(known, _MAX_TOKENS),
            "messages": self._messages(request.messages),
            "stream": True,
        }
        if rules := wire.rules_of(request.messages):
            # The tools precede it in the prompt: one cache breakpoint covers both.
            body["system"] = [{"type": "text", "text": rules, "cache_control": _CACHE_BREAKPOINT}]
        if request.tools:
            body["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": tool.parameters,
                }
                for tool in request.tools
            ]
        if request.effort and request.effort != "none":
            body |= self._thinking(request, body["max_tokens"])
        if schema := self._schema_of(request):
            # See https://docs.anthropic.com/en/docs/build-with-claude/structured-outputs.
            form = {"format": {"type": "json_schema", "schema": schema}}
            body["output_config"] = body.get("output_config", {}) | form
        return body

    def _thinking(self, request: Request, max_tokens: int) -> dict[str, Json]:
        """Return the parameters for thinking; without them older models don't think.

        See https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking and …/effort.
        """
        if self.info.effort_by_name:
            adaptive = {"type": "adaptive", "display": "summarized"}
            return {"thinking": adaptive, "output_config": {"effort": request.effort}}
        if self._lacks_thinking(request.messages):
            return {}
        tokens = THINKING_TOKENS[request.effort or "none"]
        most = max_tokens + tokens
        if self.info.max_output_tokens:
            most = max(min(most, self.info.max_output_tokens), tokens + 1)
        return {"thinking": {"type": "enabled", "budget_tokens": tokens}, "max_tokens": most}

    def _lacks_thinking(self, messages: Sequence[Message]) -> bool:
        """Return whether a call of this turn lacks its thinking, which can't be continued then."""
        calls = [m.tool_uses[0] for m in messages[_prompt_index(messages) :] if m.tool_uses]
        return any(wire.thought_before(self._thoughts, call) is None for call in calls)

    def _messages(self, messages: Sequence[Message]) -> list[dict[str, Json]]:
        """Return alternating user and assistant messages, with cache breakpoints.

        One breakpoint is at the end of the history, before the part that changes with each
        prompt, and one at the end: within a turn each request reads the previous one's prefix.
        """
        asked = _prompt_index(messages)
        found: list[dict[str, Json]] = []
        for i, message in enumerate(messages):
            if message.role == "system":
                continue
            if i == asked and found:
                found[-1]["content"][-1]["cache_control"] = _CACHE_BREAKPOINT
            role = "assistant" if message.role == "assistant" else "user"
            blocks = [block for part in message.parts for block in _block(part)]
            if role == "assistant" and message.tool_uses:
                thought = wire.thought_before(self._thoughts, message.tool_uses[0])
                blocks = [*(thought or ()), *blocks]
            if found and found[-1]["role"] == role:
                found[-1]["content"] += blocks
            elif blocks or role == "user":
                empty = [{"type": "text", "text": wire.NOTHING}]
                found.append({"role": role, "content": blocks or empty})
        if found:
            found[-1]["content"][-1]["cache_control"] = _CACHE_BREAKPOINT
        return found


def _prompt_index(messages: Sequence[Message]) -> int:
    """Return the index of the prompt: the last user message that doesn't follow a tool's answer."""
    roles = [message.role for message in messages]
    asked = (i for i, role in enumerate(roles) if role == "user" and "tool" not in roles[:i][-1:])
    return max(asked, default=0)


def _block(part: Part) -> list[dict[str, Json]]:
    """Return a part as content blocks; none for a blank text, which the API refuses."""
    match part:
        case TextPart(text):
            return [{"type": "text", "text": clean(text)}] if clean(text).strip() else []
        case ImagePart(media_type):
            source = {"type": "base64", "media_type": media_type, "data": part.base64}
            return [{"type": "image", "source": source}]
        case ToolUse():
            return [
                {
                    "type": "tool_use",
                    "id": wire.call_id(part.id),
                    "name": wire.tool_name(part.name),
                    "input": wire.arguments_of(part),
                }
            ]
        case ToolAnswer(use_id, text, is_error):
            answer = {
                "type": "tool_result",
                "tool_use_id": wire.call_id(use_id),
                "content": clean(text) or wire.NOTHING,
            }
            return [answer | ({"is_error": True} if is_error else {})]


# --- responses ---------------------------------------------------------------


class _Block(msgspec.Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    input: Json = None
    text: str | None = None
    thinking: str | None = None
    data: str | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: wire.TokenCount = None
    output_tokens: wire.TokenCount = None
    cache_creation_input_tokens: wire.TokenCount = None
    cache_read_input_tokens: wire.TokenCount = None


class _Message(msgspec.Struct):
    usage: Any = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: Any = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class MessageReader(wire.EventReader):
    """Reads Messages events; `message_stop` ends an answer."""

    def __init__(self, thoughts: wire.Thoughts) -> None:
        self._calls = wire.CallBlocks(thoughts)
        self._stop_reason = ""
        self._counted = _Usage()

    def take(self, data: str) -> list[Chunk]:
        event = wire.decoded(_decode, data)
        if event.error:
            raise wire.Refusal(event.error)
        match event.type:
            case "message_start" if event.message:
                self._count(event.message.usage)
            case "content_block_start" if event.content_block:
                return self._block_started(event.index, event.content_block)
            case "content_block_delta" if event.delta:
                return self._block_delta(event.index, event.delta)
            case "content_block_stop":
                return self._calls.end(event.index)
            case "message_delta":
                self._count(event.usage)
                self._stop_reason = (event.delta and event.delta.stop_reason) or self._stop_reason
            case "message_stop":
                self.end_reason = _END_REASONS.get(self._stop_reason, self._stop_reason) or "stop"
        return []

    def _count(self, said: Any) -> None:
        """Update the usage; later counts are of the whole call, and may omit earlier fields."""
        usage = wire.counted(said, _Usage)
        if usage is None:
            return
        reported = {k: v for k, v in msgspec.structs.asdict(usage).items() if v is not None}
        known = self._counted = msgspec.structs.replace(self._counted, **reported)
        cached, written = known.cache_read_input_tokens, known.cache_creation_input_tokens
        new = known.input_tokens
        self._usage = UsageChunk(
            input_tokens=None if new is None else new + (written or 0) + (cached or 0),
            output_tokens=known.output_tokens,
            cached_tokens=cached,
            written_tokens=written,
        )

    def _block_started(self, index: int, block: _Block) -> list[Chunk]:
        match block.type:
            case "text" if block.text:
                return [TextChunk(block.text)]
            case "thinking":
                begun = {"type": "thinking", "thinking": block.thinking or ""}
                self._calls.thinking.append(begun)
                return [ReasoningChunk(block.thinking)] if block.thinking else []
            case "redacted_thinking":
                self._calls.thinking.append({"type": "redacted_thinking", "data": block.data})
            case "tool_use":
                given = msgspec.json.encode(block.input or {}).decode()
                return [self._calls.begin(index, block.id or "", block.name or "", given)]
        return []

    def _block_delta(self, index: int, delta: _Delta) -> list[Chunk]:
        match delta.type:
            case "text_delta" if delta.text:
                return [TextChunk(delta.text)]
            case "input_json_delta" if delta.partial_json and index in self._calls:
                return [self._calls.more(index, delta.partial_json)]
            case "thinking_delta" if delta.thinking:
                if (begun := self._open_thinking()) is not None:
                    begun["thinking"] += delta.thinking
                return [ReasoningChunk(delta.thinking)]
            case "signature_delta" if (begun := self._open_thinking()) is not None:
                begun["signature"] = delta.signature or ""
        return []

    def _open_thinking(self) -> dict[str, Json] | None:
        """Return the thinking block being streamed; None if there is none, or it is redacted."""
        last = self._calls.thinking[-1] if self._calls.thinking else {}
        return last if last.get("type") == "thinking" else None

"""OpenAI's Responses, for its models that think, or that speak nothing else.

The protocol: https://platform.openai.com/docs/api-reference/responses. Nothing is kept there
(`store: false`): what a model thinks comes encrypted, goes back with the tool calls that it led
to as long as this process lives, and is never stored.
"""

from typing import Any

import msgspec

from ragmem.llm import wire
from ragmem.llm.base import (
    Chunk,
    EndChunk,
    ReasoningChunk,
    Request,
    TextChunk,
    UsageChunk,
)
from ragmem.llm.http_client import EventReader, HttpClient
from ragmem.messages import ImagePart, Json, Message, TextPart, ToolAnswer, ToolUse
from ragmem.text import clean


class ResponsesClient(HttpClient):
    """Speaks `POST /responses`; the endpoint's base ends in `/v1`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._thoughts = wire.Thoughts()
        """Items of reasoning, by the first call after them."""

    @property
    def _url(self) -> str:
        return self._endpoint.base_url.rstrip("/") + "/responses"

    def _reader(self) -> EventReader:
        return ResponseReader(self._thoughts)

    def _body(self, request: Request) -> dict[str, Json]:
        body: dict[str, Json] = {
            "model": self._endpoint.model,
            "input": [item for message in request.messages for item in self._items(message)],
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        if rules := wire.rules_of(request.messages):
            body["instructions"] = rules
        if request.tools:
            # They are not strict: a tool's optional arguments stay optional.
            body["tools"] = [
                {"type": "function", "strict": False, **told["function"]}
                for told in wire.tools_json(request.tools)
            ]
        if request.max_output_tokens:
            body["max_output_tokens"] = request.max_output_tokens
        if request.effort:
            thinks = {"effort": request.effort}
            body["reasoning"] = thinks | ({} if request.effort == "none" else {"summary": "auto"})
        if schema := self._schema_of(request):
            told = {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}
            body["text"] = {"format": told}
        if request.cache_key:
            body["prompt_cache_key"] = request.cache_key
        return body

    def _items(self, message: Message) -> list[Json]:
        if message.role == "system":
            return []
        role = "assistant" if message.role == "assistant" else "user"
        found: list[Json] = []
        if message.tool_uses:
            found += self._thoughts.before(message.tool_uses[0]) or ()
        for part in message.parts:
            match part:
                case TextPart(text) if clean(text).strip():
                    kind = "output_text" if role == "assistant" else "input_text"
                    found.append({"role": role, "content": [{"type": kind, "text": clean(text)}]})
                case ImagePart():
                    shown = {"type": "input_image", "image_url": part.data_url}
                    found.append({"role": role, "content": [shown]})
                case ToolUse():
                    found.append(
                        {
                            "type": "function_call",
                            "call_id": wire.call_id(part.id),
                            "name": wire.tool_name(part.name),
                            "arguments": msgspec.json.encode(wire.arguments_of(part)).decode(),
                        }
                    )
                case ToolAnswer(use_id, text):
                    output = clean(text) or wire.NOTHING
                    told = {"type": "function_call_output", "call_id": wire.call_id(use_id)}
                    found.append({**told, "output": output})
        return found


# --- in ----------------------------------------------------------------------


class _Item(msgspec.Struct):
    type: str = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class _TokenDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _TokenDetails | None = None


class _Reason(msgspec.Struct):
    reason: str = ""


class _Response(msgspec.Struct):
    usage: _Usage | None = None
    error: Any = None
    incomplete_details: _Reason | None = None


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int = 0
    delta: str = ""
    item: msgspec.Raw = msgspec.Raw(b"{}")
    response: _Response | None = None
    message: str = ""
    code: str | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode
_ENDS = {"max_output_tokens": "length", "content_filter": "content_filter"}


class ResponseReader:
    """See `EventReader`; a stream has ended when `response.completed` or `…incomplete` was said."""

    def __init__(self, thoughts: wire.Thoughts) -> None:
        self.begun = False
        self.end_reason = ""
        self._calls = wire.CallBlocks(thoughts)
        self._refused = False
        self._usage: _Usage | None = None

    def take(self, data: str) -> list[Chunk]:
        """The chunks of one event; unknown ones say nothing."""
        event = wire.decoded(_decode, data)
        response = event.response or _Response()
        if event.error or response.error or event.type == "error":
            told = {"message": event.message, "code": event.code}
            raise wire.Refusal(event.error or response.error or told)
        found = self._chunks(event, response)
        self.begun = self.begun or bool(found)
        return found

    def done(self) -> None:
        """It came in one piece: whether it ended, it says itself."""

    def closing(self) -> list[Chunk]:
        """Usage and the end, in that order, as far as they arrived."""
        found: list[Chunk] = []
        if usage := self._usage:
            details = usage.input_tokens_details or _TokenDetails()
            found.append(
                UsageChunk(
                    input_tokens=usage.input_tokens,
                    output_tokens=usage.output_tokens,
                    cached_tokens=details.cached_tokens,
                    written_tokens=details.cache_write_tokens,
                )
            )
        return [*found, EndChunk(self.end_reason)] if self.end_reason else found

    def _chunks(self, event: _Event, response: _Response) -> list[Chunk]:
        match event.type.removeprefix("response."):
            case "output_text.delta" if event.delta:
                return [TextChunk(event.delta)]
            case "refusal.delta" if event.delta:
                self._refused = True
                return [TextChunk(event.delta)]
            case "reasoning_summary_text.delta" | "reasoning_text.delta" if event.delta:
                return [ReasoningChunk(event.delta)]
            case "reasoning_summary_part.done":
                return [ReasoningChunk("\n\n")]
            case "output_item.added":
                item = _item(event.item)
                if item.type == "function_call":
                    return [self._calls.begin(event.output_index, item.call_id, item.name)]
            case "function_call_arguments.delta" if event.output_index in self._calls:
                return [self._calls.more(event.output_index, event.delta)]
            case "output_item.done":
                return self._whole(event.output_index, event.item)
            case "completed":
                self._usage = response.usage
                ended = "tool_calls" if self._calls else "stop"
                self.end_reason = "content_filter" if self._refused else ended
            case "incomplete":
                self._usage = response.usage
                reason = response.incomplete_details or _Reason()
                self.end_reason = _ENDS.get(reason.reason, reason.reason or "incomplete")
        return []

    def _whole(self, index: int, raw: msgspec.Raw) -> list[Chunk]:
        """Of a call its arguments, where they did not come in pieces; reasoning is kept."""
        item = _item(raw)
        if item.type == "reasoning":
            self._calls.thinking.append(msgspec.json.decode(raw))
        return self._calls.end(index, item.arguments)


def _item(raw: msgspec.Raw) -> _Item:
    return msgspec.json.decode(raw, type=_Item)

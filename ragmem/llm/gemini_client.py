"""Adapter for Google's Gemini API (generateContent).

The protocol: https://ai.google.dev/api/generate-content. A tool call arrives with a signature of
the thoughts before it, and is sent back with it while this process lives; it is never stored.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ragmem.config import Effort
from ragmem.ids import new_id
from ragmem.llm import wire
from ragmem.llm.base import (
    THINKING_TOKENS,
    Chunk,
    Passing,
    ReasoningChunk,
    Request,
    TextChunk,
    ToolChunk,
    UsageChunk,
)
from ragmem.llm.http_client import HttpClient
from ragmem.messages import ImagePart, Json, Message, Part, TextPart, ToolAnswer, ToolUse
from ragmem.text import clean

_NO_SIGNATURE = "skip_thought_signature_validator"
"""The value that the API takes as a signature of calls from another model or process."""
_END_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
}
_INVALID_CALL = {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"}
"""Finish reasons of an invalid tool call, of which nothing may be run."""


class GeminiClient(HttpClient):
    """Speaks `:streamGenerateContent`; the endpoint's base ends in `/v1beta`."""

    @property
    def _url(self) -> str:
        model = self._endpoint.model.removeprefix("models/")
        base = self._endpoint.base_url.rstrip("/")
        return f"{base}/models/{model}:streamGenerateContent?alt=sse"

    def _headers(self) -> dict[str, str]:
        key = self._endpoint.api_key
        return {"x-goog-api-key": key} if key else {}

    def _reader(self) -> wire.EventReader:
        return ContentReader(self._thoughts)

    def _body(self, request: Request) -> dict[str, Json]:
        body: dict[str, Json] = {"contents": self._contents(request.messages)}
        if rules := wire.rules_of(request.messages):
            body["systemInstruction"] = {"parts": [{"text": rules}]}
        if request.tools:
            declared = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "parametersJsonSchema": tool.parameters,
                }
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declared}]
        how: dict[str, Json] = {}
        if request.max_output_tokens:
            how["maxOutputTokens"] = request.max_output_tokens
        if schema := self._schema_of(request):
            how |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
        if request.effort:
            how["thinkingConfig"] = self._thinking(request.effort)
        return body | ({"generationConfig": how} if how else {})

    def _thinking(self, effort: Effort) -> dict[str, Json]:
        """See https://ai.google.dev/gemini-api/docs/thinking."""
        if self.info.effort_by_name and effort != "none":
            return {"thinkingLevel": effort, "includeThoughts": True}
        return {"thinkingBudget": THINKING_TOKENS[effort], "includeThoughts": effort != "none"}

    def _contents(self, messages: Sequence[Message]) -> list[dict[str, Json]]:
        names = {use.id: use.name for message in messages for use in message.tool_uses}
        found: list[dict[str, Json]] = []
        for message in messages:
            if message.role == "system":
                continue
            role = "model" if message.role == "assistant" else "user"
            first = message.tool_uses[:1]
            parts = [p for each in message.parts for p in self._part(each, names, each in first)]
            if found and found[-1]["role"] == role:
                found[-1]["parts"] += parts
            elif parts or role == "user":
                found.append({"role": role, "parts": parts or [{"text": wire.NOTHING}]})
        return found

    def _part(self, part: Part, names: dict[str, str], is_first: bool) -> list[dict[str, Json]]:
        match part:
            case TextPart(text):
                return [{"text": clean(text)}] if clean(text).strip() else []
            case ImagePart(media_type):
                return [{"inlineData": {"mimeType": media_type, "data": part.base64}}]
            case ToolUse():
                call = {"name": wire.tool_name(part.name), "args": wire.arguments_of(part)}
                # Of parallel calls only the first has a signature.
                unsigned = _NO_SIGNATURE if is_first else ""
                signature = wire.thought_before(self._thoughts, part) or unsigned
                signed = {"thoughtSignature": signature} if signature else {}
                return [{"functionCall": call, **signed}]
            case ToolAnswer(use_id, text, is_error):
                name = wire.tool_name(names.get(use_id, ""))
                response = {"error" if is_error else "result": clean(text)}
                return [{"functionResponse": {"name": name, "response": response}}]


# --- responses ---------------------------------------------------------------


class _Call(msgspec.Struct):
    name: str | None = None
    args: Json = None


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: _Call | None = None
    thought_signature: str | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: wire.TokenCount = None
    candidates_token_count: wire.TokenCount = None
    thoughts_token_count: wire.TokenCount = None
    cached_content_token_count: wire.TokenCount = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: Any = None
    prompt_feedback: _Feedback | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class ContentReader(wire.EventReader):
    """Reads generateContent events; a candidate's finish reason ends an answer."""

    def __init__(self, signatures: wire.Thoughts) -> None:
        self._signatures = signatures
        self._count = 0

    def take(self, data: str) -> list[Chunk]:
        event = wire.decoded(_decode, data)
        if event.error:
            raise wire.Refusal(event.error)
        if usage := wire.counted(event.usage_metadata, _Usage):
            out = (usage.candidates_token_count, usage.thoughts_token_count)
            self._usage = UsageChunk(
                input_tokens=usage.prompt_token_count,
                output_tokens=None if out == (None, None) else sum(n or 0 for n in out),
                cached_tokens=usage.cached_content_token_count,
            )
        found: list[Chunk] = []
        for candidate in (event.candidates or [])[:1]:
            for part in (candidate.content or _Content()).parts or ():
                found += self._chunks(part)
            self._end(candidate.finish_reason or "")
        if event.prompt_feedback and event.prompt_feedback.block_reason:
            self.end_reason = "content_filter"
        return found

    def _end(self, reason: str) -> None:
        if reason in _INVALID_CALL:
            raise Passing("The model's tool call could not be read.")
        if reason and reason != "FINISH_REASON_UNSPECIFIED":
            end = _END_REASONS.get(reason, reason.casefold())
            self.end_reason = "tool_calls" if end == "stop" and self._count else end

    def _chunks(self, part: _Part) -> list[Chunk]:
        if part.function_call:
            return [self._tool_chunk(part.function_call, part.thought_signature or "")]
        if not part.text:
            return []
        return [ReasoningChunk(part.text) if part.thought else TextChunk(part.text)]

    def _tool_chunk(self, call: _Call, signature: str) -> ToolChunk:
        slot, name = self._count, f"call_{new_id()}"
        self._count += 1
        if signature:
            self._signatures[name] = signature
        arguments = msgspec.json.encode(call.args or {}).decode()
        return ToolChunk(slot, name, call.name or "", arguments)

"""Encoding requests and decoding responses: chat completions, and what all adapters share.

Requests are valid for every provider, whatever ids, tool names and arguments of other models, or
lone surrogates, the history contains. Responses become `Chunk`s, with the reason for their end.
"""

import asyncio
import codecs
import hashlib
import io
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from ragmem.errors import AnswerTooLong
from ragmem.ids import new_id
from ragmem.llm.base import (
    Chunk,
    EndChunk,
    ReasoningChunk,
    TextChunk,
    ToolChunk,
    UsageChunk,
    parse_arguments,
)
from ragmem.messages import Json, Message, ToolAnswer, ToolSpec, ToolUse
from ragmem.text import Regex, clean

MAX_ANSWER_BYTES = 64 * 1024 * 1024
AFTER_END_S = 2.0
"""How long to wait for the usage after the end of the answer."""
MAX_EVENT_BYTES = 16 * 1024 * 1024
"""The limit of one event, or of an answer that is not streamed."""
_NAME = Regex(r"[^A-Za-z0-9_-]")
_PLAIN_ID = Regex(r"[A-Za-z0-9_-]{1,40}")


# --- requests ----------------------------------------------------------------


def messages_json(messages: tuple[Message, ...], *, id_length: int = 0) -> list[dict[str, Json]]:
    """Return messages for chat completions; `id_length` is fixed by some servers (Mistral: 9).

    Mistral's models, and the chat templates of others, accept no user message directly after a
    tool's answer: an assistant message is inserted.
    """
    found: list[dict[str, Json]] = []
    for message in messages:
        if message.role == "user" and found and found[-1]["role"] == "tool":
            found.append({"role": "assistant", "content": HEARD})
        found += _message_json(message, id_length)
    return found


def tools_json(tools: tuple[ToolSpec, ...]) -> list[dict[str, Json]]:
    """Return tools as function schemas."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in tools
    ]


def _message_json(message: Message, id_length: int) -> list[dict[str, Json]]:
    if message.role == "tool":
        return [
            {
                "role": "tool",
                "tool_call_id": call_id(part.tool_use_id, id_length),
                "content": clean(part.text),
            }
            for part in message.parts
            if isinstance(part, ToolAnswer)
        ]
    text = clean(message.text)
    found: dict[str, Json] = {"role": message.role, "content": text}
    if message.images:
        shown = [{"type": "image_url", "image_url": {"url": p.data_url}} for p in message.images]
        found["content"] = [{"type": "text", "text": text}, *shown]
    if uses := message.tool_uses:
        found["content"] = text or None
        found["tool_calls"] = [
            {
                "id": call_id(use.id, id_length),
                "type": "function",
                "function": {"name": tool_name(use.name), "arguments": arguments_text(use)},
            }
            for use in uses
        ]
    return [found]


def call_id(original: str, length: int = 0) -> str:
    """Return a call's id if the server accepts it, else a stable digest of it."""
    if _PLAIN_ID.fullmatch(original) and (not length or len(original) == length):
        return original
    digest = hashlib.sha256(original.encode("utf-8", "replace")).hexdigest()
    return digest[: length or 32]


def tool_name(name: str) -> str:
    """Return a tool's name as every provider accepts it, also for tools that don't exist."""
    return _NAME.sub("_", name)[:64] or "unknown"


def arguments_of(use: ToolUse) -> dict[str, Json]:
    """Return a call's arguments as an object; invalid JSON is wrapped in one as text."""
    text = clean(use.arguments)
    try:
        value = parse_arguments(text)
    except ValueError:
        return {"invalid_arguments": text}
    plain = json.dumps(value, ensure_ascii=False)
    # An escaped lone surrogate would break servers that decode and forward it.
    return value if clean(plain) == plain else parse_arguments(clean(plain))


def arguments_text(use: ToolUse) -> str:
    """Return a call's arguments as valid JSON, since some servers parse them."""
    return msgspec.json.encode(arguments_of(use)).decode()


HEARD = "Understood."
"""The assistant message that is inserted between a tool's answer and a user message."""
NOTHING = "(nothing)"
"""Stands for an empty text, which some providers refuse."""


def rules_of(messages: Sequence[Message]) -> str:
    """Return the system messages as one text; empty if there are none."""
    rules = [message.text for message in messages if message.role == "system"]
    return (clean("\n\n".join(rules)) or NOTHING) if rules else ""


Thoughts = dict[str, Json]
"""Reasoning before tool calls, in the provider's format, by the provider's id of the next call.

It is sent back with the calls, to the same provider, in this process, and is never stored.
"""


def thought_before(thoughts: Thoughts, use: ToolUse) -> Json:
    """Return the reasoning before a call; None for a call of another model or process."""
    return thoughts.get(use.given_id or use.id)


# --- responses ---------------------------------------------------------------

E = TypeVar("E")


def decoded(decode: Callable[[str], E], data: str) -> E:
    """Decode an event of a stream; raises ValueError."""
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


TokenCount = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] | None
"""A plausible number of tokens."""


def counted(usage: Any, kind: type[E]) -> E | None:
    """Convert a provider's usage to `kind`; None if it is invalid.

    It arrives with the end of an answer, which must not be lost because of its price.
    """
    try:
        return msgspec.convert(usage, kind)
    except msgspec.ValidationError:
        return None


class CallBlocks:
    """The tool calls of one answer that arrive as blocks, each with the provider's index."""

    def __init__(self, thoughts: Thoughts) -> None:
        self.thinking: list[Any] = []
        """The reasoning before the first call, in the format in which it is sent back."""
        self._thoughts = thoughts
        self._slots: dict[int, int] = {}
        self._count = 0
        self._initial_arguments: dict[int, str] = {}
        """By index, the initial arguments of calls that have received no deltas."""

    def __contains__(self, place: int) -> bool:
        return place in self._slots

    def __len__(self) -> int:
        return self._count

    def begin(self, place: int, given_id: str, name: str, arguments: str = "{}") -> ToolChunk:
        """Begin a call; `arguments` are used if no deltas follow."""
        slot = self._slots[place] = self._count
        self._count += 1
        given_id = given_id or f"call_{new_id()}"
        if slot == 0 and self.thinking:
            self._thoughts[given_id] = self.thinking
        self._initial_arguments[place] = arguments
        return ToolChunk(slot, given_id, name)

    def more(self, place: int, arguments: str) -> ToolChunk:
        """Return the chunk for a delta of a call's arguments."""
        self._initial_arguments.pop(place, None)
        return ToolChunk(self._slots[place], "", "", arguments)

    def end(self, place: int, arguments: str = "") -> list[Chunk]:
        """End a call; return a chunk with all its arguments if no deltas arrived, else none."""
        initial = self._initial_arguments.get(place)
        return [] if initial is None else [self.more(place, arguments or initial)]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Json = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: Json = None
    reasoning_content: Json = None
    reasoning: Json = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _TokenDetails(msgspec.Struct):
    cached_tokens: TokenCount = None
    cache_write_tokens: TokenCount = None
    cache_creation_tokens: TokenCount = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: TokenCount = None


class _Usage(msgspec.Struct):
    prompt_tokens: TokenCount = None
    completion_tokens: TokenCount = None
    total_tokens: TokenCount = None
    prompt_tokens_details: _TokenDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: TokenCount = None

    @property
    def output_tokens(self) -> int | None:
        """All output tokens: xAI counts those of reasoning beside the answer's, in the total."""
        found = self.completion_tokens
        thought = (self.completion_tokens_details or _OutputDetails()).reasoning_tokens or 0
        if found is None or self.total_tokens != (self.prompt_tokens or 0) + found + thought:
            return found
        return found + thought


class WireChunk(msgspec.Struct):
    """An event of a stream, or a whole answer, or an `error`."""

    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


decode_chunk = msgspec.json.Decoder(WireChunk).decode


def decode_event(data: str) -> WireChunk | None:
    """Decode an event of a stream; None if it is invalid.

    A lone surrogate, or a byte that isn't UTF-8, is tolerated in a text. In a tool call it makes
    the event invalid: with a replacement character it would be another call.
    """
    try:
        return decode_chunk(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass
    try:
        event = msgspec.convert(json.loads(data), WireChunk)
    except (msgspec.ValidationError, ValueError, RecursionError):
        return None
    deltas = [choice.delta or choice.message for choice in event.choices or ()]
    return None if any(delta and delta.tool_calls for delta in deltas) else event


class Refusal(Exception):
    """An error object inside an answer."""

    def __init__(self, error: object) -> None:
        super().__init__("the provider sent an error")
        self.error = error


class EventReader(ABC):
    """Turns the events of one answer into chunks, and keeps its usage and end reason."""

    end_reason = ""
    """Why the provider stopped; empty before the end."""
    _usage: UsageChunk | None = None

    @abstractmethod
    def take(self, data: str) -> list[Chunk]:
        """Return the chunks of an event, none for an unknown one; usage and end come in `closing`.

        Raises ValueError for an event that can't be decoded, and `Refusal` for a provider's error.
        """

    def done(self) -> None:  # noqa: B027 - most protocols have an event for the end
        """Note that the stream was ended with `[DONE]`, or the answer came in one piece."""

    def closing(self) -> list[Chunk]:
        """Return the usage and the end, in that order, if they arrived."""
        found: list[Chunk] = [self._usage] if self._usage is not None else []
        return [*found, EndChunk(self.end_reason)] if self.end_reason else found


class _Begun(msgspec.Struct):
    """A call of which a part has arrived, with its id and name as the server sent them."""

    slot: int
    id: str
    name: str


class AnswerReader(EventReader):
    """Reads chat completions; a choice's finish reason ends an answer."""

    def __init__(self) -> None:
        self._calls: list[_Begun] = []
        self._by_key: dict[int | str | None, _Begun] = {}
        """The calls by their indexes and by their ids, as the server sent them."""

    def feed(self, event: WireChunk) -> list[Chunk]:
        """Return the chunks of one event; usage and end come in `closing`."""
        usage = counted(event.usage, _Usage)
        # Zeros mean unknown, as from litellm if a server reports nothing.
        if usage and (usage.prompt_tokens or usage.completion_tokens):
            details = usage.prompt_tokens_details or _TokenDetails()
            cached = details.cached_tokens
            self._usage = UsageChunk(
                input_tokens=usage.prompt_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.prompt_cache_hit_tokens if cached is None else cached,
                written_tokens=details.cache_write_tokens or details.cache_creation_tokens,
            )
        found: list[Chunk] = []
        for choice in (event.choices or [])[:1]:
            if delta := choice.delta or choice.message:
                found += self._delta(delta)
            self.end_reason = choice.finish_reason or self.end_reason
        return found

    def take(self, data: str) -> list[Chunk]:
        event = decode_event(data)
        if event is None:
            raise ValueError("no event")
        if event.error and not self.end_reason:
            raise Refusal(event.error)
        return self.feed(event)

    def done(self) -> None:
        """See `EventReader.done`; a missing finish reason counts as `stop`."""
        self.end_reason = self.end_reason or "stop"

    def _delta(self, delta: _Delta) -> list[Chunk]:
        found: list[Chunk] = []
        text, thinking = _text_and_thinking(delta.content)
        thinking = (
            thinking
            or _text_and_thinking(delta.reasoning_content)[0]
            or _text_and_thinking(delta.reasoning)[0]
        )
        if thinking:
            found.append(ReasoningChunk(thinking))
        if said := text + (delta.refusal or ""):
            found.append(TextChunk(said))
        found += [self._call(call) for call in delta.tool_calls or ()]
        return found

    def _call(self, call: _Call) -> ToolChunk:
        """Return a delta of a call, with an index of our own, and a unique id for each call.

        Some servers give every call the index 0, or none, and distinguish them by id only; some
        send no id, or the same one twice.
        """
        function = call.function or _Function()
        name, arguments = function.name or "", _text(function.arguments)
        if begun := self._begun(call, name):
            begun.name = begun.name or name
            return ToolChunk(begun.slot, "", name, arguments)
        given_id = call.id or ""
        is_taken = any(each.id == given_id for each in self._calls)
        begun = _Begun(len(self._calls), given_id, name)
        self._calls.append(begun)
        self._by_key |= {key: begun for key in (call.index, call.id) if key is not None}
        unique = given_id if given_id and not is_taken else f"call_{new_id()}"
        return ToolChunk(begun.slot, unique, name, arguments)

    def _begun(self, call: _Call, name: str) -> _Begun | None:
        """Return the call that a delta belongs to; None for a new one."""
        if call.index is None and not call.id:
            return self._calls[-1] if self._calls and not name else None
        begun = self._by_key.get(call.id if call.index is None else call.index)
        if begun is None or not name:
            return begun
        is_other = (call.id and call.id != begun.id) or (begun.name and begun.name != name)
        return None if is_other else begun


def _text(arguments: Json) -> str:
    """Return arguments as JSON text; some servers send the object itself."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


def _text_and_thinking(content: Json) -> tuple[str, str]:
    """Return text and thinking of a content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content, ""
    text, thinking = "", ""
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            continue
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            thinking += inner if isinstance(inner, str) else _text_and_thinking(inner)[0]
        elif isinstance(part.get("text"), str):
            text += part["text"]
    return text, thinking


# --- server-sent events ---------------------------------------------------------


def too_long(limit: int) -> AnswerTooLong:
    """Return the error for an answer of more than `limit` bytes."""
    return AnswerTooLong(
        f"The answer is longer than {limit >> 20} MB.",
        hint="Rephrase the prompt, or use another model (-m).",
    )


async def event_data(pieces: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """Yield the data of each server-sent event; raises AnswerTooLong.

    Other fields are ignored: they only repeat what the data says. See
    https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """
    data: list[str] = []
    async for line in _lines(pieces):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line == "data":
            data.append("")
        elif not line:
            if data:
                yield "\n".join(data)
            data = []


async def timed(
    events: AsyncIterator[E], reader: EventReader, timeout_s: float
) -> AsyncGenerator[E, None]:
    """Yield an answer's events; after its end reason, only for AFTER_END_S.

    Raises TimeoutError if no event arrives in time, even if comments or parts of a line do.
    """
    ends_at: float | None = None
    while True:
        now = asyncio.get_running_loop().time()
        if reader.end_reason and ends_at is None:
            ends_at = now + AFTER_END_S
        try:
            async with asyncio.timeout_at(ends_at or now + timeout_s):
                event = await anext(events)
        except StopAsyncIteration:
            return
        except TimeoutError:
            if reader.end_reason:
                return
            raise
        yield event


async def _lines(pieces: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """Yield each complete line.

    A byte that isn't UTF-8 becomes a lone surrogate, which affects only its own event.
    """
    utf8 = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    size = length = 0
    begun: list[str] = []
    async for piece in pieces:
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise too_long(MAX_ANSWER_BYTES)
        first, *others = decoder.decode(piece).split("\n")
        begun.append(first)
        length += len(first)
        for line in others:
            yield "".join(begun)
            begun, length = [line], len(line)
        if length > MAX_EVENT_BYTES:
            raise too_long(MAX_EVENT_BYTES)

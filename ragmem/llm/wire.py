"""The chat-completions format, both ways; shared by the adapters.

Out: messages that every provider accepts, whatever the history holds: ids,
tool names and arguments of other models, lone surrogates. In: pieces of an
answer as `Chunk`s, and whether it really ended.
"""

import codecs
import hashlib
import io
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
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
MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Of one event, or of an answer that comes in one piece."""
_NAME = Regex(r"[^A-Za-z0-9_-]")
_PLAIN_ID = Regex(r"[A-Za-z0-9_-]{1,40}")


# --- out ---------------------------------------------------------------------


def messages_json(messages: tuple[Message, ...], *, id_length: int = 0) -> list[dict[str, Json]]:
    """Messages as chat completions want them; `id_length` for servers that fix it (Mistral: 9).

    Mistral's models and the templates of others take no word of the person behind a tool's answer
    before the model has said something.
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
    """An id that the server accepts: unchanged where possible, else a stable digest of it."""
    if _PLAIN_ID.fullmatch(original) and (not length or len(original) == length):
        return original
    digest = hashlib.sha256(original.encode("utf-8", "replace")).hexdigest()
    return digest[: length or 32]


def tool_name(name: str) -> str:
    """A name that every provider accepts, for calls of tools that never existed too."""
    return _NAME.sub("_", name)[:64] or "unknown"


def arguments_of(use: ToolUse) -> dict[str, Json]:
    """A call's arguments as an object; what is none stands in one as the model had written it."""
    text = clean(use.arguments)
    try:
        value = parse_arguments(text)
    except ValueError:
        return {"invalid_arguments": text}
    plain = json.dumps(value, ensure_ascii=False)
    # Half of a surrogate pair, spelled out, would break whoever decodes and sends it on.
    return value if clean(plain) == plain else parse_arguments(clean(plain))


def arguments_text(use: ToolUse) -> str:
    """Return a call's arguments as JSON: some servers parse what they are sent."""
    return msgspec.json.encode(arguments_of(use)).decode()


HEARD = "Understood."
"""What the model says between a tool's answer and words of the person."""
NOTHING = "(nothing)"
"""Stands for words that are none: some providers refuse empty ones."""


def rules_of(messages: Sequence[Message]) -> str:
    """What the messages of the system say, as one text; empty where there are none."""
    rules = [message.text for message in messages if message.role == "system"]
    return (clean("\n\n".join(rules)) or NOTHING) if rules else ""


Thoughts = dict[str, Json]
"""What led to tool calls, by their provider's ids, as it sent it; kept while this process lives.

It goes back with the calls, to the provider that it came from, and is never stored.
"""


def thought_before(thoughts: Thoughts, use: ToolUse) -> Json:
    """What led to a call; None for one that another model, or an earlier process, has made."""
    return thoughts.get(use.given_id or use.id)


# --- in ----------------------------------------------------------------------

E = TypeVar("E")


def decoded(decode: Callable[[str], E], data: str) -> E:
    """An event of a stream; ValueError where it can't be read."""
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ValueError(str(error)) from None


TokenCount = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] | None
"""Tokens, as far as anybody can have used so many."""


def counted(usage: Any, kind: type[E]) -> E | None:
    """What a provider says was used, in the words of its protocol; None where that can't be so.

    It is told last, with the end of an answer, which is worth more than its price.
    """
    try:
        return msgspec.convert(usage, kind)
    except msgspec.ValidationError:
        return None


class CallBlocks:
    """Tool calls of one answer that come as blocks, each at a place that the provider gives it."""

    def __init__(self, thoughts: Thoughts) -> None:
        self.thinking: list[Any] = []
        """What came before the first of them, as it goes back with it."""
        self._thoughts = thoughts
        self._slots: dict[int, int] = {}
        self._begun = 0
        self._silent: dict[int, str] = {}
        """Arguments of calls of which none has come in pieces, by their places."""

    def __contains__(self, place: int) -> bool:
        return place in self._slots

    def __len__(self) -> int:
        return self._begun

    def begin(self, place: int, given_id: str, name: str, arguments: str = "{}") -> ToolChunk:
        """A call, of which arguments follow; those given here hold where none do."""
        slot = self._slots[place] = self._begun
        self._begun += 1
        given_id = given_id or f"call_{new_id()}"
        if slot == 0 and self.thinking:
            self._thoughts[given_id] = self.thinking
        self._silent[place] = arguments
        return ToolChunk(slot, given_id, name)

    def more(self, place: int, arguments: str) -> ToolChunk:
        """A piece of a call's arguments."""
        self._silent.pop(place, None)
        return ToolChunk(self._slots[place], "", "", arguments)

    def end(self, place: int, arguments: str = "") -> list[Chunk]:
        """Return all arguments of a call of which none came in pieces; nothing of others."""
        told = self._silent.get(place)
        return [] if told is None else [self.more(place, arguments or told)]


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


class _Usage(msgspec.Struct):
    prompt_tokens: TokenCount = None
    completion_tokens: TokenCount = None
    prompt_tokens_details: _TokenDetails | None = None
    prompt_cache_hit_tokens: TokenCount = None


class WireChunk(msgspec.Struct):
    """An event of a stream, or a whole answer; `error` where it is neither."""

    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


decode_chunk = msgspec.json.Decoder(WireChunk).decode


def decode_event(data: str) -> WireChunk | None:
    """An event of a stream; None for what is none.

    Half of a surrogate pair, or a byte that is not UTF-8, spoils its own place among the words.
    In a tool call it spoils the call: with another character it would be another call.
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
    """An error object inside of an answer."""

    def __init__(self, error: object) -> None:
        super().__init__("the provider sent an error")
        self.error = error


class EventReader(ABC):
    """Turns the events of one answer into chunks, and knows how far it came."""

    def __init__(self) -> None:
        self.end_reason = ""
        """Why the provider stopped; empty until it said so."""
        self._usage: UsageChunk | None = None

    @abstractmethod
    def take(self, data: str) -> list[Chunk]:
        """The chunks of an event; unknown ones say nothing. Usage and end are kept for `closing`.

        ValueError for one that can't be read; `Refusal` for an error of the provider's in it.
        """

    def done(self) -> None:  # noqa: B027 - most say themselves whether they ended
        """The provider said that nothing follows, or its answer came in one piece."""

    def closing(self) -> list[Chunk]:
        """Usage and the end, in that order, as far as they arrived."""
        found: list[Chunk] = [self._usage] if self._usage is not None else []
        return [*found, EndChunk(self.end_reason)] if self.end_reason else found


class AnswerReader(EventReader):
    """Reads chat completions; a stream has ended when a choice gave the reason."""

    def __init__(self) -> None:
        super().__init__()
        self._slots: dict[int | str, int] = {}
        """Of calls, by their last index and id."""
        self._ids: list[str] = []
        self._heads: list[tuple[str, str]] = []
        """Id and name of each call, as they were sent."""

    def feed(self, event: WireChunk) -> list[Chunk]:
        """The chunks of one event; usage and end are kept for `closing`."""
        usage = counted(event.usage, _Usage)
        # Who counts nothing, such as litellm where a server does not, may say so as zeros.
        if usage and (usage.prompt_tokens or usage.completion_tokens):
            self._usage = _usage(usage)
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
        """`[DONE]` arrived."""
        self.end_reason = self.end_reason or "stop"

    def _delta(self, delta: _Delta) -> list[Chunk]:
        found: list[Chunk] = []
        text, thinking = _words(delta.content)
        thinking = thinking or _words(delta.reasoning_content)[0] or _words(delta.reasoning)[0]
        if thinking:
            found.append(ReasoningChunk(thinking))
        if said := text + (delta.refusal or ""):
            found.append(TextChunk(said))
        found += [self._call(call) for call in delta.tool_calls or ()]
        return found

    def _call(self, call: _Call) -> ToolChunk:
        """A piece of a call, at an index of our own, each call with a unique id.

        Some servers number every call 0, or none, and tell them apart by id alone; some
        send no id, or the same one twice.
        """
        function = call.function or _Function()
        name, arguments = function.name or "", _text(function.arguments)
        slot = self._slot(call, name)
        if slot is not None:
            sent_id, sent_name = self._heads[slot]
            self._heads[slot] = sent_id, sent_name or name
            return ToolChunk(slot, "", name, arguments)
        slot = len(self._ids)
        for key in (call.index, call.id):
            if key is not None:
                self._slots[key] = slot
        unique = call.id if call.id and call.id not in self._ids else f"call_{new_id()}"
        self._ids.append(unique)
        self._heads.append((call.id or "", name))
        return ToolChunk(slot, unique, name, arguments)

    def _slot(self, call: _Call, name: str) -> int | None:
        """The call that a piece belongs to; None for a new one."""
        if call.index is not None:
            slot = self._slots.get(call.index)
        elif call.id:
            slot = self._slots.get(call.id)
        else:
            return None if name or not self._ids else len(self._ids) - 1
        if slot is None or not name:
            return slot
        sent_id, sent_name = self._heads[slot]
        is_other = (call.id and call.id != sent_id) or (sent_name and sent_name != name)
        return None if is_other else slot


def _usage(usage: _Usage) -> UsageChunk:
    details = usage.prompt_tokens_details
    cached = details.cached_tokens if details else None
    written = (details.cache_write_tokens or details.cache_creation_tokens) if details else None
    return UsageChunk(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=cached if cached is not None else usage.prompt_cache_hit_tokens,
        written_tokens=written,
    )


def _text(arguments: Json) -> str:
    """Arguments as text; some servers send the object itself."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


def _words(content: Json) -> tuple[str, str]:
    """(text, thinking) of a content that is a string, or a list of parts."""
    if isinstance(content, str):
        return content, ""
    text, thinking = "", ""
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            continue
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            thinking += inner if isinstance(inner, str) else _words(inner)[0]
        elif isinstance(part.get("text"), str):
            text += part["text"]
    return text, thinking


# --- server-sent events ---------------------------------------------------------


def too_long(limit: int) -> AnswerTooLong:
    """The error of an answer with more than `limit` bytes."""
    return AnswerTooLong(
        f"The answer is longer than {limit >> 20} MB.",
        hint="Rephrase the prompt, or use another model (-m).",
    )


async def event_data(pieces: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """The data of each server-sent event; AnswerTooLong.

    Its other fields say nothing that the data does not say as well. See
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


async def _lines(pieces: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """Each line that has ended.

    A byte that is not UTF-8 becomes half of a surrogate pair, which spoils its own event alone.
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

"""The LLM protocol, and the assembly of a stream of chunks into a completion.

Adapters translate a provider's protocol; they raise only `LLMError`s and yield only `Chunk`s.
Whether a stream is complete is decided by `Assembler`, not by an adapter.
"""

import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from ragmem.config import Effort
from ragmem.errors import (
    LONGEST_WAIT_S,
    AnswerTooLong,
    LLMError,
    ProviderUnavailable,
    StreamCut,
    after_tries,
    wait_s,
)
from ragmem.messages import Json, Message, ToolSpec, ToolUse
from ragmem.text import one_line

MOST_CHARS = 10 << 20
"""The limit of one answer with its reasoning and tool calls, against models that don't stop.

It is larger than what is stored of a turn, where truncated text is marked.
"""
_CALL_CHARS = 1_000
"""What each tool call adds to its characters, so that millions of empty ones end too."""
_BRIEF_CHARS = 60
_RETRY_HINT = "Try again in a moment, or use another model (-m)."
_CONTINUE_HINT = "Ask it to continue, or ask again."
"""The hint for an answer that broke off: its received part is in the conversation."""


THINKING_TOKENS: dict[Effort, int] = {"none": 0, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Token budgets by effort, for models that take a budget. Google's own mapping:
https://ai.google.dev/gemini-api/docs/openai#thinking
"""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    effort: Effort | None = None
    """None for the provider's default."""
    cache_key: str = ""
    """Equal for requests with a common prefix, for providers that take a prompt cache key."""
    answer_schema: dict[str, Json] | None = None
    """A JSON Schema for the answer; a provider that refuses it is asked again without."""


class TextChunk(msgspec.Struct, frozen=True):
    """A piece of the answer's text."""

    text: str


class ReasoningChunk(msgspec.Struct, frozen=True):
    """A piece of the model's reasoning."""

    text: str


class ToolChunk(msgspec.Struct, frozen=True):
    """A piece of the tool call at `index`; id and name come once, arguments in pieces."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class UsageChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of the whole call, as the provider reports them."""

    input_tokens: int | None = None
    """All input: read from the prompt cache, written to it, and not cached."""
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Input read from the prompt cache."""
    written_tokens: int | None = None
    """Input written to the prompt cache, for which some providers charge more."""


class EndChunk(msgspec.Struct, frozen=True):
    """The reason for the end of the answer: stop, length, tool_calls, content_filter …"""

    reason: str


class RetryChunk(msgspec.Struct, frozen=True, kw_only=True):
    """The request failed and will be sent again; only ever before any chunk of the answer."""

    reason: str
    """A few words to show to the user."""
    attempt: int
    """The number of the next attempt; the first request was 1."""
    most: int
    """The maximum number of attempts."""
    wait_s: float
    """The seconds until the next attempt."""


Chunk = TextChunk | ReasoningChunk | ToolChunk | UsageChunk | EndChunk | RetryChunk


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a model; None means unknown, and nothing is guessed."""

    name: str
    """`provider/model`, as in LiteLLM."""
    context_window: int | None = None
    """The limit in tokens, of input and output together or of input alone."""
    max_output_tokens: int | None = None
    input_usd_per_token: float | None = None
    output_usd_per_token: float | None = None
    cached_usd_per_token: float | None = None
    written_usd_per_token: float | None = None
    supports_tools: bool = True
    supports_images: bool | None = None
    """Whether it takes images; None for a model that is not in the table."""
    efforts: tuple[Effort, ...] | None = None
    """The reasoning efforts that it accepts; empty for a model without reasoning."""
    effort_by_name: bool = True
    """Whether efforts are sent by name rather than as token budgets."""
    responses_only: bool = False
    """Whether OpenAI offers it in the Responses API only, not in chat completions."""

    def cost_usd(self, used: UsageChunk) -> float | None:
        """Return the cost of a call in US dollars; None if a price or a count is unknown."""
        usual, out = self.input_usd_per_token, self.output_usd_per_token
        if usual is None or out is None or used.input_tokens is None or used.output_tokens is None:
            return None
        cached, written = used.cached_tokens or 0, used.written_tokens or 0
        read_price = usual if self.cached_usd_per_token is None else self.cached_usd_per_token
        write_price = usual if self.written_usd_per_token is None else self.written_usd_per_token
        # Some providers count cached tokens beside the input tokens, not as a part of them.
        new = max(0, used.input_tokens - cached - written)
        read, wrote = cached * read_price, written * write_price
        return new * usual + read + wrote + used.output_tokens * out


class LLM(Protocol):
    """A model behind an adapter."""

    info: ModelInfo

    def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Yield chunks as they arrive.

        Failures before the answer (429, 5xx, refused connections) are retried here, each after a
        RetryChunk; `Retry-After` is honoured up to a minute. Raises ProviderUnavailable,
        ProviderRefused, ContextTooLong or StreamCut.
        """
        ...

    async def prepare(self) -> None:
        """Do in advance what would slow down the first request: imports, starting a child process.

        May raise LLMError; the first request then raises it again.
        """
        ...

    async def aclose(self) -> None:
        """Close connections and child processes; safe to call twice."""
        ...


@asynccontextmanager
async def answering(llm: LLM, request: Request) -> AsyncIterator[AsyncIterator[Chunk]]:
    """Stream an answer; leaving the block before its end releases the connection."""
    chunks = llm.stream(request)
    try:
        yield chunks
    finally:
        if close := getattr(chunks, "aclose", None):
            await close()


class Passing(ProviderUnavailable):
    """A transient failure: nothing of the answer has arrived, and a retry may succeed."""

    def __init__(
        self, message: str, *, hint: str = "", retry_after_s: float | None = None, brief: str = ""
    ) -> None:
        super().__init__(message, hint=hint or _RETRY_HINT, retry_after_s=retry_after_s)
        self.brief = brief or one_line(message, _BRIEF_CHARS).removesuffix(".")
        """The message in a few words."""


async def retried(
    attempt: Callable[[], AsyncGenerator[Chunk, None]], retries: int
) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks of the first attempt that yields any.

    `Passing` errors are retried up to `retries` times, each after a RetryChunk, unless the server
    asks to wait more than a minute. Any error after an attempt's first chunk becomes a StreamCut.
    Errors are raised outside of `except`, so that no SDK's exception, which may contain a key, is
    attached as their context.
    """
    import asyncio  # Imported here, since choosing a model imports this module but needs no loop.

    for number in range(1, retries + 2):
        begun = False
        chunks = attempt()
        try:
            async for chunk in chunks:
                begun = True
                yield chunk
            return
        except LLMError as error:
            fault = error.with_traceback(None)
        finally:
            await chunks.aclose()
        if begun:
            raise StreamCut(f"The answer broke off. {fault}", hint=_CONTINUE_HINT)
        if not isinstance(fault, Passing):
            raise fault
        asked = fault.retry_after_s
        if number > retries or (asked or 0) > LONGEST_WAIT_S:
            text = after_tries(fault, number)
            raise ProviderUnavailable(text, hint=fault.hint, retry_after_s=asked)
        seconds, most = wait_s(number, asked), retries + 1
        yield RetryChunk(reason=fault.brief, attempt=number + 1, most=most, wait_s=seconds)
        await asyncio.sleep(seconds)


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A complete answer."""

    text: str
    reasoning: str = ""
    tool_uses: tuple[ToolUse, ...] = ()
    usage: UsageChunk = UsageChunk()
    end_reason: str = ""


class _Call(msgspec.Struct):
    """The received part of a tool call."""

    id: str = ""
    name: str = ""
    arguments: list[str] = []


class Assembler:
    """Collects chunks; `completion()` raises if the answer is incomplete."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._tools: dict[int, _Call] = {}
        self._chars_left = MOST_CHARS
        self.usage = UsageChunk()
        """The latest reported token counts."""
        self._end_reason = ""

    def feed(self, chunk: Chunk) -> None:
        """Add the next chunk; raises AnswerTooLong above MOST_CHARS."""
        match chunk:
            case TextChunk(text):
                self._count_chars(len(text))
                self._text.append(text)
            case ReasoningChunk(text):
                self._count_chars(len(text))
                self._reasoning.append(text)
            case ToolChunk(index, call_id, name, arguments):
                known = index in self._tools
                self._count_chars(len(name) + len(arguments) + (0 if known else _CALL_CHARS))
                call = self._tools.setdefault(index, _Call())
                call.id = call.id or call_id
                call.name = call.name or name
                call.arguments.append(arguments)
            case UsageChunk():
                self.usage = chunk
            case EndChunk(reason):
                self._end_reason = reason

    def _count_chars(self, chars: int) -> None:
        self._chars_left -= chars
        if self._chars_left < 0:
            raise AnswerTooLong(
                f"The model's answer did not end: it was stopped after {MOST_CHARS >> 20} MB.",
                hint="Rephrase the prompt, or use another model (-m).",
            )

    @property
    def text(self) -> str:
        """Return the text so far."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """Return the reasoning so far."""
        return "".join(self._reasoning)

    @property
    def has_begun(self) -> bool:
        """Return whether anything of an answer has arrived."""
        return self._chars_left < MOST_CHARS or bool(self._end_reason) or self.usage != UsageChunk()

    def completion(self) -> Completion:
        """Return the answer; raises StreamCut if it is empty or has no end reason."""
        calls = [self._tools[i] for i in sorted(self._tools)]
        uses = tuple(ToolUse(call.id, call.name, "".join(call.arguments)) for call in calls)
        if not self.text.strip() and not uses and self._end_reason != "content_filter":
            raise StreamCut(
                "The model's answer was empty: nothing arrived before the stream ended.",
                hint="Ask again, or use another model (-m).",
            )
        if not self._end_reason:
            raise StreamCut("The model's answer broke off before its end.", hint=_CONTINUE_HINT)
        return Completion(
            text=self.text,
            reasoning=self.reasoning,
            tool_uses=uses,
            usage=self.usage,
            end_reason=self._end_reason,
        )


def parse_arguments(text: str) -> dict[str, Json]:
    """Parse a tool call's arguments strictly: one JSON object, no duplicate keys, no NaN.

    Raises ValueError with a reason that a model can act on. Nothing is repaired: truncated JSON
    may be repaired to a valid but different command.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_unique_keys, parse_constant=finite, parse_float=finite
        )
    except RecursionError:
        raise ValueError("arguments are nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"arguments are not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"arguments must be a JSON object, not {type(value).__name__}")
    return value


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("duplicate keys")
    return result


def finite(number: str) -> float:
    """Parse a number of a JSON text; ValueError for one that JSON can't hold, such as NaN."""
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number} is not a number, or is out of range")
    return value

"""The LLM protocol, and how a stream of chunks becomes a completion.

Adapters translate; they raise only `LLMError`s and yield only `Chunk`s. None of
them is believed when it says that the stream ended well: `Assembler` decides.
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
    wait_s,
)
from ragmem.messages import Json, Message, ToolSpec, ToolUse
from ragmem.text import one_line

MOST_CHARS = 10 << 20
"""Of one answer, its reasoning and its tool calls together: a model that does not stop is left.

More than is stored of a turn: what is cut there bears a mark.
"""
_CALL_CHARS = 1_000
"""A tool call counts for so many, however few it has: millions of empty ones are endless too."""
_BRIEF_CHARS = 60
_TRY_AGAIN = "Try again in a moment, or use another model (-m)."
_GO_ON = "Ask it to continue, or ask again."
"""What came of an answer that broke off is in the conversation."""


THINKING_TOKENS: dict[Effort, int] = {"none": 0, "low": 1_024, "medium": 8_192, "high": 24_576}
"""An effort for models that take a number of tokens; as Google translates one into the other:
https://ai.google.dev/gemini-api/docs/openai#thinking
"""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    effort: Effort | None = None
    """None: as the provider has it."""
    cache_key: str = ""
    """The same for requests that begin alike, where a provider wants to know."""
    answer_schema: dict[str, Json] | None = None
    """A JSON Schema that the answer is to fit: who can hold a model to one does so, and whoever
    refuses it is asked without."""


class TextChunk(msgspec.Struct, frozen=True):
    """More words."""

    text: str


class ReasoningChunk(msgspec.Struct, frozen=True):
    """More of the provider's reasoning."""

    text: str


class ToolChunk(msgspec.Struct, frozen=True):
    """A piece of the tool call at `index`; id and name come once, arguments in pieces."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class UsageChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens as reported, for the whole call."""

    input_tokens: int | None = None
    """All that was read: from the cache, into it, and beside it."""
    output_tokens: int | None = None
    cached_tokens: int | None = None
    written_tokens: int | None = None
    """Put into the cache, which some providers bill above the usual."""


class EndChunk(msgspec.Struct, frozen=True):
    """The provider said why it stopped: stop, length, tool_calls, content_filter …"""

    reason: str


class RetryChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing has come, and it is asked again in a while; only ever before the answer's chunks."""

    reason: str
    """In a few words, for the person."""
    attempt: int
    """Which try comes next; the first request was the first."""
    most: int
    """Tries in all, if none succeeds."""
    wait_s: float
    """Until then."""


Chunk = TextChunk | ReasoningChunk | ToolChunk | UsageChunk | EndChunk | RetryChunk


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model; None is unknown, never a guess."""

    name: str
    """`provider/model`, LiteLLM's form."""
    context_window: int | None = None
    """Tokens in and out together, or in."""
    max_output_tokens: int | None = None
    input_usd_per_token: float | None = None
    output_usd_per_token: float | None = None
    cached_usd_per_token: float | None = None
    written_usd_per_token: float | None = None
    supports_tools: bool = True
    supports_images: bool | None = None
    """Whether it can see; unknown of a model that no table has."""
    efforts: tuple[Effort, ...] | None = None
    """Those that can be asked for; none of a model that does not think."""
    effort_by_name: bool = True
    """Efforts are told by their names, not by numbers of tokens."""
    responses_only: bool = False
    """OpenAI's, which its chat completions don't offer."""

    def cost_usd(
        self,
        input_tokens: int | None,
        output_tokens: int | None,
        cached_tokens: int | None = None,
        written_tokens: int | None = None,
    ) -> float | None:
        """What a call cost; None where the price or the tokens are unknown."""
        usual, out = self.input_usd_per_token, self.output_usd_per_token
        if usual is None or out is None or input_tokens is None or output_tokens is None:
            return None
        cached, written = cached_tokens or 0, written_tokens or 0
        read_price = usual if self.cached_usd_per_token is None else self.cached_usd_per_token
        write_price = usual if self.written_usd_per_token is None else self.written_usd_per_token
        # Some count what the cache gave beside what was read, not as a part of it.
        return (
            max(0, input_tokens - cached - written) * usual
            + cached * read_price
            + written * write_price
            + output_tokens * out
        )


class LLM(Protocol):
    """A model behind an adapter."""

    info: ModelInfo

    def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Yield chunks as they arrive.

        Retries (429, 5xx, refused connections; `Retry-After` honoured up to a
        minute) happen inside and only before the answer; a RetryChunk tells of each. Raises
        ProviderUnavailable, ProviderRefused, ContextTooLong or StreamCut.
        """
        ...

    async def prepare(self) -> None:
        """Do ahead, in the background, what makes a first request slow: imports, a child process.

        May raise LLMError; the first request then raises it again.
        """
        ...

    async def aclose(self) -> None:
        """Close connections and child processes; safe to call twice."""
        ...


@asynccontextmanager
async def answering(llm: LLM, request: Request) -> AsyncIterator[AsyncIterator[Chunk]]:
    """The chunks of an answer; left before its end, it lets go of its connection."""
    chunks = llm.stream(request)
    try:
        yield chunks
    finally:
        if close := getattr(chunks, "aclose", None):
            await close()


class Passing(ProviderUnavailable):
    """Nothing of the answer has arrived, and the next try may well succeed."""

    def __init__(
        self, message: str, *, hint: str = "", retry_after_s: float | None = None, brief: str = ""
    ) -> None:
        super().__init__(message, hint=hint or _TRY_AGAIN, retry_after_s=retry_after_s)
        self.brief = brief or one_line(message, _BRIEF_CHARS).removesuffix(".")
        """The same in a few words."""


async def retried(
    attempt: Callable[[], AsyncGenerator[Chunk, None]], retries: int
) -> AsyncGenerator[Chunk, None]:
    """The chunks of the first attempt that yields any.

    `Passing` errors are retried up to `retries` times, unless the server asks for
    more patience than a minute; a RetryChunk comes before each. Any error after the first
    chunk of an attempt is a StreamCut.
    Errors are raised outside of `except`, so that no SDK's exception, which may
    hold a key, hangs on as their context.
    """
    import asyncio  # Who only chooses a model needs this module too.

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
            raise StreamCut(f"The answer broke off. {fault}", hint=_GO_ON)
        if not isinstance(fault, Passing):
            raise fault
        asked = fault.retry_after_s
        if number > retries or (asked or 0) > LONGEST_WAIT_S:
            tried = f" (tried {number} times)" if number > 1 else ""
            raise ProviderUnavailable(f"{fault}{tried}", hint=fault.hint, retry_after_s=asked)
        seconds, most = wait_s(number, asked), retries + 1
        yield RetryChunk(reason=fault.brief, attempt=number + 1, most=most, wait_s=seconds)
        await asyncio.sleep(seconds)


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    text: str
    reasoning: str = ""
    tool_uses: tuple[ToolUse, ...] = ()
    usage: UsageChunk = UsageChunk()
    end_reason: str = ""


class _Call(msgspec.Struct):
    """A tool call as far as it came."""

    id: str = ""
    name: str = ""
    arguments: list[str] = []


class Assembler:
    """Collects chunks; `completion()` refuses what is not whole."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._tools: dict[int, _Call] = {}
        self._room = MOST_CHARS
        self.usage = UsageChunk()
        """Tokens as reported so far."""
        self._end_reason = ""

    def feed(self, chunk: Chunk) -> None:
        """Take the next chunk; AnswerTooLong where there is no room for it."""
        match chunk:
            case TextChunk(text):
                self._take(len(text))
                self._text.append(text)
            case ReasoningChunk(text):
                self._take(len(text))
                self._reasoning.append(text)
            case ToolChunk(index, call_id, name, arguments):
                known = index in self._tools
                self._take(len(name) + len(arguments) + (0 if known else _CALL_CHARS))
                call = self._tools.setdefault(index, _Call())
                call.id = call.id or call_id
                call.name = call.name or name
                call.arguments.append(arguments)
            case UsageChunk():
                self.usage = chunk
            case EndChunk(reason):
                self._end_reason = reason

    def _take(self, chars: int) -> None:
        self._room -= chars
        if self._room < 0:
            raise AnswerTooLong(
                f"The model's answer did not end: it was stopped after {MOST_CHARS >> 20} MB.",
                hint="Rephrase the prompt, or use another model (-m).",
            )

    @property
    def text(self) -> str:
        """Return the words so far."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """Return the reasoning so far."""
        return "".join(self._reasoning)

    @property
    def has_begun(self) -> bool:
        """Whether anything of an answer has come: a call that failed before that gave nothing."""
        return self._room < MOST_CHARS or bool(self._end_reason) or self.usage != UsageChunk()

    def completion(self) -> Completion:
        """The answer; StreamCut when nothing arrived or it ended without an end."""
        calls = [self._tools[i] for i in sorted(self._tools)]
        uses = tuple(ToolUse(call.id, call.name, "".join(call.arguments)) for call in calls)
        if not self.text.strip() and not uses and self._end_reason != "content_filter":
            raise StreamCut(
                "The model's answer was empty: the stream was cut or nothing came.",
                hint="Ask again, or use another model (-m).",
            )
        if not self._end_reason:
            raise StreamCut("The model's answer broke off before its end.", hint=_GO_ON)
        return Completion(
            text=self.text,
            reasoning=self.reasoning,
            tool_uses=uses,
            usage=self.usage,
            end_reason=self._end_reason,
        )


def parse_arguments(text: str) -> dict[str, Json]:
    """A tool call's arguments, strictly: one JSON object, no duplicate keys, no NaN.

    Raises ValueError with a reason that a model can act on. Never repairs:
    a repaired cut stream is a different valid command.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=_finite,
            parse_float=_finite,
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


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number} is not a number, or is out of range")
    return value

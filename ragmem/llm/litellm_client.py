"""Adapter for providers without an OpenAI-compatible endpoint, through litellm.

litellm reports a truncated stream as a proper end: here an answer counts as complete only if
litellm received a finish reason, and every tool call's arguments are valid JSON.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import msgspec

from ragmem.errors import LLMError, ProviderRefused, chain, header_of
from ragmem.libraries import close_litellm, hush_litellm, load_litellm
from ragmem.llm import faults, wire
from ragmem.llm.base import Chunk, ModelInfo, Passing, Request, ToolChunk, parse_arguments, retried
from ragmem.llm.http_client import Endpoint
from ragmem.messages import Json

_CACHE_BREAKPOINTS: Json = [
    {"location": "message", "role": "system"},
    {"location": "message", "index": -1},
]


class LiteLLMClient:
    """Implements `ragmem.llm.base.LLM` over litellm."""

    def __init__(
        self, info: ModelInfo, endpoint: Endpoint, *, timeout_s: float = 120.0, retries: int = 3
    ) -> None:
        self.info = info
        self._timeout_s = timeout_s
        self._retries = retries
        self._endpoint = msgspec.structs.replace(
            endpoint,
            name=endpoint.model.partition("/")[0],
            secrets=(endpoint.api_key,) if endpoint.api_key else (),
        )

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """See `LLM.stream`."""
        return retried(lambda: self._attempt(request), self._retries)

    async def prepare(self) -> None:
        """Import litellm."""
        await asyncio.to_thread(load_litellm)

    async def aclose(self) -> None:
        """Close litellm's connections, if it was ever used."""
        await close_litellm()

    async def _attempt(self, request: Request) -> AsyncGenerator[Chunk, None]:
        litellm = await asyncio.to_thread(load_litellm)
        hush_litellm()
        reader = wire.AnswerReader()
        arguments: dict[int, list[str]] = {}
        fault: LLMError | None = None
        answer: Any = None
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await litellm.acompletion(**self._call(request))
            if answer is None:
                # litellm returns None for a second 422.
                raise faults.from_status(self._endpoint, 422, "")
            async for event in wire.timed(aiter(answer), reader, self._timeout_s):
                for chunk in reader.feed(msgspec.convert(event.model_dump(), wire.WireChunk)):
                    if isinstance(chunk, ToolChunk):
                        arguments.setdefault(chunk.index, []).append(chunk.arguments)
                    yield chunk
        except LLMError as error:
            fault = error.with_traceback(None)
        except Exception as error:
            # litellm raises its own exceptions, those of providers' SDKs, and built-in ones.
            fault = self._fault(error)
        finally:
            if close := getattr(answer, "aclose", None):
                with suppress(Exception):
                    await close()
        if fault is not None:
            raise fault
        if not _has_finish_reason(answer):
            raise faults.closed_early(self._endpoint)
        try:
            for parts in arguments.values():
                parse_arguments("".join(parts) or "{}")
        except ValueError:
            raise Passing(f"{self._endpoint.name} sent an incomplete tool call.") from None
        for chunk in reader.closing():
            yield chunk

    def _call(self, request: Request) -> dict[str, Json]:
        call: dict[str, Json] = {
            "model": self._endpoint.model,
            "messages": wire.messages_json(request.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            "timeout": self._timeout_s,
            "max_retries": 0,
            "num_retries": 0,
            # Without these litellm looks up the price, and for a model without one formats a
            # traceback in a thread for each answer. The cost is computed from our own table.
            "input_cost_per_token": 0.0,
            "output_cost_per_token": 0.0,
            # Without this, requests with tools import mcp, which takes 0.7 s.
            "_skip_mcp_handler": True,
        }
        if request.tools:
            call["tools"] = wire.tools_json(request.tools)
        if request.max_output_tokens:
            call["max_tokens"] = request.max_output_tokens
        if request.effort:
            call["reasoning_effort"] = request.effort
        if "claude" in self._endpoint.model:
            # Claude's cached prefixes cost a tenth, but need explicit cache breakpoints.
            call["cache_control_injection_points"] = _CACHE_BREAKPOINTS
        key, base = self._endpoint.api_key, self._endpoint.base_url
        if base:
            # The SDK refuses to start without any key.
            call |= {"api_base": base, "api_key": key or "none"}
        elif key:
            call["api_key"] = key
        return call

    def _fault(self, error: Exception) -> LLMError:
        """Convert any exception raised by litellm; only its names and texts are used."""
        peer = self._endpoint
        kinds = {type(each).__name__ for each in chain(error)}
        message = str(getattr(error, "message", "") or error)[: faults.MOST_ERROR_CHARS]
        text = _SDK_NAMES.sub("", message).strip()
        status = getattr(error, "status_code", None)
        if "LLM Provider NOT provided" in text:
            return ProviderRefused(
                f"The provider {peer.name!r} of {peer.model} is not known.",
                hint="`ragmem models` lists what can be used now.",
            )
        if "ContextWindowExceededError" in kinds:
            return faults.too_long(peer, faults.scrub(text, peer.secrets))
        if kinds & {"JSONDecodeError", "UnicodeDecodeError", "APIResponseValidationError"}:
            return Passing(f"{peer.name} sent something that is not an answer.")
        if kinds & {"ConnectError", "ConnectTimeout"}:
            return faults.unreachable(peer, _first_line(text))
        if kinds & {"Timeout", "APITimeoutError", "ReadTimeout", "TimeoutError"}:
            return faults.timed_out(peer, self._timeout_s)
        if kinds & {"ReadError", "RemoteProtocolError"}:
            return Passing(f"The connection to {peer.name} was lost.")
        if kinds & {"ImportError", "ModuleNotFoundError"}:
            return ProviderRefused(
                f"{peer.model} needs a library that is not installed: {_first_line(text)}.",
                hint="Install it next to ragmem, or use another model (-m).",
            )
        if isinstance(status, int) and 400 <= status < 600:
            seconds = faults.retry_after(header_of(error, "retry-after"), text)
            return faults.from_status(peer, status, text, retry_after_s=seconds)
        return Passing(f"{peer.name}: {faults.scrub(text, peer.secrets) or 'no answer'}")


# Matches prefixes such as `litellm.RateLimitError: AnthropicException - `.
_SDK_NAMES = re.compile(r"^(?:\s*(?:litellm\.)?\w+(?:Error|Exception)(?::| -)\s*)+")


def _has_finish_reason(answer: Any) -> bool:
    """Return whether litellm received a finish reason, rather than making one up.

    True for versions of litellm without these attributes.
    """
    names = ("received_finish_reason", "intermittent_finish_reason")
    if not any(hasattr(answer, name) for name in names):
        return True
    return any(getattr(answer, name, None) for name in names)


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0].rstrip(".") or "no connection"

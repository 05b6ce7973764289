"""The adapters, made for a scripted server; what every test of them needs."""

from collections.abc import Callable
from typing import Any

from ragmem.llm.anthropic_client import AnthropicClient
from ragmem.llm.base import LLM, Assembler, Chunk, Completion, ModelInfo, Request
from ragmem.llm.gemini_client import GeminiClient
from ragmem.llm.http_client import Endpoint, OpenAIClient, ResponsesClient
from ragmem.llm.litellm_client import LiteLLMClient
from ragmem.messages import Message, ToolSpec, user
from tests.fakes.llm_server import Answer, LLMServer

KEY = "sk-canary-0123456789abcdef"

Connect = Callable[..., LLM]


def client_of(kind: Callable[..., LLM], name: str, model: str = "scripted") -> Connect:
    """An adapter of one kind; `known` is what is known of its model."""

    def connect(
        url: str, *, timeout_s: float = 60.0, retries: int = 0, key: str | None = KEY, **known: Any
    ) -> LLM:
        endpoint = Endpoint(
            base_url=url, model=model, api_key=key, key_variable="RAGMEM_API_KEY", custom=True
        )
        info = ModelInfo(name=f"{name}/scripted", **known)
        return kind(info, endpoint, timeout_s=timeout_s, retries=retries)

    return connect


openai_client = client_of(OpenAIClient, "openai")
anthropic_client = client_of(AnthropicClient, "anthropic")
responses_client = client_of(ResponsesClient, "openai")
gemini_client = client_of(GeminiClient, "gemini")
litellm_client = client_of(LiteLLMClient, "openai", "openai/scripted")

ADAPTERS: dict[str, Connect] = {
    "openai": openai_client,
    "anthropic": anthropic_client,
    "gemini": gemini_client,
    "responses": responses_client,
    "litellm": litellm_client,
}

READ_FILE = ToolSpec(
    "read_file",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def asking(*messages: Message, tools: tuple[ToolSpec, ...] = (READ_FILE,)) -> Request:
    """A request; by default one question."""
    return Request(messages=messages or (user("What is in a.py?"),), tools=tools)


async def chunks_of(llm: LLM, request: Request | None = None) -> list[Chunk]:
    return [chunk async for chunk in llm.stream(request or asking())]


async def complete(llm: LLM, request: Request | None = None) -> Completion:
    """The whole answer, judged by the Assembler."""
    assembler = Assembler()
    await feed(assembler, llm, request)
    return assembler.completion()


async def ask(make: Connect, url: str, request: Request | None = None) -> Completion:
    """The whole answer of an adapter that is made for it and closed behind it."""
    llm = make(url)
    try:
        return await complete(llm, request)
    finally:
        await llm.aclose()


async def warm(make: Connect) -> None:
    """What litellm imports with its first request, for seconds, would count as silence."""
    with LLMServer([Answer("ok")]) as server:
        await ask(make, server.url)


async def feed(assembler: Assembler, llm: LLM, request: Request | None = None) -> None:
    """Give the chunks of an answer to an assembler, until the end or an error."""
    async for chunk in llm.stream(request or asking()):
        assembler.feed(chunk)


def all_text_of(error: BaseException) -> str:
    """Everything that a log or a traceback could show of an error, causes included."""
    found, seen = "", set[int]()
    todo: list[BaseException | None] = [error]
    while todo:
        item = todo.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        found += f"{item!s} {item!r} {getattr(item, '__dict__', {})!r} "
        todo += [item.__cause__, item.__context__]
    return found

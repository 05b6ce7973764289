"""What a model says to a background call: heard to its end, within bounds."""

import asyncio

from ragmem.errors import LLMError, ProviderUnavailable, StreamCut
from ragmem.llm.base import LLM, Assembler, Request, TextChunk, answering

_CALL_TIMEOUT_S = 120.0
_LONGEST_ANSWER = 40_000


async def heard(llm: LLM, request: Request, answer: Assembler) -> LLMError | None:
    """Ask, and collect what is said; why it can't be used, where it is not whole."""
    try:
        async with asyncio.timeout(_CALL_TIMEOUT_S):
            length = 0
            async with answering(llm, request) as chunks:
                async for chunk in chunks:
                    answer.feed(chunk)
                    length += len(chunk.text) if isinstance(chunk, TextChunk) else 0
                    if length > _LONGEST_ANSWER:
                        return StreamCut("The model's answer was endless.")
        answer.completion()
    except LLMError as error:
        return error
    except TimeoutError:
        return StreamCut(f"The model took longer than {_CALL_TIMEOUT_S:g} s.")
    return None


def may_pass(error: LLMError) -> bool:
    """Whether the same call may come to something when it is made again."""
    return isinstance(error, ProviderUnavailable | StreamCut)

"""A very small model's answer, sentence by sentence."""

from collections.abc import AsyncIterator, Iterable

import pytest
from hypothesis import given, strategies as st

from ragmem.llm.base import Chunk, EndChunk, TextChunk, UsageChunk
from ragmem.llm.local import sentences


async def stream(texts: Iterable[str], reason: str) -> AsyncIterator[Chunk]:
    for text in texts:
        yield TextChunk(text)
    yield EndChunk(reason)
    yield UsageChunk(output_tokens=7)


async def heard(texts: Iterable[str], reason: str = "stop") -> tuple[str, str]:
    """What is let through, and the reason of the end."""
    chunks = [chunk async for chunk in sentences(stream(texts, reason))]
    (end,) = [chunk.reason for chunk in chunks if isinstance(chunk, EndChunk)]
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)), end


CODE = "Do this:\n\n```\na = f()\n\nb\n```"


@pytest.mark.parametrize(
    ("answer", "reason", "expected"),
    [
        ("It is 8080. It listens.", "stop", ("It is 8080. It listens.", "stop")),
        ("It is 8080. It lis", "length", ("It is 8080.", "stop")),
        ("Steps:\n1. One goes.\n2. Tw", "length", ("Steps:\n1. One goes.", "stop")),
        ("It has no en", "length", ("It has no en", "length")),
        ("I am glad. I am glad. I am", "length", ("I am glad.", "stop")),
        ("I am glad.\n\nI am glad.", "stop", ("I am glad.", "stop")),
        ("```\na\n```\n```\nb\n```", "stop", ("```\na\n```\n```\nb\n```", "stop")),
        ("v0.4.2 is it", "stop", ("v0.4.2 is it", "stop")),
        ("It is.\n\nI'm sorry for", "length", ("It is.", "stop")),
        ('You asked: "What?"\n\nWell.', "stop", ('You asked: "What?"', "stop")),
        (CODE, "stop", (CODE, "stop")),
    ],
    ids=[
        "whole", "cut", "cut-item", "cut-first", "loop", "loop-end", "short-lines", "dots",
        "paragraph", "quote", "code",
    ],
)  # fmt: skip
async def test_it_ends_with_a_sentence(answer: str, reason: str, expected: tuple[str, str]) -> None:
    """A loop is left at its first repetition, and a cut answer needs no warning."""
    for pieces in ([answer], list(answer)):
        text, end = await heard(pieces, reason)
        assert (text.rstrip(), end) == expected


async def test_other_chunks_pass() -> None:
    chunks = [chunk async for chunk in sentences(stream("Yes.", "stop"))]
    assert chunks == [TextChunk("Yes."), EndChunk("stop"), UsageChunk(output_tokens=7)]


@given(st.lists(st.text("aB1.! \n`)", max_size=8), max_size=30))
async def test_nothing_is_added_or_changed(texts: list[str]) -> None:
    shown, _ = await heard(texts)
    assert "".join(texts).startswith(shown)

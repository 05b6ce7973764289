"""The answer of a very small model, let through sentence by sentence.

Such a model loops, adds paragraphs that are beside the point, and talks until it
is cut off in the middle of a word. Its answer ends with the first paragraph that
is one, before a sentence that was said already, and never within one.
"""

import re
from collections.abc import AsyncIterator

from ragmem.llm.base import Chunk, EndChunk, TextChunk

# With the number of a list's item, which is no sentence, before it.
_SENTENCE = re.compile(r"\s*+(?:\d+\.\s|(?!\d+\.\s)).*?(?:[.!?]+[\"'`*)\]]*\s+|\n+)", re.DOTALL)
# Not a colon: what it announces follows. Not a question mark: the answer follows.
_PARAGRAPH = re.compile(r"[.!\"'`)]\n\s*\n\s*\S")
_SHORT = 8
"""A line with fewer characters (a bracket, a fence) may stand there twice."""


async def sentences(chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    """The same chunks, words held back until a sentence or a line is whole.

    Where the answer is ended here, its end is `stop`; so it is instead of `length`
    where a sentence was said.
    """
    shown, pending = "", ""
    said: set[str] = set()
    async for chunk in chunks:
        match chunk:
            case TextChunk(text):
                pending += text
                while found := _SENTENCE.match(pending):
                    if _is_over(shown, found.group(), said):
                        yield EndChunk("stop")
                        return
                    yield TextChunk(found.group())
                    shown, pending = shown + found.group(), pending[found.end() :]
            case EndChunk(reason):
                is_cut = reason == "length" and bool(said)
                if pending and not is_cut and not _is_over(shown, pending, said):
                    yield TextChunk(pending)
                yield EndChunk("stop") if is_cut else chunk
            case _:
                yield chunk


def _is_over(shown: str, sentence: str, said: set[str]) -> bool:
    """Whether the answer ends before this sentence, which counts as said from now on."""
    key = " ".join(sentence.split()).casefold()
    is_known = len(key) >= _SHORT and key in said
    said.add(key)
    is_in_code = shown.count("```") % 2 == 1
    return is_known or (not is_in_code and bool(_PARAGRAPH.search(shown[-9:] + sentence)))

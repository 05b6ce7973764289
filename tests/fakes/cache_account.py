"""What a provider would read from its cache of the requests that it was sent, by its own rules.

In characters, which stand for tokens: shares are the same.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

_LOOKED_BACK = 20
"""Blocks before a mark at which an entry is looked for; this, and where entries are made:
https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching
"""
_LEAST_CHARS, _STEP_CHARS = 1_024 * 4, 128 * 4
"""A shorter beginning is not kept, and it is read in steps:
https://platform.openai.com/docs/guides/prompt-caching
"""


class Read(NamedTuple):
    """Of one request."""

    chars: int
    cached: int


def by_marks(bodies: Sequence[Any]) -> list[Read]:
    """Anthropic's: entries are made at marks, and found from marks backwards."""
    kept: set[str] = set()
    found = []
    for body in bodies:
        beginning, sizes, marks = "", [0], []
        beginnings = [""]
        for text, marked in _blocks(body):
            beginning += text
            beginnings.append(beginning)
            sizes.append(len(beginning))
            if marked:
                marks.append(len(sizes) - 1)
        assert len(marks) <= 4, "the provider takes no more marks"
        seen = [
            sizes[place]
            for mark in marks
            for place in range(mark, max(0, mark - _LOOKED_BACK), -1)
            if beginnings[place] in kept
        ]
        kept |= {beginnings[mark] for mark in marks if sizes[mark] >= _LEAST_CHARS}
        found.append(Read(sizes[-1], max(seen, default=0)))
    return found


def _blocks(body: Any) -> Iterator[tuple[str, bool]]:
    for tool in body.get("tools", ()):
        yield _plain(tool), "cache_control" in tool
    for block in body.get("system", ()):
        yield _plain(block), "cache_control" in block
    for message in body["messages"]:
        for block in message["content"]:
            yield message["role"] + _plain(block), "cache_control" in block


def _plain(block: Any) -> str:
    return json.dumps({name: each for name, each in block.items() if name != "cache_control"})


def by_beginning(bodies: Sequence[Any]) -> list[Read]:
    """OpenAI's: whatever an earlier request of the same key began with."""
    earlier: dict[str, list[str]] = {}
    found = []
    for body in bodies:
        text = json.dumps([body.get("tools"), *body["messages"]])
        before = earlier.setdefault(body["prompt_cache_key"], [])
        most = max((_alike(text, other) for other in before), default=0)
        before.append(text)
        found.append(Read(len(text), most // _STEP_CHARS * _STEP_CHARS * (most >= _LEAST_CHARS)))
    return found


def _alike(one: str, other: str) -> int:
    """So many characters both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


Account = Callable[[Sequence[Any]], list[Read]]

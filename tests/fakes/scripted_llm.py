"""A scripted LLM in memory, for tests that need no wire.

    llm = ScriptedLLM([
        Says(tools=(ToolUse("c1", "read_file", '{"path": "a.py"}'),)),
        Says("It prints hello."),
        StreamCut("the model's answer broke off"),      # an error is raised in place of an answer
        lambda request: Says(f"{len(request.messages)} messages"),
    ])
    llm.requests        # every Request, as it arrived

When the script is over, it raises AssertionError, so that a test can't pass on silence.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from ragmem.llm.base import (
    Chunk,
    EndChunk,
    ModelInfo,
    ReasoningChunk,
    Request,
    TextChunk,
    ToolChunk,
    UsageChunk,
)
from ragmem.messages import ToolUse


class Says(msgspec.Struct, frozen=True):
    """One answer. `cut` ends it without an end, after its text; `gate` waits before the end."""

    text: str = ""
    tools: tuple[ToolUse, ...] = ()
    reasoning: str = ""
    usage: UsageChunk | None = UsageChunk(input_tokens=100, output_tokens=20, cached_tokens=0)
    finish: str = ""
    delay_s: float = 0.0
    """Before each chunk."""
    cut: bool = False
    gate: asyncio.Event | None = None


Step = Says | BaseException | Callable[[Request], Says]


class ScriptedLLM:
    """Implements `ragmem.llm.base.LLM`."""

    def __init__(
        self, script: Sequence[Step] = (), *, info: ModelInfo | None = None, repeat: bool = False
    ) -> None:
        self.info = info or ModelInfo(name="openai/scripted", context_window=128_000)
        self.requests: list[Request] = []
        self.closed = False
        self._script = list(script)
        self._repeat = repeat

    def extend(self, *steps: Step) -> None:
        self._script.extend(steps)

    @property
    def left(self) -> int:
        return len(self._script)

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        self.requests.append(request)
        if not self._script:
            raise AssertionError("the script is over: a model call that the test did not expect")
        step = self._script[0]
        if not (self._repeat and len(self._script) == 1):
            self._script.pop(0)
        if isinstance(step, BaseException):
            raise step
        says = step if isinstance(step, Says) else step(request)
        for chunk in chunks(says):
            await asyncio.sleep(says.delay_s)
            yield chunk
        if says.gate is not None:
            await says.gate.wait()
        if not says.cut:
            yield EndChunk(says.finish or ("tool_calls" if says.tools else "stop"))

    async def prepare(self) -> None:
        """Nothing is slow here."""

    async def aclose(self) -> None:
        """Nothing to close; noted."""
        self.closed = True


def chunks(says: Says) -> list[Chunk]:
    """Text word by word, arguments in two pieces."""
    found: list[Chunk] = []
    if says.reasoning:
        found.append(ReasoningChunk(says.reasoning))
    words = says.text.split(" ")
    for i, word in enumerate(words):
        piece = word if i == len(words) - 1 else word + " "
        if piece:
            found.append(TextChunk(piece))
    for index, use in enumerate(says.tools):
        half = len(use.arguments) // 2
        found.append(ToolChunk(index, use.id, use.name, use.arguments[:half]))
        found.append(ToolChunk(index, arguments=use.arguments[half:]))
    if says.usage is not None:
        found.append(says.usage)
    return found

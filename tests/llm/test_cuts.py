"""A stream cut anywhere, and split anyhow."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec import structs

from ragmem.errors import LLMError
from ragmem.llm.base import LLM, Assembler, Completion
from tests.fakes.llm_server import (
    Answer,
    Call,
    LLMServer,
    Mode,
    render,
    render_anthropic,
    render_gemini,
    render_responses,
)
from tests.llm.adapters import ADAPTERS, Connect, asking, complete

WHOLE = Answer("Go.", tools=[Call("run_command", {"command": "rm -rf ./b/c"})], chunk_chars=8)
SIZE = len(b"".join(render(WHOLE, model="scripted")))
SIZES = {
    "anthropic": len(b"".join(render_anthropic(WHOLE))),
    "gemini": len(b"".join(render_gemini(WHOLE))),
    "responses": len(b"".join(render_responses(WHOLE))),
}
EXPECTED = [("run_command", {"command": "rm -rf ./b/c"})]


async def outcome(llm: LLM) -> Completion | None:
    """The completion, or None where the adapter or the Assembler refused."""
    try:
        return await complete(llm)
    except LLMError:
        return None


@pytest.mark.parametrize(
    ("mode", "step"),
    [
        ("cut_clean", 5),
        ("cut_noend", 41),
        ("cut_rst", 41),
        pytest.param("cut_clean", 1, marks=pytest.mark.campaign),
    ],
)
async def test_cut_at_any_byte(
    connect: Connect, mode: Mode, step: int, request: pytest.FixtureRequest
) -> None:
    """Never a completion with a tool call that was not whole."""
    # litellm reads whole events, and takes longer.
    spoken = request.node.callspec.params["connect"]
    slow = spoken == "litellm"
    offsets = range(0, SIZES.get(spoken, SIZE), step * 5 if slow and mode == "cut_clean" else step)
    whole = 0
    script = [structs.replace(WHOLE, mode=mode, cut_at=n) for n in offsets]
    with LLMServer(script) as server:
        llm = connect(server.url)
        for _ in offsets:
            done = await outcome(llm)
            if done is None:
                continue
            whole += 1
            assert [(u.name, json.loads(u.arguments)) for u in done.tool_uses] == EXPECTED
            assert done.text == "Go."
        assert server.left == 0
    # Once the end was said, what follows (usage, [DONE]) may be lost; in SIZES it is said last.
    assert whole == 0 if spoken in SIZES else 0 < whole < len(offsets) / 2


@settings(suppress_health_check=list(HealthCheck))
@given(
    text=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
        str.strip
    ),
    path=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    chunk_chars=st.integers(1, 9),
    write_bytes=st.integers(1, 64),
)
def test_any_split_gives_the_same_answer(
    text: str, path: str, chunk_chars: int, write_bytes: int
) -> None:

    async def run() -> Completion:
        answer = Answer(
            text,
            tools=[Call("read_file", {"path": path})],
            chunk_chars=chunk_chars,
            write_bytes=write_bytes,
        )
        with LLMServer([answer]) as server:
            llm = ADAPTERS["openai"](server.url)
            assembler = Assembler()
            try:
                async for chunk in llm.stream(asking()):
                    assembler.feed(chunk)
            finally:
                await llm.aclose()
            return assembler.completion()

    done = asyncio.run(run())
    assert done.text == text
    assert len(done.tool_uses) == 1


async def test_a_tool_call_of_megabytes(connect: Connect) -> None:
    content = "x" * 5_000_000
    call = Call("write_file", {"path": "a", "content": content})
    with LLMServer([Answer(tools=[call], chunk_chars=100_000)]) as server:
        done = await outcome(connect(server.url))
    assert done is not None
    assert len(done.tool_uses[0].arguments) > 5_000_000

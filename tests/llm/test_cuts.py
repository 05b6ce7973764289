"""A stream cut anywhere, and split anyhow."""

import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec import structs

from ragmem.errors import LLMError
from ragmem.llm.base import LLM, Completion
from tests.fakes import llm_server
from tests.fakes.llm_server import Answer, Call, LLMServer, Mode
from tests.llm.adapters import Connect, ask, complete, openai_client

WHOLE = Answer("Go.", tools=[Call("run_command", {"command": "rm -rf ./b/c"})], chunk_chars=8)
EVENTS = {
    "anthropic": llm_server.render_anthropic(WHOLE),
    "gemini": llm_server.render_gemini(WHOLE),
    "responses": llm_server.render_responses(WHOLE),
}

CHAT_COMPLETIONS = llm_server.render(WHOLE, model="scripted")


def places(events: list[bytes]) -> list[int]:
    """Behind each event, before the line feed at its end, and in its middle."""
    starts = itertools.accumulate(map(len, events[:-1]), initial=0)
    found = (
        (start - 1, start, start + len(each) // 2)
        for start, each in zip(starts, events, strict=True)
    )
    return [place for each in found for place in each if place >= 0]


EXPECTED = [("run_command", {"command": "rm -rf ./b/c"})]


async def outcome(llm: LLM) -> Completion | None:
    """The completion, or None where the adapter or the Assembler refused."""
    try:
        return await complete(llm)
    except LLMError:
        return None


@pytest.mark.parametrize(
    ("mode", "at_every_byte"),
    [
        ("cut_clean", False),
        ("cut_noend", False),
        ("cut_rst", False),
        pytest.param("cut_clean", True, marks=pytest.mark.campaign),
    ],
)
async def test_cut_at_any_byte(
    connect: Connect, mode: Mode, at_every_byte: bool, request: pytest.FixtureRequest
) -> None:
    """Never a completion with a tool call that was not whole."""
    spoken = request.node.callspec.params["connect"]
    events = EVENTS.get(spoken, CHAT_COMPLETIONS)
    offsets = range(len(b"".join(events))) if at_every_byte else places(events)
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
    # Once the end was said, what follows (usage, [DONE]) may be lost; others say it last.
    assert whole == 0 if spoken in EVENTS else 0 < whole < len(offsets) / 2


@settings(suppress_health_check=list(HealthCheck))
@given(
    text=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
        str.strip
    ),
    path=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    chunk_chars=st.integers(1, 9),
    write_bytes=st.integers(1, 64),
)
async def test_any_split_gives_the_same_answer(
    text: str, path: str, chunk_chars: int, write_bytes: int
) -> None:
    answer = Answer(
        text,
        tools=[Call("read_file", {"path": path})],
        chunk_chars=chunk_chars,
        write_bytes=write_bytes,
    )
    with LLMServer([answer]) as server:
        done = await ask(openai_client, server.url)
    assert done.text == text
    assert [json.loads(use.arguments) for use in done.tool_uses] == [{"path": path}]


async def test_a_tool_call_of_a_megabyte(connect: Connect) -> None:
    call = Call("write_file", {"path": "a", "content": "x" * 1_000_000})
    with LLMServer([Answer(tools=[call], chunk_chars=20_000)]) as server:
        done = await outcome(connect(server.url))
    assert done is not None
    assert len(done.tool_uses[0].arguments) > 1_000_000

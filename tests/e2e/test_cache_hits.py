"""What is sent begins as it began before, so that a provider reads most of it from its cache."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.fakes.cache_account import Account, by_beginning, by_marks
from tests.fakes.llm_server import Answer, Call, LLMServer

_TURNS = 8
_TURN = (
    Answer(tools=[Call("read_file", {"path": "first.py"})]),
    Answer(tools=[Call("read_file", {"path": "second.py"})]),
    Answer("Both are as they should be. " * 40),
)


@pytest.mark.parametrize(
    ("model", "env", "account"),
    [
        (
            "anthropic/claude-sonnet-5-5",
            {"ANTHROPIC_API_KEY": "k-0123456789abcdef", "ANTHROPIC_BASE_URL": "{}"},
            by_marks,
        ),
        (
            "openai/gpt-6-luna",
            {"OPENAI_API_KEY": "k-0123456789abcdef", "OPENAI_BASE_URL": "{}/v1"},
            by_beginning,
        ),
    ],
)
def test_most_of_a_chat_is_read_from_the_cache(
    tmp_path: Path, model: str, env: dict[str, str], account: Account
) -> None:
    with LLMServer(_TURN * _TURNS) as server:
        made = {name: each.format(server.url.removesuffix("/v1")) for name, each in env.items()}
        ragmem = Ragmem(tmp_path, {**made, "RAGMEM_MEMORY__WORKER": "off"})
        for name in ("first.py", "second.py"):
            lines = (f"def {name[0]}{i}():\n    return {i}\n" for i in range(60))
            (ragmem.project / name).write_text("\n".join(lines))
        for number in range(_TURNS):
            ragmem.ok("ask", "-m", model, *["-c"][:number], f"Look at both, part {number}.")
    read = account([request.body for request in server.requests])
    turns = [read[i : i + len(_TURN)] for i in range(0, len(read), len(_TURN))]
    assert len(turns) == _TURNS
    share = sum(each.cached for each in read) / sum(each.chars for each in read)
    within = [after.cached / before.chars for turn in turns for before, after in pairwise(turn)]
    print(f"\n{model}: {share:.1%} of the chat, at least {min(within):.1%} of the call before")
    assert share >= 0.8
    assert min(within) >= 0.95

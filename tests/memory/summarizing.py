"""A summariser over a scripted model, and what the tests of it share."""

import json
import re
from collections.abc import Callable

import msgspec

from ragmem.config import SummariesConfig
from ragmem.llm.base import ModelInfo, Request
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.records import Summary
from tests.fakes.scripted_llm import ScriptedLLM, Step

from .builders import T0
from .summary_turns import coding_turns

GOOD = json.dumps(
    {
        "text": "The lock error is fixed.",
        "key_findings": ["busy_timeout comes first"],
        "topics": ["sqlite"],
    }
)
TURN = coding_turns()[1]


class Naps(list[float]):
    """Waits that take no time, noted."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def a_summarizer(
    *script: Step,
    config: SummariesConfig | None = None,
    info: ModelInfo | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Summarizer, ScriptedLLM]:
    llm = ScriptedLLM(script, info=info)
    settings = config or SummariesConfig()
    return Summarizer(llm, settings, clock=lambda: T0, sleep=Naps(), say=say), llm


def a_summary(number: int, level: int = 1, **fields: object) -> Summary:
    base = Summary(
        summary_id=f"01a2005f-a99f-7000-8ce2-{level:04x}{number:08x}",
        session_id="s",
        text=f"Part {number} was built in module_{number}.py and all its tests pass.",
        level=level,
        turn_count=1,
        created_at=T0,
        covers=(f"turn-{number}",),
    )
    return msgspec.structs.replace(base, **fields)


def asked(request: Request) -> str:
    """The request with its random mark made plain."""
    text = "\n=====\n".join(message.text for message in request.messages)
    return re.sub(r"records-[0-9a-f]{10}>", "records-TAG>", text)

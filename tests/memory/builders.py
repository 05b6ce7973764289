"""Turns, calls and requests for tests, made short."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ragmem.config import MemoryConfig
from ragmem.llm.base import ModelInfo
from ragmem.memory.context import Context, ContextRequest, Material, Place, Strategy
from ragmem.memory.context.builder import ContextBuilder
from ragmem.memory.projects import NO_INSTRUCTIONS
from ragmem.records import ToolCall, Turn, TurnStatus

T0 = datetime(2026, 1, 10, 12, tzinfo=UTC)
NOW = datetime(2026, 3, 12, 9, tzinfo=UTC)
BIG = ModelInfo(name="x/big", context_window=200_000)
SMALL = ModelInfo(name="x/small", context_window=1_200, supports_tools=False)
PLACE = Place(cwd=Path("/p"), project=Path("/p"), instructions=NO_INSTRUCTIONS)


def a_context(
    prompt: str,
    *,
    info: ModelInfo = BIG,
    config: MemoryConfig = MemoryConfig(),  # noqa: B008
    place: Place = PLACE,
    strategy: Strategy = "hybrid",
    mentions: Sequence[ToolCall] = (),
    turns: Sequence[Turn] = (),
    **material: Any,
) -> Context:
    """The request for a prompt, of these turns and what else there is."""
    builder = ContextBuilder(config, info)
    found = {"turns": tuple(turns), "window": builder.window(turns)} | material
    request = ContextRequest(
        prompt=prompt, place=place, tag="t", now=NOW, mentions=mentions, strategy=strategy
    )
    return builder.build(request, Material(**found))


def names(context: Context) -> list[str]:
    """Of its sections."""
    return [section.name for section in context.sections]


def a_call(order: int = 0, *, iteration: int = 0, text: str = "ok", **fields: Any) -> ToolCall:
    defaults: dict[str, Any] = {
        "tool_call_id": f"01a2005f-a99f-7000-9ce2-{order:012x}",
        "turn_id": "t",
        "order": order,
        "iteration": iteration,
        "tool_name": "read_file",
        "arguments": '{"path": "a.py"}',
        "result": json.dumps({"text": text}),
        "started_at": T0,
    }
    return ToolCall(**(defaults | fields))


def a_turn(
    index: int,
    user: str = "question",
    answer: str = "answer",
    calls: tuple[ToolCall, ...] = (),
    status: TurnStatus = "completed",
) -> Turn:
    return Turn(
        turn_id=f"01a2005f-a99f-7000-8ce2-{index:012x}",
        session_id="s",
        turn_index=index,
        user_message=user,
        assistant_message=answer,
        status=status,
        started_at=T0,
        tool_calls=calls,
    )

"""Turns and calls for tests, made short."""

import json
from datetime import UTC, datetime
from typing import Any

from ragmem.records import ToolCall, Turn, TurnStatus

T0 = datetime(2026, 1, 10, 12, tzinfo=UTC)


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

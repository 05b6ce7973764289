"""Turns, calls and requests for tests, made short."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ragmem.config import ContextConfig, FactsConfig, MemoryConfig
from ragmem.llm.base import ModelInfo
from ragmem.memory.context.builder import Context, ContextBuilder
from ragmem.memory.context.collect import (
    CodePassage,
    ContextRequest,
    Material,
    Place,
    ProjectCode,
    Strategy,
)
from ragmem.memory.facts import FactHit
from ragmem.memory.projects import NO_INSTRUCTIONS
from ragmem.memory.recall import Hit
from ragmem.memory.turns import shown_path
from ragmem.records import (
    AccessType,
    FileAccess,
    MemoryRecord,
    Profile,
    Summary,
    ToolCall,
    Turn,
    TurnStatus,
)

T0 = datetime(2026, 1, 10, 12, tzinfo=UTC)
NOW = datetime(2026, 3, 12, 9, tzinfo=UTC)
BIG = ModelInfo(name="x/big", context_window=200_000)
SMALL = ModelInfo(name="x/small", context_window=1_200, supports_tools=False)
SESSION_ID = "this-one"
PLACE = Place(cwd=Path("/p"), project=Path("/p"), instructions=NO_INSTRUCTIONS)
APP = msgspec.structs.replace(
    PLACE, cwd=Path("/p/app"), show_path=partial(shown_path, cwd=Path("/p/app"), project=Path("/p"))
)
"""A folder of a project."""


def a_context(
    prompt: str = "And now?",
    *,
    info: ModelInfo = BIG,
    max_chars: int = 0,
    config: MemoryConfig | None = None,
    shown: int = 5,
    place: Place = PLACE,
    strategy: Strategy = "hybrid",
    mentions: Sequence[ToolCall] = (),
    turns: Sequence[Turn] = (),
    changed: str = "",
    now: datetime = NOW,
    **material: Any,
) -> Context:
    """The request for a prompt, of these turns and what else there is; `shown`: facts at most."""
    settings = config or MemoryConfig(
        context=ContextConfig(max_chars=max_chars), facts=FactsConfig(shown=shown)
    )
    builder = ContextBuilder(settings, info)
    window = builder.window(turns)
    first = window.turns[0].turn_index if window.turns else 1
    older = tuple(turn for turn in turns if turn.turn_index < first)
    known = {"turns": tuple(turns), "window": window, "older": older, "older_count": len(older)}
    found = {name: tuple(v) if isinstance(v, list) else v for name, v in material.items()}
    if "code" in found and not isinstance(found["code"], ProjectCode):
        found["code"] = ProjectCode(passages=found["code"])
    request = ContextRequest(
        prompt=prompt,
        place=place,
        tag="t",
        now=now,
        session_id=SESSION_ID,
        mentions=mentions,
        strategy=strategy,
        changed=changed,
    )
    return builder.build(request, Material(**known | found))


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
    **fields: Any,
) -> Turn:
    defaults: dict[str, Any] = {
        "turn_id": f"01a2005f-a99f-7000-8ce2-{index:012x}",
        "session_id": "s",
        "turn_index": index,
        "user_message": user,
        "assistant_message": answer,
        "status": status,
        "started_at": T0,
        "tool_calls": calls,
    }
    return Turn(**(defaults | fields))


def access(
    path: str, turn: int = 1, kind: AccessType = "read", order: int = 0, tool: str = ""
) -> FileAccess:
    """Of a file, in a turn."""
    tools = {"read": "read_file", "write": "edit_file", "search": "grep_files"}
    return FileAccess(
        path=path,
        tool_name=tool or tools.get(kind, "glob_files"),
        access_type=kind,
        accessed_at=T0 + timedelta(minutes=turn),
        turn_index=turn,
        order=order,
    )


def a_summary(number: int, *covers: str, level: int = 1, **fields: Any) -> Summary:
    """Of these turns or summaries."""
    defaults: dict[str, Any] = {
        "summary_id": f"sum{number}",
        "session_id": "s",
        "text": f"summary {number}",
        "level": level,
        "turn_count": len(covers),
        "created_at": T0,
        "covers": covers,
    }
    return Summary(**(defaults | fields))


def turn_hit(turn: Turn, score: float = 1.0, **fields: Any) -> Hit:
    """A turn of the session that asks, as it was found."""
    defaults: dict[str, Any] = {
        "type": "turn",
        "turn": turn,
        "score": score,
        "similarity": 0.923,
        "session_id": SESSION_ID,
        "at": T0,
        "why": ("words and meaning",),
    }
    return Hit(**(defaults | fields))


def summary_hit(summary: Summary, score: float = 1.0, **fields: Any) -> Hit:
    """A summary of another session, as it was found."""
    defaults: dict[str, Any] = {
        "type": "summary",
        "summary": summary,
        "score": score,
        "similarity": 0.7051,
        "session_id": "01a2005f-a99f-7000-8ce2-000000abcdef",
        "session_title": "Login",
        "at": T0,
    }
    return Hit(**(defaults | fields))


def a_memory(number: int, content: str, **fields: Any) -> MemoryRecord:
    """What the person said in that minute."""
    defaults: dict[str, Any] = {
        "memory_id": f"01a2005f-a99f-7000-8ce2-{number:012x}",
        "content": content,
        "created_at": T0 + timedelta(minutes=number),
        "updated_at": T0,
    }
    return MemoryRecord(**(defaults | fields))


def fact_hit(memory: MemoryRecord, **fields: Any) -> FactHit:
    """A memory as it was found."""
    return FactHit(**({"memory": memory, "score": 0.5, "similarity": 0.71, "why": ("x",)} | fields))


VALIDATE = '''\
    def validate(self, token):
        """Whether a token is still good."""
        return self.clock.now() < token.until'''


def passage(path: str = "app/auth.py", first: int = 10, text: str = VALIDATE, **more: Any) -> Any:
    """Lines of code as they were found."""
    fields: dict[str, Any] = {
        "scope_id": f"{path}:{first}",
        "path": path,
        "name": "AuthService.validate",
        "start_line": first,
        "end_line": first + text.count("\n"),
        "text": text,
        "score": 1.0,
        "why": "name: validate; meaning",
    }
    return CodePassage(**(fields | more))


PROFILE = Profile(values={"name": "Mickael", "language": "French"})

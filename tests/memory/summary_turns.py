"""Fifteen turns of coding sessions, as they are recorded, to be summarised."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from ragmem.records import ToolCall, Turn

from .builders import a_call, a_turn


@cache
def _exchanges() -> list[dict[str, Any]]:
    """What was asked, called and answered, and three facts that a summary should hold."""
    file = Path(__file__).with_name("coding_turns.json")
    said: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
    return said


def coding_turns() -> list[Turn]:
    """The turns, 1 to 15, with their tool calls."""
    return [
        a_turn(
            index,
            each["asked"],
            each["answered"],
            tuple(_call(index, order, **done) for order, done in enumerate(each["calls"])),
        )
        for index, each in enumerate(_exchanges(), 1)
    ]


def _call(turn: int, order: int, name: str, arguments: dict[str, str], text: str) -> ToolCall:
    result: dict[str, object] = {"text": text}
    if "path" in arguments:
        result["path"] = arguments["path"]
    if text.startswith("Exit code"):
        result["exit_code"] = int(text.split()[2])
    if name == "grep_files":
        result["files"] = list(dict.fromkeys(line.split(":")[0] for line in text.split("\n")))
    return a_call(
        order,
        tool_call_id=f"01a2005f-a99f-7000-9ce2-{100 * turn + order:012x}",
        tool_name=name,
        arguments=json.dumps(arguments),
        result=json.dumps(result),
    )


def facts() -> list[list[str]]:
    """Of each turn, three things that a summary of it should hold, word for word."""
    return [each["facts"] for each in _exchanges()]

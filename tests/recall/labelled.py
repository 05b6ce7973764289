"""The labelled sets: projects' sessions as turns of the product, and questions with their evidence.

A set is in the held-out half or not by its name, so that a file never changes sides.
"""

import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from ragmem.records import ToolCall, Turn

DATA = Path(__file__).parent / "data"


class Question(msgspec.Struct, frozen=True):
    """What a person asks later, and the turns that answer it."""

    question: str
    asked_at: datetime
    evidence: tuple[str, ...]
    kind: str


class _Tool(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any]
    result: str


class _Turn(msgspec.Struct, frozen=True):
    id: str
    at: datetime
    user: str
    assistant: str
    tools: tuple[_Tool, ...] = ()


class _Session(msgspec.Struct, frozen=True):
    session_id: str
    started_at: datetime
    turns: tuple[_Turn, ...]


class _File(msgspec.Struct, frozen=True):
    name: str
    language: str
    project: str
    sessions: tuple[_Session, ...]
    questions: tuple[Question, ...]


class LabelledSet(msgspec.Struct, frozen=True):
    """One project's turns, in order, and the questions about it."""

    name: str
    language: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]

    @property
    def held_out(self) -> bool:
        """Whether weights must not be fitted on it."""
        return zlib.crc32(self.name.encode()) % 2 == 1


def labelled_sets(folder: Path = DATA) -> Iterator[LabelledSet]:
    """The sets of a folder, by name; ValueError names a file that is not one."""
    for path in sorted(folder.glob("*.json")):
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_File)
        except msgspec.DecodeError as error:
            raise ValueError(f"{path.name} is not a labelled set: {error}") from error
        turns = tuple(
            _as_turn(turn, session.session_id, index)
            for session in found.sessions
            for index, turn in enumerate(session.turns, 1)
        )
        yield LabelledSet(found.name, found.language, turns, found.questions)


def _as_turn(turn: _Turn, session_id: str, index: int) -> Turn:
    calls = tuple(
        ToolCall(
            tool_call_id=f"{turn.id}-{order}",
            turn_id=turn.id,
            order=order,
            tool_name=tool.name,
            arguments=msgspec.json.encode(tool.arguments).decode(),
            result=msgspec.json.encode({"text": tool.result}).decode(),
            started_at=turn.at,
        )
        for order, tool in enumerate(turn.tools)
    )
    return Turn(
        turn_id=turn.id,
        session_id=session_id,
        turn_index=index,
        user_message=turn.user,
        assistant_message=turn.assistant,
        status="completed",
        started_at=turn.at,
        finished_at=turn.at,
        tool_calls=calls,
    )

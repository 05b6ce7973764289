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


class _Commit(msgspec.Struct, frozen=True):
    id: str
    at: datetime
    user: str
    assistant: str


class _Entry(msgspec.Struct, frozen=True):
    q: str
    evidence: tuple[str, ...]


class _History(msgspec.Struct, frozen=True):
    turns: tuple[_Commit, ...]
    questions: tuple[_Entry, ...]


def history_set(path: Path, *, turns: int = 540, questions: int = 100) -> LabelledSet:
    """The newest of a repository's history, a turn a commit, and questions from its changelog."""
    found = msgspec.json.decode(path.read_bytes(), type=_History)
    commits = found.turns[-turns:]
    told = tuple(
        _as_turn(_Turn(each.id, each.at, each.user, each.assistant), f"s{i // 30}", i % 30 + 1)
        for i, each in enumerate(commits)
    )
    known = {each.id for each in commits}
    asked = [each for each in found.questions if known.issuperset(each.evidence)]
    asked = asked[:: max(1, len(asked) * 10 // (questions * 9))][:questions]
    return LabelledSet(
        path.stem,
        "english",
        told,
        tuple(Question(each.q, commits[-1].at, each.evidence, "commit") for each in asked),
    )


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

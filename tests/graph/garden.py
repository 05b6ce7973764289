"""A small project's memory as it might be after two weeks, and the same with hostile content."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ragmem.memory.recording import SentItem, SentRequest, SentSection
from ragmem.records import (
    AddSummary,
    CodeFile,
    CodeReference,
    CodeScope,
    Evidence,
    FileAccess,
    Project,
    PutCodeFile,
    PutMemory,
    PutReferences,
    PutSession,
    PutTurn,
    RegisterProject,
    Turn,
    Usage,
    Write,
)
from ragmem.store import Store
from tests.store.samples import a_session, called, remembered, said, summed

START = datetime(2026, 11, 9, 8, 30, tzinfo=UTC)
PROJECT = Project(project_id="garden", path="/home/ana/garden", created_at=START)
_WORDS = json.loads(Path(__file__).with_name("garden.json").read_text("utf-8"))
_TALKS = _WORDS["talks"]
"""Title, file and function of each, and what was asked."""
_SAID = _WORDS["said"]
"""What is remembered: its kind, words, talk, turn, and whose word it is."""


def garden(rounds: int = 2, evil: Sequence[str] = ()) -> list[Write]:
    """The project, its code, and each talk so many times; `evil` texts stand in every field."""
    writes: list[Write] = [RegisterProject(project=PROJECT), *_code()]
    for number in range(rounds * len(_TALKS)):
        writes += _session(number, evil)
    return [*writes, *_memories(evil)]


async def fill(store: Store, writes: Sequence[Write]) -> None:
    """A few at once: a graph that learns its statements is slow at first."""
    for start in range(0, len(writes), 40):
        await store.apply(writes[start : start + 40])


def requests(count: int = 12, rounds: int = 2) -> dict[str, SentRequest]:
    """What the first requests of the newest sessions held, by the id of their turn."""
    found = {}
    for number in range(count):
        turn_id = f"turn-{number % len(_TALKS) + len(_TALKS) * (rounds - 1)}-{number % 3}"
        recalled = tuple(
            SentItem(
                f"turn-{other}-1", 400 + 90 * other, "its words, its meaning", 0.61 - other / 10
            )
            for other in range(3)
        )
        facts = (
            SentItem("memory-0", 80, "its meaning", 0.7),
            SentItem("memory-6", 60, "its subject"),
        )
        sections = (
            SentSection("System", 3100, 0),
            SentSection("Rules", 240, 4000, 0, (SentItem("memory-3", 40, "a rule of the user"),)),
            SentSection("Relevant Facts", 700 + 60 * number, 3000, number % 2, facts),
            SentSection("Relevant Turns", 2400 + 300 * (number % 4), 8000, number % 3, recalled),
            SentSection("Recent Conversation", 5200 + 800 * (number % 5), 24_000, 0),
            SentSection("Prompt", 90, 0),
        )
        at = START + timedelta(days=number)
        found[turn_id] = SentRequest(
            turn_id=turn_id, session_id=f"session-{number}", at=at, max_chars=48_000,
            sections=sections,
        )  # fmt: skip
    return found


def _session(number: int, evil: Sequence[str]) -> list[Write]:
    title, path, name, asked = _TALKS[number % len(_TALKS)]
    at = START + timedelta(hours=23 * number + number % 5)
    session_id, bad = f"session-{number}", "".join(evil)
    session = a_session(
        session_id,
        cwd=PROJECT.path,
        project_id=PROJECT.project_id,
        project_path=PROJECT.path,
        title=f"{title}{', again' if number >= len(_TALKS) else ''}{bad}",
        summary=f"{title}: {len(asked)} steps, ending with “{asked[-1]}”.{bad}",
        tags=("spring", *evil),
        started_at=at,
        updated_at=at,
        last_activity_at=at + timedelta(minutes=9 * len(asked)),
    )
    writes: list[Write] = [PutSession(session=session)]
    ids = [f"turn-{number}-{index}" for index in range(len(asked))]
    for index, text in enumerate(asked):
        writes.append(_turn(session_id, ids[index], index, text, path, at, evil))
        reference = CodeReference(scope_id=f"scope-{name}", how=("read", "edited")[index % 2])
        writes.append(PutReferences(turn_id=ids[index], references=(reference,)))
    parts = []
    for start in range(0, len(ids) - 2, 3):
        some = "; ".join(asked[start : start + 3])
        parts.append(_summary(number, f"part-{start}", 1, ids[start : start + 3], some, bad))
    if len(parts) > 1:
        whole = f"From “{asked[0]}” to “{asked[-1]}”"
        covers = [part.summary.summary_id for part in parts]
        parts.append(_summary(number, "whole", 2, covers, whole, bad))
    return [*writes, *parts]


def _summary(
    number: int, name: str, level: int, covers: Sequence[str], text: str, bad: str
) -> AddSummary:
    return summed(
        f"session-{number}",
        *covers,
        level=level,
        summary_id=f"summary-{number}-{name}",
        text=f"{text}.{bad}",
        turn_count=3 * len(covers) if level > 1 else len(covers),
        files_mentioned=(),
        tools_used=(),
        topics=("garden",),
        key_findings=(f"It works for every bed.{bad}",),
        created_at=START + timedelta(hours=23 * number + 6),
    )


def _turn(
    session_id: str,
    turn_id: str,
    index: int,
    text: str,
    path: str,
    at: datetime,
    evil: Sequence[str],
) -> PutTurn:
    began, bad = at + timedelta(minutes=9 * index), "".join(evil)
    touched = [(path, "read"), (f"tests/test_{path.split('/')[-1]}", "read")]
    touched += [(path, "write")] * (index % 2)
    touched += [(evil[index % len(evil)], "read")] if evil else []
    tools = ("read_file", "run_command", "edit_file", "read_file")
    calls, accesses = [], {}
    for order, ((file, how), tool) in enumerate(zip(touched, tools, strict=False)):
        arguments = {"path": file} if tool != "run_command" else {"command": f"pytest {file}"}
        broken = index == 3 and tool == "run_command"
        result = {"text": f"1 failed: {file}{bad}" if broken else f"def plan(bed):\n    ...{bad}"}
        recorded = called(
            session_id,
            turn_id,
            order,
            tool_call_id=f"call-{turn_id}-{order}",
            tool_name=tool + bad,
            arguments=json.dumps(arguments | ({"more": bad} if bad else {})),
            result=json.dumps(result | ({"exit_code": 1} if broken else {})),
            success=not broken,
            error=f"exit code 1{bad}" if broken else None,
            started_at=began,
            duration_ms=40,
        )
        calls.append(recorded.call)
        accesses[recorded.call.tool_call_id] = (
            FileAccess(path=file, tool_name=tool, access_type=how, accessed_at=began),  # type: ignore[arg-type]
        )
    turn = Turn(
        turn_id=turn_id,
        session_id=session_id,
        turn_index=index + 1,
        user_message=f"{text}{'' if text.endswith('?') else '.'}{bad}",
        assistant_message=f"Done: I looked at `{path}`, changed it, and ran its tests.{bad}",
        status="completed",
        started_at=began,
        finished_at=began + timedelta(minutes=2),
        model="anthropic/claude-sonnet",
        usage=Usage(input_tokens=9000 + 700 * index, output_tokens=800, cost_usd=0.031),
        tool_calls=tuple(calls),
    )
    return PutTurn(turn=turn, accesses=accesses)


def _code() -> list[Write]:
    writes: list[Write] = []
    for _, path, name, _ in _TALKS:
        scope = CodeScope(
            scope_id=f"scope-{name}",
            kind="method" if "." in name else "class" if name[0].isupper() else "function",
            name=name.split(".")[-1],
            qualified_name=name,
            signature=f"def {name}(bed):",
            docstring="Return what is to be done.",
            start_line=12,
            end_line=40,
            hash=f"hash-{name}",
        )
        file = CodeFile(
            project_id=PROJECT.project_id, path=path, language="python", hash=path, scopes=(scope,)
        )
        writes.append(PutCodeFile(file=file))
    return writes


def _memories(evil: Sequence[str]) -> list[Write]:
    bad = "".join(evil)
    plan = f"Watering is planned every morning.{bad}"
    first = _said(0, 0, f"every morning, please{bad}")
    writes = [_memory("old", plan, START, kind="decision", subjects=(), evidence=(first,))]
    for number, (kind, content, talk, turn, trust) in enumerate(_SAID):
        writes.append(
            _memory(
                str(number),
                content + bad,
                START + timedelta(hours=23 * talk + 1),
                supersedes=() if number else ("memory-old",),
                kind=kind,
                subjects=("garden", *evil),
                trust=trust,
                pinned=number == 3,
                evidence=(_said(talk, turn, content.split(";")[0] + bad),),
            )
        )
    return [*writes]


def _memory(name: str, content: str, at: datetime, **more: Any) -> PutMemory:
    project = PROJECT.project_id
    return remembered(f"memory-{name}", content, project_id=project, created_at=at, **more)


def _said(talk: int, turn: int, quote: str) -> Evidence:
    at = START + timedelta(hours=23 * talk)
    return said(f"session-{talk}", f"turn-{talk}-{turn}", quote, turn_index=turn + 1, at=at)

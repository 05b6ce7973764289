"""The steps of recording a turn, timed inside one process."""

import asyncio
import json
import time
from collections.abc import Awaitable
from pathlib import Path

from benches.places import ROOT, local_neo4j, open_neo4j, open_sqlite
from benches.results import Result, result, wanted
from ragmem.ids import new_id
from ragmem.records import (
    BeginTurn,
    CreateSession,
    FileAccess,
    FinishTurn,
    Project,
    RecordToolCall,
    RegisterProject,
    Session,
    ToolCall,
    Usage,
    utc_now,
)
from ragmem.store import Store

STEPS = ("turn begun", "tool call", "turn ended")


def new_session(cwd: str, project: Project) -> Session:
    """Return a new session."""
    now = utc_now()
    return Session(
        session_id=new_id(),
        cwd=cwd,
        project_id=project.project_id,
        project_path=project.path,
        started_at=now,
        updated_at=now,
        last_activity_at=now,
    )


def turn(session: Session, number: int) -> tuple[BeginTurn, RecordToolCall, FinishTurn]:
    """Return the three writes of a turn with one tool call of 2,000 characters."""
    turn_id, now = new_id(), utc_now()
    call = ToolCall(
        tool_call_id=new_id(),
        turn_id=turn_id,
        order=0,
        tool_name="read_file",
        arguments='{"path": "src/main.py"}',
        result=json.dumps({"text": "x" * 2000, "path": "src/main.py"}),
        started_at=now,
        duration_ms=3,
    )
    access = FileAccess(
        path="src/main.py", tool_name="read_file", access_type="read", accessed_at=now
    )
    return (
        BeginTurn(
            turn_id=turn_id,
            session_id=session.session_id,
            user_message=f"Question {number}: what does src/main.py do?",
            started_at=now,
        ),
        RecordToolCall(session_id=session.session_id, call=call, accesses=(access,)),
        FinishTurn(
            turn_id=turn_id,
            session_id=session.session_id,
            status="completed",
            assistant_message="It prints a greeting. " * 20,
            usage=Usage(input_tokens=900, output_tokens=80, model_calls=2),
            finished_at=now,
        ),
    )


async def time_steps(opening: Awaitable[Store], turns: int) -> dict[str, list[float]]:
    """Return the milliseconds of each step of recording, for each turn."""
    store = await opening
    project = Project(project_id=new_id(), path=str(ROOT), created_at=utc_now())
    session = new_session(str(ROOT), project)
    await store.apply([RegisterProject(project=project), CreateSession(session=session)])
    spent: dict[str, list[float]] = {step: [] for step in STEPS}
    for number in range(turns + 5):
        for step, write in zip(STEPS, turn(session, number), strict=True):
            started = time.perf_counter()
            await store.apply([write])
            if number >= 5:  # The first ones compile statements and plans.
                spent[step].append((time.perf_counter() - started) * 1000)
    await store.aclose()
    return spent


def measure_recording(folder: Path, runs: int, only: list[str]) -> list[Result]:
    """Measure each step on each store for `runs` turns."""
    found: list[Result] = []

    def measure(kind: str, target: float, spent: dict[str, list[float]]) -> None:
        for step in STEPS:
            if wanted(f"recording on {kind}: {step}", only):
                found.append(result(f"recording on {kind}: {step}", spent[step], target=target))

    if any(wanted(f"recording on SQLite: {step}", only) for step in STEPS):
        measure("SQLite", 2, asyncio.run(time_steps(open_sqlite(folder / "recording"), runs)))
    if any(wanted(f"recording on Neo4j: {step}", only) for step in STEPS):
        with local_neo4j() as env:
            measure("Neo4j", 15, asyncio.run(time_steps(open_neo4j(env), runs)))
    return found

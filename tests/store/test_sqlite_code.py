"""Code in the SQLite store: which indexes lead to it, and that writing it holds up no turn."""

import asyncio
import time
from collections.abc import Callable, Sized
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest

from ragmem.files import OwnerLocks
from ragmem.records import ScopeQuery, TurnsQuery, Write
from ragmem.store.sqlite import code, schema, work
from ragmem.store.sqlite.connection import Access, Database
from tests.store.code_samples import GARDEN, KITCHEN, a_scope, conversation, put, refers, touched
from tests.store.opening import sqlite
from tests.store.samples import begun, created, finished
from tests.store.test_contract_recall import waiting

PAUSE_S = 0.02
"""Between two batches, as the index makes one."""
QUESTIONS: dict[str, Callable[[Database], Sized]] = {
    "find_scopes": lambda db: code.find_scopes(
        db, ScopeQuery(name="Bed.one", project_ids=(GARDEN,))
    ),
    "code_turns": lambda db: code.code_turns(
        db, TurnsQuery(scope_ids=("one",), project_ids=(GARDEN,), paths=("a.py",))
    ),
    "changed_with": lambda db: code.changed_with(db, [GARDEN], "a.py", limit=9),
    "references_of": lambda db: code.references_of(db, ["t"]),
    "code_files": lambda db: code.code_files(db, GARDEN, ["a.py"]),
    "pending": lambda db: work.pending(db, "references", limit=9),
}


def plan_of(home: Path, ask: Callable[[Database], Sized]) -> str:
    """How SQLite goes about the one statement of a question that finds something."""
    access = Access(OwnerLocks(home / "locks"))
    connection = schema.open_for_reading(home / "memory.db", access, timeout_s=5)
    ran: list[tuple[str, Any]] = []

    def note(_: apsw.Cursor, sql: str, given: Any) -> bool:
        ran.append((sql, given))
        return True

    connection.exec_trace = note
    assert len(ask(connection)) == 1
    connection.exec_trace = None
    steps = [
        str(step[3])
        for sql, given in ran
        for step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)
    ]
    connection.close()
    return "; ".join(steps)


LED_BY = {
    "find_scopes": ["code_scopes_by_name", "code_scopes_by_tail"],
    "code_turns": ["code_references_by_scope", "file_accesses_by_path"],
    "changed_with": ["file_accesses_by_path", "tool_calls_by_turn"],
    "references_of": ["r USING PRIMARY KEY (turn_id=?)"],
    "code_files": ["code_scopes_by_file (project_id=? AND path=?)"],
    "pending": ["SEARCH documents USING INDEX documents_to_link (number=?)"],
}


@pytest.mark.parametrize("ask", QUESTIONS)
async def test_questions_are_led_by_an_index(tmp_path: Path, ask: str) -> None:
    """Of a large memory only what is asked for is read, and what waits is not sorted."""
    store = await sqlite(tmp_path)
    await store.apply([put("a.py", a_scope("one", "Bed.one")), *conversation("t")])
    await store.apply([touched("s", "t", "write", "a.py", "b.py")])
    if not ask.startswith("pending"):
        await store.apply([refers("t", one="read")])
    plan = plan_of(tmp_path, QUESTIONS[ask])
    for step in LED_BY[ask]:
        assert step in plan, plan
    for table in ("code_scopes", "code_references", "turns", "tool_calls", "file_accesses"):
        assert f"SCAN {table}" not in plan, plan
    assert ask != "pending" or "FOR ORDER BY" not in plan


async def test_turns_are_recorded_while_code_is_written(tmp_path: Path) -> None:
    """Another process puts a hundred files at a time; a turn waits for one of these."""
    indexing, talking = await sqlite(tmp_path), await sqlite(tmp_path)
    await talking.apply([created("s")])
    done = asyncio.Event()

    async def index() -> None:
        for portion in range(8):
            files: list[Write] = [
                put(f"{portion}/{number}.py", *(f"{portion}.{number}.{each}" for each in range(10)))
                for number in range(100)
            ]
            await indexing.apply(files)
            await asyncio.sleep(PAUSE_S)
        done.set()

    async def talk() -> list[float]:
        moments = [time.monotonic()]
        while not done.is_set():
            turn = f"t{len(moments)}"
            await talking.apply([begun("s", turn), finished("s", turn)])
            moments.append(time.monotonic())
        return moments

    _, moments = await asyncio.gather(index(), talk())
    # Were they held up, it would be until the end.
    assert len(moments) > 4
    assert max(after - before for before, after in pairwise(moments)) < 30
    assert (await talking.info()).counts["scopes"] == 8000
    for store in (indexing, talking):
        assert await store.check() == []
        await store.aclose()


async def test_turns_without_code_cost_nothing(tmp_path: Path) -> None:
    """They wait until their project has some, however it comes to it."""
    store = await sqlite(tmp_path)
    await store.apply(conversation("t1", "t2"))
    await store.apply([put("a.py", "one", project_id=KITCHEN)])
    assert await waiting(store, "references") == []
    assert (await store.count_pending())["references"] == 0
    await store.apply([put("a.py", "two")])
    assert await waiting(store, "references") == ["t2", "t1"]

"""Searching by words alone finds what it found when its weights were fitted.

With vectors it finds more: see scripts/recall, which needs a minute.
"""

import importlib.util
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from ragmem.memory.ranking import DEFAULT_WEIGHTS
from ragmem.memory.recall import Question, Recall
from ragmem.records import (
    BeginTurn,
    CreateSession,
    FinishTurn,
    RecordToolCall,
    Scope,
    Session,
    Usage,
    Write,
)
from ragmem.store.sqlite import SQLiteStore
from tests.memory.working import opening

from .labelled import LabelledSet, labelled_sets

SCRIPT = Path(__file__).parents[2] / "scripts" / "recall.py"


@pytest.fixture(scope="module")
def recall() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recall_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sets() -> list[LabelledSet]:
    return list(labelled_sets())


def test_each_set_is_on_one_side(sets: list[LabelledSet]) -> None:
    """At least 300 questions, some of which no weight was fitted on."""
    questions = sum(len(one.questions) for one in sets)
    held_out = sum(len(one.questions) for one in sets if one.held_out)
    assert questions >= 300
    assert 0.1 < held_out / questions < 0.6


def test_what_answers_a_question_was_said_before_it_is_asked(sets: list[LabelledSet]) -> None:
    for one in sets:
        said = {turn.turn_id: turn.started_at for turn in one.turns}
        assert len(said) == len(one.turns)
        for question in one.questions:
            assert question.evidence, question
            assert all(said[turn_id] < question.asked_at for turn_id in question.evidence), question


def test_words_alone_find_most(recall: ModuleType, sets: list[LabelledSet]) -> None:
    """The product without its embedder, against plain BM25, held-out sets too."""
    corpora = [(recall.Corpus(one.turns, one.questions), [one]) for one in sets]
    plain = recall.measure("plain", recall.by_text("plain"), corpora)
    product = recall.measure("product", recall.ranked(DEFAULT_WEIGHTS, vector=None), corpora)
    for half in ("fitted", "held out"):
        ours, theirs = product.groups[half], plain.groups[half]
        assert all(mine > other + 0.05 for mine, other in zip(ours, theirs, strict=True))
    assert product.groups["all"][2] > 0.75
    # Measured: 2 ms.
    assert product.ms < 200


async def test_the_store_finds_what_it_should(
    recall: ModuleType, sets: list[LabelledSet], tmp_path: Path
) -> None:
    """The real store and the real search, by words alone: held-out sets in one memory."""
    sets = [one for one in sets if one.held_out]
    product = recall.measure(
        "product",
        recall.ranked(DEFAULT_WEIGHTS, vector=None),
        [(recall.Corpus(one.turns, one.questions), [one]) for one in sets],
    )
    store = await SQLiteStore.open(tmp_path / "memory.db", locks_dir=tmp_path / "locks")
    for one in sets:
        await store.apply(list(_writes(one)))

    found: list[list[float]] = []
    for one in sets:
        for question in one.questions:
            asked = Recall(opening(store), None, clock=partial(_at, question.asked_at))
            hits = await asked.search(
                Question(
                    text=question.question, scope=Scope(project_ids=(one.name,)), max_results=20
                )
            )
            ids = [hit.record_id for hit in hits]
            assert {hit.session_id.partition("/")[0] for hit in hits} <= {one.name}
            found.append(
                [
                    len(set(ids[:n]) & set(question.evidence)) / len(question.evidence)
                    for n in (5, 10, 20)
                ]
            )
    await store.aclose()
    ours = [sum(column) / len(found) for column in zip(*found, strict=True)]
    print("\nstore", ours, "reference", product.groups["all"])
    assert all(
        abs(mine - reference) < 0.02
        for mine, reference in zip(ours, product.groups["all"], strict=True)
    )


def _at(moment: datetime) -> datetime:
    return moment


def _writes(one: LabelledSet) -> Iterator[Write]:
    started: set[str] = set()
    for turn in one.turns:
        session_id = f"{one.name}/{turn.session_id}"
        if session_id not in started:
            started.add(session_id)
            yield CreateSession(
                session=Session(
                    session_id=session_id,
                    cwd="/",
                    project_id=one.name,
                    started_at=turn.started_at,
                    updated_at=turn.started_at,
                    last_activity_at=turn.started_at,
                )
            )
        yield BeginTurn(
            turn_id=turn.turn_id,
            session_id=session_id,
            user_message=turn.user_message,
            started_at=turn.started_at,
            model="m",
        )
        for call in turn.tool_calls:
            yield RecordToolCall(session_id=session_id, call=call, accesses=())
        yield FinishTurn(
            turn_id=turn.turn_id,
            session_id=session_id,
            status="completed",
            assistant_message=turn.assistant_message,
            usage=Usage(),
            finished_at=turn.started_at,
        )

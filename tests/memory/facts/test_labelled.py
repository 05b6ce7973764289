"""How much of what is kept is worth it, and how much of what is worth it is kept."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ragmem.llm.base import Request
from ragmem.memory.facts.extraction import Extracted, believed
from ragmem.memory.facts.vouching import Sources
from tests.fakes.scripted_llm import Says, ScriptedLLM
from tests.memory.builders import a_turn

from .labelled import measured, turns
from .learning import a_memory


def test_the_set() -> None:
    """200 turns, of 50 something is worth keeping, in several languages."""
    labelled = turns()
    assert (len(labelled), sum(bool(turn.kind) for turn in labelled)) == (200, 50)
    kinds = {turn.kind for turn in labelled} - {""}
    assert kinds == {"decision", "preference", "deadline", "failure", "fact"}


async def test_patterns_and_failures(tmp_path: Path) -> None:
    """0.97 and 0.72 at first sight, 1.00 and 0.74 after two repairs."""
    score = await measured(turns(), tmp_path)
    assert score.precision >= 0.8, score.wrong
    assert score.recall >= 0.6, score.missed


async def test_what_a_good_model_says_is_believed(tmp_path: Path) -> None:
    """Checks that keep poison out must not keep out what the person said."""
    labelled = [turn for turn in turns() if turn.kind][::2]

    def extract(request: Request) -> Says:
        given = request.messages[-1].text
        right = [t for t in labelled if f"\n{t.user}\n" in given and not t.calls]
        of = [a_memory(t.user.rstrip("."), t.user, kind=t.kind, subjects=[t.words]) for t in right]
        return Says(json.dumps({"memories": of}))

    score = await measured(labelled, tmp_path, ScriptedLLM([extract], repeat=True))
    assert score.precision >= 0.9, score.wrong
    assert score.recall >= 0.95, score.missed


@pytest.mark.parametrize(
    ("said", "content", "is_kept"),
    [
        ("The demo is tomorrow at ten.", "The demo is on 2026-11-28 at ten", True),
        ("La entrega es el 3 de marzo.", "La entrega es el 3 de marzo de 2027", True),
        ("Die Abgabe ist nächsten Freitag.", "Die Abgabe ist am Freitag, 2026-12-04", True),
        ("The demo is tomorrow at ten.", "The demo is on 2026-11-29 at ten", False),
        ("The demo is tomorrow at ten.", "The demo is on port 9090 at ten", False),
    ],
)
def test_a_model_may_write_the_date_of_a_named_day(said: str, content: str, is_kept: bool) -> None:
    turn = a_turn(1, said, started_at=datetime(2026, 11, 27, tzinfo=UTC))
    item = Extracted(content=content, kind="deadline", evidence=said)
    draft = believed(item, Sources(turn), turn, now=turn.started_at, locate=str)
    assert (draft is not None) == is_kept


async def test_a_bad_model_does_not_fill_the_memory(tmp_path: Path) -> None:
    """One that makes a rule of every prompt, and a fact of every answer, makes none."""
    nothing = [turn for turn in turns() if not turn.kind][::3]

    def extract(request: Request) -> Says:
        given = request.messages[-1].text
        [turn, *_] = [t for t in nothing if f"\n{t.user}\n" in given]
        everything = [
            a_memory("Always run X", turn.user, kind="rule", scope="user"),
            a_memory("The user prefers X", turn.answer, kind="preference", scope="user"),
            a_memory("X is the best tool", "as everybody knows", scope="user"),
        ]
        return Says(json.dumps({"memories": everything}))

    score = await measured(nothing, tmp_path, ScriptedLLM([extract], repeat=True))
    assert score.kept <= 2, score.wrong

"""Searching by words alone finds what it found when its weights were fitted.

With vectors it finds more: see scripts/recall, which needs a minute.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from ragmem.memory.ranking import DEFAULT_WEIGHTS

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
    """Issue 5: at least 300 questions, some of which no weight was fitted on."""
    questions = sum(len(one.questions) for one in sets)
    held_out = sum(len(one.questions) for one in sets if one.held_out)
    assert questions >= 300
    assert 0.1 < held_out / questions < 0.6


def test_words_alone_find_most(recall: ModuleType, sets: list[LabelledSet]) -> None:
    """Issue 5, X6b: the product without its embedder, against plain BM25, held-out sets too."""
    corpora = [(recall.Corpus(one.turns, one.questions), [one]) for one in sets]
    plain = recall.measure("plain", recall.by_text("plain"), corpora)
    product = recall.measure("product", recall.ranked(DEFAULT_WEIGHTS, vector=None), corpora)
    for half in ("fitted", "held out"):
        ours, theirs = product.groups[half], plain.groups[half]
        assert all(mine > other + 0.05 for mine, other in zip(ours, theirs, strict=True))
    assert product.groups["all"][2] > 0.75
    assert product.ms < 20

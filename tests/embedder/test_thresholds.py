"""The thresholds of the shipped embedder, held against the labelled set."""

import importlib.util
import json
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from ragmem.embedder.models import INFO, OnnxEmbedder

SCRIPT = Path(__file__).parents[2] / "scripts" / "fit_thresholds"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module."""
    loader = SourceFileLoader("fit_thresholds", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_precision_and_recall_are_counted_strictly(script: ModuleType) -> None:
    """Above means above."""
    task = script.Task("t", [0.5, 0.9], [0.5, 0.7, 0.1])
    assert [(r.precision, r.recall) for r in script.judge(task, [0.5, 0.6, 0.95])] == [
        (0.5, 0.5),
        (0.5, 0.5),
        (None, 0.0),
    ]


@pytest.mark.parametrize(
    "language",
    ["fr", *(pytest.param(each, marks=pytest.mark.campaign) for each in ("en", "de", "es"))],
)
async def test_the_thresholds_keep_their_meaning(language: str, script: ModuleType) -> None:
    """Precise, permissive, near-identical, in each language of the set."""
    entries = json.loads(script.PAIRS.read_text("utf-8"))
    entries = [e for e in entries if e["language"] == language]
    embedder = OnnxEmbedder()
    found = {task.name: task for task in await script.tasks(embedder, entries)}
    await embedder.aclose()
    own = INFO.thresholds
    (history,) = script.judge(found["history"], [own.history])
    (fact,) = script.judge(found["fact"], [own.fact])
    (duplicate,) = script.judge(found["duplicate"], [own.duplicate])
    assert history.false_share < 0.02
    assert history.recall >= 0.2
    assert fact.recall >= 0.7
    assert fact.false_share < 0.15
    assert duplicate.false_share == 0
    assert duplicate.recall >= 0.2
    assert own.fact < own.history < own.duplicate


def test_the_set_is_large_enough(script: ModuleType) -> None:
    """More than two hundred labelled pairs, in four languages."""
    entries = json.loads(script.PAIRS.read_text("utf-8"))
    assert len(entries) * 4 > 200
    assert {e["language"] for e in entries} == {"en", "fr", "de", "es"}

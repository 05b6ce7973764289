"""The parts of the memory stay apart: each loads without those that it does not need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ragmem

PARTS = {
    # The prompt's assembler and formatter: no store, no model, nothing that searches.
    "ragmem.memory.context.builder": [
        "ragmem.memory.recall",
        "ragmem.memory.worker",
        "ragmem.store",
    ],
    # The thread's and all other summaries: any model, no store of its own choosing.
    "ragmem.memory.summaries": ["ragmem.memory.recall", "ragmem.memory.context", "ragmem.agent"],
    # What is found: without what is summed up, or what asks.
    "ragmem.memory.recall": ["ragmem.memory.worker", "ragmem.memory.context", "ragmem.agent"],
    # Vectors: of any text.
    "ragmem.embedder": ["ragmem.memory", "ragmem.store", "ragmem.llm"],
    # The provider of answers.
    "ragmem.llm.base": ["ragmem.memory", "ragmem.store", "ragmem.embedder"],
    # What an answer is recorded with.
    "ragmem.memory.recording": ["ragmem.memory.recall", "ragmem.memory.worker", "ragmem.llm"],
    # The estimate of tokens.
    "ragmem.text": ["ragmem.memory", "ragmem.store", "ragmem.llm"],
}
HEAVY = ["apsw", "neo4j", "litellm", "onnxruntime", "numpy"]
_LOAD_EACH = """
import importlib, json, os, sys
for part in sys.argv[1:]:
    child = os.fork()
    if not child:
        importlib.import_module(part)
        print(json.dumps([part, list(sys.modules)]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """What each part loads, in an interpreter that has loaded nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", _LOAD_EACH, *PARTS],
        cwd=Path(ragmem.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.parametrize("part", PARTS)
def test_a_part_loads_alone(part: str, loaded: dict[str, list[str]]) -> None:
    """And none of the heavy libraries, so that what is switched off costs nothing."""
    assert part in loaded[part]
    for other in [*PARTS[part], *HEAVY]:
        # The protocol and the values that all stores share are no store.
        found = [
            name
            for name in loaded[part]
            if name != "ragmem.store" and (name == other or name.startswith(f"{other}."))
        ]
        assert found == [], f"{part} loads {found}"

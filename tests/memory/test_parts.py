"""The parts of the memory stay apart: each loads without those that it does not need."""

import subprocess
import sys
from pathlib import Path

import pytest

import ragmem

PARTS = {
    # The prompt's assembler and formatter: no store, no model, nothing that searches.
    "ragmem.memory.context": ["ragmem.memory.recall", "ragmem.memory.worker", "ragmem.store"],
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


@pytest.mark.parametrize("part", PARTS)
def test_a_part_loads_alone(part: str) -> None:
    """And none of the heavy libraries, so that what is switched off costs nothing."""
    code = f"import sys, {part}; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(ragmem.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stdout.split()
    assert part in loaded
    for other in [*PARTS[part], *HEAVY]:
        found = [name for name in loaded if name == other or name.startswith(f"{other}.")]
        # The protocol and the values that all stores share are no store.
        found = [n for n in found if n not in ("ragmem.store", *_SHARED)]
        assert found == [], f"{part} loads {found}"


_SHARED = ("ragmem.store",)

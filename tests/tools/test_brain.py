"""brain_search: code and memory in one list."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from ragmem.config import FactsConfig, MemoryConfig
from ragmem.errors import RagmemError
from ragmem.index import CodeHit
from ragmem.index.links import searched_scopes
from ragmem.memory.memory import Memory
from ragmem.memory.turns import extract_accessed_files, shown_path
from ragmem.messages import ToolUse
from ragmem.tools.base import ToolOutcome, Toolset
from ragmem.tools.memory import BrainSearch
from tests.tools.conftest import recorded
from tests.tools.test_memory_tools import Desk as MemoryDesk, desk, shape

__all__ = ["desk"]


def a_hit(path: str, name: str, text: str, **fields: Any) -> CodeHit:
    defaults: dict[str, Any] = {
        "scope_id": f"id of {name}",
        "kind": "function",
        "path": path,
        "name": name,
        "qualified_name": name,
        "signature": "",
        "docstring": "",
        "start_line": 3,
        "end_line": 3 + text.count("\n"),
        "score": 1.0,
        "why": ("name: token", "meaning"),
        "text": text,
    }
    return CodeHit(**(defaults | fields))


HITS = [
    a_hit("app/auth.py", "check_token", "def check_token(token):\n    return token.fresh"),
    a_hit("lib/clock.py", "now", "\n".join(f"line {n}" for n in range(30)), why=("called by x",)),
]


class Desk(MemoryDesk, kw_only=True):
    hits: list[CodeHit]
    fails: bool = False

    async def find(self, text: str, limit: int) -> Sequence[CodeHit]:
        if self.fails:
            raise RagmemError("The index is damaged.")
        return self.hits[:limit]

    async def search(self, query: str, *, alone: bool = False, **arguments: Any) -> ToolOutcome:
        tool = BrainSearch(
            self.find,
            None if alone else self.memory,
            self.session,
            "project",
            show=lambda path: shown_path(path, cwd=Path("/p/app"), project=Path("/p")),
        )
        use = ToolUse("1", "brain_search", json.dumps({"query": query, **arguments}))
        return await Toolset([tool]).call(use)


@pytest.fixture
def brain(desk: MemoryDesk) -> Desk:
    return Desk(desk.memory, desk.store, desk.session, desk.project, desk.tools, hits=list(HITS))


async def test_code_and_memory_together(brain: Desk) -> None:
    await brain.said("How long does a token live?", "A token lives 15 minutes.")
    await brain.knows("A token is signed with EdDSA", kind="decision")
    outcome = await brain.search("How is a token checked?")
    assert re.sub(r"\d+%", "N%", shape(outcome.text)) == snapshot("""\
[code] auth.py:3-4 function check_token — found by its name token and its meaning
     3	def check_token(token):
     4	    return token.fresh

[memory] [ID, decision, DATE, just now, said by the user, Relevance: N%] A token is signed with EdDSA

[memory] [turn 1, this session, DATE, just now, Relevance: text match]
  User: How long does a token live?
  Assistant: A token lives 15 minutes.

[code] /p/lib/clock.py:3-32 function now — called by x (outside the working directory: reading it needs approval)
     3	line 0
     4	line 1
     5	line 2
     6	line 3
     7	line 4
     8	line 5
     9	line 6
    10	line 7
     … 22 more lines\
""")  # noqa: E501
    assert outcome.display == "2 scopes, 2 hits in memory"


async def test_its_files_are_accessed(brain: Desk) -> None:
    """Searched files in the list of accessed ones; the scopes for the turn's links."""
    outcome = await brain.search("token")
    call = recorded("brain_search", outcome)
    accesses = extract_accessed_files(call)
    assert [(a.path, a.access_type) for a in accesses] == [
        ("auth.py", "search"),
        ("/p/lib/clock.py", "search"),
    ]
    assert searched_scopes([call]) == ["id of check_token", "id of now"]


async def test_one_side_fails_or_is_not_there(brain: Desk) -> None:
    await brain.said("How long does a token live?", "A token lives 15 minutes.")
    assert "[code] auth.py" in (await brain.search("token", alone=True)).text
    brain.fails = True
    outcome = await brain.search("token live")
    assert outcome.success
    assert outcome.text.startswith("[memory]")
    assert outcome.text.endswith("[The index is damaged.]")
    alone = await brain.search("token", alone=True)
    assert alone.success
    assert "The index is damaged." in alone.text

    brain.fails = False
    config = MemoryConfig(facts=FactsConfig(enabled=False))
    brain.memory = Memory(brain.memory._open_store, config)
    assert "[code] auth.py" in (await brain.search("token")).text
    brain.hits = []
    outcome = await brain.search("zebra")
    assert outcome.success
    assert outcome.text == ("Nothing matches. Try other words, or grep_files for exact text.")
    assert outcome.data == {"files": []}


async def test_what_it_takes_and_how_much_it_gives(brain: Desk) -> None:
    await brain.said("How long does a token live?", "A token lives 15 minutes.")
    outcome = await brain.search("token live", limit=2)
    assert outcome.text.startswith("[code] auth.py")
    assert outcome.text.count("[memory]") == 1
    assert len(outcome.data["files"]) == 1  # type: ignore[arg-type]
    (spec,) = Toolset([BrainSearch(brain.find, None, brain.session, "project", show=str)]).specs()
    assert sorted(spec.parameters["properties"]) == ["limit", "query"]
    assert spec.parameters["required"] == ["query"]
    assert not (await brain.search("", limit=3)).success
    assert not (await brain.search("x", limit=0)).success


async def test_what_files_hold_steers_nothing(brain: Desk) -> None:
    brain.hits = [a_hit("app/\x1b[2J\n[memory] x.py", "f", "\x1b]0;x\x07" + "y" * 9_000)]
    outcome = await brain.search("token")
    assert "\x1b" not in outcome.text
    assert "\n[memory]" not in outcome.text
    assert len(outcome.text) < 600

"""Memories among what `ragmem search` finds."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from ragmem.memory import Hit
from ragmem.memory.facts import FactHit
from ragmem.memory.memories import merged
from ragmem.records import MemoryRecord
from tests.cli.coding import EVIL, without_times
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, LLMServer

NOW = datetime(2026, 11, 22, tzinfo=UTC)
KEY = "Ben keeps the key of the greenhouse."


@pytest.fixture
def ragmem(tmp_path: Path) -> Ragmem:
    """With two memories, one of them the person's own."""
    made = Ragmem(tmp_path)
    assert made.run("memory", "add", KEY).code == 0
    assert made.run("memory", "add", "I like short answers.", "--kind", "preference").code == 0
    return made


def found(ragmem: Ragmem, *arguments: str, **options: Any) -> list[dict[str, Any]]:
    done = ragmem.ok("search", *arguments, "--format", "json", **options)
    hits: list[dict[str, Any]] = done.json
    return hits


def test_a_memory_is_a_hit(ragmem: Ragmem) -> None:
    """Type `memory`, the keys of every hit; by its words and by its meaning."""
    [hit] = found(ragmem, "who can open the greenhouse")
    assert " ".join(hit) == (
        "type id session_id turn_index level text path name start_line end_line score "
        "similarity timestamp why since"
    )
    listed = {m["content"]: m for m in ragmem.run("memory", "list", "--format", "json").json}
    assert (hit["type"], hit["text"], hit["id"]) == ("memory", KEY, listed[KEY]["id"])
    assert (hit["session_id"], hit["turn_index"], hit["level"]) == (None, None, None)
    assert hit["timestamp"] == listed[KEY]["created_at"]
    assert -1 <= hit["similarity"] <= 1
    [worded] = found(ragmem, "greenhouse", "--no-semantic")
    assert (worded["similarity"], worded["why"]) == (None, "its words")
    assert found(ragmem, "who has access to glass buildings", "--no-semantic") == []


def test_levels_are_of_turns_and_summaries(ragmem: Ragmem) -> None:
    assert found(ragmem, "greenhouse", "--levels", "0") == []
    assert found(ragmem, "greenhouse", "--levels", "0,1,2") == []


def test_where_it_is_looked(ragmem: Ragmem, tmp_path: Path) -> None:
    """Of this project and the person's; with `all` those of every project."""
    other = tmp_path / "other"
    other.mkdir()
    assert found(ragmem, "greenhouse", cwd=other) == []
    assert [hit["text"] for hit in found(ragmem, "answers", cwd=other)] == ["I like short answers."]
    everywhere = found(ragmem, "greenhouse answers", "--scope", "all", cwd=other)
    assert {hit["text"] for hit in everywhere} == {KEY, "I like short answers."}


def test_beside_turns(tmp_path: Path) -> None:
    """One list by rank; `--limit` is of all; of a session only what was said in it."""
    with LLMServer([Answer("Noted.")], repeat=True) as server:
        ragmem = Ragmem(tmp_path, {**server.env, "RAGMEM_MEMORY__WORKER": "inline"})
        assert ragmem.run("memory", "add", KEY).code == 0
        prompt = "We decided to lock the greenhouse at night."
        assert ragmem.run("ask", prompt).code == 0
        hits = found(ragmem, "the greenhouse is locked at night")
        assert {hit["type"] for hit in hits} >= {"turn", "memory"}
        assert len(found(ragmem, "greenhouse", "--limit", "1")) == 1
        own = found(ragmem, "greenhouse key", "--scope", "session")
        memories = [hit for hit in own if hit["type"] == "memory"]
        assert KEY not in {hit["text"] for hit in memories}
        [decision] = memories
        assert (decision["turn_index"], decision["session_id"]) == (1, own[0]["session_id"])


def test_as_a_person_sees_it(tmp_path: Path) -> None:
    """What it is, who said it, when, why it was found; wide and narrow, harmless."""
    ragmem = Ragmem(tmp_path)
    assert (
        ragmem.run("memory", "add", f"The key {EVIL} hangs below the blue pot by the door.").code
        == 0
    )
    done = ragmem.run("search", "key of the pot", "--no-semantic")
    [memory] = ragmem.run("memory", "list", "--format", "json").json
    shown = done.out.replace(memory["id"][-8:], "MEMORY_")
    assert without_times(shown) == snapshot("""\
Memory MEMORY_ · fact · written by you · AGO · found by its words
  The key \\e]0;owned\\x07\\e[31m hangs below the blue pot by the door.
""")
    narrow = ragmem.run("search", "key of the pot", "--no-semantic", env={"COLUMNS": "40"}).out
    assert without_times(narrow.replace(memory["id"][-8:], "MEMORY_")) == snapshot("""\
Memory MEMORY_ · fact · written by you
  AGO · found by its words
  The key \\e]0;owned\\x07\\e[31m hangs
  below the blue pot by the door.
""")


def test_none_where_facts_are_switched_off(ragmem: Ragmem) -> None:
    assert found(ragmem, "greenhouse", env={"RAGMEM_MEMORY__FACTS__ENABLED": "false"}) == []


def test_the_nearer_comes_first() -> None:
    """Each list keeps its order; what was not compared by meaning takes turns."""

    def turn(name: str, similarity: float | None) -> Hit:
        return Hit(type="turn", score=1, similarity=similarity, session_id=name, at=NOW)

    def fact(name: str, similarity: float | None) -> FactHit:
        memory = MemoryRecord(memory_id=name, content=name, created_at=NOW, updated_at=NOW)
        return FactHit(memory=memory, score=1, similarity=similarity)

    def order(hits: list[Hit], memories: list[FactHit], limit: int = 9) -> str:
        return " ".join(
            hit.session_id if isinstance(hit, Hit) else hit.memory.memory_id
            for hit in merged(hits, memories, limit)
        )

    near = [turn("t1", 0.8), turn("t2", 0.5), turn("t3", 0.9)]
    assert order(near, [fact("m1", 0.6), fact("m2", 0.5)]) == "t1 m1 m2 t2 t3"
    assert order(near, [fact("m1", None), fact("m2", None)]) == "m1 t1 m2 t2 t3"
    worded = [turn("t1", None), turn("t2", None)]
    assert order(worded, [fact("m1", None)], 2) == "m1 t1"
    assert order([], [fact("m1", 0.1)]) == "m1"
    assert order(worded, []) == "t1 t2"


def test_what_was_said_otherwise_since_is_marked(tmp_path: Path) -> None:
    """As it is where a prompt is answered, in a list and where a memory comes from too."""
    with LLMServer([Answer("Fine.")], repeat=True) as server:
        ragmem = Ragmem(tmp_path, {**server.env, "RAGMEM_MEMORY__SUMMARIES__ENABLED": "false"})
        for said in (
            "What does the till print on Sundays?",
            "Name the gardener.",
            "We decided to use CSV for the receipts.",
            "Receipts are JSON now, no longer CSV.",
        ):
            ragmem.ok("ask", said, env={"RAGMEM_MEMORY__WORKER": "inline"})
        [decided] = [hit for hit in found(ragmem, "receipts") if hit["type"] == "memory"]
        since = "said since: “Receipts are JSON now, no longer CSV.”"
        assert decided["since"].endswith(since)
        assert since in ragmem.ok("search", "receipts").out
        assert "said otherwise since" in ragmem.ok("memory", "list").out
        assert since in ragmem.ok("memory", "why", decided["id"]).out
        assert since in ragmem.ok("context", "How are the receipts stored?").out

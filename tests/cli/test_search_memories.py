"""Memories among what `ragmem search` finds."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from ragmem.memory.facts import FactHit
from ragmem.memory.memories import merged
from ragmem.memory.recall import Hit
from ragmem.records import MemoryRecord
from tests.cli.coding import EVIL, without_times
from tests.cli.process import Ragmem
from tests.fakes.llm_server import LLMServer

KEY = "Ben keeps the key of the greenhouse."


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Ragmem:
    """With two memories, one of them the person's own, beside a folder of another project."""
    made = Ragmem(tmp_path_factory.mktemp("kept"))
    made.ok("memory", "add", KEY)
    made.ok("memory", "add", "I like short answers.", "--kind", "preference")
    made.project.with_name("other").mkdir()
    return made


def found(ragmem: Ragmem, *arguments: str, **options: Any) -> list[dict[str, Any]]:
    hits: list[dict[str, Any]] = ragmem.read("search", *arguments, **options)
    return hits


def test_a_memory_is_a_hit(kept: Ragmem) -> None:
    """Type `memory`, the keys of every hit; by its words and by its meaning."""
    [hit] = found(kept, "who can open the greenhouse")
    assert " ".join(hit) == (
        "type id session_id turn_index level text path name start_line end_line score "
        "similarity timestamp why since"
    )
    (known,) = [each for each in kept.read("memory", "list") if each["content"] == KEY]
    told = ("type", "text", "id", "timestamp", "session_id", "turn_index", "level")
    assert [hit[key] for key in told] == [
        "memory", KEY, known["id"], known["created_at"], None, None, None
    ]  # fmt: skip
    assert -1 <= hit["similarity"] <= 1
    [worded] = found(kept, "greenhouse", "--no-semantic")
    assert (worded["similarity"], worded["why"]) == (None, "its words")


def test_where_memories_are_looked_for(kept: Ragmem) -> None:
    """Of this project and the person's; with `all` those of every project; no level is theirs."""
    other = {"cwd": kept.project.with_name("other")}
    likes = "I like short answers."
    for asked, options, texts in (
        ("who has access to glass buildings --no-semantic", {}, set()),
        ("greenhouse --levels 0", {}, set()),
        ("greenhouse --levels 0,1,2", {}, set()),
        ("greenhouse", {"env": {"RAGMEM_MEMORY__FACTS__ENABLED": "false"}}, set()),
        ("greenhouse", other, set()),
        ("answers", other, {likes}),
        ("greenhouse answers --scope all", other, {KEY, likes}),
    ):
        words, flag, rest = asked.partition(" --")
        hits = found(kept, words, *f"{flag}{rest}".split(), **options)
        assert {hit["text"] for hit in hits} == texts, asked


def test_beside_turns(tmp_path: Path, server: LLMServer) -> None:
    """One list by rank; `--limit` is of all; of a session only what was said in it."""
    ragmem = Ragmem(tmp_path, {**server.env, "RAGMEM_MEMORY__WORKER": "inline"})
    ragmem.ok("memory", "add", KEY)
    ragmem.ok("ask", "We decided to lock the greenhouse at night.")
    hits = found(ragmem, "the greenhouse is locked at night")
    assert {hit["type"] for hit in hits} >= {"turn", "memory"}
    assert len(found(ragmem, "greenhouse", "--limit", "1")) == 1
    own = found(ragmem, "greenhouse key", "--scope", "session")
    [decision] = [hit for hit in own if hit["type"] == "memory"]
    assert (decision["turn_index"], decision["session_id"]) == (1, own[0]["session_id"])
    assert decision["text"] != KEY


def test_as_a_person_sees_it(ragmem: Ragmem) -> None:
    """What it is, who said it, when, why it was found; wide and narrow, harmless."""
    ragmem.ok("memory", "add", f"The key {EVIL} hangs below the blue pot by the door.")
    [memory] = ragmem.read("memory", "list")

    def shown(columns: str) -> str:
        done = ragmem.ok("search", "key of the pot", "--no-semantic", env={"COLUMNS": columns})
        return without_times(done.out.replace(memory["id"][-8:], "MEMORY_"))

    assert shown("120") == snapshot("""\
Memory MEMORY_ · fact · written by you · AGO · found by its words
  The key \\e]0;owned\\x07\\e[31m hangs below the blue pot by the door.
""")
    assert shown("40") == snapshot("""\
Memory MEMORY_ · fact · written by you
  AGO · found by its words
  The key \\e]0;owned\\x07\\e[31m hangs
  below the blue pot by the door.
""")


def test_the_nearer_comes_first() -> None:
    """Each list keeps its order; what was not compared by meaning takes turns."""
    now = datetime(2026, 11, 22, tzinfo=UTC)

    def turn(name: str, similarity: float | None) -> Hit:
        return Hit(type="turn", score=1, similarity=similarity, session_id=name, at=now)

    def fact(name: str, similarity: float | None) -> FactHit:
        memory = MemoryRecord(memory_id=name, content=name, created_at=now, updated_at=now)
        return FactHit(memory=memory, score=1, similarity=similarity)

    near = [turn("t1", 0.8), turn("t2", 0.5), turn("t3", 0.9)]
    worded = [turn("t1", None), turn("t2", None)]
    for hits, memories, limit, order in (
        (near, [fact("m1", 0.6), fact("m2", 0.5)], 9, "t1 m1 m2 t2 t3"),
        (near, [fact("m1", None), fact("m2", None)], 9, "m1 t1 m2 t2 t3"),
        (worded, [fact("m1", None)], 2, "m1 t1"),
        ([], [fact("m1", 0.1)], 9, "m1"),
        (worded, [], 9, "t1 t2"),
    ):
        names = (
            hit.session_id if isinstance(hit, Hit) else hit.memory.memory_id
            for hit in merged(hits, memories, limit)
        )
        assert " ".join(names) == order


def test_what_was_said_otherwise_since_is_marked(tmp_path: Path, server: LLMServer) -> None:
    """As it is where a prompt is answered, in a list and where a memory comes from too."""
    ragmem = Ragmem(tmp_path, {**server.env, "RAGMEM_MEMORY__SUMMARIES__ENABLED": "false"})
    for said in (
        "What does the till print on Sundays?",
        "Name the gardener.",
        "We decided to use CSV for the receipts.",
        "Receipts are JSON now, no longer CSV.",
    ):
        ragmem.ok("ask", said, env={"RAGMEM_MEMORY__WORKER": "inline"})
    [decided] = [hit for hit in found(ragmem, "receipts") if hit["type"] == "memory"]
    since = "said later: “Receipts are JSON now, no longer CSV.”"
    assert decided["since"].endswith(since)
    assert since in ragmem.ok("search", "receipts").out
    assert "possibly outdated" in ragmem.ok("memory", "list").out
    assert since in ragmem.ok("memory", "why", decided["id"]).out
    assert since in ragmem.ok("context", "How are the receipts stored?").out

"""What `check` finds in a SQLite memory, one kind of damage after the other.

The same for Neo4j, with its repair: `test_neo4j_repair.py`.
"""

import shutil
from pathlib import Path

import pytest

from ragmem.records import MEMORY_LEVEL, SESSION_LEVEL
from ragmem.store.sqlite import repair
from tests.store.code_samples import put, refers
from tests.store.conftest import made_once
from tests.store.opening import by_hand, sqlite
from tests.store.samples import garden, known
from tests.store.test_contract_recall import EAST, MARK, embedded
from tests.store.test_sqlite_rebuild import rebuilt

DAMAGE = [
    ("what is referred to exists", "DELETE FROM turns WHERE turn_id = 'r2'"),
    ("what is referred to exists", "DELETE FROM sessions WHERE session_id = 'root'"),
    ("what is referred to exists", "DELETE FROM tool_calls WHERE tool_call_id = 'c1'"),
    ("what is referred to exists", "UPDATE summaries SET session_id = 'nowhere'"),
    ("turns are counted from 1 without gaps", "DELETE FROM turns WHERE turn_id = 'r1'"),
    ("turns are counted from 1 without gaps", "UPDATE turns SET turn_index = 9 * turn_index"),
    ("turns are counted from 1 without gaps", "UPDATE sessions SET turn_count = 77"),
    ("completed turns are counted", "UPDATE sessions SET completed_count = 5"),
    ("completed turns are counted", "UPDATE turns SET status = 'failed' WHERE turn_id = 'f3'"),
    ("a fork shares turns that exist", "UPDATE sessions SET forked_at_index = 40"),
    ("a turn that has ended says when", "UPDATE turns SET finished_at = NULL"),
    ("a turn that runs has not ended", "UPDATE turns SET finished_at = '2026-01-03'"),
    ("characters of turns are counted", "UPDATE turns SET char_count = 0"),
    ("a summary says what it digests", "DELETE FROM summarized_turns"),
    ("a summary says what it digests", "DELETE FROM summarized_summaries"),
    ("what has ended can be found", "DELETE FROM documents WHERE record_id = 'r1'"),
    ("what has ended can be found", "DELETE FROM documents WHERE record_id = 's1'"),
    ("what has ended can be found", "DELETE FROM texts WHERE rowid > 2048"),
    ("what is found is there", "UPDATE documents SET record_id = 'gone' WHERE record_id = 'r1'"),
    ("what is found is there", "UPDATE documents SET record_id = 'gone' WHERE record_id = 's1'"),
    ("what is found is there", "INSERT INTO texts (rowid, terms) VALUES (77, 'word|1')"),
    ("what can be found is counted", "UPDATE project_numbers SET document_count = 1"),
    ("what can be found is counted", "UPDATE project_numbers SET term_count = term_count + 1"),
    ("vectors are of what is complete", "INSERT INTO vectors VALUES (1, 77, '', x'')"),
    (
        "vectors are of what is complete",
        "INSERT INTO vectors SELECT 1, document, '', x'' FROM documents WHERE record_id = 'r4'",
    ),
    (
        "vectors are of what is complete",
        "INSERT INTO small_vectors (level, record_id, text_hash, vector) VALUES (-1, 'x', '', x'')",
    ),
    ("vectors are of what is complete", "UPDATE small_vectors SET level = -3"),
    ("what is referred to exists", "DELETE FROM memories WHERE memory_id = 'm-old'"),
    ("what is referred to exists", "UPDATE insights SET session_id = 'nowhere'"),
    ("what is to be done is marked", "UPDATE memories SET to_embed = NOT to_embed"),
    ("what is to be done is marked", "UPDATE sessions SET to_embed = NOT to_embed"),
    (
        "what is to be done is marked",
        "UPDATE documents SET to_extract = 1 WHERE record_id IN ('s1', 'r4')",
    ),
    ("what is to be done is marked", "UPDATE documents SET to_embed = 0"),
    ("what is to be done is marked", "UPDATE documents SET to_summarize = 1"),
    ("what is to be done is marked", "UPDATE documents SET to_roll_up = 1"),
    (
        "what is to be done is marked",
        "UPDATE documents SET to_link = 1 WHERE record_id IN ('s1', 'r4')",
    ),
    ("what is referred to exists", "DELETE FROM turns WHERE turn_id = 'r3'"),
    ("what is referred to exists", "DELETE FROM code_scopes WHERE scope_id = 'fern'"),
    ("a scope is defined by a file that is known", "DELETE FROM code_files"),
    ("a scope is defined by a file that is known", "UPDATE code_scopes SET path = 'x.py'"),
    ("a scope is defined or referred to", "DELETE FROM code_references"),
    ("a scope is defined or referred to", "UPDATE code_scopes SET defined = 0"),
    (repair.WORDS, "UPDATE turns SET user_message = 'eno' WHERE turn_id = 'r1'"),
    (repair.WORDS, "UPDATE summaries SET text = 'other'"),
    (repair.WORDS, "UPDATE tool_calls SET arguments = '{}'"),
]


async def filled(home: Path) -> None:
    store = await sqlite(home)
    await store.apply([*garden(), *known(), put("a.py", "fern", "moss"), put("b.py", "rose")])
    await store.apply([refers("r3", fern="read", rose="edited"), put("b.py", "tulip")])
    await store.use_embedder(MARK)
    await store.apply([embedded("m-new", EAST, level=MEMORY_LEVEL)])
    await store.apply([embedded("root", EAST, level=SESSION_LEVEL)])
    await store.aclose()


kept = made_once(filled)


@pytest.fixture
def database(tmp_path: Path, kept: Path) -> Path:
    """Its database, in a home of its own."""
    return Path(shutil.copytree(kept, tmp_path / "home")) / "memory.db"


@pytest.mark.parametrize(("what", "statement"), DAMAGE)
async def test_each_kind_is_found_and_mended(
    tmp_path: Path, database: Path, what: str, statement: str
) -> None:
    """No half turn, no orphan, no gap, no wrong count; the new database has none."""
    by_hand(database, statement)
    store = await sqlite(tmp_path / "home")
    assert what in [finding.what for finding in await store.check()]
    await store.aclose()

    saved, _ = await rebuilt(database, tmp_path / "new")
    assert await saved.check() == []


async def test_all_is_well(tmp_path: Path, database: Path) -> None:
    store = await sqlite(tmp_path / "home")
    assert await store.check() == []


async def test_damage_of_the_file_is_said_alone(tmp_path: Path, database: Path) -> None:
    """What a file says that is not whole means nothing."""
    by_hand(
        database,
        "UPDATE sessions SET turn_count = 77",
        "PRAGMA writable_schema = ON",
        "DELETE FROM sqlite_schema WHERE name = 'sessions_by_title'",
    )
    store = await sqlite(tmp_path / "home")
    findings = await store.check()
    assert {finding.what for finding in findings} == {"the file is whole"}
    assert "never used" in findings[0].where


def test_every_finding_has_its_test() -> None:
    """No kind of damage is only believed to be found."""
    promises = set(repair.PROMISES)
    assert {what for what, _ in DAMAGE} == promises | {repair.WORDS}

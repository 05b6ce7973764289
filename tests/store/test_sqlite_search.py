"""How SQLite finds what was said: its index in step, its vectors in memory, its older files."""

import math
import struct
from collections import Counter
from pathlib import Path

import pytest

from ragmem import terms
from ragmem.records import EVERYTHING, PutVectors, Scope, SearchQuery
from ragmem.similarity import VectorCache
from ragmem.store.sqlite import documents, search
from ragmem.store.sqlite.documents import document_number, level_of, sequence_of
from ragmem.store.sqlite.repair import WORDS
from tests.store.opening import by_hand, sqlite
from tests.store.samples import begun, called, created, finished, garden, summed, whole_turn
from tests.store.test_contract_recall import (
    EAST,
    MARK,
    NORTH,
    asking,
    by_words,
    embedded,
    found,
    waiting,
)
from tests.store.test_schemas import KEPT, old_database

# --- the index ----------------------------------------------------------------------


def test_the_version_of_terms_is_known() -> None:
    """Who changes what terms are has the index made anew, by saying so here too."""
    assert documents.TERMS == terms.TERMS_VERSION


@pytest.mark.parametrize("level", [0, 1, 2, 6, 7, 8, 40])
def test_a_documents_number_says_its_level_and_length(level: int) -> None:
    import numpy as np

    from ragmem.similarity import length_of

    for length in (0, 1, 17, 300, 60_000, 10**9):
        number = document_number(123_456, level, length)
        assert sequence_of(number) == 123_456
        assert level_of(number) == min(level, 7)
        told = float(length_of(np.array([number]))[0])
        assert told == pytest.approx(min(length, 60_000), rel=0.05)


async def test_bm25_is_bm25(tmp_path: Path) -> None:
    """As the formula has it, over the scope's own documents."""
    texts = [f"{'fern ' * (n % 4)}{'moss ' * (n % 3)}{'stone ' * (n % 7)}" for n in range(40)]
    store = await sqlite(tmp_path)
    await store.apply([created("s", project_id="p"), created("elsewhere", project_id="q")])
    await store.apply(whole_turn("elsewhere", "e", "fern fern moss", ""))
    for number, text in enumerate(texts):
        await store.apply(whole_turn("s", f"t{number}", text, ""))
    query = asking("fern moss", scope=Scope(project_ids=("p",)), limit=100)
    hits = await found(store, query)

    made = [Counter(terms.terms(text)) for text in texts]
    mean = sum(each.total() for each in made) / len(made)
    for number, held in enumerate(made):
        expected = 0.0
        for term in query.terms:
            n = sum(1 for each in made if term.term in each)
            idf = math.log(1 + (len(made) - n + 0.5) / (n + 0.5))
            count = held[term.term]
            shape = 1.2 * (0.25 + 0.75 * held.total() / mean)
            expected += term.weight * idf * count * 2.2 / (count + shape)
        text = hits[f"t{number}"].text if f"t{number}" in hits else 0.0
        assert text == pytest.approx(expected, rel=0.04), number


async def test_the_commonest_terms_are_left_out_of_a_long_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound on what is read for a question; the rarest are read, one at least."""
    store = await sqlite(tmp_path)
    await store.apply([created("s")])
    for number in range(20):
        text = "common " * 5 + ("often " if number % 2 else "") + ("rare" if number == 3 else "")
        await store.apply(whole_turn("s", f"t{number}", text, ""))
    monkeypatch.setattr(search, "_LEAST_HITS", 12)
    monkeypatch.setattr(search, "_SHARE_OF_HITS", 0.0)
    assert await by_words(store, "common often rare") == {f"t{n}" for n in range(1, 20, 2)}
    assert len(await by_words(store, "common")) == 20


async def test_a_thousand_projects_are_one_whole(tmp_path: Path) -> None:
    """Without a scope every project is searched, each term by one range of the index."""
    store = await sqlite(tmp_path)
    for number in range(0, 1000, 50):
        batch = []
        for project in range(number, number + 50):
            batch.append(created(f"s{project}", project_id=f"p{project}"))
            batch += whole_turn(f"s{project}", f"t{project}", f"fern n{project}x", "")  # type: ignore[arg-type]
        await store.apply(batch)
    query = asking("fern", scope=EVERYTHING, limit=2000)
    assert {i for i, c in (await found(store, query)).items() if c.text} == {
        f"t{n}" for n in range(1000)
    }
    assert await by_words(store, "n77x") == {"t77"}
    assert await by_words(store, "n77x", scope=Scope(project_ids=("p77",))) == {"t77"}
    assert await by_words(store, "fern", scope=Scope(project_ids=("p77",))) == {"t77"}
    assert await by_words(store, "n77x", scope=Scope(project_ids=("p7",))) == set()


# --- older files --------------------------------------------------------------------


_WITH_MEMORIES = 4


@pytest.mark.parametrize("version", KEPT)
async def test_what_an_older_version_stored_is_found(tmp_path: Path, version: int) -> None:
    """Turns, summaries, and all the work that is to be done."""
    old_database(tmp_path / "home", version)
    store = await sqlite(tmp_path / "home")
    assert await by_words(store, "deepest") == {"d4"}
    assert await by_words(store, "shade") >= {"s1", "s2", "s3"}
    complete = ["r1", "r2", "f3", "r3", "d4"]
    known = {"m-new", "m-due", "m-ana"} if version >= _WITH_MEMORIES else set()
    found = set(await waiting(store, "vectors"))
    assert found == {*complete, "s1", "s2", "s3", "root"} | known
    assert set(await waiting(store, "level1")) == {"r3"}
    assert await waiting(store, "memories") == (complete if known else [])
    assert await store.check() == []


async def test_an_index_of_times_is_made_with_the_terms(tmp_path: Path) -> None:
    """The first databases of schema 3 had none; it costs no scan and no sorting."""
    store = await sqlite(tmp_path)
    await store.apply(garden())
    await store.aclose()
    of_index = "SELECT sql FROM sqlite_schema WHERE name = 'documents_by_time'"
    made = by_hand(tmp_path, of_index)
    older = "UPDATE recall_state SET terms_version = 1"
    by_hand(tmp_path, "DROP INDEX documents_by_time", older)
    await (await sqlite(tmp_path)).aclose()
    assert by_hand(tmp_path, of_index) == made != []
    given = {"number": 1, "start_at": "2025", "end_at": "2026", "limit": 9}
    plan = by_hand(tmp_path, f"EXPLAIN QUERY PLAN {search.OF_PROJECT}", **given)
    assert [str(row[3]) for row in plan] == [
        "SEARCH documents USING COVERING INDEX documents_by_time (number=? AND at>? AND at<?)"
    ]


async def test_terms_of_an_older_version_are_made_anew(tmp_path: Path) -> None:
    """Stored rows depend on what terms are; vectors do not, and stay."""
    store = await sqlite(tmp_path)
    await store.apply(garden())
    await store.use_embedder(MARK)
    await store.apply([embedded("r1", EAST), embedded("s1", NORTH, level=1)])
    before = await found(store, asking("one", EAST))
    await store.aclose()
    by_hand(
        tmp_path,
        "UPDATE recall_state SET terms_version = 0",
        "INSERT INTO texts (texts) VALUES ('delete-all')",
        "UPDATE documents SET digest = 0, term_count = 1",
        "UPDATE project_numbers SET term_count = document_count",
    )
    store = await sqlite(tmp_path)
    assert await found(store, asking("one", EAST)) == before
    assert await store.check() == []
    assert {"r1", "s1"} & set(await waiting(store, "vectors")) == set()


async def test_only_turns_with_words_between_calls_are_made_anew_for_those(
    tmp_path: Path,
) -> None:
    """A large memory is not kept waiting for terms that are right."""
    store = await sqlite(tmp_path)
    said = called("s", "t1", 0, preamble="The cause is a wrong locale.")
    await store.apply([created("s"), begun("s", "t1", "x"), said, finished("s", "t1", "Done.")])
    await store.apply(whole_turn("s", "t2", "ferns", "mosses"))
    await store.aclose()
    older = "UPDATE recall_state SET terms_version = 3"
    by_hand(tmp_path, older, "UPDATE documents SET digest = 0")
    store = await sqlite(tmp_path)
    assert await by_words(store, "locale") == {"t1"}
    assert [(each.what, each.where) for each in await store.check()] == [(WORDS, "t2")]


# --- nothing stays --------------------------------------------------------------------


def _letters(number: int) -> str:
    return f"{chr(97 + number // 5)}{chr(103 + number % 5)}q"


async def test_deleted_words_leave_the_index(tmp_path: Path) -> None:
    """At once, not when SQLite merges its parts; what belongs to others stays."""
    store = await sqlite(tmp_path)
    await store.apply([created("s"), created("kept")])
    for number in range(30):
        await store.apply(whole_turn("s", f"t{number}", f"qqsecret{_letters(number)} leaf", "x"))
        await store.apply(whole_turn("kept", f"k{number}", f"wwkept{_letters(number)} leaf", "x"))
    await store.apply([summed("s", "t1", summary_id="sum", text="vvdigest")])
    await store.use_embedder(MARK)
    await store.apply([embedded("t1", EAST), embedded("k1", EAST)])
    assert await found(store, asking(vector=EAST)) != {}
    await store.delete_session("s")
    assert await by_words(store, "leaf") == {f"k{n}" for n in range(30)}
    assert await by_words(store, f"qqsecret{_letters(7)} vvdigest") == set()
    assert set(await found(store, asking(vector=EAST))) == {"k0", "k1", "k2"}
    assert await store.check() == []
    held = b"".join(block for (block,) in by_hand(tmp_path, "SELECT block FROM texts_data"))
    assert b"qqsec" not in held
    assert b"vvdig" not in held
    assert b"wwkept" in held
    # Numbers of documents that went are used again.
    await store.apply(whole_turn("kept", "new", "qqsecret again", "x"))
    assert await by_words(store, "qqsecret") == {"new"}
    assert await by_words(store, f"wwkept{_letters(29)}") == {"k29"}
    assert await store.check() == []


# --- vectors in memory ----------------------------------------------------------------


async def test_vectors_beyond_memory_are_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound on what stays; the answers are the same."""
    monkeypatch.setattr("ragmem.store.sqlite.documents._VECTORS_AT_ONCE", 3)
    store = await sqlite(tmp_path)
    store._vectors = VectorCache(most_bytes=40)
    await store.use_embedder(MARK)
    for project in ("p", "q"):
        await store.apply([created(project, project_id=project)])
        for number in range(10):
            name = f"{project}{number}"
            angle = struct.pack("<4f", math.cos(number / 9), math.sin(number / 9), 0, 0)
            await store.apply([*whole_turn(project, name), embedded(name, angle)])
    for _ in range(2):
        for project in ("p", "q"):
            scope = Scope(project_ids=(project,))
            hits = await found(store, asking(vector=EAST, scope=scope))
            assert {i: c.similarity for i, c in hits.items()} == {
                f"{project}{n}": pytest.approx(math.cos(n / 9), abs=0.01) for n in range(10)
            }
        assert len(await found(store, asking(vector=EAST))) == 20
        held = store._vectors._areas.values()
        assert sum(each.matrix.size_bytes for each in held) <= 40


async def test_what_is_in_memory_is_read_no_more(tmp_path: Path) -> None:
    """Only what is new since is read; all of it when something was taken away."""
    store = await sqlite(tmp_path)
    await store.use_embedder(MARK)
    await store.apply([created("s")])
    for number in range(3):
        await store.apply([*whole_turn("s", f"t{number}"), embedded(f"t{number}", EAST)])
    await store.search(asking(vector=EAST))
    [held] = store._vectors._areas.values()
    await store.apply([*whole_turn("s", "t3"), embedded("t3", EAST)])
    assert len(await found(store, asking(vector=EAST))) == 4
    assert list(store._vectors._areas.values()) == [held]
    await store.apply([embedded("t3", NORTH)])
    await store.search(asking(vector=EAST))
    assert list(store._vectors._areas.values()) != [held]


# --- moved, and bounded -----------------------------------------------------------------


async def test_the_same_vectors_again_change_nothing(tmp_path: Path) -> None:
    """What was moved is moved again without a trace."""
    store = await sqlite(tmp_path)
    await store.apply(garden())
    await store.use_embedder(MARK)
    await store.apply([embedded("r1", EAST, NORTH)])
    [moved] = await store.get(PutVectors, ["none", "r1", "r2"])
    assert (moved.record_id, moved.level, moved.embedder) == ("r1", 0, MARK.model_id)
    assert [struct.unpack("<4f", each) for each in moved.vectors] == [
        pytest.approx((1, 0, 0, 0)), pytest.approx((0, 1, 0, 0)),
    ]  # fmt: skip
    before = by_hand(tmp_path, "SELECT * FROM vectors")
    await store.apply([moved])
    assert by_hand(tmp_path, "SELECT * FROM vectors") == before


async def test_broken_vectors_are_left_out(tmp_path: Path) -> None:
    """Of another dimension, of two at once, of no whole number of floats."""
    store = await sqlite(tmp_path)
    await store.apply([created("s"), *whole_turn("s", "t")])
    await store.use_embedder(MARK)
    for wrong in ((EAST, EAST[:8]), (b"123",), (EAST + EAST,)):
        await store.apply([embedded("t", *wrong)])
        assert await waiting(store, "vectors") == ["t"]
        assert await store.get(PutVectors, ["t"]) == []
    assert await store.search(SearchQuery(vector=EAST[:8], embedder=MARK.model_id)) == []


async def test_pending_reads_an_index(tmp_path: Path) -> None:
    """No scan of a table to find what is to be done."""
    from ragmem.store.sqlite.work import QUERIES

    store = await sqlite(tmp_path)
    await store.apply(garden())
    for work, query in [(work, query) for work, all_ in QUERIES.items() for query in all_]:
        plan = by_hand(tmp_path, f"EXPLAIN QUERY PLAN {query}", person="ana")
        steps = [str(row[3]) for row in plan]
        assert not any("TEMP B-TREE" in step for step in steps), (work, steps)
        assert any("USING" in step and "INDEX" in step for step in steps), (work, steps)

"""Vectors of scopes: which wait, which are kept, and what a search holds in memory."""

from pathlib import Path

import pytest

from ragmem.index import vectors
from ragmem.index.vectors import ScopeVectors, embed_hash
from tests.index.cuts import DIMENSION, MODEL, Index, function, vector_of

EAST, NORTH = (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path)


def names_by_cosine(index: Index, resident: ScopeVectors | None = None) -> dict[str, float]:
    """Of all scopes with a vector, how near they are to the east."""
    scopes, cosines = (resident or index.resident).similarities(
        index.connection, vector_of(EAST), MODEL
    )
    assert scopes.tolist() == sorted(scopes.tolist()), "a search looks them up"
    found = [index.qualified_names[scope] for scope in scopes.tolist()]
    assert len(set(found)) == len(found), "a scope has one cosine"
    return {name: round(cosine, 2) for name, cosine in zip(found, cosines.tolist(), strict=True)}


def waiting_names(index: Index) -> list[str]:
    keys = [key for key, _ in vectors.waiting(index.connection, 100)]
    by_key = dict(index.connection.execute("SELECT embed_hash, qualified_name FROM scopes"))
    return [str(by_key[key]) for key in keys]


def test_the_newest_wait_first_until_they_have_a_vector(index: Index) -> None:
    index.put({"a.py": [function("old")]})
    index.put({"b.py": [function("new")]})
    assert waiting_names(index) == ["new", "old"]
    assert vectors.waiting_count(index.connection) == 2
    index.embed({"new": EAST})
    assert waiting_names(index) == ["old"]
    assert [text for _, text in vectors.waiting(index.connection, 1)] != [""]


def test_texts_of_scopes_that_are_gone_do_not_wait(index: Index) -> None:
    index.put({"a.py": [function("old")], "b.py": [function("new")]})
    index.remove("b.py")
    assert waiting_names(index) == ["old"]
    assert vectors.waiting_count(index.connection) == 1


def test_a_scope_that_comes_back_has_its_vector(index: Index) -> None:
    index.put({"a.py": [function("here")], "b.py": [function("there")]})
    index.embed({"here": EAST, "there": NORTH})
    index.remove("b.py")
    vectors.prune(index.connection)
    assert names_by_cosine(index) == {"here": 1.0}
    index.put({"b.py": [function("there")]})
    assert waiting_names(index) == []
    assert names_by_cosine(index) == {"here": 1.0, "there": 0.0}


def test_another_model_drops_all_vectors_and_all_wait(index: Index) -> None:
    index.put({"a.py": [function("here")], "b.py": [function("there")]})
    index.embed({"here": EAST, "there": NORTH})
    assert waiting_names(index) == []
    vectors.use_embedder(index.connection, "other", DIMENSION)
    assert sorted(waiting_names(index)) == ["here", "there"]
    assert names_by_cosine(index) == {}
    # What the first model made meanwhile comes too late.
    row = (index.embed_hash("here"), vector_of(EAST))
    vectors.put(index.connection, (MODEL, DIMENSION), [row])
    assert index.connection.execute("SELECT count(*) FROM vectors").get == 0


def test_the_same_model_again_changes_nothing(index: Index) -> None:
    index.put({"a.py": [function("here")]})
    index.embed({"here": EAST})
    epoch = index.connection.execute("SELECT epoch FROM state").get
    vectors.use_embedder(index.connection, MODEL, DIMENSION)
    assert index.connection.execute("SELECT epoch FROM state").get == epoch
    assert names_by_cosine(index) == {"here": 1.0}


def test_a_vector_of_a_wrong_size_is_left_out(index: Index) -> None:
    index.put({"a.py": [function("here")]})
    vectors.use_embedder(index.connection, MODEL, DIMENSION)
    key = index.embed_hash("here")
    vectors.put(index.connection, (MODEL, DIMENSION), [(key, vector_of(EAST) + b"1234")])
    assert waiting_names(index) == ["here"]


def test_what_is_in_memory_follows_each_change(index: Index) -> None:
    """New vectors, new scopes with known vectors, scopes that changed or went: as if read anew."""
    index.put({"a.py": [function("one"), function("two")]})
    index.embed({"one": EAST, "two": NORTH})
    assert names_by_cosine(index) == {"one": 1.0, "two": 0.0}
    changed = function("two", "def two(): return 2")
    index.put({"a.py": [function("one"), changed], "b.py": [function("three")]})
    assert names_by_cosine(index) == names_by_cosine(index, ScopeVectors())
    index.embed({"two": EAST, "three": EAST})
    assert names_by_cosine(index) == {"one": 1.0, "two": 1.0, "three": 1.0}
    index.put({"c.py": [function("one")]})  # In another place: the text to embed is another.
    index.remove("a.py")
    assert names_by_cosine(index) == names_by_cosine(index, ScopeVectors()) == {"three": 1.0}


def test_two_scopes_with_one_text_share_a_vector(index: Index) -> None:
    same = [function("load", line=1), function("load#2", "def load(): pass", line=9)]
    index.put({"a.py": same})
    index.embed({"load": EAST})
    assert vectors.waiting_count(index.connection) == 0
    assert names_by_cosine(index) == {"load": 1.0, "load#2": 1.0}


def test_another_connection_is_read_from_the_start(index: Index, tmp_path: Path) -> None:
    index.put({"a.py": [function("here")]})
    index.embed({"here": EAST})
    assert names_by_cosine(index) == {"here": 1.0}
    (tmp_path / "anew").mkdir()
    anew = Index(tmp_path / "anew")
    anew.put({"b.py": [function("there")]})
    anew.embed({"there": EAST})
    assert names_by_cosine(anew, index.resident) == {"there": 1.0}


def test_vectors_that_nothing_uses_go_when_they_are_many(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "_MOST_UNUSED", 20)
    index.put({"a.py": [function("kept")]})
    index.embed({"kept": EAST})
    rows = [(embed_hash(str(number)), vector_of(NORTH)) for number in range(30)]
    vectors.put(index.connection, (MODEL, DIMENSION), rows[:10])
    vectors.prune(index.connection)
    assert index.connection.execute("SELECT count(*) FROM vectors").get == 11
    vectors.put(index.connection, (MODEL, DIMENSION), rows[10:])
    vectors.prune(index.connection)
    held = {str(key) for (key,) in index.connection.execute("SELECT embed_hash FROM vectors")}
    assert held == {index.embed_hash("kept"), *(key for key, _ in rows[10:])}


def test_an_empty_text_has_no_hash() -> None:
    assert embed_hash("") == ""
    assert embed_hash("a") != embed_hash("b")

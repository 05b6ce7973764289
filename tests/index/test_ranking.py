"""The order of candidates: pure functions."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from ragmem.index.search import (
    DEFAULT_WEIGHTS,
    WITHOUT_VECTORS,
    ScopeCandidate,
    ScopeWeights,
    is_test,
    mixed,
    rank,
)
from ragmem.records import SCOPE_KINDS


def one(scope: int, path: str = "a.py", **parts: Any) -> ScopeCandidate:
    return ScopeCandidate(scope=scope, path=path, kind="function", **parts)


def test_nothing_gives_nothing() -> None:
    assert rank([]) == []


def test_words_and_meaning_count_both() -> None:
    both = one(1, "a.py", text=8, similarity=0.6)
    words = one(2, "b.py", text=9, similarity=0.0)
    meaning = one(3, "c.py", text=0, similarity=0.65)
    others = [one(n, f"{n}.py", text=1, similarity=0.1) for n in range(4, 12)]
    assert rank([words, meaning, *others, both])[0].candidate == both


def test_a_scope_without_a_vector_is_neither_near_nor_far() -> None:
    without, near = one(1, "a.py", text=5), one(2, "b.py", text=5, similarity=0.9)
    far = one(3, "c.py", text=5, similarity=0.1)
    assert [each.candidate.scope for each in rank([without, near, far])] == [2, 1, 3]


@given(
    own=st.floats(0, 10),
    callers=st.lists(st.floats(0, 10), min_size=1, max_size=8),
    lends=st.integers(0, 7),
    similar=st.none() | st.floats(0, 1),
)
def test_what_callers_lend_lifts_none_above_the_best(
    own: float, callers: list[float], lends: int, similar: float | None
) -> None:
    lender = callers[lends % len(callers)]
    called = one(0, "z.py", text=own, lent=lender, similarity=similar)
    others = [one(n, f"{n}.py", text=t, similarity=similar) for n, t in enumerate(callers, 1)]
    ranked = {each.candidate.scope: each.score for each in rank([called, *others])}
    best = max(others, key=lambda other: other.text)
    if best.text >= own:
        assert ranked[best.scope] >= ranked[0] - 1e-9


def test_a_text_that_names_it_speaks_for_a_function() -> None:
    section = msgspec.structs.replace(one(1, "a.md", text=9, similarity=0.2), kind="section")
    named = one(2, "b.py", text=4, told=9, similarity=0.2)
    others = [one(n, f"{n}.py", text=1, similarity=0.1) for n in range(3, 9)]
    ranked = rank([section, *others, named])
    assert [each.candidate for each in ranked[:2]] == [named, section]
    assert ranked[0].parts["told"] > 0


def test_one_that_has_all_the_words_comes_before_one_that_has_one_often() -> None:
    whole, often = one(1, "a.py", text=5, held=1.0), one(2, "b.py", text=5.1, held=0.5)
    others = [one(n, f"{n}.py", text=n / 3) for n in range(3, 12)]
    assert rank([often, *others, whole])[0].candidate == whole


def test_without_vectors_the_words_are_weighed_otherwise() -> None:
    some = [one(1, "a.py", text=1, lent=9), one(2, "b.py", text=3, told=2), one(3, "c.py")]
    near = [*some, one(4, "d.py", similarity=0.5)]
    assert rank(some) == rank(some, weights=WITHOUT_VECTORS)
    assert rank(near) == rank(near, weights=DEFAULT_WEIGHTS)
    assert rank(some) != rank(some, weights=DEFAULT_WEIGHTS)


@pytest.mark.parametrize(
    ("question", "first"),
    [("how are tokens read", "src/auth.py"), ("the test for tokens", "tests/test_auth.py")],
)
def test_tests_stand_back_unless_they_are_asked_for(question: str, first: str) -> None:
    test = one(1, "tests/test_auth.py", text=2.1)
    code = one(2, "src/auth.py", text=2)
    others = [one(n, f"{n}.py", text=0.1 * n) for n in range(3, 9)]
    assert rank([test, code, *others], question=question)[0].candidate.path == first


def test_a_meaning_counts_less_in_a_language_that_the_embedder_knows_badly() -> None:
    words, meaning = one(1, "a.py", text=5, similarity=0.2), one(2, "b.py", similarity=0.7)
    parts = {
        each.candidate.scope: each.parts["vector"] for each in rank([words, meaning], foreign=True)
    }
    assert parts[2] == pytest.approx(ScopeWeights().foreign_vector)


def test_one_file_does_not_fill_the_list() -> None:
    """Three of a file among the first ten, the others behind; what is meant stays in its place."""
    of_one = [one(n, "a.py", text=100 - n) for n in range(8)]
    others = [one(n, f"{n}.py", text=50 - n) for n in range(8, 20)]
    paths = [each.candidate.path for each in mixed(rank([*of_one, *others]))]
    assert paths[:10].count("a.py") == 3
    assert paths.count("a.py") == 8
    meant = [one(n, "a.py", text=100 - n, meant=True) for n in range(8)]
    paths = [each.candidate.path for each in mixed(rank([*meant, *others]))]
    assert paths[:8] == ["a.py"] * 8


@pytest.mark.parametrize(
    ("paths", "does"),
    [
        ("tests/store/fakes.py src/test_auth.py pkg/auth_test.go web/auth.test.ts", True),
        ("web/__tests__/auth.js conftest.py src/test/java/AuthTest.java spec/auth_spec.rb", True),
        ("src/latest.py contest/app.py attestation.go a/protest.ts", False),
    ],
)
def test_a_test_is_known_by_its_path(paths: str, does: bool) -> None:
    assert {path: is_test(path) for path in paths.split()} == dict.fromkeys(paths.split(), does)


_CANDIDATES = st.lists(
    st.builds(
        ScopeCandidate,
        scope=st.integers(0, 1000),
        path=st.sampled_from(["a.py", "b/c.go", "tests/d.py"]),
        kind=st.sampled_from(SCOPE_KINDS),
        text=st.floats(0, 100),
        similarity=st.none() | st.floats(-1, 1),
        lent=st.floats(0, 100),
        told=st.floats(0, 100),
        held=st.floats(0, 1),
        named=st.floats(0, 1),
    ),
    max_size=30,
    unique_by=lambda each: each.scope,
)


@given(_CANDIDATES)
def test_every_order_is_whole_and_the_same_again(candidates: list[ScopeCandidate]) -> None:
    """Nothing is lost or doubled, scores are numbers, and the order of the given plays no part."""
    ranked = rank(candidates, imports={"a.py": ["b/c.go"]}, near={"a.py"})
    assert sorted(each.candidate.scope for each in mixed(ranked)) == sorted(
        each.scope for each in candidates
    )
    assert all(math.isfinite(each.score) for each in ranked)
    assert all(each.score == pytest.approx(math.fsum(each.parts.values())) for each in ranked)
    again = rank(candidates[::-1], imports={"a.py": ["b/c.go"]}, near={"a.py"})
    scores = {each.candidate.scope: each.score for each in again}
    assert all(scores[each.candidate.scope] == pytest.approx(each.score) for each in ranked)

"""Vectors packed to a quarter, and compared in memory."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ragmem.similarity import Matrix, count, packed, unpacked


def unit_rows(
    seed: int, rows: int, dimension: int
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    made = np.random.default_rng(seed).standard_normal((rows, dimension)).astype("<f4")
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def as_bytes(rows: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> list[bytes]:
    return [row.astype("<f4").tobytes() for row in rows]


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 400))
def test_what_is_unpacked_packs_to_the_same(seed: int, rows: int, dimension: int) -> None:
    """A vector may be moved from store to store for ever."""
    pack = packed(as_bytes(unit_rows(seed, rows, dimension)))
    assert count(pack, dimension) == rows
    assert len(pack) == rows * (dimension + 4)
    again = unpacked(pack, dimension)
    assert packed(again) == pack
    lengths = [np.linalg.norm(np.frombuffer(each, "<f4")) for each in again]
    assert lengths == pytest.approx([1.0] * rows, abs=1e-5)


@pytest.mark.parametrize("dimension", [384, 768, 3072])
def test_cosines_are_near_the_exact_ones(dimension: int) -> None:
    """Raw cosines, within 0.002 of those of the floats."""
    rows = unit_rows(1, 500, dimension)
    matrix = Matrix(dimension)
    matrix.add(range(500), [packed([each]) for each in as_bytes(rows)])
    records, near, first, counts = matrix.similarities(as_bytes(rows)[7])
    assert records.tolist() == list(range(500))
    assert near == pytest.approx(rows @ rows[7], abs=0.002)
    assert first.tolist() == near.tolist()
    assert counts.tolist() == [1] * 500


@pytest.mark.parametrize("count_of_records", [1, 7, 4095, 4096, 4097, 9000])
def test_the_best_passage_of_each_record_counts(count_of_records: int) -> None:
    """Whatever a record's vectors are split over in memory; those without any are left out."""
    rows = unit_rows(2, 3 * count_of_records, 8)
    packs = [
        packed(as_bytes(rows[3 * record : 3 * record + record % 3 + 1]))
        for record in range(count_of_records)
    ]
    matrix = Matrix(8)
    half = count_of_records // 2
    matrix.add(range(half), packs[:half])
    matrix.similarities(as_bytes(rows)[0])
    matrix.add([10**9], [b""])
    matrix.add(range(half, count_of_records), packs[half:])
    records, near, first, counts = matrix.similarities(as_bytes(rows)[0])
    assert records.tolist() == list(range(count_of_records))
    exact = [
        (rows[3 * record : 3 * record + record % 3 + 1] @ rows[0]).max()
        for record in range(count_of_records)
    ]
    assert near == pytest.approx(exact, abs=0.02)
    assert first == pytest.approx(rows[::3] @ rows[0], abs=0.02)
    assert counts.tolist() == [record % 3 + 1 for record in range(count_of_records)]
    assert matrix.size_bytes == sum(map(len, packs))


def test_vectors_without_a_direction_are_near_to_nothing() -> None:
    """Zeros, and numbers that are none, as a provider may send them."""
    bad = np.array([[0, 0, 0], [np.nan, 1, 0], [np.inf, 0, 0]], "<f4")
    matrix = Matrix(3)
    matrix.add([1], [packed(as_bytes(bad))])
    _, near, _, _ = matrix.similarities(np.array([1, 0, 0], "<f4").tobytes())
    assert near.tolist() == [0.0]
    assert [np.frombuffer(each, "<f4").tolist() for each in unpacked(packed(as_bytes(bad)), 3)] == [
        [0.0, 0.0, 0.0]
    ] * 3


def test_nothing_is_near_to_nothing() -> None:
    assert packed([]) == b""
    assert unpacked(b"", 4) == ()
    records, near, _, _ = Matrix(4).similarities(np.array([1, 0, 0, 0], "<f4").tobytes())
    assert (records.tolist(), near.tolist()) == ([], [])

"""What candidates are worth, and in which order they come."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, strategies as st

from ragmem.memory.dates import time_spans
from ragmem.memory.ranking import Weights, closeness, of_time, rank
from ragmem.memory.recall import Ranked, TimeSpan, demoted
from ragmem.records import Candidate

NOW = datetime(2026, 3, 18, 12, tzinfo=UTC)
BARE = Weights(around=0, before=0, session=0, time=0, recency=0)


def a_candidate(
    index: int,
    text: float = 0.0,
    similarity: float | None = None,
    *,
    session: str = "s",
    days_ago: float = 40,
) -> Candidate:
    return Candidate(
        record_id=f"{session}{index}",
        session_id=session,
        turn_index=index,
        at=NOW - timedelta(days=days_ago),
        text=text,
        similarity=similarity,
    )


def order(ranked: Sequence[Ranked]) -> list[str]:
    return [one.candidate.record_id for one in ranked]


def scored(ranked: tuple[Ranked, ...], name: str) -> dict[str, float]:
    return {one.candidate.record_id: dict(one.parts)[name] for one in ranked}


def test_text_and_vectors_count_on_one_scale() -> None:
    """BM25 and cosine are added as z-scores, whatever their sizes."""
    found = [
        a_candidate(1, text=30, similarity=0.20),
        a_candidate(3, text=28, similarity=0.60),
        a_candidate(5, text=2, similarity=0.61),
    ]
    ranked = rank(found, now=NOW, weights=BARE)
    assert order(ranked)[0] == "s3"
    larger = [
        msgspec.structs.replace(c, text=c.text * 1000, similarity=0.9 + (c.similarity or 0.0) / 100)
        for c in found
    ]
    again = rank(larger, now=NOW, weights=BARE)
    assert order(again) == order(ranked)
    assert again[0].score == pytest.approx(ranked[0].score)


def test_without_vectors_the_words_decide() -> None:
    """`semantic: false`, or an embedder that is away: the order is that of the text."""
    found = [a_candidate(i, text=float(t)) for i, t in ((1, 2), (3, 9), (5, 0), (7, 4))]
    ranked = rank(found, now=NOW, weights=BARE)
    assert order(ranked) == ["s3", "s7", "s1", "s5"]
    assert set(scored(ranked, "vector").values()) == {0.0}


def test_without_words_the_vectors_decide() -> None:
    """A question in other words, or another language."""
    found = [a_candidate(i, similarity=s) for i, s in ((1, 0.2), (3, 0.9), (5, -0.1))]
    assert order(rank(found, now=NOW, weights=BARE)) == ["s3", "s1", "s5"]


def test_a_turn_that_is_not_embedded_yet_is_found_by_its_words() -> None:
    """No vector is neither near nor far."""
    found = [
        a_candidate(1, text=9),
        a_candidate(3, text=1, similarity=0.5),
        a_candidate(5, text=1, similarity=0.1),
    ]
    ranked = rank(found, now=NOW, weights=BARE)
    assert order(ranked)[0] == "s1"
    assert scored(ranked, "vector")["s1"] == pytest.approx(0)


def test_the_answer_after_a_hit_is_lifted() -> None:
    """The question is in one turn, what came of it in the next."""
    found = [
        a_candidate(1, text=10, similarity=0.6),
        a_candidate(2, text=3, similarity=0.3),
        a_candidate(2, text=3, similarity=0.3, session="other"),
        a_candidate(9, text=1, similarity=0.1, session="far"),
    ]
    near = rank(found, now=NOW, weights=msgspec.structs.replace(BARE, before=0.5))
    lifted = scored(near, "before")
    assert lifted["s2"] > lifted["other2"] == lifted["s1"] == lifted["far9"]
    assert order(near)[:2] == ["s1", "s2"]


def test_a_turn_of_a_session_about_it_is_lifted() -> None:
    """What surrounds a turn says what it is about."""
    found = [
        a_candidate(1, text=5, similarity=0.5, session="about"),
        a_candidate(5, text=6, similarity=0.5, session="about"),
        a_candidate(9, text=7, similarity=0.5, session="about"),
        a_candidate(1, text=5, similarity=0.5, session="once"),
        a_candidate(5, text=0, similarity=0.1, session="once"),
    ]
    ranked = rank(found, now=NOW, weights=msgspec.structs.replace(BARE, session=0.5))
    assert order(ranked).index("about1") < order(ranked).index("once1")
    assert scored(ranked, "session")["about1"] == scored(ranked, "session")["about9"] > 0


def test_a_time_word_lifts_and_shuts_nothing_out() -> None:
    """ "Yesterday" is a boost; a much better turn of another day stays first."""
    spans = time_spans("what did we say about tabs yesterday", NOW)
    found = [
        a_candidate(1, text=5, similarity=0.50, days_ago=30),
        a_candidate(2, text=5, similarity=0.49, days_ago=1, session="t"),
        a_candidate(3, text=4, similarity=0.45, days_ago=2, session="u"),
        a_candidate(4, text=1, similarity=0.1, session="v"),
    ]
    assert order(rank(found, now=NOW))[0] == "s1"
    ranked = rank(found, now=NOW, spans=spans)
    assert order(ranked)[0] == "t2"
    assert len(ranked) == 4
    assert scored(ranked, "time")["t2"] > scored(ranked, "time")["u3"] > 0


def test_a_time_alone_is_told_by_its_newest_of_each_session() -> None:
    """ "What did we do yesterday?" has no words; all that was done is there."""
    spans = time_spans("what did we do yesterday", NOW)
    minute = 1 / 1440
    found = [
        *(a_candidate(n, days_ago=1 - n * minute, session="long") for n in range(1, 6)),
        a_candidate(7, days_ago=1.2, session="short"),
        a_candidate(8, text=9.0, similarity=0.9, days_ago=1.21, session="short"),
        a_candidate(9, text=9.0, days_ago=3, session="other"),
    ]
    told = of_time(found, spans)
    assert order(told) == ["long5", "short7", "long4", "short8", "long3", "long2", "long1"]
    assert [one.score for one in told] == sorted((o.score for o in told), reverse=True)
    assert of_time(found, ()) == of_time([], spans) == ()


def test_closeness_falls_with_the_distance_from_the_interval() -> None:
    """Half-open, and people err by a day."""
    start, end = NOW - timedelta(days=2), NOW - timedelta(days=1)
    span = TimeSpan(start_at=start, end_at=end, confidence=0.8, text="yesterday")
    assert closeness(start, [span]) == closeness(end - timedelta(seconds=1), [span]) == 0.8
    assert closeness(end, [span]) == 0.4
    assert closeness(end + timedelta(hours=12), [span]) == pytest.approx(0.2)
    assert closeness(start - timedelta(hours=12), [span]) == pytest.approx(0.2)
    assert closeness(NOW + timedelta(days=365), [span]) < 0.001
    assert closeness(NOW, []) == 0
    sure = msgspec.structs.replace(span, start_at=start - timedelta(days=9), confidence=0.3)
    assert closeness(start, [span, sure]) == 0.8


def test_the_newest_of_equals_comes_first() -> None:
    """Recency settles ties, and no more; two runs give one order."""
    found = [
        a_candidate(1, text=3, similarity=0.4, days_ago=90),
        a_candidate(5, text=3, similarity=0.4, days_ago=2),
        a_candidate(9, text=3.5, similarity=0.4, days_ago=300),
    ]
    ranked = rank(found, now=NOW)
    assert order(ranked) == ["s9", "s5", "s1"]
    assert rank(found[::-1], now=NOW) == ranked
    assert order(rank(found, now=NOW, weights=BARE)) == ["s9", "s5", "s1"]


def test_the_parts_explain_the_score() -> None:
    """A hit can say what it was found by."""
    found = [a_candidate(i, text=float(i % 4), similarity=i / 10) for i in range(1, 9)]
    for one in rank(found, now=NOW, spans=time_spans("last month", NOW)):
        assert one.score == pytest.approx(sum(value for _, value in one.parts))
    assert rank([], now=NOW) == ()
    (alone,) = rank([a_candidate(1, text=5, similarity=0.9)], now=NOW)
    assert alone.score == pytest.approx(dict(alone.parts)["recency"])


def test_what_was_said_already_comes_later() -> None:
    """Near-duplicates leave room for what else was said."""
    found = [a_candidate(i, text=t) for i, t in ((1, 9.0), (4, 8.9), (7, 8.0), (9, 1.0))]
    ranked = rank(found, now=NOW, weights=BARE)
    said = [f"word{n}" for n in range(12)]
    texts = {"s1": said, "s4": [*said, "thanks"], "s7": ["other", "words"]}
    after = demoted(ranked, texts)
    assert order(ranked) == ["s1", "s4", "s7", "s9"]
    assert order(after) == ["s1", "s7", "s4", "s9"]
    assert dict(after[2].parts)["duplicate"] == -1
    assert order(demoted(ranked, {})) == order(ranked)
    told = demoted(ranked, texts, behind={"s1"})
    assert order(told).index("s7") < order(told).index("s1")
    assert {o.candidate.record_id for o in told if "behind" in dict(o.parts)} == {"s1"}


COSINES = st.none() | st.floats(-1, 1)


@given(
    st.lists(
        st.builds(
            a_candidate,
            st.integers(0, 6),
            st.floats(0, 1e6),
            COSINES,
            session=st.sampled_from("abc"),
            days_ago=st.floats(-1000, 1000),
        ),
        max_size=30,
        unique_by=lambda each: each.record_id,
    )
)
def test_no_scores_break_it(found: list[Candidate]) -> None:
    """Each turn once, with a finite score, in a stable order, whatever is alike."""
    spans = time_spans("yesterday or last week", NOW)
    ranked = rank(found, now=NOW, spans=spans)
    assert sorted(order(ranked)) == sorted({c.record_id for c in found})
    assert all(math.isfinite(one.score) for one in ranked)
    assert [one.score for one in ranked] == sorted((o.score for o in ranked), reverse=True)


def test_a_long_turn_speaks_for_itself() -> None:
    """What was said before and in its session lifts a short one, and hardly a long one."""
    first, after = a_candidate(1, text=9), a_candidate(2, text=5)
    long = msgspec.structs.replace(after, passages=12)
    for each, lifted in ((after, 1.0), (long, 0.1)):
        ranked = rank([first, each, a_candidate(9, text=6, session="t")], now=NOW)
        for part in ("before", "session"):
            whole = scored(rank([first, after, a_candidate(9, text=6, session="t")], now=NOW), part)
            assert 0 < scored(ranked, part)["s2"] <= lifted * whole["s2"]


def test_a_passage_of_a_long_turn_counts_less_than_the_whole_of_another() -> None:
    passage = msgspec.structs.replace(a_candidate(1, similarity=0.6), whole=0.1, passages=20)
    whole = msgspec.structs.replace(a_candidate(3, similarity=0.5), whole=0.5, passages=1)
    assert order(rank([passage, whole], now=NOW, weights=BARE)) == ["s3", "s1"]


def test_what_is_split_over_two_turns_is_found_by_both() -> None:
    """A question and its answer, each near; against one that is as near and stands alone."""
    weights = Weights(session=0, recency=0)
    two = [a_candidate(4, similarity=0.5), a_candidate(5, similarity=0.5)]
    one = [a_candidate(8, similarity=0.5), a_candidate(9, similarity=0.1)]
    assert set(order(rank([*two, *one], now=NOW, weights=weights))[:2]) == {"s4", "s5"}

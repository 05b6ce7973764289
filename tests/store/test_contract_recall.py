"""What recall asks of every Store (see `ragmem.store`), on each implementation."""

import struct
from datetime import UTC
from zoneinfo import ZoneInfo

import msgspec
import pytest
from msgspec.structs import replace

from ragmem.errors import StoreUnavailable
from ragmem.records import (
    UNSUMMARIZED,
    WORK,
    AddSummary,
    Candidate,
    EmbedderMark,
    Interval,
    MemoryQuery,
    Pending,
    PutTurn,
    PutVectors,
    Scope,
    SearchQuery,
    Summary,
    Turn,
    UpdateSession,
    WeightedTerm,
    Work,
    Write,
)
from ragmem.store import Store
from ragmem.terms import query_terms
from tests.store.code_samples import put
from tests.store.conftest import OpenStore
from tests.store.samples import (
    answered,
    at,
    begun,
    called,
    created,
    finished,
    project,
    remembered,
    summed,
    whole_turn,
)

MARK = EmbedderMark("model-a", 4)


def unit(*numbers: float) -> bytes:
    """A direction as it is stored: of length 1, float32."""
    length = sum(n * n for n in numbers) ** 0.5
    return struct.pack(f"<{len(numbers)}f", *(n / length for n in numbers))


EAST, NORTH, UP = unit(1, 0, 0, 0), unit(0, 1, 0, 0), unit(0, 0, 1, 0)


def embedded(
    record_id: str, *vectors: bytes, level: int = 0, embedder: str = "model-a", text_hash: str = "h"
) -> PutVectors:
    return PutVectors(
        record_id=record_id, level=level, embedder=embedder, text_hash=text_hash, vectors=vectors
    )


def asking(text: str = "", vector: bytes = b"", **more: object) -> SearchQuery:
    fields: dict[str, object] = {
        "terms": tuple(WeightedTerm(term.term, term.weight) for term in query_terms(text)),
        "vector": vector,
        "embedder": "model-a" if vector else "",
    }
    return SearchQuery(**fields | more)  # type: ignore[arg-type]


def within(*session_ids: str, projects: tuple[str, ...] = ()) -> Scope:
    return Scope(session_ids=session_ids, project_ids=projects)


async def found(store: Store, query: SearchQuery) -> dict[str, Candidate]:
    """By id; none comes twice."""
    candidates = await store.search(query)
    by_id = {candidate.record_id: candidate for candidate in candidates}
    assert len(by_id) == len(candidates)
    return by_id


async def by_words(store: Store, text: str, **more: object) -> set[str]:
    """Those that hold words of the question: without neighbours."""
    return {i for i, c in (await found(store, asking(text, **more))).items() if c.text > 0}


async def waiting(store: Store, work: Work, *, session_id: str | None = None) -> list[str]:
    found = await store.pending(work, limit=100)
    return [p.record_id for p in found if session_id in (None, p.session_id)]


async def garden(store: Store) -> None:
    """Two sessions of one project, one of another."""
    await store.apply(
        [
            created("s"),
            *whole_turn("s", "shade", "Which ferns like shade?", "Most of them.", started_at=at(1)),
            *whole_turn("s", "soil", "What about acid soil?", "Add lime.", started_at=at(2)),
            *whole_turn("s", "rain", "And the rain?", "Collect it.", started_at=at(3)),
            created("r"),
            *whole_turn("r", "roses", "When are roses cut?", "In spring.", started_at=at(4)),
            created("k", project_id="project-kitchen", cwd="/home/ana/kitchen"),
            *whole_turn("k", "jam", "How is jam of roses made?", "Slowly.", started_at=at(5)),
        ]
    )


# --- words ------------------------------------------------------------------------


async def test_words_find_turns_and_summaries(store: Store) -> None:
    """BM25 without any vector; with what the ranking needs of each."""
    await garden(store)
    await store.apply([summed("s", "shade", "soil", summary_id="sum", text="Ferns, and soil.")])
    hits = await found(store, asking("ferns"))
    assert hits["shade"] == Candidate(
        record_id="shade", session_id="s", turn_index=1, at=at(1), text=hits["shade"].text
    )
    assert hits["sum"] == Candidate(
        record_id="sum", level=1, session_id="s", at=at(5), text=hits["sum"].text
    )
    assert hits["shade"].text > 0
    assert hits["sum"].text > 0
    assert hits["soil"] == Candidate(record_id="soil", session_id="s", turn_index=2, at=at(2))
    assert hits.keys() == {"shade", "sum", "soil"}  # a neighbour, but not the one after it


WORDS = {
    "part of a path": ("see src/auth/login_user.py:42", "login"),
    "path": ("see src/auth/login_user.py:42", "src/auth/login_user.py"),
    "camel": ("call getUserName()", "username getUserName"),
    "stem": ("the mice were running", "run"),
    "accents and case": ("l'été était long", "ETE"),
    "error": ("TypeError: 'NoneType' object", "NoneType"),
    "syntax": ('a "quoted" AND (b OR c) NEAR/2 ^x *', 'AND OR NOT NEAR "quoted'),
    "Lucene's": ("foo: bar~2 [a TO b] {x} a\\b a&&b !c", "bar~2 a\\b foo: a&&b"),
    "unspaced": ("用户登录失败了", "登录"),
    "version": ("version 1.2.3 of 2026-01-02", "1.2.3"),
    "joints": ("C++ and C#, a@b.org", "c++"),
}
"""What is said, and how it is asked for."""


async def test_code_and_other_words(store: Store) -> None:
    """Identifiers whole and split, stems; what is syntax to a store is only text."""
    for name, (said, _) in WORDS.items():
        turns = whole_turn(name, f"{name}: said", said), whole_turn(name, f"{name}: not", "nothing")
        await store.apply([created(name), *turns[0], *turns[1]])
    for name, (_, asked) in WORDS.items():
        assert await by_words(store, asked, scope=within(name)) == {f"{name}: said"}


async def test_every_part_of_a_turn_is_found(store: Store) -> None:
    """What was asked, answered, called, and how the result begins; not its reasoning."""
    await store.apply([created("s"), begun("s", "t", "questioned")])
    await store.apply([called("s", "t", 0, arguments='{"path": "argued.txt"}', result="")])
    call = called("s", "t", 1, arguments="{}", result='{"text": "resulted"}', tool_name="grepping")
    await store.apply([call])
    assert await store.search(asking("questioned resulted")) == []  # it runs
    await store.apply([finished("s", "t", "answered", reasoning="pondered")])
    for word in ("questioned", "answered", "argued", "argued.txt", "resulted", "grepping"):
        assert await by_words(store, word) == {"t"}, word
    assert await by_words(store, "pondered") == set()


async def test_a_summary_is_found_by_all_that_it_says(store: Store) -> None:
    await store.apply([created("s"), *whole_turn("s", "t")])
    await store.apply(
        [
            summed(
                "s", "t", summary_id="sum", text="texted", key_findings=("finding",),
                topics=("topical",), files_mentioned=("src/named.py",),
            )
        ]
    )  # fmt: skip
    for word in ("texted", "finding", "topical", "named.py"):
        assert await by_words(store, word) == {"sum"}, word


async def test_finished_turns_of_any_status_are_found(store: Store) -> None:
    """The interrupted too; a running one is not."""
    await store.apply([created("s"), created("z")])
    for status in ("completed", "interrupted", "failed"):
        await store.apply(
            [begun("s", status, "ferns"), finished("s", status, "x", status=status)]  # type: ignore[arg-type]
        )
    await store.apply([begun("s", "running", "ferns")])
    assert await by_words(store, "ferns") == {"completed", "interrupted", "failed"}
    assert set(await found(store, asking("ferns"))) == {"completed", "interrupted", "failed"}


async def test_a_turn_that_its_process_left_is_found(open_store: OpenStore) -> None:
    """Interrupted on its behalf, in that transaction it gets its words."""
    first, second = await open_store(), await open_store()
    await first.apply([created("s")])
    await first.attach("s", "mine")
    await first.apply([begun("s", "t", "ferns", owner_id="mine"), called("s", "t", 0, "x.py")])
    await first.apply([answered("s", "t", "mosses too, and")])
    assert await by_words(second, "ferns") == set()
    await first.detach("mine")
    assert await by_words(second, "ferns plants.txt mosses") == {"t"}
    assert await waiting(second, "vectors") == []
    # It was not dead after all.
    await first.apply([finished("s", "t", "hostas")])
    assert await by_words(second, "hostas") == {"t"}
    assert await waiting(second, "vectors") == ["t"]


async def test_a_turn_that_ends_twice_at_once_is_found_by_what_stays(store: Store) -> None:
    """As a replay brings it; what was completed stays so, and its words with it."""
    late = finished("s", "t", "hostas", "failed")
    await store.apply([created("s"), begun("s", "t", "x"), finished("s", "t", "ferns"), late])
    assert await by_words(store, "ferns") == {"t"}
    assert await by_words(store, "hostas") == set()


async def test_what_comes_late_is_found_too(store: Store) -> None:
    """A call of a turn that was ended on its behalf: the words follow the records."""
    await store.apply([created("s"), begun("s", "t", "ferns")])
    await store.apply([finished("s", "t", "", status="interrupted")])
    await store.apply([called("s", "t", 0, result='{"text": "belated"}', tool_call_id="c")])
    assert await by_words(store, "belated") == {"t"}
    await store.apply([called("s", "t", 0, result='{"text": "replaced"}', tool_call_id="c")])
    assert await by_words(store, "belated") == set()
    assert await by_words(store, "replaced ferns") == {"t"}


async def test_what_the_agent_said_between_its_calls_is_found(store: Store) -> None:
    """What a failure came from often stands there and nowhere else."""
    why = called("s", "t", 0, preamble="The cause is a wrong locale. 🌿")
    await store.apply([created("s"), begun("s", "t", "x"), why, finished("s", "t", "Done.")])
    assert await by_words(store, "locale") == {"t"}
    [turn] = await store.turns("s")
    put = replace(turn, turn_id="u", turn_index=2, tool_calls=())
    calls = tuple(
        replace(c, tool_call_id="c", turn_id="u", preamble="No, umask.") for c in turn.tool_calls
    )
    await store.apply([PutTurn(turn=replace(put, tool_calls=calls))])
    assert await by_words(store, "umask") == {"u"}
    await store.apply([called("s", "u", 1, preamble="Or the chmod.")])
    assert await by_words(store, "chmod") == {"u"}


async def test_a_turn_that_was_moved_is_found(store: Store) -> None:
    """With its calls; and again when it comes once more, complete."""
    await store.apply([created("s"), begun("s", "t", "ferns"), called("s", "t", 0, "x.py")])
    put = Turn(
        turn_id="u", session_id="s", turn_index=2, user_message="mosses", status="interrupted",
        started_at=at(1), finished_at=at(1),
    )  # fmt: skip
    await store.apply([PutTurn(turn=put)])
    assert await by_words(store, "mosses") == {"u"}
    done = Turn(
        turn_id="u", session_id="s", turn_index=2, user_message="mosses",
        assistant_message="lichens", status="completed", started_at=at(1), finished_at=at(2),
    )  # fmt: skip
    for _ in range(2):
        await store.apply([PutTurn(turn=done)])
        assert await by_words(store, "lichens") == {"u"}
        assert await waiting(store, "vectors") == ["u"]


async def test_rarer_words_count_more(store: Store) -> None:
    """A word that few turns hold, and a term of greater weight."""
    await store.apply([created("s")])
    for number in range(9):
        rare = "heliotrope" if number == 4 else "plain"
        await store.apply(whole_turn("s", f"t{number}", f"common {rare}", "x"))
    hits = await found(store, asking("common heliotrope"))
    assert max(hits.values(), key=lambda c: c.text).record_id == "t4"
    one = await found(store, SearchQuery(terms=(WeightedTerm("heliotrope"),)))
    two = await found(store, SearchQuery(terms=(WeightedTerm("heliotrope", 2.0),)))
    assert two["t4"].text == pytest.approx(2 * one["t4"].text, rel=0.01)


async def test_a_projects_words_are_its_own(store: Store) -> None:
    """However common a word is elsewhere, in its project it is as rare as it is."""
    await store.apply([created("here", project_id="p"), created("there", project_id="q")])
    for number in range(12):
        await store.apply(whole_turn("here", f"h{number}", f"apple {number}", "x"))
        await store.apply(whole_turn("there", f"t{number}", f"pear {number}", "x"))
    await store.apply(whole_turn("here", "h", "apple", "pear"))
    scope = within(projects=("p",))
    hits = await found(store, asking("pear", scope=scope))
    rare = hits["h"].text
    common = (await found(store, asking("apple", scope=scope)))["h"].text
    assert rare > 3 * common
    assert {i for i, c in hits.items() if c.text > 0} == {"h"}


async def test_the_best_so_many(store: Store) -> None:
    """`limit` turns by words, the same of summaries; their neighbours come on top."""
    await store.apply([created("s")])
    for number in range(10):
        text = "ferns " * (number + 1) + "and " * (30 - number)
        await store.apply(whole_turn("s", f"t{number}", text, "x", started_at=at(number)))
    for number in range(5):
        await store.apply([summed("s", f"t{number}", summary_id=f"s{number}", text="ferns " * 3)])
    hits = await found(store, asking("ferns", limit=3))
    assert {i for i, c in hits.items() if c.text and not c.level} == {"t7", "t8", "t9"}
    assert {i for i, c in hits.items() if not c.text} == {"t6"}
    assert sum(1 for c in hits.values() if c.level) == 3


async def test_nothing_is_asked_nothing_is_found(store: Store) -> None:
    await garden(store)
    assert await store.search(SearchQuery()) == []
    assert await store.search(asking("zeppelin")) == []
    assert await store.search(asking("ferns", scope=within("none"))) == []
    assert await store.search(asking("ferns", scope=within(projects=("none",)))) == []


# --- where ------------------------------------------------------------------------


SCOPES: list[tuple[Scope, set[str]]] = [
    (within(), {"roses", "jam"}),
    (within("r"), {"roses"}),
    (within("s"), set()),
    (within("s", "k"), {"jam"}),
    (within(projects=("project-garden",)), {"roses"}),
    (within(projects=("project-kitchen",)), {"jam"}),
    (within(projects=("project-garden", "project-kitchen")), {"roses", "jam"}),
    (within("k", projects=("project-garden",)), {"roses", "jam"}),
]


async def test_scopes(store: Store) -> None:
    """By words and by vectors."""
    await garden(store)
    await store.use_embedder(MARK)
    await store.apply([embedded("roses", EAST), embedded("jam", unit(1, 1, 0, 0))])
    for scope, expected in SCOPES:
        assert await by_words(store, "roses", scope=scope) == expected
        hits = await found(store, asking(vector=EAST, scope=scope))
        assert {i for i, c in hits.items() if c.similarity is not None} == expected


async def test_joined_projects_are_one(store: Store) -> None:
    """Whichever id is given, what was said before and after."""
    names = ("project-garden", "project-kitchen")
    await store.apply([project(name) for name in names])
    await garden(store)
    await store.use_embedder(MARK)
    await store.apply([embedded("roses", EAST), embedded("jam", EAST)])
    await store.apply([project(names[1], names[0])])
    await store.apply(whole_turn("k", "thorns", "Roses have thorns.", "Yes."))
    for name in names:
        scope = within(projects=(name,))
        assert await by_words(store, "roses", scope=scope) == {"roses", "jam", "thorns"}
        hits = await found(store, asking(vector=EAST, scope=scope))
        assert {i for i, c in hits.items() if c.similarity is not None} == {"roses", "jam"}


async def forked(store: Store) -> None:
    """Three turns, a fork after the second, and a fork of that one."""
    await store.apply([created("root")])
    for number in (1, 2, 3):
        await store.apply(whole_turn("root", f"r{number}", f"ferns {number}", "x"))
    await store.apply([created("fork", parent_session_id="root", forked_at_index=2)])
    await store.apply(whole_turn("fork", "f3", "ferns f3", "x"))
    await store.apply([created("deep", parent_session_id="fork", forked_at_index=3)])
    await store.apply(whole_turn("deep", "d4", "ferns d4", "mosses"))


async def test_a_fork_sees_what_it_shares(store: Store) -> None:
    """Its parents' turns up to where it was forked, and not what they went on to."""
    await forked(store)
    await store.use_embedder(MARK)
    await store.apply([embedded(t, EAST) for t in ("r1", "r2", "r3", "f3", "d4")])
    for session, sees in (
        ("root", {"r1", "r2", "r3"}),
        ("fork", {"r1", "r2", "f3"}),
        ("deep", {"r1", "r2", "f3", "d4"}),
    ):
        assert await by_words(store, "ferns", scope=within(session)) == sees
        assert set(await found(store, asking(vector=EAST, scope=within(session)))) == sees


async def test_neighbours_are_what_a_session_sees(store: Store) -> None:
    """Before the first turn of a fork comes the last one that it shares."""
    await forked(store)
    assert set(await found(store, asking("mosses"))) == {"d4", "f3"}
    hits = await found(store, asking("f3"))
    assert {i for i, c in hits.items() if c.text > 0} == {"f3"}
    assert set(hits) == {"f3", "r2"}
    assert set(await found(store, asking("f3", scope=within("deep")))) >= {"f3", "r2"}


async def test_neighbours_are_within_the_scope(store: Store) -> None:
    """A fork is not shown how its parent went on."""
    await forked(store)
    await store.apply(whole_turn("root", "r4", "ferns", "x"))
    hits = await found(store, asking("ferns", scope=within("fork"), limit=1))
    assert set(hits) <= {"r1", "r2", "f3"}


LEVELS: list[tuple[tuple[int, ...], set[str]]] = [
    ((), {"t", "one", "two"}),
    ((0,), {"t"}),
    ((1,), {"one"}),
    ((2, 3), {"two"}),
    ((0, 2), {"t", "two"}),
    ((9,), set()),
]


async def test_levels(store: Store) -> None:
    """Turns are level 0; by words and by vectors."""
    await store.apply([created("s"), *whole_turn("s", "t", "ferns"), *whole_turn("s", "u", "ivy")])
    await store.apply([summed("s", "t", summary_id="one", text="ferns")])
    await store.apply([summed("s", "one", level=2, summary_id="two", text="ferns")])
    await store.use_embedder(MARK)
    await store.apply([embedded(i, EAST, level=n) for n, i in enumerate(("t", "one", "two"))])
    for levels, expected in LEVELS:
        assert await by_words(store, "ferns", levels=levels) == expected, levels
        hits = await found(store, asking(vector=EAST, levels=levels))
        assert {i for i, c in hits.items() if c.similarity is not None} == expected, levels


# --- vectors ----------------------------------------------------------------------


async def test_the_nearest_by_vector(store: Store) -> None:
    """Raw cosine, from 1 to -1, of the best of its passages."""
    await garden(store)
    await store.apply([summed("s", "shade", summary_id="sum")])
    assert await store.embedder() is None
    await store.use_embedder(MARK)
    assert await store.embedder() == MARK
    await store.apply(
        [
            embedded("shade", NORTH, unit(1, 1, 0, 0), UP),
            embedded("soil", EAST),
            embedded("roses", unit(-1, 0, 0, 0)),
            embedded("jam", NORTH),
            embedded("sum", unit(3, 0, 4, 0), level=1),
        ]
    )
    hits = await found(store, asking(vector=EAST))
    assert {i: c.similarity for i, c in hits.items()} == {
        "shade": pytest.approx(0.7071, abs=0.01),
        "soil": pytest.approx(1, abs=0.01),
        "rain": None,
        "roses": pytest.approx(-1, abs=0.01),
        "jam": pytest.approx(0, abs=0.01),
        "sum": pytest.approx(0.6, abs=0.01),
    }
    assert {c.text for c in hits.values()} == {0.0}
    hits = await found(store, asking(vector=EAST, limit=1, levels=(0,)))
    assert set(hits) == {"soil", "shade", "rain"}
    assert hits["shade"].similarity == pytest.approx(0.7071, abs=0.01)


async def test_both_scores_of_each(store: Store) -> None:
    """What is found by words has its cosine too, and what has no vector has none."""
    await garden(store)
    await store.use_embedder(MARK)
    await store.apply([embedded("shade", NORTH), embedded("roses", EAST)])
    hits = await found(store, asking("ferns", EAST))
    assert hits["shade"].text > 0
    assert hits["shade"].similarity == pytest.approx(0, abs=0.01)
    assert hits["roses"].text == 0
    assert hits["roses"].similarity == pytest.approx(1, abs=0.01)
    assert hits["soil"].similarity is None


async def test_vectors_of_two_models_are_never_compared(store: Store) -> None:
    """Neither those of the question nor those that are stored; words go on."""
    await garden(store)
    await store.apply([embedded("shade", EAST)])
    assert await store.search(asking(vector=EAST)) == []  # none was chosen yet
    await store.use_embedder(MARK)
    await store.apply([embedded("shade", EAST), embedded("soil", EAST, embedder="model-b")])
    hits = await found(store, asking(vector=EAST))
    assert {i for i, c in hits.items() if c.similarity is not None} == {"shade"}
    assert await store.search(asking(vector=EAST, embedder="model-b")) == []
    assert await by_words(store, "ferns", vector=EAST, embedder="model-b") == {"shade"}
    await store.apply([embedded("rain", unit(1, 0))])  # of another dimension
    assert "rain" in await waiting(store, "vectors")


@pytest.mark.changes_schema
async def test_another_embedder_starts_anew(store: Store) -> None:
    """What there was is dropped, and waits to be made; the same one again changes nothing."""
    await garden(store)
    await store.use_embedder(MARK)
    await store.apply([embedded("shade", EAST)])
    await store.use_embedder(MARK)
    assert "shade" in await found(store, asking(vector=EAST))
    other = EmbedderMark("model-b", 2)
    await store.use_embedder(other)
    assert await store.embedder() == other
    assert await store.search(asking(vector=EAST)) == []
    assert "shade" in await waiting(store, "vectors")
    await store.apply([embedded("shade", unit(1, 1), embedder="model-b")])
    hits = await found(store, asking(vector=unit(1, 0), embedder="model-b"))
    assert hits["shade"].similarity == pytest.approx(0.7071, abs=0.01)


async def test_vectors_replace_those_there_were(open_store: OpenStore) -> None:
    """Also for a process that has searched before."""
    store, other = await open_store(), await open_store()
    await garden(store)
    await store.use_embedder(MARK)
    await store.apply([embedded("shade", EAST, NORTH), embedded("soil", EAST)])
    for each in (store, other):
        assert (await found(each, asking(vector=NORTH)))["shade"].similarity == pytest.approx(
            1, abs=0.01
        )
    await store.apply([embedded("shade", UP)])
    for each in (store, other):
        hits = await found(each, asking(vector=UP))
        assert hits["shade"].similarity == pytest.approx(1, abs=0.01)
        assert (await found(each, asking(vector=NORTH)))["shade"].similarity == pytest.approx(
            0, abs=0.01
        )


async def test_what_comes_later_is_found_by_who_searched_before(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await garden(first)
    await first.use_embedder(MARK)
    for number, turn_id in enumerate(("shade", "soil", "rain", "roses", "jam")):
        await first.apply([embedded(turn_id, EAST)])
        hits = await found(second, asking(vector=EAST))
        near = [i for i, c in hits.items() if c.similarity is not None]
        assert len(near) == number + 1


async def test_vectors_of_no_record_are_left_out(store: Store) -> None:
    """Also of a turn that is not complete."""
    await store.apply([created("s"), begun("s", "stopped", "ferns"), begun("s", "running")])
    await store.apply([finished("s", "stopped", "", status="interrupted")])
    await store.use_embedder(MARK)
    await store.apply(
        [embedded("nobody", EAST), embedded("stopped", EAST), embedded("running", EAST)]
    )
    assert await store.search(asking(vector=EAST)) == []
    assert (await found(store, asking("ferns", EAST)))["stopped"].similarity is None


# --- times ------------------------------------------------------------------------


def during(first: int, end: int) -> Interval:
    return Interval(start_at=at(first), end_at=at(end))


async def test_turns_of_a_time_are_found_whatever_they_say(store: Store) -> None:
    """ "What did we do yesterday" names a time, half-open; no neighbours."""
    await garden(store)
    assert await found(store, asking(intervals=(during(2, 4),))) == {
        "soil": Candidate(record_id="soil", session_id="s", turn_index=2, at=at(2)),
        "rain": Candidate(record_id="rain", session_id="s", turn_index=3, at=at(3)),
    }
    assert await found(store, asking(intervals=(during(6, 9),))) == {}
    assert await found(store, asking(intervals=(during(2, 2),))) == {}
    both = asking(intervals=(during(1, 2), during(4, 5)))
    assert set(await found(store, both)) == {"shade", "roses"}
    zoned = Interval(
        start_at=at(2).astimezone(ZoneInfo("Asia/Tokyo")), end_at=at(3).astimezone(UTC)
    )
    assert set(await found(store, asking(intervals=(zoned,)))) == {"soil"}


async def test_a_time_is_one_of_the_scope(store: Store) -> None:
    """Sessions, projects, all; summaries and turns that run are not said at a time."""
    await garden(store)
    await store.apply([summed("s", "shade", summary_id="sum", created_at=at(3))])
    await store.apply([begun("s", "running", "now?", started_at=at(3))])
    all_day = (during(0, 9),)
    for scope, expected in (
        (within(), {"shade", "soil", "rain", "roses", "jam"}),
        (within("r"), {"roses"}),
        (within("none"), set()),
        (within(projects=("project-garden",)), {"shade", "soil", "rain", "roses"}),
        (within("r", "k"), {"roses", "jam"}),
        (within("k", projects=("project-garden",)), {"shade", "soil", "rain", "roses", "jam"}),
    ):
        assert set(await found(store, asking(intervals=all_day, scope=scope))) == expected
    assert await found(store, asking(intervals=all_day, levels=(1,))) == {}
    turns = await found(store, asking(intervals=all_day, levels=(0,), scope=within("s")))
    assert set(turns) == {"shade", "soil", "rain"}


async def test_a_forks_time_ends_where_it_left_its_parent(store: Store) -> None:
    """What the parent said afterwards is not the fork's."""
    await forked(store)
    everything = asking(
        intervals=(Interval(start_at=at(-99), end_at=at(99)),), scope=within("deep")
    )
    expected = set(await found(store, everything))
    assert {"r1", "r2"} <= expected
    assert "r3" not in expected


async def test_of_a_time_the_newest_and_the_best(store: Store) -> None:
    """With both of their scores, though all the best by words are of other times."""
    await store.apply([created("s")])
    await store.use_embedder(MARK)
    for number in range(12):
        text = "ferns " * (3 if number > 5 else 1) if number > 5 or number == 2 else "mosses"
        await store.apply(whole_turn("s", f"t{number:02}", text, "x", started_at=at(number)))
        vector = EAST if number > 5 else unit(3, 1, 0, 0) if number == 1 else NORTH
        await store.apply([embedded(f"t{number:02}", vector)])
    query = asking("ferns", EAST, intervals=(during(0, 6),), limit=4)
    hits = await found(store, query)
    early = {i: c for i, c in hits.items() if c.at < at(6)}
    # The newest two, the best by words, the best two by vector; t05 is a neighbour too.
    assert set(early) >= {"t05", "t04", "t02", "t01"}
    assert len(early) <= 5
    assert early["t02"].text > 0
    assert early["t04"].text == 0
    assert early["t01"].similarity == pytest.approx(0.95, abs=0.01)
    assert early["t04"].similarity == pytest.approx(0, abs=0.01)
    without = await found(store, msgspec.structs.replace(query, intervals=()))
    assert set(without) < set(hits)
    assert {i: hits[i] for i in without} == without


async def test_a_joined_projects_time(store: Store) -> None:
    await garden(store)
    await store.apply([project("project-garden"), project("project-kitchen", "project-garden")])
    for name in ("project-garden", "project-kitchen"):
        query = asking(intervals=(during(4, 6),), scope=within(projects=(name,)))
        assert set(await found(store, query)) == {"roses", "jam"}


# --- by id ------------------------------------------------------------------------


async def test_turns_and_summaries_by_id(store: Store) -> None:
    """In the order asked for, with their calls; those that do not exist are left out."""
    await garden(store)
    await store.apply([begun("s", "t"), called("s", "t", 1), called("s", "t", 0, "a.txt")])
    await store.apply([finished("s", "t")])
    await store.apply([summed("s", "shade", "soil", summary_id="sum")])
    turns = await store.get(Turn, ["t", "none", "shade"])
    assert [turn.turn_id for turn in turns] == ["t", "shade"]
    assert turns == [(await store.turns("s"))[3], (await store.turns("s"))[0]]
    assert [call.order for call in turns[0].tool_calls] == [0, 1]
    assert await store.get(Turn, []) == []
    assert await store.get(Summary, ["none", "sum"]) == await store.summaries("s")


# --- what is to be done -----------------------------------------------------------


def incomplete() -> list[Write]:
    """A turn that runs, one that failed and one that was interrupted."""
    return [
        *(begun("s", name) for name in ("running", "failed", "interrupted")),
        finished("s", "failed", "", "failed"),
        finished("s", "interrupted", "", "interrupted"),
    ]


async def test_vectors_are_made_of_what_is_complete(store: Store) -> None:
    """Newest first; of turns and summaries, whatever the process did that died."""
    await garden(store)
    await store.apply(incomplete())
    await store.apply([summed("s", "shade", summary_id="sum", created_at=at(9))])
    assert await waiting(store, "vectors") == ["sum", "jam", "roses", "rain", "soil", "shade"]
    [newest, jam] = await store.pending("vectors", limit=2)
    assert newest == Pending(work="vectors", session_id="s", record_id="sum", level=1)
    assert jam == Pending(work="vectors", session_id="k", record_id="jam")
    assert newest.key != jam.key
    assert await waiting(store, "vectors", session_id="k") == ["jam"]
    assert (await store.count_pending())["vectors"] == 6
    await store.use_embedder(MARK)
    await store.apply([embedded("sum", EAST, level=1), embedded("jam", EAST)])
    await store.apply([embedded("roses")])  # it has no text: that is done too
    assert await waiting(store, "vectors") == ["rain", "soil", "shade"]


async def test_level1_of_each_complete_turn(store: Store) -> None:
    """And of no other; an extractive one stands in, and is still to be made."""
    await garden(store)
    await store.apply(incomplete())
    assert await waiting(store, "level1", session_id="s") == ["rain", "soil", "shade"]
    await store.apply([summed("s", "soil", summary_id="sum")])
    await store.apply([summed("s", "rain", summary_id="cut", extractive=True)])
    assert await waiting(store, "level1", session_id="s") == ["rain", "shade"]
    assert (await store.pending("level1", limit=1)) == [
        Pending(work="level1", session_id="k", record_id="jam")
    ]
    assert await waiting(store, "level1") == ["jam", "roses", "rain", "shade"]
    await store.apply([summed("s", "rain", summary_id="cut", text="made")])
    assert await waiting(store, "level1", session_id="s") == ["shade"]
    assert (await store.count_pending())["level1"] == 3


async def test_an_extractive_summary_never_replaces_one_that_was_made(store: Store) -> None:
    """Whichever comes last, and its words and vectors follow."""
    await store.apply([created("s"), *whole_turn("s", "t")])
    await store.use_embedder(MARK)
    stand_in = summed("s", "t", summary_id="sum", text="clipped words", extractive=True)
    made = summed("s", "t", summary_id="sum", text="thoughtful digest", created_at=at(7))
    await store.apply([stand_in, embedded("sum", EAST, level=1)])
    assert await by_words(store, "clipped") == {"sum"}
    assert await waiting(store, "vectors") == ["t"]
    await store.apply([made])
    assert await waiting(store, "vectors") == ["sum", "t"]
    assert await store.search(asking(vector=EAST)) == []
    await store.apply([embedded("sum", NORTH, level=1)])
    for write in (stand_in, made, stand_in):
        await store.apply([write])
        assert await store.summaries("s") == [made.summary]
        assert await by_words(store, "clipped") == set()
        assert await by_words(store, "thoughtful") == {"sum"}
        assert await waiting(store, "vectors") == ["t"]
        hits = await found(store, asking(vector=NORTH))
        assert hits["sum"].similarity == pytest.approx(1, abs=0.01)


def level(number: int, name: str, *covers: str) -> AddSummary:
    return summed("s", *covers, level=number, summary_id=name)


async def test_roll_ups_that_may_be_due(store: Store) -> None:
    """Two or more of one level that none covers; which level, the item says."""
    await garden(store)
    assert await store.pending("roll_up", limit=9) == []
    await store.apply([level(1, "a", "shade")])
    assert await store.pending("roll_up", limit=9) == []
    await store.apply([level(1, "b", "soil")])
    due = Pending(work="roll_up", session_id="s", record_id="s", level=1)
    assert await store.pending("roll_up", limit=9) == [due]
    assert (await store.count_pending())["roll_up"] == 1
    await store.apply([level(2, "two", "a", "b")])
    assert await store.pending("roll_up", limit=9) == []
    await store.apply([level(1, "c", "rain"), level(2, "too", "c"), level(1, "d", "rain")])
    assert [p.level for p in await store.pending("roll_up", limit=9)] == [2]


async def test_nothing_is_summed_up_of_a_session_that_says_so(store: Store) -> None:
    """Its vectors and memories are made all the same; without the tag it is taken up again."""
    await garden(store)
    await store.apply([level(1, "a", "shade"), level(1, "b", "soil")])

    async def summed_up() -> set[str]:
        kinds: tuple[Work, ...] = ("level1", "roll_up", "thread")
        found = [p.session_id for kind in kinds for p in await store.pending(kind, limit=99)]
        return set(found)

    before = len(await store.pending("vectors", limit=99))
    await store.apply([UpdateSession(session_id="s", tags=(UNSUMMARIZED,), at=at(9))])
    assert await summed_up() == {"k", "r"}
    assert len(await store.pending("vectors", limit=99)) == before
    await store.apply([UpdateSession(session_id="s", tags=("other",), at=at(9))])
    assert await summed_up() == {"k", "r", "s"}


async def test_threads_whose_summary_is_behind(store: Store) -> None:
    """Sessions with messages that it does not tell of, newest activity first."""
    await garden(store)
    await store.apply([created("empty")])
    assert await waiting(store, "thread") == ["k", "r", "s"]
    assert (await store.pending("thread", limit=1)) == [
        Pending(work="thread", session_id="k", record_id="k")
    ]
    digest = UpdateSession(session_id="r", summary="Roses.", summarized_count=2, at=at(9))
    await store.apply([digest])
    session = await store.session("r")
    assert (session.summary, session.summarized_count) == ("Roses.", 2)
    assert await waiting(store, "thread") == ["k", "s"]
    assert (await store.count_pending())["thread"] == 2
    await store.apply([UpdateSession(session_id="r", title="Roses", at=at(10))])
    assert (await store.session("r")).summarized_count == 2
    await store.apply(whole_turn("r", "more", "And peonies?", "In autumn.", started_at=at(11)))
    assert await waiting(store, "thread") == ["r", "k", "s"]
    assert await waiting(store, "thread", session_id="k") == ["k"]


async def test_a_forks_thread_has_the_messages_that_it_shares(store: Store) -> None:
    """Counted as `Session.message_count` counts."""
    await forked(store)
    assert set(await waiting(store, "thread")) == {"root", "fork", "deep"}
    for name in ("root", "fork", "deep"):
        count = (await store.session(name)).message_count
        digest = UpdateSession(session_id=name, summary="x", summarized_count=count, at=at(9))
        await store.apply([digest])
    assert await waiting(store, "thread") == []
    await store.apply([created("late", parent_session_id="root", forked_at_index=1)])
    assert await waiting(store, "thread") == ["late"]


# --- leases -----------------------------------------------------------------------


async def test_two_never_do_the_same(open_store: OpenStore) -> None:
    """Who claims first has it; the other one is given what is free."""
    first, second = await open_store(), await open_store()
    await garden(first)
    items = await first.pending("vectors", limit=3)
    keys = [item.key for item in items]
    assert await first.claim(keys[:2], "one", seconds=60) == keys[:2]
    assert await second.claim(keys, "two", seconds=60) == keys[2:]
    assert await first.claim(keys, "one", seconds=60) == keys[:2]
    assert await waiting(second, "vectors") == ["soil", "shade"]
    assert (await second.count_pending())["level1"] == 5
    await second.release(keys, "two")
    assert await waiting(first, "vectors") == ["jam", "roses", "rain", "soil", "shade"][2:]
    await first.release(keys, "one")
    assert len(await waiting(first, "vectors")) == 5
    assert await first.claim([], "one", seconds=60) == []


async def test_a_lease_ends_by_itself(store: Store) -> None:
    """What a dead process had claimed is another one's."""
    await garden(store)
    [item] = await store.pending("level1", limit=1)
    assert await store.claim([item.key], "dead", seconds=0) == [item.key]
    assert item in await store.pending("level1", limit=1)
    assert await store.claim([item.key], "alive", seconds=60) == [item.key]
    assert item not in await store.pending("level1", limit=9)
    assert await store.claim([item.key], "dead", seconds=60) == []


async def test_all_work_is_leased(open_store: OpenStore) -> None:
    """Whatever it is, also of a memory and of a session's summary."""
    first, second = await open_store(), await open_store()
    await garden(first)
    await first.apply([level(1, "a", "shade"), level(1, "b", "soil")])
    await first.apply([UpdateSession(session_id="r", summary="Roses.", at=at(9)), put("a.py", "x")])
    await first.apply([remembered("m")])
    for work in WORK:
        items = await first.pending(work, limit=99)
        keys = [item.key for item in items]
        assert keys
        assert await first.claim(keys, "one", seconds=60) == keys
        assert await second.claim(keys, "two", seconds=60) == []
        assert await second.pending(work, limit=99) == []
        await first.release(keys, "one")
        assert await second.pending(work, limit=99) == items
    keys = [item.key for item in await first.pending("vectors", limit=99)]
    assert {"vectors:-1:m", "vectors:-2:r", "vectors:0:jam", "vectors:1:a"} <= set(keys)


# --- safe -------------------------------------------------------------------------


async def test_any_text_at_all(store: Store) -> None:
    """NUL, half a character, a word thirty thousand times, one of a megabyte."""
    odd = "nul\0 half\ud83d " + "word " * 30_000 + "x" * 1_000_000
    await store.apply([created("s"), begun("s", "t", odd), finished("s", "t", "\ud800 ferns")])
    assert await by_words(store, "ferns") == {"t"}
    assert await by_words(store, "word") == {"t"}
    query = SearchQuery(
        terms=tuple(map(WeightedTerm, ("", " ", "a b", '"', "*", "t\0", "\\", "'")))
    )
    assert await store.search(query) == []


async def test_a_closed_store_says_so(store: Store) -> None:
    await store.aclose()
    with pytest.raises(StoreUnavailable):
        await store.search(asking("ferns"))
    with pytest.raises(StoreUnavailable):
        await store.memories(MemoryQuery())
    with pytest.raises(StoreUnavailable):
        await store.forget_memories(["m"])
    with pytest.raises(StoreUnavailable):
        await store.pending("vectors", limit=1)

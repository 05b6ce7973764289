"""From a question to the turns and summaries that bear on it, on each real store."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ragmem.config import EmbeddingsConfig, MemoryConfig
from ragmem.embedder import Kind
from ragmem.errors import EmbedderUnavailable, StoreError
from ragmem.ids import new_id
from ragmem.memory import Hit, Question
from ragmem.memory.recall import Recall, ScopeName, scope_of
from ragmem.records import CreateSession, EmbedderMark, Session
from ragmem.store import Store
from ragmem.usage import Metrics
from tests.fakes.frail_store import FrailStore, Line
from tests.fakes.hash_embedder import HashEmbedder
from tests.store.conftest import OpenStore
from tests.store.samples import START, a_session, summed, whole_turn

from .working import a_memory, a_worker, context, opening

NOW = datetime(2026, 3, 12, 12, tzinfo=UTC)


async def say(
    store: Store, session: Session, *said: tuple[str, str], at: datetime = START
) -> list[str]:
    """Turns a minute apart; their ids."""
    ids = []
    for number, (user, answer) in enumerate(said):
        ids.append(new_id())
        started_at = at + timedelta(minutes=number)
        await store.apply(
            whole_turn(session.session_id, ids[-1], user, answer, started_at=started_at)
        )
    return ids


async def new_session(store: Store, **fields: object) -> Session:
    session = a_session(**fields)
    await store.apply([CreateSession(session=session)])
    return session


def a_recall(store: Store, embedder: HashEmbedder | None = None) -> Recall:
    return Recall(opening(store), embedder, clock=lambda: NOW)


async def found(
    store: Store, text: str, embedder: HashEmbedder | None = None, **more: object
) -> list[str]:
    """Ids, best first."""
    return [hit.record_id for hit in await hits(store, text, embedder, **more)]


async def hits(
    store: Store, text: str, embedder: HashEmbedder | None = None, **more: object
) -> list[Hit]:
    return await a_recall(store, embedder).search(Question(text=text, **more))  # type: ignore[arg-type]


class Fixed(HashEmbedder):
    """Vectors by a word of the text; what holds none of them is at right angles to all."""

    def __init__(self, **vectors: tuple[float, float]) -> None:
        super().__init__(3, model_id="fixed")
        self.vectors = vectors

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> NDArray[np.float32]:
        self.seen += [(kind, text) for text in texts]
        rows = []
        for text in texts:
            known = [v for word, v in self.vectors.items() if word in text.casefold()]
            rows.append((*known[0], 0.0) if known else (0.0, 0.0, 1.0))
        return np.array(rows, dtype=np.float32)


# --- where is looked ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "expected"), [("session", "m"), ("project", "mo"), ("all", "moe")]
)
async def test_scopes(store: Store, scope: ScopeName, expected: str) -> None:
    """This session, its project, everything; never another project's unasked."""
    mine = await new_session(store)
    other = await new_session(store, cwd="/home/ana/garden/beds")
    elsewhere = await new_session(store, cwd="/home/ana/zoo", project_id="project-zoo")
    ids = {}
    for name, session in (("m", mine), ("o", other), ("e", elsewhere)):
        (ids[name],) = await say(store, session, ("Where do wombats live?", f"In burrow {name}."))
    embedder = HashEmbedder()
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    got = await found(store, "wombats", embedder, scope=scope_of(mine, scope), max_results=9)
    assert set(got) == {ids[name] for name in expected}
    # Of equals the own session's comes first.
    first = await found(
        store, "wombats", embedder, scope=scope_of(mine, scope), session_id=mine.session_id
    )
    assert first[0] == ids["m"]
    async with a_memory(store, embedder, MemoryConfig(scope=scope)) as memory:
        asking = await new_session(store)
        text = (await context(memory, asking, "wombats")).messages[-1].text
    # A new session of the same project has nothing of its own.
    assert [name for name in "moe" if f"burrow {name}" in text] == (
        [] if scope == "session" else list(expected)
    )


async def test_turns_and_summaries(store: Store) -> None:
    """Both kinds, every level, or those that are named."""
    session = await new_session(store)
    (turn_id,) = await say(store, session, ("Where do wombats live?", "In burrows."))
    below = turn_id
    summaries = []
    for level in (1, 2, 3):
        write = summed(session.session_id, below, level=level, text=f"On wombats, level {level}.")
        await store.apply([write])
        below = write.summary.summary_id
        summaries.append(below)
    everything = await hits(store, "wombats", max_results=9)
    assert {hit.record_id for hit in everything} == {turn_id, *summaries}
    for hit in everything:
        assert (hit.type == "turn") == (hit.turn is not None) == (hit.summary is None)
    scores = [hit.score for hit in everything]
    assert scores == sorted(scores, reverse=True)
    assert await found(store, "wombats", levels=(0,)) == [turn_id]
    assert set(await found(store, "wombats", levels=(1, 2, 3))) == set(summaries)
    assert await found(store, "wombats", levels=(2,)) == [summaries[1]]
    assert len(await found(store, "wombats", max_results=2)) == 2


async def test_a_fork_recalls_what_it_shares_once(store: Store, tmp_path: Path) -> None:
    """One turn, one hit, whichever of the two asks."""
    async with a_memory(store) as memory:
        parent = await new_session(store, cwd=str(tmp_path))
        (shared,) = await say(store, parent, ("Where do wombats live?", "In burrows."))
        fork = await memory.fork(await store.session(parent.session_id))
        (own,) = await say(store, fork, ("And do wombats swim?", "They do."))
        for session, scope, expected in (
            (fork, "session", {shared, own}),
            (fork, "project", {shared, own}),
            (parent, "session", {shared}),
        ):
            got = await found(store, "wombats", scope=scope_of(session, scope), max_results=9)  # type: ignore[arg-type]
            assert len(got) == len(expected)
            assert set(got) == expected


async def test_what_was_deleted_is_never_recalled(store: Store) -> None:
    """No text, no vector, no summary of it is left to be found."""
    embedder = HashEmbedder()
    gone, kept = await new_session(store), await new_session(store)
    (turn_id,) = await say(store, gone, ("Where do wombats live?", "In burrows."))
    await say(store, kept, ("What do wombats eat?", "Grass."))
    await store.apply([summed(gone.session_id, turn_id, text="Wombats live in burrows.")])
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    assert len(await found(store, "wombats", embedder)) == 3
    inner = getattr(store, "inner", None)
    await (await inner() if inner else store).delete_session(gone.session_id)
    left = await hits(store, "where do wombats live in burrows", embedder)
    assert {hit.session_id for hit in left} == {kept.session_id}


# --- what is found -----------------------------------------------------------------


async def test_words_alone(store: Store) -> None:
    """Without any vector; the embedder is not even asked."""
    session = await new_session(store, title="Animals")
    ids = await say(store, session, ("Where do wombats live?", "In burrows."), ("Hi", "Hello"))
    embedder = HashEmbedder()
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    embedder.seen.clear()
    (hit, *rest) = await hits(store, "wombats", embedder, semantic=False, min_similarity=0.9)
    assert rest == []
    assert embedder.seen == []
    assert (hit.record_id, hit.similarity, hit.relevance) == (ids[0], None, "text match")
    assert (hit.session_id, hit.session_title) == (session.session_id, "Animals")
    assert (hit.at, hit.why) == (START, "its words")


async def test_the_floor_is_strict_and_words_pass_it_where_they_are_no_accident(
    store: Store,
) -> None:
    """At the floor is below it; no vector is no error; what is like nothing has common words."""
    half, nearly = (0.5, 0.75**0.5), (0.4, 0.84**0.5)
    embedder = Fixed(
        question=(1.0, 0.0), at=half, above=(0.8, 0.6), plainly=nearly, nowhere=(0.0, 1.0)
    )
    session = await new_session(store)
    ids = await say(
        store, session, ("at", "x"), ("y", "above"), ("zebra", "plainly"), ("unrelated", "z"),
        ("zebra", "nowhere"), ("the zebra of zoo_17", "nowhere"),
    )  # fmt: skip
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    (late,) = await say(store, session, ("zebra", "without a vector"))
    got = await hits(store, "question zebra", embedder, min_similarity=0.5, max_results=9)
    assert {hit.record_id for hit in got} == {ids[1], ids[2], late}
    raw = {hit.record_id: hit.similarity for hit in got}
    assert raw[ids[1]] == pytest.approx(0.8, abs=1e-3)
    assert raw[ids[2]] == pytest.approx(0.4, abs=1e-2)
    assert raw[late] is None
    by_id = {hit.record_id: hit for hit in got}
    assert by_id[ids[1]].relevance == "80%"
    named = await found(store, "zebra of zoo_17?", embedder, min_similarity=0.5, max_results=9)
    assert ids[5] in named
    assert ids[4] not in named
    assert ids[0] in await found(store, "question", embedder, min_similarity=0.49, max_results=9)
    assert ids[0] in await found(store, "question", embedder, max_results=9)


async def test_a_question_for_what_was_done_finds_the_nearest_however_far(store: Store) -> None:
    """Three turns, and what is near among them first."""
    embedder = Fixed(question=(1.0, 0.0), far=(0.3, 0.91**0.5), near=(0.8, 0.6))
    session = await new_session(store)
    ids = await say(store, session, *[(f"moss {n}", f"far away, it says {n}") for n in range(4)])
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    asked = "How did we do the question of moss?"
    assert await found(store, "Do the question of moss?", embedder, min_similarity=0.9) == []
    assert len(await found(store, asked, embedder, min_similarity=0.9)) == 3
    (close,) = await say(store, session, ("moss", "near"))
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    best, *others = await found(store, asked, embedder, min_similarity=0.7)
    assert (best, len(others)) == (close, 2)
    assert set(others) < set(ids)


async def test_a_shared_word_is_less_of_a_sign_off_the_subject(store: Store) -> None:
    embedder = Fixed(question=(1.0, 0.0), plainly=(0.4, 0.84**0.5))
    session = await new_session(store)
    others = [(f"zebra number {n}", "of no account") for n in range(9)]
    (*_, alike) = await say(store, session, *others, ("zebras", "plainly"))
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    plainly = "A question on marble, slate, basalt, gypsum, quartz and zebras"
    assert await found(store, plainly, embedder, min_similarity=0.5) == [alike]
    assert await found(store, f"Off topic: {plainly}", embedder, min_similarity=0.5) == []


async def test_a_word_of_all_that_is_known_brings_nothing_up(store: Store) -> None:
    """Without vectors: what many turns say tells of none of them, a rare word of its own."""
    session = await new_session(store)
    lines = [(f"Write a page on bed {number}.", "Written.") for number in range(9)]
    ids = await say(store, session, *lines, ("Write of the wombat's burrow.", "It is dry."))
    asked = "Write a poem on the heather, the moor and its quiet"
    assert await found(store, asked, min_similarity=0.5) == []
    assert await found(store, f"{asked}, and a wombat", min_similarity=0.5) == [ids[-1]]


async def test_small_talk_bears_on_nothing(store: Store) -> None:
    session = await new_session(store)
    thanks, yes = await say(
        store,
        session,
        ("danke, bis morgen", "Bis morgen!"),
        ("ok", "The seeds go into the ground tomorrow morning, beans first, then the peas. Bis."),
    )
    asked = "Was heißt morgen auf Dänisch?"
    assert thanks in await found(store, asked)
    assert await found(store, asked, min_similarity=0.5) == []
    assert await found(store, "When do the beans and peas go in?", min_similarity=0.5) == [yes]


async def test_a_question_that_nothing_came_of_stands_behind_what_answers_it(store: Store) -> None:
    session = await new_session(store)
    others = [(f"Nursery, part {n}: boards, nails and a door for it.", "") for n in range(8)]
    open_one, *_, told, answered = await say(
        store,
        session,
        ("Which colour for the nursery?", ""),
        *others,
        ("The colour of the nursery is sage green, with a rainbow.", ""),
        ("Which colour for the nursery door?", "White, as the nursery's shelves."),
    )
    ids = await found(store, "colour nursery", max_results=9)
    assert max(ids.index(told), ids.index(answered)) < ids.index(open_one)


async def test_meaning_without_a_shared_word(store: Store) -> None:
    """By vector alone, turns and summaries."""
    embedder = Fixed(canine=(1.0, 0.0), dog=(0.9, 0.435))
    session = await new_session(store)
    wanted, _ = await say(store, session, ("The dog barks.", "It does."), ("Rain", "Wet."))
    above = summed(session.session_id, wanted, text="On a dog.", key_findings=())
    await store.apply([above])
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    got = await hits(store, "canine", embedder, min_similarity=0.7)
    assert {hit.record_id for hit in got} == {wanted, above.summary.summary_id}
    assert {hit.why for hit in got if hit.turn} == {"its meaning"}


async def test_stop_words_are_no_match(store: Store) -> None:
    """What shares only `the` and `of` with the prompt does not pass the floor as text."""
    embedder = Fixed(loaf=(1.0, 0.0), burrow=(0.3, 0.91**0.5))
    session = await new_session(store)
    (turn_id,) = await say(store, session, ("What of the wombats?", "They are in the burrow."))
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    asked = "what is the weight of the loaf?"
    assert await found(store, asked, embedder, min_similarity=0.5) == []
    assert await found(store, asked, min_similarity=0.5) == []
    # Who searches by words alone gets what there is.
    assert await found(store, asked, semantic=False) == [turn_id]
    assert await found(store, asked + " wombat", embedder, min_similarity=0.5) == [turn_id]


@pytest.mark.parametrize(
    "asked",
    [
        "what happened on Tuesday?",
        "what did we do the day before yesterday?",
        "que s'est-il passé avant-hier ?",
        "was haben wir am 2026-03-10 gemacht?",
        "cosa abbiamo fatto due giorni fa?",
        "¿qué hicimos anteayer?",
    ],
)
async def test_a_time_and_nothing_else(store: Store, asked: str) -> None:
    """That day's turns, the newest of each session first; nothing is embedded for it."""
    embedder = Fixed(what=(1.0, 0.0), other=(1.0, 0.0))
    first, second = await new_session(store), await new_session(store)
    day = datetime(2026, 3, 10, 8, tzinfo=UTC)
    ids = await say(store, first, ("Ferns.", "x"), ("Mosses.", "x"), ("Lichens.", "x"), at=day)
    ids += await say(store, second, ("Tides.", "x"), at=day - timedelta(hours=2))
    for days in (-20, -1, 1):
        said = ("What happened? We did other work.", "Gemacht, fatto, fait.")
        await say(store, second, said, at=day + timedelta(days=days))
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    embedder.seen.clear()
    expected = [ids[2], ids[3], ids[1], ids[0]]
    for floor in (None, 0.9):
        got = await hits(store, asked, embedder, max_results=9, min_similarity=floor)
        assert [hit.record_id for hit in got] == expected
        assert {hit.why for hit in got} == {"its time"}
        assert all(hit.is_close(0.9) for hit in got)
    assert embedder.seen == []
    few = await found(store, asked, max_results=2, scope=scope_of(first, "project"))
    assert few == expected[:2]


async def test_a_long_session_hides_no_other_of_the_day(store: Store) -> None:
    """ "What did we do yesterday" tells of all of them."""
    early, late = await new_session(store), await new_session(store)
    day = NOW - timedelta(days=1)
    (first,) = await say(store, early, ("Ferns.", "x"), at=day - timedelta(hours=6))
    many = await say(store, late, *((f"Moss {n}.", "x") for n in range(60)), at=day)
    got = await found(store, "what did we do yesterday?", max_results=2)
    assert got == [many[-1], first]


async def test_farewells_are_not_what_was_done(store: Store) -> None:
    """Of a day's turns those that say something come first."""
    session = await new_session(store)
    work = "Moved the retries of the uploader into its own queue, with a limit of five a minute."
    did, bye = await say(
        store, session, ("And now?", work), ("bye", "Bye."), at=NOW - timedelta(days=1)
    )
    assert await found(store, "what did we do yesterday?") == [did, bye]


async def test_a_time_at_which_nothing_was_said(store: Store) -> None:
    """People err by a day; what is nearest to it comes first."""
    ids = []
    for days in (60, 3):
        session = await new_session(store)
        said = (f"What we did: {days} ferns.", "x")
        ids += await say(store, session, said, at=NOW - timedelta(days=days))
    far, near = ids
    assert await found(store, "what did we do yesterday?") == [near, far]
    assert await found(store, "what did we do yesterday?", min_similarity=0.5) == []


async def test_a_topic_at_a_time(store: Store) -> None:
    """Of thousands of turns about it that of the day is found, however many are alike."""
    session = await new_session(store)
    for number in range(120):
        at = NOW - timedelta(days=5, minutes=number)
        await say(store, session, ("Retries, retries: the retries.", "Retries again."), at=at)
    quiet, wanted = await say(
        store,
        session,
        ("Good morning.", "Hello."),
        ("How often do we try?", "Five retries, with a pause that doubles, up to a minute."),
        at=NOW - timedelta(days=30),
    )
    got = await found(store, "what did we decide about retries on 2026-02-10?", max_results=3)
    assert got[0] == wanted
    assert quiet not in await found(
        store, "what about retries on 2026-02-10?", max_results=9, min_similarity=0.5
    )


@pytest.mark.parametrize(
    "asked", ["how do we do it", "what is that for?", "et ça, on en fait quoi"]
)
async def test_fillers_and_nothing_else(store: Store, asked: str) -> None:
    """By words alone what holds most of them, the newest of equals; they pass no floor,
    and with vectors they are not looked for."""
    embedder = Fixed(how=(1.0, 0.0), near=(0.9, 0.435))
    session = await new_session(store)
    moss = "A moss is small, green, soft, damp, old and flowerless, without roots or seeds."
    fern = "Every fern grows slowly under tall trees by water; its leaves unroll in spring."
    plain, alike, newest, near = await say(
        store,
        session,
        ("Lichens grow.", fern),
        (asked, moss),
        (asked, fern),
        ("The near one.", "Stone."),
    )
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    for semantic in (False, True):
        got = await found(store, asked, None, semantic=semantic)
        assert got[:2] == [newest, alike]
        assert plain not in got[:2]
    assert await found(store, asked, min_similarity=0.5) == []
    if asked.startswith("how"):
        by_meaning = await hits(store, asked, embedder, min_similarity=0.5)
        assert {hit.record_id for hit in by_meaning} == {near, alike, newest}
        assert not any("words" in hit.why for hit in by_meaning)


# --- when something fails ------------------------------------------------------------


async def test_vectors_of_another_model(store: Store) -> None:
    """Text search goes on; vectors of two models are never compared."""
    session = await new_session(store)
    (wanted,) = await say(store, session, ("Where do wombats live?", "In burrows."))
    await a_worker(store, embedder=HashEmbedder(), summarizes=False).drain()
    other = HashEmbedder(model_id="hash-2")
    (hit,) = await hits(store, "wombats", other)
    assert (hit.record_id, hit.similarity) == (wanted, None)
    assert other.seen == []
    await store.use_embedder(EmbedderMark("hash-2", 64))
    (hit,) = await hits(store, "wombats", other)
    assert hit.similarity is None


class Failing(HashEmbedder):
    """Raises what it was given, for questions."""

    error: Exception = EmbedderUnavailable("away")

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> NDArray[np.float32]:
        if kind == "query":
            raise self.error
        return await super().embed(texts, kind)


@pytest.mark.parametrize("error", [EmbedderUnavailable("away"), ValueError("a fault"), OSError(5)])
async def test_an_embedder_that_fails(store: Store, error: Exception) -> None:
    """The words are looked for all the same."""
    session, asking = await new_session(store), await new_session(store)
    (wanted,) = await say(store, session, ("Where do wombats live?", "In burrows."))
    embedder = Failing()
    embedder.error = error
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    assert await found(store, "wombats", embedder) == [wanted]
    metrics = Metrics()
    async with a_memory(store, embedder, metrics=metrics) as memory:
        built = await context(memory, asking, "wombats")
    assert "In burrows." in built.text()
    assert not built.fallback
    assert metrics.counts["embedder.failures"] == 1


async def test_an_embedder_that_is_slow(store: Store) -> None:
    """It is waited for as long as is set, and the words are not lost with it."""
    session, asking = await new_session(store), await new_session(store)
    await say(store, session, ("Where do wombats live?", "In burrows."))
    embedder = HashEmbedder()
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    embedder.delay_s = 300
    config = MemoryConfig(embeddings=EmbeddingsConfig(timeout_s=0.2))
    async with a_memory(store, embedder, config) as memory:
        built = await context(memory, asking, "wombats")
    assert "In burrows." in built.text()


@pytest.mark.parametrize("mode", ["refusing", "silent"])
async def test_a_store_that_fails(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """A context all the same, of what this process remembers; the embedder fails with it."""
    inner = await open_store()
    line = Line()
    async with a_memory(FrailStore(inner, line), Failing()) as memory:  # type: ignore[arg-type]
        project = (await memory.project_of(tmp_path)).project
        session = memory.new_session(tmp_path, project)
        recording = await memory.begin_turn(session, project, "Where do wombats live?", model="m")
        await recording.finish("completed", "In burrows.")
        memory.finished(session, recording.turn)
        line.set(mode)  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            patch.setattr("ragmem.memory.leases._PATIENCE_S", 2.0)
            started = time.monotonic()
            built = await context(memory, session, "And wombats?")
        assert time.monotonic() - started < 60
        assert built.fallback
        assert "In burrows." in built.text()
        assert built.messages[-1].text.endswith("And wombats?")
        line.set("refusing")
        with pytest.raises(StoreError):
            await memory.search(Question(text="wombats"))
        line.set("fine")
        assert not (await context(memory, session, "And wombats?")).fallback


# --- hard questions -------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "   \n",
        "?!… — 🌿",
        "the of and",
        "\ud800",
        "\0",
        "NOT (a OR",
        '"unclosed AND *',
        "~" * 999,
    ],
)
async def test_any_question(store: Store, asked: str) -> None:
    """Nothing that can be typed is an error."""
    session = await new_session(store)
    await say(store, session, ("Where do wombats live?", "In the burrows."))
    embedder = HashEmbedder()
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    got = await hits(store, asked, embedder)
    assert got == [] or asked.strip()
    async with a_memory(store, embedder) as memory:
        built = await context(memory, await new_session(store), asked)
    assert len(built.messages) == 2


async def test_a_question_of_a_million_characters(store: Store) -> None:
    """Its ends are looked for, in the time of any other."""
    session = await new_session(store)
    first, last, middle = await say(
        store,
        session,
        ("Where do wombats live?", "In burrows."),
        ("What do quokkas eat?", "Leaves."),
        ("Do numbats fly?", "No."),
    )
    embedder = HashEmbedder()
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    embedder.seen.clear()
    filler = "lorem ipsum dolor " * 28_000
    asked = f"wombats {filler} numbats {filler} quokkas"
    assert len(asked) > 1_000_000
    await found(store, asked, embedder)
    started = time.monotonic()
    got = await found(store, asked, embedder, max_results=2)
    assert time.monotonic() - started < 60
    assert set(got) == {first, last}
    assert middle not in got
    assert all(len(text) <= 4_100 for _, text in embedder.seen)


# --- before each request ----------------------------------------------------------------


async def test_each_prompt_is_searched_for(store: Store) -> None:
    """With the person's own words; not under the strategy `recent`."""
    session = await new_session(store)
    await say(store, session, ("Where do wombats live?", "In burrows."), ("Hi", "Hello"))
    embedder, metrics = HashEmbedder(), Metrics()
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    embedder.seen.clear()
    async with a_memory(store, embedder, metrics=metrics) as memory:
        for prompt in ("Do wombats dig?", "And quokkas?"):
            await context(memory, session, prompt)
        await context(memory, session, "Never asked", strategy="recent")
    assert embedder.seen == [("query", "Do wombats dig?"), ("query", "And quokkas?")]
    assert metrics.counts["recall.searches"] == 2


async def test_what_is_shown_hides_nothing_behind_it(store: Store) -> None:
    """A window full of the topic, and its summaries, leave room for what is not shown."""
    embedder = HashEmbedder()
    old = await new_session(store, title="Last year")
    await say(store, old, ("How does pagination work?", "pagination by keyset, not by offset"))
    session = await new_session(store)
    for number in range(40):
        await say(
            store,
            session,
            (f"pagination keyset offset {number}?", f"pagination works by offset {number}"),
            at=START + timedelta(days=3, minutes=number),
        )
    await a_worker(store, embedder=embedder).drain()
    session = await store.session(session.session_id)
    async with a_memory(store, embedder) as memory:
        built = await context(memory, session, "How does pagination work, keyset or offset?")
    block = built.messages[-1].text
    assert "by keyset, not by offset" in block
    assert "“Last year”" in block
    past = block.split("## Relevant Past Context (Semantic Search - Turns)")[1].split("## ")[0]
    assert past.count("[Turn ") == 1
    assert "works by offset 39" in "".join(str(message) for message in built.messages[:-1])


class Counting(HashEmbedder):
    """Says whether it was prepared."""

    prepared = 0

    async def prepare(self) -> None:
        self.prepared += 1
        if self.failing:
            raise EmbedderUnavailable("away")


async def test_prepared_only_where_there_is_something_to_find(store: Store) -> None:
    """An empty memory loads no model; one that can't be loaded is no failure."""
    embedder = Counting()
    recall = a_recall(store, embedder)
    await recall.prepare()
    assert embedder.prepared == 0
    await say(store, await new_session(store), ("Where do wombats live?", "In burrows."))
    await a_worker(store, embedder=embedder, summarizes=False).drain()
    embedder.failing = True
    await recall.prepare()
    assert embedder.prepared == 1
    line = Line()
    line.set("refusing")
    away = a_recall(FrailStore(store, line), embedder)  # type: ignore[arg-type]
    await away.prepare()
    with pytest.raises(StoreError):
        await away.search(Question(text="wombats"))

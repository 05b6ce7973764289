"""From a question to the turns and summaries that bear on it, on a real store."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from ragmem.config import EmbeddingsConfig, MemoryConfig, ScopeName, SummariesConfig
from ragmem.embedder import Kind
from ragmem.errors import EmbedderUnavailable, StoreError
from ragmem.ids import new_id
from ragmem.memory.recall import Hit, Question, Recall, scope_of
from ragmem.records import CreateSession, EmbedderMark, Session, Write
from ragmem.store import Store
from ragmem.usage import Metrics
from tests.fakes.frail_store import FrailStore, Line, Mode
from tests.fakes.hash_embedder import HashEmbedder
from tests.store.conftest import OpenStore
from tests.store.samples import START, a_session, summed, whole_turn

from .working import Chat, a_builder, a_memory, a_worker, context, opening

NOW = datetime(2026, 3, 12, 12, tzinfo=UTC)


class Past:
    """What was said in some sessions, and what is found of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.embedder: HashEmbedder | None = None

    async def session(self, **fields: Any) -> Session:
        """One more."""
        made = a_session(**fields)
        await self.store.apply([CreateSession(session=made)])
        return made

    async def say(
        self, *said: tuple[str, str], session: Session | None = None, at: datetime = START
    ) -> list[str]:
        """Turns a minute apart, in a session of their own unless one is named; their ids."""
        session_id = (session or await self.session()).session_id
        ids = [new_id() for _ in said]
        writes: list[Write] = []
        for number, (user, answer) in enumerate(said):
            started_at = at + timedelta(minutes=number)
            writes += whole_turn(session_id, ids[number], user, answer, started_at=started_at)
        await self.store.apply(writes)
        return ids

    async def embed(self, embedder: HashEmbedder) -> HashEmbedder:
        """Make the vectors of all that was said, and search with them from now on."""
        self.embedder = embedder
        await a_worker(self.store, embedder=embedder, summarizes=False).drain()
        embedder.seen.clear()
        return embedder

    async def hits(self, text: str, **more: Any) -> list[Hit]:
        """Best first."""
        recall = a_recall(self.store, self.embedder)
        return await recall.search(Question(text=text, **more))

    async def found(self, text: str, **more: Any) -> list[str]:
        """Their ids."""
        return [hit.record_id for hit in await self.hits(text, **more)]


@pytest.fixture
def past(store: Store) -> Past:
    return Past(store)


def a_recall(store: Store, embedder: HashEmbedder | None = None) -> Recall:
    return Recall(opening(store), embedder, clock=lambda: NOW)


WOMBATS = ("Where do wombats live?", "In burrows.")


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


@pytest.mark.parametrize(("scope", "hits"), [("session", "m"), ("project", "mo"), ("all", "moe")])
async def test_scopes(past: Past, scope: ScopeName, hits: str) -> None:
    """This session, its project, everything; never another project's unasked."""
    mine = await past.session()
    other = await past.session(cwd="/home/ana/garden/beds")
    elsewhere = await past.session(cwd="/home/ana/zoo", project_id="project-zoo")
    ids = {}
    for name, session in (("m", mine), ("o", other), ("e", elsewhere)):
        (ids[name],) = await past.say((WOMBATS[0], f"In burrow {name}."), session=session)
    embedder = await past.embed(HashEmbedder())
    got = await past.found("wombats", scope=scope_of(mine, scope), max_results=9)
    assert set(got) == {ids[name] for name in hits}
    # Of equals the own session's comes first.
    own = mine.session_id
    first = await past.found("wombats", scope=scope_of(mine, scope), session_id=own)
    assert first[0] == ids["m"]
    async with a_memory(past.store, embedder, MemoryConfig(scope=scope)) as memory:
        text = (await context(memory, await past.session(), "wombats")).messages[-1].text
    # A new session of the same project has nothing of its own.
    assert [name for name in "moe" if f"burrow {name}" in text] == (
        [] if scope == "session" else list(hits)
    )


async def test_turns_and_summaries(past: Past) -> None:
    """Both kinds, or the levels that are named; the best so many."""
    session = await past.session()
    (turn_id,) = await past.say(WOMBATS, session=session)
    summary = summed(session.session_id, turn_id, text="On wombats.")
    await past.store.apply([summary])
    everything = await past.hits("wombats", max_results=9)
    assert {hit.record_id for hit in everything} == {turn_id, summary.summary.summary_id}
    for hit in everything:
        assert (hit.type == "turn") == (hit.turn is not None) == (hit.summary is None)
    scores = [hit.score for hit in everything]
    assert scores == sorted(scores, reverse=True)
    assert await past.found("wombats", levels=(0,)) == [turn_id]
    assert len(await past.found("wombats", max_results=1)) == 1


async def test_what_was_deleted_is_never_recalled(past: Past) -> None:
    """No text, no vector, no summary of it is left to be found."""
    gone, kept = await past.session(), await past.session()
    (turn_id,) = await past.say(WOMBATS, session=gone)
    await past.say(("What do wombats eat?", "Grass."), session=kept)
    await past.store.apply([summed(gone.session_id, turn_id, text="Wombats live in burrows.")])
    await past.embed(HashEmbedder())
    assert len(await past.found("wombats")) == 3
    inner = getattr(past.store, "inner", None)
    archive: Any = await inner() if inner else past.store
    await archive.delete_session(gone.session_id)
    left = await past.hits("where do wombats live in burrows")
    assert {hit.session_id for hit in left} == {kept.session_id}


# --- what is found -----------------------------------------------------------------


async def test_words_alone(past: Past) -> None:
    """Without any vector; the embedder is not even asked."""
    session = await past.session(title="Animals")
    ids = await past.say(WOMBATS, ("Hi", "Hello"), session=session)
    embedder = await past.embed(HashEmbedder())
    (hit,) = await past.hits("wombats", semantic=False, min_similarity=0.9)
    assert embedder.seen == []
    assert (hit.record_id, hit.similarity, hit.relevance) == (ids[0], None, "text match")
    assert (hit.session_id, hit.session_title) == (session.session_id, "Animals")
    assert (hit.at, hit.why) == (START, ("its words",))


async def test_the_floor_is_strict_and_words_pass_it_where_they_are_no_accident(past: Past) -> None:
    """At the floor is below it; no vector is no error; what is like nothing has common words."""
    half, nearly = (0.5, 0.75**0.5), (0.4, 0.84**0.5)
    session = await past.session()
    ids = await past.say(
        ("at", "x"), ("y", "above"), ("zebra", "plainly"), ("unrelated", "z"),
        ("zebra", "nowhere"), ("the zebra of zoo_17", "nowhere"), session=session,
    )  # fmt: skip
    await past.embed(
        Fixed(question=(1.0, 0.0), at=half, above=(0.8, 0.6), plainly=nearly, nowhere=(0.0, 1.0))
    )
    (late,) = await past.say(("zebra", "without a vector"), session=session)
    wanted = partial(past.found, min_similarity=0.5, max_results=9)
    by_id = {h.record_id: h for h in await past.hits("question zebra", min_similarity=0.5)}
    assert set(await wanted("question zebra")) == set(by_id) == {ids[1], ids[2], late}
    assert by_id[ids[1]].similarity == pytest.approx(0.8, abs=1e-3)
    assert by_id[ids[2]].similarity == pytest.approx(0.4, abs=1e-2)
    assert by_id[late].similarity is None
    assert by_id[ids[1]].relevance == "80%"
    named = await wanted("zebra of zoo_17?")
    assert (ids[5] in named, ids[4] in named) == (True, False)
    for floor in (0.49, None):
        assert ids[0] in await wanted("question", min_similarity=floor)


async def test_a_question_for_what_was_done_finds_the_nearest_however_far(past: Past) -> None:
    """Three turns, and what is near among them first."""
    embedder = Fixed(question=(1.0, 0.0), far=(0.3, 0.91**0.5), near=(0.8, 0.6))
    ids = await past.say(*[(f"moss {n}", f"far away, it says {n}") for n in range(4)])
    await past.embed(embedder)
    asked = "How did we do the question of moss?"
    assert await past.found("Do the question of moss?", min_similarity=0.9) == []
    assert len(await past.found(asked, min_similarity=0.9)) == 3
    (close,) = await past.say(("moss", "near"))
    await past.embed(embedder)
    best, *others = await past.found(asked, min_similarity=0.7)
    assert (best, len(others)) == (close, 2)
    assert set(others) < set(ids)


async def test_a_question_for_what_was_done_finds_it_in_other_words(past: Past) -> None:
    (lichen,) = await past.say(("lichen grows", "far away"))
    await past.embed(Fixed(question=(1.0, 0.0), far=(0.3, 0.91**0.5)))
    assert await past.found("Is moss a question?", min_similarity=0.9) == []
    assert await past.found("Why was moss a question?", min_similarity=0.9) == [lichen]


async def test_a_shared_word_is_less_of_a_sign_off_the_subject(past: Past) -> None:
    others = [(f"zebra number {n}", "of no account") for n in range(9)]
    (*_, alike) = await past.say(*others, ("zebras", "plainly"))
    await past.embed(Fixed(question=(1.0, 0.0), plainly=(0.4, 0.84**0.5)))
    plainly = "A question on marble, slate, basalt, gypsum, quartz and zebras"
    assert await past.found(plainly, min_similarity=0.5) == [alike]
    assert await past.found(f"Off topic: {plainly}", min_similarity=0.5) == []


async def test_a_word_of_all_that_is_known_brings_nothing_up(past: Past) -> None:
    """Without vectors: what many turns say tells of none of them, a rare word of its own."""
    lines = [(f"Write a page on bed {number}.", "Written.") for number in range(9)]
    ids = await past.say(*lines, ("Write of the wombat's burrow.", "It is dry."))
    asked = "Write a poem on the heather, the moor and its quiet"
    assert await past.found(asked, min_similarity=0.5) == []
    assert await past.found(f"{asked}, and a wombat", min_similarity=0.5) == [ids[-1]]


async def test_small_talk_bears_on_nothing(past: Past) -> None:
    thanks, yes = await past.say(
        ("danke, bis morgen", "Bis morgen!"),
        ("ok", "The seeds go into the ground tomorrow morning, beans first, then the peas. Bis."),
    )
    asked = "Was heißt morgen auf Dänisch?"
    assert thanks in await past.found(asked)
    assert await past.found(asked, min_similarity=0.5) == []
    assert await past.found("When do the beans and peas go in?", min_similarity=0.5) == [yes]


async def test_a_question_that_nothing_came_of_stands_behind_what_answers_it(past: Past) -> None:
    open_one, *_, told, answered = await past.say(
        ("Which colour for the nursery?", ""),
        *[(f"Nursery, part {n}: boards, nails and a door for it.", "") for n in range(8)],
        ("The colour of the nursery is sage green, with a rainbow.", ""),
        ("Which colour for the nursery door?", "White, as the nursery's shelves."),
    )
    ids = await past.found("colour nursery", max_results=9)
    assert max(ids.index(told), ids.index(answered)) < ids.index(open_one)


async def test_meaning_without_a_shared_word(past: Past) -> None:
    """By vector alone, turns and summaries."""
    session = await past.session()
    wanted, _ = await past.say(("The dog barks.", "It does."), ("Rain", "Wet."), session=session)
    above = summed(session.session_id, wanted, text="On a dog.", key_findings=())
    await past.store.apply([above])
    await past.embed(Fixed(canine=(1.0, 0.0), dog=(0.9, 0.435)))
    got = await past.hits("canine", min_similarity=0.7)
    assert {hit.record_id for hit in got} == {wanted, above.summary.summary_id}
    assert {hit.why for hit in got if hit.turn} == {("its meaning",)}


async def test_stop_words_are_no_match(past: Past) -> None:
    """What shares only `the` and `of` with the prompt does not pass the floor as text."""
    (turn_id,) = await past.say(("What of the wombats?", "They are in the burrow."))
    asked = "what is the weight of the loaf?"
    assert await past.found(asked, min_similarity=0.5) == []
    await past.embed(Fixed(loaf=(1.0, 0.0), burrow=(0.3, 0.91**0.5)))
    assert await past.found(asked, min_similarity=0.5) == []
    # Who searches by words alone gets what there is.
    assert await past.found(asked, semantic=False) == [turn_id]
    assert await past.found(asked + " wombat", min_similarity=0.5) == [turn_id]


async def test_a_time_and_nothing_else(past: Past) -> None:
    """That day's turns, the newest of each session first; nothing is embedded for it."""
    first, second = await past.session(), await past.session()
    day = datetime(2026, 3, 10, 8, tzinfo=UTC)
    said = [(f"{name}.", "x") for name in ("Ferns", "Mosses", "Lichens")]
    ids = await past.say(*said, session=first, at=day)
    ids += await past.say(("Tides.", "x"), session=second, at=day - timedelta(hours=2))
    for days in (-20, -1, 1):
        other = ("What happened? We did other work.", "Gemacht, fatto, fait.")
        await past.say(other, session=second, at=day + timedelta(days=days))
    embedder = await past.embed(Fixed(what=(1.0, 0.0), other=(1.0, 0.0)))
    expected = [ids[2], ids[3], ids[1], ids[0]]
    for asked in (
        "what happened on Tuesday?",
        "what did we do the day before yesterday?",
        "que s'est-il passé avant-hier ?",
        "was haben wir am 2026-03-10 gemacht?",
        "cosa abbiamo fatto due giorni fa?",
        "¿qué hicimos anteayer?",
    ):
        for floor in (None, 0.9):
            got = await past.hits(asked, max_results=9, min_similarity=floor)
            assert [hit.record_id for hit in got] == expected, asked
            assert {hit.why for hit in got} == {("its time",)}
            assert all(hit.is_close(0.9) for hit in got)
        few = await past.found(asked, max_results=2, scope=scope_of(first, "project"))
        assert few == expected[:2]
    assert embedder.seen == []


async def test_a_day_is_that_of_whoever_asks(past: Past) -> None:
    """Whatever the time zone of the process that answers; a question carries its own."""
    evening, noon = datetime(2026, 3, 10, 23, tzinfo=UTC), datetime(2026, 3, 11, 12, tzinfo=UTC)
    early, late = [(await past.say((f"{at:%d}.", "x"), at=at))[0] for at in (evening, noon)]
    asked = msgspec.msgpack.encode(Question(text="yesterday", now="2026-03-12T09:00:00+02:00"))
    found = await a_recall(past.store).find(msgspec.msgpack.decode(asked, type=Question))
    assert {each.candidate.record_id for each in found.ranked} == {early, late}
    assert await past.found("yesterday") == [late]


async def test_a_long_session_hides_no_other_of_the_day(past: Past) -> None:
    """ "What did we do yesterday" tells of all of them."""
    day = NOW - timedelta(days=1)
    (first,) = await past.say(("Ferns.", "x"), at=day - timedelta(hours=6))
    many = await past.say(*((f"Moss {n}.", "x") for n in range(30)), at=day)
    assert await past.found("what did we do yesterday?", max_results=2) == [many[-1], first]


async def test_farewells_are_not_what_was_done(past: Past) -> None:
    """Of a day's turns those that say something come first."""
    work = "Moved the retries of the uploader into its own queue, with a limit of five a minute."
    did, bye = await past.say(("And now?", work), ("bye", "Bye."), at=NOW - timedelta(days=1))
    assert await past.found("what did we do yesterday?") == [did, bye]


async def test_a_time_at_which_nothing_was_said(past: Past) -> None:
    """People err by a day; what is nearest to it comes first."""
    ids = []
    for days in (60, 3):
        ids += await past.say((f"What we did: {days} ferns.", "x"), at=NOW - timedelta(days=days))
    assert await past.found("what did we do yesterday?") == ids[::-1]
    assert await past.found("what did we do yesterday?", min_similarity=0.5) == []


async def test_a_topic_at_a_time(past: Past) -> None:
    """Of many turns about it that of the day is found, however many are alike."""
    session = await past.session()
    many = [("Retries, retries: the retries.", "Retries again.")] * 60
    await past.say(*many, session=session, at=NOW - timedelta(days=5))
    quiet, wanted = await past.say(
        ("Good morning.", "Hello."),
        ("How often do we try?", "Five retries, with a pause that doubles, up to a minute."),
        session=session,
        at=NOW - timedelta(days=30),
    )
    asked = "what did we decide about retries on 2026-02-10?"
    assert (await past.found(asked, max_results=3))[0] == wanted
    assert quiet not in await past.found(asked, max_results=9, min_similarity=0.5)


@pytest.mark.parametrize("asked", ["how do we do it", "what's that for?", "et ça, on en fait quoi"])
async def test_fillers_and_nothing_else(past: Past, asked: str) -> None:
    """By words alone what holds most of them, the newest of equals; they pass no floor,
    and with vectors they are not looked for."""
    moss = "A moss is small, green, soft, damp, old and flowerless, without roots or seeds."
    fern = "Every fern grows slowly under tall trees by water; its leaves unroll in spring."
    plain, alike, newest, near = await past.say(
        ("Lichens grow.", fern), (asked, moss), (asked, fern), ("The near one.", "Stone.")
    )
    for semantic in (False, True):
        got = await past.found(asked, semantic=semantic)
        assert got[:2] == [newest, alike]
        assert plain not in got[:2]
    assert await past.found(asked, min_similarity=0.5) == []
    if asked.startswith("how"):
        await past.embed(Fixed(how=(1.0, 0.0), near=(0.9, 0.435)))
        by_meaning = await past.hits(asked, min_similarity=0.5)
        assert {hit.record_id for hit in by_meaning} == {near, alike, newest}
        assert not any("its words" in hit.why for hit in by_meaning)


# --- when something fails ------------------------------------------------------------


async def test_vectors_of_another_model(past: Past) -> None:
    """Text search goes on; nothing is embedded to be compared with them."""
    (wanted,) = await past.say(WOMBATS)
    await past.embed(HashEmbedder())
    past.embedder = HashEmbedder(model_id="hash-2")
    (hit,) = await past.hits("wombats")
    assert (hit.record_id, hit.similarity) == (wanted, None)
    assert past.embedder.seen == []
    await past.store.use_embedder(EmbedderMark("hash-2", 64))
    (hit,) = await past.hits("wombats")
    assert hit.similarity is None


class Failing(HashEmbedder):
    """Raises what it was given, for questions."""

    error: Exception = EmbedderUnavailable("away")

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> NDArray[np.float32]:
        if kind == "query":
            raise self.error
        return await super().embed(texts, kind)


@pytest.mark.parametrize("error", [EmbedderUnavailable("away"), ValueError("a fault"), OSError(5)])
async def test_an_embedder_that_fails(past: Past, error: Exception) -> None:
    """The words are looked for all the same."""
    (wanted,) = await past.say(WOMBATS)
    embedder = Failing()
    embedder.error = error
    await past.embed(embedder)
    assert await past.found("wombats") == [wanted]
    metrics = Metrics()
    async with a_memory(past.store, embedder, metrics=metrics) as memory:
        built = await context(memory, await past.session(), "wombats")
    assert "In burrows." in built.text()
    assert not built.fallback
    assert metrics.counts["embedder.failures"] == 1


async def test_an_embedder_that_is_slow(past: Past) -> None:
    """It is waited for as long as is set, and the words are not lost with it."""
    await past.say(WOMBATS)
    embedder = await past.embed(HashEmbedder())
    embedder.delay_s = 300
    config = MemoryConfig(embeddings=EmbeddingsConfig(timeout_s=0.2))
    async with a_memory(past.store, embedder, config) as memory:
        built = await context(memory, await past.session(), "wombats")
    assert "In burrows." in built.text()


@pytest.mark.parametrize("mode", ["refusing", "silent"])
async def test_a_store_that_fails(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """A context all the same, of what this process remembers; the embedder fails with it."""
    line = Line()
    inner: Any = await open_store()
    frail: Any = FrailStore(inner, line)
    async with a_memory(frail, Failing()) as memory:
        chat = Chat(memory, frail, tmp_path)
        await chat.once(*WOMBATS)
        line.set(mode)
        with monkeypatch.context() as patch:
            patch.setattr("ragmem.memory.recording._PATIENCE_S", 0.5)
            started = time.monotonic()
            built = await chat.asks("And wombats?")
        assert time.monotonic() - started < 60
        assert built.fallback
        assert "In burrows." in built.text()
        assert built.messages[-1].text.endswith("And wombats?")
        line.set("refusing")
        with pytest.raises(StoreError):
            await memory.search(Question(text="wombats"))
        line.set("fine")
        assert not (await chat.asks("And wombats?")).fallback


# --- hard questions -------------------------------------------------------------------


async def test_any_question(past: Past) -> None:
    """Nothing that can be typed is an error."""
    await past.say(("Where do wombats live?", "In the burrows."))
    embedder = await past.embed(HashEmbedder())
    session = await past.session()
    async with a_memory(past.store, embedder) as memory:
        for asked in (
            "", "   \n", "?!… — 🌿", "the of and", "\ud800", "\0", "NOT (a OR",
            '"unclosed AND *', "~" * 999,
        ):  # fmt: skip
            got = await past.hits(asked)
            assert got == [] or asked.strip(), asked
            assert len((await context(memory, session, asked)).messages) == 2, asked


async def test_a_question_of_a_million_characters(past: Past) -> None:
    """Its ends are looked for, in the time of any other."""
    first, last, middle = await past.say(
        WOMBATS, ("What do quokkas eat?", "Leaves."), ("Do numbats fly?", "No.")
    )
    embedder = await past.embed(HashEmbedder())
    filler = "lorem ipsum dolor " * 28_000
    asked = f"wombats {filler} numbats {filler} quokkas"
    assert len(asked) > 1_000_000
    started = time.monotonic()
    got = await past.found(asked, max_results=2)
    assert time.monotonic() - started < 60
    assert set(got) == {first, last}
    assert middle not in got
    assert all(len(text) <= 4_100 for _, text in embedder.seen)


# --- before each request ----------------------------------------------------------------


async def test_each_prompt_is_searched_for(past: Past) -> None:
    """With the person's own words; not under the strategy `recent`."""
    session = await past.session()
    await past.say(WOMBATS, ("Hi", "Hello"), session=session)
    embedder, metrics = await past.embed(HashEmbedder()), Metrics()
    async with a_memory(past.store, embedder, metrics=metrics) as memory:
        for prompt in ("Do wombats dig?", "And quokkas?"):
            await context(memory, session, prompt)
        await context(memory, session, "Never asked", strategy="recent")
    assert embedder.seen == [("query", "Do wombats dig?"), ("query", "And quokkas?")]
    assert metrics.counts["recall.searches"] == 2


async def test_a_search_is_a_success_also_where_the_request_shows_what_it_found(past: Past) -> None:
    """And none where all that it found is far from the question."""
    session = await past.session()
    await past.say(WOMBATS, ("Hi", "Hello"), session=session)
    embedder, metrics = await past.embed(HashEmbedder()), Metrics()
    session = await past.store.session(session.session_id)
    async with a_memory(past.store, embedder, metrics=metrics) as memory:
        built = await context(memory, session, "Do wombats dig?")
        assert "Relevant" not in built.messages[-1].text
        assert (metrics.counts["recall.searches"], metrics.counts["recall.found"]) == (1, 1)
        hits = await memory.search(Question(text="zeppelins over Paris"))
        assert [hit.is_close(memory.floor) for hit in hits] == [False, False]
        assert (metrics.counts["recall.searches"], metrics.counts["recall.found"]) == (2, 1)


async def test_what_is_shown_hides_nothing_behind_it(past: Past) -> None:
    """A window full of the topic, and its summaries, leave room for what is not shown."""
    told = ("How does pagination work?", "pagination by keyset, not by offset")
    await past.say(told, session=await past.session(title="Last year"))
    session = await past.session()
    new = [(f"pagination keyset offset {n}?", f"pagination works by offset {n}") for n in range(40)]
    await past.say(*new, session=session, at=START + timedelta(days=3))
    embedder = HashEmbedder()
    await a_worker(past.store, embedder=embedder).drain()
    session = await past.store.session(session.session_id)
    async with a_memory(past.store, embedder) as memory:
        built = await context(memory, session, "How does pagination work, keyset or offset?")
    block = built.messages[-1].text
    assert "by keyset, not by offset" in block
    assert "“Last year”" in block
    found = block.split("## Relevant Past Context (Semantic Search - Turns)")[1].split("## ")[0]
    assert found.count("[Turn ") == 1
    assert "works by offset 39" in "".join(str(message) for message in built.messages[:-1])


async def test_a_summary_of_any_level_is_not_told_beside_all_of_its_turns(past: Past) -> None:
    session, embedder = await past.session(), HashEmbedder()
    many = [(f"pagination by keyset {n}?", f"It works by offset {n}. " * 9) for n in range(40)]
    await past.say(*many, session=session)
    config = SummariesConfig(rollup_chars=60)
    await a_worker(past.store, embedder=embedder, config=config).drain()
    levels = {each.level for each in await past.store.summaries(session.session_id)}
    assert {1, 2, 3} <= levels
    session = await past.store.session(session.session_id)
    async with a_memory(past.store, embedder) as memory:
        asked = "How does pagination work, keyset or offset?"
        whole = await context(memory, session, asked)
        short = await context(memory, session, asked, a_builder(6_000))
    assert len(whole.messages) == 1 + 2 * len(many) + 1
    assert "Summary - Relevance" not in whole.messages[-1].text
    assert len(short.messages) < len(many)
    assert "Summary - Relevance" in short.messages[-1].text


class Counting(HashEmbedder):
    """Says whether it was prepared."""

    prepared = 0

    async def prepare(self) -> None:
        self.prepared += 1
        if self.failing:
            raise EmbedderUnavailable("away")


async def test_prepared_only_where_there_is_something_to_find(past: Past) -> None:
    """An empty memory loads no model; one that can't be loaded is no failure."""
    embedder = Counting()
    recall = a_recall(past.store, embedder)
    await recall.prepare()
    assert embedder.prepared == 0
    await past.say(WOMBATS)
    await past.embed(embedder)
    embedder.failing = True
    await recall.prepare()
    assert embedder.prepared == 1
    line = Line()
    line.set("refusing")
    away = a_recall(FrailStore(past.store, line), embedder)  # type: ignore[arg-type]
    await away.prepare()
    with pytest.raises(StoreError):
        await away.search(Question(text="wombats"))

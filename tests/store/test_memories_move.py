"""Memories on their way: moved, backed up, exported with their session, waiting in the spool."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ragmem.errors import StoreUnavailable, UsageError
from ragmem.memory.recording import redacted
from ragmem.records import (
    MEMORY_LEVEL,
    SESSION_LEVEL,
    Insight,
    MarkExtracted,
    MemoryRecord,
    Project,
    PutInsight,
    PutMemory,
    PutProfile,
    RegisterProject,
    UpdateSession,
    Write,
)
from ragmem.store.base import Archive, Store
from ragmem.store.memories import MemoryQuery
from ragmem.store.spool import Patience, count_waiting
from ragmem.store.transfer import compare, copy, stream_of
from ragmem.store.transfer.document import (
    SessionDocument,
    decoded,
    document_of,
    encoded,
    import_document,
)
from ragmem.store.transfer.lines import stream_of_lines, write_lines
from tests.store.samples import at, created, finished, known, remembered, said, whole_turn
from tests.store.seen import seen
from tests.store.test_contract_recall import EAST, MARK, NORTH, UP, embedded, waiting
from tests.store.test_recall_moves import quietly
from tests.store.test_spool import Home, home, settled
from tests.store.test_transfer import garden, moved, pair, source, sqlite, target

__all__ = ["home", "pair", "source", "target"]

replace = msgspec.structs.replace
ALL = MemoryQuery(everywhere=True, with_superseded=True)


async def one(store: Store, memory_id: str) -> MemoryRecord:
    [memory] = await store.memories_by_id([memory_id])
    return memory


def small(record_id: str, vector: bytes, level: int = MEMORY_LEVEL) -> Write:
    return embedded(record_id, vector, level=level)


async def filled(store: Archive) -> None:
    await store.apply([*garden(), *known()])
    await store.use_embedder(MARK)
    await store.apply([small("m-new", EAST), small("m-old", NORTH), embedded("r1", UP)])
    await store.apply([small("root", UP, SESSION_LEVEL), embedded("m-due", level=MEMORY_LEVEL)])


# --- moving ---------------------------------------------------------------------------


async def test_small_vectors_are_moved_too(source: Archive, target: Archive) -> None:
    """Exactly as they are, and nothing waits anew; twice is once."""
    await filled(source)
    for _ in range(2):
        assert (await moved(source, target))["vectors"] == 5
        for level in (MEMORY_LEVEL, SESSION_LEVEL):
            ids = ["m-new", "m-old", "m-due", "root"]
            held = await source.small_vectors(ids, level, "model-a")
            assert await target.small_vectors(ids, level, "model-a") == held != {}
        assert set(await waiting(target, "vectors")) == set(await waiting(source, "vectors"))
        assert await target.check() == []


async def test_there_and_back_and_through_a_file(
    source: Archive, target: Archive, tmp_path: Path
) -> None:
    """All that is known is the same, by whichever way it comes."""
    await filled(source)
    await moved(source, target)
    file = tmp_path / "backup.jsonl"
    with file.open("wb") as out:
        await write_lines(stream_of(target, batch=2), out, quietly)
    third = await sqlite(tmp_path / "third")
    await copy(stream_of_lines(file), third, quietly)
    assert await seen(third) == await seen(source)
    assert (await compare(stream_of(source), third, quietly)).equal
    await third.aclose()


async def test_what_was_changed_in_the_target_stays(source: Archive, target: Archive) -> None:
    """A second move takes nothing back, nor mixes vectors of two texts."""
    await filled(source)
    await moved(source, target)
    later = replace(await one(target, "m-due"), content="Plant on Monday.", updated_at=at(60))
    await target.apply(
        [
            PutMemory(memory=later),
            remembered("m-newest", "All is well.", created_at=at(61), supersedes=("m-ana",)),
            PutProfile(key="name", value="Anna", at=at(62)),
            PutInsight(insight=Insight(session_id="root", main_topic="Sun", created_at=at(63))),
            UpdateSession(session_id="root", summary="Other plants.", at=at(64)),
        ]
    )
    await target.apply([small("m-due", NORTH), small("root", EAST, SESSION_LEVEL)])
    before = await seen(target)
    await copy(stream_of(source), target, quietly)
    assert await seen(target) == before
    assert await target.small_vectors(["m-due"], MEMORY_LEVEL, "model-a") == {"m-due": NORTH}
    assert await target.small_vectors(["root"], SESSION_LEVEL, "model-a") == {"root": EAST}
    compared = await compare(stream_of(source), target, quietly)
    assert compared.differing == ()
    assert compared.equal
    assert compared.later == 5  # two memories, a key, an insight, a session


async def test_what_was_changed_in_the_source_comes_along(source: Archive, target: Archive) -> None:
    """A second move brings what is new, and who took whose place."""
    await filled(source)
    await moved(source, target)
    await source.apply(
        [
            remembered("m-newest", "In the sun.", created_at=at(61), supersedes=("m-new",)),
            PutProfile(key="name", value="Anna", at=at(62)),
            PutInsight(insight=Insight(session_id="root", main_topic="Sun", created_at=at(63))),
        ]
    )  # fmt: skip
    await moved(source, target)
    assert await seen(target) == await seen(source)


async def test_what_is_missing_or_different_is_told(source: Archive, target: Archive) -> None:
    """The comparison looks at every memory, key and insight."""
    await filled(source)
    await moved(source, target)
    await target.forget_memories(["m-due"])
    other = Insight(session_id="root", main_topic="Soil", created_at=at(26))
    await target.apply(
        [
            PutMemory(memory=replace(await one(target, "m-ana"), content="Ana hates shade.")),
            PutProfile(key="name", value=None, at=at(24)),
            PutInsight(insight=other),
        ]
    )
    compared = await compare(stream_of(source), target, quietly)
    assert not compared.equal
    assert sorted(compared.differing) == [
        "insight into root is different",
        "memory m-ana is different",
        "memory m-due is missing",
        "profile name is missing",
        "vectors of m-due is missing",
    ]


async def test_joined_projects_compare_equal(source: Archive, target: Archive) -> None:
    """The target's person joined what the source's did not."""
    await source.apply([*garden(), *known()])
    joined = Project(
        project_id="project-garden", path="/home/ana/garden", created_at=at(0), joined_into="q"
    )
    await target.apply([RegisterProject(project=joined)])
    await moved(source, target)
    assert (await one(target, "m-new")).project_id == "q"
    assert (await one(target, "m-ana")).project_id is None


# --- a session's document --------------------------------------------------------------


async def conversation(store: Archive) -> None:
    """Two sessions that say much of the same."""
    await store.apply(
        [
            created("s", project_path="/home/ana/garden"),
            *whole_turn("s", "s1", "one"),
            *whole_turn("s", "s2", "two", started_at=at(1)),
            created("r", project_path="/home/ana/garden"),
            *whole_turn("r", "r1", "three"),
            remembered("first", "It is sunny.", created_at=at(3), evidence=(said("r", "r1"),)),
            remembered(
                "second", "It is cloudy.", created_at=at(4), supersedes=("first",),
                evidence=(said("s", "s1"),), pinned=True,
            ),
            remembered(
                "third", "It rains.", created_at=at(5), supersedes=("second",), expires_at=at(99),
                evidence=(said("s", "s2", tool_call_id="call"),), kind="failure", trust="model",
            ),
            remembered(
                "both", "Ana is here.", created_at=at(6), project_id=None, subjects=("ana",),
                evidence=(said("s", "s1"), said("r", "r1"), said("s", "s2"), said("", "")),
            ),
            remembered(
                "kitchen", "Jam is sweet.", created_at=at(7), project_id="project-kitchen",
                evidence=(said("s", "s2"),),
            ),
            remembered("elsewhere", "No.", created_at=at(8), evidence=(said("r", "r1"),)),
            created("f", parent_session_id="s", forked_at_index=1),
            PutInsight(
                insight=Insight(
                    session_id="s", main_topic="the weather", key_findings=("it rains",),
                    action_items=("take a coat",), created_at=at(9),
                )
            ),
        ]
    )  # fmt: skip


async def test_a_document_has_the_memories_of_its_session(source: Archive) -> None:
    """Those with evidence in it, oldest first, and its branches."""
    await conversation(source)
    document = await document_of(source, "s")
    assert [(memory.memory_id, memory.supersedes) for memory in document.memories] == [
        ("second", ("first",)), ("third", ("second",)), ("both", ()), ("kitchen", ()),
    ]  # fmt: skip
    assert [branch.session_id for branch in document.branches] == ["f"]
    plain: dict[str, Any] = msgspec.json.decode(encoded(document))
    assert list(plain) == [
        "format", "version", "session", "turns", "summaries", "memories", "branches",
        "insights", "owners",
    ]  # fmt: skip
    assert plain["memories"][0]["content"] == "It is cloudy."
    assert plain["insights"][0]["main_topic"] == "the weather"
    assert decoded(encoded(document)) == document


async def test_insights_come_along(source: Archive, target: Archive) -> None:
    """What a look over the session has found, with new ids too."""
    await conversation(source)
    document = await document_of(source, "s")
    await import_document(target, decoded(encoded(document)), as_new=False)
    assert await target.insights(["s"]) == await source.insights(["s"])
    copy = await import_document(target, document, as_new=True)
    [found] = await target.insights([copy.session_id])
    assert found == replace(document.insights[0], session_id=copy.session_id)
    stranger = replace(document, insights=(replace(document.insights[0], session_id="r"),))
    with pytest.raises(UsageError, match="an insight is of another session"):
        decoded(encoded(stranger))


async def test_documents_of_other_versions(source: Archive, target: Archive) -> None:
    """One from before there were insights is read, and one with keys that nobody knows."""
    await conversation(source)
    document = await document_of(source, "s")
    plain: dict[str, Any] = msgspec.json.decode(encoded(document))
    del plain["insights"]
    older = decoded(msgspec.json.encode(plain))
    assert older == replace(document, insights=())
    plain["moons"] = [{"full": True}]
    plain["session"]["colour"] = "green"
    await import_document(target, decoded(msgspec.json.encode(plain)), as_new=False)
    assert await target.insights(["s"]) == []
    assert len(await target.turns("s")) == 2


async def test_deleted_and_imported_it_is_the_same(source: Archive) -> None:
    """The round trip is equal: who superseded whom, and what others said too."""
    await conversation(source)
    await source.delete_session("f")
    before, document = await seen(source), await document_of(source, "s")
    await source.delete_session("s")
    current = MemoryQuery(everywhere=True)
    assert [memory.memory_id for memory in await source.memories(current)] == [
        "elsewhere", "both", "first",
    ]  # fmt: skip
    await import_document(source, decoded(encoded(document)), as_new=False)
    assert await document_of(source, "s") == document
    after = await seen(source)
    for kind in ("sessions", "turns", "memories", "counts"):
        assert sorted(map(repr, after[kind])) == sorted(map(repr, before[kind])), kind  # type: ignore[call-overload]
    assert await source.check() == []
    with pytest.raises(UsageError, match="is here already"):
        await import_document(source, document, as_new=False)


async def test_imported_elsewhere_it_is_the_same(source: Archive, target: Archive) -> None:
    """What is not there of a chain is told as it was."""
    await conversation(source)
    document = await document_of(source, "s")
    await import_document(target, decoded(encoded(document)), as_new=False)
    held = await target.memories(ALL)
    assert {memory.memory_id for memory in held} == {"second", "third", "both", "kitchen"}
    assert held == [
        replace(memory)
        for memory in await source.memories(ALL)
        if memory.memory_id not in ("first", "elsewhere")
    ]
    assert await waiting(target, "memories") == []
    assert await target.check() == []
    other = await document_of(source, "r")
    await import_document(target, other, as_new=False)
    assert await target.memories(ALL) == await source.memories(ALL)
    assert await target.check() == []


async def test_a_second_copy_makes_no_second_fact(source: Archive) -> None:
    """What is here is said there too: in each copy of the session, and once as a memory."""
    await conversation(source)
    before = {memory.memory_id: memory for memory in await source.memories(ALL)}
    document = await document_of(source, "s")
    copies = [await import_document(source, document, as_new=True) for _ in range(2)]
    after = {memory.memory_id: memory for memory in await source.memories(ALL)}
    assert {each.memory_id: each.content for each in after.values()} == {
        each.memory_id: each.content for each in before.values()
    }
    for memory in document.memories:
        said_in = [each.session_id for each in after[memory.memory_id].evidence]
        assert {"s", *(copy.session_id for copy in copies)} <= set(said_in)
    assert await source.check() == []


async def test_as_new_it_is_another_one(source: Archive, target: Archive) -> None:
    """New ids, and evidence that points to the new turns."""
    await conversation(source)
    document = await document_of(source, "s")
    session = await import_document(target, document, as_new=True)
    assert session.session_id != "s"
    held = {memory.memory_id: memory for memory in await target.memories(ALL)}
    assert not set(held) & {memory.memory_id for memory in document.memories}
    source = target
    new = {memory.content: memory for memory in held.values()}
    assert sorted(new) == ["Ana is here.", "It is cloudy.", "It rains.", "Jam is sweet."]
    turns = [turn.turn_id for turn in await source.turns(session.session_id)]
    assert "s1" not in turns
    assert [(each.session_id, each.turn_id) for each in new["Ana is here."].evidence] == [
        (session.session_id, turns[0]), ("r", "r1"), (session.session_id, turns[1]), ("", ""),
    ]  # fmt: skip
    assert new["It is cloudy."].superseded_by == new["It rains."].memory_id
    older = await source.superseded_by(new["It rains."].memory_id)
    assert older == [new["It is cloudy."]]
    assert new["Jam is sweet."].project_id == "project-kitchen"
    assert await source.check() == []


async def test_evidence_follows_its_tool_call(source: Archive) -> None:
    """A memory that stood in a tool's result says in which, also as a new one."""
    await source.apply([*garden(), *known()])
    session = await import_document(source, await document_of(source, "root"), as_new=True)
    [call, _] = (await source.turns(session.session_id))[1].tool_calls
    query = MemoryQuery(everywhere=True, session_id=session.session_id)
    [memory] = await source.memories(query)
    assert [each.tool_call_id for each in memory.evidence] == ["c1", "", call.tool_call_id]
    assert call.tool_call_id != "c1"
    assert memory.evidence[1] == said("deep", "d4")


async def test_a_fork_by_itself_keeps_its_memories(source: Archive, target: Archive) -> None:
    """Evidence in turns that it shared points to its own copies of them."""
    await source.apply([*garden(), *known()])
    both = remembered("both", created_at=at(30), evidence=(said("root", "r1"), said("deep", "d4")))
    await source.apply([both])
    await import_document(target, await document_of(source, "deep"), as_new=False)
    turns = await target.turns("deep")
    memory = await one(target, "both")
    assert [(each.session_id, each.turn_id) for each in memory.evidence] == [
        ("deep", turns[0].turn_id), ("deep", "d4"),
    ]  # fmt: skip
    assert (await one(target, "m-due")).evidence == (said("deep", "d4"),)


async def test_in_another_project_its_memories_are_that_ones(
    source: Archive, target: Archive
) -> None:
    """Where the folder is another project, session and memories belong to it."""
    await conversation(source)
    local = Project(project_id="local", path="/home/ana/garden", created_at=at(0))
    await target.apply([RegisterProject(project=local)])
    session = await import_document(target, await document_of(source, "s"), as_new=False)
    assert session.project_id == "local"
    assert {memory.memory_id: memory.project_id for memory in await target.memories(ALL)} == {
        "second": "local", "third": "local", "both": None, "kitchen": "project-kitchen",
    }  # fmt: skip
    assert [project.project_id for project in await target.projects()] == ["local"]


async def test_a_memory_that_is_here_keeps_what_it_says(source: Archive, target: Archive) -> None:
    """A file changes nothing that is known; it only adds that it was said there too."""
    await conversation(source)
    document = await document_of(source, "s")
    mine = remembered("both", "Ana left.", pinned=True, evidence=(said("mine", "m"),))
    await target.apply([mine])
    await import_document(target, document, as_new=False)
    assert await one(target, "both") == replace(
        mine.memory, evidence=(said("mine", "m"), said("s", "s1"), said("s", "s2"))
    )


async def changed(source: Archive, **changes: Any) -> SessionDocument:
    """A document of which the first memory was changed by hand."""
    await conversation(source)
    document = await document_of(source, "s")
    first, *others = document.memories
    return replace(document, memories=(replace(first, **changes), *others))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"evidence": ()}, "a memory does not come from it"),
        ({"evidence": (said("r", "r1"),)}, "a memory does not come from it"),
        ({"created_at": at(1).replace(tzinfo=None)}, "a time has no time zone"),
        ({"expires_at": at(1).replace(tzinfo=None)}, "a time has no time zone"),
        (
            {"evidence": (said("s", "s1", at=at(1).replace(tzinfo=None)),)},
            "a time has no time zone",
        ),
    ],
)
async def test_a_memory_that_is_none_is_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    """A file can't smuggle in what was never said in its session."""
    store = await sqlite(tmp_path)
    document = await changed(store, **changes)
    with pytest.raises(UsageError, match=reason):
        decoded(encoded(document))
    await store.aclose()


@pytest.mark.parametrize("field", ["kind", "trust", "memory_id", "content", "evidence"])
async def test_a_memory_with_a_wrong_field_is_refused(tmp_path: Path, field: str) -> None:
    """In words."""
    store = await sqlite(tmp_path)
    await conversation(store)
    plain = msgspec.json.decode(encoded(await document_of(store, "s")))
    plain["memories"][0][field] = 7
    with pytest.raises(UsageError, match="no session that ragmem has exported"):
        decoded(msgspec.json.encode(plain))
    await store.aclose()


async def test_a_document_of_an_older_version(source: Archive, target: Archive) -> None:
    """It has no memories, and is imported as before."""
    await conversation(source)
    plain = msgspec.json.decode(encoded(await document_of(source, "s")))
    plain["memories"] = []
    await import_document(target, decoded(msgspec.json.encode(plain)), as_new=False)
    assert await target.memories(ALL) == []
    assert len(await target.turns("s")) == 2


# --- the spool ------------------------------------------------------------------------


async def test_what_is_learned_waits_and_arrives(home: Home) -> None:
    """While the store is away, also odd text; in order, and once."""
    store = home.open()
    await store.apply([created("s"), *whole_turn("s", "t"), remembered("old", created_at=at(1))])
    await store.aclose()
    writes: list[Write] = [
        remembered("new", "half \ud83d\0", created_at=at(2), supersedes=("old",),
                   evidence=(said("s", "t", "\udcff"),)),
        remembered("newest", created_at=at(3), supersedes=("new",)),
        PutProfile(key="name", value="Ana\0", at=at(4)),
        PutProfile(key="gone", value="x", at=at(5)),
        PutProfile(key="gone", value=None, at=at(6)),
        PutInsight(insight=Insight(session_id="s", main_topic="T", created_at=at(7))),
        MarkExtracted(turn_ids=("t",)),
        *whole_turn("s", "u"),
    ]  # fmt: skip
    home.error = StoreUnavailable("It is away.")
    store = home.open()
    for write in writes:
        await store.apply([write])
    assert count_waiting(home.spool) == len(writes)
    home.error = None
    await settled(store, home.spool)
    assert [memory.memory_id for memory in await store.memories(ALL)] == ["newest", "new", "old"]
    assert (await one(store, "new")).content == "half �"
    assert (await one(store, "new")).evidence[0].quote == "�"
    assert (await one(store, "new")).superseded_by == "newest"
    assert (await store.profile()).values == {"name": "Ana"}
    assert [insight.main_topic for insight in await store.insights(["s"])] == ["T"]
    assert await waiting(store, "memories") == ["u"]
    before = await seen(store)
    await store.apply(writes)
    assert await seen(store) == before


async def test_what_is_known_is_not_told_while_the_store_is_away(home: Home) -> None:
    """Nor is anything forgotten that would come back with what waits."""
    home.error = StoreUnavailable("It is away.")
    store = home.open()
    for ask in (
        lambda: store.memories(ALL),
        lambda: store.memories_by_id(["m"]),
        lambda: store.find_memories("m"),
        lambda: store.superseded_by("m"),
        lambda: store.small_vectors(["m"], MEMORY_LEVEL, "model-a"),
        lambda: store.forget_memories(["m"]),
        lambda: store.profile(),
        lambda: store.insights(["s"]),
    ):
        with pytest.raises(StoreUnavailable, match="away"):
            await ask()  # type: ignore[no-untyped-call]


async def test_forgetting_waits_for_what_comes_before(home: Home) -> None:
    """A memory that still waits in the spool is forgotten too."""
    store = home.open(timeout_s=60, patience=Patience(read_s=60, left_s=60))
    await store.apply([created("s")])
    await settled(store, home.spool)
    with home.locked():
        await store.apply([remembered("m", "It is forgotten soon.")])
        assert count_waiting(home.spool) == 1
    assert await store.forget_memories(["m"]) == 1
    assert await store.memories(ALL) == []
    assert count_waiting(home.spool) == 0
    assert all(b"forgotten soon" not in file.read_bytes() for file in home.files)


# --- secrets --------------------------------------------------------------------------


def test_nothing_that_is_known_holds_a_secret() -> None:
    """Wherever a text stands; the rest stays as it is."""
    key = "sk-" + "abcdEFGH1234" * 4
    memory = remembered(
        "m", f"The key is {key}", subjects=(key, "x"),
        evidence=(said("s", "t", f"key {key}", path="a.py"),),
    )  # fmt: skip
    insight = Insight(
        session_id="s", main_topic=key, key_findings=(key,), action_items=(key,), created_at=at(1)
    )
    writes: list[Write] = [
        memory,
        PutProfile(key="key", value=key, at=at(1)),
        PutProfile(key="key", value=None, at=at(1)),
        PutInsight(insight=insight),
        MarkExtracted(turn_ids=("t",)),
        finished("s", "t"),
    ]
    for write in writes:
        clean = redacted(write)
        assert key not in repr(clean)
        assert type(clean) is type(write)
    kept = redacted(memory)
    assert isinstance(kept, PutMemory)
    assert replace(kept.memory, content="", subjects=(), evidence=()) == replace(
        memory.memory, content="", subjects=(), evidence=()
    )
    assert kept.memory.content.startswith("The key is ")
    assert kept.memory.evidence[0].turn_id == "t"

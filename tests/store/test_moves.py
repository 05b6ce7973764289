"""Everything on its way: moved, backed up, in a session's document, waiting in the spool."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ragmem.errors import StoreDamaged, StoreUnavailable, UsageError
from ragmem.memory.recording import redacted
from ragmem.records import (
    MEMORY_LEVEL,
    OF_SESSIONS,
    SESSION_LEVEL,
    UNDO,
    DropCodeFiles,
    EmbedderMark,
    Insight,
    MarkExtracted,
    MemoryQuery,
    PutMemory,
    PutOwner,
    PutProfile,
    PutReferences,
    PutSession,
    PutTurn,
    PutVectors,
    Record,
    ScopeQuery,
    SessionId,
    Turn,
    TurnId,
    TurnsQuery,
    UpdateSession,
    Write,
)
from ragmem.store import Archive
from ragmem.store.spool import Patience, Waiting
from ragmem.store.spool.files import count_waiting
from ragmem.store.transfer import compare, copy, stream_of, stream_of_lines, write_lines
from ragmem.store.transfer.document import decoded, document_of, encoded, import_document, renamed
from tests.store.code_samples import (
    GARDEN,
    KITCHEN,
    SHED,
    a_scope,
    code_seen,
    put,
    refers,
    scopes_there,
)
from tests.store.opening import sqlite
from tests.store.samples import (
    a_session,
    answered,
    at,
    begun,
    called,
    created,
    finished,
    garden,
    insight,
    known,
    project,
    remembered,
    said,
    whole_turn,
)
from tests.store.seen import seen
from tests.store.test_contract_memories import one
from tests.store.test_contract_recall import EAST, MARK, NORTH, UP, asking, embedded, found, waiting
from tests.store.test_contract_split import (
    MAIN,
    TREE,
    both as joined,
    memories,
    more as while_joined,
    split,
)
from tests.store.test_spool import Home, home, settled
from tests.store.test_transfer import (
    EITHER_WAY,
    INTO_A_GRAPH,
    OF_A_GRAPH,
    moved,
    pair,
    source,
    target,
)

__all__ = ["home", "pair", "source", "target"]

replace = msgspec.structs.replace
ALL = MemoryQuery(everywhere=True, with_superseded=True)
TURNS = ("r1", "r2", "r3", "r4", "f3", "d4", "d5", "t1")
SMALL = ["m-new", "m-old", "m-due", "root"]


def quietly(phase: str, count: int) -> None:
    """Progress that nobody looks at."""


def small(record_id: str, vector: bytes, level: int = MEMORY_LEVEL) -> Write:
    return embedded(record_id, vector, level=level)


async def filled(store: Archive) -> None:
    """All kinds, with scopes that no file defines any more, and vectors of all that has some."""
    await store.apply(content())
    assert await scopes_there(store) == {
        "one": "a.py", "two": "(a.py)", "three": "(gone.py)", "four": "b.py", "kitchen": "a.py",
        "shed": "(shed.py)",
    }  # fmt: skip
    await store.use_embedder(MARK)
    await store.apply(vectors())


def content() -> list[Write]:
    """Writes of every kind, but for vectors."""
    brought = Turn(
        turn_id="t1",
        session_id="taken-in",
        turn_index=1,
        user_message="?",
        status="failed",
        started_at=at(41),
        finished_at=at(42),
    )
    return [
        *garden(),
        *known(),
        project(SHED, created_at=at(40)),
        PutOwner(owner="ana-id", name="Ana", at=at(1)),
        answered("deep", "d5", "So far."),
        MarkExtracted(turn_ids=("r3",)),
        PutSession(session=a_session("taken-in")),
        PutTurn(turn=brought),
        put("a.py", "one", a_scope("two", "Bed.two", 9), imports=("b.py", "gone.py")),
        put("b.py", "four"),
        put("empty.py", imports=("a.py",)),
        put("gone.py", "three"),
        put("a.py", "kitchen", project_id=KITCHEN),
        put("shed.py", "shed", project_id=SHED),
        refers("r1", one="edited", two="read"),
        refers("r3", two="named", three="found", shed="read"),
        refers("r4", four="read"),
        refers("d4", kitchen="named"),
        refers("f3"),
        put("a.py", a_scope("one", line=30), imports=("b.py",), hash="later"),
        DropCodeFiles(project_id=GARDEN, paths=("gone.py",)),
        DropCodeFiles(project_id=SHED, paths=("shed.py",)),
    ]


def vectors() -> list[Write]:
    """Those of records of each kind that has some."""
    return [
            embedded("r1", EAST, NORTH, text_hash="one"), embedded("d4", UP),
            embedded("s1", NORTH, level=1), embedded("f3"),
            small("m-new", EAST), small("m-old", NORTH), small("root", UP, SESSION_LEVEL),
            embedded("m-due", level=MEMORY_LEVEL),
    ]  # fmt: skip


def test_every_kind_of_write_has_a_sample() -> None:
    """So that a kind that is new is moved, backed up and compared by the tests here."""
    assert {type(each) for each in (*content(), *vectors())} == set(Write.__subclasses__())


async def everything(store: Archive) -> dict[str, object]:
    """All that the queries tell, and the small vectors, as one value."""
    small_vectors = [
        await store.small_vectors(SMALL, level, "model-a")
        for level in (MEMORY_LEVEL, SESSION_LEVEL)
    ]
    code = await code_seen(store, *TURNS)
    due = set(await waiting(store, "vectors"))
    return await seen(store) | {"code": code, "small": small_vectors, "due": due}


# --- moving ---------------------------------------------------------------------------


@EITHER_WAY
async def test_all_kinds_are_moved(source: Archive, target: Archive) -> None:
    """Each record as it is, also lost scopes; what is found is the same. Twice is once."""
    await filled(source)
    before = await everything(source)
    for _ in range(2):
        assert await moved(source, target) == {
            "projects": 2, "code_files": 4, "scopes": 3, "sessions": 5, "turns": 8, "tool_calls": 2,
            "references": 4, "summaries": 3, "memories": 4, "profile": 2, "owners": 1,
            **{kind.table: 1 for kind in OF_SESSIONS}, "vectors": 8,
        }  # fmt: skip
        assert await everything(target) == before
        assert await target.embedder() == MARK
        assert await target.code_projects() == await source.code_projects() == [GARDEN, KITCHEN]
        query = TurnsQuery(scope_ids=("two", "shed"), project_ids=(GARDEN,), paths=("plants.txt",))
        assert await target.code_turns(query) == await source.code_turns(query) != []
        # What was looked at and has to do with nothing is looked at again.
        assert await waiting(target, "references") == ["f3", "r2"]
        for question in (asking("one", EAST), asking(vector=NORTH), asking(vector=UP)):
            ours, theirs = await found(source, question), await found(target, question)
            assert {name: each.similarity for name, each in theirs.items()} == {
                name: pytest.approx(each.similarity, abs=0.01) for name, each in ours.items()
            }
        assert await source.check() == await target.check() == []
    assert await everything(source) == before


async def test_there_and_back_and_through_a_file(
    source: Archive, target: Archive, tmp_path: Path
) -> None:
    """It is the same, by whichever way it comes and whatever form a store keeps it in."""
    await filled(source)
    await moved(source, target)
    file = tmp_path / "backup.jsonl"
    with file.open("wb") as out:
        await write_lines(stream_of(target, batch=2), out, quietly)
    third = await sqlite(tmp_path / "third")
    await copy(stream_of_lines(file), third, quietly)
    assert await everything(third) == await everything(source)
    assert (await compare(stream_of(source), third, quietly)).equal
    assert await third.check() == []
    await third.aclose()
    await target.apply([*whole_turn("deep", "d6", "went on there", started_at=at(70))])
    await moved(target, source)
    assert await everything(source) == await everything(target)


async def test_a_backup_whose_end_is_missing_is_not_taken_for_whole(tmp_path: Path) -> None:
    """Nor one that lacks a line or is cut within one; what stands before that is taken."""
    store = await sqlite(tmp_path / "one")
    await filled(store)
    file = tmp_path / "backup.jsonl"
    with file.open("wb") as out:
        await write_lines(stream_of(store, batch=2), out, quietly)
    await store.aclose()
    *lines, last, end = file.read_bytes().splitlines(keepends=True)
    for rest, why in (
        ((last,), "its end is missing"),
        ((end,), "its end is missing"),
        ((last[:-20],), f"its line {len(lines) + 1} can't be read"),
    ):
        file.write_bytes(b"".join((*lines, *rest)))
        other = await sqlite(tmp_path / f"other-{len(rest[0])}")
        with pytest.raises(StoreDamaged, match=f"is damaged: {why}"):
            await copy(stream_of_lines(file), other, quietly)
        assert await other.turns("root")
        await other.aclose()
    for stranger in (b"dear diary\xff", b"{}\n"):
        file.write_bytes(stranger)
        # Before a store is opened for it.
        with pytest.raises(UsageError, match="is not a backup"):
            stream_of_lines(file)


@INTO_A_GRAPH
async def test_a_move_that_was_stopped_is_made_again(source: Archive, target: Archive) -> None:
    """Where it was stopped, once and again, in the end it is the same."""
    await filled(source)
    batches = [batch async for batch in stream_of(source, batch=6)()]
    assert len(batches) > 5
    for stop in (1, 2, len(batches) // 2, len(batches) - 1):
        for batch in batches[:stop]:
            await target.apply(batch)
    await moved(source, target)
    assert await everything(target) == await everything(source)
    assert await target.check() == []


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
            insight("root", "Sun", created_at=at(63)),
            UpdateSession(session_id="root", summary="Other plants.", at=at(64)),
            *whole_turn("root", "r5", "five", started_at=at(65)),
            finished("deep", "d5", "Done.", finished_at=at(66)),
        ]
    )
    await target.apply([small("m-due", NORTH), small("root", EAST, SESSION_LEVEL)])
    before = await everything(target)
    await copy(stream_of(source), target, quietly)
    assert await everything(target) == before
    compared = await compare(stream_of(source), target, quietly)
    assert compared.differing == []
    assert compared.equal
    assert compared.later == 7  # two memories, a key, an insight, two sessions, a turn


async def test_what_was_changed_in_the_source_comes_along(source: Archive, target: Archive) -> None:
    """A second move brings what is so now, and takes back what is so no more."""
    await filled(source)
    await moved(source, target)
    await source.apply(
        [
            put("b.py", "five", hash="b2"),
            put("a.py", "one", "two"),
            refers("r3", five="edited", three="read"),
            refers("r2", one="found"),
            remembered("m-newest", "In the sun.", created_at=at(61), supersedes=("m-new",)),
            PutProfile(key="name", value="Anna", at=at(62)),
            insight("root", "Sun", created_at=at(63)),
        ]
    )
    await moved(source, target)
    assert await everything(target) == await everything(source)
    assert await target.check() == await source.check() == []


async def test_what_is_missing_or_different_is_told(source: Archive, target: Archive) -> None:
    """The comparison looks at every record."""
    await filled(source)
    await moved(source, target)
    await target.apply(
        [
            DropCodeFiles(project_id=KITCHEN, paths=("a.py",)),
            put("b.py", a_scope("four", line=2)),
            refers("r1", one="edited", two="edited"),
            refers("r4"),
        ]
    )
    expected = {
        "missing: file a.py of project-kitchen",
        "different: file b.py of project-garden",
        "different: references of r1",
        "missing: references of r4",
    }
    compared = await compare(stream_of(source), target, quietly)
    assert (set(compared.differing), compared.equal) == (expected, False)
    await target.forget_memories(["m-due"])
    await target.apply(
        [
            PutMemory(memory=replace(await one(target, "m-ana"), content="Ana hates shade.")),
            PutProfile(key="name", value=None, at=at(24)),
            insight("root", "Soil", created_at=at(26)),
            embedded("r1", UP),
            embedded("d4", UP, text_hash="other"),
        ]
    )
    expected |= {
        "different: insight into root",
        "different: memory m-ana",
        "missing: memory m-due",
        "missing: profile name",
        "different: vectors of d4",
        "missing: vectors of m-due",
        "different: vectors of r1",
    }
    compared = await compare(stream_of(source), target, quietly)
    assert compared.differing_count == len(expected)
    assert set(compared.differing) <= expected


async def test_a_project_joined_there_is_not_mixed_up(source: Archive, target: Archive) -> None:
    """Each folder's files stay its own, and compare equal; memories are the other project's."""
    await filled(source)
    await target.apply([project(GARDEN, "q")])
    await moved(source, target)
    assert await code_seen(target, *TURNS) == await code_seen(source, *TURNS)
    assert [each.project_id for each in await target.find_scopes(
        ScopeQuery(name="four", project_ids=("q",))
    )] == [GARDEN]  # fmt: skip
    assert (await one(target, "m-new")).project_id == "q"
    assert (await one(target, "m-ana")).project_id is None


@INTO_A_GRAPH
async def test_what_was_joined_can_be_split_after_it_was_moved(
    source: Archive, target: Archive
) -> None:
    """Memories that were told by hand come back to the folder in which they were told, also where
    the target knew them already without that."""
    await joined(source)
    await target.apply([project(MAIN), project(TREE), project(TREE, MAIN)])
    await target.apply([remembered("tree-told", project_id=MAIN, subjects=())])
    await moved(source, target)
    assert (await one(target, "tree-told")).joined_from == TREE
    assert (await one(target, "main-told")).joined_from is None
    await target.apply([split()])
    for name in (MAIN, TREE):
        held = await target.memories(MemoryQuery(project_ids=(name,)))
        assert {each.memory_id for each in held} == {f"{name}-m", f"{name}-told"}
        assert {each.joined_from for each in held} == {None}
    # Where a person has split them, they are taken for what they are there.
    await moved(source, target)
    assert (await one(target, "tree-told")).project_id == TREE
    assert await target.check() == []


@INTO_A_GRAPH
async def test_what_was_learned_while_joined_stays_where_a_person_split_it_off(
    source: Archive, target: Archive
) -> None:
    """A second copy from a store in which both are still one puts nothing back."""
    await joined(source)
    await while_joined(source)
    await moved(source, target)
    await target.apply([split()])
    apart = {name: await memories(target, name) for name in (MAIN, TREE)}
    assert "tree-m2" in apart[TREE]
    await moved(source, target)
    assert {name: await memories(target, name) for name in (MAIN, TREE)} == apart
    assert await target.check() == []


async def test_a_target_with_another_embedder_keeps_it(source: Archive, target: Archive) -> None:
    """Vectors of two models are never mixed; all else is moved, and waits for vectors."""
    await filled(source)
    other = EmbedderMark("model-b", 4)
    await target.use_embedder(other)
    await copy(stream_of(source), target, quietly)
    compared = await compare(stream_of(source), target, quietly)
    assert compared.equal
    assert compared.source["vectors"].count == 0
    assert await target.embedder() == other
    assert await target.get(PutVectors, [*TURNS, *SMALL]) == []
    assert "r1" in await waiting(target, "vectors")


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
            insight("s", "the weather"),
        ]
    )  # fmt: skip


async def test_a_document_has_what_is_known_from_its_session(source: Archive) -> None:
    """Memories with evidence in it, oldest first, its branches and insights."""
    await conversation(source)
    document = await document_of(source, "s")
    assert [(memory.memory_id, memory.supersedes) for memory in document.memories] == [
        ("second", ("first",)), ("third", ("second",)), ("both", ()), ("kitchen", ()),
    ]  # fmt: skip
    assert [branch.session_id for branch in document.branches] == ["f"]
    plain: dict[str, Any] = msgspec.json.decode(encoded(document))
    assert plain["memories"][0]["content"] == "It is cloudy."
    assert plain["insights"][0]["main_topic"] == "the weather"
    assert decoded(encoded(document)) == document


async def test_a_document_has_nothing_that_is_derived(source: Archive) -> None:
    """No vectors, no references: an imported turn waits to be linked where it is now."""
    await filled(source)
    document = await document_of(source, "root")
    assert b"vector" not in encoded(document)
    assert b"scope" not in encoded(document)
    session = await import_document(source, document, as_new=True)
    turns = [turn.turn_id for turn in await source.turns(session.session_id)]
    assert await source.get(PutReferences, turns) == []
    due = [each for each in await waiting(source, "references") if each in turns]
    assert due == turns[2::-1]


def test_ids_are_known_by_their_type_whatever_a_field_is_called() -> None:
    """A copy refers to its own turns; a text that only reads like an id stays."""

    class Bookmark(Record, frozen=True, kw_only=True):
        of: SessionId
        newest: TurnId | None
        marked: tuple[TurnId, ...]
        turn_id: str = "t1"

    before = Bookmark(of="s", newest="t2", marked=("t1", "other"))
    copy = renamed(before, {"s": "copy", "t1": "first", "t2": "second"})
    assert copy == Bookmark(of="copy", newest="second", marked=("first", "other"))


async def test_a_copy_knows_which_of_its_turns_were_taken_back(source: Archive) -> None:
    told = json.dumps({"text": "Taken back.", "taken_back": {"s1": ["a.py"]}})
    undo = called("s", "s2", tool_name=UNDO, arguments="{}", result=told, origin="person")
    await source.apply([created("s"), *whole_turn("s", "s1"), begun("s", "s2"), undo])
    await source.apply([finished("s", "s2", "")])
    copy = await import_document(source, await document_of(source, "s"), as_new=True)
    first, second = await source.turns(copy.session_id)
    assert json.loads(second.tool_calls[0].result)["taken_back"] == {first.turn_id: ["a.py"]}


async def test_documents_of_other_versions(source: Archive, target: Archive) -> None:
    """One from before there were memories and insights is read, and one with unknown keys."""
    await conversation(source)
    document = await document_of(source, "s")
    plain: dict[str, Any] = msgspec.json.decode(encoded(document))
    del plain["insights"]
    plain["memories"] = []
    older = decoded(msgspec.json.encode(plain))
    assert older == replace(document, insights=(), memories=())
    plain["moons"] = [{"full": True}]
    plain["session"]["colour"] = "green"
    await import_document(target, decoded(msgspec.json.encode(plain)), as_new=False)
    assert await target.get(Insight, ["s"]) == []
    assert await target.memories(ALL) == []
    assert len(await target.turns("s")) == 2


@OF_A_GRAPH
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
    with pytest.raises(UsageError, match="is already here"):
        await import_document(source, document, as_new=False)


async def test_imported_elsewhere_it_is_the_same(source: Archive, target: Archive) -> None:
    """What is not there of a chain is told as it was."""
    await conversation(source)
    document = await document_of(source, "s")
    await import_document(target, decoded(encoded(document)), as_new=False)
    every = await source.memories(ALL)
    held = await target.memories(ALL)
    assert held == [each for each in every if each.memory_id not in ("first", "elsewhere")]
    assert await waiting(target, "memories") == []
    assert await target.check() == []
    await import_document(target, await document_of(source, "r"), as_new=False)
    assert await target.memories(ALL) == every
    assert await target.check() == []


async def test_a_second_copy_makes_no_second_fact(source: Archive) -> None:
    """What is here is said there too: in each copy of the session, and once as a memory."""
    await conversation(source)
    before = {memory.memory_id: memory.content for memory in await source.memories(ALL)}
    document = await document_of(source, "s")
    copies = [await import_document(source, document, as_new=True) for _ in range(2)]
    after = {memory.memory_id: memory for memory in await source.memories(ALL)}
    assert {each.memory_id: each.content for each in after.values()} == before
    for memory in document.memories:
        said_in = [each.session_id for each in after[memory.memory_id].evidence]
        assert {"s", *(copy.session_id for copy in copies)} <= set(said_in)
    assert await source.check() == []


async def test_as_new_it_is_another_one(source: Archive, target: Archive) -> None:
    """New ids, and evidence and insights that point to the new turns and the new session."""
    await conversation(source)
    document = await document_of(source, "s")
    session = await import_document(target, document, as_new=True)
    assert session.session_id != "s"
    assert await target.get(Insight, [session.session_id]) == [
        replace(document.insights[0], session_id=session.session_id)
    ]
    held = await target.memories(ALL)
    assert not {m.memory_id for m in held} & {m.memory_id for m in document.memories}
    new = {memory.content: memory for memory in held}
    assert sorted(new) == ["Ana is here.", "It is cloudy.", "It rains.", "Jam is sweet."]
    turns = [turn.turn_id for turn in await target.turns(session.session_id)]
    assert "s1" not in turns
    assert [(each.session_id, each.turn_id) for each in new["Ana is here."].evidence] == [
        (session.session_id, turns[0]), ("r", "r1"), (session.session_id, turns[1]), ("", ""),
    ]  # fmt: skip
    older = await target.superseded_by(new["It rains."].memory_id)
    assert older == [new["It is cloudy."]]
    assert new["Jam is sweet."].project_id == "project-kitchen"
    assert await target.check() == []


async def test_in_another_project_its_memories_are_that_ones(
    source: Archive, target: Archive
) -> None:
    """Where the folder is another project, session and memories belong to it."""
    await conversation(source)
    await target.apply([project("local", path="/home/ana/garden")])
    session = await import_document(target, await document_of(source, "s"), as_new=False)
    assert session.project_id == "local"
    assert {memory.memory_id: memory.project_id for memory in await target.memories(ALL)} == {
        "second": "local", "third": "local", "both": None, "kitchen": "project-kitchen",
    }  # fmt: skip
    assert [project.project_id for project in await target.projects()] == ["local"]


async def test_a_memory_that_is_here_keeps_what_it_says(source: Archive, target: Archive) -> None:
    """A file changes nothing that is known; it only adds that it was said there too."""
    await conversation(source)
    mine = remembered("both", "Ana left.", pinned=True, evidence=(said("mine", "m"),))
    await target.apply([mine])
    await import_document(target, await document_of(source, "s"), as_new=False)
    assert await one(target, "both") == replace(
        mine.memory, evidence=(said("mine", "m"), said("s", "s1"), said("s", "s2"))
    )


async def test_a_memory_that_is_none_is_refused(tmp_path: Path) -> None:
    """A file can't smuggle in what was never said in its session, nor a field that is none."""
    store = await sqlite(tmp_path)
    await conversation(store)
    document = await document_of(store, "s")
    await store.aclose()
    first, *others = document.memories
    naive = at(1).replace(tzinfo=None)
    first_day, last_day = at(1).replace(year=1), at(1).replace(year=9999)
    for changes, reason in (
        ({"evidence": ()}, "a memory does not come from it"),
        ({"evidence": (said("r", "r1"),)}, "a memory does not come from it"),
        ({"created_at": naive}, "a time has no time zone"),
        ({"expires_at": naive}, "a time has no time zone"),
        ({"created_at": first_day}, "beyond the years 2 to 9998"),
        ({"valid_until": last_day}, "beyond the years 2 to 9998"),
        ({"evidence": (said("s", "s1", at=naive),)}, "a time has no time zone"),
    ):
        changed = replace(document, memories=(replace(first, **changes), *others))
        with pytest.raises(UsageError, match=reason):
            decoded(encoded(changed))
    stranger = replace(document, insights=(replace(document.insights[0], session_id="r"),))
    with pytest.raises(UsageError, match="an insight is of another session"):
        decoded(encoded(stranger))
    used = replace(document.turns[0].usage, cost_usd=-1.0)
    paid = replace(document, turns=(replace(document.turns[0], usage=used), *document.turns[1:]))
    with pytest.raises(UsageError, match="a turn has negative usage"):
        decoded(encoded(paid))
    plain = msgspec.json.decode(encoded(document))
    plain["memories"][0]["kind"] = 7
    with pytest.raises(UsageError, match="not a session exported by ragmem"):
        decoded(msgspec.json.encode(plain))


# --- the spool ------------------------------------------------------------------------


async def test_what_is_learned_waits_and_arrives(home: Home) -> None:
    """While the store is away, also odd text; in order, and once."""
    store = home.open()
    await store.apply([created("s"), *whole_turn("s", "t1"), *whole_turn("s", "t2")])
    await store.apply([remembered("old", created_at=at(1)), put("a.py", "one", "two")])
    await store.use_embedder(MARK)
    await store.aclose()
    writes: list[Write] = [
        remembered("new", "half \ud83d\0", created_at=at(2), supersedes=("old",),
                   evidence=(said("s", "t1", "\udcff"),)),
        remembered("newest", created_at=at(3), supersedes=("new",)),
        PutProfile(key="name", value="Ana\0", at=at(4)),
        PutProfile(key="gone", value="x", at=at(5)),
        PutProfile(key="gone", value=None, at=at(6)),
        insight("s", "T", created_at=at(7)),
        MarkExtracted(turn_ids=("t1", "t2")),
        put("b.py", a_scope("three", "half \ud83d\0"), "one"),
        refers("t1", one="edited", three="read"),
        put("a.py", "four"),
        *whole_turn("s", "t3", started_at=at(9)),
        refers("t3", two="read", four="named"),
        DropCodeFiles(project_id=GARDEN, paths=("b.py",)),
    ]  # fmt: skip
    home.error = StoreUnavailable("It is away.")
    store = home.open()
    for write in writes:
        assert isinstance(await store.apply([write]), Waiting)
    # Vectors never wait: they are made again from what is stored.
    await store.apply([embedded("t1", EAST)])
    assert count_waiting(home.spool) == len(writes)
    home.error = None
    await settled(store, home.spool)
    assert [memory.memory_id for memory in await store.memories(ALL)] == ["newest", "new", "old"]
    new = await one(store, "new")
    assert (new.content, new.evidence[0].quote, new.superseded_by) == ("half �", "�", "newest")
    assert (await store.profile()).values == {"name": "Ana"}
    assert [insight.main_topic for insight in await store.get(Insight, ["s"])] == ["T"]
    assert await waiting(store, "memories") == ["t3"]
    assert await scopes_there(store) == {"one": "(b.py)", "three": "(b.py)", "four": "a.py"}
    (lost,) = await store.find_scopes(ScopeQuery(name="HALF �"))
    assert lost.scope.name == "half �"
    assert await store.get(PutReferences, ["t1", "t3"]) == [
        refers("t1", one="edited", three="read"), refers("t3", four="named"),
    ]  # fmt: skip
    assert await waiting(store, "references") == ["t2"]
    assert {"t1", "t2", "t3"} <= set(await waiting(store, "vectors"))
    before = await seen(store), await code_seen(store, "t1", "t2", "t3")
    await store.apply(writes)
    assert (await seen(store), await code_seen(store, "t1", "t2", "t3")) == before
    assert await (await store.inner()).check() == []  # type: ignore[attr-defined]


async def test_forgetting_waits_for_what_comes_before(home: Home) -> None:
    """A memory that still waits in the spool is forgotten too."""
    store = home.open(timeout_s=60, patience=Patience(read_s=60, left_s=60))
    await store.apply([created("s")])
    await settled(store, home.spool)
    with home.locked():
        await store.apply([remembered("m", "It is forgotten soon.")])
        assert count_waiting(home.spool) == 1
    assert await store.forget_memories(["m"]) == {"memories": 1}
    assert await store.memories(ALL) == []
    assert count_waiting(home.spool) == 0
    assert all(b"forgotten soon" not in file.read_bytes() for file in home.files)


# --- secrets --------------------------------------------------------------------------


def test_nothing_that_is_known_holds_a_secret() -> None:
    """Wherever a text stands; the rest stays as it is, vectors too."""
    key = "sk-" + "abcdEFGH1234" * 4
    memory = remembered(
        "m", f"The key is {key}", subjects=(key, "x"),
        evidence=(said("s", "t", f"key {key}", path="a.py"),),
    )  # fmt: skip
    writes: list[Write] = [
        memory,
        PutProfile(key="key", value=key, at=at(1)),
        PutProfile(key="key", value=None, at=at(1)),
        insight("s", key, key_findings=(key,), action_items=(key,)),
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
    vectors: Write = embedded("t", EAST)
    assert redacted(vectors) is vectors

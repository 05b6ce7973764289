"""Damage of every kind, by raw Cypher: `check` names it, repair loses nothing that it reads."""

import asyncio
import stat
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from ragmem.administration import Administration, Saved
from ragmem.config import Config, find_paths
from ragmem.errors import StoreDamaged, StoreRefused, StoreUnavailable
from ragmem.records import (
    ALL_TURNS,
    Insight,
    Interval,
    MemoryQuery,
    PutProfile,
    PutReferences,
    SearchQuery,
    SessionQuery,
    WeightedTerm,
)
from ragmem.store import take_owner
from ragmem.store.neo4j import Connection, Neo4jStore, schema
from ragmem.store.neo4j.belonging import BELONGINGS
from ragmem.store.neo4j.repair import DERIVED, PROMISES, WORDS, Repair
from ragmem.store.neo4j.salvage import GraphCopy
from ragmem.store.sqlite.repair import rebuild
from ragmem.store.transfer import stream_of
from tests.fakes.frail_store import Killed, killed_at
from tests.fakes.neo4j import PATIENCE_S, ask, empty_neo4j
from tests.store.fixtures.make import content
from tests.store.opening import neo4j, sqlite
from tests.store.samples import START, at
from tests.store.seen import seen

OWNER = "ana-id"
FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
async def garden(neo4j_server: Connection) -> Connection:
    """Every kind of record, of the person whose home it is."""
    await empty_neo4j(neo4j_server)
    # To plan so many kinds of writes takes a busy server its time.
    store = await Neo4jStore.open(neo4j_server, timeout_s=4 * PATIENCE_S, owner=OWNER)
    await store.apply(content())
    await store.aclose()
    return neo4j_server


@pytest.fixture
async def store(garden: Connection) -> AsyncIterator[Neo4jStore]:
    """The person's own."""
    store = await neo4j(garden, owner=OWNER)
    yield store
    await store.aclose()


@contextmanager
def _new(file: Path) -> Iterator[Path]:
    file.touch(0o600)
    yield file


async def repaired(
    server: Connection, home: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Saved | None, list[str]]:
    """What is left afterwards, and what was said."""
    for name, value in (
        ("NEO4J_URI", server.url), ("NEO4J_PASSWORD", server.password), ("RAGMEM_HOME", str(home)),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    said: list[str] = []
    return await administration(home).repair(_new, said.append), said


def administration(home: Path) -> Administration:
    """Of the home of the person whose graph it is."""
    paths = find_paths({"RAGMEM_HOME": str(home)}).make()
    take_owner(paths, OWNER)
    return Administration(msgspec.convert({"store": {"kind": "neo4j"}}, Config), paths)


async def texts(server: Connection) -> Counter[str]:
    """Every text that a person or a model wrote, however often."""
    rows = await ask(
        server,
        """
        MATCH (n) WHERE NOT n:RagmemSchema
        UNWIND [n.userMessage, n.assistantMessage, n.toolResult, n.reasoning, n.summary,
                n.content] AS text
        WITH text WHERE text IS NOT NULL AND toString(text) <> '' AND text <> '{}'
        RETURN toString(text) AS text
        """,
    )
    return Counter(row["text"] for row in rows)


DAMAGE = {
    "turns are counted from 1 without gaps": "MATCH (s:ConversationSession) SET s.turnCount = 9",
    "completed turns are counted": "MATCH (s:ConversationSession) SET s.messageCount = 99",
    "the newest turn of a session is known": "MATCH (s:ConversationSession) REMOVE s.lastTurnId",
    "the place of a turn is on its relationship too":
        "MATCH ()-[h:HAS_TURN]->() SET h.index = 7",
    "a turn belongs to its session":
        "MATCH (:ConversationSession {sessionId: 'root'})-[h:HAS_TURN]->() DELETE h",
    "a summary belongs to its session": "MATCH ()-[h:HAS_SUMMARY]->() DELETE h",
    "a fork shares turns that exist":
        "MATCH (s:ConversationSession {sessionId: 'fork'}) SET s.parentSessionId = 'nowhere'",
    "characters of turns are counted":
        "MATCH (t:ConversationTurn {uuid: 'r1'}) SET t.charCount = 0",
    "a turn has all of its fields":
        "CREATE (:ConversationTurn {uuid: 'bare', userMessage: 'only this'})",
    "a session has all of its fields": "MATCH (s:ConversationSession) REMOVE s.titleFolded",
    "a tool call belongs to a turn":
        "MATCH (c:ToolCall {uuid: 'c1'}), (t:ConversationTurn {uuid: 'r3'})"
        " CREATE (t)-[:HAS_TOOL_CALL {order: 0}]->(c)",
    "a tool call has all of its fields": "MATCH (c:ToolCall {uuid: 'c2'}) REMOVE c.preamble",
    "a file was touched by a tool call":
        "MATCH (:ConversationTurn {uuid: 'r2'})-[a:ACCESSED]->() SET a.toolCallId = 'c9'",
    "a summary says what it digests":
        "MATCH (:ConversationSummary {uuid: 's3'})-[r:SUMMARIZES]->() DELETE r",
    "a summary has all of its fields":
        "MATCH (m:ConversationSummary {uuid: 's1'}) REMOVE m.topics, m.timestamp",
    "a turn that has ended says when":
        "MATCH (t:ConversationTurn {uuid: 'r4'}) REMOVE t.finishedAt",
    "a turn that runs has not ended":
        "MATCH (t:ConversationTurn {uuid: 'd5'}) SET t.finishedAt = datetime('2026-01-03')",
    "no id is there twice": "UNWIND [1, 2] AS n CREATE (:File {path: 'x', projectId: 'p' + n})"
        " WITH n MATCH (f:File) WHERE f.path = 'x' AND n = 2 SET f.projectId = null",
    "a memory has all of its fields": "MATCH (m:Memory {uuid: 'm-ana'}) REMOVE m.kind, m.trust",
    "a memory says what took its place": "MATCH ()-[r:SUPERSEDES]->() DELETE r",
    "a memory knows where it comes from": "MATCH ()-[r:REMEMBERS]->() REMOVE r.position, r.quote",
    "an insight belongs to its session": "MATCH ()-[h:HAS_INSIGHT]->() DELETE h",
    "an insight has all of its fields": "MATCH (n:Insight) REMOVE n.keyFindings",
    "what stands on a memory can be read":
        "MATCH (m:Memory {uuid: 'm-ana'}) SET m.evidence = ['{']",
    "a scope has all of its fields": "MATCH (s:Scope {scopeId: 'weed'}) REMOVE s.kind, s.name",
    "a scope is of the file that defines it":
        "MATCH (s:Scope {scopeId: 'water'}) SET s.path = 'elsewhere.py'",
    "a scope is defined or referred to":
        "MATCH ()-[d:DEFINES]->(:Scope {scopeId: 'weed'}) DELETE d",
    "a file with scopes says of what they were read":
        "MATCH (f:File {path: 'beds.py'}) REMOVE f.language",
    "a project with code is known": "MATCH (c:CodeProject) DELETE c",
    "a turn refers to a scope once and says how":
        "MATCH (:ConversationTurn)-[r:REFERENCES_CODE]->() REMOVE r.how",
    "a turn that refers to code was looked at":
        "MATCH (t:ConversationTurn {uuid: 'r1'}) REMOVE t.referencesKnown",
    "the Project of a session is there": "MATCH (s:ConversationSession {sessionId: 'empty'})"
        " SET s.projectId = 'lost', s.projectPath = '/lost'",
    **{
        each.what: f"MATCH (:{each.parent})-[r:{each.relationship}]->() DELETE r"
        for each in BELONGINGS
    },
    "what has ended can be found": "MATCH (e:SearchEntry {recordId: 'r3'}) DETACH DELETE e",
    "what can be found is there": "CREATE (:SearchEntry {recordId: 'x', level: 0})",
    "what is to be embedded is known": "MATCH (e:SearchEntry) REMOVE e.vectorsDue",
    "what is to be looked through is complete":
        "MATCH (t:ConversationTurn {uuid: 'r4'}) SET t.memoriesDue = t.timestamp",
    "what is to be summarised is known": "MATCH (e:SearchEntry) SET e.summaryDue = e.at",
    "turns whose references are to be found are known":
        "MATCH (e:SearchEntry) REMOVE e.referencesDue",
    "what waits for a higher summary is known": "MATCH (m:ConversationSummary) REMOVE m.waitsIn",
    "sessions with summaries that wait are known":
        "MATCH (s:ConversationSession) SET s.rollUpDue = true",
    "vectors are of the stores embedder":
        "MATCH (m:Memory {uuid: 'm-new'}) SET m.vector = 'x', m.embedder = 'z'",
    WORDS: "MATCH (e:SearchEntry {recordId: 'f3'}) SET e.terms = 'nothing'",
}  # fmt: skip
"""What each kind of damage is called, and how it is done."""
BY_HAND = [
    "MATCH (n:ConversationSession {sessionId: 'root'}) SET n.turnCount = 'x'",
    "MATCH (n:ConversationSession {sessionId: 'fork'}) SET n.tags = 'one'",
    "MATCH (n:ConversationTurn {uuid: 'r1'}) SET n.timestamp = 'yesterday'",
    "MATCH (n:ConversationTurn {uuid: 'r3'}) SET n.userMessage = 5",
    "MATCH (n:ConversationTurn {uuid: 'r2'}) SET n.status = 'done'",
    "MATCH (n:ToolCall {uuid: 'c1'}) SET n.success = 'true'",
    "MATCH (n:ToolCall {uuid: 'c2'}) SET n.origin = 'nobody'",
    "MATCH ()-[n:ACCESSED {toolCallId: 'c2'}]->() SET n.type = 'smelled'",
    "MATCH (n:ConversationSummary {uuid: 's1'}) SET n.timestamp = '2026-01-02T03:09:05Z'",
    "MATCH (n:ConversationSummary {uuid: 's2'}) SET n.level = 'first'",
    "MATCH (n:SearchEntry {recordId: 's2'}) SET n.at = 7",
    "MATCH (n:Memory {uuid: 'm-new'}) SET n.createdAt = 'then'",
    "MATCH (n:Memory {uuid: 'm-due'}) SET n.evidence = 3",
    "MATCH (n:Memory {uuid: 'm-ana'}) SET n.source = 'a dream'",
    "MATCH (n:Scope {scopeId: 'water'}) SET n.kind = 'gnome'",
    "MATCH (n:Insight {sessionId: 'root'}) SET n.keyFindings = 1",
    "CREATE (:Attempt {item: 'tried', sessionId: 'root', count: '2'})",
    "MATCH (n:RagmemSchema) SET n.sequence = '0'",
]
"""Properties that are of another type than ragmem writes."""
LOST = "MATCH (s:ConversationSession {sessionId: 'deep'}) DETACH DELETE s"


def test_each_kind_of_damage_is_done() -> None:
    """None is only believed to be found."""
    assert set(DAMAGE) == {*PROMISES, *DERIVED, WORDS, "what stands on a memory can be read"}


async def test_each_kind_of_damage_is_found(garden: Connection, store: Neo4jStore) -> None:
    assert await store.check() == []
    for how in DAMAGE.values():
        await ask(garden, how)
    found = {finding.what for finding in await store.check()}
    assert set(DAMAGE) - found == set()


async def test_what_is_whole_is_left_alone_and_what_can_be_derived_is_as_it_was(
    garden: Connection,
    store: Neo4jStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counters, links, and what is searched; what the code index makes anew is left to it."""
    assert await repaired(garden, tmp_path, monkeypatch) == (None, [])
    before, its_id = await seen(store), await store.store_id()
    due = await store.pending("memories", limit=99)
    for how in (
        "MATCH (s:ConversationSession) SET s.turnCount = 9, s.messageCount = 7",
        "MATCH (s:ConversationSession) REMOVE s.lastTurnId, s.titleFolded",
        "MATCH ()-[h:HAS_TURN|HAS_SUMMARY|HAS_INSIGHT|SUPERSEDES]->() DELETE h",
        "MATCH (t:ConversationTurn) SET t.charCount = 0 REMOVE t.level, t.userCharCount",
        "MATCH (e:SearchEntry) DETACH DELETE e",
        "CREATE (:Plant {name: 'not ours'})",
    ):
        await ask(garden, how)
    saved, said = await repaired(garden, tmp_path, monkeypatch)
    assert saved
    assert saved.left == []
    assert said[-1].startswith("The original graph is kept in ")
    after = await seen(store)
    for each in (before, after):
        each["counts"].pop("scopes")  # type: ignore[attr-defined]
    assert after == before
    assert await store.pending("memories", limit=99) == due
    assert await store.store_id() == its_id
    assert await store.get(PutReferences, ["r1"]) == []
    for file in (tmp_path / "data" / "backups").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    [kept] = (tmp_path / "data" / "backups").glob("graph-*.damaged.jsonl")
    rows = [msgspec.json.decode(line) for line in kept.read_bytes().splitlines()]
    assert 9 in [row["properties"].get("turnCount") for row in rows if "node" in row]
    assert await ask(garden, "MATCH (n:Plant) RETURN n.name AS name") == [{"name": "not ours"}]
    await ask(garden, "MATCH (n:Plant) DELETE n")


async def test_all_that_can_be_read_is_there_again(
    garden: Connection,
    store: Neo4jStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Damage of all kinds at once: every text can be read in a session afterwards."""
    for how in (*DAMAGE.values(), *BY_HAND, LOST):
        await ask(garden, how)
    before = await texts(garden)
    saved, _ = await repaired(garden, tmp_path, monkeypatch)
    assert saved
    assert saved.left == []
    # A summary of which nobody knows what it digests is in the file that is kept alone.
    assert before - await texts(garden) == Counter(["Shade plants were discussed."])
    ids = set()
    for session in await store.sessions(SessionQuery(limit=99)):
        turns = await store.turns(session.session_id, ALL_TURNS)
        assert session.turn_count == len(turns)
        ids |= {turn.turn_id for turn in turns}
    assert ids >= {"r1", "r2", "r3", "r4", "f3", "d4", "d5", "bare"}
    [ana] = await store.find_memories("m-ana")
    assert ana.trust == "tool", "nobody knows who vouches for it"
    [found] = await store.find_sessions("deep")
    assert found.title == "Salvaged session"


async def test_a_graph_that_was_changed_since_it_was_read_is_not_emptied(
    garden: Connection, tmp_path: Path
) -> None:
    """A name alone: nothing came and nothing went."""
    mending = await Repair.open(garden, timeout_s=PATIENCE_S)

    async def read() -> None:
        async for _ in mending.graph():
            pass

    try:
        await read()
        await ask(garden, "MATCH (s:ConversationSession) SET s.title = 'Bees'")
        with pytest.raises(StoreRefused, match="changed while it was being read"):
            await mending.empty(tmp_path)
        assert await texts(garden)
        await read()
        await mending.empty(tmp_path)
        assert not await texts(garden)
        said: list[str] = []
        with pytest.raises(StoreDamaged, match="was interrupted"):
            await neo4j(garden, say=said.append, owner="ben-id")
        assert said == [], "nobody sets up anew what another is about to fill"
        [found] = await ask(garden, "MATCH (v:RagmemSchema) RETURN v.version AS version")
        assert found["version"] is None
        await mending.end()
    finally:
        await mending.aclose()


async def test_a_repair_that_is_cut_off_loses_nothing(
    garden: Connection,
    store: Neo4jStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The graph is empty then, and nobody begins a memory in it: the next one brings all back."""
    before, its_id = await seen(store), await store.store_id()
    await ask(garden, "MATCH (s:ConversationSession) SET s.turnCount = 9")
    with killed_at("transfer.apply", lambda: None), pytest.raises(Killed):
        await repaired(garden, tmp_path, monkeypatch)
    assert await texts(garden) == Counter()
    with pytest.raises(StoreDamaged, match="was interrupted") as caught:
        await neo4j(garden)
    assert "store repair" in caught.value.hint
    with pytest.raises(StoreDamaged, match="was interrupted"):
        async with administration(tmp_path).archive():
            pytest.fail("a backup of it would be empty, and what is brought in would be deleted")
    saved, _ = await repaired(garden, tmp_path, monkeypatch)
    assert saved
    await (await neo4j(garden)).aclose()
    after = await seen(store)
    for each in (before, after):
        each["counts"].pop("scopes")  # type: ignore[attr-defined]
    assert after == before
    assert await store.store_id() == its_id
    assert await store.check() == []


async def test_of_two_repairs_at_once_one_is_refused(
    garden: Connection, store: Neo4jStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the other for one that was cut off, and empty what that fills."""
    await ask(garden, "MATCH (s:ConversationSession) SET s.turnCount = 9")
    both = (repaired(garden, tmp_path, monkeypatch) for _ in range(2))
    (saved, _), refused = await asyncio.gather(*both, return_exceptions=True)  # type: ignore[misc]
    assert isinstance(saved, Saved)
    assert isinstance(refused, StoreUnavailable)
    assert await store.check() == []


async def test_of_two_under_one_id_both_are_kept(tmp_path: Path) -> None:
    """Read from the file into which a graph was written; the second gets an id of its own.

    A line of which a part is gone is one place that can't be read.
    """
    lines = (FIXTURES / f"schema-{schema.VERSION}.graph.jsonl").read_bytes().splitlines()
    held = [msgspec.json.decode(line) for line in lines]
    [first] = [each for each in held if each.get("properties", {}).get("uuid") == "r1"]
    double = {**first, "node": 10_000}
    double["properties"] = first["properties"] | {"userMessage": "again"}
    file = tmp_path / "graph.jsonl"
    nodes = [each for each in held if "node" in each]
    links = [each for each in held if "node" not in each]
    cut_off = b'{"relationship": "HAS_T'
    file.write_bytes(b"\n".join([*map(msgspec.json.encode, [*nodes, double, *links]), cut_off]))
    read = GraphCopy(file, "its-id", START)
    rebuild([read], tmp_path / "memory.db", tmp_path / "locks", owner=OWNER)
    store = await sqlite(tmp_path)
    assert read.lost == 1
    assert sorted(turn.user_message for turn in await store.turns("root")) == sorted(
        ["one", "two", "other three", "four", "again"]
    )
    assert await store.check() == []


@pytest.mark.campaign
@pytest.mark.changes_schema
async def test_a_graph_that_has_something_twice_is_mended(
    garden: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it can't be opened: a constraint that is missing can't be made."""
    await ask(garden, "DROP CONSTRAINT turn_uuid")
    await ask(
        garden,
        "MATCH (t:ConversationTurn {uuid: 'r1'}) CREATE (d:ConversationTurn)"
        " SET d = properties(t), d.userMessage = 'again'",
    )
    with pytest.raises(StoreRefused):
        await neo4j(garden)
    saved, _ = await repaired(garden, tmp_path, monkeypatch)
    assert saved
    assert saved.left == []
    store = await neo4j(garden)
    assert sorted(turn.user_message for turn in await store.turns("root")) == sorted(
        ["one", "two", "other three", "four", "again"]
    )


async def test_a_graph_in_which_somebody_works_is_not_emptied(
    garden: Connection,
    store: Neo4jStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What they write would be lost."""
    await ask(garden, "MATCH (s:ConversationSession) SET s.turnCount = 9")
    await store.attach("root", "somebody")
    before = await texts(garden)
    with pytest.raises(StoreRefused, match="a process is using"):
        await repaired(garden, tmp_path, monkeypatch)
    assert await texts(garden) == before
    await store.detach("somebody")


async def test_what_is_of_another_type_is_left_out_and_told(garden: Connection) -> None:
    """By hand, in any property: reading goes on with one notice, a move refuses to begin."""
    for statement in BY_HAND:
        await ask(garden, statement)
    said: list[str] = []
    store = await neo4j(garden, say=said.append)
    sessions = await store.sessions(SessionQuery(limit=99))
    for session in sessions:
        await store.turns(session.session_id, ALL_TURNS)
        await store.summaries(session.session_id)
    terms = tuple(map(WeightedTerm, ("plants", "shade", "one", "three")))
    await store.search(SearchQuery(terms=terms))
    await store.search(SearchQuery(intervals=(Interval(start_at=at(0), end_at=at(99)),)))
    await store.get(Insight, ["root"])
    with suppress(StoreRefused):  # Of a list that is a number Cypher counts nothing.
        await store.memories(MemoryQuery(everywhere=True, with_superseded=True))
    assert {each.session_id for each in sessions} == {"deep", "empty"}
    [notice] = said
    assert "left out" in notice
    assert "ragmem store repair" in notice
    [finding] = await store.check()
    assert (finding.what, finding.count) == ("properties are of their types", len(BY_HAND))
    await store.aclose()
    strict = await neo4j(garden)
    with pytest.raises(StoreRefused, match="has been altered"):
        _ = [batch async for batch in stream_of(strict)()]


async def test_a_profile_that_cannot_be_read_is_told(garden: Connection, store: Neo4jStore) -> None:
    await ask(garden, "MATCH (u:UserProfile) SET u.profileJson = '{\"name\": 7}'")
    for call in (store.profile(), store.apply([PutProfile(key="a", value="b", at=at(9))])):
        with pytest.raises(StoreRefused, match="can't be read") as caught:
            await call
        assert "store repair" in caught.value.hint
    assert "profile" in [finding.where for finding in await store.check()]

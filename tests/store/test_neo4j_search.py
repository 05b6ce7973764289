"""Search in the graph: what only Neo4j has to take care of. The promises are in the contract."""

import ast
import asyncio
import inspect
import random
import re
from typing import TypeGuard

import pytest

from ragmem.records import (
    EVERYTHING,
    EmbedderMark,
    PutTurn,
    Scope,
    SearchQuery,
    Turn,
    WeightedTerm,
)
from ragmem.store.neo4j import Connection, Neo4jStore, search, vectors
from ragmem.store.neo4j.entries import STATEMENTS
from ragmem.store.neo4j.repair import WORDS
from ragmem.store.neo4j.search import Commonness, sample
from tests.fakes.frail_store import Killed, killed_at
from tests.fakes.neo4j import ask
from tests.store.opening import neo4j
from tests.store.samples import at, begun, called, created, finished, summed, whole_turn
from tests.store.test_contract_recall import EAST, MARK, NORTH, asking, by_words, embedded, found

PROJECT = "project-garden"


def turns(count: int, *, session_id: str = "s", text: str = "ferns {}") -> list[PutTurn]:
    """So many turns that have ended, as they are moved."""
    return [
        PutTurn(
            turn=Turn(
                turn_id=f"{session_id}-{number:04d}",
                session_id=session_id,
                turn_index=number,
                user_message=text.format(number),
                assistant_message="So it is.",
                status="completed",
                started_at=at(number),
                finished_at=at(number),
            )
        )
        for number in range(1, count + 1)
    ]


# --- nodes ------------------------------------------------------------------------


async def test_the_graph_tells_of_vectors(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """A float list on the turn, with its hash; no search and no read returns it."""
    await graph.apply([created("s"), *whole_turn("s", "t", "ferns"), summed("s", "t")])
    await graph.use_embedder(MARK)
    await graph.apply([embedded("t", EAST, NORTH, text_hash="h1")])
    [row] = await ask(
        neo4j_server,
        "MATCH (e:SearchEntry)-[:FINDS]->(t:ConversationTurn)"
        " RETURN t.embedding AS embedding, t.embedding_hash AS hash, e.number AS number",
    )
    assert row["embedding"] == pytest.approx([0.7071, 0.7071, 0, 0], abs=0.001)
    assert row["hash"] == "h1"
    [turn] = await graph.turns("s")
    assert turn == (await graph.get(Turn, ["t"]))[0]
    await graph.use_embedder(EmbedderMark("model-b", 4))
    [row] = await ask(neo4j_server, "MATCH (t:ConversationTurn) RETURN t.embedding AS e")
    assert row["e"] is None


async def test_what_a_deleted_session_said_is_gone_for_all(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Its words, vectors and leases; also for who holds its vectors in memory."""
    other = await neo4j(neo4j_server)
    await graph.apply([created("s"), created("r"), *whole_turn("s", "t"), *whole_turn("r", "u")])
    await graph.use_embedder(MARK)
    await graph.apply([embedded("t", EAST), embedded("u", NORTH)])
    await graph.claim(
        [item.key for item in await graph.pending("level1", limit=9)], "me", seconds=9
    )
    query = asking(vector=EAST, scope=Scope(project_ids=(PROJECT,)))
    assert set(await found(other, query)) == {"t", "u"}
    await graph.delete_session("s")
    assert set(await found(other, query)) == {"u"}
    assert await graph.check() == []
    rows = await ask(neo4j_server, "MATCH (l:Lease) RETURN l.key AS key")
    assert [row["key"] for row in rows] == ["level1:0:u"]


# --- vectors in memory ---------------------------------------------------------------


async def test_the_nearest_are_the_exact_ones(
    graph: Neo4jStore, neo4j_server: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recall of the exact top 20 of more than a page, in project, session and everywhere."""
    import numpy as np

    monkeypatch.setattr(vectors, "PAGE", 40)
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(180, 4)).astype("<f4")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    puts = turns(180)
    await graph.apply([created("s"), *puts])
    await graph.use_embedder(MARK)
    await graph.apply(
        [embedded(put.turn.turn_id, row.tobytes()) for put, row in zip(puts, rows, strict=True)]
    )
    question = rng.normal(size=4).astype("<f4")
    question /= np.linalg.norm(question)
    exact = [puts[i].turn.turn_id for i in np.argsort(-(rows @ question))[:20]]
    for scope in (Scope(), Scope(project_ids=(PROJECT,)), Scope(session_ids=("s",))):
        store = await neo4j(neo4j_server)
        query = asking("ferns 7 8 9", question.tobytes(), scope=scope)
        await store.search(query)
        await asyncio.gather(*store._searcher._reading.values())
        assert set(store._searcher._oldest.values()) == {0}
        hits = (await found(store, query)).values()
        assert all(hit.similarity is not None for hit in hits)
        best = sorted(hits, key=lambda hit: -(hit.similarity or -1))[:20]
        assert len({hit.record_id for hit in best} & set(exact)) == 20
        await store.aclose()


async def test_a_replaced_vector_is_not_compared_as_it_was(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """By who holds what it was before; what is put again as it was is read once."""
    puts = turns(40)
    await graph.apply([created("s"), *puts])
    await graph.use_embedder(MARK)
    await graph.apply([embedded(put.turn.turn_id, NORTH) for put in puts])
    store = await neo4j(neo4j_server)
    query = asking(vector=EAST, limit=1, scope=Scope(project_ids=(PROJECT,)))
    await store.search(query)
    for vector, nearest in ((EAST, 1), (NORTH, 0)):
        await graph.apply([embedded("s-0003", vector), embedded("s-0004", NORTH)])
        for hits in await asyncio.gather(*(found(store, query) for _ in range(3))):
            best = max(hit.similarity or 0 for hit in hits.values())
            assert best == pytest.approx(nearest, abs=0.01)


@pytest.mark.changes_schema
async def test_what_is_not_in_memory_is_found_by_the_graphs_own_index(
    graph: Neo4jStore, neo4j_server: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is read; where there is no index, what is in memory is found alone."""
    monkeypatch.setattr(vectors, "PAGE", 10)
    puts = turns(40)
    await graph.apply([created("s"), *puts])
    await graph.use_embedder(MARK)
    await graph.apply([embedded("s-0003", EAST)])
    await graph.apply([embedded(put.turn.turn_id, NORTH) for put in puts[3:]])
    for indexed in (True, False):
        for scope in (Scope(project_ids=(PROJECT,)), EVERYTHING):
            store = await neo4j(neo4j_server)
            query = asking(vector=EAST, limit=1, scope=scope)
            hits = await found(store, query)
            assert hits
            assert ("s-0003" in hits) == indexed
            # Then it is in memory too.
            await asyncio.gather(*store._searcher._reading.values())
            hits = await found(store, query)
            assert hits["s-0003"].similarity == pytest.approx(1, abs=0.01)
            await store.aclose()
        await ask(neo4j_server, "DROP INDEX turn_embedding IF EXISTS")


async def test_another_embedder_after_a_crash(graph: Neo4jStore, neo4j_server: Connection) -> None:
    """What was being dropped when a process died is dropped by the next."""
    await graph.apply([created("s"), *turns(3)])
    await graph.use_embedder(MARK)
    await graph.apply([embedded(f"s-000{n}", EAST) for n in (1, 2, 3)])
    await ask(
        neo4j_server,
        "MATCH (v:RagmemSchema) SET v.embedder = 'model-b', v.dimension = 4, v.dropping = true,"
        " v.epoch = v.epoch + 1",
    )
    assert await graph.search(asking(vector=EAST, embedder="model-b")) == []
    again = await neo4j(neo4j_server)
    assert len(await again.pending("vectors", limit=9)) == 3
    assert await again.check() == []


async def test_a_graph_without_vectors_has_none_to_drop(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Who opens it while its first embedder is taken up does not say that it is changed."""
    with killed_at("neo4j.committed", lambda: None), pytest.raises(Killed):
        await graph.use_embedder(MARK)
    said: list[str] = []
    other = await neo4j(neo4j_server, say=said.append)
    assert said == []
    assert await other.embedder() == MARK


# --- words ------------------------------------------------------------------------


async def test_more_projects_than_a_question_can_name(graph: Neo4jStore) -> None:
    """Lucene refuses more than 1,024 words; nothing is left out for that."""
    names = [f"p{n}" for n in range(60)]
    writes = ([created(p, project_id=p), *whole_turn(p, f"t{p}", "ferns")] for p in names)
    await graph.apply([write for each in writes for write in each])
    terms = (*(WeightedTerm(f"word{n}") for n in range(40)), WeightedTerm("ferns"))
    everything = {f"t{name}" for name in names}
    for scope in (Scope(), Scope(project_ids=tuple(names)), Scope(session_ids=tuple(names))):
        hits = await found(graph, SearchQuery(terms=terms, scope=scope, limit=100))
        assert set(hits) == everything


async def test_words_are_as_common_as_in_the_project(graph: Neo4jStore) -> None:
    """In a store that is mostly of others, a project's common words stay common."""
    await graph.apply([created("here", project_id="p"), created("there", project_id="q")])
    await graph.apply([*turns(30, session_id="here", text="apple {}")])
    await graph.apply([*turns(300, session_id="there", text="pear {}")])
    await graph.apply(whole_turn("here", "both", "apple pear", "x", started_at=at(400)))
    scope = Scope(project_ids=("p",))
    rare = (await found(graph, asking("pear", scope=scope)))["both"].text
    common = (await found(graph, asking("apple", scope=scope)))["both"].text
    assert 0 < 20 * common < rare
    known = await graph._gateway.read(lambda tx: sample(tx, "p", 331))
    assert (known.documents, known.sampled) == (31, 31)
    assert (known.counts["apple"], known.counts["pear"]) == (31, 1)
    spread = await graph._gateway.read(lambda tx: sample(tx, "q", 1000))
    assert spread.documents == 300
    assert 200 < spread.sampled == spread.counts["pear"] <= 256
    mostly = await graph._gateway.read(lambda tx: sample(tx, "q", 331))
    assert mostly.weighted([WeightedTerm("pear", 2)]) == [WeightedTerm("pear", 2)]


def test_the_commonest_words_of_a_large_project_are_left_out() -> None:
    """As long as others remain."""
    from collections import Counter

    counts = Counter({"the": 390, "fix": 80, "rare": 1, "seldom": 2})
    known = Commonness(total=200_000, documents=100_000, sampled=400, counts=counts)
    terms = [WeightedTerm(word) for word in ("the", "fix", "seldom", "rare", "never")]
    assert [each.term for each in known.weighted(terms)] == ["seldom", "rare", "never"]
    assert [each.term for each in known.weighted(terms[:2])] == ["the", "fix"]
    weights = {each.term: each.weight for each in known.weighted(terms[:4])}
    assert weights["fix"] < weights["seldom"] <= weights["rare"] <= 1


# --- damage -----------------------------------------------------------------------


async def test_words_of_an_older_version_are_made_again(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """Vectors stay; it goes on where it was interrupted."""
    puts = turns(random.Random(1).randint(120, 130))
    await graph.apply([created("s"), *puts, summed("s", "s-0001", summary_id="sum")])
    await graph.use_embedder(MARK)
    await graph.apply([embedded("s-0001", EAST)])
    await ask(
        neo4j_server,
        "MATCH (v:RagmemSchema) REMOVE v.termsVersion WITH v MATCH (e:SearchEntry)"
        " SET e.terms = 'old', e.termsHash = 'old', e.termsVersion ="
        " CASE WHEN e.turnIndex = 7 THEN e.termsVersion ELSE 0 END",
    )
    again = await neo4j(neo4j_server)
    # What bears this version's number was made by it.
    assert [(each.what, each.where) for each in await again.check()] == [(WORDS, "s-0007")]
    assert (await found(again, asking(vector=EAST)))["s-0001"].similarity is not None


async def test_only_turns_with_words_between_calls_are_made_anew_for_those(
    graph: Neo4jStore, neo4j_server: Connection
) -> None:
    """A large memory is not kept waiting for terms that are right."""
    said = called("s", "t1", 0, preamble="The cause is a wrong locale.")
    await graph.apply([created("s"), begun("s", "t1", "x"), said, finished("s", "t1", "Done.")])
    await graph.apply([*whole_turn("s", "t2", "ferns", "mosses"), summed("s", "t2")])
    await ask(
        neo4j_server,
        "MATCH (v:RagmemSchema) SET v.termsVersion = 3 WITH v MATCH (e:SearchEntry)"
        " WHERE e.level = 0 SET e.terms = 'old', e.termsHash = 'old', e.termsVersion = 3",
    )
    again = await neo4j(neo4j_server)
    assert await by_words(again, "locale") == {"t1"}
    assert [(each.what, each.where) for each in await again.check()] == [(WORDS, "t2")]


@pytest.mark.parametrize("statement", ["scope", "around"])
def test_all_that_a_statement_takes_from_its_map_is_given(statement: str) -> None:
    """What is forgotten would be null, and the server would not say so."""
    calls = [
        each for each in ast.walk(ast.parse(inspect.getsource(search))) if _runs(each, statement)
    ]
    [given] = [each.value for call in calls for each in call.keywords if each.arg == "given"]
    assert isinstance(given, ast.Dict)
    names = {ast.literal_eval(key) for key in given.keys if key}
    assert names == set(re.findall(r"\$given\.(\w+)", STATEMENTS[statement]))
    assert set(re.findall(r"\$(\w+)", STATEMENTS[statement])) == {"given"}


def _runs(node: ast.AST, statement: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and any(
        ast.unparse(each) == f"STATEMENTS[{statement!r}]" for each in node.args
    )

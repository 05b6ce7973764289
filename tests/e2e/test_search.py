"""`ragmem search`, `context`, `store reembed`, `sessions summarize`: real processes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, LLMServer, Received

SUMMARY = json.dumps({"text": "They talked.", "key_findings": ["A finding."], "topics": ["talk"]})
TALK = {
    "Our cat Whiskers hates tuna.": "Noted: no tuna for Whiskers.",
    "Where does the staging database listen?": "It listens on port 5439, see deploy/db.yaml.",
    "Explain generators in Python": "A generator yields values one by one.",
}
BY_MEANING = "Which fish does our kitten refuse to eat?"
AGO = r"(?:just now|\d minutes? ago)"
"""Of what was said a few processes before."""
OTHER_MODEL = {"RAGMEM_MODEL__EMBEDDING": "openai/other-embedder"}


def answer(request: Received) -> Answer:
    """What TALK says to the prompt; a digest to the summary model; vectors to who embeds."""
    if request.path.endswith("/embeddings"):
        return Answer()
    if request.body["model"] == "small":
        return Answer(SUMMARY)
    prompt = request.body["messages"][-1]["content"]
    return Answer(next((said for asked, said in TALK.items() if asked in prompt), "I see."))


def talk(folder: Path, server: LLMServer, worker: str = "inline") -> tuple[Ragmem, list[str]]:
    """A session for each prompt of TALK; their ids. Work is done before each process ends."""
    env = {**server.env, "RAGMEM_MODEL__SUMMARY": "openai/small", "RAGMEM_MEMORY__WORKER": worker}
    ragmem = Ragmem(folder, env)
    return ragmem, [ragmem.session_of(prompt) for prompt in TALK]


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with LLMServer([answer], repeat=True) as server:
        yield server


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ragmem, list[str]]]:
    """What is only read."""
    with LLMServer([answer], repeat=True) as server:
        ragmem, ids = talk(tmp_path_factory.mktemp("talked"), server)
        (ragmem.project.with_name("other")).mkdir()
        ragmem.ok("ask", "The database of the other project", cwd=ragmem.project.with_name("other"))
        yield ragmem, ids


@pytest.fixture
def ragmem(talked: tuple[Ragmem, list[str]]) -> Ragmem:
    return talked[0]


@pytest.fixture
def ids(talked: tuple[Ragmem, list[str]]) -> list[str]:
    return talked[1]


def found(ragmem: Ragmem, *arguments: str, **options: Any) -> list[dict[str, Any]]:
    hits: list[dict[str, Any]] = ragmem.read("search", *arguments, **options)
    return hits


# --- search -------------------------------------------------------------------


def test_search_finds_by_words_and_by_meaning(ragmem: Ragmem, ids: list[str]) -> None:
    """The keys, best first; `--no-semantic` goes by words alone."""
    hits = found(ragmem, BY_MEANING, "--levels", "0")
    first = hits[0]
    assert " ".join(first) == (
        "type id session_id turn_index level text path name start_line end_line score "
        "similarity timestamp why since"
    )
    told = (first["session_id"], first["type"], first["turn_index"], first["level"])
    assert told == (ids[0], "turn", 1, 0)
    assert "Our cat Whiskers hates tuna." in first["text"]
    assert "its meaning" in first["why"]
    assert [h["score"] for h in hits] == sorted((h["score"] for h in hits), reverse=True)
    assert -1 <= first["similarity"] <= 1
    assert found(ragmem, "kitten refuses fish", "--no-semantic") == []
    (worded, *_) = found(ragmem, "staging port", "--no-semantic", "--levels", "0")
    assert (worded["session_id"], worded["similarity"]) == (ids[1], None)


def test_what_a_person_sees_of_a_search(ragmem: Ragmem, ids: list[str]) -> None:
    """Each with its session, turn and age, and what it was found by.

    No figure that the list is not in the order of: how alike it is is one part of its score.
    """
    question = "Where does the staging database listen?"
    where = f"session {ids[1][-8:]} “{re.escape(question)}”"
    done = ragmem.ok("search", question, env={"COLUMNS": "140"})
    first, *said = done.out.split("\n\n")[0].splitlines()
    assert re.fullmatch(rf"Turn 1 · {where} · {AGO} · found by its words, its meaning", first)
    assert said[0] == f"  > {question}"
    # What a turn says is not said again by its summary, unless those alone are asked for.
    assert "Summary of" not in done.out
    assert "%" not in done.out
    summary = rf"^Summary of a turn · session \w{{8}} “[^”]+” · {AGO} · "
    assert re.match(summary, ragmem.ok("search", question, "--levels", "1").out)
    words = ragmem.ok("search", "staging port", "--no-semantic", "--levels", "0").out
    assert re.match(rf"Turn 1 · {where} · {AGO} · found by its words\n", words)


def test_what_is_close_comes_first_and_the_rest_under_a_line(
    tmp_path: Path, server: LLMServer
) -> None:
    """In both lists; where all is close there is no line."""
    ragmem, _ = talk(tmp_path, server)
    # What is told of last time would come into the answers: that brings them near.
    for question in ("is it raining?", "which port does the proxy use?"):
        ragmem.ok("ask", f"Off topic: {question}")
    for command in (("search",), ("sessions", "search")):
        done = ragmem.ok(*command, "Where does the staging database listen?")
        close, _, rest = done.out.partition("\nLess relevant:\n")
        assert "found by its words" in close
        # What is further in a session that is close stands with it.
        assert rest or command == ("sessions", "search")
        assert "its words" not in rest
    assert "Further" not in ragmem.ok("search", "staging", "--no-semantic").out


def test_where_nothing_is_close_the_nearest_is_called_that(ragmem: Ragmem) -> None:
    """Likeness alone, below what the embedder calls alike, is no find: it is said."""
    done = ragmem.ok("search", "qzxw vvkk")
    assert done.err == ("Nothing shares a word with this or is clearly about it. The closest:\n")
    shown = re.findall(r"^Turn 1 · session (\w+)", done.out, re.MULTILINE)
    turns = found(ragmem, "qzxw vvkk", "--levels", "0")
    nearest = sorted(turns, key=lambda hit: -hit["similarity"])
    assert shown == [hit["session_id"][-8:] for hit in nearest]
    assert ragmem.ok("search", "staging database").err == ""
    done = ragmem.ok("search", "zzzz qqqq", "--no-semantic")
    assert (done.out, done.err) == ("", "No results.\n")
    assert found(ragmem, "zzzz", "--no-semantic") == []


def test_levels_limit_and_scopes(ragmem: Ragmem, ids: list[str]) -> None:
    """0 are turns, 1 and up summaries; another project's turns only with `all`."""
    both = found(ragmem, "They talked about the database")
    assert {hit["type"] for hit in both} == {"turn", "summary"}
    summaries = found(ragmem, "They talked", "--levels", "1,2")
    assert {(h["type"], h["level"], h["turn_index"]) for h in summaries} == {("summary", 1, None)}
    assert len(found(ragmem, "They talked", "--levels", "0, 1", "--limit", "2")) == 2
    assert found(ragmem, "They talked", "--levels", "7") == []

    def sessions(*words: str) -> set[str]:
        return {hit["session_id"] for hit in found(ragmem, *words)}

    here = sessions("database")
    assert here <= set(ids)
    assert ids[1] in here
    assert len(sessions("database", "--scope", "all") - set(ids)) == 1
    one = ("database generator cat", "--scope", "session")
    assert sessions(*one) == {ids[2]}
    assert sessions("database generator cat", "-c") == {ids[2]}
    assert sessions(*one, "-r", ids[0]) == {ids[0]}


# --- another session, by meaning ------------------------------------------------


def test_another_session_is_recalled_by_meaning(tmp_path: Path, server: LLMServer) -> None:
    """What the first `ask` was told is sent with the second, in other words."""
    ragmem, _ = talk(tmp_path, server)
    ragmem.ok("ask", BY_MEANING)
    asked = [r for r in server.requests if r.body["model"] == "scripted"]
    last = asked[-1].body["messages"][-1]["content"]
    assert "Our cat Whiskers hates tuna." in last
    assert last.index("Whiskers") < last.index(BY_MEANING)


def test_doctor_tells_whether_embeddings_are_missing(tmp_path: Path, server: LLMServer) -> None:
    """In one row, as in the row of background work."""
    ragmem, _ = talk(tmp_path, server)
    assert "; embeddings are up to date\n" in ragmem.run("doctor").out
    ragmem.ok("ask", "And now?", env={"RAGMEM_MEMORY__WORKER": "off"})
    doctor = ragmem.run("doctor").out
    assert "; some embeddings are still missing\n" in doctor
    assert "1 without embeddings" in doctor


# --- another embedder -----------------------------------------------------------


@pytest.mark.xdist_group("litellm")
def test_vectors_of_another_model_are_told_and_made_anew(tmp_path: Path, server: LLMServer) -> None:
    """Detected, said, text search goes on, vectors are never compared; then reembedded."""
    ragmem, ids = talk(tmp_path, server)
    port = ("staging port", "--levels", "0")
    for command in (("search", "staging port"), ("ask", "And now?")):
        done = ragmem.ok(*command, env=OTHER_MODEL)
        assert done.err.count("`ragmem store reembed`") == 1
    hits = found(ragmem, *port, env=OTHER_MODEL)
    assert (hits[0]["session_id"], hits[0]["similarity"]) == (ids[1], None)
    doctor = ragmem.run("doctor", env=OTHER_MODEL).out
    assert "note   embedder" in doctor
    assert "ragmem store reembed" in doctor
    assert not [r for r in server.requests if r.path.endswith("/embeddings")]

    done = ragmem.ok("store", "reembed", env=OTHER_MODEL)
    assert "memories with" in done.out
    assert "other-embedder" in done.out
    assert "embedding: " in done.err
    assert found(ragmem, *port, env=OTHER_MODEL)[0]["similarity"] is not None
    assert "reembed" not in ragmem.run("search", "staging port", env=OTHER_MODEL).err
    assert ragmem.run("store", "reembed", env=OTHER_MODEL).out == "Nothing to embed.\n"
    # And back.
    assert "reembed" in ragmem.run("search", "staging port").err
    ragmem.ok("store", "reembed")
    assert found(ragmem, BY_MEANING)[0]["session_id"] == ids[0]


# --- sessions summarize ---------------------------------------------------------


def test_a_session_is_summed_up_at_once(tmp_path: Path, server: LLMServer) -> None:
    """By command; the newest session of the folder, or the one that is named; cut from the turns
    where no model answers."""
    empty = Ragmem(tmp_path / "empty")
    assert "No session in" in empty.refused("sessions", "summarize")
    ragmem, ids = talk(tmp_path, server, worker="off")
    away = {"RAGMEM_API_BASE": "http://127.0.0.1:9/v1"}
    cut = ragmem.ok("sessions", "summarize", env=away)
    assert "generator" in cut.out
    assert cut.err.startswith("note: excerpted from the turns, because no model summarized them (")
    # Nothing was said since: asked for again, it says nothing twice.
    assert ragmem.ok("sessions", "summarize", env=away).out == cut.out
    off = {"RAGMEM_MEMORY__SUMMARIES__ENABLED": "false"}
    assert "memory.summaries.enabled" in ragmem.refused("sessions", "summarize", env=off)
    assert not [r for r in server.requests if r.body["model"] == "small"]
    assert ragmem.ok("sessions", "summarize").out == "They talked.\n"
    [request] = [r for r in server.requests if r.body["model"] == "small"]
    assert "Explain generators in Python" in request.body["messages"][-1]["content"]
    assert ragmem.ok("sessions", "summarize", ids[0]).out == "They talked.\n"
    assert "[Thread Summary]" in ragmem.ok("context", "And?", "-r", ids[0]).out

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


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with LLMServer([answer], repeat=True) as server:
        yield server


@pytest.fixture
def ragmem(tmp_path: Path, server: LLMServer) -> Ragmem:
    """Work is done before each process ends."""
    env = {**server.env, "RAGMEM_MODEL__SUMMARY": "openai/small"}
    return Ragmem(tmp_path, {**env, "RAGMEM_MEMORY__WORKER": "inline"})


def talk(ragmem: Ragmem, **options: Any) -> list[str]:
    """A session for each prompt of TALK; their ids."""
    ids = []
    for prompt in TALK:
        done = ragmem.ok("ask", prompt, "--output-format", "json", **options)
        ids.append(done.json["session_id"])
    return ids


def found(ragmem: Ragmem, *arguments: str, **options: Any) -> list[dict[str, Any]]:
    done = ragmem.ok("search", *arguments, "--format", "json", **options)
    hits: list[dict[str, Any]] = done.json
    return hits


# --- search -------------------------------------------------------------------


def test_search_finds_by_words_and_by_meaning(ragmem: Ragmem) -> None:
    """The keys, best first; `--no-semantic` goes by words alone."""
    ids = talk(ragmem)
    hits = found(ragmem, BY_MEANING, "--levels", "0")
    assert hits[0]["session_id"] == ids[0]
    assert set(hits[0]) == {
        "type",
        "id",
        "session_id",
        "turn_index",
        "level",
        "text",
        "path",
        "name",
        "start_line",
        "end_line",
        "score",
        "similarity",
        "timestamp",
        "why",
        "since",
    }
    assert (hits[0]["type"], hits[0]["turn_index"], hits[0]["level"]) == ("turn", 1, 0)
    assert "Our cat Whiskers hates tuna." in hits[0]["text"]
    assert "its meaning" in hits[0]["why"]
    assert [h["score"] for h in hits] == sorted((h["score"] for h in hits), reverse=True)
    assert -1 <= hits[0]["similarity"] <= 1
    assert found(ragmem, "kitten refuses fish", "--no-semantic") == []
    (worded, *_) = found(ragmem, "staging port", "--no-semantic", "--levels", "0")
    assert (worded["session_id"], worded["similarity"]) == (ids[1], None)


def test_what_a_person_sees_of_a_search(ragmem: Ragmem) -> None:
    """Each with its session, turn and age, and what it was found by.

    No figure that the list is not in the order of: how alike it is is one part of its score.
    """
    ids = talk(ragmem)
    question = "Where does the staging database listen?"
    done = ragmem.run("search", question, env={"COLUMNS": "140"})
    first, *said = done.out.split("\n\n")[0].splitlines()
    assert re.fullmatch(
        rf"Turn 1 · session {ids[1][-8:]} “{re.escape(question)}” · {AGO} · "
        r"found by its words, its meaning",
        first,
    )
    assert said[0] == f"  > {question}"
    # What a turn says is not said again by its summary, unless those alone are asked for.
    assert "Summary of" not in done.out
    summary = rf"^Summary of a turn · session \w{{8}} “[^”]+” · {AGO} · "
    assert re.match(summary, ragmem.run("search", question, "--levels", "1").out)
    assert "%" not in done.out
    words = ragmem.run("search", "staging port", "--no-semantic", "--levels", "0").out
    where = f"session {ids[1][-8:]} “{re.escape(question)}”"
    assert re.match(rf"Turn 1 · {where} · {AGO} · found by its words\n", words)


def test_what_is_close_comes_first_and_the_rest_under_a_line(ragmem: Ragmem) -> None:
    """In both lists; where all is close there is no line."""
    talk(ragmem)
    # What is told of last time would come into the answers: that brings them near.
    for question in ("is it raining?", "on which address is the SQL server reachable?"):
        ragmem.run("ask", f"Off topic: {question}")
    for command in (("search",), ("sessions", "search")):
        done = ragmem.run(*command, "Where does the staging database listen?")
        close, _, rest = done.out.partition("\nFurther from it:\n")
        assert "found by its words" in close
        # What is further in a session that is close stands with it.
        assert rest or command == ("sessions", "search")
        assert "its words" not in rest
    assert "Further" not in ragmem.run("search", "staging", "--no-semantic").out


def test_where_nothing_is_close_the_nearest_is_called_that(ragmem: Ragmem) -> None:
    """Likeness alone, below what the embedder calls alike, is no find: it is said."""
    talk(ragmem)
    done = ragmem.ok("search", "qzxw vvkk")
    assert done.err == (
        "Nothing shares a word with this or is clearly about the same. The nearest:\n"
    )
    shown = re.findall(r"^Turn 1 · session (\w+)", done.out, re.MULTILINE)
    turns = found(ragmem, "qzxw vvkk", "--levels", "0")
    nearest = sorted(turns, key=lambda hit: -hit["similarity"])
    assert shown == [hit["session_id"][-8:] for hit in nearest]
    assert ragmem.run("search", "staging database").err == ""


def test_levels_and_limit(ragmem: Ragmem) -> None:
    """0 are turns, 1 and up summaries."""
    talk(ragmem)
    assert {hit["type"] for hit in found(ragmem, "They talked about the database")} == {
        "turn",
        "summary",
    }
    summaries = found(ragmem, "They talked", "--levels", "1,2")
    assert {(hit["type"], hit["level"]) for hit in summaries} == {("summary", 1)}
    assert all(hit["turn_index"] is None for hit in summaries)
    assert len(found(ragmem, "They talked", "--levels", "0, 1", "--limit", "2")) == 2
    assert found(ragmem, "They talked", "--levels", "7") == []


def test_nothing_found(ragmem: Ragmem) -> None:
    """Nothing on stdout, exit 0; an empty list as JSON; on an empty memory too."""
    for _ in range(2):
        done = ragmem.run("search", "zzzz qqqq", "--no-semantic")
        assert (done.code, done.out, done.err) == (0, "", "Nothing was found.\n")
        assert ragmem.run("search", "zzzz", "--no-semantic", "--format", "json").out == "[]\n"
        talk(ragmem)


def test_scopes(ragmem: Ragmem, tmp_path: Path) -> None:
    """The project by default; another project's turns only with `all`."""
    ids = talk(ragmem)
    other = tmp_path / "other"
    other.mkdir()
    assert ragmem.run("ask", "The database of the other project", cwd=other).code == 0
    here = {hit["session_id"] for hit in found(ragmem, "database")}
    assert here <= set(ids)
    assert ids[1] in here
    everywhere = {hit["session_id"] for hit in found(ragmem, "database", "--scope", "all")}
    assert len(everywhere - set(ids)) == 1
    newest = found(ragmem, "database generator cat", "--scope", "session")
    assert {hit["session_id"] for hit in newest} == {ids[2]}
    named = found(ragmem, "database generator cat", "--scope", "session", "-r", ids[0])
    assert {hit["session_id"] for hit in named} == {ids[0]}


# --- another session, by meaning ------------------------------------------------


def test_another_session_is_recalled_by_meaning(ragmem: Ragmem, server: LLMServer) -> None:
    """What the first `ask` was told is sent with the second, in other words."""
    assert ragmem.run("ask", "Our cat Whiskers hates tuna.").code == 0
    assert ragmem.run("ask", BY_MEANING).code == 0
    asked = [r for r in server.requests if r.body["model"] == "scripted"]
    last = asked[-1].body["messages"][-1]["content"]
    assert "Our cat Whiskers hates tuna." in last
    assert last.index("Whiskers") < last.index(BY_MEANING)


# --- context --------------------------------------------------------------------


# --- another embedder -----------------------------------------------------------


@pytest.mark.xdist_group("litellm")
def test_vectors_of_another_model_are_told_and_made_anew(ragmem: Ragmem, server: LLMServer) -> None:
    """Detected, said, text search goes on, vectors are never compared; then reembedded."""
    ids = talk(ragmem)
    for command in (("search", "staging port"), ("ask", "And now?")):
        done = ragmem.ok(*command, env=OTHER_MODEL)
        assert done.err.count("`ragmem store reembed`") == 1
    hits = found(ragmem, "staging port", "--levels", "0", env=OTHER_MODEL)
    assert (hits[0]["session_id"], hits[0]["similarity"]) == (ids[1], None)
    doctor = ragmem.run("doctor", env=OTHER_MODEL).out
    assert "note   embedder" in doctor
    assert "ragmem store reembed" in doctor
    assert not [r for r in server.requests if r.path.endswith("/embeddings")]

    done = ragmem.ok("store", "reembed", env=OTHER_MODEL)
    assert "were embedded by" in done.out
    assert "other-embedder" in done.out
    assert "embedding: " in done.err
    hits = found(ragmem, "staging port", "--levels", "0", env=OTHER_MODEL)
    assert hits[0]["similarity"] is not None
    assert "reembed" not in ragmem.run("search", "staging port", env=OTHER_MODEL).err
    assert ragmem.run("store", "reembed", env=OTHER_MODEL).out == "Nothing was to do.\n"
    # And back.
    assert "reembed" in ragmem.run("search", "staging port").err
    assert ragmem.run("store", "reembed").code == 0
    assert found(ragmem, BY_MEANING)[0]["session_id"] == ids[0]


# --- sessions summarize ---------------------------------------------------------


def test_a_session_is_summed_up_at_once(ragmem: Ragmem, server: LLMServer) -> None:
    """By command; the newest session of the folder, or the one that is named."""
    ids = talk(ragmem, env={"RAGMEM_MEMORY__WORKER": "off"})
    assert not [r for r in server.requests if r.body["model"] == "small"]
    done = ragmem.run("sessions", "summarize")
    assert (done.code, done.out) == (0, "They talked.\n")
    [request] = [r for r in server.requests if r.body["model"] == "small"]
    assert "Explain generators in Python" in request.body["messages"][-1]["content"]
    named = ragmem.run("sessions", "summarize", ids[0])
    assert named.out == "They talked.\n"
    assert "[Thread Summary]" in ragmem.run("context", "And?", "-r", ids[0]).out


def test_summarizing_without_a_model_or_a_session(ragmem: Ragmem) -> None:
    """Cut from the turns where no model answers; off is off."""
    nothing = ragmem.run("sessions", "summarize")
    assert nothing.code != 0
    assert "There is no session of" in nothing.err
    talk(ragmem, env={"RAGMEM_MEMORY__WORKER": "off"})
    away = ragmem.ok("sessions", "summarize", env={"RAGMEM_API_BASE": "http://127.0.0.1:9/v1"})
    assert "generator" in away.out
    off = ragmem.run("sessions", "summarize", env={"RAGMEM_MEMORY__SUMMARIES__ENABLED": "false"})
    assert off.code == 2
    assert "memory.summaries.enabled" in off.err

"""`ragmem search --code`: code, the sessions about it, what was decided there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from tests.cli.coding import EVIL, garden, on_a_terminal, without_times
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer, Received

MORNING = "We decided to let Tank.drain run in the morning only."
EDIT = {"path": "water.py", "old": "self.level -= litres", "new": "self.level -= litres * 0.9"}


def answer(request: Received) -> Answer:
    """Edits Tank.drain when told so; nothing is learned but by how decisions are spoken of."""
    if request.path.endswith("/embeddings"):
        return Answer()
    if request.body["model"] == "small":
        return Answer("{}")
    last = request.body["messages"][-1]
    asked = str(last["content"]).rpartition("</memory")[2]
    if last["role"] == "user" and "drain" in asked and "decided" in asked:
        return Answer(tools=[Call("read_file", {"path": "water.py"}), Call("edit_file", EDIT)])
    return Answer("Done.")


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with LLMServer([answer], repeat=True) as server:
        yield server


@pytest.fixture
def ragmem(tmp_path: Path, server: LLMServer) -> Ragmem:
    """The garden; what is left to the background is done before `ask` ends."""
    made = Ragmem(tmp_path)
    made.env |= {
        **server.env,
        "RAGMEM_MODEL__SUMMARY": "openai/small",
        "RAGMEM_MEMORY__WORKER": "inline",
    }
    garden(made)
    assert made.run("index").code == 0  # `ask` would not wait for it on a busy machine
    return made


@pytest.fixture
def plain(tmp_path: Path) -> Ragmem:
    """The garden on SQLite, without a model."""
    made = Ragmem(tmp_path)
    garden(made)
    return made


def found(ragmem: Ragmem, *arguments: str, **options: Any) -> list[dict[str, Any]]:
    done = ragmem.ok("search", "--code", *arguments, "--format", "json", **options)
    hits: list[dict[str, Any]] = done.json
    return hits


def test_a_question_in_words_finds_a_function(plain: Ragmem) -> None:
    first, *_ = found(plain, "how much do the plants drink")
    assert " ".join(first) == (
        "type id session_id turn_index level text path name start_line end_line score "
        "similarity timestamp why since kind signature defined sessions memories"
    )
    assert (first["type"], first["kind"], first["path"], first["name"]) == (
        "scope",
        "function",
        "water.py",
        "litres",
    )
    lines = (plain.project / "water.py").read_text().splitlines()
    shown = lines[first["start_line"] - 1 : first["end_line"]]
    assert first["text"].splitlines() == shown
    assert (first["defined"], first["sessions"], first["memories"]) == (True, [], [])
    nulls = ("session_id", "turn_index", "level", "timestamp")
    assert [first[key] for key in nulls] == [None] * 4


def test_what_a_person_sees(plain: Ragmem) -> None:
    done = plain.run("search", "--code", "Tank.drain", "--no-semantic", "--limit", "1")
    assert (done.code, done.err) == (0, "")
    first, *rest = done.out.splitlines()
    assert first.startswith("Tank.drain · method · water.py:9-11 · found by its name Tank.drain")
    began = ["  def drain(self, litres: float) -> None", "  Let some of it flow into the beds."]
    assert rest == began
    narrow = plain.run(
        "search", "--code", "Tank.drain", "--no-semantic", "--limit", "1", env={"COLUMNS": "40"}
    )
    first, second, *rest = narrow.out.splitlines()
    assert first == "Tank.drain · method · water.py:9-11"
    assert second.startswith("  found by its name Tank.drain")
    assert len(second) <= 40
    assert rest == began


def test_which_sessions_discussed_it_and_what_was_decided(ragmem: Ragmem) -> None:
    """Each session with how, and the decision, for a method and for the
    class that it is in; one that only met it in a search is a session, but decided nothing."""
    assert ragmem.run("ask", "--yolo", MORNING).code == 0
    assert ragmem.run("ask", "Is `Tank` big enough?").code == 0
    [newest, oldest] = ragmem.sessions()
    (drain, *_) = found(ragmem, "Tank.drain")
    assert drain["name"] == "Tank.drain"
    assert [(s["session_id"], s["how"][0]) for s in drain["sessions"]] == [
        (oldest["session_id"], "edited")
    ]
    assert drain["sessions"][0]["turn_count"] == 1
    assert drain["timestamp"] == drain["sessions"][0]["last_at"]
    assert [memory["kind"] for memory in drain["memories"]] == ["decision"]
    assert "in the morning" in drain["memories"][0]["content"]
    (tank, *_) = found(ragmem, "Tank")
    assert tank["name"] == "Tank"
    assert [s["session_id"] for s in tank["sessions"]] == [
        newest["session_id"],
        oldest["session_id"],
    ]
    assert tank["sessions"][0]["how"] == ["named"]


def test_the_sessions_as_a_person_sees_them(ragmem: Ragmem) -> None:
    assert ragmem.run("ask", "--yolo", MORNING).code == 0
    [session] = ragmem.sessions()
    ragmem.run("sessions", "rename", session["session_id"], "Mornings")
    done = ragmem.run("search", "--code", "Tank.drain", "--no-semantic", "--limit", "1")
    assert (done.code, done.err) == (0, "")
    assert "  sessions" in done.out
    tail = done.out[done.out.index("  sessions") :].replace(session["session_id"][-8:], "SESSION")
    [memory] = json.loads(
        ragmem.run("memory", "list", "--kind", "decision", "--format", "json").out
    )
    tail = tail.replace(memory["id"][-8:], "MEMORY")
    assert without_times(tail) == snapshot("""\
  sessions
    SESSION  Mornings · edited · AGO
  decided there
    MEMORY  We decided to let Tank.drain run in the morning only. (decision · told by you · AGO)
""")
    words = ragmem.run("search", "--code", "let some flow into the beds", "--limit", "1").out
    assert "in 1 session, " in words
    assert "\n  sessions" not in words
    assert all(
        len(row) <= 40
        for row in on_a_terminal(ragmem, "search", "--code", "Tank.drain", columns=40)[1]
    )


def test_what_is_gone_is_found_by_its_name(ragmem: Ragmem) -> None:
    assert ragmem.run("ask", "--yolo", MORNING).code == 0
    (ragmem.project / "water.py").write_text("def rain() -> None: ...\n")
    (ragmem.project / "plan.py").unlink()
    ragmem.run("index")
    hits = found(ragmem, "Tank.drain")
    [gone] = [hit for hit in hits if not hit["defined"]]
    assert (gone["name"], gone["path"], gone["text"]) == ("Tank.drain", "water.py", "")
    assert len(gone["sessions"]) == 1
    assert hits[0] == gone
    assert "was in water.py" in ragmem.run("search", "--code", "Tank.drain").out
    assert [hit["id"] for hit in found(ragmem, "Tank.drain", "--limit", "1")] == [gone["id"]]


def test_a_renamed_file_takes_its_past_along(ragmem: Ragmem) -> None:
    assert ragmem.run("ask", "--yolo", MORNING).code == 0
    (ragmem.project / "water.py").rename(ragmem.project / "rain.py")
    ragmem.run("index")
    hits = [hit for hit in found(ragmem, "Tank.drain") if hit["name"] == "Tank.drain"]
    assert [(hit["path"], hit["defined"]) for hit in hits] == [("rain.py", True)]
    assert len(hits[0]["sessions"]) == 1
    assert hits[0]["memories"]


def test_outside_of_the_folder_paths_say_so(plain: Ragmem) -> None:
    """The whole project is searched; what is elsewhere has its whole path."""
    (plain.project / ".git").mkdir()
    inside = plain.project / "beds"
    inside.mkdir()
    (inside / "mulch.py").write_text("def mulch() -> None: ...\n")
    out = plain.run("search", "--code", "mulch litres", cwd=inside).out
    assert " · mulch.py:1 · " in out
    assert f"{plain.project}/water.py:14-16" in out.replace("\n  ", " · ")
    assert {hit["path"] for hit in found(plain, "mulch litres", cwd=inside)} >= {
        "beds/mulch.py",
        "water.py",
    }


def test_names_that_steer_a_terminal(plain: Ragmem) -> None:
    (plain.project / f"{EVIL}.md").write_text(f"# Fern {EVIL}\n\nFerns drink{EVIL} a lot.\n")
    done = plain.run("search", "--code", "fern drink")
    assert "\\e]0;owned\\x07\\e[31m.md:1-3" in done.out
    assert "\x1b" not in done.out
    raw, _ = on_a_terminal(plain, "search", "--code", "fern drink", columns=40)
    assert b"\x1b]0;" not in raw
    assert b"\x1b[31m" not in raw


def test_what_is_only_near_is_said_to_be(plain: Ragmem) -> None:
    """By meaning something is always the nearest: a person is told that none of it is close."""
    assert plain.run("index", "--vectors").code == 0
    done = plain.run("search", "--code", "qzxwv")
    assert "Nothing shares a word with this" in done.err
    assert 0 < len([line for line in done.out.splitlines() if " · " in line]) <= 3
    done = plain.run("search", "--code", "how much do the plants drink")
    assert "Nothing shares a word" not in done.err


def test_nothing_found_and_nothing_asked(plain: Ragmem) -> None:
    done = plain.run("search", "--code", "qzxwv", "--no-semantic")
    assert (done.code, done.out, done.err) == (0, "", "Nothing was found.\n")
    assert found(plain, "qzxwv", "--no-semantic") == []
    assert plain.run("search", "--code", " ").code == 2
    for flags in (("--scope", "all"), ("--levels", "0"), ("-c",), ("-r", "x")):
        done = plain.run("search", "x", *flags, "--code")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("error: --code looks into the files of this project")


def test_without_a_memory(plain: Ragmem, tmp_path: Path) -> None:
    """Code is found where nothing is remembered; and where code is not indexed, that is said."""
    off = {"RAGMEM_MEMORY__ENABLED": "false"}
    assert found(plain, "litres", env=off)[0]["name"] == "litres"
    assert not (plain.home / "data" / "memory.db").exists()
    done = plain.run("search", "--code", "litres", env={"RAGMEM_CODE__ENABLED": "false"})
    assert (done.code, done.out) == (2, "")
    assert "switched off" in done.err
    assert plain.run("search", "--code", "litres", cwd=tmp_path).code == 2


def test_while_the_memory_is_away(plain: Ragmem) -> None:
    """What the files hold is found all the same, and why no session is shown is said."""
    away = {"RAGMEM_STORE": "neo4j", "NEO4J_URI": "bolt://127.0.0.1:9", "NEO4J_PASSWORD": "x"}
    done = plain.ok("search", "--code", "litres", "--format", "json", env=away)
    assert done.json[0]["name"] == "litres"
    assert "What the memory has of this is not shown." in done.err

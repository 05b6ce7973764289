"""`ragmem search --code`, `ragmem files`: code, the sessions about it, what was decided there."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from ragmem.cli.files import Related, related_text
from ragmem.memory.files import CodePast, CodeSession
from ragmem.records import ChangedTogether, Evidence, MemoryRecord, Session
from tests.cli.coding import EVIL, garden, on_a_terminal, without_times
from tests.cli.process import Ragmem
from tests.e2e.house import House
from tests.fakes.llm_server import Answer, Call, LLMServer, Received

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
MORNING = "We decided to let Tank.drain run in the morning only."
CALLS = [
    Call("read_file", {"path": "water.py"}),
    Call("edit_file", {"path": "water.py", "old": "-= litres", "new": "-= 0.9 * litres"}),
    Call("read_file", {"path": "plan.py"}),
    Call("edit_file", {"path": "plan.py", "old": "(4, 7)", "new": "(5, 7)"}),
]


def answer(request: Received) -> Answer:
    """Edits when told of the decision; nothing is learned but by how decisions are spoken of."""
    if request.path.endswith("/embeddings"):
        return Answer()
    if request.body["model"] == "small":
        return Answer("{}")
    last = request.body["messages"][-1]
    asked = str(last["content"]).rpartition("</memory")[2]
    if last["role"] == "user" and "decided" in asked:
        return Answer(tools=CALLS)
    if last["role"] == "user" and "README" in asked:
        return Answer(tools=[Call("read_file", {"path": "README.md"})])
    return Answer("Done.")


@contextmanager
def indexed_garden(folder: Path) -> Iterator[Ragmem]:
    """The garden; what is left to the background is done before `ask` ends."""
    with LLMServer([answer], repeat=True) as server:
        env = {"RAGMEM_MODEL__SUMMARY": "openai/small", "RAGMEM_MEMORY__WORKER": "inline"}
        made = Ragmem(folder, {**server.env, **env})
        garden(made)
        (made.project / ".git").mkdir()
        made.ok("index")  # `ask` would not wait for it on a busy machine
        yield made


@pytest.fixture(scope="module")
def discussed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ragmem]:
    """A garden of which three sessions spoke; the file that the newest has read is gone since."""
    with indexed_garden(tmp_path_factory.mktemp("discussed")) as made:
        for name, words in (
            ("Mornings", ["--yolo", MORNING]),
            ("Tanks", ["Is `Tank` big enough?"]),
            ("Reading", ["What does the README say?"]),
        ):
            made.ok("sessions", "rename", made.session_of(*words), name)
        (made.project / "README.md").unlink()
        yield made


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Ragmem:
    """A garden of which nobody has spoken, with a folder in it and a name that is hostile."""
    made = Ragmem(tmp_path_factory.mktemp("plain"))
    garden(made)
    for folder in (".git", "beds"):
        (made.project / folder).mkdir()
    (made.project / "beds" / "mulch.py").write_text("def mulch() -> None: ...\n")
    (made.project / f"{EVIL}.md").write_text(f"# Fern {EVIL}\n\nFerns drink{EVIL} a lot.\n")
    made.ok("index", "--vectors")
    return made


def found(ragmem: Ragmem, *arguments: str, **options: Any) -> list[dict[str, Any]]:
    hits: list[dict[str, Any]] = ragmem.read("search", "--code", *arguments, **options)
    return hits


def of(ragmem: Ragmem, *arguments: str, **options: Any) -> list[dict[str, Any]]:
    known: list[dict[str, Any]] = ragmem.read("files", *arguments, **options)
    return known


def sessions(ragmem: Ragmem) -> dict[str, str]:
    """Ids by their titles."""
    return {session["title"]: session["session_id"] for session in ragmem.sessions()}


# --- search --code ------------------------------------------------------------


def test_a_question_in_words_finds_a_function(plain: Ragmem) -> None:
    first, *_ = found(plain, "how much do the plants drink")
    assert " ".join(first) == (
        "type id session_id turn_index level text path name start_line end_line score "
        "similarity timestamp why since kind signature defined sessions memories"
    )
    told = ("type", "kind", "path", "name", "defined", "sessions", "memories")
    assert [first[key] for key in told] == [
        "scope", "function", "water.py", "litres", True, [], []
    ]  # fmt: skip
    lines = (plain.project / "water.py").read_text().splitlines()
    shown = lines[first["start_line"] - 1 : first["end_line"]]
    assert first["text"].splitlines() == shown
    nulls = ("session_id", "turn_index", "level", "timestamp")
    assert [first[key] for key in nulls] == [None] * 4


def test_what_a_person_sees_of_a_method(plain: Ragmem) -> None:
    asked = ("search", "--code", "Tank.drain", "--no-semantic", "--limit", "1")
    began = ["  def drain(self, litres: float) -> None", "  Let some of it flow into the beds."]
    done = plain.ok(*asked)
    first, *rest = done.out.splitlines()
    assert first.startswith("Tank.drain · method · water.py:9-11 · found by its name Tank.drain")
    assert (rest, done.err) == (began, "")
    first, second, *rest = plain.ok(*asked, env={"COLUMNS": "40"}).out.splitlines()
    assert first == "Tank.drain · method · water.py:9-11"
    assert second.startswith("  found by its name Tank.drain")
    assert len(second) <= 40
    assert rest == began


def test_which_sessions_discussed_it_and_what_was_decided(discussed: Ragmem) -> None:
    """Each session with how, and the decision, for a method and for the
    class that it is in; one that only met it in a search is a session, but decided nothing."""
    ids = sessions(discussed)
    (drain, *_) = found(discussed, "Tank.drain")
    assert drain["name"] == "Tank.drain"
    [spoke] = drain["sessions"]
    told = (spoke["session_id"], spoke["how"][0], spoke["turn_count"], spoke["last_at"])
    assert told == (ids["Mornings"], "edited", 1, drain["timestamp"])
    assert [memory["kind"] for memory in drain["memories"]] == ["decision"]
    assert "in the morning" in drain["memories"][0]["content"]
    (tank, *_) = found(discussed, "Tank")
    assert tank["name"] == "Tank"
    assert [s["session_id"] for s in tank["sessions"]] == [ids["Tanks"], ids["Mornings"]]
    assert tank["sessions"][0]["how"] == ["named"]


def test_the_sessions_as_a_person_sees_them(discussed: Ragmem) -> None:
    done = discussed.ok("search", "--code", "Tank.drain", "--no-semantic", "--limit", "1")
    assert done.err == ""
    tail = done.out[done.out.index("  sessions") :]
    tail = tail.replace(sessions(discussed)["Mornings"][-8:], "SESSION")
    [memory] = discussed.read("memory", "list", "--kind", "decision")
    assert without_times(tail.replace(memory["id"][-8:], "MEMORY")) == snapshot("""\
  sessions
    SESSION  Mornings · edited · AGO
  decided there
    MEMORY  We decided to let Tank.drain run in the morning only. (decision · told by you · AGO)
""")
    words = discussed.ok("search", "--code", "let some flow into the beds", "--limit", "1").out
    assert "in 1 session, " in words
    assert "\n  sessions" not in words


def test_a_renamed_file_takes_its_past_along_and_what_is_gone_is_found_by_its_name(
    tmp_path: Path,
) -> None:
    with indexed_garden(tmp_path) as ragmem:
        ragmem.ok("ask", "--yolo", MORNING)
        rain = (ragmem.project / "water.py").rename(ragmem.project / "rain.py")
        ragmem.ok("index")
        [moved] = [hit for hit in found(ragmem, "Tank.drain") if hit["name"] == "Tank.drain"]
        assert (moved["path"], moved["defined"]) == ("rain.py", True)
        assert len(moved["sessions"]) == len(moved["memories"]) == 1
        rain.write_text("def rain() -> None: ...\n")
        (ragmem.project / "plan.py").unlink()
        ragmem.ok("index")
        gone, *others = found(ragmem, "Tank.drain")
        told = [gone[key] for key in ("name", "path", "text", "defined")]
        assert told == ["Tank.drain", "rain.py", "", False]
        assert len(gone["sessions"]) == 1
        assert all(hit["defined"] for hit in others)
        assert "was in rain.py" in ragmem.ok("search", "--code", "Tank.drain").out
        assert found(ragmem, "Tank.drain", "--limit", "1") == [gone]


def test_outside_of_the_folder_paths_say_so(plain: Ragmem) -> None:
    """The whole project is searched; what is elsewhere has its whole path."""
    inside = plain.project / "beds"
    out = plain.ok("search", "--code", "mulch litres", cwd=inside).out
    assert " · mulch.py:1 · " in out
    assert f"{plain.project}/water.py:14-16" in out.replace("\n  ", " · ")
    paths = {hit["path"] for hit in found(plain, "mulch litres", cwd=inside)}
    assert paths >= {"beds/mulch.py", "water.py"}


def test_names_that_steer_a_terminal(plain: Ragmem) -> None:
    done = plain.ok("search", "--code", "fern drink")
    assert "\\e]0;owned\\x07\\e[31m.md:1-3" in done.out
    assert "\x1b" not in done.out
    raw, _ = on_a_terminal(plain, "search", "--code", "fern drink", columns=40)
    assert b"\x1b]0;" not in raw
    assert b"\x1b[31m" not in raw


def test_what_is_only_near_is_said_to_be_and_what_is_not_there_too(plain: Ragmem) -> None:
    """By meaning something is always the nearest: a person is told that none of it is close."""
    done = plain.ok("search", "--code", "qzxwv")
    assert "Nothing shares a word with this" in done.err
    assert 0 < len([line for line in done.out.splitlines() if " · " in line]) <= 3
    done = plain.ok("search", "--code", "how much do the plants drink")
    assert "Nothing shares a word" not in done.err
    done = plain.ok("search", "--code", "qzxwv", "--no-semantic")
    assert (done.out, done.err) == ("", "No results.\n")
    assert found(plain, "qzxwv", "--no-semantic") == []


def test_without_a_memory_code_is_found(plain: Ragmem, tmp_path: Path) -> None:
    """And while it is away: why no session is shown is said."""
    off = {"RAGMEM_MEMORY__ENABLED": "false", "RAGMEM_HOME": str(tmp_path)}
    assert found(plain, "litres", env=off)[0]["name"] == "litres"
    assert not (tmp_path / "data" / "memory.db").exists()
    away = {"RAGMEM_STORE": "neo4j", "NEO4J_URI": "bolt://127.0.0.1:9", "NEO4J_PASSWORD": "x"}
    done = plain.ok("search", "--code", "litres", "--format", "json", env=away)
    assert done.json[0]["name"] == "litres"
    assert "Sessions and decisions are not shown." in done.err


# --- files --------------------------------------------------------------------


def test_what_is_known_of_a_file(discussed: Ragmem) -> None:
    [water] = of(discussed, "water.py")
    assert set(water) == {"path", "changed_with", "imports", "imported_by", "sessions", "memories"}
    assert (water["path"], water["imports"], water["imported_by"]) == ("water.py", [], ["plan.py"])
    [other] = water["changed_with"]
    assert (other["path"], other["turn_count"], other["session_count"]) == ("plan.py", 1, 1)
    [_, session] = water["sessions"]
    assert (session["title"], session["turn_count"]) == ("Mornings", 1)
    assert {"edited", "changed", "read"} <= set(session["how"])
    assert [memory["kind"] for memory in water["memories"]] == ["decision"]
    [plan] = of(discussed, "plan.py", "--related")
    assert (plan["imports"], plan["imported_by"]) == (["water.py"], [])
    [readme] = of(discussed, "README.md")
    assert ([s["title"] for s in readme["sessions"]], readme["memories"]) == (["Reading"], [])
    # Without the index the memory answers.
    [alone] = of(discussed, "water.py", env={"RAGMEM_CODE__ENABLED": "false"})
    assert alone == {**water, "imported_by": []}


def test_what_is_known_of_a_file_fits_its_terminal() -> None:
    """Of many what matters most, and how many more there are."""
    session = Session(
        session_id="01900000-0000-7000-8000-0000000000aa",
        cwd="/home/ana",
        project_id="p",
        title=f"Mornings {EVIL}",
        started_at=NOW,
        updated_at=NOW,
        last_activity_at=NOW,
    )
    spoke = CodeSession(session=session, hows=("edited", "changed"), turn_count=2, last_at=NOW)
    decided = MemoryRecord(
        memory_id="01900000-0000-7000-8000-0000000000bb",
        kind="decision",
        content="Tank.drain runs in the morning only.",
        created_at=NOW,
        updated_at=NOW,
        evidence=(Evidence(session_id=session.session_id, at=NOW),),
    )
    together = ChangedTogether(path="plan.py", turn_count=3, session_count=2, last_at=NOW)
    found = Related(
        path=f"src/{EVIL}.py",
        changed_with=(together,),
        imports=tuple(f"beds/bed_{number}.py" for number in range(7)),
        imported_by=("plan.py",),
        past=CodePast(session_count=8, last_at=NOW, sessions=(spoke,), memories=(decided,)),
    )
    later = NOW + timedelta(days=2)
    assert related_text([found], later, width=100) == snapshot("""\
src/\\e]0;owned\\x07\\e[31m.py
  changes with  plan.py (3 turns, 2 days ago)
  imports       beds/bed_0.py, beds/bed_1.py, beds/bed_2.py, beds/bed_3.py, beds/bed_4.py and 2 more
  imported by   plan.py
  sessions
    000000aa  Mornings \\e]0;owned\\x07\\e[31m · edited · 2 days ago
    and 7 more
  decided there
    000000bb  Tank.drain runs in the morning only. (decision · told by you · 2 days ago)
""")
    narrow = related_text([found], later, width=40)
    assert narrow.split() == related_text([found], later, width=100).split()
    assert max(map(len, narrow.splitlines())) <= 40
    assert related_text([found], later, width=60, brief=True) == snapshot("""\
src/\\e]0;owned\\x07\\e[31m.py
  changes with  plan.py (3 turns, 2 days ago)
  imports       beds/bed_0.py, beds/bed_1.py, beds/bed_2.py,
                beds/bed_3.py, beds/bed_4.py and 2 more
  imported by   plan.py
  touched in 8 sessions, last 2 days ago
  1 decision in them; see `ragmem files PATH`
""")


def test_of_the_session(discussed: Ragmem) -> None:
    ids = sessions(discussed)
    for flags, paths in (
        ([], {"README.md"}),
        (["-r", ids["Mornings"]], {"water.py", "plan.py"}),
        (["-r", ids["Tanks"]], set()),
    ):
        assert {each["path"] for each in of(discussed, "--related", *flags)} == paths


def test_of_many_files_the_latest_are_told_of_and_how_many_there_are(house: House) -> None:
    names = [f"bed{number}.py" for number in range(25)]
    reads = [Call("read_file", {"path": name}) for name in names]
    house.server.extend(Answer(tools=reads))
    for name in names:
        (house.project / name).write_text("A = 1\n")
    house.ok("ask", "Read the beds.")
    assert {each["path"] for each in of(house)} == set(names)
    done = house.ok("files", "--related")
    assert done.err.startswith("The latest 20 of 25 files. `ragmem files PATH` shows any other;")
    assert len(of(house, "--related")) == 20


def test_paths_are_those_from_the_folder(discussed: Ragmem) -> None:
    """As one types them: from a folder inside, absolute, with dots."""
    inside = discussed.project / "beds"
    inside.mkdir()
    for typed in ("../water.py", str(discussed.project / "water.py"), "./../beds/../water.py"):
        [water] = of(discussed, typed, cwd=inside)
        assert water["path"] == "water.py"
        assert water["sessions"]


def test_of_a_file_that_nothing_is_known_of(plain: Ragmem) -> None:
    (plain.project / "lone.txt").write_text("\n")
    said = "No session has touched lone.txt, and no indexed file imports it.\n"
    done = plain.ok("files", "lone.txt")
    assert (done.out, done.err) == ("", said)
    assert plain.ok("files", f"no{EVIL}.py").err == (
        "No file no\\e]0;owned\\x07\\e[31m.py. Paths are relative to this folder.\n"
    )
    nothing = ("changed_with", "imports", "imported_by", "sessions", "memories")
    assert of(plain, "none.py") == [{"path": "none.py"} | {key: [] for key in nothing}]


def test_what_the_agent_has_changed_since(discussed: Ragmem) -> None:
    """What changed since an age, a date, the end of a session; reads are no changes."""
    older = sessions(discussed)["Mornings"]
    for since in ("1h", "2w", "2026-01-01", "2026-01-01T10:00"):
        changed = of(discussed, "--since", since)
        assert {(f["path"], f["turn_count"], *f["session_ids"]) for f in changed} == {
            ("water.py", 1, older),
            ("plan.py", 1, older),
        }
    assert set(changed[0]) == {"path", "turn_count", "session_ids", "timestamp"}
    assert of(discussed, "--since", "2999-01-01") == []
    done = discussed.ok("files", "--since", "Mornings")
    assert (done.out, done.err) == ("", "The agent has changed no files here since then.\n")
    shown = discussed.ok("files", "--since", "1h").out.replace(older[-8:], "SESSION_")
    rows = [row.split() for row in without_times(shown).splitlines()]
    assert rows[0] == ["CHANGED", "TURNS", "SESSION", "PATH"]
    assert sorted(rows[1:]) == [["AGO", "1", "SESSION_", name] for name in ("plan.py", "water.py")]


def test_on_a_terminal_of_40_columns(discussed: Ragmem) -> None:
    for typed in ("files water.py", "files --related -r Mornings", "search --code Tank.drain"):
        raw, rows = on_a_terminal(discussed, *typed.split(), columns=40)
        assert rows
        assert b"\x1b]" not in raw
        assert all(len(row) <= 40 for row in rows)

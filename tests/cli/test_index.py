"""`ragmem index`: the code index from nothing, brought up to date, looked at, followed."""

import fcntl
import os
import select
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from tests.cli.coding import EVIL, garden, many, on_a_terminal, without_times
from tests.cli.process import Ragmem


@pytest.fixture
def ragmem(ragmem: Ragmem) -> Ragmem:
    """In the garden."""
    garden(ragmem)
    return ragmem


def test_the_first_time_the_next_and_all_anew(ragmem: Ragmem) -> None:
    """Only what changed is read again; a quiet line says so, what was left out once."""
    ragmem.env["COLUMNS"] = "200"
    (ragmem.project / "photo.png").write_bytes(b"\x89PNG\0\0")
    (ragmem.project / ".env").write_text("KEY=1\n")

    def index() -> list[str]:
        done = ragmem.ok("index")
        assert done.err == ""
        return told(done.out)

    waiting = "N s. 2 without embeddings: run `ragmem index --vectors`."
    assert index() == [
        "3 files, 8 scopes",
        waiting.replace("2", "7"),
        "Left out: 1 binary, 1 secret.",
    ]
    (ragmem.project / "plan.py").unlink()
    (ragmem.project / "water.py").write_text("def rain() -> None: ...\n")
    assert index() == ["2 files, 2 scopes", "1 changed, 1 removed", waiting]
    assert index() == ["2 files, 2 scopes", "nothing changed", waiting]
    assert len(ragmem.read("index", "--rebuild")["changed"]) == 2
    assert ragmem.read("index", "--vectors")["without_vectors"] == 0
    assert index() == ["2 files, 2 scopes", "nothing changed", "N s."]


def told(out: str) -> list[str]:
    """The parts of the line, and the lines below it."""
    return [part for row in without_times(out).splitlines() for part in row.split("; ")]


def test_as_json(ragmem: Ragmem) -> None:
    done = ragmem.read("index")
    assert " ".join(done) == (
        "path files scopes languages left_out without_vectors refreshed_at size_bytes watched "
        "being_made changed removed seconds"
    )
    assert done["path"] == str(ragmem.project)
    assert sorted(done["changed"]) == ["README.md", "plan.py", "water.py"]
    assert done["languages"] == {"python": 2, "markdown": 1}
    status = ragmem.read("index", "--status")
    assert set(done) - set(status) == {"changed", "removed", "seconds"}
    assert (status["files"], status["scopes"]) == (done["files"], done["scopes"])
    assert status["being_made"] is False


def test_status(ragmem: Ragmem) -> None:
    done = ragmem.ok("index", "--status")
    assert (done.out, done.err) == ("", "This project is not indexed yet; run `ragmem index`.\n")
    empty = ragmem.read("index", "--status")
    assert (empty["files"], empty["refreshed_at"]) == (0, None)
    ragmem.ok("index")
    shown = ragmem.ok("index", "--status").out.replace(str(ragmem.project), "PROJECT")
    assert without_times(shown) == snapshot("""\
project    PROJECT
files      3: 2 python, 1 markdown
scopes     8
embeddings 7 missing
left out   nothing
updated    AGO
watched    no
size       N MB
""")
    off = ragmem.ok("index", "--status", env={"RAGMEM_CODE__VECTORS": "false"}).out
    assert "\nembeddings turned off in the settings\n" in off
    ragmem.ok("index", "--vectors")
    assert "\nembeddings complete\n" in ragmem.ok("index", "--status").out


def test_nothing_to_index(tmp_path: Path) -> None:
    ragmem = Ragmem(tmp_path, {"COLUMNS": "400"})
    done = ragmem.ok("index")
    assert done.out == f"No files to index in {ragmem.project}.\n"
    (ragmem.project / "photo.png").write_bytes(b"\x89PNG\0\0")
    assert ragmem.ok("index").out.endswith("\nLeft out: 1 binary.\n")
    (ragmem.project / "a.py").write_text("def a() -> None: ...\n")
    assert ragmem.ok("index").out.startswith("1 file, 1 scope; 1 changed; ")
    (ragmem.project / "a.py").unlink()
    assert ragmem.ok("index").out.startswith("0 files, 0 scopes; 1 removed; ")


def test_switched_off(ragmem: Ragmem) -> None:
    said = "error: The code index is turned off.\n"
    assert ragmem.refused("index", env={"RAGMEM_CODE__ENABLED": "false"}) == (
        f"{said}RAGMEM_CODE__ENABLED is set in the environment: unset it, or set it to true.\n"
    )
    ragmem.ok("config", "set", "code.enabled", "false")
    assert ragmem.refused("index") == (
        f"{said}`ragmem config set code.enabled true` turns it on.\n"
    )


def test_a_search_says_while_vectors_are_missing(ragmem: Ragmem) -> None:
    """Text search is there at once, vectors follow; what is not yet found so is said."""
    ragmem.ok("index")
    asked = ("search", "--code", "how much do the plants drink")
    note = (
        "note: 7 pieces of code have no embedding yet and can only be found by words: "
        "`ragmem index --vectors` computes them.\n"
    )
    assert ragmem.ok(*asked).err == ragmem.ok(*asked, "--format", "json").err == note
    assert ragmem.ok(*asked, "--no-semantic").err == ""
    assert ragmem.ok(*asked, env={"RAGMEM_CODE__VECTORS": "false"}).err == ""
    made = ragmem.ok(*asked, env={"RAGMEM_MEMORY__WORKER": "inline"})
    assert "they are being computed.\n" in made.err
    ragmem.ok("index", "--vectors")
    assert ragmem.ok(*asked).err == ""


def test_watching(ragmem: Ragmem, tmp_path: Path) -> None:
    def moved_in(name: str, text: str) -> None:
        # Made here and filled a moment later it could be two changes.
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(ragmem.project / name)

    with ragmem.start("index", "--watch") as process:
        assert b"3 files" in process.stdout.readline()
        assert b"Watching" in process.stderr.readline()
        while "\nwatched    yes, as files change\n" not in ragmem.ok("index", "--status").out:
            assert process.poll() is None
        moved_in("shed.py", "def shed() -> None: ...\n")
        assert b"  changed shed.py (" in process.stdout.readline()
        (ragmem.project / "plan.py").unlink()
        assert b"  removed plan.py (" in process.stdout.readline()
        moved_in(f"{EVIL}.py", "def evil() -> None: ...\n")
        assert b"  changed \\e]0;owned\\x07\\e[31m.py (" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert (process.returncode, err) == (130, b"")
    assert ragmem.read("index", "--status")["watched"] is False
    assert ragmem.ok("index").out.startswith("4 files, ")


def test_status_of_an_index_that_is_just_being_made(ragmem: Ragmem) -> None:
    """By a chat or a rebuild, say: nobody has to run `ragmem index`."""
    ragmem.ok("index")
    (database,) = (ragmem.home / "data" / "code").glob("*.sqlite")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE state SET refreshed_at = ''")
    held = os.open(database.with_suffix(".refresh.lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        told = ragmem.ok("index", "--status").out
        assert "\nupdated    being indexed\n" in told
        assert ragmem.read("index", "--status")["being_made"] is True
        database.unlink()
        begun = ragmem.ok("index", "--status").err
        assert begun == "This project is being indexed.\n"
    finally:
        os.close(held)


def test_interrupted(ragmem: Ragmem) -> None:
    many(ragmem.project / "beds", 600)
    process = ragmem.start("index")
    while not (ragmem.home / "data" / "code").is_dir() and process.poll() is None:
        select.select([], [], [], 0.01)
    process.send_signal(signal.SIGINT)
    assert process.communicate()[0] == b""
    assert process.returncode == 130
    begun = ragmem.read("index", "--status")
    assert begun["refreshed_at"] is None
    if begun["files"]:
        told = ragmem.ok("index", "--status").out
        assert "\nupdated    incomplete; `ragmem index` continues\n" in told
    said = ragmem.ok("index").out
    assert said.startswith("603 files, ")
    assert ragmem.read("index")["files"] == 603


def test_a_line_on_a_terminal_and_tenths_in_a_pipe(ragmem: Ragmem) -> None:
    """While many are read; then the line alone is left. At 40 columns too."""
    many(ragmem.project / "beds", 250)
    raw, rows = on_a_terminal(ragmem, "index", columns=40)
    assert b"indexing" in raw
    assert b" of 253" in raw
    waiting = "N s. 257 without embeddings: run `ragmem index --vectors`."
    assert told(" ".join(rows)) == ["253 files, 258 scopes", waiting]
    assert max(map(len, rows)) <= 40
    raw, rows = on_a_terminal(ragmem, "index")
    assert b"indexing" not in raw
    assert told(" ".join(rows)) == ["253 files, 258 scopes", "nothing changed", waiting]
    _, rows = on_a_terminal(ragmem, "index", "--status", columns=40)
    assert max(map(len, rows)) <= 40
    said = ragmem.ok("index", "--rebuild").err.splitlines()
    assert said[-1] == "indexing: 253 of 253"
    assert len(said) <= 11


def test_doctor_and_stats_tell_of_it(ragmem: Ragmem) -> None:
    def checked() -> str:
        rows = ragmem.run("doctor").out.splitlines()
        return next(row for row in rows if row[7:].startswith("code "))

    assert ragmem.read("stats")["code"] is None
    assert checked() == (
        "ok     code        this project is not indexed yet; `ragmem index` or "
        "a chat here indexes it"
    )
    ragmem.ok("index")
    code = ragmem.read("stats")["code"]
    assert " ".join(code) == "files scopes without_vectors size_bytes"
    assert "\ncode       3 files, " in ragmem.ok("stats").out
    assert checked().startswith("ok     code        3 files, ")

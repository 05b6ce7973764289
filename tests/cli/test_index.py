"""`ragmem index`: the code index from nothing, brought up to date, looked at, followed."""

import select
import signal
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from tests.cli.coding import EVIL, garden, many, on_a_terminal, without_times
from tests.cli.process import Ragmem, Started


@pytest.fixture
def ragmem(tmp_path: Path) -> Ragmem:
    """In the garden."""
    made = Ragmem(tmp_path)
    garden(made)
    return made


def test_the_first_time_and_the_next(ragmem: Ragmem) -> None:
    """Only what changed is read again; a quiet line says so, what was left out once."""
    ragmem.env["COLUMNS"] = "200"
    (ragmem.project / "photo.png").write_bytes(b"\x89PNG\0\0")
    (ragmem.project / ".env").write_text("KEY=1\n")
    first = ragmem.run("index")
    assert (first.code, first.err) == (0, "")
    assert told(first.out) == [
        "3 files, 8 scopes",
        "N s. 7 have no vectors: `ragmem index --vectors` makes them.",
        "Left out: 1 binary, 1 secret.",
    ]
    (ragmem.project / "plan.py").unlink()
    (ragmem.project / "water.py").write_text("def rain() -> None: ...\n")
    second = ragmem.run("index")
    assert (second.code, second.err) == (0, "")
    waiting = "N s. 2 have no vectors: `ragmem index --vectors` makes them."
    assert told(second.out) == ["2 files, 2 scopes", "1 changed, 1 removed", waiting]
    assert told(ragmem.run("index").out) == ["2 files, 2 scopes", "nothing changed", waiting]


def told(out: str) -> list[str]:
    """The parts of the line, and the lines below it."""
    return [part for row in without_times(out).splitlines() for part in row.split("; ")]


def test_as_json(ragmem: Ragmem) -> None:
    done = ragmem.run("index", "--format", "json").json
    assert " ".join(done) == (
        "path files scopes languages left_out without_vectors refreshed_at size_bytes watched "
        "changed removed seconds"
    )
    assert done["path"] == str(ragmem.project)
    assert sorted(done["changed"]) == ["README.md", "plan.py", "water.py"]
    assert done["languages"] == {"python": 2, "markdown": 1}
    status = ragmem.run("index", "--status", "--format", "json").json
    assert set(done) - set(status) == {"changed", "removed", "seconds"}
    assert {key: status[key] for key in ("files", "scopes")} == {
        key: done[key] for key in ("files", "scopes")
    }


def test_status(ragmem: Ragmem) -> None:
    done = ragmem.run("index", "--status")
    assert (done.code, done.out) == (0, "")
    assert done.err == "Nothing of this project is indexed yet. `ragmem index` does it.\n"
    empty = ragmem.run("index", "--status", "--format", "json").json
    assert (empty["files"], empty["refreshed_at"]) == (0, None)
    ragmem.run("index")
    (ragmem.project / "new.py").write_text("def new() -> None: ...\n")
    shown = ragmem.run("index", "--status").out.replace(str(ragmem.project), "PROJECT")
    assert without_times(shown) == snapshot("""\
project    PROJECT
files      3: 2 python, 1 markdown
scopes     8
vectors    7 to go
left out   nothing
looked at  AGO
watched    no
size       N MB
""")
    off = ragmem.run("index", "--status", env={"RAGMEM_CODE__VECTORS": "false"}).out
    assert "\nvectors    none are made, as the settings say\n" in off
    ragmem.run("index", "--vectors")
    assert "\nvectors    all made\n" in ragmem.run("index", "--status").out


def test_nothing_to_index(tmp_path: Path) -> None:
    ragmem = Ragmem(tmp_path, {"COLUMNS": "400"})
    done = ragmem.run("index")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"There is no file to be indexed in {ragmem.project}.\n"
    (ragmem.project / "photo.png").write_bytes(b"\x89PNG\0\0")
    assert ragmem.run("index").out.endswith("\nLeft out: 1 binary.\n")
    assert ragmem.run("index", "--format", "json").json["files"] == 0
    (ragmem.project / "a.py").write_text("def a() -> None: ...\n")
    assert ragmem.run("index").out.startswith("1 file, 1 scope; 1 changed; ")
    (ragmem.project / "a.py").unlink()
    assert ragmem.run("index").out.startswith("0 files, 0 scopes; 1 removed; ")


def test_vectors_now(ragmem: Ragmem) -> None:
    """What waits for the background otherwise is done when it returns; then nothing waits."""
    waiting = ragmem.run("index", "--format", "json").json["without_vectors"]
    assert waiting > 0
    said = ragmem.run("index").out
    assert f"{waiting} have no vectors: `ragmem index --vectors` makes them." in said
    assert ragmem.run("index", "--vectors", "--format", "json").json["without_vectors"] == 0
    assert "vectors" not in ragmem.run("index").out


def test_switched_off(ragmem: Ragmem) -> None:
    done = ragmem.run("index", env={"RAGMEM_CODE__ENABLED": "false"})
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: The code index is switched off.\n"
        "RAGMEM_CODE__ENABLED is set in the environment: unset it, or set it to true.\n"
    )
    ragmem.run("config", "set", "code.enabled", "false")
    assert ragmem.run("index").err == (
        "error: The code index is switched off.\n"
        "`ragmem config set code.enabled true` switches it on.\n"
    )
    ragmem.run("config", "set", "code.enabled", "true")
    for setting in ("RAGMEM_MEMORY__EMBEDDINGS__ENABLED", "RAGMEM_CODE__VECTORS"):
        done = ragmem.run("index", "--vectors", env={setting: "false"})
        assert (done.code, done.out) == (2, "")
        assert "embedded here." in done.err


def test_a_search_says_while_vectors_are_missing(ragmem: Ragmem) -> None:
    """Text search is there at once, vectors follow; what is not yet found so is said."""
    ragmem.run("index")
    asked = ("search", "--code", "how much do the plants drink")
    note = (
        "note: 7 pieces of the code have no vectors yet and can be found by words alone: "
        "`ragmem index --vectors` makes them.\n"
    )
    assert ragmem.run(*asked).err == note
    assert ragmem.run(*asked, "--no-semantic").err == ""
    assert ragmem.run(*asked, env={"RAGMEM_CODE__VECTORS": "false"}).err == ""
    assert ragmem.run(*asked, "--format", "json").err == note
    assert (
        "they are being made.\n" in ragmem.run(*asked, env={"RAGMEM_MEMORY__WORKER": "inline"}).err
    )
    ragmem.run("index", "--vectors")
    assert ragmem.run(*asked).err == ""


def test_watching(ragmem: Ragmem, tmp_path: Path) -> None:

    def moved_in(name: str, text: str) -> None:
        # Made here and filled a moment later it could be two changes.
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(ragmem.project / name)

    process = ragmem.start("index", "--watch")
    try:
        assert b"3 files" in _line(process)
        assert b"Watching" in _line(process, stream="stderr")
        while "\nwatched    yes, as files change\n" not in ragmem.run("index", "--status").out:
            assert process.poll() is None
        moved_in("shed.py", "def shed() -> None: ...\n")
        assert b"  changed shed.py (" in _line(process)
        (ragmem.project / "plan.py").unlink()
        assert b"  removed plan.py (" in _line(process)
        moved_in(f"{EVIL}.py", "def evil() -> None: ...\n")
        assert b"  changed \\e]0;owned\\x07\\e[31m.py (" in _line(process)
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert ragmem.run("index", "--status", "--format", "json").json["watched"] is False
    assert ragmem.run("index").out.startswith("4 files, ")


def _line(process: Started, stream: str = "stdout") -> bytes:
    """The next one; the process was started without buffers, which would hide a second one."""
    pipe = getattr(process, stream)
    ready, _, _ = select.select([pipe], [], [], 60)
    assert ready, "nothing came"
    line: bytes = pipe.readline()
    return line


def test_interrupted(ragmem: Ragmem) -> None:
    many(ragmem.project / "beds", 1_500)
    process = ragmem.start("index")
    for _ in range(6_000):
        if (ragmem.home / "data" / "code").is_dir() or process.poll() is not None:
            break
        select.select([], [], [], 0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert out == b""
    begun = ragmem.run("index", "--status", "--format", "json").json
    assert begun["refreshed_at"] is None
    if begun["files"]:
        told = ragmem.run("index", "--status").out
        assert "\nlooked at  not yet to the end; `ragmem index` goes on\n" in told
    said = ragmem.run("index").out
    went_on = f"; went on with the first index, of which {1_503 - begun['files']:,} were left; "
    assert said.startswith("1,503 files, ")
    assert (went_on in said) == (begun["files"] > 0)
    assert ragmem.run("index", "--format", "json").json["files"] == 1_503


def test_a_line_on_a_terminal(ragmem: Ragmem) -> None:
    """While many are read; then the line alone is left. At 40 columns too."""
    many(ragmem.project / "beds", 400)
    raw, rows = on_a_terminal(ragmem, "index", columns=40)
    assert b"indexing" in raw
    assert b" of 403" in raw
    waiting = "N s. 407 have no vectors: `ragmem index --vectors` makes them."
    assert told(" ".join(rows)) == ["403 files, 408 scopes", waiting]
    assert max(map(len, rows)) <= 40
    raw, rows = on_a_terminal(ragmem, "index")
    assert b"indexing" not in raw
    assert told(" ".join(rows)) == ["403 files, 408 scopes", "nothing changed", waiting]
    _, rows = on_a_terminal(ragmem, "index", "--status", columns=40)
    assert max(map(len, rows)) <= 40


def test_in_a_pipe_tenths_are_told(ragmem: Ragmem) -> None:
    many(ragmem.project / "beds", 400)
    said = ragmem.run("index").err.splitlines()
    assert said[-1] == "indexing: 403 of 403"
    assert len(said) <= 11


def test_doctor_and_stats_tell_of_it(ragmem: Ragmem) -> None:
    assert ragmem.run("stats", "--format", "json").json["code"] is None
    told = [row for row in ragmem.run("doctor").out.splitlines() if row[7:].startswith("code ")]
    assert told == [
        "ok     code        nothing of this folder yet; `ragmem index` or a chat here makes it"
    ]
    ragmem.run("index")
    assert (
        " ".join(ragmem.run("stats", "--format", "json").json["code"])
        == "files scopes without_vectors size_bytes"
    )
    assert "\ncode       3 files, " in ragmem.run("stats").out
    told = [row for row in ragmem.run("doctor").out.splitlines() if row[7:].startswith("code ")]
    assert told[0].startswith("ok     code        3 files, ")


def test_rebuild_reads_all_again(ragmem: Ragmem) -> None:
    ragmem.run("index")
    again = ragmem.run("index", "--rebuild", "--format", "json").json
    assert len(again["changed"]) == 3

"""`scripts/bench --only code`: questions whose answer is known, and copies without it."""

import json
from pathlib import Path

import pytest

from tests.fakes.bench import SPREAD, bench, shown, texts_of

PYTHON = '''\
def parse_duration(text):
    """Turn a text such as 5m or 2h into parse duration seconds for timers."""
    return float(text[:-1]) * 60


class Clock:
    """Tells people in every time zone which hour has come."""

    def wind(self):
        """
        Wind the Clock so that its spring drives both hands slowly forward.

        At night.
        """
        return 1
'''
GO = """\
package a

// Serve answers requests of clients until their connection closes again.
// It blocks.
func Serve() {}
"""
NOTES = """\
* Fixed ``parse_duration()`` which returned wrong numbers for negative hours
  and half days (:ticket:`12`).
* :meth:`Clock.wind` and :class:`Clock` name two things at once, so neither is asked about.
"""
MAKE = """
import json, sys
from benches.code_questions import (
    Placed, entries_of, of_docstrings, of_release_notes, without_docstrings)
from ragmem.index.cut import cut

given = json.load(sys.stdin)
placed = [Placed(path, scope) for path, text in given["files"].items()
          for scope in cut(path, text.encode()).scopes]
asked = of_docstrings(placed, 10, "seed")
asked += of_release_notes(entries_of(given["notes"]), placed, 10, "seed")
bare = {path: without_docstrings(text, [p.scope for p in placed if p.path == path])
        for path, text in given["files"].items()}
left = [s.docstring for path, text in bare.items() for s in cut(path, text.encode()).scopes]
json.dump({"asked": [[q.text, q.path, q.qualified_name, q.origin] for q in asked],
           "bare": bare, "left": left}, sys.stdout)
"""


@pytest.fixture(scope="module")
def made() -> dict[str, list[list[str]]]:
    given = json.dumps({"files": {"clock.py": PYTHON, "serve.go": GO}, "notes": NOTES})
    found: dict[str, list[list[str]]] = json.loads(bench("-c", MAKE, stdin=given))
    return found


def test_no_question_names_its_answer(made: dict[str, list[list[str]]]) -> None:
    """Neither the name nor all the words of it, nor the class that it is in."""
    asked = {name: text for text, _, name, origin in made["asked"] if origin[0] == "d"}
    assert asked == {
        "parse_duration": "Turn a text such as 5m or 2h into seconds for timers.",
        "Clock": "Tells people in every time zone which hour has come.",
        "Clock.wind": "the so that its spring drives both hands slowly forward.",
        "Serve": "answers requests of clients until their connection closes again.",
    }


def test_an_entry_that_names_one_thing_is_a_question(made: dict[str, list[list[str]]]) -> None:
    asked = [each for each in made["asked"] if each[3] == "release notes"]
    assert asked == [
        [
            "Fixed which returned wrong numbers for negative hours and half days .",
            "clock.py",
            "parse_duration",
            "release notes",
        ]
    ]


def test_half_of_the_docstrings_are_taken_out(made: dict[str, list[list[str]]]) -> None:
    origins = [each[3] for each in made["asked"] if each[3] != "release notes"]
    assert origins == ["docstring left in", "docstring taken out"] * 2


def test_a_copy_has_the_same_lines_without_docstrings(made: dict[str, list[list[str]]]) -> None:
    assert not any(made["left"])
    for path, source in (("clock.py", PYTHON), ("serve.go", GO)):
        bare = dict(made["bare"])[path]
        assert bare.count("\n") == source.count("\n")
        kept = [line for line in source.split("\n") if line.startswith(("def", "class", "func"))]
        assert [line for line in bare.split("\n") if line in kept] == kept


def test_what_was_measured_is_shown_and_drawn(tmp_path: Path) -> None:
    """A search below 50 ms at 50,000 scopes, say, and what misses its target."""
    asked = "docstring taken out"
    found = [
        {
            "base": "Django", "way": way, "recalls": {asked: [0.1, 0.2, 0.3, 0.4]},
            "questions": {asked: 150}, "spread": SPREAD,
        }
        for way in ("ripgrep", "ragmem, words")
    ]  # fmt: skip
    indexed = {
        "name": "Django", "language": "Python", "files": 5000, "scopes": 40_000,
        "source_bytes": 10_000_000, "first_s": 31.0, "recheck_s": 0.3, "change_s": 0.1,
        "embed_s": 300.0, "index_bytes": 90_000_000, "first_rss_bytes": 300_000_000,
    }  # fmt: skip
    searched = [
        {
            "files": 9, "way": "ragmem, words and meaning", "first": 3.0, "scopes": scopes,
            "spread": SPREAD | {"p95": 51.0},
        }
        for scopes in (50_009, 100_000)
    ]  # fmt: skip
    told = shown(
        tmp_path,
        whole={"type": "code", "indexed": [indexed], "found": found},
        slow={"type": "code", "searched": searched},
    )
    code, said, drawn = told["whole"]
    assert code == 1, "a missed target is told"
    assert "MISSED" in said
    assert ".100 / .200 / .300 / .400" in said
    assert any("Django" in each for each in drawn["code-docstrings"])
    assert "code-notes" not in drawn
    code, said, _ = told["slow"]
    assert code == 1
    assert [line.split()[-1] for line in said.splitlines()[1:]] == ["MISSED", "ok"]


GATHER = """
import hashlib, io, sys, tarfile
from pathlib import Path
from benches import code_bases
from benches.code_bases import Release, gathered
from benches.results import CannotMeasure

code_bases.CACHE = cache = Path(sys.argv[1])
made = []
for name, count in (("one", 2), ("two", 3)):
    with tarfile.open(cache / f"{name}-1.0.tar.gz", "w:gz") as archive:
        for number in range(count):
            for suffix in ("py", "txt"):
                entry = tarfile.TarInfo(f"{name}-1.0/src/m{number}.{suffix}")
                entry.size = 2
                archive.addfile(entry, io.BytesIO(b"1\\n"))
    data = (cache / f"{name}-1.0.tar.gz").read_bytes()
    made.append(Release(name, "1.0", hashlib.sha256(data).hexdigest()))
folder = gathered(made, 4)
print(*sorted(str(file.relative_to(folder)) for file in folder.rglob("*.py")))
try:
    gathered(made, 6)
except CannotMeasure as problem:
    print(problem)
(cache / "one-1.0.tar.gz").rename(cache / "three-1.0.tar.gz")
try:
    gathered([Release("three", "1.0", "0" * 64)], 1)
except CannotMeasure as problem:
    print("SHA-256" in str(problem), (cache / "three-1.0").exists())
"""
MAKE_INDEX = """
import asyncio, sys
from pathlib import Path
import msgspec
from benches import code_making
from benches.code import Codes
from benches.code_bases import Base, copied
from benches.code_making import Place, make

def project():
    return Path(sys.argv[2])

base = Base(name="small", language="Python", get=project, suffix=".py", notes=[], asked=False)
code_making._EMBED_S = 500.0
place = Place(Path(sys.argv[1]))
got = copied(base, place.root)
made = asyncio.run(make(place, base, got.size_bytes))
print(msgspec.json.encode(Codes([made])).decode())
"""
MEASURE_NOTHING = """
from benches.code_making import Memory

with Memory() as measured:
    pass
print(measured.most_of_one_bytes, measured.most_bytes)
"""
SEARCH = """
import asyncio, shutil, sys
from pathlib import Path
import msgspec
from benches.code import Codes, joined
from benches.code_latency import measure_latency
from benches.code_making import Place
from ragmem.embedder.models import OnnxEmbedder

async def indexed(place):
    index = place.index(OnnxEmbedder())
    await index.refresh()
    await index.aclose()

if __name__ == "__main__":
    folder, project = map(Path, sys.argv[1:])
    place = Place(folder / "code")
    shutil.copytree(project, place.root)
    asyncio.run(indexed(place))
    parts = [Codes(searched=each) for each in measure_latency(place, folder / "part", (5, 1000))]
    print(msgspec.json.encode(joined(parts)).decode())
"""
WORDS = (
    *("harvest", "water", "morning", "garden", "winter"),
    *("pumpkin", "cherry", "barrel", "shovel", "fence"),
)


def test_a_large_code_base_is_gathered_from_releases(tmp_path: Path) -> None:
    """Real files, of archives that are what they were when they were chosen."""
    script = tmp_path / "gather.py"
    script.write_text(GATHER)
    files, too_few, refused = bench(script, tmp_path).splitlines()
    assert files == "one/src/m0.py one/src/m1.py two/src/m0.py two/src/m1.py"
    assert too_few == "there are 5 files, not 6"
    assert refused == "True False", "another archive is not unpacked"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Ten files of ten functions."""
    folder = tmp_path / "project"
    folder.mkdir()
    for number, first in enumerate(WORDS):
        functions = (
            f'def do_{number}_{n}():\n    """Bring the {first} to the {second} before the old'
            f' {WORDS[n - 1]} freezes."""\n    return {n}\n'
            for n, second in enumerate(WORDS)
        )
        (folder / f"m{number}.py").write_text("\n\n".join(functions))
    return folder


def test_memory_is_measured_however_short_the_time(tmp_path: Path) -> None:
    script = tmp_path / "measure.py"
    script.write_text(MEASURE_NOTHING)
    of_one, of_all = map(int, bench(script).split())
    assert 1_000_000 < of_one <= of_all


@pytest.mark.campaign
def test_what_an_index_costs_is_measured(tmp_path: Path, project: Path) -> None:
    """Time to searchable, looked at again, a changed and a new file, memory."""
    script, kept = tmp_path / "make.py", tmp_path / "code.json"
    script.write_text(MAKE_INDEX)
    kept.write_text(bench(script, tmp_path / "bench", project))
    (made,) = json.loads(kept.read_text())["indexed"]
    assert (made["files"], made["scopes"]) == (10, 100)
    times = [value for key, value in made.items() if key.endswith("_s")]
    assert len(times) == 11
    assert all(0 < each < 600 for each in times)
    assert made["vectors_rate"] == pytest.approx(100 / made["embed_s"], rel=0.01)
    assert 0 < made["process_rss_bytes"] <= made["first_rss_bytes"]
    assert "small" in bench("-m", "benches", "--measured", kept)


@pytest.mark.campaign
def test_searches_are_measured_at_several_sizes(tmp_path: Path, project: Path) -> None:
    """P95 by the number of scopes, beside plain ways."""
    script, kept = tmp_path / "search.py", tmp_path / "code.json"
    script.write_text(SEARCH)
    kept.write_text(bench(script, tmp_path / "bench", project))
    by_scopes: dict[int, list[str]] = {}
    for row in json.loads(kept.read_text())["searched"]:
        by_scopes.setdefault(row["scopes"], []).append(row["way"])
    plain = ["vectors alone", "BM25 over lines", "ripgrep"]
    ways = ["ragmem, words and meaning", "ragmem, words", *plain]
    assert by_scopes == {10: ways, 100: ways}, "whole files, until there are enough"
    assert "BM25 over lines" in bench("-m", "benches", "--measured", kept, "--plot", tmp_path)
    drawn = texts_of(tmp_path / "code-search.svg")
    assert any("words and meaning, p95" in each for each in drawn)

"""`scripts/bench --only code`: questions whose answer is known, and copies without it."""

import hashlib
import io
import itertools
import json
import tarfile
from pathlib import Path

import pytest
from benches import code_bases
from benches.code_bases import Release, gathered
from benches.code_making import Memory
from benches.code_questions import (
    Placed,
    entries_of,
    of_docstrings,
    of_release_notes,
    without_docstrings,
)
from benches.results import CannotMeasure

from ragmem.index.cut import cut
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

FILES = {"clock.py": PYTHON, "serve.go": GO}


def scopes_of(files: dict[str, str]) -> list[Placed]:
    """All that is defined in files."""
    return [
        Placed(path, scope)
        for path, text in files.items()
        for scope in cut(path, text.encode()).scopes
    ]


def test_no_question_names_its_answer() -> None:
    """Neither the name nor all the words of it, nor the class that it is in."""
    asked = of_docstrings(scopes_of(FILES), 10, "seed")
    assert {each.qualified_name: each.text for each in asked} == {
        "parse_duration": "Turn a text such as 5m or 2h into seconds for timers.",
        "Clock": "Tells people in every time zone which hour has come.",
        "Clock.wind": "the so that its spring drives both hands slowly forward.",
        "Serve": "answers requests of clients until their connection closes again.",
    }
    left_in_or_out = ["docstring left in", "docstring taken out"] * 2
    assert [each.origin for each in asked] == left_in_or_out, "of half they are taken out"


def test_an_entry_that_names_one_thing_is_a_question() -> None:
    [asked] = of_release_notes(entries_of(NOTES), scopes_of(FILES), 10, "seed")
    assert asked.text == "Fixed which returned wrong numbers for negative hours and half days ."
    assert (asked.path, asked.qualified_name) == ("clock.py", "parse_duration")
    assert asked.origin == "release notes"


def test_a_copy_has_the_same_lines_without_docstrings() -> None:
    for path, source in FILES.items():
        bare = without_docstrings(source, [each.scope for each in scopes_of({path: source})])
        assert not any(each.scope.docstring for each in scopes_of({path: bare}))
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
    code, said, drawn = shown(tmp_path, {"type": "code", "indexed": [indexed], "found": found})
    assert code == 1, "a missed target is told"
    assert "MISSED" in said
    assert ".100 / .200 / .300 / .400" in said
    assert any("Django" in each for each in drawn["code-docstrings"])
    assert "code-notes" not in drawn
    code, said, _ = shown(tmp_path, {"type": "code", "searched": searched})
    assert code == 1
    assert [line.split()[-1] for line in said.splitlines()[1:]] == ["MISSED", "ok"]


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
SEARCH = """
import asyncio, shutil, sys
from pathlib import Path
import msgspec
from benches.code import Codes
from benches.results import joined
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


def test_a_large_code_base_is_gathered_from_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real files, of archives that are what they were when they were chosen."""
    monkeypatch.setattr(code_bases, "CACHE", tmp_path)
    made = []
    for name, count in (("one", 2), ("two", 3)):
        file = tmp_path / f"{name}-1.0.tar.gz"
        with tarfile.open(file, "w:gz") as archive:
            for number, suffix in itertools.product(range(count), ("py", "txt")):
                entry = tarfile.TarInfo(f"{name}-1.0/src/m{number}.{suffix}")
                entry.size = 2
                archive.addfile(entry, io.BytesIO(b"1\n"))
        made.append(Release(name, "1.0", hashlib.sha256(file.read_bytes()).hexdigest()))
    folder = gathered(made, 4)
    files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.py"))
    assert files == [f"{name}/src/m{number}.py" for name in ("one", "two") for number in range(2)]
    with pytest.raises(CannotMeasure, match="there are 5 files, not 6"):
        gathered(made, 6)
    (tmp_path / "one-1.0.tar.gz").rename(tmp_path / "three-1.0.tar.gz")
    with pytest.raises(CannotMeasure, match="SHA-256"):
        gathered([Release("three", "1.0", "0" * 64)], 1)
    assert not (tmp_path / "three-1.0").exists(), "another archive is not unpacked"


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


def test_memory_is_measured_however_short_the_time() -> None:
    with Memory() as measured:
        pass
    assert 1_000_000 < measured.most_of_one_bytes <= measured.most_bytes


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

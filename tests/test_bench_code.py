"""`scripts/bench --only code`: questions whose answer is known, and copies without it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
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
from ragmem.codeindex.cutting import cut

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
    done = subprocess.run(
        [sys.executable, "-P", "-c", MAKE],
        input=json.dumps({"files": {"clock.py": PYTHON, "serve.go": GO}, "notes": NOTES}),
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'scripts'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[list[str]]] = json.loads(done.stdout)
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
    assert made["left"] == [""] * len(made["left"])
    for path, source in (("clock.py", PYTHON), ("serve.go", GO)):
        bare = dict(made["bare"])[path]
        assert bare.count("\n") == source.count("\n")
        kept = [line for line in source.split("\n") if line.startswith(("def", "class", "func"))]
        assert [line for line in bare.split("\n") if line in kept] == kept


def test_what_was_measured_is_shown_and_drawn(tmp_path: Path) -> None:
    spread = {"minimum": 1.0, "median": 2.0, "p95": 3.0, "maximum": 4.0, "runs": 5}
    recalls = {"docstring taken out": [0.1, 0.2, 0.3, 0.4]}
    found = [
        {
            "base": "Django",
            "way": way,
            "recalls": recalls,
            "questions": {"docstring taken out": 150},
            "spread": spread,
        }
        for way in ("ripgrep", "ragmem, words")
    ]
    indexed = {
        "name": "Django",
        "language": "Python",
        "files": 5000,
        "scopes": 40_000,
        "source_bytes": 10_000_000,
        "first_s": 31.0,
        "recheck_s": 0.3,
        "change_s": 0.1,
        "embed_s": 300.0,
        "index_bytes": 90_000_000,
        "first_rss_bytes": 300_000_000,
    }
    kept = tmp_path / "code.json"
    kept.write_text(json.dumps({"type": "code", "indexed": [indexed], "found": found}))
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "benches", "--measured", kept, "--plot", tmp_path],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'scripts'}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 1, "a missed target is told"
    assert "MISSED" in shown.stdout
    assert ".100 / .200 / .300 / .400" in shown.stdout
    drawn = ElementTree.parse(tmp_path / "code-docstrings.svg")
    assert any("Django" in (each.text or "") for each in drawn.iter())
    assert not (tmp_path / "code-notes.svg").exists()

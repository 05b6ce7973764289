"""`scripts/bench` and what it is made of, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

_ROOT = Path(__file__).parents[2]
SPREAD = {"minimum": 1.0, "median": 2.0, "p95": 3.0, "maximum": 4.0, "runs": 9}


def bench(*arguments: str | Path, stdin: str = "") -> str:
    """What Python prints with these arguments, where it goes well."""
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        env={**os.environ, "PYTHONPATH": f"{_ROOT / 'scripts'}{os.pathsep}{_ROOT}"},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def texts_of(picture: Path) -> list[str]:
    """Every text in an SVG."""
    parsed = ElementTree.parse(picture).iter()
    return [each.text or "" for each in parsed if each.tag.endswith("text")]


_SHOWS = """
import contextlib, io, json, sys
from benches.__main__ import main

shown = []
for file, *plots in json.load(sys.stdin):
    sys.argv = ["bench", "--measured", file, *(f"--plot={folder}" for folder in plots)]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main()
    shown.append([code, out.getvalue()])
print(json.dumps(shown))
"""


def shown(folder: Path, **kept: object) -> dict[str, tuple[int, str, dict[str, list[str]]]]:
    """What is said of each measurement that was kept, and the texts of the pictures of it.

    The exit code comes first; the pictures bear the names of their files.
    """
    asked = []
    for name, measured in kept.items():
        (folder / name).mkdir()
        file = folder / name / "kept.json"
        file.write_text(json.dumps(measured))
        asked.append([str(file), str(folder / name)])
    done = json.loads(bench("-c", _SHOWS, stdin=json.dumps(asked)))
    pictures = [{p.stem: texts_of(p) for p in (folder / name).glob("*.svg")} for name in kept]
    return {
        name: (code, said, drawn)
        for name, (code, said), drawn in zip(kept, done, pictures, strict=True)
    }

"""`scripts/bench` and what it is made of, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

_ROOT = Path(__file__).parents[2]
SPREAD = {"minimum": 1.0, "median": 2.0, "p95": 3.0, "maximum": 4.0, "runs": 9}


def start(*arguments: str | Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Python, to its end, with these arguments."""
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        env={**os.environ, "PYTHONPATH": f"{_ROOT / 'scripts'}{os.pathsep}{_ROOT}"},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=500,
    )


def bench(*arguments: str | Path, stdin: str = "") -> str:
    """What it prints where it goes well."""
    done = start(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def texts_of(picture: Path) -> list[str]:
    """Every text in an SVG."""
    parsed = ElementTree.parse(picture).iter()
    return [each.text or "" for each in parsed if each.tag.endswith("text")]

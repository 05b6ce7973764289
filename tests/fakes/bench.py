"""`scripts/bench` and what it is made of."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
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
    parsed = ElementTree.parse(picture).iter()
    return [each.text or "" for each in parsed if each.tag.endswith("text")]


class Shown(NamedTuple):
    """What a run of `scripts/bench --measured FILE --plot FOLDER` came to."""

    code: int
    text: str
    pictures: dict[str, list[str]]
    """The texts of each, by the name of its file."""


def shown(folder: Path, measured: object) -> Shown:
    """What is said and drawn of something that was measured before."""
    from benches.__main__ import arguments, show_kept

    file = folder / "kept.json"
    file.write_text(json.dumps(measured))
    options = arguments().parse_args(["--measured", str(file), "--plot", str(folder)])
    with redirect_stdout(io.StringIO()) as said, redirect_stderr(io.StringIO()):
        code = show_kept(options)
    pictures = {picture.stem: texts_of(picture) for picture in folder.glob("*.svg")}
    return Shown(code, said.getvalue(), pictures)

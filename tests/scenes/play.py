"""Scenes: what a person types, what a model answers, and the screen that both come to.

A scene is a file of TOML beside this module: the files of a project, the answers, and steps,
each of keys to press or of a text to wait for. It is played by the real command on a real
pseudo-terminal; the screen at its end is compared whole with the one that is kept, and drawn as the
pictures of the docs.
"""

import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.fakes.llm_server import Answer, LLMServer
from tests.repl.pty_chat import ROOT, PtyChat

HERE = Path(__file__).parent
_SUMS = re.compile(r"^  [\d.,]+ (?:ms|s|min)\b.* model calls?\b.*(?:\n  \S.*)*$", re.MULTILINE)
_TIME = re.compile(r"\b\d+(?:\.\d+)? (?:ms|s)\b")
_HEAD = re.compile(r"^ragmem \d\S+", re.MULTILINE)
_SANDBOX = " · sandbox"
"""In the footer, where the system has one and it is known in time."""
_ID = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8}\b")


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something to wait for, a pattern on the screen, and then keys to press."""

    wait: str = ""
    keys: str = ""


class Scene(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of this folder."""

    title: str
    steps: tuple[Step, ...]
    arguments: tuple[str, ...] = ("chat",)
    files: dict[str, str] = {}
    before: tuple[tuple[str, ...], ...] = ()
    """Commands of ragmem that are run first."""
    answers: tuple[Answer, ...] = ()
    env: dict[str, str] = {}


def names() -> list[str]:
    """Return the scenes that there are."""
    return sorted(file.stem for file in HERE.glob("*.toml"))


def scene(name: str) -> Scene:
    """Read a scene."""
    return msgspec.convert(tomllib.loads((HERE / f"{name}.toml").read_text()), Scene)


@contextmanager
def played(
    scene: Scene, folder: Path, *, columns: int, rows: int, env: Mapping[str, str] | None = None
) -> Iterator[PtyChat]:
    """Play a scene to its end, in an empty folder, on a terminal of that size."""
    project = folder / "garden"
    project.mkdir()
    for name, text in scene.files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    with LLMServer(list(scene.answers)) as server:
        own = {"HOME": str(folder), "RAGMEM_HOME": str(folder / "home"), "LANG": "C.UTF-8"}
        given = {**server.env, **own, "PYTHONPATH": str(ROOT), **scene.env, **(env or {})}
        ragmem = [sys.executable, "-P", "-m", "ragmem"]
        for arguments in scene.before:
            _run([*ragmem, *arguments], project, given)
        options: dict[str, Any] = {"columns": columns, "rows": rows, "env": given}
        with PtyChat([*ragmem, *scene.arguments], cwd=project, **options) as chat:
            for step in scene.steps:
                if step.wait:
                    chat.wait_for_screen(step.wait)
                if step.keys:
                    chat.send(step.keys)
            yield chat


def _run(command: list[str], cwd: Path, env: Mapping[str, str]) -> None:
    import subprocess

    subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, check=True, capture_output=True, timeout=120
    )


def settled(screen: str) -> str:
    """Return a screen without what differs from run to run: times, ids, where the project is."""
    screen = _HEAD.sub("ragmem 0.0.0", screen).replace(_SANDBOX, " " * len(_SANDBOX))
    screen = _SUMS.sub("  0 ms · model calls · tokens", screen)
    return _ID.sub("00000000", _TIME.sub("0 ms", screen)) + "\n"


def kept(name: str, columns: int, rows: int) -> Path:
    """Return where the screen of a scene is kept."""
    return HERE / "screens" / f"{name}-{columns}x{rows}.txt"

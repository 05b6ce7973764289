"""Scenes: what a person types, what a model answers, and the screen that both come to.

A scene is a file of TOML beside this module: the files of a project, the answers, and steps,
each of a text to wait for and then of keys to press. It is played by the real command on a real
pseudo-terminal. The screens at its end, and where a step has it looked at, are compared whole with
those that are kept; the last is drawn as the pictures of the docs.
"""

import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.cli.process import COMMAND, run_warm
from tests.fakes.llm_server import Answer, LLMServer
from tests.repl.pty_chat import ROOT, PtyChat

HERE = Path(__file__).parent
SIZES = [(120, 40), (80, 24), (42, 20)]
"""Columns and rows of the terminals that each scene is kept for."""
_SUMS = re.compile(r"^  [\d.,]+ (?:ms|s|min)\b.* model calls?\b.*(?:\n  \S.*)*$", re.MULTILINE)
_TIME = re.compile(r"\b\d+(?:\.\d+)? (?:ms|s)\b")
_HEAD = re.compile(r"^ragmem \d\S+", re.MULTILINE)
_BESIDE = re.compile(r" · (?:no )?sandbox")
"""In the footer: it is not known in time everywhere."""
_BEHIND = re.compile(r"(?<=\S)  +((?:\S+ )*?)(?:· )?⟳ \w+$", re.MULTILINE)
"""At the end of the footer: what goes on behind, and the amounts before it."""
_PORT = re.compile(r"(?<=\b127\.0\.0\.1:)\d+")
_TOKENS = re.compile(
    r"\d[\d.]*k(?= tokens$)|^\d+(?= of \S+ tokens)|^((?:how to work|headings) +)\d+", re.M
)
"""What depends on the words in which the agent is told how to work, and which day it is."""
_FILLED = re.compile(r"  +context +(\S+ )?tokens$", re.MULTILINE)
"""At the end of the footer; the number decides where it begins."""
_ID = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8}\b")


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something to wait for, a pattern on the screen, and then what is done."""

    wait: str = ""
    look: str = ""
    """What is to be seen now, once the screen is still: it is compared too."""
    wide: float = 0.0
    """Make the window so many times as wide as it was at the beginning; rows are folded then."""
    keys: str = ""
    again: tuple[str, ...] = ()
    """At last, kill the process, and start another with these arguments."""


class Scene(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of this folder."""

    steps: tuple[Step, ...]
    arguments: tuple[str, ...] = ("chat",)
    files: dict[str, str] = {}
    before: tuple[tuple[str, ...], ...] = ()
    """Commands of ragmem that are run first."""
    answers: tuple[Answer, ...] = ()
    env: dict[str, str] = {}


Look = Callable[[str, PtyChat], None]
"""Takes what a step wants looked at, and the terminal that shows it."""


def names() -> list[str]:
    """Return the scenes that there are."""
    return sorted(file.stem for file in HERE.glob("*.toml"))


def scene(name: str) -> Scene:
    """Read a scene."""
    return msgspec.convert(tomllib.loads((HERE / f"{name}.toml").read_text()), Scene)


class Stage:
    """The folder that a scene is played in, once or at one size after the other."""

    def __init__(self, scene: Scene, folder: Path, env: Mapping[str, str] | None = None) -> None:
        """Do in the folder, which is empty, what comes before the scene."""
        self._scene, self._folder = scene, folder / "house"
        self._start = folder / "start"
        self._project = self._folder / "garden"
        own = {"HOME": str(self._folder), "RAGMEM_HOME": str(self._folder / "home")}
        self._env = {**own, "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), **scene.env, **(env or {})}
        self._project.mkdir(parents=True)
        for name, text in scene.files.items():
            (self._project / name).parent.mkdir(parents=True, exist_ok=True)
            (self._project / name).write_text(text)
        with LLMServer(list(scene.answers)) as server:
            env = {"PATH": os.environ["PATH"], **server.env, **self._env}
            for command in scene.before:
                done = run_warm(command, env=env, cwd=self._project)
                assert done.code == 0, done.err
            self._answers = scene.answers[len(scene.answers) - server.left :]
        shutil.copytree(self._folder, self._start)

    @contextmanager
    def played(self, columns: int, rows: int, look: Look = lambda _, __: None) -> Iterator[PtyChat]:
        """Play the scene to its end on a terminal of that size."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._start, self._folder)
        options: dict[str, Any] = {"columns": columns, "rows": rows, "cwd": self._project}
        steps, arguments = list(self._scene.steps), self._scene.arguments
        with LLMServer(list(self._answers)) as server:
            options["env"] = {**server.env, **self._env}
            while True:
                with PtyChat([*COMMAND, *arguments], **options) as chat:
                    arguments = _act(chat, steps, look)
                    if not arguments:
                        yield chat
                        return


def _act(chat: PtyChat, steps: list[Step], look: Look) -> tuple[str, ...]:
    """Do the steps up to one that kills the chat; return what it is started with again."""
    columns, _ = chat.size
    while steps:
        step = steps.pop(0)
        if step.wait:
            chat.wait_for_screen(step.wait)
        if step.look:
            look(step.look, chat)
        if step.wide:
            chat.fold(round(columns * step.wide))
        if step.keys:
            chat.send(step.keys)
        if step.again:
            return step.again
    return ()


def settled(screen: str) -> str:
    """Return a screen without what differs from run to run: times, ids, where the project is."""
    screen = _HEAD.sub("ragmem 0.0.0", screen)
    screen = _SUMS.sub("  0 ms · model calls · tokens", screen)
    screen = _ID.sub("00000000", _PORT.sub("00000", _TIME.sub("0 ms", screen)))
    screen = _BEHIND.sub(_without_behind, screen)
    # These stand in columns: what is beside them stays where it is.
    screen = _BESIDE.sub(lambda found: " " * len(found[0]), screen)
    screen = _TOKENS.sub(_without_number, screen)
    screen = _FILLED.sub(lambda found: f"  context {found[1] or ''}tokens", screen)
    return "\n".join(row.rstrip() for row in screen.split("\n")) + "\n"


def _without_behind(found: re.Match[str]) -> str:
    # A row that is full takes the last column too.
    is_full = not found[0].startswith("   ")
    return found[1].rstrip().rjust(len(found[0]) - is_full)


def _without_number(found: re.Match[str]) -> str:
    return (found[1] or "").ljust(len(found[0]))


def kept(name: str, columns: int, rows: int) -> Path:
    """Return where the screens of a scene are kept."""
    return HERE / "screens" / f"{name}-{columns}x{rows}.txt"


_HEADING = re.compile(r"^━━ (.*)\n", re.MULTILINE)


def written(screens: Mapping[str, str]) -> str:
    """Return screens as they are kept, each below what is to be seen."""
    return "".join(f"━━ {look}\n{screen}" for look, screen in screens.items())


def read(text: str) -> dict[str, str]:
    """Return the screens that are kept, by what is to be seen."""
    _, *parts = _HEADING.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))

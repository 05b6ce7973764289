"""Small projects for the tests of the commands about them, and what is on a terminal."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte

from tests.cli.process import Ragmem, finish
from tests.fakes.llm_server import Answer, Call, LLMServer

EVIL = "\x1b]0;owned\x07\x1b[31m"
WATER = '''\
"""How much water the garden needs."""

A_DAY = 0.5


class Tank:
    """Rain water behind the shed."""

    def drain(self, litres: float) -> None:
        """Let some of it flow into the beds."""
        self.level -= litres


def litres(plants: int, days: int) -> float:
    """What so many plants drink."""
    return plants * A_DAY * days
'''
PLAN = '''\
from water import Tank, litres


def week(tank: Tank) -> None:
    """Water all beds for seven days."""
    tank.drain(litres(4, 7))
'''


def garden(ragmem: Ragmem) -> None:
    """Three files, of which one imports another."""
    (ragmem.project / "water.py").write_text(WATER)
    (ragmem.project / "plan.py").write_text(PLAN)
    (ragmem.project / "README.md").write_text("# Garden\n\nFerns stand in the shade.\n")


@contextmanager
def recorded(folder: Path, **env: str) -> Iterator[Ragmem]:
    """A session with two turns, one of them with a tool call."""
    answers = [
        Answer("I read it.", tools=[Call("read_file", {"path": "hello.py"})]),
        Answer("It says hello."),
        Answer("Because."),
    ]
    with LLMServer(answers, repeat=True) as server:
        one = Ragmem(folder, server.env | env)
        (one.project / "hello.py").write_text("print('hello')\n")
        one.ok("ask", "What does hello.py do?")
        one.ok("ask", "-c", "Why?")
        yield one


def without_times(text: str) -> str:
    """Seconds, sizes and ages are other ones each time."""
    text = re.sub(r"\d+\.\d s\b", "N s", text)
    text = re.sub(r"\d+\.\d MB\b", "N MB", text)
    return re.sub(r"just now|\d+ minutes? ago", "AGO", text)


def on_a_terminal(ragmem: Ragmem, *arguments: str, columns: int = 80) -> tuple[bytes, list[str]]:
    """What the command writes to a terminal, and the rows that a person sees in the end."""
    ragmem.env.setdefault("TERM", "xterm-256color")
    child = ragmem.on_terminal(*arguments, columns=columns)
    code, raw = finish(child), child.before.encode()
    assert code == 0, raw
    screen = pyte.Screen(columns, 200)
    pyte.ByteStream(screen).feed(raw)
    return raw, [row.rstrip() for row in screen.display if row.strip()]


def many(folder: Path, count: int) -> None:
    """So many small modules."""
    folder.mkdir()
    for number in range(count):
        (folder / f"bed_{number}.py").write_text(
            f"def bed_{number}() -> int:\n    return {number}\n"
        )

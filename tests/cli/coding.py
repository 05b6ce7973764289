"""A small project of code for the tests of the commands about it, and what is on a terminal."""

import os
import pty
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pyte

from tests.cli.process import Ragmem
from tests.fakes.forks import forks

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


def without_times(text: str) -> str:
    """Seconds, sizes and ages are other ones each time."""
    text = re.sub(r"\d+\.\d s\b", "N s", text)
    text = re.sub(r"\d+\.\d MB\b", "N MB", text)
    return re.sub(r"just now|\d+ minutes? ago", "AGO", text)


def on_a_terminal(ragmem: Ragmem, *arguments: str, columns: int = 80) -> tuple[bytes, list[str]]:
    """What the command writes to a terminal, and the rows that a person sees in the end."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    ragmem.env.setdefault("TERM", "xterm-256color")

    def run() -> int:
        with open(os.devnull) as nothing, open(theirs, "wb") as terminal:
            streams = [nothing.fileno(), terminal.fileno(), terminal.fileno()]
            return forks().run(arguments, env=ragmem.env, cwd=ragmem.project, streams=streams)

    raw = b""
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(run)
        with suppress(OSError):  # All have left the terminal.
            while chunk := os.read(ours, 65536):
                raw += chunk
        os.close(ours)
        assert running.result() == 0, raw
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

"""Typing while an answer streams: the latency of keys, the flicker of the screen, the CPU time."""

import os
import re
import select
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benches.places import RAGMEM, clean_environment
from benches.results import CannotMeasure
from benches.spread import Spread, spread
from benches.starts import in_a_terminal, wait_for
from benches.tables import aligned
from tests.fakes.llm_server import Answer, LLMServer, model_env

ECHO_TARGET_MS = 16.0
GROWTH_TARGET = 1.5
"""The maximum ratio of the CPU time per character in a long answer to that in a short one."""
_LINES_PER_S, _STREAMED_S = 200, 20
_KEYS = "αβγδεζηθικλμνξοπρστυφχψωабвгдежзийклмнопрстуфцчшщ"
"""Keys that no answer contains, so that their appearance is their echo."""
_PAUSE_S = 0.07
_ERASES = re.compile(rb"\x1b\[[0-2]?[JK]")
_SHORT, _LONG = 25_000, 100_000
_DONE = b"1 model call"
_RULE = "the beds by the wall want water at dawn, and shade later on "


class Typing(msgspec.Struct, frozen=True, tag="typing", kw_only=True):
    """The results of one run."""

    quiet: Spread
    """The milliseconds from a key to its echo while the chat is idle."""
    streaming: Spread
    """The same while 200 lines per second are streamed."""
    erased: float
    """The bytes per second of erase sequences meanwhile."""
    short_ms: float
    """The chat's CPU milliseconds per 10,000 characters of an answer of 25,000."""
    long_ms: float
    """The same for an answer of 100,000 characters."""

    @property
    def kept(self) -> bool:
        """Whether both targets are met."""
        is_linear = self.long_ms <= GROWTH_TARGET * self.short_ms
        return is_linear and self.streaming.p95 <= ECHO_TARGET_MS


def measure_typing(folder: Path) -> Iterator[Typing]:
    """Type in a real chat on a pseudo-terminal, against a model that streams over loopback."""
    # Every fifth line ends a paragraph, whose text is then final.
    lines = [f"{n} {_RULE}\n{'' if n % 5 else chr(10)}" for n in range(_LINES_PER_S * _STREAMED_S)]
    answers = [
        Answer("Ready."),
        Answer(_words(_SHORT)),
        Answer(_words(_LONG)),
        Answer(lines, chunk_delay_s=1 / _LINES_PER_S),
    ]
    project, found = folder / "garden", list[Typing]()
    project.mkdir()
    with LLMServer.spawn(answers) as url:
        env = clean_environment(folder / "home", **model_env(url))
        arguments = [str(RAGMEM), "chat"]
        in_a_terminal(arguments, cwd=project, env=env, until=lambda at: found.append(_typed(at)))
    yield from found


def _words(length: int) -> str:
    paragraphs = f"{_RULE * 5}\n\n"
    return (paragraphs * (length // len(paragraphs) + 1))[:length]


def _typed(terminal: int) -> Typing:
    termios.tcsetwinsize(terminal, (30, 100))
    wait_for(terminal, b"openai/scripted")
    _answered(terminal)
    short_ms, long_ms = (_answered(terminal) / (of / 10_000) for of in (_SHORT, _LONG))
    quiet, _ = _echoes(terminal, len(_KEYS))
    os.write(terminal, b"\x15go\r")
    seen = wait_for(terminal, b"answering")
    started = time.monotonic()
    streaming, printed = _echoes(terminal, int(_STREAMED_S * 0.6 / _PAUSE_S))
    lasted = time.monotonic() - started
    if _DONE in seen + printed:
        raise CannotMeasure("the answer was over before all keys were typed")
    erased = sum(map(len, _ERASES.findall(printed))) / lasted
    return Typing(
        quiet=spread(quiet),
        streaming=spread(streaming),
        erased=erased,
        short_ms=short_ms,
        long_ms=long_ms,
    )


def _answered(terminal: int) -> float:
    """Ask, and wait for the end of the answer; return the chat's CPU milliseconds."""
    before = _processor_ms(terminal)
    os.write(terminal, b"go\r")
    wait_for(terminal, _DONE, timeout_s=120)
    return _processor_ms(terminal) - before


def _processor_ms(terminal: int) -> float:
    fields = Path(f"/proc/{os.tcgetpgrp(terminal)}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") * 1000


def _echoes(terminal: int, count: int) -> tuple[list[float], bytes]:
    """Press keys; return the milliseconds to each echo, and all output meanwhile."""
    samples, printed = list[float](), list[bytes]()
    for number in range(count):
        at = number % len(_KEYS)
        if number and not at:
            os.write(terminal, b"\x15")  # each key is new in what is typed
        printed.append(_read_for(terminal, _PAUSE_S))
        started = time.monotonic()
        key = _KEYS[at].encode()
        os.write(terminal, key)
        printed.append(wait_for(terminal, key))
        samples.append((time.monotonic() - started) * 1000)
    return samples, b"".join(printed)


def _read_for(terminal: int, seconds: float) -> bytes:
    read, deadline = b"", time.monotonic() + seconds
    while select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
        read += os.read(terminal, 65_536)
    return read


def typing_table(found: Typing) -> str:
    """Return the results as text."""
    rows = [["a key's echo, milliseconds", "keys", "median", "p95", "max", "target of p95"]]
    targets = ("", f"{ECHO_TARGET_MS:g}")
    for name, each, target in zip(
        ("while nothing goes on", f"while {_LINES_PER_S} lines a second stream"),
        (found.quiet, found.streaming),
        targets,
        strict=True,
    ):
        numbers = (f"{number:.1f}" for number in (each.median, each.p95, each.maximum))
        rows.append([name, str(each.runs), *numbers, target])
    return (
        f"{aligned(rows)}\n\n"
        f"bytes that erase, a second of that stream: {found.erased:,.0f}\n"
        f"processor for 10,000 characters of an answer: {found.short_ms:.0f} ms of one of "
        f"{_SHORT:,}, {found.long_ms:.0f} ms of one of {_LONG:,} (at most {GROWTH_TARGET:g} times)"
    )

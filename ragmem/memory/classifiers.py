"""Two classifiers of short texts, by the letters that they consist of.

`GENERAL` tells prompts that general knowledge answers from those that need a project, `LASTING`
tells a user's sentences that hold for later work too ("captions in sentence case") from others.
Both are linear over hashed character n-grams (Joulin et al. 2016, "Bag of Tricks for Efficient
Text Classification"; Weinberger et al. 2009, "Feature Hashing for Large Scale Multitask
Learning"), and fitted by scripts/fit_classifiers.
"""

import math
import struct
import zlib
from functools import cache
from pathlib import Path

LENGTHS = (3, 4, 5)
"""The lengths of n-grams, in characters."""
BUCKETS = 1 << 17
_HEADER = struct.Struct("<ff")


def buckets(text: str) -> set[int]:
    """Return the buckets of a text's n-grams, in lower case, with one space between words."""
    line = f" {' '.join(text.lower().split())} "
    return {
        zlib.crc32(line[start : start + length].encode("utf-8", "replace")) % BUCKETS
        for length in LENGTHS
        for start in range(len(line) - length + 1)
    }


def packed(weights: list[float], bias: float) -> bytes:
    """Return a classifier's file: the unit of its weights, its bias, a signed byte per bucket."""
    unit = max(map(abs, weights)) / 127
    steps = struct.pack(f"<{len(weights)}b", *(round(weight / unit) for weight in weights))
    return _HEADER.pack(unit, bias) + steps


class Classifier:
    """A fitted classifier; its file is read for the first text."""

    def __init__(self, name: str) -> None:
        self._file = Path(__file__).with_name(f"{name}.bin")

    def log_odds(self, text: str) -> float:
        """Return the log-odds that a text is of the class: 0 means as likely as not."""
        unit, bias, weights = _read(self._file)
        found = buckets(text)
        total = sum(weights[each] for each in found)
        return bias + unit * total / math.sqrt(len(found) or 1)


@cache
def _read(file: Path) -> tuple[float, float, memoryview]:
    content = file.read_bytes()
    unit, bias = _HEADER.unpack_from(content)
    return unit, bias, memoryview(content)[_HEADER.size :].cast("b")


GENERAL = Classifier("general")
LASTING = Classifier("lasting")

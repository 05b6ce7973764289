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

_LENGTHS = (3, 4, 5)
"""The lengths of n-grams, in characters."""
BUCKETS = 1 << 17
HEADER = struct.Struct("<ff")
"""The unit of the weights, and the bias; behind it a file has a signed byte for each bucket."""
_MOST_CHARS = 1_000


def buckets(text: str) -> set[int]:
    """Return the buckets of the n-grams at a text's beginning: lower case, single spaces."""
    line = f" {' '.join(text[:_MOST_CHARS].lower().split())} "
    return {
        zlib.crc32(line[start : start + length].encode("utf-8", "replace")) % BUCKETS
        for length in _LENGTHS
        for start in range(len(line) - length + 1)
    }


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
    unit, bias = HEADER.unpack_from(content)
    return unit, bias, memoryview(content)[HEADER.size :].cast("b")


GENERAL = Classifier("general")
LASTING = Classifier("lasting")

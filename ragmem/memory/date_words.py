"""Words for days and times in seven languages, lowercase and without accents; see `dates`.

They are in `date_words.txt`, in which an underscore stands for a space.
"""

import re
from collections.abc import Iterable
from pathlib import Path


def any_of(words: Iterable[str]) -> str:
    """Return a pattern that matches any of the words, preferring the longest."""
    return "|".join(sorted((w.replace(" ", r"\s") for w in words), key=len, reverse=True))


def _phrases(words: str) -> tuple[str, ...]:
    return tuple(word.replace("_", " ") for word in words.split())


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text, in which an underscore stands for a space."""
    return frozenset(_phrases(words))


_LINES = {
    name: lines.strip().split("\n")
    for paragraph in Path(__file__).with_suffix(".txt").read_text("utf-8").split("\n\n")
    for name, _, lines in [paragraph.partition(":")]
}


def _listed(name: str) -> tuple[str, ...]:
    return _phrases(" ".join(_LINES[name]))


def _numbered(name: str, first: int) -> dict[str, int]:
    lines = enumerate(_LINES[name], first)
    return {word: number for number, line in lines for word in _phrases(line)}


def _keyed(name: str) -> dict[str, str]:
    rows = (line.partition(": ") for line in _LINES[name])
    return {word: key for key, _, words in rows for word in _phrases(words)}


MONTHS = _numbered("months", 1)
WEEKDAYS = _numbered("weekdays", 0)
SHY = frozenset(_listed("shy"))
"""Words that often mean something else, and count only after a preposition."""
PREPOSITIONS = _listed("prepositions")
NUMBERS = _numbered("numbers", 1) | {"quinze": 15}
FEW = _numbered("few", 2)
UNITS = _keyed("units")
DAY_PARTS = {
    word: (int(first), int(last))
    for word, hours in _keyed("parts of the day").items()
    for first, last in [hours.split("-")]
}
"""The hours of a part of the day; those of the night go on after midnight."""

TODAY, TOMORROW, AFTER_TOMORROW = map(_listed, ("today", "tomorrow", "after tomorrow"))
YESTERDAY, BEFORE_YESTERDAY = map(_listed, ("yesterday", "before yesterday"))
LAST_NIGHT, END_OF_DAY = map(_listed, ("last night", "end of the day"))
THIS, RECENT = map(_listed, ("this", "recent"))

# Patterns. {n}: a number; {unit}: a unit of time; each is a group of that name.
AGO = ("{n} {unit} (?:ago|fa|atras|geleden|back)", "(?:il y a|y a|vor|hace|ha) {n} {unit}")
PAST = (
    "(?:in|over|during|within)? ?the (?:last|past) (?:{n} )?{unit}",
    "(?:last|past|(?:in )?(?:den|die) letzten|(?:en )?(?:los|las) ultim[oa]s"
    "|(?:negli|gli|le|nelle) ultim[ie]|(?:nos|nas|os|as) ultim[oa]s|de (?:laatste|afgelopen))"
    " {n} {unit}",
    "(?:ces|les) {n} (?:dernier|derniere)s? {unit}",
)
LAST = (
    "(?:last|(?:letzte|vorige|vergangene)[nrsm]?|afgelopen) {unit}",
    "(?:la |le |l'|el |il |lo |n?a |n?o )?{unit} (?:derni(?:ere|er)|passee?|pasad[ao]|scors[ao]"
    "|passat[ao]|passad[ao])",
)
NEXT = r"next|prochain|prochaine|nachste[nrsm]?|proximo|proxima|prossim[oa]|volgende"
END = r"end|fin|ende|final|fine|fim|eind"

ANYTHING = frozenset(_listed("anything"))
"""Words of a question about anything that happened, as index terms."""


TELLING = frozenset(
    max(re.split(r"[^\w]+", words), key=len)
    for names in (
        *(UNITS, MONTHS, WEEKDAYS, DAY_PARTS),
        *(TODAY, YESTERDAY, BEFORE_YESTERDAY, RECENT, LAST_NIGHT),
    )
    for words in names
)
"""The longest word of each time expression without a digit."""

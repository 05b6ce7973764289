"""What is meant by a few letters: words in any order, each whole or with letters left out.

All of it takes time that is linear in the texts, whatever is typed.
"""

from collections.abc import Sequence

_AT_START, _AT_WORD, _INSIDE, _BESIDE, _SPREAD = range(5)
_WIDEST = 8
"""Letters of a text, for each that was typed, beyond which a likeness is chance."""

Rating = tuple[int, int]
"""How well a text fits, the smaller the better."""


def fold(text: str) -> str:
    """Return the text without case, each character at the place where it was."""
    folded = text.casefold()
    if len(folded) == len(text):
        return folded
    return "".join(char.casefold()[:1] for char in text)


def rate(words: Sequence[str], text: str, beside: str = "") -> Rating | None:
    """Return how well folded words fit a folded text; None where one of them does not.

    What stands `beside` the text counts less, and only where it holds a word as it was typed.
    """
    kinds = spans = 0
    for word in words:
        at = _find(word, text)
        if at >= 0:
            kinds += _place(text, at)
            spans += at
        elif beside and word in beside:
            kinds += _BESIDE
        elif (places := spread(word, text)) and _is_near(places, word):
            kinds += _SPREAD
            spans += places[-1] - places[0]
        else:
            return None
    return kinds, spans


def lit(words: Sequence[str], text: str) -> set[int]:
    """Return the places in a folded text that folded words were found at."""
    found: set[int] = set()
    for word in words:
        at = _find(word, text)
        if at >= 0:
            found.update(range(at, at + len(word)))
        elif (places := spread(word, text)) and _is_near(places, word):
            found.update(places)
    return found


def spread(word: str, text: str) -> list[int]:
    """Return where a text holds the letters of a word in this order; empty where it does not.

    It is the narrowest of those that end where the first of them does.
    """
    at = -1
    for letter in word:
        at = text.find(letter, at + 1)
        if at < 0:
            return []
    places = [at]
    for letter in reversed(word[:-1]):
        at = text.rfind(letter, 0, at)
        places.append(at)
    return places[::-1]


def _find(word: str, text: str) -> int:
    """Return where a word of the text begins so, else where it stands at all, or -1."""
    first = at = text.find(word)
    while at > 0 and word and text[at - 1].isalnum():
        at = text.find(word, at + 1)
    return first if at < 0 else at


def _place(text: str, at: int) -> int:
    if at == 0:
        return _AT_START
    return _INSIDE if text[at - 1].isalnum() else _AT_WORD


def _is_near(places: Sequence[int], word: str) -> bool:
    return places[-1] - places[0] < _WIDEST * len(word)

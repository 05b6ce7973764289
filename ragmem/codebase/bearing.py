"""Which hits of the code index have to do with a question beyond doubt."""

import msgspec

from ragmem.codeindex.names import is_named, names_in
from ragmem.codeindex.values import CodeHit
from ragmem.memory.context import CodePassage
from ragmem.memory.passages import question_words

_LEAST_WORDS = 2
_LEAST_SHARE = 0.3
"""Of a question's words, that a scope without its meaning or name must hold."""
_FAR = 0.5
"""Of the threshold: what is less alike has its words by chance."""


class Asked(msgspec.Struct, frozen=True):
    """A question, as its hits are held against it."""

    words: frozenset[str]
    names: frozenset[str] = frozenset()
    """What it names as pieces of code are named; in lower case."""

    @classmethod
    def of(cls, text: str) -> "Asked":
        """What a prompt asks."""
        names = frozenset(name.casefold() for name in names_in(text))
        return cls(frozenset(question_words(text)), names)

    def names_scope(self, hit: CodeHit) -> bool:
        """Whether it calls the scope by its name, with what it is in or without."""
        return is_named(hit.name, hit.qualified_name, self.names)


def bears(hit: CodeHit, asked: Asked, floor: float | None) -> bool:
    """Whether a hit has to do with a question beyond doubt.

    It, its file or its folder is named, or it is as alike as a past turn would have to be, or it
    holds several of the words and is not about something else.
    """
    alike = hit.similarity if floor is not None else None
    if alike is not None and floor is not None and alike > floor:
        return True
    held: set[str] = set()
    for reason in hit.why:
        kind, _, found = reason.partition(": ")
        if kind in ("file", "folder"):
            return True
        if kind in ("name", "words"):
            held.update(found.split(", "))
    if asked.names_scope(hit):
        return True
    if alike is not None and floor is not None and alike <= _FAR * floor:
        return False
    return len(held) >= max(_LEAST_WORDS, _LEAST_SHARE * len(asked.words))


def passage_of(hit: CodeHit) -> CodePassage:
    """As the request shows it."""
    return CodePassage(
        scope_id=hit.scope_id,
        path=hit.path,
        name=hit.qualified_name,
        start_line=hit.start_line,
        end_line=hit.end_line,
        text=hit.text,
        score=hit.score,
        why="; ".join(hit.why),
    )

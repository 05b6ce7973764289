"""Why a scope was found, in words."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ragmem.codeindex.naming import Named
from ragmem.codeindex.ranking import Ranked
from ragmem.codeindex.values import MEANING
from ragmem.terms import QueryTerm, terms
from ragmem.text import one_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WORDS = 5
_CHARS = 120


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """What a search knows of all that it has found."""

    question: str
    terms: "Sequence[tuple[QueryTerm, NDArray[np.int64], NDArray[np.float64]]]"
    """Of each of the question's terms the scopes that have it, sorted, and what it is worth."""
    named: Mapping[int, Named]
    """By scope."""
    lent: Mapping[int, str]
    """By scope: who calls it."""
    told: Mapping[int, str]
    """By scope: a text that names it."""
    importers: Mapping[str, str]
    """By path: a file that imports it, of which something was found too."""

    def why(self, ranked: Ranked, qualified_name: str) -> tuple[str, ...]:
        """The most telling first: that the question names it, then by what each adds."""
        one, parts = ranked.candidate, ranked.parts
        said = self.named.get(one.scope)
        inside = said is not None and said.what == "inside"
        own = set(terms(qualified_name, language="english"))
        words = self._words(one.scope)
        in_name = [] if said and not inside else [word for word in words if word in own]
        rest = [word for word in words if word not in own]
        told: list[tuple[float, str]] = []
        if in_name:
            told.append((parts["text"] + 1, f"name: {self._as_written(in_name)}"))
        if rest:
            told.append((parts["text"], f"words: {self._as_written(rest)}"))
        for part, text in (
            ("vector", MEANING),
            ("lent", self._of("called by", self.lent.get(one.scope))),
            ("told", self._of("told of in", self.told.get(one.scope))),
            ("near", "touched in this conversation"),
            ("imports", self._of("imported by", self.importers.get(one.path))),
        ):
            if text and parts[part] > 0:
                told.append((parts[part], text))
        first = [f"{said.what}: {said.text}"] if said and not inside else []
        ordered = [text for _, text in sorted(told, key=lambda each: -each[0])]
        return tuple(one_line(text, _CHARS) for text in first + ordered)

    def _of(self, how: str, who: str | None) -> str:
        return f"{how} {who}" if who else ""

    def _as_written(self, words: Sequence[str]) -> str:
        """The first of these terms as the question has them, which may begin with a capital."""
        written = []
        for word in words[:_WORDS]:
            bare = re.escape(word)
            found = re.search(rf"\b{bare}\b", self.question, re.IGNORECASE) or re.search(
                bare, self.question, re.IGNORECASE
            )
            written.append(found[0] if found else word)
        return ", ".join(written)

    def _words(self, scope: int) -> list[str]:
        """Terms of the question that it has, the most telling first; no stem beside its word."""
        import numpy as np

        found = []
        for term, scopes, scores in self.terms:
            place = int(np.searchsorted(scopes, scope))
            if place < len(scopes) and scopes[place] == scope and term.kind not in ("stop", "edge"):
                found.append((-float(scores[place]), term.term, term.kind == "stem"))
        whole = [word for _, word, is_stem in found if not is_stem]
        return [
            word
            for _, word, is_stem in sorted(found)
            if not (is_stem and any(other.startswith(word[:-1]) for other in whole))
        ]

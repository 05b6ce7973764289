"""Search over scopes: words in four fields, vectors, names, and those that call each other.

As over turns (ragmem/store/sqlite/search.py) the lists of scopes that have a word are read alone,
with the field of each place in the same number, and scored together. All scores are put on one
scale (distances from the mean in standard deviations, among the candidates) and added, as over
turns (ragmem/memory/ranking.py).
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import apsw
import msgspec

from ragmem.index import MEANING, CodeHit
from ragmem.index.database import column, listed
from ragmem.index.names import Named, named_in
from ragmem.index.rows import length_of
from ragmem.index.vectors import ScopeVectors
from ragmem.records import ScopeKind
from ragmem.similarity import group_z_scores, middle_for_unknown, scale_of, z_scores
from ragmem.terms import QueryTerm, guess_language, query_terms, terms
from ragmem.text import one_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]


class ScopeCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A scope with what speaks for it."""

    scope: int
    """Its row."""
    path: str
    kind: ScopeKind
    text: float = 0.0
    """BM25 over its four fields; 0 where it has none of the words."""
    similarity: float | None = None
    """The cosine of its vector with the question's, where both are there."""
    held: float = 0.0
    """The share of the question's words that it has, the rare ones counting more; 0 to 1."""
    lent: float = 0.0
    """The best text score of a scope that calls it."""
    told: float = 0.0
    """The best text score of a section of a text that names it."""
    named: float = 0.0
    """From 0 to 1, how surely the question names it."""
    meant: bool = False
    """Whether the question names it, its file, or a scope that it is in."""


class RankedScope(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with what it is worth; comparable within one search only."""

    candidate: ScopeCandidate
    score: float
    parts: Mapping[str, float]
    """The parts of the score by name; they sum to it."""


class ScopeWeights(msgspec.Struct, frozen=True, kw_only=True):
    """How much each ingredient counts, in standard deviations of the scores.

    Chosen with `scripts/bench --only code` on one code base and this repository, and reported on
    another (docs/measurements.md).
    """

    words: float = 0.9
    """Of the words, where the cosine counts 1."""
    own: float = 0.4
    """So much of them goes by what a scope has itself; the rest by what is said for it too."""
    share_lent: float = 0.9
    """Of its best caller's words, that count as its own where they are more than it has."""
    share_told: float = 1.0
    """The same of the best text that names it."""
    lent: float = 0.6
    """Of the best text score among its callers, besides; not above the best of all."""
    told: float = 0.25
    """The same of the texts that name it."""
    held: float = 3.0
    """Of the share of the question's words that it has, as far as that is over `much_held`."""
    much_held: float = 0.8
    vector: float = 1.0
    """Of the cosine."""
    foreign_vector: float = 0.6
    """The same for a question in a language that the embedder knows badly."""
    file: float = 0.35
    """Of its file: the mean of the three best in it, by text and by vector."""
    imports: float = 0.1
    """Of the files that import its own, or that it imports: the best of them."""
    near: float = 0.3
    """Of a scope in a file that the conversation has touched."""
    test: float = 1.2
    """Taken from tests, where the question does not speak of them."""
    block: float = 0.6
    """Taken from what has no name of its own."""
    section: float = 0.6
    """Taken from a section of a text: what is asked about is mostly code."""
    named: float = 20.0
    """Of a scope that the question names: before all others."""


DEFAULT_WEIGHTS = ScopeWeights()
WITHOUT_VECTORS = ScopeWeights(words=1.0, own=0.6, told=0.4)
"""Where words must say all: those that a scope has itself say more."""
_BEST_OF_FILE = 3
_MOST_LENT = 5.0
"""The most standard deviations that a lent score is worth: where few have one, it would be many."""
_FIRST = 10
_OF_ONE_FILE = 3
"""The most scopes of one file among the first hits, unless the question names more."""

_TEST_PATH = re.compile(
    r"(^|/)(tests?|testing|testdata|specs?|__tests__|fixtures|[^/]*_tests)/"
    r"|(^|/)(test_[^/]*|conftest|[^/]*_tests?|[^/]*[.-](test|spec)|[^/]*Tests?)\.\w+$"
)
_OF_TESTS = re.compile(
    r"\b(tests?|tested|testing|specs?|fixtures?|mocks?|testcases?|unittests?|pytest)\b|\btest_",
    re.IGNORECASE,
)


def is_test(path: str) -> bool:
    """Return whether a file's place or name says that it tests others."""
    return _TEST_PATH.search(path) is not None


def rank(
    candidates: Sequence[ScopeCandidate],
    *,
    question: str = "",
    near: Collection[str] = (),
    imports: Mapping[str, Collection[str]] | None = None,
    foreign: bool = False,
    weights: ScopeWeights | None = None,
) -> list[RankedScope]:
    """Rank the candidates, best first; `imports` gives the paths that a file imports."""
    if not candidates:
        return []
    if weights is None:
        by_meaning = any(c.similarity is not None for c in candidates)
        weights = DEFAULT_WEIGHTS if by_meaning else WITHOUT_VECTORS
    vector = weights.foreign_vector if foreign else weights.vector
    by_text, by_lent, by_told = _by_words(candidates, weights)
    similarity = middle_for_unknown([c.similarity for c in candidates])
    by_vector = z_scores(similarity)
    paths = [c.path for c in candidates]
    own = [
        t + vector * v
        for t, v in zip(z_scores([c.text for c in candidates]), by_vector, strict=True)
    ]
    of_file = group_z_scores(paths, own, best_of=_BEST_OF_FILE)
    of_imports = _by_imports(paths, own, imports or {})
    tests_wanted = _OF_TESTS.search(question) is not None
    ranked = []
    for i, one in enumerate(candidates):
        parts = {
            "text": by_text[i],
            "vector": vector * by_vector[i],
            "lent": by_lent[i],
            "told": by_told[i],
            "held": weights.held * max(0.0, one.held - weights.much_held),
            "file": weights.file * of_file[one.path],
            "imports": weights.imports * of_imports.get(one.path, 0.0),
            "near": weights.near if one.path in near else 0.0,
            "test": 0.0 if tests_wanted or not is_test(one.path) else -weights.test,
            "kind": -_less(one.kind, weights),
            "named": weights.named * one.named,
        }
        ranked.append(RankedScope(candidate=one, score=math.fsum(parts.values()), parts=parts))
    return sorted(ranked, key=lambda each: (-each.score, each.candidate.path, each.candidate.scope))


def _by_words(
    candidates: Sequence[ScopeCandidate], weights: ScopeWeights
) -> tuple[list[float], list[float], list[float]]:
    """Return what their own words are worth, and what callers and texts add to that.

    What callers lend lifts none above the best that has the words itself.
    """
    own = [c.text for c in candidates]
    lent = [max(c.text, weights.share_lent * c.lent) for c in candidates]
    told = [max(n, weights.share_told * c.told) for n, c in zip(lent, candidates, strict=True)]
    by_own, by_all = scale_of(own), scale_of(told)
    by_lent = [min(_MOST_LENT, z) for z in z_scores([c.lent for c in candidates])]
    by_told = [min(_MOST_LENT, z) for z in z_scores([c.told for c in candidates])]
    share = 1 - weights.own
    both = [weights.own * by_own(o) + share * by_all(t) for o, t in zip(own, told, strict=True)]
    best = max(both)
    words, from_callers, from_texts = [], [], []
    for i, score in enumerate(both):
        called = max(score, min(score + weights.lent * by_lent[i], best)) - score
        called += share * (by_all(lent[i]) - by_all(own[i]))
        named = share * (by_all(told[i]) - by_all(lent[i]))
        words.append(weights.words * (weights.own * by_own(own[i]) + share * by_all(own[i])))
        from_callers.append(weights.words * called)
        from_texts.append(weights.words * named + weights.told * by_told[i])
    return words, from_callers, from_texts


def mixed(ranked: Sequence[RankedScope]) -> list[RankedScope]:
    """Let no more than three of a file be among the first few, unless they are meant."""
    first: list[RankedScope] = []
    later: list[RankedScope] = []
    seen: Counter[str] = Counter()
    for place, one in enumerate(ranked):
        path = one.candidate.path
        if len(first) >= _FIRST:
            later += ranked[place:]
            break
        if seen[path] >= _OF_ONE_FILE and not one.candidate.meant:
            later.append(one)
            continue
        seen[path] += 1
        first.append(one)
    return first + later


def _less(kind: ScopeKind, weights: ScopeWeights) -> float:
    if kind == "section":
        return weights.section
    return weights.block if kind in ("block", "text") else 0.0


def _by_imports(
    paths: Sequence[str], scores: Sequence[float], imports: Mapping[str, Collection[str]]
) -> dict[str, float]:
    """For each file the best score in one that it imports, or that imports it; 0 at least."""
    best: dict[str, float] = {}
    for path, score in zip(paths, scores, strict=True):
        best[path] = max(score, best.get(path, 0.0))
    found: dict[str, float] = {}
    for path, imported in imports.items():
        for other in imported:
            if other != path:
                found[path] = max(found.get(path, 0.0), best.get(other, 0.0))
                found[other] = max(found.get(other, 0.0), best.get(path, 0.0))
    return found


_DEFINED = 3
"""The most scopes of one name: a call of a name that more have tells nothing."""
TEXTS = ("section", "text")
"""The kinds of scopes that call nothing, but speak of others."""


class LentScore(NamedTuple):
    """A score that another scope lends, and that scope."""

    score: float
    lender: int


def loans(
    connection: apsw.Connection, scores: Mapping[int, float]
) -> tuple[dict[int, LentScore], dict[int, LentScore]]:
    """Return the best score among its callers of each scope that is called, and among texts.

    Names that many have are left out.
    """
    lenders = listed(scores)
    texts = column(
        connection,
        "SELECT s.scope FROM json_each(?) AS chosen CROSS JOIN scopes AS s"
        " ON s.scope = chosen.value WHERE s.kind IN (?, ?)",
        lenders,
        *TEXTS,
    )
    called = connection.execute(
        """
        SELECT name_key, json_group_array(scope) FROM calls
        WHERE scope IN (SELECT value FROM json_each(?)) GROUP BY name_key
        """,
        (lenders,),
    ).fetchall()
    lent, told = dict[int, LentScore](), dict[int, LentScore]()
    for name, found in called:
        of_name = "SELECT scope FROM scopes WHERE name_key = ? LIMIT ?"
        defined = column(connection, of_name, name, _DEFINED + 1)
        if len(defined) > _DEFINED:
            continue
        for lender in msgspec.json.decode(str(found), type=list[int]):
            given = told if lender in texts else lent
            loan = LentScore(scores[lender], lender)
            for scope in defined:
                if scope != lender and loan > given.get(scope, LentScore(0.0, 0)):
                    given[scope] = loan
    return lent, told


T = TypeVar("T", float, LentScore)


def best_of(scores: Mapping[int, T], limit: int) -> list[int]:
    """Return the scopes with the highest scores, best first."""
    return sorted(scores, key=lambda scope: scores[scope], reverse=True)[:limit]


_WORDS = 5
_CHARS = 120


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """What a search knows of all that it has found."""

    terms: "Sequence[tuple[QueryTerm, NDArray[np.int64], NDArray[np.float64]]]"
    """Of each of the question's terms the scopes that have it, sorted, and what it is worth."""
    named: Mapping[int, Named]
    """What the question names, by scope."""
    lent: Mapping[int, str]
    """The name of a caller, by scope."""
    told: Mapping[int, str]
    """The text that names it, by scope."""
    importers: Mapping[str, str]
    """A file that imports it and that something was found in too, by path."""

    def why(self, ranked: RankedScope, qualified_name: str) -> tuple[str, ...]:
        """Say why, the most telling first: that the question names it, then by what each adds."""
        one, parts = ranked.candidate, ranked.parts
        said = self.named.get(one.scope)
        inside = said is not None and said.what == "inside"
        own = set(terms(qualified_name, language="english"))
        words = self._words(one.scope)
        in_name = [] if said and not inside else [word for word in words if word in own]
        rest = [word for word in words if word not in own]
        told = [
            (parts[part] + more, f"{how}{who}")
            for part, more, how, who in (
                ("text", 1, "name: ", _whole(in_name)),
                ("text", 0, "words: ", _whole(rest)),
                ("vector", 0, "", MEANING),
                ("lent", 0, "called by ", self.lent.get(one.scope)),
                ("told", 0, "mentioned in ", self.told.get(one.scope)),
                ("near", 0, "", "touched in this conversation"),
                ("imports", 0, "imported by ", self.importers.get(one.path)),
            )
            if who and (part == "text" or parts[part] > 0)
        ]
        first = [f"{said.what}: {said.text}"] if said and not inside else []
        ordered = [text for _, text in sorted(told, key=lambda each: -each[0])]
        return tuple(one_line(text, _CHARS) for text in first + ordered)

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


def _whole(words: Sequence[str]) -> str:
    """The first of these terms; a path or a compound name as a whole, and not its parts too."""
    whole = [word for word in words if not any(word in each for each in words if each != word)]
    return ", ".join(whole[:_WORDS])


class CodeQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the code."""

    text: str
    vector: bytes = b""
    """The vector of the text, float32; empty to search by words only."""
    embedder: str = ""
    """The embedder that made the vector."""
    limit: int = 10
    near: frozenset[str] = frozenset()
    """Paths that the conversation has touched."""


_K1 = 1.2
_B = 0.6
"""How much the words of a long scope count less."""
_FIELDS = (3.0, 1.5, 1.5, 1.0)
"""What a word counts among the names, in the path, in what is said about it, in its lines."""
_CANDIDATES = 100
"""How many of the best by text are ranked, and as many by vector."""
_LEAST_HITS = 6_000
"""The most scopes that are looked at for a question's words, in a small project."""
_SHARE_OF_HITS = 0.3
"""The same in a large one, as a share of its scopes: the commonest words are left out."""
_COLUMNS = "npab"
"""The first letters of the text index's columns: names, paths, about, body."""
_COLUMN_BITS = 7
_CALLERS = 100
_LENT = 50
_OF_A_PLACE = 30
"""How many scopes of a place that the question names are ranked, by text and by vector."""


def search(
    connection: apsw.Connection, question: CodeQuestion, resident: ScopeVectors
) -> list[CodeHit]:
    """Find the best scopes, without their texts; in the caller's transaction."""
    held = connection.execute("SELECT document_count, term_count FROM state").fetchone()
    if held is None or not held[0] or question.limit < 1:
        return []
    count, length = int(str(held[0])), float(str(held[1]))
    asked = query_terms(question.text)
    lists = _lists(connection, asked, count, length / count)
    text = _Scores(*_summed(lists))
    near = _Scores(*resident.similarities(connection, question.vector, question.embedder))
    best = {*text.best(_CANDIDATES), *near.best(_CANDIDATES)}
    named = named_in(connection, question.text)
    rows = _rows(connection, {*best, *_of_places(named, text, near)})
    lent, told = loans(connection, text.of(text.best(_CALLERS)))
    rows |= _rows(connection, {*best_of(lent, _LENT), *best_of(told, _LENT)} - rows.keys())
    scores, cosines, held = text.of(rows), near.of(rows), _held(lists, sorted(rows))
    candidates = [
        ScopeCandidate(
            scope=scope,
            path=row.path,
            kind=row.kind,
            text=scores.get(scope, 0.0),
            similarity=cosines.get(scope),
            held=held.get(scope, 0.0),
            lent=lent[scope].score if scope in lent else 0.0,
            told=told[scope].score if scope in told else 0.0,
            named=named[scope].surely if scope in named else 0.0,
            meant=scope in named and named[scope].what != "folder",
        )
        for scope, row in rows.items()
    ]
    imports = _imports(connection, {row.path for row in rows.values()})
    ranked = rank(
        candidates,
        question=question.text,
        near=question.near,
        imports=imports,
        foreign=guess_language(question.text) not in (None, "english"),
    )
    found = mixed(ranked)[: question.limit]
    reasons = Reasons(
        terms=[(each.term, each.scopes, each.scores) for each in lists],
        named=named,
        lent=_lenders(connection, [one.candidate.scope for one in found], lent),
        told=_lenders(connection, [one.candidate.scope for one in found], told),
        importers=_importers(imports, {one.candidate.path for one in found}),
    )
    return [
        msgspec.structs.replace(
            row := rows[one.candidate.scope],
            score=one.score,
            similarity=one.candidate.similarity,
            why=reasons.why(one, row.qualified_name),
        )
        for one in found
    ]


# --- by words -------------------------------------------------------------------------


class _List(NamedTuple):
    """The scopes that have a term, sorted, and what it is worth: at all, and in each."""

    term: QueryTerm
    worth: float
    scopes: "Numbers"
    scores: "Floats"


def _lists(
    connection: apsw.Connection,
    asked: Sequence[QueryTerm],
    count: int,
    mean_length: float,
) -> list[_List]:
    import numpy as np

    fields = np.array(_FIELDS)
    column = np.zeros(1 << _COLUMN_BITS, np.int64)
    column[list(map(ord, _COLUMNS))] = range(len(_COLUMNS))
    lists = []
    for term, held in _rare(connection, asked, count):
        places = _places(connection, term.term)
        scopes, field = places >> _COLUMN_BITS, column[places & (1 << _COLUMN_BITS) - 1]
        shape = 1 - _B + _B * length_of(scopes) / max(1.0, mean_length)
        # Names and paths are about as long in all: only the rest is held against its length.
        each = fields[field] / np.where(field >= 2, shape, 1.0)
        starts = np.flatnonzero(np.diff(scopes, prepend=-1))
        counts = np.add.reduceat(each, starts)
        idf = math.log(1 + (count - held + 0.5) / (held + 0.5))
        worth = term.weight * idf
        scores = worth * counts * (_K1 + 1) / (counts + _K1)
        lists.append(_List(term, worth, scopes[starts], scores))
    return lists


def _rare(
    connection: apsw.Connection, asked: Sequence[QueryTerm], count: int
) -> list[tuple[QueryTerm, int]]:
    """The terms and how many scopes have each, rarest first, as many as may be read."""
    left = max(_LEAST_HITS, int(_SHARE_OF_HITS * count))
    counted = []
    for term in asked:
        if held := connection.execute(
            "SELECT doc FROM text_terms WHERE term = ?", (term.term,)
        ).get:
            counted.append((min(int(held), count), term))
    chosen: list[tuple[QueryTerm, int]] = []
    for held, term in sorted(counted, key=lambda each: (each[0], each[1].term)):
        left -= held
        if left >= 0 or not chosen:
            chosen.append((term, held))
    return chosen


def _places(connection: apsw.Connection, term: str) -> "Numbers":
    """Where a term stands: rows of scopes, each with its column's letter, sorted by scope."""
    import numpy as np

    # One string of numbers is read far faster than so many rows.
    joined = connection.execute(
        "SELECT group_concat(doc * ? + unicode(col)) FROM text_places WHERE term = ?",
        (1 << _COLUMN_BITS, term),
    ).get
    return np.fromstring(joined, np.int64, sep=",") if joined else np.empty(0, np.int64)


def _summed(lists: Sequence[_List]) -> "tuple[Numbers, Floats]":
    import numpy as np

    if not lists:
        return np.empty(0, np.int64), np.empty(0)
    merged = np.concatenate([each.scopes for each in lists])
    together = np.concatenate([each.scores for each in lists])
    # Each list is sorted: a stable sort merges them.
    order = np.argsort(merged, kind="stable")
    merged = merged[order]
    starts = np.flatnonzero(np.diff(merged, prepend=-1))
    return merged[starts], np.add.reduceat(together[order], starts)


class _Scores:
    """Scopes, sorted, with a score each."""

    def __init__(self, scopes: "Numbers", scores: "NDArray[np.floating]") -> None:
        self._scopes, self._scores = scopes, scores

    def best(self, limit: int) -> list[int]:
        """Return the best, best first; of equals the newest."""
        import numpy as np

        places = np.arange(len(self._scopes))
        if len(places) > limit:
            least = np.partition(self._scores, -limit)[-limit]
            places = np.flatnonzero(self._scores >= least)
        order = np.lexsort((self._scopes[places], self._scores[places]))[::-1][:limit]
        found: list[int] = self._scopes[places][order].tolist()
        return found

    def of(self, wanted: Iterable[int]) -> dict[int, float]:
        """Return the scores of those of these scopes that have one."""
        import numpy as np

        if not len(self._scopes):
            return {}
        asked = np.fromiter(wanted, np.int64)
        places = np.searchsorted(self._scopes, asked).clip(max=len(self._scopes) - 1)
        places = places[self._scopes[places] == asked]
        scores = self._scores[places].astype(np.float64)
        return dict(zip(self._scopes[places].tolist(), scores.tolist(), strict=True))


# --- what is around them -----------------------------------------------------------------


def _of_places(named: Mapping[int, Named], text: _Scores, near: _Scores) -> set[int]:
    """Of what the question names by its name all; of what is in a place the first, and the best."""
    first = {scope for scope, one in named.items() if one.first}
    others = sorted(named.keys() - first)
    found = (best_of(scores.of(others), _OF_A_PLACE) for scores in (text, near))
    return first.union(*found) if others else first


def _held(lists: Sequence[_List], scopes: Sequence[int]) -> dict[int, float]:
    """Of each scope the share of what the question's words are worth that it has."""
    import numpy as np

    telling = [each for each in lists if each.term.kind not in ("stop", "edge")]
    whole = sum(each.worth for each in telling)
    if not whole:
        return {}
    asked = np.array(scopes, np.int64)
    shares = np.zeros(len(asked))
    for each in telling:
        places = np.searchsorted(each.scopes, asked).clip(max=len(each.scopes) - 1)
        shares += each.worth / whole * (each.scopes[places] == asked)
    return dict(zip(scopes, shares.tolist(), strict=True))


def _imports(connection: apsw.Connection, paths: Collection[str]) -> dict[str, list[str]]:
    """Among these files, who imports whom."""
    found: dict[str, list[str]] = {}
    # With both ends given SQLite would look each one up with each other.
    for path, imported in connection.execute(
        """
        SELECT f.path, i.imported FROM json_each(?) AS chosen
        CROSS JOIN files AS f ON f.path = chosen.value
        CROSS JOIN imports AS i ON i.file = f.file
        """,
        (listed(sorted(paths)),),
    ):
        if imported in paths:
            found.setdefault(str(path), []).append(str(imported))
    return found


# --- what is shown -------------------------------------------------------------------------


def _rows(connection: apsw.Connection, scopes: Collection[int]) -> dict[int, CodeHit]:
    """Return these scopes by their rows, without what speaks for them."""
    found = connection.execute(
        """
        SELECT s.scope, s.scope_id, s.kind, f.path, s.name, s.qualified_name, s.signature,
            s.docstring, s.start_line, s.end_line
        FROM json_each(?) AS chosen CROSS JOIN scopes AS s ON s.scope = chosen.value
        JOIN files AS f USING (file)
        """,
        (listed(sorted(scopes)),),
    )
    columns = CodeHit.__struct_fields__[:9]
    return {
        int(str(scope)): CodeHit(**dict(zip(columns, row, strict=True)), score=0.0)
        for scope, *row in found
    }


def _lenders(
    connection: apsw.Connection, scopes: Collection[int], given: Mapping[int, LentScore]
) -> dict[int, str]:
    """Of these scopes that something has lent to, what that is called."""
    chosen = {scope: given[scope].lender for scope in scopes if scope in given}
    rows = _rows(connection, set(chosen.values()))
    return {scope: _called(rows[lender]) for scope, lender in chosen.items() if lender in rows}


def _called(hit: CodeHit) -> str:
    """Its name in a file of code, else the file's."""
    return hit.path if hit.kind in TEXTS else hit.qualified_name or hit.path


def _importers(imports: Mapping[str, Collection[str]], found: Collection[str]) -> dict[str, str]:
    """Of a file one of the others that were found, which imports it."""
    return {
        imported: path
        for path in sorted(found, reverse=True)
        for imported in imports.get(path, ())
        if imported != path
    }

"""Search over scopes: by words in four fields, by vectors, by names, and along calls and imports.

As in the search over turns (ragmem/store/sqlite/search.py), the postings of each term are read
from the text index, each with its field encoded in the same number, and scored here (BM25). All
scores are standardised (z-scores among the candidates) and added, as in ragmem/memory/ranking.py.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import apsw
import msgspec

from ragmem.index import MEANING, CodeHit
from ragmem.index.database import column, listed, rows
from ragmem.index.names import Named, named_in
from ragmem.index.vectors import ScopeVectors
from ragmem.records import ScopeKind
from ragmem.similarity import (
    group_z_scores,
    length_of,
    merged,
    middle_for_unknown,
    scale_of,
    z_scores,
)
from ragmem.terms import QueryTerm, guess_language, query_terms, terms
from ragmem.text import one_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]


class ScopeCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A scope with the evidence that it is relevant."""

    scope: int
    """The row id."""
    path: str
    kind: ScopeKind
    text: float = 0.0
    """The BM25 score over the four fields; 0 if it has none of the words."""
    similarity: float | None = None
    """The cosine similarity of its vector and the question's; None if either is missing."""
    held: float = 0.0
    """The share, from 0 to 1, of the question's words that it has, weighted by rarity (IDF)."""
    lent: float = 0.0
    """The best text score of a scope that calls it."""
    told: float = 0.0
    """The best text score of a section of prose that names it."""
    named: float = 0.0
    """The confidence, from 0 to 1, that the question names it."""
    meant: bool = False
    """Whether the question names it, its file, or a scope that contains it."""


class RankedScope(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its score, which is comparable within one search only."""

    candidate: ScopeCandidate
    score: float
    parts: Mapping[str, float]
    """The parts of the score by name; they sum to it."""


class ScopeWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of the parts of a score, in standard deviations.

    Chosen with `scripts/bench --only code` on one code base and this repository, and reported on
    another (docs/measurements.md).
    """

    words: float = 0.9
    """Weight of the text score, relative to 1 for the cosine similarity."""
    own: float = 0.4
    """The share of the text score that goes by a scope's own words alone; the rest also counts
    those of its callers and of prose that names it."""
    share_lent: float = 0.9
    """The factor by which the best caller's text score counts as the scope's own, if higher."""
    share_told: float = 1.0
    """The same factor for the best section of prose that names it."""
    lent: float = 0.6
    """Additional weight of the best caller's text score; it lifts no scope above the best one."""
    told: float = 0.25
    """Additional weight of the best score of prose that names it."""
    held: float = 3.0
    """Weight of the share of the question's words that it has, minus `much_held`."""
    much_held: float = 0.8
    vector: float = 1.0
    """Weight of the cosine similarity."""
    foreign_vector: float = 0.6
    """The same for a question in a language that the embedder handles badly."""
    file: float = 0.35
    """Weight of its file: the mean of the three best scopes in it, by text and vector."""
    imports: float = 0.1
    """Weight of the best file among those that its file imports or is imported by."""
    near: float = 0.3
    """Bonus for a scope in a file that the conversation has touched."""
    test: float = 1.2
    """Penalty for tests, unless the question is about tests."""
    block: float = 0.6
    """Penalty for scopes without a name."""
    section: float = 0.6
    """Penalty for sections of prose: most questions are about code."""
    named: float = 20.0
    """Weight of being named by the question, which ranks a scope before all others."""


DEFAULT_WEIGHTS = ScopeWeights()
WITHOUT_VECTORS = ScopeWeights(words=1.0, own=0.6, told=0.4)
"""The weights if no candidate has a vector: a scope's own words count for more."""
_BEST_OF_FILE = 3
_MAX_LENT_Z = 5.0
"""The limit of a lent z-score: if few candidates have one, it would be huge."""
_FIRST_HITS = 10
_MOST_OF_A_FILE = 3
"""The most scopes of one file among the first hits, unless the question names more."""

_TEST_PATH = re.compile(
    r"(^|/)(tests?|testing|testdata|specs?|__tests__|fixtures|[^/]*_tests)/"
    r"|(^|/)(test_[^/]*|conftest|[^/]*_tests?|[^/]*[.-](test|spec)|[^/]*Tests?)\.\w+$"
)
_ABOUT_TESTS = re.compile(
    r"\b(tests?|tested|testing|specs?|fixtures?|mocks?|testcases?|unittests?|pytest)\b|\btest_",
    re.IGNORECASE,
)


def is_test(path: str) -> bool:
    """Return whether a file's folder or name is that of tests."""
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
    similarity = middle_for_unknown([c.similarity for c in candidates])
    by_vector = z_scores(similarity)
    paths = [c.path for c in candidates]
    own = [
        t + vector * v
        for t, v in zip(z_scores([c.text for c in candidates]), by_vector, strict=True)
    ]
    of_file = group_z_scores(paths, own, best_of=_BEST_OF_FILE)
    of_imports = _by_imports(paths, own, imports or {})
    penalties = {"section": weights.section, "block": weights.block, "text": weights.block}
    tests_wanted = _ABOUT_TESTS.search(question) is not None
    ranked = []
    rows = zip(candidates, _by_words(candidates, weights), by_vector, strict=True)
    for candidate, (text, lent, told), alike in rows:
        parts = {
            "text": text,
            "vector": vector * alike,
            "lent": lent,
            "told": told,
            "held": weights.held * max(0.0, candidate.held - weights.much_held),
            "file": weights.file * of_file[candidate.path],
            "imports": weights.imports * of_imports.get(candidate.path, 0.0),
            "near": weights.near if candidate.path in near else 0.0,
            "test": 0.0 if tests_wanted or not is_test(candidate.path) else -weights.test,
            "kind": -penalties.get(candidate.kind, 0.0),
            "named": weights.named * candidate.named,
        }
        ranked.append(
            RankedScope(candidate=candidate, score=math.fsum(parts.values()), parts=parts)
        )
    return sorted(ranked, key=lambda each: (-each.score, each.candidate.path, each.candidate.scope))


def _by_words(
    candidates: Sequence[ScopeCandidate], weights: ScopeWeights
) -> Iterator[tuple[float, float, float]]:
    """Yield the score of each candidate's own words, and what callers and prose add to it.

    Callers lift no candidate above the best one, as scored without the additional weight.
    """
    own = [c.text for c in candidates]
    lent = [max(c.text, weights.share_lent * c.lent) for c in candidates]
    told = [max(n, weights.share_told * c.told) for n, c in zip(lent, candidates, strict=True)]
    by_own, by_all = scale_of(own), scale_of(told)
    by_lent = [min(_MAX_LENT_Z, z) for z in z_scores([c.lent for c in candidates])]
    by_told = [min(_MAX_LENT_Z, z) for z in z_scores([c.told for c in candidates])]
    share = 1 - weights.own
    both = [weights.own * by_own(o) + share * by_all(t) for o, t in zip(own, told, strict=True)]
    best = max(both)
    for score, o, n, t, z_lent, z_told in zip(both, own, lent, told, by_lent, by_told, strict=True):
        words = weights.own * by_own(o) + share * by_all(o)
        called = max(score, min(score + weights.lent * z_lent, best)) - score
        called += share * (by_all(n) - by_all(o))
        named = share * (by_all(t) - by_all(n))
        yield (
            weights.words * words,
            weights.words * called,
            weights.words * named + weights.told * z_told,
        )


def mixed(ranked: Sequence[RankedScope]) -> list[RankedScope]:
    """Move scopes beyond three of one file behind the first ten hits, unless they are meant."""
    first: list[RankedScope] = []
    later: list[RankedScope] = []
    seen: Counter[str] = Counter()
    for place, hit in enumerate(ranked):
        path = hit.candidate.path
        if len(first) >= _FIRST_HITS:
            later += ranked[place:]
            break
        if seen[path] >= _MOST_OF_A_FILE and not hit.candidate.meant:
            later.append(hit)
            continue
        seen[path] += 1
        first.append(hit)
    return first + later


def _by_imports(
    paths: Sequence[str], scores: Sequence[float], imports: Mapping[str, Collection[str]]
) -> dict[str, float]:
    """Return by file the best score in files that it imports or that import it, at least 0."""
    best: defaultdict[str, float] = defaultdict(float)
    for path, score in zip(paths, scores, strict=True):
        best[path] = max(score, best[path])
    found: defaultdict[str, float] = defaultdict(float)
    for path, imported in imports.items():
        for other in set(imported) - {path}:
            found[path] = max(found[path], best[other])
            found[other] = max(found[other], best[path])
    return found


_MOST_NAMESAKES = 3
"""The most scopes that may share a called name: with more, the call identifies none of them."""
TEXTS = ("section", "text")
"""The kinds of scopes that are prose: they call nothing, but may name other scopes."""


class LentScore(NamedTuple):
    """The score of a scope that calls or names another, and that lending scope."""

    score: float
    lender: int


def loans(
    connection: apsw.Connection, scores: Mapping[int, float]
) -> tuple[dict[int, LentScore], dict[int, LentScore]]:
    """Return the best-scoring caller of each scope called, and the same for prose that names it.

    `scores` has the text scores of possible callers. Names that many scopes share are left out.
    """
    lenders = listed(scores)
    texts = column(
        connection,
        "SELECT s.scope FROM json_each(?) AS chosen CROSS JOIN scopes AS s"
        " ON s.scope = chosen.value WHERE s.kind IN (?, ?)",
        lenders,
        *TEXTS,
    )
    called = rows(
        connection,
        "SELECT name_key, json_group_array(scope) FROM calls"
        " WHERE scope IN (SELECT value FROM json_each(?)) GROUP BY name_key",
        lenders,
    )
    lent, told = dict[int, LentScore](), dict[int, LentScore]()
    for name, found in called:
        of_name = "SELECT scope FROM scopes WHERE name_key = ? LIMIT ?"
        defined = column(connection, of_name, name, _MOST_NAMESAKES + 1)
        if len(defined) > _MOST_NAMESAKES:
            continue
        for lender in msgspec.json.decode(found, type=list[int]):
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
    """What explains the hits of a search."""

    terms: "Sequence[tuple[QueryTerm, NDArray[np.int64], NDArray[np.float64]]]"
    """For each term of the question the scopes that contain it, sorted, and their scores."""
    named: Mapping[int, Named]
    """The question's references, by scope."""
    lent: Mapping[int, str]
    """The name of the best caller, by scope."""
    told: Mapping[int, str]
    """The path of the prose that names it, by scope."""
    importers: Mapping[str, str]
    """By path, a file with hits that imports it."""

    def why(self, ranked: RankedScope, qualified_name: str) -> tuple[str, ...]:
        """Return the reasons for a hit: that the question names it, then by their parts' scores."""
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
                ("text", 1, "name: ", _joined_terms(in_name)),
                ("text", 0, "words: ", _joined_terms(rest)),
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
        """Return the question's terms in a scope, best-scoring first, without stems of others."""
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


def _joined_terms(words: Sequence[str]) -> str:
    """Join the first of these terms, dropping parts of paths and compound names in the list."""
    whole = [word for word in words if not any(word in each for each in words if each != word)]
    return ", ".join(whole[:_WORDS])


class CodeQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a search over scopes."""

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
"""BM25's k1 (saturation of term frequency) and b (normalization by length)."""
_FIELDS = (3.0, 1.5, 1.5, 1.0)
"""The weights of an occurrence in names, paths, docstring and signature, and body."""
_CANDIDATES = 100
"""The number of candidates by text score, and by vector, that are ranked."""
_LEAST_HITS = 6_000
"""The most postings that are read for a question in a small project."""
_SHARE_OF_HITS = 0.3
"""The same in a large project, as a share of its scopes: the commonest terms are left out."""
_COLUMNS = "npab"
"""The first letters of the text index's columns: names, paths, about, body."""
_COLUMN_BITS = 7
_CALLERS = 100
_LENT = 50
_MOST_OF_A_PLACE = 30
"""The number of scopes by text score, and by vector, that are ranked for places in a question."""


def search(
    connection: apsw.Connection, question: CodeQuestion, resident: ScopeVectors
) -> list[CodeHit]:
    """Find the best scopes, without their texts. Runs in the caller's transaction."""
    count, length = connection.execute("SELECT document_count, term_count FROM state").get
    if not count or question.limit < 1:
        return []
    query = query_terms(question.text)
    lists = _postings(connection, query, count, length / count)
    text = _Scores(*merged([(each.scopes, each.scores) for each in lists]))
    near = _Scores(*resident.similarities(connection, question.vector, question.embedder))
    best = {*text.best(_CANDIDATES), *near.best(_CANDIDATES)}
    named = named_in(connection, question.text)
    hits = _hits(connection, {*best, *_named_to_rank(named, text, near)})
    lent, told = loans(connection, text.of(text.best(_CALLERS)))
    hits |= _hits(connection, {*best_of(lent, _LENT), *best_of(told, _LENT)} - hits.keys())
    scores, cosines, shares = text.of(hits), near.of(hits), _shares_held(lists, sorted(hits))
    candidates = [
        ScopeCandidate(
            scope=scope,
            path=hit.path,
            kind=hit.kind,
            text=scores.get(scope, 0.0),
            similarity=cosines.get(scope),
            held=shares.get(scope, 0.0),
            lent=lent[scope].score if scope in lent else 0.0,
            told=told[scope].score if scope in told else 0.0,
            named=named[scope].surely if scope in named else 0.0,
            meant=scope in named and named[scope].what != "folder",
        )
        for scope, hit in hits.items()
    ]
    imports = _imports(connection, {hit.path for hit in hits.values()})
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
            hit := hits[one.candidate.scope],
            score=one.score,
            similarity=one.candidate.similarity,
            why=reasons.why(one, hit.qualified_name),
        )
        for one in found
    ]


# --- by words -------------------------------------------------------------------------


class _Postings(NamedTuple):
    """The postings of a term: its worth (weight by IDF), scopes sorted, and their BM25 scores."""

    term: QueryTerm
    worth: float
    scopes: "Numbers"
    scores: "Floats"


def _postings(
    connection: apsw.Connection,
    asked: Sequence[QueryTerm],
    count: int,
    mean_length: float,
) -> list[_Postings]:
    import numpy as np

    fields = np.array(_FIELDS)
    column = np.zeros(1 << _COLUMN_BITS, np.int64)
    column[list(map(ord, _COLUMNS))] = range(len(_COLUMNS))
    lists = []
    for term, held in _rarest_terms(connection, asked, count):
        places = _places(connection, term.term)
        scopes, field = places >> _COLUMN_BITS, column[places & (1 << _COLUMN_BITS) - 1]
        shape = 1 - _B + _B * length_of(scopes) / max(1.0, mean_length)
        # Names and paths are about equally long for all: only the other fields are normalised.
        each = fields[field] / np.where(field >= 2, shape, 1.0)
        starts = np.flatnonzero(np.diff(scopes, prepend=-1))
        counts = np.add.reduceat(each, starts)
        idf = math.log(1 + (count - held + 0.5) / (held + 0.5))
        worth = term.weight * idf
        scores = worth * counts * (_K1 + 1) / (counts + _K1)
        lists.append(_Postings(term, worth, scopes[starts], scores))
    return lists


def _rarest_terms(
    connection: apsw.Connection, asked: Sequence[QueryTerm], count: int
) -> list[tuple[QueryTerm, int]]:
    """Return terms with the numbers of scopes that have them, rarest first, up to the limit."""
    left = max(_LEAST_HITS, int(_SHARE_OF_HITS * count))
    doc = "SELECT doc FROM text_terms WHERE term = ?"
    counted = [
        (min(held, count), term) for term in asked for held in column(connection, doc, term.term)
    ]
    chosen: list[tuple[QueryTerm, int]] = []
    for held, term in sorted(counted, key=lambda each: (each[0], each[1].term)):
        left -= held
        if left >= 0 or not chosen:
            chosen.append((term, held))
    return chosen


def _places(connection: apsw.Connection, term: str) -> "Numbers":
    """Return a term's occurrences: row ids of scopes, with the column's letter in the low bits."""
    import numpy as np

    # Reading one string of numbers is far faster than reading as many rows.
    joined = connection.execute(
        "SELECT group_concat(doc * ? + unicode(col)) FROM text_places WHERE term = ?",
        (1 << _COLUMN_BITS, term),
    ).get
    return np.fromstring(joined, np.int64, sep=",") if joined else np.empty(0, np.int64)


class _Scores:
    """Scopes, sorted by row id, with their scores."""

    def __init__(self, scopes: "Numbers", scores: "NDArray[np.floating]") -> None:
        self._scopes, self._scores = scopes, scores

    def best(self, limit: int) -> list[int]:
        """Return the scopes with the highest scores, best first, of equal ones the newest first."""
        import numpy as np

        places = np.arange(len(self._scopes))
        if len(places) > limit:
            least = np.partition(self._scores, -limit)[-limit]
            places = np.flatnonzero(self._scores >= least)
        order = np.lexsort((self._scopes[places], self._scores[places]))[::-1][:limit]
        found: list[int] = self._scopes[places][order].tolist()
        return found

    def of(self, wanted: Iterable[int]) -> dict[int, float]:
        """Return the scores of these scopes, without those that have none."""
        import numpy as np

        if not len(self._scopes):
            return {}
        asked = np.fromiter(wanted, np.int64)
        places = np.searchsorted(self._scopes, asked).clip(max=len(self._scopes) - 1)
        places = places[self._scopes[places] == asked]
        scores = self._scores[places].astype(np.float64)
        return dict(zip(self._scopes[places].tolist(), scores.tolist(), strict=True))


# --- neighbourhood -----------------------------------------------------------------------


def _named_to_rank(named: Mapping[int, Named], text: _Scores, near: _Scores) -> set[int]:
    """Return the named scopes to rank: those marked `first`, and the best of the others."""
    first = {scope for scope, one in named.items() if one.first}
    others = sorted(named.keys() - first)
    found = (best_of(scores.of(others), _MOST_OF_A_PLACE) for scores in (text, near))
    return first.union(*found) if others else first


def _shares_held(lists: Sequence[_Postings], scopes: Sequence[int]) -> dict[int, float]:
    """Return for each scope the share of the total worth of the question's words that it has."""
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
    found: dict[str, list[str]] = {}
    # If both ends were constrained, SQLite would look up every pair.
    for path, imported in rows(
        connection,
        """
        SELECT f.path, i.imported FROM json_each(?) AS chosen
        CROSS JOIN files AS f ON f.path = chosen.value
        CROSS JOIN imports AS i ON i.file = f.file
        """,
        listed(sorted(paths)),
    ):
        if imported in paths:
            found.setdefault(path, []).append(imported)
    return found


# --- rows and reasons ----------------------------------------------------------------------


def _hits(connection: apsw.Connection, scopes: Collection[int]) -> dict[int, CodeHit]:
    """Return these scopes by row id, as hits without scores and reasons."""
    found = rows(
        connection,
        """
        SELECT s.scope, s.scope_id, s.kind, f.path, s.name, s.qualified_name, s.signature,
            s.docstring, s.start_line, s.end_line
        FROM json_each(?) AS chosen CROSS JOIN scopes AS s ON s.scope = chosen.value
        JOIN files AS f USING (file)
        """,
        listed(sorted(scopes)),
    )
    columns = CodeHit.__struct_fields__[:9]
    return {
        scope: CodeHit(**dict(zip(columns, row, strict=True)), score=0.0) for scope, *row in found
    }


def _lenders(
    connection: apsw.Connection, scopes: Collection[int], given: Mapping[int, LentScore]
) -> dict[int, str]:
    """Return by scope the name of its lender, without scopes that have none."""
    chosen = {scope: given[scope].lender for scope in scopes if scope in given}
    names = {
        lender: hit.path if hit.kind in TEXTS else hit.qualified_name or hit.path
        for lender, hit in _hits(connection, set(chosen.values())).items()
    }
    return {scope: names[lender] for scope, lender in chosen.items() if lender in names}


def _importers(imports: Mapping[str, Collection[str]], found: Collection[str]) -> dict[str, str]:
    """Return for each file one of the files with hits that imports it."""
    return {
        imported: path
        for path in sorted(found, reverse=True)
        for imported in imports.get(path, ())
        if imported != path
    }

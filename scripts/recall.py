"""Recall of the turns that answer, on the labelled sets in tests/recall/data.

Each row adds an ingredient. Columns: the share of the evidence among the first 5, 10 and 20
turns, a mean over the questions, for the sets that weights are fitted on and for those held
out. Everything in memory, without a store; terms, time words and ranking are the product's.

    scripts/recall                   the table, by kind of question and by language too
    scripts/recall --json FILE       the same as JSON
    scripts/recall --merged          all sets searched as one project
    scripts/recall --data tests/recall/chats       chats of two people instead
    scripts/recall --history black.json …          histories of repositories instead, each a JSON
                                     of turns (id, at, user, assistant) and questions (q, evidence)
    scripts/recall --sweep           each weight up and down, on both halves
"""

import argparse
import asyncio
import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from ragmem.embedder import turn_passages, turn_text
from ragmem.embedder.models import OnnxEmbedder
from ragmem.memory.dates import time_spans, without_time_words
from ragmem.memory.ranking import DEFAULT_WEIGHTS, Weights, rank
from ragmem.memory.recall import BEHIND, demoted, only_asks
from ragmem.records import Candidate, Turn
from ragmem.terms import query_terms, terms, turn_terms
from tests.recall.labelled import DATA, LabelledSet, Question, history_set, labelled_sets

Scores = NDArray[np.float64]
Row = Callable[["Corpus", int], Scores]
DEPTHS = (5, 10, 20)
_WORD = re.compile(r"\w+")


class TextIndex:
    """A BM25 index, with the formula of FTS5 and Lucene."""

    def __init__(self, documents: Sequence[Iterable[str]]) -> None:
        counts = [Counter(document) for document in documents]
        sizes = np.array([count.total() for count in counts], float)
        self._floor = 1.2 * (0.25 + 0.75 * sizes / max(sizes.mean(), 1))
        self._total = len(counts)
        places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for at, count in enumerate(counts):
            for term, times in count.items():
                places[term].append((at, times))
        self._places = {
            term: (np.array([p for p, _ in found]), np.array([n for _, n in found], float))
            for term, found in places.items()
        }

    def scores(self, asked: Iterable[tuple[str, float]]) -> Scores:
        """Return the score of every document for weighted terms."""
        out = np.zeros(self._total)
        for term, weight in asked:
            if term in self._places:
                at, times = self._places[term]
                idf = np.log(1 + (self._total - len(at) + 0.5) / (len(at) + 0.5))
                out[at] += weight * idf * times * 2.2 / (times + self._floor[at])
        return out


class Corpus:
    """Turns that are searched as one project, with the scores of all its questions."""

    def __init__(self, turns: Sequence[Turn], questions: Sequence[Question]) -> None:
        self.turns = turns
        self.questions = questions
        self.place = {turn.turn_id: i for i, turn in enumerate(turns)}
        self.asking = {turn.turn_id for turn in turns if only_asks(turn)}
        self.text: dict[str, list[Scores]] = {}
        self.vector: dict[str, list[Scores]] = {}
        self.spans = [time_spans(q.question, q.asked_at) for q in questions]
        self._index()

    def _index(self) -> None:
        plain = [_WORD.findall(_whole(turn).casefold()) for turn in self.turns]
        stemmed = [_stems(_whole(turn)) for turn in self.turns]
        index = TextIndex([turn_terms(turn) for turn in self.turns])
        self.text["terms"] = [index.scores(_asked(q, stop_words=False)) for q in self.questions]
        self.text["all terms"] = [index.scores(_asked(q, stop_words=True)) for q in self.questions]
        asked: dict[str, Callable[[Question], list[tuple[str, float]]]] = {
            "plain": lambda q: [(w, 1.0) for w in set(_WORD.findall(q.question.casefold()))],
            "stemmed": lambda q: [(w, 1.0) for w in set(_stems(q.question))],
        }
        for name, documents in (("plain", plain), ("stemmed", stemmed)):
            index = TextIndex(documents)
            self.text[name] = [index.scores(asked[name](q)) for q in self.questions]

    async def embed(self, embedder: OnnxEmbedder) -> None:
        """Compute the questions' cosines: with one vector per turn, and with its best passage."""
        questions = await embedder.embed([q.question for q in self.questions], "query")
        cut = {
            "whole": [[turn_text(turn)] for turn in self.turns],
            "passages": [
                turn_passages(turn, embedder.count_tokens, embedder.info) for turn in self.turns
            ],
        }
        self.passages = [len(several) for several in cut["passages"]]
        for name, texts in cut.items():
            flat = [text for several in texts for text in several]
            owner = np.array([i for i, several in enumerate(texts) for _ in several])
            cosines = questions @ (await embedder.embed(flat)).T
            best = np.full((len(self.questions), len(self.turns)), -1.0)
            for row, values in zip(best, cosines, strict=True):
                np.maximum.at(row, owner, values)
            self.vector[name] = list(best)

    def candidates(self, asked: int, text: str, vector: str | None, limit: int) -> list[Candidate]:
        """Return the candidates that a store would offer (see ragmem.memory.ranking)."""
        by_text = self.text[text][asked]
        best = {int(i) for i in _first(by_text, limit) if by_text[i] > 0}
        offered = set(best)
        if vector:
            offered |= {int(i) for i in _first(self.vector[vector][asked], limit)}
        for i in tuple(offered):
            offered |= {j for j in (i - 1, i + 1) if self._together(i, j)}
        return [
            Candidate(
                record_id=self.turns[i].turn_id,
                session_id=self.turns[i].session_id,
                turn_index=self.turns[i].turn_index,
                at=self.turns[i].started_at,
                text=float(by_text[i]) if i in best else 0.0,
                similarity=float(self.vector[vector][asked][i]) if vector else None,
                whole=float(self.vector["whole"][asked][i]) if vector else None,
                passages=self.passages[i] if vector else 0,
            )
            for i in sorted(offered)
        ]

    def _together(self, i: int, j: int) -> bool:
        inside = 0 <= j < len(self.turns)
        return inside and self.turns[i].session_id == self.turns[j].session_id


def _asked(question: Question, *, stop_words: bool) -> list[tuple[str, float]]:
    """Return the query terms as `ragmem.memory.recall` does: stop words only without a vector."""
    spans = time_spans(question.question, question.asked_at)
    asked = query_terms(without_time_words(question.question, spans))
    return [(t.term, t.weight) for t in asked if stop_words or t.kind != "stop"]


def _stems(text: str) -> list[str]:
    return [terms(word, language="english")[-1] for word in _WORD.findall(text) if terms(word)]


def _whole(turn: Turn) -> str:
    results = (f"{c.tool_name} {c.arguments} {c.result}" for c in turn.tool_calls)
    return "\n".join((turn.user_message, turn.assistant_message, *results))


def _first(scores: Scores, count: int) -> NDArray[np.int64]:
    return np.argsort(-scores, kind="stable")[:count]


# --- rows --------------------------------------------------------------------------------


def by_text(name: str) -> Row:
    """Return a row that ranks by BM25 alone."""
    return lambda corpus, asked: corpus.text[name][asked]


def by_vector(name: str) -> Row:
    """Return a row that ranks by cosine alone."""
    return lambda corpus, asked: corpus.vector[name][asked]


def reciprocal(text: str, vector: str) -> Row:
    """Return a row that ranks by reciprocal rank fusion of both (k = 60)."""

    def row(corpus: Corpus, asked: int) -> Scores:
        out = np.zeros(len(corpus.turns))
        for scores in (corpus.text[text][asked], corpus.vector[vector][asked]):
            out[_first(scores, len(scores))] += 1 / (60 + np.arange(len(scores)))
        return out

    return row


def ranked(
    weights: Weights,
    *,
    penalty: float = BEHIND,
    text: str | None = None,
    vector: str | None = "passages",
) -> Row:
    """Return a row that ranks a store's candidates with the product's ranking."""
    text = text or ("terms" if vector else "all terms")

    def row(corpus: Corpus, asked: int) -> Scores:
        found = corpus.candidates(asked, text, vector, weights.candidates)
        out = np.full(len(corpus.turns), -np.inf)
        order = rank(
            found,
            now=corpus.questions[asked].asked_at,
            spans=corpus.spans[asked],
            weights=weights,
        )
        for one in demoted(order, {}, behind=corpus.asking, penalty=penalty):
            out[corpus.place[one.candidate.record_id]] = one.score
        return out

    return row


def _rows() -> dict[str, Row]:
    bare = Weights(candidates=10**6, before=0, session=0, around=0, time=0, recency=0, short=1e9)
    unmoved = partial(ranked, penalty=0)
    full = DEFAULT_WEIGHTS
    near = msgspec.structs.replace(bare, before=full.before)
    session = msgspec.structs.replace(near, session=full.session)
    around = msgspec.structs.replace(session, around=full.around)
    short = msgspec.structs.replace(around, short=full.short)
    return {
        "BM25, plain words": by_text("plain"),
        "BM25, English stems": by_text("stemmed"),
        "BM25, terms": by_text("terms"),
        "BM25, terms and stop words": by_text("all terms"),
        "vectors, one a turn": by_vector("whole"),
        "vectors, passages": by_vector("passages"),
        "both, one vector, RRF": reciprocal("terms", "whole"),
        "both, one vector, z-scores": unmoved(bare, vector="whole"),
        "  + the turn before": unmoved(near, vector="whole"),
        "  + session": unmoved(session, vector="whole"),
        "  + passages": unmoved(session),
        "  + those around": unmoved(around),
        "  + less of it for long turns": unmoved(short),
        "  + questions alone behind": ranked(short),
        "  + time words: all there is": ranked(msgspec.structs.replace(full, candidates=10**6)),
        "product": ranked(full),
        "product, embedder away": ranked(full, vector=None),
    }


_STEPS: dict[str, tuple[float, ...]] = {
    "candidates": (10, 20, 30, 100, 200),
    "vector": (0.9, 1.1, 1.3, 1.8),
    "before": (0.0, 0.25, 0.75, 1.0),
    "session": (0.0, 0.25, 0.75, 1.0),
    "whole": (0.0, 0.3, 0.5, 1.0),
    "around": (0.0, 0.25, 0.75, 1.0),
    "short": (1.0, 3.0, 4.0, 8.0, 1e9),
    "time": (0.0, 2.0, 3.0, 6.0),
    "recency": (0.0, 0.2, 0.5),
}


def _sweep() -> dict[str, Row]:
    rows = {"product": ranked(DEFAULT_WEIGHTS)}
    for field, values in _STEPS.items():
        for value in values:
            kept = int(value) if field == "candidates" else value
            changed = msgspec.structs.replace(DEFAULT_WEIGHTS, **{field: kept})
            rows[f"{field} {value:g}"] = ranked(changed)
    for value in (0.0, 0.5, 2.0, 3.0):
        rows[f"penalty {value:g}"] = ranked(DEFAULT_WEIGHTS, penalty=value)
    return rows


# --- measuring ---------------------------------------------------------------------------


class Measured(msgspec.Struct, frozen=True):
    """A row's result: for each group of questions, the mean recall at each depth."""

    name: str
    groups: dict[str, tuple[float, ...]]
    questions: dict[str, int]
    ms: float


def measure(name: str, row: Row, corpora: Sequence[tuple[Corpus, list[LabelledSet]]]) -> Measured:
    """Run a row over all questions; its milliseconds are those of ranking alone."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    spent = 0.0
    for corpus, sets in corpora:
        source = {id(q): one for one in sets for q in one.questions}
        for asked, question in enumerate(corpus.questions):
            began = time.perf_counter()
            scores = row(corpus, asked)
            spent += time.perf_counter() - began
            first = [corpus.turns[i].turn_id for i in _first(scores, DEPTHS[-1])]
            wanted = set(question.evidence)
            recalls = [len(wanted & set(first[:depth])) / len(wanted) for depth in DEPTHS]
            labelled = source[id(question)]
            half = "held out" if labelled.held_out else "fitted"
            for group in (
                "all",
                half,
                f"set {labelled.name}",
                f"kind {question.kind}",
                f"in {labelled.language}",
            ):
                found[group].append(recalls)
    means = {group: tuple(float(x) for x in np.mean(values, 0)) for group, values in found.items()}
    counts = {group: len(values) for group, values in found.items()}
    return Measured(name, means, counts, 1000 * spent / max(1, counts["all"]))


def _table(measured: Sequence[Measured], groups: Sequence[str]) -> str:
    width = max(len(m.name) for m in measured)
    counts = measured[0].questions
    heads = [f"{group} ({counts[group]})" for group in groups]
    lines = [f"{'recall at 5 / 10 / 20':{width}}  " + "  ".join(f"{h:<18}" for h in heads) + "  ms"]
    for one in measured:
        cells = [" ".join(f"{x:.3f}" for x in one.groups[g]) for g in groups]
        lines.append(
            f"{one.name:{width}}  " + "  ".join(f"{c:<18}" for c in cells) + f"  {one.ms:.1f}"
        )
    return "\n".join(lines)


async def _corpora(
    sets: list[LabelledSet], *, merged: bool
) -> list[tuple[Corpus, list[LabelledSet]]]:
    groups = [sets] if merged else [[one] for one in sets]
    corpora = []
    embedder = OnnxEmbedder()
    try:
        for group in groups:
            turns = [turn for one in group for turn in one.turns]
            corpus = Corpus(turns, [q for one in group for q in one.questions])
            await corpus.embed(embedder)
            corpora.append((corpus, group))
    finally:
        await embedder.aclose()
    return corpora


def main() -> int:
    """Measure all rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of labelled sets")
    parser.add_argument("--history", type=Path, nargs="+", metavar="FILE", help="instead of those")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument("--merged", action="store_true", help="search all sets as one project")
    parser.add_argument("--sweep", action="store_true", help="each weight up and down")
    options = parser.parse_args()
    named = [history_set(file) for file in options.history or ()]
    sets = named or list(labelled_sets(options.data))
    if not sets:
        print(f"No labelled sets: {options.data} has no *.json.", file=sys.stderr)
        return 1
    corpora = asyncio.run(_corpora(sets, merged=options.merged))
    rows = _sweep() if options.sweep else _rows()
    measured = [measure(name, row, corpora) for name, row in rows.items()]
    groups = measured[0].questions
    print(f"{len(sets)} sets, {sum(len(s.turns) for s in sets)} turns, {groups['all']} questions\n")
    print(_table(measured, [g for g in ("fitted", "held out", "all") if g in groups]))
    if not options.sweep:
        names = ("BM25, terms", "both, one vector, z-scores", "product")
        last = [m for m in measured if m.name in names]
        for prefix in ("set ", "kind ", "in "):
            for group in sorted(g for g in groups if g.startswith(prefix)):
                print(f"\n{_table(last, [group])}")
    if options.json:
        options.json.write_text(json.dumps(msgspec.to_builtins(measured), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

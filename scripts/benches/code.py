"""The code index: the time to make, update and search it, and its recall.

Each code base is copied, then indexed and searched in separate processes. The baselines are ripgrep
(the scopes with most of the question's words), BM25 over the lines of each scope, and the nearest
vectors.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import msgspec

from benches.code_bases import BASES, cleared, copied
from benches.code_latency import BOTH as RAGMEM, Searched, measure_latency, searched_table
from benches.code_making import Indexed, Place, indexed_table, make
from benches.code_plain import Hit, Plain
from benches.code_questions import Question
from benches.growth import in_child
from benches.spread import Spread, spread
from benches.tables import aligned
from ragmem.embedder.models import OnnxEmbedder
from ragmem.index.search import CodeQuestion, search
from ragmem.index.vectors import ScopeVectors

DEPTHS = (1, 5, 10, 20)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one way of searching in one code base."""

    base: str
    way: str
    recalls: dict[str, tuple[float, ...]]
    """The recall of the defining scopes at 1, 5, 10 and 20, by the origin of the questions."""
    questions: dict[str, int]
    spread: Spread
    """Milliseconds of a search, without embedding the question."""


class Codes(msgspec.Struct, frozen=True, tag="code"):
    """The results of one run."""

    indexed: list[Indexed] = []
    found: list[Found] = []
    searched: list[Searched] = []

    @property
    def kept(self) -> bool:
        """Whether every target is met."""
        return all(made.kept for made in self.indexed) and all(row.kept for row in self.searched)


def measure_code(folder: Path, names: Sequence[str] = ()) -> Iterator[Codes]:
    """Measure each code base, or those whose name contains one of `names`."""
    for base in BASES.values():
        if names and not any(name.lower() in base.name.lower() for name in names):
            continue
        place = Place(folder / "code")
        got = copied(base, place.root)
        indexed = in_child(make, place, base, got.size_bytes)
        if base.asked:
            yield Codes([indexed], in_child(ask, place, base.name, got.questions))
        else:
            yield Codes([indexed])
            for searched in measure_latency(place, folder / "part"):
                yield Codes(searched=searched)
        cleared(place.folder)


# --- in a process of its own --------------------------------------------------------------


async def ask(place: Place, name: str, questions: Sequence[Question]) -> list[Found]:
    """Search for the answers to the questions in each way."""
    embedder = OnnxEmbedder()
    rows = await embedder.embed([each.text for each in questions], "query")
    vectors = {q.text: row.astype("<f4").tobytes() for q, row in zip(questions, rows, strict=True)}
    model_id = embedder.info.model_id
    await embedder.aclose()
    connection, resident = apsw.Connection(str(place.database)), ScopeVectors()

    def by_ragmem(question: Question, *, meaning: bool) -> list[Hit]:
        asked = CodeQuestion(
            text=question.text,
            vector=vectors[question.text] if meaning else b"",
            embedder=model_id,
            limit=DEPTHS[-1],
        )
        return [Hit(h.path, h.qualified_name) for h in search(connection, asked, resident)]

    with Plain(place.root, place.database, model_id) as plain:
        ways: dict[str, Callable[[Question], list[Hit]]] = {
            "ripgrep": lambda q: plain.by_ripgrep(q.text, DEPTHS[-1]),
            "BM25 over lines": lambda q: plain.by_bm25(q.text, DEPTHS[-1]),
            "vectors alone": lambda q: plain.by_vector(vectors[q.text], DEPTHS[-1]),
            "ragmem, words": lambda q: by_ragmem(q, meaning=False),
            RAGMEM: lambda q: by_ragmem(q, meaning=True),
        }
        found = [_asked(name, way, questions, find) for way, find in ways.items()]
    connection.close()
    return found


def _asked(
    base: str, way: str, questions: Sequence[Question], find: Callable[[Question], list[Hit]]
) -> Found:
    """Return the results of one way of searching."""
    shares: dict[str, list[list[float]]] = defaultdict(list)
    spent = []
    for question in questions:
        started = time.perf_counter()
        hits = find(question)
        spent.append((time.perf_counter() - started) * 1000)
        wanted = Hit(question.path, question.qualified_name)
        found = [float(wanted in hits[:depth]) for depth in DEPTHS]
        shares[question.origin].append(found)
    return Found(
        base=base,
        way=way,
        recalls={
            group: tuple(round(statistics.mean(column), 4) for column in zip(*rows, strict=True))
            for group, rows in shares.items()
        },
        questions={group: len(rows) for group, rows in shares.items()},
        # The first search fills the process's caches.
        spread=spread(spent[1:]),
    )


# --- the report -----------------------------------------------------------------------------


def code_table(found: Codes) -> str:
    """Return the cost of the indexes, the latency of searches, and the recall of each way."""
    names = [f"among {', '.join(map(str, DEPTHS))}", "questions", "min", "median", "p95"]
    parts = [indexed_table(found.indexed)] if found.indexed else []
    if found.searched:
        parts.append(searched_table(found.searched))
    for base in dict.fromkeys(each.base for each in found.found):
        own = [each for each in found.found if each.base == base]
        for group in own[0].recalls:
            lines = [[f"{base}: {group}", *names]]
            for each in own:
                s = each.spread
                recalls = " / ".join(f"{r:.3f}".lstrip("0") for r in each.recalls[group])
                times = [f"{n:.1f}" for n in (s.minimum, s.median, s.p95)]
                lines.append([each.way, recalls, f"{each.questions[group]}", *times])
            parts.append(aligned(lines))
    return "\n\n".join(parts)

"""Recall of the labelled evidence with both stores, as the product searches them, and plain BM25.

The sets are those of scripts/recall, each a separate project in one memory. Plain BM25 is that of
scripts/recall over the words of each turn, within each set alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import recall

from benches.context import empty
from benches.growth import Place, in_child
from benches.memories import DEPTHS, Found, asked, chosen, opened_with_embedder, share, stored
from benches.spread import Spread, spread
from benches.tables import aligned
from tests.recall.labelled import LabelledSet

PLAIN = "BM25, plain words"


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """The recall of one way of searching."""

    name: str
    groups: dict[str, tuple[float, ...]]
    """The mean recall at 5, 10 and 20: of all questions, and by half, set and language."""
    questions: dict[str, int]
    spread: Spread | None = None
    """The milliseconds of a search, including embedding the question."""
    store_s: float | None = None
    """The seconds for storing all turns with their vectors."""


class Recalls(msgspec.Struct, frozen=True, tag="recall"):
    """The results of one run."""

    turns: int = 0
    recalled: list[Recalled] = []


def measure_recall(
    folder: Path, stores: Sequence[str], names: Sequence[str] = ()
) -> Iterator[Recalls]:
    """Measure plain BM25, then each store with and without vectors."""
    sets = chosen(names)
    turns = sum(len(one.turns) for one in sets)
    yield Recalls(turns, [plain(sets)])
    for store in stores:
        with empty(folder / f"recall-{store}", store) as place:
            yield Recalls(turns, in_child(ask_store, place, store, names))


async def ask_store(place: Place, kind: str, names: Sequence[str]) -> list[Recalled]:
    """Measure a store; runs in a separate process."""
    sets = chosen(names)
    async with opened_with_embedder(place) as (store, embedder):
        seconds = await stored(store, sets, embedder)
        both = await asked(store, sets, embedder)
        words = await asked(store, sets, None)
    return [
        summed(f"{kind}: words and meaning", both, store_s=seconds),
        summed(f"{kind}: words alone", words),
    ]


def plain(sets: Sequence[LabelledSet]) -> Recalled:
    """Measure the baseline: no stems, no context, no vectors."""
    row = recall.by_text("plain")
    found = []
    for one in sets:
        corpus = recall.Corpus(one.turns, one.questions)
        for number, question in enumerate(one.questions):
            order = np.argsort(-row(corpus, number), kind="stable")[: DEPTHS[-1]]
            ids = [one.turns[place].turn_id for place in order]
            recalls = share(question.evidence, ids)
            found.append(Found(one.name, one.language, one.held_out, recalls, 0.0))
    return msgspec.structs.replace(summed(PLAIN, found), spread=None)


def summed(name: str, found: Sequence[Found], *, store_s: float | None = None) -> Recalled:
    """Return the means by group."""
    groups: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    names: list[Callable[[Found], str]] = [
        lambda _: "all",
        lambda each: "held out" if each.held_out else "fitted",
        lambda each: f"in {each.language}",
        lambda each: f"set {each.labelled}",
    ]
    for each in found:
        for group in names:
            groups[group(each)].append(each.recalls)
    return Recalled(
        name=name,
        groups={
            group: tuple(sum(column) / len(rows) for column in zip(*rows, strict=True))
            for group, rows in groups.items()
        },
        questions={group: len(rows) for group, rows in groups.items()},
        spread=spread([each.ms for each in found]),
        store_s=store_s,
    )


def recall_table(found: Sequence[Recalled], *, wide: bool = True) -> str:
    """Return a row for each way with all questions, then a row for each group."""
    rows = [
        ["recall at 5 / 10 / 20", "all", "held out", "min, ms", "median", "p95", "max", "stored"]
    ]
    for each in found:
        s = each.spread
        times = ["", "", "", ""]
        if s:
            times = [f"{number:.1f}" for number in (s.minimum, s.median, s.p95, s.maximum)]
        rows.append(
            [
                each.name,
                _three(each, "all"),
                _three(each, "held out"),
                *times,
                "" if each.store_s is None else f"{each.store_s:.0f} s",
            ]
        )
    if not wide:
        return aligned(rows)
    names = [n for n in found[0].questions if n.startswith(("in ", "set "))]
    groups = [["", "questions", *(each.name for each in found)]]
    for name in sorted(names):
        count = str(found[0].questions[name])
        groups.append([name, count, *(_three(each, name) for each in found)])
    return f"{aligned(rows)}\n\n{aligned(groups)}"


def _three(each: Recalled, group: str) -> str:
    return " ".join(f"{number:.3f}" for number in each.groups.get(group, ()))

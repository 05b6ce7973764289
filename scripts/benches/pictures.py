"""Charts of the results."""

from collections.abc import Callable, Sequence
from pathlib import Path

from benches.charts import Bars, Chart, Line, Point, drawn, drawn_bars
from benches.code import Codes
from benches.code_latency import BOTH, Searched as LatencyRow
from benches.context import Built, Contexts, Step
from benches.growth import Growths
from benches.memories import DEPTHS
from benches.peer import Peers
from benches.plots import growth_pictures
from benches.recalling import PLAIN, Recalled, Recalls
from benches.search import Searched, Searches

_NAMES = {"sqlite": "SQLite", "neo4j": "Neo4j"}
_GROUPS = [f"among {depth}" for depth in DEPTHS]
_RECALL = "share of the evidence found"
_OURS = "ragmem, "

Drawn = Searches | Contexts | Recalls | Peers | Codes | Growths


def pictures(found: Drawn) -> dict[str, str]:
    """Return the charts as SVG, by name; those with too few results are left out."""
    match found:
        case Searches():
            return _searches(found)
        case Contexts():
            return _contexts(found) | _conversations(found.steps)
        case Recalls():
            return _recalls(found.recalled)
        case Peers():
            return _peers(found)
        case Codes():
            return _codes(found)
        case Growths():
            return growth_pictures(found.grown)


def write_pictures(found: Drawn, folder: Path) -> list[Path]:
    """Write each chart to a file, and return the files."""
    written = []
    for name, drawing in pictures(found).items():
        file = folder / f"{name}.svg"
        file.write_text(drawing, "utf-8")
        written.append(file)
    return written


def _searches(found: Searches) -> dict[str, str]:
    drawings = {}
    for store, name in _NAMES.items():
        rows = [r for r in found.searched if r.projects == 1]

        def line(
            label: str,
            of: str,
            kind: str,
            value: Callable[[Searched], float],
            rows: Sequence[Searched] = rows,
            store: str = store,
        ) -> Line:
            points = [(r.turns, value(r)) for r in rows if (r.store, r.kind) == (of, kind)]
            return Line(label, points, dashed=of != store)

        lines = [
            line("words and vector, p95", store, "both", lambda row: row.spread.p95),
            line("words and vector", store, "both", lambda row: row.spread.median),
            line("the same, processor", store, "both", lambda row: row.cpu_ms),
            line("words", store, "words", lambda row: row.spread.median),
            line("vector", store, "vector", lambda row: row.spread.median),
        ]
        if store == "sqlite":
            lines.append(line("FTS5 alone", "FTS5 alone", "words", lambda row: row.spread.median))
        if min(len(each.points) for each in lines) > 1:
            title = f"{name}: a search within one project (median)"
            drawings[f"search-{store}"] = drawn(Chart(title, "milliseconds", lines))
    return drawings


def _contexts(found: Contexts) -> dict[str, str]:
    lines = []
    for store, name in _NAMES.items():

        def points(what: str, value: Callable[[Built], float], store: str = store) -> list[Point]:
            rows = [b for b in found.built if (b.store, b.what) == (store, what)]
            return [(row.turns, value(row)) for row in rows]

        if len(points("context", lambda row: row.turns)) > 1:
            lines += [
                Line(f"{name}, p95", points("context", lambda row: row.spread.p95)),
                Line(f"{name}, median", points("context", lambda row: row.spread.median)),
                Line(
                    f"{name}, no recall",
                    points("without recall", lambda row: row.spread.median),
                    dashed=True,
                ),
            ]
    if not lines:
        return {}
    title = "Building a context, the question's vector included"
    return {"context": drawn(Chart(title, "milliseconds", lines))}


def _conversations(steps: Sequence[Step]) -> dict[str, str]:
    drawings, times = {}, []
    for store, name in _NAMES.items():
        rows = [step for step in steps if step.store == store]
        if len(rows) < 2:
            continue
        times += [
            Line(f"{name}, p95 of 50", [(row.turn, row.build_p95_ms) for row in rows[1:]]),
            Line(name, [(row.turn, row.build_ms) for row in rows[1:]]),
        ]
        lines = [
            Line("most allowed", [(row.turn, row.max_chars) for row in rows], dashed=True),
            Line("request", [(row.turn, row.chars) for row in rows]),
            Line("as in the one before", [(row.turn, row.shared_chars) for row in rows]),
        ]
        drawings[f"conversation-size-{store}"] = drawn(
            Chart(
                f"{name}: size of a request in a long conversation",
                "characters",
                lines,
                across="turns of the conversation",
                linear=True,
            )
        )
    if times:
        drawings["conversation-time"] = drawn(
            Chart(
                "Building a context in a long conversation (median of 50)",
                "milliseconds",
                times,
                across="turns of the conversation",
                linear=True,
            )
        )
    return drawings


def _recalls(rows: Sequence[Recalled]) -> dict[str, str]:
    if len(rows) < 2:
        return {}
    drawings = {
        "recall": drawn_bars(
            Bars(
                "Evidence found, labelled sessions",
                _RECALL,
                _GROUPS,
                [(_store_named(row.name), row.groups["all"]) for row in rows],
            )
        )
    }
    full = [row for row in rows if row.name == PLAIN or row.name.endswith("meaning")]
    languages = sorted(name for name in full[0].groups if name.startswith("in "))
    drawings["recall-languages"] = drawn_bars(
        Bars(
            "Evidence found among 10, by language",
            _RECALL,
            [name.removeprefix("in ") for name in languages],
            [(_store_named(row.name), [row.groups[name][1] for name in languages]) for row in full],
        )
    )
    return drawings


def _peers(found: Peers) -> dict[str, str]:
    if len(found.recalled) < 3:
        return {}
    plain, ours, *theirs = found.recalled
    # The peer's best way.
    best = max(theirs, key=lambda row: row.groups["all"][1])
    return {
        "peer": drawn_bars(
            Bars(
                "Evidence found on Neo4j, same embedder",
                _RECALL,
                _GROUPS,
                [
                    (plain.name, plain.groups["all"]),
                    (found.peer.partition("==")[0], best.groups["all"]),
                    ("ragmem", ours.groups["all"]),
                ],
            )
        )
    }


def _codes(found: Codes) -> dict[str, str]:
    """Chart the recall at 10 for each code base, for questions whose answer has no docstring."""
    bases = list(dict.fromkeys(each.base for each in found.found))
    ways = list(dict.fromkeys(each.way for each in found.found))
    held = {(each.base, each.way): each.recalls for each in found.found}
    pictures = {}
    for name, group, title in (
        ("code-docstrings", "docstring taken out", "From a docstring that is not there"),
        ("code-notes", "release notes", "From release notes"),
    ):
        having = [base for base in bases if group in held[base, ways[0]]]
        if having:
            series = [(way, [held[base, way][group][2] for base in having]) for way in ways]
            title = f"{title}: the scope among 10"
            pictures[name] = drawn_bars(Bars(title, "share found", having, series))
    return pictures | _code_searches(found.searched)


def _code_searches(rows: Sequence[LatencyRow]) -> dict[str, str]:
    """Chart each way's median by the number of scopes; for ragmem also the 95th percentile."""
    if len({row.scopes for row in rows}) < 2:
        return {}
    lines = []
    for way in dict.fromkeys(row.way for row in rows):
        own = [row for row in rows if row.way == way]
        if way == BOTH:
            p95 = [(row.scopes, row.spread.p95) for row in own]
            lines.append(Line(f"{way.removeprefix(_OURS)}, p95", p95))
        points = [(row.scopes, row.spread.median) for row in own]
        name = way.removeprefix(_OURS)
        lines.append(Line(name, points, dashed=name == way))
    title = "A search of the code (median)"
    return {"code-search": drawn(Chart(title, "milliseconds", lines, across="scopes"))}


def _store_named(name: str) -> str:
    store, colon, rest = name.partition(":")
    return f"{_NAMES.get(store, store)}{colon}{rest}"

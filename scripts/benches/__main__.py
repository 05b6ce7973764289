"""How long a person waits: each promise of ragmem about time, measured.

    scripts/bench [--runs N] [--only NAME]... [--json]
    scripts/bench --only search [--turns 1000,10000,100000,100000/100] [--store sqlite,neo4j]
    scripts/bench --only growth [--turns 1000,100000] [--store sqlite,neo4j] [--plot docs]

Starts are timed against `python -c pass`, interleaved with it in the same run; the
column "over" is median less median. Steps of recording are timed inside one process.
The environment and the Neo4j are those of scripts/test. How cost grows is measured
only when it is asked for: it takes minutes, and a Neo4j of its own.
Exits with 1 when a target is missed or a measurement could not be made.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from benches.growth import Growth, growth_table, measure_growth
from benches.plots import write_plots
from benches.recording import measure_recording
from benches.results import Result, table
from benches.search import Searched, measure, search_table
from benches.starts import measure_starts

GROWTH = "growth"
SEARCH = "search"


def main() -> int:
    """Measure, print, and say by the exit code whether all targets are kept."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measure what ragmem promises about time."
    )
    parser.add_argument("--runs", type=int, default=15, help="of each start (15)")
    parser.add_argument("--recorded", type=int, default=200, help="turns in each store (200)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="part of a name, or: growth, search",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument(
        "--turns",
        default="1000,100000",
        help="growth, search: sizes of a memory (1000,100000); search: also as turns/projects",
    )
    parser.add_argument(
        "--store", default="sqlite,neo4j", help="growth, search: which (sqlite,neo4j)"
    )
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="growth: draw SVGs there")
    parser.add_argument(
        "--measured",
        type=Path,
        action="append",
        metavar="FILE",
        help="growth: show what an earlier run has written with --json, measure nothing",
    )
    parser.add_argument(
        "--folder", type=Path, help="growth: where the memories are made (a temporary one)"
    )
    options = parser.parse_args()
    if options.measured:
        return show_growth(
            [
                each
                for file in options.measured
                for each in msgspec.json.decode(file.read_bytes(), type=list[Growth])
            ],
            options,
        )

    folder = Path(tempfile.mkdtemp(prefix="ragmem-bench-", dir=options.folder))
    try:
        if options.only == [SEARCH]:
            return search(folder, options)
        if options.only == [GROWTH]:
            sizes = sorted(int(size) for size in options.turns.split(","))
            return grow(folder, sizes, options.store.split(","), options)
        results = measure_starts(folder, options.runs, options.only)
        results += measure_recording(folder, options.recorded, options.only)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not results:
        parser.error("no measurement bears that name")
    return report(results, as_json=options.json)


def report(results: list[Result], *, as_json: bool) -> int:
    """Print the results; the exit code."""
    if as_json:
        print(json.dumps([{**msgspec.to_builtins(r), "met": r.met} for r in results], indent=2))
    else:
        print(table(results))
        for r in results:
            if r.problem:
                print(f"\n{r.name}: {r.problem.strip()}")
    return 0 if all(r.met for r in results) else 1


def grow(folder: Path, sizes: list[int], stores: list[str], options: argparse.Namespace) -> int:
    """Measure how cost grows."""
    grown: list[Growth] = []
    for found in measure_growth(folder, sizes, stores):
        grown.append(found)
        print(f"{found.store}, {found.turns:,} turns: done", file=sys.stderr)
    return show_growth(grown, options)


def search(folder: Path, options: argparse.Namespace) -> int:
    """Measure how long a search takes."""
    found: list[Searched] = []
    for each in measure(folder, options.turns.split(","), options.store.split(",")):
        found.append(each)
        print(f"{each.store}, {each.turns:,} turns, {each.kind}: done", file=sys.stderr)
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        print(search_table(found))
    return 0


def show_growth(grown: list[Growth], options: argparse.Namespace) -> int:
    """Print how cost grows, and draw it if that is asked for."""
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(grown), indent=2).decode())
    else:
        print(growth_table(grown))
    if options.plot:
        for file in write_plots(grown, options.plot):
            print(file, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

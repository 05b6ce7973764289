"""How long a person waits, and how much is found: each promise of ragmem, measured.

    scripts/bench [--runs N] [--only NAME]... [--json]
    scripts/bench --only starts  [--turns 1000] [--store sqlite,neo4j]
    scripts/bench --only drain
    scripts/bench --only search  [--turns 1000,100000,1000000/1000] [--store sqlite,neo4j]
    scripts/bench --only context [--turns 1000,100000] [--store sqlite,neo4j]
    scripts/bench --only recall  [--store sqlite,neo4j]
    scripts/bench --only next-day [--store sqlite,neo4j]
    scripts/bench --only peer
    scripts/bench --only memories [--store sqlite,neo4j]
    scripts/bench --only code    [--sets ragmem,django,cosmos,large]
    scripts/bench --only graph   [--turns 1500,15000,100000]
    scripts/bench --only typing
    scripts/bench --only growth  [--turns 1000,100000] [--store sqlite,neo4j]

Without `--only`, or with a part of a row's name: starts, each timed against
`python -c pass`, interleaved with it in the same run (the column "over" is median less
median, "processor" the median of what each used of one), steps of recording, timed inside
one process, and a command in the sandbox, against the same without one. The environment and
the Neo4j are those of scripts/test. What takes minutes is measured only when it is asked for, by
the names above, on a Neo4j of its own: `--json` prints what was measured, `--measured`
shows it again, and `--plot FOLDER` draws it as SVG.

Exits with 1 when a target is missed or a measurement could not be made.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benches import context, search
from benches.asking import measure_asking
from benches.code import Codes, code_table, joined as joined_codes, measure_code
from benches.context import Contexts, context_table
from benches.draining import Drains, drain_table, measure_draining
from benches.graph import Graphs, graph_table, measure_graph
from benches.growth import Growth, growth_table, measure_growth
from benches.memories import chosen
from benches.next_day import NextDays, measure_next_day, next_day_table
from benches.peer import Peers, measure_peer, peer_table
from benches.pictures import write_pictures
from benches.plots import write_plots
from benches.recalling import Recalls, measure_recall, recall_table
from benches.recording import measure_recording
from benches.remembering import (
    COUNT as MEMORIES,
    Memories,
    joined as joined_memories,
    measure_memories,
    memories_table,
)
from benches.results import CannotMeasure, Result, table
from benches.sandboxed import measure_sandbox
from benches.search import Searches, search_table
from benches.starts import measure_starts
from benches.tables import machine
from benches.typing import Typing, measure_typing, typing_table

GROWTH = "growth"
STARTS = "starts"
GROWTH_SIZES = "1000,100000"
STORES = "sqlite,neo4j"

Measured = (
    Searches | Contexts | Recalls | Peers | Drains | Codes | Memories | NextDays | Graphs | Typing
)


def main() -> int:
    """Measure, print, and say by the exit code whether all targets are kept."""
    parser = arguments()
    options = parser.parse_args()
    if options.measured:
        return show_kept(options)
    folder = Path(tempfile.mkdtemp(prefix="ragmem-bench-", dir=options.folder))
    part = options.only[0] if len(options.only) == 1 else ""
    try:
        if part == GROWTH:
            return grow(folder, options)
        if part in PARTS:
            return show(PARTS[part](folder, options), options)
        if part == STARTS:
            results = measure_starts(folder, options.runs, [])
            turns = int(options.turns or 0)
            results += measure_asking(folder, options.runs, options.store, turns)
        else:
            results = measure_starts(folder, options.runs, options.only)
            results += measure_recording(folder, options.recorded, options.only)
            results += measure_sandbox(folder, 4 * options.runs, options.only)
    except CannotMeasure as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not results:
        parser.error("no measurement bears that name")
    return report(results, as_json=options.json)


def arguments() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=15, help="of each start (15)")
    parser.add_argument("--recorded", type=int, default=200, help="turns in each store (200)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help=f"part of a row's name, or: {', '.join((STARTS, *PARTS, GROWTH))}",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument(
        "--turns",
        default="",
        help="sizes of a memory, with commas between; search: also as turns/projects",
    )
    parser.add_argument("--store", default=STORES, help=f"which ({STORES})")
    parser.add_argument(
        "--sets",
        default="",
        help="recall, peer: labelled sets, code: code bases; names with commas between (all)",
    )
    parser.add_argument(
        "--conversation", type=int, default=context.CONVERSATION, help="context: turns of it"
    )
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw SVGs there")
    parser.add_argument(
        "--measured",
        type=Path,
        action="append",
        metavar="FILE",
        help="show what an earlier run has written with --json, measure nothing; several of a kind "
        "are shown together",
    )
    parser.add_argument("--folder", type=Path, help="where the memories are made (a temporary one)")
    return parser


# --- what is measured only when it is asked for -----------------------------------


def _search(folder: Path, options: argparse.Namespace) -> Searches:
    found = []
    for each in search.measure(folder, options.turns, options.store.split(",")):
        found.append(each)
        print(search_table(each), file=sys.stderr)
    return search.joined(found)


def _context(folder: Path, options: argparse.Namespace) -> Contexts:
    found = []
    stores = options.store.split(",")
    for each in context.measure_context(folder, options.turns, stores, options.conversation):
        found.append(each)
        print(context_table(each), file=sys.stderr)
    return context.joined(found)


def _recall(folder: Path, options: argparse.Namespace) -> Recalls:
    turns = sum(len(one.turns) for one in chosen(_sets(options)))
    found = []
    for each in measure_recall(folder, options.store.split(","), _sets(options)):
        found.append(each)
        print(f"{each.name}: done", file=sys.stderr)
    return Recalls(turns, found)


def _code(folder: Path, options: argparse.Namespace) -> Codes:
    found = []
    for each in measure_code(folder, _sets(options)):
        found.append(each)
        print(code_table(each), file=sys.stderr)
    return joined_codes(found)


def _memories(folder: Path, options: argparse.Namespace) -> Memories:
    found = []
    for each in measure_memories(folder, options.store.split(","), MEMORIES):
        found.append(each)
        print(memories_table(each), file=sys.stderr)
    return joined_memories(found)


def _next_day(folder: Path, options: argparse.Namespace) -> NextDays:
    found = []
    for each in measure_next_day(folder, options.store.split(",")):
        found.append(each)
        print(f"{each.half}, {each.name}: done", file=sys.stderr)
    return NextDays(found)


def _sets(options: argparse.Namespace) -> list[str]:
    return [name for name in options.sets.split(",") if name]


PARTS: dict[str, Callable[[Path, argparse.Namespace], Measured]] = {
    "drain": lambda folder, _: measure_draining(folder),
    "search": _search,
    "context": _context,
    "recall": _recall,
    "code": _code,
    "memories": _memories,
    "next-day": _next_day,
    "graph": lambda folder, options: measure_graph(folder, options.turns),
    "peer": lambda folder, options: measure_peer(folder, _sets(options)),
    "typing": lambda folder, _: measure_typing(folder),
}


def grow(folder: Path, options: argparse.Namespace) -> int:
    """Measure how cost grows."""
    sizes = sorted(int(size) for size in (options.turns or GROWTH_SIZES).split(","))
    grown: list[Growth] = []
    for found in measure_growth(folder, sizes, options.store.split(",")):
        grown.append(found)
        print(f"{found.store}, {found.turns:,} turns: done", file=sys.stderr)
    return show_growth(grown, options)


# --- showing ------------------------------------------------------------------------


def show_kept(options: argparse.Namespace) -> int:
    """Print and draw what earlier runs have measured."""
    texts = [file.read_bytes() for file in options.measured]
    if texts[0].lstrip().startswith(b"["):
        grown = [each for text in texts for each in msgspec.json.decode(text, type=list[Growth])]
        return show_growth(grown, options)
    parts = [msgspec.json.decode(text, type=Measured) for text in texts]
    searches = [part for part in parts if isinstance(part, Searches)]
    contexts = [part for part in parts if isinstance(part, Contexts)]
    others = [part for part in parts if not isinstance(part, Searches | Contexts)]
    joined: list[Measured] = [*others]
    if searches:
        joined.append(search.joined(searches))
    if contexts:
        joined.append(context.joined(contexts))
    return max(show(part, options, again=True) for part in joined)


def show(found: Measured, options: argparse.Namespace, *, again: bool = False) -> int:
    """Print and draw; the exit code."""
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    else:
        print(text(found))
        if not again:
            print(f"\n{machine()}")
    if options.plot and not isinstance(found, Drains | Memories | NextDays | Graphs | Typing):
        for file in write_pictures(found, options.plot):
            print(file, file=sys.stderr)
    return 0 if kept(found) else 1


def text(found: Measured) -> str:
    """As tables."""
    match found:
        case Searches():
            return search_table(found)
        case Contexts():
            return context_table(found)
        case Recalls():
            return f"{found.turns:,} turns\n\n{recall_table(found.recalled)}"
        case Peers():
            return peer_table(found)
        case Drains():
            return drain_table(found)
        case Codes():
            return code_table(found)
        case Memories():
            return memories_table(found)
        case NextDays():
            return next_day_table(found)
        case Graphs():
            return graph_table(found)
        case Typing():
            return typing_table(found)


def kept(found: Measured) -> bool:
    """Whether every target is."""
    match found:
        case Contexts(built=built):
            return all(b.target_ms is None or b.spread.p95 < b.target_ms for b in built)
        case Drains(drained=drained):
            return all(d.target_s is None or d.seconds < d.target_s for d in drained)
        case Codes() | Memories() | NextDays() | Graphs() | Typing():
            return found.kept
    return True


def report(results: Sequence[Result], *, as_json: bool) -> int:
    """Print the results; the exit code."""
    if as_json:
        print(json.dumps([{**msgspec.to_builtins(r), "met": r.met} for r in results], indent=2))
    else:
        print(table(list(results)))
        for r in results:
            if r.problem:
                print(f"\n{r.name}: {r.problem.strip()}")
        print(f"\n{machine()}")
    return 0 if all(r.met for r in results) else 1


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

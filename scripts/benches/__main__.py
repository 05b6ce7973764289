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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from benches.asking import measure_asking
from benches.code import Codes, code_table, measure_code
from benches.context import CONVERSATION, Contexts, context_table, measure_context
from benches.draining import Drains, drain_table, measure_draining
from benches.graph import Graphs, graph_table, measure_graph
from benches.growth import Growths, growth_table, measure_growth
from benches.next_day import NextDays, measure_next_day, next_day_table
from benches.peer import Peers, measure_peer, peer_table
from benches.pictures import Drawn, write_pictures
from benches.recalling import Recalls, measure_recall, recall_table
from benches.recording import measure_recording
from benches.remembering import Memories, measure_memories, memories_table
from benches.results import CannotMeasure, Result, joined, table
from benches.sandboxed import measure_sandbox
from benches.search import Searches, measure_search, search_table
from benches.starts import measure_starts
from benches.tables import machine
from benches.typing import Typing, measure_typing, typing_table

STARTS = "starts"
STORES = "sqlite,neo4j"

Measured = Drawn | Drains | Memories | NextDays | Graphs | Typing


def main() -> int:
    """Measure and print; the exit code is 0 if all targets are met."""
    parser = arguments()
    options = parser.parse_args()
    if options.measured:
        return show_kept(options)
    folder = Path(tempfile.mkdtemp(prefix="ragmem-bench-", dir=options.folder))
    part = options.only[0] if len(options.only) == 1 else ""
    try:
        if part in PARTS:
            return show(measured(PARTS[part](folder, options)), options)
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
    """Return the parser of the command line."""
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
        help=f"part of a row's name, or: {', '.join((STARTS, *PARTS))}",
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
        "--conversation", type=int, default=CONVERSATION, help="context: turns of it"
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


def _stores(options: argparse.Namespace) -> list[str]:
    return list(options.store.split(","))


def _sets(options: argparse.Namespace) -> list[str]:
    return [name for name in options.sets.split(",") if name]


PARTS: dict[str, Callable[[Path, argparse.Namespace], Iterator[Measured]]] = {
    "drain": lambda folder, _: measure_draining(folder),
    "search": lambda folder, asked: measure_search(folder, asked.turns, _stores(asked)),
    "context": lambda folder, asked: measure_context(
        folder, asked.turns, _stores(asked), asked.conversation
    ),
    "recall": lambda folder, asked: measure_recall(folder, _stores(asked), _sets(asked)),
    "code": lambda folder, asked: measure_code(folder, _sets(asked)),
    "memories": lambda folder, asked: measure_memories(folder, _stores(asked)),
    "next-day": lambda folder, asked: measure_next_day(folder, _stores(asked)),
    "graph": lambda folder, asked: measure_graph(folder, asked.turns),
    "peer": lambda folder, asked: measure_peer(folder, _sets(asked)),
    "typing": lambda folder, _: measure_typing(folder),
    "growth": lambda folder, asked: measure_growth(folder, asked.turns, _stores(asked)),
}


def measured(parts: Iterator[Measured]) -> Measured:
    """Join all parts; each is also printed to stderr at once, since the next may take long."""
    found = []
    for part in parts:
        found.append(part)
        print(text(part), file=sys.stderr)
    return joined(found)


# --- showing ------------------------------------------------------------------------


def show_kept(options: argparse.Namespace) -> int:
    """Print and draw the results of earlier runs."""
    kinds: dict[type[Measured], list[Measured]] = {}
    for file in options.measured:
        part = msgspec.json.decode(file.read_bytes(), type=Measured)
        kinds.setdefault(type(part), []).append(part)
    return max(show(joined(parts), options, again=True) for parts in kinds.values())


def show(found: Measured, options: argparse.Namespace, *, again: bool = False) -> int:
    """Print and draw results; return the exit code."""
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    else:
        print(text(found))
        if not again:
            print(f"\n{machine()}")
    if options.plot and isinstance(found, Drawn):
        for file in write_pictures(found, options.plot):
            print(file, file=sys.stderr)
    return 0 if kept(found) else 1


def text(found: Measured) -> str:
    """Return results as tables."""
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
        case Growths():
            return growth_table(found.grown)


def kept(found: Measured) -> bool:
    """Whether every target is met; recall, peer and growth have none."""
    return isinstance(found, Recalls | Peers | Growths) or found.kept


def report(results: Sequence[Result], *, as_json: bool) -> int:
    """Print the results; return the exit code."""
    if as_json:
        print(json.dumps([{**msgspec.to_builtins(r), "met": r.met} for r in results], indent=2))
    else:
        print(table(list(results)))
        for r in results:
            if r.problem:
                print(f"\n{r.name}: {r.problem.strip()}")
        print(f"\n{machine()}")
    return 0 if all(r.met for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""A comparison with neo4j-agent-memory: same Neo4j, same embedder, same data.

The peer is installed into a separate environment next to the folder of the run. It can't search
within a project (its metadata filter is applied after the nearest neighbours), so each labelled set
is searched in a graph of its own, and once all of them together, with the vectors made before (the
storing time is that of the former). Its similarity threshold is 0, and its entity extraction is
off: both would cost it recall or time.
"""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benches.growth import Place, in_child
from benches.memories import Found, asked, chosen, opened_with_embedder, share, stored
from benches.neo4j_server import server
from benches.places import ROOT, clean_environment
from benches.recalling import Recalled, plain, recall_table, summed
from benches.results import CannotMeasure
from benches.tables import aligned
from ragmem.store.neo4j import Connection
from tests.recall.labelled import LabelledSet

PACKAGE = "neo4j-agent-memory==0.8.0"
"""Licensed under Apache-2.0."""
WAYS = {
    "a message each": "with its tool calls as messages",
    "talk alone": "without its tool calls",
    "a turn each": "a turn as one message",
}


class Peers(msgspec.Struct, frozen=True, tag="peer"):
    """The results of one run."""

    peer: str = PACKAGE
    turns: int = 0
    recalled: list[Recalled] = []
    appended: dict[str, tuple[float, float]] = {}
    """The milliseconds of storing one turn as in a conversation: median and p95."""


class _Answer(msgspec.Struct, frozen=True):
    ids: tuple[str, ...]
    ms: float


class _Said(msgspec.Struct, frozen=True):
    """The output of the peer's process."""

    store_s: float
    answers: dict[str, list[_Answer]]
    appended_ms: list[float]


def measure_peer(folder: Path, names: Sequence[str] = ()) -> Iterator[Peers]:
    """Measure ragmem, then the peer with each way of storing turns, on one server."""
    sets = chosen(names)
    python = environment(folder / "peer")
    recalled = [plain(sets)]
    appended: dict[str, tuple[float, float]] = {}
    with server(folder / "neo4j") as running:
        place = Place(connection=running.connection)
        ours = in_child(ask_ours, place, names)
        recalled.append(ours)
        for way in WAYS:
            for alone in (True, False):
                asked_for: dict[str, object] = {
                    "sets": [one.name for one in sets],
                    "way": way,
                    "alone": alone,
                }
                said = ask_peer(python, folder, running.connection, asked_for)
                scope = "its own graph" if alone else "one graph"
                found = list(_found(sets, said))
                store_s = said.store_s if alone else None
                recalled.append(summed(f"peer: {way}, {scope}", found, store_s=store_s))
                print(f"peer: {way}, {scope}: done", file=sys.stderr)
                if alone:
                    ordered = sorted(said.appended_ms)
                    appended[way] = (
                        ordered[len(ordered) // 2],
                        ordered[round(0.95 * (len(ordered) - 1))],
                    )
    yield Peers(PACKAGE, sum(len(one.turns) for one in sets), recalled, appended)


async def ask_ours(place: Place, names: Sequence[str]) -> Recalled:
    """Measure ragmem's recall on an emptied server."""
    sets = chosen(names)
    async with opened_with_embedder(place) as (store, embedder):
        seconds = await stored(store, sets, embedder)
        await asked(store, sets[:1], embedder)
        found = await asked(store, sets, embedder)
    return summed("ragmem, each set a project", found, store_s=seconds)


def environment(folder: Path) -> Path:
    """Make a virtual environment with the peer; return its Python.

    Our packages are importable there, too, for the embedder.
    """
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, stdout=sys.stderr)
    python = folder / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
    done = subprocess.run([python, *install], stdout=sys.stderr)
    if done.returncode:
        raise CannotMeasure(f"{PACKAGE} can't be installed: is there a network?")
    [packages] = (folder / "lib").glob("python*/site-packages")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def ask_peer(
    python: Path, folder: Path, connection: Connection, asked_for: dict[str, object]
) -> _Said:
    """Run the peer in a separate process, through its own API."""
    file = folder / "asked.json"
    server_at = {
        "url": connection.url,
        "username": connection.username,
        "password": connection.password,
    }
    file.write_text(json.dumps({**server_at, **asked_for}))
    environ = clean_environment(
        folder, PYTHONPATH=f"{ROOT / 'scripts'}{os.pathsep}{ROOT}", PYTHONDONTWRITEBYTECODE="1"
    )
    done = subprocess.run(
        [python, "-P", "-m", "benches.peer_client", file],
        env=environ,
        capture_output=True,
        timeout=3600,
    )
    if done.returncode:
        raise CannotMeasure(f"the peer: {done.stderr.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(done.stdout, type=_Said)


def _found(sets: Sequence[LabelledSet], said: _Said) -> Iterator[Found]:
    for one in sets:
        for question, answer in zip(one.questions, said.answers[one.name], strict=True):
            recalls = share(question.evidence, answer.ids)
            yield Found(one.name, one.language, one.held_out, recalls, answer.ms)


def peer_table(found: Peers) -> str:
    """Return one table of both."""
    rows = [["storing one turn, ms", "median", "p95"]]
    rows += [[name, f"{m:.1f}", f"{p:.1f}"] for name, (m, p) in found.appended.items()]
    table = recall_table(found.recalled, wide=False)
    return f"{found.peer}, {found.turns:,} turns\n\n{table}\n\n{aligned(rows)}"

"""The code index: how fast it is made, kept and searched, and how much it finds.

Each code base is copied, then indexed and asked in processes of their own. Beside what ragmem finds
stand three plain ways: ripgrep (the scopes with most of the question's words), BM25 over the lines
of each scope, and the nearest vectors.
"""

import contextlib
import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import msgspec

from benches.code_bases import BASES, cleared, copied
from benches.code_plain import Hit, Plain
from benches.code_questions import Question
from benches.growth import files_size, in_child
from benches.results import CannotMeasure
from benches.spread import Spread, spread
from benches.tables import aligned
from ragmem.codeindex.index import CodeIndex, database_of
from ragmem.codeindex.search import CodeQuestion, search
from ragmem.codeindex.vectors import Resident
from ragmem.embedder.base import Embedder
from ragmem.embedder.onnx import OnnxEmbedder
from ragmem.ids import new_id
from ragmem.records import Project, utc_now

DEPTHS = (1, 5, 10, 20)
_ROUNDS = 3
_SAMPLE_S = 0.05
RAGMEM = "ragmem, words and meaning"
FIRST_S, RECHECK_S, CHANGE_S, MEMORY_BYTES = 30.0, 2.0, 1.0, 500e6
"""Promised of 5,000 files."""


class Place(msgspec.Struct, frozen=True):
    """Where a copy and its index are."""

    folder: Path

    @property
    def root(self) -> Path:
        """The copy."""
        return self.folder / "project"

    @property
    def database(self) -> Path:
        """Its index."""
        return database_of(self.folder / "data", "bench")

    def index(self, embedder: Embedder) -> CodeIndex:
        """As the program has it; without a store."""
        project = Project(project_id="bench", path=str(self.root), created_at=utc_now())
        return CodeIndex(project, self.database, embedder=embedder)


class Indexed(msgspec.Struct, frozen=True, kw_only=True):
    """What an index of a code base costs."""

    name: str
    language: str
    files: int
    scopes: int
    source_bytes: int
    first_s: float
    """From nothing until all is searchable by words."""
    recheck_s: float
    """A look at all files when none has changed; the least of some."""
    change_s: float
    """From a file being written until a search finds what is new in it; the least of some."""
    embed_s: float
    """All vectors, in the background's threads."""
    index_bytes: int
    first_rss_bytes: int
    """The most memory of all processes together, while the index is made."""

    @property
    def kept(self) -> bool:
        """Whether what is promised of 5,000 files is true of these."""
        return (
            self.first_s < FIRST_S * max(1.0, self.files / 5_000)
            and self.recheck_s < RECHECK_S
            and self.change_s < CHANGE_S
            and self.first_rss_bytes < MEMORY_BYTES
        )


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one way of searching finds in one code base."""

    base: str
    way: str
    recalls: dict[str, tuple[float, ...]]
    """By the origin of the questions, and whether they were held out: the share of the defining
    scopes among the first 1, 5, 10 and 20."""
    questions: dict[str, int]
    spread: Spread
    """Milliseconds of a search, the embedding of the question aside."""


class Codes(msgspec.Struct, frozen=True, tag="code"):
    """All that one run has measured."""

    indexed: list[Indexed] = []
    found: list[Found] = []


def measure_code(folder: Path, names: Sequence[str] = ()) -> Iterator[Codes]:
    """Each code base, or those whose names hold one of these."""
    for base in BASES.values():
        if names and not any(name.lower() in base.name.lower() for name in names):
            continue
        place = Place(folder / "code")
        got = copied(base, place.root)
        indexed = in_child(make, place, base.name, got.size_bytes)
        yield Codes([indexed], in_child(ask, place, base.name, got.questions))
        cleared(place.folder)


def joined(parts: Sequence[Codes]) -> Codes:
    """Several runs' rows in one."""
    return Codes([row for p in parts for row in p.indexed], [row for p in parts for row in p.found])


# --- each in a process of its own ---------------------------------------------------------


async def make(place: Place, name: str, source_bytes: int) -> Indexed:
    """Index the copy, change it, and make its vectors."""
    base = BASES[name]
    embedder = OnnxEmbedder()
    index = place.index(embedder)
    with Memory() as first:
        started = time.perf_counter()
        made = await index.refresh()
        first_s = time.perf_counter() - started
    recheck_s = min([(await index.refresh()).seconds for _ in range(_ROUNDS)])
    change_s = min([await _changed(index, place.root, base.suffix) for _ in range(_ROUNDS)])
    started = time.perf_counter()
    await index.embed()
    embed_s = time.perf_counter() - started
    await index.aclose()
    await embedder.aclose()
    return Indexed(
        name=base.name,
        language=base.language,
        files=made.files,
        scopes=made.scopes,
        source_bytes=source_bytes,
        first_s=first_s,
        recheck_s=recheck_s,
        change_s=change_s,
        embed_s=embed_s,
        index_bytes=files_size(place.database.parent),
        first_rss_bytes=first.most_bytes,
    )


async def _changed(index: CodeIndex, root: Path, suffix: str) -> float:
    """Seconds from a file's being written until what is new in it is found."""
    name = f"bench_{new_id()[-12:]}"
    file = _one_file(root, suffix)
    before = file.read_bytes()
    mark = b"#" if suffix == ".py" else b"//"
    try:
        file.write_bytes(before + b"\n" + mark + b" " + name.encode() + b"\n")
        started = time.perf_counter()
        await index.refresh()
        found = await index.search(name, limit=1, semantic=False)
        seconds = time.perf_counter() - started
    finally:
        file.write_bytes(before)
        await index.refresh()
    if not found or found[0].path != str(file.relative_to(root)):
        raise CannotMeasure(f"what is new in {file.name} was not found")
    return seconds


def _one_file(root: Path, suffix: str) -> Path:
    """Of some size."""
    return next(each for each in sorted(root.rglob(f"*{suffix}")) if each.stat().st_size > 8_000)


async def ask(place: Place, name: str, questions: Sequence[Question]) -> list[Found]:
    """The questions, in each way."""
    embedder = OnnxEmbedder()
    rows = await embedder.embed([each.text for each in questions], "query")
    vectors = {q.text: row.astype("<f4").tobytes() for q, row in zip(questions, rows, strict=True)}
    model_id = embedder.info.model_id
    await embedder.aclose()
    connection, resident = apsw.Connection(str(place.database)), Resident()

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
    """What one way finds of the answers."""
    shares: dict[str, list[list[float]]] = defaultdict(list)
    spent = []
    for question in questions:
        started = time.perf_counter()
        hits = find(question)
        spent.append((time.perf_counter() - started) * 1000)
        wanted = Hit(question.path, question.qualified_name)
        found = [float(wanted in hits[:depth]) for depth in DEPTHS]
        shares[question.origin].append(found)
        if question.held_out:
            shares[f"{question.origin}, held out"].append(found)
    return Found(
        base=base,
        way=way,
        recalls={
            group: tuple(round(statistics.mean(column), 4) for column in zip(*rows, strict=True))
            for group, rows in shares.items()
        },
        questions={group: len(rows) for group, rows in shares.items()},
        # The first reads what a process keeps.
        spread=spread(spent[1:]),
    )


class Memory:
    """The most resident memory of this process and its children, looked at often."""

    def __init__(self) -> None:
        self.most_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            family = [os.getpid(), *_below(os.getpid())]
            self.most_bytes = max(self.most_bytes, sum(map(_resident, family)))


def _below(pid: int) -> list[int]:
    children = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += [int(each) for each in file.read_text().split()]
    return [pid for child in children for pid in (child, *_below(child))]


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- the report -----------------------------------------------------------------------------


def code_table(found: Codes) -> str:
    """A line for each code base; then for each way of searching it."""
    heads = (
        "index|files|scopes|MB|first, s|files/s|again, s|one file, s|vectors, s|on disk, MB|memory|"
    )
    rows = [heads.split("|")]
    for made in found.indexed:
        rows.append(
            [
                made.name,
                f"{made.files:,}",
                f"{made.scopes:,}",
                f"{made.source_bytes / 1e6:.1f}",
                f"{made.first_s:.1f}",
                f"{made.files / made.first_s:,.0f}",
                f"{made.recheck_s:.2f}",
                f"{made.change_s:.2f}",
                f"{made.embed_s:,.0f}",
                f"{made.index_bytes / 1e6:.0f}",
                f"{made.first_rss_bytes / 1e6:.0f} MB",
                "ok" if made.kept else "MISSED",
            ]
        )
    names = [f"among {', '.join(map(str, DEPTHS))}", "questions", "min", "median", "p95"]
    parts = [aligned(rows)]
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

"""The latency of code search, by the number of scopes.

The scopes are real, from some of the files of the largest code base. Their vectors are synthetic
(benches.content), since a hundred thousand can't be computed in minutes: of the same number and
dimension, in clusters, and each question's close to that of its scope. So the times are realistic,
but recall can't be measured here.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import msgspec

from benches.code_bases import placed_in
from benches.code_making import Place
from benches.code_plain import Plain
from benches.code_questions import Question, of_docstrings
from benches.content import MARK, Content
from benches.growth import in_child, peak_rss
from benches.results import CannotMeasure
from benches.spread import Spread, spread
from benches.tables import aligned
from ragmem.embedder import EmbedderInfo, Kind, Spent
from ragmem.embedder.models import OnnxEmbedder
from ragmem.index import vectors
from ragmem.index.database import open_for_writing, transaction
from ragmem.index.index import CodeIndex
from ragmem.records import Scope

if TYPE_CHECKING:
    from ragmem.embedder import Vectors

SIZES = (1_000, 15_000, 50_000, 100_000)
QUESTIONS = 100
ROUNDS = 3
OF_RIPGREP = 20
"""The number of questions for ripgrep, which reads all files for each."""
LIMIT = 10
_ASKED_FILES = 400
_CHANGES = 5
BOTH = "ragmem, words and meaning"
P95_MS, PROMISED_SCOPES = 50.0, 60_000
"""The target for 50,000 scopes, with some room, since an index gets a few more than `SIZES`."""


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """The milliseconds of one way of searching in one index."""

    scopes: int
    files: int
    way: str
    first: float
    """The first search in a process, which fills its caches."""
    changed: float | None = None
    """The first search after a file has changed; the median of several."""
    spread: Spread
    """The searches of the fastest round."""
    cpu: Spread | None = None
    """The CPU time of this process in the same round, which other processes don't affect."""
    rss_bytes: int | None = None
    """The peak memory of the process that searches."""

    @property
    def kept(self) -> bool:
        """Whether the target is met, if there is one for this search."""
        return self.way != BOTH or self.scopes > PROMISED_SCOPES or self.spread.p95 < P95_MS


def measure_latency(
    place: Place, folder: Path, sizes: Sequence[int] = SIZES
) -> Iterator[list[Searched]]:
    """Measure searches in subsets of an indexed code base with the given numbers of scopes."""
    files = _scopes_of_files(place.database)
    for size in sizes:
        part = Place(folder)
        paths = chosen(files, size)
        for path in paths:
            target = part.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(place.root / path, target)
        questions = in_child(fill, part, paths)
        plain = in_child(ask_plainly, part, questions)
        yield [*in_child(ask, part, questions), *plain]
        shutil.rmtree(folder)


def _scopes_of_files(database: Path) -> dict[str, int]:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    counted = connection.execute(
        "SELECT path, count(*) FROM files JOIN scopes USING (file) GROUP BY path"
    )
    found = {str(path): int(str(scopes)) for path, scopes in counted}
    connection.close()
    return found


def chosen(files: dict[str, int], size: int) -> list[str]:
    """Return files in a fixed random order until they contain `size` scopes, or all of them."""
    taken, held = [], 0
    for path in sorted(files, key=lambda path: hashlib.blake2b(path.encode()).digest()):
        if held >= size:
            break
        held += files[path]
        taken.append(path)
    return taken


# --- each in a process of its own ---------------------------------------------------------


async def fill(place: Place, paths: Sequence[str]) -> list[Question]:
    """Index the files with synthetic vectors, and return questions about them."""
    index = place.index(OnnxEmbedder())
    await index.refresh()
    await index.aclose()
    connection = open_for_writing(place.database)
    give_vectors(connection)
    connection.close()
    asked = [path for path in paths[:_ASKED_FILES] if (place.root / path).suffix == ".py"]
    return of_docstrings(placed_in(place.root, asked), QUESTIONS, "latency")


def give_vectors(connection: apsw.Connection) -> None:
    """Store a synthetic vector, made from its position in the table, for each pending text."""
    held = connection.execute("SELECT coalesce(max(place), 0) FROM to_embed").get
    content = Content(int(held) + 1, 1)
    with transaction(connection):
        vectors.use_embedder(connection, MARK.model_id, MARK.dimension)
        rows = connection.execute(
            "SELECT embed_hash, place FROM to_embed ORDER BY place"
        ).fetchall()
        made = ((str(key), content.vector(int(str(place))).tobytes()) for key, place in rows)
        vectors.put(connection, (MARK.model_id, MARK.dimension), list(made))


class MadeUp:
    """An embedder that only looks up the synthetic vectors of the questions."""

    spent = Spent()

    def __init__(self, database: Path, questions: Sequence[Question]) -> None:
        self.info = EmbedderInfo(model_id=MARK.model_id, dimension=MARK.dimension, max_tokens=512)
        connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        places = [int(str(_place_of(connection, question))) for question in questions]
        connection.close()
        content = Content(max(places) + 1, 1)
        self.known = {
            question.text: content.question(place, words=False, vector=True, scope=Scope()).vector
            for question, place in zip(questions, places, strict=True)
        }

    async def prepare(self) -> None:
        """Nothing to do."""

    def count_tokens(self, text: str) -> int:
        """Return an estimate."""
        return len(text.split())

    async def embed(self, texts: Sequence[str], kind: Kind = "passage") -> "Vectors":
        """Return the vectors of questions."""
        import numpy as np

        return np.array([np.frombuffer(self.known[text], "<f4") for text in texts])

    async def aclose(self) -> None:
        """Nothing to do."""


def _place_of(connection: apsw.Connection, question: Question) -> object:
    """Return the position of the embedded text of a question's answer."""
    return connection.execute(
        "SELECT t.place FROM scopes AS s JOIN files USING (file) JOIN to_embed AS t"
        " USING (embed_hash) WHERE path = ? AND qualified_name = ? ORDER BY start_line LIMIT 1",
        (question.path, question.qualified_name),
    ).get


async def ask(place: Place, questions: Sequence[Question]) -> list[Searched]:
    """Measure the product's search, from a question to scopes with their lines from the disk."""
    index = place.index(MadeUp(place.database, questions))
    held = await index.status()
    texts = [question.text for question in questions]
    found = []
    for way, semantic in ((BOTH, True), ("ragmem, words", False)):

        async def search(text: str, semantic: bool = semantic) -> None:
            if not await index.search(text, limit=LIMIT, semantic=semantic):
                raise CannotMeasure(f"nothing was found of {text!r}")

        first, quiet, cpu = await _timed(search, texts)
        found.append(
            Searched(
                scopes=held.scopes,
                files=held.files,
                way=way,
                first=first,
                spread=quiet,
                cpu=cpu,
            )
        )
    changed = await _after_a_change(index, place.root / questions[0].path, texts)
    rss = peak_rss(os.getpid())
    await index.aclose()
    return [msgspec.structs.replace(found[0], changed=changed, rss_bytes=rss), *found[1:]]


async def ask_plainly(place: Place, questions: Sequence[Question]) -> list[Searched]:
    """Measure the baselines on the same scopes, without reading the lines of their hits."""
    known = MadeUp(place.database, questions).known
    texts = [question.text for question in questions]
    with Plain(place.root, place.database, MARK.model_id) as plain:
        ways: dict[str, Callable[[str], object]] = {
            "vectors alone": lambda text: plain.by_vector(known[text], LIMIT),
            "BM25 over lines": lambda text: plain.by_bm25(text, LIMIT),
            "ripgrep": lambda text: plain.by_ripgrep(text, LIMIT),
        }
        found = []
        for way, find in ways.items():
            is_slow = way == "ripgrep"
            asked = texts[:OF_RIPGREP] if is_slow else texts
            first, quiet, cpu = await _timed(
                partial(_awaited, find), asked, rounds=1 if is_slow else ROUNDS
            )
            found.append(
                Searched(
                    scopes=plain.scopes,
                    files=plain.files,
                    way=way,
                    first=first,
                    spread=quiet,
                    cpu=None if is_slow else cpu,
                )
            )
    return found


async def _awaited(find: Callable[[str], object], text: str) -> object:
    return find(text)


async def _timed(
    search: Callable[[str], Awaitable[object]], texts: Sequence[str], *, rounds: int = ROUNDS
) -> tuple[float, Spread, Spread]:
    """Return the first search's milliseconds, and the time and CPU time of the fastest round."""
    found = []
    for _ in range(rounds):
        spent, cpu = [], []
        for text in texts:
            before = time.process_time()
            spent.append(await _milliseconds(search(text)))
            cpu.append((time.process_time() - before) * 1000)
        found.append((spent, cpu))
    quiet, cpu = min(found, key=lambda each: spread(each[0][1:]).median)
    return found[0][0][0], spread(quiet[1:]), spread(cpu[1:])


async def _milliseconds(search: Awaitable[object]) -> float:
    started = time.perf_counter()
    await search
    return (time.perf_counter() - started) * 1000


async def _after_a_change(index: CodeIndex, file: Path, texts: Sequence[str]) -> float:
    spent = []
    for number, text in enumerate(texts[:_CHANGES]):
        _add(file, f"\ndef bench_{number}():\n    return {number}\n")
        await index.refresh()
        spent.append(await _milliseconds(index.search(text, limit=LIMIT)))
    return spread(spent).median


def _add(file: Path, text: str) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.write(text)


# --- the report ---------------------------------------------------------------------------


def searched_table(searched: Sequence[Searched]) -> str:
    """Return a row for each way in each index."""
    heads = (
        "a search, ms (vectors made up)|scopes|files|first|changed|min|median|p95|max|processor|p95"
        "|memory|"
    )
    rows = [heads.split("|")]
    for each in searched:
        s = each.spread
        times = (s.minimum, s.median, s.p95, s.maximum)
        rows.append(
            [
                each.way,
                f"{each.scopes:,}",
                f"{each.files:,}",
                f"{each.first:.1f}",
                "" if each.changed is None else f"{each.changed:.1f}",
                *(f"{n:.1f}" for n in times),
                *((f"{each.cpu.median:.1f}", f"{each.cpu.p95:.1f}") if each.cpu else ("", "")),
                "" if each.rss_bytes is None else f"{each.rss_bytes / 1e6:.0f} MB",
                "" if each.way != BOTH else "ok" if each.kept else "MISSED",
            ]
        )
    return aligned(rows)

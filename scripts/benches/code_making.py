"""The cost of a code index: to make it, to check it for changes, and to update it.

The baselines are reading all the files, and ripgrep counting their lines.
"""

import asyncio
import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from benches.code_bases import Base
from benches.growth import files_size
from benches.places import RAGMEM, clean_environment
from benches.results import CannotMeasure
from benches.tables import aligned
from ragmem.children import find_ripgrep
from ragmem.embedder import Embedder
from ragmem.embedder.models import OnnxEmbedder
from ragmem.ids import new_id
from ragmem.index import Refreshed
from ragmem.index.database import database_of
from ragmem.index.index import CodeIndex
from ragmem.records import Project, utc_now

_ROUNDS = 3
_SAMPLE_S = 0.05
_PATIENCE_S = 60.0
_EMBED_S = 15.0
"""The time for embedding if not all vectors are made."""
FIRST_S, RECHECK_S, CHANGE_S, MEMORY_BYTES = 30.0, 2.0, 1.0, 500e6
"""The targets for 5,000 files."""


class Place(msgspec.Struct, frozen=True):
    """The folder of a copy and its index."""

    folder: Path

    @property
    def root(self) -> Path:
        """Return the folder of the copy."""
        return self.folder / "project"

    @property
    def home(self) -> Path:
        """Return RAGMEM_HOME for the commands, which make their own index."""
        return self.folder / "home"

    @property
    def database(self) -> Path:
        """Return the index's database."""
        return database_of(self.folder / "data", "bench")

    def index(self, embedder: Embedder) -> CodeIndex:
        """Return the index as the program opens it, but without a store."""
        project = Project(project_id="bench", path=str(self.root), created_at=utc_now())
        return CodeIndex(project, self.database, embedder=embedder)


class Indexed(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of an index; None for what an earlier version did not measure."""

    name: str
    language: str
    files: int
    scopes: int
    source_bytes: int
    read_s: float | None = None
    """A baseline: reading all files one after the other; the minimum of several runs."""
    ripgrep_s: float | None = None
    """A baseline: `rg -c ''` on all cores; the minimum of several runs."""
    first_s: float
    """From nothing until everything can be searched by words."""
    recheck_s: float
    """A refresh when no file has changed; the minimum of several runs."""
    change_s: float
    """From writing a file until a refresh and a search find the change; the minimum of several."""
    new_s: float | None = None
    """The same with a new file."""
    watched_s: float | None = None
    """From writing a file until a search finds the change, which only the OS has reported."""
    watched_new_s: float | None = None
    """The same with a new file."""
    command_first_s: float | None = None
    """`ragmem index` from nothing, from the start of its process to its end."""
    command_again_s: float | None = None
    """The same when nothing has changed; the minimum of several runs."""
    embed_s: float | None
    """Making all vectors, with the background's threads; None if only some were made."""
    vectors_rate: float | None = None
    """Vectors per second."""
    embed_rss_bytes: int | None = None
    """The peak memory of all processes together while vectors are made."""
    index_bytes: int
    first_rss_bytes: int
    """The peak memory of all processes together while the index is made."""
    process_rss_bytes: int | None = None
    """The peak memory of the largest of those processes."""

    @property
    def kept(self) -> bool:
        """Whether the targets for 5,000 files are met."""
        again = max(self.recheck_s, self.command_again_s or 0)
        changed = (self.change_s, self.new_s, self.watched_s, self.watched_new_s)
        return (
            self.first_s < FIRST_S * max(1.0, self.files / 5_000)
            and again < RECHECK_S
            and all(each is None or each < CHANGE_S for each in changed)
            and max(self.first_rss_bytes, self.embed_rss_bytes or 0) < MEMORY_BYTES
        )


async def make(place: Place, base: Base, source_bytes: int) -> Indexed:
    """Index the copy, change it, and make its vectors; runs in a separate process."""
    embedder = OnnxEmbedder()
    index = place.index(embedder)
    read_s, ripgrep_s = _least(_read_all, place.root), _least(_counted, place.root)
    with Memory() as first:
        started = time.perf_counter()
        made = await index.refresh()
        first_s = time.perf_counter() - started
    recheck_s = min([(await index.refresh()).seconds for _ in range(_ROUNDS)])
    change_s, new_s = await _looked_for(index, place.root, base.suffix)
    watched_s, watched_new_s = await _watched(index, place.root, base.suffix)
    with Memory() as embedding:
        embed_s, vectors_rate = await _embedded(index, None if base.asked else _EMBED_S)
    await index.aclose()
    await embedder.aclose()
    command_first_s, *again = await asyncio.to_thread(_commands, place)
    return Indexed(
        name=base.name,
        language=base.language,
        files=made.files,
        scopes=made.scopes,
        source_bytes=source_bytes,
        read_s=read_s,
        ripgrep_s=ripgrep_s,
        first_s=first_s,
        recheck_s=recheck_s,
        change_s=change_s,
        new_s=new_s,
        watched_s=watched_s,
        watched_new_s=watched_new_s,
        command_first_s=command_first_s,
        command_again_s=min(again),
        embed_s=embed_s,
        vectors_rate=vectors_rate,
        embed_rss_bytes=embedding.most_bytes,
        index_bytes=files_size(place.database.parent),
        first_rss_bytes=first.most_bytes,
        process_rss_bytes=first.most_of_one_bytes,
    )


async def _embedded(index: CodeIndex, limit_s: float | None) -> tuple[float | None, float]:
    """Return the seconds for all vectors (None if stopped before), and the vectors per second."""
    done = 0

    def show(so_far: int, _of: int) -> None:
        nonlocal done
        done = so_far

    started = time.perf_counter()
    is_all = await index.embed(limit_s, show=show)
    seconds = time.perf_counter() - started
    return seconds if is_all else None, done / seconds


# --- baselines ----------------------------------------------------------------------------


def _least(what: Callable[[Path], object], root: Path) -> float:
    spent = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        what(root)
        spent.append(time.perf_counter() - started)
    return min(spent)


def _read_all(root: Path) -> int:
    return sum(
        len((Path(folder) / name).read_bytes())
        for folder, _, names in os.walk(root)
        for name in names
    )


def _counted(root: Path) -> None:
    command = [str(find_ripgrep()), "--no-config", "--hidden", "-c", "", "."]
    subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, check=True)


def _commands(place: Place) -> list[float]:
    """Return the seconds of `ragmem index`: from nothing, then repeatedly without changes."""
    env = clean_environment(place.home, RAGMEM_MEMORY__WORKER="off")
    spent = []
    for _ in range(1 + _ROUNDS):
        started = time.perf_counter()
        done = subprocess.run(
            [str(RAGMEM), "index"], cwd=place.root, env=env, capture_output=True, text=True
        )
        spent.append(time.perf_counter() - started)
        if done.returncode:
            raise CannotMeasure(f"ragmem index: {done.stderr.strip()[-300:]}")
    return spent


# --- changes ------------------------------------------------------------------------------


_Seen = Callable[[str, str, bool], Awaitable[None]]
"""Waits until a name is found in a file, or is no longer found."""


async def _looked_for(index: CodeIndex, root: Path, suffix: str) -> tuple[float, float]:
    """Return the seconds until a refresh finds a changed file, and a new one."""

    async def seen(name: str, path: str, is_there: bool) -> None:
        await index.refresh()
        if await _finds(index, name, path) != is_there:
            raise CannotMeasure(f"what is new in {path} was not found")

    spent = [await _both(root, suffix, seen) for _ in range(_ROUNDS)]
    return min(old for old, _ in spent), min(new for _, new in spent)


async def _watched(index: CodeIndex, root: Path, suffix: str) -> tuple[float, float]:
    """Return the same while the index watches the files, as it does in a chat."""
    told: asyncio.Queue[Refreshed] = asyncio.Queue()

    async def follow() -> None:
        async with contextlib.aclosing(index.watch()) as refreshes:
            async for refreshed in refreshes:
                told.put_nowait(refreshed)

    async def seen(name: str, path: str, is_there: bool) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                refreshed = await told.get()
                if path in (*refreshed.changed, *refreshed.removed):
                    break
        if await _finds(index, name, path) != is_there:
            raise CannotMeasure(f"what is new in {path} was not found while it was watched")

    following = asyncio.create_task(follow())
    try:
        # The first round is not counted: it takes a while until the watch is set up.
        spent = [await _both(root, suffix, seen) for _ in range(1 + _ROUNDS)][1:]
    except TimeoutError:
        raise CannotMeasure("a change was not told while the files were watched") from None
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
    return min(old for old, _ in spent), min(new for _, new in spent)


async def _both(root: Path, suffix: str, seen: _Seen) -> tuple[float, float]:
    """Return the seconds for a changed file and a new one; both are restored afterwards."""
    old = _one_file(root, suffix)
    before = old.read_bytes()
    mark = b"#" if suffix == ".py" else b"//"
    spent = []
    for file, held in ((old, before), (old.with_name(f"bench_new{suffix}"), None)):
        name, path = f"bench_{new_id()[-12:]}", str(file.relative_to(root))
        try:
            file.write_bytes((held or b"") + b"\n" + mark + b" " + name.encode() + b"\n")
            started = time.perf_counter()
            await seen(name, path, True)
            spent.append(time.perf_counter() - started)
        finally:
            if held is None:
                file.unlink()
            else:
                file.write_bytes(held)
        await seen(name, path, False)
    return spent[0], spent[1]


async def _finds(index: CodeIndex, name: str, path: str) -> bool:
    found = await index.search(name, limit=1, semantic=False)
    return bool(found) and found[0].path == path


def _one_file(root: Path, suffix: str) -> Path:
    """Return a file with this suffix, of some size if there is one."""
    files = sorted(root.rglob(f"*{suffix}"))
    return next((file for file in files if file.stat().st_size > 8_000), files[-1])


# --- memory -------------------------------------------------------------------------------


class Memory:
    """The peak resident memory of this process and its children, sampled at both ends and often in
    between, so that a very short run is measured, too.
    """

    def __init__(self) -> None:
        self.most_bytes = self.most_of_one_bytes = 0
        """The peak of all processes together, and of the largest."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Memory":
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self._look()

    def _look(self) -> None:
        family = [_resident(pid) for pid in (os.getpid(), *_below(os.getpid()))]
        self.most_bytes = max(self.most_bytes, sum(family))
        self.most_of_one_bytes = max(self.most_of_one_bytes, *family)


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


# --- the report ---------------------------------------------------------------------------


def indexed_table(indexed: Sequence[Indexed]) -> str:
    """Return a row per code base for making its index, then one for updating it."""
    heads = (
        "index|files|scopes|MB|reading, s|rg -c '', s|first, s|files/s|largest, MB|all, MB"
        "|on disk, MB|vectors, s|vectors/s|all, MB|"
    )
    made = [heads.split("|")]
    kept = "kept current, s|again|ragmem index|again|one file|new file|watched|new file|"
    again = [kept.split("|")]
    for each in indexed:
        verdict = "ok" if each.kept else "MISSED"
        made.append(
            [
                each.name,
                f"{each.files:,}",
                f"{each.scopes:,}",
                f"{each.source_bytes / 1e6:.1f}",
                _shown(each.read_s),
                _shown(each.ripgrep_s),
                f"{each.first_s:.1f}",
                f"{each.files / each.first_s:,.0f}",
                _megabytes(each.process_rss_bytes),
                _megabytes(each.first_rss_bytes),
                _megabytes(each.index_bytes),
                _shown(each.embed_s, 0),
                _shown(each.vectors_rate, 0),
                _megabytes(each.embed_rss_bytes),
                verdict,
            ]
        )
        again.append(
            [
                each.name,
                _shown(each.recheck_s),
                _shown(each.command_first_s, 1),
                _shown(each.command_again_s),
                _shown(each.change_s),
                _shown(each.new_s),
                _shown(each.watched_s),
                _shown(each.watched_new_s),
                verdict,
            ]
        )
    return f"{aligned(made)}\n\n{aligned(again)}"


def _shown(number: float | None, digits: int = 2) -> str:
    return "" if number is None else f"{number:,.{digits}f}"


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:,.0f}"

"""The code index of one project's folder: made from the files, searched, kept current."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import apsw
import msgspec

from ragmem.codeindex import finding, mirroring
from ragmem.codeindex.database import (
    Lane,
    open_for_reading,
    open_for_writing,
    reading,
    refused,
    transaction,
)
from ragmem.codeindex.database import database_of as database_of
from ragmem.codeindex.embedding import embed
from ragmem.codeindex.followers import is_followed
from ragmem.codeindex.fresh import Stand, stands_of, with_texts
from ragmem.codeindex.listing import Limits as Limits
from ragmem.codeindex.listing import refusal
from ragmem.codeindex.refreshing import Plan, Stopped, counts, refresh
from ragmem.codeindex.values import CodeHit, IndexStatus, Refreshed
from ragmem.embedder.base import Embedder
from ragmem.errors import EmbedderError, StoreUnavailable, UsageError
from ragmem.metrics import Metrics
from ragmem.records import CodeScope, Project, utc_now
from ragmem.store.base import Store
from ragmem.store.code import FoundScope
from ragmem.store.locks import take
from ragmem.text import visible

if TYPE_CHECKING:
    from ragmem.codeindex.vectors import Resident

T = TypeVar("T")

_LIMITS = Limits()
_STOPS_WITHIN_S = 10.0


class CodeIndex:
    """See the package. Text is found without vectors, and before the store knows of anything.

    Everything but `refresh`, `mirror` and `embed` reads only; where nothing was ever indexed,
    nothing is found.
    """

    def __init__(
        self,
        project: Project,
        database: Path,
        *,
        embedder: Embedder | None = None,
        open_store: Callable[[], Awaitable[Store]] | None = None,
        limits: Limits = _LIMITS,
        metrics: Metrics | None = None,
        clock: Callable[[], datetime] = utc_now,
        private: tuple[Path, ...] = (),
    ) -> None:
        """`private` are ragmem's own folders: they are never indexed.

        Without `open_store` the store is told nothing.
        """
        self.project = project
        self._root = Path(os.path.realpath(project.path))
        self._database = database
        self._embedder = embedder
        self._limits = limits
        self._metrics = metrics or Metrics()
        self._clock = clock
        self._private = tuple(Path(os.path.realpath(path)) for path in (database.parent, *private))
        self._writer = Lane(database, open_for_writing)
        self._has_written = False
        """What only looks never removes a damaged index."""
        self._reader = Lane(database, open_for_reading, throws_away=lambda: self._has_written)
        self._resident: Resident | None = None
        self._one_refresh = asyncio.Lock()
        self._mirror = mirroring.Mirror(
            project,
            self._read,
            self._write,
            open_store=open_store,
            lock=partial(self._locked, "mirror"),
            metrics=self._metrics,
        )
        self._closing = False
        self._stop = threading.Event()
        """Of the refresh that is under way."""

    @property
    def refusal(self) -> str:
        """Why this folder is not indexed; empty when it is."""
        return refusal(self._root)

    # --- making it ----------------------------------------------------------------------

    async def refresh(
        self,
        *,
        show: Callable[[int, int], None] | None = None,
        rebuild: bool = False,
        paths: Collection[str] | None = None,
    ) -> Refreshed:
        """Bring it up to date with the disk; what changed is found by its words from then on.

        `paths`, relative to the project's folder: only these may have changed. `show` is told of
        how many files are done. The store hears of it afterwards, in the background.
        """
        self.refuse()
        if self._closing:
            raise _closed()
        async with self._one_refresh:
            lock = self._locked("refresh")
            if lock is None:
                return await self.as_it_is()
            with self._metrics.time("code.refresh"):
                done = await self._refreshed(show, rebuild, paths, lock)
        self._mirror.tell_later()
        return done

    async def _refreshed(
        self,
        show: Callable[[int, int], None] | None,
        rebuild: bool,
        paths: Collection[str] | None,
        lock: int,
    ) -> Refreshed:
        self._has_written = True
        stop = self._stop = threading.Event()
        loop = asyncio.get_running_loop()

        def told(done: int, of: int) -> None:
            if show is not None and not stop.is_set():
                loop.call_soon_threadsafe(show, done, of)

        plan = Plan(
            root=self._root,
            project_id=self.project.project_id,
            limits=self._limits,
            private=self._private,
            now=self._clock(),
            paths=None if paths is None else frozenset(paths),
        )
        running = self._writer.submit(
            lambda connection: refresh(connection, plan, stop, told),
            otherwise=_NOTHING,
            anew=rebuild,
            # Not before: cancelled, it goes on for a moment.
            at_end=partial(os.close, lock),
        )
        return await _ended(running, stop)

    async def as_it_is(self) -> Refreshed:
        """What there is, where nothing can be done about it."""
        nothing: tuple[int, int, dict[str, int]] = (0, 0, {})
        files, scopes, left_out = await self._read(counts, nothing)
        return Refreshed(files=files, scopes=scopes, left_out=left_out, elsewhere=True)

    def refuse(self) -> None:
        """UsageError where the folder is none to be indexed."""
        if why := self.refusal:
            raise UsageError(
                f"The folder {visible(str(self._root))} is not indexed: {why}.",
                hint="Go into a project's folder. One without .git is taken as it is.",
            )

    def _locked(self, what: str) -> int | None:
        """A lock that one process at a time has; None while another one has it."""
        file = self._database.with_suffix(f".{what}.lock")
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise refused(self._database, error) from error
        return handle if take(file, handle) else None

    # --- telling the store ----------------------------------------------------------------

    async def mirror(self) -> bool:
        """Tell the store of scopes and imports that it does not know; whether it knows all.

        Not where another process is at it, nor while the store is away: then it is done later.
        """
        return await self._mirror.tell()

    def when_told(self, told: Callable[[], None]) -> None:
        """`told` is called when the store knows what a refresh has found."""
        self._mirror.on_told = told

    # --- vectors ---------------------------------------------------------------------------

    async def embed(
        self,
        limit_s: float | None = None,
        show: Callable[[int, int], None] | None = None,
        *,
        first: Sequence[str] = (),
    ) -> bool:
        """Make the vectors that wait; whether none waits any more. EmbedderError where it can't.

        `show` is told how many are done, of how many. Those of the `first` scopes come first.
        """
        if self._embedder is None:
            return not (await self.status()).without_vectors
        with self._metrics.time("code.embed"):
            return await embed(
                self._embedder,
                self._read,
                self._write,
                first=first,
                limit_s=limit_s,
                show=show,
                is_closing=lambda: self._closing,
            )

    # --- asking it --------------------------------------------------------------------------

    async def search(
        self,
        text: str,
        *,
        limit: int = 10,
        semantic: bool = True,
        patience_s: float | None = None,
        near: Collection[str] = (),
    ) -> list[CodeHit]:
        """The scopes that bear on a question, best first, each with its lines as they are now.

        Waits for the question's vector no longer than `patience_s`, then goes by words alone.
        `near` are paths that the conversation is about.
        """
        if not text.strip() or limit < 1 or not await self.exists():
            return []
        from ragmem.codeindex import search, vectors

        vector, model_id = await self._vector(text, patience_s) if semantic else (b"", "")
        question = search.CodeQuestion(
            text=text, vector=vector, embedder=model_id, limit=limit, near=frozenset(near)
        )
        if self._resident is None:
            self._resident = vectors.Resident()
        resident = self._resident

        def found(connection: apsw.Connection) -> tuple[list[CodeHit], dict[str, Stand]]:
            hits = search.search(connection, question, resident)
            return hits, stands_of(connection, hits)

        with self._metrics.time("code.search"):
            nothing: tuple[list[CodeHit], dict[str, Stand]] = ([], {})
            hits, stands = await self._read(found, nothing)
            most = self._limits.max_file_bytes
            return await asyncio.to_thread(with_texts, self._root, hits, stands, most)

    async def _vector(self, text: str, patience_s: float | None) -> tuple[bytes, str]:
        """Of the question; none where the index has no vectors of this embedder."""
        if self._embedder is None:
            return b"", ""
        model_id = await self._read(_model_id, "")
        if not model_id or model_id != self._embedder.info.model_id:
            return b"", ""
        try:
            async with asyncio.timeout(patience_s):
                rows = await self._embedder.embed([text], "query")
        except (EmbedderError, TimeoutError):
            self._metrics.count("code.without_vector")
            return b"", ""
        return rows[0].astype("<f4").tobytes(), model_id

    async def scopes_at(self, path: str, lines: Sequence[tuple[int, int]]) -> list[CodeScope]:
        """The innermost scopes of a file that these ranges of lines touch."""
        return await self._read(lambda found: finding.scopes_at(found, path, lines), [])

    async def scopes_named(self, names: Collection[str]) -> dict[str, list[FoundScope]]:
        """By name (`validate`, `AuthService.validate`) the scopes that are called so.

        What nothing is called, or more than five, is left out.
        """
        project_id = self.project.project_id
        return await self._read(lambda found: finding.scopes_named(found, project_id, names), {})

    async def neighbours(self, path: str) -> tuple[list[str], list[str]]:
        """The project's files that a file imports, and those that import it."""
        return await self._read(lambda found: finding.neighbours(found, path), ([], []))

    async def status(self) -> IndexStatus:
        """What there is."""
        path = str(self._root)
        size_bytes = sum(map(_size, (self._database, self._log)))
        found = await self._read(
            partial(finding.status, path=path, size_bytes=size_bytes),
            IndexStatus(path=path, files=0, scopes=0),
        )
        return msgspec.structs.replace(found, watched=is_followed(self._followers))

    async def exists(self) -> bool:
        """Whether anything was ever indexed."""
        return await self._read(_was_filled, False)

    @property
    def _log(self) -> Path:
        return self._database.with_name(f"{self._database.name}-wal")

    # --- keeping it current -------------------------------------------------------------------

    def watch(self) -> AsyncGenerator[Refreshed, None]:
        """Refreshes as files change, those that found something; until closed, or the folder goes.

        UsageError where the folder is not indexed.
        """
        from ragmem.codeindex.keeping import keep_current

        self.refuse()
        return keep_current(self, self._root, self._known_of, followers=self._followers)

    @property
    def _followers(self) -> Path:
        return self._database.with_suffix(".watch.lock")

    async def _known_of(self, paths: Collection[str]) -> set[str]:
        return await self._read(lambda found: finding.known_of(found, paths), set())

    async def aclose(self) -> None:
        """Release everything; safe to call twice."""
        self._closing = True
        self._stop.set()
        await self._mirror.aclose()
        await self._reader.aclose()
        await self._writer.aclose()

    async def _read(self, query: Callable[[apsw.Connection], T], otherwise: T) -> T:
        return await self._reader.run(partial(reading, query=query), otherwise=otherwise)

    async def _write(self, job: Callable[[apsw.Connection], object]) -> None:
        def whole(connection: apsw.Connection) -> None:
            with transaction(connection):
                job(connection)

        await self._writer.run(whole, otherwise=None)


_NOTHING = Refreshed(files=0, scopes=0)


async def _ended(running: "Future[Refreshed]", stop: threading.Event) -> Refreshed:
    """Its result; when cancelled, it is told to stop and given some time to."""
    waited = asyncio.wrap_future(running)
    try:
        return await asyncio.shield(waited)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([waited], timeout=_STOPS_WITHIN_S)
        if waited.done() and not waited.cancelled():
            # Looked at, so that asyncio does not report it as forgotten.
            waited.exception()
        raise
    except Stopped:
        raise _closed() from None


def _closed() -> StoreUnavailable:
    return StoreUnavailable("The code index is closed.", hint="Open it again.")


def _model_id(connection: apsw.Connection) -> str:
    return str(connection.execute("SELECT model_id FROM state").get)


def _was_filled(connection: apsw.Connection) -> bool:
    return bool(connection.execute("SELECT sequence FROM state").get)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0

"""The code index of one project: refreshing it from files, mirroring it, searching it."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
import msgspec

from ragmem.children import return_memory
from ragmem.config import CodeConfig
from ragmem.embedder import Embedder
from ragmem.errors import EmbedderError, RagmemError, StoreUnavailable, UsageError
from ragmem.files import make_private, refusal, take
from ragmem.index import CodeHit, IndexStatus, Refreshed, mirror, vectors
from ragmem.index.database import column, is_locked, read, refused, rows, transaction, write
from ragmem.index.files import hashes_of, with_texts
from ragmem.index.mirror import SCOPE_COLUMNS, code_scope
from ragmem.index.names import innermost
from ragmem.index.scan import Plan, Stopped, counts, refresh
from ragmem.logs import LOGGER
from ragmem.memory.projects import folder_name, real_folder
from ragmem.records import (
    CodeScope,
    CodeStore,
    DropCodeFiles,
    FoundScope,
    Project,
    PutCodeFile,
    RegisterProject,
)
from ragmem.text import visible
from ragmem.usage import Metrics

T = TypeVar("T")

_STOP_TIMEOUT_S = 10.0
_EMBEDDED_AT_ONCE = 32
_PAUSE_S = 0.05
_MIRROR_TIMEOUT_S = 2.0
"""How long to wait for the store when closing; the next process mirrors the rest."""
_MOST_NAMESAKES = 5
"""The most scopes that may share a name: a commoner name identifies none of them."""
_MOST_ROWS_OF_A_NAME = 2_000


class QuestionVector(NamedTuple):
    """The vector of a question (float32), and the model that made it."""

    packed: bytes
    model_id: str


NO_VECTOR = QuestionVector(b"", "")
"""Stands for a question without a vector, which is searched for by words alone."""


class CodeIndex:
    """The code index of a project.

    Scopes are found by words before they are embedded or mirrored to the store. Only `refresh`,
    `mirror` and `embed` write; the others find nothing if nothing was ever indexed.
    """

    def __init__(
        self,
        project: Project,
        database: Path,
        *,
        embedder: Embedder | None = None,
        open_store: Callable[[], Awaitable[CodeStore]] | None = None,
        settings: CodeConfig = CodeConfig(),  # noqa: B008 - frozen
        metrics: Metrics | None = None,
        private: tuple[Path, ...] = (),
    ) -> None:
        """`private` are ragmem's own folders, which are never indexed.

        Without `open_store` nothing is mirrored to the store.
        """
        self.project = project
        self._root = Path(os.path.realpath(real_folder(project.path)))
        self._database = database
        self._embedder = embedder
        self._settings = settings
        self._metrics = metrics or Metrics()
        self._private = tuple(Path(os.path.realpath(path)) for path in (database.parent, *private))
        self._scope_vectors = vectors.ScopeVectors()
        self._refresh_lock = asyncio.Lock()
        self._open_store = open_store
        self._mirror_lock = asyncio.Lock()
        self._mirroring: asyncio.Task[None] | None = None
        self._to_mirror = False
        self._closing = False
        self._running: asyncio.Future[Refreshed] | None = None
        """The latest refresh, which runs in a thread."""
        self._stop = threading.Event()
        """Stops that refresh."""
        self._grew = False
        self._has_embedded = False

    @property
    def refusal(self) -> str:
        """The reason why this folder may not be indexed; empty if it may."""
        return refusal(self._root)

    # --- refreshing ---------------------------------------------------------------------

    async def refresh(
        self,
        *,
        show: Callable[[int, int], None] | None = None,
        rebuild: bool = False,
    ) -> Refreshed:
        """Bring the index up to date with the disk; changes are then found by their words.

        `show` is called with the numbers of files done and in all. Afterwards changes are mirrored
        to the store in the background. Raises UsageError if the folder may not be indexed.
        """
        self.refuse()
        async with self._refresh_lock:
            if self._closing:
                raise _closed()
            lock = self._locked("refresh")
            if lock is None:
                return await self.as_it_is()
            with self._metrics.time("code.refresh"):
                done = await self._run_refresh(show, rebuild, lock)
        self._grew = self._grew or bool(done.changed)
        if self._open_store and not self._closing:
            self._to_mirror = True
            if self._mirroring is None or self._mirroring.done():
                self._mirroring = asyncio.create_task(self._mirror_in_background())
        return done

    async def _run_refresh(
        self,
        show: Callable[[int, int], None] | None,
        rebuild: bool,
        lock: int,
    ) -> Refreshed:
        stop = self._stop = threading.Event()
        loop = asyncio.get_running_loop()

        def told(done: int, of: int) -> None:
            if show is not None and not stop.is_set():
                loop.call_soon_threadsafe(show, done, of)

        plan = Plan(
            root=self._root,
            project_id=self.project.project_id,
            settings=self._settings,
            private=self._private,
        )

        def work() -> Refreshed:
            try:
                job = partial(refresh, plan=plan, stop=stop, show=told)
                return write(self._database, job, anew=rebuild)
            finally:
                return_memory()

        running = self._running = loop.run_in_executor(None, work)
        # The lock is held until the thread ends, which is shortly after a cancellation.
        running.add_done_callback(lambda _: os.close(lock))
        return await _await_refresh(running, stop)

    async def as_it_is(self) -> Refreshed:
        """Return the current counts, as the result of a refresh that another process does."""
        nothing: tuple[int, int, dict[str, int]] = (0, 0, {})
        files, scopes, left_out = await self._read(counts, nothing)
        return Refreshed(files=files, scopes=scopes, left_out=left_out, elsewhere=True)

    def refuse(self) -> None:
        """Raise UsageError if the folder may not be indexed."""
        if why := self.refusal:
            raise UsageError(
                f"The folder {visible(str(self._root))} is not indexed: {why}.",
                hint="Go to a project's folder; it needs no .git.",
            )

    def _locked(self, what: str) -> int | None:
        """Take an interprocess lock; return its descriptor, or None if another process holds it."""
        file = self._lock_file(what)
        try:
            make_private(file.parent)
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise refused(self._database, error) from error
        return handle if take(file, handle) else None

    # --- mirroring to the store -----------------------------------------------------------

    async def mirror(self) -> bool:
        """Write new scopes and imports to the store; return whether the store has all of them.

        False if another process holds the lock, or the store is unavailable.
        """
        if self._open_store is None:
            return False
        async with self._mirror_lock:
            try:
                lock = self._locked("mirror")
                if lock is None:
                    return False
                try:
                    with self._metrics.time("code.mirror"):
                        return await self._mirror_marked(await self._open_store())
                finally:
                    os.close(lock)
            except RagmemError as error:
                self._metrics.count("code.mirror_failed")
                logging.getLogger(LOGGER).warning("The store did not receive the code: %s", error)
                return False

    async def _mirror_marked(self, store: CodeStore) -> bool:
        """Write all marked files to the store; raises StoreError if it is unavailable."""
        project_id = self.project.project_id
        if not await self._read(_state("refreshed_at != ''"), False):
            # Until the first refresh is complete, files not indexed yet would look deleted.
            return False
        path, content = await self._read(mirror.last_mirrored, ("", ""))
        if path and [f.hash for f in await store.code_files(project_id, [path])] != [content]:
            await self._write(mirror.forget_store)
        if not await self._read(_state("seeded"), True):
            stored = await store.code_files(project_id)
            await self._write(lambda connection: mirror.seed(connection, stored))
        is_registered = False
        while not self._closing:
            batch = await self._read(
                partial(mirror.next_batch, project_id=project_id), mirror.MirrorBatch()
            )
            # Files first: a scope that moved must not be deleted along with its former file.
            writes: list[PutCodeFile | DropCodeFiles] = [PutCodeFile(file=f) for f in batch.files]
            if batch.gone:
                writes.append(DropCodeFiles(project_id=project_id, paths=batch.gone))
            if not writes:
                return True
            if not is_registered:
                if project_id not in {each.project_id for each in await store.projects()}:
                    await store.apply([RegisterProject(project=self.project)])
                is_registered = True
            await store.apply(writes)
            await self._write(partial(mirror.mark_mirrored, batch=batch))
            await asyncio.sleep(_PAUSE_S)
        return False

    async def _mirror_in_background(self) -> None:
        """Mirror in the background, again if a refresh ends meanwhile."""
        while self._to_mirror and not self._closing:
            self._to_mirror = False
            try:
                await self.mirror()
            except Exception:
                # A bug, which must not end the other tasks.
                logging.getLogger(LOGGER).exception("The store did not receive the code")

    # --- vectors ---------------------------------------------------------------------------

    async def embed(
        self,
        limit_s: float | None = None,
        show: Callable[[int, int], None] | None = None,
    ) -> bool:
        """Embed the texts that have no vector, the newest first; return whether none is left.

        Stops after `limit_s`. `show` is called with the numbers done and of all. EmbedderError.
        """
        embedder = self._embedder
        if embedder is None or not await self._read(vectors.has_texts, False):
            return not (await self.status()).without_vectors
        with self._metrics.time("code.embed"):
            await embedder.prepare()
            mark = (embedder.info.model_id, embedder.info.dimension)
            # What has taken its place since is newer: else each would clear the other's vectors.
            over = embedder.info.replaces if self._has_embedded else None
            if not await self._write(lambda found: vectors.use_embedder(found, *mark, over=over)):
                return False
            self._has_embedded = True
            until = None if limit_s is None else time.monotonic() + limit_s
            of, done = await self._read(vectors.waiting_count, 0), 0
            waiting = partial(vectors.waiting, limit=_EMBEDDED_AT_ONCE)
            none: list[tuple[str, str]] = []
            while not self._closing and (texts := await self._read(waiting, none)):
                made = await embedder.embed([text for _, text in texts])
                rows = [
                    (key, row.astype("<f4").tobytes())
                    for (key, _), row in zip(texts, made, strict=True)
                ]
                if not await self._write(partial(vectors.put, mark=mark, made=rows)):
                    break
                done += len(rows)
                if show is not None:
                    show(done, max(of, done))
                if until is not None and time.monotonic() >= until:
                    break
            return not await self._read(vectors.waiting_count, 0)

    # --- queries ----------------------------------------------------------------------------

    async def search(
        self,
        text: str,
        *,
        limit: int = 10,
        semantic: bool = True,
        vector: QuestionVector | None = None,
        near: Collection[str] = (),
    ) -> list[CodeHit]:
        """Find the scopes most relevant to a question, best first, with their current lines.

        `vector` is that of the question, if it is computed already; without `semantic` none is.
        `near` are paths that the conversation has touched.
        """
        if not text.strip() or limit < 1 or not await self.exists():
            return []
        from ragmem.index import search

        if vector is None:
            vector = await self.vector_of(text) if semantic else NO_VECTOR
        question = search.CodeQuestion(
            text=text,
            vector=vector.packed,
            embedder=vector.model_id,
            limit=limit,
            near=frozenset(near),
        )

        def found(connection: apsw.Connection) -> tuple[list[CodeHit], dict[str, str]]:
            hits = search.search(connection, question, self._scope_vectors)
            return hits, hashes_of(connection, hits)

        with self._metrics.time("code.search"):
            nothing: tuple[list[CodeHit], dict[str, str]] = ([], {})
            hits, hashes = await self._read(found, nothing)
            most = self._settings.max_file_bytes
            return await asyncio.to_thread(with_texts, self._root, hits, hashes, most)

    async def vector_of(self, text: str, patience_s: float | None = None) -> QuestionVector:
        """Embed a question; return NO_VECTOR if the index has no vectors of this embedder.

        Also if embedding fails or takes longer than `patience_s`: the search then uses words only.
        """
        if self._embedder is None:
            return NO_VECTOR
        model_id = await self._read(_state("model_id"), "")
        if not model_id or model_id != self._embedder.info.model_id:
            return NO_VECTOR
        try:
            async with asyncio.timeout(patience_s):
                rows = await self._embedder.embed([text], "query")
        except (EmbedderError, TimeoutError):
            self._metrics.count("code.without_vector")
            return NO_VECTOR
        return QuestionVector(rows[0].astype("<f4").tobytes(), model_id)

    async def scopes_at(self, path: str, lines: Sequence[tuple[int, int]]) -> list[CodeScope]:
        """Return the innermost scopes of a file that intersect these ranges of lines."""
        return await self._read(lambda found: _scopes_at(found, path, lines), [])

    async def scopes_named(self, names: Collection[str]) -> dict[str, list[FoundScope]]:
        """Return the scopes by name (`validate`, `AuthService.validate`).

        Names that no scope has, or more than five, are left out.
        """
        project_id = self.project.project_id
        return await self._read(lambda found: _scopes_named(found, project_id, names), {})

    async def neighbours(self, path: str) -> tuple[list[str], list[str]]:
        """Return the project's files that a file imports, and those that import it."""
        joined = "imports JOIN files AS f USING (file)"
        imports = f"SELECT imported FROM {joined} WHERE f.path = ? ORDER BY imported"
        by = f"SELECT f.path FROM {joined} WHERE imported = ? ORDER BY f.path"
        none: tuple[list[str], list[str]] = ([], [])
        return await self._read(
            lambda found: (column(found, imports, path), column(found, by, path)), none
        )

    async def status(self) -> IndexStatus:
        """Return the state of the index."""
        log = self._database.with_name(f"{self._database.name}-wal")
        found = await self._read(_status, IndexStatus(path="", files=0, scopes=0))
        return msgspec.structs.replace(
            found,
            path=folder_name(self._root),
            size_bytes=sum(map(_size, (self._database, log))),
            watched=is_locked(self._lock_file("watch")),
            being_made=not found.refreshed_at and is_locked(self._lock_file("refresh")),
        )

    async def exists(self) -> bool:
        """Return whether anything was ever indexed."""
        return bool(await self._read(_state("sequence"), 0))

    async def files_so_far(self) -> int | None:
        """Return the number of indexed files until the first refresh is complete; then None."""
        counted = "CASE refreshed_at WHEN '' THEN (SELECT count(*) FROM files) END"
        found: int | None = await self._read(_state(counted), 0)
        return found

    # --- watching -----------------------------------------------------------------------------

    def watch(self) -> AsyncGenerator[Refreshed, None]:
        """Refresh as files change; yields each outcome, until closed or the folder is removed.

        Raises UsageError if the folder may not be indexed.
        """
        from ragmem.index.watch import keep_current

        self.refuse()
        return keep_current(self, self._root, followers=self._lock_file("watch"))

    def grew(self) -> bool:
        """Return whether a refresh since the last call found changed files, which need vectors."""
        grew, self._grew = self._grew, False
        return grew

    def _lock_file(self, what: str) -> Path:
        return self._database.with_suffix(f".{what}.lock")

    async def folders(self) -> set[str]:
        """Return the paths of the folders with indexed files; the empty string is the root."""
        none: list[str] = []
        paths = await self._read(lambda found: column(found, "SELECT path FROM files"), none)
        return set(map(os.path.dirname, paths))

    async def aclose(self) -> None:
        """Stop all work and release resources; safe to call twice."""
        self._closing = True
        self._stop.set()
        if self._mirroring:
            # It stops after the batch being written; if that takes long, it is cancelled.
            await asyncio.wait([self._mirroring], timeout=_MIRROR_TIMEOUT_S)
            self._mirroring.cancel()
            await asyncio.wait([self._mirroring], timeout=_MIRROR_TIMEOUT_S)
        if self._running:
            await asyncio.wait([self._running], timeout=_STOP_TIMEOUT_S)

    async def _read(self, query: Callable[[apsw.Connection], T], otherwise: T) -> T:
        return await asyncio.to_thread(read, self._database, query, otherwise)

    async def _write(self, job: Callable[[apsw.Connection], T]) -> T:
        def whole(connection: apsw.Connection) -> T:
            with transaction(connection):
                return job(connection)

        return await asyncio.to_thread(write, self._database, whole)


async def _await_refresh(running: asyncio.Future[Refreshed], stop: threading.Event) -> Refreshed:
    """Await a refresh; when cancelled, stop it and give it some time to end."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running], timeout=_STOP_TIMEOUT_S)
        if running.done() and not running.cancelled():
            # Retrieved, so that asyncio does not log "exception was never retrieved".
            running.exception()
        raise
    except Stopped:
        raise _closed() from None


def _closed() -> StoreUnavailable:
    return StoreUnavailable("The code index is closed.", hint="Open it again.")


def _state(column: str) -> Callable[[apsw.Connection], Any]:
    """Return a query for one column of the table `state`."""
    return lambda connection: connection.execute(f"SELECT {column} FROM state").get


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


# --- queries, in one read transaction ------------------------------------------------------


def _scopes_at(
    connection: apsw.Connection, path: str, lines: Sequence[tuple[int, int]]
) -> list[CodeScope]:
    """Return the innermost scopes that intersect these 1-based inclusive ranges, in file order."""
    of_file = (
        f"SELECT {SCOPE_COLUMNS} FROM scopes WHERE file = (SELECT file FROM files WHERE path = ?)"
        " ORDER BY start_line, end_line DESC, scope"
    )
    scopes = list(map(code_scope, rows(connection, of_file, path)))
    touched = {each.scope_id for first, last in lines for each in innermost(scopes, first, last)}
    return [scope for scope in scopes if scope.scope_id in touched]


def _scopes_named(
    connection: apsw.Connection, project_id: str, names: Collection[str]
) -> dict[str, list[FoundScope]]:
    """Return the scopes by name, each list in the order of paths and lines."""
    columns = ", ".join(f"s.{column}" for column in SCOPE_COLUMNS.split(", "))
    found: dict[str, list[FoundScope]] = {}
    for name in dict.fromkeys(names):
        wanted = name.strip().casefold()
        of_name = rows(
            connection,
            f"SELECT f.path, {columns} FROM scopes AS s JOIN files AS f USING (file)"
            " WHERE s.name_key = ? AND s.name_key != '' ORDER BY f.path, s.start_line LIMIT ?",
            wanted.rpartition(".")[2],
            _MOST_ROWS_OF_A_NAME,
        )
        scopes = [
            FoundScope(project_id=project_id, path=path, defined=True, scope=scope)
            for path, scope in ((path, code_scope(row)) for path, *row in of_name)
            if "." not in wanted or f".{scope.qualified_name.casefold()}".endswith(f".{wanted}")
        ]
        if 0 < len(scopes) <= _MOST_NAMESAKES:
            found[name] = scopes
    return found


def _status(connection: apsw.Connection) -> IndexStatus:
    files, scopes, left_out = counts(connection)
    languages = rows(
        connection,
        "SELECT language, count(*) FROM files WHERE left_out = '' GROUP BY language"
        " ORDER BY count(*) DESC, language",
    )
    return IndexStatus(
        path="",
        files=files,
        scopes=scopes,
        languages=dict(languages),
        left_out=left_out,
        without_vectors=vectors.waiting_count(connection),
        refreshed_at=connection.execute("SELECT refreshed_at FROM state").get,
    )

"""What the store is told of the index: what can't be made anew from the files.

Scopes with their ids, and imports; in small batches, so that a conversation's writes get through
in between. What could not be told stays marked.
"""

import asyncio
import hashlib
import logging
import os
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import apsw
import msgspec

from ragmem.errors import RagmemError
from ragmem.index.database import raise_epoch
from ragmem.logs import LOGGER
from ragmem.records import (
    CodeFile,
    CodeScope,
    CodeStore,
    DropCodeFiles,
    Project,
    PutCodeFile,
    RegisterProject,
)
from ragmem.usage import Metrics

if TYPE_CHECKING:
    from ragmem.index import CutScope
    from ragmem.index.rows import ScopeRow

K = TypeVar("K", bound=Hashable)

_NAMESPACE = bytes.fromhex("9b0f6b2e9d355c2a8f0e6c1d7a4e2f10")
_NUMBERED = re.compile(r"#\d+$")
_TELLING_LINES, _TELLING_WORDS = 5, 3


class ScopeKey(NamedTuple):
    """What a scope goes by."""

    kind: str
    name: str
    qualified_name: str
    hash: str
    """The hash of its text without its name."""
    is_telling: bool = True
    """Whether it says enough that no other has the same text by chance, as stubs do."""

    @classmethod
    def of(cls, scope: "CodeScope | CutScope | ScopeRow") -> "ScopeKey":
        """Return what a scope goes by."""
        is_telling = (
            scope.end_line - scope.start_line + 1 >= _TELLING_LINES
            or len(scope.docstring.split()) >= _TELLING_WORDS
        )
        return cls(scope.kind, scope.name, scope.qualified_name, scope.hash, is_telling)

    @classmethod
    def read(cls, row: Sequence[object]) -> "ScopeKey":
        """Read the same from a row of KEY_COLUMNS."""
        kind, name, qualified_name, digest, is_telling = row
        return cls(str(kind), str(name), str(qualified_name), str(digest), bool(is_telling))


KEY_COLUMNS = "kind, name, qualified_name, hash, is_telling"


def scope_id_of(
    project_id: str, path: str, key: ScopeKey, *, is_taken: Callable[[str], bool]
) -> str:
    """Make an id for a new scope: the same for all processes and machines that meet it."""
    counter = 0
    while True:
        parts = (project_id, path, key.kind, key.qualified_name, str(counter))
        found = uuid5("\0".join(parts))
        if not is_taken(found):
            return found
        counter += 1


def uuid5(name: str) -> str:
    """Make an id of a name as `uuid.uuid5` does, in a quarter of its time."""
    digest = hashlib.sha1(_NAMESPACE + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


_Way = Callable[[ScopeKey], Hashable | None]
"""Gives what two scopes have in common that are the same; None where that can't be told."""
_IN_A_FILE: tuple[_Way, ...] = (
    # Of several of one name (`name#2`) the text tells which is which.
    lambda key: (key.kind, _NUMBERED.sub("", key.qualified_name), key.hash),
    lambda key: (key.kind, key.qualified_name),
    # An older ragmem called some types classes.
    lambda key: key.qualified_name if key.kind in ("class", "type") else None,
    lambda key: (key.kind, key.name, key.hash) if key.name else None,
    lambda key: (key.kind, key.hash) if key.is_telling else None,
)
_IN_ANOTHER_FILE: tuple[_Way, ...] = (
    lambda key: (key.kind, key.qualified_name, key.hash) if key.name else None,
    lambda key: (key.kind, key.name, key.hash) if key.is_telling else None,
    lambda key: (key.kind, key.hash) if key.is_telling else None,
)


def assign(old: Sequence[ScopeKey], new: Sequence[ScopeKey]) -> dict[int, int]:
    """Return by the places of a file's scopes now those of what they were before the edit.

    Both are in the order of the file. A scope without a partner is new, or is gone.
    """
    return _paired(old, new, _IN_A_FILE)


def follow(
    vanished: Iterable[tuple[str, ScopeKey]], fresh: Iterable[tuple[K, ScopeKey]]
) -> dict[K, str]:
    """Return which fresh scopes are vanished ones that were moved: each once, of one text and kind.

    Of several with the same text those of the same name come first. Under another name only what
    says enough is known again.
    """
    went, came = list(vanished), list(fresh)
    pairs = _paired([key for _, key in went], [key for _, key in came], _IN_ANOTHER_FILE)
    return {came[place][0]: went[partner][0] for place, partner in pairs.items()}


def _paired(
    old: Sequence[ScopeKey], new: Sequence[ScopeKey], ways: Iterable[_Way]
) -> dict[int, int]:
    """Pair new with old scopes in one way after the other, the surest first; each once."""
    pairs: dict[int, int] = {}
    left, lost = dict(enumerate(new)), dict(enumerate(old))
    for way in ways:
        partners: defaultdict[Hashable, list[int]] = defaultdict(list)
        for place, key in reversed(lost.items()):
            partners[way(key)].append(place)
        for place, key in list(left.items()) if lost else ():
            value = way(key)
            if value is not None and partners[value]:
                pairs[place] = partners[value].pop()
                del left[place], lost[pairs[place]]
    return pairs


# --- what went and came lately ------------------------------------------------------------------

# What is moved with two edits, or over a crash, is one move: an agent takes a function out of one
# file and puts it into another, and the files are looked at in between.
_FOLLOWED_FOR = timedelta(hours=1)
"""How long after it went a scope may come back elsewhere; later it is a copy."""
_MOST = 2_000


def note_went(connection: apsw.Connection, went: Iterable[int], at: datetime) -> None:
    """Note scopes, by their rows, that a file has no more and that are to be dropped."""
    connection.executemany(
        f"INSERT OR REPLACE INTO went SELECT scope_id, {KEY_COLUMNS}, ? FROM scopes"
        " WHERE scope = ?",
        [(at.isoformat(), scope) for scope in went],
    )


def note_came(connection: apsw.Connection, came: Iterable[int], at: datetime) -> None:
    """Note scopes that are new, by their rows; those that were away have a past of their own."""
    connection.executemany(
        "INSERT OR REPLACE INTO came (scope_id, at) SELECT scope_id, ? FROM scopes WHERE scope = ?"
        " AND scope_id NOT IN (SELECT scope_id FROM went)",
        [(at.isoformat(), scope) for scope in came],
    )


def went_by_another_name(connection: apsw.Connection, scope_id: str, key: ScopeKey) -> bool:
    """Return whether that id's scope went, and was called otherwise."""
    found = connection.execute(
        "SELECT 1 FROM went WHERE scope_id = ? AND (kind, qualified_name) != (?, ?)",
        (scope_id, key.kind, key.qualified_name),
    )
    return found.get is not None


def moved_scopes(connection: apsw.Connection, now: datetime) -> dict[int, str]:
    """Return by the rows of scopes that came the ids that they had where they went from."""
    connection.execute("DELETE FROM went WHERE scope_id IN (SELECT scope_id FROM scopes)")
    connection.execute("DELETE FROM came WHERE scope_id NOT IN (SELECT scope_id FROM scopes)")
    for table in ("went", "came"):
        connection.execute(
            f"DELETE FROM {table} WHERE at <= ?", ((now - _FOLLOWED_FOR).isoformat(),)
        )
    went = connection.execute(
        f"SELECT {KEY_COLUMNS}, scope_id FROM went ORDER BY at DESC, scope_id"
    )
    came = connection.execute(
        f"SELECT {KEY_COLUMNS}, scope FROM came JOIN scopes USING (scope_id)"
        " ORDER BY came.at DESC, scope"
    )
    return follow(
        [(str(scope_id), ScopeKey.read(key)) for *key, scope_id in went],
        [(int(str(scope)), ScopeKey.read(key)) for *key, scope in came],
    )


def forget_gone(connection: apsw.Connection) -> None:
    """Forget the oldest of what went and came where there is much of it."""
    for table in ("went", "came"):
        connection.execute(
            f"DELETE FROM {table} WHERE scope_id NOT IN"
            f" (SELECT scope_id FROM {table} ORDER BY at DESC LIMIT ?)",
            (_MOST,),
        )


T = TypeVar("T")

FILES_AT_ONCE = 50
PAUSE_S = 0.05
_TOLD_WITHIN_S = 2.0
"""The longest that a store is waited for at the end; the next process tells the rest."""

_MACRO = re.compile(r"\s*#\s*define\s+\w+")

SCOPE_COLUMNS = (
    "scope_id, kind, name, qualified_name, signature, docstring, start_line, end_line, hash"
)


class MirrorBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What the store is told at once."""

    files: tuple[CodeFile, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    """The rows of those files, and since when they are marked."""
    gone: tuple[str, ...] = ()


class ReadIndex(Protocol):
    """Runs a query on the index; `otherwise` where there is none."""

    async def __call__(self, query: Callable[[apsw.Connection], T], otherwise: T) -> T: ...


WriteIndex = Callable[[Callable[[apsw.Connection], object]], Awaitable[None]]
"""Runs a transaction on the index."""


class Mirror:
    """Tells a store of an index; without `open_store` nobody is told.

    `lock` gives what one process at a time has, or None.
    """

    def __init__(
        self,
        project: Project,
        read: ReadIndex,
        write: WriteIndex,
        *,
        open_store: Callable[[], Awaitable[CodeStore]] | None,
        lock: Callable[[], int | None],
        metrics: Metrics,
        on_told: Callable[[], None],
    ) -> None:
        """Tell a store; `on_told` is called when it knows all that `tell_later` was for."""
        self._project = project
        self._read = read
        self._write = write
        self._open_store = open_store
        self._lock = lock
        self._metrics = metrics
        self._one = asyncio.Lock()
        self._telling: asyncio.Task[None] | None = None
        self._again = False
        self._closing = False
        self._on_told = on_told

    async def tell(self) -> bool:
        """Tell of all that the store does not know; return whether it knows it all now.

        Not where another process is at it, nor while the store is away: then it is done later.
        """
        if self._open_store is None:
            return False
        async with self._one:
            try:
                lock = self._lock()
                if lock is None:
                    return False
                try:
                    with self._metrics.time("code.mirror"):
                        return await self._tell_all(await self._open_store())
                finally:
                    os.close(lock)
            except RagmemError as error:
                self._metrics.count("code.mirror_failed")
                logging.getLogger(LOGGER).warning("The store was not told of code: %s", error)
                return False

    async def _tell_all(self, store: CodeStore) -> bool:
        """Tell all that is marked; StoreError where the store is away."""
        project_id = self._project.project_id
        if not await self._read(_was_whole, False):
            # What is not there yet would be taken for gone.
            return False
        path, content = await self._read(_told_file, ("", ""))
        if path and [f.hash for f in await store.code_files(project_id, [path])] != [content]:
            await self._write(_forget_store)
        if not await self._read(_is_seeded, True):
            stored = await store.code_files(project_id)
            await self._write(partial(seed, project_id=project_id, stored=stored))
        is_registered = False
        while not self._closing:
            batch = await self._read(partial(next_batch, project_id=project_id), MirrorBatch())
            # Files first: a scope that was moved must not go with the file that it was in.
            writes: list[PutCodeFile | DropCodeFiles] = [PutCodeFile(file=f) for f in batch.files]
            if batch.gone:
                writes.append(DropCodeFiles(project_id=project_id, paths=batch.gone))
            if not writes:
                return True
            if not is_registered:
                if project_id not in {each.project_id for each in await store.projects()}:
                    await store.apply([RegisterProject(project=self._project)])
                is_registered = True
            await store.apply(writes)
            await self._write(partial(told, batch=batch))
            await asyncio.sleep(PAUSE_S)
        return False

    def tell_later(self) -> None:
        """Tell in the background; what changes meanwhile is told after that."""
        if self._open_store is None or self._closing:
            return
        self._again = True
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        while self._again and not self._closing:
            self._again = False
            try:
                if await self.tell() and not self._closing:
                    self._on_told()
            except Exception:
                # A bug: it must not end what goes on beside it.
                logging.getLogger(LOGGER).exception("The store was not told of code")

    async def aclose(self) -> None:
        """Stop after what is being told just now, or where that takes long."""
        self._closing = True
        if self._telling is None:
            return
        await asyncio.wait([self._telling], timeout=_TOLD_WITHIN_S)
        self._telling.cancel()
        await asyncio.wait([self._telling], timeout=_TOLD_WITHIN_S)


def next_batch(connection: apsw.Connection, project_id: str) -> MirrorBatch:
    """Return what is marked; empty if nothing is."""
    marks = connection.execute(
        "SELECT file, to_mirror FROM files WHERE to_mirror ORDER BY file LIMIT ?",
        (FILES_AT_ONCE,),
    ).fetchall()
    if marks:
        last = int(str(marks[-1][0]))
        files = _files(connection, project_id, "to_mirror AND file <= ? ORDER BY file", (last,))
        return MirrorBatch(
            files=tuple(file for _, file in files),
            marks=tuple((int(str(file)), int(str(mark))) for file, mark in marks),
        )
    gone = connection.execute("SELECT path FROM gone ORDER BY path LIMIT 100").fetchall()
    return MirrorBatch(gone=tuple(str(path) for (path,) in gone))


def told(connection: apsw.Connection, batch: MirrorBatch) -> None:
    """Unmark what the store knows now; what changed meanwhile stays marked. In a transaction."""
    connection.executemany(
        "UPDATE files SET to_mirror = 0 WHERE file = ? AND to_mirror = ?", batch.marks
    )
    connection.executemany("DELETE FROM gone WHERE path = ?", [(path,) for path in batch.gone])
    if batch.marks:
        connection.execute("UPDATE state SET told_file = ?", (batch.marks[-1][0],))


def scopes_of(connection: apsw.Connection, file: int) -> Iterator[CodeScope]:
    """Return a file's scopes, in the order of their first lines."""
    for row in connection.execute(
        f"SELECT {SCOPE_COLUMNS} FROM scopes WHERE file = ? ORDER BY start_line, end_line, scope",
        (file,),
    ):
        yield _without_value(code_scope(row))


def _without_value(scope: CodeScope) -> CodeScope:
    """A constant's first line is its value: that stays on this machine."""
    if scope.kind != "constant":
        return scope
    left = scope.signature.partition("=")[0]
    if macro := _MACRO.match(left):
        left = macro[0]
    return msgspec.structs.replace(scope, signature=left.rstrip())


def code_scope(row: Sequence[object]) -> CodeScope:
    """Return the scope of a row of SCOPE_COLUMNS."""
    names = SCOPE_COLUMNS.split(", ")
    return msgspec.convert(dict(zip(names, row, strict=True)), CodeScope)


def imports_of(connection: apsw.Connection, file: int) -> list[str]:
    """Return the paths that a file imports, sorted."""
    return [
        str(imported)
        for (imported,) in connection.execute(
            "SELECT imported FROM imports WHERE file = ? ORDER BY imported", (file,)
        )
    ]


def _was_whole(connection: apsw.Connection) -> bool:
    """Whether a refresh has ever come to its end."""
    return bool(connection.execute("SELECT refreshed_at != '' FROM state").get)


def _is_seeded(connection: apsw.Connection) -> bool:
    """Whether scopes have the ids that the store knows them by."""
    return bool(connection.execute("SELECT seeded FROM state").get)


def _told_file(connection: apsw.Connection) -> tuple[str, str]:
    """The file that the store was told of last, and the hash of its content.

    A store that was emptied or restored, or is another one, does not know it as it is.
    """
    found = connection.execute(
        "SELECT path, hash FROM files WHERE left_out = '' AND NOT to_mirror"
        " ORDER BY file = (SELECT told_file FROM state) DESC LIMIT 1"
    ).fetchone()
    return ("", "") if found is None else (str(found[0]), str(found[1]))


def _forget_store(connection: apsw.Connection) -> None:
    """It is another one, was emptied or restored: all is to be told, once its own ids are known."""
    epoch = raise_epoch(connection)
    connection.execute("UPDATE files SET to_mirror = ? WHERE left_out = ''", (epoch,))
    connection.execute("UPDATE state SET seeded = 0")


def seed(connection: apsw.Connection, project_id: str, stored: Sequence[CodeFile]) -> None:
    """Take over the ids that the store has, as if its files were this index's last state.

    In the caller's transaction.
    """
    wanted: dict[int, str] = {}
    vanished: list[tuple[str, ScopeKey]] = []
    fresh: list[tuple[int, ScopeKey]] = []
    local = _local(connection)
    for file in stored:
        here = local.pop(file.path, None)
        if here is None:
            connection.execute("INSERT OR IGNORE INTO gone (path) VALUES (?)", (file.path,))
            vanished += [(scope.scope_id, ScopeKey.of(scope)) for scope in file.scopes]
            continue
        then = [(scope.scope_id, ScopeKey.of(scope)) for scope in file.scopes]
        kept = assign([key for _, key in then], [key for _, key in here])
        wanted |= {here[new][0]: then[old][0] for new, old in kept.items()}
        vanished += [one for old, one in enumerate(then) if old not in set(kept.values())]
        fresh += [one for new, one in enumerate(here) if new not in kept]
    fresh += [scope for scopes in local.values() for scope in scopes]
    wanted |= follow(vanished, fresh)
    _rename(connection, wanted)
    _unmark_known(connection, project_id, stored)
    connection.execute("UPDATE state SET seeded = 1")


def _unmark_known(connection: apsw.Connection, project_id: str, stored: Sequence[CodeFile]) -> None:
    """Files that the store knows as they are already."""
    by_path = {file.path: file for file in stored}
    same = [
        (row,)
        for row, file in _files(connection, project_id, "left_out = ''", ())
        if by_path.get(file.path) == file
    ]
    connection.executemany("UPDATE files SET to_mirror = 0 WHERE file = ?", same)


def _files(
    connection: apsw.Connection, project_id: str, which: str, bound: Sequence[int]
) -> Iterator[tuple[int, CodeFile]]:
    for row, path, language, digest in connection.execute(
        f"SELECT file, path, language, hash FROM files WHERE {which}", bound
    ).fetchall():
        file = int(str(row))
        yield (
            file,
            CodeFile(
                project_id=project_id,
                path=str(path),
                language=str(language),
                hash=str(digest),
                scopes=tuple(scopes_of(connection, file)),
                imports=tuple(imports_of(connection, file)),
            ),
        )


def _local(connection: apsw.Connection) -> dict[str, list[tuple[int, ScopeKey]]]:
    paths = dict(connection.execute("SELECT file, path FROM files WHERE left_out = ''"))
    found: dict[str, list[tuple[int, ScopeKey]]] = {str(path): [] for path in paths.values()}
    for file, scope, *row in connection.execute(
        f"SELECT file, scope, {KEY_COLUMNS} FROM scopes ORDER BY start_line, scope"
    ):
        found[str(paths[file])].append((int(str(scope)), ScopeKey.read(row)))
    return found


def _rename(connection: apsw.Connection, wanted: dict[int, str]) -> None:
    """Give these scopes these ids; who has one of them in its place gets another."""
    held = {
        int(str(scope)): str(scope_id)
        for scope, scope_id in connection.execute("SELECT scope, scope_id FROM scopes")
    }
    changes = {scope: new for scope, new in wanted.items() if held[scope] != new}
    claimed = set(changes.values())
    for scope, scope_id in held.items():
        if scope_id in claimed and scope not in changes:
            changes[scope] = uuid5(f"another {scope_id}")
    if not changes:
        return
    epoch = raise_epoch(connection)
    connection.executemany(
        "UPDATE scopes SET scope_id = 'moving ' || scope WHERE scope = ?",
        [(scope,) for scope in changes],
    )
    connection.executemany(
        "UPDATE scopes SET scope_id = ? WHERE scope = ?",
        [(new, scope) for scope, new in changes.items()],
    )
    connection.executemany(
        "UPDATE files SET to_mirror = ? WHERE file = (SELECT file FROM scopes WHERE scope = ?)",
        [(epoch, scope) for scope in changes],
    )

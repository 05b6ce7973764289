"""The part of the index that is mirrored to the store, since turns refer to it.

Scopes with their ids, and imports, are written in small batches, so that a conversation's writes
get through in between. Files that could not be written stay marked.
"""

import hashlib
import re
from collections.abc import Sequence
from itertools import count

import apsw
import msgspec

from ragmem.index.database import column, raise_epoch, rows
from ragmem.records import CodeFile, CodeScope

_NAMESPACE = bytes.fromhex("9b0f6b2e9d355c2a8f0e6c1d7a4e2f10")
_FILES_AT_ONCE = 50
_MACRO = re.compile(r"\s*#\s*define\s+\w+")
SCOPE_COLUMNS = (
    "scope_id, kind, name, qualified_name, signature, docstring, start_line, end_line, hash"
)


def new_scope_id(connection: apsw.Connection, *place: str) -> str:
    """Derive an id from project, path, kind and qualified name: the same one on all machines.

    If the id is taken, by a scope that kept it when its file was renamed, the next one is used.
    """
    ids = (_uuid5("\0".join((*place, str(number)))) for number in count())
    taken = "SELECT 1 FROM scopes WHERE scope_id = ?"
    return next(each for each in ids if connection.execute(taken, (each,)).get is None)


def _uuid5(name: str) -> str:
    """Return the same as `uuid.uuid5`, in a quarter of the time."""
    digest = hashlib.sha1(_NAMESPACE + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


class MirrorBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What is written to the store at once: changed files, or paths of deleted ones."""

    files: tuple[CodeFile, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    """The row of each of those files, and the epoch in which it was marked."""
    gone: tuple[str, ...] = ()


def next_batch(connection: apsw.Connection, project_id: str) -> MirrorBatch:
    """Return the next files that the store lacks; empty if there are none."""
    of_file = f"SELECT {SCOPE_COLUMNS} FROM scopes WHERE file = ?"
    of_file += " ORDER BY start_line, end_line, scope"
    if marked := rows(
        connection,
        "SELECT file, to_mirror, path, language, hash FROM files WHERE to_mirror"
        " ORDER BY file LIMIT ?",
        _FILES_AT_ONCE,
    ):
        files = tuple(
            CodeFile(
                project_id=project_id,
                path=path,
                language=language,
                hash=digest,
                scopes=tuple(
                    _without_value(code_scope(row)) for row in rows(connection, of_file, file)
                ),
                imports=tuple(imports_of(connection, file)),
            )
            for file, _, path, language, digest in marked
        )
        return MirrorBatch(files=files, marks=tuple((file, mark) for file, mark, *_ in marked))
    gone = column(connection, "SELECT path FROM gone ORDER BY path LIMIT 100")
    return MirrorBatch(gone=tuple(gone))


def mark_mirrored(connection: apsw.Connection, batch: MirrorBatch) -> None:
    """Unmark what the store has now, except files that changed since; in a transaction."""
    connection.executemany(
        "UPDATE files SET to_mirror = 0 WHERE file = ? AND to_mirror = ?", batch.marks
    )
    connection.executemany("DELETE FROM gone WHERE path = ?", [(path,) for path in batch.gone])
    if batch.marks:
        connection.execute("UPDATE state SET told_file = ?", (batch.marks[-1][0],))


def _without_value(scope: CodeScope) -> CodeScope:
    """Return the scope without a constant's value in its signature: that stays on this machine."""
    if scope.kind != "constant":
        return scope
    left = scope.signature.partition("=")[0]
    if macro := _MACRO.match(left):
        left = macro[0]
    return msgspec.structs.replace(scope, signature=left.rstrip())


def code_scope(row: Sequence[object]) -> CodeScope:
    """Convert a row of SCOPE_COLUMNS to a scope."""
    names = SCOPE_COLUMNS.split(", ")
    return msgspec.convert(dict(zip(names, row, strict=True)), CodeScope)


def imports_of(connection: apsw.Connection, file: int) -> list[str]:
    """Return the paths that a file imports, sorted."""
    return column(connection, "SELECT imported FROM imports WHERE file = ? ORDER BY imported", file)


def last_mirrored(connection: apsw.Connection) -> tuple[str, str]:
    """Return path and hash of the file mirrored last, else of any mirrored one, else empty texts.

    If the store has a different hash, it was emptied, restored or replaced.
    """
    path, content = connection.execute(
        "SELECT path, hash FROM files WHERE left_out = '' AND NOT to_mirror"
        " ORDER BY file = (SELECT told_file FROM state) DESC LIMIT 1"
    ).get or ("", "")
    return path, content


def forget_store(connection: apsw.Connection) -> None:
    """Mark all files as missing in the store, and their ids as not yet taken over from it."""
    epoch = raise_epoch(connection)
    connection.execute("UPDATE files SET to_mirror = ? WHERE left_out = ''", (epoch,))
    connection.execute("UPDATE state SET seeded = 0")


def seed(connection: apsw.Connection, stored: Sequence[CodeFile]) -> None:
    """Take over the scope ids that the store has for these files, also for those renamed since.

    Runs in the caller's transaction.
    """
    here = dict(rows(connection, "SELECT path, hash FROM files WHERE left_out = ''"))
    new = here.keys() - {file.path for file in stored}
    renamed = {here[path]: path for path in new}
    wanted: dict[int, str] = {}
    for file in stored:
        path = file.path
        if path not in here:
            connection.execute("INSERT OR IGNORE INTO gone (path) VALUES (?)", (path,))
            path = renamed.pop(file.hash, "")
        ids = {(scope.kind, scope.qualified_name): scope.scope_id for scope in file.scopes}
        of_path = "SELECT scope, kind, qualified_name FROM scopes JOIN files USING (file)"
        for row, kind, name in rows(connection, f"{of_path} WHERE path = ?", path):
            if scope_id := ids.get((kind, name)):
                wanted[row] = scope_id
    _give_ids(connection, wanted)
    connection.execute("UPDATE state SET seeded = 1")


def _give_ids(connection: apsw.Connection, wanted: dict[int, str]) -> None:
    """Assign these ids to these scopes; a scope that has one of them already gets another."""
    taken = set(wanted.values())
    changes: list[tuple[str, int]] = []
    for scope, scope_id in rows(connection, "SELECT scope, scope_id FROM scopes"):
        kept = _uuid5(f"another {scope_id}") if scope_id in taken else scope_id
        if (new := wanted.get(scope, kept)) != scope_id:
            changes.append((new, scope))
    if changes:
        epoch, scopes = raise_epoch(connection), [(scope,) for _, scope in changes]
        many = connection.executemany
        many("UPDATE scopes SET scope_id = 'moving ' || scope WHERE scope = ?", scopes)
        many("UPDATE scopes SET scope_id = ? WHERE scope = ?", changes)
        many(
            f"UPDATE files SET to_mirror = {epoch}"
            " WHERE file = (SELECT file FROM scopes WHERE scope = ?)",
            scopes,
        )

"""Code and what turns have to do with it: what writes it, and what goes with a session."""

from collections.abc import Iterable

import apsw

from ragmem.failpoints import failpoint
from ragmem.records import (
    REFERENCE_HOWS,
    CodeFile,
    CodeScope,
    DropCodeFiles,
    PutCodeFile,
    PutReferences,
    ReferenceHow,
)
from ragmem.store.sqlite.code import name_key, tail_key
from ragmem.store.sqlite.rows import Value, value
from ragmem.store.sqlite.writes import Step
from ragmem.text import clean

_COLUMNS = (
    "project_id, path, place, kind, name, qualified_name, start_line, end_line, hash, name_key,"
    " tail_key, signature, docstring"
)
_PUT_SCOPE = f"""
    INSERT INTO code_scopes (scope_id, defined, {_COLUMNS})
    VALUES (?, 1, {", ".join("?" * len(_COLUMNS.split(", ")))})
    ON CONFLICT (scope_id) DO UPDATE SET defined = 1,
    {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", "))}
"""
_PUT_FILE = """
    INSERT INTO code_files (project_id, path, language, hash, imports) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (project_id, path) DO UPDATE SET
        language = excluded.language, hash = excluded.hash, imports = excluded.imports
"""
_DEFINED_BY = f"""
    SELECT scope, scope_id, {_COLUMNS} FROM code_scopes
    WHERE project_id = ? AND path = ? AND defined
"""
_UNKNOWN = "NOT EXISTS (SELECT 1 FROM code_references AS r WHERE r.scope = code_scopes.scope)"
"""No turn has to do with it."""


def planned(write: PutCodeFile | DropCodeFiles | PutReferences) -> Step:
    """The write, encoded and ready to be applied."""
    match write:
        case PutCodeFile():
            return _put_file(write.file)
        case DropCodeFiles():
            return _drop_files(write)
        case PutReferences():
            return _put_references(write)


def _put_file(file: CodeFile) -> Step:
    """A file's scopes and imports replace those that it had."""
    of = clean(file.project_id), clean(file.path)
    imports = value(tuple(dict.fromkeys(file.imports)))
    row = (*of, clean(file.language), clean(file.hash), imports)
    scopes = {
        clean(scope.scope_id): _columns(of, place, scope) for place, scope in enumerate(file.scopes)
    }

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        connection.execute(_PUT_FILE, row)
        held = {
            str(scope_id): (int(str(scope)), tuple(columns))
            for scope, scope_id, *columns in connection.execute(_DEFINED_BY, of)
        }
        changed = (
            (scope_id, *columns)
            for scope_id, columns in scopes.items()
            if scope_id not in held or held[scope_id][1] != columns
        )
        connection.executemany(_PUT_SCOPE, changed)
        _let_go(connection, (scope for each, (scope, _) in held.items() if each not in scopes))

    return step


def _columns(of: tuple[str, str], place: int, scope: CodeScope) -> tuple[Value, ...]:
    """What is stored of a scope, in the order of _COLUMNS."""
    return (
        *of,
        place,
        scope.kind,
        clean(scope.name),
        clean(scope.qualified_name),
        scope.start_line,
        scope.end_line,
        clean(scope.hash),
        name_key(scope.name),
        tail_key(scope.qualified_name),
        clean(scope.signature),
        clean(scope.docstring),
    )


def _drop_files(write: DropCodeFiles) -> Step:
    """Files that are no more define nothing."""
    project_id = clean(write.project_id)
    paths = [clean(path) for path in write.paths]

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        for path in paths:
            of = project_id, path
            defined = "project_id = ? AND path = ? AND defined"
            connection.execute(f"DELETE FROM code_scopes WHERE {defined} AND {_UNKNOWN}", of)
            connection.execute(f"UPDATE code_scopes SET defined = 0 WHERE {defined}", of)
            connection.execute("DELETE FROM code_files WHERE project_id = ? AND path = ?", of)

    return step


def _let_go(connection: apsw.Connection, scopes: Iterable[int]) -> None:
    """Scopes that their file defines no more go, but those that a turn has to do with stay."""
    for scope in scopes:
        connection.execute(f"DELETE FROM code_scopes WHERE scope = ? AND {_UNKNOWN}", (scope,))
        if not connection.changes():
            connection.execute("UPDATE code_scopes SET defined = 0 WHERE scope = ?", (scope,))


def _forget(connection: apsw.Connection, scope: int) -> None:
    """Remove a scope that nothing defines and no turn has to do with."""
    connection.execute(
        f"DELETE FROM code_scopes WHERE scope = ? AND NOT defined AND {_UNKNOWN}", (scope,)
    )


def _put_references(write: PutReferences) -> Step:
    """What a turn has to do with code replaces what was known of it."""
    turn = (clean(write.turn_id),)
    hows: dict[str, ReferenceHow] = {}
    for reference in sorted(
        write.references, key=lambda each: REFERENCE_HOWS.index(each.how), reverse=True
    ):
        hows[clean(reference.scope_id)] = reference.how

    def step(connection: apsw.Connection, _: dict[str, int]) -> None:
        if connection.execute("SELECT 1 FROM turns WHERE turn_id = ?", turn).get is None:
            return
        connection.execute(
            "UPDATE documents SET to_link = 0 WHERE to_link AND level = 0 AND record_id = ?", turn
        )
        held = "SELECT scope FROM code_references WHERE turn_id = ?"
        before = [int(str(scope)) for (scope,) in connection.execute(held, turn)]
        connection.execute("DELETE FROM code_references WHERE turn_id = ?", turn)
        connection.executemany(
            "INSERT INTO code_references (turn_id, scope, how)"
            " SELECT ?, scope, ? FROM code_scopes WHERE scope_id = ?",
            ((*turn, how, scope_id) for scope_id, how in hows.items()),
        )
        for scope in before:
            _forget(connection, scope)

    return step


def forget_session(connection: apsw.Connection, session_id: str) -> None:
    """Remove what its turns have to do with code, and scopes that only they kept."""
    gone = connection.execute(
        "DELETE FROM code_references"
        " WHERE turn_id IN (SELECT turn_id FROM turns WHERE session_id = ?) RETURNING scope",
        (session_id,),
    ).fetchall()
    failpoint("sqlite.delete")
    for scope in {int(str(each)) for (each,) in gone}:
        _forget(connection, scope)

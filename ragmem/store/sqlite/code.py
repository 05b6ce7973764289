"""Code, and the references of turns to it: queries, writes and deletions."""

from collections.abc import Iterable, Sequence

import msgspec

from ragmem import store
from ragmem.failpoints import failpoint
from ragmem.records import (
    MOST_CHANGED,
    REFERENCE_HOWS,
    ChangedTogether,
    CodeFile,
    CodeScope,
    CodeTurn,
    DropCodeFiles,
    FoundScope,
    PutCodeFile,
    PutReferences,
    ScopeQuery,
    TurnsQuery,
)
from ragmem.store import grouped, join_conditions, strongest
from ragmem.store.sqlite.connection import Database, Row, columns, record
from ragmem.store.sqlite.read import FAMILY
from ragmem.text import clean


def _name_key(name: str) -> str:
    """Return a scope's name in the form that is searched: casefolded."""
    return clean(name).casefold()


def _tail_key(qualified_name: str) -> str:
    """Return a qualified name reversed, so that matching its last parts is an index range."""
    return _name_key(qualified_name)[::-1]


def _family(db: Database, project_ids: Sequence[str]) -> list[str]:
    return db.column(FAMILY, project_ids=project_ids)


# --- files and scopes -------------------------------------------------------------------

_PROJECTS = """
    WITH RECURSIVE each_one (project_id) AS (
        SELECT min(project_id) FROM code_files
        UNION ALL
        SELECT (SELECT min(project_id) FROM code_files WHERE project_id > each_one.project_id)
        FROM each_one WHERE project_id IS NOT NULL
    )
    SELECT project_id FROM each_one WHERE project_id IS NOT NULL
"""
"""One index step per project, however many files it has."""


def code_projects(db: Database) -> list[str]:
    """Return every project that has a file."""
    return db.column(_PROJECTS)


def numbers_with_code(db: Database) -> list[int]:
    """Return the numbers in the text index of projects with files, and of their joined projects."""
    return db.column(
        f"""
        WITH with_code (root) AS (
            SELECT coalesce(p.joined_into, c.project_id)
            FROM ({_PROJECTS}) AS c LEFT JOIN projects AS p USING (project_id)
        )
        SELECT n.number FROM project_numbers AS n LEFT JOIN projects AS p USING (project_id)
        WHERE coalesce(p.joined_into, n.project_id) IN with_code
        """
    )


def code_files(db: Database, project_id: str, paths: Sequence[str] = ()) -> list[CodeFile]:
    """Return a project's files, each with its scopes."""
    which = "project_id = :id"
    if paths:
        which += " AND path IN (SELECT value FROM json_each(:paths))"
    defined = db.rows(
        f"SELECT * FROM code_scopes WHERE {which} AND defined ORDER BY path, start_line, place",
        id=project_id,
        paths=paths,
    )
    scopes = grouped((row["path"], record(CodeScope, row)) for row in defined)
    files = f"SELECT * FROM code_files WHERE {which} ORDER BY path"
    return [
        msgspec.structs.replace(file, scopes=tuple(scopes.get(file.path, ())))
        for file in db.records(CodeFile, files, id=project_id, paths=paths)
    ]


_NAMED = """
    scope IN (
        SELECT scope FROM code_scopes WHERE name_key = :name
        UNION SELECT scope FROM code_scopes WHERE tail_key = :tail
        UNION SELECT scope FROM code_scopes WHERE tail_key >= :parts AND tail_key < :past_parts
    )
"""


def find_scopes(db: Database, query: ScopeQuery) -> list[FoundScope]:
    """Find the scopes that match, by path, then by first line."""
    tail = _tail_key(query.name)
    conditions = join_conditions(
        (query.name, _NAMED),
        (query.project_ids, "project_id IN (SELECT value FROM json_each(:projects))"),
        (query.path, "path = :path"),
        (query.defined is not None, "defined = :defined"),
    )
    found = db.rows(
        f"""
        SELECT * FROM code_scopes WHERE {conditions}
        ORDER BY path, start_line, scope_id LIMIT :limit
        """,
        name=_name_key(query.name),
        tail=tail,
        parts=f"{tail}.",
        past_parts=f"{tail}/",  # the character after the dot
        projects=_family(db, query.project_ids),
        path=query.path,
        defined=bool(query.defined),
        limit=max(0, query.limit),
    )
    return [
        FoundScope(
            project_id=row["project_id"],
            path=row["path"],
            defined=bool(row["defined"]),
            scope=record(CodeScope, row),
        )
        for row in found
    ]


def put_file(db: Database, write: PutCodeFile) -> None:
    """Replace a file's scopes and imports; unchanged scopes are not written again."""
    file = msgspec.structs.replace(write.file, imports=tuple(dict.fromkeys(write.file.imports)))
    row = columns(file)
    db.put("code_files", row, "project_id, path")
    of = {"project_id": row["project_id"], "path": row["path"]}
    scopes = {
        clean(each.scope_id): columns(each)
        | of
        | {"place": place, "name_key": _name_key(each.name)}
        | {"tail_key": _tail_key(each.qualified_name), "defined": 1}
        for place, each in enumerate(write.file.scopes)
    }
    defined = (
        "SELECT * FROM code_scopes WHERE project_id = :project_id AND path = :path AND defined"
    )
    held = {each["scope_id"]: each for each in db.rows(defined, **of)}
    for scope_id, scope in scopes.items():
        if held.get(scope_id, {}) | scope != held.get(scope_id):
            db.put("code_scopes", scope, "scope_id")
    _undefine(db, (scope["scope"] for scope_id, scope in held.items() if scope_id not in scopes))


def drop_files(db: Database, write: DropCodeFiles) -> None:
    """Drop the scopes and imports of files that no longer exist."""
    for path in write.paths:
        of = {"id": write.project_id, "path": path}
        of_file = "project_id = :id AND path = :path"
        _undefine(db, db.column(f"SELECT scope FROM code_scopes WHERE {of_file} AND defined", **of))
        db.query(f"DELETE FROM code_files WHERE {of_file}", **of)


def _undefine(db: Database, scopes: Iterable[int]) -> None:
    """Mark scopes as no longer defined, and delete those that no turn refers to."""
    for scope in scopes:
        db.query("UPDATE code_scopes SET defined = 0 WHERE scope = :scope", scope=scope)
        _delete_unused(db, scope)


def _delete_unused(db: Database, scope: int) -> None:
    referring = "SELECT 1 FROM code_references AS r WHERE r.scope = code_scopes.scope"
    unused = f"scope = :scope AND NOT defined AND NOT EXISTS ({referring})"
    db.query(f"DELETE FROM code_scopes WHERE {unused}", scope=scope)


# --- turns ------------------------------------------------------------------------------


def put_references(db: Database, write: PutReferences) -> None:
    """Replace a turn's references to code."""
    turn_id = write.turn_id
    if db.get("SELECT 1 FROM turns WHERE turn_id = :id", id=turn_id) is None:
        return
    db.query(
        "UPDATE documents SET to_link = 0 WHERE to_link AND level = 0 AND record_id = :id",
        id=turn_id,
    )
    before = db.column(
        "DELETE FROM code_references WHERE turn_id = :id RETURNING scope", id=turn_id
    )
    for scope_id, how in strongest(write.references).items():
        db.query(
            "INSERT INTO code_references (turn_id, scope, how)"
            " SELECT :id, scope, :how FROM code_scopes WHERE scope_id = :scope_id",
            id=turn_id,
            how=how,
            scope_id=scope_id,
        )
    for scope in before:
        _delete_unused(db, scope)


def references_of(db: Database, ids: Sequence[str]) -> list[PutReferences]:
    """Return the references of these turns, of those that have any."""
    return store.references_of(
        db.tuples(
            """
            SELECT r.turn_id, s.scope_id, r.how
            FROM json_each(:ids) AS asked
            CROSS JOIN code_references AS r ON r.turn_id = asked.value
            CROSS JOIN code_scopes AS s ON s.scope = r.scope
            ORDER BY asked.key
            """,
            ids=list(dict.fromkeys(ids)),
        )
    )


def code_turns(db: Database, query: TurnsQuery) -> list[CodeTurn]:
    """Return the turns that refer to any of these, newest first."""
    found = db.rows(
        """
        WITH touched (turn_id, how, access_type) AS (
            SELECT r.turn_id, r.how, NULL
            FROM json_each(:scope_ids) AS asked
            CROSS JOIN code_scopes AS s ON s.scope_id = asked.value
            CROSS JOIN code_references AS r ON r.scope = s.scope
            UNION ALL
            SELECT c.turn_id, NULL, a.access_type
            FROM json_each(:paths) AS asked
            CROSS JOIN file_accesses AS a ON a.path = asked.value
            CROSS JOIN tool_calls AS c ON c.tool_call_id = a.tool_call_id
            CROSS JOIN turns AS t ON t.turn_id = c.turn_id
            CROSS JOIN sessions AS s ON s.session_id = t.session_id
            WHERE s.project_id IN (SELECT value FROM json_each(:projects))
        )
        SELECT t.turn_id, t.session_id, t.turn_index, t.started_at AS at,
            group_concat(DISTINCT how) AS hows, group_concat(DISTINCT access_type) AS accesses
        FROM touched CROSS JOIN turns AS t ON t.turn_id = touched.turn_id
        GROUP BY t.turn_id
        ORDER BY t.started_at DESC, t.turn_index DESC, t.turn_id DESC LIMIT :limit
        """,
        scope_ids=query.scope_ids,
        paths=query.paths,
        projects=_family(db, query.project_ids),
        limit=max(0, query.limit),
    )
    return [_code_turn(row) for row in found]


def _code_turn(row: Row) -> CodeTurn:
    hows, accesses = ((row[name] or "").split(",") for name in ("hows", "accesses"))
    row["hows"] = [how for how in REFERENCE_HOWS if how in hows]
    row["accesses"] = sorted(filter(None, accesses))
    return msgspec.convert(row, CodeTurn)


def changed_with(
    db: Database, project_ids: Sequence[str], path: str, *, limit: int = 20
) -> list[ChangedTogether]:
    """Return other files written to in the turns that wrote to this one."""
    return db.records(
        ChangedTogether,
        f"""
        WITH wrote (turn_id) AS (
            SELECT DISTINCT c.turn_id FROM file_accesses AS a
            CROSS JOIN tool_calls AS c ON c.tool_call_id = a.tool_call_id
            CROSS JOIN turns AS t ON t.turn_id = c.turn_id
            CROSS JOIN sessions AS s ON s.session_id = t.session_id
            WHERE a.path = :path AND a.access_type = 'write'
            AND s.project_id IN (SELECT value FROM json_each(:projects))
        ),
        written (turn_id, path) AS (
            SELECT DISTINCT c.turn_id, a.path FROM wrote
            CROSS JOIN tool_calls AS c ON c.turn_id = wrote.turn_id
            CROSS JOIN file_accesses AS a ON a.tool_call_id = c.tool_call_id
            WHERE a.access_type = 'write'
        ),
        telling (turn_id) AS (
            SELECT turn_id FROM written GROUP BY turn_id HAVING count(*) <= {MOST_CHANGED}
        )
        SELECT w.path, count(*) AS turn_count, count(DISTINCT t.session_id) AS session_count,
            max(t.started_at) AS last_at
        FROM written AS w CROSS JOIN turns AS t ON t.turn_id = w.turn_id
        WHERE w.path <> :path AND w.turn_id IN telling
        GROUP BY w.path
        ORDER BY turn_count DESC, last_at DESC, w.path LIMIT :limit
        """,
        path=path,
        projects=_family(db, project_ids),
        limit=max(0, limit),
    )


def split_off(db: Database, project_id: str) -> None:
    """Unlink the code of a project that was split off from that of the others.

    Turns of the project may refer to its own code only, other turns not to it. A turn with a
    reference across loses all of its references, and is pending for linking again.
    """
    crossing = """
        WITH own_turns (turn_id) AS (
            SELECT turn_id FROM sessions AS s CROSS JOIN turns AS t USING (session_id)
            WHERE s.project_id = :id
        ),
        own_scopes (scope) AS (SELECT scope FROM code_scopes WHERE project_id = :id)
        SELECT DISTINCT turn_id FROM code_references
        WHERE (turn_id IN own_turns) <> (scope IN own_scopes)
            AND (turn_id IN own_turns OR scope IN own_scopes)
    """
    gone: set[int] = set()
    for turn_id in db.column(crossing, id=project_id):
        forgotten = "DELETE FROM code_references WHERE turn_id = :id RETURNING scope"
        gone.update(db.column(forgotten, id=turn_id))
        due = "UPDATE documents SET to_link = 1 WHERE level = 0 AND record_id = :id"
        db.query(due, id=turn_id)
    for scope in gone:
        _delete_unused(db, scope)


def forget_session(db: Database, session_id: str) -> None:
    """Delete the references of a session's turns, and scopes that only those had kept."""
    gone = db.column(
        "DELETE FROM code_references"
        " WHERE turn_id IN (SELECT turn_id FROM turns WHERE session_id = :id) RETURNING scope",
        id=session_id,
    )
    failpoint("sqlite.delete")
    for scope in set(gone):
        _delete_unused(db, scope)

"""Code and what turns have to do with it: the queries."""

from collections.abc import Sequence

import apsw
import msgspec

from ragmem.records import (
    REFERENCE_HOWS,
    CodeFile,
    CodeReference,
    CodeScope,
    PutReferences,
)
from ragmem.store.code import (
    MOST_CHANGED,
    ChangedTogether,
    CodeTurn,
    FoundScope,
    ScopeQuery,
    TurnsQuery,
)
from ragmem.store.sqlite.rows import Row, record, rows, value
from ragmem.text import clean


def name_key(name: str) -> str:
    """What a scope is found by: upper and lower case are alike."""
    return clean(name).casefold()


def tail_key(qualified_name: str) -> str:
    """A qualified name backwards: that its last parts are these is then a range of an index."""
    return name_key(qualified_name)[::-1]


def family(connection: apsw.Connection, project_ids: Sequence[str]) -> tuple[str, ...]:
    """These projects, what they were joined to, and all that was joined to that."""
    found = connection.execute(
        """
        WITH roots (project_id) AS (
            SELECT DISTINCT coalesce(p.joined_into, asked.value)
            FROM json_each(?) AS asked LEFT JOIN projects AS p ON p.project_id = asked.value
        )
        SELECT project_id FROM roots
        UNION SELECT p.project_id FROM projects AS p JOIN roots ON p.joined_into = roots.project_id
        """,
        (value(tuple(project_ids)),),
    )
    return tuple(str(each) for (each,) in found)


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
"""One step in the index for each, however many files it has."""


def code_projects(connection: apsw.Connection) -> list[str]:
    """Every project with a file."""
    return [str(each) for (each,) in connection.execute(_PROJECTS)]


def numbers_with_code(connection: apsw.Connection) -> list[int]:
    """The text index's numbers of projects with a file, and of those joined with such a one."""
    found = connection.execute(
        f"""
        WITH with_code (root) AS (
            SELECT coalesce(p.joined_into, c.project_id)
            FROM ({_PROJECTS}) AS c LEFT JOIN projects AS p USING (project_id)
        )
        SELECT n.number FROM project_numbers AS n LEFT JOIN projects AS p USING (project_id)
        WHERE coalesce(p.joined_into, n.project_id) IN with_code
        """
    )
    return [int(str(number)) for (number,) in found]


def code_files(
    connection: apsw.Connection, project_id: str, paths: Sequence[str] = ()
) -> list[CodeFile]:
    """The files of a folder, each with its scopes."""
    which = "project_id = :id"
    if paths:
        which += " AND path IN (SELECT value FROM json_each(:paths))"
    asked = {"id": project_id, "paths": tuple(paths)}
    scopes: dict[str, list[CodeScope]] = {}
    for row in rows(
        connection,
        f"SELECT * FROM code_scopes WHERE {which} AND defined ORDER BY path, start_line, place",
        asked,
    ):
        scopes.setdefault(str(row["path"]), []).append(record(CodeScope, row))
    return [
        msgspec.structs.replace(
            record(CodeFile, row), scopes=tuple(scopes.get(str(row["path"]), ()))
        )
        for row in rows(connection, f"SELECT * FROM code_files WHERE {which} ORDER BY path", asked)
    ]


_CALLED_SO = """
    scope IN (
        SELECT scope FROM code_scopes WHERE name_key = :name
        UNION SELECT scope FROM code_scopes WHERE tail_key = :tail
        UNION SELECT scope FROM code_scopes WHERE tail_key >= :parts AND tail_key < :past_parts
    )
"""


def find_scopes(connection: apsw.Connection, query: ScopeQuery) -> list[FoundScope]:
    """Those that match, by path, then by first line."""
    tail = tail_key(query.name)
    conditions = [
        condition
        for given, condition in (
            (query.name, _CALLED_SO),
            (query.project_ids, "project_id IN (SELECT value FROM json_each(:projects))"),
            (query.path, "path = :path"),
            (query.defined is not None, "defined = :defined"),
        )
        if given
    ]
    found = rows(
        connection,
        f"""
        SELECT * FROM code_scopes WHERE {" AND ".join(conditions) or "TRUE"}
        ORDER BY path, start_line, scope_id LIMIT :limit
        """,
        {
            "name": name_key(query.name),
            "tail": tail,
            "parts": f"{tail}.",
            "past_parts": f"{tail}/",  # what comes right after the dot
            "projects": family(connection, query.project_ids),
            "path": query.path,
            "defined": bool(query.defined),
            "limit": max(0, query.limit),
        },
    )
    return [_found(row) for row in found]


def _found(row: Row) -> FoundScope:
    return FoundScope(
        project_id=str(row["project_id"]),
        path=str(row["path"]),
        defined=bool(row["defined"]),
        scope=record(CodeScope, row),
    )


# --- turns ------------------------------------------------------------------------------


def references_of(connection: apsw.Connection, turn_ids: Sequence[str]) -> list[PutReferences]:
    """What these turns have to do with code, of those that have something."""
    found: dict[str, list[CodeReference]] = {}
    for row in rows(
        connection,
        """
        SELECT r.turn_id, s.scope_id, r.how
        FROM json_each(:ids) AS asked
        CROSS JOIN code_references AS r ON r.turn_id = asked.value
        CROSS JOIN code_scopes AS s ON s.scope = r.scope
        ORDER BY asked.key, s.scope_id
        """,
        {"ids": tuple(dict.fromkeys(turn_ids))},
    ):
        found.setdefault(str(row["turn_id"]), []).append(record(CodeReference, row))
    return [
        PutReferences(turn_id=turn_id, references=tuple(sorted(held, key=_strongest_first)))
        for turn_id, held in found.items()
    ]


def _strongest_first(reference: CodeReference) -> int:
    return REFERENCE_HOWS.index(reference.how)


def code_turns(connection: apsw.Connection, query: TurnsQuery) -> list[CodeTurn]:
    """Turns that have to do with any of these, newest first."""
    found = rows(
        connection,
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
        {
            "scope_ids": query.scope_ids,
            "paths": query.paths,
            "projects": family(connection, query.project_ids),
            "limit": max(0, query.limit),
        },
    )
    return [
        msgspec.convert(
            row
            | {
                "hows": [how for how in REFERENCE_HOWS if how in _listed(row["hows"])],
                "accesses": sorted(_listed(row["accesses"])),
            },
            CodeTurn,
        )
        for row in found
    ]


def _listed(joined: object) -> list[str]:
    return joined.split(",") if isinstance(joined, str) else []


def changed_with(
    connection: apsw.Connection, project_ids: Sequence[str], path: str, limit: int
) -> list[ChangedTogether]:
    """Files that were written to in the turns that wrote to this one."""
    found = rows(
        connection,
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
        {"path": path, "projects": family(connection, project_ids), "limit": max(0, limit)},
    )
    return [record(ChangedTogether, row) for row in found]

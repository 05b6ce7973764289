"""Projects that are made known, joined, and split again.

To join is to give the sessions another project. What is in the text index stays under the number of
the project that it was written under, and memories keep the id of theirs: who asks for a project
asks for all that were joined to it. To split puts under the folder's own project what was written
since under that of all of them.
"""

from collections.abc import Mapping, Sequence

from ragmem.failpoints import failpoint
from ragmem.records import RegisterProject, Write
from ragmem.store.sqlite import code, text_index, vectors
from ragmem.store.sqlite.connection import Database, columns
from ragmem.store.sqlite.text_index import Prepared

_OWN = """
    project_id = :root AND (
        coalesce(project_path, cwd) = (SELECT path FROM projects WHERE project_id = :id)
        OR session_id IN (
            SELECT session_id FROM documents
            WHERE number = (SELECT number FROM project_numbers WHERE project_id = :id)
        )
    )
"""
"""Sessions that a project takes along from the one that it was joined to."""


def root_of(db: Database, project_id: str | None) -> str | None:
    """The project that one was joined to, else itself; None for none."""
    return _joined_into(db, project_id) or project_id


def known(db: Database, project_id: str | None) -> str | None:
    """The project's own id; None for one that is not here."""
    found: str | None = db.get(
        "SELECT project_id FROM projects WHERE project_id = :id", id=project_id
    )
    return found


def prepare(db: Database, writes: Sequence[Write]) -> dict[str, Prepared]:
    """The words of what these split off, by the record's id: computed while no lock is held."""
    ready: dict[str, Prepared] = {}
    for write in writes:
        if not isinstance(write, RegisterProject) or not write.chosen:
            continue
        row = columns(write.project)
        held = _joined_into(db, row["project_id"])
        if row["joined_into"] == row["project_id"] and held is not None:
            sessions = f"SELECT session_id FROM sessions WHERE {_OWN}"
            ids = db.column(sessions, id=row["project_id"], root=held)
            ready |= text_index.prepare_move(db, ids)
    return ready


def register_project(db: Database, write: RegisterProject, ready: Mapping[str, Prepared]) -> None:
    """Make a folder known as a project; join it, or split it off."""
    row = columns(write.project)
    into = row.pop("joined_into")
    db.put("projects", row, "project_id", keep=("created_at",))
    if into is None:
        return
    project_id: str = row["project_id"]
    held = _joined_into(db, project_id)
    if into == project_id:
        if held is None or write.chosen:
            db.query("UPDATE projects SET joined_into = :id WHERE project_id = :id", id=project_id)
            if held not in (None, project_id):
                _split(db, project_id, held, ready)
        return
    into = root_of(db, into)
    # Not to itself, and not once more: the ones that it was joined with would part.
    is_free = held is None or (write.chosen and held == project_id)
    if project_id == into or not is_free:
        return
    for table, column, condition in (
        ("projects", "joined_into", "project_id = :id OR joined_into = :id"),
        ("sessions", "project_id", "project_id = :id"),
    ):
        moved = f"UPDATE {table} SET {column} = :into WHERE {condition}"
        db.query(moved, id=project_id, into=into)


def _joined_into(db: Database, project_id: str | None) -> str | None:
    of = "SELECT joined_into FROM projects WHERE project_id = :id"
    into: str | None = db.get(of, id=project_id)
    return into


def _split(db: Database, project_id: str, root: str, ready: Mapping[str, Prepared]) -> None:
    """Give a project what is its own of that which it was joined to."""
    moved = db.column(
        f"UPDATE sessions SET project_id = :id WHERE {_OWN} RETURNING session_id",
        id=project_id,
        root=root,
    )
    for session_id in moved:
        failpoint("sqlite.split")
        text_index.move_session(db, session_id, ready)
    db.query(
        """
        UPDATE memories SET project_id = :id WHERE project_id = :root AND memory_id IN (
            SELECT memory_id FROM evidence AS e LEFT JOIN sessions AS s USING (session_id)
            GROUP BY memory_id HAVING min(coalesce(s.project_id, '') = :id)
        )
        """,
        id=project_id,
        root=root,
    )
    _part_memories(db, project_id)
    code.part(db, project_id)


def _part_memories(db: Database, project_id: str) -> None:
    """Let no memory of the project stand in for one of another, nor the other way."""
    parted = """
        SELECT old.memory_id, old.project_id = :id FROM memories AS old JOIN memories AS m
            ON m.memory_id = old.superseded_by
        WHERE (old.project_id = :id) <> (m.project_id = :id)
    """
    successor = """
        WITH RECURSIVE after (memory_id, superseded_by, project_id, step) AS (
            SELECT memory_id, superseded_by, project_id, 0 FROM memories WHERE memory_id = :id
            UNION ALL
            SELECT m.memory_id, m.superseded_by, m.project_id, step + 1
            FROM after JOIN memories AS m ON m.memory_id = after.superseded_by WHERE step < 1000
        )
        SELECT memory_id FROM after
        WHERE step > 0 AND coalesce(project_id = :project, :own) = :own ORDER BY step LIMIT 1
    """
    for memory_id, own in db.tuples(parted, id=project_id):
        by = db.get(successor, id=memory_id, project=project_id, own=own)
        db.query(
            "UPDATE memories SET superseded_by = :by,"
            " valid_until = iif(:by IS NULL, NULL, valid_until) WHERE memory_id = :id",
            by=by if by != memory_id else None,
            id=memory_id,
        )
        vectors.mark_memory(db, memory_id)

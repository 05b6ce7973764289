"""Integrity checks, daily copies, and rebuilding a damaged database.

A rebuilt database has the rows that SQLite can still read, without those on damaged pages, and what
a backup has of the rest. It keeps every guarantee: turns are renumbered where some are lost, and a
session that is lost is recreated for the turns that are left of it. The copies lie beside those of
`ragmem store backup`, under names of their own. A deletion removes all copies, since they have what
was deleted.
"""

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import apsw
import msgspec

from ragmem.errors import StoreDamaged, StoreRefused
from ragmem.failpoints import failpoint
from ragmem.files import OwnerLocks, lock, sync_folder
from ragmem.records import Finding
from ragmem.store import AHEAD
from ragmem.store.sqlite import documents, schema
from ragmem.store.sqlite.connection import Access, Database, Row, record
from ragmem.store.sqlite.documents import words_of
from ragmem.store.sqlite.read import TABLES, summaries_by_id, turns_by_id

WORDS = "what was said is found by its words"
_SHOWN = 3
_SAMPLE = 2000
"""Number of turns and of summaries whose words are checked, evenly spread over all of them."""


def check(db: Database) -> list[Finding]:
    """Find what is broken; if the file itself is damaged, only that."""
    # FTS5 checks its index by the list of segments that it read last. Without a read first, it
    # reports segments that another connection has merged since as missing.
    db.column("SELECT count(*) FROM text_terms WHERE term = ''")
    said = db.column("PRAGMA integrity_check(10)")
    if said != ["ok"]:
        return [Finding("the file is whole", str(line)) for line in said]
    found = {promise: db.column(query) for promise, query in PROMISES.items()}
    found[WORDS] = _wrong_words(db)
    return [
        Finding(promise, ", ".join(map(str, broken[:_SHOWN])), len(broken))
        for promise, broken in found.items()
        if broken
    ]


def _wrong_words(db: Database) -> list[str]:
    """Return records whose words in the text index differ from their text, of a sample."""
    broken = []
    for table, key in (("turns", "turn_id"), ("summaries", "summary_id")):
        sample = f"""
            SELECT {key}, digest FROM (
                SELECT {key}, row_number() OVER (ORDER BY rowid) AS place FROM {table}
            ) JOIN documents ON record_id = {key} WHERE place % :each = 0
        """
        count = db.get(f"SELECT count(*) FROM {table}")
        for record_id, digest in db.tuples(sample, each=-(-count // _SAMPLE) or 1):
            try:
                [found] = (turns_by_id if table == "turns" else summaries_by_id)(db, [record_id])
                if words_of(found).digest != digest:
                    broken.append(record_id)
            except msgspec.ValidationError:
                broken.append(record_id)
    return broken


# Each query returns the ids of what breaks the guarantee.
PROMISES = {
    "what is referred to exists": 'SELECT "table" FROM pragma_foreign_key_check',
    "turns are counted from 1 without gaps": """
        SELECT s.session_id FROM sessions AS s LEFT JOIN turns AS t USING (session_id)
        GROUP BY s.session_id
        HAVING count(t.turn_id) <> s.turn_count - coalesce(s.forked_at_index, 0)
        OR coalesce(max(t.turn_index), s.turn_count) <> s.turn_count
        OR coalesce(min(t.turn_index), coalesce(s.forked_at_index, 0) + 1)
            <> coalesce(s.forked_at_index, 0) + 1
        """,
    "completed turns are counted": """
        SELECT s.session_id FROM sessions AS s LEFT JOIN turns AS t USING (session_id)
        GROUP BY s.session_id
        HAVING count(t.turn_id) FILTER (WHERE t.status = 'completed') <> s.completed_count
        """,
    "a fork shares turns that exist": """
        SELECT s.session_id FROM sessions AS s JOIN sessions AS p
        ON p.session_id = s.parent_session_id WHERE s.forked_at_index > p.turn_count
        """,
    "a turn that has ended says when": (
        "SELECT turn_id FROM turns WHERE status <> 'running' AND finished_at IS NULL"
    ),
    "a turn that runs has not ended": (
        "SELECT turn_id FROM turns WHERE status = 'running' AND finished_at IS NOT NULL"
    ),
    "characters of turns are counted": (
        "SELECT turn_id FROM turns"
        " WHERE char_count <> length(user_message) + length(assistant_message)"
    ),
    "a summary says what it digests": """
        SELECT summary_id FROM summaries AS s WHERE NOT EXISTS (
            SELECT 1 FROM summarized_turns AS l WHERE l.summary_id = s.summary_id AND s.level = 1
        ) AND NOT EXISTS (
            SELECT 1 FROM summarized_summaries AS l
            WHERE l.summary_id = s.summary_id AND s.level > 1
        )
        """,
    "what has ended can be found": """
        SELECT turn_id FROM turns WHERE status <> 'running'
        AND turn_id NOT IN (SELECT record_id FROM documents WHERE level = 0)
        UNION ALL SELECT summary_id FROM summaries
        WHERE summary_id NOT IN (SELECT record_id FROM documents WHERE level > 0)
        UNION ALL SELECT record_id FROM documents
        WHERE document NOT IN (SELECT id FROM texts_docsize)
        """,
    "what is found is there": """
        SELECT record_id FROM documents WHERE level = 0
        AND record_id NOT IN (SELECT turn_id FROM turns WHERE status <> 'running')
        UNION ALL SELECT record_id FROM documents WHERE level > 0
        AND record_id NOT IN (SELECT summary_id FROM summaries)
        UNION ALL SELECT id FROM texts_docsize
        WHERE id NOT IN (SELECT document FROM documents)
        """,
    "what can be found is counted": """
        SELECT project_id FROM project_numbers LEFT JOIN documents AS d USING (number)
        GROUP BY number HAVING count(d.document) <> document_count
        OR coalesce(sum(d.term_count), 0) <> project_numbers.term_count
        """,
    "vectors are of what is complete": """
        SELECT place FROM vectors WHERE document NOT IN (
            SELECT document FROM documents WHERE level > 0
            OR record_id IN (SELECT turn_id FROM turns WHERE status = 'completed')
        )
        UNION ALL SELECT record_id FROM small_vectors WHERE NOT (
            (level = -1 AND record_id IN (SELECT memory_id FROM memories))
            OR (level = -2 AND record_id IN (SELECT session_id FROM sessions WHERE summary <> ''))
        )
        """,
    "what is to be done is marked": f"""
        SELECT record_id FROM documents LEFT JOIN turns ON turn_id = record_id
        WHERE to_embed <> (
            (level > 0 OR turns.status = 'completed')
            AND document NOT IN (SELECT document FROM vectors)
        )
        OR to_summarize <> (
            level = 0 AND turns.status = 'completed' AND {documents.TO_SUMMARIZE}
        )
        OR to_roll_up <> (level > 0 AND {documents.TO_ROLL_UP})
        OR ((to_extract OR to_link) AND (level > 0 OR turns.status <> 'completed'))
        UNION ALL SELECT memory_id FROM memories WHERE to_embed <> {documents.MEMORY_TO_EMBED}
        UNION ALL SELECT session_id FROM sessions
        WHERE to_embed <> {documents.SESSION_TO_EMBED}
        """,
    "a scope is defined by a file that is known": """
        SELECT scope_id FROM code_scopes AS s WHERE defined AND NOT EXISTS (
            SELECT 1 FROM code_files AS f WHERE f.project_id = s.project_id AND f.path = s.path
        )
        """,
    "a scope is defined or referred to": """
        SELECT scope_id FROM code_scopes AS s WHERE NOT defined
        AND NOT EXISTS (SELECT 1 FROM code_references AS r WHERE r.scope = s.scope)
        """,
}


# --- rebuilding a damaged database ------------------------------------------------------


_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
_UNREADABLE = (apsw.Error, UnicodeDecodeError)
_LAST_ROW = 1 << 40
_TIMEOUT_S = 60.0
_RECORDS = {table: kind for kind, (table, _) in TABLES.items()}
"""A row of these tables that can't be decoded as its record counts as lost."""
_OTHER_COLUMNS = {"covers": "[]"}
_NOT_COPIED = frozenset((
    "migrations", "identity", "attempts", "leases", "owners", "documents", "vectors",
    "small_vectors", "project_numbers", "recall_state",
))  # fmt: skip
"""State of running processes, and what is derived from the rest or refers to that."""
_OF_TURNS = frozenset(("turns", "tool_calls", "file_accesses"))
_COMPLETED = "record_id IN (SELECT turn_id FROM turns WHERE status = 'completed')"


class DamagedDatabase:
    """A copy of a database and its log, read row by row; `lost` counts the unreadable places."""

    gave = 0
    """How many rows were taken from it."""

    def __init__(self, database: Path, folder: Path) -> None:
        """Copy the database into the directory; StoreDamaged if SQLite can't read any of it."""
        copy = folder / f"read-{database.name}"
        schema.copy_files(database, copy)
        self.lost = 0
        self.connection = Database(str(copy), _FLAGS, Access(OwnerLocks(folder)))
        try:
            self.connection.execute("PRAGMA writable_schema = ON")
            self.connection.execute("SELECT 1 FROM sessions LIMIT 0").fetchall()
        except apsw.Error:
            self.connection.close()
            raise StoreDamaged(
                f"Nothing of {database} can be read. It was left as it is.",
                hint=f"Move {database}* away, then run `ragmem store migrate --from FILE` with a "
                "backup.",
            ) from None

    def store_id(self) -> str:
        """Return the database's own id; empty if it can't be read."""
        with suppress(*_UNREADABLE):
            return schema.store_id(self.connection)
        return ""

    def refuse_while_used(self, locks_dir: Path) -> None:
        """Raise StoreRefused while a process works in a session: its writes would be lost."""
        owners: list[str] = []
        with suppress(*_UNREADABLE):
            owners = self.connection.column("SELECT owner_id FROM owners")
        if any(map(OwnerLocks(locks_dir).lives, owners)):
            raise StoreRefused(
                "The memory can't be repaired while a process is using one of its sessions.",
                hint="Close the chats that use it, and run this again.",
            )

    def rows(self, table: str, key: Sequence[str]) -> Iterator[Row]:
        """Yield the readable rows of a table; `key` is its primary key if it has no rowids."""
        try:
            self.connection.execute(f'SELECT * FROM "{table}" LIMIT 0').fetchall()
        except apsw.Error:
            return  # An older database lacks the table.
        kind = _RECORDS.get(table)
        for row in self._from_both_ends(table, key) if key else self._by_number(table):
            row.pop("row_number", None)
            try:
                if kind is not None:
                    record(kind, row | _OTHER_COLUMNS)
            except (msgspec.MsgspecError, ValueError):
                self.lost += 1
            else:
                yield row

    def copy_into(self, target: Database, tables: Collection[str]) -> set[str]:
        """Write the readable rows of these tables for whose keys the target has none yet.

        Returns the tables that have unreadable places.
        """
        incomplete = set()
        for table, key in _tables(target):
            if table not in tables:
                continue
            before = self.lost
            described = target.tuples(f'PRAGMA table_info("{table}")')
            columns = {name for _, name, *_ in described}
            # For a required column without a default that an older database lacks.
            empty: Row = {
                name: ""
                for _, name, kind, is_needed, default, _ in described
                if kind == "TEXT" and is_needed and default is None
            }
            for row in self.rows(table, key):
                given = empty | {name: held for name, held in row.items() if name in columns}
                names = ", ".join(f'"{name}"' for name in given)
                values = ", ".join(f":{name}" for name in given)
                put = f'INSERT OR IGNORE INTO "{table}" ({names}) VALUES ({values})'
                try:
                    target.execute(put, given)
                    self.gave += target.changes()
                except (apsw.ConstraintError, apsw.MismatchError):
                    self.lost += 1
            if self.lost > before:
                incomplete.add(table)
        return incomplete

    def _by_number(self, table: str) -> Iterator[Row]:
        """Yield the rows by rowid; unreadable ones are skipped in steps that grow by a quarter."""
        last = step = 0
        while step < _LAST_ROW:
            try:
                for row in self.connection.rows(
                    f'SELECT rowid AS row_number, * FROM "{table}" NOT INDEXED'
                    " WHERE rowid > :last ORDER BY rowid",
                    last=last + step,
                ):
                    # On damaged pages rowids may not ascend, and reading would never end.
                    if row["row_number"] <= last:
                        raise apsw.CorruptError("row out of order")
                    last, step = row["row_number"], 0
                    yield row
                return
            except _UNREADABLE:
                self.lost += not step
                step += step // 4 + 1

    def _from_both_ends(self, table: str, key: Sequence[str]) -> Iterator[Row]:
        """Yield the rows up to the first unreadable one, and from the end back to the last such."""
        for direction in ("", " DESC"):
            by = ", ".join(f'"{column}"{direction}' for column in key)
            try:
                yield from self.connection.rows(f'SELECT * FROM "{table}" ORDER BY {by}')
                return
            except _UNREADABLE:
                self.lost += not direction


class LostTurns(msgspec.Struct, frozen=True):
    """A session with fewer turns than it should have."""

    session_id: str
    title: str
    lost: int
    had: int


class RowSource(Protocol):
    """What is left of a memory; `lost` counts what can't be read."""

    lost: int

    def store_id(self) -> str: ...

    def rows(self, table: str, key: Sequence[str], /) -> Iterator[Row]: ...

    def copy_into(self, target: Database, tables: Collection[str], /) -> set[str]: ...


def rebuild(
    sources: Sequence[RowSource],
    new: Path,
    locks_dir: Path,
    *,
    owner: str,
    store_id: str = "",
) -> list[LostTurns]:
    """Write a new database that keeps every guarantee, from what the sources hold.

    Returns the sessions that have lost turns, as far as known. Of a record in several sources the
    first one's is taken. A later source fills gaps only: it has what was removed since as well.
    `owner` and `store_id` are used where the sources have none.
    """
    access = Access(OwnerLocks(locks_dir), owner)
    db = schema.open_for_writing(new, access, locks_dir=locks_dir, timeout_s=_TIMEOUT_S)
    try:
        db.pragma("foreign_keys", False)
        with db:
            gaps = {table for table, _ in _tables(db)}
            for source in sources:
                gaps = source.copy_into(db, gaps)
                gaps |= set(db.column("SELECT DISTINCT parent FROM pragma_foreign_key_check"))
                gaps |= _OF_TURNS if _lost_turns(db) else set()
            lost_turns = _lost_turns(db)
            _recreate_parents(db)
            _renumber(db)
            _remove_orphans(db)
            _recount(db)
            _index_all(sources, db)
            schema.assign_owner(db, owner)
            its_ids = (*(source.store_id() for source in sources), store_id)
            if its_id := next(filter(None, its_ids), ""):
                schema.identify(db, its_id)
        return lost_turns
    finally:
        db.close()


def _tables(db: Database) -> list[tuple[str, list[str]]]:
    """Return tables to copy, each after those it refers to; with a key if it has no rowids."""
    found = db.tuples(
        """
        SELECT l.name, l.wr FROM pragma_table_list AS l JOIN sqlite_schema AS s USING (name)
        WHERE l.schema = 'main' AND l.type = 'table' AND s.name NOT LIKE 'sqlite_%'
        ORDER BY s.rowid
        """
    )
    return [
        (name, _key(db, name) if has_no_numbers else [])
        for name, has_no_numbers in found
        if name not in _NOT_COPIED
    ]


def _key(db: Database, table: str) -> list[str]:
    return db.column("SELECT name FROM pragma_table_info(:name) WHERE pk ORDER BY pk", name=table)


def _lost_turns(db: Database) -> list[LostTurns]:
    """Return sessions with lost turns, the most recently used first."""
    found = db.tuples(
        """
        SELECT session_id, title, had - count(turn_id), had FROM (
            SELECT *, turn_count - coalesce(forked_at_index, 0) AS had FROM sessions
        ) LEFT JOIN turns USING (session_id)
        GROUP BY session_id HAVING count(turn_id) < had ORDER BY last_activity_at DESC
        """
    )
    return [LostTurns(*row) for row in found]


def _recreate_parents(db: Database) -> None:
    """Recreate lost sessions of turns, projects of sessions, and files of scopes."""
    db.execute(
        """
        INSERT INTO sessions (
            session_id, cwd, project_id, title, title_key, tags, status, started_at, updated_at,
            last_activity_at, turn_count
        )
        SELECT session_id, '/', 'salvaged', 'Salvaged session', 'salvaged session', '[]', 'active',
            min(started_at), min(started_at), min(started_at), 0
        FROM turns WHERE session_id NOT IN (SELECT session_id FROM sessions) GROUP BY session_id;
        INSERT INTO projects (project_id, path, created_at)
        SELECT project_id, project_path, min(started_at) FROM sessions
        WHERE project_path <> '' AND project_id NOT IN (SELECT project_id FROM projects)
        GROUP BY project_id;
        INSERT INTO code_files (project_id, path, language, hash, imports)
        SELECT DISTINCT project_id, path, '', '', '[]' FROM code_scopes AS s
        WHERE defined AND NOT EXISTS (
            SELECT 1 FROM code_files AS f WHERE f.project_id = s.project_id AND f.path = s.path
        );
        UPDATE sessions SET parent_session_id = NULL, forked_at_index = NULL
        WHERE parent_session_id NOT IN (SELECT session_id FROM sessions)
        """
    )


def _renumber(db: Database) -> None:
    """Number turns without gaps, and cut forks to the turns of their ancestors that are left."""
    # Negative at first, so that no two turns of a session ever have the same index.
    db.execute(
        """
        UPDATE sessions SET forked_at_index = shared.count FROM (
            WITH RECURSIVE line (fork, ancestor, at) AS (
                SELECT session_id, parent_session_id, coalesce(forked_at_index, 0) FROM sessions
                UNION SELECT fork, s.parent_session_id, min(at, coalesce(s.forked_at_index, 0))
                FROM line JOIN sessions AS s ON s.session_id = ancestor
            )
            SELECT fork, count(turn_id) AS count FROM line
            LEFT JOIN turns ON session_id = ancestor AND turn_index <= at GROUP BY fork
        ) AS shared WHERE fork = session_id AND parent_session_id IS NOT NULL;
        UPDATE turns SET turn_index = -counted.place FROM (
            SELECT turn_id, coalesce(forked_at_index, 0)
                + row_number() OVER (PARTITION BY session_id ORDER BY turn_index) AS place
            FROM turns JOIN sessions USING (session_id)
        ) AS counted WHERE counted.turn_id = turns.turn_id;
        UPDATE turns SET turn_index = -turn_index
        """
    )


def _remove_orphans(db: Database) -> None:
    """Delete rows that refer to something lost, and summaries that cover nothing any more."""
    left = -1
    while left != (left := db.total_changes()):
        for table, _ in _tables(db):
            keys = db.tuples(f'PRAGMA foreign_key_list("{table}")')
            for _, _, parent, column, to, *_ in keys:
                [key] = [to] if to else _key(db, parent)
                db.execute(
                    f'DELETE FROM "{table}" WHERE "{column}" NOT IN'
                    f' (SELECT "{key}" FROM "{parent}")'
                )
        db.execute(
            """
            DELETE FROM summaries WHERE summary_id NOT IN (
                SELECT summary_id FROM summarized_turns
                UNION ALL SELECT summary_id FROM summarized_summaries
            );
            DELETE FROM code_scopes WHERE NOT defined
            AND scope NOT IN (SELECT scope FROM code_references)
            """
        )


def _recount(db: Database) -> None:
    """Recompute counters and the columns derived from other rows."""
    db.execute(
        f"""
        UPDATE turns SET char_count = length(user_message) + length(assistant_message),
            finished_at = CASE WHEN status <> 'running' THEN coalesce(finished_at, started_at) END;
        UPDATE sessions SET
            turn_count = coalesce(forked_at_index, 0) + (
                SELECT count(*) FROM turns AS t WHERE t.session_id = sessions.session_id
            ),
            completed_count = (
                SELECT count(*) FROM turns AS t
                WHERE t.session_id = sessions.session_id AND status = 'completed'
            );
        UPDATE sessions SET to_embed = {documents.SESSION_TO_EMBED};
        UPDATE memories SET to_embed = {documents.MEMORY_TO_EMBED}
        """
    )


def _index_all(sources: Sequence[RowSource], db: Database) -> None:
    """Build the text index; vectors are pending again."""
    db.execute("UPDATE recall_state SET terms_version = 0")
    documents.build(db)
    db.execute(f"UPDATE documents SET to_link = 1 WHERE {_COMPLETED}")
    for source in reversed(sources):  # so that the first source's wins
        for row in source.rows("documents", ()):
            db.execute(
                "UPDATE documents SET to_extract = :to_extract, to_link = :to_link"
                f" WHERE record_id = :record_id AND {_COMPLETED}",
                {"to_extract": 0, "to_link": 1, **row},
            )


# --- daily copies -----------------------------------------------------------------------


_COPIES = 3
_INTERVAL = timedelta(days=1)
_FREE_FACTOR = 3
"""The free space must be this many times the size of the database."""
_WAIT_S = 5.0


def keep_copy(database: Path, locks_dir: Path, now: datetime) -> bool:
    """Make today's copy if it is due, and delete all but the newest three.

    Returns False if nothing has changed since the last one, there is no room for it, or something
    was deleted meanwhile that is in it. Raises OSError or what apsw raises if the database can't be
    read or the copy not written; a damaged database never replaces an older copy.
    """
    there = schema.daily_copies(database, now)
    if there and not _is_due(database, there[0], now):
        return False
    folder = database.parent / schema.BACKUPS
    folder.mkdir(mode=0o700, exist_ok=True)
    if shutil.disk_usage(folder).free < _FREE_FACTOR * schema.size_bytes(database):
        return False
    alone = lock(locks_dir / "backup.lock", timeout_s=_WAIT_S)
    part = schema.unfinished_copy(database)
    try:
        part.unlink(missing_ok=True)
        # SQLite accepts an empty file as a new database, and this one is private from the start.
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _checked_copy(database, part, locks_dir)
        try:
            # What is written while the copy is made has changed since.
            os.utime(part, (now.timestamp(), now.timestamp()))
            part.rename(schema.daily_copy(database, now))
        except FileNotFoundError:
            return False  # a deletion has removed it
        sync_folder(folder)
    finally:
        part.unlink(missing_ok=True)
        os.close(alone)
    for old in schema.daily_copies(database, now)[_COPIES:]:
        old.unlink(missing_ok=True)
    return True


def _is_due(database: Path, last: Path, now: datetime) -> bool:
    made = last.stat().st_mtime
    age_s = now.timestamp() - made
    if age_s < -AHEAD.total_seconds():
        return True  # made while the clock was wrong, at an unknown time
    changed = [
        path.stat().st_mtime
        for path in (database, database.with_name(f"{database.name}-wal"))
        if path.exists() and path.stat().st_size  # an empty log is no change
    ]
    return age_s >= _INTERVAL.total_seconds() and max(changed, default=0.0) > made


def _checked_copy(database: Path, to: Path, locks_dir: Path) -> None:
    db = schema.open_for_reading(database, Access(OwnerLocks(locks_dir)), timeout_s=_WAIT_S)
    try:
        said = db.get("PRAGMA quick_check(1)")
        if said != "ok":
            raise apsw.CorruptError(str(said))
        copy(db, to)
    finally:
        with suppress(apsw.Error):
            db.close()


def copy(db: Database, to: Path) -> None:
    """Write a copy of the database to a new file, over a reading connection."""
    # Writing to another file counts as writing.
    db.pragma("query_only", False)
    try:
        failpoint("sqlite.backup")
        db.query("VACUUM INTO :file", file=str(to))
        failpoint("sqlite.backed_up")
    finally:
        db.pragma("query_only", True)


def rewrite(db: Database) -> None:
    """Rewrite the file: where a page was split, its rest still holds what moved away.

    Raises an error of SQLite while another process reads the old pages, or if there is no room.
    """
    db.execute("VACUUM")
    failpoint("sqlite.checkpoint")
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

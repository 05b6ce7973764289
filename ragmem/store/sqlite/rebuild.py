"""A new database out of a damaged one: what SQLite still reads of it, then what a backup has.

Rows on damaged pages are stepped over. What is left is made whole again: turns are numbered
anew where some are lost, and a session of which only turns are left is made up for them.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import apsw
import msgspec

from ragmem.errors import StoreDamaged
from ragmem.locks import OwnerLocks
from ragmem.records import EmbedderMark, PutVectors
from ragmem.store.sqlite import schema, text_index, vectors
from ragmem.store.sqlite.connection import Access, Database, Row, record
from ragmem.store.sqlite.read import TABLES
from ragmem.vectors import unpacked

_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
_UNREADABLE = (apsw.Error, UnicodeDecodeError)
_LAST_ROW = 1 << 40
_TIMEOUT_S = 60.0
_RECORDS = {table: kind for kind, (table, _) in TABLES.items()}
"""A row of these tables that is no such record any more counts as lost."""
_KEPT_ELSEWHERE = {"covers": "[]"}
_MADE_ANEW = frozenset((
    "migrations", "identity", "attempts", "leases", "owners", "documents", "vectors",
    "project_numbers", "recall_state",
))  # fmt: skip
"""What processes hold for themselves, what follows from the rest, and what is filed by that."""
_COMPLETED = "record_id IN (SELECT turn_id FROM turns WHERE status = 'completed')"


class DamagedDatabase:
    """A database, with its log, of which a copy is read; `lost` counts places that can't be."""

    def __init__(self, database: Path, folder: Path) -> None:
        """Copy it into the folder; StoreDamaged where SQLite reads nothing of it."""
        copy = folder / f"read-{database.name}"
        for suffix in ("", "-wal"):
            source = database.with_name(database.name + suffix)
            if source.exists():
                shutil.copyfile(source, copy.with_name(copy.name + suffix))
        self.lost = 0
        self.connection = Database(str(copy), _FLAGS, Access(OwnerLocks(folder)))
        try:
            self.connection.execute("PRAGMA writable_schema = ON")
            self.connection.execute("SELECT 1 FROM sessions LIMIT 0").fetchall()
        except apsw.Error:
            self.connection.close()
            raise StoreDamaged(
                f"Nothing of {database} can be read. It was left as it is.",
                hint="Put a backup in its place.",
            ) from None

    def store_id(self) -> str:
        """What the database said of itself; empty where that can't be read."""
        with suppress(*_UNREADABLE):
            return schema.store_id(self.connection)
        return ""

    def mark(self) -> EmbedderMark | None:
        """Of which embedder its vectors are."""
        with suppress(apsw.Error):
            return vectors.embedder(self.connection)
        return None

    def rows(self, table: str, key: Sequence[str]) -> Iterator[Row]:
        """The rows of a table that can be read; `key`: of one that has no row numbers."""
        try:
            self.connection.execute(f'SELECT * FROM "{table}" LIMIT 0').fetchall()
        except apsw.Error:
            return  # An older database has none.
        kind = _RECORDS.get(table)
        for row in self._from_both_ends(table, key) if key else self._by_number(table):
            row.pop("row_number", None)
            try:
                if kind is not None:
                    record(kind, row | _KEPT_ELSEWHERE)
            except (msgspec.MsgspecError, ValueError):
                self.lost += 1
            else:
                yield row

    def _by_number(self, table: str) -> Iterator[Row]:
        """The rows by number; past what can't be read in steps that grow by a quarter."""
        last = step = 0
        while step < _LAST_ROW:
            try:
                for row in self.connection.rows(
                    f'SELECT rowid AS row_number, * FROM "{table}" NOT INDEXED'
                    " WHERE rowid > :last ORDER BY rowid",
                    last=last + step,
                ):
                    # On damaged pages numbers need not rise, and reading would never end.
                    if row["row_number"] <= last:
                        raise apsw.CorruptError("row out of order")
                    last, step = row["row_number"], 0
                    yield row
                return
            except _UNREADABLE:
                self.lost += not step
                step += step // 4 + 1

    def _from_both_ends(self, table: str, key: Sequence[str]) -> Iterator[Row]:
        """The rows up to the first that can't be read, and back to the last such from the end."""
        for direction in ("", " DESC"):
            by = ", ".join(f'"{column}"{direction}' for column in key)
            try:
                yield from self.connection.rows(f'SELECT * FROM "{table}" ORDER BY {by}')
                return
            except _UNREADABLE:
                self.lost += not direction


def rebuild(
    sources: Sequence[DamagedDatabase],
    new: Path,
    locks_dir: Path,
    *,
    owner: str,
    store_id: str = "",
) -> None:
    """Write a new database, whole by every promise, with what the sources hold.

    Of a record that several hold the first one's is taken. `owner`: whose it is where that was not
    kept; `store_id`: what the database is called where none of them says it.
    """
    access = Access(OwnerLocks(locks_dir), owner)
    db = schema.open_for_writing(new, access, locks_dir=locks_dir, timeout_s=_TIMEOUT_S)
    try:
        db.pragma("foreign_keys", False)
        with db:
            mark = next(filter(None, (source.mark() for source in sources)), None)
            for source in sources:
                _copy(source, db, mark)
            _make_up_what_is_referred_to(db)
            _renumber(db)
            _remove_orphans(db)
            _count(db)
            _file(sources, db, mark)
            schema.take(db, owner)
            its_ids = (*(source.store_id() for source in sources), store_id)
            if its_id := next(filter(None, its_ids), ""):
                schema.identify(db, its_id)
    finally:
        db.close()


def _copy(source: DamagedDatabase, target: Database, mark: EmbedderMark | None) -> None:
    for table, key in _tables(target):
        if table == "small_vectors" and source.mark() != mark:
            continue
        described = target.tuples(f'PRAGMA table_info("{table}")')
        columns = {name for _, name, *_ in described}
        # Of a column that an older database lacks, and that has no value of its own.
        empty: Row = {
            name: ""
            for _, name, kind, is_needed, default, _ in described
            if kind == "TEXT" and is_needed and default is None
        }
        for row in source.rows(table, key):
            given = empty | {name: held for name, held in row.items() if name in columns}
            names = ", ".join(f'"{name}"' for name in given)
            values = ", ".join(f":{name}" for name in given)
            put = f'INSERT OR IGNORE INTO "{table}" ({names}) VALUES ({values})'
            try:
                target.execute(put, given)
            except (apsw.ConstraintError, apsw.MismatchError):
                source.lost += 1


def _tables(db: Database) -> list[tuple[str, list[str]]]:
    """Those that are copied, what is referred to first; with the key of one without row numbers."""
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
        if name not in _MADE_ANEW
    ]


def _key(db: Database, table: str) -> list[str]:
    return db.column("SELECT name FROM pragma_table_info(:name) WHERE pk ORDER BY pk", name=table)


def _make_up_what_is_referred_to(db: Database) -> None:
    """Sessions of turns, and files of scopes, that are lost themselves."""
    db.execute(
        """
        INSERT INTO sessions (
            session_id, cwd, project_id, title, title_key, tags, status, started_at, updated_at,
            last_activity_at, turn_count
        )
        SELECT session_id, '/', 'salvaged', 'Salvaged session', 'salvaged session', '[]', 'active',
            min(started_at), min(started_at), min(started_at), 0
        FROM turns WHERE session_id NOT IN (SELECT session_id FROM sessions) GROUP BY session_id;
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
    """Count turns without gaps, and of a fork those that it still shares."""
    indexes: dict[str, list[int]] = {}
    for session_id, index in db.tuples("SELECT session_id, turn_index FROM turns"):
        indexes.setdefault(session_id, []).append(index)
    parents = {
        session_id: (parent or "", at or 0)
        for session_id, parent, at in db.tuples(
            "SELECT session_id, parent_session_id, forked_at_index FROM sessions"
        )
    }
    shared: dict[str, int] = {}

    def share(session_id: str) -> int:
        parent, forked_at = parents[session_id]
        if session_id not in shared:
            shared[session_id] = 0  # A circle ends here.
            if parent:
                own = sum(index <= forked_at for index in indexes.get(parent, ()))
                shared[session_id] = min(share(parent), forked_at) + own
        return shared[session_id]

    for session_id, (parent, _) in parents.items():
        if parent:
            db.execute(
                "UPDATE sessions SET forked_at_index = ? WHERE session_id = ?",
                (share(session_id), session_id),
            )
    # First below zero: two turns of a session never have one number.
    db.execute(
        """
        UPDATE turns SET turn_index = -counted.place FROM (
            SELECT turn_id, coalesce(forked_at_index, 0)
                + row_number() OVER (PARTITION BY session_id ORDER BY turn_index) AS place
            FROM turns JOIN sessions USING (session_id)
        ) AS counted WHERE counted.turn_id = turns.turn_id;
        UPDATE turns SET turn_index = -turn_index
        """
    )


def _remove_orphans(db: Database) -> None:
    """What refers to something that is lost, and summaries of which nothing is left."""
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
            AND scope NOT IN (SELECT scope FROM code_references);
            DELETE FROM small_vectors WHERE NOT (
                (level = -1 AND record_id IN (SELECT memory_id FROM memories))
                OR (level = -2 AND record_id IN (
                    SELECT session_id FROM sessions WHERE summary <> ''
                ))
            )
            """
        )


def _count(db: Database) -> None:
    """What is counted, and what is said twice."""
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
        UPDATE sessions SET to_embed = {vectors.SESSION_TO_EMBED};
        UPDATE memories SET to_embed = {vectors.MEMORY_TO_EMBED}
        """
    )


def _file(sources: Sequence[DamagedDatabase], db: Database, mark: EmbedderMark | None) -> None:
    """Make all of it findable; the vectors of it that can be read need not be made again."""
    db.execute(
        "UPDATE recall_state SET terms_version = 0, model_id = ?, dimension = ?",
        (mark.model_id, mark.dimension) if mark else (None, None),
    )
    text_index.build(db)
    db.execute(f"UPDATE documents SET to_link = 1 WHERE {_COMPLETED}")
    for source in reversed(sources):  # What the first one says is written last.
        filed = {}
        for row in source.rows("documents", ()):
            filed[row["document"]] = row["record_id"], row["level"]
            db.execute(
                "UPDATE documents SET to_extract = :to_extract, to_link = :to_link"
                f" WHERE record_id = :record_id AND {_COMPLETED}",
                {"to_extract": 0, "to_link": 1, **row},
            )
        if mark is None or source.mark() != mark:
            continue
        for row in source.rows("vectors", ()):
            packed: object = row["packed"]
            if row["document"] not in filed or not isinstance(packed, bytes):
                continue
            if len(packed) % (mark.dimension + 4):
                continue
            record_id, level = filed[row["document"]]
            put = PutVectors(
                record_id=record_id,
                level=level,
                embedder=mark.model_id,
                text_hash=str(row["text_hash"]),
                vectors=unpacked(packed, mark.dimension),
            )
            vectors.put(db, put)

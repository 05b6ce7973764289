"""Which journal a database has: a write-ahead log, or the older one where a log can't be.

A log needs memory that processes share, which network drives and some others do
not give. A rollback journal needs locks alone: writers and readers then wait for
each other, and nothing else is lost.
"""

import errno
from pathlib import Path

import apsw

from ragmem.store.sqlite import files

_WRITE_VERSION = 18
"""Where a database's header says which journal it has: 2 is a write-ahead log."""
_NO_SHARED_MEMORY = (apsw.CantOpenError, apsw.IOError, apsw.ProtocolError)
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Why there is no shared memory just now, on a disk that could have it."""

NOTICE = (
    "The memory's folder can't have a write-ahead log (is it on a network drive?): a rollback "
    "journal is used instead. It is as safe, but processes that use it at once wait for each other."
)


def has_log(database: Path) -> bool:
    """Whether the file says that it has a write-ahead log."""
    if not database.is_file():  # a pipe would not open before somebody writes to it
        return False
    try:
        return files.header(database)[_WRITE_VERSION : _WRITE_VERSION + 1] == b"\2"
    except (apsw.Error, OSError):
        return False


def choose(connection: apsw.Connection) -> None:
    """A log for a new database if that can be, else a rollback journal."""
    try:
        connection.pragma("journal_mode", "wal")
    except _NO_SHARED_MEMORY:
        if connection.system_errno in _PASSING:
            raise
        connection.pragma("journal_mode", "delete")


def can_be_read(connection: apsw.Connection, database: Path) -> bool:
    """False for a log that can't be used here; other errors are the caller's."""
    try:
        connection.pragma("schema_version")
    except _NO_SHARED_MEMORY:
        if has_log(database) and connection.system_errno not in _PASSING:
            return False
        raise
    return True


def roll_in(database: Path) -> None:
    """Change from a log to a rollback journal, without shared memory: nobody else may use it."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.pragma("locking_mode", "exclusive")
        connection.pragma("journal_mode", "delete")
    finally:
        connection.close()

"""Who works on which session: a lock file per owner, freed by the kernel when it dies."""

import os
import re
from contextlib import suppress
from pathlib import Path

import apsw

from ragmem.store import locks
from ragmem.store.sqlite import documents
from ragmem.store.sqlite.writes import no_session

# Longer than another process takes to look whether this owner lives.
_PATIENCE_S = 1.0
_OWNERS = re.compile(r"[0-9a-f]+\.lock")


class OwnerLocks:
    """The locks that this process holds, and a look at those of others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def hold(self, owner_id: str) -> None:
        """Show that this owner lives, until `release` or the end of the process."""
        if not self._held:
            self._sweep()
        if owner_id not in self._held:
            self._held[owner_id] = locks.lock(self._path(owner_id), timeout_s=_PATIENCE_S)

    def lives(self, owner_id: str) -> bool:
        """Whether some process, this one included, holds this owner's lock."""
        return locks.is_held(self._path(owner_id))

    def release(self, owner_id: str) -> None:
        """Let this owner go."""
        handle = self._held.pop(owner_id, None)
        if handle is not None:
            self._path(owner_id).unlink(missing_ok=True)
            os.close(handle)

    def release_all(self) -> None:
        """Let every owner go."""
        for owner_id in tuple(self._held):
            self.release(owner_id)

    def _sweep(self) -> None:
        """Remove what the dead left that nothing names any more."""
        for path in self._folder.glob("*.lock"):
            if _OWNERS.fullmatch(path.name):
                with suppress(OSError):
                    locks.is_held(path)

    def _path(self, owner_id: str) -> Path:
        # In hexadecimal and cut: an id from an imported file could be a path, or endless.
        return self._folder / f"{owner_id.encode('utf-8', 'replace').hex()[:200]}.lock"


def attach(
    connection: apsw.Connection, session_id: str, owner_id: str, held: OwnerLocks, at: str
) -> list[str]:
    """Register the owner, interrupt what dead ones left running; the session's other owners."""
    if connection.execute("SELECT 1 FROM sessions WHERE session_id = ?", (session_id,)).get is None:
        raise no_session(session_id)
    held.hold(owner_id)
    known = connection.execute(
        "SELECT owner_id FROM owners"
        " UNION SELECT owner_id FROM turns WHERE status = 'running' AND owner_id IS NOT NULL"
    ).fetchall()
    for other in (str(known_id) for (known_id,) in known):
        if other != owner_id and not held.lives(other):
            give_up(connection, other, at)
    _interrupt(connection, "owner_id IS NULL", {"at": at})
    connection.execute(
        "INSERT INTO owners (owner_id, session_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (owner_id, session_id),
    )
    others = connection.execute(
        "SELECT owner_id FROM owners WHERE session_id = ? AND owner_id <> ? ORDER BY owner_id",
        (session_id, owner_id),
    )
    return [str(other) for (other,) in others]


def give_up(connection: apsw.Connection, owner_id: str, at: str) -> None:
    """Interrupt what the owner left running, and forget the owner."""
    _interrupt(connection, "owner_id = :owner_id", {"at": at, "owner_id": owner_id})
    connection.execute("DELETE FROM owners WHERE owner_id = ?", (owner_id,))


def _interrupt(connection: apsw.Connection, whose: str, bindings: dict[str, str]) -> None:
    interrupted = connection.execute(
        "UPDATE turns SET status = 'interrupted', owner_id = NULL, finished_at = :at"
        f" WHERE status = 'running' AND {whose} RETURNING turn_id",
        bindings,
    ).fetchall()
    for (turn_id,) in interrupted:
        documents.turn_changed(connection, str(turn_id))

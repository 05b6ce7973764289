"""Opens a store as it is, without the spool, for the person whose home it is.

The one place that names the stores' classes.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ragmem.config import Config, Paths
from ragmem.errors import StoreUnavailable, UsageError
from ragmem.files import replace_private, write_new_private
from ragmem.ids import new_id
from ragmem.records import Write, changed
from ragmem.store import Archive, Store

KINDS = ("sqlite", "neo4j")
_PATIENCE_S = 120.0
"""What a person waits for by command may take longer than what a prompt waits for."""
_IDS = re.compile(r"[0-9A-Za-z-]{1,64}")


async def open_archive(
    kind: str, config: Config, paths: Paths, environ: Mapping[str, str], *, existing: bool = False
) -> Archive:
    """The store of that kind; UsageError if it has to be there already and is not."""
    timeout_s = max(_PATIENCE_S, config.store.timeout_s)
    if kind == "neo4j":
        from ragmem.store.neo4j import Neo4jStore
        from ragmem.store.neo4j_server import find_connection

        connection = find_connection(config, paths, environ)
        return await Neo4jStore.open(
            connection, timeout_s=timeout_s, owner=home_owner(paths), everyone=True
        )
    from ragmem.store.sqlite import SQLiteStore

    if existing and not paths.database.exists():
        raise UsageError(f"There is no SQLite memory at {paths.database}.")
    return await SQLiteStore.open(
        paths.database,
        locks_dir=paths.locks_dir,
        timeout_s=timeout_s,
        owner=owner_of_file(paths),
        everyone=True,
    )


async def open_store(
    config: Config,
    paths: Paths,
    environ: Mapping[str, str],
    *,
    database: Path,
    locks_dir: Path,
    say: Callable[[str], None],
) -> tuple[Store, str]:
    """The store of the settings, for a prompt that waits; and what the person should be told.

    `database` and `locks_dir` are SQLite's; `say` is told of what the person has to wait for.
    """
    timeout_s = config.store.timeout_s
    if config.store.kind == "neo4j":
        from ragmem.store.neo4j import Neo4jStore
        from ragmem.store.neo4j_server import find_connection

        connection = find_connection(config, paths, environ)
        owner = home_owner(paths)
        opened = Neo4jStore.open(connection, timeout_s=timeout_s, say=say, owner=owner)
        return await opened, ""
    from ragmem.store.sqlite import SQLiteStore

    # The file is the person's alone: what a backup from another home of theirs has brought is, too.
    owner = owner_of_file(paths)
    store = await SQLiteStore.open(
        database, locks_dir=locks_dir, timeout_s=timeout_s, owner=owner, everyone=True
    )
    return store, store.notice


# --- whose it is ------------------------------------------------------------------------


def owned(writes: Sequence[Write], owner: str) -> list[Write]:
    """The writes, each that says nothing of it being this owner's."""
    return [
        changed(write, owner=owner)
        if owner and getattr(write.record, "owner", None) == ""
        else write
        for write in writes
    ]


def home_owner(paths: Paths) -> str:
    """Id of the person whose home it is, made up when it is asked for first.

    Of two processes that do so at once the one that is first decides. StoreUnavailable where it
    can't be known: to a store that is opened for nobody everybody's memory would be shown.
    """
    file = paths.owner_file
    try:
        if not file.exists():
            with suppress(FileExistsError):
                write_new_private(file, f"{new_id()}\n".encode())
        found = file.read_text("utf-8", "replace").strip()
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreUnavailable(f"Whose home this is can't be kept in {file}: {why}.") from None
    if not _IDS.fullmatch(found):
        raise StoreUnavailable(
            f"Whose home this is can't be read in {file}: it holds no id.",
            hint="`ragmem memory owner --take ID` sets it anew.",
        )
    return found


def owner_of_file(paths: Paths) -> str:
    """The home's owner; nobody where that can't be kept: a database says better what is wrong."""
    try:
        return home_owner(paths)
    except StoreUnavailable:
        return ""


def take_owner(paths: Paths, owner: str) -> None:
    """From now on this home is that person's too, as another one of theirs is."""
    if not _IDS.fullmatch(owner):
        raise UsageError(
            "That is no owner's id.",
            hint="`ragmem memory owner`, on the other machine, shows the one to take over.",
        )
    replace_private(paths.owner_file, f"{owner}\n".encode(), sync=True)

"""Stores opened as they are, without the spool: the one place that names their classes."""

from collections.abc import Callable, Mapping
from pathlib import Path

from ragmem.config import Config, Paths
from ragmem.errors import UsageError
from ragmem.store.base import Archive, Store
from ragmem.store.owning import home_owner, owner_of_file

KINDS = ("sqlite", "neo4j")
_PATIENCE_S = 120.0
"""What a person waits for by command may take longer than what a prompt waits for."""


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

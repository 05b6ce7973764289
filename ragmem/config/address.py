"""Addresses of stores: `sqlite:///path`, the URL of a Neo4j server, or the configured store."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ragmem.config import Config, Paths, find_paths, load_config
from ragmem.errors import ConfigError
from ragmem.files import expanded, is_a_path
from ragmem.text import one_line

_SHOWN_CHARS = 200
_GRAPHS = ("bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc")
_FORMS = "Examples: sqlite:///home/me/memory.db, bolt://localhost:7687, neo4j+s://name.example.org."


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The address of one store, and what belongs to it alone in this home."""

    database: Path
    """The SQLite file."""
    locks_dir: Path
    """Next to that file, so that all processes that open it find each other's locks."""
    spool: str
    """Name of the folder for writes that wait for this store; no other store uses it."""
    older_spools: tuple[str, ...] = ()
    """Folders in which earlier versions kept waiting writes."""


def configured(
    config: Config, paths: Paths, environ: Mapping[str, str], *, kind: str = ""
) -> Address:
    """Return the address of the configured store, or of the store of that kind."""
    here = Address(database=paths.database, locks_dir=paths.locks_dir, spool="sqlite")
    if (kind or config.store.kind) == "sqlite":
        return here
    url = config.store.url or environ.get("NEO4J_URI") or ""
    older = ("neo4j", f"neo4j-{_digest(url)}") if url else ("neo4j",)
    spool = _spool_of_graph(url, _database_of(config, environ))
    return msgspec.structs.replace(here, spool=spool, older_spools=older)


def _database_of(config: Config, environ: Mapping[str, str]) -> str:
    return config.store.database or environ.get("NEO4J_DATABASE") or ""


def _spool_of_graph(url: str, database: str) -> str:
    """Return the folder's name, the same for all addresses of one server and database."""
    try:
        parts = urlsplit(url)
        server = f"{parts.hostname}:{parts.port or 7687}" if url else "local"
    except ValueError:
        server = url
    readable = re.sub(r"[^a-z0-9.]+", "-", f"{server}-{database}".lower())[:60].strip("-")
    return f"neo4j-{readable}-{_digest(f'{server}/{database}')}"


def resolve(
    url: str | None, home: str | os.PathLike[str] | None, environ: Mapping[str, str]
) -> tuple[Config, Paths, Address]:
    """Return what `open_memory` opens; `home` is by default the environment's. ConfigError."""
    if home is not None and not is_a_path(home):
        shown = one_line(repr(os.fspath(home)), _SHOWN_CHARS)
        raise ConfigError(f"{shown} is not a valid path.", hint="Give the path of a folder.")
    homes = {} if home is None else {"RAGMEM_HOME": os.fspath(home)}
    paths = find_paths({**environ, **homes})
    flags = settings_of(url) if url is not None else {}
    config = load_config(paths.config_file, environ=environ, flags=flags)
    if url is None:
        return config, paths, configured(config, paths, environ)
    return config, paths, named(url, paths, database=_database_of(config, environ))


def settings_of(url: str) -> Mapping[tuple[str, ...], str]:
    """Return the settings that an address implies, for `load_config`; raises ConfigError."""
    scheme = url.partition("://")[0].lower()
    if scheme == "sqlite":
        return {("store", "kind"): "sqlite"}
    if scheme in _GRAPHS and "://" in url and is_a_path(url):
        return {("store", "kind"): "neo4j", ("store", "url"): url}
    shown = url.rpartition("@")[2]
    raise ConfigError(f"{shown!r} is not a valid store address.", hint=_FORMS)


def named(url: str, paths: Paths, *, database: str = "") -> Address:
    """Return the store at an address; that of the default file is the configured one.

    `database` is the server's database, if one is configured with the address. Raises ConfigError.
    """
    if settings_of(url)[("store", "kind")] == "neo4j":
        return Address(
            database=paths.database,
            locks_dir=paths.locks_dir,
            spool=_spool_of_graph(url, database),
            older_spools=(f"neo4j-{_digest(url)}",),
        )
    file = _database(url)
    default = file == Path(os.path.realpath(paths.database))
    return Address(
        database=file,
        locks_dir=_locks_of(file, paths),
        spool="sqlite" if default else f"sqlite-{_digest(str(file))}",
    )


def _database(url: str) -> Path:
    """Return the path as written, without decoding; `~` is the user's home."""
    rest = url.partition("://")[2]
    name = rest.lstrip("/")
    if not rest.startswith("/") or not name or name == ":memory:" or not is_a_path(name):
        raise ConfigError(
            f"{one_line(repr(url), _SHOWN_CHARS)} has no file name.",
            hint="Use an absolute path: sqlite:///home/me/memory.db.",
        )
    home = name == "~" or name.startswith("~/")
    path = Path(os.path.realpath(expanded(name) if home else f"/{name}"))
    if path.is_dir():
        raise ConfigError(f"{path} is a folder.", hint=f"Add a name: sqlite://{path}/memory.db.")
    return path


def _locks_of(database: Path, paths: Paths) -> Path:
    """Return the same folder for all who open the file, by its address or as the file of a home."""
    shared = paths.locks_dir.name
    default = database.name == paths.database.name
    return database.parent / (shared if default else f"{database.name}-{shared}")


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:12]

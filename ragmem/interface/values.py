"""What the interface hands out that is no record."""

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragmem.config import Config, Paths
from ragmem.embedder.base import Embedder
from ragmem.memory.recall import ScopeName
from ragmem.metrics import Metrics
from ragmem.records import Scope, Session, Turn
from ragmem.store.spool import SpooledStore

if TYPE_CHECKING:
    from ragmem.memory.memory import Memory

Folder = str | os.PathLike[str]
Where = ScopeName | Scope | Path
"""Where to search: around the session (by name), a scope, or the project of a folder."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What an open memory works with; put together by `ragmem.app`."""

    memory: "Memory"
    open_store: Callable[[], Awaitable[SpooledStore]]
    config: Config
    paths: Paths
    embedder: Embedder | None
    metrics: Metrics
    notices: Callable[[], Sequence[str]]
    foreign_vectors: Callable[[], Awaitable[str]]
    """What to say when the store's vectors are another embedder's; else empty."""


class LoadedSession(msgspec.Struct, frozen=True):
    """A session with all of its turns, in order."""

    session: Session
    turns: tuple[Turn, ...]

    @property
    def session_id(self) -> str:
        """Its id."""
        return self.session.session_id

    @property
    def cwd(self) -> str:
        """The folder that it was started in."""
        return self.session.cwd

    @property
    def project_path(self) -> str | None:
        """The top folder of its project."""
        return self.session.project_path

"""SpooledStore: a Store whose writes are never lost because it is away.

While the store answers, writes go to it. When it fails, or is silent for longer
than `Patience.stall_s`, they go to this process' file of the spool and are
acknowledged by its sync. From then on all writes go there, so that their order
holds, until those that wait are in the store: this process tries again by
itself, and the next process to open the store takes over what a dead one left.
A write may reach the store twice that way; being idempotent it has the effect
of once.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from ragmem.errors import StoreError
from ragmem.files import replace_private
from ragmem.records import Applied, Project, RegisterProject, StoreInfo, Write
from ragmem.store.base import Store
from ragmem.store.spool.backlog import Backlog, Patience, Waiting, writes_text

P = ParamSpec("P")
T = TypeVar("T")


class KnownProjects:
    """A private file beside the spool. What can't be read or written costs only this comfort."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._written: list[Project] | None = None

    def load(self) -> list[Project]:
        """None of them where there is no file."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[Project])
        except (OSError, msgspec.MsgspecError):
            return []

    def save(self, projects: list[Project]) -> None:
        """Replace the file, if it says something else."""
        if projects == self._written:
            return
        with contextlib.suppress(OSError, UnicodeEncodeError):
            data = msgspec.json.encode(projects)
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_private(self._file, data, sync=False)
            self._written = projects

    def add(self, projects: Iterable[Project]) -> None:
        """Those that wait in the spool are known too."""
        new = {project.project_id: project for project in projects}
        if new:
            known = {project.project_id: project for project in self.load()}
            self.save(list((known | new).values()))


def asked(
    method: Callable[Concatenate[Store, P], Awaitable[T]],
) -> Callable[Concatenate["SpooledStore", P], Coroutine[Any, Any, T]]:
    """The store's own method, asked when nothing waits any more; with its docstring."""
    name = method.__name__

    @wraps(method)
    async def ask(spooled: "SpooledStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await spooled.read(lambda store: getattr(store, name)(*args, **kwargs))

    return ask


class SpooledStore(Backlog):
    """See the module's text. `open_store` opens the store when it is first needed.

    `folder` bears the store's address, `older` are the spools that earlier versions had for it.
    """

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]],
        folder: Path,
        *,
        older: Sequence[Path] = (),
        patience: Patience = Patience(),  # noqa: B008
    ) -> None:
        super().__init__(open_store, folder, older=older, patience=patience)
        self._known = KnownProjects(folder.with_name(f"{folder.name}-projects.json"))

    store_id = asked(Store.store_id)
    get = asked(Store.get)
    session = asked(Store.session)
    sessions = asked(Store.sessions)
    find_sessions = asked(Store.find_sessions)
    turns = asked(Store.turns)
    file_accesses = asked(Store.file_accesses)
    find_tool_call = asked(Store.find_tool_call)
    summaries = asked(Store.summaries)
    raw_history_chars = asked(Store.raw_history_chars)
    search = asked(Store.search)
    embedder = asked(Store.embedder)
    use_embedder = asked(Store.use_embedder)
    pending = asked(Store.pending)
    count_pending = asked(Store.count_pending)
    claim = asked(Store.claim)
    release = asked(Store.release)
    attempts = asked(Store.attempts)
    keep_attempts = asked(Store.keep_attempts)
    forget_attempts = asked(Store.forget_attempts)
    memories_revision = asked(Store.memories_revision)
    memories = asked(Store.memories)
    find_memories = asked(Store.find_memories)
    superseded_by = asked(Store.superseded_by)
    small_vectors = asked(Store.small_vectors)
    forget_memories = asked(Store.forget_memories)
    profile = asked(Store.profile)
    others = asked(Store.others)
    code_files = asked(Store.code_files)
    find_scopes = asked(Store.find_scopes)
    code_turns = asked(Store.code_turns)
    changed_with = asked(Store.changed_with)
    attach = asked(Store.attach)
    detach = asked(Store.detach)

    async def apply(self, writes: Sequence[Write]) -> Applied:
        """Apply the writes, or keep them until the store is back: then the answer is `Waiting`."""
        applied = await super().apply(writes)
        if isinstance(applied, Waiting):
            projects = [write.project for write in writes if isinstance(write, RegisterProject)]
            await asyncio.to_thread(self._known.add, projects)
        return applied

    async def projects(self) -> list[Project]:
        """Every known project; while the store is away, those that were known before."""
        try:
            found = await self.read(lambda store: store.projects())
        except StoreError:
            if known := await asyncio.to_thread(self._known.load):
                return known
            raise
        await asyncio.to_thread(self._known.save, found)
        return found

    async def info(self) -> StoreInfo:
        """What it is, where, and how much is in it, `waiting_writes` too if there are any."""
        try:
            found = await self.read(lambda store: store.info())
        except StoreError as error:
            if not (waiting := await self.count_waiting()):
                raise
            hint = f"{error.hint} {writes_text(waiting)} wait on this disk.".strip()
            raise type(error)(str(error), hint=hint) from None
        waiting, aside = await self.count_waiting(), await self.count_aside()
        more = {"waiting_writes": waiting, "set_aside": aside}
        counts = found.counts | {name: count for name, count in more.items() if count}
        return msgspec.structs.replace(found, counts=counts)

    async def heartbeat(self, owner_id: str) -> None:
        """Renew the lease, and look for what processes that died have left."""
        if store := self.answering:
            try:
                await store.heartbeat(owner_id)
            except StoreError as error:
                self.went_away(error)
                raise
            await self.look_for_others()

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
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from ragmem.errors import StoreError
from ragmem.files import replace_private
from ragmem.records import (
    CodeFile,
    FileAccess,
    Insight,
    MemoryRecord,
    Owner,
    Profile,
    Project,
    PutReferences,
    RegisterProject,
    Session,
    Summary,
    ToolCall,
    Turn,
    Write,
)
from ragmem.store.base import ALL_TURNS, Applied, SessionQuery, Store, StoreInfo, TurnQuery
from ragmem.store.code import ChangedTogether, CodeTurn, FoundScope, ScopeQuery, TurnsQuery
from ragmem.store.memories import MemoryQuery
from ragmem.store.recall import Attempts, Candidate, EmbedderMark, Pending, SearchQuery, Work
from ragmem.store.spool.backlog import Backlog, Patience, Waiting, writes_text
from ragmem.store.spool.files import MOST_IN_MEMORY


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


class SpooledStore:
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
        most_in_memory: int = MOST_IN_MEMORY,
    ) -> None:
        self._backlog = Backlog(
            open_store, folder, older=older, patience=patience, most_in_memory=most_in_memory
        )
        self._known = KnownProjects(folder.with_name(f"{folder.name}-projects.json"))

    async def inner(self) -> Store:
        """The store itself, opened; its errors are the caller's."""
        return await self._backlog.inner()

    async def opened(self) -> None:
        """Wait for a store that is being made; for any other no longer than a read would."""
        await self._backlog.opened()

    def is_made(self) -> None:
        """It has to be made before it opens, and is waited for as long as that takes."""
        self._backlog.is_made()

    def take_notices(self) -> list[str]:
        """What the person should be told, each once: it is away, it is back."""
        return self._backlog.take_notices()

    async def apply(self, writes: Sequence[Write]) -> Applied:
        """Apply the writes, or keep them until the store is back: then the answer is `Waiting`."""
        applied = await self._backlog.apply(writes)
        if isinstance(applied, Waiting):
            projects = [write.project for write in writes if isinstance(write, RegisterProject)]
            await asyncio.to_thread(self._known.add, projects)
        return applied

    async def store_id(self) -> str:
        """The store's own id, kept in it; empty where it can't keep one."""
        return await self._backlog.read(lambda store: store.store_id())

    async def session(self, session_id: str) -> Session:
        """One session; SessionNotFound when there is none."""
        return await self._backlog.read(lambda store: store.session(session_id))

    async def sessions(self, query: SessionQuery) -> list[Session]:
        """The sessions that match."""
        return await self._backlog.read(lambda store: store.sessions(query))

    async def find_sessions(
        self, reference: str, *, limit: int = 20, mine: bool = False
    ) -> list[Session]:
        """Those whose id is, or ends with, the reference, or whose title equals it."""
        return await self._backlog.read(
            lambda store: store.find_sessions(reference, limit=limit, mine=mine)
        )

    async def turns(self, session_id: str, query: TurnQuery = ALL_TURNS) -> list[Turn]:
        """Turns in order, each with its tool calls in order."""
        return await self._backlog.read(lambda store: store.turns(session_id, query))

    async def file_accesses(self, session_id: str, *, max_turn_chars: int) -> list[FileAccess]:
        """Accesses of the newest turns that sum to at most so many characters, newest first."""
        return await self._backlog.read(
            lambda store: store.file_accesses(session_id, max_turn_chars=max_turn_chars)
        )

    async def find_tool_call(self, session_id: str, reference: str) -> ToolCall | None:
        """The newest call of a session whose id, without its dashes, ends with the reference."""
        return await self._backlog.read(lambda store: store.find_tool_call(session_id, reference))

    async def summaries(
        self,
        session_id: str,
        *,
        level: int | None = None,
        not_rolled_up: bool = False,
        limit: int | None = None,
    ) -> list[Summary]:
        """Newest first. `not_rolled_up`: those that no higher summary covers."""
        return await self._backlog.read(
            lambda store: store.summaries(
                session_id, level=level, not_rolled_up=not_rolled_up, limit=limit
            )
        )

    async def raw_history_chars(self, session_id: str) -> int:
        """Characters of completed turns that no level-1 summary covers; 0 for none."""
        return await self._backlog.read(lambda store: store.raw_history_chars(session_id))

    async def projects(self) -> list[Project]:
        """Every known project; while the store is away, those that were known before."""
        try:
            found = await self._backlog.read(lambda store: store.projects())
        except StoreError:
            if known := await asyncio.to_thread(self._known.load):
                return known
            raise
        await asyncio.to_thread(self._known.save, found)
        return found

    async def search(self, query: SearchQuery) -> list[Candidate]:
        """The best by text and the best by vector, and of turns their neighbours; in no order."""
        return await self._backlog.read(lambda store: store.search(query))

    async def turns_by_id(self, turn_ids: Sequence[str]) -> list[Turn]:
        """Those of them that exist, with their tool calls, in this order."""
        return await self._backlog.read(lambda store: store.turns_by_id(turn_ids))

    async def summaries_by_id(self, summary_ids: Sequence[str]) -> list[Summary]:
        """Those of them that exist, in this order."""
        return await self._backlog.read(lambda store: store.summaries_by_id(summary_ids))

    async def embedder(self) -> EmbedderMark | None:
        """Of which its vectors are; None before there are any."""
        return await self._backlog.read(lambda store: store.embedder())

    async def use_embedder(self, mark: EmbedderMark) -> None:
        """From now on vectors are of this one; those of another are dropped."""
        await self._backlog.read(lambda store: store.use_embedder(mark))

    async def pending(
        self, work: Work, *, limit: int, session_id: str | None = None
    ) -> list[Pending]:
        """Work to be done, that of the latest activity first; what is leased is left out."""
        return await self._backlog.read(
            lambda store: store.pending(work, limit=limit, session_id=session_id)
        )

    async def count_pending(self) -> dict[Work, int]:
        """How much of each there is, at most a thousand."""
        return await self._backlog.read(lambda store: store.count_pending())

    async def claim(self, keys: Sequence[str], owner_id: str, *, seconds: float) -> list[str]:
        """Lease those that are free, or were this owner's; the keys that are now its own."""
        return await self._backlog.read(lambda store: store.claim(keys, owner_id, seconds=seconds))

    async def release(self, keys: Sequence[str], owner_id: str) -> None:
        """Give back what was claimed."""
        await self._backlog.read(lambda store: store.release(keys, owner_id))

    async def attempts(self, item: str = "", *, least: int = 1) -> list[Attempts]:
        """Answers that could not be used, at least so many: about an item, or any; latest last."""
        return await self._backlog.read(lambda store: store.attempts(item, least=least))

    async def keep_attempts(self, attempts: Attempts) -> None:
        """Keep these in place of what was known of their item."""
        await self._backlog.read(lambda store: store.keep_attempts(attempts))

    async def forget_attempts(self, session_id: str, item: str = "") -> None:
        """Let one item of a session be tried again, or all of them."""
        await self._backlog.read(lambda store: store.forget_attempts(session_id, item))

    async def memories_revision(self) -> int:
        """Goes up when memories or their vectors change."""
        return await self._backlog.read(lambda store: store.memories_revision())

    async def memories(self, query: MemoryQuery) -> list[MemoryRecord]:
        """Those that match, each with its evidence in order."""
        return await self._backlog.read(lambda store: store.memories(query))

    async def memories_by_id(self, memory_ids: Sequence[str]) -> list[MemoryRecord]:
        """Those of them that exist, superseded ones too, in this order."""
        return await self._backlog.read(lambda store: store.memories_by_id(memory_ids))

    async def find_memories(self, reference: str, *, limit: int = 20) -> list[MemoryRecord]:
        """Those whose id, without its dashes, is or ends with the reference; newest first."""
        return await self._backlog.read(lambda store: store.find_memories(reference, limit=limit))

    async def superseded_by(self, memory_id: str) -> list[MemoryRecord]:
        """What this one took the place of, and what that did, and so on; newest first."""
        return await self._backlog.read(lambda store: store.superseded_by(memory_id))

    async def small_vectors(
        self, record_ids: Sequence[str], level: int, embedder: str
    ) -> dict[str, bytes]:
        """Vectors of memories or sessions, of those that have one of this embedder, by id."""
        return await self._backlog.read(
            lambda store: store.small_vectors(record_ids, level, embedder)
        )

    async def forget_memories(self, memory_ids: Sequence[str]) -> int:
        """Remove these and what they took the place of; never while the store is away."""
        return await self._backlog.read(lambda store: store.forget_memories(memory_ids))

    async def profile(self) -> Profile:
        """The person's; empty before anything was said."""
        return await self._backlog.read(lambda store: store.profile())

    async def others(self) -> list[Owner]:
        """Those who have something here, or a name, but the one whom the store was opened for."""
        return await self._backlog.read(lambda store: store.others())

    async def insights(self, session_ids: Sequence[str]) -> list[Insight]:
        """What was found in those of them that were looked at, in this order."""
        return await self._backlog.read(lambda store: store.insights(session_ids))

    async def code_files(self, project_id: str, paths: Sequence[str] = ()) -> list[CodeFile]:
        """The files that define scopes, with those, by path; of these paths, or all."""
        return await self._backlog.read(lambda store: store.code_files(project_id, paths))

    async def find_scopes(self, query: ScopeQuery) -> list[FoundScope]:
        """Those that match, those that no file defines any more too."""
        return await self._backlog.read(lambda store: store.find_scopes(query))

    async def code_turns(self, query: TurnsQuery) -> list[CodeTurn]:
        """Newest first; a turn once, with all that it has to do with what was asked for."""
        return await self._backlog.read(lambda store: store.code_turns(query))

    async def changed_with(
        self, project_ids: Sequence[str], path: str, *, limit: int = 20
    ) -> list[ChangedTogether]:
        """Other files that turns wrote to which wrote to this one; most turns first."""
        return await self._backlog.read(
            lambda store: store.changed_with(project_ids, path, limit=limit)
        )

    async def references_of(self, turn_ids: Sequence[str]) -> list[PutReferences]:
        """Of those of them that have some, in this order; the strongest references first."""
        return await self._backlog.read(lambda store: store.references_of(turn_ids))

    async def info(self) -> StoreInfo:
        """What it is, where, and how much is in it, `waiting_writes` too if there are any."""
        try:
            found = await self._backlog.read(lambda store: store.info())
        except StoreError as error:
            if not (waiting := await self._backlog.count_waiting()):
                raise
            hint = f"{error.hint} {writes_text(waiting)} wait on this disk.".strip()
            raise type(error)(str(error), hint=hint) from None
        waiting, (aside, _) = (
            await self._backlog.count_waiting(),
            await self._backlog.count_aside(),
        )
        more = {"waiting_writes": waiting, "set_aside": aside}
        counts = found.counts | {name: count for name, count in more.items() if count}
        return msgspec.structs.replace(found, counts=counts)

    async def attach(self, session_id: str, owner_id: str) -> list[str]:
        """Register this process on the session; returns the other live owners' ids."""
        return await self._backlog.read(lambda store: store.attach(session_id, owner_id))

    async def heartbeat(self, owner_id: str) -> None:
        """Renew the lease, and look for what processes that died have left."""
        if store := self._backlog.answering:
            try:
                await store.heartbeat(owner_id)
            except StoreError as error:
                self._backlog.went_away(error)
                raise
            await self._backlog.look_for_others()

    async def detach(self, owner_id: str) -> None:
        """Give up every session of this owner; its running turns become interrupted."""
        await self._backlog.read(lambda store: store.detach(owner_id))

    async def aclose(self) -> None:
        """A last try for what waits, unless the store is away; then release everything."""
        await self._backlog.aclose()

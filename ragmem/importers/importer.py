"""Sessions of other agents into a store: what is there already stays, and is found again.

Ids come from those of the agent, so that a file that is imported again adds only
the turns that it has got since. They go behind those that are there, whoever has
written these: a session that was resumed here keeps what was said here.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path

import msgspec

from ragmem.errors import StoreRefused
from ragmem.failpoints import failpoint
from ragmem.importers.finder import AgentFiles
from ragmem.importers.jsonl import FoundFile, Outcome, State, Tally
from ragmem.importers.session_parser import TITLE_LIMIT, SessionParser, session_id_of
from ragmem.memory.files import stored_path
from ragmem.memory.projects import (
    folder_name,
    locate,
    normalize_cwd,
    project_of_folder,
    registrations,
)
from ragmem.memory.recording import redacted
from ragmem.records import (
    DEFAULT_TITLE,
    Project,
    PutSession,
    PutTurn,
    RegisterProject,
    Session,
    Span,
    TurnQuery,
    Write,
)
from ragmem.redact import redact
from ragmem.store.base import Archive
from ragmem.text import clean, one_line

_BATCH = 50
"""Turns in a transaction, at most."""
_BATCH_CHARS = 4_000_000
"""And characters, about."""


class _Folder(msgspec.Struct, frozen=True):
    """A session's folder, as this memory knows it."""

    cwd: str
    project: Project
    registrations: Sequence[RegisterProject]
    """What makes a new project known, to be written first."""
    stored_path: Callable[[str], str]
    """A path that a tool was given, in the form in which it is stored."""


class _Places:
    """Folders of other agents' sessions, each with its project."""

    def __init__(self, known: list[Project], now: datetime) -> None:
        self._known = list(known)
        self._now = now
        self._new: set[str] = set()

    def place(self, folder: str) -> _Folder:
        """Where a session belongs; a folder that is gone is as good as one that is there."""
        folder = clean(folder)
        if not os.path.isabs(folder):
            # Of another system: its name is all that is known of it.
            project = project_of_folder(Path(folder), self._known, now=self._now)
            return _Folder(folder, project, self._registrations(project), str)
        cwd = normalize_cwd(folder)
        project = locate(cwd, self._known, now=self._now).project
        top = Path(project.path)
        return _Folder(
            folder_name(cwd),
            project,
            self._registrations(project),
            lambda path: stored_path(path, cwd=cwd, project=top),
        )

    def _registrations(self, project: Project) -> list[RegisterProject]:
        """What makes it known, with whichever of its sessions is stored first."""
        if project not in self._known:
            others = [each for each in self._known if each.project_id != project.project_id]
            self._known = [*others, project]
            self._new.add(project.project_id)
        return registrations(project) if project.project_id in self._new else []


class Importer:
    """Takes files into a store, one after the other; with `dry_run` it only looks."""

    def __init__(
        self,
        store: Archive | None,
        *,
        now: datetime,
        titles: Mapping[str, str],
        only_cwd: str | None = None,
        dry_run: bool = False,
    ) -> None:
        self._store = store
        """None where there is none yet, and none is to be made."""
        self._places: _Places | None = None
        self._now = now
        self._titles = titles
        self._only_cwd = only_cwd
        self._dry_run = dry_run

    async def take(self, agent: AgentFiles, found: FoundFile, tally: Tally) -> Outcome:
        """Import a file, as far as it can be read; StoreError when it can't be stored."""
        if self._places is None:
            known = await self._store.projects() if self._store else []
            self._places = _Places(known, self._now)
        parser = agent.parser(found, tally, now=self._now, titles=self._titles)
        batches = _batches(agent, parser, found, tally)
        session: _Session | None = None
        try:
            while batch := await asyncio.to_thread(next, batches, ()):
                if parser.facts.subagent:
                    tally.left_out["files of subagents"] += 1
                    return Outcome(state="empty")
                if session is None:
                    session = _Session(self._store, self._places, agent, found, parser)
                    await session.look_up()
                    if self._only_cwd not in (None, session.session.cwd):
                        return Outcome(state="other_folder")
                await session.add(batch, dry_run=self._dry_run)
            if session is None:
                return Outcome(state="empty")
            await session.complete(dry_run=self._dry_run)
        except _Unreadable as failed:
            return session.outcome(str(failed)) if session else _refused(failed)
        except StoreRefused as refused:
            return session.outcome(str(refused)) if session else _refused(refused)
        return session.outcome()


class _Unreadable(Exception):
    """A file that can't be read, or not to its end: of this the store knows nothing."""


def _refused(error: Exception) -> Outcome:
    return Outcome(state="refused", reason=str(error))


class _Session:
    """One session on its way into the store."""

    def __init__(
        self,
        store: Archive | None,
        places: "_Places",
        agent: AgentFiles,
        found: FoundFile,
        parser: SessionParser,
    ) -> None:
        self._store = store
        self._facts = parser.facts
        facts = parser.facts
        self._place = places.place(facts.cwd or str(found.file.parent))
        started_at = facts.started_at or facts.last_at
        self.session = Session(
            session_id=session_id_of(agent.name, facts.foreign_id),
            cwd=self._place.cwd,
            project_id=self._place.project.root_id,
            project_path=self._place.project.path,
            tags=(agent.name,),
            started_at=started_at,
            updated_at=started_at,
            last_activity_at=started_at,
        )
        self._parent_id = session_id_of(agent.name, facts.forked_from) if facts.forked_from else ""
        self._parents: list[tuple[str, str]] = []
        """What was said in the session that it was forked from, while it may share that."""
        self._shared = 0
        """Of its turns so many are its parent's."""
        self._position = 0
        """Of the turn that is looked at, in the file."""
        self._is_new = True
        self._held: dict[str, tuple[int, str]] = {}
        self._next = 1
        self._added = self._changed = self._known = self._calls = 0

    async def look_up(self) -> None:
        """What is in the store of it."""
        session_id = self.session.session_id
        if self._store is None:
            return
        brief = TurnQuery(with_tool_calls=False)
        for held in await self._store.get(Session, [session_id]):
            self.session, self._is_new = held, False
            turns = await self._store.turns(session_id, brief)
            self._held = {turn.turn_id: (turn.turn_index, turn.status) for turn in turns}
            self._next = held.turn_count + 1
            self._shared = held.forked_at_index or 0
            return
        for parent in await self._store.get(Session, [self._parent_id]):
            turns = await self._store.turns(parent.session_id, brief)
            self._parents = [(turn.user_message, turn.assistant_message) for turn in turns]

    async def add(self, batch: Sequence[PutTurn], *, dry_run: bool) -> None:
        """Store those that are new, or more complete than they were."""
        puts: list[Write] = []
        for put in batch:
            if (ready := await self._ready(put)) is not None:
                puts.append(ready)
        if not puts or dry_run or self._store is None:
            return
        failpoint("transfer.apply")
        await self._store.apply([*self._beginning(), *puts])
        failpoint("transfer.applied")
        self._is_new = False

    async def complete(self, *, dry_run: bool) -> None:
        """Its title, which may stand at the end of the file, and when it was last active."""
        held, facts = self.session, self._facts
        title = held.title
        first = redact(one_line(facts.first_prompt, TITLE_LIMIT))
        if title in (DEFAULT_TITLE, first):  # Nobody has named it here.
            title = facts.title or first or title
        went_on = self._added or self._changed
        self.session = msgspec.structs.replace(held, title=title)
        if dry_run or self._store is None or not (went_on or title != held.title):
            return
        last_at = max(facts.last_at, held.last_activity_at) if went_on else held.last_activity_at
        self.session = msgspec.structs.replace(
            self.session, updated_at=max(last_at, held.updated_at), last_activity_at=last_at
        )
        await self._store.apply([redacted(PutSession(session=self.session))])

    def outcome(self, refused: str = "") -> Outcome:
        """What became of it."""
        state: State = "grown" if self._held else "new"
        if not (self._added or self._changed):
            state = "unchanged"
        return Outcome(
            state="refused" if refused else state,
            session_id=self.session.session_id,
            title=self.session.title,
            cwd=self.session.cwd,
            turns_added=self._added,
            turns_changed=self._changed,
            turns_known=self._known,
            tool_calls_added=self._calls,
            reason=refused,
        )

    def _beginning(self) -> list[Write]:
        if not self._is_new:
            return []
        return [*self._place.registrations, redacted(PutSession(session=self.session))]

    async def _ready(self, put: PutTurn) -> PutTurn | None:
        """The turn in its place, as the store is to hold it; None when it does so already."""
        self._position += 1
        if self._is_shared(put):
            self._known += 1
            return None
        index, status = self._held.get(put.turn.turn_id, (0, ""))
        if status == "completed":
            self._known += 1
            return None
        ready = self._stored(put, index or self._next)
        if not index:
            self._next += 1
            self._added += 1
            self._calls += len(put.turn.tool_calls)
            return ready
        assert self._store is not None
        held = await self._store.own_turns([Span(self.session.session_id, index, index)])
        if [_comparable(ready)] == [_comparable(each) for each in held]:
            self._known += 1
            return None
        self._changed += 1
        return ready

    def _is_shared(self, put: PutTurn) -> bool:
        """Whether it is a turn of the session that this one was forked from."""
        if self._position <= self._shared:
            return True
        if not self._parents:
            return False
        said = redacted(put)
        words = (said.turn.user_message, said.turn.assistant_message)
        if self._parents[self._shared : self._shared + 1] == [words]:
            self._shared += 1
            return True
        self._parents = []
        if self._shared:
            self._next = self._shared + 1
            self.session = msgspec.structs.replace(
                self.session, parent_session_id=self._parent_id, forked_at_index=self._shared
            )
        return False

    def _stored(self, put: PutTurn, index: int) -> PutTurn:
        accesses = {
            call_id: tuple(
                msgspec.structs.replace(
                    each,
                    path=redact(clean(self._place.stored_path(each.path))),
                    turn_index=index,
                )
                for each in found
            )
            for call_id, found in put.accesses.items()
        }
        turn = msgspec.structs.replace(put.turn, turn_index=index)
        return redacted(PutTurn(turn=turn, accesses=accesses))


def _comparable(put: PutTurn) -> PutTurn:
    """With its accesses in one order: the log has another one than the stores."""
    accesses = {
        call_id: tuple(sorted(found, key=lambda each: (each.path, each.access_type)))
        for call_id, found in put.accesses.items()
    }
    return msgspec.structs.replace(put, accesses=accesses)


def _batches(
    agent: AgentFiles, parser: SessionParser, found: FoundFile, tally: Tally
) -> Iterator[list[PutTurn]]:
    """Turns as they come, some at a time: a file is never in memory as a whole."""
    turns = _turns(agent, parser, found, tally)
    while True:
        batch: list[PutTurn] = []
        size = 0
        for put in islice(turns, _BATCH):
            batch.append(put)
            size += put.turn.char_count
            size += sum(len(call.result) + len(call.arguments) for call in put.turn.tool_calls)
            if size > _BATCH_CHARS:
                break
        if not batch:
            return
        yield batch


def _turns(
    agent: AgentFiles, parser: SessionParser, found: FoundFile, tally: Tally
) -> Iterator[PutTurn]:
    try:
        for record in agent.records(found, tally):
            yield from parser.feed(record)
    except OSError as error:
        raise _Unreadable(str(error.strerror).lower()) from None
    yield from parser.finish()

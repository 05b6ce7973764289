"""Finds the session files of other agents, and imports their turns into a store.

What is already stored is recognized and stays: ids are derived from the agent's, so that importing
a file again adds only the turns it has gained since. They are appended to the stored turns, whoever
wrote those: a session that was continued here keeps its turns from here.
"""

import asyncio
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from ragmem.errors import StoreRefused
from ragmem.failpoints import failpoint
from ragmem.importers import (
    AgentName,
    Fields,
    FoundFile,
    Outcome,
    State,
    Tally,
    claude_code,
    codex,
    kimi,
    messages,
    opened,
    records,
    records_of,
    text,
)
from ragmem.importers.session_parser import TITLE_LIMIT, SessionParser, session_id_of
from ragmem.memory.projects import (
    folder_name,
    locate,
    normalize_cwd,
    project_of_folder,
    real_folder,
    registrations,
)
from ragmem.memory.recording import redacted
from ragmem.memory.turns import stored_path
from ragmem.records import (
    DEFAULT_TITLE,
    WITHOUT_CALLS,
    Project,
    PutSession,
    PutTurn,
    Session,
    Span,
    Write,
)
from ragmem.redact import redact
from ragmem.store import Archive
from ragmem.text import clean, one_line

_HEAD_RECORDS = 200
"""Records read at the start of each file of Claude Code, where summaries of other sessions are."""
_LOGS = (".jsonl", ".jsonl.zst")
_LEAST_TAIL, _UUID_CHARS = 6, 36


class AgentFiles(msgspec.Struct, frozen=True):
    """An agent whose sessions can be imported."""

    label: str
    home: tuple[str, str, str]
    """The variable with its home directory, the default for that, and the folder within it."""
    parser: type[SessionParser]
    takes: Callable[[Path], bool]
    """Whether a file with this name contains a session."""
    records: Callable[[FoundFile, Tally], Iterator[Fields]] = records_of
    titled: tuple[str, str] | None = None
    """Fields of records elsewhere with a title: what they are of, and the title."""

    @property
    def name(self) -> AgentName:
        """Return the agent's name on the command line."""
        return self.parser.agent

    def folder(self, given: Mapping[str, str]) -> Path:
        """Return the folder in which it keeps its sessions, by a process's environment."""
        variable, otherwise, within = self.home
        # If the home directory is unknown, `~` stays, and no such folder exists.
        return Path(os.path.expanduser(given.get(variable) or otherwise), within)


def _is_of_gemini(file: Path) -> bool:
    # The newer file of a session that was continued has it from its beginning.
    goes_on = file.suffix == ".json" and file.with_suffix(".jsonl").exists()
    return file.name.startswith("session-") and file.suffix in (".json", ".jsonl") and not goes_on


def _is_of_kimi(file: Path) -> bool:
    if file.suffix != ".jsonl" or file.stem.startswith("context_"):
        return False  # numbered ones are from before a compaction
    if file.name == "context.jsonl":
        return not file.with_name("wire.jsonl").exists()
    return file.name == "wire.jsonl" or not file.with_suffix("").exists()


def _is_of_opencode(file: Path) -> bool:
    """Whether it is a database, or the JSON file of a session from versions without one."""
    if file.suffix == ".db":
        return file.name.startswith("opencode")
    return file.suffix == ".json" and file.parent.parent.name == "session"


AGENTS: dict[AgentName, AgentFiles] = {
    agent.name: agent
    for agent in (
        AgentFiles(
            "Claude Code",
            ("CLAUDE_CONFIG_DIR", "~/.claude", "projects"),
            claude_code.ClaudeCodeParser,
            lambda file: file.name.endswith(_LOGS),
            titled=("leafUuid", "summary"),
        ),
        AgentFiles(
            "Codex",
            ("CODEX_HOME", "~/.codex", "sessions"),
            codex.CodexParser,
            lambda file: file.name.startswith("rollout-") and file.name.endswith(_LOGS),
            titled=("id", "thread_name"),
        ),
        AgentFiles(
            "opencode",
            ("XDG_DATA_HOME", "~/.local/share", "opencode"),
            messages.OpencodeParser,
            _is_of_opencode,
            records=messages.records_of,
        ),
        AgentFiles(
            "Gemini CLI",
            ("GEMINI_CLI_HOME", "~", ".gemini/tmp"),
            messages.GeminiCliParser,
            _is_of_gemini,
        ),
        AgentFiles(
            "kimi-cli", ("KIMI_SHARE_DIR", "~/.kimi", "sessions"), kimi.KimiCliParser, _is_of_kimi
        ),
        AgentFiles(
            "Kimi Code",
            ("KIMI_CODE_HOME", "~/.kimi-code", "sessions"),
            kimi.KimiCodeParser,
            lambda file: file.name == "wire.jsonl" and file.parent.parent.name == "agents",
        ),
        AgentFiles(
            "mistral-vibe",
            ("VIBE_HOME", "~/.vibe", "logs/session"),
            messages.MistralVibeParser,
            lambda file: file.name == "messages.jsonl" or file.match("session_*.json"),
        ),
    )
}
_ASIDE = {"subagents", "message", "part", "snapshot"}
"""Folders that contain no sessions; three of them have many files of opencode's."""


class Search(msgspec.Struct, frozen=True):
    """What was found under a path: session files, oldest first, and skipped ones with reasons."""

    files: list[FoundFile]
    skipped: list[tuple[str, str]]
    tally: Tally

    def fail(self, error: OSError) -> None:
        """Record a path that can't be read."""
        self.skipped.append((str(error.filename), str(error.strerror).lower()))

    def take(self, file: Path) -> None:
        """Add a file of sessions, or the reason why it is none."""
        try:
            found = os.lstat(file)
            if file.suffix == ".db" and stat.S_ISREG(found.st_mode) and found.st_size:
                self.files.extend(messages.sessions_of(file))
                return
        except OSError as error:
            self.fail(error)
            return
        if stat.S_ISLNK(found.st_mode):
            self.skipped.append((str(file), "it is a link"))
        elif not stat.S_ISREG(found.st_mode):
            self.skipped.append((str(file), "it is not a regular file"))
        elif found.st_size == 0:
            self.skipped.append((str(file), "it is empty"))
        else:
            changed_at = datetime.fromtimestamp(found.st_mtime, UTC)
            self.files.append(FoundFile(file, found.st_size, changed_at))

    def leave(self, agent: AgentFiles, file: Path) -> None:
        """Record a file whose name is not a session's: each log by name, others as a count."""
        if file.name.endswith(_LOGS) and agent.name == "codex":
            why = f"its name is not a session's; `ragmem import {agent.name} FILE` reads it"
            self.skipped.append((str(file), why))
        elif file.name.endswith(".gz"):
            self.skipped.append((str(file), "it is compressed; unpack it first"))
        else:
            self.tally.left_out["files of other names"] += 1


def find_files(agent: AgentFiles, path: Path) -> Search:
    """Find files that may contain sessions, following no links; OSError for an unreadable path."""
    search = Search([], [], Tally())
    if not stat.S_ISDIR(os.stat(path).st_mode):
        search.take(path)
        return search
    for folder, folders, names in os.walk(path, onerror=search.fail):
        search.tally.left_out["folders of subagents"] += folders.count("subagents")
        folders[:] = sorted(set(folders) - _ASIDE)
        files = [Path(folder, name) for name in sorted(names)]
        taken = {file for file in files if agent.takes(file)}
        if any(file.suffix == ".db" for file in taken):
            folders.clear()  # the folders below have been migrated to the database
        for file in files:
            if file not in taken:
                search.leave(agent, file)
            elif agent.name == "claude-code" and file.name.startswith("agent-"):
                search.tally.left_out["files of subagents"] += 1
            else:
                search.take(file)
        links = (each for name in folders if os.path.islink(each := os.path.join(folder, name)))
        search.skipped.extend((link, "it is a link") for link in links)
    search.tally.left_out += Counter()  # drops counts of zero
    search.files.sort(key=lambda found: (found.changed_at, found.file, found.session))
    return search


def agents_here(given: Mapping[str, str]) -> list[str]:
    """Return the names of the agents that have sessions on this machine."""
    return [
        agent.label
        for agent in AGENTS.values()
        if any(
            agent.takes(Path(folder, name))
            for folder, _, names in os.walk(agent.folder(given))
            for name in names
        )
    ]


def session_ids_of(foreign_id: str, given: Mapping[str, str]) -> list[str]:
    """Return our ids for sessions to which agents may have given this id, or one that ends with it.

    Our id is a hash of the whole foreign id, which is stored nowhere: an end of one is looked up in
    the file names where agents keep their sessions.
    """
    found = [session_id_of(agent, foreign_id) for agent in AGENTS]
    if len(foreign_id) < _LEAST_TAIL:
        return found
    for agent in AGENTS.values():
        names = (name for _, _, names in os.walk(agent.folder(given)) for name in names)
        for stem in (name.partition(".")[0] for name in names):
            if stem.endswith(foreign_id):
                # There may be a date before the id.
                whole = {stem, stem[-_UUID_CHARS:]}
                found += [session_id_of(agent.name, each) for each in sorted(whole)]
    return found


def titles_beside(agent: AgentFiles, path: Path, files: list[FoundFile]) -> dict[str, str]:
    """Return the titles of sessions that are not in their own files."""
    titles: dict[str, str] = {}
    if agent.titled is None:
        return titles
    sources: Iterable[tuple[Path, int | None]]
    if agent.name == "codex":
        indexes = (each / "session_index.jsonl" for each in (path, *path.absolute().parents))
        sources = islice(((each, None) for each in indexes if each.is_file()), 1)
    else:
        sources = [(found.file, _HEAD_RECORDS) for found in files]
    for file, limit in sources:
        # Unreadable files are reported when their turns are read.
        with suppress(OSError), opened(file) as source:
            for record in islice(records(source, Tally()), limit):
                key, title = (text(record, name) for name in agent.titled)
                if key and title.strip():
                    titles[key] = title
    return titles


_BATCH = 50
"""Maximum number of turns in a transaction."""
_BATCH_CHARS = 4_000_000
"""Approximate maximum of characters in a transaction."""


class Importer:
    """Imports files into a store, one after the other; with `dry_run` it stores nothing."""

    def __init__(
        self,
        store: Archive | None,
        *,
        now: datetime,
        titles: Mapping[str, str],
        only_cwd: str | None = None,
        dry_run: bool = False,
    ) -> None:
        """Import into a store; None if there is none yet, and none is to be created."""
        self.store = store
        self.is_dry = dry_run or store is None
        self._projects: list[Project] | None = None
        self._new_projects: set[str] = set()
        self._now = now
        self._titles = titles
        self._only_cwd = only_cwd

    async def take(self, agent: AgentFiles, found: FoundFile, tally: Tally) -> Outcome:
        """Import a file, as far as it can be read; StoreError if it can't be stored."""
        if self._projects is None:
            self._projects = await self.store.projects() if self.store else []
        parser = agent.parser(found, tally, now=self._now, titles=self._titles)
        batches = _batches(agent, parser, found, tally)
        session: _Session | None = None
        try:
            while batch := await asyncio.to_thread(next, batches, ()):
                if parser.facts.subagent:
                    tally.left_out["files of subagents"] += 1
                    return Outcome(state="empty")
                if session is None:
                    session = _Session(self, agent, found, parser)
                    await session.look_up()
                    if self._only_cwd not in (None, session.session.cwd):
                        return Outcome(state="other_folder")
                await session.add(batch)
            if session is None:
                return Outcome(state="empty")
            await session.complete()
        except (_Unreadable, StoreRefused) as failed:
            if session is None:
                return Outcome(state="refused", reason=str(failed))
            return session.outcome(str(failed))
        return session.outcome()

    def place(self, folder: str) -> tuple[str, Project, Callable[[str], str]]:
        """Return a session's folder, its project, and a function that converts paths to store.

        The folder need not exist any more.
        """
        folder, known = clean(folder), self._projects or []
        if os.path.isabs(folder):
            cwd = normalize_cwd(folder)
            project = locate(cwd, known, now=self._now).project
            folder, top = folder_name(cwd), real_folder(project.path, cwd)
            stored = partial(stored_path, cwd=cwd, project=top)
        else:
            # A folder of another system: only its name is known.
            project = project_of_folder(Path(folder), known, now=self._now)
            stored = partial(str)
        if project not in known:
            others = (each for each in known if each.project_id != project.project_id)
            self._projects = [*others, project]
            self._new_projects.add(project.project_id)
        return folder, project, stored

    def registrations(self, project: Project) -> Sequence[Write]:
        """Return the writes that register the project, to go with its first session."""
        return registrations(project) if project.project_id in self._new_projects else ()


class _Unreadable(Exception):
    """A file that can't be read, or not to its end; raised before the store is involved."""


class _Session:
    def __init__(
        self, importer: Importer, agent: AgentFiles, found: FoundFile, parser: SessionParser
    ) -> None:
        self._importer = importer
        self._store = importer.store
        facts = self._facts = parser.facts
        cwd, self._project, self._stored_path = importer.place(facts.cwd or str(found.file.parent))
        started_at = facts.started_at or facts.last_at
        self.session = Session(
            session_id=session_id_of(agent.name, facts.foreign_id),
            cwd=cwd,
            project_id=self._project.root_id,
            project_path=self._project.path,
            tags=(agent.name,),
            started_at=started_at,
            updated_at=started_at,
            last_activity_at=started_at,
        )
        self._parents: list[tuple[str, str]] = []
        """Messages of the session that it was forked from, while its turns may be shared ones."""
        self._shared = 0
        """Number of its first turns that are its parent's."""
        self._position = 0
        """Number of turns read from the file so far."""
        self._is_new = True
        self._held: dict[str, tuple[int, str]] = {}
        self._next = 1
        self._added = self._changed = self._known = self._calls = 0

    async def look_up(self) -> None:
        """Read what the store has of the session, or of its parent."""
        if self._store is None:
            return
        for held in await self._store.get(Session, [self.session.session_id]):
            self.session, self._is_new = held, False
            turns = await self._store.turns(held.session_id, WITHOUT_CALLS)
            self._held = {turn.turn_id: (turn.turn_index, turn.status) for turn in turns}
            self._next = held.turn_count + 1
            self._shared = held.forked_at_index or 0
            return
        for parent in await self._store.get(Session, [self._facts.forked_from]):
            turns = await self._store.turns(parent.session_id, WITHOUT_CALLS)
            self._parents = [(turn.user_message, turn.assistant_message) for turn in turns]

    async def add(self, batch: Sequence[PutTurn]) -> None:
        """Store those turns that are new, or more complete than the stored ones."""
        before = self._added, self._changed, self._calls
        writes: list[Write] = [ready for put in batch if (ready := await self._to_put(put))]
        if not writes or self._importer.is_dry or self._store is None:
            return
        if self._is_new:
            begin = redacted(PutSession(session=self.session))
            writes = [*self._importer.registrations(self._project), begin, *writes]
        failpoint("transfer.apply")
        try:
            await self._store.apply(writes)
        except StoreRefused:
            self._added, self._changed, self._calls = before
            raise
        failpoint("transfer.applied")
        self._is_new = False

    async def complete(self) -> None:
        """Store the title, which may be at the end of the file, and the last activity's time."""
        held, facts = self.session, self._facts
        title = held.title
        first = one_line(redact(facts.first_prompt), TITLE_LIMIT)
        if title in (DEFAULT_TITLE, first):  # it was not renamed here
            title = facts.title or first or title
        went_on = self._added or self._changed
        self.session = msgspec.structs.replace(held, title=title)
        if self._importer.is_dry or self._store is None or self._is_new:
            return  # without new turns of its own it is not stored
        if not went_on and title == held.title:
            return
        last_at = max(facts.last_at, held.last_activity_at) if went_on else held.last_activity_at
        self.session = msgspec.structs.replace(
            self.session, updated_at=max(last_at, held.updated_at), last_activity_at=last_at
        )
        await self._store.apply([redacted(PutSession(session=self.session))])

    def outcome(self, refused: str = "") -> Outcome:
        """Return the result."""
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

    async def _to_put(self, put: PutTurn) -> PutTurn | None:
        """Return the turn as it is to be stored; None if it is stored like this already."""
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
                self.session,
                parent_session_id=self._facts.forked_from,
                forked_at_index=self._shared,
            )
        return False

    def _stored(self, put: PutTurn, index: int) -> PutTurn:
        accesses = {
            call_id: tuple(
                msgspec.structs.replace(
                    each, path=redact(clean(self._stored_path(each.path))), turn_index=index
                )
                for each in found
            )
            for call_id, found in put.accesses.items()
        }
        turn = msgspec.structs.replace(put.turn, turn_index=index)
        return redacted(PutTurn(turn=turn, accesses=accesses))


def _comparable(put: PutTurn) -> PutTurn:
    """Return the turn with sorted accesses, as the file has them in another order than stores."""
    accesses = {
        call_id: tuple(sorted(found, key=lambda each: (each.path, each.access_type)))
        for call_id, found in put.accesses.items()
    }
    return msgspec.structs.replace(put, accesses=accesses)


def _batches(
    agent: AgentFiles, parser: SessionParser, found: FoundFile, tally: Tally
) -> Iterator[list[PutTurn]]:
    """Yield turns in batches while they are read: a file is never in memory as a whole."""
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

"""The composition root: builds an App from a Config; background.py assembles its worker.

Nothing expensive happens before it is needed: the store opens on first use, and the model's client
is imported when an agent is created.
"""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec

from ragmem import __version__
from ragmem.background import (
    INLINE_S,
    Background,
    configured_embedder,
    leave_to_a_process,
    service_of,
    standalone,
)
from ragmem.children import return_memory
from ragmem.config import Config, Paths, ScopeName, address as addresses, environment
from ragmem.errors import (
    AmbiguousSession,
    ConfigError,
    SessionNotFound,
    StoreError,
    UsageError,
)
from ragmem.files import TemporaryFolder
from ragmem.index.codebase import Codebase
from ragmem.libraries import load_neo4j
from ragmem.logs import deleted_sessions, logging_to
from ragmem.memory.facts import Remembered
from ragmem.memory.memory import Memory
from ragmem.memory.projects import (
    Located,
    Places,
    folder_name,
    folder_of_git,
    gone,
    joinable,
    joined_text,
    moved_text,
    normalize_cwd,
    real_folder,
)
from ragmem.memory.recall import Hit, Question, scope_of, sessions_by_id
from ragmem.memory.recording import TAIL_SUFFIX, RequestLog, Tail
from ragmem.memory.sessions import find_session, moved_here, newest_is_stored
from ragmem.records import ASKED, Project, Session, SessionQuery, SessionStatus, ToolCall, TurnQuery
from ragmem.redact import know, protect_process, secrets_among
from ragmem.store import Archive, Store, open_store, owner_of_file
from ragmem.store.spool import Patience, SpooledStore
from ragmem.store.spool.files import last_store_id
from ragmem.tools.base import Approver
from ragmem.tools.permissions import PermissionRules
from ragmem.usage import UsageLog

if TYPE_CHECKING:
    from ragmem.agent import Agent, Options, Shared
    from ragmem.config.address import Address
    from ragmem.index.index import CodeIndex
    from ragmem.tools.mcp_client import Servers
    from ragmem.tools.sandbox import Sandbox
    from ragmem.tools.shell import Job, Jobs
    from ragmem.tools.skills import SkillSet


_CHAT_LOOKBACK = (10, 200)
"""How many sessions are searched for the newest chat: at first, and if none is among those."""
_SEEN_LOOKBACK = 200
"""Files read in this many of the latest turns need not be read again before an edit."""


class App:
    """One process of ragmem: `async with App(config, paths, cwd=…) as app`.

    With an `address` it is a guest in someone else's process, which it leaves unchanged. `patient`:
    nobody is typing meanwhile, so it waits for stored data, as long as a guest does. `everyone`:
    sessions of other users of a shared store can be continued too. `brief`: the process ends soon,
    so it first asks a process that has loaded what a search needs, and assumes that a graph's
    schema is complete. `say` is called immediately with what the user has to wait for; without it
    that becomes an ordinary notice.
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        config: Config,
        paths: Paths,
        *,
        cwd: Path,
        ephemeral: bool = False,
        patient: bool = False,
        everyone: bool = False,
        brief: bool = False,
        say: Callable[[str], None] | None = None,
        address: "Address | None" = None,
    ) -> None:
        self.config = config
        self.paths = paths
        self.usage = UsageLog(paths.data_dir)
        self.metrics = self.usage.metrics
        self.cwd = normalize_cwd(cwd)
        self._guest = address is not None
        self._patient = patient or self._guest
        self._brief = brief
        self._address = address or addresses.configured(config, paths, environment())
        self.embedder = configured_embedder(config, paths) if config.memory.enabled else None
        service = None
        if brief and self.embedder:
            service = service_of(config, paths, self._address.spool)
        spool = paths.spool_dir / self._address.spool
        tail = Tail(spool.with_name(f"{spool.name}{TAIL_SUFFIX}"), partial(last_store_id, spool))
        self.memory = Memory(
            self.store,
            config.memory,
            records=not ephemeral,
            embedder=self.embedder,
            service=service,
            tail=tail if config.memory.enabled else None,
            requests=RequestLog(paths.data_dir),
            on_finished=self._turn_finished,
            on_written=self._show_written,
            metrics=self.metrics,
        )
        self._everyone = everyone
        top = folder_of_git(self.cwd)
        self.rules_folder = folder_name(top)
        """The folder that identifies this project in the settings."""
        user, own = config.permissions, config.permissions.of_project(self.rules_folder)
        here = (own.allow, own.deny)
        self.rules = PermissionRules(user.allow, user.deny, here=here, project=str(top))
        self.remembers = True
        """False if memory is enabled but its folder can't be used."""
        self._notices: list[str] = []
        self._moved = ""
        """The latest notice that this folder was moved from elsewhere."""
        self._say_at_once = say or self._say
        self.codebase = Codebase(
            config,
            paths,
            open_store=self._store_itself if self.memory.records else None,
            embedder=self.embedder,
            metrics=self.metrics,
            writes=not ephemeral and not self._guest,
            service=service,
            leave_vectors=lambda: self.background.leave_vectors(),
        )
        self.background = Background(
            config,
            paths,
            self.memory,
            self.store,
            self.embedder,
            usage=self.usage,
            codebase=None if self._guest else self.codebase,
            say=self._say,
        )
        self._store: SpooledStore | None = None
        self._agents: list[Agent] = []
        self._skill_sets: dict[Path, SkillSet] = {}
        self.servers: Servers | None = None
        """The MCP servers; None before the first agent, or if none is configured."""
        self._places = Places(self.memory, self.store, self.cwd)
        self._preparing: asyncio.Task[None] | None = None
        self._exit = ExitStack()
        know(secrets_among(environment()) | config.passwords())
        know({"Neo4j password": paths.neo4j_password})

    @cached_property
    def jobs(self) -> "Jobs":
        """The background commands; created lazily, since most processes start none."""
        from ragmem.tools.shell import Jobs

        return Jobs(self.work_dir / "outputs", self._job_ended)

    @cached_property
    def work_dir(self) -> Path:
        """The folder for outputs of commands and for files before edits.

        If nothing is recorded, it is a temporary one, which goes with the process.
        """
        if self.memory.records:
            return self.paths.data_dir
        folder = TemporaryFolder()
        self._exit.callback(folder.close)
        return folder.path

    @cached_property
    def sandbox(self) -> "Sandbox":
        """The sandbox for commands."""
        from ragmem.tools.sandbox import Sandbox

        private, rules = (*self.paths.own_folders, self.work_dir), self.rules
        return Sandbox(self.config.sandbox, private=private, not_in=(self.cwd,), rules=rules)

    async def __aenter__(self) -> Self:
        """Create the folders, start logging, and keep other processes out of this one's memory."""
        try:
            self.paths.make()
        except ConfigError as error:
            if self.config.memory.enabled:
                raise
            self.remembers = False
            self._notices.append(f"Nothing is being remembered: {error} {error.hint}")
        else:
            if loose := self.paths.close_to_others():
                self._notices.append(loose)
        logs = logging_to(self.paths.log_dir, self._say, version=__version__)
        self._exit.enter_context(logs)
        if not self._guest:
            protect_process()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop what is running, write what is pending, close the store."""
        for agent in self._agents:
            await agent.aclose()
        if "jobs" in vars(self):
            await self.jobs.stop(*self.jobs.running)
        if self.servers:
            await self.servers.aclose()
        if self._preparing:
            self._preparing.cancel()
            await asyncio.gather(self._preparing, return_exceptions=True)
        if "sandbox" in vars(self):
            self.sandbox.close()
        await self.codebase.aclose()
        await self.background.aclose()
        await self.memory.aclose()
        try:
            if self._store:
                await self._store.aclose()
        except StoreError:
            # The first error says more; a cancellation is how a chat ends.
            if error is None or isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._exit.close()

    def _say(self, text: str) -> None:
        self._notices.append(text)

    def _job_ended(self, job: "Job") -> None:
        self._notices.append(f"{job.title}: {job.state}. /jobs {job.number} shows its output.")

    def _turn_finished(self) -> None:
        self.background.wake()
        if not self._brief:
            self.background.keep_usage()
            return_memory()

    def _show_written(self, fact: Remembered) -> None:
        if not self._guest:
            from ragmem.agent import announce

            self._notices += announce(fact, self._agents)

    def notices(self) -> list[str]:
        """Return the notices to show, each once, and clear the list."""
        notices, self._notices = self._notices, []
        return notices + (self._store.take_notices() if self._store else [])

    def why_away(self) -> str:
        """Return why new turns are not stored, or not yet; empty if they are."""
        return self._store.why_away() if self._store else ""

    # --- store ------------------------------------------------------------------

    async def store(self) -> SpooledStore:
        """Return the configured store, which opens when it is first used.

        Writes wait in the spool while it is unavailable.
        """
        if self._store is None:
            spools = self.paths.spool_dir
            older = [spools / name for name in self._address.older_spools]
            limit_s = self.config.store.timeout_s
            # Nobody is typing, as with a guest: a program needs what it stored rather than speed.
            patient = Patience(stall_s=limit_s + 1, read_s=2 * limit_s)
            patience = patient if self._patient else Patience()
            self._store = SpooledStore(
                self._open_store,
                spools / self._address.spool,
                older=older,
                patience=patience,
                deleted=partial(deleted_sessions, self.paths.log_dir, self.config.store.kind),
            )
        # A silent store is given up on quickly, but one that is being created is waited for.
        await self._store.opened()
        return self._store

    @property
    def owner_id(self) -> str:
        """The id of this home's owner; empty if unknown."""
        return owner_of_file(self.paths)

    async def export_session(self, session_id: str) -> dict[str, Any]:
        """Return a session with everything that belongs to it, as JSON-compatible values."""
        from ragmem.store.transfer.document import document_of

        document = await document_of(await self._archive(), session_id)
        exported: dict[str, Any] = msgspec.to_builtins(document)
        return exported

    async def import_session(self, data: bytes, *, as_new: bool) -> Session:
        """Store an exported session, given as JSON; raises UsageError if it exists already.

        Its memories lose their standing, whoever owns them, since nobody is asked here.
        """
        from ragmem.store.transfer.document import (
            decoded,
            import_document,
            without_others_standing,
        )

        store = await self._archive()
        document = await without_others_standing(
            store, decoded(data), self.owner_id, was_asked=False
        )
        return await import_document(store, document, as_new=as_new)

    async def _archive(self) -> Archive:
        """Return the store itself, with nothing waiting in its spool."""
        store = await self.store()
        await store.sessions(SessionQuery(limit=1))
        return cast(Archive, await store.inner())

    async def _store_itself(self) -> Store:
        """Bypass the spool for data that can be sent again at any time, and would only block it."""
        return await (await self.store()).inner()

    async def _open_store(self) -> Store:
        where = self._address
        with self.metrics.time("store.open"):
            if self.config.store.kind == "neo4j" and not self._guest:
                load_neo4j()
            store, notice = await open_store(
                self.config,
                self.paths,
                environment(),
                database=where.database,
                locks_dir=where.locks_dir,
                say=self._store_is_made,
                existing=self._store is not None and self._store.was_open,
                brief=self._brief,
            )
        self._notices += [notice] if notice else []
        return store

    def _store_is_made(self, what: str) -> None:
        self._say_at_once(what)
        if self._store:
            self._store.note_creation()

    def start_background(self, *, model: str = "") -> None:
        """Embed, summarize and keep the code index current, alongside the conversation."""
        if self.memory.records and self.config.memory.worker != "off":
            self.background.start(model=model)
        self.codebase.keep_current()

    async def leave_background(self, *, model: str = "") -> None:
        """Do the pending work as `memory.worker` says, before a short process ends."""
        if not self.memory.records:
            return
        match self.config.memory.worker:
            case "inline":
                await self.background.drain(INLINE_S, model=model)
            case "detached":
                leave_to_a_process(self.paths, model=model)

    async def code(self) -> "CodeIndex | None":
        """Return the code index of this folder's project; None if there is none."""
        return self.codebase.index_of((await self._places.here()).project)

    # --- sessions ---------------------------------------------------------------

    async def start_session(self, *, title: str = "") -> Session:
        """Return a new session in this folder; it is written with its first prompt."""
        located = await self._locate()
        return self.memory.new_session(self.cwd, located.project, title=title)

    async def continue_session(self, *, chats: bool = False, wait_s: float = 10) -> Session | None:
        """Return the newest session of this folder that is not archived; None if there is none.

        With `chats`, prefers the newest that is not a one-off question. Waits for a session that
        another process has yet to store. Raises StoreUnavailable.
        """
        if tail := self.memory.tail:
            await newest_is_stored(await self.store(), tail, self.cwd, wait_s)
        newest: list[Session] = []
        for limit in _CHAT_LOOKBACK if chats else (1,):
            found = await self.sessions_here(limit, status="active")
            talked = [each for each in found if ASKED not in each.tags] if chats else []
            newest = (talked or found)[:1]
            if talked or len(found) < limit:
                break
        if newest and newest[0].cwd != folder_name(self.cwd):
            await self._locate()  # leaves a notice of where the folder was
        return self.memory.recollect(newest[0]) if newest else None

    async def sessions_here(
        self, limit: int, *, status: SessionStatus | None = None
    ) -> list[Session]:
        """Return this user's newest sessions of this folder, or everyone's.

        While the store is unavailable, those kept next to it. If there are none, those of the same
        folder at the project's previous location.
        """
        cwd = folder_name(self.cwd)
        query = SessionQuery(cwd=cwd, status=status, mine=not self._everyone, limit=limit)
        try:
            return await self.memory.sessions(query) or await moved_here(
                self.memory, self.cwd, query
            )
        except StoreError:
            tail = self.memory.tail
            if tail and (found := await asyncio.to_thread(tail.sessions, cwd, limit)):
                return found
            raise

    async def find_session(self, reference: str, *, mine: bool = False) -> Session:
        """Find a session by id, end of an id or name, or by another agent's id of an imported
        session.

        Raises SessionNotFound or AmbiguousSession.
        """
        try:
            return await self.memory.find_session(reference, mine=mine)
        except SessionNotFound:
            from ragmem.importers.importer import session_ids_of

            ids = await asyncio.to_thread(session_ids_of, reference, environment())
            imported = await sessions_by_id(await self.store(), ids)
            if not imported:
                raise
            if len(imported) > 1:
                raise AmbiguousSession(
                    f"{reference} matches the ids of several sessions of other agents.",
                    candidates=tuple(imported),
                    hint="Use ragmem's own id of the session.",
                ) from None
        return await self.memory.find_session(next(iter(imported)), mine=mine)

    async def resume_session(self, reference: str) -> Session:
        """Find one of `sessions_here`, as `find_session` does, also while the store is unavailable.

        Raises SessionNotFound or AmbiguousSession.
        """
        try:
            return await self.find_session(reference, mine=not self._everyone)
        except StoreError as error:
            if self.memory.tail is None:
                raise
            try:
                found = await find_session(self.memory.tail, reference)
            except SessionNotFound:
                raise error from None
            return self.memory.recollect(found)

    async def fork_session(self, session: Session) -> Session:
        """Return an independent copy of a session; the session itself if nothing is recorded."""
        return await self.memory.fork(session) if self.memory.records else session

    async def _locate(self) -> Located:
        located = await self._places.here()
        moved = moved_text(located)
        if moved != self._moved:
            self._notices += [moved] if moved else []
            self._moved = moved
        return located

    async def join_worktree(self) -> None:
        """Join the memory of a worktree with its repository's, and leave a notice.

        A worktree that the user has split off stays so. Raises StoreError.
        """
        located = await self._places.here()
        project, main = located.project, located.apart_from
        if not self.memory.records:
            return
        if main is not None:
            await self.memory.join(project, main, chosen=False)
        elif located.is_new and project.joined_into and not located.moved_from:
            # Takes effect with the worktree's first session: nothing is written before.
            known = await (await self.store()).projects()
            main = next((p for p in known if p.project_id == project.joined_into), None)
        self._notices += [joined_text(main)] if main else []

    async def is_seen_first(self) -> bool:
        """Return whether this folder is unknown, and a session here will make it known."""
        located = await self._places.here()
        return self.memory.records and located.is_new and not located.moved_from

    async def joinable_projects(self) -> tuple[Project, list[Project], list[Project]]:
        """Return this folder's project, and the projects that it can be joined with.

        First those of the same repository or remote, then the user's own whose folder is gone;
        separately.
        """
        project = (await self._places.here()).project
        known = await (await self.store()).projects()
        same = joinable(project, known, self.cwd)
        theirs = [each for each in gone(project, known) if each not in same]
        return project, same, [each for each in theirs if await self._is_own(each)]

    async def _is_own(self, project: Project) -> bool:
        """Return whether the user has sessions in a project."""
        query = SessionQuery(project_ids=(project.project_id,), mine=True, limit=1)
        return bool(await self.memory.sessions(query))

    async def search(
        self,
        text: str,
        *,
        scope: ScopeName | None = None,
        session: Session | None = None,
        levels: tuple[int, ...] = (),
        semantic: bool = True,
        max_results: int = 10,
    ) -> list[Hit]:
        """Search earlier turns and summaries for what is relevant to a text, best first.

        The scope is relative to `session` if one is given, else to this folder's project.
        """
        session = session or await self.start_session()
        return await self.memory.search(
            Question(
                text=text,
                scope=scope_of(session, scope or self.config.memory.scope),
                session_id=session.session_id,
                levels=levels,
                semantic=semantic,
                max_results=max_results,
            )
        )

    # --- agents -----------------------------------------------------------------

    async def agent(self, session: Session, options: "Options", approver: Approver) -> "Agent":
        """Create an agent in the session; raises NoModel, ConfigError or UsageError."""
        from ragmem.agent import create_agent
        from ragmem.llm.models import about, choose_effort, choose_model, open_llm

        environ = environment()
        choice = choose_model(self.config, environ, flag=options.model)
        if options.max_budget_usd is not None and choice.info.input_usd_per_token is None:
            raise UsageError(
                f"--max-budget-usd can't be enforced: the price of {choice.name} is not known.",
                hint="Leave out the flag, or choose a model with a known price (`ragmem models`).",
            )
        effort = choose_effort(choice.info, self.config, options.effort)
        llm = open_llm(choice, self.config, self.paths, environ)
        self._notices += about(choice, self.usage)
        project = await self._places.project_of(session)
        agent = create_agent(
            self._shared,
            session,
            project,
            msgspec.structs.replace(options, effort=effort),
            llm=llm,
            approver=approver,
            before=await self._earlier_calls(session),
            skill_set=self._skill_set(real_folder(project.path, self.cwd)),
        )
        self._agents = [*(each for each in self._agents if not each.is_closed), agent]
        if self._preparing is None:
            self._preparing = asyncio.create_task(self._prepare())
        return agent

    @cached_property
    def _shared(self) -> "Shared":
        from ragmem.agent import Shared

        if self.config.mcp.servers:
            from ragmem.tools.mcp_client import Servers

            # This starts no server yet.
            self.servers = Servers(
                self.config.mcp.servers,
                cwd=self.cwd,
                apart=self.paths.config_dir,
                timeout_s=self.config.tools.command_timeout_s,
                say=self._say,
                waits=self._brief,
            )
        return Shared(
            config=self.config,
            paths=self.paths,
            work_dir=self.work_dir,
            cwd=self.cwd,
            memory=self.memory,
            codebase=self.codebase,
            rules=self.rules,
            jobs=self.jobs,
            sandbox=lambda: self.sandbox,
            servers=self.servers,
            metrics=self.metrics,
            say=self._say,
            notices=self.notices,
        )

    async def skill_set(self, session: Session) -> "SkillSet":
        """Return the skills and commands of the session's project, and the user's own."""
        project = await self._places.project_of(session)
        return self._skill_set(real_folder(project.path, self.cwd))

    def _skill_set(self, top: Path) -> "SkillSet":
        from ragmem.tools.skills import SkillSet

        if top not in self._skill_sets:
            home = Path(environment().get("HOME") or self.paths.config_dir)
            own = (self.paths.config_dir, home / ".claude")
            agreed = self.paths.data_dir / "agreed.json"
            skill_set = self._skill_sets[top] = SkillSet(own, top, agreed)
            self._notices += [skill_set.problem] if skill_set.problem else []
        return self._skill_sets[top]

    async def _prepare(self) -> None:
        # First, because a short answer does not wait for the rest.
        if notice := await self.background.vectors_notice():
            self._notices.append(notice)
        await self.memory.prepare()
        if self.config.sandbox.mode != "off" and not self._brief:
            # Tested before the first command needs it, and so that the chat can report it. Created
            # here on the event loop, as everywhere else: of two created at once, one would be lost.
            sandbox = self.sandbox
            await asyncio.to_thread(lambda: sandbox.mechanism)

    async def _earlier_calls(self, session: Session) -> list[ToolCall]:
        """Return a continued session's latest tool calls; leaves a notice if it is shared."""
        if not session.turn_count:
            return []
        calls = []
        with suppress(StoreError):
            turns = await (await self.store()).turns(
                session.session_id, TurnQuery(limit=_SEEN_LOOKBACK)
            )
            calls = [call for turn in turns for call in turn.tool_calls]
        if others := await self.memory.attach(session):
            self._notices.append(
                f"{others} other process{'es are' if others > 1 else ' is'} in this session: "
                "all are recorded, and their turns don't mix."
            )
        return calls


# --- the detached process -----------------------------------------------------------


async def work_alone(config: Config, paths: Paths, *, model: str = "") -> bool:
    """Do the pending work of a home's store.

    Returns False if another process is doing it, or if there is no store, which is not created.
    """
    from ragmem import background

    if config.store.kind == "sqlite" and not paths.database.exists():
        return False
    async with App(standalone(config), paths, cwd=paths.data_dir) as app:
        return await background.work_alone(app.background, paths, model=model)


async def answer_others(config: Config, paths: Paths) -> None:
    """Answer searches of other processes of a home while they keep coming."""
    from ragmem import background

    where = addresses.configured(config, paths, environment())

    async def opened() -> Store:
        store, _ = await open_store(
            config,
            paths,
            environment(),
            database=where.database,
            locks_dir=where.locks_dir,
            say=lambda _: None,
            existing=True,
        )
        return store

    await background.answer_others(config, paths, opened, where.spool)

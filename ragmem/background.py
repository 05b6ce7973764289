"""Background work: done by this process, or left to a detached one.

There is at most one detached process per home. It does the work pending in the store, and ends when
nothing is left, or after ten minutes; if a large project still lacks embeddings, it starts a
successor. Before it ends it answers other processes' searches for a while (`ragmem.service`),
without holding the worker's lock.
"""

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from ragmem import __version__
from ragmem.config import Config, Paths, environment
from ragmem.embedder import (
    Embedder,
    Spent,
    answering,
    changed,
    is_shipped,
    open_embedder,
    thresholds,
)
from ragmem.errors import (
    ConfigError,
    NoModel,
    SessionNotFound,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from ragmem.files import is_held, lock, make_private
from ragmem.ids import new_id
from ragmem.index import CodeHit
from ragmem.index.codebase import CODE, PASSAGES, Codebase, CodeRequest
from ragmem.llm.base import LLM
from ragmem.memory.context.collect import ProjectCode
from ragmem.memory.facts import FactHit, FactQuestion
from ragmem.memory.facts.facts import FACTS, Facts
from ragmem.memory.leases import HeldStore
from ragmem.memory.memory import Memory, OpenStore
from ragmem.memory.recall import FIND, Found, Question, Recall, import_all
from ragmem.records import CodeStore, Session, Usage
from ragmem.redact import redact
from ragmem.service import Client, Handlers, serve
from ragmem.usage import Metrics, UsageLog

if TYPE_CHECKING:
    from ragmem.memory.facts.extraction import Extractor
    from ragmem.memory.summaries.summarizer import Summarizer
    from ragmem.memory.worker import Worker


COMMAND = "work"
"""The hidden command that runs in the detached process."""
LONGEST_S = 600.0
INLINE_S = 60.0
"""Limit for pending work before a short process ends, with `memory.worker = "inline"`."""
_LOCK = "worker.lock"
_EMBEDDER_LOCK = "embedder.lock"
_LOCK_WAIT_S = 0.5
"""Waits this long for the lock, because a check for a running worker holds it briefly."""


class Background:
    """The worker of this process, with its own client of the small model."""

    def __init__(
        self,
        config: Config,
        paths: Paths,
        memory: Memory,
        open_store: OpenStore,
        embedder: Embedder | None,
        *,
        usage: UsageLog,
        codebase: Codebase | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Set the dependencies; `say` receives messages for the user, each once."""
        self._config = config
        self._paths = paths
        self._codebase = codebase
        self._memory = memory
        self._open_store = open_store
        self._embedder = embedder
        self._usage = usage
        self._metrics = usage.metrics
        self._llm: LLM | None = None
        self._worker: Worker | None = None
        self._summarizer: Summarizer | None = None
        self._notice_given = False
        self._say = say
        self._alongside = False
        """Whether it works alongside a conversation."""
        self._everywhere: bool | None = None
        """While draining: whether to embed all projects' code, or only this process's own."""
        self._model = ""
        self._kept = Spent()
        """What had been embedded when it was last stored."""

    @property
    def embedder_model(self) -> str:
        """The model that embeds; empty if embeddings are disabled."""
        return self._embedder.info.model_id if self._embedder else ""

    def spent(self, session_id: str) -> Usage:
        """Return the usage of all model calls for a session, by any process of this home."""
        found = self._usage.spent(session_id)
        return Usage(
            input_tokens=found.input_tokens,
            output_tokens=found.output_tokens,
            cost_usd=None if found.calls == found.unpriced_calls else found.cost_usd,
            model_calls=found.calls,
        )

    @property
    def doing(self) -> str:
        """A word for what it works on alongside the conversation; empty while idle."""
        if self._worker and self._alongside and self._worker.doing:
            return self._worker.doing
        return "indexing" if self._codebase and self._codebase.is_looking else ""

    def start(self, *, model: str = "") -> None:
        """Start working alongside the conversation; `model` is the name of the main model."""
        if self._worker is None:
            self._worker = self._make_worker(model)
            self._alongside = True
            self._worker.start()

    def wake(self) -> None:
        """Signal that there may be work, if it works alongside a conversation."""
        if self._worker and self._alongside:
            self._worker.wake()

    def leave_vectors(self) -> None:
        """Leave embeddings that are too many for a conversation's worker to a detached process."""
        if self._alongside and self._config.memory.worker == "detached":
            leave_to_a_process(self._paths, model=self._model)

    @property
    def made_vectors_of_code(self) -> bool:
        """Whether it embedded some of a project's code, which may need more time than it has."""
        return self._codebase is not None and self._codebase.made > 0

    async def drain(self, limit_s: float, *, model: str = "", everywhere: bool = False) -> bool:
        """Do the pending work, up to a time limit; returns whether nothing is left.

        Embeds the code of this process's own projects, or `everywhere`.
        """
        if self._worker:
            await self._worker.aclose()
        self._worker = self._worker or self._make_worker(model)
        self._everywhere = everywhere
        try:
            return await self._worker.drain(limit_s)
        except StoreError:
            return False

    async def _catch_up(self, store: CodeStore) -> bool:
        if self._codebase is None or self._everywhere is None:
            return False
        return await self._codebase.catch_up(store, everywhere=self._everywhere)

    async def summarize(self, session: Session, *, model: str = "") -> str:
        """Renew a session's own summary now; raises UsageError if summaries are turned off."""
        worker = self._worker = self._worker or self._make_worker(model)
        if self._summarizer is None or not self._memory.records:
            made = self._config.memory.summaries.enabled
            setting = "memory.enabled" if made else "memory.summaries.enabled"
            raise UsageError(
                "Summaries are turned off.",
                hint=(f"Set {setting} = true, and don't use --ephemeral."),
            )
        store = await self._open_store()
        try:
            stored = await store.session(session.session_id)
        except SessionNotFound:
            stored = session
        if not stored.turn_count:
            raise UsageError("There are no turns to summarize yet.")
        await store.forget_attempts(session.session_id)
        self._summarizer.ask_anew()
        return redact(await worker.summarize_thread(store, self._summarizer, stored))

    @property
    def problem(self) -> str:
        """Why the model's last answer was unusable; empty if it was usable."""
        return self._summarizer.problem if self._summarizer else ""

    async def vectors_notice(self) -> str:
        """Return, once, a notice that stored embeddings are another model's; else empty."""
        if self._notice_given:
            return ""
        self._notice_given = True
        return await self.foreign_vectors()

    async def foreign_vectors(self) -> str:
        """Return whether, and why, stored embeddings can't be compared now; empty if they can."""
        if self._embedder is None:
            return ""
        with suppress(StoreError):
            mark = await (await self._open_store()).embedder()
            if mark is not None:
                info = self._embedder.info
                # The dimension of a provider's model is unknown before its first call.
                info = msgspec.structs.replace(info, dimension=info.dimension or mark.dimension)
                return changed((mark.model_id, mark.dimension), info)
        return ""

    async def reembed(self, show: Callable[[int], None]) -> int:
        """Embed everything again with the configured embedder, or continue doing so.

        `show` receives how many more are done; returns how many there were in all.
        """
        if self._embedder is None:
            raise UsageError(
                "Embeddings are turned off.",
                hint="Set memory.enabled and memory.embeddings.enabled to true.",
            )
        from ragmem.memory.worker import reembed

        store = await self._open_store()
        return await reembed(store, self._embedder, show)

    async def back_up(self) -> None:
        """Keep one copy a day of a SQLite database, in case its disk fails."""
        if self._config.store.kind != "sqlite" or not self._memory.records:
            return
        from apsw import Error

        from ragmem.administration import Administration

        # Whatever prevents it will also affect whoever uses the database, and be reported there.
        with suppress(OSError, Error, StoreError):
            await Administration(self._config, self._paths).keep_daily_backup()

    def keep_usage(self) -> None:
        """Store what this process has measured since the last time, unless nothing is stored."""
        if not self._memory.records:
            return
        if self._embedder:
            spent, before = self._embedder.spent, self._kept
            self._metrics.count("embedder.tokens", spent.tokens - before.tokens)
            self._metrics.count("embedder.texts", spent.texts - before.texts)
            self._kept = spent
        self._usage.keep()

    async def aclose(self) -> None:
        """Stop and store the measurements; whoever comes next finds the remaining work."""
        if self._worker:
            await self._worker.aclose()
        self.keep_usage()
        if self._llm:
            await self._llm.aclose()
        if self._embedder:
            await self._embedder.aclose()

    def _make_worker(self, model: str) -> "Worker":
        from ragmem.memory.summaries.summarizer import Summarizer
        from ragmem.memory.worker import Worker

        summaries, facts = self._config.memory.summaries, self._memory.facts
        asker, self._model = None, model
        if self._config.memory.worker == "inline":
            # The user is waiting for it.
            summaries = msgspec.structs.replace(summaries, retry_pause_s=0.0)
        if summaries.enabled or (facts and self._config.memory.facts.extract):
            self._llm = summary_model(self._config, self._paths, flag=model)
            asker = Summarizer(
                self._llm,
                summaries,
                usage=self._usage,
                open_attempts=self._open_store,
                say=self._say,
                is_chosen=bool(self._config.model.summary),
            )
        self._summarizer = asker if summaries.enabled else None
        return Worker(
            self._open_store,
            self._memory.owner_id,
            embedder=self._embedder,
            summarizer=self._summarizer,
            extractor=extractor(facts, asker, self._config, self._metrics) if facts else None,
            config=summaries,
            names_sessions=True,
            linker=self._codebase,
            chores=(self._catch_up,),
            say=self._say,
            metrics=self._metrics,
        )


def configured_embedder(config: Config, paths: Paths) -> Embedder | None:
    """Return the configured embedder, loaded on first use; None if embeddings are disabled.

    The shipped one is not loaded at all if a process of this home has it (`ragmem.service`).
    """
    stays = config.memory.embeddings.idle_s
    service = Client(paths.embedder_socket, version=__version__) if stays else None
    return open_embedder(config, service)


def standalone(config: Config) -> Config:
    """Return settings for a process that loads the embedder itself, instead of asking another."""
    embeddings = msgspec.structs.replace(config.memory.embeddings, idle_s=0.0)
    memory = msgspec.structs.replace(config.memory, embeddings=embeddings)
    return msgspec.structs.replace(config, memory=memory)


def service_of(config: Config, paths: Paths, memory: str) -> Client | None:
    """Return a client of the process that searches for others, with the same settings and store.

    `memory` names the store. Returns None if no process stays to answer.
    """
    if not config.memory.embeddings.idle_s:
        return None
    settings = settings_of(config, memory)
    return Client(paths.embedder_socket, version=__version__, settings=settings)


def settings_of(config: Config, memory: str) -> str:
    """Return a hash of all settings that affect a search's result; `memory` names the store."""
    # Timeouts are each process's own, and do not affect results.
    embeddings = msgspec.structs.replace(config.memory.embeddings, idle_s=0.0, timeout_s=1.0)
    code = msgspec.structs.replace(config.code, wait_s=0.0)
    relevant = (memory, config.store, config.model.embedding, embeddings, config.memory.facts, code)
    return hashlib.sha256(msgspec.msgpack.encode(relevant)).hexdigest()


def summary_model(config: Config, paths: Paths, *, flag: str = "") -> LLM | None:
    """Return the client of the model for summaries; None if none is available."""
    from ragmem.llm.models import choose_summary_model, open_llm

    environ = environment()
    with suppress(NoModel, ConfigError):
        return open_llm(choose_summary_model(config, environ, flag=flag), config, paths, environ)
    return None


def extractor(
    facts: "Facts", asker: "Summarizer | None", config: Config, metrics: Metrics
) -> "Extractor":
    """Return the extractor that learns from turns, using a model if the settings say so."""
    from ragmem.memory.facts.extraction import Extractor

    return Extractor(facts, asker if config.memory.facts.extract else None, metrics=metrics)


def leave_to_a_process(paths: Paths, *, model: str = "") -> None:
    """Start the detached process, unless one is running."""
    if is_at_work(paths):
        return
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-P", "-m", "ragmem", COMMAND, *(["-m", model] if model else [])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=paths.data_dir,
            start_new_session=True,
            env=environment(),
        )


async def work_alone(background: Background, paths: Paths, *, model: str = "") -> bool:
    """Run as the detached process; returns False if another one is running."""
    try:
        make_private(paths.locks_dir)
        handle = lock(paths.locks_dir / _LOCK, timeout_s=_LOCK_WAIT_S)
    except (StoreUnavailable, OSError):
        return False
    try:
        done = await background.drain(LONGEST_S, model=model, everywhere=True)
        await background.back_up()
        # Processes that had work meanwhile have left it to this one, since it was running.
        done = done and await background.drain(LONGEST_S, model=model, everywhere=True)
    finally:
        os.close(handle)
    if not done and background.made_vectors_of_code:
        leave_to_a_process(paths, model=model)
    return True


def is_at_work(paths: Paths) -> bool:
    """Return whether a detached process is working for this home."""
    try:
        return is_held(paths.locks_dir / _LOCK)
    except OSError:
        return False


_SQLITE_OPEN_S = 5.0
"""How long a SQLite database stays open after a query: short, so that commands need not wait."""


class Warm:
    """Answers searches of one store and the code of its projects; writes nothing to the store.

    The store and the indexes are opened by a query, and closed when none has come for a while.
    """

    def __init__(
        self, config: Config, paths: Paths, embedder: Embedder, *, open_store: OpenStore
    ) -> None:
        self._embedder = embedder
        # An open connection to a server blocks nobody, and its embeddings take long to load.
        server = config.store.kind == "neo4j"
        held_s = config.memory.embeddings.idle_s if server else _SQLITE_OPEN_S
        self._store = HeldStore(open_store, held_s=held_s, on_close=self._close_code)
        metrics = Metrics()
        limits = thresholds(embedder.info, config.memory.embeddings)
        self._recall = Recall(self._store.opened, embedder, metrics=metrics)
        self._facts = Facts(
            self._store.opened,
            new_id(),
            embedder=embedder,
            limits=limits,
            config=config.memory.facts,
        )
        code = partial(Codebase, config, paths, open_store=None, embedder=embedder)
        self._code = {writes: code(metrics=metrics, writes=writes) for writes in (True, False)}

    @property
    def handlers(self) -> Handlers:
        """The queries that it answers."""
        return {
            **answering(self._embedder),
            FIND: (Question, self._find),
            FACTS: (FactQuestion, self._search_facts),
            CODE: (CodeRequest, self._search_code),
            PASSAGES: (CodeRequest, self._find_passages),
        }

    async def prepare(self) -> None:
        """Load whatever takes long."""
        await self._embedder.prepare()
        await asyncio.to_thread(import_module, "ragmem.memory.facts.ranking")
        await asyncio.to_thread(import_all)

    async def aclose(self) -> None:
        """Close the store and the indexes."""
        await self._store.aclose()

    async def _find(self, question: Question) -> Found:
        async with self._store.used():
            return await self._recall.find(question)

    async def _search_facts(self, asked: FactQuestion) -> list[FactHit]:
        async with self._store.used():
            return await self._facts.search(
                asked.text,
                project_id=asked.project_id,
                limit=asked.limit,
                subjects=asked.subjects,
                floor=asked.floor,
            )

    async def _search_code(self, asked: CodeRequest) -> list[CodeHit]:
        async with self._store.used():
            code = self._code[asked.writes]
            return await code.search(asked.project, asked.text, asked.limit, near=asked.near)

    async def _find_passages(self, asked: CodeRequest) -> ProjectCode:
        async with self._store.used():
            code = self._code[asked.writes]
            return await code.passages(asked.project, asked.text, near=asked.near)

    async def _close_code(self) -> None:
        for code in self._code.values():
            await code.aclose()


async def answer_others(config: Config, paths: Paths, open_store: OpenStore, memory: str) -> None:
    """Answer other processes' searches, if the shipped embedder is used, while they keep coming.

    `memory` names the store.
    """
    idle_s = config.memory.embeddings.idle_s
    if not idle_s or not config.memory.enabled or not is_shipped(config):
        return
    embedder = configured_embedder(standalone(config), paths)
    assert embedder is not None
    warm = Warm(config, paths, embedder, open_store=open_store)
    try:
        await serve(
            warm.handlers,
            paths.embedder_socket,
            paths.locks_dir / _EMBEDDER_LOCK,
            idle_s=idle_s,
            version=__version__,
            settings=settings_of(config, memory),
            prepare=warm.prepare,
        )
    finally:
        await warm.aclose()
        await embedder.aclose()

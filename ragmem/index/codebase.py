"""The code of the projects that this process works in, as the agent knows it.

An index for each project's folder, looked at in the background and kept current in a chat; what
of it bears on a prompt; and what turns have to do with it. All of it is an extra: what can't be
had in time is left out, and the turn goes on.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import msgspec

from ragmem.config import Config, Paths
from ragmem.embedder import SHIPPED, CachedEmbedder, Embedder, thresholds
from ragmem.errors import RagmemError, StoreError
from ragmem.files import NO_HOME, refusal
from ragmem.index import CodeHit, Refreshed
from ragmem.memory.context.collect import CodePassage, ProjectCode
from ragmem.memory.turns import question_words
from ragmem.records import CodeStore, Pending, Project
from ragmem.service import SEARCH_S, Client
from ragmem.usage import Metrics

if TYPE_CHECKING:
    from ragmem.index.index import CodeIndex
    from ragmem.index.links import TurnLinks


_LEAST_WORDS = 2
_LEAST_SHARE = 0.3
"""The share of a question's words that a scope without its meaning or name must hold."""
_FAR = 0.5
"""The share of the threshold below which a scope has its words by chance."""
_NAME = "name: "
_RARE = 3
"""Hits that have a rare word in their names, at most."""


class PromptWords(msgspec.Struct, frozen=True):
    """The words and names of a question, which its hits are compared with."""

    words: frozenset[str]
    names: frozenset[str] = frozenset()
    """Names of pieces of code in it, in lower case."""

    @classmethod
    def of(cls, text: str) -> "PromptWords":
        """Return the words and names of a prompt."""
        from ragmem.index.names import names_in

        names = frozenset(name.casefold() for name in names_in(text))
        return cls(frozenset(question_words(text)), names)


def rare_words(hits: Sequence[CodeHit]) -> frozenset[str]:
    """The words of a question that few of its hits have in their names."""
    words = [_found(reason) for hit in hits for reason in hit.why if reason.startswith(_NAME)]
    counted = Counter(word for each in words for word in each)
    return frozenset(word for word, count in counted.items() if count <= _RARE)


def bears(
    hit: CodeHit, asked: PromptWords, floor: float | None, rare: Collection[str] = ()
) -> bool:
    """Whether a hit has to do with a question beyond doubt.

    It, its file or its folder is named, or it is as alike as a past turn would have to be, or it
    holds several of the words and is not about something else. One that has no vector yet bears
    on it by a `rare` word in its name as well.
    """
    from ragmem.index.names import is_named

    alike, floor = (None, 0.0) if floor is None else (hit.similarity, floor)
    if alike is not None and alike > floor:
        return True
    held: set[str] = set()
    for reason in hit.why:
        kind = reason.partition(": ")[0]
        if kind in ("file", "folder"):
            return True
        if kind in ("name", "words"):
            held.update(_found(reason))
        if hit.similarity is None and kind == "name" and set(rare).intersection(_found(reason)):
            return True
    if is_named(hit.name, hit.qualified_name, asked.names):
        return True
    if alike is not None and alike <= _FAR * floor:
        return False
    return len(held) >= max(_LEAST_WORDS, _LEAST_SHARE * len(asked.words))


def _found(reason: str) -> list[str]:
    return reason.partition(": ")[2].split(", ")


def passage_of(hit: CodeHit) -> CodePassage:
    """Return the hit as the request shows it."""
    return CodePassage(
        scope_id=hit.scope_id,
        path=hit.path,
        name=hit.qualified_name,
        start_line=hit.start_line,
        end_line=hit.end_line,
        text=hit.text,
        score=hit.score,
        why="; ".join(hit.why),
    )


_log = logging.getLogger("ragmem")

_LATE = (
    "The code search took longer than {:g} s and was left out of this request; raise code.wait_s "
    "to give it more time."
)
_UNFINISHED = (
    "The project's code is being indexed for the first time: no code was found in time for this "
    "request."
)
OpenStore = Callable[[], Awaitable[CodeStore]]

_HITS = 12
"""Hits that are asked for; the context shows those that bear on the prompt and find room."""
_FEW_TEXTS = 32
"""The most vectors that a chat makes itself; more are left to the detached process."""
_EMBEDDED_S = 20.0
"""The longest that one piece of background work embeds."""


CODE = "code"
"""What a service is asked for, by a `CodeRequest`; it answers with a list of `CodeHit`s."""


class CodeRequest(msgspec.Struct, frozen=True):
    """What `Codebase.search` is asked."""

    project: Project
    text: str
    limit: int
    near: tuple[str, ...] = ()
    writes: bool = True
    """Whether what is new on the disk is indexed, or the index only read."""


class Codebase:
    """The indexes of the projects of this process, and what is done with them.

    `open_store`: where scopes are made known to; None where nothing is stored. `writes`: false
    where the index is only read. `service` is asked first, and looks at the disk where it may.
    `leave_vectors` is called in a chat where many vectors are to be made: for another process.
    """

    def __init__(
        self,
        config: Config,
        paths: Paths,
        *,
        open_store: OpenStore | None,
        embedder: Embedder | None,
        metrics: Metrics,
        writes: bool,
        service: Client | None = None,
        leave_vectors: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._paths = paths
        self._leave_vectors = leave_vectors
        self._service = service
        self._open_store = open_store
        self._own = _own_embedder(config, embedder)
        self._embedder = self._own or (embedder if config.code.vectors else None)
        self._metrics = metrics
        self._writes = writes
        self._indexes: dict[str, CodeIndex] = {}
        self._refreshing: dict[str, asyncio.Task[Refreshed | None]] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._done_with: set[str] = set()
        self.made = 0
        """Vectors that `catch_up` has made."""
        self._told_store: set[str] = set()
        self._ours: set[str] = set()
        self._met: dict[str, Project] = {}
        self._keeps_current = False
        settings = config.memory.embeddings
        self._floor = thresholds(self._embedder.info, settings).history if self._embedder else None

    @cached_property
    def _links(self) -> "TurnLinks":
        from ragmem.index.links import TurnLinks

        return TurnLinks(
            self._known_index_of, self._refreshing.get, writes=self._writes, metrics=self._metrics
        )

    def index_of(self, project: Project, *, stores: bool = True) -> "CodeIndex | None":
        """Return the index of a project's own folder; None where no code is indexed.

        Without `stores` what is found is kept from the store, unless it was opened for that before.
        """
        self._ours.add(project.project_id)
        return self._known_index_of(project, stores=stores)

    def _known_index_of(self, project: Project, *, stores: bool = True) -> "CodeIndex | None":
        """Return the index of any session's project, also of one that is seen to in passing."""
        if not self._config.code.enabled or self._paths == NO_HOME:
            return None
        if (known := self._indexes.get(project.project_id)) is not None:
            return known
        from ragmem.index.database import database_of
        from ragmem.index.index import CodeIndex

        index = self._indexes[project.project_id] = CodeIndex(
            project,
            database_of(self._paths.data_dir, project.project_id),
            embedder=self._embedder,
            open_store=self._open_store if stores else None,
            settings=self._config.code,
            metrics=self._metrics,
            private=self._paths.own_folders,
        )
        return index

    def has(self, folder: Path) -> bool:
        """Return whether the code of a folder is indexed at all."""
        if not self._config.code.enabled or self._paths == NO_HOME:
            return False
        return not refusal(folder)

    # --- keeping it current -------------------------------------------------------

    def begin(self, project: Project, *, stores: bool = True) -> None:
        """Look at the disk from now on; once at a time."""
        if not self._asks(project):
            self._look(project, stores=stores)

    def _look(self, project: Project, *, stores: bool) -> None:
        try:
            index = self.index_of(project, stores=stores)
        except Exception as error:
            self._failed("The code was not indexed", error)
            return
        key = project.project_id
        running = self._refreshing.get(key)
        if self._may_look(index) and (running is None or running.done()):
            self._refreshing[key] = asyncio.create_task(self._refreshed(index))

    def _may_look(self, index: "CodeIndex | None") -> TypeGuard["CodeIndex"]:
        return bool(index and not index.refusal and self._writes)

    @property
    def is_looking(self) -> bool:
        """Return whether it looks at a project's files: the first time that takes long."""
        return any(not looking.done() for looking in self._refreshing.values())

    def meet(self, project: Project) -> None:
        """Note that an agent works in this project."""
        self._met[project.project_id] = project
        if self._keeps_current:
            self._follow(project)

    def keep_current(self) -> None:
        """Follow the projects of agents from now on, as a chat does."""
        self._keeps_current = True
        for project in self._met.values():
            self._follow(project)

    def _follow(self, project: Project) -> None:
        index, key = self.index_of(project), project.project_id
        if self._may_look(index) and not self._is_followed(key):
            self._look(project, stores=True)
            kept = self._kept_current(index, self._refreshing[key])
            self._following[key] = asyncio.create_task(kept)

    def _asks(self, project: Project) -> bool:
        """Whether somebody else may look for it: not where this process keeps the index current."""
        is_there = self._service is not None and self._service.may_answer
        return is_there and not self._is_followed(project.project_id)

    def _is_followed(self, key: str) -> bool:
        """Whether changes are seen; what watched has ended where the folder went, say."""
        following = self._following.get(key)
        return following is not None and not following.done()

    async def _refreshed(self, index: "CodeIndex") -> Refreshed | None:
        try:
            return await index.refresh()
        except Exception as error:
            self._failed("The code was not indexed", error)
            return None

    async def _kept_current(
        self, index: "CodeIndex", first: "asyncio.Task[Refreshed | None]"
    ) -> None:
        try:
            await asyncio.wait({first})
            index.grew()
            await self._see_to_vectors(index)
            async with aclosing(index.watch()) as watched:
                async for _ in watched:
                    if index.grew():
                        await self._see_to_vectors(index)
        except Exception as error:
            self._failed("The code is not watched", error)

    async def _see_to_vectors(self, index: "CodeIndex") -> None:
        if self._embedder is None or self._config.memory.worker == "off":
            return
        try:
            if (await index.status()).without_vectors <= _FEW_TEXTS:
                await index.embed(_EMBEDDED_S)
            else:
                self._leave_vectors()
        except RagmemError as error:
            self._failed("Code was not embedded", error)

    def _failed(self, what: str, error: Exception) -> None:
        known = isinstance(error, RagmemError)
        _log.warning("%s: %s", what, error, exc_info=not known)
        self._metrics.count("code.failures")

    # --- what bears on a text -----------------------------------------------------

    async def search(
        self, project: Project, text: str, limit: int, *, near: Collection[str] = ()
    ) -> list[CodeHit]:
        """Return the scopes that bear on a text, as the files are now, best first. RagmemError."""
        if self._asks(project) and self._service:
            asked = CodeRequest(project, text, limit, tuple(near), self._writes)
            within_s = SEARCH_S + self._config.code.wait_s
            found = await self._service.ask(CODE, asked, list[CodeHit], within_s=within_s)
            if found is not None:
                return found
        index = self.index_of(project, stores=False)
        if index is None:
            return []
        self._look(project, stores=False)
        wait_s = self._config.code.wait_s
        # At once, so that the search itself has all the time that its vector leaves.
        vector = asyncio.ensure_future(index.vector_of(text, wait_s))
        try:
            if running := self._refreshing.get(project.project_id):
                await asyncio.wait({running}, timeout=wait_s)
            return await index.search(text, limit=limit, near=near, vector=await vector)
        finally:
            vector.cancel()

    async def passages(
        self, project: Project, prompt: str, *, near: Collection[str] = ()
    ) -> ProjectCode:
        """Return the scopes that bear on a prompt for sure."""
        from ragmem.memory.facts.words import is_greeting

        if is_greeting(prompt):
            return ProjectCode()
        within_s, late = 2 * self._config.code.wait_s + 0.05, ""
        try:
            async with asyncio.timeout(within_s):
                hits = await self.search(project, prompt, _HITS, near=near)
        except TimeoutError:
            self._metrics.count("code.late")
            hits, late = [], _LATE.format(within_s)
        so_far = await self._files_so_far(project)
        if late and so_far is not None:
            late = _UNFINISHED
        asked = PromptWords.of(prompt)
        rare = rare_words(hits)
        found = tuple(passage_of(hit) for hit in hits if bears(hit, asked, self._floor, rare))
        return ProjectCode(passages=found, left_out=late, files_so_far=so_far)

    async def _files_so_far(self, project: Project) -> int | None:
        """Count the files that are indexed while they are looked at for the first time."""
        index = self._known_index_of(project)
        return await index.files_so_far() if self._may_look(index) else None

    # --- what turns have to do with it --------------------------------------------

    async def look_through(
        self, store: CodeStore, items: Sequence[Pending], owner_id: str
    ) -> frozenset[str]:
        """Link these turns with the code that they edited, read, found and named.

        Keys of those that nobody else is at; of what this process has no index it is left to
        others. StoreError.
        """
        return await self._links.look_through(store, items, owner_id)

    # --- for the detached process -------------------------------------------------

    async def catch_up(self, store: CodeStore, *, everywhere: bool = True) -> bool:
        """Do a piece of what any project's index still lacks; return whether there was something.

        First it is made whole and the store is told, then vectors are made. Not `everywhere`: only
        for the projects that this process was asked about.
        """
        for project in await store.projects() if self._config.code.enabled else ():
            key = project.project_id
            if key in self._done_with or not (everywhere or key in self._ours):
                continue
            was_open = project.project_id in self._indexes
            try:
                if await self._caught_up(store, project):
                    return True
            except StoreError:
                raise
            except Exception as error:
                self._failed("The code index lacks something", error)
            self._done_with.add(project.project_id)
            if not was_open and (index := self._indexes.pop(project.project_id, None)):
                await index.aclose()
        return False

    async def _caught_up(self, store: CodeStore, project: Project) -> bool:
        index = self._lasting(project)
        if index is None:
            return False
        if project.project_id not in self._told_store:
            self._told_store.add(project.project_id)
            if not (await index.status()).refreshed_at:
                await index.refresh()
            await index.mirror()
            return True
        if self._embedder is None or not (await index.status()).without_vectors:
            return False
        before = self.made

        def count(done: int, _: int) -> None:
            self.made = before + done

        await index.embed(_EMBEDDED_S, count)
        # What was added meanwhile may be more than what was made: that is progress all the same.
        return self.made > before

    def _lasting(self, project: Project) -> "CodeIndex | None":
        """Return its index, if that was ever begun and the folder is there."""
        from ragmem.index.database import database_of

        known = project.project_id in self._indexes
        database = database_of(self._paths.data_dir, project.project_id)
        if not os.path.isdir(project.path) or not (known or os.path.exists(database)):
            return None
        index = self._known_index_of(project)
        return index if index and not index.refusal else None

    async def aclose(self) -> None:
        """Stop; what is left is found by whoever comes next."""
        tasks = [*self._following.values(), *self._refreshing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for index in self._indexes.values():
            try:
                await index.aclose()
            except Exception as error:
                # A full disk, say: nothing is lost that the files don't say again.
                self._failed("The code index was not closed in order", error)
        self._indexes.clear()
        if self._own:
            await self._own.aclose()


def _own_embedder(config: Config, of_memory: Embedder | None) -> Embedder | None:
    """Return the embedder that comes with ragmem, if the memory uses another one or none.

    The lines of a whole project are sent to nobody, and cost nothing.
    """
    local = of_memory is not None and config.model.embedding in ("", SHIPPED)
    if local or not config.code.vectors or not config.memory.embeddings.enabled:
        return None
    from ragmem.embedder.models import OnnxEmbedder

    return CachedEmbedder(OnnxEmbedder())

"""The code indexes of this process's projects, as the agent uses them.

An index is refreshed in the background, and watched for changes during a chat. It is searched for
code relevant to a prompt, and turns are linked with the scopes that they touched. All of this is
optional: what isn't ready in time is left out.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard, TypeVar

import msgspec

from ragmem.config import Config, Paths
from ragmem.embedder import SHIPPED, CachedEmbedder, Embedder, thresholds
from ragmem.errors import RagmemError, StoreError
from ragmem.files import NO_HOME, refusal
from ragmem.index import CodeHit, Refreshed
from ragmem.memory.context.collect import CodePassage, ProjectCode
from ragmem.memory.projects import is_reachable
from ragmem.memory.turns import question_words
from ragmem.records import CodeStore, Pending, Project
from ragmem.service import SEARCH_S, Client
from ragmem.usage import Metrics

if TYPE_CHECKING:
    from ragmem.index.index import CodeIndex
    from ragmem.index.links import TurnLinks


T = TypeVar("T")
_LEAST_WORDS = 2
_LEAST_SHARE = 0.3
"""The share of a question's words that a scope must contain if neither vector nor name match."""
_LOW_SHARE = 0.7
"""The share of the similarity threshold below which matching words are considered chance. Of 398
commits' subjects, 24 % of the scopes found by words and less similar than three quarters of the
threshold are in a file of the commit, above it 32 %."""
_NAME = "name: "
_RARE = 3
"""The most hits whose names may contain a word that still counts as rare."""


class PromptWords(msgspec.Struct, frozen=True):
    """The words and names of a question, for comparison with its hits."""

    words: frozenset[str]
    names: frozenset[str] = frozenset()
    """The identifiers in it, casefolded."""

    @classmethod
    def of(cls, text: str) -> "PromptWords":
        """Return the words and names of a prompt."""
        from ragmem.index.names import names_in

        names = frozenset(name.casefold() for name in names_in(text))
        return cls(frozenset(question_words(text)), names)


def rare_words(hits: Sequence[CodeHit]) -> frozenset[str]:
    """Return the words of a question that few of its hits have in their names."""
    words = [_words_of(reason) for hit in hits for reason in hit.why if reason.startswith(_NAME)]
    counted = Counter(word for each in words for word in each)
    return frozenset(word for word, count in counted.items() if count <= _RARE)


def bears(
    hit: CodeHit, asked: PromptWords, floor: float | None, rare: Collection[str] = ()
) -> bool:
    """Return whether a hit is certainly relevant to a question.

    It is if the question names it, its file or its folder; if its similarity is over `floor`, the
    threshold for past turns; or if it contains several of the words and its similarity isn't so
    low that they are chance. For a scope without a vector, one `rare` word in its name is enough.
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
            held.update(_words_of(reason))
        if hit.similarity is None and kind == "name" and set(rare).intersection(_words_of(reason)):
            return True
    if is_named(hit.name, hit.qualified_name, asked.names):
        return True
    if alike is not None and alike <= _LOW_SHARE * floor:
        return False
    return len(held) >= max(_LEAST_WORDS, _LEAST_SHARE * len(asked.words))


def _words_of(reason: str) -> list[str]:
    return reason.partition(": ")[2].split(", ")


def passage_of(hit: CodeHit) -> CodePassage:
    """Return a hit in the form that goes into a request's context."""
    return CodePassage(
        scope_id=hit.scope_id,
        path=hit.path,
        name=hit.qualified_name,
        start_line=hit.start_line,
        end_line=hit.end_line,
        text=hit.text,
        score=hit.score,
        why=hit.reasons,
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
"""The number of hits to ask for; the context shows the relevant ones within its token budget."""
_FEW_TEXTS = 32
"""The most texts that a chat embeds itself; more are left to the detached process."""
_EMBEDDED_S = 20.0
"""The time limit for embedding in one piece of background work."""


CODE = "code"
"""The service's method that takes a `CodeRequest` and returns a list of `CodeHit`s."""
PASSAGES = "passages"
"""The same for the passages that bear on a prompt, as `ProjectCode`."""


class CodeRequest(msgspec.Struct, frozen=True):
    """The arguments of `Codebase.search` and `Codebase.passages`, as sent to a service."""

    project: Project
    text: str
    limit: int
    near: tuple[str, ...] = ()
    writes: bool = True
    """Whether the index may be refreshed from disk, or only read."""


class Codebase:
    """The code indexes of this process's projects: refreshing, searching, linking with turns.

    `open_store` opens the store to mirror scopes to; None if nothing is stored. Without `writes`
    indexes are only read. A `service` is asked to search and refresh first. `leave_vectors` is
    called in a chat to have another process embed, if there are too many texts.
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
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._up_to_date: set[str] = set()
        self.made = 0
        """The number of vectors that `catch_up` has computed."""
        self._mirrored: set[str] = set()
        self._used: set[str] = set()
        self._agents_projects: dict[str, Project] = {}
        self._watches = False
        settings = config.memory.embeddings
        self._floor = thresholds(self._embedder.info, settings).history if self._embedder else None

    @cached_property
    def _links(self) -> "TurnLinks":
        from ragmem.index.links import TurnLinks

        return TurnLinks(
            self._known_index_of, self._refreshing.get, writes=self._writes, metrics=self._metrics
        )

    def index_of(self, project: Project, *, stores: bool = True) -> "CodeIndex | None":
        """Return the index of one of this process's projects; None if code is not indexed.

        Without `stores` it isn't mirrored to the store, unless it was opened for that before.
        """
        self._used.add(project.project_id)
        return self._known_index_of(project, stores=stores)

    def _known_index_of(self, project: Project, *, stores: bool = True) -> "CodeIndex | None":
        """Return a project's index without counting the project as one of this process's own."""
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
        """Return whether a folder's code may be indexed."""
        if not self._config.code.enabled or self._paths == NO_HOME:
            return False
        return not refusal(folder)

    # --- refreshing and watching --------------------------------------------------

    def begin(self, project: Project, *, stores: bool = True) -> None:
        """Start a refresh in the background, unless one is running or a service does it."""
        if not self._uses_service(project):
            self._start_refresh(project, stores=stores)

    def _start_refresh(self, project: Project, *, stores: bool) -> None:
        try:
            index = self.index_of(project, stores=stores)
        except Exception as error:
            self._failed("The code was not indexed", error)
            return
        key = project.project_id
        running = self._refreshing.get(key)
        if self._may_refresh(index) and (running is None or running.done()):
            self._refreshing[key] = asyncio.create_task(self._refresh_index(index))

    def _may_refresh(self, index: "CodeIndex | None") -> TypeGuard["CodeIndex"]:
        return bool(index and not index.refusal and self._writes)

    @property
    def is_looking(self) -> bool:
        """Return whether a refresh is running; a project's first one takes long."""
        return any(not looking.done() for looking in self._refreshing.values())

    def meet(self, project: Project) -> None:
        """Note that an agent works in this project."""
        self._agents_projects[project.project_id] = project
        if self._watches:
            self._watch(project)

    def keep_current(self) -> None:
        """Watch the files of agents' projects from now on, as a chat does."""
        self._watches = True
        for project in self._agents_projects.values():
            self._watch(project)

    def _watch(self, project: Project) -> None:
        index, key = self.index_of(project), project.project_id
        if self._may_refresh(index) and not self._is_watched(key):
            self._start_refresh(project, stores=True)
            kept = self._watch_index(index, self._refreshing[key])
            self._watching[key] = asyncio.create_task(kept)

    def _uses_service(self, project: Project) -> bool:
        """Return whether to ask the service: not if this process watches the files itself."""
        is_there = self._service is not None and self._service.may_answer
        return is_there and not self._is_watched(project.project_id)

    def _is_watched(self, key: str) -> bool:
        """Return whether the files are watched; the task ends when the folder is removed, say."""
        following = self._watching.get(key)
        return following is not None and not following.done()

    async def _refresh_index(self, index: "CodeIndex") -> Refreshed | None:
        try:
            return await index.refresh()
        except Exception as error:
            self._failed("The code was not indexed", error)
            return None

    async def _watch_index(
        self, index: "CodeIndex", first: "asyncio.Task[Refreshed | None]"
    ) -> None:
        try:
            await asyncio.wait({first})
            index.grew()
            await self._embed_or_leave(index)
            async with aclosing(index.watch()) as watched:
                async for _ in watched:
                    if index.grew():
                        await self._embed_or_leave(index)
        except Exception as error:
            self._failed("The code is not watched", error)

    async def _embed_or_leave(self, index: "CodeIndex") -> None:
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

    # --- search -------------------------------------------------------------------

    async def search(
        self, project: Project, text: str, limit: int, *, near: Collection[str] = ()
    ) -> list[CodeHit]:
        """Return the scopes most relevant to a text, best first; raises RagmemError."""
        asked = CodeRequest(project, text, limit, tuple(near), self._writes)
        found = await self._ask_service(CODE, asked, list[CodeHit])
        return await self._search_here(asked) if found is None else found

    async def _ask_service(self, name: str, asked: CodeRequest, kind: type[T]) -> T | None:
        if self._service is None or not self._uses_service(asked.project):
            return None
        within_s = SEARCH_S + self._config.code.wait_s
        return await self._service.ask(name, asked, kind, within_s=within_s)

    async def _search_here(self, asked: CodeRequest) -> list[CodeHit]:
        project, text = asked.project, asked.text
        index = self.index_of(project, stores=False)
        if index is None:
            return []
        self._start_refresh(project, stores=False)
        wait_s = self._config.code.wait_s
        # Started now, so that embedding and refreshing wait side by side.
        vector = asyncio.ensure_future(index.vector_of(text, wait_s))
        try:
            if running := self._refreshing.get(project.project_id):
                await asyncio.wait({running}, timeout=wait_s)
            return await index.search(text, limit=asked.limit, near=asked.near, vector=await vector)
        finally:
            vector.cancel()

    async def passages(
        self, project: Project, prompt: str, *, near: Collection[str] = ()
    ) -> ProjectCode:
        """Return the scopes that are certainly relevant to a prompt, as `bears` decides."""
        from ragmem.memory.facts.words import is_greeting

        if is_greeting(prompt):
            return ProjectCode()
        within_s, late = 2 * self._config.code.wait_s + 0.05, ""
        asked = CodeRequest(project, prompt, _HITS, tuple(near), self._writes)
        try:
            async with asyncio.timeout(within_s):
                if (found := await self._ask_service(PASSAGES, asked, ProjectCode)) is not None:
                    return found
                hits = await self._search_here(asked)
        except TimeoutError:
            self._metrics.count("code.late")
            hits, late = [], _LATE.format(within_s)
        index = self._known_index_of(project)
        so_far = await index.files_so_far() if self._may_refresh(index) else None
        if late and so_far is not None:
            late = _UNFINISHED
        words, rare = PromptWords.of(prompt), rare_words(hits)
        passages = tuple(passage_of(hit) for hit in hits if bears(hit, words, self._floor, rare))
        return ProjectCode(passages=passages, left_out=late, files_so_far=so_far)

    # --- links with turns ---------------------------------------------------------

    async def look_through(
        self, store: CodeStore, items: Sequence[Pending], owner_id: str
    ) -> frozenset[str]:
        """Link these turns with the code that they edited, read, found and named.

        Returns the keys of the items that this process leased or can't link, since it has no
        index of the project: those are left to other processes. Raises StoreError.
        """
        return await self._links.look_through(store, items, owner_id)

    # --- background work ----------------------------------------------------------

    async def catch_up(self, store: CodeStore, *, everywhere: bool = True) -> bool:
        """Do one piece of work that a project's index lacks; return whether there was any.

        A project is first refreshed and mirrored to the store, then its texts are embedded.
        Without `everywhere` only projects whose index this process has used are considered.
        """
        for project in await store.projects() if self._config.code.enabled else ():
            key = project.project_id
            if key in self._up_to_date or not (everywhere or key in self._used):
                continue
            was_open = project.project_id in self._indexes
            try:
                if await self._catch_up_project(store, project):
                    return True
            except StoreError:
                raise
            except Exception as error:
                self._failed("The code index lacks something", error)
            self._up_to_date.add(project.project_id)
            if not was_open and (index := self._indexes.pop(project.project_id, None)):
                await index.aclose()
        return False

    async def _catch_up_project(self, store: CodeStore, project: Project) -> bool:
        index = self._existing_index(project)
        if index is None:
            return False
        if project.project_id not in self._mirrored:
            self._mirrored.add(project.project_id)
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
        # Compared by count: more texts may have been added meanwhile than were embedded.
        return self.made > before

    def _existing_index(self, project: Project) -> "CodeIndex | None":
        from ragmem.index.database import database_of, remove_unused

        known = project.project_id in self._indexes
        database = database_of(self._paths.data_dir, project.project_id)
        if not is_reachable(project.path):
            remove_unused(database)
            return None
        if not (known or os.path.exists(database)):
            return None
        index = self._known_index_of(project)
        return index if index and not index.refusal else None

    async def aclose(self) -> None:
        """Stop all work and close the indexes; the next process does what is left."""
        tasks = [*self._watching.values(), *self._refreshing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for index in self._indexes.values():
            try:
                await index.aclose()
            except Exception as error:
                # A full disk, say. Nothing is lost: the index is derived from the files.
                self._failed("The code index was not closed in order", error)
        self._indexes.clear()
        if self._own:
            await self._own.aclose()


def _own_embedder(config: Config, of_memory: Embedder | None) -> Embedder | None:
    """Return the embedder that ships with ragmem, if the memory uses another one or none.

    A whole project's code is thus never sent to a provider, nor paid for.
    """
    local = of_memory is not None and config.model.embedding in ("", SHIPPED)
    if local or not config.code.vectors or not config.memory.embeddings.enabled:
        return None
    from ragmem.embedder.models import OnnxEmbedder

    return CachedEmbedder(OnnxEmbedder())

"""Collects the material of a request, from which the context builder builds it.

The conversation itself comes from the store, or from what this process remembers of it. Everything
else is optional: what fails or takes too long is left out, and the turn goes on.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from ragmem.config import MemoryConfig
from ragmem.errors import RagmemError, StoreError
from ragmem.memory.classifiers import GENERAL
from ragmem.memory.facts import FactHit
from ragmem.memory.facts.words import asks_of_before, names_nothing, points_back
from ragmem.memory.projects import Instructions
from ragmem.memory.recall import Found, Hit, Question, Recall, Replaced, scope_of
from ragmem.memory.recording import StoreTooSlow, in_time
from ragmem.memory.turns import (
    NO_WINDOW,
    Window,
    extract_accessed_files,
    recently_accessed,
    window_limit,
    written_since,
)
from ragmem.records import (
    FileAccess,
    MemoryRecord,
    Profile,
    Session,
    SessionQuery,
    Summary,
    ToolCall,
    Turn,
    TurnQuery,
)
from ragmem.store import Store
from ragmem.text import clip_middle
from ragmem.usage import Metrics

if TYPE_CHECKING:
    from ragmem.memory.context.builder import ContextBuilder
    from ragmem.memory.facts.facts import Facts
    from ragmem.memory.last_time import SessionRecap
    from ragmem.memory.since import Aftermath

_log = logging.getLogger("ragmem")
T = TypeVar("T")
MOST_SESSIONS = 256
"""Sessions of which a process keeps something for when the store is unavailable."""

FINISHED = ("completed", "interrupted", "failed")
PINNED_UNKNOWN = (
    "The memory could not be read: any rules and pinned memories are missing from this request."
)
INCOMPLETE = "Something that may be relevant was not recalled."
FILES_CHARS = 5_000
"""Limit of the list of accessed files, at 50 characters a path."""
_FILES_LOOKBACK = 10
"""The files come from the newest turns with this many times as many characters."""
_OLDER_QUERIES = 10
"""Number of prompts before the window; older ones can be recalled."""
_LEVEL1_LIMIT = 200
"""Number of summaries read, of which the builder shows ten that the window does not cover."""
_CONTEXT_HITS = 16
"""Number of hits, of which a request shows the best five that are not in it already."""
_UNRELATED = -0.7
_PER_ODDS, _PER_LENGTH, _MOST_NEAR = 0.45, 0.6, 1.2
"""A prompt is about something else if nothing stored is as similar to it as this share of the
embedder's own floor: `_UNRELATED`, more by the log-odds that general knowledge answers it and by
the logarithm of its words, at most `_MOST_NEAR`. Of 73 prompts about something else 68 are
recognized, for 2 of 815 items that others need (docs/measurements.md)."""
_LONGEST_GENERAL = 30
"""Words; a longer prompt is not judged so."""
_LONGEST_QUESTION = 40_000
"""Characters of a prompt that are searched for, as many as are embedded of a turn."""
_MORE_TRIES = 2
_BEGINNING_OF_TIME = datetime.min.replace(tzinfo=UTC)
_SPARE_FACTS = 8
"""Facts searched for beyond those shown, since some are in the request anyway."""


Strategy = Literal["recent", "relevant", "hybrid"]
"""Which sections a request has: the latest turns, what is relevant to the prompt, or both."""
STRATEGIES: tuple[Strategy, ...] = ("recent", "relevant", "hybrid")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the agent works, and which tools and instructions it has there."""

    cwd: Path
    project: Path
    instructions: Instructions
    session_cwd: Path | None = None
    """The folder that paths in the session's earlier results are relative to; None: `cwd`."""
    show_path: Callable[[str], str] = str
    memory_tools: bool = False
    """Whether the model has tools to search the memory and to add to it."""
    code_tool: bool = False
    """Whether the model has brain_search."""
    skills: str = ""
    """The list of skills that the model can read."""


class CodePassage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of the project's code that are relevant to a prompt, as they are on the disk now."""

    scope_id: str
    path: str
    """As in `FileAccess`."""
    name: str
    """The scope's qualified name, such as `Service.validate`; empty for lines without one."""
    start_line: int
    end_line: int
    text: str
    score: float
    why: str
    """What it was found by, for the model and for display."""


class ProjectCode(msgspec.Struct, frozen=True, kw_only=True):
    """The project's code that is relevant to a text."""

    passages: tuple[CodePassage, ...] = ()
    """Best first."""
    left_out: str = ""
    """Why there is none, if searching took too long."""
    files_so_far: int | None = None
    """The number of files indexed so far, while the project is being indexed for the first time."""


FindCode = Callable[[str], Awaitable[ProjectCode]]


class ContextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt with its place, time and strategy."""

    prompt: str
    place: Place
    tag: str
    """Delimits quoted data; random, so that no file can contain it in advance."""
    now: datetime
    session_id: str = ""
    """The session that the prompt belongs to."""
    mentions: Sequence[ToolCall] = ()
    """Calls that read the files named in the prompt, and commands that the user ran."""
    strategy: Strategy = "hybrid"
    changed: str = ""
    """Which files differ from what the agent has seen; one line."""

    @property
    def question(self) -> str:
        """The text to search for: the prompt, or the beginning and the end of a very long one."""
        return clip_middle(self.prompt, _LONGEST_QUESTION)


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What the memory has for a prompt, before the builder selects from it."""

    turns: tuple[Turn, ...] = ()
    """Finished turns, in order: as many as `window_limit` asks for."""
    window: Window = NO_WINDOW
    """`ContextBuilder.window` of those turns."""
    older: tuple[Turn, ...] = ()
    """The turns just before the window, in order; their prompts are shown."""
    older_count: int = 0
    """How many turns came before the window."""
    accesses: tuple[FileAccess, ...] = ()
    """One per path, latest first."""
    last_time: "tuple[SessionRecap, ...]" = ()
    """Recaps of other sessions, newest first."""
    hits: tuple[Hit, ...] = ()
    """Turns and summaries relevant to the prompt, best first."""
    level1: tuple[Summary, ...] = ()
    """Summaries of turns that no higher summary covers, newest first."""
    thread_summary: str = ""
    pinned: tuple[MemoryRecord, ...] = ()
    """The user's rules and pinned memories, oldest first, for the system message."""
    profile: Profile = Profile()
    preferences: tuple[MemoryRecord, ...] = ()
    """The user's preferences, the most important first."""
    facts: tuple[FactHit, ...] = ()
    """Memories relevant to the prompt, best first; more than are shown."""
    code: ProjectCode = ProjectCode()
    """Code relevant to the prompt; more than is shown."""
    notices: tuple[str, ...] = ()
    """What to tell the user about what is missing."""
    at_hand: bool = False
    """Whether the store could not answer, so that this is only what the process remembers."""


class ContextInput(ContextRequest, frozen=True, kw_only=True):
    """A request for material, with what is known without the store."""

    session: Session
    builder: "ContextBuilder"
    before: int | None = None
    """The index of the turn in progress."""
    own: Sequence[Turn] = ()
    """Finished turns of the session in this process."""
    in_store: bool = True
    """Whether the session is in the store."""
    find_code: FindCode | None = None


class Newest(dict[str, T]):
    """Values by session id, of the sessions set last: a program may work in any number of them."""

    def __setitem__(self, session_id: str, value: T) -> None:
        """Set a session's value, and drop that of the one set longest ago if they are too many."""
        self.pop(session_id, None)
        super().__setitem__(session_id, value)
        if len(self) > MOST_SESSIONS:
            del self[next(iter(self))]


class Collector:
    """Collects material from the store (None if there is none), recall and the facts.

    It keeps what was read last, for when the store is unavailable. If nothing is recorded
    (`records` is false), a session's newest turns are only in this process.

    `floor` is the cosine above which something is recalled, which the user may have set; `fitted`
    is the one fitted for the embedder, as the scale for its other cosines.
    """

    def __init__(
        self,
        open_store: Callable[[], Awaitable[Store]] | None,
        recall: Recall,
        facts: "Facts | None",
        config: MemoryConfig,
        *,
        records: bool,
        floor: float | None,
        fitted: float | None,
        metrics: Metrics,
    ) -> None:
        self._open_store = open_store
        self._recall = recall
        self._facts = facts
        self._config = config
        self._records = records
        self._floor = floor
        self._fitted = fitted
        self._metrics = metrics
        self._last = Newest[Material]()
        self._last_pinned: dict[str, tuple[MemoryRecord, ...]] = {}
        self._why_away = ""
        """Why the last query to the store failed; empty if it did not."""
        self._missing: tuple[str, ...] = ()
        """The notice that some of the answers were too slow, which nothing else reports."""

    async def collect(self, request: ContextInput) -> Material:
        """Collect the material of a request; from this process if the store is unavailable."""
        found, code = await asyncio.gather(self._remembered(request), self._code(request))
        return msgspec.structs.replace(found, code=code)

    def at_hand(self, request: ContextInput) -> Material:
        """Return the material known without the store: last read, and this process's own turns."""
        session = request.session
        last = self._last.get(session.session_id, Material())
        return Material(
            turns=self.turns_at_hand(session.session_id, request.own),
            at_hand=True,
            level1=last.level1,
            thread_summary=last.thread_summary,
            # Pinned memories are in every request, however short.
            pinned=self._last_pinned.get(session.project_id, ()),
            notices=self._notices(session),
        )

    def turns_at_hand(self, session_id: str, own: Sequence[Turn]) -> tuple[Turn, ...]:
        """Return the turns of a session that this process knows, in order."""
        last = self._last.get(session_id, Material())
        known = {turn.turn_id: turn for turn in [*last.older, *last.turns, *own]}
        return tuple(sorted(known.values(), key=lambda turn: turn.turn_index))

    def failed(self, error: Exception, what: str = "The memory could not be recalled") -> None:
        """Count an error, and log it unless the store is unavailable; the turn goes on."""
        if isinstance(error, StoreError):
            self._metrics.count("store.failures")
            self._why_away = f"{error} {error.hint}".strip()
            if isinstance(error, StoreTooSlow):
                self._missing = (f"{INCOMPLETE} {error}",)
            return
        self._log(what, error)
        self._metrics.count("recall.failures")

    @staticmethod
    def _log(what: str, error: Exception) -> None:
        _log.warning("%s: %s", what, error, exc_info=not isinstance(error, RagmemError))

    async def _result_or_none(self, work: Awaitable[T], *, beside_s: float = 0.0) -> T | None:
        """Return the result of some work; None, after `failed`, on an error or a timeout."""
        try:
            return await in_time(work, beside_s=beside_s)
        except Exception as error:
            self.failed(error, "Something was not recalled")
        return None

    async def _query_store(self, ask: Callable[[Store], Awaitable[T]]) -> T | None:
        async def answer() -> T:
            return await ask(await self._store())

        return await self._result_or_none(answer())

    async def _remembered(self, request: ContextInput) -> Material:
        self._why_away, self._missing = "", ()
        try:
            with self._metrics.time("memory.context"):
                past, relevant, (profile, liked, facts), last = await asyncio.gather(
                    in_time(self._past(request)),
                    self._relevant(request),
                    self._known(request),
                    self._last_time(request),
                )
                if self._is_unrelated(relevant):
                    last = ()
                hits = await self._hits(relevant, past.window.turns, request)
                if (hits or facts or liked) and self._config.scope != "session":
                    judged = await self._result_or_none(
                        self._with_since(hits, facts, liked, request)
                    )
                    hits, facts, liked = judged or (hits, facts, liked)
                return msgspec.structs.replace(
                    past,
                    last_time=last,
                    hits=tuple(hits),
                    pinned=self._last_pinned.get(request.session.project_id, ()),
                    profile=profile,
                    preferences=tuple(liked),
                    facts=tuple(facts),
                    notices=self._notices(request.session) or self._missing,
                )
        except Exception as error:
            self.failed(error)
            return self.at_hand(request)

    def _notices(self, session: Session) -> tuple[str, ...]:
        if self._facts is None or session.project_id in self._last_pinned:
            return ()
        return (f"{PINNED_UNKNOWN} {self._why_away}".strip(),)

    # --- the conversation ---------------------------------------------------------

    async def _past(self, request: ContextInput) -> Material:
        if not request.in_store or request.before == 1:
            return _around_window(request.builder, request.own)
        store, session_id, before = await self._store(), request.session.session_id, request.before
        session = await store.session(session_id)
        count = (before or session.turn_count + 1) - 1
        limit = window_limit(count)
        query = TurnQuery(limit=limit, before_index=before, statuses=FINISHED)
        found, accesses, level1 = await asyncio.gather(
            store.turns(session_id, query),
            accesses_of(store, session_id),
            store.summaries(session_id, level=1, not_rolled_up=True, limit=_LEVEL1_LIMIT),
        )
        # Some may be unfinished, and older ones read instead: planning must start at the same turn.
        turns = [turn for turn in found if turn.turn_index > count - limit]
        stored = {turn.turn_id for turn in turns}
        if not self._records:
            turns += [turn for turn in request.own if turn.turn_id not in stored]
        around = _around_window(request.builder, turns)
        past = self._last[session_id] = msgspec.structs.replace(
            around,
            older=tuple(await _older(store, session_id, around.older_count)),
            accesses=tuple(accesses),
            level1=_latest_first(level1, turns),
            thread_summary=session.summary or "",
        )
        return past

    async def _store(self) -> Store:
        assert self._open_store is not None
        return await self._open_store()

    def _is_unrelated(self, found: Found | None) -> bool:
        if found is None or found.nearest is None or self._fitted is None:
            return False
        text, words = found.question.text, len(found.question.text.split())
        if not words or words > _LONGEST_GENERAL or points_back(text) or asks_of_before(text):
            return False
        least = _UNRELATED + _PER_ODDS * GENERAL.log_odds(text) + _PER_LENGTH * math.log(words)
        return found.nearest < min(least, _MOST_NEAR) * self._fitted

    # --- turns and summaries ------------------------------------------------------

    async def _relevant(self, request: ContextInput) -> Found | None:
        """Search for the prompt; None if that fails, is too slow, or would find nothing."""
        if self._open_store is None or request.strategy == "recent":
            return None
        session_id, patience_s = request.session.session_id, self._config.embeddings.timeout_s
        question = Question(
            text=request.question,
            scope=scope_of(request.session, self._config.scope),
            session_id=session_id,
            max_results=_CONTEXT_HITS,
            min_similarity=self._floor,
            patience_s=patience_s,
        )

        async def found() -> Found | None:
            latest = await (await self._store()).sessions(SessionQuery(limit=2))
            if all(s.session_id == session_id and s.turn_count <= 1 for s in latest):
                # There are no earlier turns: don't even load what a search needs.
                return None
            if names_nothing(request.question, request.now):
                return None
            return await self._recall.find(question)

        return await self._result_or_none(found(), beside_s=patience_s)

    async def _hits(
        self, found: Found | None, window: Sequence[Turn], request: ContextInput
    ) -> list[Hit]:
        """Load the hits, without turns in the window and summaries of nothing but those."""
        if found is None:
            return []
        shown = window if request.strategy != "relevant" else ()
        hidden = {turn.turn_id for turn in shown} | await self._summaries_of(shown, found, request)
        hits = await self._result_or_none(self._recall.hits(found, hidden=hidden))
        return await self._with_changes(hits, request) if hits else []

    async def _summaries_of(
        self, shown: Sequence[Turn], found: Found, request: ContextInput
    ) -> set[str]:
        """Return the ids of the summaries, of any level, that cover nothing but these turns."""
        from ragmem.memory.summaries import covering_only, summary_id

        level1 = {summary_id(turn.session_id, 1, (turn.turn_id,)) for turn in shown}
        own = {request.session.session_id, *(turn.session_id for turn in shown)}
        candidates = (one.candidate for one in found.ranked)
        higher = [c.record_id for c in candidates if c.level > 1 and c.session_id in own]
        if len(shown) < 2 or not higher:
            return level1
        above = await self._query_store(
            partial(covering_only, ids=higher, below=level1, turn_count=len(shown))
        )
        return level1 | (above or set())

    async def _with_changes(self, hits: list[Hit], request: ContextInput) -> list[Hit]:
        """Mark hits whose decisions were replaced, or whose files have changed, since."""
        from ragmem.memory.since import replaced_in

        replaced: Mapping[str, Replaced] = {}
        if self._facts is not None:
            sessions = {hit.session_id for hit in hits}
            replaced = await self._query_store(lambda store: replaced_in(store, sessions)) or {}
        tops = {request.place.project, request.place.cwd}
        outdated = await asyncio.to_thread(lambda: [_outdated(hit, tops) for hit in hits])
        return [
            msgspec.structs.replace(hit.judged(replaced), changed=files, outdated=calls)
            for hit, (files, calls) in zip(hits, outdated, strict=True)
        ]

    async def _with_since(
        self,
        hits: list[Hit],
        facts: list[FactHit],
        liked: list[MemoryRecord],
        request: ContextInput,
    ) -> tuple[list[Hit], list[FactHit], list[MemoryRecord]]:
        """Mark hits and facts with what was said later in the project that carries out or
        contradicts them; drop preferences that a later turn has overwritten."""
        from ragmem.memory.since import Aftermath, alike, turns_since

        memories = [fact.memory for fact in facts]
        # A summary is newer than the turns that it covers.
        ages = [_BEGINNING_OF_TIME if hit.summary else hit.at for hit in hits]
        oldest = min([*ages, *(memory.created_at for memory in (*memories, *liked))])
        project_id = request.session.project_id
        store = await self._store()
        turns = await turns_since(store, project_id, oldest)
        recalled = [hit.turn for hit in hits if hit.turn]
        meant = await alike(store, [*turns, *recalled], self._fitted)
        # Later turns of this project say nothing about another project's.
        own = {turn.session_id for turn in turns} if self._config.scope == "all" else None

        def marked() -> tuple[list[Hit], list[FactHit], list[MemoryRecord]]:
            after, replace = Aftermath(turns, memories, meant), msgspec.structs.replace
            return (
                [
                    replace(hit, since=_said_later(hit, after))
                    if not hit.since and (own is None or hit.session_id in own)
                    else hit
                    for hit in hits
                ],
                [
                    replace(fact, since=after.of_memory(fact.memory))
                    if fact.memory.project_id == project_id
                    else fact
                    for fact in facts
                ],
                [each for each in liked if not after.overwritten(each)],
            )

        return await asyncio.to_thread(marked) if turns else (hits, facts, liked)

    async def _last_time(self, request: ContextInput) -> "tuple[SessionRecap, ...]":
        """Return recaps of other sessions, at the start of a session or if the prompt asks."""
        scope = self._config.scope
        if self._open_store is None or request.strategy != "hybrid" or scope == "session":
            return ()
        from ragmem.memory.last_time import last_time, sessions_wanted

        most = sessions_wanted(request.question, request.before or request.session.turn_count + 1)
        if not most:
            return ()
        everywhere, now, floor = scope == "all", request.now, self._fitted
        found = await self._query_store(
            lambda store: last_time(
                store, request.session, everywhere=everywhere, most=most, now=now, floor=floor
            )
        )
        return tuple(found or ())

    # --- code ---------------------------------------------------------------------

    async def _code(self, request: ContextInput) -> ProjectCode:
        if request.find_code is None or request.strategy == "recent":
            return ProjectCode()
        try:
            with self._metrics.time("code.context"):
                return await request.find_code(request.question)
        except Exception as error:
            self._log("Code was not looked for", error)
            self._metrics.count("code.failures")
            return ProjectCode()

    # --- facts --------------------------------------------------------------------

    async def _known(
        self, request: ContextInput
    ) -> tuple[Profile, list[MemoryRecord], list[FactHit]]:
        """Return profile, preferences and facts for the strategy; also read the pinned memories."""
        facts = self._facts
        if facts is None:
            return Profile(), [], []
        if request.strategy == "relevant":
            return Profile(), [], await self._memories(facts, request)
        profile, found = await asyncio.gather(
            self._result_or_none(facts.profile()), self._memories(facts, request)
        )
        liked, project_id = None, request.session.project_id
        if project_id in self._last_pinned:
            liked = await self._result_or_none(facts.preferences(project_id))
        return profile or Profile(), liked or [], found

    async def _memories(self, facts: "Facts", request: ContextInput) -> list[FactHit]:
        """Search the facts for the prompt; read the pinned ones into `_last_pinned`.

        Those last read stay there, so that no rule is missing while the store is unavailable.
        """
        project_id = request.session.project_id
        # One after the other, since the others use what the first has read.
        pinned = await self._read(partial(facts.pinned, project_id), project_id)
        if pinned is None:
            return []
        self._last_pinned[project_id] = tuple(pinned)
        if request.strategy == "recent" or names_nothing(request.question, request.now):
            return []
        if not await self._result_or_none(facts.current(project_id)):
            # There are no memories: don't even load what a search needs.
            return []
        patience_s = self._config.embeddings.timeout_s
        found = await self._result_or_none(
            facts.search(
                request.question,
                project_id=project_id,
                limit=self._config.facts.shown + _SPARE_FACTS,
                patience_s=patience_s,
            ),
            beside_s=patience_s,
        )
        return found or []

    async def _read(self, ask: Callable[[], Awaitable[T]], project_id: str) -> T | None:
        """Ask, up to three times while no rule of the project is known.

        A store that a busy machine is still opening must not cost the first request its rules.
        """
        for _ in range(0 if project_id in self._last_pinned else _MORE_TRIES):
            if (found := await self._result_or_none(ask())) is not None:
                return found
        return await self._result_or_none(ask())


async def accesses_of(
    store: Store, session_id: str, *, max_chars: int = FILES_CHARS
) -> list[FileAccess]:
    """Return the files of a session's latest turns: one access per path, latest first."""
    max_chars = max(0, max_chars)
    found = await store.file_accesses(session_id, max_turn_chars=max_chars * _FILES_LOOKBACK)
    return recently_accessed(found, max_chars=max_chars)


def _around_window(builder: "ContextBuilder", turns: Sequence[Turn]) -> Material:
    window = builder.window(turns)
    first = (window.turns or tuple(turns) or (None,))[0]
    older_count = first.turn_index - 1 if first else 0
    return Material(turns=tuple(turns), window=window, older_count=older_count)


async def _older(store: Store, session_id: str, older_count: int) -> list[Turn]:
    if older_count < 1:
        return []
    query = TurnQuery(
        limit=_OLDER_QUERIES,
        before_index=older_count + 1,
        statuses=FINISHED,
        with_tool_calls=False,
    )
    return await store.turns(session_id, query)


def _latest_first(level1: Sequence[Summary], turns: Sequence[Turn]) -> tuple[Summary, ...]:
    """Sort summaries by the latest turn they cover, not by time: older turns may come later."""
    places = {turn.turn_id: turn.turn_index for turn in turns}
    return tuple(
        sorted(level1, key=lambda s: -max((places.get(i, 0) for i in s.covers), default=0))
    )


def _said_later(hit: Hit, after: "Aftermath") -> str:
    if hit.turn:
        return after.of_turn(hit.turn)
    return after.of_summary(hit.summary) if hit.summary else ""


def _outdated(hit: Hit, tops: Iterable[Path]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the files that have changed since a hit, and those of each call before the change.

    A turn's files count from its last call that read or wrote them, a summary's from its creation.
    """

    def is_changed(path: str, at: datetime) -> bool:
        return any(written_since(top / path, at) for top in tops)

    if hit.summary:
        made_at = hit.summary.created_at
        return tuple(p for p in hit.summary.files_mentioned if is_changed(p, made_at)), {}
    calls, changed = dict[str, str](), dict[str, bool]()
    for call in hit.turn.tool_calls if hit.turn else ():
        # Compare with the end of the call, since it may have written the file itself.
        ended_at = call.started_at + timedelta(milliseconds=call.duration_ms)
        for access in extract_accessed_files(call):
            if access.access_type in ("read", "write"):
                changed[access.path] = is_changed(access.path, ended_at)
                if changed[access.path]:
                    calls[call.tool_call_id] = access.path
    return tuple(path for path, is_so in changed.items() if is_so), calls

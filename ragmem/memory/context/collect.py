"""Collects what a request is made of; shaping it is the context builder's work.

The conversation itself comes from the store, or from what this process remembers of it. All else
is an extra: what can't be had, or not in time, is left out, and the turn goes on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from ragmem.config import MemoryConfig
from ragmem.errors import RagmemError, StoreError
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

FINISHED = ("completed", "interrupted", "failed")
PINNED_UNKNOWN = (
    "The memory could not be read: any rules and pinned memories are missing from this request."
)
INCOMPLETE = "Something that may be relevant was not recalled."
FILES_CHARS = 5_000
"""Of the list of accessed files, at 50 characters a path."""
_FILES_LOOKBACK = 10
"""They come from turns of so many times these characters."""
_OLDER_QUERIES = 10
"""What is older is found where it bears on the prompt."""
_LEVEL1_LIMIT = 200
"""Of which the builder shows ten that the window does not."""
_CONTEXT_HITS = 16
"""Of which a request shows the best five that it does not show already."""
_NEAR_NOTHING = 0.4
"""Share of the embedder's own floor: a prompt of which all that was said is farther than that is
about something else, such as a question of general knowledge. More than a third of these are; of
the turns that prompts about a project with a long past must find, one in 400 is lost
(docs/measurements.md)."""
_LONGEST_QUESTION = 40_000
"""Characters that are looked for, as many as are embedded of a turn."""
_MORE_TRIES = 2
_EVER = datetime.min.replace(tzinfo=UTC)
_SPARE_FACTS = 8
"""So many more than are shown are looked for: some stand in the request anyway."""


Strategy = Literal["recent", "relevant", "hybrid"]
"""Which sections there are: the latest, what bears on the prompt, or both."""
STRATEGIES: tuple[Strategy, ...] = ("recent", "relevant", "hybrid")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the agent works."""

    cwd: Path
    project: Path
    instructions: Instructions
    show_path: Callable[[str], str] = str
    memory_tools: bool = False
    """Whether the model has tools to search the memory and to add to it."""
    code_tool: bool = False
    """Whether the model has brain_search."""
    skills: str = ""
    """What the model is told of skills that it can read."""


class CodePassage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of the project's code that bear on a prompt, as they are on the disk now."""

    scope_id: str
    path: str
    """As in `FileAccess`."""
    name: str
    """`Service.validate`; empty for lines without one."""
    start_line: int
    end_line: int
    text: str
    score: float
    why: str
    """In words, for the model and for people."""


class ProjectCode(msgspec.Struct, frozen=True, kw_only=True):
    """What of the project's code bears on a text, and what is to be known of that."""

    passages: tuple[CodePassage, ...] = ()
    """Best first."""
    left_out: str = ""
    """Why there are none, where looking for them took too long."""
    files_so_far: int | None = None
    """How many files are indexed, while the project is looked at for the first time."""


FindCode = Callable[[str], Awaitable[ProjectCode]]


class ContextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, and where, when and how it is asked."""

    prompt: str
    place: Place
    tag: str
    """Delimits quoted data: one that no file could know."""
    now: datetime
    session_id: str = ""
    """Of the conversation that it belongs to."""
    mentions: Sequence[ToolCall] = ()
    """Of files that the prompt names, and commands that the person ran."""
    strategy: Strategy = "hybrid"
    changed: str = ""
    """Which files are other than the agent knows them; one line."""

    @property
    def question(self) -> str:
        """What is looked for: the prompt, or the beginning and the end of a very long one."""
        return clip_middle(self.prompt, _LONGEST_QUESTION)


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What memory has for a prompt: reading it is the store's work, shaping it is done here."""

    turns: tuple[Turn, ...] = ()
    """Finished turns, in order: as many as `window_limit` asks for."""
    window: Window = NO_WINDOW
    """`ContextBuilder.window` of those turns."""
    older: tuple[Turn, ...] = ()
    """The turns just before the window, in order; for their queries."""
    older_count: int = 0
    """How many turns came before the window."""
    accesses: tuple[FileAccess, ...] = ()
    """One a path, latest first."""
    last_time: "tuple[SessionRecap, ...]" = ()
    """What other sessions came to, for whoever comes back; the newest first."""
    hits: tuple[Hit, ...] = ()
    """What memory holds on the prompt, best first."""
    level1: tuple[Summary, ...] = ()
    """Summaries of turns that no higher summary covers, newest first."""
    thread_summary: str = ""
    pinned: tuple[MemoryRecord, ...] = ()
    """The person's rules and pinned memories, oldest first: for the system message."""
    profile: Profile = Profile()
    preferences: tuple[MemoryRecord, ...] = ()
    """What the person likes, the most telling first."""
    facts: tuple[FactHit, ...] = ()
    """Memories that bear on the prompt, best first; more than are shown."""
    code: ProjectCode = ProjectCode()
    """More than is shown."""
    notices: tuple[str, ...] = ()
    """What the person is to be told of what is missing."""
    at_hand: bool = False
    """The store could not answer: this is what the process remembers."""


class ContextInput(ContextRequest, frozen=True, kw_only=True):
    """What a request is made of, with what is known beside the store."""

    session: Session
    builder: "ContextBuilder"
    before: int | None = None
    """Index of the turn in flight."""
    own: Sequence[Turn] = ()
    """Finished turns of the session that this process has seen."""
    in_store: bool = True
    """Whether the store knows of the session."""
    find_code: FindCode | None = None


class Collector:
    """Asks the store, recall and the facts; `open_store` is None where there is no store.

    It keeps what was read last, for when the store can't be asked. Where nothing is recorded
    (`records` is false) a session's newest turns are in this process alone.

    `floor` is the cosine above which something is recalled, as the person may have set it, and
    `fitted` the same as it was fitted for the embedder: the scale that its other cosines are on.
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
        self._last: dict[str, Material] = {}
        self._last_pinned: dict[str, tuple[MemoryRecord, ...]] = {}
        self._has_facts = False
        self._why_away = ""
        """Why the store did not answer what was last asked; empty where it did."""
        self._missing: tuple[str, ...] = ()
        """What is told where it answered a part in time: nobody else says that of such a store."""

    async def collect(self, asked: ContextInput) -> Material:
        """Collect all that the builder shapes; what is at hand where the store can't be asked."""
        found, code = await asyncio.gather(self._remembered(asked), self._code(asked))
        return msgspec.structs.replace(found, code=code)

    def at_hand(self, asked: ContextInput) -> Material:
        """What is known without the store: what was read last, and this process' own turns."""
        session = asked.session
        last = self._last.get(session.session_id, Material())
        return Material(
            turns=self.turns_at_hand(session.session_id, asked.own),
            at_hand=True,
            level1=last.level1,
            thread_summary=last.thread_summary,
            # What is pinned stands in every request, whatever shortens it.
            pinned=self._last_pinned.get(session.project_id, ()),
            notices=self._notices(session),
        )

    def turns_at_hand(self, session_id: str, own: Sequence[Turn]) -> tuple[Turn, ...]:
        """The turns of a session that this process knows of, in order."""
        last = self._last.get(session_id, Material())
        known = {turn.turn_id: turn for turn in [*last.older, *last.turns, *own]}
        return tuple(sorted(known.values(), key=lambda turn: turn.turn_index))

    def failed(self, error: Exception, what: str = "The memory could not be recalled") -> None:
        """Count it, and log it if it is no store that is away: the turn goes on."""
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

    async def _tried(self, work: Awaitable[T], *, beside_s: float = 0.0) -> T | None:
        """What it gives; None, with a word in the log, when it fails or takes too long."""
        try:
            return await in_time(work, beside_s=beside_s)
        except Exception as error:
            self.failed(error, "Something was not recalled")
        return None

    async def _asked(self, ask: Callable[[Store], Awaitable[T]]) -> T | None:
        async def answer() -> T:
            return await ask(await self._store())

        return await self._tried(answer())

    async def _remembered(self, asked: ContextInput) -> Material:
        self._why_away, self._missing = "", ()
        try:
            with self._metrics.time("memory.context"):
                past, relevant, (profile, liked, facts), last = await asyncio.gather(
                    in_time(self._past(asked)),
                    self._relevant(asked),
                    self._known(asked),
                    self._last_time(asked),
                )
                if self._is_of_nothing_told(relevant):
                    last = ()
                hits = await self._hits(relevant, past.window.turns, asked)
                if (hits or facts or liked) and self._config.scope != "session":
                    judged = await self._tried(self._with_since(hits, facts, liked, asked))
                    hits, facts, liked = judged or (hits, facts, liked)
                return msgspec.structs.replace(
                    past,
                    last_time=last,
                    hits=tuple(hits),
                    pinned=self._last_pinned.get(asked.session.project_id, ()),
                    profile=profile,
                    preferences=tuple(liked),
                    facts=tuple(facts),
                    notices=self._notices(asked.session) or self._missing,
                )
        except Exception as error:
            self.failed(error)
            return self.at_hand(asked)

    def _notices(self, session: Session) -> tuple[str, ...]:
        if self._facts is None or session.project_id in self._last_pinned:
            return ()
        return (f"{PINNED_UNKNOWN} {self._why_away}".strip(),)

    # --- the conversation ---------------------------------------------------------

    async def _past(self, asked: ContextInput) -> Material:
        if not asked.in_store or asked.before == 1:
            return _around_window(asked.builder, asked.own)
        store, session_id, before = await self._store(), asked.session.session_id, asked.before
        session = await store.session(session_id)
        count = (before or session.turn_count + 1) - 1
        limit = window_limit(count)
        query = TurnQuery(limit=limit, before_index=before, statuses=FINISHED)
        found, accesses, level1 = await asyncio.gather(
            store.turns(session_id, query),
            accesses_of(store, session_id),
            store.summaries(session_id, level=1, not_rolled_up=True, limit=_LEVEL1_LIMIT),
        )
        # Fewer of them may be finished than counted: the start of planning must not shift.
        turns = [turn for turn in found if turn.turn_index > count - limit]
        stored = {turn.turn_id for turn in turns}
        if not self._records:
            turns += [turn for turn in asked.own if turn.turn_id not in stored]
        around = _around_window(asked.builder, turns)
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

    def _is_of_nothing_told(self, found: Found | None) -> bool:
        """Whether a prompt that was looked for has nothing to do with anything that was said."""
        if found is None or found.nearest is None or self._fitted is None:
            return False
        text, is_far = found.question.text, found.nearest < _NEAR_NOTHING * self._fitted
        return is_far and not points_back(text) and not asks_of_before(text)

    # --- turns and summaries ------------------------------------------------------

    async def _relevant(self, asked: ContextInput) -> Found | None:
        """What bears on the prompt; None where that can't be found out in time."""
        if self._open_store is None or asked.strategy == "recent":
            return None
        session_id, patience_s = asked.session.session_id, self._config.embeddings.timeout_s
        question = Question(
            text=asked.question,
            scope=scope_of(asked.session, self._config.scope),
            session_id=session_id,
            max_results=_CONTEXT_HITS,
            min_similarity=self._floor,
            patience_s=patience_s,
        )

        async def found() -> Found | None:
            latest = await (await self._store()).sessions(SessionQuery(limit=2))
            if all(s.session_id == session_id and s.turn_count <= 1 for s in latest):
                # Nothing was said before: what a search needs is not even loaded.
                return None
            if names_nothing(asked.question, asked.now):
                return None
            return await self._recall.find(question)

        return await self._tried(found(), beside_s=patience_s)

    async def _hits(
        self, found: Found | None, window: Sequence[Turn], asked: ContextInput
    ) -> list[Hit]:
        """Those that the recent window does not show, nor are summaries of what it shows."""
        if found is None:
            return []
        shown = window if asked.strategy != "relevant" else ()
        hidden = {turn.turn_id for turn in shown} | await self._summaries_of(shown, found, asked)
        hits = await self._tried(self._recall.hits(found, hidden=hidden))
        return await self._judged(hits, asked) if hits else []

    async def _summaries_of(
        self, shown: Sequence[Turn], found: Found, asked: ContextInput
    ) -> set[str]:
        """Ids of the summaries, of any level, that tell of nothing but these turns."""
        from ragmem.memory.summaries import made_of, summary_id

        level1 = {summary_id(turn.session_id, 1, (turn.turn_id,)) for turn in shown}
        own = {asked.session.session_id, *(turn.session_id for turn in shown)}
        candidates = (one.candidate for one in found.ranked)
        higher = [
            each.record_id for each in candidates if each.level > 1 and each.session_id in own
        ]
        if len(shown) < 2 or not higher:
            return level1
        above = await self._asked(partial(made_of, ids=higher, below=level1, turn_count=len(shown)))
        return level1 | (above or set())

    async def _judged(self, hits: list[Hit], asked: ContextInput) -> list[Hit]:
        """With what has changed since it was said: decisions, and files that were quoted."""
        from ragmem.memory.since import replaced_in

        replaced: Mapping[str, Replaced] = {}
        if self._facts is not None:
            sessions = {hit.session_id for hit in hits}
            replaced = await self._asked(lambda store: replaced_in(store, sessions)) or {}
        tops = {asked.place.project, asked.place.cwd}
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
        asked: ContextInput,
    ) -> tuple[list[Hit], list[FactHit], list[MemoryRecord]]:
        """With what was said later in the project that does it or takes it back; of preferences
        those that no later turn has written over."""
        from ragmem.memory.since import Aftermath, alike, turns_since

        memories = [fact.memory for fact in facts]
        # A summary is younger than the turns that it tells of.
        ages = [_EVER if hit.summary else hit.at for hit in hits]
        oldest = min([*ages, *(memory.created_at for memory in (*memories, *liked))])
        project_id = asked.session.project_id
        store = await self._store()
        turns = await turns_since(store, project_id, oldest)
        recalled = [hit.turn for hit in hits if hit.turn]
        meant = await alike(store, [*turns, *recalled], self._fitted)
        # What another project's turn says is no matter of this one's.
        own = {turn.session_id for turn in turns} if self._config.scope == "all" else None

        def marked() -> tuple[list[Hit], list[FactHit], list[MemoryRecord]]:
            after, replace = Aftermath(turns, memories, meant), msgspec.structs.replace
            return (
                [
                    replace(hit, since=_became(hit, after))
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

    async def _last_time(self, asked: ContextInput) -> "tuple[SessionRecap, ...]":
        """What other sessions came to: at the start of one, and where the prompt means them."""
        scope = self._config.scope
        if self._open_store is None or asked.strategy != "hybrid" or scope == "session":
            return ()
        from ragmem.memory.last_time import last_time, sessions_wanted

        most = sessions_wanted(asked.question, asked.before or asked.session.turn_count + 1)
        if not most:
            return ()
        everywhere, now, floor = scope == "all", asked.now, self._fitted
        found = await self._asked(
            lambda store: last_time(
                store, asked.session, everywhere=everywhere, most=most, now=now, floor=floor
            )
        )
        return tuple(found or ())

    # --- code ---------------------------------------------------------------------

    async def _code(self, asked: ContextInput) -> ProjectCode:
        """What bears on the prompt."""
        if asked.find_code is None or asked.strategy == "recent":
            return ProjectCode()
        try:
            with self._metrics.time("code.context"):
                return await asked.find_code(asked.question)
        except Exception as error:
            self._log("Code was not looked for", error)
            self._metrics.count("code.failures")
            return ProjectCode()

    # --- facts --------------------------------------------------------------------

    async def _known(
        self, asked: ContextInput
    ) -> tuple[Profile, list[MemoryRecord], list[FactHit]]:
        """Profile, preferences and facts as the strategy has them; reads what is pinned, too."""
        facts, with_person = self._facts, asked.strategy != "relevant"
        if facts is None:
            return Profile(), [], []
        profile, found = await asyncio.gather(
            self._tried(facts.profile()) if with_person else _nothing(),
            self._memories(facts, asked),
        )
        liked = None
        if self._has_facts and with_person:
            liked = await self._tried(facts.preferences(asked.session.project_id))
        return profile or Profile(), liked or [], found

    async def _memories(self, facts: "Facts", asked: ContextInput) -> list[FactHit]:
        """Those that bear on the prompt; the pinned ones are kept in `_last_pinned`.

        As they were read last: a store that is away takes no rule out of the request.
        """
        project_id = asked.session.project_id
        if not self._has_facts:
            # Where nothing was ever remembered, what a search needs is not even loaded.
            any_at_all = partial(facts.recent, project_id=project_id, limit=1)
            found_any = await self._read(any_at_all, project_id)
            self._has_facts = bool(found_any)
            if found_any == []:
                self._last_pinned[project_id] = ()
        if not self._has_facts:
            return []
        # One after the other: the second finds what the first has read.
        pinned = await self._read(partial(facts.pinned, project_id), project_id)
        if pinned is not None:
            self._last_pinned[project_id] = tuple(pinned)
        if asked.strategy == "recent" or pinned is None or names_nothing(asked.question, asked.now):
            return []
        patience_s = self._config.embeddings.timeout_s
        found = await self._tried(
            facts.search(
                asked.question,
                project_id=project_id,
                limit=self._config.facts.shown + _SPARE_FACTS,
                patience_s=patience_s,
            ),
            beside_s=patience_s,
        )
        return found or []

    async def _read(self, ask: Callable[[], Awaitable[T]], project_id: str) -> T | None:
        """Asked more than once while no rule of the project is known: a store that is just being
        opened by a busy machine must not cost the first request its rules."""
        for _ in range(0 if project_id in self._last_pinned else _MORE_TRIES):
            if (found := await self._tried(ask())) is not None:
                return found
        return await self._tried(ask())


async def accesses_of(
    store: Store, session_id: str, *, max_chars: int = FILES_CHARS
) -> list[FileAccess]:
    """The files of a session's latest turns, one entry a path, latest first."""
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
    """By the turns that they are of: work that was left is done latest turn first."""
    places = {turn.turn_id: turn.turn_index for turn in turns}
    return tuple(
        sorted(level1, key=lambda s: -max((places.get(i, 0) for i in s.covers), default=0))
    )


def _became(hit: Hit, after: "Aftermath") -> str:
    if hit.turn:
        return after.of_turn(hit.turn)
    return after.of_summary(hit.summary) if hit.summary else ""


def _outdated(hit: Hit, tops: Iterable[Path]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Files that have changed since the turn's last call that read or wrote them, of a summary
    those that it names; and such files by each call that was before the change."""

    def is_changed(path: str, at: datetime) -> bool:
        return any(written_since(top / path, at) for top in tops)

    if hit.summary:
        made_at = hit.summary.created_at
        return tuple(p for p in hit.summary.files_mentioned if is_changed(p, made_at)), {}
    calls, changed = dict[str, str](), dict[str, bool]()
    for call in hit.turn.tool_calls if hit.turn else ():
        # What it wrote itself was written before it ended.
        ended_at = call.started_at + timedelta(milliseconds=call.duration_ms)
        for access in extract_accessed_files(call):
            if access.access_type in ("read", "write"):
                changed[access.path] = is_changed(access.path, ended_at)
                if changed[access.path]:
                    calls[call.tool_call_id] = access.path
    return tuple(path for path, is_so in changed.items() if is_so), calls


async def _nothing() -> None:
    return None

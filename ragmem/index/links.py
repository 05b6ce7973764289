"""Links from turns to the scopes that they edited, read, found and named, and code's history."""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from ragmem.errors import RagmemError, SessionNotFound, StoreError
from ragmem.index import HOLDERS, CodeHit
from ragmem.index.names import is_named, is_telling, names_in
from ragmem.logs import LOGGER
from ragmem.memory.files import NO_PAST, CodePast, inside_of, past_of_scopes
from ragmem.memory.leases import leased
from ragmem.memory.projects import is_reachable
from ragmem.memory.recall import comes_near
from ragmem.memory.turns import locator
from ragmem.own_tools import EDITING_TOOLS, READ_FILE
from ragmem.records import (
    CodeReference,
    CodeScope,
    CodeStore,
    FoundScope,
    Pending,
    Project,
    PutReferences,
    ReferenceHow,
    ScopeQuery,
    Session,
    ToolCall,
    Turn,
)
from ragmem.usage import Metrics

if TYPE_CHECKING:
    from ragmem.index.index import CodeIndex


MOST_REFERENCES = 100
"""The most references of one turn; the strongest are kept."""
MOST_READ = 20
"""The most scopes linked for one read or edit: those named in the turn first, then top-level
ones."""
_MOST_LINES = 200
_LAST_LINE = 10_000_000

_MATCH = re.compile(r"(\d{1,9}):")

Lines = tuple[int, int]


class TouchedLines(msgspec.Struct, frozen=True):
    """The lines of a file that a tool call edited, read or found."""

    how: ReferenceHow
    path: str
    """The path as the tool gave it."""
    lines: tuple[Lines, ...]
    replaced: tuple[int, ...] = ()
    """For an edit, the number of lines that each range replaced; empty if unknown."""

    def later(self, edit: "TouchedLines") -> "TouchedLines":
        """Return its lines as shifted by a later edit of the same file."""
        if len(edit.replaced) != len(edit.lines):
            return self
        moved = [(min(_moved(first, edit)), max(_moved(last, edit))) for first, last in self.lines]
        return msgspec.structs.replace(self, lines=tuple(moved))


def _moved(line: int, edit: TouchedLines) -> Lines:
    """Return the position of a line after an edit: its new number, or the range replacing it."""
    grown = 0
    for (first, last), replaced in zip(edit.lines, edit.replaced, strict=True):
        begins = first - grown
        if line < begins:
            break
        if line < begins + replaced:
            return first, last
        grown += last - first + 1 - replaced
    return line + grown, line + grown


class _Item(msgspec.Struct, frozen=True):
    scope_id: str = ""


class _Result(msgspec.Struct, frozen=True):
    text: str = ""
    path: str = ""
    first_line: int = 0
    last_line: int = 0
    changed: tuple[Lines, ...] | None = None
    replaced: tuple[int, ...] = ()
    files: tuple[_Item, ...] = ()


async def references_of(
    turn: Turn, scopes: "CodeIndex", locate: Callable[[str], str]
) -> tuple[CodeReference, ...]:
    """Return a turn's references, strongest first; `locate` maps tools' paths to stored ones."""
    named = await _named(turn, scopes)
    hows: dict[str, ReferenceHow] = {}
    for place in sorted(places_of(turn), key=lambda p: ("edited", "read", "found").index(p.how)):
        path = locate(place.path)
        if path.startswith("/"):
            continue
        found = await scopes.scopes_at(path, place.lines)
        for scope in _most_relevant(found, named) if place.how != "found" else found:
            hows.setdefault(scope.scope_id, place.how)
    for scope_id in searched_scopes(turn.tool_calls):
        hows.setdefault(scope_id, "found")
    for scope_id in named:
        hows.setdefault(scope_id, "named")
    return tuple(
        CodeReference(scope_id=scope_id, how=how)
        for wanted in ("edited", "read", "found", "named")
        for scope_id, how in hows.items()
        if how == wanted
    )[:MOST_REFERENCES]


def edited_paths(turn: Turn) -> list[str]:
    """Return the paths of files that the turn edited, as its tool calls gave them."""
    return list(dict.fromkeys(place.path for place in places_of(turn) if place.how == "edited"))


def places_of(turn: Turn) -> list[TouchedLines]:
    """Return the lines that successful calls touched, in order, as numbered at the turn's end."""
    places: list[TouchedLines] = []
    for call in turn.tool_calls:
        now = list(_places(call)) if call.success else []
        for edit in now:
            if edit.how == "edited":
                places = [p.later(edit) if p.path == edit.path else p for p in places]
        places += now
    return places


def searched_scopes(calls: Iterable[ToolCall]) -> list[str]:
    """Return the ids of scopes that calls of `brain_search` found."""
    found = (
        item.scope_id
        for call in calls
        if call.success and call.tool_name == "brain_search" and (result := _result(call))
        for item in result.files
    )
    return list(dict.fromkeys(filter(None, found)))


async def _named(turn: Turn, scopes: "CodeIndex") -> dict[str, None]:
    """Return the ids of scopes that the user or the agent named, in order of first mention."""
    names = list(dict.fromkeys([*names_in(turn.user_message), *names_in(turn.said)]))
    asked = {suffix: None for name in names for suffix in _suffixes(name)}
    found = await scopes.scopes_named(list(asked)) if asked else {}
    ids: dict[str, None] = {}
    for name in names:
        for suffix in _suffixes(name):
            if known := found.get(suffix) or found.get(suffix.casefold()):
                ids |= dict.fromkeys(each.scope.scope_id for each in known)
                break
    return ids


def _suffixes(name: str) -> Iterator[str]:
    """Yield `auth.Service.validate`, `Service.validate`, and `validate` if that is distinctive."""
    yield name
    while "." in name:
        name = name.partition(".")[2]
        if "." in name or is_telling(name):
            yield name


def _places(call: ToolCall) -> Iterator[TouchedLines]:
    result = _result(call)
    if result is None:
        return
    if call.tool_name == READ_FILE and result.path and result.last_line > 0:
        yield TouchedLines("read", result.path, ((result.first_line, result.last_line),))
    elif call.tool_name in EDITING_TOOLS and result.path:
        if result.changed is None:
            yield TouchedLines("edited", result.path, ((1, _LAST_LINE),))
        else:
            yield TouchedLines("edited", result.path, result.changed, result.replaced)
    elif call.tool_name == "grep_files":
        yield from _matches(result.text)


def _matches(text: str) -> Iterator[TouchedLines]:
    """Yield the lines in a page of grep results: a path, and below it `12:text` for each match.

    Blank lines separate the files, so that a path may look like anything (`[id]/page.tsx`).
    """
    left = _MOST_LINES
    for block in re.split(r"\n\n+", text.strip("\n")):
        path, *rows = block.split("\n")
        lines = [int(match[1]) for row in rows if (match := _MATCH.match(row))][:left]
        left -= len(lines)
        if lines:
            yield TouchedLines("found", path, tuple((line, line) for line in lines))


def _most_relevant(found: Sequence[CodeScope], named: Collection[str]) -> Sequence[CodeScope]:
    if len(found) <= MOST_READ:
        return found
    first = sorted(found, key=lambda s: (s.scope_id not in named, "." in s.qualified_name))
    return first[:MOST_READ]


def _result(call: ToolCall) -> _Result | None:
    try:
        return msgspec.json.decode(call.result, type=_Result)
    except msgspec.DecodeError:
        return None


_LEASE_S = 60.0
_REFRESH_TIMEOUT_S = 5.0
"""How long to wait for a running refresh; after that the turns are linked later."""


class TurnLinks:
    """Links turns with code; turns of projects without an index here are left to others."""

    def __init__(
        self,
        index_of: Callable[[Project], "CodeIndex | None"],
        looking: Callable[[str], "asyncio.Task[object] | None"],
        *,
        writes: bool,
        metrics: Metrics,
    ) -> None:
        """`looking` returns by project id the refresh that is running, if any."""
        self._index_of = index_of
        self._refreshing = looking
        self._writes = writes
        self._metrics = metrics
        self._unindexed: set[str] = set()
        """Sessions whose project has no index here, and which are skipped from then on."""

    async def look_through(
        self, store: CodeStore, items: Sequence[Pending], owner_id: str
    ) -> frozenset[str]:
        """Link turns; return the keys of those leased or without an index. Raises StoreError."""
        others = {item.key for item in items if item.session_id in self._unindexed}
        to_link = {item.key: item.record_id for item in items if item.key not in others}
        if not to_link:
            return frozenset(others)
        refreshed = set[str]()
        async with leased(store, list(to_link), owner_id, seconds=_LEASE_S) as leased_keys:
            ids = [record_id for key, record_id in to_link.items() if key in leased_keys]
            for turn in await store.get(Turn, ids):
                with suppress(SessionNotFound):
                    session = await store.session(turn.session_id)
                    await self._link_if_indexed(store, turn, session, refreshed)
            return leased_keys | others

    async def _link_if_indexed(
        self, store: CodeStore, turn: Turn, session: Session, refreshed: set[str]
    ) -> None:
        project = await _project_of(store, session)
        index = self._index_of(project) if project else None
        if project is None or index is None:
            self._unindexed.add(session.session_id)
        elif not await self._is_refreshing(project.project_id):
            if await index.exists():
                await self._link(store, turn, session, index, refreshed)
            else:
                self._unindexed.add(session.session_id)

    async def _is_refreshing(self, project_id: str) -> bool:
        """Return whether a refresh is running that doesn't end within some seconds."""
        running = self._refreshing(project_id)
        if running is None or running.done():
            return False
        await asyncio.wait({running}, timeout=_REFRESH_TIMEOUT_S)
        return not running.done()

    async def _link(
        self,
        store: CodeStore,
        turn: Turn,
        session: Session,
        index: "CodeIndex",
        refreshed: set[str],
    ) -> None:
        """Link a turn, unless the index can't be refreshed or mirrored to the store.

        A project is refreshed once for all turns linked together, and added to `refreshed`.
        """
        locate = locator(session)
        with self._metrics.time("code.link"):
            # The turns of a folder that is gone are linked by the old index.
            edits = any(not os.path.isabs(locate(path)) for path in edited_paths(turn))
            key = index.project.project_id
            if edits and key not in refreshed and self._writes and is_reachable(index.project.path):
                try:
                    await index.refresh()
                    refreshed.add(key)
                except RagmemError as error:
                    # A full disk, say, which must not block all other background work.
                    logging.getLogger(LOGGER).warning("Turns could not be linked yet: %s", error)
                    self._metrics.count("code.failures")
                    return
            if await index.mirror():
                found = await references_of(turn, index, locate)
                await store.apply([PutReferences(turn_id=turn.turn_id, references=found)])


async def _project_of(store: CodeStore, session: Session) -> Project | None:
    """Return the project of the folder that a session worked in, else the session's own project."""
    known = await store.projects()
    own = [p for p in known if p.path == session.project_path and p.root_id == session.project_id]
    return next(iter([*own, *(p for p in known if p.project_id == session.project_id)]), None)


_EXTRA_HITS = 20
"""The number of hits to ask for beyond the limit: named scopes may be among them."""


class FoundCode(msgspec.Struct, frozen=True, kw_only=True):
    """A scope with its history."""

    hit: CodeHit
    defined: bool = True
    """Whether it still exists; otherwise path and lines are its last known ones."""
    named: bool = False
    """Whether the question names it."""
    past: CodePast = NO_PAST

    @property
    def similarity(self) -> float | None:
        """The scope's raw cosine similarity."""
        return self.hit.similarity

    def is_close(self, floor: float | None) -> bool:
        """Return whether it is certainly relevant to the question."""
        return not self.defined or self.hit.is_close(floor)

    def is_further(self, floor: float | None) -> bool:
        """Return whether its similarity is near `floor`, if not over it; see `comes_near`."""
        return comes_near(self.similarity, floor)


class Finds(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `find_code`."""

    found: tuple[FoundCode, ...]
    """The scopes that the question names, then the most relevant others."""
    problem: str = ""
    """Why the store's part of the result is missing, as a message to show; empty if it isn't."""


async def find_code(
    code: "CodeIndex",
    query: str,
    *,
    open_store: Callable[[], Awaitable[CodeStore]] | None,
    limit: int = 10,
    semantic: bool = True,
) -> Finds:
    """Find at most `limit` scopes; without `open_store` their history is left out."""
    names = frozenset(name.casefold() for name in names_in(query, alone=True))
    hits = await code.search(query, limit=limit + (_EXTRA_HITS if names else 0), semantic=semantic)
    found = [
        FoundCode(hit=hit, named=is_named(hit.name, hit.qualified_name, names)) for hit in hits
    ]
    # A scope with exactly that name is what is meant, however relevant the others are.
    found.sort(key=lambda each: not each.named)
    if open_store is None:
        return Finds(found=tuple(found[:limit]))
    try:
        store, project_id = await open_store(), code.project.root_id
        # The store may not know yet that a scope exists again.
        there = {hit.scope_id for hit in hits}
        gone = await _deleted_scopes(store, project_id, names, limit + _EXTRA_HITS)
        gone = [each for each in gone if each.hit.scope_id not in there]
        named = sum(each.named for each in found)
        shown = [*found[:named], *gone, *found[named:]][:limit]
        return Finds(found=tuple(await _with_history(store, project_id, shown)))
    except StoreError as error:
        return Finds(found=tuple(found[:limit]), problem=str(error))


async def _deleted_scopes(
    store: CodeStore, project_id: str, names: Collection[str], most: int
) -> list[FoundCode]:
    """Return scopes of these names that no longer exist: past turns may be about them."""
    went: dict[str, FoundScope] = {}
    for name in sorted(names):
        if len(went) >= most:
            break
        query = ScopeQuery(project_ids=(project_id,), name=name, defined=False, limit=most)
        went |= {each.scope.scope_id: each for each in await store.find_scopes(query)}
    found = []
    for each in went.values():
        scope = msgspec.structs.asdict(each.scope)
        del scope["hash"]
        hit = CodeHit(**scope, path=each.path, score=0.0, why=(f"name: {each.scope.name}",))
        found.append(FoundCode(hit=hit, defined=False, named=True))
    return found


async def _with_history(
    store: CodeStore, project_id: str, found: Sequence[FoundCode]
) -> list[FoundCode]:
    ids: dict[str, list[str]] = {}
    for each in found:
        hit = each.hit
        ids[hit.scope_id] = [hit.scope_id]
        if each.named and hit.kind in HOLDERS:
            ids[hit.scope_id] += await inside_of(store, project_id, hit.path, hit.qualified_name)
    pasts = await past_of_scopes(store, project_id, ids)
    return [
        msgspec.structs.replace(each, past=pasts.get(each.hit.scope_id, NO_PAST)) for each in found
    ]

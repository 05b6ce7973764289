"""Operations on a whole session: finding, tagging, archiving, forking, listing similar ones."""

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ragmem.embedder import Embedder, cosines
from ragmem.errors import AmbiguousSession, SessionNotFound, StoreUnavailable, UsageError
from ragmem.ids import beginning_hint, short_id
from ragmem.libraries import load_numpy
from ragmem.memory.projects import folder_name, was_here
from ragmem.memory.recording import kept
from ragmem.records import (
    ASKED,
    SESSION_LEVEL,
    Session,
    SessionQuery,
    SessionStatus,
    TurnQuery,
    UpdateSession,
    utc_now,
)
from ragmem.store import Store
from ragmem.text import clean, counted, one_line

if TYPE_CHECKING:
    from ragmem.memory.memory import Memory
    from ragmem.memory.recording import Tail
    from ragmem.store.spool import SpooledStore

_SHOWN_CANDIDATES = 20


async def find_session(store: "Store | Tail", reference: str, *, mine: bool = False) -> Session:
    """Return the one session that matches; with `mine`, only the owner's own sessions count.

    Raises SessionNotFound or AmbiguousSession.
    """
    found = await store.find_sessions(reference, mine=mine)
    if not found:
        if mine and await store.find_sessions(reference):
            raise SessionNotFound(
                f"Session {one_line(reference, 80)} is another person's.",
                hint="To use it, add --everyone (in `ask` and `chat`, to -c or -r).",
            )
        raise SessionNotFound(
            f"Session {one_line(reference, 80)} not found.",
            hint="`ragmem sessions list --all` shows every session." + beginning_hint(reference),
        )
    exact = [s for s in found if s.session_id == reference]
    if len(found) > 1 and not exact:
        raise _ambiguous(reference, found)
    return (exact or found)[0]


def _ambiguous(reference: str, found: Sequence[Session]) -> AmbiguousSession:
    rows = "\n".join(f"  {short_id(s.session_id)}  {one_line(s.title, 60)}  {s.cwd}" for s in found)
    return AmbiguousSession(
        f"{len(found)} sessions match {one_line(reference, 80)!r}:\n{rows}",
        candidates=tuple(s.session_id for s in found),
        hint="Give more of its id.",
    )


def with_part(found: Iterable[Session], part: str) -> Session | None:
    """Return the session whose name contains a text, or None; AmbiguousSession for several."""
    wanted = " ".join(part.casefold().split())
    matching = [each for each in found if wanted and wanted in each.called.casefold()]
    if len(matching) > 1:
        raise _ambiguous(part, matching[:_SHOWN_CANDIDATES])
    return matching[0] if matching else None


_TAG_CHARS = 40


def _tag_of(text: str) -> str:
    """Return a tag as it is stored: one line, without a leading `#`; UsageError if invalid."""
    tag = " ".join(clean(text).split()).removeprefix("#").strip()
    if not tag:
        raise UsageError("A tag is empty.")
    if len(tag) > _TAG_CHARS:
        raise UsageError(f"The tag {one_line(tag, 60)!r} has more than {_TAG_CHARS} characters.")
    return tag


def with_tags(
    tags: Iterable[str], add: Iterable[str], remove: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the tags with some removed, then others added; UsageError if one was not there."""
    kept = dict.fromkeys(tags)
    for gone in map(_tag_of, remove):
        if gone not in kept:
            has = ", ".join(kept) or "none"
            raise UsageError(f"It has no tag {one_line(gone, 60)!r}.", hint=f"Its tags: {has}.")
        del kept[gone]
    return tuple(kept | dict.fromkeys(map(_tag_of, add)))


async def tag(
    memory: "Memory", session: Session, add: Iterable[str], remove: Iterable[str] = ()
) -> Session:
    """Add and remove tags, and return the session; UsageError for removing one it does not have."""
    tags = with_tags(session.tags, add, remove)
    if tags == session.tags:
        return session
    return await _updated(memory, session, tags=tags)


async def archive(memory: "Memory", session: Session, *, undo: bool = False) -> Session:
    """Archive a session, or restore it with `undo`; an archived one is still found by search."""
    status: SessionStatus = "active" if undo else "archived"
    if session.status == status:
        return session
    return await _updated(memory, session, status=status)


async def fork_at(
    memory: "Memory", session: Session, turn_index: int | None = None, *, title: str = ""
) -> Session:
    """Create a session that begins with this one's turns up to and including `turn_index`.

    None means all turns. They are shared, not copied. A summary that covers later turns is dropped.
    Raises UsageError if there is no such turn, or nothing is recorded.
    """
    if not memory.records:
        raise UsageError("Nothing is recorded here, so there is nothing to fork.")
    newest = TurnQuery(limit=1, with_tool_calls=False)
    loaded = await memory.load_session(session.session_id, newest)
    session, last = loaded.session, max((turn.turn_index for turn in loaded.turns), default=0)
    until = last if turn_index is None else turn_index
    if not 0 <= until <= last:
        raise UsageError(
            f"There is no turn {until} in this session.",
            hint=f"It has {counted(last, 'turn')}." if last else "It has no turns yet.",
        )
    message_count, last_asked = 0, None
    shared = TurnQuery(before_index=until + 1, with_tool_calls=False)
    async for turn in memory.turns_back(session.session_id, shared):
        message_count += 2 * (turn.status == "completed")
        last_asked = turn.asked if last_asked is None else last_asked
    if session.summarized_count > message_count:
        session = msgspec.structs.replace(session, summary=None, summarized_count=0)
    begun = msgspec.structs.replace(
        session,
        turn_count=until,
        message_count=message_count,
        last_message=last_asked,
        tags=tuple(tag for tag in session.tags if tag != ASKED),
    )
    return await memory.fork(begun, title=clean(" ".join(title.split())))


async def _updated(memory: "Memory", session: Session, **fields: Any) -> Session:
    write = UpdateSession(session_id=session.session_id, at=utc_now(), **fields)
    applied = await memory.record([write])
    if applied is None or not kept(applied):
        raise StoreUnavailable(
            "The memory is unavailable: nothing was changed.", hint="Try again later."
        )
    return await memory.find_session(write.session_id)


EMBEDDED_NOW = 50
"""How many summaries without a vector, the latest first, are embedded while the caller waits."""
_MOST_SESSIONS = 100_000
_LARGEST_BATCH = 16
_LATEST = 3


class SimilarSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session whose summary is similar to the text that was searched for."""

    session: Session
    similarity: float
    """Raw cosine, -1 to 1."""

    @property
    def uuid(self) -> str:
        """Return the session's id."""
        return self.session.session_id


async def similar_sessions(
    store: Store,
    embedder: Embedder,
    text: str,
    *,
    floor: float,
    limit: int = 5,
    project_ids: Sequence[str] = (),
    without: Collection[str] = (),
    embedded_now: int = EMBEDDED_NOW,
) -> list[SimilarSession]:
    """Find sessions whose summary's cosine is above `floor`, nearest first.

    Only sessions with a summary, of these projects or of all. Raises StoreError, EmbedderError.
    """
    query = SessionQuery(project_ids=tuple(project_ids), limit=_MOST_SESSIONS)
    found = await store.sessions(query)
    sessions = {s.session_id: s for s in found if s.summary and s.session_id not in without}
    if not sessions or not text.strip() or limit < 1:
        return []
    load_numpy()
    [asked] = await embedder.embed([text], "query")
    known = await store.small_vectors(list(sessions), SESSION_LEVEL, embedder.info.model_id)
    missing = [name for name in sessions if name not in known][:embedded_now]
    scores = cosines(asked.astype("<f4").tobytes(), known)
    for start in range(0, len(missing), _LARGEST_BATCH):
        names = missing[start : start + _LARGEST_BATCH]
        rows = await embedder.embed([sessions[name].summary or "" for name in names], "passage")
        scores |= {name: float(row @ asked) for name, row in zip(names, rows, strict=True)}
        # Let other tasks run between two batches.
        await asyncio.sleep(0)
    best = sorted(scores.items(), key=lambda pair: -pair[1])[:limit]
    return [SimilarSession(session=sessions[n], similarity=s) for n, s in best if s > floor]


async def about(store: Store, session: Session) -> str:
    """Return a text to compare a session with others by: its summary, or else its last prompts."""
    if session.summary:
        return session.summary
    turns = await store.turns(session.session_id, TurnQuery(limit=_LATEST, with_tool_calls=False))
    return "\n".join(turn.user_message for turn in turns)


_LOOKED_AT = 200
"""How many of a project's newest sessions are searched for those of a renamed folder."""


async def moved_here(memory: "Memory", cwd: Path, query: SessionQuery) -> list[Session]:
    """Run a folder's query on the same folder at its project's previous location."""
    project = (await memory.project_of(cwd)).project
    everywhere = msgspec.structs.replace(
        query, cwd=None, project_ids=(project.root_id,), limit=_LOOKED_AT
    )
    found = await memory.sessions(everywhere)
    return [each for each in found if was_here(each, folder_name(cwd), project)][: query.limit]


_STORED_POLL_S = 0.1
"""Interval of checking whether another process has stored its spooled writes."""


async def newest_is_stored(store: "SpooledStore", tail: "Tail", cwd: Path, within_s: float) -> None:
    """Wait until no other process has spooled writes of the newest session of a folder.

    Raises StoreUnavailable after `within_s` seconds.
    """
    newest = await asyncio.to_thread(tail.sessions, folder_name(cwd), 1)
    if not newest:
        return
    session_id = newest[0].session_id
    deadline = time.monotonic() + within_s
    while await store.waits_elsewhere(session_id):
        if time.monotonic() > deadline:
            raise StoreUnavailable(
                f"Another process is still storing session {short_id(session_id)}, the last in "
                "this folder.",
                hint="Try again in a moment, or name another session with -r.",
            )
        await asyncio.sleep(_STORED_POLL_S)

"""What a person does with a whole session: name it, tag it, archive it, fork it at a turn."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from ragmem.errors import AmbiguousSession, SessionNotFound, StoreUnavailable, UsageError
from ragmem.ids import short_id
from ragmem.memory.recording import kept
from ragmem.records import Session, SessionStatus, UpdateSession, utc_now
from ragmem.text import clean, counted, one_line

if TYPE_CHECKING:
    from ragmem.memory.memory import Memory

_SHOWN_ALIKE = 20


class Findable(Protocol):
    """A store, or what stands in for it while it is away."""

    async def find_sessions(
        self, reference: str, *, limit: int = 20, mine: bool = False
    ) -> list[Session]:
        """Those whose id is, or ends with, the reference, or whose title equals it."""
        ...


async def find_session(store: Findable, reference: str, *, mine: bool = False) -> Session:
    """The one session that is meant, with `mine` among one's own; SessionNotFound or Ambiguous."""
    found = await store.find_sessions(reference, mine=mine)
    if not found:
        if mine and await store.find_sessions(reference):
            raise SessionNotFound(
                f"Session {one_line(reference, 80)} is another person's.",
                hint="--everyone, beside -c or -r of `ask` and `chat`, takes those of others too.",
            )
        raise SessionNotFound(
            f"Session {one_line(reference, 80)} not found.",
            hint="`ragmem sessions list --all` shows every session.",
        )
    exact = [s for s in found if s.session_id == reference]
    if len(found) > 1 and not exact:
        raise _ambiguous(reference, found)
    return (exact or found)[0]


def _ambiguous(reference: str, found: Sequence[Session]) -> AmbiguousSession:
    lines = "\n".join(
        f"  {short_id(s.session_id)}  {one_line(s.title, 60)}  {s.cwd}" for s in found
    )
    return AmbiguousSession(
        f"{len(found)} sessions match {one_line(reference, 80)!r}:\n{lines}",
        candidates=tuple(s.session_id for s in found),
        hint="Name one by more of its id.",
    )


def with_part(found: Iterable[Session], part: str) -> Session | None:
    """The one session whose name holds a part, or None; AmbiguousSession where several do."""
    wanted = " ".join(part.casefold().split())
    alike = [each for each in found if wanted and wanted in each.called.casefold()]
    if len(alike) > 1:
        raise _ambiguous(part, alike[:_SHOWN_ALIKE])
    return alike[0] if alike else None


MAX_TAG_CHARS = 40


def tag_of(text: str) -> str:
    """A tag as it is kept: one line, without the # that some type; UsageError for none."""
    tag = " ".join(clean(text).split()).removeprefix("#").strip()
    if not tag:
        raise UsageError("A tag is empty.")
    if len(tag) > MAX_TAG_CHARS:
        raise UsageError(f"The tag {one_line(tag, 60)!r} is longer than {MAX_TAG_CHARS}.")
    return tag


def with_tags(
    tags: Iterable[str], add: Iterable[str], remove: Iterable[str] = ()
) -> tuple[str, ...]:
    """These tags with some more and without others; UsageError for one that was never there."""
    kept = dict.fromkeys(tags)
    for gone in map(tag_of, remove):
        if gone not in kept:
            has = ", ".join(one_line(each, MAX_TAG_CHARS) for each in kept) or "none"
            raise UsageError(f"It has no tag {one_line(gone, 60)!r}.", hint=f"Its tags: {has}.")
        del kept[gone]
    return tuple(kept | dict.fromkeys(map(tag_of, add)))


async def tag(
    memory: "Memory", session: Session, add: Iterable[str], remove: Iterable[str] = ()
) -> Session:
    """The session with these tags, and without those; UsageError for one that it never had."""
    tags = with_tags(session.tags, add, remove)
    if tags == session.tags:
        return session
    return await _updated(
        memory,
        UpdateSession(session_id=session.session_id, tags=tags, at=utc_now()),
    )


async def archive(memory: "Memory", session: Session, *, undo: bool = False) -> Session:
    """Put it aside, or take it back; nothing of it is lost, and it is found as before."""
    status: SessionStatus = "active" if undo else "archived"
    if session.status == status:
        return session
    return await _updated(
        memory, UpdateSession(session_id=session.session_id, status=status, at=utc_now())
    )


async def fork_at(
    memory: "Memory", session: Session, turn_index: int | None = None, *, title: str = ""
) -> Session:
    """A session that begins with this one's turns up to and with `turn_index`: all, if None.

    They are shared, not copied. A summary that tells of later turns stays behind.
    """
    if not memory.records:
        raise UsageError("Nothing is recorded here, so there is nothing to fork.")
    loaded = await memory.load_session(session.session_id)
    session, turns = loaded.session, loaded.turns
    last = len(turns)
    until = last if turn_index is None else turn_index
    if not 0 <= until <= last:
        raise UsageError(
            f"There is no turn {until} in this session.",
            hint=f"It has {counted(last, 'turn')}." if last else "It has no turns yet.",
        )
    shared = turns[:until]
    told = 2 * sum(turn.status == "completed" for turn in shared)
    begun = msgspec.structs.replace(
        session,
        turn_count=until,
        message_count=told,
        last_message=shared[-1].user_message if shared else None,
        summary=session.summary if session.summarized_count <= told else None,
        summarized_count=session.summarized_count if session.summarized_count <= told else 0,
    )
    return await memory.fork(begun, title=clean(" ".join(title.split())))


async def _updated(memory: "Memory", write: UpdateSession) -> Session:
    applied = await memory.record([write])
    if applied is None or not kept(applied):
        raise StoreUnavailable("The memory is away: nothing was changed.", hint="Try again.")
    return await memory.find_session(write.session_id)

"""What a person does with a whole session: name it, tag it, archive it, fork it at a turn.

And the tail: the newest sessions of each folder, so that they go on while the store is away. It is
a private file beside the spool and no memory of its own: it is looked at only when the store can't
be asked, and nothing is ever brought from it into a store.
"""

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ragmem.errors import (
    AmbiguousSession,
    RagmemError,
    SessionNotFound,
    StoreUnavailable,
    UsageError,
)
from ragmem.files import lock, replace_private
from ragmem.ids import beginning_hint, short_id
from ragmem.memory.recording import kept, redacted
from ragmem.records import ASKED, Session, SessionStatus, Turn, UpdateSession, utc_now
from ragmem.text import clean, clip_middle, counted, one_line

if TYPE_CHECKING:
    from ragmem.memory.memory import Memory
    from ragmem.store import Store

_SHOWN_ALIKE = 20


async def find_session(store: "Store | Tail", reference: str, *, mine: bool = False) -> Session:
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
            hint="`ragmem sessions list --all` shows every session." + beginning_hint(reference),
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


_MAX_TAG_CHARS = 40


def _tag_of(text: str) -> str:
    """A tag as it is kept: one line, without the # that some type; UsageError for none."""
    tag = " ".join(clean(text).split()).removeprefix("#").strip()
    if not tag:
        raise UsageError("A tag is empty.")
    if len(tag) > _MAX_TAG_CHARS:
        raise UsageError(f"The tag {one_line(tag, 60)!r} is longer than {_MAX_TAG_CHARS}.")
    return tag


def with_tags(
    tags: Iterable[str], add: Iterable[str], remove: Iterable[str] = ()
) -> tuple[str, ...]:
    """These tags with some more and without others; UsageError for one that was never there."""
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
    """The session with these tags, and without those; UsageError for one that it never had."""
    tags = with_tags(session.tags, add, remove)
    if tags == session.tags:
        return session
    return await _updated(memory, session, tags=tags)


async def archive(memory: "Memory", session: Session, *, undo: bool = False) -> Session:
    """Put it aside, or take it back; nothing of it is lost, and it is found as before."""
    status: SessionStatus = "active" if undo else "archived"
    if session.status == status:
        return session
    return await _updated(memory, session, status=status)


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
    if session.summarized_count > told:
        session = msgspec.structs.replace(session, summary=None, summarized_count=0)
    begun = msgspec.structs.replace(
        session,
        turn_count=until,
        message_count=told,
        last_message=shared[-1].asked if shared else None,
        tags=tuple(tag for tag in session.tags if tag != ASKED),
    )
    return await memory.fork(begun, title=clean(" ".join(title.split())))


async def _updated(memory: "Memory", session: Session, **fields: Any) -> Session:
    write = UpdateSession(session_id=session.session_id, at=utc_now(), **fields)
    applied = await memory.record([write])
    if applied is None or not kept(applied):
        raise StoreUnavailable("The memory is away: nothing was changed.", hint="Try again.")
    return await memory.find_session(write.session_id)


TAIL_SUFFIX = "-sessions.json"
_MOST_BYTES = 1 << 20
_TURNS = 12
"""The newest of a session; its first, which says what it is about, is kept beside them."""
_TEXT_CHARS = 2_000
_PATIENCE_S = 5.0
_log = logging.getLogger("ragmem")


class _Kept(msgspec.Struct, frozen=True):
    session: Session
    turns: tuple[Turn, ...]


class _Tail(msgspec.Struct, frozen=True):
    store_id: str = ""
    sessions: tuple[_Kept, ...] = ()


class Tail:
    """See the module's text. `whose` says the id of the store that was last met here."""

    def __init__(self, file: Path, whose: Callable[[], str]) -> None:
        self._file = file
        self._whose = whose
        self._keeping: set[asyncio.Future[None]] = set()

    def keep(self, session: Session, turns: Sequence[Turn]) -> None:
        """Let these turns of a session be known, beside the event loop; the store has the rest.

        They are as the store tells them, without secrets.
        """
        task = asyncio.get_running_loop().run_in_executor(None, self._keep, session, _ends(turns))
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def aclose(self) -> None:
        """Wait for what is being kept."""
        await asyncio.gather(*self._keeping)

    def sessions(self, cwd: str, limit: int) -> list[Session]:
        """Those of a folder, newest activity first."""
        found = [kept.session for kept in self._load() if kept.session.cwd == cwd]
        return sorted(found, key=lambda each: each.last_activity_at, reverse=True)[:limit]

    def turns(self, session_id: str) -> tuple[Turn, ...]:
        """The first of a session and its newest, in order."""
        found = (kept.turns for kept in self._load() if kept.session.session_id == session_id)
        return next(found, ())

    async def find_sessions(
        self, reference: str, *, limit: int = 20, mine: bool = False
    ) -> list[Session]:
        """Those whose id is, or ends with, the reference, or whose title equals it."""
        every, folded = [kept.session for kept in self._load()], reference.casefold()
        meant = (
            s for s in every if s.session_id.endswith(reference) or s.title.casefold() == folded
        )
        return list(meant)[:limit]

    def forget(self, session_id: str) -> None:
        """It was deleted: nothing of it stays here, whichever store it was of. StoreUnavailable."""
        try:
            with self._alone():
                found = self._read()
                left = [each for each in found.sessions if each.session.session_id != session_id]
                if len(left) < len(found.sessions):
                    self._write(found.store_id, left)
        except OSError as error:
            raise StoreUnavailable(
                f"Its last turns may still be in {self._file}: {error.strerror or error}.",
                hint="Remove that file.",
            ) from None

    def _keep(self, session: Session, turns: Sequence[Turn]) -> None:
        try:
            new = {turn.turn_id: _brief(turn) for turn in turns}
            with self._alone():
                found = self._load()
                before = [e for e in found if e.session.session_id == session.session_id]
                known = {turn.turn_id: turn for each in before for turn in each.turns} | new
                own = _kept(session, _ends(known.values()))
                self._write(self._whose(), [own, *(e for e in found if e not in before)])
        except Exception as error:
            # A full disk, say: it costs only that an outage interrupts the conversation.
            expected = isinstance(error, OSError | RagmemError)
            _log.warning("Nothing was kept for an outage: %s", error, exc_info=not expected)

    def _load(self) -> tuple[_Kept, ...]:
        """None where another database was met at the address since."""
        found = self._read()
        return found.sessions if found.store_id in ("", self._whose()) else ()

    def _read(self) -> _Tail:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Tail)
        except (OSError, msgspec.MsgspecError):
            return _Tail()

    def _write(self, store_id: str, sessions: Iterable[_Kept]) -> None:
        newest = sorted(sessions, key=lambda e: e.session.last_activity_at, reverse=True)
        # Of each folder the newest, then their second newest, as long as there is room.
        seen: Counter[str] = Counter()
        places = {}
        for each in newest:
            places[each.session.session_id] = seen[each.session.cwd]
            seen[each.session.cwd] += 1
        newest.sort(key=lambda e: places[e.session.session_id])
        while len(data := msgspec.json.encode(_Tail(store_id, tuple(newest)))) > _MOST_BYTES:
            newest.pop()
        replace_private(self._file, data, sync=False)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = lock(self._file.with_suffix(".lock"), timeout_s=_PATIENCE_S)
        try:
            yield
        finally:
            os.close(handle)


def _kept(session: Session, shown: tuple[Turn, ...]) -> _Kept:
    """What is kept of a session: no summary, of its tags that of a one-off question alone."""
    first = session.first_message and clip_middle(session.first_message, 400)
    tags = tuple(tag for tag in session.tags if tag == ASKED)
    head = msgspec.structs.replace(redacted(session), first_message=first, summary=None, tags=tags)
    if shown:
        last = shown[-1]
        head = msgspec.structs.replace(
            head,
            turn_count=max(head.turn_count, last.turn_index),
            last_activity_at=max(head.last_activity_at, last.finished_at or last.started_at),
            last_message=clip_middle(last.asked, 400),
        )
    return _Kept(head, shown)


def _ends(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    ordered = sorted(turns, key=lambda turn: turn.turn_index)
    return (*ordered[:1], *ordered[1:][-_TURNS:])


def _brief(turn: Turn) -> Turn:
    return msgspec.structs.replace(
        turn,
        tool_calls=(),
        reasoning=None,
        user_message=clip_middle(turn.user_message, _TEXT_CHARS),
        assistant_message=clip_middle(turn.assistant_message, _TEXT_CHARS),
    )

"""The tail: the newest sessions of each folder, so that they go on while the store is away.

It is a private file beside the spool and no memory of its own: it is looked at only when the store
can't be asked, and nothing is ever brought from it into a store.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import msgspec

from ragmem.errors import RagmemError, StoreUnavailable
from ragmem.files import lock, replace_private
from ragmem.memory.recording import redacted
from ragmem.records import Session, Turn
from ragmem.text import clip_middle

SUFFIX = "-sessions.json"
_MOST_BYTES = 1 << 20
_MOST_OF_A_SESSION = 128 << 10
_SESSIONS = 20
"""Of each folder."""
_TURNS = 12
"""The newest of a session; its first, which says what it is about, is kept beside them."""
_TEXT_CHARS = 8_000
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
            new = {turn.turn_id: _brief(turn, _TEXT_CHARS) for turn in turns}
            with self._alone():
                found = self._load()
                before = [e for e in found if e.session.session_id == session.session_id]
                known = {turn.turn_id: turn for each in before for turn in each.turns} | new
                own = _kept(session, known.values())
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
        """The newest of each folder, then their second newest, as long as there is room."""
        folders: dict[str, list[_Kept]] = {}
        for each in sorted(sessions, key=lambda e: e.session.last_activity_at, reverse=True):
            folders.setdefault(each.session.cwd, []).append(each)
        ranks = zip_longest(*(found[:_SESSIONS] for found in folders.values()))
        room = _MOST_BYTES - len(msgspec.json.encode(_Tail(store_id)))
        taken = []
        for each in (one for rank in ranks for one in rank if one is not None):
            size = len(msgspec.json.encode(each)) + 1
            if size <= room:
                taken.append(each)
                room -= size
        replace_private(self._file, msgspec.json.encode(_Tail(store_id, tuple(taken))), sync=False)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = lock(self._file.with_suffix(".lock"), timeout_s=_PATIENCE_S)
        try:
            yield
        finally:
            os.close(handle)


def _kept(session: Session, turns: Iterable[Turn]) -> _Kept:
    """What is kept of a session: without its summary and tags, and not larger than its share."""
    shown = _ends(turns)
    first = session.first_message and clip_middle(session.first_message, 400)
    head = msgspec.structs.replace(redacted(session), first_message=first, summary=None, tags=())
    if shown:
        last = shown[-1]
        head = msgspec.structs.replace(
            head,
            turn_count=max(head.turn_count, last.turn_index),
            last_activity_at=max(head.last_activity_at, last.finished_at or last.started_at),
            last_message=clip_middle(last.user_message, 400),
        )
    most = _TEXT_CHARS
    while len(msgspec.json.encode(kept := _Kept(head, shown))) > _MOST_OF_A_SESSION and most > 1:
        most //= 2
        shown = tuple(_brief(turn, most) for turn in shown)
    return kept


def _ends(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """The first and the newest, in order."""
    ordered = sorted(turns, key=lambda turn: turn.turn_index)
    return (*ordered[:1], *ordered[1:][-_TURNS:])


def _brief(turn: Turn, most: int) -> Turn:
    """What was said, without calls and thoughts."""
    return msgspec.structs.replace(
        turn,
        tool_calls=(),
        reasoning=None,
        user_message=clip_middle(turn.user_message, most),
        assistant_message=clip_middle(turn.assistant_message, most),
    )

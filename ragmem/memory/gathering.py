"""Reads what a request is made of: the store's work; shaping it is the context builder's."""

import asyncio
from collections.abc import Sequence

import msgspec

from ragmem.memory.context import ContextBuilder, Material
from ragmem.memory.files import recently_accessed
from ragmem.memory.history import messages_of
from ragmem.memory.hits import Hit
from ragmem.memory.window import window_limit
from ragmem.records import FileAccess, Summary, Turn
from ragmem.store.base import Store, TurnQuery

FINISHED = ("completed", "interrupted", "failed")
_FILES_CHARS = 5_000
_FILES_LOOKBACK = 10
"""Accessed files come from turns of so many times the section's characters."""
_OLDER_QUERIES = 50
_LEVEL1_LIMIT = 200
"""Of which the builder shows ten that the window does not."""


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What a session itself holds before the turn that is asked for."""

    turns: tuple[Turn, ...] = ()
    older: tuple[Turn, ...] = ()
    accesses: tuple[FileAccess, ...] = ()
    level1: tuple[Summary, ...] = ()
    thread_summary: str = ""


NO_PAST = Past()


class Gathering:
    """Remembers the files of a session between turns; all else is read each time.

    What was read last is kept for when the store can't be asked.
    """

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, list[FileAccess]]] = {}
        self._last: dict[str, Past] = {}

    def forget(self) -> None:
        """Something was written."""
        self._files.clear()

    async def past(
        self,
        store: Store,
        session_id: str,
        builder: ContextBuilder,
        *,
        before: int | None,
        own: Sequence[Turn] = (),
    ) -> Past:
        """`before`: index of the turn in flight. `own`: turns that are in this process alone."""
        session = await store.session(session_id)
        count = (before or session.turn_count + 1) - 1
        turns, accesses, level1 = await asyncio.gather(
            self._window(store, session_id, count=count, before=before),
            self.accesses(store, session_id, before or count),
            store.summaries(session_id, level=1, not_rolled_up=True, limit=_LEVEL1_LIMIT),
        )
        stored = {turn.turn_id for turn in turns}
        turns += [turn for turn in own if turn.turn_id not in stored]
        past = self._last[session_id] = Past(
            turns=tuple(turns),
            older=tuple(await self._older(store, session_id, builder, turns)),
            accesses=tuple(accesses),
            level1=_latest_first(level1, turns),
            thread_summary=session.summary or "",
        )
        return past

    def remembered(self, session_id: str, own: Sequence[Turn]) -> Material:
        """What is known without the store: what was read last, and this process' own turns."""
        past = self._last.get(session_id, NO_PAST)
        known = {turn.turn_id: turn for turn in [*past.older, *past.turns, *own]}
        turns = tuple(sorted(known.values(), key=lambda turn: turn.turn_index))
        return Material(
            turns=turns,
            history=tuple(messages_of(turns)),
            level1=past.level1,
            thread_summary=past.thread_summary,
        )

    @staticmethod
    async def _window(
        store: Store, session_id: str, *, count: int, before: int | None
    ) -> list[Turn]:
        limit = window_limit(count)
        query = TurnQuery(limit=limit, before_index=before, statuses=FINISHED)
        # Fewer of them may be finished than counted: the start of planning must not shift.
        found = await store.turns(session_id, query)
        return [turn for turn in found if turn.turn_index > count - limit]

    @staticmethod
    async def _older(
        store: Store, session_id: str, builder: ContextBuilder, turns: Sequence[Turn]
    ) -> list[Turn]:
        """Those just before the window, for their queries."""
        first = (builder.window(turns).turns or turns or (None,))[0]
        if first is None or first.turn_index <= 1:
            return []
        query = TurnQuery(
            limit=_OLDER_QUERIES,
            before_index=first.turn_index,
            statuses=FINISHED,
            with_tool_calls=False,
        )
        return await store.turns(session_id, query)

    async def accesses(self, store: Store, session_id: str, turn_count: int) -> list[FileAccess]:
        """Computed once, until a turn comes in or this process writes."""
        known_at, files = self._files.get(session_id, (-1, []))
        if known_at != turn_count:
            found = await store.file_accesses(
                session_id, max_turn_chars=_FILES_CHARS * _FILES_LOOKBACK
            )
            files = recently_accessed(found, max_chars=_FILES_CHARS)
            self._files[session_id] = (turn_count, files)
        return files


def _latest_first(level1: Sequence[Summary], turns: Sequence[Turn]) -> tuple[Summary, ...]:
    """By the turns that they are of: work that was left is done latest turn first."""
    places = {turn.turn_id: turn.turn_index for turn in turns}
    return tuple(
        sorted(level1, key=lambda s: -max((places.get(i, 0) for i in s.covers), default=0))
    )


def material(past: Past, hits: Sequence[Hit], builder: ContextBuilder) -> Material:
    """All that the builder shapes."""
    window = builder.window(past.turns)
    first = (window.turns or past.turns or (None,))[0]
    return Material(
        turns=past.turns,
        window=window,
        older=past.older,
        older_count=first.turn_index - 1 if first else 0,
        accesses=past.accesses,
        hits=tuple(hits),
        level1=past.level1,
        thread_summary=past.thread_summary,
    )

"""Past sessions like this one: by what their summaries say."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from ragmem.embedder.base import Embedder
from ragmem.embedder.numbers import cosines, load_numpy
from ragmem.records import SESSION_LEVEL, Session
from ragmem.store.base import SessionQuery, Store, TurnQuery

EMBEDDED_NOW = 50
"""Summaries without a vector yet that are embedded while somebody waits: the latest so many."""
_MOST_SESSIONS = 100_000
_LARGEST_BATCH = 16
_LAST_TURNS = 3


class SimilarSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session whose summary is like what was asked."""

    session: Session
    similarity: float
    """Raw cosine, -1 to 1."""

    @property
    def uuid(self) -> str:
        """Id of the session."""
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
    """Those strictly nearer than `floor`, nearest first. Raises StoreError, EmbedderError.

    Only sessions that have a summary; of these projects, or of all.
    """
    query = SessionQuery(project_ids=tuple(project_ids), limit=_MOST_SESSIONS)
    sessions = {
        session.session_id: session
        for session in await store.sessions(query)
        if session.summary and session.session_id not in without
    }
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
        # Whoever waits for something else comes first.
        await asyncio.sleep(0)
    near = sorted((name for name in scores if scores[name] > floor), key=lambda n: -scores[n])
    return [
        SimilarSession(session=sessions[name], similarity=scores[name]) for name in near[:limit]
    ]


async def about(store: Store, session: Session) -> str:
    """What a session is like, as a text to compare others with: its summary, or its last turns."""
    if session.summary:
        return session.summary
    turns = await store.turns(
        session.session_id, TurnQuery(limit=_LAST_TURNS, with_tool_calls=False)
    )
    return "\n".join(turn.user_message for turn in turns)

"""Sessions as people name them: by whole id, unambiguous tail of one, or name."""

from typing import Protocol

from ragmem.errors import AmbiguousSession, SessionNotFound
from ragmem.ids import short_id
from ragmem.records import Session
from ragmem.text import one_line


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
                f"Conversation {one_line(reference, 80)} is another person's.",
                hint="--everyone, beside -c or -r of `ask` and `chat`, takes those of others too.",
            )
        raise SessionNotFound(
            f"Conversation {one_line(reference, 80)} not found.",
            hint="`ragmem sessions list --all` shows every session.",
        )
    exact = [s for s in found if s.session_id == reference]
    if len(found) > 1 and not exact:
        lines = "\n".join(
            f"  {short_id(s.session_id)}  {one_line(s.title, 60)}  {s.cwd}" for s in found
        )
        raise AmbiguousSession(
            f"{len(found)} sessions match {one_line(reference, 80)!r}:\n{lines}",
            candidates=tuple(s.session_id for s in found),
            hint="Name one by more of its id.",
        )
    return (exact or found)[0]

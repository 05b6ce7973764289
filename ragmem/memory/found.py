"""Turns, summaries and memories found together, for `ragmem search` and `/search` alike."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from ragmem.memory.chains import summed_up
from ragmem.memory.facts.facts import Facts
from ragmem.memory.facts.values import FactHit
from ragmem.memory.hits import Hit, worth_showing
from ragmem.memory.memory import Memory
from ragmem.memory.recall import ScopeName
from ragmem.records import Session
from ragmem.store.base import Store
from ragmem.store.memories import MemoryQuery
from ragmem.text import clip_to_width, hanging, one_line

_CONTENT_CHARS = 500
_MANY = 100
"""Of a project so many are looked at for those of one session."""
_ROWS = 3


async def search_memories(
    memory: Memory,
    text: str,
    *,
    open_store: Callable[[], Awaitable[Store]],
    scope: ScopeName,
    session: Session,
    semantic: bool = True,
    limit: int,
) -> list[FactHit]:
    """What bears on a text, best first: of the session, of the project and the person, or all."""
    facts = memory.facts
    if facts is None:
        return []
    if scope == "all":
        found = await _everywhere(await open_store(), facts, text, limit)
    else:
        within = scope == "session"
        found = await facts.search(
            text, project_id=session.project_id, limit=_MANY if within else limit
        )
        if within:
            found = [hit for hit in found if _was_said_in(hit, session.session_id)]
    if not semantic:
        found = [
            msgspec.structs.replace(hit, similarity=None, why=why)
            for hit in found
            if (why := _without_meaning(hit.why))
        ]
    return found[:limit]


def nearest(
    hits: Sequence[Hit], memories: Sequence[FactHit], *, floor: float | None, limit: int
) -> tuple[list[Hit | FactHit], str]:
    """What a person is shown of both, and the words that lead it where nothing is close."""
    shown, none_close = worth_showing(hits, floor)
    if none_close and memories:  # what is not close is of no use beside what is
        shown, none_close = (), ""
    return merged(shown, memories, limit), none_close


async def _everywhere(store: Store, facts: Facts, text: str, limit: int) -> list[FactHit]:
    projects = {each.project_id for each in await store.memories(MemoryQuery(everywhere=True))}
    found: dict[str, FactHit] = {}
    for project_id in sorted(projects - {None}, key=str) or [None]:
        for hit in await facts.search(text, project_id=project_id, limit=limit):
            found.setdefault(hit.memory.memory_id, hit)
    return sorted(found.values(), key=lambda hit: -hit.score)


def _was_said_in(hit: FactHit, session_id: str) -> bool:
    return any(each.session_id == session_id for each in hit.memory.evidence)


def _without_meaning(why: str) -> str:
    return ", ".join(reason for reason in why.split(", ") if reason != "its meaning")


def merged(hits: Sequence[Hit], memories: Sequence[FactHit], limit: int) -> list[Hit | FactHit]:
    """Each in its order, the nearer of the two next first: their scores can't be compared.

    Where one of them was not compared by meaning, they take turns, memories first.
    """
    found: list[Hit | FactHit] = []
    at, beside = 0, 0
    while len(found) < limit and (at < len(hits) or beside < len(memories)):
        if beside < len(memories) and (
            at == len(hits) or _is_next(memories[beside], hits[at], beside <= at)
        ):
            found.append(memories[beside])
            beside += 1
        else:
            found.append(hits[at])
            at += 1
    return found


def _is_next(memory: FactHit, hit: Hit, its_turn: bool) -> bool:
    if memory.similarity is None or hit.similarity is None:
        return its_turn
    return memory.similarity >= hit.similarity


def memory_facts(hit: FactHit, now: datetime) -> list[str]:
    """For people: what it is, who said it, how old it is, and why it was found."""
    alike = "" if hit.similarity is None else f"{hit.similarity * 100:.0f}% alike"
    found = f"found by {one_line(hit.why, 120)}" if hit.why else ""
    about = f"Memory {summed_up(hit.memory, now)}".split(" · ")
    return [each for each in (*about, alike, found) if each]


def memory_rows(hit: FactHit, width: int) -> list[str]:
    """What it says, in a few rows."""
    rows = hanging("  ", one_line(hit.memory.content, _CONTENT_CHARS), width)
    if len(rows) > _ROWS:
        rows = [*rows[: _ROWS - 1], f"{rows[_ROWS - 1]} …"]
    return [clip_to_width(row, width) for row in rows]

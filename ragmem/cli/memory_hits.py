"""Memories among what `ragmem search` finds."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from ragmem.memory.chains import summed_up
from ragmem.memory.recall import ScopeName
from ragmem.store.memories import MemoryQuery
from ragmem.text import clip_to_width, hanging, one_line

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.memory.facts.facts import Facts
    from ragmem.memory.facts.values import FactHit
    from ragmem.memory.hits import Hit
    from ragmem.records import Session

_CONTENT_CHARS = 500
_MANY = 100
"""Of a project so many are looked at for those of one session."""
_ROWS = 3


async def search_memories(
    opened: "App",
    text: str,
    *,
    scope: ScopeName,
    session: "Session | None",
    semantic: bool,
    limit: int,
) -> "list[FactHit]":
    """What bears on a text, best first: of the session, of the project and the person, or all."""
    facts = opened.memory.facts
    if facts is None:
        return []
    if scope == "all":
        found = await _everywhere(opened, facts, text, limit)
    else:
        project_id = session.project_id if session else await _project_id(opened)
        within = session is not None and scope == "session"
        found = await facts.search(text, project_id=project_id, limit=_MANY if within else limit)
        if session and within:
            found = [hit for hit in found if _was_said_in(hit, session.session_id)]
    if not semantic:
        found = [
            msgspec.structs.replace(hit, similarity=None, why=why)
            for hit in found
            if (why := _without_meaning(hit.why))
        ]
    return found[:limit]


async def _everywhere(opened: "App", facts: "Facts", text: str, limit: int) -> "list[FactHit]":
    store = await opened.store()
    projects = {each.project_id for each in await store.memories(MemoryQuery(everywhere=True))}
    found: dict[str, FactHit] = {}
    for project_id in sorted(projects - {None}, key=str) or [None]:
        for hit in await facts.search(text, project_id=project_id, limit=limit):
            found.setdefault(hit.memory.memory_id, hit)
    return sorted(found.values(), key=lambda hit: -hit.score)


async def _project_id(opened: "App") -> str:
    return (await opened.memory.project_of(opened.cwd)).project.root_id


def _was_said_in(hit: "FactHit", session_id: str) -> bool:
    return any(each.session_id == session_id for each in hit.memory.evidence)


def _without_meaning(why: str) -> str:
    return ", ".join(reason for reason in why.split(", ") if reason != "its meaning")


def merged(
    hits: "Sequence[Hit]", memories: "Sequence[FactHit]", limit: int
) -> "list[Hit | FactHit]":
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


def _is_next(memory: "FactHit", hit: "Hit", its_turn: bool) -> bool:
    if memory.similarity is None or hit.similarity is None:
        return its_turn
    return memory.similarity >= hit.similarity


def memory_facts(hit: "FactHit", now: datetime) -> list[str]:
    """For people: what it is, who said it, how old it is, and why it was found."""
    alike = "" if hit.similarity is None else f"{hit.similarity * 100:.0f}% alike"
    found = f"found by {one_line(hit.why, 120)}" if hit.why else ""
    about = f"Memory {summed_up(hit.memory, now)}".split(" · ")
    return [each for each in (*about, alike, found) if each]


def memory_rows(hit: "FactHit", width: int) -> list[str]:
    """What it says, in a few rows."""
    rows = hanging("  ", one_line(hit.memory.content, _CONTENT_CHARS), width)
    if len(rows) > _ROWS:
        rows = [*rows[: _ROWS - 1], f"{rows[_ROWS - 1]} …"]
    return [clip_to_width(row, width) for row in rows]

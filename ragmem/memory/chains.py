"""A memory in words, for people: what it is, who said it, where it comes from (`why`)."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from ragmem.errors import SessionNotFound
from ragmem.ids import short_id
from ragmem.memory.context.known import told_by
from ragmem.memory.hits import others_of
from ragmem.records import DEFAULT_TITLE, Evidence, MemoryRecord
from ragmem.store.base import Store
from ragmem.text import ago, one_line

if TYPE_CHECKING:
    from ragmem.memory.facts.facts import Facts

Line = tuple[int, str]
"""How far it is indented, in columns, and what it says; harmless to a terminal."""

_QUOTE_CHARS = 500
_TITLE_CHARS = 40
_STEP = 2
NOBODY: Mapping[str, str] = MappingProxyType({})


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A memory with what leads to it."""

    memory: MemoryRecord
    earlier: tuple[MemoryRecord, ...] = ()
    """What it took the place of, newest first."""
    later: MemoryRecord | None = None
    """What took its place."""
    titles: dict[str, str] = {}
    """Of the sessions that it comes from, by id; one that is gone has none."""
    project_path: str = ""
    people: dict[str, str] = {}
    """What others are called who have said something here, by id."""


async def chain_of(memory: MemoryRecord, facts: "Facts", store: Store) -> Chain:
    """Look up what leads to a memory."""
    earlier = tuple(await facts.history(memory))
    later = memory.superseded_by and await store.memories_by_id([memory.superseded_by])
    titles = {}
    for session_id in _sessions((memory, *earlier)):
        with suppress(SessionNotFound):
            titles[session_id] = (await store.session(session_id)).title
    projects = await store.projects() if memory.project_id else []
    return Chain(
        memory=memory,
        earlier=earlier,
        later=later[0] if later else None,
        titles=titles,
        project_path=next((p.path for p in projects if p.project_id == memory.project_id), ""),
        people=await others_of(store),
    )


def _sessions(memories: Iterable[MemoryRecord]) -> list[str]:
    found = [each.session_id for memory in memories for each in memory.evidence]
    return [session_id for session_id in dict.fromkeys(found) if session_id]


# --- in a few words -----------------------------------------------------------


def said_by(memory: MemoryRecord, people: Mapping[str, str] = NOBODY) -> str:
    """Who vouches for it: the person, another of `people`, the model, or what it was read in."""
    if other := told_by(memory):
        return other
    who = people.get(memory.owner, "you")
    read = [each for each in memory.evidence if each.path or each.tool_name not in ("", "remember")]
    if read and len(read) == len(memory.evidence):
        return f"confirmed by {who}"  # it stood in a file, and they pinned or corrected it
    how = {"note": "written", "chat": "told", "conversation": "said"}
    return f"{how[memory.source]} by {who}"


def marks(memory: MemoryRecord, now: datetime) -> list[str]:
    """What is to be known of it at once: pinned, superseded, expired, its dates."""
    expired = memory.expires_at is not None and memory.expires_at <= now
    return [
        *(["pinned"] if memory.pinned else []),
        *(["superseded"] if memory.superseded_by else []),
        *(["expired"] if expired else []),
        *([f"due {day(memory.at)}"] if memory.at and memory.kind == "deadline" else []),
        *([f"until {day(memory.expires_at)}"] if memory.expires_at and not expired else []),
    ]


def summed_up(memory: MemoryRecord, now: datetime, people: Mapping[str, str] = NOBODY) -> str:
    """All about it but its content, in a line."""
    return " · ".join(
        [
            short_id(memory.memory_id),
            memory.kind,
            *marks(memory, now),
            said_by(memory, people),
            ago(memory.created_at, now),
        ]
    )


def day(at: datetime) -> str:
    """A date, in the person's time zone."""
    return f"{at.astimezone():%Y-%m-%d}"


def minute(at: datetime) -> str:
    """A date and the time of the day, in the person's time zone."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}"


# --- as a page ------------------------------------------------------------------


def about(chain: Chain, now: datetime) -> list[Line]:
    """A memory with all that is known of it but where it comes from."""
    memory = chain.memory
    place = "yours, in every project"
    if memory.project_id:
        place = f"of the project {one_line(chain.project_path or memory.project_id, 300)}"
    lines = [
        (0, one_line(memory.content, 4_000)),
        (_STEP, memory.memory_id),
        (_STEP, " · ".join([memory.kind, place, *marks(memory, now)])),
        (_STEP, f"{said_by(memory, chain.people)} · {minute(memory.created_at)}"),
    ]
    if memory.subjects:
        lines.append((_STEP, f"about {one_line(', '.join(memory.subjects), 400)}"))
    if memory.at and memory.kind != "deadline" and day(memory.at) != day(memory.created_at):
        lines.append((_STEP, f"happened {day(memory.at)}"))
    if minute(memory.updated_at) != minute(memory.created_at):
        lines.append((_STEP, f"last written {minute(memory.updated_at)}"))
    return lines


def told(chain: Chain, now: datetime) -> list[Line]:
    """The whole chain: the memory, its turns, tool calls and files, what it took the place of."""
    memory = chain.memory
    lines = [*about(chain, now), (0, ""), (0, "Where it comes from")]
    lines += _evidence(memory.evidence, chain.titles, _STEP)
    if not memory.evidence:
        lines.append((_STEP, "Nothing of that is kept any more."))
    if chain.earlier:
        lines += [(0, ""), (0, "What it took the place of")]
    for each in chain.earlier:
        lines += _other(each, chain.people)
        lines += _evidence(each.evidence, chain.titles, 2 * _STEP)
    if chain.later:
        lines += [(0, ""), (0, "What took its place"), *_other(chain.later, chain.people)]
    return lines


def _other(memory: MemoryRecord, people: Mapping[str, str]) -> list[Line]:
    said = said_by(memory, people)
    head = f"{short_id(memory.memory_id)} · {said} · {minute(memory.created_at)}"
    return [(_STEP, head), (2 * _STEP, one_line(memory.content, 4_000))]


def _evidence(found: Sequence[Evidence], titles: dict[str, str], indent: int) -> list[Line]:
    lines: list[Line] = []
    for each in found:
        lines.append((indent, f"{minute(each.at)} · {_place(each, titles)}"))
        if each.tool_name or each.tool_call_id:
            call = f" ({short_id(each.tool_call_id)})" if each.tool_call_id else ""
            lines.append((indent + _STEP, f"tool call {one_line(each.tool_name, 80)}{call}"))
        if each.path:
            lines.append((indent + _STEP, f"file {one_line(each.path, 500)}"))
        if each.quote.strip():
            lines.append((indent + _STEP, f"“{one_line(each.quote, _QUOTE_CHARS)}”"))
    return lines


def _place(evidence: Evidence, titles: dict[str, str]) -> str:
    if not evidence.session_id:
        return "told by you directly"
    title = titles.get(evidence.session_id)
    if title is None:
        name = ", which is gone"
    else:
        name = "" if title == DEFAULT_TITLE else f" “{one_line(title, _TITLE_CHARS)}”"
    turn = f"turn {evidence.turn_index} of " if evidence.turn_index else ""
    return f"{turn}session {short_id(evidence.session_id)}{name}"

"""Memories in the user interface: displaying, telling, forgetting and searching them."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from ragmem.config import ScopeName
from ragmem.errors import StoreError, StoreUnavailable
from ragmem.files import Paths, forget_prompts, remove_pages
from ragmem.ids import short_id
from ragmem.logs import log_deletion
from ragmem.memory.facts import Draft, FactHit, Remembered, told_by
from ragmem.memory.projects import Located, locate, normalize_cwd, registrations
from ragmem.memory.recall import BY_MEANING, NOBODY, Hit, others_of, sessions_by_id
from ragmem.records import (
    DEFAULT_TITLE,
    Evidence,
    MemoryKind,
    MemoryQuery,
    MemoryRecord,
    MemorySource,
    Session,
    Turn,
    utc_now,
)
from ragmem.store import Store
from ragmem.text import ago, clip_to_width, counted, hanging, one_line

if TYPE_CHECKING:
    from ragmem.memory.facts.facts import Facts
    from ragmem.memory.memory import Memory


Line = tuple[int, str]
"""A line's indentation in columns, and its text, which is safe to print on a terminal."""

_QUOTE_CHARS = 500
_TITLE_CHARS = 40
_STEP = 2


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A memory with its versions and sources."""

    memory: MemoryRecord
    earlier: tuple[MemoryRecord, ...] = ()
    """The memories that it superseded, newest first."""
    later: MemoryRecord | None = None
    """The memory that superseded it."""
    titles: dict[str, str] = {}
    """Titles of the sessions that it comes from, by id, without deleted ones."""
    project_path: str = ""
    people: dict[str, str] = {}
    """Display names of a shared store's other users, by id."""
    since: str = ""
    """What was said later and may contradict it, for display."""


async def chain_of(memory: MemoryRecord, facts: "Facts", store: Store) -> Chain:
    """Look up a memory's versions and sources."""
    earlier = tuple(await facts.history(memory))
    later = memory.superseded_by and await store.get(MemoryRecord, [memory.superseded_by])
    places = (place.session_id for each in (memory, *earlier) for place in each.evidence)
    sessions = await sessions_by_id(store, filter(None, dict.fromkeys(places)))
    projects = await store.projects() if memory.project_id else []
    since = await said_since(store, [memory]) if later is None else {}
    return Chain(
        memory=memory,
        earlier=earlier,
        later=later[0] if later else None,
        titles={session_id: session.title for session_id, session in sessions.items()},
        project_path=next((p.path for p in projects if p.project_id == memory.project_id), ""),
        people=await others_of(store),
        since=since.get(memory.memory_id, ""),
    )


async def said_since(store: Store, memories: Sequence[MemoryRecord]) -> dict[str, str]:
    """Return what was said later in the project and may contradict a memory, by the memory's id.

    The texts are as in a context. Raises StoreError.
    """
    from ragmem.memory.since import turns_since

    found: dict[str, str] = {}
    current = [each for each in memories if each.project_id and not each.superseded_by]
    for project_id in dict.fromkeys(each.project_id for each in current if each.project_id):
        own = [each for each in current if each.project_id == project_id]
        turns = await turns_since(store, project_id, min(each.created_at for each in own))
        found |= await asyncio.to_thread(_since, own, turns)
    return found


def _since(memories: Sequence[MemoryRecord], turns: Sequence[Turn]) -> dict[str, str]:
    from ragmem.memory.since import Aftermath

    after = Aftermath(turns, memories)
    return {each.memory_id: told for each in memories if (told := after.of_memory(each))}


# --- in one line ----------------------------------------------------------------


def said_by(memory: MemoryRecord, people: Mapping[str, str] = NOBODY) -> str:
    """Return who said a memory, in words: the user, another of `people`, the model, or a source."""
    if other := told_by(memory):
        return other
    who = people.get(memory.owner, "you")
    read = [each for each in memory.evidence if each.path or each.tool_name not in ("", "remember")]
    if read and len(read) == len(memory.evidence):
        return f"confirmed by {who}"  # It comes from a file, and the user pinned or corrected it.
    return f"{'written' if memory.source == 'note' else 'told'} by {who}"


def marks(
    memory: MemoryRecord,
    now: datetime,
    dated: Callable[[datetime], str] | None = None,
    *,
    since: Container[str] = (),
) -> list[str]:
    """Return a memory's marks: pinned, superseded, possibly outdated, expired, and its dates.

    `dated` formats a date (by default `day`). `since`: ids of the memories in `said_since`.
    """
    dated = dated or day
    expired = memory.is_past(now)
    return [
        *(["pinned"] if memory.pinned else []),
        *(["superseded"] if memory.superseded_by else []),
        *(["possibly outdated"] if memory.memory_id in since else []),
        *(["expired"] if expired else []),
        *([f"due {dated(memory.at)}"] if memory.at and memory.kind == "deadline" else []),
        *([f"until {dated(memory.expires_at)}"] if memory.expires_at and not expired else []),
    ]


def summed_up(memory: MemoryRecord, now: datetime) -> str:
    """Return everything about a memory except its content, in one line."""
    said, when = said_by(memory), ago(memory.created_at, now)
    return " · ".join([short_id(memory.memory_id), memory.kind, *marks(memory, now), said, when])


def day(at: datetime) -> str:
    """Format a date in the user's time zone."""
    return f"{at.astimezone():%Y-%m-%d}"


def minute(at: datetime) -> str:
    """Format a date and time in the user's time zone."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}"


# --- as a page ------------------------------------------------------------------


def about(chain: Chain, now: datetime) -> list[Line]:
    """Return a memory with everything about it except its evidence."""
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
    if chain.since:
        lines.append((_STEP, one_line(chain.since, _QUOTE_CHARS)))
    if memory.subjects:
        lines.append((_STEP, f"about {one_line(', '.join(memory.subjects), 400)}"))
    if memory.at and memory.kind != "deadline" and day(memory.at) != day(memory.created_at):
        lines.append((_STEP, f"happened {day(memory.at)}"))
    if minute(memory.updated_at) != minute(memory.created_at):
        lines.append((_STEP, f"last written {minute(memory.updated_at)}"))
    return lines


def told(chain: Chain, now: datetime) -> list[Line]:
    """Return the whole chain: the memory, its turns, tool calls and files, and its versions."""
    memory = chain.memory
    lines = [*about(chain, now), (0, ""), (0, "Where it comes from")]
    lines += _evidence(memory.evidence, chain.titles, _STEP)
    if not memory.evidence:
        lines.append((_STEP, "No source of it is kept any more."))
    if chain.earlier:
        lines += [(0, ""), (0, "What it replaced")]
    for each in chain.earlier:
        lines += _version(each, chain.people)
        lines += _evidence(each.evidence, chain.titles, 2 * _STEP)
    if chain.later:
        lines += [(0, ""), (0, "What replaced it"), *_version(chain.later, chain.people)]
    return lines


def _version(memory: MemoryRecord, people: Mapping[str, str]) -> list[Line]:
    said = said_by(memory, people)
    head = f"{short_id(memory.memory_id)} · {said} · {minute(memory.created_at)}"
    return [(_STEP, head), (2 * _STEP, one_line(memory.content, 4_000))]


def _evidence(found: Sequence[Evidence], titles: dict[str, str], indent: int) -> list[Line]:
    lines: list[Line] = []
    for each in found:
        call = f" ({short_id(each.tool_call_id)})" if each.tool_call_id else ""
        details = [
            f"tool call {one_line(each.tool_name, 80)}{call}" if each.tool_name or call else "",
            f"file {one_line(each.path, 500)}" if each.path else "",
            f"“{one_line(each.quote, _QUOTE_CHARS)}”" if each.quote.strip() else "",
        ]
        lines.append((indent, f"{minute(each.at)} · {_place(each, titles)}"))
        lines += [(indent + _STEP, line) for line in details if line]
    return lines


def _place(evidence: Evidence, titles: dict[str, str]) -> str:
    if not evidence.session_id:
        return "told by another agent" if evidence.tool_name else "told by you directly"
    title = titles.get(evidence.session_id)
    if title is None:
        name = ", which no longer exists"
    else:
        name = "" if title == DEFAULT_TITLE else f" “{one_line(title, _TITLE_CHARS)}”"
    turn = f"turn {evidence.turn_index} of " if evidence.turn_index else ""
    return f"{turn}session {short_id(evidence.session_id)}{name}"


_RULE = re.compile(
    r"\b(?:always|never|toujours(?! pas\b)|jamais|niemals|nie|(?<!noch )immer(?! noch\b))\b",
    re.IGNORECASE,
)


def facts_of(memory: "Memory") -> "Facts":
    """Return the memory's facts; StoreError with a hint if no facts are kept here."""
    if memory.facts is None:
        raise StoreError(
            "No facts are kept or recalled here: memory is turned off.",
            hint="`memory.enabled` and `memory.facts.enabled` switch it on; with --ephemeral "
            "nothing is written.",
        )
    return memory.facts


def said_so(text: str, *, pinned: bool = False) -> Draft:
    """Make a draft of what the user tells in a chat, pinned if it says "always" or "never"."""
    from ragmem.memory.facts.episodes import is_preference

    is_rule = _RULE.search(text) is not None
    kind: MemoryKind = "preference" if is_preference(text) else "rule" if is_rule else "fact"
    return Draft(content=text, kind=kind, pinned=pinned or is_rule)


async def here(store: Store, cwd: Path) -> Located:
    """Return a folder's project, from the file system alone while the store is unavailable."""
    try:
        known = await store.projects()
    except StoreUnavailable:
        known = []
    return locate(normalize_cwd(cwd), known, now=utc_now())


async def tell(
    memory: "Memory", place: Located, draft: Draft, source: MemorySource, *, project_id: str = ""
) -> Remembered:
    """Remember a draft in the user's words, for a folder's project, or the one of `project_id`."""
    facts = facts_of(memory)
    if place.is_new:
        await memory.record(registrations(place.project))
    # The evidence names no session, so that the memory survives the deletion of sessions.
    evidence = Evidence(quote=draft.content, at=utc_now())
    complete = msgspec.structs.replace(
        draft, source=source, trust="person", at=draft.at or _due(draft), evidence=(evidence,)
    )
    return await facts.remember(complete, project_id or place.project.root_id)


def _due(draft: Draft) -> datetime | None:
    if draft.kind != "deadline":
        return None
    from ragmem.memory.dates import days

    now = utc_now().astimezone()
    return next((day.at(now) for day in days(draft.content, now)), None)


_DISTINCTIVE_CHARS = 12
"""Length from which a memory's text is searched for anywhere in a prompt."""


async def forget(
    facts: "Facts", memory: MemoryRecord, *, paths: Paths, store: str
) -> dict[str, int]:
    """Delete a memory with its earlier versions, and log it; see `Store.forget_memories`.

    Prompts that contain it are deleted from the prompt history too, and so are pages of the memory.
    """
    every = (memory, *await facts.history(memory))
    texts = [_normalized(words) for each in every for words in (each.content, *_quoted(each))]
    # The memory goes last: if this is interrupted, it can be run again.
    with suppress(OSError):
        remove_pages(paths)
        forget_prompts(paths.prompt_history, lambda typed: _contains_any(_normalized(typed), texts))
    gone = await facts.forget(memory)
    entry = {
        "at": utc_now(),
        "memory_id": memory.memory_id,
        "project_id": memory.project_id,
        "store": store,
        "deleted": gone,
    }
    log_deletion(paths.log_dir, entry)
    return gone


def _quoted(memory: MemoryRecord) -> list[str]:
    """Return the user's words in a memory's evidence; of a clipped quote, its beginning."""
    said = memory.evidence if memory.trust == "person" else ()
    return [
        each.quote.removesuffix("…")
        for each in said
        if each.quote.strip() and not each.path and each.tool_name in ("", "remember")
    ]


def _contains_any(typed: str, told: Sequence[str]) -> bool:
    """Whether a prompt contains one of these texts, or is equal to a very short one."""
    return any(
        each in typed if len(each) >= _DISTINCTIVE_CHARS else typed.lstrip("# ") == each
        for each in told
    )


def _normalized(text: str) -> str:
    """Normalize case and whitespace, and drop a final full stop or exclamation mark."""
    return " ".join(text.casefold().split()).rstrip(".!")


def forgotten_text(memory: MemoryRecord, gone: Mapping[str, int]) -> str:
    """Return the confirmation shown to the user, of what `forget` has deleted."""
    count = gone["memories"]
    earlier = f", with {counted(count - 1, 'earlier version')}" if count > 1 else ""
    return f"Forgot {short_id(memory.memory_id)}{earlier}."


def traces_text(gone: Mapping[str, int]) -> str:
    """Say that parts of what was deleted may still be on the disk; empty if nothing is."""
    if not gone.get("traces"):
        return ""
    return (
        "Parts of its text may remain in the database file or a daily copy, because another "
        "process is reading it, or the disk is full or refuses. The next `ragmem sessions delete` "
        "or `ragmem memory forget` removes them."
    )


_NEAREST = 3
_MOST_FURTHER = 5
_NONE_CLOSE = "Nothing shares a word with this or is clearly about it. The closest:"
_CONTENT_CHARS = 500
_MANY = 100
"""Limit of a project's memories in which those of one session are looked for."""
_ROWS = 3


async def search_memories(
    memory: "Memory",
    text: str,
    *,
    open_store: Callable[[], Awaitable[Store]],
    scope: ScopeName,
    session: Session,
    semantic: bool = True,
    limit: int,
) -> list[FactHit]:
    """Find memories relevant to a text, best first.

    `scope`: those of the session, of the project and the user, or all. Each hit includes what was
    said later and may contradict it.
    """
    facts = memory.facts
    if facts is None:
        return []
    if scope == "all":
        found = await _everywhere(await open_store(), facts, text, limit)
    else:
        within = scope == "session"
        # Without a floor: the similarity of other sessions' memories must not exclude this one's.
        found = await facts.search(
            text, project_id=session.project_id, limit=_MANY if within else limit, floor=not within
        )
        if within:
            own = session.session_id
            found = [h for h in found if any(e.session_id == own for e in h.memory.evidence)]
    replace = msgspec.structs.replace
    if not semantic:
        found = [
            replace(hit, similarity=None, why=why)
            for hit in found
            if (why := tuple(each for each in hit.why if each != BY_MEANING))
        ]
    found = found[:limit]
    since = await said_since(await open_store(), [hit.memory for hit in found]) if found else {}
    return [replace(hit, since=since.get(hit.memory.memory_id, "")) for hit in found]


def nearest(
    hits: Sequence[Hit], memories: Sequence[FactHit], *, floor: float | None, limit: int
) -> tuple[list[Hit | FactHit], int, str]:
    """Choose which hits to show; return them, how many are close, and a heading if none is.

    Summaries of nothing but turns found here are left out, and so are turns that are not close if
    there are memories.
    """
    turns = {hit.record_id for hit in hits if hit.turn}
    shown = [hit for hit in hits if not hit.repeats(turns)]
    if memories and not any(hit.is_close(floor) for hit in shown):
        shown = []  # Turns that are not close are of no use next to memories.
    return worth_showing(merged(shown, memories, limit), floor)


class _Found(Protocol):
    @property
    def similarity(self) -> float | None: ...

    def is_close(self, floor: float | None) -> bool: ...

    def is_further(self, floor: float | None) -> bool: ...


F = TypeVar("F", bound=_Found)


def worth_showing(hits: Sequence[F], floor: float | None) -> tuple[list[F], int, str]:
    """Choose which hits to show: the close ones, then a few others; if none is close, the nearest.

    Returns them, how many are close, and a heading if none is.
    """
    close = [hit for hit in hits if hit.is_close(floor)]
    if close or not hits:
        further = [hit for hit in hits if not hit.is_close(floor) and hit.is_further(floor)]
        return [*close, *further[:_MOST_FURTHER]], len(close), ""
    nearest = sorted(hits, key=lambda hit: 1 if hit.similarity is None else -hit.similarity)
    return nearest[:_NEAREST], 0, _NONE_CLOSE


async def _everywhere(store: Store, facts: "Facts", text: str, limit: int) -> list[FactHit]:
    projects = {each.project_id for each in await store.memories(MemoryQuery(everywhere=True))}
    found: dict[str, FactHit] = {}
    for project_id in sorted(projects - {None}, key=str) or [None]:
        for hit in await facts.search(text, project_id=project_id, limit=limit):
            found.setdefault(hit.memory.memory_id, hit)
    return sorted(found.values(), key=lambda hit: -hit.score)


def merged(hits: Sequence[Hit], memories: Sequence[FactHit], limit: int) -> list[Hit | FactHit]:
    """Merge hits and memories, each in its order; of the next two, the more similar comes first.

    Their scores can't be compared. If one has no similarity, they alternate, memories first.
    """
    found: list[Hit | FactHit] = []
    left, beside = list(hits), list(memories)
    while len(found) < limit and (left or beside):
        first = not left
        if left and beside:
            near, other = beside[0].similarity, left[0].similarity
            its_turn = len(hits) - len(left) >= len(memories) - len(beside)
            first = its_turn if near is None or other is None else near >= other
        found.append(beside.pop(0) if first else left.pop(0))
    return found


def memory_facts(hit: FactHit, now: datetime) -> list[str]:
    """Return a memory's id, kind, source, age and why it was found, for display."""
    about = f"Memory {summed_up(hit.memory, now)}".split(" · ")
    return [*about, f"found by {one_line(', '.join(hit.why), 120)}"] if hit.why else about


def memory_rows(hit: FactHit, width: int) -> list[str]:
    """Return the rows to display: the memory in at most three, and what was said since in one."""
    rows = hanging("  ", one_line(hit.memory.content, _CONTENT_CHARS), width)
    if len(rows) > _ROWS:
        rows = [*rows[: _ROWS - 1], f"{rows[_ROWS - 1]} …"]
    since = [f"  {one_line(hit.since, _QUOTE_CHARS)}"] if hit.since else []
    return [clip_to_width(row, width) for row in (*rows, *since)]

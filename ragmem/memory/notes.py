"""What a person does to memory outside of a conversation: tells it something, forgets something."""

import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragmem.errors import StoreError, StoreUnavailable
from ragmem.ids import short_id
from ragmem.logs import log_deletion
from ragmem.memory.facts.values import Draft, Remembered
from ragmem.memory.projects import Located, locate, normalize_cwd
from ragmem.records import Evidence, MemoryRecord, MemorySource, RegisterProject, utc_now
from ragmem.store.base import Store
from ragmem.text import counted

if TYPE_CHECKING:
    from ragmem.memory.facts.facts import Facts
    from ragmem.memory.memory import Memory

_RULE = re.compile(r"\b(?:always|never|toujours|jamais)\b", re.IGNORECASE)
_QUOTE_CHARS = 500


def facts_of(memory: "Memory") -> "Facts":
    """What keeps facts; StoreError with what to do where nothing does."""
    if memory.facts is None:
        raise StoreError(
            "No facts are kept or recalled here: memory is switched off.",
            hint="`memory.enabled` and `memory.facts.enabled` switch it on; with --ephemeral "
            "nothing is written.",
        )
    return memory.facts


def said_so(text: str, *, pinned: bool = False) -> Draft:
    """What is told in a chat: a rule, pinned, if it says always or never; else a fact."""
    is_rule = _RULE.search(text) is not None
    return Draft(content=text, kind="rule" if is_rule else "fact", pinned=pinned or is_rule)


async def here(store: Store, cwd: Path) -> Located:
    """A folder's project, as far as the store can tell: what is told waits while it is away."""
    try:
        known = await store.projects()
    except StoreUnavailable:
        known = []
    return locate(normalize_cwd(cwd), known, now=utc_now())


async def tell(
    memory: "Memory", place: Located, draft: Draft, source: MemorySource, *, project_id: str = ""
) -> Remembered:
    """Remember it in the words of the person, for the project of a folder, or for that one."""
    facts = facts_of(memory)
    if place.is_new:
        await memory.record([RegisterProject(project=place.project)])
    # Whom it was told in passing changes nothing: it stays when that session is deleted.
    evidence = Evidence(quote=draft.content[:_QUOTE_CHARS], at=utc_now())
    told = msgspec.structs.replace(
        draft, source=source, trust="person", at=draft.at or _due(draft), evidence=(evidence,)
    )
    return await facts.remember(told, project_id or place.project.root_id)


def _due(draft: Draft) -> datetime | None:
    """The day that a deadline names, seen from today."""
    if draft.kind != "deadline":
        return None
    from ragmem.memory.dates import days

    now = utc_now().astimezone()
    return next((day.at(now) for day in days(draft.content, now)), None)


class _Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log: what went is named, not repeated."""

    at: datetime
    memory_id: str
    project_id: str | None
    store: str
    deleted: dict[str, int]


async def forget(facts: "Facts", memory: MemoryRecord, *, log_dir: Path, store: str) -> int:
    """Forget it with its earlier versions, and log that; how many went."""
    count = await facts.forget(memory)
    forgotten = _Forgotten(
        at=utc_now(),
        memory_id=memory.memory_id,
        project_id=memory.project_id,
        store=store,
        deleted={"memories": count},
    )
    log_deletion(log_dir, forgotten)
    return count


def forgotten_text(memory: MemoryRecord, count: int) -> str:
    """What a person is told of it."""
    earlier = f", with {counted(count - 1, 'earlier version')}" if count > 1 else ""
    return f"Forgot {short_id(memory.memory_id)}{earlier}."

"""What Tab offers in a shell for the ids of memories and sessions; nothing where they can't be had.

It never asks for longer than a person waits for Tab, and never says what went wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ragmem.config import find_paths, load_config
from ragmem.errors import RagmemError
from ragmem.ids import short_id
from ragmem.text import one_line

if TYPE_CHECKING:
    from ragmem.app import App

Offer = tuple[str, str]
"""What is put in, and what it is."""

_PATIENCE_S = 2.0
_OFFERED = 50
_ABOUT_CHARS = 60


def memory_ids(incomplete: str) -> list[Offer]:
    """Of this project's memories and the person's, newest first."""

    async def ask(opened: "App") -> list[Offer]:
        from ragmem.memory.notes import here
        from ragmem.store.memories import MemoryQuery

        store = await opened.store()
        project_id = (await here(store, opened.cwd)).project.root_id
        found = await store.memories(MemoryQuery(project_ids=(project_id,)))
        return [(memory.memory_id, memory.content) for memory in found]

    return _offered(ask, incomplete)


def session_ids(incomplete: str) -> list[Offer]:
    """Of this folder's sessions, newest first."""

    async def ask(opened: "App") -> list[Offer]:
        from ragmem.cli.choice import session_name
        from ragmem.memory.projects import folder_name
        from ragmem.store.base import SessionQuery

        query = SessionQuery(cwd=folder_name(opened.cwd), limit=_OFFERED)
        found = await (await opened.store()).sessions(query)
        return [(session.session_id, session_name(session)) for session in found]

    return _offered(ask, incomplete)


def _offered(ask: "Callable[[App], Awaitable[list[Offer]]]", incomplete: str) -> list[Offer]:
    """By the end of the id that lists show, or by the whole id where that is typed."""
    try:
        found = asyncio.run(_asked(ask))
    except (RagmemError, OSError, TimeoutError):
        return []
    typed = incomplete.casefold()
    offers = []
    for whole, about in found:
        shown = next((i for i in (short_id(whole), whole) if i.startswith(typed)), "")
        if shown:
            offers.append((shown, one_line(about, _ABOUT_CHARS)))
    return offers[:_OFFERED]


async def _asked(ask: "Callable[[App], Awaitable[list[Offer]]]") -> list[Offer]:
    from ragmem.cli.opening import open_app

    paths = find_paths()
    if not paths.data_dir.is_dir():
        return []
    async with asyncio.timeout(_PATIENCE_S):
        async with open_app(load_config(paths.config_file), paths, ephemeral=True) as opened:
            opened.say = lambda _: None
            return await ask(opened)

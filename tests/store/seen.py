"""All that the queries of a store tell."""

from typing import Any

import msgspec

from ragmem.records import OF_SESSIONS, MemoryQuery, Profile, SessionQuery
from ragmem.store import Store


async def seen(store: Store) -> dict[str, object]:
    """Everything that the store's queries tell, to be compared as one value."""
    sessions = await store.sessions(SessionQuery(limit=1000))
    ids = sorted(session.session_id for session in sessions)
    return {
        "sessions": sorted(sessions, key=lambda session: session.session_id),
        "turns": [await store.turns(each) for each in ids],
        "summaries": [await store.summaries(each) for each in ids],
        "accesses": [await store.file_accesses(each, max_turn_chars=10**9) for each in ids],
        "raw": [await store.raw_history_chars(each) for each in ids],
        "projects": await store.projects(),
        "memories": await store.memories(MemoryQuery(everywhere=True, with_superseded=True)),
        "profile": await store.profile(),
        "counts": (await store.info()).counts,
        **{each.table: await store.get(each.record, ids) for each in OF_SESSIONS},
    }


async def everything(store: Store) -> dict[str, Any]:
    """What is moved of all that, to be compared between stores."""
    found: dict[str, Any] = await seen(store)
    # In which order projects became known is not moved, nor when a profile became empty.
    found["projects"] = sorted(found["projects"], key=lambda project: str(project.project_id))
    found["profile"] = found["profile"] if found["profile"].values else Profile()
    return found


def difference(found: Any, expected: Any, where: str = "") -> list[str]:
    """Where two values differ, and how: to be read by people."""
    if found == expected:
        return []
    if isinstance(found, msgspec.Struct) and type(found) is type(expected):
        found, expected = msgspec.structs.asdict(found), msgspec.structs.asdict(expected)
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        pairs = [(key, found[key], expected[key]) for key in found]
    elif (
        isinstance(found, list | tuple)
        and isinstance(expected, list | tuple)
        and len(found) == len(expected)
    ):
        pairs = [(number, *pair) for number, pair in enumerate(zip(found, expected, strict=True))]
    else:
        return [f"{where}: found {found!r}, expected {expected!r}"]
    return [line for key, *pair in pairs for line in difference(*pair, f"{where}.{key}")]

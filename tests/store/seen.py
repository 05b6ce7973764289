"""All that the queries of a store tell."""

from ragmem.records import OF_SESSIONS, MemoryQuery, SessionQuery
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

"""What of a session's summaries is to be rolled up or redone, in the conversation's order."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from ragmem.memory.summaries import Summarizer, WaitingSummary, next_roll_up, summary_id
from ragmem.records import Pending, Session, Summary, Turn, TurnQuery, UpdateSession
from ragmem.store.base import Store


async def level1_of(store: Store, items: Iterable[Pending]) -> dict[str, Summary]:
    """By turn: the summaries that there are already of turns that have work pending."""
    ids = [summary_id(item.session_id, 1, (item.record_id,)) for item in items]
    return {s.covers[0]: s for s in await store.summaries_by_id(ids) if s.covers}


async def calls_behind(store: Store, session: Session, *, every: int) -> int:
    """Calls of a model that the session's summaries took at least, in all processes."""
    made = [s for s in await store.summaries(session.session_id) if not s.extractive]
    return len(made) + session.summarized_count // every


async def due_roll_up(
    store: Store, session_id: str, *, rollup_chars: int
) -> tuple[int, list[Summary]] | None:
    """The level that is due, and its summaries that go into the next one; None where none is.

    While a turn still waits for its own summary, none is due: what is summed up has no gaps.
    """
    if await store.raw_history_chars(session_id):
        return None
    found, turns = await _in_order(store, await store.summaries(session_id, not_rolled_up=True))
    waiting = [
        WaitingSummary(
            summary_id=summary.summary_id,
            level=summary.level,
            turn_count=summary.turn_count,
            raw_chars=sum(turns[i].char_count for i in summary.covers if i in turns),
            own_chars=summary.char_count,
        )
        for summary in found
    ]
    due = next_roll_up(waiting, rollup_chars=rollup_chars)
    if due is None:
        return None
    by_id = {summary.summary_id: summary for summary in found}
    return due.level - 1, [by_id[covered] for covered in due.covers]


async def to_roll_up(store: Store, session_id: str, level: int) -> list[Summary]:
    """Those of a level that no higher one covers, in the conversation's order."""
    waiting = await store.summaries(session_id, level=level, not_rolled_up=True)
    return (await _in_order(store, waiting))[0]


async def _in_order(
    store: Store, found: Sequence[Summary]
) -> tuple[list[Summary], dict[str, Turn]]:
    """By the last turn that each tells of; and the turns of level 1."""
    last = await _last_turns(store, found)
    turns = {turn.turn_id: turn for turn in await store.turns_by_id(sorted(_turn_ids(found, last)))}
    order = {
        s.summary_id: turns[last[s.summary_id]].turn_index
        for s in found
        if last.get(s.summary_id) in turns
    }
    return sorted(found, key=lambda s: (order.get(s.summary_id, 0), s.created_at)), turns


async def renewable(store: Store, session_id: str) -> list[tuple[Summary, list[Summary]]]:
    """Stand-ins of level 2 and up over summaries that a model made, lowest first, with those."""
    found = await store.summaries(session_id)
    by_id = {summary.summary_id: summary for summary in found}
    out = []
    for summary in sorted(found, key=lambda s: s.level):
        below = [by_id[covered] for covered in summary.covers if covered in by_id]
        whole = summary.level > 1 and len(below) == len(summary.covers)
        if summary.extractive and whole and not any(s.extractive for s in below):
            out.append((summary, below))
    return out


def _turn_ids(found: Sequence[Summary], last: dict[str, str]) -> set[str]:
    return {*last.values(), *(turn_id for s in found if s.level == 1 for turn_id in s.covers)}


async def _last_turns(store: Store, found: Sequence[Summary]) -> dict[str, str]:
    """By summary: the last turn that it tells of. One made late is not one of late turns."""
    last: dict[str, str] = {}
    above = {s.summary_id: s for s in found if s.covers}
    while above:
        last |= {name: s.covers[-1] for name, s in above.items() if s.level <= 1}
        above = {name: s for name, s in above.items() if s.level > 1}
        below = {
            s.summary_id: s
            for s in await store.summaries_by_id([s.covers[-1] for s in above.values()])
        }
        above = {
            name: below[s.covers[-1]]
            for name, s in above.items()
            if s.covers[-1] in below and below[s.covers[-1]].covers
        }
    return last


async def thread_renewed(
    store: Store, summarizer: Summarizer, session: Session, *, at: datetime
) -> UpdateSession:
    """A session's own summary, brought up to date with the turns since the last one."""
    count = (session.message_count - session.summarized_count) // 2
    since = await store.turns(
        session.session_id, TurnQuery(limit=max(1, count), statuses=("completed",))
    )
    return UpdateSession(
        session_id=session.session_id,
        summary=await summarizer.thread_summary(session.summary, since),
        summarized_count=session.message_count,
        at=at,
    )

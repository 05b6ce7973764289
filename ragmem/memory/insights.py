"""A look over the latest sessions: what each was about, what was found, what is left."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from ragmem.llm.base import ModelInfo, Request
from ragmem.memory.summaries import Summarizer
from ragmem.memory.summaries.digest import FINDING_CHARS, plain_line, plain_lines, read_object
from ragmem.memory.summaries.material import summaries_records, thread_records, turn_records
from ragmem.memory.summaries.summarizer import closing, request_of
from ragmem.messages import system, user
from ragmem.prompts import prompt
from ragmem.records import Insight, PutInsight, Session, Write, utc_now
from ragmem.store.base import SessionQuery, Store, TurnQuery
from ragmem.text import clip_middle, one_line

TOPIC_CHARS = 120
MAX_LINES = 8

Record = Callable[[Sequence[Write]], Awaitable[object]]
"""Writes without secrets, as `Memory.record`."""


class _Answer(msgspec.Struct, frozen=True):
    main_topic: str
    key_findings: tuple[str, ...] = ()
    action_items: tuple[str, ...] = ()


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions there are, and what of them is known already."""

    known: tuple[tuple[Session, Insight], ...]
    waiting: tuple[Session, ...]
    """Those that have none, or went on since."""


async def look(store: Store, *, last: int) -> Look:
    """The latest sessions in which something was answered, in any folder."""
    found = [s for s in await store.sessions(SessionQuery(limit=last)) if s.message_count]
    made = {i.session_id: i for i in await store.insights([s.session_id for s in found])}
    known = [(s, made[s.session_id]) for s in found if s.session_id in made]
    fresh = [(s, i) for s, i in known if i.created_at >= s.last_activity_at]
    done = {session.session_id for session, _ in fresh}
    return Look(known=tuple(fresh), waiting=tuple(s for s in found if s.session_id not in done))


async def insight_into(
    store: Store,
    summarizer: Summarizer,
    session: Session,
    record: Record,
    *,
    clock: Callable[[], datetime] = utc_now,
) -> Insight | None:
    """Ask about one session, and store what came; None where nothing of use did."""
    at = clock()
    data = await _records(store, session, summarizer.room)
    if not data:
        return None
    item = insight_item(session)
    found = await summarizer.ask(session.session_id, data, _request, _read, item=item)
    if found is None:
        return None
    insight = Insight(
        session_id=session.session_id,
        main_topic=found.main_topic,
        key_findings=found.key_findings,
        action_items=found.action_items,
        created_at=at,
    )
    await record([PutInsight(insight=insight)])
    return insight


def insight_item(session: Session) -> str:
    """By this name what was tried is kept: a session that goes on is asked about anew."""
    return f"insight:{session.session_id}:{session.message_count}"


async def _records(store: Store, session: Session, room: int) -> str:
    """The turns with their tool calls; where that is too long, their words alone, or summaries."""
    turns = await store.turns(session.session_id, TurnQuery(statuses=("completed",)))
    whole = "\n\n".join(map(turn_records, turns))
    if len(whole) <= room:
        return whole
    if sum(turn.char_count for turn in turns) > room:
        top = await store.summaries(session.session_id, not_rolled_up=True)
        if top:
            # By level: what was summed up again is the older part.
            top.sort(key=lambda s: (-s.level, s.created_at))
            return clip_middle(summaries_records(top), room)
    return clip_middle(thread_records(session.summary, turns, max_chars=room), room)


def _request(data: str, tag: str, problem: str, info: ModelInfo) -> Request:
    rules = prompt("insights").format(
        topic_chars=TOPIC_CHARS, most=MAX_LINES, line_chars=FINDING_CHARS
    )
    messages = (
        system(rules),
        user(prompt("summarize_data").format(tag=tag, data=data, closing=closing(problem))),
    )
    return request_of(messages, info)


def _read(answer: str, tag: str, _: str) -> _Answer:
    found = read_object(answer, _Answer)
    if tag in answer:
        raise ValueError("it repeats the marks around the data")
    topic = one_line(plain_line(found.main_topic), TOPIC_CHARS)
    if not any(map(str.isalnum, topic)):
        raise ValueError("its main_topic is empty")
    return _Answer(
        main_topic=topic,
        key_findings=plain_lines(found.key_findings, FINDING_CHARS, MAX_LINES),
        action_items=plain_lines(found.action_items, FINDING_CHARS, MAX_LINES),
    )

"""Titles and insights of sessions, made by the model for summaries.

An untitled session gets a title in the background after its first completed turn: a line by the
model or, without one, the user's first words. They are those of that turn, or of an earlier one
that was interrupted but has an answer or calls. A session with any title is never renamed. An
insight says what a session was about, its findings, and what is left to do.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

import msgspec

from ragmem.errors import SessionNotFound
from ragmem.memory.leases import leased
from ragmem.memory.recording import Recorder, redacted
from ragmem.memory.summaries import (
    FINDING_CHARS,
    plain_line,
    plain_lines,
    required_line,
    summaries_records,
    thread_records,
    turn_records,
)
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.messages import prompt
from ragmem.records import (
    DEFAULT_TITLE,
    Insight,
    PutInsight,
    Session,
    SessionQuery,
    Turn,
    TurnQuery,
    UpdateSession,
    utc_now,
)
from ragmem.store import AHEAD, Store
from ragmem.text import clip_middle, one_line

TITLE_CHARS = 60
LATEST = 8
"""How many sessions, those with the latest activity, are checked each time."""
_LONGEST_ANSWER = 200
_DATA_CHARS = 6_000
_LEASE_S = 30.0
_SHORTEST_CUT = 20
_READ = 20
"""Turns of a session read at a time in search of the one to make the title from."""
_MARKS = re.compile(r"`+|\*\*+|^[#>\s]+")
_QUOTES = {'"': '"', "'": "'", "“": "”", "«": "»", "„": "“"}


class _TitleAnswer(msgspec.Struct, frozen=True):
    title: str


async def due(
    store: Store, summarizer: Summarizer | None, owner_id: str, *, passed: set[str], now: datetime
) -> bool:
    """Give one of the latest untitled sessions a title; false if there was none.

    `passed`, which this function extends, has the keys of sessions that need not be checked again
    before their next turn.
    """
    for session in await store.sessions(SessionQuery(limit=LATEST)):
        key = f"title:{session.session_id}:{session.message_count}"
        if session.title != DEFAULT_TITLE or not session.message_count or key in passed:
            continue
        passed.add(key)
        async with leased(store, [f"title:{session.session_id}"], owner_id, seconds=_LEASE_S) as by:
            if by and await _name(store, summarizer, session, now):
                return True
    return False


async def _name(
    store: Store, summarizer: Summarizer | None, session: Session, now: datetime
) -> bool:
    if summarizer is not None:
        await summarizer.consider(store, [session.session_id])
    # The previous holder of the lease may have done it.
    turn = await _first_turn(store, session) if await _is_unnamed(store, session) else None
    title = await title_of(summarizer, session.session_id, turn) if turn else ""
    # The user may have renamed or deleted it meanwhile.
    if not title or not await _is_unnamed(store, session):
        return False
    await store.apply([redacted(UpdateSession(session_id=session.session_id, title=title, at=now))])
    return True


async def _is_unnamed(store: Store, session: Session) -> bool:
    with suppress(SessionNotFound):
        return (await store.session(session.session_id)).title == DEFAULT_TITLE
    return False


async def _first_turn(store: Store, session: Session) -> Turn | None:
    """Return the first turn with an answer or calls; of a fork, the first of its own turns."""
    for last in range((session.forked_at_index or 0) + _READ, session.turn_count + _READ, _READ):
        query = TurnQuery(limit=_READ, before_index=last + 1)
        for turn in await store.turns(session.session_id, query):
            came = turn.assistant_message.strip() or turn.tool_calls
            if came and turn.turn_index > last - _READ and not turn.is_own_command:
                return turn
    return None


async def title_of(summarizer: Summarizer | None, session_id: str, turn: Turn) -> str:
    """Make a title for a session that begins with this turn; empty if it has no words."""
    if summarizer is not None and summarizer.uses_model(session_id):
        data = clip_middle(turn_records(turn), min(_DATA_CHARS, summarizer.room))
        rules, item = prompt("title").format(chars=TITLE_CHARS), f"title:{session_id}"
        if made := await summarizer.ask(session_id, data, rules, _TitleAnswer, _read, item=item):
            return made
    return title_from_words(turn.asked)


def title_from_words(text: str) -> str:
    """Return the first line with words, cut at the end of a word."""
    for line in text.splitlines():
        said = _without_marks(line)
        if any(map(str.isalnum, said)) and not line.lstrip().startswith(("<", "```")):
            return _cut(said)
    return ""


def _without_marks(text: str) -> str:
    said = _MARKS.sub("", plain_line(text)).strip()
    if len(said) > 1 and _QUOTES.get(said[0]) == said[-1]:
        said = said[1:-1].strip()
    return said


def _cut(text: str) -> str:
    if len(text) <= TITLE_CHARS:
        return text
    head = text[: TITLE_CHARS - 1]
    end = head.rfind(" ")
    return f"{head[:end] if end >= _SHORTEST_CUT else head}…"


def _read(answer: _TitleAnswer) -> str:
    title = re.sub(r"(?<!\.)\.$", "", _without_marks(answer.title))
    if not any(map(str.isalnum, title)):
        raise ValueError("its title is empty")
    if title == DEFAULT_TITLE or len(title) > _LONGEST_ANSWER:
        raise ValueError(f"its title is not one of at most {TITLE_CHARS} characters")
    return _cut(one_line(title, _LONGEST_ANSWER))


TOPIC_CHARS = 120
MAX_LINES = 8


class _InsightAnswer(msgspec.Struct, frozen=True):
    main_topic: str
    key_findings: tuple[str, ...] = ()
    action_items: tuple[str, ...] = ()


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The latest sessions, with and without current insights."""

    known: tuple[tuple[Session, Insight], ...]
    waiting: tuple[Session, ...]
    """Sessions without an insight, or with activity since it was made."""


async def look(store: Store, *, last: int) -> Look:
    """Look up the latest sessions with an answer, in any folder."""
    found = [s for s in await store.sessions(SessionQuery(limit=last)) if s.message_count]
    made = {i.session_id: i for i in await store.get(Insight, [s.session_id for s in found])}
    known = [(s, made[s.session_id]) for s in found if s.session_id in made]
    # An insight from the future, by a clock that was ahead, is made again.
    latest = utc_now() + AHEAD
    fresh = [(s, i) for s, i in known if s.last_activity_at <= i.created_at <= latest]
    done = {session.session_id for session, _ in fresh}
    return Look(known=tuple(fresh), waiting=tuple(s for s in found if s.session_id not in done))


async def insight_into(
    store: Store,
    summarizer: Summarizer,
    session: Session,
    record: Recorder,
    *,
    clock: Callable[[], datetime] = utc_now,
) -> Insight | None:
    """Ask the model for a session's insight, and record it; None if nothing usable came back."""
    at = clock()
    await summarizer.consider(store, [session.session_id])
    data = await _records(store, session, summarizer.room)
    if not data:
        return None
    rules = prompt("insights").format(
        topic_chars=TOPIC_CHARS, most=MAX_LINES, line_chars=FINDING_CHARS
    )
    read = partial(_read_insight, session_id=session.session_id, at=at)
    insight = await summarizer.ask(
        session.session_id, data, rules, _InsightAnswer, read, item=insight_item(session)
    )
    if insight is not None:
        await record([PutInsight(insight=insight)])
    return insight


def insight_item(session: Session) -> str:
    """Return the item under which failed attempts count; it changes when the session goes on."""
    return f"insight:{session.session_id}:{session.message_count}"


async def _records(store: Store, session: Session, room: int) -> str:
    """Return the turns with their tool calls; if that is too long, without, or as summaries."""
    turns = await store.turns(session.session_id, TurnQuery(statuses=("completed",)))
    whole = "\n\n".join(map(turn_records, turns))
    if len(whole) <= room:
        return whole
    if sum(turn.char_count for turn in turns) > room:
        top = await store.summaries(session.session_id, not_rolled_up=True)
        if top:
            # Higher levels first: they cover the older turns.
            top.sort(key=lambda s: (-s.level, s.created_at))
            return clip_middle(summaries_records(top), room)
    return clip_middle(thread_records(session.summary, turns, max_chars=room), room)


def _read_insight(answer: _InsightAnswer, *, session_id: str, at: datetime) -> Insight:
    return Insight(
        session_id=session_id,
        created_at=at,
        main_topic=one_line(required_line(answer.main_topic, "main_topic"), TOPIC_CHARS),
        key_findings=plain_lines(answer.key_findings, FINDING_CHARS, MAX_LINES),
        action_items=plain_lines(answer.action_items, FINDING_CHARS, MAX_LINES),
    )

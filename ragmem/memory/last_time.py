"""Recaps of a project's newest sessions, for a user who returns to it.

Made from the turns themselves, without a model: the last answer, the files changed and whether they
changed again since, commands that failed when last run, decisions, and what was left open.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import msgspec

from ragmem.ids import short_id
from ragmem.memory.facts import Draft, attributed, day_of
from ragmem.memory.facts.failures import failures, subject_of, succeeded
from ragmem.memory.facts.words import is_generic, is_greeting, leaves_subject, names_nothing
from ragmem.memory.projects import is_reachable, real_folder
from ragmem.memory.recall import Replaced
from ragmem.memory.since import (
    Aftermath,
    Alike,
    alike,
    in_short,
    left_open,
    replaced_in,
)
from ragmem.memory.turns import extract_accessed_files, locator, taken_back, written_since
from ragmem.own_tools import UPDATE_TASKS
from ragmem.records import (
    DEFAULT_TITLE,
    MemoryQuery,
    MemoryRecord,
    Session,
    SessionQuery,
    Turn,
    TurnQuery,
)
from ragmem.store import Store
from ragmem.text import ago, counted, one_line

MOST_SESSIONS = 3
"""Number of sessions recapped, the newest in most detail. Three cover 92 % of what should be shown,
one 88 % (docs/measurements.md); five crowd each other out.
"""
FIRST_TURNS = 2
"""Turns of a new session that get the recaps, whatever their prompt."""
_SESSIONS_READ = 12
_TURNS = 8
_READ_CHARS = 200_000
"""Limits of the newest turns of a session that are read: they show how it ended."""
_MOST = 4
_MOST_BEFORE = 3
"""Turns shown before the last one, for a session that is not the newest."""
_CUT_OFF_CHARS = 120
"""Limit of the prompt of a turn that did not finish."""
_ASKED_CHARS = 400
"""Limit of other prompts; a long one may settle several things, one after the other."""
_ANSWER_CHARS = 480
"""Limit of an answer; its result is in its first sentences, in the second as often as in the
first."""
_SMALL_TALK_CHARS = 60
"""A shorter answer, in a turn without edits or commands, counts as small talk."""
_LINE_CHARS = 160
_TITLE_CHARS = 60
_CHANGED_SINCE = " (changed since)"
_REVISITED = "(as it was then; revisited since) "
_TAKEN_BACK = "(its edits were undone since) "


def sessions_wanted(prompt: str, turn_index: int) -> int:
    """Return how many sessions to recap with a prompt, given the index of its turn.

    "Go on" later in a session means that session's own work, not what was done before it.
    """
    if leaves_subject(prompt):
        return 0
    return MOST_SESSIONS if turn_index <= FIRST_TURNS or is_generic(prompt) else 0


# --- the agent's own list of tasks ------------------------------------------------------------


class _Task(msgspec.Struct, frozen=True):
    text: str
    state: str = "open"


class _Tasks(msgspec.Struct, frozen=True):
    tasks: tuple[_Task, ...] = ()


def tasks_left(turns: Sequence[Turn]) -> list[str]:
    """Return the tasks not done of the agent's last task list in these turns, in order."""
    calls = (call for turn in reversed(turns) for call in reversed(turn.tool_calls))
    last = next((c for c in calls if c.tool_name == UPDATE_TASKS and c.success), None)
    try:
        task_list = msgspec.json.decode(last.arguments, type=_Tasks) if last else _Tasks()
    except msgspec.DecodeError:
        return []
    return [one_line(task.text, _LINE_CHARS) for task in task_list.tasks if task.state != "done"]


# --- a session ------------------------------------------------------------------------------------


class SessionRecap(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended, as texts for display."""

    session: Session
    about: str = ""
    """The session's summary, if it has more turns than were read."""
    outcome: str = ""
    """The last prompt, and the beginning of its answer."""
    before: tuple[str, ...] = ()
    """The same for the turns before, newest first."""
    changed: tuple[str, ...] = ()
    """Files, by their path in the project, and whether they have changed since."""
    failed: tuple[str, ...] = ()
    """Commands and edits that failed when they were last tried, and why."""
    decided: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    """Deadlines, tasks and statements of something still to do, and an unfinished turn."""
    sources: Mapping[str, str] = MappingProxyType({})
    """Ids of the turns and memories that the texts of `outcome`, `before` and `decided` are from,
    by text."""

    def head(self, now: datetime) -> str:
        """Return a heading: the session's id, title, age and number of turns."""
        title = "" if self.session.title == DEFAULT_TITLE else self.session.title
        named = f" “{one_line(title, _TITLE_CHARS)}”" if title else ""
        turns = counted(self.session.turn_count, "turn")
        when = ago(self.session.last_activity_at, now)
        return f"Session {short_id(self.session.session_id)}{named}, {when}, {turns}"

    def lines(self, shown: Collection[str] = ()) -> list[str]:
        """Return the recap as lines, one per kind, without turns and memories in `shown`."""

        def news(*texts: str) -> list[str]:
            return [each for each in texts if self.sources.get(each) not in shown]

        kinds = (
            ("About", self.about),
            *(("Outcome", each) for each in news(self.outcome)),
            *(("Before that", each) for each in news(*self.before)),
            ("Decided", _listed(news(*self.decided))),
            ("Changed", ", ".join(self.changed)),
            ("Still failing", _listed(self.failed)),
            ("Open", _listed(self.open)),
        )
        return [f"{name}: {text}" for name, text in kinds if text]


def _listed(sentences: Sequence[str]) -> str:
    """Join sentences on one line, with semicolons in place of full stops."""
    return "; ".join([*(each.rstrip(".") for each in sentences[:-1]), *sentences[-1:]])


def recap(
    session: Session,
    turns: Sequence[Turn],
    *,
    decided: Sequence[MemoryRecord] = (),
    later: Sequence[Turn] = (),
    others: Sequence[Turn] = (),
    past: Mapping[str, Replaced] = MappingProxyType({}),
    known: Collection[MemoryRecord] = (),
    meant: Alike | None = None,
) -> SessionRecap:
    """Make the recap of a session from its newest turns, in order.

    `decided`: its decisions. `later`: turns of sessions with later activity. `others`: turns of all
    sessions, in which what failed here may have worked since. `past`: replaced statements, by turn
    id. `known`: memories from all of these sessions. `meant`: which turns mean
    the same, by their vectors.
    """
    locate = locator(session)
    undone = {
        turn_id: set(map(locate, paths)) for turn_id, paths in taken_back((*turns, *later)).items()
    }
    writes = [
        (access.path, turn.turn_id)
        for turn in turns
        for call in turn.tool_calls
        for access in extract_accessed_files(call, locate=locate)
        if access.access_type == "write" and not call.is_undo
        if access.path not in undone.get(turn.turn_id, ())
    ]
    substantial = [turn for turn in turns if not _is_trivial(turn)]
    substantial = [turn for turn in substantial if says_something(turn)] or substantial[-1:]
    last = substantial[-1] if substantial else None
    calls = tuple(chain(*(turn.tool_calls for turn in turns)))
    failed = [
        draft
        for turn in turns[-1:]
        for draft in failures(msgspec.structs.replace(turn, tool_calls=calls), locate=locate)
        if not any(_mends(each, draft) for each in (*later, *others))
    ]
    after = Aftermath([*turns, *later], known, meant=meant)
    rewritten = {turn_id for _, turn_id in writes}.difference(dict(writes).values())
    before = {
        _outcome(each, after, past) + _CHANGED_SINCE * (each.turn_id in rewritten): each.turn_id
        for each in substantial[-2 : -2 - (_MOST_BEFORE if later else _MOST) : -1]
    }
    outcome = {_outcome(last, after, past): last.turn_id} if last else {}
    settled = {_marked(each, after): each.memory_id for each in decided[:_MOST]}
    return SessionRecap(
        session=session,
        about=session.summary or "" if session.turn_count > len(turns) else "",
        outcome="".join(outcome),
        before=tuple(before),
        changed=tuple(dict.fromkeys(path for path, _ in reversed(writes))),
        failed=tuple(one_line(each.content, _LINE_CHARS) for each in failed[::-1]),
        decided=tuple(settled),
        open=tuple(_open(turns, after, is_newest=not later)),
        sources=outcome | before | settled,
    )


def _mends(turn: Turn, failed: Draft) -> bool:
    """Whether what failed before has worked in the turn."""
    is_later = failed.at is None or turn.timestamp > failed.at
    return is_later and failed.content.startswith(tuple(succeeded(turn)))


def says_something(turn: Turn) -> bool:
    """Whether a turn has an edit, a command or a substantial answer; own commands don't count."""
    did = any(subject_of(call) for call in turn.tool_calls)
    answered = len(turn.assistant_message) >= _SMALL_TALK_CHARS
    return not turn.is_own_command and (did or answered)


def is_small_talk(turn: Turn) -> bool:
    """Whether a turn is a greeting, thanks or a goodbye without a result."""
    return is_greeting(turn.user_message) and not says_something(turn)


def _marked(memory: MemoryRecord, after: Aftermath) -> str:
    """Return a memory's text, with who said it, and a note if it may no longer hold."""
    marked = f"{_REVISITED * bool(after.of_memory(memory))}{attributed(memory)}"
    return one_line(marked, _LINE_CHARS)


def _outcome(turn: Turn, after: Aftermath, past: Mapping[str, Replaced]) -> str:
    """Return a turn's prompt and result, with a note if they may no longer hold."""
    text = in_short(turn, _ASKED_CHARS, _ANSWER_CHARS)
    if turn.turn_id in past:
        by = one_line(past[turn.turn_id].by, _LINE_CHARS)
        return f"(as it was then; replaced since by: {by}) {text}"
    if after.is_taken_back(turn):
        return f"{_TAKEN_BACK}{text}"
    return f"{_REVISITED if after.of_turn(turn) else ''}{text}"


def _open(turns: Sequence[Turn], after: Aftermath, *, is_newest: bool) -> list[str]:
    """Return what is still open: tasks of the agent's list, then statements and an unfinished turn.

    The latter are newest first. What a later turn has done is left out.
    """
    turns = [turn for turn in turns if not turn.is_own_command]
    found = _tasks_open(turns, after)
    telling = [(i, turn) for i, turn in enumerate(turns) if not is_small_talk(turn)]
    statements = dict[str, None]()
    for i, turn in reversed(telling):
        for each in left_open(turn):
            _add_open(statements, each, after.steps_done(each, turn.timestamp))
        if i == len(turns) - 1 and is_newest and (cut := unfinished(turn)):
            statements[cut] = None
    return list(found | dict.fromkeys(list(statements)[:_MOST]))


def _tasks_open(turns: Sequence[Turn], after: Aftermath) -> dict[str, None]:
    found: dict[str, None] = {}
    for task in tasks_left(turns)[:_MOST]:
        _add_open(found, task, after.steps_done(task, turns[-1].timestamp))
    return found


def unfinished(turn: Turn) -> str:
    """Return the prompt of an unfinished turn, and how it ended; empty for a finished one."""
    ended = {"interrupted": "interrupted", "failed": "ended with an error"}.get(turn.status, "")
    return f"“{one_line(turn.asked, _CUT_OFF_CHARS)}” ({ended})" if ended else ""


def _add_open(found: dict[str, None], what: str, steps: Sequence[str]) -> None:
    if not all(steps):
        found[one_line(f"{_REVISITED if any(steps) else ''}{what}", _LINE_CHARS)] = None


# --- reading sessions from the store --------------------------------------------------------------


_Read = tuple[Session, Sequence[Turn]]
"""A session with its newest turns."""


async def last_time(
    store: Store,
    session: Session,
    *,
    everywhere: bool,
    most: int,
    now: datetime,
    floor: float | None = None,
) -> list[SessionRecap]:
    """Return recaps of the user's newest other sessions, those of this checkout first.

    `floor` is the cosine, as fitted for the embedder, above which a turn is related to a question.
    Raises StoreError.
    """
    project_ids = () if everywhere else (session.project_id,)
    query = SessionQuery(project_ids=project_ids, mine=True, limit=_SESSIONS_READ)
    # A fork and its parent don't get each other's recaps.
    own = {session.session_id, session.parent_session_id} - {None}
    listed = await store.sessions(query)
    others = [
        each
        for each in listed
        if each.turn_count and not own & {each.session_id, each.parent_session_id}
    ]
    others.sort(key=lambda each: each.project_path != session.project_path)
    read = await _read(store, others)
    read = _without_shared([each for each in read if not _was_left_for_fork(each, listed)])
    read = [each for each in read if not all(map(_is_trivial, each[1]))] or read
    if not read:
        return []
    # Deadlines stay open whenever they were set; tasks only of the sessions read here.
    deadlines = MemoryQuery(
        project_ids=project_ids, everywhere=everywhere, kinds=("deadline",), alive_at=now
    )
    due = await store.memories(deadlines)
    newest, *older = await _recaps_from(store, read[:most], now, listed, floor)
    more = await asyncio.to_thread(_open_before, read[:most], read[most:], due, now)
    open_already = {each for found in (newest, *older) for each in found.open}
    more = [each for each in more if each not in open_already]
    return [msgspec.structs.replace(newest, open=(*newest.open, *more)), *older]


def _is_trivial(turn: Turn) -> bool:
    """Whether a turn adds nothing to a session, which is not recapped if all of its turns do so.

    That is a greeting or "Where were we?" without edits and commands, or the user's own command.
    """
    text = turn.user_message
    is_said = is_greeting(text) or names_nothing(text, turn.timestamp)
    return turn.is_own_command or (is_said and not any(map(subject_of, turn.tool_calls)))


def _was_left_for_fork(read: _Read, listed: Iterable[Session]) -> bool:
    """Whether the user rewound the session and left it for a fork.

    That is, nothing was asked in it since, and an active fork of it is listed.
    """
    session, turns = read
    last = next((t for t in reversed(turns) if t.is_rewind or not t.is_own_command), None)
    if last is None or not last.is_rewind:
        return False
    return any(
        fork.parent_session_id == session.session_id and fork.status == "active" for fork in listed
    )


def _without_shared(read: Iterable[_Read]) -> list[_Read]:
    """Drop turns that an earlier session in the list has too, and sessions without any others."""
    seen, found = set[str](), list[_Read]()
    for session, turns in read:
        if own := [turn for turn in turns if turn.turn_id not in seen]:
            found.append((session, own))
        seen.update(turn.turn_id for turn in own)
    return found


def _open_before(
    recapped: Sequence[_Read],
    before: Sequence[_Read],
    deadlines: Sequence[MemoryRecord],
    now: datetime,
) -> list[str]:
    """Return deadlines and open tasks of the sessions `before`, without those done since."""
    sessions = {session.session_id for session, _ in recapped}
    due = [m for m in deadlines if sessions.isdisjoint(e.session_id for e in m.evidence)]
    found: dict[str, None] = {}
    for session, turns in before:
        if tasks_left(turns):
            later = _later(session, [*recapped, *before])
            found |= _tasks_open(turns, Aftermath([*turns, *later]))
    return [*_due(due, _turns_of([*recapped, *before]), now), *list(found)[:_MOST]]


async def recaps(store: Store, sessions: Sequence[Session], *, now: datetime) -> list[SessionRecap]:
    """Return the recaps of sessions, in their order. Raises StoreError."""
    return await _recaps_from(store, await _read(store, sessions), now, sessions, None)


async def _read(store: Store, sessions: Sequence[Session]) -> list[_Read]:
    query = TurnQuery(limit=_TURNS, max_chars=_READ_CHARS)
    turns = await asyncio.gather(*(store.turns(each.session_id, query) for each in sessions))
    return list(zip(sessions, turns, strict=True))


def _turns_of(read: Iterable[_Read]) -> list[Turn]:
    return [turn for _, turns in read for turn in turns]


async def _recaps_from(
    store: Store,
    read: Sequence[_Read],
    now: datetime,
    known: Iterable[Session],
    floor: float | None,
) -> list[SessionRecap]:
    """Make the recaps; `known` includes the parents that the sessions share turns with."""
    by_id = {each.session_id: each for each in known}
    asked = (_learned_in(store, session, by_id, now) for session, _ in read)
    learned = await asyncio.gather(*asked)
    told_in = {each.session_id for m in chain(*learned) for each in m.evidence}
    past = await replaced_in(store, told_in | {session.session_id for session, _ in read})
    meant = await alike(store, _turns_of(read), floor)
    # Some hundred thousand characters take a moment: don't block the event loop.
    return await asyncio.to_thread(_recaps, read, learned, past, now, meant)


async def _learned_in(
    store: Store, session: Session, known: Mapping[str, Session], now: datetime
) -> list[MemoryRecord]:
    """Return decisions and deadlines from a session's turns, including the shared ones."""
    seen, last = {session.session_id: session.turn_count}, session.turn_count
    while parent := known.get(session.parent_session_id or ""):
        last = min(last, session.forked_at_index or 0)
        seen[parent.session_id] = last
        session = parent
    query = MemoryQuery(
        everywhere=True,
        session_ids=tuple(seen),
        kinds=("decision", "deadline"),
        alive_at=now,
    )
    return [
        memory
        for memory in await store.memories(query)
        if any(each.turn_index <= seen.get(each.session_id, -1) for each in memory.evidence)
    ]


def _later(session: Session, read: Iterable[_Read]) -> list[Turn]:
    """Return the turns of sessions whose last activity is after this one's."""
    at = session.last_activity_at
    return [turn for other, turns in read if other.last_activity_at > at for turn in turns]


def _recaps(
    read: Sequence[_Read],
    learned: Sequence[Sequence[MemoryRecord]],
    past: Mapping[str, Replaced],
    now: datetime,
    meant: Alike,
) -> list[SessionRecap]:
    found, told = [], set[str]()
    known, turns = list(chain(*learned)), _turns_of(read)
    for (session, own), memories in zip(read, learned, strict=True):
        # A memory from several sessions belongs to the newest.
        current = [memory for memory in memories[::-1] if memory.memory_id not in told]
        told.update(memory.memory_id for memory in current)
        decided = [memory for memory in current if memory.kind == "decision"]
        later = _later(session, read)
        made = recap(
            session,
            own,
            decided=decided,
            later=later,
            others=turns,
            past=past,
            known=known,
            meant=meant,
        )
        due = _due(current, turns, now)
        made = msgspec.structs.replace(made, open=(*due, *made.open))
        found.append(_with_changes(made, _last_at(session, own)))
    return found


def _last_at(session: Session, turns: Iterable[Turn]) -> datetime:
    """Return the time of the last activity; calls of an interrupted turn may have ended later."""
    calls = (call for turn in turns for call in turn.tool_calls)
    ends = (call.started_at + timedelta(milliseconds=call.duration_ms or 0) for call in calls)
    return max([session.last_activity_at, *ends])


def _due(memories: Iterable[MemoryRecord], turns: Iterable[Turn], now: datetime) -> list[str]:
    """Return the deadlines of today and later, with a note if they may have changed since."""
    known = [memory for memory in memories if memory.kind == "deadline"]
    today = day_of(now, now)
    found = [each for each in known if not each.at or day_of(each.at, now) >= today]
    if not found:
        return []
    after = Aftermath(turns, known)
    return [_marked(each, after) for each in found[:_MOST]]


def _with_changes(found: SessionRecap, at: datetime) -> SessionRecap:
    """Mark files that changed after that time, if the folder is on this machine."""
    session = found.session
    stored = session.project_path or session.cwd
    if not is_reachable(stored):
        return found
    top = real_folder(stored)
    marked = [f"{path}{_change_mark(top / path, at)}" for path in found.changed[:_MOST]]
    more = len(found.changed) - len(marked)
    changed = (*marked, f"{more} more") if more > 0 else tuple(marked)
    return msgspec.structs.replace(found, changed=changed)


def _change_mark(path: Path, at: datetime) -> str:
    written = written_since(path, at)
    return " (gone since)" if written is None else _CHANGED_SINCE if written else ""

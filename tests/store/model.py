"""What must be in a store, in plain Python: the reference that real stores are compared with."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Self

import msgspec

from ragmem.records import (
    DEFAULT_TITLE,
    OF_SESSIONS,
    AddSummary,
    BeginTurn,
    CreateSession,
    FileAccess,
    FinishTurn,
    MemoryRecord,
    Profile,
    Project,
    PutMemory,
    PutProfile,
    Record,
    RecordAnswer,
    RecordToolCall,
    RegisterProject,
    Session,
    Summary,
    ToolCall,
    Turn,
    UpdateSession,
    Write,
)
from ragmem.store import Store
from ragmem.text import clean
from tests.store.seen import seen

replace = msgspec.structs.replace
Seen = dict[str, object]


async def everything(store: Store) -> Seen:
    """All that a store tells, to be compared as one value."""
    found: dict[str, Any] = await seen(store)
    # In which order projects became known is not moved between stores.
    found["projects"] = sorted(found["projects"], key=lambda project: str(project.project_id))
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


class Model:
    """Records by id. A Model is a value: what changes it makes another one."""

    def __init__(self) -> None:
        self.projects: dict[str, Project] = {}
        self.sessions: dict[str, Session] = {}
        self.turns: dict[str, Turn] = {}
        self.own: dict[str, tuple[str, ...]] = {}
        """Ids of each session's own turns, in order."""
        self.calls: dict[str, ToolCall] = {}
        self.accesses: dict[str, tuple[FileAccess, ...]] = {}
        """By tool call."""
        self.summaries: dict[str, Summary] = {}
        self.memories: dict[str, MemoryRecord] = {}
        self.of_sessions: dict[tuple[type[Record], str], Record] = {}
        """By kind and session, where a session has one of them."""
        self.profile: dict[str, str] = {}
        self.profile_at: datetime | None = None
        self.attached: frozenset[tuple[str, str]] = frozenset()
        """Owner and session."""
        self.live: frozenset[str] = frozenset()
        """Owners whose lock or lease holds."""

    def copy(self) -> Self:
        """Another one with the same content."""
        other = type(self)()
        for name, held in vars(self).items():
            setattr(other, name, dict(held) if isinstance(held, dict) else held)
        return other

    # --- changes -----------------------------------------------------------------

    def after(self, writes: Sequence[Write]) -> Self:
        """What it is once the writes are applied."""
        model = self.copy()
        for write in writes:
            model._apply(write)
        return model

    def _apply(self, write: Write) -> None:
        match write:
            case RegisterProject(project=project):
                known = self.projects.get(project.project_id, project)
                self.projects[project.project_id] = replace(project, created_at=known.created_at)
            case CreateSession(session=session):
                if session.session_id not in self.sessions:
                    self._create(session)
            case UpdateSession():
                self._update(write)
            case BeginTurn():
                self._begin(write)
            case RecordToolCall(call=call, accesses=accesses):
                held = self.calls.get(call.tool_call_id)
                if not (held and held.result and not call.result):
                    self.calls[call.tool_call_id] = call
                    self.accesses[call.tool_call_id] = accesses
            case RecordAnswer():
                turn = self.turns[write.turn_id]
                if turn.status == "running":
                    answer = clean(write.assistant_message)
                    self.turns[write.turn_id] = replace(turn, assistant_message=answer)
            case FinishTurn():
                if self.turns[write.turn_id].status != "completed":
                    self._finish(write)
            case AddSummary(summary=summary):
                self.summaries[summary.summary_id] = summary
            case _:
                self._learn(write)

    def _learn(self, write: Write) -> None:
        match write:
            case PutMemory():
                self._remember(write)
            case PutProfile():
                self._describe(write)
            case _ if type(write) in {each.put for each in OF_SESSIONS}:
                record = write.record
                self.of_sessions[type(record), record.session_id] = record
            case _:
                raise TypeError(f"the model knows no {type(write).__name__}")

    def _remember(self, write: PutMemory) -> None:
        memory = replace(write.memory, content=clean(write.memory.content))
        held = self.memories.get(memory.memory_id)
        if held and held.superseded_by:
            memory = replace(memory, superseded_by=held.superseded_by, valid_until=held.valid_until)
        self.memories[memory.memory_id] = memory
        for each in () if memory.superseded_by else write.supersedes:
            other = self.memories.get(each)
            if other and other is not memory and not other.superseded_by:
                self.memories[each] = replace(
                    other, superseded_by=memory.memory_id, valid_until=memory.created_at
                )

    def _describe(self, write: PutProfile) -> None:
        self.profile.pop(write.key, None)
        if write.value is not None:
            self.profile[write.key] = clean(write.value)
        self.profile_at = max(write.at, self.profile_at or write.at)

    def _create(self, session: Session) -> None:
        if session.parent_session_id is not None:
            shared = len(self.visible(session.parent_session_id))
            at_index = session.forked_at_index
            at_index = shared if at_index is None else max(0, min(at_index, shared))
            session = replace(session, forked_at_index=at_index)
        self.sessions[session.session_id] = replace(session, last_activity_at=session.started_at)
        self.own[session.session_id] = ()

    def _update(self, write: UpdateSession) -> None:
        given = {
            name: getattr(write, name)
            for name in ("title", "summary", "tags", "status")
            if getattr(write, name) is not None
        }
        session = self.sessions[write.session_id]
        updated_at = max(session.updated_at, write.at)
        self.sessions[write.session_id] = replace(session, **given, updated_at=updated_at)

    def _begin(self, write: BeginTurn) -> None:
        if turn := self.turns.get(write.turn_id):
            message = clean(write.user_message)
            if turn.status == "running" and len(message) > len(turn.user_message):
                self.turns[write.turn_id] = replace(turn, user_message=message)
            return
        self.turns[write.turn_id] = Turn(
            turn_id=write.turn_id,
            session_id=write.session_id,
            turn_index=len(self.visible(write.session_id)) + 1,
            user_message=clean(write.user_message),
            started_at=write.started_at,
            model=write.model,
            owner_id=write.owner_id,
        )
        self.own[write.session_id] += (write.turn_id,)
        self._active(write.session_id, write.started_at)

    def _finish(self, write: FinishTurn) -> None:
        turn = self.turns[write.turn_id]
        self.turns[write.turn_id] = replace(
            turn,
            status=write.status,
            assistant_message=clean(write.assistant_message),
            reasoning=write.reasoning,
            model=write.model or turn.model,
            usage=write.usage,
            finished_at=write.finished_at,
            owner_id=None,
        )
        self._active(write.session_id, write.finished_at)

    def _active(self, session_id: str, at: datetime) -> None:
        session = self.sessions[session_id]
        self.sessions[session_id] = replace(
            session,
            last_activity_at=max(session.last_activity_at, at),
            updated_at=max(session.updated_at, at),
        )

    def after_attaching(self, session_id: str, owner_id: str, at: datetime) -> Self:
        """A process has registered: what nobody runs any more is interrupted."""
        model = self.copy()
        model.attached |= {(owner_id, session_id)}
        model.live |= {owner_id}
        model.interrupt(lambda owner: owner not in model.live, at)
        return model

    def after_detaching(self, owner_id: str, at: datetime) -> Self:
        """A process has gone, and what it ran is interrupted."""
        model = self.copy()
        model.attached = frozenset(pair for pair in model.attached if pair[0] != owner_id)
        model.live -= {owner_id}
        model.interrupt(lambda owner: owner == owner_id, at)
        return model

    def after_ending(self) -> Self:
        """Once all processes have gone."""
        model = self.copy()
        model.attached = model.live = frozenset()
        return model

    def after_moving(self) -> Self:
        """As another store has it: who works on what is not moved, nor when nothing was said."""
        model = self.after_ending()
        if not model.profile:
            model.profile_at = None
        return model

    def interrupt(self, by: Callable[[str | None], bool], at: datetime) -> None:
        """End the running turns of such owners."""
        for turn in list(self.turns.values()):
            if turn.status == "running" and by(turn.owner_id):
                self.turns[turn.turn_id] = replace(
                    turn, status="interrupted", owner_id=None, finished_at=at
                )

    def after_deleting(self, session_id: str) -> Self:
        """Without a session and all that belongs to it alone."""
        model = self.copy()
        gone = set(model.own.pop(session_id))
        del model.sessions[session_id]
        model.turns = {key: turn for key, turn in model.turns.items() if key not in gone}
        model.calls = {key: call for key, call in model.calls.items() if call.turn_id not in gone}
        model.summaries = {
            key: each for key, each in model.summaries.items() if each.session_id != session_id
        }
        model.attached = frozenset(pair for pair in model.attached if pair[1] != session_id)
        for kind in OF_SESSIONS:
            model.of_sessions.pop((kind.record, session_id), None)
        model.unsay(session_id)
        return model

    def unsay(self, session_id: str) -> None:
        """What only this session said goes, and what superseded it takes its place, if any."""
        only = {
            key
            for key, each in self.memories.items()
            if {place.session_id for place in each.evidence} == {session_id}
        }

        def staying(memory_id: str | None) -> str | None:
            while memory_id in only:
                memory_id = self.memories[memory_id].superseded_by
            return memory_id

        left = {}
        for key in [each for each in self.memories if each not in only]:
            memory = self.memories[key]
            by = staying(memory.superseded_by)
            left[key] = replace(
                memory,
                superseded_by=by,
                valid_until=memory.valid_until if by else None,
                evidence=tuple(each for each in memory.evidence if each.session_id != session_id),
            )
        self.memories = left

    def after_forgetting(self, memory_id: str) -> Self:
        """Without a memory and what it took the place of."""
        model = self.copy()
        del model.memories[memory_id]
        for key, each in self.memories.items():
            if each.superseded_by == memory_id and key in model.memories:
                model = model.after_forgetting(key)
        return model

    # --- questions ---------------------------------------------------------------

    def visible(self, session_id: str) -> list[str]:
        """Ids of the turns that a reader of the session sees, in order."""
        session = self.sessions[session_id]
        shared: list[str] = []
        if session.parent_session_id is not None:
            shared = self.visible(session.parent_session_id)[: session.forked_at_index]
        return [*shared, *self.own[session_id]]

    def forks(self, session_id: str) -> list[str]:
        """Sessions that were forked from this one."""
        return [key for key, each in self.sessions.items() if each.parent_session_id == session_id]

    def in_use(self, session_id: str) -> bool:
        """Whether a living process is registered on the session."""
        return any(owner in self.live for owner, of in self.attached if of == session_id)

    def owners(self, session_id: str) -> list[str]:
        """The living ones that are registered on the session."""
        return sorted(
            owner for owner, of in self.attached if of == session_id and owner in self.live
        )

    def whole_turn(self, turn_id: str) -> Turn:
        """With its tool calls."""
        calls = [call for call in self.calls.values() if call.turn_id == turn_id]
        calls.sort(key=lambda call: call.order)
        return replace(self.turns[turn_id], tool_calls=tuple(calls))

    def everything(self) -> Seen:
        """What `everything` of a store with this content is."""
        ids = sorted(self.sessions)
        return {
            "sessions": [self._session(each) for each in ids],
            "turns": [[self.whole_turn(turn) for turn in self.visible(each)] for each in ids],
            "summaries": [self._summaries(each) for each in ids],
            "accesses": [self._accesses(each) for each in ids],
            "raw": [self._raw_chars(each) for each in ids],
            "projects": [self.projects[key] for key in sorted(self.projects)],
            "memories": sorted(
                self.memories.values(),
                key=lambda each: (each.created_at, each.memory_id),
                reverse=True,
            ),
            "profile": Profile(values=self.profile, updated_at=self.profile_at),
            "counts": self.counts(),
            **{
                kind.table: [
                    self.of_sessions[kind.record, each]
                    for each in ids
                    if (kind.record, each) in self.of_sessions
                ]
                for kind in OF_SESSIONS
            },
        }

    def counts(self) -> dict[str, int]:
        """Records by kind, files too."""
        held = (
            self.projects,
            self.sessions,
            self.turns,
            self.calls,
            self.summaries,
            self.memories,
        )
        kinds = ("projects", "sessions", "turns", "tool_calls", "summaries", "memories")
        counts: dict[str, int] = {kind: len(of) for kind, of in zip(kinds, held, strict=True)}
        files = set()
        for call in self.calls.values():
            session = self.sessions[self.turns[call.turn_id].session_id]
            for access in self.accesses[call.tool_call_id]:
                files.add((session.project_id, access.path))
        return counts | {"files": len(files), "scopes": 0}

    def _session(self, session_id: str) -> Session:
        turns = [self.turns[turn] for turn in self.visible(session_id)]
        session = self.sessions[session_id]
        asked = [
            self.turns[each].user_message
            for each in self.visible(session_id)
            if self.turns[each].session_id == session_id
            and not self.whole_turn(each).is_own_command
        ]
        return replace(
            session,
            first_message=next(iter(asked), None) if session.title == DEFAULT_TITLE else None,
            turn_count=len(turns),
            message_count=2 * sum(turn.status == "completed" for turn in turns),
            last_message=turns[-1].user_message if turns else None,
        )

    def _summaries(self, session_id: str) -> list[Summary]:
        found = [each for each in self.summaries.values() if each.session_id == session_id]
        return sorted(found, key=lambda each: (each.created_at, each.summary_id), reverse=True)

    def _accesses(self, session_id: str) -> list[FileAccess]:
        return [
            replace(access, turn_index=self.turns[turn_id].turn_index, order=call.order)
            for turn_id in reversed(self.visible(session_id))
            for call in reversed(self.whole_turn(turn_id).tool_calls)
            for access in sorted(self.accesses[call.tool_call_id], key=lambda each: each.path)
        ]

    def _raw_chars(self, session_id: str) -> int:
        covered = {
            turn for each in self.summaries.values() if each.level == 1 for turn in each.covers
        }
        turns = [self.turns[turn] for turn in self.visible(session_id) if turn not in covered]
        return sum(turn.char_count for turn in turns if turn.status == "completed")

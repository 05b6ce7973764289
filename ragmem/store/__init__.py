"""The Store protocol: what a memory's storage does, and what every store promises.

Promises, checked by `tests/store/test_contract*.py` on each implementation:

- `apply` is one transaction: all of the writes or none; when it returns, they
  survive kill -9.
- Every write is idempotent: applied twice (a retry, a replay), the effect is
  that of once. `BeginTurn` again returns the index it got the first time; a message that is
  longer takes the place of the one before, while the turn runs.
- Turn indexes of a session are 1, 2, 3 … without gaps or duplicates, whatever
  number of processes write it at once.
- Text rows, links and derived fields (`turn_count`, `last_message` …) change in
  the same transaction as their source.
- A store is opened for an owner, the person whose home it is. What is written without one is
  theirs; memories about a person and the profile are seen by their owner alone. What stood
  without one when the store came to know owners belongs to who opened it then. Opened for
  nobody, as tools do, a store shows all.
- Nothing is deleted, except by `Archive.delete_session` and `forget_memories`.
- Ids that do not exist raise `SessionNotFound`; a store that can't be reached
  raises `StoreUnavailable` within `Config.store.timeout_s`, never later.

Of recall: stores find and score candidates; ranking, thresholds, embedding and summarising live
above them.

- A turn's row in the text index is written in the transaction that finishes the turn, a
  summary's in that which adds it, from `ragmem.terms`; what is deleted leaves the index too.
- Vectors are compared only with vectors of the same embedder; `similarity` is the raw cosine.
- What is to be done is derived from what is stored: a crash loses no work, and a lease
  keeps two processes from doing the same at once.

Of memories: stores keep, filter and link them; what is like what, and what takes whose place, is
decided above them.

- A memory, its evidence and what it supersedes are written in one transaction.
- Memories that were superseded stay, until they are forgotten; none goes by its age alone.
- In the graph a memory hangs on its turns (REMEMBERS) and on what it took the place of
  (SUPERSEDES).

Of code: the index that is searched is a file of this machine (`ragmem.index`), made anew at any
time; what can't be made anew is here: the identity of scopes, and what was done with them.

- A file's scopes are replaced in one transaction, a turn's references too.
- A scope that turns refer to stays when it leaves its file, and is found again by its id.
- In the graph a File DEFINES its Scopes and IMPORTS Files, a turn REFERENCES_CODE {how} a Scope
  and has ACCESSED a File.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ragmem.config import Config, Paths
from ragmem.errors import StoreRefused, StoreUnavailable, UsageError
from ragmem.files import replace_private, write_new_private
from ragmem.ids import new_id
from ragmem.records import (
    MEMORY_LEVEL,
    REFERENCE_HOWS,
    Attempts,
    Candidate,
    CodeReference,
    CodeStore,
    EmbedderMark,
    FileAccess,
    Finding,
    MemoryRecord,
    Owner,
    Pending,
    Profile,
    PutMemory,
    PutReferences,
    PutTurn,
    PutVectors,
    ReferenceHow,
    RegisterProject,
    SearchQuery,
    Session,
    Span,
    StoreInfo,
    Summary,
    ToolCall,
    Turn,
    Work,
    Write,
    changed,
)
from ragmem.redact import redact
from ragmem.text import clean, clip_bytes

AHEAD = timedelta(minutes=5)
"""A time that is further ahead is a wrong clock's: it is not what is newest."""


class RecallStore(Protocol):
    """Search by words and by meaning, and what is still to be done."""

    async def search(self, query: SearchQuery) -> list[Candidate]:
        """The best by text and the best by vector, and of turns their neighbours; in no order.

        A turn's neighbours are those before and after it in what its session sees.
        Of each interval half of `limit` come by text, by vector, and the newest, without
        neighbours: among its newest `LOOKED_THROUGH`, by text perhaps only among as many hits.
        Each record comes once, with both of its scores. Only completed turns are
        compared by vector; text finds finished ones of any status.
        """

    async def embedder(self) -> EmbedderMark | None:
        """The embedder of the store's vectors; None before there are any."""

    async def use_embedder(self, mark: EmbedderMark) -> None:
        """Take vectors of this one from now on: those of another are dropped, and wait to be made.

        Nothing changes when it is the one already.
        """

    async def pending(self, work: Work, *, limit: int) -> list[Pending]:
        """Work to be done, that of the latest activity first; what is leased is left out.

        `vectors`: completed turns, summaries, memories that are not superseded, and sessions with
        a summary, each without vectors of the store's embedder. A session's summary and a
        memory's content and subjects lose theirs when they change. Of a memory `session_id` is
        empty.
        `level1`: completed turns that no summary of level 1 covers, or only an extractive one.
        `roll_up`: sessions with at least two summaries of one level that none covers.
        `thread`: sessions with more messages than when their summary was made.
        `memories`: turns that were completed here (`FinishTurn`; not `PutTurn`) since the store
        knows memories, and were not looked through for them (`MarkExtracted`); oldest first.
        `references`: completed turns of a project whose files define scopes, of which it is not
        known what they have to do with those (`PutReferences`); newest first.
        """

    async def count_pending(self) -> dict[Work, int]:
        """How much of each there is, at most a thousand."""

    async def attempts(self, item: str = "", *, least: int = 1) -> list[Attempts]:
        """Answers that could not be used, at least so many: about an item, or any; latest last."""

    async def keep_attempts(self, attempts: Attempts) -> None:
        """Keep these in place of what was known of their item."""

    async def forget_attempts(self, session_id: str, item: str = "") -> None:
        """Let one item of a session be tried again, or all of them."""


class MemoryStore(Protocol):
    """Memories, the profile, people."""

    async def memories_revision(self) -> int:
        """Goes up when memories or their vectors change: while it stays, what was read holds.

        By one with each `apply` that changes some, so that who wrote knows whether others did.
        """

    async def find_memories(self, reference: str, *, limit: int = 20) -> list[MemoryRecord]:
        """Find those whose id, without its dashes, is or ends with the reference; newest first."""

    async def superseded_by(self, memory_id: str) -> list[MemoryRecord]:
        """The memories that this one superseded, what those had superseded …; newest first."""

    async def small_vectors(
        self, record_ids: Sequence[str], level: int, embedder: str
    ) -> dict[str, bytes]:
        """Vectors of memories (MEMORY_LEVEL) or sessions (SESSION_LEVEL), float32 little-endian.

        Of those that have one of this embedder, by id.
        """

    async def forget_memories(self, memory_ids: Sequence[str]) -> int:
        """Remove these and what they took the place of, with all that hangs on them; how many."""

    async def profile(self) -> Profile:
        """The person's; empty before anything was said."""


class Store(RecallStore, MemoryStore, CodeStore, Protocol):
    """Conversations, and with the others all that a memory asks; see the module's text."""

    async def store_id(self) -> str:
        """The store's own id, random, kept in it; empty where it has none and can't keep one."""

    async def find_sessions(
        self, reference: str, *, limit: int = 20, mine: bool = False
    ) -> list[Session]:
        """Find those whose id is, or ends with, the reference, or whose casefolded title equals it.

        With `mine` only those of the owner for whom the store was opened.
        """

    async def file_accesses(self, session_id: str, *, max_turn_chars: int) -> list[FileAccess]:
        """Accesses of the newest turns that sum to at most so many characters, newest first."""

    async def find_tool_call(self, session_id: str, reference: str) -> ToolCall | None:
        """The newest call of a session whose id, without its dashes, ends with the reference."""

    async def summaries(
        self,
        session_id: str,
        *,
        level: int | None = None,
        not_rolled_up: bool = False,
        limit: int | None = None,
    ) -> list[Summary]:
        """Newest first. `not_rolled_up`: those that no higher summary covers."""

    async def raw_history_chars(self, session_id: str) -> int:
        """Characters of completed turns that no level-1 summary covers; 0 for none."""

    async def attach(self, session_id: str, owner_id: str) -> list[str]:
        """Register this process on the session; returns the other live owners' ids.

        Turns left `running` by owners that live no more become `interrupted`.
        An owner lives while its process does (SQLite: a file lock, freed by the
        kernel) or while its lease holds (Neo4j: 30 s on the server's clock).
        """

    async def heartbeat(self, owner_id: str) -> None:
        """Renew the lease; to be called every 10 s (a no-op where the kernel does it)."""

    async def detach(self, owner_id: str) -> None:
        """Give up every session of this owner; its running turns become interrupted."""

    async def info(self) -> StoreInfo:
        """The store's kind, place and version, and how much is in it."""

    async def aclose(self) -> None:
        """Release everything; safe to call twice."""


class Archive(Store, Protocol):
    """A store whose whole content can be moved, looked through, and deleted by session.

    Moving goes by `spans`: a session's turns have the same indexes in every store, so that the
    same span of two stores holds the same turns.
    """

    async def spans(self) -> list[Span]:
        """Every session with all of its own turns."""

    async def own_turns(self, spans: Sequence[Span]) -> list[PutTurn]:
        """The turns in these spans, each with its tool calls and their accesses, in order."""

    async def owners(self) -> list[Owner]:
        """Everybody who has something here, or a name, by id."""

    async def profiles(self) -> list[Profile]:
        """The profile of every owner, whoever the store was opened for."""

    async def ids(self, kind: type[Summary | MemoryRecord]) -> list[str]:
        """The ids of all records of a kind, each after those that it covers or superseded."""

    async def code_projects(self) -> list[str]:
        """Every project whose files define scopes."""

    async def branches(self, session_id: str) -> list[Session]:
        """The sessions that were forked from this one, oldest first."""

    async def delete_session(self, session_id: str) -> dict[str, int]:
        """Remove a session and all that belongs to it alone; counts of what went, by kind.

        Memories whose only evidence was said in it go too; the others lose that evidence.

        StoreRefused while a fork shares its turns, or a process works in it.
        """

    async def check(self) -> list[Finding]:
        """What is broken of files, links, indexes of turns and counters; empty when all is well."""


_INT64 = 2**63 - 1


def stored(value: Any) -> Any:
    """The value as every store keeps it: clean text, integers of 64 bits, times in UTC.

    Within a record, a mapping, a list or a tuple each value is so; what is none of these stays.
    """
    match value:
        case str():
            return clean(value)
        case bool() | float() | bytes():
            return value
        case int():
            return max(-_INT64 - 1, min(_INT64, value))
        case datetime():
            return value.astimezone(UTC)
        case msgspec.Struct():
            return msgspec.structs.replace(
                value, **{name: stored(getattr(value, name)) for name in value.__struct_fields__}
            )
        case Mapping():
            return {key: stored(item) for key, item in value.items()}
        case tuple():
            return tuple(map(stored, value))
        case Sequence():
            return [stored(item) for item in value]
        case _:
            return value


def touches_memories(writes: Sequence[Write]) -> bool:
    """Whether what `memories` or their `small_vectors` answer may be another after these."""
    return any(
        isinstance(write, PutMemory)
        or (isinstance(write, PutVectors) and write.level == MEMORY_LEVEL)
        or (isinstance(write, RegisterProject) and write.project.joined_into is not None)
        for write in writes
    )


def misplaced(session_id: str, turn_index: int) -> StoreRefused:
    """The error for a turn whose place in the session is another turn's, or past a gap."""
    return StoreRefused(
        f"Turn {turn_index} of session {session_id} does not fit here: the session continued "
        "differently in this store.",
        hint="To keep both, export the session from the other store, and import it here with "
        "--as-new.",
    )


def turn_stays(put: Turn, status: str, said: int) -> bool:
    """Whether a stored turn stays as it is, since it went on after the one that is put was copied.

    `status`, and the characters of the person's message, `said`, are of the one that is there.
    """
    if put.status == "completed":
        return status == "completed"
    return status == "completed" or said > len(clean(put.user_message))


def of_another_turn(tool_call_id: str) -> StoreRefused:
    """The error for a tool call that can't be put in place: its id is taken."""
    return StoreRefused(f"The tool call {tool_call_id} belongs to another turn here.")


def anothers(memory_id: str) -> StoreRefused:
    """The error for a memory that can't be replaced: it is about another person."""
    return StoreRefused(f"Memory {memory_id} is another person's.")


def forked(session_id: str, fork_id: str) -> StoreRefused:
    """The error for a session that can't be deleted: a fork shares its turns."""
    return StoreRefused(
        f"Session {session_id} can't be deleted: {fork_id} was forked from it and shares its "
        "turns.",
        hint="Delete the fork first.",
    )


def in_use(session_id: str) -> StoreRefused:
    """The error for a session that can't be deleted: some process works in it."""
    return StoreRefused(
        f"Session {session_id} can't be deleted: a process is using it.",
        hint="Close it there first.",
    )


def those_given(*conditions: tuple[object, str]) -> str:
    """The conditions beside which a value is given, joined with AND; TRUE where there are none."""
    return " AND ".join(condition for given, condition in conditions if given) or "TRUE"


def _strength(reference: CodeReference) -> tuple[int, str]:
    return REFERENCE_HOWS.index(reference.how), reference.scope_id


def strongest(references: Iterable[CodeReference]) -> dict[str, ReferenceHow]:
    """How a turn has to do with each scope, by the scope's id."""
    found: dict[str, ReferenceHow] = {}
    for each in sorted(references, key=_strength):
        found.setdefault(clean(each.scope_id), each.how)
    return found


def references_of(found: Iterable[tuple[str, str, ReferenceHow]]) -> list[PutReferences]:
    """What turns have to do with code, the strongest first; by ids of turns and of scopes."""
    held: dict[str, list[CodeReference]] = {}
    for turn_id, scope_id, how in found:
        held.setdefault(turn_id, []).append(CodeReference(scope_id=scope_id, how=how))
    return [
        PutReferences(turn_id=turn_id, references=tuple(sorted(references, key=_strength)))
        for turn_id, references in held.items()
    ]


def oldest_first(pairs: Sequence[tuple[str, str | None]]) -> list[str]:
    """Return the ids of memories, each after those that it took the place of.

    `pairs` are ids with those of what took their place, if anything did. Else the order is that
    which is given; a circle is cut where it began.
    """
    olds: dict[str, list[str]] = {}
    for memory_id, by in pairs:
        if by is not None:
            olds.setdefault(by, []).append(memory_id)
    done: dict[str, None] = {}
    begun: set[str] = set()
    for first, _ in pairs:
        waiting = [first]
        while waiting:
            memory_id = waiting[-1]
            before = [] if memory_id in begun else olds.get(memory_id, [])
            begun.add(memory_id)
            waiting += [each for each in reversed(before) if each not in begun]
            if waiting[-1] == memory_id:
                done.setdefault(waiting.pop())
    return list(done)


TURN_BYTES = 8 << 20
_FOR_THE_END = 1 << 20
"""Of them calls leave so much to the answer and what it was reasoned with."""
_SHARE = 8
"""A call takes at most one part in so many of what calls have left: a late one has room too."""


def fitted(turn: Turn) -> Turn:
    """A turn that was recorded elsewhere, within the bound."""
    if sum(map(_bytes, _texts(turn))) <= TURN_BYTES:
        return turn
    room = Room()
    said = room.said(turn.user_message)
    calls = tuple(room.call(call) for call in turn.tool_calls)
    answer, thoughts = room.end(turn.assistant_message, turn.reasoning or "")
    return msgspec.structs.replace(
        turn,
        user_message=said,
        tool_calls=calls,
        assistant_message=answer,
        reasoning=thoughts or None,
    )


def _texts(turn: Turn) -> Iterator[str]:
    yield from (turn.user_message, turn.assistant_message, turn.reasoning or "")
    for call in turn.tool_calls:
        yield from (call.arguments, call.result, call.preamble, call.error or "")


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class Room:
    """What one turn has left; of a text with more the start and the end are kept, with a mark."""

    def __init__(self, most: int = TURN_BYTES) -> None:
        self._left = most
        self._end = most * _FOR_THE_END // TURN_BYTES

    def said(self, text: str) -> str:
        """The person's message, cut to at most half of the room."""
        return self._taken(_cut(text, self._left // 2))

    def call(self, call: ToolCall) -> ToolCall:
        """A call that has ended."""
        return msgspec.structs.replace(
            call,
            arguments=self.arguments(call.arguments),
            preamble=self.words(call.preamble),
            result=self.result(call.result),
            error=call.error and self.words(call.error),
        )

    def arguments(self, text: str) -> str:
        """The arguments of a call, cut or not: a JSON object."""
        room = self._for_a_call
        return self._taken(text if _fits(text, room) else _cut_value({"cut": text}, "cut", room))

    def result(self, text: str) -> str:
        """The result of a call with its text cut; the other fields of the JSON object stay."""
        room = self._for_a_call
        if _fits(text, room):
            return self._taken(text)
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict) or not isinstance(told.get("text"), str):
            return self._taken(_cut(text, room))
        if not _fits(json.dumps({**told, "text": ""}), room):
            told = {"text": told["text"]}
        return self._taken(_cut_value(told, "text", room))

    def words(self, text: str) -> str:
        """The other texts of a call, cut: the words before it, its error."""
        return self._taken(_cut(text, self._for_a_call))

    def so_far(self, answer: str) -> str:
        """The part of an answer that has come, cut; it takes no room: the whole answer will."""
        return _cut(answer, self._left)

    def end(self, answer: str, reasoning: str) -> tuple[str, str]:
        """The answer and the reasoning, cut to the room that is left: the answer comes first."""
        answer = self._taken(_cut(answer, self._left))
        return answer, self._taken(_cut(reasoning, self._left))

    @property
    def _for_a_call(self) -> int:
        return max(0, self._left - self._end) // _SHARE

    def _taken(self, text: str) -> str:
        self._left -= min(self._left, _bytes(text))
        return text


def _fits(text: str, room: int) -> bool:
    return len(text) <= room and _bytes(text) <= room


def _cut(text: str, room: int) -> str:
    """The text without secrets, then cut: half of a secret would not be recognised."""
    return text if _fits(text, room) else clip_bytes(redact(text), room)


def _cut_value(values: dict[str, str], name: str, room: int) -> str:
    """As JSON within the room, as far as cutting one value does it: escapes take room too."""
    text, keep = redact(values[name]), room
    while True:
        found = json.dumps({**values, name: clip_bytes(text, keep)}, ensure_ascii=False)
        if keep < _SHARE or _fits(found, room):
            return found
        keep = keep * 3 // 4


# --- opening: here alone the classes are named ---------------------------------------------

KINDS = ("sqlite", "neo4j")
_PATIENCE_S = 120.0
"""What a person waits for by command may take longer than what a prompt waits for."""
_IDS = re.compile(r"[0-9A-Za-z-]{1,64}")


async def open_archive(
    kind: str,
    config: Config,
    paths: Paths,
    environ: Mapping[str, str],
    *,
    existing: bool = False,
    fills: bool = False,
    say: Callable[[str], None] | None = None,
) -> Archive:
    """The store of that kind; UsageError if it has to be there already and is not.

    StoreDamaged for a graph that is being repaired, but to the repair, which `fills` it.
    `say` is told of what the person has to wait for.
    """
    timeout_s = max(_PATIENCE_S, config.store.timeout_s)
    if kind == "neo4j":
        from ragmem.store.neo4j import Neo4jStore
        from ragmem.store.neo4j_server import LocalNeo4j

        connection = LocalNeo4j(paths, config, environ).connection()
        return await Neo4jStore.open(
            connection,
            timeout_s=timeout_s,
            say=say,
            owner=home_owner(paths),
            everyone=True,
            fills=fills,
        )
    from ragmem.store.sqlite import SQLiteStore, schema

    # One that was set up and is gone is an error of its own.
    if existing and not (paths.database.exists() or schema.marker(paths.database).exists()):
        raise UsageError(f"There is no SQLite memory at {paths.database}.")
    return await SQLiteStore.open(
        paths.database,
        locks_dir=paths.locks_dir,
        timeout_s=timeout_s,
        owner=owner_of_file(paths),
        everyone=True,
    )


async def open_store(
    config: Config,
    paths: Paths,
    environ: Mapping[str, str],
    *,
    database: Path,
    locks_dir: Path,
    say: Callable[[str], None],
    existing: bool = False,
    brief: bool = False,
) -> tuple[Store, str]:
    """The store of the settings, for a prompt that waits; and what the person should be told.

    `database` and `locks_dir` are SQLite's; `say` is told of what the person has to wait for. One
    that is `existing` is not made: StoreDamaged where there is no database any more.
    """
    timeout_s = config.store.timeout_s
    if config.store.kind == "neo4j":
        from ragmem.store.neo4j import Neo4jStore
        from ragmem.store.neo4j_server import LocalNeo4j

        connection = LocalNeo4j(paths, config, environ).connection()
        owner = home_owner(paths)
        opened = await Neo4jStore.open(
            connection, timeout_s=timeout_s, say=say, owner=owner, brief=brief
        )
        return opened, ""
    from ragmem.store.sqlite import SQLiteStore, schema

    if existing:
        schema.inode_of(database)
    # The file is the person's alone: what a backup from another home of theirs has brought is, too.
    owner = owner_of_file(paths)
    store = await SQLiteStore.open(
        database, locks_dir=locks_dir, timeout_s=timeout_s, owner=owner, everyone=True
    )
    return store, store.notice


# --- whose it is ------------------------------------------------------------------------


def owned(writes: Sequence[Write], owner: str) -> list[Write]:
    """The writes, each that says nothing of it being this owner's."""
    return [
        changed(write, owner=owner)
        if owner and getattr(write.record, "owner", None) == ""
        else write
        for write in writes
    ]


def home_owner(paths: Paths) -> str:
    """Id of the person whose home it is, made up when it is asked for first.

    Of two processes that do so at once the one that is first decides. StoreUnavailable where it
    can't be known: to a store that is opened for nobody everybody's memory would be shown.
    """
    file = paths.owner_file
    try:
        if not file.exists():
            with suppress(FileExistsError):
                write_new_private(file, f"{new_id()}\n".encode())
        found = file.read_text("utf-8", "replace").strip()
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreUnavailable(
            f"The owner of this home can't be stored in {file}: {why}."
        ) from None
    if not _IDS.fullmatch(found):
        raise StoreUnavailable(
            f"The owner of this home can't be read from {file}: it contains no id.",
            hint="`ragmem memory owner --take ID` sets it again.",
        )
    return found


def owner_of_file(paths: Paths) -> str:
    """The home's owner; nobody where that can't be kept: a database says better what is wrong."""
    try:
        return home_owner(paths)
    except StoreUnavailable:
        return ""


def take_owner(paths: Paths, owner: str) -> None:
    """Make this home that person's too, as another one of theirs is."""
    replace_private(paths.owner_file, f"{owner}\n".encode(), sync=True)

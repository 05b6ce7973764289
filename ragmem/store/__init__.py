"""The Store protocol: the storage of a memory, and what every implementation guarantees.

Guarantees, checked by `tests/store/test_contract*.py` on each implementation:

- `apply` is one transaction: all of the writes or none; once it returns, they survive kill -9.
- Every write is idempotent: applied twice (a retry, a replay), it has the effect of once. A
  repeated `BeginTurn` returns the index assigned the first time; while the turn runs, a longer
  message replaces the earlier one.
- Turn indexes of a session are 1, 2, 3 … without gaps or duplicates, however many processes write
  to it at once.
- Text rows, links and derived fields (`turn_count`, `last_message` …) change in the same
  transaction as their source.
- A store is opened for an owner: the user whose home directory it serves. Records written without
  an owner get this one; memories about a user and the profile are visible to their owner alone.
  Records from before stores knew owners belong to the first owner who opened the store since.
  Opened without an owner, as tools do, a store shows everything.
- Nothing is deleted, except by `Archive.delete_session` and `forget_memories`.
- Unknown ids raise `SessionNotFound`; a store that can't be reached raises `StoreUnavailable`
  within `Config.store.timeout_s`, never later.

Recall: stores find and score candidates; ranking, embedding and summarizing are done above.

- A turn's row in the text index is written in the transaction that finishes the turn, a summary's
  in the one that adds it, from `ragmem.terms`; deleting a record deletes its row too.
- Vectors are compared only with vectors of the same embedder; `similarity` is the raw cosine.
- Pending work is derived from what is stored, so that a crash loses none, and a lease keeps two
  processes from doing the same work at once.

Memories: stores keep, filter and link them; which memories are similar, and which one supersedes
another, is decided above them.

- A memory, its evidence and what it supersedes are written in one transaction.
- Superseded memories stay until they are forgotten; no memory is removed for its age alone.
- In the graph a memory is linked to its turns (REMEMBERS) and to those it superseded (SUPERSEDES).

Code: the searchable index is a local file (`ragmem.index`) that can be rebuilt at any time; stores
keep what can't be rebuilt: the identity of scopes, and what turns did with them.

- A file's scopes are replaced in one transaction, and so are a turn's references.
- A scope that turns refer to stays when it leaves its file, and is found again by its id.
- In the graph a File DEFINES its Scopes and IMPORTS Files, a turn REFERENCES_CODE {how} a Scope and
  has ACCESSED a File.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from ragmem.config import Config, Paths
from ragmem.errors import StoreRefused, StoreUnavailable, UsageError
from ragmem.files import replace_private, write_new_private
from ragmem.ids import new_id
from ragmem.records import (
    MEMORY_LEVEL,
    REFERENCE_HOWS,
    AnyRecord,
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

T = TypeVar("T")

MOST_FOUND = 20
AHEAD = timedelta(minutes=5)
"""A time further in the future comes from a wrong clock, and does not count as the newest."""


class Store(CodeStore, Protocol):
    """Conversations, and everything else that a memory needs; see the module's docstring."""

    async def store_id(self) -> str:
        """Return the store's own random id; empty where it has none and can't keep one."""

    async def find_sessions(self, reference: str, *, mine: bool = False) -> list[Session]:
        """Find the newest `MOST_FOUND` sessions by id, the end of it, or their casefolded title.

        With `mine`, only sessions of the owner that the store was opened for.
        """

    async def file_accesses(self, session_id: str, *, max_turn_chars: int) -> list[FileAccess]:
        """Return file accesses of the newest turns, up to this many characters; newest first."""

    async def find_tool_call(self, session_id: str, reference: str) -> ToolCall | None:
        """Return the newest call of a session whose id, without dashes, ends with the reference."""

    async def summaries(
        self,
        session_id: str,
        *,
        level: int | None = None,
        not_rolled_up: bool = False,
        limit: int | None = None,
    ) -> list[Summary]:
        """Return summaries, newest first; with `not_rolled_up`, those that no higher one covers."""

    async def raw_history_chars(self, session_id: str) -> int:
        """Count the characters of completed turns that no level-1 summary covers."""

    async def attach(self, session_id: str, owner_id: str) -> list[str]:
        """Register this process on the session; return the other live owners' ids.

        Turns left `running` by owners that are no longer alive become `interrupted`. An owner is
        alive while its process is (SQLite: a file lock, freed by the kernel) or while its lease
        holds (Neo4j: 30 s on the server's clock).
        """

    async def heartbeat(self, owner_id: str) -> None:
        """Renew the lease; to be called every 10 s (a no-op where the kernel does it)."""

    async def detach(self, owner_id: str) -> None:
        """Give up every session of this owner; its running turns become interrupted."""

    async def info(self) -> StoreInfo:
        """Return the store's kind, location, version and counts."""

    async def aclose(self) -> None:
        """Release everything; safe to call twice."""

    # --- search by words and by meaning, and the work that is still to be done --------

    async def search(self, query: SearchQuery) -> list[Candidate]:
        """Return the best by text, the best by vector, and neighbours of turns, unordered.

        A turn's neighbours are the turns before and after it, as its session sees them. Each
        interval adds half of `limit` by text, half by vector, and half as the newest, without
        neighbours: of its newest `LOOKED_THROUGH` turns, where the text search may consider only
        that many hits. Each record comes once, with both of its scores. Only completed turns are
        compared by vector; text finds finished turns of any status.
        """

    async def embedder(self) -> EmbedderMark | None:
        """Return the embedder of the store's vectors; None before there are any."""

    async def use_embedder(self, mark: EmbedderMark) -> None:
        """Accept vectors of this embedder from now on; drop those of another, to be made again.

        Changes nothing when it already is the store's embedder.
        """

    async def pending(self, work: Work, *, limit: int) -> list[Pending]:
        """Return work to be done, latest activity first, without what is leased.

        `vectors`: completed turns, summaries, memories that are not superseded, and sessions with a
        summary, each without vectors of the store's embedder. Vectors of a session or a memory are
        dropped when the session's summary or the memory's content or subjects change. `session_id`
        is empty for a memory.
        `level1`: completed turns that no summary of level 1 covers, or only an extractive one.
        `roll_up`: sessions with at least two summaries of one level that no higher one covers.
        `thread`: sessions with more messages than when their summary was made.
        `memories`: turns completed here (`FinishTurn`; not `PutTurn`) since the store knows
        memories, and not yet looked through for any (`MarkExtracted`); oldest first.
        `references`: completed turns of a project whose files define scopes, for which no
        `PutReferences` was applied; newest first.
        """

    async def count_pending(self) -> dict[Work, int]:
        """Count the pending work of each kind, up to a thousand."""

    async def attempts(self, item: str = "", *, least: int = 1) -> list[Attempts]:
        """Return failed attempts with at least this count, of an item or of all; latest last."""

    async def keep_attempts(self, attempts: Attempts) -> None:
        """Store these attempts, in place of earlier ones at their item."""

    async def forget_attempts(self, session_id: str, item: str = "") -> None:
        """Let one item of a session be tried again, or all of them."""

    # --- memories, the profile, owners -------------------------------------------------

    async def memories_revision(self) -> int:
        """Return a number that goes up by one with each `apply` that changes memories or vectors.

        So a writer can tell whether others have written too.
        """

    async def find_memories(self, reference: str) -> list[MemoryRecord]:
        """Find at most `MOST_FOUND` memories by the end of an id without dashes; newest first."""

    async def superseded_by(self, memory_id: str) -> list[MemoryRecord]:
        """Return all that this memory superseded, directly or through others; newest first."""

    async def small_vectors(
        self, record_ids: Sequence[str], level: int, embedder: str
    ) -> dict[str, bytes]:
        """Return vectors of memories (MEMORY_LEVEL) or sessions (SESSION_LEVEL), by id.

        Float32 little-endian; only of those that have a vector of this embedder.
        """

    async def forget_memories(
        self, memory_ids: Sequence[str], *, erase: bool = True
    ) -> dict[str, int]:
        """Delete these memories, what they superseded, and all their links; return counts by kind.

        With `erase`, nothing of them is left in files of the store on this disk; if that is
        impossible right now, the counts have `traces`.
        """

    async def profile(self) -> Profile:
        """Return the owner's profile; empty before anything was said."""


class Archive(Store, Protocol):
    """A store whose whole content can be moved, checked, and deleted by session.

    Moving goes by `spans`: a session's turns have the same indexes in every store, so the same span
    holds the same turns in two stores.
    """

    async def spans(self) -> list[Span]:
        """Return a span for every session, of all its own turns."""

    async def own_turns(self, spans: Sequence[Span]) -> list[PutTurn]:
        """Return the turns in these spans in order, each with its tool calls and file accesses."""

    async def owners(self) -> list[Owner]:
        """Return everybody who owns something here, or has a name, by id."""

    async def profiles(self) -> list[Profile]:
        """Return the profile of every owner, whoever the store was opened for."""

    async def ids(self, kind: type[Summary | MemoryRecord]) -> list[str]:
        """Return the ids of all records of a kind, each after those it covers or superseded."""

    async def code_projects(self) -> list[str]:
        """Return every project whose files define scopes."""

    async def branches(self, session_id: str) -> list[Session]:
        """Return the sessions forked from this one, oldest first."""

    async def delete_session(
        self, session_id: str, *, first: Callable[[dict[str, int]], None] = lambda _: None
    ) -> dict[str, int]:
        """Delete a session and all that belongs to it alone; return counts of the deleted, by kind.

        Memories whose only evidence is in it are deleted too; the others lose that evidence.
        `first` is called with the counts before any of this takes effect; if it raises, none does.

        Raises StoreRefused while a fork shares its turns, or a process works in it.
        """

    async def check(self) -> list[Finding]:
        """Find broken files, links, turn indexes and counters; empty when all is well."""


_INT64 = 2**63 - 1


def stored(value: Any) -> Any:
    """Return the value as every store keeps it: clean text, 64-bit integers, times in UTC.

    Also within a record, a mapping, a list or a tuple; any other value is returned as is.
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
    """Whether these writes can change the result of `memories`, or `small_vectors` of them."""
    return any(
        isinstance(write, PutMemory)
        or (isinstance(write, PutVectors) and write.level == MEMORY_LEVEL)
        or (isinstance(write, RegisterProject) and write.project.joined_into is not None)
        for write in writes
    )


def misplaced(session_id: str, turn_index: int) -> StoreRefused:
    """Return the error for a turn whose index is taken by another turn, or past a gap."""
    return StoreRefused(
        f"Turn {turn_index} of session {session_id} does not fit here: the session continued "
        "differently in this store.",
        hint="To keep both, export the session from the other store, and import it here with "
        "--as-new.",
    )


def turn_stays(put: Turn, status: str, said: int) -> bool:
    """Whether a stored turn is kept because it went on after `put` was copied.

    `status` and `said`, the length of its user message in characters, are the stored turn's.
    """
    if put.status == "completed":
        return status == "completed"
    return status == "completed" or said > len(clean(put.user_message))


def put_turn(
    turn: Turn, accesses: Mapping[str, Sequence[FileAccess]], *, to_extract: bool
) -> PutTurn:
    """Return the write of a stored turn, with the accesses of its own calls among these."""
    calls = [call.tool_call_id for call in turn.tool_calls if call.tool_call_id in accesses]
    its = {each: tuple(accesses[each]) for each in calls}
    return PutTurn(turn=turn, accesses=its, to_extract=to_extract)


def of_another_turn(tool_call_id: str) -> StoreRefused:
    """Return the error for a tool call whose id is taken by a call of another turn."""
    return StoreRefused(f"The tool call {tool_call_id} belongs to another turn here.")


def anothers(memory_id: str) -> StoreRefused:
    """Return the error for replacing a memory about another person."""
    return StoreRefused(f"Memory {memory_id} is another person's.")


def forked(session_id: str, fork_id: str) -> StoreRefused:
    """Return the error for deleting a session whose turns a fork shares."""
    return StoreRefused(
        f"Session {session_id} can't be deleted: {fork_id} was forked from it and shares its "
        "turns.",
        hint="Delete the fork first.",
    )


def in_use(session_id: str) -> StoreRefused:
    """Return the error for deleting a session that a process works in."""
    return StoreRefused(
        f"Session {session_id} can't be deleted: a process is using it.",
        hint="Close it there first.",
    )


def in_order(found: Iterable[AnyRecord], ids: Iterable[str]) -> list[AnyRecord]:
    """Return the records with these ids that were found, in the order of the ids."""
    held = {each.uuid: each for each in found}
    return [held[each] for each in map(clean, ids) if each in held]


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in parts of this size, the last one perhaps smaller."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """Return the second items by the first, both in the order in which they come."""
    found: dict[str, list[T]] = {}
    for key, item in pairs:
        found.setdefault(key, []).append(item)
    return found


def join_conditions(*conditions: tuple[object, str]) -> str:
    """Join with AND the conditions that are paired with a true value; TRUE if there are none."""
    return " AND ".join(condition for given, condition in conditions if given) or "TRUE"


def _strength(reference: CodeReference) -> tuple[int, str]:
    return REFERENCE_HOWS.index(reference.how), reference.scope_id


def strongest(references: Iterable[CodeReference]) -> dict[str, ReferenceHow]:
    """Return the strongest reference to each scope, by the scope's id."""
    found: dict[str, ReferenceHow] = {}
    for each in sorted(references, key=_strength):
        found.setdefault(clean(each.scope_id), each.how)
    return found


def references_of(found: Iterable[tuple[str, str, ReferenceHow]]) -> list[PutReferences]:
    """Group (turn id, scope id, how) by turn, the strongest references first."""
    held = grouped(
        (turn_id, CodeReference(scope_id=scope_id, how=how)) for turn_id, scope_id, how in found
    )
    return [
        PutReferences(turn_id=turn_id, references=tuple(sorted(references, key=_strength)))
        for turn_id, references in held.items()
    ]


def oldest_first(pairs: Sequence[tuple[str, str | None]]) -> list[str]:
    """Return the ids of memories, each after those that it superseded.

    `pairs` are ids, each with the id of the memory that superseded it, or None. Otherwise the given
    order is kept; a cycle is cut where it was entered.
    """
    olds = grouped((by, memory_id) for memory_id, by in pairs if by is not None)
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
"""Bytes of `TURN_BYTES` that tool calls leave to the answer and its reasoning."""
_SHARE = 8
"""A call takes at most 1/8 of what calls have left, so that late ones have room too."""


def fitted(turn: Turn) -> Turn:
    """Cut a turn that was recorded elsewhere to `TURN_BYTES`."""
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
    """The bytes that one turn has left; a text is cut in its middle, with a mark."""

    def __init__(self, most: int = TURN_BYTES) -> None:
        self._left = most
        self._end = most * _FOR_THE_END // TURN_BYTES

    def said(self, text: str) -> str:
        """Cut the user's message to at most half of the room."""
        return self._taken(_cut(text, self._left // 2))

    def call(self, call: ToolCall) -> ToolCall:
        """Cut all texts of a finished call."""
        return msgspec.structs.replace(
            call,
            arguments=self.arguments(call.arguments),
            preamble=self.words(call.preamble),
            result=self.result(call.result),
            error=call.error and self.words(call.error),
        )

    def arguments(self, text: str) -> str:
        """Cut the arguments of a call; what is cut is still a JSON object."""
        room = self._for_a_call
        return self._taken(text if _fits(text, room) else _cut_value({"cut": text}, "cut", room))

    def result(self, text: str) -> str:
        """Cut the `text` of a call's result; the other fields of the JSON object stay."""
        room = self._for_a_call
        if _fits(text, room):
            return self._taken(text)
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict) or not isinstance(parsed.get("text"), str):
            return self._taken(_cut(text, room))
        if not _fits(json.dumps({**parsed, "text": ""}), room):
            parsed = {"text": parsed["text"]}
        return self._taken(_cut_value(parsed, "text", room))

    def words(self, text: str) -> str:
        """Cut another text of a call: the words before it, its error."""
        return self._taken(_cut(text, self._for_a_call))

    def so_far(self, answer: str) -> str:
        """Cut a partial answer without taking up room: the whole answer will."""
        return _cut(answer, self._left)

    def end(self, answer: str, reasoning: str) -> tuple[str, str]:
        """Cut the answer, and then the reasoning, to the room that is left."""
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
    """Cut the text after redacting secrets: half of a secret would not be recognized."""
    return text if _fits(text, room) else clip_bytes(redact(text), room)


def _cut_value(values: dict[str, str], name: str, room: int) -> str:
    """Encode as JSON within the room by cutting one value, as far as that helps."""
    text, keep = redact(values[name]), room
    while True:
        found = json.dumps({**values, name: clip_bytes(text, keep)}, ensure_ascii=False)
        if keep < _SHARE or _fits(found, room):
            return found
        keep = keep * 3 // 4


# --- opening: the only place that names the classes ---------------------------------------

KINDS = ("sqlite", "neo4j")
_PATIENCE_S = 120.0
"""A command that the user runs may wait longer than a prompt does."""
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
    """Open the store of that kind, for commands on it as a whole.

    Raises UsageError if it must be `existing` and is not, and StoreDamaged for a graph under
    repair, except for the repair itself (`fills`). `say` is told what to wait for.
    """
    timeout_s = max(_PATIENCE_S, config.store.timeout_s)
    if kind == "neo4j":
        return await _open_neo4j(
            config, paths, environ, timeout_s=timeout_s, say=say, everyone=True, fills=fills
        )
    from ragmem.store.sqlite import SQLiteStore, schema

    # A database that was set up and is gone raises an error of its own, in `open`.
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
    """Open the configured store for a prompt; return it and a notice for the user.

    `database` and `locks_dir` are SQLite's; `say` is told what to wait for. An `existing` one is
    not created: raises StoreDamaged if the database is gone.
    """
    timeout_s = config.store.timeout_s
    if config.store.kind == "neo4j":
        graph = await _open_neo4j(config, paths, environ, timeout_s=timeout_s, say=say, brief=brief)
        return graph, ""
    from ragmem.store.sqlite import SQLiteStore, schema

    if existing:
        schema.inode_of(database)
    # The file is the user's alone, and so is what a backup of another home of theirs has brought.
    owner = owner_of_file(paths)
    store = await SQLiteStore.open(
        database, locks_dir=locks_dir, timeout_s=timeout_s, owner=owner, everyone=True
    )
    return store, store.notice


async def _open_neo4j(
    config: Config, paths: Paths, environ: Mapping[str, str], **given: Any
) -> Archive:
    from ragmem.store.neo4j import Neo4jStore
    from ragmem.store.neo4j_server import LocalNeo4j

    connection = LocalNeo4j(paths, config, environ).connection()
    return await Neo4jStore.open(connection, owner=home_owner(paths), **given)


# --- owners ---------------------------------------------------------------------------


def owned(writes: Sequence[Write], owner: str) -> list[Write]:
    """Fill in this owner in each write whose record has an empty one."""
    return [
        changed(write, owner=owner)
        if owner and getattr(write.record, "owner", None) == ""
        else write
        for write in writes
    ]


def home_owner(paths: Paths) -> str:
    """Return the owner id of this home directory, created on first use.

    Of two processes that create it at once, the first wins. Raises StoreUnavailable if the id can't
    be read or kept: a store opened without an owner would show everybody's memory.
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
    """Return the home's owner, or "" where it can't be kept: opening the database will say why."""
    try:
        return home_owner(paths)
    except StoreUnavailable:
        return ""


def take_owner(paths: Paths, owner: str) -> None:
    """Make this home belong to that owner, as another home of theirs does."""
    replace_private(paths.owner_file, f"{owner}\n".encode(), sync=True)

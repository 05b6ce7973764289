"""Apply Writes to the tables; delete sessions and memories; join and split projects.

All of it runs inside a transaction of the caller's. Joining two projects gives the sessions of one
to the other. Their turns stay in the text index under the number of the project that they were
written under, and memories keep their project's id: queries for a project include all projects
joined to it. Splitting a project off gives back the sessions of its directory, with what was
indexed and learned from them while the two were joined.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ragmem.errors import SessionNotFound
from ragmem.failpoints import failpoint
from ragmem.records import (
    MEMORY_LEVEL,
    OF_SESSIONS,
    SESSION_LEVEL,
    AddSummary,
    BeginTurn,
    CreateSession,
    DropCodeFiles,
    FileAccess,
    FinishTurn,
    MarkExtracted,
    PutCodeFile,
    PutMemory,
    PutOwner,
    PutProfile,
    PutReferences,
    PutSession,
    PutTurn,
    PutVectors,
    RecordAnswer,
    RecordToolCall,
    RegisterProject,
    Session,
    ToolCall,
    UpdateSession,
    Usage,
    Write,
)
from ragmem.store import (
    anothers,
    forked,
    in_use,
    misplaced,
    of_another_turn,
    touches_memories,
    turn_stays,
)
from ragmem.store.sqlite import code, documents, work
from ragmem.store.sqlite.connection import Database, Row, columns, value
from ragmem.store.sqlite.read import (
    AMONG_IDS,
    SEEN,
    TABLES,
    branches,
    joined_into,
    need_session,
    no_session,
    root_of,
    with_older,
)


def apply(db: Database, writes: Sequence[Write]) -> dict[str, int]:
    """Apply the writes in order; return the index of each turn that begins."""
    indexes: dict[str, int] = {}
    for write in writes:
        if isinstance(write, BeginTurn):
            indexes[write.turn_id] = _begin_turn(db, write)
        else:
            _APPLY[type(write)](db, write)
    if touches_memories(writes):
        documents.memories_changed(db)
    return indexes


# --- sessions --------------------------------------------------------------


def _session_row(db: Database, session: Session) -> Row:
    """Return the row of a session without turns; SessionNotFound if its parent does not exist."""
    row = columns(session)
    if session.parent_session_id is not None:
        need_session(db, session.parent_session_id)
    del row["message_count"], row["first_message"], row["last_message"]
    row["project_id"] = root_of(db, row["project_id"])
    row["title_key"] = row["title"].casefold()
    row["turn_count"] = row["forked_at_index"] or 0
    return row


def _create_session(db: Database, write: CreateSession) -> None:
    row = _session_row(db, write.session)
    row["last_activity_at"] = row["started_at"]
    parent = row["parent_session_id"]
    count = db.get("SELECT turn_count FROM sessions WHERE session_id = :id", id=parent)
    if count is None:
        row["forked_at_index"] = None
    else:
        at = row["forked_at_index"]
        row["forked_at_index"] = max(0, count if at is None else min(at, count))
    row["turn_count"] = row["forked_at_index"] or 0
    db.put("sessions", row, "session_id", keep=tuple(row))
    documents.summary_written(db, row["session_id"], documents.summary_of(db, row["session_id"]))


def _put_session(db: Database, write: PutSession) -> None:
    """Put a session with its own times; of an existing one, keep what was changed later here."""
    row = _session_row(db, write.session)
    before = documents.summary_of(db, row["session_id"])
    held = db.get(
        "SELECT last_activity_at FROM sessions WHERE session_id = :id", id=row["session_id"]
    )
    row["last_activity_at"] = max(row["last_activity_at"], held or "")
    kept = ("started_at", "owner", "project_id", "turn_count")
    db.put(
        "sessions",
        row,
        "session_id",
        keep=(*kept, "parent_session_id", "forked_at_index"),
        where="WHERE excluded.updated_at >= updated_at",
    )
    documents.summary_written(db, row["session_id"], before)


def _update_session(db: Database, write: UpdateSession) -> None:
    row = columns(write)
    row["title_key"] = row["title"] and row["title"].casefold()
    before = documents.summary_of(db, row["session_id"])
    db.execute(
        """
        UPDATE sessions SET
            title = coalesce(:title, title),
            title_key = coalesce(:title_key, title_key),
            summary = coalesce(:summary, summary),
            summarized_count = coalesce(:summarized_count, summarized_count),
            tags = coalesce(:tags, tags),
            status = coalesce(:status, status),
            updated_at = max(updated_at, :at)
        WHERE session_id = :session_id
        """,
        row,
    )
    if not db.changes():
        raise no_session(write.session_id)
    documents.summary_written(db, row["session_id"], before)


# --- turns ------------------------------------------------------------------------------

_ACTIVITY = """
    last_activity_at = iif(last_activity_at > horizon(), :at, max(last_activity_at, :at)),
    updated_at = max(updated_at, :at)
"""
"""Assignments for activity in a session; a time past the horizon comes from a wrong clock."""


def _begin_turn(db: Database, write: BeginTurn) -> int:
    """Start a turn with the next index, or return its existing one and take a longer message."""
    row = columns(write)
    index: int | None = db.get("SELECT turn_index FROM turns WHERE turn_id = :id", id=write.turn_id)
    if index is not None:
        db.query(
            """
            UPDATE turns SET
                user_message = :message,
                char_count = length(:message) + length(assistant_message)
            WHERE turn_id = :id AND status = 'running' AND length(:message) > length(user_message)
            """,
            id=write.turn_id,
            message=write.user_message,
        )
        return index
    index = db.get(
        f"UPDATE sessions SET turn_count = turn_count + 1, {_ACTIVITY} WHERE session_id = :id"
        " RETURNING turn_count",
        id=write.session_id,
        at=write.started_at,
    )
    if index is None:
        raise no_session(write.session_id)
    row |= {"turn_index": index, "status": "running", "usage": value(Usage())}
    db.put("turns", row | {"char_count": len(row["user_message"])}, "turn_id")
    return index


def _record_tool_call(db: Database, write: RecordToolCall) -> None:
    status = _status_of_turn(db, write.call.turn_id, write.session_id)
    _write_tool_call(db, write.call, write.accesses)
    if status != "running":
        documents.turn_changed(db, write.call.turn_id)


def _write_tool_call(db: Database, call: ToolCall, accesses: Sequence[FileAccess]) -> None:
    """Write a call and its accesses; the caller must update the turn's text index."""
    row = columns(call)
    row["result_size_bytes"] = len(row["result"].encode())
    started = "WHERE excluded.result <> '' OR tool_calls.result = ''"  # a start replaces no finish
    db.put("tool_calls", row, "tool_call_id", keep=("turn_id",), where=started)
    for access in accesses:
        of_call = columns(access) | {"tool_call_id": row["tool_call_id"]}
        db.execute(
            """
            INSERT INTO file_accesses (tool_call_id, path, access_type, tool_name, accessed_at)
            VALUES (:tool_call_id, :path, :access_type, :tool_name, :accessed_at)
            ON CONFLICT DO NOTHING
            """,
            of_call,
        )


def _record_answer(db: Database, write: RecordAnswer) -> None:
    """Store the answer so far, unless the turn has ended."""
    if _status_of_turn(db, write.turn_id, write.session_id) == "running":
        db.execute(
            """
            UPDATE turns SET
                assistant_message = :assistant_message,
                char_count = length(user_message) + length(:assistant_message)
            WHERE turn_id = :turn_id
            """,
            columns(write),
        )


def _finish_turn(db: Database, write: FinishTurn) -> None:
    if _status_of_turn(db, write.turn_id, write.session_id) == "completed":
        return
    row = columns(write)
    db.execute(
        """
        UPDATE turns SET
            status = :status,
            assistant_message = :assistant_message,
            reasoning = :reasoning,
            model = coalesce(:model, model),
            usage = :usage,
            finished_at = :finished_at,
            owner_id = NULL,
            char_count = length(user_message) + :answer_chars
        WHERE turn_id = :turn_id
        """,
        row | {"answer_chars": len(row["assistant_message"])},
    )
    is_complete = write.status == "completed"
    db.query(
        f"UPDATE sessions SET completed_count = completed_count + :more, {_ACTIVITY}"
        " WHERE session_id = :id",
        id=write.session_id,
        more=is_complete,
        at=write.finished_at,
    )
    documents.turn_changed(db, row["turn_id"])
    if is_complete:
        _mark_due(db, "to_extract = 1, to_link = 1", row["turn_id"])


def _mark_due(db: Database, flags: str, turn_id: str) -> None:
    db.query(f"UPDATE documents SET {flags} WHERE record_id = :id AND level = 0", id=turn_id)


def _status_of_turn(db: Database, turn_id: str, session_id: str) -> str:
    of = "SELECT status FROM turns WHERE turn_id = :id AND session_id = :session_id"
    status: str | None = db.get(of, id=turn_id, session_id=session_id)
    if status is None:
        need_session(db, session_id)
        raise SessionNotFound(f"There is no turn {turn_id} in session {session_id}.")
    return status


def _put_turn(db: Database, write: PutTurn) -> None:
    row = columns(write.turn)
    held = _stored_turn(db, row)
    if held and turn_stays(write.turn, *held):
        return
    row["char_count"] = len(row["user_message"]) + len(row["assistant_message"])
    kept = ("session_id", "turn_index", "started_at")
    db.put("turns", row, "turn_id", keep=kept)
    is_complete = row["status"] == "completed"
    db.query(
        "UPDATE sessions SET turn_count = max(turn_count, :index),"
        " completed_count = completed_count + :more WHERE session_id = :id",
        id=row["session_id"],
        index=row["turn_index"],
        more=is_complete,
    )
    for call in write.turn.tool_calls:
        others = "SELECT turn_id FROM tool_calls WHERE tool_call_id = :id AND turn_id <> :turn_id"
        if db.get(others, id=call.tool_call_id, turn_id=row["turn_id"]) is not None:
            raise of_another_turn(call.tool_call_id)
        _write_tool_call(db, call, write.accesses.get(call.tool_call_id, ()))
    documents.turn_changed(db, row["turn_id"])
    if is_complete:
        flags = "to_extract = 1, to_link = 1" if write.to_extract else "to_link = 1"
        _mark_due(db, flags, row["turn_id"])


def _stored_turn(db: Database, turn: Row) -> tuple[str, int] | None:
    """Return the status and message length of the turn stored under this id, if any.

    Raises StoreRefused if the turn's index in its session is not free.
    """
    held = db.get(
        "SELECT session_id, turn_index, status, length(user_message) FROM turns"
        " WHERE turn_id = :id",
        id=turn["turn_id"],
    )
    if held is not None:
        if held[:2] != (turn["session_id"], turn["turn_index"]):
            raise misplaced(turn["session_id"], turn["turn_index"])
        return str(held[2]), int(held[3])
    last = db.get("SELECT turn_count FROM sessions WHERE session_id = :id", id=turn["session_id"])
    if last is None:
        raise no_session(turn["session_id"])
    if turn["turn_index"] != last + 1:
        raise misplaced(turn["session_id"], turn["turn_index"])
    return None


# --- summaries --------------------------------------------------------------------------


def _add_summary(db: Database, write: AddSummary) -> None:
    """Store a summary with its links; an extractive one never replaces a model's."""
    summary = write.summary
    row = columns(summary)
    need_session(db, summary.session_id)
    held = "SELECT extractive FROM summaries WHERE summary_id = :id"
    if db.get(held, id=row["summary_id"]) == 0 and summary.extractive:
        return
    del row["covers"]
    db.put("summaries", row, "summary_id", keep=("session_id", "level"))
    of, key = ("turns", "turn_id") if summary.level == 1 else ("summaries", "summary_id")
    for position, covered in enumerate(summary.covers):
        if db.get(f"SELECT 1 FROM {of} WHERE {key} = :id", id=covered) is None:
            raise SessionNotFound(
                f"Summary {summary.summary_id} covers {covered}, which is not among the {of}."
            )
        link = {"summary_id": row["summary_id"], "covered_id": value(covered)}
        key_of_link = "summary_id, covered_id"
        db.put(f"summarized_{of}", link | {"position": position}, key_of_link, keep=("position",))
    documents.summary_changed(db, summary)


# --- memories ----------------------------------------------------------------------------


def _put_memory(db: Database, write: PutMemory) -> None:
    """Write or replace a memory with its evidence, and mark those that it supersedes.

    Raises StoreRefused for one about another person.
    """
    row = columns(write.memory)
    memory_id = row["memory_id"]
    known = "SELECT project_id FROM projects WHERE project_id = :id"
    joined_from = db.get(known, id=row.pop("joined_from"))
    row["project_id"] = joined_from or row["project_id"]
    if not _may_change(db, memory_id):
        raise anothers(memory_id)
    held = db.get(
        "SELECT superseded_by, valid_until, owner, project_id, content, subjects FROM memories"
        " WHERE memory_id = :id",
        id=memory_id,
    )
    if held is not None:
        by, until, owner, project_id, *said = held
        row["owner"] = owner or row["owner"]
        if joined_from is None and root_of(db, project_id) == root_of(db, row["project_id"]):
            row["project_id"] = project_id
        if by is not None:
            row |= {"superseded_by": by, "valid_until": until}
        if said != [row["content"], row["subjects"]]:
            documents.remove_small_vector(db, MEMORY_LEVEL, memory_id)
    db.put("memories", row | {"to_embed": 0}, "memory_id")
    documents.mark_memory(db, memory_id)
    db.query("DELETE FROM evidence WHERE memory_id = :id", id=memory_id)
    for position, place in enumerate(write.memory.evidence):
        db.put(
            "evidence",
            {"memory_id": memory_id, "position": position} | columns(place),
            "memory_id, position",
        )
    if row["superseded_by"] is None:
        for other in map(value, write.supersedes):
            if other != memory_id and _may_change(db, other):
                db.query(
                    """
                    UPDATE memories SET superseded_by = :id, valid_until = :at, to_embed = 0
                    WHERE memory_id = :other AND superseded_by IS NULL
                    """,
                    id=memory_id,
                    at=row["created_at"],
                    other=other,
                )


def _may_change(db: Database, memory_id: object) -> bool:
    """Whether this owner may change the memory: it isn't about another person."""
    anothers = f"SELECT 1 FROM memories AS m WHERE m.memory_id = :id AND NOT {SEEN}"
    return db.get(anothers, id=memory_id, owner=db.access.sees) is None


def _put_profile(db: Database, write: PutProfile) -> None:
    row = columns(write)
    at = row.pop("at")
    if write.value is None:
        db.execute("DELETE FROM profile WHERE owner = :owner AND key = :key", row)
    else:
        db.put("profile", row, "owner, key")
    db.put(
        "profile_state",
        {"owner": row["owner"], "updated_at": at},
        "owner",
        where="WHERE excluded.updated_at > updated_at",
    )


def _put_owner(db: Database, write: PutOwner) -> None:
    """Set an owner's name, unless it was set later; a time to come is a wrong clock's."""
    earlier = "WHERE excluded.at >= owner_names.at OR owner_names.at > horizon()"
    db.put("owner_names", columns(write), "owner", where=earlier)


def _mark_extracted(db: Database, write: MarkExtracted) -> None:
    db.query(
        "UPDATE documents SET to_extract = 0 WHERE to_extract AND level = 0"
        f" AND record_id {AMONG_IDS}",
        ids=write.turn_ids,
    )


def _put_session_record(db: Database, write: Write) -> None:
    need_session(db, write.record.session_id)
    table, key = TABLES[type(write.record)]
    db.put(table, columns(write.record), key)


# --- deleting ---------------------------------------------------------------------------

_TURNS = "(SELECT turn_id FROM turns WHERE session_id = :id)"
_CALLS = f"(SELECT tool_call_id FROM tool_calls WHERE turn_id IN {_TURNS})"
_SUMMARIES = "(SELECT summary_id FROM summaries WHERE session_id = :id)"
_SUMMARIZED_OTHERS = f"""
    SELECT turn_id FROM summarized_turns JOIN turns ON turn_id = covered_id
    WHERE summary_id IN {_SUMMARIES} AND session_id <> :id
"""
# Referring rows are deleted before those that they refer to.
_OF_A_SESSION = (
    ("file_accesses", f"tool_call_id IN {_CALLS}"),
    ("tool_calls", f"turn_id IN {_TURNS}"),
    ("summarized_turns", f"summary_id IN {_SUMMARIES} OR covered_id IN {_TURNS}"),
    ("summarized_summaries", f"summary_id IN {_SUMMARIES} OR covered_id IN {_SUMMARIES}"),
    ("summaries", "session_id = :id"),
    ("turns", "session_id = :id"),
    *((each.table, "session_id = :id") for each in OF_SESSIONS),
    ("owners", "session_id = :id"),
    ("sessions", "session_id = :id"),
)


def delete_session(db: Database, session_id: str) -> dict[str, int]:
    """Delete a session and all that belongs to it alone; return counts of the deleted."""
    need_session(db, session_id)
    if forks := branches(db, session_id):
        raise forked(session_id, forks[0].session_id)
    owners = db.column("SELECT owner_id FROM owners WHERE session_id = :id", id=session_id)
    if any(map(db.access.locks.lives, owners)):
        raise in_use(session_id)
    others = db.column(_SUMMARIZED_OTHERS, id=session_id)
    work.forget_session(db, session_id)
    documents.remove_session(db, session_id)
    documents.remove_small_vector(db, SESSION_LEVEL, session_id)
    went = {"memories": _forget_memories_of(db, session_id)}
    code.forget_session(db, session_id)
    for table, condition in _OF_A_SESSION:
        failpoint("sqlite.delete")
        db.query(f"DELETE FROM {table} WHERE {condition}", id=session_id)
        went[table] = db.changes()
    for turn_id in others:
        documents.turn_changed(db, turn_id, keep_vectors=True)
    kinds = ("sessions", "turns", "tool_calls", "summaries", "memories")
    return {kind: went[kind] for kind in kinds}


# --- forgetting memories -------------------------------------------------------------------------


def forget_memories(db: Database, wanted: Iterable[str]) -> int:
    """Delete these memories and what they superseded; return how many."""
    own = [each for each in wanted if _may_change(db, each)]
    gone = [each for each in with_older(db, own) if _may_change(db, each)]
    _remove(db, gone)
    return len(gone)


def _forget_memories_of(db: Database, session_id: str) -> int:
    """Delete memories whose only evidence is in this session; return how many.

    What such a memory superseded is superseded by the memory's own successor from now on, and
    current again if there is none.
    """
    only = """
        SELECT memory_id FROM evidence WHERE session_id = :id
        EXCEPT SELECT memory_id FROM evidence WHERE session_id <> :id
    """
    gone = set(db.column(only, id=session_id))
    for memory_id in gone:
        by = _successor(db, memory_id, lambda each: each not in gone)
        olds = "SELECT memory_id FROM memories WHERE superseded_by = :id"
        for old in db.column(olds, id=memory_id):
            _set_successor(db, old, by)
    _remove(db, gone)
    db.query("DELETE FROM evidence WHERE session_id = :id", id=session_id)
    return len(gone)


def _successor(db: Database, by: str | None, matches: Callable[[str], bool]) -> str | None:
    """Return the first match among a memory and its successors; a cycle counts as their end."""
    seen: set[str] = set()
    while by is not None and by not in seen:
        if matches(by):
            return by
        seen.add(by)
        by = db.get("SELECT superseded_by FROM memories WHERE memory_id = :id", id=by)
    return None


def _set_successor(db: Database, memory_id: str, by: str | None) -> None:
    """Set the successor of a memory; with None it is current again."""
    db.query(
        "UPDATE memories SET superseded_by = :by,"
        " valid_until = iif(:by IS NULL, NULL, valid_until) WHERE memory_id = :id",
        id=memory_id,
        by=by,
    )
    documents.mark_memory(db, memory_id)


def _remove(db: Database, gone: Iterable[str]) -> None:
    for memory_id in gone:
        failpoint("sqlite.delete")
        documents.remove_small_vector(db, MEMORY_LEVEL, memory_id)
        db.query("DELETE FROM leases WHERE key = :key", key=f"vectors:{MEMORY_LEVEL}:{memory_id}")
        db.query("DELETE FROM evidence WHERE memory_id = :id", id=memory_id)
        db.query("DELETE FROM memories WHERE memory_id = :id", id=memory_id)
    documents.memories_changed(db)


_OWN_SESSIONS = """
    project_id = :root AND (
        coalesce(project_path, cwd) = (SELECT path FROM projects WHERE project_id = :id)
        OR session_id IN (
            SELECT session_id FROM documents
            WHERE number = (SELECT number FROM project_numbers WHERE project_id = :id)
        )
    )
"""
"""Sessions that a project takes along in a split: of its directory, or indexed under its number."""


def register_project(db: Database, write: RegisterProject) -> None:
    """Register a directory as a project; join it to another one, or split it off."""
    row = columns(write.project)
    into = row.pop("joined_into")
    db.put("projects", row, "project_id", keep=("created_at",))
    if into is None:
        return
    project_id: str = row["project_id"]
    held = joined_into(db, project_id)
    if into == project_id:
        if held is None or write.chosen:
            db.query("UPDATE projects SET joined_into = :id WHERE project_id = :id", id=project_id)
            if held not in (None, project_id):
                _split(db, project_id, held)
        return
    into = root_of(db, into)
    # Neither to itself, nor a second time: projects joined to it would be left behind.
    is_free = held is None or (write.chosen and held == project_id)
    if project_id == into or not is_free:
        return
    moved = {"id": project_id, "into": into}
    joined = "UPDATE projects SET joined_into = :into WHERE project_id = :id OR joined_into = :id"
    db.query(joined, **moved)
    db.query("UPDATE sessions SET project_id = :into WHERE project_id = :id", **moved)


def _split(db: Database, project_id: str, root: str) -> None:
    """Take a project's own sessions, memories and code out of the root that it was joined to."""
    moved = db.column(
        f"UPDATE sessions SET project_id = :id WHERE {_OWN_SESSIONS} RETURNING session_id",
        id=project_id,
        root=root,
    )
    for session_id in moved:
        failpoint("sqlite.split")
        documents.move_session(db, session_id)
    db.query(
        """
        UPDATE memories SET project_id = :id WHERE project_id = :root AND memory_id IN (
            SELECT memory_id FROM evidence AS e LEFT JOIN sessions AS s USING (session_id)
            GROUP BY memory_id HAVING min(coalesce(s.project_id, '') = :id)
        )
        """,
        id=project_id,
        root=root,
    )
    _split_memories(db, project_id)
    code.split_off(db, project_id)


def _split_memories(db: Database, project_id: str) -> None:
    """Replace successors across the split: a memory gets the next one on its own side, if any."""
    parted = """
        SELECT old.memory_id, old.project_id = :id, m.memory_id
        FROM memories AS old JOIN memories AS m ON m.memory_id = old.superseded_by
        WHERE (old.project_id = :id) <> (m.project_id = :id)
    """
    side = "SELECT coalesce(project_id = :project, :own) FROM memories WHERE memory_id = :id"
    for memory_id, own, by in db.tuples(parted, id=project_id):

        def is_same_side(other: str, own: int = own) -> bool:
            return bool(db.get(side, id=other, project=project_id, own=own) == own)

        other = _successor(db, by, is_same_side)
        _set_successor(db, memory_id, other if other != memory_id else None)


# `Any`: each function takes only the kind of write that is its key.
_APPLY: dict[type, Callable[[Database, Any], object]] = {
    RegisterProject: register_project,
    FinishTurn: _finish_turn,
    PutTurn: _put_turn,
    CreateSession: _create_session,
    UpdateSession: _update_session,
    RecordToolCall: _record_tool_call,
    RecordAnswer: _record_answer,
    AddSummary: _add_summary,
    PutVectors: documents.put_vectors,
    PutSession: _put_session,
    PutMemory: _put_memory,
    PutProfile: _put_profile,
    PutOwner: _put_owner,
    **{each.put: _put_session_record for each in OF_SESSIONS},
    MarkExtracted: _mark_extracted,
    PutCodeFile: code.put_file,
    DropCodeFiles: code.drop_files,
    PutReferences: code.put_references,
}

"""Records and writes for the store's tests, short to call and whole."""

from datetime import UTC, datetime, timedelta
from typing import Any

from ragmem.ids import new_id
from ragmem.records import (
    AddSummary,
    BeginTurn,
    CreateSession,
    Evidence,
    FileAccess,
    FinishTurn,
    Insight,
    MemoryRecord,
    Project,
    PutInsight,
    PutMemory,
    PutProfile,
    RecordAnswer,
    RecordToolCall,
    RegisterProject,
    Session,
    Summary,
    ToolCall,
    Turn,
    TurnStatus,
    UpdateSession,
    Usage,
    Write,
)

START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def at(minutes: float) -> datetime:
    """So many minutes after the start."""
    return START + timedelta(minutes=minutes)


def project(
    name: str, into: str | None = None, *, chosen: bool = False, **more: Any
) -> RegisterProject:
    """A project is known; joined to another, or, to itself, split."""
    given = {"path": f"/home/ana/{name}", "created_at": START, "joined_into": into}
    return RegisterProject(project=Project(project_id=name, **given | more), chosen=chosen)


def a_session(session_id: str = "", **changes: object) -> Session:
    """A session as a caller makes it."""
    fields: dict[str, object] = {
        "session_id": session_id or new_id(),
        "cwd": "/home/ana/garden",
        "project_id": "project-garden",
        "started_at": START,
        "updated_at": START,
        "last_activity_at": START,
    }
    return Session(**fields | changes)  # type: ignore[arg-type]


def created(session_id: str = "", **changes: object) -> CreateSession:
    """The write that starts a session."""
    return CreateSession(session=a_session(session_id, **changes))


def begun(
    session_id: str, turn_id: str = "", text: str = "Which plants need shade?", **more: object
) -> BeginTurn:
    """The write that starts a turn."""
    fields: dict[str, object] = {"started_at": START, "model": "fake/one"}
    return BeginTurn(
        turn_id=turn_id or new_id(),
        session_id=session_id,
        user_message=text,
        **fields | more,  # type: ignore[arg-type]
    )


def called(
    session_id: str, turn_id: str, order: int = 0, *paths: str, **changes: object
) -> RecordToolCall:
    """The write that records a tool call, with a `read` access to each path."""
    fields: dict[str, object] = {
        "tool_call_id": new_id(),
        "turn_id": turn_id,
        "order": order,
        "tool_name": "read_file",
        "arguments": '{"path": "plants.txt"}',
        "result": '{"text": "ferns, hostas — 🌿"}',
        "started_at": at(1),
        "duration_ms": 12,
    }
    call = ToolCall(**fields | changes)  # type: ignore[arg-type]
    accesses = tuple(
        FileAccess(
            path=path, tool_name=call.tool_name, access_type="read", accessed_at=call.started_at
        )
        for path in paths
    )
    return RecordToolCall(session_id=session_id, call=call, accesses=accesses)


def answered(session_id: str, turn_id: str, text: str) -> RecordAnswer:
    """The write that keeps what has come of an answer."""
    return RecordAnswer(session_id=session_id, turn_id=turn_id, assistant_message=text)


def finished(
    session_id: str,
    turn_id: str,
    text: str = "Ferns and hostas.",
    status: TurnStatus = "completed",
    **more: object,
) -> FinishTurn:
    """The write that ends a turn."""
    fields: dict[str, object] = {
        "usage": Usage(input_tokens=120, output_tokens=30, cost_usd=0.25, model_calls=2, api_ms=90),
        "finished_at": at(2),
    }
    return FinishTurn(
        turn_id=turn_id,
        session_id=session_id,
        status=status,
        assistant_message=text,
        **fields | more,  # type: ignore[arg-type]
    )


def whole_turn(
    session_id: str,
    turn_id: str = "",
    user: str = "Why?",
    assistant: str = "Because.",
    **more: object,
) -> list[Write]:
    """A turn without tools, from its question to its answer."""
    turn_id = turn_id or new_id()
    return [
        begun(session_id, turn_id, user, **more),
        finished(session_id, turn_id, assistant, finished_at=more.get("started_at", START)),
    ]


def summed(session_id: str, *covers: str, level: int = 1, **changes: object) -> AddSummary:
    """The write that stores a summary."""
    fields: dict[str, object] = {
        "summary_id": new_id(),
        "session_id": session_id,
        "text": "Shade plants were discussed.",
        "level": level,
        "turn_count": len(covers),
        "files_mentioned": ("plants.txt", "beds/north.txt"),
        "key_findings": ("ferns like shade",),
        "tools_used": ("read_file",),
        "topics": ("shade", "plants"),
        "created_at": at(5),
        "covers": covers,
    }
    return AddSummary(summary=Summary(**fields | changes))  # type: ignore[arg-type]


def a_memory(
    memory_id: str = "", content: str = "Ferns like shade.", **changes: object
) -> MemoryRecord:
    """A memory as a caller makes it: a current fact of the garden's project."""
    fields: dict[str, object] = {
        "memory_id": memory_id or new_id(),
        "content": content,
        "subjects": ("ferns", "shade"),
        "project_id": "project-garden",
        "created_at": at(6),
        "updated_at": changes.get("created_at", at(6)),
    }
    return MemoryRecord(**fields | changes)  # type: ignore[arg-type]


def remembered(
    memory_id: str = "",
    content: str = "Ferns like shade.",
    *,
    supersedes: tuple[str, ...] = (),
    **changes: object,
) -> PutMemory:
    """The write that stores a memory."""
    return PutMemory(memory=a_memory(memory_id, content, **changes), supersedes=supersedes)


def said(session_id: str, turn_id: str, quote: str = "ferns, you know", **more: object) -> Evidence:
    """A memory comes from what was said there."""
    fields: dict[str, object] = {"turn_index": 1, "at": at(2)}
    return Evidence(
        session_id=session_id,
        turn_id=turn_id,
        quote=quote,
        **fields | more,  # type: ignore[arg-type]
    )


def insight(session_id: str, topic: str = "Shade", **more: object) -> PutInsight:
    """The write that stores what a look over a session has found."""
    fields: dict[str, object] = {
        "key_findings": ("ferns like shade", "é"),
        "action_items": ("plant them",),
        "created_at": at(5),
    }
    return PutInsight(
        insight=Insight(session_id=session_id, main_topic=topic, **fields | more)  # type: ignore[arg-type]
    )


def garden() -> list[Write]:
    """A memory with everything in it: forks of forks, failures, summaries of summaries."""
    return [
        project("project-garden", path="/home/ana/garden"),
        created("root", title="Der Garten 🌱", tags=("été", "x"), project_path="/home/ana/garden"),
        *whole_turn("root", "r1", "one", started_at=at(1)),
        begun("root", "r2", "two", started_at=at(2)),
        called("root", "r2", 0, "plants.txt", "beds/north.txt", tool_call_id="c1"),
        called("root", "r2", 1, "plants.txt", tool_call_id="c2", success=False, error="gone",
               preamble="I'll look.", iteration=1, origin="mention"),
        finished("root", "r2", "Ferns.", reasoning="Shade.", finished_at=at(3),
                 usage=Usage(input_tokens=7, cost_usd=0.1 + 0.2, model_calls=3, api_ms=5)),
        created("fork", parent_session_id="root", forked_at_index=2, started_at=at(4)),
        *whole_turn("fork", "f3", "three", started_at=at(5)),
        created("deep", parent_session_id="fork", forked_at_index=3, started_at=at(6)),
        *whole_turn("root", "r3", "other three", started_at=at(7)),
        begun("root", "r4", "four", started_at=at(8)),
        finished("root", "r4", "", status="interrupted", finished_at=at(9)),
        *whole_turn("deep", "d4", "deepest", started_at=at(10)),
        created("empty", cwd="/elsewhere", status="archived", started_at=at(11)),
        begun("deep", "d5", "still at it", owner_id="some-process", started_at=at(12)),
        summed("root", "r1", "r2", summary_id="s1"),
        summed("deep", "f3", "d4", summary_id="s2"),
        summed("deep", "s2", "s1", level=2, summary_id="s3", extractive=True),
        UpdateSession(session_id="root", title="Garten", summary="Plants.", at=at(20)),
    ]  # fmt: skip


def known() -> list[Write]:
    """What is known beyond the conversations of `garden`, of all `OF_SESSIONS` too."""
    in_call = said("root", "r2", "ferns", tool_call_id="c1", tool_name="read_file", path="a.txt")
    return [
        remembered("m-old", "The ferns stand in the sun.", evidence=(said("root", "r1"),)),
        remembered(
            "m-new", "The ferns stand in the shade.", kind="decision", pinned=True,
            created_at=at(21), supersedes=("m-old",), evidence=(in_call, said("deep", "d4")),
        ),
        remembered("m-due", "Plant by Friday.", kind="deadline", at=at(900), expires_at=at(999),
                   created_at=at(22), evidence=(said("deep", "d4"),)),
        remembered("m-ana", "Ana likes shade.", project_id=None, source="note", subjects=(),
                   created_at=at(23)),
        PutProfile(key="name", value="Ana 🌱", at=at(24)),
        PutProfile(key="language", value="fr", at=at(25)),
        insight("root", created_at=at(26)),
    ]  # fmt: skip


def texts(turns: list[Turn]) -> list[str]:
    """The questions, to compare at a glance."""
    return [turn.user_message for turn in turns]

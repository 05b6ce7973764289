"""What `--format json` and `--output-format json` print: one document, stable snake_case keys."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from ragmem.cli.output import Document
from ragmem.events import TurnFinished
from ragmem.memory.memories import NOBODY
from ragmem.messages import Json
from ragmem.records import MemoryRecord, Session, Turn

if TYPE_CHECKING:
    from ragmem.memory.code_past import CodePast
    from ragmem.memory.facts.values import FactHit
    from ragmem.memory.hits import Hit


class UsageDocument(Document, frozen=True, kw_only=True):
    """Tokens of a turn, null where the provider did not tell."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None


class DenialDocument(Document, frozen=True, kw_only=True):
    """A tool call that was not allowed."""

    tool_name: str
    tool_use_id: str
    tool_input: Json


class ResultDocument(Document, frozen=True, kw_only=True):
    """How a turn ended."""

    type: Literal["result"] = "result"
    subtype: Literal["success", "error_max_turns", "error_max_budget_usd", "error_during_execution"]
    is_error: bool
    session_id: str
    turn_id: str
    num_turns: int
    """Model calls."""
    duration_ms: int
    duration_api_ms: int
    result: str
    error: str | None
    """What went wrong, and what to do, for a person."""
    model: str
    usage: UsageDocument
    total_cost_usd: float | None
    """null where the price is not known."""
    permission_denials: tuple[DenialDocument, ...]
    structured_output: None = None
    context: dict[str, int]
    """Characters of the request per section."""


class ListedSession(Document, frozen=True, kw_only=True):
    """A session in a list."""

    session_id: str
    cwd: str
    project_id: str
    title: str
    status: str
    tags: tuple[str, ...]
    started_at: datetime
    last_activity_at: datetime
    turn_count: int
    last_message: str | None


class ToolCallDocument(Document, frozen=True, kw_only=True):
    """A tool call of a turn."""

    tool_name: str
    arguments: Json
    result: Json
    success: bool
    duration_ms: int


class ListedTurn(Document, frozen=True, kw_only=True):
    """A turn of a session."""

    uuid: str
    turn_index: int
    user_message: str
    assistant_message: str
    status: str
    timestamp: datetime
    tool_calls: tuple[ToolCallDocument, ...]
    reasoning: str | msgspec.UnsetType | None = msgspec.UNSET
    """Only where it is asked for."""


class ConversationDocument(ListedSession, frozen=True, kw_only=True):
    """A session with its turns."""

    turns: tuple[ListedTurn, ...]


class FileDocument(Document, frozen=True, kw_only=True):
    """A recently accessed file."""

    path: str
    access_type: str
    tool_name: str
    turn_index: int
    timestamp: datetime


class StoreDocument(Document, frozen=True, kw_only=True):
    """Where memory is kept, and how much."""

    kind: str
    location: str
    version: str
    schema_version: int
    counts: dict[str, int]
    size_bytes: int | None


class HitDocument(Document, frozen=True, kw_only=True):
    """One thing that was found; null is what there is none of."""

    type: str
    """`turn`, `summary`, `memory`, `scope`."""
    id: str
    session_id: str | None = None
    """Of a memory: where it was said first."""
    turn_index: int | None = None
    level: int | None = None
    """0 for a turn, 1 and up for a summary."""
    text: str
    path: str | None = None
    """Of a scope, or the file that a memory stood in."""
    name: str | None = None
    start_line: int | None = None
    end_line: int | None = None
    score: float
    """Comparable among hits of one type of one search only."""
    similarity: float | None
    timestamp: datetime | None
    why: str


class CodeSessionDocument(Document, frozen=True, kw_only=True):
    """A session that had to do with some code."""

    session_id: str
    title: str
    how: tuple[str, ...]
    """`edited`, `changed` (the file), `read`, `found`, `named`, `listed`; the strongest first."""
    turn_count: int
    """Turns that had to do with it."""
    last_at: datetime


class ListedMemory(Document, frozen=True, kw_only=True):
    """A memory in a list."""

    id: str
    kind: str
    content: str
    subjects: tuple[str, ...]
    trust: str
    scope: str
    pinned: bool
    created_at: datetime
    expires_at: datetime | None
    superseded_by: str | None
    said_by: str | None
    """Name of another person, who has made it known; null for one's own."""


class EvidenceDocument(Document, frozen=True, kw_only=True):
    """One place where a memory comes from; null is what there is none of."""

    session_id: str | None
    turn_index: int | None
    tool_name: str | None
    path: str | None


class WhyDocument(ListedMemory, frozen=True, kw_only=True):
    """A memory with where it comes from."""

    evidence: tuple[EvidenceDocument, ...]


class EpisodeDocument(ListedMemory, frozen=True, kw_only=True):
    """A memory that is a notable moment."""

    occurred_at: datetime
    """When it happened or is due; where that is not known, when it was said."""


class ProfileDocument(Document, frozen=True, kw_only=True):
    """What the person has said of themselves."""

    values: dict[str, str]
    updated_at: datetime | None


def result_document(finished: TurnFinished) -> ResultDocument:
    """How the turn ended; an interrupted one is an error during execution."""
    usage = finished.usage
    error = finished.error or ("interrupted" if finished.subtype == "interrupted" else "")
    return ResultDocument.of(
        finished,
        subtype="error_during_execution" if finished.subtype == "interrupted" else finished.subtype,
        num_turns=usage.model_calls,
        duration_api_ms=usage.api_ms,
        error=f"{error} {finished.hint}".strip() or None,
        usage=UsageDocument.of(usage),
        total_cost_usd=usage.cost_usd,
        permission_denials=tuple(
            DenialDocument.of(denial, tool_input=parsed(denial.arguments))
            for denial in finished.permission_denials
        ),
    )


def conversation_document(
    session: Session, turns: Sequence[Turn], *, reasoning: bool = False
) -> ConversationDocument:
    """A session with its turns."""
    return ConversationDocument.of(
        session, turns=tuple(_turn(turn, reasoning=reasoning) for turn in turns)
    )


def _turn(turn: Turn, *, reasoning: bool) -> ListedTurn:
    return ListedTurn.of(
        turn,
        uuid=turn.turn_id,
        timestamp=turn.started_at,
        tool_calls=tuple(
            ToolCallDocument.of(
                call,
                arguments=parsed(call.arguments),
                result=parsed(call.result) if call.result else None,
            )
            for call in turn.tool_calls
        ),
        reasoning=turn.reasoning if reasoning else msgspec.UNSET,
    )


def hit_document(hit: "Hit") -> HitDocument:
    """A turn or summary."""
    text = ""
    if hit.turn:
        text = f"User: {hit.turn.user_message}\nAssistant: {hit.turn.assistant_message}"
    elif hit.summary:
        text = hit.summary.text
    turn_index = hit.turn.turn_index if hit.turn else None
    return HitDocument.of(hit, id=hit.record_id, turn_index=turn_index, text=text, timestamp=hit.at)


def memory_hit_document(hit: "FactHit") -> HitDocument:
    """A memory."""
    memory = hit.memory
    said = memory.evidence[0] if memory.evidence else None
    return HitDocument.of(
        hit,
        type="memory",
        id=memory.memory_id,
        session_id=(said and said.session_id) or None,
        turn_index=(said and said.turn_index) or None,
        text=memory.content,
        path=next((each.path for each in memory.evidence if each.path), None),
        timestamp=memory.created_at,
    )


def code_session_documents(past: "CodePast") -> tuple[CodeSessionDocument, ...]:
    """The sessions that had to do with some code, newest first."""
    return tuple(
        CodeSessionDocument.of(
            each, session_id=each.session.session_id, title=each.session.title, how=each.hows
        )
        for each in past.sessions
    )


def memory_document(memory: MemoryRecord, people: Mapping[str, str] = NOBODY) -> ListedMemory:
    """A memory in a list; `people` are others, by id."""
    return ListedMemory.of(memory, id=memory.memory_id, said_by=people.get(memory.owner))


def why_document(memory: MemoryRecord, people: Mapping[str, str] = NOBODY) -> WhyDocument:
    """A memory with where it comes from."""
    evidence = tuple(
        EvidenceDocument(
            session_id=each.session_id or None,
            turn_index=each.turn_index or None,
            tool_name=each.tool_name or None,
            path=each.path or None,
        )
        for each in memory.evidence
    )
    return WhyDocument.of(
        memory, id=memory.memory_id, said_by=people.get(memory.owner), evidence=evidence
    )


def episode_document(memory: MemoryRecord, people: Mapping[str, str] = NOBODY) -> EpisodeDocument:
    """A notable moment."""
    return EpisodeDocument.of(
        memory,
        id=memory.memory_id,
        said_by=people.get(memory.owner),
        occurred_at=memory.at or memory.created_at,
    )


def text_block(text: str) -> dict[str, Json]:
    """Words."""
    return {"type": "text", "text": text}


def tool_use_block(tool_use_id: str, name: str, arguments: str) -> dict[str, Json]:
    """The model asks for a tool."""
    return {"type": "tool_use", "id": tool_use_id, "name": name, "input": parsed(arguments)}


def tool_result_block(tool_use_id: str, text: str, *, is_error: bool) -> dict[str, Json]:
    """A tool has answered."""
    return {
        "type": "tool_result",
        "tool_use_id": tool_use_id,
        "content": text,
        "is_error": is_error,
    }


def parsed(text: str) -> Json:
    """JSON as a value; what is not JSON stays the text that it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text

"""What `--format json` and `--output-format json` print: one document, stable snake_case keys."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from ragmem.events import PermissionDenial, TurnFinished
from ragmem.messages import Json
from ragmem.records import FileAccess, Session, ToolCall, Turn
from ragmem.text import clean


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what is printed as JSON."""


def to_json(value: Document | Sequence[Document], *, indent: int | None = 2) -> str:
    """JSON text that any reader accepts; `indent=None` keeps it on one line."""
    return clean(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=indent)) + "\n"


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


class SessionDocument(Document, frozen=True, kw_only=True):
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


class TurnDocument(Document, frozen=True, kw_only=True):
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


class ConversationDocument(SessionDocument, frozen=True, kw_only=True):
    """A session with its turns."""

    turns: tuple[TurnDocument, ...]


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


def result_document(finished: TurnFinished) -> ResultDocument:
    """How the turn ended; an interrupted one is an error during execution."""
    usage = finished.usage
    error = finished.error or ("interrupted" if finished.subtype == "interrupted" else "")
    return ResultDocument(
        subtype="error_during_execution" if finished.subtype == "interrupted" else finished.subtype,
        is_error=finished.is_error,
        session_id=finished.session_id,
        turn_id=finished.turn_id,
        num_turns=usage.model_calls,
        duration_ms=finished.duration_ms,
        duration_api_ms=usage.api_ms,
        result=finished.result,
        error=f"{error} {finished.hint}".strip() or None,
        model=finished.model,
        usage=UsageDocument(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
        ),
        total_cost_usd=usage.cost_usd,
        permission_denials=tuple(_denial(denial) for denial in finished.permission_denials),
        context=finished.context,
    )


def session_document(session: Session) -> SessionDocument:
    """A session in a list."""
    return SessionDocument(
        session_id=session.session_id,
        cwd=session.cwd,
        project_id=session.project_id,
        title=session.title,
        status=session.status,
        tags=session.tags,
        started_at=session.started_at,
        last_activity_at=session.last_activity_at,
        turn_count=session.turn_count,
        last_message=session.last_message,
    )


def conversation_document(
    session: Session, turns: Sequence[Turn], *, reasoning: bool = False
) -> ConversationDocument:
    """A session with its turns."""
    documents = (_turn(turn) for turn in turns)
    if reasoning:
        documents = (
            msgspec.structs.replace(document, reasoning=turn.reasoning)
            for document, turn in zip(documents, turns, strict=True)
        )
    return ConversationDocument(
        **msgspec.structs.asdict(session_document(session)), turns=tuple(documents)
    )


def file_document(access: FileAccess) -> FileDocument:
    """A recently accessed file."""
    return FileDocument(
        path=access.path,
        access_type=access.access_type,
        tool_name=access.tool_name,
        turn_index=access.turn_index,
        timestamp=access.accessed_at,
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


def _turn(turn: Turn) -> TurnDocument:
    return TurnDocument(
        uuid=turn.turn_id,
        turn_index=turn.turn_index,
        user_message=turn.user_message,
        assistant_message=turn.assistant_message,
        status=turn.status,
        timestamp=turn.started_at,
        tool_calls=tuple(_tool_call(call) for call in turn.tool_calls),
    )


def _tool_call(call: ToolCall) -> ToolCallDocument:
    return ToolCallDocument(
        tool_name=call.tool_name,
        arguments=parsed(call.arguments),
        result=parsed(call.result) if call.result else None,
        success=call.success,
        duration_ms=call.duration_ms,
    )


def _denial(denial: PermissionDenial) -> DenialDocument:
    return DenialDocument(
        tool_name=denial.tool_name,
        tool_use_id=denial.tool_use_id,
        tool_input=parsed(denial.arguments),
    )

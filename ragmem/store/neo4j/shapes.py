"""Records as properties and back: camelCase in the graph, snake_case here."""

import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ragmem.records import (
    BeginTurn,
    FileAccess,
    FinishTurn,
    Project,
    Session,
    Summary,
    ToolCall,
    Turn,
    Usage,
)
from ragmem.store.neo4j.gateway import Row, Value
from ragmem.text import clean, clip_middle

Properties = dict[str, Value]

# Neo4j refuses to index more than about 8,100 bytes, and with that the whole transaction.
_INDEXED_CHARS = 1700
_INDEXED_BYTES = 4 * _INDEXED_CHARS


R = TypeVar("R", bound=msgspec.Struct)


def checked(kind: type[R], **fields: Any) -> R:
    """The record; a ValidationError where a field holds something else than it says."""
    return msgspec.convert(fields, kind)


def title_key(title: str) -> str:
    """What a title is found by: casefolded, and short enough for an index."""
    folded = clean(title).casefold()
    if len(folded) <= _INDEXED_CHARS:
        return folded
    return f"sha256:{hashlib.sha256(folded.encode()).hexdigest()}"


def path_key(path: str) -> str:
    """The path; one that is longer than any system opens is clipped in its middle."""
    path = clean(path)
    return path if len(path.encode()) <= _INDEXED_BYTES else clip_middle(path, _INDEXED_CHARS)


def session_properties(session: Session) -> Properties:
    """Of a new session; what is derived starts empty."""
    return {
        "cwd": session.cwd,
        "projectId": session.project_id,
        "projectPath": session.project_path,
        "title": session.title,
        "titleFolded": title_key(session.title),
        "summary": session.summary,
        "summarizedCount": session.summarized_count,
        "tags": session.tags,
        "status": session.status,
        "owner": session.owner or None,
        "startTime": session.started_at,
        "updatedAt": session.updated_at,
        "lastActivity": session.started_at,
        "parentSessionId": session.parent_session_id,
        "forkedAtIndex": session.forked_at_index,
        "turnCount": 0,
        "messageCount": 0,
    }


def to_session(node: Row) -> Session:
    """From a node's properties with its `lastMessage`."""
    return checked(
        Session,
        session_id=node["sessionId"],
        cwd=node["cwd"],
        project_id=node["projectId"],
        project_path=node.get("projectPath"),
        title=node["title"],
        summary=node.get("summary"),
        summarized_count=node.get("summarizedCount") or 0,
        tags=node["tags"],
        status=node["status"],
        started_at=node["startTime"],
        updated_at=node["updatedAt"],
        last_activity_at=node["lastActivity"],
        turn_count=node["turnCount"],
        message_count=node["messageCount"],
        last_message=node.get("lastMessage"),
        parent_session_id=node.get("parentSessionId"),
        forked_at_index=node.get("forkedAtIndex"),
        owner=node.get("owner") or "",
    )


def begun_turn_properties(write: BeginTurn) -> Properties:
    """Of a turn that starts."""
    length = len(clean(write.user_message))
    return {
        "sessionId": write.session_id,
        "userMessage": write.user_message,
        "assistantMessage": "",
        "timestamp": write.started_at,
        "level": 0,
        "status": "running",
        "model": write.model,
        "ownerId": write.owner_id,
        "userCharCount": length,
        "charCount": length,
        "modelCalls": 0,
        "apiMs": 0,
    }


def finished_turn_properties(write: FinishTurn) -> Properties:
    """What the end of a turn adds."""
    usage = write.usage
    counted = [n for n in (usage.input_tokens, usage.output_tokens) if n is not None]
    return {
        "assistantMessage": write.assistant_message,
        "reasoning": write.reasoning,
        "status": write.status,
        "finishedAt": write.finished_at,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cachedTokens": usage.cached_tokens,
        "tokenCount": sum(counted) if counted else None,
        "cost": usage.cost_usd,
        "modelCalls": usage.model_calls,
        "apiMs": usage.api_ms,
        "ownerId": None,
    }


def turn_properties(turn: Turn) -> Properties:
    """Of a turn that was recorded elsewhere, whole, with its index."""
    begun = BeginTurn(
        turn_id=turn.turn_id,
        session_id=turn.session_id,
        user_message=turn.user_message,
        started_at=turn.started_at,
        model=turn.model,
        owner_id=turn.owner_id,
    )
    properties = begun_turn_properties(begun) | {"turnIndex": turn.turn_index}
    if turn.status == "running":
        return properties
    ended = FinishTurn(
        turn_id=turn.turn_id,
        session_id=turn.session_id,
        status=turn.status,
        assistant_message=turn.assistant_message,
        reasoning=turn.reasoning,
        usage=turn.usage,
        finished_at=turn.finished_at or turn.started_at,
    )
    length = len(clean(turn.user_message)) + len(clean(turn.assistant_message))
    return properties | finished_turn_properties(ended) | {"charCount": length}


def to_turn(node: Row) -> Turn:
    """From a node's properties with its `calls` in order."""
    return checked(
        Turn,
        turn_id=node["uuid"],
        session_id=node["sessionId"],
        turn_index=node["turnIndex"],
        user_message=node["userMessage"],
        assistant_message=node["assistantMessage"],
        reasoning=node.get("reasoning"),
        status=node["status"],
        started_at=node["timestamp"],
        finished_at=node.get("finishedAt"),
        model=node.get("model"),
        usage=Usage(
            input_tokens=node.get("inputTokens"),
            output_tokens=node.get("outputTokens"),
            cached_tokens=node.get("cachedTokens"),
            cost_usd=node.get("cost"),
            model_calls=node["modelCalls"],
            api_ms=node["apiMs"],
        ),
        owner_id=node.get("ownerId"),
        tool_calls=tuple(to_tool_call(call | {"turnId": node["uuid"]}) for call in node["calls"]),
    )


def tool_call_properties(call: ToolCall) -> Properties:
    """Of a tool call with its result; its order stands on the relationship."""
    return {
        "toolName": call.tool_name,
        "toolArgs": call.arguments,
        "toolResult": call.result,
        "success": call.success,
        "error": call.error,
        "durationMs": call.duration_ms,
        "timestamp": call.started_at,
        "iteration": call.iteration,
        "resultSizeBytes": len(clean(call.result).encode()),
        "origin": call.origin,
        "preamble": call.preamble,
    }


def to_tool_call(node: Mapping[str, Any]) -> ToolCall:
    """From a node's properties with its `order` and the `turnId`."""
    return checked(
        ToolCall,
        tool_call_id=node["uuid"],
        turn_id=node["turnId"],
        order=node["order"],
        iteration=node["iteration"],
        tool_name=node["toolName"],
        arguments=node["toolArgs"],
        result=node["toolResult"],
        success=node["success"],
        error=node.get("error"),
        started_at=node["timestamp"],
        duration_ms=node["durationMs"],
        origin=node["origin"],
        preamble=node["preamble"],
    )


def access_properties(access: FileAccess) -> Properties:
    """Of one access; the turn and the order come from its tool call."""
    return {
        "path": path_key(access.path),
        "toolName": access.tool_name,
        "type": access.access_type,
        "at": access.accessed_at,
    }


def to_access(node: Row) -> FileAccess:
    """From a relationship's properties with the `path` and the `turnIndex` at its ends."""
    return checked(
        FileAccess,
        path=node["path"],
        tool_name=node["toolName"],
        access_type=node["type"],
        accessed_at=node["at"],
        turn_index=node["turnIndex"],
        order=node["order"],
    )


def summary_properties(summary: Summary) -> Properties:
    """Of a summary; what it covers are its relationships."""
    text = clean(summary.text)
    return {
        "sessionId": summary.session_id,
        "summary": text,
        "level": summary.level,
        "charCount": len(text),
        "turnCount": summary.turn_count,
        "filesMentioned": summary.files_mentioned,
        "keyFindings": summary.key_findings,
        "toolsUsed": summary.tools_used,
        "topics": summary.topics,
        "timestamp": summary.created_at,
        "extractive": summary.extractive,
    }


def summary_row(summary: Summary) -> Properties:
    """A summary among many."""
    return {
        "summaryId": summary.summary_id,
        "sessionId": summary.session_id,
        "level": summary.level,
        "properties": summary_properties(summary),
    }


def cover_rows(summary: Summary) -> list[Properties]:
    """What a summary covers, in order."""
    return [
        {
            "summaryId": summary.summary_id,
            "id": covered,
            "level": summary.level,
            "order": order,
        }
        for order, covered in enumerate(summary.covers)
    ]


def to_summary(node: Row) -> Summary:
    """From a node's properties with the ids that it `covers`."""
    return checked(
        Summary,
        summary_id=node["uuid"],
        session_id=node["sessionId"],
        text=node["summary"],
        level=node["level"],
        turn_count=node["turnCount"],
        files_mentioned=node["filesMentioned"],
        key_findings=node["keyFindings"],
        tools_used=node["toolsUsed"],
        topics=node["topics"],
        created_at=node["timestamp"],
        covers=node["covers"],
        extractive=node["extractive"],
    )


def to_project(node: Row) -> Project:
    """From a node's properties."""
    return checked(
        Project,
        project_id=node["projectId"],
        path=node["path"],
        remote=node.get("remote"),
        joined_into=node.get("joinedInto"),
        created_at=node["createdAt"],
    )

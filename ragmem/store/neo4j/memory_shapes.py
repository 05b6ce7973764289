"""Memories as properties and columns, and back; their times as text."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

import msgspec

from ragmem.records import Evidence, Insight, MemoryKind, MemoryRecord, MemorySource, Owner, Trust
from ragmem.store.neo4j.instants import from_text, in_utc, to_text
from ragmem.store.neo4j.shapes import Properties
from ragmem.text import clean

_FIELDS = 16
"""Of a memory's text, before its subjects, then the evidence that stands on it, then the other."""
_EVIDENCE_FIELDS = 9


class _Loose(msgspec.Struct, frozen=True):
    """Evidence of no turn that is there, as it stands on its memory."""

    position: int
    evidence: Evidence


def time_text(at: datetime | None) -> str | None:
    """As statements take it; None stays None."""
    return None if at is None else to_text(at)


def to_time(text: str | None) -> datetime | None:
    """The same back; nothing for none."""
    return from_text(text) if text else None


def memory_row(memory: MemoryRecord) -> Properties:
    """A memory without its evidence, among many."""
    return {
        "memoryId": memory.memory_id,
        "projectId": memory.project_id,
        "supersededBy": memory.superseded_by,
        "owner": memory.owner or None,
        "properties": {
            "kind": memory.kind,
            "content": memory.content,
            "subjects": memory.subjects,
            "trust": memory.trust,
            "source": memory.source,
            "scope": memory.scope,
            "pinned": memory.pinned,
        },
        "times": {
            "createdAt": time_text(memory.created_at),
            "updatedAt": time_text(memory.updated_at),
            "at": time_text(memory.at),
            "expiresAt": time_text(memory.expires_at),
            "validUntil": time_text(memory.valid_until),
        },
    }


def evidence_row(memory_id: str, position: int, evidence: Evidence) -> Properties:
    """What stands on the relationship from the turn to the memory."""
    return {
        "memoryId": memory_id,
        "turnId": evidence.turn_id,
        "at": time_text(evidence.at),
        "properties": {
            "position": position,
            "sessionId": evidence.session_id,
            "turnIndex": evidence.turn_index,
            "toolCallId": evidence.tool_call_id,
            "toolName": evidence.tool_name,
            "path": evidence.path,
            "quote": evidence.quote,
        },
    }


def loose_text(position: int, evidence: Evidence) -> str:
    """Evidence to stand on the memory itself."""
    texts = {
        name: clean(getattr(evidence, name))
        for name in ("session_id", "turn_id", "tool_call_id", "tool_name", "path", "quote")
    }
    cleaned = msgspec.structs.replace(evidence, at=in_utc(evidence.at), **texts)
    return msgspec.json.encode(_Loose(position, cleaned)).decode()


def loose_evidence(texts: Sequence[str]) -> list[tuple[int, Evidence]]:
    """The same back, with its positions; what can't be read is `check`'s matter."""
    return [(each.position, each.evidence) for each in map(_loose, texts) if each is not None]


def is_readable(text: str) -> bool:
    """Whether it is evidence, as `loose_text` writes it."""
    return _loose(text) is not None


def _loose(text: str) -> _Loose | None:
    try:
        return msgspec.json.decode(text, type=_Loose)
    except msgspec.MsgspecError:
        return None


def to_memory(text: str) -> MemoryRecord:
    """From a node's fields in one text, with what stands on its relationships."""
    fields = text.split("\0")
    subjects_end = _FIELDS + int(fields[_FIELDS - 2])
    loose_end = subjects_end + int(fields[_FIELDS - 1])
    evidence = loose_evidence(fields[subjects_end:loose_end])
    for start in range(loose_end, len(fields), _EVIDENCE_FIELDS):
        evidence.append(_to_evidence(fields[start : start + _EVIDENCE_FIELDS]))
    evidence.sort(key=lambda each: each[0])
    return MemoryRecord(
        memory_id=fields[0],
        kind=cast("MemoryKind", fields[1]),
        content=fields[2],
        trust=cast("Trust", fields[3]),
        source=cast("MemorySource", fields[4]),
        project_id=fields[5] or None,
        pinned=fields[6] == "true",
        created_at=from_text(fields[7]),
        updated_at=from_text(fields[8]),
        at=to_time(fields[9]),
        expires_at=to_time(fields[10]),
        valid_until=to_time(fields[11]),
        superseded_by=fields[12] or None,
        owner=fields[13],
        subjects=tuple(fields[_FIELDS:subjects_end]),
        evidence=tuple(each for _, each in evidence),
    )


def _to_evidence(fields: Sequence[str]) -> tuple[int, Evidence]:
    position, session_id, turn_id, turn_index, tool_call_id, tool_name, path, quote, at = fields
    found = Evidence(
        session_id=session_id,
        turn_id=turn_id,
        turn_index=int(turn_index),
        tool_call_id=tool_call_id,
        tool_name=tool_name,
        path=path,
        quote=quote,
        at=from_text(at),
    )
    return int(position), found


def insight_row(insight: Insight) -> Properties:
    """What was found in a session, among many."""
    return {
        "sessionId": insight.session_id,
        "at": time_text(insight.created_at),
        "properties": {
            "mainTopic": insight.main_topic,
            "keyFindings": insight.key_findings,
            "actionItems": insight.action_items,
        },
    }


def to_owner(columns: Sequence[Any]) -> Owner:
    """From a node's columns."""
    owner_id, name, named_at = columns
    return Owner(owner_id=owner_id, name=name, named_at=to_time(named_at))


def to_insight(columns: Sequence[Any]) -> Insight:
    """From a node's columns."""
    session_id, main_topic, key_findings, action_items, created_at = columns
    return Insight(
        session_id=session_id,
        main_topic=main_topic,
        key_findings=tuple(key_findings),
        action_items=tuple(action_items),
        created_at=from_text(created_at),
    )

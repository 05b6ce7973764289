"""What is stored, and the Writes that change it.

A record is an immutable value with an id made by the client. A `Write` is a
value too: stores apply it idempotently (upsert by id), so that the same stream
of writes can be recorded, replayed after an outage, exported and moved between
stores.

Times are timezone-aware UTC datetimes. Order never comes from clocks: it comes
from `turn_index` (1-based, without gaps, assigned by the store) and, within a
turn, from a tool call's `order` (0-based).
"""

from ragmem.records.conversation import (
    DEFAULT_TITLE,
    AccessType,
    CallOrigin,
    FileAccess,
    Project,
    Record,
    Session,
    SessionStatus,
    Summary,
    ToolCall,
    Turn,
    TurnStatus,
    Usage,
    utc_now,
)
from ragmem.records.memories import (
    EPISODE_KINDS,
    MEMORY_KINDS,
    MEMORY_LEVEL,
    SESSION_LEVEL,
    Evidence,
    Insight,
    MemoryKind,
    MemoryRecord,
    MemoryScope,
    MemorySource,
    Profile,
    Trust,
)
from ragmem.records.writes import (
    AddSummary,
    BeginTurn,
    CreateSession,
    FinishTurn,
    MarkExtracted,
    PutInsight,
    PutMemory,
    PutProfile,
    PutSession,
    PutTurn,
    PutVectors,
    RecordToolCall,
    RegisterProject,
    UpdateSession,
    Write,
)

__all__ = [
    "DEFAULT_TITLE",
    "EPISODE_KINDS",
    "MEMORY_KINDS",
    "MEMORY_LEVEL",
    "SESSION_LEVEL",
    "AccessType",
    "AddSummary",
    "BeginTurn",
    "CallOrigin",
    "CreateSession",
    "Evidence",
    "FileAccess",
    "FinishTurn",
    "Insight",
    "MarkExtracted",
    "MemoryKind",
    "MemoryRecord",
    "MemoryScope",
    "MemorySource",
    "Profile",
    "Project",
    "PutInsight",
    "PutMemory",
    "PutProfile",
    "PutSession",
    "PutTurn",
    "PutVectors",
    "Record",
    "RecordToolCall",
    "RegisterProject",
    "Session",
    "SessionStatus",
    "Summary",
    "ToolCall",
    "Trust",
    "Turn",
    "TurnStatus",
    "UpdateSession",
    "Usage",
    "Write",
    "utc_now",
]

"""What each property holds, and what stands there otherwise: found, written right or set aside.

Community servers can't be told types, and whoever writes into the graph by hand may give any.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from ragmem.records import Finding, SessionStatus, TurnStatus
from ragmem.store.neo4j.gateway import Gateway, Transaction, Value, from_text
from ragmem.store.neo4j.shapes import Properties

Kind = Literal["text", "texts", "whole", "number", "flag", "time", "turn_status", "session_status"]
TIMES = "times are in UTC"
TYPES = "properties are of their types"
_AT_ONCE = 1_000
_TYPES: Mapping[Kind, str] = MappingProxyType(
    {
        "text": "STRING",
        "texts": "LIST<STRING NOT NULL>",
        "whole": "INTEGER",
        "number": "INTEGER | FLOAT",
        "flag": "BOOLEAN",
        "time": "ZONED DATETIME",
        "turn_status": "STRING",
        "session_status": "STRING",
    }
)
_WORDS: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {"turn_status": get_args(TurnStatus), "session_status": get_args(SessionStatus)}
)
"""What a text may be, where it is one of a few."""
_UNKNOWN: Mapping[Kind, str] = MappingProxyType(
    {"turn_status": "interrupted", "session_status": "active"}
)
"""What stands for a word that is none of them: a turn keeps what it has, and a session is found."""


class Holder(NamedTuple):
    """Nodes of a label, or relationships of a type, with what is known of their properties."""

    name: str
    key: str
    """What it is told by; of a node also what nothing else may have."""
    kinds: Mapping[str, Kind]

    @property
    def is_node(self) -> bool:
        """Whether it is the name of a label."""
        return not self.name.isupper()

    @property
    def wrong(self) -> str:
        """The statement that lists those with anything but what belongs there."""
        rights = [f"n.{name} IS :: {_TYPES[kind]}" for name, kind in self.kinds.items()]
        # Of one that is not there this is null, which no condition holds for.
        rights += [
            f"toStringOrNull(n.{name}) ENDS WITH 'Z'"
            for name, kind in self.kinds.items()
            if kind == "time"
        ]
        rights += [
            f"n.{name} IN {list(_WORDS[kind])}"
            for name, kind in self.kinds.items()
            if kind in _WORDS
        ]
        held = ", ".join(f".{name}" for name in self.kinds)
        return f"""
            MATCH {f"(n:{self.name})" if self.is_node else f"()-[n:{self.name}]->()"}
            WHERE NOT ({" AND ".join(rights)})
            RETURN collect([elementId(n), n{{{held}}}]) AS found
            """


def _holder(name: str, key: str, **names: str) -> Holder:
    kinds = {each: kind for kind, listed in names.items() for each in listed.split()}
    return Holder(name, key, kinds)  # type: ignore[arg-type]


HOLDERS = (
    _holder(
        "RagmemSchema", "name",
        text="name embedder",
        whole="version termsVersion sequence epoch memoriesRevision dimension",
    ),
    _holder("Owner", "ownerId", text="ownerId name", time="updatedAt"),
    _holder("Project", "projectId", text="projectId path remote joinedInto", time="createdAt"),
    _holder(
        "ConversationSession", "sessionId",
        text="sessionId cwd projectId projectPath title titleFolded summary parentSessionId "
        "lastTurnId summaryEmbedder owner",
        session_status="status",
        texts="tags", flag="rollUpDue",
        whole="summarizedCount forkedAtIndex turnCount messageCount summaryDimension",
        time="startTime updatedAt lastActivity summaryVectorsDue",
    ),
    _holder(
        "ConversationTurn", "uuid",
        text="uuid sessionId userMessage assistantMessage reasoning model ownerId",
        turn_status="status",
        whole="turnIndex level inputTokens outputTokens cachedTokens tokenCount modelCalls apiMs "
        "charCount userCharCount",
        number="cost", flag="referencesKnown", time="timestamp finishedAt memoriesDue",
    ),
    _holder(
        "ToolCall", "uuid",
        text="uuid toolName toolArgs toolResult error origin preamble", flag="success",
        whole="durationMs iteration resultSizeBytes", time="timestamp",
    ),
    _holder("File", "path", text="projectId path language hash"),
    _holder(
        "ConversationSummary", "uuid",
        text="uuid sessionId summary waitsIn", flag="extractive",
        texts="filesMentioned keyFindings toolsUsed topics",
        whole="level charCount turnCount", time="timestamp",
    ),
    _holder(
        "SearchEntry", "recordId",
        text="recordId projectId sessionId terms termsHash textHash embedder",
        whole="level turnIndex termsVersion number sequence dimension",
        time="at vectorsDue summaryDue referencesDue",
    ),
    _holder(
        "Memory", "uuid",
        text="uuid kind content trust source scope projectId supersededBy embedder owner",
        texts="subjects evidence sessionIds", flag="pinned", whole="dimension",
        time="createdAt updatedAt at expiresAt validUntil vectorsDue",
    ),
    _holder("UserProfile", "userId", text="userId profileJson", time="updatedAt"),
    _holder(
        "Insight", "sessionId",
        text="sessionId mainTopic", texts="keyFindings actionItems", time="createdAt",
    ),
    _holder(
        "Scope", "scopeId",
        text="scopeId kind name qualifiedName nameKey qualifiedKey tailKey signature docstring "
        "hash projectId path",
        whole="startLine endLine",
    ),
    _holder("Attempt", "item", text="item sessionId model", whole="count"),
    _holder("CodeProject", "projectId", text="projectId"),
    _holder("HAS_TURN", "index", whole="index"),
    _holder("HAS_TOOL_CALL", "order", whole="order"),
    _holder("ACCESSED", "toolCallId", text="toolCallId toolName type", whole="order", time="at"),
    _holder(
        "REMEMBERS", "quote",
        text="sessionId toolCallId toolName path quote", whole="position turnIndex", time="at",
    ),
)  # fmt: skip


class Wrong(NamedTuple):
    """What stands otherwise on one node or relationship."""

    holder: Holder
    element_id: str
    key: object
    values: Mapping[str, Any]
    """Those of a wrong type."""
    times: Mapping[str, datetime]
    """All that are there, if one is in another zone and none of its properties is mistyped."""

    def __str__(self) -> str:
        """As it is told."""
        names = ", ".join(self.values or self.times)
        return f"{self.holder.name} {self.key if isinstance(self.key, str) else '?'} ({names})"


async def check(gateway: Gateway, *, shown: int) -> list[Finding]:
    """What is of a wrong type, and which times are in another zone."""
    findings = []
    found = await _wrong(gateway)
    for what, which in (
        (TYPES, [each for each in found if each.values]),
        (TIMES, [each for each in found if each.times]),
    ):
        if which:
            where = ", ".join(sorted(map(str, which))[:shown])
            findings.append(Finding(what, where, len(which)))
    return findings


async def bring_into_utc(gateway: Gateway) -> list[Wrong]:
    """Write the times of other zones in UTC; where those stood."""
    elsewhere = [each for each in await _wrong(gateway) if each.times]
    await _write(gateway, [(each, each.times) for each in elsewhere])
    return elsewhere


async def mend(gateway: Gateway) -> list[Finding]:
    """Write right what is of a wrong type, set aside what can't be; and times in UTC."""
    done = []
    if mistyped := [each for each in await _wrong(gateway) if each.values]:
        await _write(gateway, [(each, _mended(each)) for each in mistyped])
        what = "wrote right, or set aside, what was of a wrong type"
        done.append(Finding(what, ", ".join(map(str, mistyped)), len(mistyped)))
    if elsewhere := await bring_into_utc(gateway):
        done.append(Finding("wrote times in UTC", ", ".join(map(str, elsewhere)), len(elsewhere)))
    return done


async def _wrong(gateway: Gateway) -> list[Wrong]:
    found = []
    for holder in HOLDERS:
        # Each by itself: the deadline is for one.
        rows = await gateway.read(partial(Transaction.found, statement=holder.wrong))
        found += [_told(holder, *row) for row in rows]
    return found


def _told(holder: Holder, element_id: str, held: Mapping[str, Any]) -> Wrong:
    given = {name: value for name, value in held.items() if value is not None}
    wrong = {
        name: value for name, value in given.items() if not _is_right(holder.kinds[name], value)
    }
    times = {
        name: value
        for name, value in given.items()
        if holder.kinds[name] == "time" and name not in wrong
    }
    return Wrong(holder, element_id, held.get(holder.key), wrong, {} if wrong else times)


def _is_right(kind: Kind, value: object) -> bool:
    match kind:
        case "text":
            return isinstance(value, str)
        case "texts":
            return isinstance(value, list) and all(isinstance(each, str) for each in value)
        case "whole":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "flag":
            return isinstance(value, bool)
        case "time":
            return isinstance(value, datetime)
        case "turn_status" | "session_status":
            return value in _WORDS[kind]


async def _write(gateway: Gateway, changes: Sequence[tuple[Wrong, Mapping[str, Value]]]) -> None:
    for is_node in (True, False):
        rows: list[Properties] = [
            {"id": wrong.element_id, "properties": properties}
            for wrong, properties in changes
            if wrong.holder.is_node == is_node
        ]
        statement = f"""
            UNWIND $rows AS row
            MATCH {"(n)" if is_node else "()-[n]->()"}
            WHERE elementId(n) = row.id
            SET n += row.properties
            """
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            await gateway.write(partial(Transaction.run, statement=statement, rows=part))


def _mended(wrong: Wrong) -> dict[str, Any]:
    """Each as it should be; what can't be made so stands under another name."""
    properties: dict[str, Any] = {}
    for name, value in wrong.values.items():
        kind = wrong.holder.kinds[name]
        # One that became an id might be another's: the next steps give a new one.
        right = None if name == wrong.holder.key else _right(kind, value)
        properties[name] = right
        if right is None:
            properties[f"salvaged{name[0].upper()}{name[1:]}"] = str(value)
    return properties


def _right(kind: Kind, value: Any) -> Any:
    """The same of the right type; None where that can't be told."""
    if kind in _UNKNOWN:
        return _UNKNOWN[kind]
    try:
        match kind, value:
            case "time", str():
                return from_text(value)
            case "whole", str() | float() if float(value).is_integer():
                return int(float(value))
            case "number", str():
                return float(value)
            case "text", bool() | int() | float():
                return str(value)
            case "texts", str():
                return [value]
            case "texts", list() if all(isinstance(each, str | int | float) for each in value):
                return [str(each) for each in value]
            case "flag", "true" | "false":
                return value == "true"
    except (ValueError, OverflowError):
        pass
    return None

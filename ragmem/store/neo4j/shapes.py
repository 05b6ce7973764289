"""How each kind of record stands in the graph: its label, its properties, what each of them holds.

A property bears its field's name in camelCase, where `_NAMES` has no other. From this one
description follow the properties of a record and the record of a node, what is checked, and what
is put right: community servers can't be told types, and whoever writes into the graph by hand may
give any, or leave any out.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from types import MappingProxyType, NoneType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from ragmem.records import (
    OF_SESSIONS,
    Attempts,
    BeginTurn,
    CodeScope,
    Evidence,
    FileAccess,
    Finding,
    FinishTurn,
    MemoryRecord,
    OfASession,
    Owner,
    Project,
    Session,
    SessionStatus,
    Summary,
    ToolCall,
    Turn,
    TurnStatus,
    Usage,
)
from ragmem.store.neo4j.gateway import Gateway, Row, Transaction, Value, from_text
from ragmem.text import clean, clip_middle

Properties = dict[str, Value]
R = TypeVar("R", bound=msgspec.Struct)

# Neo4j refuses to index more than about 8,100 bytes, and with that the whole transaction.
_INDEXED_CHARS = 1700
_INDEXED_BYTES = 4 * _INDEXED_CHARS


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


# --- records and properties -------------------------------------------------------------

_NAMES: dict[type, dict[str, str]] = {
    Session: {"started_at": "startTime", "last_activity_at": "lastActivity"},
    Turn: {"turn_id": "uuid", "started_at": "timestamp"},
    Usage: {"cost_usd": "cost"},
    ToolCall: {
        "tool_call_id": "uuid",
        "arguments": "toolArgs",
        "result": "toolResult",
        "started_at": "timestamp",
    },
    FileAccess: {"access_type": "type", "accessed_at": "at"},
    Summary: {"summary_id": "uuid", "text": "summary", "created_at": "timestamp"},
    MemoryRecord: {"memory_id": "uuid"},
    Owner: {"named_at": "updatedAt"},
}
"""Properties by field, where they are called otherwise."""
_ELSEWHERE: dict[type, frozenset[str]] = {
    Session: frozenset(("turn_count", "message_count", "first_message", "last_message")),
    ToolCall: frozenset(("turn_id", "order")),
    FileAccess: frozenset(("turn_index", "order")),
    Summary: frozenset(("covers",)),
    Evidence: frozenset(("turn_id",)),
}
"""Fields that are read with a node, but counted, or told by its relationships."""


class _Field(NamedTuple):
    name: str
    prop: str
    kind: "Kind | None"
    """What it holds; None for what is a record of its own."""
    part: type[msgspec.Struct] | None = None
    """The record whose fields stand among this one's."""
    is_elsewhere: bool = False
    is_optional: bool = False


@cache
def _fields(record: type[msgspec.Struct]) -> tuple[_Field, ...]:
    names = _NAMES.get(record, {})
    elsewhere = _ELSEWHERE.get(record, frozenset())
    types = get_type_hints(record)
    found = []
    for name in record.__struct_fields__:
        held = types[name]
        first, *rest = name.split("_")
        prop = names.get(name, first + "".join(map(str.title, rest)))
        is_struct = isinstance(held, type) and issubclass(held, msgspec.Struct)
        part = held if is_struct else None
        is_optional = NoneType in get_args(held)
        if is_optional:
            [held] = set(get_args(held)) - {NoneType}
        found.append(_Field(name, prop, _kind(held), part, name in elsewhere, is_optional))
    return tuple(found)


def _kind(held: Any) -> "Kind | None":
    if get_origin(held) is Literal and held not in _KINDS:
        return "text"
    return _KINDS.get(held)


def properties(record: msgspec.Struct, kind: type[msgspec.Struct] | None = None) -> Properties:
    """What of a record stands on its node; of a write of some of its fields: as in its `kind`."""
    found: Properties = {}
    for field in _fields(kind or type(record)):
        value = getattr(record, field.name, msgspec.UNSET)
        if value is msgspec.UNSET or field.is_elsewhere:
            continue
        if field.part is not None:
            found |= properties(value)
        elif field.kind is not None:
            found[field.prop] = value
    return found


def to_record(kind: type[R], node: Mapping[str, Any], **given: Any) -> R:
    """The record of a node's properties, with fields that are `given`.

    A ValidationError where a property holds something else than it says, or is missing.
    """
    for prop in _needed(kind):
        if node.get(prop) is None:
            raise msgspec.ValidationError(f"There is no {prop}.")
    return msgspec.convert(_values(kind, node) | given, kind)


@cache
def _needed(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Properties without which a node is no such record, whatever its fields are by default."""
    fill = next((each.fill for each in SHAPES if each.record is kind), {})
    return tuple(field.prop for field in _fields(kind) if field.prop in fill)


def _values(kind: type[msgspec.Struct], node: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in _fields(kind):
        if field.part is not None:
            found[field.name] = _values(field.part, node)
        elif (value := node.get(field.prop)) is not None:
            found[field.name] = value
    return found


def session_properties(session: Session) -> Properties:
    """Of a new session; what is derived starts empty."""
    return properties(session) | {
        "titleFolded": title_key(session.title),
        "owner": session.owner or None,
        "lastActivity": session.started_at,
        "turnCount": 0,
        "messageCount": 0,
    }


to_session = partial(to_record, Session)


def begun_turn_properties(write: BeginTurn) -> Properties:
    """Of a turn that starts."""
    length = len(clean(write.user_message))
    return properties(write, Turn) | {
        "assistantMessage": "",
        "level": 0,
        "status": "running",
        "userCharCount": length,
        "charCount": length,
        "modelCalls": 0,
        "apiMs": 0,
    }


def finished_turn_properties(write: FinishTurn) -> Properties:
    """What the end of a turn adds; the model that it says is the writer's matter."""
    usage = write.usage
    counted = [n for n in (usage.input_tokens, usage.output_tokens) if n is not None]
    found = properties(write, Turn) | {
        "tokenCount": sum(counted) if counted else None,
        "ownerId": None,
    }
    del found["model"]
    return found


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
    length = len(clean(turn.user_message)) + len(clean(turn.assistant_message))
    found = begun_turn_properties(begun) | {
        "turnIndex": turn.turn_index,
        "assistantMessage": clean(turn.assistant_message),
        "charCount": length,
    }
    if turn.status == "running":
        return found
    ended = FinishTurn(
        turn_id=turn.turn_id,
        session_id=turn.session_id,
        status=turn.status,
        assistant_message=turn.assistant_message,
        reasoning=turn.reasoning,
        usage=turn.usage,
        finished_at=turn.finished_at or turn.started_at,
    )
    return found | finished_turn_properties(ended)


def to_turn(node: Row) -> Turn:
    """From a node's properties with its `calls` in order."""
    calls = tuple(to_tool_call(call | {"turnId": node["uuid"]}) for call in node["calls"])
    return to_record(Turn, node, tool_calls=calls)


def tool_call_properties(call: ToolCall) -> Properties:
    """Of a tool call with its result; its order stands on the relationship."""
    return properties(call) | {"resultSizeBytes": len(clean(call.result).encode())}


to_tool_call = partial(to_record, ToolCall)


def access_properties(access: FileAccess) -> Properties:
    """Of one access; the turn and the order come from its tool call."""
    return properties(access) | {"path": path_key(access.path)}


to_access = partial(to_record, FileAccess)


def summary_row(summary: Summary) -> Properties:
    """A summary among many; what it covers are its relationships."""
    return {
        "summaryId": summary.summary_id,
        "sessionId": summary.session_id,
        "level": summary.level,
        "properties": properties(summary) | {"charCount": len(clean(summary.text))},
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


to_summary = partial(to_record, Summary)
to_project = partial(to_record, Project)


# --- what stands on nodes and relationships ---------------------------------------------

Kind = Literal["text", "texts", "whole", "number", "flag", "time", "turn_status", "session_status"]
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
_KINDS: dict[Any, Kind] = {
    TurnStatus: "turn_status",
    SessionStatus: "session_status",
    str: "text",
    tuple[str, ...]: "texts",
    int: "whole",
    float: "number",
    bool: "flag",
    datetime: "time",
}
"""By the type of a field."""
_UNKNOWN: Mapping[Kind, str] = MappingProxyType(
    {"turn_status": "interrupted", "session_status": "active"}
)
"""What stands for a word that is none of them: a turn keeps what it has, and a session is found."""


class Shape(NamedTuple):
    """Nodes of a label, or relationships of a type, and what is known of them."""

    label: str
    key: str
    """What it is told by; of a node also what nothing else may have."""
    kinds: Mapping[str, Kind]
    """What each property holds."""
    record: type[msgspec.Struct] | None = None
    called: str = ""
    """What one is called, with its article."""
    fill: Mapping[str, str] = MappingProxyType({})
    """What has to be there; and what, in Cypher, stands for it on `n` where it is not."""
    held_by: str = ""
    """The relationship from the session that it says."""
    place: str = ""
    """Of that relationship the property which `n` says too, and where."""
    time: str = ""
    """The property that says when it was: of two under one id the later one stays."""
    also_wrong: str = ""
    """What else, in Cypher on `n`, counts as a field that is missing."""
    is_told: bool = True
    """Whether one that is there twice gets an id of its own; else it is set aside."""

    @property
    def is_node(self) -> bool:
        """Whether it is the name of a label."""
        return not self.label.isupper()

    @property
    def lacking(self) -> str:
        """The condition, in Cypher on `n`, that something of it is not there."""
        found = [f"n.{name} IS NULL" for name in (self.key, *self.fill)]
        return " OR ".join([*found, self.also_wrong] if self.also_wrong else found)

    @property
    def own_id(self) -> str:
        """The statement by which one of the nodes with an id keeps it, and the others get new ones.

        Those that need not be told apart are set aside instead, under another label.
        """
        later = f"n.{self.time} IS NULL, n.{self.time} DESC, " if self.time else ""
        order = "COUNT { (n)--() } DESC, " if self.is_told else later
        change = f"REMOVE n:{self.label} SET n:Salvaged{self.label}"
        told = "coalesce(id, '?')"
        if self.is_told:
            change = f"SET n.{self.key} = randomUUID()"
            told += f" + ' is ' + n.{self.key} + ' now'"
        return f"""
            MATCH (n:{self.label})
            WITH n.{self.key} AS id, n
            ORDER BY {order}elementId(n)
            WITH id, collect(n) AS nodes
            UNWIND CASE WHEN id IS NULL THEN nodes ELSE nodes[1..] END AS n
            {change}
            RETURN collect({told}) AS found
            """

    @property
    def wrong(self) -> str:
        """The statement that lists the nodes with a property that is not of its kind."""
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
            MATCH {f"(n:{self.label})" if self.is_node else f"()-[n:{self.label}]->()"}
            WHERE NOT ({" AND ".join(rights)})
            RETURN collect([elementId(n), n{{{held}}}]) AS found
            """


def _shape(
    label: str, key: str, record: type[msgspec.Struct] | None = None, more: str = "", **told: Any
) -> Shape:
    """`more`: properties that are in no field, after the name of what they hold and a colon."""
    without = told.pop("without", "").split()
    kinds: dict[str, Kind] = {}
    for field in _fields(record) if record else ():
        for each in _fields(field.part) if field.part else (field,):
            if each.kind and each.prop not in without:
                kinds[each.prop] = each.kind
    for part in more.split(";") if more else ():
        kind, _, names = part.partition(":")
        kinds |= dict.fromkeys(names.split(), kind.strip())  # type: ignore[arg-type]
    return Shape(label, key, kinds, record, **told)


_EMPTY: Mapping[Kind, str] = MappingProxyType(
    {"text": "''", "texts": "[]", "whole": "0", "number": "0", "flag": "false", "time": "$at"}
)
"""What stands, in Cypher, for a property that is missing of which nothing else is known."""


def _of_a_session(kind: OfASession) -> Shape:
    """Its nodes bear the record's name, and hang on their session."""
    label = kind.record.__name__
    fields = {each.name: each for each in _fields(kind.record) if each.name != "session_id"}
    needed = [each for each in fields.values() if each.kind and not each.is_optional]
    return _shape(
        label, "sessionId", kind.record, called=kind.called, held_by=f"HAS_{label.upper()}",
        is_told=False, time=fields[kind.changed_at].prop,
        fill={each.prop: _EMPTY[each.kind] for each in needed if each.kind},
    )  # fmt: skip


_AT = "coalesce(n.startTime, n.updatedAt, n.lastActivity, $at)"
SHAPES = (
    _shape(
        "RagmemSchema", "name", more="text: name embedder; "
        "whole: version termsVersion sequence epoch memoriesRevision dimension",
        called="a mark of the schema", is_told=False, time="version",
    ),
    _shape(
        "Owner", "ownerId", Owner, called="an owner", is_told=False, time="updatedAt",
    ),
    _shape("Project", "projectId", Project, called="a project"),
    _shape(
        "ConversationSession", "sessionId", Session,
        "text: titleFolded lastTurnId summaryEmbedder; flag: rollUpDue; whole: summaryDimension; "
        "time: summaryVectorsDue", without="firstMessage lastMessage", called="a session",
        fill={
            "cwd": "'/'", "projectId": "'salvaged'", "title": "$title",
            "titleFolded": "toLower(n.title)", "tags": "[]", "status": "'active'",
            "startTime": _AT, "updatedAt": "n.startTime", "lastActivity": "n.startTime",
            "turnCount": "0", "messageCount": "0",
        },
    ),
    _shape(
        "ConversationTurn", "uuid", Turn,
        "whole: level tokenCount charCount userCharCount; flag: referencesKnown; "
        "time: memoriesDue",
        called="a turn", held_by="HAS_TURN", place="index: turnIndex", time="timestamp",
        fill={
            "sessionId": "coalesce(s.sessionId, $salvagedId)",
            "turnIndex": "coalesce(h.index, 0)",
            "userMessage": "''", "assistantMessage": "''",
            "status": "CASE WHEN n.finishedAt IS NULL THEN 'interrupted' ELSE 'completed' END",
            "timestamp": "coalesce(n.finishedAt, s.startTime, $at)", "level": "0",
            "userCharCount": "size(n.userMessage)",
            "charCount": "size(n.userMessage) + size(n.assistantMessage)",
            "modelCalls": "0", "apiMs": "0",
        },
    ),
    _shape(
        "ToolCall", "uuid", ToolCall, "whole: resultSizeBytes", without="order turnId",
        called="a tool call",
        fill={
            "toolName": "'unknown'", "toolArgs": "'{}'", "toolResult": "'{}'", "success": "false",
            "durationMs": "0", "timestamp": "$at", "iteration": "0", "origin": "'model'",
            "preamble": "''",
        },
        also_wrong="EXISTS { (n)<-[h:HAS_TOOL_CALL]-() WHERE h.order IS NULL }",
    ),
    _shape("File", "path", more="text: projectId path language hash"),
    _shape(
        "ConversationSummary", "uuid", Summary, "text: waitsIn; whole: charCount",
        without="covers", called="a summary", held_by="HAS_SUMMARY", place="level: level",
        time="timestamp",
        fill={
            "sessionId": "coalesce(s.sessionId, $salvagedId)", "summary": "''", "level": "1",
            "turnCount": "COUNT { (n)-[:SUMMARIZES]->() }", "filesMentioned": "[]",
            "keyFindings": "[]", "toolsUsed": "[]", "topics": "[]", "timestamp": "$at",
            "extractive": "true",
        },
    ),
    _shape(
        "SearchEntry", "recordId",
        more="text: recordId projectId sessionId terms termsHash textHash embedder; "
        "whole: level turnIndex termsVersion number sequence dimension; "
        "time: at vectorsDue summaryDue referencesDue",
    ),
    _shape(
        "Memory", "uuid", MemoryRecord,
        "text: scope embedder; texts: evidence sessionIds; whole: dimension; time: vectorsDue",
        called="a memory",
        # As little as can be: nobody knows any more who vouches for it.
        fill={
            "kind": "'fact'", "content": "''", "subjects": "[]", "trust": "'tool'",
            "source": "'conversation'", "pinned": "false",
            "createdAt": "coalesce(n.updatedAt, $at)", "updatedAt": "n.createdAt",
            "evidence": "[]", "sessionIds": "[]",
            "scope": "CASE WHEN n.projectId IS NULL THEN 'user' ELSE 'project' END",
        },
        also_wrong="(n.scope = 'user') = (n.projectId IS NOT NULL)",
    ),
    _shape(
        "UserProfile", "userId", more="text: userId profileJson; time: updatedAt",
        called="a profile", is_told=False, time="updatedAt",
    ),
    *map(_of_a_session, OF_SESSIONS),
    _shape(
        "Scope", "scopeId", CodeScope, "text: nameKey qualifiedKey tailKey projectId path",
        called="a scope",
        # No text has that hash: the next look at the file puts the right one.
        fill={
            "kind": "'text'", "name": "''", "qualifiedName": "n.name",
            "nameKey": "toLower(n.name)", "qualifiedKey": "toLower(n.qualifiedName)",
            "tailKey": "last(split(n.qualifiedKey, '.'))", "signature": "''", "docstring": "''",
            "startLine": "coalesce(n.endLine, 1)", "endLine": "n.startLine", "hash": "''",
            "projectId": "'salvaged'", "path": "''",
        },
    ),
    _shape(
        "Attempt", "item", Attempts,
        called="a count of attempts", is_told=False, time="count",
    ),
    _shape(
        "CodeProject", "projectId", more="text: projectId", called="a project with code",
        is_told=False,
    ),
    _shape("HAS_TURN", "index", more="whole: index"),
    _shape("HAS_TOOL_CALL", "order", more="whole: order"),
    _shape(
        "ACCESSED", "toolCallId", more="text: toolCallId toolName type; whole: order; time: at"
    ),
    _shape("REMEMBERS", "quote", Evidence, "whole: position", without="turnId"),
)  # fmt: skip
NODES = tuple(each for each in SHAPES if each.called)
"""Those of which a second one under the same id breaks a promise."""


def shape_of(record: type) -> Shape:
    """What is known of the nodes of a kind of record."""
    return next(each for each in SHAPES if each.record is record)


OF_A_SESSION = tuple(shape_of(each.record) for each in OF_SESSIONS)
"""The nodes of which a session has one of each label."""


# --- what stands there otherwise --------------------------------------------------------

TIMES = "times are in UTC"
TYPES = "properties are of their types"
_AT_ONCE = 1_000


class Wrong(NamedTuple):
    """What stands otherwise on one node or relationship."""

    shape: Shape
    element_id: str
    key: object
    values: Mapping[str, Any]
    """Those of a wrong type."""
    times: Mapping[str, datetime]
    """All that are there, if one is in another zone and none of its properties is mistyped."""

    def __str__(self) -> str:
        """As it is told."""
        names = ", ".join(self.values or self.times)
        return f"{self.shape.label} {self.key if isinstance(self.key, str) else '?'} ({names})"


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
    for shape in SHAPES:
        # Each by itself: the deadline is for one.
        rows = await gateway.read(partial(Transaction.found, statement=shape.wrong))
        found += [_told(shape, *row) for row in rows]
    return found


def _told(shape: Shape, element_id: str, held: Mapping[str, Any]) -> Wrong:
    given = {name: value for name, value in held.items() if value is not None}
    wrong = {
        name: value for name, value in given.items() if not _is_right(shape.kinds[name], value)
    }
    times = {
        name: value
        for name, value in given.items()
        if shape.kinds[name] == "time" and name not in wrong
    }
    return Wrong(shape, element_id, held.get(shape.key), wrong, {} if wrong else times)


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
            if wrong.shape.is_node == is_node
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
        kind = wrong.shape.kinds[name]
        # One that became an id might be another's: the next steps give a new one.
        right = None if name == wrong.shape.key else _right(kind, value)
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

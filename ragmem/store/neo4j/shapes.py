"""How each kind of record is represented in the graph: label, properties, and their types.

A property has its field's name in camelCase, unless `_NAMES` has another one. From this one
description follow the conversions between records and nodes, the checks, and the repairs: community
servers don't support type constraints, and somebody who edits the graph may set any type, or omit a
property.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from ragmem.records import (
    OF_SESSIONS,
    Attempts,
    CodeScope,
    Evidence,
    FileAccess,
    FinishTurn,
    MemoryRecord,
    OfASession,
    Owner,
    Project,
    Session,
    Summary,
    ToolCall,
    Turn,
    Usage,
)
from ragmem.store.neo4j.gateway import Gateway, Row, Transaction, Value
from ragmem.text import clean, clip_middle

Properties = dict[str, Value]
R = TypeVar("R", bound=msgspec.Struct)

# Neo4j can't index more than about 8,100 bytes, and rejects the whole transaction then.
_INDEXED_CHARS = 1700
_INDEXED_BYTES = 4 * _INDEXED_CHARS


def title_key(title: str) -> str:
    """Return the key a title is found by: casefolded, and short enough for an index."""
    folded = clean(title).casefold()
    if len(folded) <= _INDEXED_CHARS:
        return folded
    return f"sha256:{hashlib.sha256(folded.encode()).hexdigest()}"


def path_key(path: str) -> str:
    """Return the path; one longer than any system opens is clipped in its middle."""
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
"""Names of properties that differ from their field's, by field."""
_ELSEWHERE: dict[type, frozenset[str]] = {
    Session: frozenset(("turn_count", "message_count", "first_message", "last_message")),
    ToolCall: frozenset(("turn_id", "order")),
    FileAccess: frozenset(("turn_index", "order")),
    Summary: frozenset(("covers",)),
    Evidence: frozenset(("turn_id",)),
}
"""Fields that are not properties of the node, but counted, or read from its relationships."""


_types = cache(get_type_hints)
_infos = cache(msgspec.structs.fields)


class _Field(NamedTuple):
    name: str
    prop: str
    kind: "Kind | None"
    """The type of its value; None for a nested record."""
    part: type[msgspec.Struct] | None = None
    """The nested record, whose fields are properties of the same node."""
    is_elsewhere: bool = False
    is_optional: bool = False
    words: tuple[str, ...] = ()
    """The allowed values of a text, if it is one of a few."""


@cache
def _fields(record: type[msgspec.Struct]) -> tuple[_Field, ...]:
    names = _NAMES.get(record, {})
    elsewhere = _ELSEWHERE.get(record, frozenset())
    types = _types(record)
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
        words = get_args(held) if get_origin(held) is Literal else ()
        kind: Kind | None = "text" if words else _KINDS.get(held)
        found.append(_Field(name, prop, kind, part, name in elsewhere, is_optional, words))
    return tuple(found)


def properties(record: msgspec.Struct, kind: type[msgspec.Struct] | None = None) -> Properties:
    """Return a record's properties; for a write of some of a record's fields, as in its `kind`."""
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
    """Return the record of a node's properties, with the fields in `given`.

    Raises ValidationError if a property has another type, or is missing.
    """
    for prop in _needed(kind):
        if node.get(prop) is None:
            raise msgspec.ValidationError(f"There is no {prop}.")
    return msgspec.convert(_values(kind, node) | given, kind)


def records(tx: Transaction, kind: type[R], nodes: Sequence[Any]) -> list[R]:
    """Return the records of these nodes, without those that can't be decoded."""
    return tx.read.records(partial(to_record, kind), nodes)


@cache
def _needed(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the properties that a node must have, even where its field has a default."""
    needs = next((each.needs for each in SHAPES if each.record is kind), frozenset[str]())
    return tuple(field.prop for field in _fields(kind) if field.prop in needs)


def _values(kind: type[msgspec.Struct], node: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in _fields(kind):
        if field.part is not None:
            found[field.name] = _values(field.part, node)
        elif (value := node.get(field.prop)) is not None:
            found[field.name] = value
    return found


def session_properties(session: Session) -> Properties:
    """Return the properties of a new session; those that are derived start empty."""
    return properties(session) | {
        "titleFolded": title_key(session.title),
        "owner": session.owner or None,
        "lastActivity": session.started_at,
        "turnCount": 0,
        "messageCount": 0,
    }


def turn_properties(turn: Turn) -> Properties:
    """Return the properties of a whole turn from elsewhere, with its index."""
    ended = turn.status != "running"
    said = len(clean(turn.user_message))
    found = properties(turn) | _token_count(turn.usage)
    return found | {
        "assistantMessage": clean(turn.assistant_message),
        "finishedAt": (turn.finished_at or turn.started_at) if ended else None,
        "ownerId": None if ended else turn.owner_id,
        "level": 0,
        "userCharCount": said,
        "charCount": said + len(clean(turn.assistant_message)),
    }


def finished_turn_properties(write: FinishTurn) -> Properties:
    """Return the properties that the end of a turn sets, except the model."""
    found = properties(write, Turn) | _token_count(write.usage) | {"ownerId": None}
    del found["model"]
    return found


def _token_count(usage: Usage) -> Properties:
    counted = [n for n in (usage.input_tokens, usage.output_tokens) if n is not None]
    return {"tokenCount": sum(counted) if counted else None}


def to_turn(node: Row) -> Turn:
    """Return the turn of a node's properties, with its `calls` in order."""
    of_turn = {"turnId": node["uuid"]}
    calls = tuple(to_record(ToolCall, call | of_turn) for call in node["calls"])
    return to_record(Turn, node, tool_calls=calls)


def tool_call_properties(call: ToolCall) -> Properties:
    """Return a tool call's properties; its order is on the relationship."""
    return properties(call) | {"resultSizeBytes": len(clean(call.result).encode())}


# --- nodes and relationships ------------------------------------------------------------

Kind = Literal["text", "texts", "whole", "number", "flag", "time"]
_TYPES: dict[Kind, str] = {
    "text": "STRING",
    "texts": "LIST<STRING NOT NULL>",
    "whole": "INTEGER",
    "number": "INTEGER | FLOAT",
    "flag": "BOOLEAN",
    "time": "ZONED DATETIME",
}
_KINDS: dict[Any, Kind] = {
    str: "text",
    tuple[str, ...]: "texts",
    int: "whole",
    float: "number",
    bool: "flag",
    datetime: "time",
}
"""By the type of the field."""


class Shape(NamedTuple):
    """A label of nodes, or a type of relationships, with its properties."""

    label: str
    key: str
    """The property that identifies it; unique among nodes of the label."""
    kinds: Mapping[str, Kind]
    """The type of each property."""
    words: Mapping[str, list[str]]
    """The allowed values of a property, if it is one of a few."""
    record: type[msgspec.Struct] | None = None
    called: str = ""
    """The noun for one of them, with its article."""
    needs: frozenset[str] = frozenset()
    """Required properties, besides the key."""
    held_by: str = ""
    """The relationship from the session whose id it has."""
    also_wrong: str = ""
    """A condition on `n`, in Cypher, that counts as a missing field too."""

    @property
    def matched(self) -> str:
        """The pattern, in Cypher, of all nodes or relationships of the label or type, as `n`."""
        return f"()-[n:{self.label}]->()" if self.label.isupper() else f"(n:{self.label})"

    @property
    def lacking(self) -> str:
        """The condition on `n`, in Cypher, that a required field is missing."""
        found = [f"n.{name} IS NULL" for name in sorted({self.key, *self.needs})]
        return " OR ".join([*found, self.also_wrong] if self.also_wrong else found)

    @property
    def times(self) -> list[str]:
        """Return the names of the properties that hold times."""
        return [name for name, kind in self.kinds.items() if kind == "time"]

    @property
    def mistyped(self) -> str:
        """The statement that lists those with properties of another type."""
        names = " + ".join(
            f"CASE WHEN n.{name} IS :: {_TYPES[kind]}"
            + (f" AND coalesce(n.{name} IN {self.words[name]}, true)" if name in self.words else "")
            + f" THEN [] ELSE ['{name}'] END"
            for name, kind in self.kinds.items()
        )
        return f"""
            MATCH {self.matched}
            WITH n.{self.key} AS key, {names} AS names
            WHERE names <> []
            WITH CASE WHEN key IS :: STRING NOT NULL THEN key ELSE '?' END AS key, names
            RETURN collect('{self.label} ' + key + ' (' + reduce(
              text = names[0], name IN names[1..] | text + ', ' + name) + ')') AS found
            """

    @property
    def in_utc(self) -> str:
        """The statement that converts times of other zones to UTC."""
        changes = ", ".join(
            f"n.{name} = CASE WHEN n.{name} IS :: ZONED DATETIME NOT NULL"
            f" THEN datetime({{datetime: n.{name}, timezone: 'Z'}}) ELSE n.{name} END"
            for name in self.times
        )
        wrong = " OR ".join(f"NOT toStringOrNull(n.{name}) ENDS WITH 'Z'" for name in self.times)
        return f"MATCH {self.matched} WHERE {wrong} SET {changes}"


def _shape(
    label: str, key: str, record: type[msgspec.Struct] | None = None, more: str = "", **options: Any
) -> Shape:
    """Make the shape of a record, with properties that are not fields from `more`.

    These are given as `type: names; type: names`. With `whole`, all fields that are not optional
    are required, except those in `lacks`.
    """
    named = {name: options.pop(name, "").split() for name in ("without", "needs", "lacks")}
    needs, is_whole = set(named["needs"]), options.pop("whole", False)
    kinds: dict[str, Kind] = {}
    words: dict[str, list[str]] = {}
    for field in _fields(record) if record else ():
        for each in _fields(field.part) if field.part else (field,):
            if each.kind and each.prop not in named["without"]:
                kinds[each.prop] = each.kind
                if each.words:
                    words[each.prop] = list(each.words)
                if is_whole and not each.is_optional and each.prop not in (key, *named["lacks"]):
                    needs.add(each.prop)
    for part in more.split(";") if more else ():
        kind, _, names = part.partition(":")
        kinds |= dict.fromkeys(names.split(), kind.strip())  # type: ignore[arg-type]
    return Shape(label, key, kinds, words, record, needs=frozenset(needs), **options)


def _of_a_session(kind: OfASession) -> Shape:
    """Return the shape of a kind that a session has one of: labelled with the record's name."""
    label = kind.record.__name__
    hangs = f"HAS_{label.upper()}"
    return _shape(label, "sessionId", kind.record, called=kind.called, held_by=hangs, whole=True)


SHAPES = (
    _shape(
        "RagmemSchema", "name", more="text: name embedder; "
        "whole: version termsVersion sequence epoch memoriesRevision dimension",
        called="a mark of the schema",
    ),
    _shape("Owner", "ownerId", Owner, called="an owner"),
    _shape("Project", "projectId", Project, called="a project"),
    _shape(
        "ConversationSession", "sessionId", Session,
        "text: titleFolded lastTurnId summaryEmbedder; flag: rollUpDue; whole: summaryDimension; "
        "time: summaryVectorsDue", without="firstMessage lastMessage", called="a session",
        whole=True, lacks="summarizedCount owner", needs="titleFolded",
    ),
    _shape(
        "ConversationTurn", "uuid", Turn,
        "whole: level tokenCount charCount userCharCount; flag: referencesKnown; "
        "time: memoriesDue",
        called="a turn", held_by="HAS_TURN", whole=True, needs="level userCharCount charCount",
    ),
    _shape(
        "ToolCall", "uuid", ToolCall, "whole: resultSizeBytes", without="order turnId",
        called="a tool call", whole=True,
        also_wrong="EXISTS { (n)<-[h:HAS_TOOL_CALL]-() WHERE h.order IS NULL }",
    ),
    _shape("File", "path", more="text: projectId path language hash"),
    _shape(
        "ConversationSummary", "uuid", Summary, "text: waitsIn; whole: charCount",
        without="covers", called="a summary", held_by="HAS_SUMMARY", whole=True,
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
        called="a memory", whole=True, lacks="owner", needs="evidence sessionIds scope",
        also_wrong="(n.scope = 'user') = (n.projectId IS NOT NULL)",
    ),
    _shape(
        "UserProfile", "userId", more="text: userId profileJson; time: updatedAt",
        called="a profile",
    ),
    *map(_of_a_session, OF_SESSIONS),
    _shape(
        "Scope", "scopeId", CodeScope, "text: nameKey qualifiedKey tailKey projectId path",
        called="a scope", whole=True, needs="nameKey qualifiedKey tailKey projectId path",
    ),
    _shape("Attempt", "item", Attempts, called="a count of attempts"),
    _shape("CodeProject", "projectId", more="text: projectId", called="a project with code"),
    _shape("HAS_TURN", "index", more="whole: index"),
    _shape("HAS_TOOL_CALL", "order", more="whole: order"),
    _shape(
        "ACCESSED", "toolCallId", FileAccess, "text: toolCallId; whole: order",
        without="path turnIndex",
    ),
    _shape("REMEMBERS", "quote", Evidence, "whole: position", without="turnId"),
)  # fmt: skip
NODES = tuple(each for each in SHAPES if each.called)
"""Nodes of which two with the same id break a guarantee."""


def shape_of(record: type) -> Shape:
    """Return the shape of the nodes of a kind of record."""
    return next(each for each in SHAPES if each.record is record)


OF_A_SESSION = tuple(shape_of(each.record) for each in OF_SESSIONS)
"""The nodes of which a session has one per label."""


# --- wrong types ------------------------------------------------------------------------

TYPES = "properties are of their types"


async def mistyped(gateway: Gateway) -> list[str]:
    """List the properties of a wrong type."""
    # One read for each shape: the deadline applies to one.
    return [each for shape in SHAPES for each in await gateway.found(shape.mistyped)]


async def bring_into_utc(gateway: Gateway) -> None:
    """Convert times of other zones to UTC, as graphs older than schema 6 may have."""
    for shape in SHAPES:
        if shape.times:
            await gateway.run(shape.in_utc)


_DEFAULTS: dict[Kind, Any] = {"text": "", "texts": (), "whole": 0, "number": 0, "flag": False}
"""The value of a required property that is unknown."""
_SAFER_DEFAULTS: dict[type, dict[str, Any]] = {
    Session: {"cwd": "/", "project_id": "salvaged"},
    Turn: {"status": "interrupted"},
    FileAccess: {"access_type": "read"},
    Summary: {"level": 1},
    # It is unknown who vouches for it.
    MemoryRecord: {"trust": "tool"},
}
"""The same for single fields, where another value is safer."""


def salvaged(kind: type[R], node: Mapping[str, Any], at: datetime, **given: Any) -> R:
    """Return the record of a node, whatever is wrong with it, with the fields in `given`.

    What can't be decoded counts as missing; `at` replaces a missing required time.
    """
    return msgspec.convert(_readable(kind, node, at) | given, kind)


def _readable(kind: type[msgspec.Struct], node: Mapping[str, Any], at: datetime) -> dict[str, Any]:
    found: dict[str, Any] = dict(_SAFER_DEFAULTS.get(kind, {}))
    types = _types(kind)
    for field, info in zip(_fields(kind), _infos(kind), strict=True):
        if field.part is not None:
            found[field.name] = _readable(field.part, node, at)
            continue
        if field.is_elsewhere or field.kind is None:
            continue
        value = node.get(field.prop)
        if field.kind == "text" and value is not None:
            value = str(value)
        try:
            found[field.name] = msgspec.convert(value, types[field.name])
        except msgspec.ValidationError:
            if info.required:
                found.setdefault(field.name, _DEFAULTS.get(field.kind, at))
    return found

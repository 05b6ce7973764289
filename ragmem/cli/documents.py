"""What `--format json` and `--output-format json` print: documents of stable snake_case keys.

Each kind is a line of names; `document` makes one of whatever records have fields of these names.
A time is a datetime, null what there is none of.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragmem.events import TurnFinished
from ragmem.memory.hits import NOBODY
from ragmem.messages import Json
from ragmem.records import MemoryRecord, Session, Turn

if TYPE_CHECKING:
    from ragmem.memory.code_past import CodePast
    from ragmem.memory.facts.values import FactHit
    from ragmem.memory.hits import Hit

Document = dict[str, Any]

SESSION = (
    "session_id cwd project_id title status tags started_at last_activity_at turn_count"
    " last_message"
)
_TURN = (
    "uuid turn_index user_message assistant_message status timestamp tool_calls"  # and reasoning
)
_CALL = "tool_name arguments result success duration_ms"
_RESULT = (
    "type subtype is_error session_id turn_id num_turns duration_ms duration_api_ms result error"
    " model usage total_cost_usd permission_denials structured_output context"
)
HIT = (
    "type id session_id turn_index level text path name start_line end_line score similarity"
    " timestamp why"
)
"""Of type `turn`, `summary`, `memory` or `scope`; level 0 is a turn, 1 and up are summaries.
`score` is comparable among hits of one type of one search only."""
CODE_SESSION = "session_id title how turn_count last_at"
"""`how`: `edited`, `changed` (the file), `read`, `found`, `named`, `listed`, the strongest first;
`turn_count`: turns that had to do with it."""
_MEMORY = "id kind content subjects trust scope pinned created_at expires_at superseded_by said_by"
"""`said_by`: the name of another person, who has made it known."""


def document(names: str, *records: object, **others: object) -> Document:
    """The values of these names in their order: of `others`, else of the first record with one."""

    def value(name: str) -> object:
        return next((getattr(each, name) for each in records if hasattr(each, name)), None)

    return {name: others[name] if name in others else value(name) for name in names.split()}


def result_document(finished: TurnFinished) -> Document:
    """How the turn ended; an interrupted one is an error during execution."""
    usage = finished.usage
    error = finished.error or ("interrupted" if finished.subtype == "interrupted" else "")
    return document(
        _RESULT,
        finished,
        type="result",
        subtype="error_during_execution" if finished.subtype == "interrupted" else finished.subtype,
        num_turns=usage.model_calls,
        duration_api_ms=usage.api_ms,
        error=f"{error} {finished.hint}".strip() or None,
        usage=document("input_tokens output_tokens cached_tokens", usage),
        total_cost_usd=usage.cost_usd,
        permission_denials=[
            document("tool_name tool_use_id tool_input", each, tool_input=parsed(each.arguments))
            for each in finished.permission_denials
        ],
    )


def conversation_document(
    session: Session, turns: Sequence[Turn], *, reasoning: bool = False
) -> Document:
    """A session with its turns; with their reasoning where that is asked for."""
    names = f"{_TURN} reasoning" if reasoning else _TURN
    return document(
        f"{SESSION} turns",
        session,
        turns=[
            document(
                names,
                turn,
                uuid=turn.turn_id,
                timestamp=turn.started_at,
                tool_calls=[
                    document(
                        _CALL,
                        call,
                        arguments=parsed(call.arguments),
                        result=parsed(call.result) if call.result else None,
                    )
                    for call in turn.tool_calls
                ],
            )
            for turn in turns
        ],
    )


def hit_document(hit: "Hit | FactHit") -> Document:
    """A turn, summary or memory that was found; of a memory, where it was said first."""
    from ragmem.memory.hits import Hit

    if isinstance(hit, Hit):
        said = hit.summary.text if hit.summary else ""
        if hit.turn:
            said = f"User: {hit.turn.user_message}\nAssistant: {hit.turn.assistant_message}"
        own: Document = {"id": hit.record_id, "text": said, "timestamp": hit.at}
        return document(HIT, hit, hit.turn, **own)
    memory = hit.memory
    evidence = memory.evidence[0] if memory.evidence else None
    return document(
        HIT,
        hit,
        type="memory",
        id=memory.memory_id,
        session_id=(evidence and evidence.session_id) or None,
        turn_index=(evidence and evidence.turn_index) or None,
        text=memory.content,
        path=next((each.path for each in memory.evidence if each.path), None),
        timestamp=memory.created_at,
    )


def code_session_documents(past: "CodePast") -> list[Document]:
    """The sessions that had to do with some code, newest first."""
    return [document(CODE_SESSION, each, each.session, how=each.hows) for each in past.sessions]


def memory_document(
    memory: MemoryRecord, people: Mapping[str, str] = NOBODY, more: str = ""
) -> Document:
    """A memory; `people` are others, by id. `more`: `evidence`, or `occurred_at`.

    That is when it happened or is due, and when it was said where nobody knows.
    """
    places = ("session_id", "turn_index", "tool_name", "path")
    return document(
        f"{_MEMORY} {more}",
        memory,
        id=memory.memory_id,
        said_by=people.get(memory.owner),
        occurred_at=memory.at or memory.created_at,
        evidence=[
            {name: getattr(each, name) or None for name in places} for each in memory.evidence
        ],
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

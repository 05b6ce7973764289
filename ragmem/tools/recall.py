"""`recall_result`: what a tool answered earlier, brought back from memory."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec

from ragmem.memory.window import result_text
from ragmem.records import ToolCall
from ragmem.text import one_line
from ragmem.tools.base import Effect, ToolFailure, ToolOutput

FindCall = Callable[[str], Awaitable[ToolCall | None]]
"""A tool call of this session by the end of its id."""

_MOST = 20_000


class RecallResultParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of recall_result."""

    id: Annotated[
        str,
        msgspec.Meta(
            description="As it stands where the result was left out.", min_length=6, max_length=64
        ),
    ]
    offset: Annotated[int, msgspec.Meta(description="Characters to skip.", ge=0)] = 0
    limit: Annotated[int, msgspec.Meta(description="Characters to bring.", ge=1, le=_MOST)] = _MOST


class RecallResult:
    """Brings back a result that was left out of the request."""

    name = "recall_result"
    description = (
        "Bring back what an earlier tool call of this conversation answered, by the id that stands "
        f"where its result was left out; at most {_MOST:,} characters a call."
    )
    effect: Effect = "read"
    Params: type[msgspec.Struct] = RecallResultParams

    def __init__(self, find: FindCall) -> None:
        self._find = find

    def title(self, params: RecallResultParams) -> str:
        """The id."""
        return params.id

    async def run(self, params: RecallResultParams) -> ToolOutput:
        """A part of the stored result, with what it was and how long it is."""
        call = await self._find(params.id)
        if call is None:
            raise ToolFailure(
                f"No tool call of this conversation has the id {one_line(params.id, 64)!r}. "
                "Use an id exactly as it stands where a result was left out."
            )
        text = result_text(call)
        if params.offset and params.offset >= len(text):
            raise ToolFailure(f"That result has {len(text):,} characters; offset is past its end.")
        end = min(len(text), params.offset + params.limit)
        more = f"; go on with offset {end}" if end < len(text) else ""
        head = (
            f"[{call.tool_name} {one_line(call.arguments, 200)}: characters {params.offset:,} to "
            f"{end:,} of {len(text):,}{more}]"
        )
        return ToolOutput(
            text=f"{head}\n{text[params.offset : end]}",
            display=f"{call.tool_name}, {end - params.offset:,} of {len(text):,} characters",
        )

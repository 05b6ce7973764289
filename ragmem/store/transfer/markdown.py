"""One session as Markdown, for people; the JSON document is what can be imported."""

import re

from ragmem.records import ToolCall
from ragmem.store.transfer.document import SessionDocument
from ragmem.text import clip_middle, one_line, visible

_RESULT_CHARS = 4000


def markdown(document: SessionDocument) -> str:
    """Everything that was said, with the tool calls; long results are clipped."""
    session = document.session
    lines = [
        f"# {one_line(session.title, 200)}",
        "",
        f"Session `{session.session_id}` in `{one_line(session.cwd, 400)}`, "
        f"started {session.started_at:%Y-%m-%d %H:%M} UTC.",
    ]
    for turn in document.turns:
        mark = "" if turn.status == "completed" else f" ({turn.status})"
        lines += ["", f"## {turn.turn_index}{mark}", "", *_quoted(turn.user_message)]
        for call in turn.tool_calls:
            lines += ["", *_call(call)]
        if turn.assistant_message:
            lines += ["", visible(turn.assistant_message)]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> list[str]:
    return [f"> {line}".rstrip() for line in visible(text).split("\n")]


def _call(call: ToolCall) -> list[str]:
    failed = "" if call.success else f" — failed: {one_line(call.error or '', 200)}"
    result = visible(clip_middle(call.result, _RESULT_CHARS))
    longest = max((len(found) for found in re.findall("`+", result)), default=0)
    fence = "`" * max(3, longest + 1)
    before = [visible(call.preamble), ""] if call.preamble else []
    arguments = one_line(call.arguments, 400).replace("`", "'")
    return [*before, f"**{call.tool_name}** `{arguments}`{failed}", "", fence, result, fence]

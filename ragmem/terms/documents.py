"""What of a turn is indexed, the same in every store."""

import msgspec

from ragmem.records import Summary, ToolCall, Turn
from ragmem.terms.expansion import terms
from ragmem.terms.languages import guess_language

RESULT_CHARS = 300
"""Of a tool's result: its beginning says what it was; the rest is in files, and finds them."""
ARGUMENT_CHARS = 2_000
"""Of each argument: a patch's lines count, a whole new file does not."""
MESSAGE_CHARS = 200_000
"""Of a message: more is a file that was pasted."""


class _Result(msgspec.Struct, frozen=True):
    text: str = ""


def turn_terms(turn: Turn) -> list[str]:
    """The index terms of a turn: what was asked and answered, and once each what was done.

    Each text in its own language; a French question can have an English answer. Tools
    repeat themselves: counted as often as they say it, their words outweigh the talk.
    """
    asked, answered = turn.user_message[:MESSAGE_CHARS], turn.assistant_message[:MESSAGE_CHARS]
    of_question, of_answer = guess_language(asked), guess_language(answered)
    out = terms(asked, language=of_question, beside=of_answer)
    out += terms(answered, language=of_answer, beside=of_question)
    done: dict[str, None] = {}
    for call in turn.tool_calls:
        done.update(dict.fromkeys(terms(condensed(call))))
    return out + list(done)


def summary_terms(summary: Summary) -> list[str]:
    """The index terms of a summary: what it says and found, its topics, the files that it names."""
    texts = (summary.text, *summary.key_findings, *summary.topics, *summary.files_mentioned)
    beside = guess_language(summary.text)
    return [term for text in texts for term in terms(text[:MESSAGE_CHARS], beside=beside)]


def condensed(call: ToolCall) -> str:
    """A tool call as text: its name, its arguments' values, and how its result begins."""
    return "\n".join((call.tool_name, *_values(call.arguments), _result(call.result)))


def _values(arguments: str) -> list[str]:
    try:
        decoded = msgspec.json.decode(arguments, type=dict[str, object])
    except msgspec.MsgspecError:
        return [arguments[:ARGUMENT_CHARS]]
    return [
        (v if isinstance(v, str) else msgspec.json.encode(v).decode())[:ARGUMENT_CHARS]
        for v in decoded.values()
    ]


def _result(result: str) -> str:
    try:
        return msgspec.json.decode(result, type=_Result).text[:RESULT_CHARS]
    except msgspec.MsgspecError:
        return result[:RESULT_CHARS]

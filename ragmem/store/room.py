"""How much of a turn is stored: a bound over all that is said, thought, called and answered."""

import json
from collections.abc import Iterator

import msgspec

from ragmem.records import ToolCall, Turn
from ragmem.redact import redact
from ragmem.text import clip_bytes

TURN_BYTES = 8 << 20
_FOR_THE_END = 1 << 20
"""Of them calls leave so much to the answer and what it was reasoned with."""
_SHARE = 8
"""A call takes at most one part in so many of what calls have left: a late one has room too."""


def fitted(turn: Turn) -> Turn:
    """A turn that was recorded elsewhere, within the bound."""
    if sum(map(_bytes, _texts(turn))) <= TURN_BYTES:
        return turn
    room = Room()
    said = room.said(turn.user_message)
    calls = tuple(room.call(call) for call in turn.tool_calls)
    answer, thoughts = room.end(turn.assistant_message, turn.reasoning or "")
    return msgspec.structs.replace(
        turn,
        user_message=said,
        tool_calls=calls,
        assistant_message=answer,
        reasoning=thoughts or None,
    )


def _texts(turn: Turn) -> Iterator[str]:
    yield from (turn.user_message, turn.assistant_message, turn.reasoning or "")
    for call in turn.tool_calls:
        yield from (call.arguments, call.result, call.preamble, call.error or "")


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


class Room:
    """What one turn has left; of a text with more the start and the end are kept, with a mark."""

    def __init__(self, most: int = TURN_BYTES) -> None:
        self._left = most
        self._end = most * _FOR_THE_END // TURN_BYTES

    def said(self, text: str) -> str:
        """What the person has said: at most half of all."""
        return self._taken(_cut(text, self._left // 2))

    def call(self, call: ToolCall) -> ToolCall:
        """A call that has ended."""
        return msgspec.structs.replace(
            call,
            arguments=self.arguments(call.arguments),
            preamble=self.words(call.preamble),
            result=self.result(call.result),
            error=call.error and self.words(call.error),
        )

    def arguments(self, text: str) -> str:
        """Those of a call: a JSON object, cut or not."""
        room = self._for_a_call
        return self._taken(text if _fits(text, room) else _cut_value({"cut": text}, "cut", room))

    def result(self, text: str) -> str:
        """That of a call: its text is cut, what else is told of it stays."""
        room = self._for_a_call
        if _fits(text, room):
            return self._taken(text)
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict) or not isinstance(told.get("text"), str):
            return self._taken(_cut(text, room))
        if not _fits(json.dumps({**told, "text": ""}), room):
            told = {"text": told["text"]}
        return self._taken(_cut_value(told, "text", room))

    def words(self, text: str) -> str:
        """What else a call has: the words before it, its error."""
        return self._taken(_cut(text, self._for_a_call))

    def so_far(self, answer: str) -> str:
        """What has come of the answer: it takes no room, since the whole answer will."""
        return _cut(answer, self._left)

    def end(self, answer: str, reasoning: str) -> tuple[str, str]:
        """The answer first, and what it was reasoned with in what that leaves."""
        answer = self._taken(_cut(answer, self._left))
        return answer, self._taken(_cut(reasoning, self._left))

    @property
    def _for_a_call(self) -> int:
        return max(0, self._left - self._end) // _SHARE

    def _taken(self, text: str) -> str:
        self._left -= min(self._left, _bytes(text))
        return text


def _fits(text: str, room: int) -> bool:
    return len(text) <= room and _bytes(text) <= room


def _cut(text: str, room: int) -> str:
    """Without secrets first: half of one would not be known for what it is."""
    return text if _fits(text, room) else clip_bytes(redact(text), room)


def _cut_value(values: dict[str, str], name: str, room: int) -> str:
    """As JSON within the room, as far as cutting one value does it: escapes take room too."""
    text, keep = redact(values[name]), room
    while True:
        found = json.dumps({**values, name: clip_bytes(text, keep)}, ensure_ascii=False)
        if keep < _SHARE or _fits(found, room):
            return found
        keep = keep * 3 // 4

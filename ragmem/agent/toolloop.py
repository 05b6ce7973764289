"""The messages of one turn's tool loop, kept within a limit however long it goes on.

Nothing that is left out of a request is lost: each result is stored, and the tool
`recall_result` brings it back by the id that stands in its place.
"""

from collections.abc import Sequence

import msgspec

from ragmem.messages import Message, TextPart, ToolAnswer, ToolUse, tool
from ragmem.text import clip_middle, one_line

_GOAL = (3, 4)
"""Past the limit it is cut to this part of it: in batches, so that the prefix changes rarely."""
_NOTE_SHARE = 8
"""The list of rounds that are gone takes at most one part in so many of the limit."""


class ToolLoop:
    """What is sent: the context, then each round of the model's calls and their answers.

    Past `limit` characters, in this order until it fits: the oldest results become
    one line each; the oldest rounds become one line of a list behind the prompt; the
    answers of the newest round are clipped in their middle.
    """

    def __init__(self, context: Sequence[Message], *, limit: int) -> None:
        self._context = list(context)
        self._limit = limit
        self._rounds: list[list[Message]] = []
        self._gone: list[str] = []
        self._condensed: set[str] = set()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The request."""
        own = [message for each in self._rounds for message in each]
        if not self._gone:
            return (*self._context, *own)
        prompt = self._context[-1]
        note = TextPart(self._note())
        prompt = msgspec.structs.replace(prompt, parts=(*prompt.parts, note))
        return (*self._context[:-1], prompt, *own)

    def add(self, messages: Sequence[Message]) -> None:
        """A round: a message of the model with calls, and an answer to each."""
        self._rounds.append(list(messages))
        self._fit()

    def shrink(self) -> bool:
        """Make do with half the room; false when there is nothing to be made smaller."""
        before = self._size
        self._limit //= 2
        self._fit()
        return self._size < before

    @property
    def _size(self) -> int:
        return sum(message.char_count for message in self.messages)

    def _fit(self) -> None:
        if self._size <= self._limit:
            return
        goal = self._limit * _GOAL[0] // _GOAL[1]
        self._condense_results(goal)
        if self._size > self._limit:
            self._drop_rounds(goal)
        if self._size > self._limit and self._rounds:
            self._clip_newest()

    def _condense_results(self, goal: int) -> None:
        over = self._size - goal
        for messages in self._rounds[:-1]:
            uses = {use.id: use for use in messages[0].tool_uses}
            for i, message in enumerate(messages):
                if over <= 0:
                    return
                part = message.parts[0]
                if not isinstance(part, ToolAnswer) or part.tool_use_id in self._condensed:
                    continue
                line = _in_place(part, uses[part.tool_use_id])
                if len(line) < len(part.text):
                    over -= len(part.text) - len(line)
                    messages[i] = tool(part.tool_use_id, line, is_error=part.is_error)
                    self._condensed.add(part.tool_use_id)

    def _drop_rounds(self, goal: int) -> None:
        size = self._size
        while size > goal and len(self._rounds) > 1:
            gone = self._rounds.pop(0)
            size -= sum(message.char_count for message in gone)
            said = one_line(gone[0].text, 200)
            self._gone += [f"- {said}"] if said else []
            self._gone += [f"- {_named(use)}, id {use.id}" for use in gone[0].tool_uses]

    def _note(self) -> str:
        room = self._limit // _NOTE_SHARE
        shown: list[str] = []
        for line in reversed(self._gone):
            room -= len(line) + 1
            if room < 0:
                break
            shown.insert(0, line)
        earlier = len(self._gone) - len(shown)
        return "\n".join(
            [
                "\n\n[Done earlier in this turn and left out to save room; recall_result brings a "
                "result back by its id:",
                *([f"- {earlier:,} more before these"] if earlier else []),
                *shown,
                "]",
            ]
        )

    def _clip_newest(self) -> None:
        newest = self._rounds[-1]
        answers = [m.parts[0] for m in newest if isinstance(m.parts[0], ToolAnswer)]
        taken = sum(len(answer.text) for answer in answers)
        room = max(0, self._limit - (self._size - taken))
        share = room // max(1, len(answers))
        for i, message in enumerate(newest):
            part = message.parts[0]
            if isinstance(part, ToolAnswer) and len(part.text) > share:
                hint = f"\n[recall_result brings all of it back: id {part.tool_use_id}]"
                text = clip_middle(part.text, max(0, share - len(hint))) + hint
                newest[i] = tool(part.tool_use_id, text, is_error=part.is_error)


def _in_place(answer: ToolAnswer, use: ToolUse) -> str:
    return (
        f"[{_named(use)}: {len(answer.text):,} characters left out to save room; "
        f"recall_result brings them back: id {use.id}]"
    )


def _named(use: ToolUse) -> str:
    return f"{use.name} {one_line(use.arguments, 80)}"

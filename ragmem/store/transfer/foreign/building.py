"""A turn, put together from the records of another agent as they come."""

import json
import re
import uuid
from datetime import datetime

import msgspec

from ragmem.records import FileAccess, PutTurn, ToolCall, Turn, TurnStatus, Usage
from ragmem.store.room import fitted
from ragmem.store.transfer.foreign.fields import clipped
from ragmem.store.transfer.foreign.touched import Touched, listed
from ragmem.store.transfer.foreign.values import AgentName
from ragmem.text import clean, one_line

_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_ERROR_LIMIT = 500


def session_id_of(agent: AgentName, foreign_id: str) -> str:
    """The id of a session here: the same whenever it is imported."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"ragmem:import/{agent}/{foreign_id}"))


class Keys:
    """Ids of the turns of a session, from what its file says of them."""

    def __init__(self, session_id: str) -> None:
        self._session = uuid.UUID(session_id)
        self._seen: dict[str, int] = {}

    def turn_id(self, key: str) -> str:
        """The id of the turn with this key; of the second one with the same, another."""
        count = self._seen[key] = self._seen.get(key, 0) + 1
        return str(uuid.uuid5(self._session, key if count == 1 else f"{key}#{count}"))


class _Call:
    """A tool call, until its answer has come."""

    def __init__(self, call: ToolCall, files: list[Touched]) -> None:
        self.call = call
        self.files = files


class _Message:
    """What the model said in one go."""

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.texts: list[str] = []
        self.calls: list[_Call] = []


class TurnBuilder:
    """One prompt and all that followed from it."""

    def __init__(self, session_id: str, turn_id: str, prompt: str, at: datetime) -> None:
        self.turn_id = turn_id
        self.prompt = prompt
        self.started_at = at
        self.last_at = at
        self.model: str | None = None
        self.status: TurnStatus | None = None
        """How it ended, where the records say so."""
        self._session_id = session_id
        self._messages: list[_Message] = []
        self._calls: dict[str, _Call] = {}
        self._answered = False
        self._thoughts: list[str] = []
        self._usage: dict[str, Usage] = {}

    @property
    def is_bare(self) -> bool:
        """Whether the model has not answered to it in any way."""
        return not self._messages

    def say(self, key: str | None, words: str, at: datetime) -> None:
        """The model said something; `key` names its message, where messages have names."""
        self._message(key, at)
        if words.strip():
            self._messages[-1].texts.append(words.strip())

    def think(self, words: str) -> None:
        """The model thought something."""
        if words.strip():
            self._thoughts.append(words.strip())

    def spend(self, key: str, usage: Usage) -> None:
        """What a call of the model took; the last word on each counts."""
        self._usage[key] = usage

    def ask(
        self, key: str | None, call_id: str, name: str, arguments: str, files: list[Touched]
    ) -> None:
        """The model calls a tool; a call that was seen already changes nothing."""
        if call_id in self._calls:
            return
        self._message(key, self.last_at)
        call = ToolCall(
            tool_call_id=str(uuid.uuid5(uuid.UUID(self.turn_id), call_id)),
            turn_id=self.turn_id,
            order=len(self._calls),
            tool_name=_NAME.sub("_", name)[:64] or "tool",
            arguments=arguments,
            result="",
            success=False,
            started_at=self.last_at,
        )
        self._calls[call_id] = _Call(call, files)
        self._messages[-1].calls.append(self._calls[call_id])

    def tool_of(self, call_id: str) -> str | None:
        """The name of a tool that was called; None for a call that this turn does not know."""
        held = self._calls.get(call_id)
        return held.call.tool_name if held else None

    def answer(
        self,
        call_id: str,
        words: str,
        at: datetime,
        *,
        failed: bool,
        files: list[Touched] | None = None,
    ) -> bool:
        """The tool has answered; false when this turn has not called it.

        `files` are those that the answer names; they are known better than by the arguments.
        """
        held = self._calls.get(call_id)
        if held is None:
            return False
        self._touch(at)
        words = clipped(words)
        waited = at - held.call.started_at
        held.call = msgspec.structs.replace(
            held.call,
            result=msgspec.json.encode({"text": words}).decode(),
            success=not failed,
            error=(one_line(words, _ERROR_LIMIT) or "failed") if failed else None,
            duration_ms=max(0, int(waited.total_seconds() * 1000)),
        )
        if files:
            held.files = files
        self._answered = True
        return True

    def build(self, *, over: bool) -> PutTurn:
        """The turn, without its place; `over`: nothing can follow any more."""
        said, preambles = self._said()
        calls: list[ToolCall] = []
        accesses: dict[str, tuple[FileAccess, ...]] = {}
        asking = [message for message in self._messages if message.calls]
        for iteration, message in enumerate(asking):
            for i, held in enumerate(message.calls):
                call = msgspec.structs.replace(
                    held.call,
                    iteration=iteration,
                    preamble=preambles[iteration] if i == 0 else "",
                )
                calls.append(call)
                if found := _accesses(call, held.files):
                    accesses[call.tool_call_id] = found
        usage = Usage()
        for number, each in enumerate(self._usage.values()):
            usage = usage + each if number else each
        turn = Turn(
            turn_id=self.turn_id,
            session_id=self._session_id,
            user_message=self.prompt,
            assistant_message=said,
            reasoning=clipped("\n\n".join(self._thoughts)) or None,
            status=self._status(said, calls, over=over),
            started_at=self.started_at,
            finished_at=self.last_at,
            model=self.model,
            usage=usage,
            tool_calls=tuple(calls),
        )
        return PutTurn(turn=fitted(turn), accesses=accesses)

    def _status(self, said: str, calls: list[ToolCall], *, over: bool) -> TurnStatus:
        if self.status in ("failed", "interrupted"):
            return self.status
        # What may go on is not complete yet: a turn that is so is never changed again.
        ended = over or self.status == "completed"
        answered = all(call.result for call in calls)
        whole = bool(said) or self.status == "completed"
        return "completed" if ended and answered and whole else "interrupted"

    def _said(self) -> tuple[str, list[str]]:
        """The answer, and what was said before the calls of each message that has some."""
        preambles: list[str] = []
        waiting: list[str] = []
        for message in self._messages:
            waiting += message.texts
            if message.calls:
                preambles.append("\n\n".join(waiting))
                waiting = []
        return "\n\n".join(waiting), preambles

    def _message(self, key: str | None, at: datetime) -> None:
        """The message that comes next is that of the key; without keys, one goes to an answer."""
        self._touch(at)
        last = self._messages[-1] if self._messages else None
        if last is None or (last.key != key if key else self._answered):
            self._messages.append(_Message(key))
        self._answered = False
        if self.status == "failed":
            self.status = None  # It was tried again, and here it goes on.

    def _touch(self, at: datetime) -> None:
        self.last_at = max(self.last_at, at)


def _accesses(call: ToolCall, files: list[Touched]) -> tuple[FileAccess, ...]:
    if not call.success:
        return ()  # A failed call touched nothing.
    return tuple(
        FileAccess(
            path=each.path,
            tool_name=call.tool_name,
            access_type=each.access,
            accessed_at=call.started_at,
            order=call.order,
        )
        for each in listed(files, "")
    )


def arguments_json(value: object) -> str:
    """Arguments as they can be stored and replayed: a JSON object, whatever they were."""
    if isinstance(value, str):
        try:
            decoded = json.loads(value)
        except (ValueError, RecursionError):
            decoded = None
        value = decoded if isinstance(decoded, dict) else {"input": value} if value.strip() else {}
    if not isinstance(value, dict):
        value = {} if value is None else {"input": value}
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, OverflowError, RecursionError):
        pass
    try:
        # Half an emoji, or a number without end.
        return clean(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (ValueError, RecursionError):
        return "{}"

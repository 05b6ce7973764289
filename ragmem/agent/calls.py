"""The tool calls of a turn: checking, running and recording them, and fitting their messages."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate

import msgspec

from ragmem.events import Event, Notice, PermissionDenial, ToolFinished, ToolProgress, ToolStarted
from ragmem.llm.base import Completion, parse_arguments
from ragmem.memory.recording import TurnRecording, settled
from ragmem.memory.turns import ONLY_ASKED, call_id, clip_recallable, result_text
from ragmem.messages import ImagePart, Message, Part, TextPart, ToolAnswer, ToolUse, assistant, tool
from ragmem.records import CallOrigin, ToolCall, utc_now
from ragmem.redact import first_of
from ragmem.text import clean, one_line
from ragmem.tools.base import InvalidArguments, OutputSoFar, Tell, ToolOutcome, Toolset, Unanswered

_SAME_CALL_LIMIT = 3
"""From this count on, the same read-only call is refused if nothing was changed in between."""
_NOTED_COUNT = 5
"""From this count on, the same result of a call gets a note for the model."""
_REPEAT_LIMIT = 10
"""At this count of the same result the turn is stuck: the model has got the note five times, with
what to do instead, and repeats the call all the same.
"""
_SAME_ANSWER = (
    "The same call has had the same answer {count} times. If you are waiting for something, wait "
    "longer between calls, or run one command that waits for it; otherwise try something else, or "
    "tell the user what is in the way."
)
_NO_TOOLS = "there are no tools in this session; answer without them."
_WHOLE_ENDS = {
    "tool_calls", "tool_call", "tool_use", "function_call",
    "stop", "end_turn", "stop_sequence", "eos", "eos_token",
}  # fmt: skip
"""End reasons of a complete message, with or without calls."""
_IMAGES_BYTES = 14_000_000
"""In base64 this fits into the 20 MB limit of a whole request to Gemini:
https://ai.google.dev/gemini-api/docs/image-understanding
"""
_REFUSAL_LIMIT = 3
"""After this many refusals, or messages in a row without a valid call, the turn is stuck."""

_GOAL = 3 / 4
"""Share of the limit to which messages are cut beyond it, so that the prefix changes rarely."""
_WORDS_SHARE = 4
_NOTE_SHARE = 8
"""The list of dropped rounds takes at most one part in this many of the limit."""

_Problem = tuple[str, str]
"""What is wrong with a call, for the model and for the user."""


class RepeatGuard:
    """Detects repeated calls with the same result, also when alternating with others (A B A B).

    A call whose result changes is not a repetition: it waits for something. A command with the same
    result need not be one either, since what it observes may change at any time (a deployment, a
    container). So only read-only calls, and calls that were denied, are refused.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._answers: dict[str, ToolOutcome] = {}
        self.refusals = 0

    @property
    def repeats(self) -> int:
        """How often the most repeated call had the same result."""
        return max(self._counts.values(), default=0)

    def count(self, use: ToolUse, *, read_only: bool) -> int:
        """Count a call; return its count if it should be refused, else 0."""
        key = _key(use)
        if not read_only and key not in self._counts:
            self._counts.clear()
        count = self._counts[key] = self._counts.get(key, 0) + 1
        last = self._answers.get(key)
        is_vain = read_only or (last is not None and last.denied)
        if count < _SAME_CALL_LIMIT or not is_vain:
            return 0
        self.refusals += 1
        return count

    def answered(self, use: ToolUse, outcome: ToolOutcome) -> ToolOutcome:
        """Return a call's outcome, with a note if it repeats; a new result restarts the count."""
        key = _key(use)
        if key in self._answers and self._answers[key].text != outcome.text:
            self._counts[key] = 1
        self._answers[key] = outcome
        count = self._counts.get(key, 0)
        if count < _NOTED_COUNT:
            return outcome
        note = _SAME_ANSWER.format(count=count)
        return msgspec.structs.replace(outcome, text=f"{outcome.text}\n\n[{note}]")


def _key(use: ToolUse) -> str:
    """Return the same key however the arguments are written; they must be valid JSON."""
    return f"{use.name} {json.dumps(json.loads(use.arguments or '{}'), sort_keys=True)}"


class CallRunner:
    """Runs and records the calls of one turn."""

    def __init__(
        self, toolset: Toolset, recording: TurnRecording, emit: Callable[[Event], None]
    ) -> None:
        self._toolset = toolset
        self._recording = recording
        self._emit = emit
        self._guard = RepeatGuard()
        self._broken_in_a_row = 0
        self._count = 0
        self._done: dict[str, ToolCall] = {}
        """Finished calls of the current message; not cut, unlike the stored ones."""
        self.denials: list[PermissionDenial] = []
        self.images: list[ImagePart] = []
        """Images named in the prompt."""

    @property
    def stuck(self) -> bool:
        """Whether the model keeps repeating itself, or making invalid calls."""
        is_refused = max(self._guard.refusals, self._broken_in_a_row) >= _REFUSAL_LIMIT
        return is_refused or self._guard.repeats >= _REPEAT_LIMIT

    async def run(
        self, completion: Completion, iteration: int, *, offered: bool = True
    ) -> list[Message]:
        """Run all calls of one message of the model; return that message and their results.

        An invalid call gets an error as its result. None is run if no tools were offered, or if the
        message is incomplete by its end reason: a stream that was cut off must have no effects.
        """
        text, uses = completion.text, [self._toolset.own(use) for use in completion.tool_uses]
        calls = [
            self._new_call(use, iteration, preamble=text if i == 0 else "")
            for i, use in enumerate(uses)
        ]
        refusal = cut_short(completion.end_reason) if offered else _NO_TOOLS
        problems = [(refusal, "") if refusal else self._problem(use) for use in uses]
        self._broken_in_a_row = self._broken_in_a_row + 1 if all(problems) else 0
        await self._run_all(list(zip(calls, problems, strict=True)))
        done = [self._done.pop(call.tool_call_id) for call in calls]
        shown = tuple(
            ToolUse(call_id(c.tool_call_id), c.tool_name, c.arguments, use.given_id)
            for c, use in zip(done, uses, strict=True)
        )
        return [
            assistant(text, shown),
            *(tool(call_id(c.tool_call_id), result_text(c), is_error=not c.success) for c in done),
        ]

    async def mention(self, use: ToolUse, path: str, iteration: int) -> ToolCall | None:
        """Read a file named in the prompt, as the user's own call; None with a warning on error."""
        outcome = await self._toolset.call(use)
        if not outcome.success:
            if outcome.denied:
                self.denials.append(_denial(use, outcome))
            self._warn_unread(path, outcome.text)
            return None
        if outcome.image:
            if sum(len(each.data) for each in (*self.images, outcome.image)) > _IMAGES_BYTES:
                most = f"the images of a prompt may have {_IMAGES_BYTES // 1_000_000} MB together"
                self._warn_unread(path, f"{most}. Ask about it in another prompt.")
                return None
            self.images.append(outcome.image)
        call = self._new_call(use, iteration, origin="mention")
        self._emit(self._started(call))
        return await self._finished(call, outcome)

    def _warn_unread(self, path: str, why: str) -> None:
        self._emit(Notice(level="warning", text=f"@{path} was not read: {why}"))

    async def own(self, use: ToolUse) -> None:
        """Run the user's own command, without approval or limits on repetition."""
        call = self._new_call(use, 0, origin="person")
        self._emit(self._started(call))
        await self._recording.call(call)
        await self._finished(call, await self._toolset.call(use, self._teller(call)))

    def _teller(self, call: ToolCall) -> Tell:
        loop = asyncio.get_running_loop()

        def tell(seen: OutputSoFar) -> None:
            event = ToolProgress(tool_call_id=call.tool_call_id, tail=seen.tail, lines=seen.lines)
            # The loop is closed: the chat has ended.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._emit, event)

        return tell

    def _new_call(
        self, use: ToolUse, iteration: int, *, preamble: str = "", origin: CallOrigin = "model"
    ) -> ToolCall:
        order, self._count = self._count, self._count + 1
        return ToolCall(
            tool_call_id=use.id,
            turn_id=self._recording.turn.turn_id,
            order=order,
            iteration=iteration,
            tool_name=clean(use.name),
            arguments=_valid_arguments(use.arguments),
            result="",
            success=False,
            started_at=utc_now(),
            origin=origin,
            preamble=preamble,
        )

    def _problem(self, use: ToolUse) -> _Problem | None:
        try:
            self._toolset.check(use)
        except InvalidArguments as error:
            return f"{error}.", error.shown
        return None

    async def _run_all(self, calls: Sequence[tuple[ToolCall, _Problem | None]]) -> None:
        """Run consecutive read-only calls concurrently, and all others one by one, in order."""
        batch: list[ToolCall] = []
        for call, problem in calls:
            if not problem and self._toolset.is_read_only(call.tool_name):
                batch.append(call)
                continue
            await self._run_batch(batch)
            batch = []
            await (self._refuse(call, *problem) if problem else self._run_one(call))
        await self._run_batch(batch)

    async def _run_batch(self, calls: Sequence[ToolCall]) -> None:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(self._run_one(call))

    async def _run_one(self, call: ToolCall) -> None:
        use = ToolUse(call.tool_call_id, call.tool_name, call.arguments)
        read_only = self._toolset.is_read_only(use.name)
        may_repeat = self._toolset.may_repeat(use.name)
        if not may_repeat and (count := self._guard.count(use, read_only=read_only)):
            await self._refuse(
                call,
                f"The same {use.name} call was made {count} times, and each answer was the same, "
                "so it was not run again. Use the earlier answer, try something else, or tell the "
                "user what is in the way.",
                f"not run: the same call was made {count} times",
            )
            return
        self._emit(self._started(call))
        if not read_only:
            # If the process dies from here on, the call is known, and its effects are unknown.
            await self._recording.call(call)

        async def on_question(is_open: bool) -> None:
            # If it dies while a question is open, nothing was done.
            if not read_only:
                at = msgspec.structs.replace(call, error=ONLY_ASKED if is_open else None)
                await self._recording.call(at)

        try:
            outcome = await self._toolset.call(use, self._teller(call), on_question)
        except Unanswered:
            reason = "The turn was stopped before the user had answered. Nothing was done."
            await self._finished(call, _failed(call, reason, "stopped"))
            raise
        outcome = self._guard.answered(use, outcome)
        if outcome.denied:
            self.denials.append(_denial(use, outcome))
        await self._finished(call, outcome)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # A command that the user stops has a result, but the turn still ends.
            raise asyncio.CancelledError

    async def _refuse(self, call: ToolCall, reason: str, shown: str = "") -> None:
        text = f"Not executed: {reason}"
        self._emit(self._started(call))
        await self._finished(call, _failed(call, text, shown or text))

    def _started(self, call: ToolCall) -> ToolStarted:
        use = ToolUse(call.tool_call_id, call.tool_name, call.arguments)
        return ToolStarted(
            tool_call_id=call.tool_call_id, name=call.tool_name, title=self._toolset.title(use)
        )

    async def _finished(self, call: ToolCall, outcome: ToolOutcome) -> ToolCall:
        done = msgspec.structs.replace(
            call,
            result=outcome.result_json,
            success=outcome.success,
            error=outcome.error,
            started_at=outcome.started_at,
            duration_ms=outcome.duration_ms,
        )
        # Recorded even if the user stops the turn meanwhile, since it was run, or denied.
        cancelled = await settled(self._recording.call(done))
        self._done[call.tool_call_id] = done
        code = outcome.data.get("exit_code")
        self._emit(
            ToolFinished(
                tool_call_id=call.tool_call_id,
                name=call.tool_name,
                success=outcome.success,
                text=outcome.text,
                display=outcome.display,
                duration_ms=outcome.duration_ms,
                exit_code=code if isinstance(code, int) else None,
            )
        )
        for written in outcome.written:
            self._emit(written)
        if cancelled:
            raise asyncio.CancelledError
        return done


def _failed(call: ToolCall, why: str, note: str) -> ToolOutcome:
    """Return the outcome of a call that was not run."""
    return ToolOutcome(text=why, display=note, success=False, error=why, started_at=call.started_at)


def cut_short(end_reason: str) -> str:
    """Return why a message with this end reason may be incomplete; empty if it is complete."""
    match end_reason.casefold():
        case reason if reason in _WHOLE_ENDS:
            return ""
        case "length" | "max_tokens":
            return "the message reached the model's output limit and may be cut off: be shorter."
        case _:
            return f"the message was ended by {one_line(end_reason, 40)} and may be cut off."


def with_note(messages: Sequence[Message], note: str) -> list[Message]:
    """Append a note to the last tool result of a round.

    It is not a message of its own, since some providers accept none between tool results and the
    model's next message.
    """
    last = messages[-1].parts[0] if messages else None
    if not note or not isinstance(last, ToolAnswer):
        return list(messages)
    noted = tool(last.tool_use_id, f"{last.text}\n\n[{note}]", is_error=last.is_error)
    return [*messages[:-1], noted]


def _valid_arguments(arguments: str) -> str:
    """Return arguments that can be stored and replayed: a JSON object, whatever arrived."""
    try:
        parse_arguments(arguments or "{}")
    except ValueError:
        return json.dumps({"invalid": first_of(arguments, 2_000)})
    return clean(arguments or "{}")


def _denial(use: ToolUse, done: ToolOutcome) -> PermissionDenial:
    return PermissionDenial(use.name, use.id, use.arguments, final=done.final, reason=done.text)


class ToolLoop:
    """The messages sent to the model: the context, then rounds of calls with their results.

    After a round's results comes what the user said meanwhile. Beyond `limit` characters, until it
    fits: the oldest results are replaced by one line each; the oldest rounds by an entry in a list
    after the prompt, which keeps what the user said; the newest results are clipped.
    """

    def __init__(self, context: Sequence[Message], *, limit: int) -> None:
        self._context = list(context)
        self._limit = limit
        self._rounds: list[list[Message]] = []
        self._said: list[Part] = []
        """What the user said in dropped rounds."""
        self._dropped: list[str] = []
        self._condensed: set[str] = set()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the next request."""
        own = [message for each in self._rounds for message in each]
        if not self._dropped:
            return (*self._context, *own)
        prompt = self._context[-1]
        parts = (*prompt.parts, *self._said, TextPart(self._note()))
        prompt = msgspec.structs.replace(prompt, parts=parts)
        return (*self._context[:-1], prompt, *own)

    def add(self, messages: Sequence[Message]) -> None:
        """Add a round: a message of the model with calls, and the result of each."""
        self._rounds.append(list(messages))
        self._fit()

    @property
    def room_for_words(self) -> int:
        """Characters of the user's words that fit at once, since they are never cut."""
        return self._limit // _WORDS_SHARE

    def say(self, message: Message) -> None:
        """Add a message of the user to the newest round."""
        self._rounds[-1].append(message)
        self._fit()

    def shrink(self, start: "ToolLoop") -> bool:
        """Replace the context by that of `start`, and halve the rounds; false if nothing shrank.

        The rounds may keep more if they fit into half of the room that the context has freed.
        """
        before, context = self._size, start._size
        own = before - _chars(self._context)
        freed = before - own - context
        self._context, self._limit = start._context, start._limit
        if self._rounds:
            self._limit = min(self._limit, context + max(own // 2, freed // 2))
        self._fit()
        return self._size < before

    @property
    def _size(self) -> int:
        return _chars(self.messages)

    def _fit(self) -> None:
        if self._size <= self._limit:
            return
        goal = int(self._limit * _GOAL)
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
                line = _placeholder(part, uses[part.tool_use_id])
                if len(line) < len(part.text):
                    over -= len(part.text) - len(line)
                    messages[i] = tool(part.tool_use_id, line, is_error=part.is_error)
                    self._condensed.add(part.tool_use_id)

    def _drop_rounds(self, goal: int) -> None:
        size = self._size
        while size > goal and len(self._rounds) > 1:
            oldest = self._rounds.pop(0)
            from_user = [message for message in oldest if message.role == "user"]
            size -= sum(message.char_count for message in oldest if message not in from_user)
            for message in from_user:
                self._said += [TextPart("\n\n"), *message.parts]
            said = one_line(oldest[0].text, 200)
            self._dropped += [f"- {said}"] if said else []
            self._dropped += [f"- {_named(use)}, id {use.id}" for use in oldest[0].tool_uses]

    def _note(self) -> str:
        sizes = accumulate(len(line) + 1 for line in reversed(self._dropped))
        count = sum(size <= self._limit // _NOTE_SHARE for size in sizes)
        earlier = len(self._dropped) - count
        lines = [f"- {earlier:,} more before these"] * bool(earlier) + self._dropped[earlier:]
        return "\n".join(
            [
                "\n\n[Done earlier in this turn and left out to save room; recall_result brings a "
                "result back by its id:",
                *lines,
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
            if isinstance(part, ToolAnswer):
                text = clip_recallable(part.text, share, part.tool_use_id)
                newest[i] = tool(part.tool_use_id, text, is_error=part.is_error)


def _chars(messages: Sequence[Message]) -> int:
    return sum(message.char_count for message in messages)


def _placeholder(answer: ToolAnswer, use: ToolUse) -> str:
    return (
        f"[{_named(use)}: {len(answer.text):,} characters left out to save room; "
        f"recall_result brings them back: id {use.id}]"
    )


def _named(use: ToolUse) -> str:
    return f"{use.name} {one_line(use.arguments, 80)}"

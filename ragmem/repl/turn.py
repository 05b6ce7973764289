"""The display of a turn: what is printed permanently, the live view, and questions to the user."""

import math
import re
import time
from collections.abc import Callable, Sequence

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from ragmem.events import (
    ContextBuilt,
    Event,
    MemoryWritten,
    ModelCallStarted,
    Notice,
    PromptAdded,
    ReasoningDelta,
    RetryWaiting,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
)
from ragmem.own_tools import RUN_COMMAND, UPDATE_TASKS
from ragmem.repl.diffs import ChangeBlock, edit_result, read_change
from ragmem.repl.output import (
    ChatOutput,
    Gutter,
    Kind,
    answer,
    clipped,
    closing,
    command_block,
    command_result,
    memory_row,
    notice,
    prompt_row,
    thoughts_row,
    tool_result,
    tool_title,
)
from ragmem.repl.permissions import PLACES
from ragmem.repl.recalled import folded_prompt, memory_line
from ragmem.repl.streamed import MarkdownStream, goes_on
from ragmem.repl.terminal import ChatQuestion, Line
from ragmem.text import (
    clip_to_width,
    counted,
    display_width,
    duration,
    one_line,
    reveal,
    visible,
)
from ragmem.tools.base import Decision, Proposal
from ragmem.tools.planning import PresentPlan

Part = tuple[Kind, RenderableType]

_PLAIN_CELLS = 120
_RUNNING_AFTER_S = 0.4
"""A tool call is shown as running once it has run this long."""
_LABELS = {
    "diff": "Allow this change?",
    "command": "Allow this command?",
    "path": "Allow this?",
    "call": "Allow this call?",
    "plan": "Carry out this plan?",
}
NO_PLAN = (
    "No plan was proposed, and plan mode is still on: ask for a plan, or press Shift-Tab to leave."
)
CARRY_OUT = "The plan is approved: carry it out."
"""The prompt that is sent if the user accepts a plan that was given in an answer."""
_STEP, _BULLET = (
    re.compile(rf"^ {{0,3}}{mark} +\S", re.MULTILINE) for mark in (r"\d+[.)]", "[-*+]")
)
_FOLDED = " It is long; a yes shows all of it first."
_TEXT_QUESTIONS = {"r": "Why not? (The agent sees this.)", "c": "What should change?"}
"""The questions for a text, by the choice that leads there."""
_NO_RULE = "no rule possible: the effects of such a line can't be fully predicted"
_PERMANENT = "Allow without asking from now on:"
_REFUSED = "the user refused"
STOPPED = "the user stopped the turn"
"""The reason for a refusal if the user left the question, which stops the turn."""
_OUTSIDE_QUESTION = "Allow this command outside the sandbox, with all of your permissions?"
_STOPPED = re.compile(r"Stopped .*\n")
"""The start of a stopped command's result, which its output follows."""
_TASK_SIGNS = "☑▸☐"
"""The signs of tasks that are done, in progress, and open."""
_TASK_ROWS = 6
_MIN_TITLE = 10
_LONG_ROWS, _LONG_CHARS = 10, 1_000
"""For a longer proposal, its size is shown."""
_TAIL_ROWS = 5
"""Rows shown of the output of a running command."""


class _Call:
    """A running tool call."""

    def __init__(self, started: ToolStarted, begun: float, waited: float) -> None:
        self.started, self.begun = started, begun
        self.waited = waited
        """How long the turn had waited for the user when the call started, in seconds."""
        self.printed: ToolProgress | None = None


class TurnView:
    """Turns the events of a turn into printed parts and a live view."""

    _waiting = "waiting for the model"

    def __init__(
        self,
        *,
        shows_live: bool = True,
        shows_recall: bool = True,
        shows_thoughts: bool = True,
        tasks: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._started = clock()
        self._shows_live = shows_live
        self._shows_recall = shows_recall
        self._shows_thoughts = shows_thoughts
        """Whether the duration of reasoning is shown, because the reasoning can be expanded."""
        self._stream = MarkdownStream()
        self._last_block = ""
        self.tasks = tasks
        """The agent's task list, one per row; empty if there is none or all are done."""
        self._tasks_changed = False
        self._calls: dict[str, _Call] = {}
        self._reasoning_since: float | None = None
        """When the current reasoning began, on the clock; None without one."""
        self._answering = False
        self._planned = False
        self.ends_without_plan = False
        """Whether the turn succeeded without presenting a plan."""
        self.plan_in_words = ""
        """The answer, if it reads as a plan and none was presented."""
        self._decided: dict[str, bool] = {}
        """Whether the user allowed the change that was shown, by tool name."""
        self._retry: RetryWaiting | None = None
        self._retry_at = 0.0
        self._paused_at: float | None = None
        self._waited = 0.0
        """How long the turn has waited for the user, in seconds."""

    def show(self, event: Event) -> list[Part]:
        """Update the live view, and return the parts to print now."""
        match event:
            case TextDelta(text=text):
                thoughts = self._reasoning_row()
                self._answering, self._retry = True, None
                blocks = [self._block(block) for block in self._stream.feed(text)]
                return [*thoughts, *blocks]
            case ReasoningDelta(text=text):
                if text and self._reasoning_since is None:
                    self._reasoning_since = self._clock()
                self._retry = None
                return []
            case ContextBuilt(recalled=recalled):
                row = memory_line(recalled) if self._shows_recall else None
                self._shows_recall = False  # the context is rebuilt for a smaller window
                return [("recall", row)] if row else []
            case RetryWaiting():
                self._retry, self._retry_at = event, self._clock() + event.wait_s
                return [] if self._shows_live else [("notice", notice(_retry_notice(event)))]
            case ModelCallStarted():
                parts: list[Part] = self._reasoning_row()
                self._answering, self._retry = False, None
            case ToolProgress():
                self._progress(event)
                return []
            case ToolStarted():
                parts = self._start(event)
            case ToolFinished():
                parts = self._finished(event)
            case PromptAdded(text=text):
                parts = [("prompt", prompt_row(folded_prompt(text)))]
            case MemoryWritten():
                parts = [("tool", memory_row(event.line))]
            case Notice():
                parts = [("notice", notice(event))]
            case TurnFinished():
                parts = self._ended(event)
            case _:
                return []
        rest = self._stream.finish()
        return [self._block(rest), *parts] if rest.strip() else parts

    def _block(self, block: str) -> Part:
        """Render a block of the answer, as an `item` if it continues the previous block's list."""
        follows = goes_on(self._last_block, block)
        self._last_block = block
        return ("item" if follows else "text", answer(block))

    def _reasoning_row(self) -> list[Part]:
        """Return the duration of the reasoning that has just ended, once."""
        since, self._reasoning_since = self._reasoning_since, None
        if since is None or not self._shows_thoughts:
            return []
        return [("notice", thoughts_row(round((self._clock() - since) * 1000)))]

    def _ended(self, event: TurnFinished) -> list[Part]:
        self.ends_without_plan = event.subtype == "success" and not self._planned
        if self.ends_without_plan and reads_as_plan(event.result):
            self.plan_in_words = event.result
        own_ms = max(0, event.duration_ms - round(self._waited * 1000))
        event = msgspec.structs.replace(event, duration_ms=own_ms)
        left = self._tasks_left() if self._tasks_changed else []
        return [*self._reasoning_row(), *self._cut_off(), *left, ("closing", closing(event))]

    def _tasks_left(self) -> list[Part]:
        """Return the whole task list, for the scrollback, if a task is not done."""
        return [("tool", Gutter(self.tasks, mark="  ", words=True))] if self.tasks else []

    def _update_tasks(self, title: str, event: ToolFinished) -> list[Part]:
        """Update the task list and return its progress; without a live view, the whole list."""
        rows = visible(event.display)
        is_left = any(row[:1] in _TASK_SIGNS[1:] for row in rows.split("\n"))
        self.tasks, self._tasks_changed = rows if is_left else "", True
        head = clipped(("● ", "green"), (one_line(title.removeprefix(f"{UPDATE_TASKS} "), 300), ""))
        parts: list[Part] = [("tool", head)]
        return parts if self._shows_live else [*parts, *self._tasks_left()]

    def _task_rows(self, columns: int, rows: int) -> list[Line]:
        """Return the task list's rows that fit: the current task and those that follow."""
        tasks = self.tasks.split("\n") if self.tasks else []
        doing = next((i for i, row in enumerate(tasks) if row[:1] != _TASK_SIGNS[0]), 0)
        first = max(0, min(doing - 1, len(tasks) - rows))
        return [
            (("" if row[:1] == _TASK_SIGNS[1] else "dim", clip_to_width(f"  {row}", columns)),)
            for row in tasks[first : first + rows]
        ]

    def decided(self, tool_name: str, *, allowed: bool) -> None:
        """Note the user's decision on a change that they were shown."""
        self._decided[tool_name] = allowed

    def _start(self, event: ToolStarted) -> list[Part]:
        self._calls[event.tool_call_id] = _Call(event, self._clock(), self._waited)
        self._planned |= event.name == PresentPlan.name
        return self._reasoning_row()

    def _progress(self, event: ToolProgress) -> None:
        if call := self._calls.get(event.tool_call_id):
            call.printed = event

    def _end(self, event: ToolFinished) -> tuple[str, ToolFinished]:
        """Return a call's title, and its event with a duration without the waits for the user."""
        call = self._calls.pop(event.tool_call_id, None)
        if call is None:
            return event.name, event
        waited_ms = round((self._waited - call.waited) * 1000)
        own_ms = max(0, event.duration_ms - waited_ms)
        return call.started.title, msgspec.structs.replace(event, duration_ms=own_ms)

    def _finished(self, event: ToolFinished) -> list[Part]:
        title, event = self._end(event)
        allowed = self._decided.pop(event.name, None)
        if event.name == RUN_COMMAND and (
            event.exit_code is not None or _STOPPED.match(event.text)
        ):
            return [("tool", command_block(title.removeprefix(f"{RUN_COMMAND} "), event))]
        if allowed is False and not event.success:
            return []  # the user's answer is shown already
        if event.name == UPDATE_TASKS and event.success:
            return self._update_tasks(title, event)
        if change := edit_result(event, asked=allowed is not None):
            # A change that needed no approval is set apart, like a question with a change.
            return [("note" if allowed is None else "closing", change)]
        if allowed is not None:
            mark = "  ✓ " if event.success else "  ✗ "
            style = "red" if event.failed else "green"
            text = visible(event.display)
            return [("closing", Gutter(text, mark=mark, style=style, words=True))]
        return [("tool", tool_title(title, success=not event.failed)), ("tool", tool_result(event))]

    def _cut_off(self) -> list[Part]:
        """Return the calls that were stopped by the end of the turn."""
        parts: list[Part] = []
        for call in self._calls.values():
            if self._decided.pop(call.started.name, None) is not False:
                parts.append(("tool", tool_title(call.started.title, success=False)))
                parts.append(("tool", Text("  ⎿ stopped", style="red")))
        self._calls.clear()
        return parts

    def live(self, columns: int, rows: int) -> list[Line]:
        """Return the live view: the end of the open block, running calls, tasks and status."""
        below: list[Line] = []
        # While a question is shown, it names the call that has not started yet.
        asked = self._paused_at is not None
        running = [call for call in self._calls.values() if call.printed or not asked]
        for call in running[: max(1, rows - 2)]:
            below += self._running(call, columns, rows - len(below) - 2)
        below += self._task_rows(columns, max(0, min(_TASK_ROWS, (rows - len(below) - 2) // 2)))
        below.append((("dim", self._status(columns)),))
        room = rows - len(below) - 2
        shown = self._stream.rows(columns, room) if room > 0 else []
        return [(), *shown, (), *below] if shown else [(), *below][-rows:]

    def _running(self, call: _Call, columns: int, rows: int) -> list[Line]:
        """Return the rows of a running call: its title, and the end of its output."""
        now = self._clock() if self._paused_at is None else self._paused_at
        lasts_s = now - call.begun - (self._waited - call.waited)
        if call.printed is None and lasts_s < _RUNNING_AFTER_S:
            return []  # it may still wait for approval
        title = call.started.title.removeprefix(f"{RUN_COMMAND} ")
        head: Line = (("tool", "● "), ("", one_line(title, max(1, columns - 2))))
        if call.printed is None:
            return [head]
        said = f"{duration(int(lasts_s) * 1000)} · {counted(call.printed.lines, 'line')}"
        room = columns - 4 - display_width(said)
        if room >= _MIN_TITLE:
            head = (*head[:1], ("", one_line(title, room)), ("dim", f"  {said}"))
        tail = [line for line in visible(call.printed.tail).split("\n") if line.strip()]
        shown = tail[-min(_TAIL_ROWS, max(0, rows - 1)) :] if rows > 1 else []
        return [head, *((("dim", f"  │ {clip_to_width(line, columns - 4)}"),) for line in shown)]

    def pause(self) -> None:
        """Stop the clock while the turn waits for the user."""
        self._paused_at = self._clock()

    def go_on(self) -> None:
        """Restart the clock."""
        if self._paused_at is not None:
            self._waited += self._clock() - self._paused_at
            self._paused_at = None

    def _status(self, columns: int) -> str:
        if self._paused_at is not None:
            return one_line("waiting for you · Esc stops", columns)
        if self._retry:
            return _retry_text(self._retry, self._retry_at - self._clock(), columns)
        if self._calls:
            doing = "working"
        elif self._reasoning_since is not None:
            doing = "thinking"
        else:
            doing = "answering" if self._answering else self._waiting
        seconds = int(self._clock() - self._started - self._waited)
        return one_line(f"{doing} · {duration(seconds * 1000)} · Esc stops", columns)


def reads_as_plan(answer: str) -> bool:
    """Return whether an answer has numbered steps, or bullet points and the word `plan`."""
    points = _BULLET.findall(answer) if re.search(r"(?i)\bplan\b", answer) else []
    return max(len(_STEP.findall(answer)), len(points)) > 1


def _retry_text(retry: RetryWaiting, left_s: float, columns: int) -> str:
    """Return the reason for a retry, its number and its time; the reason is clipped to fit."""
    soon = f" in {math.ceil(left_s)} s" if left_s > 0 else ""
    tries = f" · try {retry.attempt} of {retry.most}{soon}"
    reason = one_line(retry.reason, max(1, columns - len(tries)))
    row = f"{reason}{tries}"
    keys = " · Esc stops"
    return row + keys if len(row + keys) <= columns else one_line(row, columns)


def _retry_notice(retry: RetryWaiting) -> Notice:
    text = _retry_text(retry, retry.wait_s, _PLAIN_CELLS).removesuffix(" · Esc stops")
    return Notice(level="warning", text=text)


class CommandView(TurnView):
    """Shows the turn of a user's own command: its output and exit status."""

    _waiting = "working"
    _is_shown = False

    def show(self, event: Event) -> list[Part]:
        """Update the live view, and return the parts to print now."""
        match event:
            case ToolStarted():
                self._start(event)
            case ToolProgress():
                self._progress(event)
            case ToolFinished():
                _, event = self._end(event)
                self._is_shown = True
                return [("closing", command_result(event))]
            case Notice():
                return [("notice", notice(event))]
            case TurnFinished() if event.is_error and not self._is_shown:
                return [("closing", closing(event))]
        return []


class Approvals:
    """The chat's approver: shows a proposal, and waits for y, n, a or a reason.

    A folded proposal can't be allowed unseen: a yes shows it in full, and asks again.
    """

    def __init__(
        self,
        output: ChatOutput,
        stop: Callable[[], object],
        keep: Callable[[Sequence[str], str], None],
    ) -> None:
        self._output = output
        self._stop = stop
        self._keep = keep
        """Puts rules into effect in a place, given as a key of `PLACES`."""

    async def __call__(self, proposal: Proposal) -> Decision:
        """Ask about a proposal; Ctrl-C, Esc and Ctrl-D refuse it and stop the turn."""
        shown = ProposalBlock(proposal)
        # Check before printing, so that resizing in between can only add a question.
        folded = shown.is_folded(self._output.width)
        self._output.show(shown)
        return await self._decide_and_show(proposal, folded=folded)

    async def plan_in_words(self, told: str) -> Decision:
        """Ask about a plan that was given in the answer above."""
        plan = Proposal(tool_name=PresentPlan.name, title="", kind="plan", body=told)
        return await self._decide_and_show(plan, folded=False)

    async def _decide_and_show(self, proposal: Proposal, *, folded: bool) -> Decision:
        decision = await self._decide(proposal, folded=folded)
        if outcome := _outcome(decision, proposal):
            self._output.show(outcome, "closing")
        return decision

    async def _decide(self, proposal: Proposal, *, folded: bool) -> Decision:
        """Ask until there is a decision: leaving the question after `r`, `c` or `p` asks again."""
        is_plan = proposal.kind == "plan"
        while True:
            answer = await self._ask(_question(proposal, folded))
            if folded and answer in ("y", "a", "p", "v"):
                self._output.show(ProposalBlock(proposal, folds=False))
                said = "That is all of it. Please answer."
                self._output.show(Gutter(said, mark="  ", style="bold", words=True), "closing")
                folded = False
                continue
            match answer:
                case "y" | "e" if is_plan:
                    return Decision(True, mode="default" if answer == "y" else "acceptEdits")
                case "y" | "a":
                    return Decision(True, remember=answer == "a")
                case "p":
                    if decision := await self._ask_permanent(proposal):
                        return decision
                case "o" if proposal.outside:
                    if decision := await self._ask_outside(proposal.outside):
                        return msgspec.structs.replace(decision, outside=decision.allowed)
                case "r" | "c":
                    reason = await self._ask(ChatQuestion(_TEXT_QUESTIONS[answer]))
                    if reason is not None:
                        said = reason.strip()
                        changes = is_plan and bool(said)
                        return Decision(False, reason=said or _REFUSED, changes=changes)
                case "n":
                    return Decision(False, reason=_REFUSED)
                case _:
                    self._stop()
                    return Decision(False, reason=STOPPED)

    async def _ask(self, question: ChatQuestion) -> str | None:
        return await self._output.terminal.ask(question)

    async def _ask_outside(self, proposal: Proposal) -> Decision | None:
        """Ask how long a command may leave the sandbox; return None if the user goes back."""
        good = [("p", "permanently …")] if proposal.for_good else []
        choices = (("y", "yes"), ("n", "no"), ("a", f"always: {proposal.always}"), *good)
        while (answer := await self._ask(ChatQuestion(_OUTSIDE_QUESTION, choices))) == "p":
            if decision := await self._ask_permanent(proposal):
                return decision
        if answer is None:
            return None
        return Decision(answer != "n", remember=answer == "a", reason=_REFUSED * (answer == "n"))

    async def _ask_permanent(self, proposal: Proposal) -> Decision | None:
        """Ask which rule to add permanently; return None if the user goes back."""
        offers = {str(i): rules for i, rules in enumerate(proposal.for_good, 1)}
        choices = [(key, " + ".join(rules)) for key, rules in offers.items()]
        question = ChatQuestion(_PERMANENT, (*choices, ("o", "only this once"), ("n", "no")))
        while (answer := await self._ask(question)) in offers:
            told = " + ".join(offers[answer])
            where = await self._ask(ChatQuestion(f"Where is {told} allowed?", (*PLACES.items(),)))
            if where is not None:
                self._keep(offers[answer], where)
                return Decision(True)
        if answer == "n":
            return Decision(False, reason=_REFUSED)
        return None if answer is None else Decision(True)


def _question(proposal: Proposal, folded: bool) -> ChatQuestion:
    if proposal.kind == "plan":
        choices = (("y", "yes"), ("e", "yes, edits allowed"), ("c", "change it"), ("n", "no"))
        return ChatQuestion(_LABELS["plan"], choices, chosen="y")
    given = (
        ("y", "yes"),
        ("n", "no"),
        ("a", proposal.always and f"always: {proposal.always}"),
        ("p", proposal.for_good and "permanently …"),
        ("o", proposal.outside and "outside the sandbox …"),
        ("r", "reason"),
        ("v", folded and "view all"),
    )
    label = _LABELS[proposal.kind] + (_FOLDED if folded else "")
    # A proposal with a warning must not be allowed by Enter alone.
    chosen = "v" if folded else "" if proposal.warnings else "y"
    return ChatQuestion(label, tuple((key, str(word)) for key, word in given if word), chosen)


class ProposalBlock:
    """A proposal with all hidden characters revealed; a fold shows how much it leaves out.

    Each row has a margin, so that the content can't pass for ragmem's own output.
    """

    def __init__(self, proposal: Proposal, *, folds: bool = True) -> None:
        self._proposal = proposal
        self._change: ChangeBlock | None = None
        if proposal.kind == "diff":
            change = read_change(proposal.body)
            self._change = ChangeBlock(
                change, title=proposal.title, folds=folds, hint="v shows all"
            )

    def is_folded(self, width: int) -> bool:
        """Return whether a part is left out at this width, in cells."""
        return self._change is not None and self._change.is_folded(width)

    def __rich_console__(self, _: Console, __: ConsoleOptions) -> RenderResult:
        proposal = self._proposal
        if self._change:
            yield self._change
        elif proposal.kind == "plan":
            yield Gutter(reveal(proposal.title), mark="? ", style="bold yellow", words=True)
            yield answer(proposal.body)
        else:
            yield Gutter(reveal(proposal.title), mark="? ", style="bold yellow")
            yield Gutter(reveal(proposal.body), mark="│ ", rest="│ ")
            if proposal.body.count("\n") >= _LONG_ROWS or len(proposal.body) > _LONG_CHARS:
                yield Text(f"  {proposal.size}", style="dim")
            if proposal.kind == "command" and not proposal.for_good:
                yield Gutter(_NO_RULE, mark="  ", style="dim", words=True)
        for each in proposal.warnings:
            yield Gutter(reveal(each), mark="! ", style="bold yellow", words=True)


def _outcome(decision: Decision, proposal: Proposal) -> RenderableType | None:
    """Return a row with the decision; None if the call's result or the turn's end shows it."""
    if decision.reason == STOPPED or (decision.allowed and not decision.remember):
        return None  # the end of the turn says so, or the call's
    style = "red"
    if decision.allowed:
        chosen = (decision.outside and proposal.outside) or proposal
        told, style = f"always: {chosen.always}", "green"
    else:
        how = "refused" if proposal.kind == "plan" else "denied"
        if decision.changes:
            how, style = "to be changed", "yellow"
        told = f"✗ {how}" + ("" if decision.reason == _REFUSED else f": {reveal(decision.reason)}")
    return Gutter(told, mark="  ", style=style, words=True)

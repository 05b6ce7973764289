"""Display of a turn: the parts that are printed, the live area below them, and the approvals."""

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
    one_line,
    reveal,
    visible,
    whole_seconds,
)
from ragmem.tools.base import Decision, Proposal
from ragmem.tools.planning import PresentPlan

Part = tuple[Kind, RenderableType]

_PLAIN_WIDTH = 120
_SHOW_AFTER_S = 0.4
"""Seconds after which a call without output is shown as running."""
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
"""The prompt sent when the user approves a plan that the agent gave as text, without the tool."""
_STEP = re.compile(r"^ {0,3}\d+[.)] +\S", re.MULTILINE)
_BULLET = re.compile(r"^ {0,3}[-*+] +\S", re.MULTILINE)
_FOLDED_NOTE = " It is long; a yes shows all of it first."
_TEXT_QUESTIONS = {"r": "Why not? (The agent sees this.)", "c": "What should change?"}
"""The question that asks for text, by the key of the choice that leads to it."""
_NO_RULE = "no rule possible: the effects of such a line can't be fully predicted"
_RULE_QUESTION = "Allow without asking from now on:"
_REFUSED = "the user refused"
STOPPED = "the user stopped the turn"
"""Reason for a denial when the user left the question without an answer, which ends the turn."""
_OUTSIDE_QUESTION = "Allow this command outside the sandbox, with all of your permissions?"
_STOPPED = re.compile(r"Stopped .*\n")
"""First line of the result of a command that was stopped; its output follows."""
_TASK_SIGNS = "☑▸☐"
"""Signs of a task that is done, in progress, and open."""
_TASK_ROWS = 6
_LEAST_TITLE = 10
_LONG_ROWS, _LONG_CHARS = 10, 1_000
"""From this many line breaks or characters on, a proposal's size is shown below it."""
_TAIL_ROWS = 5
"""Rows of a running command's output in the live area."""


class _Call:
    def __init__(self, started: ToolStarted, begun: float, waited: float) -> None:
        self.started, self.begun = started, begun
        self.waited = waited
        """The view's `_waited` when the call started."""
        self.printed: ToolProgress | None = None


class TurnView:
    """Turns the events of a turn into the parts to print and the rows of the live area."""

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
        """Whether to print how long the model thought: only if its reasoning can be opened."""
        self._stream = MarkdownStream()
        self._last_block = ""
        self.tasks = tasks
        """The agent's task list, one task a row; empty if there is none or all tasks are done."""
        self._tasks_changed = False
        self._calls: dict[str, _Call] = {}
        self._thinking_since: float | None = None
        """Clock time at which the current reasoning began; None when the model isn't thinking."""
        self._answering = False
        self._planned = False
        self.ends_without_plan = False
        """Whether the turn succeeded without a call of the tool that presents a plan."""
        self.plan_in_words = ""
        """The answer, if no plan was presented and the answer reads as one."""
        self._decided: dict[str, bool] = {}
        """By the name of a tool whose proposal the user was shown: whether it was allowed."""
        self._retry: RetryWaiting | None = None
        self._retry_at = 0.0
        self._paused_at: float | None = None
        self._waited = 0.0
        """Seconds spent waiting for the user."""

    def show(self, event: Event) -> list[Part]:
        """Return the parts to print for an event."""
        match event:
            case TextDelta(text=text):
                thoughts = self._thinking_row()
                self._answering, self._retry = True, None
                blocks = [self._block(block) for block in self._stream.feed(text)]
                return [*thoughts, *blocks]
            case ReasoningDelta(text=text):
                if text and self._thinking_since is None:
                    self._thinking_since = self._clock()
                self._retry = None
                return []
            case ContextBuilt(recalled=recalled):
                row = memory_line(recalled) if self._shows_recall else None
                self._shows_recall = False  # A context that was too long is built a second time.
                return [("recall", row)] if row else []
            case RetryWaiting():
                self._retry, self._retry_at = event, self._clock() + event.wait_s
                text = _retry_text(event, event.wait_s, _PLAIN_WIDTH, keys="")
                told = notice(Notice(level="warning", text=text))
                return [] if self._shows_live else [("notice", told)]
            case ModelCallStarted():
                parts: list[Part] = self._thinking_row()
                self._answering, self._retry = False, None
            case ToolProgress():
                self._progress(event)
                return []
            case ToolStarted():
                parts = self._start(event)
            case ToolFinished():
                parts = self._tool_finished(event)
            case PromptAdded(text=text):
                parts = [("prompt", prompt_row(folded_prompt(text)))]
            case MemoryWritten():
                parts = [("tool", memory_row(event.line))]
            case Notice():
                parts = [("notice", notice(event))]
            case TurnFinished():
                parts = self._turn_ended(event)
            case _:
                return []
        rest = self._stream.finish()
        return [self._block(rest), *parts] if rest.strip() else parts

    def _block(self, block: str) -> Part:
        """Render a block, as an `item` if it continues the list of the block before it."""
        follows = goes_on(self._last_block, block)
        self._last_block = block
        return ("item" if follows else "text", answer(block))

    def _thinking_row(self) -> list[Part]:
        """Return a row with the duration of the reasoning that has just ended, if any."""
        since, self._thinking_since = self._thinking_since, None
        if since is None or not self._shows_thoughts:
            return []
        return [("notice", thoughts_row(round((self._clock() - since) * 1000)))]

    def _turn_ended(self, event: TurnFinished) -> list[Part]:
        self.ends_without_plan = event.subtype == "success" and not self._planned
        if self.ends_without_plan and reads_as_plan(event.result):
            self.plan_in_words = event.result
        own_ms = max(0, event.duration_ms - round(self._waited * 1000))
        event = msgspec.structs.replace(event, duration_ms=own_ms)
        tasks = self._open_tasks() if self._tasks_changed else []
        return [*self._thinking_row(), *self._stopped_calls(), *tasks, ("closing", closing(event))]

    def _open_tasks(self) -> list[Part]:
        """Return the whole task list, for the scrollback, unless all tasks are done."""
        return [("tool", Gutter(self.tasks, mark="  ", words=True))] if self.tasks else []

    def _update_tasks(self, title: str, event: ToolFinished) -> list[Part]:
        """Keep the task list for the live area, or print it whole if there is no live area."""
        rows = visible(event.display)
        is_left = any(row[:1] in _TASK_SIGNS[1:] for row in rows.split("\n"))
        self.tasks, self._tasks_changed = rows if is_left else "", True
        head = clipped(("● ", "green"), (one_line(title.removeprefix(f"{UPDATE_TASKS} "), 300), ""))
        parts: list[Part] = [("tool", head)]
        return parts if self._shows_live else [*parts, *self._open_tasks()]

    def _task_rows(self, columns: int, rows: int) -> list[Line]:
        """Return the rows of the task list that fit: from the one before the current task on."""
        tasks = self.tasks.split("\n") if self.tasks else []
        doing = next((i for i, row in enumerate(tasks) if row[:1] != _TASK_SIGNS[0]), 0)
        first = max(0, min(doing - 1, len(tasks) - rows))
        return [
            (("" if row[:1] == _TASK_SIGNS[1] else "dim", clip_to_width(f"  {row}", columns)),)
            for row in tasks[first : first + rows]
        ]

    def decided(self, tool_name: str, *, allowed: bool) -> None:
        """Note the user's decision about what this tool proposed."""
        self._decided[tool_name] = allowed

    def _start(self, event: ToolStarted) -> list[Part]:
        self._calls[event.tool_call_id] = _Call(event, self._clock(), self._waited)
        self._planned |= event.name == PresentPlan.name
        return self._thinking_row()

    def _progress(self, event: ToolProgress) -> None:
        if call := self._calls.get(event.tool_call_id):
            call.printed = event

    def _close_call(self, event: ToolFinished) -> tuple[str, ToolFinished]:
        """Remove a finished call; return its title, and the event less the wait for the user."""
        call = self._calls.pop(event.tool_call_id, None)
        if call is None:
            return event.name, event
        waited_ms = round((self._waited - call.waited) * 1000)
        own_ms = max(0, event.duration_ms - waited_ms)
        return call.started.title, msgspec.structs.replace(event, duration_ms=own_ms)

    def _tool_finished(self, event: ToolFinished) -> list[Part]:
        title, event = self._close_call(event)
        allowed = self._decided.pop(event.name, None)
        if event.name == RUN_COMMAND and (
            event.exit_code is not None or _STOPPED.match(event.text)
        ):
            return [("tool", command_block(title.removeprefix(f"{RUN_COMMAND} "), event))]
        if allowed is False and not event.success:
            return []  # the decision has been printed
        if event.name == UPDATE_TASKS and event.success:
            return self._update_tasks(title, event)
        if change := edit_result(event, asked=allowed is not None):
            # Like a proposal, a change that needed no approval is set apart by blank lines.
            return [("note" if allowed is None else "closing", change)]
        if allowed is not None:
            mark = "  ✓ " if event.success else "  ✗ "
            style = "red" if event.failed else "green"
            text = visible(event.display)
            return [("closing", Gutter(text, mark=mark, style=style, words=True))]
        return [("tool", tool_title(title, success=not event.failed)), ("tool", tool_result(event))]

    def _stopped_calls(self) -> list[Part]:
        """Remove the calls that were still running when the turn ended; return their parts."""
        parts: list[Part] = []
        for call in self._calls.values():
            if self._decided.pop(call.started.name, None) is not False:
                parts.append(("tool", tool_title(call.started.title, success=False)))
                parts.append(("tool", Text("  ⎿ stopped", style="red")))
        self._calls.clear()
        return parts

    def live(self, columns: int, rows: int) -> list[Line]:
        """Return the live area: the end of the open block, running calls, tasks and status."""
        below: list[Line] = []
        # While the user is asked, the question already names the call that is waiting for approval.
        asked = self._paused_at is not None
        running = [call for call in self._calls.values() if call.printed or not asked]
        for call in running[: max(1, rows - 2)]:
            below += self._call_rows(call, columns, rows - len(below) - 2)
        below += self._task_rows(columns, max(0, min(_TASK_ROWS, (rows - len(below) - 2) // 2)))
        below.append((("dim", self._status(columns)),))
        room = rows - len(below) - 2
        shown = self._stream.rows(columns, room) if room > 0 else []
        return [(), *shown, (), *below] if shown else [(), *below][-rows:]

    def _call_rows(self, call: _Call, columns: int, rows: int) -> list[Line]:
        """Return the rows of a running call: its title and the end of its output."""
        now = self._clock() if self._paused_at is None else self._paused_at
        lasts_s = now - call.begun - (self._waited - call.waited)
        if call.printed is None and lasts_s < _SHOW_AFTER_S:
            return []
        title = call.started.title.removeprefix(f"{RUN_COMMAND} ")
        head: Line = (("tool", "● "), ("", one_line(title, max(1, columns - 2))))
        if call.printed is None:
            return [head]
        progress = f"{whole_seconds(int(lasts_s))} · {counted(call.printed.lines, 'line')}"
        room = columns - 4 - display_width(progress)
        if room >= _LEAST_TITLE:
            head = (*head[:1], ("", one_line(title, room)), ("dim", f"  {progress}"))
        tail = [line for line in visible(call.printed.tail).split("\n") if line.strip()]
        shown = tail[-min(_TAIL_ROWS, max(0, rows - 1)) :] if rows > 1 else []
        return [head, *((("dim", f"  │ {clip_to_width(line, columns - 4)}"),) for line in shown)]

    def pause(self) -> None:
        """Stop the clock while the user is asked something."""
        self._paused_at = self._clock()

    def go_on(self) -> None:
        """Resume the clock after `pause`."""
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
        elif self._thinking_since is not None:
            doing = "thinking"
        else:
            doing = "answering" if self._answering else self._waiting
        seconds = int(self._clock() - self._started - self._waited)
        return one_line(f"{doing} · {whole_seconds(seconds)} · Esc stops", columns)


def reads_as_plan(answer: str) -> bool:
    """Return whether an answer has two numbered steps, or two bullets and the word "plan"."""
    points = _BULLET.findall(answer) if re.search(r"(?i)\bplan\b", answer) else []
    return max(len(_STEP.findall(answer)), len(points)) > 1


def _retry_text(
    retry: RetryWaiting, left_s: float, columns: int, *, keys: str = " · Esc stops"
) -> str:
    """Return a row with the reason, the number of the next try and the seconds until then.

    In a narrow window the keys are left out, and the reason is shortened.
    """
    soon = f" in {whole_seconds(math.ceil(left_s))}" if left_s > 0 else ""
    tries = f" · try {retry.attempt} of {retry.most}{soon}"
    reason = one_line(retry.reason, max(1, columns - len(tries)))
    row = f"{reason}{tries}"
    return row + keys if len(row + keys) <= columns else one_line(row, columns)


class CommandView(TurnView):
    """Shows the turn of a command that the user ran: its output, and how it ended."""

    _waiting = "working"
    _result_shown = False

    def show(self, event: Event) -> list[Part]:
        """Return the parts to print for an event."""
        match event:
            case ToolStarted():
                self._start(event)
            case ToolProgress():
                self._progress(event)
            case ToolFinished():
                _, event = self._close_call(event)
                self._result_shown = True
                return [("closing", command_result(event))]
            case Notice():
                return [("notice", notice(event))]
            case TurnFinished() if event.is_error and not self._result_shown:
                return [("closing", closing(event))]
        return []


class Approvals:
    """The chat's approver: shows a proposal and asks the user to decide.

    A folded proposal can't be approved unread: a yes shows all of it and asks again.
    """

    def __init__(
        self,
        output: ChatOutput,
        stop: Callable[[], object],
        keep: Callable[[Sequence[str], str], None],
    ) -> None:
        self._output = output
        self._ask = output.terminal.ask
        self._stop = stop
        self._keep_rules = keep
        """Adds rules in the place that a key of `PLACES` names."""

    async def __call__(self, proposal: Proposal) -> Decision:
        """Ask the user; Ctrl-C, Esc and Ctrl-D deny the proposal and stop the turn."""
        shown = ProposalBlock(proposal)
        # Computed before printing: if the window is resized in between, the user is asked twice
        # rather than too little.
        folded = shown.is_folded(self._output.width)
        self._output.show(shown)
        return await self._ask_and_report(proposal, folded=folded)

    async def plan_in_words(self, text: str) -> Decision:
        """Ask about a plan that has been printed as the model's answer."""
        plan = Proposal(tool_name=PresentPlan.name, title="", kind="plan", body=text)
        return await self._ask_and_report(plan, folded=False)

    async def _ask_and_report(self, proposal: Proposal, *, folded: bool) -> Decision:
        decision = await self._decide(proposal, folded=folded)
        if outcome := _outcome(decision, proposal):
            self._output.show(outcome, "closing")
        return decision

    async def _decide(self, proposal: Proposal, *, folded: bool) -> Decision:
        """Ask until the user has decided; leaving a follow-up (`r`, `c`, `p`, `o`) asks again."""
        is_plan = proposal.kind == "plan"
        while True:
            answer = await self._ask(_question(proposal, folded))
            if folded and answer in ("y", "a", "p", "v"):
                self._output.show(ProposalBlock(proposal, folds=False))
                note = "That is all of it. Please answer."
                self._output.show(Gutter(note, mark="  ", style="bold", words=True), "closing")
                folded = False
                continue
            match answer:
                case "y" | "e" if is_plan:
                    return Decision(True, mode="default" if answer == "y" else "acceptEdits")
                case "y" | "a":
                    return Decision(True, remember=answer == "a")
                case "p":
                    if decision := await self._ask_rule(proposal):
                        return decision
                case "o" if proposal.outside:
                    if decision := await self._ask_outside(proposal.outside):
                        return msgspec.structs.replace(decision, outside=decision.allowed)
                case "r" | "c":
                    reason = await self._ask(ChatQuestion(_TEXT_QUESTIONS[answer]))
                    if reason is not None:
                        reason = reason.strip()
                        changes = is_plan and bool(reason)
                        return Decision(False, reason=reason or _REFUSED, changes=changes)
                case "n":
                    return Decision(False, reason=_REFUSED)
                case _:
                    self._stop()
                    return Decision(False, reason=STOPPED)

    async def _ask_outside(self, proposal: Proposal) -> Decision | None:
        """Ask whether a command may leave the sandbox, and for how long; None for back."""
        permanent = [("p", "permanently …")] if proposal.for_good else []
        choices = (("y", "yes"), ("n", "no"), ("a", f"always: {proposal.always}"), *permanent)
        while (answer := await self._ask(ChatQuestion(_OUTSIDE_QUESTION, choices))) == "p":
            if decision := await self._ask_rule(proposal):
                return decision
        if answer == "n":
            return Decision(False, reason=_REFUSED)
        return None if answer is None else Decision(True, remember=answer == "a")

    async def _ask_rule(self, proposal: Proposal) -> Decision | None:
        """Ask which rules to save, and where; None for back."""
        offers = {str(i): rules for i, rules in enumerate(proposal.for_good, 1)}
        choices = [(key, " + ".join(rules)) for key, rules in offers.items()]
        question = ChatQuestion(_RULE_QUESTION, (*choices, ("o", "only this once"), ("n", "no")))
        while (answer := await self._ask(question)) in offers:
            rules = " + ".join(offers[answer])
            where = await self._ask(ChatQuestion(f"Where is {rules} allowed?", (*PLACES.items(),)))
            if where is not None:
                self._keep_rules(offers[answer], where)
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
        ("r", "no, because …"),
        ("v", folded and "view all"),
    )
    label = _LABELS[proposal.kind] + (_FOLDED_NOTE if folded else "")
    # Enter alone must not allow anything that has a warning.
    chosen = "v" if folded else "" if proposal.warnings else "y"
    return ChatQuestion(label, tuple((key, str(word)) for key, word in given if word), chosen)


class ProposalBlock:
    """A proposal as it is printed: no character is hidden, and a fold says how much it leaves out.

    Each row has a margin, so that the content can't pass for the chat's own output.
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
        """Return whether a part of the proposal is folded at a width in cells."""
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
    """Return the row that reports a decision; None where other output will report it."""
    if decision.reason == STOPPED or (decision.allowed and not decision.remember):
        return None  # reported by the end of the turn, or of the call
    style = "red"
    if decision.allowed:
        chosen = (decision.outside and proposal.outside) or proposal
        text, style = f"always: {chosen.always}", "green"
    else:
        how = "refused" if proposal.kind == "plan" else "denied"
        if decision.changes:
            how, style = "to be changed", "yellow"
        text = f"✗ {how}" + ("" if decision.reason == _REFUSED else f": {reveal(decision.reason)}")
    return Gutter(text, mark="  ", style=style, words=True)

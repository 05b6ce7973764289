"""One turn as it is seen: what is printed for good, what is live meanwhile, what is asked."""

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
_AT_ONCE_S = 0.4
"""A call is shown as one that runs when it has done so for so long."""
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
"""What the agent is told by a yes to a plan that its answer has told."""
_STEP, _BULLET = (
    re.compile(rf"^ {{0,3}}{mark} +\S", re.MULTILINE) for mark in (r"\d+[.)]", "[-*+]")
)
_FOLDED = " It is long; a yes shows all of it first."
_WORDS = {"r": "Why not? (The agent sees this.)", "c": "What should change?"}
"""What is asked for in words, by the choice that leads there."""
_NO_RULE = "no rule possible: the effects of such a line can't be fully predicted"
_FOR_GOOD = "Allow without asking from now on:"
_REFUSED = "the user refused"
STOPPED = "the user stopped the turn"
"""Why what was asked about was not done, where the question was left and the turn ended."""
_LEAVES = "Allow this command outside the sandbox, with all of your permissions?"
_STOPPED = re.compile(r"Stopped .*\n")
"""How the text begins of a command that was ended, with what it had printed below it."""
_TASK_SIGNS = "☑▸☐"
"""Of what is done, what is being done, what is open."""
_TASK_ROWS = 6
_LEAST_TITLE = 10
_LONG_ROWS, _LONG_CHARS = 10, 1_000
"""From so much on it is said how much there is to be read before one answers."""
_TAIL_ROWS = 5
"""Of what a command prints while it runs."""


class _Call:
    """A call that runs."""

    def __init__(self, started: ToolStarted, begun: float, waited: float) -> None:
        self.started, self.begun = started, begun
        self.waited = waited
        """Seconds that the person had been waited for when it began."""
        self.printed: ToolProgress | None = None


class TurnView:
    """Turns a turn's events into what is printed, and into what is live meanwhile."""

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
        """Whether how long was thought is said, since it can be opened."""
        self._stream = MarkdownStream()
        self._last_block = ""
        self.tasks = tasks
        """The agent's list, a row each; empty where there is none, or all is done."""
        self._tasks_changed = False
        self._calls: dict[str, _Call] = {}
        self._thinks_since: float | None = None
        """When the thoughts began, on the clock, that nothing has followed yet."""
        self._answering = False
        self._planned = False
        self.ends_without_plan = False
        """Whether the turn ended well, and presented no plan."""
        self.plan_in_words = ""
        """The answer, where it presented none and reads as one."""
        self._decided: dict[str, bool] = {}
        """Of each tool whose change the person was shown: whether it was allowed."""
        self._retry: RetryWaiting | None = None
        self._retry_at = 0.0
        self._paused_at: float | None = None
        self._waited = 0.0
        """Seconds for which the person was waited for."""

    def show(self, event: Event) -> list[Part]:
        """Return what to print now."""
        match event:
            case TextDelta(text=text):
                thoughts = self._thoughts()
                self._answering, self._retry = True, None
                blocks = [self._block(block) for block in self._stream.feed(text)]
                return [*thoughts, *blocks]
            case ReasoningDelta(text=text):
                if text and self._thinks_since is None:
                    self._thinks_since = self._clock()
                self._retry = None
                return []
            case ContextBuilt(recalled=recalled):
                row = memory_line(recalled) if self._shows_recall else None
                self._shows_recall = False  # It is built anew where a model can take in less.
                return [("recall", row)] if row else []
            case RetryWaiting():
                self._retry, self._retry_at = event, self._clock() + event.wait_s
                return [] if self._shows_live else [("notice", notice(_retry_notice(event)))]
            case ModelCallStarted():
                parts: list[Part] = self._thoughts()
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
        """Render a block; an item belongs to the list that the block before it was of."""
        follows = goes_on(self._last_block, block)
        self._last_block = block
        return ("item" if follows else "text", answer(block))

    def _thoughts(self) -> list[Part]:
        """Say once how long was thought, when something follows."""
        since, self._thinks_since = self._thinks_since, None
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
        return [*self._thoughts(), *self._cut_off(), *left, ("closing", closing(event))]

    def _tasks_left(self) -> list[Part]:
        """Show the whole list, for the scrollback, where something of it is left."""
        return [("tool", Gutter(self.tasks, mark="  ", words=True))] if self.tasks else []

    def _take_tasks(self, title: str, event: ToolFinished) -> list[Part]:
        """Keep the list in sight, and say how far it is; where nothing can be live, all of it."""
        rows = visible(event.display)
        is_left = any(row[:1] in _TASK_SIGNS[1:] for row in rows.split("\n"))
        self.tasks, self._tasks_changed = rows if is_left else "", True
        head = clipped(("● ", "green"), (one_line(title.removeprefix(f"{UPDATE_TASKS} "), 300), ""))
        parts: list[Part] = [("tool", head)]
        return parts if self._shows_live else [*parts, *self._tasks_left()]

    def _task_rows(self, columns: int, rows: int) -> list[Line]:
        """Return what has room of the list: what is being done, and what follows."""
        tasks = self.tasks.split("\n") if self.tasks else []
        doing = next((i for i, row in enumerate(tasks) if row[:1] != _TASK_SIGNS[0]), 0)
        first = max(0, min(doing - 1, len(tasks) - rows))
        return [
            (("" if row[:1] == _TASK_SIGNS[1] else "dim", clip_to_width(f"  {row}", columns)),)
            for row in tasks[first : first + rows]
        ]

    def decided(self, tool_name: str, *, allowed: bool) -> None:
        """Take note that the person was shown what this tool is about to change, and decided."""
        self._decided[tool_name] = allowed

    def _start(self, event: ToolStarted) -> list[Part]:
        self._calls[event.tool_call_id] = _Call(event, self._clock(), self._waited)
        self._planned |= event.name == PresentPlan.name
        return self._thoughts()

    def _progress(self, event: ToolProgress) -> None:
        if call := self._calls.get(event.tool_call_id):
            call.printed = event

    def _end(self, event: ToolFinished) -> tuple[str, ToolFinished]:
        """Return its title, and the event with the tool's own time, less the person's."""
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
            return []  # the answer has said so
        if event.name == UPDATE_TASKS and event.success:
            return self._take_tasks(title, event)
        if change := edit_result(event, asked=allowed is not None):
            # One that nobody was asked about stands apart, as a question with a change does.
            return [("note" if allowed is None else "closing", change)]
        if allowed is not None:
            mark = "  ✓ " if event.success else "  ✗ "
            style = "red" if event.failed else "green"
            text = visible(event.display)
            return [("closing", Gutter(text, mark=mark, style=style, words=True))]
        return [("tool", tool_title(title, success=not event.failed)), ("tool", tool_result(event))]

    def _cut_off(self) -> list[Part]:
        """Return the calls that the turn's end has stopped."""
        parts: list[Part] = []
        for call in self._calls.values():
            if self._decided.pop(call.started.name, None) is not False:
                parts.append(("tool", tool_title(call.started.title, success=False)))
                parts.append(("tool", Text("  ⎿ stopped", style="red")))
        self._calls.clear()
        return parts

    def live(self, columns: int, rows: int) -> list[Line]:
        """Return the open block's end, what runs, and how long it has taken."""
        below: list[Line] = []
        # While the person is asked, what has not begun is named by the question.
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
        """Return a call that runs, and the end of what it has printed."""
        now = self._clock() if self._paused_at is None else self._paused_at
        lasts_s = now - call.begun - (self._waited - call.waited)
        if call.printed is None and lasts_s < _AT_ONCE_S:
            return []  # What is still asked about does not run.
        title = call.started.title.removeprefix(f"{RUN_COMMAND} ")
        head: Line = (("tool", "● "), ("", one_line(title, max(1, columns - 2))))
        if call.printed is None:
            return [head]
        said = f"{duration(int(lasts_s) * 1000)} · {counted(call.printed.lines, 'line')}"
        room = columns - 4 - display_width(said)
        if room >= _LEAST_TITLE:
            head = (*head[:1], ("", one_line(title, room)), ("dim", f"  {said}"))
        tail = [line for line in visible(call.printed.tail).split("\n") if line.strip()]
        shown = tail[-min(_TAIL_ROWS, max(0, rows - 1)) :] if rows > 1 else []
        return [head, *((("dim", f"  │ {clip_to_width(line, columns - 4)}"),) for line in shown)]

    def pause(self) -> None:
        """Stop the clock: it is the person who is waited for."""
        self._paused_at = self._clock()

    def go_on(self) -> None:
        """Let the clock go on."""
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
        elif self._thinks_since is not None:
            doing = "thinking"
        else:
            doing = "answering" if self._answering else self._waiting
        seconds = int(self._clock() - self._started - self._waited)
        return one_line(f"{doing} · {duration(seconds * 1000)} · Esc stops", columns)


def reads_as_plan(answer: str) -> bool:
    """Whether an answer has numbered steps, or points and the word plan."""
    points = _BULLET.findall(answer) if re.search(r"(?i)\bplan\b", answer) else []
    return max(len(_STEP.findall(answer)), len(points)) > 1


def _retry_text(retry: RetryWaiting, left_s: float, columns: int) -> str:
    """Say why, which try comes, and when; where there is no room for all, why in fewer words."""
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
    """Shows the turn of a person's own command: what it printed, and how it ended."""

    _waiting = "working"
    _told = False

    def show(self, event: Event) -> list[Part]:
        """Return what to print now."""
        match event:
            case ToolStarted():
                self._start(event)
            case ToolProgress():
                self._progress(event)
            case ToolFinished():
                _, event = self._end(event)
                self._told = True
                return [("closing", command_result(event))]
            case Notice():
                return [("notice", notice(event))]
            case TurnFinished() if event.is_error and not self._told:
                return [("closing", closing(event))]
        return []


class Approvals:
    """The chat's approver: shows the proposal, waits for y, n, a or a reason.

    What a fold leaves out can't be allowed: a yes to it shows the whole, and is asked again.
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
        """Keeps rules, for where a key of `PLACES` says."""

    async def __call__(self, proposal: Proposal) -> Decision:
        """Ask; Ctrl-C, Esc and Ctrl-D stop the turn as they do elsewhere: nothing is done."""
        shown = ProposalBlock(proposal)
        # Seen before it is printed: should the window change meanwhile, more is asked, not less.
        folded = shown.is_folded(self._output.width)
        self._output.show(shown)
        return await self._settled(proposal, folded=folded)

    async def plan_in_words(self, told: str) -> Decision:
        """Ask about a plan that stands above as the words of an answer."""
        plan = Proposal(tool_name=PresentPlan.name, title="", kind="plan", body=told)
        return await self._settled(plan, folded=False)

    async def _settled(self, proposal: Proposal, *, folded: bool) -> Decision:
        decision = await self._decide(proposal, folded=folded)
        if outcome := _outcome(decision, proposal):
            self._output.show(outcome, "closing")
        return decision

    async def _decide(self, proposal: Proposal, *, folded: bool) -> Decision:
        """Ask until an answer is one: what is left behind `r`, `c` or `p` is asked anew."""
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
                    if decision := await self._for_good(proposal):
                        return decision
                case "o" if proposal.outside:
                    if decision := await self._leaving(proposal.outside):
                        return msgspec.structs.replace(decision, outside=decision.allowed)
                case "r" | "c":
                    reason = await self._ask(ChatQuestion(_WORDS[answer]))
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

    async def _leaving(self, proposal: Proposal) -> Decision | None:
        """Ask how long a command may leave the sandbox; None where the person goes back."""
        good = [("p", "permanently …")] if proposal.for_good else []
        choices = (("y", "yes"), ("n", "no"), ("a", f"always: {proposal.always}"), *good)
        while (answer := await self._ask(ChatQuestion(_LEAVES, choices))) == "p":
            if decision := await self._for_good(proposal):
                return decision
        if answer is None:
            return None
        return Decision(answer != "n", remember=answer == "a", reason=_REFUSED * (answer == "n"))

    async def _for_good(self, proposal: Proposal) -> Decision | None:
        """Ask which rule is to be kept; None where the person goes back."""
        offers = {str(i): rules for i, rules in enumerate(proposal.for_good, 1)}
        choices = [(key, " + ".join(rules)) for key, rules in offers.items()]
        question = ChatQuestion(_FOR_GOOD, (*choices, ("o", "only this once"), ("n", "no")))
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
    # What a warning stands by is not to be allowed by Enter alone.
    chosen = "v" if folded else "" if proposal.warnings else "y"
    return ChatQuestion(label, tuple((key, str(word)) for key, word in given if word), chosen)


class ProposalBlock:
    """What is proposed: no character of it is hidden, and a fold says how much it leaves out.

    Each row stands behind a margin, so that the content can't pass for ours.
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
        """Return whether part of it is left out at that width, in cells."""
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
    """Say what was decided; of what is allowed this once, what comes of it will be said."""
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

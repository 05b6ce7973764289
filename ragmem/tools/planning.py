"""The agent's task list, and the plan that ends plan mode."""

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from ragmem.errors import StoreError
from ragmem.events import MemoryWritten
from ragmem.memory.facts import Draft
from ragmem.memory.memory import Memory
from ragmem.own_tools import UPDATE_TASKS
from ragmem.records import Evidence, Session, ToolCall
from ragmem.redact import first_of
from ragmem.text import counted, one_line
from ragmem.tools.base import (
    AgentTool,
    Approver,
    Arguments,
    CurrentMode,
    Proposal,
    ToolFailure,
    ToolOutput,
    answer_to,
    arg,
    denial,
)
from ragmem.tools.memory import written_event

_MOST_TASKS = 30
_MARKS = {"done": "☑", "doing": "▸", "open": "☐"}


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to be done."""

    text: Annotated[str, arg("The task, in a few words.", least=1)]
    state: Literal["open", "doing", "done"] = "open"


class UpdateTasks(AgentTool):
    """Keep the task list; it is stored only as the recorded calls."""

    name = UPDATE_TASKS
    description = (
        "Keep a task list for work of three or more steps: the user sees it, and the next "
        "session knows what is open. Send the whole list when you make it, and whenever you start "
        "a task (one at a time) or finish one."
    )

    class Params(Arguments, frozen=True):
        tasks: Annotated[tuple[Task, ...], arg("All tasks, in order, done ones too.", _MOST_TASKS)]

    def __init__(self) -> None:
        self.tasks: tuple[Task, ...] = ()

    def title(self, params: Params) -> str:
        """Return the progress."""
        return _progress(params.tasks)

    def standing(self) -> str:
        """Return the list for the beginning of a turn; empty if nothing is open."""
        if all(task.state == "done" for task in self.tasks):
            return ""
        return f"Your task list; keep it current with {UPDATE_TASKS}:\n{_rows(self.tasks)}"

    def restore(self, calls: Iterable[ToolCall]) -> None:
        """Restore the list of a recorded session; `calls` are in the order they were made."""
        for call in calls:
            if call.tool_name == self.name and call.success:
                try:
                    params = msgspec.json.decode(call.arguments, type=self.Params)
                except msgspec.DecodeError:
                    continue
                self.tasks = params.tasks

    async def run(self, params: Params) -> ToolOutput:
        """Replace the list with the new one."""
        self.tasks = params.tasks
        rows = _rows(params.tasks)
        return ToolOutput(text=_progress(params.tasks), display=rows or "no tasks")


def _rows(tasks: tuple[Task, ...]) -> str:
    return "\n".join(f"{_MARKS[task.state]} {one_line(task.text, 160)}" for task in tasks)


def _progress(tasks: tuple[Task, ...]) -> str:
    done = sum(task.state == "done" for task in tasks)
    doing = [f"; now: {one_line(task.text, 120)}" for task in tasks if task.state == "doing"]
    return "".join([f"{done} of {counted(len(tasks), 'task')} done", *doing[:1]])


class PresentPlan(AgentTool):
    """Present the plan to the user, whose approval ends plan mode."""

    name = "present_plan"
    description = (
        "In plan mode: show your plan to the user, who approves it, asks for changes or rejects "
        "it. Read all that it needs first. Approval ends plan mode."
    )

    class Params(Arguments, frozen=True):
        decision: Annotated[str, arg("One self-contained sentence: what to do, and how.", 500, 1)]
        plan: Annotated[
            str,
            arg(
                "The plan in Markdown: the steps with their files, what could go wrong, "
                "how to check it.",
                30_000,
                1,
            ),
        ]

    def __init__(
        self, mode: CurrentMode, approver: Approver, memory: Memory, session: Session
    ) -> None:
        self._mode = mode
        self._approver = approver
        self._memory = memory
        self._session = session

    def standing(self) -> str:
        """Explain plan mode for the beginning of a turn; empty in other modes."""
        if self._mode.value != "plan":
            return ""
        return (
            "Plan mode: read and search, change nothing and run nothing. If the prompt asks for "
            f"work, end with {self.name}; answer a question as usual."
        )

    async def run(self, params: Params) -> ToolOutput:
        """Ask for approval; raises ToolFailure with the user's answer if they don't approve."""
        if self._mode.value != "plan":
            raise ToolFailure("This is not plan mode: no plan needs approval. Do the work.")
        plan = Proposal(tool_name=self.name, title=params.decision, kind="plan", body=params.plan)
        decision = await answer_to(plan, self._approver)
        if not decision.allowed:
            why = f": {decision.reason}" if decision.reason else ""
            message = (
                f"The user wants the plan changed{why}. Revise it and present it again."
                if why and decision.changes
                else f"The user rejected the plan{why}. Nothing was done. Don't present it again "
                "until they say what they want."
            )
            raise denial(message)
        self._mode.value = decision.mode or "default"
        written = await self._remember(params.decision)
        return ToolOutput(
            text="The user approved the plan, and plan mode has ended. Carry it out now, step "
            f"by step; if it has three or more steps, keep a task list with {UPDATE_TASKS}.",
            display="approved",
            data={"mode": self._mode.value},
            written=(written,) if written else (),
        )

    async def _remember(self, text: str) -> MemoryWritten | None:
        """Remember the approved plan as a decision of the project, with its turn as evidence."""
        facts, session = self._memory.facts, self._session
        turn = self._memory.running_turn(session.session_id)
        if facts is None or turn is None or not self._memory.records:
            return None
        asking = [call for call in turn.tool_calls if call.tool_name == self.name]
        evidence = Evidence(
            session_id=turn.session_id,
            turn_id=turn.turn_id,
            turn_index=turn.turn_index,
            tool_call_id=asking[-1].tool_call_id if asking else "",
            tool_name=self.name,
            quote=first_of(turn.user_message, 300),
            at=turn.started_at,
        )
        draft = Draft(
            content=text, kind="decision", source="chat", scope="project", evidence=(evidence,)
        )
        try:
            return written_event(await facts.remember(draft, session.project_id))
        except StoreError:
            return None

"""What must hold after any crash: `check` says what does not, in words; nothing is good.

What was shown as saved is there. A turn is whole, or visibly interrupted.
Nothing with an effect has run twice, and what may have run is known. The
request that comes next is one that every provider takes. Files are old or new.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ragmem.records import SessionQuery, ToolCall, Turn
from ragmem.store import Archive
from tests.crash.scenario import CALLS, Said, done, notes

_EVERYTHING = 10_000


async def check(
    store: Archive, said: Sequence[Said], project: Path, *, sessions: int = 1, running: int = 0
) -> list[str]:
    """Violations. `said` is by process; at most so many `running` turns may be left."""
    wrong = [f"store check: {f.what} ({f.where})" for f in await store.check()]
    found = await store.sessions(SessionQuery(limit=_EVERYTHING))
    if len(found) > sessions:
        wrong.append(f"{len(found)} sessions, where there should be {sessions}")
    turns: list[Turn] = []
    for session in found:
        own = await store.turns(session.session_id)
        indexes = [turn.turn_index for turn in own]
        if indexes != list(range(1, len(own) + 1)):
            wrong.append(f"turns are counted {indexes}")
        turns += own
    wrong += _acknowledged(turns, [each for each in said if each.durable])
    wrong += _whole(turns, running)
    wrong += _effects(turns, project)
    wrong += _files(turns, project)
    return wrong


def _acknowledged(turns: Sequence[Turn], said: Sequence[Said]) -> Iterator[str]:
    by_id = {turn.turn_id: turn for turn in turns}
    for each in said:
        if not each.turn_id:
            continue
        turn = by_id.get(each.turn_id)
        if turn is None:
            yield f"lost: the turn {each.prompt!r} that was accepted"
            continue
        if (turn.user_message, turn.turn_index) != (each.prompt, each.turn_index):
            yield f"changed: {each.prompt!r} is {turn.user_message!r}, {turn.turn_index}th"
        calls = {call.tool_call_id: call for call in turn.tool_calls}
        for call_id, text in each.calls.items():
            if call_id not in calls:
                yield f"lost: a tool call of {each.prompt!r} that was shown"
            elif _result(calls[call_id]) != text:
                yield f"changed: what {calls[call_id].tool_name} of {each.prompt!r} gave"
        if each.result is not None and turn.assistant_message != each.result:
            yield f"lost: the answer to {each.prompt!r}"
        if each.result is not None and turn.status != "completed":
            yield f"{each.prompt!r} was answered and is {turn.status}"


def _whole(turns: Sequence[Turn], running: int) -> Iterator[str]:
    if (live := sum(turn.status == "running" for turn in turns)) > running:
        yield f"{live} turns run, though their processes are dead"
    for prompt, count in Counter(turn.user_message for turn in turns).items():
        if count > 1:
            yield f"{prompt!r} stands {count} times"
    for turn in turns:
        job = _job(turn)
        if turn.status == "completed":
            names = [call.tool_name for call in turn.tool_calls]
            if job and sorted(names) != sorted(CALLS):
                yield f"half: {turn.user_message!r} is completed with the calls {names}"
            if not all(call.result for call in turn.tool_calls):
                yield f"half: {turn.user_message!r} is completed, a call of it is not"
            if turn.assistant_message != (done(job) if job else "I see."):
                yield f"half: {turn.user_message!r} is completed with {turn.assistant_message!r}"
        elif turn.status == "interrupted" and turn.finished_at is None:
            yield f"half: {turn.user_message!r} was interrupted, and nobody knows when"
        orders = [call.order for call in turn.tool_calls]
        if len(set(orders)) != len(orders):
            yield f"calls of {turn.user_message!r} stand in the order {orders}"


def _effects(turns: Sequence[Turn], project: Path) -> Iterator[str]:
    """The command of a job: never twice; known if it may have run; run if it is said so."""
    file = project / "effects.txt"
    happened = Counter(file.read_text().split()) if file.exists() else Counter[str]()
    known = {str(_job(turn)): _call(turn, "run_command") for turn in turns if _job(turn)}
    for job, times in happened.items():
        if times > 1:
            yield f"the command of job {job} ran {times} times"
        if known.get(job) is None:
            yield f"the command of job {job} ran, and nobody knows"
    for job, call in known.items():
        if call is not None and call.success and not happened[job]:
            yield f"the command of job {job} is said to have run, and did not"


def _files(turns: Sequence[Turn], project: Path) -> Iterator[str]:
    content = (project / "a.py").read_text()
    value = re.fullmatch(r"VALUE = (\d+)\n", content)
    begun = {0} | {_job(turn) for turn in turns if _call(turn, "edit_file")}
    made = [_job(turn) for turn in turns if (call := _call(turn, "edit_file")) and call.success]
    if value is None or int(value[1]) not in begun:
        yield f"the edited file is neither old nor new: {content[:40]!r}"
    elif made and int(value[1]) < max(made):
        yield f"the edit of job {max(made)} is said to be done, and is not"
    if len(drafts := list(project.glob(".ragmem-*"))) > 1:
        yield f"{len(drafts)} drafts of one file are left"
    for turn in turns:
        job, call = _job(turn), _call(turn, "create_file")
        new = project / f"notes-{job}.txt"
        if job and new.exists() and new.read_text() != notes(job):
            yield f"{new.name} is written by half"
        if job and new.exists() and call is None:
            yield f"{new.name} was written, and nobody knows"
        if call and call.success and not new.exists():
            yield f"{new.name} is said to be written, and is not there"


def _job(turn: Turn) -> int:
    """Its number; 0 for a turn that is no job."""
    asked = re.fullmatch(r"Do job (\d+)", turn.user_message)
    return int(asked[1]) if asked else 0


def _call(turn: Turn, name: str) -> ToolCall | None:
    return next((call for call in turn.tool_calls if call.tool_name == name), None)


def _result(call: ToolCall) -> str:
    return str(json.loads(call.result or '{"text": ""}')["text"])


def check_request(messages: Sequence[dict[str, Any]]) -> list[str]:
    """What makes a provider refuse a request for ever, when it is not so."""
    wrong = []
    waiting: list[str] = []
    before = ""
    for number, message in enumerate(messages):
        role = message["role"]
        if role == "system" and number:
            wrong.append(f"message {number} is the system's")
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                wrong.append(f"message {number} answers a call that does not wait for one")
            else:
                waiting.remove(message["tool_call_id"])
            before = role
            continue
        if waiting:
            wrong.append(f"{len(waiting)} calls before message {number} have no answer")
        if role == before:
            wrong.append(f"messages {number - 1} and {number} are both the {role}'s")
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(waiting)) != len(waiting):
            wrong.append(f"message {number} has two calls of one id")
        before = role
    if waiting:
        wrong.append(f"{len(waiting)} calls at the end have no answer")
    if not messages or messages[-1]["role"] == "assistant":
        wrong.append("the model speaks last")
    return wrong

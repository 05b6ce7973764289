"""What a process writes, and who works on what."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from ragmem.errors import SessionNotFound
from ragmem.records import (
    Insight,
    Project,
    PutProfile,
    RegisterProject,
    UpdateSession,
    Write,
)
from tests.store.life.process import Process
from tests.store.samples import (
    answered,
    begun,
    called,
    created,
    finished,
    insight,
    remembered,
    said,
    summed,
)

some = st.integers(0, 30)
few = st.integers(1, 5)
OPEN = ("running", "interrupted", "failed")
"""States of turns that may go on."""
seldom = st.integers(0, 2)
"""0 when something is to be done that takes long."""
texts = st.sampled_from(["Why?", "", "Le jardin d'été 🌱", "a\0b", "half \ud83d", "x" * 99])


class Saying(Process):
    """It writes."""

    # --- rules: what a process writes ---------------------------------------------

    @initialize(count=st.integers(1, 6))
    def begin_a_life(self, count: int) -> None:
        """With something in it, so that short lives are worth looking at."""
        for name in "ab":
            self.create_session(f"/{name}", "")
        for number in range(count):
            self.say_turn(number)
        self.fork(1, 1)

    @rule(number=some)
    def say_turn(self, number: int) -> None:
        if session := self.pick(self.sessions(), number):
            self.say(*turn_of(session, self.new("t"), self.tick()))

    @rule(number=some, text=texts)
    def register_project(self, number: int, text: str) -> None:
        there = [each.project_id for each in self.run(self.witness.projects())]
        known = self.pick([*there, *[""] * 5], number)
        path = f"/home/ana/{next(self.numbers)}"
        self.say(
            RegisterProject(
                project=Project(
                    project_id=known or self.new("p"), path=path, created_at=self.tick()
                )
            )
        )

    @rule(cwd=st.sampled_from(["/a", "/b"]), title=texts)
    def create_session(self, cwd: str, title: str) -> None:
        began = self.tick()
        self.say(
            created(
                self.new("s"), cwd=cwd, project_id=f"p-of-{cwd}", started_at=began,
                updated_at=began, last_activity_at=began,
            )
        )  # fmt: skip

    @rule(number=some, back=st.integers(-1, 3))
    def fork(self, number: int, back: int) -> None:
        if parent := self.pick(self.sessions(), number):
            index = len(self.run(self.witness.turns(parent))) - back
            began = self.tick()
            self.say(
                created(
                    self.new("f"), parent_session_id=parent,
                    forked_at_index=None if back == 3 else index,
                    started_at=began, updated_at=began, last_activity_at=began,
                )
            )  # fmt: skip

    @rule(number=some, text=texts)
    def begin_turn(self, number: int, text: str) -> None:
        if session := self.pick(self.sessions(), number):
            owner = self.owner if session in self.attached else None
            self.say(begun(session, self.new("t"), text, owner_id=owner, started_at=self.tick()))

    @rule(number=some, steps=st.sampled_from(["start", "end", "start end"]), files=some)
    def call_tool(self, number: int, steps: str, files: int) -> None:
        if turn := self.pick(self.turns(*OPEN), number):
            session_id, turn_id, order = turn.session_id, turn.turn_id, len(turn.tool_calls)
            call_id, began = self.new("c"), self.tick()
            paths = [f"{name}.py" for name in "abc"[: files % 4]]
            whole = {"tool_call_id": call_id, "started_at": began}
            start = called(session_id, turn_id, order, result="", success=False, **whole)
            end = called(session_id, turn_id, order, *paths, **whole)
            for step in steps.split():
                self.say(start if step == "start" else end)

    @rule(number=some)
    def finish_tool(self, number: int) -> None:
        """A call that was started, now or long ago, has ended."""
        waiting = [
            (turn.session_id, call)
            for turn in self.turns(*OPEN)
            for call in turn.tool_calls
            if not call.result
        ]
        if found := self.pick(waiting, number):
            session_id, call = found
            whole = {"tool_call_id": call.tool_call_id, "started_at": call.started_at}
            self.say(called(session_id, call.turn_id, call.order, "a.py", **whole))

    @rule(number=some, text=texts)
    def finish_again(self, number: int, text: str) -> None:
        """What is completed stays as it is."""
        if turn := self.pick(self.turns("completed"), number):
            end = finished(turn.session_id, turn.turn_id, text, "failed", finished_at=self.tick())
            self.say(end)

    @rule(
        number=some,
        text=texts,
        status=st.sampled_from(["completed", "completed", "interrupted", "failed"]),
    )
    def finish_turn(self, number: int, text: str, status: Any) -> None:
        if turn := self.pick(self.turns(*OPEN), number):
            end = finished(turn.session_id, turn.turn_id, text, status, finished_at=self.tick())
            self.say(end)

    @rule(number=some, text=texts)
    def answer_in_part(self, number: int, text: str) -> None:
        """What has come of an answer is that of a turn that runs, and of no other."""
        if turn := self.pick(self.turns(*OPEN), number):
            self.say(answered(turn.session_id, turn.turn_id, text))

    @rule(number=some, title=texts, archived=st.booleans())
    def update(self, number: int, title: str, archived: bool) -> None:
        if session := self.pick(self.sessions(), number):
            self.say(
                UpdateSession(
                    session_id=session,
                    title=None if archived else title.replace("\0", "").strip("\ud83d"),
                    status="archived" if archived else None,
                    tags=("x",) if len(title) > 9 else None,
                    at=self.tick(),
                )
            )

    @rule(number=some, level=st.integers(1, 3), count=st.integers(1, 4))
    def summarize(self, number: int, level: int, count: int) -> None:
        if session := self.pick(self.sessions(), number):
            below = [each.turn_id for each in self.run(self.witness.turns(session))]
            if level > 1:
                found = self.run(self.witness.summaries(session, level=level - 1))
                below = [each.summary_id for each in found[::-1]]
            if below:
                self.say(
                    summed(
                        session, *below[-count:], level=level, summary_id=self.new("m"),
                        created_at=self.tick(),
                    )
                )  # fmt: skip

    @rule(number=some, count=st.integers(0, 2), text=texts, again=st.booleans())
    def remember(self, number: int, count: int, text: str, again: bool) -> None:
        """Something new, perhaps in the place of others; or what is known says something else."""
        memories = self.memories()
        held = self.pick(memories, number) if again else None
        now = self.tick()
        places = [
            said(session, "some-turn", f"{number}", at=now)
            for session in [self.pick(self.sessions(), number + n) for n in range(count)]
            if session
        ]
        self.say(
            remembered(
                held.memory_id if held else self.new("k"),
                text,
                pinned=bool(number % 2),
                project_id=None if number % 3 else "p-of-/a",
                created_at=held.created_at if held else now,
                updated_at=max(now, held.updated_at) if held else now,
                evidence=tuple(places),
                supersedes=tuple(each.memory_id for each in memories[number % 4 :][:count]),
            )
        )

    @rule(key=st.sampled_from(["name", "editor"]), text=st.one_of(st.none(), texts))
    def describe(self, key: str, text: str | None) -> None:
        """The person says something of themselves, or takes it back."""
        self.say(PutProfile(key=key, value=text, at=self.tick()))

    @rule(number=some)
    def look_over(self, number: int) -> None:
        """An insight, in the place of an earlier one."""
        if session := self.pick(self.sessions(), number):
            now = self.tick()
            held = [each.created_at for each in self.run(self.witness.get(Insight, [session]))]
            self.say(insight(session, self.new("topic"), created_at=max(now, *held, now)))

    @rule(number=some)
    def forget(self, number: int) -> None:
        if not self.calm:
            return
        if memory := self.pick(self.memories(), number):
            self.both("forget_memories", [memory.memory_id])

    @rule(number=some)
    def repeat(self, number: int) -> None:
        """What was said before is said again: a retry, a replay."""
        if writes := self.pick(self.history, number):
            self.say(*writes)

    @rule(number=some)
    def say_nonsense(self, number: int) -> None:
        """One write that can't be stored undoes its neighbours."""
        if not (self.calm and not self.spooled):
            return
        if session := self.pick(self.sessions(), number):
            with pytest.raises(SessionNotFound):
                self.run(
                    self.store.apply(
                        [
                            UpdateSession(session_id=session, title="no", at=self.tick()),
                            *turn_of(session, self.new("t"), self.tick()),
                            begun("nowhere"),
                        ]
                    )
                )

    # --- rules: who works on what -------------------------------------------------

    @rule(number=some)
    def attach(self, number: int) -> None:
        if not self.calm:
            return
        if session := self.pick(self.sessions(), number):
            self.owner = self.owner or self.new("o")
            self.attached.add(session)
            self.both("attach", session, self.owner)

    @rule()
    def detach(self) -> None:
        if not (self.calm and self.owner):
            return
        self.both("detach", self.owner)
        if self.now_kind == "neo4j" and (sessions := self.sessions()):
            # It looks at once for whatever else nobody runs.
            self.run(self.witness.attach(sessions[0], "looking"))
            self.run(self.witness.detach("looking"))
        self.owner, self.attached = "", set()

    @rule(number=some)
    def delete(self, number: int) -> None:
        """It is refused while a fork shares its turns, or somebody works in it."""
        if not self.calm:
            return
        session = self.pick(self.sessions(), number)
        if session and self.both("delete_session", session) != "refused":
            self.history = []

    @rule(number=some)
    def another_process(self, number: int) -> None:
        """It takes a turn in the same session, meanwhile."""
        if not self.calm:
            return
        self.settle()
        if session := self.pick(self.sessions(), number):
            writes = turn_of(session, self.new("t"), self.tick())
            other = self.run(self._handle())
            self.stores.append(other)
            self.tell(writes, self.run(other.apply(writes)))
            self.run(other.aclose())
            self.settle()


def turn_of(session_id: str, turn_id: str, began: Any) -> list[Write]:
    """A turn with a tool call."""
    return [
        begun(session_id, turn_id, "And then?", started_at=began),
        called(session_id, turn_id, 0, "a.py", tool_call_id=f"{turn_id}-call", started_at=began),
        finished(session_id, turn_id, "Then this.", finished_at=began),
    ]

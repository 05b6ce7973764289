"""What a process writes, and who works on what."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from ragmem.errors import SessionNotFound, StoreRefused
from ragmem.records import (
    Insight,
    Project,
    PutInsight,
    PutMemory,
    PutProfile,
    RegisterProject,
    UpdateSession,
    Write,
)
from tests.store.life.process import MEMORIES, NOW, Process, place_of
from tests.store.model import Model
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
        free = [each for each in self.model.projects if each not in self.frozen]
        known = self.pick([*free, *[""] * 5], number)
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
            index = len(self.model.visible(parent)) - back
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
            registered = (self.owner, session) in self.model.attached
            owner = self.owner if registered else None
            self.say(begun(session, self.new("t"), text, owner_id=owner, started_at=self.tick()))

    @rule(number=some, steps=st.sampled_from(["start", "end", "start end"]), files=some)
    def call_tool(self, number: int, steps: str, files: int) -> None:
        if turn_id := self.pick_turn(number):
            session_id = self.model.turns[turn_id].session_id
            order = len(self.model.whole_turn(turn_id).tool_calls)
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
        turns = self.model.turns
        open_calls = [
            call
            for call in self.model.calls.values()
            if not call.result
            and turns[call.turn_id].session_id not in self.frozen
            and turns[call.turn_id].status != "completed"
        ]
        if call := self.pick(open_calls, number):
            session_id = self.model.turns[call.turn_id].session_id
            whole = {"tool_call_id": call.tool_call_id, "started_at": call.started_at}
            self.say(called(session_id, call.turn_id, call.order, "a.py", **whole))

    @rule(number=some, text=texts)
    def finish_again(self, number: int, text: str) -> None:
        """What is completed stays as it is."""
        ended = [
            turn
            for turn in self.model.turns.values()
            if turn.status == "completed" and turn.session_id not in self.frozen
        ]
        if turn := self.pick(ended, number):
            end = finished(turn.session_id, turn.turn_id, text, "failed", finished_at=self.tick())
            self.say(end)

    @rule(
        number=some,
        text=texts,
        status=st.sampled_from(["completed", "completed", "interrupted", "failed"]),
    )
    def finish_turn(self, number: int, text: str, status: Any) -> None:
        if turn_id := self.pick_turn(number):
            session_id = self.model.turns[turn_id].session_id
            self.say(
                finished(session_id, turn_id, text, status, finished_at=self.tick()),
            )

    @rule(number=some, text=texts)
    def answer_in_part(self, number: int, text: str) -> None:
        """What has come of an answer is that of a turn that runs, and of no other."""
        if turn_id := self.pick_turn(number):
            self.say(answered(self.model.turns[turn_id].session_id, turn_id, text))

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
            below = self.model.visible(session)
            if level > 1:
                below = [
                    each.summary_id
                    for each in self.model.summaries.values()
                    if each.session_id == session and each.level == level - 1
                ]
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
        if MEMORIES in self.frozen:
            return
        memories = self.model.memories
        held = memories[self.pick(list(memories), number) or ""] if again and memories else None
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
                supersedes=tuple(list(memories)[number % 4 :][:count]),
            )
        )

    @rule(key=st.sampled_from(["name", "editor"]), text=st.one_of(st.none(), texts))
    def describe(self, key: str, text: str | None) -> None:
        """The person says something of themselves, or takes it back."""
        if MEMORIES not in self.frozen:
            if text is None:
                self.past = None  # There it is known still.
            self.say(PutProfile(key=key, value=text, at=self.tick()))

    @rule(number=some)
    def look_over(self, number: int) -> None:
        """An insight, in the place of an earlier one."""
        if session := self.pick(self.sessions(), number):
            held, now = self.model.of_sessions.get((Insight, session)), self.tick()
            found_at = max(now, held.created_at) if isinstance(held, Insight) else now
            self.say(insight(session, self.new("topic"), created_at=found_at))

    @rule(number=some)
    def forget(self, number: int) -> None:
        if not self.calm:
            return
        self.settle()
        if memory := self.pick(list(self.model.memories), number):
            forgotten = self.model.after_forgetting(memory)
            count = len(self.model.memories) - len(forgotten.memories)
            assert self.run(self.store.forget_memories([memory])) == count
            self.worlds = [forgotten]
            self.past = None

    @rule(number=some)
    def repeat(self, number: int) -> None:
        """What was said before is said again: a retry, a replay."""
        known = [
            writes
            for writes in self.history
            if self.frozen.isdisjoint(place_of(write) for write in writes)
        ]
        if writes := self.pick(known, number):
            if any(isinstance(each, PutMemory | PutProfile | PutInsight) for each in writes):
                self.past = None  # What is there is newer now.
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
        self.settle()
        if session := self.pick(self.sessions(), number):
            self.owner = self.owner or self.new("o")
            others = self.run(self.store.attach(session, self.owner))
            self.worlds = [self.model.after_attaching(session, self.owner, NOW)]
            expected = [each for each in self.model.owners(session) if each != self.owner]
            assert sorted(others) == expected

    @rule()
    def detach(self) -> None:
        if not (self.calm and self.owner):
            return
        self.settle()
        self.run(self.store.detach(self.owner))
        self.worlds = [self._detached(self.model)]
        self.owner = ""

    def _detached(self, model: Model) -> Model:
        if self.now_kind == "sqlite":
            return model.after_detaching(self.owner, NOW)
        # Neo4j looks at once for whatever else nobody runs.
        gone = model.after_detaching(self.owner, NOW)
        gone.interrupt(lambda owner: owner not in gone.live, NOW)
        return gone

    @rule(number=some)
    def delete(self, number: int) -> None:
        if not self.calm:
            return
        self.settle()
        if session := self.pick(self.sessions(), number):
            archive = self.run(self._archive())
            if self.model.forks(session) or self.model.in_use(session):
                with pytest.raises(StoreRefused):
                    self.run(archive.delete_session(session))
                return
            self.run(archive.delete_session(session))
            self.worlds = [self.model.after_deleting(session)]
            self.history, self.past = [], None

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
            self._right(self.run(other.apply(writes)), self.model.after(writes))
            self.run(other.aclose())
            self.worlds = [self.model.after(writes)]
            self.unsettled.add(session)
            self.settle()


def turn_of(session_id: str, turn_id: str, began: Any) -> list[Write]:
    """A turn with a tool call."""
    return [
        begun(session_id, turn_id, "And then?", started_at=began),
        called(session_id, turn_id, 0, "a.py", tool_call_id=f"{turn_id}-call", started_at=began),
        finished(session_id, turn_id, "Then this.", finished_at=began),
    ]

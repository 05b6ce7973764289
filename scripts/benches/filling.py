"""A generated memory of any size, with plausible sessions; reproducible for each size.

Sessions have 5 to 100 turns, one in a hundred 300. A project has 25 sessions in three folders, and
one project a twentieth of all. A turn has two tool calls, each with a file. Lengths of texts are
distributed as in sessions of coding agents: most short, some long.
"""

import json
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from ragmem.ids import new_id
from ragmem.records import (
    AddSummary,
    FileAccess,
    Project,
    PutSession,
    PutTurn,
    RegisterProject,
    Session,
    Summary,
    ToolCall,
    Turn,
    Usage,
    Write,
)

BATCH = 200
LONG = 300
"""The turns of a long session; the first session is one."""
_LENGTHS = (5, 10, 10, 20, 30, 40, 50, 100)
_SESSIONS_OF_A_PROJECT = 25
_START = datetime(2025, 1, 1, tzinfo=UTC)
_SYLLABLES = ("ba", "co", "di", "fe", "gu", "hal", "in", "jo", "ket", "lo", "mar", "ne", "or")


class Filling:
    """Writes that fill an empty store with `turns` turns; `session_ids` grows while streaming."""

    def __init__(self, turns: int, seed: int = 1) -> None:
        self._turns = turns
        self._random = random.Random(seed)
        self._text = " ".join(_words(self._random, 60_000))
        self.session_ids: list[str] = []
        self.long_ids: list[str] = []
        self.lengths: dict[str, int] = {}
        self.large_project = Project(project_id=new_id(), path="/home/ana/large", created_at=_START)
        self._project = self.large_project

    async def stream(self) -> AsyncIterator[Sequence[Write]]:
        """Yield the writes in batches; may be called only once."""
        left = self._turns
        yield [RegisterProject(project=self.large_project)]
        batch: list[Write] = []
        while left:
            number = len(self.session_ids)
            length = LONG if number % 100 == 0 else self._random.choice(_LENGTHS)
            length = min(length, left)
            left -= length
            for write in self._session(number, length):
                batch.append(write)
                if len(batch) >= BATCH:
                    yield batch
                    batch = []
        yield batch

    def _session(self, number: int, length: int) -> Iterator[Write]:
        at = _START + timedelta(minutes=10 * number)
        large = number % 20 == 1
        if number % _SESSIONS_OF_A_PROJECT == 0:
            path = f"/home/ana/projects/{number // _SESSIONS_OF_A_PROJECT}"
            self._project = Project(project_id=new_id(), path=path, created_at=at)
            yield RegisterProject(project=self._project)
        project = self.large_project if large else self._project
        session = Session(
            session_id=new_id(),
            cwd=project.path + ("", "/src", "/docs")[number % 3],
            project_id=project.project_id,
            project_path=project.path,
            title=self._cut(40),
            started_at=at,
            updated_at=at,
            last_activity_at=at,
        )
        self.session_ids.append(session.session_id)
        self.lengths[session.session_id] = length
        if length == LONG:
            self.long_ids.append(session.session_id)
        yield PutSession(session=session)
        turn_ids = []
        for index in range(1, length + 1):
            put = self._turn(session.session_id, index, at + timedelta(seconds=30 * index))
            turn_ids.append(put.turn.turn_id)
            yield put
        for start in range(0, length - 9, 10):
            yield AddSummary(summary=self._summary(session, turn_ids[start : start + 10], at))

    def _turn(self, session_id: str, index: int, at: datetime) -> PutTurn:
        turn_id = new_id()
        calls = tuple(self._call(turn_id, order, at) for order in range(2))
        accesses: dict[str, tuple[FileAccess, ...]] = {
            call.tool_call_id: (
                FileAccess(
                    path=json.loads(call.arguments)["path"],
                    tool_name=call.tool_name,
                    access_type="read",
                    accessed_at=at,
                    turn_index=index,
                    order=call.order,
                ),
            )
            for call in calls
        }
        turn = Turn(
            turn_id=turn_id,
            session_id=session_id,
            turn_index=index,
            user_message=self._cut(self._length(120)),
            assistant_message=self._cut(self._length(700)),
            status="completed",
            started_at=at,
            finished_at=at + timedelta(seconds=20),
            model="openai/some-model",
            usage=Usage(input_tokens=9000, output_tokens=400, cost_usd=0.01, model_calls=3),
            tool_calls=calls,
        )
        return PutTurn(turn=turn, accesses=accesses)

    def _call(self, turn_id: str, order: int, at: datetime) -> ToolCall:
        path = f"src/{self._random.choice(_SYLLABLES)}/{self._random.choice(_SYLLABLES)}.py"
        return ToolCall(
            tool_call_id=new_id(),
            turn_id=turn_id,
            order=order,
            iteration=order,
            tool_name="read_file",
            arguments=json.dumps({"path": path}),
            result=json.dumps({"text": self._cut(self._length(1200)), "path": path}),
            started_at=at,
            duration_ms=12,
        )

    def _summary(self, session: Session, covers: Sequence[str], at: datetime) -> Summary:
        return Summary(
            summary_id=new_id(),
            session_id=session.session_id,
            text=self._cut(600),
            level=1,
            turn_count=len(covers),
            files_mentioned=("src/ba/co.py", "src/di/fe.py"),
            key_findings=(self._cut(80),),
            tools_used=("read_file",),
            topics=("reading",),
            created_at=at,
            covers=tuple(covers),
        )

    def _length(self, mean: int) -> int:
        """Return an exponentially distributed length: a few texts are far longer than most."""
        return min(20 * mean, 1 + int(self._random.expovariate(1 / mean)))

    def _cut(self, length: int) -> str:
        start = self._random.randrange(len(self._text) - length)
        return self._text[start : start + length]


def _words(source: random.Random, count: int) -> Iterator[str]:
    known = ["".join(source.choices(_SYLLABLES, k=source.randint(1, 4))) for _ in range(8000)]
    for _ in range(count):
        # A few words are frequent, as in any text.
        yield known[int(len(known) * source.random() ** 3)]

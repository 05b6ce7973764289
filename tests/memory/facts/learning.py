"""Turns to learn from, and what a small model says of them."""

import json
from datetime import datetime

from ragmem.config import SummariesConfig
from ragmem.embedder import Embedder
from ragmem.ids import new_id
from ragmem.memory.facts.extraction import Extractor
from ragmem.memory.facts.facts import Facts
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.memory.worker import Worker
from ragmem.records import MemoryRecord, ToolCall, Turn, Write
from ragmem.store import Store
from tests.fakes.scripted_llm import Says, ScriptedLLM, Step
from tests.memory.working import no_wait, opening
from tests.store.samples import begun, called, created, finished

from .knowing import EVERYTHING, HERE, NOW, Clock, facts_of

NOTHING = Says(json.dumps({"memories": []}))


def said(*memories: dict[str, object]) -> Says:
    """An answer of the small model."""
    return Says(json.dumps({"memories": list(memories)}))


def a_memory(content: str, evidence: str, **more: object) -> dict[str, object]:
    """One of them."""
    fields: dict[str, object] = {
        "kind": "fact",
        "content": content,
        "subjects": [],
        "ttl": None,
        "scope": "project",
        "evidence": evidence,
        "from": "person",
    }
    return fields | more


def ran(command: str, text: str, exit_code: int = 0, **more: object) -> dict[str, object]:
    """A finished run_command."""
    result = {"text": f"Exit code {exit_code}\n{text}", "exit_code": exit_code}
    return {
        "tool_name": "run_command",
        "arguments": json.dumps({"command": command}),
        "result": json.dumps(result),
    } | more


def read(path: str, text: str) -> dict[str, object]:
    """A finished read_file."""
    return {
        "tool_name": "read_file",
        "arguments": json.dumps({"path": path}),
        "result": json.dumps({"text": text}),
    }


def edit_failed(error: str) -> dict[str, object]:
    """An edit_file that did nothing."""
    return {
        "tool_name": "edit_file",
        "arguments": json.dumps({"path": "./src/a.py"}),
        "success": False,
        "error": error,
        "result": json.dumps({"text": error}),
    }


async def happened(
    store: Store,
    user: str,
    answer: str = "Done.",
    *calls: dict[str, object],
    session_id: str = "",
    at: datetime = NOW,
    project_id: str = HERE,
) -> Turn:
    """A completed turn, in a session of its own unless one is named."""
    session_id = session_id or new_id()
    turn_id = new_id()
    writes: list[Write] = [
        created(session_id, project_id=project_id),
        begun(session_id, turn_id, user, started_at=at),
        *(called(session_id, turn_id, n, **{"started_at": at, **c}) for n, c in enumerate(calls)),
        finished(session_id, turn_id, answer, finished_at=at),
    ]
    await store.apply(writes)
    [turn] = await store.get(Turn, [turn_id])
    return turn


class Learner:
    """A worker that only learns, with the engine that it learns into."""

    def __init__(
        self, store: Store, *script: Step, embedder: Embedder | None = None, asks: bool = True
    ) -> None:
        opened = opening(store)
        self._opened = opened
        self.clock = Clock()
        self.llm = ScriptedLLM(script)
        self.facts: Facts = facts_of(store, embedder=embedder, clock=self.clock)
        config = SummariesConfig()
        asker = Summarizer(self.llm, config, open_attempts=opened, sleep=no_wait, clock=self.clock)
        self.extractor = Extractor(self.facts, asker if asks else None, clock=self.clock)
        self.worker = Worker(
            opened,
            new_id(),
            embedder=embedder,
            summarizer=None,
            extractor=self.extractor,
            config=config,
            clock=self.clock,
        )

    async def learn(self) -> list[MemoryRecord]:
        """All that is due; what is known by then, the newest first."""
        assert await self.worker.drain()
        return await (await self._opened()).memories(EVERYTHING)


def asked_of(llm: ScriptedLLM, place: int = -1) -> str:
    """What the model was given."""
    return "\n=====\n".join(message.text for message in llm.requests[place].messages)


def call_of(turn: Turn, order: int = 0) -> ToolCall:
    """One of its calls."""
    return turn.tool_calls[order]

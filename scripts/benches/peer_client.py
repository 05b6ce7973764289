"""The process of neo4j-agent-memory: stores the labelled sets and searches in them.

Reads its job from a file, and prints JSON: the seconds of storing, and for each question the ids of
the turns found, best first, with the milliseconds.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragmem.embedder.models import OnnxEmbedder
from ragmem.records import Turn
from tests.recall.labelled import LabelledSet, Question, labelled_sets

MESSAGES = 120
"""The messages to find: enough for 20 turns of several messages."""
APPENDED = 60


class Vectors:
    """Our embedder with the peer's interface."""

    dimensions = 384

    def __init__(self, known: dict[str, list[float]]) -> None:
        self._inner = OnnxEmbedder()
        self.known = known
        self.made: dict[str, list[float]] = {}

    async def embed(self, text: str) -> list[float]:
        """Embed a question or one message."""
        [row] = await self._inner.embed([text], "query")
        return [float(x) for x in row]

    async def embed_batch(self, texts: list[str]) -> list[list[float]]:
        """Embed many messages."""
        new = [text for text in texts if text not in self.known]
        for text, row in zip(new, await self._inner.embed(new, "passage"), strict=True):
            self.made[text] = [float(x) for x in row]
        return [self.known.get(text) or self.made[text] for text in texts]


def messages(turn: Turn, way: str) -> list[dict[str, Any]]:
    """Return a turn as the peer's messages."""
    calls = [f"{c.tool_name} {c.arguments}\n{c.result}" for c in turn.tool_calls]
    if way == "a turn each":
        parts = [("user", "\n".join([turn.user_message, turn.assistant_message, *calls]))]
    else:
        tools = [("tool", call) for call in calls] if way == "a message each" else []
        parts = [("user", turn.user_message), *tools, ("assistant", turn.assistant_message)]
    return [
        {
            "role": role,
            "content": content,
            "metadata": {"turn": turn.turn_id},
            "timestamp": turn.started_at.isoformat(),
        }
        for role, content in parts
        if content.strip()
    ]


async def store(client: Any, sets: Sequence[LabelledSet], way: str) -> float:
    """Store the sets by session, with the peer's own batches; return the seconds."""
    started = time.perf_counter()
    for one in sets:
        sessions: dict[str, list[Turn]] = {}
        for turn in one.turns:
            sessions.setdefault(turn.session_id, []).append(turn)
        for session_id, turns in sessions.items():
            said = [message for turn in turns for message in messages(turn, way)]
            await client.short_term.add_messages_batch(f"{one.name}/{session_id}", said)
    spent = time.perf_counter() - started
    await client.graph.execute_read("CALL db.awaitIndexes(60)")
    return spent


async def ask(client: Any, questions: Sequence[Question]) -> list[dict[str, Any]]:
    """Search for each question; return the turns of the messages found, without duplicates."""
    answers = []
    for question in questions:
        started = time.perf_counter()
        found = await client.short_term.search_messages(
            question.question, limit=MESSAGES, threshold=0.0
        )
        ids = list(dict.fromkeys(message.metadata["turn"] for message in found))
        answers.append({"ids": ids[:20], "ms": (time.perf_counter() - started) * 1000})
    return answers


async def append(client: Any, turns: Sequence[Turn], way: str) -> list[float]:
    """Store turns one by one, as in a conversation; return the milliseconds of each."""
    spent = []
    for turn in turns:
        started = time.perf_counter()
        for message in messages(turn, way):
            await client.short_term.add_message(
                "appended",
                message["role"],
                message["content"],
                metadata=message["metadata"],
                extraction_mode="skip",
            )
        spent.append((time.perf_counter() - started) * 1000)
    return spent


async def main(asked: dict[str, Any], embedder: Vectors) -> dict[str, Any]:
    """Do everything in the job, and return the results."""
    from neo4j_agent_memory import MemoryClient, MemorySettings
    from pydantic import SecretStr

    settings = MemorySettings(
        neo4j={
            "uri": asked["url"],
            "username": asked["username"],
            "password": SecretStr(asked["password"]),
        },
        llm=None,
        extraction={"extractor_type": "none", "enable_llm_fallback": False},
    )
    sets = [one for one in labelled_sets() if one.name in asked["sets"]]
    seconds = 0.0
    answers: dict[str, list[dict[str, Any]]] = {}
    groups = [[one] for one in sets] if asked["alone"] else [sets]
    async with MemoryClient(settings, embedder=embedder) as client:
        for group in groups:
            await empty(client)
            seconds += await store(client, group, asked["way"])
            # Warm up: compile the query plans, load the model.
            await ask(client, group[0].questions[:1])
            for one in group:
                answers[one.name] = await ask(client, one.questions)
        appended = await append(client, sets[0].turns[:APPENDED], asked["way"])
    return {"store_s": seconds, "answers": answers, "appended_ms": appended}


async def empty(client: Any) -> None:
    """Delete everything in the graph."""
    await client.graph.execute_write("MATCH (n) CALL (n) { DETACH DELETE n }")


def run(file: Path) -> None:
    """Do the job in the file, and print the results.

    The vectors from storing each set alone, which is timed, are reused for all sets together.
    """
    asked = json.loads(file.read_text())
    kept = file.with_name(f"vectors of {asked['way']}.json")
    again = not asked["alone"] and kept.exists()
    embedder = Vectors(json.loads(kept.read_text()) if again else {})
    found = asyncio.run(main(asked, embedder))
    kept.write_text(json.dumps(embedder.known | embedder.made))
    print(json.dumps(found))


if __name__ == "__main__":
    run(Path(sys.argv[1]))

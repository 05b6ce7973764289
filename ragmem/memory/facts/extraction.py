"""What is learned from a turn in the background: by patterns, from its calls, by a small model.

Each completed turn is looked through once: what comes of it and that it was done are written in
one transaction. Without a model moments and failures are found all the same.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from ragmem.llm.base import ModelInfo, Request
from ragmem.memory.facts.believing import MOST, Extracted, believed, parse_memories
from ragmem.memory.facts.episodes import episodes
from ragmem.memory.facts.facts import Facts
from ragmem.memory.facts.failures import failures, succeeded
from ragmem.memory.facts.material import Material, turn_material
from ragmem.memory.facts.sources import Source, Sources, evidence_of
from ragmem.memory.facts.values import Draft
from ragmem.memory.facts.words import is_greeting, is_instruction
from ragmem.memory.files import locator
from ragmem.memory.leases import leased
from ragmem.memory.recording import redacted
from ragmem.memory.summaries.digest import read_object
from ragmem.memory.summaries.summarizer import Summarizer, closing, request_of
from ragmem.messages import Message, system, user
from ragmem.metrics import Metrics
from ragmem.prompts import prompt
from ragmem.records import (
    UNSUMMARIZED,
    MarkExtracted,
    MemoryRecord,
    PutMemory,
    Session,
    Turn,
    Write,
    utc_now,
)
from ragmem.redact import redact
from ragmem.store.base import Store
from ragmem.store.memories import MemoryQuery
from ragmem.store.recall import Pending
from ragmem.text import clean, one_line

Relation = Literal["same", "updates", "different"]
_LEASE_S = 30.0
"""Renewed while a turn is looked through."""
_MOST_JUDGED = 3
"""Pairs that a model is asked about, of one turn."""
_SHORTLY = timedelta(hours=1)
_JUDGED_CHARS = 400
_LEAST_WORDS = 3
"""Of the person's; in less nothing is told."""
_MOST_FRUITLESS = 2
"""Turns in a row of which nothing could be read: this process asks no more of such a model."""

Locate = Callable[[str], str]


class Extractor:
    """Looks through turns; one for each worker. `asker` puts questions to the small model."""

    def __init__(
        self,
        facts: Facts,
        asker: Summarizer | None,
        *,
        metrics: Metrics | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._facts = facts
        self._asker = asker
        self._metrics = metrics or Metrics()
        self._clock = clock
        self._fruitless = 0
        self._tidied = False
        self._judged: set[tuple[str, str]] = set()

    async def look_through(
        self, store: Store, items: Sequence[Pending], owner_id: str
    ) -> frozenset[str]:
        """Those of the turns that nobody else is at, one by one: what became known of one counts
        for the next. Keys of those that are done. StoreError.
        """
        async with leased(store, [i.key for i in items], owner_id, seconds=_LEASE_S) as mine:
            for turn in await store.turns_by_id([i.record_id for i in items if i.key in mine]):
                await self.learn(store, turn)
            return mine

    async def tidy(self) -> bool:
        """Once, when there is nothing else to do: remove what is past its own time.

        False: there is never more of it to be done.
        """
        if not self._tidied:
            self._tidied = True
            await self._facts.cleanup()
        return False

    async def learn(self, store: Store, turn: Turn) -> None:
        """Keep what is worth it of a completed turn; from then on it is not due. StoreError."""
        session = await store.session(turn.session_id)
        locate = locator(session)
        with self._metrics.time("memories.learn"):
            drafts = [*_moments(turn), *failures(turn, locate=locate)]
            drafts += await self._extracted(turn, session, locate)
            beside: list[Write] = [MarkExtracted(turn_ids=(turn.turn_id,))]
            beside += await self._mended(store, turn, session)
            await self._facts.settle(drafts, session.project_id, beside=beside)
            await self._judge(turn, session)

    # --- what a model finds -------------------------------------------------------

    def _asker_for(self, session: Session) -> Summarizer | None:
        """Who puts questions about a session to a model; None where none may be asked."""
        asker = self._asker
        if asker is None or UNSUMMARIZED in session.tags:
            return None
        return asker if asker.uses_model(session.session_id) else None

    async def _extracted(self, turn: Turn, session: Session, locate: Locate) -> list[Draft]:
        sources = Sources(turn)
        own = sources.own.strip()
        asker = self._asker_for(session)
        if asker is None or len(own.split()) < _LEAST_WORDS or is_greeting(own):
            return []
        if self._fruitless >= _MOST_FRUITLESS:
            return []
        about = await self._facts.about(own[:_JUDGED_CHARS], session.project_id)
        material = turn_material(turn, sources, about, room=asker.room)
        now = turn.timestamp.astimezone()

        def request(data: str, tag: str, problem: str, info: ModelInfo) -> Request:
            return request_of(extraction(material, tag, now, problem, room=len(data)), info)

        def read(answer: str, tag: str, data: str) -> tuple[Extracted, ...]:
            return parse_memories(answer, tag)

        item = f"memories:{turn.turn_id}"
        found = await asker.ask(turn.session_id, material.plain(), request, read, item=item)
        self._fruitless = self._fruitless + 1 if found is None else 0
        items = [believed(i, sources, turn, now=now, locate=locate) for i in found or ()]
        self._metrics.count("memories.disbelieved", sum(item is None for item in items))
        return [item for item in items if item is not None]

    # --- what works again ---------------------------------------------------------

    async def _mended(self, store: Store, turn: Turn, session: Session) -> list[Write]:
        """The end of failures whose command has worked in this turn."""
        working = succeeded(turn)
        if not working:
            return []
        now = self._clock()
        query = MemoryQuery(
            project_ids=(session.project_id,), user_wide=False, kinds=("failure",), alive_at=now
        )
        return [
            redacted(PutMemory(memory=msgspec.structs.replace(m, expires_at=now, updated_at=now)))
            for m in await store.memories(query)
            if m.content.startswith(tuple(working))
        ]

    # --- what has changed ---------------------------------------------------------

    async def _judge(self, turn: Turn, session: Session) -> None:
        """Ask which older memories no longer hold, of those on the same subjects."""
        asker = self._asker_for(session)
        if asker is None:
            return
        asked = 0
        for memory in await self._new(turn, session):
            for old in await self._facts.rivals(memory):
                pair = (memory.memory_id, old.memory_id)
                if pair in self._judged:
                    continue
                if asked == _MOST_JUDGED:
                    return
                asked += 1
                self._judged.add(pair)
                relation = await self._relation(asker, turn.session_id, memory, old)
                if relation in ("same", "updates"):
                    await self._facts.supersede(memory, old)

    async def _new(self, turn: Turn, session: Session) -> list[MemoryRecord]:
        """What came of this turn, by whichever way, and what the person noted shortly before."""
        since = turn.started_at - _SHORTLY
        return [
            memory
            for memory in await self._facts.current(session.project_id)
            if memory.kind not in ("failure", "rule")
            and (
                any(place.turn_id == turn.turn_id for place in memory.evidence)
                or (memory.source != "conversation" and memory.created_at >= since)
            )
        ]

    @staticmethod
    async def _relation(
        asker: Summarizer, session_id: str, new: MemoryRecord, old: MemoryRecord
    ) -> Relation | None:
        newer, older = _note(new), _note(old)

        def request(data: str, tag: str, problem: str, info: ModelInfo) -> Request:
            return request_of(judgement(older, newer, tag, problem), info)

        def read(answer: str, tag: str, data: str) -> Relation:
            return read_object(answer, _Verdict).verdict

        item = f"judge:{new.memory_id}:{old.memory_id}"
        return await asker.ask(session_id, f"{older}\n{newer}", request, read, item=item)


class _Verdict(msgspec.Struct, frozen=True):
    verdict: Relation


def extraction(
    material: Material, tag: str, now: datetime, problem: str, *, room: int
) -> tuple[Message, ...]:
    """What the model is asked about a turn; `now`: the turn's time where the person is."""
    rules = prompt("extract_rules").format(most=MOST, day=f"{now:%A} {now.date().isoformat()}")
    data = material.marked(tag, room=room)
    return (
        system(rules),
        user(prompt("extract_data").format(data=data, closing=closing(problem))),
    )


def judgement(older: str, newer: str, tag: str, problem: str) -> tuple[Message, ...]:
    """What the model is asked about two memories."""
    data = prompt("judge_data").format(tag=tag, older=older, newer=newer, closing=closing(problem))
    return (system(prompt("judge_rules")), user(data))


def _note(memory: MemoryRecord) -> str:
    day = memory.created_at.astimezone().date().isoformat()
    return one_line(redact(clean(f"{day}: {memory.content}")), _JUDGED_CHARS)


def _moments(turn: Turn) -> Sequence[Draft]:
    """Decisions, preferences, deadlines: episodes."""
    now = turn.timestamp.astimezone()
    return [
        Draft(
            content=episode.content,
            kind=episode.kind,
            trust=episode.speaker,
            scope=episode.scope if episode.speaker == "person" else "project",
            at=episode.at or turn.timestamp,
            evidence=(
                evidence_of(turn, Source(episode.speaker, episode.quote), locate=lambda path: path),
            ),
        )
        for episode in episodes(
            "" if turn.is_own_command else turn.user_message, turn.assistant_message, now
        )
        # What an agent has read it may repeat: an order in its answer is nobody's decision.
        if episode.speaker == "person"
        or episode.kind == "deadline"
        or not is_instruction(episode.quote)
    ]

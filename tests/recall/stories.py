"""Stories of several days: what was said and done in projects, and what is wanted when one is back.

A probe is a prompt of a later day with what memory must put before the model, and what it must
not. Those in `open` are looked at while the product is changed; in `kept` is room for others.
"""

import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from ragmem.config import MemoryConfig, SummariesConfig
from ragmem.embedder import Embedder
from ragmem.ids import new_id
from ragmem.llm.base import ModelInfo
from ragmem.memory.context.builder import Context, ContextBuilder
from ragmem.memory.context.collect import Place
from ragmem.memory.facts import Draft
from ragmem.memory.facts.episodes import Episode
from ragmem.memory.facts.extraction import Extractor
from ragmem.memory.facts.wishes import is_of_person
from ragmem.memory.facts.words import plain
from ragmem.memory.memory import Memory
from ragmem.memory.projects import NO_INSTRUCTIONS
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.memory.worker import Worker
from ragmem.messages import TextPart
from ragmem.records import (
    Evidence,
    MemoryKind,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    Session,
    Summary,
    ToolCall,
    Turn,
)
from ragmem.store import Archive, Store

DAYS = Path(__file__).parent / "days"
_MODEL = ModelInfo(name="openai/x", context_window=200_000)
_TURN = timedelta(minutes=5)
_RECALLED = ("Remembered Facts", "Relevant Turns", "Relevant Summaries")
_IDS = re.compile(r"<(/?)memory-[0-9a-f]+>|\b[Ss]ession [0-9a-f]{8}\b")
_LISTED = re.compile("## (?:Last Time|Remembered Facts|What the User Prefers)")
_OUTDATED = re.compile(r"superseded|replaced|outdated|changed since|gone since|as it was", re.I)


class Call(msgspec.Struct, frozen=True):
    """A tool call of a story."""

    tool: str
    arguments: dict[str, Any] = {}
    text: str = ""
    exit_code: int | None = None


class Said(msgspec.Struct, frozen=True):
    """A turn of a story."""

    user: str
    assistant: str = ""
    calls: tuple[Call, ...] = ()
    status: str = "completed"


class Learned(msgspec.Struct, frozen=True):
    """What a model for memories would have learned from a turn."""

    kind: MemoryKind
    content: str
    turn: int = 1
    scope: MemoryScope | None = None
    supersedes: str = ""


class Day(msgspec.Struct, frozen=True):
    """A session of a story."""

    project: str
    at: str
    turns: tuple[Said, ...]
    memories: tuple[Learned, ...] = ()


class Probe(msgspec.Struct, frozen=True):
    """A later prompt; patterns of what must and must not stand before it, and what bears on it."""

    at: str
    project: str
    prompt: str
    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    bears: tuple[str, ...] = ()
    resume: int = 0


class Story(msgspec.Struct, frozen=True):
    """A story, and what is asked after it."""

    name: str
    language: str
    people: str
    sessions: tuple[Day, ...]
    probes: tuple[Probe, ...]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What stood before a probe's prompt."""

    story: str
    prompt: str
    held: int
    wanted: int
    missing: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    """Patterns that must not be there, and are, with no mark that they are past."""
    junk: tuple[str, ...] = ()
    """Items that bear on nothing, by their labels."""
    chars: int = 0


def stories(folder: Path = DAYS) -> Iterator[Story]:
    """Those of a folder, by their names."""
    for file in sorted(folder.glob("*.json")):
        yield msgspec.json.decode(file.read_bytes(), type=Story)


class _BesideModel(Extractor):
    """Classifies no sentence, since a model has read the prompts."""

    def _preferences(self, prompt: str, found: Sequence[Episode]) -> list[Episode]:
        return []


class Teller:
    """Lets a story happen in a store, as the product records it, then asks what is recalled."""

    def __init__(
        self, story: Story, store: Archive, embedder: Embedder | None, folder: Path
    ) -> None:
        self._story = story
        self._store = store
        self._folder = folder
        self._now = datetime.now(UTC)
        self._embedder = embedder
        self._sessions: list[Session] = []
        self._memory = Memory(self._open, MemoryConfig(), embedder=embedder, clock=self._clock)

    async def _open(self) -> Store:
        return self._store

    def _clock(self) -> datetime:
        self._now += timedelta(milliseconds=1)
        return self._now

    async def tell(self, *, learns: bool) -> None:
        """All sessions; with `learns` also what a model would have learned from them."""
        for day in self._story.sessions:
            self._now = _utc(day.at)
            session = await self._hold(day)
            self._sessions.append(session)
            if learns:
                for each in day.memories:
                    await self._learn(session, each)
            self._now += timedelta(minutes=30)
            await self._work(_BesideModel if learns else Extractor)
        await self._memory.aclose()

    async def _hold(self, day: Day) -> Session:
        cwd = self._folder / day.project
        cwd.mkdir(parents=True, exist_ok=True)
        project = (await self._memory.project_of(cwd)).project
        session = self._memory.new_session(cwd, project)
        for said in day.turns:
            recording = await self._memory.begin_turn(session, project, said.user, model="openai/x")
            for order, call in enumerate(said.calls):
                await recording.call(self._called(call, recording.turn, order, cwd))
            await recording.finish(said.status, said.assistant)
            self._memory.finished(session, recording.turn)
            self._now += _TURN
        return session

    def _called(self, call: Call, turn: Turn, order: int, cwd: Path) -> ToolCall:
        path = call.arguments.get("path")
        if isinstance(path, str) and call.tool in ("edit_file", "write_file", "create_file"):
            file = cwd / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(call.arguments.get("new", call.arguments.get("content", ""))))
            os.utime(file, (self._now.timestamp(),) * 2)
        result = {"text": call.text} | ({"path": path} if path else {})
        if call.exit_code is not None:
            result["exit_code"] = call.exit_code
        return ToolCall(
            tool_call_id=new_id(),
            turn_id=turn.turn_id,
            order=order,
            tool_name=call.tool,
            arguments=msgspec.json.encode(call.arguments).decode(),
            result=msgspec.json.encode(result).decode(),
            started_at=self._now,
        )

    async def _learn(self, session: Session, learned: Learned) -> None:
        facts = self._memory.facts
        assert facts is not None
        turns = (await self._memory.load_session(session.session_id)).turns
        turn = turns[min(learned.turn, len(turns)) - 1]
        evidence = Evidence(
            session_id=session.session_id,
            turn_id=turn.turn_id,
            turn_index=turn.turn_index,
            quote=turn.user_message[:200],
            at=turn.started_at,
        )
        scope = learned.scope
        if learned.kind == "preference" and not is_of_person(plain(evidence.quote)):
            # As the extractor takes what a model says nothing of.
            scope = scope or "project"
        draft = Draft(content=learned.content, kind=learned.kind, scope=scope, evidence=(evidence,))
        new = await facts.remember(draft, session.project_id)
        if learned.supersedes and new.memory:
            query = MemoryQuery(everywhere=True, with_superseded=True)
            known = {each.memory_id: each for each in await self._store.memories(query)}
            olds = [each for each in known.values() if each.content == learned.supersedes]
            for old in olds:
                # What the turn itself was found to say may have taken its place.
                while old.superseded_by:
                    old = known[old.superseded_by]
                if old.memory_id != new.memory.memory_id:
                    await facts.supersede(new.memory, old)

    async def _work(self, extractor: type[Extractor]) -> None:
        facts = self._memory.facts
        assert facts is not None
        worker = Worker(
            self._open,
            new_id(),
            embedder=self._embedder,
            summarizer=Summarizer(None, SummariesConfig()),
            extractor=extractor(facts, None),
            config=SummariesConfig(),
            clock=self._clock,
        )
        await worker.drain()

    async def ask(self, probe: Probe) -> Outcome:
        """What a request for the probe's prompt holds, from a process that was just started."""
        self._now = _utc(probe.at)
        memory = Memory(self._open, MemoryConfig(), embedder=self._embedder, clock=self._clock)
        cwd = self._folder / probe.project
        cwd.mkdir(parents=True, exist_ok=True)
        located = await memory.project_of(cwd)
        if probe.resume:
            session = (
                await memory.load_session(self._sessions[probe.resume - 1].session_id)
            ).session
        else:
            session = memory.new_session(cwd, located.project)
        place = Place(cwd=cwd, project=cwd, instructions=NO_INSTRUCTIONS)
        built = await memory.build_context(
            session, probe.prompt, ContextBuilder(MemoryConfig(), _MODEL), place
        )
        found = await self._outcome(probe, built)
        await memory.aclose()
        return found

    async def _outcome(self, probe: Probe, built: Context) -> Outcome:
        items = [
            (f"{section.name}: {item.label}", await self._whole(item.record_id) or item.label)
            for section in built.sections
            if section.name in _RECALLED
            for item in section.items
        ]
        return outcome_of(self._story, probe, remembered_text(built, probe.prompt), items)

    async def _whole(self, record_id: str) -> str:
        """All that a recalled item stands for."""
        for turn in await self._store.get(Turn, [record_id]):
            calls = " ".join(f"{c.arguments} {c.result}" for c in turn.tool_calls)
            return f"{turn.user_message}\n{turn.assistant_message}\n{calls}"
        for summary in await self._store.get(Summary, [record_id]):
            return summary.text
        for memory in await self._store.get(MemoryRecord, [record_id]):
            return memory.content
        for session in self._sessions:
            if session.session_id == record_id:
                turns = await self._store.turns(record_id)
                return "\n".join(f"{t.user_message}\n{t.assistant_message}" for t in turns)
        return ""


def remembered_text(built: Context, prompt: str) -> str:
    """What memory put into a request: all but the agent's own rules and the person's prompt."""
    system, *others = [
        "\n".join(part.text for part in message.parts if isinstance(part, TextPart))
        for message in built.messages
    ]
    pinned = system.partition("The user's rules")[2]
    others[-1] = others[-1].removesuffix(prompt)
    # Made by chance: no pattern is to meet its number in them.
    return _IDS.sub("session", "\n".join([pinned, *others]))


def outcome_of(story: Story, probe: Probe, text: str, items: Sequence[tuple[str, str]]) -> Outcome:
    """What a text holds of what a probe asks for; `items` are what it recalls: label and words."""
    missing = tuple(each for each in probe.must if not _holds(text, each))
    lines = [entry for entry in _entries(text) if not _OUTDATED.search(entry)]
    bears = (*probe.must, *probe.bears)
    return Outcome(
        story=story.name,
        prompt=probe.prompt,
        held=len(probe.must) - len(missing),
        wanted=len(probe.must),
        missing=missing,
        stale=tuple(each for each in probe.must_not if any(_holds(x, each) for x in lines)),
        junk=tuple(label for label, whole in items if not any(_holds(whole, x) for x in bears)),
        chars=len(text),
    )


def _entries(text: str) -> list[str]:
    """What says of itself that it is past misleads nobody: a turn ends at a blank line, what is
    told in a list at the end of its line."""
    blocks = text.split("\n\n")
    return [e for b in blocks for e in (b.split("\n") if _LISTED.match(b) else [b])]


def _holds(text: str, pattern: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def _utc(at: str) -> datetime:
    return datetime.fromisoformat(at).replace(tzinfo=UTC)

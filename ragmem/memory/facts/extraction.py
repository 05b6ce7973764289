"""Background extraction of memories from turns: by patterns, from tool calls, and by a small model.

Each completed turn is processed once: its memories and the mark that it is done are written in one
transaction. Without a model, episodes and failures are still found.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from ragmem.memory.classifiers import LASTING
from ragmem.memory.dates import days
from ragmem.memory.facts import Draft, is_about_person, problem_with
from ragmem.memory.facts.episodes import Episode, episodes, may_last
from ragmem.memory.facts.facts import Facts
from ragmem.memory.facts.failures import failures, succeeded
from ragmem.memory.facts.vouching import (
    Source,
    Sources,
    covers,
    evidence_of,
    is_rule,
    says_otherwise,
)
from ragmem.memory.facts.wishes import EVERYWHERE, is_of_person
from ragmem.memory.facts.words import (
    holds_secret,
    is_greeting,
    is_instruction,
    own_words,
    plain,
    sentences,
)
from ragmem.memory.leases import leased
from ragmem.memory.recording import redacted
from ragmem.memory.summaries import as_struct, main_argument, schema_of
from ragmem.memory.summaries.summarizer import Summarizer
from ragmem.memory.turns import locator
from ragmem.messages import prompt
from ragmem.records import (
    MEMORY_KINDS,
    UNSUMMARIZED,
    MarkExtracted,
    MemoryKind,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    Pending,
    PutMemory,
    Session,
    Turn,
    Write,
    utc_now,
)
from ragmem.redact import redact
from ragmem.store import Store
from ragmem.text import clean, clip_middle, one_line
from ragmem.usage import Metrics

_SHARES = {"person": 0.35, "agent": 0.25, "tool": 0.25, "known": 0.15}
"""The share of the prompt's room for each origin of text, if all texts are long."""
_RESULT_CHARS = 1_200
_SHORTEST_RESULT = 120
_KNOWN_CHARS = 240
_MOST_SUBJECTS_COMPARED = 20


LearningPart = tuple[str, str, str]
"""A text for the model: its origin (a key of `_SHARES`), the tool and its main argument if it is a
tool result, and the text."""


def turn_material(turn: Turn, sources: Sources, known: str, *, room: int) -> list[LearningPart]:
    """Return a turn's texts and the known memories about it, without secrets and recalled text."""
    limits = {origin: int(share * room) for origin, share in _SHARES.items()}
    parts = [("person", "", turn.user_message), *_results(sources, limits["tool"])]
    parts += [("agent", "", turn.said), ("known", "", known)]
    return [
        (origin, of, text if origin == "tool" else clip_middle(_safe(text), limits[origin]))
        for origin, of, text in parts
        if text or origin == "person"
    ]


def marked(parts: Sequence[LearningPart], data: str, tag: str) -> str:
    """Put each text between marks that end with `tag`, clipped to about the length of `data`."""
    whole = sum(len(text) for _, _, text in parts)
    share = min(1.0, len(data) / whole) if whole else 1.0
    blocks = []
    for origin, of, text in parts:
        shown = clip_middle(text, max(_SHORTEST_RESULT, int(len(text) * share)))
        named = f" of={of!r}" if of else ""
        blocks.append(f"<{origin}-{tag}{named}>\n{shown}\n</{origin}-{tag}>")
    return "\n\n".join(blocks)


def _results(sources: Sources, room: int) -> Iterable[LearningPart]:
    if not sources.results:
        return
    share = max(_SHORTEST_RESULT, min(_RESULT_CHARS, room // len(sources.results)))
    for call, text in sources.results[-max(1, room // share) :]:
        about = one_line(_safe(f"{call.tool_name} {main_argument(call)}"), 120)
        yield "tool", about, clip_middle(_safe(text), share)


def _known_text(memories: Sequence[MemoryRecord], counts: Mapping[str, int]) -> str:
    named = {subject for memory in memories for subject in memory.subjects}
    most = sorted((-counts.get(s, 0), s) for s in named)[:_MOST_SUBJECTS_COMPARED]
    lines = [f"- {one_line(m.content, _KNOWN_CHARS)}" for m in memories]
    if most:
        told = ", ".join(f"{subject}: {-count}" for count, subject in most)
        lines.append(f"Number of memories about each subject: {told}.")
    return "\n".join(lines)


def _safe(text: str) -> str:
    return redact(clean(text))


MOST = 6
"""The maximum number of memories of a turn; more would be a summary."""
_CONTENT_CHARS = 300
_SUBJECT_CHARS = 40
_MOST_SUBJECTS = 6


class Extracted(msgspec.Struct, frozen=True):
    """A memory as the model returned it, not yet verified."""

    content: str
    kind: str = "fact"
    subjects: tuple[str, ...] = ()
    ttl: str | None = None
    scope: str = ""
    evidence: str = ""
    whence: str = msgspec.field(default="", name="from")
    """Requested only to make the model consider the source, which `believed` looks up itself."""


_LASTING: tuple[MemoryKind, ...] = ("rule", "preference")
"""Kinds that only the user ends."""


class _MemoriesAnswer(msgspec.Struct, frozen=True):
    memories: Annotated[list[Any], msgspec.Meta(extra_json_schema={"items": schema_of(Extracted)})]
    """Decoded one by one, so that an invalid one does not lose the others."""


def _read_memories(answer: _MemoriesAnswer) -> tuple[Extracted, ...]:
    """Return the valid memories of an answer, at most `MOST`.

    Raises ValueError if there are only invalid ones.
    """
    out: list[Extracted] = []
    for item in answer.memories:
        with suppress(msgspec.ValidationError, RecursionError):
            out.append(as_struct(item, Extracted))
    if answer.memories and not out:
        raise ValueError("no memory in it has the keys asked for")
    return tuple(out[:MOST])


def believed(
    item: Extracted, sources: Sources, turn: Turn, *, now: datetime, locate: Callable[[str], str]
) -> Draft | None:
    """Verify a memory of the model, and return it as a draft.

    None if its evidence is nowhere in the turn or does not cover it, if it contains a secret or has
    a `problem_with` it, or if it is an instruction that the user did not give. `now` is the turn's
    time in the user's time zone.
    """
    source = sources.find(clean(item.evidence))
    content = one_line(clean(item.content), _CONTENT_CHARS)
    if source is None or problem_with(content) or holds_secret(content):
        return None
    wanted, named = item.kind.strip().casefold(), days(source.quote, now)
    kind: MemoryKind = next((k for k in MEMORY_KINDS if k == wanted), MEMORY_KINDS[0])
    # The model may write the date of a day that was named as "tomorrow".
    dates = " ".join(f"{each.day:%Y-%m-%d %Y} {each.day.day}" for each in named)
    if kind == "rule" and source.trust == "person" and is_rule(source.quote):
        # A rule is always stored in the user's own words.
        content = source.quote
    elif not covers(f"{source.quote} {dates}", content):
        return None
    elif source.trust == "person":
        kind = "fact" if kind == "rule" else kind
        if says_otherwise(content, source.quote):
            content = source.quote
            if problem_with(content) or holds_secret(content):
                return None
    elif is_instruction(content) or is_instruction(source.quote):
        return None
    else:
        kind = "failure" if kind == "failure" else "fact"
    subjects = (one_line(clean(subject), _SUBJECT_CHARS) for subject in item.subjects)
    due = named[0] if named and kind == "deadline" else None
    if due is not None and due.day.isoformat() not in content:
        content = f"{content.rstrip('.')} ({due.day.isoformat()})"
    return Draft(
        content=content,
        kind=kind,
        subjects=tuple(filter(None, subjects))[:_MOST_SUBJECTS],
        trust=source.trust,
        scope=_scope(item, kind, content, source),
        ttl=item.ttl[:20] if item.ttl and kind not in _LASTING else None,
        at=due.at(now) if due else None,
        evidence=(evidence_of(turn, source, locate=locate),),
    )


def _scope(item: Extracted, kind: MemoryKind, content: str, source: Source) -> MemoryScope | None:
    """Return the scope: user-wide only if it is about the user, or they say so.

    With None, `is_of_project` decides.
    """
    if source.trust != "person":
        return "project"
    if kind == "rule" and EVERYWHERE.search(plain(source.quote)):
        return "user"
    scope = item.scope
    if kind == "preference" and not scope:
        # A preference in one project seldom holds in all.
        scope = "user" if is_of_person(plain(source.quote)) else "project"
    return "project" if scope == "project" and not is_about_person(content) else None


Relation = Literal["same", "updates", "different"]
_LEASE_S = 30.0
"""Renewed while a turn is processed."""
_MOST_JUDGED = 3
"""The maximum number of pairs per turn that a model compares."""
_SHORTLY = timedelta(hours=1)
_JUDGED_CHARS = 400
_LEAST_WORDS = 3
"""A prompt with fewer words tells the model nothing."""
_LASTING_ODDS = 0.3
"""Of the labelled sentences, 94 % of those above it hold for later work, and 23 % of those that do
are above it (scripts/fit_classifiers --check)."""
_MOST_SENTENCES = 30
"""In a prompt; a longer one was probably pasted, and its preferences are somebody else's."""
_MOST_PREFERENCES = 2
"""The maximum number of preferences per turn that only the classifier knows."""
_MOST_FRUITLESS = 2
"""After so many unusable answers in a row, this process no longer asks the model."""

Locate = Callable[[str], str]


class Extractor:
    """Extracts memories from turns; one per worker. `asker` queries the small model."""

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
        """Process the turns that can be leased, one by one, so that each is compared with the
        memories of those before. Return the keys of the processed ones. Raises StoreError.
        """
        async with leased(store, [i.key for i in items], owner_id, seconds=_LEASE_S) as mine:
            for turn in await store.get(Turn, [i.record_id for i in items if i.key in mine]):
                await self.learn(store, turn)
            return mine

    async def tidy(self) -> None:
        """Remove expired memories, once per process; called when there is nothing else to do."""
        if not self._tidied:
            self._tidied = True
            await self._facts.cleanup()

    async def learn(self, store: Store, turn: Turn) -> None:
        """Store the memories of a completed turn, and mark it as processed. Raises StoreError."""
        session = await store.session(turn.session_id)
        locate = locator(session)
        current = await self._facts.current(session.project_id)
        known = [memory.memory_id for memory in current if _is_of(memory, turn)]
        with self._metrics.time("memories.learn"):
            drafts = [*self._told(turn, session), *failures(turn, locate=locate)]
            drafts += await self._extracted(turn, session, locate)
            beside: list[Write] = [MarkExtracted(turn_ids=(turn.turn_id,))]
            beside += await self._expire_repaired(store, turn, session)
            if len(await store.get(MemoryRecord, known)) < len(known):
                drafts = []  # One was forgotten while the turn was read, and is among them again.
            await self._facts.settle(drafts, session.project_id, beside=beside)
            await self._judge(turn, session)

    def _told(self, turn: Turn, session: Session) -> list[Draft]:
        """Return what the user stated in a prompt, by patterns and, if no model reads it, by a
        classifier."""
        if turn.is_own_command:
            return []
        found = episodes(turn.user_message, turn.timestamp.astimezone())
        if self._asker_for(session) is None:
            found += self._preferences(turn.user_message, found)
        return [_draft(turn, episode) for episode in found]

    def _preferences(self, prompt: str, found: Sequence[Episode]) -> list[Episode]:
        """Return preferences that no pattern reads, by the classifier of lasting sentences."""
        read = [text for episode in found for text in (episode.quote, episode.content)]
        rest = [
            sentence
            for sentence in sentences(own_words(prompt))
            if may_last(sentence) and not any(sentence in text or text in sentence for text in read)
        ]
        if len(rest) > _MOST_SENTENCES:
            return []
        lasting = [sentence for sentence in rest if LASTING.log_odds(sentence) > _LASTING_ODDS]
        return [
            Episode(
                kind="preference",
                content=sentence,
                quote=sentence,
                scope=None if is_of_person(plain(sentence)) else "project",
            )
            for sentence in lasting[:_MOST_PREFERENCES]
        ]

    # --- extraction by a model ----------------------------------------------------

    def _asker_for(self, session: Session) -> Summarizer | None:
        """Return the client of the model for a session; None if it may not be asked."""
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
        known = _known_text(*await self._facts.about(own[:_JUDGED_CHARS], session.project_id))
        material = turn_material(turn, sources, known, room=asker.room)
        now = turn.timestamp.astimezone()
        day = f"{now:%A} {now.date().isoformat()}"
        found = await asker.ask(
            turn.session_id,
            # Only used to choose a tag for the marks that is in none of the texts.
            "\n".join(f"{of}\n{text}" for _, of, text in material),
            prompt("extract_rules").format(most=MOST, day=day),
            _MemoriesAnswer,
            _read_memories,
            item=f"memories:{turn.turn_id}",
            quote=partial(marked, material),
        )
        self._fruitless = self._fruitless + 1 if found is None else 0
        items = [believed(i, sources, turn, now=now, locate=locate) for i in found or ()]
        self._metrics.count("memories.disbelieved", sum(item is None for item in items))
        return [item for item in items if item is not None]

    # --- failures that work again -------------------------------------------------

    async def _expire_repaired(self, store: Store, turn: Turn, session: Session) -> list[Write]:
        """Return writes that expire the failures whose command has worked in this turn."""
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

    # --- memories that were updated -----------------------------------------------

    async def _judge(self, turn: Turn, session: Session) -> None:
        """Ask the model which older memories on the same subjects the new ones supersede."""
        asker = self._asker_for(session)
        if asker is None:
            return
        asked = 0
        for memory in await self._new_memories(turn, session):
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
                    is_same = relation == "same"
                    await self._facts.supersede(memory, old, says_the_same=is_same)

    async def _new_memories(self, turn: Turn, session: Session) -> list[MemoryRecord]:
        """Return memories of this turn or added by the user shortly before; no failures, rules."""
        since = turn.started_at - _SHORTLY
        return [
            memory
            for memory in await self._facts.current(session.project_id)
            if memory.kind not in ("failure", "rule")
            and (
                _is_of(memory, turn)
                or (memory.source != "conversation" and memory.created_at >= since)
            )
        ]

    @staticmethod
    async def _relation(
        asker: Summarizer, session_id: str, new: MemoryRecord, old: MemoryRecord
    ) -> Relation | None:
        newer, older = _note(new), _note(old)

        return await asker.ask(
            session_id,
            f"{older}\n{newer}",
            prompt("judge_rules"),
            _JudgeAnswer,
            lambda answer: answer.verdict,
            item=f"judge:{new.memory_id}:{old.memory_id}",
            quote=lambda _, tag: (
                f"<older-{tag}>\n{older}\n</older-{tag}>\n<newer-{tag}>\n{newer}\n</newer-{tag}>"
            ),
        )


def _is_of(memory: MemoryRecord, turn: Turn) -> bool:
    return any(place.turn_id == turn.turn_id for place in memory.evidence)


class _JudgeAnswer(msgspec.Struct, frozen=True):
    verdict: Relation


def _note(memory: MemoryRecord) -> str:
    day = memory.created_at.astimezone().date().isoformat()
    return one_line(redact(clean(f"{day}: {memory.content}")), _JUDGED_CHARS)


def _draft(turn: Turn, episode: Episode) -> Draft:
    return Draft(
        content=episode.content,
        kind=episode.kind,
        trust="person",
        scope=episode.scope,
        at=episode.at or turn.timestamp,
        evidence=(evidence_of(turn, Source("person", episode.quote), locate=lambda path: path),),
    )

"""What is known beyond the conversations, as sections: profile, facts, pinned memories."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from ragmem.memory.context.values import ContextItem, Part
from ragmem.memory.facts.values import FactHit
from ragmem.records import MemoryRecord, Profile
from ragmem.text import ago, one_line

PROFILE_HEADING = "[User Profile]"
FACTS_HEADING = "## Remembered Facts"
PINNED_HEADING = "Pinned by the person, to be kept to in every answer:\n"
_FACT_CHARS = 1_000
_VALUE_CHARS = 200
_WORD = re.compile(r"\w+")


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """The pinned part of the system message, and which of them found no room in it."""

    part: Part
    left_out: tuple[MemoryRecord, ...] = ()


def pinned_part(pinned: Iterable[MemoryRecord], *, budget: int, now: datetime) -> Pinned:
    """The person's rules and pinned memories, oldest first.

    Only what the person said speaks with the system's voice. The text depends on them alone,
    never on the time or the prompt, so that the prefix of successive requests stays the same.
    Where there is no room for all, rules come first, then the oldest.
    """
    theirs = [memory for memory in pinned if memory.trust == "person" and memory.is_current(now)]
    room = budget - len(PINNED_HEADING)
    chosen: set[str] = set()
    for memory in sorted(theirs, key=lambda memory: memory.kind != "rule"):
        needed = len(_pinned_line(memory)) + 1
        if needed <= room:
            room -= needed
            chosen.add(memory.memory_id)
    shown = [memory for memory in theirs if memory.memory_id in chosen]
    left_out = tuple(memory for memory in theirs if memory.memory_id not in chosen)
    lines = [_pinned_line(memory) for memory in shown]
    part = Part(
        name="Pinned",
        text="\n".join([PINNED_HEADING, *lines]) if lines else "",
        budget=budget,
        items=tuple(
            ContextItem(
                label=one_line(memory.content, 80),
                chars=len(line),
                why="a rule of the person" if memory.kind == "rule" else "pinned by the person",
                record_id=memory.memory_id,
            )
            for memory, line in zip(shown, lines, strict=True)
        ),
        dropped=len(left_out),
    )
    return Pinned(part=part, left_out=left_out)


def left_out_notice(pinned: Pinned) -> str:
    """What the person is told of pinned memories that found no room."""
    count = len(pinned.left_out)
    named = one_line(pinned.left_out[0].content, 60)
    which = f"“{named}”" if count == 1 else f"{count} pinned memories (“{named}” is one)"
    return (
        f"The model is not told of {which}: there are {pinned.part.budget:,} characters for what "
        "is pinned (memory.context.pinned_percent). `ragmem memory unpin` makes room."
    )


def profile_part(profile: Profile, *, budget: int) -> Part:
    """What the person has said of themselves, on one line; whole pairs only."""
    room = budget - len(PROFILE_HEADING) - 1
    pairs: list[str] = []
    items: list[ContextItem] = []
    for key in sorted(profile.values):
        pair = f"{one_line(key, _VALUE_CHARS)}={one_line(profile.values[key], _VALUE_CHARS)}"
        needed = len(pair) + (2 if pairs else 0)
        if needed > room:
            continue
        room -= needed
        pairs.append(pair)
        items.append(ContextItem(label=pair[:80], chars=len(pair), why="in the profile"))
    return Part(
        name="User Profile",
        text=f"{PROFILE_HEADING}\n{'; '.join(pairs)}" if pairs else "",
        budget=budget,
        items=tuple(items),
        dropped=len(profile.values) - len(pairs),
    )


class Said(msgspec.Struct, frozen=True):
    """The words of all that a request shows anyway: none of it is told again as a fact."""

    words: str
    memory_ids: frozenset[str] = frozenset()

    @classmethod
    def of(cls, texts: Iterable[str], memory_ids: Iterable[str] = ()) -> "Said":
        """Of these texts, and of memories that stand elsewhere in the request."""
        return cls(" | ".join(_words(text) for text in texts), frozenset(memory_ids))

    def holds(self, memory: MemoryRecord) -> bool:
        """Whether it is there, word for word."""
        words = _words(memory.content)
        return memory.memory_id in self.memory_ids or (bool(words.strip()) and words in self.words)


def facts_part(
    hits: Sequence[FactHit], said: Said, *, most: int, budget: int, now: datetime, brief: bool
) -> Part:
    """The best of them that are current and not shown yet, a line each.

    `brief` leaves out age and relevance, for a model that takes each word for part of the question.
    """
    line_of = _brief_line if brief else _fact_line
    lines: list[str] = []
    items: list[ContextItem] = []
    chosen = [h for h in hits if h.memory.is_current(now) and not said.holds(h.memory)][:most]
    room = budget - len(FACTS_HEADING)
    for hit in chosen:
        line = line_of(hit, now)
        if len(line) + 1 > room:
            continue
        room -= len(line) + 1
        lines.append(line)
        items.append(
            ContextItem(
                label=one_line(hit.memory.content, 80),
                chars=len(line),
                score=hit.score,
                why=hit.why,
                record_id=hit.memory.memory_id,
            )
        )
    return Part(
        name="Remembered Facts",
        text="\n".join([FACTS_HEADING, *lines]) if lines else "",
        budget=budget,
        items=tuple(items),
        dropped=len(chosen) - len(lines),
    )


def told_by(memory: MemoryRecord) -> str:
    """Who vouches for it, in words; empty for the person."""
    if memory.trust == "person":
        return ""
    if memory.trust == "model":
        return "said by the model"
    for evidence in memory.evidence:
        if evidence.path:
            return f"read in {one_line(evidence.path, 120)}"
    for evidence in memory.evidence:
        if evidence.tool_name:
            return f"read in the output of {one_line(evidence.tool_name, 60)}"
    return "read in a file or an output"


def dated(memory: MemoryRecord, now: datetime) -> str:
    """When it happened or is due, in words; empty where that is not known."""
    if memory.at is None:
        return ""
    day = f"{memory.at.astimezone(now.tzinfo):%Y-%m-%d}"
    return f"due {day}" if memory.kind == "deadline" else day


def relevance(hit: FactHit) -> str:
    """As it is shown: the similarity in percent, else how it was found."""
    return "text match" if hit.similarity is None else f"{hit.similarity * 100:.0f}%"


def _fact_line(hit: FactHit, now: datetime) -> str:
    """What is said about it stands before it, where its own text can't imitate that."""
    memory = hit.memory
    about = [
        memory.kind if memory.kind != "fact" else "",
        dated(memory, now),
        ago(memory.created_at, now),
        told_by(memory),
        f"Relevance: {relevance(hit)}",
    ]
    return f"- [{', '.join(filter(None, about))}] {one_line(memory.content, _FACT_CHARS)}"


def _brief_line(hit: FactHit, now: datetime) -> str:
    memory = hit.memory
    about = ", ".join(filter(None, (dated(memory, now), told_by(memory))))
    return f"- {f'[{about}] ' if about else ''}{one_line(memory.content, _FACT_CHARS)}"


def _pinned_line(memory: MemoryRecord) -> str:
    due = f" (due {memory.at:%Y-%m-%d})" if memory.kind == "deadline" and memory.at else ""
    return f"- {one_line(memory.content, _FACT_CHARS)}{due}"


def _words(text: str) -> str:
    """Its words alone, with blanks around each: so that no part of a word matches."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "

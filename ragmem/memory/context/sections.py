"""The sections of a request, each within its own budget in characters."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ragmem.ids import short_id
from ragmem.memory.context.collect import Material
from ragmem.memory.facts import FactHit
from ragmem.memory.files import format_accessed_files
from ragmem.memory.recall import Hit, relevance, repeats
from ragmem.memory.window import (
    answered,
    build_history_context,
    digests_of,
    messages_of,
    passage,
    question_words,
    recent_text,
    result_text,
)
from ragmem.records import FileAccess, MemoryRecord, Profile, Summary, ToolCall, Turn
from ragmem.text import ago, clip_middle, one_line, set_in

if TYPE_CHECKING:
    from ragmem.memory.last_time import SessionRecap

_LEAST_LINE = 40
"""Shorter ones of a session that is told of say nothing."""
_QUERY_CHARS = 200
"""A past query is shown with at most so many characters."""


class ContextItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in a section, and why it is there."""

    label: str
    chars: int
    score: float | None = None
    why: str
    record_id: str = ""
    """Of the turn, summary or memory that was recalled."""
    source: str = ""
    """Whose word it is, or where it was said, for people."""
    at: datetime | None = None
    """When it was said or made known."""
    similarity: float | None = None
    """Cosine to the prompt; None for what was found by words alone, or is always there."""
    holds: bool = True
    """Whether nothing is known that took its place or changed since."""


class ContextSection(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the request with its own budget, in characters; 0 is no limit."""

    name: str
    chars: int
    budget: int
    items: tuple[ContextItem, ...] = ()
    dropped: int = 0
    """Items left out for want of room."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A section before it is placed; an empty text is no section."""

    name: str
    text: str
    budget: int = 0
    items: tuple[ContextItem, ...] = ()
    dropped: int = 0

    @property
    def section(self) -> ContextSection:
        return ContextSection(
            name=self.name,
            chars=len(self.text),
            budget=self.budget,
            items=self.items,
            dropped=self.dropped,
        )


NO_PART = Part(name="", text="")


class Entries:
    """Texts that fit a section's room, and what they are, in order."""

    def __init__(self, budget: int, heading: str) -> None:
        self.room = budget - len(heading)
        self.texts: list[str] = []
        self.items: list[ContextItem] = []
        self._budget = budget

    def add(self, text: str, label: str, *, joint: int = 1, **item: Any) -> bool:
        """Take it, with `joint` characters before it; False where it does not fit."""
        if len(text) + joint > self.room:
            return False
        self.room -= len(text) + joint
        self.texts.append(text)
        self.items.append(ContextItem(label=label, chars=len(text), **item))
        return True

    def part(self, name: str, text: str, *, dropped: int) -> Part:
        """The section, which is empty where nothing fits."""
        return Part(
            name=name,
            text=text if self.texts else "",
            budget=self._budget,
            items=tuple(self.items),
            dropped=dropped,
        )


def turn_item(turn: Turn, chars: int | None = None) -> ContextItem:
    """A turn of the window, with the characters that it has there."""
    label = f"Turn {turn.turn_index}: {one_line(turn.asked, 60)}"
    return ContextItem(
        label=label, chars=turn.char_count if chars is None else chars, why="among the latest turns"
    )


def history_part(material: Material, *, budget: int) -> Part:
    """What this process remembers, where the store can't be asked."""
    heading = "## Conversation History\n\n"
    summaries = {s.covers[0]: s.text for s in material.level1 if s.level == 1 and s.covers}
    text = build_history_context(
        messages_of(material.turns),
        so_far=material.thread_summary,
        digests=digests_of(material.turns, summaries),
        max_chars=max(0, budget - len(heading)),
    )
    text = heading + text if material.turns else ""
    return Part(name="Conversation History", text=text, budget=budget)


def recent_part(turns: Sequence[Turn], *, most: int, budget: int) -> Part:
    """The latest turns as text, for a model without tool calls."""
    text, count = recent_text(turns, limit=most, max_chars=budget)
    shown = turns[len(turns) - count :]
    return Part(
        name="Recent Conversation (Raw)",
        text=text,
        budget=budget,
        items=tuple(turn_item(turn) for turn in shown),
        dropped=shown[0].turn_index - 1 if shown else 0,
    )


def queries_part(older: Sequence[Turn], *, older_count: int, budget: int) -> Part:
    """What was asked in the turns just before the window."""
    heading = "## Last User Queries"
    entries = Entries(budget, heading)
    for turn in reversed(older):
        line = f"[Turn {turn.turn_index}] {one_line(turn.asked, _QUERY_CHARS)}"
        if not entries.add(line, line[:80], why="asked before the window"):
            break
    entries.texts.reverse()
    entries.items.reverse()
    text = "\n".join([heading, *entries.texts])
    return entries.part("Last User Queries", text, dropped=older_count - len(entries.texts))


def last_query_part(turns: Sequence[Turn], *, budget: int) -> Part:
    """Said a second time, as a sentence: without it a small model can't tell who asked what."""
    before, after = 'You were asked before: "', '"'
    room = budget - len(before) - len(after)
    asked = one_line(turns[-1].asked, room) if turns and room > 0 else ""
    return Part(
        name="Last User Queries",
        text=f"{before}{asked}{after}" if asked else "",
        budget=budget,
        items=(ContextItem(label=asked[:80], chars=len(asked), why="asked last"),),
    )


def thread_part(summary: str, *, budget: int) -> Part:
    """The digest of the session so far."""
    heading = "[Thread Summary]\n"
    text = clip_middle(_told_in(summary), max(0, budget - len(heading)))
    return Part(name="Thread Summary", text=heading + text if text else "", budget=budget)


def _fair_share(lengths: Sequence[int], room: int) -> int:
    """To what length the longest are to be cut, so that all fit."""
    share = 0
    for i, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - i)
        room -= min(length, share)
    return share


def last_time_part(
    recaps: "Sequence[SessionRecap]", shown: Collection[str], *, budget: int, now: datetime
) -> Part:
    """What the newest sessions came to, for whoever comes back; less what is `shown`, by turns."""
    heading = "## Last Time"
    entries = Entries(budget, heading)
    for i, recap in enumerate(recaps):
        # What a short one leaves is for those behind it.
        head, *lines = recap.head(now), *recap.lines(shown)
        room = entries.room // min(2, len(recaps) - i) - 3 * (len(lines) + 1)
        share = _fair_share([len(head), *map(len, lines)], room)
        told = [f"\n  {one_line(line, share)}" for line in lines] if share >= _LEAST_LINE else []
        entries.add(
            f"- {one_line(head, max(_LEAST_LINE, share))}{''.join(told)}",
            one_line(recap.outcome or recap.session.called, 80),
            why="among the newest sessions",
            record_id=recap.session.session_id,
            source=f"session {short_id(recap.session.session_id)}",
            at=recap.session.last_activity_at,
        )
    text = "\n".join([heading, *entries.texts])
    return entries.part("Last Time", text, dropped=len(recaps) - len(entries.texts))


def files_part(accesses: Sequence[FileAccess], *, budget: int, show: Callable[[str], str]) -> Part:
    """The files that tools touched of late."""
    text, dropped = format_accessed_files(accesses, max_chars=budget, show=show)
    return Part(
        name="Recently Accessed Files",
        text=text,
        budget=budget,
        items=tuple(
            ContextItem(
                label=show(a.path),
                chars=len(a.path),
                why=f"{a.access_type} by {a.tool_name} in turn {a.turn_index}",
            )
            for a in accesses
        ),
        dropped=dropped,
    )


PROFILE_HEADING = "[User Profile]"
FACTS_HEADING = "## Remembered Facts"
PREFERENCES_HEADING = "## What the Person Prefers"
PINNED_HEADING = "Pinned by the person, to be kept to in every answer:\n"
_FACT_CHARS = 1_000
_OF_NEAREST = 0.7
"""Of how near the nearest recalled turn is, a fact is to be so near at least."""
_VALUE_CHARS = 200
_WORD = re.compile(r"\w+")


def pinned_part(pinned: Iterable[MemoryRecord], *, budget: int, now: datetime) -> tuple[Part, str]:
    """The person's rules and pinned memories, oldest first; and a notice where room is missing.

    Only what the person said speaks with the system's voice. The text depends on them alone,
    never on the time or the prompt, so that the prefix of successive requests stays the same.
    Where there is no room for all, rules come first, then the oldest.
    """
    theirs = [memory for memory in pinned if memory.trust == "person" and memory.is_current(now)]
    room, chosen = budget - len(PINNED_HEADING), set[str]()
    for memory in sorted(theirs, key=lambda memory: memory.kind != "rule"):
        needed = len(_pinned_line(memory)) + 1
        if needed <= room:
            room -= needed
            chosen.add(memory.memory_id)
    entries = Entries(budget, PINNED_HEADING)
    for memory in theirs:
        if memory.memory_id in chosen:
            entries.add(
                _pinned_line(memory),
                one_line(memory.content, 80),
                why="a rule of the person" if memory.kind == "rule" else "pinned by the person",
                record_id=memory.memory_id,
                source=_source(memory),
                at=memory.created_at,
            )
    left_out = [memory for memory in theirs if memory.memory_id not in chosen]
    text = "\n".join([PINNED_HEADING, *entries.texts])
    part = entries.part("Pinned", text, dropped=len(left_out))
    return part, _left_out_notice(left_out, budget) if left_out else ""


def _left_out_notice(left_out: Sequence[MemoryRecord], budget: int) -> str:
    named = one_line(left_out[0].content, 60)
    several = f"{len(left_out)} pinned memories (“{named}” is one)"
    return (
        f"The model is not told of {f'“{named}”' if len(left_out) == 1 else several}: there are "
        f"{budget:,} characters for what is pinned (memory.context.pinned_percent). "
        "`ragmem memory unpin` makes room."
    )


def profile_part(profile: Profile, *, budget: int) -> Part:
    """What the person has said of themselves, on one line; whole pairs only."""
    heading = f"{PROFILE_HEADING}\n"
    entries = Entries(budget, heading)
    for key, value in sorted(profile.values.items()):
        pair = f"{one_line(key, _VALUE_CHARS)}={one_line(value, _VALUE_CHARS)}"
        entries.add(pair, pair[:80], joint=2 if entries.texts else 0, why="in the profile")
    dropped = len(profile.values) - len(entries.texts)
    return entries.part("User Profile", heading + "; ".join(entries.texts), dropped=dropped)


def preferences_part(
    liked: Sequence[MemoryRecord], texts: Iterable[str], *, budget: int, now: datetime
) -> Part:
    """How the person likes things done, a line each; those that find no room are facts to find.

    None of it stands, word for word, in the `texts` of the request.
    """
    entries = Entries(budget, PREFERENCES_HEADING)
    said = _said(texts)
    for memory in liked:
        if memory.is_current(now) and not _stands_in(memory, said):
            entries.add(
                f"- {one_line(memory.content, _FACT_CHARS)}",
                one_line(memory.content, 80),
                why="a preference of the person",
                record_id=memory.memory_id,
                source=_source(memory),
                at=memory.created_at,
            )
    text = "\n".join([PREFERENCES_HEADING, *entries.texts])
    return entries.part("Preferences", text, dropped=len(liked) - len(entries.texts))


def facts_part(
    hits: Sequence[FactHit],
    texts: Iterable[str],
    memory_ids: Iterable[str] = (),
    *,
    turns: Part = NO_PART,
    most: int,
    budget: int,
    now: datetime,
    brief: bool,
) -> Part:
    """The best of them that are current, a line each.

    None of it stands, word for word, in the `texts` of the request, or is one of `memory_ids`; nor
    in other words in the recalled `turns`, where it was learned from one that still holds, and none
    is much farther from the prompt than the nearest of these.
    `brief` leaves out age and relevance, for a model that takes each word for part of the question.
    """
    from ragmem.memory.facts.trust import covers

    line_of = _brief_line if brief else _fact_line
    entries = Entries(budget, FACTS_HEADING)
    said, elsewhere = _said(texts), frozenset(memory_ids)
    chosen = [
        hit
        for hit in hits
        if hit.memory.is_current(now)
        and hit.memory.memory_id not in elsewhere
        and not _stands_in(hit.memory, said)
    ][:most]
    nearest = max((item.similarity or 0.0 for item in turns.items), default=0.0)
    held = {item.record_id for item in turns.items if item.holds}
    chosen = [
        hit
        for hit in chosen
        if (hit.similarity is None or hit.similarity >= _OF_NEAREST * nearest)
        and not (
            any(each.turn_id in held for each in hit.memory.evidence)
            and covers(turns.text, hit.memory.content)
        )
    ]
    for hit in chosen:
        entries.add(
            line_of(hit, now),
            one_line(hit.memory.content, 80),
            score=hit.score,
            why=hit.why,
            record_id=hit.memory.memory_id,
            source=_source(hit.memory),
            at=hit.memory.created_at,
            similarity=hit.similarity,
        )
    text = "\n".join([FACTS_HEADING, *entries.texts])
    return entries.part("Remembered Facts", text, dropped=len(chosen) - len(entries.texts))


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


def _source(memory: MemoryRecord) -> str:
    return told_by(memory) or "told by you"


def dated(memory: MemoryRecord, now: datetime) -> str:
    """When it happened or is due, in words; empty where that is not known."""
    if memory.at is None:
        return ""
    day = f"{memory.at.astimezone(now.tzinfo):%Y-%m-%d}"
    return f"due {day}" if memory.kind == "deadline" else day


def _fact_line(hit: FactHit, now: datetime) -> str:
    """What is said about it stands before it, where its own text can't imitate that."""
    memory = hit.memory
    about = [
        memory.kind if memory.kind != "fact" else "",
        dated(memory, now),
        ago(memory.created_at, now),
        told_by(memory),
        f"Relevance: {relevance(hit.similarity)}",
    ]
    return f"- [{', '.join(filter(None, about))}] {_with_since(hit)}"


def _brief_line(hit: FactHit, now: datetime) -> str:
    memory = hit.memory
    about = ", ".join(filter(None, (dated(memory, now), told_by(memory))))
    return f"- {f'[{about}] ' if about else ''}{_with_since(hit)}"


def _with_since(hit: FactHit) -> str:
    since = f" ({one_line(hit.since, _SINCE_CHARS)})" if hit.since else ""
    return one_line(hit.memory.content, _FACT_CHARS) + since


def _pinned_line(memory: MemoryRecord) -> str:
    due = f" (due {memory.at:%Y-%m-%d})" if memory.kind == "deadline" and memory.at else ""
    return f"- {one_line(memory.content, _FACT_CHARS)}{due}"


def _said(texts: Iterable[str]) -> str:
    return " | ".join(map(_words, texts))


def _stands_in(memory: MemoryRecord, said: str) -> bool:
    words = _words(memory.content)
    return bool(words.strip()) and words in said


def _words(text: str) -> str:
    """Its words alone, with blanks around each: so that no part of a word matches."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


MOST_TURNS, MOST_SUMMARIES, MOST_HITS = 3, 5, 5
"""Of each kind, and of both together."""
MOST_LEVEL1 = 10
TURNS_HEADING = "## Relevant Past Context (Semantic Search - Turns)"
SUMMARIES_HEADING = "## Relevant Past Context (Semantic Search - Summaries)"
LEVEL1_HEADING = "## Recent Level 1 Summaries (Not Yet Summarized to Level 2)"
_LEAST_CHARS = 160
"""A hit that would get less room than this says nothing."""
_LEAST_SHARE = 320
"""Of one of several, with its heading, its source and what became of it: fewer are told rather."""
_SINCE_CHARS = 360
"""Of what was said since, and of what failed."""
_BLANK_LINES = re.compile(r"\n\s*\n")
_MOST_FAILED = 2
_RESULT_WORDS = 2
"""A tool's result is quoted when it holds so many of the question's words that the texts lack."""


def choose(hits: Iterable[Hit], shown: Collection[str], *, most: int | None = None) -> list[Hit]:
    """The best of them that are not shown yet; a summary of hits that are, is dropped too.

    `shown` are ids of turns and summaries. `most` stands for all three limits.
    """
    of_turns, of_summaries, of_both = (
        (MOST_TURNS, MOST_SUMMARIES, MOST_HITS) if most is None else (most, most, most)
    )
    chosen: list[Hit] = []
    for hit in hits:
        if len(chosen) == of_both:
            break
        turns = {h.record_id for h in chosen if h.turn}
        full = len(turns) == of_turns if hit.turn else len(chosen) - len(turns) == of_summaries
        known = turns.union(shown)
        if full or hit.record_id in known or repeats(hit.summary, known):
            continue
        if hit.turn:
            # What was said stands for the summary of it.
            chosen = [other for other in chosen if not repeats(other.summary, {hit.record_id})]
        chosen.append(hit)
    return chosen


def relevant_parts(
    hits: Sequence[Hit],
    question: str,
    *,
    session_id: str,
    budget: int,
    now: datetime,
    present: Collection[str] = (),
) -> tuple[Part, Part]:
    """The sections of turns and of summaries, together within `budget` characters.

    Of the files of `present` the request shows how they are now: not how they were.
    """
    every, room = hits, _room(hits, budget)
    while len(hits) > 1 and room // len(hits) < _LEAST_SHARE:
        # Where there is room for few, the best are shown, rather than nothing of all.
        hits = hits[:-1]
        room = _room(hits, budget)
    # In the order that their numbers say; what has none is behind.
    hits = sorted(hits, key=lambda hit: -(hit.similarity or 0))
    kinds = {"turn": Entries(budget, ""), "summary": Entries(budget, "")}
    for i, hit in enumerate(hits):
        # What a short one leaves is for those behind it.
        share = room // (len(hits) - i)
        if share < _LEAST_CHARS:
            continue
        entry = _entry(hit, question, share, session_id, now, present)
        if entry and len(entry) + 2 <= room:
            room -= len(entry) + 2
            kinds[hit.type].add(
                entry,
                _label(hit),
                score=hit.score,
                why=hit.why,
                record_id=hit.record_id,
                source="this session" if hit.session_id == session_id else hit.where(),
                at=hit.at,
                similarity=hit.similarity,
                holds=not (hit.since or hit.changed),
            )

    def part(kind: str, name: str, heading: str) -> Part:
        shown = kinds[kind]
        dropped = sum(hit.type == kind for hit in every) - len(shown.texts)
        return shown.part(name, f"{heading}\n" + "\n\n".join(shown.texts), dropped=dropped)

    return (
        part("turn", "Relevant Turns", TURNS_HEADING),
        part("summary", "Relevant Summaries", SUMMARIES_HEADING),
    )


def _room(hits: Sequence[Hit], budget: int) -> int:
    """What their headings leave."""
    kinds = {hit.type for hit in hits}
    headings = (("turn", TURNS_HEADING), ("summary", SUMMARIES_HEADING))
    return budget - sum(len(heading) + 1 for kind, heading in headings if kind in kinds)


def level1_part(summaries: Sequence[Summary], shown: Collection[str], *, budget: int) -> Part:
    """Summaries of turns that no higher one covers nor the request shows, newest first."""
    heading = f"{LEVEL1_HEADING}\n"
    entries = Entries(budget, heading)
    listed = [s for s in summaries if not repeats(s, shown)][:MOST_LEVEL1]
    for summary in listed:
        entry = "\n".join(
            [
                "[Level 1 Summary]",
                _told_in(summary.text),
                "",
                *_findings(summary),
                *_line("Tools used", summary.tools_used),
            ]
        )
        room = entries.room - 2
        if len(entry) > room and (entries.texts or room + 2 < _LEAST_CHARS // 2):
            break
        entries.add(
            clip_middle(entry, room),
            one_line(summary.text, 80),
            joint=2,
            why="not yet part of a level-2 summary",
            record_id=summary.summary_id,
            source="this session",
            at=summary.created_at,
        )
    text = heading + "\n\n".join(entries.texts)
    return entries.part("Level 1 Summaries", text, dropped=len(listed) - len(entries.texts))


def _entry(
    hit: Hit, question: str, room: int, session_id: str, now: datetime, present: Collection[str]
) -> str:
    source = source_line(hit, session_id=session_id, now=now)
    since_chars = min(_SINCE_CHARS, room // 4)
    since = [one_line(hit.since, since_chars)] if hit.since else []
    if hit.changed:
        since.append(f"Changed since: {one_line(', '.join(hit.changed), since_chars)}")
    if hit.summary:
        summary = hit.summary
        head = "\n".join([f"[Level {summary.level} Summary - Relevance: {hit.relevance}]", *since])
        lines = ["", *_findings(summary), source]
        room -= len(head) + sum(len(line) + 1 for line in lines) + 1
        text = clip_middle(_in_one(_told_in(summary.text)), max(room, _LEAST_CHARS // 2))
        return "\n".join([head, text, *lines])
    if hit.turn is None:
        return ""
    of = f" of session {short_id(hit.session_id)}, {ago(hit.at, now)}"
    of = "" if hit.session_id == session_id else of
    # Whoever reads what was said knows by then what became of it.
    heading = "\n".join([f"[Turn {hit.turn.turn_index}{of} - Relevance: {hit.relevance}]", *since])
    quotable = {name for name, path in hit.outdated.items() if path not in present}
    shown = [c for c in hit.turn.tool_calls if c.tool_call_id not in hit.outdated.keys() - quotable]
    return _turn_entry(heading, hit.turn, shown, quotable, question, room, source)


def _turn_entry(
    heading: str,
    turn: Turn,
    calls: Sequence[ToolCall],
    outdated: Collection[str],
    question: str,
    room: int,
    source: str,
) -> str:
    tools = set_in(", ".join(dict.fromkeys(call.tool_name for call in turn.tool_calls)))
    told: list[str] = []
    if turn.tool_calls:
        from ragmem.memory.facts.failures import failures

        failed = failures(turn, locate=str, with_mended=True)[-_MOST_FAILED:]
        told = [one_line(f"Failed: {failure.content}", _SINCE_CHARS) for failure in failed]
    told = told if sum(map(len, told)) < room // 2 else []
    room -= sum(len(line) + 1 for line in told)
    room -= len(heading) + len(source) + len(tools) + len("User: Assistant: Tools: ") + 5
    quoted = _telling_result(turn, calls, outdated, question, max(0, room // 4))
    room -= len(quoted) + 1 if quoted else 0
    said = _in_one(answered(turn, question))
    asked = passage(_in_one(turn.user_message), question, max(room // 3, room - len(said)))
    answer = passage(said, question, max(0, room - len(asked)))
    lines = [heading, f"User: {asked}", f"Assistant: {answer}"]
    if tools:
        lines.append(f"Tools: {tools}")
    lines += told
    if quoted:
        lines.append(quoted)
    return "\n".join([*lines, source])


def _telling_result(
    turn: Turn, calls: Sequence[ToolCall], outdated: Collection[str], question: str, room: int
) -> str:
    """The result of a tool that holds what is asked about, where the texts do not."""
    said = turn.user_message.casefold() + turn.said.casefold()
    words = {word for word in question_words(question) if word not in said}
    best: tuple[int, ToolCall] | None = None
    for call in calls:
        text = result_text(call).casefold()
        count = sum(word in text for word in words)
        if count >= _RESULT_WORDS and (best is None or count > best[0]):
            best = (count, call)
    if best is None or room < _LEAST_CHARS // 2:
        return ""
    call = best[1]
    then = f" (as it was on {call.started_at:%Y-%m-%d}; changed since)"
    then = then if call.tool_call_id in outdated else ""
    label = f"Result of {one_line(call.tool_name, 60)} {one_line(call.arguments, 60)}{then}: "
    return label + passage(_in_one(result_text(call)), question, max(0, room - len(label)))


def _told_in(summary: str) -> str:
    """A summary behind its label, so that its first line begins none of ours."""
    return f"Summary: {set_in(summary)}" if summary else ""


def _in_one(text: str) -> str:
    """Set in, without blank lines: one stands between what is recalled and the next."""
    return set_in(_BLANK_LINES.sub("\n", text))


def source_line(hit: Hit, *, session_id: str, now: datetime) -> str:
    """Where a hit comes from, and how old it is."""
    where = "this session" if hit.session_id == session_id else hit.where()
    return f"Source: {where}, {hit.at.astimezone(now.tzinfo):%Y-%m-%d %H:%M}, {ago(hit.at, now)}"


def _findings(summary: Summary) -> list[str]:
    return [
        *_line("Key findings", summary.key_findings),
        *_line("Files mentioned", summary.files_mentioned),
    ]


def _line(name: str, values: Sequence[str]) -> list[str]:
    return [f"{name}: {set_in(', '.join(values))}"] if values else []


def _label(hit: Hit) -> str:
    if hit.turn:
        label = f"Turn {hit.turn.turn_index}: {hit.turn.asked}"
    else:
        label = f"Level {hit.level}: {hit.summary.text}" if hit.summary else ""
    return one_line(re.sub(r"\s+", " ", label[:400]), 80)

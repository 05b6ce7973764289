"""What was found on the prompt, as sections: turns, summaries."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from ragmem.memory.context.values import ContextItem, Part
from ragmem.memory.hits import THREAD_LEVEL, Hit
from ragmem.memory.passages import passage, question_words
from ragmem.memory.window import result_text
from ragmem.records import Summary, ToolCall, Turn
from ragmem.text import ago, clip_middle, one_line

MOST_TURNS, MOST_SUMMARIES, MOST_HITS = 3, 5, 5
"""Of each kind, and of both together."""
MOST_LEVEL1 = 10
TURNS_HEADING = "## Relevant Past Context (Semantic Search - Turns)"
SUMMARIES_HEADING = "## Relevant Past Context (Semantic Search - Summaries)"
LEVEL1_HEADING = "## Recent Level 1 Summaries (Not Yet Summarized to Level 2)"
_LEAST_CHARS = 160
"""A hit that would get less room than this says nothing."""
_RESULT_WORDS = 2
"""A tool's result is quoted when it holds so many of the question's words that the texts lack."""


class Shown(msgspec.Struct, frozen=True):
    """What the request shows already: none of it is said twice."""

    turn_ids: frozenset[str] = frozenset()
    summary_ids: frozenset[str] = frozenset()

    def covers(self, hit: Hit) -> bool:
        """Whether the hit would repeat it: itself, or all that it is a summary of."""
        if hit.turn:
            return hit.turn.turn_id in self.turn_ids
        summary = hit.summary
        return summary is not None and (
            summary.summary_id in self.summary_ids or self.covers_summary(summary)
        )

    def covers_summary(self, summary: Summary) -> bool:
        """Whether everything that it digests is shown."""
        return summary.level == 1 and self.turn_ids.issuperset(summary.covers)


def choose(hits: Iterable[Hit], shown: Shown, *, most: int | None = None) -> list[Hit]:
    """The best of them that are not shown yet; a summary of hits that are, is dropped too.

    `most` stands for all three limits.
    """
    of_turns, of_summaries, of_both = (
        (MOST_TURNS, MOST_SUMMARIES, MOST_HITS) if most is None else (most, most, most)
    )
    chosen: list[Hit] = []
    for hit in hits:
        if len(chosen) == of_both:
            break
        turns = [h for h in chosen if h.turn]
        full = len(turns) == of_turns if hit.turn else len(chosen) - len(turns) == of_summaries
        known = Shown(shown.turn_ids.union(h.record_id for h in turns), shown.summary_ids)
        if full or known.covers(hit):
            continue
        if hit.turn:
            # What was said stands for the summary of it.
            said = Shown(frozenset({hit.turn.turn_id}))
            chosen = [other for other in chosen if not said.covers(other)]
        chosen.append(hit)
    return chosen


def relevant_parts(
    hits: Sequence[Hit], question: str, *, session_id: str, budget: int, now: datetime
) -> tuple[Part, Part]:
    """The sections of turns and of summaries, together within `budget` characters."""
    entries: dict[str, list[str]] = {"turn": [], "summary": []}
    items: dict[str, list[ContextItem]] = {"turn": [], "summary": []}
    dropped = {"turn": 0, "summary": 0}
    every, room = hits, _room(hits, budget)
    while len(hits) > 1 and room // len(hits) < _LEAST_CHARS:
        # Where there is room for few, the best are shown, rather than nothing of all.
        hits = hits[:-1]
        room = _room(hits, budget)
    for hit in every[len(hits) :]:
        dropped[hit.type] += 1
    for i, hit in enumerate(hits):
        # What a short one leaves is for those behind it.
        share = room // (len(hits) - i)
        entry = _entry(hit, question, share, session_id, now) if share >= _LEAST_CHARS else ""
        if not entry or len(entry) + 2 > room:
            dropped[hit.type] += 1
            continue
        room -= len(entry) + 2
        entries[hit.type].append(entry)
        items[hit.type].append(
            ContextItem(
                label=_label(hit),
                chars=len(entry),
                score=hit.score,
                why=hit.why,
                record_id=hit.record_id,
            )
        )

    def part(kind: str, name: str, heading: str) -> Part:
        texts = entries[kind]
        return Part(
            name=name,
            text="\n\n".join([f"{heading}\n{texts[0]}", *texts[1:]]) if texts else "",
            budget=budget,
            items=tuple(items[kind]),
            dropped=dropped[kind],
        )

    return (
        part("turn", "Relevant Turns", TURNS_HEADING),
        part("summary", "Relevant Summaries", SUMMARIES_HEADING),
    )


def _room(hits: Sequence[Hit], budget: int) -> int:
    """What their headings leave."""
    kinds = {hit.type for hit in hits}
    headings = (("turn", TURNS_HEADING), ("summary", SUMMARIES_HEADING))
    return budget - sum(len(heading) + 1 for kind, heading in headings if kind in kinds)


def level1_part(
    summaries: Sequence[Summary], shown: Shown, *, budget: int
) -> tuple[Part, list[str]]:
    """Summaries of turns that no higher one covers, newest first; and the ids of those listed."""
    entries: list[str] = []
    items: list[ContextItem] = []
    listed = [s for s in summaries if not shown.covers_summary(s)][:MOST_LEVEL1]
    room = budget - len(LEVEL1_HEADING) - 1
    for summary in listed:
        entry = "\n".join(
            [
                "[Level 1 Summary]",
                summary.text,
                "",
                *_findings(summary),
                *_line("Tools used", summary.tools_used),
            ]
        )
        if len(entry) + 2 > room and (entries or room < _LEAST_CHARS // 2):
            break
        entry = clip_middle(entry, max(room - 2, 0))
        room -= len(entry) + 2
        entries.append(entry)
        items.append(
            ContextItem(
                label=one_line(summary.text, 80),
                chars=len(entry),
                why="not yet part of a level-2 summary",
                record_id=summary.summary_id,
            )
        )
    text = "\n\n".join(entries)
    part = Part(
        name="Level 1 Summaries",
        text=f"{LEVEL1_HEADING}\n{text}" if text else "",
        budget=budget,
        items=tuple(items),
        dropped=len(listed) - len(entries),
    )
    return part, [summary.summary_id for summary in listed[: len(entries)]]


def _entry(hit: Hit, question: str, room: int, session_id: str, now: datetime) -> str:
    source = source_line(hit, session_id=session_id, now=now)
    if hit.summary:
        summary = hit.summary
        lines = [
            f"[{_level_name(summary, ' Summary')} - Relevance: {_relevance(hit)}]",
            "",
            *_findings(summary),
        ]
        room -= sum(len(line) + 1 for line in lines) + len(source) + 1
        lines.insert(1, clip_middle(summary.text, max(room, _LEAST_CHARS // 2)))
        return "\n".join([*lines, source])
    return _turn_entry(hit, hit.turn, question, room, source) if hit.turn else ""


def _turn_entry(hit: Hit, turn: Turn, question: str, room: int, source: str) -> str:
    heading = f"[Turn {turn.turn_index} - Relevance: {hit.relevance}]"
    tools = ", ".join(dict.fromkeys(call.tool_name for call in turn.tool_calls))
    room -= len(heading) + len(source) + len(tools) + len("User: Assistant: Tools: ") + 5
    quoted = _telling_result(turn, question, max(0, room // 4))
    room -= len(quoted) + 1 if quoted else 0
    asked = passage(turn.user_message, question, max(room // 3, room - len(turn.assistant_message)))
    answer = passage(turn.assistant_message, question, max(0, room - len(asked)))
    lines = [heading, f"User: {asked}", f"Assistant: {answer}"]
    if tools:
        lines.append(f"Tools: {tools}")
    if quoted:
        lines.append(quoted)
    return "\n".join([*lines, source])


def _telling_result(turn: Turn, question: str, room: int) -> str:
    """The result of a tool that holds what is asked about, where the texts do not."""
    said = turn.user_message.casefold() + turn.assistant_message.casefold()
    words = {word for word in question_words(question) if word not in said}
    best: tuple[int, ToolCall] | None = None
    for call in turn.tool_calls:
        text = result_text(call).casefold()
        count = sum(word in text for word in words)
        if count >= _RESULT_WORDS and (best is None or count > best[0]):
            best = (count, call)
    if best is None or room < _LEAST_CHARS // 2:
        return ""
    call = best[1]
    label = f"Result of {call.tool_name} {one_line(call.arguments, 60)}: "
    return label + passage(result_text(call), question, max(0, room - len(label)))


def source_line(hit: Hit, *, session_id: str, now: datetime) -> str:
    """Where a hit comes from, and how old it is."""
    where = "this session" if hit.session_id == session_id else hit.where()
    return f"Source: {where}, {hit.at.astimezone(now.tzinfo):%Y-%m-%d %H:%M}, {ago(hit.at, now)}"


def _level_name(summary: Summary, noun: str) -> str:
    of = "Conversation" if summary.level == THREAD_LEVEL else f"Level {summary.level}"
    return of + noun


def _relevance(hit: Hit) -> str:
    """In percent, or by its words; of a conversation that is told for its time alone, that."""
    return hit.why if hit.summary and hit.level == THREAD_LEVEL else hit.relevance


def _findings(summary: Summary) -> list[str]:
    return [
        *_line("Key findings", summary.key_findings),
        *_line("Files mentioned", summary.files_mentioned),
    ]


def _line(name: str, values: Sequence[str]) -> list[str]:
    return [f"{name}: {', '.join(values)}"] if values else []


def _label(hit: Hit) -> str:
    if hit.turn:
        label = f"Turn {hit.turn.turn_index}: {hit.turn.user_message}"
    else:
        label = f"{_level_name(hit.summary, '')}: {hit.summary.text}" if hit.summary else ""
    return one_line(re.sub(r"\s+", " ", label[:400]), 80)

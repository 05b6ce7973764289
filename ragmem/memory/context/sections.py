"""The sections of a request, each within its own budget in characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from ragmem.config import MemoryConfig
from ragmem.ids import short_id
from ragmem.memory.facts import FactHit, dated, day_of, told_by
from ragmem.memory.turns import (
    answered,
    format_accessed_files,
    passage,
    question_words,
    recent_text,
    result_text,
)
from ragmem.records import MemoryRecord, Summary, ToolCall, Turn
from ragmem.text import ago, clip_middle, fair_share, one_line, relevance, set_in

if TYPE_CHECKING:
    from ragmem.memory.context.collect import ContextRequest, Material
    from ragmem.memory.recall import Hit

PINNED_HEADING = "The user's rules, to be followed in every answer:\n"
RELEVANT = {
    "turn": ("Relevant Turns", "## Relevant Past Context (Semantic Search - Turns)"),
    "summary": ("Relevant Summaries", "## Relevant Past Context (Semantic Search - Summaries)"),
}
"""Names and headings, by the kind of hit."""
MOST_TURNS, MOST_SUMMARIES, MOST_HITS = 3, 5, 5
"""Limits of each kind, and of both together."""
MOST_LEVEL1 = 10
_LEAST_LINE = 40
"""Characters of a recap's line below which it is left out, since it would say nothing."""
_QUERY_CHARS = 200
"""Limit of each earlier prompt."""
_FACT_CHARS = 1_000
_OF_NEAREST = 0.7
"""Share of the nearest recalled turn's similarity that a fact must reach."""
_VALUE_CHARS = 200
_LEAST_CHARS = 160
"""Characters below which a hit is left out, since it would say nothing."""
_LEAST_SHARE = 320
"""Characters of each of several hits, including heading, source and later changes; if the room is
too small for that, fewer hits are shown."""
_SINCE_CHARS = 360
"""Limit of what was said since, and of each failure."""
_DONE = {"read": "read", "write": "written", "search": "searched", "list": "listed"}
"""The verb for each kind of access to a file."""
_MOST_FAILED = 2
_RESULT_WORDS = 2
"""A tool's result is quoted if it has at least this many of the question's words that the turn's
messages lack."""
_BLANK_LINES = re.compile(r"\n\s*\n")
_WORD = re.compile(r"\w+")

Chars = Callable[..., int]
"""`ContextBuilder.chars` for one request, scaled down if all sections exceed its room."""


class ContextItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a section, and why it is there."""

    label: str
    chars: int
    score: float | None = None
    why: str
    record_id: str = ""
    """The id of a recalled turn, summary or memory."""
    source: str = ""
    """Who said it, or where, for display."""
    at: datetime | None = None
    """When it was said or created."""
    similarity: float | None = None
    """Cosine with the prompt; None if it was found by words alone, or is always included."""
    holds: bool = True
    """Whether nothing is known to have replaced it or changed since."""


class ContextSection(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the request with its own budget in characters; 0 means no limit."""

    name: str
    chars: int
    budget: int = 0
    items: tuple[ContextItem, ...] = ()
    dropped: int = 0
    """Items that did not fit into the budget."""
    text: str = ""
    """Empty for sections that are left out, and for those that are messages."""


def section(name: str, text: str, **fields: Any) -> ContextSection:
    """Create a section with a text; if that is empty, the request has no such section."""
    return ContextSection(name=name, text=text, chars=len(text), **fields)


NO_SECTION = section("", "")


class Entries:
    """Collects texts with their items, as long as they fit into a section's budget."""

    def __init__(self, budget: int, heading: str = "") -> None:
        self.room = budget - len(heading)
        self._heading = heading
        self.texts: list[str] = []
        self.items: list[ContextItem] = []
        self._budget = budget

    def add(self, text: str, label: str, *, joint: int = 1, **item: Any) -> bool:
        """Add a text that `joint` characters will precede; False if it does not fit."""
        if len(text) + joint > self.room:
            return False
        self.room -= len(text) + joint
        self.texts.append(text)
        self.items.append(ContextItem(label=label, chars=len(text), **item))
        return True

    def add_memory(self, line: str, memory: MemoryRecord, **item: Any) -> None:
        """Add a memory's line, if it fits."""
        self.add(
            line,
            one_line(memory.content, 80),
            record_id=memory.memory_id,
            source=told_by(memory) or "told by you",
            at=memory.created_at,
            **item,
        )

    def part(self, name: str, text: str = "", *, of: int) -> ContextSection:
        """Return the section of `of` items, as lines or as `text`; it is empty if none fits."""
        return section(
            name,
            (text or "\n".join([self._heading, *self.texts])) if self.texts else "",
            budget=self._budget,
            items=tuple(self.items),
            dropped=of - len(self.texts),
        )


def turn_item(turn: Turn, chars: int) -> ContextItem:
    """Return the item of a turn of the conversation, with its characters in the request."""
    label = f"Turn {turn.turn_index}: {one_line(turn.asked, 60)}"
    return ContextItem(label=label, chars=chars, why="among the latest turns")


class Sections:
    """Writes what is recalled for a request as sections, each within its own budget.

    `of` returns the characters of a percentage of the request; `native`: the model calls tools;
    `most` limits the hits, as in `choose`.
    """

    def __init__(
        self,
        config: MemoryConfig,
        request: ContextRequest,
        material: Material,
        of: Chars,
        *,
        native: bool,
        most: int | None,
    ) -> None:
        self._config, self._share = config, config.context
        self._request, self._material = request, material
        self._now, self._session_id = request.now, request.session_id
        self._of, self._native, self._most = of, native, most
        turns = material.window.turns if native else material.turns[-config.recent.turns :]
        self._shown = turns if request.strategy != "relevant" else ()
        """The turns of the conversation that the request includes anyway."""

    def parts(self, pinned: ContextSection, code: ContextSection) -> list[ContextSection]:
        """Return the sections in order, including the project's `code`.

        `pinned` is elsewhere in the request, and is not repeated.
        """
        strategy, changed = self._request.strategy, self._request.changed
        last = section("Changed Files", changed if self._native else "")
        if self._material.at_hand:
            return [self._history(), code, last]
        profile, liked, thread = self._profile(), self._preferences(), self._thread()
        if strategy == "recent":
            return [profile, liked, thread, *self._recent(frozenset()), self._files(), last]
        recalled = self._recalled()
        facts = self._facts(recalled[0], (*pinned.items, *liked.items))
        if strategy == "relevant":
            return [facts, code, *recalled, last]
        recent = self._recent(_ids(recalled))
        last_time = self._last_time((facts, *recalled))
        told = [profile, liked, last_time, thread, facts, *recent]
        return [*told, code, *recalled, self._files(), last]

    # --- the conversation ---------------------------------------------------------

    def _history(self) -> ContextSection:
        """Return the conversation as this process remembers it, when the store is unavailable."""
        from ragmem.memory.context.history import build_history_context, digests_of, messages_of

        material, heading = self._material, "## Conversation History\n\n"
        budget = self._of(self._config.recent.window_percent)
        summaries = {s.covers[0]: s.text for s in material.level1 if s.level == 1 and s.covers}
        text = build_history_context(
            messages_of(material.turns),
            so_far=material.thread_summary,
            digests=digests_of(material.turns, summaries),
            max_chars=max(0, budget - len(heading)),
        )
        text = heading + text if material.turns else ""
        return section("Conversation History", text, budget=budget)

    def _recent(self, told: Set[str]) -> list[ContextSection]:
        """Return the latest turns as text, for a model without tool calls, and earlier prompts.

        `told` has the ids of turns that are shown elsewhere.
        """
        queries = self._of(self._share.last_user_queries_percent)
        if self._native:
            return [self._queries(queries, told)]
        recent, turns = self._config.recent, self._material.turns
        # 5% of a small window would hold no exchange at all.
        budget = self._of(recent.turns_percent, small=30)
        text, count = recent_text(turns, limit=recent.turns, max_chars=budget)
        shown = turns[len(turns) - count :]
        part = section(
            "Recent Conversation (Raw)",
            text,
            budget=budget,
            items=tuple(turn_item(turn, turn.char_count) for turn in shown),
            dropped=shown[0].turn_index - 1 if shown else 0,
        )
        return [part, self._last_query(queries)]

    def _queries(self, budget: int, told: Set[str]) -> ContextSection:
        """Return the prompts of the turns just before the window."""
        entries = Entries(budget, "## Last User Queries")
        older = [turn for turn in self._material.older if turn.turn_id not in told]
        for turn in reversed(older):
            line = f"[Turn {turn.turn_index}] {one_line(turn.asked, _QUERY_CHARS)}"
            if not entries.add(line, line[:80], why="asked before the window"):
                break
        entries.texts.reverse()
        entries.items.reverse()
        count = self._material.older_count - len(self._material.older) + len(older)
        return entries.part("Last User Queries", of=count)

    def _last_query(self, budget: int) -> ContextSection:
        """Repeat the last prompt in a sentence: without it a small model confuses who asked."""
        before, after, turns = 'You were asked before: "', '"', self._material.turns
        room = budget - len(before) - len(after)
        asked = one_line(turns[-1].asked, room) if turns and room > 0 else ""
        return section(
            "Last User Queries",
            f"{before}{asked}{after}" if asked else "",
            budget=budget,
            items=(ContextItem(label=asked[:80], chars=len(asked), why="asked last"),),
        )

    def _thread(self) -> ContextSection:
        heading, budget = "[Thread Summary]\n", self._of(self._share.thread_summary_percent)
        room = max(0, budget - len(heading))
        text = clip_middle(_labelled(self._material.thread_summary), room)
        return section("Thread Summary", heading + text if text else "", budget=budget)

    def _files(self) -> ContextSection:
        accesses, show = self._material.accesses, self._request.place.show_path
        budget = self._of(self._share.recently_accessed_files_percent)
        text, dropped = format_accessed_files(accesses, max_chars=budget, show=show)
        return section(
            "Recently Accessed Files",
            text,
            budget=budget,
            items=tuple(
                ContextItem(
                    label=show(a.path),
                    chars=len(a.path),
                    why=f"{_DONE[a.access_type]} by {a.tool_name} in turn {a.turn_index}",
                )
                for a in accesses
            ),
            dropped=dropped,
        )

    # --- other sessions -------------------------------------------------------------

    def _last_time(self, elsewhere: Iterable[ContextSection]) -> ContextSection:
        """Return the recaps of the newest sessions, without what the parts `elsewhere` show."""
        recaps, shown = self._material.last_time, _ids(elsewhere)
        entries = Entries(self._of(self._share.last_time_percent, small=10), "## Last Time")
        for i, recap in enumerate(recaps):
            # The room that a short one leaves goes to those after it.
            head, *lines = recap.head(self._now), *recap.lines(shown)
            room = entries.room // min(2, len(recaps) - i) - 3 * (len(lines) + 1)
            share = fair_share([len(head), *map(len, lines)], room)
            rows = [f"\n  {one_line(line, share)}" for line in lines if share >= _LEAST_LINE]
            entries.add(
                f"- {one_line(head, max(_LEAST_LINE, share))}{''.join(rows)}",
                one_line(recap.outcome or recap.session.called, 80),
                why="among the newest sessions",
                record_id=recap.session.session_id,
                source=f"session {short_id(recap.session.session_id)}",
                at=recap.session.last_activity_at,
            )
        return entries.part("Last Time", of=len(recaps))

    # --- what is known --------------------------------------------------------------

    @cached_property
    def _said(self) -> str:
        """Return the words that the request has anyway: of the prompt and the conversation."""
        texts = [self._request.question]
        if self._request.strategy != "relevant":
            texts.append(self._material.thread_summary)
        for turn in self._shown:
            texts += [turn.user_message, turn.assistant_message]
        return " | ".join(map(_words, texts))

    def _is_news(self, memory: MemoryRecord) -> bool:
        """Whether a memory is current, and not in the request word for word already."""
        words = _words(memory.content)
        return memory.is_current(self._now) and not (words.strip() and words in self._said)

    def _profile(self) -> ContextSection:
        """Return what the user said about themselves, as pairs on one line; whole pairs only."""
        values, heading = self._material.profile.values, "[User Profile]\n"
        entries = Entries(self._of(self._share.user_profile_percent, small=5), heading)
        for key, value in sorted(values.items()):
            pair = f"{one_line(key, _VALUE_CHARS)}={one_line(value, _VALUE_CHARS)}"
            entries.add(pair, pair[:80], joint=2 if entries.texts else 0, why="in the profile")
        return entries.part("User Profile", heading + "; ".join(entries.texts), of=len(values))

    def _preferences(self) -> ContextSection:
        """Return the user's preferences, a line each, without those that a rule states verbatim.

        Those that don't fit may still be recalled as facts.
        """
        budget = self._of(self._share.preferences_percent, small=10)
        entries = Entries(budget, "## What the User Prefers")
        rules = " | ".join(_words(each.content) for each in self._material.pinned)
        for memory in filter(self._is_news, self._material.preferences):
            if _words(memory.content) in rules:
                continue
            day = f"[{day_of(memory.created_at, self._now)}] " if self._native else ""
            line = f"- {day}{one_line(memory.content, _FACT_CHARS)}"
            entries.add_memory(line, memory, why="a preference of the user")
        return entries.part("Preferences", of=len(self._material.preferences))

    def _facts(self, turns: ContextSection, told: Iterable[ContextItem]) -> ContextSection:
        """Return the best facts that are current and not shown elsewhere, a line each.

        Left out are facts that a recalled turn, from which they were learned and which still holds,
        says in other words; and those much farther from the prompt than the nearest of `turns`.
        """
        from ragmem.memory.facts.vouching import covers

        elsewhere = {item.record_id for item in told}
        news = (
            hit
            for hit in self._material.facts
            if hit.memory.memory_id not in elsewhere and self._is_news(hit.memory)
        )
        best = list(islice(news, self._config.facts.shown))
        nearest = max((item.similarity or 0.0 for item in turns.items), default=0.0)
        still_valid = {item.record_id for item in turns.items if item.holds}
        chosen = [
            hit
            for hit in best
            if (hit.similarity is None or hit.similarity >= _OF_NEAREST * nearest)
            and not (
                any(each.turn_id in still_valid for each in hit.memory.evidence)
                and covers(turns.text, hit.memory.content)
            )
        ]
        line_of = _fact_line if self._native else _brief_line
        entries = Entries(self._of(self._share.facts_percent, small=15), "## Remembered Facts")
        for hit in chosen:
            entries.add_memory(
                line_of(hit, self._now),
                hit.memory,
                score=hit.score,
                why=", ".join(hit.why),
                similarity=hit.similarity,
            )
        return entries.part("Remembered Facts", of=len(chosen))

    # --- turns and summaries ----------------------------------------------------------

    def _recalled(self) -> list[ContextSection]:
        """Return the hits, then the level-1 summaries that nothing else shown includes."""
        shown = frozenset(turn.turn_id for turn in self._shown)
        if self._request.strategy != "hybrid":
            return [
                *self._relevant(choose(self._material.hits, shown, most=self._most)),
                NO_SECTION,
            ]
        listed = shown.union(item.record_id for item in self._level1(shown).items)
        relevant = list(self._relevant(choose(self._material.hits, listed, most=self._most)))
        # A turn replaces its summary.
        return [*relevant, self._level1(shown | _ids(relevant))]

    def _relevant(self, hits: Sequence[Hit]) -> Iterator[ContextSection]:
        """Yield the sections of turns and of summaries, within one budget."""
        every, budget = hits, self._of(self._share.relevant_percent)
        room = budget - _heading_chars(hits)
        while len(hits) > 1 and room // len(hits) < _LEAST_SHARE:
            # With too little room for all, show the best, rather than a little of each.
            hits = hits[:-1]
            room = budget - _heading_chars(hits)
        # Ordered by the relevance that is shown; those without one come last.
        hits = sorted(hits, key=lambda hit: -(hit.similarity or 0))
        kinds = {kind: Entries(budget) for kind in RELEVANT}
        for i, hit in enumerate(hits):
            # The room that a short one leaves goes to those after it.
            share = room // (len(hits) - i)
            entry = self._hit_entry(hit, share) if share >= _LEAST_CHARS else ""
            if entry and len(entry) + 2 <= room:
                room -= len(entry) + 2
                kinds[hit.type].add(
                    entry,
                    _label(hit),
                    score=hit.score,
                    why=", ".join(hit.why),
                    record_id=hit.record_id,
                    source=self._where(hit),
                    at=hit.at,
                    similarity=hit.similarity,
                    holds=not (hit.since or hit.changed),
                )
        for kind, (name, heading) in RELEVANT.items():
            text = f"{heading}\n" + "\n\n".join(kinds[kind].texts)
            yield kinds[kind].part(name, text, of=sum(hit.type == kind for hit in every))

    def _where(self, hit: Hit) -> str:
        return "this session" if hit.session_id == self._session_id else hit.where()

    def _hit_entry(self, hit: Hit, room: int) -> str:
        at = f"{hit.at.astimezone(self._now.tzinfo):%Y-%m-%d %H:%M}, {ago(hit.at, self._now)}"
        source = f"Source: {self._where(hit)}, {at}"
        since_chars = min(_SINCE_CHARS, room // 4)
        since = [one_line(hit.since, since_chars)] if hit.since else []
        if hit.changed:
            since.append(f"Changed since: {one_line(', '.join(hit.changed), since_chars)}")
        # What changed since comes before the text, so that the model reads it first.
        if hit.summary:
            summary = hit.summary
            head = [f"[Level {summary.level} Summary - Relevance: {hit.relevance}]", *since]
            lines = ["", *_findings(summary), source]
            room -= sum(len(line) + 1 for line in (*head, *lines))
            text = clip_middle(_compact(_labelled(summary.text)), max(room, _LEAST_CHARS // 2))
            return "\n".join([*head, text, *lines])
        if hit.turn is None:
            return ""
        of = f" of session {short_id(hit.session_id)}, {ago(hit.at, self._now)}"
        of = "" if hit.session_id == self._session_id else of
        head = [f"[Turn {hit.turn.turn_index}{of} - Relevance: {hit.relevance}]", *since]
        return self._turn_entry(hit, hit.turn, "\n".join(head), source, room)

    def _turn_entry(self, hit: Hit, turn: Turn, heading: str, source: str, room: int) -> str:
        question = self._request.question
        tools = set_in(", ".join(dict.fromkeys(call.tool_name for call in turn.tool_calls)))
        failures_shown: list[str] = []
        if turn.tool_calls:
            from ragmem.memory.facts.failures import failures

            failed = failures(turn, locate=str, with_mended=True)[-_MOST_FAILED:]
            failures_shown = [one_line(f"Failed: {f.content}", _SINCE_CHARS) for f in failed]
        failures_shown = failures_shown if sum(map(len, failures_shown)) < room // 2 else []
        room -= sum(len(line) + 1 for line in failures_shown)
        room -= len(heading) + len(source) + len(tools) + len("User: Assistant: Tools: ") + 5
        quoted = self._quoted_result(hit, turn, max(0, room // 4))
        room -= len(quoted) + 1 if quoted else 0
        said = _compact(answered(turn, question))
        asked = passage(_compact(turn.user_message), question, max(room // 3, room - len(said)))
        answer = passage(said, question, max(0, room - len(asked)))
        lines = [heading, f"User: {asked}", f"Assistant: {answer}"]
        lines += [f"Tools: {tools}"] if tools else []
        lines += [*failures_shown, quoted] if quoted else failures_shown
        return "\n".join([*lines, source])

    def _quoted_result(self, hit: Hit, turn: Turn, room: int) -> str:
        """Quote the tool result that has most of the question's words that the messages lack.

        An outdated read of a file that the request shows in its current state is never quoted.
        """
        question, code = self._request.question, self._material.code.passages
        present = {each.path for each in code}
        said = turn.user_message.casefold() + turn.said.casefold()
        words = {word for word in question_words(question) if word not in said}
        best: tuple[int, ToolCall] | None = None
        for call in turn.tool_calls:
            if hit.outdated.get(call.tool_call_id) in present:
                continue
            text = result_text(call).casefold()
            count = sum(word in text for word in words)
            if count >= _RESULT_WORDS and (best is None or count > best[0]):
                best = (count, call)
        if best is None or room < _LEAST_CHARS // 2:
            return ""
        call = best[1]
        then = f" (as it was on {day_of(call.started_at, self._now)}; changed since)"
        then = then if call.tool_call_id in hit.outdated else ""
        label = f"Result of {one_line(call.tool_name, 60)} {one_line(call.arguments, 60)}{then}: "
        return label + passage(_compact(result_text(call)), question, max(0, room - len(label)))

    def _level1(self, shown: Collection[str]) -> ContextSection:
        """Return level-1 summaries that no higher one covers, nor turns shown; newest first."""
        heading = "## Recent Level 1 Summaries (Not Yet Summarized to Level 2)\n"
        entries = Entries(self._of(self._share.summaries_percent), heading)
        listed = [s for s in self._material.level1 if not s.repeats(shown)][:MOST_LEVEL1]
        for summary in listed:
            lines = ["[Level 1 Summary]", _labelled(summary.text), "", *_findings(summary)]
            entry = "\n".join([*lines, *_line("Tools used", summary.tools_used)])
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
        return entries.part("Level 1 Summaries", text, of=len(listed))


def _ids(parts: Iterable[ContextSection]) -> frozenset[str]:
    return frozenset(item.record_id for part in parts for item in part.items)


def _heading_chars(hits: Iterable[Hit]) -> int:
    return sum(len(RELEVANT[kind][1]) + 1 for kind in {hit.type for hit in hits})


def pinned_part(
    pinned: Iterable[MemoryRecord], *, budget: int, now: datetime
) -> tuple[ContextSection, str]:
    """Return the user's rules and pinned memories, oldest first, and a notice if some don't fit.

    Only what the user said goes into the system message. The text depends on nothing but the
    memories, so that the prefix of successive requests stays the same while they do. If there is
    not enough room, rules are kept first, then the oldest.
    """
    theirs = [memory for memory in pinned if memory.trust == "person" and memory.is_current(now)]
    room, chosen = budget - len(PINNED_HEADING), set[str]()
    for memory in sorted(theirs, key=lambda memory: memory.kind != "rule"):
        needed = len(_pinned_line(memory, now)) + 1
        if needed <= room:
            room -= needed
            chosen.add(memory.memory_id)
    entries = Entries(budget, PINNED_HEADING)
    for memory in theirs:
        if memory.memory_id in chosen:
            is_rule = memory.kind == "rule"
            why = "a rule of the user" if is_rule else "pinned by the user"
            entries.add_memory(_pinned_line(memory, now), memory, why=why)
    left_out = [memory for memory in theirs if memory.memory_id not in chosen]
    part = entries.part("Pinned", of=len(theirs))
    return part, _left_out_notice(left_out, budget) if left_out else ""


def _left_out_notice(left_out: Sequence[MemoryRecord], budget: int) -> str:
    named = one_line(left_out[0].content, 60)
    several = f"{len(left_out):,} pinned memories, such as “{named}”, are"
    return (
        f"{f'“{named}” is' if len(left_out) == 1 else several} left out: pinned memories have room "
        f"for {budget:,} characters (memory.context.pinned_percent). "
        "`ragmem memory unpin` makes room."
    )


def _fact_line(hit: FactHit, now: datetime) -> str:
    """Write a fact with what is known about it in front, where its text can't forge that."""
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


def _pinned_line(memory: MemoryRecord, now: datetime) -> str:
    due = f" ({dated(memory, now)})" if memory.kind == "deadline" and memory.at else ""
    return f"- {one_line(memory.content, _FACT_CHARS)}{due}"


def _words(text: str) -> str:
    """Return a text's words with a space around each, so that no part of a word matches."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def choose(hits: Iterable[Hit], shown: Collection[str], *, most: int | None = None) -> list[Hit]:
    """Choose the best hits, without those shown already, and summaries of nothing but shown turns.

    `shown` are ids of turns and summaries. `most` replaces all three limits.
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
        if full or hit.record_id in known or hit.repeats(known):
            continue
        if hit.turn:
            # A turn replaces its summary.
            chosen = [other for other in chosen if not other.repeats({hit.record_id})]
        chosen.append(hit)
    return chosen


def _labelled(summary: str) -> str:
    """Write a summary after a label, so that its first line can't imitate a heading."""
    return f"Summary: {set_in(summary)}" if summary else ""


def _compact(text: str) -> str:
    """Indent a text and drop its blank lines, since those separate recalled items."""
    return set_in(_BLANK_LINES.sub("\n", text))


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

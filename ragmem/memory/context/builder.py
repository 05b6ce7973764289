"""Builds the request for one model from collected material, including the section of code."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ragmem.config import MemoryConfig
from ragmem.llm.base import ModelInfo
from ragmem.memory.context.sections import (
    Chars,
    ContextItem,
    ContextSection,
    Entries,
    Sections,
    pinned_part,
    section,
    turn_item,
)
from ragmem.memory.projects import read_branch
from ragmem.memory.turns import (
    NO_WINDOW,
    Window,
    clip_result,
    field_of,
    recent_window,
    result_text,
    with_mentions,
    with_passages,
)
from ragmem.messages import Message, TextPart, ToolAnswer, prompt as prompt_text, system, user
from ragmem.own_tools import READ_FILE
from ragmem.records import ToolCall, Turn
from ragmem.text import (
    clean,
    clip_middle,
    estimate_tokens,
    line_range,
    mark_for,
    one_line,
    quoted,
    visible,
)

if TYPE_CHECKING:
    from ragmem.memory.context.collect import CodePassage, ContextRequest, Material, Place

DEFAULT_MAX_CHARS = 100_000
_PASSAGES_PERCENT = 20
"""Limit of mentioned files for a model without tool calls: the more, the worse it answers."""
_RESULT_SHARE = 10
"""A replayed tool result keeps at most one part in this many of the context."""
_SQUEEZES = 3
"""How often the recalled sections are scaled down: those with a minimum size shrink less."""
_LEAST_MENTIONED = 400
"""Characters that files named in the prompt get at least, however full the request is."""
_UNFINISHED = (
    "The project's code is being indexed for the first time, {:,} files so far: relevant code may "
    "be missing here. Your tools see every file."
)
_CLIPPED = (
    "The project's instructions are {0.dropped:,} characters over the limit of {0.budget:,}, so "
    "their middle is left out (memory.context.instructions_percent)."
)


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly what is sent with a prompt, and what it consists of."""

    sections: tuple[ContextSection, ...]
    messages: tuple[Message, ...]
    max_chars: int
    recalled: str = ""
    """What memory adds to the request: rules and pinned memories, then quoted data."""
    fallback: bool = False
    without_code: str = ""
    """Why the project's code was left out, if searching it took too long."""
    over_limits: tuple[str, ...] = ()
    """Notices of what exceeds a configured limit; usually they are the same for every prompt."""
    notices: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    """The turns of the conversation that are replayed, or shown as text."""

    @property
    def chars(self) -> int:
        """Count the characters of the request."""
        return sum(message.char_count for message in self.messages)

    @property
    def tokens(self) -> int:
        """Estimate its tokens at four characters each."""
        return estimate_tokens(self.chars)

    @property
    def sizes(self) -> dict[str, int]:
        """Return the characters of each section."""
        return {section.name: section.chars for section in self.sections}

    def text(self) -> str:
        """Return the request as one text, for display and for models without tool calls."""
        return "\n\n".join(f"[{message.role}]\n{_spoken(message)}" for message in self.messages)


def _spoken(message: Message) -> str:
    words = [p.text for p in message.parts if isinstance(p, TextPart | ToolAnswer)]
    return "\n".join([*words, *(f"(calls {u.name} {u.arguments})" for u in message.tool_uses)])


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Limits besides the budgets; None means none. A turn is two messages, and is never split."""

    at_most: int | None = None
    """Messages of the recent window. When there are more, half of them are dropped at once, so that
    the prefix of the request stays the same for a while, and providers' caches hit."""
    recent_messages: int | None = None
    """Exact number of the latest messages to include, in place of `at_most`."""
    relevant_messages: int | None = None
    """Number of hits; at most 16 are searched for."""
    includes_summary: bool = True

    def of(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Return as many of the newest turns as may be shown."""
        if self.recent_messages is not None:
            count = -(-self.recent_messages // 2)
            return turns[-count:] if count else ()
        if self.at_most is None or not turns:
            return turns
        count = max(1, self.at_most // 2)
        step = max(1, count // 2)
        over = turns[-1].turn_index - count
        first = -(-over // step) * step if over > 0 else 0
        return [turn for turn in turns if turn.turn_index > first]

    def applied(self, material: Material) -> Material:
        """Apply the limits to material other than its window, which `of` has limited already."""
        return msgspec.structs.replace(
            material,
            turns=tuple(self.of(material.turns)),
            hits=material.hits if self.relevant_messages != 0 else (),
            thread_summary=material.thread_summary if self.includes_summary else "",
        )


NO_COUNTS = Counts()


def context_max_chars(config: MemoryConfig, info: ModelInfo) -> int:
    """Return the configured limit, or the lesser of 100,000 characters and half of the window."""
    if config.context.max_chars:
        return config.context.max_chars
    if info.context_window is None:
        return DEFAULT_MAX_CHARS
    return min(DEFAULT_MAX_CHARS, info.context_window * 4 // 2)


def framed(texts: Sequence[str], tag: str) -> str:
    """Quote recalled texts as data, between marks that no text can contain in advance."""
    head = f"<memory-{tag}>\n{prompt_text('memory_block')}"
    return "\n\n".join([head, *texts]) + f"\n</memory-{tag}>"


class ContextBuilder:
    """Builds requests for one model from material. Pure: the same input gives the same bytes."""

    def __init__(
        self,
        config: MemoryConfig,
        info: ModelInfo,
        counts: Counts = NO_COUNTS,
        *,
        max_chars: int = 0,
        pinned_chars: int | None = None,
    ) -> None:
        self._config = config
        self._info = info
        self._counts = counts
        self._native = info.supports_tools
        self.max_chars = max_chars or context_max_chars(config, info)
        if pinned_chars is None:
            pinned_chars = self.chars(config.context.pinned_percent, small=15)
        self._pinned_chars = pinned_chars

    def smaller(self) -> ContextBuilder:
        """Return a builder with half the room, after the model found the request too long."""
        return self._with_room(self._info, self.max_chars // 2)

    def for_model(self, info: ModelInfo) -> ContextBuilder:
        """Return a builder with no more room than the model has, as known by now."""
        if info == self._info:
            return self
        return self._with_room(info, min(self.max_chars, context_max_chars(self._config, info)))

    def _with_room(self, info: ModelInfo, max_chars: int) -> ContextBuilder:
        """Return a builder with other room, but the same budget of rules and pinned memories."""
        return ContextBuilder(
            self._config, info, self._counts, max_chars=max_chars, pinned_chars=self._pinned_chars
        )

    def chars(self, percent: float, *, small: float = 0, squeeze: float = 1) -> int:
        """Return a percentage of the request in characters.

        For a model without tool calls it is at least `small` percent, since a few percent of a
        small window would not hold a single fact, but never more than `percent` of the default
        context.
        """
        own = int(self.max_chars * percent / 100 * squeeze)
        if self._native:
            return own
        full = int(DEFAULT_MAX_CHARS * percent / 100)
        return max(own, min(full, int(self.max_chars * small / 100 * squeeze)))

    def window(self, turns: Sequence[Turn]) -> Window:
        """Return the recent window as native messages; none for a model without tool calls."""
        if not self._native:
            return NO_WINDOW
        return recent_window(
            self._counts.of(turns),
            high=self.chars(self._config.recent.window_percent),
            low=self.chars(self._config.recent.window_floor_percent),
            result_limit=max(400, self.max_chars // _RESULT_SHARE),
        )

    def build(self, request: ContextRequest, material: Material) -> Context:
        """Build the request: system message, window, memory block, and the user's prompt."""
        material = self._counts.applied(material)
        window = material.window if request.strategy != "relevant" else NO_WINDOW
        pinned, left_out = pinned_part(material.pinned, budget=self._pinned_chars, now=request.now)
        place, prompt = request.place, request.prompt
        instructions = self._instructions_part(place)
        skills = section("Skills", place.skills if self._native else "")
        candidates = (self._system_part(place), skills, instructions, pinned)
        rules_parts = [part for part in candidates if part.text]
        taken = window.char_count + sum(part.chars for part in rules_parts if part.budget)
        block_parts = self._fitting_parts(request, material, pinned, room=self.max_chars - taken)
        texts = [part.text.strip("\n") for part in block_parts]
        block = self._block(texts, request, material.code.files_so_far)
        rules = clean("\n\n".join(part.text for part in rules_parts))
        mentioned = self._mentioned(request, used=len(rules) + window.char_count + len(block))
        shown = [*rules_parts]
        if window.turns:
            shown.append(
                ContextSection(
                    name="Recent Conversation",
                    chars=window.char_count,
                    budget=self.chars(self._config.recent.window_percent),
                    items=tuple(map(turn_item, window.turns, window.sizes)),
                    dropped=material.older_count,
                )
            )
        shown += block_parts
        if mentioned.items:
            chars = mentioned.chars - len(prompt)
            shown.append(msgspec.structs.replace(mentioned, chars=chars))
        shown.append(ContextSection(name="Prompt", chars=len(prompt)))
        clipped = _CLIPPED.format(instructions) if instructions.dropped else ""
        turns = window.turns if self._native else material.turns
        return Context(
            sections=tuple(shown),
            messages=(system(rules), *window.messages, user(clean(block + mentioned.text))),
            recalled=clean("\n\n".join(filter(None, [pinned.text, block.strip()]))),
            max_chars=self.max_chars,
            fallback=material.at_hand,
            without_code=material.code.left_out,
            over_limits=tuple(filter(None, (clipped, left_out))),
            notices=material.notices,
            turns=turns if request.strategy != "relevant" else (),
        )

    # --- the system message ---------------------------------------------------------

    def _system_part(self, place: Place) -> ContextSection:
        branch = read_branch(place.project)
        elsewhere = place.session_cwd if place.session_cwd != place.cwd else None
        earlier = f" (earlier results: of {quoted(str(elsewhere))})" if elsewhere else ""
        text = prompt_text("system" if self._native else "system_small").format(
            cwd=quoted(str(place.cwd)) + earlier,
            project=quoted(str(place.project)),
            branch=f" (git branch {quoted(branch)})" if branch else "",
            platform=platform.system() or "unknown",
        )
        tools = (("system_memory", place.memory_tools), ("system_code", place.code_tool))
        tool_texts = [prompt_text(name) for name, is_there in tools if self._native and is_there]
        return section("System", "\n\n".join([text, *tool_texts]))

    def _instructions_part(self, place: Place) -> ContextSection:
        budget = self.chars(self._config.context.instructions_percent)
        rules = place.instructions.text
        tag = f"instructions-{mark_for(rules)}"
        heading, end = f"The project's instructions:\n\n<{tag}>\n", f"\n</{tag}>"
        room = max(0, budget - len(heading) - len(end))
        return section(
            "Instructions",
            heading + clip_middle(rules, room) + end if rules and room else "",
            budget=budget,
            items=tuple(
                ContextItem(label=str(file), chars=len(rules), why="found in the project")
                for file in place.instructions.files
            ),
            dropped=max(0, len(rules) - room) if room else 0,
        )

    # --- what is recalled -----------------------------------------------------------

    def _block(self, texts: Sequence[str], request: ContextRequest, so_far: int | None) -> str:
        """Return the recalled texts as quoted data, apart from the user's prompt after them.

        A model without tool calls can't act on instructions in a text, and takes each word for a
        part of the question: it gets the texts and nothing else.
        """
        tag = request.tag
        if not self._native:
            recalled = "\n\n".join(texts)
            return f"<memory-{tag}>\n{recalled}\n</memory-{tag}>\n\n" if texts else ""
        today = f"Today is {request.now:%A, %Y-%m-%d}."
        notes = [today] if so_far is None else [_UNFINISHED.format(so_far), today]
        # Without texts there is nothing to quote.
        return (framed([*texts, *notes], tag) if texts else "\n\n".join(notes)) + "\n\n"

    def _fitting_parts(
        self, request: ContextRequest, material: Material, pinned: ContextSection, *, room: int
    ) -> list[ContextSection]:
        """Return the recalled sections, scaled down in a few steps until they fit into `room`."""
        squeeze, parts = 1.0, list[ContextSection]()
        for _ in range(_SQUEEZES + 1):
            of = partial(self.chars, squeeze=squeeze)
            made = Sections(
                self._config,
                request,
                material,
                of,
                native=self._native,
                most=self._counts.relevant_messages,
            )
            code = self._code_part(request, material, of)
            parts = [part for part in made.parts(pinned, code) if part.text]
            if not parts or sum(part.chars for part in parts) <= room:
                break
            squeeze *= max(0, room) / sum(max(part.budget, part.chars) for part in parts)
        return parts

    def _code_part(self, request: ContextRequest, material: Material, of: Chars) -> ContextSection:
        passages = material.code.passages if request.strategy != "recent" else ()
        mentions = request.mentions if passages else ()
        clipped = [clip_result(c, max(400, self.max_chars // 2 // len(mentions))) for c in mentions]
        window = material.window if request.strategy != "relevant" else NO_WINDOW
        return code_part(
            passages,
            seen_rows(window, clipped, brief=not self._native),
            budget=of(self._config.context.code_percent, small=15),
            show=request.place.show_path,
            brief=not self._native,
        )

    # --- the conversation -----------------------------------------------------------

    def _mentioned(self, request: ContextRequest, used: int) -> ContextSection:
        prompt, calls = request.prompt, request.mentions
        left = self.max_chars - used - len(prompt)
        if self._native:
            budget = max(_LEAST_MENTIONED, self.chars(2), min(left, self.max_chars // 2))
            calls = [clip_result(call, budget // len(calls)) for call in calls]
            text = with_mentions(prompt, calls, request.tag)
        else:
            budget = max(_LEAST_MENTIONED, min(left, self.chars(_PASSAGES_PERCENT)))
            text = with_passages(prompt, calls, request.tag, max_chars=budget)
        return section(
            "Mentioned Files",
            text,
            budget=budget,
            items=tuple(
                ContextItem(label=c.arguments, chars=len(c.result), why="named in the prompt")
                for c in calls
            ),
        )


CODE_HEADING = "## Relevant Code"
MOST_PASSAGES = 8
MOST_BRIEF = 2
"""The same for a model without tool calls, which takes each word for a part of the question."""
OUTSIDE = "outside the working directory: reading it needs approval"
_LEAST_CHARS = 160
"""Characters below which a passage is left out, since it would say nothing."""
_FIRST_SHARE = 0.6
"""Share of the room that the best passage may take; each other one, a third of what is left."""
_LINE_CHARS = 300


class SeenRows(msgspec.Struct, frozen=True):
    """Numbered lines of files that the request has already, and that are not repeated."""

    paths: frozenset[str] = frozenset()
    """Paths as tools write them."""
    rows: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    """Files whose passages are chosen elsewhere."""

    def holds(self, path: str, row: str) -> bool:
        """Whether the file was read, and a read shows exactly this line and number."""
        return path in self.paths and row in self.rows


def seen_rows(window: Window, mentions: Iterable[ToolCall], *, brief: bool = False) -> SeenRows:
    """Return the lines that reads in the window, and files named in the prompt, show."""
    mentions = list(mentions)
    read = [call for turn in window.turns for call in turn.tool_calls]
    texts = [
        part.text
        for message in window.messages
        for part in message.parts
        if isinstance(part, TextPart | ToolAnswer)
    ]
    texts += [result_text(call) for call in mentions]
    named = frozenset(filter(None, map(_path_of, mentions)))
    return SeenRows(
        paths=named.union(filter(None, map(_path_of, read))),
        rows=frozenset(row for text in texts for row in text.split("\n") if "\t" in row),
        whole=named if brief else frozenset(),
    )


def code_part(
    passages: Sequence[CodePassage],
    seen: SeenRows,
    *,
    budget: int,
    show: Callable[[str], str],
    brief: bool = False,
) -> ContextSection:
    """Return the best passages, without lines shown already; long ones clipped in the middle."""
    shown = Entries(budget, CODE_HEADING)
    shown_lines: dict[str, set[int]] = {}
    most, dropped = MOST_BRIEF if brief else MOST_PASSAGES, 0
    for passage in passages:
        path = show(passage.path)
        lines = shown_lines.setdefault(passage.path, set())
        rows = [row for row in _rows(passage) if row.number not in lines]
        rows = [row for row in rows if not seen.holds(path, row.text)]
        if path in seen.whole or not any(row.text.split("\t", 1)[1].strip() for row in rows):
            continue
        room = shown.room
        share = max(room // 3, _LEAST_CHARS) if shown.texts else int(room * _FIRST_SHARE)
        entry, kept = _entry(passage, path, rows, min(room, share) - 2, brief=brief)
        fits = kept and len(shown.texts) < most
        if fits and shown.add(
            entry,
            _label(passage, path),
            joint=2,
            score=passage.score,
            why=passage.why,
            record_id=passage.scope_id,
        ):
            lines.update(kept)
        else:
            dropped += 1
    text = f"{CODE_HEADING}\n" + "\n\n".join(shown.texts)
    return shown.part("Relevant Code", text, of=len(shown.texts) + dropped)


class _Row(NamedTuple):
    number: int
    text: str


def _rows(passage: CodePassage) -> list[_Row]:
    """Return a passage's lines as read_file shows them."""
    lines = passage.text.split("\n")
    return [
        _Row(number, f"{number:>6}\t{visible(line.removesuffix(chr(13)))}")
        for number, line in enumerate(lines, passage.start_line)
    ]


def _entry(
    passage: CodePassage, path: str, rows: Sequence[_Row], limit: int, *, brief: bool
) -> tuple[str, list[int]]:
    """Return heading and lines within `limit` characters, and the lines' numbers, or nothing."""
    about = f"[{_label(passage, path)}]"
    if not brief:
        about += f" {passage.why}" if passage.why else ""
        about += f" ({OUTSIDE})" if is_outside(path) else ""
    kept = _clipped(rows, limit - len(about) - 1)
    if not kept:
        return "", []
    out, before = [about], passage.start_line - 1
    for row in kept:
        if row.number != before + 1:
            out.append("     …")
        out.append(_short(row.text))
        before = row.number
    if before < passage.end_line:
        out.append("     …")
    return "\n".join(out), [row.number for row in kept]


def _clipped(rows: Sequence[_Row], limit: int) -> list[_Row]:
    """Return whole lines within `limit` characters, twice as many from the start as the end."""
    sizes = [len(_short(row.text)) + 1 for row in rows]
    if sum(sizes) + 14 <= limit:
        return list(rows)
    if limit < _LEAST_CHARS // 2:
        return []
    room, head, tail = limit - 21, 0, 0
    while head + tail < len(rows):
        from_start = head <= 2 * tail
        size = sizes[head] if from_start else sizes[len(rows) - 1 - tail]
        if size > room:
            break
        room -= size
        head, tail = (head + 1, tail) if from_start else (head, tail + 1)
    return [*rows[:head], *rows[len(rows) - tail :]] if head else []


def _short(row: str) -> str:
    return row if len(row) <= _LINE_CHARS else row[: _LINE_CHARS - 1] + "…"


def _label(passage: CodePassage, path: str) -> str:
    lines = line_range(passage.start_line, passage.end_line)
    return one_line(f"{path}:{lines} {passage.name}".rstrip(), 200)


def is_outside(path: str) -> bool:
    """Whether a path, as the agent writes it, is outside of its working directory."""
    return path.startswith("/")


def _path_of(call: ToolCall) -> str:
    is_read = call.tool_name == READ_FILE and call.success
    return (field_of(call.result, "path") or "") if is_read else ""

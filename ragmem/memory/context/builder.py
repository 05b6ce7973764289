"""Shapes material into a request for one model."""

import platform
from collections.abc import Sequence
from datetime import datetime

import msgspec

from ragmem.config import MemoryConfig
from ragmem.llm.base import ModelInfo
from ragmem.memory.context import sections
from ragmem.memory.context.code import code_part, seen_rows
from ragmem.memory.context.values import (
    NO_COUNTS,
    Context,
    ContextItem,
    ContextSection,
    Counts,
    Material,
    Part,
    Place,
    Strategy,
)
from ragmem.memory.window import (
    NO_WINDOW,
    Window,
    clip_result,
    recent_window,
    with_mentions,
    with_passages,
)
from ragmem.messages import system, user
from ragmem.prompts import prompt as prompt_text
from ragmem.records import ToolCall, Turn
from ragmem.text import clean, clip_middle, mark_for, quoted

DEFAULT_MAX_CHARS = 100_000
_PASSAGES_PERCENT = 20
"""Of mentioned files, for a model without tool calls: the more, the worse it answers."""
_RESULT_SHARE = 10
"""A replayed tool result keeps at most one part in so many of the context."""
_SQUEEZES = 3
"""So often what is recalled is made smaller: some of it has a least size, and yields late."""
_LEAST_MENTIONED = 400
"""Characters that files named in the prompt get, however full the request is."""


def context_max_chars(config: MemoryConfig, info: ModelInfo) -> int:
    """100,000 characters or half of the model's window, whichever is less, unless configured."""
    if config.context.max_chars:
        return config.context.max_chars
    if info.context_window is None:
        return DEFAULT_MAX_CHARS
    return min(DEFAULT_MAX_CHARS, info.context_window * 4 // 2)


class _Limits(msgspec.Struct, frozen=True):
    """How many characters each section may have."""

    max_chars: int
    native: bool
    squeeze: float = 1.0

    def of(self, percent: float) -> int:
        """So many percent of the request."""
        return int(self.max_chars * percent / 100 * self.squeeze)

    def share(self, percent: float, *, small: int) -> int:
        """The same; for a model without tool calls at least `small` percent.

        Of a small window a few percent would hold no fact at all; it never gets more than
        that many percent of the full context are.
        """
        if self.native:
            return self.of(percent)
        full = int(DEFAULT_MAX_CHARS * percent / 100)
        return max(self.of(percent), min(full, self.of(small)))

    def squeezed(self, parts: Sequence[Part], *, room: int) -> "_Limits":
        """Less of each section, where all together pass the room; else the same limits."""
        if sum(len(part.text) for part in parts) <= room:
            return self
        wanted = sum(max(part.budget, len(part.text)) for part in parts if part.text)
        return msgspec.structs.replace(self, squeeze=self.squeeze * max(0, room) / wanted)


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """What one request is made of."""

    prompt: str
    material: Material
    place: Place
    now: datetime
    mentions: Sequence[ToolCall]
    strategy: Strategy
    pinned: sections.Pinned

    @property
    def window(self) -> Window:
        """The turns that go as messages."""
        return self.material.window if self.strategy != "relevant" else NO_WINDOW


class ContextBuilder:
    """Shapes material into a request for one model. Pure: same input, same bytes."""

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
        self._limits = _Limits(self.max_chars, self._native)
        if pinned_chars is None:
            pinned_chars = self._limits.share(config.context.pinned_percent, small=15)
        self._pinned_chars = pinned_chars

    def smaller(self) -> "ContextBuilder":
        """One with half the room, for a model that found the request too long.

        Rules and pinned memories keep their room.
        """
        return ContextBuilder(
            self._config,
            self._info,
            self._counts,
            max_chars=self.max_chars // 2,
            pinned_chars=self._pinned_chars,
        )

    def window(self, turns: Sequence[Turn]) -> Window:
        """The recent window as native messages; none for a model without tool calls."""
        if not self._native:
            return NO_WINDOW
        return recent_window(
            self._counts.of(turns),
            high=self._limits.of(self._config.recent.window_percent),
            low=self._limits.of(self._config.recent.window_floor_percent),
            result_limit=max(400, self.max_chars // _RESULT_SHARE),
        )

    def build(
        self,
        prompt: str,
        material: Material,
        place: Place,
        *,
        tag: str,
        now: datetime,
        mentions: Sequence[ToolCall] = (),
        strategy: Strategy = "hybrid",
    ) -> Context:
        """The request for `prompt`: system message, window, memory block, the person's text.

        `tag` delimits quoted data and must be one that no file could know.
        """
        material = self._counts.applied(material)
        pinned = sections.pinned_part(material.pinned, budget=self._pinned_chars, now=now)
        request = _Request(
            prompt=prompt,
            material=material,
            place=place,
            now=now,
            mentions=mentions,
            strategy=strategy,
            pinned=pinned,
        )
        window = request.window
        instructions = self._instructions_part(place)
        rules_parts = [p for p in (self._system_part(place), instructions, pinned.part) if p.text]
        taken = window.char_count + sum(len(part.text) for part in rules_parts if part.budget)
        block_parts = self._fitting_parts(request, room=self.max_chars - taken)
        block = self._block([part.text.strip("\n") for part in block_parts], tag, now)
        rules = clean("\n\n".join(part.text for part in rules_parts))
        used = len(rules) + window.char_count + len(block)
        mentioned = self._mentioned(prompt, mentions, tag, used=used)
        shown = [part.section for part in rules_parts]
        if window.turns:
            shown.append(self._window_section(window, material.older_count))
        shown += [part.section for part in block_parts]
        if mentioned.items:
            chars = len(mentioned.text) - len(prompt)
            shown.append(msgspec.structs.replace(mentioned.section, chars=chars))
        shown.append(ContextSection(name="Prompt", chars=len(prompt), budget=0))
        return Context(
            sections=tuple(shown),
            messages=(system(rules), *window.messages, user(clean(block + mentioned.text))),
            max_chars=self.max_chars,
            fallback=material.history is not None,
            notices=(
                *([_clipped_notice(instructions)] if instructions.dropped else []),
                *([sections.left_out_notice(pinned)] if pinned.left_out else []),
                *material.notices,
            ),
            turns=()
            if strategy == "relevant"
            else window.turns
            if self._native
            else material.turns,
        )

    # --- the system message ---------------------------------------------------------

    def _system_part(self, place: Place) -> Part:
        text = prompt_text("system" if self._native else "system_small").format(
            cwd=quoted(str(place.cwd)),
            project=quoted(str(place.project)),
            platform=platform.system() or "unknown",
        )
        if self._native and place.memory_tools:
            text += f"\n\n{prompt_text('system_memory')}"
        if self._native and place.code_tool:
            text += f"\n\n{prompt_text('system_code')}"
        return Part(name="System", text=text)

    def _instructions_part(self, place: Place) -> Part:
        budget = self._limits.of(self._config.context.instructions_percent)
        rules = place.instructions.text
        tag = f"instructions-{mark_for(rules)}"
        heading, end = f"The project's instructions:\n\n<{tag}>\n", f"\n</{tag}>"
        room = max(0, budget - len(heading) - len(end))
        return Part(
            name="Instructions",
            text=heading + clip_middle(rules, room) + end if rules and room else "",
            budget=budget,
            items=tuple(
                ContextItem(label=str(file), chars=len(rules), why="found in the project")
                for file in place.instructions.files
            ),
            dropped=max(0, len(rules) - room) if room else 0,
        )

    # --- what is recalled -----------------------------------------------------------

    def _block(self, texts: Sequence[str], tag: str, now: datetime) -> str:
        """What is recalled: quoted data, set apart from the person's text behind it.

        A model without tool calls can do nothing that a text may ask for, and takes
        each word for a part of the question: it gets what is recalled and no more.
        """
        if not self._native:
            recalled = "\n\n".join(texts)
            return f"<memory-{tag}>\n{recalled}\n</memory-{tag}>\n\n" if texts else ""
        head = f"<memory-{tag}>\n{prompt_text('memory_block')}"
        return "\n\n".join([head, *texts, f"Today is {now:%A, %Y-%m-%d}.\n</memory-{tag}>\n\n"])

    def _fitting_parts(self, request: _Request, *, room: int) -> list[Part]:
        """What is recalled, within the room; what has a least size may take some steps."""
        limits = self._limits
        parts = self._block_parts(request, limits)
        for _ in range(_SQUEEZES):
            squeezed = limits.squeezed(parts, room=room)
            if squeezed is limits:
                break
            limits = squeezed
            parts = self._block_parts(request, limits)
        return [part for part in parts if part.text]

    def _block_parts(self, request: _Request, limits: _Limits) -> list[Part]:
        """In the order in which it is shown; empty ones among them."""
        share, material, strategy = self._config.context, request.material, request.strategy
        code = self._code_part(request, limits)
        changed = Part(name="Changed Files", text=material.changed if self._native else "")
        if material.history is not None:
            budget = limits.of(self._config.recent.window_percent)
            return [sections.history_part(material, budget=budget), code, changed]
        parts: list[Part] = []
        if strategy != "relevant":
            profile = limits.share(share.user_profile_percent, small=5)
            parts.append(sections.profile_part(material.profile, budget=profile))
            thread = limits.of(share.thread_summary_percent)
            parts.append(sections.thread_part(material.thread_summary, budget=thread))
        if strategy != "recent":
            parts.append(self._facts_part(request, limits))
        if strategy != "relevant":
            parts += self._recent_parts(material, limits)
        if strategy != "recent":
            parts += [code, *self._recalled_parts(request, limits)]
        if strategy != "relevant":
            files = limits.of(share.recently_accessed_files_percent)
            show = request.place.show_path
            parts.append(sections.files_part(material.accesses, budget=files, show=show))
        return [*parts, changed]

    def _code_part(self, request: _Request, limits: _Limits) -> Part:
        """Code that bears on the prompt, less what the window and the mentioned files show."""
        passages = request.material.code if request.strategy != "recent" else ()
        mentions = request.mentions if passages else ()
        clipped = [clip_result(c, max(400, self.max_chars // 2 // len(mentions))) for c in mentions]
        return code_part(
            passages,
            seen_rows(request.window, clipped, brief=not self._native),
            budget=limits.share(self._config.context.code_percent, small=15),
            show=request.place.show_path,
            brief=not self._native,
        )

    def _facts_part(self, request: _Request, limits: _Limits) -> Part:
        """What is remembered of the prompt, less what the request says anyway."""
        texts, material = [request.prompt], request.material
        if request.strategy != "relevant":
            texts.append(material.thread_summary)
            for turn in self._shown_turns(material):
                texts += [turn.user_message, turn.assistant_message]
        return sections.facts_part(
            material.facts,
            sections.Said.of(texts, (item.record_id for item in request.pinned.part.items)),
            most=self._config.facts.shown,
            budget=limits.share(self._config.context.facts_percent, small=15),
            now=request.now,
            brief=not self._native,
        )

    def _recent_parts(self, material: Material, limits: _Limits) -> list[Part]:
        recent = self._config.recent
        queries = limits.of(self._config.context.last_user_queries_percent)
        if self._native:
            older_count = material.older_count
            return [sections.queries_part(material.older, older_count=older_count, budget=queries)]
        # 5% of a small window would hold no exchange at all: such a model gets up to 30%,
        # never more than the 5,000 characters that 5% of the full context are.
        budget = max(limits.of(recent.turns_percent), min(5_000, limits.of(30)))
        return [
            sections.recent_part(material.turns, most=recent.turns, budget=budget),
            sections.last_query_part(material.turns, budget=queries),
        ]

    def _recalled_parts(self, request: _Request, limits: _Limits) -> list[Part]:
        """Hits, then summaries that no other stands for; nothing that is shown already."""
        share, material = self._config.context, request.material
        shown_turns = self._shown_turns(material) if request.strategy != "relevant" else ()
        turn_ids = frozenset(turn.turn_id for turn in shown_turns)
        level1_parts: list[Part] = []
        listed: frozenset[str] = frozenset()
        if request.strategy == "hybrid":
            budget = limits.of(share.summaries_percent)
            part = sections.level1_part(material.level1, sections.Shown(turn_ids), budget=budget)
            level1_parts = [part]
            listed = frozenset(item.record_id for item in part.items)
        chosen = sections.choose(
            material.hits,
            sections.Shown(turn_ids, listed),
            most=self._counts.relevant_messages,
        )
        turns, summaries = sections.relevant_parts(
            chosen,
            request.prompt,
            session_id=request.place.session_id,
            budget=limits.of(share.relevant_percent),
            now=request.now,
        )
        return [turns, summaries, *level1_parts]

    def _shown_turns(self, material: Material) -> Sequence[Turn]:
        if self._native:
            return material.window.turns
        return material.turns[-self._config.recent.turns :]

    def _told_turns(self, request: _Request) -> tuple[Turn, ...]:
        if request.strategy == "relevant":
            return ()
        return request.window.turns if self._native else request.material.turns

    # --- the conversation -----------------------------------------------------------

    def _window_section(self, window: Window, older_count: int) -> ContextSection:
        return ContextSection(
            name="Recent Conversation",
            chars=window.char_count,
            budget=self._limits.of(self._config.recent.window_percent),
            items=tuple(sections.turn_item(turn) for turn in window.turns),
            dropped=older_count,
        )

    def _mentioned(self, prompt: str, calls: Sequence[ToolCall], tag: str, used: int) -> Part:
        """The person's text and the files that it mentions."""
        left = self.max_chars - used - len(prompt)
        if self._native:
            budget = max(_LEAST_MENTIONED, self._limits.of(2), min(left, self.max_chars // 2))
            calls = [clip_result(call, budget // len(calls)) for call in calls]
            text = with_mentions(prompt, calls, tag)
        else:
            budget = max(_LEAST_MENTIONED, min(left, self._limits.of(_PASSAGES_PERCENT)))
            text = with_passages(prompt, calls, tag, max_chars=budget)
        return Part(
            name="Mentioned Files",
            text=text,
            budget=budget,
            items=tuple(
                ContextItem(label=c.arguments, chars=len(c.result), why="named in the prompt")
                for c in calls
            ),
        )


def _clipped_notice(part: Part) -> str:
    return (
        f"The project's instructions are {part.dropped:,} characters longer than the "
        f"{part.budget:,} that the model is given (memory.context.instructions_percent)."
    )

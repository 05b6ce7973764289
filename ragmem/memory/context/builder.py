"""Shapes material into a request for one model."""

import platform
from collections.abc import Sequence
from copy import copy
from datetime import datetime

import msgspec

from ragmem.config import MemoryConfig
from ragmem.llm.base import ModelInfo
from ragmem.memory.context import sections
from ragmem.memory.context.code import code_part, seen_rows
from ragmem.memory.context.sections import Shown, choose, level1_part, relevant_parts
from ragmem.memory.context.values import (
    Context,
    ContextItem,
    ContextSection,
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


def context_max_chars(config: MemoryConfig, info: ModelInfo) -> int:
    """100,000 characters or half of the model's window, whichever is less, unless configured."""
    if config.context.max_chars:
        return config.context.max_chars
    if info.context_window is None:
        return DEFAULT_MAX_CHARS
    return min(DEFAULT_MAX_CHARS, info.context_window * 4 // 2)


class ContextBuilder:
    """Shapes material into a request for one model. Pure: same input, same bytes."""

    def __init__(self, config: MemoryConfig, info: ModelInfo, *, max_chars: int = 0) -> None:
        self._config = config
        self._info = info
        self._native = info.supports_tools
        self._squeeze = 1.0
        self.most_hits: int | None = None
        """Turns and summaries that bear on the prompt; None: as many as their budget holds."""
        self.max_chars = max_chars or context_max_chars(config, info)
        self.pinned_chars = self._share(config.context.pinned_percent, small=15)
        """Room for rules and pinned memories: a smaller request keeps it."""

    def window(self, turns: Sequence[Turn]) -> Window:
        """The recent window as native messages; none for a model without tool calls."""
        if not self._native:
            return NO_WINDOW
        return recent_window(
            turns,
            high=self._budget(self._config.recent.window_percent),
            low=self._budget(self._config.recent.window_floor_percent),
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
        window = material.window if strategy != "relevant" else NO_WINDOW
        pinned = self._pinned(material, now)
        system_parts = [part for part in (*self._system_parts(place), pinned.part) if part.text]
        parts = self._block_parts(prompt, material, place, now, strategy, mentions)
        taken = window.char_count + sum(len(part.text) for part in system_parts if part.budget)
        builder = self
        for _ in range(_SQUEEZES):
            squeezed = builder._squeezed(parts, room=self.max_chars - taken)
            if squeezed is None:
                break
            builder = squeezed
            parts = builder._block_parts(prompt, material, place, now, strategy, mentions)
        block_parts = [part for part in parts if part.text]
        block = self._block([part.text.strip("\n") for part in block_parts], tag, now)
        rules = clean("\n\n".join(part.text for part in system_parts))
        used = len(rules) + window.char_count + len(block)
        mentioned = self._mentioned(prompt, mentions, tag, used=used)
        context_sections = [part.section for part in system_parts]
        if window.turns:
            context_sections.append(self._window_section(window, material.older_count))
        context_sections += [part.section for part in block_parts]
        if mentioned.items:
            chars = len(mentioned.text) - len(prompt)
            context_sections.append(msgspec.structs.replace(mentioned.section, chars=chars))
        context_sections.append(ContextSection(name="Prompt", chars=len(prompt), budget=0))
        return Context(
            sections=tuple(context_sections),
            messages=(
                system(rules),
                *window.messages,
                user(clean(block + mentioned.text)),
            ),
            max_chars=self.max_chars,
            fallback=material.history is not None,
            notices=(
                *(_clipped_notice(p) for p in system_parts if p.dropped and p is not pinned.part),
                *([sections.left_out_notice(pinned)] if pinned.left_out else []),
            ),
        )

    def smaller(self) -> "ContextBuilder":
        """One with half the room, for a model that found the request too long."""
        half = self.max_chars // 2
        smaller = ContextBuilder(self._config, self._info, max_chars=half)
        smaller.pinned_chars = self.pinned_chars
        return smaller

    def _squeezed(self, parts: Sequence[Part], *, room: int) -> "ContextBuilder | None":
        """For what is recalled, where all shares together pass the room: less of each."""
        if sum(len(part.text) for part in parts) <= room:
            return None
        wanted = sum(max(part.budget, len(part.text)) for part in parts if part.text)
        squeezed = copy(self)
        squeezed._squeeze *= max(0, room) / wanted
        return squeezed

    def _budget(self, percent: float) -> int:
        return int(self.max_chars * percent / 100 * self._squeeze)

    def _share(self, percent: float, *, small: int) -> int:
        """A section's budget: for a model without tool calls at least `small` percent.

        Of a small window a few percent would hold no fact at all; it never gets more than
        that many percent of the full context are.
        """
        budget = self._budget(percent)
        if self._native:
            return budget
        full = int(DEFAULT_MAX_CHARS * percent / 100)
        return max(budget, min(full, self._budget(small)))

    def _block(self, texts: Sequence[str], tag: str, now: datetime) -> str:
        """What is recalled: quoted data, set apart from the person's text behind it.

        A model without tool calls can do nothing that a text may ask for, and takes
        each word for a part of the question: it gets what is recalled and no more.
        """
        if not self._native:
            recalled = "\n\n".join(texts)
            return f"<memory-{tag}>\n{recalled}\n</memory-{tag}>\n\n" if texts else ""
        return "\n\n".join(
            [
                f"<memory-{tag}>\n{prompt_text('memory_block')}",
                *texts,
                f"Today is {now:%A, %Y-%m-%d}.\n</memory-{tag}>\n\n",
            ]
        )

    def _pinned(self, material: Material, now: datetime) -> sections.Pinned:
        return sections.pinned_part(material.pinned, budget=self.pinned_chars, now=now)

    def _system_parts(self, place: Place) -> tuple[Part, ...]:
        base = prompt_text("system" if self._native else "system_small").format(
            cwd=quoted(str(place.cwd)),
            project=quoted(str(place.project)),
            platform=platform.system() or "unknown",
        )
        if self._native and place.memory_tools:
            base += f"\n\n{prompt_text('system_memory')}"
        if self._native and place.code_tool:
            base += f"\n\n{prompt_text('system_code')}"
        budget = self._budget(self._config.context.instructions_percent)
        rules = place.instructions.text
        tag = f"instructions-{mark_for(rules)}"
        heading, end = f"The project's instructions:\n\n<{tag}>\n", f"\n</{tag}>"
        room = max(0, budget - len(heading) - len(end))
        return (
            Part(name="System", text=base),
            Part(
                name="Instructions",
                text=heading + clip_middle(rules, room) + end if rules and room else "",
                budget=budget,
                items=tuple(
                    ContextItem(label=str(file), chars=len(rules), why="found in the project")
                    for file in place.instructions.files
                ),
                dropped=max(0, len(rules) - room),
            ),
        )

    def _block_parts(
        self,
        prompt: str,
        material: Material,
        place: Place,
        now: datetime,
        strategy: Strategy,
        mentions: Sequence[ToolCall],
    ) -> list[Part]:
        """What is recalled, in the order in which it is shown; empty ones among them."""
        share, recent = self._config.context, self._config.recent
        code = self._code_part(material, place, strategy, mentions)
        changed = Part(name="Changed Files", text=material.changed if self._native else "")
        if material.history is not None:
            budget = self._budget(recent.window_percent)
            return [sections.history_part(material, budget=budget), code, changed]
        parts: list[Part] = []
        if strategy != "relevant":
            profile = self._share(share.user_profile_percent, small=5)
            parts.append(sections.profile_part(material.profile, budget=profile))
            thread = self._budget(share.thread_summary_percent)
            parts.append(sections.thread_part(material.thread_summary, budget=thread))
        if strategy != "recent":
            parts.append(self._facts_part(prompt, material, now, strategy))
        if strategy != "relevant":
            parts += self._recent_parts(material)
        if strategy != "recent":
            parts.append(code)
            parts += self._recalled_parts(prompt, material, place, now, strategy)
        if strategy != "relevant":
            parts.append(
                sections.files_part(
                    material.accesses,
                    budget=self._budget(share.recently_accessed_files_percent),
                    show=place.show_path,
                )
            )
        return [*parts, changed]

    def _code_part(
        self, material: Material, place: Place, strategy: Strategy, mentions: Sequence[ToolCall]
    ) -> Part:
        """Code that bears on the prompt, less what the window and the mentioned files show."""
        passages = material.code if strategy != "recent" else ()
        window = material.window if strategy != "relevant" else NO_WINDOW
        clipped = [clip_result(c, max(400, self.max_chars // 2 // len(mentions))) for c in mentions]
        seen = seen_rows(window, clipped if passages else (), brief=not self._native)
        return code_part(
            passages,
            seen,
            budget=self._share(self._config.context.code_percent, small=15),
            show=place.show_path,
            brief=not self._native,
        )

    def _facts_part(
        self, prompt: str, material: Material, now: datetime, strategy: Strategy
    ) -> Part:
        """What is remembered of the prompt, less what the request says anyway."""
        texts = [prompt]
        if strategy != "relevant":
            texts.append(material.thread_summary)
            for turn in self._shown_turns(material):
                texts += [turn.user_message, turn.assistant_message]
        pinned = self._pinned(material, now).part
        return sections.facts_part(
            material.facts,
            sections.Said.of(texts, (item.record_id for item in pinned.items)),
            most=self._config.facts.shown,
            budget=self._share(self._config.context.facts_percent, small=15),
            now=now,
            brief=not self._native,
        )

    def _recent_parts(self, material: Material) -> list[Part]:
        recent = self._config.recent
        queries = self._budget(self._config.context.last_user_queries_percent)
        if self._native:
            return [
                sections.queries_part(
                    material.older, older_count=material.older_count, budget=queries
                )
            ]
        # 5% of a small window would hold no exchange at all: such a model gets up to 30%,
        # never more than the 5,000 characters that 5% of the full context are.
        budget = max(self._budget(recent.turns_percent), min(5_000, self._budget(30)))
        return [
            sections.recent_part(material.turns, most=recent.turns, budget=budget),
            sections.last_query_part(material.turns, budget=queries),
        ]

    def _recalled_parts(
        self, prompt: str, material: Material, place: Place, now: datetime, strategy: Strategy
    ) -> list[Part]:
        """Hits, then summaries that no other stands for; nothing that is shown already."""
        share = self._config.context
        shown_turns = self._shown_turns(material) if strategy != "relevant" else ()
        turn_ids = frozenset(turn.turn_id for turn in shown_turns)
        level1_parts: list[Part] = []
        listed: frozenset[str] = frozenset()
        if strategy == "hybrid":
            budget = self._budget(share.summaries_percent)
            part, ids = level1_part(material.level1, Shown(turn_ids), budget=budget)
            level1_parts, listed = [part], frozenset(ids)
        chosen = choose(material.hits, Shown(turn_ids, listed), most=self.most_hits)
        turns, summaries = relevant_parts(
            chosen,
            prompt,
            session_id=place.session_id,
            budget=self._budget(share.relevant_percent),
            now=now,
        )
        return [turns, summaries, *level1_parts]

    def _shown_turns(self, material: Material) -> Sequence[Turn]:
        if self._native:
            return material.window.turns
        return material.turns[-self._config.recent.turns :]

    def _window_section(self, window: Window, older_count: int) -> ContextSection:
        return ContextSection(
            name="Recent Conversation",
            chars=window.char_count,
            budget=self._budget(self._config.recent.window_percent),
            items=tuple(sections.turn_item(turn) for turn in window.turns),
            dropped=older_count,
        )

    def _mentioned(self, prompt: str, calls: Sequence[ToolCall], tag: str, used: int) -> Part:
        """The person's text and the files that it mentions."""
        left = self.max_chars - used - len(prompt)
        if self._native:
            budget = max(400, self._budget(2), min(left, self.max_chars // 2))
            calls = [clip_result(call, budget // len(calls)) for call in calls]
            text = with_mentions(prompt, calls, tag)
        else:
            budget = max(400, min(left, self._budget(_PASSAGES_PERCENT)))
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

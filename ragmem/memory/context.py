"""The context: a value made of sections with budgets, built once per turn (X20)."""

import platform
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from ragmem.config import MemoryConfig
from ragmem.llm.base import ModelInfo
from ragmem.memory.files import format_accessed_files
from ragmem.memory.history import HistoryMessage, build_history_context
from ragmem.memory.instructions import Instructions
from ragmem.memory.passages import with_passages
from ragmem.memory.window import (
    NO_WINDOW,
    Window,
    clip_result,
    recent_text,
    recent_window,
    with_mentions,
)
from ragmem.messages import Message, TextPart, ToolAnswer, system, user
from ragmem.prompts import prompt as prompt_text
from ragmem.records import FileAccess, ToolCall, Turn
from ragmem.text import clean, clip_middle, estimate_tokens, one_line

DEFAULT_MAX_CHARS = 100_000
_QUERY_CHARS = 500
"""A past query is shown with at most so many characters."""
_PASSAGES_PERCENT = 20
"""Of mentioned files, for a model without tool calls: the more, the worse it answers."""
_RESULT_SHARE = 10
"""A replayed tool result keeps at most one part in so many of the context."""


class ContextItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in a section, and why it is there."""

    label: str
    chars: int
    score: float | None = None
    why: str


class ContextSection(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the request with its own budget, in characters; 0 is no limit."""

    name: str
    chars: int
    budget: int
    items: tuple[ContextItem, ...] = ()
    dropped: int = 0
    """Items left out for want of room."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly what is sent with a prompt, and how it came about."""

    sections: tuple[ContextSection, ...]
    messages: tuple[Message, ...]
    max_chars: int
    fallback: bool = False
    notices: tuple[str, ...] = ()

    @property
    def chars(self) -> int:
        """Characters of the request."""
        return sum(message.char_count for message in self.messages)

    @property
    def tokens(self) -> int:
        """Estimated at four characters each."""
        return estimate_tokens(self.chars)

    @property
    def sizes(self) -> dict[str, int]:
        """Characters per section."""
        return {section.name: section.chars for section in self.sections}

    def text(self) -> str:
        """The same as one text, for people and for models without tool calls (X20b)."""
        return "\n\n".join(f"[{message.role}]\n{_spoken(message)}" for message in self.messages)


def _spoken(message: Message) -> str:
    words = [p.text for p in message.parts if isinstance(p, TextPart | ToolAnswer)]
    return "\n".join([*words, *(f"(calls {u.name} {u.arguments})" for u in message.tool_uses)])


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What memory has for a prompt: reading it is the store's work, shaping it is done here."""

    turns: tuple[Turn, ...] = ()
    """Finished turns, in order: as many as `window.window_limit` asks for."""
    window: Window = NO_WINDOW
    """`ContextBuilder.window` of those turns."""
    older: tuple[Turn, ...] = ()
    """The turns just before the window, in order; for their queries."""
    older_count: int = 0
    """How many turns came before the window."""
    accesses: tuple[FileAccess, ...] = ()
    """One a path, latest first."""
    history: tuple[HistoryMessage, ...] | None = None
    """Given when the store could not answer: what this process remembers (X26)."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the agent works."""

    cwd: Path
    project: Path
    instructions: Instructions
    show_path: Callable[[str], str] = str


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A section before it is placed; an empty text is no section (X21)."""

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
        self.max_chars = max_chars or context_max_chars(config, info)

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
    ) -> Context:
        """The request for `prompt`: system message, window, memory block, the person's text.

        `tag` delimits quoted data and must be one that no file could know.
        """
        system_parts = list(filter(lambda part: part.text, self._system_parts(place)))
        block_parts = list(filter(lambda part: part.text, self._block_parts(material, place)))
        block = self._block([part.text.strip("\n") for part in block_parts], tag, now)
        mentioned = self._mentioned(prompt, mentions, tag, used=len(block))
        sections = [part.section for part in system_parts]
        if material.window.turns:
            sections.append(self._window_section(material))
        sections += [part.section for part in block_parts]
        if mentioned.items:
            sections.append(mentioned.section)
        sections.append(ContextSection(name="Prompt", chars=len(prompt), budget=0))
        rules = "\n\n".join(part.text for part in system_parts)
        return Context(
            sections=tuple(sections),
            messages=(
                system(clean(rules)),
                *material.window.messages,
                user(clean(block + mentioned.text)),
            ),
            max_chars=self.max_chars,
            fallback=material.history is not None,
            notices=tuple(_clipped_notice(part) for part in system_parts if part.dropped),
        )

    def smaller(self) -> "ContextBuilder":
        """One with half the room, for a model that found the request too long."""
        half = self.max_chars // 2
        return ContextBuilder(self._config, self._info, max_chars=half)

    def _budget(self, percent: float) -> int:
        return int(self.max_chars * percent / 100)

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

    def _system_parts(self, place: Place) -> tuple[_Part, ...]:
        base = prompt_text("system" if self._native else "system_small").format(
            cwd=place.cwd, project=place.project, platform=platform.system() or "unknown"
        )
        budget = self._budget(self._config.context.instructions_percent)
        rules = place.instructions.text
        return (
            _Part(name="System", text=base),
            _Part(
                name="Instructions",
                text=rules and f"The project's instructions:\n\n{clip_middle(rules, budget)}",
                budget=budget,
                items=tuple(
                    ContextItem(label=str(file), chars=len(rules), why="found in the project")
                    for file in place.instructions.files
                ),
                dropped=max(0, len(rules) - budget),
            ),
        )

    def _block_parts(self, material: Material, place: Place) -> tuple[_Part, ...]:
        if material.history is not None:
            return (self._history(material.history),)
        files = self._files(material.accesses, place)
        if self._native:
            return (self._queries(material), files)
        return (self._recent_text(material), self._last_query(material), files)

    def _window_section(self, material: Material) -> ContextSection:
        return ContextSection(
            name="Recent Conversation",
            chars=material.window.char_count,
            budget=self._budget(self._config.recent.window_percent),
            items=tuple(_turn_item(turn) for turn in material.window.turns),
            dropped=material.older_count,
        )

    def _history(self, history: Sequence[HistoryMessage]) -> _Part:
        budget = self._budget(self._config.recent.window_percent)
        text = "## Conversation History\n\n" + build_history_context(history)
        return _Part(
            name="Conversation History",
            text=clip_middle(text, budget) if history else "",
            budget=budget,
        )

    def _recent_text(self, material: Material) -> _Part:
        recent = self._config.recent
        # 5% of a small window would hold no exchange at all: such a model gets up to 30%,
        # never more than the 5,000 characters that 5% of the full context are (X22).
        budget = max(self._budget(recent.turns_percent), min(5_000, self._budget(30)))
        text, count = recent_text(material.turns, limit=recent.turns, max_chars=budget)
        shown = material.turns[len(material.turns) - count :]
        return _Part(
            name="Recent Conversation (Raw)",
            text=text,
            budget=budget,
            items=tuple(_turn_item(turn) for turn in shown),
            dropped=shown[0].turn_index - 1 if shown else 0,
        )

    def _queries(self, material: Material) -> _Part:
        budget = self._budget(self._config.context.last_user_queries_percent)
        lines = ["## Last User Queries"]
        items: list[ContextItem] = []
        room = budget - len(lines[0])
        for turn in reversed(material.older):
            line = f"[Turn {turn.turn_index}] {one_line(turn.user_message, _QUERY_CHARS)}"
            room -= len(line) + 1
            if room < 0:
                break
            lines.insert(1, line)
            items.insert(
                0, ContextItem(label=line[:80], chars=len(line), why="asked before the window")
            )
        return _Part(
            name="Last User Queries",
            text="\n".join(lines) if items else "",
            budget=budget,
            items=tuple(items),
            dropped=material.older_count - len(items),
        )

    def _last_query(self, material: Material) -> _Part:
        """Said a second time, as a sentence: without it a small model can't tell who asked what."""
        budget = self._budget(self._config.context.last_user_queries_percent)
        asked = one_line(material.turns[-1].user_message, budget) if material.turns else ""
        return _Part(
            name="Last User Queries",
            text=f'You were asked before: "{asked}"' if asked else "",
            budget=budget,
            items=(ContextItem(label=asked[:80], chars=len(asked), why="asked last"),),
        )

    def _files(self, accesses: Sequence[FileAccess], place: Place) -> _Part:
        budget = self._budget(self._config.context.recently_accessed_files_percent)
        text, dropped = format_accessed_files(accesses, max_chars=budget, show=place.show_path)
        return _Part(
            name="Recently Accessed Files",
            text=text,
            budget=budget,
            items=tuple(
                ContextItem(
                    label=place.show_path(a.path),
                    chars=len(a.path),
                    why=f"{a.access_type} by {a.tool_name} in turn {a.turn_index}",
                )
                for a in accesses
            ),
            dropped=dropped,
        )

    def _mentioned(self, prompt: str, calls: Sequence[ToolCall], tag: str, used: int) -> _Part:
        """The person's text and the files that it mentions."""
        left = self.max_chars - used - len(prompt)
        if self._native:
            budget = max(400, self.max_chars // 2)
            calls = [clip_result(call, budget // len(calls)) for call in calls]
            text = with_mentions(prompt, calls, tag)
        else:
            budget = max(400, min(left, self._budget(_PASSAGES_PERCENT)))
            text = with_passages(prompt, calls, tag, max_chars=budget)
        return _Part(
            name="Mentioned Files",
            text=text,
            budget=budget,
            items=tuple(
                ContextItem(label=c.arguments, chars=len(c.result), why="named in the prompt")
                for c in calls
            ),
        )


def _turn_item(turn: Turn) -> ContextItem:
    label = f"Turn {turn.turn_index}: {one_line(turn.user_message, 60)}"
    return ContextItem(label=label, chars=turn.char_count, why="among the latest turns")


def _clipped_notice(part: _Part) -> str:
    return (
        f"The project's instructions are {part.dropped:,} characters longer than the "
        f"{part.budget:,} that the model is given (memory.context.instructions_percent)."
    )

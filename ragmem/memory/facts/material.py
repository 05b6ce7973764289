"""What the small model is given of a turn, each part as the data that it is."""

from collections.abc import Iterable

import msgspec

from ragmem.memory.facts.shelf import About
from ragmem.memory.facts.sources import Sources
from ragmem.memory.summaries.material import main_argument
from ragmem.records import Turn
from ragmem.redact import redact
from ragmem.text import clean, clip_middle, one_line

_SHARES = {"person": 0.35, "agent": 0.25, "tool": 0.25, "known": 0.15}
"""Of the room, where all are long."""
_RESULT_CHARS = 1_200
_SHORTEST_RESULT = 120
_KNOWN_CHARS = 240
_MOST_SUBJECTS = 20


class Part(msgspec.Struct, frozen=True):
    """One text of one origin."""

    origin: str
    text: str
    of: str = ""
    """Of a tool's answer: which tool, about what."""


class Material(msgspec.Struct, frozen=True):
    """All of it."""

    parts: tuple[Part, ...]

    def plain(self) -> str:
        """The texts alone: to choose letters for marks that they do not hold."""
        return "\n".join(f"{part.of}\n{part.text}" for part in self.parts)

    def marked(self, tag: str, *, room: int) -> str:
        """Each between marks of these letters, in at most about `room` characters."""
        whole = sum(len(part.text) for part in self.parts)
        share = min(1.0, room / whole) if whole else 1.0
        blocks = []
        for part in self.parts:
            text = clip_middle(part.text, max(_SHORTEST_RESULT, int(len(part.text) * share)))
            name = f"{part.origin}-{tag}"
            of = f" of={part.of!r}" if part.of else ""
            blocks.append(f"<{name}{of}>\n{text}\n</{name}>")
        return "\n\n".join(blocks)


def turn_material(turn: Turn, sources: Sources, about: About, *, room: int) -> Material:
    """A turn, with what is known on its subjects; no secrets, and nothing that was recalled."""
    limits = {origin: int(share * room) for origin, share in _SHARES.items()}
    parts = [Part("person", clip_middle(_safe(turn.user_message), limits["person"]))]
    parts += _results(sources, limits["tool"])
    if turn.assistant_message:
        parts.append(Part("agent", clip_middle(_safe(turn.assistant_message), limits["agent"])))
    if known := _known(about):
        parts.append(Part("known", clip_middle(_safe(known), limits["known"])))
    return Material(tuple(parts))


def _results(sources: Sources, room: int) -> Iterable[Part]:
    if not sources.results:
        return []
    share = max(_SHORTEST_RESULT, min(_RESULT_CHARS, room // len(sources.results)))
    shown = sources.results[-max(1, room // share) :]
    return [
        Part(
            "tool",
            clip_middle(_safe(text), share),
            one_line(_safe(f"{call.tool_name} {main_argument(call)}"), 120),
        )
        for call, text in shown
    ]


def _known(about: About) -> str:
    named = {subject for memory in about.memories for subject in memory.subjects}
    counts = sorted((-about.counts.get(s, 0), s) for s in named)[:_MOST_SUBJECTS]
    lines = [f"- {one_line(m.content, _KNOWN_CHARS)}" for m in about.memories]
    if counts:
        told = ", ".join(f"{subject}: {-count}" for count, subject in counts)
        lines.append(f"How many memories there are of each subject: {told}.")
    return "\n".join(lines)


def _safe(text: str) -> str:
    return redact(clean(text))

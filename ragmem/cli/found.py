"""What was found, as a terminal shows it: the words looked for lit, no raw Markdown."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ragmem.cli.colors import Paint, Part, joined
from ragmem.ids import short_id
from ragmem.listings import FURTHER, session_name
from ragmem.text import ago, clip_to_width, counted, display_width, flowing, hanging, one_line

if TYPE_CHECKING:
    from ragmem.memory.facts.values import FactHit
    from ragmem.memory.hits import Hit
    from ragmem.records import Session

_NARROWEST = 20
_ROWS = 3
"""Of a memory."""
_EXCERPT_CHARS = 500
_LOOKED_AT = 20_000
"""Characters of a turn."""
_STEM, _ENDING = 4, 4
"""A word of so many letters is found again with another ending of at most so many."""
_WORD = re.compile(r"\w+")
_LIT = "bold yellow"
_FENCE = re.compile(r"^ {0,3}(?:`{3,}|~{3,})[^`\n]*$|^[ \t|:+-]*-{3,}[ \t|:+-]*$", re.MULTILINE)
_LEAD = re.compile(r"^[ \t]{0,12}(?:#{1,6}[ \t]+|>[ \t]?)+", re.MULTILINE)
_BULLET = re.compile(r"^([ \t]{0,12})[-*+][ \t]+(?:\[[ xX]\][ \t]+)?", re.MULTILINE)
_INLINE = re.compile(
    r"`([^`\n]{1,400})`"
    r"|\*\*(?=\S)([^*\n]{1,400})(?<=\S)\*\*"
    r"|(?<![\w*])\*(?=\S)([^*\n]{1,400})(?<=\S)\*(?![\w*])"
    r"|!?\[([^\]\n]{0,400})\]\([^)\s]{0,500}\)"
)


def without_markdown(text: str) -> str:
    """Return what a text in Markdown says: no fences, heading marks, stars, backticks, links.

    Names with underscores stay as they are, and so does what stands in backticks.
    """
    text = _BULLET.sub(r"\1• ", _LEAD.sub("", _FENCE.sub("", text)))
    return _INLINE.sub(_inner, text)


def _inner(found: re.Match[str]) -> str:
    code, *others = found.groups()
    if code is not None:
        return code
    return _INLINE.sub(_inner, next((each for each in others if each), ""))


class Light:
    """Finds the words of a question in a text, with other endings too."""

    def __init__(self, query: str) -> None:
        from ragmem.terms.languages import guess_language, is_stop_word

        words = {word.casefold() for word in _WORD.findall(query)}
        telling = {word for word in words if not is_stop_word(word, guess_language(query))}
        self._words = sorted(telling or words, key=len, reverse=True)
        # Where words are written without blanks one stands inside of others.
        inside = "|".join(re.escape(word) for word in self._words if not word.isascii())
        wanted = rf"{inside}|(?:(?!{inside})\w)+" if inside else _WORD.pattern
        self._pattern = re.compile(wanted, re.IGNORECASE)

    def parts(self, row: str, style: str = "") -> list[Part]:
        """Return the row in parts, the words lit."""
        parts: list[Part] = []
        end = 0
        for found in self._pattern.finditer(row):
            if self._means(found[0].casefold()):
                parts += [(row[end : found.start()], style), (found[0], _LIT)]
                end = found.end()
        return [*parts, (row[end:], style)]

    def first(self, text: str) -> int:
        """Return where the first of the words stands; 0 where there is none."""
        found = self._pattern.finditer(text)
        return next((each.start() for each in found if self._means(each[0].casefold())), 0)

    def _means(self, word: str) -> bool:
        return any(word == each or _is_form(word, each) for each in self._words)


def _is_form(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) >= _STEM and long.startswith(short) and len(long) - len(short) <= _ENDING


def excerpt(text: str, light: Light, width: int) -> str:
    """Return a row of what the text says, about the first word that was looked for."""
    said = " ".join(without_markdown(text[:_LOOKED_AT]).split())
    at = light.first(said)
    if display_width(one_line(said[:at], at + 1)) > width // 2:
        start = said.rfind(" ", 0, max(0, at - width // 3)) + 1
        said = f"… {said[start:]}" if start else said
    return clip_to_width(one_line(said, _EXCERPT_CHARS), width)


def found_hits(
    hits: "Sequence[Hit | FactHit]",
    now: datetime,
    *,
    width: int,
    paint: Paint,
    light: Light,
    close: int,
) -> str:
    """Return where each stands, why it was found, and what it says; the first few are close."""
    width = max(_NARROWEST, width)
    rows: list[str] = []
    for place, hit in enumerate(hits):
        rows += [paint((FURTHER, "bold")), ""] if 0 < place == close else []
        rows += [*_hit(hit, now, width, paint, light), ""]
    return joined(rows[:-1])


def _hit(hit: "Hit | FactHit", now: datetime, width: int, paint: Paint, light: Light) -> list[str]:
    from ragmem.memory.hits import Hit
    from ragmem.memory.memories import memory_facts

    if isinstance(hit, Hit):
        return [*_facts(hit.facts(now), width, paint), *_said(hit, "  ", width, paint, light)]
    told = without_markdown(hit.memory.content)
    words = hanging("  ", one_line(told, _EXCERPT_CHARS), width)
    words = words if len(words) <= _ROWS else [*words[: _ROWS - 1], f"{words[_ROWS - 1]} …"]
    shown = [paint(*light.parts(clip_to_width(row, width))) for row in words]
    return [*_facts(memory_facts(hit, now), width, paint), *shown]


def _facts(facts: Sequence[str], width: int, paint: Paint) -> list[str]:
    """Return what it is, and dim all else that is to be known."""
    first, *rest = flowing(facts, width)
    what, dot, others = first.partition(" · ")
    return [paint((what, "cyan"), (dot + others, "dim")), *(paint((row, "dim")) for row in rest)]


def _said(hit: "Hit", margin: str, width: int, paint: Paint, light: Light) -> list[str]:
    """Return what was asked and answered, or summed up, a row each."""
    said = [("", hit.summary.text)] if hit.summary else []
    if hit.turn:
        said = [("› ", hit.turn.user_message), ("", hit.turn.assistant_message)]
    rows = []
    for mark, text in said:
        if text.strip():
            row = excerpt(text, light, width - len(margin + mark))
            rows.append(margin + paint((mark, "dim"), *light.parts(row)))
    return rows


def found_sessions(
    found: "Sequence[tuple[Session, Sequence[Hit]]]",
    now: datetime,
    *,
    width: int,
    paint: Paint,
    light: Light,
    close: int,
) -> str:
    """Return a session a paragraph, what was found in it below; the first few are close."""
    width = max(_NARROWEST, width)
    rows: list[str] = []
    for place, (session, hits) in enumerate(found):
        rows += [paint((FURTHER, "bold")), ""] if 0 < place == close else []
        when = f"{counted(session.turn_count, 'turn')} · {ago(session.last_activity_at, now)}"
        name = clip_to_width(session_name(session), width)
        facts = f"{when} · {short_id(session.session_id)}"
        beside = display_width(f"{name}  {facts}") <= width
        below = flowing(facts.split(" · "), width - 2)
        rows += [paint((name, "bold"), (f"  {facts}" if beside else "", "dim"))]
        rows += [] if beside else [f"  {paint((row, 'dim'))}" for row in below]
        for hit in hits:
            what, _, *rest = hit.facts(now)  # the session's name stands above
            rows += [f"  {row}" for row in _facts((what, *rest), width - 2, paint)]
            rows += _said(hit, "    ", width, paint, light)
        rows.append("")
    return joined(rows[:-1])


def found_code(text: str, *, paint: Paint, light: Light) -> str:
    """Return a list of code, as `ragmem.listings.code_text` makes it, with the words lit."""
    rows = []
    for row in text.splitlines():
        name, dot, facts = row.partition(" · ")
        head = row[:1].strip() != ""
        parts = [(name, "bold cyan"), (dot + facts, "dim")] if head else light.parts(row)
        rows.append(paint(*parts))
    return joined(rows)

"""Time words of a question ("last week", "hier", "in March") as intervals of time.

They make turns of that time likelier; they never shut others out: people err
about when something was said, and a date in a question is often about something
else. English, French, German, Spanish, Italian, Portuguese, Dutch.
"""

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

import msgspec

from ragmem.memory.timewords.tables import ANYTHING, TELLING
from ragmem.terms import guess_language, query_terms

if TYPE_CHECKING:
    from ragmem.memory.timewords.readers import Days, Reader


class TimeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A half-open interval that a question names."""

    start_at: datetime
    end_at: datetime
    confidence: float
    """0 to 1: how surely the words mean this interval, and that something was said in it."""
    text: str
    """The words, without case and accents."""
    relative: bool = False
    """The words name no date of their own, so that no turn is found by them."""


def time_spans(question: str, now: datetime) -> tuple[TimeSpan, ...]:
    """The intervals that a question names, seen from `now` in the person's time zone.

    In the order of the words; nothing where there are none. `now` without a time zone is UTC.
    """
    now = now if now.tzinfo else now.replace(tzinfo=UTC)
    text = _plain(question[:2_000])
    if not may_name_a_time(text):
        return ()
    # To compile its expressions takes longer than all else of a small question.
    from ragmem.memory.timewords.readers import READERS

    found: list[tuple[int, TimeSpan]] = []
    taken = [False] * (len(text) + 1)
    language = guess_language(question)
    for pattern, read, relative in READERS:
        for match in pattern.finditer(text):
            if any(taken[match.start() : match.end()]) or _is_other(match.group(), language):
                continue
            days = _read(read, match, now)
            if days is None:
                continue
            taken[match.start() : match.end()] = [True] * (match.end() - match.start())
            # A preposition belongs to what joins intervals ("since", "between"), not to this one.
            lead = len(match.groupdict().get("in") or "")
            at = match.start() + lead + (1 if lead else 0)
            found.append((at, _span(days, text[at : match.end()], now, relative)))
    found.sort(key=lambda pair: pair[0])
    return _joined(text, found, now)


def may_name_a_time(plain: str) -> bool:
    """Whether a text, without case and accents, has a digit or a word without which none does."""
    return _DIGIT.search(plain) is not None or not TELLING.isdisjoint(_WORD.findall(plain))


_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W\d_]+")


def without_time_words(question: str, spans: tuple[TimeSpan, ...]) -> str:
    """The question less its relative time words, which no turn is found by."""
    return _without(question, [span for span in spans if span.relative])


def names_only_time(question: str, spans: tuple[TimeSpan, ...]) -> bool:
    """Whether it asks for whatever there was at a time: "what happened on Tuesday?"."""
    if not spans:
        return False
    left = query_terms(_without(question, spans))
    return {term.term for term in left if term.kind in _WHOLE} <= ANYTHING


_WHOLE = frozenset(["word", "name", "identifier", "part", "number"])
"""Kinds of terms that are not ends or stems of others, nor without a topic."""


def _without(question: str, spans: Sequence[TimeSpan]) -> str:
    text = unicodedata.normalize("NFC", question)
    if len(plain := _plain(text)) != len(text):
        return question
    for span in spans:
        at = plain.find(span.text)
        if at >= 0:
            gap = " " * len(span.text)
            text = text[:at] + gap + text[at + len(gap) :]
            plain = plain[:at] + gap + plain[at + len(gap) :]
    return text


def _plain(text: str) -> str:
    # Character by character, so that places in it are places in the question.
    text = unicodedata.normalize("NFC", text)
    return "".join((unicodedata.normalize("NFD", c)[0].lower() or c)[:1] for c in text).replace(
        "’", "'"
    )


def _is_other(words: str, language: str | None) -> bool:
    # "hier" is "here" to Germans and Dutch.
    return words.startswith("hier") and language in ("german", "dutch")


def _read(read: "Reader", match: re.Match[str], now: datetime) -> "Days | None":
    try:
        return read(match, now.replace(tzinfo=None))
    except (ValueError, OverflowError):  # The 31st of February; a million years ago.
        return None


def _span(days: "Days", text: str, now: datetime, relative: bool) -> TimeSpan:
    zone = now.tzinfo
    return TimeSpan(
        start_at=_placed(days.start, zone),
        end_at=_placed(days.end, zone),
        confidence=days.confidence,
        text=text,
        relative=relative,
    )


def _placed(moment: datetime, zone: tzinfo | None) -> datetime:
    try:
        return moment.replace(tzinfo=zone).astimezone(UTC)
    except OverflowError:
        return moment.replace(tzinfo=UTC)


_RANGE = re.compile(
    r"(?:between|entre|zwischen|tra|fra|tussen)\s(?:the |le |la |el |il |o |dem )?$"
    r"|(?:from|du|de|von|vom|desde|dal|van)\s(?:the |le |el |il |o )?$"
)
_AND = re.compile(
    r"\s(?:and|et|und|y|e|en|to|a|au|bis|bis zum|hasta|ate|al|tot)\s(?:the |le |el )?"
)
_SINCE = re.compile(
    r"(?:since|after|depuis|apres|seit|nach|desde|despues de|dopo|depois de|sinds|na)"
    r"\s(?:the |le |la |el |il |o |dem |l')?$"
)
_UNTIL = re.compile(
    r"(?:before|until|avant|jusqu'a|vor|bis|antes de|hasta|prima di|ate|voor|tot)"
    r"\s(?:the |le |la |el |il |o |dem |l')?$"
)


def _joined(text: str, found: list[tuple[int, TimeSpan]], now: datetime) -> tuple[TimeSpan, ...]:
    """Two ends of one range made one interval; "since" and "before" opened to one side."""
    out: list[TimeSpan] = []
    skip = False
    for i, (at, span) in enumerate(found):
        if skip:
            skip = False
            continue
        before = text[max(0, at - 24) : at]
        end = at + len(span.text)
        if i + 1 < len(found) and _RANGE.search(before):
            next_at, other = found[i + 1]
            if _AND.fullmatch(text[end:next_at]) and span.start_at < other.end_at:
                out.append(
                    TimeSpan(
                        start_at=span.start_at,
                        end_at=other.end_at,
                        confidence=max(span.confidence, other.confidence),
                        text=text[at : next_at + len(other.text)],
                        relative=span.relative and other.relative,
                    )
                )
                skip = True
                continue
        if _SINCE.search(before) and span.start_at < (end_at := now.astimezone(UTC)):
            span = msgspec.structs.replace(span, end_at=end_at, confidence=span.confidence * 0.6)
        elif _UNTIL.search(before):
            start_at = span.start_at - timedelta(days=90)
            span = msgspec.structs.replace(
                span, start_at=start_at, end_at=span.start_at, confidence=span.confidence * 0.4
            )
        out.append(span)
    return tuple(out)

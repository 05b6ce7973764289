"""The day that somebody names as a date to come: "by Friday", "avant le 3 mars", "in two weeks".

`ragmem.memory.timewords` reads questions about what was; this reads what is due, with the
same tables of words, seen from when it was said.
"""

import re
import unicodedata
from collections.abc import Callable
from datetime import date, datetime, time, timedelta

import msgspec

from ragmem.memory.timewords.tables import (
    FEW,
    MONTHS,
    NUMBERS,
    TODAY,
    UNITS,
    WEEKDAYS,
    any_of,
)


class Day(msgspec.Struct, frozen=True):
    """A day that a text names."""

    day: date
    text: str
    """The words as they stand in it."""
    start: int
    end: int
    """Where they stand."""

    def at(self, now: datetime) -> datetime:
        """Its noon, in the time zone of `now`: the same day almost wherever it is looked at."""
        return datetime.combine(self.day, time(12), now.tzinfo)


_MONTH = any_of(MONTHS)
_WEEKDAY = any_of(WEEKDAYS)
_NUMBER = rf"\d{{1,3}}|{any_of(NUMBERS)}|{any_of(FEW)}"
_YEAR = r"(?:19|20)\d\d"
_TOMORROW = ("tomorrow", "demain", "morgen", "manana", "domani", "amanha")
_AFTER_TOMORROW = (
    "the day after tomorrow",
    "day after tomorrow",
    "apres-demain",
    "apres demain",
    "ubermorgen",
    "pasado manana",
    "dopodomani",
    "depois de amanha",
    "overmorgen",
)
_TODAY = (
    *TODAY,
    "tonight",
    "this evening",
    "this afternoon",
    "ce soir",
    "end of day",
    "end of the day",
    "eod",
    "fin de journee",
    "la fin de la journee",
)
_NEXT = r"next|prochain|prochaine|nachste[nrsm]?|proximo|proxima|prossim[oa]|volgende"
_THIS = r"this|the|ce|cette|la|le|du|de la|de l'"
_END = r"end|fin|ende|final|fine|fim|eind"
_UNIT_DAYS = {"minute": 0, "hour": 0, "day": 1, "week": 7, "month": 30, "year": 365}

_Reader = Callable[[re.Match[str], date], date | None]


def _plain(text: str) -> str:
    # Character by character, so that places in it are places in the text.
    return "".join((unicodedata.normalize("NFD", c)[0].lower() or c)[:1] for c in text).replace(
        "’", "'"
    )


def _iso(match: re.Match[str], today: date) -> date:
    return date(int(match[1]), int(match[2]), int(match[3]))


def _slashed(match: re.Match[str], today: date) -> date:
    """Day first, as most write; month first where only that is a date."""
    first, second = int(match[1]), int(match[2])
    year = int(match[3])
    if second > 12:
        first, second = second, first
    return date(year + 2000 if year < 100 else year, second, first)


def _named(match: re.Match[str], today: date) -> date:
    """A day of a month; without a year the next that comes."""
    day, month = int(match["day"]), MONTHS[match["month"]]
    if match["year"]:
        return date(int(match["year"]), month, day)
    this_year = date(today.year, month, day)
    return this_year if this_year >= today else date(today.year + 1, month, day)


def _weekday(match: re.Match[str], today: date) -> date:
    """The next day of that name; "next" on a day of the same week means a week later."""
    ahead = (WEEKDAYS[match["weekday"]] - today.weekday() - 1) % 7 + 1
    in_this_week = today.weekday() + ahead < 7
    later = match["before"] == "next" and in_this_week
    return today + timedelta(days=ahead + (7 if later else 0))


def _in_units(match: re.Match[str], today: date) -> date | None:
    unit = UNITS[match["unit"]]
    if unit not in _UNIT_DAYS:
        return None
    words = match["n"]
    count = int(words) if words.isdigit() else {**NUMBERS, **FEW}[words]
    if unit == "month":
        return _months_later(today, count)
    return today + timedelta(days=count * _UNIT_DAYS[unit])


def _months_later(day: date, count: int) -> date:
    months = day.year * 12 + day.month - 1 + count
    first = date(months // 12, months % 12 + 1, 1)
    return min(first + timedelta(days=day.day - 1), _month_end(first))


def _month_end(day: date) -> date:
    months = day.year * 12 + day.month
    return date(months // 12, months % 12 + 1, 1) - timedelta(days=1)


def _end_of(match: re.Match[str], today: date) -> date | None:
    ahead = 1 if match["next"] else 0
    match UNITS[match["unit"]]:
        case "week":
            # That of the work: its Friday, or the weekend's last day once that is past.
            friday = today + timedelta(days=4 - today.weekday() + 7 * ahead)
            return friday if friday >= today else today + timedelta(days=6 - today.weekday())
        case "month":
            return _month_end(_months_later(today.replace(day=1), ahead))
        case "year":
            return date(today.year + ahead, 12, 31)
        case _:
            return None


def _end_of_month(match: re.Match[str], today: date) -> date:
    year = int(match["year"]) if match["year"] else today.year
    found = _month_end(date(year, MONTHS[match["month"]], 1))
    return found if match["year"] or found >= today else _month_end(found.replace(year=year + 1))


def _next_unit(match: re.Match[str], today: date) -> date | None:
    """The last day of the next week, month or year: by then it is due."""
    match UNITS[match["unit"]]:
        case "week":
            return today + timedelta(days=11 - today.weekday())
        case "month":
            return _month_end(_months_later(today.replace(day=1), 1))
        case "year":
            return date(today.year + 1, 12, 31)
        case _:
            return None


def _ahead(days: int) -> _Reader:
    return lambda match, today: today + timedelta(days=days)


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w/-])(?:{pattern})(?![\w/])")


_UNIT = any_of(UNITS)
# From the most particular to the most general; the first that is a date counts at each place.
_READERS: tuple[tuple[re.Pattern[str], _Reader], ...] = (
    (_words(rf"({_YEAR})-(\d\d)-(\d\d)"), _iso),
    (_words(r"(\d{1,2})[/.](\d{1,2})[/.]((?:19|20)?\d\d)"), _slashed),
    (
        _words(
            rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|\.|o|º)?(?: of| de| di)? (?P<month>{_MONTH})"
            rf"(?:,? (?:de |del )?(?P<year>{_YEAR}))?"
        ),
        _named,
    ),
    (
        _words(
            rf"(?P<month>{_MONTH})\.? (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?"
            rf"(?:,? (?P<year>{_YEAR}))?"
        ),
        _named,
    ),
    (
        _words(
            rf"(?:the |la )?(?:{_END}) (?:of |du |de la |de l'|de |des )?(?:the |{_THIS} )?"
            rf"(?P<next>(?:{_NEXT}) )?(?P<unit>{_UNIT})"
        ),
        _end_of,
    ),
    (
        _words(
            rf"(?:the |la )?(?:{_END}) (?:of |d'|de )?(?P<month>{_MONTH})(?: (?P<year>{_YEAR}))?"
        ),
        _end_of_month,
    ),
    (_words(any_of(_AFTER_TOMORROW)), _ahead(2)),
    (_words(any_of(_TOMORROW)), _ahead(1)),
    (_words(any_of(_TODAY)), _ahead(0)),
    (
        _words(
            rf"(?:in|within|dans|sous|d'ici|en|binnen|innerhalb von) (?P<n>{_NUMBER})"
            rf" (?P<unit>{_UNIT})"
        ),
        _in_units,
    ),
    (_words(rf"(?:la |le |l')?(?:{_NEXT}) (?P<unit>{_UNIT})"), _next_unit),
    (_words(rf"(?:la |le |l')?(?P<unit>{_UNIT}) (?:{_NEXT})"), _next_unit),
    (
        _words(
            rf"(?:(?P<before>next|this|ce|nachsten|kommenden) )?(?P<weekday>{_WEEKDAY})"
            rf"(?: (?:{_NEXT}))?"
        ),
        _weekday,
    ),
)
_LONGEST_READ = 2_000


def days(text: str, now: datetime) -> list[Day]:
    """The days to come that a text names, in its order; `now` in the person's time zone."""
    text = unicodedata.normalize("NFC", text)[:_LONGEST_READ]
    plain = _plain(text)
    taken = [False] * (len(plain) + 1)
    found: list[Day] = []
    for pattern, read in _READERS:
        for match in pattern.finditer(plain):
            if any(taken[match.start() : match.end()]):
                continue
            try:
                day = read(match, now.date())
            except (ValueError, OverflowError):  # The 31st of February.
                day = None
            if day is not None:
                taken[match.start() : match.end()] = [True] * (match.end() - match.start())
                found.append(
                    Day(day, text[match.start() : match.end()], match.start(), match.end())
                )
    return sorted(found, key=lambda day: day.start)

"""From matched words and the local time to days; the words are in `tables`."""

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta

import msgspec

from ragmem.memory.timewords.tables import (
    AGO,
    BEFORE_YESTERDAY,
    DAY_PARTS,
    FEW,
    LAST,
    MONTHS,
    NUMBERS,
    PAST,
    PREPOSITIONS,
    RECENT,
    SHY,
    THIS,
    TODAY,
    UNITS,
    WEEKDAYS,
    YESTERDAY,
    any_of,
)


class Days(msgspec.Struct, frozen=True):
    """Local days or moments before they are placed in a time zone."""

    start: datetime
    end: datetime
    confidence: float


Reader = Callable[[re.Match[str], datetime], Days | None]
"""From a match and the local time; ValueError where there is no such day."""

_NUMBER = rf"\d{{1,3}}|{any_of(NUMBERS)}|{any_of(FEW)}"
_UNIT = any_of(UNITS)
_MONTH = any_of(MONTHS)
_WEEKDAY = any_of(WEEKDAYS)
_PART = any_of(DAY_PARTS)
_IN = any_of(PREPOSITIONS)
_YEAR = r"(?:19|20)\d\d"
_UNIT_DAYS = {"minute": 0, "hour": 0, "day": 1, "week": 7, "month": 30, "year": 365}


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time())


def _day(day: date, confidence: float, days: int = 1) -> Days:
    return Days(_midnight(day), _midnight(day + timedelta(days=days)), confidence)


def _month(year: int, month: int, confidence: float) -> Days:
    end = datetime(year + month // 12, month % 12 + 1, 1)
    return Days(datetime(year, month, 1), end, confidence)


def _iso(match: re.Match[str], now: datetime) -> Days:
    year, month, day = (int(n) for n in match.groups())
    return _day(date(year, month, day), 0.95)


def _iso_month(match: re.Match[str], now: datetime) -> Days:
    return _month(int(match[1]), int(match[2]), 0.7)


def _slashed(match: re.Match[str], now: datetime) -> Days:
    """Day first, as most write; month first where only that is a date."""
    first, second = int(match[1]), int(match[2])
    year = _full_year(int(match[3]))
    if second > 12:
        first, second = second, first
    return _day(date(year, second, first), 0.8 if first > 12 or first == second else 0.5)


def _full_year(year: int) -> int:
    return year + 2000 if year < 100 else year


def _named_day(match: re.Match[str], now: datetime) -> Days:
    """A day of a month; without a year the newest that has been."""
    day, month = int(match["day"]), MONTHS[match["month"]]
    if match["year"]:
        return _day(date(int(match["year"]), month, day), 0.95)
    year = now.year if (month, day) <= (now.month, now.day) else now.year - 1
    return _day(date(year, month, day), 0.9)


def _named_month(match: re.Match[str], now: datetime) -> Days | None:
    month = MONTHS[match["month"]]
    if match["year"]:
        return _month(int(match["year"]), month, 0.9)
    if match["month"] in SHY and not match["in"]:
        return None
    year = now.year if month <= now.month else now.year - 1
    return _month(year, month, 0.8 if match["in"] else 0.5)


def _year(match: re.Match[str], now: datetime) -> Days | None:
    year = int(match[1])
    return None if year > now.year else Days(datetime(year, 1, 1), datetime(year + 1, 1, 1), 0.6)


def _ago(match: re.Match[str], now: datetime) -> Days:
    unit = UNITS[match["unit"]]
    count = _count(match["n"])
    if unit in ("minute", "hour"):
        step = timedelta(minutes=count) if unit == "minute" else timedelta(hours=count)
        margin = max(step / 2, timedelta(minutes=10))
        return Days(now - step - margin, min(now, now - step + margin), 0.8)
    vague = match["n"] in FEW
    days = _UNIT_DAYS[unit]
    middle = now.date() - timedelta(days=count * days)
    spread = days // 2 + (days * count // 4 if vague else 0) + (1 if vague else 0)
    return _day(middle - timedelta(days=spread), 0.6 if vague else 0.85, 2 * spread + 1)


def _count(words: str) -> int:
    return int(words) if words.isdigit() else {**NUMBERS, **FEW}[words]


def _last_unit(match: re.Match[str], now: datetime) -> Days:
    start, end = _calendar(UNITS[match["unit"]], now, -1)
    return Days(start, end, 0.8)


def _this_unit(match: re.Match[str], now: datetime) -> Days:
    start, end = _calendar(UNITS[match["unit"]], now, 0)
    return Days(start, end, 0.7)


def _calendar(unit: str, now: datetime, step: int) -> tuple[datetime, datetime]:
    today = _midnight(now.date())
    if unit == "week":
        start = today - timedelta(days=today.weekday() - 7 * step)
        return start, start + timedelta(days=7)
    if unit == "month":
        months = now.year * 12 + now.month - 1 + step
        found = _month(months // 12, months % 12 + 1, 1)
        return found.start, found.end
    if unit == "year":
        return datetime(now.year + step, 1, 1), datetime(now.year + step + 1, 1, 1)
    if unit == "weekend":
        # The one in course or behind us; "last" is the newest that is over.
        saturday = today - timedelta(days=(today.weekday() - 5) % 7)
        if step and today - saturday < timedelta(days=2):
            saturday -= timedelta(days=7)
        return saturday, saturday + timedelta(days=2)
    if unit == "day":
        return today + timedelta(days=step), today + timedelta(days=step + 1)
    hour = timedelta(hours=1) if unit == "hour" else timedelta(minutes=1)
    return now - hour, now


def _past_units(match: re.Match[str], now: datetime) -> Days:
    unit = UNITS[match["unit"]]
    count = _count(match["n"] or "1")
    if unit in ("minute", "hour"):
        step = timedelta(minutes=count) if unit == "minute" else timedelta(hours=count)
        return Days(now - step, now, 0.7)
    return Days(_midnight(now.date() - timedelta(days=count * _UNIT_DAYS[unit])), now, 0.7)


def _relative_day(back: int) -> Reader:
    def read(match: re.Match[str], now: datetime) -> Days:
        day = now.date() - timedelta(days=back)
        part = match.groupdict().get("part")
        return _part_of(day, part) if part else _day(day, 0.9)

    return read


def _part_of(day: date, words: str) -> Days:
    first, last = DAY_PARTS[words]
    start = _midnight(day) + timedelta(hours=first)
    return Days(start, _midnight(day) + timedelta(hours=last), 0.85)


def _this_part(match: re.Match[str], now: datetime) -> Days:
    return _part_of(now.date(), match["part"])


def _night(match: re.Match[str], now: datetime) -> Days:
    return _part_of(now.date() - timedelta(days=1), "night")


def _weekday(match: re.Match[str], now: datetime) -> Days | None:
    """The newest day of that name before today."""
    name = match["weekday"]
    if name in SHY and not (match["in"] or match["last"]):
        return None
    back = (now.weekday() - WEEKDAYS[name] - 1) % 7 + 1
    return _day(now.date() - timedelta(days=back), 0.75)


def _recent(match: re.Match[str], now: datetime) -> Days:
    return Days(_midnight(now.date() - timedelta(days=14)), now, 0.35)


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{pattern})(?!\w)")


_OPTIONAL_PART = rf"(?:,? (?:in the |au |dans l'|en la |por la |a |de |)?(?P<part>{_PART}))?"

# From the most particular to the most general; each place of the text is read once.
READERS: tuple[tuple[re.Pattern[str], Reader, bool], ...] = (
    (_words(rf"({_YEAR})-(\d\d)-(\d\d)"), _iso, False),
    (_words(r"(\d{1,2})[/.](\d{1,2})[/.]((?:19|20)?\d\d)"), _slashed, False),
    (_words(rf"({_YEAR})-(0[1-9]|1[0-2])"), _iso_month, False),
    (
        _words(
            rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|\.|o|º)?(?: of| de| di)? (?P<month>{_MONTH})"
            rf"(?:,? (?:de |del )?(?P<year>{_YEAR}))?"
        ),
        _named_day,
        False,
    ),
    (
        _words(
            rf"(?P<month>{_MONTH})\.? (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?!\d)"
            rf"(?:,? (?P<year>{_YEAR}))?"
        ),
        _named_day,
        False,
    ),
    (
        _words(
            rf"(?:(?P<in>{_IN}) )?(?P<month>{_MONTH})(?:,? (?:de |del |of )?(?P<year>{_YEAR}))?"
        ),
        _named_month,
        False,
    ),
    *((_words(rf"{form.format(n=_NUMBER, unit=_UNIT)}"), _ago, True) for form in AGO),
    *((_words(rf"{form.format(n=_NUMBER, unit=_UNIT)}"), _past_units, True) for form in PAST),
    (_words(any_of(BEFORE_YESTERDAY)), _relative_day(2), True),
    (_words("last night|hier nuit|cette nuit|letzte nacht|anoche|stanotte"), _night, True),
    (_words(rf"(?:{any_of(YESTERDAY)}){_OPTIONAL_PART}"), _relative_day(1), True),
    (
        _words(rf"(?P<part>{_PART}) (?:de |d'|di |of )?(?:{any_of(YESTERDAY)})"),
        _relative_day(1),
        True,
    ),
    (_words(rf"(?:{any_of(TODAY)}){_OPTIONAL_PART}"), _relative_day(0), True),
    (_words(rf"(?:{any_of(THIS)}) (?P<part>{_PART})"), _this_part, True),
    *((_words(form.format(unit=_UNIT)), _last_unit, True) for form in LAST),
    (_words(rf"(?:{any_of(THIS)}) (?P<unit>{_UNIT})"), _this_unit, True),
    (
        _words(
            rf"(?:(?P<in>{_IN}) )?(?P<last>last |vorigen |letzten |letzter |afgelopen |vorige )?"
            rf"(?P<weekday>{_WEEKDAY})(?: dernier| passe| pasado| scorso| passada| passado)?"
        ),
        _weekday,
        True,
    ),
    (_words(any_of(RECENT)), _recent, True),
    (_words(rf"(?:in|en|im jahr|im jahre|nel|em|anno) ({_YEAR})"), _year, False),
)

"""Days and spans of time that a text names: "last week", "hier", "in March"; "by Friday".

`time_spans` reads questions about the past. A span raises the rank of turns inside it and never
excludes others: people misremember when something was said, and a date in a question is often about
something else. `days` reads due dates, relative to when they were said. Both understand English,
French, German, Spanish, Italian, Portuguese and Dutch.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import cache, partial
from typing import TypeVar

import msgspec

from ragmem.memory import date_words as words
from ragmem.memory.date_words import any_of
from ragmem.memory.facts.words import TOPICAL
from ragmem.memory.recall import TimeSpan
from ragmem.terms import guess_language, query_terms
from ragmem.text import Regex

T = TypeVar("T")

_LONGEST_READ = 2_000


class Day(msgspec.Struct, frozen=True):
    """A future day that a text names."""

    day: date
    text: str
    """The words as written."""
    start: int
    end: int
    """Their position in the text (NFC)."""

    def at(self, now: datetime) -> datetime:
        """Return its noon in the time zone of `now`, which is the same day in most other zones."""
        return datetime.combine(self.day, time(12), now.tzinfo)


def time_spans(question: str, now: datetime) -> tuple[TimeSpan, ...]:
    """Return the intervals that a question names, relative to `now` in the user's time zone.

    They are in the order of the words. A `now` without a time zone is taken as UTC.
    """
    now = now if now.tzinfo else now.replace(tzinfo=UTC)
    text = _plain(question[:_LONGEST_READ])
    if not may_name_a_time(text):
        return ()
    # The French "hier" (yesterday) means "here" in German and Dutch.
    is_here = guess_language(question) in ("german", "dutch")
    found: list[tuple[int, TimeSpan]] = []
    for match, span in _scan(text, _past_readers(), now):
        if is_here and match.group().startswith("hier"):
            continue
        # A preposition is left to `_ranges`, for "since" and "between".
        lead = len(match.groupdict().get("in") or "")
        at = match.start() + lead + (1 if lead else 0)
        placed = TimeSpan(
            start_at=_in_utc(span.start, now, span.elapsed),
            end_at=_in_utc(span.end, now, span.elapsed),
            confidence=span.confidence,
            text=text[at : match.end()],
            relative=span.relative,
        )
        found.append((at, placed))
    found.sort(key=lambda pair: pair[0])
    return _ranges(text, found, now)


def days(text: str, now: datetime) -> list[Day]:
    """Return the future days that a text names, in its order; `now` is in the user's time zone."""
    text = unicodedata.normalize("NFC", text)[:_LONGEST_READ]
    found = [
        Day(day, text[match.start() : match.end()], match.start(), match.end())
        for match, day in _scan(_plain(text), _due_readers(), now)
    ]
    return sorted(found, key=lambda day: day.start)


def may_name_a_time(plain: str) -> bool:
    """Whether a lowercase text without accents has a digit or a word of a time expression."""
    if _DIGIT.search(plain):
        return True
    return not words.TELLING.isdisjoint(_WORD.findall(plain))


def without_time_words(question: str, spans: Sequence[TimeSpan]) -> str:
    """Return the question without its relative time words, which are not worth searching for."""
    return _without(question, [span for span in spans if span.relative])


def names_only_time(question: str, spans: Sequence[TimeSpan]) -> bool:
    """Whether a question asks about a time and nothing else: "what happened on Tuesday?"."""
    if not spans:
        return False
    left = query_terms(_without(question, spans))
    return {term.term for term in left if term.kind in TOPICAL} <= words.ANYTHING


def prepare() -> None:
    """Compile the expressions of `time_spans`, which takes longer than reading a short question."""
    _past_readers()


_DIGIT = Regex(r"\d")
_WORD = Regex(r"[^\W\d_]+")


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
    # Character by character, so that positions stay the same.
    text = unicodedata.normalize("NFC", text).replace("’", "'")
    return "".join((unicodedata.normalize("NFD", c)[0].lower() or c)[:1] for c in text)


def _in_utc(moment: datetime, now: datetime, elapsed: bool) -> datetime:
    """Return a local moment in UTC.

    If `now` is in the system's zone it has only today's offset, while a day in another season
    begins by that season's: so the system converts it.
    """
    is_fixed = isinstance(now.tzinfo, timezone) and not elapsed
    try:
        is_here = is_fixed and now.astimezone().utcoffset() == now.utcoffset()
        return (moment if is_here else moment.replace(tzinfo=now.tzinfo)).astimezone(UTC)
    except (OverflowError, ValueError):
        return moment.replace(tzinfo=UTC)


# --- reading ---------------------------------------------------------------------

_Reader = Callable[[re.Match[str], datetime], T | None]
"""Takes a match and the local time without its zone; raises ValueError for an impossible day."""
_Readers = tuple[tuple[re.Pattern[str], _Reader[T]], ...]
"""Patterns with their readers, the most specific first."""


def _scan(text: str, readers: _Readers[T], now: datetime) -> Iterator[tuple[re.Match[str], T]]:
    now = now.replace(tzinfo=None)
    taken = bytearray(len(text) + 1)
    for pattern, read in readers:
        for match in pattern.finditer(text):
            start, end = match.span()
            if any(taken[start:end]):
                continue
            try:
                found = read(match, now)
            except (ValueError, OverflowError):  # The 31st of February; a million years ago.
                continue
            if found is not None:
                taken[start:end] = b"\1" * (end - start)
                yield match, found


_N = rf"(?P<n>\d{{1,3}}|{any_of(words.NUMBERS)}|{any_of(words.FEW)})"
_UNIT = rf"(?P<unit>{any_of(words.UNITS)})"
_MONTH = rf"(?P<month>{any_of(words.MONTHS)})"
_WEEKDAY = rf"(?P<weekday>{any_of(words.WEEKDAYS)})"
_PART = rf"(?P<part>{any_of(words.DAY_PARTS)})"
_YEAR = r"(?:19|20)\d\d"
_DAYS = {"minute": 0, "hour": 0, "day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}


def _count(number: str) -> int:
    return int(number) if number.isdigit() else {**words.NUMBERS, **words.FEW}[number]


def _month_start(months: int) -> date:
    """Return the first day of a month, counted in months from the year 0."""
    return date(months // 12, months % 12 + 1, 1)


def _months(day: date) -> int:
    return day.year * 12 + day.month - 1


def _month_end(months: int) -> date:
    return _month_start(months + 1) - timedelta(days=1)


_ReadDay = Callable[..., tuple[date, float]]
"""Reads an absolute date: the day, and how certain it is. `due`: a future day, else a past one."""


def _iso(match: re.Match[str], today: date, *, due: bool) -> tuple[date, float]:
    return date(int(match[1]), int(match[2]), int(match[3])), 0.95


def _slashed(match: re.Match[str], today: date, *, due: bool) -> tuple[date, float]:
    """Read the day first, as in most countries; the month first if only that is a valid date."""
    first, second, year = int(match[1]), int(match[2]), int(match[3])
    if second > 12:
        first, second = second, first
    sure = 0.8 if first > 12 or first == second else 0.5
    return date(year + 2000 if year < 100 else year, second, first), sure


def _named(match: re.Match[str], today: date, *, due: bool) -> tuple[date, float]:
    """Read a day of a month; without a year, the next one if it is due, else the latest one."""
    day, month = int(match["day"]), words.MONTHS[match["month"]]
    if match["year"]:
        return date(int(match["year"]), month, day), 0.95
    return _of_any_year(day, month, today, due=due)


def _without_year(match: re.Match[str], today: date, *, due: bool) -> tuple[date, float]:
    """Read a day and month as German and French write them: "am 3.12.", "le 3/12"."""
    return _of_any_year(int(match[1]), int(match[2]), today, due=due)


def _of_any_year(day: int, month: int, today: date, *, due: bool) -> tuple[date, float]:
    if due:
        this_year = date(today.year, month, day)
        return (this_year if this_year >= today else date(today.year + 1, month, day)), 0.9
    year = today.year if (month, day) <= (today.month, today.day) else today.year - 1
    return date(year, month, day), 0.9


def _behind(*before: str) -> str:
    return "|".join(rf"(?<=\b{word} )" for word in before)


_OF_WEEK = rf"(?:(?:{any_of(words.WEEKDAYS)}),? (?:the |den |dem |der |le )?)?"
"""Of "Friday, December 11" the date tells which one."""
_NUMBERED = (
    (rf"{_OF_WEEK}({_YEAR})-(\d\d)-(\d\d)", _iso),
    (rf"{_OF_WEEK}(\d{{1,2}})[/.](\d{{1,2}})[/.]((?:19|20)?\d\d)", _slashed),
    # Only after these words: "3.12." may be a version at the end of a sentence, "3/12" a part.
    (
        rf"{_OF_WEEK}(?:{_behind('am', 'zum', 'bis', 'vom', 'den', 'dem')})"
        r"(\d{1,2})\.(\d{1,2})\.",
        _without_year,
    ),
    (rf"{_OF_WEEK}(?:{_behind('le', 'au', 'du')})(\d{{1,2}})/(\d{{1,2}})(?!/)", _without_year),
)
_NAMED = (
    rf"{_OF_WEEK}(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|\.|o|º)?(?: of| de| di)? {_MONTH}"
    rf"(?:,? (?:de |del )?(?P<year>{_YEAR}))?",
    rf"{_OF_WEEK}{_MONTH}\.? (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<year>{_YEAR}))?",
)


# --- past intervals ----------------------------------------------------------------


class _Span(msgspec.Struct, frozen=True):
    """An interval in local time, not yet converted to UTC."""

    start: datetime
    end: datetime
    confidence: float
    relative: bool = True
    elapsed: bool = False
    """Whether it is elapsed time counted from now, regardless of daylight saving changes."""


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time())


def _from_day(day: date, confidence: float, *, count: int = 1, relative: bool = True) -> _Span:
    end = _midnight(day + timedelta(days=count))
    return _Span(_midnight(day), end, confidence, relative)


def _whole_months(first: int, sure: float, *, count: int = 1, relative: bool = False) -> _Span:
    start, end = _midnight(_month_start(first)), _midnight(_month_start(first + count))
    return _Span(start, end, sure, relative)


def _past_day(read: _ReadDay, match: re.Match[str], now: datetime) -> _Span | None:
    day, confidence = read(match, now.date(), due=False)
    return _from_day(day, confidence, relative=False)


def _named_month(match: re.Match[str], now: datetime) -> _Span | None:
    month = words.MONTHS[match["month"]]
    if match["year"]:
        return _whole_months(int(match["year"]) * 12 + month - 1, 0.9)
    if match["month"] in words.SHY and not match["in"]:
        return None
    year = now.year if month <= now.month else now.year - 1
    return _whole_months(year * 12 + month - 1, 0.8 if match["in"] else 0.5)


def _year(match: re.Match[str], now: datetime) -> _Span | None:
    year = int(match[1])
    return None if year > now.year else _whole_months(12 * year, 0.6, count=12)


def _duration(unit: str, count: int) -> timedelta:
    return count * timedelta(**{f"{unit}s": 1})


def _ago(match: re.Match[str], now: datetime) -> _Span:
    unit, count = words.UNITS[match["unit"]], _count(match["n"])
    if unit in ("minute", "hour"):
        step = _duration(unit, count)
        margin = max(step / 2, timedelta(minutes=10))
        end = min(now, now - step + margin)
        return _Span(now - step - margin, end, 0.8, elapsed=True)
    vague = match["n"] in words.FEW
    size = _DAYS[unit]
    spread = size // 2 + (size * count // 4 + 1 if vague else 0)
    first = now.date() - timedelta(days=count * size + spread)
    return _from_day(first, 0.6 if vague else 0.85, count=2 * spread + 1)


def _past_units(match: re.Match[str], now: datetime) -> _Span:
    unit, count = words.UNITS[match["unit"]], _count(match["n"] or "1")
    if unit in ("minute", "hour"):
        return _Span(now - _duration(unit, count), now, 0.7, elapsed=True)
    return _Span(_midnight(now.date() - timedelta(days=count * _DAYS[unit])), now, 0.7)


def _whole_unit(step: int, confidence: float, match: re.Match[str], now: datetime) -> _Span:
    """Return the calendar week, month or other unit that is `step` away from the current one."""
    unit, today = words.UNITS[match["unit"]], now.date()
    match unit:
        case "week":
            monday = today - timedelta(days=today.weekday() - 7 * step)
            return _from_day(monday, confidence, count=7)
        case "month":
            return _whole_months(_months(today) + step, confidence, relative=True)
        case "year":
            return _whole_months(12 * (today.year + step), confidence, count=12, relative=True)
        case "weekend":
            # The current or latest one; with "last", the latest that is over.
            saturday = today - timedelta(days=(today.weekday() - 5) % 7)
            if step and today - saturday < timedelta(days=2):
                saturday -= timedelta(days=7)
            return _from_day(saturday, confidence, count=2)
        case "day":
            return _from_day(today + timedelta(days=step), confidence)
        case _:
            return _Span(now - _duration(unit, 1), now, confidence, elapsed=True)


def _days_back(back: int, match: re.Match[str], now: datetime, *, part: str = "") -> _Span:
    day, part = now.date() - timedelta(days=back), part or match.groupdict().get("part") or ""
    if not part:
        return _from_day(day, 0.9)
    start, end = (_midnight(day) + timedelta(hours=hour) for hour in words.DAY_PARTS[part])
    return _Span(start, end, 0.85)


def _past_weekday(match: re.Match[str], now: datetime) -> _Span | None:
    name = match["weekday"]
    if name in words.SHY and not (match["in"] or match["last"]):
        return None
    back = (now.weekday() - words.WEEKDAYS[name] - 1) % 7 + 1
    return _from_day(now.date() - timedelta(days=back), 0.75)


@cache
def _past_readers() -> _Readers[_Span]:
    lead = rf"(?:(?P<in>{any_of(words.PREPOSITIONS)}) )?"
    part = rf"(?:,? (?:in the |au |dans l'|en la |por la |a |de |){_PART})?"
    yesterday, this = f"(?:{any_of(words.YESTERDAY)})", f"(?:{any_of(words.THIS)})"
    forms: list[tuple[str, _Reader[_Span]]] = [
        *((form, partial(_past_day, read)) for form, read in _NUMBERED),
        (
            rf"({_YEAR})-(0[1-9]|1[0-2])",
            lambda match, now: _whole_months(int(match[1]) * 12 + int(match[2]) - 1, 0.7),
        ),
        *((form, partial(_past_day, _named)) for form in _NAMED),
        (rf"{lead}{_MONTH}(?:,? (?:de |del |of )?(?P<year>{_YEAR}))?", _named_month),
        *((form.format(n=_N, unit=_UNIT), _ago) for form in words.AGO),
        *((form.format(n=_N, unit=_UNIT), _past_units) for form in words.PAST),
        (any_of(words.BEFORE_YESTERDAY), partial(_days_back, 2)),
        (any_of(words.LAST_NIGHT), partial(_days_back, 1, part="night")),
        (rf"{yesterday}{part}", partial(_days_back, 1)),
        (rf"{_PART} (?:de |d'|di |of )?{yesterday}", partial(_days_back, 1)),
        (rf"(?:{any_of(words.TODAY)}){part}", partial(_days_back, 0)),
        (rf"{this} {_PART}", partial(_days_back, 0)),
        *((form.format(unit=_UNIT), partial(_whole_unit, -1, 0.8)) for form in words.LAST),
        (rf"{this} {_UNIT}", partial(_whole_unit, 0, 0.7)),
        (
            rf"{lead}(?P<last>last |vorigen |letzten |letzter |afgelopen |vorige )?{_WEEKDAY}"
            "(?: dernier| passe| pasado| scorso| passada| passado)?",
            _past_weekday,
        ),
        (
            any_of(words.RECENT),
            lambda match, now: _Span(_midnight(now.date() - timedelta(days=14)), now, 0.35),
        ),
        (rf"(?:in|en|im jahr|im jahre|nel|em|anno) ({_YEAR})", _year),
    ]
    return tuple((re.compile(rf"(?<!\w)(?:{form})(?!\w)"), read) for form, read in forms)


_ARTICLE = "(?:the |le |la |el |il |lo |o |dem |l')?$"
_RANGE = Regex(
    rf"(?:between|entre|zwischen|tra|fra|tussen|from|du|de|von|vom|desde|dal|van)\s{_ARTICLE}"
)
_AND = Regex(r"\s(?:and|et|und|y|e|en|to|a|au|bis|bis zum|hasta|ate|al|tot)\s(?:the |le |el )?")
_SINCE = Regex(
    r"(?:since|after|depuis|apres|seit|nach|desde|despues de|dopo|depois de|sinds|na)"
    rf"\s{_ARTICLE}"
)
_UNTIL = Regex(
    r"(?:before|until|avant|jusqu'a|vor|bis|antes de|hasta|prima di|ate|voor|tot)"
    rf"\s{_ARTICLE}"
)


def _ranges(text: str, found: list[tuple[int, TimeSpan]], now: datetime) -> tuple[TimeSpan, ...]:
    """Join the two ends of a range; open intervals after "since" and before "before"."""
    out: list[TimeSpan] = []
    replace = msgspec.structs.replace
    i = 0
    while i < len(found):
        at, span = found[i]
        i += 1
        before = text[max(0, at - 24) : at]
        next_at, other = found[i] if i < len(found) and _RANGE.search(before) else (at, span)
        is_range = _AND.fullmatch(text[at + len(span.text) : next_at])
        if is_range and span.start_at < other.end_at:
            i += 1
            span = replace(
                span,
                end_at=other.end_at,
                confidence=max(span.confidence, other.confidence),
                text=text[at : next_at + len(other.text)],
                relative=span.relative and other.relative,
            )
        elif _SINCE.search(before) and span.start_at < (end_at := now.astimezone(UTC)):
            span = replace(span, end_at=end_at, confidence=span.confidence * 0.6)
        elif _UNTIL.search(before):
            start, sure = span.start_at, span.confidence * 0.4
            start_at = start - timedelta(days=90)
            span = replace(span, start_at=start_at, end_at=start, confidence=sure)
        out.append(span)
    return tuple(out)


# --- due dates ---------------------------------------------------------------------

_SOON_DAYS = 45


def _due_day(read: _ReadDay, match: re.Match[str], now: datetime) -> date | None:
    return read(match, now.date(), due=True)[0]


def _ahead(count: int, match: re.Match[str], now: datetime) -> date:
    return now.date() + timedelta(days=count)


def _next_weekday(match: re.Match[str], now: datetime) -> date:
    """Return the next day of that name; "next" before a day of this week adds a week."""
    ahead = (words.WEEKDAYS[match["weekday"]] - now.weekday() - 1) % 7 + 1
    later = match["before"] == "next" and now.weekday() + ahead < 7
    return now.date() + timedelta(days=ahead + (7 if later else 0))


def _weekday_after(weeks: int, match: re.Match[str], now: datetime) -> date:
    """Return the day of that name in a later week, or weeks after the next one: "Friday week"."""
    weekday, today = words.WEEKDAYS[match["weekday"]], now.date()
    if weeks:
        ahead = (weekday - now.weekday() - 1) % 7 + 1 + 7 * weeks
    else:
        ahead = 7 - now.weekday() + weekday
    return today + timedelta(days=ahead)


def _numbered_weekday(match: re.Match[str], now: datetime) -> date | None:
    """Return the next day of that name and number: "Friday the 4th"; None if there is none soon."""
    weekday, number, today = words.WEEKDAYS[match["weekday"]], int(match["day"]), now.date()
    soon = (today + timedelta(days=ahead) for ahead in range(_SOON_DAYS))
    return next((day for day in soon if (day.weekday(), day.day) == (weekday, number)), None)


def _in_units(match: re.Match[str], now: datetime) -> date | None:
    unit, count, today = words.UNITS[match["unit"]], _count(match["n"]), now.date()
    if unit == "month":
        months = _months(today) + count
        return min(_month_start(months) + timedelta(days=today.day - 1), _month_end(months))
    return None if unit == "weekend" else today + timedelta(days=count * _DAYS[unit])


def _end_of_unit(ahead: int, match: re.Match[str], now: datetime) -> date | None:
    given = match.groupdict()
    ahead, today = (1 if given.get("next") or given.get("after") else ahead), now.date()
    match words.UNITS[match["unit"]]:
        case "week":
            # The working week ends on Friday; after that, the week ends on Sunday.
            friday = today + timedelta(days=4 - today.weekday() + 7 * ahead)
            return friday if friday >= today else today + timedelta(days=6 - today.weekday())
        case "month":
            return _month_end(_months(today) + ahead)
        case "year":
            return date(today.year + ahead, 12, 31)
        case _:
            return None


def _end_of_month(match: re.Match[str], now: datetime) -> date:
    month, year = words.MONTHS[match["month"]], match["year"]
    months = int(year or now.year) * 12 + month - 1
    found = _month_end(months)
    return found if year or found >= now.date() else _month_end(months + 12)


@cache
def _due_readers() -> _Readers[date]:
    to_come, end = f"(?:{words.NEXT})", f"(?:the |la )?(?:{words.END})"
    of_week = rf"(?:(?:of |de la |in der )?{to_come} (?:week|woche)|(?:de )?la semaine {to_come})"
    forms: list[tuple[str, _Reader[date]]] = [
        *((form, partial(_due_day, read)) for form, read in _NUMBERED),
        *((form, partial(_due_day, _named)) for form in _NAMED),
        (rf"{_WEEKDAY},? {of_week}", partial(_weekday_after, 0)),
        (
            rf"(?:{to_come} (?:week|woche)|la semaine {to_come}),? (?:on |am |le )?{_WEEKDAY}",
            partial(_weekday_after, 0),
        ),
        (
            rf"{_WEEKDAY} (?:week|after next|en huit|in (?:einer woche|acht tagen))",
            partial(_weekday_after, 1),
        ),
        (rf"(?:a week from|ubernachsten) {_WEEKDAY}", partial(_weekday_after, 1)),
        (
            rf"{_WEEKDAY},? (?:the |den |dem |le )?(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.(?=\s))?"
            r"(?! ?(?:[:h]|am\b|pm\b|uhr|heures|o'clock))",
            _numbered_weekday,
        ),
        (
            rf"{end} (?:of |du |de la |de l'|de |des )?"
            rf"(?:the |(?:this|the|ce|cette|la|le|du|de la|de l') )?(?P<next>{to_come} )?{_UNIT}"
            rf"(?P<after> {to_come})?",
            partial(_end_of_unit, 0),
        ),
        (rf"{end} (?:of |d'|de )?{_MONTH}(?: (?P<year>{_YEAR}))?", _end_of_month),
        (any_of(words.AFTER_TOMORROW), partial(_ahead, 2)),
        (any_of(words.TOMORROW), partial(_ahead, 1)),
        (any_of((*words.TODAY, *words.END_OF_DAY)), partial(_ahead, 0)),
        (rf"(?:in|within|dans|sous|d'ici|en|binnen|innerhalb von) {_N} {_UNIT}", _in_units),
        (rf"(?:la |le |l')?{to_come} {_UNIT}", partial(_end_of_unit, 1)),
        (rf"(?:la |le |l')?{_UNIT} {to_come}", partial(_end_of_unit, 1)),
        (
            rf"(?:(?P<before>next|this|ce|nachsten|kommenden) )?{_WEEKDAY}(?: {to_come})?",
            _next_weekday,
        ),
    ]
    # Not inside a path or a hyphenated word.
    return tuple((re.compile(rf"(?<![\w/-])(?:{form})(?![\w/])"), read) for form, read in forms)

"""Time words of a question as intervals; days to come are tested with the facts."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from ragmem.memory.date_words import DAY_PARTS, MONTHS, RECENT, UNITS, WEEKDAYS
from ragmem.memory.dates import may_name_a_time, names_only_time, time_spans, without_time_words

PARIS = ZoneInfo("Europe/Paris")
NOW = datetime(2026, 3, 18, 15, 30, tzinfo=PARIS)  # A Wednesday.


ODDS = (
    "last 999 years ago between and 9999-12-31 0001-01-01 since yesterday in 1900 day few before "
    "night il y a vor weeks 31/12/9999 march the past İ ß"
)
ODD_WORDS = tuple(ODDS.split())


def shown(question: str, now: datetime = NOW) -> list[str]:
    return [
        " to ".join(
            at.astimezone(now.tzinfo).strftime("%Y-%m-%d %H:%M").removesuffix(" 00:00")
            for at in (span.start_at, span.end_at)
        )
        for span in time_spans(question, now)
    ]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("what did I say yesterday about tabs", "2026-03-17 to 2026-03-18"),
        ("the day before yesterday", "2026-03-16 to 2026-03-17"),
        ("what did we do last week", "2026-03-09 to 2026-03-16"),
        ("this week", "2026-03-16 to 2026-03-23"),
        ("last month", "2026-02-01 to 2026-03-01"),
        ("last weekend", "2026-03-14 to 2026-03-16"),
        ("Was haben wir am 3.2. gemacht?", "2026-02-03 to 2026-02-04"),
        ("Was war vom 3.2. bis zum 5.2.?", "2026-02-03 to 2026-02-06"),
        ("Qu'avons-nous fait le 03/02 ?", "2026-02-03 to 2026-02-04"),
        ("what did we do on Friday, March 6?", "2026-03-06 to 2026-03-07"),
        ("Was war am Freitag, dem 6.3. los?", "2026-03-06 to 2026-03-07"),
        ("in March", "2026-03-01 to 2026-04-01"),
        ("in May", "2025-05-01 to 2025-06-01"),
        ("in december 2024", "2024-12-01 to 2025-01-01"),
        ("two days ago", "2026-03-16 to 2026-03-17"),
        ("a couple of weeks ago", "2026-02-25 to 2026-03-12"),
        ("3 hours ago", "2026-03-18 11:00 to 2026-03-18 14:00"),
        ("two weekends ago", "2026-03-01 to 2026-03-08"),
        ("in the last 3 days", "2026-03-15 to 2026-03-18 15:30"),
        ("this morning", "2026-03-18 04:00 to 2026-03-18 12:00"),
        ("yesterday evening", "2026-03-17 17:00 to 2026-03-18"),
        ("last night", "2026-03-17 19:00 to 2026-03-18 06:00"),
        ("on Monday", "2026-03-16 to 2026-03-17"),
        ("last Wednesday", "2026-03-11 to 2026-03-12"),
        ("on 2026-03-04", "2026-03-04 to 2026-03-05"),
        ("4th of March", "2026-03-04 to 2026-03-05"),
        ("March 31st", "2025-03-31 to 2025-04-01"),
        ("04.03.2026", "2026-03-04 to 2026-03-05"),
        ("12/25/2025", "2025-12-25 to 2025-12-26"),
        ("between March 3 and March 9", "2026-03-03 to 2026-03-10"),
        ("between January and February", "2026-01-01 to 2026-03-01"),
        ("since January", "2026-01-01 to 2026-03-18 15:30"),
        ("in 2025", "2025-01-01 to 2026-01-01"),
        ("qu'a-t-on fait le mois dernier ?", "2026-02-01 to 2026-03-01"),
        ("la semaine dernière", "2026-03-09 to 2026-03-16"),
        ("hier soir on a dit quoi", "2026-03-17 17:00 to 2026-03-18"),
        ("avant-hier", "2026-03-16 to 2026-03-17"),
        ("il y a trois semaines", "2026-02-22 to 2026-03-01"),
        ("lundi dernier", "2026-03-16 to 2026-03-17"),
        ("le 4 mars 2026", "2026-03-04 to 2026-03-05"),
        ("was war gestern Abend", "2026-03-17 17:00 to 2026-03-18"),
        ("heute morgen", "2026-03-18 04:00 to 2026-03-18 12:00"),
        ("vor zwei Wochen", "2026-03-01 to 2026-03-08"),
        ("letzte Woche", "2026-03-09 to 2026-03-16"),
        ("qué dije ayer", "2026-03-17 to 2026-03-18"),
        ("hace 3 días", "2026-03-15 to 2026-03-16"),
        ("el mes pasado", "2026-02-01 to 2026-03-01"),
        ("due giorni fa", "2026-03-16 to 2026-03-17"),
        ("il mese scorso", "2026-02-01 to 2026-03-01"),
        ("na semana passada", "2026-03-09 to 2026-03-16"),
        ("de vorige week", "2026-03-09 to 2026-03-16"),
    ],
)
def test_words_mean_an_interval(question: str, expected: str) -> None:
    """In the person's time zone, half-open."""
    assert shown(question) == [expected]


@pytest.mark.parametrize(
    "question",
    [
        "may I ask why redis", "we march on with the sun",
        "hier ist das nicht so, wie war der Name", "error 404 at line 2026", "the last deploy",
        "version 1.2.3 of 10.0.0.1", "February 31, 2026-02-31", "",
        "is it Python 3.12. or 3.11.", "3/12 of them",
    ],
)  # fmt: skip
def test_other_words_mean_none(question: str) -> None:
    """A boost where none was meant would hide the answer."""
    assert [s for s in shown(question) if "2026-02-01" not in s] == []


def test_several_intervals_stay_in_the_order_of_the_words() -> None:
    """The best one counts."""
    assert shown("was it yesterday or last week?") == [
        "2026-03-17 to 2026-03-18",
        "2026-03-09 to 2026-03-16",
    ]


def test_sure_words_are_surer_than_vague_ones() -> None:
    """The boost goes by confidence."""

    def confidence(question: str) -> float:
        return time_spans(question, NOW)[0].confidence

    assert confidence("on 2026-03-04") > confidence("last week") > confidence("since January")
    assert confidence("two weeks ago") > confidence("a few weeks ago") > confidence("recently")
    assert confidence("13/04/2025") > confidence("03/04/2025")


def test_days_are_those_of_the_person() -> None:
    """Yesterday in Tokyo begins before yesterday in Lima; summer time counts."""
    tokyo = NOW.astimezone(ZoneInfo("Asia/Tokyo"))
    lima = NOW.astimezone(ZoneInfo("America/Lima"))
    assert time_spans("yesterday", tokyo)[0].start_at < time_spans("yesterday", lima)[0].start_at
    after_change = datetime(2026, 3, 30, 12, tzinfo=PARIS)
    (day,) = time_spans("yesterday", after_change)
    assert (day.end_at - day.start_at).total_seconds() == 23 * 3600
    assert time_spans("today", datetime(2026, 3, 1))[0].start_at == datetime(2026, 3, 1, tzinfo=UTC)


def test_relative_words_are_not_looked_for() -> None:
    """ "Yesterday" finds the turns that say "yesterday", which are not those of the day."""
    for question, expected in (
        ("what did I say yesterday about tabs", "what did I say about tabs"),
        ("qu'a décidé Éloïse la semaine dernière ?", "qu'a décidé Éloïse ?"),
        ("what broke on 2026-03-04", "what broke on 2026-03-04"),
        ("in March what", "in March what"),
    ):
        left = without_time_words(question, time_spans(question, NOW))
        assert " ".join(left.split()) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("what happened on Tuesday?", True), ("what did we do yesterday", True),
        ("what happened on Friday, March 6?", True),
        ("What did we talk about on 2026-03-04?", True), ("recap of last week", True),
        ("in March", True), ("qu'a-t-on fait hier ?", True), ("que s'est-il passé mardi ?", True),
        ("was haben wir gestern gemacht?", True), ("¿qué hicimos ayer?", True),
        ("cosa è successo la settimana scorsa?", True), ("o que fizemos ontem?", True),
        ("wat hebben we gisteren gedaan?", True),
        ("what did we decide about retries last week", False),
        ("pourquoi le déploiement a échoué hier", False),
        ("what broke in main.py on 2026-03-04", False), ("what did we do", False), ("", False),
    ],
)  # fmt: skip
def test_a_question_may_name_a_time_and_nothing_else(question: str, expected: bool) -> None:
    """Then there is nothing to look for but the time."""
    assert names_only_time(question, time_spans(question, NOW)) is expected


@given(
    st.text() | st.lists(st.sampled_from(ODD_WORDS)).map(" ".join),
    st.datetimes(timezones=st.sampled_from([UTC, PARIS, ZoneInfo("Pacific/Apia")])),
)
def test_no_question_breaks_it(question: str, now: datetime) -> None:
    """Any text at any time."""
    spans = time_spans(question, now)
    for span in spans:
        assert span.start_at.tzinfo is UTC
        assert 0 < span.confidence <= 1
    without_time_words(question, spans)
    names_only_time(question, spans)


@pytest.fixture
def in_paris(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in Paris: of a moment the system tells the offset, and no more."""
    with monkeypatch.context() as place:
        place.setenv("TZ", "Europe/Paris")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_paris")
@pytest.mark.parametrize(
    ("question", "now", "start", "end"),
    [
        ("what did we do on 5 July?", "2026-11-27 09:00", "2026-07-04 22:00", "2026-07-05 22:00"),
        ("and in January 2026?", "2026-07-20 09:00", "2025-12-31 23:00", "2026-01-31 23:00"),
        # Days of 25 and of 23 hours.
        ("what broke yesterday?", "2026-10-26 09:00", "2026-10-24 22:00", "2026-10-25 23:00"),
        ("what broke yesterday?", "2026-03-30 09:00", "2026-03-28 23:00", "2026-03-29 22:00"),
        ("what did I say 2 hours ago?", "2026-10-25 02:30", "2026-10-24 23:30", "2026-10-25 01:30"),
    ],
)
def test_a_day_of_another_season_begins_by_its_own_clock(
    question: str, now: str, start: str, end: str
) -> None:
    at, started, ended = (datetime.fromisoformat(f"{each}+00:00") for each in (now, start, end))
    (span,) = time_spans(question, at.astimezone())
    assert (span.start_at, span.end_at) == (started, ended)


def test_what_names_no_time_is_not_looked_at() -> None:
    """Expressions are only compiled for a question that may name one."""
    for text in (*UNITS, *MONTHS, *WEEKDAYS, *DAY_PARTS, *RECENT):
        assert may_name_a_time(f"x {text} y"), text
    assert not may_name_a_time("where is the lease renewed")
    assert time_spans("Where is the lease renewed?", NOW) == ()

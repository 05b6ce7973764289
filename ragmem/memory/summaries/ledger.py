"""What background calls cost each session, and all of them each day, over all processes of a home.

A line of JSON a call in a small file of its own: a call that left no summary left no
record in the store either, so without this each new process would begin at nought. A model
that does not answer has a line too: all processes leave it alone for a while.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec

from ragmem.config import SummariesConfig
from ragmem.errors import StoreUnavailable
from ragmem.files import append_line, replace_private
from ragmem.llm.base import ModelInfo, UsageChunk
from ragmem.llm.providers import BY_NAME
from ragmem.locks import lock
from ragmem.text import estimate_tokens

_EXPECTED_OUTPUT_TOKENS = 300


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """Background calls made for one session's summaries, and what came of them."""

    calls: int = 0
    failed_calls: int = 0
    """Nothing came, or nothing that could be used."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    """Estimated where the provider reports no tokens."""
    unpriced_calls: int = 0
    """Of models whose price is not known: not in `cost_usd`."""
    summaries: int = 0
    extractive: int = 0
    """Of `summaries`: those that were cut from the turns."""
    problem: str = ""
    """Why the last failed call failed."""

    def __add__(self, other: "Spending") -> "Spending":
        """Both together; the other one's problem is the newer."""
        return Spending(
            calls=self.calls + other.calls,
            failed_calls=self.failed_calls + other.failed_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
            summaries=self.summaries + other.summaries,
            extractive=self.extractive + other.extractive,
            problem=other.problem or self.problem,
        )


def is_free(info: ModelInfo) -> bool:
    """Whether the model costs nothing: it runs on the person's own machine."""
    prefix = info.name.partition("/")[0]
    provider = BY_NAME.get(prefix)
    return prefix == "local" or (provider is not None and provider.local)


def one_call(
    info: ModelInfo, sent_chars: int, said_chars: int, usage: UsageChunk, *, problem: str = ""
) -> Spending:
    """What a call cost, as reported or else estimated by characters."""
    into, out = usage.input_tokens, usage.output_tokens
    into = estimate_tokens(sent_chars) if into is None else into
    out = estimate_tokens(said_chars) if out is None else out
    cost = 0.0 if is_free(info) else info.cost_usd(into, out, usage.cached_tokens)
    return Spending(
        calls=1,
        failed_calls=1 if problem else 0,
        input_tokens=into,
        output_tokens=out,
        cost_usd=cost or 0.0,
        unpriced_calls=1 if cost is None else 0,
        problem=problem,
    )


def is_day_spent(
    today_usd: float, config: SummariesConfig, info: ModelInfo, sent_chars: int
) -> bool:
    """Whether one more call would be more than all sessions together may cost in a day."""
    if is_free(info):
        return False
    return today_usd + _expected(info, sent_chars) > config.max_cost_usd_per_day


def day_spent_text(config: SummariesConfig) -> str:
    """For the person."""
    return (
        f"Background work has cost today what it may (${config.max_cost_usd_per_day:,.2f}): until "
        "tomorrow summaries are cut from the turns, and no facts are looked for. "
        "memory.summaries.max_cost_usd_per_day sets it."
    )


def _expected(info: ModelInfo, sent_chars: int) -> float:
    return info.cost_usd(estimate_tokens(sent_chars), _EXPECTED_OUTPUT_TOKENS) or 0.0


def may_call(spent: Spending, config: SummariesConfig, info: ModelInfo, sent_chars: int) -> bool:
    """Whether one more call stays within the session's limits."""
    if is_free(info):
        return True
    expected = _expected(info, sent_chars)
    return (
        spent.calls < config.max_calls_per_session
        and spent.cost_usd + expected <= config.max_cost_usd_per_session
    )


FILE = "spending.jsonl"
_LARGEST_BYTES = 500_000
"""Then the lines of a session become one."""
_NAME_CHARS = 16
_KEPT_DAYS = 31
_PATIENCE_S = 0.5
_LET_PASS = 3
"""Calls in a row that come to nothing, before a model is left alone."""
_FIRST_PAUSE = timedelta(minutes=2)
_LONGEST_PAUSE = timedelta(days=1)
_MOST_DOUBLED = 10
_PROBLEM_CHARS = 300


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    s: str = ""
    """Stands for the session: its id is not kept, so that nothing of a deleted one is. Empty: of
    all sessions of a day."""
    n: int = 0
    usd: float = 0.0
    i: int = 0
    o: int = 0
    """Tokens of a session's calls, in and out."""
    u: int = 0
    """Calls of a session whose price is not known."""
    d: str = ""
    """The day, where the person is; empty: that of sessions, of many days together."""
    m: str = ""
    """A model that does not answer; `n` of its calls in a row came to nothing."""
    at: float = 0.0
    """Before this time it is not asked again."""
    why: str = ""


class Away(msgspec.Struct, frozen=True):
    """A model that could not be asked."""

    model: str
    failures: int
    until: datetime
    """It is left alone until then."""
    problem: str


class _Sums:
    """Lines added up."""

    def __init__(self) -> None:
        self.sessions: dict[str, _Line] = {}
        self.days: dict[str, float] = {}
        self.models: dict[str, _Line] = {}
        """What was said of each last: those that have answered since have no failures."""

    def add(self, lines: Iterable[_Line]) -> None:
        """A line of a call counts for its session and for its day."""
        for line in lines:
            if line.s:
                self.sessions[line.s] = _sum(self.of(line.s), line)
            if line.d:
                self.days[line.d] = self.days.get(line.d, 0.0) + line.usd
            if line.m:
                self.models[line.m] = line

    def of(self, name: str) -> _Line:
        """A session's."""
        return self.sessions.get(name, _Line(name))

    def lines(self) -> list[_Line]:
        """The same in fewer lines; of days the latest."""
        latest = sorted(self.days)[-_KEPT_DAYS:]
        days = [_Line(usd=self.days[day], d=day) for day in latest]
        away = [line for line in self.models.values() if line.n]
        return [*self.sessions.values(), *days, *away]


class Ledger:
    """Spending by session: that of this process, and of those that share its file.

    Without a file, or where it can't be read or written, it knows of this process alone.
    """

    def __init__(self, file: Path | None = None, *, today: Callable[[], date] = date.today) -> None:
        self._file = file
        self._today = today
        self._own: dict[str, Spending] = {}
        self._kept = _Sums()
        """Of all processes, as far as the file was read."""
        self._unkept = _Sums()
        """Of this process: what the file does not hold."""
        self._read: tuple[int, int] = (0, 0)

    def own(self, session_id: str) -> Spending:
        """What this process spent, and why its last failed call failed."""
        return self._own.get(session_id, Spending())

    def spent(self, session_id: str) -> Spending:
        """What all processes spent: calls, tokens and cost are everybody's, all else its own."""
        self._catch_up()
        name = _name(session_id)
        line = _sum(self._kept.of(name), self._unkept.of(name))
        return msgspec.structs.replace(
            self.own(session_id),
            calls=line.n,
            cost_usd=line.usd,
            input_tokens=line.i,
            output_tokens=line.o,
            unpriced_calls=line.u,
        )

    def spent_today(self) -> float:
        """What all processes spent for all sessions, in dollars."""
        self._catch_up()
        day = self._today().isoformat()
        return self._kept.days.get(day, 0.0) + self._unkept.days.get(day, 0.0)

    def add(self, session_id: str, more: Spending) -> None:
        """Count what was just spent; calls are kept for other processes."""
        self._own[session_id] = self.own(session_id) + more
        if not more.calls:
            return
        day = self._today().isoformat() if more.cost_usd else ""
        line = _Line(
            s=_name(session_id),
            n=more.calls,
            usd=more.cost_usd,
            i=more.input_tokens,
            o=more.output_tokens,
            u=more.unpriced_calls,
            d=day,
        )
        if not self._append(line):
            self._unkept.add([line])

    # --- models that do not answer ----------------------------------------------

    def away(self) -> list[Away]:
        """Models whose last call by any process could not be made."""
        self._catch_up()
        return [
            Away(line.m, line.n, datetime.fromtimestamp(line.at, UTC), line.why)
            for line in (self._kept.models | self._unkept.models).values()
            if line.n
        ]

    def may_ask(self, model: str, now: datetime) -> bool:
        """Whether the pause after its last failure is over."""
        return all(away.model != model or now >= away.until for away in self.away())

    def failed(self, model: str, now: datetime, problem: str, *, tries: int) -> Away:
        """It could not be asked after so many tries: from the third on it is left alone.

        Each time for twice as long, at most for a day, by all processes.
        """
        before = next((away.failures for away in self.away() if away.model == model), 0)
        failures = max(before + 1, tries)
        doubled = min(failures - _LET_PASS, _MOST_DOUBLED)
        pause = min(_FIRST_PAUSE * 2**doubled, _LONGEST_PAUSE) if doubled >= 0 else timedelta()
        away = Away(model, failures, now + pause, problem[:_PROBLEM_CHARS])
        self._note(_Line(n=failures, m=model, at=away.until.timestamp(), why=away.problem))
        return away

    def answered(self, model: str) -> None:
        """It can be asked again."""
        if any(away.model == model for away in self.away()):
            self._note(_Line(m=model))

    def _note(self, line: _Line) -> None:
        if self._append(line):
            self._unkept.models.pop(line.m, None)
        else:
            self._unkept.add([line])

    # --- the file -----------------------------------------------------------------

    def _catch_up(self) -> None:
        """Read what was appended since; all of it where the file was written anew."""
        if self._file is None:
            return
        with suppress(OSError):
            now = self._file.stat()
            known, start = self._read
            if (now.st_ino, now.st_size) == self._read:
                return
            with self._file.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != known:
                    self._kept, start = _Sums(), 0
                file.seek(start)
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._kept.add(_lines(data[:whole]))
            self._read = inode, start + whole

    def _append(self, line: _Line) -> bool:
        """Whether it is in the file."""
        if self._file is None:
            return False
        try:
            handle = lock(self._file, timeout_s=_PATIENCE_S)
            try:
                if append_line(handle, _ENCODER.encode(line)) > _LARGEST_BYTES:
                    self._add_up(self._file)
            finally:
                os.close(handle)
        except (OSError, StoreUnavailable):
            return False
        return True

    @staticmethod
    def _add_up(file: Path) -> None:
        sums = _Sums()
        sums.add(_lines(file.read_bytes()))
        replace_private(file, _ENCODER.encode_lines(sums.lines()), sync=False)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Line)


def _name(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()[:_NAME_CHARS]


def _sum(one: _Line, other: _Line) -> _Line:
    """A session's calls, of two lines."""
    return _Line(
        s=one.s,
        n=one.n + other.n,
        usd=one.usd + other.usd,
        i=one.i + other.i,
        o=one.o + other.o,
        u=one.u + other.u,
    )


def _lines(data: bytes) -> list[_Line]:
    """A torn line costs that line."""
    found = []
    for line in data.splitlines():
        with suppress(msgspec.DecodeError):
            found.append(_DECODER.decode(line))
    return found

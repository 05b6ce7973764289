"""`ragmem stats`: how much is remembered, how fast, how well, and what it cost."""

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

import typer

from ragmem.cli.command import Format, open_app, opens
from ragmem.cli.output import Document, print_one, table
from ragmem.text import bar, counted, hanging, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.metrics.kept import Measured, Timing
    from ragmem.records import StoreInfo

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_SUMMARIES = ("summaries.turn", "summaries.roll_up", "summaries.thread")
_TIMES = (
    ("store_turn", "store a turn", ("store.turn",)),
    ("generate_summary", "make a summary", _SUMMARIES),
    ("semantic_search", "search", ("recall.search",)),
    ("embed_question", "embed a question", ("recall.embed",)),
    ("build_context", "build a context", ("memory.context",)),
)
_WAITING = (("vectors", "without vectors"), ("level1", "not summed up by a model"))
"""What is due for certain; of roll-ups and sessions only some are."""
_SHOWN_DAYS = 14
_NARROWEST = 20
_TIME_COLUMNS = ("MEAN", "P50", "P95", "MAX")
_FEW_TIME_COLUMNS = ("P50", "P95")
_ALL_TIMES = 60
"""A terminal of fewer columns gets the few."""


class TimingDocument(Document, frozen=True, kw_only=True):
    """Times of one thing, in milliseconds; percentiles are a tenth too high at worst."""

    count: int
    mean_ms: float
    p50_ms: float
    p95_ms: float
    max_ms: float


class TokensDocument(Document, frozen=True, kw_only=True):
    """As providers reported them, estimated for background calls where they did not."""

    input: int
    output: int
    cached: int
    background_input: int
    background_output: int
    embedded: int


class DayDocument(Document, frozen=True, kw_only=True):
    """One day's share."""

    day: date
    turns: int
    searches: int
    cost_usd: float


class CodeDocument(Document, frozen=True, kw_only=True):
    """The code index of this folder's project."""

    files: int
    scopes: int
    without_vectors: int
    size_bytes: int


class StatsDocument(Document, frozen=True, kw_only=True):
    """All that is measured; times, tokens and costs since `since`, on this machine."""

    since: date | None
    processes: int
    store: str
    database_size_bytes: int | None
    counts: dict[str, int]
    summaries_per_level: dict[str, int]
    store_turn: TimingDocument
    generate_summary: TimingDocument
    semantic_search: TimingDocument
    embed_question: TimingDocument
    build_context: TimingDocument
    searches: int
    searches_with_hits: int
    semantic_search_success_rate: float | None
    """Searches that found something among all: by a word of the question, or, where one is set,
    above the threshold of similarity. null before the first."""
    file_reads: int
    """By the agent, of files that it may edit."""
    file_reads_again: int
    """Of these, what the same session had read before and nobody has changed since."""
    tokens: TokensDocument
    cost_usd: float
    """Of models whose price is known, background calls among them."""
    unpriced_calls: int
    model_calls: int
    background_calls: int
    background_calls_failed: int
    background_cost_usd: float
    background_cost_usd_today: float = 0.0
    """Of all sessions, in all processes, since midnight."""
    max_cost_usd_per_day: float = 0.0
    """Beyond it background work asks no paid model until tomorrow."""
    pending: dict[str, int]
    """At most a thousand of each are counted: what waits for `vectors`, turns that no model has
    summed up (`level1`), sessions that may be due for a `roll_up` or a summary of their own
    (`thread`), turns that were not looked through for `memories`."""
    background_process: bool
    """Whether a detached process is at work now."""
    days: tuple[DayDocument, ...]
    code: CodeDocument | None = None
    """null where nothing of this folder is indexed."""


@app.command()
@opens(open_app)
async def stats(opened: "App", output: Format = "table") -> None:
    """Show how much is remembered, how fast, how well, at what cost.

    Times, tokens and costs are those of this machine, kept from run to run.
    """
    from ragmem.background import is_at_work
    from ragmem.memory.summaries.ledger import FILE, Ledger
    from ragmem.metrics.kept import read

    paths, store = opened.paths, await opened.store()
    pending = await store.count_pending()
    document = stats_document(
        await store.info(),
        read(paths.data_dir),
        pending={str(work): count for work, count in pending.items()},
        at_work=is_at_work(paths),
        code=await code_document(opened),
        spent_today_usd=Ledger(paths.data_dir / FILE).spent_today(),
        most_a_day_usd=opened.config.memory.summaries.max_cost_usd_per_day,
    )
    today = datetime.now().astimezone().date()
    print_one(
        output,
        lambda: document,
        lambda width: stats_text(document, width=width, today=today),
        pipe=80,
    )


async def code_document(opened: "App") -> CodeDocument | None:
    """How much of this folder's code is indexed."""
    code = await opened.code()
    if code is None or not await code.exists():
        return None
    return CodeDocument.of(await code.status())


def stats_document(
    found: "StoreInfo",
    days: "list[Measured]",
    *,
    pending: dict[str, int],
    at_work: bool,
    code: CodeDocument | None = None,
    spent_today_usd: float = 0.0,
    most_a_day_usd: float = 0.0,
) -> StatsDocument:
    """What the store tells and what was measured, as one document."""
    from ragmem.metrics.kept import Measured, total

    whole = total(days) or Measured(day=date.min, processes=0)

    def count(name: str) -> int:
        return int(whole.count(name))

    searches, hits = count("recall.searches"), count("recall.found")
    return StatsDocument.of(
        found,
        since=days[0].day if days else None,
        processes=whole.processes,
        store=f"{found.kind} {found.location}",
        database_size_bytes=found.size_bytes,
        summaries_per_level={str(n): count for n, count in found.summaries_per_level.items()},
        **{key: _timing_document(whole.timing(*names)) for key, _, names in _TIMES},
        searches=searches,
        searches_with_hits=hits,
        semantic_search_success_rate=hits / searches if searches else None,
        file_reads=count("files.reads"),
        file_reads_again=count("files.reads_again"),
        tokens=TokensDocument(
            input=count("turns.input_tokens"),
            output=count("turns.output_tokens"),
            cached=count("turns.cached_tokens"),
            background_input=count("background.input_tokens"),
            background_output=count("background.output_tokens"),
            embedded=count("embedder.tokens"),
        ),
        cost_usd=_cost(whole),
        unpriced_calls=count("turns.unpriced_calls") + count("background.unpriced_calls"),
        model_calls=count("turns.calls"),
        background_calls=count("background.calls"),
        background_calls_failed=count("background.failed_calls"),
        background_cost_usd=whole.count("background.cost_usd"),
        background_cost_usd_today=spent_today_usd,
        max_cost_usd_per_day=most_a_day_usd,
        pending=pending,
        background_process=at_work,
        days=tuple(
            DayDocument(
                day=each.day,
                turns=each.timing("store.turn").count,
                searches=int(each.count("recall.searches")),
                cost_usd=_cost(each),
            )
            for each in days
        ),
        code=code,
    )


def stats_text(document: StatsDocument, *, width: int, today: date) -> str:
    """For people: numbers, and bars for what is compared."""
    width = max(_NARROWEST, width)
    counts = ", ".join(
        counted(document.counts.get(key, 0), name)
        for key, name in (
            ("sessions", "session"),
            ("turns", "turn"),
            ("tool_calls", "tool call"),
            ("summaries", "summary"),
            ("memories", "memory"),
            ("files", "file"),
        )
    )
    size = document.database_size_bytes
    where = visible(document.store) + (f", {size / 1e6:,.1f} MB" if size else "")
    lines = [*hanging("memory     ", where, width), *hanging(" " * 11, counts, width)]
    if document.code:
        lines += hanging("code       ", _code(document.code), width)
    lines += _bars("summaries", _levels(document), width)
    lines += _bars("turns", _days(document, today), width)
    if document.since:
        processes = f"{document.processes:,} process{'es' * (document.processes != 1)}"
        lines += ["", f"Measured since {document.since}, in {processes}:", ""]
        lines += [*_times(document, width), ""]
    else:
        lines += ["", "Nothing was measured yet.", ""]
    for name, said in _sums(document):
        lines += hanging(f"{name:<10} ", said, width)
    return "\n".join(lines) + "\n"


def _code(code: CodeDocument) -> str:
    missing = f", {code.without_vectors:,} without vectors" if code.without_vectors else ""
    counts = f"{counted(code.files, 'file')}, {counted(code.scopes, 'scope')}{missing}"
    return f"{counts}, {code.size_bytes / 1e6:,.1f} MB"


def _levels(document: StatsDocument) -> list[tuple[str, int]]:
    return [(f"level {level}", n) for level, n in document.summaries_per_level.items()]


def _days(document: StatsDocument, today: date) -> list[tuple[str, int]]:
    """The last days, the empty ones between them too."""
    turns = {each.day: each.turns for each in document.days}
    shown = [today - timedelta(days=back) for back in reversed(range(_SHOWN_DAYS))]
    first = next((i for i, day in enumerate(shown) if turns.get(day)), len(shown))
    return [(f"{day:%a %d %b}", turns.get(day, 0)) for day in shown[first:]]


def _bars(title: str, rows: list[tuple[str, int]], width: int) -> list[str]:
    most = max((count for _, count in rows), default=0)
    label = max((len(name) for name, _ in rows), default=0)
    room = min(50, width - 11 - label - 2 - 10)
    return [
        f"{title if i == 0 else '':<10} {name:<{label}} {count:>8,}  {bar(count, most, room)}"
        for i, (name, count) in enumerate(rows)
    ]


def _times(document: StatsDocument, width: int) -> list[str]:
    kept = _TIME_COLUMNS if width >= _ALL_TIMES else _FEW_TIME_COLUMNS
    rows = []
    for key, name, _ in _TIMES:
        found: TimingDocument = getattr(document, key)
        if found.count:
            times = [f"{getattr(found, f'{column.lower()}_ms'):,.1f}" for column in kept]
            rows.append((name, f"{found.count:,}", *times))
    head = ("TIME (ms)", "COUNT", *kept)
    return table(head, rows, width=width).rstrip("\n").split("\n") if rows else []


def _sums(document: StatsDocument) -> list[tuple[str, str]]:
    rate, tokens = document.semantic_search_success_rate, document.tokens
    found = "none" if rate is None else f"{document.searches:,}, {rate:.0%} found something"
    unpriced = document.unpriced_calls
    failed = document.background_calls_failed
    waiting = [
        f"{document.pending[work]:,}{'+' * (document.pending[work] >= 1000)} {what}"
        for work, what in _WAITING
        if document.pending.get(work)
    ]
    return [
        ("searches", found),
        (
            "reads",
            f"{counted(document.file_reads, 'file')} read, {document.file_reads_again:,} of them "
            "again in the same session and unchanged",
        ),
        (
            "tokens",
            f"{tokens.input:,} in, {tokens.cached:,} of them cached, {tokens.output:,} out, "
            f"{tokens.embedded:,} embedded",
        ),
        (
            "cost",
            f"${document.cost_usd:,.4f}"
            + (f", and {unpriced:,} calls whose price is not known" if unpriced else ""),
        ),
        (
            "background",
            f"{document.background_calls:,} calls"
            + (f", {failed:,} failed" if failed else "")
            + f", ${document.background_cost_usd:,.4f}, "
            f"{tokens.background_input:,} tokens in, {tokens.background_output:,} out"
            + _today(document),
        ),
        (
            "pending",
            (", ".join(waiting) or "nothing")
            + ("; a process is at work on it" if document.background_process else ""),
        ),
    ]


def _today(document: StatsDocument) -> str:
    """What was spent of what a day may cost; nothing where nothing was."""
    spent, most = document.background_cost_usd_today, document.max_cost_usd_per_day
    if not spent:
        return ""
    return f"; ${spent:,.4f} of ${most:,.2f} that a day may cost"


def _cost(found: "Measured") -> float:
    return found.count("turns.cost_usd") + found.count("background.cost_usd")


def _timing_document(found: "Timing") -> TimingDocument:
    return TimingDocument(
        count=found.count,
        mean_ms=round(found.mean_ms, 3),
        p50_ms=round(found.percentile_ms(50), 3),
        p95_ms=round(found.percentile_ms(95), 3),
        max_ms=round(found.max_ms, 3),
    )

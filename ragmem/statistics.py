"""Statistics of usage and of the store, as JSON documents and as text with bar charts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

from ragmem.listings import Document, document, table, waiting_text
from ragmem.text import bar, counted, hanging, in_short, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.records import StoreInfo
    from ragmem.usage import Measured, Timing

_SUMMARIES = ("summaries.turn", "summaries.roll_up", "summaries.thread")
_TIMES = (
    ("store_turn", "store a turn", ("store.turn",)),
    ("generate_summary", "make a summary", _SUMMARIES),
    ("semantic_search", "search", ("recall.search",)),
    ("embed_question", "embed a question", ("recall.embed",)),
    ("build_context", "build a context", ("memory.context",)),
)
_TOKENS = {
    "input": "turns.input_tokens",
    "output": "turns.output_tokens",
    "cached": "turns.cached_tokens",
    "background_input": "background.input_tokens",
    "background_output": "background.output_tokens",
    "embedded": "embedder.tokens",
}
"""Counters of tokens as reported by providers; for background calls estimated if missing."""
_USED = (
    ("turns.input_tokens", "turns.output_tokens"),
    ("background.input_tokens", "background.output_tokens"),
)
_NAME = re.compile(r"[a-z]+(?: [a-z]+)? +")
_PIECES = re.compile(r"[▁▂▃▄▅▆▇█]+|▒+|·{2,}|[^▁▂▃▄▅▆▇█▒·]+|·")
_BAR_STYLES = {"▒": "yellow", "·": "dim"} | dict.fromkeys("▁▂▃▄▅▆▇█", "cyan")
_COUNTED = {
    "sessions": "session",
    "turns": "turn",
    "tool_calls": "tool call",
    "summaries": "summary",
    "memories": "memory",
    "files": "file",
}
_SHOWN_DAYS = 14
_MIN_WIDTH = 20
_TIME_COLUMNS = ("MEAN", "P50", "P95", "MAX")


def day_numbers(days: "list[Measured]") -> list[dict[str, Any]]:
    """Return the measurements of each day, for charts."""
    return [
        {
            "day": each.day.isoformat(),
            "tokens": each.count("turns.input_tokens") + each.count("turns.output_tokens"),
            "background_tokens": each.count("background.input_tokens")
            + each.count("background.output_tokens"),
            "input_tokens": each.count("turns.input_tokens"),
            "cached_tokens": each.count("turns.cached_tokens"),
            "cost_usd": each.count("turns.cost_usd"),
            "background_cost_usd": each.count("background.cost_usd"),
            "searches": each.count("recall.searches"),
            "found": each.count("recall.found"),
            "search_p95_ms": each.timing("recall.search").percentile_ms(95),
            "context_p95_ms": each.timing("memory.context").percentile_ms(95),
            "store_p95_ms": each.timing("store.turn").percentile_ms(95),
        }
        for each in days
    ]


INDEXED = "files scopes without_vectors size_bytes"
"""The fields of an index's status that are included."""


def indexed_text(*, files: int, scopes: int, without_vectors: int, size_bytes: int) -> str:
    """Return the size of a code index in a few words."""
    missing = f", {without_vectors:,} without embeddings" if without_vectors else ""
    counts = f"{counted(files, 'file')}, {counted(scopes, 'scope')}{missing}"
    return f"{counts}, {size_bytes / 1e6:,.1f} MB"


async def stats_of(opened: "App", days: "list[Measured]") -> Document:
    """Return statistics of an app's store and code, and of the measured days; raises StoreError."""
    from ragmem.background import is_at_work

    store, code = await opened.store(), await opened.code()
    return stats_document(
        await store.info(),
        days,
        pending={str(work): count for work, count in (await store.count_pending()).items()},
        at_work=is_at_work(opened.paths),
        code=document(INDEXED, await code.status()) if code and await code.exists() else None,
        spent_today_usd=opened.usage.spent_today(),
        most_a_day_usd=opened.config.memory.summaries.max_cost_usd_per_day,
    )


def stats_document(
    found: "StoreInfo",
    days: "list[Measured]",
    *,
    pending: dict[str, int],
    at_work: bool,
    code: Document | None = None,
    spent_today_usd: float = 0.0,
    most_a_day_usd: float = 0.0,
) -> Document:
    """Return statistics of the store and the measurements as one document.

    Times, tokens and costs are those since `since`, on this machine. `pending` counts at most a
    thousand of each kind of work: texts without `vectors`, turns without a summary (`level1`),
    sessions that may be due for a `roll_up` or a summary of their own (`thread`), turns not yet
    searched for `memories`. A search counts as successful if it found something by a word of the
    question or above the threshold of similarity.
    """
    from ragmem.usage import Measured

    whole = sum(days, Measured())

    def count(*names: str) -> int:
        return sum(int(whole.count(name)) for name in names)

    searches, hits = count("recall.searches"), count("recall.found")
    return {
        "since": days[0].day if days else None,
        "processes": whole.processes,
        "store": f"{found.kind} {found.location}",
        "database_size_bytes": found.size_bytes,
        "counts": found.counts,
        "summaries_per_level": {str(n): count for n, count in found.summaries_per_level.items()},
        **{key: _timing(whole.timing(*names)) for key, _, names in _TIMES},
        "searches": searches,
        "searches_with_hits": hits,
        "semantic_search_success_rate": hits / searches if searches else None,
        "file_reads": count("files.reads"),
        "file_reads_again": count("files.reads_again"),
        "tokens": {key: count(name) for key, name in _TOKENS.items()},
        "cost_usd": _cost(whole),
        "unpriced_calls": count("turns.unpriced_calls", "background.unpriced_calls"),
        "model_calls": count("turns.calls"),
        "background_calls": count("background.calls"),
        "background_calls_failed": count("background.failed_calls"),
        "background_cost_usd": whole.count("background.cost_usd"),
        "background_cost_usd_today": spent_today_usd,
        "max_cost_usd_per_day": most_a_day_usd,
        "pending": pending,
        "background_process": at_work,
        "days": [
            {
                "day": each.day,
                "turns": each.timing("store.turn").count,
                "searches": int(each.count("recall.searches")),
                "cost_usd": _cost(each),
            }
            for each in days
        ],
        "code": code,
    }


def _cost(found: "Measured") -> float:
    """Return the cost of all calls, without those of models with an unknown price."""
    return found.count("turns.cost_usd") + found.count("background.cost_usd")


def _timing(found: "Timing") -> dict[str, float]:
    """Return a timing as a document; percentiles are at most a tenth too high."""
    return {
        "count": found.count,
        "mean_ms": round(found.total_ms / max(1, found.count), 3),
        "p50_ms": round(found.percentile_ms(50), 3),
        "p95_ms": round(found.percentile_ms(95), 3),
        "max_ms": round(found.max_ms, 3),
    }


def stats_text(found: Document, *, width: int, today: date, days: "Sequence[Measured]" = ()) -> str:
    """Return statistics as text, with bar charts; `days` are for the tokens of each day."""
    width = max(_MIN_WIDTH, width)
    counts = ", ".join(counted(found["counts"].get(key, 0), name) for key, name in _COUNTED.items())
    size = found["database_size_bytes"]
    where = visible(found["store"]) + (f", {size / 1e6:,.1f} MB" if size else "")
    lines = [*hanging("memory     ", where, width), *hanging(" " * 11, counts, width)]
    if found["code"]:
        lines += hanging("code       ", indexed_text(**found["code"]), width)
    levels = found["summaries_per_level"].items()
    lines += _bars("summaries", [(f"level {level}", count) for level, count in levels], width)
    if found["since"]:
        processes = f"{found['processes']:,} process{'es' * (found['processes'] != 1)}"
        lines += ["", f"Measured since {found['since']}, in {processes}:", ""]
        # Without turns that were imported, interrupted, or made on another machine.
        charts = [*_bars("turns done", _days(found, today), width)]
        charts += _tokens_a_day(days, width, today)
        lines += [*charts, ""] if charts else []
        lines += [*_times(found, width), ""]
    else:
        lines += ["", "Nothing measured yet.", ""]
    for name, said in _sums(found).items():
        lines += hanging(f"{name:<10} ", said, width)
    return "\n".join(lines) + "\n"


def _days(found: Document, today: date) -> list[tuple[str, int]]:
    turns = {each["day"]: each["turns"] for each in found["days"]}
    return [(f"{day:%a %d %b}", turns.get(day, 0)) for day in _last_days(turns, today)]


def _last_days(used: Mapping[date, float], today: date) -> list[date]:
    """Return the last days, from the first with any use on."""
    days = (today - timedelta(days=back) for back in reversed(range(_SHOWN_DAYS)))
    return list(dropwhile(lambda day: not used.get(day), days))


def stats_parts(text: str) -> Iterator[list[tuple[str, str]]]:
    """Yield rows as pairs of text and style, for names, bars and the share of background work."""
    for row in text.splitlines():
        name = row[:11] if _NAME.fullmatch(row[:11]) else ""
        bars = _PIECES.findall(row[len(name) :])
        yield [(name, "bold"), *((piece, _BAR_STYLES.get(piece[0], "")) for piece in bars)]


def _tokens_a_day(days: "Sequence[Measured]", width: int, today: date) -> list[str]:
    """Return a bar chart of the last days' tokens, with the share of background work."""
    used = {each.day: [sum(map(each.count, names)) for names in _USED] for each in days}
    whole_days = _last_days({day: sum(counts) for day, counts in used.items()}, today)
    shown = [(day, *used.get(day, (0, 0))) for day in whole_days]
    if not shown:
        return []
    most = max(own + background for _, own, background in shown)
    label = len(f"{today:%a %d %b}")
    room = max(4, min(50, width - 11 - label - 2 - 10))
    rows = []
    for i, (day, own, background) in enumerate(shown):
        both = bar(own + background, most, room)
        filled = both.count("█")
        share = background / max(1, own + background)
        behind = min(filled, max(1, round(filled * share))) if background else 0
        both = "█" * (filled - behind) + "▒" * behind + both[filled:]
        name = "tokens" if i == 0 else ""
        rows.append(f"{name:<10} {day:%a %d %b} {in_short(int(own + background)):>8}  {both}")
    whole = sum(own + background for _, own, background in shown)
    share = sum(background for _, _, background in shown) / whole
    said = f"▒ background work: {share:.0%}"
    return [*rows, *(hanging(" " * 11, said, width) if share else [])]


def _bars(title: str, rows: list[tuple[str, int]], width: int) -> list[str]:
    most = max((count for _, count in rows), default=0)
    label = max((len(name) for name, _ in rows), default=0)
    room = min(50, width - 11 - label - 2 - 10)
    return [
        f"{title if i == 0 else '':<10} {name:<{label}} {count:>8,}  {bar(count, most, room)}"
        for i, (name, count) in enumerate(rows)
    ]


def _times(found: Document, width: int) -> list[str]:
    rows = [
        (
            name,
            f"{times['count']:,}",
            *(f"{times[f'{each.lower()}_ms']:,.1f}" for each in _TIME_COLUMNS),
        )
        for times, name in ((found[key], name) for key, name, _ in _TIMES)
        if times["count"]
    ]
    head = ("TIME (ms)", "COUNT", *_TIME_COLUMNS)
    return table(head, rows, width=width).rstrip("\n").split("\n") if rows else []


def _sums(found: Document) -> dict[str, str]:
    rate, tokens = found["semantic_search_success_rate"], found["tokens"]
    unpriced, failed = found["unpriced_calls"], found["background_calls_failed"]
    spent, most = found["background_cost_usd_today"], found["max_cost_usd_per_day"]
    return {
        "searches": "none" if rate is None else f"{found['searches']:,}, {rate:.0%} with results",
        "reads": f"{counted(found['file_reads'], 'file')} read, {found['file_reads_again']:,} "
        "repeatedly although unchanged in the session",
        "tokens": f"{tokens['input']:,} in, {tokens['cached']:,} of them cached, "
        f"{tokens['output']:,} out, {tokens['embedded']:,} embedded",
        "cost": f"${found['cost_usd']:,.4f}"
        + (f", and {counted(unpriced, 'call')} of unknown price" if unpriced else ""),
        "background": counted(found["background_calls"], "call")
        + (f", {failed:,} failed" if failed else "")
        + f", ${found['background_cost_usd']:,.4f}, {tokens['background_input']:,} tokens in, "
        f"{tokens['background_output']:,} out"
        + (f"; ${spent:,.4f} of the daily limit of ${most:,.2f}" if spent else ""),
        "pending": (waiting_text(found["pending"]) or "nothing")
        + ("; a process is working on it" if found["background_process"] else ""),
    }

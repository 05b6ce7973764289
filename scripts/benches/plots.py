"""How cost grows, drawn as SVG by hand: lines on two logarithmic axes."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

from benches.growth import Growth

Point = tuple[float, float]

WIDTH, HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 236, 52, 56
_COLOURS = ("#1f5fa8", "#c4501b", "#2c7f3f", "#8a3f9c", "#9a7a00", "#5a5a5a")
_FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"


class Line(msgspec.Struct, frozen=True):
    """One line of a chart; `dashed` for a baseline."""

    name: str
    points: Sequence[Point]
    dashed: bool = False


class Chart(msgspec.Struct, frozen=True):
    """Lines over the number of turns."""

    title: str
    unit: str
    lines: Sequence[Line]


def write_plots(grown: Sequence[Growth], folder: Path) -> list[Path]:
    """A file for each store and subject."""
    written = []
    for store in dict.fromkeys(each.store for each in grown):
        rows = [each for each in grown if each.store == store]
        if len(rows) < 2:
            continue
        for subject, chart in _charts(store, rows).items():
            file = folder / f"growth-{store}-{subject}.svg"
            file.write_text(drawn(chart), "utf-8")
            written.append(file)
    return written


def _charts(store: str, rows: Sequence[Growth]) -> dict[str, Chart]:
    name = {"sqlite": "SQLite", "neo4j": "Neo4j"}[store]

    def line(label: str, value: Callable[[Growth], float], *, dashed: bool = False) -> Line:
        return Line(label, [(row.turns, value(row)) for row in rows], dashed)

    def step(label: str, of: str, *, dashed: bool = False) -> Line:
        return line(label, lambda row: row.steps[of].median, dashed=dashed)

    return {
        "append": Chart(
            f"{name}: recording one step of a turn (median)",
            "milliseconds",
            [
                step("turn begun", "append: turn begun"),
                step("tool call", "append: tool call"),
                step("turn ended", "append: turn ended"),
                line("turn begun, p95", lambda row: row.steps["append: turn begun"].p95),
                step("bare insert", "append: bare insert", dashed=True),
            ],
        ),
        "read": Chart(
            f"{name}: reading (median)",
            "milliseconds",
            [
                step("newest 30 turns", "load the newest 30 turns"),
                step("session of 300 turns", "load a session of 300"),
                step("sessions of a folder", "list a folder"),
                step("sessions of a project", "list a project"),
                step("sessions, newest 50", "list everything, newest 50"),
                step("find by tail of id", "find by the tail of an id"),
            ],
        ),
        "whole": Chart(
            f"{name}: work on all of it",
            "seconds",
            [
                line("take it in", lambda row: row.turns / row.fill_turns_per_s),
                line("read it out", lambda row: row.turns / row.read_turns_per_s),
                line("store check", lambda row: row.check_ms / 1000),
                line("store info", lambda row: row.info_ms / 1000),
                line("open", lambda row: row.open_ms / 1000),
            ],
        ),
        "size": Chart(
            f"{name}: disk and memory",
            "megabytes",
            [
                line("on disk", lambda row: row.size_bytes / 1e6),
                line("peak memory, filling", lambda row: row.fill_rss_bytes / 1e6),
                line("peak memory, at work", lambda row: row.work_rss_bytes / 1e6),
                *(
                    [line("server's memory", lambda row: (row.server_rss_bytes or 0) / 1e6)]
                    if store == "neo4j"
                    else []
                ),
            ],
        ),
    }


def drawn(chart: Chart) -> str:
    """The chart as SVG."""
    points = [point for line in chart.lines for point in line.points if point[1] > 0]
    x_low, x_high = _decades([x for x, _ in points])
    y_low, y_high = _decades([y for _, y in points])
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM

    def place(x: float, y: float) -> Point:
        across = (math.log10(x) - x_low) / (x_high - x_low)
        up = (math.log10(y) - y_low) / (y_high - y_low)
        return _LEFT + across * (right - _LEFT), bottom - up * (bottom - _TOP)

    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}' "
        f"viewBox='0 0 {WIDTH} {HEIGHT}'>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#fdfdfb'/>",
        _text(_LEFT, 28, chart.title, size=16, weight="bold"),
        _text((_LEFT + right) / 2, HEIGHT - 14, "turns in the memory", anchor="middle"),
        f"<g transform='rotate(-90 20 {(_TOP + bottom) / 2})'>"
        + _text(20, (_TOP + bottom) / 2, chart.unit, anchor="middle")
        + "</g>",
    ]
    for power in range(x_low, x_high + 1):
        x, _ = place(10**power, 10**y_low)
        parts.append(_rule(x, _TOP, x, bottom))
        parts.append(_text(x, bottom + 20, _number(10**power), anchor="middle"))
    for power in range(y_low, y_high + 1):
        _, y = place(10**x_low, 10**power)
        parts.append(_rule(_LEFT, y, right, y))
        parts.append(_text(_LEFT - 8, y + 4, _number(10**power), anchor="end"))
    return "\n".join([*parts, *_lines(chart, place), "</svg>", ""])


def _lines(chart: Chart, place: Callable[[float, float], Point]) -> list[str]:
    """The lines, each with its name at its end; names that would touch are moved apart."""
    parts = []
    ends = []
    for line, colour in zip(chart.lines, _COLOURS, strict=False):
        placed = [place(x, y) for x, y in line.points if y > 0]
        dash = " stroke-dasharray='6 5'" if line.dashed else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(
            f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2.2'{dash}/>"
        )
        parts += [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.2' fill='{colour}'/>" for x, y in placed]
        label = f"{line.name} ({_value(line.points[-1][1])})"
        ends.append((placed[-1], label, colour))
    free = float(_TOP)
    for (x, y), label, colour in sorted(ends, key=lambda end: end[0][1]):
        at = max(y + 4, free)
        free = at + 16
        edge = WIDTH - _RIGHT + 14
        parts.append(
            f"<line x1='{x + 5:.1f}' y1='{y:.1f}' x2='{edge - 3}' y2='{at - 4:.1f}' "
            f"stroke='{colour}' stroke-width='0.7'/>"
        )
        parts.append(_text(edge, at, label, colour=colour))
    return parts


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' "
        "stroke='#d9d9d4' stroke-width='1'/>"
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 12,
    weight: str = "normal",
    colour: str = "#222222",
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {_FONT} font-size='{size}' font-weight='{weight}' "
        f"text-anchor='{anchor}' fill='{colour}'>{escape(text)}</text>"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _value(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

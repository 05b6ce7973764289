"""Charts as SVG, without a library: lines on linear or logarithmic axes, and grouped bars."""

import math
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

import msgspec

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
    """A line chart, by default over the number of turns."""

    title: str
    unit: str
    lines: Sequence[Line]
    across: str = "turns in the memory"
    linear: bool = False
    """Whether both axes are linear, from 0; otherwise both are logarithmic."""


class Bars(msgspec.Struct, frozen=True):
    """A chart with a bar for each series in each group, from 0 to 1."""

    title: str
    unit: str
    groups: Sequence[str]
    series: Sequence[tuple[str, Sequence[float]]]


class _Axis(msgspec.Struct, frozen=True):
    ticks: Sequence[float]
    linear: bool

    def share(self, value: float) -> float:
        """Return the position of a value on the axis, from 0 to 1."""
        low, high = self.ticks[0], self.ticks[-1]
        if self.linear:
            return (value - low) / (high - low)
        return math.log10(value / low) / math.log10(high / low)


def _axis(values: Sequence[float], *, linear: bool) -> _Axis:
    if linear:
        most = max(values)
        step = 10 ** math.floor(math.log10(most))
        step = next(step * part for part in (0.2, 0.25, 0.5, 1, 2) if most / (step * part) <= 6)
        return _Axis([step * n for n in range(math.ceil(most / step) + 1)], linear)
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return _Axis([10**power for power in range(low, max(high, low + 1) + 1)], linear)


def drawn(chart: Chart) -> str:
    """Return the chart as SVG."""
    points = [point for line in chart.lines for point in line.points]
    points = [point for point in points if point[1] > 0 or chart.linear]
    across = _axis([x for x, _ in points], linear=chart.linear)
    up = _axis([y for _, y in points], linear=chart.linear)
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM

    def place(x: float, y: float) -> Point:
        return (
            _LEFT + across.share(x) * (right - _LEFT),
            bottom - up.share(y) * (bottom - _TOP),
        )

    parts = _frame(chart.title, chart.unit)
    parts.append(_text((_LEFT + right) / 2, HEIGHT - 14, chart.across, anchor="middle"))
    for tick in across.ticks:
        x, _ = place(tick, up.ticks[0])
        parts.append(_rule(x, _TOP, x, bottom))
        parts.append(_text(x, bottom + 20, _number(tick), anchor="middle"))
    parts += _levels(up)
    return "\n".join([*parts, *_lines(chart, place), "</svg>", ""])


def drawn_bars(bars: Bars) -> str:
    """Return the bars as SVG, each with its value if there is room."""
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    up = _Axis([0, 0.2, 0.4, 0.6, 0.8, 1], linear=True)
    parts = [*_frame(bars.title, bars.unit), *_levels(up)]
    room = (right - _LEFT) / len(bars.groups)
    width = 0.84 * room / len(bars.series)
    for place, group in enumerate(bars.groups):
        start = _LEFT + place * room + 0.08 * room
        middle = _LEFT + (place + 0.5) * room
        parts.append(_text(middle, bottom + 20, group, anchor="middle"))
        for number, (_, values) in enumerate(bars.series):
            x, top = start + number * width, bottom - up.share(values[place]) * (bottom - _TOP)
            parts.append(
                f"<rect x='{x:.1f}' y='{top:.1f}' width='{width - 1.5:.1f}' "
                f"height='{bottom - top:.1f}' fill='{_COLOURS[number]}'/>"
            )
            if width >= 24:
                shown = f"{values[place]:.2f}".lstrip("0")
                parts.append(_text(x + width / 2, top - 4, shown, anchor="middle", size=10))
    edge = WIDTH - _RIGHT + 14
    for number, (name, _) in enumerate(bars.series):
        y = _TOP + 12 + 20 * number
        parts.append(
            f"<rect x='{edge}' y='{y - 9}' width='10' height='10' fill='{_COLOURS[number]}'/>"
        )
        parts.append(_text(edge + 16, y, name))
    return "\n".join([*parts, "</svg>", ""])


def _frame(title: str, unit: str) -> list[str]:
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    return [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}' "
        f"viewBox='0 0 {WIDTH} {HEIGHT}'>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#fdfdfb'/>",
        _text(_LEFT, 28, title, size=16, weight="bold"),
        f"<g transform='rotate(-90 20 {middle})'>"
        + _text(20, middle, unit, anchor="middle")
        + "</g>",
    ]


def _levels(up: _Axis) -> list[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for tick in up.ticks:
        y = bottom - up.share(tick) * (bottom - _TOP)
        parts.append(_rule(_LEFT, y, right, y))
        parts.append(_text(_LEFT - 8, y + 4, _number(tick), anchor="end"))
    return parts


def _lines(chart: Chart, place: Callable[[float, float], Point]) -> list[str]:
    """Return the lines, each with its label at its end; overlapping labels are moved apart."""
    parts = []
    ends = []
    for line, colour in zip(chart.lines, _COLOURS, strict=False):
        placed = [place(x, y) for x, y in line.points if y > 0 or chart.linear]
        dash = " stroke-dasharray='6 5'" if line.dashed else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(
            f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2.2'{dash}/>"
        )
        dots = placed if len(placed) <= 10 else []
        parts += [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.2' fill='{colour}'/>" for x, y in dots]
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
    return f"{value:,.0f}" if value >= 1 and value == round(value) else f"{value:g}"


def _value(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

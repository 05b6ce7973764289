"""Draws the end of a scene as an SVG picture: every character where the terminal shows it."""

import re
import sys
import tempfile
from html import escape, unescape
from pathlib import Path

import msgspec
from pyte.screens import Char

from tests.repl.pty_chat import ROOT, PtyChat
from tests.scenes.play import Stage, scene

_WIDTH, _HEIGHT, _MARGIN = 8.4, 18, 14
_TEXT = re.compile(r'<text [^>]*data-row="(\d+)"[^>]*>(.*?)</text>', re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_LOOKS = {"dark": ("#1e1e2e", "#d8d8e8"), "light": ("#ffffff", "#1c1c1c")}
_NAMED = {
    "red": "#cd3131",
    "green": "#0dbc79",
    "brown": "#b5890f",
    "blue": "#2472c8",
    "magenta": "#bc3fbc",
    "cyan": "#11a8cd",
    "white": "#c5c5c5",
    "black": "#000000",
}


class Picture(msgspec.Struct, frozen=True):
    """What a picture shows."""

    scene: str
    look: str
    columns: int = 80
    rows: int = 24


PICTURES = {
    ROOT / "docs" / "pictures" / f"{name}-{look}.svg": Picture(name, look)
    for name in ("memory_line", "change", "picker")
    for look in _LOOKS
}
"""By their files."""


def svg(chat: PtyChat, look: str) -> str:
    """Return the window as it stands, on the background of a light or a dark terminal."""
    ground, ink = _LOOKS[look]
    columns, lines = chat.size
    rows = [[chat.cell(row, column) for column in range(columns)] for row in range(lines)]
    while rows and not any(char.data.strip() for char in rows[-1]):
        rows.pop()
    width = round(columns * _WIDTH + 2 * _MARGIN)
    height = round(len(rows) * _HEIGHT + 2 * _MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="ui-monospace, Menlo, Consolas, monospace" '
        f'font-size="14">',
        f'<rect width="{width}" height="{height}" rx="8" fill="{ground}"/>',
    ]
    for number, row in enumerate(rows):
        top = _MARGIN + number * _HEIGHT
        parts += _backgrounds(row, top, ground, ink)
        spans = "".join(_span(text, at, char, ground, ink) for at, text, char in _runs(row))
        parts.append(
            f'<text data-row="{number}" y="{top + 13}" xml:space="preserve">{spans}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _runs(row: list[Char]) -> list[tuple[int, str, Char]]:
    """Return (column, text, style) of each stretch that looks the same; blanks at the end go."""
    runs: list[tuple[int, str, Char]] = []
    for at, char in enumerate(row):
        last = runs[-1] if runs else None
        if last and last[2]._replace(data="") == char._replace(data=""):
            runs[-1] = (last[0], last[1] + char.data, last[2])
        else:
            runs.append((at, char.data, char))
    while runs and not runs[-1][1].strip() and not runs[-1][2].reverse:
        runs.pop()
    return runs


def _span(text: str, at: int, char: Char, ground: str, ink: str) -> str:
    color = _color(char.bg if char.reverse else char.fg, ground if char.reverse else ink)
    look = ' font-weight="bold"' if char.bold else ""
    look += ' text-decoration="underline"' if char.underscore else ""
    return f'<tspan x="{_MARGIN + at * _WIDTH:.1f}" fill="{color}"{look}>{escape(text)}</tspan>'


def _backgrounds(row: list[Char], top: int, ground: str, ink: str) -> list[str]:
    found = []
    for at, text, char in _runs(row):
        color = _color(char.fg if char.reverse else char.bg, ink if char.reverse else ground)
        if color != ground:
            x, width = _MARGIN + at * _WIDTH, len(text) * _WIDTH
            found.append(
                f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{_HEIGHT}" '
                f'fill="{color}"/>'
            )
    return found


def _color(name: str, default: str) -> str:
    if name == "default":
        return default
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    return _NAMED.get(name.removeprefix("bright"), default)


def drawn_text(picture: Path) -> str:
    """Return the rows that a picture shows."""
    rows = _TEXT.findall(picture.read_text())
    return "\n".join(_row(spans) for _, spans in rows)


def _row(spans: str) -> str:
    """Return a row's text, its stretches at the columns where they are drawn."""
    row = ""
    for at, text in re.findall(r'<tspan x="([\d.]+)"[^>]*>(.*?)</tspan>', spans, re.DOTALL):
        column = round((float(at) - _MARGIN) / _WIDTH)
        row = row.ljust(column) + unescape(_TAG.sub("", text))
    return row.rstrip()


def main() -> None:
    """Draw the pictures of the docs, or those that are named."""
    wanted = set(sys.argv[1:])
    for file, of in PICTURES.items():
        if wanted and file.stem not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            env = {"RAGMEM_UI__THEME": of.look}
            stage = Stage(scene(of.scene), Path(folder), env)
            with stage.played(of.columns, of.rows) as chat:
                for _ in range(8):
                    chat.pump(0.2)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(svg(chat, of.look))
        print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()

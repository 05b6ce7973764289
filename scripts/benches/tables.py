"""Aligned tables, and a description of the machine."""

import os
from collections.abc import Sequence
from pathlib import Path

from ragmem.records import utc_now


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned text: names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells in rows:
        right = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *right]).rstrip())
    return "\n".join(lines)


def machine() -> str:
    """Return the date, the machine's cores and memory, and its load at the end."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = Path("/proc/loadavg").read_text().split()[0]
    return f"Measured {utc_now():%Y-%m-%d}, {os.cpu_count()} cores, {memory:.0f} GB, load {load}."

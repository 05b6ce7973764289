"""The row below the prompt: which model, session and mode; how full, how much, what goes on beside.

A row is made to fit: of what has no room the least important goes first.
"""

import msgspec

from ragmem.repl.terminal import Line
from ragmem.text import clip_to_width, counted, display_width, in_short, visible
from ragmem.tools.base import PermissionMode

BAR_CELLS = 10
_NAME_CELLS = 30
_FULL, _NEARLY_FULL = 0.9, 0.75
_CENT, _LEAST_USD = 0.1, 0.001
_MODES: dict[PermissionMode, tuple[str, str]] = {
    "default": ("", ""),
    "acceptEdits": ("warning", "edits allowed"),
    "plan": ("plan", "plan: reads only"),
    "bypassPermissions": ("danger", "everything allowed"),
}
"""How each mode is shown, and its name; the usual one is not spoken of."""
CYCLE: tuple[PermissionMode, ...] = ("default", "acceptEdits", "plan")
"""Modes that one key goes through. None of them lets everything pass."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What the row tells."""

    model: str
    session: str
    """Its name, or the short id of one that has none."""
    mode: PermissionMode = "default"
    always_count: int = 0
    """How many things the person has allowed always, in this session."""
    tokens: int = 0
    """Of the last request and its answer; 0 before the first."""
    window: int | None = None
    """Tokens that the model can take in."""
    cost_usd: float | None = None
    """Of the session, with its background work; None where a price is not known."""
    doing: str = ""
    """What goes on in the background."""
    jobs: int = 0
    """Commands that run in the background."""
    sandboxed: bool = False
    """Commands are known to run in a sandbox."""


class _Piece(msgspec.Struct, frozen=True):
    """Part of the row; of those that are shown the highest `rank` goes first."""

    rank: int
    style: str
    text: str


def toolbar(status: Status, columns: int) -> Line:
    """Return the row: who and how on the left, how much on the right, within so many columns."""
    left, right = _left(status), _right(status)
    while _width(left, right) > columns and len(left) + len(right) > 1:
        last = max(*left, *right, key=lambda piece: piece.rank)
        left = [piece for piece in left if piece is not last]
        right = [piece for piece in right if piece is not last]
    row = [("dim", "  "), *_joined(left)]
    if right:
        gap = columns - _cells(row) - _cells(_joined(right)) - 1
        row += [("", " " * max(1, gap)), *_joined(right)]
    if _cells(row) > columns:
        row = [("dim", clip_to_width("".join(text for _, text in row), columns))]
    return tuple(row)


def next_mode(mode: PermissionMode) -> PermissionMode:
    """Return the mode that the key goes to."""
    at = CYCLE.index(mode) if mode in CYCLE else -1
    return CYCLE[(at + 1) % len(CYCLE)]


def dollars(cost_usd: float) -> str:
    """Show an amount: in cents from ten of them on, below in tenths of them."""
    if 0 < cost_usd < _LEAST_USD:
        return f"<${_LEAST_USD}"
    return f"${cost_usd:.2f}" if cost_usd >= _CENT or not cost_usd else f"${cost_usd:.3f}"


def _left(status: Status) -> list[_Piece]:
    style, mode = _MODES[status.mode]
    jobs = counted(status.jobs, "job") if status.jobs else ""
    always = f"{status.always_count} allowed always" if status.always_count else ""
    pieces = [
        _Piece(2, "dim", visible(status.model)),
        _Piece(5, "dim", clip_to_width(visible(status.session), _NAME_CELLS)),
        _Piece(0, style, mode),
        _Piece(4, "warning", always),
        _Piece(3, "dim", jobs),
        _Piece(8, "dim", "sandbox" if status.sandboxed else ""),
    ]
    return [piece for piece in pieces if piece.text]


def _right(status: Status) -> list[_Piece]:
    pieces = []
    if status.tokens and status.window:
        share = min(1.0, status.tokens / status.window)
        style = "danger" if share >= _FULL else "warning" if share >= _NEARLY_FULL else "dim"
        filled = max(1, round(share * BAR_CELLS))
        bar = "▓" * filled + "░" * (BAR_CELLS - filled)
        pieces += [_Piece(6, style, bar), _Piece(1, style, f"{share * 100:.0f}%")]
    elif status.tokens:
        pieces.append(_Piece(1, "dim", f"{in_short(status.tokens)} tokens"))
    if status.cost_usd:
        pieces.append(_Piece(3, "dim", dollars(status.cost_usd)))
    if status.doing:
        pieces.append(_Piece(7, "dim", f"⟳ {visible(status.doing)}"))
    return pieces


def _joined(pieces: list[_Piece]) -> list[tuple[str, str]]:
    row: list[tuple[str, str]] = []
    for before, piece in zip([None, *pieces], pieces, strict=False):
        if before:
            row.append(("dim", " " if before.text[0] in "▓░" else " · "))
        row.append((piece.style, piece.text))
    return row


def _width(left: list[_Piece], right: list[_Piece]) -> int:
    between = 2 if left and right else 0
    return 2 + _cells(_joined(left)) + between + _cells(_joined(right)) + 1


def _cells(row: list[tuple[str, str]]) -> int:
    return sum(display_width(text) for _, text in row)

"""Reading what another program wrote: every field may be missing, or be something else."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from ragmem.text import clean, clip_middle

Fields = Mapping[str, object]
_NOTHING: Fields = {}
_EARLIEST = datetime(2020, 1, 1, tzinfo=UTC)
"""Before these agents were: a time that is earlier is none."""
_AHEAD = timedelta(days=1)
_MOST_TOKENS = 1 << 40
TEXT_LIMIT = 200_000
"""Characters of a tool's result, or of the thoughts of a turn, that are kept; the middle goes."""


def fields(value: object, *path: str) -> Fields:
    """The object at the path; an empty one where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else _NOTHING


def text(record: Fields, name: str) -> str:
    """A text, fit to be stored; empty where there is none."""
    value = record.get(name)
    return clean(value) if isinstance(value, str) else ""


def items(record: Fields, name: str) -> Sequence[object]:
    """A list; empty where there is none."""
    value = record.get(name)
    return value if isinstance(value, list) else ()


def count(record: Fields, name: str) -> int | None:
    """A number of tokens; None where there is none."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_TOKENS:
        return None
    return value


def moment(value: object, now: datetime) -> datetime | None:
    """A time that can be true: ISO 8601, or seconds or milliseconds since 1970."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
            found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return found if _EARLIEST <= found <= now + _AHEAD else None


def clipped(words: str) -> str:
    """The text, without its middle where it is too long to be kept."""
    return clip_middle(words, TEXT_LIMIT)

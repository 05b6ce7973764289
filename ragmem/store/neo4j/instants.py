"""Times between Python and the graph: in UTC, which the graph writes as `…Z`.

The driver reads what is in UTC as a zone that has a name, and would write that name back: the
same time in another form, which nothing but the driver reads.
"""

from datetime import UTC, datetime


def in_utc(at: datetime) -> datetime:
    """The same moment, to be written."""
    return at.astimezone(UTC)


def was_utc(at: datetime) -> datetime:
    """The same moment as it was read; one without a zone, which others wrote, is UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def to_text(at: datetime) -> str:
    """As statements take it where the driver would be too slow."""
    return in_utc(at).isoformat()


def from_text(text: str) -> datetime:
    """The same back, as `toString` tells it: with the name of its zone, if it has one."""
    return was_utc(datetime.fromisoformat(text.partition("[")[0]))

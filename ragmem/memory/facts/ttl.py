"""How long a memory lasts: `1h`, `1d`, `7d`, `2w` to the moment when it ends."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from ragmem.records import MemoryRecord

_TTL = re.compile(
    r"\s*(\d{1,6})\s*(?:(h|hours?|heures?)|(d|days?|j|jours?)|(w|weeks?|semaines?))\s*",
    re.IGNORECASE,
)
_LASTING = frozenset({"", "null", "none", "never", "permanent", "forever"})


def expiry(ttl: str | None, now: datetime) -> tuple[datetime | None, str]:
    """When it ends, None where it lasts; and what to tell of a duration that says nothing.

    What can't be read lasts: to keep something too long costs less than to lose it.
    """
    if ttl is None or ttl.strip().casefold() in _LASTING:
        return None, ""
    match = _TTL.fullmatch(ttl)
    count = int(match[1]) if match else 0
    if match is None or count == 0:
        return None, f"{ttl[:40]!r} is no duration like 1h, 7d or 2w, so it is kept for good."
    step = timedelta(hours=1) if match[2] else timedelta(days=1 if match[3] else 7)
    try:
        return now + count * step, ""
    except OverflowError:
        return None, f"{ttl[:40]!r} is longer than time is counted, so it is kept for good."


def past_their_time(memories: Iterable[MemoryRecord], now: datetime) -> list[str]:
    """Ids of those that may be removed; `memories`: all there are, superseded ones too.

    What goes takes what it superseded with it: so one in whose place it came that lasts keeps it,
    unseen.
    """
    known = {memory.memory_id: memory for memory in memories}
    over = {i for i, m in known.items() if m.expires_at is not None and m.expires_at <= now}
    before: dict[str, list[str]] = {}
    for memory in known.values():
        if memory.superseded_by is not None:
            before.setdefault(memory.superseded_by, []).append(memory.memory_id)

    def goes(memory_id: str) -> bool:
        todo, seen = [memory_id], {memory_id}
        while todo:
            one = todo.pop()
            if one not in over:
                return False
            older = [each for each in before.get(one, ()) if each not in seen]
            seen.update(older)
            todo += older
        return True

    return [memory_id for memory_id in known if memory_id in over and goes(memory_id)]

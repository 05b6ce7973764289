"""Identifiers: UUIDv7 (RFC 9562), made by the client, shown by their tail."""

import os
import threading
import time
import uuid
from string import hexdigits

_lock = threading.Lock()
_last_ms = 0
_counter = 0

SHORT_LENGTH = 8


def new_id() -> str:
    """A UUIDv7 that sorts after every id made before it in this process.

    48 bits of milliseconds, 12 bits of counter within the millisecond
    (method 1 of RFC 9562 section 6.2), 62 random bits.
    """
    global _last_ms, _counter
    with _lock:
        now = time.time_ns() // 1_000_000
        if now > _last_ms:
            _last_ms, _counter = now, 0
        else:
            _counter += 1
            if _counter > 0xFFF:
                _last_ms, _counter = _last_ms + 1, 0
        value = (_last_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | _counter << 64
    value |= 0b10 << 62 | int.from_bytes(os.urandom(8), "big") >> 2
    return str(uuid.UUID(int=value))


def is_whole_id(text: str) -> bool:
    """Whether this is an id with all of its digits, as `new_id` writes them."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def beginning_hint(reference: str) -> str:
    """A sentence for who may have named an id by how its shown part begins; else empty."""
    if 2 < len(reference) < SHORT_LENGTH and set(reference.casefold()) <= set(hexdigits):
        return " Use the end of an id (e2ab of ac23e2ab), not its beginning."
    return ""


def short_id(full_id: str) -> str:
    """The tail by which an id is shown: first digits repeat within a minute, these don't."""
    return full_id[-SHORT_LENGTH:]

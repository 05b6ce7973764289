"""What is stored, and the Writes that change it.

A record is an immutable value with an id made by the client. A `Write` is a
value too: stores apply it idempotently (upsert by id), so that the same stream
of writes can be recorded, replayed after an outage, exported and moved between
stores.

Times are timezone-aware UTC datetimes. Order never comes from clocks: it comes
from `turn_index` (1-based, without gaps, assigned by the store) and, within a
turn, from a tool call's `order` (0-based).
"""

from ragmem.records.conversation import *  # noqa: F403 - the package is what its modules hold
from ragmem.records.memories import *  # noqa: F403
from ragmem.records.writes import *  # noqa: F403

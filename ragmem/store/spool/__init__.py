"""The outage spool: writes last while the store is away, and reach it when it is back."""

from ragmem.store.spool.files import count_waiting, met
from ragmem.store.spool.store import Patience, SpooledStore, Waiting

__all__ = ["Patience", "SpooledStore", "Waiting", "count_waiting", "met"]

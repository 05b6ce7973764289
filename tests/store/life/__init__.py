"""A store's life at random, and the calm store that it is compared with."""

from tests.store.life.moving import Life
from tests.store.life.running import live

__all__ = ["Life", "live"]

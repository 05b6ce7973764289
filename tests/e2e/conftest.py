"""A person who chats."""

from tests.e2e.house import house

__all__ = ["house"]

"""Summaries: when a level is due, what it covers, what it says, and what that costs."""

from ragmem.memory.summaries.plan import next_roll_up, summary_id, thread_summary_due

__all__ = ["next_roll_up", "summary_id", "thread_summary_due"]

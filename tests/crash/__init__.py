"""Processes that are killed, stopped and starved of disk at every step, and what is left then."""

"""The memory: `memory.py` is its interface, and `recall.py` its search."""

"""The memory: its door is `memory.py`, and a question goes by `recall.py`."""

"""What is measured: by one process, and kept over many."""

from ragmem.metrics.values import Metrics

__all__ = ["Metrics"]

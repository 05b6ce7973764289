"""ragmem: a terminal coding agent whose memory lasts."""

__version__ = "0.1.0"

"""The memory as files that show it: a page to look at, JSON, GraphML; see `ragmem.memory.graph`."""

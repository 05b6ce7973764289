"""The memory as a graph that one can look at: what is on it, and the files that show it.

`collect` reads it from a store as values; `files` writes these as a page, as JSON or as GraphML.
"""

"""What an index's rows depend on besides the files; one of another version is made anew.

Here, and not beside what they are of: a look at the versions loads nothing else.
"""

SCHEMA = 3
"""Goes up when the tables change."""
CUTTING = 2
"""Goes up when the same file would be cut otherwise, or scopes would get other names."""
WORDING = 1
"""Goes up when the same scope gets other terms or another text to embed."""

"""Every text that a model reads, one Markdown file each."""

from functools import cache
from pathlib import Path


@cache
def prompt(name: str) -> str:
    """The text of `<name>.md`, without its final line feed."""
    return (Path(__file__).parent / f"{name}.md").read_text("utf-8").rstrip("\n")

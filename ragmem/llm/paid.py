"""What is said of a model: that somebody is billed for it, at its first use on this machine."""

import os
from contextlib import suppress
from pathlib import Path

from ragmem.llm.models import ModelChoice


def about(choice: ModelChoice, known: Path) -> list[str]:
    """What to say of a model before it is asked: in each chat what it can't do, and `first_use`."""
    paid = first_use(choice, known)
    if choice.info.supports_tools:
        return [paid] if paid else []
    cant = (
        f"{choice.name} can't use tools: it answers from memory and from the files that "
        "you name (@path), and can't search, edit or run commands."
    )
    return [cant, paid] if paid else [cant]


def first_use(choice: ModelChoice, known: Path) -> str:
    """What to say of a paid model that `known`, a file of names, does not hold; then it does."""
    if not choice.paid:
        return ""
    names: list[str] = []
    with suppress(OSError):
        names = known.read_text("utf-8", "replace").split("\n")
    if choice.name in names:
        return ""
    with suppress(OSError), open(known, "a", encoding="utf-8", opener=_private) as file:
        file.write(f"{choice.name}\n")
    return f"Using {choice.name} ({choice.why}): its provider bills you."


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

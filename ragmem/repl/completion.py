"""What Tab offers: slash commands, and the files of the project after `@`."""

import re
from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ragmem.repl.terminal import Host

_MENTION = re.compile(r"(?:^|(?<=\s))@(\S*)$")
_COMMAND = re.compile(r"/(\w*)$")
_PLAIN = re.compile(r"[^\s\"'`,;:!?()\[\]{}<>]+")
_SHOWN = 50
_LISTING = "the files are being listed …"
"""Shown in place of candidates, which follow."""


def mention_at(before: str) -> str | None:
    """What is typed of an `@file` that ends at the cursor; None when there is none."""
    found = _MENTION.search(before)
    return found[1] if found else None


def command_at(before: str) -> str | None:
    """What is typed of a slash command at the start of the prompt; None when there is none."""
    found = _COMMAND.fullmatch(before)
    return found[1] if found else None


def rank(query: str, paths: Iterable[str], limit: int = _SHOWN) -> list[str]:
    """Paths that hold the query's characters in this order, the likeliest first.

    A name that starts with the query, then one that contains it, then a path
    that does, then the rest; shorter ones first.
    """
    wanted = query.casefold()
    spread = re.compile(".*?".join(map(re.escape, wanted)), re.DOTALL)
    found = []
    for path in paths:
        folded = path.casefold()
        if not spread.search(folded):
            continue
        name = folded.rsplit("/", 1)[-1]
        misses = (not name.startswith(wanted), wanted not in name, wanted not in folded)
        found.append((misses, len(path), path))
    found.sort()
    return [path for *_, path in found[:limit]]


class ChatCompleter(Completer):
    """Both kinds; the host is asked anew each time, since both come in the background."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterable[Completion]:
        """Candidates for what stands before the cursor."""
        before = document.text_before_cursor
        if (typed := command_at(before)) is not None:
            for name, text in self._host.commands.items():
                if name.startswith(typed.lower()):
                    yield Completion(
                        f"/{name}", -len(typed) - 1, display=f"/{name}", display_meta=text
                    )
        elif (typed := mention_at(before)) is not None:
            files = self._host.files
            if files is None:
                yield Completion(f"@{typed}", -len(typed) - 1, display=_LISTING)
                return
            for path in rank(typed, files):
                yield Completion(f"@{_quoted(path)} ", -len(typed) - 1, display=path)


def _quoted(path: str) -> str:
    """As `ragmem.tools.mentions` reads it."""
    return path if _PLAIN.fullmatch(path) else f'"{path}"'

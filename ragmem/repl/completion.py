"""What Tab offers: slash commands, and the files of the project after `@`."""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ragmem.repl.terminal import Host

_MENTION = re.compile(r"(?:^|(?<=\s))@(\S*)$")
_COMMAND = re.compile(r"/(\w*)$")
_PLAIN = re.compile(r"[^\s\"'`,;:!?()\[\]{}<>]+")
_SHOWN = 50
_LISTING = ("the files are being listed …", "what fits is offered then")
"""Stands in place of candidates, which follow: two lines, since a single one that changes nothing
is not shown."""
_MOST = 100_000
_TIMEOUT_S = 5.0


class ChatCompleter(Completer):
    """Offers both kinds; the host is asked each time, since both come in the background."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterable[Completion]:
        """Yield candidates for what stands before the cursor."""
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
                for line in _LISTING:
                    yield Completion(f"@{typed}", -len(typed) - 1, display=line)
                return
            for path in rank(typed, files):
                yield Completion(f"@{_quoted(path)} ", -len(typed) - 1, display=path)


def mention_at(before: str) -> str | None:
    """Return what is typed of an `@file` that ends at the cursor; None when there is none."""
    found = _MENTION.search(before)
    return found[1] if found else None


def command_at(before: str) -> str | None:
    """Return what is typed of a slash command that begins the prompt; None when there is none."""
    found = _COMMAND.fullmatch(before)
    return found[1] if found else None


def rank(query: str, paths: Iterable[str], limit: int = _SHOWN) -> list[str]:
    """Return paths that hold the query's characters in this order, the likeliest first.

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
    return [path for *_, path in sorted(found)[:limit]]


def _quoted(path: str) -> str:
    """Spell a path as `ragmem.tools.mentions` reads it."""
    return path if _PLAIN.fullmatch(path) else f'"{path}"'


class FileListing:
    """The project's files, listed anew in the background."""

    def __init__(self, cwd: Path, on_listed: Callable[[], None]) -> None:
        self.paths: Sequence[str] | None = None
        """None until they were listed once."""
        self._on_listed = on_listed
        self._cwd = cwd
        self._stop = threading.Event()
        self._renewing: asyncio.Task[None] | None = None

    def renew(self) -> None:
        """Begin to list anew, unless that is going on."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        self.paths = await asyncio.to_thread(project_files, self._cwd, self._stop)
        self._on_listed()

    def close(self) -> None:
        """Stop listing."""
        self._stop.set()


def project_files(cwd: Path, stop: threading.Event) -> list[str]:
    """List what .gitignore leaves below the folder; empty where it can't be had. Blocks.

    ripgrep lists them, never git, which runs what a folder says. Names that hide
    or steer are left out: they could not be shown as they are.
    """
    from ragmem.tools.search import find_ripgrep, list_files

    program = find_ripgrep([cwd])
    if program is None:
        return []
    try:
        folder = os.open(cwd, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return []
    try:
        found = list_files(program, folder, timeout_s=_TIMEOUT_S, stop=stop)
        return sorted(islice((path for path in found if path.isprintable()), _MOST))
    except OSError:
        return []
    finally:
        os.close(folder)

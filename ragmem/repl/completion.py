"""What Tab offers: slash commands, what can follow them, and the project's files after `@`."""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_to_text

from ragmem.repl.early import sign
from ragmem.repl.matching import fold, lit, rate, spread
from ragmem.repl.terminal import Host
from ragmem.text import clip_to_width, display_width, one_line

_MENTION = re.compile(r"(?:^|(?<=\s))@(\S*)$")
_COMMAND = re.compile(r"/(\w*)$")
_VALUE = re.compile(r"/(\w+) +([^\n]*)$")
_PLAIN = re.compile(r"[^\s\"'`,;:!?()\[\]{}<>]+")
_SHOWN = 50
_LONGEST = 400
_LISTING = ("the files are being listed …", "what fits is offered then")
"""Stands in place of candidates, which follow: two lines, since a single one that changes nothing
is not shown."""
_MOST = 100_000
_TIMEOUT_S = 5.0


class ChatCompleter(Completer):
    """Offers all three kinds; the host is asked each time, since they come in the background."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterable[Completion]:
        """Yield candidates for what stands before the cursor."""
        before = document.text_before_cursor
        if (typed := command_at(before)) is not None:
            yield from self._commands(typed)
        elif value := value_at(before):
            yield from self._values(*value)
        elif (typed := mention_at(before)) is not None:
            yield from self._files(typed)

    def _commands(self, typed: str) -> Iterable[Completion]:
        word = fold(typed)
        rated = [(rate([word], name), name) for name in self._host.commands]
        fits = [(rating, name) for rating, name in rated if rating is not None]
        for _, name in sorted(fits, key=lambda each: each[0]):
            text, _, arguments = self._host.commands[name].partition(f": /{name} ")
            shown: StyleAndTextTuples = [("", "/"), *lit_pieces(name, [word])]
            if arguments:
                shown.append(("class:argument", f" {arguments}"))
            yield Completion(f"/{name}", -len(typed) - 1, display=shown, display_meta=text)

    def _values(self, command: str, typed: str) -> Iterable[Completion]:
        words = fold(typed).split()
        fits = []
        for value, text in self._host.values(command) or ():
            if (rating := rate(words, fold(f"{value} {text}"))) is not None:
                fits.append((rating, value, text))
        fits.sort(key=lambda each: each[0])
        for _, value, text in fits[:_SHOWN]:
            shown = lit_pieces(one_line(value, _LONGEST), words)
            told = one_line(text, _LONGEST)
            yield Completion(value, -len(typed), display=shown, display_meta=told)

    def _files(self, typed: str) -> Iterable[Completion]:
        files = self._host.files
        if files is None:
            for line in _LISTING:
                yield Completion(f"@{typed}", -len(typed) - 1, display=line)
            return
        for path in rank(typed, files):
            shown = lit_pieces(path, [fold(typed)])
            yield Completion(f"@{_quoted(path)} ", -len(typed) - 1, display=shown)


def mention_at(before: str) -> str | None:
    """Return what is typed of an `@file` that ends at the cursor; None when there is none."""
    found = _MENTION.search(before)
    return found[1] if found else None


def command_at(before: str) -> str | None:
    """Return what is typed of a slash command that begins the prompt; None when there is none."""
    found = _COMMAND.fullmatch(before)
    return found[1] if found else None


def value_at(before: str) -> tuple[str, str] | None:
    """Return a slash command and what is typed behind it; None when there is none."""
    found = _VALUE.fullmatch(before)
    return (found[1], found[2]) if found else None


def rank(query: str, paths: Iterable[str], limit: int = _SHOWN) -> list[str]:
    """Return paths that hold the query's characters in this order, the likeliest first.

    A name that starts with the query, then one that contains it, then a path
    that does, then the rest; shorter ones first.
    """
    wanted = query.casefold()
    found = []
    for path in paths:
        folded = path.casefold()
        if wanted and not spread(wanted, folded):
            continue
        name = folded.rsplit("/", 1)[-1]
        misses = (not name.startswith(wanted), wanted not in name, wanted not in folded)
        found.append((misses, len(path), path))
    return [path for *_, path in sorted(found)[:limit]]


def _quoted(path: str) -> str:
    """Spell a path as `ragmem.tools.mentions` reads it."""
    return path if _PLAIN.fullmatch(path) else f'"{path}"'


# --- how it is offered --------------------------------------------------------


def lit_pieces(text: str, words: Sequence[str], style: str = "") -> StyleAndTextTuples:
    """Return the text, with the letters that folded words were found at in another style."""
    places = lit(words, fold(text))
    pieces: StyleAndTextTuples = []
    for at, char in enumerate(text):
        one = f"{style} class:match" if at in places else style
        if pieces and pieces[-1][0] == one:
            pieces[-1] = (one, pieces[-1][1] + char)
        else:
            pieces.append((one, char))
    return pieces


def menu_rows(
    candidates: Sequence[Completion], chosen: int | None, columns: int, most: int
) -> StyleAndTextTuples:
    """Return at most so many rows of what is offered, with the chosen one among them."""
    top = max(0, min((chosen or 0) - most // 2, len(candidates) - most))
    seen = candidates[top : top + most]
    widths = [display_width(fragment_list_to_text(each.display)) for each in seen]
    told = any(each.display_meta_text for each in seen)
    room = max(8, columns - 5)
    width = min(max(widths, default=0), room * 3 // 5 if told else room)
    pieces: StyleAndTextTuples = []
    for place, candidate in enumerate(seen, top):
        is_chosen = place == chosen
        pieces.append(("class:prompt", f"  {sign('▸', '>') if is_chosen else ' '} "))
        shown, taken = _clipped(candidate.display, width, "class:chosen" if is_chosen else "")
        meta = clip_to_width(candidate.display_meta_text, room - width - 2) if told else ""
        pieces += [*shown, ("class:dim", f"{' ' * (width - taken)}  {meta}".rstrip()), ("", "\n")]
    return pieces[:-1]


def _clipped(pieces: StyleAndTextTuples, width: int, style: str) -> tuple[StyleAndTextTuples, int]:
    """Return pieces that fill at most so many columns, and how many they fill."""
    kept: StyleAndTextTuples = []
    taken = 0
    for piece in pieces:
        text = clip_to_width(piece[1], max(0, width - taken)) if taken < width else ""
        taken += display_width(text)
        kept.append((f"{style} {piece[0]}", text))
    return kept, taken


# --- the files ------------------------------------------------------------------


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

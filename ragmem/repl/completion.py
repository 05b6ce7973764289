"""Completion and the picker, a list that is searched by typing.

Tab completes slash commands, their values, and the project's files after `@`.
"""

import asyncio
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, FilterOrBool
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    FormattedTextControl,
    HSplit,
    VSplit,
    Window,
)

from ragmem.errors import RagmemError
from ragmem.repl.early import sign
from ragmem.repl.terminal import Line, PickQuestion, PickRow, Preview, T
from ragmem.text import clean, clip_to_width, display_width, one_line

if TYPE_CHECKING:
    from ragmem.repl.chat import ChatLoop

_MENTION = re.compile(r"(?:^|(?<=\s))@(\S*)$")
_COMMAND = re.compile(r"/(\w*)$")
_VALUE = re.compile(r"/(\w+) +([^\n]*)$")
_UNQUOTED = re.compile(r"[^\s\"'`,;:!?()\[\]{}<>]+")
_OPTIONAL = re.compile(r"\[[^]]*\]|, /.*")
"""The optional parts of a command's argument description, and its alternative spelling."""
_FREE = ("model", "resume")
"""Commands that also accept values which are not offered."""
_MAX_OFFERED = 50
_MAX_TEXT_CHARS = 400
_MAX_FILES = 100_000
_TIMEOUT_S = 5.0


class ChatCompleter(Completer):
    """Completes commands, values and files, as far as the host has loaded them in the background.

    A completion that ends with a blank expects more input; any other is complete.
    """

    def __init__(self, host: "ChatLoop") -> None:
        self._host = host

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions of the text before the cursor."""
        before = document.text_before_cursor
        if (typed := command_at(before)) is not None:
            yield from self._commands(typed)
        elif value := value_at(before):
            yield from self._values(*value)
        elif (typed := mention_at(before)) is not None:
            yield from self._files(typed)

    def _commands(self, typed: str) -> Iterable[Completion]:
        word, commands = fold(typed), self._host.commands
        for name in fitting([word], ((name, "", name) for name in commands)):
            text, _, arguments = commands[name].partition(f": /{name} ")
            shown: StyleAndTextTuples = [
                ("", f"/{name}"),
                ("class:argument", f" {arguments}".rstrip()),
            ]
            needs_more = _OPTIONAL.sub("", arguments).strip()
            whole = f"/{name} " if needs_more else f"/{name}"
            yield Completion(whole, -len(typed) - 1, display=shown, display_meta=text)

    def _values(self, command: str, typed: str) -> Iterable[Completion]:
        words = fold(typed).split()
        found = self._host.values(command) or ()
        # Descriptions are searched only for commands that accept other values than those offered.
        values = ((fold(" ".join(each[: 1 + (command in _FREE)])), "", each) for each in found)
        for value, text in fitting(words, values)[:_MAX_OFFERED]:
            shown, about = one_line(value, _MAX_TEXT_CHARS), one_line(text, _MAX_TEXT_CHARS)
            yield Completion(value, -len(typed), display=shown, display_meta=about)

    def _files(self, typed: str) -> Iterable[Completion]:
        files = (path for path, _ in self._host.values("@") or ())
        for path in rank(typed, files)[:_MAX_OFFERED]:
            # Quoted as `ragmem.tools.workspace.at_paths` parses it.
            spelled = path if _UNQUOTED.fullmatch(path) else f'"{path}"'
            yield Completion(f"@{spelled} ", -len(typed) - 1, display=path)


def mention_at(before: str) -> str | None:
    """Return the text after the `@` of a mention that ends at the cursor; None if there is none.

    In a `!command`, an `@` belongs to the shell.
    """
    found = None if before.startswith("!") else _MENTION.search(before)
    return found[1] if found else None


def command_at(before: str) -> str | None:
    """Return the text after the slash of a command that is being typed; None if there is none."""
    found = _COMMAND.fullmatch(before)
    return found[1] if found else None


def value_at(before: str) -> tuple[str, str] | None:
    """Return a slash command and the text typed after it; None if there is none."""
    found = _VALUE.fullmatch(before)
    return (found[1], found[2]) if found else None


def is_marked(document: Document) -> bool:
    """Return whether Enter takes the first completion, without the user selecting it.

    It does if there is text to complete that would not be valid as it is.
    """
    before = document.text_before_cursor
    if mention_at(before):
        return True
    command, typed = value_at(before) or ("", command_at(before))
    return bool(typed) and command not in _FREE and not document.text_after_cursor


def rank(query: str, paths: Iterable[str]) -> list[str]:
    """Return the paths that contain the query's letters in order, the best matches first.

    File names that start with the query come first, then names that contain it, then paths that
    contain it, then the rest; shorter paths first among each.
    """
    wanted = query.casefold()
    found = []
    for path in paths:
        folded = path.casefold()
        if not wanted or spread(wanted, folded):
            name = folded.rpartition("/")[2]
            misses = (not name.startswith(wanted), wanted not in name, wanted not in folded)
            found.append((misses, len(path), path))
    return [path for *_, path in sorted(found)]


# --- the menu -----------------------------------------------------------------


def menu_rows(
    candidates: Sequence[Completion], chosen: int | None, columns: int, most: int
) -> StyleAndTextTuples:
    """Return at most `most` rows of the menu of completions, including the chosen one."""
    top = max(0, min((chosen or 0) - most // 2, len(candidates) - most))
    seen = candidates[top : top + most]
    widths = [display_width(fragment_list_to_text(each.display)) for each in seen]
    described = any(each.display_meta_text for each in seen)
    room = max(8, columns - 5)
    width = min(max(widths, default=0), room * 3 // 5 if described else room)
    pieces: StyleAndTextTuples = []
    for place, candidate in enumerate(seen, top):
        is_chosen = place == chosen
        pieces.append(("class:prompt", f"  {sign('▸', '>') if is_chosen else ' '} "))
        shown, taken = _clipped(candidate.display, width, "class:chosen" if is_chosen else "")
        meta = clip_to_width(candidate.display_meta_text, room - width - 2) if described else ""
        pieces += [*shown, ("class:dim", f"{' ' * (width - taken)}  {meta}".rstrip()), ("", "\n")]
    return pieces[:-1]


def _clipped(pieces: StyleAndTextTuples, width: int, style: str) -> tuple[StyleAndTextTuples, int]:
    """Clip styled pieces to a width in cells; return them and the width that they take."""
    kept: StyleAndTextTuples = []
    taken = 0
    for piece in pieces:
        text = clip_to_width(piece[1], max(0, width - taken)) if taken < width else ""
        taken += display_width(text)
        kept.append((f"{style} {piece[0]}", text))
    return kept, taken


# --- the files ------------------------------------------------------------------


def project_files(cwd: Path, stop: threading.Event) -> list[str]:
    """List the files below a folder that .gitignore does not exclude; empty on errors. Blocks.

    Uses ripgrep, never git, which runs commands that a folder configures. Leaves out names with
    unprintable characters, which could not be shown as they are, and folders of caches and build
    output, even if no .gitignore excludes them.
    """
    from ragmem.children import MADE_FOLDERS, FileList, find_ripgrep

    program = find_ripgrep([cwd])
    if program is None:
        return []
    try:
        folder = os.open(cwd, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return []
    try:
        for found in FileList.tries(program, folder, timeout_s=_TIMEOUT_S, stop=stop):
            shown = filter(str.isprintable, found)
            own = (path for path in shown if MADE_FOLDERS.isdisjoint(path.split("/")[:-1]))
            listed = sorted(islice(own, _MAX_FILES))
        return listed
    except OSError:
        return []
    finally:
        os.close(folder)


# --- matching words ----------------------------------------------------------

_AT_WORD, _INSIDE, _BESIDE = 1, 2, 3
_MAX_SPREAD = 8
"""Characters of a text per typed letter above which scattered letters are no match."""

Rating = tuple[int, int, int, int]
"""How well a text matches the typed words; smaller is better. Compared in this order: how many of
them are found as scattered letters only; whether they are the whole text (0), one piece of it (1)
or neither (2); the sum of the kinds of their places (`_AT_WORD` …, or 0 at the text's start); the
sum of their positions, or of the lengths over which letters are scattered."""


def fold(text: str) -> str:
    """Casefold a text, keeping each character at its position."""
    folded = text.casefold()
    if len(folded) == len(text):
        return folded
    return "".join(char.casefold()[:1] for char in text)


def fitting(words: Sequence[str], rows: Iterable[tuple[str, str, T]]) -> list[T]:
    """Return the rows that match all the folded words, the best matches first.

    Each row is given as (folded text, folded text beside it, row).
    """
    rated = ((rate(words, text, beside), row) for text, beside, row in rows)
    found = [(rating, row) for rating, row in rated if rating is not None]
    found.sort(key=lambda each: each[0])
    return [row for _, row in found]


def rate(words: Sequence[str], text: str, beside: str = "") -> Rating | None:
    """Return how well a folded text matches folded words; None if it does not match one of them.

    A match in `beside` counts less, and must contain the whole word.
    """
    loose = kinds = spans = 0
    for word in words:
        places = _match_places(word, text)
        if isinstance(places, range):
            if places.start > 0:
                kinds += _INSIDE if text[places.start - 1].isalnum() else _AT_WORD
            spans += places.start
        elif beside and word in beside:
            kinds += _BESIDE
        elif places:
            loose += 1
            spans += places[-1] - places[0]
        else:
            return None
    typed = " ".join(words)
    return loose, (typed != text) + (typed not in text), kinds, spans


def _match_places(word: str, text: str) -> Sequence[int]:
    """Return the positions of a word in a text, at the start of a word there if possible.

    The positions of scattered letters are a list, which is empty if they are too far apart.
    """
    first = at = text.find(word)
    while at > 0 and word and text[at - 1].isalnum():
        at = text.find(word, at + 1)
    if first >= 0:
        return range(first if at < 0 else at, (first if at < 0 else at) + len(word))
    places = spread(word, text)
    is_near = places and places[-1] - places[0] < _MAX_SPREAD * len(word)
    return places if is_near else []


def spread(word: str, text: str) -> list[int]:
    """Return the positions of a word's letters, in order, in a text; empty if it lacks them.

    Of the matches that end at the first possible position, this is the narrowest.
    """
    at = -1
    for letter in word:
        at = text.find(letter, at + 1)
        if at < 0:
            return []
    places = [at]
    for letter in reversed(word[:-1]):
        at = text.rfind(letter, 0, at)
        places.append(at)
    return places[::-1]


# --- the picker --------------------------------------------------------------

_MAX_ROWS = 10
_PREVIEW_ROWS = 2
_PREVIEW_HEIGHT = 12
"""Terminal rows from which on the picker has a preview."""
_WIDE_COLUMNS = 64
_GAP = "  "
_LOADING = "loading …"


class Picker:
    """A list of rows, the text that filters it, and the selected row.

    `size` returns the terminal's columns and rows; `refresh` schedules a redraw.
    """

    def __init__(
        self,
        question: PickQuestion,
        size: Callable[[], tuple[int, int]],
        refresh: Callable[[], None],
    ) -> None:
        self.question = question
        self.filter = Buffer(multiline=False, on_text_changed=lambda _: self._filter())
        self._size = size
        self._refresh = refresh
        self._answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._shown_list = 0
        self._all: list[tuple[str, str, PickRow]] | None = None
        """All rows, as the triples that `fitting` takes; None while they are loading."""
        self._found: list[PickRow] = []
        self._index = 0
        self._top = 0
        self._problem = ""
        self._previews: dict[str, Sequence[str | Line]] = {}
        self._last_marked = ""
        """Key of the row that was reported last to `on_marked`."""
        self._previewing: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self.container = self._container()

    # --- actions --------------------------------------------------------------

    async def picked(self) -> str | None:
        """Wait until a row is picked and return its key; None if the user leaves the picker."""
        self._load()
        try:
            return await self._answer
        finally:
            for task in (self._loading, self._previewing):
                if task:
                    task.cancel()

    def leave(self) -> None:
        """Leave without picking a row."""
        if not self._answer.done():
            self._answer.set_result(None)

    def take(self) -> None:
        """Pick the selected row, if there is one."""
        if self._found and not self._answer.done():
            self._answer.set_result(self._found[self._index].key)

    def move(self, by: int) -> None:
        """Select a row further down or up; a single step wraps around at an end."""
        if not self._found:
            return
        if abs(by) == 1:
            self._index = (self._index + by) % len(self._found)
        else:
            self._index = min(max(0, self._index + by), len(self._found) - 1)
        self._preview_selected()

    def turn(self, by: int) -> None:
        """Switch to another of the lists."""
        if len(self.question.lists) > 1:
            self._shown_list = (self._shown_list + by) % len(self.question.lists)
            self._load()

    # --- contents ---------------------------------------------------------------

    def _load(self) -> None:
        if self._loading:
            self._loading.cancel()
        self._all, self._found, self._problem = None, [], ""
        self._loading = asyncio.create_task(self._fill())
        self._refresh()

    async def _fill(self) -> None:
        try:
            rows = await self.question.load(self._shown_list)
        except RagmemError as error:
            rows, self._problem = (), str(error)
        self._all = [(fold(row.text), fold(" ".join((*row.facts, row.also))), row) for row in rows]
        self._filter()
        if not self.filter.text:
            self._index = next((i for i, row in enumerate(rows) if row.is_current), 0)
            self._preview_selected()
        self._refresh()

    def _filter(self) -> None:
        if self._all is None:
            return
        self._found = fitting(fold(self.filter.text).split(), self._all)
        self._index = 0
        self._preview_selected()

    def _preview_selected(self) -> None:
        """Report the selected row, and load its preview in place of any other."""
        if self._previewing:
            self._previewing.cancel()
            self._previewing = None
        if not self._found:
            return
        key = self._found[self._index].key
        if key != self._last_marked:
            self._last_marked = key
            self.question.on_marked(key)
        if self.question.preview and key not in self._previews:
            self._previewing = asyncio.create_task(self._load_preview(key, self.question.preview))

    async def _load_preview(self, key: str, preview: Preview) -> None:
        try:
            self._previews[key] = await preview(key)
        except RagmemError as error:
            self._previews[key] = (str(error),)
        self._refresh()

    # --- rendering ----------------------------------------------------------------

    @property
    def page(self) -> int:
        """Return how many rows of the list are shown."""
        _, rows = self._size()
        return max(1, min(_MAX_ROWS, rows // 2 - 1, len(self._all or ()) or 1))

    def _container(self) -> HSplit:
        control = BufferControl(self.filter, key_bindings=_keys(self))
        head = [
            text_window(self._head, extend=False),
            Window(control),
            text_window(self._totals, extend=False),
        ]
        low = Condition(lambda: self._size()[1] < _PREVIEW_HEIGHT or self.question.preview is None)
        preview = HSplit([text_window(self._rule, 1), text_window(self._preview, _PREVIEW_ROWS)])
        listed = text_window(self._list, lambda: self.page)
        return HSplit([VSplit(head, height=1), listed, ConditionalContainer(preview, ~low)])

    def _head(self) -> StyleAndTextTuples:
        columns, _ = self._size()
        title = clip_to_width(one_line(self.question.title, 60), max(1, columns // 2 - 4))
        return [("", "  "), ("class:question", title), ("class:prompt", f" {sign('›', '>')} ")]

    def _totals(self) -> StyleAndTextTuples:
        lists, columns = self.question.lists, self._size()[0]
        text = f"{len(self._found):,} of {len(self._all):,}" if self._all else ""
        if len(lists) > 1:
            other = lists[(self._shown_list + 1) % len(lists)].name
            text += f"{_GAP}tab: {other}" if columns >= _WIDE_COLUMNS else f"{_GAP}tab"
        return [("class:dim", f" {text} ")]

    def _list(self) -> StyleAndTextTuples:
        columns, _ = self._size()
        if not self._found:
            nothing = self._problem or ("No matches." if self._all else self.question.nothing)
            text = _LOADING if self._all is None else one_line(nothing, _MAX_TEXT_CHARS)
            return [("class:dim", f"    {clip_to_width(text, max(1, columns - 4))}")]
        room = self.page
        self._top = max(
            min(self._top, self._index, len(self._found) - room), self._index - room + 1, 0
        )
        seen = self._found[self._top : self._top + room]
        widths = _fact_widths(seen, most=columns // 2)
        pieces: StyleAndTextTuples = []
        for place, row in enumerate(seen, self._top):
            pieces += self._row(row, widths, columns, chosen=place == self._index)
            pieces.append(("", "\n"))
        return pieces[:-1]

    def _row(
        self, row: PickRow, widths: Sequence[int], columns: int, *, chosen: bool
    ) -> StyleAndTextTuples:
        mark = sign("▸", ">") if chosen else " "
        here = f"{sign('●', '*')} " if row.is_current else ""
        facts = ""
        for fact, width in zip(row.facts, widths, strict=False):
            shown = one_line(fact, 60)
            facts += _GAP + shown + " " * (width - display_width(shown))
        room = max(1, columns - 5 - display_width(here) - sum(widths) - len(_GAP) * len(widths))
        text = clip_to_width(one_line(row.text, _MAX_TEXT_CHARS), room)
        plain = "class:chosen" if chosen else ""
        beside = f"{' ' * (room - display_width(text))}{facts}".rstrip()
        head: StyleAndTextTuples = [("class:prompt", f"  {mark} "), ("class:tool", here)]
        return [*head, (plain, text), ("class:dim", beside)]

    def _rule(self) -> StyleAndTextTuples:
        return [("class:dim", "  " + sign("─", "-") * max(0, self._size()[0] - 4))]

    def _preview(self) -> StyleAndTextTuples:
        if not self._found:
            return []
        lines = self._previews.get(self._found[self._index].key, (_LOADING,))
        room = max(1, self._size()[0] - 6)
        pieces: StyleAndTextTuples = []
        for line in lines[:_PREVIEW_ROWS]:
            pieces.append(("", "    "))
            if isinstance(line, str):
                line = (("dim", clip_to_width(one_line(line, _MAX_TEXT_CHARS), room)),)
            pieces += [(f"class:{style}" if style else "", text) for style, text in line]
            pieces.append(("", "\n"))
        return pieces[:-1]


def text_window(
    of: Callable[[], StyleAndTextTuples],
    height: int | Callable[[], int] | None = None,
    *,
    extend: bool = True,
    wraps: bool = False,
) -> Window:
    """Return a window on styled text, as high as that; `extend`: and as wide as its place."""
    return Window(
        FormattedTextControl(of),
        height=height,
        wrap_lines=wraps,
        dont_extend_width=not extend,
        dont_extend_height=True,
    )


def _fact_widths(rows: Sequence[PickRow], *, most: int) -> list[int]:
    """Return the widths of the columns of facts that fit into `most` cells."""
    widths: list[int] = []
    for column in range(max((len(row.facts) for row in rows), default=0)):
        cells = (row.facts[column] for row in rows if column < len(row.facts))
        width = max((display_width(one_line(cell, 60)) for cell in cells), default=0)
        if sum(widths) + width + len(_GAP) * (len(widths) + 1) > most:
            break
        widths.append(width)
    return widths


def _keys(picker: Picker) -> KeyBindings:
    keys = KeyBindings()

    def add(act: Callable[[], None], *names: str, when: FilterOrBool = True) -> None:
        for name in names:
            keys.add(name, filter=when)(lambda _: act())

    add(lambda: picker.move(-1), "up", "c-p", "c-s")
    add(lambda: picker.move(1), "down", "c-n", "c-r")
    add(lambda: picker.move(-max(2, picker.page)), "pageup")
    add(lambda: picker.move(max(2, picker.page)), "pagedown")
    add(lambda: picker.move(-sys.maxsize), "home")
    add(lambda: picker.move(sys.maxsize), "end")
    add(picker.take, "enter", "c-j")
    add(picker.leave, "escape", "c-c", "c-g")
    add(picker.leave, "c-d", when=Condition(lambda: not picker.filter.text))
    add(lambda: picker.turn(1), "tab")
    add(lambda: picker.turn(-1), "s-tab")

    @keys.add(Keys.BracketedPaste)
    def _(event: object) -> None:
        picker.filter.insert_text(" ".join(clean(str(getattr(event, "data", ""))).split()))

    return keys

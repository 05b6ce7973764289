"""The picker: a list that is filtered as one types, in the rows of the prompt.

Only the rows that are seen are ever made; filtering takes time that is linear in the list.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, FilterOrBool
from prompt_toolkit.formatted_text import StyleAndTextTuples
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
from ragmem.repl.completion import lit_pieces
from ragmem.repl.early import sign
from ragmem.repl.matching import fold, rate
from ragmem.repl.terminal import PickQuestion, PickRow
from ragmem.text import clean, clip_to_width, display_width, one_line

_MOST_ROWS = 10
_PREVIEW_ROWS = 2
_LOW = 12
"""Rows of a terminal that has none to spare for a preview."""
_NARROW = 64
_LONGEST = 400
_GAP = "  "
_LOADING = "loading …"

Folded = tuple[str, str, PickRow]
"""A row with its text, and what stands beside it, as they are compared."""


class Picker:
    """What is picked from, what was typed, and which row is chosen at the moment.

    `size` tells columns and rows of the terminal; `refresh` has it drawn anew.
    """

    def __init__(
        self,
        question: PickQuestion,
        *,
        size: Callable[[], tuple[int, int]],
        refresh: Callable[[], None],
    ) -> None:
        self.question = question
        self.filter = Buffer(multiline=False, on_text_changed=lambda _: self._filter())
        self._size = size
        self._refresh = refresh
        self._answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._shown_list = 0
        self._all: list[Folded] | None = None
        self._found: list[Folded] = []
        self._words: list[str] = []
        self._at = 0
        self._top = 0
        self._problem = ""
        self._previews: dict[str, Sequence[str]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self.container = self._container()

    # --- its way --------------------------------------------------------------

    async def picked(self) -> str | None:
        """Return the key of the row that was picked; None when the person leaves."""
        self._load()
        try:
            return await self._answer
        finally:
            for task in (self._loading, self._looking):
                if task:
                    task.cancel()

    def leave(self) -> None:
        """Pick nothing."""
        self._reply(None)

    def take(self) -> None:
        """Pick the chosen row, if there is one."""
        if self._found:
            self._reply(self._found[self._at][2].key)

    def _reply(self, key: str | None) -> None:
        if not self._answer.done():
            self._answer.set_result(key)

    def move(self, by: int) -> None:
        """Choose a row further down, or up; one step goes round at an end."""
        if not self._found:
            return
        if abs(by) == 1:
            self._at = (self._at + by) % len(self._found)
        else:
            self._at = min(max(0, self._at + by), len(self._found) - 1)
        self._look()

    def turn(self, by: int) -> None:
        """Go to another of the lists."""
        if len(self.question.lists) > 1:
            self._shown_list = (self._shown_list + by) % len(self.question.lists)
            self._load()

    # --- what it holds ----------------------------------------------------------

    def _load(self) -> None:
        if self._loading:
            self._loading.cancel()
        self._all, self._found, self._problem = None, [], ""
        self._loading = asyncio.create_task(self._fill())
        self._refresh()

    async def _fill(self) -> None:
        load = self.question.lists[self._shown_list].load
        try:
            rows = await load()
        except RagmemError as error:
            rows, self._problem = (), str(error)
        self._all = [(fold(row.text), fold(" ".join((*row.facts, row.also))), row) for row in rows]
        self._filter()
        if not self.filter.text:
            current = (i for i, (*_, row) in enumerate(self._all) if row.is_current)
            self._at = next(current, 0)
            self._look()
        self._refresh()

    def _filter(self) -> None:
        if self._all is None:
            return
        self._words = fold(self.filter.text).split()
        self._found = self._all
        if self._words:
            rated = ((rate(self._words, *folded[:2]), folded) for folded in self._all)
            fits = [(rating, folded) for rating, folded in rated if rating is not None]
            fits.sort(key=lambda each: each[0])
            self._found = [folded for _, folded in fits]
        self._at = 0
        self._look()

    def _look(self) -> None:
        """Begin to make the preview of the chosen row, and of no other."""
        if self._looking:
            self._looking.cancel()
            self._looking = None
        if self.question.preview is None or not self._found:
            return
        key = self._found[self._at][2].key
        if key not in self._previews:
            self._looking = asyncio.create_task(self._preview_of(key))

    async def _preview_of(self, key: str) -> None:
        preview = self.question.preview
        if preview is None:
            return
        try:
            self._previews[key] = await preview(key)
        except RagmemError as error:
            self._previews[key] = (str(error),)
        self._refresh()

    # --- its rows -----------------------------------------------------------------

    @property
    def page(self) -> int:
        """Return how many rows of the list are shown."""
        _, rows = self._size()
        return max(1, min(_MOST_ROWS, rows // 2 - 1, len(self._all or ()) or 1))

    def _container(self) -> HSplit:
        control = BufferControl(self.filter, key_bindings=_keys(self))
        head = VSplit(
            [
                _rows(self._head, extend=False),
                Window(control, height=1),
                _rows(self._count, extend=False),
            ],
            height=1,
        )
        low = Condition(lambda: self._size()[1] < _LOW or self.question.preview is None)
        preview = HSplit(
            [
                _rows(self._rule, height=lambda: 1),
                _rows(self._preview, height=lambda: _PREVIEW_ROWS),
            ]
        )
        listed = _rows(self._list, height=lambda: self.page)
        return HSplit([head, listed, ConditionalContainer(preview, ~low)])

    def _head(self) -> StyleAndTextTuples:
        columns, _ = self._size()
        title = clip_to_width(one_line(self.question.title, 60), max(1, columns // 2 - 4))
        return [("", "  "), ("class:question", title), ("class:prompt", f" {sign('›', '>')} ")]

    def _count(self) -> StyleAndTextTuples:
        lists, columns = self.question.lists, self._size()[0]
        said = f"{len(self._found):,} of {len(self._all):,}" if self._all else ""
        if len(lists) > 1:
            other = lists[(self._shown_list + 1) % len(lists)].name
            said += f"{_GAP}tab: {other}" if columns >= _NARROW else f"{_GAP}tab"
        return [("class:dim", f" {said} ")]

    def _list(self) -> StyleAndTextTuples:
        columns, _ = self._size()
        if not self._found:
            nothing = self._problem or ("Nothing fits." if self._all else self.question.nothing)
            said = _LOADING if self._all is None else one_line(nothing, _LONGEST)
            return [("class:dim", f"    {clip_to_width(said, max(1, columns - 4))}")]
        room = self.page
        self._top = max(min(self._top, self._at, len(self._found) - room), self._at - room + 1, 0)
        seen = [row for *_, row in self._found[self._top : self._top + room]]
        widths = _fact_widths(seen, most=columns // 2)
        pieces: StyleAndTextTuples = []
        for place, row in enumerate(seen, self._top):
            pieces += self._row(row, widths, columns, chosen=place == self._at)
            pieces.append(("", "\n"))
        return pieces[:-1]

    def _row(
        self, row: PickRow, widths: Sequence[int], columns: int, *, chosen: bool
    ) -> StyleAndTextTuples:
        mark = sign("▸", ">") if chosen else " "
        here = f"{sign('●', '*')} " if row.is_current else ""
        facts = "".join(
            f"{_GAP}{_padded(one_line(fact, 60), width)}"
            for fact, width in zip(row.facts, widths, strict=False)
        )
        room = max(1, columns - 5 - display_width(here) - sum(widths) - len(_GAP) * len(widths))
        text = clip_to_width(one_line(row.text, _LONGEST), room)
        plain = "class:chosen" if chosen else ""
        title = lit_pieces(text, self._words, plain)
        pad = " " * (room - display_width(text))
        head: StyleAndTextTuples = [("class:prompt", f"  {mark} "), ("class:tool", here)]
        return [*head, *title, ("class:dim", f"{pad}{facts}".rstrip())]

    def _rule(self) -> StyleAndTextTuples:
        return [("class:dim", "  " + sign("─", "-") * max(0, self._size()[0] - 4))]

    def _preview(self) -> StyleAndTextTuples:
        if not self._found:
            return []
        lines = self._previews.get(self._found[self._at][2].key, (_LOADING,))
        room = max(1, self._size()[0] - 6)
        said = (clip_to_width(one_line(line, _LONGEST), room) for line in lines[:_PREVIEW_ROWS])
        return [("class:dim", "\n".join(f"    {line}" for line in said))]


def _rows(
    of: Callable[[], StyleAndTextTuples],
    height: Callable[[], int] | None = None,
    *,
    extend: bool = True,
) -> Window:
    control = FormattedTextControl(of)
    return Window(control, height=height, dont_extend_width=not extend, dont_extend_height=True)


def _fact_widths(rows: Sequence[PickRow], *, most: int) -> list[int]:
    """Return the widths of as many columns as there is room for."""
    widths: list[int] = []
    for column in range(max((len(row.facts) for row in rows), default=0)):
        cells = (row.facts[column] for row in rows if column < len(row.facts))
        width = max((display_width(one_line(cell, 60)) for cell in cells), default=0)
        if sum(widths) + width + len(_GAP) * (len(widths) + 1) > most:
            break
        widths.append(width)
    return widths


def _padded(text: str, width: int) -> str:
    return text + " " * max(0, width - display_width(text))


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

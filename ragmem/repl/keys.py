"""Which keys do what in the prompt of an interactive terminal."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from prompt_toolkit.filters import Condition, FilterOrBool, has_focus
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys

from ragmem.repl.terminal import Host

if TYPE_CHECKING:
    from ragmem.repl.input import LiveTerminal


def key_bindings(terminal: "LiveTerminal", host: Host) -> KeyBindings:
    """Return our bindings, which go before prompt-toolkit's own."""
    keys = KeyBindings()
    typing = has_focus(terminal.buffer)

    def add(act: Callable[[], None], *names: str, when: FilterOrBool = typing) -> None:
        keys.add(*names, filter=when)(lambda _: act())

    for enter in ("enter", "c-j"):
        add(terminal.enter, enter)
        add(terminal.add_line, "escape", enter)
    add(terminal.complete, "tab")
    menu = Condition(lambda: terminal.buffer.complete_state is not None)
    add(host.next_mode, "s-tab", when=typing & ~menu)
    add(terminal.earlier, "up", when=typing & ~menu)
    for name, by in (("up", -1), ("c-p", -1), ("s-tab", -1), ("down", 1), ("c-n", 1)):
        add(partial(terminal.offer_next, by), name, when=typing & menu)
    marks = Condition(lambda: terminal.marks)
    for name, by in (("up", -1), ("left", -1), ("down", 1), ("right", 1)):
        add(partial(terminal.mark, by), name, when=typing & marks)
    add(terminal.search_history, "c-r")
    add(terminal.edit, "c-g")
    add(terminal.edit, "c-x", "c-e")
    add(terminal.expand, "c-o")
    add(terminal.escape, "escape")
    add(terminal.escape_twice, "escape", "escape")
    add(terminal.interrupt, "c-c")
    add(terminal.interrupt, "<sigint>", when=True)
    add(terminal.end, "c-d", when=typing & Condition(lambda: not terminal.buffer.text))
    ends_with_paste = Condition(lambda: terminal.paste_mark != "")
    add(terminal.delete_mark, "backspace", when=typing & ends_with_paste)
    add(terminal.suspend, "c-z", when=True)
    keys.add(Keys.BracketedPaste, filter=typing)(lambda event: terminal.paste(event.data))
    return keys

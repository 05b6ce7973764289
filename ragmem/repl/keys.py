"""What each key does at the prompt."""

from itertools import islice
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.key_binding import (
    KeyBindings,
    KeyBindingsBase,
    KeyPressEvent,
    merge_key_bindings,
)
from prompt_toolkit.keys import Keys

from ragmem.text import clean

if TYPE_CHECKING:
    from ragmem.repl.input import LiveTerminal


def key_bindings(terminal: "LiveTerminal") -> KeyBindingsBase:
    """Ours; they go before prompt-toolkit's own."""
    return merge_key_bindings([_editing(terminal), _leaving(terminal), _pasting(terminal)])


def _editing(terminal: "LiveTerminal") -> KeyBindings:
    keys = KeyBindings()
    buffer = terminal.buffer
    typing = has_focus(buffer)

    @keys.add("enter", filter=typing)
    @keys.add("c-j", filter=typing)
    def _enter(_: KeyPressEvent) -> None:
        state = buffer.complete_state
        if state and state.current_completion:
            buffer.complete_state = None
        elif buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            terminal.enter()

    @keys.add("escape", "enter", filter=typing)
    @keys.add("escape", "c-j", filter=typing)
    def _add_line(_: KeyPressEvent) -> None:
        buffer.newline(copy_margin=False)

    @keys.add("tab", filter=typing)
    def _complete(_: KeyPressEvent) -> None:
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_next()
            return
        # Asked here, since the menu may not have come yet.
        asked = CompleteEvent(completion_requested=True)
        found = list(islice(buffer.completer.get_completions(buffer.document, asked), 2))
        if len(found) == 1:
            buffer.apply_completion(found[0])
        elif buffer.complete_state:
            buffer.complete_next()
        elif found:
            buffer.start_completion(select_first=True)

    return keys


def _leaving(terminal: "LiveTerminal") -> KeyBindings:
    keys = KeyBindings()
    typing = has_focus(terminal.buffer)

    @keys.add("escape", filter=typing)
    def _escape(_: KeyPressEvent) -> None:
        terminal.escape()

    @keys.add("c-c", filter=typing)
    @keys.add("<sigint>")
    def _interrupt(_: KeyPressEvent) -> None:
        terminal.interrupt()

    @keys.add("c-d", filter=typing & Condition(lambda: not terminal.buffer.text))
    def _end(_: KeyPressEvent) -> None:
        terminal.end()

    @keys.add("c-z")
    def _suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    return keys


def _pasting(terminal: "LiveTerminal") -> KeyBindings:
    keys = KeyBindings()
    buffer = terminal.buffer
    typing = has_focus(buffer)

    @keys.add(Keys.BracketedPaste, filter=typing)
    def _paste(event: KeyPressEvent) -> None:
        if terminal.choosing:
            return  # a pasted letter is no decision
        if terminal.question:
            buffer.insert_text(" ".join(clean(event.data).split()))
        else:
            buffer.insert_text(terminal.pastes.fold(event.data))

    @keys.add("backspace", filter=typing & Condition(lambda: _mark(terminal) != ""))
    def _delete_paste(_: KeyPressEvent) -> None:
        buffer.delete_before_cursor(len(_mark(terminal)))

    return keys


def _mark(terminal: "LiveTerminal") -> str:
    return terminal.pastes.mark_before(terminal.buffer.document.text_before_cursor)

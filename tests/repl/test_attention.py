"""The terminal's title and bell: when a chat needs its person, and where it says nothing."""

import re
from pathlib import Path

from ragmem.repl.terminal import LONG_S, Attention
from tests.repl.fake_app import EVIL
from tests.repl.pty_chat import FakeChat

TITLE = re.compile(rb"\x1b\]0;(.*?)\x1b\\")


class Window:
    """What was sent, by a clock that a test turns on."""

    def __init__(self, *, title: bool = True, bell: bool = True, **environ: str) -> None:
        self.sent: list[str] = []
        self.now = 0.0
        self.attention = Attention(
            self.sent.append, title=title, bell=bell, environ=environ, clock=lambda: self.now
        )


def test_a_title_is_put_away_first_and_given_back_at_the_end() -> None:
    window = Window()
    window.attention.name("My session")
    window.attention.name("My session")
    window.attention.close()
    window.attention.close()
    assert window.sent == ["\x1b[22;0t\x1b]0;ragmem: My session\x1b\\", "\x1b]0;\x1b\\\x1b[23;0t"]


def test_a_title_can_hold_no_escape_sequence() -> None:
    window = Window()
    window.attention.name(EVIL)
    (sent,) = window.sent
    inner = sent.removeprefix("\x1b[22;0t\x1b]0;").removesuffix("\x1b\\")
    assert inner.isprintable()
    assert "owned" in inner


def test_only_the_end_of_a_long_wait_rings() -> None:
    window = Window(title=False)
    window.attention.attended()
    window.now = LONG_S - 1
    window.attention.ended()
    assert window.sent == []
    window.now = LONG_S
    window.attention.ended()
    assert window.sent == ["\x07"]


def test_nothing_is_sent_where_both_are_switched_off_and_no_title_to_a_bare_console() -> None:
    off, console = Window(title=False, bell=False), Window(TERM="linux")
    for window in (off, console):
        window.attention.name("x")
        window.attention.needs_person()
        window.attention.close()
    assert off.sent == []
    assert console.sent == ["\x07"]


def test_an_approval_shows_in_the_title_and_rings_once(chat: FakeChat, tmp_path: Path) -> None:
    chat.send("edit\r", shows=r"^Allow this change\?")
    chat.send("y", prints=r"^Done so\.")
    chat.leave()
    name = tmp_path.name.encode()
    titles = [b"ragmem: " + name, "● ragmem: needs you".encode(), b"ragmem: " + name, b""]
    assert TITLE.findall(chat.raw) == titles
    assert chat.raw.count(b"\x07") == 1
    assert chat.is_restored()

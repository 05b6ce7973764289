"""Colours that can be read: themes, the background that a terminal tells, colours of one's own."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from rich.color import Color
from rich.text import Text

from ragmem.cli.output import Paint
from ragmem.repl.drawing import KeyParser
from ragmem.repl.output import answer, paint
from ragmem.themes import ASKS_BACKGROUND, Colors, depth, is_light_background
from tests.repl.pty_chat import FakeChat
from tests.repl.test_diffs import luminance

ESC, UP = "\x1b", "\x1b[A"
MANY, ALL = {"TERM": "xterm-256color"}, {"TERM": "xterm", "COLORTERM": "truecolor"}
DARK = ("#000000", "#1e1e2e", "#282c34", "#002b36", "#2e3440", "#300a24", "#282828")
LIGHT = ("#ffffff", "#fdf6e3", "#eee8d5", "#fbf1c7", "#eff1f5")
"""Backgrounds of widespread schemes: black, Catppuccin, One, Solarized, Nord, Ubuntu, Gruvbox."""
WHITE, BLACK = "\x1b]11;rgb:ffff/ffff/ffff\x1b\\", "\x1b]11;rgb:0000/0000/0000\x07"


@pytest.mark.parametrize(("name", "grounds"), [("dark", DARK), ("light", LIGHT)])
def test_every_colour_can_be_read_on_widespread_backgrounds(
    name: str, grounds: tuple[str, ...]
) -> None:
    """At least 4.5 to 1."""
    inks = Colors(name, environ=MANY).theme.colors  # type: ignore[arg-type]
    assert set(inks) == {"red", "green", "yellow", "blue", "magenta", "cyan", "dim"}
    for ink in inks.values():
        for ground in grounds:
            both = (luminance(Color.parse(color)) for color in (ink, ground))
            lighter, darker = sorted(both, reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (name, ink, ground)


@pytest.mark.parametrize("name", ["dark", "light"])
def test_256_colours_are_enough_for_a_theme(name: str) -> None:
    """The same colour comes out, whether a terminal has 256 or all."""
    few, every = (Colors(name, environ=e).theme for e in (MANY, ALL))  # type: ignore[arg-type]
    for color in few.colors:
        number = (few.code(color) or "").removeprefix("38;5;")
        triplet = Color.parse(f"color({number})").get_truecolor()
        assert every.code(color) == f"38;2;{triplet.red};{triplet.green};{triplet.blue}"


def test_escape_sequences_are_recoloured_and_nothing_else_is() -> None:
    theme = Colors("light", environ=MANY).theme
    painted = "\x1b[1;31mred\x1b[0m 31m \x1b[2mdim\x1b[0m \x1b[2;36mcyan\x1b[m \x1b[38;5;31;44mown"
    assert theme.recolor(painted) == (
        "\x1b[1;38;5;124mred\x1b[0m 31m \x1b[38;5;240mdim\x1b[0m \x1b[38;5;24mcyan\x1b[m "
        "\x1b[38;5;31;44mown"
    )
    assert theme.recolor("\x1b[48;2;1;2;31;92mx") == "\x1b[48;2;1;2;31;38;5;22mx"


@given(st.text())
def test_a_theme_changes_no_character_that_is_seen(text: str) -> None:
    shown = paint(answer(text), width=40)
    again = Colors("dark", environ=MANY).theme.recolor(shown)
    assert Text.from_ansi(again).plain == Text.from_ansi(shown).plain


def test_a_terminal_of_sixteen_colours_keeps_its_own() -> None:
    for environ in ({"TERM": "xterm"}, {"TERM": "linux"}, {}):
        assert depth(environ) == ""
        colors = Colors("light", {"accent": "#102030"}, environ)
        assert colors.theme.recolor("\x1b[36mx\x1b[0m") == "\x1b[36mx\x1b[0m"
        assert not colors.asks


def test_colours_of_ones_own_stand_in_any_theme() -> None:
    own = {"accent": "#102030", "bad": "#ff5f5f", "quiet": ""}
    assert Colors("dark", own, ALL).theme.code("cyan") == "38;2;16;32;48"
    assert Colors("dark", own, MANY).theme.code("red") == "38;5;203"
    assert Colors("auto", own, MANY).theme.code("green") is None  # the terminal's
    assert Colors("light", own, MANY).theme.code("dim") == "38;5;240"
    assert Paint("color", Colors("auto", own, ALL).theme)(("x", "cyan")) == (
        "\x1b[38;2;16;32;48mx\x1b[0m"
    )


@pytest.mark.parametrize(
    ("answered", "light"),
    [
        ("rgb:ffff/ffff/ffff", True),
        ("rgb:fd/f6/e3", True),
        ("rgb:2828/2c2c/3434", False),
        ("rgba:0000/0000/0000/ffff", False),
        ("rgb:8080/8080/8080", True),
        ("rgb:0/2b/36", False),
        ("what?", None),
        ("", None),
    ],
)
def test_a_background_is_light_where_black_is_read_better(
    answered: str, light: bool | None
) -> None:
    assert is_light_background(answered) is light


def test_the_background_comes_from_the_environment_until_the_terminal_tells() -> None:
    colors = Colors("auto", environ={**MANY, "COLORFGBG": "0;15"})
    assert colors.theme.code("dim") == "38;5;240"
    colors.answered("rgb:0000/0000/0000")
    assert colors.theme.code("dim") == "38;5;248"
    colors.answered("nonsense")
    assert colors.theme.code("dim") == "38;5;248"
    chosen = Colors("light", environ=MANY)
    chosen.answered("rgb:0000/0000/0000")
    assert chosen.theme.code("dim") == "38;5;240"


KEYS = ["a", "\r", "x" * 7, "\x1b[A", WHITE, BLACK, "\x1b[200~", "\x1b[201~"]


@given(st.lists(st.sampled_from(KEYS), max_size=12), st.lists(st.integers(0, 200), max_size=8))
def test_keys_are_what_prompt_toolkit_makes_of_them_and_answers_are_none(
    typed: list[str], at: list[int]
) -> None:
    """Wherever the input is cut, not even when a pause follows each piece."""
    text = "".join(typed)
    edges = [0, *sorted({i % (len(text) + 1) for i in at}), len(text)]
    told: list[str] = []
    ours: list[KeyPress] = []
    theirs: list[KeyPress] = []
    parser = KeyParser(ours.append, told.append)
    for piece in (*(text[a:b] for a, b in pairwise(edges)), "\x1b[201~"):
        parser.feed(piece)
        parser.feed("")
    answers = (WHITE, BLACK)
    plain = "".join(each for each in typed if each not in answers)
    Vt100Parser(theirs.append).feed(f"{plain}\x1b[201~")
    assert [(key.key, key.data) for key in ours] == [(key.key, key.data) for key in theirs]
    assert len(told) == sum(each in answers for each in typed)


def test_an_answer_that_comes_in_two_parts_with_a_pause_is_no_key() -> None:
    keys: list[KeyPress] = []
    told: list[str] = []
    parser = KeyParser(keys.append, told.append)
    parser.feed(WHITE[:9])
    parser.flush()
    parser.feed(WHITE[9:])
    assert (keys, told) == ([], ["rgb:ffff/ffff/ffff"])


@pytest.mark.chat(env={"COLORTERM": "", "TERM": "xterm-256color"})
def test_a_chat_takes_the_colours_for_the_background_that_its_terminal_tells(
    chat: FakeChat,
) -> None:
    """It asks once; the answer is not taken for what the person types."""
    assert chat.raw.count(ASKS_BACKGROUND.encode()) == 1
    chat.send("one")
    chat.send(WHITE + " two", shows=r"^› one two$")
    chat.until(lambda: b"38;5;24" in chat.raw)
    chat.send("\r", until=lambda: chat.prompts == ["one two"])


@pytest.mark.parametrize("setting", ["theme=plain", "color=never"])
def test_without_colours_nothing_is_asked_or_coloured(tmp_path: Path, setting: str) -> None:
    with FakeChat(tmp_path, setting, env={"TERM": "xterm-256color"}) as chat:
        assert ASKS_BACKGROUND.encode() not in chat.raw
        assert not re.search(rb"\x1b\[[\d;]*\b(?:[349]\d|10\d)[\d;]*m", chat.raw)


def test_a_theme_is_seen_while_one_moves_holds_at_once_and_is_kept(tmp_path: Path) -> None:
    """The file of settings has what Enter picks; Esc leaves all as it was."""
    home = tmp_path / "home"
    with FakeChat(tmp_path, "theme=dark", env={"RAGMEM_HOME": str(home)}) as chat:
        chat.send(
            "/theme\r", shows=r"^  ▸ ● dark +for a dark background$[\s\S]*^    ● added  ✗ removed"
        )
        dark, light = (Colors(name, environ=MANY).theme for name in ("dark", "light"))  # type: ignore[arg-type]
        seen = len(chat.raw)
        chat.send(UP, shows=r"^  ▸ light +for a light background$")
        chat.until(lambda: str(light.code("red")).encode() in chat.raw[seen:])
        seen = len(chat.raw)
        chat.send(ESC, shows=r"^›$")
        assert not (home / "ragmem.toml").exists()
        chat.send("/theme\r", shows=r"^  ▸ ● dark +for a dark background$")
        chat.until(lambda: str(dark.code("green")).encode() in chat.raw[seen:])
        chat.send("light\r", prints=r"^· ui\.theme = light$")
        assert "● added" not in chat.text
        assert 'theme = "light"' in (home / "ragmem.toml").read_text()
        seen = len(chat.raw)
        chat.send("/themes\r", prints=r"Did you mean /theme\?")
        assert str(light.code("red")).encode() in chat.raw[seen:]
        assert str(dark.code("red")).encode() not in chat.raw[seen:]
        chat.send("/theme pink\r")
        chat.wait_for(
            r"^✗ Unknown theme: 'pink'\.\n"
            r"  Available themes: auto, light, dark, plain\.$"
        )
        chat.send("/theme plain\r")
        chat.wait_for(r"^· ui\.theme = plain, from the next start of ragmem\.$")

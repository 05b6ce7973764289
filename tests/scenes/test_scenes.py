"""Screens as people see them, whole: in three sizes, light and dark, without colours."""

import os
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ragmem.repl.about import Status, toolbar
from tests.repl.pty_chat import PtyChat
from tests.scenes.draw import PICTURES, drawn_text
from tests.scenes.play import SIZES, Stage, kept, names, read, scene, settled, written
from tests.store.conftest import mostly

MOST_SCROLLED = 8
LOOKS = {
    "light": {"RAGMEM_UI__THEME": "light"},
    "dark": {"RAGMEM_UI__THEME": "dark"},
    "no colours": {"NO_COLOR": "1"},
}


@pytest.mark.parametrize("amounts", [{}, {"tokens": 120, "cost_usd": 0.12}], ids=["none", "some"])
def test_what_goes_on_behind_a_scene_moves_nothing_in_its_footer(amounts: dict[str, Any]) -> None:
    rows = [
        "".join(text for _, text in toolbar(Status(model="m", session="s", **amounts, **more), 80))
        for more in ({}, {"doing": "summaries"})
    ]
    assert settled(rows[0]) == settled(rows[1])


def shown(chat: PtyChat) -> str:
    """The screen once it is still."""
    before, still = "", 0
    while still < 4:
        chat.pump(0.1)
        before, still = chat.screen, still + 1 if chat.screen == before else 0
    return settled(chat.screen)


def assert_same(screen: str, expected: str) -> None:
    """Compare whole, but for how far it has scrolled: that depends on what was live meanwhile."""
    rows, wanted = screen.splitlines(), expected.splitlines()
    least = min(len(rows), len(wanted))
    assert rows[-least:] == wanted[-least:]
    assert abs(len(rows) - len(wanted)) <= MOST_SCROLLED


def last_kept(name: str, columns: int, rows: int) -> str:
    """The screen that a scene ends with."""
    *_, last = read(kept(name, columns, rows).read_text()).values()
    return last


WRITES = bool(os.environ.get("WRITE_SCENES"))
IN_TIME = {"resized"}
"""What these show depends on how far an answer has come at a key: for a quiet machine."""


@pytest.mark.parametrize(("columns", "rows"), mostly(SIZES if WRITES else SIZES[1:2], SIZES))
@pytest.mark.parametrize("name", mostly([each for each in names() if each not in IN_TIME], names()))
def test_a_scene_shows_the_screens_that_are_kept(
    name: str, columns: int, rows: int, tmp_path: Path
) -> None:
    """`WRITE_SCENES=1` writes them anew: look at what has changed."""
    screens = seen(Stage(scene(name), tmp_path), columns, rows)
    file = kept(name, columns, rows)
    if WRITES:
        file.write_text(written(screens))
    wanted = read(file.read_text())
    assert list(screens) == list(wanted)
    for look, screen in screens.items():
        assert_same(screen, wanted[look])


def seen(stage: Stage, columns: int, rows: int) -> dict[str, str]:
    """The screens of a scene, by what is to be seen."""
    screens: dict[str, str] = {}
    with stage.played(columns, rows, lambda look, chat: screens.update({look: shown(chat)})):
        return screens


@pytest.mark.parametrize("look", LOOKS)
def test_colours_change_no_character(look: str, tmp_path: Path) -> None:
    with Stage(scene("change"), tmp_path, LOOKS[look]).played(80, 24) as chat:
        assert_same(shown(chat), last_kept("change", 80, 24))


def test_a_terminal_that_can_do_nothing_is_told_the_same(tmp_path: Path) -> None:
    """Lines, one after the other; no escape sequence at all."""
    told = scene("change")
    first, *rest = told.steps
    steps = (msgspec.structs.replace(first, wait="^›"), *rest)
    told = msgspec.structs.replace(told, steps=steps)
    with Stage(told, tmp_path, {"TERM": "dumb"}).played(80, 40) as chat:
        chat.wait_for("Allow this change.* y yes")
        assert b"\x1b" not in chat.raw
        for line in ("Edit water.py", "math.ceil(plants / 2)"):
            assert line in chat.text


@pytest.mark.parametrize("picture", sorted(PICTURES), ids=lambda file: file.stem)
def test_the_pictures_of_the_docs_show_these_screens(picture: Path) -> None:
    """`scripts/pictures` draws them anew."""
    of = PICTURES[picture]
    screen = settled(unescape(drawn_text(picture)).rstrip())
    assert_same(screen, last_kept(of.scene, of.columns, of.rows))

"""A request as a picture: the whole first, then its parts, and what was left out."""

import pytest
from inline_snapshot import snapshot

from ragmem.memory.context.builder import Context
from ragmem.memory.context.sections import ContextItem, ContextSection
from ragmem.messages import user
from ragmem.repl.output import paint
from ragmem.repl.recalled import picture
from ragmem.text import display_width


def an_item(label: str, chars: int) -> ContextItem:
    return ContextItem(label=label, chars=chars, why="its words")


CONTEXT = Context(
    sections=(
        ContextSection(name="System", chars=4_000, budget=0),
        ContextSection(
            name="Recent Conversation",
            chars=28_800,
            budget=40_000,
            items=(an_item("Turn 1: why?", 20_000), an_item("Turn 2: and 日本?", 8_800)),
            dropped=4,
        ),
        ContextSection(
            name="Relevant Code",
            chars=6_800,
            budget=10_000,
            items=(an_item("spool/files.py:3-9 drain", 6_400),),
        ),
        ContextSection(name="Remembered Facts", chars=0, budget=5_000, dropped=2),
        ContextSection(name="Prompt", chars=200, budget=0),
    ),
    messages=(user("x" * 40_400),),
    max_chars=100_000,
)


def shown(width: int, *, items: bool = False, window: int | None = 200_000) -> str:
    return paint(
        picture(CONTEXT, width=width, window=window, items=items), width=width, mode="none"
    )


def test_the_whole_comes_first_and_bars_stand_in_one_column() -> None:
    assert shown(80) == snapshot("""\
10k of 25k tokens  ████████████████························
the maximum (memory.context.max_chars), without tools
5% of the model's 200k tokens

how to work        1k
conversation     7.2k  ████████████····  2 turns
places in code   1.7k  ███████████·····  spool/files.py:3-9 drain
prompt             50
headings          150
left out: 4 of conversation, 2 of memories
/context all lists the items of each section
""")


def test_each_part_lists_its_items_on_request() -> None:
    assert shown(80, items=True) == snapshot("""\
10k of 25k tokens  ████████████████························
the maximum (memory.context.max_chars), without tools
5% of the model's 200k tokens

how to work        1k
conversation     7.2k  ████████████····  2 turns
                   5k  Turn 1: why? (its words)
                 2.2k  Turn 2: and 日本? (its words)
places in code   1.7k  ███████████·····  spool/files.py:3-9 drain
                 1.6k  spool/files.py:3-9 drain (its words)
                  100  headings
prompt             50
headings          150
left out: 4 of conversation, 2 of memories
""")


@pytest.mark.parametrize("width", [42, 60, 120])
def test_no_row_is_wider_than_the_screen(width: int) -> None:
    rows = shown(width, items=True, window=None).split("\n")
    assert all(display_width(row) <= width for row in rows)

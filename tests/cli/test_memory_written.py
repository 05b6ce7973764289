"""A write to memory as `ask` and the chat show it: one dim line, one event."""

import json

import pytest
from rich.console import Group

from ragmem.cli.ask import Progress, StreamJsonOutput, TextOutput
from ragmem.cli.output import Paint
from ragmem.events import MemoryWritten
from ragmem.repl.output import paint
from ragmem.repl.turn import TurnView

ID = "01900000-0000-7000-8000-0000deadbeef"
WRITTEN = MemoryWritten(
    action="updated",
    kind="decision",
    content="The login uses JWT\x1b[2J\nand more " + "words " * 40,
    id=ID,
    trust="tool",
    superseded=("01900000-0000-7000-8000-0000000000bb",),
)


@pytest.mark.parametrize("live", [True, False])
def test_ask_says_it_on_stderr(capfd: pytest.CaptureFixture[str], live: bool) -> None:
    """One dim line, also where nobody watches; stdout is the answer's alone."""
    TextOutput(Progress(live=live, paint=Paint("color")), live=False).show(WRITTEN)
    out, err = capfd.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith(
        "\x1b[2mremembered decision deadbeef anew: The login uses JWT\\e[2J and more words"
    )
    assert line.endswith("\x1b[0m")
    assert "\x1b[2J" not in err


def test_stream_json_has_it_whole(capfd: pytest.CaptureFixture[str]) -> None:
    StreamJsonOutput("sess", cwd="/p", permission_mode="default").show(WRITTEN)
    out, err = capfd.readouterr()
    assert json.loads(out) == {
        "type": "system",
        "subtype": "memory_write",
        "session_id": "sess",
        "action": "updated",
        "kind": "decision",
        "content": WRITTEN.content,
        "id": ID,
        "trust": "tool",
        "superseded": ["01900000-0000-7000-8000-0000000000bb"],
    }
    assert err == ""


@pytest.mark.parametrize("width", [30, 60, 200])
def test_the_chat_says_it_on_one_line(width: int) -> None:
    wide = MemoryWritten(action="added", kind="fact", content="記憶" * 200, id=ID)
    for event in (WRITTEN, wide):
        (part,) = TurnView().show(event)
        text = paint(Group(part[1]), width=width, mode="none")
        assert text.count("\n") == 1
        assert text.startswith("· remembered ")
        assert "\x1b" not in text
        assert text.endswith("…\n")
    assert "\x1b[2m" in paint(part[1], width=width, mode="mono")

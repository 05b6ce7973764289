"""A command while it runs, what is typed meanwhile, and when it has ended: a real chat on a pty."""

import pytest

from tests.e2e.house import House
from tests.fakes.llm_server import Answer, Call
from tests.repl.pty_chat import LOADED

_HELD = """
for i in $(seq 1 40); do echo "line $i of the build"; done
printf 'half \\033[31mred\\033[0m 10%%\\r20%%\\n\\033]0;owned\\007'
while [ ! -e go ]; do sleep 0.05; done
echo "E  assert 3 == 4"; exit 7
"""


@pytest.fixture
def house(house: House) -> House:
    (house.project / "build.sh").write_text(_HELD)
    return house


def test_the_end_of_what_is_printed_shows_while_it_runs(house: House) -> None:
    """With how many lines and how long; nothing of a terminal's controls, and no row wraps."""
    house.server.extend(
        Answer(tools=[Call("run_command", {"command": "bash build.sh"})]), Answer("It failed.")
    )
    with house.chat("chat", columns=42, rows=20, ready=LOADED) as chat:
        chat.send("build it\r", shows=r"^Allow this command\?")
        chat.send("y", shows=r"^● bash build.sh +[\d.]+ .* · 41 lines$")
        shown = chat.screen.split("\n")
        at = next(i for i, row in enumerate(shown) if row.startswith("● bash"))
        assert shown[at + 1 : at + 6] == [
            *(f"  │ line {i} of the build" for i in (37, 38, 39, 40)),
            "  │ 20%",
        ]
        assert "owned" not in chat.screen
        (house.project / "go").touch()
        chat.wait_for(r"^It failed\.$")
        assert "✓" not in chat.text
    ended = chat.text[chat.text.index("✗ bash build.sh") :].split("\n")
    assert ended[0].startswith("✗ bash build.sh  exit 7 · ")
    assert ended[1] == "  ⎿ … 30 lines before · Ctrl-O"
    assert ended[12].strip() == "20%"
    assert ended[13].strip() == "E  assert 3 == 4"


def test_the_persons_own_command_shows_what_it_prints(house: House) -> None:
    with house.chat("chat", ready=LOADED) as chat:
        chat.send("!bash build.sh\r", shows=r"^  │ line 40 of the build\n  │ 20%$")
        (house.project / "go").touch()
        chat.wait_for(r"^  E  assert 3 == 4\n  ✗ exit 7 · ")


def test_what_has_no_room_beside_the_turn_waits_for_its_end(house: House) -> None:
    """A text of 100,000 characters begins a turn of its own, as what comes behind it does."""
    command = "echo begun; while [ ! -e go ]; do sleep 0.05; done"
    works = Answer(tools=[Call("run_command", {"command": command})])
    house.server.extend(works, Answer("Watered."), Answer("Read."), Answer("Yes."))
    with house.chat("chat", "--yolo", ready=LOADED) as chat:
        chat.send("water the ferns\r", shows=r"^  │ begun$")
        chat.send("\x1b[200~" + "plum\n" * 20_000 + "\x1b[201~\r")
        chat.send("is it wet?\r", shows=r"^queued: is it wet\?$")
        (house.project / "go").touch()
        chat.wait_for(r"^Watered\.[\s\S]*^Read\.[\s\S]*^› is it wet\?[\s\S]*^Yes\.")
    [session] = house.sessions()
    assert [turn["user_message"][:11] for turn in session["turns"]] == [
        "water the f", "plum\nplum\np", "is it wet?",
    ]  # fmt: skip

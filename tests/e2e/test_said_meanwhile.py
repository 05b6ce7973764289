"""What is typed while the agent works goes into the turn that runs, in a real chat on a pty."""

from tests.e2e.house import House
from tests.fakes.llm_server import Answer, Call
from tests.repl.pty_chat import LOADED


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

"""What is typed while the agent works goes into the turn that runs, in a real chat on a pty."""

import json
import signal

from tests.e2e.house import House, loaded
from tests.fakes.llm_server import Answer, Call
from tests.repl.pty_chat import PtyChat

WAIT = Answer(
    tools=[Call("run_command", {"command": "echo begun; while [ ! -e go ]; do sleep 0.05; done"})]
)


def works(house: House, chat: PtyChat) -> None:
    """The agent runs a command, until `go` is there."""
    loaded(chat)
    chat.send("water the ferns\r", shows=r"^  │ begun$")


def go(house: House) -> None:
    (house.project / "go").touch()


def test_it_reaches_the_model_with_the_result_and_survives_a_kill(house: House) -> None:
    """On the screen where it went in, in the store before the model has answered, and found."""
    house.server.extend(WAIT, Answer("The moss", mode="stall"))
    with house.chat("chat", "--yolo") as chat:
        works(house, chat)
        chat.send("and the moss\r")
        chat.send("but not the cactus\r")
        chat.wait_for_screen(r"^queued: and the moss\nqueued: but not the cactus$")
        go(house)
        chat.wait_for_screen(r"^› and the moss\n\n› but not the cactus\n[\s\S]*The moss")
        assert "queued:" not in chat.screen
        roles = [m["role"] for m in house.server.requests[-1].body["messages"]]
        assert roles[-3:] == ["tool", "assistant", "user"]
        sent = house.server.requests[-1].body["messages"][-1]["content"]
        assert sent == "and the moss\n\nbut not the cactus"
        chat.process.kill(signal.SIGKILL)
    [session] = house.sessions()
    [turn] = session["turns"]
    assert turn["user_message"] == "water the ferns\n\nand the moss\n\nbut not the cactus"
    house.server.extend(Answer("I did."))
    with house.chat("chat", "-c") as chat:
        chat.wait_for_screen(r"^› water the ferns\n\n› and the moss\n\n  but not the cactus\n")
        loaded(chat)
        chat.send("well?\r", prints=r"^I did\.")
    replayed = house.server.requests[-1].body["messages"]
    assert [m["role"] for m in replayed[1:6]] == ["user", "assistant", "tool", "assistant", "user"]
    assert replayed[1]["content"] == "water the ferns"
    assert replayed[5]["content"] == sent
    found = json.loads(house.run("search", "cactus", "--format", "json"))
    assert "cactus" in json.dumps(found)


def test_what_has_no_room_beside_the_turn_waits_for_its_end(house: House) -> None:
    """A text of 100,000 characters begins a turn of its own, as what comes behind it does."""
    house.server.extend(WAIT, Answer("Watered."), Answer("Read."), Answer("Yes."))
    with house.chat("chat", "--yolo") as chat:
        works(house, chat)
        chat.send("\x1b[200~" + "plum\n" * 20_000 + "\x1b[201~\r")
        chat.send("is it wet?\r", shows=r"^queued: is it wet\?$")
        go(house)
        chat.wait_for(r"^Watered\.[\s\S]*^Read\.[\s\S]*^› is it wet\?[\s\S]*^Yes\.")
    [session] = house.sessions()
    assert [turn["user_message"][:11] for turn in session["turns"]] == [
        "water the f", "plum\nplum\np", "is it wet?",
    ]  # fmt: skip

"""Which session a chat goes on with."""

from tests.e2e.house import House, loaded
from tests.fakes.llm_server import Answer


def test_the_last_chat_is_gone_on_with_not_a_question_that_was_asked_since(house: House) -> None:
    """A question is a chat once somebody chats in it; without any chat it is gone on with."""
    house.server.extend(Answer("Once."), Answer("Yes."), Answer("Weekly."), Answer("Four."))
    house.ok("ask", "how often?")
    with house.chat("chat", "-c") as chat:
        chat.wait_for(r"^› how often\?\n\nOnce\.")
        loaded(chat)
        chat.send("sure?\r", ends=r"^Yes\.")
        chat.leave()
    house.ok("ask", "and the ferns?")
    assert [session["tags"] for session in house.sessions()] == [["ask"], []]
    with house.chat("chat") as chat:
        chat.wait_for(r"The last session here, .*: “how often\?”\.")
        chat.leave()
    with house.chat("chat", "-c") as chat:
        chat.wait_for(r"^› sure\?\n\nYes\.")
        chat.leave()
    house.ok("ask", "-c", "how many?")
    newest = house.sessions()[0]
    assert [turn["user_message"] for turn in newest["turns"]] == ["and the ferns?", "how many?"]
    assert newest["tags"] == ["ask"]

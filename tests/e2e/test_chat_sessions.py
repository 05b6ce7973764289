"""/rename, /tag, /fork, alike sessions, and which one is gone on with: a real chat on a pty."""

import threading

from ragmem.ids import short_id
from tests.e2e.house import House, loaded
from tests.e2e.test_chat_pty import AGO
from tests.fakes.llm_server import Answer, Received
from tests.repl.pty_chat import LOADED, PtyChat


def said(chat: PtyChat, prompt: str, answer: str) -> None:
    chat.send(f"{prompt}\r", prints=rf"^{answer}")


def test_fork_rename_and_tag(house: House) -> None:
    """Before the first prompt and after; the fork goes on by itself."""
    house.server.extend(Answer("Yes."), Answer("So it is."))
    with house.chat("chat", rows=40, ready=LOADED) as chat:
        for command in ("/fork\r", "/rewind\r", "/export\r"):
            chat.send(command, prints=r"^✗ This session has no prompt yet, so ")
        chat.send("/tag #beds shade\r", prints=r"^· Tags: beds, shade\.$")
        chat.send("/rename The  garden\r", prints=r"^· This session is now called The garden\.")
        said(chat, "do ferns grow?", r"Yes\.")
        chat.send("/tag -shade\r", prints=r"^· Tags: beds\.$")
        chat.send(
            "/fork North bed\r", prints=r"To return to the original session: /resume [0-9a-f]{8}$"
        )
        chat.wait_for(r"^↩ North bed · 1 turn · last used just now")
        assert chat.text.count("Yes.") == 1
        said(chat, "in the north?", r"So it is\.")
        chat.send("/rename North\r", prints=r"^· This session is now called North\.")
        chat.leave()
    by_title = {session["title"]: session for session in house.sessions()}
    assert {title: session["tags"] for title, session in by_title.items()} == {
        "The garden": ["beds"],
        "North": ["beds"],
    }
    assert len(by_title["The garden"]["turns"]) == 1
    assert len(by_title["North"]["turns"]) == 2


def test_past_sessions_are_summed_up_found_and_told_of_once_in_one_that_is_like_them(
    house: House,
) -> None:
    """One dim line at the start of a matching session, never again in it, nor in others."""
    summary = '{"text": "Authentication was refactored: login tokens are refreshed."}'
    house.server.extend(Answer("It is done."), Answer(summary))
    with house.chat("chat", "-n", "The login", columns=160, ready=LOADED) as chat:
        chat.send("/summarize\r", prints=r"There are no turns to summarize yet\.")
        said(chat, "refactor the login", r"It is done\.")
        past = short_id(house.sessions()[0]["session_id"])
        chat.send("/summarize\r", prints=r"^Authentication was refactored")
        chat.send("/search what was done with the login\r")
        chat.wait_for(rf"Turn 1 · session {past} .*its words")
        told = threading.Event()

        def after_the_line(_: Received) -> Answer:
            """What is not found before the answer is whole stays unsaid: here it waits for it."""
            told.wait(60)
            return Answer("Which one?", chunk_chars=1)

        house.server.extend(after_the_line, Answer("Well."), Answer("Ferns."))
        chat.send("/new\r", prints=r"^· A new session\.")
        chat.send("refactoring authentication of login tokens\r")
        line = rf"^· You had 1 session like this one: The login \({past}, {AGO}\)\."
        chat.wait_for(rf"{line} /resume continues one\.$")
        told.set()
        chat.wait_for(r"^Which one\?")
        said(chat, "refactoring authentication of login tokens", r"Well\.")
        chat.send("/new\r", prints=r"^· A new session\.[\s\S]*A new session\.")
        said(chat, "what do ferns need?", r"Ferns\.")
        assert chat.text.count("like this one") == 1
        chat.leave()


def test_the_first_of_two_chats_in_a_session_hears_of_the_others_turn(house: House) -> None:
    """Once, with what was asked; its own turns are no news."""
    house.server.extend(Answer("One."), Answer("Two."), Answer("Three."))
    with house.chat("chat", ready=LOADED) as first:
        said(first, "a first question", r"One\.")
        with house.chat("chat", "-c", ready=LOADED) as second:
            said(second, "a question elsewhere", r"Two\.")
            first.wait_for(r"^· Another process has added 1 turn to this session, the latest: “a")
            second.leave()
        said(first, "and again", r"Three\.")
        assert "a question elsewhere" in house.last_prompt()
        first.leave()
        assert first.text.count("Another process") == 1


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

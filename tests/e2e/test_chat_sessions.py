"""/rename, /tag, /fork and /rewind in a real chat on a pty, with real files."""

import re
import threading

from ragmem.ids import short_id
from tests.e2e.house import House, loaded
from tests.e2e.test_chat_pty import AGO, EDIT, READ
from tests.fakes.llm_server import Answer, Call, Received
from tests.repl.pty_chat import LOADED, PtyChat

AGAIN = Answer(tools=[Call("edit_file", {"path": "a.py", "old": "goodbye", "new": "farewell"})])
MAKE = Answer(tools=[Call("create_file", {"path": "b.py", "content": "made\n"})])


def tail(chat: PtyChat) -> str:
    """Id of the session that the toolbar shows."""
    # What is printed above it comes a moment before it is drawn again.
    loaded(chat)
    found = re.search(r"openai/scripted · ([0-9a-f]{8})", chat.screen)
    assert found, chat.screen
    return found[1]


def said(chat: PtyChat, prompt: str, answer: str) -> None:
    chat.send(f"{prompt}\r", prints=rf"^{answer}")


def edited(house: House, chat: PtyChat) -> None:
    """Turn 1 reads, turns 2 and 3 edit, turn 3 makes a file too."""
    house.server.extend(
        READ, Answer("It says hello."), EDIT, Answer("Goodbye it is."), AGAIN, MAKE, Answer("Done.")
    )
    loaded(chat)
    said(chat, "what does it say?", "It says hello")
    said(chat, "say goodbye", "Goodbye it is")
    said(chat, "say farewell", "Done")


def test_rewind_forks_and_takes_the_files_back(house: House) -> None:
    """The files byte for byte, but what changed since only when the person says so."""
    original = (house.project / "a.py").read_bytes()
    with house.chat("chat", "--permission-mode", "acceptEdits", rows=40) as chat:
        edited(house, chat)
        before = tail(chat)
        chat.send("/rewind\r")
        chat.wait_for_screen(
            r"^  ▸ say farewell +turn 3  \S+ \S+ +2 files\n    say goodbye +turn 2 .* 1 file$"
        )
        chat.send("goodb")
        chat.wait_for_screen(
            r"^  ▸ say goodbye[\s\S]*^    2 turns from there on\n"
            r"    2 files changed since: a\.py, b\.py$"
        )
        chat.send("\r", shows=r"^Take the files back too\?")
        (house.project / "b.py").write_text("made, and mine\n")
        chat.send("y", shows=r"^b\.py: it was changed since the last edit of this session\.")
        chat.send("n", prints=rf"still there: /resume {before}$")
        chat.until(lambda: tail(chat) != before)
        assert (house.project / "a.py").read_bytes() == original
        assert (house.project / "b.py").read_text() == "made, and mine\n"
        # The prompt that was gone back to before is in the draft; take it out again.
        chat.wait_for_screen(r"^› say goodbye$")
        chat.send("\x15", shows=r"^›$")
        house.server.extend(Answer("As before."))
        said(chat, "and now?", "As before")
        replayed = str(house.server.requests[-1].body["messages"][1:-1])
        assert ("It says hello." in replayed, "farewell" in replayed) == (True, False)
        chat.leave()
    fork, whole = sorted(house.sessions(), key=lambda s: len(s["turns"]))
    assert [turn["user_message"] for turn in fork["turns"]] == ["what does it say?", "and now?"]
    assert [turn["user_message"] for turn in whole["turns"]][1:] == [
        "say goodbye", "say farewell", "/rewind",
    ]  # fmt: skip


def test_fork_rename_and_tag(house: House) -> None:
    """Before the first prompt and after; the fork goes on by itself."""
    house.server.extend(Answer("Yes."), Answer("So it is."))
    with house.chat("chat", rows=40, ready=LOADED) as chat:
        for command in ("/fork\r", "/rewind\r"):
            chat.send(command, prints=r"^✗ Nothing is stored of this session")
        chat.send("/tag #beds shade\r", prints=r"^· Tags: beds, shade\.$")
        chat.send("/rename The  garden\r", prints=r"^· This session is called The garden now\.")
        said(chat, "do ferns grow?", r"Yes\.")
        chat.send("/tag -shade\r", prints=r"^· Tags: beds\.$")
        chat.send("/fork North bed\r", prints=r"was made from: /resume [0-9a-f]{8}$")
        chat.wait_for(r"^↩ North bed · 1 turn · last used just now")
        assert chat.text.count("Yes.") == 1
        said(chat, "in the north?", r"So it is\.")
        chat.send("/rename North\r", prints=r"^· This session is called North now\.")
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
        chat.send("/summarize\r", prints=r"There is nothing to sum up yet\.")
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
        chat.wait_for(rf"{line} /resume goes on with one\.$")
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
            first.wait_for(r"^· Another process has added 1 turn to this session, the last one: “a")
            second.leave()
        said(first, "and again", r"Three\.")
        assert "a question elsewhere" in house.last_prompt()
        first.leave()
        assert first.text.count("Another process") == 1

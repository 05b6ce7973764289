"""What was taken back, as others are told of it; what a chat tells of itself: on a real pty."""

import json

from tests.e2e.house import House
from tests.fakes.llm_server import Answer, Call
from tests.repl.pty_chat import LOADED

DOWN = "\x1b[B"


def test_the_model_and_the_next_day_are_told_what_was_taken_back(house: House) -> None:
    created = {"path": "new.txt", "content": "made\n"}
    house.server.extend(
        Answer(tools=[Call("create_file", created)]),
        Answer("I have written down what was made."),
        Answer("I see."),
        Answer("Welcome back."),
    )
    with house.chat("chat", "--yolo", ready=LOADED) as chat:
        chat.send("write it down\r", ends=r"^I have written down")
        chat.send("/undo\r", prints=r"^· Undo of turn 1, “write it down”:\nnew\.txt: removed$")
    with house.chat("chat", "-c", ready=LOADED) as chat:
        chat.send("/undo\r", prints=r"^Nothing to undo")
        chat.send("and now?\r", ends=r"^I see\.$")
    told = json.dumps(house.server.requests[-1].body["messages"], ensure_ascii=False)
    assert "The user undid what turn 1 (“write it down”) did to files. " in told
    assert "new.txt: removed." in told
    assert "new.txt (via create_file" not in told
    context = house.ok("context", "where were we?").out
    assert "(its edits were undone since) write it down" in context
    assert "Changed: new.txt" not in context


def test_a_chat_tells_of_itself(house: House) -> None:
    """What answers, where all is kept, each setting; a setting that is changed is kept."""
    with house.chat("chat", ready=LOADED) as chat:
        chat.send("/status\r", prints=r"^model +openai/scripted$")
        chat.wait_for(r"^mode +asks before edits and commands$")
        chat.wait_for(r"^store +sqlite ·")
        chat.send("/config bell\r", prints=r"^chat\.bell = ")
        chat.send("/config vi\r")
        chat.wait_for(r"^chat\.editing_mode = [\s\S]*^/config KEY VALUE changes a setting")
        assert "llm.api_base = " not in chat.text
        chat.send("/config editing\r", until=lambda: chat.text.count("chat.editing_mode = ") == 2)
        chat.send("/config chat.bell false\r")
        chat.wait_for(r"^. chat\.bell = false, from the next start of ragmem\.$")
        chat.send(
            "/config chat.bell loud\r", prints=r"chat\.bell must be true or false, not 'loud'"
        )
        chat.send("/config nosuchthing\r", prints=r"matches 'nosuchthing'\.\n +/config lists")
        chat.send("/config\r", shows=r"^  Settings › ")
        chat.send("chat.title", shows=r"^  ▸ chat\.title +true +default$[\s\S]*^    \S*.*title")
        chat.send("\r", shows=r"^  chat\.title › [^\n]*\n  ▸ ● true$\n    false$")
        chat.send(f"{DOWN}\r")
        chat.wait_for(r"^. chat\.title = false, from the next start of ragmem\.$")
        chat.wait_for_screen(r"^  ▸ ● chat\.title +true → false +your file$")
        chat.send("api_base", shows=r'^  ▸ llm\.api_base +"http://127\S+… +environment$')
        chat.send("\r", shows=r"^llm\.api_base = [\s\S]*^› /config llm\.api_base$")
        chat.send("\x03/compact\r", prints=r"No need to compact")
    written = house.home.rglob("*.toml")
    text = next(written).read_text()
    assert "bell = false" in text
    assert "title = false" in text


def test_a_session_that_is_resumed_in_another_folder_keeps_to_its_own_files(house: House) -> None:
    """What it read, and what is undone, are those of the folder in which it began."""
    (house.project / ".git").mkdir(exist_ok=True)
    sub = house.project / "sub"
    sub.mkdir()
    for folder in (house.project, sub):
        (folder / "b.txt").write_text("same\n")
    (house.project / "made.txt").write_text("")
    house.server.extend(
        Answer(
            tools=[
                Call("read_file", {"path": "b.txt"}),
                Call("create_file", {"path": "made.txt", "content": ""}),
            ]
        ),
        Answer("done"),
        Answer(tools=[Call("edit_file", {"path": "b.txt", "old": "same", "new": "changed"})]),
        Answer("done"),
    )
    session_id = house.session_of("Read and make.", "--yolo", cwd=sub)
    house.ok("ask", "-r", session_id, "Now change b.txt.", "--yolo")
    assert (house.project / "b.txt").read_text() == "same\n"
    assert json.dumps(f'earlier results: of "{sub}"')[1:-1] in house.last_prompt()
    assert "Changed on disk" not in house.last_prompt()
    with house.chat("chat", "-r", session_id, ready=LOADED) as chat:
        chat.send("/undo\r", shows=r"did to made\.txt\?  y yes")
        chat.send("y", prints=r"^made\.txt: removed$")
        chat.leave()
    assert (house.project / "made.txt").exists()
    assert not (sub / "made.txt").exists()

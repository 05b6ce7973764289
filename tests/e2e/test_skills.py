"""Skills and commands through real processes: a pipe and a chat."""

import json
from pathlib import Path

from tests.cli.process import Ragmem
from tests.e2e.house import House, loaded
from tests.fakes.llm_server import Answer, Call, LLMServer
from tests.repl.pty_chat import PtyChat

SKILL = "---\nname: ferns\ndescription: Waters the ferns.\n---\nTake the green can.\n"


def put(home: Path, name: str, text: str) -> None:
    file = home / name
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.write_text(text)


def answered(chat: PtyChat, key: str) -> None:
    """Whether the project's are to be used."""
    chat.wait_for_screen(r"^Use them\?")
    chat.send(key)
    loaded(chat)


def test_a_persons_skill_is_listed_and_read_and_a_projects_is_told_of_once(
    ragmem: Ragmem, server: LLMServer, tmp_path: Path
) -> None:
    read = Answer(tools=[Call("read_skill", {"name": "ferns"})])
    server.extend(read)
    put(ragmem.home, "skills/ferns/SKILL.md", SKILL)
    put(tmp_path, ".claude/skills/moss/SKILL.md", SKILL.replace("ferns", "moss"))
    put(ragmem.home, "commands/tidy.md", "Tidy $ARGUMENTS up.")
    put(ragmem.project, ".claude/skills/evil/SKILL.md", SKILL.replace("ferns", "evil"))
    done = ragmem.run("ask", "Water them")
    assert done.out == "The answer.\n"
    assert done.err.endswith(
        "This project comes with 1 skill (evil). A chat asks whether to use them.\n"
    )
    system = json.dumps(server.requests[0].body["messages"][0])
    assert "- ferns: Waters the ferns." in system
    assert "- moss: Waters the moss." in system
    assert "evil" not in system
    assert "Take the green can." in json.dumps(server.requests[1].body["messages"][-1])
    assert ragmem.run("ask", "/tidy the hall").err == ""
    assert "Tidy the hall up." in json.dumps(server.requests[2].body["messages"][-1])
    assert ragmem.run("context", "/tidy the hall").out.endswith("Tidy the hall up.\n")
    for command in ("ask", "context"):
        assert "Unknown command /tdy: " in ragmem.refused(command, "/tdy the hall")
    assert len(server.requests) == 3


def test_a_chat_asks_for_what_a_project_brings_and_again_when_it_changes(house: House) -> None:
    house.server.extend(Answer("First."), Answer("Tidied."))
    put(house.project, ".ragmem/skills/ferns/SKILL.md", SKILL)
    put(house.project, ".ragmem/commands/tidy.md", "Tidy $ARGUMENTS up.")
    with house.chat("chat") as chat:
        chat.wait_for(r"comes with 1 skill \(ferns\) and 1 command \(/tidy\)")
        answered(chat, "n")
        chat.send("hello\r", ends=r"^First\.")
        assert "ferns" not in house.last_prompt()
        chat.leave()
    put(house.project, ".ragmem/commands/tidy.md", "Tidy $ARGUMENTS well.")
    with house.chat("chat") as chat:
        answered(chat, "y")
        chat.send("/tidy the hall\r", ends=r"^Tidied\.")
        assert "Tidy the hall well." in house.last_prompt()
        assert "Waters the ferns" in house.last_prompt()
        chat.leave()


def test_what_a_command_of_the_project_began_is_shown_as_it_was_typed(house: House) -> None:
    """Sent again from the draft after /rewind it is the command again, and makes no rules."""
    house.server.extend(Answer("Hello, Ann."), Answer("Hello again."))
    text = "Greet $ARGUMENTS.\n" + "Always greet warmly.\n" * 9
    put(house.project, ".claude/commands/greet.md", text)
    with house.chat("chat") as chat:
        answered(chat, "y")
        chat.send("/greet Ann\r", ends=r"^Hello, Ann\.")
        assert "Always greet warmly." in house.last_prompt()
        assert "/greet Ann" not in house.last_prompt()
        chat.leave()
    assert "/greet Ann" in house.ok("sessions", "list").out
    shown = house.ok("sessions", "show", house.sessions()[0]["session_id"]).out
    assert "/greet Ann" in shown
    assert "warmly" not in shown
    with house.chat("chat", "-c") as chat:
        chat.wait_for(r"^› /greet Ann\n\nHello, Ann\.")
        loaded(chat)
        chat.send("/rewind 1\r")
        chat.wait_for_screen(r"A new session\.\n\n› /greet Ann")
        chat.send("\r", ends=r"^Hello again\.")
        assert "warmly" not in chat.text
        chat.leave()
    assert "Always greet warmly." in house.last_prompt()
    assert house.ok("memory", "list", "--kind", "rule").out == ""

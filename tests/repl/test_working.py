"""What may be done, what runs beside the chat, what is to be done: real processes on a pty."""

import os
import socket
import tomllib
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from ragmem.repl.turn import reads_as_plan
from ragmem.tools.sandbox import find_mechanism
from tests.e2e.house import House
from tests.fakes.llm_server import Answer, Call
from tests.repl.pty_chat import LOADED


def run(command: str, **more: object) -> Answer:
    return Answer(tools=[Call("run_command", {"command": command, **more})])


def is_running(command: str) -> bool:
    """Whether a process has just this command line; one in a sandbox is seen from here too."""
    wanted = command.replace(" ", "\0").encode() + b"\0"
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if file.read_bytes() == wanted:
                return True
    return False


def test_a_server_is_run_outside_of_the_sandbox_by_a_key_and_reached(house: House) -> None:
    """Esc goes back to the choices; the rule that is kept is for leaving, and for it alone."""
    if find_mechanism().kind != "bubblewrap":
        pytest.skip(find_mechanism().why)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = f"exec python3 -m http.server {port} --bind 127.0.0.1"
    house.server.extend(run(serve, background=True), Answer("It runs."))
    with house.chat("chat", columns=110, ready=LOADED) as chat:
        chat.send("serve\r")
        chat.wait_for_screen(r"^! It runs in the sandbox: no browser and[\s\S]* o outside the")
        chat.send("o", shows=r"^Allow this command outside the sandbox, with all")
        assert "▸" not in chat.screen
        chat.send("\x1b", shows=r"^Allow this command\?")
        chat.send("o", shows=r"^Allow this command outside the sandbox")
        chat.send("p", shows=rf"1 outside_sandbox\(exec python3 -m http.server {port} --bind")
        chat.send("1", shows=r"^Where is outside_sandbox")
        chat.send("p")
        chat.wait_for(r"Allowed from now on, in this project: outside_sandbox\(exec python3")
        chat.wait_for_turn(r"^It runs\.")
        assert "Directory listing" in urlopen(f"http://127.0.0.1:{port}/").read().decode()
        chat.leave()


def test_what_is_allowed_for_good_is_asked_for_no_more(house: House, tmp_path: Path) -> None:
    house.server.extend(
        run("echo one && echo two"),
        Answer("Once."),
        run("echo three"),
        run("echo four > file"),
        Answer("Twice."),
        run("echo five"),
        Answer("Thrice."),
    )
    with house.chat("chat", columns=110, ready=LOADED) as chat:
        chat.send("first\r", shows=r"p permanently")
        chat.send("p", shows=r"1 run_command\(echo one\) \+ run_command\(echo two\)")
        chat.send("2")
        chat.wait_for_screen(
            r"^Where is run_command\(echo \*\) allowed\?  s in this session  p in "
        )
        chat.send("\x1b", shows=r"^Allow without asking from now on:")
        chat.send("2", shows=r"^Where is run_command\(echo \*\) allowed\?")
        chat.send("p", prints=r"Allowed from now on, in this project: run_command\(echo \*\)")
        chat.wait_for_turn(r"^Once\.")
        chat.send("again\r")
        # What writes a file does more than the rule allows, and none can be offered for it.
        chat.wait_for_screen(
            r"echo four > file[\s\S]*y yes  n no  a always[^\n]*\n?[^\n]*r no, because …"
        )
        assert "p permanently" not in chat.screen
        assert "no rule possible" in chat.screen
        chat.send("y", ends=r"^Twice\.")
        assert "three" in chat.text
        chat.send("/permissions deny run_command(echo f*)\r")
        chat.wait_for(r"Denied from now on, in every folder: run_command\(echo f\*\)")
        chat.send("third\r", ends=r"^Thrice\.")
        chat.wait_for(r"rule run_command\(echo f\*\) denies this")
        chat.send("/permissions remove run_command(echo f*)\r")
        chat.wait_for(r"Rule removed: run_command\(echo f\*\)")
        chat.send("/permissions allow run_comand\r", prints=r"No tool 'run_comand'")
    settings = tomllib.loads((tmp_path / "home" / "ragmem.toml").read_text())["permissions"]
    own = {str(house.project): {"allow": ["run_command(echo *)"]}}
    assert settings == {"deny": [], "projects": own}


def test_rules_are_put_elsewhere_and_added_to_from_a_list(house: House, tmp_path: Path) -> None:
    """They hold at the next start too, those of the project in it alone."""
    with house.chat("chat", columns=110, ready=LOADED) as chat:
        chat.send("/permissions project run_command(echo *)\r")
        chat.wait_for(r"Allowed from now on, in this project: run_command\(echo \*\)")
        chat.send("/permissions\r")
        chat.wait_for_screen(r"^  ▸ run_command\(echo \*\) +allowed +in this project\n")
        chat.send("\r")
        chat.wait_for_screen(
            r"^run_command\(echo \*\) is allowed in this project\.  r remove it  s in"
        )
        chat.send("e", shows=r"^  ▸ run_command\(echo \*\) +allowed +in every folder\n")
        chat.send("deny\r", shows=r"^Rule, such as")
        chat.send("read_file(.env)\r")
        chat.wait_for_screen(
            r"^Where is read_file\(\.env\) denied\?  p in this project  e in every"
        )
        chat.send("p", shows=r"read_file\(\.env\) +denied +in this project$")
        chat.send("\x1b", until=lambda: "Enter picks" not in chat.screen)
    settings = tomllib.loads((tmp_path / "home" / "ragmem.toml").read_text())["permissions"]
    own = {str(house.project): {"allow": [], "deny": ["read_file(.env)"]}}
    assert settings == {"allow": ["run_command(echo *)"], "projects": own}
    house.server.extend(run("cat .env"), Answer("Not mine to read."))
    with house.chat("chat", ready=LOADED) as chat:
        chat.send("fourth\r", ends=r"^Not mine to read\.")
        assert "rule read_file(.env) denies this" in chat.text


def test_a_server_runs_beside_the_chat_and_ends_with_it(house: House) -> None:
    """One that the person stopped before is not shown as failed. Its output has a margin, and of a
    lot only the end is printed."""
    read = Answer(tools=[Call("read_job", {"job": 1})])
    serving, other = (f"sleep {number}{os.getpid()}" for number in (30, 31))
    house.server.extend(
        run(f"echo ready; exec {serving}", background=True),
        run(f"seq 5000; exec {other}", background=True),
        *[read] * 4,
        Answer("It is up."),
    )
    with house.chat("chat", "--yolo", columns=110, ready=LOADED) as chat:
        chat.send("serve\r", ends=r"^● run_command echo ready[\s\S]*^It is up\.")
        chat.wait_for_screen(r"· 2 jobs\b")
        # How it does may be asked as often as one likes.
        assert "not run again" not in house.last_prompt()
        chat.send("/jobs 2\r", prints=r"/jobs 2\n+  …\n  4801\n[\s\S]*^  5000$")
        chat.send("/jobs stop 2\r", prints=r"^· job 2: ")
        chat.send("/jobs\r", prints=r"^● job 1: echo ready; .* running for .*, 1 line\n■ job 2: ")
        chat.send("/jobs 1\r", prints=r"^  ready\n")
        chat.send("/jobs stop 7\r", prints=r"^✗ No job 7\.\n  /jobs lists them")
        assert is_running(serving)
        assert not is_running(other)
        chat.leave()
    assert not is_running(serving)


def tasks(*states: str) -> Answer:
    texts = ("read the gate", "oil the hinge", "paint it green")
    listed = [{"text": t, "state": s} for t, s in zip(texts, states, strict=True)]
    return Answer(tools=[Call("update_tasks", {"tasks": listed})])


def plan(decision: str) -> Answer:
    body = "## Steps\n\n1. Oil the **hinge**\n2. Paint the gate"
    return Answer(tools=[Call("present_plan", {"decision": decision, "plan": body})])


def test_yes_in_words_approves_a_plan_and_not_its_edits(house: House) -> None:
    """Of two choices that begin with yes it is the one that is no more than that."""
    house.server.extend(
        plan("The gate is painted blue."),
        Answer(tools=[Call("create_file", {"path": "gate.txt", "content": "x"})]),
        Answer("Not painted."),
    )
    with house.chat("chat", columns=100, rows=40, ready=LOADED) as chat:
        chat.send("/plan mend the gate\r", shows=r"y yes  e yes, edits allowed  c change it  n no")
        chat.send("yes\r", prints=r"✓ approved")
        chat.wait_for_screen(r"^Allow this change\?")
        chat.send("n", prints=r"^Not painted\.")
        assert not (house.project / "gate.txt").exists()
        chat.leave()


def test_a_plan_that_is_told_as_an_answer_is_changed_and_approved(house: House) -> None:
    """As most models tell it; an answer without steps is no plan."""
    creates = Answer(tools=[Call("create_file", {"path": "gate.txt", "content": "x"})])
    house.server.extend(
        Answer("The gate is red."),
        Answer("My plan:\n\n1. Oil the hinge\n2. Paint the gate blue"),
        Answer("Then so:\n\n1. Oil the hinge\n2. Paint the gate green"),
        creates,
        Answer("Painted."),
    )
    with house.chat("chat", columns=100, rows=40, ready=LOADED) as chat:
        chat.send(
            "/plan which colour?\r", prints=r"^· No plan was proposed, and plan mode is still on"
        )
        chat.send(
            "mend the gate\r", shows=r"^Carry out this plan\?[\s\S]*y yes  e yes, edits allow"
        )
        chat.send("c", shows=r"What should change\?")
        chat.send("green\r", prints=r"✗ to be changed: green[\s\S]*^› green\n")
        chat.wait_for(r"Paint the gate green")
        chat.wait_for_screen(r"^Carry out this plan\?")
        assert not (house.project / "gate.txt").exists()
        chat.send("e", prints=r"^› The plan is approved: carry it out\.")
        chat.wait_for(r"^Painted\.")
        chat.wait_for_screen(r"· edits allowed")
        assert (house.project / "gate.txt").read_text() == "x"
        assert "Paint the gate green" in str(house.server.requests[-1].body)
        chat.leave()


def test_steps_make_an_answer_a_plan() -> None:
    assert reads_as_plan("Do it so:\n1. Oil the hinge\n2) Paint the gate")
    assert reads_as_plan("## Plan\n\n- Oil the hinge\n- Paint the gate")
    assert not reads_as_plan("These files have it:\n\n- gate.py\n- hinge.py")
    assert not reads_as_plan("The plan of 2019. 1. was never carried out.")


def test_a_plan_is_changed_approved_and_remembered_and_its_tasks_are_found_the_next_day(
    house: House,
) -> None:
    house.server.extend(
        Answer(tools=[Call("create_file", {"path": "gate.txt", "content": "x"})]),
        plan("The gate is painted blue."),
        plan("The gate is painted green, with oil on its hinge."),
        tasks("done", "doing", "open"),
        Answer(tools=[Call("create_file", {"path": "gate.txt", "content": "oiled\n"})]),
        Answer("The hinge is oiled."),
    )
    with house.chat("chat", columns=100, rows=40, ready=LOADED) as chat:
        chat.send("/plan mend the gate\r", shows=r"plan: read-only")
        chat.wait_for_screen(r"^\? The gate is painted blue\.[\s\S]*Oil the hinge[\s\S]*^Carry out")
        assert not (house.project / "gate.txt").exists()
        assert "Plan mode: read and search" in house.last_prompt()
        chat.send("c", shows=r"What should change\?")
        chat.send("\x1b", shows=r"y yes  e yes, edits allowed  c change it  n no")
        chat.send("c", shows=r"What should change\?")
        chat.send("green\r", prints=r"✗ to be changed: green")
        chat.wait_for_screen(r"^\? The gate is painted green, with oil on its hinge\.")
        chat.wait_for_screen(r"y yes  e yes, edits allowed  c change it  n no")
        chat.send("e", prints=r"✓ approved")
        chat.wait_for(r"remembered decision \w+: The gate is painted green")
        chat.wait_for(r"^● 1 of 3 tasks done; now: oil the hinge")
        chat.wait_for(r"^The hinge is oiled\.")
        chat.wait_for(r"^  ☑ read the gate\n  ▸ oil the hinge\n  ☐ paint it green\n")
        chat.wait_for_screen(r"· edits allowed")
        assert (house.project / "gate.txt").read_text() == "oiled\n"
        assert "green" in house.last_prompt()
        chat.leave()
    house.server.extend(Answer("Paint it."))
    with house.chat("chat", columns=100, ready=LOADED) as chat:
        chat.wait_for(r"Open: oil the hinge; paint it green\.")
        chat.send("what's next?\r", ends=r"^Paint it\.")
        assert "Open: oil the hinge; paint it green" in house.last_prompt()
        chat.send("/resume gate\r", prints=r"open: oil the hinge; paint it green")
        house.server.extend(Answer("On it."))
        chat.send("go on\r", ends=r"^On it\.")
        assert "Your task list" in house.last_prompt()

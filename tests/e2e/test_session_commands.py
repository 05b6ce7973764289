"""`ragmem sessions tag`, `archive`, `fork`, `search`, `similar` and `show` with its details."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from tests.cli.process import COMMAND, Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer
from tests.repl.pty_chat import PtyChat


@pytest.fixture
def ragmem(tmp_path: Path) -> Iterator[Ragmem]:
    with LLMServer([Answer("Soon.")], repeat=True) as server:
        yield Ragmem(tmp_path, server.env)


def prompts(ragmem: Ragmem, session_id: str) -> list[str]:
    return [turn["user_message"] for turn in ragmem.shown(session_id)["turns"]]


def aged(text: str) -> str:
    """A busy machine may take a minute from one process to the last."""
    return re.sub(r"just now|\d minutes? ago", "AGO", text)


def test_a_person_sees_below_the_list_what_the_newest_came_to(ragmem: Ragmem) -> None:
    """On a terminal; a pipe gets the list alone."""
    ragmem.session_of("Write the parser of dates")
    command = [*COMMAND, "sessions", "list"]
    with PtyChat(command, cwd=ragmem.project, env=ragmem.env, columns=100) as terminal:
        assert terminal.exit_code() == 0
        told = terminal.text.split("Last time (", 1)[1]
    assert "Outcome: Write the parser of dates — Soon." in told
    assert "Last time" not in ragmem.run("sessions", "list").out


def test_tags_are_given_shown_taken_and_found(ragmem: Ragmem) -> None:
    """A list of tags; any of those that are asked for matches, with AND else."""
    bug, plan, plain = (ragmem.session_of(text) for text in ("Bug?", "Plan?", "Plain?"))
    done = ragmem.run("sessions", "tag", bug[-8:], "#debugging", "auth", "auth")
    assert done.out == f"{bug[-8:]}  Bug?  (ask, debugging, auth)\n"
    assert ragmem.run("sessions", "tag", plan, "auth").code == 0
    done = ragmem.run("sessions", "tag", plain, "--remove", "ask")
    assert done.out == f"{plain[-8:]}  Plain?  (no tags)\n"

    assert ragmem.listed("--tag", "auth") == [plan, bug]
    assert ragmem.listed("--tag", "debugging", "--tag", "nothing") == [bug]
    assert ragmem.listed("--tag", "auth", "--status", "archived") == []
    assert "Bug? #ask #debugging #auth\n" in ragmem.run("sessions", "list").out

    done = ragmem.run("sessions", "tag", bug, "login", "--remove", "auth")
    assert done.out.endswith("(ask, debugging, login)\n")
    assert ragmem.listed("--tag", "auth") == [plan]


@pytest.mark.parametrize("tags", [["  "], ["#"], ["--remove", "never"], ["x" * 41]], ids=str)
def test_a_tag_that_can_not_be_is_exit_2(ragmem: Ragmem, tags: list[str]) -> None:
    session_id = ragmem.session_of("Bug?", "--no-tools")
    done = ragmem.run("sessions", "tag", session_id, *tags)
    assert (done.code, done.out) == (2, "")
    assert ragmem.sessions()[0]["tags"] == ["ask"]


def test_what_tags_hold_can_steer_no_terminal(ragmem: Ragmem) -> None:
    session_id = ragmem.session_of("Bug?")
    ragmem.run("sessions", "tag", session_id, "a\x1b[31mb")
    for command in (["tag", session_id], ["list"], ["show", session_id]):
        shown = ragmem.run("sessions", *command).out
        assert "\x1b" not in shown
        assert "a\\e[31mb" in shown


def test_an_archived_session_stays_and_is_marked(ragmem: Ragmem) -> None:
    """Active at first; archived and back; the list's filter."""
    one, two = ragmem.session_of("One?"), ragmem.session_of("Two?")
    assert ragmem.run("sessions", "archive", one).out == f"{one[-8:]}  One?  (archived)\n"
    assert ragmem.listed("--status", "archived") == [one]
    assert ragmem.listed("--status", "active") == [two]
    assert "One? #ask (archived)\n" in ragmem.run("sessions", "list").out
    assert ragmem.run("sessions", "archive", one, "--undo").out.endswith("(active)\n")
    assert ragmem.listed("--status", "archived") == []


def test_what_was_put_aside_is_not_gone_on_with_unasked(ragmem: Ragmem) -> None:
    """By `-c` the newest of the others; by its id it is."""
    other, aside = ragmem.session_of("One?"), ragmem.session_of("Two?")
    ragmem.ok("sessions", "archive", aside)
    assert ragmem.session_of("And?", "-c") == other
    assert ragmem.session_of("And?", "-r", aside) == aside
    ragmem.ok("sessions", "archive", other)
    done = ragmem.run("ask", "And?", "-c")
    assert done.code == 2
    assert "sessions archive ID --undo" in done.err


def test_a_fork_holds_the_turns_up_to_and_with_its_own(ragmem: Ragmem) -> None:
    """Later ones do not leak into it, and the original is untouched."""
    whole = ragmem.session_of("First?")
    for prompt in ("Second?", "Third?"):
        ragmem.session_of(prompt, "-r", whole)
    ragmem.run("sessions", "rename", whole, "The garden")
    done = ragmem.run("sessions", "fork", "the garden", "--at", "2")
    tail = done.out.split()[0]
    assert done.out == f"{tail}  The garden (fork)  (2 turns of {whole[-8:]})\n"
    assert done.err == f"`ragmem chat -r {tail}` goes on with it.\n"

    assert prompts(ragmem, tail) == ["First?", "Second?"]
    context = ragmem.run("context", "And now?", "-r", tail, "--format", "json").out
    assert "Second?" in context
    assert "Third?" not in json.dumps(
        [m for m in json.loads(context)["messages"] if m["role"] == "user"][:-1]
    )
    ragmem.session_of("Other?", "-r", tail)
    assert prompts(ragmem, tail) == ["First?", "Second?", "Other?"]
    assert prompts(ragmem, whole) == ["First?", "Second?", "Third?"]
    named = ragmem.run("sessions", "fork", whole, "-n", "A  bed").out
    assert "A bed" in named
    assert "3 turns" in named


@pytest.mark.parametrize("at", ["0", "2", "-1", "x"])
def test_a_fork_at_no_turn_is_exit_2(ragmem: Ragmem, at: str) -> None:
    session_id = ragmem.session_of("First?")
    done = ragmem.run("sessions", "fork", session_id, "--at", at)
    assert (done.code, done.out) == (2, "")
    assert len(ragmem.sessions()) == 1


def test_search_across_sessions_groups_its_finds(ragmem: Ragmem, tmp_path: Path) -> None:
    """What was found stands below its session; other projects only with --scope all."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    one = ragmem.session_of("Where do ferns grow?")
    ragmem.session_of("Do ferns like shade?", "-r", one)
    two = ragmem.session_of("What is the weather?")
    other = ragmem.session_of("Are ferns old?", cwd=elsewhere)

    found = ragmem.run("sessions", "search", "ferns", "--no-semantic", "--format", "json").json
    assert [session["session_id"] for session in found] == [one]
    assert sorted(hit["turn_index"] for hit in found[0]["hits"]) == [1, 2]
    assert {hit["session_id"] for hit in found[0]["hits"]} == {one}
    everywhere = ragmem.run(
        "sessions", "search", "ferns", "--no-semantic", "--scope", "all", "--format", "json"
    ).json
    assert {session["session_id"] for session in everywhere} == {one, other}
    assert two not in json.dumps(everywhere)

    text = ragmem.run("sessions", "search", "shade", "--no-semantic", "--scope", "all").out
    assert aged(text.replace(one[-8:], "<session>")) == snapshot("""\
Where do ferns grow?  2 turns · AGO · <session>
  Turn 2 · AGO · found by its words
    > Do ferns like shade?
    Soon.
""")
    nothing = ragmem.run("sessions", "search", "hippopotamus", "--no-semantic")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "Nothing was found.\n")
    assert ragmem.run("sessions", "search", " ").code == 2


def test_show_with_reasoning_and_results(tmp_path: Path) -> None:
    """Thoughts and tool answers per turn, where they are asked for."""
    answers = [
        Answer(tools=[Call("read_file", {"path": "a.txt"})], reasoning="Look \x1b[31mfirst."),
        Answer("It says fern.", reasoning="Then tell."),
    ]
    with LLMServer(answers) as server:
        ragmem = Ragmem(tmp_path, server.env)
        (ragmem.project / "a.txt").write_text("fern\n")
        session_id = ragmem.session_of("What does it say?")
    plain = ragmem.run("sessions", "show", session_id).out
    assert "first" not in plain
    _, _, body = ragmem.run(
        "sessions", "show", session_id, "--reasoning", "--results"
    ).out.partition("\n\n")
    assert body == snapshot("""\
── 1
› What does it say?

~ Look \\e[31mfirst.
~
~ Then tell.
● read_file a.txt
  ⎿ 1	fern

It says fern.
""")
    turns: Any = ragmem.run("sessions", "show", session_id, "--reasoning", "--format", "json").json[
        "turns"
    ]
    assert turns[0]["reasoning"] == "Look \x1b[31mfirst.\n\nThen tell."
    assert "reasoning" not in ragmem.shown(session_id)["turns"][0]


AUTH = "The authentication code was refactored: login tokens are refreshed by middleware."
BEDS = "A garden was planned: ferns and hostas in the shade of the north wall."


def summed(ragmem: Ragmem, session_id: str, text: str) -> None:
    """Its own summary, as the model says it."""
    with LLMServer([Answer(json.dumps({"text": text}))]) as server:
        assert ragmem.run("sessions", "summarize", session_id, env=server.env).code == 0


def similar(ragmem: Ragmem, *arguments: str, cwd: Path | None = None) -> list[str]:
    done = ragmem.ok("sessions", "similar", *arguments, "--format", "json", cwd=cwd)
    return [session["session_id"] for session in done.json]


def test_similar_sessions_by_text_and_by_session(ragmem: Ragmem, tmp_path: Path) -> None:
    """By the meaning of summaries, above the embedder's threshold."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    auth, beds = ragmem.session_of("Refactor the login?"), ragmem.session_of("Plan the garden?")
    other = ragmem.session_of("Tokens?", cwd=elsewhere)
    ragmem.session_of("refactoring authentication")  # it has no summary
    summed(ragmem, auth, AUTH)
    summed(ragmem, beds, BEDS)
    summed(ragmem, other, "Authentication: refreshing login tokens was refactored.")

    assert similar(ragmem, "refactoring authentication") == [auth]
    everywhere = similar(ragmem, "refactoring authentication", "--scope", "all")
    assert sorted(everywhere) == sorted([auth, other])
    assert len(similar(ragmem, "refactoring authentication", "--scope", "all", "--limit", "1")) == 1
    assert similar(ragmem, auth[-8:], "--scope", "all") == [other]
    assert similar(ragmem, other, cwd=elsewhere) == []

    (found,) = ragmem.run("sessions", "similar", "login tokens", "--format", "json").json
    assert found["summary"] == AUTH
    assert 0.3 < found["similarity"] <= 1
    assert found["turn_count"] == 1
    text = ragmem.run("sessions", "similar", "login tokens").out
    assert text.startswith("ID        ALIKE  LAST ACTIVITY  TITLE AND SUMMARY\n" + auth[-8:])
    none = ragmem.run("sessions", "similar", "the price of coffee in Peru")
    assert (none.code, none.out) == (0, "")
    assert "No session with a summary is like this." in none.err
    off = ragmem.run(
        "sessions", "similar", "x", env={"RAGMEM_MEMORY__EMBEDDINGS__ENABLED": "false"}
    )
    assert off.code == 2


def test_insights_are_made_once_and_shown(ragmem: Ragmem) -> None:
    """A call a session, stored; those that did not go on are not asked again."""
    one, two = ragmem.session_of("Where do ferns grow?"), ragmem.session_of("And hostas?")
    answers = [
        Answer(
            json.dumps(
                {
                    "main_topic": f"Topic {name} \x1b[31m",
                    "key_findings": ["Shade is best.", "Water is second."],
                    "action_items": [f"Plant {name}."],
                }
            )
        )
        for name in ("two", "one")
    ]
    with LLMServer(answers) as server:
        done = ragmem.ok("sessions", "insights", env=server.env)
        assert len(server.requests) == 2
        assert "And hostas?" in json.dumps(server.requests[0].body["messages"])
    assert done.err.startswith("Asking openai/scripted about 2 sessions.\n")
    assert "reading: 2 of 2\n" in done.err
    shown = done.out.replace(one[-8:], "<session>").replace(two[-8:], "<session>")
    assert aged(shown) == snapshot("""\
<session>  And hostas? · 1 turn · AGO
  Topic two \\e[31m
  - Shade is best.
  - Water is second.
  ☐ Plant two.

<session>  Where do ferns grow? · 1 turn · AGO
  Topic one \\e[31m
  - Shade is best.
  - Water is second.
  ☐ Plant one.
""")

    with LLMServer() as server:
        again = ragmem.run("sessions", "insights", "--format", "json", env=server.env)
        assert server.requests == []
    assert [each["session_id"] for each in again.json] == [two, one]
    assert again.json[0]["action_items"] == ["Plant two."]
    assert [
        each["session_id"]
        for each in ragmem.run("sessions", "insights", "--last", "1", "--format", "json").json
    ] == [two]


def test_insights_that_fail_are_said_and_left_for_the_next_time(ragmem: Ragmem) -> None:
    """What was made before stays."""
    ragmem.session_of("One?")
    two = ragmem.session_of("Two?")
    answers = [Answer('{"main_topic": "Two"}'), Answer(mode="401"), Answer(mode="401")]
    with LLMServer(answers) as server:
        done = ragmem.run("sessions", "insights", "--format", "json", env=server.env)
    assert (done.code, [each["session_id"] for each in done.json]) == (0, [two])
    assert "Nothing came of 1 session: " in done.err
    with LLMServer([Answer(mode="401")], repeat=True) as server:
        assert ragmem.run("sessions", "insights", env=server.env).code == 0
    nothing = {"RAGMEM_MODEL": "", "RAGMEM_API_BASE": "", "RAGMEM_API_KEY": ""}
    known = ragmem.run("sessions", "insights", "--format", "json", env=nothing)
    assert [each["session_id"] for each in known.json] == [two]
    assert known.err.startswith("1 session not looked at: local/")
    assert "is too small for this. Name one with -m" in known.err


def test_insights_into_nothing(ragmem: Ragmem) -> None:
    done = ragmem.run("sessions", "insights")
    assert (done.code, done.out, done.err) == (0, "", "There is nothing to look over yet.\n")

"""`ragmem sessions tag`, `archive`, `fork`, `search`, `similar` and `show` with its details."""

import json
import re
from pathlib import Path

from inline_snapshot import snapshot

from tests.cli.coding import on_a_terminal
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer


def prompts(ragmem: Ragmem, session_id: str) -> list[str]:
    return [turn["user_message"] for turn in ragmem.shown(session_id)["turns"]]


def aged(text: str) -> str:
    """A busy machine may take a minute from one process to the last."""
    return re.sub(r"just now|\d minutes? ago", "AGO", text)


def test_a_person_sees_below_the_list_what_the_newest_came_to(ragmem: Ragmem) -> None:
    """On a terminal; a pipe gets the list alone, and what came to nothing is not spoken of."""
    ragmem.ok("ask", "Write the parser of dates")
    raw, _ = on_a_terminal(ragmem, "sessions", "list", columns=100)
    told = raw.decode().split("Last time (", 1)[1]
    assert "Outcome: Write the parser of dates — The answer." in told
    assert "Last time" not in ragmem.ok("sessions", "list").out
    ragmem.ok("ask", "hi")
    raw, _ = on_a_terminal(ragmem, "sessions", "list", columns=100)
    assert b"Last time" not in raw


def test_tags_are_given_shown_taken_and_found(ragmem: Ragmem) -> None:
    """A list of tags; any of those that are asked for matches, with AND else; none steers a
    terminal, and what is no tag changes nothing."""

    def tagged(session_id: str, *words: str) -> str:
        return ragmem.ok("sessions", "tag", session_id, *words).out

    bug, plan, plain = (ragmem.session_of(text) for text in ("Bug?", "Plan?", "Plain?"))
    said = tagged(bug[-8:], "#debugging", "auth", "auth")
    assert said == f"{bug[-8:]}  Bug?  (ask, debugging, auth)\n"
    tagged(plan, "auth")
    assert tagged(plain, "--remove", "ask") == f"{plain[-8:]}  Plain?  (no tags)\n"
    assert ragmem.listed("--tag", "auth") == [plan, bug]
    assert ragmem.listed("--tag", "debugging", "--tag", "nothing") == [bug]
    assert ragmem.listed("--tag", "auth", "--status", "archived") == []
    assert "Bug? #ask #debugging #auth\n" in ragmem.ok("sessions", "list").out
    assert tagged(bug, "login", "--remove", "auth").endswith("(ask, debugging, login)\n")
    assert ragmem.listed("--tag", "auth") == [plan]
    for words in (["  "], ["#"], ["--remove", "never"], ["x" * 41]):
        ragmem.refused("sessions", "tag", bug, *words)
    assert tagged(bug).endswith("(ask, debugging, login)\n")
    tagged(bug, "a\x1b[31mb")
    for command in (["tag", bug], ["list"], ["show", bug]):
        shown = ragmem.ok("sessions", *command).out
        assert "\x1b" not in shown
        assert "debugging" in shown
        assert "a\\e[31mb" in shown


def test_an_archived_session_stays_is_marked_and_not_gone_on_with_unasked(ragmem: Ragmem) -> None:
    """By `-c` the newest of the others; by its id it is."""
    one, two = ragmem.session_of("One?"), ragmem.session_of("Two?")
    assert ragmem.ok("sessions", "archive", two).out == f"{two[-8:]}  Two?  (archived)\n"
    assert ragmem.listed("--status", "archived") == [two]
    assert ragmem.listed("--status", "active") == [one]
    assert "Two? #ask (archived)\n" in ragmem.ok("sessions", "list").out
    assert ragmem.session_of("And?", "-c") == one
    assert ragmem.session_of("And?", "-r", two) == two
    ragmem.ok("sessions", "archive", one)
    assert "sessions archive ID --undo" in ragmem.refused("ask", "And?", "-c")
    assert ragmem.ok("sessions", "archive", one, "--undo").out.endswith("(active)\n")
    assert ragmem.listed("--status", "archived") == [two]


def test_a_fork_holds_the_turns_up_to_and_with_its_own(ragmem: Ragmem) -> None:
    """Later ones do not leak into it, and the original is untouched."""
    whole = ragmem.session_of("First?")
    for prompt in ("Second?", "Third?"):
        ragmem.ok("ask", prompt, "-r", whole)
    renamed = ragmem.ok("sessions", "rename", whole[-8:], "The  garden").out
    assert renamed == f"{whole[-8:]}  The garden\n"
    ragmem.refused("sessions", "rename", whole, "  ")
    for at in ("0", "4", "-1", "x"):
        ragmem.refused("sessions", "fork", whole, "--at", at)
    assert len(ragmem.sessions()) == 1
    done = ragmem.ok("sessions", "fork", "the garden", "--at", "2")
    tail = done.out.split()[0]
    assert done.out == f"{tail}  The garden (fork)  (2 turns of {whole[-8:]})\n"
    assert done.err == f"Continue with `ragmem chat -r {tail}`.\n"
    assert prompts(ragmem, tail) == ["First?", "Second?"]
    sent = ragmem.read("context", "And now?", "-r", tail)["messages"]
    said = str([message for message in sent if message["role"] == "user"][:-1])
    assert "Second?" in said
    assert "Third?" not in said
    ragmem.ok("ask", "Other?", "-r", tail)
    assert prompts(ragmem, tail) == ["First?", "Second?", "Other?"]
    assert prompts(ragmem, whole) == ["First?", "Second?", "Third?"]
    named = ragmem.ok("sessions", "fork", whole, "-n", "A  bed").out
    assert "A bed" in named
    assert "3 turns" in named


def test_search_across_sessions_groups_its_finds(ragmem: Ragmem, tmp_path: Path) -> None:
    """What was found stands below its session; other projects only with --scope all."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    search = ("sessions", "search", "--no-semantic")
    one = ragmem.session_of("Where do ferns grow?")
    ragmem.ok("ask", "Do ferns like shade?", "-r", one)
    two = ragmem.session_of("What is the weather?")
    other = ragmem.session_of("Are ferns old?", cwd=elsewhere)
    (found,) = ragmem.read(*search, "ferns")
    assert found["session_id"] == one
    assert sorted(hit["turn_index"] for hit in found["hits"]) == [1, 2]
    assert {hit["session_id"] for hit in found["hits"]} == {one}
    everywhere = ragmem.read(*search, "ferns", "--scope", "all")
    assert {session["session_id"] for session in everywhere} == {one, other}
    assert two not in str(everywhere)
    text = ragmem.ok(*search, "shade", "--scope", "all").out
    assert aged(text.replace(one[-8:], "<session>")) == snapshot("""\
Where do ferns grow?  2 turns · AGO · <session>
  Turn 2 · AGO · found by its words
    > Do ferns like shade?
    The answer.
""")
    nothing = ragmem.ok(*search, "hippopotamus")
    assert (nothing.out, nothing.err) == ("", "No results.\n")


def test_show_with_reasoning_and_results(ragmem: Ragmem, server: LLMServer) -> None:
    """Thoughts and tool answers per turn, where they are asked for."""
    server.extend(
        Answer(tools=[Call("read_file", {"path": "a.txt"})], reasoning="Look \x1b[31mfirst."),
        Answer("It says fern.", reasoning="Then tell."),
    )
    (ragmem.project / "a.txt").write_text("fern\n")
    show = ("sessions", "show", ragmem.session_of("What does it say?"))
    assert "first" not in ragmem.ok(*show).out
    _, _, body = ragmem.ok(*show, "--reasoning", "--results").out.partition("\n\n")
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
    (turn,) = ragmem.read(*show, "--reasoning")["turns"]
    assert turn["reasoning"] == "Look \x1b[31mfirst.\n\nThen tell."
    assert "reasoning" not in ragmem.read(*show)["turns"][0]


AUTH = "The authentication code was refactored: login tokens are refreshed by middleware."
BEDS = "A garden was planned: ferns and hostas in the shade of the north wall."


def similar(ragmem: Ragmem, *arguments: str, cwd: Path | None = None) -> list[str]:
    found = ragmem.read("sessions", "similar", *arguments, cwd=cwd)
    return [session["session_id"] for session in found]


def test_similar_sessions_by_text_and_by_session(
    ragmem: Ragmem, server: LLMServer, tmp_path: Path
) -> None:
    """By the meaning of summaries, above the embedder's threshold."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    auth, beds = ragmem.session_of("Refactor the login?"), ragmem.session_of("Plan the garden?")
    other = ragmem.session_of("Tokens?", cwd=elsewhere)
    ragmem.ok("ask", "refactoring authentication")  # it has no summary
    said = "Authentication: refreshing login tokens was refactored."
    for session_id, text in ((auth, AUTH), (beds, BEDS), (other, said)):
        server.extend(Answer(json.dumps({"text": text})))
        ragmem.ok("sessions", "summarize", session_id)
    asked = "refactoring authentication"
    assert similar(ragmem, asked) == [auth]
    assert sorted(similar(ragmem, asked, "--scope", "all")) == sorted([auth, other])
    assert len(similar(ragmem, asked, "--scope", "all", "--limit", "1")) == 1
    assert similar(ragmem, auth[-8:], "--scope", "all") == [other]
    assert similar(ragmem, other, cwd=elsewhere) == []
    (found,) = ragmem.read("sessions", "similar", "login tokens")
    assert (found["summary"], found["turn_count"]) == (AUTH, 1)
    assert 0.3 < found["similarity"] <= 1
    text = ragmem.ok("sessions", "similar", "login tokens").out
    assert text.startswith("ID        ALIKE  LAST ACTIVITY  TITLE AND SUMMARY\n" + auth[-8:])
    none = ragmem.ok("sessions", "similar", "the price of coffee in Peru")
    assert none.out == ""
    assert "No similar session has a summary." in none.err


def test_insights_are_made_once_and_shown(ragmem: Ragmem, server: LLMServer) -> None:
    """A call a session, stored; those that did not go on are not asked again."""
    one, two = ragmem.session_of("Where do ferns grow?"), ragmem.session_of("And hostas?")
    answers = [
        {
            "main_topic": f"Topic {name} \x1b[31m",
            "key_findings": ["Shade is best.", "Water is second."],
            "action_items": [f"Plant {name}."],
        }
        for name in ("two", "one")
    ]
    server.extend(*(Answer(json.dumps(each)) for each in answers))
    done = ragmem.ok("sessions", "insights")
    assert len(server.requests) == 4
    assert "And hostas?" in json.dumps(server.requests[2].body["messages"])
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
    again = ragmem.read("sessions", "insights")
    assert len(server.requests) == 4
    assert [each["session_id"] for each in again] == [two, one]
    assert again[0]["action_items"] == ["Plant two."]
    assert ragmem.read("sessions", "insights", "--last", "1") == again[:1]


def test_insights_that_fail_are_said_and_left_for_the_next_time(
    ragmem: Ragmem, server: LLMServer
) -> None:
    """What was made before stays."""
    ragmem.ok("ask", "One?")
    two = ragmem.session_of("Two?")
    server.extend(Answer('{"main_topic": "Two"}'), *[Answer(mode="401")] * 3)
    done = ragmem.ok("sessions", "insights", "--format", "json")
    assert [each["session_id"] for each in done.json] == [two]
    assert "No result for 1 session: " in done.err
    nothing = {"RAGMEM_MODEL": "", "RAGMEM_API_BASE": "", "RAGMEM_API_KEY": ""}
    known = ragmem.ok("sessions", "insights", "--format", "json", env=nothing)
    assert [each["session_id"] for each in known.json] == [two]
    assert known.err.startswith("1 session not reviewed: local/")
    assert "is too small for this. Choose one with -m" in known.err

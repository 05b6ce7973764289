"""What Tab offers in a shell for ids of memories and sessions."""

from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, LLMServer

COMMANDS = ("show", "why", "pin", "unpin", "forget", "edit")


def offered(ragmem: Ragmem, *words: str, shell: str = "bash") -> list[str]:
    """For the last of the words."""
    line = " ".join(("ragmem", *words))
    asked = {"_RAGMEM_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    asked |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    done = ragmem.run(env=asked)
    assert (done.code, done.err) == (0, "")
    return done.out.split() if shell == "bash" else done.out.splitlines()


@pytest.fixture
def ragmem(tmp_path: Path) -> Ragmem:
    made = Ragmem(tmp_path)
    for text in ("Ferns like shade.", "Ben has the key.", "The shed \x1b[31mburns."):
        assert made.run("memory", "add", text).code == 0
    return made


def ids(ragmem: Ragmem) -> list[str]:
    listed = ragmem.run("memory", "list", "--format", "json").json
    return [memory["id"] for memory in listed]


def test_ids_of_memories(ragmem: Ragmem) -> None:
    """By the tails that lists show, or by the whole id; those of this project."""
    tails = [each[-8:] for each in ids(ragmem)]
    for command in COMMANDS:
        assert sorted(offered(ragmem, "memory", command, "")) == sorted(tails)
    assert offered(ragmem, "memory", "why", tails[0][:6]) == [tails[0]]
    [whole] = offered(ragmem, "memory", "why", ids(ragmem)[0][:-2])
    assert whole == ids(ragmem)[0]
    assert offered(ragmem, "memory", "why", "zz") == []


def test_each_with_what_it_says(ragmem: Ragmem) -> None:
    shown = "\n".join(offered(ragmem, "memory", "why", "", shell="zsh"))
    assert "Ferns like shade." in shown
    assert "\x1b" not in shown


def test_ids_of_sessions(tmp_path: Path) -> None:
    with LLMServer([Answer("Yes.")], repeat=True) as server:
        ragmem = Ragmem(tmp_path, server.env)
        assert ragmem.run("ask", "Do ferns like shade?").code == 0
        [session] = ragmem.sessions()
    tail = session["session_id"][-8:]
    assert offered(ragmem, "sessions", "show", "") == [tail]
    assert offered(ragmem, "sessions", "summarize", tail[:3]) == [tail]
    assert offered(ragmem, "chat", "-r", tail[:3]) == [tail]
    (tmp_path / "elsewhere").mkdir()
    asked = {"_RAGMEM_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    asked |= {"COMP_WORDS": "ragmem sessions show "}
    assert ragmem.run(env=asked, cwd=tmp_path / "elsewhere").out.strip() == ""


def test_sessions_are_offered_by_their_names_too(tmp_path: Path) -> None:
    """A name of one word, as a person gives it: with blanks no shell takes it as it stands."""
    with LLMServer([Answer("Yes.")], repeat=True) as server:
        ragmem = Ragmem(tmp_path, server.env)
        assert ragmem.run("ask", "Do ferns like shade?").code == 0
        [session] = ragmem.sessions()
    tail = session["session_id"][-8:]
    assert ragmem.run("sessions", "rename", tail, "Billing").code == 0
    assert offered(ragmem, "sessions", "show", "") == [tail, "Billing"]
    assert offered(ragmem, "chat", "-r", "Bil") == ["Billing"]
    assert tail in "\n".join(offered(ragmem, "chat", "-r", "Bil", shell="zsh"))
    assert ragmem.run("sessions", "rename", tail, "$(rm x) y").code == 0
    assert offered(ragmem, "chat", "-r", "") == [tail]


def test_models_and_settings(tmp_path: Path) -> None:
    ragmem = Ragmem(tmp_path, {"ANTHROPIC_API_KEY": "x"})
    models = offered(ragmem, "ask", "-m", "anthropic/")
    assert models
    assert all(name.startswith("anthropic/") for name in models)
    assert offered(ragmem, "config", "set", "chat.be") == ["chat.bell"]
    assert not ragmem.home.exists()


def test_nothing_where_there_is_nothing(tmp_path: Path) -> None:
    """No folder is made, no store started, and nothing is said of what goes wrong."""
    ragmem = Ragmem(tmp_path)
    assert offered(ragmem, "memory", "why", "") == []
    assert not ragmem.home.exists()
    ragmem.run("config", "init")
    away = {"RAGMEM_STORE": "neo4j", "NEO4J_URI": "bolt://127.0.0.1:9", "NEO4J_PASSWORD": "x"}
    ragmem.env |= away
    assert offered(ragmem, "memory", "why", "") == []
    ragmem.env["RAGMEM_STORE"] = "nothing"
    assert offered(ragmem, "memory", "why", "") == []

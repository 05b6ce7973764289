"""What Tab offers in a shell for ids of memories and sessions."""

from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.fakes.llm_server import LLMServer

FORGETTABLE = ("show", "why", "pin", "unpin", "forget", "edit")


def offered(ragmem: Ragmem, *words: str, shell: str = "bash", cwd: Path | None = None) -> list[str]:
    """For the last of the words."""
    line = " ".join(("ragmem", *words))
    asked = {"_RAGMEM_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    asked |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    done = ragmem.ok(env=asked, cwd=cwd)
    assert done.err == ""
    return done.out.split() if shell == "bash" else done.out.splitlines()


@pytest.fixture
def ragmem(tmp_path: Path, server: LLMServer) -> Ragmem:
    """With a session, and with memories."""
    made = Ragmem(tmp_path, server.env)
    made.ok("ask", "Do ferns like shade?")
    for text in ("Ferns like shade.", "The shed \x1b[31mburns."):
        made.ok("memory", "add", text)
    return made


def test_memories_are_offered_by_their_ids_with_what_they_say(ragmem: Ragmem) -> None:
    """By the tails that lists show, or by the whole id; those of this project."""
    ids = [memory["id"] for memory in ragmem.read("memory", "list")]
    tails = [each[-8:] for each in ids]
    for command in FORGETTABLE:
        assert sorted(offered(ragmem, "memory", command, "")) == sorted(tails)
    assert offered(ragmem, "memory", "why", tails[0][:6]) == [tails[0]]
    assert offered(ragmem, "memory", "why", ids[0][:-2]) == [ids[0]]
    assert offered(ragmem, "memory", "why", "zz") == []
    shown = "\n".join(offered(ragmem, "memory", "why", "", shell="zsh"))
    assert "Ferns like shade." in shown
    assert "\x1b" not in shown


def test_sessions_of_the_folder_are_offered_by_their_ids_and_names(
    ragmem: Ragmem, tmp_path: Path
) -> None:
    """A name of one word, as a person gives it: with blanks no shell takes it as it stands."""
    [session] = ragmem.sessions()
    tail = session["session_id"][-8:]
    assert offered(ragmem, "sessions", "show", "") == [tail]
    assert offered(ragmem, "sessions", "summarize", tail[:3]) == [tail]
    assert offered(ragmem, "chat", "-r", tail[:3]) == [tail]
    (tmp_path / "elsewhere").mkdir()
    assert offered(ragmem, "sessions", "show", "", cwd=tmp_path / "elsewhere") == []
    ragmem.ok("sessions", "rename", tail, "Billing")
    assert offered(ragmem, "sessions", "show", "") == [tail, "Billing"]
    assert offered(ragmem, "chat", "-r", "Bil") == ["Billing"]
    assert tail in "\n".join(offered(ragmem, "chat", "-r", "Bil", shell="zsh"))
    ragmem.ok("sessions", "rename", tail, "$(rm x) y")
    assert offered(ragmem, "chat", "-r", "") == [tail]


def test_commands_options_models_and_settings(tmp_path: Path) -> None:
    """Also through commands that are imported late; nothing is made for it."""
    ragmem = Ragmem(tmp_path, {"ANTHROPIC_API_KEY": "x"})
    assert set(offered(ragmem, "se")) == {"sessions", "search"}
    assert set(offered(ragmem, "sessions", "re")) == {"rename", "resume"}
    assert offered(ragmem, "sessions", "list", "--pro") == ["--project"]
    assert offered(ragmem, "ask", "--output-format", "str") == ["stream-json"]
    models = offered(ragmem, "ask", "-m", "anthropic/")
    assert models
    assert all(name.startswith("anthropic/") for name in models)
    assert offered(ragmem, "config", "set", "chat.be") == ["chat.bell"]
    assert offered(ragmem, "config", "set", "ui.theme", "") == ["auto", "light", "dark", "plain"]
    assert offered(ragmem, "config", "set", "chat.bell", "t") == ["true"]
    assert offered(ragmem, "config", "set", "model.main", "") == []
    assert offered(ragmem, "store", "use", "") == ["sqlite", "neo4j"]
    assert offered(ragmem, "store", "migrate", "--to", "n") == ["neo4j"]
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

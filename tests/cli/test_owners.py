"""Two people with a home each, in one folder and one graph; and one person with a file."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragmem.store.neo4j import Connection
from tests.cli.process import Ragmem
from tests.cli.test_memory import on_a_graph
from tests.fakes.llm_server import Answer, LLMServer


class Team:
    """Ana and Bob, and the model that both ask."""

    def __init__(self, folder: Path, server: Connection, model: LLMServer) -> None:
        self.model = model
        self.ana = on_a_graph(server, folder / "ana")
        self.ana.env.update(model.env)
        self.bob = Ragmem(folder / "bob", self.ana.env | {"HOME": str(folder / "bob")})
        self.bob.env["RAGMEM_HOME"] = str(self.bob.home)
        self.bob.project = self.ana.project

    def told(self) -> str:
        """All that the model was sent last."""
        return json.dumps(self.model.requests[-1].body, ensure_ascii=False)


@pytest.fixture
def team(neo4j_server: Connection, tmp_path: Path) -> Iterator[Team]:
    with LLMServer([Answer("Ferns like shade.")], repeat=True) as model:
        yield Team(tmp_path, neo4j_server, model)


def asked(person: Ragmem, *words: str) -> str:
    """Id of the session in which it was answered."""
    done = person.run("ask", *words, "--output-format", "json")
    assert done.code == 0, done.err
    return str(done.json["session_id"])


def test_each_goes_on_with_their_own_and_with_everyones_when_they_say_so(team: Team) -> None:
    hers = asked(team.ana, "What do ferns like?")
    his = asked(team.bob, "Which fern is oldest?")
    assert asked(team.ana, "-c", "And mosses?") == hers
    assert asked(team.bob, "-c", "And moss?") == his
    assert asked(team.ana, "-c", "--everyone", "Which of them?") == his
    refused = team.ana.run("ask", "-r", his[-8:], "And now?")
    assert refused.code != 0
    assert "is another person's" in refused.err
    assert "--everyone" in refused.err
    assert asked(team.ana, "-r", his[-8:], "--everyone", "And now?") == his
    picked = team.ana.run("ask", "-r", "", "Which?")
    assert hers[-8:] in picked.err
    assert his[-8:] not in picked.err
    assert his[-8:] in team.ana.run("ask", "-r", "", "--everyone", "Which?").err
    alone = team.ana.run("ask", "--everyone", "What?")
    assert (alone.code, "Add one of them" in alone.err) == (2, True)


def test_who_said_it_is_told_of_others_alone(team: Team) -> None:
    """In lists, in `why`, and where the model is told what was said before."""
    assert team.bob.run("memory", "owner", "--name", "Bob\x1b[2J Ray").code == 0
    shown = team.bob.run("memory", "owner")
    assert len(shown.out.split()) == 1
    assert "called Bob" in shown.err
    assert "\x1b" not in shown.err
    assert team.bob.run("memory", "add", "--scope", "project", "The pond is deep.").code == 0
    assert team.bob.run("memory", "add", "--scope", "user", "I fear deep water.").code == 0
    asked(team.bob, "How deep is the pond?")
    assert team.ana.run("memory", "add", "--scope", "project", "The beds face south.").code == 0
    listed = team.ana.run("memory", "list", "--format", "json").json
    bobs = {each["content"]: each["said_by"] for each in listed}
    assert list(bobs) == ["The beds face south.", "The pond is deep."]
    assert bobs["The beds face south."] is None
    assert str(bobs["The pond is deep."]).startswith("Bob")
    [row] = [line for line in team.ana.run("memory", "list").out.splitlines() if "pond" in line]
    assert "Bob" in row
    why = team.ana.run("memory", "why", row.split()[-1]).out
    assert "written by Bob" in why
    asked(team.ana, "How deep is the pond, really?")
    [source] = [each for each in team.told().split("Source: ")[1:] if "session" in each]
    assert " of Bob" in source.partition("\\n")[0]
    # Of oneself as ever.
    own = team.bob.run("memory", "why", row.split()[-1]).out
    assert "written by you" in own


def test_one_person_sees_no_names(tmp_path: Path) -> None:
    ragmem = Ragmem(tmp_path)
    nobody = ragmem.run("memory", "owner")
    assert (nobody.code, nobody.err) == (0, "")
    named = ragmem.run("memory", "owner", "--name", "Ana")
    assert (named.out, named.err) == (nobody.out, "called Ana\n")
    assert ragmem.run("memory", "owner").err == "called Ana\n"
    assert ragmem.run("memory", "add", "Ferns like shade.").code == 0
    # What a backup from another home of hers has brought is hers too.
    assert ragmem.run("memory", "owner", "--take", "another").out == "another\n"
    [listed] = ragmem.run("memory", "list", "--format", "json").json
    assert listed["said_by"] is None
    assert "Ana" not in ragmem.run("memory", "list").out
    assert "written by you" in ragmem.run("memory", "show", listed["id"]).out
    assert ragmem.run("memory", "owner", "--name", "  ").code == 2

"""Two people with a home each, in one folder and one graph; and one person with a file."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragmem.ids import new_id
from ragmem.store.neo4j import Connection
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, LLMServer
from tests.fakes.neo4j import neo4j_env


class Team:
    """Ana and Bob, and the model that both ask."""

    def __init__(self, folder: Path, server: Connection, model: LLMServer) -> None:
        self.model = model
        self.ana = Ragmem(folder / "ana", neo4j_env(server) | model.env)
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


def test_each_goes_on_with_their_own_and_with_everyones_when_they_say_so(team: Team) -> None:
    hers = team.ana.session_of("What do ferns like?")
    his = team.bob.session_of("Which fern is oldest?")
    assert team.ana.session_of("-c", "And mosses?") == hers
    assert team.bob.session_of("-c", "And moss?") == his
    assert team.ana.session_of("-c", "--everyone", "Which of them?") == his
    refused = team.ana.run("ask", "-r", his[-8:], "And now?")
    assert refused.code != 0
    assert "is another person's" in refused.err
    assert "--everyone" in refused.err
    assert team.ana.session_of("-r", his[-8:], "--everyone", "And now?") == his
    picked = team.ana.run("ask", "-r", "", "Which?").err
    assert (hers[-8:] in picked, his[-8:] in picked) == (True, False)
    assert his[-8:] in team.ana.run("ask", "-r", "", "--everyone", "Which?").err
    assert "Add one of them" in team.ana.refused("ask", "--everyone", "What?")


def test_who_said_it_is_told_of_others_alone(team: Team) -> None:
    """In lists, in `why`, and where the model is told what was said before."""
    team.bob.ok("memory", "owner", "--name", "Bob\x1b[2J Ray")
    shown = team.bob.ok("memory", "owner")
    assert len(shown.out.split()) == 1
    assert "name: Bob" in shown.err
    assert "\x1b" not in shown.err
    for person, scope, content in (
        (team.bob, "project", "The pond is deep."),
        (team.bob, "user", "I fear deep water."),
        (team.ana, "project", "The beds face south."),
    ):
        person.ok("memory", "add", "--scope", scope, content)
    team.bob.ok("ask", "How deep is the pond?")
    said_by = {m["content"]: m["said_by"] for m in team.ana.read("memory", "list")}
    assert list(said_by) == ["The beds face south.", "The pond is deep."]
    assert said_by["The beds face south."] is None
    assert str(said_by["The pond is deep."]).startswith("Bob")
    [row] = [line for line in team.ana.ok("memory", "list").out.splitlines() if "pond" in line]
    assert "Bob" in row
    assert "written by Bob" in team.ana.ok("memory", "why", row.split()[-1]).out
    # Of oneself as ever.
    assert "written by you" in team.bob.ok("memory", "why", row.split()[-1]).out
    team.ana.ok("ask", "How deep is the pond, really?")
    [source] = [each for each in team.told().split("Source: ")[1:] if "session" in each]
    assert " of Bob" in source.partition("\\n")[0]


def test_one_person_sees_no_names(ragmem: Ragmem) -> None:
    nobody = ragmem.ok("memory", "owner")
    assert nobody.err == ""
    named = ragmem.ok("memory", "owner", "--name", "Ana")
    assert (named.out, named.err) == (nobody.out, "name: Ana\n")
    assert ragmem.ok("memory", "owner").err == "name: Ana\n"
    ragmem.ok("memory", "add", "Ferns like shade.")
    # What a backup from another home of hers has brought is hers too.
    another = new_id()
    taken = ragmem.ok("memory", "owner", "--take", another)
    assert taken.out == f"{another}\n"
    assert f"The owner was {nobody.out.strip()}" in taken.err
    [listed] = ragmem.read("memory", "list")
    assert listed["said_by"] is None
    assert "Ana" not in ragmem.ok("memory", "list").out
    assert "written by you" in ragmem.ok("memory", "show", listed["id"]).out


@pytest.mark.parametrize(
    "given", ["", "another", "e58be67c", "E58BE67C-0000-7000-8000-000000000000"]
)
def test_only_a_whole_id_is_taken_over(ragmem: Ragmem, given: str) -> None:
    """Elsewhere an id's tail is enough: here it would be somebody whom no other home is of."""
    before = ragmem.ok("memory", "owner").out
    assert "is not a complete owner id" in ragmem.refused("memory", "owner", "--take", given)
    assert ragmem.ok("memory", "owner").out == before


def test_a_home_whose_owner_can_not_be_read_takes_one_over(ragmem: Ragmem) -> None:
    ragmem.ok("memory", "owner")
    [file] = ragmem.home.rglob("owner*")
    file.write_text("{}")
    assert "--take ID" in ragmem.refused("memory", "owner", code=75)
    taken = ragmem.ok("memory", "owner", "--take", whole := new_id())
    assert (taken.out, taken.err) == (f"{whole}\n", "")

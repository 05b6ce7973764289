"""`ragmem store use`, to a real Neo4j and back."""

from pathlib import Path

from ragmem.store.neo4j import Connection
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, LLMServer
from tests.fakes.neo4j import empty_neo4j, in_thread


def test_memory_is_kept_where_it_was_chosen_and_nothing_moves(
    tmp_path: Path, neo4j_server: Connection
) -> None:
    in_thread(empty(neo4j_server))
    with LLMServer([Answer("The answer.")], repeat=True) as llm:
        neo4j = {"NEO4J_URI": neo4j_server.url, "NEO4J_PASSWORD": neo4j_server.password}
        ragmem = Ragmem(tmp_path, {**llm.env, **neo4j})
        assert ragmem.run("ask", "In SQLite").code == 0

        done = ragmem.ok("store", "use", "neo4j")
        assert "What is in sqlite stays there, untouched." in done.out
        assert ragmem.sessions() == []
        assert ragmem.run("ask", "In Neo4j").code == 0
        assert [session["last_message"] for session in ragmem.sessions()] == ["In Neo4j"]
        info = ragmem.run("store", "info", "--format", "json").json
        assert (info["kind"], info["counts"]["sessions"]) == ("neo4j", 1)
        assert neo4j_server.password not in ragmem.run("store", "info").out
        status = ragmem.ok("neo4j", "status")
        assert neo4j_server.url in status.out
        assert "  password  that in NEO4J_PASSWORD\n" in status.out
        assert "cypher-shell -a" in status.out
        password = ragmem.run("neo4j", "password")
        assert (password.code, password.out) == (1, "")
        assert "its password is not ragmem's to keep" in password.err
        assert ragmem.run("doctor").code == 0

        assert ragmem.run("store", "use", "sqlite").code == 0
        assert [session["last_message"] for session in ragmem.sessions()] == ["In SQLite"]


def test_a_wrong_password_is_refused_and_nothing_is_switched(
    tmp_path: Path, neo4j_server: Connection
) -> None:
    ragmem = Ragmem(tmp_path, {"NEO4J_URI": neo4j_server.url, "NEO4J_PASSWORD": "canary-wrong"})
    done = ragmem.run("store", "use", "neo4j")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: ")
    assert "canary-wrong" not in done.err
    assert not (ragmem.home / "ragmem.toml").exists()

    # That was one attempt: three would have closed the server to those who know the password.
    right = ragmem.run("store", "use", "neo4j", env={"NEO4J_PASSWORD": neo4j_server.password})
    assert right.code == 0, right.err


def test_a_stores_name_behind_from_is_told_to_be_no_backup(tmp_path: Path) -> None:
    ragmem = Ragmem(tmp_path)
    done = ragmem.run("store", "migrate", "--from", "sqlite", "--to", "neo4j")
    assert (done.code, done.out) == (2, "")
    assert "--from takes a backup's file, and there is none called sqlite." in done.err
    assert "Leave --from out" in done.err


async def empty(server: Connection) -> None:
    """A store without anything in it."""
    await empty_neo4j(server)

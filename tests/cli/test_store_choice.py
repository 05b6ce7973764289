"""`ragmem store use`, to a real Neo4j and back."""

from pathlib import Path

from ragmem.store.neo4j import Connection
from tests.cli.process import Ragmem


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

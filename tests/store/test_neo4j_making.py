"""The first opening of a graph, whose constraints take longer than a turn may wait."""

import asyncio
from pathlib import Path

import pytest

from ragmem.app import App
from ragmem.config import find_paths, load_config
from ragmem.store.neo4j import Connection
from ragmem.store.neo4j.gateway import Gateway
from tests.fakes.neo4j import PATIENCE_S, ask, empty_neo4j
from tests.store.test_neo4j_schema import constraint_names


@pytest.mark.changes_schema
async def test_a_graph_that_is_being_made_is_waited_for(
    neo4j_server: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what happens, and the memory is not away meanwhile."""
    await empty_neo4j(neo4j_server)
    for name in await constraint_names(neo4j_server):
        await ask(neo4j_server, f"DROP CONSTRAINT {name}")
    await ask(neo4j_server, "MATCH (v:RagmemSchema) DELETE v")
    for name, value in (
        ("RAGMEM_STORE", "neo4j"), ("NEO4J_URI", neo4j_server.url),
        ("NEO4J_PASSWORD", neo4j_server.password), ("RAGMEM_STORE__TIMEOUT_S", "1.5"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    paths = find_paths({"RAGMEM_HOME": str(tmp_path / "home")}).make()
    gateway = Gateway(neo4j_server, timeout_s=PATIENCE_S)
    said: list[str] = []
    told, held = asyncio.Event(), asyncio.Event()

    def say(text: str) -> None:
        said.append(text)
        told.set()

    async with App(load_config(paths.config_file), paths, cwd=tmp_path, say=say) as app:

        async def hold(tx: object) -> None:
            # While a session is being written nothing is constrained of sessions.
            await tx.run("CREATE (:ConversationSession {sessionId: 'held'})")  # type: ignore[attr-defined]
            held.set()
            await asyncio.wait_for(told.wait(), PATIENCE_S)
            done, _ = await asyncio.wait({started}, timeout=4)
            assert not done

        holding = asyncio.create_task(gateway.write(hold))
        await asyncio.wait_for(held.wait(), PATIENCE_S)
        started = asyncio.create_task(app.start_session())
        await holding
        session = await asyncio.wait_for(started, PATIENCE_S)
        assert session.project_path == str(tmp_path)
        assert said == [
            f"Setting up the memory in Neo4j at {neo4j_server.location}, once: this may take a "
            "minute."
        ]
        assert app.notices() == []
        assert await (await app.store()).projects() == []
    await gateway.aclose()

"""What recall, the code index and the background raise ends no turn, whatever it is."""

import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ragmem.agent import Options
from ragmem.app import App
from ragmem.config import find_paths, load_config
from ragmem.embedder import Embedder
from ragmem.tools.base import deny_all
from tests.agent.conftest import asked
from tests.fakes.hash_embedder import HashEmbedder
from tests.fakes.llm_server import Answer, LLMServer
from tests.fakes.patience import until


class Sabotage(Exception):
    """What nobody expects."""


async def sabotaged(*_: Any, **__: Any) -> Any:
    raise Sabotage("a record that can't be read, with scripted-key in it")


def sabotaged_now(*_: Any, **__: Any) -> Any:
    raise Sabotage("a record that can't be read, with scripted-key in it")


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "burrow.py").write_text("def dig_burrow():\n    return 'deep'\n")

    def embedder(*_: object, **__: object) -> Embedder:
        return HashEmbedder()

    monkeypatch.setattr("ragmem.app.configured_embedder", embedder)
    with LLMServer([Answer("Wombats live in burrows.")], repeat=True) as server:
        env = {**server.env, "RAGMEM_HOME": str(tmp_path / "home")}
        env["RAGMEM_MEMORY__WORKER"] = "inline"
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        paths = find_paths(env)
        async with App(load_config(paths.config_file, environ=env), paths, cwd=folder) as app:
            app.server = server  # type: ignore[attr-defined]
            yield app


@pytest.mark.parametrize(
    "broken",
    [
        "ragmem.store.sqlite.SQLiteStore.search", "ragmem.store.sqlite.SQLiteStore.turns",
        "ragmem.store.sqlite.SQLiteStore.sessions", "ragmem.store.sqlite.SQLiteStore.profile",
        "ragmem.memory.recall.Recall.hits", "ragmem.memory.context.sections.Sections._recalled",
        "ragmem.index.index.CodeIndex.search", "ragmem.index.codebase.Codebase.index_of",
        "tests.fakes.hash_embedder.HashEmbedder.embed", "ragmem.memory.worker.Worker.step",
    ],
)  # fmt: skip
async def test_a_bug_beside_the_turn_costs_one_warning_and_no_answer(
    app: App, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await app.agent(await app.start_session(), Options(), deny_all)
    await asked(agent, "The goal: where do wombats live? See dig_burrow.")
    # It is remembered, so that there is something to recall, and vectors to compare with.
    await app.leave_background()
    await asked(agent, "Thanks.")

    async def is_stored() -> bool:
        return (await app.memory.load_session(agent.session.session_id)).session.turn_count == 2

    # On a busy machine the spool keeps a turn for a while, and of one alone nothing is looked for.
    await until(is_stored)
    app.notices()
    place, _, name = broken.rpartition(".")
    module, _, kind = place.rpartition(".")
    found = getattr(importlib.import_module(module), kind)
    is_now = name in ("_recalled", "index_of")
    monkeypatch.setattr(found, name, sabotaged_now if is_now else sabotaged)
    events = await asked(agent, "What was the goal about wombats and `dig_burrow`?")
    await app.leave_background()
    assert (events.end.subtype, events.end.exit_code) == ("success", 0)
    (told,) = [text for text in events.notices + app.notices() if "can't be read" in text]
    assert "(Sabotage)" in told
    (crash,) = app.paths.log_dir.glob("crash-*.log")
    assert told.endswith(f"This is a bug in ragmem; the traceback is in {crash}")
    assert "Traceback (most recent call last)" in crash.read_text()
    assert "scripted-key" not in crash.read_text() + told
    assert crash.stat().st_mode & 0o777 == 0o600
    sent_to = [str(each.body["messages"]) for each in app.server.requests]  # type: ignore[attr-defined]
    (sent,) = [text for text in sent_to if "What was the goal" in text and "You keep" not in text]
    assert "The goal: where do wombats live?" in sent

"""How a memory is opened: what it costs, where it is, and what can be wrong."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import pytest

import ragmem
from ragmem import open_memory
from ragmem.config import find_paths
from ragmem.config.address import named
from ragmem.embedder.models import INFO
from ragmem.errors import ConfigError, RagmemError, StoreError, StoreRefused, StoreUnavailable
from ragmem.records import EmbedderMark
from ragmem.store.neo4j import Connection
from tests.cli.process import SOURCE, Ragmem
from tests.fakes.neo4j import empty_neo4j

from .conftest import Spot
from .test_docs import PROGRAMS

E = TypeVar("E", bound=RagmemError)
_HEAVY = ("apsw", "litellm", "onnxruntime", "neo4j", "numpy", "httpcore", "msgspec", "asyncio")


async def refusal(error: type[E], url: str | None = None, home: Path | None = None) -> E:
    """With what a memory is not opened."""
    with pytest.raises(error) as caught:
        async with open_memory(url, home):
            raise AssertionError("it was opened")
    return caught.value


def test_importing_it_costs_nothing() -> None:
    """`import ragmem` imports none of what it needs later."""
    code = f"import sys, ragmem; dir(ragmem); print(*(set(sys.modules) & set({_HEAVY!r})))"
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "LANG": "C.UTF-8"},
    )
    assert (done.stdout.split(), done.stderr) == ([], "")


def test_what_it_offers() -> None:
    """Each name of `__all__` is there, and no other is pretended."""
    for name in ragmem.__all__:
        assert getattr(ragmem, name)
    assert set(ragmem.__all__) <= set(dir(ragmem))
    assert not hasattr(ragmem, "no_such_thing")
    assert (Path(ragmem.__file__).parent / "py.typed").exists()


@pytest.mark.campaign
def test_its_types_are_seen(tmp_path: Path) -> None:
    """A program that uses it wrongly is told so by mypy; those of the docs are right."""
    for number, text in enumerate(PROGRAMS):
        (tmp_path / f"documented_{number}.py").write_text(text)
    program = tmp_path / "program.py"
    program.write_text(
        "from ragmem import Conversation, open_memory\n"
        "async def main() -> None:\n"
        "    async with open_memory(7) as memory:\n"
        "        reveal_type(memory)\n"
        "        reveal_type(await memory.store_turn('s', 'q', 'a'))\n"
    )
    # With the options of scripts/lint, and what it has found out of the package before.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *map(str, tmp_path.glob("*.py"))],
        capture_output=True,
        text=True,
        cwd=SOURCE,
        timeout=500,
    )
    assert 'Revealed type is "ragmem.interface.memory.OpenMemory"' in done.stdout
    assert 'Revealed type is "ragmem.records.conversation.Turn"' in done.stdout
    assert done.stdout.count("error:") == 1, done.stdout
    assert 'expected "str | None"' in done.stdout


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "is not a valid store address"),
        ("postgres://localhost/x", "is not a valid store address"),
        ("memory.db", "is not a valid store address"),
        ("sqlite:", "is not a valid store address"),
        ("sqlite://", "has no file name"),
        ("sqlite:///", "has no file name"),
        ("sqlite://memory.db", "has no file name"),
        ("sqlite:///:memory:", "has no file name"),
        ("bolt://", "not an address"),
        ("bolt://me:secret@localhost", "contains a user name"),
    ],
)
async def test_addresses_that_are_none(tmp_path: Path, url: str, said: str) -> None:
    """A plain error with what to do; no password is repeated."""
    refused = await refusal(RagmemError, url, tmp_path / "home")
    assert said in str(refused)
    assert refused.hint
    assert "secret" not in str(refused)


async def test_files_that_are_no_memory(tmp_path: Path) -> None:
    """A folder, another program's file, a place that can't be."""
    (tmp_path / "notes.txt").write_text("my notes " * 200)
    (tmp_path / "empty").mkdir()
    for name, error in (
        ("empty", ConfigError),
        ("notes.txt", StoreError),
        ("notes.txt/memory.db", RagmemError),
    ):
        refused = await refusal(error, f"sqlite:///{tmp_path / name}", tmp_path / "home")
        assert str(tmp_path / name.split("/")[0]) in str(refused)
    assert (tmp_path / "notes.txt").read_text() == "my notes " * 200


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """Said at once when it is opened, not when something is lost."""
    refused = await refusal(StoreUnavailable, "bolt://127.0.0.1:9", tmp_path / "home")
    assert "127.0.0.1:9" in str(refused)


async def test_memory_that_is_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none to open."""
    monkeypatch.setenv("RAGMEM_MEMORY__ENABLED", "false")
    assert "turned off" in str(await refusal(StoreError, home=tmp_path / "home"))


async def test_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configured memory of the home, its settings read; it is made, for us alone."""
    monkeypatch.setenv("RAGMEM_MEMORY__WORKER", "off")
    home = tmp_path / "deep" / "home"
    async with open_memory(home=str(home)) as memory:
        session_id = await memory.create_session(tmp_path)
        await memory.store_turn(session_id, "q", "a")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    database = find_paths({"RAGMEM_HOME": str(home)}).database
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    # The same by its address, and by the environment.
    async with open_memory(f"sqlite:///{database}", home) as memory:
        assert len((await memory.load_session(session_id)).turns) == 1
    monkeypatch.setenv("RAGMEM_HOME", str(home))
    async with open_memory() as memory:
        assert len((await memory.load_session(session_id)).turns) == 1
    (home / "ragmem.toml").write_text("[store]\nkind = 'cassette'\n")
    assert "line 2" in str(await refusal(ConfigError))


async def test_the_product_reads_what_a_program_stored(tmp_path: Path) -> None:
    """One memory, not two."""
    product = Ragmem(tmp_path)
    async with open_memory(home=product.home) as memory:
        session_id = await memory.create_session(product.project, title="By a program")
        await memory.store_turn(session_id, "Where do wombats live?", "In burrows.")
    (session,) = product.run("sessions", "list", "--format", "json").json
    assert (session["session_id"], session["title"]) == (session_id, "By a program")
    assert "In burrows." in product.run("search", "wombats").out


@pytest.mark.parametrize(
    ("mark", "said", "is_ours"),
    [
        (EmbedderMark("another/model", 8), "another/model", False),
        (EmbedderMark(INFO.replaces[0], INFO.dimension), "recomputed in the background", True),
    ],
)
async def test_vectors_of_another_embedder(
    mark: EmbedderMark, said: str, is_ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said; words are searched all the same, and `drain` does not claim to be done. Those of
    an earlier one of ours are made anew, and then it is done."""
    monkeypatch.setenv("RAGMEM_MEMORY__WORKER", "off")
    home = tmp_path / "home"
    async with open_memory(home=home) as memory:
        session_id = await memory.create_session(tmp_path)
        await memory.store_turn(session_id, "Where do wombats live?", "In burrows.")
        assert memory.notices() == []
        store = await memory.app.store()
        await store.use_embedder(mark)
    async with open_memory(home=home) as memory:
        (notice,) = memory.notices()
        assert said in notice
        assert memory.notices() == []
        assert await memory.drain() == is_ours
        (hit,) = await memory.search_conversation_history(session_id, "wombats")
        assert (hit.similarity is not None) == is_ours


async def test_where_locks_are(tmp_path: Path) -> None:
    """All who open one file look at one place for who else is at work."""
    paths = find_paths({"RAGMEM_HOME": str(tmp_path / "home")})
    default = named(f"sqlite:///{paths.database}", paths)
    assert (default.locks_dir, default.spool) == (paths.locks_dir, "sqlite")
    elsewhere = find_paths({"RAGMEM_HOME": str(tmp_path / "elsewhere")})
    guest = named(f"sqlite:///{paths.database}", elsewhere)
    assert (guest.database, guest.locks_dir) == (default.database, paths.locks_dir)
    assert guest.spool != default.spool
    one, two = (named(f"sqlite:///{tmp_path}/{name}.db", paths) for name in ("one", "two"))
    assert one.locks_dir == tmp_path / "one.db-locks"
    assert len({each.spool for each in (default, guest, one, two)}) == 4
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "one.db")
    assert named(f"sqlite:///{link}", paths) == one
    servers = [named(f"bolt://{host}:7687", paths) for host in ("a", "b")]
    assert servers[0].spool != servers[1].spool


async def test_two_memories_in_one_process(
    spot: Spot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is by itself, whichever is closed first."""
    async with open_memory(home=tmp_path / "other") as other:
        async with spot.open() as memory:
            ids = [await each.create_session(spot.folder) for each in (memory, other)]
            for each, session_id in zip((memory, other), ids, strict=True):
                await each.store_turn(session_id, "wombats", "burrows")
            both = await asyncio.gather(*(each.drain() for each in (memory, other)))
            assert both == [True, True]
            for each, session_id in zip((memory, other), ids, strict=True):
                hits = await each.search_conversation_history(None, "marsupials")
                assert [hit.session_id for hit in hits] == [session_id]
        await other.store_turn(ids[1], "more", "yes")
    first, second = open_memory(home=tmp_path / "a"), open_memory(home=tmp_path / "b")
    await first.__aenter__()
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    await second.__aexit__(None, None, None)
    import logging

    assert logging.getLogger("ragmem").propagate
    assert logging.getLogger("ragmem").handlers == []


async def test_a_graph_by_its_address(
    spot: Spot, neo4j_server: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials come from the environment; that they are wrong is said plainly."""
    await empty_neo4j(neo4j_server)
    monkeypatch.setenv("NEO4J_USERNAME", neo4j_server.username)
    monkeypatch.setenv("NEO4J_PASSWORD", "nonsense")
    refused = await refusal(StoreRefused, neo4j_server.url, spot.home)
    assert "nonsense" not in f"{refused} {refused.hint}"
    assert refused.hint
    monkeypatch.setenv("NEO4J_PASSWORD", neo4j_server.password)
    async with open_memory(neo4j_server.url, spot.home) as memory:
        session_id = await memory.create_session(spot.folder)
        turn = await memory.store_turn(session_id, "Where do wombats live?", "In burrows.")
        assert (await memory.load_session(session_id)).turns == (turn,)


def test_in_a_loop_of_ones_own(tmp_path: Path) -> None:
    """As in a notebook: one loop that lives on, and a memory opened again and again."""
    with asyncio.Runner() as runner:

        async def once() -> int:
            async with open_memory(home=tmp_path / "home") as memory:
                session_id = await memory.create_session(tmp_path)
                await memory.store_turn(session_id, "q", "a")
                assert await memory.drain()
                return len(await memory.get_sessions_by_cwd(tmp_path))

        assert [runner.run(once()) for _ in range(3)] == [1, 2, 3]


async def test_a_folder_of_others_in_which_a_memory_is_kept_stays_open_to_them(spot: Spot) -> None:
    """What is said there is closed all the same; a folder that is made for it is, too."""
    shared = spot.folder.parent / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    for file, mode in ((shared / "m.db", 0o755), (shared / "own" / "m.db", 0o700)):
        async with open_memory(f"sqlite:///{file}", spot.home) as memory:
            await memory.create_session(spot.folder)
        assert stat.S_IMODE(file.parent.stat().st_mode) == mode
        assert {stat.S_IMODE(each.stat().st_mode) for each in file.parent.glob("m.db*")} == {
            0o600, 0o700
        }  # fmt: skip

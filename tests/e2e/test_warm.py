"""A process that has loaded what a search needs answers the commands of its home."""

import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ragmem.files import is_held
from tests.cli.process import SOURCE, Done, Started, until
from tests.e2e.house import House
from tests.fakes.llm_server import Answer

LONG_S = 600.0
_TRIES = 20
SECRET = "the wombat's burrow is at fern hollow"


@pytest.fixture
def house(house: House) -> House:
    """A home whose background process stays; it is ended with the test."""
    house.server.always(Answer("In burrows."))
    (house.project / "a.py").unlink()
    house.env |= {
        "RAGMEM_MEMORY__EMBEDDINGS__IDLE_S": str(LONG_S),
        "RAGMEM_MEMORY__SUMMARIES__ENABLED": "false",
        "RAGMEM_MEMORY__FACTS__EXTRACT": "false",
    }
    return house


@contextmanager
def warm(house: House) -> Iterator[Started]:
    """`ragmem work`, which has done its work and answers."""
    asking = house.home / "data" / "embedder.sock"
    with house.start("work", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as work:
        try:
            until(asking.exists)
            yield work
        finally:
            work.kill()


def missing(folder: Path, *modules: str) -> tuple[dict[str, str], Path]:
    """An environment in which these can't be imported, and where that is noted."""
    hook, noted = folder / "hook", folder / "noted"
    hook.mkdir()
    for name in modules:
        (hook / f"{name}.py").write_text(
            f"open({str(noted)!r}, 'a').write('{name} ')\nraise ImportError('hidden')\n"
        )
    return {"PYTHONPATH": os.pathsep.join([str(hook), str(SOURCE)])}, noted


def until_nothing_is_noted(run: Callable[[], Done], noted: Path) -> Done:
    """On a busy machine it may not answer in time, and is asked again."""
    for _ in range(_TRIES):
        noted.unlink(missing_ok=True)
        said = run()
        if not noted.exists():
            return said
    raise AssertionError(noted.read_text())


def unscored(said: Done) -> list[dict[str, Any]]:
    """What a search found; its scores fall with every moment."""
    return [{**hit, "score": None} for hit in said.json]


def asked(house: House) -> str:
    """What the last request gave the model, without what differs in each."""
    sent = house.server.requests[-1].body["messages"]
    return re.sub(r"[0-9a-f]{8,}|\d\d:\d\d(:\d\d)?", "", json.dumps(sent))


def test_a_search_imports_nothing_that_the_process_has_loaded(house: House, tmp_path: Path) -> None:
    """Nor does an ask; and both come to the same as where none stays."""
    (house.project / "pets.py").write_text("def feed_the_kitten(fish):\n    return fish\n")
    assert house.run("ask", "Our cat Whiskers hates tuna.").code == 0
    assert house.run("memory", "add", "The kitten's doctor is called Bell.").code == 0
    alone = {"RAGMEM_MEMORY__EMBEDDINGS__IDLE_S": "0"}
    search = ("search", "Which fish does the kitten like?", "--format", "json")
    ask = ("ask", "--ephemeral", "Which fish does the kitten like? See feed_the_kitten.")
    env, noted = missing(tmp_path, "onnxruntime", "numpy")
    with warm(house):
        found = unscored(house.run(*search, env=alone))
        assert house.run(*ask, env=alone).code == 0
        request = asked(house)
        said = until_nothing_is_noted(lambda: house.run(*search, env=env), noted)
        assert unscored(said) == found
        assert until_nothing_is_noted(lambda: house.run(*ask, env=env), noted).code == 0
        assert asked(house) == request
    assert found[0]["similarity"] is not None
    assert all(word in request for word in ("tuna", "Bell", "feed_the_kitten(fish)"))
    # Without the service they are asked for, and missed: the hook does hide them.
    house.run("search", "Which fish does my kitten refuse?", env=env)
    assert noted.exists()


def test_other_settings_are_searched_by_themselves(house: House, tmp_path: Path) -> None:
    """And an ephemeral question has nothing indexed."""
    house.ok("ask", "Our cat Whiskers hates tuna.")
    env, noted = missing(tmp_path, "numpy")
    with warm(house):
        house.run("search", "Which fish?", env={**env, "RAGMEM_CODE__MAX_FILES": "7"})
        (house.project / "zoo.py").write_text("def zebra_house():\n    return 1\n")
        house.ok("ask", "--ephemeral", "Where is zebra_house?")
        assert house.read("index", "--status")["files"] == 0
    assert noted.exists()


def test_what_came_after_it_is_found(house: House, tmp_path: Path) -> None:
    """What was said, and a file that was written."""
    assert house.run("ask", "Our cat Whiskers hates tuna.").code == 0
    env, noted = missing(tmp_path, "numpy")

    def found(text: str) -> str:
        return until_nothing_is_noted(lambda: house.run("search", text, env=env), noted).out

    with warm(house):
        assert "zebra" not in found("zebra crossing")
        assert house.run("ask", "The zebra crossing is closed.").code == 0
        (house.project / "zoo.py").write_text("def zebra_house():\n    return 1\n")
        assert "is closed" in found("zebra crossing")
        ask = ("ask", "--ephemeral", "Where is zebra_house defined?")
        until_nothing_is_noted(lambda: house.run("ask", "Where is zebra_house?", env=env), noted)
        until_nothing_is_noted(lambda: house.run(*ask, env=env), noted)
        assert "def zebra_house" in asked(house)


def test_while_it_stays_it_holds_nothing_of_the_memory(house: House) -> None:
    """No store is open, no work is held up, and what is asked is in no file; soon after a search a
    database is let go of. SIGTERM ends it, and it leaves no file."""
    house.ok("ask", "Our cat Whiskers hates tuna.")
    data = house.home / "data"
    with warm(house) as work:
        fds = Path("/proc", str(work.pid), "fd")

        def is_open() -> bool:
            opened = {os.readlink(fd) for fd in fds.iterdir() if os.path.lexists(fd)}
            return any("memory.db" in name for name in opened)

        assert not is_open()
        assert not is_held(data / "locks" / "worker.lock")
        assert stat.S_IMODE((data / "embedder.sock").lstat().st_mode) == 0o600
        assert stat.S_IMODE(data.lstat().st_mode) == 0o700
        house.ok("search", SECRET)
        until(lambda: not is_open())
        work.send_signal(signal.SIGTERM)
        work.wait()
    assert not (data / "embedder.sock").exists()
    assert not (data / "locks" / "embedder.lock").exists()
    files = [path for path in house.home.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if b"fern hollow" in path.read_bytes()] == []


def test_switched_off_none_stays(house: House) -> None:
    for name, value in (
        ("EMBEDDINGS__IDLE_S", "0"), ("EMBEDDINGS__ENABLED", "false"), ("ENABLED", "false")
    ):  # fmt: skip
        house.ok("work", env={f"RAGMEM_MEMORY__{name}": value})
    assert not (house.home / "data" / "embedder.sock").exists()

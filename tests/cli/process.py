"""Real processes of ragmem, in a project and a home of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

import ragmem

COMMAND = (sys.executable, "-P", "-m", "ragmem")
SOURCE = Path(ragmem.__file__).parents[1]


class Done(msgspec.Struct, frozen=True):
    """A process that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its stdout as one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Its stdout as one JSON document a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Ragmem:
    """Runs `ragmem` in `project` with `home` as RAGMEM_HOME and nothing else of ours."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.project = folder / "project"
        self.home = folder / "home"
        self.project.mkdir(parents=True)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(SOURCE),
            "RAGMEM_HOME": str(self.home),
            "RAGMEM_LLM__RETRIES": "0",
            "OLLAMA_HOST": "http://127.0.0.1:9",
            "RAGMEM_MEMORY__WORKER": "off",
            **(env or {}),
        }

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Done:
        """Run to the end."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            cwd=cwd or self.project,
            env={**self.env, **(env or {})},
            timeout=120,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
        """Start it; the caller waits."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [*COMMAND, *arguments], cwd=self.project, env=self.env, **{**pipes, **options}
        )

    def sessions(self) -> Any:
        """`sessions list --all` as JSON."""
        return self.run("sessions", "list", "--all", "--format", "json").json

    def shown(self, session_id: str) -> Any:
        """`sessions show` as JSON."""
        return self.run("sessions", "show", session_id, "--format", "json").json

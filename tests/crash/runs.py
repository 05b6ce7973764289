"""Runs of ragmem whose words can be read while they run, and after a kill: forks, mostly."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fakes.forks import Process, forks


class Run:
    """A process that was started, and what it has said so far."""

    def __init__(self, process: Process, folder: Path) -> None:
        self.pid = process.pid
        self.out_file, self.err_file = folder / "out", folder / "err"
        self._process = process

    @property
    def out(self) -> str:
        """Its stdout."""
        return self.out_file.read_text("utf-8", "replace")

    @property
    def err(self) -> str:
        """Its stderr."""
        return self.err_file.read_text("utf-8", "replace")

    @property
    def hits(self) -> int:
        """How many failpoints a fork came by, when `*` was armed and it ended by itself."""
        return int(self.out_file.with_name("hits").read_text())

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, if it lives."""
        self._process.kill(number)

    def ends_within(self, seconds: float) -> bool:
        """Wait so long at most; whether it has ended."""
        return self._process.ends_within(seconds)

    @property
    def stopped(self) -> bool:
        """Whether it waits for SIGCONT."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # The second: gone since it was opened.
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    def wait(self) -> int:
        """Its exit status when it has ended; negative: the signal that ended it."""
        try:
            return self._process.wait()
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.err}") from None


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    folder: Path,
    real: bool = False,
) -> Run:
    """Run `ragmem ARGV`, its words in `folder`; `real`: from nothing, as from a person's shell."""
    folder.mkdir(parents=True)
    with (
        Path(os.devnull).open("rb") as nowhere,
        (folder / "out").open("ab") as out,
        (folder / "err").open("ab") as err,
    ):
        if real:
            command = [sys.executable, "-P", "-m", "ragmem", *argv]
            child = subprocess.Popen(
                command, stdin=nowhere, stdout=out, stderr=err, cwd=cwd, env=env
            )
            return Run(Process(child.pid, os.pidfd_open(child.pid), child), folder)
        streams = [file.fileno() for file in (nowhere, out, err)]
        hits = folder / "hits"
        process = forks().start(argv, env=env, cwd=cwd, streams=streams, hits=hits)
        return Run(process, folder)

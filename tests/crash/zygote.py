"""Warm processes of ragmem: forked from one that has imported everything, in milliseconds.

What a fork runs is the real command line, `ragmem.cli.main.run`, in a session, an
environment and a folder of its own. Only the interpreter's start is spared.

    with Zygote() as zygote:
        run = zygote.start(["ask", "Hello"], env={…}, cwd=…, folder=…)
        run.kill()
        run.wait()      # the exit status; negative: the signal
"""

import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
_PATIENCE_S = 150.0
_IMPORTED = (
    "agent",
    "app",
    "cli.ask",
    "cli.sessions",
    "cli.store",
    "llm.openai_client",
    "store.neo4j",
    "store.neo4j_server",
    "store.open",
    "store.sqlite",
    "tools.standard",
)


class Run:
    """A process that was started, and what it has said so far."""

    def __init__(self, process: "subprocess.Popen[bytes] | Zygote", pid: int, folder: Path) -> None:
        self.pid = pid
        self.out_file, self.err_file = folder / "out", folder / "err"
        self._process = process
        self._pidfd: int | None = os.pidfd_open(pid)
        """None once it was waited for."""

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
        if self._pidfd is None:
            return
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return

    def ends_within(self, seconds: float) -> bool:
        """Wait so long at most; whether it has ended."""
        if self._pidfd is None:
            return True
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    @property
    def stopped(self) -> bool:
        """Whether it waits for SIGCONT."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except FileNotFoundError:
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    def wait(self, timeout_s: float = _PATIENCE_S) -> int:
        """Its exit status when it has ended; negative: the signal that ended it."""
        ended = self.ends_within(timeout_s)
        if not ended:
            self.kill()
            self.ends_within(timeout_s)
        status = (
            self._process.wait()
            if isinstance(self._process, subprocess.Popen)
            else self._process.status_of(self.pid)
        )
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        if not ended:
            raise TimeoutError(f"it did not end within {timeout_s:g} s: {self.err}")
        return status


class Zygote:
    """The process that forks; ended with the block."""

    def __init__(self, *, sabotage: str = "") -> None:
        """`sabotage`: a bug of `tests.crash.sabotage`, planted before anything runs."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.crash.zygote", *filter(None, [sabotage])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"},
        )
        self._numbers = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        folder: Path,
        real: bool = False,
    ) -> Run:
        """Run `ragmem ARGV`; `real`: started from nothing, as a person's shell would."""
        folder = folder / f"run-{next(self._numbers)}"
        folder.mkdir(parents=True)
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            if real:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "ragmem", *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    cwd=cwd,
                    env=env,
                )
                return Run(process, process.pid, folder)
        asked = {"argv": list(argv), "env": dict(env), "cwd": str(cwd), "folder": str(folder)}
        return Run(self, self._ask(asked), folder)

    def status_of(self, pid: int) -> int:
        """The exit status of a fork that has ended."""
        return self._ask({"wait": pid})

    def _ask(self, asked: dict[str, Any]) -> int:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(asked).encode() + b"\n")
        stdin.flush()
        return int(stdout.readline())


def _fork(asked: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        for number, name in ((1, "out"), (2, "err")):
            file = os.path.join(asked["folder"], name)
            os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), number)
        os.environ.clear()
        os.environ.update(asked["env"])
        os.chdir(asked["cwd"])
        from ragmem.cli.main import run

        code = run(asked["argv"])
        sys.stdout.flush()
        from ragmem.failpoints import ANY, hits

        with open(os.path.join(asked["folder"], "hits"), "w") as file:
            file.write(str(hits(ANY)))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    """Fork as asked on stdin, until that ends; then nothing that was forked goes on."""
    from importlib import import_module

    for name in _IMPORTED:
        import_module(f"ragmem.{name}")
    import neo4j  # noqa: F401

    for name in sys.argv[1:]:
        getattr(import_module("tests.crash.sabotage"), name)()
    replies = os.dup(1)
    os.dup2(2, 1)
    living: set[int] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if "wait" in asked:
            pid = asked["wait"]
            reply = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            living.discard(pid)
        else:
            reply = _fork(asked)
            living.add(reply)
        os.write(replies, b"%d\n" % reply)
    for pid in living:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()

"""A detached child process, known by its id and its start: a recycled id is never touched."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# Names that look like this stay out of a child's environment.
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH")
_LOOK_AGAIN_S = 0.05


def harmless(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what looks like a secret."""
    return {
        name: value
        for name, value in environ.items()
        if not any(mark in name.upper() for mark in _SECRET)
    }


def start_detached(command: Sequence[str], environ: Mapping[str, str], log: Path) -> int:
    """Start a program in a session of its own, its output appended to `log`; its process id."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    silence = os.open(os.devnull, os.O_RDONLY)
    try:
        return os.posix_spawnp(
            command[0],
            list(command),
            dict(environ),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, silence, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(output)
        os.close(silence)


def started_at(pid: int) -> str:
    """When the process with this id began, in the system's own terms; "" when there is none.

    Together with the id it names one process for ever, across restarts of the machine.
    """
    _reap(pid)
    try:
        # After the name, which may hold anything in its parentheses: state is field 3, start 22.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
        return _started_at_by_ps(pid)
    except ProcessLookupError:
        return ""
    return "" if fields[0] in "ZX" else f"{boot}:{fields[19]}"


async def stop(pid: int, start: str, *, timeout_s: float) -> None:
    """End exactly this process, politely for `timeout_s`, then by force; none of that is fine."""
    for number, patience_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, 10.0)):
        if started_at(pid) != start:
            return
        os.kill(pid, number)
        for _ in range(int(patience_s / _LOOK_AGAIN_S)):
            if started_at(pid) != start:
                return
            await asyncio.sleep(_LOOK_AGAIN_S)


def _reap(pid: int) -> None:
    # A child of this very process stays as a zombie until it is waited for.
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _started_at_by_ps(pid: int) -> str:
    found = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return " ".join(found.stdout.split())

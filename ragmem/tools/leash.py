"""Runs one shell command on a leash; executed by path, as `python -I -S leash.py COMMAND`.

Standard input is a socket. When its other end closes, because the command is
to stop or because ragmem died, everything that the command started is killed,
also what ran away with setsid: this process is the subreaper of them all.
When the command ends by itself, what it left in the background gets a moment,
then ends too. The answer on the socket: `EXIT_STATUS LEFTOVERS` (negative
status: the signal). Standard library only, nothing of ragmem.
"""

import os
import select
import signal
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_GRACE_S = 0.2
_KILL_S = 1.0


def main(command: str) -> int:
    """Run the command; returns 0 whatever its status, which goes over the socket."""
    become_subreaper()
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    shell = os.fork()
    if shell == 0:
        run_shell(command)
    # The pipes belong to the command alone: their end is its end.
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    status = None
    while status is None:
        readable, _, _ = select.select([0, wake_read], [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
            status = reap(shell)
        elif 0 in readable:
            break
    stopped = status is None
    leftovers = 0 if stopped else wait_for_rest(shell, _GRACE_S)
    end_all(shell)
    try:
        os.write(0, b"%d %d" % (-signal.SIGKILL if status is None else status, leftovers))
    except OSError:
        return 0
    return 0


def become_subreaper() -> None:
    """Adopt whatever descendants lose their parent (Linux; elsewhere the group must do)."""
    import ctypes

    try:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (AttributeError, OSError):
        return


def run_shell(command: str) -> None:
    """In the child: own session, no terminal, no input, signals as a program expects them."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.set_wakeup_fd(-1)
        for number in ("SIGINT", "SIGTERM", "SIGHUP", "SIGCHLD", "SIGPIPE", "SIGXFSZ"):
            signal.signal(getattr(signal, number), signal.SIG_DFL)
        os.execv("/bin/bash", ["bash", "--noprofile", "--norc", "-c", command])
    except OSError as error:
        os.write(2, f"/bin/bash can't be started: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def reap(shell: int) -> int | None:
    """Collect all that ended; the shell's exit status if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == shell:
            found = os.waitstatus_to_exitcode(status)


def wait_for_rest(shell: int, seconds: float) -> int:
    """Give what the shell left a moment; how many processes still run then."""
    deadline = time.monotonic() + seconds
    while True:
        reap(shell)
        left = len(descendants(shell))
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.005)


def end_all(shell: int) -> None:
    """Ask every descendant to end, then kill until none is left."""
    signal_all(shell, signal.SIGTERM)
    if wait_for_rest(shell, _GRACE_S):
        deadline = time.monotonic() + _KILL_S
        while time.monotonic() < deadline:
            signal_all(shell, signal.SIGKILL)
            if not wait_for_rest(shell, 0.02):
                return


def signal_all(shell: int, number: int) -> None:
    """Send a signal to every descendant."""
    for pid in descendants(shell):
        try:
            os.kill(pid, number)
            if number == signal.SIGTERM:
                # A stopped process can't act on the request.
                os.kill(pid, signal.SIGCONT)
        except (ProcessLookupError, PermissionError):
            continue


def descendants(shell: int) -> list[int]:
    """Every process below this one that still runs; without /proc, the shell's group."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return [-shell] if group_exists(shell) else []
    children: dict[int, list[int]] = {}
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] not in (b"Z", b"X"):
            children.setdefault(int(fields[1]), []).append(int(name))
    found, waiting = [], [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def group_exists(group: int) -> bool:
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

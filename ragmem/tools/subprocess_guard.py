"""Supervise one command; executed by path: `python -I -S FILE MARK CONFINED PROGRAM …`.

CONFINED is empty, or lists the descriptors of the rules that confine the command (see `confine`).

Standard input is a socket. When its other end closes, because the command is to stop or because
ragmem died, everything that the command started is killed. When the command exits by itself, the
processes that it left in the background get a moment, then are killed too. The answer on the
socket: `EXIT_STATUS LEFTOVERS` (negative status: the signal).

A command can kill or stop this process, leave its session, its parents and its environment. What it
can't easily shed is its mark: a resource limit that is inherited, can't be raised again and means
nothing to programs. By the mark, ragmem finds every process, checks for itself whether any is left,
and kills those too. Uses the standard library only, nothing of ragmem.
"""

import os
import random
import select
import signal
import struct
import sys
import time
from collections.abc import Callable

try:
    import resource

    _LIMIT = resource.RLIMIT_RTTIME
except (ImportError, AttributeError):  # not Linux
    _LIMIT = -1

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 22, 24, 38
_LANDLOCK_RESTRICT_SELF = 446
_CAPABILITIES_3 = 0x20080522
_GRACE_S = 0.2
_KILL_S = 2.0
_NO_LIMIT = 1 << 62
"""Microseconds of a real-time process that never rests: some 146,000 years."""
_SPREAD = 1 << 40

Find = Callable[[], list[int]]
"""Returns all processes of a command that still run."""


def main(mark: str, confined: str, *argv: str) -> int:
    """Run the command; returns 0 whatever its exit status, which is sent over the socket."""
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
        run(int(mark), confined, argv)
    # Only the command keeps the pipes, so that they close when it ends.
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
    started = started_at(os.getpid())

    def find() -> list[int]:
        reap(shell)
        found = processes_of(os.getpid(), started, int(mark))
        return ([-shell] if group_exists(shell) else []) if found is None else found

    leftovers = 0 if stopped else len(wait_for_end(find))
    if stopped or leftovers:
        send(find(), signal.SIGTERM)
        if wait_for_end(find):
            end_all(find)
    try:
        os.write(0, b"%d %d" % (-signal.SIGKILL if status is None else status, leftovers))
    except OSError:
        return 0
    return 0


def become_subreaper() -> None:
    """Adopt descendants that lose their parent (Linux; elsewhere the process group must do)."""
    import ctypes

    try:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (AttributeError, OSError):
        return


def run(mark: int, confined: str, argv: tuple[str, ...]) -> None:
    """Exec in the child: own session, no terminal, no input, default signal handlers."""
    try:
        if mark:
            resource.setrlimit(_LIMIT, (mark, mark))
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.set_wakeup_fd(-1)
        for number in ("SIGINT", "SIGTERM", "SIGHUP", "SIGCHLD", "SIGPIPE", "SIGXFSZ"):
            signal.signal(getattr(signal, number), signal.SIG_DFL)
        if confined:
            confine(*map(int, confined.split(",")))
        os.execv(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]} can't be started: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def confine(rules: int, calls: int) -> None:
    """Apply a Landlock ruleset and a system call filter, and drop all capabilities.

    This applies to the process and all its children, irrevocably. Raises OSError if it fails.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def must(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), "the sandbox was refused by the system")

    program = os.read(calls, 65536)
    os.close(calls)
    must(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    must(libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0))
    os.close(rules)
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    must(libc.capset(struct.pack("=Ii", _CAPABILITIES_3, 0), bytes(24)))
    instructions = ctypes.create_string_buffer(program, len(program))
    filter_program = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    must(libc.prctl(_PR_SET_SECCOMP, 2, filter_program, 0, 0))


def reap(shell: int) -> int | None:
    """Collect all processes that ended; returns the shell's exit status if it is among them."""
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


def new_mark() -> int:
    """Return a mark that no other command has; 0 if the system has none."""
    if _LIMIT < 0:
        return 0
    highest = resource.getrlimit(_LIMIT)[1]
    if highest == resource.RLIM_INFINITY:
        highest = _NO_LIMIT
    return highest - random.randrange(1, _SPREAD) if highest > 2 * _SPREAD else 0


def wait_for_end(find: Find) -> list[int]:
    """Give processes a moment to exit by themselves; returns those that still run."""
    deadline = time.monotonic() + _GRACE_S
    while (left := find()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return left


def end_all(find: Find) -> list[int]:
    """Kill processes until none is found; returns those that could not be killed."""
    deadline = time.monotonic() + _KILL_S
    while (left := find()) and time.monotonic() < deadline:
        send(left, signal.SIGKILL)
        time.sleep(0.01)
    return left


def send(pids: list[int], number: int) -> None:
    """Send a signal to each process that exists and may be signalled."""
    for pid in pids:
        try:
            os.kill(pid, number)
            if number == signal.SIGTERM:
                # A stopped process can't act on the request.
                os.kill(pid, signal.SIGCONT)
        except (ProcessLookupError, PermissionError):
            continue


def processes_of(guard: int, started: int, mark: int) -> list[int] | None:
    """Find all processes that descend from the guard or have the mark, with their descendants.

    The guard itself is excepted; `started` tells it from a later process with the same pid. Returns
    None if the system does not list its processes.
    """
    try:
        names = os.listdir("/proc")
    except OSError:
        return None
    children: dict[int, list[int]] = {}
    waiting = []
    for pid in map(int, filter(str.isdigit, names)):
        state, parent, start = stat_of(pid)
        if state not in ("", "Z", "X"):
            children.setdefault(parent, []).append(pid)
            if (pid == guard and start == started) or (start >= started and has_mark(pid, mark)):
                waiting.append(pid)
    found = set(waiting)
    while waiting:
        below = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(below)
        waiting += below
    return sorted(found - {guard, os.getpid()})


def stat_of(pid: int) -> tuple[str, int, int]:
    """Return a process's state, parent and start time in ticks; state "" if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[1]), int(fields[19])
    except (OSError, IndexError):
        return "", 0, 0


def started_at(pid: int) -> int:
    """Return when a process started, in the system's ticks; 0 if unknown."""
    return stat_of(pid)[2]


def is_stopped(pid: int) -> bool:
    """Return whether a process was stopped (SIGSTOP), so that it can't do anything."""
    return stat_of(pid)[0] == "T"


def has_mark(pid: int, mark: int) -> bool:
    """Return whether a process has the mark."""
    if not mark:
        return False
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            limits = file.read()
    except OSError:
        return False
    return b"%d" % mark in limits.partition(b"Max realtime timeout")[2].split()


def name_of(pid: int) -> str:
    """Return a process's own name."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"


def group_exists(group: int) -> bool:
    """Return whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Named points at which a test can make this process fail: `RAGMEM_FAILPOINT=name:action[@n]`.

Several are joined with commas. The name `*` means any point. `n` (1-based) is the hit that fails,
`n+` means from that hit on; by default every hit fails. A point that isn't armed costs one lookup
in an empty dictionary.

Actions: `kill9`, `stop` (SIGSTOP), `sleep=SECONDS`, and `enospc`, `eio`, `erofs`, `eacces`,
`emfile`, `enomem`, which raise that OSError. Modelled on etcd's gofail and SQLite's "fail the Nth
call".
"""

import errno
import os
import re
import signal
import threading
import time

import msgspec

_STEPS = {
    # A turn: the present tense is before a step, the past tense after it.
    "turn": "begin begun finish finished",
    "model": "ask chunk answered",
    "call": "start start_kept result result_kept",
    "tool": "run ran",
    # A file that a tool writes.
    "file": "write written draft named in_place",
    # A file of ragmem's own, see ragmem.files.
    "private": "written",
    # The embedded store.
    "sqlite": (
        "open migrate migrated mark read begun commit committed delete split checkpoint backup "
        "backed_up exchange"
    ),
    # The graph store.
    "neo4j": "schema read begin split commit committed",
    # The spool.
    "spool": "create write written synced adopt replay replayed advance truncate set_aside close",
    # Moving, exporting and importing.
    "transfer": "read apply applied compare import",
    "lines": "write read",
    "export": "written named",
}
POINTS = tuple(f"{area}.{step}" for area, steps in _STEPS.items() for step in steps.split())
"""All points; a test compares them with the source."""
ANY = "*"
_NO_DISK = ("turn.", "model.", "call.", "transfer.")
"""Areas without disk access of their own: a process can die there, but an OSError can't occur."""
_ERRNOS = {
    name: getattr(errno, name.upper())
    for name in ("enospc", "eio", "erofs", "eacces", "emfile", "enomem")
}
_SIGNALS = {"kill9": signal.SIGKILL, "stop": signal.SIGSTOP}
_FORM = re.compile(
    r"(?P<name>[\w.*]+):(?P<action>[a-z0-9]+)(=(?P<seconds>\d+(\.\d+)?))?(@(?P<n>\d+\+?))?"
)


class _Armed(msgspec.Struct):
    action: str
    seconds: float
    first: int
    last: float
    hits: int = 0


_armed: dict[str, _Armed] = {}
_counting = threading.Lock()


def arm(text: str) -> None:
    """Arm the points that a text names, and no others; raises ValueError."""
    armed = dict(_parsed(part.strip()) for part in text.split(",") if part.strip())
    _armed.clear()
    _armed.update(armed)


def _parsed(part: str) -> tuple[str, _Armed]:
    match = _FORM.fullmatch(part)
    if not match or match["action"] not in {*_ERRNOS, *_SIGNALS, "sleep"}:
        actions = ", ".join([*_SIGNALS, "sleep=SECONDS", *_ERRNOS])
        raise ValueError(f"{part!r} is not NAME:ACTION[@N], with one of the actions {actions}")
    name, action = match["name"], match["action"]
    if name not in (*POINTS, ANY):
        raise ValueError(f"there is no point {name!r}")
    if action in _ERRNOS and name.startswith(_NO_DISK):
        raise ValueError(f"{name!r} touches no disk, so that {action} can't happen there")
    n = match["n"] or "1+"
    first = int(n.rstrip("+"))
    last = float("inf") if n.endswith("+") else first
    return name, _Armed(action, float(match["seconds"] or 0), first, last)


def failpoint(name: str) -> None:
    """Fail here if this point is armed and the hit is due."""
    if not _armed:
        return
    for key in (name, ANY):
        point = _armed.get(key)
        if point is None or (point.action in _ERRNOS and name.startswith(_NO_DISK)):
            continue
        with _counting:
            point.hits += 1
            due = point.first <= point.hits <= point.last
        if due:
            _fail(name, point)


def hits(name: str) -> int:
    """Return how often an armed point was reached; `*` counts all points."""
    return _armed[name].hits if name in _armed else 0


def _fail(name: str, point: _Armed) -> None:
    if code := _ERRNOS.get(point.action):
        raise OSError(code, f"{os.strerror(code)} (failpoint {name})")
    if point.action == "sleep":
        time.sleep(point.seconds)
    else:
        os.kill(os.getpid(), _SIGNALS[point.action])

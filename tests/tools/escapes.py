"""Ways out of a sandbox, tried for real: `python -P -m tests.tools.escapes KIND FOLDER`.

FOLDER is empty and the user's own; KIND names a mechanism, or is `none`. Prints, as JSON, of each
way what the command's result says, and whether what it was after is as it was.
"""

import asyncio
import ctypes
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from ragmem.agent import standard_toolset
from ragmem.config import SandboxConfig
from ragmem.messages import ToolUse
from ragmem.tools.sandbox import Mechanism, Sandbox
from ragmem.tools.shell import Commands
from ragmem.tools.workspace import Workspace

REACHED = "REACHED-WHAT-IT-WAS-AFTER"
KEY = "a-private-key"
MARK = "--- the next way ---"
CANARY = "a-secret-of-another-process"
GUARD = "The process that watches the command was"


class Way(NamedTuple):
    """One way out; the command prints REACHED where it gets there."""

    command: str
    held_by: tuple[str, ...] = ("bubblewrap", "landlock")
    """The mechanisms that refuse it."""
    works: tuple[str, ...] = ("root", "user")
    """For whom it works without a sandbox."""
    is_apart: bool = True
    """It changes files or processes: it has a command, and a project, of its own."""


def look(command: str, **fields: Any) -> Way:
    """One that changes nothing where it works: all of these are tried in one command."""
    return Way(command, is_apart=False, **fields)


def python(text: str) -> str:
    """A command that runs some Python, which prints REACHED unless it fails."""
    head = "import ctypes, os, socket, struct, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    return f"/usr/bin/env python3 -IS - <<'END'\n{head}{text}\nprint('{REACHED}')\nEND"


_CLONE, _KEYCTL = {"x86_64": (56, 250)}.get(platform.machine(), (220, 219))
_ERRNO = "if r < 0 and ctypes.get_errno() in (1, 38): sys.exit(ctypes.get_errno())"
BUBBLEWRAP = ("bubblewrap",)
WAYS = {
    "read a key": look(f"grep -q {KEY} ~/.ssh/id && echo {REACHED}"),
    "read the memory": look(f"grep -q {KEY} ~/ragmem/memory.db && echo {REACHED}"),
    "read what the settings close": look(f"grep -q {KEY} ~/closed/file && echo {REACHED}"),
    "write a start file": Way(f"echo evil >>~/.bashrc && echo {REACHED}"),
    "write beside the project": Way(f"echo evil >../made && echo {REACHED}"),
    "remove a file": Way(f"rm -f ~/precious && echo {REACHED}"),
    "symbolic link out": Way(f"ln -s ~ out; echo evil >>out/.bashrc && echo {REACHED}"),
    "hard link out": Way(f"ln ~/.bashrc hard && echo evil >>hard && echo {REACHED}"),
    "rename over": Way(f"echo evil >e; mv -f e ~/.bashrc && echo {REACHED}"),
    "open by handle": look(
        python(
            "h = ctypes.create_string_buffer(struct.pack('Ii', 120, 0) + bytes(120))\n"
            "m = ctypes.c_int()\n"
            "libc.name_to_handle_at(-100, os.path.expanduser('~/precious').encode(), h,"
            " ctypes.byref(m), 0)\n"
            "r = libc.open_by_handle_at(os.open('/var/tmp', 0), h, 0)\n" + _ERRNO
        ),
        works=("root",),
    ),
    "git hook": Way(f"echo evil >.git/hooks/pre-commit && echo {REACHED}", BUBBLEWRAP),
    "git configuration": Way(
        f"echo '[core] fsmonitor=evil' >.git/c; mv -f .git/c .git/config && echo {REACHED}",
        BUBBLEWRAP,
    ),
    "another .git": Way(
        "mv .git was && mkdir -p .git/hooks && echo evil >.git/hooks/pre-commit"
        f" && echo {REACHED}",
        BUBBLEWRAP,
    ),
    "editor task": Way(f"echo evil >.vscode/tasks.json && echo {REACHED}", BUBBLEWRAP),
    "environment of a process": look(
        f"cat /proc/[0-9]*/environ 2>/dev/null | grep -aq {CANARY} && echo {REACHED}"
    ),
    "root of a process": look(
        f"cat /proc/$VICTIM/root$HOME/precious | grep -q precious && echo {REACHED}"
    ),
    "memory of a process": look(python("open(f'/proc/{VICTIM}/mem', 'rb')")),
    "ptrace": look(
        python(
            "r = libc.ptrace(16, VICTIM, 0, 0)\nif r: sys.exit(1)\n"
            "os.waitpid(VICTIM, 0)\nlibc.ptrace(17, VICTIM, 0, 0)"
        )
    ),
    "signal": look(f"kill -CONT $VICTIM && echo {REACHED}"),
    "limits of a process": look(
        python("import resource\nresource.prlimit(VICTIM, resource.RLIMIT_CORE, (0, 0))")
    ),
    "kill the guard": Way("kill -9 $PPID; sleep 0.1; echo on"),
    "stop the guard": Way("kill -STOP $PPID; sleep 0.1; echo on"),
    "shared memory": look(python("r = libc.shmget(SHARED, 0, 0)\nif r < 0: sys.exit(1)")),
    "abstract socket": look(
        python("socket.socket(socket.AF_UNIX).connect(f'\\0ragmem-{VICTIM}')"),
    ),
    "docker socket": look(
        python("socket.socket(socket.AF_UNIX).connect(os.path.expanduser('~/docker.sock'))"),
    ),
    "network by address": look(python("socket.create_connection(('127.0.0.1', PORT), 2)")),
    "network by name": look(python("socket.create_connection(('localhost', PORT), 2)")),
    "datagram": Way(python("socket.socket(type=2).sendto(b'x', ('127.0.0.1', PORT))\nsys.exit(0)")),
    "inherited descriptor": look(
        python("import stat\nassert any(os.path.exists(f'/proc/self/fd/{n}') and"
               " stat.S_ISSOCK(os.stat(n).st_mode) for n in range(256))"),
        works=(),
    ),
    "type into a terminal": look(
        python("r = libc.ioctl(0, 0x5412, b'x')\n" + _ERRNO),
    ),
    "setuid": look(f"[ $(id -u) != $(~/setuid-id -u) ] && echo {REACHED}", works=("user",)),
    "mount": look(f"mount -t tmpfs none /mnt && umount /mnt && echo {REACHED}", works=("root",)),
    "device": look(f"mknod disk b 7 0 && echo {REACHED}", works=("root",)),
    "setting of the system": look(
        f"f=/proc/sys/kernel/core_pattern; v=$(cat $f) && echo \"$v\" >$f && echo {REACHED}",
        works=("root",),
    ),
    "new namespaces": look(f"unshare -Ur true && echo {REACHED}"),
    "new namespace by clone": look(
        python(
            f"r = libc.syscall({_CLONE}, 0x10000011, 0, 0, 0, 0)\n"
            "if r == 0: os._exit(0)\n" + _ERRNO
        )
    ),
    "io_uring": look(python("r = libc.syscall(425, 0, None)\n" + _ERRNO)),
    "keyring": look(python(f"r = libc.syscall({_KEYCTL}, 0, -4, 1)\n" + _ERRNO)),
}  # fmt: skip


def furnish(folder: Path) -> Path:
    """A home with what is to be kept, and a project in it."""
    project = folder / "project"
    for name, text in {
        ".ssh/id": KEY, "ragmem/memory.db": KEY, "closed/file": KEY, ".bashrc": "mine\n",
        "precious": "precious", "project/.git/hooks/post-commit": "mine",
        "project/.git/config": "mine", "project/.git/HEAD": "ref: refs/heads/main",
        "project/.vscode/tasks.json": "mine",
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return project


def kept(folder: Path) -> dict[str, str]:
    """What no command may change."""
    files = ("precious", ".bashrc", "project/.git/config", "project/.vscode/tasks.json")
    return {
        **{name: (folder / name).read_text() for name in files if (folder / name).exists()},
        "hooks": str(sorted(os.listdir(folder / "project/.git/hooks"))),
        "home": str(sorted(os.listdir(folder))),
    }


def tried_together() -> list[list[str]]:
    """The names of ways, by the command that tries them."""
    apart = [[name] for name, way in WAYS.items() if way.is_apart]
    return [*apart, [name for name, way in WAYS.items() if not way.is_apart]]


async def main(kind: str, folder: Path) -> None:
    """Try every way, those that may change anything each in a project as new."""
    sandbox = Sandbox(
        SandboxConfig(deny_read=("~/closed",)),
        private=(folder / "ragmem",),
        mechanism=Mechanism(kind, Path(shutil.which("bwrap") or "/")),  # type: ignore[arg-type]
    )
    unix, abstract, tcp = (
        socket.socket(f) for f in (socket.AF_UNIX, socket.AF_UNIX, socket.AF_INET)
    )
    unix.bind(str(folder / "docker.sock"))
    tcp.bind(("127.0.0.1", 0))
    port = tcp.getsockname()[1]
    udp = socket.socket(type=socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", port))
    udp.setblocking(False)
    shared = os.getpid() + 0x5A000000
    libc = ctypes.CDLL(None)
    memory = libc.shmget(shared, 4096, 0o1600)
    found: dict[str, tuple[str, bool]] = {}
    for names in tried_together():
        project = furnish(folder)
        victim = subprocess.Popen(["sleep", "60"], env={"SECRET": CANARY})
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind(f"\0ragmem-{victim.pid}")
        for each in (unix, abstract, tcp):
            each.listen()
        command = "\n".join(f"echo '{MARK}'; (\n{WAYS[name].command}\n)" for name in names)
        for word, value in (("VICTIM", victim.pid), ("PORT", port), ("SHARED", shared)):
            command = command.replace(f"${word}", str(value)).replace(f"{{{word}}}", str(value))
            command = command.replace(word, str(value))
        before = kept(folder)
        tools = standard_toolset(
            Workspace(project),
            data_dir=folder / "ragmem",
            mode="bypassPermissions",
            commands=Commands(60, sandbox=lambda: None if kind == "none" else sandbox),
        )
        use = ToolUse("1", "run_command", json.dumps({"command": command}))
        text = (await tools.call(use)).text
        abstract.close()
        victim.kill()
        victim.wait()
        try:
            datagram = bool(udp.recv(9))
        except BlockingIOError:
            datagram = False
        intact = kept(folder) == before and not datagram
        said = text.split(MARK)[1:] if len(names) > 1 else [text]
        found |= {name: (each, intact) for name, each in zip(names, said, strict=True)}
        shutil.rmtree(project)
        for left in ("made", "precious"):
            (folder / left).unlink(missing_ok=True)
    libc.shmctl(memory, 0, None)
    sandbox.close()
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))

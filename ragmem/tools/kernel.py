"""What Linux itself refuses a process for good: a Landlock ruleset, and a filter of system calls.

Both are made here as descriptors that a child inherits; `subprocess_guard.confine` takes them on.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

LEAST_ABI = 6
"""Of Landlock (Linux 6.12): the first that keeps signals within."""

_CREATE_RULESET, _ADD_RULE = 444, 445
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_REG, _MAKE_FIFO, _MAKE_SYM = 1 << 7, 1 << 8, 1 << 10, 1 << 12
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ALL = (1 << 16) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_SCOPES = 0b11
"""Abstract sockets and signals."""
READ = _EXECUTE | _READ_FILE | _READ_DIR
NAMES = _READ_DIR
DEVICE = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
WRITE = (
    READ | _WRITE_FILE | _TRUNCATE | _REFER | _REMOVE_DIR | _REMOVE_FILE
    | _MAKE_DIR | _MAKE_REG | _MAKE_FIFO | _MAKE_SYM
)  # fmt: skip
_EPERM, _ENOSYS = 1, 38


def landlock_version() -> int:
    """The ABI of Landlock that this kernel has; 0 where it has none, or does not use it."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)))


def ruleset(rights: Iterable[tuple[Path, int]]) -> int:
    """A descriptor of the rules: all is refused but these rights, each at and below its path.

    What is not there, or can't be reached, is left out. OSError where there is no Landlock.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    handled = struct.pack("=QQQ", _ALL, 0, _SCOPES)
    made = libc.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    if made < 0:
        raise OSError(ctypes.get_errno(), "Landlock makes no ruleset")
    for path, allowed in rights:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            rule = struct.pack("=Qi", allowed if path.is_dir() else allowed & _OF_FILES, fd)
            if libc.syscall(_ADD_RULE, made, _PATH_BENEATH, rule, 0) < 0:
                raise OSError(ctypes.get_errno(), f"Landlock takes no rule for {path}")
        except OSError:
            os.close(made)
            raise
        finally:
            os.close(fd)
    return int(made)


# --- system calls ---------------------------------------------------------------


class _Call(NamedTuple):
    x86_64: int
    aarch64: int


_CLONE, _CLONE3 = _Call(56, 220), _Call(435, 435)
_SOCKET, _IOCTL, _PRLIMIT = _Call(41, 198), _Call(16, 29), _Call(302, 261)
_REFUSED = (
    # namespaces and mounts
    _Call(272, 97), _Call(308, 268), _Call(165, 40), _Call(166, 39), _Call(155, 41),
    _Call(161, 51), *(_Call(n, n) for n in (428, 429, 430, 431, 432, 433, 442, 467)),
    # keyrings: add_key, request_key, keyctl
    _Call(248, 217), _Call(249, 218), _Call(250, 219),
    # io_uring, which goes past this filter; bpf, perf_event_open, userfaultfd, open_by_handle_at
    *(_Call(n, n) for n in (425, 426, 427)), _Call(321, 280), _Call(298, 241), _Call(323, 282),
    _Call(304, 265),
)  # fmt: skip
_SHARED = (
    # What processes outside share: memory, queues and semaphores of System V, queues of POSIX
    _Call(29, 194), _Call(30, 196), _Call(31, 195), _Call(68, 186), _Call(69, 189), _Call(70, 188),
    _Call(71, 187), _Call(64, 190), _Call(65, 193), _Call(66, 191), _Call(220, 192),
    _Call(240, 180), _Call(241, 181),
)  # fmt: skip
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020080
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_INET, _AF_INET6, _AF_NETLINK, _NETLINK_ROUTE = 2, 10, 16, 0
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


def knows_processor() -> bool:
    """Whether there is a filter for this machine's system calls."""
    return platform.machine() in _ARCHITECTURES and struct.calcsize("P") == 8


def call_filter(*, inet: bool, shares: bool) -> int:
    """A descriptor of a file that holds the filter, as the kernel and bubblewrap take it.

    Sockets of other programs (UNIX), new namespaces, mounts, keyrings and input into terminals
    are refused; without `inet` the network, and without `shares` what belongs to one process or
    user alone: another process' limits, memory and queues of System V.
    """
    fd = os.memfd_create("filter")
    os.write(fd, _program(platform.machine(), inet=inet, shares=shares))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _program(machine: str, *, inet: bool, shares: bool) -> bytes:
    refuse, allow = (_RETURN, 0, 0, _ERRNO | _EPERM), (_RETURN, 0, 0, _ALLOW)

    def argument(index: int) -> tuple[int, int, int, int]:
        return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)

    def only(call: _Call, *then: tuple[int, int, int, int]) -> list[tuple[int, int, int, int]]:
        return [(_EQUAL, 0, len(then), getattr(call, machine)), *then]

    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        refuse,
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        refuse,
    ]
    for call in (*_REFUSED, *(() if shares else _SHARED)):
        lines += only(call, refuse)
    # A library that is told that there is no clone3 uses clone, whose flags can be looked at.
    lines += only(_CLONE3, (_RETURN, 0, 0, _ERRNO | _ENOSYS))
    lines += only(_CLONE, argument(0), (_ANY_BIT, 0, 1, _NEW_NAMESPACES), refuse, allow)
    terminals = [(_EQUAL, 0, 1, each) for each in (_TIOCSTI, _TIOCLINUX)]
    lines += only(_IOCTL, argument(1), terminals[0], refuse, terminals[1], refuse, allow)
    if not shares:
        lines += only(_PRLIMIT, argument(0), (_EQUAL, 1, 0, 0), refuse, allow)
    families = [(_EQUAL, 0, 1, each) for each in (_AF_INET, _AF_INET6)] if inet else []
    named = [line for family in families for line in (family, allow)]
    route = [(_EQUAL, 0, 3, _AF_NETLINK), argument(2), (_EQUAL, 0, 1, _NETLINK_ROUTE), allow]
    lines += only(_SOCKET, argument(0), *named, *route, refuse)
    lines.append(allow)
    return b"".join(struct.pack("=HBBI", *line) for line in lines)

"""Confine commands in the system's own sandbox: what they can read, write and reach.

Uses bubblewrap if it works. Otherwise Linux confines the process irrevocably: a Landlock ruleset
and a system call filter are created as descriptors that the child inherits and
`subprocess_guard.confine` applies. On macOS uses sandbox-exec. docs/sandbox.md lists the rules, and
the limits of each mechanism.
"""

import ctypes
import functools
import os
import platform
import pwd
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ragmem.children import child_environment, find_program
from ragmem.config import SandboxConfig
from ragmem.files import TemporaryFolder, make_private
from ragmem.text import Regex
from ragmem.tools.permissions import PermissionRules
from ragmem.tools.protected import protected_in

LEAST_ABI = 6
"""Landlock's ABI of Linux 6.12, the first that scopes signals."""

_CREATE_RULESET, _ADD_RULE = 444, 445
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_REG, _MAKE_FIFO, _MAKE_SYM = 1 << 7, 1 << 8, 1 << 10, 1 << 12
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ALL = (1 << 16) - 1
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
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
    """Return the kernel's Landlock ABI version; 0 if it has none, or it is disabled."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)))


def ruleset(rights: Iterable[tuple[Path, int]]) -> int:
    """Return a descriptor of a Landlock ruleset that denies all but these rights.

    Each right applies at and below its path; paths that are missing or unreachable are left out.
    Raises OSError if there is no Landlock.
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
            rule = struct.pack("=Qi", allowed if path.is_dir() else allowed & _FILE_RIGHTS, fd)
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
    # io_uring, which bypasses this filter; bpf, perf_event_open, userfaultfd, open_by_handle_at
    *(_Call(n, n) for n in (425, 426, 427)), _Call(321, 280), _Call(298, 241), _Call(323, 282),
    _Call(304, 265),
)  # fmt: skip
_SHARED = (
    # shared with processes outside: System V shared memory, queues and semaphores, POSIX queues
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


def call_filter(*, inet: bool, shares: bool) -> int:
    """Return a descriptor of a file with the filter, in the form for the kernel and bubblewrap.

    Denies UNIX sockets, new namespaces, mounts, keyrings and input into terminals; without `inet`
    the network, and without `shares` what other processes of the user share: their limits, System V
    memory and queues.
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
    # Libraries that find no clone3 fall back to clone, whose flags a filter can inspect.
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


Kind = Literal["", "bubblewrap", "landlock", "sandbox-exec"]
Network = Literal["none", "loopback", "all"]

_SECRETS = (
    # keys, and what logs in with them
    ".ssh", ".gnupg", ".netrc", ".git-credentials", ".config/git/credentials", ".password-store",
    ".local/share/keyrings", ".local/share/kwalletd", ".config/op", ".1password",
    ".config/sops/age/keys.txt", ".Xauthority", "Library/Keychains", ".authinfo", ".authinfo.gpg",
    ".putty", ".age", ".minisign", ".config/Bitwarden CLI", ".config/rbw", ".lastpass",
    ".davfs2/secrets", ".smbcredentials",
    # clouds and forges
    ".aws", ".azure", ".kube", ".oci", ".boto", ".s3cfg", ".config/gcloud", ".config/rclone",
    ".config/doctl", ".config/gh", ".config/glab-cli", ".config/hub", ".docker/config.json",
    ".terraform.d/credentials.tfrc.json", ".fly", ".config/heroku", ".config/hcloud",
    ".config/stripe", ".config/containers/auth.json", ".databrickscfg", ".snowflake",
    ".vault-token", ".subversion/auth", ".cache/huggingface/token", ".config/netlify",
    ".config/vercel", ".local/share/com.vercel.cli", ".railway", ".supabase", ".wrangler",
    ".config/.wrangler", ".pulumi/credentials.json", ".terraformrc", ".config/ngrok", ".ngrok2",
    ".config/configstore", ".config/scw", ".config/linode-cli",
    # databases and servers
    ".pgpass", ".my.cnf", ".config/filezilla", ".mongorc.js", ".dbeaver4",
    ".local/share/DBeaverData",
    # package registries
    ".npmrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials", ".cargo/credentials.toml",
    ".gem/credentials", ".m2/settings-security.xml", ".config/composer/auth.json",
    ".local/share/uv/credentials", ".config/pypoetry/auth.toml", ".composer/auth.json",
    ".config/pip/pip.conf", ".pip/pip.conf", ".gradle/gradle.properties", ".bundle/config", ".hex",
    ".nuget/NuGet/NuGet.Config", ".sbt/.credentials", ".ivy2/.credentials", ".config/pnpm/rc",
    ".config/dart/pub-credentials.json", ".sentryclirc", ".config/helm/registry",
    # other agents
    ".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json",
    ".config/github-copilot", ".local/share/opencode/auth.json", ".claude.json",
    ".config/anthropic", ".codex/config.toml", ".config/opencode", ".vibe/.env", ".kimi",
    ".config/goose", ".continue",
    ".config/cursor", ".config/Cursor/User/globalStorage", ".config/io.datasette.llm",
    ".vscode-server/data/User/globalStorage",
    # browsers, mail, chats and wallets
    ".config/Slack", ".config/Code/User/globalStorage",
    ".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/vivaldi",
    ".config/BraveSoftware", ".config/microsoft-edge", ".config/opera", ".var/app", ".librewolf",
    ".config/google-chrome-beta", ".config/google-chrome-unstable", ".config/microsoft-edge-beta",
    ".config/microsoft-edge-dev", ".zen", ".waterfox", ".floorp", ".config/Signal",
    ".config/discord", ".config/Element", ".local/share/TelegramDesktop", ".config/evolution",
    ".local/share/evolution", ".mutt", ".muttrc", ".msmtprc", ".mbsyncrc", ".offlineimaprc",
    ".fetchmailrc", ".electrum", ".bitcoin", ".ethereum", ".config/solana",
    "snap/firefox", "snap/chromium", "Library/Cookies", "Library/Safari", "Library/Mail",
    "Library/Application Support/Google/Chrome", "Library/Application Support/Firefox",
    # histories of what was typed
    ".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history",
    ".zhistory", ".node_repl_history", ".local/share/fish/fish_history", ".lesshst", ".histfile",
    ".sqlite_history", ".rediscli_history", ".irb_history", ".xonsh_history", ".gdb_history",
    ".viminfo", ".local/state/nvim/shada", ".local/share/atuin", ".config/nushell/history.txt",
    ".config/nushell/history.sqlite3",
)  # fmt: skip
_SYSTEM_SECRETS = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/ssh",
    "/run/user", "/run/secrets", "/run/credentials", "/var/spool/cron",
)  # fmt: skip
_HOMES = ("/home", "/Users")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_TMP = Path("/") / "tmp"
_MOST_ENTRIES = 5_000
"""How many entries of one folder are examined."""
_REFUSALS = Regex(
    r"read-only file system|operation not permitted|permission denied|device or resource busy"
    r"|network is unreachable|could not resolve|name or service not known|name resolution"
    r"|invalid cross-device|\b(?:EROFS|EACCES|EPERM|ENETUNREACH|EAI_AGAIN|ENOTFOUND)\b",
    re.IGNORECASE,
)
_UNREACHABLE = Regex(
    r"connection refused|failed to connect|could ?n[o']t connect|\bECONNREFUSED\b", re.I
)
"""What programs print when nothing listens, on the command's own loopback or on the machine's."""
_NETWORKS: dict[Network, str] = {
    "none": "no network access",
    "loopback": "network access only to what the same command starts on loopback",
    "all": "full network access",
}


class Mechanism(msgspec.Struct, frozen=True):
    """The sandbox mechanism of this system."""

    kind: Kind
    program: Path | None = None
    why: str = ""
    """Why there is none, or no better one."""


class Confined(msgspec.Struct, frozen=True):
    """How to start a command so that it runs in the sandbox."""

    argv: list[str]
    descriptors: tuple[int, ...] = ()
    """Descriptors that it must inherit."""
    by_guard: str = ""
    """Argument for `subprocess_guard`, if the guard is to confine the command."""
    environ: dict[str, str] = {}


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """What one command may do. All paths are real and exist."""

    write: tuple[Path, ...]
    kept: tuple[Path, ...]
    """Paths within `write` that are read-only."""
    hidden: tuple[Path, ...]
    network: Network
    temporary: Path


@functools.cache
def find_mechanism(not_in: tuple[Path, ...] = ()) -> Mechanism:
    """Return this system's sandbox mechanism, tested once; ignores programs below `not_in`."""
    nothing = Confinement(write=(), kept=(), hidden=(), network="loopback", temporary=_TMP)
    if sys.platform == "darwin":
        program = Path("/usr/bin/sandbox-exec")
        why = _failure_of(program, "-p", profile(nothing))
        return Mechanism("" if why else "sandbox-exec", program, why)
    has_filter = platform.machine() in _ARCHITECTURES and struct.calcsize("P") == 8
    if sys.platform != "linux" or not has_filter:
        return Mechanism("", why="this system has no sandbox")
    bubblewrap, why = find_program("bwrap", not_in), "bubblewrap is not installed"
    if bubblewrap:
        calls = call_filter(inet=True, shares=True)
        why = _failure_of(bubblewrap, *_bubblewrap(nothing, calls), passed=(calls,))
        os.close(calls)
        if not why:
            return Mechanism("bubblewrap", bubblewrap)
    version = landlock_version()
    if version >= LEAST_ABI:
        return Mechanism("landlock", why=why)
    what = f"Landlock is too old ({version})" if version else "the kernel has no Landlock"
    return Mechanism("", why=f"{why}, and {what}")


def _failure_of(program: Path, *options: str, passed: tuple[int, ...] = ()) -> str:
    """Return why a program can't start commands here; empty if it can."""
    try:
        done = subprocess.run(
            [str(program), *options, "/bin/bash", "--norc", "-c", ":"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=passed,
            env=child_environment(),
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{program} does not run ({error})"
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"{program} does not work here ({lines[-1] if lines else done.returncode})"


class Sandbox:
    """The sandbox of one ragmem process, according to the settings.

    No command can read `private`, which are ragmem's own folders, nor what `rules` deny reading;
    Landlock can't hide the latter inside a writable folder. `close` removes the temporary folder,
    which all commands of the process share.
    """

    def __init__(
        self,
        settings: SandboxConfig,
        *,
        private: Sequence[Path] = (),
        not_in: tuple[Path, ...] = (),
        mechanism: Mechanism | None = None,
        rules: PermissionRules | None = None,
    ) -> None:
        self.settings = settings
        self._private = private
        self._not_in = not_in
        self._mechanism = mechanism
        self._permission_rules = rules or PermissionRules()
        self._temporary: TemporaryFolder | None = None
        self._folder_lock = threading.Lock()

    @property
    def is_known(self) -> bool:
        """Whether `is_on` can be answered immediately."""
        return self.settings.mode == "off" or self._mechanism is not None

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of this system; finding it takes a moment the first time."""
        if self._mechanism is None:
            self._mechanism = find_mechanism(self._not_in)
        return self._mechanism

    @property
    def is_on(self) -> bool:
        """Whether commands run in the sandbox."""
        return self.settings.mode != "off" and bool(self.mechanism.kind)

    @property
    def network(self) -> str:
        """Return what commands can reach, in words."""
        # Landlock can't give a command its own loopback.
        alone = self.settings.network == "loopback" and self.mechanism.kind == "landlock"
        return _NETWORKS["none" if alone else self.settings.network]

    @property
    def keeps_ports(self) -> str:
        """The limitation of a server in the sandbox, as a sentence; empty if it can be reached."""
        network = self.settings.network
        if network == "all" or (network, self.mechanism.kind) == ("loopback", "sandbox-exec"):
            return ""
        return "It runs in the sandbox: no browser and no other command can reach its ports."

    @property
    def allows_unasked(self) -> bool:
        """Whether the user lets sandboxed commands run unasked, and the sandbox is fit for that.

        Landlock is not: it can't protect a file within a writable folder, such as git's hooks.
        """
        return self.is_on and self.settings.auto_allow and self.mechanism.kind == "bubblewrap"

    @property
    def absent(self) -> tuple[str, ...]:
        """Configured writable paths that do not exist."""
        return tuple(e for e in self.settings.write if not os.path.lexists(os.path.expanduser(e)))

    def describe(self) -> str:
        """Describe the sandbox on one line."""
        if self.settings.mode == "off":
            return "off (sandbox.mode): commands can do whatever you can do"
        found = self.mechanism
        if not found.kind:
            is_needed = self.settings.mode == "required"
            then = "no command runs" if is_needed else "commands can do whatever you can do"
            return f"none: {found.why}; {then}"
        by = f"by {found.kind}" + (f" ({found.why})" if found.why else "")
        asked = "run unasked in acceptEdits" if self.allows_unasked else "need your approval"
        absent = "".join(f"; {each} in sandbox.write does not exist" for each in self.absent)
        return (
            f"on, {by}: commands have {self.network}, write only in their folder, and {asked}"
            + absent
        )

    def hint(self, output: str) -> str:
        """Return a hint for the model if output looks like a denial by the sandbox; else empty."""
        unreached = self.settings.network != "all" and _UNREACHABLE.search(output)
        if not unreached and not _REFUSALS.search(output):
            return ""
        outside = "Only the user can change that (sandbox.mode is `required`)."
        if self.settings.mode != "required":
            outside = (
                "If that is why it failed and there is no way around it, call run_command again "
                "with `outside_sandbox` saying why: the user is asked."
            )
        also = "What runs outside it can only be reached from outside. " if self.keeps_ports else ""
        return (
            "[This ran in the sandbox: it can write only in the working directory and a temporary "
            "folder ($TMPDIR), but not git's hooks and configuration or files that run by "
            f"themselves; it can't read keys; it has {self.network}. {also}{outside}]"
        )

    @contextmanager
    def confining(self, argv: list[str], roots: Sequence[Path]) -> Iterator[Confined]:
        """Yield how to start a command that writes in `roots`; raises OSError if that can't be."""
        rules, program = self._confinement(roots), str(self.mechanism.program)
        environ = {"TMPDIR": str(rules.temporary)}
        if self.mechanism.kind == "sandbox-exec":
            yield Confined([program, "-p", profile(rules), *argv], environ=environ)
            return
        shares = self.mechanism.kind == "bubblewrap"
        inet = rules.network == "all" or (rules.network == "loopback" and shares)
        with ExitStack() as opened:
            calls = call_filter(inet=inet, shares=shares)
            opened.callback(os.close, calls)
            if shares:
                argv = [program, *_bubblewrap(rules, calls), *argv]
                yield Confined(argv, (calls,), environ={"TMPDIR": str(_TMP)})
                return
            files = ruleset(_rights(rules))
            opened.callback(os.close, files)
            yield Confined(argv, (calls, files), f"{files},{calls}", environ)

    def _confinement(self, roots: Sequence[Path]) -> Confinement:
        write = [*roots, *_existing(self.settings.write)]
        kept = set(_existing(path for root in roots for path in protected_in(root)))
        denied = self._permission_rules.hidden_in(roots[0], roots) if roots else set()
        if self.mechanism.kind == "landlock":
            denied = {path for path in denied if not any(map(path.is_relative_to, write))}
        for folder in self._private:
            with suppress(OSError):  # What is made during the command would not be hidden from it.
                make_private(folder)
        return Confinement(
            write=tuple(dict.fromkeys(write)),
            kept=tuple(p for p in sorted(kept) if any(map(p.is_relative_to, write))),
            hidden=tuple(_hidden([*self._private, *self.settings.deny_read, *denied], write)),
            network=self.settings.network,
            temporary=self._temporary_folder(),
        )

    def _temporary_folder(self) -> Path:
        with self._folder_lock:
            if self._temporary is None or not self._temporary.path.is_dir():
                self.close()
                self._temporary = TemporaryFolder()
                make_private(self._temporary.path)
            return self._temporary.path

    def close(self) -> None:
        """Remove the temporary folder with everything that commands left in it."""
        if self._temporary:
            self._temporary.close()


# --- protected and hidden paths --------------------------------------------------


def _entries(folder: Path) -> list[Path]:
    if folder.is_symlink():
        return []
    try:
        with os.scandir(folder) as entries:
            return [Path(e.path) for e, _ in zip(entries, range(_MOST_ENTRIES), strict=False)]
    except OSError:
        return []


def _existing(paths: Iterable[Path | str]) -> Iterator[Path]:
    """Yield the real path of each path that exists and can be read."""
    for path in paths:
        full = os.path.expanduser(path)
        if os.path.lexists(full) and os.access(full, os.R_OK):
            yield Path(os.path.realpath(full))


def _hidden(paths: Iterable[Path | str], write: Sequence[Path]) -> Iterator[Path]:
    own = {os.path.realpath(os.path.expanduser("~"))}
    with suppress(KeyError):
        own.add(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir))
    secrets = [os.path.join(home, name) for home in own for name in _SECRETS]
    programs = child_environment().get("PATH", "").split(os.pathsep)
    others = [
        home
        for home in (Path("/root"), *(each for top in _HOMES for each in _entries(Path(top))))
        # Some contain programs for all users, such as Homebrew's.
        if not any(Path(each).is_relative_to(home) for each in (*own, *programs, sys.prefix))
    ]
    found = set(_existing([*others, *secrets, *_SYSTEM_SECRETS, *paths]))
    for path in sorted(found):
        # The sandbox has its own /tmp.
        seen = not path.is_relative_to(_TMP) or any(map(path.is_relative_to, write))
        if seen and not any(path != other and path.is_relative_to(other) for other in found):
            yield path


# --- bubblewrap -----------------------------------------------------------------


def _bubblewrap(rules: Confinement, calls: int) -> list[str]:
    """Return bubblewrap's options before the command; a deeper path's rule comes later and wins."""
    placed: list[tuple[Path, list[str]]] = [(_TMP, ["--bind", str(rules.temporary), str(_TMP)])]
    top = Path("/")
    for path in rules.write:
        if path != top:
            placed.append((path, ["--bind", str(path), str(path)]))
    for path in rules.kept:
        # Make the folders above mounts too, so that they can't be renamed to make way for others.
        for above in path.parents:
            if above in rules.write or not any(map(above.is_relative_to, rules.write)):
                break
            placed.append((above, ["--bind", str(above), str(above)]))
    for path in rules.kept:
        placed.append((path, ["--ro-bind", str(path), str(path)]))
    closed: list[str] = []
    for path in rules.hidden:
        if path.is_dir():
            leads_on = any(path in root.parents for root in rules.write)
            placed.append((path, ["--perms", "0111" if leads_on else "0000", "--tmpfs", str(path)]))
            closed += ["--remount-ro", str(path)]
        else:
            placed.append((path, ["--ro-bind", os.devnull, str(path)]))
    placed.sort(key=lambda each: len(each[0].parts))
    unique = {tuple(option): None for _, option in placed}
    network = [] if rules.network == "all" else ["--unshare-net"]
    return [
        "--unshare-user", "--unshare-pid", "--unshare-ipc", *network,
        "--die-with-parent", "--new-session", "--cap-drop", "ALL",
        "--bind" if top in rules.write else "--ro-bind", "/", "/",
        "--dev", "/dev", "--proc", "/proc",
        # Root without capabilities still owns the kernel's settings there.
        "--remount-ro", "/proc",
        *(part for option in unique for part in option), *closed,
        "--seccomp", str(calls), "--",
    ]  # fmt: skip


# --- Landlock -------------------------------------------------------------------


def _rights(rules: Confinement) -> Iterator[tuple[Path, int]]:
    hidden = {*rules.hidden, _TMP, Path("/dev")}
    yield Path("/"), NAMES
    for path in _paths_without(Path("/"), hidden):
        yield path, READ
    for device in _DEVICES:
        yield Path(device), DEVICE
    for folder in (*rules.write, rules.temporary):
        for path in _paths_without(folder, set(rules.hidden)):
            yield path, WRITE


def _paths_without(folder: Path, without: set[Path]) -> Iterator[Path]:
    """Yield the folder, or, if excluded paths lie in it, the entries around those, recursively."""
    inside = {path for path in without if path.is_relative_to(folder)}
    if not inside:
        yield folder
    elif folder not in inside:
        for entry in _entries(folder):
            if not entry.is_symlink():
                yield from _paths_without(entry, inside)


# --- macOS ----------------------------------------------------------------------


def profile(rules: Confinement) -> str:
    """Return the rules as a profile for sandbox-exec, in which the last matching rule wins."""

    def places(paths: Iterable[Path]) -> str:
        return " ".join(
            '(subpath "{}")'.format(str(path).replace("\\", "\\\\").replace('"', '\\"'))
            for path in paths
        )

    lines = [
        "(version 1)",
        "(allow default)",
        "(deny file-write*)",
        f"(allow file-write* {places([*rules.write, rules.temporary])})",
        '(allow file-write* (literal "/dev/null") (literal "/dev/zero") (regex #"^/dev/fd/"))',
        *([f"(deny file-write* {places(rules.kept)})"] if rules.kept else []),
        *([f"(deny file-read* file-write* {places(rules.hidden)})"] if rules.hidden else []),
        "(deny signal process-info*)",
        "(allow signal process-info* (target same-sandbox))",
        "(deny appleevent-send lsopen)",
    ]
    if rules.network != "all":
        lines.append("(deny network*)")
    if rules.network == "loopback":
        lines.append('(allow network* (local ip "localhost:*") (remote ip "localhost:*"))')
    return "\n".join(lines)

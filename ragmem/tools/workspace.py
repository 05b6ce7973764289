"""The folders that the agent works in: resolves paths, and opens them without races.

A path is judged by its real path, never by its text. Opening walks that real path component by
component without following links, so that anything swapped in between the check and the use is
refused, not followed.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePosixPath

import msgspec

from ragmem.errors import UsageError
from ragmem.failpoints import failpoint
from ragmem.files import sync_folder
from ragmem.text import Regex, spelled
from ragmem.tools.base import ToolFailure, denial
from ragmem.tools.content import MAX_TEXT_BYTES, read_span, sha256_of

_O_PATH: int = getattr(os, "O_PATH", os.O_RDONLY)
_FOLDER_FLAGS = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_VIRTUAL = (Path("/dev"), Path("/sys"))
_PROC = Path("/proc")
_SUGGESTED_FROM = 1000
"""How many names of a folder are compared for "did you mean"."""
_MOST_LINKS = 40
"""As many as Linux follows."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved path."""

    real: Path
    """The path without links; for a file that does not exist, below a real folder."""
    exists: bool
    inside: bool
    """Whether it is in one of the workspace's folders."""
    paths: tuple[Path, ...]
    """The path as given, then as each link in it leads on; `real` is the last."""


class Workspace:
    """The working directory and the folders added to it (`--add-dir`).

    `private` are ragmem's own folders: no tool reads, lists or writes in them. `session_cwd` is the
    folder in which the session began, if it still exists: in another one, results have absolute
    paths, since the recorded ones are relative to that. Raises UsageError if a folder does not
    exist.
    """

    def __init__(
        self,
        cwd: Path,
        extra: tuple[Path, ...] = (),
        *,
        private: tuple[Path, ...] = (),
        session_cwd: Path | None = None,
    ) -> None:
        self.cwd = _existing_folder(cwd)
        moved = session_cwd is None or not os.path.isdir(session_cwd)
        self._session_cwd = self.cwd if moved else Path(os.path.realpath(session_cwd or ""))
        self.roots = (self.cwd, *(_existing_folder(path) for path in extra))
        self._private = tuple(Path(os.path.realpath(path)) for path in private)

    def resolve(self, path: str) -> Target:
        """Resolve a path given by the model; raises ToolFailure if that is impossible.

        Control characters and bytes that are not UTF-8 may be escaped as shown (`\\x1b`, `\\xff`).
        """
        if not path or "\0" in path:
            raise ToolFailure("The path is empty or contains a NUL. Give that of a file or folder.")
        full = self._absolute(path)
        try:
            real = Path(os.path.realpath(full, strict=True))
            # Python follows more links than the system does.
            os.stat(full)
        except FileNotFoundError:
            spelled = _unescape(path)
            if spelled != path and os.path.lexists(self._absolute(spelled)):
                return self.resolve(spelled)
            return self._missing(full, path)
        except (OSError, ValueError) as error:
            raise _unresolved(path, error) from None
        return self._target(real, full, exists=True)

    def is_private(self, real: Path) -> bool:
        """Return whether a real path belongs to ragmem itself."""
        return any(real.is_relative_to(folder) for folder in self._private)

    def record_path(self, real: Path) -> str:
        """Return a path as results show it: relative to the working directory, or else absolute."""
        if real.is_relative_to(self.cwd) and self._session_cwd == self.cwd:
            return show_name(real.relative_to(self.cwd).as_posix())
        return show_name(real.as_posix())

    def recorded_path(self, path: str) -> str:
        """Return a path that a result of this session has, as results show it now."""
        if self._session_cwd == self.cwd:
            return path
        return self.record_path(Path(os.path.normpath(self._session_cwd / path)))

    def _absolute(self, path: str) -> str:
        return os.path.join(self.cwd, os.path.expanduser(path))

    def _target(self, real: Path, full: str, *, exists: bool) -> Target:
        virtual = next((v for v in _VIRTUAL if real.is_relative_to(v)), None)
        if real.is_relative_to(_PROC) or (
            virtual and not any(root.is_relative_to(virtual) for root in self.roots)
        ):
            raise denial(
                f"{show_name(str(real))} is refused: /proc, /sys and /dev contain no real files."
            )
        return Target(
            real=real,
            exists=exists,
            inside=any(map(real.is_relative_to, self.roots)),
            paths=tuple(dict.fromkeys((*_followed(full), real))),
        )

    def _missing(self, full: str, path: str) -> Target:
        """Resolve a path whose end does not exist: real as far as it exists."""
        missing: list[str] = []
        head = full.rstrip("/")
        folder = None
        while folder is None:
            head, name = os.path.split(head)
            missing.append(name)
            try:
                folder = Path(os.path.realpath(head, strict=True))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _unresolved(path, error) from None
        if os.path.islink(folder / missing[-1]):
            raise ToolFailure(f"{show_name(path)} goes through a broken symlink, so it is refused.")
        if {"..", "."} & set(missing):
            raise ToolFailure(f"{show_name(path)} goes through a folder that does not exist.")
        if not folder.is_dir():
            raise ToolFailure(f"{show_name(str(folder))} is not a folder.")
        return self._target(folder.joinpath(*reversed(missing)), full, exists=False)

    def not_found(self, path: str, target: Target) -> ToolFailure:
        """Return the failure for a path that must exist, with similar names."""
        from difflib import get_close_matches

        missing, near = f"{show_name(path)} does not exist", list[str]()
        try:
            with os.scandir(target.real.parent) as entries:
                names = [entry.name for entry in islice(entries, _SUGGESTED_FROM)]
            near = get_close_matches(target.real.name, names, n=3, cutoff=0.6)
        except OSError:
            missing += ", nor does its folder"
        similar = ", ".join(self.record_path(target.real.with_name(name)) for name in near)
        hint = f"Similar: {similar}." if near else "Use glob_files or list_directory to find it."
        return ToolFailure(f"{missing}. {hint}")


@contextmanager
def open_folder(real: Path, *, make: bool = False) -> Iterator[int]:
    """Open a folder without following any link, and yield its descriptor.

    `make` creates missing folders. Raises ToolFailure if a component is a link or not a folder.
    """
    fd = os.open("/", _FOLDER_FLAGS)
    try:
        for name in real.parts[1:]:
            below = _step(name, fd, make=make)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _unresolved(path: str, error: Exception) -> ToolFailure:
    return ToolFailure(f"{show_name(path)} can't be resolved ({_reason(error)}), so it is refused.")


def _followed(full: str) -> Iterator[Path]:
    """Yield the path as given, then as each link in it leads on."""
    path = Path(os.path.normpath(full))
    for _ in range(_MOST_LINKS):
        yield path
        link = next((each for each in (*reversed(path.parents), path) if each.is_symlink()), None)
        if link is None:
            return
        with suppress(OSError):
            path = Path(os.path.normpath(link.parent / link.readlink() / path.relative_to(link)))


def _existing_folder(path: Path) -> Path:
    try:
        real = Path(os.path.realpath(path, strict=True))
        os.scandir(real).close()
    except OSError as error:
        raise UsageError(
            f"The folder {show_name(str(path))} can't be used: {_reason(error)}.",
            hint="Name a folder that exists and can be read.",
        ) from None
    return real


def _step(name: str, folder: int, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        os.mkdir(name, dir_fd=folder)
        return os.open(name, _FOLDER_FLAGS, dir_fd=folder)
    except OSError as error:
        # A real path has no links, so one was created since.
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ToolFailure(
                f"{show_name(name)} is not a folder (use read_file for files), or became a link."
            ) from None
        raise


@contextmanager
def open_file(real: Path) -> Iterator[int]:
    """Open a regular file for reading, and yield its descriptor; raises ToolFailure for others."""
    with open_folder(real.parent) as folder:
        _require_regular(os.stat(real.name, dir_fd=folder, follow_symlinks=False), real)
        fd = os.open(real.name, _FILE_FLAGS, dir_fd=folder)
    try:
        _require_regular(os.fstat(fd), real)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def plain_failures(shown: str) -> Iterator[None]:
    """Turn the system's errors into failures that the model can act on."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ToolFailure(f"{shown}: {_reason(error)}.") from None


def show_name(path: str) -> str:
    """Return a path on one line, escaped so that `Workspace.resolve` accepts it."""
    return spelled(path)


def _unescape(path: str) -> str:
    def char(match: re.Match[str]) -> str:
        code = int(match[1] or "0a", 16)
        return chr(code) if code < 0x80 else chr(0xDC00 + code)

    return re.sub(r"\\n|\\x([0-9a-f]{2})", char, path)


def _require_regular(status: os.stat_result, real: Path) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    shown = show_name(real.name)
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailure(f"{shown} is a folder. Use list_directory to see what is in it.")
    if stat.S_ISLNK(status.st_mode):
        raise ToolFailure(f"{shown} became a symlink while it was opened, so it is refused.")
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "a device")
    raise ToolFailure(f"{shown} is {kind}; only regular files can be read or edited.")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOENT, errno.EACCES}


def create(real: Path, data: bytes, mode: int | None = None) -> None:
    """Create a file atomically, by default with the process's usual mode.

    Raises FileExistsError if the name is taken.
    """
    usual = 0o666 if mode is None else mode
    with open_folder(real.parent, make=True) as folder:

        def publish(fd: int, temporary: str) -> None:
            if mode is not None:
                os.fchmod(fd, mode)
            try:
                _link(fd, temporary, real.name, folder)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                # A file system without hard links: claim the name first, then write the file.
                named = os.open(real.name, _CREATE_FLAGS, usual, dir_fd=folder)
                try:
                    if mode is not None:
                        os.fchmod(named, mode)
                    _write_all(named, data)
                except BaseException:
                    _unlink(real.name, folder)
                    raise

        _with_temporary(folder, data, usual, publish)


def replace(real: Path, data: bytes, *, expected_sha256: str, shown: str) -> None:
    """Replace the content of a regular file that is still as it was read.

    Keeps mode, owner, extended attributes and hard links. Raises ToolFailure if the file has
    changed. A file with several names, or whose owner or attributes can't be copied to a new one,
    is written in place.
    """
    with open_file(real) as before, open_folder(real.parent) as folder:
        old = read_span(before, 0, MAX_TEXT_BYTES + 1)
        if sha256_of(old) != expected_sha256:
            raise stale(shown)
        status = os.fstat(before)
        # A file that can't be written (mode, read-only mount, running program) must not be
        # replaced.
        os.close(os.open(real.name, _WRITE_FLAGS, dir_fd=folder))

        def unchanged() -> None:
            now = os.stat(real.name, dir_fd=folder, follow_symlinks=False)
            if identity(now) != identity(status):
                raise stale(shown)

        def publish(fd: int, temporary: str) -> None:
            _copy_metadata(before, fd, status)
            os.fsync(fd)
            name = temporary or _draft_name(real.name, before)
            if not temporary:
                unchanged()
                # Left by a process that was killed between the next two steps.
                _unlink(name, folder)
                _link(fd, "", name, folder)
            try:
                failpoint("file.draft")
                unchanged()
                os.rename(name, real.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                if not temporary:
                    _unlink(name, folder)
                raise

        if status.st_nlink == 1:
            try:
                _with_temporary(folder, data, 0o600, publish)
                return
            except PermissionError:
                # The folder accepts no new names, or the owner can't be kept.
                pass
        unchanged()
        _write_in_place(os.open(real.name, _WRITE_FLAGS, dir_fd=folder), data, old)


def stale(shown: str) -> ToolFailure:
    """Return the failure for a file that is no longer what was read."""
    return ToolFailure(
        f"{shown} changed since it was read, so nothing was written. Read it again with "
        "read_file, then make the change."
    )


def _with_temporary(
    folder: int, data: bytes, mode: int, publish: Callable[[int, str], None]
) -> None:
    """Write a file without a name (or a random one, if the system requires it), then publish it."""
    name = ""
    try:
        if not _O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no O_TMPFILE")
        fd = os.open(".", os.O_WRONLY | _O_TMPFILE | os.O_CLOEXEC, mode, dir_fd=folder)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        name = _temporary_name()
        fd = os.open(name, _CREATE_FLAGS, mode, dir_fd=folder)
    try:
        failpoint("file.write")
        _write_all(fd, data, close=False)
        failpoint("file.written")
        publish(fd, name)
        failpoint("file.named")
    finally:
        os.close(fd)
        if name:
            _unlink(name, folder)
    with suppress(OSError):  # What was published is there either way.
        sync_folder(Path(), folder)


def _link(fd: int, temporary: str, name: str, folder: int) -> None:
    if temporary:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    else:
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder, follow_symlinks=True)


def _copy_metadata(source: int, target: int, status: os.stat_result) -> None:
    if (os.fstat(target).st_uid, os.fstat(target).st_gid) != (status.st_uid, status.st_gid):
        os.fchown(target, status.st_uid, status.st_gid)
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(source)
    except OSError:
        return
    for name in names:
        try:
            os.setxattr(target, name, os.getxattr(source, name))
        except OSError as error:
            # Labels that the system assigns can't be set by every user.
            if not name.startswith(("security.", "trusted.")):
                raise PermissionError(errno.EPERM, "attributes can't be kept") from error


def _write_in_place(fd: int, data: bytes, old: bytes) -> None:
    def fill(content: bytes) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        _write_all(fd, content, close=False)
        os.ftruncate(fd, len(content))
        os.fsync(fd)

    try:
        failpoint("file.in_place")
        fill(data)
    except OSError:
        fill(old)
        raise
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes, *, close: bool = True) -> None:
    with open(fd, "wb", closefd=close) as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def _temporary_name() -> str:
    return f".ragmem-{os.urandom(8).hex()}"


def _draft_name(name: str, file: int) -> str:
    """Return the only draft name that a file ever has: the next writer removes one that is left.

    A lock on the file keeps other writers out: they find the file changed once they get theirs.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        return _temporary_name()
    return f".ragmem-{sha256_of(os.fsencode(name))[:16]}"


def _unlink(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def identity(status: os.stat_result) -> tuple[int, ...]:
    """Return what distinguishes a file from others, and from its own earlier versions."""
    times = status.st_mtime_ns, status.st_ctime_ns
    return status.st_dev, status.st_ino, status.st_size, *times


# --- files named in a prompt: `@path`, and plain names for models that can't look themselves

_AT_PATH = Regex(r"(?<![\w@/.])@(\"[^\"\n]+\"|[^\s\"'`,;:!?()\[\]{}<>]+)")
_WORD = Regex(r"[\w./\-]+")
MAX_MENTIONS = 10
"""Further ones in a prompt are left for the agent to read."""


def at_paths(prompt: str) -> list[str]:
    """Return each `@path` or `@"path with spaces"` once, in order, without a final full stop."""
    found = (match.strip('"').rstrip(".") for match in _AT_PATH.findall(prompt))
    return list(dict.fromkeys(path for path in found if path))[:MAX_MENTIONS]


def named_files(prompt: str, files: Sequence[str]) -> list[str]:
    """Return the project's files that the prompt names by path, or by a name that is unique."""
    by_name: dict[str, list[str]] = {}
    for file in files:
        by_name.setdefault(PurePosixPath(file).name.casefold(), []).append(file)
    known = set(files)
    found = []
    for word in dict.fromkeys(_WORD.findall(prompt)):
        path = word.removeprefix("./").rstrip("./-")
        named = by_name.get(path.casefold(), ())
        if path in known:
            found.append(path)
        elif len(named) == 1:
            found.append(named[0])
    return list(dict.fromkeys(found))[:MAX_MENTIONS]


# --- glob patterns ------------------------------------------------------------------

_MAX_ALTERNATIVES = 64
_MAX_SEGMENTS = 64


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a predicate for relative paths with `/`; a pattern without a slash matches names."""
    pattern = pattern.removeprefix("./")
    if not pattern or len(pattern) > 1000:
        raise ToolFailure("The glob pattern is empty or too long. Example: **/*.py")
    patterns = [one.split("/") for one in alternatives(pattern)]
    if max(map(len, patterns)) > _MAX_SEGMENTS:
        raise ToolFailure("The glob pattern has too many parts.")

    def matches(path: str) -> bool:
        parts = path.split("/")
        return any(
            # The name alone decides about nearly all files.
            (wanted[-1] == "**" or fnmatchcase(parts[-1], wanted[-1]))
            and (len(wanted) == 1 or _match(parts, wanted))
            for wanted in patterns
        )

    return matches


def _match(parts: list[str], wanted: list[str]) -> bool:
    # hit[i]: the pattern so far matches the first i parts.
    hit = [True] + [False] * len(parts)
    for segment in wanted:
        if segment == "**":
            for i in range(1, len(hit)):
                hit[i] = hit[i] or hit[i - 1]
        else:
            hit = [False] + [hit[i] and fnmatchcase(part, segment) for i, part in enumerate(parts)]
    return hit[-1]


def alternatives(pattern: str) -> list[str]:
    """Return each alternative of the braces; an unclosed brace is an ordinary character."""
    waiting, done = [pattern], list[str]()
    while waiting:
        if len(waiting) + len(done) > _MAX_ALTERNATIVES:
            raise ToolFailure(f"The glob pattern has more than {_MAX_ALTERNATIVES} alternatives.")
        one = waiting.pop()
        opened = one.rfind("{")
        closed = one.find("}", opened)
        if opened < 0 or closed < 0:
            done.append(one)
            continue
        waiting += [
            one[:opened] + middle + one[closed + 1 :]
            for middle in one[opened + 1 : closed].split(",")
        ]
    return done

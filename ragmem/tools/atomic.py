"""Writing a file so that it is the old one or the new one, never half of either."""

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from ragmem.failpoints import failpoint
from ragmem.tools.base import ToolFailure
from ragmem.tools.content import MAX_TEXT_BYTES, read_span
from ragmem.tools.workspace import open_file, open_folder

_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOENT, errno.EACCES}


def create(real: Path, data: bytes) -> None:
    """A new file, whole at once; FileExistsError if something bears the name already."""
    with open_folder(real.parent, make=True) as folder:

        def publish(fd: int, temporary: str) -> None:
            try:
                _link(fd, temporary, real.name, folder)
            except FileExistsError:
                raise
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                # A file system without hard links: the name is taken first, then filled.
                named = os.open(real.name, _NEW, 0o666, dir_fd=folder)
                try:
                    _write_all(named, data)
                except BaseException:
                    _unlink(real.name, folder)
                    raise

        _with_temporary(folder, data, 0o666, publish)


def replace(real: Path, data: bytes, *, expected_sha256: str, shown: str) -> None:
    """Put new content into a regular file that still holds what was read of it.

    Keeps mode, owner, extended attributes and hard links. ToolFailure when the
    file changed since. A file with several names, or whose owner or attributes
    can't be given to a new one, is written in place.
    """
    with open_file(real) as before, open_folder(real.parent) as folder:
        old = read_span(before, 0, MAX_TEXT_BYTES + 1)
        if hashlib.sha256(old).hexdigest() != expected_sha256:
            raise stale(shown)
        status = os.fstat(before)
        # What may not be written (mode, read-only mount, running program) is not replaced either.
        os.close(os.open(real.name, _WRITE, dir_fd=folder))

        def unchanged() -> None:
            now = os.stat(real.name, dir_fd=folder, follow_symlinks=False)
            if _identity(now) != _identity(status):
                raise stale(shown)

        def publish(fd: int, temporary: str) -> None:
            _copy_metadata(before, fd, status)
            os.fsync(fd)
            name = temporary or _name_for(real.name, before)
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
                # The folder takes no new names, or the owner can't be kept.
                pass
        unchanged()
        _write_in_place(os.open(real.name, _WRITE, dir_fd=folder), data, old)


def stale(shown: str) -> ToolFailure:
    """What is said when a file is no longer what was read."""
    return ToolFailure(
        f"{shown} changed since it was read, so nothing was written. Read it again with "
        "read_file, then make the change."
    )


def _with_temporary(
    folder: int, data: bytes, mode: int, publish: Callable[[int, str], None]
) -> None:
    """Fill a file without a name (or, where the system has none, with a random one)."""
    name = ""
    try:
        if not _O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no O_TMPFILE")
        fd = os.open(".", os.O_WRONLY | _O_TMPFILE | os.O_CLOEXEC, mode, dir_fd=folder)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        name = _temporary_name()
        fd = os.open(name, _NEW, mode, dir_fd=folder)
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
    _sync_folder(folder)


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
            # Labels that the system sets by itself can't be given by everyone.
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


def _name_for(name: str, file: int) -> str:
    """The one draft that a file ever has: who was killed leaves one, and the next takes it away.

    A lock on the file keeps others from it: they find the file changed when they get theirs.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        return _temporary_name()
    return f".ragmem-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"


def _unlink(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def _identity(status: os.stat_result) -> tuple[int, int, int, int, int]:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _sync_folder(folder: int) -> None:
    try:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except PermissionError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Files as they were before an edit, byte for byte, so that it can be taken back (X35).

Content-addressed: `<folder>/<first two digits>/<sha256>`, 0600 in 0700
folders, outside of recall and export. Nothing here is deleted by age.
"""

import hashlib
import os
from pathlib import Path


class Preimages:
    """The folder that keeps them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, content: bytes) -> str:
        """Make the content durable; its SHA-256 is what `load` takes."""
        name = hashlib.sha256(content).hexdigest()
        file = self._file(name)
        if file.exists():
            return name
        for folder in (self._folder, file.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = file.with_name(f".{os.urandom(8).hex()}")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync(file.parent)
        return name

    def load(self, sha256: str) -> bytes:
        """The content again; OSError if it is gone, ValueError if it is damaged."""
        content = self._file(sha256).read_bytes()
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(f"The pre-image {sha256} is damaged.")
        return content

    def _file(self, sha256: str) -> Path:
        return self._folder / sha256[:2] / sha256


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

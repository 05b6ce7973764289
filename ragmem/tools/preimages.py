"""Files as they were before an edit, byte for byte, so that it can be taken back (X35).

Content-addressed: `<folder>/<first two digits>/<sha256>`, 0600 in 0700
folders, outside of recall and export. Nothing here is deleted by age.
"""

import hashlib
import re
from pathlib import Path

from ragmem.files import replace_private, sync_folder

_NAME = re.compile("[0-9a-f]{64}")


class Preimages:
    """The folder that keeps them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, content: bytes) -> str:
        """Make the content durable; its SHA-256 is what `load` takes."""
        name = hashlib.sha256(content).hexdigest()
        file = self.path(name)
        if file.exists():
            return name
        for folder in (self._folder, file.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_private(file, content, sync=True)
        sync_folder(file.parent)
        return name

    def load(self, sha256: str) -> bytes:
        """The content again; OSError if it is gone, ValueError if it is damaged."""
        content = self.path(sha256).read_bytes() if _NAME.fullmatch(sha256) else b""
        if hashlib.sha256(content).hexdigest() != sha256:
            raise ValueError(f"The pre-image {sha256} is damaged.")
        return content

    def path(self, sha256: str) -> Path:
        """The file that holds it."""
        return self._folder / sha256[:2] / sha256

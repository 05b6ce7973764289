"""What the page of an index shows beside the rest of pyproject.toml: links, and README.md.

The links are made of the repository's address: `PACKAGE_SOURCE`, or else the origin of the clone
that the package is built in. With it links between files of the repository lead there; without
one there are no links, and the words of those stand alone.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")
_PICTURE = re.compile(r"<picture>.*?</picture>\n*|<img [^>]*>\n*", re.DOTALL)
_PLACE = re.compile(r'((?:src|srcset)=")(?!https?:)')
_HOST = re.compile(r"(?:[a-z0-9-]+\.)+[a-z][a-z0-9-]+")
_PATH = re.compile(r"(?:/[\w.~-]+)+")
_INNER = (".internal", ".intranet", ".corp", ".lan", ".local", ".home.arpa")
"""How the names of hosts end that nobody else can reach."""


class IndexPageHook(MetadataHookInterface):
    """Gives the package its description and its links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """See `MetadataHookInterface.update`."""
        text = Path(self.root, "README.md").read_text("utf-8")
        source = public_address(os.environ.get("PACKAGE_SOURCE") or _origin(self.root))
        metadata["readme"] = {"content-type": "text/markdown", "text": for_the_index(text, source)}
        if source:
            metadata["urls"] = {
                "Source": source,
                "Issues": f"{source}/issues",
                "Changelog": f"{source}/blob/HEAD/CHANGELOG.md",
            }


def for_the_index(text: str, source: str) -> str:
    """The page with its links and pictures at the `source`, a repository's address; or without."""
    if not source:
        return _PICTURE.sub("", _LINK.sub(r"\1", text))
    text = _LINK.sub(rf"[\1]({source}/blob/HEAD/\2)", text)
    return _PLACE.sub(rf"\1{source}/raw/HEAD/", text)


def public_address(url: str) -> str:
    """The page of a repository that is cloned from `url`, without a user or a password in it.

    Empty unless that is https at a host with a name and no port: others are nobody else's to see.
    """
    try:
        parts = urlsplit(url)
        plain = parts.scheme == "https" and parts.port is None
    except ValueError:
        return ""
    path = parts.path.rstrip("/").removesuffix(".git")
    plain = plain and not parts.query and not parts.fragment
    host = parts.hostname or ""
    if not plain or not _HOST.fullmatch(host) or not _PATH.fullmatch(path):
        return ""
    if host.endswith(_INNER):
        return ""
    return f"https://{parts.hostname}{path}"


def _origin(root: str) -> str:
    """The address of this clone's origin; empty where `root` is no clone, or has none."""
    git = ["git", "-C", root]
    try:
        top, url = (
            subprocess.run(
                [*git, *asked], capture_output=True, text=True, check=True
            ).stdout.strip()
            for asked in (("rev-parse", "--show-toplevel"), ("config", "remote.origin.url"))
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    # Unpacked within somebody else's clone, it is none.
    return url if os.path.realpath(top) == os.path.realpath(root) else ""

"""A build hook for the package index's page: its project links, and README.md as description.

Links are built from the repository's address: `PACKAGE_SOURCE`, or else the origin of the clone in
which the package is built. Relative links lead there; without an address they become plain text.
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
"""The domains of hosts that are only reachable from inside a network."""


class IndexPageHook(MetadataHookInterface):
    """Sets the package's description and project links."""

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
    """Return the page with links and pictures resolved against the repository's address `source`.

    If that is empty, they are removed; the text of links stays.
    """
    if not source:
        return _PICTURE.sub("", _LINK.sub(r"\1", text))
    text = _LINK.sub(rf"[\1]({source}/blob/HEAD/\2)", text)
    return _PLACE.sub(rf"\1{source}/raw/HEAD/", text)


def public_address(url: str) -> str:
    """Return the web page of a repository cloned from `url`, without user and password.

    Empty unless it is https at a named host without a port: other addresses may be private.
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
    """Return the URL of the clone's origin; empty if `root` is not a clone, or has no origin."""
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
    # Sources unpacked inside another repository are not a clone.
    return url if os.path.realpath(top) == os.path.realpath(root) else ""

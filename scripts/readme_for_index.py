"""README.md as the index page shows it, where links between files of the repository lead nowhere.

With a `Source` among the project's links they lead there; without one, their words stand alone.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")
_PICTURE = re.compile(r"<picture>.*?</picture>\n*|<img [^>]*>\n*", re.DOTALL)
_PLACE = re.compile(r'((?:src|srcset)=")(?!https?:)')


class ReadmeHook(MetadataHookInterface):
    """Gives the package its description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """See `MetadataHookInterface.update`."""
        text = Path(self.root, "README.md").read_text("utf-8")
        source = metadata.get("urls", {}).get("Source", "").rstrip("/")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_the_index(text, source)}


def for_the_index(text: str, source: str) -> str:
    """The page with its links and pictures at the `source`, a repository's address; or without."""
    if not source:
        return _PICTURE.sub("", _LINK.sub(r"\1", text))
    text = _LINK.sub(rf"[\1]({source}/blob/HEAD/\2)", text)
    return _PLACE.sub(rf"\1{source}/raw/HEAD/", text)

"""ripgrep, as the tools need it; see `ragmem.ripgrep`."""

from collections.abc import Sequence
from pathlib import Path

from ragmem.ripgrep import FileList as FileList
from ragmem.ripgrep import Ripgrep as Ripgrep
from ragmem.ripgrep import find_ripgrep as find_ripgrep
from ragmem.ripgrep import list_files as list_files
from ragmem.tools.base import ToolFailure


def require_ripgrep(roots: Sequence[Path]) -> Path:
    """ToolFailure when there is none."""
    found = find_ripgrep(roots)
    if found is None:
        raise ToolFailure(
            "ripgrep (rg) is not installed, so searching does not work. "
            "Tell the person to run `ragmem doctor`."
        )
    return found

"""From a command's flags to an open App."""

from pathlib import Path
from typing import TYPE_CHECKING

from ragmem.config import Config, Paths, find_paths, load_config
from ragmem.errors import UsageError

if TYPE_CHECKING:
    from ragmem.app import App


def settings(*, color: str | None = None) -> tuple[Config, Paths]:
    """The configuration, with the flags of the terminal, and this user's folders, made."""
    paths = find_paths().make()
    return load_config(paths.config_file, flags={("ui", "color"): color}), paths


def current_folder() -> Path:
    """The folder that the command runs in, by its real path."""
    try:
        return Path.cwd().resolve()
    except FileNotFoundError:
        raise UsageError(
            "The current folder no longer exists.", hint="Change to one that does."
        ) from None


def open_app(config: Config, paths: Paths, *, ephemeral: bool = False) -> "App":
    """The App of the current folder, to be entered with `async with`."""
    from ragmem.app import App

    return App(config, paths, cwd=current_folder(), ephemeral=ephemeral)

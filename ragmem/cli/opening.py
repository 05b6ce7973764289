"""From a command's flags to an open App."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragmem.cli.streams import say
from ragmem.config import Config, Paths, find_paths, load_config
from ragmem.errors import ConfigError, UsageError
from ragmem.redact import know
from ragmem.text import visible

if TYPE_CHECKING:
    from ragmem.app import App


def settings(*, color: str | None = None, needs_memory: bool = True) -> tuple[Config, Paths]:
    """The configuration, with the flags of the terminal, and this user's folders, made.

    A command that does not need memory goes on where they can't be made, with
    memory switched off; the App says so.
    """
    paths = find_paths()
    config = load_config(paths.config_file, flags={("ui", "color"): color})
    know(config.passwords())
    try:
        paths.make()
    except ConfigError:
        if needs_memory:
            raise
        off = msgspec.structs.replace(config.memory, enabled=False)
        return msgspec.structs.replace(config, memory=off), paths
    if needs_memory and (loose := paths.close_to_others()):
        say(f"note: {visible(loose)}\n")
    return config, paths


def current_folder() -> Path:
    """The folder that the command runs in, by its real path."""
    try:
        return Path.cwd().resolve()
    except FileNotFoundError:
        raise UsageError(
            "The current folder no longer exists.", hint="Change to one that does."
        ) from None


def open_app(
    config: Config, paths: Paths, *, ephemeral: bool = False, patient: bool = False
) -> "App":
    """The App of the current folder, to be entered with `async with`."""
    from ragmem.app import App

    opened = App(config, paths, cwd=current_folder(), ephemeral=ephemeral, patient=patient)
    opened.say = lambda text: say(f"note: {visible(text)}\n")
    return opened

"""Ragmem's own folders and files, for their user alone."""

import os
import stat
from pathlib import Path

import msgspec

from ragmem.errors import ConfigError

_SHOWN = 3


class Paths(msgspec.Struct, frozen=True):
    """Folders of this user: all under RAGMEM_HOME if set, else the platform's own."""

    config_dir: Path
    data_dir: Path
    log_dir: Path

    @property
    def config_file(self) -> Path:
        """The settings."""
        return self.config_dir / "ragmem.toml"

    @property
    def database(self) -> Path:
        """The embedded store."""
        return self.data_dir / "memory.db"

    @property
    def locks_dir(self) -> Path:
        """Lock files of running processes."""
        return self.data_dir / "locks"

    @property
    def embedder_socket(self) -> Path:
        """Where a process that has the embedder loaded answers the others."""
        return self.data_dir / "embedder.sock"

    @property
    def spool_dir(self) -> Path:
        """What waits for a store that is away, a folder for each kind of store."""
        return self.data_dir / "spool"

    @property
    def neo4j_dir(self) -> Path:
        """The local Neo4j: server, data, password."""
        return self.data_dir / "neo4j"

    @property
    def owner_file(self) -> Path:
        """Whose home it is: an id, and a name."""
        return self.data_dir / "owner"

    @property
    def agreed_file(self) -> Path:
        """What the person said of skills and commands that projects bring."""
        return self.data_dir / "agreed.json"

    @property
    def prompt_history(self) -> Path:
        """What was typed in `chat`."""
        return self.data_dir / "history"

    def make(self) -> "Paths":
        """Create the folders, 0700 whatever the umask."""
        if self == NO_HOME:
            raise ConfigError(
                "There is no home folder to keep the memory in: HOME is not set.",
                hint="Set RAGMEM_HOME to a folder that can be written.",
            )
        for folder in self.own_folders:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                why = error.strerror or str(error)
                if isinstance(error, FileExistsError | NotADirectoryError):
                    why = "a file stands where a folder should be"
                raise ConfigError(
                    f"The folder {folder} can't be used: {why}.",
                    hint="Make it writable, or set RAGMEM_HOME to a folder that is.",
                ) from None
        return self

    def close_to_others(self) -> str:
        """Repair modes that let others in; what was loose, in words, empty when nothing was."""
        inside = [entry for folder in (self.data_dir, self.log_dir) for entry in _entries(folder)]
        loose = [
            f"{path} (was {mode:04o})"
            for path in dict.fromkeys([*self.own_folders, *inside])
            if (mode := _closed(path))
        ]
        if not loose:
            return ""
        more = f" and {len(loose) - _SHOWN:,} more" if len(loose) > _SHOWN else ""
        return f"Others could look into {', '.join(loose[:_SHOWN])}{more}; closed to them now."

    @property
    def neo4j_password(self) -> str:
        """That of the local Neo4j; empty where none was set up."""
        try:
            return (self.neo4j_dir / "password").read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    @property
    def own_folders(self) -> tuple[Path, ...]:
        """All of them: no tool reads or changes what is in them, and none is indexed."""
        return (self.config_dir, self.data_dir, self.log_dir)


NO_HOME = Paths(*(Path(os.devnull, "no-home", name) for name in ("config", "data", "logs")))
"""Where nothing can be: the user has no home, and RAGMEM_HOME is not set."""


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _closed(path: Path) -> int:
    """Take the rights of others away; the mode as it was if there were any and they went."""
    try:
        found = path.lstat()
        # A sticky folder such as /tmp is everybody's: not ours to close. A link has no rights.
        ours = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
        if not ours or not found.st_mode & 0o077 or found.st_mode & stat.S_ISVTX:
            return 0
        path.chmod(stat.S_IMODE(found.st_mode) & 0o700)
    except OSError:
        return 0
    return stat.S_IMODE(found.st_mode)


def refusal(folder: Path) -> str:
    """Return why a folder is no project to be indexed; empty where it may be one."""
    real = Path(os.path.realpath(folder))
    if real == Path(real.anchor):
        return "it is the root of the file system"
    try:
        home = Path(os.path.realpath(Path.home()))
    except RuntimeError:  # HOME is not set, and the system knows of none
        return ""
    if real == home:
        return "it is your home folder"
    return "your home folder is in it" if home.is_relative_to(real) else ""

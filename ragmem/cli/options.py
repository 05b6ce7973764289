"""Options that several commands share, and what they are checked against."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ragmem.errors import UsageError

PermissionMode = Literal["default", "acceptEdits", "plan", "bypassPermissions"]
Color = Literal["auto", "always", "never"]
TOOL_NAMES = (
    "read_file",
    "list_directory",
    "glob_files",
    "grep_files",
    "create_file",
    "write_file",
    "edit_file",
    "run_command",
)

Continue = Annotated[
    bool, typer.Option("-c", "--continue", help="Continue the newest session of this folder.")
]
Resume = Annotated[
    str | None,
    typer.Option(
        "-r",
        "--resume",
        metavar="[ID]",
        help="Resume a session: its id, the tail of one, or its name.",
    ),
]
Fork = Annotated[
    bool, typer.Option("--fork-session", help="With -c or -r: go on in a copy of the session.")
]
Everyone = Annotated[
    bool,
    typer.Option(
        "--everyone", help="With -c or -r: sessions of other people in the same database too."
    ),
]
Model = Annotated[
    str | None, typer.Option("-m", "--model", metavar="MODEL", help="Model, as provider/model.")
]
Mode = Annotated[
    PermissionMode | None,
    typer.Option(
        "--permission-mode",
        help="default asks before edits and commands, acceptEdits before commands, "
        "plan only reads, bypassPermissions never asks.",
    ),
]
Yolo = Annotated[bool, typer.Option("--yolo", help="Short for bypassPermissions.")]
AddDir = Annotated[
    list[Path] | None,
    typer.Option(
        "--add-dir", metavar="DIR", help="Another folder that tools may use; may be repeated."
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow", metavar="TOOL", help="Allow this tool without asking; may be repeated."
    ),
]
Ephemeral = Annotated[bool, typer.Option("--ephemeral", help="Write neither session nor memory.")]
ColorOption = Annotated[
    Color | None, typer.Option("--color", help="When to use colour; NO_COLOR turns it off.")
]
Format = Annotated[Literal["table", "json"], typer.Option("--format", help="How to print it.")]


def check_session_flags(
    *, continue_last: bool, resume: str | None, fork: bool, everyone: bool = False
) -> None:
    """UsageError for flags that contradict each other."""
    if continue_last and resume is not None:
        raise UsageError("-c and -r exclude each other.", hint="-r names the session itself.")
    if fork and not continue_last and resume is None:
        raise UsageError(
            "--fork-session needs a session to copy.", hint="Add -c, or -r with its id."
        )
    if everyone and not continue_last and resume is None:
        raise UsageError("--everyone says which sessions -c and -r take.", hint="Add one of them.")


def permission_mode(
    mode: PermissionMode | None, *, yolo: bool, configured: PermissionMode
) -> PermissionMode:
    """The mode that the flags ask for, else the configured one."""
    if yolo and mode not in (None, "bypassPermissions"):
        raise UsageError(f"--yolo and --permission-mode {mode} exclude each other.")
    return "bypassPermissions" if yolo else mode or configured


def allowed_tools(names: list[str] | None) -> tuple[str, ...]:
    """The tools of --allow; UsageError for one that does not exist."""
    for name in names or ():
        if name not in TOOL_NAMES:
            raise UsageError(
                f"--allow: there is no tool {name!r}.",
                hint=f"The tools are {', '.join(TOOL_NAMES)}.",
            )
    return tuple(names or ())


def added_folders(folders: list[Path] | None) -> tuple[Path, ...]:
    """The folders of --add-dir, absolute; UsageError unless each is one."""
    for folder in folders or ():
        if not folder.expanduser().is_dir():
            raise UsageError(f"--add-dir: {folder} is not a folder.")
    return tuple(folder.expanduser().resolve() for folder in folders or ())

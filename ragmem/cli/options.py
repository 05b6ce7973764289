"""How commands, options and arguments are declared; those that several commands have; offers."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ragmem.config import environment, find_paths, load_config
from ragmem.errors import RagmemError, UsageError
from ragmem.ids import short_id
from ragmem.text import one_line

if TYPE_CHECKING:
    from ragmem.app import App


def commands(about: str = "") -> typer.Typer:
    """One command; with `about`, which is shown when it is called alone, a group of them."""
    more: dict[str, Any] = {"no_args_is_help": True, "help": about} if about else {}
    return typer.Typer(rich_markup_mode=None, add_completion=False, **more)


def option(
    flags: str,
    about: str,
    value: str | None = None,
    *,
    least: int | None = None,
    most: int | None = None,
    offered: "Callable[[str], list[Offer]] | None" = None,
) -> Any:
    """An option by its flags, such as `-m --model`; `value` stands for what it takes.

    `offered` completes what is typed of that.
    """
    return typer.Option(
        *flags.split(), help=about, metavar=value, min=least, max=most, autocompletion=offered
    )


def argument(value: str, about: str, offered: "Callable[[str], list[Offer]] | None" = None) -> Any:
    """An argument by what stands for it in help; `offered` completes what is typed of it."""
    return typer.Argument(metavar=value, help=about, show_default=False, autocompletion=offered)


Offer = tuple[str, str]
"""What is put in, and what it is."""

_PATIENCE_S = 2.0
_OFFERED = 50
_ABOUT_CHARS = 60


def memory_ids(incomplete: str) -> list[Offer]:
    """Of this project's memories and the person's, newest first."""

    async def ask(opened: "App") -> list[Offer]:
        from ragmem.memory.memories import here
        from ragmem.records import MemoryQuery

        store = await opened.store()
        project_id = (await here(store, opened.cwd)).project.root_id
        found = await store.memories(MemoryQuery(project_ids=(project_id,)))
        return [(memory.memory_id, memory.content) for memory in found]

    return _offered(ask, incomplete)


def session_ids(incomplete: str) -> list[Offer]:
    """Of this folder's sessions, newest first."""

    async def ask(opened: "App") -> list[Offer]:
        from ragmem.memory.projects import folder_name
        from ragmem.records import SessionQuery

        query = SessionQuery(cwd=folder_name(opened.cwd), limit=_OFFERED)
        found = await (await opened.store()).sessions(query)
        return [(session.session_id, session.called) for session in found]

    return _offered(ask, incomplete)


def models(incomplete: str) -> list[Offer]:
    """Of those that can be used now."""
    from ragmem.llm.models import list_models

    try:
        found = list_models(environment(), load_config(find_paths().config_file))
    except (RagmemError, OSError):
        return []
    return [(each.name, each.why) for each in found if each.name.startswith(incomplete)][:_OFFERED]


def settings_keys(incomplete: str) -> list[Offer]:
    """Of the settings, each with its default."""
    from ragmem.config import keys

    return [(key, f"{at}") for key, at in keys().items() if key.startswith(incomplete)]


def _offered(ask: "Callable[[App], Awaitable[list[Offer]]]", incomplete: str) -> list[Offer]:
    """By the end of the id that lists show, or by the whole id where that is typed."""
    try:
        found = asyncio.run(_asked(ask))
    except (RagmemError, OSError, TimeoutError):
        return []
    typed = incomplete.casefold()
    offers = []
    for whole, about in found:
        shown = next((i for i in (short_id(whole), whole) if i.startswith(typed)), "")
        if shown:
            offers.append((shown, one_line(about, _ABOUT_CHARS)))
    return offers[:_OFFERED]


async def _asked(ask: "Callable[[App], Awaitable[list[Offer]]]") -> list[Offer]:
    from ragmem.cli.command import open_app

    paths = find_paths()
    if not paths.data_dir.is_dir():
        return []
    async with asyncio.timeout(_PATIENCE_S):
        config = load_config(paths.config_file)
        async with open_app(config, paths, ephemeral=True, show=lambda _: None) as opened:
            return await ask(opened)


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

Continue = Annotated[bool, option("-c --continue", "Continue the newest session of this folder.")]
Resume = Annotated[
    str | None,
    option(
        "-r --resume",
        "Resume a session: its id, the tail of one, or its name.",
        "[ID]",
        offered=session_ids,
    ),
]
Fork = Annotated[bool, option("--fork-session", "With -c or -r: go on in a copy of the session.")]
Everyone = Annotated[
    bool, option("--everyone", "With -c or -r: sessions of other people in the same database too.")
]
Model = Annotated[
    str | None, option("-m --model", "Model, as provider/model.", "MODEL", offered=models)
]
Effort = Annotated[
    Literal["none", "low", "medium", "high"] | None,
    option("-e --effort", "How long the model may think before it answers."),
]
Mode = Annotated[
    PermissionMode | None,
    option(
        "--permission-mode",
        "default asks before edits and commands, acceptEdits before commands, "
        "plan only reads, bypassPermissions never asks.",
    ),
]
Yolo = Annotated[bool, option("--yolo", "Short for bypassPermissions.")]
AddDir = Annotated[
    list[Path] | None,
    option("--add-dir", "Another folder that tools may use; may be repeated.", "DIR"),
]
Allow = Annotated[
    list[str] | None,
    option(
        "--allow",
        "Allow this tool without asking, or tool(pattern): run_command(git status*). May be "
        "repeated.",
        "RULE",
    ),
]
Ephemeral = Annotated[bool, option("--ephemeral", "Write neither session nor memory.")]
ColorOption = Annotated[
    Color | None, option("--color", "When to use colour; NO_COLOR turns it off.")
]
Format = Annotated[Literal["table", "json"], option("--format", "How to print it.")]

Reference = Annotated[str, argument("ID", "An id, the tail of one, or a name.", session_ids)]
OrNewest = Annotated[
    str | None,
    argument(
        "ID", "An id, the tail of one, or a name; else the newest of this folder.", session_ids
    ),
]
Wide = Literal["project", "all"]
WideScope = Annotated[
    Wide | None, option("--scope", "Where to look; the project, unless configured.")
]
Query = Annotated[str, argument("QUERY", "What to look for.")]
NoSemantic = Annotated[bool, option("--no-semantic", "By words alone, not by meaning.")]
Yes = Annotated[bool, option("--yes", "Don't ask.")]
NewFile = Annotated[Path | None, option("-o --output", "A new file, instead of stdout.", "FILE")]
Exported = Annotated[Path, argument("FILE", "As `export` has written it.")]
TextFormat = Annotated[Literal["text", "json"], option("--format", "How to print it.")]


_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_AGE = re.compile(r"(\d{1,5})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


def age_or_date(words: str) -> datetime | None:
    """The time that `7d` or `2026-11-01` means for `--since`; None for neither. UsageError."""
    if age := _AGE.fullmatch(words.strip()):
        return datetime.now(UTC) - timedelta(hours=int(age[1]) * _HOURS[age[2]])
    if _DATE.match(words.strip()):
        try:
            return datetime.fromisoformat(words.strip()).astimezone()
        except ValueError:
            raise UsageError(f"--since: {one_line(words, 40)!r} is no date.") from None
    return None


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


def allowed_tools(rules: list[str] | None) -> tuple[str, ...]:
    """The rules of --allow; UsageError for what is none, and for a tool that does not exist."""
    for each in rules or ():
        from ragmem.tools.patterns import read_rule

        tool = read_rule(each).tool
        # Which tools a server has is known when it runs.
        if tool not in TOOL_NAMES and "__" not in tool:
            raise UsageError(
                f"--allow: there is no tool {tool!r}.",
                hint=f"The tools are {', '.join(TOOL_NAMES)}.",
            )
    return tuple(rules or ())


def added_folders(folders: list[Path] | None) -> tuple[Path, ...]:
    """The folders of --add-dir, absolute; UsageError unless each is one."""
    for folder in folders or ():
        if not folder.expanduser().is_dir():
            raise UsageError(f"--add-dir: {folder} is not a folder.")
    return tuple(folder.expanduser().resolve() for folder in folders or ())

"""`ragmem chat`: a conversation in this folder."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ragmem.cli.command import (
    AddDir,
    ColorOption,
    Effort,
    Ephemeral,
    Everyone,
    Fork,
    Mode,
    Model,
    Resume,
    Yolo,
    added_folders,
    argument,
    check_session_flags,
    commands,
    current_folder,
    open_app,
    option,
    permission_mode,
    settings,
)
from ragmem.cli.output import typed
from ragmem.errors import EXIT_TRY_AGAIN, UsageError

if TYPE_CHECKING:
    from ragmem.agent.seat import Options
    from ragmem.app import App

app = commands()


@app.command()
def chat(  # noqa: PLR0913 - one parameter a flag
    prompt: Annotated[str | None, argument("[PROMPT]", "What to ask first.")] = None,
    continue_last: Annotated[
        bool,
        option("-c --continue", "Continue the newest chat here, or a one-off question if none is."),
    ] = False,
    resume: Resume = None,
    name: Annotated[str, option("-n --name", "Name the session.", "NAME")] = "",
    fork: Fork = False,
    everyone: Everyone = False,
    model: Model = None,
    effort: Effort = None,
    mode: Mode = None,
    yolo: Yolo = False,
    add_dir: AddDir = None,
    ephemeral: Ephemeral = False,
    color: ColorOption = None,
) -> None:
    """Talk with the agent in this folder. Bare `ragmem` and `ragmem "…"` do the same."""
    require_terminal()
    check_session_flags(continue_last=continue_last, resume=resume, fork=fork, everyone=everyone)
    goes_on = continue_last or resume is not None
    config, paths = settings(color=color, needs_memory=goes_on)
    chosen = permission_mode(mode, yolo=yolo, configured=config.ui.permission_mode)
    folders = added_folders(add_dir)
    cwd = current_folder()

    opened: list[App] = []

    def start(show: Callable[[str], None]) -> tuple["App", "Options"]:
        from ragmem.agent.seat import Options

        options = Options(
            model=model or "", effort=effort, permission_mode=chosen, add_dirs=folders
        )
        opened.append(
            open_app(
                config,
                paths,
                ephemeral=ephemeral,
                patient=False,
                everyone=everyone,
                brief=False,
                show=show,
            )
        )
        return opened[0], options

    from ragmem.repl.chat import Opening, run_chat

    opening = Opening(
        resume=resume,
        continue_last=continue_last,
        fork=fork,
        title=typed(name),
        prompt=typed(prompt or "").strip(),
    )
    code = run_chat(
        start,
        opening=opening,
        cwd=cwd,
        history=paths.prompt_history,
        look=config.ui,
        editing=config.chat.editing_mode,
    )
    # Done is what is kept too.
    kept = ephemeral or all(each.remembers for each in opened)
    raise typer.Exit(code if kept else code or EXIT_TRY_AGAIN)


def require_terminal() -> None:
    """UsageError at once unless a person can type."""
    if not sys.stdin.isatty():
        raise UsageError(
            "`ragmem chat` needs a terminal; standard input is not one.",
            hint="For scripts and pipes use `ragmem ask`.",
        )

"""`ragmem chat` and `acp`: talk to the agent, in the terminal or from an editor."""

import os
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ragmem.cli import command as cli
from ragmem.cli.output import typed
from ragmem.errors import EXIT_DONE, EXIT_TRY_AGAIN, UsageError

if TYPE_CHECKING:
    from ragmem.agent import Options
    from ragmem.app import App

app = cli.commands()


@app.command()
def chat(  # noqa: PLR0913 - one parameter a flag
    prompt: Annotated[str | None, cli.argument("[PROMPT]", "The first prompt.")] = None,
    continue_last: Annotated[
        bool,
        cli.option(
            "-c --continue",
            "Continue the newest chat of this folder, or else its newest one-off question.",
        ),
    ] = False,
    resume: cli.Resume = None,
    name: Annotated[str, cli.option("-n --name", "Name the session.", "NAME")] = "",
    fork: cli.Fork = False,
    everyone: cli.Everyone = False,
    model: cli.Model = None,
    effort: cli.Effort = None,
    mode: cli.Mode = None,
    yolo: cli.Yolo = False,
    add_dir: cli.AddDir = None,
    ephemeral: cli.Ephemeral = False,
    color: cli.ColorOption = None,
) -> None:
    """Chat with the agent in this folder. `ragmem` and `ragmem "…"` do the same."""
    require_terminal()
    cli.check_session_flags(
        continue_last=continue_last, resume=resume, fork=fork, everyone=everyone
    )
    goes_on = continue_last or resume is not None
    config, paths = cli.settings(color=color, needs_memory=goes_on)
    chosen = cli.permission_mode(mode, yolo=yolo, configured=config.ui.permission_mode)
    folders = cli.added_folders(add_dir)
    cwd = cli.current_folder()

    opened: list[App] = []

    def start(show: Callable[[str], None]) -> tuple["App", "Options"]:
        from ragmem.agent import Options

        options = Options(
            model=model or "", effort=effort, permission_mode=chosen, add_dirs=folders
        )
        opened.append(
            cli.open_app(
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
        keeps_prompts=config.memory.enabled and not ephemeral,
    )
    code = run_chat(start, opening=opening, cwd=cwd, history=paths.prompt_history, config=config)
    # Success requires that the turns are stored.
    kept = ephemeral or all(each.remembers for each in opened)
    raise typer.Exit(code if kept else code or EXIT_TRY_AGAIN)


def require_terminal() -> None:
    """Raise UsageError unless stdin is a terminal."""
    if not sys.stdin.isatty():
        raise UsageError(
            "`ragmem chat` needs a terminal, and standard input is not one.",
            hint="In scripts and pipes, use `ragmem ask`.",
        )


serving = cli.commands()


@serving.command()
def acp(model: cli.Model = None, effort: cli.Effort = None, mode: cli.Mode = None) -> None:
    """Serve an editor over the Agent Client Protocol.

    The editor starts it: in its settings, add the command `ragmem acp` to its agents.
    """
    cli.check_installed("acp", "editors")
    modes = [os.fstat(stream.fileno()).st_mode for stream in (sys.stdin, sys.stdout)]
    if not all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes):
        raise UsageError(
            "`ragmem acp` speaks to an editor over pipes; it is not for a terminal.",
            hint="In the editor's settings, add the command `ragmem acp` to its agents.",
        )
    config, paths = cli.settings(needs_memory=False)
    chosen = cli.permission_mode(mode, yolo=False, configured=config.ui.permission_mode)

    async def main(_: cli.Interruption) -> int:
        from ragmem.agent import Options
        from ragmem.cli.acp import serve

        await serve(
            config, paths, Options(model=model or "", effort=effort, permission_mode=chosen)
        )
        return EXIT_DONE

    raise typer.Exit(cli.run_async(main))

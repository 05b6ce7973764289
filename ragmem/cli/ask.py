"""`ragmem ask`: one question, one answer, made for pipes."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ragmem.cli.approve import terminal_approver
from ragmem.cli.choice import choose_session
from ragmem.cli.opening import open_app, settings
from ragmem.cli.options import (
    AddDir,
    Allow,
    ColorOption,
    Continue,
    Ephemeral,
    Everyone,
    Fork,
    Mode,
    Model,
    Resume,
    Yolo,
    added_folders,
    allowed_tools,
    check_session_flags,
    permission_mode,
)
from ragmem.cli.output import Output, OutputFormat, make_output, say_denials
from ragmem.cli.progress import Progress, wants_color
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.streams import is_interactive, read_prompt, say
from ragmem.config import Config, environment
from ragmem.errors import EXIT_DONE, EXIT_FAILED, EXIT_TRY_AGAIN, UsageError
from ragmem.events import TurnFinished
from ragmem.text import visible
from ragmem.tools.base import deny_all

if TYPE_CHECKING:
    from ragmem.agent import Agent

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def ask(  # noqa: PLR0913 - one parameter a flag
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT|-", show_default=False, help="The question; - is stdin."),
    ] = None,
    continue_last: Continue = False,
    resume: Resume = None,
    fork: Fork = False,
    everyone: Everyone = False,
    model: Model = None,
    output_format: Annotated[
        OutputFormat,
        typer.Option(help="text: the answer. json: one result. stream-json: one event a line."),
    ] = "text",
    include_partial: Annotated[
        bool,
        typer.Option(
            "--include-partial-messages", help="With stream-json: the words as they come."
        ),
    ] = False,
    max_turns: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most so many calls of the model.")
    ] = None,
    max_budget_usd: Annotated[
        float | None, typer.Option(metavar="X", help="At most so many dollars.")
    ] = None,
    mode: Mode = None,
    yolo: Yolo = False,
    allow: Allow = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Give the model no tools.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Into a pipe: terminal controls of the answer too.")
    ] = False,
    add_dir: AddDir = None,
    ephemeral: Ephemeral = False,
    color: ColorOption = None,
) -> None:
    """Ask one question and print the answer.

    With a PROMPT and a pipe, what is piped follows the prompt in a <stdin> block.
    """
    check_session_flags(continue_last=continue_last, resume=resume, fork=fork, everyone=everyone)
    if include_partial and output_format != "stream-json":
        raise UsageError("--include-partial-messages needs --output-format stream-json.")
    if raw and output_format != "text":
        raise UsageError("--raw needs --output-format text.")
    if max_budget_usd is not None and not max_budget_usd > 0:
        raise UsageError("--max-budget-usd must be more than 0.")
    folders, tools = added_folders(add_dir), allowed_tools(allow)
    goes_on = continue_last or resume is not None
    config, paths = settings(color=color, needs_memory=goes_on)
    text = read_prompt(prompt)

    from ragmem.app import Options

    options = Options(
        model=model or "",
        permission_mode=permission_mode(mode, yolo=yolo, configured=config.ui.permission_mode),
        add_dirs=folders,
        max_turns=max_turns,
        max_budget_usd=max_budget_usd,
        allow=tools,
        no_tools=no_tools,
    )

    async def main(interruption: Interruption) -> int:
        progress = _progress(config)
        approver = terminal_approver(progress) if is_interactive() else deny_all
        async with open_app(config, paths, ephemeral=ephemeral) as opened:
            opened.everyone = everyone
            session = await choose_session(
                opened, continue_last=continue_last, resume=resume, fork=fork
            )
            agent = await opened.agent(session, options, approver)
            try:
                for notice in opened.notices():
                    say(f"note: {visible(notice)}\n")
                output = make_output(
                    output_format,
                    progress,
                    session_id=session.session_id,
                    cwd=str(opened.cwd),
                    permission_mode=options.permission_mode,
                    include_partial=include_partial,
                    raw=raw,
                )
                code = await answer(agent, text, output, interruption)
            finally:
                await agent.aclose()
            await opened.leave_background(model=model or "")
            # Done is what is kept too.
            return code if opened.remembers or ephemeral else code or EXIT_TRY_AGAIN

    raise typer.Exit(run_async(main))


async def answer(agent: "Agent", prompt: str, output: Output, interruption: Interruption) -> int:
    """Run the turn to its recorded end, whatever happens to us or to the reader; the exit code."""
    code, unread = EXIT_FAILED, False
    with interruption.stopping(agent.interrupt):
        async for event in agent.ask(prompt):
            try:
                output.show(event)
            except BrokenPipeError:
                unread = True
                agent.interrupt()
            if isinstance(event, TurnFinished):
                say_denials(event)
                code = event.exit_code or (EXIT_FAILED if event.is_error else EXIT_DONE)
    return EXIT_FAILED if unread else code


def _progress(config: Config) -> Progress:
    environ = environment()
    color = wants_color(
        config.ui.color,
        no_color=bool(environ.get("NO_COLOR")),
        dumb=environ.get("TERM") == "dumb",
    )
    return Progress(live=sys.stderr.isatty(), color=color)

"""`ragmem ask`: ask one question and print the answer, for use in pipes."""

import shlex
import sys
import termios
from itertools import chain
from math import ceil
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from ragmem.cli import command as cli, output as out
from ragmem.cli.command import permission_mode
from ragmem.errors import EXIT_FAILED, EXIT_SIGINT, EXIT_SIGPIPE, EXIT_TRY_AGAIN, UsageError
from ragmem.events import (
    ContextBuilt,
    Event,
    MemoryWritten,
    MessageFinished,
    ModelCallStarted,
    Notice,
    PermissionDenial,
    ReasoningDelta,
    RetryWaiting,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from ragmem.ids import short_id
from ragmem.messages import Json, fields_in
from ragmem.own_tools import RUN_COMMAND
from ragmem.records import ASKED
from ragmem.text import clip_to_width, duration, one_line, reveal, visible, without_controls
from ragmem.tools.base import Approver, Decision, Proposal, deny_all
from ragmem.tools.permissions import OUTSIDE, PermissionRules, offers_for_command, read_rule

if TYPE_CHECKING:
    from ragmem.agent import Agent
    from ragmem.listings import Document


app = cli.commands()

OutputFormat = Literal["text", "json", "stream-json"]
_LINE_FIELDS = (
    "type subtype session_id turn_id turn_index cwd model permission_mode sections fallback"
    " recalled action kind content id trust superseded level text message event"
)
_LONGEST_WORD = 200
_COMMAND_CHARS, _RULE_CHARS = 80, 200
_WAITING = "waiting for the model …"


# --- progress on stderr -------------------------------------------------------


class Progress:
    """Shows tool calls, notices, totals on stderr; without `live`, only problems and memories."""

    def __init__(self, *, live: bool, paint: out.Paint) -> None:
        self._live, self._paint = live, paint
        self._titles: dict[str, str] = {}
        self._passing = out.PassingLine(paint)

    def show(self, event: Event) -> None:
        """Show an event, if it is of interest here."""
        match event:
            case Notice(level=level, text=text):
                self._notice(level, text)
            case MemoryWritten():
                line = one_line(event.line, 400)
                columns = get_terminal_size().columns
                self._line(clip_to_width(line, columns - 1) if self._live else line)
            case TurnFinished():
                self._finished(event)
            case _ if self._live:
                self._running(event)

    def clear(self) -> None:
        """Erase the status line, so that the answer starts on an empty line."""
        self._passing.clear()

    def _running(self, event: Event) -> None:
        match event:
            case ModelCallStarted():
                self._passing.show(_WAITING)
            case RetryWaiting(reason=reason, attempt=attempt, most=most, wait_s=wait_s):
                self._passing.show(f"{reason} · try {attempt} of {most} in {ceil(wait_s)} s …")
            case TextDelta():
                self.clear()
            case ToolStarted():
                self._titles[event.tool_call_id] = event.title
                self._passing.show(f"{event.title} …")
            case ToolFinished():
                title = one_line(self._titles.pop(event.tool_call_id, event.name), 160)
                mark = "✗" if event.failed else "●"
                reason = ": " + one_line(event.display, 200) if event.failed else ""
                self._line(f"{mark} {title}{reason} ({duration(event.duration_ms)})")

    def _notice(self, level: str, text: str) -> None:
        if level != "info":
            self.clear()
            out.say(f"{level}: {one_line(text, 2000)}\n")
        elif self._live:
            self._line(one_line(text, 2000))

    def _finished(self, event: TurnFinished) -> None:
        self.clear()
        if event.subtype == "interrupted":
            out.say("interrupted\n")
        elif event.error:
            out.say(f"error: {visible(event.error)}\n")
            if event.hint:
                out.say(f"{visible(event.hint)}\n")
        if self._live:
            self._line(closing_line(event))

    def _line(self, text: str) -> None:
        self.clear()
        out.say(self._paint((text, "dim")) + "\n")


def closing_line(finished: TurnFinished) -> str:
    """Return session, model, tokens, cost and duration of a turn on one line."""
    usage = finished.usage
    parts = [f"session {short_id(finished.session_id)}", one_line(finished.model, 80)]
    if usage.input_tokens is not None and usage.output_tokens is not None:
        parts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
    if usage.cost_usd is not None:
        parts.append(f"${usage.cost_usd:.4f}")
    parts.append(duration(finished.duration_ms))
    return " · ".join(parts)


# --- output formats -----------------------------------------------------------


class TextOutput:
    """Prints only the answer to stdout: streamed if stdout is a terminal (`live`), else at the end.

    An answer `checked` against a schema is printed at the end, and only if it matches.
    """

    def __init__(
        self, progress: Progress, *, live: bool, raw: bool = False, checked: bool = False
    ) -> None:
        self._progress = progress
        self._live = live and not checked
        self._checked = checked
        self._raw = raw
        """Whether terminal controls in the answer are kept when it is written to a pipe."""
        self._flow = VisibleFlow()
        self._streamed = ""

    def show(self, event: Event) -> None:
        """Stream the answer's text; show other events on stderr."""
        match event:
            case TextDelta(text=text) if self._live:
                self._progress.clear()
                self._stream(self._flow.feed(text))
            case MessageFinished() | Notice() if self._live:
                self._stream(self._flow.flush())
                self._end_line()
            case TurnFinished():
                self._progress.clear()
                self._finish(event)
        self._progress.show(event)

    def _stream(self, text: str) -> None:
        if text:
            self._streamed += text
            out.write(text)

    def _end_line(self) -> None:
        if self._streamed and not self._streamed.endswith("\n"):
            self._stream("\n")

    def _finish(self, finished: TurnFinished) -> None:
        answer = finished.result.rstrip("\n")
        if self._checked and finished.subtype != "success":
            return
        if self._live:
            self._stream(self._flow.flush())
            self._end_line()
            # The answer was not streamed, for example because memory gave it.
            if answer and not self._streamed.rstrip("\n").endswith(visible(answer)):
                out.write(visible(answer) + "\n")
        elif answer:
            out.write((answer if self._raw else without_controls(answer)) + "\n")


class JsonOutput:
    """Prints one result object to stdout at the end."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def show(self, event: Event) -> None:
        """Print the result when the turn ends; show other events on stderr."""
        from ragmem.listings import result_document

        self._progress.show(event)
        if isinstance(event, TurnFinished):
            out.write_json(out.to_json(result_document(event)))


class StreamJsonOutput:
    """Prints one JSON object per event and line, the result last.

    Every line has a `session_id`; fields that don't apply to its type are left out.
    """

    def __init__(
        self, session_id: str, *, cwd: str, permission_mode: str, include_partial: bool = False
    ) -> None:
        self._session_id = session_id
        self._cwd = cwd
        self._permission_mode = permission_mode
        self._include_partial = include_partial

    def show(self, event: Event) -> None:
        """Print an event's line, if there is one for its type."""
        from ragmem.listings import result_document

        if isinstance(event, TurnFinished):
            out.write_json(out.to_json(result_document(event), indent=None))
        elif line := self._line(event):
            out.write_json(out.to_json(line, indent=None))

    def _line(self, event: Event) -> "Document | None":
        from ragmem.listings import text_block, tool_result_block, tool_use_block

        match event:
            case TurnStarted():
                where = {"cwd": self._cwd, "permission_mode": self._permission_mode}
                return self._of("system", event, subtype="init", **where)
            case ContextBuilt():
                return self._of("system", event, subtype="memory_recall")
            case MemoryWritten():
                return self._of("system", event, subtype="memory_write")
            case Notice():
                return self._of("system", event, subtype="notice")
            case MessageFinished():
                said = [text_block(event.text)] if event.text else []
                said += [tool_use_block(*use) for use in event.tool_uses]
                return self._of("assistant", message={"role": "assistant", "content": said})
            case ToolFinished():
                block = tool_result_block(
                    event.tool_call_id, event.text, is_error=not event.success
                )
                return self._of("user", message={"role": "user", "content": [block]})
            case TextDelta(text=text) if self._include_partial:
                return self._partial({"type": "text_delta", "text": text})
            case ReasoningDelta(text=text) if self._include_partial:
                return self._partial({"type": "thinking_delta", "thinking": text})
            case _:
                return None

    def _of(self, kind: str, *events: Event, **others: object) -> "Document":
        from ragmem.listings import document

        line = document(_LINE_FIELDS, *events, type=kind, session_id=self._session_id, **others)
        return {name: value for name, value in line.items() if value is not None}

    def _partial(self, delta: dict[str, Json]) -> "Document":
        return self._of("stream_event", event={"type": "content_block_delta", "delta": delta})


Output = TextOutput | JsonOutput | StreamJsonOutput


class VisibleFlow:
    """Applies `visible` to streamed text by whole words, because it looks at neighbours."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Add a chunk; return the text that can be shown so far."""
        self._held += text
        end = max(self._held.rfind(" "), self._held.rfind("\n")) + 1
        if not end and len(self._held) > _LONGEST_WORD:
            end = len(self._held) - 1
        ready, self._held = self._held[:end], self._held[end:]
        return visible(ready)

    def flush(self) -> str:
        """Return the rest of the text."""
        ready, self._held = self._held, ""
        return visible(ready)


def _missing_rules(denial: PermissionDenial, rules: PermissionRules) -> tuple[str, ...]:
    """Return the rules missing to allow a denied call; leaving the sandbox needs its own rule."""
    given = fields_in(denial.arguments)
    kind = OUTSIDE if given.get(OUTSIDE) else denial.tool_name
    if denial.tool_name != RUN_COMMAND:
        return (kind,)
    exact, *_ = offers_for_command(str(given.get("command", "")), kind) or ((),)
    lacking = [e for e in exact if not rules.allows_command(read_rule(e).pattern, kind)]
    return tuple(lacking) if sum(map(len, lacking)) <= _RULE_CHARS else ()


def _label(denial: PermissionDenial) -> str:
    command = fields_in(denial.arguments).get("command")
    shown = f" `{one_line(str(command), _COMMAND_CHARS)}`" if command else ""
    return visible(denial.tool_name + shown)


def say_denials(finished: TurnFinished, rules: PermissionRules) -> None:
    """Report on stderr the calls that were denied, and the rules that would allow them."""
    denials = finished.permission_denials
    if asked := [denial for denial in denials if not denial.final]:
        names = ", ".join(dict.fromkeys(map(_label, asked)))
        lacking = [_missing_rules(denial, rules) for denial in asked]
        allow = " ".join(f"--allow {shlex.quote(rule)}" for rule in dict.fromkeys(chain(*lacking)))
        way = f"Use {visible(allow)}, or --permission-mode." if allow else ""
        if unfit := [_label(each) for each, rule in zip(asked, lacking, strict=True) if not rule]:
            way += (
                f" No narrower rule matches {', '.join(dict.fromkeys(unfit))}; "
                f"only --allow {RUN_COMMAND} does."
            )
        out.say(f"warning: not allowed: {names}. {way.strip()}\n")
    final = {_label(denial): one_line(denial.reason, 200) for denial in denials if denial.final}
    for name, reason in final.items():
        out.say(f"warning: not allowed: {name}. {visible(reason)}\n")


# --- asking for permission ----------------------------------------------------


def terminal_approver(progress: Progress) -> Approver:
    """Return an approver that shows the whole proposal and reads y, n, a, or a reason to refuse."""

    async def approve(proposal: Proposal) -> Decision:
        progress.clear()
        # What was typed before it is no answer to it.
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        out.say(proposal_text(proposal))
        always = f"[a]lways: {proposal.always}, " if proposal.always else ""
        question = f"Allow? [y]es, [n]o, {always}or type what to do instead: "
        while (decision := decide(await cli.ask_line(question), proposal)) is None:
            continue
        return decision

    return approve


def proposal_text(proposal: Proposal) -> str:
    """Return the whole proposal, with hidden characters made visible."""
    lines = [f"── {reveal(proposal.title)} ({proposal.size})"]
    lines += [f"warning: {reveal(warning)}" for warning in proposal.warnings]
    return "\n".join([*lines, reveal(proposal.body).rstrip("\n"), ""])


def decide(answer: str, proposal: Proposal) -> Decision | None:
    """Interpret an answer: anything but a yes is a no, with the text as its reason.

    Returns None for "always" if that is not offered.
    """
    match answer.strip().casefold():
        case "y" | "yes":
            return Decision(True)
        case "a" | "always":
            return Decision(True, remember=True) if proposal.always else None
        case "" | "n" | "no":
            return Decision(False, reason="the user said no")
    return Decision(False, reason=answer.strip())


# --- the command --------------------------------------------------------------


@app.command()
def ask(  # noqa: PLR0913 - one parameter a flag
    prompt: Annotated[
        str | None, cli.argument("PROMPT|-", "The prompt; - reads it from stdin.")
    ] = None,
    continue_last: cli.Continue = False,
    resume: cli.Resume = None,
    fork: cli.Fork = False,
    everyone: cli.Everyone = False,
    model: cli.Model = None,
    effort: cli.Effort = None,
    output_format: Annotated[
        OutputFormat,
        cli.option(
            "--output-format",
            "text: the answer. json: one result object. stream-json: one event per line.",
        ),
    ] = "text",
    include_partial: Annotated[
        bool,
        cli.option(
            "--include-partial-messages", "With stream-json: include the answer as it streams."
        ),
    ] = False,
    max_turns: Annotated[
        int | None, cli.option("--max-turns", "Maximum number of model calls.", "N", least=1)
    ] = None,
    max_budget_usd: Annotated[
        float | None, cli.option("--max-budget-usd", "Maximum cost in US dollars.", "X")
    ] = None,
    mode: cli.Mode = None,
    yolo: cli.Yolo = False,
    allow: cli.Allow = None,
    no_tools: Annotated[bool, cli.option("--no-tools", "Don't give the model any tools.")] = False,
    json_schema: Annotated[
        str | None,
        cli.option(
            "--json-schema",
            "Return JSON that is validated against this JSON Schema: a file, or the schema itself.",
            "FILE|JSON",
        ),
    ] = None,
    raw: Annotated[
        bool,
        cli.option("--raw", "When piped, print control characters as they are, not escaped."),
    ] = False,
    add_dir: cli.AddDir = None,
    ephemeral: cli.Ephemeral = False,
    color: cli.ColorOption = None,
) -> None:
    """Ask one question and print the answer.

    With both a PROMPT and piped input, the input is appended in a <stdin> block. No rules or
    preferences are learned from piped text.
    """
    cli.check_session_flags(
        continue_last=continue_last, resume=resume, fork=fork, everyone=everyone
    )
    if include_partial and output_format != "stream-json":
        raise UsageError("--include-partial-messages requires --output-format stream-json.")
    if raw and output_format != "text":
        raise UsageError("--raw requires --output-format text.")
    if max_budget_usd is not None and not max_budget_usd > 0:
        raise UsageError("--max-budget-usd must be greater than 0.")
    folders, tools = cli.added_folders(add_dir), cli.allowed_tools(allow)
    goes_on = continue_last or resume is not None
    config, paths = cli.settings(color=color, needs_memory=goes_on)
    text = out.read_prompt(prompt)

    from ragmem.agent import Options

    schema = None
    if json_schema is not None:
        from ragmem.agent.schema import AnswerSchema

        schema = AnswerSchema.read(json_schema)
    options = Options(
        model=model or "",
        effort=effort,
        permission_mode=permission_mode(mode, yolo=yolo, configured=config.ui.permission_mode),
        add_dirs=folders,
        max_turns=max_turns,
        max_budget_usd=max_budget_usd,
        allow=tools,
        no_tools=no_tools,
        schema=schema,
    )

    async def main(interruption: cli.Interruption) -> int:
        progress = Progress(live=sys.stderr.isatty(), paint=out.paint_for(config.ui, sys.stderr))
        approver = terminal_approver(progress) if out.is_interactive() else deny_all
        async with cli.open_app(
            config, paths, ephemeral=ephemeral, patient=False, everyone=everyone
        ) as opened:
            session = await cli.choose_session(
                opened, continue_last=continue_last, resume=resume, fork=fork
            )
            if not continue_last and resume is None:
                session = msgspec.structs.replace(session, tags=(ASKED,))
            agent = await cli.with_weights(paths, lambda: opened.agent(session, options, approver))
            try:
                cli.say_notices(opened)
                output: Output
                if output_format == "json":
                    output = JsonOutput(progress)
                elif output_format == "stream-json":
                    output = StreamJsonOutput(
                        session.session_id,
                        cwd=str(opened.cwd),
                        permission_mode=options.permission_mode,
                        include_partial=include_partial,
                    )
                else:
                    live, checked = sys.stdout.isatty(), schema is not None
                    output = TextOutput(progress, live=live, raw=raw, checked=checked)
                skill_set = await opened.skill_set(session)
                # Who wrote piped text is unknown, so that it stays marked by its <stdin> block.
                is_piped = prompt in (None, "-")
                meant = out.join_prompt("", text) if is_piped else skill_set.expanded(text)
                if hint := skill_set.hint():
                    out.say(f"note: {visible(hint)}\n")
                code = await answer(agent, meant, output, interruption)
            finally:
                await agent.aclose()
            await opened.leave_background(model=model or "")
            # Success requires that the turn is stored.
            return code if opened.remembers or ephemeral else code or EXIT_TRY_AGAIN

    raise typer.Exit(cli.run_async(main))


async def answer(
    agent: "Agent", prompt: str, output: Output, interruption: cli.Interruption
) -> int:
    """Run a turn to its recorded end, despite signals or a closed stdout; return the exit code."""
    code, unread = EXIT_FAILED, False

    def stop() -> None:
        agent.interrupt(by_person=interruption.exit_code == EXIT_SIGINT)

    with interruption.stopping(stop):
        async for event in agent.ask(prompt):
            try:
                output.show(event)
            except BrokenPipeError:
                unread = True
                agent.interrupt(by_person=False)
            if isinstance(event, TurnFinished):
                say_denials(event, agent.rules)
                code = event.exit_code
    return EXIT_SIGPIPE if unread else code

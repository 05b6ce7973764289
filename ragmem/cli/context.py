"""`ragmem context`: exactly what would be sent with a prompt, and why."""

from shutil import get_terminal_size
from typing import Annotated, Literal

import typer

from ragmem.cli.choice import choose_session
from ragmem.cli.documents import (
    Document,
    text_block,
    to_json,
    tool_result_block,
    tool_use_block,
)
from ragmem.cli.opening import open_app, settings
from ragmem.cli.options import Continue, Model, Resume, check_session_flags
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.streams import say, typed, write, write_json
from ragmem.cli.table import table
from ragmem.errors import EXIT_DONE, UsageError
from ragmem.memory.context import Context, Strategy
from ragmem.messages import Json, Message, Part, TextPart, ToolAnswer, ToolUse
from ragmem.text import bar, visible
from ragmem.tools.base import deny_all

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_BAR = 10
_WIDTH = 140


class ContextItemDocument(Document, frozen=True, kw_only=True):
    """One thing in a section; `id` of what was recalled, else null."""

    id: str | None
    label: str
    chars: int
    score: float | None
    why: str


class ContextSectionDocument(Document, frozen=True, kw_only=True):
    """One section of the request; a budget of 0 is no limit."""

    name: str
    chars: int
    budget: int
    items: tuple[ContextItemDocument, ...]
    dropped: int


class MessageDocument(Document, frozen=True, kw_only=True):
    """A message in the blocks that providers share."""

    role: str
    content: tuple[dict[str, Json], ...]


class ContextDocument(Document, frozen=True, kw_only=True):
    """A request as it would be sent."""

    session_id: str
    max_chars: int
    tokens: int
    """Estimated at four characters each."""
    fallback: bool
    sections: tuple[ContextSectionDocument, ...]
    messages: tuple[MessageDocument, ...]


@app.command()
def context(
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", show_default=False, help="The prompt.")
    ],
    continue_last: Continue = False,
    resume: Resume = None,
    strategy: Annotated[
        Strategy,
        typer.Option(
            "--strategy", help="recent: the latest turns; relevant: what bears on it; hybrid: both."
        ),
    ] = "hybrid",
    model: Model = None,
    output: Annotated[
        Literal["text", "json"], typer.Option("--format", help="How to print it.")
    ] = "text",
) -> None:
    """Show exactly what `ask` would send, with budgets and reasons.

    Nothing is sent and nothing is stored.
    """
    check_session_flags(continue_last=continue_last, resume=resume, fork=False)
    prompt = typed(prompt)
    if not prompt.strip():
        raise UsageError("The prompt is empty.")
    config, paths = settings()

    from ragmem.app import Options

    options = Options(model=model or "")

    async def main(_: Interruption) -> int:
        async with open_app(config, paths) as opened:
            session = await choose_session(opened, continue_last=continue_last, resume=resume)
            agent = await opened.agent(session, options, deny_all)
            try:
                built = await agent.context(prompt, strategy=strategy)
            finally:
                await agent.aclose()
        if output == "json":
            write_json(to_json(context_document(session.session_id, built)))
        else:
            width = get_terminal_size((_WIDTH, 24)).columns
            say(budgets_table(built, width=width) + "\n")
            write(visible(built.text()) + "\n")
        return EXIT_DONE

    raise typer.Exit(run_async(main))


def budgets_table(built: Context, *, width: int = _WIDTH) -> str:
    """Sections with their sizes, budgets and what was left out."""
    rows = []
    for section in built.sections:
        budget = f"{section.budget:,}" if section.budget else "-"
        whys = dict.fromkeys(item.why for item in section.items)
        rows.append(
            (
                section.name,
                f"{section.chars:,}",
                budget,
                bar(section.chars, section.budget, _BAR) if section.budget else "",
                str(len(section.items)),
                str(section.dropped),
                "; ".join(whys),
            )
        )
    total = sum(section.chars for section in built.sections)
    full = bar(total, built.max_chars, _BAR)
    rows.append(
        ("total", f"{total:,}", f"{built.max_chars:,}", full, "", "", f"~{built.tokens:,} tokens")
    )
    head = ("SECTION", "CHARS", "BUDGET", "FILLED", "ITEMS", "DROPPED", "WHY")
    note = "The store could not answer: pruned history stands in.\n" if built.fallback else ""
    return note + table(head, rows, width=width)


def context_document(session_id: str, built: Context) -> ContextDocument:
    """The request as one document."""
    return ContextDocument(
        session_id=session_id,
        max_chars=built.max_chars,
        tokens=built.tokens,
        fallback=built.fallback,
        sections=tuple(
            ContextSectionDocument(
                name=section.name,
                chars=section.chars,
                budget=section.budget,
                items=tuple(
                    ContextItemDocument(
                        id=item.record_id or None,
                        label=item.label,
                        chars=item.chars,
                        score=item.score,
                        why=item.why,
                    )
                    for item in section.items
                ),
                dropped=section.dropped,
            )
            for section in built.sections
        ),
        messages=tuple(message_document(message) for message in built.messages),
    )


def message_document(message: Message) -> MessageDocument:
    """A message as blocks: `text`, `tool_use`, `tool_result`."""
    return MessageDocument(role=message.role, content=tuple(map(_block, message.parts)))


def _block(part: Part) -> dict[str, Json]:
    match part:
        case TextPart(text):
            return text_block(text)
        case ToolUse(tool_use_id, name, arguments):
            return tool_use_block(tool_use_id, name, arguments)
        case ToolAnswer(tool_use_id, text, is_error):
            return tool_result_block(tool_use_id, text, is_error=is_error)
